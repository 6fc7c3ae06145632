"""Files of conversations become sessions of messages: chats, transcripts, LoCoMo; what is none of them is refused with its line."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest

from everosd import errors
from everosd.cli import transcript

START = dt.datetime(2026, 3, 2, 9, tzinfo=dt.UTC)
START_MS = int(START.timestamp() * 1000)


def read(text: str, form: transcript.Format = "auto", name: str = "talk") -> list[transcript.Session]:
    """Read a file of this text."""
    names = transcript.Names(user="mara", agent="helper")
    return transcript.read(text.encode(), name, form=form, names=names, start=START, zone=dt.UTC)


def only(text: str, form: transcript.Format = "auto") -> list[dict[str, Any]]:
    """Return the messages of a file with one conversation."""
    (session,) = read(text, form)
    return [dict(one) for one in session.messages]


CHAT = [
    {"role": "system", "content": "You are helpful."},
    {"role": "user", "content": "I moved to Porto."},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": {"name": "map", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "1", "content": "found"},
]


@pytest.mark.parametrize("text", [json.dumps(CHAT), json.dumps({"messages": CHAT}), "\n".join(map(json.dumps, CHAT))])
def test_a_chat_is_read_in_each_of_its_shapes(text: str) -> None:
    """A list, an object with messages, JSON lines: the same messages; instructions of a program are left out."""
    found = only(text)
    assert ["user", "assistant", "tool"] == [one["role"] for one in found]
    assert ["mara", "helper", "helper"] == [one["sender_id"] for one in found]
    assert ["I moved to Porto.", "", "found"] == [one["content"] for one in found]
    assert [START_MS, START_MS + 1000, START_MS + 2000] == [one["timestamp"] for one in found]


def test_chats_of_a_file_are_sessions_of_their_own() -> None:
    """Each line an object with messages: a session each, named by its id or by the file."""
    lines = [{"id": "a", "messages": CHAT}, {"messages": CHAT}]
    assert ["a", "talk-2"] == [one.id for one in read("\n".join(map(json.dumps, lines)))]


def test_moments_of_a_file_are_kept_and_each_message_has_its_own() -> None:
    """Two messages of one minute differ by a millisecond, so that both are taken; the same file gives the same."""
    text = "[2026-03-01 10:00] Mara: One.\n[2026-03-01 10:00] Mara: Two.\n2026-03-01T11:00:00Z Mara: Three."
    first = int(dt.datetime(2026, 3, 1, 10, tzinfo=dt.UTC).timestamp() * 1000)
    assert [first, first + 1, first + 3_600_000] == [one["timestamp"] for one in only(text)]
    assert only(text) == only(text)


def test_lines_without_a_name_go_on_with_what_was_said() -> None:
    """A message may have several lines, and a colon in it makes no new speaker."""
    (one, two) = only("Mara: I need:\n- milk\n\nsee https://example.com/a\nassistant: Noted.")
    assert "I need:\n- milk\n\nsee https://example.com/a" == one["content"]
    assert ("user", "assistant") == (one["role"], two["role"])


@pytest.mark.parametrize(
    ("name", "wanted"), [("Mara", "Mara"), ("Mara Lee", "mara_lee"), ("José", "jose"), ("a@b.c", "a@b.c")]
)
def test_a_name_becomes_an_id_that_programs_may_send(name: str, wanted: str) -> None:
    """Names that can be ids are; others become small ASCII letters."""
    assert wanted == transcript.sender_id(name)


def test_names_of_other_scripts_have_ids_of_their_own() -> None:
    """Two names that ASCII cannot write do not become one person."""
    ids = {transcript.sender_id(name) for name in ("由紀", "Юки", "由纪")}
    assert 3 == len(ids)
    assert all(one.startswith("p_") for one in ids)


def test_locomo_is_read_session_by_session() -> None:
    """Each session has its moment, its speakers are users."""
    talk = {
        "speaker_a": "Ann",
        "session_2": [{"speaker": "Ann", "text": "Later.", "dia_id": "D2:1"}],
        "session_2_date_time": "9:00 am on 10 May, 2023",
        "session_1": [{"speaker": "Ann", "text": "Look!", "blip_caption": "a cat", "dia_id": "D1:1"}],
        "session_1_date_time": "1:56 pm on 8 May, 2023",
    }
    first, second = read(json.dumps([{"sample_id": "c1", "conversation": talk}]))
    assert ("c1-session_1", "c1-session_2") == (first.id, second.id)
    assert "Look! [shares a picture: a cat]" == first.messages[0]["content"]
    at_us = dt.datetime(2023, 5, 8, 13, 56, tzinfo=dt.UTC).timestamp() * 1000
    assert at_us == first.messages[0]["timestamp"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "talk:1 is empty"),
        (b"\xff\xfe", "talk:1 is not UTF-8"),
        (b"just a note", "talk:1 says nobody's name"),
        (b'{"role": "user"', "talk:1 is not JSON"),
        (b'{"role": "user", "content": "a"}\n{"role"', "talk:2 is not JSON"),
        (b'[{"content": "a"}]', "talk:1 (message) has no role"),
        (b"[1, 2]", "talk:1 holds no messages"),
        (b"[2026-13-99 10:00] Mara: Hi.", "talk:1 has no moment"),
    ],
)
def test_what_is_no_conversation_is_refused_with_its_line(data: bytes, said: str) -> None:
    """A message that names the place, and a hint that says what is expected."""
    names = transcript.Names()
    with pytest.raises(errors.RequestError, match="talk") as caught:
        transcript.read(data, "talk", form="auto", names=names, start=START, zone=dt.UTC)
    assert said in str(caught.value)
    assert caught.value.hint
