"""Vectors for entries made up by a test: a real index, filled with vectors in which texts that share words are near."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from everosd import types
from everosd.index import contract, vector
from everosd.models import embed
from everosd.store import row
from tests import embedding_stub, memory_rows

MODEL, DIM = "words", 256


class MemoryVectors:
    """A real vector index beside a `memory_rows.MemoryStore`, and what turns queries into vectors for it.

    Implements what `search.query` asks for as `Vectors` and as `Queries`.
    """

    def __init__(self, folder: Path) -> None:
        """Put the index below `folder`."""
        self.index = vector.VectorIndex(folder / "vectors")
        self.index.use(types.Space(model=MODEL, dim=DIM))
        self.n_suspected = 0
        self.lacking = ""
        """What `lack` says."""
        self.failure: Exception | None = None
        """Raised instead of giving a query its vector."""
        self.is_set_up = True
        self.dim = DIM
        """Width of the vectors of queries."""
        self.asked: list[tuple[str, float | None]] = []
        """Texts that a vector was asked for, and how long somebody would wait for it."""

    def suspect(self) -> None:
        """Count searches that failed."""
        self.n_suspected += 1

    def lack(self) -> str:
        """Lack what the test says."""
        return self.lacking

    async def vector(self, text: str, *, patience_s: float | None = None) -> embed.Vectors:
        """Return the vector of a query, or fail as the test says."""
        self.asked.append((text, patience_s))
        if self.failure is not None:
            raise self.failure
        return await asyncio.to_thread(embedding_stub.vector, text, MODEL, self.dim)

    def add(self, *entries: row.EntryRow, has_vectors: bool = True) -> None:
        """Index entries; those without vectors wait for them."""
        self.add_documents([memory_rows.document(one) for one in entries], has_vectors=has_vectors)

    def add_documents(self, documents: Sequence[contract.Document], *, has_vectors: bool = True) -> None:
        """Index documents, each in one piece."""
        self.index.write(documents, [])
        self.index.commit()
        if has_vectors:
            self.index.put([embedded(one, [f"{one.title} {one.body}"]) for one in documents])


def embedded(document: contract.Document, texts: Sequence[str]) -> vector.Embedded:
    """Return the vectors of a document whose pieces are `texts`."""
    vectors = np.stack([embedding_stub.vector(text, MODEL, DIM) for text in texts])
    return vector.Embedded(key=document.key, digest=contract.text_digest(document), vectors=vectors)
