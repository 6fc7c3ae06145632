"""Answers from a model behind an endpoint that speaks as OpenAI's `/v1/chat/completions` does.

No word of a prompt, an answer or the provider reaches an error or the log.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any, NamedTuple, TypeVar, cast

import msgspec
import structlog

from everosd import clock, config, errors
from everosd.models import answer, line, prompt, wire

log = structlog.get_logger(__name__)

T = TypeVar("T")

_LARGE_BODY_BYTES = 1 << 14
"""Answers above are read in a thread: one that makes no sense takes up to 10 ms per KB."""
_MANY = 3
"""So many unusable answers one after the other are the model's fault, and not that of what was asked."""
_NOT_A_NAME = re.compile(r"[^A-Za-z0-9_-]")


class State(msgspec.Struct, frozen=True, kw_only=True):
    """How the model did of late, for people."""

    is_failing: bool = False
    """Whether it did not answer when it was asked last, or gave unusable answers only."""
    reason: str = ""
    """Why; empty while it does, or where it was not asked yet."""
    hint: str = ""
    is_away: bool = False
    """Whether it answers nobody: it failed last, and not for what it was asked. A call that takes too long may be long."""
    retry_after_s: float | None = None
    """How long it wants to be left alone yet."""
    n_under_way: int = 0
    """Calls that wait for an answer."""
    n_answers: int = 0
    n_failures: int = 0
    """Calls without one. Both since the daemon began."""


class Chat:
    """The model that reads conversations; none where the settings name none.

    At most `max_concurrent` requests are under way.
    """

    def __init__(self, settings: config.Llm, time: clock.Clock) -> None:
        """Nothing is opened or imported before the first call."""
        self._settings = settings
        self._time = time
        self._line = line.Line(settings, time)
        self._old: set[line.Line] = set()
        """Of former settings, still in use."""
        self._closing: set[asyncio.Task[None]] = set()
        self._n_under_way = 0
        self._n_answers = 0
        self._n_failures = 0
        self._n_unusable = 0
        """One after the other, up to now."""
        self._n_without = 0
        """Calls without any answer, one after the other, up to now."""
        self._last: errors.LLMError | None = None
        """Why the last call had no answer; None: it had."""
        self._is_closed = False

    @property
    def is_set_up(self) -> bool:
        """Whether there is a model to ask."""
        return self._settings.is_set_up

    @property
    def name(self) -> str:
        """What the endpoint calls the model; empty where none is set up."""
        return self._settings.model if self.is_set_up else ""

    @property
    def language(self) -> str:
        """What to write in; empty: the language of the talk."""
        return self._settings.language

    @property
    def max_input_tokens(self) -> int:
        """Longest prompt."""
        return self._settings.max_input_tokens

    @property
    def max_output_tokens(self) -> int:
        """Longest answer, before one is asked for again that is cut off."""
        return self._settings.max_output_tokens

    @property
    def state(self) -> State:
        """How it did of late."""
        last, is_failing = self._last, self._last is not None
        if isinstance(last, errors.LLMRejected):
            is_failing = self._n_unusable >= _MANY
        return State(
            is_failing=is_failing,
            reason=str(last) if is_failing else "",
            hint=last.hint if last is not None and is_failing else "",
            is_away=self._n_without > isinstance(last, wire.TimedOut),
            retry_after_s=self._line.left_alone_s or None,
            n_under_way=self._n_under_way,
            n_answers=self._n_answers,
            n_failures=self._n_failures,
        )

    def use(self, settings: config.Llm) -> None:
        """Go by other settings from now on; requests that are under way end by the old ones. On the event loop."""
        if settings == self._settings or self._is_closed:
            return
        old, self._line = self._line, line.Line(settings, self._time)
        self._settings = settings
        self._last, self._n_unusable, self._n_without = None, 0, 0
        self._old.add(old)
        old.leave()
        self._end(old)

    async def ask(self, asked: prompt.Prompt, kind: type[T], *, max_tokens: int | None = None) -> T:
        """Return the answer as a `kind`: a msgspec struct, or a list.

        `max_tokens` bounds the answer; None: as the settings say. One that is cut off is asked for once more, with
        twice as much. No request takes longer than `timeout_seconds`; it is sent again at most `max_retries` times, where
        that may help: not after a time-out.

        Raises:
            LLMUnavailable: the same may succeed later; not before `retry_after_s` where that is known.
            LLMRejected: the model refuses this prompt, or its answers to it are unusable.
        """
        self._n_under_way += 1
        try:
            given = await self._ask(asked, kind, max_tokens)
        finally:
            self._n_under_way -= 1
        if not isinstance(given, errors.LLMError):
            self._last, self._n_unusable, self._n_without = None, 0, 0
            self._n_answers += 1
            return given
        self._n_failures += 1
        self._last = given
        is_answer = isinstance(given, errors.LLMRejected)
        self._n_unusable = self._n_unusable + 1 if is_answer else 0
        self._n_without = 0 if is_answer else self._n_without + 1
        # Raised here and not where it arose: a cause or context would bring the provider's words into a traceback.
        raise given

    def n_tokens(self, text: str) -> int:
        """Return about how many tokens a model makes of `text`; in all likelihood not fewer than it does."""
        from everosd.models import piece

        return piece.n_tokens(text)

    async def close(self) -> None:
        """Cut what is under way and close the connections; it may not be asked any more."""
        self._is_closed = True
        for each in (self._line, *self._old):
            await each.close()
        if self._closing:
            await asyncio.wait(self._closing)

    async def _ask(self, asked: prompt.Prompt, kind: type[T], max_tokens: int | None) -> T | errors.LLMError:
        if not self.is_set_up:
            hint = "set model under [llm] in everos.toml, and base_url or api_key"
            return errors.LLMUnavailable("the model", "is not set up", hint=hint)
        question = line.Question(
            name=_NOT_A_NAME.sub("_", asked.name)[:64] or "answer",
            system=wire.clean(asked.system),
            user=wire.clean(asked.user),
            schema=answer.schema(cast("Any", kind)),
            max_tokens=max_tokens or self._settings.max_output_tokens,
        )
        n_sent, is_doubled = 0, False
        while True:
            on = self._line
            reply = await self._reply(on, question, n_sent + 1)
            if reply is None:
                continue
            found = await _judged(on.name, reply, kind) or line.Failure(error=on.no_answer(), is_worth_repeating=True)
            if isinstance(found, _Value):
                return cast("T", found.value)
            if found.is_cut and not is_doubled:
                is_doubled = True
                question = question.again(max_tokens=question.max_tokens * 2)
                log.info("answer_cut_off", prompt=question.name, max_tokens=question.max_tokens)
                continue
            n_sent += 1
            if not found.is_worth_repeating or n_sent > self._settings.max_retries:
                return found.error
            if found.complaint:
                question = question.again(complaint=found.complaint)
                log.info("answer_unreadable", prompt=question.name, reason=found.complaint, attempt=n_sent)
            await on.back_off(n_sent)

    async def _reply(self, on: line.Line, question: line.Question, n_sent: int) -> wire.Answer | line.Failure | None:
        """Return what comes of a question; None: there are other settings by now, and nothing was sent."""
        on.n_users += 1
        try:
            async with on.places:
                await on.turn()
                return None if on.is_left else await on.reply(question, n_sent)
        except errors.LLMUnavailable as error:
            if on.is_left and not self._is_closed:
                return None
            return line.Failure(error=error.with_traceback(None), is_worth_repeating=False)
        finally:
            on.n_users -= 1
            self._end(on)

    def _end(self, on: line.Line) -> None:
        """Close a line that was left, once nobody uses it."""
        if on not in self._old or on.n_users:
            return
        self._old.discard(on)
        if on.is_open:
            task = asyncio.get_running_loop().create_task(on.close(), name="llm-close")
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)


class _Value(NamedTuple):
    """A usable answer."""

    value: Any


class _Message(msgspec.Struct, frozen=True, kw_only=True):
    content: str | list[Any] | None = None
    refusal: str | None = None


class _Choice(msgspec.Struct, frozen=True, kw_only=True):
    message: _Message
    finish_reason: str | None = None


class _Body(msgspec.Struct, frozen=True, kw_only=True):
    choices: list[_Choice]


_BODY = msgspec.json.Decoder(_Body)


async def _judged(name: str, reply: wire.Answer | line.Failure, kind: type[Any]) -> _Value | line.Failure | None:
    """Return what was answered, or why that is none; None: it comes from no such endpoint."""
    if isinstance(reply, line.Failure):
        return reply
    body = reply.body
    found = await asyncio.to_thread(_decoded, body, kind) if len(body) > _LARGE_BODY_BYTES else _decoded(body, kind)
    if not isinstance(found, _Unusable):
        return found
    # Refused, filtered, or without an end: the same text will fare no better.
    is_final = not found.is_worth_repeating
    error = errors.LLMRejected(name, f"gives an answer that {found.reason}", is_final=is_final)
    complaint = found.reason if found.is_worth_repeating else ""
    return line.Failure(
        error=error, is_worth_repeating=found.is_worth_repeating, is_cut=found.is_cut, complaint=complaint
    )


class _Unusable(NamedTuple):
    """An answer that is none."""

    reason: str
    """Reads on after "an answer that"."""
    is_cut: bool = False
    is_worth_repeating: bool = False


def _decoded(body: bytes, kind: type[Any]) -> _Value | _Unusable | None:
    try:
        choices = _BODY.decode(body).choices
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return _said(choices[0], kind) if choices else None


def _said(choice: _Choice, kind: type[Any]) -> _Value | _Unusable:
    if choice.message.refusal:
        return _Unusable("is a refusal")
    if choice.finish_reason == "content_filter":
        return _Unusable("was ended by a filter of the provider")
    text = _text(choice.message.content)
    # Servers that force the shape let a model write blanks behind it until the limit.
    if choice.finish_reason == "length" and not answer.is_whole(text):
        return _Unusable("is cut off", is_cut=True)
    try:
        return _Value(answer.read(text, kind))
    except answer.Unreadable as error:
        return _Unusable(error.reason, is_worth_repeating=True)


def _text(content: str | list[Any] | None) -> str:
    """Return what was said; where that comes in parts, those that are no reasoning."""
    if isinstance(content, list):
        parts = [each for each in content if isinstance(each, dict) and each.get("type") in ("text", "output_text")]
        return "".join(str(each.get("text") or "") for each in parts)
    return content or ""
