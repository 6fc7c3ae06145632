"""An `.index/` that EverOS made: what only its database knows goes to the log, then the folder is set aside.

EverOS keeps messages that are not extracted yet, clusters and reflection reports in SQLite alone; everosd keeps them
as Markdown. Each row is appended once: what the log holds already is left out, so a start that was killed half way is
simply done again. Nothing of EverOS's is changed or deleted.
"""

from __future__ import annotations

import asyncio
import collections
import os
from pathlib import Path

import msgspec
import structlog

from everosd import errors, types
from everosd.cascade import everos
from everosd.log import entry as entries
from everosd.log import kind as kinds
from everosd.log import layout, parse, writer

log = structlog.get_logger(__name__)

BATCH = 500
"""Rows appended at once, so that one long session does not become one write of many megabytes."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What was taken over."""

    messages: int = 0
    """Un-extracted messages appended to session logs."""
    members: int = 0
    """Cluster memberships appended."""
    reports: int = 0
    """Consolidations appended."""
    already: int = 0
    """Rows that the log had from an earlier, interrupted run."""
    skipped: tuple[str, ...] = ()
    """What could not be taken over, each with its reason; it stays in the folder set aside."""
    set_aside: str = ""
    """Name of the folder that `.index/` became; empty while there is none."""


async def take_over(root: Path, log_writer: writer.Writer) -> Report:
    """Append what EverOS's database knows to the log below `root`, then set its `.index/` aside.

    Done again after any interruption it appends only what is missing. For the daemon's start: under the root's lock,
    and before the ledger is opened, which would otherwise make its tables in EverOS's database.

    Raises:
        errors.StoreError: EverOS has the database open.
        errors.WriteRefused: the log cannot be written; `.index/` stays as it is.

    """
    folder = root / ".index"
    place = layout.Layout(root, await asyncio.to_thread(layout.is_case_insensitive, root))
    found = await asyncio.to_thread(everos.read, folder)
    taken: collections.Counter[str] = collections.Counter()
    n_already = 0
    skipped = list(found.skipped)
    for (owner, kind), rows in _grouped(found.rows).items():
        try:
            held = await asyncio.to_thread(_held, place, owner, kind)
            missing = [row for row in rows if row.key not in held]
            n_already += len(rows) - len(missing)
            for start in range(0, len(missing), BATCH):
                batch = missing[start : start + BATCH]
                await log_writer.append(owner, kind, [row.draft for row in batch])
                taken.update(row.draft.fields.get("event", kind) for row in batch)
        except errors.RequestError as error:
            skipped.append(f"{kind} rows of {owner.type} {owner.id!r} in {owner.app}/{owner.project}: {error}")
    target = await asyncio.to_thread(set_aside, folder)
    report = Report(
        messages=taken["message"],
        members=taken["joined"],
        reports=taken["completed"] + taken["rolled_back"],
        already=n_already,
        skipped=tuple(skipped),
        set_aside=target.name,
    )
    log.info("everos_index_taken_over", **msgspec.structs.asdict(report))
    return report


def set_aside(folder: Path) -> Path:
    """Rename `folder` to `.index.everos-<n>` with the first free number and return the new path. Blocking."""
    n = 1
    while (target := folder.with_name(f"{folder.name}.everos-{n}")).exists():
        n += 1
    folder.rename(target)
    descriptor = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return target


def _held(place: layout.Layout, owner: types.Owner, kind: str) -> set[str]:
    """Return the keys of the rows of one owner and kind that the log holds. Blocking."""
    of_kind = kinds.BY_NAME[kind]
    folder = types.RelPath("/".join(part for part in (place.owner_folder(owner), of_kind.folder) if part))
    held: set[str] = set()
    for file in sorted(place.absolute(folder).glob(f"{of_kind.stem}-*.md")):
        path = types.RelPath(f"{folder}/{file.name}")
        where = layout.place(path)
        if where is not None:
            parsed = parse.parse(path, file.read_bytes(), where)
            held.update(_key(found) for found in parsed.entries if found.kind == kind)
    return held


def _key(found: entries.Entry) -> str:
    return found.fields.get("message_id", "") if found.kind == "message" else everos.cluster_key(found.fields)


def _grouped(rows: tuple[everos.Row, ...]) -> dict[tuple[types.Owner, str], list[everos.Row]]:
    groups: dict[tuple[types.Owner, str], list[everos.Row]] = {}
    for row in rows:
        groups.setdefault((row.owner, row.kind), []).append(row)
    return groups
