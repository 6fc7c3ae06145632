"""What the clusters of one owner are about, as vectors: the mean of each, and which of them is nearest.

Kept in memory between two entries. The module needs NumPy, which is imported once something is to be clustered.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from everosd import types
from everosd.store import cluster

Vector = NDArray[np.float32]
"""`(dim,)`, of length 1 unless said otherwise."""

Vectors = Mapping[types.EntryKey, NDArray[np.float32]]
"""By key of the entry: `(n_pieces, dim)`, rows of length 1."""

_BEGIN = 64  # rows
_TINY = 1e-6
_LOSS = 3e-5
"""How far a cosine may be off because of how vectors are stored: the same text is as similar as it was."""


class Nearest(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster that an entry is nearest to."""

    cluster_id: str
    similarity: float
    """Cosine with the centroid."""


def of_entry(pieces: NDArray[np.float32]) -> Vector:
    """Return what an entry is about: the mean of its pieces `(n, dim)`, made 1 long."""
    total: Vector = pieces[0] if len(pieces) == 1 else pieces.sum(axis=0)
    made: Vector = total / np.float32(_length(total))
    return made


def _length(vector: Vector) -> float:
    return max(math.sqrt(float(vector @ vector)), _TINY)


class Centroids:
    """The clusters of one owner in one space. Not for several threads at once."""

    def __init__(self, space: types.Space) -> None:
        """Begin with none."""
        self.space = space
        self.cluster_of: dict[str, str] = {}
        """By entry id of the members."""
        self.lacking: dict[types.EntryKey, str] = {}
        """Members without vectors so far, and their clusters."""
        self.changed: set[str] = set()
        """Members that have changed and are to be looked at again."""
        self._members: dict[str, dict[str, types.EntryKey]] = collections.defaultdict(dict)
        self._ids: list[str] = []
        self._at: dict[str, int] = {}
        self._sums = np.zeros((_BEGIN, space.dim), dtype=np.float32)
        self._lengths = np.ones(_BEGIN, dtype=np.float32)  # of the sums
        self._newest_us = np.zeros(_BEGIN, dtype=np.int64)
        self._n_vectors: collections.Counter[str] = collections.Counter()

    @property
    def n_bytes(self) -> int:
        """What it takes in memory, about."""
        return self._sums.nbytes + 200 * len(self.cluster_of)

    def load(self, members: Iterable[cluster.Member], vectors: Vectors) -> None:
        """Add members that are in no cluster so far."""
        for member in members:
            self.add(member, vectors)

    def put(self, cluster_id: str, members: Sequence[cluster.Member], vectors: Vectors) -> None:
        """Make one cluster anew of all its members; without any there is none."""
        for entry_id, key in self._members.pop(cluster_id, {}).items():
            self.lacking.pop(key, None)
            if self.cluster_of.get(entry_id) == cluster_id:  # else it has moved
                del self.cluster_of[entry_id]
        if not members:
            self._remove(cluster_id)
            return
        row = self._row(cluster_id)
        self._sums[row], self._newest_us[row], self._n_vectors[cluster_id] = 0, members[0].timestamp_us, 0
        self._lengths[row] = _TINY
        for member in members:
            self.add(member, vectors)

    def add(self, member: cluster.Member, vectors: Vectors) -> None:
        """Add a member that is in no cluster so far."""
        is_new = member.cluster_id not in self._at
        row = self._row(member.cluster_id)
        self.cluster_of[member.entry_id] = member.cluster_id
        self._members[member.cluster_id][member.entry_id] = member.key
        self._newest_us[row] = member.timestamp_us if is_new else max(int(self._newest_us[row]), member.timestamp_us)
        if (pieces := vectors.get(member.key)) is None:
            self.lacking[member.key] = member.cluster_id
            return
        self._sums[row] += of_entry(pieces)
        self._lengths[row] = _length(self._sums[row])
        self._n_vectors[member.cluster_id] += 1

    def nearest(self, vector: Vector, at_us: int, window_us: int, threshold: float) -> Nearest | None:
        """Return the cluster that is most similar, of those that are similar enough and have a member near enough in time.

        Args:
            vector: Of the entry.
            at_us: Moment of the entry.
            window_us: How far the newest member of a cluster may be from it, earlier or later.
            threshold: The least similarity; equal is enough.
        """
        n = len(self._ids)
        if not n:
            return None
        similarities = (self._sums[:n] @ vector) / self._lengths[:n]
        fits = (np.abs(self._newest_us[:n] - at_us) <= window_us) & (similarities >= threshold - _LOSS)
        if not fits.any():
            return None
        best = float(similarities[fits].max())
        equal = np.flatnonzero(fits & (similarities == best))
        return Nearest(cluster_id=min(self._ids[at] for at in equal), similarity=min(1.0, best))

    def is_lacking(self, at_us: int, window_us: int) -> bool:
        """Return whether of some cluster that is near enough in time nothing is known yet."""
        return any(
            not self._n_vectors[cluster_id] and abs(int(self._newest_us[self._at[cluster_id]]) - at_us) <= window_us
            for cluster_id in set(self.lacking.values())
        )

    def __contains__(self, cluster_id: object) -> bool:
        """Return whether there is such a cluster."""
        return cluster_id in self._at

    def __len__(self) -> int:
        """Return how many clusters there are."""
        return len(self._ids)

    def _row(self, cluster_id: str) -> int:
        """Return the row of a cluster, a new one where it has none."""
        row = self._at.get(cluster_id)
        if row is not None:
            return row
        row = self._at[cluster_id] = len(self._ids)
        self._ids.append(cluster_id)
        if row == len(self._sums):
            self._sums = np.concatenate([self._sums, np.zeros_like(self._sums)])
            self._lengths = np.concatenate([self._lengths, np.ones_like(self._lengths)])
            self._newest_us = np.concatenate([self._newest_us, np.zeros_like(self._newest_us)])
        self._sums[row], self._lengths[row], self._newest_us[row] = 0, _TINY, 0
        return row

    def _remove(self, cluster_id: str) -> None:
        row = self._at.pop(cluster_id, None)
        self._n_vectors.pop(cluster_id, None)
        if row is None:
            return
        last = len(self._ids) - 1
        for column in (self._sums, self._lengths, self._newest_us):
            column[row] = column[last]
        moved = self._ids.pop()
        if moved != cluster_id:
            self._ids[row], self._at[moved] = moved, row
