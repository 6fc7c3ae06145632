"""Episodes copied in as files get what follows from them when somebody asks, once; what failed is said."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from everosd import errors, types
from everosd.cli import learn
from everosd.intake import copied
from tests import chat_stub, steps

if TYPE_CHECKING:
    from tests.unit.conftest import Door, Open, Said

MARA = "default_app/default_project/users/mara/episodes/episode-2026-03-02.md"
BEN = MARA.replace("mara", "ben")
NO_MODEL = '[embedding]\nmodel = "none"\n'
MANY = 4


async def ask(door: Door, route: str, **body: object) -> dict[str, Any]:
    """Have something done and return the last line of the answer."""
    answer = await door.client.post(f"/api/v1/admin/{route}", json=body)
    assert 200 == answer.status_code, answer.text
    last: dict[str, Any] = json.loads(answer.text.splitlines()[-1])
    return last


@pytest.fixture
def files(log_of: Callable[..., str], episode: Callable[..., Said]) -> dict[str, str]:
    """Return files of two users with Episodes that everosd did not write."""
    mara = [episode(nth, f"Mara: I live in house number {nth}.") for nth in range(1, MANY + 1)]
    ben = [episode(1, "Ben: I play the cello.", owner_id="ben")]
    return {MARA: log_of("mara", "2026-03-02", *mara), BEN: log_of("ben", "2026-03-02", *ben)}


def facts(door: Door, name: str) -> list[str]:
    """Return what stands in the files of facts of a user."""
    folder = door.root / f"default_app/default_project/users/{name}/.atomic_facts"
    return [path.read_text() for path in sorted(folder.glob("*.md"))]


async def test_files_copied_in_get_facts_when_asked_for_and_once(open_door: Open, files: dict[str, str]) -> None:
    """By path, by owner, or all: each Episode gets its facts, and asking again writes nothing."""
    async with open_door(files, settings=NO_MODEL, learns=True) as door:
        one = (await ask(door, "extract", paths=[BEN]))["result"]
        assert (1, 1, 0, 0) == (one["entries"], one["done"], one["n_failed"], one["retried"])
        assert "cello" in "".join(facts(door, "ben"))
        assert [] == facts(door, "mara")
        every = (await ask(door, "extract"))["result"]
        assert (MANY + 1, MANY + 1, []) == (every["entries"], every["done"], every["failed"])
        before = {name: facts(door, name) for name in ("mara", "ben")}
        assert MANY == before["mara"][0].count("**parent_id**")
        again = (await ask(door, "extract", user_id="mara"))["result"]
        assert (MANY, MANY) == (again["entries"], again["done"])
        assert before == {name: facts(door, name) for name in ("mara", "ben")}


async def test_what_a_strategy_fails_at_is_said(open_door: Open, files: dict[str, str]) -> None:
    """The entry and the reason are named, the others are done, and nothing is waited for in vain."""
    async with open_door(files, settings=NO_MODEL, learns=True) as door:
        assert door.node.learning is not None
        await door.node.learning.engine.is_ready.wait()
        desk = door.node.learning.engine._events.desks["trigger_profile_clustering"]

        refused = errors.LLMRejected("stub", "no use")

        async def fails(event: object) -> str:
            del event
            raise refused

        desk.strategy = msgspec.structs.replace(desk.strategy, run=fails, max_retries=0)
        done = (await ask(door, "extract", user_id="ben"))["result"]
        assert (1, 0, 1) == (done["entries"], done["done"], done["n_failed"])
        assert "trigger_profile_clustering, ben_ep_20260302_00000001: " in done["failed"][0]
        assert "cello" in "".join(facts(door, "ben"))


async def test_a_model_that_is_away_is_not_waited_for(
    open_door: Open, files: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first failure ends it: all that waits is named, nothing of it counts as failed, and the reason is told once."""
    monkeypatch.setattr(copied, "PATIENCE_S", 1000.0)
    with chat_stub.ChatStub() as model:
        model.status = 500
        settings = f'{NO_MODEL}[llm]\nmodel = "stub"\nbase_url = "{model.url}"\nmax_retries = 0\n'
        async with open_door(files, settings=settings, learns=True) as door, asyncio.timeout(25):
            done = (await ask(door, "extract"))["result"]
    assert (MANY + 1, 0, 0, MANY + 1) == tuple(done[name] for name in ("entries", "done", "n_failed", "n_waiting"))
    assert "ben_ep_20260302_00000001" in done["waiting"]
    assert "fails: status 500" in done["waits_for"]
    said = list(learn._waits(done, is_served=True))
    assert "waits for the model; done later by itself: ben_ep_20260302_00000001" in said
    assert "waits for the model; type the same again later: ben_ep_20260302_00000001" in learn._waits(
        done, is_served=False
    )
    assert (MANY + 2, True) == (len(said), said[-1].startswith("the model: "))


async def test_a_file_that_is_not_there_is_said(open_door: Open) -> None:
    """404 for a file that there could be, 422 for one that is no memory, and nothing is done."""
    async with open_door({}, settings=NO_MODEL, learns=True) as door:
        assert "NOT_FOUND" == (await ask(door, "extract", paths=[BEN]))["error"]["code"]
        for odd in ("../x.md", "everos.toml"):
            assert 422 == (await door.client.post("/api/v1/admin/extract", json={"paths": [odd]})).status_code


async def test_forgetting_wants_the_id_once_more(open_door: Open, files: dict[str, str]) -> None:
    """Without owner, without confirmation or with another one: 422. Nobody of that id: 404. Nothing is touched by any."""
    async with open_door(files, settings=NO_MODEL) as door:
        for body, field in (
            ({"confirm": "mara"}, "user_id"),
            ({"user_id": "mara"}, "confirm"),
            ({"user_id": "mara", "confirm": "Mara"}, "confirm"),
            ({"user_id": "mara", "agent_id": "mara", "confirm": "mara"}, "agent_id"),
            ({"user_id": "../mara", "confirm": "../mara"}, "user_id"),
        ):
            answer = await door.client.post("/api/v1/admin/forget", json=body)
            assert (422, True) == (answer.status_code, answer.json()["error"]["message"].endswith(f": {field}")), body
        for body in ({"user_id": "mar", "confirm": "mar"}, {"agent_id": "mara", "confirm": "mara"}):
            assert 404 == (await door.client.post("/api/v1/admin/forget", json=body)).status_code
        assert files == {path: _read(door, path) for path in files}


async def test_I09_forgetting_without_a_running_intake_leaves_nothing_either(
    open_door: Open, files: dict[str, str]
) -> None:
    """A command that works on the files alone does all of it; what others have is found as before."""
    async with open_door(files, settings=NO_MODEL) as door:
        done = (await ask(door, "forget", user_id="mara", confirm="mara"))["result"]
        assert (1, MANY, 0, []) == (done["files"], done["entries"], done["messages"], done["left"])
        assert [] == steps.holders(door.root, "house number")
        assert 1 == len((await door.search("cello", user_id="ben"))["episodes"])
        assert [] == (await door.search("house", user_id="mara"))["episodes"]


def _read(door: Door, path: str) -> str:
    return Path(door.root, types.RelPath(path)).read_text()


def test_a_trigger_that_finds_nothing_says_what_helps() -> None:
    """Whoever forced it is not told to force it; what came while it was off is `extract`'s, but for conversations."""

    def said(name: str, *, is_forced: bool) -> str:
        return learn._dispatched({"status": "not_dispatched", "name": name}, 0, is_dry=False, is_forced=is_forced)

    assert "or it is switched off (--force); what came while" in said("extract_atomic_facts", is_forced=False)
    forced = said("extract_atomic_facts", is_forced=True)
    assert [False, True] == ["--force" in forced, "is done by `everosd extract`" in forced]
    assert said("extract_agent_case", is_forced=True).endswith("nothing of it failed")
    for name, once in (("run_lifecycle", "`everosd lifecycle run`"), ("reflect_episodes", "--force")):
        off = said(name, is_forced=False)
        assert f"{name} is switched off: " in off
        assert f"`everosd set {name}.enabled true`" in off
        assert once in off
        assert "failed" not in off
