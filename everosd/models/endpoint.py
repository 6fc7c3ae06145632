"""Vectors from an endpoint that speaks as OpenAI's `/v1/embeddings` does."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import structlog

from everosd import clock, config, errors, types
from everosd.models import embed, wire

if TYPE_CHECKING:
    import openai

log = structlog.get_logger(__name__)

_LARGE_BODY_BYTES = 1 << 20
"""Answers above are decoded in a thread: it takes 5 ms per MiB."""
_BYTES_PER_NUMBER = 64
"""A number takes twelve, or twenty in a line of its own; more is no answer but a flood, which would fill the memory."""
_WIDEST = 65_536

_Answer = wire.Answer


class Endpoint(wire.Wire):
    """Implements `embed.Embedder`.

    At most `max_concurrent` requests for passages are under way, and beside them `query_max_concurrent` for queries.
    """

    def __init__(self, settings: config.Embedding, time: clock.Clock) -> None:
        """Nothing is opened or imported before the first call."""
        where = wire.Where(
            model=settings.model,
            key=settings.api_key,
            url=settings.url,
            timeout_s=settings.timeout_seconds,
            section="embedding",
            takes="embeddings",
            gives="embeddings",
        )
        super().__init__(where, time)
        self.batch_size = settings.batch_size
        self.max_concurrent = settings.max_concurrent
        self._settings = settings
        self._arrays = embed.Arrays(self.name)
        self._passages = asyncio.Semaphore(settings.max_concurrent)
        self._queries = asyncio.Semaphore(settings.query_max_concurrent)
        self._dim = settings.dim or None
        self._sends_dim: bool | None = None if settings.dim else False
        """None: it is not known yet whether the endpoint takes `dimensions`."""
        self._at_once = settings.batch_size
        """Texts per request: fewer where the endpoint could not answer in time."""

    def expect(self, space: types.Space) -> bool:
        """Take it that the vectors to come are of `space`, if it is this model's and of the width that is wanted."""
        is_ours = space == types.Space(model=self._settings.model, dim=self._settings.dim or space.dim)
        if is_ours:
            self._dim = space.dim
        return is_ours

    async def probe(self) -> types.Space:
        """Ask for the vector of a word and return the space; where that fails, nothing has changed."""
        dim = self._dim
        if not self._settings.dim:
            self._dim = None
        try:
            found = await self._ask(["probe"], is_query=False)
        except BaseException:
            self._dim = dim
            raise
        self._dim = found.shape[1]
        return types.Space(model=self._settings.model, dim=self._dim)

    async def passages(self, texts: Sequence[str]) -> embed.Vectors:
        """Return `(len(texts), dim)`; in as many requests as the endpoint needs to answer in time."""
        await self._arrays.load()
        import numpy as np

        found: list[embed.Vectors] = []
        n_done = 0
        while n_done < len(texts):
            some = texts[n_done : n_done + self._at_once]
            try:
                vectors = await self._ask(some, is_query=False)
            except wire.TimedOut as error:
                if len(some) == 1:
                    raise
                self._at_once = max(1, min(self._at_once, len(some)) // 4)
                log.info("embedding_batch_smaller", provider=error.provider, n_texts=self._at_once)
                continue
            if len(some) == self._at_once:
                self._at_once = min(self.batch_size, self._at_once * 2)
            n_done += len(some)
            found.append(vectors)
        return np.concatenate(found) if found else np.zeros((0, self._dim or 0), dtype=np.float32)

    async def query(self, text: str) -> embed.Vectors:
        """Return `(dim,)`; sent once, and not at all while the provider wants to be left alone."""
        vectors = await self._ask([text], is_query=True)
        return vectors.reshape(-1)

    async def _ask(self, texts: Sequence[str], *, is_query: bool) -> embed.Vectors:
        """Return the vectors of one request, sent as often as that may help.

        Raises:
            wire.TimedOut: there was no answer in time; not sent again.
        """
        await self._arrays.load()
        semaphore = self._queries if is_query else self._passages
        clean = [wire.clean(text) for text in texts]
        n_sent = 0
        while True:
            async with semaphore:
                await self._turn(is_query=is_query)
                answer = await self._request(clean)
            n_sent += 1
            error = self._failure(answer, n_sent, is_query=is_query)
            if error is None:
                try:
                    return await self._vectors(answer.body, len(texts))
                except (errors.LLMUnavailable, errors.LLMRejected) as refused:
                    error = refused
            elif not answer.is_worth_repeating:
                break
            if is_query or n_sent > self._settings.max_retries:
                break
            await self._back_off(n_sent)
        # Raised here and not where it arose: a cause or context would bring the provider's words into a traceback.
        raise error

    async def _request(self, texts: Sequence[str]) -> _Answer:
        """Send one request; a second one without `dimensions` where it may be that word which the endpoint refuses."""
        if self._sends_dim is False:
            return await self._post(texts, 0)
        answer = await self._post(texts, self._settings.dim)
        if answer.status == wire.OK:
            self._sends_dim = True
        elif answer.status in (400, 422) and self._sends_dim is None:
            plain = await self._post(texts, 0)
            if plain.status == wire.OK:
                self._sends_dim = False
                log.info("embedding_endpoint_without_dimensions", provider=self.name)
                return plain
        return answer

    async def _post(self, texts: Sequence[str], dim: int) -> _Answer:
        """Send one request and return what came of it; never raises but for cancellation and a client that cannot be made."""

        def request(client: openai.AsyncOpenAI) -> Any:
            return client.embeddings.with_raw_response.create(
                model=self._settings.model,
                input=list(texts),
                # Every server knows `float`; some know nothing else.
                encoding_format="float",
                extra_body={"dimensions": dim} if dim else None,
            )

        max_bytes = wire.BYTES_BESIDE + len(texts) * (self._dim or _WIDEST) * _BYTES_PER_NUMBER
        return await self._send(request, max_bytes)

    def _warm(self, client: openai.AsyncOpenAI) -> None:
        _ = client.embeddings.with_raw_response.create

    async def _vectors(self, body: bytes, n_texts: int) -> embed.Vectors:
        """Return what an answer holds, checked.

        Raises:
            LLMUnavailable: it is no answer of an endpoint at all: a page of a proxy, half an answer, nothing.
            LLMRejected: there is something wrong with the vectors.
            ConfigError: they have another width than the settings ask for.
        """
        is_large = len(body) >= _LARGE_BODY_BYTES
        given = await asyncio.to_thread(_decode, body, n_texts) if is_large else _decode(body, n_texts)
        if given is None:
            raise self._no_answer()
        if isinstance(given, str):
            raise errors.LLMRejected(self.name, given)
        width = given.shape[1] if given.ndim == 2 else 0  # noqa: PLR2004  # rows and columns
        if self._settings.dim and width and width != self._settings.dim and len(given) == n_texts:
            reason = f"asks for vectors of {self._settings.dim} numbers, and {self.name} gives {width}"
            hint = f"set dim = {width}, or 0 for whatever comes, or name a model of that width"
            raise errors.ConfigError(config.FILE_NAME, "embedding.dim", reason, hint=hint)
        checked = embed.checked(self.name, given, n_texts, self._dim)
        if self._dim is None:
            self._dim = checked.shape[1]
        return checked


class _Row(msgspec.Struct, frozen=True, kw_only=True):
    embedding: list[float | None] | str
    """Numbers, null for those that are none, or little-endian float32 in base64."""
    index: int | None = None


class _Body(msgspec.Struct, frozen=True, kw_only=True):
    data: list[_Row]


_BODY = msgspec.json.Decoder(_Body)


def _decode(body: bytes, n_texts: int) -> embed.Vectors | str | None:
    """Return the vectors in the order of the texts; or what is wrong with them; None: this is no answer."""
    try:
        rows = _BODY.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        try:
            rows = msgspec.convert(json.loads(body), _Body)  # which reads `NaN`, no JSON, but a vector that is none
        except (msgspec.ValidationError, ValueError, RecursionError):
            return None
    if len(rows.data) != n_texts:
        return f"gave {len(rows.data)} vectors for {n_texts} texts"
    in_order = rows.data
    if any(row.index is not None for row in in_order):
        by_index = {row.index: row for row in rows.data}
        if set(by_index) != set(range(n_texts)):
            return "gave vectors that cannot be told apart"
        in_order = [by_index[number] for number in range(n_texts)]
    import numpy as np

    try:
        vectors = [
            np.frombuffer(base64.b64decode(row.embedding, validate=True), dtype="<f4")
            if isinstance(row.embedding, str)
            else np.array(row.embedding, dtype=np.float32)
            for row in in_order
        ]
    except (binascii.Error, ValueError, OverflowError):
        return "gave a vector that cannot be read"
    if len({len(vector) for vector in vectors}) != 1:
        return "gave vectors of several widths"
    return np.stack(vectors).astype(np.float32, copy=False)
