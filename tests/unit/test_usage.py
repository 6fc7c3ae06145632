"""Uses of memories: noted at once, written once per entry and day, and only of what is there."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from everosd import errors, types
from everosd.lifecycle import usage
from everosd.log import entry, escape
from everosd.store import lifecycle as store
from tests import governed

BEN = types.Owner(app="default", project="default", type="user", id="ben")


def uses_of(life: governed.Life) -> usage.Uses:
    """Return what notes uses over a root."""
    return usage.Uses(life.parts, lambda: life.settings)


async def written(life: governed.Life) -> list[tuple[str, ...]]:
    """Return the targets of every row of uses, the oldest first."""
    await life.root.settled()
    found = await store.rows(life.root.reader, life.owner, actions=("usage",), limit=1000)
    return [escape.read_list(one.fields["targets"]) for one in reversed(found)]


def ms(life: governed.Life) -> int:
    """Return the moment shown, milliseconds since 1970."""
    return life.parts.now_us() // 1000


async def test_an_entry_is_written_once_a_day_and_its_last_use_is_not_lost(tmp_path: Path) -> None:
    """Used again on that day, it waits for the next; also after a restart, when the ledger alone knows."""
    async with governed.living(tmp_path) as life:
        uses = uses_of(life)
        one = await life.remember()
        first = ms(life)
        for _ in range(3):
            uses.note(life.owner, [one], life.parts.now_us())
            await uses.write(life.owner)
        life.calendar.pass_days(0.2)
        later = ms(life)
        uses.note(life.owner, [one], life.parts.now_us())
        await uses.write(life.owner)
        again = uses_of(life)
        again.note(life.owner, [one], life.parts.now_us())
        await again.write(life.owner)
        assert [(f"{one}@{first}",)] == await written(life)
        life.calendar.pass_days(0.9)
        await uses.write(life.owner)
        await uses.write(life.owner)
        assert [(f"{one}@{first}",), (f"{one}@{later}",)] == await written(life)
        record = await life.look(one)
    assert (later * 1000, 2) == (record.accessed_us, record.n_uses)


async def test_only_own_typed_memories_that_are_there_are_written(tmp_path: Path) -> None:
    """Not what is gone, was never there, or is an Episode, unless those are governed, too."""
    async with governed.living(tmp_path) as life:
        uses = uses_of(life)
        one = await life.remember()
        draft = entry.Draft(fields={"timestamp": governed.START.isoformat()}, sections=(("Content", "tea"),))
        (episode,) = await life.root.pen.append(life.owner, "episode", [draft])
        await life.root.settled()
        ids = [one, episode, "mem_20200101_00000001", "x", "ep_20200101_00000001"]
        for owner in (life.owner, BEN):
            uses.note(owner, ids, life.parts.now_us())
        await uses.write_all()
        assert [(f"{one}@{ms(life)}",)] == await written(life)
        assert not (tmp_path / "default_app/default_project/users/ben").exists()
        life.set(lifecycle=msgspec.structs.replace(life.settings.lifecycle, episodes=True))
        uses.note(life.owner, ids, life.parts.now_us())
        await uses.write(life.owner)
        assert [(f"{one}@{ms(life)}",), (f"{episode}@{ms(life)}",)] == await written(life)
        assert {} == uses._noted


async def test_many_uses_are_rows_of_two_hundred(tmp_path: Path) -> None:
    """All appended at once."""
    async with governed.living(tmp_path) as life:
        uses = uses_of(life)
        ids = await life.remember_all({} for _ in range(450))
        uses.note(life.owner, ids, life.parts.now_us())
        await uses.write(life.owner)
        assert [200, 200, 50] == [len(one) for one in await written(life)]
        assert {1} == {one.n_uses for one in (await life.all()).values()}


async def test_what_cannot_be_written_stays_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk loses no use, and stops nobody."""
    async with governed.living(tmp_path) as life:
        uses = uses_of(life)
        one = await life.remember()
        uses.note(life.owner, [one], life.parts.now_us())

        async def refuse(*_: object) -> tuple[types.EntryId, ...]:
            path = "x"
            raise errors.WriteRefused(path, "no space left")

        with monkeypatch.context() as patched:
            patched.setattr(life.parts, "log", refuse)
            await uses.write_all()
            with pytest.raises(errors.WriteRefused):
                await uses.write(life.owner)
        await uses.write_all()
        await life.root.settled()
        assert [(f"{one}@{ms(life)}",)] == await written(life)


async def test_a_log_that_cannot_be_written_does_not_stop_the_next_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ben comes first and is refused; the other's use is in the log, and his is tried again."""
    async with governed.living(tmp_path) as life:
        uses, mara = uses_of(life), life.owner
        life.owner = BEN
        his = await life.remember()
        life.owner = mara
        hers = await life.remember()
        uses.note(BEN, [his], life.parts.now_us())
        uses.note(mara, [hers], life.parts.now_us())
        write = life.parts.log

        async def log(owner: types.Owner, drafts: Sequence[entry.Draft]) -> tuple[types.EntryId, ...]:
            if owner == BEN:
                path = "lifecycle-2026-03-01.md"
                raise errors.WriteRefused(path, "is write-protected")
            return await write(owner, drafts)

        monkeypatch.setattr(life.parts, "log", log)
        await uses.write_all()
        assert [(f"{hers}@{ms(life)}",)] == await written(life)
        monkeypatch.undo()
        await uses.write_all()
        life.owner = BEN
        assert [(f"{his}@{ms(life)}",)] == await written(life)


async def test_somebody_who_was_forgotten_does_not_come_back_by_their_uses(tmp_path: Path) -> None:
    """What was noted goes with them."""
    async with governed.living(tmp_path) as life:
        uses = uses_of(life)
        one = await life.remember()
        uses.note(life.owner, [one], life.parts.now_us())
        uses.forget(life.owner)
        await uses.write_all()
        await life.root.settled()
        assert [] == await written(life)


async def test_uses_that_nobody_writes_take_no_more_memory_than_they_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New ones are left out, known ones stay up to date."""
    monkeypatch.setattr(usage, "MAX_NOTED", 3)
    async with governed.living(tmp_path) as life:
        uses = uses_of(life)
        uses.note(life.owner, list("abcd"), 5_000)
        uses.note(BEN, ["e"], 5_000)
        uses.note(life.owner, ["a", "d"], 9_000)
        assert {"a": 9_000, "b": 5_000, "c": 5_000} == uses._noted[life.owner]
        uses.forget(life.owner)
        uses.note(BEN, ["e"], 5_000)
        assert {"e": 5_000} == uses._noted[BEN]


async def test_it_is_written_every_hour_while_anything_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing is while nothing is used."""
    async with governed.living(tmp_path) as life:
        uses = uses_of(life)
        one = await life.remember()
        slept: list[float] = []
        count = itertools.count()

        async def sleep(seconds: float) -> None:
            slept.append(seconds)
            next(count)
            await asyncio.sleep(0)

        monkeypatch.setattr(life.parts.clock, "sleep", sleep)
        running = asyncio.create_task(uses.run())
        await asyncio.sleep(0.02)
        assert [] == slept
        uses.note(life.owner, [one], life.parts.now_us())
        async with asyncio.timeout(10):
            while uses._noted:  # noqa: ASYNC110  # nothing tells
                await asyncio.sleep(0.01)
        assert usage.EVERY_S in slept
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


async def test_moments_of_use_grew_with_every_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are counted up to the newest where nothing is due, and what decay comes to stays the same."""
    monkeypatch.setattr(usage, "MAX_MOMENTS", 10)
    async with governed.living(tmp_path) as life:
        uses = uses_of(life)
        one, owing = await life.remember_all(
            [{"memory_type": "semantic", "importance": "0.8"}, {"memory_type": "working"}]
        )
        days = [life.calendar.at]
        for _ in range(25):
            life.calendar.pass_days(1.5)
            days.append(life.calendar.at)
            uses.note(life.owner, [one, owing], life.parts.now_us())
            await uses.write(life.owner)
        records = await life.all()
        told = await store.rows(life.root.reader, life.owner, actions=("decay",))
        assert (25, 25) == (records[one].n_uses, len(records[owing].moments))  # what is owed is told apart no more
        assert len(records[one].moments) <= 11
        assert {one} == {each.fields["target"] for each in told}
        assert 0.8 == records[one].importance
        life.calendar.pass_days(91)
        await life.reflect("decay")
        records = await life.all()
    assert (0.77, 0.05) == (records[one].importance, records[owing].importance)


async def test_a_use_spares_a_memory_the_step_that_was_due(tmp_path: Path) -> None:
    """Noted before the pass, written by it, and both kinds of run decide alike."""
    async with governed.living(tmp_path) as life:
        uses = uses_of(life)
        life.passes._uses = uses
        one, other = await life.remember_all([{"memory_type": "working"}, {"memory_type": "working"}])
        life.calendar.pass_days(0.6)
        used_us = life.parts.now_us()
        uses.note(life.owner, [one], used_us)
        life.calendar.pass_days(0.6)
        dry = await life.reflect("decay", is_dry_run=True)
        assert [] == await written(life)
        real = await life.reflect("decay")
        assert [other] == governed.applied(dry, "decay") == governed.applied(real, "decay")
        assert governed.decided(dry, "decay") == governed.decided(real, "decay")
        records = await life.all()
    assert used_us == records[one].accessed_us
    assert None is records[other].accessed_us
