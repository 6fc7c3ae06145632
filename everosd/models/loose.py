"""JSON as models write it, among other text: commas too many or missing, any quotes, Python's words, bare line breaks.

Every function takes time in proportion to the text, whatever it holds.
"""

from __future__ import annotations

import functools
import json
import re
from typing import Any, NamedTuple, cast

_MAX_DEPTH = 64
"""Nobody asks for more."""
_WORK_PER_CHAR = 8
"""A text may be looked at that many times over; braces without end would take the square of its length."""
_WORK_BESIDE = 20_000
_STRICT_TRIES = 20
"""The strict decoder is fast, but for its failures: each counts the lines from the beginning on."""

_OPENING = re.compile(r"[{\[]")
_BLANK = re.compile(r"(?:\s++|//[^\n]*+)*+")
_NUMBER = re.compile(r"[-+]?+(?:\d++(?:_\d++)*+(?:\.\d*+)?+|\.\d++)(?:[eE][-+]?+\d++)?+(?![\w.])")
_WORD = re.compile(r"[A-Za-z_$][\w$-]*+")
_WORDS: dict[str, Any] = {
    "true": True, "false": False, "null": None, "True": True, "False": False, "None": None, "undefined": None,
}  # fmt: skip
_QUOTES = {'"': '"', "'": "'", "“": "”", "„": "“”", "‘": "’", "«": "»", "`": "`"}  # noqa: RUF001
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_PAIR = re.compile(r"u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_CODE = re.compile(r"(?:u(?=[0-9a-fA-F]{4})|x(?=[0-9a-fA-F]{2})|U(?=00[01][0-9a-fA-F]{5}))")
_N_DIGITS = {"u": 4, "x": 2, "U": 8}
_KEY = r"""(?:["'“„‘«`][^"'“”„‘’«»`\n]{1,80}["'“”’»`]\s*+:)"""  # noqa: RUF001
_AFTER_TEXT = re.compile(r"[^\S\n]*+(?:[}\]:,\n]|\Z)")
_NEXT_MEMBER = re.compile(rf"\s*+(?:{_KEY}|//|,|[A-Za-z_$][\w$-]*+\s*+:|[}}\]]|\Z)")
_NEXT_ITEM = re.compile(r"""\s*+(?://|,|["'“„‘«`{\[\]\d-]|\Z|(?:true|false|null|None|True|False)\b)""")  # noqa: RUF001
_KEY_AT_ONCE = re.compile(rf"\s*+{_KEY}")
_ITEM_AT_ONCE = re.compile(r"""\s++["'“„‘«]\w""")  # noqa: RUF001
_DECODER = json.JSONDecoder(strict=False)


class Cut(Exception):  # noqa: N818
    """The text ends before a value does."""


class Broken(Exception):  # noqa: N818
    """Something is JSON for a while, and then it is not."""


class Found(NamedTuple):
    """An object or list that stands in a text."""

    value: Any
    end: int
    """Offset behind it."""


def whole(text: str) -> Any:
    """Return the value of a text that is strict JSON and nothing else, but for line breaks; None: it is not."""
    if text[:1] not in ("{", "[", '"'):
        return None
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError):
        return None


def scan(text: str) -> list[Found]:
    """Return the objects and lists that stand in `text`, in order, none within another.

    Raises:
        Cut: the last of them is cut off.
        Broken: one of them is broken in the middle; what follows may be a part of it.
    """
    found: list[Found] = []
    parser = _Parser(text)
    at = 0
    while (start := _OPENING.search(text, at)) is not None:
        try:
            value, at = parser.value(start.start())
        except _NoJsonError:
            at = start.end()  # a brace in prose
        else:
            found.append(Found(value, at))
    return found


class _NoJsonError(Exception):
    """What begins here is no JSON."""


class _Parser:
    """Reads one value after the other; `Broken` once it had to look at the text too many times."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._left = len(text) * _WORK_PER_CHAR + _WORK_BESIDE
        """Characters that may still be looked at."""
        self._n_read = 0
        """Members and items since `value` was called."""
        self._n_strict = 0
        """Values that the strict decoder did not take."""

    def value(self, start: int) -> tuple[Any, int]:
        """Return the object or list at `start` and the offset behind it."""
        if self._n_strict < _STRICT_TRIES:
            try:
                return _DECODER.raw_decode(self._text, start)
            except (ValueError, RecursionError):
                self._n_strict += 1
        self._n_read = 0
        return self._value(start, 0)

    def _spend(self, n_chars: int) -> None:
        self._left -= n_chars
        if self._left < 0:
            raise Broken

    def _wrong(self) -> Exception:
        return Broken() if self._n_read else _NoJsonError()

    def _skip(self, at: int) -> int:
        """Return where the next letter is that means something."""
        end = cast("re.Match[str]", _BLANK.match(self._text, at)).end()
        self._spend(end - at + 1)
        if end >= len(self._text):
            raise Cut
        return end

    def _value(self, at: int, depth: int) -> tuple[Any, int]:
        at = self._skip(at)
        if depth > _MAX_DEPTH:
            raise Broken
        letter = self._text[at]
        if letter == "{":
            return self._object(at + 1, depth)
        if letter == "[":
            return self._list(at + 1, depth)
        if letter in _QUOTES:
            return self._string(at, is_item=False)
        if (number := _NUMBER.match(self._text, at)) is not None:
            self._spend(number.end() - at)
            return _number(number[0]), number.end()
        if (word := _WORD.match(self._text, at)) is not None and word[0] in _WORDS:
            return _WORDS[word[0]], word.end()
        raise self._wrong()

    def _object(self, at: int, depth: int) -> tuple[dict[str, Any], int]:
        found: dict[str, Any] = {}
        while True:
            at = self._skip(at)
            if self._text[at] == "}":
                return found, at + 1
            if self._text[at] == ",":
                at += 1
                continue
            key, at = self._key(at)
            at = self._skip(at)
            if self._text[at] != ":":
                raise self._wrong()
            found[key], at = self._value(at + 1, depth + 1)
            self._n_read += 1

    def _key(self, at: int) -> tuple[str, int]:
        if self._text[at] in _QUOTES:
            return self._string(at, is_item=False)
        word = _WORD.match(self._text, at)
        if word is None:
            raise self._wrong()
        self._spend(word.end() - at)
        return word[0], word.end()

    def _list(self, at: int, depth: int) -> tuple[list[Any], int]:
        found: list[Any] = []
        while True:
            at = self._skip(at)
            if self._text[at] == "]":
                return found, at + 1
            if self._text[at] == ",":
                at += 1
                continue
            if self._text[at] in _QUOTES:
                item, at = self._string(at, is_item=True)
            else:
                item, at = self._value(at, depth + 1)
            found.append(item)
            self._n_read += 1

    def _string(self, at: int, *, is_item: bool) -> tuple[str, int]:
        """Return the text that is quoted at `at`; a quote inside that nobody escaped is a part of it."""
        stop = _stop(_QUOTES[self._text[at]])
        parts: list[str] = []
        at += 1
        while (found := stop.search(self._text, at)) is not None:
            self._spend(found.end() - at)
            parts.append(self._text[at : found.start()])
            at = found.end()
            if found[0] == "\\":
                letter, at = self._escaped(at)
                parts.append(letter)
            elif self._is_end(at, is_item=is_item):
                return "".join(parts), at
            else:
                parts.append(found[0])
        raise Cut

    def _escaped(self, at: int) -> tuple[str, int]:
        if (pair := _PAIR.match(self._text, at)) is not None:
            return json.loads(f'"\\{pair[0]}"'), pair.end()
        if (code := _CODE.match(self._text, at)) is not None:
            end = code.end() + _N_DIGITS[code[0]]
            return chr(min(0x10FFFF, int(self._text[code.end() : end], 16))), end
        if at >= len(self._text):
            raise Cut
        letter = self._text[at]
        return _ESCAPES.get(letter, letter), at + 1

    def _is_end(self, at: int, *, is_item: bool) -> bool:
        """Return whether the quote before `at` ends its text: what follows goes on as JSON does."""
        after = _AFTER_TEXT.match(self._text, at)
        if after is None:
            return (_ITEM_AT_ONCE if is_item else _KEY_AT_ONCE).match(self._text, at) is not None
        if not after[0].endswith(","):
            return True
        return (_NEXT_ITEM if is_item else _NEXT_MEMBER).match(self._text, after.end()) is not None


@functools.cache
def _stop(ends: str) -> re.Pattern[str]:
    return re.compile(rf"\\|[{re.escape(ends)}]")


def _number(text: str) -> int | float:
    plain = text.replace("_", "")
    try:
        return int(plain)
    except ValueError:
        return float(plain)
