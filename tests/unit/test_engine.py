"""The engine: what runs when, beside what, again after which failure, and what is told of it."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import tracemalloc
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest
import structlog

from everosd import errors, types
from everosd.engine import backoff, engine, runs, settings, strategy
from everosd.store import db
from tests import fast_clock

MARA = types.Owner(app="default", project="default", type="user", id="mara")
JO = types.Owner(app="default", project="default", type="user", id="jo")
AWAY = errors.LLMUnavailable("stub", "is away")
FACTS, CLUSTERS = "extract_atomic_facts", "trigger_profile_clustering"


def event(subject: str, owner: types.Owner = MARA, *, origin: str = "") -> strategy.Event:
    """An Episode was written."""
    return strategy.Event(topic="episode_written", owner=owner, subject=subject, origin=origin)


class Work:
    """A strategy under the test's control: what it was run on, and what it does then."""

    def __init__(self, name: str = FACTS, *, is_per_owner: bool = False, max_retries: int = 3) -> None:
        """Succeed at once, until told otherwise."""
        self.name = name
        self.seen: list[str] = []
        self.running: set[str] = set()
        self.most_at_once = 0
        self.act: Callable[[strategy.Event], object] = lambda _: None
        self.gate = asyncio.Event()
        self.gate.set()
        self.strategy = strategy.Strategy(
            name=name, topics=("episode_written",), run=self.run, is_per_owner=is_per_owner, max_retries=max_retries
        )

    async def run(self, given: strategy.Event) -> str:
        """Note it, wait at the gate, act."""
        assert given.owner.id not in self.running
        self.running.add(given.owner.id)
        self.most_at_once = max(self.most_at_once, len(self.running))
        try:
            self.seen.append(given.subject)
            await self.gate.wait()
            await asyncio.sleep(0)
            self.act(given)
        finally:
            self.running.discard(given.owner.id)
        return "done"


def fail(_: strategy.Event) -> None:
    """Fail by a fault of one's own, whose words are private."""
    reason = "Mara's secret"
    raise ValueError(reason)


def be_away(_: strategy.Event) -> None:
    """Fail because the model is away."""
    raise AWAY


@contextlib.asynccontextmanager
async def running(
    root: Path, *work: Work, ome: str = "", speed: float = 400.0, before: Callable[[engine.Engine], None] | None = None
) -> AsyncIterator[engine.Engine]:
    """Run an engine over `root`; the time of its waits is short."""
    time = fast_clock.FastClock(speed)
    if ome:
        (root / settings.FILE_NAME).write_text(ome)
    database = await db.Database.open(root / "system.db")
    watcher = settings.Watcher(root, time)
    await watcher.look()
    made = engine.Engine(watcher, runs.Runs(database, time), time)
    for one in work:
        made.add(one.strategy)
    if before is not None:
        before(made)
    task = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        await made.stop()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await database.close()


async def until(is_so: Callable[[], object]) -> None:
    """Wait until `is_so`."""
    async with asyncio.timeout(10):
        while not is_so():  # noqa: ASYNC110  # a condition, not an event
            await asyncio.sleep(0.002)


def rows(root: Path) -> list[tuple[str, str, int]]:
    """Return strategy, status and attempt of what is on record, in order."""
    with contextlib.closing(sqlite3.connect(root / "system.db")) as connection:
        return connection.execute("SELECT strategy, status, attempt FROM runs ORDER BY started_at").fetchall()


def given_up(made: engine.Engine) -> list[tuple[str, int]]:
    """Return subject and attempts of every event that was given up."""
    return sorted((one.event.subject, one.attempts) for one in made.dead() if one.event is not None)


# -- order -------------------------------------------------------------------------------------------------------------


async def test_events_of_one_owner_run_in_order_one_at_a_time_and_owners_side_by_side(tmp_path: Path) -> None:
    """Ten events of each of two owners: each owner's in order, both at once."""
    work = Work()
    work.gate.clear()
    async with running(tmp_path, work) as made:
        for n in range(10):
            made.emit(event(f"m{n}"))
            made.emit(event(f"j{n}", JO))
        await until(lambda: len(work.seen) == 2)
        work.gate.set()
        assert await made.settled(4000)
    assert [f"m{n}" for n in range(10)] == [seen for seen in work.seen if seen[0] == "m"]
    assert [f"j{n}" for n in range(10)] == [seen for seen in work.seen if seen[0] == "j"]
    assert 2 == work.most_at_once


async def test_no_more_than_the_limit_run_at_once_and_another_strategy_has_its_own(tmp_path: Path) -> None:
    """Ten owners of a strategy that hangs take four places; another strategy runs for all ten."""
    slow, quick = Work(), Work(CLUSTERS)
    slow.gate.clear()
    async with running(tmp_path, slow, quick) as made:
        for n in range(10):
            made.emit(event("e", types.Owner(app="default", project="default", type="user", id=f"u{n}")))
        await until(lambda: len(quick.seen) == 10)
        assert 4 == len(slow.seen)
        assert (6, 4) == (made.status()[0].waiting, made.status()[0].running)
        slow.gate.set()
        assert await made.settled(4000)
    assert 10 == len(slow.seen)


async def test_an_event_that_waits_already_is_not_queued_twice_and_one_that_runs_is_queued_once_more(
    tmp_path: Path,
) -> None:
    """Three equal events while one runs, and three of another: five runs become three."""
    work = Work()
    work.gate.clear()
    async with running(tmp_path, work) as made:
        made.emit(event("a"))
        await until(lambda: work.seen == ["a"])
        for _ in range(3):
            made.emit(event("a"))
            made.emit(event("b"))
        work.gate.set()
        assert await made.settled(4000)
    assert ["a", "a", "b"] == work.seen


async def test_per_owner_events_that_wait_become_one_run_of_the_newest(tmp_path: Path) -> None:
    """A profile is written once for all that came meanwhile, and each owner has its own."""
    work = Work("extract_user_profile", is_per_owner=True)
    drained: list[str] = []
    work.gate.clear()
    async with running(tmp_path, work) as made:
        made.on_drained = drained.append
        made.emit(event("a", origin="o1"))
        await until(lambda: work.seen == ["a"])
        for n in range(2, 6):
            made.emit(event(f"e{n}", origin=f"o{n}"))
        made.emit(event("j", JO, origin="o9"))
        work.gate.set()
        assert await made.settled(4000)
    assert ["a", "e5", "j"] == sorted(work.seen)
    assert ["o1", "o2", "o3", "o4", "o5", "o9"] == sorted(drained)


async def test_a_per_owner_run_that_fails_takes_what_comes_with_it(tmp_path: Path) -> None:
    """Events come while it runs, and while it waits for its second attempt: that one is of the newest, for all of them."""
    work = Work("extract_user_profile", is_per_owner=True)
    drained: list[str] = []
    work.gate.clear()
    work.act = be_away
    async with running(tmp_path, work, speed=1.0) as made:
        made.on_drained = drained.append
        made.emit(event("a", origin="o1"))
        await until(lambda: work.seen == ["a"])
        made.emit(event("b", origin="o2"))
        work.gate.set()
        await until(lambda: not work.running)
        made.emit(event("c", origin="o3"))
        made.emit(event("d", origin="o1"))
        assert 1 == made.status()[0].waiting
        work.act = lambda _: None
        assert "ok" == (await made.trigger(work.name, timeout_s=5)).status
        assert await made.settled(5)
    assert ["a", "d"] == work.seen
    assert ["o1", "o2", "o3"] == sorted(drained)


# -- failures ----------------------------------------------------------------------------------------------------------


async def test_L10_a_strategy_whose_model_is_away_waits_with_growing_pauses_while_others_go_on(tmp_path: Path) -> None:
    """The model is away for many attempts: another strategy runs meanwhile, nothing is given up, and it is done at last."""
    ill, well = Work(max_retries=0), Work(CLUSTERS)
    moments: list[float] = []

    def away(_: strategy.Event) -> None:
        moments.append(asyncio.get_running_loop().time())
        if len(moments) < 6:
            raise AWAY

    ill.act = away
    async with running(tmp_path, ill, well, speed=1000.0) as made:
        made.emit(event("a"))
        await until(lambda: len(moments) == 2)
        made.emit(event("b"))
        await until(lambda: well.seen == ["a", "b"])
        assert len(moments) < 6
        assert await made.settled(100_000)
        assert () == made.dead()
    assert {"a", "b"} == set(ill.seen)
    statuses = [status for name, status, _ in rows(tmp_path) if name == FACTS]
    assert (5, 2) == (statuses.count("failed"), statuses.count("success"))
    a = [backoff.wait_s(n, None) for n in range(1, 30)]
    assert all(0 < wait <= backoff.MAX_RETRY_S for wait in a)
    assert a[5] > 10 * a[0]


async def test_L10_what_fails_too_often_is_listed_and_runs_again_when_asked(tmp_path: Path) -> None:
    """Four attempts, then a dead letter; a trigger that fails says so; one after the mend succeeds and clears the list."""
    work = Work()
    work.act = fail
    async with running(tmp_path, work) as made:
        made.emit(event("a"))
        made.emit(event("b"))
        assert await made.settled(4000)
        assert [("a", 4), ("b", 4)] == given_up(made)
        assert "ValueError" in made.dead()[0].error
        again = await made.trigger(FACTS)
        assert ("ok", 2, {"dead_letter"}) == (again.status, again.dispatched, {run.status for run in again.runs})
        work.act = lambda _: None
        last = await made.trigger(FACTS)
        assert ("ok", 2, {"success"}) == (last.status, last.dispatched, {run.status for run in last.runs})
        assert () == made.dead()
        assert "not_dispatched" == (await made.trigger(FACTS)).status


async def test_one_event_that_fails_lets_the_others_of_its_owner_pass(tmp_path: Path) -> None:
    """Of three, the first fails: the others are done before its second attempt."""
    work = Work()
    work.act = lambda given: fail(given) if given.subject == "a" else None
    async with running(tmp_path, work, speed=1.0) as made:
        for subject in "abc":
            made.emit(event(subject))
        await until(lambda: len(work.seen) >= 3)
        assert ["a", "b", "c"] == work.seen[:3]


async def test_while_the_model_is_away_the_next_event_of_the_owner_waits_too(tmp_path: Path) -> None:
    """A model that is down is not asked once for each of a thousand events."""
    work = Work()
    work.act = lambda given: be_away(given) if given.owner == MARA else None
    async with running(tmp_path, work, speed=1.0) as made:
        made.emit(event("a"))
        made.emit(event("b"))
        await until(lambda: work.seen and not work.running)
        made.emit(event("j", JO))
        await until(lambda: "j" in work.seen)
        assert ["a", "j"] == work.seen


async def test_a_model_that_is_away_is_said_once_until_it_is_back(tmp_path: Path) -> None:
    """Ten owners wait for it: one line, after some attempts."""
    work = Work()
    work.act = be_away
    with structlog.testing.capture_logs() as lines:
        async with running(tmp_path, work, speed=2000.0) as made:
            for n in range(10):
                made.emit(event("e", types.Owner(app="default", project="default", type="user", id=f"u{n}")))
            await until(lambda: len(work.seen) > 60)
            work.act = lambda _: None
            assert await made.settled(100_000)
    assert ["strategy_waits"] == [line["event"] for line in lines if line["log_level"] == "warning"]


async def test_a_full_disk_is_no_fault_of_the_event(tmp_path: Path) -> None:
    """What the disk, the ledger or a file refuses is tried again more often than what failed by itself."""
    work = Work(max_retries=0)
    refusals: list[Exception] = [
        errors.StoreRefused("full"),
        errors.WriteRefused("episode.md", "read-only"),
        OSError(28, "No space left on device"),
    ]

    def refuse(_: strategy.Event) -> None:
        if refusals:
            raise refusals.pop()

    work.act = refuse
    async with running(tmp_path, work) as made:
        made.emit(event("a"))
        assert await made.settled(4000)
        assert () == made.dead()
    assert 4 == len(work.seen)


def test_a_provider_that_says_when_is_not_asked_before() -> None:
    """Retry-After is the least, a long one too; without one the wait stays below a quarter of an hour."""
    assert all(backoff.wait_s(1, 500.0) >= 500.0 for _ in range(20))
    assert all(backoff.wait_s(40, None) <= 900.0 for _ in range(20))
    assert len({backoff.wait_s(3, None) for _ in range(20)}) > 1


async def test_errors_on_record_hold_no_word_of_what_was_worked_on(tmp_path: Path) -> None:
    """A stranger's error is named by its class and place."""
    work = Work(max_retries=0)
    work.act = fail
    async with running(tmp_path, work) as made:
        made.emit(event("a"))
        assert await made.settled(4000)
        said = made.dead()[0].error
    assert "secret" not in said
    assert said.startswith("ValueError in test_engine.py:")


async def test_a_new_event_about_what_was_given_up_starts_afresh(tmp_path: Path) -> None:
    """The dead letter is gone, its origin is told of at last."""
    work = Work(max_retries=0)
    work.act = fail
    drained: list[str] = []
    async with running(tmp_path, work) as made:
        made.on_drained = drained.append
        made.emit(event("a", origin="first"))
        assert await made.settled(4000)
        assert [] == drained
        work.act = lambda _: None
        made.emit(event("a", origin="second"))
        assert await made.settled(4000)
        assert () == made.dead()
    assert ["first", "second"] == sorted(drained)


# -- origins -----------------------------------------------------------------------------------------------------------


async def test_an_origin_is_drained_once_all_that_came_of_it_is_done(tmp_path: Path) -> None:
    """A run emits a further event of its origin: told once, after that one."""
    drained: list[str] = []
    first = Work()
    second = Work(CLUSTERS)
    second.strategy = strategy.Strategy(name=CLUSTERS, topics=("episode_clustered",), run=second.run)
    second.gate.clear()
    async with running(tmp_path, first, second) as made:
        made.on_drained = drained.append

        def emit(given: strategy.Event) -> None:
            made.emit(strategy.Event(topic="episode_clustered", owner=MARA, subject=given.subject, origin=given.origin))

        first.act = emit
        made.emit(event("a", origin="o"))
        await until(lambda: second.seen)
        assert [] == drained
        assert made.is_open("o")
        second.gate.set()
        await until(lambda: drained)
        assert not made.is_open("o")
    assert ["o"] == drained


async def test_an_origin_that_nobody_listens_to_is_drained_after_all_its_events(tmp_path: Path) -> None:
    """A disabled strategy is told nothing of, and the origin is not kept open for it."""
    drained: list[str] = []
    off, on = Work(), Work(CLUSTERS)
    off_only = f"[strategies.{FACTS}]\nenabled = false\n[strategies.{CLUSTERS}]\nenabled = false\n"
    async with running(tmp_path, off, on, ome=off_only) as made:
        made.on_drained = drained.append
        made.emit(event("a", origin="o"))
        made.emit(event("b", origin="o"))
        await until(lambda: drained)
        assert await made.settled(4000)
    assert (["o"], [], []) == (drained, off.seen, on.seen)


async def test_a_listener_that_fails_stops_nothing(tmp_path: Path) -> None:
    """What is told of a drained origin raises: the next event runs all the same."""
    work = Work()

    def break_down(_: str) -> None:
        raise RuntimeError

    async with running(tmp_path, work) as made:
        made.on_drained = break_down
        made.emit(event("a", origin="o"))
        await until(lambda: work.seen)
        made.emit(event("b", origin="p"))
        assert await made.settled(4000)
    assert ["a", "b"] == work.seen


# -- by hand -----------------------------------------------------------------------------------------------------------


async def test_A03_a_disabled_an_unknown_a_running_and_a_failing_strategy_are_told_apart(tmp_path: Path) -> None:
    """Each answers in its own way, with run ids where there are runs."""
    work = Work(max_retries=0)
    work.act = fail
    async with running(tmp_path, work) as made:
        with pytest.raises(errors.NotFound, match=f"no strategy is called reflect_episode; there are {FACTS}"):
            await made.trigger("reflect_episode")
        known = await made.trigger("reflect_episodes", force=True)
        assert ("not_dispatched", 0, ()) == (known.status, known.dispatched, known.runs)

        made.emit(event("a"))
        assert await made.settled(4000)
        failing = await made.trigger(FACTS)
        (run,) = failing.runs
        assert ("ok", 1, "dead_letter") == (failing.status, failing.dispatched, run.status)
        assert run.error is not None
        assert 32 == len(run.run_id)

        work.gate.clear()
        late = await made.trigger(FACTS, timeout_s=0)
        assert ("timeout", 1) == (late.status, late.dispatched)
        await until(lambda: work.running)
        second = await made.trigger(FACTS, timeout_s=0)
        assert ("not_dispatched", 0) == (second.status, second.dispatched)
        assert [(late.runs[0].run_id, "running")] == [(run.run_id, run.status) for run in second.runs]
        work.gate.set()
        assert await made.settled(4000)

        (tmp_path / settings.FILE_NAME).write_text(f"[strategies.{FACTS}]\nenabled = false\n")
        await until(lambda: not made.status()[0].enabled)
        disabled = await made.trigger(FACTS)
        assert ("not_dispatched", 0, ()) == (disabled.status, disabled.dispatched, disabled.runs)
        work.act = lambda _: None
        forced = await made.trigger(FACTS, force=True)
        assert ("ok", 1, "success", "done") == (
            forced.status,
            forced.dispatched,
            forced.runs[0].status,
            forced.runs[0].result,
        )
    statuses = [status for _, status, _ in rows(tmp_path)]
    assert "success" == statuses[-1]


async def test_a_dry_run_says_what_would_run_and_runs_nothing(tmp_path: Path) -> None:
    """The list stands in `result`; what was given up stays given up."""
    work = Work(max_retries=0)
    work.act = fail
    async with running(tmp_path, work) as made:
        made.emit(event("a"))
        assert await made.settled(4000)
        found = await made.trigger(FACTS, dry_run=True)
        assert ("ok", 0) == (found.status, found.dispatched)
        assert ["would be run again on a, after 1 attempts"] == [run.result for run in found.runs]
        assert 1 == len(made.dead())
    assert ["a"] == work.seen


async def test_a_trigger_has_what_waits_for_another_attempt_run_at_once(tmp_path: Path) -> None:
    """The model is back before the pause is over, and somebody knows."""
    work = Work()
    work.act = be_away
    async with running(tmp_path, work, speed=1.0) as made:
        made.emit(event("a"))
        await until(lambda: made.status()[0].waiting == 1 and work.seen)
        work.act = lambda _: None
        found = await made.trigger(FACTS, timeout_s=5)
        assert ("ok", ["success"]) == (found.status, [run.status for run in found.runs])
        assert await made.settled(1)
    assert [(FACTS, "failed", 1), (FACTS, "success", 2)] == rows(tmp_path)


# -- life --------------------------------------------------------------------------------------------------------------


async def test_T06_a_run_that_a_crash_cut_off_is_released_and_its_strategy_can_run_again(tmp_path: Path) -> None:
    """A record says `running` and nobody runs it: the next start says so, and takes events of that owner."""
    async with running(tmp_path, Work()):
        pass
    left = "INSERT INTO runs (run_id, strategy, trigger, status, attempt, started_at) VALUES ('r', ?, 'event', 'running', 1, '2026')"
    with contextlib.closing(sqlite3.connect(tmp_path / "system.db")) as connection, connection:
        connection.execute(left, (FACTS,))
    work = Work()
    async with running(tmp_path, work) as made:
        made.emit(event("a"))
        assert await made.settled(4000)
    assert [(FACTS, "released", 1), (FACTS, "success", 1)] == rows(tmp_path)


async def test_a_stop_lets_runs_end_and_cuts_off_those_that_do_not(tmp_path: Path) -> None:
    """One run ends within the grace, one hangs: both are on record, nothing new is begun."""
    work = Work()
    work.gate.clear()
    drained: list[str] = []
    async with running(tmp_path, work) as made:
        made.on_drained = drained.append
        made.emit(event("a", origin="o1"))
        made.emit(event("b", origin="o2"))
        await until(lambda: work.seen == ["a"])
        stopping = asyncio.create_task(made.stop(grace_s=4000))
        await asyncio.sleep(0)
        work.gate.set()
        await stopping
        assert ["a"] == work.seen
    assert [(FACTS, "success", 1)] == rows(tmp_path)

    hung = Work()
    hung.gate.clear()
    async with running(tmp_path, hung) as made:
        made.on_drained = drained.append
        made.emit(event("c", origin="o3"))
        await until(lambda: hung.seen == ["c"])
        await made.stop(grace_s=5)
        assert made.is_open("o3")
    assert (FACTS, "released", 1) == rows(tmp_path)[-1]
    assert "o3" not in drained


async def test_dead_letters_are_known_after_a_restart(tmp_path: Path) -> None:
    """What was given up is listed by the next daemon, and runs when asked; then it is forgotten for good."""
    work = Work(max_retries=1)
    work.act = fail
    async with running(tmp_path, work) as made:
        made.emit(event("a", origin="o"))
        assert await made.settled(4000)
        (before,) = made.dead()
    healed = Work(max_retries=1)
    drained: list[str] = []
    async with running(tmp_path, healed) as made:
        made.on_drained = drained.append
        await until(made.dead)
        assert (before,) == made.dead()
        assert (1, "dead_letter") == (made.status()[0].dead, getattr(made.status()[0].last_run, "status", ""))
        assert "ok" == (await made.trigger(FACTS)).status
        await until(lambda: drained)
    assert ["o"] == drained
    async with running(tmp_path, Work()) as made:
        await made.settled(400)
        assert () == made.dead()


async def test_a_strategy_that_is_turned_off_ends_what_runs_and_lets_go_of_what_waits(tmp_path: Path) -> None:
    """Three events, the strategy is turned off during the first: it ends, the others never run, nobody waits for them."""
    work = Work()
    work.gate.clear()
    drained: list[str] = []
    async with running(tmp_path, work) as made:
        made.on_drained = drained.append
        for subject in "abc":
            made.emit(event(subject, origin=subject))
        await until(lambda: work.seen == ["a"])
        (tmp_path / settings.FILE_NAME).write_text(f"[strategies.{FACTS}]\nenabled = false\n")
        await until(lambda: made.status()[0].waiting == 0)
        work.gate.set()
        assert await made.settled(4000)
    assert (["a"], ["a", "b", "c"]) == (work.seen, sorted(drained))


async def test_settings_say_how_often_a_strategy_is_tried_again(tmp_path: Path) -> None:
    """`max_retries = 0` in ome.toml stands above the strategy's own number."""
    work = Work(max_retries=3)
    work.act = fail
    async with running(tmp_path, work, ome=f"[strategies.{FACTS}]\nmax_retries = 0\n") as made:
        made.emit(event("a"))
        assert await made.settled(4000)
        assert [1] == [dead.attempts for dead in made.dead()]


async def test_records_are_written_in_batches_and_only_the_newest_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three hundred runs cost some transactions, not hundreds, and leave the newest (fewer than in life)."""
    monkeypatch.setattr(runs, "KEPT", 100)
    monkeypatch.setattr(runs, "SLACK", 10)
    work = Work()
    async with running(tmp_path, work, speed=1.0) as made:
        n = [0]
        write = made._runs.database.write

        async def counted(job: Callable[[sqlite3.Connection], object]) -> object:
            n[0] += 1
            return await write(job)

        made._runs.database.write = counted  # type: ignore[method-assign, assignment]
        for number in range(300):
            made.emit(event(f"e{number}"))
        assert await made.settled(20)
    assert 300 == len(work.seen)
    assert n[0] < 30
    assert runs.KEPT <= len(rows(tmp_path)) <= runs.KEPT + runs.SLACK


async def test_events_that_wait_take_some_hundred_bytes_and_are_taken_in_order(tmp_path: Path) -> None:
    """So that a hundred thousand may wait: counted on ten thousand."""
    work = Work()
    work.gate.clear()
    async with running(tmp_path, work) as made:
        made.emit(event("first"))
        await until(lambda: work.seen)
        tracemalloc.start()
        for number in range(10_000):
            made.emit(event(f"ep_20260302_{number:08}", origin="o"))
            if not number % 500:
                await asyncio.sleep(0)
        used, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert used / 10_000 < 400
        assert 10_000 == made.status()[0].waiting
        (one,) = made._events.desks[FACTS].lanes.values()
        taken = [one.take(0.0) for _ in range(10_000)]
        assert ("ep_20260302_00000000", "ep_20260302_00009999") == tuple(
            job.key[1] for job in (taken[0], taken[-1]) if job is not None
        )


# -- an owner who is gone ----------------------------------------------------------------------------------------------


async def test_I09_nothing_is_run_any_more_for_a_forgotten_owner(tmp_path: Path) -> None:
    """One event of theirs runs, one waits, one was given up: all end at once, their origins too; others' go on."""
    work, lost = Work(), Work(CLUSTERS, max_retries=0)
    gone: list[types.Owner] = []
    work.strategy = msgspec.structs.replace(work.strategy, forget=gone.append)
    lost.strategy = msgspec.structs.replace(lost.strategy, topics=("case_written",))
    lost.act = fail
    work.gate.clear()
    drained: list[str] = []
    async with running(tmp_path, work, lost) as made:
        made.on_drained = drained.append
        made.emit(strategy.Event(topic="case_written", owner=MARA, subject="dead", origin="given up"))
        await until(made.dead)
        for subject in ("m0", "m1"):
            made.emit(event(subject, origin=subject))
        made.emit(event("j0", JO, origin="j0"))
        await until(lambda: len(work.seen) == 2)
        await made.forget(MARA)
        await until(lambda: len(drained) == 3)
        assert (["given up", "m0", "m1"], [MARA], ()) == (sorted(drained), gone, made.dead())
        work.gate.set()
        assert await made.settled(4000)
    assert (["m0", "j0"], "j0") == (work.seen, drained[-1])
    async with running(tmp_path, Work()) as made:
        await until(lambda: made.status()[0].last_run)
        assert () == made.dead()
