"""Kill -9 in the middle of consolidations and of their undoing: nothing is lost, doubled or left by halves.

A few moments in the default run; `make crash` kills at 200 random ones.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import multiprocessing.connection
import os
import random
import signal
import threading
from pathlib import Path

import pytest

from everosd.cascade import verify
from tests import effort, open_root, reflecting, steps
from tests.reflecting import ANDREW, shop

CRASHES = int(os.environ.get("EVEROSD_CRASHES", "0"))
"""How many random moments; set by `make crash`."""
N_FIRST = 20
STATEMENTS = [shop(number) for number in range(N_FIRST)]
N_MORE = 5
"""Statements that each round adds."""
N_ROUNDS = 8
"""Rounds that add to one cluster."""
LATEST_S = 1.2
"""After this time a round has done all that it does."""
FORKS = multiprocessing.get_context("forkserver")
"""A process that has imported everything, and opened nothing: what has threads must not be forked."""
FORKS.set_forkserver_preload(["tests.process.test_reflection_crash", "everosd.search.query", "everosd.cascade.apply"])


def end(_: str = "") -> None:
    """End this process at once, as a power cut would."""
    os.kill(os.getpid(), signal.SIGKILL)


class Countdown:
    """A step of the writer, or of reflection, that ends the process at the nth moment of either."""

    def __init__(self, nth: int) -> None:
        """Let `nth` - 1 pass."""
        self.left = nth

    def __call__(self, name: str) -> None:
        """Be called at a moment, in any thread."""
        self.left -= 1
        if not self.left:
            end(name)


def consolidate(root: Path, nth: int) -> None:
    """Consolidate twenty Episodes and undo it, until the nth moment of all that."""

    async def run() -> None:
        async with open_root.opened(root) as opened:
            await reflecting.scatter(opened, ANDREW, range(N_FIRST))
            await opened.settled()
            countdown = Countdown(nth)
            opened.pen._context.step = countdown
            mind = reflecting.over(opened, countdown)
            await mind.run()
            await mind.rollback((await mind.narrative()).entry_id)

    asyncio.run(run())


def step_on(root: Path, nth: int, known: list[str], out: multiprocessing.connection.Connection) -> None:
    """Tell what is wrong, then go on with what the killed one was at, until reflection's nth moment, or one not in `known`."""

    def step(name: str) -> None:
        nonlocal nth
        nth -= 1
        if not nth or (nth < 0 and name not in known):
            out.send(name)
            end()

    async def run() -> None:
        is_first = not (root / "default_app").exists()
        async with open_root.opened(root) as opened:
            if is_first:
                await reflecting.scatter(opened, ANDREW, range(N_FIRST))
                await opened.settled()
            mind = reflecting.over(opened, step)
            out.send(await reflecting.wrongs(mind, STATEMENTS, is_finished=False))
            reports = await mind.reports()
            if known and reports and reports[0].status == "completed":
                await mind.rollback(reports[0].merged_entry_id)
            elif nth % 2:
                await mind.reflection.recover()
            await mind.run()
            wrong = await reflecting.wrongs(mind, STATEMENTS, is_finished=True)
            differences = (await verify.verify(opened.node.cascade)).differences
            out.send([*wrong, *map(str, differences), *([] if len(await mind.reports()) == 1 else ["several reports"])])

    asyncio.run(run())


def look(root: Path, numbers: range, out: multiprocessing.connection.Connection) -> None:
    """Tell what is wrong before, and after, what was begun is finished."""

    async def run() -> list[str]:
        statements = [shop(number) for number in numbers]
        async with open_root.opened(root) as opened:
            mind = reflecting.over(opened)
            wrong = await reflecting.wrongs(mind, statements, is_finished=False)
            await mind.reflection.recover()
            wrong += await reflecting.wrongs(mind, statements, is_finished=True)
            await mind.run()
            return wrong + await reflecting.wrongs(mind, statements, is_finished=True)

    out.send(asyncio.run(run()))


def go_on(root: Path, round_: int, out: multiprocessing.connection.Connection) -> None:
    """Look at what the killed one left, finish it, and consolidate and undo more until this one is killed, too."""

    async def run() -> None:
        numbers = range(round_ * N_MORE)
        async with open_root.opened(root) as opened:
            mind = reflecting.over(opened)
            statements = [shop(number) for number in numbers]
            wrong = await reflecting.wrongs(mind, statements, is_finished=False)
            await mind.reflection.recover()
            wrong += await reflecting.wrongs(mind, statements, is_finished=True)
            cluster_id = f"cl_{round_ // N_ROUNDS:012}"
            more = range(numbers.stop, numbers.stop + N_MORE)
            await reflecting.scatter(opened, ANDREW, more, cluster=cluster_id)
            await opened.settled()
            out.send(wrong)
            await mind.run()
            if round_ % 3 == 0:
                (made,) = [
                    one for one in await mind.live() if (one.parent_type, one.parent_id) == ("cluster", cluster_id)
                ]
                await mind.rollback(made.entry_id)
            await mind.run()
            await asyncio.sleep(60)

    asyncio.run(run())


def settle(root: Path) -> None:
    """Let files look untouched: the killed process need not be waited for."""
    for path in root.rglob("*.md"):
        steps.age(path)


def looked_at(root: Path, numbers: range) -> list[str]:
    """Return what another process says is wrong."""
    settle(root)
    ours, theirs = FORKS.Pipe(duplex=False)
    process = FORKS.Process(target=look, args=(root, numbers, theirs))
    process.start()
    theirs.close()
    found: list[str] = ours.recv()
    process.join()
    return found


def stepped(root: Path, nth: int, known: list[str]) -> str:
    """Have another process step on; return at which moment it was killed; empty: it did all there was to do."""
    settle(root)
    ours, theirs = FORKS.Pipe(duplex=False)
    process = FORKS.Process(target=step_on, args=(root, nth, known, theirs))
    process.start()
    theirs.close()
    assert [] == ours.recv()
    said = ours.recv()
    process.join()
    assert (0 if isinstance(said, list) else -signal.SIGKILL) == process.exitcode
    assert isinstance(said, str) or [] == said
    return said if isinstance(said, str) else ""


@pytest.mark.timeout(120)
def test_R01_killed_at_each_step_of_a_merge_of_twenty(tmp_path: Path) -> None:
    """And again while that is being finished: never deprecated without a live successor, no fact lost or doubled, one narrative.

    Then the same of its undoing.
    """
    seen: list[str] = []
    while name := stepped(tmp_path, len(seen) + 1, []):
        seen.append(name)
    assert [
        "committed",
        "facts",
        "pointed",
        "pointed",
        "sources",
        "pointed",
        "pointed",
        "source_facts",
        "completed",
    ] == seen
    while name := stepped(tmp_path, 0, seen):
        seen.append(name)
    assert ["rolled_back", "retiring", "retired", "revived", "sources_restored", "restored"] == seen[9:]


@pytest.mark.parametrize("nth", range(1, 83) if effort.IS_FULL else (2, 18, 36, 69))
def test_R01_M16_killed_between_two_steps_of_the_writer(tmp_path: Path, nth: int) -> None:
    """Of a merge of twenty or of its undoing: what is said is said, and the next start finishes the rest."""
    process = FORKS.Process(target=consolidate, args=(tmp_path, nth))
    process.start()
    process.join()
    assert -signal.SIGKILL == process.exitcode
    assert [] == looked_at(tmp_path, range(N_FIRST))


@pytest.mark.skipif(not CRASHES, reason="make crash")
@pytest.mark.timeout(60 + 12 * CRASHES)
def test_R01_killed_at_random_moments(tmp_path: Path) -> None:
    """Each round finds everything that was ever said, once, finishes what the one before had begun, and is killed itself."""
    chance = random.Random(20261130)  # noqa: S311  # the same moments each time, as far as a machine can
    for round_ in range(CRASHES):
        ours, theirs = FORKS.Pipe(duplex=False)
        process = FORKS.Process(target=go_on, args=(tmp_path, round_, theirs))
        process.start()
        theirs.close()
        wrong = ours.recv()
        assert process.pid is not None
        latest_s = LATEST_S * (1 + (round_ % 3 == 0))  # it undoes what it did, too
        killer = threading.Timer(chance.uniform(0, latest_s), os.kill, (process.pid, signal.SIGKILL))
        killer.start()
        killer.join()
        process.join()
        assert [] == wrong, f"round {round_}"
        settle(tmp_path)
    assert [] == looked_at(tmp_path, range(CRASHES * N_MORE))
