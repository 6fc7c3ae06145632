"""Passes over 100,000 typed memories of one owner: how long a dry run takes, and what searches feel of a real one.

Half of the memories is due: a fifth of it for the archive, the rest for a step of decay or more.
"""

from __future__ import annotations

import datetime as dt
import random
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from bench import daemon, roots, searching, table, text
from bench.table import Figure

N_MEMORIES = 100_000
PER_FILE = 50
USER = "user000"
DRY_S = 3.0
SEARCH_P95_MS = 40.0
"""A search beside other work, as with eight clients at once."""
FILTERS: tuple[tuple[str, dict[str, str]], ...] = (
    ("no filter", {}),
    ("a type", {"memory_type": "semantic"}),
    ("a path", {"path_filter": "topic7/n0"}),
    ("paths below one", {"path_filter": "topic7/%"}),
    ("paths that end so", {"path_filter": "%/n0"}),
    ("a key", {"semantic_key": "key.4711"}),
    ("keys that begin so", {"semantic_key": "key.99%"}),
    ("half of all keys", {"semantic_key": "%1%"}),
)
"""What searches are bounded by; every memory has a key of its own."""
TIMEOUT_S = 3600.0
TYPES = (("semantic", 130), ("episodic", 40), ("procedural", 200), ("identity", 100), ("working", 8))
"""With how many days back they reach."""


def passes(folder: Path, n_memories: int = N_MEMORIES) -> Iterator[Figure]:
    """Measure a dry run, the searches before and during a real one, and that one."""
    root, size = folder / "lifecycle", f"{n_memories:,}"
    made = make(root, n_memories)
    with daemon.running(root, daemon.WITHOUT_MODEL) as served:
        client = daemon.Client(served.port, timeout_s=TIMEOUT_S)
        daemon.wait_until(client.is_ready, timeout_s=TIMEOUT_S, what="the memories to be read", pause_s=0.2)
        before_s = served.cpu_s()
        yield from _filtered(client, searching.questions(made, 60), size)
        dry = [_timed(client, dry_run=True) for _ in range(3)]
        cpu_s = (served.cpu_s() - before_s) / len(dry)
        yield Figure(
            name="lifecycle, dry run of one owner",
            size=size,
            value=min(took for took, _ in dry),
            unit="s",
            budget=DRY_S,
            note=f"worst of 3: {max(took for took, _ in dry):.2f} s; {cpu_s:.2f} s of CPU each; {_said(dry[-1][1])}",
        )
        yield from _search("before", searching.latencies(served, searching.questions(made, 400)), size)
        real = _Real(served.port)
        real.start()
        samples: list[float] = []
        nth = 0
        while real.is_alive():
            samples += searching.latencies(served, searching.questions(made, 20, seed=100 + nth))
            nth += 1
            time.sleep(0.02)
        real.join()
        if real.error is not None:
            raise real.error
        yield from _search("while a real run goes on", samples, size, budget=SEARCH_P95_MS)
        yield Figure(
            name="lifecycle, real run with searches beside it",
            size=size,
            value=real.took_s,
            unit="s",
            note=f"{_said(real.answer)}; {len(samples):,} searches meanwhile",
        )
        yield Figure(name="resident memory after it", size=size, value=served.rss_mb(), unit="MB")
        again, answer = _timed(client, dry_run=True)
        if any(_counts(answer).values()):
            msg = f"a second pass would do something: {_said(answer)}"
            raise daemon.Failed(msg)
        yield Figure(name="lifecycle, dry run with nothing to do", size=size, value=again, unit="s", budget=DRY_S)


def _filtered(client: daemon.Client, pairs: Sequence[searching.Question], size: str) -> Iterator[Figure]:
    """Measure searches by what memories are filed under, a recall, and the stats."""
    for name, given in FILTERS:
        samples = [
            _took(client, "search", {"query": text, "method": "keyword", "top_k": 10, **given}) for _, text in pairs
        ]
        yield from _search(f"of {name}", samples, size)
    yield from _search(
        "of 1,500 tokens", [_took(client, "recall", {"query": text}) for _, text in pairs], size, name="recall"
    )
    began_s = time.perf_counter()
    client.request("GET", f"/api/v1/memory/stats?user_id={USER}")
    yield Figure(name="memory stats", size=size, value=time.perf_counter() - began_s, unit="s")


def _took(client: daemon.Client, route: str, body: dict[str, object]) -> float:
    began_s = time.perf_counter()
    client.request("POST", f"/api/v1/memory/{route}", {"user_id": USER, **body})
    return time.perf_counter() - began_s


class _Real(threading.Thread):
    """A real run, on a connection of its own."""

    def __init__(self, port: int) -> None:
        super().__init__(name="reflect")
        self._client = daemon.Client(port, timeout_s=TIMEOUT_S)
        self.took_s = 0.0
        self.answer: dict[str, object] = {}
        self.error: Exception | None = None

    def run(self) -> None:
        """Ask for it, and wait."""
        try:
            self.took_s, self.answer = _timed(self._client, dry_run=False)
        except (daemon.Failed, OSError) as error:
            self.error = error


def _timed(client: daemon.Client, *, dry_run: bool) -> tuple[float, dict[str, object]]:
    asked = {
        "user_id": USER,
        "actions": ["expire", "decay", "archive"],
        "limit": N_MEMORIES,
        "dry_run": dry_run,
        "force": True,
    }
    began_s = time.perf_counter()
    answer = client.request("POST", "/api/v1/memory/reflect", asked)
    took_s = time.perf_counter() - began_s
    return took_s, msgspec.convert(answer["data"], dict[str, object])


def _counts(answer: dict[str, object]) -> dict[str, int]:
    actions = msgspec.convert(answer["actions"], list[dict[str, object]])
    return {str(one["action"]): msgspec.convert(one["counts"], dict[str, int])["apply"] for one in actions}


def _said(answer: dict[str, object]) -> str:
    return ", ".join(f"{name} {n:,}" for name, n in _counts(answer).items())


def _search(
    when: str, samples: list[float], size: str, budget: float | None = None, *, name: str = "keyword search"
) -> Iterator[Figure]:
    for rank, share in (("p50", 0.5), ("p95", 0.95)):
        yield Figure(
            name=f"{name} {when}, {rank}",
            size=size,
            value=table.quantile(samples, share) * 1000,
            unit="ms",
            budget=budget if rank == "p95" else None,
        )


def make(root: Path, n_memories: int) -> roots.Made:
    """Write the memories of one owner, of every type, over the last days."""
    dice = random.Random(5)
    today = dt.datetime.now(dt.UTC).date()
    items: list[roots.Item] = []
    n_files = n_bytes = done = 0
    while done < n_memories:
        memory_type, reach = TYPES[n_files % len(TYPES)]
        date = today - dt.timedelta(days=1 + (n_files // len(TYPES)) % reach)
        path = f"topic{n_files % 40}/n{n_files // (len(TYPES) * reach)}"
        rel = f"default_app/default_project/users/{USER}/memories/{path}/{memory_type}-{date}.md"
        n_here = min(PER_FILE, n_memories - done)
        blocks = []
        for _ in range(n_here):
            done += 1
            entry_id, word = f"mem_{date:%Y%m%d}_{done:08d}", text.word(done)
            blocks.append(_memory(entry_id, memory_type, date, dice, word))
            items.append(roots.Item(user=USER, entry_id=entry_id, path=rel, word=word))
        content = roots.frontmatter(USER, date, n_here, file_type="memory_daily") + "".join(blocks)
        (root / rel).parent.mkdir(parents=True, exist_ok=True)
        (root / rel).write_text(content, encoding="utf-8", newline="")
        n_files += 1
        n_bytes += len(content.encode())
    return roots.Made(items=tuple(items), n_files=n_files, n_bytes=n_bytes)


def _memory(entry_id: str, memory_type: str, date: dt.date, dice: random.Random, word: str) -> str:
    moment = dt.datetime.combine(date, dt.time(8), dt.UTC)
    fields = [
        ("owner_id", USER),
        ("timestamp", moment.isoformat()),
        ("memory_type", memory_type),
        ("importance", f"{dice.randrange(30, 100) / 100}"),
        ("confidence", "0.8"),
        ("semantic_key", f"key.{int(entry_id[-8:])}"),
    ]
    if dice.random() < 0.05:
        fields.append(("expires_at", (moment + dt.timedelta(days=dice.randrange(1, 300))).isoformat()))
    sections = (("Subject", text.sentence(dice)), ("Content", f"{text.paragraph(dice, 250)} The key word is {word}."))
    return roots.entry(entry_id, sections, tuple(fields))
