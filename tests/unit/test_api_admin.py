"""Work on the whole root over HTTP: to this machine only, one piece at a time, with progress."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from everosd.cascade import rebuild
from tests import chat_stub

if TYPE_CHECKING:
    from tests.unit import conftest
    from tests.unit.conftest import Open

NOTES = "default_app/default_project/users/mara/episodes/episode-2026-03-02.md"
HAND = "## Boiler\n\nThe plumber comes on Thursday.\n\n## Ladder\n\nIt is in the shed.\n"


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


async def test_status_is_what_the_cascade_says(open_door: Open) -> None:
    """GET admin/status has files, entries, LSN and what waits."""
    async with open_door({NOTES: HAND}) as door:
        answer = (await door.client.get("/api/v1/admin/status")).json()["data"]

    assert ("ready", 1, 1, 2, 0) == tuple(
        answer[name] for name in ("phase", "files_on_disk", "files_indexed", "entries", "pending")
    )


async def test_rows_of_logs_are_no_entries(open_door: Open) -> None:
    """Messages and what became of a memory are counted apart from memories, live, by verify, and by a daemon that starts again."""

    async def counted(door: conftest.Door) -> list[tuple[int, int]]:
        await door.client.post("/api/v1/admin/reconcile", json={})
        live = (await door.client.get("/api/v1/admin/status")).json()["data"]
        health = (await door.client.get("/health")).json()["cascade"]
        report = lines((await door.client.post("/api/v1/admin/verify")).text)[-1]["result"]
        return [(one["entries"], one["rows"]) for one in (live, health, report)]

    async with open_door({NOTES: HAND}) as door:
        body = {"user_id": "mara", "path": "house", "content": "The key is under the stone.", "memory_type": "semantic"}
        kept = (await door.client.post("/api/v1/memory/remember", json=body)).json()["data"]
        ask = {"user_id": "mara", "memory_id": kept["id"]}
        assert 200 == (await door.client.post("/api/v1/memory/forget", json=ask)).status_code
        assert [(3, 1)] * 3 == await counted(door)
    async with open_door({}) as door:
        assert [(3, 1)] * 3 == await counted(door)
        body = {"user_id": "mara", "confirm": "mara"}
        gone = lines((await door.client.post("/api/v1/admin/forget", json=body)).text)[-1]["result"]
        assert 3 == gone["entries"]


async def test_status_says_what_keeps_memories_from_being_made(open_door: Open) -> None:
    """A model that is down and a mistake in ome.toml stand in the notices, as in /health, and no reason stands there twice."""
    with chat_stub.ChatStub() as model:
        model.status = 500
        settings = f'[embedding]\nmodel = "none"\n[llm]\nmodel = "stub"\nbase_url = "{model.url}"\nmax_retries = 0\n'
        files = {"ome.toml": "[strategies.extract_atomic_fact]\nenabled = false\n"}
        async with open_door(files, settings=settings, learns=True) as door:
            said = {"sender_id": "mara", "role": "user", "timestamp": 1772445600000, "content": "I found a puppy."}
            body = {"session_id": "s", "messages": [said], "defer_extraction": True}
            assert 200 == (await door.client.post("/api/v1/memory/add", json=body)).status_code
            assert 503 == (await door.client.post("/api/v1/memory/flush", json={"session_id": "s"})).status_code
            notices = (await door.client.get("/api/v1/admin/status")).json()["data"]["notices"]
            health = (await door.client.get("/health")).json()

    assert notices == health["degraded"]
    assert [True, True] == ["extract_atomic_fact" in notices[0], notices[1].endswith("asked again: 1 segment so far")]
    assert 1 == sum("500" in one for one in notices)
    assert [True] == ["500" in one for one in health["memorize_queue"]["reasons"]]


async def test_a_rebuild_streams_progress_and_ends_with_its_result(open_door: Open) -> None:
    """Lines with done and total, then one `result`; afterwards everything is found as before."""
    async with open_door({NOTES: HAND}) as door:
        answer = await door.client.post("/api/v1/admin/rebuild", json={})
        found = await door.search("plumber", user_id="mara")

    assert "application/x-ndjson" == answer.headers["content-type"].partition(";")[0]
    *steps, last = lines(answer.text)
    assert {"files": 1, "entries": 2} == last["result"]
    assert all({"stage", "done", "total"} == set(step) for step in steps)
    assert 1 == len(found["episodes"])


async def test_verify_says_that_all_is_clean(open_door: Open) -> None:
    """The last line is the report."""
    async with open_door({NOTES: HAND}) as door:
        report = lines((await door.client.post("/api/v2/admin/verify")).text)[-1]["result"]

    assert (True, 1, 2, []) == tuple(report[name] for name in ("is_clean", "files", "entries", "differences"))


async def test_adopt_gives_hand_written_entries_their_markers(open_door: Open) -> None:
    """The file has markers afterwards, and the count is told."""
    async with open_door({NOTES: HAND}) as door:
        result = lines((await door.client.post("/api/v1/admin/adopt", json={"path": NOTES})).text)[-1]["result"]
        text = await asyncio.to_thread((door.root / NOTES).read_text)

    assert ({"entries": 2, "refused": []}, 2) == (result, text.count("<!-- entry:"))


async def test_a_note_without_a_day_gets_it_from_a_later_name(open_door: Open) -> None:
    """Adopting writes no day that nobody knows: the file can be renamed afterwards, and the ids stay."""
    plain, dated = (f"default_app/default_project/users/mara/episodes/{name}.md" for name in ("notes", "2026-03-02"))
    async with open_door({plain: HAND}) as door:
        await door.client.post("/api/v1/admin/adopt")
        before = (await door.get("episode", user_id="mara"))["episodes"]
        await asyncio.to_thread((door.root / plain).rename, door.root / dated)
        await door.client.post("/api/v1/admin/reconcile", json={"accept_deletions": True})
        after = (await door.get("episode", user_id="mara"))["episodes"]
        text = await asyncio.to_thread((door.root / dated).read_text)

    assert "1970-01-01" not in text
    assert {one["id"] for one in before} == {one["id"] for one in after}
    assert {"1970-01-01T00:00:00Z"} == {one["timestamp"] for one in before}
    assert {"2026-03-02T00:00:00Z"} == {one["timestamp"] for one in after}


async def test_a_broken_file_does_not_keep_the_others_from_being_adopted(open_door: Open) -> None:
    """What cannot be rewritten is named; everything before and behind it has markers."""
    broken, last = NOTES.replace("episode-", "a-broken-"), NOTES.replace("episode-", "z-")
    async with open_door({broken: f"---\nid: [\n---\n{HAND}", NOTES: HAND, last: HAND}) as door:
        result = lines((await door.client.post("/api/v1/admin/adopt")).text)[-1]["result"]
        texts = [await asyncio.to_thread((door.root / path).read_text) for path in (broken, NOTES, last)]

    assert [0, 2, 2] == [text.count("<!-- entry:") for text in texts]
    assert (4, 1) == (result["entries"], len(result["refused"]))
    assert f"{broken}:3: " in result["refused"][0]


async def test_Z01_adopt_touches_nothing_outside_the_memory(open_door: Open) -> None:
    """A path that is no memory file is 422 before any work starts."""
    odd = ("../../etc/passwd", "/etc/passwd", "everos.toml", "", "a\0b.md", f"{NOTES}/../x.md", ".")
    async with open_door({NOTES: HAND}) as door:
        for path in odd:
            answer = await door.client.post("/api/v1/admin/adopt", json={"path": path})
            assert (422, True) == (answer.status_code, answer.json()["error"]["message"].endswith(": path")), path


async def test_reconcile_takes_in_what_was_written(open_door: Open) -> None:
    """When the result is there, the new text is searchable."""
    async with open_door({NOTES: HAND}) as door:
        await asyncio.to_thread((door.root / NOTES).write_text, HAND + "\n## Attic\n\nThe suitcase is there.\n")
        result = lines((await door.client.post("/api/v1/admin/reconcile", json={})).text)[-1]["result"]
        found = await door.search("suitcase", user_id="mara")

    assert (True, 3, 1) == (result["is_settled"], result["entries"], len(found["episodes"]))


async def test_a_misspelt_option_is_refused(open_door: Open) -> None:
    """An unknown field stops the work before it starts."""
    async with open_door({}) as door:
        for route in ("rebuild", "verify", "adopt", "reconcile"):
            answer = await door.client.post(f"/api/v1/admin/{route}", json={"pth": "x"})
            assert (422, True) == (answer.status_code, answer.json()["error"]["message"].endswith(": pth")), route


@pytest.mark.parametrize("client", ["192.168.1.7", "2001:db8::1"])
async def test_other_machines_are_refused(client: str, open_door: Open) -> None:
    """Admin routes answer to this machine only; search still answers to others."""
    async with open_door({}, client=client) as door:
        status = await door.client.get("/api/v1/admin/status")
        rebuild = await door.client.post("/api/v1/admin/rebuild")
        search = await door.client.post("/api/v1/memory/search", json={"query": "q", "user_id": "mara"})

    assert [403, 403, 200] == [answer.status_code for answer in (status, rebuild, search)]


async def test_a_request_through_a_proxy_is_not_local(open_door: Open) -> None:
    """A proxy on this machine may speak for anybody."""
    async with open_door({}) as door:
        answer = await door.client.get("/api/v1/admin/status", headers={"X-Forwarded-For": "203.0.113.9"})

    assert 403 == answer.status_code


class Slow:
    """A cascade's rebuild that waits to be let go, and what became of it."""

    def __init__(self) -> None:
        """Wait."""
        self.started = asyncio.Event()
        self.go = asyncio.Event()
        self.ended = ""
        self.is_over = asyncio.Event()

    async def rebuild(self, _cascade: object, progress: rebuild.Progress) -> None:
        """Say that the first of two is done, wait, end."""
        progress("files", 1, 2)
        self.started.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.ended = "cancelled"
            raise
        self.ended = "done"
        self.is_over.set()


async def test_work_goes_on_when_who_asked_leaves(open_door: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken connection does not stop a rebuild half-way; a second one meanwhile is told that one runs."""
    async with open_door({}) as door:
        slow = Slow()
        monkeypatch.setattr(rebuild, "rebuild", slow.rebuild)
        asking = asyncio.ensure_future(door.client.post("/api/v1/admin/rebuild"))
        await slow.started.wait()
        asking.cancel()
        await asyncio.wait({asking})
        second = await door.client.post("/api/v1/admin/verify")
        slow.go.set()
        async with asyncio.timeout(5):
            await slow.is_over.wait()
        third = await door.client.post("/api/v1/admin/verify")

    assert (409, "CONFLICT", "done", 200) == (
        second.status_code,
        second.json()["error"]["code"],
        slow.ended,
        third.status_code,
    )


async def test_work_that_fails_says_why_in_its_last_line(open_door: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream has begun as 200: the failure is its last line, generic where it is ours."""

    async def failing(_cascade: object, progress: rebuild.Progress) -> None:
        progress("files", 1, 2)
        message = "secret cause"
        raise OSError(message)

    async with open_door({}) as door:
        monkeypatch.setattr(rebuild, "rebuild", failing)
        answer = await door.client.post("/api/v1/admin/rebuild")

    assert "INTERNAL_ERROR" == lines(answer.text)[-1]["error"]["code"]
    assert "secret" not in answer.text


async def test_a_stop_ends_the_stream_with_a_line(open_door: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon that stops cancels the work, waits for it, and whoever listens is told."""
    async with open_door({}) as door:
        slow = Slow()
        monkeypatch.setattr(rebuild, "rebuild", slow.rebuild)
        async with door.app.lifespan():
            asking = asyncio.ensure_future(door.client.post("/api/v1/admin/rebuild"))
            await slow.started.wait()
        answer = await asking

    assert "cancelled" == slow.ended
    assert "the daemon is stopping" == lines(answer.text)[-1]["error"]["message"]
