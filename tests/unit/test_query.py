"""A query and its answer, against a real text index and rows in memory."""

from __future__ import annotations

import asyncio
import datetime as dt
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from everosd import clock, errors, types
from everosd.index import vector, where
from everosd.search import fuse, look, query
from everosd.store import row
from tests import memory_rows, memory_vectors

OWNER, OTHER, AGENT = memory_rows.OWNER, memory_rows.OTHER, memory_rows.AGENT


class StoppedClock(clock.SystemClock):
    """A clock that stands still."""

    def now(self) -> dt.datetime:
        """Return the same moment every time."""
        return clock.from_us(memory_rows.NOW_US)


@pytest.fixture
def store(tmp_path: Path) -> memory_rows.MemoryStore:
    return memory_rows.MemoryStore(tmp_path)


@pytest.fixture
def search(store: memory_rows.MemoryStore) -> query.Search:
    return query.Search(store.rows, store, StoppedClock())


@pytest.fixture
def vectors(tmp_path: Path) -> memory_vectors.MemoryVectors:
    return memory_vectors.MemoryVectors(tmp_path)


@pytest.fixture
def both(store: memory_rows.MemoryStore, vectors: memory_vectors.MemoryVectors) -> query.Search:
    return query.Search(store.rows, store, StoppedClock(), vectors=vectors, queries=vectors, query_timeout_s=1.5)


async def add(store: memory_rows.MemoryStore, *entries: row.EntryRow) -> None:
    """Store entries; the index writes files, which is no work for the loop."""
    await asyncio.to_thread(store.add, *entries)


async def add_both(
    store: memory_rows.MemoryStore, vectors: memory_vectors.MemoryVectors, *entries: row.EntryRow
) -> None:
    """Store entries with their vectors."""
    await add(store, *entries)
    await asyncio.to_thread(vectors.add, *entries)


async def found(search: query.Search, text: str, **fields: object) -> list[int]:
    given: dict[str, object] = {"owner": OWNER, "text": text, "method": "keyword"}
    answer = await search.run(query.Query(**(given | fields)))  # type: ignore[arg-type]  # fields of the struct by name
    return [hit.row.key for hit in answer.episodes]


async def test_X18_a_fresh_root_answers_empty(search: query.Search) -> None:
    """Nothing stored, nothing found, for every method and type of owner."""
    for method in ("keyword", "vector", "hybrid", "agentic", "llm_multiround"):
        for owner in (OWNER, AGENT):
            anything = query.Query(owner=owner, text="anything", method=method, include_profile=True)
            answer = await search.run(anything)
            assert ((), (), (), ()) == (answer.episodes, answer.profiles, answer.agent_cases, answer.agent_skills)


async def test_episodes_and_typed_memories_are_found_best_first(
    store: memory_rows.MemoryStore, search: query.Search
) -> None:
    """Both appear among `episodes`, each with its row and a score that sorts them."""
    both = store.entry("a red kite over the hill", kind="memory", memory_type="semantic")
    one = store.entry("a red bus")
    await add(store, both, one, store.entry("a blue bus"))
    answer = await search.run(query.Query(owner=OWNER, text="red kite", method="keyword"))
    assert [both, one] == [hit.row for hit in answer.episodes]
    assert 1 >= answer.episodes[0].score > answer.episodes[1].score > 0
    assert () == answer.degraded


async def test_X02_fewer_than_asked_for(store: memory_rows.MemoryStore, search: query.Search) -> None:
    """top_k=50 of three, then of one, then of none."""
    entries = [store.entry("word") for _ in range(3)]
    await add(store, *entries)
    assert 3 == len(await found(search, "word", top_k=50))
    await add(store, *(msgspec.structs.replace(one, status="deprecated") for one in entries[:2]))
    assert [3] == await found(search, "word", top_k=50)
    await add(store, msgspec.structs.replace(entries[2], status="archived"))
    assert [] == await found(search, "word", top_k=50)


@pytest.mark.parametrize("top_k", [1, 7, 100, -1])
async def test_top_k_cuts_the_answer(store: memory_rows.MemoryStore, search: query.Search, top_k: int) -> None:
    """-1 means 100."""
    await add(store, *(store.entry(f"word {i}") for i in range(120)))
    assert (100 if top_k == -1 else top_k) == len(await found(search, "word", top_k=top_k))


@pytest.mark.parametrize("text", ["fish days:", "C++ (x", '"open', "-x", "AND", "{0}", ">>>", "*", "f" * 10_000, " "])
async def test_S01_odd_queries_are_answered(store: memory_rows.MemoryStore, search: query.Search, text: str) -> None:
    """A literal match or nothing, never an error."""
    await add(store, store.entry("fish"))
    assert ([1] if "fish" in text else []) == await found(search, text)


async def test_S02_a_part_of_a_chinese_sentence_is_found(store: memory_rows.MemoryStore, search: query.Search) -> None:
    """By keyword alone."""
    await add(store, store.entry("把機器推論洗成權威事實"), store.entry("tantivy你好"))
    assert [1] == await found(search, "權威事實")
    assert [2] == await found(search, "你好")
    assert [2] == await found(search, "tantivy")


async def test_S05_the_filter_chooses_among_all_entries(store: memory_rows.MemoryStore, search: query.Search) -> None:
    """Five old entries among hundreds of better ones are found when the filter asks for them."""
    await add(store, *(store.entry("fish", timestamp_us=100) for _ in range(400)))
    await add(store, *(store.entry(f"fish and many other things {i}", timestamp_us=1) for i in range(5)))
    await add(store, *(store.entry("fish", owner=OTHER) for _ in range(100)))
    assert set(range(401, 406)) == set(await found(search, "fish", top_k=5, filter=where.During(to_us=50)))


async def test_S06_thresholds_act_after_filters_on_absolute_scores(
    store: memory_rows.MemoryStore, search: query.Search
) -> None:
    """min_score keeps exact matches and drops noise; a stricter radius never gives more."""
    await add(
        store, store.entry("Mara bought a red bicycle"), *(store.entry(f"Mara ate soup on day {i}") for i in range(20))
    )
    assert [1] == await found(search, "Mara red bicycle", min_score=0.3)
    counts = [len(await found(search, "Mara red bicycle", radius=step / 10)) for step in range(11)]
    assert sorted(counts, reverse=True) == counts
    assert (21, 0) == (counts[0], counts[10])


async def test_S07_only_active_entries_unless_asked(store: memory_rows.MemoryStore, search: query.Search) -> None:
    """Deprecated, archived and expired entries are found by their status only, expiry to the microsecond."""
    await add(
        store,
        store.entry("word"),
        store.entry("word", status="deprecated", deprecated_by="ep_20260302_00000001"),
        store.entry("word", status="archived"),
        store.entry("word", expires_us=memory_rows.NOW_US),
        store.entry("word", expires_us=memory_rows.NOW_US + 1),
    )
    assert {1, 5} == set(await found(search, "word"))
    assert [2] == await found(search, "word", statuses=("deprecated",))
    assert [4] == await found(search, "word", statuses=("expired",))
    assert {1, 2, 3, 4, 5} == set(await found(search, "word", statuses=("active", "deprecated", "archived", "expired")))


async def test_S07_the_ledger_has_the_last_word(store: memory_rows.MemoryStore, search: query.Search) -> None:
    """What was deprecated, removed or moved to another owner since the index saw it is not shown."""
    entries = [store.entry("word") for _ in range(4)]
    await add(store, *entries)
    store.rows.by_key[1] = msgspec.structs.replace(entries[0], status="deprecated")
    del store.rows.by_key[2]
    store.rows.by_key[3] = msgspec.structs.replace(entries[2], owner=OTHER)
    assert [4] == await found(search, "word")


async def test_M07_every_live_entry_with_the_word_is_a_hit_at_once(
    store: memory_rows.MemoryStore, search: query.Search
) -> None:
    """Also when all have it."""
    for n in range(1, 8):
        await add(store, store.entry(f"Luna and thing {n}"))
        assert set(range(1, n + 1)) == set(await found(search, "Luna"))


async def test_Z03_nothing_widens_the_scope(store: memory_rows.MemoryStore, search: query.Search) -> None:
    """Written as one owner, nothing is found as another, whatever filter and query say."""
    await add(store, store.entry("secret", session_id="s", sender_ids=("u_mara",)))
    await add(store, store.entry("the cat", kind="atomic_fact", entry_id="af_1", parent_id="ep_20260302_00000001"))
    likeness = [
        OTHER,
        msgspec.structs.replace(OWNER, app="other"),
        msgspec.structs.replace(OWNER, project="other"),
        msgspec.structs.replace(OWNER, type="agent"),
        msgspec.structs.replace(OWNER, id="*"),
        msgspec.structs.replace(OWNER, id="u_%"),
    ]
    everything = where.Any(parts=(where.All(), where.Is(field="sender_id", values=("u_mara",))))
    for owner in likeness:
        for text in ("secret", "cat", "u_mara secret", '"u_mara" OR secret'):
            assert [] == await found(search, text, owner=owner, filter=everything, kinds=("episode", "memory"))


async def test_users_never_get_agent_memory_and_the_reverse(
    store: memory_rows.MemoryStore, search: query.Search
) -> None:
    """The type of the owner decides which arrays are filled."""
    case = store.entry("word", kind="agent_case", owner=AGENT)
    skill = store.entry("word", kind="agent_skill", owner=AGENT, entry_id="skill_x")
    memory = store.entry("word", kind="memory", owner=AGENT)
    episode, profile = store.entry("word"), store.entry("word", kind="profile", entry_id="profile_u_mara")
    await add(store, case, skill, memory, episode, profile)
    agent = await search.run(query.Query(owner=AGENT, text="word", include_profile=True))
    assert [memory.key] == [hit.row.key for hit in agent.episodes], "what an agent remembers is typed memory of its own"
    assert () == agent.profiles
    assert ([case], [skill]) == ([hit.row for hit in agent.agent_cases], [hit.row for hit in agent.agent_skills])
    user = await search.run(query.Query(owner=OWNER, text="word", include_profile=True))
    assert ([episode], [profile]) == ([hit.row for hit in user.episodes], [hit.row for hit in user.profiles])
    assert ((), ()) == (user.agent_cases, user.agent_skills)
    named = await search.run(query.Query(owner=AGENT, text="word", kinds=("memory",)))
    assert [memory] == [hit.row for hit in named.episodes]


async def test_profiles_come_only_when_asked_for(store: memory_rows.MemoryStore, search: query.Search) -> None:
    """Also for a blank query."""
    profile = store.entry("likes tea", kind="profile", entry_id="profile_u_mara")
    await add(store, profile)
    assert () == (await search.run(query.Query(owner=OWNER, text="tea"))).profiles
    answer = await search.run(query.Query(owner=OWNER, text=" ", include_profile=True))
    assert [profile] == [hit.row for hit in answer.profiles]


async def fact(store: memory_rows.MemoryStore, body: str, parent: str, **fields: object) -> types.EntryKey:
    made = store.entry(body, kind="atomic_fact", parent_type="episode", parent_id=parent, **fields)
    await add(store, made)
    return made.key


async def test_a_fact_finds_and_lifts_its_episode(store: memory_rows.MemoryStore, search: query.Search) -> None:
    """Of two equal Episodes the one with the matching fact is first; one without the word is found through its fact."""
    await add(store, *(store.entry(f"a visit to the harbour {i}") for i in (1, 2, 3)))
    await fact(store, "the harbour has a lighthouse", "ep_20260302_00000002")
    assert 2 == (await found(search, "harbour"))[0]
    assert [2] == await found(search, "lighthouse")
    assert [] == await found(search, "lighthouse", filter=where.During(to_us=1))
    assert [] == await found(search, "lighthouse", statuses=("deprecated",))


async def test_facts_are_nested_by_hybrid_only(
    store: memory_rows.MemoryStore, vectors: memory_vectors.MemoryVectors, both: query.Search
) -> None:
    """Keyword and vector leave the list empty; a deprecated or foreign fact is never in it."""
    parent = {"kind": "atomic_fact", "parent_type": "episode", "parent_id": "ep_20260302_00000001"}
    own = [
        store.entry("harbour"),
        store.entry("harbour", owner=OTHER),
        store.entry("the harbour has a lighthouse", **parent),
        store.entry("the harbour has a crane", status="deprecated", **parent),
        store.entry("the harbour has a bar", owner=OTHER, **parent),
    ]
    await add_both(store, vectors, *own)
    for method, expected in (("keyword", []), ("vector", []), ("hybrid", [3])):
        answer = await both.run(query.Query(owner=OWNER, text="harbour", method=method))  # type: ignore[arg-type]  # of the literal
        (hit,) = answer.episodes
        assert expected == [one.row.key for one in hit.facts]
        assert all(0 < one.score <= 1 for one in hit.facts)


async def test_hybrid_nests_facts_that_either_search_matched(
    store: memory_rows.MemoryStore, vectors: memory_vectors.MemoryVectors, both: query.Search
) -> None:
    """One by a word that no vector is near to, one by its vector alone; one that is neither is left out."""
    parent = {"kind": "atomic_fact", "parent_type": "episode", "parent_id": "ep_20260302_00000001"}
    entries = [
        store.entry("the harbour"),
        store.entry("harbour " + " ".join(f"other{n}" for n in range(60)), **parent),
        store.entry("of the", **parent),
        store.entry("zebra", **parent),
    ]
    await add_both(store, vectors, *entries)
    answer = await both.run(query.Query(owner=OWNER, text="of the harbour"))
    assert {2, 3} == {fact.row.key for fact in answer.episodes[0].facts}


async def nested(search: query.Search, text: str, **fields: Any) -> dict[int, list[query.Hit]]:
    """Return the facts below each Episode of an answer, by the Episode's key."""
    answer = await search.run(query.Query(owner=OWNER, text=text, **fields))
    return {hit.row.key: list(hit.facts) for hit in answer.episodes}


def a_fact(store: memory_rows.MemoryStore, parent: int, n_words: int, **fields: object) -> row.EntryRow:
    """Return a fact of an Episode that matches `harbour` the better the fewer other words it has."""
    body = " ".join(["harbour", *(f"other{nth}" for nth in range(n_words))])
    named = f"ep_20260302_{parent:08d}"
    return store.entry(body, kind="atomic_fact", parent_type="episode", parent_id=named, **fields)


async def test_weak_facts_of_the_first_episode_do_not_stand_before_good_ones_of_the_next(
    store: memory_rows.MemoryStore, search: query.Search
) -> None:
    """An answer has the best facts of all its Episodes, and the best of each; where one Episode is asked for, all are its own."""
    episodes = [store.entry("harbour"), *(store.entry(f"harbour and word{nth}" * 3) for nth in range(4))]
    first = [a_fact(store, 1, 0), *(a_fact(store, 1, 9) for _ in range(9))]
    good = {parent: [a_fact(store, parent, 1) for _ in range(8)] for parent in (2, 3, 4)}
    weakest = a_fact(store, 5, 12)
    await add(store, *episodes, *first, *(one for some in good.values() for one in some), weakest)
    found = await nested(search, "harbour")
    assert 1 == next(iter(found))
    assert {1: {first[0].key}, 5: {weakest.key}} == {key: {one.row.key for one in found[key]} for key in (1, 5)}
    assert {key: {one.key for one in some} for key, some in good.items()} == {
        key: {one.row.key for one in found[key]} for key in good
    }
    assert look.FACTS_IN_ALL == sum(len(found[key]) for key in (1, 2, 3, 4))
    assert {1: {one.key for one in first}} == {
        key: {one.row.key for one in some} for key, some in (await nested(search, "harbour", top_k=1)).items()
    }
    wider = await nested(search, "harbour", n_facts=34)
    assert {one.key for one in first} == {one.row.key for one in wider[1]}


async def test_what_a_narrative_says_of_the_best_day_stands_before_what_it_says_of_others(
    store: memory_rows.MemoryStore, search: query.Search
) -> None:
    """A fact weighs as much as the best one of its day; the score that sorts says so, and those of the best day keep theirs."""
    noon, day = 43_200_000_000, 86_400_000_000
    await add(store, store.entry("harbour"))
    best = a_fact(store, 1, 0, timestamp_us=noon)
    beside = a_fact(store, 1, 6, timestamp_us=noon)
    alone = a_fact(store, 1, 5, timestamp_us=noon + day)
    await add(store, best, beside, alone)
    (facts,) = (await nested(search, "harbour")).values()
    assert [best.key, beside.key, alone.key] == [one.row.key for one in facts]
    assert sorted((one.score for one in facts), reverse=True) == [one.score for one in facts]
    themselves = await search.run(query.Query(owner=OWNER, text="harbour", kinds=look.FACT_KINDS))
    scores = {hit.row.key: hit.score for hit in themselves.facts}
    assert [best.key, alone.key, beside.key] == list(scores)
    assert [scores[best.key], scores[beside.key]] == [one.score for one in facts[:2]]


async def test_facts_beside_a_good_one_are_shown_before_better_ones_beside_none(
    store: memory_rows.MemoryStore, search: query.Search
) -> None:
    """Where one that answers is, others may answer, too: what stands beside the best fact of the answer goes first."""
    await add(store, store.entry("harbour"), store.entry("harbour and more"))
    best, beside = a_fact(store, 1, 0), [a_fact(store, 1, 6) for _ in range(3)]
    others = [a_fact(store, 2, 5) for _ in range(4)]
    await add(store, best, *beside, *others)
    found = await nested(search, "harbour", n_facts=4)
    assert {one.key for one in (best, *beside)} == {one.row.key for one in found[1]}
    assert 1 == len(found[2])


async def test_ten_facts_of_each_day_of_a_narrative_are_nested(
    store: memory_rows.MemoryStore, search: query.Search
) -> None:
    """A session that matches often shows ten with the scores that they have by themselves, a narrative ten of every day."""
    day = 86_400_000_000
    await add(store, store.entry("harbour"), store.entry("harbour"))
    facts = [a_fact(store, 1, nth) for nth in range(12)]
    facts += [a_fact(store, 2, nth, timestamp_us=of * day) for of in (1, 2) for nth in range(12)]
    await add(store, *facts)
    found = await nested(search, "harbour", n_facts=100)
    assert [one.key for one in facts[:10]] == [one.row.key for one in found[1]]
    assert {one.key for one in facts[12:22] + facts[24:34]} == {one.row.key for one in found[2]}
    themselves = await search.run(query.Query(owner=OWNER, text="harbour", kinds=look.FACT_KINDS))
    scores = {hit.row.key: hit.score for hit in themselves.facts}
    assert [scores[one.row.key] for one in found[1]] == [one.score for one in found[1]]


async def test_words_do_not_wait_while_vectors_are_read_from_the_disk(
    store: memory_rows.MemoryStore,
    vectors: memory_vectors.MemoryVectors,
    both: query.Search,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As many searches by vector as there are threads stand still: one by keyword is answered all the same."""
    await add_both(store, vectors, store.entry("word"))
    n_entered, go = threading.Semaphore(0), threading.Event()
    nearest = vectors.index.search

    def held(*given: Any) -> Any:
        n_entered.release()
        go.wait(10)
        return nearest(*given)

    monkeypatch.setattr(vectors.index, "search", held)
    held_up = [asyncio.create_task(found(both, "word", method="vector")) for _ in range(4)]
    for _ in range(2):
        assert await asyncio.to_thread(n_entered.acquire, timeout=5)
    async with asyncio.timeout(5):
        assert [1] == await found(both, "word", method="keyword")
    go.set()
    assert [[1]] * 4 == await asyncio.gather(*held_up)


@pytest.mark.parametrize("method", ["hybrid", "agentic", "llm_multiround"])
async def test_without_a_model_hybrid_is_answered_by_keyword_and_says_so(
    store: memory_rows.MemoryStore, search: query.Search, method: query.Method
) -> None:
    """The same hits with the same scores as by keyword, and a reason."""
    await add(store, store.entry("word"), store.entry("word and more"))
    answer = await search.run(query.Query(owner=OWNER, text="word", method=method))
    by_keyword = await search.run(query.Query(owner=OWNER, text="word", method="keyword"))
    assert by_keyword.episodes == answer.episodes
    assert (f"{errors.NoVectors()}: {query.BY_KEYWORD}",) == answer.degraded
    assert () == by_keyword.degraded


async def test_M09_without_a_model_a_vector_search_is_refused(
    store: memory_rows.MemoryStore, search: query.Search
) -> None:
    """It never gives keyword results under another name; on an empty root and for a blank query there is nothing to find."""
    assert [] == await found(search, "word", method="vector")
    await add(store, store.entry("word"))
    assert [] == await found(search, " ", method="vector")
    with pytest.raises(errors.NoVectors):
        await found(search, "word", method="vector")


async def test_a_model_that_was_taken_away_is_none_and_one_that_opens_is_on_its_way(
    store: memory_rows.MemoryStore, vectors: memory_vectors.MemoryVectors, both: query.Search
) -> None:
    """What the settings say counts at once; what is only not there yet is worth another try."""
    await add_both(store, vectors, store.entry("word"))
    vectors.is_set_up = False
    assert (f"{errors.NoVectors()}: {query.BY_KEYWORD}",) == (await both.run(asked("word", "hybrid"))).degraded
    both.queries = None
    with pytest.raises(errors.LLMUnavailable, match="being opened"):
        await both.run(asked("word", "vector"))
    both.queries, vectors.is_set_up = vectors, True
    assert () == (await both.run(asked("word", "hybrid"))).degraded


async def test_keyword_search_asks_for_no_vector(
    store: memory_rows.MemoryStore, vectors: memory_vectors.MemoryVectors, both: query.Search
) -> None:
    """A query that is paid for is one that needs it; hybrid waits as long as the settings say, vector as long as it takes."""
    await add_both(store, vectors, store.entry("word"))
    await found(both, "word", method="keyword")
    assert [] == vectors.asked
    await found(both, "word", method="hybrid")
    await found(both, "word", method="vector")
    assert [("word", 1.5), ("word", None)] == vectors.asked


async def test_a_vector_finds_what_no_word_does(
    store: memory_rows.MemoryStore, vectors: memory_vectors.MemoryVectors, both: query.Search
) -> None:
    """Entries whose vectors are near are found by vector and by hybrid, with the similarity as the score by vector."""
    entry = store.entry("entirely other words")
    await add(store, entry, store.entry("noise"))
    await asyncio.to_thread(vectors.add, entry, has_vectors=False)
    near = memory_vectors.embedded(memory_rows.document(entry), ["the lighthouse", "of the pier"])
    await asyncio.to_thread(vectors.index.put, [near])
    assert [] == await found(both, "the lighthouse", method="keyword")
    by_vector = await both.run(query.Query(owner=OWNER, text="the lighthouse", method="vector"))
    by_both = await both.run(query.Query(owner=OWNER, text="the lighthouse"))
    assert [(1, 1.0)] == [(hit.row.key, round(hit.score, 5)) for hit in by_vector.episodes]
    assert [(1, 0.837)] == [(hit.row.key, round(hit.score, 3)) for hit in by_both.episodes]


@pytest.mark.parametrize("method", ["keyword", "vector", "hybrid"])
async def test_entries_of_the_day_that_is_asked_for_come_first(
    store: memory_rows.MemoryStore, vectors: memory_vectors.MemoryVectors, both: query.Search, method: query.Method
) -> None:
    """By their moment, not by their words; among many that match as well, so that it is looked for by itself."""
    day_us = 86_400_000_000
    entries = [
        store.entry("a visit to the harbour" + " again" * i, timestamp_us=memory_rows.NOW_US - i * day_us)
        for i in range(100)
    ]
    await add_both(store, vectors, *entries)
    wanted = entries[90]
    day = clock.from_us(wanted.timestamp_us)
    for said in (f"on {day.day} {day:%B} {day.year}", f"{day:%Y-%m-%d}"):
        (first, *rest) = (await both.run(asked(f"the harbour {said}", method, top_k=5, explains=True))).episodes
        assert wanted.key == first.row.key
        assert first.why is not None
        assert 1.0 == first.why.dated
        assert all(hit.why is not None and hit.why.dated < 1 for hit in rest)


@pytest.mark.parametrize("method", ["keyword", "vector", "hybrid"])
async def test_a_narrative_is_of_the_days_of_its_facts(
    store: memory_rows.MemoryStore, vectors: memory_vectors.MemoryVectors, both: query.Search, method: query.Method
) -> None:
    """It is as old as the last of them: who asks for one before finds it all the same, and what it says of that day first."""
    day_us = 86_400_000_000
    entries = [
        store.entry(f"visits to the harbour {n}", timestamp_us=memory_rows.NOW_US - n * day_us) for n in range(9)
    ]
    parent = {"kind": "atomic_fact", "parent_type": "episode", "parent_id": entries[8].entry_id}
    facts = [
        store.entry("the harbour" + " again" * n, timestamp_us=memory_rows.NOW_US - (8 + n) * day_us, **parent)
        for n in range(60)
    ]
    await add_both(store, vectors, *entries, *facts)
    day = clock.from_us(facts[50].timestamp_us)
    first = (await both.run(asked(f"the harbour on {day:%Y-%m-%d}", method, top_k=5, explains=True))).episodes[0]
    assert entries[8].key == first.row.key
    assert first.why is not None
    assert 1.0 == first.why.dated
    if method == "hybrid":
        assert facts[50].key == first.facts[0].row.key
        assert sorted((fact.score for fact in first.facts), reverse=True) == [fact.score for fact in first.facts]


@pytest.mark.parametrize("method", ["vector", "hybrid"])
async def test_an_answer_is_the_beginning_of_a_longer_one(
    store: memory_rows.MemoryStore, vectors: memory_vectors.MemoryVectors, both: query.Search, method: query.Method
) -> None:
    """Neither scores nor order depend on how many are asked for."""
    words = ["harbour", "lighthouse", "crane", "pier", "gull", "net"]
    bodies = [" ".join([*words[n % 6 :], *words[: n % 3], f"thing{n}"]) for n in range(50)]
    entries = [store.entry(body) for body in bodies]
    parents = [one.entry_id for one in entries[::2]]
    facts = [store.entry(f"the gull {n}", kind="atomic_fact", parent_id=one) for n, one in enumerate(parents)]
    await add_both(store, vectors, *entries, *facts)
    asked = query.Query(owner=OWNER, text="gull on the pier", method=method, top_k=50)
    whole = [(hit.row.key, hit.score) for hit in (await both.run(asked)).episodes]
    for top_k in (1, 5, 20):
        part = await both.run(msgspec.structs.replace(asked, top_k=top_k))
        assert whole[:top_k] == [(hit.row.key, hit.score) for hit in part.episodes]


async def test_S05_by_vector_too_the_filter_chooses_among_all_entries(
    store: memory_rows.MemoryStore, vectors: memory_vectors.MemoryVectors, both: query.Search
) -> None:
    """Five old entries among hundreds of nearer ones, of the owner and of another, are found by every method."""
    await add_both(store, vectors, *(store.entry("fish", timestamp_us=100) for _ in range(300)))
    await add_both(store, vectors, *(store.entry(f"fish and thing {i}", timestamp_us=1) for i in range(5)))
    await add_both(store, vectors, *(store.entry("fish", owner=OTHER) for _ in range(100)))
    for method in ("keyword", "vector", "hybrid"):
        hits = await found(both, "fish", top_k=5, filter=where.During(to_us=50), method=method)
        assert set(range(301, 306)) == set(hits)


@pytest.mark.parametrize("method", ["vector", "hybrid"])
async def test_S06_with_vectors_too_scores_are_absolute(
    store: memory_rows.MemoryStore, vectors: memory_vectors.MemoryVectors, both: query.Search, method: query.Method
) -> None:
    """An exact match stands clearly above noise; both bounds act after the filter, and a stricter one never gives more."""
    exact = store.entry("Mara bought a red bicycle", timestamp_us=5)
    await add_both(store, vectors, exact, *(store.entry(f"soup on day {i}", timestamp_us=1) for i in range(20)))
    asked = query.Query(owner=OWNER, text="Mara bought a red bicycle", method=method)
    scores = [hit.score for hit in (await both.run(asked)).episodes]
    assert scores[0] > 0.7
    assert max(scores[1:], default=0.0) < 0.25
    for bound in ("min_score", "radius"):
        assert [1] == await found(both, asked.text, method=method, **{bound: 0.4})
        assert [] == await found(both, asked.text, method=method, filter=where.During(to_us=2), **{bound: 0.4})
        counts = [len(await found(both, asked.text, method=method, **{bound: step / 10})) for step in range(11)]
        assert sorted(counts, reverse=True) == counts


@pytest.mark.parametrize("method", ["vector", "hybrid"])
async def test_S07_by_vector_too_only_active_entries_unless_asked(
    store: memory_rows.MemoryStore, vectors: memory_vectors.MemoryVectors, both: query.Search, method: query.Method
) -> None:
    """Deprecated, archived and expired entries are found by their status only."""
    await add_both(
        store,
        vectors,
        store.entry("word"),
        store.entry("word", status="deprecated"),
        store.entry("word", status="archived"),
        store.entry("word", expires_us=memory_rows.NOW_US),
    )
    assert [1] == await found(both, "word", method=method)
    assert [2] == await found(both, "word", method=method, statuses=("deprecated",))
    assert [4] == await found(both, "word", method=method, statuses=("expired",))


FAILURES = [
    errors.LLMUnavailable("stub", "it answered 503"),
    errors.LLMRejected("stub", "it gave a vector that is not finite"),
    errors.ConfigError("everos.toml", "embedding.dim", "64 were asked for and 32 came"),
    errors.DerivedIndexError("vectors", "a row is damaged"),
    errors.IndexUnavailable("vectors", "permission denied"),
]


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: type(failure).__name__)
async def test_S10_an_outage_gives_keyword_results_and_says_so(
    store: memory_rows.MemoryStore,
    vectors: memory_vectors.MemoryVectors,
    both: query.Search,
    failure: errors.EverosdError,
) -> None:
    """Hybrid has the hits and scores of a keyword search beside the reason; vector fails with it."""
    await add_both(store, vectors, store.entry("red kite"), store.entry("red bus"))
    expected = [(hit.row.key, hit.score) for hit in (await both.run(asked("red kite", "keyword"))).episodes]
    vectors.failure = failure
    answer = await both.run(asked("red kite", "hybrid"))
    assert expected == [(hit.row.key, hit.score) for hit in answer.episodes]
    assert (f"{failure}: {query.BY_KEYWORD}",) == answer.degraded
    with pytest.raises(type(failure)):
        await both.run(asked("red kite", "vector"))


def asked(text: str, method: query.Method, **fields: object) -> query.Query:
    return query.Query(owner=OWNER, text=text, method=method, **fields)  # type: ignore[arg-type]  # fields by name


async def test_E06_vectors_of_two_widths_are_never_compared(
    store: memory_rows.MemoryStore, vectors: memory_vectors.MemoryVectors, both: query.Search
) -> None:
    """Vector search fails at once and names both widths; hybrid answers by keyword and names them too."""
    await add_both(store, vectors, store.entry("word"))
    vectors.dim = 64
    with pytest.raises(errors.WrongWidth, match=r"64 wide.*256 wide"):
        await found(both, "word", method="vector")
    answer = await both.run(asked("word", "hybrid"))
    assert [1] == [hit.row.key for hit in answer.episodes]
    assert "64" in answer.degraded[0]
    assert "256" in answer.degraded[0]


async def test_what_the_vectors_lack_is_said_where_they_were_asked(
    store: memory_rows.MemoryStore, vectors: memory_vectors.MemoryVectors, both: query.Search
) -> None:
    """Keyword searches lack nothing of it."""
    await add_both(store, vectors, store.entry("word"))
    vectors.lacking = "3 of 10 entries have theirs"
    expected = {"keyword": (), "vector": (vectors.lacking,), "hybrid": (vectors.lacking,)}
    assert expected == {method: (await both.run(asked("word", method))).degraded for method in expected}  # type: ignore[arg-type]


async def test_M09_an_entry_whose_vectors_are_still_to_come_is_found(
    store: memory_rows.MemoryStore, vectors: memory_vectors.MemoryVectors, both: query.Search
) -> None:
    """By hybrid, at once, above what is neither near nor has the words; not by vector."""
    await add_both(store, vectors, *(store.entry(f"noise {n}") for n in range(5)))
    fresh = store.entry("a kestrel hovers")
    await add(store, fresh)
    await asyncio.to_thread(vectors.add, fresh, has_vectors=False)
    assert fresh.key == (await found(both, "kestrel", method="hybrid"))[0]
    assert fresh.key not in await found(both, "kestrel", method="vector")


async def test_a_failing_index_is_looked_at_and_the_other_is_not(
    store: memory_rows.MemoryStore, vectors: memory_vectors.MemoryVectors, both: query.Search
) -> None:
    """A damaged vector index costs hybrid its vectors; a damaged text index costs the answer."""
    await add_both(store, vectors, store.entry("word"))
    broken = vectors.index
    await asyncio.to_thread(broken.close)
    vectors.index = await asyncio.to_thread(vector.VectorIndex, broken.folder)
    await asyncio.to_thread((broken.folder / "vectors.db").write_bytes, b"no database" * 1000)
    answer = await both.run(asked("word", "hybrid"))
    assert [1] == [hit.row.key for hit in answer.episodes]
    assert (0, 1) == (store.n_suspected, vectors.n_suspected)
    assert answer.degraded[0].endswith(query.BY_KEYWORD)


async def test_agents_are_searched_by_vector_too(
    store: memory_rows.MemoryStore, vectors: memory_vectors.MemoryVectors, both: query.Search
) -> None:
    """Cases and skills compete among themselves only."""
    case = store.entry("move the piano", kind="agent_case", owner=AGENT)
    skill = store.entry("move the piano down", kind="agent_skill", owner=AGENT, entry_id="skill_x")
    await add_both(store, vectors, case, skill)
    for method in ("keyword", "vector", "hybrid"):
        answer = await both.run(query.Query(owner=AGENT, text="piano", method=method, top_k=1))
        assert ([case], [skill]) == ([hit.row for hit in answer.agent_cases], [hit.row for hit in answer.agent_skills])


@pytest.mark.parametrize("method", ["keyword", "vector", "hybrid"])
async def test_a_hit_explains_its_score_when_asked(
    store: memory_rows.MemoryStore, vectors: memory_vectors.MemoryVectors, both: query.Search, method: query.Method
) -> None:
    """What is told is what the score was computed from; without being asked nothing is told."""
    entry = store.entry("the harbour")
    fact = store.entry("the harbour has a lighthouse", kind="atomic_fact", parent_id=entry.entry_id)
    await add_both(store, vectors, entry, fact)
    (silent,) = (await both.run(asked("harbour", method))).episodes
    (told,) = (await both.run(asked("harbour", method, explains=True))).episodes
    why = told.why
    assert silent.why is None
    assert why is not None
    assert why.fact is not None
    assert why.own.score + (1 - why.own.score) * fuse.LIFT * why.fact.score == told.score == silent.score
    assert fact == why.fact_row
    assert (method != "vector", method != "keyword") == (why.own.keyword is not None, why.own.similarity is not None)
    assert ("" if method == "vector" else "harbour") == why.question


async def test_near_facts_beyond_the_nearest_hundred_do_not_matter_for_order(
    store: memory_rows.MemoryStore, vectors: memory_vectors.MemoryVectors, both: query.Search
) -> None:
    """An Episode with more matching facts than are asked for is found with the best of them."""
    entry, other = store.entry("about nothing"), store.entry("about nothing else")
    facts = [store.entry(f"gull {n}", kind="atomic_fact", parent_id=entry.entry_id) for n in range(look.N_FACTS + 20)]
    best = store.entry("gull net", kind="atomic_fact", parent_id=other.entry_id)
    await add_both(store, vectors, entry, other, *facts, best)
    assert [other.key, entry.key] == (await found(both, "gull net", method="hybrid"))[:2]


@pytest.mark.parametrize("method", ["hybrid", "vector"])
@pytest.mark.parametrize("n_looks", [1, 2])
async def test_X16_an_index_that_takes_over_during_a_search_answers_it(
    store: memory_rows.MemoryStore,
    vectors: memory_vectors.MemoryVectors,
    monkeypatch: pytest.MonkeyPatch,
    method: query.Method,
    n_looks: int,
) -> None:
    """A rebuild ends while the query is embedded, or just after: no error, nothing is lacking, nothing is suspected."""
    await add_both(store, vectors, store.entry("word"))
    old = vectors.index
    await asyncio.to_thread(old.close)
    fresh = await asyncio.to_thread(vector.VectorIndex, old.folder)
    given = iter([old] * n_looks)
    monkeypatch.delattr(vectors, "index")
    monkeypatch.setattr(memory_vectors.MemoryVectors, "index", property(lambda _: next(given, fresh)), raising=False)
    answer = await query.Search(store.rows, store, StoppedClock(), vectors, vectors).run(asked("word", method))
    assert ([1], ()) == ([hit.row.key for hit in answer.episodes], answer.degraded)
    assert (0, 0) == (store.n_suspected, vectors.n_suspected)
