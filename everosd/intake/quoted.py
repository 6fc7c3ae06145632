"""Memories that are only read out: what an agent was given from memory, and says again, is no news.

Taken out are blocks that hold recalled memory, whoever sends them (programs put them into what a user says), answers of a
memory server among what tools return, and sentences of agents and tools that the owner's memory already has. What a
person says themselves always counts, said before or not.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec
import structlog

from everosd import errors, types
from everosd.intake import message
from everosd.narrative import check
from everosd.search import marks, query

log = structlog.get_logger(__name__)

LEFT_OUT = "[…]"
"""What stands where sentences of a message were taken out and others stay, which may refer to them. It says nothing itself."""

AT_ONCE = 8
"""Sentences that are looked for with one query, 2 ms each."""
MAX_QUERIES = 50
"""For one segment; what is said after that counts as news."""

_BLOCK = re.compile(
    r"<(?P<tag>recalled_memory|recalled_memories|memory|memories|memory_context|relevant_memories|retrieved_memories|long_term_memory)"
    r"(?:\s[^<>]{0,200})?>.*?(?:</(?P=tag)\s*>|\Z)",
    re.DOTALL | re.IGNORECASE,
)
_KINDS = ("atomic_fact", "episode", "memory")
_ARRAYS = frozenset(("episodes", "profiles", "agent_cases", "agent_skills", "unprocessed_messages"))
"""Of a search's answer, as programs get it; two of them make no other."""
_TOP_K = 3 * AT_ONCE
_N_GRAM, _N_SIGNS = 3, 4
_MIN_WORDS, _MIN_SIGNS = 6, 10
"""A shorter sentence is said by many."""
_SAME = 0.8
"""Share of a sentence's runs of three words that the memory has: one word in ten may differ."""
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u3041-\u30ff\u3400-\u9fff]")
_WORD = re.compile(r"[^\W_]+")
_LEAD = re.compile(r"^\s*(?:[-*•>]+|\d{1,3}[.)]|\[\d{1,3}\])\s*")


class Search(Protocol):
    """Where memory is looked for."""

    async def run(self, query: query.Query) -> query.Answer:
        """Answer a query."""

    def was_recalled(self, owner: types.Owner) -> bool:
        """Tell whether an owner's memory was shown to anybody of late: what nobody has read nobody quotes."""


class Quoted:
    """Looks for what agents quote. Lives on the event loop."""

    def __init__(self, search: Search) -> None:
        """Look with `search`, by keyword: what was quoted has the words of what it quotes."""
        self._search = search

    async def without(
        self, owners: Sequence[types.Owner], messages: Sequence[message.Message]
    ) -> tuple[message.Message, ...]:
        """Return the messages without what was quoted from the memory of these owners before the first of them was sent.

        A message of which nothing is left is there with an empty text. Where memory cannot be searched only blocks are
        taken out: something told twice is worth less than nothing told.
        """
        before_us = min((one.timestamp_us for one in messages), default=0)
        shown = [one for one in owners if self._search.was_recalled(one)]
        plain = [_BLOCK.sub("", one.text).strip() if "<" in one.text else one.text for one in messages]
        texts = [
            "" if one.role != "user" and _is_answer(text) else text for one, text in zip(messages, plain, strict=True)
        ]
        # All at once: eight sentences cost one query, whoever said them.
        lines: dict[str, _Lines] = {}
        gone: set[str] = set()
        if shown:
            lines = {
                text: _lines(text) for one, text in zip(messages, texts, strict=True) if one.role != "user" and text
            }
            known = _Known(self._search, shown, before_us)
            gone = await known.of([one for split in lines.values() for _, said in split for one in said])
        return tuple(
            one if left == one.text else msgspec.structs.replace(one, text=left)
            for one, text in zip(messages, texts, strict=True)
            for left in [_without(text, lines[text], gone) if gone and one.role != "user" and text else text]
        )


class _Known:
    """What the owners' memory has of sentences."""

    def __init__(self, search: Search, owners: Sequence[types.Owner], before_us: int) -> None:
        self._search, self._owners, self._before_us = search, owners, before_us
        self._n_queries = 0
        self._grams: dict[types.EntryKey, frozenset[str]] = {}

    async def of(self, sentences: Sequence[str]) -> set[str]:
        """Return those of some sentences that are known, or as good as."""
        known: set[str] = set()
        sought = {one: grams for one in sentences if (grams := _grams(_LEAD.sub("", one)))}
        for some in _batched(list(sought)):
            hits = [grams for owner in self._owners for grams in await self._like(owner, " ".join(some))]
            known |= {one for one in some if any(len(sought[one] & each) >= _SAME * len(sought[one]) for each in hits)}
        return known

    async def _like(self, owner: types.Owner, text: str) -> list[frozenset[str]]:
        if self._n_queries >= MAX_QUERIES:
            return []
        self._n_queries += 1
        asked = query.Query(owner=owner, text=text, method="keyword", top_k=_TOP_K, kinds=_KINDS)
        try:
            answer = await self._search.run(asked)
        except (errors.DerivedIndexError, errors.IndexUnavailable, errors.StoreError) as error:
            log.warning("quotations_not_looked_for", reason=str(error))
            return []
        rows = [hit.row for hit in (*answer.facts, *answer.episodes) if hit.row.timestamp_us < self._before_us]
        if new := {one.key: one.raw for one in rows if one.key not in self._grams}:
            # Beside the loop: an Episode may be a book.
            self._grams |= await asyncio.to_thread(lambda: {key: _grams(raw) for key, raw in new.items()})
        return [self._grams[one.key] for one in rows]


_Lines = list[tuple[str, list[str]]]
"""Lines of a text, with the sentences in each."""


def _lines(text: str) -> _Lines:
    return [(line, list(check.sentences(line))) for line in text.split("\n")]


def _without(text: str, lines: _Lines, gone: set[str]) -> str:
    """Return a text without the sentences that are gone."""
    if not any(one in gone for _, said in lines for one in said):
        return text
    left: list[str] = []
    is_open = False  # whether the last thing that is left is a mark
    for line, said in lines:
        if not any(one in gone for one in said):
            left.append(line)
            is_open = is_open and not line.strip()
            continue
        says_something = any(one not in gone and _WORD.search(_LEAD.sub("", one)) for one in said)
        marked: list[str] = []
        for one in said if says_something else [one for one in said if one in gone]:
            if one not in gone:
                marked.append(one)
                is_open = False
            elif not is_open:
                marked.append(LEFT_OUT)
                is_open = True
        if marked:
            left.append(" ".join(marked))
    found = "\n".join(left).strip()
    return found if _WORD.search(found) else ""


def _batched(sentences: Sequence[str]) -> Iterable[Sequence[str]]:
    return (sentences[at : at + AT_ONCE] for at in range(0, len(sentences), AT_ONCE))


def block(texts: Iterable[str]) -> str:
    """Return memories as one text for an agent, which is recognised when it comes back."""
    return "\n".join((marks.OPENING, *texts, marks.CLOSING))


def _is_answer(text: str) -> bool:
    """Return whether a text is what a memory server answered."""
    if not text.startswith(("{", "[")) or not any(name in text for name in _ARRAYS):
        return False
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return False
    data = found.get("data", found) if isinstance(found, dict) else None
    return isinstance(data, dict) and len(_ARRAYS & data.keys()) > 1


def _grams(text: str) -> frozenset[str]:
    """Return the runs of three words of a text, or of four signs where words are not apart; none where it is short."""
    folded = text.casefold()
    if _UNSPACED.search(folded):
        signs = "".join(_WORD.findall(folded))
        if len(signs) < _MIN_SIGNS:
            return frozenset()
        return frozenset(signs[at : at + _N_SIGNS] for at in range(len(signs) - _N_SIGNS + 1))
    words = _WORD.findall(folded)
    if len(words) < _MIN_WORDS:
        return frozenset()
    return frozenset(map(" ".join, zip(*(itertools.islice(words, at, None) for at in range(_N_GRAM)), strict=False)))
