"""The vectors of one owner's long or short texts in memory, with the columns that bounds look at.

A row is one piece of a document. Rows are overwritten in place and freed ones used again, so that endless edits need no
more memory than the documents do.

Exact search multiplies the rows that fit with the query. Where many fit, a graph (`graph`) proposes rows instead: it
holds most rows as they were when it was built; those written since are multiplied.
"""

from __future__ import annotations

import math
import threading
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from everosd import types
from everosd.index import contract, graph, mask, record, where

Vector = NDArray[np.float32]
"""`(dim,)`, of length 1."""
Vectors = NDArray[np.float32]
"""`(n, dim)`, rows of length 1."""
Rows = NDArray[np.int64]
"""`(n,)`: numbers of rows."""

EXACT_ROWS = 4_000
"""Up to so many rows that fit are multiplied in any case: 0.2 ms."""

GRAPH_ROWS = 12_000
"""A partition of so many rows gets a graph once it is searched. Below, multiplying all of it takes 0.7 ms at most, and
the graph would take twice the memory of everything else."""

_CHUNK_NUMBERS = 200_000  # turned into floats at once: they stay in the processor's cache
_LOADED_AT_ONCE = 1_000  # documents
_ALIKE = 2e-6  # cosines that differ less are equal: two ways of summing do not agree further
_DECIMALS = 6  # of a cosine: beyond, it is the order of summing that speaks
_MULTIPLIER = 0x9E3779B97F4A7C15  # spreads keys over 64 bits (Knuth, TAOCP 3, 6.4)
_OBJECT_BYTES = 8_000  # of a partition without rows
_MIN_CAPACITY = 16
_MAX_FREE = 1_024  # rows that may lie idle, or as many as are in use
_MIN_DELTA = 2_000  # rows that a graph lacks, or holds in vain, before another one is built
_DELTA = 0.1  # the same, as a share of the partition
_DEAD = 0.2
_TUNED_K = 10  # what the length of a graph's list was chosen for
_OVERFETCH = 1.5  # proposals for each one that is needed: the filter is not spread evenly
_SPARE = 10
_GATHER = 3  # as long as fewer than a third of the rows fit, only those are multiplied


class Found(NamedTuple):
    """A document near a query; the largest comes first in the answer."""

    cosine: float
    """Of its nearest piece, rounded so that equal texts are equal."""
    key: int
    own_link: int
    parent_link: int
    timestamp_us: int

    def hit(self) -> contract.Hit:
        """Return it as the contract has it."""
        return contract.Hit(
            key=types.EntryKey(self.key),
            score=self.cosine if 0.0 <= self.cosine <= 1.0 else float(self.cosine > 0.0),
            own_link=self.own_link,
            parent_link=self.parent_link,
            timestamp_us=self.timestamp_us,
        )


class Plan(NamedTuple):
    """What a new graph is to hold beside what the present one does."""

    rows: Rows
    stamps: NDArray[np.int32]
    """Of all rows: how often each had been written when the plan was made."""
    marks: graph.Marks
    """Of the present graph, where it is extended; empty: the next one is built from nothing."""


class Partition:
    """Rows of one partition. Every call takes its lock: a search sees no half of a change."""

    def __init__(self, dim: int, stored: Iterable[record.Stored] = (), *, name: str = "") -> None:
        """Take in what is on disk; `name` is what files of it are called."""
        self.dim = dim
        self.name = name
        self._lock = threading.Lock()
        self._columns = mask.Columns()
        self._codes = np.zeros((0, dim), dtype=np.int16)
        self._is_live = np.zeros(0, dtype=np.bool_)
        self._n = 0  # rows used so far; above, none ever was
        self._free: list[int] = []
        self._n_live = 0
        self._by_link: Rows | None = None  # rows in the order of their own links; None: to be sorted
        self._links: Rows = np.zeros(0, dtype=np.int64)  # their own links, in that order
        self._graph: graph.Graph | None = None
        self._labels = np.zeros(0, dtype=np.int32)  # by row, its label in the graph; -1: it is not there
        self._stamps = np.zeros(0, dtype=np.int32)  # by row, how often it was written
        self._n_in_graph = 0
        self._n_refused = 0  # rows when no graph was found good enough
        for part in _batches(stored):
            self._add(part)
        self._resize(self._n)

    @property
    def n_bytes(self) -> int:
        """Memory in use, about."""
        rows = self._codes.nbytes + 25 * len(self._is_live) + self._columns.n_bytes + 8 * len(self._free)
        return _OBJECT_BYTES + rows + (self._graph.n_bytes if self._graph is not None else 0)

    @property
    def is_wasteful(self) -> bool:
        """Whether reading it anew would take markedly less memory: many rows or values are of what is gone."""
        limit = _MAX_FREE + self._n_live
        return len(self._free) > limit or self._columns.n_values > 3 * limit

    @property
    def n_live(self) -> int:
        """Rows that a search can reach."""
        return self._n_live

    @property
    def has_graph(self) -> bool:
        """Whether a graph proposes rows."""
        return self._graph is not None

    @property
    def wants_graph(self) -> bool:
        """Whether a graph should be built, or one that holds more of what is here."""
        n = self._n_live
        if n < GRAPH_ROWS:
            return False
        if self._graph is None:
            return not self._n_refused / 1.5 < n < self._n_refused * 1.5
        return self._is_old(self._graph)

    def put(self, stored: Sequence[record.Stored]) -> None:
        """Replace the vectors and fields of these documents."""
        with self._lock:
            self._release(self._rows_of([each.key for each in stored]))
            self._add(stored)

    def change(self, rows: dict[int, record.Row]) -> None:
        """Replace the fields of those of these documents that are here; their vectors stand in until others come."""
        with self._lock:
            silent = [key for key, row in rows.items() if not row.digest]
            self._release(self._rows_of(silent))
            at = self._rows_of(list(rows))
            keys = self._columns.keys[at].tolist()
            self._columns.put(at, keys, [rows[key].fields for key in keys])
            self._by_link = None

    def remove(self, keys: Sequence[int]) -> None:
        """Forget documents; unknown ones are fine."""
        with self._lock:
            self._release(self._rows_of(keys))

    def search(self, query: Vector, bounds: where.Where, k: int) -> list[Found]:
        """Return the `k` nearest documents within the bounds, the nearest first, equal ones by key, the newest first."""
        with self._lock:
            fits = self._fits(bounds, slice(self._n))
            n = int(np.count_nonzero(fits))
            if not n or k <= 0:
                return []
            rows = self._proposed(query, fits, n, k) if self._graph is not None and n > EXACT_ROWS else None
            return self._collapsed(query, self._nearest(query, fits, n, k) if rows is None else rows)[:k]

    def score(self, query: Vector, bounds: where.Where, links: NDArray[np.int64]) -> list[Found]:
        """Return the documents with these own links within the bounds."""
        with self._lock:
            rows = self._linked(links)
            return self._collapsed(query, rows[self._fits(bounds, rows)])

    # -- what building a graph needs -------------------------------------------------------------------------------

    def plan_graph(self, *, is_anew: bool = False) -> Plan:
        """Return what the next graph has to take in."""
        with self._lock:
            present = self._graph
            is_anew = is_anew or present is None or self._n_dead(present) > max(_MIN_DELTA, _DEAD * self._n_live)
            wanted = self._is_live[: self._n] if is_anew else self._is_live[: self._n] & (self._labels[: self._n] < 0)
            marks = np.zeros(0, dtype=np.uint64) if is_anew or present is None else present.marks
            return Plan(np.flatnonzero(wanted), self._stamps.copy(), marks)

    def copy(self, plan: Plan, rows: Rows) -> tuple[Rows, record.Codes, graph.Marks]:
        """Return those of the rows that are what they were when it was planned, with vectors and marks."""
        with self._lock:
            same = rows[self._is_live[rows] & (self._stamps[rows] == plan.stamps[rows])]
            return same, self._codes[same], self._marks(same)

    def n_changed(self, plan: Plan) -> int:
        """Return how many rows of a plan are no longer what they were when it was made."""
        with self._lock:
            same = self._is_live[plan.rows] & (self._stamps[plan.rows] == plan.stamps[plan.rows])
            return len(plan.rows) - int(np.count_nonzero(same))

    def vectors(self, rows: Rows) -> NDArray[np.float32]:
        """Return the vectors of rows as they are now."""
        with self._lock:
            return record.decode(self._codes[rows])

    def kth_cosine(self, query: Vector, rows: Rows, k: int) -> float:
        """Return the cosine of the `k`th nearest of these rows."""
        with self._lock:
            cosines = self._cosines(query, rows)
        return float(np.partition(cosines, len(rows) - k)[len(rows) - k])

    def rows_of(self, given: graph.Graph, plan: Plan) -> Rows:
        """Return, by label, the row that a new graph still stands for; -1: the row is another one by now."""
        with self._lock:
            return self._still(given, plan)

    def take_graph(self, given: graph.Graph, plan: Plan) -> None:
        """Search by this graph from now on."""
        with self._lock:
            given.rows = self._still(given, plan)
            self._set_graph(given)

    def refuse_graph(self, n: int | None = None) -> None:
        """Search exactly until the partition has another size."""
        with self._lock:
            self._n_refused = self._n_live if n is None else n

    def _still(self, given: graph.Graph, plan: Plan) -> Rows:
        rows = given.rows.copy()
        n_base = len(plan.marks)
        if self._graph is not None:
            rows[:n_base] = self._graph.rows[:n_base]
        fresh = rows[n_base:]
        fresh[(fresh >= 0) & (self._stamps[fresh] != plan.stamps[fresh])] = -1
        return rows

    def _set_graph(self, given: graph.Graph) -> None:
        labels = np.flatnonzero(given.rows >= 0)
        self._labels[:] = -1
        self._labels[given.rows[labels]] = labels
        given.rows[labels[self._labels[given.rows[labels]] != labels]] = -1  # two labels of one row
        self._n_in_graph = int(np.count_nonzero(self._labels >= 0))
        self._graph = given

    def _is_old(self, present: graph.Graph) -> bool:
        n = self._n_live
        return n - self._n_in_graph > max(_MIN_DELTA, _DELTA * n) or self._n_dead(present) > max(_MIN_DELTA, _DEAD * n)

    def _n_dead(self, present: graph.Graph) -> int:
        return present.n - self._n_in_graph

    def _marks(self, rows: Rows) -> graph.Marks:
        crcs = np.array([zlib.crc32(self._codes[row]) for row in rows.tolist()], dtype=np.uint64)
        marks: graph.Marks = self._columns.keys[rows].astype(np.uint64) * np.uint64(_MULTIPLIER) ^ crcs
        return marks

    # -- searching -------------------------------------------------------------------------------------------------

    def _fits(self, bounds: where.Where, at: mask.At) -> mask.Mask:
        return self._columns.fits(bounds, at) & self._is_live[at]

    def _linked(self, links: NDArray[np.int64]) -> Rows:
        """Return the rows with these own links, those of what is gone too."""
        own = self._columns.own_links[: self._n]
        if self._by_link is None:
            self._by_link = np.argsort(own)
            self._links = own[self._by_link]
        first = np.searchsorted(self._links, links)
        counts = np.searchsorted(self._links, links, side="right") - first
        before = np.cumsum(counts) - counts  # rows of the links that come first
        rows: Rows = self._by_link[np.arange(counts.sum()) + np.repeat(first - before, counts)]
        return rows

    def _proposed(self, query: Vector, fits: mask.Mask, n: int, k: int) -> Rows | None:
        """Return rows among which the `k` nearest documents probably are; None: multiplying is cheaper, or surer."""
        present = self._graph
        assert present is not None  # noqa: S101  # checked by the caller
        rest = np.flatnonzero(fits & (self._labels[: self._n] < 0))
        share = (n - len(rest)) / present.n
        depth = k / share if share else math.inf
        while True:
            ef = max(1.0, depth / _TUNED_K) * present.ef
            if ef * graph.COST_ROWS + len(rest) > n:
                return None
            rows = present.nearest(query, math.ceil(_OVERFETCH * depth) + _SPARE, math.ceil(ef))
            rows = rows[fits[rows]]
            if len(np.unique(self._columns.keys[rows])) >= k:
                break
            depth *= 4
        if len(rest):
            rest = rest[self._best(self._cosines(query, rest), rest, len(rest), k)]
        return np.concatenate([rows, rest])

    def _nearest(self, query: Vector, fits: mask.Mask, n: int, k: int) -> Rows:
        """Return rows among which are all pieces that decide which the `k` nearest documents are: exact."""
        if n * _GATHER < self._n:
            rows = np.flatnonzero(fits)
            return rows[self._best(self._cosines(query, rows), rows, n, k)]
        cosines = self._cosines(query, None)
        cosines[~fits] = -np.inf
        return self._best(cosines, None, n, k)

    def _best(self, cosines: Vector, rows: Rows | None, n: int, k: int) -> Rows:
        """Return the places of the highest cosines, as many as `k` different documents need, and all that are equal."""
        keys = self._columns.keys[: self._n] if rows is None else self._columns.keys[rows]
        m = 2 * k
        while True:
            if m >= n:
                return np.flatnonzero(cosines > -np.inf)
            least = np.partition(cosines, len(cosines) - m)[len(cosines) - m]
            best = np.flatnonzero(cosines >= least - _ALIKE)
            if len(np.unique(keys[best])) >= k:
                return best
            m *= 4

    def _cosines(self, query: Vector, rows: Rows | None) -> Vector:
        n = self._n if rows is None else len(rows)
        cosines = np.empty(n, dtype=np.float32)
        size = max(1, _CHUNK_NUMBERS // self.dim)
        for start in range(0, n, size):
            end = min(n, start + size)
            part = self._codes[start:end] if rows is None else self._codes[rows[start:end]]
            np.dot(part.astype(np.float32), query, out=cosines[start:end])
        cosines /= record.SCALE
        return cosines

    def _collapsed(self, query: Vector, rows: Rows) -> list[Found]:
        """Return the documents of these rows, each with the cosine of its nearest one among them."""
        if not len(rows):
            return []
        cosines = self._exactly(query, rows)
        keys = self._columns.keys[rows]
        order = np.lexsort((-keys, -cosines))
        _, firsts = np.unique(keys[order], return_index=True)
        chosen = order[np.sort(firsts)]
        at = rows[chosen]
        own = self._columns
        columns = (cosines[chosen], keys[chosen], own.own_links[at], own.parent_links[at], own.timestamps[at])
        return list(map(Found._make, zip(*(column.tolist() for column in columns), strict=True)))

    def _exactly(self, query: Vector, rows: Rows) -> NDArray[np.float64]:
        """Return cosines that depend on nothing but the two vectors: not on the row's place, nor on the others."""
        wide = query.astype(np.float64) / record.SCALE
        cosines = np.empty(len(rows))
        size = max(1, _CHUNK_NUMBERS // self.dim)
        for start in range(0, len(rows), size):
            part = rows[start : start + size]
            cosines[start : start + size] = (self._codes[part] * wide).sum(axis=1)
        rounded: NDArray[np.float64] = np.round(cosines, _DECIMALS)
        return rounded

    def _rows_of(self, keys: Sequence[int]) -> Rows:
        if not len(keys):
            return np.zeros(0, dtype=np.int64)
        own = self._columns.keys[: self._n]
        is_one = own == keys[0] if len(keys) == 1 else np.isin(own, np.asarray(keys, dtype=np.int64))
        return np.flatnonzero(is_one & self._is_live[: self._n])

    def _release(self, rows: Rows) -> None:
        self._is_live[rows] = False
        self._stamps[rows] += 1
        if self._graph is not None:
            labels = self._labels[rows]
            known = labels[labels >= 0]
            self._graph.rows[known] = -1
            self._labels[rows] = -1
            self._n_in_graph -= len(known)
        self._free.extend(rows.tolist())
        self._n_live -= len(rows)

    def _add(self, stored: Sequence[record.Stored]) -> None:
        n = sum(len(each.codes) for each in stored)
        if not n:
            return
        rows = self._take(n)
        self._codes[rows] = np.concatenate([each.codes for each in stored])
        keys = [each.key for each in stored for _ in range(len(each.codes))]
        self._columns.put(rows, keys, [each.row.fields for each in stored for _ in range(len(each.codes))])
        self._is_live[rows] = True
        self._by_link = None
        self._stamps[rows] += 1
        self._n_live += n

    def _take(self, n: int) -> Rows:
        """Return rows to write: freed ones first."""
        n_reused = min(n, len(self._free))
        reused = [self._free.pop() for _ in range(n_reused)]
        end = self._n + n - n_reused
        if end > len(self._is_live):
            self._resize(max(_MIN_CAPACITY, end + end // 2))
        rows = np.array([*reused, *range(self._n, end)], dtype=np.int64)
        self._n = end
        return rows

    def _resize(self, capacity: int) -> None:
        codes = np.zeros((capacity, self.dim), dtype=np.int16)
        codes[: self._n] = self._codes[: self._n]
        self._codes = codes
        self._is_live = mask.resized(self._is_live, self._n, capacity)
        self._stamps = mask.resized(self._stamps, self._n, capacity)
        labels = np.full(capacity, -1, dtype=np.int32)
        labels[: self._n] = self._labels[: self._n]
        self._labels = labels
        self._columns.resize(self._n, capacity)


def _batches(stored: Iterable[record.Stored]) -> Iterator[list[record.Stored]]:
    part: list[record.Stored] = []
    for each in stored:
        part.append(each)
        if len(part) == _LOADED_AT_ONCE:
            yield part
            part = []
    if part:
        yield part
