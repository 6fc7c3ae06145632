"""The ledger as a search sees it, in memory: for tests of what reads rows and does not care where they are kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from everosd import types
from everosd.index import contract, text
from everosd.log import entry_text
from everosd.store import correction, memory, row

OWNER = types.Owner(app="default", project="default", type="user", id="u_mara")
OTHER = types.Owner(app="default", project="default", type="user", id="u_ben")
AGENT = types.Owner(app="default", project="default", type="agent", id="a_helper")
NOW_US = 1_790_000_000_000_000


class MemoryRows:
    """Rows in a dict; implements what `search.query.Rows` asks for, without its `where`."""

    def __init__(self) -> None:
        """Start empty."""
        self.by_key: dict[int, row.EntryRow] = {}
        self.corrected: tuple[correction.Correction, ...] = ()

    async def rows(self, keys: Sequence[int]) -> list[row.EntryRow]:
        """Return the rows with these keys, in the order asked for."""
        return [self.by_key[key] for key in keys if key in self.by_key]

    async def orphans(self, keys: Sequence[int], now_us: int) -> set[types.EntryKey]:
        """Return those whose Episode is not among the rows, or is past its time."""
        there = {
            (one.owner, one.entry_id)
            for one in self.by_key.values()
            if one.expires_us is None or one.expires_us > now_us or one.status != "active"
        }
        facts = (self.by_key[key] for key in keys)
        return {one.key for one in facts if one.parent_type == "episode" and (one.owner, one.parent_id) not in there}

    async def page(
        self,
        owner: types.Owner,
        kind: str,
        *,
        where: tuple[str, Sequence[object]] = ("", ()),
        statuses: Sequence[str] = ("active",),
        now_us: int,
        sort_by: str = "timestamp",
        descending: bool = True,
        limit: int,
        offset: int = 0,
    ) -> tuple[list[row.EntryRow], int]:
        """Return one page of an owner's rows of a kind."""
        assert not where[0]
        assert sort_by == "timestamp"
        found = [one for one in self.by_key.values() if one.owner == owner and one.kind == kind]
        found = [one for one in found if _status(one, now_us) in statuses]
        found.sort(key=lambda one: one.timestamp_us, reverse=descending)
        return found[offset : offset + limit], len(found)

    async def corrections(
        self, owner: types.Owner, keys: Sequence[int], now_us: int
    ) -> tuple[correction.Correction, ...]:
        """Return those in `corrected`, as far as they lead from one of these rows of the owner."""
        assert now_us
        found, reached = [], set(keys)
        for _ in self.corrected:
            found = [one for one in self.corrected if one.target in reached and self.by_key[one.by].owner == owner]
            reached |= {one.by for one in found}
        return tuple(found)


class MemoryStore:
    """A real text index and rows in memory, kept in step: what the cascade does, for entries made up by a test."""

    def __init__(self, folder: Path) -> None:
        """Put the index below `folder`."""
        self.index = text.TextIndex(folder / "text")
        self.rows = MemoryRows()
        self._next_key = 1
        self.n_suspected = 0

    def suspect(self) -> None:
        """Count searches that failed."""
        self.n_suspected += 1

    def lack(self) -> str:
        """Lack nothing."""
        return ""

    def add(self, *entries: row.EntryRow) -> None:
        """Store entries made by `entry`, or changed ones, and make them searchable."""
        for one in entries:
            self.rows.by_key[one.key] = one
        self.index.write([document(one) for one in entries], [])
        self.index.commit()

    def entry(self, body: str, **fields: object) -> row.EntryRow:
        """Make up one entry; not stored yet."""
        key, self._next_key = self._next_key, self._next_key + 1
        given: dict[str, object] = {
            "key": key,
            "path": f"default_app/default_project/users/u/episodes/{key}.md",
            "line": 1,
            "entry_id": f"ep_20260302_{key:08}",
            "kind": "episode",
            "form": "marked",
            "owner": OWNER,
            "lsn": key,
            "session_id": None,
            "timestamp_us": key,
            "parent_type": "",
            "parent_id": "",
            "sender_ids": (),
            "memory_type": "",
            "memory_path": "",
            "status": "active",
            "deprecated_by": None,
            "expires_us": None,
            "updated_us": key,
            "raw": body,
        }
        return row.EntryRow(**(given | fields))  # type: ignore[arg-type]  # fields of the row by name


def document(one: row.EntryRow) -> contract.Document:
    """Return a row as the index sees it; all its text is body."""
    filed = memory.filing(entry_text.read(one.kind, one.entry_id, one.raw).fields)
    return contract.Document(
        key=one.key,
        entry_id=one.entry_id,
        owner=one.owner,
        kind=one.kind,
        status=one.status,
        title="",
        body=one.raw,
        timestamp_us=one.timestamp_us,
        expires_us=one.expires_us,
        session_id=one.session_id or "",
        parent_type=one.parent_type,
        parent_id=one.parent_id,
        sender_ids=one.sender_ids,
        memory_type=memory.type_of(one.kind, one.memory_type),
        memory_path=one.memory_path,
        bucket=filed.bucket,
        scope=filed.scope,
        team_id=filed.team_id,
        semantic_key=filed.semantic_key,
    )


def _status(one: row.EntryRow, now_us: int) -> str:
    is_over = one.status == "active" and one.expires_us is not None and one.expires_us <= now_us
    return "expired" if is_over else one.status
