"""The routes that write typed memories, over a real root: what is written, found, changed, forgotten and brought back."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from everosd import types
from everosd.cascade import verify
from everosd.log import entry as log_entry
from tests import steps

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.conftest import Door, Open, Said

MARA = types.Owner(app="default", project="default", type="user", id="mara")
BASE = "default_app/default_project/users/mara"


async def ask(door: Door, route: str, *, status: int = 200, **body: object) -> dict[str, Any]:
    """Post to a route and return what stands under `data`; of a refusal the error."""
    answer = await door.client.post(f"/api/v1/memory/{route}", json=body)
    assert status == answer.status_code, answer.text
    found: dict[str, Any] = answer.json()["data" if status == 200 else "error"]
    return found


async def remember(door: Door, content: str, *, status: int = 200, **body: object) -> dict[str, Any]:
    """Remember something of mara under `projects/atlas`."""
    return await ask(door, "remember", status=status, **{"path": "projects/atlas", "user_id": "mara"} | body, content=content)


async def found(door: Door, query: str, **body: object) -> list[str]:
    """Return the ids that a search of mara's memory finds."""
    data = await door.search(query, user_id="mara", **body)
    return [one["id"] for one in data["episodes"]]


async def history(door: Door, public_id: str, **query: str) -> dict[str, Any]:
    """Return the history of an entry."""
    answer = await door.client.get(f"/api/v1/entries/{public_id}/history", params=query)
    assert 200 == answer.status_code, answer.text
    data: dict[str, Any] = answer.json()["data"]
    return data


async def settled(door: Door) -> None:
    """Wait until everything on disk is searchable."""
    await door.node.cascade.reconcile("test")
    await door.node.cascade.settled(20.0)


async def is_clean(door: Door) -> None:
    """Make sure that what is live is what a rebuild would make."""
    report = await verify.verify(door.node.cascade)
    assert report.is_clean, report.differences


def files(root: Path) -> dict[str, str]:
    """Return every Markdown file below a root."""
    return {path.relative_to(root).as_posix(): path.read_text() for path in sorted(root.rglob("*.md")) if ".tmp" not in path.parts}


def holders(root: Path, word: str) -> list[str]:
    """Return every file below a root that holds a word, whatever it is."""
    mark = word.encode()
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file() and mark in path.read_bytes())


async def test_what_is_remembered_is_in_its_file_and_found_by_the_next_search(open_door: Open) -> None:
    """The answer tells id and file; the file lies in the folder of its path, with the fields that were given."""
    async with open_door({}) as door:
        made = await remember(
            door,
            "Atlas ships from the Hamburg warehouse.",
            subject="Warehouse",
            importance=0.8,
            metadata={"ticket": "A-7"},
            provenance='{"tool": "cli"}',
            expires_at="2099-01-01T00:00:00Z",
            pinned=True,
            source_ids=["mara_ep_20260302_00000001", "x"],
        )
        assert [made["id"]] == await found(door, "Hamburg warehouse")
        shown = await door.entry(made["id"])
        text = (door.root / made["file"]).read_text()
        await is_clean(door)

    today = dt.datetime.now(dt.UTC).date().isoformat()
    assert ("created", 1, "semantic", "projects/atlas", "active") == (
        made["outcome"],
        made["version"],
        made["memory_type"],
        made["path"],
        made["status"],
    )
    assert f"{BASE}/memories/projects/atlas/semantic-{today}.md" == made["file"]
    assert f"mara_{made['entry_id']}" == made["id"]
    assert ("Warehouse", "Atlas ships from the Hamburg warehouse.") == (shown["subject"], shown["content"])
    assert 0.8 == shown["importance"]
    assert {
        "owner_id": "mara",
        "memory_type": "semantic",
        "importance": "0.8",
        "expires_at": "2099-01-01T00:00:00Z",
        "pinned": "true",
        "sources": "[ep_20260302_00000001, x]",
        "metadata": '{"ticket":"A-7"}',
        "provenance": '{"tool":"cli"}',
    } == {name: value for name, value in shown["fields"].items() if name != "timestamp"}
    assert "### Subject\nWarehouse" in text
