"""Agent cases: what an agent worked on with its tools, how, and how well. One a segment and agent."""

from __future__ import annotations

import asyncio
import collections
import datetime as dt
import math
from collections.abc import Awaitable, Callable, Sequence

import msgspec
import structlog

from everosd import clock, config, errors, types
from everosd.engine import strategy
from everosd.intake import message, opinion, row, trace, verbatim
from everosd.log import entry, layout, writer
from everosd.models import chat
from everosd.narrative import check
from everosd.store import read

log = structlog.get_logger(__name__)

NAME = "extract_agent_case"
PROMPT = "agent_case"

MAX_INTENT_CHARS = 500
MAX_APPROACH_CHARS = 6000
MAX_INSIGHT_CHARS = 500
_MAX_SHOWN_CHARS = 1200
"""Of one message that the model is shown: results of tools can be files."""
_N_REMEMBERED = 1000
"""Cases that this process wrote and the ledger may not know yet."""

Segments = Callable[[types.Owner, str], Awaitable[message.Segment | None]]
"""Session and memcell id → the segment with its messages; None where there is none (any more)."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What the model says."""

    task_intent: str = ""
    approach: str = ""
    key_insight: str | None = None
    quality_score: float | None = None


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """What is written."""

    task_intent: str
    approach: str
    key_insight: str
    """Empty: none."""
    quality_score: float
    """0 (failed) to 1."""
    by: str
    """`verbatim`, or the model that wrote it."""


class Cases:
    """The strategy. Lives on the event loop."""

    def __init__(
        self,
        *,
        segments: Segments,
        reader: read.Reader,
        pen: writer.Writer,
        model: chat.Chat,
        prompts: opinion.Prompts,
        mode: Callable[[], config.Memorize],
        zone: Callable[[], dt.tzinfo],
        emit: Callable[[strategy.Event], None],
        settled: Callable[[], Awaitable[None]],
    ) -> None:
        """Wire it.

        Args:
            segments: Finds what happened.
            reader: Asked what an earlier process wrote.
            pen: Writes cases.
            model: Asked where one is set up.
            prompts: Where its prompt is found.
            mode: `[memorize]` as it is now.
            zone: Of the times that the model is shown.
            emit: Told of each case that is on disk.
            settled: Returns once the ledger has what is on disk.
        """
        self._segments, self._reader, self._pen = segments, reader, pen
        self._model, self._prompts, self._mode, self._zone = model, prompts, mode, zone
        self._emit, self._settled = emit, settled
        self._written: collections.OrderedDict[tuple[types.Owner, str, str], str] = collections.OrderedDict()

    async def run(self, event: strategy.Event) -> str:
        """Write the cases of a segment that has none yet.

        Raises:
            errors.LLMUnavailable: the model cannot be asked now.
            errors.LogError: the session cannot be read, or the case not be written.
        """
        if self._mode().mode != "agent":
            return "agents are not remembered: [memorize] mode"
        segment = await self._segments(event.owner, event.subject)
        if segment is None:
            return "the segment is gone"
        owners = _owners(segment)
        if not owners:
            return "no tools were used"
        await self._settled()
        found = {owner: await self._case(owner, segment) for owner in owners}
        ids = {owner: case_id for owner, case_id in found.items() if case_id is not None}
        for owner, case_id in ids.items():
            self._emit(strategy.Event(topic="case_written", owner=owner, subject=case_id, origin=event.origin))
        return f"{len(ids)} case{'s' if len(ids) != 1 else ''}{': ' if ids else ''}{', '.join(ids.values())}"

    def forget_owner(self, owner: types.Owner) -> None:
        """Let go of what is known of an owner whose files have been deleted."""
        for key in [key for key in self._written if key[0] == owner]:
            del self._written[key]

    async def _case(self, owner: types.Owner, segment: message.Segment) -> str | None:
        """Return the case of an agent and a segment, written if there is none; None: the agent was forgotten meanwhile."""
        key = owner, segment.session.id, segment.id
        found = self._written.get(key)
        if found is None:
            rows = await self._reader.children(owner, (segment.id,), "agent_case")
            found = next((each.entry_id for each in rows if each.session_id == segment.session.id), None)
        if found is None:
            made = await self._read(owner, segment)
            now = await self._segments(segment.session, segment.id)
            if now is None or owner not in _owners(now):
                return None
            (found,) = await self._pen.append(owner, "agent_case", [_draft(owner, segment, made)])
            self._written[key] = found
            while len(self._written) > _N_REMEMBERED:
                self._written.popitem(last=False)
        return found

    async def _read(self, owner: types.Owner, segment: message.Segment) -> Case:
        plain = await asyncio.to_thread(of, segment, owner.id)
        if not self._model.is_set_up:
            return plain
        prompt, shown = await asyncio.to_thread(lambda: (self._prompts(PROMPT), self._shown(segment)))
        try:
            answer = await self._model.ask(
                prompt.filled(
                    conversation=shown,
                    agent=_called(segment, owner.id),
                    language=self._model.language or "the language of the conversation",
                ),
                Answer,
            )
        except errors.LLMRejected as error:
            log.info("case_verbatim", memcell=segment.id, reason=str(error))
            return plain
        name, days = self._model.name, _days(segment, self._zone())
        return await asyncio.to_thread(lambda: checked(answer, plain, _sources(segment), name=name, days=days))

    def _shown(self, segment: message.Segment) -> str:
        """Return the conversation, shortened in its middle to what the model takes."""
        lines = [self._line(one) for one in segment.messages]
        room = max(1000, self._model.max_input_tokens * 3 // 4)
        costs = [self._model.n_tokens(line) for line in lines]
        first, last = 0, len(lines)
        # From both ends: what was asked for stands at the beginning, what came of it at the end.
        while first < last and room > 0:
            from_start = first <= len(lines) - last
            at = first if from_start else last - 1
            if costs[at] > room:
                break
            room -= costs[at]
            first, last = (first + 1, last) if from_start else (first, last - 1)
        left_out = [f"[… {last - first} messages left out]"] if first < last else []
        return "\n".join((*lines[:first], *left_out, *lines[last:]))

    def _line(self, one: message.Message) -> str:
        at = clock.from_us(one.timestamp_us).astimezone(self._zone())
        said = " ".join(one.text.split())
        if len(said) > _MAX_SHOWN_CHARS:
            half = _MAX_SHOWN_CHARS // 2
            said = f"{said[:half]} … {said[-half:]}"
        calls = " ".join(f"[calls {step.call()}]" for step in trace.steps((one,)))
        return f"[{at:%Y-%m-%d %H:%M}] {one.name} ({one.role}): {' '.join(part for part in (said, calls) if part)}"


def of(segment: message.Segment, agent_id: str) -> Case:
    """Return an agent's case as the messages have it, without a model.

    What was wanted is what a user said last before the first call; the approach is the calls and what came of them.
    """
    steps = [step for step in trace.steps(segment.messages) if types.nfc(step.sender_id) == agent_id]
    lines = [step.line() for step in steps]
    answer = next(
        (one for one in reversed(segment.messages) if types.nfc(one.sender_id) == agent_id and one.text.strip()), None
    )
    if answer is not None and not answer.tool_calls:
        lines.append(f"{answer.name}: {trace.shortened(answer.text, 2 * trace.MAX_OUTCOME_CHARS)}")
    if not steps:
        lines = [f"{one.name}: {trace.shortened(one.text)}" for one in segment.messages if one.role != "user"]
    return Case(
        task_intent=_intent(segment, agent_id, steps),
        approach=trace.numbered(lines)[:MAX_APPROACH_CHARS],
        key_insight=_insight(steps),
        quality_score=trace.quality(steps or trace.steps(segment.messages)),
        by=verbatim.BY,
    )


def _intent(segment: message.Segment, agent_id: str, steps: Sequence[trace.Step]) -> str:
    asked = ""
    for one in segment.messages:
        if one.role == "user" and one.text.strip():
            asked = one.text
        elif asked and (one.tool_calls or one.role == "tool") and (types.nfc(one.sender_id) == agent_id or not steps):
            break
    tools = ", ".join(dict.fromkeys(step.tool for step in steps))
    return trace.shortened(asked, MAX_INTENT_CHARS) or tools or "?"


def _insight(steps: Sequence[trace.Step]) -> str:
    """Return what had to be tried again, and how it worked in the end; empty where everything worked at once."""
    for at, step in enumerate(steps):
        if step.is_failed:
            later = next((each for each in steps[at + 1 :] if each.tool == step.tool and not each.is_failed), None)
            if later is not None and later.is_answered and later.call() != step.call():
                return trace.shortened(f"{step.line()}; {later.line()}", MAX_INSIGHT_CHARS)
    return ""


def checked(answer: Answer, plain: Case, sources: Sequence[str], *, name: str, days: Sequence[dt.date] = ()) -> Case:
    """Return the model's case as far as its sources have what it says; what they have not is taken from `plain`."""
    grounds = check.Grounds(sources, dates=days)

    def kept(text: str, limit: int) -> str:
        text = text.strip()
        return text if text and len(text) <= limit and not grounds.inventions(trace.unnumbered(text)) else ""

    intent, approach = kept(answer.task_intent, MAX_INTENT_CHARS), kept(answer.approach, MAX_APPROACH_CHARS)
    insight = kept(answer.key_insight or "", MAX_INSIGHT_CHARS)
    score = answer.quality_score
    is_score = score is not None and math.isfinite(score)
    quality = min(1.0, max(0.0, score)) if score is not None and is_score else plain.quality_score
    if plain.quality_score < trace.WORKED:
        quality = min(quality, plain.quality_score)  # a model likes to call a failure a success
    return Case(
        task_intent=intent or plain.task_intent,
        approach=approach or plain.approach,
        key_insight=insight or plain.key_insight,
        quality_score=round(quality, 2),
        by=name if intent or approach or insight else plain.by,
    )


def _draft(owner: types.Owner, segment: message.Segment, made: Case) -> entry.Draft:
    sections = [("TaskIntent", made.task_intent), ("Approach", made.approach)]
    if made.key_insight:
        sections.append(("KeyInsight", made.key_insight))
    return entry.Draft(
        fields={
            "owner_id": owner.id,
            "session_id": segment.session.id,
            "timestamp": row.iso(segment.timestamp_us),
            "parent_type": "memcell",
            "parent_id": segment.id,
            "quality_score": str(made.quality_score),
            "extracted_by": made.by,
        },
        sections=tuple(sections),
    )


def _owners(segment: message.Segment) -> list[types.Owner]:
    """Return the agents that used tools; where nobody is said to have called them, all that took part."""
    if not segment.has_tools:
        return []
    agents = {one.sender_id: bool(one.tool_calls) for one in segment.messages if one.role == "assistant"}
    agents |= {one.sender_id: True for one in segment.messages if one.role == "assistant" and one.tool_calls}
    ids = [agent for agent, has_called in agents.items() if has_called] or list(agents)
    found = []
    for agent_id in ids:
        try:
            layout.check_scope_id(types.nfc(agent_id), "sender_id")
        except errors.RequestError as error:  # a row that a person wrote into the log
            log.warning("sender_passed_over", memcell=segment.id, reason=str(error))
            continue
        at = segment.session
        found.append(types.Owner(app=at.app, project=at.project, type="agent", id=types.nfc(agent_id)))
    return list(dict.fromkeys(found))


def _called(segment: message.Segment, agent_id: str) -> str:
    return next((one.name for one in segment.messages if types.nfc(one.sender_id) == agent_id), agent_id)


def _sources(segment: message.Segment) -> list[str]:
    """Return everything that was said and done."""
    steps = trace.steps(segment.messages)
    said = [f"{one.name}: {one.text}\n{one.tool_calls}" for one in segment.messages]
    return [*said, *(step.call() for step in steps)]


def _days(segment: message.Segment, zone: dt.tzinfo) -> list[dt.date]:
    return [clock.from_us(one.timestamp_us).astimezone(zone).date() for one in segment.messages]
