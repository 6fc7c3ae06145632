"""The text of one entry taken apart: heading, inline fields, sections. Nothing that a text can hold makes `read` raise."""

from __future__ import annotations

import hashlib
import json
import re

from everosd.log import entry as entries
from everosd.log import escape, frontmatter
from everosd.log import kind as kinds

_SECTION = re.compile(r"\n {0,3}###[ \t]+([^ \t\n][^\n]*)")
"""Starts with a literal, which the engine looks for fifty times faster than for the start of any line."""
_FIELD = re.compile(r"\*\*([a-z][a-z0-9_]{0,63})\*\*:[ \t]*([^\n]*)(?:\n|\Z)")
_HEADING = re.compile(r" {0,3}(#{1,2})[ \t]+([^\n]*)(?:\n|\Z)")


def digest(kind: str, entry_id: str, raw: str) -> bytes:
    """Return what entries are compared by."""
    return hashlib.blake2b(f"{kind}\0{entry_id}\0{raw}".encode("utf-8", "surrogatepass"), digest_size=16).digest()


def read(
    kind: str, entry_id: str, raw: str, *, form: entries.Form = "marked", line: int = 0, nth: int = 0
) -> entries.Entry:
    """Take the text of one entry apart; `raw` is what `Entry.raw` holds. Never raises."""
    if form == "whole":
        return _whole(kind, entry_id, raw, line)
    row = kinds.BY_NAME[kind]
    at, heading = 0, ""
    head = _HEADING.match(raw)
    if head is not None:
        heading = head[2].strip(" \t")
        heading = "" if heading == entry_id else heading
        at = head.end()
    fields, at = _fields(raw, at)
    if kind == "message" and fields.get("type") == "segment":
        kind, row = "segment", kinds.BY_NAME["segment"]
    preamble, sections = _sections(raw, at, row)
    return entries.Entry(
        kind=kind,
        id=entry_id,
        fields=fields,
        preamble=preamble,
        heading=heading,
        sections=sections,
        form=form,
        raw=raw,
        line=line,
        digest=digest(kind, entry_id, raw),
        nth=nth,
    )


def _fields(raw: str, at: int) -> tuple[dict[str, str], int]:
    """Read the inline fields from `at`; blank lines between them are allowed."""
    fields: dict[str, str] = {}
    while True:
        begin = escape.BLANKS.match(raw, at).end()  # type: ignore[union-attr]  # matches the empty text
        found = _FIELD.match(raw, begin)
        if found is None or found[1] in fields:
            return fields, at
        fields[found[1]] = escape.read_value(found[2])
        at = found.end()


def _sections(raw: str, at: int, row: kinds.Kind) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Split what follows the fields at its `###` headings; the kind's last section takes everything to the end."""
    last = row.sections[-1].casefold() if row.sections else ""
    sections: list[tuple[str, str]] = []
    text = raw[at - 1 :] if at and raw[at - 1] == "\n" else f"\n{raw[at:]}"
    found = _SECTION.search(text)
    preamble = text if found is None else text[: found.start()]
    while found is not None:
        title = found[1].rstrip(" \t")
        if title.casefold() == last:
            sections.append((title, escape.read_last(text[found.end() :])))
            break
        following = _SECTION.search(text, found.end())
        end = len(text) if following is None else following.start()
        sections.append((title, escape.read_section(text[found.end() : end])))
        found = following
    return escape.read_preamble(preamble), tuple(sections)


def _whole(kind: str, entry_id: str, raw: str, line: int) -> entries.Entry:
    """Read a file that is one entry: its frontmatter as fields (lists and maps as JSON), its body as text."""
    head = frontmatter.read(raw)
    fields = {
        key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for key, value in head.values.items()
    }
    return entries.Entry(
        kind=kind,
        id=entry_id,
        fields=fields,
        preamble=escape.strip_blank_lines(raw[head.end :]),
        form="whole",
        raw=raw,
        line=line,
        digest=digest(kind, entry_id, raw),
    )
