"""Files of messages that were kept long enough go as a whole; nothing that waits ever does."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest

from everosd import clock, config, daemon, types
from everosd.intake import message, online, retention, row
from everosd.lifecycle import desk, forget
from everosd.log import entry, layout, render
from everosd.store import lifecycle, read

OLD, LATER = "2026-03-02", "2026-03-05"
FOLDER = types.RelPath("default_app/default_project/sessions/s_1")
SESSION = types.Owner(app="default", project="default", type="session", id="s_1")
AT_US = 1_772_442_000_000_000  # 2026-03-02T09:00:00Z


def said(nth: int) -> message.Message:
    at_us = AT_US + nth * 60_000_000
    return message.Message(
        id=row.message_id("s_1", at_us, 0), sender_id="mara", role="user", timestamp_us=at_us, text=f"Number {nth}."
    )


def cut(*messages: message.Message) -> message.Segment:
    ids = [one.id for one in messages]
    return message.Segment(session=SESSION, id=row.memcell_id(SESSION, ids), messages=messages, reason="flush")


def draft(what: message.Message | message.Segment, state: row.State = "open") -> tuple[str, entry.Draft]:
    if isinstance(what, message.Message):
        return "message", row.of_message(what)
    return "segment", row.of_segment(what, state, clock.from_us(AT_US))


def write(root: Path, day: str, *drafts: tuple[str, entry.Draft]) -> types.RelPath:
    """Write a file of the session; return its path."""
    path = types.RelPath(f"{FOLDER}/messages-{day}.md")
    place = layout.place(path)
    assert place is not None
    rows = [
        entry.Entry(kind=kind, id=f"ms_{day.replace('-', '')}_{nth:08}", fields=one.fields, sections=one.sections)
        for nth, (kind, one) in enumerate(drafts, 1)
    ]
    (root / FOLDER).mkdir(parents=True, exist_ok=True)
    (root / path).write_bytes(render.new_file(place, rows, stamp=f"{day}T12:00:00+00:00"))
    return path


def old(root: Path, newest: str = LATER) -> list[types.RelPath]:
    return retention.finished(layout.Layout(root), FOLDER, newest)


def followed(*messages: message.Message) -> list[tuple[str, entry.Draft]]:
    segment = cut(*messages)
    return [draft(segment), draft(segment, "done"), draft(segment, "followed")]


def test_a_file_goes_when_all_of_it_was_followed_up(tmp_path: Path) -> None:
    """Every message is of a segment whose facts are there: the file may go."""
    path = write(tmp_path, OLD, draft(said(1)), *followed(said(1)))
    assert [path] == old(tmp_path)
    assert [] == old(tmp_path, "2026-03-01")


@pytest.mark.parametrize("state", ["open", "done"])
def test_a_file_stays_while_a_segment_is_not_followed_up(tmp_path: Path, state: row.State) -> None:
    """Cut, or extracted and without its facts: the messages are still needed."""
    write(tmp_path, OLD, draft(said(1)), draft(cut(said(1))), draft(cut(said(1)), state))
    assert [] == old(tmp_path)


def test_a_file_stays_while_a_message_waits(tmp_path: Path) -> None:
    """One message that was not cut keeps the whole file."""
    write(tmp_path, OLD, draft(said(1)), *followed(said(1)), draft(said(2)))
    assert [] == old(tmp_path)


def test_what_is_cut_on_a_later_day_takes_its_messages_along(tmp_path: Path) -> None:
    """Messages of one day, cut on the next: the first file may go, and both may once the second is old."""
    first = write(tmp_path, OLD, draft(said(1)))
    second = write(tmp_path, LATER, draft(said(2)), *followed(said(1), said(2)))
    assert [first] == old(tmp_path, OLD)
    assert [first, second] == old(tmp_path)


def test_a_row_that_cuts_what_is_not_followed_up_stays(tmp_path: Path) -> None:
    """Without it the messages of the other file would be cut anew, and extracted twice."""
    write(tmp_path, OLD, draft(said(1)))
    write(tmp_path, LATER, draft(cut(said(1))), draft(cut(said(1)), "done"))
    assert [] == old(tmp_path)


def test_a_file_stays_that_says_of_a_later_one_that_it_was_cut(tmp_path: Path) -> None:
    """A clock that was set back: without the row that cuts them, the messages of the other file would be new ones."""
    write(tmp_path, OLD, *followed(said(2)))
    write(tmp_path, LATER, draft(said(2)))
    assert [] == old(tmp_path, OLD)


def test_a_session_with_a_broken_file_keeps_all(tmp_path: Path) -> None:
    """What cannot be read may say anything."""
    write(tmp_path, OLD, draft(said(1)), *followed(said(1)))
    (tmp_path / FOLDER / f"messages-{LATER}.md").write_text("---\nid: [\n---\n")
    assert [] == old(tmp_path)


@contextlib.asynccontextmanager
async def running(root: Path, keep_days: float) -> AsyncIterator[daemon.Node]:
    env = {"EVEROS_EMBEDDING__MODEL": "none", "EVEROS_INTAKE__KEEP_MESSAGES_DAYS": str(keep_days)}
    loaded = await asyncio.to_thread(config.load, root, env)
    async with daemon.open_node(loaded, clock.SystemClock(), learns=True) as node:
        await node.cascade.settled()
        assert node.learning is not None
        await node.learning.intake.settled(10.0)
        yield node


async def test_old_messages_go_at_the_start_and_their_memories_stay(tmp_path: Path) -> None:
    """The file is gone, from the ledger as well and without an alarm; the Episode is there, and what is new is taken."""
    path = write(tmp_path, OLD, draft(said(1)), draft(cut(said(1))))
    async with running(tmp_path, 0):
        assert (tmp_path / path).exists()
    async with running(tmp_path, 3) as node:
        assert node.learning is not None
        intake = node.learning.intake

        async def is_known() -> bool:
            return path in {one.path for one in await node.reader.messages("default", "default", "s_1")}

        while await asyncio.to_thread((tmp_path / path).exists) or await is_known():  # noqa: ASYNC110  # two parts decide
            await asyncio.sleep(0.01)
        mara = types.Owner(app="default", project="default", type="user", id="mara")
        rows, _ = await node.reader.page(mara, "episode", now_us=0, limit=9)
        assert ["Number 1." in one.raw for one in rows] == [True]
        assert "" == node.cascade.status().alarm
        assert 0 == await intake._retention.look()  # today's file, with the rows that followed, stays


async def test_what_was_removed_for_good_does_not_come_back_once_its_messages_are_gone(tmp_path: Path) -> None:
    """The rows that were left of the messages went with their file: the tombstone says what may not be said again."""
    path = write(tmp_path, OLD, draft(said(1)), draft(cut(said(1))))
    mara = types.Owner(app="default", project="default", type="user", id="mara")
    async with running(tmp_path, 0) as node:
        (found,), _ = await node.reader.page(mara, "episode", now_us=0, limit=9)
        assert node.learning is not None
        parts = desk.Desk(node.reader, node.cascade, node.clock)
        await forget.Forgetting(parts, node.learning.intake.unsaying).remove(mara, found.entry_id, "hard_delete")
    async with running(tmp_path, 3) as node:
        assert node.learning is not None
        intake = node.learning.intake
        while await asyncio.to_thread((tmp_path / path).exists):  # noqa: ASYNC110  # retention decides
            await asyncio.sleep(0.01)
        again = online.Given(
            sender_id="mara", role="user", timestamp_us=said(1).timestamp_us, index=0, text=said(1).text
        )
        await intake.add(SESSION, [again], task_id="1" * 32)
        assert "no_extraction" == (await intake.flush(SESSION, task_id="2" * 32)).status
        assert "Number 1." not in "".join(one.read_text() for one in tmp_path.rglob("*.md"))
        other = online.Given(
            sender_id="mara", role="user", timestamp_us=said(2).timestamp_us, index=0, text=said(2).text
        )
        await intake.add(SESSION, [again, other], task_id="3" * 32)
        assert "extracted" == (await intake.flush(SESSION, task_id="4" * 32)).status


async def test_a_session_asks_for_what_was_removed_without_looking_at_all_rows(tmp_path: Path) -> None:
    """The index of the few is used, which takes that it is asked in its own words."""
    async with running(tmp_path, 0) as node:
        asked: list[str] = []

        class Listening:
            async def fetch(self, sql: str, values: tuple[object, ...]) -> list[tuple[object, ...]]:
                asked.append(str(await node.reader.fetch(f"EXPLAIN QUERY PLAN {sql}", values)))
                return []

        listening = cast("read.Reader", Listening())
        assert [] == await lifecycle.removed_messages(listening, "default", "default")
        assert [] == await lifecycle.unremoved(listening)
    assert [True, True] == ["lifecycle_rows_for_good" in plan for plan in asked]
