"""The text index: BM25 over Tantivy, exact for each owner, with scores in [0, 1].

In: documents of the ledger. Out: keys with scores. Two Tantivy indexes ("shelves") stand side by side, one for long
texts (episodes, memories, …) and one for single statements (facts, foresights): BM25 compares a text's length with the
average, and one average over both would make it meaningless for either. Only long texts have pairs of neighbouring words
as terms: in a single statement words stand together anyway.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

from everosd import errors, types
from everosd.index import contract, intact, shelf, token, where

SCHEMA_VERSION = 3
"""Of the documents and their terms; any change of either makes another one and with it a rebuild.
1: first. 2: words that stand together are terms too, in long texts. 3: what a memory is
filed under."""

SHORT_KINDS = frozenset({"atomic_fact", "foresight"})
"""Kinds whose entries are single statements."""


class TextIndex:
    """Keyword search over the entries of the ledger; implements `contract.Index`.

    `write`, `commit` and `close` take turns under a lock, searches come from any thread at any time and see the last
    commit. All calls block.
    """

    name = "text"

    def __init__(self, folder: Path) -> None:
        """Open the index in `folder`, made where there is none.

        Raises:
            DerivedIndexError: the files are damaged or of another version: set them aside and rebuild.
            IndexUnavailable: they can't be read or written now (permission, I/O): nothing was changed.
        """
        self.folder = folder
        self._lock = threading.Lock()
        long, short = folder / "long", folder / "short"
        with intact.translated():
            self.is_new = not intact.check(folder, SCHEMA_VERSION, (long, short))
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for part in (long, short):
                intact.sweep(part)
            self._long, self._short = shelf.Shelf(long, has_pairs=True), shelf.Shelf(short, has_pairs=False)

    def write(self, documents: Iterable[contract.Document], removed: Iterable[types.EntryKey]) -> None:
        """Replace documents by key and remove keys; idempotent; visible and durable after `commit`."""
        with self._lock, intact.translated(self._drop_writers):
            for key in removed:
                self._long.remove(key)
                self._short.remove(key)
            for document in documents:
                own, other = (self._short, self._long) if document.kind in SHORT_KINDS else (self._long, self._short)
                other.remove(document.key)
                own.replace(document)

    def show(self, documents: Sequence[contract.Document], removed: Sequence[types.EntryKey]) -> None:
        """Let searches see a small batch now, before it is durable; the `write` and `commit` of it have to follow."""
        masked = [document.key for document in documents] + list(removed)
        with self._lock, intact.translated():
            for one, is_short in ((self._long, False), (self._short, True)):
                one.show([each for each in documents if (each.kind in SHORT_KINDS) == is_short], masked)

    def commit(self) -> None:
        """Make what was written durable and visible; about 15 ms, nothing where nothing was written.

        Raises:
            IndexUnavailable: the disk refused; everything since the last commit has to be written again.
        """
        with self._lock, intact.translated(self._drop_writers):
            if self._long.is_dirty or self._short.is_dirty:
                intact.write_version(self.folder, SCHEMA_VERSION)
            self._long.commit()
            self._short.commit()

    def search(self, terms: Sequence[token.Term], bounds: where.Where, k: int) -> list[contract.Hit]:
        """Return the `k` best documents within the bounds, best first; equal scores by key, the newest first."""
        with intact.translated():
            hits = [hit for one in self._shelves(bounds.kinds) for hit in one.search(terms, bounds, k)]
        hits.sort(key=lambda hit: (-hit.score, -hit.key))
        return hits[:k]

    def score(self, terms: Sequence[token.Term], bounds: where.Where, links: Iterable[int]) -> list[contract.Hit]:
        """Return the entries that these links stand for, within the bounds; one without any of the terms scores 0."""
        wanted = [number for number in links if number]
        with intact.translated():
            return [hit for one in self._shelves(bounds.kinds) for hit in one.linked(terms, bounds, wanted)]

    def count(self) -> int:
        """Return the number of documents that a search can reach."""
        return self._long.count() + self._short.count()

    def keys(self) -> set[int]:
        """Return the keys of all documents that a search can reach."""
        with intact.translated():
            return self._long.keys() | self._short.keys()

    def close(self) -> None:
        """Release files and threads; what was not committed is dropped."""
        with self._lock:
            self._drop_writers()

    def _drop_writers(self) -> None:
        self._long.drop_writer()
        self._short.drop_writer()

    def _shelves(self, kinds: Iterable[str]) -> list[shelf.Shelf]:
        is_short = {kind in SHORT_KINDS for kind in kinds}
        return [self._short if short else self._long for short in sorted(is_short)]


def open_or_set_aside(folder: Path) -> tuple[TextIndex, bool]:
    """Open the index; a damaged one is renamed to `<folder>.damaged-<n>` and an empty one put in its place.

    Returns:
        The index, and whether it has to be filled: it was damaged, missing, or never written to.

    Raises:
        IndexUnavailable: permission, lock or I/O: nothing was renamed or removed.
    """
    try:
        index = TextIndex(folder)
    except errors.DerivedIndexError:
        intact.set_aside(folder)
        index = TextIndex(folder)
    return index, index.is_new
