"""Agent cases: what was wanted, how it went and how well, from the messages alone or from a model held against them."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from everosd import clock, config, errors, types
from everosd.api import item
from everosd.engine import strategy
from everosd.intake import case, message, trace
from everosd.models import chat, prompt
from tests import open_root
from tests.chat_stub import ChatStub

NOON_US = 1_772_452_800_000_000  # 2026-03-02T12:00:00Z
SESSION = types.Owner(app="default", project="default", type="session", id="s_1")
HELPER = types.Owner(app="default", project="default", type="agent", id="helper")
PROMPTS = Path(case.__file__).parent / "prompts"


def said(at: int, sender: str, role: message.Role, text: str = "", **more: str) -> message.Message:
    """Return a message, `at` minutes after noon."""
    return message.Message(
        id=f"m_{at}", sender_id=sender, role=role, timestamp_us=NOON_US + at * 60_000_000, text=text, **more
    )


def calls(*asked: tuple[str, str, dict[str, Any]]) -> str:
    """Return tool calls as OpenAI has them: id, name, arguments."""
    return json.dumps(
        [
            {"id": one, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for one, name, arguments in asked
        ]
    )


def segment(*messages: message.Message) -> message.Segment:
    """Return a segment."""
    return message.Segment(session=SESSION, id="mc_000000000001", messages=messages, reason="flush")


DEPLOY = segment(
    said(0, "mara", "user", "Hi!"),
    said(1, "mara", "user", "Please deploy billing to staging."),
    said(2, "helper", "assistant", tool_calls=calls(("c1", "deploy", {"service": "billing", "to": "staging"}))),
    said(3, "runner", "tool", '{"error": "image billing:42 not found"}', tool_call_id="c1"),
    said(4, "helper", "assistant", tool_calls=calls(("c2", "build", {"service": "billing"}))),
    said(5, "runner", "tool", "built billing:42", tool_call_id="c2"),
    said(6, "helper", "assistant", tool_calls=calls(("c3", "deploy", {"service": "billing", "tag": 42}))),
    said(7, "runner", "tool", '{"status": "ok", "url": "https://staging.example"}', tool_call_id="c3"),
    said(8, "helper", "assistant", "Billing 42 runs on staging."),
    said(9, "mara", "user", "Thanks!"),
)


def test_a_case_is_what_was_asked_done_and_answered() -> None:
    """The request before the first call, each call with what came of it, the last answer; nothing is added."""
    made = case.of(DEPLOY, "helper")
    assert "Please deploy billing to staging." == made.task_intent
    assert [
        '1. deploy(service="billing", to="staging") → failed: {"error": "image billing:42 not found"}',
        '2. build(service="billing") → built billing:42',
        '3. deploy(service="billing", tag=42) → {"status": "ok", "url": "https://staging.example"}',
        "4. helper: Billing 42 runs on staging.",
    ] == made.approach.splitlines()
    assert made.key_insight.startswith('deploy(service="billing", to="staging") → failed')
    assert (0.8, "verbatim") == (made.quality_score, made.by)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"error": null, "rows": 3}', False),
        ('{"error": "no such table"}', True),
        ('{"success": false}', True),
        ('{"is_error": true, "text": "x"}', True),
        ('{"status": "ok"}', False),
        ('{"status": 503}', True),
        ('{"exit_code": 2}', True),
        ('{"exit_code": 0}', False),
        ("Error: no route to host", True),
        ("Traceback (most recent call last):\n  File …\nKeyError: 'a'", True),
        ("sh: foo: command not found", True),
        ("process exited with code 1", True),
        ("process exited with code 0", False),
        ("HTTP/1.1 404 Not Found", True),
        ("3 flights found, no errors", False),
        ("The errors of the past are listed below", False),
        ("", False),
        ("{broken", False),
    ],
)
def test_a_failure_is_told_from_a_result(text: str, expected: bool) -> None:  # noqa: FBT001 - a table
    """By what programs and tools usually say; the word alone makes no failure."""
    assert expected is trace.is_failure(text)


@pytest.mark.parametrize(
    "written",
    [
        '[{"name": "search", "arguments": {"q": "x"}}]',
        '{"name": "search", "input": {"q": "x"}}',
        '[{"function": {"name": "search", "arguments": "{\\"q\\": \\"x\\"}"}}, 7, {"id": "y"}]',
        '[{"id": 5, "name": "search", "args": {"q": "x"}}]',
    ],
)
def test_tool_calls_of_other_shapes_are_read(written: str) -> None:
    """Every provider has its own; what is no call is passed over."""
    (only,) = trace.steps([said(0, "helper", "assistant", tool_calls=written)])
    assert 'search(q="x")' == only.call()


def test_calls_that_are_no_json_are_no_calls() -> None:
    """The case is made of what else was said."""
    one = segment(said(0, "mara", "user", "Do it"), said(1, "helper", "assistant", "Done", tool_calls="garbage"))
    made = case.of(one, "helper")
    assert ("Do it", "1. helper: Done", 0.5) == (made.task_intent, made.approach, made.quality_score)


def test_long_work_is_bounded() -> None:
    """A hundred calls with results of a megabyte make a case of a page."""
    messages = [said(0, "mara", "user", "Read all files. " * 1000)]
    for at in range(100):
        messages.append(said(at, "helper", "assistant", tool_calls=calls((str(at), "read", {"text": "x" * 10_000}))))
        messages.append(said(at, "runner", "tool", "y" * 1_000_000, tool_call_id=str(at)))
    made = case.of(segment(*messages), "helper")
    assert len(made.task_intent) <= case.MAX_INTENT_CHARS
    assert len(made.approach) <= case.MAX_APPROACH_CHARS
    assert "… 70 more" in made.approach


def test_what_the_model_makes_up_is_not_kept() -> None:
    """A name and a number that nobody said are left out; what holds is taken."""
    plain = case.of(DEPLOY, "helper")
    answer = case.Answer(
        task_intent="Deploy billing to staging for Bernadette.",
        approach="1. build billing\n2. deploy billing, tag 42",
        key_insight="Build 7731 first.",
        quality_score=1.7,
    )
    made = case.checked(answer, plain, case._sources(DEPLOY), name="gpt")
    assert plain.task_intent == made.task_intent
    assert answer.approach == made.approach
    assert plain.key_insight == made.key_insight
    assert (1.0, "gpt") == (made.quality_score, made.by)


@pytest.mark.parametrize("score", [float("nan"), None, -3.0, 5.0])
def test_a_score_is_a_share(score: float | None) -> None:
    """Whatever a model answers, and a failure is not called a success."""
    failed = segment(
        said(0, "mara", "user", "Deploy."),
        said(1, "helper", "assistant", tool_calls=calls(("c1", "deploy", {}))),
        said(2, "runner", "tool", "Error: no", tool_call_id="c1"),
    )
    plain = case.of(failed, "helper")
    made = case.checked(case.Answer(quality_score=score), plain, [], name="gpt")
    assert 0.0 == made.quality_score
    assert (
        0.0
        <= case.checked(case.Answer(quality_score=score), case.of(DEPLOY, "helper"), [], name="g").quality_score
        <= 1
    )


# -- the strategy ------------------------------------------------------------------------------------------------------


@pytest.fixture
async def root(tmp_path: Path) -> AsyncIterator[open_root.Root]:
    """An open root."""
    async with open_root.opened(tmp_path) as made:
        yield made


def llm(**values: object) -> config.Llm:
    """Return settings of a model."""
    given = {
        "model": "", "api_key": config.Secret(""), "base_url": "", "timeout_seconds": 10.0, "max_retries": 0,
        "max_concurrent": 4, "max_input_tokens": 4000, "max_output_tokens": 1000, "language": "", "prompts": "",
    }  # fmt: skip
    return msgspec.convert({**given, **values}, config.Llm)


def cases(
    root: open_root.Root, *segments: message.Segment, model: chat.Chat | None = None, mode: str = "agent"
) -> tuple[case.Cases, list[strategy.Event]]:
    """Return the strategy over a root, and what it emits."""
    emitted: list[strategy.Event] = []

    async def find(session: types.Owner, memcell_id: str) -> message.Segment | None:
        return next((one for one in segments if (one.session, one.id) == (session, memcell_id)), None)

    made = case.Cases(
        segments=find,
        reader=root.reader,
        pen=root.pen,
        model=model or chat.Chat(llm(), clock.SystemClock()),
        prompts=lambda name: prompt.load(name, (PROMPTS,)),
        mode=lambda: msgspec.convert({"mode": mode}, config.Memorize),
        zone=lambda: dt.UTC,
        emit=emitted.append,
        settled=root.settled,
    )
    return made, emitted


DONE = strategy.Event(topic="segment_done", owner=SESSION, subject=DEPLOY.id, origin="o")


async def test_a_case_is_written_once_and_shown(root: open_root.Root) -> None:
    """Run again, by this process or the next, it is the same case, and what follows is told each time."""
    first, emitted = cases(root, DEPLOY)
    await first.run(DONE)
    await first.run(DONE)
    second, later = cases(root, DEPLOY)
    await second.run(DONE)
    (row,) = await root.all(HELPER, "agent_case")
    told = strategy.Event(topic="case_written", owner=HELPER, subject=row.entry_id, origin="o")
    assert ([told, told], [told]) == (emitted, later)
    shown = item.Maker(zone=dt.UTC, now_us=NOON_US).got_agent_case(row)
    assert ("helper", "s_1", 0.8) == (shown.agent_id, shown.session_id, shown.quality_score)
    assert "Please deploy billing to staging." == shown.task_intent
    assert ("memcell", DEPLOY.id) == (row.parent_type, row.parent_id)


async def test_only_agents_that_used_tools_have_cases(root: open_root.Root) -> None:
    """One who only talked has none, and neither has anybody in a talk without tools, or where the mode is chat."""
    talked = said(10, "poet", "assistant", "A rose is a rose.")
    both, emitted = cases(root, msgspec.structs.replace(DEPLOY, messages=(*DEPLOY.messages, talked)))
    await both.run(DONE)
    assert [HELPER] == [event.owner for event in emitted]
    plain, none = cases(root, segment(DEPLOY.messages[0], talked))
    assert "no tools were used" == await plain.run(DONE)
    silent, nothing = cases(root, DEPLOY, mode="chat")
    assert "[memorize] mode" in await silent.run(DONE)
    gone, last = cases(root)
    assert "the segment is gone" == await gone.run(DONE)
    assert [] == none + nothing + last


async def test_an_agent_with_an_id_that_nobody_can_have_is_passed_over(root: open_root.Root) -> None:
    """A row that a person wrote into the log can name anybody; no path is made of it."""
    odd = tuple(
        msgspec.structs.replace(one, sender_id="../../evil") if one.sender_id == "helper" else one
        for one in DEPLOY.messages
    )
    made, emitted = cases(root, segment(*odd))
    assert "no tools were used" == await made.run(DONE)
    assert [] == emitted


async def test_a_model_that_is_away_is_waited_for_and_nonsense_is_not(root: open_root.Root) -> None:
    """Unavailable: nothing is written, it is tried again. Unusable: the case is what the messages say."""
    with ChatStub() as stub:
        model = chat.Chat(llm(model="stub", base_url=stub.url), clock.SystemClock())
        made, emitted = cases(root, DEPLOY, model=model)
        stub.fail(20, status=503)
        with pytest.raises(errors.LLMUnavailable):
            await made.run(DONE)
        assert [] == await root.all(HELPER, "agent_case")
        stub.forget()
        stub.dress = "only_prose"
        await made.run(DONE)
        (row,) = await root.all(HELPER, "agent_case")
        assert "**extracted_by**: verbatim" in row.raw
        assert 1 == len(emitted)
        await model.close()


async def test_I09_an_agent_that_is_forgotten_while_the_model_reads_has_no_case(root: open_root.Root) -> None:
    """Its messages are out of the session once the answer comes: nothing is written of it, and nothing is told."""
    with ChatStub() as stub:
        model = chat.Chat(llm(model="stub", base_url=stub.url), clock.SystemClock())
        made, emitted = cases(root, DEPLOY, model=model)
        left = segment(*(one for one in DEPLOY.messages if one.sender_id != "helper"))
        answers = iter((DEPLOY, left))

        async def find(_session: types.Owner, _memcell_id: str) -> message.Segment | None:
            return next(answers)

        made._segments = find
        assert "0 cases" == await made.run(DONE)
        assert ([], []) == (await root.all(HELPER, "agent_case"), emitted)
        await model.close()


async def test_a_case_of_the_model_is_held_against_the_messages(root: open_root.Root) -> None:
    """What it says from the talk is stored; a date out of nowhere is not."""
    with ChatStub() as stub:
        stub.script(
            case.PROMPT,
            {
                "task_intent": "Deploy billing to staging",
                "approach": "1. deploy failed\n2. build billing\n3. deploy billing",
                "key_insight": "Since 2019-04-01 one builds first.",
                "quality_score": 0.9,
            },
        )
        model = chat.Chat(llm(model="stub", base_url=stub.url), clock.SystemClock())
        made, _ = cases(root, DEPLOY, model=model)
        await made.run(DONE)
        (row,) = await root.all(HELPER, "agent_case")
        assert "Deploy billing to staging" in row.raw
        assert "2019" not in row.raw
        assert "**quality_score**: 0.9" in row.raw
        (asked,) = stub.asked_of(case.PROMPT)
        assert "[2026-03-02 12:01] mara (user): Please deploy billing to staging." in asked.user
        await model.close()
