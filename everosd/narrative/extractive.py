"""Sources become one narrative without a model: their own words under the day that they are of, nothing twice.

Of a transcript there are the lines of those who spoke, of prose the sentences, and facts that the content does not have; what
says nothing, as `Thanks!`, is left out. Deterministic.
"""

from __future__ import annotations

import asyncio
import collections
import datetime as dt
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from everosd.narrative import faithful, source, spoken, writing

BY = "extractive"
"""What stands where a model's name would."""

_SUBJECT_CHARS = 80
_FENCE = re.compile(r"```|~~~")


class _Piece(NamedTuple):
    """Something that was said in one go."""

    day: dt.date | None
    """None: a narrative says it, and not when."""
    at: int
    """Place of its source among them."""
    name: str
    sentences: tuple[str, ...]


class Extractive:
    """Merges without a model."""

    name = BY
    is_set_up = True

    def __init__(self, max_chars: int) -> None:
        """Have narratives of at most about so many characters; a cluster that has more to say is merged in parts."""
        self._max_chars = max_chars

    def n_fitting(self, sources: Sequence[source.Source]) -> int:
        """Return how many of the first sources, in time order, fit into one merge; 0: the first one alone is too long."""
        known: set[tuple[str, ...]] = set()
        n_used = 0
        for at, one in enumerate(_in_order(sources)):
            for piece in _pieces(one, at):
                new = {faithful.key(sentence) for sentence in piece.sentences} - known
                known |= new
                n_used += sum(len(each) for each in piece.sentences) + len(piece.name) + 3 if new else 0
            if n_used > self._max_chars:
                return at
        return len(sources)

    async def merge(self, sources: Sequence[source.Source]) -> source.Narrative:
        """Return one narrative of the sources, whatever their order."""
        return await asyncio.to_thread(merged, sources)


def merged(sources: Sequence[source.Source]) -> source.Narrative:
    """Return the narrative. Takes up to a second for long sources."""
    sources = _in_order(sources)
    pieces = [piece for at, one in enumerate(sources) for piece in _pieces(one, at)]
    pieces = _ordered(_distinct(pieces), sources)
    n_statements = sum(len(piece.sentences) for piece in pieces)
    return source.Narrative(
        subject=subject(sources),
        content="\n".join(_lines(pieces)),
        by=BY,
        check=source.Check(n_statements=n_statements, n_covered=n_statements),
    )


def subject(sources: Sequence[source.Source]) -> str:
    """Return the subject that most sources have; of equally many the newest one's; without any, what was said last."""
    given = [line for one in _in_order(sources) if (line := " ".join(one.subject.split()))]
    counts = collections.Counter(given)
    if given:
        return max(reversed(given), key=lambda each: counts[each])
    last = [sentence for one in _in_order(sources)[-1:] for piece in _pieces(one, 0) for sentence in piece.sentences]
    return last[-1][:_SUBJECT_CHARS] if last else ""


def _in_order(sources: Sequence[source.Source]) -> list[source.Source]:
    return sorted(sources, key=lambda one: (one.at, one.entry_id))


def _pieces(one: source.Source, at: int) -> Iterator[_Piece]:
    """Yield what a source says, in its order, with facts that its content does not have."""
    own = one.at.date()
    for turn in spoken.turns(one.content):
        if turn.is_tool:
            continue
        day = faithful.day_of(turn.day) or (None if one.is_narrative else own)
        # Code has no sentences, and is kept as it is.
        said = [turn.text.strip()] if _FENCE.search(turn.text) else spoken.sentences(turn.text)
        if _says_something(said):
            yield _Piece(day, at, turn.name, tuple(said))
    for fact in faithful.beside(one):
        for turn in spoken.turns(f"{one.at:%Y-%m-%d %H:%M}\n{fact}"):
            yield _Piece(own, at, turn.name, tuple(spoken.sentences(turn.text)))


def _says_something(said: Sequence[str]) -> bool:
    text = " ".join(said)
    return spoken.says_something(text) or faithful.is_stated(text)


def _distinct(pieces: Sequence[_Piece]) -> list[_Piece]:
    """Return pieces without sentences that are said elsewhere: they stand where they were said first.

    Where a source in between says something else of the same, the last time stays as well: it may have become so again.
    """
    said = [
        faithful.Statement(f"{piece.name}: {sentence}" if piece.name else sentence, piece.day, at)
        for at, piece in enumerate(pieces)
        for sentence in piece.sentences
    ]
    kept = {(one.at, one.text) for one in faithful.distinct(said)}
    first: dict[tuple[str, ...], int] = {}
    last: dict[tuple[str, ...], faithful.Statement] = {}
    of_whom: dict[str, dict[int, set[tuple[str, ...]]]] = collections.defaultdict(lambda: collections.defaultdict(set))
    for one in said:
        key, place = faithful.key(one.text), pieces[one.at].at
        of_whom["".join(key[:1])][place].add(key)
        if (one.at, one.text) in kept:
            first.setdefault(key, place)
        elif key in first:
            last[key] = one
    for key, one in last.items():
        places = of_whom["".join(key[:1])]
        if any(first[key] < place < pieces[one.at].at and key not in keys for place, keys in places.items()):
            kept.add((one.at, one.text))
    found = []
    for at, piece in enumerate(pieces):
        left = [each for each in piece.sentences if (at, f"{piece.name}: {each}" if piece.name else each) in kept]
        left = list(dict.fromkeys(left))
        if _says_something(left):
            found.append(piece._replace(sentences=tuple(left)))
    return found


def _ordered(pieces: Sequence[_Piece], sources: Sequence[source.Source]) -> list[_Piece]:
    """Return pieces in time order: first what has no day, last what a person put into a narrative."""
    newest = max((piece.day for piece in pieces if piece.day), default=None)
    placed = [
        piece._replace(day=newest) if sources[piece.at].is_latest and piece.day is None else piece for piece in pieces
    ]
    return sorted(
        placed,
        key=lambda piece: (piece.day or dt.date.min, piece.day == newest and sources[piece.at].is_latest, piece.at),
    )


def _lines(pieces: Sequence[_Piece]) -> Iterator[str]:
    day: dt.date | None = None
    for piece in pieces:
        if piece.day is not None and piece.day != day:
            day = piece.day
            yield day.isoformat()
        text = f"\n{spoken.INDENT}".join(writing.joined(piece.sentences).splitlines())
        yield f"{piece.name}: {text}" if piece.name else text
