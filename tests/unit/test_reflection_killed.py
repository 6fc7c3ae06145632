"""Cut off at any step, and begun again: all or nothing, and what was begun is finished."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from everosd.cascade import verify
from everosd.search import query
from tests import open_root, reflecting
from tests.reflecting import ANDREW, shop

SHOPS = range(20)
STATEMENTS = [shop(number) for number in SHOPS]


async def stands(root: open_root.Root, *, is_finished: bool) -> None:
    """Check all that holds at any moment, and more once everything is finished."""
    mind = reflecting.over(root)
    assert [] == await reflecting.wrongs(mind, STATEMENTS, is_finished=is_finished)
    assert () == (await verify.verify(root.node.cascade)).differences


@pytest.mark.timeout(120)
async def test_R01_a_merge_of_twenty_is_all_or_nothing_at_each_step(tmp_path: Path) -> None:
    """Cut off at each moment, and again while that is being finished: never deprecated without a live successor, no fact lost or doubled."""
    seen: list[str] = []
    async with open_root.opened(tmp_path) as root:
        await reflecting.scatter(root, ANDREW, SHOPS)
        await root.settled()
        fuse = reflecting.Fuse(1)
        assert await reflecting.killed(reflecting.over(root, fuse).run())
        seen.append(fuse.last)
    for nth in range(2, 99):
        async with open_root.opened(tmp_path) as root:
            await stands(root, is_finished=False)
            fuse = reflecting.Fuse(nth)
            mind = reflecting.over(root, fuse)
            if not await reflecting.killed(mind.reflection.recover() if nth % 2 else mind.run()):
                await stands(root, is_finished=True)
                break
            seen.append(fuse.last)
    assert {"committed", "facts", "pointed", "sources", "source_facts", "completed"} == set(seen)
    assert 4 == seen.count("pointed")
    async with open_root.opened(tmp_path) as root:
        mind = reflecting.over(root)
        before = await asyncio.to_thread(mind.digest)
        assert "" == await mind.reflection.recover()
        assert "nothing to consolidate" == (await mind.run()).note
        assert before == await asyncio.to_thread(mind.digest)
        assert 1 == len(await mind.reports())


@pytest.mark.timeout(120)
async def test_R01_a_rollback_is_all_or_nothing_at_each_step(tmp_path: Path) -> None:
    """Cut off at each moment: the next start undoes the rest, once."""
    async with open_root.opened(tmp_path) as root:
        ids = await reflecting.scatter(root, ANDREW, SHOPS)
        await root.settled()
        mind = reflecting.over(root)
        await mind.run()
        narrative = (await mind.narrative()).entry_id
        seen: list[str] = []
        fuse = reflecting.Fuse(known=seen)
        assert await reflecting.killed(reflecting.over(root, fuse).rollback(narrative))
        seen.append(fuse.last)
    for nth in range(99):
        async with open_root.opened(tmp_path) as root:
            assert [] == await reflecting.wrongs(reflecting.over(root), STATEMENTS, is_finished=False)
            fuse = reflecting.Fuse(known=seen)
            mind = reflecting.over(root, fuse)
            if not await reflecting.killed(mind.reflection.recover() if nth % 2 else mind.run()):
                await stands(root, is_finished=True)
                assert sorted(ids) == sorted(one.entry_id for one in await mind.live())
                (told,) = await mind.reports()
                assert ("rolled_back", True) == (told.status, told.is_restored)
                break
            seen.append(fuse.last)
    assert {"rolled_back", "revived", "sources_restored", "retiring", "retired", "restored"} == set(seen)


async def test_M16_a_crash_right_after_the_append_leaves_one_narrative(tmp_path: Path) -> None:
    """On disk, and nothing else yet; the next run finishes it, and says so; no model is asked again."""
    async with open_root.opened(tmp_path) as root:
        await reflecting.scatter(root, ANDREW, SHOPS)
        await root.settled()
        assert await reflecting.killed(reflecting.over(root, reflecting.Fuse(1)).run())
    async with open_root.opened(tmp_path) as root:
        mind = reflecting.over(root)
        assert "1 consolidation finished that an earlier run had begun" == (await mind.run()).note
        assert [] == mind.merging.asked
        assert [await mind.narrative()] == await mind.live()
        await stands(root, is_finished=True)


async def test_M21_old_facts_stay_away_when_the_index_is_deleted(tmp_path: Path) -> None:
    """Everything is in the log: fragments and their facts stay deprecated, reports and membership are as they were."""

    async def hits(root: open_root.Root) -> list[str]:
        asked = query.Query(owner=ANDREW, text="tea in shop 007", method="keyword")
        answer = await root.node.search.run(asked)
        return [hit.row.entry_id for hit in answer.episodes]

    async with open_root.opened(tmp_path) as root:
        await reflecting.scatter(root, ANDREW, SHOPS)
        await root.settled()
        mind = reflecting.over(root)
        await mind.run()
        before = (await mind.reports(), await mind.facts(), await hits(root))
    shutil.rmtree(tmp_path / ".index")
    async with open_root.opened(tmp_path) as root:
        mind = reflecting.over(root)
        assert before == (await mind.reports(), await mind.facts(), await hits(root))
        assert [(await mind.narrative()).entry_id] == await hits(root)
        await stands(root, is_finished=True)
        assert "nothing to consolidate" == (await mind.run()).note
