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
SAVED_AT = START + dt.timedelta(days=1)


def read(
    text: str, form: transcript.Format = "auto", name: str = "talk.json", start: dt.datetime | None = START
) -> list[transcript.Session]:
    """Read a file of this text."""
    names = transcript.Names(user="mara", agent="helper")
    time = transcript.Time(zone=dt.UTC, saved_at=SAVED_AT, start=start)
    return transcript.read(text.encode(), name, form=form, names=names, time=time)


def ms(text: str) -> int:
    """Return milliseconds since 1970 of an ISO moment in UTC."""
    return int(dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC).timestamp() * 1000)


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


@pytest.mark.parametrize(
    "name", ["Assistent", "Asistente", "Assistente", "Ассистент", "助手", "アシスタント", "KI", "AI", "Bot", "Claude"]
)
def test_an_assistant_in_a_transcript_is_no_person(name: str) -> None:
    """By what it is called in several languages; where --user has the name, it is a person all the same."""
    (told,) = read(f"Mara: Hello.\n{name}: Good day.\n")
    assert ["user", "assistant"] == [one["role"] for one in told.messages]
    names = transcript.Names(user=name)
    time = transcript.Time(zone=dt.UTC, saved_at=dt.datetime(2026, 3, 2, tzinfo=dt.UTC))
    (named,) = transcript.read(f"{name}: Hello.\n".encode(), "talk.txt", form="auto", names=names, time=time)
    assert "user" == named.messages[0]["role"]


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
        (b"", "talk.json: is empty"),
        (b"\xff\xfe", "talk.json, line 1: is not UTF-8"),
        (b"just a note", "talk.json, line 1: says nobody's name"),
        (b'{"role": "user"', "talk.json, line 1: is not JSON"),
        (b'[\n{"role": "user"},\n{"role" "user"}]', "talk.json, line 3: is not JSON"),
        (b'{"role": "user", "content": "a"}\n{"role"', "talk.json, line 2: is not JSON"),
        (b'[{"role": "user", "content": "a"}, {"content": "a"}]', "talk.json, message 2: has no role"),
        (b'[{"role": "user", "content": {"a": 1}}]', "talk.json, message 1: has content that is neither"),
        (b"[1, 2]", "talk.json: holds no messages"),
        (b"[]", "talk.json: holds no messages"),
        (b'{"messages": []}', "talk.json: holds no messages"),
        (b'[{"role": "system", "content": "a"}]', "holds no messages but 1 message of role system"),
        (b"[2026-13-99 10:00] Mara: Hi.", "talk.json, line 1: has no moment"),
        (b"31/02/24, 10:15 - Mara: Hi.", "talk.json, line 1: has no moment"),
        (b"[" * 100_000, "talk.json: holds values in values"),
        (b'[{"role": "user", "content": ' + b"[" * 100_000, "talk.json: holds values in values"),
        (b'[{"conversation": {"session_1": ["a"], "session_1_date_time": "1:56 pm on 8 May, 2023"}}]', "turn 1: is no"),
    ],
)
def test_what_is_no_conversation_is_refused_with_its_place(data: bytes, said: str) -> None:
    """A message that names the place, and a hint that says what is expected."""
    names = transcript.Names()
    with pytest.raises(errors.RequestError, match="talk") as caught:
        transcript.read(
            data, "talk.json", form="auto", names=names, time=transcript.Time(zone=dt.UTC, saved_at=SAVED_AT)
        )
    assert said in str(caught.value)
    assert caught.value.hint


def test_a_role_that_nobody_knows_is_named_with_those_there_are() -> None:
    """The file, the message's number, the role, and which roles there are."""
    chats = [{"messages": CHAT}, {"messages": [*CHAT, {"role": "narrator", "content": "Later"}]}]
    with pytest.raises(errors.RequestError, match="narrator") as caught:
        read(json.dumps(chats))
    assert "talk.json, conversation 2, message 5: has a role that nobody knows: 'narrator'" == str(caught.value)
    assert "user" in str(caught.value.hint)
    assert "system" in str(caught.value.hint)


def test_a_part_that_is_no_text_leaves_a_mark() -> None:
    """The text of the message is kept, parts that nobody can read are counted and marked."""
    parts = [
        {"type": "text", "text": "Look:", "annotations": []},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        {"type": "input_audio", "input_audio": {}},
        {"type": "input_file", "file_id": "f"},
        {"type": "output_text", "text": "Nice"},
        {"inline_data": "x"},
        "plain",
        {"type": "refusal", "refusal": "No."},
        {"type": "text", "text": ""},
    ]
    (found,) = read(json.dumps([{"role": "user", "content": parts}]))
    content: Any = found.messages[0]["content"]
    assert ["Look:", "[image]", "[audio]", "[file]", "Nice", "[part]", "plain", "No.", ""] == [
        one["text"] for one in content
    ]
    assert {"type", "text"} == {key for one in content for key in one}
    assert 4 == found.n_left_out


@pytest.mark.parametrize(
    ("line", "at"),
    [
        ("[12/03/24, 10:15:00] Mara: Hi", "2024-03-12T10:15:00"),
        ("12/03/2024, 10:15 - Mara: Hi", "2024-03-12T10:15:00"),
        ("\u200e[03/25/24, 1:05:09\u202fPM] Mara: Hi", "2024-03-25T13:05:09"),
        (
            "12.03.24, 00:15 - \u202a~\u202fMara\u202c: Hi".replace("\u202a", "").replace("\u202c", ""),
            "2024-03-12T00:15:00",
        ),
        ("3/12/24, 12:15 am - Mara: Hi", "2024-12-03T00:15:00"),
    ],
)
def test_a_chat_exported_from_a_phone_is_a_transcript(line: str, at: str) -> None:
    """Days come first unless that cannot be; the phone's invisible characters are in no name."""
    (found,) = only(line)
    assert ("Mara", "Hi", ms(at)) == (found["sender_name"], found["content"], found["timestamp"])


def test_an_exported_chat_is_read_as_one() -> None:
    """One date that is month first makes all so; notices of the program are nobody's words; lines go on."""
    text = (
        "03/04/24, 10:14 - Messages and calls are end-to-end encrypted.\n"
        "03/04/24, 10:15 - +49 170 1234 567: One\nand more\n"
        "03/04/24, 10:16 - Mara changed the subject to \u201cTrip: Porto\u201d\n"
        "03/25/24, 10:15 - Tom from the book club: Two"
    )
    one, two = only(text)
    assert ("One\nand more", ms("2024-03-04T10:15:00")) == (one["content"], one["timestamp"])
    assert ("Tom from the book club", ms("2024-03-25T10:15:00")) == (two["sender_name"], two["timestamp"])


def test_messages_without_moments_end_when_the_file_was_saved() -> None:
    """Nothing was said after that; `--at` says when the first one was."""
    text = "Mara: One.\nMara: Two.\nMara: Three."
    saved_ms = int(SAVED_AT.timestamp() * 1000)
    (found,) = read(text, start=None)
    assert [saved_ms - 2000, saved_ms - 1000, saved_ms] == [one["timestamp"] for one in found.messages]
    (found,) = read(text)
    assert [START_MS, START_MS + 1000, START_MS + 2000] == [one["timestamp"] for one in found.messages]


def test_messages_before_the_first_moment_stand_before_it() -> None:
    """What has a moment keeps it, whatever came before it without one."""
    (found,) = read("Mara: One.\n[2026-03-01 10:00] Mara: Two.\nMara: Three.", start=None)
    at = ms("2026-03-01T10:00:00")
    assert [at - 1000, at, at + 1000] == [one["timestamp"] for one in found.messages]


def test_each_message_knows_its_place() -> None:
    """Messages of a chat are counted, those left out included; turns of a transcript have their line."""
    (found,) = read(json.dumps(CHAT))
    assert "talk.json, message 2" == found.places[0]
    (found,) = read("# Talk\n\nMara: One.\ngoes on\nMara: Two.", name="talk.txt")
    assert ("talk.txt, line 3", "talk.txt, line 5") == found.places
    assert "talk" == found.id
