"""Consolidations as text for people: what stood there before, what stands there after, what of it is new or gone."""

from __future__ import annotations

import difflib
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import cast

from everosd.cli import excerpt, show

MAX_WIDTH = 110
INDENT = " " * 4
ENTRY_LINES = 4
"""Of a fragment; `--json` has all of it."""
DIFF_LINES = 40
GONE = "gone"
"""Status of what no file has any more."""


def head(one: show.Body) -> str:
    """Return two lines: when, and what it is about; whose, and what was made of what."""
    made = str(one.get("created_at") or "")[:16].replace("T", " ")
    undone = "  [rolled back]" if one.get("status") == "rolled_back" else ""
    subject = str(show.section(one, "after").get("subject") or "(gone)").strip()
    named = [str(one[key]) for key in ("owner_id", "cluster_id") if one.get(key)]
    return f"{f'{made}  {subject}'.strip()}{undone}\n{INDENT}{'  '.join(named)}  {_counted(one)}"


def _counted(one: show.Body) -> str:
    n_before = cast("int", one.get("source_count") or len(show.rows(one, "before")))
    if one.get("mode") == "update":
        return f"1 narrative and {show.count(n_before - 1, 'fragment')} → 1 narrative"
    return f"{show.count(n_before, 'fragment')} → 1 narrative"


def brief(one: show.Body, *, undo: str) -> Iterator[str]:
    """Yield the lines of one consolidation in short: head, how the narrative ends, checks, and what undoes it.

    `undo` is the command for it, here and below; empty: it cannot be undone.
    """
    yield head(one)
    if after := show.section(one, "after"):
        yield from (f"{INDENT}  {line}" for line in excerpt.end(str(after.get("content") or ""), _width()))
    yield from _ends(one, undo)


def listed(one: show.Body, *, undo: str) -> Iterator[str]:
    """Yield the lines of one of many: head, and what undoes it."""
    yield head(one)
    yield from _ends({**one, "check": None}, undo)


def whole(one: show.Body, *, undo: str) -> Iterator[str]:
    """Yield the lines of one consolidation: head, before, after, difference, checks, and what undoes it."""
    yield head(one)
    before, after = show.rows(one, "before"), show.section(one, "after")
    yield f"{INDENT}before"
    for each in before:
        moment = str(each.get("timestamp") or "no date")[:10]
        yield f"{INDENT}  {moment}  {each.get('subject') or each.get('id') or '(no subject)'}"
        yield from _wrapped(str(each.get("text") or ""), ENTRY_LINES)
    if after:
        yield f"{INDENT}after"
        day = str(after.get("timestamp") or "")[:10]
        yield f"{INDENT}  {f'{day}  ' if day else ''}{after.get('subject') or ''}".rstrip()
        for paragraph in str(after.get("content") or "").split("\n"):
            yield from _wrapped(paragraph)
    yield from _difference(before, after)
    yield from _ends(one, undo)


def skipped(one: show.Body) -> Iterator[str]:
    """Yield the lines of a cluster that was left as it is: whose, about what, why, and what was made up of it."""
    topic = f"  {one['topic']}" if one.get("topic") else ""
    yield f"{one.get('owner_id')}  {one.get('cluster_id')}{topic}"
    yield f"{INDENT}skipped: {one.get('reason')}"
    if one.get("check"):
        yield f"{INDENT}checked: {one['check']}"


def undoable(found: Iterable[show.Body]) -> set[str]:
    """Return the ids of reports that a rollback would take: those that no other one builds on, with something to bring back.

    A later report has to be among `found`, too, to be seen.
    """
    done = [one for one in found if one.get("status") == "completed" and one.get("report_id")]
    built_on = {(_owner(one), member.get("member_id")) for one in done for member in show.rows(one, "source_members")}
    return {
        str(one["report_id"])
        for one in done
        if (_owner(one), one.get("merged_entry_id")) not in built_on
        and any(each.get("status") != GONE for each in show.rows(one, "before"))
    }


def _owner(one: show.Body) -> tuple[object, ...]:
    return tuple(one.get(key) for key in ("app_id", "project_id", "owner_id"))


def _ends(one: show.Body, undo: str) -> Iterator[str]:
    if one.get("check"):
        yield f"{INDENT}checked: {one['check']}"
    if undo:
        yield f"{INDENT}undo: {undo}"


def difference(before: Sequence[str], after: str) -> list[str]:
    """Return the statements that are gone (`- …`), and those that are new (`+ …`), in the order of the texts.

    A line that says only of when the next ones are is none.
    """
    old = [part for text in before for part in excerpt.statements(text)]
    new = excerpt.statements(after)
    matcher = difflib.SequenceMatcher(a=old, b=new, autojunk=False)
    in_new, in_old = set(new), set(old)
    lines: list[str] = []
    for _, first, end, other_first, other_end in matcher.get_opcodes():
        lines += [f"- {one}" for one in old[first:end] if one not in in_new and not excerpt.DAY.fullmatch(one)]
        lines += [
            f"+ {one}" for one in new[other_first:other_end] if one not in in_old and not excerpt.DAY.fullmatch(one)
        ]
    return lines


def _difference(before: Sequence[show.Body], after: show.Body) -> Iterator[str]:
    if not after:
        return
    lines = difference([str(one.get("text") or "") for one in before], str(after.get("content") or ""))
    yield f"{INDENT}difference:{'' if lines else ' none, every statement is there as before'}"
    for line in lines[:DIFF_LINES]:
        yield from _wrapped(line)
    if len(lines) > DIFF_LINES:
        yield f"{INDENT}  … and {len(lines) - DIFF_LINES:,} more (--json has all of it)"


def _width() -> int:
    return min(shutil.get_terminal_size().columns, MAX_WIDTH) - len(INDENT) - 4


def _wrapped(text: str, max_lines: int | None = None) -> Iterator[str]:
    flat = " ".join(text.split())
    hang = "  " if flat[:2] in ("- ", "+ ") else ""
    for line in textwrap.wrap(
        flat, _width(), max_lines=max_lines, placeholder=" …", subsequent_indent=hang, break_on_hyphens=False
    ):
        yield f"{INDENT}  {line}"
