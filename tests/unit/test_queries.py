"""Vectors of queries: remembered, shared, in time, and through outages."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

import numpy as np
import pytest

from everosd import clock, config, errors
from everosd.models import builtin, embed, endpoint, queries
from tests import embedding_stub
from tests.fast_clock import FastClock


@pytest.fixture
def stub() -> Iterator[embedding_stub.EmbeddingStub]:
    with embedding_stub.EmbeddingStub() as found:
        yield found


@contextlib.asynccontextmanager
async def _opened(
    stub: embedding_stub.EmbeddingStub, timeout_s: float = 2.0, time_: clock.Clock | None = None, **settings: object
) -> AsyncIterator[queries.Queries]:
    given = config.Embedding(
        **{  # type: ignore[arg-type]
            "model": "stub-a", "api_key": config.Secret("k"), "base_url": stub.url, "dim": 0, "timeout_seconds": 5.0,
            "max_retries": 2, "batch_size": 10, "max_concurrent": 4, "query_max_concurrent": 4,
            "query_timeout_seconds": 2.0, "max_tokens": 512, "cache_max_mb": 1,
        }
        | settings
    )  # fmt: skip
    timer = time_ or clock.SystemClock()
    model = endpoint.Endpoint(given, timer)
    found = queries.Queries(model, timer, timeout_s)
    try:
        await model.probe()  # the client is imported before anything is measured
        stub.forget()
        yield found
    finally:
        await found.close()
        await model.close()


async def _until(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110  # it is another thread that makes it true
            await asyncio.sleep(0.005)


def _at_once(work: Coroutine[Any, Any, embed.Vectors]) -> embed.Vectors:
    """Return what a call gives, or raise what it raises, without having waited for anything."""
    try:
        work.send(None)
    except StopIteration as end:
        found: embed.Vectors = end.value
        return found
    work.close()
    pytest.fail("it waits")


async def test_the_same_query_is_asked_for_once(stub: embedding_stub.EmbeddingStub) -> None:
    """Its vector is remembered, and nobody can change it."""
    async with _opened(stub) as found:
        first = await found.vector("green tea")
        assert np.allclose(stub.vector("green tea", model="stub-a"), first, atol=1e-6)
        assert first is await found.vector("green tea")
        assert ["green tea"] == stub.texts
        assert (1, 1) == (found.n_asked, found.n_kept)
        with pytest.raises(ValueError, match="read-only"):
            first[0] = 0


async def test_equal_queries_at_once_share_one_call(stub: embedding_stub.EmbeddingStub) -> None:
    """Twenty searches for the same thing cost one request."""
    stub.delay_s = 0.1
    async with _opened(stub) as found:
        vectors = await asyncio.gather(*(found.vector("green tea") for _ in range(20)))
    assert 1 == len({id(vector) for vector in vectors}) == len(stub.asked)


async def test_who_goes_away_does_not_take_the_vector_from_the_others(stub: embedding_stub.EmbeddingStub) -> None:
    """The first of two equal searches is cancelled; the second has its answer, from the same request."""
    async with _opened(stub) as found:
        stub.is_hanging = True
        first = asyncio.create_task(found.vector("green tea"))
        await _until(lambda: stub.n_under_way == 1)
        second = asyncio.create_task(found.vector("green tea"))
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        stub.is_hanging = False
        assert 64 == (await second).size
    assert 1 == len(stub.asked)


async def test_only_so_many_vectors_are_remembered(
    stub: embedding_stub.EmbeddingStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those asked for longest ago are forgotten first: by number, and by bytes where vectors are wide."""
    monkeypatch.setattr(queries, "KEPT", 3)
    async with _opened(stub) as found:
        for text in ("a", "b", "c", "a", "d"):
            await found.vector(text)
        assert 4 == len(stub.texts)
        await found.vector("a")
        assert 4 == len(stub.texts)
        await found.vector("b")
        assert 5 == len(stub.texts)
        monkeypatch.setattr(queries, "KEPT_BYTES", 600)
        await found.vector("e")
        assert 2 == len(found._kept)
        assert found._kept_bytes == sum(each.nbytes for each in found._kept.values())


async def test_S10_a_failure_is_told_at_once_and_the_next_does_not_wait_at_all(
    stub: embedding_stub.EmbeddingStub,
) -> None:
    """After one 503 nobody asks until the model is back; health knows why; then the vectors are there again."""
    async with _opened(stub) as found:
        assert "" == found.state
        stub.status = 503
        with pytest.raises(errors.LLMUnavailable, match="503"):
            await found.vector("green tea")
        for n in range(100):
            with pytest.raises(errors.LLMUnavailable, match="503"):
                _at_once(found.vector(f"tea {n}"))
        assert 1 == len(stub.asked)
        assert "503" in found.state
        stub.status = 200
        await _until(lambda: found.state == "")
        assert 64 == (await found.vector("black tea")).size


async def test_M09_a_hanging_model_costs_one_search_its_patience(stub: embedding_stub.EmbeddingStub) -> None:
    """The first search waits as long as it may, the next ones like it not at all, until the model answers in time."""
    async with _opened(stub) as found:
        stub.is_hanging = True
        with pytest.raises(errors.LLMUnavailable, match=r"within 0\.2 s"):
            await found.vector("green tea", patience_s=0.2)
        for text in ("black tea", "green tea"):
            with pytest.raises(errors.LLMUnavailable, match=r"within 0\.2 s"):
                _at_once(found.vector(text, patience_s=0.2))
        assert "within 0.2 s" in found.state
        stub.is_hanging = False
        await _until(lambda: found.state == "")
        assert 64 == (await found.vector("black tea", patience_s=0.2)).size


async def test_M09_a_model_that_never_answers_is_away_for_everybody(stub: embedding_stub.EmbeddingStub) -> None:
    """Once the limit itself has passed, a search by vector alone fails at once, too."""
    async with _opened(stub, timeout_s=0.2) as found:
        stub.is_hanging = True
        with pytest.raises(errors.LLMUnavailable, match=r"within 0\.2 s"):
            await found.vector("green tea")
        with pytest.raises(errors.LLMUnavailable, match=r"within 0\.2 s"):
            _at_once(found.vector("black tea"))
        stub.is_hanging = False
        await _until(lambda: found.state == "")


async def test_what_is_remembered_is_given_while_the_model_is_away(stub: embedding_stub.EmbeddingStub) -> None:
    """A search that was made before goes on to be a full one."""
    async with _opened(stub) as found:
        await found.vector("green tea")
        stub.stop()
        with pytest.raises(errors.LLMUnavailable):
            await found.vector("black tea")
        assert 64 == (await found.vector("green tea")).size


async def test_who_is_more_patient_is_not_sent_away(stub: embedding_stub.EmbeddingStub) -> None:
    """A model that takes 0.4 s is too slow for one search and not for another; what came late is remembered for both."""
    stub.delay_s = 0.4
    async with _opened(stub) as found:
        with pytest.raises(errors.LLMUnavailable, match=r"within 0\.1 s"):
            await found.vector("green tea", patience_s=0.1)
        patient = await asyncio.gather(found.vector("green tea"), found.vector("black tea", patience_s=1.0))
        assert [64, 64] == [vector.size for vector in patient]
        assert 64 == (await found.vector("green tea", patience_s=0.1)).size
        assert "within 0.1 s" in found.state
        with pytest.raises(errors.LLMUnavailable, match=r"within 0\.1 s"):
            await found.vector("white tea", patience_s=0.1)


async def test_L07_a_provider_that_wants_to_be_left_alone_is(stub: embedding_stub.EmbeddingStub) -> None:
    """`Retry-After` holds for looking whether it is back, too, and callers are told of it."""
    async with _opened(stub, time_=FastClock(20)) as found:
        stub.fail(1, status=429, retry_after="20")
        with pytest.raises(errors.LLMUnavailable):
            await found.vector("green tea")
        await asyncio.sleep(0)
        with pytest.raises(errors.LLMUnavailable) as caught:
            await found.vector("black tea")
        assert caught.value.retry_after_s is not None
        assert 15 < caught.value.retry_after_s <= 20
        await _until(lambda: found.state == "")
        assert [429, 200] == [each.status for each in stub.asked]
        assert stub.asked[1].at_s - stub.asked[0].at_s > 0.95


async def test_a_model_that_stays_away_is_asked_less_and_less_often(stub: embedding_stub.EmbeddingStub) -> None:
    """Two minutes of outage cost a handful of requests, however many search."""
    async with _opened(stub, timeout_s=100, time_=FastClock(200)) as found:
        stub.status = 500
        for _ in range(60):
            with pytest.raises(errors.LLMUnavailable):
                await found.vector("green tea")
            await asyncio.sleep(0.01)
        assert 4 <= len(stub.asked) <= 12


async def test_a_text_that_is_refused_is_no_outage(stub: embedding_stub.EmbeddingStub) -> None:
    """One query that the provider will not have closes the way to nobody else."""
    stub.rejected = "poison"
    async with _opened(stub) as found:
        with pytest.raises(errors.LLMRejected):
            await found.vector("poison")
        assert "" == found.state
        assert 64 == (await found.vector("green tea")).size


async def test_E06_another_width_than_the_settings_ask_for_is_told_every_time(
    stub: embedding_stub.EmbeddingStub,
) -> None:
    """It is a mistake in the settings and no outage: both widths are named, in the error and in health."""
    async with _opened(stub, dim=32) as found:
        stub.ignores_dimensions = True
        for text in ("green tea", "black tea"):
            with pytest.raises(errors.ConfigError, match=r"32 numbers, .* gives 64"):
                await found.vector(text)
        assert "32 numbers" in found.state
        stub.ignores_dimensions = False
        assert 32 == (await found.vector("green tea")).size
        assert "" == found.state


async def test_E01_another_model_gives_other_vectors_at_once(stub: embedding_stub.EmbeddingStub) -> None:
    """Nothing that was remembered, under way or broken before is left after a change of the settings."""
    async with _opened(stub) as first, _opened(stub, model="stub-b") as second:
        old = await first.vector("green tea")
        stub.is_hanging = True
        waiting = asyncio.create_task(first.vector("black tea"))
        await _until(lambda: stub.n_under_way == 1)
        first.replace(second._embedder, timeout_s=3.0)
        with pytest.raises(errors.LLMUnavailable, match="no longer asked"):
            await waiting
        stub.is_hanging = False
        new = await first.vector("green tea")
        assert np.allclose(stub.vector("green tea", model="stub-b"), new, atol=1e-6)
        assert not np.allclose(old, new)


async def test_an_outage_ends_with_the_model_that_had_it(stub: embedding_stub.EmbeddingStub) -> None:
    """The settings name another model: the old one's failure is no reason to wait, and it is not asked any more."""
    async with _opened(stub) as found, _opened(stub, model="stub-b") as other:
        stub.model = "stub-b"
        with pytest.raises(errors.LLMUnavailable, match="404"):
            await found.vector("green tea")
        found.replace(other._embedder)
        assert "" == found.state
        await found.vector("green tea")
        await _until(lambda: not found._tasks)  # nobody is left who would ask the old one whether it is back


async def test_forgetting_keeps_a_late_answer_out(stub: embedding_stub.EmbeddingStub) -> None:
    """The space changed while a query was under way: its vector is not remembered among those of the new one."""
    async with _opened(stub) as found:
        stub.is_hanging = True
        waiting = asyncio.create_task(found.vector("green tea"))
        await _until(lambda: stub.n_under_way == 1)
        found.forget()
        stub.is_hanging = False
        await waiting
        assert {} == dict(found._kept)


async def test_without_a_model_it_says_what_to_do() -> None:
    """`model = "none"` is a choice: no outage in health, and an error that names the setting."""
    found = queries.Queries(None, clock.SystemClock(), 2.0)
    with pytest.raises(errors.LLMUnavailable, match="no embedding model") as caught:
        await found.vector("green tea")
    assert "[embedding]" in caught.value.hint
    assert not found.is_set_up
    assert "" == found.state
    await found.close()


async def test_closing_leaves_nothing_behind(stub: embedding_stub.EmbeddingStub) -> None:
    """Neither a request that hangs nor the task that looks whether the model is back; waiting callers are told."""
    async with _opened(stub, timeout_s=0.1) as found:
        stub.is_hanging = True
        waiting = asyncio.create_task(found.vector("black tea", patience_s=20))
        await _until(lambda: stub.n_under_way == 1)
        with pytest.raises(errors.LLMUnavailable):
            await found.vector("green tea")
        await found.close()
        with pytest.raises(errors.LLMUnavailable, match="no longer asked"):
            await waiting
        assert set() == found._tasks


async def test_an_embedder_with_a_fault_of_its_own_is_asked_again() -> None:
    """What it raises is no error that we know: queries fail meanwhile, and are answered once it has recovered."""

    class Faulty(builtin.Builtin):
        n_faults = 2

        async def query(self, text: str) -> embed.Vectors:
            if not text.startswith("first") or self.n_faults == 0:
                return np.ones(3, dtype=np.float32)
            if self.n_faults == 2:
                self.n_faults -= 1
                raise errors.LLMUnavailable(self.name, "fell over")
            self.n_faults -= 1
            raise RuntimeError(text)

    found = queries.Queries(Faulty(), FastClock(), 5.0)
    with pytest.raises(errors.LLMUnavailable):
        await found.vector("first")
    await _until(lambda: not found.state)
    assert (3,) == (await found.vector("first")).shape
    await found.close()
