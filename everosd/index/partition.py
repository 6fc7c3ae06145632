"""The vectors of one owner's long or short texts in memory, with the columns that bounds look at.

A row is one piece of a document. Rows are overwritten in place and freed ones used again, so that endless edits need no
more memory than the documents do.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from everosd import types
from everosd.index import contract, mask, slab, where

Vector = NDArray[np.float32]
"""`(dim,)`, of length 1."""
Rows = NDArray[np.int64]
"""`(n,)`: numbers of rows."""

_CHUNK_NUMBERS = 200_000  # turned into floats at once: they stay in the processor's cache
_LOADED_AT_ONCE = 1_000  # documents
_ALIKE = 2e-6  # cosines that differ less are equal: two ways of summing do not agree further
_DECIMALS = 6  # of a cosine: beyond, it is the order of summing that speaks
_MIN_CAPACITY = 16
_MAX_FREE = 1_024  # rows that may lie idle, or as many as are in use
_GATHER = 3  # as long as fewer than a third of the rows fit, only those are multiplied


class Found(NamedTuple):
    """A document near a query; sorts as the answer does when negated."""

    cosine: float
    """Of its nearest piece, rounded so that equal texts are equal."""
    key: int
    own_link: int
    parent_link: int

    def hit(self) -> contract.Hit:
        """Return it as the contract has it."""
        return contract.Hit(
            key=types.EntryKey(self.key),
            score=min(1.0, max(0.0, self.cosine)),
            own_link=self.own_link,
            parent_link=self.parent_link,
        )


class Partition:
    """Rows of one partition. Every call takes its lock: a search sees no half of a change."""

    def __init__(self, dim: int, stored: Iterable[slab.Stored] = ()) -> None:
        """Take in what is on disk."""
        self.dim = dim
        self._lock = threading.Lock()
        self._columns = mask.Columns()
        self._codes = np.zeros((0, dim), dtype=np.int16)
        self._is_live = np.zeros(0, dtype=np.bool_)
        self._n = 0  # rows used so far; above, none ever was
        self._free: list[int] = []
        self._n_live = 0
        for part in _batches(stored):
            self._add(part)
        self._resize(self._n)

    @property
    def n_bytes(self) -> int:
        """Memory in use, about."""
        return self._codes.nbytes + self._is_live.nbytes + self._columns.n_bytes + 8 * len(self._free)

    @property
    def is_wasteful(self) -> bool:
        """Whether reading it anew would take markedly less memory: many rows or values are of what is gone."""
        limit = _MAX_FREE + self._n_live
        return len(self._free) > limit or self._columns.n_values > 3 * limit

    @property
    def n_live(self) -> int:
        """Rows that a search can reach."""
        return self._n_live

    def put(self, stored: Sequence[slab.Stored]) -> None:
        """Replace the vectors and fields of these documents."""
        with self._lock:
            self._release(self._rows_of([each.key for each in stored]))
            self._add(stored)

    def change(self, rows: dict[int, slab.Row]) -> None:
        """Replace the fields of those of these documents that are here; their vectors stand in until others come."""
        with self._lock:
            silent = [key for key, row in rows.items() if not row.digest]
            self._release(self._rows_of(silent))
            at = self._rows_of(list(rows))
            keys = self._columns.keys[at].tolist()
            self._columns.put(at, keys, [rows[key].fields for key in keys])

    def remove(self, keys: Sequence[int]) -> None:
        """Forget documents; unknown ones are fine."""
        with self._lock:
            self._release(self._rows_of(keys))

    def search(self, query: Vector, bounds: where.Where, k: int) -> list[Found]:
        """Return the `k` nearest documents within the bounds, the nearest first, equal ones by key, the newest first."""
        with self._lock:
            fits = self._fits(bounds)
            n = int(np.count_nonzero(fits))
            if not n or k <= 0:
                return []
            return self._collapsed(query, self._nearest(query, fits, n, k))[:k]

    def score(self, query: Vector, bounds: where.Where, links: NDArray[np.int64]) -> list[Found]:
        """Return the documents with these own links within the bounds; `links` is sorted."""
        with self._lock:
            own = self._columns.own_links[: self._n]
            at = np.minimum(np.searchsorted(links, own), len(links) - 1)
            return self._collapsed(query, np.flatnonzero((links[at] == own) & self._fits(bounds)))

    def _fits(self, bounds: where.Where) -> mask.Mask:
        return self._columns.fits(bounds, self._n) & self._is_live[: self._n]

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
        cosines /= slab.SCALE
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
        columns = (cosines[chosen], keys[chosen], self._columns.own_links[at], self._columns.parent_links[at])
        return [Found(*values) for values in zip(*(column.tolist() for column in columns), strict=True)]

    def _exactly(self, query: Vector, rows: Rows) -> NDArray[np.float64]:
        """Return cosines that depend on nothing but the two vectors: not on the row's place, nor on the others."""
        wide = query.astype(np.float64) / slab.SCALE
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
        self._free.extend(rows.tolist())
        self._n_live -= len(rows)

    def _add(self, stored: Sequence[slab.Stored]) -> None:
        n = sum(len(each.codes) for each in stored)
        if not n:
            return
        rows = self._take(n)
        self._codes[rows] = np.concatenate([each.codes for each in stored])
        keys = [each.key for each in stored for _ in range(len(each.codes))]
        self._columns.put(rows, keys, [each.row.fields for each in stored for _ in range(len(each.codes))])
        self._is_live[rows] = True
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
        self._is_live = np.resize(self._is_live[: self._n], capacity) if self._n else np.zeros(capacity, dtype=np.bool_)
        self._is_live[self._n :] = False
        self._columns.resize(self._n, capacity)


def _batches(stored: Iterable[slab.Stored]) -> Iterator[list[slab.Stored]]:
    part: list[slab.Stored] = []
    for each in stored:
        part.append(each)
        if len(part) == _LOADED_AT_ONCE:
            yield part
            part = []
    if part:
        yield part
