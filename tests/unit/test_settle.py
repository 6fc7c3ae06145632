"""Dirty paths become settled batches."""

from __future__ import annotations

import asyncio
import datetime as dt

from everosd import clock as clocks
from everosd.types import RelPath
from everosd.watch import settle

A = RelPath("app/pro/users/u/episodes/episode-2026-01-01.md")
B = RelPath("app/pro/users/u/episodes/episode-2026-01-02.md")


class HandClock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        """Begin anywhere."""
        self.at = 100.0

    def now(self) -> dt.datetime:
        """Return some moment."""
        return dt.datetime(2026, 1, 1, tzinfo=dt.UTC)

    def monotonic_s(self) -> float:
        """Return what the hand is at."""
        return self.at

    async def sleep(self, seconds: float) -> None:
        """Sleep really."""
        await asyncio.sleep(seconds)


def settler(clock: HandClock, **settings: float) -> settle.Settler:
    return settle.Settler(clock, quiet_s=settings.get("quiet_s", 0.05), max_s=settings.get("max_s", 2.0))


def test_closed_file_is_given_out_within_five_milliseconds() -> None:
    """A writer that closed the file is not waited for any longer."""
    clock = HandClock()
    dirty = settler(clock)
    dirty.mark(A, is_final=True)
    clock.at += 0.005
    assert settle.Batch(paths=frozenset({A})) == dirty.take(clock.at)


def test_written_file_waits_for_quiet() -> None:
    """Every further write begins the quiet time anew."""
    clock = HandClock()
    dirty = settler(clock)
    for _ in range(10):
        dirty.mark(A)
        clock.at += 0.04
        assert dirty.take(clock.at) is None
    clock.at += 0.011
    assert settle.Batch(paths=frozenset({A})) == dirty.take(clock.at)


def test_write_without_pause_is_looked_at_in_between() -> None:
    """A file that is never left alone is given out `max_s` after the first write."""
    clock = HandClock()
    dirty = settler(clock, max_s=1.0)
    start = clock.at
    while dirty.take(clock.at) is None:
        dirty.mark(A)
        clock.at += 0.02
    assert 1.0 <= clock.at - start <= 1.03


def test_second_write_reopens_a_finished_save() -> None:
    """A file closed and opened for writing again is not read half written."""
    clock = HandClock()
    dirty = settler(clock)
    dirty.mark(A, is_final=True)
    clock.at += 0.002
    dirty.mark(A)
    clock.at += 0.01
    assert dirty.take(clock.at) is None
    dirty.mark(A, is_final=True)
    clock.at += 0.005
    assert settle.Batch(paths=frozenset({A})) == dirty.take(clock.at)


def test_permissions_set_after_a_save_do_not_delay_it() -> None:
    """Editors set modes after they closed the file: that is no new write."""
    clock = HandClock()
    dirty = settler(clock)
    dirty.mark(A, is_final=True)
    dirty.mark(A, is_writing=False)
    clock.at += 0.005
    assert settle.Batch(paths=frozenset({A})) == dirty.take(clock.at)


def test_saves_of_a_checkout_come_together() -> None:
    """Files finished while another one waits for company go along with it."""
    clock = HandClock()
    dirty = settler(clock)
    dirty.mark(A, is_final=True)
    clock.at += 0.0039
    dirty.mark(B, is_final=True)
    clock.at += 0.0002
    assert settle.Batch(paths=frozenset({A, B})) == dirty.take(clock.at)
    assert len(dirty) == 0


def test_unfinished_file_does_not_hold_back_a_finished_one() -> None:
    """Each path settles on its own."""
    clock = HandClock()
    dirty = settler(clock)
    dirty.mark(B)
    dirty.mark(A, is_final=True)
    clock.at += 0.005
    assert settle.Batch(paths=frozenset({A})) == dirty.take(clock.at)
    assert len(dirty) == 1


def test_folders_below_a_folder_are_not_named_twice() -> None:
    """Whoever walks a folder walks what is below it."""
    clock = HandClock()
    dirty = settler(clock)
    for folder in ("a/b/c", "a/b", "a/bc", "a/b/d"):
        dirty.mark_folder(RelPath(folder))
    clock.at += 0.06
    batch = dirty.take(clock.at)
    assert batch is not None
    assert {"a/b", "a/bc"} == set(batch.folders)


def test_too_many_paths_become_a_rescan() -> None:
    """The memory for dirty paths is bounded, and nothing is lost by it."""
    clock = HandClock()
    dirty = settle.Settler(clock, max_dirty=100)
    for n in range(1_000):
        dirty.mark(RelPath(f"{n}.md"), is_final=True)
        assert len(dirty) <= 101
    clock.at += 0.06
    batch = dirty.take(clock.at)
    assert batch is not None
    assert batch.rescan == "more than 100 paths changed at once"


def test_first_reason_of_a_rescan_is_told_and_forgotten() -> None:
    """A rescan is asked for once, whatever else asks for it meanwhile."""
    clock = HandClock()
    dirty = settler(clock)
    dirty.mark_all("start")
    dirty.mark_all("timer")
    clock.at += 0.01
    assert settle.Batch(rescan="start") == dirty.take(clock.at)
    dirty.mark_all("timer")
    clock.at += 0.01
    assert settle.Batch(rescan="timer") == dirty.take(clock.at)


def test_other_markdown_is_kept_apart() -> None:
    """A conflict copy is named, and never among the files to read."""
    clock = HandClock()
    dirty = settler(clock)
    dirty.mark_other("a (conflicted copy).md")
    clock.at += 0.06
    assert settle.Batch(others=frozenset({"a (conflicted copy).md"})) == dirty.take(clock.at)


async def test_finished_save_wakes_a_consumer_that_waits_for_quiet() -> None:
    """`next` does not sleep through a save because it waits for another file to fall silent."""
    dirty = settle.Settler(clocks.SystemClock(), quiet_s=60.0, max_s=60.0)
    dirty.mark(B)
    waiting = asyncio.ensure_future(dirty.next())
    await asyncio.sleep(0)
    dirty.mark(A, is_final=True)
    async with asyncio.timeout(5):
        assert settle.Batch(paths=frozenset({A})) == await waiting


async def test_cancelled_consumer_loses_nothing() -> None:
    """What was marked while nobody waits is there for the next one who does."""
    dirty = settle.Settler(clocks.SystemClock())
    waiting = asyncio.ensure_future(dirty.next())
    await asyncio.sleep(0)
    dirty.mark(A)
    waiting.cancel()
    await asyncio.wait([waiting])
    async with asyncio.timeout(5):
        batch = await dirty.next()
    assert {A} == batch.paths


async def test_idle_consumer_is_not_woken() -> None:
    """With nothing dirty `next` waits for an event and not for a timer."""
    slept: list[float] = []

    class Watched(clocks.SystemClock):
        async def sleep(self, seconds: float) -> None:
            """Note the sleep."""
            slept.append(seconds)
            await super().sleep(seconds)

    dirty = settle.Settler(Watched())
    waiting = asyncio.ensure_future(dirty.next())
    for _ in range(20):
        await asyncio.sleep(0)
    assert slept == []
    waiting.cancel()
    await asyncio.wait([waiting])
