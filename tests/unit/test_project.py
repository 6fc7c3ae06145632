"""A projection over a real ledger: an index that lost its files, in part or whole, at rest or in use, is filled again."""

from __future__ import annotations

import asyncio
import shutil
import time
from pathlib import Path

import pytest

from everosd import config, daemon, errors
from everosd.cascade import project
from everosd.index import text
from everosd.search import query
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


@pytest.mark.parametrize("suffix", ["term", "idx", "fast", "fieldnorm"])
async def test_X05_damage_that_a_search_meets_is_mended_without_a_restart(root: Path, suffix: str) -> None:
    """Files of the index are overwritten while it is in use: a search may fail and say so, soon after all is found."""
    await three_days(root)
    async with unit.opened(root) as node:
        for path in (root / ".index" / "text").rglob(f"*.{suffix}"):
            with path.open("r+b") as file:  # in place: it is mapped into memory
                file.write(bytes(255 - byte for byte in path.read_bytes()))
        async with asyncio.timeout(20):
            while await searched(node) != 3:  # what a person does who gets an error
                node.text.suspect()
                await asyncio.sleep(0.01)
        assert 3 == await unit.live(node)


async def searched(node: daemon.Node) -> int:
    """Return how many entries a search finds; 0 where it says that it cannot."""
    try:
        return len(await unit.found(node, "hazel"))
    except (errors.DerivedIndexError, errors.IndexUnavailable):
        return 0


async def test_a_search_says_what_it_lacks_while_the_index_is_filled(root: Path) -> None:
    """A lost index answers with what is in again, and says that it is not all."""
    await three_days(root)
    shutil.rmtree(root / ".index" / "text")
    settings = await asyncio.to_thread(config.load, root, {})
    wanted = query.Query(owner=unit.owner(), text="hazel", method="keyword")
    async with daemon.open_parts(settings, fast_clock.FastClock()) as node:
        assert ("the text index is being filled: 0 of 0 entries",) == (await node.search.run(wanted)).degraded
    async with unit.opened(root) as node:
        assert () == (await node.search.run(wanted)).degraded


async def test_what_waits_for_an_index_that_opens_late_is_told(root: Path) -> None:
    """The index takes its time to open and has nothing to do: whoever embeds for it hears of it all the same."""
    await three_days(root)
    settings = await asyncio.to_thread(config.load, root, {})
    told: list[int] = []

    def slowly(folder: Path) -> tuple[text.TextIndex, bool]:
        time.sleep(0.1)
        return text.open_or_set_aside(folder)

    async with daemon.open_parts(settings, fast_clock.FastClock()) as node:
        for n_documents in (0, 3):  # made and filled, then opened with all that it had
            late = project.Projection("late", root / ".index" / "late", slowly, node.database, node.clock)
            late.on_commit = lambda late=late: told.append(late.index.count())  # type: ignore[misc]
            running = asyncio.create_task(late.run())
            await unit.until(lambda late=late: late.is_open and not late.is_behind() and late.index.count() == 3)  # type: ignore[misc]
            running.cancel()
            await late.close()
            assert n_documents == told[0]
            told.clear()


async def test_what_gives_way_waits_and_not_for_ever(root: Path) -> None:
    """Keyword search is catching up and never done: the other index is filled all the same, some seconds later."""
    await three_days(root)
    settings = await asyncio.to_thread(config.load, root, {})
    async with daemon.open_parts(settings, fast_clock.FastClock()) as node:
        late = project.Projection("late", root / ".index" / "late", text.open_or_set_aside, node.database, node.clock)
        late.gives_way = lambda: True
        began_s = node.clock.monotonic_s()
        running = asyncio.create_task(late.run())
        await unit.until(lambda: late.is_open and late.index.count() == 3)
        assert node.clock.monotonic_s() - began_s >= project.HELD_S
        running.cancel()
        await late.close()


async def test_an_index_that_opens_beside_the_others_comes_up_with_them(root: Path) -> None:
    """What the others had passed before it began to hold events back came with the first filling: it is not behind."""
    await three_days(root)
    async with unit.opened(root) as node:
        folder = root / ".index" / "late"
        late = project.Projection("late", folder, text.open_or_set_aside, node.database, node.clock, is_prompt=False)
        await late.open()
        unit.file(root, day="2026-03-04").write_text(unit.entry(1, "hazel", "20260304"))
        await unit.caught_up(node)
        running = asyncio.create_task(late.run(), name="late")
        late.wake(node.cascade.status().lsn)
        await unit.until(lambda: not late.is_behind())
        running.cancel()
        assert 4 == late.index.count()
        await late.close()


async def test_a_rebuild_is_begun_once_whoever_asks_for_it(root: Path) -> None:
    """Two calls at once, and a call before the index is opened that an earlier run has begun: one replacement is made."""
    await three_days(root)
    settings = await asyncio.to_thread(config.load, root, {})
    folder = root / ".index" / "late" / "2"

    async def filled(late: project.Projection[text.TextIndex]) -> None:
        running = asyncio.create_task(late.run())
        await unit.until(lambda: late.is_open and not late.is_behind() and late.index.count() == 3)
        running.cancel()

    async with daemon.open_parts(settings, fast_clock.FastClock()) as node:
        for has_begun in (False, True):
            late = project.Projection(
                "late", root / ".index" / "late", text.open_or_set_aside, node.database, node.clock
            )
            if not has_begun:
                await filled(late)
            before = folder.stat().st_ino if has_begun else None
            first, second = asyncio.create_task(late.rebuild()), asyncio.create_task(late.rebuild())
            await first
            made = folder.stat().st_ino
            await second
            assert made == folder.stat().st_ino
            assert before in (None, made)
            if has_begun:
                await filled(late)
                assert "" == late.status().error
            await late.close()
