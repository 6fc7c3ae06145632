"""add → flush → facts through the installed daemon, with small models that invent, repeat and run into the limit."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.process.conftest import Daemon, wait_for

pytestmark = [pytest.mark.llm, pytest.mark.slow, pytest.mark.timeout(1800)]

PATIENCE_S = 1200.0
USER = "amina"
START_MS = 1_683_550_560_000
"""2023-05-08T12:56:00Z"""

TALK = (
    ("amina", "I moved to Rotterdam last week, into a flat on the 4th floor."),
    ("ben", "How nice! Do you have any pets there?"),
    ("amina", "No pets, the landlord does not allow a dog. But I have 2 bicycles now."),
    ("ben", "My sister Clara lives in Rotterdam, she bakes bread every Sunday."),
    ("amina", "I start my new job at the library on 2023-06-01. I am a bit nervous."),
    ("ben", "You will do fine. I have to sell my piano for 800 euros."),
)
YEARS = {"2023"}
NUMBERS = {
    "4",
    "4th",
    "2",
    "800",
    "1",
    "6",
    "8",
    "5",
    "7",
    "01",
    "05",
    "06",
    "07",
    "08",
    "12",
    "56",
    "57",
    "58",
    "59",
    "13",
    "00",
}
NAMES = {"Amina", "Ben", "Clara", "Rotterdam", "Sunday"}
LIES = re.compile(
    r"happy dog|dog named|has a dog|has pets|amina(?:'s)? (?:sister|piano)|ben(?:'s)? (?:library|bicycles)",
    re.IGNORECASE,
)


STORY = """---
version: 1
---
# System
You tell what people said to each other.

# User
{{conversation}}
{{part}}
Write a short story of three sentences about what they said and did. Put it into content.
"""
"""A person's own prompt, that asks for nothing but fluency: it gets inventions."""


@pytest.fixture(params=["ours", "theirs"])
def http(daemon: Daemon, model_url: str, request: pytest.FixtureRequest) -> httpx.Client:
    """Return a client of a daemon that asks the model; answers are short on purpose, so that some are cut."""
    if request.param == "theirs":
        (daemon.root / "prompts").mkdir(mode=0o700)
        (daemon.root / "prompts" / "episode.md").write_text(STORY)
    return daemon.start(
        env={
            "EVEROS_LLM__MODEL": "small", "EVEROS_LLM__BASE_URL": model_url, "EVEROS_LLM__MAX_INPUT_TOKENS": "2500",
            "EVEROS_LLM__MAX_OUTPUT_TOKENS": "300", "EVEROS_LLM__MAX_RETRIES": "1", "EVEROS_LLM__TIMEOUT_SECONDS": "300",
        }
    )  # fmt: skip


def _say(http: httpx.Client, session: str) -> None:
    messages = [
        {"sender_id": who, "sender_name": who.title(), "role": "user", "timestamp": START_MS + at * 60_000, "content": text}
        for at, (who, text) in enumerate(TALK)
    ]  # fmt: skip
    answer = http.post("/api/v1/memory/add", json={"session_id": session, "messages": messages})
    assert 200 == answer.status_code, answer.text


def _get(http: httpx.Client, kind: str, user: str = USER) -> list[dict[str, Any]]:
    answer = http.post("/api/v1/memory/get", json={"user_id": user, "memory_type": kind, "page_size": 100})
    assert 200 == answer.status_code, answer.text
    found: list[dict[str, Any]] = answer.json()["data"]["episodes"]
    return found


def _facts(root: Path, user: str) -> list[str]:
    folder = root / "default_app" / "default_project" / "users" / user / ".atomic_facts"
    text = "".join(path.read_text() for path in folder.glob("*.md")) if folder.is_dir() else ""
    return [one.strip() for one in re.findall(r"^### Fact\n(.*?)^<!-- /entry", text, re.DOTALL | re.MULTILINE)]


def _is_true(text: str) -> bool:
    """Return whether a text has no year, number or name that nobody said, and none of the usual lies."""
    digits = set(re.findall(r"\d+(?:st|nd|rd|th)?", text)) - YEARS
    names = set(re.findall(r"(?<=[a-z,] )[A-Z][a-z]+", text))
    return digits <= NUMBERS and names <= NAMES | {"May", "June", "Monday", "Thursday"} and not LIES.search(text)


def test_whatever_a_small_model_answers_no_wrong_fact_is_stored_and_no_message_lost(
    daemon: Daemon, http: httpx.Client
) -> None:
    """Each person has an Episode and facts of the talk; what is in them was said; all that was said is in the log."""
    _say(http, "s1")
    flushed = httpx.post(
        f"{http.base_url}/api/v1/memory/flush".replace("//api", "/api"), json={"session_id": "s1"}, timeout=PATIENCE_S
    )
    assert flushed.status_code in (200, 202, 503), flushed.text
    for user in ("amina", "ben"):
        (episode,) = wait_for(lambda user=user: _get(http, "episode", user), f"an Episode of {user}", PATIENCE_S)  # type: ignore[misc]
        for text in (episode["subject"], episode["summary"], episode["episode"]):
            assert _is_true(text), text
        facts = wait_for(lambda user=user: _facts(daemon.root, user), f"facts of {user}", PATIENCE_S)  # type: ignore[misc]
        for text in facts:
            assert _is_true(text), text
        assert any("Rotterdam" in text for text in facts)
    log = "".join(path.read_text() for path in daemon.root.rglob("sessions/*/messages-*.md"))
    for _, text in TALK:
        assert text in log
    stored = "".join(path.read_text() for path in daemon.root.rglob("users/**/*.md"))
    assert "<think>" not in stored
