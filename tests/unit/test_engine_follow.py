"""Hand edits: which changes of the ledger become events, and when."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import hashlib
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from everosd import clock, types
from everosd.engine import engine, follow, runs, settings, strategy
from everosd.store import checkpoint, db, ledger, read, state
from tests import fast_clock

MARA = types.Owner(app="default", project="default", type="user", id="mara")
MEMCELL = "memcell"


class Wall(fast_clock.FastClock):
    """A fast clock whose moments the test moves."""

    def __init__(self) -> None:
        """Begin on a Monday."""
        super().__init__(1000.0)
        self.moment = dt.datetime(2026, 3, 2, 12, tzinfo=dt.UTC)

    def now(self) -> dt.datetime:
        """Return what the test says."""
        return self.moment

    def pass_s(self, seconds: float) -> None:
        """Move on."""
        self.moment += dt.timedelta(seconds=seconds)


class Desk:
    """A ledger, an engine and a follower, whose looks the test makes."""

    def __init__(self, database: db.Database, root: Path, time: Wall) -> None:
        """Wire the parts."""
        self.time = time
        self.database = database
        self.engine = engine.Engine(settings.Watcher(root, time), runs.Runs(database, time), time)
        self.engine.add(
            strategy.Strategy(name="extract_atomic_facts", topics=("episode_written", "episode_edited"), run=self.run)
        )
        self.edited: list[str] = []
        self.is_away = asyncio.Event()
        self.is_away.set()
        self.lsn = 0
        self.follower = follow.Follower(database, lambda: self.lsn, self.engine, time)
        self.follower.digest = lambda found: f"of-{found.raw}"

    async def run(self, event: strategy.Event) -> str:
        """Take facts, once the model is there."""
        assert ("episode_edited", MARA) == (event.topic, event.owner)
        self.edited.append(event.subject)
        await self.is_away.wait()
        return "done"

    async def save(self, path: str, *entries: state.EntryState) -> None:
        """Have a file read as it is now."""
        file = state.FileState(
            path=types.RelPath(path),
            kind="episode",
            owner=MARA,
            date="20260302",
            inode=1,
            size=1,
            mtime_ns=1,
            digest=b"d",
            stamp="",
            entry_count=0,
            entries=entries,
            deprecated={},
        )
        now_us = clock.to_us(self.time.now())
        found = await self.database.write(lambda connection: ledger.apply_files(connection, [file], now_us=now_us))
        self.lsn = max(self.lsn, *(outcome.lsn for outcome in found.values()))

    async def look(self, after_s: float = 0.0) -> list[str]:
        """Let time pass, look, and return what was emitted, done or not."""
        self.edited.clear()
        self.time.pass_s(after_s)
        await self.follower.look()
        if self.is_away.is_set():
            assert await self.engine.settled(10_000)
            await self.follower.look()
        else:
            await asyncio.sleep(0.05)
        return sorted(self.edited)

    async def count(self, what: str) -> int:
        """Return how many rows a table has."""
        sql = f"SELECT count(*) FROM {what}"  # noqa: S608  # the test's own word
        return await self.database.write(lambda connection: int(connection.execute(sql).fetchone()[0]))


@contextlib.asynccontextmanager
async def opened(root: Path, time: Wall | None = None) -> AsyncIterator[Desk]:
    """Run the engine over a ledger in `root`."""
    database = await db.Database.open(root / "system.db")
    made = Desk(database, root, time or Wall())
    task = asyncio.create_task(made.engine.run())
    try:
        yield made
    finally:
        await made.engine.stop()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await database.close()


def episode(number: int, text: str = "text", *, parent: str = MEMCELL, kind: str = "episode") -> state.EntryState:
    """One Episode."""
    entry_id = f"ep_20260302_{number:08}"
    return state.EntryState(
        entry_id=entry_id,
        nth=0,
        line=1,
        form="marked",
        kind=kind,
        digest=hashlib.blake2b(f"{entry_id}{text}".encode(), digest_size=16).digest(),
        session_id="s",
        timestamp_us=1,
        parent_type=parent,
        parent_id="mc_1" if parent else "",
        sender_ids="[]",
        memory_type="",
        memory_path="",
        own_status="active",
        expires_us=None,
        raw=text,
    )


async def test_an_edited_episode_is_emitted_once_it_was_quiet_for_five_minutes(tmp_path: Path) -> None:
    """The newest edit begins the wait anew; afterwards nothing is left to do."""
    async with opened(tmp_path) as desk:
        await desk.save("a.md", episode(1), episode(2))
        assert [] == await desk.look(600), "what the daemon wrote is no edit"
        await desk.save("a.md", episode(1, "new"), episode(2))
        assert [] == await desk.look(200)
        await desk.save("a.md", episode(1, "newer"), episode(2))
        assert [] == await desk.look(200)
        assert 1 == desk.follower.n_waiting
        assert ["ep_20260302_00000001"] == await desk.look(100)
        assert 0 == desk.follower.n_waiting
        assert [] == await desk.look(3600)


async def test_what_is_no_episode_or_is_gone_is_not_emitted(tmp_path: Path) -> None:
    """An edited fact, an Episode that was edited and then deleted."""
    async with opened(tmp_path) as desk:
        await desk.save("a.md", episode(1), episode(2), episode(3, kind="atomic_fact"))
        await desk.save("a.md", episode(1), episode(2, "new"), episode(3, "new", kind="atomic_fact"))
        assert [] == await desk.look(1)
        await desk.save("a.md", episode(1))
        assert [] == await desk.look(600)
        assert 0 == await desk.count("edits")


async def test_what_a_person_writes_by_hand_is_emitted_and_files_copied_in_are_not(tmp_path: Path) -> None:
    """Fifty in a minute are a person's; of more none is, nor their like before and after in the same stream."""
    async with opened(tmp_path) as desk:
        await desk.save("a.md", *(episode(n, parent="") for n in range(50)))
        assert 50 == len(await desk.look(300))
        desk.time.pass_s(3600 - desk.time.moment.minute * 60 + 55)
        for file in range(5):  # 40 each, twenty seconds apart, over the turns of two minutes
            await desk.save(f"b{file}.md", *(episode(1000 * (file + 1) + n, parent="") for n in range(40)))
            await desk.look(20)
        assert [] == await desk.look(600)
        assert 0 == await desk.count("edits")
        await desk.save("c.md", episode(9999, parent=""))
        assert ["ep_20260302_00009999"] == await desk.look(300)


async def test_what_waits_survives_a_restart(tmp_path: Path) -> None:
    """An edit that waits, and one whose facts the model has not given: the next daemon emits both, and only those."""
    time = Wall()
    async with opened(tmp_path, time) as desk:
        await desk.save("a.md", episode(1), episode(2), episode(3))
        await desk.save("a.md", episode(1, "new"), episode(2), episode(3))
        await desk.look(250)
        await desk.save("a.md", episode(1, "new"), episode(2, "new"), episode(3))
        desk.is_away.clear()
        assert ["ep_20260302_00000001"] == await desk.look(60)
        assert 2 == desk.follower.n_waiting
    async with opened(tmp_path, time) as desk:
        assert ["ep_20260302_00000001"] == await desk.look()
        assert ["ep_20260302_00000002"] == await desk.look(300)
        assert [] == await desk.look(3600)


async def test_an_edit_during_its_own_extraction_is_emitted_again(tmp_path: Path) -> None:
    """The facts that are being taken are those of the text before."""
    async with opened(tmp_path) as desk:
        await desk.save("a.md", episode(1))
        await desk.save("a.md", episode(1, "new"))
        desk.is_away.clear()
        assert ["ep_20260302_00000001"] == await desk.look(300)
        await desk.save("a.md", episode(1, "newest"))
        assert [] == await desk.look(1)
        desk.is_away.set()
        assert [] == await desk.look()
        assert ["ep_20260302_00000001"] == await desk.look(300)
        assert [] == await desk.look(3600)


async def test_changes_that_the_follower_has_not_read_are_not_dropped(tmp_path: Path) -> None:
    """The index is ahead, as it mostly is: the edit is still there, and dropped once it was read."""
    async with opened(tmp_path) as desk:
        await desk.save("a.md", episode(1))
        await desk.look()
        await desk.save("a.md", episode(1, "new"))

        def pass_by(connection: sqlite3.Connection) -> None:
            checkpoint.save(connection, checkpoint.Checkpoint(name="text", generation=1, lsn=desk.lsn), 1)

        await desk.database.write(pass_by)
        assert 1 == await desk.count("events")
        assert ["ep_20260302_00000001"] == await desk.look(300)
        assert 0 == await desk.count("events")


async def test_many_edits_go_to_the_engine_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A word is replaced in every Episode: all are done, at most so many are with the engine at once."""
    monkeypatch.setattr(follow, "MAX_EMITTED", 20)
    monkeypatch.setattr(follow, "BATCH", 7)
    n = 60
    async with opened(tmp_path) as desk:
        await desk.save("a.md", *(episode(number) for number in range(n)))
        await desk.save("a.md", *(episode(number, "new") for number in range(n)))
        desk.is_away.clear()
        await desk.look(300)
        assert follow.MAX_EMITTED == sum(one.waiting + one.running for one in desk.engine.status())
        assert n == desk.follower.n_waiting
        desk.is_away.set()
        for _ in range(5):
            await desk.look()
        assert 0 == desk.follower.n_waiting
        assert 0 == await desk.count("edits")


async def test_a_ledger_made_anew_finds_episodes_whose_facts_are_of_another_text(tmp_path: Path) -> None:
    """An Episode was edited and .index deleted before its facts were taken: they are taken all the same, and no others."""
    async with opened(tmp_path) as desk:
        await desk.save("e.md", episode(1, "new"), episode(2, "old"), episode(3, "new"), episode(4, "new", parent=""))
        facts = [
            msgspec.structs.replace(
                episode(100 + n, f"**timestamp**: x\n**source_digest**: of-old\n### Fact\n{n}", kind="atomic_fact"),
                parent_id=f"ep_20260302_{n:08}",
            )
            for n in (1, 2)
        ]
        facts.append(
            msgspec.structs.replace(episode(103, "of EverOS", kind="atomic_fact"), parent_id=f"ep_20260302_{3:08}")
        )
        await desk.save("f.md", *facts)
        assert [] == await desk.look(100)
        assert ["ep_20260302_00000001", "ep_20260302_00000004"] == await desk.look(200)
        assert [] == await desk.look(3600)
    async with opened(tmp_path, desk.time) as desk:
        assert [] == await desk.look(400), "once is enough"


async def test_what_is_owed_is_emitted_at_once_and_after_a_restart_too(tmp_path: Path) -> None:
    """A narrative whose facts could not be taken: the model is away, the daemon is restarted, and they are taken."""
    time = Wall()
    async with opened(tmp_path, time) as desk:
        await desk.save("a.md", episode(1))
        assert [] == await desk.look()
        desk.is_away.clear()
        reader = await read.Reader.open(desk.database.path)
        found = await reader.find(MARA, "ep_20260302_00000001")
        await reader.close()
        assert found is not None
        await desk.follower.owe(found)
        assert ["ep_20260302_00000001"] == await desk.look()
    async with opened(tmp_path, time) as desk:
        assert ["ep_20260302_00000001"] == await desk.look()
        assert [] == await desk.look(1000)
        assert 0 == await desk.count("edits")
