"""The vector index: the nearest entries of an owner, exact where that is cheap, with scores in [0, 1].

In: documents of the ledger, then their vectors, which come later and from elsewhere (`owed`, `put`). Out: keys with
cosines. On disk there is one SQLite file (`slab`); in memory the partitions that were searched last (`partition`), each
the long or the short texts of one owner: nobody's search looks at the rows of others.
"""

from __future__ import annotations

import collections
import contextlib
import importlib
import threading
from collections.abc import Callable, Container, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import structlog

from everosd import errors, types
from everosd.index import contract, intact, record, slab, text, where

if TYPE_CHECKING:
    from everosd.index import build, partition

Owed: TypeAlias = record.Owed
Embedded: TypeAlias = record.Embedded

MEMORY_BYTES = 64 << 20
"""Partitions that are kept in memory, unless more is allowed. Those of the owner searched last are kept whatever they take."""

_KEPT = 2  # partitions of one owner
_GRAPHS = "graphs"

log = structlog.get_logger(__name__)


class VectorIndex:
    """Search by meaning over the entries of the ledger; implements `contract.Index`.

    Writes take turns under a lock, searches come from any thread at any time. All calls block; a search waits for the
    disk only where its partition is not in memory.
    """

    name = record.NAME

    def __init__(self, folder: Path, memory_bytes: int = MEMORY_BYTES) -> None:
        """Open the index in `folder`, made where there is none.

        Raises:
            DerivedIndexError: the files are damaged or of another version: set them aside and rebuild.
            IndexUnavailable: they can't be read or written now (permission, I/O), or what counts with vectors cannot be
                imported: nothing was changed.
        """
        self.folder = folder
        self._memory_bytes = memory_bytes
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise errors.IndexUnavailable(self.name, str(error)) from error
        self._slab = slab.Slab(folder)
        self.is_new = self._slab.is_new
        self._has_arrays = False
        try:
            has_graphs = (folder / _GRAPHS).is_dir()
            if self._slab.n_documents or has_graphs:
                self._load_arrays()
            if has_graphs:
                self._sweep()
        except BaseException:
            self._slab.close()  # whoever opens it tries again, for as long as it takes
            raise
        self._made_builder: build.Builder | None = None
        self._is_closed = False
        self._change_lock = threading.Lock()  # one change at a time, from the disk to the memory
        self._loaded: collections.OrderedDict[record.Name, partition.Partition] = collections.OrderedDict()
        self._sizes: dict[record.Name, int] = {}
        self._n_bytes = 0  # of all that are loaded
        self._loaded_lock = threading.Lock()  # of these three alone
        self._load_lock = threading.Lock()  # no partition is read while a change goes from the disk to the memory
        self._pending: dict[int, record.Row | None] = {}
        self._shown: dict[int, record.Row | None] = {}
        self._n_shown = 0  # documents more than on disk, fewer where negative

    @property
    def space(self) -> types.Space | None:
        """The space of the vectors that are searched; None before `use` was ever called."""
        return self._slab.space

    @property
    def on_owed(self) -> Callable[[], None]:
        """Called, from any thread, when a search finds vectors damaged: they are owed again."""
        return self._slab.on_owed

    @on_owed.setter
    def on_owed(self, tell: Callable[[], None]) -> None:
        self._slab.on_owed = tell

    def use(self, space: types.Space) -> int:
        """Search vectors of `space` from now on; return how many documents owe theirs.

        Vectors of another space stay where they are until they are replaced: going back finds them again.
        """
        with self._change_lock, self._load_lock:
            if self._slab.use(space):
                with self._loaded_lock:
                    for name in list(self._loaded):
                        self._forget(name)
        return self._slab.n_owed

    def write(self, documents: Iterable[contract.Document], removed: Iterable[types.EntryKey]) -> None:
        """Replace documents by key and remove keys; idempotent; visible and durable after `commit`.

        Raises:
            IndexUnavailable: what counts with vectors cannot be imported.
        """
        self._load_arrays()
        with self._change_lock:
            self._pending.update(_changes(documents, removed))

    def show(self, documents: Sequence[contract.Document], removed: Sequence[types.EntryKey]) -> None:
        """Let searches see a small batch now, before it is durable; the `write` and `commit` of it have to follow.

        Raises:
            IndexUnavailable: what counts with vectors cannot be imported.
        """
        self._load_arrays()
        changes = _changes(documents, removed)
        with self._change_lock:
            before = self._slab.before(changes)
            with self._load_lock:
                self._shown = changes
                self._n_shown = sum(row is not None for row in changes.values()) - len(before)
                self._apply(changes, before)

    def commit(self) -> None:
        """Make what was written durable and visible.

        Raises:
            IndexUnavailable: the disk refused; everything since the last commit has to be written again.
        """
        with self._change_lock:
            changes, self._pending = self._pending, {}
            before = self._slab.write(changes) if changes else {}
            with self._load_lock:
                self._shown, self._n_shown = {}, 0
                self._apply(changes, before)

    def owed(self, limit: int, skip: Container[int] = ()) -> list[Owed]:
        """Return up to `limit` documents that lack vectors of their text in this space, those changed last first."""
        return self._slab.owed(limit, skip)

    def n_owed(self) -> int:
        """Return how many documents lack vectors of their text in this space; does not block."""
        return self._slab.n_owed

    def put(self, done: Sequence[Embedded], space: types.Space | None = None) -> int:
        """Keep vectors; durable and visible when it returns.

        Left out are documents that are gone or have another text by now, and all of them where `space` is given and is
        not the one in force.

        Returns:
            How many were kept.

        Raises:
            WrongWidth: they are not as wide as those of the space in force.
        """
        with self._change_lock:
            in_force = self.space
            if in_force is None or (space is not None and space != in_force):
                return 0
            for each in done:
                if each.vectors.ndim != 2 or each.vectors.shape[1] != in_force.dim:  # noqa: PLR2004  # rows and columns
                    raise errors.WrongWidth(each.vectors.shape[-1], in_force.dim, str(in_force))
            stored = self._slab.put(done)
            with self._load_lock:
                by_name: dict[record.Name, list[record.Stored]] = collections.defaultdict(list)
                for one in stored:
                    row = self._shown.get(one.key, one.row)
                    if row is not None:
                        by_name[row.name].append(one._replace(row=row))
                for name, part in by_name.items():
                    self._change_loaded(name, put=part)
        return len(stored)

    def search(self, query: partition.Vector, bounds: where.Where, k: int) -> list[contract.Hit]:
        """Return the `k` nearest documents within the bounds, the nearest first; equal ones by key, the newest first.

        A document is as near as the nearest of its pieces. There are as many as have vectors, up to `k`.

        Raises:
            WrongWidth: the query is not as wide as the vectors are.
        """
        parts = self._partitions(query, bounds)
        found = [each for part in parts for each in part.search(query, bounds, k)]
        for part in parts:
            self._ask_for_graph(part)
        found.sort(reverse=True)
        return [each.hit() for each in found[:k]]

    def score(self, query: partition.Vector, bounds: where.Where, links: Iterable[int]) -> list[contract.Hit]:
        """Return the entries that these links stand for, within the bounds; those without vectors are left out."""
        if not self.count():
            return []
        import numpy as np

        wanted = np.array(sorted({number for number in links if number}), dtype=np.int64)
        if not len(wanted):
            return []
        return [each.hit() for part in self._partitions(query, bounds) for each in part.score(query, bounds, wanted)]

    def vectors(self, keys: Sequence[types.EntryKey], space: types.Space) -> dict[types.EntryKey, partition.Vectors]:
        """Return vectors of documents, by key: `(n_pieces, dim)` float32, rows of length 1.

        Left out are documents that are not there or lack vectors of their text, and all of them where `space` is not the
        one in force. Searches go on meanwhile, however many are asked for.

        Raises:
            IndexUnavailable, DerivedIndexError: the disk refused, or what is on it is damaged.
        """
        found: dict[types.EntryKey, partition.Vectors] = {}
        for start in range(0, len(keys), slab.MAX_KEYS):
            with self._load_lock:
                if space != self.space:
                    return {}
                codes = self._slab.vectors(keys[start : start + slab.MAX_KEYS])
            found |= {types.EntryKey(key): record.decode(each) for key, each in codes.items()}
        return found

    def count(self) -> int:
        """Return the number of documents, with vectors or still without; does not block."""
        return self._slab.n_documents + self._n_shown

    def keys(self) -> set[int]:
        """Return the keys of all documents, with vectors or still without."""
        found = self._slab.keys()
        shown = self._shown
        return (found - set(shown)) | {key for key, row in shown.items() if row is not None}

    def close(self) -> None:
        """Release files and threads; what was not committed is dropped.

        Partitions in memory still answer, until another index has taken the place of this one.
        """
        with self._loaded_lock:
            self._is_closed, builder = True, self._made_builder
        if builder is not None:
            builder.close()
        with self._change_lock, self._load_lock:
            self._pending = {}
            self._slab.close()

    def _partitions(self, query: partition.Vector, bounds: where.Where) -> list[partition.Partition]:
        space = self.space
        if space is None:
            return []
        if not self.count():
            return []
        if query.shape != (space.dim,):
            raise errors.WrongWidth(query.shape[-1] if query.ndim else 0, space.dim, str(space))
        scope = contract.scope(bounds.owner)
        is_short = {kind in text.SHORT_KINDS for kind in bounds.kinds}
        names = [record.Name(scope, short) for short in sorted(is_short)]
        found = [self._partition(name) for name in names]
        for name, part in zip(names, found, strict=True):
            self._weigh(name, part)
        return [part for part in found if part.dim == space.dim]  # `use` came in between

    def _partition(self, name: record.Name) -> partition.Partition:
        from everosd.index import partition

        with self._loaded_lock:
            found = self._loaded.get(name)
            if found is not None:
                self._loaded.move_to_end(name)
                return found
        with self._load_lock:
            with self._loaded_lock:
                if name in self._loaded:  # somebody else has read it meanwhile
                    return self._loaded[name]
            space = self.space
            number = self._slab.number(name)
            with contextlib.closing(self._slab.read(name, self._shown)) as stored:
                found = partition.Partition(space.dim if space else 0, stored, name=str(number))
            with self._loaded_lock:
                self._loaded[name] = found
        return found

    def _apply(self, changes: record.Changes, before: dict[int, record.Before]) -> None:
        """Bring partitions in memory up to date; documents come in from elsewhere only by reading it anew."""
        gone: dict[record.Name, list[int]] = collections.defaultdict(list)
        changed: dict[record.Name, dict[int, record.Row]] = collections.defaultdict(dict)
        moved: set[record.Name] = set()
        for key, row in changes.items():
            old = before.get(key)
            if old is not None and (row is None or row.name != old.name):
                gone[old.name].append(key)
                if row is not None:
                    moved.add(row.name)
            if row is not None:
                changed[row.name][key] = row
        for name in gone.keys() | changed.keys():
            self._change_loaded(name, gone=gone.get(name, ()), changed=changed.get(name))
        with self._loaded_lock:
            for name in moved:
                self._forget(name)

    def _change_loaded(
        self,
        name: record.Name,
        *,
        gone: Sequence[int] = (),
        changed: dict[int, record.Row] | None = None,
        put: Sequence[record.Stored] = (),
    ) -> None:
        with self._loaded_lock:
            found = self._loaded.get(name)
        if found is None:
            return
        if gone:
            found.remove(gone)
        if changed:
            found.change(changed)
        if put:
            found.put(put)
        if found.is_wasteful:
            with self._loaded_lock:
                self._forget(name)
        else:
            self._weigh(name, found)

    def _ask_for_graph(self, part: partition.Partition) -> None:
        space = self.space
        if part.wants_graph and space is not None and part.dim == space.dim:
            from everosd.index import build

            self._builder.ask(build.Job(part.name, part, space))

    @property
    def _builder(self) -> build.Builder:
        """What builds graphs, from the first partition on that wants one."""
        from everosd.index import build, graph

        with self._loaded_lock:
            if self._made_builder is None:
                self._made_builder = build.Builder(graph.Folder(self.folder / _GRAPHS), _not_built)
                if self._is_closed:  # a search that was under way
                    self._made_builder.close()
            return self._made_builder

    def _load_arrays(self) -> None:
        """Import NumPy and hnswlib, 11 MB and 0.2 s the first time: with the first document, not with an empty index.

        Raises:
            IndexUnavailable: they cannot be.
        """
        if self._has_arrays:
            return
        try:
            importlib.import_module("everosd.index.build")
        except (ImportError, RuntimeError) as error:  # the latter is NumPy's, on a processor that it was not built for
            unusable = errors.IndexUnavailable(self.name, str(error))
            unusable.hint = "install everosd again; keyword search needs nothing of this"
            raise unusable from error
        self._has_arrays = True

    def _sweep(self) -> None:
        """Remove graphs of partitions that are small by now, and what a crash left of others."""
        from everosd.index import graph, partition

        graphs = graph.Folder(self.folder / _GRAPHS)
        graphs.sweep()
        for name in graphs.names():
            n_documents = self._slab.size(int(name)) if name.isdigit() else 0
            if n_documents < partition.GRAPH_ROWS // 8:  # of which each may have many pieces
                graphs.remove(name)

    def _weigh(self, name: record.Name, part: partition.Partition) -> None:
        """Note what a partition takes now; let go of those searched longest ago, until the others fit."""
        with self._loaded_lock:
            if self._loaded.get(name) is not part:
                return
            n_bytes = part.n_bytes
            self._n_bytes += n_bytes - self._sizes.get(name, 0)
            self._sizes[name] = n_bytes
            while self._n_bytes > self._memory_bytes and len(self._loaded) > _KEPT:
                self._forget(next(iter(self._loaded)))

    def _forget(self, name: record.Name) -> None:
        """Let go of a partition; the lock of the dict is held."""
        self._loaded.pop(name, None)
        self._n_bytes -= self._sizes.pop(name, 0)


def _not_built(error: BaseException) -> None:
    """Say that a partition is searched exactly, which is slower and nothing else."""
    log.warning("graph_not_built", exc_info=error)


def _changes(documents: Iterable[contract.Document], removed: Iterable[types.EntryKey]) -> dict[int, record.Row | None]:
    """Return what a batch makes of each key: removals come before what it writes."""
    changes: dict[int, record.Row | None] = dict.fromkeys(removed)
    for document in documents:
        changes[document.key] = record.of(document, is_short=document.kind in text.SHORT_KINDS)
    return changes


def open_or_set_aside(folder: Path, memory_bytes: int = MEMORY_BYTES) -> tuple[VectorIndex, bool]:
    """Open the index; a damaged one is renamed to `<folder>.damaged-<n>` and an empty one put in its place.

    Returns:
        The index, and whether it has to be filled: it was damaged, missing, or never written to.

    Raises:
        IndexUnavailable: permission, lock, I/O, or NumPy cannot be imported: nothing was renamed or removed.
    """
    try:
        index = VectorIndex(folder, memory_bytes)
    except errors.DerivedIndexError:
        intact.set_aside(folder)
        index = VectorIndex(folder, memory_bytes)
    return index, index.is_new
