"""A pass over memories as text: what each action decided about which memory and why, and what to type next."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import cast

from everosd.cli import show

SHOWN = 10
"""Decisions of an action that are listed, of those that change something and of those that do not; `--full` has more."""
FULL = 1000
"""Of each, with `--full`; `--json` has what the daemon said."""
TITLE = 36
DONE = {
    "summarize": ("summarized", "would be summarized"),
    "promote": ("promoted", "would be promoted"),
    "expire": ("expired", "would expire"),
    "decay": ("decayed", "would decay"),
    "archive": ("archived", "would be archived"),
}
Titles = Mapping[str, str]
"""What memories are about, by public id."""


def listed(data: show.Body, *, full: bool) -> Iterator[str]:
    """Yield the ids of the memories that are named, each once: those that were written first."""
    found = [one for each in show.rows(data, "actions") for part in _parts(each, full=full) for one in part]
    yield from dict.fromkeys(str(one.get("id")) for one in (*show.rows(data, "written"), *found))


def told(data: show.Body, titles: Titles, *, full: bool) -> Iterator[str]:
    """Yield what a pass did, or would do."""
    is_dry = bool(data.get("dry_run"))
    for each in show.rows(data, "actions"):
        yield _head(each, is_dry=is_dry)
        applied, skipped = _parts(each, full=full)
        yield from _table(applied, titles)
        yield from _written(
            [one for one in show.rows(data, "written") if one.get("action") == each.get("action")], titles
        )
        yield from _table(skipped, titles)
        yield from _rest(each, full=full)
    if stopped := show.section(data, "stopped"):
        yield f"STOPPED: {stopped.get('reason')}"
        yield (
            "         nothing expired, decayed or was archived"
            if not is_dry
            else "         a real pass would stop here"
        )
    if is_dry:
        yield "dry run: nothing was changed"


def n_applied(data: show.Body) -> int:
    """Return how many decisions were applied, or would be."""
    return sum(_n(each, "apply") for each in show.rows(data, "actions"))


def n_left(data: show.Body) -> int:
    """Return how many memories are due, and were left out by the limit."""
    return sum(_n(each, "left") for each in show.rows(data, "actions"))


def _n(action: show.Body, name: str) -> int:
    value = show.section(action, "counts").get(name)
    return value if isinstance(value, int) else 0


def _head(action: show.Body, *, is_dry: bool) -> str:
    name = str(action.get("action"))
    done = DONE.get(name, (name, name))[is_dry]
    parts = [f"{_n(action, 'apply'):,} {done}"]
    if n := _n(action, "skip"):
        parts.append(f"{n:,} left as {'it is' if n == 1 else 'they are'}")
    if n := _n(action, "left"):
        parts.append(f"{n:,} more due")
    reason = f"  ({action['reason']})" if action.get("reason") else ""
    return f"{name:<10} {', '.join(parts)}{reason}"


def _parts(action: show.Body, *, full: bool) -> tuple[list[show.Body], list[show.Body]]:
    """Return the decisions that are listed: those that change something, and those that do not."""
    limit = FULL if full else SHOWN
    found = show.rows(action, "candidates")
    applied = [one for one in found if one.get("decision") == "apply"]
    skipped = [one for one in found if one.get("decision") != "apply"]
    return applied[:limit], skipped[:limit]


def _table(found: list[show.Body], titles: Titles) -> Iterator[str]:
    """Yield a line for each decision, in columns: what about, what changes, why; its id below."""
    changes = [_change(one) for one in found]
    width = max((len(one) for one in changes), default=0)
    for one, change in zip(found, changes, strict=True):
        yield f"  {_title(one, titles):<{TITLE}}  {change:<{width}}  {one.get('reason')}".rstrip()
        yield f"    {one.get('id')}"


def _written(found: list[show.Body], titles: Titles) -> Iterator[str]:
    """Yield the memories that came of it: what about, made of how many, and the id that shows, changes or forgets it."""
    for one in found:
        n = len(cast("list[object]", one.get("sources") or []))
        yield f"  {_title(one, titles):<{TITLE}}  ← {show.count(n, 'memory')}"
        yield f"    {one.get('id')}"


def _title(one: show.Body, titles: Titles) -> str:
    return textwrap.shorten(titles.get(str(one.get("id"))) or "(no title)", TITLE, placeholder=" …")


def _change(one: show.Body) -> str:
    """Return what becomes of a memory in a few letters."""
    if one.get("decision") != "apply":
        return "="
    before, after = show.section(one, "before"), show.section(one, "after")
    parts = [
        f"{_value(before.get(name))} → {_value(value)}"
        for name, value in after.items()
        if name in ("status", "importance")
    ]
    return ", ".join(parts) or "→ new"


def _value(value: object) -> str:
    return f"{value:g}" if isinstance(value, (int, float)) else str(value or "-")


def _rest(action: show.Body, *, full: bool) -> Iterator[str]:
    """Yield how many decisions are not listed."""
    applied, skipped = _parts(action, full=full)
    n_more = _n(action, "apply") - len(applied), _n(action, "skip") - len(skipped)
    for n, what in zip(n_more, ("changed", "left as they are"), strict=True):
        if n > 0:
            yield f"  … and {n:,} more {what}"
