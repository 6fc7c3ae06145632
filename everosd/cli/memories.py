"""Typed memories as text for people, and the options that pick them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Annotated, cast

import typer

from everosd.cli import asking, show

ANY = "%"
TYPES = ("working", "episodic", "semantic", "procedural", "identity")
STATUSES = "active, deprecated, expired, superseded, archived or deleted"
WIDTH = 100
SHOWN = 20
"""Versions, changes and files that are listed; `--full` and `--json` have them all."""
NOTED = ("semantic_key", "promotion_key", "bucket", "scope", "team_id", "version", "metadata", "provenance")
"""Inline fields that `memory show` names where they are there."""

TypeFilter = Annotated[
    str, typer.Option("--type", metavar="TYPE", help="Only such typed memories: semantic, %, …", show_default=False)
]
PathFilter = Annotated[
    str,
    typer.Option(
        "--path",
        metavar="PATTERN",
        help="Only typed memories at this path; projects/% is all below.",
        show_default=False,
    ),
]
BucketFilter = Annotated[
    str, typer.Option("--bucket", metavar="PATTERN", help="Only in this bucket; % is any.", show_default=False)
]
ScopeFilter = Annotated[
    str | None, typer.Option("--scope", metavar="PATTERN", help="Only with this label; % is any.", show_default=False)
]
TeamFilter = Annotated[
    str | None, typer.Option("--team", metavar="PATTERN", help="Only of this team; % is any.", show_default=False)
]
Limit = Annotated[int, typer.Option("--limit", metavar="N", help="At most so many, 1 to 1000.", min=1, max=1000)]
Offset = Annotated[int, typer.Option("--offset", metavar="N", help="Leave out the first so many.", min=0)]


def print_page(data: show.Body, offset: int) -> int:
    """Print a page of memories, and what to type for the next one; return how many there are in all."""
    found, total = show.rows(data, "items"), cast("int", data.get("total_count") or 0)
    for one in found:
        print("\n".join(listed(one)))
    if total > offset + len(found):
        print(f"… and {total - offset - len(found):,} more: --offset {offset + len(found)}")
    return total


def filters(
    *, type_: str = ANY, path: str = ANY, bucket: str = ANY, scope: str | None = None, team: str | None = None
) -> dict[str, str]:
    """Return the fields of a request that pick memories; nothing of what lets all through.

    Raises:
        errors.RequestError: there is no such type.
    """
    if "%" not in type_ and type_ not in TYPES:
        asking.refuse(f"--type: there is no type {asking.legible(type_)!r}", f"there are {', '.join(TYPES)}")
    given = {"memory_type": type_, "path_filter": path, "bucket": bucket, "scope": scope, "team_id": team}
    return {name: asking.legible(value) for name, value in given.items() if value not in (None, ANY)}


def written(data: show.Body, done: str = "updated") -> Iterator[str]:
    """Yield what became of a memory that was remembered or changed; `done` says how it was."""
    said = {
        "created": "remembered",
        "updated": f"{done}, now version {data.get('version')}",
        "unchanged": f"{'says that' if done == 'updated' else f'is {done}'} already; nothing was written",
        "duplicate": "is known already; nothing was written",
    }.get(str(data.get("outcome")), str(data.get("outcome")))
    yield f"{data.get('id')}  {said}"
    status = "" if data.get("status") == "active" else f", {data.get('status')}"
    yield f"    {data.get('memory_type')}, {data.get('path')}{status}"
    yield f"    {data.get('file')}"


def whole(data: show.Body) -> Iterator[str]:
    """Yield all of an entry: what it is, what it says, where it stands."""
    yield _title(data)
    known = [str(data.get("memory_type") or data.get("kind") or "")]
    if data.get("path"):
        known.append(str(data["path"]))
    known.append(str(data.get("status")))
    yield f"    {data.get('id')}  {', '.join(known)}"
    fields = show.section(data, "fields")
    parts = [
        f"{name} {data[name]:g}" for name in ("importance", "confidence") if isinstance(data.get(name), (int, float))
    ]
    if fields.get("pinned") == "true":
        parts.append("pinned")
    if data.get("expires_at"):
        parts.append(f"expires {show.minute(str(data['expires_at']))}")
    if parts:
        yield f"    {', '.join(parts)}"
    when = f"    of {show.minute(str(data.get('timestamp') or ''))}"
    changed = fields.get("updated_at")
    yield when + (f", changed {show.minute(str(changed))}" if changed else "")
    yield from (f"    {name} {fields[name]}" for name in NOTED if fields.get(name))
    if data.get("deprecated_by"):
        yield f"    replaced by {data['deprecated_by']}"
    sources = cast("list[str]", data.get("sources") or [])
    if sources:
        yield f"    made from {', '.join(sources[:SHOWN])}" + (
            f" and {len(sources) - SHOWN:,} more" if len(sources) > SHOWN else ""
        )
    yield f"    {data.get('file')}:{data.get('line')}"
    yield ""
    yield str(data.get("content") or data.get("text") or "").rstrip()


def listed(one: show.Body) -> Iterator[str]:
    """Yield the lines of one memory in a list: what it is about, its id, what became of it, what comes next."""
    flags = ["pinned"] if one.get("pinned") else []
    if one.get("status") != "active":
        flags.append(str(one.get("status")))
    place = ", ".join(part for part in (str(one.get("memory_type") or ""), str(one.get("path") or "")) if part)
    importance = one.get("importance")
    weight = f"{importance:.2f}" if isinstance(importance, (int, float)) else "    "
    mark = f"  [{', '.join(flags)}]" if flags else ""
    title = textwrap.shorten(str(one.get("subject") or "(no title)"), WIDTH - 30, placeholder=" …")
    yield f"{weight}  {title}  {place}{mark}".rstrip()
    yield f"      {one.get('id')}"
    told = [str(one["reason"])] if one.get("reason") else []
    if one.get("since"):
        told.insert(0, f"since {show.minute(str(one['since']))}")
    if one.get("successor"):
        told.append(f"now {one['successor']}")
    if one.get("next"):
        told.append(_next(str(one["next"]), one.get("days_left")))
    if told:
        yield f"      {'; '.join(told)}"


def history(data: show.Body, *, full: bool) -> Iterator[str]:
    """Yield the versions of a memory and what else happened to it, the newest first."""
    version = data.get("version")
    now = "gone from its file" if version is None else f"version {version}"
    status = "" if data.get("status") == "gone" else f"{data.get('status')}, "
    yield f"{data.get('id')}  {status}{now}"
    versions, changes = show.rows(data, "versions"), show.rows(data, "changes")
    for one in versions if full else versions[:SHOWN]:
        yield from _version(one, full=full)
    yield from _more(len(versions), "version", full=full)
    if changes:
        yield ""
    for one in changes if full else changes[:SHOWN]:
        yield f"    {changed(one)}"
    yield from _more(len(changes), "change", full=full)
    if not versions and not changes:
        yield "    it is as it was written"


def changed(one: show.Body) -> str:
    """Return one row of a log in a line: when, what, from what to what, why."""
    parts = [show.minute(str(one.get("at") or one.get("timestamp") or "")), f"{one.get('action') or ''!s:<9}"]
    if one.get("was") or one.get("value"):
        parts.append(f"{one.get('was') or '-'} → {one.get('value') or '-'}")
    if one.get("successor"):
        parts.append(f"now {one['successor']}")
    if one.get("reason"):
        parts.append(str(one["reason"]))
    return "  ".join(parts).rstrip()


def forgotten(data: show.Body, restore: str) -> Iterator[str]:
    """Yield what became of a memory that was to be forgotten; `restore` is the command that brings it back."""
    mode, id_ = data.get("mode"), data.get("id")
    if mode == "soft_delete":
        if data.get("was") == "deleted":
            yield f"{id_} is forgotten already"
        else:
            yield f"{id_} is not found any more; its text stays in its file"
        yield f"undo:  {restore}"
        return
    yield f"{id_} is {'gone' if mode == 'hard_delete' else 'redacted'}, for good"
    removed = show.rows(data, "removed")
    for one in removed[:SHOWN]:
        ids = cast("list[str]", one.get("ids") or [])
        yield f"    {one.get('file')}: {show.count(len(ids), 'entry')}"
    yield from _more(len(removed), "file", full=False)
    if made := cast("list[str]", data.get("narratives") or []):
        yield f"made of it, and still there: {', '.join(made[:SHOWN])}" + (" …" if len(made) > SHOWN else "")
    if places := cast("list[str]", data.get("out_of_reach") or []):
        yield f"out of reach: {', '.join(places)}"


def explained(data: show.Body) -> Iterator[str]:
    """Yield why a memory is as it is, and with a question what that makes of it."""
    yield _title(data)
    known = [str(data.get("memory_type") or data.get("kind") or "")]
    if data.get("path"):
        known.append(str(data["path"]))
    yield f"    {data.get('id')}  {', '.join(known)}, version {data.get('version')}"
    told = [str(data.get("status"))]
    if data.get("since"):
        told.append(f"since {show.minute(str(data['since']))}")
    if data.get("successor"):
        told.append(f"now {data['successor']}")
    if data.get("reason"):
        told.append(str(data["reason"]))
    yield f"    {'status':<12}{', '.join(told)}"
    yield from _weight(show.section(data, "importance"))
    if data.get("expires_at"):
        yield f"    {'expires':<12}{show.minute(str(data['expires_at']))}"
    for label, name in (
        ("made from", "sources"),
        ("facts", "facts"),
        ("corrects", "corrects"),
        ("corrected", "corrected_by"),
    ):
        if ids := cast("list[str]", data.get(name) or []):
            yield f"    {label:<12}{', '.join(ids[:SHOWN])}" + (
                f" and {len(ids) - SHOWN:,} more" if len(ids) > SHOWN else ""
            )
    yield f"    {'stands in':<12}{data.get('file')}:{data.get('line')}"
    if found := show.section(data, "found"):
        yield f"    {'question':<12}{found.get('query')}"
        score = found.get("score")
        scored = f" (score {score:.2f})" if isinstance(score, (int, float)) else ""
        where = f"found, place {found.get('place')}" if found.get("is_found") else "not found"
        yield f"    {'':<12}{where}{scored}: {found.get('reason')}"
    changes = show.rows(data, "changes")
    yield from (f"    {changed(one)}" for one in changes[:SHOWN])
    yield from _more(len(changes), "change", full=False)


def _weight(one: show.Body) -> Iterator[str]:
    """Yield how important a memory is, how that came about, and what is next."""
    if not one:
        return
    written = f", {one['written']} as written" if one.get("written") else ""
    pinned = ", pinned: it stays so" if one.get("is_pinned") else ""
    yield f"    {'importance':<12}{_number(one.get('value'))}{written}{pinned}"
    used = f"; used on {show.count(cast('int', one['n_uses']), 'day')}" if one.get("n_uses") else "; never used"
    yield f"    {'activity':<12}last {show.minute(str(one.get('last_activity') or ''))}{used}"
    ahead = []
    if one.get("next_decay"):
        ahead.append(f"sinks to {_number(one.get('next_value'))} {show.minute(str(one['next_decay']))}")
    if one.get("next_archive"):
        ahead.append(f"archived {show.minute(str(one['next_archive']))}")
    if ahead:
        yield f"    {'left alone':<12}{', '.join(ahead)}"
    decays = show.rows(one, "decays")
    yield from (f"    {changed(each)}" for each in decays[:SHOWN])
    yield from _more(len(decays), "decay", full=False)


def _number(value: object) -> str:
    return f"{value:g}" if isinstance(value, (int, float)) else "-"


def numbers(data: show.Body) -> Iterator[str]:
    """Yield figures: a line for each number, a block for each table of them."""
    for name, value in data.items():
        head = name.replace("_", " ")
        if name == "n_paths" and isinstance(value, int) and value <= SHOWN:
            continue  # they are all listed
        if isinstance(value, dict):
            for nth, (key, number) in enumerate(_ranked(value)):
                yield f"{head if not nth else '':<15}{number:>8,}  {key or '(none)'}"
            if len(value) > SHOWN:
                yield f"{'':<15}{'…':>8}  and {len(value) - SHOWN:,} more"
        elif isinstance(value, int):
            yield f"{head:<15}{value:>8,}"
        elif isinstance(value, str) and value:
            yield f"{head:<15}  {show.minute(value)}"


def _ranked(table: dict[str, object]) -> list[tuple[str, int]]:
    found = [(name, n) for name, n in table.items() if isinstance(n, int)]
    return sorted(found, key=lambda one: (-one[1], one[0]))[:SHOWN]


def _title(data: show.Body) -> str:
    subject = str(data.get("subject") or "").strip()
    return subject or textwrap.shorten(
        str(data.get("content") or data.get("text") or "(empty)"), WIDTH, placeholder=" …"
    )


def _next(action: str, days: object) -> str:
    verb = {"expire": "expires", "archive": "archived"}.get(action, action)
    if not isinstance(days, (int, float)):
        return verb
    if days < 1 / 24:
        return f"due to be {verb} by the next pass" if action == "archive" else "expires now"
    left = f"{verb} in {round(days, 1):g} days"
    return f"{left} at the earliest" if action == "archive" else left


def was_pinned(version: show.Body) -> bool:
    """Tell whether a memory was pinned in a version that has ended."""
    return show.section(show.section(version, "before"), "fields").get("pinned") == "true"


def _version(one: show.Body, *, full: bool) -> Iterator[str]:
    reason = f": {one['reason']}" if one.get("reason") else ""
    before = one.get("before")
    action = "unpin" if one.get("action") == "pin" and was_pinned(one) else one.get("action")
    yield f"\n  version {one.get('version')}, until {show.minute(str(one.get('at') or ''))} ({action}{reason})"
    if not isinstance(before, dict):
        yield "      its text was removed for good"
        return
    text = str(before.get("content") or "").strip()
    if before.get("subject"):
        yield f"      {before['subject']}"
    shown = (
        text.splitlines() if full else textwrap.wrap(" ".join(text.split()), WIDTH - 6, max_lines=3, placeholder=" …")
    )
    yield from (f"      {line}".rstrip() for line in shown)


def _more(n: int, noun: str, *, full: bool) -> Iterator[str]:
    if not full and n > SHOWN:
        yield f"    … and {show.count(n - SHOWN, f'more {noun}')}"
