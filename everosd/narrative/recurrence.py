"""What became so again: a statement that is repeated after another in between said otherwise of the same.

`I live in Ghent`, `I live in Porto`, `I live in Ghent` are three states; that the same was said twice is none.
"""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import NamedTuple

from everosd.narrative import check, faithful, figure, words

_MAX_LIKE = 400
"""Statements that are looked at for one: a word that more of them have says too little."""


class _Said(NamedTuple):
    key: tuple[str, ...]
    terms: frozenset[str]
    """Words of weight."""
    figures: frozenset[str]
    names: frozenset[str]
    is_denied: bool


class Recurrences:
    """Statements, read once, in the order in which they were made."""

    def __init__(self, texts: Sequence[str]) -> None:
        """Take what was said, each with who said it before it."""
        keys = [faithful.key(text) for text in texts]
        self._places: dict[tuple[str, ...], list[int]] = {}
        self._texts: dict[tuple[str, ...], str] = {}
        for at, (key, text) in enumerate(zip(keys, texts, strict=True)):
            self._places.setdefault(key, []).append(at)
            self._texts.setdefault(key, text)
        self._read: dict[tuple[str, ...], _Said] = {}
        self._having: dict[str, list[tuple[str, ...]]] = {}
        if len(self._places) < len(texts):
            for key in self._places:
                for term in set(key):
                    self._having.setdefault(term, []).append(key)

    def last(self) -> list[int]:
        """Return the places at which something was said that had been so, was said otherwise, and is so again."""
        found = []
        for key, places in self._places.items():
            if len(places) > 1 and self._was_otherwise(key, places[0], places[-1]):
                found.append(places[-1])
        return found

    def _was_otherwise(self, key: tuple[str, ...], first: int, last: int) -> bool:
        asked = self._said(key)
        lists = (self._having[term] for term in set(key))
        alike = collections.Counter(other for having in lists if len(having) <= _MAX_LIKE for other in having)
        return any(
            other != key
            and any(first < place < last for place in self._places[other])
            and _is_otherwise(asked, self._said(other))
            for other in alike
        )

    def _said(self, key: tuple[str, ...]) -> _Said:
        if key not in self._read:
            self._read[key] = _read(key, self._texts[key])
        return self._read[key]


def _read(key: tuple[str, ...], text: str) -> _Said:
    found = figure.read(text)
    inner = list(check.WORD.finditer(text))[1:]
    names = () if check.reads_german(text) else [match[0] for match in inner if match[0][0].isupper()]
    return _Said(
        key=key,
        terms=frozenset(term for term in key if term not in check.STOP and not any(map(str.isdigit, term))),
        figures=frozenset(words.fold(text[one.start : one.end]) for one in found),
        names=frozenset(words.fold(name) for name in names) - words.STARTERS,
        is_denied=check.is_negated(text),
    )


def _is_otherwise(one: _Said, other: _Said) -> bool:
    """Return whether two statements are of the same and say something else: a number, a name, a denial, or one word."""
    changed = {faithful.key(name) for name in one.names ^ other.names}
    left, right = (side.terms - {term for name in changed for term in name} for side in (one, other))
    is_alike = 2 * len(left & right) > max(len(left), len(right))
    has_other_figure = bool(one.figures and other.figures and one.figures != other.figures)
    has_other_name = bool(one.names - other.names and other.names - one.names)
    if is_alike and (has_other_figure or has_other_name or one.is_denied is not other.is_denied):
        return True
    differing = [at for at, (mine, theirs) in enumerate(zip(one.key, other.key, strict=False)) if mine != theirs]
    is_exchange = len(one.key) == len(other.key) and len(differing) == 1
    if is_exchange and len(one.terms & other.terms) >= 2:  # noqa: PLR2004  # who and what
        return True
    return len(one.key[0]) == 1 == len(other.key[0]) and is_alike if one.key and other.key else False
