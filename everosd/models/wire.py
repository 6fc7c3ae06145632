"""One endpoint on the other side of HTTP: when something is sent to it, how long it may take, and what a failure means.

What a provider says reaches no message and no log: it may repeat the key, or the texts. What is told is the status,
its error code where that is a plain word, and what to mend.
"""

from __future__ import annotations

import asyncio
import contextvars
import datetime as dt
import email.utils
import os
import random
import re
import urllib.parse
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from everosd import clock, config, errors

if TYPE_CHECKING:
    import openai

FIRST_WAIT_S = 0.5
"""Before a request is sent a second time; twice as long each time after."""
LONGEST_WAIT_S = 20.0
PATIENCE_S = 60.0
"""Longest that a call waits for the moment that the provider named; of a later one the caller is told at once."""
LONGEST_RETRY_AFTER_S = 3600.0
"""A provider that wants to be left alone for longer is asked every hour whether it still does."""
BYTES_BESIDE = 1 << 20
"""Of an answer, beside what was asked for."""

OK = 200
_TOO_MANY, _SERVER = 429, 500
_AGAIN = (408, 409, 425, _TOO_MANY)
UNUSABLE = (400, 413, 414, 415, 422)
"""It is the texts that are refused; another request may succeed."""
_PLAIN_WORD = re.compile(r"[a-z][a-z_]{2,60}")
_max_bytes: contextvars.ContextVar[int] = contextvars.ContextVar("_max_bytes", default=BYTES_BESIDE)
"""Of the answer, unpacked, to the request that the running task makes."""

Request = Callable[["openai.AsyncOpenAI"], Awaitable[Any]]
"""Sends one request by the client and returns the answer, raw."""


class Where(msgspec.Struct, frozen=True, kw_only=True):
    """Which endpoint, and what it is asked for."""

    model: str
    key: config.Secret
    url: str
    timeout_s: float
    """For one request, from sending it to the last byte of the answer."""
    section: str
    """Of the settings: named in hints."""
    takes: str
    """What is sent to it, for people."""
    gives: str
    """What comes back, for people."""

    @property
    def name(self) -> str:
        """Model and host, for people; no password."""
        return f"{self.model} at {urllib.parse.urlsplit(self.url).netloc.rpartition('@')[2]}"


class TimedOut(errors.LLMUnavailable):
    """There was no answer in time: a smaller request may have one."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one request, without a word of the provider."""

    status: int = 0
    """0: there was no answer."""
    body: bytes = b""
    """Only of an answer with status 200."""
    headers: Mapping[str, str] = {}
    code: str = ""
    """What the endpoint calls the error, where that is a plain word."""
    parameter: str = ""
    """Which key of the request it is about, where that is a plain word."""
    reason: str = ""
    """Why there was no answer."""
    is_timeout: bool = False

    @property
    def is_worth_repeating(self) -> bool:
        """Whether the same request may succeed within seconds."""
        if self.code == "insufficient_quota":  # OpenAI's 429 for an account that is empty
            return False
        return not self.is_timeout and (self.status == 0 or self.status in _AGAIN or self.status >= _SERVER)


class Wire:
    """The client of one endpoint, and until when nothing is to be sent to it.

    Whoever builds on it bounds how many requests are under way.
    """

    def __init__(self, where: Where, time: clock.Clock) -> None:
        """Nothing is opened or imported before the first call."""
        self.name = where.name
        self._where = where
        self._time = time
        self._connecting: asyncio.Task[openai.AsyncOpenAI] | None = None
        self._posts: set[asyncio.Task[Answer]] = set()
        self._closed = asyncio.Event()
        self._not_before_s = 0.0
        """Nothing is sent earlier: the provider said so, or it is overloaded."""
        self._closed_until_s = 0.0
        """No query is sent earlier: the provider said so."""

    async def start(self) -> None:
        """Have the client ready: importing it takes a second or two."""
        await self._client()

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

    def _warm(self, client: openai.AsyncOpenAI) -> None:
        """Touch what the client imports only when it is used: the event loop should not do that."""

    async def _turn(self, *, is_query: bool = False) -> None:
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
            await self._wait(wait_s + random.uniform(0, min(1, wait_s)))  # noqa: S311  # not all come back at once

    async def _back_off(self, n_sent: int) -> None:
        """Wait before a request that was sent `n_sent` times is sent again."""
        await self._wait(wait_s(n_sent) * random.uniform(0.5, 1))  # noqa: S311  # the same

    async def _wait(self, seconds: float) -> None:
        """Wait for `seconds`, and not longer than we are open."""
        await clock.wait(self._closed, seconds, self._time)

    async def _send(self, request: Request, max_bytes: int) -> Answer:
        """Send one request and return what came of it; an answer of more than `max_bytes` is hung up on.

        Never raises but for cancellation and a client that cannot be made.
        """
        client = await self._client()
        if self._closed.is_set():
            return Answer(reason="is being closed")
        posting = _post(client, request, f"gives far more than {self._where.gives}", max_bytes)
        task = asyncio.create_task(posting, name=f"{self._where.section}-request")
        self._posts.add(task)
        try:
            # The client's own limit is per read: an endpoint that drips would never meet it.
            done, _ = await asyncio.wait({task}, timeout=self._where.timeout_s)
        finally:
            self._posts.discard(task)
            task.cancel()
        if not done:
            return Answer(reason=f"gave no answer within {self._where.timeout_s:g} s", is_timeout=True)
        return Answer(reason="is being closed") if task.cancelled() else task.result()

    async def _client(self) -> openai.AsyncOpenAI:
        if self._connecting is None:
            connect = asyncio.to_thread(_connect, self._where, self._warm)
            self._connecting = asyncio.create_task(connect, name=f"{self._where.section}-connect")
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
        hint = f"correct base_url and api_key under [{self._where.section}]"
        return errors.LLMUnavailable(self.name, f"cannot be set up: {why}", hint=hint)

    def _failure(self, answer: Answer, n_sent: int, *, is_query: bool = False) -> errors.LLMError | None:
        """Return what to raise for an answer, if no later one is better; remember until when nothing is to be sent."""
        if answer.status == OK:
            return None
        if answer.is_timeout:
            return TimedOut(self.name, answer.reason)
        if not answer.status:
            return errors.LLMUnavailable(self.name, answer.reason)
        said = f" ({answer.code})" if answer.code else ""
        if answer.status in UNUSABLE:
            return errors.LLMRejected(self.name, f"refuses the request with status {answer.status}{said}")
        if (mending := self._mending(answer.status)) is not None:
            reason, hint = mending
            return errors.LLMUnavailable(self.name, f"{reason}: status {answer.status}{said}", hint=hint)
        retry_after_s = self._retry_after_s(answer.headers)
        if retry_after_s is not None or (answer.is_worth_repeating and not is_query):
            now_s = self._time.monotonic_s()
            pause_s = wait_s(n_sent) if retry_after_s is None else retry_after_s
            self._not_before_s = max(self._not_before_s, now_s + pause_s)
            if retry_after_s is not None:
                self._closed_until_s = max(self._closed_until_s, now_s + retry_after_s)
        reason = "is asked too often" if answer.status == _TOO_MANY else "fails"
        return errors.LLMUnavailable(self.name, f"{reason}: status {answer.status}{said}", retry_after_s=retry_after_s)

    def _mending(self, status: int) -> tuple[str, str] | None:
        """Return what is wrong and what a person has to do about it; None: it may pass by itself."""
        section = self._where.section
        key = f"correct api_key under [{section}] in everos.toml, or EVEROS_{section.upper()}__API_KEY"
        address = f"correct base_url under [{section}] in everos.toml"
        known = {
            401: ("refuses the key", key),
            402: ("wants to be paid", "look at the provider's account"),
            403: ("does not let this key use the model", key),
            404: (
                "knows no such model, or has no such address",
                f"correct model and base_url under [{section}] in everos.toml",
            ),
            405: (f"takes no {self._where.takes} at this address", address),
            **dict.fromkeys(
                (301, 302, 303, 307, 308), ("sends to another address, where nothing is sent unasked", address)
            ),
        }
        return known.get(status)

    def _no_answer(self) -> errors.LLMUnavailable:
        """Return what to raise for a page of a proxy, half an answer, nothing."""
        hint = f"see that base_url under [{self._where.section}] is that of an OpenAI-compatible endpoint"
        return errors.LLMUnavailable(self.name, f"gives something else than {self._where.gives}", hint=hint)

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


def wait_s(n_sent: int) -> float:
    """Return the longest wait before a request that was sent `n_sent` times is sent again."""
    return float(min(LONGEST_WAIT_S, FIRST_WAIT_S * 2 ** min(n_sent - 1, 30)))


def clean(text: str) -> str:
    """Return `text` without halves of surrogate pairs, which cannot be sent."""
    return text.encode("utf-8", "replace").decode()


class _FloodError(Exception):
    """An answer was longer than any that was asked for."""


class _NoClientError(Exception):
    """The settings are such that no client can be made; the message holds nothing of them."""


def _connect(where: Where, warm: Callable[[openai.AsyncOpenAI], None]) -> openai.AsyncOpenAI:
    """Import the client and make one; a second of work, so in a thread."""
    import openai  # noqa: PLC0415  # 40 MB that nobody without an endpoint needs

    key = where.key.reveal()
    host = urllib.parse.urlsplit(where.url).hostname
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
        base_url=where.url,
        timeout=where.timeout_s,
        max_retries=0,
        http_client=http_client,
    )
    warm(client)
    return client


async def _read(response: Any) -> None:  # of the HTTP client that openai brings, which is not always the same one
    """Read an answer, and no more of it than any that was asked for may have."""
    body = bytearray()
    async for part in response.aiter_bytes():
        body += part
        if len(body) > _max_bytes.get():
            raise _FloodError
    response._content = bytes(body)  # noqa: SLF001  # as `aread` does, which knows of no limit


async def _post(client: openai.AsyncOpenAI, request: Request, flood: str, max_bytes: int) -> Answer:
    import openai  # noqa: PLC0415  # it is there since `_connect`

    _max_bytes.set(max_bytes)
    try:
        answer = await request(client)
    except openai.APIStatusError as error:
        return Answer(
            status=error.status_code,
            headers={name.lower(): value for name, value in error.response.headers.items()},
            code=_word(error, client.api_key, "code", "type"),
            parameter=_word(error, client.api_key, "param"),
        )
    except openai.APITimeoutError:
        return Answer(reason="gave no answer in time", is_timeout=True)
    except (openai.APIConnectionError, _FloodError) as error:
        # Which of the two it is depends on the version of the client.
        is_flood = isinstance(error, _FloodError) or isinstance(error.__cause__, _FloodError)
        return Answer(reason=flood if is_flood else f"cannot be reached: {_cause(error)}")
    except openai.OpenAIError as error:
        return Answer(reason=f"cannot be asked: {type(error).__name__}")
    return Answer(status=OK, body=answer.content)


def _word(error: openai.APIStatusError, key: str, *names: str) -> str:
    """Return what the provider says under the first of `names`, if it is letters and underscores, and no key."""
    for name in names:
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
