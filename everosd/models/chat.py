"""Answers from a model behind an endpoint that speaks as OpenAI's `/v1/chat/completions` does.

No word of a prompt, an answer or the provider reaches an error or the log.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from everosd import clock, config
from everosd.models import piece, prompt

T = TypeVar("T")


class State(msgspec.Struct, frozen=True, kw_only=True):
    """How the model did of late, for people."""

    is_failing: bool = False
    """Whether the last request failed for another reason than what was asked."""
    reason: str = ""
    """Why; empty while it answers, or where it was not asked yet."""
    hint: str = ""
    retry_after_s: float | None = None
    """How long it is not asked, as it wished."""
    n_answers: int = 0
    n_failures: int = 0
    """Since the settings were made."""


class Chat:
    """The model that reads conversations; none where the settings name none.

    At most `max_concurrent` requests are under way.
    """

    def __init__(self, settings: config.Llm, time: clock.Clock) -> None:
        """Nothing is opened or imported before the first call."""
        self._settings = settings
        self._time = time

    @property
    def is_set_up(self) -> bool:
        """Whether there is a model to ask."""
        return self._settings.is_set_up

    @property
    def name(self) -> str:
        """Model and host, for people; empty where none is set up."""
        return self._settings.model

    @property
    def language(self) -> str:
        """What to write in; empty: the language of the talk."""
        return self._settings.language

    @property
    def max_input_tokens(self) -> int:
        """Longest prompt."""
        return self._settings.max_input_tokens

    @property
    def state(self) -> State:
        """How it did of late."""
        return State()

    def use(self, settings: config.Llm) -> None:
        """Go by other settings from now on; what is under way ends by the old ones."""
        self._settings = settings

    async def ask(self, asked: prompt.Prompt, kind: type[T], *, max_tokens: int | None = None) -> T:
        """Return the answer as a `kind`: a msgspec struct, or a list.

        `max_tokens` bounds the answer; None: as the settings say. Never asked for longer than `timeout_seconds` at a
        time; asked again at most `max_retries` times where that may help.

        Raises:
            LLMUnavailable: the same may succeed later; not before `retry_after_s` where that is known.
            LLMRejected: the model refuses this prompt, or its answers to it are unusable.
        """
        raise NotImplementedError

    def n_tokens(self, text: str) -> int:
        """Return about how many tokens a model makes of `text`; in all likelihood not fewer than it does."""
        return piece.n_tokens(text)

    async def close(self) -> None:
        """Cut what is under way and close the connections; it may not be asked any more."""
