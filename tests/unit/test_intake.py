"""Messages become rows of a session's log, segments, and Episodes: each once, in order, whatever happens in between."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog

from everosd import clock, config, daemon, errors, faculties, learning, types
from everosd.cascade import apply, dirty, rebuild
from everosd.engine import strategy
from everosd.index import text
from everosd.intake import online
from everosd.intake import session as sessions
from everosd.log import entry_text
from tests import importing

LOADED = (apply, faculties, learning, rebuild, text)
"""Imported here, because importing them takes longer than anything may hold the loop up."""
MORNING_US = 1_772_442_000_000_000  # 2026-03-02T09:00:00Z


def session(name: str = "s_1") -> types.Owner:
    return types.Owner(app="default", project="default", type="session", id=name)


def user(name: str = "mara") -> types.Owner:
    return types.Owner(app="default", project="default", type="user", id=name)


def said(*texts: str, start: int = 0, sender: str = "mara", role: str = "user") -> list[online.Given]:
    """Return messages a minute apart; `start` is how many came before in the session."""
    return [
        msgspec.convert(
            {
                "sender_id": sender,
                "role": role,
                "timestamp_us": MORNING_US + (start + at) * 60_000_000,
                "index": at,
                "text": text,
            },
            online.Given,
        )
        for at, text in enumerate(texts)
    ]


@contextlib.asynccontextmanager
async def running(root: Path, **settings: object) -> AsyncIterator[daemon.Node]:
    """Open the files with intake; settings are dotted keys with `__` for the dot."""
    given = {name.replace("__", "."): value for name, value in settings.items()}
    loaded = await asyncio.to_thread(config.load, root, {"EVEROS_EMBEDDING__MODEL": "none"}, given=given)
    async with daemon.open_node(loaded, clock.SystemClock(), learns=True) as node:
        await node.cascade.settled()
        yield node


def intake(node: daemon.Node) -> online.Intake:
    assert node.learning is not None
    return node.learning.intake


async def episodes(node: daemon.Node, owner: types.Owner) -> list[str]:
    await node.cascade.reconcile("test")
    await node.cascade.settled()
    rows, _ = await node.reader.page(owner, "episode", now_us=0, descending=False, limit=100)
    return [dict(entry_text.read("episode", row.entry_id, row.raw).sections)["Content"] for row in rows]


def log_of(root: Path, name: str = "s_1") -> str:
    folder = root / "default_app" / "default_project" / "sessions" / name
    return "".join(path.read_text() for path in sorted(folder.glob("*.md")))


async def test_messages_are_in_the_log_when_add_returns(tmp_path: Path) -> None:
    """The answer to an add comes after the message is on disk."""
    async with running(tmp_path) as node:
        added = await intake(node).add(session(), said("I moved to Porto."), task_id="t")
        assert online.Added(message_count=1, status="accumulated") == added
        assert "I moved to Porto." in log_of(tmp_path)


async def test_flush_makes_one_episode_for_each_user(tmp_path: Path) -> None:
    """A segment becomes an Episode of every user who took part, and of nobody else."""
    async with running(tmp_path) as node:
        both = [*said("Shall we go to Porto?"), *said("Yes, in May.", start=1, sender="ben")]
        await intake(node).add(session(), both, task_id="t")
        await intake(node).add(session(), said("Noted.", start=2, sender="bot", role="assistant"), task_id="t")
        assert "extracted" == (await intake(node).flush(session(), task_id="t")).status
        for name in ("mara", "ben"):
            (content,) = await episodes(node, user(name))
            assert all(part in content for part in ("Shall we go to Porto?", "Yes, in May.", "Noted."))
        assert [] == await episodes(node, user("bot"))


async def test_a_second_flush_finds_nothing(tmp_path: Path) -> None:
    """What was extracted once is not extracted again."""
    async with running(tmp_path) as node:
        await intake(node).add(session(), said("I moved to Porto."), task_id="t")
        await intake(node).flush(session(), task_id="t")
        assert "no_extraction" == (await intake(node).flush(session(), task_id="t")).status
        assert 1 == len(await episodes(node, user()))


async def test_a_session_without_a_user_has_no_episode(tmp_path: Path) -> None:
    """Nobody's memory is made where no user spoke, and it is not tried for ever."""
    async with running(tmp_path) as node:
        await intake(node).add(session(), said("Beep.", sender="bot", role="assistant"), task_id="t")
        assert "no_extraction" == (await intake(node).flush(session(), task_id="t")).status
        await intake(node).settled(5)
        assert "followed" in log_of(tmp_path)


async def test_A01_a_repeated_request_stores_its_messages_once(tmp_path: Path) -> None:
    """The same body three times, then two flushes at once: one message in the log, one Episode."""
    async with running(tmp_path) as node:
        for _ in range(3):
            assert 1 == (await intake(node).add(session(), said("I moved to Porto."), task_id="t")).message_count
        first, second = await asyncio.gather(
            intake(node).flush(session(), task_id="a"), intake(node).flush(session(), task_id="b")
        )
        assert {"extracted"} == {first.status, second.status} - {"no_extraction"}
        assert 1 == log_of(tmp_path).count("I moved to Porto.")
        assert 1 == len(await episodes(node, user()))


async def test_another_text_under_a_key_is_kept_and_not_extracted(tmp_path: Path) -> None:
    """The first message wins; the second is in the log as a duplicate, is counted, and is no part of the Episode."""
    async with running(tmp_path) as node:
        await intake(node).add(session(), said("I moved to Porto."), task_id="t")
        for _ in range(2):
            await intake(node).add(session(), said("I moved to Lisbon."), task_id="t")
        assert 1 == intake(node).status().n_conflicting
        assert 1 == log_of(tmp_path).count("I moved to Lisbon.")
        await intake(node).flush(session(), task_id="t")
        (content,) = await episodes(node, user())
        assert "Lisbon" not in content


async def test_another_text_under_the_key_of_an_extracted_message_is_a_new_one(tmp_path: Path) -> None:
    """After extraction only the same text is dropped; another one is taken."""
    async with running(tmp_path) as node:
        for texts in (("I moved to Porto.",), ("I moved to Porto.",), ("I moved to Lisbon.",)):
            await intake(node).add(session(), said(*texts), task_id="t")
            await intake(node).flush(session(), task_id="t")
        assert 2 == len(await episodes(node, user()))


async def test_messages_that_wait_survive_the_index(tmp_path: Path) -> None:
    """Deleting .index/ loses no message: a flush after the next start extracts it."""
    import shutil

    async with running(tmp_path) as node:
        await intake(node).add(session(), said("I moved to Porto."), task_id="t")
    shutil.rmtree(tmp_path / ".index")
    async with running(tmp_path) as node:
        assert "extracted" == (await intake(node).flush(session(), task_id="t")).status
        assert 1 == len(await episodes(node, user()))


async def test_a_segment_that_was_cut_is_extracted_after_a_restart(tmp_path: Path) -> None:
    """A stop between the cut and the Episode: the next start makes it, once, without being asked."""
    async with running(tmp_path) as node:
        await intake(node).add(session(), said("I moved to Porto."), task_id="t")
        here = intake(node)._lines.of(session())
        async with here.lock:
            await here.cut_complete(node.config.boundary_detection, is_flush=True)
    for _ in range(2):
        async with running(tmp_path) as node:
            await intake(node).settled(5)
            assert 1 == len(await episodes(node, user()))


async def test_an_episode_without_its_done_row_is_not_written_again(tmp_path: Path) -> None:
    """A crash after the Episode and before the row that says so: the Episode is found, not doubled."""
    async with running(tmp_path) as node:
        await intake(node).add(session(), said("I moved to Porto."), task_id="t")
        await intake(node).flush(session(), task_id="t")
        await intake(node).settled(5)
    (path,) = (tmp_path / "default_app" / "default_project" / "sessions" / "s_1").glob("*.md")
    text = path.read_text()
    rows = text.split("<!-- entry:")
    path.write_text("<!-- entry:".join(row for row in rows if "**state**: done" not in row and "followed" not in row))
    async with running(tmp_path) as node:
        await intake(node).settled(5)
        assert 1 == len(await episodes(node, user()))
        assert "**state**: done" in log_of(tmp_path)


async def test_a_segment_whose_first_row_was_deleted_has_no_second_episode(tmp_path: Path) -> None:
    """A person deletes the row that cut a finished segment: its messages are cut again, and its Episode is found."""
    async with running(tmp_path) as node:
        await intake(node).add(session(), said("I moved to Porto."), task_id="t")
        await intake(node).flush(session(), task_id="t")
        await intake(node).settled(5)
        (path,) = (tmp_path / "default_app" / "default_project" / "sessions" / "s_1").glob("*.md")
        rows = path.read_text().split("<!-- entry:")
        path.write_text("<!-- entry:".join(one for one in rows if "**state**: open" not in one))
        intake(node)._lines.of(session())._checked_s = -1.0
        await intake(node).flush(session(), task_id="t")
        assert 1 == len(await episodes(node, user()))


async def test_what_a_person_changed_in_a_busy_session_is_what_is_extracted(tmp_path: Path) -> None:
    """A message is edited in the log between two others that come within a second: its new text is in the Episode."""
    async with running(tmp_path, boundary_detection__hard_msg_limit=3) as node:
        await intake(node).add(session(), said("I moved to Porto."), task_id="t")
        await intake(node).add(session(), said("Nobody must know.", start=1), task_id="t")
        (path,) = (tmp_path / "default_app" / "default_project" / "sessions" / "s_1").glob("*.md")
        path.write_text(path.read_text().replace("Nobody must know.", "It is quiet here."))
        added = await intake(node).add(session(), said("I like it.", start=2), task_id="t")
        assert "extracted" == added.status
        (content,) = await episodes(node, user())
    parts = ("I moved to Porto.", "It is quiet here.", "I like it.", "Nobody must know.")
    assert [True, True, True, False] == [part in content for part in parts]


async def test_an_append_that_ends_half_way_is_known_at_once(tmp_path: Path) -> None:
    """A cut whose caller was cancelled once it was on disk: its messages are in no second segment."""
    async with running(tmp_path) as node:
        await intake(node).add(session(), said("I moved to Porto."), task_id="t")
        here = intake(node)._lines.of(session())
        write = here._pen.append_seen

        async def cancelled(*given: object, **named: object) -> None:
            await write(*given, **named)  # type: ignore[arg-type]
            raise asyncio.CancelledError

        here._pen.append_seen = cancelled  # type: ignore[method-assign]
        with pytest.raises(asyncio.CancelledError):
            await intake(node).flush(session(), task_id="t")
        here._pen.append_seen = write  # type: ignore[method-assign]
        await intake(node).add(session(), said("It rains here.", start=1), task_id="t")
        await intake(node).flush(session(), task_id="t")
    async with running(tmp_path) as node:
        await intake(node).settled(5)
        contents = await episodes(node, user())
    assert [1, 1] == [sum(word in content for content in contents) for word in ("Porto", "rains")]


async def test_a_file_that_refuses_costs_the_other_users_no_second_episode(tmp_path: Path) -> None:
    """Ben's Episode is refused while Mara's is being written, and a second flush is there at once: hers is written once."""
    both = [*said("Shall we go to Porto?"), *said("Yes, in May.", start=1, sender="ben")]
    async with running(tmp_path) as node:
        await intake(node).add(session(), both, task_id="t")
        pen, refused, may_write = intake(node)._episodes._pen, asyncio.Event(), asyncio.Event()
        write = pen.append

        async def append(owner: types.Owner, *given: Any, **named: Any) -> tuple[types.EntryId, ...]:
            if owner == user("ben") and not refused.is_set():
                refused.set()
                raise errors.WriteRefused(owner.id, "is being erased")
            if owner == user():
                await may_write.wait()
            return await write(owner, *given, **named)

        pen.append = append  # type: ignore[method-assign]
        flushes = [asyncio.create_task(intake(node).flush(session(), task_id="a"))]
        await refused.wait()
        for _ in range(20):
            await asyncio.sleep(0)  # the refusal gets to whoever acts on it
        flushes.append(asyncio.create_task(intake(node).flush(session(), task_id="b")))
        for _ in range(20):
            await asyncio.sleep(0)
        may_write.set()
        await asyncio.gather(*flushes, return_exceptions=True)
        await intake(node).flush(session(), task_id="c")
        assert [1, 1] == [len(await episodes(node, user(name))) for name in ("mara", "ben")]


async def test_the_last_add_says_whether_a_session_waits_for_a_flush_after_a_restart_too(tmp_path: Path) -> None:
    """A deferred batch and one that is not: the session is not deferred, whether its log was read or written."""
    async with running(tmp_path) as node:
        for at, is_deferred in enumerate((True, False)):
            await intake(node).add(session(), said(f"Line {at}.", start=at), task_id="t", is_deferred=is_deferred)
        here = intake(node)._lines.of(session())
        read = await asyncio.to_thread(sessions.read, node.cascade.writer.layout, session())
        assert (False, False) == (here.state.is_deferred, read.is_deferred)
        await intake(node).add(session(), said("Line 2.", start=2), task_id="t", is_deferred=True)
        read = await asyncio.to_thread(sessions.read, node.cascade.writer.layout, session())
        assert (True, True) == (here.state.is_deferred, read.is_deferred)


@pytest.mark.parametrize("setting", ["hard_msg_limit", "hard_token_limit"])
async def test_a_limit_cuts_without_a_flush(tmp_path: Path, setting: str) -> None:
    """As soon as a session has as much as the limits allow, add extracts it."""
    limits = {f"boundary_detection__{setting}": {"hard_msg_limit": 3, "hard_token_limit": 64}[setting]}
    async with running(tmp_path, **limits) as node:
        statuses = [
            (await intake(node).add(session(), said(f"{at}: {'word ' * 12}", start=at), task_id="t")).status
            for at in range(3)
        ]
        assert "extracted" in statuses
        assert "accumulated" == statuses[0]


async def test_deferred_messages_wait_for_a_flush(tmp_path: Path) -> None:
    """`defer_extraction` only buffers, whatever the limits say."""
    async with running(tmp_path, boundary_detection__hard_msg_limit=2) as node:
        added = await intake(node).add(session(), said("One.", "Two.", "Three."), task_id="t", is_deferred=True)
        assert "accumulated" == added.status
        assert "extracted" == (await intake(node).flush(session(), task_id="t")).status


async def test_silence_ends_a_conversation(tmp_path: Path) -> None:
    """What nobody adds to is extracted after the idle time."""
    async with running(tmp_path, boundary_detection__idle_minutes=0.001) as node:
        await intake(node).add(session(), said("I moved to Porto."), task_id="t")
        async with asyncio.timeout(5):
            while not await episodes(node, user()):  # noqa: ASYNC110  # the file is what is waited for
                await asyncio.sleep(0.01)
        assert "**reason**: idle" in log_of(tmp_path)


async def test_a_request_is_queued_behind_those_that_wait(tmp_path: Path) -> None:
    """An async add is answered at once; its task ends when what it cut is extracted."""
    async with running(tmp_path, boundary_detection__hard_msg_limit=1) as node:
        added = await intake(node).add(session(), said("I moved to Porto."), task_id="first", is_async=True)
        assert ("queued", 1) == (added.status, added.pending)
        async with asyncio.timeout(5):
            while (found := await intake(node).task("first")) is None or found.status != "success":  # noqa: ASYNC110  # a record is
                await asyncio.sleep(0.005)
        tasks, total = await intake(node).tasks(
            "default", "default", session_id="s_1", status=None, page=1, page_size=20
        )
        assert (["first"], 1) == ([one.id for one in tasks], total)


class Failing:
    """A model that is away until it is told to be there."""

    def __init__(self) -> None:
        """Be away."""
        self.error: Exception | None = errors.LLMUnavailable("model", "is away")
        self.asked: list[str] = []

    async def extract(self, segment: object) -> object:
        """Raise what it was told to, or say the same of everything."""
        self.asked.append(segment.id)  # type: ignore[attr-defined]
        if self.error is not None:
            raise self.error
        from everosd.intake import message

        return message.Extracted(subject="Porto", summary="Porto", content="Mara moved to Porto.", by="model")


async def test_a_command_does_not_wait_for_a_model_that_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a daemon `everosd add` waits for what follows, not for hours: what failed is left to whoever opens the root next."""
    monkeypatch.setattr(learning, "PATIENCE_S", 0.05)
    async with running(tmp_path, memorize__async_queue__retry_backoff_seconds=600.0) as node:
        assert node.learning is not None
        intake(node)._episodes._extractor = Failing()  # type: ignore[assignment]
        await intake(node).add(session(), said("I moved to Porto."), task_id="t")
        with pytest.raises(errors.LLMUnavailable):
            await intake(node).flush(session(), task_id="t")
        await node.learning.settled(10)
        assert (1, 1) == (intake(node).status().failed, intake(node).n_left())


async def test_a_fault_of_everosd_repeats_no_word_of_what_was_said(tmp_path: Path) -> None:
    """An error whose words are the message's: health, the listing and the log above debug have the place of it alone."""
    model = Failing()
    model.error = ValueError("I moved to Porto.")
    with structlog.testing.capture_logs() as logged:
        async with running(tmp_path) as node:
            intake(node)._episodes._extractor = model  # type: ignore[assignment]
            await intake(node).add(session(), said("I moved to Porto."), task_id="t")
            with pytest.raises(ValueError, match="Porto"):
                await intake(node).flush(session(), task_id="t")
            status = intake(node).status()
            told = [*status.reasons, *(reason for _, reason in intake(node).failed().values())]
    shown = [str(event) for event in logged if event["log_level"] != "debug"]
    assert (1, 1) == (status.n_errors, status.failed)
    assert any("extraction_failed" in event for event in shown)
    assert all("ValueError in test_intake.py:" in reason for reason in told)
    assert not any("Porto" in text for text in (*told, *shown))


@pytest.mark.parametrize("error", [errors.LLMUnavailable("m", "is away"), errors.LLMRejected("m", "says nothing")])
async def test_L05_a_failing_model_keeps_the_messages_and_is_asked_again(tmp_path: Path, error: Exception) -> None:
    """Flush says that the model failed, nothing is stored or lost, and it is extracted once the model is back."""
    model = Failing()
    model.error = error
    async with running(tmp_path, memorize__async_queue__retry_backoff_seconds=0.05) as node:
        intake(node)._episodes._extractor = model  # type: ignore[assignment]
        await intake(node).add(session(), said("I moved to Porto."), task_id="t")
        with pytest.raises(errors.LLMError):
            await intake(node).flush(session(), task_id="t")
        assert [] == await episodes(node, user())
        assert 1 == intake(node).status().failed
        model.error = None
        await intake(node).settled(5)
        assert ["Mara moved to Porto."] == await episodes(node, user())
        assert 0 == intake(node).status().failed


async def test_a_stalled_session_holds_up_no_other(tmp_path: Path) -> None:
    """While the model hangs on one session, another one is extracted."""
    stalled = asyncio.Event()

    class Hanging(Failing):
        async def extract(self, segment: object) -> object:
            """Hang on the slow session."""
            if segment.session.id == "slow":  # type: ignore[attr-defined]
                await stalled.wait()
            return await super().extract(segment)

    model = Hanging()
    model.error = None
    async with running(tmp_path) as node:
        intake(node)._episodes._extractor = model  # type: ignore[assignment]
        await intake(node).add(session("slow"), said("I moved to Porto."), task_id="t")
        await intake(node).add(session("fast"), said("I moved to Porto."), task_id="t")
        waiting = asyncio.create_task(intake(node).flush(session("slow"), task_id="t"))
        assert "extracted" == (await intake(node).flush(session("fast"), task_id="t")).status
        stalled.set()
        assert "extracted" == (await waiting).status


async def test_too_much_that_waits_is_refused_before_anything_is_taken(tmp_path: Path) -> None:
    """429: the session's queue is full, and the refused messages are not in the log."""
    stalled = asyncio.Event()

    class Hanging(Failing):
        async def extract(self, segment: object) -> object:
            """Hang until the test lets go."""
            await stalled.wait()
            return await super().extract(segment)

    model = Hanging()
    model.error = None
    settings = {"boundary_detection__hard_msg_limit": 1, "memorize__async_queue__max_pending_per_session": 2}
    async with running(tmp_path, **settings) as node:
        intake(node)._episodes._extractor = model  # type: ignore[assignment]
        for at in range(2):
            await intake(node).add(session(), said(f"Number {at}.", start=at), task_id=f"t{at}", is_async=True)
        with pytest.raises(errors.QueueSaturated):
            await intake(node).add(session(), said("Number 2.", start=2), task_id="t2", is_async=True)
        assert "Number 2." not in log_of(tmp_path)
        assert "queued" == (await intake(node).add(session("other"), said("Hi."), task_id="o", is_async=True)).status
        stalled.set()


async def test_rows_of_many_sessions_at_once_are_all_there(tmp_path: Path) -> None:
    """Twenty sessions of one user at once: every Episode is there, none twice."""
    async with running(tmp_path) as node:

        async def one(name: str) -> None:
            await intake(node).add(session(name), said(f"I am in session {name}."), task_id="t")
            await intake(node).flush(session(name), task_id="t")

        await asyncio.gather(*(one(f"s{at}") for at in range(20)))
        found = await episodes(node, user())
        assert 20 == len(found)
        assert 20 == len(set(found))


@pytest.fixture
def small_root(tmp_path: Path) -> Iterator[Path]:
    """A root on a file system of 20 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=20m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode != 0:
        pytest.skip("cannot mount a small disk here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(filler: Path) -> None:
    """Write until the disk is full."""
    with filler.open("wb", buffering=0) as out, contextlib.suppress(OSError):
        while True:
            out.write(b"x" * 4096)


async def test_O10_a_full_disk_takes_nothing_and_loses_nothing(small_root: Path) -> None:
    """Full: add and flush are refused, and say why; what was there stays; with space again all of it goes on by itself."""
    async with running(small_root, memorize__async_queue__retry_backoff_seconds=0.05) as node:
        await intake(node).add(session(), said("I moved to Porto."), task_id="t")
        before = log_of(small_root)
        await asyncio.to_thread(fill, small_root / "filler")
        with pytest.raises(errors.WriteRefused, match="no space left"):
            await intake(node).add(session(), said("word " * 5000, start=1), task_id="t")
        with pytest.raises(errors.EverosdError, match=r"no space left|full"):
            await intake(node).flush(session(), task_id="t")
        assert before == log_of(small_root)[: len(before)]
        assert [] == await asyncio.to_thread(lambda: list(small_root.rglob("episode-*.md")))
        await asyncio.to_thread((small_root / "filler").unlink)
        await intake(node).add(session(), said("It rains here.", start=1), task_id="t")
        assert "extracted" == (await intake(node).flush(session(), task_id="t")).status
        await intake(node).settled(20)
        contents = await episodes(node, user())
    assert [1, 1] == [sum(part in content for content in contents) for part in ("Porto", "rains")]
    assert "word word" not in log_of(small_root)


async def test_what_follows_gives_way_to_requests_but_not_for_ever(tmp_path: Path) -> None:
    """While somebody is being answered a strategy does not begin; one that has waited for a second does."""
    begun: list[str] = []

    async def run(event: strategy.Event) -> str:
        begun.append(event.subject)
        return ""

    async with running(tmp_path) as node:
        polite = faculties._polite(run, intake(node).give_way)
        event = strategy.Event(topic="episode_written", owner=user(), subject="ep_20260302_00000001")
        with intake(node)._asking():
            waiting = asyncio.ensure_future(polite(event))
            await intake(node).add(session(), said("I moved to Porto."), task_id="t")
            assert [] == begun
            await asyncio.wait_for(waiting, 10)  # with somebody still being answered
        await asyncio.wait_for(polite(event), 10)
    assert 2 == len(begun)


async def test_work_that_has_begun_pauses_for_requests_but_not_for_ever(tmp_path: Path) -> None:
    """Between its pieces it waits while somebody is being answered; a request that takes long holds it up for a moment."""
    async with running(tmp_path) as node:
        await asyncio.wait_for(intake(node).pause(), 10)
        with intake(node)._asking():
            waiting = asyncio.ensure_future(intake(node).pause())
            await intake(node).add(session(), said("I moved to Porto."), task_id="t")
            assert not waiting.done()
            await asyncio.wait_for(waiting, 10)  # with somebody still being answered


async def test_what_everosd_wrote_is_read_when_nobody_waits_for_an_extraction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sessions that are flushed together are answered first; a search, and whatever a person saved, waits for none of it."""
    async with running(tmp_path) as node:
        cascade, settler = node.cascade, node.cascade._settler
        await intake(node).add(session(), said("I moved to Porto."), task_id="t")
        await intake(node).flush(session(), task_id="t")
        intake(node)._extracted_s = float("-inf")
        assert not cascade.gives_way()
        await cascade.settled()
        (ours,) = [path for path in cascade._ingest.known if "/episodes/" in path]
        monkeypatch.setattr(dirty, "HELD_S", 60.0)
        intake(node)._extracted_s = float("inf")  # just now: the next flush may be on its way
        assert cascade.gives_way()
        assert node.learning is not None
        node.learning.chat._n_under_way += 1  # a model is asked, which takes no processor
        assert not cascade.gives_way()
        node.learning.chat._n_under_way -= 1
        theirs = types.RelPath(ours.replace("/mara/", "/nils/"))
        await asyncio.to_thread((tmp_path / theirs).parent.mkdir, parents=True)
        await asyncio.to_thread((tmp_path / theirs).write_bytes, (tmp_path / ours).read_bytes())
        cascade._unshown.wrote(ours)
        for path in (ours, theirs):
            settler.mark(path, is_final=True)
        async with asyncio.timeout(10):
            while theirs not in cascade._ingest.known:  # noqa: ASYNC110  # of what nobody tells
                await asyncio.sleep(0.005)
        assert ours in cascade._unshown
        async with asyncio.timeout(10):
            while ours in cascade._unshown:  # it waits for a second at most
                await cascade.until_shown(user())


async def test_a_save_to_what_everosd_just_wrote_is_read_within_the_bound_however_long_extractions_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person's save to such a file is held up while extractions are waited for, for a moment; without them for none."""
    async with running(tmp_path) as node:
        cascade = node.cascade
        await intake(node).add(session(), said("I moved to Porto."), task_id="t")
        await intake(node).flush(session(), task_id="t")
        await cascade.settled()
        (ours,) = [path for path in cascade._ingest.known if "/episodes/" in path]
        for is_busy, held_s in ((True, 0.3), (False, 60.0)):
            monkeypatch.setattr(dirty, "HELD_S", held_s)
            intake(node)._extracted_s = float("inf" if is_busy else "-inf")
            assert is_busy == cascade.gives_way()
            began_s = node.clock.monotonic_s()
            cascade._unshown.wrote(ours)
            cascade._settler.mark(ours, is_final=True)
            async with asyncio.timeout(10):
                while ours in cascade._unshown:  # noqa: ASYNC110  # of what nobody tells
                    await asyncio.sleep(0.005)
            assert is_busy == (node.clock.monotonic_s() - began_s >= held_s)
            await cascade.settled()


async def test_a_long_first_message_does_not_have_the_loop_import_what_counts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counting tokens takes NumPy, which a root without entries has not imported: it comes in a thread."""
    importers = importing.anew(monkeypatch, "everosd.models.piece")
    async with running(tmp_path, boundary_detection__hard_token_limit=64) as node:
        added = await intake(node).add(session(), said("I moved to Porto. " * 5, "It rains. " * 20), task_id="t")
        assert "extracted" == added.status
    assert importers
    assert threading.main_thread() not in importers


async def test_the_text_index_is_not_committed_for_each_of_many_requests(tmp_path: Path) -> None:
    """While somebody waits for an answer a commit waits for the next ones, for a moment; else it does not."""
    async with running(tmp_path) as node:
        await intake(node).add(session(), said("I moved to Porto."), task_id="t")
        await intake(node).flush(session(), task_id="t")
        await node.cascade.settled(10)
        node.text._committed_s = node.clock.monotonic_s() + 1
        assert not node.text.gives_way()
        with intake(node)._asking():
            assert node.text.gives_way()
            node.text._committed_s = node.clock.monotonic_s() - learning.COMMIT_PAUSE_S
            assert not node.text.gives_way()
