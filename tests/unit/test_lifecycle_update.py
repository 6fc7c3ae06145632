"""Changes of a memory beside a person's, at the moments that a clock cannot be made to hit."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from pathlib import Path

import pytest

from everosd import types
from everosd.lifecycle import desk, memory, update
from everosd.log import entry
from everosd.store import row as store_row
from tests import governed


@pytest.fixture
async def life(tmp_path: Path) -> AsyncIterator[governed.Life]:
    """A root with memories in it."""
    async with governed.living(tmp_path) as made:
        yield made


class _SlowDesk(desk.Desk):
    """Appends a row, and goes on once the ledger has read what a person saved before."""

    found: store_row.EntryRow

    async def log(self, owner: types.Owner, drafts: Sequence[entry.Draft]) -> tuple[types.EntryId, ...]:
        """Append; a person has saved `found` anew."""
        ids = await super().log(owner, drafts)
        await self.until_changed(self.found)
        return ids


async def test_a_change_of_what_a_person_saved_is_answered_when_it_is_known_and_not_when_theirs_is(
    life: governed.Life,
) -> None:
    """Theirs is read only between the row and the change: whoever looks right after the answer sees both versions."""
    entry_id = await life.remember(content="Tea at four.")
    found = await life.root.reader.find(life.owner, entry_id)
    assert found is not None
    slow = _SlowDesk(life.root.reader, life.root.node.cascade, life.calendar)
    slow.found = found
    await life.root.edit(found.path, "Tea at four.", "Tea at five, says Mara.")
    written = await update.Updates(slow).update(life.owner, entry_id, memory.Change(content="Coffee."))
    assert "Coffee." == memory.seen_of(memory.of_row(written.row)).content


class _RenamingDesk(desk.Desk):
    """Waits for what was written once a person has renamed its file and the ledger has taken note."""

    found: store_row.EntryRow
    new = ""

    async def until(self, holds: Callable[[], Awaitable[bool]], what: str, paths: Collection[types.RelPath]) -> None:
        """Have it renamed, and wait."""
        if self.new:
            new = types.RelPath(str(Path(self.found.path).with_name(self.new)))
            self.new = ""
            await asyncio.to_thread(os.rename, self.places.root / self.found.path, self.places.root / new)
            self.cascade.mark((self.found.path, new))
            async with asyncio.timeout(10):
                while (now := await self.reader.find(self.found.owner, self.found.entry_id)) is None or now.path != new:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        await super().until(holds, what, paths)


async def test_a_person_who_renames_the_file_of_a_change_does_not_hold_up_its_answer(life: governed.Life) -> None:
    """It is on disk, and the ledger knows it: under the new name."""
    entry_id = await life.remember(content="Tea at four.")
    found = await life.root.reader.find(life.owner, entry_id)
    assert found is not None
    parts = _RenamingDesk(life.root.reader, life.root.node.cascade, life.calendar)
    parts.found = found
    parts.step = lambda moment: setattr(parts, "new", "procedural-2026-03-01.md") if moment == "replaced" else None
    written = await update.Updates(parts).update(life.owner, entry_id, memory.Change(content="Coffee."))
    assert "procedural-2026-03-01.md" == Path(written.row.path).name
    assert "Coffee." == memory.seen_of(memory.of_row(written.row)).content
