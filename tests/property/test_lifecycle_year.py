"""A year on a calendar: what runs of every day come to, against one at its end, and against a rebuild."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import pytest

from everosd.cascade import verify
from everosd.lifecycle import policy
from everosd.store import lifecycle as store
from tests import effort, governed

N_MEMORIES = effort.rounds(10_000, 150)
EVERY_DAYS = effort.rounds(1, 5)
"""Between two runs."""
TYPES = ("working", "episodic", "semantic", "procedural", "identity")
FLOORS = {"working": 0.05, "episodic": 0.10, "semantic": 0.20, "procedural": 0.25}


def wanted(n: int) -> list[dict[str, str]]:
    """Return memories of every type and importance, one in ten pinned, the same ones each time."""
    lot = random.Random(7)  # noqa: S311  # nobody has to be unable to guess it
    found = []
    for nth in range(n):
        one = {
            "memory_type": TYPES[nth % len(TYPES)],
            "path": f"topic{nth % 7}",
            "importance": f"{lot.randrange(101) / 100}",
            "content": f"memory number {nth} about {lot.choice(('boats', 'bread', 'bees'))}",
        }
        if nth % 10 == 3:
            one["pinned"] = "true"
        found.append(one)
    return found


async def year(path: Path, *, is_daily: bool) -> tuple[dict[str, store.Record], dict[str, store.Record]]:
    """Live a year in which some memories are used now and then; return the memories before and after."""
    async with governed.living(path) as life:
        ids = await life.remember_all(wanted(N_MEMORIES))
        before = await life.all()
        lot = random.Random(11)  # noqa: S311  # the same in both years
        for day in range(EVERY_DAYS, 366, EVERY_DAYS):
            life.calendar.pass_days(EVERY_DAYS)
            some = lot.sample(ids, max(1, len(ids) // 200))
            ms = int(life.calendar.now().timestamp() * 1000)
            await life.log("usage", "", targets=f"[{', '.join(f'{one}@{ms}' for one in some)}]")
            if is_daily or day + EVERY_DAYS >= 366:
                await life.reflect("decay", is_forced=True, limit=None)
        return before, await life.all()


def seen(records: Mapping[str, store.Record]) -> dict[str, tuple[str, float]]:
    """Return status and importance of each."""
    return {one: (record.status, record.importance) for one, record in records.items()}


@pytest.mark.timeout(effort.rounds(7200, 120))
async def test_a_year_of_daily_decay_is_one_decay_at_its_end(tmp_path: Path) -> None:
    """To the last digit, with uses in between; identity and pinned untouched, nothing below its floor, nothing raised."""
    before, daily = await year(tmp_path / "daily", is_daily=True)
    again, once = await year(tmp_path / "once", is_daily=False)
    assert N_MEMORIES == len(daily)
    assert seen(before) == seen(again)
    assert seen(daily) == seen(once)
    sunk = 0
    for entry_id, one in daily.items():
        was = before[entry_id].importance
        sunk += one.importance < was
        assert one.importance <= was
        if one.memory_type == policy.IDENTITY or one.is_pinned:
            assert was == one.importance
        else:
            assert one.importance >= min(was, FLOORS[one.memory_type])
        assert one.updated_us == before[entry_id].updated_us
    assert sunk > N_MEMORIES // 3


@pytest.mark.timeout(effort.rounds(7200, 120))
async def test_after_a_year_everything_can_be_restored_and_equals_a_rebuild(tmp_path: Path) -> None:
    """All rules, run after run: what is archived is there, comes back by one row, and the ledger is what the files say."""
    async with governed.living(tmp_path) as life:
        await life.remember_all(wanted(N_MEMORIES))
        before = governed.bytes_below(tmp_path)
        for _ in range(EVERY_DAYS, 366, EVERY_DAYS):
            life.calendar.pass_days(EVERY_DAYS)
            await life.reflect("expire", "decay", "archive", is_forced=True, limit=None)
        after = await life.all()
        archived = [one for one in after.values() if one.status == "archived"]
        assert {"working", "episodic", "semantic", "procedural"} == {one.memory_type for one in archived}
        kept = [one for one in after.values() if one.status == "active"]
        assert all(one.is_pinned or one.memory_type == policy.IDENTITY for one in kept)
        files = governed.bytes_below(tmp_path)
        assert before == {path: data for path, data in files.items() if path in before}
        for one in archived[:: effort.rounds(50, 5)]:
            await life.log("restore", one.entry_id, base="active", value="active", field="status")
            assert "active" == (await life.look(one.entry_id)).status
        assert (await verify.verify(life.root.node.cascade)).is_clean
