"""What can be read as a page: the profile of the person, the days of their memory, one memory in full."""

from __future__ import annotations

import datetime as dt
import re
import urllib.parse
from http import HTTPStatus
from typing import Any, TypeAlias

import msgspec

from everosd import errors
from everosd.mcp import backend, owner, refusal, shape, tools

JsonObject: TypeAlias = dict[str, Any]
MARKDOWN = "text/markdown"
SCHEME = "everosd://"
RECENT = 50
"""Entries of the page without a date."""
PAGE = 100
MAX_PAGES = 10
"""A day or month of more than a thousand entries is cut, and says so."""

_PERIOD = re.compile(r"(?P<year>\d{4})(?:-(?P<month>\d{2})(?:-(?P<day>\d{2}))?)?")


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A resource, or a template of some."""

    uri: str
    name: str
    title: str
    description: str


RESOURCES = (
    Page(
        uri=f"{SCHEME}profile",
        name="profile",
        title="Who the person is",
        description="What is known of the person whose memory this is: facts, preferences, people around them.",
    ),
    Page(
        uri=f"{SCHEME}timeline",
        name="timeline",
        title="What happened lately",
        description=f"The newest {RECENT} conversations and memories, newest first.",
    ),
)
TEMPLATES = (
    Page(
        uri=f"{SCHEME}timeline/{{date}}",
        name="timeline_of",
        title="What happened then",
        description="The conversations and memories of a day (2026-03-02), a month (2026-03) or a year (2026), in order.",
    ),
    Page(
        uri=f"{SCHEME}memory/{{memory_id}}",
        name="memory",
        title="One memory",
        description="One memory or Episode, uncut, with its status and the file it stands in.",
    ),
)


async def read(uri: str, call: tools.Call, asked: backend.Backend) -> str:
    """Return a page as Markdown.

    Raises:
        NotFound: there is no such page.
        Unanswered: nobody answers.
        EverosdError: the daemon refused; the message says why.
    """
    name, _, rest = uri.removeprefix(SCHEME).partition("/")
    what = urllib.parse.unquote(rest)
    if not uri.startswith(SCHEME):
        name = ""
    if name == "profile" and not what:
        return await _profile(call, asked)
    if name == "timeline" and not what:
        data = await _dated(call, asked, limit=RECENT)
        return _days("What happened lately", data.get("items") or [])
    if name == "timeline" and (period := _period(what, call.zone)) is not None:
        return await _timeline(what, period, call, asked)
    if name == "memory" and what:
        return await _memory(what, call, asked)
    pages = ", ".join(one.uri for one in (*RESOURCES, *TEMPLATES))
    message = f"there is no resource {uri[:200]!r}; there are {pages}"
    raise errors.NotFound(message)


async def _profile(call: tools.Call, asked: backend.Backend) -> str:
    body = {"memory_type": "profile", **call.whose.fields()}
    found = (await _data(asked, "POST", "memory/get", body)).get("profiles") or []
    if not found:
        return f"# {call.whose.user_id}\n\nNothing is known yet.\n"
    return f"# {call.whose.user_id}\n\n{_text_of(found[0].get('profile_data'))}\n"


async def _timeline(
    what: str, period: tuple[dt.datetime, dt.datetime], call: tools.Call, asked: backend.Backend
) -> str:
    first, end = period
    found: list[JsonObject] = []
    total = 0
    ends = {"since": first.isoformat(), "until": end.isoformat()}
    for page in range(MAX_PAGES):
        data = await _dated(call, asked, limit=PAGE, offset=page * PAGE, order="asc", **ends)
        found += data.get("items") or []
        total = int(data.get("total_count") or 0)
        if len(found) >= total or not data.get("items"):
            break
    left_out = total - len(found)
    text = _days(what, found)
    return f"{text}\n({left_out} more are left out: ask for a shorter time)\n" if left_out > 0 else text


async def _dated(call: tools.Call, asked: backend.Backend, **wanted: str | int) -> JsonObject:
    query = urllib.parse.urlencode(wanted | call.whose.fields())
    return await _data(asked, "GET", f"memory/timeline?{query}")


async def _memory(what: str, call: tools.Call, asked: backend.Backend) -> str:
    memory_id = owner.checked(call.whose, what)
    query = urllib.parse.urlencode(call.whose.fields())
    one = await _data(asked, "GET", f"entries/{urllib.parse.quote(memory_id, safe='')}?{query}")
    about = [f"- id: {memory_id}"]
    about += [
        f"- {name}: {one[name]}"
        for name in (
            "status",
            "timestamp",
            "memory_type",
            "path",
            "importance",
            "confidence",
            "expires_at",
            "deprecated_by",
        )
        if one.get(name) is not None
    ]
    about.append(f"- file: {one.get('file')}:{one.get('line')}")
    return f"# {one.get('subject') or memory_id}\n\n" + "\n".join(about) + f"\n\n{one.get('text', '')}\n"


async def _data(asked: backend.Backend, method: str, path: str, body: JsonObject | None = None) -> JsonObject:
    """Return what a route that only reads has to say.

    Raises:
        NotFound, EverosdError: it refused.
    """
    reply = await asked.call(method, f"{owner.API}/{path}", body, is_read=True)
    if reply.status == HTTPStatus.NOT_FOUND:
        raise errors.NotFound(refusal.of_reply(reply))
    data = reply.body.get("data")
    if reply.status >= HTTPStatus.BAD_REQUEST or not isinstance(data, dict):
        raise errors.EverosdError(refusal.of_reply(reply))
    return data


def _period(what: str, zone: dt.tzinfo) -> tuple[dt.datetime, dt.datetime] | None:
    """Return the first moment of a day, month or year, and the first after it; None where it is none of them."""
    match = _PERIOD.fullmatch(what)
    if match is None:
        return None
    year, month, day = int(match["year"]), int(match["month"] or 1), int(match["day"] or 1)
    try:
        first = dt.datetime(year, month, day, tzinfo=zone)
        if match["day"]:
            end = dt.datetime.combine(first.date() + dt.timedelta(days=1), dt.time(), tzinfo=zone)
        elif match["month"]:
            end = dt.datetime(year + month // 12, month % 12 + 1, 1, tzinfo=zone)
        else:
            end = dt.datetime(year + 1, 1, 1, tzinfo=zone)
    except (ValueError, OverflowError):
        return None
    return first, end


def _days(title: str, found: list[JsonObject]) -> str:
    """Return what was remembered as Markdown, under its days, up to what one answer holds."""
    lines = [f"# {title}", ""]
    if not found:
        return "\n".join([*lines, "Nothing is remembered.", ""])
    day, n_chars = "", 0
    for nth, one in enumerate(found):
        moment = str(one.get("timestamp", ""))
        if moment[:10] != day:
            day = moment[:10]
            lines += [f"## {day}", ""]
        text = str(one.get("text", ""))
        n_chars += len(text) + 200
        if n_chars > shape.MAX_BYTES // 2:
            lines += [f"({len(found) - nth} more are left out: ask for a shorter time)", ""]
            break
        lines += [
            f"### {moment[11:16]} {one.get('subject') or one.get('id')}",
            "",
            f"id: {one.get('id')}" + (f" ({one.get('memory_type')}, {one['path']})" if one.get("path") else ""),
            "",
            text,
            "",
        ]
    return "\n".join(lines)


def _text_of(value: object) -> str:
    """Return nested data as Markdown lists."""
    if isinstance(value, dict):
        return "\n".join(
            f"## {name}\n\n{_text_of(part)}\n" if isinstance(part, dict | list) else f"- {name}: {part}"
            for name, part in value.items()
        )
    if isinstance(value, list):
        return "\n".join(f"- {one if isinstance(one, str) else msgspec.json.encode(one).decode()}" for one in value)
    return "" if value is None else str(value)
