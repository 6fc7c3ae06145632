"""The measurements: each yields figures, drives the daemon over HTTP, and leaves nothing running."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench import baseline, daemon, roots, searching, table, text
from bench.table import Figure

INGEST_TIMEOUT_S = 600.0
EDIT_ROUNDS = 40
QUERY_ROUNDS = 400
IDLE_S = 20.0
WORDS = itertools.count(40_000_000)
"""Numbers of words that no root holds yet: what an edit writes and a search then finds."""


def cold_start(folder: Path) -> Iterator[Figure]:
    """Start on an empty root, with the built-in model: time, memory, and a stop.

    Installers compile what they install. A tree that is worked on is compiled by its first start, or by every one where
    `PYTHONDONTWRITEBYTECODE` is set; so the start is measured as installed, and as this environment has it.
    """
    installed = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
    _empty_start(folder / "compiling", {**daemon.BUILTIN, **installed})
    for name, settings in (("", installed), (", as this environment has it", {})):
        found = [_empty_start(folder / f"empty{len(settings)}-{n}", {**daemon.BUILTIN, **settings}) for n in range(3)]
        healthy, cpu, rss, stop = zip(*found, strict=True)
        yield Figure(
            name=f"start to healthy, empty root{name}",
            value=min(healthy),
            unit="s",
            budget=0.7,
            note=f"worst of 3: {max(healthy):.2f} s; {min(cpu):.2f} s of CPU",
        )
        yield Figure(name=f"resident memory, empty root{name}", value=max(rss), unit="MB", budget=80)
        yield Figure(name=f"stop at idle{name}", value=min(stop), unit="s", budget=2.0)


def _empty_start(root: Path, settings: daemon.Settings) -> tuple[float, float, float, float]:
    """Return seconds to healthy, seconds of CPU until then, MB resident a second later, and seconds that a stop takes."""
    root.mkdir()
    served = daemon.Daemon(root, settings)
    try:
        healthy = served.start()
        cpu = served.cpu_s()
        time.sleep(1.0)
        return healthy, cpu, served.rss_mb(), served.stop()
    finally:
        served.stop()


def root_of(folder: Path, n_entries: int) -> Iterator[Figure]:
    """Everything that is measured on a root of `n_entries`: ingest, memory, search, edits, restart, rebuild, idle."""
    size, root = f"{n_entries:,}", folder / f"root{n_entries}"
    n_users = 20 if n_entries >= 100_000 else 4
    with daemon.running(root, daemon.WITHOUT_MODEL) as served:
        client = served.client()
        made, figures = _ingest(client, root, n_entries, n_users)
        yield from figures
        for item in random.Random(1).sample(made.items, 50):
            if not client.has(item.user, item.word):
                msg = f"{item.word} of {item.path} is not found after the ingest"
                raise daemon.Failed(msg)
        yield from _searches(served, made, size)
        yield Figure(
            name="resident memory",
            size=size,
            value=served.rss_mb(),
            unit="MB",
            budget=150 if n_entries <= 10_000 else None,
        )
        yield from _edits(client, root, made, size)
        yield from _idle(served, size)
        yield from _rebuild(client, root, n_entries)
        yield Figure(
            name=".index/ on disk",
            size=size,
            value=daemon.tree_bytes(root / ".index") / made.n_bytes,
            unit="times the Markdown",
        )
    yield from _restart(root, made, size)


def _ingest(client: daemon.Client, root: Path, n_entries: int, n_users: int) -> tuple[roots.Made, list[Figure]]:
    """Write the root under the running daemon's eyes."""
    started = time.perf_counter()
    made = roots.write(root, n_entries, n_users=n_users)
    written = time.perf_counter() - started
    last = made.items[-1]

    def is_done() -> bool:
        return client.pending() == 0 and client.status()["entries"] == n_entries and client.has(last.user, last.word)

    daemon.wait_until(is_done, timeout_s=INGEST_TIMEOUT_S, what=f"{n_entries} entries to be searchable", pause_s=0.01)
    took = time.perf_counter() - started
    budget = 4.0 if n_entries == 10_000 else None
    note = f"{made.n_files} files, {made.n_bytes / 1e6:.1f} MB, writing them alone took {written:.2f} s"
    return made, [
        Figure(
            name="files written → all searchable", size=f"{n_entries:,}", value=took, unit="s", budget=budget, note=note
        )
    ]


def _searches(served: daemon.Daemon, made: roots.Made, size: str) -> Iterator[Figure]:
    """Keyword search with one client and with eight, and the bare round trip beside it."""
    searching.latencies(served, searching.questions(made, 30))
    one = searching.latencies(served, searching.questions(made, QUERY_ROUNDS))
    yield Figure(
        name="keyword search, 1 client, p50",
        size=size,
        value=table.quantile(one, 0.5) * 1000,
        unit="ms",
        budget=2.0 if len(made.items) <= 10_000 else None,
        note=f"p95 {table.quantile(one, 0.95) * 1000:.2f} ms",
    )
    client = served.client()
    trips = [daemon.wait_until(lambda: bool(client.health()), timeout_s=5, what="health") for _ in range(200)]
    yield Figure(
        name="GET /health, p50 (the round trip)", size=size, value=table.quantile(trips, 0.5) * 1000, unit="ms"
    )
    samples, rate = searching.at_once(served, searching.questions(made, QUERY_ROUNDS * 2))
    yield Figure(
        name="keyword search, 8 clients, p95",
        size=size,
        value=table.quantile(samples, 0.95) * 1000,
        unit="ms",
        budget=40,
        note=f"p50 {table.quantile(samples, 0.5) * 1000:.1f} ms, {rate:,.0f} searches a second (clients share the cores)",
    )


def _edits(client: daemon.Client, root: Path, made: roots.Made, size: str) -> Iterator[Figure]:
    """Change one word of one file as editors do, and wait for the new word."""
    commit_ms = baseline.commit_ms(root.with_name("commits"))
    for how, save, budget_50, budget_95 in (("rename", by_rename, 30, 80), ("in place", in_place, 80, 150)):
        samples = [_edit(client, root, made, save, number) for number in range(EDIT_ROUNDS)]
        name, p50, p95 = f"edit → found, {how}", table.quantile(samples, 0.5), table.quantile(samples, 0.95)
        note = f"{p50 / commit_ms:.1f} times a bare Tantivy commit, which took {commit_ms:.0f} ms just before"
        yield Figure(name=f"{name}, p50", size=size, value=p50, unit="ms", budget=budget_50, note=note)
        yield Figure(name=f"{name}, p95", size=size, value=p95, unit="ms", budget=budget_95)


def _edit(
    client: daemon.Client, root: Path, made: roots.Made, save: Callable[[Path, bytes], None], number: int
) -> float:
    """Return the milliseconds from the save to the first search that finds it."""
    dice = random.Random(f"{save.__name__} {number}")
    item, word = dice.choice(made.items), text.word(next(WORDS))
    path = root / item.path
    before = path.read_bytes()
    place = before.index(b"The key word is", before.index(f"entry:{item.entry_id} ".encode()))
    changed = before[:place] + f"Edited: {word}. ".encode() + before[place:]
    time.sleep(dice.uniform(0.05, 0.3))
    started = time.perf_counter()
    save(path, changed)
    daemon.wait_until(lambda: client.has(item.user, word), timeout_s=30, what=f"the edit of {item.path}", pause_s=0.003)
    return (time.perf_counter() - started) * 1000


def by_rename(path: Path, data: bytes) -> None:
    """Save as most editors do: a new file, renamed over the old one."""
    temporary = path.with_name(f".{path.name}.tmp.bench")
    temporary.write_bytes(data)
    temporary.replace(path)


def in_place(path: Path, data: bytes) -> None:
    """Save as the others do: truncate, write, close."""
    path.write_bytes(data)


def _idle(served: daemon.Daemon, size: str) -> Iterator[Figure]:
    """Leave it alone and look at what it does."""
    time.sleep(3.0)
    cpu, written = served.cpu_s(), served.written_bytes()
    time.sleep(IDLE_S)
    share = (served.cpu_s() - cpu) / IDLE_S * 100
    yield Figure(name=f"idle for {IDLE_S:.0f} s: CPU", size=size, value=share, unit="% of a core", budget=0.5)
    yield Figure(
        name="idle: written to disk", size=size, value=served.written_bytes() - written, unit="bytes", budget=0
    )


def _rebuild(client: daemon.Client, root: Path, n_entries: int) -> Iterator[Figure]:
    """Rebuild by the command, which asks the running daemon."""
    started = time.perf_counter()
    done = subprocess.run([daemon.installed(), "rebuild", "--root", root], capture_output=True, check=False)
    if done.returncode:
        msg = f"everosd rebuild ended with {done.returncode}: {done.stderr[-500:]!r}"
        raise daemon.Failed(msg)
    daemon.wait_until(lambda: client.pending() == 0, timeout_s=INGEST_TIMEOUT_S, what="the rebuild", pause_s=0.01)
    budget = 60.0 if n_entries == 100_000 else None
    yield Figure(name="rebuild", size=f"{n_entries:,}", value=time.perf_counter() - started, unit="s", budget=budget)


def _restart(root: Path, made: roots.Made, size: str) -> Iterator[Figure]:
    """Start on the full root: time to healthy and to the first right answer."""
    served = daemon.Daemon(root, daemon.WITHOUT_MODEL)
    try:
        started = time.perf_counter()
        healthy = served.start()
        client, item = served.client(), made.items[len(made.items) // 2]
        daemon.wait_until(lambda: client.has(item.user, item.word), timeout_s=60, what="an answer after the restart")
        answered = time.perf_counter() - started
        yield Figure(name="restart to healthy", size=size, value=healthy, unit="s", budget=1.0)
        yield Figure(name="restart to first answer", size=size, value=answered, unit="s")
        daemon.wait_until(client.is_ready, timeout_s=120, what="the start-up comparison", pause_s=0.01)
        note = "compared with the disk, nothing changed"
        yield Figure(name="restart to all checked", size=size, value=time.perf_counter() - started, unit="s", note=note)
    finally:
        served.stop()


def large_file(folder: Path) -> Iterator[Figure]:
    """One file of 19 MB with 20,000 entries: first read, a one-word edit, and health meanwhile."""
    root, size = folder / "large", "20,000"
    with daemon.running(root, daemon.WITHOUT_MODEL) as served:
        client = served.client()
        source = folder / "large-source"
        made = roots.write(source, 20_000, n_users=1, per_file=20_000, n_bytes=930)
        item, path = made.items[-1], root / made.items[-1].path
        path.parent.mkdir(parents=True)
        data = (source / item.path).read_bytes()
        time.sleep(0.5)
        with _health_watch(served) as waits:
            started = time.perf_counter()
            by_rename(path, data)
            daemon.wait_until(
                lambda: client.has(item.user, item.word), timeout_s=300, what="the 19 MB file", pause_s=0.01
            )
            first = time.perf_counter() - started
        note = f"{len(data) / 1e6:.1f} MB in one file"
        yield Figure(name="19 MB file: first read", size=size, value=first, unit="s", budget=8.0, note=note)
        yield Figure(
            name="19 MB file: slowest /health meanwhile", size=size, value=max(waits) * 1000, unit="ms", budget=200
        )
        daemon.wait_until(lambda: client.pending() == 0, timeout_s=300, what="the 19 MB file to settle", pause_s=0.01)
        times, slowest = [], 0.0
        for number in range(3):
            word = text.word(next(WORDS))
            data = data.replace(
                f"key word is {made.items[10_000 + number].word}".encode(), f"key word was {word}".encode()
            )
            with _health_watch(served) as waits:
                times.append(_until_found(client, path, data, item.user, word))
            slowest = max(slowest, *waits)
        yield Figure(
            name="19 MB file: one-word edit found", size=size, value=table.quantile(times, 0.5), unit="s", budget=1.0
        )
        yield Figure(
            name="19 MB file: slowest /health meanwhile (edit)", size=size, value=slowest * 1000, unit="ms", budget=200
        )
        yield Figure(name="19 MB file: resident memory after", size=size, value=served.rss_mb(), unit="MB")


def _until_found(client: daemon.Client, path: Path, data: bytes, user: str, word: str) -> float:
    """Save `data` and return the seconds until `word` is found."""
    started = time.perf_counter()
    by_rename(path, data)
    daemon.wait_until(lambda: client.has(user, word), timeout_s=120, what="the one-word edit", pause_s=0.005)
    return time.perf_counter() - started


@contextlib.contextmanager
def _health_watch(served: daemon.Daemon) -> Iterator[list[float]]:
    """Ask for health every few milliseconds from a thread; the list fills with how long each answer took."""
    waits: list[float] = [0.0]
    is_over = threading.Event()

    def watch() -> None:
        client = served.client()
        while not is_over.is_set():
            started = time.perf_counter()
            client.health()
            waits.append(time.perf_counter() - started)
            is_over.wait(0.005)
        client.close()

    thread = threading.Thread(target=watch, name="health")
    thread.start()
    try:
        yield waits
    finally:
        is_over.set()
        thread.join()


def locomo(folder: Path, source: Path) -> Iterator[Figure]:
    """LoCoMo's questions by keyword: how often the session with the evidence is among the first."""
    root = folder / "locomo"
    with daemon.running(root, daemon.WITHOUT_MODEL) as served:
        client = served.client()
        started = time.perf_counter()
        made = roots.write_locomo(root, source)
        total = len(made.sessions) + len(made.turns)
        daemon.wait_until(
            lambda: client.pending() == 0 and client.status()["entries"] == total,
            timeout_s=120,
            what="LoCoMo to be searchable",
            pause_s=0.01,
        )
        took = time.perf_counter() - started
        yield Figure(name="LoCoMo: files written → all searchable", size=f"{total:,}", value=took, unit="s")
        ranks = [_rank(client, question) for question in made.questions]
    for k in (1, 5, 10):
        share = sum(1 for rank in ranks if rank < k) / len(ranks) * 100
        note = f"{len(ranks)} questions; an evidence session among the first {k}"
        yield Figure(name=f"LoCoMo: sessions, keyword, hit@{k}", size=f"{total:,}", value=share, unit="%", note=note)


def _rank(client: daemon.Client, question: roots.Question) -> int:
    """Return the 0-based place of the first episode with evidence; 1,000 where there is none."""
    wanted = {f"{question.user}_{entry_id}" for entry_id in question.episodes}
    for place, hit in enumerate(client.search(question.user, question.question, top_k=10)):
        if hit["id"] in wanted:
            return place
    return 1000


def make_way(folder: Path) -> None:
    """Make `folder` for the roots; bytes of an earlier run are not reused."""
    folder.mkdir(parents=True, exist_ok=True)
    os.sync()
