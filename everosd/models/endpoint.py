"""Vectors from an endpoint that speaks as OpenAI's `/v1/embeddings` does.

What a provider says reaches no message and no log: it may repeat the key, or the texts. What is told is the status,
its error code where that is a plain word, and what to mend.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextvars
import datetime as dt
import email.utils
import json
import os
import random
import re
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import structlog

from everosd import clock, config, errors, types
from everosd.models import embed

if TYPE_CHECKING:
    import openai

log = structlog.get_logger(__name__)

FIRST_WAIT_S = 0.5
"""Before a request is sent a second time; twice as long each time after."""
LONGEST_WAIT_S = 20.0
PATIENCE_S = 60.0
"""Longest that a call waits for the moment that the provider named; of a later one the caller is told at once."""
LONGEST_RETRY_AFTER_S = 3600.0
"""A provider that wants to be left alone for longer is asked every hour whether it still does."""

_LARGE_BODY_BYTES = 1 << 20
"""Answers above are decoded in a thread: it takes 5 ms per MiB."""
_BYTES_PER_NUMBER = 64
"""A number takes twelve, or twenty in a line of its own; more is no answer but a flood, which would fill the memory."""
_BYTES_BESIDE = 1 << 20
_WIDEST = 65_536
_max_bytes: contextvars.ContextVar[int] = contextvars.ContextVar("_max_bytes", default=_BYTES_BESIDE)
"""Of the answer, unpacked, to the request that the running task makes."""
_FLOOD = "gives far more than embeddings"
_PLAIN_WORD = re.compile(r"[a-z][a-z_]{2,60}")
_OK, _TOO_MANY, _SERVER = 200, 429, 500
_AGAIN = (408, 409, 425, _TOO_MANY)
_UNUSABLE = (400, 413, 414, 415, 422)
"""It is the texts that are refused; another request may succeed."""
_KEY_HINT = "correct api_key under [embedding] in everos.toml, or EVEROS_EMBEDDING__API_KEY"
_HINTS = {
    401: ("refuses the key", _KEY_HINT),
    402: ("wants to be paid", "look at the provider's account"),
    403: ("does not let this key use the model", _KEY_HINT),
    404: ("knows no such model, or has no such address", "correct model and base_url under [embedding] in everos.toml"),
    **dict.fromkeys(
        (301, 302, 303, 307, 308),
        (
            "sends to another address, where nothing is sent unasked",
            "correct base_url under [embedding] in everos.toml",
        ),
    ),
    405: ("takes no embeddings at this address", "correct base_url under [embedding] in everos.toml"),
}


class Endpoint:
    """Implements `embed.Embedder`.

    At most `max_concurrent` requests for passages are under way, and beside them `query_max_concurrent` for queries.
    """

    def __init__(self, settings: config.Embedding, time: clock.Clock) -> None:
        """Nothing is opened or imported before the first call."""
        self.name = f"{settings.model} at {urllib.parse.urlsplit(settings.url).netloc.rpartition('@')[2]}"
        self.batch_size = settings.batch_size
        self.max_concurrent = settings.max_concurrent
        self._settings = settings
        self._time = time
        self._passages = asyncio.Semaphore(settings.max_concurrent)
        self._queries = asyncio.Semaphore(settings.query_max_concurrent)
        self._connecting: asyncio.Task[openai.AsyncOpenAI] | None = None
        self._posts: set[asyncio.Task[_Answer]] = set()
        self._closed = asyncio.Event()
        self._dim = settings.dim or None
        self._sends_dim: bool | None = None if settings.dim else False
        """None: it is not known yet whether the endpoint takes `dimensions`."""
        self._not_before_s = 0.0
        """No passage is sent earlier: the provider said so, or it is overloaded."""
        self._closed_until_s = 0.0
        """No query is sent earlier: the provider said so."""
        self._at_once = settings.batch_size
        """Texts per request: fewer where the endpoint could not answer in time."""

    async def start(self) -> None:
        """Have the client ready: importing it takes a second or two."""
        await self._client()

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
        found: list[embed.Vectors] = []
        n_done = 0
        while n_done < len(texts):
            some = texts[n_done : n_done + self._at_once]
            try:
                vectors = await self._ask(some, is_query=False)
            except _TimedOut as error:
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

    async def close(self) -> None:
        """Cut what is under way and close the connections."""
        self._closed.set()
        for each in self._posts:
            each.cancel()
        connecting, self._connecting = self._connecting, None
        if connecting is not None:
            await asyncio.wait({connecting})
            if not connecting.cancelled() and connecting.exception() is None:
                await connecting.result().close()

    async def _ask(self, texts: Sequence[str], *, is_query: bool) -> embed.Vectors:
        """Return the vectors of one request, sent as often as that may help.

        Raises:
            _TimedOut: there was no answer in time; not sent again.
        """
        semaphore = self._queries if is_query else self._passages
        clean = [text.encode("utf-8", "replace").decode() for text in texts]
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
            await self._wait(_wait_s(n_sent) * random.uniform(0.5, 1))  # noqa: S311  # so that not all come back at once
        # Raised here and not where it arose: a cause or context would bring the provider's words into a traceback.
        raise error

    async def _turn(self, *, is_query: bool) -> None:
        """Wait until a request may be sent; raises where that is too long for the caller."""
        while True:
            if self._closed.is_set():
                raise errors.LLMUnavailable(self.name, "is being closed")
            until_s = self._closed_until_s if is_query else self._not_before_s
            wait_s = until_s - self._time.monotonic_s()
            if wait_s <= 0:
                return
            if is_query or wait_s > PATIENCE_S:
                raise errors.LLMUnavailable(self.name, "asked to be left alone for a while", retry_after_s=wait_s)
            await self._wait(wait_s + random.uniform(0, min(1, wait_s)))  # noqa: S311  # the same

    async def _wait(self, seconds: float) -> None:
        """Wait for `seconds`, and not longer than we are open."""
        await clock.wait(self._closed, seconds, self._time)

    async def _request(self, texts: Sequence[str]) -> _Answer:
        """Send one request; a second one without `dimensions` where it may be that word which the endpoint refuses."""
        if self._sends_dim is False:
            return await self._post(texts, 0)
        answer = await self._post(texts, self._settings.dim)
        if answer.status == _OK:
            self._sends_dim = True
        elif answer.status in (400, 422) and self._sends_dim is None:
            plain = await self._post(texts, 0)
            if plain.status == _OK:
                self._sends_dim = False
                log.info("embedding_endpoint_without_dimensions", provider=self.name)
                return plain
        return answer

    async def _post(self, texts: Sequence[str], dim: int) -> _Answer:
        """Send one request and return what came of it; never raises but for cancellation and a client that cannot be made."""
        client = await self._client()
        if self._closed.is_set():
            return _Answer(reason="is being closed")
        max_bytes = _BYTES_BESIDE + len(texts) * (self._dim or _WIDEST) * _BYTES_PER_NUMBER
        posting = _post(client, self._settings.model, texts, dim, max_bytes)
        task = asyncio.create_task(posting, name="embedding-request")
        self._posts.add(task)
        try:
            # The client's own limit is per read: an endpoint that drips would never meet it.
            done, _ = await asyncio.wait({task}, timeout=self._settings.timeout_seconds)
        finally:
            self._posts.discard(task)
            task.cancel()
        if not done:
            return _Answer(reason=f"gave no answer within {self._settings.timeout_seconds:g} s", is_timeout=True)
        return _Answer(reason="is being closed") if task.cancelled() else task.result()

    async def _client(self) -> openai.AsyncOpenAI:
        if self._connecting is None:
            self._connecting = asyncio.create_task(
                asyncio.to_thread(_connect, self._settings), name="embedding-connect"
            )
        connecting = self._connecting
        await asyncio.wait({connecting})  # not awaited itself: whoever is cancelled here leaves it to the others
        if connecting.cancelled() or connecting.exception() is not None:
            self._connecting = None
            raise self._no_client(None if connecting.cancelled() else connecting.exception())
        return connecting.result()

    def _no_client(self, error: BaseException | None) -> errors.LLMUnavailable:
        """Return why there is no client, without a word that may hold the key; None: it is not wanted any more."""
        if error is None:
            return errors.LLMUnavailable(self.name, "is being closed")
        if isinstance(error, ImportError):
            return errors.LLMUnavailable(self.name, f"cannot be asked from here: {error}", hint="install everosd again")
        why = str(error) if isinstance(error, _NoClientError) else type(error).__name__
        hint = "correct base_url and api_key under [embedding]"
        return errors.LLMUnavailable(self.name, f"cannot be set up: {why}", hint=hint)

    def _failure(self, answer: _Answer, n_sent: int, *, is_query: bool) -> errors.LLMError | None:
        """Return what to raise for an answer, if no later one is better; remember until when nothing is to be sent."""
        if answer.status == _OK:
            return None
        if answer.is_timeout:
            return _TimedOut(self.name, answer.reason)
        if not answer.status:
            return errors.LLMUnavailable(self.name, answer.reason)
        said = f" ({answer.code})" if answer.code else ""
        if answer.status in _UNUSABLE:
            return errors.LLMRejected(self.name, f"refuses the request with status {answer.status}{said}")
        if answer.status in _HINTS:
            reason, hint = _HINTS[answer.status]
            return errors.LLMUnavailable(self.name, f"{reason}: status {answer.status}{said}", hint=hint)
        retry_after_s = self._retry_after_s(answer.headers)
        if retry_after_s is not None or (answer.is_worth_repeating and not is_query):
            now_s = self._time.monotonic_s()
            wait_s = _wait_s(n_sent) if retry_after_s is None else retry_after_s
            self._not_before_s = max(self._not_before_s, now_s + wait_s)
            if retry_after_s is not None:
                self._closed_until_s = max(self._closed_until_s, now_s + retry_after_s)
        reason = "is asked too often" if answer.status == _TOO_MANY else "fails"
        return errors.LLMUnavailable(self.name, f"{reason}: status {answer.status}{said}", retry_after_s=retry_after_s)

    def _retry_after_s(self, headers: Mapping[str, str]) -> float | None:
        """Return what the header asks for, seconds; it is a number or a date (RFC 9110, 10.2.3)."""
        text = headers.get("retry-after", "").strip()
        try:
            seconds = float(text or headers["retry-after-ms"]) / (1 if text else 1000)  # the latter is OpenAI's
        except KeyError:
            return None
        except ValueError:
            try:
                moment = email.utils.parsedate_to_datetime(text)
            except (ValueError, TypeError):
                return None
            if moment.tzinfo is None:
                moment = moment.replace(tzinfo=dt.UTC)
            seconds = (moment - self._time.now()).total_seconds()
        return min(max(0.0, seconds), LONGEST_RETRY_AFTER_S) if seconds == seconds else None  # noqa: PLR0124  # nan

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
            hint = "see that base_url under [embedding] is that of an OpenAI-compatible endpoint"
            raise errors.LLMUnavailable(self.name, "gives something else than embeddings", hint=hint)
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


class _TimedOut(errors.LLMUnavailable):
    """There was no answer in time: fewer texts may have one."""


class _FloodError(Exception):
    """An answer was longer than any that was asked for."""


class _NoClientError(Exception):
    """The settings are such that no client can be made; the message holds nothing of them."""


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one request, without a word of the provider."""

    status: int = 0
    """0: there was no answer."""
    body: bytes = b""
    """Only of an answer with status 200."""
    headers: Mapping[str, str] = {}
    code: str = ""
    """What the endpoint calls the error, where that is a plain word."""
    reason: str = ""
    """Why there was no answer."""
    is_timeout: bool = False

    @property
    def is_worth_repeating(self) -> bool:
        """Whether the same request may succeed within seconds."""
        if self.code == "insufficient_quota":  # OpenAI's 429 for an account that is empty
            return False
        return not self.is_timeout and (self.status == 0 or self.status in _AGAIN or self.status >= _SERVER)


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


def _wait_s(n_sent: int) -> float:
    return float(min(LONGEST_WAIT_S, FIRST_WAIT_S * 2 ** min(n_sent - 1, 30)))


def _connect(settings: config.Embedding) -> openai.AsyncOpenAI:
    """Import the client and make one; a second of work, so in a thread."""
    import openai  # noqa: PLC0415  # 40 MB that nobody without an endpoint needs

    key = settings.api_key.reveal()
    host = urllib.parse.urlsplit(settings.url).hostname
    if not key.isascii() or not key.isprintable() or " " in key:
        msg = "the key holds something that no key has: a blank, a line break, a letter beyond ASCII"
        raise _NoClientError(msg)
    if host is None:
        msg = "base_url names no host, as http://127.0.0.1:11434/v1 does"
        raise _NoClientError(msg)
    http_client = openai.DefaultAsyncHttpxClient(
        trust_env=not config.is_loopback(host),  # a proxy in the environment is for the world outside
        follow_redirects=False,  # texts go where the settings say, and nowhere else
        event_hooks={"response": [_read]},
    )
    client = openai.AsyncOpenAI(
        api_key=key or "none",
        base_url=settings.url,
        timeout=settings.timeout_seconds,
        max_retries=0,
        http_client=http_client,
    )
    _ = client.embeddings.with_raw_response.create  # imports more, which the event loop should not do
    return client


async def _read(response: Any) -> None:  # of the HTTP client that openai brings, which is not always the same one
    """Read an answer, and no more of it than any that was asked for may have."""
    body = bytearray()
    async for part in response.aiter_bytes():
        body += part
        if len(body) > _max_bytes.get():
            raise _FloodError
    response._content = bytes(body)  # noqa: SLF001  # as `aread` does, which knows of no limit


async def _post(
    client: openai.AsyncOpenAI, model: str, texts: Sequence[str], dim: int, max_bytes: int = _BYTES_BESIDE
) -> _Answer:
    import openai  # noqa: PLC0415  # it is there since `_connect`

    _max_bytes.set(max_bytes)

    try:
        answer = await client.embeddings.with_raw_response.create(
            model=model,
            input=list(texts),
            # Every server knows `float`; some know nothing else.
            encoding_format="float",
            extra_body={"dimensions": dim} if dim else None,
        )
    except openai.APIStatusError as error:
        return _Answer(
            status=error.status_code, headers=_lower(error.response.headers), code=_code(error, client.api_key)
        )
    except openai.APITimeoutError:
        return _Answer(reason="gave no answer in time", is_timeout=True)
    except (openai.APIConnectionError, _FloodError) as error:
        is_flood = isinstance(error, _FloodError) or isinstance(
            error.__cause__, _FloodError
        )  # it depends on the version
        return _Answer(reason=_FLOOD if is_flood else f"cannot be reached: {_cause(error)}")
    except openai.OpenAIError as error:
        return _Answer(reason=f"cannot be asked: {type(error).__name__}")
    return _Answer(status=_OK, body=answer.content)


def _lower(headers: Mapping[str, str]) -> Mapping[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _code(error: openai.APIStatusError, key: str) -> str:
    """Return what the provider calls the error, if that is a word of letters and underscores, and no key."""
    for name in ("code", "type"):
        found = getattr(error, name, None)
        if isinstance(found, str) and _PLAIN_WORD.fullmatch(found) and found not in key and key not in found:
            return found
    return ""


def _cause(error: BaseException) -> str:
    """Return what the system said; the client's own words may hold the header, and so the key."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ConnectionError) and seen.errno:
            return os.strerror(seen.errno)  # asyncio's own words name but the address
        if isinstance(seen, OSError) and seen.strerror:
            return seen.strerror
        error, seen = seen, seen.__cause__ or seen.__context__
    return type(error).__name__
