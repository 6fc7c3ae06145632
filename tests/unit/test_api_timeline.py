"""GET memory/timeline, and the pages that agents read: what was remembered, in the order of its moments."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest

from everosd.mcp import backend, owner, resource, tools
from tests.unit import conftest

if TYPE_CHECKING:
    from tests.unit.conftest import Door, Open

USERS = "default_app/default_project/users"
HEAD = "default_app/default_project/users/mara/memories"


def memory(nth: int, at: str, said: str, **fields: str) -> str:
    """Return a typed memory as it stands in a file."""
    given = {"timestamp": at, **fields}
    return conftest.Said(id=f"mem_20260302_{nth:08}", fields=given, sections={"Content": said}).text()


def episode(nth: int, at: str, said: str) -> str:
    """Return an Episode as it stands in a file."""
    given = {"timestamp": at, "session_id": "s_1"}
    return conftest.Said(id=f"ep_20260302_{nth:08}", fields=given, sections={"Content": said}).text()


FILES = {
    f"{HEAD}/projects/atlas/semantic-2026-03-02.md": memory(1, "2026-03-02T10:00:00+00:00", "Atlas ships in May.")
    + memory(2, "2026-03-02T23:59:59+00:00", "Hidden.", status="archived")
    + memory(3, "2026-03-02T12:00:00+00:00", "Over.", expires_at="2026-03-03"),
    f"{HEAD}/desk/working-2026-03-03.md": memory(4, "2026-03-03T00:00:00+00:00", "The key is under the plant."),
    f"{USERS}/mara/episodes/episode-2026-03-02.md": episode(1, "2026-03-02T11:00:00+00:00", "Mara met Jonas."),
    f"{USERS}/ben/memories/a/semantic-2026-03-02.md": memory(9, "2026-03-02T10:30:00+00:00", "Of somebody else."),
}


async def dated(door: Door, query: dict[str, str], status: int = 200) -> dict[str, Any]:
    """Ask for mara's timeline."""
    answer = await door.client.get("/api/v1/memory/timeline", params={"user_id": "mara", **query})
    assert status == answer.status_code, answer.text
    found: dict[str, Any] = answer.json()["data" if status == 200 else "error"]
    return found


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ({}, "mem4 ep1 mem1"),
        ({"order": "asc"}, "mem1 ep1 mem4"),
        ({"since": "2026-03-02T11:00:00Z"}, "mem4 ep1"),
        ({"until": "2026-03-03"}, "ep1 mem1"),
        ({"since": "1772449200000", "until": "1772449200001"}, "ep1"),
        ({"limit": "1", "offset": "1"}, "ep1"),
        ({"offset": "3"}, ""),
    ],
)
async def test_a_timeline_has_episodes_and_typed_memories(open_door: Open, query: dict[str, str], ids: str) -> None:
    """Those of one owner that are active, by their moments, with their texts."""
    async with open_door(FILES) as door:
        found = await dated(door, query)
    shown = [f"{one['id'].split('_')[1]}{int(one['id'][-8:])}" for one in found["items"]]
    assert ids.split() == shown
    for one in found["items"]:
        if one["id"].endswith("mem_20260302_00000001"):
            assert ("memory", "semantic", "projects/atlas") == (one["kind"], one["memory_type"], one["path"])
            assert ("2026-03-02T10:00:00Z", "Atlas ships in May.") == (one["timestamp"], one["text"])
        if one["kind"] == "episode":
            assert ("episodic", "", "s_1") == (one["memory_type"], one["path"], one["session_id"])
    assert (3 if "since" not in query and "until" not in query else len(shown)) == found["total_count"]


async def test_what_is_no_moment_is_refused_by_name(open_door: Open) -> None:
    """So are an order and a field that there are not."""
    async with open_door(FILES) as door:
        for query, field in (({"since": "soon"}, "since"), ({"until": ""}, "until"), ({"order": "up"}, "order")):
            assert (await dated(door, query, 422))["message"].endswith(field)
        await dated(door, {"kind": "memory"}, 422)


class _Door:
    """The routes, as tools ask them."""

    def __init__(self, door: Door) -> None:
        self._door = door

    async def call(self, method: str, path: str, body: object = None, *, is_read: bool = False) -> backend.Reply:
        """Ask one route."""
        assert is_read
        answer = await self._door.client.request(method, path, json=body)
        return backend.Reply(status=answer.status_code, body=answer.json())


async def test_a_timeline_of_typed_memories_alone_did_not_say_that_nothing_was_remembered(open_door: Open) -> None:
    """What an agent was asked to remember is on the page of the day and on that of what happened lately."""
    files = {path: text for path, text in FILES.items() if "episodes/" not in path}
    whose = owner.Whose(user_id="mara", app_id="default", project_id="default")
    call = tools.Call(whose=whose, now=dt.datetime(2026, 3, 4, tzinfo=dt.UTC), zone=dt.UTC)
    async with open_door(files) as door:
        lately = await resource.read("everosd://timeline", call, _Door(door))
        day = await resource.read("everosd://timeline/2026-03-02", call, _Door(door))
        before = await resource.read("everosd://timeline/2025", call, _Door(door))
    assert lately.index("The key is under the plant.") < lately.index("Atlas ships in May.")
    assert "Atlas ships in May." in day
    assert "plant" not in day
    assert "Nothing is remembered." in before
