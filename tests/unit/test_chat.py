"""A chat model, well or ill: the real client against a real server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec
import pytest

from everosd import clock, config, errors
from everosd.models import chat, prompt, wire
from tests import chat_stub
from tests.fast_clock import FastClock

KEY = "sk-very-secret-4711"
SAID = "Mara: I have moved to Vienna, flat 12."
PROMPT = prompt.Prompt(name="facts", version=1, system="You list facts.", user=SAID)
FACTS = {"facts": ["Mara has moved to Vienna", "Her flat is number 12"]}

Open = Callable[..., AbstractAsyncContextManager[chat.Chat]]


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for."""

    facts: list[str]


@pytest.fixture
def stub() -> Iterator[chat_stub.ChatStub]:
    with chat_stub.ChatStub(answers={"facts": FACTS}) as found:
        yield found


def _settings(stub: chat_stub.ChatStub, **settings: object) -> config.Llm:
    return config.Llm(
        **{  # type: ignore[arg-type]
            "model": "stub-a", "api_key": config.Secret(KEY), "base_url": stub.url, "timeout_seconds": 5.0,
            "max_retries": 2, "max_concurrent": 4, "max_input_tokens": 16_000, "max_output_tokens": 4096, "language": "",
            "prompts": "",
        }
        | settings
    )  # fmt: skip


@pytest.fixture
def opened(stub: chat_stub.ChatStub) -> Open:
    """Return a function that opens a chat with the stub, with settings of its own."""

    @contextlib.asynccontextmanager
    async def made(moments: clock.Clock | None = None, **settings: object) -> AsyncIterator[chat.Chat]:
        found = chat.Chat(_settings(stub, **settings), moments or FastClock())
        try:
            yield found
        finally:
            await found.close()

    return made


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110  # it is another thread that makes it true
        await asyncio.sleep(0.01)


async def test_an_answer_comes_as_the_struct_that_was_asked_for(stub: chat_stub.ChatStub, opened: Open) -> None:
    """Both parts of the prompt, the key, the model, the limit and the shape are sent; the answer is read."""
    async with opened() as found:
        assert Facts(**FACTS) == await found.ask(PROMPT, Facts, max_tokens=300)
        assert chat.State(n_answers=1) == found.state
    asked = stub.asked[0]
    assert ("facts", "You list facts.", SAID) == (asked.name, asked.system, asked.user)
    assert ("stub-a", f"Bearer {KEY}", 300, 0.0) == (
        asked.model,
        asked.authorization,
        asked.max_tokens,
        asked.temperature,
    )
    assert ["facts"] == asked.schema["required"]


async def test_nothing_is_imported_before_the_first_call() -> None:
    """The client takes seconds and 40 MB: whoever only makes a chat pays for none of it."""
    program = (
        "import sys, everosd.models.chat as c, everosd.config as g, everosd.clock as k, pathlib\n"
        "c.Chat(g.load(pathlib.Path('/nowhere'), {}).llm, k.SystemClock())\n"
        "assert 'openai' not in sys.modules"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program)
    assert 0 == await process.wait()


@pytest.mark.parametrize(
    ("settings", "is_set_up"),
    [({}, True), ({"model": ""}, False), ({"api_key": config.Secret(""), "base_url": "https://far.away/v1"}, False)],
)
async def test_without_a_model_nothing_is_asked(
    stub: chat_stub.ChatStub, opened: Open, settings: dict[str, Any], *, is_set_up: bool
) -> None:
    """Whoever asks all the same is told what to set; no text leaves the machine."""
    async with opened(**settings) as found:
        assert is_set_up == found.is_set_up
        assert ("stub-a" if is_set_up else "") == found.name
        if not is_set_up:
            with pytest.raises(errors.LLMUnavailable, match="not set up"):
                await found.ask(PROMPT, Facts)
            assert [] == stub.asked


@pytest.mark.parametrize("dress", ["fenced_json", "think", "unclosed_think", "single_quotes", "list"])
async def test_L01_L04_whatever_an_answer_is_wrapped_in_it_is_read_at_once(
    stub: chat_stub.ChatStub, opened: Open, dress: chat_stub.Dress
) -> None:
    """No second request is needed for fences, prose, reasoning or small mistakes."""
    stub.dress = dress
    async with opened() as found:
        assert Facts(**FACTS) == await found.ask(PROMPT, Facts)
    assert 1 == len(stub.asked)


@pytest.mark.parametrize("first", ["I would rather talk.", "<think>I should", '{"facts": ["Mara ha', '{"fact": 1}', ""])
async def test_L01_L04_an_unreadable_answer_is_asked_for_again(
    stub: chat_stub.ChatStub, opened: Open, first: str
) -> None:
    """The model is told what was wrong, what shape is wanted, and is asked at another temperature."""
    stub.say("facts", first)
    async with opened() as found:
        assert Facts(**FACTS) == await found.ask(PROMPT, Facts)
    before, after = stub.asked
    assert SAID == before.user
    assert after.user.startswith(f"{SAID}\n\nYour last answer could not be used: it ")
    assert '"required": ["facts"]' in after.system
    assert before.temperature != after.temperature


@pytest.mark.parametrize("dress", ["only_think", "only_prose", "cut"])
async def test_L04_L05_answers_that_stay_unreadable_are_an_error(
    stub: chat_stub.ChatStub, opened: Open, dress: chat_stub.Dress
) -> None:
    """Asked as often as the settings say, then told; nothing of it is taken. Three in a row are shown in health."""
    stub.dress = dress
    async with opened() as found:
        for n in range(3):
            assert not found.state.is_failing
            with pytest.raises(errors.LLMRejected, match="gives an answer that") as caught:
                await found.ask(PROMPT, Facts)
            assert 3 * (n + 1) == len(stub.asked)
            assert "Vienna" not in "".join(traceback.format_exception(caught.value))
        assert (True, False, 3) == (found.state.is_failing, found.state.is_away, found.state.n_failures)
        assert "gives an answer that" in found.state.reason
        stub.dress = "plain"
        assert Facts(**FACTS) == await found.ask(PROMPT, Facts)
        assert not found.state.is_failing


@pytest.mark.parametrize("garbage", ["html", "empty", "no_choices", "no_json", "cut", "endless"])
async def test_an_answer_that_is_none_means_that_the_endpoint_is_not_there(
    stub: chat_stub.ChatStub, opened: Open, garbage: chat_stub.Garbage
) -> None:
    """The sign-in page of a hotel, a flood of blanks: no text is to blame, and the same may succeed later."""
    stub.garbage = garbage
    async with opened(max_retries=1) as found:
        with pytest.raises(errors.LLMUnavailable):
            await found.ask(PROMPT, Facts)
        assert 2 == len(stub.asked)
        assert (True, True) == (found.state.is_failing, found.state.is_away)
        stub.garbage = None
        assert Facts(**FACTS) == await found.ask(PROMPT, Facts)


@pytest.mark.parametrize(
    ("garbage", "n_asked"), [("no_content", 3), ("reasoning_field", 3), ("refusal", 1), ("filtered", 1)]
)
async def test_L04_a_completion_without_an_answer_is_rejected(
    stub: chat_stub.ChatStub, opened: Open, garbage: chat_stub.Garbage, n_asked: int
) -> None:
    """Nothing but reasoning, or a refusal: the latter is not asked for again."""
    stub.garbage = garbage
    async with opened() as found:
        with pytest.raises(errors.LLMRejected):
            await found.ask(PROMPT, Facts)
    assert n_asked == len(stub.asked)


@pytest.mark.parametrize("garbage", ["parts", "old"])
async def test_L04_other_servers_answers_are_read(
    stub: chat_stub.ChatStub, opened: Open, garbage: chat_stub.Garbage
) -> None:
    """A block of thinking before the text, fields that are missing: the answer is there."""
    stub.garbage = garbage
    async with opened() as found:
        assert Facts(**FACTS) == await found.ask(PROMPT, Facts)


@pytest.mark.parametrize(("n_tokens", "asked"), [(20, [20]), (10, [10, 20]), (5, [5, 10])])
async def test_an_answer_that_is_cut_off_is_asked_for_once_more_with_twice_as_much(
    stub: chat_stub.ChatStub, opened: Open, n_tokens: int, asked: list[int]
) -> None:
    """The second one fits, or it is rejected: half a list is never taken, and it is not asked for ever again."""
    stub.script("facts", {"facts": ["x" * 55]})
    async with opened() as found:
        if n_tokens == 5:
            with pytest.raises(errors.LLMRejected, match="cut off"):
                await found.ask(PROMPT, Facts, max_tokens=n_tokens)
        else:
            assert 1 == len((await found.ask(PROMPT, Facts, max_tokens=n_tokens)).facts)
    assert asked == [each.max_tokens for each in stub.asked]


async def test_blanks_behind_a_whole_answer_do_no_harm(stub: chat_stub.ChatStub, opened: Open) -> None:
    """A small model writes line breaks until the limit: the answer was complete before."""
    stub.script("facts", '{"facts": ["a"]}' + "\n" * 10_000)
    async with opened() as found:
        assert ["a"] == (await found.ask(PROMPT, Facts, max_tokens=100)).facts
    assert 1 == len(stub.asked)


@pytest.mark.parametrize("names", [True, False])
@pytest.mark.parametrize(
    ("takes", "formats"),
    [
        (("json_schema",), ["json_schema"]),
        (("json_object",), ["json_schema", "json_object"]),
        ((), ["json_schema", "json_object", ""]),
    ],
)
async def test_structured_output_is_used_where_there_is_some(
    stub: chat_stub.ChatStub, opened: Open, takes: tuple[str, ...], formats: list[str], *, names: bool
) -> None:
    """A server that takes no schema is told the shape in words; it is remembered, and the refused forms cost once."""
    stub.takes, stub.names_parameters = takes, names
    async with opened() as found:
        for _ in range(2):
            assert Facts(**FACTS) == await found.ask(PROMPT, Facts)
    assert [*formats, formats[-1]] == [each.format for each in stub.asked]
    assert "facts" == stub.asked[-1].name
    assert ["facts"] == stub.asked[-1].schema["required"]


async def test_newer_words_are_used_where_the_older_are_refused(stub: chat_stub.ChatStub, opened: Open) -> None:
    """`max_completion_tokens` for `max_tokens`, no temperature; the schema stays."""
    stub.limit_word, stub.takes_temperature = "max_completion_tokens", False
    async with opened() as found:
        for _ in range(2):
            assert Facts(**FACTS) == await found.ask(PROMPT, Facts)
    assert [400, 400, 200, 200] == [each.status for each in stub.asked]
    last = stub.asked[-1]
    assert ("json_schema", 4096, None) == (last.format, last.max_tokens, last.temperature)


async def test_a_refused_text_does_not_turn_structured_output_off(stub: chat_stub.ChatStub, opened: Open) -> None:
    """A refusal is of the text once the server has answered such a prompt; and forms that fail too teach nothing."""
    stub.rejected = "poison"
    poison = msgspec.structs.replace(PROMPT, user="poison")
    async with opened() as found:
        for n_asked in (5, 1):
            with pytest.raises(errors.LLMRejected, match="400") as caught:
                await found.ask(poison, Facts)
            assert "poison" not in str(caught.value)
            assert n_asked == len(stub.asked)
            stub.forget()
            await found.ask(PROMPT, Facts)
            assert "json_schema" == stub.asked[-1].format
            stub.forget()


async def test_a_prompt_that_is_too_long_is_refused_at_once(stub: chat_stub.ChatStub, opened: Open) -> None:
    """Other words do not make it shorter."""
    stub.max_input_chars = 20
    async with opened() as found:
        with pytest.raises(errors.LLMRejected, match="context_length_exceeded"):
            await found.ask(PROMPT, Facts)
    assert 1 == len(stub.asked)


@pytest.mark.parametrize("status", [429, 500, 503, 0])
async def test_L10_what_may_pass_is_tried_again(stub: chat_stub.ChatStub, opened: Open, status: int) -> None:
    """Twice overloaded, or the connection reset: the third request brings the answer, and the caller sees nothing."""
    async with opened() as found:
        stub.fail(2, status=status)
        assert Facts(**FACTS) == await found.ask(PROMPT, Facts)
    assert [status, status, 200] == [each.status for each in stub.asked]


class NotingClock(FastClock):
    """A fast clock that knows how long it was asked to wait."""

    def __init__(self) -> None:
        """Begin with none."""
        super().__init__()
        self.waits_s: list[float] = []

    async def sleep(self, seconds: float) -> None:
        """Sleep, and note it down."""
        self.waits_s.append(seconds)
        await super().sleep(seconds)


async def test_L10_a_failing_model_is_left_alone_longer_each_time(stub: chat_stub.ChatStub, opened: Open) -> None:
    """Four callers at once, all cut off: each waits longer than the last time, and no two equally long."""
    stub.is_cutting = True
    time = NotingClock()
    async with opened(time) as found:
        await asyncio.gather(*(found.ask(PROMPT, Facts) for _ in range(4)), return_exceptions=True)
        assert 12 == len(stub.asked)
        assert 8 == len(set(time.waits_s))
        *first, fifth, _, _, longest = sorted(time.waits_s)
        assert (
            wire.FIRST_WAIT_S / 2
            <= first[0]
            < first[-1]
            <= wire.FIRST_WAIT_S
            <= fifth
            < longest
            <= 2 * wire.FIRST_WAIT_S
        )
        assert found.state.is_failing
        assert "reset" in found.state.reason
        stub.is_cutting = False
        assert Facts(**FACTS) == await found.ask(PROMPT, Facts)
        assert not found.state.is_failing


async def test_L07_ten_callers_heed_retry_after_and_are_all_answered_once(
    stub: chat_stub.ChatStub, opened: Open
) -> None:
    """One is told to come back in 1 s: nobody comes earlier, never too many at once, each answered exactly once."""
    stub.script("facts", lambda asked: {"facts": [asked.user]})
    async with opened(clock.SystemClock(), max_concurrent=2) as found:
        await found.ask(PROMPT, Facts)
        stub.forget()
        stub.delay_s = 0.02
        stub.fail(1, status=429, retry_after="1")
        asked = [msgspec.structs.replace(PROMPT, user=f"session {n}") for n in range(10)]
        given = await asyncio.gather(*(found.ask(each, Facts) for each in asked))
    assert [[each.user] for each in asked] == [each.facts for each in given]
    refused = next(each for each in stub.asked if each.status == 429)
    early = [each for each in stub.asked if each.status == 200 and refused.at_s + 0.2 < each.at_s < refused.at_s + 0.95]
    assert [] == early
    assert sorted(each.user for each in asked) == sorted(each.user for each in stub.asked_of("facts"))
    assert stub.most_under_way <= 2


async def test_L07_who_has_to_come_back_much_later_is_told_so(stub: chat_stub.ChatStub, opened: Open) -> None:
    """Ten minutes are not waited for inside a call; meanwhile nothing is sent, and health says how long."""
    async with opened(clock.SystemClock()) as found:
        stub.fail(1, status=429, retry_after="600")
        for _ in range(2):
            with pytest.raises(errors.LLMUnavailable) as caught:
                await found.ask(PROMPT, Facts)
            assert caught.value.retry_after_s is not None
            assert 590 < caught.value.retry_after_s <= 600
        assert 590 < (found.state.retry_after_s or 0) <= 600
    assert 1 == len(stub.asked)


async def test_L08_a_session_that_hangs_holds_no_other_up(stub: chat_stub.ChatStub, opened: Open) -> None:
    """It is given up at the time limit and may be asked again; the others are answered meanwhile."""
    stub.hanging = "session nine"
    async with opened(timeout_seconds=1.0, max_retries=5) as found:
        await found.ask(PROMPT, Facts)
        stub.forget()
        stuck = asyncio.create_task(found.ask(msgspec.structs.replace(PROMPT, user="session nine"), Facts))
        await _until(lambda: stub.n_under_way == 1)
        await asyncio.gather(*(found.ask(PROMPT, Facts) for _ in range(8)))
        assert not stuck.done()
        assert 1 == found.state.n_under_way
        with pytest.raises(errors.LLMUnavailable, match="no answer within 1 s"):
            await stuck
        assert (True, False) == (found.state.is_failing, found.state.is_away)
        stub.hanging = ""
        assert Facts(**FACTS) == await found.ask(msgspec.structs.replace(PROMPT, user="session nine"), Facts)
        await _until(lambda: len(stub.asked) == 10)  # the one that was given up is noted when its server notices


@pytest.mark.parametrize(
    ("status", "named"), [(401, "EVEROS_LLM__API_KEY"), (403, "[llm]"), (404, "base_url"), (405, "base_url")]
)
async def test_what_a_person_has_to_mend_is_named(
    stub: chat_stub.ChatStub, opened: Open, status: int, named: str
) -> None:
    """A wrong key or address is no fault of the texts, and repeating the request at once helps nobody."""
    stub.status = status
    async with opened() as found:
        with pytest.raises(errors.LLMUnavailable) as caught:
            await found.ask(PROMPT, Facts)
        assert named in caught.value.hint
        assert named in found.state.hint
    assert 1 == len(stub.asked)


async def test_Z07_the_key_and_the_texts_are_in_no_message_and_no_log(
    stub: chat_stub.ChatStub, opened: Open, caplog: pytest.LogCaptureFixture
) -> None:
    """The provider repeats the header and the prompt; neither errors, their causes nor any logger do."""
    caplog.set_level(logging.INFO)
    logging.getLogger("httpx").setLevel(logging.DEBUG)
    said = ""
    async with opened(max_retries=0) as found:
        for behaviour in (
            {"key": "another"},
            {"key": "", "status": 500},
            {"status": 400},
            {"status": 200, "rejected": "Vienna"},
        ):
            for name, value in behaviour.items():
                setattr(stub, name, value)
            with pytest.raises(errors.LLMError) as caught:
                await found.ask(PROMPT, Facts)
            said += "".join(traceback.format_exception(caught.value)) + caught.value.hint + repr(vars(caught.value))
            said += repr(found.state)
            assert None is caught.value.__cause__ is caught.value.__context__
    assert KEY in stub.asked[0].authorization
    for secret in (KEY, "Vienna", "told to"):
        assert secret not in said + caplog.text


async def test_other_settings_are_used_from_the_next_request_on(stub: chat_stub.ChatStub, opened: Open) -> None:
    """Who waits for the old provider is answered by the new one; what is under way there ends there."""
    with chat_stub.ChatStub(answers={"facts": {"facts": ["new"]}}) as other:
        async with opened(clock.SystemClock(), max_concurrent=1) as found:
            await found.ask(PROMPT, Facts)
            stub.is_hanging = True
            old = asyncio.create_task(found.ask(PROMPT, Facts))
            await _until(lambda: stub.n_under_way == 1)
            waiting = asyncio.create_task(found.ask(PROMPT, Facts))
            await asyncio.sleep(0)
            found.use(_settings(other, language="English", max_concurrent=1))
            assert "English" == found.language
            assert ["new"] == (await waiting).facts
            assert ["new"] == (await found.ask(PROMPT, Facts)).facts
            stub.is_hanging = False
            assert Facts(**FACTS) == await old
            await _until(lambda: not found._old and not found._closing)
        assert 2 == len(stub.asked)


async def test_settings_that_are_mended_end_a_long_wait(stub: chat_stub.ChatStub, opened: Open) -> None:
    """The old provider asked for a minute; the new one is asked at once."""
    with chat_stub.ChatStub(answers={"facts": {"facts": ["new"]}}) as other:
        async with opened(clock.SystemClock()) as found:
            await found.ask(PROMPT, Facts)
            stub.forget()
            stub.fail(1, status=429, retry_after="50")
            waiting = asyncio.create_task(found.ask(PROMPT, Facts))
            await _until(lambda: found._line.left_alone_s > 0)
            found.use(_settings(other))
            assert ["new"] == (await asyncio.wait_for(waiting, 5)).facts


async def test_what_is_under_way_ends_when_it_is_closed(stub: chat_stub.ChatStub, opened: Open) -> None:
    """A stop waits neither for a request that hangs nor for the moment a provider named."""
    async with opened(clock.SystemClock(), max_retries=5) as found:
        await found.ask(PROMPT, Facts)
        stub.is_hanging = True
        hanging = asyncio.create_task(found.ask(PROMPT, Facts))
        await _until(lambda: stub.n_under_way > 0)
        async with asyncio.timeout(5):
            await found.close()
            with pytest.raises(errors.LLMUnavailable, match="closed"):
                await hanging
        with pytest.raises(errors.LLMUnavailable, match="closed"):
            await found.ask(PROMPT, Facts)


async def test_a_caller_that_goes_away_frees_its_place(stub: chat_stub.ChatStub, opened: Open) -> None:
    """A cancelled call leaves no request behind that blocks the next."""
    async with opened(max_concurrent=1) as found:
        await found.ask(PROMPT, Facts)
        stub.is_hanging = True
        gone = asyncio.create_task(found.ask(PROMPT, Facts))
        await _until(lambda: stub.n_under_way > 0)
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        stub.is_hanging = False
        assert Facts(**FACTS) == await asyncio.wait_for(found.ask(PROMPT, Facts), 2)
        assert 0 == found.state.n_under_way


async def test_texts_that_are_no_unicode_or_hold_nul_are_sent_as_something(
    stub: chat_stub.ChatStub, opened: Open
) -> None:
    """Half a surrogate pair is no reason to fail."""
    async with opened() as found:
        await found.ask(msgspec.structs.replace(PROMPT, user="tea \ud83d \0"), Facts)
    assert "tea ? \0" == stub.asked[0].user


async def test_texts_go_to_no_address_that_the_settings_do_not_name(stub: chat_stub.ChatStub, opened: Open) -> None:
    """The provider sends requests on to somebody else: he gets nothing."""
    with chat_stub.ChatStub() as other:
        stub.moved_to = f"{other.url}/chat/completions"
        async with opened(max_retries=0) as found:
            with pytest.raises(errors.LLMUnavailable, match="307"):
                await found.ask(PROMPT, Facts)
        assert [] == other.asked


async def test_the_stub_is_a_model_that_behaves(opened: Open) -> None:
    """What nobody scripted is answered in the shape that was asked for, with words of the conversation alone."""
    talk = "[2023-05-08T13:56:00+02:00] Mara: I live in Vienna now. Bob helped.\n[2023-05-08T13:57:00+02:00] Bob: Glad that I could help!"
    asked = prompt.Prompt(name="other", version=1, system="", user=talk)
    async with opened() as found:
        assert ["Mara: I live in Vienna now.", "Bob: Glad that I could help!"] == (await found.ask(asked, Facts)).facts
