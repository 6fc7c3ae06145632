"""Hand edits of typed memories: one row of the log each, and none for what the daemon or a program did."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from everosd import clock, types
from everosd.engine import engine, follow, runs, settings, touch
from everosd.log import entry, entry_text
from everosd.store import lifecycle
from tests import open_root

MARA = types.Owner(app="default", project="default", type="user", id="mara")
FILE = "default_app/default_project/users/mara/memories/projects/tide/semantic-2026-03-02.md"
QUIET_S = follow.QUIET_S + 61


class Desk:
    """A root with a follower whose looks the test makes, at moments of its choice."""

    def __init__(self, root: open_root.Root) -> None:
        """Wire the parts."""
        self.root, self.later_s = root, 0.0
        database = root.node.cascade.database
        made = engine.Engine(
            settings.Watcher(root.path, clock.SystemClock()), runs.Runs(database, clock.SystemClock()), self
        )
        self.follower = follow.Follower(database, lambda: root.node.cascade.lsn, made, self, root.pen)

    def now(self) -> dt.datetime:
        """Return a moment that is as much later as the test says."""
        return clock.from_us(clock.to_us(clock.SystemClock().now()) + int(self.later_s * 1_000_000))

    def monotonic_s(self) -> float:
        """Return seconds."""
        return clock.SystemClock().monotonic_s() + self.later_s

    async def sleep(self, seconds: float) -> None:
        """Wait for nothing."""
        await asyncio.sleep(min(seconds, 0))

    async def rows(self, after_s: float = QUIET_S) -> list[str]:
        """Let time pass, look, and return which memories the log says were edited."""
        await self.root.settled()
        self.later_s += after_s
        await self.follower.look()
        await self.root.settled()
        found = await lifecycle.rows(self.root.reader, MARA, actions=("edited",))
        return sorted(each.fields["target"] for each in found)


def marked(number: int, text: str) -> str:
    """Return a memory as it stands in its file."""
    key = f"mem_20260302_{number:08}"
    return f"<!-- entry:{key} -->\n## {key}\n\n**owner_id**: mara\n**timestamp**: 2026-03-02T12:00:00+00:00\n\n### Content\n{text}\n<!-- /entry:{key} -->\n"


@pytest_asyncio.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    """A root with three memories."""
    (tmp_path / FILE).parent.mkdir(parents=True)
    (tmp_path / FILE).write_text("\n".join(marked(n, f"high tide at {n}") for n in (1, 2, 3)))
    async with open_root.opened(tmp_path) as root:
        made = Desk(root)
        await made.follower.look()
        yield made


async def test_an_edit_by_hand_is_one_row_once_it_is_quiet(desk: Desk) -> None:
    """Several saves are one edit; memories that were not touched, and those that are new, have none."""
    await desk.root.edit(FILE, "tide at 2", "tide at twelve")
    await desk.root.settled()
    assert [] == await desk.rows(0)
    await desk.root.edit(FILE, "tide at twelve", "tide at noon")
    assert ["mem_20260302_00000002"] == await desk.rows()
    assert ["mem_20260302_00000002"] == await desk.rows()
    found = await lifecycle.find(desk.root.reader, MARA, "mem_20260302_00000002")
    assert found is not None
    assert (found.anchor_us,) == found.moments
    assert abs(clock.to_us(clock.SystemClock().now()) - found.moments[0]) < 60_000_000


async def test_the_row_of_an_edit_says_which_importance_it_gave(desk: Desk) -> None:
    """Before and after, over several saves; one that is back at the end, and one of the text alone, say nothing of it."""
    key, at = "mem_20260302_00000002", "**timestamp**: 2026-03-02T12:00:00+00:00\n\n### Content\nhigh tide at 2"

    async def given(*edits: tuple[str, str]) -> list[dict[str, str]]:
        for old, new in edits:
            await desk.root.edit(FILE, old, new)
            await desk.root.settled()
        assert [key] == sorted(set(await desk.rows()))
        (newest, *_) = await lifecycle.rows(desk.root.reader, MARA, target=key, actions=("edited",))
        return [{name: text for name, text in newest.fields.items() if name in ("field", "was", "value")}]

    first, second = (f"**importance**: {each}\n{at}" for each in ("0.8", "0.9"))
    assert [{"field": "importance", "value": "0.9"}] == await given((at, first), (first, second))
    assert [{}] == await given((second, f"{second}, about"))
    assert [{}] == await given((f"{second}, about", f"{first}, about"), (f"{first}, about", second))
    assert [{"field": "importance", "was": "0.9", "value": "0.8"}] == await given((second, first))
    assert [{"field": "importance", "was": "0.8"}] == await given((first, at))


async def test_what_everosd_changed_itself_is_no_edit_by_hand(desk: Desk) -> None:
    """Its row names the text that it left; a person's change of that text is one again."""
    key = "mem_20260302_00000001"

    def change(old: entry.Entry) -> entry.Entry:
        return entry.Entry(kind=old.kind, id=old.id, fields={**old.fields, "importance": "0.9"}, sections=old.sections)

    new = await desk.root.pen.update(types.RelPath(FILE), key, change)
    await desk.root.settled()
    (held,) = [each for each in await desk.root.all(MARA, "memory") if each.entry_id == key]
    digest = entry_text.digest("memory", key, held.raw).hex()
    assert new.id == key
    fields = {
        "timestamp": "2026-03-02T12:00:00+00:00",
        "action": "update",
        "target": key,
        "version": "1",
        "digest": digest,
    }
    await desk.root.pen.append(MARA, "lifecycle", [entry.Draft(fields=fields)])
    assert [] == await desk.rows()
    await desk.root.edit(FILE, "tide at 1", "tide at one")
    assert [key] == await desk.rows()


async def test_files_that_a_program_changed_by_the_hundred_are_no_edits(desk: Desk) -> None:
    """A checkout, or a replace over all files, says nothing of each memory."""
    many = range(1, touch.MAX_A_MINUTE + 10)
    folder = Path(FILE).parent
    for text in ("high", "low"):
        whole = "\n".join(marked(n, f"{text} tide {n}") for n in many)
        await desk.root.save(str(folder / "semantic-2026-03-02.md"), whole)
        assert [] == await desk.rows(0)
    assert [] == await desk.rows()
    assert [] == await desk.rows()


async def test_what_a_program_left_over_of_one_look_is_no_edit_either(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkout of more memories than one look takes in: its rest is no more a person's than the beginning."""
    monkeypatch.setattr(touch, "BATCH", touch.MAX_A_MINUTE + 1)
    many = range(1, touch.MAX_A_MINUTE + 10)
    for text in ("high", "low"):
        whole = "\n".join(marked(n, f"{text} tide {n}") for n in many)
        await desk.root.save(FILE, whole)
        assert [] == await desk.rows(0)
    assert [] == await desk.rows()
    assert [] == await desk.rows()


async def test_an_edit_outlives_a_disk_that_takes_no_row(desk: Desk) -> None:
    """It is noted once the log can be written again."""
    await desk.root.edit(FILE, "tide at 3", "tide at three")
    await desk.root.settled()
    folder = desk.root.path / "default_app/default_project/users/mara/.lifecycle"
    await asyncio.to_thread(folder.write_text, "in the way")
    assert [] == await desk.rows()
    await asyncio.to_thread(folder.unlink)
    assert ["mem_20260302_00000003"] == await desk.rows()
