"""Sources become one narrative without a model: their own words under the day that they are of, nothing twice.

Of a transcript there are the lines of those who spoke, of prose the sentences, and facts that the content does not have. Left out
is what was said before and what says nothing, as `Thanks!`; nothing else. Deterministic.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from everosd.narrative import chatter, faithful, recurrence, source, spoken, title, words, writing

BY = "extractive"
"""What stands where a model's name would."""

_SAYS_NOTHING = (
    "none of these says anything that a narrative could tell: greetings, thanks, questions without an answer"
)

_FENCE = re.compile(r"```|~~~")
_WORD = re.compile(r"[^\W_]+")


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
        """Return one narrative of the sources, whatever their order.

        Raises:
            Refused: none of them says anything by itself, as where all are greetings: a narrative would hide them behind nothing.
        """
        found = await asyncio.to_thread(merged, sources)
        if not found.content:
            raise source.Refused(BY, _SAYS_NOTHING, found.check)
        return found


def merged(sources: Sequence[source.Source]) -> source.Narrative:
    """Return the narrative. Takes up to a second for long sources."""
    sources = _in_order(sources)
    pieces = [piece for at, one in enumerate(sources) for piece in _pieces(one, at)]
    pieces = _distinct(_ordered(pieces, sources))
    n_statements = sum(len(piece.sentences) for piece in pieces)
    return source.Narrative(
        subject=title.of(sources),
        content="\n".join(_lines(pieces)),
        by=BY,
        check=source.Check(n_statements=n_statements, n_covered=n_statements),
    )


def _in_order(sources: Sequence[source.Source]) -> list[source.Source]:
    return sorted(sources, key=lambda one: (one.at, one.entry_id))


def _pieces(one: source.Source, at: int) -> Iterator[_Piece]:
    """Yield what a source says, in its order, with facts that its content does not have."""
    own = one.at.date()
    turns = [turn for turn in spoken.turns(one.content) if not turn.is_tool]
    # Code has no sentences, and is kept as it is.
    said = [[turn.text.strip()] if _FENCE.search(turn.text) else spoken.sentences(turn.text) for turn in turns]
    for turn, left in zip(turns, _telling(turns, said), strict=True):
        day = faithful.day_of(turn.day) or (None if one.is_narrative else own)
        if left:
            yield _Piece(day, at, turn.name, tuple(left))
    for fact in faithful.beside(one):
        for turn in spoken.turns(f"{one.at:%Y-%m-%d %H:%M}\n{fact}"):
            yield _Piece(own, at, turn.name, tuple(spoken.sentences(turn.text)))


def _telling(turns: Sequence[spoken.Turn], said: Sequence[Sequence[str]]) -> Iterator[list[str]]:
    """Yield of each turn the sentences that say something: no greetings, and of mere questions those that are answered."""
    present = frozenset(words.fold(word) for turn in turns for word in _WORD.findall(turn.name))
    is_asked = False
    for nth, (turn, sentences) in enumerate(zip(turns, said, strict=True)):
        left: list[str] = []
        follows = turns[nth + 1] if nth + 1 < len(turns) else None
        is_answered = follows is not None and (not turn.name or follows.name != turn.name)
        next_said = said[nth + 1] if is_answered else ()
        for place, each in enumerate(sentences):
            rest = (*sentences[place + 1 :], *next_said) if not turn.name else next_said
            if chatter.is_empty(each, present):
                is_told = is_asked and place == 0 and chatter.is_answer(each, present)
            else:
                is_told = (
                    not chatter.asks(each)
                    or chatter.tells(each, present)
                    or any(_answers(one, present) for one in rest)
                )
            if is_told:
                left.append(each)
        is_asked = bool(turn.name and left and chatter.asks(left[-1]))
        yield left


def _answers(said: str, present: frozenset[str]) -> bool:
    return not chatter.asks(said) and chatter.is_answer(said, present)


def _distinct(pieces: Sequence[_Piece]) -> list[_Piece]:
    """Return pieces, which are in time order, without sentences that are said elsewhere: they stand where they were said first.

    What has become so again stays where it did so last as well.
    """
    said = [
        faithful.Statement(f"{piece.name}: {sentence}" if piece.name else sentence, piece.day, at)
        for at, piece in enumerate(pieces)
        for sentence in piece.sentences
    ]
    kept = {(one.at, one.text) for one in faithful.distinct(said)}
    kept |= {(said[at].at, said[at].text) for at in recurrence.Recurrences([one.text for one in said]).last()}
    found = []
    for at, piece in enumerate(pieces):
        left = [each for each in piece.sentences if (at, f"{piece.name}: {each}" if piece.name else each) in kept]
        if left:
            found.append(piece._replace(sentences=tuple(dict.fromkeys(left))))
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
