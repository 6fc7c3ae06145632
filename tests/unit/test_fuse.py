"""One ranking out of two: bounds, order and independence."""

from __future__ import annotations

import hypothesis
from hypothesis import strategies as st

from everosd import types
from everosd.index import contract
from everosd.search import fuse, period

Shares = st.floats(min_value=0, max_value=1)


def hit(key: int, score: float, parent: int = 0) -> contract.Hit:
    return contract.Hit(key=types.EntryKey(key), score=score, own_link=key, parent_link=parent, timestamp_us=key)


def scored(key: int, score: float, parent: int = 0) -> fuse.Evidence:
    (made,) = fuse.evidence(fuse.by_key([hit(key, score, parent)]), None)
    return made


def test_by_words_alone_the_score_is_that_of_the_words() -> None:
    """And by vectors alone the similarity: no other half is missing."""
    hits = fuse.by_key([hit(1, 0.8), hit(2, 0.3)])
    assert [0.8, 0.3] == [one.score for one in fuse.evidence(hits, None)]
    assert [0.8, 0.3] == [one.score for one in fuse.evidence(None, hits)]
    assert [(0.8, None), (0.3, None)] == [(one.keyword, one.similarity) for one in fuse.evidence(hits, None)]


def test_one_strong_sign_says_more_than_two_weak_ones() -> None:
    """Both together are a root mean square: equal ones stay what they are, and nothing is beyond 1."""
    words = fuse.by_key([hit(1, 0.8), hit(2, 0.0), hit(3, 0.3), hit(4, 0.8), hit(5, 1.0)])
    vectors = fuse.by_key([hit(1, 0.6), hit(2, 0.6), hit(3, 0.3), hit(4, 0.0), hit(5, 1.0)])
    scores = {one.key: round(one.score, 3) for one in fuse.evidence(words, vectors)}
    assert {1: 0.666, 2: 0.502, 3: 0.3, 4: 0.438, 5: 1.0} == scores


def test_what_the_text_index_has_not_yet_is_ranked_by_its_vectors() -> None:
    """An entry may be in one index a moment before it is in the other."""
    (only,) = fuse.evidence({}, fuse.by_key([hit(3, 0.6)]))
    assert (0.0, 0.6, 0.502) == (only.keyword, only.similarity, round(only.score, 3))


def test_an_entry_without_vectors_yet_stands_between_near_and_far_ones() -> None:
    """Above one with the same words that is known to be far, below one that is known to be near; never unknown."""
    words = fuse.by_key([hit(1, 0.8), hit(2, 0.8), hit(3, 0.8)])
    vectors = fuse.by_key([hit(1, 0.7), hit(3, 0.1)])
    ranked = fuse.lifted(fuse.evidence(words, vectors), {})
    assert [1, 2, 3] == [one.own.key for one in ranked]
    assert [0.7, None, 0.1] == [one.own.similarity for one in ranked]


@hypothesis.given(own=Shares, fact=Shares)
def test_lifting_stays_within_bounds_and_never_lowers(own: float, fact: float) -> None:
    """An entry's score lies between its own and 1, and is its own where no fact matched."""
    (bare,) = fuse.lifted([scored(1, own)], {})
    (lifted,) = fuse.lifted([scored(1, own)], {1: scored(2, fact, parent=1)})
    assert own == bare.score
    assert own <= lifted.score <= 1


def test_what_is_of_the_time_asked_for_is_lifted() -> None:
    """After facts, by `DATED` and how well it fits; the score stays within bounds, and the others keep theirs."""
    asked = [period.Period(from_us=2, until_us=3)]
    by_key = {one.own.key: one for one in fuse.lifted([scored(1, 0.5), scored(2, 0.5), scored(3, 0.5)], {}, asked)}
    assert [0.0, 1.0, period.LATER_FITS] == [by_key[types.EntryKey(key)].dated for key in (1, 2, 3)]
    assert [0.5, 0.65, 0.575] == [round(by_key[types.EntryKey(key)].score, 6) for key in (1, 2, 3)]
    (sure,) = fuse.lifted([scored(2, 1.0)], {}, asked)
    assert 1 == sure.score


def test_a_fact_of_the_time_asked_for_makes_its_entry_one() -> None:
    """The best fit of the entry and of its facts counts, and a fact is lifted as an entry is."""
    asked = [period.Period(from_us=2, until_us=3)]
    facts = [scored(2, 0.5, parent=1), scored(3, 0.5, parent=1), scored(9, 0.5, parent=8), scored(2, 0.5)]
    days = fuse.dated_by_facts(facts, asked)
    assert {1: 1.0, 8: period.LATER_FITS} == days
    assert [1.0] == [one.dated for one in fuse.lifted([scored(1, 0.5)], {}, asked, days)]
    assert [0.65, 0.575, 0.575] == [round(fuse.dated(one, asked).score, 6) for one in facts[:3]]
    assert {} == fuse.dated_by_facts(facts, [])
    assert facts[0] == fuse.dated(facts[0], [])


@hypothesis.given(st.lists(st.tuples(st.none() | Shares, st.none() | Shares, Shares), min_size=2, max_size=12))
def test_a_score_does_not_depend_on_the_other_hits(given: list[tuple[float | None, float | None, float]]) -> None:
    """Each entry scores alone what it scores in company."""
    words = {key: hit(key, word) for key, (word, _, _) in enumerate(given, 1) if word is not None}
    vectors = {key: hit(key, near) for key, (_, near, _) in enumerate(given, 1) if near is not None}
    facts = {key: scored(100 + key, fact, key) for key, (_, _, fact) in enumerate(given, 1)}
    together = {one.own.key: one.score for one in fuse.lifted(fuse.evidence(words, vectors), facts)}  # type: ignore[arg-type]
    for key, score in together.items():
        own_words = {key: words[key]} if key in words else {}
        own_vectors = {key: vectors[key]} if key in vectors else {}
        (alone,) = fuse.lifted(fuse.evidence(own_words, own_vectors), facts)
        assert score == alone.score


def test_equal_scores_are_ordered_by_key_the_newest_first() -> None:
    """So that the same question has the same answer."""
    ranked = fuse.lifted([scored(2, 0.5), scored(9, 0.5), scored(4, 0.5), scored(1, 0.9)], {})
    assert [1, 9, 4, 2] == [one.own.key for one in ranked]


def test_the_best_fact_of_each_entry_is_found() -> None:
    """One without an entry belongs to none; of equal ones the newest is named."""
    facts = [scored(1, 0.2, 7), scored(2, 0.9, 7), scored(3, 0.9, 7), scored(4, 0.5, 8), scored(5, 1.0, 0)]
    assert {7: 3, 8: 4} == {link: fact.key for link, fact in fuse.best_facts(facts).items()}


@hypothesis.given(
    st.lists(st.tuples(Shares, Shares, Shares), max_size=8),
    st.lists(Shares, min_size=2, max_size=2),
    st.sampled_from(["radius", "min_score"]),
)
def test_a_stricter_bound_never_gives_more(
    given: list[tuple[float, float, float]], bounds: list[float], name: str
) -> None:
    """What stays at a strict bound stays at a looser one, in the same order."""
    words = {types.EntryKey(key): hit(key, word) for key, (word, _, _) in enumerate(given, 1)}
    vectors = {types.EntryKey(key): hit(key, near) for key, (_, near, _) in enumerate(given, 1)}
    facts = {key: scored(100 + key, fact, key) for key, (_, _, fact) in enumerate(given, 1)}
    ranked = fuse.lifted(fuse.evidence(words, vectors), facts)
    loose, strict = (fuse.cut(ranked, **{name: bound}) for bound in sorted(bounds))
    assert strict == [one for one in loose if one in strict]
    assert ranked == fuse.cut(ranked)


def test_an_entry_is_as_near_as_its_nearest_fact() -> None:
    """A radius keeps an Episode whose fact is near, though the Episode as a whole is not."""
    near = fuse.by_key([hit(1, 0.2), hit(2, 0.2)])
    (fact,) = fuse.evidence({}, fuse.by_key([hit(3, 0.9, 1)]))
    ranked = fuse.lifted(fuse.evidence({}, near), {1: fact})
    assert [1] == [one.own.key for one in fuse.cut(ranked, radius=0.5)]
