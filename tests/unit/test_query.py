"""A query and its answer, against a real text index and rows in memory."""

from __future__ import annotations

import asyncio
import datetime as dt
from pathlib import Path

import msgspec
import pytest

from everosd import clock, types
from everosd.index import contract, where
from everosd.search import query, rank
from everosd.store import row
from tests import memory_rows

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


async def add(store: memory_rows.MemoryStore, *entries: row.EntryRow) -> None:
    """Store entries; the index writes files, which is no work for the loop."""
    await asyncio.to_thread(store.add, *entries)


async def found(search: query.Search, text: str, **fields: object) -> list[int]:
    given: dict[str, object] = {"owner": OWNER, "text": text, "method": "keyword"}
    answer = await search.run(query.Query(**(given | fields)))  # type: ignore[arg-type]  # fields of the struct by name
    return [hit.row.key for hit in answer.episodes]


async def test_X18_a_fresh_root_answers_empty(search: query.Search) -> None:
    """Nothing stored, nothing found, for every method and type of owner."""
    for method in ("keyword", "vector", "hybrid", "agentic", "llm_multiround"):
        for owner in (OWNER, AGENT):
            asked = query.Query(owner=owner, text="anything", method=method, include_profile=True)
            answer = await search.run(asked)
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
    assert ((), ()) == (agent.episodes, agent.profiles)
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


async def test_facts_are_nested_by_hybrid_only(store: memory_rows.MemoryStore, search: query.Search) -> None:
    """Keyword and vector leave the list empty; a deprecated or foreign fact is never in it."""
    await add(store, store.entry("harbour"), store.entry("harbour", owner=OTHER))
    own = await fact(store, "the harbour has a lighthouse", "ep_20260302_00000001")
    await fact(store, "the harbour has a crane", "ep_20260302_00000001", status="deprecated")
    await fact(store, "the harbour has a bar", "ep_20260302_00000001", owner=OTHER)
    for method, expected in (("keyword", []), ("vector", []), ("hybrid", [own])):
        answer = await search.run(query.Query(owner=OWNER, text="harbour", method=method))  # type: ignore[arg-type]  # of the literal
        (hit,) = answer.episodes
        assert expected == [one.row.key for one in hit.facts]
        assert all(0 < one.score <= 1 for one in hit.facts)


async def test_methods_that_need_vectors_say_that_they_were_answered_without(
    store: memory_rows.MemoryStore, search: query.Search
) -> None:
    """The same hits as by keyword, and a reason."""
    await add(store, store.entry("word"))
    for method in ("vector", "hybrid", "agentic", "llm_multiround"):
        answer = await search.run(query.Query(owner=OWNER, text="word", method=method))
        assert [1] == [hit.row.key for hit in answer.episodes]
        assert (query.NO_VECTORS,) == answer.degraded


def test_lifting_stays_within_bounds_and_never_lowers() -> None:
    """An Episode's score lies between its own and 1, and is its own where no fact matched."""
    hits = [contract.Hit(key=types.EntryKey(n), score=n / 10, own_link=n, parent_link=0) for n in range(11)]
    ranked = rank.lifted(hits, dict.fromkeys(range(0, 11, 2), 1.0))
    assert all(one.key / 10 <= one.score <= 1 for one in ranked)
    assert all((one.key / 10 == one.score) == (one.key % 2 == 1 or one.key == 10) for one in ranked)
    assert sorted(ranked, key=lambda one: -one.score) == ranked
