"""What tests of the HTTP door share: a root of our own, opened for real, behind a client inside this process."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime as dt
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog

from everosd import clock, config, daemon

HOST = "http://127.0.0.1:8000"

Files = Mapping[str, str]
"""Paths below the root, with what stands in them."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Door:
    """An open root and a client of its HTTP door."""

    root: Path
    node: daemon.Node
    app: Any
    client: httpx.AsyncClient

    async def search(self, query: str, **body: object) -> dict[str, Any]:
        """Search by keyword and return what stands under `data`."""
        answer = await self.client.post("/api/v1/memory/search", json={"query": query, "method": "keyword", **body})
        assert 200 == answer.status_code, answer.text
        data: dict[str, Any] = answer.json()["data"]
        return data

    async def get(self, memory_type: str, **body: object) -> dict[str, Any]:
        """Get a page and return what stands under `data`."""
        answer = await self.client.post("/api/v1/memory/get", json={"memory_type": memory_type, **body})
        assert 200 == answer.status_code, answer.text
        data: dict[str, Any] = answer.json()["data"]
        return data

    async def entry(self, entry_id: str, **query: str) -> dict[str, Any]:
        """Get one entry and return what stands under `data`."""
        answer = await self.client.get(f"/api/v1/entries/{entry_id}", params=query)
        assert 200 == answer.status_code, answer.text
        data: dict[str, Any] = answer.json()["data"]
        return data


@pytest.fixture(autouse=True)
def _plain_logs() -> Iterator[None]:
    """Let no test see the level and format that another one has set."""
    yield
    structlog.reset_defaults()


Open = Callable[..., AbstractAsyncContextManager[Door]]


@pytest.fixture
def open_door(tmp_path: Path) -> Open:
    """Return a function that writes files, opens the root they make, and gives its door once all of it is searchable."""

    @contextlib.asynccontextmanager
    async def opened(
        files: Files, *, settings: str = "", client: str = "127.0.0.1", learns: bool = False
    ) -> AsyncIterator[Door]:
        root = tmp_path / "root"
        for path, text in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text, encoding="utf-8")
        root.mkdir(exist_ok=True)
        (root / config.FILE_NAME).write_text(settings, encoding="utf-8")
        loaded = await asyncio.to_thread(config.load, root, {})
        async with daemon.open_node(loaded, clock.SystemClock(), learns=learns) as node:
            await node.cascade.reconcile("test")
            await node.cascade.settled(20.0)
            app = await asyncio.to_thread(daemon.application, node, token=loaded.api.token.reveal())
            transport = httpx.ASGITransport(app, raise_app_exceptions=False, client=(client, 4711))
            async with httpx.AsyncClient(transport=transport, base_url=HOST) as http:
                yield Door(root=root, node=node, app=app, client=http)

    return opened


@dataclasses.dataclass(frozen=True, kw_only=True)
class Said:
    """One entry to be written into a file, as EverOS writes it."""

    id: str
    fields: Mapping[str, str]
    sections: dict[str, str]

    def text(self) -> str:
        """Return the entry between its markers."""
        inline = "\n".join(f"**{name}**: {value}" for name, value in self.fields.items())
        sections = "\n\n".join(f"### {title}\n{text}" for title, text in self.sections.items())
        return f"<!-- entry:{self.id} -->\n## {self.id}\n\n{inline}\n\n{sections}\n<!-- /entry:{self.id} -->\n"


@pytest.fixture
def log_of() -> Callable[..., str]:
    """Return a function that writes a daily log, as EverOS would."""

    def written(
        owner: str, date: str, *entries: Said, deprecated: Mapping[str, str] | None = None, track: str = "user"
    ) -> str:
        moved = "".join(f"  {old}: {new}\n" for old, new in (deprecated or {}).items())
        head = (
            f"---\nid: log_{owner}_{date}\ntype: daily\nschema_version: 1\n{track}_id: {owner}\ntrack: {track}\n"
            f"date: '{date}'\nentry_count: {len(entries)}\nlast_appended_at: '{date}T20:00:00+00:00'\n"
        )
        head += f"deprecated_entries:\n{moved}" if moved else ""
        return f"{head}---\n" + "".join(entry.text() for entry in entries)

    return written


@pytest.fixture
def episode() -> Callable[..., Said]:
    """Return a function that makes an Episode."""

    def made(number: int, content: str, *, date: str = "20260302", session: str | None = "s_17", **fields: str) -> Said:
        entry_id = f"ep_{date}_{number:08}"
        moment = dt.datetime.strptime(date, "%Y%m%d").replace(tzinfo=dt.UTC) + dt.timedelta(minutes=number)
        inline = {"owner_id": "mara"} | ({"session_id": session} if session else {})
        inline |= {"timestamp": moment.isoformat(), "parent_type": "memcell", "parent_id": f"mc_{number:012x}"}
        inline |= {"sender_ids": "[mara, helper]"} | fields
        sections = {"Subject": f"About {number}", "Summary": f"In short {number}", "Content": content}
        return Said(id=entry_id, fields=inline, sections=sections)

    return made
