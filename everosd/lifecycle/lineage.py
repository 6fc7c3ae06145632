"""What a summary or a promoted fact was made of, what those sources say, and what has become of all of them since."""

from __future__ import annotations

import asyncio
import datetime as dt
import hashlib
from collections.abc import Collection, Iterable, Sequence

import msgspec

from everosd import clock, types
from everosd.lifecycle import memory, policy, row
from everosd.log import entry, entry_text, escape, kind, view
from everosd.narrative import source
from everosd.store import lifecycle as store
from everosd.store import owned, read
from everosd.store import row as store_row

MAX_SOURCES = 500
"""Sources that one memory names: the newest ones."""
_PART = 500
"""Texts that are read at once."""
_OWNER = owned.by()
_NARRATIVE = "cluster"
"""`parent_type` of an Episode that was merged from others."""


class Text(msgspec.Struct, frozen=True, kw_only=True):
    """What a source says."""

    subject: str
    content: str
    is_narrative: bool = False
    """Whether it was merged from others."""


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """A summary or a promoted fact that there is."""

    record: store.Record
    sources: tuple[str, ...]
    """Entry ids of what it was made of."""
    until_us: int | None
    """Moment of the newest of them; None: it does not say."""
    is_changed: bool
    """Whether somebody but these passes has changed it."""


# -- what there is -----------------------------------------------------------------------------------------------------


async def made(
    reader: read.Reader, owner: types.Owner, key: str, *, bucket: str, scope: str, team_id: str
) -> Made | None:
    """Return the memory under a key: the active one, else the newest of whatever status.

    Raises:
        StoreError: the ledger cannot be read.
    """
    found = await reader.fetch(
        f"SELECT entry_id FROM typed_memories WHERE {_OWNER} AND semantic_key = ? AND semantic_key <> '' AND kind = 'memory'"  # noqa: S608
        " AND bucket = ? AND scope = ? AND team_id = ?",
        (*owned.scope(owner), key, bucket, scope, team_id),
    )
    some = await store.records(reader, owner, statuses=(), ids=[entry_id for (entry_id,) in found])
    if not some:
        return None
    return await of_record(reader, max(some, key=lambda one: (one.status == "active", one.created_us, one.entry_id)))


async def newest(reader: read.Reader, owner: types.Owner, keys: str, n: int) -> list[Made]:
    """Return the active memories whose keys begin with `keys` that were written or updated last, at most `n`.

    Raises:
        StoreError: the ledger cannot be read.
    """
    found = await reader.fetch(
        f"SELECT entry_id FROM typed_memories WHERE {_OWNER} AND semantic_key >= ? AND semantic_key < ? AND semantic_key <> ''"  # noqa: S608
        " AND kind = 'memory'",
        (*owned.scope(owner), keys, f"{keys}\U0010ffff"),
    )
    some = await store.records(reader, owner, ids=[entry_id for (entry_id,) in found])
    some.sort(key=lambda one: (max(one.updated_us, one.created_us), one.entry_id))
    return [one for each in some[-n:] if (one := await of_record(reader, each)) is not None]


async def of_record(reader: read.Reader, record: store.Record) -> Made | None:
    """Return what a memory says of its sources; None: it is not there any more.

    Raises:
        StoreError: the ledger cannot be read.
    """
    found = await reader.find(record.owner, record.entry_id)
    if found is None or found.kind != memory.KIND:
        return None
    seen = memory.seen_of(memory.of_row(found))
    told = await store.rows(reader, record.owner, target=record.entry_id, actions=("edited", "update"), limit=_PART)
    return Made(
        record=record,
        sources=seen.sources,
        until_us=view.moment_us(seen.occurred_to, dt.UTC),
        is_changed=any(not one.fields.get("run_id") for one in told),
    )


def is_unwanted(one: Made, since_us: int) -> bool:
    """Tell whether somebody has taken away what would come back, made of nothing that is newer than that.

    Args:
        one: What there is.
        since_us: Moment of the oldest source.
    """
    record = one.record
    if record.status != "deleted" and not record.is_redacted:
        return False
    return record.status_since_us is None or since_us <= record.status_since_us


async def taken_away(reader: read.Reader, owner: types.Owner) -> list[tuple[str, frozenset[str]]]:
    """Return the summaries that are not there any more, whoever removed them, and what each was made of, as `read_as` says it.

    Raises:
        StoreError: the ledger cannot be read.
    """
    # What is said of `usage` is true of every such row: it is what the index of actions leaves out, which is not used else.
    found = await reader.fetch(
        "SELECT r.target, e.entry_id, e.raw FROM lifecycle_rows r CROSS JOIN entries e ON e.key = r.key"  # noqa: S608
        f" WHERE {owned.by('r')} AND r.action = '{row.MADE}' AND r.action <> 'usage' AND e.is_shadowed = 0"
        " AND NOT EXISTS (SELECT 1 FROM entries m WHERE m.app = r.app AND m.project = r.project"
        " AND m.owner_type = r.owner_type AND m.owner_id = r.owner_id AND m.entry_id = r.target)",
        owned.scope(owner),
    )
    told = ((target, entry_text.read(row.KIND, entry_id, raw)) for target, entry_id, raw in found)
    return [(target, frozenset(escape.read_list(one.fields.get("sources", "")))) for target, one in told]


def read_as(entry_id: str, said: Text) -> str:
    """Return what stands for a source and its text: another one once it is edited."""
    text = f"{said.subject}\n{said.content}".encode("utf-8", "surrogatepass")
    return f"{entry_id}@{hashlib.blake2b(text, digest_size=8).hexdigest()}"


async def undone(reader: read.Reader, owner: types.Owner, ids: Collection[str]) -> set[str]:
    """Return those of some active memories that were superseded once: somebody, or the loss of the successor, undid it.

    Raises:
        StoreError: the ledger cannot be read.
    """
    found = await reader.fetch(
        f"SELECT DISTINCT target FROM lifecycle_rows WHERE {_OWNER} AND action = 'supersede'"  # noqa: S608
        " AND target IN (SELECT value FROM json_each(?))",
        (*owned.scope(owner), msgspec.json.encode(list(ids)).decode()),
    )
    return {target for (target,) in found}


# -- sources -----------------------------------------------------------------------------------------------------------


async def texts(reader: read.Reader, records: Sequence[store.Record]) -> dict[str, Text]:
    """Return what sources say, by entry id; without those that are not there any more.

    Raises:
        StoreError: the ledger cannot be read.
    """
    found: dict[str, Text] = {}
    for start in range(0, len(records), _PART):
        rows = await reader.rows([one.key for one in records[start : start + _PART]])
        found |= await asyncio.to_thread(_texts, rows)
    return found


def _texts(rows: Iterable[store_row.EntryRow]) -> dict[str, Text]:
    return {one.entry_id: text(memory.of_row(one), is_narrative=one.parent_type == _NARRATIVE) for one in rows}


def text(found: entry.Entry, *, is_narrative: bool = False) -> Text:
    """Return what an entry says."""
    seen = view.view(found)
    content = seen.content if isinstance(seen, kind.Memory | kind.Episode) else ""
    return Text(
        subject=" ".join(view.title(found).split()),
        content=content if content.strip() else view.body(found),
        is_narrative=is_narrative,
    )


async def digests(reader: read.Reader, records: Sequence[store.Record]) -> dict[str, str]:
    """Return what stands for the texts of sources, by entry id; equal texts have equal ones.

    Raises:
        StoreError: the ledger cannot be read.
    """
    keys = {one.key: one.entry_id for one in records if one.kind == memory.KIND}
    rows = await reader.fetch(
        "SELECT key, content_digest FROM typed_memories WHERE key IN (SELECT value FROM json_each(?))",
        (msgspec.json.encode(list(keys)).decode(),),
    )
    found = {keys[key]: digest for key, digest in rows}
    said = await texts(reader, [one for one in records if one.kind != memory.KIND])
    return found | await asyncio.to_thread(
        lambda: {entry_id: store.content_digest(one.content) for entry_id, one in said.items()}
    )


def as_source(record: store.Record, said: Text, zone: dt.tzinfo) -> source.Source:
    """Return a source as it goes into a narrative."""
    return source.Source(
        entry_id=record.entry_id,
        at=clock.local(record.created_us, zone),
        subject=said.subject,
        content=said.content,
        is_narrative=said.is_narrative,
    )


async def unchanged(reader: read.Reader, records: Sequence[store.Record], now_us: int) -> list[store.Record]:
    """Return those of some sources that are as they were read, and can be recalled.

    Raises:
        StoreError: the ledger cannot be read.
    """
    if not records:
        return []
    ids = [one.entry_id for one in records]
    known = await store.records(reader, records[0].owner, kinds=store.KINDS, ids=ids)
    now = {one.entry_id: one for one in known}
    return [
        one
        for one in records
        if (same := now.get(one.entry_id)) is not None
        and (same.key, same.lsn, same.own_status) == (one.key, one.lsn, one.own_status)
        and not same.is_redacted
        and (same.expires_us is None or same.expires_us > now_us)
    ]


# -- what a memory says of its sources ---------------------------------------------------------------------------------


def fields(sources: Sequence[store.Record], earlier: Iterable[str] = ()) -> dict[str, str]:
    """Return the inline fields that name sources, which are in time order; `earlier` ones are named before them."""
    now = [one.entry_id for one in sources]
    ids = [*(one for one in dict.fromkeys(earlier) if one not in frozenset(now)), *now]
    return {
        "sources": escape.write_list(ids[-MAX_SOURCES:]),
        "occurred_from": row.stamp(clock.from_us(sources[0].created_us)),
        "occurred_to": row.stamp(clock.from_us(sources[-1].created_us)),
    }


def mean(values: Sequence[float]) -> str:
    """Return the mean of shares as it is written: in whole millionths, never rounded up to an edge."""
    return policy.number(sum(map(policy.millionths, values)) // max(1, len(values)))


def is_at_least(values: Sequence[float], least: float) -> bool:
    """Tell whether the mean of values is no less than `least`, counted in whole millionths."""
    return sum(map(policy.millionths, values)) >= policy.millionths(least) * len(values)
