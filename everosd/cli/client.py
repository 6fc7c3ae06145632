"""Calls to a running daemon over HTTP."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable

import msgspec

from everosd import errors

LineSink = Callable[[dict[str, object]], None]
"""Takes one line of a streamed answer."""

ANSWER_TIMEOUT_S = 600.0
"""A daemon that says nothing for this long is not going to: progress lines come every second or so."""
START_TIMEOUT_S = 15.0
"""Between taking the lock and listening a daemon does next to nothing."""
RETRY_S = 0.1
OK = 200
STREAM = "application/x-ndjson"

_ANY = msgspec.json.Decoder()


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came back: the decoded body, or the last line of a streamed one."""

    status: int
    body: dict[str, object]


class Silent(errors.EverosdError):
    """Something holds the root's lock and does not answer."""

    def __init__(self, pid: int, address: str, reason: str) -> None:
        """Name who holds the lock, where it should answer and what happened instead."""
        super().__init__(f"everosd with pid {pid} serves this root but does not answer on {address}: {reason}")
        self.hint = f"wait a moment if it has just started; otherwise look at its log, or stop it: kill {pid}"
        self.is_sent = False
        """The request had left: nobody knows what became of it."""


class Client:
    """Speaks to the daemon at one address; one connection a call."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        token: str = "",
        pid: int = 0,
        patience_s: float = ANSWER_TIMEOUT_S,
        start_s: float = START_TIMEOUT_S,
    ) -> None:
        """Remember the address, how long the daemon may say nothing, and how long not listen; nothing is sent yet."""
        self._host, self._port, self._token, self._pid, self._patience_s = host, port, token, pid, patience_s
        self._start_s = start_s

    @property
    def url(self) -> str:
        """Where the daemon answers."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}"

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        on_line: LineSink | None = None,
        *,
        on_open: Callable[[http.client.HTTPConnection], None] | None = None,
    ) -> Answer:
        """Send one request and return the answer; blocking.

        `on_line` gets the lines of a streamed answer as they come, the last one included; `on_open` gets the connection
        once it stands, for those who may have to end it from another thread.

        Raises:
            Silent: nobody answers.
        """
        connection = http.client.HTTPConnection(self._host, self._port, timeout=self._patience_s)
        is_sent = False
        try:
            self._connect(connection)
            if on_open is not None:
                on_open(connection)
            is_sent = True
            payload = None if body is None else msgspec.json.encode(body)
            connection.request(method, path, payload, self._headers())
            response = connection.getresponse()
            if response.headers.get_content_type() == STREAM:
                return Answer(status=response.status, body=last_line(response, on_line))
            return Answer(status=response.status, body=decoded(response.read()))
        except (OSError, http.client.HTTPException) as error:
            silent = Silent(self._pid, self.url, str(error) or type(error).__name__)
            silent.is_sent = is_sent
            raise silent from error
        finally:
            connection.close()

    def _connect(self, connection: http.client.HTTPConnection) -> None:
        """Connect, with patience for a daemon that has the lock and does not listen yet."""
        give_up_s = time.monotonic() + self._start_s
        while True:
            try:
                connection.connect()
            except ConnectionRefusedError:
                if time.monotonic() >= give_up_s:
                    raise
                time.sleep(RETRY_S)
            else:
                return

    def _headers(self) -> dict[str, str]:
        """Return the headers of every request."""
        headers = {"Content-Type": "application/json", "Connection": "close"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        return headers


def decoded(data: bytes) -> dict[str, object]:
    """Decode a body; what is not a JSON object becomes an error a person can read.

    Raises:
        EverosdError: something else than everosd answers there.
    """
    try:
        body = _ANY.decode(data)
    except msgspec.DecodeError as error:
        reason = "the answer is not JSON: is it everosd that listens there?"
        raise errors.EverosdError(reason) from error
    if not isinstance(body, dict):
        reason = "the answer is not a JSON object: is it everosd that listens there?"
        raise errors.EverosdError(reason)
    return body


def last_line(lines: http.client.HTTPResponse | list[bytes], on_line: LineSink | None) -> dict[str, object]:
    """Read a streamed answer to its end and return its last line.

    Raises:
        EverosdError: the stream ended before anything was said.
    """
    last: dict[str, object] | None = None
    for line in lines:
        if line.strip():
            last = decoded(line)
            if on_line is not None:
                on_line(last)
    if last is None:
        reason = "the daemon stopped before it answered"
        raise errors.EverosdError(reason)
    return last
