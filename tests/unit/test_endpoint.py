"""An OpenAI-compatible endpoint, well or ill: the real client against a real server."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import email.utils
import json
import logging
import resource
import sys
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager

import numpy as np
import pytest

from everosd import clock, config, errors, types
from everosd.models import endpoint
from tests import embedding_stub
from tests.fast_clock import FastClock

KEY = "sk-very-secret-4711"
Open = Callable[..., AbstractAsyncContextManager[endpoint.Endpoint]]


@pytest.fixture
def stub() -> Iterator[embedding_stub.EmbeddingStub]:
    with embedding_stub.EmbeddingStub() as found:
        yield found


@pytest.fixture
def opened(stub: embedding_stub.EmbeddingStub) -> Open:
    """Return a function that opens an endpoint at the stub, with settings of its own."""

    @contextlib.asynccontextmanager
    async def made(time: clock.Clock | None = None, **settings: object) -> AsyncIterator[endpoint.Endpoint]:
        given = config.Embedding(
            **{  # type: ignore[arg-type]
                "model": "stub-a", "api_key": config.Secret(KEY), "base_url": stub.url, "dim": 0,
                "timeout_seconds": 5.0, "max_retries": 2, "batch_size": 10, "max_concurrent": 4,
                "query_max_concurrent": 4, "query_timeout_seconds": 2.0, "max_tokens": 512, "cache_max_mb": 1,
            }
            | settings
        )  # fmt: skip
        found = endpoint.Endpoint(given, time or FastClock())
        try:
            yield found
        finally:
            await found.close()

    return made


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110  # it is another thread that makes it true
        await asyncio.sleep(0.01)


TEXTS = ["green tea", "black tea", "night train to Vienna"]


async def test_vectors_come_in_the_order_of_the_texts(stub: embedding_stub.EmbeddingStub, opened: Open) -> None:
    """Each text gets the vector that the endpoint made of it, of length 1."""
    async with opened() as found:
        vectors = await found.passages(TEXTS)
        assert np.allclose([stub.vector(text, model="stub-a") for text in TEXTS], vectors, atol=1e-6)
        assert np.allclose(vectors[0], await found.query(TEXTS[0]), atol=1e-6)
        assert np.float32 == vectors.dtype
        assert f"Bearer {KEY}" == stub.asked[0].authorization


async def test_no_texts_are_no_request(stub: embedding_stub.EmbeddingStub, opened: Open) -> None:
    """An empty batch costs nothing."""
    async with opened() as found:
        assert (0, 0) == (await found.passages([])).shape
        assert [] == stub.asked


async def test_a_probe_tells_model_and_width(stub: embedding_stub.EmbeddingStub, opened: Open) -> None:
    """Only the endpoint knows how wide its vectors are."""
    stub.dim = 48
    async with opened() as found:
        assert types.Space(model="stub-a", dim=48) == await found.probe()


async def test_E02_another_width_is_refused_until_it_is_probed(
    stub: embedding_stub.EmbeddingStub, opened: Open
) -> None:
    """An endpoint that changes its model behind our back mixes no spaces: both widths are named, a probe accepts it."""
    async with opened() as found:
        await found.probe()
        stub.dim = 96
        with pytest.raises(errors.LLMRejected, match=r"96 numbers, not of 64"):
            await found.passages(TEXTS)
        assert types.Space(model="stub-a", dim=96) == await found.probe()
        assert (3, 96) == (await found.passages(TEXTS)).shape


async def test_E02_a_failed_probe_changes_nothing(stub: embedding_stub.EmbeddingStub, opened: Open) -> None:
    """Down or with a wrong key: the width that was known stays in force."""
    async with opened(max_retries=0) as found:
        await found.probe()
        stub.status = 503
        with pytest.raises(errors.LLMUnavailable):
            await found.probe()
        stub.status, stub.dim = 200, 96
        with pytest.raises(errors.LLMRejected, match="not of 64"):
            await found.passages(TEXTS)


@pytest.mark.parametrize("takes", [True, False])
async def test_a_width_that_is_set_is_asked_for(
    stub: embedding_stub.EmbeddingStub, opened: Open, *, takes: bool
) -> None:
    """`dimensions` is sent; an endpoint that refuses the word is asked without, once and for all."""
    stub.takes_dimensions, stub.dim = takes, 32
    async with opened(dim=32) as found:
        assert types.Space(model="stub-a", dim=32) == await found.probe()
        await found.passages(TEXTS)
    assert ([32, 32] if takes else [32, None, None]) == [each.dimensions for each in stub.asked]


@pytest.mark.parametrize("behaviour", ["takes_dimensions", "ignores_dimensions"])
async def test_E06_a_width_that_the_endpoint_does_not_give_is_a_mistake_in_the_settings(
    stub: embedding_stub.EmbeddingStub, opened: Open, behaviour: str
) -> None:
    """Both widths are named with the key to change; it is not asked again and again."""
    setattr(stub, behaviour, behaviour == "ignores_dimensions")
    async with opened(dim=32) as found:
        for ask in (found.probe, lambda: found.query("tea")):
            with pytest.raises(errors.ConfigError, match=r"embedding\.dim: .* 32 numbers, .* gives 64"):
                await ask()


async def test_a_refused_text_does_not_turn_dimensions_off(stub: embedding_stub.EmbeddingStub, opened: Open) -> None:
    """The first request of all is refused for its text: the next one still asks for the width."""
    stub.rejected = "poison"
    async with opened(dim=32) as found:
        with pytest.raises(errors.LLMRejected):
            await found.passages(["poison"])
        assert (3, 32) == (await found.passages(TEXTS)).shape
        assert 32 == stub.asked[-1].dimensions


async def test_long_numbers_in_base64_are_read_too(stub: embedding_stub.EmbeddingStub, opened: Open) -> None:
    """Whatever the endpoint prefers, and however much it is: a large answer is read beside the event loop."""
    stub.dim = 3000
    async with opened(batch_size=50) as found:
        assert (50, 3000) == (await found.passages([f"text {n}" for n in range(50)])).shape
    row = embedding_stub._item(0, stub.vector("tea"), None, is_base64=True)
    body = json.dumps({"data": [row]}).encode()
    decoded = endpoint._decode(body, 1)
    assert isinstance(decoded, np.ndarray)
    assert np.allclose(stub.vector("tea"), decoded[0])


@pytest.mark.parametrize("garbage", ["shuffled", "no_index"])
async def test_answers_in_another_order_are_put_in_order(
    stub: embedding_stub.EmbeddingStub, opened: Open, garbage: embedding_stub.Garbage
) -> None:
    """`index` says which text a vector is of; where none has one, the order does."""
    stub.garbage = garbage
    async with opened() as found:
        vectors = await found.passages(TEXTS)
    assert np.allclose([stub.vector(text, model="stub-a") for text in TEXTS], vectors, atol=1e-6)


@pytest.mark.parametrize(
    "garbage", ["none", "too_few", "too_many", "nan", "null", "zeros", "wrong_width", "same_index"]
)
async def test_unusable_vectors_are_refused_and_asked_for_again(
    stub: embedding_stub.EmbeddingStub, opened: Open, garbage: embedding_stub.Garbage
) -> None:
    """Sent again as often as the settings say, and never taken."""
    async with opened() as found:
        await found.probe()
        stub.forget()
        stub.garbage = garbage
        with pytest.raises(errors.LLMRejected):
            await found.passages(TEXTS)
        assert 3 == len(stub.asked)
        stub.garbage = None
        assert (3, 64) == (await found.passages(TEXTS)).shape


@pytest.mark.parametrize("garbage", ["html", "empty", "no_data", "text", "cut"])
async def test_an_answer_that_is_none_says_nothing_of_the_texts(
    stub: embedding_stub.EmbeddingStub, opened: Open, garbage: embedding_stub.Garbage
) -> None:
    """The sign-in page of a hotel, half an answer: the endpoint is not there, and no text is to blame."""
    stub.garbage = garbage
    async with opened() as found:
        with pytest.raises(errors.LLMUnavailable):
            await found.passages(TEXTS)
        assert 3 == len(stub.asked)


@pytest.mark.parametrize("status", [429, 500, 502, 503, 0])
async def test_what_may_pass_is_tried_again(stub: embedding_stub.EmbeddingStub, opened: Open, status: int) -> None:
    """Twice overloaded, or the connection reset: the third request brings the vectors, and the caller sees nothing."""
    async with opened() as found:
        stub.fail(2, status=status)
        assert (3, 64) == (await found.passages(TEXTS)).shape
        assert [status, status, 200] == [each.status for each in stub.asked]


async def test_S10_a_query_is_sent_once(stub: embedding_stub.EmbeddingStub, opened: Open) -> None:
    """Somebody waits for the answer: an outage is told at once."""
    stub.status = 503
    async with opened() as found:
        with pytest.raises(errors.LLMUnavailable, match="503"):
            await found.query("tea")
    assert 1 == len(stub.asked)


async def test_M09_an_endpoint_that_is_not_there_is_unavailable(
    stub: embedding_stub.EmbeddingStub, opened: Open
) -> None:
    """The system's own words say why; once it is there again it is used again."""
    async with opened(max_retries=0) as found:
        stub.stop()
        with pytest.raises(errors.LLMUnavailable, match="refused"):
            await found.passages(TEXTS)
        stub.start()
        assert (3, 64) == (await found.passages(TEXTS)).shape


@pytest.mark.parametrize("status", [400, 413, 422])
async def test_W26_refused_texts_are_not_sent_again(
    stub: embedding_stub.EmbeddingStub, opened: Open, status: int
) -> None:
    """The caller learns that it is these texts, and may send others."""
    async with opened() as found:
        stub.fail(1, status=status)
        with pytest.raises(errors.LLMRejected, match=str(status)):
            await found.passages(TEXTS)
        assert 1 == len(stub.asked)
        assert (3, 64) == (await found.passages(TEXTS)).shape


@pytest.mark.parametrize(("status", "named"), [(401, "api_key"), (403, "api_key"), (404, "base_url")])
async def test_what_a_person_has_to_mend_is_named(
    stub: embedding_stub.EmbeddingStub, opened: Open, status: int, named: str
) -> None:
    """A wrong key or address is no fault of the texts, and repeating the request at once helps nobody."""
    stub.status = status
    async with opened() as found:
        with pytest.raises(errors.LLMUnavailable) as caught:
            await found.passages(TEXTS)
        assert named in caught.value.hint
    assert 1 == len(stub.asked)


@pytest.mark.parametrize("ask", ["passages", "query"])
async def test_Z07_the_key_is_in_no_message_and_no_log(
    stub: embedding_stub.EmbeddingStub, opened: Open, caplog: pytest.LogCaptureFixture, ask: str
) -> None:
    """The provider repeats the header it got; neither the error, its causes nor any logger repeats it."""
    caplog.set_level(logging.DEBUG)
    stub.key = "another"
    async with opened() as found:
        with pytest.raises(errors.LLMUnavailable) as caught:
            await (found.passages(TEXTS) if ask == "passages" else found.query(TEXTS[0]))
    assert KEY in stub.asked[0].authorization
    said = "".join(traceback.format_exception(caught.value)) + caught.value.hint + repr(vars(caught.value))
    assert KEY not in said + caplog.text
    assert "green tea" not in said
    assert None is caught.value.__cause__ is caught.value.__context__


@pytest.mark.parametrize("key", ["sk-4711\n", "sk 4711", "schlüssel-4711"])
async def test_Z07_a_key_that_no_header_can_carry_is_not_repeated(opened: Open, key: str) -> None:
    """A line break that came along with the key gives a message that says so, without the key."""
    async with opened(api_key=config.Secret(key)) as found:
        with pytest.raises(errors.LLMUnavailable, match="the key holds something") as caught:
            await found.query("tea")
    assert "4711" not in "".join(traceback.format_exception(caught.value))


async def test_an_address_without_a_host_is_named(opened: Open) -> None:
    """`localhost:11434/v1` lacks its `http://`."""
    async with opened(base_url="localhost:11434/v1") as found:
        with pytest.raises(errors.LLMUnavailable, match="names no host"):
            await found.query("tea")


@pytest.mark.parametrize("form", ["seconds", "date"])
async def test_L07_retry_after_holds_for_all_requests(
    stub: embedding_stub.EmbeddingStub, opened: Open, form: str
) -> None:
    """Ten batches at once, one is told to come back in 2 s: none comes earlier, all are done once, never too many at a time."""
    moment = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=3)
    retry_after = "2" if form == "seconds" else email.utils.format_datetime(moment, usegmt=True)
    async with opened(clock.SystemClock(), max_concurrent=2) as found:
        await found.probe()
        stub.forget()
        stub.fail(1, status=429, retry_after=retry_after)
        batches = [[f"text {n} of {batch}" for n in range(3)] for batch in range(10)]
        await asyncio.gather(*(found.passages(batch) for batch in batches))
    refused = next(each for each in stub.asked if each.status == 429)
    allowed_s = refused.at_s + 2 if form == "seconds" else refused.at_s + 1
    early = [each for each in stub.asked if each.status == 200 and refused.at_s + 0.2 < each.at_s < allowed_s - 0.05]
    assert [] == early
    assert sorted(text for batch in batches for text in batch) == sorted(stub.texts)
    assert stub.most_under_way <= 2


async def test_L07_who_has_to_come_back_much_later_is_told_so(stub: embedding_stub.EmbeddingStub, opened: Open) -> None:
    """Ten minutes are not waited for inside a call; meanwhile nothing is sent, no query either."""
    async with opened(clock.SystemClock()) as found:
        stub.fail(1, status=429, retry_after="600")
        for is_query in (False, True, False):
            with pytest.raises(errors.LLMUnavailable) as caught:
                await (found.query("tea") if is_query else found.passages(TEXTS))
            assert caught.value.retry_after_s is not None
            assert 590 < caught.value.retry_after_s <= 600
    assert 1 == len(stub.asked)


@pytest.mark.parametrize("retry_after", ["soon", "-5", "nan", "1e999", "Wed, 99 Foo 2026", "", "0"])
async def test_a_retry_after_that_makes_no_sense_does_no_harm(
    stub: embedding_stub.EmbeddingStub, opened: Open, retry_after: str
) -> None:
    """It is no reason to fail, nor to wait for ever."""
    async with opened(FastClock(10_000)) as found:
        stub.fail(1, status=429, retry_after=retry_after)
        with contextlib.suppress(errors.LLMUnavailable):
            await found.passages(TEXTS)
        while len(stub.texts) < len(TEXTS):
            with contextlib.suppress(errors.LLMUnavailable):
                await found.passages(TEXTS)
            await asyncio.sleep(0.02)


async def test_a_client_that_is_not_installed_is_said_and_not_the_settings(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broken installation has another remedy than a wrong key; mended, the same endpoint is asked."""
    async with opened() as found:
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, "openai", None)
            with pytest.raises(errors.LLMUnavailable, match="openai") as raised:
                await found.query("tea")
        assert "install everosd again" == raised.value.hint
        assert (64,) == (await found.query("tea")).shape


async def test_an_empty_account_is_not_asked_again_at_once(stub: embedding_stub.EmbeddingStub, opened: Open) -> None:
    """OpenAI says 429 for that too; the code tells the difference and is shown."""
    answer = endpoint._Answer(status=429, code="insufficient_quota")
    assert not answer.is_worth_repeating
    async with opened() as found:
        error = found._failure(answer, 1, is_query=False)
    assert "insufficient_quota" in str(error)
    assert [] == stub.asked


async def test_a_slow_endpoint_gets_fewer_texts_at_once(stub: embedding_stub.EmbeddingStub, opened: Open) -> None:
    """Ten texts take it longer than the limit: they are sent a few at a time, and all get their vectors."""
    stub.delay_per_text_s = 0.1
    async with opened(timeout_seconds=0.6) as found:
        await found.probe()
        texts = [f"text {n}" for n in range(10)]
        vectors = await found.passages(texts)
    assert np.allclose([stub.vector(text, model="stub-a") for text in texts], vectors, atol=1e-6)


async def test_a_hanging_endpoint_is_given_up_in_time(stub: embedding_stub.EmbeddingStub, opened: Open) -> None:
    """Three limits for a batch, one for a query; not one for each text and each retry."""
    async with opened(timeout_seconds=0.2, max_retries=5) as found:
        await found.probe()
        stub.is_hanging = True
        with pytest.raises(errors.LLMUnavailable, match=r"no answer within 0\.2 s"):
            await found.passages([f"text {n}" for n in range(10)])
        assert 3 == stub.n_under_way  # 10 texts, 2, 1: none of them is ever answered
        with pytest.raises(errors.LLMUnavailable, match="no answer"):
            await found.query("tea")
        assert 4 == stub.n_under_way
        stub.is_hanging = False
        assert (3, 64) == (await found.passages(TEXTS)).shape


async def test_a_query_never_waits_behind_passages(stub: embedding_stub.EmbeddingStub, opened: Open) -> None:
    """All places for passages are taken by requests that hang; a query is answered all the same."""
    async with opened(max_concurrent=1) as found:
        await found.probe()
        stub.is_hanging = True
        busy = [asyncio.create_task(found.passages([text])) for text in TEXTS]
        await _until(lambda: stub.n_under_way > 0)
        query = asyncio.create_task(found.query("tea"))
        await _until(lambda: stub.n_under_way == 2)
        stub.is_hanging = False
        await asyncio.gather(query, *busy)
    assert stub.most_under_way == 2


async def test_what_is_under_way_ends_when_it_is_closed(stub: embedding_stub.EmbeddingStub, opened: Open) -> None:
    """A stop waits neither for a request that hangs nor for the moment a provider named."""
    async with opened(clock.SystemClock(), max_retries=5) as found:
        await found.probe()
        stub.fail(1, status=429, retry_after="30")
        waiting = asyncio.create_task(found.passages(TEXTS))
        await _until(lambda: found._closed_until_s > 0)  # the stub notes a request down before we have its answer
        found._closed_until_s = 0
        stub.is_hanging = True
        hanging = asyncio.create_task(found.query("tea"))
        await _until(lambda: stub.n_under_way > 0)
        async with asyncio.timeout(5):
            await found.close()
            for each in (waiting, hanging):
                with pytest.raises(errors.LLMUnavailable, match="closed"):
                    await each
        with pytest.raises(errors.LLMUnavailable):
            await found.query("tea")


async def test_a_caller_that_goes_away_frees_its_place(stub: embedding_stub.EmbeddingStub, opened: Open) -> None:
    """A cancelled call leaves no request behind that blocks the next."""
    async with opened(max_concurrent=1) as found:
        await found.probe()
        stub.is_hanging = True
        gone = asyncio.create_task(found.passages(TEXTS))
        await _until(lambda: stub.n_under_way > 0)
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        stub.is_hanging = False
        assert (3, 64) == (await asyncio.wait_for(found.passages(TEXTS), 2)).shape


async def test_half_a_surrogate_pair_is_sent_as_something(stub: embedding_stub.EmbeddingStub, opened: Open) -> None:
    """Text that is no valid Unicode is no reason to fail: the half is replaced."""
    async with opened() as found:
        await found.passages(["tea \ud83d", "nul \0"])
    assert ["tea ?", "nul \0"] == stub.texts


def test_the_name_tells_model_and_host_and_no_password() -> None:
    """It is shown in status and messages."""
    given = config.Embedding(
        model="m", api_key=config.Secret(KEY), base_url="http://ann:pass@10.0.0.1:11434/v1", dim=0, timeout_seconds=1,
        max_retries=0, batch_size=1, max_concurrent=1, query_max_concurrent=1, query_timeout_seconds=1, max_tokens=64,
        cache_max_mb=1,
    )  # fmt: skip
    assert "m at 10.0.0.1:11434" == endpoint.Endpoint(given, clock.SystemClock()).name


@pytest.mark.parametrize("garbage", ["endless", "packed"])
async def test_an_answer_without_an_end_fills_no_memory(
    stub: embedding_stub.EmbeddingStub, opened: Open, garbage: embedding_stub.Garbage
) -> None:
    """A proxy gone wild, blanks for minutes: it is hung up on after a few MB, and said what it did."""
    async with opened(max_retries=0, timeout_seconds=20.0) as embedder:
        await embedder.probe()
        stub.garbage = garbage
        await asyncio.to_thread(embedding_stub._packed)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(errors.LLMUnavailable, match="far more than embeddings"):
            await embedder.passages(["a", "b"])
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 150_000
        stub.garbage = None
        assert (2, 64) == (await embedder.passages(["a", "b"])).shape


async def test_texts_go_to_no_address_that_the_settings_do_not_name(
    stub: embedding_stub.EmbeddingStub, opened: Open
) -> None:
    """The provider sends requests on to somebody else: he gets nothing, and the person is told what to correct."""
    with embedding_stub.EmbeddingStub() as other:
        stub.moved_to = f"{other.url}/embeddings"
        async with opened(max_retries=0) as embedder:
            with pytest.raises(errors.LLMUnavailable, match=r"sends to another address.*307") as caught:
                await embedder.passages(["a secret"])
            assert "base_url" in caught.value.hint
        assert [] == other.asked
