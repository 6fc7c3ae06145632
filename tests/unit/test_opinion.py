"""A model is asked where a conversation ended, and what it says is never more than an opinion."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from everosd import clock, config, faculties
from everosd.intake import message, opinion
from everosd.models import chat, prompt
from tests import chat_stub


def messages(n: int) -> list[message.Message]:
    """Return messages a minute apart."""
    return [
        message.Message(id=f"m{at}", sender_id="mara", role="user", timestamp_us=at * 60_000_000, text=f"Message {at}.")
        for at in range(n)
    ]


@pytest.mark.parametrize(
    ("n_messages", "answer", "ended"),
    [(6, 4, 4), (6, None, None), (6, 0, None), (6, 6, None), (6, 9, None), (6, -2, None), (70, 5, 15)],
)
async def test_an_end_is_where_the_model_says_so_and_never_behind_the_last_message(
    tmp_path: Path, n_messages: int, answer: int | None, ended: int | None
) -> None:
    """Numbers outside of what was shown mean nothing; of a long session the newest messages are shown."""
    with chat_stub.ChatStub() as stub:
        stub.script(opinion.NAME, {"last_message": answer})
        model = chat.Chat(_settings(stub.url), clock.SystemClock())
        asked_for = opinion.Opinion(
            model, lambda name: prompt.load(name, (tmp_path, faculties.PROMPTS)), lambda: dt.UTC
        )
        found = await asked_for.end(messages(n_messages))
        await model.close()
    assert ended == found
    (asked,) = stub.asked
    assert f"Message {n_messages - 1}." in asked.user
    assert ("Message 0." in asked.user) == (n_messages <= opinion.MAX_SHOWN)


def _settings(url: str) -> config.Llm:
    return config.Llm(
        model="stub",
        api_key=config.Secret(""),
        base_url=url,
        timeout_seconds=10,
        max_retries=0,
        max_concurrent=4,
        max_input_tokens=16_000,
        max_output_tokens=1000,
        language="",
        prompts="",
    )
