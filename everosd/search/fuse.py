"""One ranking out of what the words say and what the vectors say.

Both say it on an absolute scale: `keyword` is the share of the BM25 that the query could reach, `similarity` the cosine
of the nearest piece. Their root mean square is what an entry scores by itself: one strong sign says more than two weak
ones, for a question in other words, or in another language, has stray words in common with much. The best fact lifts
that towards 1. The score of an entry depends on the query, the entry and its facts, never on the other hits nor on which
search found it, so that scores of different queries can be compared and a threshold means something.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import msgspec

from everosd import types
from everosd.index import contract
from everosd.search import period

WORDS = 0.3
"""Weight of the words beside that of the vectors. On LoCoMo's sessions 0.25 to 0.35 ranks best or as good as best, whoever
extracted them, in memories of one conversation and of all (docs/decisions, 8). Their questions repeat the words of the talk
more than people's do, which speaks for no more than that."""

LIFT = 0.5
"""How far an entry's best fact lifts it towards 1. On LoCoMo's sessions anything between 0.3 and 0.7 finds about the same;
0.5 is among the best in the first place by words, by vectors and by both."""

UNSEEN = 0.5
"""An entry without vectors yet is taken to be this share as near as its words match: as similar as entries whose words
match well are in the mean, and less than those whose words do not."""


DATED = 0.3
"""How far a moment that a query names lifts entries of that time towards 1; from 0.15 on all finds about the same. The
moment is not in an entry's words unless somebody wrote it there."""


IMPORTANCE = 0.2
"""How far importance moves a score: that of a memory of no importance loses a fifth, so that it is found below what is equal to
it and not below what has little to do with the query."""

USUAL = 0.5
"""Importance that moves nothing: that of what says none."""


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What speaks for one entry or fact."""

    key: types.EntryKey
    link: int
    """Stands for owner and entry id, as `contract.link` makes it."""
    parent_link: int
    timestamp_us: int = 0
    """Moment of the entry, microseconds since 1970."""
    keyword: float | None = None
    """In [0, 1]; None where words were not asked."""
    similarity: float | None = None
    """In [0, 1]; None where vectors were not asked, or the entry has none yet."""
    score: float
    """What both make together."""


class Ranked(msgspec.Struct, frozen=True, kw_only=True):
    """An entry's place in the answer."""

    own: Evidence
    fact: Evidence | None = None
    """The best of its facts; None: none matched."""
    dated: float = 0.0
    """How well the entry's moment fits what the query says of when; 0 where it says nothing."""
    score: float
    """In [0, 1]; sorts the answer."""
    importance: float | None = None
    """What moved the score; None: the entry has none."""
    corrects: types.EntryKey | None = None
    """What it corrects and has its score from; None: the score is its own."""

    @property
    def nearness(self) -> float:
        """Similarity of what is nearest of the entry: a piece of it or its best fact."""
        return max(self.own.similarity or 0.0, 0.0 if self.fact is None else self.fact.similarity or 0.0)


Hits = Mapping[types.EntryKey, contract.Hit]
"""What one search says of entries: all that were found by any, as far as that index has them."""


def by_key(hits: Iterable[contract.Hit]) -> dict[types.EntryKey, contract.Hit]:
    """Return hits under their keys."""
    return {hit.key: hit for hit in hits}


def evidence(words: Hits | None, vectors: Hits | None) -> list[Evidence]:
    """Put together what both searches say of each entry; None where one was not asked."""
    return [_evidence(key, words, vectors) for key in {**(words or {}), **(vectors or {})}]


def _evidence(key: types.EntryKey, words: Hits | None, vectors: Hits | None) -> Evidence:
    word = None if words is None else words.get(key)
    vector = None if vectors is None else vectors.get(key)
    keyword = None if words is None else 0.0 if word is None else word.score
    similarity = None if vector is None else vector.score
    found = word or vector
    assert found is not None  # noqa: S101  # a key comes from one of them
    return Evidence(
        key=key,
        link=found.own_link,
        parent_link=found.parent_link,
        timestamp_us=found.timestamp_us,
        keyword=keyword,
        similarity=similarity,
        score=_own(keyword, similarity, has_vectors=vectors is not None),
    )


def _own(keyword: float | None, similarity: float | None, *, has_vectors: bool) -> float:
    if keyword is None:
        return similarity or 0.0
    if not has_vectors:
        return keyword
    near = keyword * UNSEEN if similarity is None else similarity
    return math.sqrt(WORDS * keyword**2 + (1 - WORDS) * near**2)


def best_facts(facts: Iterable[Evidence]) -> dict[int, Evidence]:
    """Return the best fact of each entry, by the entry's link; of equal ones the newest."""
    best: dict[int, Evidence] = {}
    for fact in facts:
        known = best.get(fact.parent_link)
        if fact.parent_link and (known is None or (fact.score, fact.key) > (known.score, known.key)):
            best[fact.parent_link] = fact
    return best


def dated_by_facts(facts: Iterable[Evidence], periods: Sequence[period.Period]) -> dict[int, float]:
    """Return how well a fact of each entry fits what is said of when, by the entry's link: a narrative tells of many days."""
    fits: dict[int, float] = {}
    for fact in facts if periods else ():
        if fact.parent_link:
            fits[fact.parent_link] = max(fits.get(fact.parent_link, 0.0), period.fit(periods, fact.timestamp_us))
    return fits


def dated(one: Evidence, periods: Sequence[period.Period]) -> Evidence:
    """Return a fact with the score that it has where it is looked for by itself: lifted by how well it fits."""
    fit = period.fit(periods, one.timestamp_us) if periods else 0.0
    return msgspec.structs.replace(one, score=one.score + (1 - one.score) * DATED * fit) if fit else one


def lifted(
    entries: Iterable[Evidence],
    facts: Mapping[int, Evidence],
    periods: Sequence[period.Period] = (),
    days: Mapping[int, float] = MappingProxyType({}),
) -> list[Ranked]:
    """Rank entries by their own score, raised by their best fact, then by how well they fit what is said of when.

    `own + (1 - own) * LIFT * fact`: never lower than the entry's own, never above 1, and an entry without facts keeps
    its score. The same again with `DATED` and the fit: of the entry's moment, or what `dated_by_facts` says of it.
    """
    ranked = []
    for own in entries:
        fact = facts.get(own.link)
        score = own.score if fact is None else own.score + (1 - own.score) * LIFT * fact.score
        fit = max(period.fit(periods, own.timestamp_us), days.get(own.link, 0.0)) if periods else 0.0
        score += (1 - score) * DATED * fit
        ranked.append(Ranked(own=own, fact=fact, dated=fit, score=score))
    return ordered(ranked)


def weighed(score: float, importance: float) -> float:
    """Return a score as importance moves it: in [0, 1], and the more important of two equal ones never has less.

    Below `USUAL` it loses up to a share of `IMPORTANCE`; above, it gains up to that, and less where little is left to gain.
    """
    share = (importance - USUAL) / USUAL * IMPORTANCE
    return score * (1 + share) if share < 0 else score + share * score * (1 - score)


def least(min_score: float) -> float:
    """Return the score from which importance may lift an entry to `min_score`."""
    return min_score / (1 + IMPORTANCE)


def ordered(ranked: Iterable[Ranked]) -> list[Ranked]:
    """Sort best first; of equal scores the more important, then by key, the newest first: the same order every time."""
    return sorted(
        ranked, key=lambda one: (-one.score, -(USUAL if one.importance is None else one.importance), -one.own.key)
    )


def cut(ranked: Iterable[Ranked], *, min_score: float = 0.0, radius: float = 0.0) -> list[Ranked]:
    """Return what scores at least `min_score` and is at least as near as `radius`, in the order given."""
    return [one for one in ranked if one.score >= min_score and (not radius or one.nearness >= radius)]
