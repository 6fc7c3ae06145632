"""Numbers and what they are said of: a text that swaps two numbers has the numbers of its sources, and belies them."""

# ruff: noqa: RUF001  # signs of other scripts are meant

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from everosd.index import token
from everosd.narrative import check, figure, nearest, words

_MIN_SHARED = 2
"""Words that two clauses share which are of the same."""
_CLAUSE = re.compile(
    r"[;；]|[,:，：、](?!\d)|\s[–—-]\s|\b(?:and|but|while|whereas|und|aber|et|mais|y|pero|e|ma|mas|и|но)\b",
    re.IGNORECASE,
)
_SPEAKER = re.compile(r"^(?P<name>[^\s:：][^:：\n]{0,59})[:：]\s")
_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")


class _Clause(NamedTuple):
    terms: frozenset[str]
    names: frozenset[str]
    numbers: frozenset[float]


class Bound:
    """What numbers of a text are said of."""

    def __init__(self, lines: Iterable[str]) -> None:
        """Take sentences, or lines of a transcript."""
        self._clauses: list[_Clause] = []
        for line in lines:
            for sentence in check.sentences(line):
                self._clauses += _clauses(sentence, _speaker(line))
        self._nearest = nearest.Nearest(clause.terms for clause in self._clauses)
        self._with: dict[float, list[int]] = {}
        for at, clause in enumerate(self._clauses):
            for number in clause.numbers:
                self._with.setdefault(number, []).append(at)

    def belies(self, sentence: str) -> bool:
        """Return whether the text gives another number to that of which a sentence says one.

        That is, where the clauses that are most like one of the sentence's have other numbers, and its number is said of
        something else. Numbers that the text does not have at all are inventions, and none of this.
        """
        return any(
            self._belies(clause, number)
            for clause in _clauses(sentence, _speaker(sentence))
            for number in clause.numbers & self._with.keys()
        )

    def _belies(self, asked: _Clause, number: float) -> bool:
        counts = self._nearest.find(asked.terms)
        if max(counts.values(), default=0) < _MIN_SHARED:
            return False
        likest = [self._clauses[at] for at in counts]
        if not all(clause.numbers for clause in likest) or any(number in clause.numbers for clause in likest):
            return False
        is_named = any(clause.names & asked.names for clause in likest)
        return not any(_may_be_of(asked, self._clauses[at], is_named=is_named) for at in self._with[number])


def _may_be_of(asked: _Clause, clause: _Clause, *, is_named: bool) -> bool:
    """Return whether a clause may say its number of the same; `is_named`: others that are more like it name who it is of."""
    if not clause.names or clause.names & asked.names:
        return True  # "it is 950 now" may be said of anything
    return len(clause.terms & asked.terms) >= _MIN_SHARED and not is_named


def _clauses(sentence: str, speaker: str) -> list[_Clause]:
    said = _SPEAKER.sub("", sentence, count=1) if speaker else sentence
    found = []
    for text in _CLAUSE.split(said):
        whole = f"{speaker} {text}"
        plain = [word for word in _WORD.findall(whole) if not any(char.isdigit() for char in word)]
        heavy = [word for word in plain if words.fold(word) not in check.LIGHT and len(word) > 2]  # noqa: PLR2004  # says something
        found.append(
            _Clause(
                frozenset((token.lead_terms(word, "").split() or [word])[-1] for word in heavy),
                frozenset(words.fold(word) for word in heavy if word[0].isupper()) - words.STARTERS,
                frozenset(
                    number
                    for one in figure.read(text)
                    if not one.dates and not one.minutes
                    for number in one.numbers
                    if number > 1
                ),
            )
        )
    return found


def _speaker(line: str) -> str:
    match = _SPEAKER.match(line)
    return match["name"] if match else ""
