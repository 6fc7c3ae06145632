"""One ranking out of several lists of hits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from everosd import types
from everosd.index import contract

LIFT = 0.3
"""How far an Episode's best fact lifts it towards 1: on LoCoMo's sessions 0.3 found the most in the first place, and
more of it cost places further down."""


class Ranked(msgspec.Struct, frozen=True, kw_only=True):
    """An entry's place in the answer."""

    key: types.EntryKey
    score: float
    """In [0, 1]; sorts the answer."""
    link: int
    """Stands for owner and entry id, as `contract.link` makes it."""


def parents(facts: Iterable[contract.Hit]) -> dict[int, float]:
    """Return the best score among the facts of each entry, by the entry's link."""
    best: dict[int, float] = {}
    for fact in facts:
        if fact.parent_link:
            best[fact.parent_link] = max(fact.score, best.get(fact.parent_link, 0.0))
    return best


def lifted(own: Iterable[contract.Hit], best_facts: Mapping[int, float]) -> list[Ranked]:
    """Rank entries by their own score, raised by that of their best fact.

    `own + (1 - own) * LIFT * fact`: never lower than the entry's own, never above 1, and an entry without facts keeps
    its score.
    """
    return ordered(
        Ranked(
            key=hit.key,
            link=hit.own_link,
            score=hit.score + (1 - hit.score) * LIFT * best_facts.get(hit.own_link, 0.0),
        )
        for hit in own
    )


def plain(hits: Iterable[contract.Hit]) -> list[Ranked]:
    """Rank entries by their own score alone."""
    return ordered(Ranked(key=hit.key, link=hit.own_link, score=hit.score) for hit in hits)


def ordered(ranked: Iterable[Ranked]) -> list[Ranked]:
    """Sort best first; equal scores by key, the newest first, so that the order is the same every time."""
    return sorted(ranked, key=lambda one: (-one.score, -one.key))


def cut(ranked: Sequence[Ranked], threshold: float) -> list[Ranked]:
    """Return what scores at least `threshold`; what scores nothing was not found."""
    return [one for one in ranked if one.score > 0 and one.score >= threshold]
