"""Files that are one entry each (`user.md`, `SKILL.md`): written anew, or changed key by key and item by item.

Values may be lists of maps, laid out as PyYAML does it. What is not being changed keeps every byte: other keys, comments,
the items of a list that stay. What comes out is read once more before anyone writes it to disk.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

import yaml

from everosd import errors, types
from everosd.log import escape, frontmatter, parse

Value: TypeAlias = "str | int | float | Sequence[Value] | Mapping[str, Value]"
"""Of a key. Read back it is all text: a number is written plain and compared as its digits."""

_WIDTH = 80
"""Where PyYAML folds long texts."""
_UNFOLDED = 1 << 30


def read_back(value: Value) -> object:
    """Return a value as `frontmatter.read` gives it: lists, dicts and text, cleaned as the log keeps text."""
    if isinstance(value, str):
        return escape.clean(value)
    if isinstance(value, Mapping):
        return {str(key): read_back(each) for key, each in value.items()}
    if isinstance(value, Sequence):
        return [read_back(each) for each in value]
    return str(value)


def new(path: types.RelPath, values: Mapping[str, Value], body: str) -> bytes:
    """Return the bytes of a new file: keys in order, then the body.

    Raises:
        WriteRefused: the values cannot be written as YAML that reads back.
    """
    text = f"---\n{_lines(path, values)}---\n"
    cleaned = escape.clean(body)
    return (f"{text}{cleaned}\n" if cleaned else text).encode()


def changed(parsed: parse.Parsed, values: Mapping[str, Value], body: str | None = None) -> bytes:
    """Return the bytes of a file with keys set to other values, and with another body; the same bytes where nothing differs.

    Args:
        parsed: the file as last read.
        values: keys to set. A list keeps the text of the items that stay, as long as new ones come behind them.
        body: what follows the frontmatter; None: as it is.

    Raises:
        WriteRefused: the file's frontmatter or bytes do not parse, or cannot be changed safely.
    """
    if parsed.error is not None:
        raise errors.WriteRefused(
            parsed.path,
            f"is not rewritten while it does not parse: {parsed.error.reason}",
            line=parsed.error.line,
            hint=f"correct {parsed.path} and save it",
        )
    for by_items in (True, False):
        result = _Change(parsed, by_items=by_items).run(values, body)
        if result is not None:
            return (codecs.BOM_UTF8 if parsed.has_bom else b"") + result.encode("utf-8", "surrogateescape")
    raise errors.WriteRefused(
        parsed.path,
        "its frontmatter cannot be changed safely",
        line=1,
        hint=f"write the frontmatter of {parsed.path} as plain `key: value` lines",
    )


def _lines(path: types.RelPath, values: Mapping[str, Value]) -> str:
    """Return `key: value` lines that read back as the values."""
    expected = {key: read_back(value) for key, value in values.items()}
    for text in (_folded(values), _quoted(expected)):
        read = frontmatter.read(f"---\n{text}---\n")
        if not read.error and read.values == expected:
            return text
    raise errors.WriteRefused(path, "what is to be written into it cannot be written as YAML")


def _plain(value: Value) -> object:
    """Return a value as PyYAML takes it: numbers stay numbers, so that they are written without quotes."""
    if isinstance(value, str):
        return escape.clean(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, Sequence):
        return [_plain(each) for each in value]
    return value


def _folded(values: Mapping[str, Value]) -> str:
    """Return lines as EverOS writes them."""
    text: str = yaml.safe_dump(
        {key: _plain(value) for key, value in values.items()}, sort_keys=False, allow_unicode=True, width=_WIDTH
    )
    return text


def _quoted(values: Mapping[str, object]) -> str:
    """Return lines in which every text stands on one line, in quotes, all that is odd escaped."""
    text: str = yaml.safe_dump(dict(values), sort_keys=False, default_style='"', width=_UNFOLDED)
    return text


class _Item(NamedTuple):
    """An item of a list in block style."""

    dash: int
    end: int
    """Behind its last character."""


class _Node(NamedTuple):
    """A key of the YAML and its value; both have marks."""

    key: yaml.Node
    value: yaml.Node


def _composed(source: str) -> list[_Node]:
    root = yaml.compose(source, Loader=yaml.CBaseLoader)
    return [] if root is None else [_Node(*pair) for pair in root.value]


class _Change:
    """One change to one file, collected as edits of its text."""

    def __init__(self, parsed: parse.Parsed, *, by_items: bool) -> None:
        self.parsed, self.by_items = parsed, by_items
        self.text, self.head = parsed.text, parsed.frontmatter
        self.edits: list[tuple[int, int, str]] = []
        self.expected: dict[str, object] = dict(self.head.values)

    def run(self, values: Mapping[str, Value], body: str | None) -> str | None:
        """Return the new text; None where it would not read back as meant."""
        differing = {
            key: value
            for key, value in values.items()
            if key not in self.head.values or self.head.values[key] != read_back(value)
        }
        self.expected |= {key: read_back(value) for key, value in differing.items()}
        if self.head.end == 0:
            if differing:
                self._edit(0, 0, f"---\n{_lines(self.parsed.path, differing)}---\n")
        else:
            for key, value in differing.items():
                self._set(key, value)
        if body is not None and (cleaned := escape.clean(body)) != self._body():
            self._edit(self.head.end, len(self.text), f"{cleaned}\n" if cleaned else "")
        return self._result()

    def _body(self) -> str:
        return escape.strip_blank_lines(self.text[self.head.end :].replace("\r\n", "\n"))

    def _edit(self, start: int, end: int, text: str) -> None:
        self.edits.append((start, end, text.replace("\n", self.parsed.newline)))

    def _set(self, key: str, value: Value) -> None:
        old = self.head.keys.get(key)
        lines = _lines(self.parsed.path, {key: value})
        if old is None:
            self._edit(self.head.inner_end, self.head.inner_end, _indented(lines, self._indent()))
            return
        before = self.head.values[key]
        if isinstance(value, Sequence) and not isinstance(value, str) and isinstance(before, list) and before:
            items = None if old.is_flow or not self.by_items else self._items(key)
            if items is not None and self._set_items(before, list(value), items):
                return
        colon = self._colon(key)
        shown = _indented(lines, self._indent()).rstrip("\n")
        self._edit(colon, max(colon, old.value_end), shown[len(self._indent()) + self._key_length(lines) :])

    def _colon(self, key: str) -> int:
        """Return the place behind the colon of a key."""
        end = int(self._node(key).key.end_mark.index)
        return self.text.index(":", self.head.inner_start + end) + 1

    def _key_length(self, lines: str) -> int:
        """Return how many characters a key takes with its colon, at the start of lines as they are dumped."""
        (node,) = _composed(lines)
        return lines.index(":", int(node.key.end_mark.index)) + 1

    def _node(self, key: str) -> _Node:
        """Return a key and its value, with marks from the start of the YAML."""
        return next(
            node for node in _composed(self.text[self.head.inner_start : self.head.inner_end]) if node.key.value == key
        )

    def _indent(self) -> str:
        """Return the indentation of the frontmatter's keys."""
        first = min((key.start for key in self.head.keys.values()), default=None)
        return "" if first is None else self.text[self._line_start(first) : first]

    def _line_start(self, at: int) -> int:
        return self.text.rfind("\n", 0, at) + 1

    def _line_end(self, at: int) -> int:
        after = self.text.find("\n", at)
        return len(self.text) if after < 0 else after + 1

    def _items(self, key: str) -> list[_Item] | None:
        """Return where the items of a list in block style stand; None where that cannot be told."""
        sequence = self._node(key).value
        found: list[_Item] = []
        behind = self.head.inner_start + int(sequence.start_mark.index)
        for node in sequence.value:
            start = self.head.inner_start + int(node.start_mark.index)
            dash = self.text.rfind("-", behind, start)
            if dash < 0 or self.text[self._line_start(dash) : dash].strip() or self.text[dash + 1 : start].strip():
                return None
            end = self.head.inner_start + _end(node)
            end = start + len(self.text[start:end].rstrip())
            found.append(_Item(dash, end))
            behind = end
        return found

    def _set_items(self, before: Sequence[object], after: list[Value], items: Sequence[_Item]) -> bool:
        """Take out and append items; False where the list changes in another way."""
        at, gone = 0, list[_Item]()
        for value, item in zip(before, items, strict=True):
            if at < len(after) and read_back(after[at]) == value:
                at += 1
            else:
                gone.append(item)
        if len(gone) == len(items) and at == len(after):
            return False
        for item in gone:
            self._edit(self._line_start(item.dash), self._line_end(item.end), "")
        if at < len(after):
            lines = _lines(self.parsed.path, {"items": after[at:]}).partition("\n")[2]
            indent = self.text[self._line_start(items[-1].dash) : items[-1].dash]
            behind = self._line_end(items[-1].end)
            self._edit(behind, behind, _indented(lines, indent))
        return True

    def _result(self) -> str | None:
        pieces: list[str] = []
        at = 0
        for start, end, text in sorted(self.edits, key=lambda edit: edit[:2]):
            if start < at:
                return None
            pieces += (self.text[at:start], text)
            at = end
        pieces.append(self.text[at:])
        result = "".join(pieces)
        read = frontmatter.read(result)
        return None if read.error or read.values != self.expected else result


def _indented(lines: str, indent: str) -> str:
    if not indent:
        return lines
    return "".join(f"{indent}{line}" if line.strip() else line for line in lines.splitlines(keepends=True))


def _end(node: yaml.Node) -> int:
    """Return where the last scalar of a node ends: what follows a block up to the next one is not its own."""
    while not isinstance(node, yaml.ScalarNode) and not getattr(node, "flow_style", False) and node.value:
        last = node.value[-1]
        node = last[1] if isinstance(last, tuple) else last
    return int(node.end_mark.index)
