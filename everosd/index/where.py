"""Which documents a search may return: scope, kinds, statuses and a tree of conditions, the same for every index."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from everosd import types

TextField = Literal["session_id", "parent_id", "parent_type", "sender_id"]
Comparison = Literal["gt", "gte", "lt", "lte"]
Filing = Literal["memory_type", "memory_path", "bucket", "scope", "team_id", "semantic_key"]
"""What a memory is filed under."""
FILINGS: tuple[Filing, ...] = ("memory_type", "memory_path", "bucket", "scope", "team_id", "semantic_key")
ANYTHING = "%"
"""In a pattern: any text, also none."""


class Is(msgspec.Struct, frozen=True, kw_only=True):
    """The field has one of the values; a document with several (senders) needs one of them. No values: nothing fits."""

    field: TextField
    values: tuple[str, ...]


class Compare(msgspec.Struct, frozen=True, kw_only=True):
    """The field stands before or after a value in code point order; a missing session fits no comparison."""

    field: TextField
    comparison: Comparison
    value: str


class During(msgspec.Struct, frozen=True, kw_only=True):
    """The entry's moment lies between two, both included; None leaves that end open."""

    from_us: int | None = None
    to_us: int | None = None


class Not(msgspec.Struct, frozen=True, kw_only=True):
    """The part does not hold. `Is` with "" stands for a missing value."""

    part: Clause


class All(msgspec.Struct, frozen=True, kw_only=True):
    """Every part holds; without parts everything fits."""

    parts: tuple[Clause, ...] = ()


class Any(msgspec.Struct, frozen=True, kw_only=True):
    """One part holds; without parts nothing fits."""

    parts: tuple[Clause, ...]


Clause = Is | Compare | During | Not | All | Any


class Like(msgspec.Struct, frozen=True, kw_only=True):
    """What an entry is filed under fits a pattern: `%` stands for any text, everything else for itself."""

    field: Filing
    pattern: str

    @property
    def is_exact(self) -> bool:
        """Whether one text alone fits."""
        return ANYTHING not in self.pattern


class Where(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of one search. The owner is part of it always: nothing widens the scope."""

    owner: types.Owner
    kinds: tuple[str, ...]
    """Names of kinds, at least one."""
    statuses: tuple[str, ...] = ("active",)
    now_us: int
    """An active entry whose `expires_at` lies at or before this moment counts as `expired`."""
    clause: Clause = All()
    likes: tuple[Like, ...] = ()
    """All of them fit."""


def likes(**patterns: str | None) -> tuple[Like, ...]:
    """Return the bounds that patterns by field make; None, an empty one and `%` stand for anything."""
    given = ((field, patterns.get(field)) for field in FILINGS)
    return tuple(Like(field=field, pattern=text) for field, text in given if text and text.strip(ANYTHING))


def fitting(pattern: str) -> Callable[[str], bool]:
    """Return what tells whether a text fits a pattern; takes time in proportion to the text, whatever the pattern."""
    first, *rest = pattern.split(ANYTHING)
    if not rest:
        return lambda text: text == pattern
    *middle, last = rest
    between = [each for each in middle if each]
    if not between and not last:
        return lambda text: text.startswith(first)
    if not first and not last and len(between) == 1:
        part = between[0]
        return lambda text: part in text

    def fits(text: str) -> bool:
        if len(text) < len(first) + len(last) or not (text.startswith(first) and text.endswith(last)):
            return False
        at, end = len(first), len(text) - len(last)
        for each in between:  # the first place that there is leaves most to the others
            at = text.find(each, at, end)
            if at < 0:
                return False
            at += len(each)
        return True

    return fits
