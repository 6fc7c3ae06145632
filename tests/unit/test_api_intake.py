"""The routes that take messages: what the contract does not say of slow models, broken disks and odd sizes."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import TYPE_CHECKING, Any

import msgspec

from everosd import strategies, types
from everosd.intake import session
from everosd.log import layout

if TYPE_CHECKING:
    from tests.unit.conftest import Door, Open

assert strategies.PROMPTS.is_dir()  # imported here: it takes a while, which a first request would seem to
V1 = "/api/v1"
T0 = 1_772_445_600_000
OWNER = types.Owner(app="default", project="default", type="session", id="s")


def said(content: Any, minute: int = 0, **more: object) -> dict[str, Any]:
    return {"sender_id": "mara", "role": "user", "timestamp": T0 + minute * 60_000, "content": content, **more}


async def post(door: Door, route: str, **body: object) -> Any:
    return await door.client.post(f"{V1}/{route}", json={"session_id": "s", **body})


async def until_closed(door: Door) -> session.Session:
    """Return what the log of the session says once each of its segments has its Episodes."""
    async with asyncio.timeout(10.0):
        while (log := await asyncio.to_thread(session.read, layout.Layout(door.root), OWNER)).open:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return log


async def test_A01_a_client_that_does_not_wait_doubles_nothing(open_door: Open) -> None:
    """Sent three times, flushed and given up twice while extraction is slow, flushed twice at once: one Episode, each message once."""
    async with open_door({}, settings="[memorize.async_queue]\nmax_concurrency = 1\n", learns=True) as door:
        assert door.node.learning is not None
        for _ in range(3):
            added = await post(door, "memory/add", messages=[said("the ferry leaves at nine"), said("on Monday", 1)])
            assert 2 == added.json()["data"]["message_count"]
        async with door.node.learning.intake._extraction._slots:
            for _ in range(2):
                given_up = asyncio.ensure_future(post(door, "memory/flush"))
                await asyncio.wait({given_up}, timeout=0.05)
                given_up.cancel()
                await asyncio.gather(given_up, return_exceptions=True)
            both = [asyncio.ensure_future(post(door, "memory/flush")) for _ in range(2)]
            await asyncio.wait(both, timeout=0.05)
        answers = await asyncio.gather(*both)
        log = await until_closed(door)
        await door.node.cascade.reconcile("test")
        await door.node.cascade.settled(10.0)
        found = await door.get("episode", user_id="mara")

    assert ["extracted"] * 2 == [answer.json()["data"]["status"] for answer in answers]
    assert ([], 2, 1) == (log.waiting, len(log), found["total_count"])


async def test_nothing_takes_messages_where_a_command_works_alone(open_door: Open) -> None:
    """Without an intake each of its routes is CAPABILITY_UNAVAILABLE and says what to start; reading goes on."""
    async with open_door({}) as door:
        answers = [
            await post(door, "memory/add", messages=[said("hello")]),
            await post(door, "memory/flush"),
            await door.client.get(f"{V1}/tasks"),
            await door.client.get(f"{V1}/tasks/x"),
            await post(door, "ome/trigger", name="x"),
            await door.client.get(f"{V1}/ome/strategies"),
        ]
        health = await door.client.get("/health")

    assert [(503, "CAPABILITY_UNAVAILABLE")] * 6 == [(one.status_code, one.json()["error"]["code"]) for one in answers]
    assert all("everosd serve" in answer.json()["error"]["message"] for answer in answers)
    assert (200, None) == (health.status_code, health.json()["memorize_queue"])


async def test_A04_a_ledger_that_cannot_be_written_is_told_on_each_route(open_door: Open) -> None:
    """While another process holds it, each answer is a 5xx in the envelope; afterwards what was sent again is there once."""
    async with open_door({}, settings="[sqlite]\nbusy_timeout_ms = 0\n", learns=True) as door:
        await post(door, "memory/add", messages=[said("kept before")])
        blocker = await asyncio.to_thread(_hold_the_write_lock, str(door.node.database.path))
        try:
            answers = [
                await post(door, "memory/add", messages=[said("sent twice", 1)], async_mode=True),
                await door.client.get(f"{V1}/tasks"),
                await door.client.get(f"{V1}/tasks/x"),
            ]
        finally:
            await asyncio.to_thread(blocker.close)
        again = await post(door, "memory/add", messages=[said("sent twice", 1)])
        flushed = await post(door, "memory/flush")
        log = await until_closed(door)

    for answer in answers:
        assert answer.status_code < 400 or {"request_id", "error"} == set(answer.json()), answer.text
        assert answer.status_code in {202, 404, 503, 200}
    assert (200, "extracted", 2) == (again.status_code, flushed.json()["data"]["status"], len(log))


def _hold_the_write_lock(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    return connection


async def test_A04_a_session_whose_log_cannot_be_written_is_a_conflict(open_door: Open) -> None:
    """A file stands where the folder should be: 409 that names it; other sessions go on."""
    files = {"default_app/default_project/sessions/s": "not a folder"}
    async with open_door(files, learns=True) as door:
        refused = await post(door, "memory/add", messages=[said("hello")])
        taken = await post(door, "memory/add", session_id="other", messages=[said("hello")])

    assert (409, "CONFLICT") == (refused.status_code, refused.json()["error"]["code"])
    assert "sessions/s" in refused.json()["error"]["message"]
    assert 200 == taken.status_code


async def test_the_limit_of_async_requests_changes_without_a_restart(open_door: Open) -> None:
    """`max_payload_bytes` is that of the moment."""
    async with open_door({}, learns=True) as door:
        assert door.node.learning is not None
        body = {"messages": [said("x" * 3000)], "async_mode": True}
        before = await post(door, "memory/add", **body)
        queue = msgspec.structs.replace(door.node.config.memorize_async_queue, max_payload_bytes=2000)
        door.node.learning.change(msgspec.structs.replace(door.node.config, memorize_async_queue=queue))
        after = await post(door, "memory/add", **body)

    assert [202, 413] == [before.status_code, after.status_code]
    assert "[memorize.async_queue] max_payload_bytes" in after.json()["error"]["message"]
