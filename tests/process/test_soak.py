"""Endless edits: nothing grows but the memory itself. `make soak` runs it for an hour; here it is seconds."""

from __future__ import annotations

import functools
import os
import time
from pathlib import Path

import pytest

from everosd.cli import demo
from tests.process import conftest

SOAK_S = float(os.environ.get("EVEROSD_SOAK_S", "10"))
GROWTH_BYTES = 30 * 2**20
"""Of resident memory after warm-up, however long it runs."""
INDEX_FACTOR = 3
INDEX_SLACK_BYTES = 2 * 2**20
"""For segments that wait to be merged."""


def size(folder: Path) -> int:
    """Return the bytes of a folder; files may vanish meanwhile, because segments are merged."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue
    return total


def resident(pid: int) -> int:
    """Return the resident memory of a process, bytes."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))


@pytest.mark.slow
@pytest.mark.timeout(SOAK_S * 2 + 120)
def test_X14_O09_endless_edits_grow_neither_memory_nor_index(daemon: conftest.Daemon, root: Path) -> None:
    """Under constant edits resident memory stays flat, the index stays a small multiple of a fresh one, and all agrees."""
    demo.make(root)
    daemon.start()
    assert daemon.process is not None
    pid = daemon.process.pid
    path = root / demo.EDITED
    text = path.read_text(encoding="utf-8")
    began_s, warm_bytes, n = time.monotonic(), 0, 0
    while (age_s := time.monotonic() - began_s) < SOAK_S:
        n += 1
        beside = path.with_name(".soak.tmp")
        beside.write_text(text.replace("180 grams", f"soak{n}word grams"), encoding="utf-8")
        beside.replace(path)
        conftest.wait_for(functools.partial(daemon.search, f"soak{n}word", "lena"), f"edit {n}")
        if not warm_bytes and age_s > SOAK_S / 3:
            warm_bytes = resident(pid)
    grown = resident(pid) - warm_bytes
    assert grown < GROWTH_BYTES, f"{grown} bytes in {n} edits"
    assert daemon.search(f"soak{n - 1}word", "lena") == []
    used = size(root / ".index" / "text")
    done = conftest.run("rebuild", "--root", str(root))
    assert done.returncode == 0, done.stderr
    assert used < INDEX_FACTOR * size(root / ".index" / "text") + INDEX_SLACK_BYTES
    assert conftest.run("verify", "--root", str(root)).returncode == 0
