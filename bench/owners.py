"""Reflection over very many owners: how long a run takes that finds nothing to do, and that it writes nothing.

Each owner has ten topics, each consolidated: three fragments, deprecated, and the narrative that stands for them.
"""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from bench import daemon
from bench.table import Figure

N_OWNERS, N_CLUSTERS, N_FRAGMENTS = 1_000, 10, 3
RUN_S = 2.0
"""DESIGN: with nothing to do a run takes less, and writes nothing."""
DAY = dt.date(2026, 3, 2)
EXTRACTIVE = {**daemon.WITHOUT_MODEL, "EVEROS_REFLECTION__MERGE": "extractive"}


def idle_run(folder: Path) -> Iterator[Figure]:
    """Measure runs that find nothing to do, the first and the following ones."""
    root = folder / "owners"
    make(root)
    one = daemon.Daemon(root, EXTRACTIVE)
    one.start()
    try:
        client = daemon.Client(one.port, timeout_s=600)
        while not client.is_ready():
            time.sleep(0.1)
        before = _state(root)
        size = f"{N_OWNERS * N_CLUSTERS * (N_FRAGMENTS + 1):,}"
        what = f"{N_OWNERS:,} owners, {N_CLUSTERS} clusters each"
        for name in ("reflection, nothing to do", "reflection, nothing to do, again"):
            took_s = _run(client)
            yield Figure(name=name, size=size, value=took_s, unit="s", budget=RUN_S, note=what)
        n_changed = len(before.items() ^ _state(root).items())
        yield Figure(name="files written by it", size=size, value=n_changed, unit="files", budget=0)
    finally:
        one.stop()


def _run(client: daemon.Client) -> float:
    began_s = time.perf_counter()
    answer = client.request("POST", "/api/v1/ome/trigger", {"name": "reflect_episodes", "timeout": 300, "force": True})
    took_s = time.perf_counter() - began_s
    runs = msgspec.convert(answer["runs"], list[dict[str, object]])
    if answer["status"] != "ok" or [run["result"] for run in runs] != ["nothing to consolidate"]:
        msg = f"the run did otherwise than nothing: {answer}"
        raise daemon.Failed(msg)
    return took_s


def _state(root: Path) -> dict[str, tuple[int, int]]:
    """Return size and time of every file of the memory."""
    found = ((path, path.stat()) for path in (root / "default_app").rglob("*.md"))
    return {str(path): (stat.st_size, stat.st_mtime_ns) for path, stat in found}


def make(root: Path, n_owners: int = N_OWNERS) -> None:
    """Write the root."""
    for nth in range(n_owners):
        owner = f"owner_{nth:04}"
        user = root / "default_app" / "default_project" / "users" / owner
        for folder in ("episodes", ".clusters"):
            (user / folder).mkdir(parents=True, exist_ok=True)
        (user / "episodes" / f"episode-{DAY}.md").write_text(_episodes(owner), encoding="utf-8")
        (user / ".clusters" / f"cluster-{DAY}.md").write_text(_rows(owner), encoding="utf-8")


def _id(prefix: str, nth: int) -> str:
    return f"{prefix}_{DAY:%Y%m%d}_{nth + 1:08}"


def _head(owner: str, kind: str, n_entries: int, pointers: str = "") -> str:
    return (
        f"---\nid: {kind}_log_{owner}_{DAY}\ntype: {kind}_daily\nfile_type: {kind}_daily\nschema_version: 1\nuser_id: {owner}\n"
        f"track: user\ndate: '{DAY}'\nentry_count: {n_entries}\nlast_appended_at: '{DAY}T20:00:00+00:00'\n{pointers}---\n"
    )


def _episodes(owner: str) -> str:
    step = N_FRAGMENTS + 1
    entries, pointers = [], ["deprecated_entries:\n"]
    for nth in range(N_CLUSTERS * step):
        cluster, place = divmod(nth, step)
        is_narrative = place == N_FRAGMENTS
        origin = (
            f"cluster\n**parent_id**: cl_{cluster:012x}\n**report_id**: {_report(owner, cluster)}"
            if is_narrative
            else "memcell"
        )
        if not is_narrative:
            pointers.append(f"  {_id('ep', nth)}: {_id('ep', cluster * step + N_FRAGMENTS)}\n")
        entries.append(
            f"<!-- entry:{_id('ep', nth)} -->\n## {_id('ep', nth)}\n\n**owner_id**: {owner}\n**timestamp**: {DAY}T{place:02}:00:00+00:00\n"
            f"**parent_type**: {origin}\n\n### Subject\nTopic {cluster}\n\n### Content\nPart {place} of topic {cluster} of {owner}.\n"
            f"<!-- /entry:{_id('ep', nth)} -->\n"
        )
    return _head(owner, "episode", len(entries), "".join(pointers)) + "".join(entries)


def _report(owner: str, cluster: int) -> str:
    return f"{int(owner.rpartition('_')[2]) * N_CLUSTERS + cluster:032x}"


def _rows(owner: str) -> str:
    step = N_FRAGMENTS + 1
    rows: list[dict[str, str]] = []
    for cluster in range(N_CLUSTERS):
        ids = [_id("ep", cluster * step + place) for place in range(N_FRAGMENTS)]
        named = {"cluster_id": f"cl_{cluster:012x}"}
        rows += [{"event": "joined", **named, "member_id": one, "member_type": "episode"} for one in ids]
        members = [{"member_id": one, "member_type": "episode"} for one in ids]
        completed = {"event": "completed", **named, "report_id": _report(owner, cluster), "mode": "init"}
        completed |= {"source_members": json.dumps(members), "source_count": str(len(ids))}
        completed |= {"merged_entry_id": _id("ep", cluster * step + N_FRAGMENTS), "deprecated_fact_count": "0"}
        rows.append(completed)
    text = [_head(owner, "cluster", len(rows))]
    for nth, row in enumerate(rows):
        fields = "".join(
            f"**{key}**: {value}\n" for key, value in {"timestamp": f"{DAY}T21:00:00+00:00", **row}.items()
        )
        text.append(
            f"<!-- entry:{_id('ca', nth)} -->\n## {_id('ca', nth)}\n\n{fields}<!-- /entry:{_id('ca', nth)} -->\n"
        )
    return "".join(text)
