"""Consolidations as text for people: what stood there before, what stands there after, what of it is new or gone."""

from __future__ import annotations

import difflib
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from typing import cast

from everosd.cli import excerpt, show

MAX_WIDTH = 110
INDENT = " " * 4
ENTRY_LINES = 4
"""Of a fragment; `--json` has all of it."""
DIFF_LINES = 40


def head(one: show.Body) -> str:
    """Return one line: when, what of what, and how it can be undone."""
    made = str(one.get("created_at") or "")[:16].replace("T", " ")
    n_before = cast("int", one.get("source_count") or len(show.rows(one, "before")))
    undone = "  [rolled back]" if one.get("status") == "rolled_back" else ""
    after = show.section(one, "after")
    subject = str(after.get("subject") or "(gone)").strip()
    title = f"{made}  {subject}".strip() + undone
    named = [str(one[key]) for key in ("owner_id", "cluster_id", "mode") if one.get(key)]
    return f"{title}\n{INDENT}{'  '.join(named)}  {show.count(n_before, 'fragment')} → 1 narrative"


def whole(one: show.Body) -> Iterator[str]:
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
    if one.get("check"):
        yield f"{INDENT}checked: {one['check']}"
    if one.get("report_id") and one.get("status") == "completed":
        yield f"{INDENT}undo: everosd rollback {one['report_id']}"


def difference(before: Sequence[str], after: str) -> list[str]:
    """Return the statements that are gone (`- …`), and those that are new (`+ …`), in the order of the texts."""
    old = [part for text in before for part in excerpt.statements(text)]
    new = excerpt.statements(after)
    matcher = difflib.SequenceMatcher(a=old, b=new, autojunk=False)
    in_new, in_old = set(new), set(old)
    lines: list[str] = []
    for _, first, end, other_first, other_end in matcher.get_opcodes():
        lines += [f"- {one}" for one in old[first:end] if one not in in_new]
        lines += [f"+ {one}" for one in new[other_first:other_end] if one not in in_old]
    return lines


def _difference(before: Sequence[show.Body], after: show.Body) -> Iterator[str]:
    if not after:
        return
    texts = [str(one.get("text") or "") for one in before]
    lines = difference(texts, str(after.get("content") or ""))
    n_same = len([one for text in texts for one in excerpt.statements(text)]) - sum(line[0] == "-" for line in lines)
    yield f"{INDENT}difference: {show.count(n_same, 'statement')} as before{':' if lines else ', and nothing else'}"
    for line in lines[:DIFF_LINES]:
        yield from _wrapped(line)
    if len(lines) > DIFF_LINES:
        yield f"{INDENT}  … and {len(lines) - DIFF_LINES:,} more (--json has all of it)"


def _wrapped(text: str, max_lines: int | None = None) -> Iterator[str]:
    width = min(shutil.get_terminal_size().columns, MAX_WIDTH) - len(INDENT) - 4
    flat = " ".join(text.split())
    hang = "  " if flat[:2] in ("- ", "+ ") else ""
    for line in textwrap.wrap(
        flat, width, max_lines=max_lines, placeholder=" …", subsequent_indent=hang, break_on_hyphens=False
    ):
        yield f"{INDENT}  {line}"
