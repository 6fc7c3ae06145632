"""What a row of `.lifecycle/` does to an entry is seen on every path, and undone on every path."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import httpx
import pytest

from everosd import clock, config, daemon, types
from everosd.cascade import verify
from everosd.search import query
from tests import embedding_stub
from tests.unit import conftest

Open = Callable[..., AbstractAsyncContextManager[conftest.Door]]

MARA = types.Owner(app="default", project="default", type="user", id="mara")
USER = "default_app/default_project/users/mara"
MEM, EP, AF = "mem_20260302_00000001", "ep_20260302_00000001", "af_20260302_00000001"
FIELDS = {"owner_id": "mara", "timestamp": "2026-03-02T12:00:00+00:00"}
METHODS: tuple[query.Method, ...] = ("keyword", "vector", "hybrid")
LOG = f"{USER}/.lifecycle/lifecycle-2026-03-02.md"
FILES = {
    f"{USER}/memories/projects/tide/semantic-2026-03-02.md": conftest.Said(
        id=MEM, fields={**FIELDS, "importance": "0.8"}, sections={"Content": "The zinfandel tide is high at noon"}
    ).text(),
    f"{USER}/episodes/episode-2026-03-02.md": conftest.Said(
        id=EP, fields=FIELDS, sections={"Content": "Mara saw the zinfandel tide"}
    ).text(),
    f"{USER}/.atomic_facts/atomic_fact-2026-03-02.md": conftest.Said(
        id=AF,
        fields={**FIELDS, "parent_type": "episode", "parent_id": EP},
        sections={"Fact": "Mara has seen the zinfandel tide"},
    ).text(),
}


def row(number: int, action: str, target: str, **fields: str) -> str:
    """Return a row as a person may append it."""
    said = {"timestamp": "2026-03-03T12:00:00+00:00", "action": action, "target": target, **fields}
    return conftest.Said(id=f"lc_20260302_{number:08}", fields=said, sections={}).text()


async def append(door: conftest.Door, *rows: str) -> None:
    """Append rows by hand and wait until the ledger has them."""

    def write() -> None:
        path = door.root / LOG
        path.parent.mkdir(exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write("\n" + "\n".join(rows))

    await asyncio.to_thread(write)
    await door.node.cascade.reconcile("test")
    await door.node.cascade.settled(20.0)


async def seen(door: conftest.Door, **more: object) -> set[str]:
    """Return the ids that any way of asking shows: searches by each method, for facts alone, and a page of Episodes."""
    found: set[str] = set()
    for method in METHODS:
        body = {"query": "zinfandel tide", "user_id": "mara", "method": method, **more}
        answer = await door.client.post("/api/v1/memory/search", json=body)
        assert 200 == answer.status_code, answer.text
        for one in answer.json()["data"]["episodes"]:
            found |= {one["id"], *(each["id"] for each in one["atomic_facts"])}
    page = await door.get("episode", user_id="mara", **more)
    found |= {one["id"] for one in page["episodes"]}
    for method in METHODS[:2]:
        asked = query.Query(owner=MARA, text="zinfandel tide", method=method, kinds=("atomic_fact",))
        found |= {f"mara_{hit.row.entry_id}" for hit in (await door.node.search.run(asked)).facts}
    return {each.removeprefix("mara_") for each in found}


@contextlib.asynccontextmanager
async def with_vectors(root: Path, stub: embedding_stub.EmbeddingStub) -> AsyncIterator[conftest.Door]:
    """Open a root whose entries have vectors of the stub."""
    for path, text in FILES.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    (root / config.FILE_NAME).write_text(f'[embedding]\nmodel = "stub"\nbase_url = "{stub.url}"\n', encoding="utf-8")
    loaded = await asyncio.to_thread(config.load, root, {})
    async with daemon.open_node(loaded, clock.SystemClock(), has_vectors=True) as node:
        await node.cascade.reconcile("test")
        app = await asyncio.to_thread(daemon.application, node, token=loaded.api.token.reveal())
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=conftest.HOST) as client:
            yield conftest.Door(root=root, node=node, app=app, client=client)


async def embedded(door: conftest.Door) -> None:
    """Wait until every index has everything, and a query would be embedded."""
    async with asyncio.timeout(20):
        while not _is_embedded(door.node):  # noqa: ASYNC110  # several parts decide
            await asyncio.sleep(0.01)


def _is_embedded(node: daemon.Node) -> bool:
    now = node.cascade.status().embedding
    is_there = now is not None and node.search.queries is not None and bool(now.dim)
    return is_there and node.cascade.is_settled() and node.cascade.pending() == 0


@pytest.mark.parametrize(
    ("action", "status"),
    [("archive", "archived"), ("expire", "expired"), ("supersede", "superseded"), ("delete", "deleted")],
)
async def test_S07_Y02_what_a_row_puts_away_is_found_on_no_path_and_on_all_once_it_is_restored(
    tmp_path: Path, action: str, status: str
) -> None:
    """Words, vectors, both, facts alone and pages: the Episode goes with its facts, the memory by itself; asked for, they show."""
    successor = {"successor": AF} if action == "supersede" else {}
    with embedding_stub.EmbeddingStub() as stub:
        async with with_vectors(tmp_path, stub) as door:
            await embedded(door)
            assert {MEM, EP, AF} == await seen(door)
            said = {"field": "status", "base": "active", "value": status, "reason": "of no use", **successor}
            await append(door, row(1, action, MEM, **said), row(2, action, EP, **said))
            await embedded(door)
            assert set() == await seen(door)
            assert {MEM, EP} <= await seen(door, include_status=[status])
            shown = await door.entry(f"mara_{MEM}")
            assert (status, f"mara_{AF}" if successor else None) == (shown["status"], shown["deprecated_by"])
            back = {"field": "status", "base": "active", "value": "active"}
            await append(door, row(3, "restore", MEM, **back), row(4, "restore", EP, **back))
            await embedded(door)
            assert {MEM, EP, AF} == await seen(door)
            assert (await verify.verify(door.node.cascade)).is_clean


async def test_an_entry_shows_the_importance_that_is_in_force(open_door: Open) -> None:
    """What decayed is lower than the file says, until the file says something else."""
    decayed = {
        "field": "importance",
        "base": "0.8",
        "was": "0.8",
        "value": "0.6",
        "since": "2026-03-02T12:00:00+00:00",
        "steps": "1",
    }
    async with open_door(FILES) as door:
        await append(door, row(1, "decay", MEM, **decayed))
        assert 0.6 == (await door.entry(f"mara_{MEM}"))["importance"]
        path = door.root / next(iter(FILES))
        text = await asyncio.to_thread(path.read_text)
        await asyncio.to_thread(path.write_text, text.replace("0.8", "0.9"))
        await append(door)
        assert 0.9 == (await door.entry(f"mara_{MEM}"))["importance"]


async def test_facts_of_an_episode_past_its_time_are_not_found_alone(open_door: Open) -> None:
    """Nobody has to run anything: the clock alone puts an Episode and its facts away."""
    name = next(name for name in FILES if "episodes" in name)
    text = FILES[name].replace("**owner_id**: mara", "**owner_id**: mara\n**expires_at**: 2026-03-04")
    async with open_door({**FILES, name: text}) as door:
        asked = query.Query(owner=MARA, text="zinfandel tide", method="keyword", kinds=("atomic_fact",))
        assert () == (await door.node.search.run(asked)).facts


async def test_a_ledger_of_the_version_before_reads_memories_and_logs_of_the_lifecycle_again(open_door: Open) -> None:
    """A root that was read before there was a lifecycle has its statuses after the update, without a rebuild."""
    said = {"field": "status", "base": "active", "value": "archived"}
    async with open_door({**FILES, LOG: row(1, "archive", MEM, **said)}) as door:
        root = door.root

        def forget(connection: sqlite3.Connection) -> None:
            for table in ("typed_memories", "importance_edits", "lifecycle_rows", "lifecycle_state"):
                connection.execute(f"DROP TABLE {table}")
            connection.execute("DROP INDEX entries_away")
            connection.execute("UPDATE entries SET status = 'active'")
            connection.execute("UPDATE meta SET value = '4 UTC' WHERE key = 'reader'")
            connection.execute("PRAGMA user_version = 4")

        await door.node.cascade.database.write(forget)
    async with open_door({}) as door:
        assert root == door.root
        assert "archived" == (await door.entry(f"mara_{MEM}"))["status"]
        assert (await verify.verify(door.node.cascade)).is_clean
