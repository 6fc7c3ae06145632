"""Entries → text: one entry with or without its markers, and the bytes of a new file. `log.surgery` changes old ones."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping

from everosd import types
from everosd.log import entry as entries
from everosd.log import entry_text, escape, frontmatter, layout, parse
from everosd.log import kind as kinds

_MARKER_LIKE = re.compile(escape.MARKER, re.IGNORECASE)


def open_marker(entry_id: str) -> str:
    """Return the line that opens an entry, without newline."""
    return f"<!-- entry:{entry_id} -->"


def close_marker(entry_id: str) -> str:
    """Return the line that closes an entry, without newline."""
    return f"<!-- /entry:{entry_id} -->"


def marked_text(entry: entries.Entry, newline: str = "\n") -> str:
    """Return an entry with its markers, ending in a newline.

    `entry.raw` is kept as it stands while the entry's other values are what it says; else the entry is laid out anew.

    Raises:
        ValueError: a field's name is not lower snake case, or a section has no title.
    """
    return between_markers(entry.id, inner_text(entry), newline)


def between_markers(entry_id: str, raw: str, newline: str = "\n") -> str:
    """Return the raw text of an entry with its markers, ending in a newline."""
    text = f"{open_marker(entry_id)}\n{raw}\n{close_marker(entry_id)}\n"
    return text if newline == "\n" else text.replace("\n", newline)


def inner_text(entry: entries.Entry) -> str:
    """Return what stands between the markers of an entry: what `raw` is once it has been written and read."""
    if entry.raw and _says(entry):
        return entry.raw
    return escape.raw_text(
        kinds.BY_NAME[entry.kind],
        entry.id,
        fields=entry.fields,
        heading=entry.heading,
        preamble=entry.preamble,
        sections=entry.sections,
    )


def _says(entry: entries.Entry) -> bool:
    """Whether the entry's raw text holds what its other fields say, and cannot end it early."""
    if (
        entry.form == "whole"
        or escape.strip_blank_lines(entry.raw) != entry.raw
        or "\r" in entry.raw
        or "\0" in entry.raw
    ):
        return False
    read = entry_text.read(entry.kind, entry.id, entry.raw)
    if (read.fields, read.heading, read.preamble, read.sections) != (
        entry.fields,
        entry.heading,
        entry.preamble,
        entry.sections,
    ):
        return False
    if _MARKER_LIKE.search(entry.raw) is None:
        return True
    # Markers in a fence are text only while the fence is whole: ask the reader, once with an entry behind it.
    marked = f"{open_marker(entry.id)}\n{entry.raw}\n{close_marker(entry.id)}\n"
    row = kinds.BY_NAME[entry.kind]
    place = layout.Place(
        owner=types.Owner(app="", project="", type="user", id=""), kind=entry.kind, date=layout.UNKNOWN_DATE
    )
    for after in (
        "",
        f"{open_marker(f'{row.prefix}_00000000_0')}\n```\n~~~\n{close_marker(f'{row.prefix}_00000000_0')}\n",
    ):
        found = parse.parse(types.RelPath(""), (marked + after).encode("utf-8", "surrogatepass"), place).entries
        if not found or found[0].raw != entry.raw or len(found) != (2 if after else 1):
            return False
    return True


def header(place: layout.Place, *, entry_count: int, stamp: str) -> list[tuple[str, str]]:
    """Return the frontmatter of a daily log, as keys and YAML scalars in the order EverOS writes them.

    A day that nobody knows is not written down: the name of the file can still tell it.
    """
    row, owner = kinds.BY_NAME[place.kind], place.owner
    date = place.date or layout.UNKNOWN_DATE
    stem = "session" if place.kind == "message" else place.kind
    lines = [
        ("id", frontmatter.scalar(f"{stem}_log_{owner.id}_{date}")),
        ("type", row.file_type),
        ("file_type", row.file_type),
        ("schema_version", "1"),
        (f"{owner.type}_id", frontmatter.scalar(owner.id)),
        ("track", owner.type),
        ("date", f"'{date}'"),
    ]
    if place.kind == "memory":
        lines += [("memory_type", place.memory_type or "episodic"), ("path", frontmatter.scalar(place.memory_path))]
    lines += [("entry_count", str(entry_count)), ("last_appended_at", f"'{stamp}'")]
    if date == layout.UNKNOWN_DATE:
        lines = [(key, value) for key, value in lines if key not in ("id", "date")]
    return lines


def new_file(
    place: layout.Place,
    appended: Iterable[entries.Entry],
    *,
    stamp: str,
    deprecated: Mapping[str, str] | None = None,
    newline: str = "\n",
) -> bytes:
    """Return the bytes of a new file with these entries.

    Args:
        place: where it will stand.
        appended: its entries in order; for kinds that are one file each, exactly one.
        stamp: `last_appended_at`, ISO 8601 with offset.
        deprecated: entry id → successor.
        newline: what lines end with.
    """
    listed = tuple(appended)
    if kinds.BY_NAME[place.kind].is_whole_file:
        (entry,) = listed
        return whole_text(entry).replace("\n", newline).encode()
    count = next_entry_count(place, 0, listed, n_entries=len(listed))
    lines = [f"{key}: {value}" for key, value in header(place, entry_count=count, stamp=stamp)]
    if deprecated:
        lines += ["deprecated_entries:", *(deprecation_line(old, new) for old, new in deprecated.items())]
    head = "\n".join(("---", *lines, "---", ""))
    return (head.replace("\n", newline) + "".join(marked_text(entry, newline) for entry in listed)).encode()


def whole_text(entry: entries.Entry) -> str:
    """Return the text of a file that is one entry: its fields as frontmatter, its preamble as body."""
    if entry.raw:
        read = entry_text.read(entry.kind, entry.id, entry.raw, form="whole")
        if (read.fields, read.preamble) == (entry.fields, entry.preamble):
            return entry.raw
    lines = [f"{frontmatter.scalar(key)}: {yaml_value(value)}" for key, value in entry.fields.items()]
    body = escape.clean(entry.preamble)
    return "\n".join(("---", *lines, "---", *((body,) if body else ()), ""))


def yaml_value(value: str) -> str:
    """Return a whole-file field as YAML: JSON lists and maps as they are (YAML reads them), the rest as a scalar."""
    if value[:1] in ("[", "{"):
        try:
            return json.dumps(json.loads(value))
        except (ValueError, RecursionError):
            pass
    return frontmatter.scalar(value)


def deprecation_line(old: str, new: str, indent: str = "  ") -> str:
    """Return one line of `deprecated_entries`, without newline."""
    return f"{indent}{frontmatter.scalar(old)}: {frontmatter.scalar(new)}"


def next_entry_count(place: layout.Place, before: int, appended: Collection[entries.Entry], *, n_entries: int) -> int:
    """Return an `entry_count` no smaller than any number given in the file, so that none is given twice."""
    numbers = [before + len(appended), n_entries]
    date = (place.date or "").replace("-", "")
    for entry in appended:
        match = types.ENTRY_ID.fullmatch(entry.id)
        if match is not None and match["date"] == date:
            numbers.append(frontmatter.number(match["seq"]))
    return max(numbers)
