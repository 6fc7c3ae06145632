"""A model's opinion about where a conversation ends. Nobody waits for it, and nothing depends on its coming."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from everosd import clock
from everosd.intake import message
from everosd.models import chat, prompt

NAME = "boundary"
MAX_SHOWN = 60
"""Messages that the model is shown, the newest; a conversation that ended earlier had its chance to be seen."""
MAX_CHARS = 400
"""Of each message: where a topic ends shows in its first lines."""
MAX_ANSWER_TOKENS = 200


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """The model's answer."""

    last_message: int | None = None
    """Number of the last message of the conversation that has ended; None or 0: it goes on."""


class Prompts(Protocol):
    """Where prompts are found."""

    def __call__(self, name: str) -> prompt.Prompt:
        """Return the prompt of a name. Blocking."""


class Opinion:
    """Asks the model."""

    def __init__(self, model: chat.Chat, prompts: Prompts, zone: Callable[[], dt.tzinfo]) -> None:
        """Ask `model`; `zone` is that of the times that it is shown."""
        self._model, self._prompts, self._zone = model, prompts, zone

    @property
    def is_set_up(self) -> bool:
        """Whether there is a model to ask."""
        return self._model.is_set_up

    async def end(self, messages: Sequence[message.Message]) -> int | None:
        """Return how many of the messages belong to a conversation that has ended; None: it goes on.

        The last message never counts as an end: nobody knows yet what follows it.

        Raises:
            errors.LLMError: there is no opinion.
        """
        first = max(0, len(messages) - MAX_SHOWN)
        lines = (self._line(number, one) for number, one in enumerate(messages[first:], start=1))
        asked = (await asyncio.to_thread(self._prompts, NAME)).filled(conversation="\n".join(lines))
        answer = await self._model.ask(asked, Ended, max_tokens=MAX_ANSWER_TOKENS)
        last = answer.last_message or 0
        return first + last if 0 < last < len(messages) - first else None

    def _line(self, number: int, one: message.Message) -> str:
        at = clock.from_us(one.timestamp_us).astimezone(self._zone())
        said = " ".join(one.text.split())[:MAX_CHARS]
        return f"[{number}] {at:%Y-%m-%d %H:%M} {one.name}: {said}"
