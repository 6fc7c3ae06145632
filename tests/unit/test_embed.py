"""Embedding over a real root, a real vector index and a provider that does as it is told."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import shutil
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest

from everosd import clock, config, daemon, errors, types
from everosd.cascade import embed, rebuild
from everosd.index import slab, vector
from everosd.models import cache
from everosd.models import embed as models
from everosd.search import query
from tests import embedding_stub
from tests.unit import test_cascade as unit

root = unit.root

TEXTS = ("the cat sleeps on the radiator", "an invoice must be paid by friday", "fog on the mountain all day")


@pytest.fixture
def stub() -> Iterator[embedding_stub.EmbeddingStub]:
    """A provider."""
    with embedding_stub.EmbeddingStub() as served:
        yield served


def write(root: Path, texts: tuple[str, ...] = TEXTS) -> None:
    """Write one entry per day."""
    for n, text in enumerate(texts, start=1):
        unit.file(root, day=f"2026-03-{n:02}").write_text(unit.entry(1, text, f"202603{n:02}"))


@contextlib.asynccontextmanager
async def opened(
    root: Path, stub: embedding_stub.EmbeddingStub, model: str = "stub", more: str = ""
) -> AsyncIterator[daemon.Node]:
    """Open the root with vectors of the stub; everything on disk is searchable by keyword."""
    section = f'[embedding]\nmodel = "{model}"\nbase_url = "{stub.url}"\nmax_retries = 0\ntimeout_seconds = 5\n{more}'
    (root / config.FILE_NAME).write_text(section)
    settings = await asyncio.to_thread(config.load, root, {})
    async with daemon.open_node(settings, clock.SystemClock(), has_vectors=True) as node:
        await unit.caught_up(node)
        yield node


async def embedded(node: daemon.Node, n: int, model: str = "stub") -> None:
    """Wait until `n` entries have vectors of the model and none is owed."""
    await unit.until(lambda: has(node, n, model))


def has(node: daemon.Node, n: int, model: str = "stub") -> bool:
    """Return whether `n` entries have vectors of the model, none is owed, and a query would be embedded."""
    now = node.cascade.status().embedding
    if now is None or node.search.queries is None or not now.dim or now.model.split(" ")[0] != model:
        return False
    return node.cascade.pending() == 0 and node.cascade.status().projections["vectors"].documents - now.refused == n


def paid(stub: embedding_stub.EmbeddingStub) -> list[str]:
    """Return the texts of entries that vectors were given for."""
    queries = ("probe", embed.NEUTRAL, "mountain fog", "paid invoice", "cat on a radiator", "violin concert")
    return [text for text in stub.texts if text not in queries]


def reason(node: daemon.Node) -> str:
    """Return why the model does not answer; empty: it does."""
    now = node.cascade.status().embedding
    return "" if now is None else now.error


async def nearest(node: daemon.Node, text: str, method: query.Method = "vector") -> str:
    """Return the id of the best hit."""
    answer = await node.search.run(query.Query(owner=unit.owner(), text=text, method=method, top_k=1))
    return answer.episodes[0].row.entry_id if answer.episodes else ""


async def test_W23_both_legs_see_an_edit(root: Path, stub: embedding_stub.EmbeddingStub) -> None:
    """A hand edit to another topic is found by keyword and by vector, and only it is embedded."""
    write(root)
    async with opened(root, stub) as node:
        await embedded(node, 3)
        assert "ep_20260301_00000001" == await nearest(node, "cat on a radiator")
        assert 3 == len(paid(stub))
        unit.file(root, day="2026-03-01").write_text(unit.entry(1, "a violin concert in the park", "20260301"))
        await unit.caught_up(node)
        assert ["ep_20260301_00000001"] == await unit.found(node, "violin")
        await unit.until(lambda: len(paid(stub)) == 4)
        await embedded(node, 3)
        assert "ep_20260301_00000001" == await nearest(node, "violin concert")


async def test_X13_O15_a_restart_pays_for_nothing_again(root: Path, stub: embedding_stub.EmbeddingStub) -> None:
    """Five restarts, each with a comparison of the whole root: every text was embedded once, searches answer at once."""
    write(root)
    for _ in range(5):
        async with opened(root, stub) as node:
            await embedded(node, 3)
            assert "ep_20260302_00000001" == await nearest(node, "paid invoice")
    assert sorted(TEXTS) == sorted(paid(stub))
    assert 1 == stub.texts.count("probe")


@pytest.mark.parametrize("gone", [".index", ".index/vectors", ".cache"])
async def test_E02_what_is_derived_is_made_again_without_paying_twice(
    root: Path, stub: embedding_stub.EmbeddingStub, gone: str
) -> None:
    """The index comes back from the cache; without the cache the index still stands."""
    write(root)
    async with opened(root, stub) as node:
        await embedded(node, 3)
    shutil.rmtree(root / gone)
    async with opened(root, stub) as node:
        await embedded(node, 3)
        assert "ep_20260303_00000001" == await nearest(node, "mountain fog")
    assert 3 == len(paid(stub))


async def test_a_narratives_fact_has_the_vector_of_its_sources(root: Path, stub: embedding_stub.EmbeddingStub) -> None:
    """The day behind it is no part of what it means: word by word the same statement is embedded once."""
    folder = unit.file(root).parent.with_name(".atomic_facts")
    folder.mkdir()
    facts = (
        "Mara: the cat sleeps",
        "Mara: the cat sleeps (2026-03-02)",
        "(2026-03-02)",
        "Mara: born (2026-03-02) in Rome",
    )
    (folder / "atomic_fact-2026-03-02.md").write_text(
        "".join(
            f"<!-- entry:af_20260302_{nth:08} -->\n## af_20260302_{nth:08}\n\n### Fact\n{fact}\n"
            f"<!-- /entry:af_20260302_{nth:08} -->\n"
            for nth, fact in enumerate(facts, start=1)
        )
    )
    write(root, (facts[1],))
    async with opened(root, stub) as node:
        await embedded(node, 5)
        assert sorted({*facts}) == sorted(paid(stub))  # that of the Episode with its day: an Episode says what it says


async def test_X16_a_rebuild_pays_for_nothing(root: Path, stub: embedding_stub.EmbeddingStub) -> None:
    """The new generation has its vectors before it takes over: searches by vector go on throughout."""
    write(root)
    async with opened(root, stub) as node:
        await embedded(node, 3)
        assert "ep_20260303_00000001" == await nearest(node, "mountain fog")
        work = asyncio.create_task(rebuild.rebuild(node.cascade))
        while not work.done():
            assert "ep_20260303_00000001" == await nearest(node, "mountain fog")
            await asyncio.sleep(0.005)
        await work
        await embedded(node, 3)
        assert "ep_20260303_00000001" == await nearest(node, "mountain fog")
    assert 3 == len(paid(stub))


async def test_E01_another_model_embeds_anew_and_the_way_back_is_free(
    root: Path, stub: embedding_stub.EmbeddingStub
) -> None:
    """Model A, then B of the same width: nothing of A is compared with B; back at A, its vectors are still there."""
    write(root)
    for model, n_paid in (("a", 3), ("b", 6), ("a", 6)):
        async with opened(root, stub, model) as node:
            await embedded(node, 3, model)
            assert n_paid == len(paid(stub))


async def test_E02_another_width_embeds_anew_beside_keyword_search(
    root: Path, stub: embedding_stub.EmbeddingStub
) -> None:
    """768, 1024, 768: each start serves keywords at once, and vectors once they are made."""
    write(root)
    for dim in (768, 1024, 768):
        async with opened(root, stub, more=f"dim = {dim}\n") as node:
            assert ["ep_20260301_00000001"] == await unit.found(node, "radiator")
            await embedded(node, 3)
            assert "ep_20260303_00000001" == await nearest(node, "mountain fog")


async def test_E02_a_provider_that_is_down_at_the_start_changes_nothing(
    root: Path, stub: embedding_stub.EmbeddingStub
) -> None:
    """Down at the start with another model named: old vectors stay on disk, keywords serve, then all is embedded."""
    write(root)
    async with opened(root, stub, "a") as node:
        await embedded(node, 3, "a")
    stub.stop()
    async with opened(root, stub, "b") as node:
        assert ["ep_20260301_00000001"] == await unit.found(node, "radiator")
        await unit.until(lambda: bool(reason(node)))
    stub.start()
    async with opened(root, stub, "a") as node:
        await embedded(node, 3, "a")
    assert 3 == len(paid(stub))
    stub.stop()
    async with opened(root, stub, "b") as node:
        await unit.until(lambda: bool(reason(node)))
        stub.start()
        await embedded(node, 3, "b")
    assert 6 == len(paid(stub))


async def test_W26_a_text_that_the_provider_fails_on_is_set_apart(
    root: Path, stub: embedding_stub.EmbeddingStub
) -> None:
    """One of three entries is refused: the others and a later edit are embedded, the bad one is listed with its place."""
    stub.rejected = "invoice"
    write(root)
    async with opened(root, stub) as node:
        await embedded(node, 2)
        assert "ep_20260301_00000001" == await nearest(node, "cat radiator")
        now = node.cascade.status()
        assert ["unembedded"] == [one.kind for one in now.problems]
        assert now.problems[0].path.endswith("episode-2026-03-02.md")
        assert (0, 1) == (now.pending, now.failed_permanent)
        unit.file(root, day="2026-03-03").write_text(unit.entry(1, "a violin concert", "20260303"))
        await unit.caught_up(node)
        await unit.until(lambda: "a violin concert" in stub.texts)
        stub.rejected = ""
        unit.file(root, day="2026-03-02").write_text(unit.entry(1, "an invoice, paid at last", "20260302"))
        await unit.caught_up(node)
        await embedded(node, 3)
        assert () == node.cascade.status().problems


async def test_E04_one_text_beyond_the_providers_limit_does_not_sink_its_file(
    root: Path, stub: embedding_stub.EmbeddingStub
) -> None:
    """36 KB of Chinese in one line beside short entries, a provider that takes few and short texts: the tail is found."""
    stub.max_inputs, stub.max_chars = 4, 200
    long = "".join(chr(0x4E00 + n % 2000) for n in range(12_000)) + "機器推論"
    text = "".join(unit.entry(n, TEXTS[n - 1]) for n in (1, 2, 3)) + unit.entry(4, long)
    unit.file(root).write_text(text)
    async with opened(root, stub) as node:
        await embedded(node, 4)
        assert "ep_20260302_00000004" == await nearest(node, "機器推論")
        assert "ep_20260302_00000003" == await nearest(node, "mountain fog")


async def test_M09_S10_an_outage_costs_the_vectors_alone(root: Path, stub: embedding_stub.EmbeddingStub) -> None:
    """Provider down, an edit: keyword and hybrid find it, hybrid says why it is less, vector refuses, then all is well."""
    write(root)
    async with opened(root, stub) as node:
        await embedded(node, 3)
        stub.status = 503
        unit.file(root, day="2026-03-01").write_text(unit.entry(1, "a violin concert in the park", "20260301"))
        await unit.caught_up(node)
        assert ["ep_20260301_00000001"] == await unit.found(node, "violin")
        answer = await node.search.run(query.Query(owner=unit.owner(), text="violin", method="hybrid"))
        assert ["ep_20260301_00000001"] == [hit.row.entry_id for hit in answer.episodes]
        assert answer.degraded
        with pytest.raises(errors.LLMUnavailable):
            await nearest(node, "violin")
        await unit.until(lambda: bool(reason(node)) and node.cascade.pending() == 1)
        stub.status = 200
        await embedded(node, 3)
        await unit.until(lambda: not reason(node))
        assert 0 == node.cascade.pending()


async def test_what_has_just_come_is_not_said_to_stand_still(root: Path, stub: embedding_stub.EmbeddingStub) -> None:
    """How long nothing has moved counts from the edit that the provider fails on, not from the last one it took."""
    write(root)
    async with opened(root, stub) as node:
        await embedded(node, 3)
        assert node.meaning is not None
        await unit.until(lambda: bool(node.meaning and node.meaning.embedding._owed_nothing))
        node.meaning.embedding._progressed_s -= 3600
        stub.status = 503
        unit.file(root, day="2026-03-01").write_text(unit.entry(1, "a violin concert in the park", "20260301"))
        await unit.caught_up(node)
        await unit.until(lambda: bool(reason(node)))
        vectors = node.cascade.status().projections["vectors"]
        assert 1 == vectors.behind
        assert vectors.age_s < 60
        node.meaning.embedding._progressed_s -= 3600
        unit.file(root, day="2026-03-02").write_text(unit.entry(1, "a cat on the radiator", "20260302"))
        await unit.caught_up(node)
        await unit.until(lambda: 2 == node.cascade.status().projections["vectors"].behind)
        assert node.cascade.status().projections["vectors"].age_s > 3600


async def test_an_edit_is_embedded_before_the_backlog(root: Path, stub: embedding_stub.EmbeddingStub) -> None:
    """300 entries wait at a slow provider; a note written meanwhile is not the last of them."""
    stub.delay_s = 0.05
    unit.file(root).write_text("".join(unit.entry(n, f"entry number {n} of many") for n in range(1, 301)))
    async with opened(root, stub, more="batch_size = 5\nmax_concurrent = 1\n") as node:
        await unit.until(lambda: len(stub.texts) >= 10)
        unit.file(root, day="2026-03-09").write_text(unit.entry(1, "a violin concert", "20260309"))
        await unit.caught_up(node)
        await unit.until(lambda: "a violin concert" in stub.texts)
        assert len(stub.texts) <= 60
    n_paid = len(stub.texts)
    assert n_paid == len(set(stub.texts))


async def test_a_stop_keeps_the_answers_that_are_on_their_way(root: Path, stub: embedding_stub.EmbeddingStub) -> None:
    """Stopped while a request is under way: its answer is in the cache, and the next start does not ask again."""
    stub.delay_s = 0.5
    write(root)
    async with opened(root, stub):
        await unit.until(lambda: "probe" in stub.texts and stub.n_under_way > 0)
    stub.delay_s = 0
    async with opened(root, stub) as node:
        await embedded(node, 3)
    assert sorted(TEXTS) == sorted(text for text in stub.texts if text in TEXTS)
    assert len(stub.texts) == len(set(stub.texts))


async def test_another_model_is_asked_without_a_restart(root: Path, stub: embedding_stub.EmbeddingStub) -> None:
    """Settings are exchanged while the node runs: what is owed is embedded by the model they name."""
    write(root)
    async with opened(root, stub, "a") as node:
        await embedded(node, 3, "a")
        assert node.meaning is not None
        node.meaning.change(msgspec.structs.replace(node.config.embedding, model="b"))
        await embedded(node, 3, "b")
        assert "ep_20260303_00000001" == await nearest(node, "mountain fog")


async def test_a_model_that_is_no_longer_wanted_leaves_nothing_pending(
    root: Path, stub: embedding_stub.EmbeddingStub
) -> None:
    """`model = "none"` while the daemon runs: later edits wait for nobody, and the index is no stalled one."""
    write(root)
    async with opened(root, stub) as node:
        await embedded(node, 3)
        assert node.meaning is not None
        node.meaning.change(msgspec.structs.replace(node.config.embedding, model="none", base_url=""))
        await unit.until(lambda: node.cascade.status().embedding is None)
        unit.file(root, day="2026-03-09").write_text(unit.entry(1, "a violin concert", "20260309"))
        await unit.caught_up(node)
        await unit.until(lambda: node.cascade.status().projections["vectors"].documents == 4)
        await unit.until(lambda: node.cascade.pending() == 0)
        now = node.cascade.status().projections["vectors"]
        assert ("ok", 0, None) == (now.state, now.behind, now.progress)


async def test_a_provider_is_named_once_in_what_a_search_is_told(
    root: Path, stub: embedding_stub.EmbeddingStub
) -> None:
    """Down since the start: who searches by meaning reads what the provider said, as health has it."""
    write(root)
    stub.status = 503
    async with opened(root, stub) as node:
        await unit.until(lambda: bool(reason(node)))
        answer = await node.search.run(query.Query(owner=unit.owner(), text="radiator", method="hybrid"))
        assert [1] == [said.count("stub at") for said in answer.degraded]
        assert reason(node) in answer.degraded[0]


async def test_a_provider_that_answers_nonsense_is_not_asked_text_by_text(
    root: Path, stub: embedding_stub.EmbeddingStub
) -> None:
    """NaN for 40 entries: after a few requests it is the provider that is named, and no entry; then all are embedded."""
    unit.file(root).write_text("".join(unit.entry(n, f"entry number {n} of many") for n in range(1, 41)))
    stub.garbage = "nan"
    async with opened(root, stub) as node:
        await unit.until(lambda: bool(reason(node)))
        assert () == node.cascade.status().problems
        assert len(stub.asked) < 20
        stub.garbage = None
        await embedded(node, 40)


async def test_a_provider_that_turns_to_nonsense_blames_no_entry(
    root: Path, stub: embedding_stub.EmbeddingStub
) -> None:
    """It answered well, then gives another width than before with each answer: no entry is given up for it."""
    write(root)
    async with opened(root, stub) as node:
        await embedded(node, 3)
        stub.garbage = "zeros"
        unit.file(root, day="2026-03-20").write_text(
            "".join(unit.entry(n, f"entry number {n} of many", "20260320") for n in range(1, 41))
        )
        await unit.caught_up(node)
        await unit.until(lambda: bool(reason(node)))
        assert () == node.cascade.status().problems
        stub.garbage = None
        await embedded(node, 43)


async def test_a_provider_that_comes_to_its_senses_in_the_middle_of_it_blames_no_entry(
    root: Path, stub: embedding_stub.EmbeddingStub
) -> None:
    """Nonsense until texts are asked for one by one, then vectors: what was refused meanwhile does not wait an hour."""
    write(root)
    async with opened(root, stub) as node:
        await embedded(node, 3)
        stub.garbage, stub.delay_s = "nan", 0.01
        stub.forget()
        unit.file(root, day="2026-03-20").write_text(
            "".join(unit.entry(n, f"entry number {n} of many", "20260320") for n in range(1, 41))
        )
        await unit.caught_up(node)
        await unit.until(lambda: sum(len(one.texts) == 1 for one in stub.asked) >= 4)
        stub.garbage = None
        await embedded(node, 43)
        assert () == node.cascade.status().problems


async def test_a_model_that_gives_another_width_from_now_on_embeds_anew(
    root: Path, stub: embedding_stub.EmbeddingStub
) -> None:
    """The provider was updated under the same name: the next edit shows it, and everything is embedded anew."""
    write(root)
    async with opened(root, stub) as node:
        await embedded(node, 3)
        stub.dim = 48
        unit.file(root, day="2026-03-01").write_text(unit.entry(1, "a violin concert", "20260301"))
        await unit.caught_up(node)
        await unit.until(lambda: (now := node.cascade.status().embedding) is not None and now.dim == 48)
        await embedded(node, 3)
        assert "ep_20260303_00000001" == await nearest(node, "mountain fog")


async def test_E01_a_model_named_while_another_one_is_taken_up_has_its_vectors_filed_under_its_own_name(
    root: Path, stub: embedding_stub.EmbeddingStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two saves in a row, the second while the index turns to the first one's vectors, which takes it a moment."""
    turning, go_on = threading.Event(), threading.Event()
    turn_to = vector.VectorIndex.use

    def slowly(index: vector.VectorIndex, space: types.Space) -> int:
        n_owed = turn_to(index, space)
        if space.model == "a":
            turning.set()
            go_on.wait(10)
        return n_owed

    monkeypatch.setattr(vector.VectorIndex, "use", slowly)
    write(root)
    async with opened(root, stub, "a") as node:
        assert await asyncio.to_thread(turning.wait, 10)
        assert node.meaning is not None
        node.meaning.change(msgspec.structs.replace(node.config.embedding, model="b"))
        await unit.until(lambda: (now := node.cascade.status().embedding) is not None and now.model.startswith("b "))
        go_on.set()
        await embedded(node, 3, "b")
        space = node.meaning.embedding.index.space
        assert space is not None
        assert "b" == space.model
        assert "ep_20260303_00000001" == await nearest(node, "mountain fog")
    assert (0, 3) == await asyncio.to_thread(lambda: (n_kept(root, "a", stub.dim), n_kept(root, "b", stub.dim)))


def n_kept(root: Path, model: str, dim: int) -> int:
    """Return how many of the texts the cache has vectors of under the model's name."""
    kept = cache.Cache(root / daemon.CACHE, 1 << 30)
    found = kept.get(types.Space(model=model, dim=dim), [models.digest(text) for text in TEXTS])
    kept.close()
    return len(found)


async def test_X05_vectors_that_a_search_finds_damaged_are_made_again_at_once(
    root: Path, stub: embedding_stub.EmbeddingStub
) -> None:
    """A byte of one row turned while the daemon was down: nobody has to edit anything to get the entry back."""
    write(root)
    async with opened(root, stub) as node:
        await embedded(node, 3)
    await asyncio.to_thread(damage_a_vector, root)
    async with opened(root, stub) as node:
        await embedded(node, 3)
        await nearest(node, "mountain fog")
        await unit.until(lambda: node.cascade.pending() == 0)
        questions = ("cat on a radiator", "paid invoice", "mountain fog")
        found = [await nearest(node, question) for question in questions]
        assert [f"ep_2026030{n}_00000001" for n in (1, 2, 3)] == found
    assert sorted(TEXTS) == sorted(paid(stub))


def damage_a_vector(root: Path) -> None:
    """Make the checksum of one row a wrong one."""
    (path,) = (root / ".index" / "vectors").glob(f"*/{slab.FILE_NAME}")
    index = sqlite3.connect(path, isolation_level=None)
    index.execute("UPDATE vectors SET crc = crc + 1 WHERE key = (SELECT max(key) FROM vectors)")
    index.close()


async def test_E04_a_text_that_had_to_be_halved_is_not_paid_for_again(
    root: Path, stub: embedding_stub.EmbeddingStub
) -> None:
    """The index is deleted: its halves are in the cache, though the text as a whole never was."""
    stub.max_chars = 300
    write(root, (" ".join(f"word{n}" for n in range(100)),))
    async with opened(root, stub) as node:
        await embedded(node, 1)
    n_paid = len(paid(stub))
    assert n_paid > 1
    shutil.rmtree(root / ".index")
    async with opened(root, stub) as node:
        await embedded(node, 1)
        assert "ep_20260301_00000001" == await nearest(node, "word99")
    assert [] == [text for text, n in collections.Counter(paid(stub)).items() if n > 1]


async def test_the_cache_keeps_what_the_settings_allow(root: Path, stub: embedding_stub.EmbeddingStub) -> None:
    """600 vectors of 4 KB, one MiB allowed; then more is, without a restart."""
    stub.dim = 1024
    unit.file(root).write_text("".join(unit.entry(n, f"entry number {n} of many") for n in range(1, 601)))
    async with opened(root, stub, more="cache_max_mb = 1\nbatch_size = 100\n") as node:
        await embedded(node, 600)
        n_before = await asyncio.to_thread(n_rows, root)
        assert 100 < n_before < 300
        assert node.meaning is not None
        node.meaning.change(msgspec.structs.replace(node.config.embedding, cache_max_mb=100, batch_size=100))
        unit.file(root, day="2026-03-20").write_text(
            "".join(unit.entry(n, f"another {n} of many", "20260320") for n in range(1, 401))
        )
        await unit.caught_up(node)
        await embedded(node, 1000)
        assert n_before + 400 == await asyncio.to_thread(n_rows, root)


def n_rows(root: Path) -> int:
    """Return how many vectors the cache has."""
    kept = sqlite3.connect(root / daemon.CACHE)
    (n,) = kept.execute("SELECT count(*) FROM vectors").fetchone()
    kept.close()
    return int(n)


async def test_E01_a_model_exchanged_in_the_middle_of_a_search_is_not_compared_with_the_one_before(
    root: Path, stub: embedding_stub.EmbeddingStub
) -> None:
    """The query's vector is of model a, the index of b by the time it is looked into: no answer rather than nonsense."""
    write(root)
    async with opened(root, stub, "a") as node:
        await embedded(node, 3, "a")
        assert node.meaning is not None
        asked = await node.search._vector("mountain fog", None)
        node.meaning.change(msgspec.structs.replace(node.config.embedding, model="b"))
        await embedded(node, 3, "b")
        with pytest.raises(errors.LLMUnavailable, match="exchanged"):
            await node.search._in_vectors(asked, lambda near: near)
