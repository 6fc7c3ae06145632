"""`everosd add`: requests that fit, refusals that name the place in the file, an answer that says what to type next."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer import testing

from everosd import errors
from everosd.cli import app, client, learn, transcript
from everosd.cli import root as root_folder

TIME = transcript.Time(zone=dt.UTC, saved_at=dt.datetime(2026, 3, 2, tzinfo=dt.UTC))


def sessions(text: str) -> list[transcript.Session]:
    """Return the conversations of a transcript."""
    return transcript.read(text.encode(), "talk.txt", form="auto", names=transcript.Names(), time=TIME)


def test_requests_have_no_more_messages_and_bytes_than_a_daemon_takes() -> None:
    """100 messages at most, and fewer where they are long; each is sent once, in order."""
    found = sessions("\n".join(f"mara: {nth} {'x' * 900}" for nth in range(150)))
    sent = [(one.first, one.end) for one in learn._batches(found, 50_000)]
    assert (0, 0) == sent[-1]
    assert [0, *(end for _, end in sent[:-2])] == [first for first, _ in sent[:-1]]
    assert 150 == sent[-2][1]
    assert 3 < len(sent) < 6
    assert [(0, 100), (100, 150), (0, 0)] == [(one.first, one.end) for one in learn._batches(found, 2**22)]


def test_a_message_that_no_request_can_hold_is_named() -> None:
    """Before anything is sent: which message, and which setting says so."""
    found = sessions(f"mara: short\nmara: {'x' * 10_000}")
    with pytest.raises(errors.RequestError, match="max_body_bytes") as caught:
        list(learn._batches(found, 8192))
    assert str(caught.value).startswith(
        "talk.txt, line 2: the message is larger than [api] max_body_bytes allows (8,192)"
    )


def test_what_a_daemon_says_of_a_message_names_its_place_in_the_file() -> None:
    """Not its place in a request, of which nobody knows."""
    (found,) = sessions("mara: one\n\nmara: two\nmara: three")
    body: dict[str, object] = {"error": {"code": "INVALID_INPUT", "message": "is no id: messages.1.sender_id"}}
    with pytest.raises(errors.RequestError) as caught:
        learn._take(learn.Outcome(), learn.Batch(of=found, first=1, end=3), client.Answer(status=422, body=body))
    assert "talk.txt, line 4: is no id (sender_id)" == str(caught.value)


def test_a_file_is_added_once_and_the_answer_says_whose_memory_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first time it says what was taken, the second that nothing was new; both say what to type next."""
    monkeypatch.setenv("EVEROS_EMBEDDING__MODEL", "none")
    root, file = tmp_path / "root", tmp_path / "talk.json"
    root_folder.make(root)
    parts = [{"type": "text", "text": "I moved to Porto."}, {"type": "image_url", "image_url": {"url": "u"}}]
    file.write_text(json.dumps([{"role": "user", "content": parts}]))
    typed = ["add", str(file), "--root", str(root), "--user", "mara"]
    first, second = (testing.CliRunner().invoke(app.commands, typed) for _ in range(2))
    assert (0, 0) == (first.exit_code, second.exit_code), (first.output, second.output)
    assert "1 message of 1 session taken; 1 extracted" in first.stdout
    assert "1 part of messages is no text" in first.stderr
    assert "nothing new: all of it is there already" in second.stdout
    for one in (first, second):
        assert f"memory of mara; next: everosd search --user mara --root {root} WORDS" in one.stdout
    (path,) = (root / "default_app/default_project/users/mara/episodes").glob("*.md")
    assert "I moved to Porto.\n  [image]" in path.read_text()


@pytest.fixture
def add(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., testing.Result]:
    """Give a way to add a file to a memory root."""
    monkeypatch.setenv("EVEROS_EMBEDDING__MODEL", "none")
    root = tmp_path / "root"
    root_folder.make(root)

    def adding(name: str, text: str, *options: str) -> testing.Result:
        if not (file := tmp_path / name).exists():
            file.write_text(text)
        return testing.CliRunner().invoke(app.commands, ["add", str(file), "--root", str(root), *options])

    return adding


def test_an_owner_who_is_named_and_says_nothing_is_told_of(add: Callable[..., testing.Result]) -> None:
    """Where the file names who speaks, `--user` is of no message; whose memory it became is not who was meant."""
    done = add("talk.txt", "Andrew: I adopted a dog today.\n", "--user", "ben")
    assert "memory of Andrew" in done.stdout
    assert "note: --user ben is not used: the file names who speaks" in done.stderr


def test_a_user_who_is_new_by_capital_letters_alone_is_told_of(
    tmp_path: Path, add: Callable[..., testing.Result]
) -> None:
    """Said once, with what to type where it is one person; another name, and who is there already, are no news."""
    root = tmp_path / "root"
    told = "note: Mara is a new user, not mara, who was there before"
    assert "note:" not in add("one.txt", "mara: I like figs.\nTom: I like plums.\n").stderr
    first, second = (add("two.txt", "Mara: I moved to Porto.\nTomas: Oh.\nTom: Ah.\n") for _ in range(2))
    assert (1, 1) == (first.stderr.count("note:"), first.stderr.count(told))
    assert f"everosd forget --owner Mara --root {root}, then add it again with --user mara" in first.stderr
    assert {"mara", "Mara", "Tom", "Tomas"} == set(root_folder.owners(root, "default", "default", "user"))
    assert "note:" not in second.stderr
    assert f"memory of Mara, Tomas, Tom; next: everosd search --user Mara --root {root} WORDS" in first.stdout
    assert "note:" not in add("three.txt", "Mara: I like Porto.\n", "--app", "work").stderr


def test_a_name_in_other_capital_letters_is_the_user_that_is_given(
    tmp_path: Path, add: Callable[..., testing.Result]
) -> None:
    """What the note says: forgotten and added again as theirs, and what others said is there once."""
    users = tmp_path / "root/default_app/default_project/users"
    add("one.txt", "mara: I like figs.\n")
    add("two.txt", "Mara: I moved to Porto.\nBen: Good for you, I live in Lisbon.\n")
    forgotten = ["forget", "--owner", "Mara", "--yes", "--root", str(tmp_path / "root")]
    assert 0 == testing.CliRunner().invoke(app.commands, forgotten).exit_code
    again = add("two.txt", "", "--user", "mara")
    assert "Mara is mara here\nmemory of mara, Ben" in again.stdout
    assert "note:" not in again.stderr
    assert "I moved to Porto" in "".join(path.read_text() for path in (users / "mara/episodes").iterdir())
    assert 1 == "".join(path.read_text() for path in (users / "Ben/episodes").iterdir()).count("<!-- entry:")


def test_messages_of_a_program_are_counted(add: Callable[..., testing.Result]) -> None:
    """What is left out is told, also of a chat that has nothing else."""
    said, also = {"role": "user", "content": "I like figs."}, {"role": "developer", "content": "Be kind."}
    system = {"role": "system", "content": "Be brief."}
    one = add("one.json", json.dumps([system, said]))
    assert "1 message of role system or developer was left out: nobody said that" in one.stderr
    assert "1 message of 1 session taken" in one.stdout
    chats = [{"messages": [system, also]}, {"messages": [said, also]}]
    assert "3 messages of role system or developer were left out" in add("two.json", json.dumps(chats)).stderr
    assert "left out" not in add("three.json", json.dumps([said])).stderr
