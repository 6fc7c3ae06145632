"""A memory that moves stands in both files for a moment. Where a crash has left it so, its version before is taken out."""

from __future__ import annotations

import functools

import structlog

from everosd import errors, types
from everosd.lifecycle import desk, memory, row, versions
from everosd.log import entry
from everosd.store import owned

log = structlog.get_logger()


async def finish(here: desk.Desk, owner: types.Owner, entry_id: str) -> bool:
    """Take out of their files the copies of a memory that say what one of its earlier versions said; tell whether any did.

    What a person has written into a copy is no version: it stays, and so does everything where no copy says anything else.
    Call within the owner's turn.

    Raises:
        WriteRefused: a file may not be rewritten.
        StoreError: it is done, and the ledger does not take note.
    """
    copies = await here.reader.fetch(
        f"SELECT path, raw FROM entries WHERE {owned.by()} AND entry_id = ? AND kind = ?",  # noqa: S608
        (*owned.scope(owner), entry_id, memory.KIND),
    )
    if len(copies) < 2:  # noqa: PLR2004  # where it is, and where it was
        return False
    told = await versions.rows(here.reader, owner, entry_id)
    ended = {dict(each.sections).get(row.BEFORE, "") for each in told}
    left = [(types.RelPath(path), str(raw)) for path, raw in copies if raw in ended]
    if len(left) == len(copies):
        return False
    for path, raw in left:
        with here.cascade.erasing((path,)):
            await here.pen.take(path, entry_id, functools.partial(_says, raw))
            await here.until(functools.partial(is_gone, here, path, entry_id), entry_id, (path,))
    return bool(left)


async def is_gone(here: desk.Desk, path: types.RelPath, entry_id: str, raw: str | None = None) -> bool:
    """Tell whether the ledger knows no such entry in a file; with `raw`, none that says that."""
    found = await here.reader.fetch("SELECT raw FROM entries WHERE path = ? AND entry_id = ?", (path, entry_id))
    return all(raw is not None and raw != each for (each,) in found)


async def recover(here: desk.Desk) -> int:
    """Finish the moves of every owner; return how many those were. What cannot be finished is so at the next update, or start."""
    await here.caught_up()
    twice = await here.reader.fetch(
        f"SELECT DISTINCT {', '.join(owned.COLUMNS)}, entry_id FROM entries WHERE kind = ? AND is_shadowed = 1",  # noqa: S608
        (memory.KIND,),
    )
    n_finished = 0
    for app, project, owner_type, owner_id, entry_id in twice:
        owner = types.Owner(app=app, project=project, type=owner_type, id=owner_id)
        try:
            async with here.pen.in_turn(owner):
                n_finished += await finish(here, owner, str(entry_id))
        except errors.EverosdError as error:
            log.warning("move_not_finished", owner=owner.id, entry_id=entry_id, reason=str(error))
    return n_finished


def _says(raw: str, now: entry.Entry) -> bool:
    return now.raw == raw
