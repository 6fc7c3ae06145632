"""Looking in the indexes: what each finds, what each says of what the other found, and the one ranking of it.

Everything here blocks and runs in a thread. A *leg* is one index with the query in its terms; with two legs every
candidate is scored by both, so that it does not matter which of them found it.
"""

from __future__ import annotations

import collections
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from everosd import types
from everosd.index import contract, token, where
from everosd.search import fuse, period

if TYPE_CHECKING:
    from everosd.index import text, vector
    from everosd.models import embed

ENTRY_KINDS = ("episode", "memory")
"""Kinds that appear among Episodes; facts may belong to them."""
FACT_KINDS = ("atomic_fact",)

N_FACTS = 40
"""Facts that each index is asked for; the same whatever `top_k` is, or scores would depend on it. With all of LoCoMo in one
memory 40 find what 50 do, 30 find 0.2 % less, 100 find 0.2 % more and take half as long again."""

MIN_CANDIDATES = 40
"""Entries that each index is asked for at least where both are: what is best by both may be best by neither."""

SPARE = 10
"""Entries beyond `top_k`, for those that went away between index and ledger."""

NEAR = 0.25
"""A fact without any of the words is nested from this similarity on: 95 % of unrelated texts are further apart."""

FACTS_SHOWN = 10
"""Facts of one day nested under one Episode: those of a session are all of one day."""

FACTS_IN_ALL = 25
"""Facts nested in one answer, beside the best of each Episode, unless told otherwise. With more, whoever reads from the top
reads weak facts of the first Episode before good ones of the second; with fewer, less of what answers is there."""

_DAY_US = 86_400_000_000


class Aim(msgspec.Struct, frozen=True, kw_only=True):
    """What to look for, and within which bounds."""

    owner: types.Owner
    terms: tuple[token.Term, ...]
    kinds: tuple[str, ...]
    statuses: tuple[str, ...]
    now_us: int
    clause: where.Clause
    top_k: int
    periods: tuple[period.Period, ...] = ()
    """When it was, as far as the query says so."""
    min_score: float = 0.0
    radius: float = 0.0
    """Least similarity; by words alone, where there is none, the least score."""
    likes: tuple[where.Like, ...] = ()
    """What entries are filed under."""
    only: tuple[int, ...] = ()
    """Links of the entries that are asked about; empty: any."""
    n_facts: int = FACTS_IN_ALL
    """Facts to nest."""

    def groups(self) -> list[tuple[str, ...]]:
        """Return the kinds that compete for the same places: those among Episodes, and each of the others."""
        together = tuple(kind for kind in self.kinds if kind in ENTRY_KINDS)
        return [*([together] if together else []), *((kind,) for kind in self.kinds if kind not in ENTRY_KINDS)]

    def bounds(self, kinds: tuple[str, ...]) -> where.Where:
        """Return the bounds of entries of these kinds.

        The filter speaks of entries, not of their facts (an Episode's parent is a conversation, a fact's is its
        Episode): it is applied to the entries that facts belong to.
        """
        return self._where(kinds, where.All()) if kinds == FACT_KINDS else self._where(kinds, self.clause, self.likes)

    def dated(self, kinds: tuple[str, ...]) -> where.Where:
        """Return the bounds of entries of these kinds that are of the time that the query names, or soon after."""
        during = [where.During(from_us=one.from_us, to_us=one.later_us - 1) for one in self.periods]
        within = where.Any(parts=tuple(during))
        if kinds == FACT_KINDS:
            return self._where(kinds, within)
        return self._where(kinds, where.All(parts=(self.clause, within)), self.likes)

    def _where(self, kinds: tuple[str, ...], clause: where.Clause, likes: tuple[where.Like, ...] = ()) -> where.Where:
        return where.Where(
            owner=self.owner, kinds=kinds, statuses=self.statuses, now_us=self.now_us, clause=clause, likes=likes
        )


class Leg(Protocol):
    """One index, asked with one query."""

    def search(self, bounds: where.Where, k: int) -> list[contract.Hit]:
        """Return the `k` best within the bounds."""

    def score(self, bounds: where.Where, links: Iterable[int]) -> list[contract.Hit]:
        """Return what these links stand for, within the bounds."""


class Words:
    """The text index, asked for terms."""

    def __init__(self, index: text.TextIndex, terms: Sequence[token.Term]) -> None:
        """Look for `terms` in `index`."""
        self._index, self._terms = index, terms

    def search(self, bounds: where.Where, k: int) -> list[contract.Hit]:
        """Return the `k` best within the bounds that have one of the terms."""
        return self._index.search(self._terms, bounds, k)

    def score(self, bounds: where.Where, links: Iterable[int]) -> list[contract.Hit]:
        """Return what these links stand for, within the bounds; without any of the terms it scores 0."""
        return self._index.score(self._terms, bounds, links)


class Nearness:
    """The vector index, asked for a vector."""

    def __init__(self, index: vector.VectorIndex, query: embed.Vectors) -> None:
        """Look for what is near `query`, `(dim,)`, in `index`."""
        self._index, self._query = index, query

    def search(self, bounds: where.Where, k: int) -> list[contract.Hit]:
        """Return the `k` nearest within the bounds."""
        return self._index.search(self._query, bounds, k)

    def score(self, bounds: where.Where, links: Iterable[int]) -> list[contract.Hit]:
        """Return what these links stand for, within the bounds; without vectors it is left out."""
        return self._index.score(self._query, bounds, links)


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What one leg found, before the other is heard: a dict per group of kinds, and the facts."""

    leg: Leg
    groups: tuple[dict[types.EntryKey, contract.Hit], ...]
    facts: dict[types.EntryKey, contract.Hit]

    def completed(self, bounds: where.Where, at: int, links: Iterable[int]) -> dict[types.EntryKey, contract.Hit]:
        """Return a group with what the other leg found."""
        return _completed(self.leg, self.groups[at], bounds, links)


class Ranking(msgspec.Struct, frozen=True, kw_only=True):
    """The answer in keys, before the ledger is asked."""

    ranked: tuple[fuse.Ranked, ...] = ()
    """Best first within each group of kinds."""
    facts: dict[int, list[fuse.Evidence]] = {}
    """Facts to nest, by the link of their entry, best first."""
    rest: tuple[fuse.Ranked, ...] = ()
    """What stands behind `ranked` of what competes with memories, best first: importance may bring it in front."""
    floor: float = 0.0
    """Least score, once importance has moved it."""


def find(leg: Leg, aim: Aim, *, is_alone: bool) -> Found:
    """Ask one index; with `is_alone` only for what fits into the answer."""
    k = aim.top_k + SPARE if is_alone else max(MIN_CANDIDATES, aim.top_k + SPARE)
    groups = tuple(fuse.by_key(_found(leg, aim, kinds, k)) for kinds in aim.groups())
    facts = _found(leg, aim, FACT_KINDS, N_FACTS) if has_facts(aim) else []
    return Found(leg=leg, groups=groups, facts=fuse.by_key(facts))


def _found(leg: Leg, aim: Aim, kinds: tuple[str, ...], k: int) -> list[contract.Hit]:
    """Return the `k` best, and the `k` best of the time that is asked for."""
    if aim.only and kinds != FACT_KINDS:
        return leg.score(aim.bounds(kinds), aim.only)
    found = leg.search(aim.bounds(kinds), k)
    return found + leg.search(aim.dated(kinds), k) if aim.periods else found


def rank(aim: Aim, words: Found | None, near: Found | None, *, nests_facts: bool = False) -> Ranking:
    """Make one ranking of what one or two legs found."""
    facts = _facts(aim, words, near)
    best, dated = fuse.best_facts(facts), fuse.dated_by_facts(facts, aim.periods)
    # By words alone nothing is known of similarity: there the radius bounds the score, as `min_score` does.
    floor = max(aim.min_score, aim.radius) if near is None else aim.min_score
    radius = 0.0 if near is None else aim.radius
    ranked: list[fuse.Ranked] = []
    rest: list[fuse.Ranked] = []
    for at, kinds in enumerate(aim.groups()):
        bounds = aim.bounds(kinds)
        lifting = best if kinds[0] in ENTRY_KINDS else {}
        links = {hit.own_link for leg in (words, near) if leg is not None for hit in leg.groups[at].values()}
        links |= lifting.keys()
        if aim.only:
            links &= set(aim.only)
        entries = fuse.evidence(
            None if words is None else words.completed(bounds, at, links),
            None if near is None else near.completed(bounds, at, links),
        )
        lifted = fuse.lifted(entries, lifting, aim.periods, dated if lifting else {})
        placed = fuse.cut(lifted, min_score=fuse.least(floor), radius=radius)
        if words is not None:  # what has none of the words and is not near either was not found
            placed = [one for one in placed if one.score > 0]
        ranked += placed[: aim.top_k + SPARE]
        if kinds[0] in ENTRY_KINDS:
            rest += placed[aim.top_k + SPARE :]
    nested = _nested(facts, [*ranked, *rest], aim) if nests_facts else {}
    return Ranking(ranked=tuple(ranked), facts=nested, rest=tuple(rest), floor=floor)


def has_facts(aim: Aim) -> bool:
    """Return whether facts speak for what is looked for."""
    return any(kind in ENTRY_KINDS for kind in aim.kinds)


def _facts(aim: Aim, words: Found | None, near: Found | None) -> list[fuse.Evidence]:
    """Return the facts that either leg found, scored by both."""
    if words is None or near is None:
        return fuse.evidence(None if words is None else words.facts, None if near is None else near.facts)
    links = {hit.own_link for leg in (words, near) for hit in leg.facts.values()}
    bounds = aim.bounds(FACT_KINDS)
    return fuse.evidence(
        _completed(words.leg, words.facts, bounds, links), _completed(near.leg, near.facts, bounds, links)
    )


def _completed(
    leg: Leg, found: dict[types.EntryKey, contract.Hit], bounds: where.Where, links: Iterable[int]
) -> dict[types.EntryKey, contract.Hit]:
    """Add what a leg says of links that it did not find itself."""
    known = {hit.own_link for hit in found.values()}
    unknown = [link for link in links if link not in known]
    return found | fuse.by_key(leg.score(bounds, unknown)) if unknown else found


def _nested(facts: list[fuse.Evidence], ranked: Sequence[fuse.Ranked], aim: Aim) -> dict[int, list[fuse.Evidence]]:
    """Return facts that matched by themselves, by the link of their entry, best first; those of the time asked for before others.

    Of each entry the best one, and of all entries that are shown the best `n_facts`. Facts of one day speak for each
    other: a narrative tells of many, and what it says of the day of its best fact stands before what it says of other days.
    """
    wanted = {one.own.link for one in ranked}
    matched = [
        fuse.dated(one, aim.periods)
        for one in facts
        if one.parent_link in wanted and (one.keyword or (one.similarity or 0.0) >= NEAR)
    ]
    of_entry: dict[int, float] = {}
    of_day: dict[tuple[int, int], float] = {}
    for one in matched:
        of_entry[one.parent_link] = max(of_entry.get(one.parent_link, 0.0), one.score)
        of_day[_day(one)] = max(of_day.get(_day(one), 0.0), one.score)
    # Where all are of one day, as those of a session are, each keeps its score.
    weighed = [
        msgspec.structs.replace(one, score=one.score * (of_day[_day(one)] / of_entry[one.parent_link]))
        for one in matched
    ]
    nested: dict[int, list[fuse.Evidence]] = {}
    n_of_day = collections.Counter[tuple[int, int]]()
    for one in sorted(weighed, key=lambda one: (-one.score, -one.key)):
        n_of_day[_day(one)] += 1
        if n_of_day[_day(one)] <= FACTS_SHOWN:
            nested.setdefault(one.parent_link, []).append(one)
    best_first = sorted(
        (one for some in nested.values() for one in some), key=lambda one: (-one.score - of_day[_day(one)], -one.key)
    )
    kept = _first(best_first, aim.n_facts, {one.own.link for one in ranked[: aim.top_k]})
    return {link: [one for nth, one in enumerate(some) if nth == 0 or one.key in kept] for link, some in nested.items()}


def _day(fact: fuse.Evidence) -> tuple[int, int]:
    """Return what the facts of one entry and day have in common."""
    return fact.parent_link, fact.timestamp_us // _DAY_US


def _first(facts: Sequence[fuse.Evidence], n: int, shown: Collection[int]) -> set[types.EntryKey]:
    """Return the first facts up to the `n`th of an entry that is shown."""
    of_shown = [nth for nth, fact in enumerate(facts, start=1) if fact.parent_link in shown]
    return {fact.key for fact in facts[: of_shown[n - 1] if len(of_shown) >= n else len(facts)]}
