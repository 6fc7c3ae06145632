"""The process around the parts: signals, lock and port, heartbeat, settings that are saved, a bounded stop.

Lock, port, parts, HTTP, watcher, comparison with the disk, READY; on SIGTERM the same backwards, within bounds.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Literal, NoReturn

import everosd
from everosd import clock as clocks
from everosd import config, daemon, errors, lock, logs, notify

BEAT_S = 5.0
"""Longest time between two looks at how the daemon does; shorter where systemd's watchdog asks for it."""
LOOK_S = 0.02
"""How often a start looks whether it is over."""
GUARD_S = 2.0
"""How often lock and settings are looked at: a saved setting is in force within this time."""
BLOCKED_S = 0.5
"""A heartbeat later than this means that something blocked the event loop."""
EXTEND_S = 30.0
"""What a start that moves on asks systemd for at each heartbeat."""
OPENING_S = 900.0
"""Longest time that opening (migration, taking over) may ask for more time: it has no progress to show."""
HTTP_DRAIN_S = 3
"""How long requests in flight may take once the daemon stops; the rest of the drain is for the indexes."""
BACKLOG = 512
SWITCH_S = 0.001
"""How long a thread keeps Python's lock while another wants it: what is extracted beside the event loop must not hold up
answers for 5 ms, Python's own interval, at each step of theirs."""
COMMAND_S = 10.0
"""How long a start waits for a command that works on the files; most take less than a second."""
MAX_DAMAGED = 3
"""Damaged ledgers that one process sets aside; then the next start, or a person, has to look."""

HALF_SET = "[embedding] names an endpoint on another machine and no api_key: the built-in model stands in"
LLM_HALF_SET = "[llm] is half set, {} is missing: it counts as none, and extraction is verbatim"

M_ARENA_MAX = -8
"""`mallopt` parameter of glibc, malloc.h."""

log = logs.logger(__name__)

Outcome = Literal["stopped", "replaced", "damaged", "lost"]
"""Why a run ended: asked to; another folder stands where the root was; the ledger turned out to be damaged; it was
deleted."""
FileState = tuple[int, int, int] | None
"""Inode, size and mtime (ns) of the settings file."""


def serve(settings: config.Config) -> int:
    """Run the daemon until it is told to stop; return the exit code. Blocking; the main thread only.

    A root that is replaced under it (a mount, a restored backup) is opened afresh.
    """
    os.umask(daemon.PRIVATE)
    _leave_at_signals()
    _share_arenas()
    sys.setswitchinterval(SWITCH_S)
    # Before NumPy is imported: its threads would wait for work by spinning, on cores that others need.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.disable()  # nothing of what a start imports and builds is garbage; looking for it takes a tenth of the start
    limiter = logs.set_up(settings.log)
    notifier = notify.Notifier()
    n_damaged = 0
    try:
        while (outcome := _run(settings, notifier, limiter, is_last=n_damaged >= MAX_DAMAGED)) != "stopped":
            n_damaged += outcome == "damaged"
            settings = config.reread(settings)
    except Exception as error:  # noqa: BLE001  # the end of the line: whatever it is becomes a message and a code
        return _report(error)
    log.info("stopped")
    return daemon.OK


def _share_arenas() -> None:
    """Have glibc's malloc share two arenas: with one for each thread, thousands of commits leave 60 MB in holes."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(M_ARENA_MAX, 2)


def _report(error: Exception) -> int:
    """Say why the daemon ends, with a traceback only where it is no person's to mend, and return the exit code.

    Raises:
        EverosdError: a person looks on: the command says it as every other command does.
    """
    code = daemon.exit_code(error)
    if code != daemon.UNEXPECTED and isinstance(error, errors.EverosdError) and sys.stderr.isatty():
        raise error
    trace = error if code == daemon.UNEXPECTED else None
    log.error("daemon_failed", reason=str(error), hint=getattr(error, "hint", ""), exit_code=code, exc_info=trace)
    return code


def _leave_at_signals() -> None:
    """Until the loop takes signals over, nothing is open: a stop is an exit, and a reload has nothing to reload."""

    def leave(*_: object) -> NoReturn:
        sys.exit(daemon.OK)

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def _run(settings: config.Config, notifier: notify.Notifier, limiter: logs.RepeatLimiter, *, is_last: bool) -> Outcome:
    """Run once from lock to unlock. The port is taken before any work, so that a taken one is known at once.

    A ledger that turns out to be damaged is set aside by the next run, unless this is the last: the disk may be the cause.
    """
    import uvloop

    from everosd.store import db

    with contextlib.ExitStack() as stack:
        held = stack.enter_context(_acquire(settings.root))
        listener = stack.enter_context(_listen(settings.api.host, settings.api.port))
        held.announce(host=settings.api.host, port=listener.getsockname()[1])
        runner = stack.enter_context(asyncio.Runner(loop_factory=uvloop.new_event_loop))
        path = settings.root / daemon.INDEX_FOLDER / daemon.LEDGER
        try:
            outcome = runner.run(_Run(settings, held, listener, notifier, limiter).run())
        except db.DamagedStoreError as error:
            if is_last:
                raise
            log.error("ledger_damaged", reason=str(error))  # noqa: TRY400  # what is to be done is done
            return "damaged"
        if outcome == "lost":
            aside = db.set_aside(path)
            log.error("ledger_set_aside", reason="deleted or replaced while it was in use", moved_to=str(aside))
        return outcome


def _acquire(root: Path) -> lock.Lock:
    """Take the lock; a holder that does not listen is most likely a short command, and is waited for.

    Raises:
        LockHeld: a daemon serves the root, or a command takes longer than `COMMAND_S`.
        RootError: the root cannot be used.
    """
    give_up_s = time.monotonic() + COMMAND_S
    is_said = False
    while True:
        try:
            return lock.acquire(root, started_at=clocks.SystemClock().now().isoformat())
        except errors.LockHeld as error:
            if error.port is not None or time.monotonic() >= give_up_s:
                raise
            if not is_said:
                log.info("waiting_for_lock", root=str(root), pid=error.pid, at_most_s=COMMAND_S)
                is_said = True


def _listen(host: str, port: int) -> socket.socket:
    """Listen at once: clients that come during the start wait in the queue instead of being refused.

    Raises:
        PortTaken: the address cannot be listened on.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise errors.PortTaken(host, port, error.strerror or str(error)) from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
        listener.setblocking(False)  # noqa: FBT003  # its only argument
    except OSError as error:
        listener.close()
        raise errors.PortTaken(host, port, error.strerror or str(error)) from error
    return listener


class _Run:
    """One run of the daemon on a root that is locked and a port that listens."""

    def __init__(
        self,
        settings: config.Config,
        held: lock.Lock,
        listener: socket.socket,
        notifier: notify.Notifier,
        limiter: logs.RepeatLimiter,
    ) -> None:
        """Keep what `_run` has opened."""
        self._settings = settings
        self._held = held
        self._listener = listener
        self._notifier = notifier
        self._limiter = limiter
        self._clock = clocks.SystemClock()
        self._began_s = time.monotonic()
        self._stop = asyncio.Event()
        self._outcome: Outcome = "stopped"
        self._node: daemon.Node | None = None
        self._is_ready = False
        self._moved: tuple[object, ...] = ()
        self._moved_s = self._began_s
        self._n_waiting = 0
        self._waiting: tuple[str, ...] = ()
        self._settings_error = ""
        self._turn = asyncio.Event()
        self._is_reload_asked = False
        self._file_seen = _file_state(settings.root)

    async def run(self) -> Outcome:
        """Serve until told to stop, then drain."""
        self._take_signals()
        log.info(
            "starting",
            version=everosd.__version__,
            root=str(self._settings.root),
            port=self._listener.getsockname()[1],
            pid=os.getpid(),
            ignored_settings=list(self._settings.ignored),
        )
        try:
            async with asyncio.TaskGroup() as tasks:
                beside = [
                    tasks.create_task(self._beat(), name="heartbeat"),
                    tasks.create_task(self._guard(), name="guard"),
                ]
                await self._serve()
                for task in beside:
                    task.cancel()
        except BaseExceptionGroup as group:
            raise daemon.cause(group) from None
        return self._outcome

    async def _serve(self) -> None:
        """Open, answer, compare with the disk, say READY, wait for the stop; then everything in the opposite order."""
        async with contextlib.AsyncExitStack() as stack:
            node = await stack.enter_async_context(
                daemon.open_parts(self._settings, self._clock, has_vectors=True, learns=True)
            )
            self._node = node
            self._change_model()  # the settings may have been read again while the parts were opened
            await stack.enter_async_context(self._http(node))
            log.info("listening", after_s=self._age_s())
            gc.freeze()
            gc.enable()
            await stack.enter_async_context(daemon.loops(node, is_watching=True))
            await self._until_ready(node)
            await self._stop.wait()
            self._notifier.stopping("writing down what is noticed")
            log.info("stopping")

    @contextlib.asynccontextmanager
    async def _http(self, node: daemon.Node) -> AsyncIterator[None]:
        """Answer requests while the block runs; then refuse new ones and let those in flight end."""
        import uvicorn

        token = self._settings.api.token.reveal()
        server = uvicorn.Server(
            uvicorn.Config(
                daemon.application(node, token=token, stop=self._stop.set, notices=self._notices),
                http="httptools",
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,
                timeout_keep_alive=65,
                timeout_graceful_shutdown=HTTP_DRAIN_S,
            )
        )
        # Its `serve` would take over the signals and wake ten times a second; opening and closing is all it is for.
        server.config.load()
        server.lifespan = server.config.lifespan_class(server.config)
        await server.startup(sockets=[self._listener])
        try:
            yield
        finally:
            await server.shutdown(sockets=[self._listener])

    async def _until_ready(self, node: daemon.Node) -> None:
        """Wait until keyword search serves what was on disk at the start, or a stop.

        What is saved meanwhile does not count: on a busy root there is always something on its way.
        """
        wanted_lsn = None
        while not self._stop.is_set():
            if node.cascade.phase() == "ready":  # asked first: the whole status costs a walk through all that waits
                now = node.cascade.status()
                wanted_lsn = now.lsn if wanted_lsn is None else wanted_lsn
                prompt = [now.projections[one.name] for one in node.cascade.projections if one.is_prompt]
                if all(one.lsn >= wanted_lsn and one.state == "ok" for one in prompt):
                    self._is_ready = True
                    self._notifier.ready(f"serving {now.entries} entries of {now.files_indexed} files")
                    log.info("ready", after_s=self._age_s(), entries=now.entries, files=now.files_indexed)
                    return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._stop.wait()

    # -- signals ---------------------------------------------------------------------------------------------------

    def _take_signals(self) -> None:
        """SIGTERM and Ctrl-C stop, a second one at once; SIGHUP reloads, or stops where it means a closed terminal."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._asked_to_stop, "SIGTERM")
        loop.add_signal_handler(signal.SIGINT, self._asked_to_stop, "SIGINT")
        if sys.stderr.isatty():
            loop.add_signal_handler(signal.SIGHUP, self._asked_to_stop, "SIGHUP")
        else:
            loop.add_signal_handler(signal.SIGHUP, self._asked_to_reload)

    def _asked_to_stop(self, name: str) -> None:
        """Begin the drain and see to it that it ends; at the second call, end."""
        if self._stop.is_set():
            log.warning("stopped_at_once", signal=name)
            _end_now(daemon.OK)
        log.info("asked_to_stop", signal=name)
        self._stop.set()
        if self._node is not None and self._node.meaning is not None:
            self._node.meaning.stop_asking()
        limit_s = self._settings.daemon.drain_timeout_s
        # A thread, because a loop that hangs would not call a timer of its own.
        timer = threading.Timer(limit_s, _force, (limit_s,))
        timer.daemon = True
        timer.start()

    def _asked_to_reload(self) -> None:
        """Let the guard read the settings again at its next turn, which is now."""
        self._is_reload_asked = True
        self._turn.set()

    # -- beside the work -------------------------------------------------------------------------------------------

    async def _beat(self) -> None:
        """Tell systemd that the loop turns and that a start moves on; notice when the loop was held up."""
        period_s = min(BEAT_S, (self._notifier.watchdog_s or BEAT_S * 3) / 3)
        while True:
            self._notifier.watchdog()
            self._follow()
            logs.sum_up(self._limiter)
            due_s = time.monotonic() + period_s
            await asyncio.sleep(period_s)
            if (late_s := time.monotonic() - due_s) > BLOCKED_S:
                log.warning("event_loop_blocked", for_s=round(late_s, 3))

    def _follow(self) -> None:
        """Note whether the work moves on; a start that does asks systemd for more time."""
        if self._node is None:
            if self._notifier.is_heard and self._age_s() < OPENING_S:
                self._notifier.extend(EXTEND_S)
            return
        now = self._node.cascade.status()
        moved = (now.phase, now.done, now.lsn, now.pending, *(one.lsn for one in now.projections.values()))
        # Without the vectors that are owed: they have a model to wait for, and are spoken of alone.
        n_waiting = now.pending - self._node.cascade.n_owed()
        is_waiting = n_waiting > 0 and not now.alarm  # an alarm waits for a person
        for reason in self._stalls():
            log.warning("stalled", reason=reason)
        if moved == self._moved and is_waiting:
            return
        self._moved, self._moved_s, self._n_waiting = moved, time.monotonic(), n_waiting if is_waiting else 0
        if self._notifier.is_heard and not self._is_ready and not self._stop.is_set():
            self._notifier.extend(EXTEND_S)
            self._notifier.status(f"reading {now.done} of {now.total} files")

    async def _guard(self) -> None:
        """Make sure that the root is still the one that is locked, and that saved settings come into force."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GUARD_S):
                    await self._turn.wait()
            self._turn.clear()
            # In a thread: a `stat` on a dead network mount does not return.
            is_intact, is_sound, file = await asyncio.to_thread(self._look)
            if not is_intact and not self._stop.is_set():
                log.error("root_replaced", root=str(self._settings.root), reason="another folder stands in its place")
                self._outcome = "replaced"
                self._stop.set()
            if not is_sound and not self._stop.is_set():
                self._outcome = "lost"
                self._stop.set()
            if file != self._file_seen or self._is_reload_asked:
                self._file_seen, self._is_reload_asked = file, False
                await self._reload()

    def _look(self) -> tuple[bool, bool, FileState]:
        # Asked after the ledger: with the root out of sight (unmounted), all of it is, and nothing is lost.
        is_sound = self._node is None or self._node.database.is_sound() or not self._held.is_in_sight()
        return self._held.is_intact(), is_sound, _file_state(self._settings.root)

    async def _reload(self) -> None:
        """Read the settings again; what cannot be read leaves those in force, and is said until it is mended."""
        self._notifier.reloading()
        try:
            fresh = await asyncio.to_thread(config.reread, self._settings)
        except errors.ConfigError as error:
            self._settings_error = str(error)
            log.error("settings_refused", reason=str(error), hint=error.hint)  # noqa: TRY400  # the person needs no traceback
        else:
            found = config.merge(self._settings, fresh)
            self._settings, self._settings_error = found.config, ""
            self._waiting = found.waits_for_restart
            self._limiter = logs.set_up(self._settings.log)
            self._change_model()
            if self._node is not None and self._node.learning is not None:
                self._node.learning.change(self._settings)
            log.info("settings_read", applied=list(found.applied), waits_for_restart=list(found.waits_for_restart))
        if self._is_ready:
            self._notifier.ready("serving")

    def _change_model(self) -> None:
        """Have the model of the settings in force asked; a daemon that began without one has no index for its vectors."""
        if self._node is None:
            return
        if self._node.meaning is not None:
            self._node.meaning.change(self._settings.embedding)
        elif self._settings.embedding.provider != "none":
            self._waiting = (*self._waiting, "embedding.model")

    def _notices(self) -> tuple[str, ...]:
        """Return what /health should say besides what the parts say of themselves."""
        notices = []
        if self._node is not None and (reason := self._node.cascade.problems.ledger_error):
            notices.append(f"the ledger cannot be written, edits wait: {reason}")
        notices += self._stalls()
        if self._settings.embedding.is_half_set:
            notices.append(HALF_SET)
        if self._settings.llm.is_half_set:
            notices.append(LLM_HALF_SET.format(self._settings.llm.missing))
        if self._settings_error:
            notices.append(f"the settings as saved are not in force: {self._settings_error}")
        if self._waiting:
            notices.append(f"changed settings wait for a restart: {', '.join(self._waiting)}")
        return tuple(notices)

    def _stalls(self) -> Iterator[str]:
        """Yield what has work and has not moved for too long: all of it, or one index while the others go on."""
        limit_s = self._settings.daemon.stalled_after_s
        age_s = time.monotonic() - self._moved_s
        if self._n_waiting and age_s > limit_s:
            waiting = "1 change waits" if self._n_waiting == 1 else f"{self._n_waiting} changes wait"
            yield f"{waiting} and nothing has moved for {age_s:.0f} s"
            return
        for name, now in {} if self._node is None else self._node.cascade.projection_states().items():
            if now.age_s > limit_s:
                changes = f"{now.behind} change{'' if now.behind == 1 else 's'}"
                yield f"the {name} index is {changes} behind, and has not moved for {now.age_s:.0f} s"

    def _age_s(self) -> float:
        return round(time.monotonic() - self._began_s, 3)


def _file_state(root: Path) -> FileState:
    """Return what tells that the settings file was saved; None where there is none to be seen."""
    try:
        found = (root / config.FILE_NAME).stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _force(limit_s: float) -> None:
    """End a process that does not end: everything is written so that it may be cut off at any moment."""
    log.error("drain_timed_out", after_s=limit_s)
    _end_now(daemon.UNEXPECTED)


def _end_now(code: int) -> NoReturn:
    """End without running anything more: hung threads would keep a normal exit waiting."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
    os._exit(code)
