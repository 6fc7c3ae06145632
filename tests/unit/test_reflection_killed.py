"""Begun and finished by different processes, and kept by the log alone; for real kills see tests/process."""

from __future__ import annotations

import shutil
from pathlib import Path

from everosd.cascade import verify
from everosd.log import entry
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


async def test_R01_each_fact_is_looked_for_however_many_there_are(tmp_path: Path) -> None:
    """Until a merge is finished a statement has two facts; the newest of more than 1,000 are seen, and one that is gone is missed.

    `make crash` comes to that many at its 193rd round, and once took the last five of them for lost.
    """
    async with open_root.opened(tmp_path) as root:
        older = entry.Draft(
            fields={"owner_id": ANDREW.id, "timestamp": "2025-01-01T12:00:00+00:00"}, sections=(("Fact", "Older."),)
        )
        await root.pen.append(ANDREW, "atomic_fact", [older] * 975)
        await reflecting.scatter(root, ANDREW, SHOPS)
        await root.settled()
        assert await reflecting.killed(reflecting.over(root, reflecting.Fuse(known=("committed",))).run())
    async with open_root.opened(tmp_path) as root:
        mind = reflecting.over(root)
        assert 975 + 2 * len(SHOPS) == len(await mind.live("atomic_fact"))
        assert [] == await reflecting.wrongs(mind, STATEMENTS, is_finished=False)
        lost = [*STATEMENTS, shop(99)]
        assert f"no fact: {shop(99)}" in await reflecting.wrongs(mind, lost, is_finished=False)
