"""The strategy `run_lifecycle`: whose night it is, what a run by hand does, and what is known of it after a restart."""

from __future__ import annotations

import dataclasses
import datetime as dt
import zoneinfo
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec
import pytest

from everosd import clock, config, errors, types
from everosd.engine import schedule, strategy
from everosd.engine import settings as strategy_settings
from everosd.lifecycle import alarm, outcome, scheduled
from everosd.lifecycle import window as windows
from everosd.log import entry
from everosd.store import lifecycle as store
from tests import governed

BERLIN, TOKYO = zoneinfo.ZoneInfo("Europe/Berlin"), zoneinfo.ZoneInfo("Asia/Tokyo")
JON = msgspec.structs.replace(governed.MARA, id="u_jon")
DAILY = strategy_settings.Settings(preset="daily")
DAY = dt.timedelta(days=1)


def utc(*parts: int) -> dt.datetime:
    """Return a moment."""
    return dt.datetime(*parts, tzinfo=dt.UTC)  # type: ignore[arg-type, misc]


@dataclasses.dataclass(kw_only=True)
class Desk:
    """A root, and the strategy over it."""

    life: governed.Life
    governs: scheduled.Scheduled
    wanted: strategy_settings.Settings

    async def run(self, **fire: object) -> strategy.Done:
        """Fire by hand."""
        given = {"run_id": "r" * 32, "trigger": "manual", "due_at": governed.START, "is_stopping": lambda: False} | fire
        return await self.governs.run(strategy.Fire(**given))  # type: ignore[arg-type]

    async def passes(self, owner: types.Owner) -> int:
        """Return how many passes were made over an owner's memories."""
        return len(await store.rows(self.life.root.reader, owner, actions=("audit",)))

    async def remember(self, owner: types.Owner, **fields: str) -> str:
        """Write a memory of an owner."""
        before, self.life.owner = self.life.owner, owner
        try:
            return await self.life.remember(**fields)
        finally:
            self.life.owner = before


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    """Mara lives in Berlin, Jon in Tokyo."""
    async with governed.living(tmp_path) as life:
        life.settings = msgspec.structs.replace(
            life.settings,
            memory=config.Memory(timezone="Europe/Berlin"),
            owners=((JON.id, config.OwnerSettings(timezone="Asia/Tokyo")),),
        )
        made: Desk
        governs = scheduled.Scheduled(life.parts, life.passes, life.alarms, lambda: life.settings, lambda: made.wanted)
        made = Desk(life=life, governs=governs, wanted=DAILY)
        for owner in (governed.MARA, JON):
            await made.remember(owner, memory_type="working")
        yield made


# -- when --------------------------------------------------------------------------------------------------------------


def test_presets_are_at_three_and_a_cron_stands_above_them() -> None:
    """Manual has no moment; weekly is the Monday; a cron is everybody's, in one zone."""
    assert [None, "0 3 * * *", "0 3 * * 1"] == [
        strategy_settings.Settings(preset=one).times for one in ("manual", "daily", "weekly")
    ]
    assert DAILY.is_by_owner
    by_cron = strategy_settings.Settings(preset="daily", cron="0 5 * * *")
    assert ("0 5 * * *", False) == (by_cron.times, by_cron.is_by_owner)


def test_it_is_off_and_manual_with_all_actions_as_shipped() -> None:
    """Nothing is done that nobody asked for."""
    shipped = strategy_settings.defaults()[scheduled.NAME]
    assert (False, "manual", None) == (shipped.enabled, shipped.preset, shipped.times)
    assert ("summarize", "promote", "expire", "decay", "archive") == shipped.actions


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('preset = "nightly"', "there are manual, daily, weekly"),
        ('actions = ["decay", "forget"]', "there are summarize, promote, expire, decay, archive"),
        ('actions = "decay"', "Expected a list"),
        ("presets = 1", "did you mean preset?"),
        ('cron = "0 3 * *"', "expected five fields"),
    ],
)
def test_a_wrong_setting_is_named_with_those_there_are(line: str, said: str) -> None:
    """And its line."""
    found = strategy_settings.read(f"[strategies.run_lifecycle]\n{line}\n", "ome.toml")
    (error,) = found.errors
    assert (2, True) == (error.line, said in str(error)), error


def test_only_the_lifecycle_has_a_preset() -> None:
    """Of another strategy it is an unknown key."""
    found = strategy_settings.read('[strategies.reflect_episodes]\npreset = "daily"\n', "ome.toml")
    assert "unknown key" in str(found.errors[0])
    right = strategy_settings.read('[strategies.run_lifecycle]\npreset = "weekly"\nactions = ["decay"]\n', "ome.toml")
    assert ((), (), ("decay",)) == (right.errors, right.notes, right.settings[scheduled.NAME].actions)


def test_each_zone_has_its_own_night() -> None:
    """Two zones, two fires a day, each at three of its own clock, through a change of clocks."""
    times = schedule.of("0 3 * * *", (BERLIN, TOKYO, BERLIN))
    assert "Asia/Tokyo, Europe/Berlin" == times.zones
    at, fires = utc(2026, 3, 27, 12), list[tuple[int, int]]()
    while len(fires) < 6:
        found = times.after(at)
        assert found is not None
        fires.append((found.day, found.hour))
        at = found
    assert [(27, 18), (28, 2), (28, 18), (29, 1), (29, 18), (30, 1)] == fires
    assert utc(2026, 3, 29, 18) == times.latest(utc(2026, 3, 1), utc(2026, 3, 29, 20))
    assert times.latest(utc(2026, 3, 29, 18), utc(2026, 3, 29, 20)) is None
    assert 12 * 3600 == times.grace(utc(2026, 3, 27, 18)).total_seconds()


async def test_a_fire_of_one_zone_is_a_night_of_its_owners_alone(desk: Desk) -> None:
    """Three in Tokyo is Jon's, three in Berlin is Mara's; both in one run where both were due."""
    assert {"Europe/Berlin", "Asia/Tokyo"} == {str(zone) for zone in desk.governs._settings().zones()}
    desk.life.calendar.at = utc(2026, 3, 3, 18)
    await desk.run(trigger="cron", due_at=utc(2026, 3, 3, 18))
    assert (0, 1) == (await desk.passes(governed.MARA), await desk.passes(JON))
    desk.life.calendar.at = utc(2026, 3, 4, 2)
    await desk.run(trigger="cron", due_at=utc(2026, 3, 4, 2))
    assert (1, 1) == (await desk.passes(governed.MARA), await desk.passes(JON))
    desk.life.calendar.at = utc(2026, 3, 5, 9)
    await desk.run(trigger="cron", due_at=utc(2026, 3, 5, 2), first_at=utc(2026, 3, 4, 18))
    assert (2, 2) == (await desk.passes(governed.MARA), await desk.passes(JON))


async def test_by_hand_and_by_a_cron_it_is_everybody_s(desk: Desk) -> None:
    """Whatever time it is."""
    await desk.run()
    desk.wanted = strategy_settings.Settings(preset="daily", cron="30 4 * * *")
    await desk.run(trigger="cron", due_at=utc(2026, 3, 1, 4, 30))
    assert (2, 2) == (await desk.passes(governed.MARA), await desk.passes(JON))


# -- what --------------------------------------------------------------------------------------------------------------


async def test_a_run_does_all_that_is_due_whatever_the_limit_of_a_call(desk: Desk) -> None:
    """Page by page to the end, and by the actions that are set."""
    await desk.life.remember_all([{"memory_type": "working"} for _ in range(1203)])
    desk.life.calendar.pass_days(8)
    desk.wanted = msgspec.structs.replace(DAILY, actions=("archive",))
    desk.life.set(lifecycle=msgspec.structs.replace(desk.life.settings.lifecycle, max_share=1.0))
    done = await desk.run()
    assert "2 owners: archive 1,205" == done.note
    assert {"archived"} == {one.status for one in (await desk.life.all()).values()}
    assert "2 owners: nothing was due" == (await desk.run()).note


async def test_a_dry_run_shows_what_would_be_done_for_whom(desk: Desk) -> None:
    """Owner by owner, action by action, with candidates and counts; a run afterwards does just that."""
    desk.life.calendar.pass_days(8)
    done = await desk.run(is_dry_run=True)
    detail = msgspec.convert(done.detail, dict[str, object])
    owners = msgspec.convert(detail["owners"], list[dict[str, object]])
    assert ["u_jon", "u_mara"] == [one["owner_id"] for one in owners]
    actions = msgspec.convert(owners[0]["actions"], list[dict[str, object]])
    assert ["summarize", "promote", "expire", "decay", "archive"] == [one["action"] for one in actions]
    assert {"apply": 1, "skip": 0, "left": 0} == actions[4]["counts"]
    (candidate,) = msgspec.convert(actions[4]["candidates"], list[dict[str, object]])
    assert ("u_jon_mem_20260301_00000001", "apply") == (candidate["id"], candidate["decision"])
    assert "active" == next(iter((await desk.life.all()).values())).status
    assert done.note == (await desk.run()).note


async def test_a_fault_at_one_owner_does_not_stop_the_next(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run fails, is tried again, and the others are done already."""
    desk.life.calendar.pass_days(8)
    reflect = desk.life.passes.reflect

    async def fail(owner: types.Owner, wanted: outcome.Wanted) -> outcome.Result:
        if owner == JON:
            path = "lifecycle-2026-03-09.md"
            raise errors.WriteRefused(path, "is write-protected")
        return await reflect(owner, wanted)

    monkeypatch.setattr(desk.life.passes, "reflect", fail)
    with pytest.raises(errors.WriteRefused):
        await desk.run()
    assert {"archived"} == {one.status for one in (await desk.life.all()).values()}
    monkeypatch.setattr(desk.life.passes, "reflect", reflect)
    assert "2 owners: decay 1, archive 1" == (await desk.run()).note


async def test_a_stop_ends_the_run_between_two_owners(desk: Desk) -> None:
    """What is left is done by the next."""
    asked = iter([False, True])
    await desk.run(is_stopping=lambda: next(asked))
    assert 1 == await desk.passes(governed.MARA) + await desk.passes(JON)


async def test_the_window_reaches_back_to_the_last_run(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """At least a day, however seldom it runs: nothing that happened in between is left out."""
    seen: list[outcome.Wanted] = []
    reflect = desk.life.passes.reflect

    async def note(owner: types.Owner, wanted: outcome.Wanted) -> outcome.Result:
        if owner == JON:
            seen.append(wanted)
        return await reflect(owner, wanted)

    monkeypatch.setattr(desk.life.passes, "reflect", note)
    await desk.run()
    desk.life.calendar.pass_days(9)
    await desk.run(is_dry_run=True)
    await desk.run()
    desk.life.calendar.pass_days(0.5)
    await desk.run()
    spans = [one.window.until_us - one.window.since_us for one in seen if one.window is not None]
    assert [24, 9 * 24, 9 * 24, 24] == [span // windows.HOUR_US for span in spans]


async def test_the_window_begins_where_that_of_the_last_run_ended(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """What came while that run was at work is for the next, however many calls agents have made in between."""
    write = desk.life.parts.log

    async def slow(owner: types.Owner, drafts: Sequence[entry.Draft]) -> tuple[types.EntryId, ...]:
        desk.life.calendar.pass_days(0.01)
        return await write(owner, drafts)

    began = desk.life.calendar.now()
    monkeypatch.setattr(desk.life.parts, "log", slow)
    await desk.run()
    monkeypatch.undo()
    told = {"action": "audit", "tool": "reflect", "dry_run": "true", "counts": "{}"}
    at = desk.life.calendar.now().isoformat()
    await desk.life.parts.log(JON, [entry.Draft(fields={"timestamp": at, **told}) for _ in range(120)])
    await desk.life.root.settled()
    desk.life.calendar.pass_days(9)
    seen: list[outcome.Wanted] = []
    reflect = desk.life.passes.reflect

    async def note(owner: types.Owner, wanted: outcome.Wanted) -> outcome.Result:
        seen.append(wanted)
        return await reflect(owner, wanted)

    monkeypatch.setattr(desk.life.passes, "reflect", note)
    await desk.run()
    jon = seen[0].window
    assert jon is not None
    assert (2, clock.to_us(began)) == (len(seen), jon.since_us)


async def test_Y03_an_alarm_outlives_a_restart_and_goes_with_a_pass_that_goes_through(desk: Desk) -> None:
    """It is read from the log: the last pass of an owner that was stopped."""
    await desk.life.remember_all([{"memory_type": "working"} for _ in range(20)])
    desk.life.calendar.pass_days(8)
    await desk.run()
    assert 1 == len(desk.life.alarms.said())
    later = alarm.Alarms()
    after = scheduled.Scheduled(
        desk.life.parts, desk.life.passes, later, lambda: desk.life.settings, lambda: desk.wanted
    )
    assert "" == await after.recover()
    assert desk.life.alarms.said() == later.said()
    await desk.life.reflect("decay", is_dry_run=True, max_share=1.0)
    assert 1 == len(desk.life.alarms.said())
    await desk.life.reflect("expire", "decay", "archive", is_forced=True)
    assert () == desk.life.alarms.said()
    again = alarm.Alarms()
    await scheduled.Scheduled(
        desk.life.parts, desk.life.passes, again, lambda: desk.life.settings, lambda: desk.wanted
    ).recover()
    assert () == again.said()


async def test_an_owner_whose_memory_is_gone_is_forgotten(desk: Desk) -> None:
    """No alarm speaks of them."""
    await desk.life.remember_all([{"memory_type": "working"} for _ in range(20)])
    desk.life.calendar.pass_days(8)
    await desk.run()
    await desk.governs.forget(governed.MARA)
    assert () == desk.life.alarms.said()


async def test_agents_have_a_lifecycle_too(desk: Desk) -> None:
    """Their typed memories are in the same tables."""
    helper = types.Owner(app="default", project="default", type="agent", id="helper")
    await desk.life.root.pen.append(
        helper,
        "memory",
        [entry.Draft(fields={"timestamp": governed.START.isoformat()}, sections=(("Content", "how to"),))],
        memory_type="working",
        memory_path="notes",
    )
    await desk.life.root.settled()
    desk.life.calendar.pass_days(8)
    await desk.run()
    assert ["archived"] == [one.status for one in await store.records(desk.life.root.reader, helper, statuses=())]
