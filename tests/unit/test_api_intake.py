"""The routes that take messages: what the contract does not say of slow models, broken disks and odd sizes."""

from __future__ import annotations

import asyncio
import json
import random
import sqlite3
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from everosd import faculties, types
from everosd.cascade import apply
from everosd.intake import session
from everosd.log import layout

if TYPE_CHECKING:
    from tests.unit.conftest import Door, Open

assert faculties.PROMPTS.is_dir()  # imported here: it takes a while, which a first request would seem to
V1 = "/api/v1"
T0 = 1_772_445_600_000
OWNER = types.Owner(app="default", project="default", type="session", id="s")
MARA = types.Owner(app="default", project="default", type="user", id="mara")


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


async def test_M07_what_was_flushed_is_found_by_the_very_next_request(open_door: Open) -> None:
    """Also while others are being answered, when the indexes have time: no search is told less than what was acknowledged."""
    async with open_door({}, settings='[embedding]\nmodel = "none"\n', learns=True) as door:
        assert door.node.learning is not None
        with door.node.learning.intake._asking():
            for nth in range(5):
                await post(door, "memory/add", messages=[said(f"I bought a quword{nth}", nth)])
                assert "extracted" == (await post(door, "memory/flush")).json()["data"]["status"]
                asked = {"query": f"quword{nth}", "user_id": "mara", "method": "keyword"}
                found = await door.client.post(f"{V1}/memory/search", json=asked)
                assert 1 == len(found.json()["data"]["episodes"])
                await post(door, "memory/add", messages=[said(f"and a second one, {nth}", 10 + nth)])
                await post(door, "memory/flush")
                assert 2 * nth + 2 == (await door.get("episode", user_id="mara"))["total_count"]


@pytest.mark.parametrize("user", ["mara", "M" * 128], ids=["plain", "shortened"])
async def test_M07_an_entry_that_was_flushed_is_there_for_the_very_next_request(
    open_door: Open, monkeypatch: pytest.MonkeyPatch, user: str
) -> None:
    """By its id alone, and with its owner named; also where the name of the owner's folder is shortened."""
    monkeypatch.setattr(layout, "is_case_insensitive", lambda _: True)
    async with open_door({}, settings='[embedding]\nmodel = "none"\n', learns=True) as door:
        assert door.node.learning is not None
        with door.node.learning.intake._asking():
            for nth, named in enumerate(({}, {"user_id": user}), start=1):
                await post(door, "memory/add", messages=[said(f"I bought a quword{nth}", 10 * nth, sender_id=user)])
                assert "extracted" == (await post(door, "memory/flush")).json()["data"]["status"]
                (file,) = door.root.glob("*/*/users/*/episodes/*.md")
                assert ("~" in str(file)) == (user != "mara")
                date = file.stem.removeprefix("episode-").replace("-", "")
                found = await door.entry(f"{user}_ep_{date}_{nth:08}", **named)
                assert f"quword{nth}" in found["text"]


async def test_a_timeout_that_is_no_number_is_refused_and_a_negative_one_is_none(open_door: Open) -> None:
    """EverOS takes numbers as text, so they are taken; `nan` and endless ones are no numbers of seconds."""
    async with open_door({}, learns=True) as door:
        odd: tuple[object, ...] = ("nan", "inf", "-Infinity", "soon", [], None)
        for wrong in odd:
            refused = await post(door, "ome/trigger", name="extract_agent_case", timeout=wrong)
            assert 422 == refused.status_code, wrong
            assert refused.json()["error"]["message"].endswith(": timeout"), refused.text
        for right in (-1, 0, "2.5", 1e300):
            assert 200 == (await post(door, "ome/trigger", name="extract_agent_case", timeout=right)).status_code, right


async def test_strategies_are_listed_from_the_first_request_on(open_door: Open) -> None:
    """A daemon that is ready to be asked, and whose engine is still opening its records, lists them once it has."""
    async with open_door({}, learns=True) as door:
        assert door.node.learning is not None
        engine = door.node.learning.engine
        await engine.is_ready.wait()
        engine.is_ready.clear()
        asked = asyncio.ensure_future(door.client.get(f"{V1}/ome/strategies"))
        await asyncio.wait({asked}, timeout=0.05)
        assert not asked.done()
        engine.is_ready.set()
        assert (await asked).json()["data"]["items"]


async def test_a_search_does_not_wait_for_long_for_what_does_not_come(
    open_door: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index that stands still is said in health; searches are answered from what there is."""
    monkeypatch.setattr(apply, "SHOWN_S", 0.02)
    async with open_door({}, learns=True) as door:
        door.node.cascade._unshown._lsns[MARA] = 10**9
        found = await door.client.post(f"{V1}/memory/search", json={"query": "ferry", "user_id": "mara"})
        assert 200 == found.status_code
        assert not door.node.cascade.is_awaited


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
    """While another process holds it, what needs it is answered by a 5xx in the envelope; afterwards all is there once.

    Messages are taken all the same: they go to the log.
    """
    async with open_door({}, settings="[sqlite]\nbusy_timeout_ms = 0\n", learns=True) as door:
        await post(door, "memory/add", messages=[said("kept before")])
        blocker = await asyncio.to_thread(_hold_the_write_lock, str(door.node.database.path))
        try:
            taken = await post(door, "memory/add", messages=[said("sent twice", 1)])
            answers = [
                await post(door, "memory/flush"),
                await door.client.get(f"{V1}/tasks"),
                await door.client.get(f"{V1}/tasks/x"),
            ]
        finally:
            await asyncio.to_thread(blocker.close)
        again = await post(door, "memory/add", messages=[said("sent twice", 1)])
        flushed = await post(door, "memory/flush")
        log = await until_closed(door)
        await door.node.cascade.reconcile("test")
        await door.node.cascade.settled(10.0)
        found = await door.get("episode", user_id="mara")

    assert (200, "accumulated") == (taken.status_code, taken.json()["data"]["status"])
    for answer in answers:
        assert {"request_id", "error"} == set(answer.json())
        assert (503, "CAPABILITY_UNAVAILABLE") == (answer.status_code, answer.json()["error"]["code"])
    assert (200, "extracted", 2) == (again.status_code, flushed.json()["data"]["status"], len(log))
    said_once = " ".join(item["episode"] for item in found["episodes"])
    assert (1, 1) == (said_once.count("kept before"), said_once.count("sent twice"))


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


ODD: tuple[Any, ...] = (
    *(
        None,
        True,
        0,
        -1,
        1.5,
        10**9,
        10**10,
        2**63,
        10**40,
        "",
        " ",
        "mara",
        "..",
        "\0",
        "a\nb",
        "x" * 129,
        "\u202e",
        "😀",
    ),
    *([], [None], {}, {"a": 1}, ["mara"], [[]], "2026-03-02", [{"type": "text"}], [{"type": "image"}], [{"type": []}]),
    *([{"id": "c", "function": {"name": "f", "arguments": "{"}}], [{"id": 7}], "tool", "system", T0, "NaN", "1e400"),
)
FIELDS = ("sender_id", "sender_name", "role", "timestamp", "content", "tool_calls", "tool_call_id", "mood")
TOP = ("session_id", "app_id", "project_id", "messages", "defer_extraction", "async_mode", "name", "timeout", "force")


async def test_A04_no_body_makes_an_internal_error(open_door: Open) -> None:
    """Hundreds of odd bodies are taken, or refused in the envelope as the caller's own; what was taken can be flushed."""
    dice = random.Random(7)  # noqa: S311  # made to be repeated
    sessions: set[str] = set()
    follows = ("extract_atomic_facts", "trigger_profile_clustering", "extract_user_profile")
    switched_off = "".join(f"[strategies.{name}]\nenabled = false\n" for name in follows)
    async with open_door({"ome.toml": switched_off}, learns=True) as door:
        for _ in range(60):
            message = said(dice.choice(("hello", [], [{"type": "text", "text": "a"}])), dice.randrange(9))
            for field in dice.sample(FIELDS, dice.randrange(3)):
                message[field] = dice.choice(ODD)
            body: dict[str, Any] = {
                "session_id": f"s{dice.randrange(9)}",
                "messages": [message],
                "name": "extract_agent_case",
            }
            body |= {field: dice.choice(ODD) for field in dice.sample(TOP, dice.choice((0, 0, 1, 2)))}
            route = dice.choice(("memory/add", "memory/add", "memory/add", "memory/flush", "ome/trigger"))
            answer = await door.client.post(f"{V1}/{route}", content=json.dumps(body).encode())
            assert answer.status_code in {200, 202, 404, 422, 503}, (body, answer.text)
            assert 503 != answer.status_code or "no model here reads" in answer.text, (body, answer.text)
            if answer.status_code == 200 and route == "memory/add":
                sessions.add(body["session_id"])
        flushed = [await post(door, "memory/flush", session_id=session_id) for session_id in sorted(sessions)]

    assert len(sessions) > 4
    assert {200, 202} >= {answer.status_code for answer in flushed}


async def test_waiting_messages_are_shown_to_who_sent_them_and_to_no_namesake(open_door: Open) -> None:
    """A user and an agent spoke: an agent called like the user, and a user called like the agent, see nothing."""
    helper = {
        "sender_id": "helper",
        "role": "assistant",
        "timestamp": T0 + 1000,
        "content": "The ferry leaves at nine.",
    }
    shown: dict[tuple[str, str], int] = {}
    async with open_door({}, learns=True) as door:
        await post(door, "memory/add", messages=[said("when?"), helper])
        for is_in_ledger in (False, True):
            if is_in_ledger:
                await door.node.cascade.settled(10.0)
                assert door.node.learning is not None
                door.node.learning.intake._lines._lines.clear()
            for kind, name in (
                ("user_id", "mara"),
                ("agent_id", "helper"),
                ("agent_id", "mara"),
                ("user_id", "helper"),
            ):
                found = await door.search("x", **{kind: name}, filters={"session_id": "s"})
                shown[kind, name] = shown.get((kind, name), 0) + len(found["unprocessed_messages"])
    assert [4, 4, 0, 0] == list(shown.values())


async def test_what_a_program_was_shown_over_http_and_an_agent_repeats_is_left_out(open_door: Open) -> None:
    """Search, then an agent reads the fact out: the new Episode has a mark in its place, not the fact once more."""
    fact = "Mara keeps her grandmother's blue bicycle in the shed behind the bakery."
    path = "default_app/default_project/users/mara/.atomic_facts/atomic_fact-2026-01-02.md"
    quoting = {"sender_id": "helper", "role": "assistant", "timestamp": T0 + 1000, "content": f"Sure! {fact}"}
    async with open_door({path: f"{fact}\n"}, learns=True) as door:
        await door.search("blue bicycle", user_id="mara")
        await post(door, "memory/add", messages=[said("Where is it?"), quoting])
        assert "extracted" == (await post(door, "memory/flush")).json()["data"]["status"]
        await door.node.cascade.settled(10.0)
        (one,) = (await door.get("episode", user_id="mara"))["episodes"]
    assert (False, True) == (fact in one["episode"], "Sure! […]" in one["episode"])
