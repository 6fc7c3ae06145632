"""The YAML between the two `---` lines at the head of a file: values as text, and where each key stands.

Nothing is coerced: `007`, `on`, `null` and dates keep the text they were written with, so that a rewrite cannot
change them. The positions let a rewrite touch three keys and leave every other byte alone.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple, cast

import msgspec
import yaml

from everosd.log import escape

_OPEN = re.compile(r"---[ \t]*(?:\r?\n|\Z)")
_CLOSE = re.compile(r"(?:^|\n)---[ \t]*\r?(?:\n|\Z)")
_ENTRY = re.compile(r"\n {0,3}" + escape.MARKER, re.IGNORECASE)
_UNREADABLE = re.compile(r"[\ud800-\udfff]")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.@+/-]*")
_WORDS = frozenset(("true", "false", "yes", "no", "on", "off", "null", "y", "n", "none"))
_MAX_CHARS = 4_000_000
"""Ten times the `deprecated_entries` of 10,000 entries; more would hold the interpreter too long."""
_MAX_DEPTH = 200
"""Deeper is nobody's memory; bounds the recursion of whoever walks the values."""


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """Where a key of the mapping stands, in characters of the file's text."""

    start: int
    """Start of the key."""
    value_start: int
    value_end: int
    """Equal to `value_start` for an empty value."""
    items: dict[str, tuple[int, int]] = {}
    """For a value that is a block mapping: start of each key in it and end of its value. Never mutated."""
    is_flow: bool = False
    """The value is a mapping or list in braces or brackets."""


class Frontmatter(msgspec.Struct, frozen=True, kw_only=True):
    """What the head of a file says."""

    values: dict[str, object] = {}
    """Text, list or dict by key; scalars as written. Empty where there is none or it does not parse. Never mutated."""
    keys: dict[str, Key] = {}
    """Where each key of `values` stands. Never mutated."""
    start: int = 0
    end: int = 0
    """Span in the text with both `---` lines; 0, 0: the file has none."""
    inner_start: int = 0
    inner_end: int = 0
    """Span of the YAML itself."""
    error: str = ""
    """Why it does not parse; empty: it does."""
    error_line: int = 0
    """1-based line of the file."""

    def text(self, key: str) -> str:
        """Return the value of a key as text; empty where it is absent, null or no scalar."""
        value = self.values.get(key)
        return value if isinstance(value, str) and value not in ("null", "~") else ""


class _NotSimple(Exception):  # noqa: N818 - a reason, not an error of the program
    """The YAML is valid, but not something that the daemon can keep and change."""

    def __init__(self, at: int, reason: str) -> None:
        super().__init__(reason)
        self.at = at


def read(text: str) -> Frontmatter:
    """Read the head of a file's text (without BOM); never raises."""
    head = _OPEN.match(text)
    if head is None:
        return Frontmatter()
    inner = head.end()
    entry = _ENTRY.search(text, max(0, inner - 1))
    limit = len(text) if entry is None else entry.start() + 1
    close = _CLOSE.search(text, max(0, inner - 1), limit)
    if close is None:
        return Frontmatter(
            start=0,
            end=inner,
            inner_start=inner,
            inner_end=inner,
            error="the frontmatter is opened by `---` and never closed",
            error_line=1,
        )
    inner_end = max(inner, close.start() + 1) if close[0].startswith("\n") else inner
    spans = {"start": 0, "end": close.end(), "inner_start": inner, "inner_end": inner_end}
    source = text[inner:inner_end]
    try:
        _check(source)
        values, keys = _Reader(source, inner).root()
    except yaml.YAMLError as error:
        reason, at = _explain(error, len(source.rstrip()))
    except _NotSimple as error:
        reason, at = str(error), error.at
    else:
        return msgspec.structs.replace(Frontmatter(values=values, keys=keys), **spans)
    return msgspec.structs.replace(Frontmatter(error=reason, error_line=text.count("\n", 0, inner + at) + 1), **spans)


def _check(source: str) -> None:
    """Refuse what the YAML parser would take too long over or cannot take at all."""
    if len(source) > _MAX_CHARS:
        raise _NotSimple(0, "the frontmatter is too large")
    if (bad := _UNREADABLE.search(source)) is not None:
        raise _NotSimple(bad.start(), "the frontmatter holds bytes that are no UTF-8")


def _explain(error: yaml.YAMLError, end: int) -> tuple[str, int]:
    """Return the reason as one sentence and the offset in the YAML."""
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        if mark is not None and mark.index >= end and error.context_mark is not None:
            mark = error.context_mark  # where it was opened says more than the end of the YAML
        reason = " ".join(part for part in (error.context, error.problem) if part)
        return f"the frontmatter does not parse: {reason}", 0 if mark is None else mark.index
    if isinstance(error, yaml.reader.ReaderError):
        return f"the frontmatter does not parse: {error.reason}", error.position
    return f"the frontmatter does not parse: {error}", 0


def _at(mark: yaml.Mark | yaml.CMark | None) -> int:  # type: ignore[name-defined]
    return 0 if mark is None else mark.index


class _Open:
    """A mapping or list being read."""

    def __init__(self, value: dict[str, object] | list[object], event: yaml.Event) -> None:
        self.value = value
        self.start = _at(event.start_mark)
        self.is_flow = bool(getattr(event, "flow_style", False))
        self.key: str | None = None
        self.key_start = 0
        self.items: dict[str, tuple[int, int]] = {}


class _Done(NamedTuple):
    """A value read, with the offsets of its first and behind its last character."""

    value: object
    start: int
    end: int
    items: dict[str, tuple[int, int]]
    is_flow: bool


class _Reader:
    """Builds values from parser events, without recursion: a file can nest a million brackets."""

    def __init__(self, source: str, offset: int) -> None:
        self.offset = offset
        self.events = yaml.parse(source, Loader=yaml.CBaseLoader)
        self.source = source
        self.stack: list[_Open] = []
        self.anchors: dict[str, object] = {}
        self.keys: dict[str, Key] = {}
        self.values: dict[str, object] = {}
        self.n_documents = 0

    def root(self) -> tuple[dict[str, object], dict[str, Key]]:
        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent):
                self.n_documents += 1
                if self.n_documents > 1:
                    raise _NotSimple(_at(event.start_mark), "the frontmatter holds more than one document")
            elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
                self._open(event)
            elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
                done = self.stack.pop()
                end = _at(event.end_mark) if done.is_flow else _at(event.start_mark)
                self._take(_Done(done.value, done.start, end, done.items, done.is_flow))
            elif isinstance(event, yaml.ScalarEvent):
                if event.anchor:
                    self.anchors[event.anchor] = event.value
                self._take(_Done(event.value, _at(event.start_mark), _at(event.end_mark), {}, is_flow=False))
            elif isinstance(event, yaml.AliasEvent):
                if event.anchor not in self.anchors:
                    raise _NotSimple(
                        _at(event.start_mark), f"the frontmatter refers to *{event.anchor}: write the value out"
                    )
                self._take(
                    _Done(self.anchors[event.anchor], _at(event.start_mark), _at(event.end_mark), {}, is_flow=True)
                )
        return self.values, self.keys

    def _open(self, event: yaml.MappingStartEvent | yaml.SequenceStartEvent) -> None:
        at = _at(event.start_mark)
        is_mapping = isinstance(event, yaml.MappingStartEvent)
        if not self.stack and (not is_mapping or event.flow_style):
            raise _NotSimple(at, "the frontmatter must be `key: value` lines")
        if len(self.stack) >= _MAX_DEPTH:
            raise _NotSimple(at, "the frontmatter is nested too deeply")
        if self.stack and isinstance(self.stack[-1].value, dict) and self.stack[-1].key is None:
            raise _NotSimple(at, "a key of the frontmatter is not text")
        self.stack.append(_Open({} if is_mapping else [], event))

    def _take(self, done: _Done) -> None:
        if not self.stack:
            self._finish(done)
            return
        parent = self.stack[-1]
        if isinstance(parent.value, list):
            parent.value.append(done.value)
        elif parent.key is None:
            self._key(parent, done)
        else:
            parent.value[parent.key] = done.value
            parent.items[parent.key] = (parent.key_start + self.offset, done.end + self.offset)
            if len(self.stack) == 1:
                self.keys[parent.key] = Key(
                    start=parent.key_start + self.offset,
                    value_start=done.start + self.offset,
                    value_end=self._trimmed(done.start, done.end) + self.offset,
                    items={} if done.is_flow else done.items,
                    is_flow=done.is_flow,
                )
            parent.key = None

    def _key(self, parent: _Open, done: _Done) -> None:
        if not isinstance(done.value, str):
            raise _NotSimple(done.start, "a key of the frontmatter is not text")
        if done.value in cast("dict[str, object]", parent.value):
            raise _NotSimple(done.start, f"the frontmatter has the key {done.value!r} twice")
        parent.key, parent.key_start = done.value, done.start

    def _finish(self, done: _Done) -> None:
        if isinstance(done.value, dict):
            self.values = done.value
        elif done.value != "":
            raise _NotSimple(done.start, "the frontmatter must be `key: value` lines")

    def _trimmed(self, start: int, end: int) -> int:
        while end > start and self.source[end - 1] in " \t\r\n":
            end -= 1
        return end


def scalar(value: str) -> str:
    """Return `value` as a YAML scalar on one line that reads back as the same text."""
    if _PLAIN.fullmatch(value) and value.casefold() not in _WORDS:
        return value
    if value.isprintable():
        return "'" + value.replace("'", "''") + "'"
    return json.dumps(value)


def number(value: object) -> int:
    """Return a count as written in the frontmatter; 0 where it is none."""
    if isinstance(value, str) and len(value) <= 18 and value.isascii() and value.isdigit():  # noqa: PLR2004 - digits of an int64
        return int(value)
    return 0
