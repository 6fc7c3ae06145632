"""Kill -9 during appends: what was acknowledged is there."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from everosd.log import entry
from tests import effort, steps
from tests.unit import test_writer as unit


def append_until_killed(root: Path, out: int) -> None:
    """Append for ever, from several callers, and write each acknowledged id to a pipe."""

    async def run() -> None:
        node = unit.Node(root)
        await node.writer.recover()

        async def caller(name: int) -> None:
            for nth in range(10_000):
                ids = await node.append(f"{name}.{nth}")
                rows = await node.writer.append(
                    unit.SESSION, "message", [entry.Draft(sections=(("Text", "x"),))], date=unit.DAY
                )
                os.write(out, f"{ids[0]} {rows[0]}\n".encode())

        await asyncio.gather(*(caller(name) for name in range(4)))

    asyncio.run(run())


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_C04_kill_in_a_loop_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """Rounds of kill -9 at random moments during appends (200 of them with `make long`): every acknowledged entry is there, once, and whole."""
    acknowledged: list[str] = []
    for nth in range(effort.rounds(200, 40)):
        source, sink = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(source)
            try:
                append_until_killed(tmp_path, sink)
            finally:
                os._exit(1)
        os.close(sink)
        with os.fdopen(source) as lines:
            first = lines.readline()
            killer = threading.Timer((nth % 20) / 1000, os.kill, (pid, 9))
            killer.start()
            acknowledged += [word for line in (first, *lines) if line.endswith("\n") for word in line.split()]
            killer.join()
        os.waitpid(pid, 0)
        for written in tmp_path.rglob("*.md"):
            # What the killed process wrote last need not settle first.
            steps.age(written)
    node = unit.Node(tmp_path)
    asyncio.run(node.writer.recover())
    path = node.writer.layout.path_for(unit.SESSION, "message", unit.DAY)
    ids = [each.id for each in (*node.parsed().entries, *node.parsed(path).entries)]
    assert len(acknowledged) >= 400
    assert set(acknowledged) - set(ids) == set()
    assert len(ids) == len(set(ids))
    assert list(node.path().parent.iterdir()) == [node.path()]
