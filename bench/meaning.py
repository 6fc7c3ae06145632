"""Vectors: how fast they come, what searching with them takes, what they cost, and what keyword search feels of them.

The provider is `bench.provider`, asked over HTTP; where the model itself matters, the built-in one. Searches "beside
the embedding call" are asked once before they are measured, so that the query cache has their vectors.
"""

from __future__ import annotations

import functools
import math
import subprocess
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path

from bench import daemon, provider, roots, searching, table, text
from bench.table import Figure

TIMEOUT_S = 600.0
ROUNDS = 300
"""Questions; fewer than the query cache keeps."""
DELAY_S = 0.5
"""Of the slow provider."""
BATCH, CONCURRENT = 10, 10
"""`batch_size` and `max_concurrent` as they are set by default."""
REAL_DELAY_S = 0.2
"""Of a provider that is as fast as they come."""
BACKLOG = 3000
N_BUILTIN = 100
"""Entries that the built-in model is waited for."""
BUILTIN_S = 45.0
"""How long the built-in model is watched at work on the others."""


def root_of(folder: Path, n_entries: int) -> Iterator[Figure]:
    """Everything on a root of `n_entries`: catching up, memory, disk, search, a provider that hangs, restart, rebuild."""
    size, root = f"{n_entries:,}", folder / f"meaning{n_entries}"
    with provider.running() as model:
        with daemon.running(root, model.settings) as served:
            client = served.client()
            daemon.wait_until(client.has_vectors, timeout_s=30, what="the model to be asked")
            if n_entries == 10_000:
                yield from _memory(served, root, "0", budget=80)
            made = yield from _caught_up(served, root, n_entries, model)
            yield from _memory(served, root, size, budget=150 if n_entries == 10_000 else None)
            yield from _searches(served, made, size)
            yield from _memory(served, root, f"{size}, searched", budget=150 if n_entries == 10_000 else None)
            if n_entries >= 100_000:
                yield from _rebuild(served, root, made, size, model)
            else:
                yield from _disturbed(served, root, made, size, model)
        yield from _restart(root, made, size, model)


def _write(root: Path, n_entries: int) -> roots.Made:
    is_many = n_entries >= 100_000
    return roots.write(root, n_entries, n_users=20 if is_many else 4, n_bytes=500 if is_many else 700)


def _is_searchable(client: daemon.Client, made: roots.Made) -> bool:
    last = made.items[-1]
    return client.status()["entries"] == len(made.items) and client.has(last.user, last.word)


def _caught_up(
    served: daemon.Daemon, root: Path, n_entries: int, model: provider.Provider
) -> Generator[Figure, None, roots.Made]:
    """Write the root and wait for its vectors; what is wanted of a provider without delay is our own part."""
    size, client = f"{n_entries:,}", served.client()
    cpu, before = served.cpu_s(), model.counts()
    started = time.perf_counter()
    made = _write(root, n_entries)
    daemon.wait_until(
        lambda: _is_searchable(client, made), timeout_s=TIMEOUT_S, what=f"{size} entries by keyword", pause_s=0.02
    )
    by_keyword = time.perf_counter() - started
    yield Figure(
        name="files written → all searchable by keyword, while vectors are made",
        size=size,
        value=by_keyword,
        unit="s",
        budget=4.0 if n_entries == 10_000 else None,
    )
    daemon.wait_until(client.has_vectors, timeout_s=TIMEOUT_S, what=f"the vectors of {size} entries", pause_s=0.02)
    took, after = time.perf_counter() - started, model.counts()
    n_texts, n_requests = after.n_texts - before.n_texts, after.n_requests - before.n_requests
    yield Figure(
        name="files written → all vectors there, provider without delay",
        size=size,
        value=took,
        unit="s",
        note=f"{n_texts:,} texts in {n_requests:,} requests, {(served.cpu_s() - cpu) / n_texts * 1000:.2f} ms of the "
        "daemon's CPU a text, its reading and words included",
    )
    client.close()
    return made


def _memory(served: daemon.Daemon, root: Path, size: str, *, budget: float | None) -> Iterator[Figure]:
    sdk_mb = _sdk_mb()
    yield Figure(
        name="resident memory with vectors, the provider's SDK apart",
        size=size,
        value=served.rss_mb() - sdk_mb,
        unit="MB",
        budget=budget,
        note=f"the SDK: {sdk_mb:.0f} MB",
    )
    for name in (".index/vectors", ".cache"):
        yield Figure(name=f"{name} on disk", size=size, value=daemon.tree_bytes(root / name) / 1e6, unit="MB")


@functools.cache
def _sdk_mb() -> float:
    """Return what the provider's SDK adds to a process that has NumPy already."""
    code = (
        "import os, numpy; at = lambda: int(open('/proc/self/statm').read().split()[1]) * os.sysconf('SC_PAGE_SIZE')\n"
        "before = at(); import openai; openai.AsyncOpenAI(api_key='x').embeddings; print(at() - before)"
    )
    return int(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout) / 1e6


def _searches(served: daemon.Daemon, made: roots.Made, size: str) -> Iterator[Figure]:
    """Each method with one client and with eight; the query cache has the vectors."""
    pairs = searching.questions(made, ROUNDS)
    first = searching.latencies(served, pairs, "hybrid")
    cached = searching.in_turns(served, pairs)
    is_held = len(made.items) == 10_000
    for method, budget in (("keyword", 2.0), ("vector", 3.0), ("hybrid", 4.0)):
        yield _quantile(
            f"{method} search, 1 client, p50", size, cached[method], 0.5, budget=budget if is_held else None
        )
    yield _quantile(
        "hybrid search, 1 client, query not asked before, p50", size, first, 0.5, note="the provider answers at once"
    )
    for method in searching.METHODS:
        cpu = served.cpu_s()
        samples, rate = searching.at_once(served, [*pairs, *pairs], method)
        cpu_ms = (served.cpu_s() - cpu) / len(samples) * 1000
        yield _quantile(
            f"{method} search, 8 clients, p95", size, samples, 0.95, budget=40 if is_held else None,
            note=f"{rate:,.0f} searches a second, {cpu_ms:.1f} ms of the daemon's CPU each",
        )  # fmt: skip


def _quantile(
    name: str, size: str, samples: Sequence[float], share: float, *, budget: float | None = None, note: str = ""
) -> Figure:
    other = 0.95 if share == 0.5 else 0.5
    beside = f"p{other * 100:.0f} {table.quantile(samples, other) * 1000:.2f} ms"
    return Figure(
        name=name,
        size=size,
        value=table.quantile(samples, share) * 1000,
        unit="ms",
        budget=budget,
        note=f"{beside}; {note}" if note else beside,
    )


def _disturbed(
    served: daemon.Daemon, root: Path, made: roots.Made, size: str, model: provider.Provider
) -> Iterator[Figure]:
    """Keyword search while the provider hangs, and while it works through a backlog, beside the same without."""
    client, pairs = served.client(), searching.questions(made, ROUNDS, seed=4)
    searching.latencies(served, pairs)
    calm = searching.latencies(served, pairs)
    model.behave(is_hanging=True)
    added = roots.write(root, BACKLOG, n_users=2, seed=8, first_user=500)
    wanted = len(made.items) + BACKLOG
    daemon.wait_until(
        lambda: client.status()["entries"] == wanted and client.has(added.items[-1].user, added.items[-1].word),
        timeout_s=60, what="the backlog by keyword", pause_s=0.02,
    )  # fmt: skip
    time.sleep(1.0)
    held = 2.0 if len(made.items) == 10_000 else None
    hanging = searching.latencies(served, pairs)
    yield _compared("keyword search while the provider hangs", size, hanging, calm, budget=held)
    slowest, n_degraded = _impatient(client, made)
    yield Figure(
        name="hybrid search while the provider hangs, slowest of 50",
        size=size,
        value=slowest,
        unit="s",
        note=f"{n_degraded} answered by keyword; the limit is query_timeout_seconds, 2 s",
    )
    model.behave(is_hanging=False, delay_s=REAL_DELAY_S)
    yield from _at_full_speed(served, model, pairs, calm, size)
    after = searching.latencies(served, pairs)
    yield _compared("keyword search afterwards (what the machine adds)", size, after, calm, budget=None)
    client.close()


def _at_full_speed(
    served: daemon.Daemon,
    model: provider.Provider,
    pairs: Sequence[searching.Question],
    calm: Sequence[float],
    size: str,
) -> Iterator[Figure]:
    """Search by keyword while the provider works: first in the time that one takes, then without any delay."""
    client = served.client()
    daemon.wait_until(lambda: _owed(client) < BACKLOG, timeout_s=120, what="the backlog to move", pause_s=0.02)
    for how, stop_at in ((f"{REAL_DELAY_S * 1000:.0f} ms a request", BACKLOG // 2), ("without delay", 0)):
        samples: list[float] = []
        while _owed(client) > stop_at:
            samples += searching.latencies(served, pairs[:25])
        if samples:
            yield _compared(f"keyword search while a backlog is embedded, {how}", size, samples, calm, budget=None)
        model.behave(delay_s=0)
    daemon.wait_until(client.has_vectors, timeout_s=120, what="the backlog", pause_s=0.02)
    client.close()


def _owed(client: daemon.Client) -> int:
    model = client.embedding()
    return 0 if model is None else model.owed


def _compared(name: str, size: str, samples: Sequence[float], calm: Sequence[float], *, budget: float | None) -> Figure:
    ratios = [table.quantile(samples, share) / table.quantile(calm, share) for share in (0.5, 0.95)]
    note = f"{ratios[0]:.2f} times the same without, p95 {ratios[1]:.2f} times; {len(samples)} searches"
    return _quantile(f"{name}, p50", size, samples, 0.5, budget=budget, note=note)


def _impatient(client: daemon.Client, made: roots.Made) -> tuple[float, int]:
    """Ask what was not asked before while nobody makes vectors; return the slowest answer and how many had none."""
    slowest, n_degraded = 0.0, 0
    for user, query in searching.questions(made, 50, seed=5):
        started = time.perf_counter()
        answer = client.answer(user, query, method="hybrid")
        slowest = max(slowest, time.perf_counter() - started)
        n_degraded += bool(answer.get("degraded"))
    return slowest, n_degraded


def _restart(root: Path, made: roots.Made, size: str, model: provider.Provider) -> Iterator[Figure]:
    """Start on the full root: to healthy, to words, to meaning; no text may be paid for twice."""
    served = daemon.Daemon(root, model.settings)
    item = made.items[len(made.items) // 2]
    before = model.counts()
    try:
        started = time.perf_counter()
        healthy = served.start()
        yield Figure(
            name="restart with vectors: to healthy",
            size=size,
            value=healthy,
            unit="s",
            budget=1.0,
            note=f"{served.cpu_s():.2f} s of CPU",
        )
        client = served.client()
        daemon.wait_until(lambda: client.has(item.user, item.word), timeout_s=60, what="an answer after the restart")
        by_words = time.perf_counter() - started

        def is_whole() -> bool:
            answer = client.answer(item.user, item.word, method="hybrid")
            return bool(answer.get("data")) and not answer.get("degraded")

        daemon.wait_until(is_whole, timeout_s=60, what="a hybrid answer after the restart")
        by_meaning = time.perf_counter() - started
        yield Figure(name="restart with vectors: to first answer by keyword", size=size, value=by_words, unit="s")
        yield Figure(name="restart with vectors: to first hybrid answer", size=size, value=by_meaning, unit="s")
        daemon.wait_until(lambda: client.is_ready() and client.has_vectors(), timeout_s=120, what="the comparison")
        time.sleep(1.0)
        model_now, after = client.embedding(), model.counts()
        yield Figure(
            name="restart with vectors: texts of entries asked for again",
            size=size,
            value=0 if model_now is None else model_now.requested,
            unit="texts",
            budget=0,
            note=f"the provider saw {after.n_texts - before.n_texts}: the query, and what tells the width",
        )
        yield from _first_touch(served, made, size)
    finally:
        served.stop()


def _first_touch(served: daemon.Daemon, made: roots.Made, size: str) -> Iterator[Figure]:
    """Search each user once whose vectors are still on disk alone."""
    client, samples = served.client(), []
    for user in sorted({item.user for item in made.items}):
        query = next(item.word for item in made.items if item.user == user)
        started = time.perf_counter()
        client.answer(user, query, method="vector")
        samples.append((time.perf_counter() - started) * 1000)
    client.close()
    n = len(made.items) // len(samples)
    yield Figure(
        name="vector search, a user's first after the start, slowest",
        size=size,
        value=max(samples),
        unit="ms",
        note=f"{n:,} vectors read",
    )


def _rebuild(
    served: daemon.Daemon, root: Path, made: roots.Made, size: str, model: provider.Provider
) -> Iterator[Figure]:
    """Rebuild by the command with all vectors in the cache."""
    client = served.client()
    before, cpu = model.counts(), served.cpu_s()
    started = time.perf_counter()
    done = subprocess.run([daemon.installed(), "rebuild", "--root", root], capture_output=True, check=False)
    if done.returncode:
        msg = f"everosd rebuild ended with {done.returncode}: {done.stderr[-500:]!r}"
        raise daemon.Failed(msg)
    daemon.wait_until(client.has_vectors, timeout_s=TIMEOUT_S, what="the rebuild", pause_s=0.02)
    took = time.perf_counter() - started
    n_users = len({item.user for item in made.items})
    yield Figure(
        name="rebuild with cached vectors",
        size=size,
        value=took,
        unit="s",
        budget=60.0 if len(made.items) == 100_000 else None,
        note=f"{n_users} users; {model.counts().n_texts - before.n_texts} texts asked for; {served.cpu_s() - cpu:.0f} s of CPU",
    )


def slow(folder: Path, n_entries: int) -> Iterator[Figure]:
    """A provider that takes half a second: keyword search has everything at once, vectors come as fast as they can."""
    size, root = f"{n_entries:,}", folder / f"slow{n_entries}"
    with provider.running(delay_ms=DELAY_S * 1000) as model, daemon.running(root, model.settings) as served:
        client = served.client()
        started = time.perf_counter()
        made = _write(root, n_entries)
        daemon.wait_until(
            lambda: _is_searchable(client, made), timeout_s=TIMEOUT_S, what=f"{size} entries by keyword", pause_s=0.02
        )
        by_keyword = time.perf_counter() - started
        daemon.wait_until(client.has_vectors, timeout_s=TIMEOUT_S, what=f"the vectors of {size} entries", pause_s=0.05)
        took, n_texts = time.perf_counter() - started, model.counts().n_texts
        least = math.ceil(n_texts / BATCH / CONCURRENT) * DELAY_S
        note = (
            f"{took / least:.2f} times the {least:.1f} s of {n_texts:,} texts by {BATCH}, {CONCURRENT} requests at once"
        )
        name = "provider takes 500 ms: files written →"
        yield Figure(
            name=f"{name} all searchable by keyword",
            size=size,
            value=by_keyword,
            unit="s",
            budget=4.0 if n_entries == 10_000 else None,
        )
        yield Figure(name=f"{name} all vectors there", size=size, value=took, unit="s", note=note)


def builtin(folder: Path) -> Iterator[Figure]:
    """The model that comes with everosd: passages a second, queries, and what searches feel of its work."""
    root, size = folder / "builtin", f"{N_BUILTIN + BACKLOG:,}"
    with daemon.running(root) as served:
        client = served.client()
        started = time.perf_counter()
        made = roots.write(root, N_BUILTIN)
        daemon.wait_until(client.has_vectors, timeout_s=180, what="the built-in model", pause_s=0.05)
        requested = _requested(client)
        took = time.perf_counter() - started
        yield Figure(
            name="built-in model: files written → all vectors there",
            size=f"{N_BUILTIN}",
            value=took,
            unit="s",
            note=f"{requested} passages, {requested / took:.1f} a second, its start included",
        )
        pairs = searching.questions(made, 60)
        searching.latencies(served, pairs[:10], "hybrid")
        calm = searching.latencies(served, pairs[10:], "hybrid")
        words = searching.latencies(served, [*pairs, *pairs, *pairs])
        yield _quantile("built-in model: hybrid search, query not asked before, p50", f"{N_BUILTIN}", calm, 0.5)
        added = roots.write(root, BACKLOG, n_users=2, seed=8, first_user=500)
        last = added.items[-1]
        daemon.wait_until(lambda: client.has(last.user, last.word), timeout_s=60, what="the backlog", pause_s=0.02)
        time.sleep(2.0)
        yield from _at_work(served, size, pairs, words, calm)
        workers_mb, n_workers = served.workers_mb()
        yield Figure(
            name="built-in model: memory of its processes",
            value=workers_mb,
            unit="MB",
            note=f"{n_workers} processes, shared pages counted once",
        )
        yield Figure(
            name="built-in model: memory of the daemon beside them",
            size=size,
            value=served.rss_mb(),
            unit="MB",
            budget=150,
        )
        stop = served.stop()
        yield Figure(name="built-in model: stop at work", size=size, value=stop, unit="s")


def _requested(client: daemon.Client) -> int:
    model = client.embedding()
    return 0 if model is None else model.requested


def _at_work(
    served: daemon.Daemon,
    size: str,
    pairs: Sequence[searching.Question],
    words: Sequence[float],
    calm: Sequence[float],
) -> Iterator[Figure]:
    """Search while the model works through a backlog, then watch it alone."""
    client = served.client()
    busy = searching.latencies(served, [*pairs, *pairs, *pairs])
    yield _compared("built-in model at work: keyword search", size, busy, words, budget=2.0)
    fresh = [(user, f"{query} {text.word(number)}") for number, (user, query) in enumerate(pairs)]
    samples = searching.latencies(served, fresh, "hybrid")
    yield _compared("built-in model at work: hybrid search, query not asked before", size, samples, calm, budget=None)
    cpu, started, before = served.cpu_s(), time.perf_counter(), _requested(client)
    time.sleep(BUILTIN_S)
    took, n = time.perf_counter() - started, _requested(client) - before
    yield Figure(
        name="built-in model: passages a second",
        size=size,
        value=n / took,
        unit="a second",
        note=f"{took:.0f} s, one process at nice 10; the daemon itself {(served.cpu_s() - cpu) / took * 100:.0f} % of a core",
    )
    client.close()
