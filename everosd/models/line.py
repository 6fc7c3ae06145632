"""A chat endpoint: which words it takes, and one question put to it in them."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec
import structlog

from everosd import clock, config, errors
from everosd.models import wire

if TYPE_CHECKING:
    import openai
    from openai.types.chat import ChatCompletionMessageParam

log = structlog.get_logger(__name__)

_BYTES_PER_TOKEN = 64
"""Of an answer: four letters of twelve bytes each, as JSON may write them, and reasoning beside it."""
_REFUSED = (400, 422, 501)
"""Statuses with which servers say that they do not know a parameter; where they name it, 404 as well."""
_NOT_FOUND = 404
_NEXT_TEMPERATURE = 0.4


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What is sent, whatever the server takes."""

    name: str
    system: str
    user: str
    schema: dict[str, Any]
    max_tokens: int
    temperature: float = 0.0
    complaint: str = ""
    """What was wrong with the last answer; empty: there was none, or nothing."""

    def again(self, *, max_tokens: int = 0, complaint: str = "") -> Question:
        """Return it for another answer; at temperature 0 the same one would come again."""
        return msgspec.structs.replace(
            self,
            max_tokens=max_tokens or self.max_tokens,
            complaint=complaint or self.complaint,
            temperature=_NEXT_TEMPERATURE,
        )


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """There was no answer."""

    error: errors.LLMError
    is_worth_repeating: bool
    """Whether the same request may succeed within seconds."""
    is_cut: bool = False
    """The answer ran into the limit."""
    complaint: str = ""
    """What was wrong with the answer, as the model is told; empty: nothing that it could mend."""


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """What the server takes of the parameters that not every one knows."""

    format: Literal["json_schema", "json_object", ""] = "json_schema"
    limit: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    has_temperature: bool = True

    def without(self, parameter: str) -> Dialect | None:
        """Return what to try where the server refused `parameter` (empty: it did not say which); None: nothing."""
        formats: dict[str, Literal["json_schema", "json_object", ""]] = {
            "json_schema": "json_object",
            "json_object": "",
        }
        is_unknown = not parameter.startswith(("response_format", "max_", "temperature"))
        if self.format in formats and (is_unknown or parameter.startswith("response_format")):
            return msgspec.structs.replace(self, format=formats[self.format])
        if self.limit == "max_tokens" and (is_unknown or parameter.startswith("max_")):
            return msgspec.structs.replace(self, limit="max_completion_tokens")
        if self.has_temperature and (is_unknown or parameter == "temperature"):
            return msgspec.structs.replace(self, has_temperature=False)
        return None


class Line(wire.Wire):
    """The endpoint that some settings name, and what is known of it."""

    def __init__(self, settings: config.Llm, time: clock.Clock) -> None:
        """Nothing is opened or imported before the first call."""
        where = wire.Where(
            model=settings.model,
            key=settings.api_key,
            url=settings.url,
            timeout_s=settings.timeout_seconds,
            section="llm",
            takes="conversations",
            gives="answers",
        )
        super().__init__(where, time)
        self.places = asyncio.Semaphore(settings.max_concurrent)
        self.n_users = 0
        """Calls that wait for it, or for an answer from it."""
        self.is_left = False
        """Other settings are in force: nothing more is sent."""
        self._left = asyncio.Event()
        self._dialect = Dialect()
        self._proven: set[tuple[str, Dialect]] = set()
        """Which prompts were answered how: a refusal then is of the text."""

    @property
    def is_open(self) -> bool:
        """Whether there is something to close."""
        return self._connecting is not None

    @property
    def left_alone_s(self) -> float:
        """How long nothing may be sent yet because the provider said so."""
        return max(0.0, self._closed_until_s - self._time.monotonic_s())

    def leave(self) -> None:
        """Send nothing more and let go whoever waits; requests that are under way end by themselves."""
        self.is_left = True
        self._left.set()
        for _ in range(self.n_users):
            self.places.release()  # requests that hang may hold all of them; nothing is sent any more

    async def turn(self) -> None:
        """Wait until a request may be sent, or this is left."""
        turn = asyncio.ensure_future(self._turn())
        left = asyncio.ensure_future(self._left.wait())
        try:
            await asyncio.wait((turn, left), return_when=asyncio.FIRST_COMPLETED)
            if turn.done():
                turn.result()
        finally:
            turn.cancel()
            left.cancel()

    async def back_off(self, n_sent: int) -> None:
        """Wait before a request is sent again."""
        await self._back_off(n_sent)

    def no_answer(self) -> errors.LLMUnavailable:
        """Return what to raise for a page of a proxy, half an answer, nothing."""
        return self._no_answer()

    async def reply(self, question: Question, n_sent: int) -> wire.Answer | Failure:
        """Send a question in words that the server takes, and return its answer."""
        dialect = began = self._dialect
        while True:
            given = await self._say(question, dialect)
            if given.status == wire.OK:
                break
            plainer = dialect.without(given.parameter) if self._may_take_less(question, dialect, given) else None
            if plainer is None:
                error = cast("errors.LLMError", self._failure(given, n_sent))
                return Failure(error=error, is_worth_repeating=given.is_worth_repeating)
            dialect = plainer
        self._proven.add((question.name, dialect))
        if dialect != began and self._dialect == began:
            self._dialect = dialect
            log.info("llm_endpoint_takes_less", provider=self.name, **msgspec.structs.asdict(dialect))
        return given

    def _may_take_less(self, question: Question, dialect: Dialect, given: wire.Answer) -> bool:
        """Return whether a refusal may be of a parameter, and not of the text."""
        if (question.name, dialect) in self._proven or given.code == "context_length_exceeded":
            return False
        return given.status in _REFUSED or (given.status == _NOT_FOUND and bool(given.parameter))

    async def _say(self, question: Question, dialect: Dialect) -> wire.Answer:
        shape = {"name": question.name, "strict": True, "schema": question.schema}
        body: dict[str, Any] = {dialect.limit: question.max_tokens}
        if dialect.has_temperature:
            body["temperature"] = question.temperature
        if dialect.format == "json_schema":
            body["response_format"] = {"type": "json_schema", "json_schema": shape}
        elif dialect.format:
            body["response_format"] = {"type": "json_object"}
        messages = _messages(question, is_shape_told=dialect.format != "json_schema" or bool(question.complaint))

        def request(client: openai.AsyncOpenAI) -> Any:
            return client.chat.completions.with_raw_response.create(
                model=self._where.model, messages=cast("list[ChatCompletionMessageParam]", messages), extra_body=body
            )

        return await self._send(request, wire.BYTES_BESIDE + question.max_tokens * _BYTES_PER_TOKEN)

    def _warm(self, client: openai.AsyncOpenAI) -> None:
        _ = client.chat.completions.with_raw_response.create


def _messages(question: Question, *, is_shape_told: bool) -> list[dict[str, str]]:
    """Return what is said; the shape of the answer in words where the server may not heed it otherwise."""
    system, user = question.system, question.user
    if is_shape_told:
        shape = json.dumps({"title": question.name} | question.schema, ensure_ascii=False)
        system = f"{system}\n\nAnswer with JSON alone, an object that fits this schema:\n{shape}".strip()
    if question.complaint:
        user = (
            f"{user}\n\nYour last answer could not be used: it {question.complaint}. Answer once more, with the JSON"
            " alone: no other text, no reasoning, no fence around it."
        )
    said = [{"role": "user", "content": user}]
    return [{"role": "system", "content": system}, *said] if system else said
