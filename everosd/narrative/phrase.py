"""Sentences in clauses, and clauses in words: who and what is named there, and whether it refers to somebody else."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from everosd.index import token
from everosd.narrative import check, figure, relation, words

_CLAUSE = re.compile(
    r"[;:]\s|,(?!\d)|\s[–—-]\s|\b(?:and|but|while|whereas|und|aber|während|et|mais|tandis que|y|e|pero|mientras|mas|ma)\b",  # noqa: RUF001
    re.IGNORECASE,
)
SPEAKER = re.compile(r"^(?P<name>[^\s:][^:\n]{0,59}):\s")
WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")  # noqa: RUF001
_POSSESSIVE = re.compile(r"['’]s?$")  # noqa: RUF001
_ELIDED = re.compile(r"^(?:[dljmnst]|qu)['’](?=\w)", re.IGNORECASE)  # noqa: RUF001
_LATIN_END = "\u0250"
"""Behind the letters of Latin alphabets."""


class Word(NamedTuple):
    """A word."""

    text: str
    folded: str
    is_large: bool


class Clause(NamedTuple):
    """What one says of somebody; or a sentence as a whole."""

    said: tuple[Word, ...]
    text: str
    folded: frozenset[str]

    @classmethod
    def of(cls, said: tuple[Word, ...], text: str) -> Clause:
        """Return a clause of its words."""
        return cls(said, text, frozenset([word.folded for word in said]))


def of_line(line: str) -> list[tuple[Clause, ...]]:
    """Return the sentences of a line, in clauses; without who speaks."""
    said = SPEAKER.sub("", line, count=1)
    return [tuple(of_sentence(one)) for one in check.sentences(said)]


def of_sentence(sentence: str) -> Iterator[Clause]:
    """Yield the clauses of a sentence that have words."""
    for text in _CLAUSE.split(sentence):
        said = tuple(_word(match[0]) for match in WORD.finditer(text))
        if said:
            yield Clause.of(said, text)


@functools.lru_cache(maxsize=20_000)
def _word(text: str) -> Word:
    plain = _POSSESSIVE.sub("", _ELIDED.sub("", text))
    folded = words.fold(plain)
    return Word(text, folded, plain[:1].isupper() and plain[:1] < _LATIN_END and folded not in words.STARTERS)


def joined(clauses: Sequence[Clause]) -> Clause:
    """Return clauses as one."""
    return Clause.of(tuple(word for one in clauses for word in one.said), " , ".join(one.text for one in clauses))


def speaker_of(line: str) -> str:
    """Return who speaks a line; empty: nobody is said to."""
    match = SPEAKER.match(line)
    return match["name"] if match else ""


def refers(clause: Clause, people: frozenset[str]) -> bool:
    """Return whether a clause refers to somebody or something said before, other than the one whom it begins with."""
    found = clause.folded & relation.REFERS
    if not found or len(people) != 1 or clause.said[0].folded not in people:
        return bool(found)
    left = found - relation.HIS - relation.SELF
    return bool(left) or any(
        word.folded == "her" and (follows is None or follows.folded in words.STARTERS)
        for word, follows in zip(clause.said, [*clause.said[1:], None], strict=True)
    )


def takes_up(clause: Clause, *, is_talk: bool) -> bool:
    """Return whether a sentence says something with the words of the one before it; of a talk, of the line before."""
    if not is_talk:
        return bool(clause.folded & (relation.THERE | relation.TOO))
    return bool(clause.folded & relation.TOO or (clause.folded & relation.FIRST and clause.folded & relation.IT))


def has_owner(clause: Clause) -> bool:
    """Return whether something of somebody is spoken of, which may be another."""
    return any(word.is_large and _POSSESSIVE.search(word.text) for word in clause.said)


def targets(clause: Clause, names: frozenset[str]) -> frozenset[str]:
    """Return the places that a clause leads to."""
    return frozenset(
        word.folded
        for lead, word in zip(clause.said, clause.said[1:], strict=False)
        if word.folded in names and lead.folded in relation.TO
    )


def counts(text: str) -> frozenset[tuple[float, str]]:
    """Return the numbers of a text, each with the form of what it counts; empty: nothing that is known."""
    found: set[tuple[float, str]] = set()
    for one in figure.read(text):
        if one.dates or one.minutes:
            continue
        after = [word for word in WORD.findall(text[one.end : one.end + 40])[:2] if words.fold(word) not in check.LIGHT]
        found |= {(number, form(words.fold(after[0])) if after else "") for number in one.numbers if number > 1}
    return frozenset(each for each in found if each[1] or each[0] > check.MAX_COUNT)


def form(folded: str) -> str:
    """Return the form that stands for all forms of a word."""
    return (token.lead_terms(folded, "").split() or [folded])[-1]
