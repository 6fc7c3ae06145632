"""Old files changed only where they must be: entries, and three lines of the frontmatter; every other byte stays.

What comes out is read once more before anyone writes it to disk.
"""

from __future__ import annotations

import codecs
from collections.abc import Collection, Iterable, Mapping

from everosd import errors
from everosd.log import entry as entries
from everosd.log import escape, frontmatter, parse, render, single
from everosd.log import kind as kinds


def rewritten(
    parsed: parse.Parsed,
    *,
    appended: Iterable[entries.Entry] = (),
    replaced: Mapping[str, entries.Entry] | None = None,
    deprecated: Mapping[str, str] | None = None,
    undeprecated: Collection[str] = (),
    removed: Collection[str] = (),
    stamp: str,
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
        replaced or {}, frozenset(removed)
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

    def run(self, replaced: Mapping[str, entries.Entry], removed: frozenset[str]) -> bytes:
        """Collect the edits and return the new bytes."""
        if kinds.BY_NAME[self.parsed.place.kind].is_whole_file:
            self._change_whole(replaced)
            return self._result()
        is_single = bool(self.parsed.entries) and self.parsed.entries[0].form == "single"
        converts = is_single and bool(self.appended or replaced or removed)
        n_left = sum(entry.id not in removed for entry in self.parsed.entries)
        count = render.next_entry_count(
            self.parsed.place, self.parsed.entry_count, self.appended, n_entries=n_left + len(self.appended)
        )
        if self.head.end == 0:
            lines = render.header(self.parsed.place, entry_count=count, stamp=self.stamp)
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
        elif not is_single:
            self._change(replaced, removed)
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
                "---",
                *(f"{frontmatter.scalar(key)}: {render.yaml_value(value)}" for key, value in changed.items()),
                "---",
            )
            self._edit(0, 0, head)
        else:
            for key, value in changed.items():
                self._set(key, render.yaml_value(value))
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
                0,
                0,
                self._lines(
                    "deprecated_entries:", *(render.deprecation_line(old, new) for old, new in self.deprecated.items())
                ),
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
                    f"{indent}deprecated_entries:",
                    *(render.deprecation_line(old, new, indent + "  ") for old, new in added.items()),
                ),
            )
        elif not key.items:
            self._edit(
                key.value_start,
                key.value_end,
                "".join(
                    self.newline + render.deprecation_line(old, str(new), indent + "  ") for old, new in after.items()
                ),
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
                self._edit(start, end, render.deprecation_line(old, new, ""))
            else:
                new_lines.append(render.deprecation_line(old, new, indent))
        if new_lines:
            at = self._line_end(key.value_end)
            self._edit(at, at, self._lines(*new_lines))

    def _change(self, replaced: Mapping[str, entries.Entry], removed: frozenset[str]) -> None:
        """Replace, remove and adopt entries where they stand."""
        for entry, span in zip(self.parsed.entries, self.parsed.spans, strict=True):
            if entry.id in removed:
                self._edit(span.start, span.end, "")
            elif entry.id in replaced and entry.nth == 0:
                self._edit(span.start, span.end, render.marked_text(replaced[entry.id], self.newline))
            else:
                if not span.has_open:
                    self._edit(span.start, span.start, self._lines(render.open_marker(entry.id)))
                # A second closing marker of an id could be taken for the first one's, behind a fence left open.
                if not span.has_close and not (span.has_open and entry.nth):
                    break_before = "" if self.text[span.end - 1] == "\n" else self.newline
                    self._edit(span.end, span.end, break_before + self._lines(render.close_marker(entry.id)))

    def _convert(self, replaced: Mapping[str, entries.Entry], removed: frozenset[str]) -> None:
        """Turn the single-entry form into a daily log."""
        (entry,) = self.parsed.entries
        fields = single.fields(self.head)
        gone = {key for key in self.head.keys if key in fields or key == "entry_id"}
        for name in gone:
            key = self.head.keys[name]
            self._edit(self._line_start(key.start), self._line_end(key.value_end), "")
            del self.expected[name]
        for name, value in reversed(render.header(self.parsed.place, entry_count=0, stamp=self.stamp)):
            if name in ("entry_count", "last_appended_at"):
                continue
            if name not in self.head.keys or (name == "id" and self.head.values[name] == entry.id):
                if name in gone:
                    continue
                self._set(name, value)
        body = "" if entry.id in removed else render.marked_text(replaced.get(entry.id, entry), self.newline)
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
            (self.newline if is_broken else "")
            + "".join(render.marked_text(entry, self.newline) for entry in self.appended),
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
        return (codecs.BOM_UTF8 if self.parsed.has_bom else b"") + result.encode("utf-8", "surrogateescape")
