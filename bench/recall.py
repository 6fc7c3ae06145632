"""Recall and cost of the vector index: `python -m bench.recall`, in short `python -m bench --only recall`.

In this process, without a daemon: made-up vectors in clusters, like those of texts about a few hundred subjects, or
`--uniform`, the worst there is. Compared with exact search over the very same numbers.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from bench import table
from everosd import types
from everosd.index import contract, vector, where

OWNER = types.Owner(app="default", project="default", type="user", id="u_mara")
SHARES = (1.0, 0.5, 0.1, 0.01, 0.001)
K = 10
DIM = 384
N_QUERIES = 200
N_REPLACED = 5_000
BATCH = 500
BUILD_S = 1_800.0

Vectors = NDArray[np.float32]
T = TypeVar("T")


def main() -> int:
    """Fill, search, replace, search again; print one line per size and share of entries that fit the filter."""
    parser = argparse.ArgumentParser(prog="python -m bench.recall", description=__doc__)
    parser.add_argument("--sizes", default="1000,10000,100000", help="vectors of one owner, e.g. 1000,20000")
    parser.add_argument("--dim", type=int, default=DIM, help="numbers of a vector")
    parser.add_argument("--uniform", action="store_true", help="vectors without any structure")
    parser.add_argument("--vectors", type=Path, help="a .npy file of real ones instead, (n, dim); one size")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="everosd-recall-"))
    try:
        for size in [int(size) for size in options.sizes.split(",")]:
            given = np.load(options.vectors)[:size] if options.vectors else None
            for _ in _measure(folder / str(size), size, options.dim, is_uniform=options.uniform, given=given):
                pass
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def figures(folder: Path, sizes: Sequence[int]) -> Iterator[table.Figure]:
    """Yield the worst recall of each state, whatever share of the entries fits; the tables go to stderr."""
    for size in sizes:
        with contextlib.redirect_stdout(sys.stderr):
            states = list(_measure(folder / str(size), size, DIM, is_uniform=False, given=None))
        for state, shares in states:
            slowest_ms = max(p95_ms for _, p95_ms in shares)
            yield table.Figure(
                name=f"recall@{K} against exact search, {state}",
                size=f"{size:,}",
                value=min(recall for recall, _ in shares),
                unit="",
                budget=0.98,
                is_floor=True,
                note=f"the worst of {len(shares)} shares of entries that fit; slowest p95 {slowest_ms:.1f} ms",
            )


def _measure(
    folder: Path, n: int, dim: int, *, is_uniform: bool, given: Vectors | None
) -> Iterator[tuple[str, list[tuple[float, float]]]]:
    """Print all that is measured, and yield (state, (recall, p95 in ms) of each share) of those with a graph."""
    dice = np.random.default_rng(n)
    vectors = _vectors(dice, n, dim, is_uniform=is_uniform) if given is None else _unit(given)
    n, dim = vectors.shape
    queries = _unit(
        vectors[dice.choice(n, N_QUERIES)] + dice.standard_normal((N_QUERIES, dim)).astype(np.float32) / dim**0.5
    )
    before_mb = _rss_mb()
    _fill(folder, vectors)
    index = vector.VectorIndex(folder, memory_bytes=1 << 40)
    started = time.perf_counter()
    index.search(queries[0], _bounds(1.0), K)
    print(f"first search {1e3 * (time.perf_counter() - started):.0f} ms, memory +{_rss_mb() - before_mb:.0f} MB")
    state = _State(index, vectors, queries)
    state.table("exact")
    _wait(index)
    print(f"{time.perf_counter() - started:.0f} s later, memory +{_rss_mb() - before_mb:.0f} MB")
    yield "built", state.table(_graph_of(index))
    _replace(index, vectors, _vectors(dice, min(N_REPLACED, n), dim, is_uniform=is_uniform))
    replaced = f"{min(N_REPLACED, n):,} replaced"
    yield replaced, state.table(f"{replaced}, {_graph_of(index)}")
    _wait(index)
    yield f"{replaced}, built again", state.table(f"later, {_graph_of(index)}")
    index.close()
    index = vector.VectorIndex(folder, memory_bytes=1 << 40)
    started = time.perf_counter()
    index.search(queries[0], _bounds(1.0), K)
    first_s = time.perf_counter() - started
    _wait(index)
    print(f"reopened: first search {1e3 * first_s:.0f} ms, graph there after {time.perf_counter() - started:.1f} s")
    yield "opened again", _State(index, vectors, queries).table(_graph_of(index))
    index.close()
    print(f"{_disk(folder) / n:.0f} bytes each on disk at the end")


def _fill(folder: Path, vectors: Vectors) -> None:
    n, dim = vectors.shape
    index = vector.VectorIndex(folder)
    index.use(types.Space(model="bench", dim=dim))
    documents = [_document(key, "") for key in range(1, n + 1)]
    started = time.perf_counter()
    for part in _parts(documents):
        index.write(part, [])
        index.commit()
    written_s = time.perf_counter() - started
    started = time.perf_counter()
    for part in _parts(documents):
        index.put([_embedded(each, vectors[each.key - 1]) for each in part])
    put_s = time.perf_counter() - started
    index.close()
    print(
        f"\n{n:,} vectors of {dim}: written {n / written_s:,.0f}/s, put {n / put_s:,.0f}/s, "
        f"{_disk(folder) / n:.0f} bytes each on disk"
    )


def _replace(index: vector.VectorIndex, vectors: Vectors, fresh: Vectors) -> None:
    """Edit entries at random, and put `fresh` in the place of their vectors."""
    chosen = random.Random(len(fresh)).sample(range(len(vectors)), len(fresh))
    for part in _parts([(_document(i + 1, "edited"), i, one) for i, one in zip(chosen, fresh, strict=True)]):
        index.write([document for document, _, _ in part], [])
        index.commit()
        index.put([_embedded(document, one) for document, _, one in part])
        for _, i, one in part:
            vectors[i] = one


def _wait(index: vector.VectorIndex) -> None:
    assert index._builder.wait(BUILD_S)  # noqa: SLF001  # nobody else has to wait for it


def _disk(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


class _State:
    """An index and what it should answer."""

    def __init__(self, index: vector.VectorIndex, vectors: Vectors, queries: Vectors) -> None:
        self._index, self._vectors, self._queries = index, vectors, queries

    def table(self, title: str) -> list[tuple[float, float]]:
        """Print recall and latency for each share of entries that fit, and return recall and p95 in ms of each."""
        shares = []
        exact = self._queries @ self._vectors.T
        moments = np.array([_moment(i + 1) for i in range(len(self._vectors))])
        print(f"  {title}")
        for share in SHARES:
            fits = moments <= int(share * 1e6)
            if not fits.any():
                continue
            k = min(K, int(fits.sum()))
            least = -np.partition(-np.where(fits, exact, -2), k - 1, axis=1)[:, k - 1]
            n_found, took = 0, []
            for query, cosine in zip(self._queries, least, strict=True):
                started = time.perf_counter()
                hits = self._index.search(query, _bounds(share), K)
                took.append(time.perf_counter() - started)
                assert k == len(hits)
                found = self._vectors[[hit.key - 1 for hit in hits]] @ query
                n_found += int(np.count_nonzero(found >= cosine - 1e-4))
            recall = n_found / (k * len(took))
            p50_ms, p95_ms = (1e3 * table.quantile(took, share_of) for share_of in (0.5, 0.95))
            print(
                f"    {100 * share:5.1f} % fit ({int(fits.sum()):,}): recall@{K} {recall:.4f}, "
                f"p50 {p50_ms:.2f} ms, p95 {p95_ms:.2f} ms"
            )
            shares.append((recall, p95_ms))
        return shares


def _graph_of(index: vector.VectorIndex) -> str:
    (part,) = index._loaded.values()  # noqa: SLF001
    return "no graph" if part._graph is None else f"graph with ef={part._graph.ef}"  # noqa: SLF001


def _bounds(share: float) -> where.Where:
    return where.Where(owner=OWNER, kinds=("episode",), now_us=0, clause=where.During(to_us=int(share * 1e6)))


def _moment(key: int) -> int:
    """Return a moment that has nothing to do with the vector: multiples of the golden ratio are spread evenly."""
    return int(key * 0.6180339887498949 % 1 * 1e6)


def _document(key: int, body: str) -> contract.Document:
    return contract.Document(
        key=types.EntryKey(key),
        owner=OWNER,
        entry_id=f"ep_20260302_{key:08}",
        kind="episode",
        status="active",
        title=f"About {key}",
        body=body,
        timestamp_us=_moment(key),
        session_id=f"s_{key // 20}",
        parent_type="memcell",
        parent_id=f"mc_{key:012x}",
        sender_ids=("mara", "helper"),
    )


def _embedded(document: contract.Document, one: Vectors) -> vector.Embedded:
    return vector.Embedded(key=document.key, digest=contract.text_digest(document), vectors=one[None, :])


def _vectors(dice: np.random.Generator, n: int, dim: int, *, is_uniform: bool) -> Vectors:
    drawn = dice.standard_normal((n, dim)).astype(np.float32)
    if is_uniform:
        return _unit(drawn)
    subjects = _unit(dice.standard_normal((max(10, n // 100), dim)).astype(np.float32))
    return _unit(subjects[dice.integers(0, len(subjects), n)] + 0.9 / dim**0.5 * drawn)


def _unit(given: Vectors) -> Vectors:
    unit: Vectors = (given / np.linalg.norm(given, axis=1, keepdims=True)).astype(np.float32)
    return unit


def _parts(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), BATCH):
        yield items[start : start + BATCH]


def _rss_mb() -> float:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    raise SystemExit(main())
