"""One file's state into the ledger: diff by digest, number the changes, keep rows and successors in step.

Everything here runs inside one transaction on the writer thread (`db.Database.write`), and does work in proportion to
the file, not to the root.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import cast

import msgspec

from everosd import errors, types
from everosd.store import derived, numbering, owned, standing, state

_COLUMNS = (
    "entry_id", "nth", "line", "form", "kind", "digest", "session_id", "timestamp_us", "parent_type", "parent_id",
    "sender_ids", "memory_type", "memory_path", "own_status", "expires_us", "raw",
)  # fmt: skip
_INSERT = f"""
INSERT INTO entries (key, path, position, app, project, owner_type, owner_id, lsn, updated_us, {", ".join(_COLUMNS)})
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, {", ".join("?" * len(_COLUMNS))})
"""  # noqa: S608  # only our own column names
_UPDATE = f"""
UPDATE entries SET position = ?, lsn = ?, updated_us = ?, {", ".join(f"{name} = ?" for name in _COLUMNS)}
WHERE key = ?
"""  # noqa: S608  # only our own column names


class _Known(msgspec.Struct, frozen=True, kw_only=True):
    """What the ledger holds of one entry of the file."""

    key: int
    digest: bytes
    position: int
    line: int
    form: str
    lsn: int
    updated_us: int
    is_shadowed: bool


def apply_files(
    connection: sqlite3.Connection,
    files: Sequence[state.FileState],
    *,
    now_us: int,
    removable: Mapping[str, Collection[tuple[str, int]] | None] | None = None,
    force: bool = False,
) -> dict[str, state.Outcome]:
    """Bring the ledger in step with `files` and return the outcome per path.

    Entries that are gone from a file are removed at once when another file of the owner holds the same text under the
    same id, or when `removable[path]` names them (None: all); otherwise they stay and are listed as withheld. Without
    `removable` all of them go. `force` rewrites every column of unchanged entries too (a rebuild), without an event.
    """
    order = numbering.Numbering(connection, now_us)
    outcomes: dict[str, state.Outcome] = {}
    for file in files:
        allowed = None if removable is None else removable.get(file.path, ())
        outcomes[file.path] = _apply(connection, order, file, now_us, allowed, force=force)
    order.flush()
    return outcomes


def _apply(
    connection: sqlite3.Connection,
    order: numbering.Numbering,
    file: state.FileState,
    now_us: int,
    removable: Collection[tuple[str, int]] | None,
    *,
    force: bool,
) -> state.Outcome:
    outcome = state.Outcome()
    _upsert_file(connection, file, now_us)
    before = _known(connection, file.path)
    scope = (file.owner.app, file.owner.project, file.owner.type, file.owner.id)
    shadowed = {known.key for known in before.values() if known.is_shadowed}
    inserts, updates, moves = [], [], []
    written: list[tuple[int, state.EntryState]] = []
    for position, entry in enumerate(file.entries):
        known = before.pop((entry.entry_id, entry.nth), None)
        if isinstance(entry, state.SameEntry):
            if known is None or known.digest != entry.digest:
                raise _out_of_step(file.path, entry.entry_id)
            if (known.position, known.line, known.form) != (position, entry.line, entry.form):
                moves.append((position, entry.line, entry.form, known.key))
            continue
        values = tuple(getattr(entry, name) for name in _COLUMNS)
        if known is None:
            key = order.next_key()
            lsn = order.event(key, "added", file.path)
            inserts.append((key, file.path, position, *scope, lsn, now_us, *values))
            written.append((key, entry))
            outcome.added += 1
        elif known.digest != entry.digest:
            lsn = order.event(known.key, "modified", file.path)
            updates.append((position, lsn, now_us, *values, known.key))
            written.append((known.key, entry))
            outcome.modified += 1
        elif force:
            updates.append((position, known.lsn, known.updated_us, *values, known.key))
            written.append((known.key, entry))
        elif (known.position, known.line, known.form) != (position, entry.line, entry.form):
            moves.append((position, entry.line, entry.form, known.key))
    connection.executemany(_INSERT, inserts)
    connection.executemany(_UPDATE, updates)
    connection.executemany("UPDATE entries SET position = ?, line = ?, form = ? WHERE key = ?", moves)
    gone, outcome.withheld = _split_gone(connection, scope, before, removable)
    touched = [entry.entry_id for _, entry in written] + _remove(connection, order, file.path, gone)
    outcome.removed = len(gone)
    pointers = _replace_deprecations(connection, file.path, scope, file.deprecated, is_all=file.error is None)
    is_settled_anew = standing.settle(connection, order, file.owner, touched + pointers)
    unsettled = derived.apply(connection, file.kind, file.owner, file.path, written=written, gone=_identities(gone))
    is_settled_anew |= _settle_anew(connection, order, file.owner, unsettled)
    told = (*(known.key for known in gone.values()), *(row[-1] for row in moves), *(row[-1] for row in updates))
    outcome.is_standing_changed = is_settled_anew or bool(pointers) or not shadowed.isdisjoint(told)
    outcome.entries_delta = len(inserts) - len(gone)
    _raise_sequences(connection, scope, file)
    outcome.lsn = order.lsn
    return outcome


def append_rows(
    connection: sqlite3.Connection, file: state.FileState, *, base: bytes, n_before: int, now_us: int, read_at_us: int
) -> state.Outcome | None:
    """Add the entries that were appended to a file; does work in proportion to them, not to the file.

    Args:
        connection: On the writer thread.
        file: The file as it is now, with the new entries only.
        base: Digest of the bytes that they were appended to.
        n_before: Entries that stand before them.
        now_us: When they were read.
        read_at_us: When all of the file was read, as far as its stat is to prove that nothing has changed since.

    Returns:
        None when the ledger holds another state of the file, or one of the new ids: nothing is done then.
    """
    row = connection.execute("SELECT digest, is_stale FROM files WHERE path = ?", (file.path,)).fetchone()
    ids = [entry.entry_id for entry in file.entries]
    taken = "SELECT 1 FROM entries WHERE path = ? AND entry_id = ?"
    if row != (base, 0) or any(connection.execute(taken, (file.path, each)).fetchone() for each in ids):
        return None
    order = numbering.Numbering(connection, now_us)
    scope = (file.owner.app, file.owner.project, file.owner.type, file.owner.id)
    inserts = []
    written: list[tuple[int, state.EntryState]] = []
    for position, entry in enumerate(file.entries, n_before):
        values = tuple(getattr(entry, name) for name in _COLUMNS)
        key = order.next_key()
        written.append((key, cast("state.EntryState", entry)))
        inserts.append((key, file.path, position, *scope, order.event(key, "added", file.path), now_us, *values))
    connection.executemany(_INSERT, inserts)
    connection.execute(
        "UPDATE files SET inode = ?, size = ?, mtime_ns = ?, digest = ?, n_entries = ?, read_at_us = ? WHERE path = ?",
        (file.inode, file.size, file.mtime_ns, file.digest, n_before + len(ids), read_at_us, file.path),
    )
    outcome = state.Outcome(added=len(ids), entries_delta=len(ids))
    outcome.is_standing_changed = standing.settle(connection, order, file.owner, ids)
    unsettled = derived.apply(connection, file.kind, file.owner, file.path, written=written, gone=())
    outcome.is_standing_changed |= _settle_anew(connection, order, file.owner, unsettled)
    _raise_sequences(connection, scope, file)
    outcome.lsn = order.lsn
    order.flush()
    return outcome


def _out_of_step(path: str, entry_id: str) -> errors.StoreError:
    return errors.StoreError(f"{path}: {entry_id} was read as unchanged, and the ledger holds another state of it")


def _known(connection: sqlite3.Connection, path: str) -> dict[tuple[str, int], _Known]:
    rows = connection.execute(
        "SELECT entry_id, nth, key, digest, position, line, form, lsn, updated_us, is_shadowed FROM entries WHERE path = ?",
        (path,),
    )
    return {
        (row[0], row[1]): _Known(
            key=row[2],
            digest=row[3],
            position=row[4],
            line=row[5],
            form=row[6],
            lsn=row[7],
            updated_us=row[8],
            is_shadowed=bool(row[9]),
        )
        for row in rows
    }


def _split_gone(
    connection: sqlite3.Connection,
    scope: tuple[str, str, str, str],
    missing: dict[tuple[str, int], _Known],
    removable: Collection[tuple[str, int]] | None,
) -> tuple[dict[tuple[str, int], _Known], tuple[tuple[str, int], ...]]:
    """Tell what may go now (allowed, or still there in another place) from what has to wait."""
    if removable is None:
        return missing, ()
    gone, withheld = {}, []
    for identity, known in missing.items():
        if identity in removable or _stands_elsewhere(connection, scope, identity[0], known):
            gone[identity] = known
        else:
            withheld.append(identity)
    return gone, tuple(withheld)


def _stands_elsewhere(
    connection: sqlite3.Connection, scope: tuple[str, str, str, str], entry_id: str, known: _Known
) -> bool:
    row = connection.execute(
        f"SELECT 1 FROM entries WHERE {owned.by()} AND entry_id = ?"  # noqa: S608
        " AND digest = ? AND key <> ? LIMIT 1",
        (*scope, entry_id, known.digest, known.key),
    ).fetchone()
    return row is not None


def _remove(
    connection: sqlite3.Connection, order: numbering.Numbering, path: str, gone: dict[tuple[str, int], _Known]
) -> list[str]:
    for known in gone.values():
        order.event(known.key, "removed", path)
    connection.executemany("DELETE FROM entries WHERE key = ?", [(known.key,) for known in gone.values()])
    return [entry_id for entry_id, _ in gone]


def _identities(gone: dict[tuple[str, int], _Known]) -> list[tuple[int, str]]:
    return [(known.key, entry_id) for (entry_id, _), known in gone.items()]


def _settle_anew(
    connection: sqlite3.Connection, order: numbering.Numbering, owner: types.Owner, unsettled: Collection[str]
) -> bool:
    """Settle what depends on a derived table; return whether there was anything."""
    if unsettled:
        standing.settle(connection, order, owner, unsettled)
    return bool(unsettled)


def _replace_deprecations(
    connection: sqlite3.Connection,
    path: str,
    scope: tuple[str, str, str, str],
    wanted: dict[str, str],
    *,
    is_all: bool = True,
) -> list[str]:
    """Make the file's `deprecated_entries` the ledger's, and return the entry ids whose successor changed.

    Where they are not all, because the frontmatter does not parse, those known before stay: a slip of the pen does not
    bring back what was replaced. A ledger that has not read the file before does not know them, and has the entries live
    until the file is mended.
    """
    found = dict(connection.execute("SELECT entry_id, successor FROM deprecations WHERE path = ?", (path,)))
    wanted = wanted if is_all else found | wanted
    if found == wanted:
        return []
    gone = [entry_id for entry_id in found if entry_id not in wanted]
    changed = [entry_id for entry_id, successor in wanted.items() if found.get(entry_id) != successor]
    connection.executemany("DELETE FROM deprecations WHERE path = ? AND entry_id = ?", [(path, name) for name in gone])
    connection.executemany(
        "INSERT OR REPLACE INTO deprecations (path, entry_id, successor, app, project, owner_type, owner_id)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        [(path, name, wanted[name], *scope) for name in changed],
    )
    return gone + changed


def _upsert_file(connection: sqlite3.Connection, file: state.FileState, now_us: int) -> None:
    connection.execute(
        "INSERT OR REPLACE INTO files (path, kind, app, project, owner_type, owner_id, date, inode, size, mtime_ns, digest,"
        " stamp, n_entries, is_stale, warnings, error, error_line, read_at_us)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?, ?, ?)",
        (
            file.path, file.kind, file.owner.app, file.owner.project, file.owner.type, file.owner.id, file.date,
            file.inode, file.size, file.mtime_ns, file.digest, file.stamp, len(file.entries),
            msgspec.json.encode(file.warnings), file.error, file.error_line, now_us,
        ),
    )  # fmt: skip


def _raise_sequences(connection: sqlite3.Connection, scope: tuple[str, str, str, str], file: state.FileState) -> None:
    """Remember the highest number seen per prefix and date, so that none is given out twice."""
    high: dict[tuple[str, str], int] = {}
    for entry in file.entries:
        if (found := types.numbered(entry.entry_id)) is not None:
            prefix, date, number = found
            high[prefix, date] = max(high.get((prefix, date), 0), number)
            if date == file.date:
                high[prefix, date] = max(high[prefix, date], file.entry_count)
    connection.executemany(
        "INSERT INTO sequences VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET high = max(high, excluded.high)",
        [(*scope, prefix, date, number) for (prefix, date), number in high.items()],
    )


def remove_files(connection: sqlite3.Connection, paths: Iterable[str], *, now_us: int) -> dict[str, state.Outcome]:
    """Forget files that are gone from the disk, with their entries."""
    order = numbering.Numbering(connection, now_us)
    outcomes = {}
    for path in paths:
        row = connection.execute(
            "SELECT app, project, owner_type, owner_id, kind FROM files WHERE path = ?", (path,)
        ).fetchone()
        if row is None:
            continue
        owner = types.Owner(app=row[0], project=row[1], type=row[2], id=row[3])
        known = _known(connection, path)
        touched = _remove(connection, order, path, known)
        pointers = _replace_deprecations(connection, path, (owner.app, owner.project, owner.type, owner.id), {})
        connection.execute("DELETE FROM files WHERE path = ?", (path,))
        is_settled_anew = standing.settle(connection, order, owner, touched + pointers)
        unsettled = derived.apply(connection, row[4], owner, types.RelPath(path), written=(), gone=_identities(known))
        is_settled_anew |= _settle_anew(connection, order, owner, unsettled)
        outcomes[path] = state.Outcome(
            removed=len(known),
            entries_delta=-len(known),
            is_standing_changed=is_settled_anew or bool(pointers),
            lsn=order.lsn,
        )
    order.flush()
    return outcomes


def digests(connection: sqlite3.Connection, path: str) -> frozenset[bytes]:
    """Return the digests of the entries that the ledger holds of one file, repeated ids left out."""
    return frozenset(
        row[0] for row in connection.execute("SELECT digest FROM entries WHERE path = ? AND nth = 0", (path,))
    )


def entries_stand_elsewhere(connection: sqlite3.Connection, path: str) -> bool:
    """Return whether every entry of `path` is also in another file of the same owner, letter by letter."""
    row = connection.execute(
        "SELECT 1 FROM entries a WHERE a.path = ? AND NOT EXISTS (SELECT 1 FROM entries b WHERE b.app = a.app"
        " AND b.project = a.project AND b.owner_type = a.owner_type AND b.owner_id = a.owner_id"
        " AND b.entry_id = a.entry_id AND b.digest = a.digest AND b.path <> a.path) LIMIT 1",
        (path,),
    ).fetchone()
    return row is None
