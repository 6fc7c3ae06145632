"""Stale buffers: a save by an editor that had loaded the file before the daemon wrote to it.

Every daemon write moves `last_appended_at` forward, so that a save with an older stamp gives itself away. What the daemon
wrote after that stamp is merged back three ways, per entry and per key of `deprecated_entries`: where only the daemon
changed something its change is put back, where both did the person's text stays and the daemon's is a conflict. Pure.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from everosd.log import entry, parse


class Update(msgspec.Struct, frozen=True, kw_only=True):
    """The daemon replaced the text of an entry."""

    before: str
    after: str


class Pointer(msgspec.Struct, frozen=True, kw_only=True):
    """The daemon set or removed a key of `deprecated_entries`."""

    before: str = ""
    """Successor before; empty: there was no key."""
    after: str = ""
    """Successor after; empty: the key was removed."""


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """What one daemon write did to a file. Kept in the ledger: new fields go last and have a default."""

    stamp: str
    """`last_appended_at` after it."""
    base_stamp: str = ""
    """`last_appended_at` before it; empty: the file was new or had none."""
    added: dict[str, str] = {}
    """Entry id → raw text."""
    updated: dict[str, Update] = {}
    removed: dict[str, str] = {}
    """Entry id → raw text that was removed."""
    deprecated: dict[str, Pointer] = {}


Version = tuple[Iterable[entry.Entry], Mapping[str, str]]
"""Entries and `deprecated_entries` of a file at one moment."""


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What the ledger last read in a file: the base where no writes are recorded any more."""

    stamp: str = ""
    entries: dict[str, str] = {}
    """Entry id → raw text."""
    deprecated: dict[str, str] = {}


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A row of a file that only machines write, as it is known to have stood there."""

    id: str
    text: str
    """Raw text."""
    at_us: int
    """When it was appended or first read, microseconds since 1970."""


class Conflict(msgspec.Struct, frozen=True, kw_only=True):
    """The person and the daemon changed the same entry; the person's text stays."""

    entry_id: str
    daemon_text: str
    """Raw text that the daemon had written; for a key of `deprecated_entries` the successor."""
    is_key: bool = False


class Healing(msgspec.Struct, frozen=True, kw_only=True):
    """What has to be done to a stale save."""

    restored: dict[str, str] = {}
    """Entry id → raw text to append again."""
    updated: dict[str, str] = {}
    """Entry id → raw text to put in the place of what was saved."""
    removed: tuple[str, ...] = ()
    deprecated: dict[str, str] = {}
    """Keys to set."""
    undeprecated: tuple[str, ...] = ()
    conflicts: tuple[Conflict, ...] = ()

    def __bool__(self) -> bool:
        """Tell whether there is anything to do to the file (conflicts alone change nothing in it)."""
        return bool(self.restored or self.updated or self.removed or self.deprecated or self.undeprecated)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What was put back into a file after a stale buffer was saved over it."""

    restored: tuple[str, ...] = ()
    """Ids of entries that were appended again."""
    updated: tuple[str, ...] = ()
    """Ids of entries that have the daemon's text again."""
    removed: tuple[str, ...] = ()
    deprecated: tuple[str, ...] = ()
    """Ids whose key in `deprecated_entries` was set or removed again."""
    conflicts: tuple[Conflict, ...] = ()
    """Where both had changed something: the file has the person's text, `.lifecycle/` the daemon's."""
    meant: tuple[str, ...] = ()
    """Ids of rows that are not there and were not put back: somebody took them out."""

    def __bool__(self) -> bool:
        """Tell whether there was anything to do."""
        return self.is_file_changed or bool(self.conflicts)

    @property
    def is_file_changed(self) -> bool:
        """Whether the file is another one now; else the save stands as it was made, old stamp and all."""
        return bool(self.restored or self.updated or self.removed or self.deprecated)

    def describe(self) -> str:
        """Say what happened and what to do if it was not wanted."""
        parts = []
        if self.restored:
            parts.append(
                f"put back {_some(self.restored)}, which an editor had not loaded when it saved; if they were meant to"
                " go (an older version was restored), reload the file and delete them again"
            )
        if self.updated or self.removed or self.deprecated:
            parts.append(f"repeated the changes to {_some((*self.updated, *self.removed, *self.deprecated))}")
        if self.conflicts:
            ids = tuple(dict.fromkeys(each.entry_id for each in self.conflicts))
            parts.append(f"kept your text of {_some(ids)}; what everosd had written is in .lifecycle/ as a conflict")
        return "; ".join(parts)


_N_NAMED = 5
"""Ids that a report names; the rest are counted."""


def _some(ids: Sequence[str]) -> str:
    shown = ", ".join(ids[:_N_NAMED])
    return shown if len(ids) <= _N_NAMED else f"{shown} and {len(ids) - _N_NAMED} more"


def moment(stamp: str) -> dt.datetime | None:
    """Return the moment of a stamp; None where it is missing or was written by hand as something else."""
    try:
        found = dt.datetime.fromisoformat(stamp)
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=dt.UTC)


def is_older(stamp: str, than: str) -> bool:
    """Tell whether a save with `stamp` was made on a file older than `than`; False where either is unknown."""
    left, right = moment(stamp), moment(than)
    return left is not None and right is not None and left < right


def same_text(one: str, other: str) -> bool:
    """Compare two raw texts of an entry as the grammar does: blank lines around them mean nothing."""
    return one.strip("\r\n") == other.strip("\r\n")


def heal(saved: parse.Parsed, writes: Sequence[Write], known: Known | None = None) -> Healing:
    """Merge what the daemon wrote into a save that was made without it.

    Args:
        saved: The file as it was saved.
        writes: The daemon's writes to that file, in any order; those up to the save's stamp are left out.
        known: What the ledger last read in the file; needed where `writes` do not reach back to the save.

    Returns:
        An empty healing when the stamp is current, missing or unreadable: then the person meant what is there.
    """
    return merge(saved, unseen(saved, writes, known))


def unseen(saved: parse.Parsed, writes: Sequence[Write], known: Known | None = None) -> Write:
    """Return, as one write, what the daemon did after the version that a save was made on; see `heal`."""
    newer = sorted((write for write in writes if is_older(saved.stamp, write.stamp)), key=_order)
    since = fold(newer)
    if known is not None and is_older(saved.stamp, known.stamp) and not _reaches(newer, saved.stamp):
        since = _with_known(since, known, saved)
    return since


def lost_rows(saved: parse.Parsed, rows: Sequence[Row]) -> dict[str, str]:
    """Return the rows at the end of a log that a save was made without: id → raw text, in order.

    Appending does not move the stamp of such a file. That an editor had loaded it earlier shows in what is missing: all
    that came last, while what stands before it is there. A row that is missing from the middle was taken out by
    somebody, and so were rows that are older than the stamp; a save without a stamp was meant as it is.

    Args:
        saved: The file as it was saved.
        rows: What is known to have stood there, in file order.
    """
    seen = moment(saved.stamp)
    if seen is None and saved.error is None:
        return {}
    there = {each.id for each in saved.entries} | saved.ids
    lost: list[Row] = []
    for row in reversed(rows):
        if row.id in there:
            break
        if seen is None or dt.datetime.fromtimestamp(row.at_us / 1e6, dt.UTC) > seen:
            lost.append(row)
    return {row.id: row.text for row in reversed(lost)}


def over(older: Write, newer: Write) -> Write:
    """Return both accounts of what happened as one; where both tell of an entry or a key, `newer` counts."""
    told = newer.added.keys() | newer.updated.keys() | newer.removed.keys()
    return msgspec.structs.replace(
        newer,
        added={key: raw for key, raw in older.added.items() if key not in told} | newer.added,
        updated={key: each for key, each in older.updated.items() if key not in told} | newer.updated,
        removed={key: raw for key, raw in older.removed.items() if key not in told} | newer.removed,
        deprecated=older.deprecated | newer.deprecated,
    )


def _order(write: Write) -> dt.datetime:
    return moment(write.stamp) or dt.datetime.min.replace(tzinfo=dt.UTC)


def _reaches(newer: Iterable[Write], stamp: str) -> bool:
    """Tell whether the writes go back to the version that was saved, without a gap at their beginning."""
    # A write without a base began the file anew: what was there before it is not in the writes.
    return any(write.base_stamp and not is_older(stamp, write.base_stamp) for write in newer)


def _with_known(since: Write, known: Known, saved: parse.Parsed) -> Write:
    """Add what the ledger knows and the save lacks: it cannot be told who removed it, so that it comes back."""
    there = {each.id for each in saved.entries} | saved.ids
    missing = {key: raw for key, raw in known.entries.items() if key not in there and key not in since.removed}
    keys = {
        key: Pointer(after=successor)
        for key, successor in known.deprecated.items()
        if key not in saved.deprecated and key not in since.deprecated
    }
    return msgspec.structs.replace(since, added=missing | since.added, deprecated=keys | since.deprecated)


def fold(writes: Sequence[Write]) -> Write:
    """Return several writes, oldest first, as one: what was there before the first and is there after the last."""
    before: dict[str, str | None] = {}
    after: dict[str, str | None] = {}
    pointers: dict[str, Pointer] = {}
    for write in writes:
        steps: list[tuple[str, str | None, str | None]] = [(key, None, raw) for key, raw in write.added.items()]
        steps += [(key, update.before, update.after) for key, update in write.updated.items()]
        steps += [(key, raw, None) for key, raw in write.removed.items()]
        for key, was, now in steps:
            before.setdefault(key, was)
            after[key] = now
        for key, pointer in write.deprecated.items():
            first = pointers.get(key, pointer)
            pointers[key] = Pointer(before=first.before, after=pointer.after)
    added, updated, removed = {}, {}, {}
    for key, now in after.items():
        was = before[key]
        if was is None and now is not None:
            added[key] = now
        elif was is not None and now is None:
            removed[key] = was
        elif was is not None and now is not None and not same_text(was, now):
            updated[key] = Update(before=was, after=now)
    return Write(
        stamp=writes[-1].stamp if writes else "",
        base_stamp=writes[0].base_stamp if writes else "",
        added=added,
        updated=updated,
        removed=removed,
        deprecated={key: each for key, each in pointers.items() if each.before != each.after},
    )


def difference(base: Version, now: Version) -> Write:
    """Return what changed from one version of a file to another, as one write."""
    old, new = _texts(base[0]), _texts(now[0])
    keys = base[1].keys() | now[1].keys()
    pointers = {key: Pointer(before=base[1].get(key, ""), after=now[1].get(key, "")) for key in sorted(keys)}
    return Write(
        stamp="",
        added={key: raw for key, raw in new.items() if key not in old},
        updated={
            key: Update(before=old[key], after=raw)
            for key, raw in new.items()
            if key in old and not same_text(old[key], raw)
        },
        removed={key: raw for key, raw in old.items() if key not in new},
        deprecated={key: each for key, each in pointers.items() if each.before != each.after},
    )


def _texts(entries: Iterable[entry.Entry]) -> dict[str, str]:
    return {each.id: each.raw for each in entries if each.nth == 0}


def merge(parsed: parse.Parsed, since: Write) -> Healing:
    """Merge one folded write into what a person saved."""
    saved = _texts(parsed.entries)
    restored: dict[str, str] = {}
    updated: dict[str, str] = {}
    removed: list[str] = []
    conflicts: list[Conflict] = []
    for key, raw in since.added.items():
        if key not in saved and key not in parsed.ids:
            restored[key] = raw
        elif key not in saved or not same_text(saved[key], raw):
            conflicts.append(Conflict(entry_id=key, daemon_text=raw))
    for key, update in since.updated.items():
        text = saved.get(key)
        if text is not None and same_text(text, update.before):
            updated[key] = update.after
        elif text is None or not same_text(text, update.after):
            conflicts.append(Conflict(entry_id=key, daemon_text=update.after))
    for key, raw in since.removed.items():
        if key in saved and same_text(saved[key], raw):
            removed.append(key)
    keys, gone, disputed = _merge_keys(parsed.deprecated, since.deprecated)
    return Healing(
        restored=restored,
        updated=updated,
        removed=tuple(removed),
        deprecated=keys,
        undeprecated=gone,
        conflicts=(*conflicts, *disputed),
    )


def _merge_keys(
    saved: Mapping[str, str], pointers: Mapping[str, Pointer]
) -> tuple[dict[str, str], tuple[str, ...], list[Conflict]]:
    set_again: dict[str, str] = {}
    gone: list[str] = []
    conflicts: list[Conflict] = []
    for key, pointer in pointers.items():
        there = saved.get(key, "")
        if there == pointer.after:
            continue
        if there != pointer.before:
            conflicts.append(Conflict(entry_id=key, daemon_text=pointer.after, is_key=True))
        elif pointer.after:
            set_again[key] = pointer.after
        else:
            gone.append(key)
    return set_again, tuple(gone), conflicts
