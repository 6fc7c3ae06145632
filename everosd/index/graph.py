"""An HNSW graph over the rows of a large partition: what it answers, how it is kept on disk, and when it is not trusted.

A graph is never changed once searches use it: hnswlib allows no insertion beside a query. What came later is searched
exactly beside it, what is gone is left out of its answers, and from time to time a copy with all of it takes its place
(`build`). Whatever a graph says is only a proposal of rows: cosines come from the partition.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Iterator
from pathlib import Path

import hnswlib  # type: ignore[import-untyped]  # a module of C++ without stubs
import msgspec
import numpy as np
import structlog
from numpy.typing import NDArray

from everosd import types

log = structlog.get_logger(__name__)

M = 16
EF_CONSTRUCTION = 200
EFS = (64, 128, 256, 512, 1024)
"""Lengths of the list of candidates that are tried, the cheapest first."""

COST_ROWS = 50
"""A candidate costs as much as multiplying so many rows (measured at 384 numbers a vector: 2.8 µs and 0.055 µs)."""

FORMAT = 1
"""Of the files; another one is built anew. 1: first."""

# Of a vector in hnswlib's lowest layer, with its label and its share of the others.
_LINK_BYTES = 4 * (2 * M + 1) + 8 + 16
_CHUNK_BYTES = 1 << 20

Labels = NDArray[np.int64]
Marks = NDArray[np.uint64]
"""`(n,)`, by label: a hash of the document's key and the vector, by which a row is known again after a restart."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What stands beside the files of a graph, written last."""

    format: int
    space: types.Space
    n: int
    """Vectors in the graph, or in the partition that got none."""
    ef: int
    """0: no graph, because none had the recall that is promised."""
    stem: str = ""
    n_bytes: int = 0
    crc: int = 0
    marks_crc: int = 0


class Graph:
    """A graph and the rows that its labels stand for. Callers hold the partition's lock."""

    def __init__(self, index: hnswlib.Index, ef: int, marks: Marks) -> None:
        """Wrap a graph whose labels count from 0."""
        self.index = index
        self.ef = ef
        self.marks = marks
        self.rows: Labels = np.full(len(marks), -1, dtype=np.int64)
        """By label, the row; -1: the vector is no longer what it was, or cannot be reached."""

    @property
    def n(self) -> int:
        """Vectors in the graph, those of rows that are gone included."""
        return len(self.marks)

    @property
    def n_bytes(self) -> int:
        """Memory in use, about."""
        return self.n * (4 * int(self.index.dim) + _LINK_BYTES + 16)

    def nearest(self, query: NDArray[np.float32], k: int, ef: int) -> Labels:
        """Return up to `k` rows that are probably the nearest; fewer where vectors of rows that are gone came first."""
        labels, _ = self.propose(query, k, ef)
        rows = self.rows[labels]
        found: Labels = rows[rows >= 0]
        return found

    def propose(self, query: NDArray[np.float32], k: int, ef: int) -> tuple[Labels, NDArray[np.float32]]:
        """Return the labels of the `k` vectors that are probably the nearest, and their cosines."""
        k = min(k, self.n)
        self.index.set_ef(max(ef, k))
        try:
            labels, distances = self.index.knn_query(query, k, num_threads=1)
        except RuntimeError:  # hnswlib: it reached fewer than `k`
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.float32)
        return labels[0].astype(np.int64), 1 - distances[0]


def empty(dim: int, capacity: int) -> hnswlib.Index:
    """Return a graph without vectors."""
    index = hnswlib.Index("ip", dim)
    index.init_index(max(1, capacity), M=M, ef_construction=EF_CONSTRUCTION)
    index.set_num_threads(1)
    return index


class Folder:
    """The graphs of an index on disk. Used by one thread; nothing in here is ever needed: a graph can be made anew."""

    def __init__(self, path: Path) -> None:
        """Keep graphs in `path`, made when the first one is saved."""
        self.path = path

    def save(self, name: str, graph: Graph, space: types.Space) -> None:
        """Keep a graph in the place of the one before; a crash leaves the one or the other.

        Raises:
            OSError: the disk refused; the one before is still there.
        """
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        before = self.manifest(name)
        number = int(before.stem.rpartition("-")[2]) + 1 if before is not None and before.stem else 1
        stem = f"{name}-{number}"
        path, marks_path = self._paths(stem)
        try:
            n_bytes = _save(graph.index, path)
            marks = graph.marks.astype("<u8").tobytes()
            marks_path.write_bytes(marks)
            for each in (path, marks_path):
                _sync(each)
        except BaseException:
            self._remove(stem)
            raise
        manifest = Manifest(
            format=FORMAT,
            space=space,
            n=graph.n,
            ef=graph.ef,
            stem=stem,
            n_bytes=n_bytes,
            crc=_crc(path),
            marks_crc=zlib.crc32(marks),
        )
        self._write_manifest(name, manifest)
        if before is not None and before.stem:
            self._remove(before.stem)

    def refuse(self, name: str, n: int, space: types.Space) -> None:
        """Note that a partition of `n` vectors gets no graph, so that it is not tried again after every start."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        before = self.manifest(name)
        self._write_manifest(name, Manifest(format=FORMAT, space=space, n=n, ef=0))
        if before is not None and before.stem:
            self._remove(before.stem)

    def manifest(self, name: str) -> Manifest | None:
        """Return what is said of a graph; None where there is none or it cannot be read."""
        try:
            return msgspec.json.decode((self.path / f"{name}.json").read_bytes(), type=Manifest)
        except (OSError, msgspec.MsgspecError, ValueError):
            return None

    def load(self, manifest: Manifest, capacity: int = 0) -> Graph | None:
        """Return a graph of its own with room for `capacity` vectors; None where a file is missing or damaged.

        hnswlib believes what it reads, and crashes over garbage: it is compared with its checksum first.
        """
        path, marks_path = self._paths(manifest.stem)
        try:
            marks = marks_path.read_bytes()
            is_sound = (
                path.stat().st_size == manifest.n_bytes
                and zlib.crc32(marks) == manifest.marks_crc
                and len(marks) == 8 * manifest.n
                and _crc(path) == manifest.crc
            )
            if not is_sound:
                return None
            index = hnswlib.Index("ip", manifest.space.dim)
            index.load_index(str(path), max_elements=max(capacity, manifest.n))
        except (OSError, RuntimeError, MemoryError):
            return None
        index.set_num_threads(1)
        if index.get_current_count() != manifest.n or not manifest.n:
            return None
        return Graph(index, manifest.ef, np.frombuffer(marks, dtype="<u8").astype(np.uint64))

    def set_aside(self, name: str) -> None:
        """Put what belongs to a damaged graph into a folder of its own, in the place of what was there."""
        aside = self.path / "damaged"
        with contextlib.suppress(OSError):
            aside.mkdir(mode=0o700, exist_ok=True)
            for old in aside.iterdir():
                old.unlink()
            for each in self._files(name):
                each.rename(aside / each.name)
        log.warning("graph_set_aside", name=name, path=str(aside))

    def remove(self, name: str) -> None:
        """Remove a graph."""
        with contextlib.suppress(OSError):
            for each in self._files(name):
                each.unlink()

    def names(self) -> list[str]:
        """Return the names of the graphs that there are."""
        return [path.stem for path in self.path.glob("*.json")]

    def sweep(self) -> None:
        """Remove what a crash left: files that no manifest names."""
        with contextlib.suppress(OSError):
            stems = {manifest.stem for name in self.names() if (manifest := self.manifest(name)) is not None}
            for each in self.path.iterdir():
                if each.suffix == ".tmp" or (each.suffix in (".hnsw", ".marks") and each.stem not in stems):
                    each.unlink()

    def _files(self, name: str) -> Iterator[Path]:
        for each in sorted(self.path.iterdir()):
            if each.is_file() and (each.stem == name or each.stem.rpartition("-")[0] == name):
                yield each

    def _paths(self, stem: str) -> tuple[Path, Path]:
        return self.path / f"{stem}.hnsw", self.path / f"{stem}.marks"

    def _remove(self, stem: str) -> None:
        for path in self._paths(stem):
            with contextlib.suppress(OSError):
                path.unlink()

    def _write_manifest(self, name: str, manifest: Manifest) -> None:
        path = self.path / f"{name}.json"
        fresh = path.with_suffix(".tmp")
        fresh.write_bytes(msgspec.json.encode(manifest))
        fresh.chmod(0o600)
        _sync(fresh)
        fresh.replace(path)
        _sync(self.path)


def _save(index: hnswlib.Index, path: Path) -> int:
    index.save_index(str(path))
    path.chmod(0o600)
    n_bytes = int(index.index_file_size())
    if path.stat().st_size != n_bytes:  # hnswlib does not look at what the disk says
        message = f"{path.name} could not be written"
        raise OSError(message)
    return n_bytes


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _crc(path: Path) -> int:
    found = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            found = zlib.crc32(chunk, found)
    return found
