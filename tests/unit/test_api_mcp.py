"""/mcp inside the daemon, and the route that says who has memory."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from everosd.api import mcp
from tests.unit import conftest

EPISODES = "default_app/default_project/users/{}/episodes/episode-2026-03-02.md"
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}


async def test_owners_are_those_of_one_scope(open_door: conftest.Open) -> None:
    """Users and agents of an app and project, sorted; nobody of another one."""
    files = {
        EPISODES.format("mara"): "## A\n\nOne.\n",
        EPISODES.format("bob"): "## B\n\nTwo.\n",
        "shop/web/users/zoe/episodes/episode-2026-03-02.md": "## C\n\nThree.\n",
    }
    async with open_door(files) as door:
        answer = (await door.client.get("/api/v1/owners")).json()["data"]
        assert {"users": ["bob", "mara"], "agents": []} == answer
        limited = await door.client.get("/api/v1/owners?limit=1")
        assert ["bob"] == limited.json()["data"]["users"]
        other = await door.client.get("/api/v1/owners", params={"app_id": "shop", "project_id": "web"})
        assert ["zoe"] == other.json()["data"]["users"]
        for wrong in ("app_id=..", "limit=0", "limit=99999", "user_id=bob"):
            assert 422 == (await door.client.get(f"/api/v1/owners?{wrong}")).status_code


async def test_a_request_of_a_tool_that_was_given_up_on_is_carried_out() -> None:
    """What changes something goes on to its end, as it does over HTTP; what only reads ends."""
    done: list[str] = []
    begun = asyncio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        del receive
        begun.set()
        await asyncio.sleep(0.05)
        done.append(scope["path"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    inside = mcp.Inside(slow, "")
    for path, is_read in (("/write", False), ("/read", True)):
        begun.clear()
        call = asyncio.create_task(inside.call("POST", path, {}, is_read=is_read))
        await begun.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    await asyncio.sleep(0.2)
    assert ["/write"] == done
    await inside.close()


async def test_what_cannot_be_imported_is_said(monkeypatch: pytest.MonkeyPatch, open_door: conftest.Open) -> None:
    """Without the SDK the daemon does everything else, and /mcp says why it cannot."""
    monkeypatch.setitem(sys.modules, "everosd.mcp.server", None)
    async with open_door({}) as door:
        waiting: list[Any] = [{"type": "lifespan.startup"}]
        told: list[str] = []
        ended = asyncio.Event()

        async def receive() -> Any:
            if waiting:
                return waiting.pop()
            await ended.wait()
            return {"type": "lifespan.shutdown"}

        async def send(message: Any) -> None:
            told.append(message["type"])

        lifespan = asyncio.create_task(door.app({"type": "lifespan", "state": {}}, receive, send))
        answer = await door.client.post("/mcp", json=INITIALIZE)
        assert 503 == answer.status_code
        assert "log" in answer.text
        assert 200 == (await door.client.get("/health")).status_code
        ended.set()
        await lifespan
        assert "lifespan.shutdown.complete" in told
