"""The wiring of reflection: what is fired by hand goes by the settings of the moment."""

from __future__ import annotations

import asyncio
import datetime as dt
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from everosd import clock, config, daemon, strategies, types
from everosd.intake import online
from everosd.lifecycle import scheduled
from everosd.reflection import merges, reflect, source
from tests import importing, open_root, reflecting

OWNER = types.Owner(app="default", project="default", type="user", id="mara")
OFF = '[embedding]\nmodel = "none"\n'


async def test_reflection_goes_by_the_settings_of_the_moment(
    open_door: Callable[..., AbstractAsyncContextManager[Any]],
) -> None:
    """No model: skipped, and the run succeeds. Saved as extractive: the next run merges, without a restart, and takes facts."""
    async with open_door({}, settings=OFF, learns=True) as door:
        root = open_root.Root(path=door.root, node=door.node)
        await reflecting.scatter(root, OWNER, range(3))
        await root.settled()

        async def fire() -> str:
            body = {"name": "reflect_episodes", "force": True}
            answer = await door.client.post("/api/v1/ome/trigger", json=body)
            assert ("ok", 1) == (answer.json()["status"], answer.json()["dispatched"]), answer.text
            (run,) = answer.json()["runs"]
            assert "success" == run["status"]
            return str(run["result"])

        assert f"1 skipped: {merges.NO_MODEL}" == await fire()
        learning = door.node.learning
        wanted = msgspec.structs.replace(learning.in_force().reflection, merge="extractive")
        learning.change(msgspec.structs.replace(learning.in_force(), reflection=wanted))
        assert "1 cluster consolidated (3 fragments)" == await fire()
        mind = reflecting.over(root)
        mind.owner = OWNER
        statements = [reflecting.shop(number) for number in range(3)]
        assert [f"{one} (2026-01-01)" for one in statements] == await mind.facts()


async def test_a_narrative_whose_consolidation_was_cut_off_can_be_undone(
    open_door: Callable[..., AbstractAsyncContextManager[Any]],
) -> None:
    """By its id, or by the report that it names: what was begun is finished first, so that there is a report to be found."""
    async with open_door({}, settings=OFF, learns=True) as door:
        root = open_root.Root(path=door.root, node=door.node)
        for nth, name in enumerate(("report_id", "merged_entry_id")):
            owner = msgspec.structs.replace(OWNER, id=f"mara{nth}")
            await reflecting.scatter(root, owner, range(3))
            await root.settled()
            assert await reflecting.killed(reflecting.over(root, reflecting.Fuse(1)).run())
            mind = reflecting.over(root)
            mind.owner = owner
            narrative = await mind.narrative()
            public = types.public_id(owner.id, narrative.entry_id)
            given = public if name == "merged_entry_id" else source.episode(narrative).report_id
            answer = await door.client.post("/api/v1/reflection/rollback", json={name: given, "app_id": "other"})
            assert 404 == answer.status_code, "in another app it is not looked for"
            answer = await door.client.post("/api/v1/reflection/rollback", json={name: given})
            assert 200 == answer.status_code, answer.text
            assert (3, public) == (len(answer.json()["data"]["restored"]), answer.json()["data"]["retired"])
            assert 3 == len(await mind.live())


class Moved(clock.SystemClock):
    """The real clock, moved to another day."""

    def __init__(self, to: dt.datetime) -> None:
        """Begin at a moment."""
        super().__init__()
        self.move(to)

    def move(self, to: dt.datetime) -> None:
        """Go on from another moment."""
        self._by = to - super().now()

    def now(self) -> dt.datetime:
        """Return the moment."""
        return super().now() + self._by


async def test_switched_on_it_runs_by_itself_on_monday_at_two(tmp_path: Path) -> None:
    """One line in ome.toml, and nobody who triggers anything: a week's fragments are one narrative."""
    (tmp_path / "ome.toml").write_text("[strategies.reflect_episodes]\nenabled = true\n")
    environ = {"EVEROS_EMBEDDING__MODEL": "none", "EVEROS_REFLECTION__MERGE": "extractive"}
    settings = await asyncio.to_thread(config.load, tmp_path, environ)
    time = Moved(dt.datetime(2026, 3, 9, 1, 30, tzinfo=dt.UTC))
    async with daemon.open_node(settings, time, learns=True) as node:
        root = open_root.Root(path=tmp_path, node=node)
        await reflecting.scatter(root, OWNER, range(3))
        await root.settled()
        learning = node.learning
        assert learning is not None
        learning.engine.keeps_time = True  # as in `everosd serve`
        desk = learning.engine._timed[reflect.NAME]

        async def until(holds: Callable[[], bool]) -> None:
            desk.wake()
            async with asyncio.timeout(20):
                while not holds():  # noqa: ASYNC110  # several parts decide
                    await asyncio.sleep(0.01)

        await until(lambda: desk._keeper._row is not None)
        assert "2026-03-09T02:00:00+00:00" == desk.status().next_fire_time
        time.move(dt.datetime(2026, 3, 9, 2, tzinfo=dt.UTC))
        await until(lambda: desk.last_run is not None)
        last = desk.last_run
        assert last is not None
        assert ("cron", "success", "1 cluster consolidated (3 fragments)") == (last.trigger, last.status, last.result)
        await until(lambda: desk.status().next_fire_time == "2026-03-16T02:00:00+00:00")


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110  # several parts decide
            await asyncio.sleep(0.01)


async def test_every_strategy_that_something_fires_does_something(tmp_path: Path) -> None:
    """What fires a strategy stands in one table and what it does in another: both have the same names."""
    settings = await asyncio.to_thread(config.load, tmp_path, {"EVEROS_EMBEDDING__MODEL": "none"})
    async with daemon.open_node(settings, clock.SystemClock(), learns=True) as node:
        assert node.learning is not None
        made = await node.learning.strategies.get()
        names = [one.name for one in strategies.EVENTS]
        assert names == list(made.strategies)
        assert [reflect.NAME, scheduled.NAME] == [strategies.REFLECTION, strategies.LIFECYCLE]
        assert {*names, reflect.NAME, scheduled.NAME} <= {one.name for one in node.learning.engine.status()}
        assert made is await node.learning.strategies.get()


async def test_on_an_empty_root_the_clock_is_kept_and_nothing_is_made_before_it_strikes(tmp_path: Path) -> None:
    """What reads and consolidates takes 8 MB and half a second: none of it is there, and the cron is shown and fires."""
    (tmp_path / "ome.toml").write_text("[strategies.reflect_episodes]\nenabled = true\n")
    settings = await asyncio.to_thread(config.load, tmp_path, {"EVEROS_EMBEDDING__MODEL": "none"})
    time = Moved(dt.datetime(2026, 3, 9, 1, 30, tzinfo=dt.UTC))
    async with daemon.open_node(settings, time, learns=True) as node:
        learning = node.learning
        assert learning is not None
        learning.engine.keeps_time = True
        await learning.engine.is_ready.wait()
        desk = learning.engine._timed[reflect.NAME]
        await until(lambda: desk.status().next_fire_time is not None and desk._is_recovered.is_set())
        assert "2026-03-09T02:00:00+00:00" == desk.status().next_fire_time
        assert learning.strategies.made is None
        time.move(dt.datetime(2026, 3, 9, 2, tzinfo=dt.UTC))
        desk.wake()
        await until(lambda: desk.last_run is not None)
        assert desk.last_run is not None
        assert ("cron", "success") == (desk.last_run.trigger, desk.last_run.status)


@pytest.mark.parametrize("by", ["file", "message"])
async def test_the_first_file_or_message_has_what_reads_made(tmp_path: Path, by: str) -> None:
    """Whoever needs it next hardly waits for it: it is made beside, before anybody asks for an extraction."""
    settings = await asyncio.to_thread(config.load, tmp_path, {"EVEROS_EMBEDDING__MODEL": "none"})
    async with daemon.open_node(settings, clock.SystemClock(), learns=True) as node:
        assert node.learning is not None
        await node.learning.engine.is_ready.wait()
        assert node.learning.strategies.made is None
        if by == "file":
            await open_root.Root(path=tmp_path, node=node).episode(OWNER, "The boat is blue.")
        else:
            session = msgspec.structs.replace(OWNER, type="session", id="s_1")
            said = online.Given(sender_id="mara", role="user", timestamp_us=1_772_000_000_000_000, index=0, text="Hi.")
            assert "accumulated" == (await node.learning.intake.add(session, [said], task_id="t")).status
        later = node.learning.strategies
        await until(lambda: later.made is not None)


@pytest.mark.parametrize("has_model", [False, True])
async def test_what_counts_tokens_for_a_model_is_imported_beside_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_model: bool
) -> None:
    """It takes NumPy, which nothing has imported before a first entry; without a model nothing is counted."""
    importers = importing.anew(monkeypatch, "everosd.models.piece")
    environ = {"EVEROS_EMBEDDING__MODEL": "none"}
    if has_model:
        environ |= {"EVEROS_LLM__MODEL": "stub", "EVEROS_LLM__BASE_URL": "http://127.0.0.1:9"}
    settings = await asyncio.to_thread(config.load, tmp_path, environ)
    async with daemon.open_node(settings, clock.SystemClock(), learns=True) as node:
        assert node.learning is not None
        await node.learning.strategies.get()
        assert has_model == bool(importers)
    assert not has_model or threading.main_thread() not in importers


async def test_what_reads_and_cannot_be_imported_ends_the_daemon_and_the_next_start_reads_what_was_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broken installation is met with the first message and not at the start: it is not gone on with, and nothing is lost."""
    settings = await asyncio.to_thread(config.load, tmp_path, {"EVEROS_EMBEDDING__MODEL": "none"})
    session = msgspec.structs.replace(OWNER, type="session", id="s_1")
    said = online.Given(sender_id="mara", role="user", timestamp_us=1_772_000_000_000_000, index=0, text="I sold it.")

    async def serve() -> None:
        async with daemon.open_node(settings, clock.SystemClock(), learns=True) as node:
            assert node.learning is not None
            assert "accumulated" == (await node.learning.intake.add(session, [said], task_id="t")).status
            await asyncio.Event().wait()

    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "everosd.faculties", None)
        with pytest.raises(ImportError):
            await serve()
    async with daemon.open_node(settings, clock.SystemClock(), learns=True) as node:
        assert node.learning is not None
        await node.learning.intake.flush(session, task_id="t")
        await node.cascade.settled(10)
        rows, _ = await node.reader.page(OWNER, "episode", now_us=0, descending=False, limit=10)
        assert [True] == ["I sold it." in row.raw for row in rows]
