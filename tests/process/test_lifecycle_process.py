"""Passes of the real daemon: kill -9 in the middle, `run_lifecycle` by a trigger, tables that are saved while it runs."""

from __future__ import annotations

import collections
import datetime as dt
import re
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from tests import effort
from tests.process.conftest import wait_for

if TYPE_CHECKING:
    from tests.process.conftest import Daemon

N_MEMORIES = effort.rounds(6000, 1200)
LOG = "default_app/default_project/users/mara/.lifecycle"


def write(root: Path, n: int = N_MEMORIES, *, memory_type: str = "working", days_old: int = 9) -> None:
    """Write so many memories of mara, all of them of one day."""
    at = dt.datetime.now(dt.UTC) - dt.timedelta(days=days_old)
    entries = [
        f"<!-- entry:mem_20260101_{nth:08} -->\n## mem_20260101_{nth:08}\n\n**timestamp**: {at.isoformat()}\n"
        f"**memory_type**: {memory_type}\n\n### Content\nnote number {nth} about boats\n"
        f"<!-- /entry:mem_20260101_{nth:08} -->\n"
        for nth in range(n)
    ]
    head = "---\nid: memory_log_mara\ntype: memory_daily\nuser_id: mara\ndate: '2026-01-01'\n---\n"
    folder = root / "default_app/default_project/users/mara/memories/notes"
    folder.mkdir(parents=True)
    (folder / f"{memory_type}-2026-01-01.md").write_text(head + "".join(entries), encoding="utf-8")


def reflect(client: httpx.Client, **body: object) -> dict[str, Any]:
    """Make a pass."""
    asked = {"user_id": "mara", "actions": ["archive"], "limit": 100_000, "force": True} | body
    answer = client.post("/api/v1/memory/reflect", json=asked, timeout=120)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()["data"]
    return found


def archived(root: Path) -> collections.Counter[str]:
    """Return how often each memory is archived in the log."""
    text = "".join(path.read_text(encoding="utf-8") for path in sorted((root / LOG).glob("*.md")))
    return collections.Counter(re.findall(r"\*\*action\*\*: archive\n\*\*target\*\*: (\S+)", text))


def test_a_pass_that_was_killed_is_finished_by_the_next_and_nothing_is_done_twice(daemon: Daemon) -> None:
    """Kill -9 while rows are being appended: what is on disk counts, the rest is due, each memory has one row."""
    write(daemon.root)
    client = daemon.start()
    daemon.wait_ready(60)

    def ask() -> None:
        try:
            reflect(httpx.Client(base_url=client.base_url))
        except httpx.TransportError:
            return

    asking = threading.Thread(target=ask)
    asking.start()
    wait_for(lambda: sum(archived(daemon.root).values()) or None, "the first rows", 60)
    daemon.signal(signal.SIGKILL)
    daemon.wait()
    asking.join()
    n_before = len(archived(daemon.root))
    assert n_before < N_MEMORIES
    client = daemon.start()
    daemon.wait_ready(60)
    assert N_MEMORIES - n_before == reflect(client)["actions"][0]["counts"]["apply"]
    assert {f"mem_20260101_{nth:08}": 1 for nth in range(N_MEMORIES)} == dict(archived(daemon.root))
    assert 0 == reflect(client)["actions"][0]["counts"]["apply"]
    assert [] == daemon.search("boats", "mara")
    assert daemon.search("boats", "mara", include_status=["archived"])


def test_run_lifecycle_is_off_and_runs_by_a_trigger(daemon: Daemon) -> None:
    """A dry run shows what it would do, `force` does it; tables saved meanwhile are those of the next run."""
    write(daemon.root, 12, memory_type="semantic")
    client = daemon.start()
    asked = {"name": "run_lifecycle", "timeout": 60}
    assert "not_dispatched" == client.post("/api/v1/ome/trigger", json=asked).json()["status"]
    dry = client.post("/api/v1/ome/trigger", json=asked | {"force": True, "dry_run": True}).json()
    (owner,) = dry["runs"][0]["result"]["owners"]
    assert ("mara", 0) == (owner["owner_id"], owner["actions"][4]["counts"]["apply"])
    (daemon.root / "everos.toml").write_text("[lifecycle]\nmax_share = 1.0\n[lifecycle.retention]\nsemantic = 9\n")

    def would_archive() -> bool:
        shown = client.post("/api/v1/ome/trigger", json=asked | {"force": True, "dry_run": True}).json()
        return bool(shown["runs"][0]["result"]["owners"][0]["actions"][4]["counts"]["apply"] == 12)

    wait_for(would_archive, "the table that was saved")
    real = client.post("/api/v1/ome/trigger", json=asked | {"force": True}).json()
    assert ("ok", "1 owner: archive 12") == (real["status"], real["runs"][0]["result"])
    assert [] == daemon.search("boats", "mara")
    (status,) = [
        one for one in client.get("/api/v1/ome/strategies").json()["data"]["items"] if one["name"] == "run_lifecycle"
    ]
    assert (False, None) == (status["enabled"], status["cron"])
    (daemon.root / "ome.toml").write_text('[strategies.run_lifecycle]\nenabled = true\npreset = "daily"\n')

    def next_fire() -> str | None:
        items = client.get("/api/v1/ome/strategies").json()["data"]["items"]
        found: str | None = next(one["next_fire_time"] for one in items if one["name"] == "run_lifecycle")
        return found

    assert "T03:00:00Z" in wait_for(next_fire, "the preset to be in force")
