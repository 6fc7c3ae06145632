"""Clustering over a real root, a real vector index and a provider whose vectors are near where words are shared."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime as dt
import shutil
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import hypothesis
import msgspec
import numpy as np
import pytest
from hypothesis import strategies as st
from numpy.typing import NDArray

from everosd import clock, config, daemon, errors, types
from everosd.cascade import verify
from everosd.engine import strategy
from everosd.intake import centroid, cluster
from everosd.log import entry as entries
from everosd.store import cluster as clusters
from tests import embedding_stub, fast_clock

MARA = types.Owner(app="default", project="default", type="user", id="mara")
HELPER = types.Owner(app="default", project="default", type="agent", id="helper")
LOGS = "default_app/default_project/users/mara/.clusters"
GARDEN = "walnut tree beside the old garden wall"
VIOLIN = "violin concert tickets sold quickly yesterday evening"
SETTINGS = config.Clustering(threshold=0.5, time_window_days=7)
SPACE = types.Space(model="test", dim=8)


@pytest.fixture
def stub() -> Iterator[embedding_stub.EmbeddingStub]:
    """A provider."""
    with embedding_stub.EmbeddingStub(dim=256) as served:
        yield served


@dataclasses.dataclass(kw_only=True)
class Place:
    """An open root with clustering over it."""

    root: Path
    node: daemon.Node
    clustering: cluster.Clustering
    emitted: list[strategy.Event]

    async def write(self, text: str, day: int = 1, owner: types.Owner = MARA) -> str:
        """Write an Episode of a day of March, or a case of an agent; return its id."""
        fields = {"timestamp": dt.datetime(2026, 3, day, 12, tzinfo=dt.UTC).isoformat()}
        kind, section = ("episode", "Content") if owner.type == "user" else ("agent_case", "Approach")
        draft = entries.Draft(fields=fields, sections=((section, text),))
        return (await self.node.cascade.writer.append(owner, kind, [draft], date="2026-03-02"))[0]

    async def run(self, entry_id: str, owner: types.Owner = MARA, origin: str = "") -> str:
        """Cluster an entry as the engine does: again, while the model has not come to it."""
        topic: strategy.Topic = "episode_written" if owner.type == "user" else "case_written"
        event = strategy.Event(topic=topic, owner=owner, subject=entry_id, origin=origin)
        async with asyncio.timeout(20):
            while True:
                with contextlib.suppress(errors.LLMUnavailable):
                    return await self.clustering.run(event)
                await asyncio.sleep(0.02)

    async def put(self, text: str, day: int = 1, owner: types.Owner = MARA) -> str:
        """Write and cluster; return the cluster."""
        entry_id = await self.write(text, day, owner)
        await self.run(entry_id, owner)
        return await self.of(entry_id, owner) or ""

    async def of(self, entry_id: str, owner: types.Owner = MARA) -> str | None:
        """Return the cluster of an entry."""
        return await clusters.cluster_of(self.node.reader, owner, entry_id)

    async def caught_up(self) -> None:
        """Wait until what was done to files by hand is known."""
        await self.node.cascade.reconcile("test")
        await self.node.cascade.settled(20.0)

    def log(self) -> Path:
        """Return the log of clusters."""
        return next((self.root / LOGS).iterdir())


@contextlib.asynccontextmanager
async def opened(
    root: Path, stub: embedding_stub.EmbeddingStub | None, model: str = "stub", time: clock.Clock | None = None
) -> AsyncIterator[Place]:
    """Open a root with vectors of the stub, or none, as the daemon does."""
    section = (
        '[embedding]\nmodel = "none"\n'
        if stub is None
        else f'[embedding]\nmodel = "{model}"\nbase_url = "{stub.url}"\nmax_retries = 0\n'
    )
    (root / config.FILE_NAME).write_text(section)
    settings = await asyncio.to_thread(config.load, root, {})
    parts = daemon.open_parts(settings, clock.SystemClock(), has_vectors=True)
    async with parts as node, daemon.loops(node, is_watching=True):
        emitted: list[strategy.Event] = []
        embedding = None if node.meaning is None else node.meaning.embedding
        clustering = cluster.Clustering(
            node.reader, node.cascade.writer, embedding, lambda: SETTINGS, emitted.append, time or clock.SystemClock()
        )
        yield Place(root=root, node=node, clustering=clustering, emitted=emitted)


async def test_an_entry_joins_what_it_is_like_and_else_begins_a_cluster(
    tmp_path: Path, stub: embedding_stub.EmbeddingStub
) -> None:
    """Texts that share most words become one cluster, others one of their own; each is told of once, with its origin."""
    async with opened(tmp_path, stub) as place:
        first = await place.write(GARDEN)
        assert (await place.run(first, origin="mc_1")).startswith("began cl_")
        garden = await place.of(first)
        event = strategy.Event(topic="episode_clustered", owner=MARA, subject=first, origin="mc_1")
        assert [event] == place.emitted
        assert garden != await place.put(VIOLIN)
        like = await place.write(f"{GARDEN} again", 3)
        assert (await place.run(like)).startswith(f"joined {garden} at 0.")
        rows = await place.node.reader.page(MARA, "cluster", now_us=0, sort_by="updated_at", limit=1)
        row = rows[0][0].raw
        for field in ("event**: joined", f"cluster_id**: {garden}", f"member_id**: {like}", "member_type**: episode"):
            assert field in row
        members = await clusters.members(place.node.reader, MARA, garden or "")
        assert [first, like] == [each.entry_id for each in members]
        assert ["", f"{float(members[1].similarity):.4f}"] == [each.similarity for each in members]


async def test_cases_are_clustered_alike_and_once(tmp_path: Path, stub: embedding_stub.EmbeddingStub) -> None:
    """Cases become clusters of their agent; a second event about one, as after a crash, writes nothing and tells the same."""
    async with opened(tmp_path, stub) as place:
        entry_id = await place.write(GARDEN, owner=HELPER)
        await place.run(entry_id, HELPER)
        known = await place.of(entry_id, HELPER)
        assert f"in {known} already" == await place.run(entry_id, HELPER)
        assert [strategy.Event(topic="case_clustered", owner=HELPER, subject=entry_id)] * 2 == place.emitted
        assert 1 == (await place.node.reader.page(HELPER, "cluster", now_us=0, limit=9))[1]
        assert known == await place.put(GARDEN, 2, HELPER)
        assert known != await place.put(GARDEN)


async def test_a_cluster_is_of_its_time(tmp_path: Path, stub: embedding_stub.EmbeddingStub) -> None:
    """An entry joins while the newest member is at most the window away, earlier or later, and not beyond."""
    async with opened(tmp_path, stub) as place:
        first = await place.put(GARDEN, 10)
        assert first == await place.put(GARDEN, 3)
        assert first != await place.put(GARDEN, 2)
        assert first == await place.put(GARDEN, 17)
        assert first not in [await place.put(GARDEN, 9), ""]


async def test_what_people_do_to_members_is_heeded(tmp_path: Path, stub: embedding_stub.EmbeddingStub) -> None:
    """A member that is moved, or whose text is another by now, takes its meaning along; one that is deleted counts no more."""
    async with opened(tmp_path, stub) as place:
        garden, violin = await place.put(GARDEN), await place.put(VIOLIN)
        text = place.log().read_text().replace(garden, "cl_000000000001")
        place.log().write_text(text)
        await place.caught_up()
        assert "cl_000000000001" == await place.put(GARDEN)
        path = place.root / "default_app/default_project/users/mara/episodes/episode-2026-03-02.md"
        path.write_text(path.read_text().replace(VIOLIN, "sourdough bread needs flour water salt"))
        await place.caught_up()
        assert violin == await place.put("sourdough bread needs flour water salt")
        aside = place.root / "aside.txt"
        path.rename(aside)
        await place.caught_up()
        await _gone(place, violin)
        again = await place.put(VIOLIN)
        assert again not in (violin, "cl_000000000001")
        path.with_name("put back.md").write_text(aside.read_text())
        await place.caught_up()
        assert violin == await place.put("sourdough bread needs flour water salt and time")


async def _gone(place: Place, cluster_id: str) -> None:
    async with asyncio.timeout(20):
        while await clusters.members(place.node.reader, MARA, cluster_id):  # noqa: ASYNC110  # of a table
            await asyncio.sleep(0.05)


async def test_M10_memberships_survive_the_index(tmp_path: Path, stub: embedding_stub.EmbeddingStub) -> None:
    """Without `.index/` the log says the same; a membership that the log does not have is found by verify."""
    async with opened(tmp_path, stub) as place:
        first = await place.put(GARDEN)
        await place.put(VIOLIN)
    shutil.rmtree(tmp_path / ".index")
    async with opened(tmp_path, stub) as place:
        await place.caught_up()
        assert first == await place.put(GARDEN, 2)
        assert (await verify.verify(place.node.cascade)).is_clean
        await place.node.database.write(
            lambda connection: connection.execute(
                "UPDATE cluster_members SET cluster_id = 'cl_x' WHERE cluster_id = ?", (first,)
            )
        )
        report = await verify.verify(place.node.cascade)
        said = "in cluster_members of user mara (default/default): cluster_id"
        assert [("differs", said)] * 2 == [(each.what, each.detail) for each in report.differences]
        assert report.digest_live != report.digest_disk


async def test_without_its_vector_an_entry_waits(tmp_path: Path, stub: embedding_stub.EmbeddingStub) -> None:
    """While the model is away the strategy is asked to come again; nothing is written, nothing told, and nothing lost."""
    stub.stop()
    async with opened(tmp_path, stub) as place:
        entry_id = await place.write(GARDEN)
        event = strategy.Event(topic="episode_written", owner=MARA, subject=entry_id)
        with pytest.raises(errors.LLMUnavailable):
            await place.clustering.run(event)
        assert ([], None) == (place.emitted, await place.of(entry_id))
        stub.start()
        await place.run(entry_id)
        assert await place.of(entry_id) is not None


async def test_a_text_that_the_model_refuses_is_not_waited_for(
    tmp_path: Path, stub: embedding_stub.EmbeddingStub
) -> None:
    """An entry that gets no vector is in no cluster, and what follows from it happens; so it is with one without text."""
    stub.rejected = "walnut"
    async with opened(tmp_path, stub) as place:
        assert "the embedding model refuses its text" == await place.run(await place.write(GARDEN))
        assert "it has no text" == await place.run(await place.write(""))
        assert ["episode_clustered"] * 2 == [each.topic for each in place.emitted]
        assert not (place.root / LOGS).exists()


async def test_without_a_model_nothing_is_clustered_and_nothing_fails(tmp_path: Path) -> None:
    """With vectors turned off the run says so, and the profile hears of the Episode all the same."""
    async with opened(tmp_path, None) as place:
        entry_id = await place.write(GARDEN)
        assert "no vectors are made: nothing is clustered" == await place.run(entry_id)
        case_id = await place.write(GARDEN, owner=HELPER)
        assert "no vectors are made: nothing is clustered" == await place.run(case_id, HELPER)
        assert [("episode_clustered", entry_id)] == [(each.topic, each.subject) for each in place.emitted]


async def test_another_model_finds_the_clusters_again(tmp_path: Path, stub: embedding_stub.EmbeddingStub) -> None:
    """Once members have vectors of the new model, entries join the clusters that there were."""
    async with opened(tmp_path, stub) as place:
        garden, violin = await place.put(GARDEN), await place.put(VIOLIN)
        assert place.node.meaning is not None
        place.node.meaning.change(msgspec.structs.replace(place.node.config.embedding, model="other"))
        assert garden == await place.put(GARDEN, 2)
        assert violin == await place.put(VIOLIN, 2)
        models = {each.model for each in stub.asked}
        assert {"stub", "other"} == models


async def test_an_entry_that_is_gone_is_let_go(tmp_path: Path) -> None:
    """What the ledger does not hear of for a minute is waited for no longer, and nothing is told of it."""
    async with opened(tmp_path, None, time=fast_clock.FastClock(2_000)) as place:
        assert "the entry is not there any more" == await place.run("ep_20260302_00000009")
        assert [] == place.emitted


async def test_of_those_that_wait_the_oldest_is_next() -> None:
    """Entries of one owner go one at a time, in the order of their moments; other owners do not wait."""
    turns = cluster._Turns()
    order: list[int] = []
    gate = asyncio.Event()

    async def go(owner: types.Owner, at_us: int) -> None:
        async with turns.of(owner, at_us):
            if at_us == 5:
                await gate.wait()
            order.append(at_us)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(go(MARA, 5))
        await asyncio.sleep(0)
        cancelled = tasks.create_task(go(MARA, 1))
        for at_us in (4, 2, 3):
            tasks.create_task(go(MARA, at_us))
        await asyncio.sleep(0)
        cancelled.cancel()
        await tasks.create_task(go(HELPER, 9))
        gate.set()
    assert [9, 5, 2, 3, 4] == order
    assert {} == turns._waiting


# -- centroids ---------------------------------------------------------------------------------------------------------


def member(number: int, where: str) -> clusters.Member:
    return clusters.Member(
        key=types.EntryKey(number),
        entry_id=f"ep_{number}",
        member_type="episode",
        cluster_id=where,
        similarity="",
        added_us=0,
        timestamp_us=number * 10,
        status="active",
    )


def drawn(number: int) -> NDArray[np.float32]:
    vectors = np.random.default_rng(number).standard_normal((1 + number % 2, SPACE.dim)).astype(np.float32)
    made: NDArray[np.float32] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return made


def of(numbers: Sequence[int]) -> dict[types.EntryKey, NDArray[np.float32]]:
    return {types.EntryKey(number): drawn(number) for number in numbers if number % 5}


@hypothesis.given(st.lists(st.dictionaries(st.integers(1, 12), st.sampled_from("abcd"), max_size=8), max_size=5))
@hypothesis.settings(max_examples=15, deadline=None)
def test_centroids_are_the_means_of_their_members_whatever_happened_before(states: list[dict[int, str]]) -> None:
    """Clusters that gain, lose and swap members one after the other are as near as if they were made at once."""
    kept = centroid.Centroids(SPACE)
    now: dict[int, str] = {}
    for state in states:
        for number, where in state.items():
            if number not in now:
                kept.add(member(number, where), of([number]))
        stale = {now[n] for n in now if state.get(n) != now[n]} | {state[n] for n in state if state[n] != now.get(n)}
        now = state
        for where in sorted(stale):
            part = [member(number, where) for number in sorted(now) if now[number] == where]
            kept.put(where, part, of(sorted(now)))
    made = centroid.Centroids(SPACE)
    made.load([member(number, where) for number, where in now.items()], of(sorted(now)))
    assert set(now.values()) == {where for where in "abcd" if where in kept}
    assert (made.cluster_of, made.lacking) == (kept.cluster_of, kept.lacking)
    for seed in range(20, 26):
        asked = centroid.of_entry(drawn(seed))
        for window in (30, 1_000):
            one, other = (each.nearest(asked, 60, window, -1.0) for each in (made, kept))
            assert (one is None) == (other is None)
            assert kept.is_lacking(60, window) == made.is_lacking(60, window)
            if one is not None and other is not None:
                assert one.similarity == pytest.approx(other.similarity, abs=1e-4)


def test_the_nearest_of_many_is_the_nearest() -> None:
    """Of 2,000 clusters the one is found that a comparison with each finds; what is too far away or too old is not."""
    vectors = {types.EntryKey(n): drawn(n) for n in range(2_000)}
    made = centroid.Centroids(SPACE)
    made.load([member(n, f"cl_{n:05}") for n in range(2_000)], vectors)
    asked = centroid.of_entry(drawn(5_000))
    similarities = [float(centroid.of_entry(vectors[types.EntryKey(n)]) @ asked) for n in range(2_000)]
    best = int(np.argmax(similarities))
    found = made.nearest(asked, best * 10, 10**9, 0.5)
    assert found is not None
    assert f"cl_{best:05}" == found.cluster_id
    assert similarities[best] == pytest.approx(found.similarity, abs=1e-5)
    assert made.nearest(asked, best * 10, 10**9, 0.9999) is None
    in_time = made.nearest(asked, 5_000, 100, -1.0)
    assert in_time is not None
    assert f"cl_{490 + int(np.argmax(similarities[490:511])):05}" == in_time.cluster_id
    assert made.nearest(asked, 10**9, 100, -1.0) is None
