"""A daemon to talk to for as long as an agent does: the one that serves the root, or one that is started for it.

Daemons come and go (a restart, a crash, an update) while an agent's connection stays: who answers is looked up for each
request, in the lock file.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import http.client
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from everosd import config, daemon, errors, lock, logs
from everosd.cli import client, node
from everosd.mcp import backend

RETURN_S = 10.0
"""How long a daemon that somebody else started may be away (a restart) before another is started in its place: it would
take the lock from the one that is on its way."""
START_S = 60.0
"""How long a start may take until it listens; a damaged ledger is made anew meanwhile."""
READY_S = 20.0
"""How long the first request waits for a daemon that has just been started to have read what is on disk; it then answers
from what it has read so far."""
GONE_S = 30.0
"""How long a request that was not sent is tried again: a daemon that stops has the lock and does not listen any more."""
PAUSE_S = 0.05
MAX_CALLS = 32
"""Requests under way at once: more wait."""
LOG = Path(".cache", "daemon.log")
"""Where a daemon that was started here writes its log, below the root; the one before is kept beside it."""
NOT_ITS = "EVEROS_MCP__"
"""Variables of one client's connection, which are none of a daemon's that serves all of them."""

log = logs.logger(__name__)


class NoDaemon(backend.Unanswered):
    """There is no daemon, and none can be started."""

    def __init__(self, reason: str, *, hint: str = "") -> None:
        """Say why."""
        super().__init__(reason, is_sent=False, hint=hint)


class Attached:
    """A backend that asks the daemon of a root over HTTP."""

    def __init__(self, root: Path, environ: Mapping[str, str] = os.environ) -> None:
        """Serve `root`; nothing is looked for yet."""
        self._root = root
        self._environ = environ
        self._reviving = asyncio.Lock()
        self._threads = concurrent.futures.ThreadPoolExecutor(MAX_CALLS, thread_name_prefix="call")
        self._child: subprocess.Popen[bytes] | None = None
        self._is_warm = True
        """No daemon that was started here is still reading the disk."""
        self._has_seen_others = False
        """A daemon that was not started here has answered."""

    async def call(self, method: str, path: str, body: object = None, *, is_read: bool = False) -> backend.Reply:
        """Send one request; see `backend.Backend.call`.

        Raises:
            Unanswered: no daemon answers, and none can be started.
        """
        give_up_s = time.monotonic() + GONE_S
        is_again = False
        while True:
            try:
                return await self._call(method, path, body)
            except NoDaemon:
                raise
            except backend.Unanswered as error:
                if time.monotonic() >= give_up_s or (error.is_sent and (is_again or not is_read)):
                    raise
                log.debug("daemon_lost", reason=str(error))
                is_again = is_again or error.is_sent
            await asyncio.sleep(PAUSE_S)

    async def begin(self) -> None:
        """Look for the daemon, or start it, before anything is asked; what goes wrong is told to the first who asks."""
        with contextlib.suppress(errors.EverosdError):
            await self._found()

    def close(self) -> None:
        """Let go of requests under way; the daemon goes on."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _call(self, method: str, path: str, body: object) -> backend.Reply:
        holder = await self._found()
        patience_s = client.ANSWER_TIMEOUT_S
        if isinstance(body, dict) and isinstance(waits_s := body.get("timeout"), int | float):
            patience_s += waits_s
        return await self._send(_client(self._root, holder, patience_s), method, path, body)

    async def _send(self, asked: client.Client, method: str, path: str, body: object) -> backend.Reply:
        """Send a request in a thread; where nobody waits for the answer any longer, the connection is cut."""
        opened: list[http.client.HTTPConnection] = []

        def send() -> client.Answer:
            return asked.call(method, path, body, on_open=opened.append)

        loop = asyncio.get_running_loop()
        try:
            answer = await loop.run_in_executor(self._threads, send)
        except asyncio.CancelledError:
            for connection in opened:
                _cut(connection)
            raise
        except client.Silent as error:
            raise backend.Unanswered(str(error), is_sent=error.is_sent) from error
        except errors.EverosdError as error:
            raise backend.Unanswered(str(error), is_sent=True) from error
        return backend.Reply(status=answer.status, body=answer.body)

    async def _found(self) -> lock.Holder:
        """Return the daemon of the root.

        Raises:
            NoDaemon: there is none, and none can be started.
        """
        holder = await asyncio.to_thread(lock.holder, self._root)
        if holder is None or holder.port is None or not self._is_warm:
            async with self._reviving:
                holder = await self._revived()
        if self._child is None or holder.pid != self._child.pid:
            self._has_seen_others = True
        return holder

    async def _revived(self) -> lock.Holder:
        """Return the daemon once there is one; starts it where nobody else does."""
        began_s = time.monotonic()
        patience_s = RETURN_S if self._has_seen_others else 0.0
        port: int | None = None
        is_ours = False
        while True:
            holder = await asyncio.to_thread(lock.holder, self._root)
            if holder is not None and holder.port is not None:
                if not self._is_warm:
                    await self._read_the_disk(holder)
                    self._is_warm = True
                return holder
            age_s = time.monotonic() - began_s
            if age_s > START_S + patience_s:
                message = f"nothing listens for {self._root} after {age_s:.0f} s"
                raise NoDaemon(message)
            code = None if self._child is None else self._child.poll()
            if is_ours and code is not None:
                if _code(errors.PortTaken) == code and port is None:
                    port = 0  # another root's daemon has the usual one; this one is found by its lock file
                elif code != _code(errors.LockHeld):  # somebody else was faster: theirs will listen
                    raise self._failed(code)
                is_ours = False
            if holder is None and not is_ours and age_s >= patience_s:
                await asyncio.to_thread(self._start, port)
                is_ours, self._is_warm = True, False
            await asyncio.sleep(PAUSE_S)

    def _start(self, port: int | None) -> None:
        """Start `everosd serve` in a session of its own; it goes on when this process ends.

        Raises:
            NoDaemon: it cannot be started.
        """
        options = [] if port is None else ["--port", str(port)]
        environ = {name: value for name, value in self._environ.items() if not name.startswith(NOT_ITS)}
        try:
            self._root.joinpath(LOG).parent.mkdir(mode=0o700, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                (self._root / LOG).replace(self._root / LOG.with_suffix(".old"))
            descriptor = os.open(self._root / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(descriptor, "ab") as said:
                self._child = subprocess.Popen(  # noqa: S603  # our own command
                    # -P: a file in the memory root, or wherever the client was started, is no module of ours.
                    [sys.executable, "-P", "-m", "everosd", "serve", "--root", str(self._root), *options],
                    stdin=subprocess.DEVNULL,
                    stdout=said,
                    stderr=said,
                    cwd="/",
                    env=environ,
                    start_new_session=True,
                )
        except OSError as error:
            reason = f"it cannot be started: {error.strerror or error}"
            raise NoDaemon(reason) from error
        log.info("daemon_started", pid=self._child.pid, log=str(self._root / LOG))

    async def _read_the_disk(self, holder: lock.Holder) -> None:
        """Wait until a daemon that has just been started has read what is on disk, within bounds."""
        give_up_s = time.monotonic() + READY_S
        asked = _client(self._root, holder, READY_S)
        while time.monotonic() < give_up_s:
            with contextlib.suppress(backend.Unanswered):
                if (await self._send(asked, "GET", "/health", None)).body.get("ready"):
                    return
            await asyncio.sleep(PAUSE_S)

    def _failed(self, code: int) -> NoDaemon:
        """Return why a daemon that was started has ended; its log has the words."""
        tail = ""
        with contextlib.suppress(OSError):
            lines = (self._root / LOG).read_text(errors="replace").splitlines()
            tail = lines[-1][:500] if lines else ""
        self._child = None
        reason = f"it was started and ended with exit code {code}" + (f": {tail}" if tail else "")
        return NoDaemon(
            reason, hint=f"tell the person: `everosd doctor` says what is wrong; {self._root / LOG} has more"
        )


def _client(root: Path, holder: lock.Holder, patience_s: float) -> client.Client:
    token = ""
    with contextlib.suppress(errors.ConfigError):  # the daemon goes on with its old settings
        token = config.load(root).api.token.reveal()
    host = node.EVERY_ADDRESS.get(holder.host, holder.host)
    return client.Client(host, holder.port or 0, token=token, pid=holder.pid, patience_s=patience_s, start_s=0.0)


def _code(kind: type[errors.EverosdError]) -> int:
    """Return the exit code of a class of errors."""
    return next(code for one, code in daemon.EXIT_CODES if one is kind)


def _cut(connection: http.client.HTTPConnection) -> None:
    """End a connection that another thread reads from."""
    with contextlib.suppress(OSError, AttributeError):
        connection.sock.shutdown(socket.SHUT_RDWR)
