"""One turn of embedding: some entries, the vectors that are there already, the requests for the others.

A text is asked for once: its vector is in `.cache/` before anything else happens to it. A request that is refused is
taken apart until what is at fault stands alone.
"""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import msgspec
import structlog

from everosd import errors, types
from everosd.cascade import project
from everosd.index import contract
from everosd.models import embed
from everosd.store import row

if TYPE_CHECKING:
    from everosd.index import vector
    from everosd.models import cache as caches

T = TypeVar("T")

log = structlog.get_logger(__name__)

REQUESTS_AHEAD = 2
"""Requests in one turn, for each that may be under way at once: more would keep an edit waiting behind a backlog."""

MIN_SPLIT_CHARS = 80
"""A text that is refused is halved and asked for in two parts down to this length."""

MAX_REFUSALS = 20
"""So many in a row are the provider's fault, not the texts': halving one text of a thousand letters takes 15 at most."""

_DAY = re.compile(r"(?<=\S) \(\d{4}-\d\d-\d\d\)$")
"""Of which a narrative has a statement, as `narrative.spoken` puts it behind the fact. What is stated means the same
without it, and most such facts are those of its sources word by word: their vectors are there."""


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """A text to embed."""

    text: str
    digest: bytes


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry that lacks vectors, with its text."""

    key: types.EntryKey
    digest: bytes
    path: types.RelPath
    line: int
    pieces: tuple[Piece, ...]


class Store:
    """The cache, if there is one that works: one that fails costs time only."""

    def __init__(self, cache: caches.Cache | None = None) -> None:
        """Use `cache`; None: nothing is remembered."""
        self._cache = cache

    async def get(self, space: types.Space, digests: Sequence[bytes]) -> dict[bytes, embed.Vectors]:
        """Return the vectors that are there."""
        return await self._do(lambda cache: cache.get(space, digests)) or {}

    async def put(self, space: types.Space, vectors: Mapping[bytes, embed.Vectors]) -> None:
        """Remember vectors; they are on disk afterwards."""
        await self._do(lambda cache: cache.put(space, vectors))

    def limit(self, max_bytes: int) -> None:
        """Keep no more than about that much from now on."""
        if self._cache is not None:
            self._cache.max_bytes = max_bytes

    async def close(self) -> None:
        """Close the cache."""
        await self._do(lambda cache: cache.close())

    async def _do(self, job: Callable[[caches.Cache], T]) -> T | None:
        if self._cache is None:
            return None
        try:
            return await asyncio.to_thread(job, self._cache)
        except (errors.StoreError, OSError, sqlite3.Error) as error:
            await asyncio.to_thread(log.warning, "embedding_cache_failed", reason=str(error))
            return None


class Pace:
    """What was learned of a provider: it outlives a turn."""

    def __init__(self, batch_size: int) -> None:
        """Begin with what the settings say."""
        self.batch_size = batch_size
        """Texts per request: fewer once more were refused that were taken in parts."""
        self.max_chars = 0
        """Texts from this length on are halved before they are asked for, because one was refused whole and taken in
        halves; 0: none was."""
        self.is_careful = False
        """Whether one request is sent at a time: many were refused, and they are looked into one after the other."""
        self.n_refusals = MAX_REFUSALS
        """In a row, without an answer between them; at the start nothing speaks for it."""

    def is_too_long(self, piece: Piece) -> bool:
        """Return whether a text would be refused for its length."""
        return 0 < self.max_chars <= len(piece.text)

    @property
    def is_trusted(self) -> bool:
        """Whether a refusal is worth looking into: a provider that refuses everything is not asked text by text."""
        return self.n_refusals < MAX_REFUSALS


class Turn:
    """Entries on their way to vectors of one space."""

    def __init__(self, space: types.Space, entries: Sequence[Entry], store: Store, pace: Pace) -> None:
        """Begin with nothing but the texts."""
        self.waiting = {entry.key: entry for entry in entries}
        """Entries that lack some of their vectors."""
        self.failures: dict[bytes, errors.LLMError] = {}
        """Why a piece has no vector, by its digest."""
        self.is_in_doubt = False
        """Whether refusals were not looked into, because the provider refuses too much; their texts simply wait."""
        self.n_answers = 0
        self.n_requested = 0
        self.n_from_cache = 0
        self.space = space
        self._store = store
        self._pace = pace
        self._vectors: dict[bytes, embed.Vectors] = {}  # of each piece (n, dim): one row, several where it was halved
        self._sent: set[asyncio.Task[None]] = set()

    async def take_from_cache(self) -> None:
        """Take the vectors that are there already."""
        await self._take([piece for entry in self.waiting.values() for piece in entry.pieces])

    async def _take(self, pieces: Iterable[Piece]) -> None:
        digests = list({piece.digest for piece in pieces})
        found = await self._store.get(self.space, digests)
        self.n_from_cache += len(found)
        self._vectors |= {digest: one.reshape(1, -1) for digest, one in found.items()}

    def complete(self) -> list[vector.Embedded]:
        """Return the entries that have all their vectors now, each once."""
        import numpy as np

        from everosd.index import vector

        done = [one for one in self.waiting.values() if all(piece.digest in self._vectors for piece in one.pieces)]
        for entry in done:
            del self.waiting[entry.key]
        return [
            vector.Embedded(
                key=one.key,
                digest=one.digest,
                vectors=np.concatenate([np.empty((0, self.space.dim), np.float32), *map(self._of, one.pieces)]),
            )
            for one in done
        ]

    def _of(self, piece: Piece) -> embed.Vectors:
        return self._vectors[piece.digest]

    async def ask(
        self,
        embedder: embed.Embedder,
        alone: Container[types.EntryKey],
        on_answer: Callable[[], Awaitable[object]],
    ) -> None:
        """Ask for what the first entries lack, requests side by side; entries in `alone` share no request with others.

        Cancelled, it leaves the requests to `drain`.
        """
        room = asyncio.Semaphore(1 if self._pace.is_careful else embedder.max_concurrent)

        async def send(pieces: list[Piece]) -> None:
            async with room:
                await self._request(embedder, pieces)
            await on_answer()

        self._sent = {asyncio.create_task(send(one), name="embed") for one in self._requests(embedder, alone)}
        if self._sent:
            await asyncio.wait(self._sent)
        # Of every one, although one is raised: an error that nobody looks at is logged as lost, with its traceback.
        failures = [task.exception() for task in self._sent]
        for failure in filter(None, failures):
            raise failure

    async def drain(self, timeout_s: float) -> None:
        """Keep the answers that are on their way, for a moment, then let go."""
        if not self._sent:
            return
        _, late = await asyncio.wait(self._sent, timeout=timeout_s)
        for task in late:
            task.cancel()
        await asyncio.gather(*self._sent, return_exceptions=True)  # of those that are done too: see `ask`

    def failure_of(self, entry: Entry) -> errors.LLMError | None:
        """Return why an entry that waits has failed; None: nothing was asked of it yet."""
        return next((self.failures[piece.digest] for piece in entry.pieces if piece.digest in self.failures), None)

    def _requests(self, embedder: embed.Embedder, alone: Container[types.EntryKey]) -> Iterable[list[Piece]]:
        n_texts = 1 if self._pace.is_careful else self._pace.batch_size * embedder.max_concurrent * REQUESTS_AHEAD
        asked = set(self._vectors)
        n_known = len(asked)
        batch: list[Piece] = []
        for entry in self.waiting.values():
            if len(asked) - n_known >= n_texts:
                break
            missing = {piece.digest: piece for piece in entry.pieces if piece.digest not in asked}
            asked.update(missing)
            is_alone = entry.key in alone
            for piece in missing.values():
                if is_alone or self._pace.is_too_long(piece):
                    yield [piece]
                    continue
                batch.append(piece)
                if len(batch) >= self._pace.batch_size:
                    yield batch
                    batch = []
        if batch:
            yield batch

    async def _request(self, embedder: embed.Embedder, pieces: list[Piece]) -> None:
        if len(pieces) == 1 and self._pace.is_too_long(pieces[0]):
            await self._halve(embedder, pieces[0], None)
            return
        self.n_requested += len(pieces)
        try:
            vectors = await embedder.passages([piece.text for piece in pieces])
        except errors.LLMRejected as error:
            if self._pace.is_trusted:
                self._pace.n_refusals += 1
                await self._take_apart(embedder, pieces, error)
            else:
                self.is_in_doubt = True
        except errors.LLMUnavailable as error:
            self.failures |= {piece.digest: error for piece in pieces}
        else:
            self.n_answers += 1
            self._pace.n_refusals = 0
            got = {piece.digest: vectors[n] for n, piece in enumerate(pieces)}
            await self._store.put(self.space, got)
            self._vectors |= {digest: one.reshape(1, -1) for digest, one in got.items()}

    async def _take_apart(self, embedder: embed.Embedder, pieces: list[Piece], error: errors.LLMRejected) -> None:
        if len(pieces) > 1:
            middle = len(pieces) // 2
            await self._request(embedder, pieces[:middle])
            await self._request(embedder, pieces[middle:])
            if not any(piece.digest in self.failures for piece in pieces):
                self._pace.batch_size = min(self._pace.batch_size, len(pieces) - middle)
            return
        await self._halve(embedder, pieces[0], error)

    async def _halve(self, embedder: embed.Embedder, whole: Piece, error: errors.LLMRejected | None) -> None:
        """Ask for a text in two parts; `error` is why not in one, None where it was not tried."""
        halves = _halves(whole)
        await self._take(halves)  # what was halved once is not there as a whole, but in its parts
        for half in halves:
            if half.digest not in self._vectors:
                await self._request(embedder, [half])
        failed = [self.failures[half.digest] for half in halves if half.digest in self.failures]
        if failed or not halves:
            self.failures[whole.digest] = failed[0] if failed else error or errors.LLMRejected(embedder.name, "refused")
        if not halves or not all(half.digest in self._vectors for half in halves):
            return
        import numpy as np

        self._vectors[whole.digest] = np.concatenate([self._of(half) for half in halves])
        if error is not None:
            self._pace.max_chars = min(self._pace.max_chars or len(whole.text), len(whole.text))


def entries(owed: Sequence[vector.Owed], rows: Mapping[int, row.EntryRow], max_tokens: int) -> list[Entry]:
    """Cut the texts of what is owed into pieces; blocking. What changed meanwhile is left out: it comes again."""
    from everosd.models import piece as cutting

    found = []
    for one in owed:
        if one.key not in rows:
            continue
        source = project.document(rows[one.key])
        if contract.text_digest(source) != one.digest:
            continue
        body = _DAY.sub("", source.body) if source.kind == "atomic_fact" else source.body
        texts = cutting.pieces(source.title, body, max_tokens)
        pieces = tuple(Piece(text=text, digest=embed.digest(text)) for text in texts)
        at = rows[one.key]
        found.append(Entry(key=one.key, digest=one.digest, path=at.path, line=at.line, pieces=pieces))
    return found


def _halves(whole: Piece) -> list[Piece]:
    """Return a refused text in two parts; none where it is too short for that."""
    if len(whole.text) < 2 * MIN_SPLIT_CHARS:
        return []
    middle = len(whole.text) // 2
    at = whole.text.rfind(" ", MIN_SPLIT_CHARS, middle)
    at = middle if at < 0 else at
    parts = (whole.text[:at].strip(), whole.text[at:].strip())
    return [Piece(text=part, digest=embed.digest(part)) for part in parts if part]
