"""A root opened for real, without a model and without HTTP, and what a test does to it."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime as dt
from collections.abc import AsyncIterator
from pathlib import Path

from everosd import clock, config, daemon, types
from everosd.log import entry, writer
from everosd.store import read, row
from tests import steps

EVERY = -1
"""The limit of a page that has no end, to SQLite: what is left out of one looks like something that was lost."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Root:
    """An open root."""

    path: Path
    node: daemon.Node

    @property
    def reader(self) -> read.Reader:
        """What the ledger knows."""
        return self.node.reader

    @property
    def pen(self) -> writer.Writer:
        """What writes."""
        return self.node.cascade.writer

    async def settled(self) -> None:
        """Wait until the ledger has what is on disk."""
        await self.node.cascade.reconcile("test")
        await self.node.cascade.settled(20.0)

    async def is_settled(self) -> None:
        """Do nothing: for strategies that are run once the ledger has what is on disk."""

    async def episode(self, owner: types.Owner, content: str, *, day: int = 1, session: str = "s_1") -> str:
        """Write an Episode as everosd does, of a day of March 2026; return its id."""
        fields = {
            "owner_id": owner.id,
            "session_id": session,
            "timestamp": dt.datetime(2026, 3, day, 12, tzinfo=dt.UTC).isoformat(),
            "parent_type": "memcell",
            "extracted_by": "verbatim",
        }
        draft = entry.Draft(fields=fields, sections=(("Subject", "A talk"), ("Content", content)))
        return (await self.pen.append(owner, "episode", [draft]))[0]

    async def join(self, owner: types.Owner, member_id: str, cluster_id: str, kind: str) -> None:
        """Have an entry join a cluster."""
        fields = {
            "timestamp": dt.datetime.now(dt.UTC).isoformat(),
            "event": "joined",
            "cluster_id": cluster_id,
            "member_id": member_id,
            "member_type": kind,
        }
        await self.pen.append(owner, "cluster", [entry.Draft(fields=fields)])

    async def all(self, owner: types.Owner, kind: str) -> list[row.EntryRow]:
        """Return all live entries of a kind, once the ledger has what is on disk."""
        await self.settled()
        rows, _ = await self.reader.page(owner, kind, now_us=0, descending=False, limit=EVERY)
        return rows

    async def text(self, path: str) -> str:
        """Return what stands in a file."""
        return await asyncio.to_thread((self.path / path).read_text)

    async def save(self, path: str, text: str) -> None:
        """Save as an editor does, long enough ago."""

        def save() -> None:
            target = self.path / path
            target.parent.mkdir(parents=True, exist_ok=True)
            other = target.with_name("saving")
            other.write_text(text)
            steps.age(other)
            other.replace(target)

        await asyncio.to_thread(save)

    async def edit(self, path: str, old: str, new: str) -> None:
        """Replace a text in a file as an editor does."""
        text = await self.text(path)
        assert old in text
        await self.save(path, text.replace(old, new))


@contextlib.asynccontextmanager
async def opened(path: Path) -> AsyncIterator[Root]:
    """Open the files below `path`."""
    loaded = await asyncio.to_thread(config.load, path, {"EVEROS_EMBEDDING__MODEL": "none"})
    async with daemon.open_node(loaded, clock.SystemClock()) as node:
        root = Root(path=path, node=node)
        await root.settled()
        yield root
