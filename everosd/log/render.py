"""Entries → bytes: new files, and old ones changed only where they must be.

A file that people edit is never laid out anew. Three lines of its frontmatter and the entries that change are
replaced; every other byte stays, and what comes out is read once more before anyone writes it to disk.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping

from everosd import errors, types
from everosd.log import entry as entries
from everosd.log import entry_text, escape, frontmatter, layout, parse, single
from everosd.log import kind as kinds

_MARKER_LIKE = re.compile(escape.MARKER, re.IGNORECASE)
_BOM = b"\xef\xbb\xbf"


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
    text = f"{open_marker(entry.id)}\n{inner_text(entry)}\n{close_marker(entry.id)}\n"
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


def header(place: layout.Place, *, entry_count: int, stamp: str, file_id: str = "") -> list[tuple[str, str]]:
    """Return the frontmatter of a daily log, as keys and YAML scalars in the order EverOS writes them."""
    row, owner = kinds.BY_NAME[place.kind], place.owner
    date = place.date or layout.UNKNOWN_DATE
    stem = "session" if place.kind == "message" else place.kind
    lines = [
        ("id", frontmatter.scalar(file_id or f"{stem}_log_{owner.id}_{date}")),
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
    return lines


def new_file(
    place: layout.Place,
    appended: Iterable[entries.Entry],
    *,
    stamp: str,
    file_id: str = "",
    deprecated: Mapping[str, str] | None = None,
    newline: str = "\n",
) -> bytes:
    """Return the bytes of a new file with these entries.

    Args:
        place: where it will stand.
        appended: its entries in order; for kinds that are one file each, exactly one.
        stamp: `last_appended_at`, ISO 8601 with offset.
        file_id: `id` in the frontmatter; default as EverOS makes it.
        deprecated: entry id → successor.
        newline: what lines end with.
    """
    listed = tuple(appended)
    if kinds.BY_NAME[place.kind].is_whole_file:
        (entry,) = listed
        return whole_text(entry).replace("\n", newline).encode()
    count = _count(place, 0, listed, n_entries=len(listed))
    lines = [f"{key}: {value}" for key, value in header(place, entry_count=count, stamp=stamp, file_id=file_id)]
    if deprecated:
        lines += ["deprecated_entries:", *(_item(old, new) for old, new in deprecated.items())]
    head = "\n".join(("---", *lines, "---", ""))
    return (head.replace("\n", newline) + "".join(marked_text(entry, newline) for entry in listed)).encode()


def whole_text(entry: entries.Entry) -> str:
    """Return the text of a file that is one entry: its fields as frontmatter, its preamble as body."""
    if entry.raw:
        read = entry_text.read(entry.kind, entry.id, entry.raw, form="whole")
        if (read.fields, read.preamble) == (entry.fields, entry.preamble):
            return entry.raw
    lines = [f"{frontmatter.scalar(key)}: {_structured(value)}" for key, value in entry.fields.items()]
    body = escape.clean(entry.preamble)
    return "\n".join(("---", *lines, "---", *((body,) if body else ()), ""))


def _structured(value: str) -> str:
    """Return a whole-file field as YAML: JSON lists and maps as they are (YAML reads them), the rest as a scalar."""
    if value[:1] in ("[", "{"):
        try:
            return json.dumps(json.loads(value))
        except (ValueError, RecursionError):
            pass
    return frontmatter.scalar(value)


def _item(old: str, new: str, indent: str = "  ") -> str:
    return f"{indent}{frontmatter.scalar(old)}: {frontmatter.scalar(new)}"


def _count(place: layout.Place, before: int, appended: Collection[entries.Entry], *, n_entries: int) -> int:
    """Return an `entry_count` no smaller than any number given in the file, so that none is given twice."""
    numbers = [before + len(appended), n_entries]
    date = (place.date or "").replace("-", "")
    for entry in appended:
        match = types.ENTRY_ID.fullmatch(entry.id)
        if match is not None and match["date"] == date:
            numbers.append(frontmatter.number(match["seq"]))
    return max(numbers)


def rewritten(
    parsed: parse.Parsed,
    *,
    appended: Iterable[entries.Entry] = (),
    replaced: Mapping[str, entries.Entry] | None = None,
    deprecated: Mapping[str, str] | None = None,
    undeprecated: Collection[str] = (),
    removed: Collection[str] = (),
    stamp: str,
    adopt: bool = True,
) -> bytes:
    """Return the bytes of a file after a change; everything that did not change is byte-identical.

    Args:
        parsed: the file as last read.
        appended: new entries, put at the end.
        replaced: entry id → what stands in its place from now on.
        deprecated: entry id → successor, added to `deprecated_entries`.
        undeprecated: ids taken out of `deprecated_entries`.
        removed: ids whose entries are taken out.
        stamp: the new `last_appended_at`.
        adopt: give hand-written text and entries without markers the ones they lack.

    Raises:
        WriteRefused: the file's frontmatter or bytes do not parse, or cannot be changed safely.
    """
    if parsed.error is not None:
        raise errors.WriteRefused(
            parsed.path,
            parsed.error.reason,
            line=parsed.error.line,
            hint=f"correct {parsed.path} and save it; what is new goes to another file of that day until then",
        )
    return _Rewrite(parsed, tuple(appended), dict(deprecated or {}), undeprecated, stamp).run(
        replaced or {}, frozenset(removed), adopt=adopt
    )


class _Rewrite:
    """One change to one file, collected as edits of its text."""

    def __init__(
        self,
        parsed: parse.Parsed,
        appended: tuple[entries.Entry, ...],
        deprecated: dict[str, str],
        undeprecated: Collection[str],
        stamp: str,
    ) -> None:
        self.parsed, self.appended, self.deprecated, self.undeprecated, self.stamp = (
            parsed,
            appended,
            deprecated,
            undeprecated,
            stamp,
        )
        self.text, self.newline, self.head = parsed.text, parsed.newline, parsed.frontmatter
        self.edits: list[tuple[int, int, str]] = []
        self.expected: dict[str, object] = dict(self.head.values)

    def run(self, replaced: Mapping[str, entries.Entry], removed: frozenset[str], *, adopt: bool) -> bytes:
        """Collect the edits and return the new bytes."""
        if kinds.BY_NAME[self.parsed.place.kind].is_whole_file:
            self._change_whole(replaced)
            return self._result()
        is_single = bool(self.parsed.entries) and self.parsed.entries[0].form == "single"
        converts = is_single and bool(self.appended or replaced or removed)
        n_left = sum(entry.id not in removed for entry in self.parsed.entries)
        count = _count(self.parsed.place, self.parsed.entry_count, self.appended, n_entries=n_left + len(self.appended))
        if self.head.end == 0:
            lines = header(self.parsed.place, entry_count=count, stamp=self.stamp)
            self._edit(0, 0, self._lines("---", *(f"{key}: {value}" for key, value in lines)))
            self._deprecate_in_new_head()
            self._edit(0, 0, self._lines("---"))
        else:
            self._set("last_appended_at", f"'{self.stamp}'")
            if not is_single or converts:
                self._set("entry_count", str(count))
            self._deprecate()
        if converts:
            self._convert(replaced, removed)
        else:
            self._change(replaced, removed, adopt=adopt and not is_single)
        self._append()
        return self._result()

    def _change_whole(self, replaced: Mapping[str, entries.Entry]) -> None:
        """Change the keys of a file that is one entry, and its body, where they differ."""
        (old,) = self.parsed.entries
        new = replaced.get(old.id, old)
        changed = {key: value for key, value in new.fields.items() if old.fields.get(key) != value}
        changed["last_appended_at"] = self.stamp
        if self.head.end == 0:
            head = self._lines(
                "---", *(f"{frontmatter.scalar(key)}: {_structured(value)}" for key, value in changed.items()), "---"
            )
            self._edit(0, 0, head)
        else:
            for key, value in changed.items():
                self._set(key, _structured(value))
            for key in old.fields.keys() - new.fields.keys():
                self._edit(
                    self._line_start(self.head.keys[key].start), self._line_end(self.head.keys[key].value_end), ""
                )
                del self.expected[key]
        if new.preamble != old.preamble:
            body = escape.clean(new.preamble)
            self._edit(self.head.end, len(self.text), self._lines(*body.split("\n")) if body else "")

    def _lines(self, *lines: str) -> str:
        return "".join(line + self.newline for line in lines)

    def _edit(self, start: int, end: int, text: str) -> None:
        self.edits.append((start, end, text))

    def _line_start(self, at: int) -> int:
        return self.text.rfind("\n", 0, at) + 1

    def _line_end(self, at: int) -> int:
        after = self.text.find("\n", at)
        return len(self.text) if after < 0 else after + 1

    def _indent(self) -> str:
        """Return the indentation of the frontmatter's keys."""
        first = min((key.start for key in self.head.keys.values()), default=None)
        return "" if first is None else self.text[self._line_start(first) : first]

    def _set(self, key: str, value: str) -> None:
        """Set a key of the frontmatter to a scalar."""
        self.expected[key] = frontmatter.read(f"---\n{frontmatter.scalar(key)}: {value}\n---\n").values[key]
        old = self.head.keys.get(key)
        if old is None:
            self._edit(
                self.head.inner_end,
                self.head.inner_end,
                self._lines(f"{self._indent()}{frontmatter.scalar(key)}: {value}"),
            )
        else:
            gap = " " if old.value_start == old.value_end else ""
            self._edit(old.value_start, old.value_end, gap + value)

    def _deprecate_in_new_head(self) -> None:
        if self.deprecated:
            self._edit(
                0, 0, self._lines("deprecated_entries:", *(_item(old, new) for old, new in self.deprecated.items()))
            )

    def _deprecate(self) -> None:
        """Add to and take from `deprecated_entries`, line by line."""
        value = self.head.values.get("deprecated_entries", "")
        before: dict[str, object] = dict(value) if isinstance(value, dict) else {}
        added = {old: new for old, new in self.deprecated.items() if before.get(old) != new}
        gone = [old for old in self.undeprecated if old in before and old not in self.deprecated]
        if not added and not gone:
            return
        after = {key: text for key, text in before.items() if key not in gone} | added
        key = self.head.keys.get("deprecated_entries")
        if key is not None and not isinstance(value, dict) and value not in ("", "null", "~"):
            raise errors.WriteRefused(
                self.parsed.path,
                "deprecated_entries is not a list of `old id: new id` lines",
                hint=f"correct {self.parsed.path}",
            )
        self.expected.pop("deprecated_entries", None)
        if after:
            self.expected["deprecated_entries"] = after
        indent = self._indent()
        if key is None:
            self._edit(
                self.head.inner_end,
                self.head.inner_end,
                self._lines(
                    f"{indent}deprecated_entries:", *(_item(old, new, indent + "  ") for old, new in added.items())
                ),
            )
        elif not key.items:
            self._edit(
                key.value_start,
                key.value_end,
                "".join(self.newline + _item(old, str(new), indent + "  ") for old, new in after.items()),
            )
        elif not after:
            self._edit(self._line_start(key.start), self._line_end(key.value_end), "")
        else:
            self._change_items(key, added, gone)

    def _change_items(self, key: frontmatter.Key, added: Mapping[str, str], gone: Collection[str]) -> None:
        for old in gone:
            start, end = key.items[old]
            self._edit(self._line_start(start), self._line_end(end), "")
        first = next(iter(key.items.values()))[0]
        indent = self.text[self._line_start(first) : first]
        new_lines = []
        for old, new in added.items():
            if old in key.items:
                start, end = key.items[old]
                self._edit(start, end, _item(old, new, ""))
            else:
                new_lines.append(_item(old, new, indent))
        if new_lines:
            at = self._line_end(key.value_end)
            self._edit(at, at, self._lines(*new_lines))

    def _change(self, replaced: Mapping[str, entries.Entry], removed: frozenset[str], *, adopt: bool) -> None:
        """Replace, remove and adopt entries where they stand."""
        for entry, span in zip(self.parsed.entries, self.parsed.spans, strict=True):
            if entry.id in removed:
                self._edit(span.start, span.end, "")
            elif entry.id in replaced and entry.nth == 0:
                new = replaced[entry.id]
                text = (
                    whole_text(new).replace("\n", self.newline)
                    if entry.form == "whole"
                    else marked_text(new, self.newline)
                )
                self._edit(span.start, span.end, text)
            elif adopt and entry.form != "whole":
                if not span.has_open:
                    self._edit(span.start, span.start, self._lines(open_marker(entry.id)))
                if not span.has_close:
                    break_before = "" if self.text[span.end - 1] == "\n" else self.newline
                    self._edit(span.end, span.end, break_before + self._lines(close_marker(entry.id)))

    def _convert(self, replaced: Mapping[str, entries.Entry], removed: frozenset[str]) -> None:
        """Turn the single-entry form into a daily log."""
        (entry,) = self.parsed.entries
        fields = single.fields(self.head)
        gone = {key for key in self.head.keys if key in fields or key == "entry_id"}
        for name in gone:
            key = self.head.keys[name]
            self._edit(self._line_start(key.start), self._line_end(key.value_end), "")
            del self.expected[name]
        for name, value in reversed(header(self.parsed.place, entry_count=0, stamp=self.stamp)):
            if name in ("entry_count", "last_appended_at"):
                continue
            if name not in self.head.keys or (name == "id" and self.head.values[name] == entry.id):
                if name in gone:
                    continue
                self._set(name, value)
        body = "" if entry.id in removed else marked_text(replaced.get(entry.id, entry), self.newline)
        self._edit(self.head.end, len(self.text), body)

    def _append(self) -> None:
        if not self.appended:
            return
        end = len(self.text)
        is_broken = (
            bool(self.text)
            and not self.text.endswith("\n")
            and not any(edit[2].endswith("\n") and edit[1] == end for edit in self.edits)
        )
        self._edit(
            end,
            end,
            (self.newline if is_broken else "") + "".join(marked_text(entry, self.newline) for entry in self.appended),
        )

    def _result(self) -> bytes:
        """Apply the edits; refuse what would not read back as meant."""
        pieces: list[str] = []
        at = 0
        for start, end, text in sorted(self.edits, key=lambda edit: edit[:2]):
            if start < at:
                raise errors.WriteRefused(
                    self.parsed.path,
                    "two changes overlap",
                    hint=f"put every key of the frontmatter of {self.parsed.path} on a line of its own",
                )
            pieces += (self.text[at:start], text)
            at = end
        pieces.append(self.text[at:])
        result = "".join(pieces)
        if self.head.end:
            read = frontmatter.read(result)
            if read.error or read.values != self.expected:
                raise errors.WriteRefused(
                    self.parsed.path,
                    f"its frontmatter cannot be changed safely{': ' + read.error if read.error else ''}",
                    line=read.error_line or 1,
                    hint=f"write the frontmatter of {self.parsed.path} as plain `key: value` lines",
                )
        return (_BOM if self.parsed.has_bom else b"") + result.encode("utf-8", "surrogateescape")
