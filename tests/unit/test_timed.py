"""Strategies of the clock and of silence: when they fire, what becomes of what was missed, and one run at a time."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import json
import sqlite3
import threading
import zoneinfo
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import msgspec
import pytest
import structlog

from everosd import errors, toml, types
from everosd.engine import engine, runs, settings, shown, strategy, timed
from everosd.store import db
from tests import step_clock

REFLECT = "reflect_episodes"
BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
MARA = types.Owner(app="default", project="default", type="user", id="mara")
MINUTE = 60.0
AWAY = "stub", "is away"


def utc(*parts: int) -> dt.datetime:
    """Return a moment."""
    return dt.datetime(*parts, tzinfo=dt.UTC)  # type: ignore[arg-type, misc]


MONDAY = utc(2026, 3, 2)


@pytest.fixture(autouse=True)
def _rare_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at ome.toml every minute of a clock that the test moves, so that an hour has few steps."""
    monkeypatch.setattr(settings, "LOOK_S", 60.0)


class Work:
    """A timed strategy under the test's control."""

    def __init__(self, *, max_retries: int = 3) -> None:
        """Succeed at once, until told otherwise."""
        self.fires: list[strategy.Fire] = []
        self.act: Callable[[strategy.Fire], object] = lambda _: None
        self.gate = asyncio.Event()
        self.gate.set()
        self.n_running = 0
        self.left = ""
        self.forgotten: list[types.Owner] = []
        self.strategy = strategy.Timed(
            name=REFLECT, run=self.run, recover=self.recover, forget=self.forget, max_retries=max_retries
        )

    @property
    def due(self) -> list[str]:
        """When the fires were due."""
        return [fire.due_at.strftime("%d. %H:%M:%S") for fire in self.fires]

    async def run(self, fire: strategy.Fire) -> strategy.Done:
        """Note it, wait at the gate, act."""
        assert not self.n_running
        self.n_running += 1
        try:
            self.fires.append(fire)
            await self.gate.wait()
            self.act(fire)
            return strategy.Done(note="2 clusters", detail={"clusters": 2})
        finally:
            self.n_running -= 1

    async def recover(self) -> str:
        """Return what was left."""
        await asyncio.sleep(0)
        return self.left

    async def forget(self, owner: types.Owner) -> None:
        """Note it."""
        self.forgotten.append(owner)


class House:
    """A running engine, its clock and its records."""

    def __init__(self, root: Path, time: step_clock.StepClock, made: engine.Engine, database: db.Database) -> None:
        """Take them."""
        self.root, self.time, self.engine, self._database = root, time, made, database

    async def rest(self) -> None:
        """Wait until everybody has done what there is to do."""
        for _ in range(3):
            await asyncio.sleep(0)
            await self._database.write(_nothing)

    async def pass_s(self, seconds: float) -> None:
        """Let time pass."""
        await self.time.pass_s(seconds, self.rest)

    async def save(self, text: str) -> None:
        """Save ome.toml, and let it come into force."""
        (self.root / settings.FILE_NAME).write_text(text)
        before = self.engine.settings.of(REFLECT)
        async with asyncio.timeout(10):
            while self.engine.settings.of(REFLECT) == before:
                await self.pass_s(settings.LOOK_S)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.03):  # a thread reads it, and the test's time stands still meanwhile
                        while self.engine.settings.of(REFLECT) == before:  # noqa: ASYNC110
                            await asyncio.sleep(0.001)
        await self.settled_times()

    async def settled_times(self) -> None:
        """Wait until the schedule in force has been worked out, which a thread does."""
        async with asyncio.timeout(10):
            while self.status.enabled and self.status.cron is not None and self.status.next_fire_time is None:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        await self.rest()

    @property
    def status(self) -> shown.StrategyStatus:
        """What is said of it."""
        return next(one for one in self.engine.status() if one.name == REFLECT)

    def trigger(self, timeout_s: float = 5.0, **given: bool) -> Awaitable[shown.Triggered]:
        """Trigger it by hand."""
        return self.engine.trigger(REFLECT, timeout_s=timeout_s, **given)

    async def told(self) -> list[tuple[str, str, int]]:
        """Return trigger, status and attempt of what is on record."""
        await self.engine._runs.flush()
        return rows(self.root)


def _nothing(_: sqlite3.Connection) -> None:
    """Write nothing: whoever waits for it has seen all earlier writes."""


def rows(root: Path) -> list[tuple[str, str, int]]:
    """Return trigger, status and attempt of what is on record, in order."""
    return [(trigger, status, attempt) for trigger, status, attempt, *_ in full(root)]


def full(root: Path) -> list[tuple[str, str, int, str | None, str | None]]:
    """Return trigger, status, attempt, error and result."""
    with contextlib.closing(sqlite3.connect(root / "system.db")) as connection:
        return connection.execute(
            "SELECT trigger, status, attempt, error, result FROM runs ORDER BY started_at"
        ).fetchall()


def wanted(cron: str | None = "*/5 * * * *", *, enabled: bool = True, idle_s: float | None = None) -> str:
    """Return an ome.toml."""
    lines = [f"[strategies.{REFLECT}]", f"enabled = {str(enabled).lower()}"]
    lines += [f'cron = "{cron}"'] if cron else []
    lines += [f"idle_seconds = {idle_s}"] if idle_s is not None else []
    return "\n".join(lines) + "\n"


@contextlib.asynccontextmanager
async def house(
    root: Path,
    work: Work,
    at: dt.datetime = MONDAY,
    *,
    ome: str = "",
    zone: dt.tzinfo = dt.UTC,
    keeps_time: bool = True,
    grace_s: float = 5.0,
) -> AsyncIterator[House]:
    """Run an engine over `root` from the moment `at`."""
    time = step_clock.StepClock(at)
    if ome:
        (root / settings.FILE_NAME).write_text(ome)
    database = await db.Database.open(root / "system.db")
    watcher = settings.Watcher(root, time)
    await watcher.look()
    made = engine.Engine(watcher, runs.Runs(database, time), time, zone=lambda: zone)
    made.keeps_time = keeps_time
    made.add_timed(work.strategy)
    task = asyncio.create_task(made.run())
    here = House(root, time, made, database)
    try:
        async with asyncio.timeout(10):
            await made.is_ready.wait()
        await here.settled_times()
        yield here
    finally:
        stopping = asyncio.create_task(made.stop(grace_s))
        while not stopping.done():
            await here.pass_s(1.0)
            await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await database.close()


def fail(_: strategy.Fire) -> None:
    """Fail by a fault of one's own."""
    reason = "broken"
    raise ValueError(reason)


# -- the clock ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cron", "at", "due"),
    [
        (None, utc(2026, 3, 2, 1, 59), "02. 02:00:00"),
        ("0 3 * * 0", utc(2026, 3, 8, 2, 59), "08. 03:00:00"),
        ("0 3 * * 7", utc(2026, 3, 8, 2, 59), "08. 03:00:00"),
        ("0 3 * * sun", utc(2026, 3, 8, 2, 59), "08. 03:00:00"),
    ],
)
async def test_M22_the_default_fires_on_monday_and_sundays_on_sunday_once(
    tmp_path: Path, cron: str | None, at: dt.datetime, due: str
) -> None:
    """A minute before, at the moment, and an hour after."""
    work = Work()
    async with house(tmp_path, work, at, ome=wanted(cron)) as here:
        assert at.replace(hour=at.hour + 1, minute=0).isoformat() == here.status.next_fire_time
        await here.pass_s(59)
        assert [] == work.due
        await here.pass_s(2)
        assert [due] == work.due
        await here.pass_s(600)
        assert [due] == work.due
        assert (at.replace(hour=at.hour + 1, minute=0) + dt.timedelta(days=7)).isoformat() == here.status.next_fire_time
        assert not here.status.is_hasty
        assert [("cron", "success", 1)] == await here.told()


async def test_T03_a_night_of_a_change_has_one_run(tmp_path: Path) -> None:
    """Berlin, both changes, `30 2 * * *`: one each."""
    for at, due in ((utc(2026, 3, 29, 0, 55), "29. 01:00:00"), (utc(2026, 10, 25, 0, 25), "25. 00:30:00")):
        root = tmp_path / str(at.month)
        root.mkdir()
        work = Work()
        async with house(root, work, at, ome=wanted("30 2 * * *"), zone=BERLIN) as here:
            await here.pass_s(6 * MINUTE)
            assert [due] == work.due
            here.time.set(here.time.now() + dt.timedelta(minutes=58))
            await here.pass_s(5 * MINUTE)
            assert [due] == work.due


async def test_T01_a_fire_missed_by_a_short_stop_is_made_up_once(tmp_path: Path) -> None:
    """Every five minutes, stopped for ten seconds across one: it runs at the start, once, and is the last run."""
    async with house(tmp_path, Work(), utc(2026, 3, 2, 10, 3), ome=wanted()) as here:
        await here.pass_s(10)
    work = Work()
    async with house(tmp_path, work, utc(2026, 3, 2, 10, 5, 4)) as here:
        await here.rest()
        assert ["02. 10:05:00"] == work.due
        await here.pass_s(200)
        assert ["02. 10:05:00"] == work.due
        last, following = here.status.last_run, here.status.next_fire_time
        assert last is not None
        assert ("cron", "success", "2 clusters") == (last.trigger, last.status, last.result)
        assert "2026-03-02T10:10:00+00:00" == following
    again = Work()
    async with house(tmp_path, again, utc(2026, 3, 2, 10, 9)) as here:
        await here.rest()
        assert [] == again.due
        assert here.status.last_run is not None
        assert "2 clusters" == here.status.last_run.result


async def test_T01_a_fire_whose_grace_is_over_is_recorded_as_missed_with_its_moment(tmp_path: Path) -> None:
    """Stopped from Sunday to Friday: no run, one record that names Monday in the memory's zone, also in the status."""
    async with house(tmp_path, Work(), utc(2026, 3, 1, 12), ome=wanted("0 2 * * 1"), zone=BERLIN):
        pass
    work = Work()
    async with house(tmp_path, work, utc(2026, 3, 6, 12), zone=BERLIN) as here:
        await here.pass_s(60)
        assert [] == work.due
        assert [("cron", "missed", 0)] == await here.told()
        last = here.status.last_run
        assert last is not None
        assert "missed" == last.status
        assert "was due at 2026-03-02T02:00:00+01:00" in (last.error or "")
        assert "2026-03-09T01:00:00+00:00" == here.status.next_fire_time
    async with house(tmp_path, work, utc(2026, 3, 6, 13), zone=BERLIN) as here:
        await here.pass_s(60)
        assert [("cron", "missed", 0)] == await here.told()


async def test_T01_of_several_missed_fires_one_is_made_up(tmp_path: Path) -> None:
    """Off for an hour of a cron of five minutes: one run, for the last."""
    async with house(tmp_path, Work(), utc(2026, 3, 2, 9), ome=wanted()):
        pass
    work = Work()
    async with house(tmp_path, work, utc(2026, 3, 2, 10, 1)) as here:
        await here.pass_s(60)
    assert ["02. 10:00:00"] == work.due


async def test_only_fires_since_a_cron_is_in_force_count_as_missed(tmp_path: Path) -> None:
    """A first start, another cron, another zone, and a time of being disabled: each counts from then."""
    work = Work()
    async with house(tmp_path, work, utc(2026, 3, 2, 10, 1), ome=wanted()):
        pass
    for moment, text, zone in (
        (utc(2026, 3, 2, 11, 1), wanted("*/10 * * * *"), dt.UTC),
        (utc(2026, 3, 2, 12, 1), "", BERLIN),
        (utc(2026, 3, 2, 13, 1), wanted(enabled=False), BERLIN),
        (utc(2026, 3, 2, 14, 1), wanted("*/10 * * * *"), BERLIN),
    ):
        async with house(tmp_path, work, moment, ome=text, zone=zone) as here:
            await here.pass_s(60)
            assert [] == await here.told()
    assert [] == work.due


async def test_a_clock_that_jumps_ahead_or_a_machine_that_slept_is_noticed_within_half_a_minute(tmp_path: Path) -> None:
    """From 10:01 to 10:06 without a second of waiting."""
    work = Work()
    async with house(tmp_path, work, utc(2026, 3, 2, 10, 1), ome=wanted()) as here:
        await here.pass_s(1)
        here.time.set(utc(2026, 3, 2, 10, 6))
        await here.pass_s(31)
    assert ["02. 10:05:00"] == work.due


async def test_a_clock_that_is_set_back_has_no_fire_done_twice(tmp_path: Path) -> None:
    """Set back by half an hour after a fire: the next run is the one after it."""
    work = Work()
    async with house(tmp_path, work, utc(2026, 3, 2, 10, 4), ome=wanted()) as here:
        await here.pass_s(61)
        assert ["02. 10:05:00"] == work.due
        here.time.set(utc(2026, 3, 2, 9, 54))
        await here.pass_s(12 * MINUTE)
        assert ["02. 10:05:00"] == work.due
        await here.pass_s(5 * MINUTE)
    assert ["02. 10:05:00", "02. 10:10:00"] == work.due


async def test_a_clock_that_was_years_ahead_does_not_silence_a_strategy_for_years(tmp_path: Path) -> None:
    """2099 for a moment, then right again: the next fire comes."""
    work = Work()
    async with house(tmp_path, work, utc(2026, 3, 2, 10, 1), ome=wanted()) as here:
        await here.pass_s(1)
        here.time.set(utc(2099, 1, 1, 0, 1))
        await here.pass_s(31)
        here.time.set(utc(2026, 3, 2, 10, 2))
        await here.pass_s(4 * MINUTE)
    assert ["01. 00:00:00", "02. 10:05:00"] == work.due


async def test_a_command_keeps_no_time_and_runs_by_hand_alone(tmp_path: Path) -> None:
    """A fire is due and nobody runs it; nor is it forgotten: the next daemon makes it up."""
    async with house(tmp_path, Work(), utc(2026, 3, 2, 10, 4), ome=wanted()):
        pass
    work = Work()
    async with house(tmp_path, work, utc(2026, 3, 2, 10, 5, 30), keeps_time=False) as here:
        await here.pass_s(40)
        assert [] == work.due
        assert "ok" == (await here.trigger()).status
    async with house(tmp_path, work, utc(2026, 3, 2, 10, 7)) as here:
        await here.rest()
    assert ["manual", "cron"] == [fire.trigger for fire in work.fires]


# -- settings ----------------------------------------------------------------------------------------------------------


async def test_M12_a_cron_that_is_saved_is_counted_from_then_on_and_one_that_is_taken_out_is_the_default_again(
    tmp_path: Path,
) -> None:
    """Next fire times say so; being switched off, there is none, and nothing runs."""
    work = Work()
    async with house(tmp_path, work, utc(2026, 3, 2, 10, 1), ome=wanted(enabled=False)) as here:
        assert here.status.next_fire_time is None
        await here.save(wanted())
        assert "2026-03-02T10:05:00+00:00" == here.status.next_fire_time
        assert (REFLECT,) == here.engine.hasty()
        await here.save(f"[strategies.{REFLECT}]\nenabled = true\n")
        assert "2026-03-09T02:00:00+00:00" == here.status.next_fire_time
        assert () == here.engine.hasty()
        await here.save(wanted("*/5 * * * *", enabled=False))
        await here.pass_s(10 * MINUTE)
        assert (None, ()) == (here.status.next_fire_time, here.engine.hasty())
    assert [] == work.due


async def test_switching_off_lets_the_run_end_and_what_waits_for_another_attempt_go(tmp_path: Path) -> None:
    """The seeds: a run already in progress finishes normally."""
    work = Work()
    work.gate.clear()
    async with house(tmp_path, work, utc(2026, 3, 2, 10, 4), ome=wanted()) as here:
        await here.pass_s(61)
        await here.save(wanted(enabled=False))
        work.act = fail
        work.gate.set()
        await here.pass_s(10 * MINUTE)
        assert [("cron", "dead_letter", 1)] == await here.told()
        assert (0, 0, 1) == (here.status.waiting, here.status.running, here.status.dead)
    assert 1 == len(work.fires)


# -- one at a time -----------------------------------------------------------------------------------------------------


async def test_T06_one_run_at_a_time_what_comes_due_meanwhile_is_skipped_and_said_so(tmp_path: Path) -> None:
    """Each minute, a run of three; two triggers get its id; afterwards it fires on."""
    work = Work()
    work.gate.clear()
    async with house(tmp_path, work, utc(2026, 3, 2, 10, 0, 30), ome=wanted("* * * * *")) as here:
        await here.pass_s(40)
        first, second = await here.trigger(), await here.trigger(force=True)
        assert ("not_dispatched", 0) == (first.status, first.dispatched)
        assert first == second
        assert [(work.fires[0].run_id, "running")] == [(run.run_id, run.status) for run in first.runs]
        await here.pass_s(2 * MINUTE)
        assert [("cron", "running", 1), ("cron", "skipped", 0), ("cron", "skipped", 0)] == await here.told()
        assert all(work.fires[0].run_id in (error or "") for *_, error, _ in full(tmp_path)[1:])
        work.gate.set()
        await here.pass_s(MINUTE)
        assert here.status.last_run is not None
        assert "success" == here.status.last_run.status
    assert ["02. 10:01:00", "02. 10:04:00"] == work.due


async def test_T06_a_run_that_a_crash_cut_off_is_begun_again_a_few_times(tmp_path: Path) -> None:
    """Left running: released, then attempt 2; a fire that takes the daemon down each time is given up."""
    async with house(tmp_path, Work(), utc(2026, 3, 2, 1, 59), ome=wanted(None)) as here:
        await here.pass_s(61)
    for attempt in (2, 3, 4, 5):
        with contextlib.closing(sqlite3.connect(tmp_path / "system.db")) as connection, connection:
            connection.execute("UPDATE runs SET status = 'running' WHERE attempt = ?", (attempt - 1,))
            connection.execute("UPDATE schedules SET attempt = ?", (attempt - 1,))
        work = Work()
        async with house(tmp_path, work, utc(2026, 3, 2, 2, attempt)) as here:
            await here.pass_s(60)
            expected = [] if attempt == 5 else ["02. 02:00:00"]
            assert expected == work.due
    assert ["released", "released", "released", "released"] == [status for _, status, _ in rows(tmp_path)]


async def test_a_fire_waits_for_the_end_of_a_dry_run(tmp_path: Path) -> None:
    """A weekly run is not lost to somebody who wanted to see what it would do."""
    work = Work()
    work.gate.clear()
    async with house(tmp_path, work, utc(2026, 3, 2, 1, 59), ome=wanted(None)) as here:
        assert "timeout" == (await here.trigger(0, dry_run=True)).status
        await here.pass_s(10 * MINUTE)
        assert [True] == [fire.is_dry_run for fire in work.fires]
        work.gate.set()
        await here.pass_s(1)
        assert [True, False] == [fire.is_dry_run for fire in work.fires]
        assert [("dry_run", "success", 1), ("cron", "success", 1)] == await here.told()


# -- silence -----------------------------------------------------------------------------------------------------------


async def test_silence_fires_once_until_something_happens(tmp_path: Path) -> None:
    """After a minute in which nothing happened; not again before something has; each new event puts it off."""
    work = Work()
    async with house(tmp_path, work, ome=wanted("0 2 * * 1", idle_s=60)) as here:
        await here.pass_s(50)
        here.engine.touch()
        await here.pass_s(50)
        assert [] == work.fires
        await here.pass_s(11)
        assert ["idle"] == [fire.trigger for fire in work.fires]
        await here.pass_s(10 * MINUTE)
        assert 1 == len(work.fires)
        here.engine.emit(strategy.Event(topic="episode_written", owner=MARA, subject="e"))
        await here.pass_s(59)
        assert 1 == len(work.fires)
        await here.pass_s(2)
        assert 2 == len(work.fires)
    async with house(tmp_path, work, MONDAY + dt.timedelta(minutes=20)) as here:
        await here.pass_s(5 * MINUTE)
        assert 2 == len(work.fires), "a restart is no event"
        here.engine.touch()
        await here.pass_s(61)
    assert 3 == len(work.fires)


# -- failure -----------------------------------------------------------------------------------------------------------


async def test_L10_a_run_that_fails_is_tried_again_with_pauses_then_given_up_until_asked(tmp_path: Path) -> None:
    """Three retries, each on record; a dead letter that the next daemon knows; a trigger, or the next fire, runs it again."""
    work = Work()
    work.act = fail
    async with house(tmp_path, work, utc(2026, 3, 2, 1, 59), ome=wanted(None)) as here:
        await here.pass_s(MINUTE + 1)
        assert (1, 0) == (here.status.waiting, here.status.dead)
        await here.pass_s(MINUTE)
        attempts = [("cron", "failed", 1), ("cron", "failed", 2), ("cron", "failed", 3), ("cron", "dead_letter", 4)]
        assert attempts == await here.told()
        assert ["02. 02:00:00"] * 4 == work.due
        assert (0, 1) == (here.status.waiting, here.status.dead)
    async with house(tmp_path, work, utc(2026, 3, 2, 9)) as here:
        await here.pass_s(MINUTE)
        (dead,) = here.engine.dead()
        assert (REFLECT, None, 4) == (dead.strategy, dead.event, dead.attempts)
        assert dead.error.startswith("ValueError in test_timed.py")
        (run,) = (await here.trigger()).runs
        assert ("dead_letter", True) == (run.status, bool(run.error))
        work.act = lambda _: None
        await here.pass_s(1)
        assert ["success"] == [run.status for run in (await here.trigger()).runs]
        assert () == here.engine.dead()
        assert ("manual", "success", 6) == (await here.told())[-1]
        assert ["failed"] * 5 == [status for _, status, _ in (await here.told())[:5]]


async def test_L10_a_model_that_is_away_counts_as_no_attempt(tmp_path: Path) -> None:
    """Away for a day: tried again and again, never given up."""
    work = Work(max_retries=0)

    def be_away(_: strategy.Fire) -> None:
        raise errors.LLMUnavailable(*AWAY)

    work.act = be_away
    async with house(tmp_path, work, utc(2026, 3, 2, 1, 59), ome=wanted(None)) as here:
        await here.pass_s(10 * MINUTE)
        assert 5 < len(work.fires) < 20
        assert ((), 1) == (here.engine.dead(), here.status.waiting)
        work.act = lambda _: None
        await here.pass_s(20 * MINUTE)
        assert "success" == (await here.told())[-1][1]


async def test_the_next_fire_takes_the_place_of_one_that_waits_for_another_attempt(tmp_path: Path) -> None:
    """A cron of one minute that fails once, with a long pause: the new fire begins at attempt 1."""
    work = Work()
    pause = 300.0

    def be_away(_: strategy.Fire) -> None:
        raise errors.LLMUnavailable(*AWAY, retry_after_s=pause)

    work.act = be_away
    async with house(tmp_path, work, utc(2026, 3, 2, 10, 0, 30), ome=wanted("* * * * *")) as here:
        await here.pass_s(40)
        work.act = lambda _: None
        await here.pass_s(60)
        assert [("cron", "failed", 1), ("cron", "success", 1)] == await here.told()
        assert 0 == here.status.waiting


async def test_a_record_is_written_with_what_belongs_to_it_or_not_at_all(tmp_path: Path) -> None:
    """Also where others write their records at that moment: none of them takes it along."""
    database = await db.Database.open(tmp_path / "system.db")
    records = runs.Runs(database, step_clock.StepClock(MONDAY))
    plain = runs.Record(run_id="a", strategy=REFLECT, trigger="cron", status="running", attempt=1, started_at="")
    held = threading.Event()

    def fail(_: sqlite3.Connection) -> None:
        message = "disk I/O error"
        raise sqlite3.OperationalError(message)

    try:
        waiting = asyncio.create_task(database.write(lambda _: held.wait(10)))
        writing = []
        for name in "abc":
            records.put(msgspec.structs.replace(plain, run_id=name))
            writing.append(asyncio.create_task(records.flush()))
            await asyncio.sleep(0)
        begun = asyncio.create_task(records.flush(fail, msgspec.structs.replace(plain, run_id="mine")))
        await asyncio.sleep(0)
        held.set()
        with pytest.raises(errors.StoreError):
            await begun
        await asyncio.gather(waiting, *writing)
        await records.close()
        found = await database.write(lambda connection: connection.execute("SELECT run_id FROM runs").fetchall())
        assert {"a", "b", "c"} == {run_id for (run_id,) in found}
    finally:
        held.set()
        await database.close()


async def test_a_ledger_that_cannot_be_written_leaves_the_fire_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing runs that is not on record; it runs once the disk takes it."""
    work = Work()
    async with house(tmp_path, work, utc(2026, 3, 2, 1, 59), ome=wanted(None)) as here:
        runs_ = here.engine._runs
        flush, reason = runs_.flush, "disk is full"

        async def full_disk(also: object = None, record: object = None) -> None:
            if also is not None or record is not None:
                raise errors.StoreError(reason)
            await flush()

        monkeypatch.setattr(runs_, "flush", full_disk)
        await here.pass_s(90)
        assert [] == work.due
        monkeypatch.setattr(runs_, "flush", flush)
        await here.pass_s(10)
        assert ["02. 02:00:00"] == work.due
        assert [("cron", "success", 1)] == await here.told()


# -- by hand -----------------------------------------------------------------------------------------------------------


async def test_A03_disabled_unknown_running_late_and_failing_are_told_apart(tmp_path: Path) -> None:
    """Each in its own words, with run ids where there are runs; a run by hand changes no schedule."""
    work = Work(max_retries=0)
    async with house(tmp_path, work, ome=wanted(enabled=False)) as here:
        with pytest.raises(errors.NotFound):
            await here.engine.trigger("reflect_episode")
        refused = await here.trigger()
        assert ("not_dispatched", 0, ()) == (refused.status, refused.dispatched, refused.runs)
        forced = await here.trigger(force=True)
        assert ("ok", 1) == (forced.status, forced.dispatched)
        assert [("success", "2 clusters")] == [(run.status, run.result) for run in forced.runs]
        assert "manual" == work.fires[-1].trigger
        work.gate.clear()
        late = await here.trigger(0, force=True)
        assert ("timeout", 1, "running") == (late.status, late.dispatched, late.runs[0].status)
        second = await here.trigger(force=True)
        assert ("not_dispatched", 0) == (second.status, second.dispatched)
        assert late.runs == second.runs
        work.gate.set()
        await here.rest()
        work.act = fail
        failing = await here.trigger(force=True)
        assert ("ok", 1, "dead_letter") == (failing.status, failing.dispatched, failing.runs[0].status)
        assert (failing.runs[0].error or "").startswith("ValueError")
        assert [("manual", "dead_letter", 1)] + [("manual", "success", 1)] * 2 == sorted(await here.told())


async def test_a_dry_run_shows_its_detail_and_counts_as_nothing(tmp_path: Path) -> None:
    """The detail is told as JSON; it is on record as dry, is no last run, is not tried again and moves no schedule."""
    work = Work(max_retries=0)
    async with house(tmp_path, work, ome=wanted(None)) as here:
        shown_ = await here.trigger(dry_run=True)
        assert ("ok", 0, "success") == (shown_.status, shown_.dispatched, shown_.runs[0].status)
        assert {"clusters": 2} == json.loads(shown_.runs[0].detail or "")
        work.act = fail
        failed = await here.trigger(dry_run=True)
        assert ("ok", "failed") == (failed.status, failed.runs[0].status)
        assert (None, 0, 0) == (here.status.last_run, here.status.dead, here.status.waiting)
        await here.told()
        assert {"dry run: 2 clusters", None} == {result for *_, result in full(tmp_path)}
    async with house(tmp_path, work) as here:
        assert here.status.last_run is None


async def test_a_dry_run_that_was_waited_for_too_short_is_told_to_who_asks_again_and_once(tmp_path: Path) -> None:
    """While it is under way, after its end, and no more once told, once old, or once a real run has been."""
    work = Work()
    async with house(tmp_path, work, ome=wanted(enabled=False)) as here:

        async def late() -> str:
            work.gate.clear()
            run_id = (await here.trigger(0, dry_run=True, force=True)).runs[0].run_id
            await here.rest()
            return run_id

        first = await late()
        again = await here.trigger(0, dry_run=True, force=True)
        assert ("timeout", first, "running") == (again.status, again.runs[0].run_id, again.runs[0].status)
        assert ("not_dispatched", ()) == ((off := await here.trigger(dry_run=True)).status, off.runs[1:])
        work.gate.set()
        await here.rest()
        told = await here.trigger(0, dry_run=True, force=True)
        assert ("ok", first, '{"clusters":2}') == (told.status, told.runs[0].run_id, told.runs[0].detail)
        assert first != (await here.trigger(dry_run=True, force=True)).runs[0].run_id
        for is_aged in (True, False):
            kept = await late()
            work.gate.set()
            await here.rest()
            if is_aged:
                await here.pass_s(timed.KEPT_S + 1)
            else:
                await here.trigger(force=True)
            assert kept != (await here.trigger(dry_run=True, force=True)).runs[0].run_id


async def test_what_fails_while_it_is_switched_off_is_listed_and_can_be_asked_for_again(tmp_path: Path) -> None:
    """Forced on a disabled strategy, or switched off between two attempts: nothing would try it again, so it is given up."""
    work = Work()
    work.act = fail
    async with house(tmp_path, work, ome=wanted(enabled=False)) as here:
        assert "dead_letter" == (await here.trigger(force=True)).runs[0].status
        await here.pass_s(MINUTE)
        assert (0, 1, 1) == (here.status.waiting, here.status.dead, len(here.engine.dead()))
        work.act = lambda _: None
        assert "success" == (await here.trigger(force=True)).runs[0].status
        assert (0, ()) == (here.status.dead, here.engine.dead())
        await here.save(wanted())

        def be_away(_: strategy.Fire) -> None:
            raise errors.LLMUnavailable(*AWAY, retry_after_s=3000.0)

        work.act = be_away
        assert "failed" == (await here.trigger()).runs[0].status
        await here.save(wanted(enabled=False))
        assert (0, 1) == (here.status.waiting, here.status.dead)
        assert here.status.last_run is not None
        assert "dead_letter" == here.status.last_run.status == (await here.told())[-1][1]


async def test_the_watch_over_the_settings_outlives_what_nobody_expected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever reading them raises: it is logged once with where, the settings in force stay, and the next save is read."""
    work = Work()

    def fall(*_: object, **__: object) -> None:
        reason = "nobody expected that"
        raise RecursionError(reason)

    async with house(tmp_path, work, ome=wanted(None)) as here:
        with structlog.testing.capture_logs() as told, monkeypatch.context() as patch:
            patch.setattr(toml, "read", fall)
            (tmp_path / settings.FILE_NAME).write_text(wanted("0 4 * * *"))
            for _ in range(10):
                await here.pass_s(MINUTE)
                await asyncio.sleep(0.001)  # it is read by a thread
        assert here.status.enabled
        assert ["strategies_not_read"] == [one["event"] for one in told if one["log_level"] == "error"]
        await here.save(wanted("0 5 * * *"))
        assert "0 5 * * *" == here.status.cron


async def test_what_runs_is_waited_for_and_what_is_to_come_is_not(tmp_path: Path) -> None:
    """`settled` knows of a run under way; a fire of next week keeps nobody."""
    work = Work()
    async with house(tmp_path, work, ome=wanted(None)) as here:
        assert here.engine._settled.is_set()
        work.gate.clear()
        await here.trigger(0)
        await here.rest()
        assert (False, True) == (here.engine._settled.is_set(), here.engine.is_firing)
        work.gate.set()
        await here.rest()
        assert (True, False) == (here.engine._settled.is_set(), here.engine.is_firing)


async def test_who_is_forgotten_is_forgotten_by_strategies_of_the_clock(tmp_path: Path) -> None:
    """`forget` is waited for."""
    work = Work()
    async with house(tmp_path, work) as here:
        await here.engine.forget(MARA)
    assert [MARA] == work.forgotten


# -- stop and start ----------------------------------------------------------------------------------------------------


async def test_O03_a_stop_is_told_to_the_run_which_ends_early_and_is_taken_up_by_the_next_start(tmp_path: Path) -> None:
    """It asks between two pieces and returns: released, and the rest is done after the start, within the grace."""
    work = Work()
    work.gate.clear()
    async with house(tmp_path, work, utc(2026, 3, 2, 1, 59), ome=wanted(None)) as here:
        await here.pass_s(61)
        work.act = lambda fire: fire.is_stopping()
        stopping = asyncio.create_task(here.engine.stop(5.0))
        await here.rest()
        assert "not_dispatched" == (await here.trigger()).status
        work.gate.set()
        await stopping
    assert [("cron", "released", 1)] == rows(tmp_path)
    async with house(tmp_path, again := Work(), utc(2026, 3, 2, 2, 10)) as here:
        await here.pass_s(60)
        assert ["02. 02:00:00"] == again.due
        assert [("cron", "released", 1), ("cron", "success", 2)] == await here.told()
    async with house(tmp_path, again, utc(2026, 3, 2, 2, 20)) as here:
        await here.pass_s(60)
    assert 1 == len(again.fires)


async def test_O03_a_run_that_does_not_end_is_cut_off_after_the_grace(tmp_path: Path) -> None:
    """Sixty seconds of a model: the stop takes five, twice in a row."""
    work = Work()
    work.gate.clear()
    for attempt in (1, 2):
        async with house(tmp_path, work, utc(2026, 3, 2, 1, 59), ome=wanted(None)) as here:
            await here.pass_s(61)
            started_s = here.time.monotonic_s()
        assert here.time.monotonic_s() - started_s <= 10
        assert [("cron", "released", n + 1) for n in range(attempt)] == sorted(rows(tmp_path))


async def test_what_an_earlier_process_began_is_finished_before_anything_runs(tmp_path: Path) -> None:
    """The released run is on record as recovered; where there is none, a record of its own; with nothing left, none."""
    work = Work()
    async with house(tmp_path, work, ome=wanted(enabled=False)) as here:
        await here.trigger(force=True)
    with contextlib.closing(sqlite3.connect(tmp_path / "system.db")) as connection, connection:
        connection.execute("UPDATE runs SET status = 'running', result = NULL")
    work.left = "finished 1 of 2"
    async with house(tmp_path, work) as here:
        assert here.status.last_run is not None
        assert ("manual", "recovered", "finished 1 of 2") == (
            here.status.last_run.trigger,
            here.status.last_run.status,
            here.status.last_run.result,
        )
    async with house(tmp_path, work) as here:
        assert [("manual", "recovered", 1), ("recovery", "recovered", 1)] == sorted(await here.told())
    work.left = ""
    async with house(tmp_path, work) as here:
        assert 2 == len(await here.told())


async def test_no_run_begins_before_the_recovery_has_ended(tmp_path: Path) -> None:
    """Triggered in the meantime, it is said to run and waits."""
    work, gate = Work(), asyncio.Event()

    async def slow() -> str:
        await gate.wait()
        return "finished 1 of 1"

    work.strategy = msgspec.structs.replace(work.strategy, recover=slow)
    async with house(tmp_path, work, ome=wanted(None)) as here:
        assert ("timeout", "running") == ((late := await here.trigger(0)).status, late.runs[0].status)
        await here.pass_s(40)
        assert [] == work.fires
        gate.set()
        await here.rest()
        assert 1 == len(work.fires)


async def test_a_recovery_that_fails_is_on_record_and_keeps_no_run_from_running(tmp_path: Path) -> None:
    """The next run has another try."""
    work = Work()

    async def broken() -> str:
        await asyncio.sleep(0)
        fail(work.fires[0] if work.fires else None)  # type: ignore[arg-type]
        return ""

    work.strategy = msgspec.structs.replace(work.strategy, recover=broken)
    with structlog.testing.capture_logs() as logs:
        async with house(tmp_path, work, ome=wanted(None)) as here:
            assert "ok" == (await here.trigger()).status
            assert [("manual", "success", 1), ("recovery", "failed", 1)] == sorted(await here.told())
    assert "not_recovered" in [entry["event"] for entry in logs]
