"""One file from disk as the ledger takes it. Blocking; runs on the reading thread."""

from __future__ import annotations

import functools
import hashlib
import pathlib
import zoneinfo
from collections.abc import Collection

import msgspec

from everosd import errors, types
from everosd.cascade import tail as tails
from everosd.log import entry as entries
from everosd.log import file, layout, parse, swap, view
from everosd.store import state
from everosd.watch import scan

MAX_WARNINGS = 50
"""Per file; a person mends the first and sees the next."""


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was read."""

    found: state.FileState
    parsed: parse.Parsed
    is_being_written: bool
    """Some program has it open for writing: what is missing from it may still come."""
    tail: tails.Tail | None = None
    """Of a log that only machines write: where reading may go on."""


class Unchanged(msgspec.Struct, frozen=True, kw_only=True):
    """A file whose bytes are the ones read before; only its stat moved."""

    disk: scan.DiskFile


Look = Reading | Unchanged | scan.Absent | scan.Unreadable


def read(
    root: pathlib.Path,
    path: types.RelPath,
    timezone: zoneinfo.ZoneInfo,
    known_digest: bytes | None = None,
    held: Collection[bytes] = (),
    now_s: float | None = None,
) -> Look:
    """Read and parse one file.

    `known_digest` is that of the bytes read last, to stop short when they are the same; `held` are the digests of the
    entries that the ledger holds of the file, which are not taken apart again. `now_s` (monotonic) asks for its tail.
    """
    seen = scan.look(root, path)
    if not isinstance(seen, scan.DiskFile):
        return seen
    place = layout.place(path)
    if place is None:
        return scan.Absent(parent_lists=True)
    try:
        found = file.read(root / path)
    except FileNotFoundError:
        gone = scan.look(root, path)
        return scan.Unreadable(reason="changed while it was read") if isinstance(gone, scan.DiskFile) else gone
    except (OSError, errors.LogError) as error:
        return scan.Unreadable(reason=getattr(error, "strerror", None) or str(error))
    at = found.identity
    disk = scan.DiskFile(path=path, inode=at.inode, size=at.size, mtime_ns=at.mtime_ns)
    if known_digest is not None and file.digest(found.data) == known_digest:
        return Unchanged(disk=disk)
    parsed = parse.parse(
        path, found.data, place, is_known=(lambda digest, at: _digest(digest, at, timezone) in held) if held else None
    )
    state_found = to_state(parsed, disk, timezone, held)
    return Reading(
        found=state_found,
        parsed=parsed,
        tail=None if now_s is None else tails.of(parsed, state_found, at, found.data, now_s),
        is_being_written=not found.is_stable or bool(swap.is_open_for_writing(root / path)),
    )


def to_state(
    parsed: parse.Parsed, disk: scan.DiskFile, timezone: zoneinfo.ZoneInfo, held: Collection[bytes] = ()
) -> state.FileState:
    """Return a parsed file in the ledger's form, with what is wrong with its entries among its warnings."""
    warnings = [state.Warning(reason=warning.reason, line=warning.line) for warning in parsed.warnings]
    rows: list[state.EntryState | state.SameEntry] = []
    for item in parsed.entries:
        digest = _digest(item.digest, parsed.place, timezone)
        if item.nth == 0 and item.form == "marked" and digest in held:
            rows.append(state.SameEntry(entry_id=item.id, nth=item.nth, line=item.line, form=item.form, digest=digest))
            continue
        record = view.record(item, parsed.place, timezone)
        warnings += [state.Warning(reason=f"{item.id}: {said}", line=item.line) for said in record.warnings]
        rows.append(_entry_state(item, record, digest))
    return state.FileState(
        path=disk.path,
        kind=parsed.place.kind,
        owner=parsed.place.owner,
        date=(parsed.place.date or "").replace("-", ""),
        inode=disk.inode,
        size=disk.size,
        mtime_ns=disk.mtime_ns,
        digest=parsed.digest,
        stamp=parsed.stamp,
        entry_count=parsed.entry_count,
        entries=tuple(rows),
        deprecated=dict(parsed.deprecated),
        warnings=_most(warnings),
        error=parsed.error.reason if parsed.error else None,
        error_line=parsed.error.line if parsed.error else None,
    )


def _most(warnings: list[state.Warning]) -> tuple[state.Warning, ...]:
    left = len(warnings) - MAX_WARNINGS
    more = (state.Warning(reason=f"and {left} more"),) if left > 0 else ()
    return (*warnings[:MAX_WARNINGS], *more)


def _entry_state(item: entries.Entry, record: view.Fields, digest: bytes) -> state.EntryState:
    return state.EntryState(
        entry_id=item.id,
        nth=item.nth,
        line=item.line,
        form=item.form,
        kind=item.kind,
        digest=digest,
        session_id=record.session_id,
        timestamp_us=record.timestamp_us,
        parent_type=record.parent_type,
        parent_id=record.parent_id,
        sender_ids=msgspec.json.encode(record.sender_ids).decode(),
        memory_type=record.memory_type,
        memory_path=record.memory_path,
        own_status=record.own_status,
        expires_us=record.expires_us,
        raw=item.raw,
    )


def _digest(digest: bytes, place: layout.Place, timezone: zoneinfo.ZoneInfo) -> bytes:
    """Return what tells an entry from another state of it: its text, and what the place of its file says of it."""
    return hashlib.blake2b(digest + _context(place, timezone.key), digest_size=16).digest()


@functools.lru_cache(maxsize=256)
def _context(place: layout.Place, timezone: str) -> bytes:
    return msgspec.msgpack.encode((place, timezone))
