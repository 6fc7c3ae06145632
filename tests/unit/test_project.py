"""A projection over a real ledger: an index that lost its files, in part or whole, at rest or in use, is filled again."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from everosd import config, daemon
from tests import fast_clock
from tests.unit import test_cascade as unit

root = unit.root


async def three_days(root: Path) -> None:
    """Make a root with three entries, all of them indexed."""
    for n in range(3):
        unit.file(root, day=f"2026-03-0{n + 1}").write_text(unit.entry(1, "hazel", f"2026030{n + 1}"))
    async with unit.opened(root) as node:
        assert 3 == len(await unit.found(node, "hazel"))


@pytest.mark.parametrize("part", ["text", "text/1", "text/1/long", "text/1/schema.json"])
async def test_X11_a_part_of_the_index_that_was_deleted_is_filled_again(root: Path, part: str) -> None:
    """Only a part of .index is removed while nothing runs: the next start finds everything."""
    await three_days(root)
    gone = root / ".index" / part
    shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
    async with unit.opened(root) as node:
        assert 3 == len(await unit.found(node, "hazel"))
        assert 3 == await unit.live(node)


async def test_X05_a_start_that_dies_before_it_fills_a_new_index_leaves_no_empty_one(root: Path) -> None:
    """The index was lost, the next start is killed right after opening: the one after that finds everything."""
    await three_days(root)
    shutil.rmtree(root / ".index" / "text")
    settings = await asyncio.to_thread(config.load, root, {})
    async with daemon.open_parts(settings, fast_clock.FastClock()):
        pass
    async with unit.opened(root) as node:
        assert 3 == len(await unit.found(node, "hazel"))
        assert 3 == await unit.live(node)


async def test_an_index_that_had_nothing_to_do_does_not_stand_still(root: Path) -> None:
    """Its age counts from the moment at which it fell behind, not from its last work, which may be days ago."""
    await three_days(root)
    async with unit.opened(root) as node:
        await node.clock.sleep(10)
        assert 0.0 == node.text.status().age_s
        node.text.wake(node.cascade.status().lsn + 1)
        began_s = node.clock.monotonic_s()
        assert 1 == node.text.status().behind
        assert node.text.status().age_s <= node.clock.monotonic_s() - began_s + 1
        await node.clock.sleep(5)
        assert node.text.status().age_s >= 5


@pytest.mark.parametrize("is_rebuilding", [False, True])
async def test_the_text_index_is_deleted_while_the_daemon_runs(root: Path, *, is_rebuilding: bool) -> None:
    """The next save is found, and so is everything else."""
    await three_days(root)
    async with unit.opened(root) as node:
        if is_rebuilding:
            await node.text.rebuild()
        shutil.rmtree(root / ".index" / "text")
        unit.file(root, day="2026-03-04").write_text(unit.entry(1, "hazel", "20260304"))
        await unit.caught_up(node)
        await unit.until(lambda: not node.text.is_behind() and node.text.index.count() == 4)
        assert 4 == len(await unit.found(node, "hazel"))
        assert 4 == await unit.live(node)
