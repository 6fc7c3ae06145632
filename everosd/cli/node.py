"""Where a command's work is done: in the daemon that serves the root, else here, under the root's lock.

Both ways are the same requests to the same routes; only the road differs (a socket, or a call inside this process), so
that a command says the same thing whether or not a daemon runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import time
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from everosd import clock, config, errors, lock
from everosd.cli import client, progress
from everosd.cli import root as root_folder

if TYPE_CHECKING:
    from litestar.types import ASGIApp

    from everosd import daemon

BUSY_TIMEOUT_S = 30.0
"""How long to wait for whoever has the lock and does not listen: a daemon that starts, or another command."""
PAUSE_S = 0.05
SETTLE_TIMEOUT_S = 3600.0
"""A first reading of a very large root; the bar shows that it moves."""
VECTORS_TIMEOUT_S = 5.0
"""How long a search without a daemon waits for vectors of what changed: enough for a few notes, and no more."""
LEARNING_TIMEOUT_S = 600.0
"""How long a command without a daemon waits for facts and clusters; what is left then, the next daemon does."""
MAX_WAIT_S = 86_400.0
"""A daemon waits for no run longer than a day."""
EVERY_ADDRESS = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # to be replaced, not bound
"""What to connect to where the daemon listens on every address."""


class Node(Protocol):
    """Answers requests: a daemon, or the files alone."""

    def call(
        self, method: str, path: str, body: object = None, on_line: client.LineSink | None = None
    ) -> client.Answer:
        """Send one request and return the answer; see `client.Client.call`."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One of several requests."""

    method: str
    path: str
    body: object = None


class Alone:
    """The files alone: opened under the lock for one request, then closed again."""

    def __init__(self, settings: config.Config) -> None:
        """Remember the settings; nothing is opened yet."""
        self._settings = settings

    def call(
        self, method: str, path: str, body: object = None, on_line: client.LineSink | None = None
    ) -> client.Answer:
        """Open the root, take in what changed on disk, answer one request, close; blocking.

        Raises:
            LockHeld: a daemon has started meanwhile.
        """
        importlib.import_module("everosd.api.http")  # here, because an import would hold up the loop
        return asyncio.run(self._call(method, path, body, on_line))

    def call_all(
        self, requests: Iterable[Request], on_answer: Callable[[client.Answer], None], *, only_reads: bool = False
    ) -> None:
        """Open the root once and answer requests in order; `on_answer` may raise to end it. Blocking, as `call`.

        What follows from them (facts, clusters, …) is waited for, unless they only read.
        """
        importlib.import_module("everosd.api.http")
        asyncio.run(self._call_all(requests, on_answer, learns=not only_reads))

    async def _call_all(
        self, requests: Iterable[Request], on_answer: Callable[[client.Answer], None], *, learns: bool
    ) -> None:
        async with self._opened(has_vectors=learns, learns=learns) as node:
            from everosd import daemon

            application = daemon.application(node)
            for one in requests:
                on_answer(await exchange(application, one.method, one.path, one.body))
            if node.learning is not None:
                with contextlib.suppress(TimeoutError):
                    await node.learning.settled(LEARNING_TIMEOUT_S)

    async def _call(self, method: str, path: str, body: object, on_line: client.LineSink | None) -> client.Answer:
        from everosd import daemon

        learns = _learns(path)
        async with self._opened(has_vectors=learns or _has_vectors(path, body), learns=learns) as node:
            if node.learning is not None:
                await node.learning.engine.is_ready.wait()
            answer = await exchange(daemon.application(node), method, path, body, on_line)
            if node.learning is not None:
                with contextlib.suppress(TimeoutError):
                    await node.learning.settled(LEARNING_TIMEOUT_S)
            return answer

    @contextlib.asynccontextmanager
    async def _opened(self, *, has_vectors: bool, learns: bool) -> AsyncIterator[daemon.Node]:
        """Open the root and take in what changed on disk."""
        from everosd import daemon, logs

        # The answer says what is wrong: of the log only what nobody had thought of is shown, with its traceback.
        logs.set_up(msgspec.structs.replace(self._settings.log, level="error"), only_faults=True)
        opened = daemon.open_node(self._settings, clock.SystemClock(), has_vectors=has_vectors, learns=learns)
        async with opened as node:
            with progress.Progress("comparing with the disk") as shown:
                async with _following(node, shown):
                    await node.cascade.reconcile("command line")
                    await node.cascade.settled(timeout_s=SETTLE_TIMEOUT_S)
            if node.meaning is not None:
                with contextlib.suppress(TimeoutError):
                    await node.meaning.embedding.settled(VECTORS_TIMEOUT_S)
            yield node


def ask(
    root: Path,
    method: str,
    path: str,
    body: object = None,
    on_line: client.LineSink | None = None,
    *,
    waits_s: float = 0.0,
) -> client.Answer:
    """Send one request to whoever can answer for `root`; blocking. `waits_s` is how long the request itself asks to wait.

    Raises:
        LockHeld: another command works on the files for longer than `BUSY_TIMEOUT_S`.
    """
    give_up_s = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        asked = connect(root, waits_s)
        try:
            return asked.call(method, path, body, on_line)
        except errors.LockHeld:  # between the look and the lock, a daemon or another command was faster
            if time.monotonic() >= give_up_s:
                raise
            time.sleep(PAUSE_S)


def connect(root: Path, waits_s: float = 0.0) -> client.Client | Alone:
    """Return the daemon that serves `root`, or the files alone where there is none; requests may ask to wait `waits_s`.

    Raises:
        LockHeld: another command works on the files just now.
        ConfigError: there is no daemon and the settings cannot be read.
    """
    root_folder.require(root)
    holder = running(root)
    if holder is None:
        return Alone(config.load(root))
    host = EVERY_ADDRESS.get(holder.host, holder.host)
    token = ""
    with contextlib.suppress(errors.ConfigError):  # the daemon goes on with its old settings: so do commands
        token = config.load(root).api.token.reveal()
    patience_s = client.ANSWER_TIMEOUT_S + min(MAX_WAIT_S, waits_s)
    return client.Client(host, holder.port or 0, token=token, pid=holder.pid, patience_s=patience_s)


def running(root: Path) -> lock.Holder | None:
    """Return the daemon that serves `root`, None where there is none; waits while one starts.

    Raises:
        LockHeld: something that does not listen has the lock for longer than a start takes.
    """
    give_up_s = time.monotonic() + BUSY_TIMEOUT_S
    while (holder := lock.holder(root)) is not None and holder.port is None:
        if time.monotonic() >= give_up_s:
            raise errors.LockHeld(str(root), pid=holder.pid or None, port=None)
        time.sleep(PAUSE_S)
    return holder


def ask_all(
    root: Path,
    requests: Iterable[Request],
    on_answer: Callable[[client.Answer], None],
    *,
    waits_s: float = 0.0,
    only_reads: bool = False,
) -> None:
    """Send requests in order to whoever can answer for `root`; `on_answer` may raise to end it. Blocking. See `ask`.

    `only_reads`: none of them makes memories, or asks for vectors.

    Raises:
        LockHeld: another command works on the files.
    """
    asked = connect(root, waits_s)
    if isinstance(asked, Alone):
        asked.call_all(requests, on_answer, only_reads=only_reads)
        return
    for one in requests:
        on_answer(asked.call(one.method, one.path, one.body))


def _learns(path: str) -> bool:
    """Return whether a request makes memories, undoes what was made, or is noted and written once all else is done."""
    ends = (
        "/memory/add",
        "/memory/flush",
        "/memory/reflect",
        "/memory/usage",
        "/ome/trigger",
        "/reflection/rollback",
        "/admin/extract",
    )
    return path.endswith(ends)


def _has_vectors(path: str, body: object) -> bool:
    """Return whether a request has to do with vectors: opening a model takes longer than most commands."""
    if path.endswith(("/admin/rebuild", "/admin/forget", "/memory/recall")):
        return True
    if path.endswith("/memory/forget"):
        return isinstance(body, dict) and body.get("mode") != "soft_delete"
    if path.endswith("/memory/explain"):
        return isinstance(body, dict) and bool(body.get("query"))
    return path.endswith("/memory/search") and isinstance(body, dict) and body.get("method") != "keyword"


@contextlib.asynccontextmanager
async def _following(node: daemon.Node, shown: progress.Progress) -> AsyncIterator[None]:
    """Show how far the cascade has come while the block runs."""

    async def follow() -> None:
        while True:
            now = node.cascade.status()
            shown.update(now.done, now.total)
            await asyncio.sleep(PAUSE_S)

    # Not a TaskGroup: it would wrap the error of the block, and errors are told apart by their class.
    follower = asyncio.create_task(follow(), name="progress")
    try:
        yield
    finally:
        follower.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await follower


async def exchange(
    app: ASGIApp, method: str, path: str, body: object, on_line: client.LineSink | None = None
) -> client.Answer:
    """Send one request to an application inside this process and return the answer."""
    from everosd.api import exchange as inside

    def line(data: bytes) -> None:
        if on_line is not None:
            on_line(client.decoded(data))

    taken = await inside.Exchange(body, line).ask(app, method, path)
    return client.Answer(status=taken.status, body=client.decoded(taken.body))
