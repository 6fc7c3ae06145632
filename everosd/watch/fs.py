"""The watcher: keeps hearing of changes, says when it cannot, and asks for a rescan whenever it may have missed one.

Three threads of thought meet here and only here: watchdog's reader thread posts what it hears, the event loop hands
it to the settler, and worker threads do what blocks (setting watches, walking the root).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import threading
from pathlib import Path
from typing import Literal

import structlog

from everosd import clock as clocks
from everosd.types import RelPath
from everosd.watch import kernel, mount, scan, settle

log = structlog.get_logger(__name__)

Mode = Literal["auto", "inotify", "polling"]

POLL_INTERVAL_S = 2.0
"""How often the root is walked where events cannot be had."""
POLL_SHARE = 0.1
"""Most of the time that walks may take: on a root that is slow to walk they come less often than asked for."""
CHECK_S = 1.0
"""How often the watcher makes sure that it still hears: one `stat` of the root."""
FIRST_BACKOFF_S, LAST_BACKOFF_S = 0.1, 30.0
"""Waits between attempts to open the tree anew; doubled at each one until it has held for `LAST_BACKOFF_S`."""
RETRY_KERNEL_S = 60.0
"""How often a watcher that had to fall back to polling tries whether the limit was raised."""

LEAST_RAISED = {"max_user_watches": 524_288, "max_user_instances": 1_024}
"""What to recommend at least; a watch costs about 1 KB of kernel memory, and only while it is used."""


class Watcher:
    """Feeds a settler with what changes below the root. `start`, then `run` until cancelled, then `stop`.

    `mode`, `healthy` and `reason` say at any moment how changes are noticed; a watcher that was told to poll and polls
    is healthy, one that had to is not.
    """

    def __init__(
        self,
        root: Path,
        settler: settle.Settler,
        *,
        clock: clocks.Clock | None = None,
        mode: Mode = "auto",
        poll_interval_s: float = POLL_INTERVAL_S,
        check_s: float = CHECK_S,
    ) -> None:
        """Take the settings of `[watch]`; the regular comparison with the disk is the cascade's."""
        self._root, self._settler, self._wanted = root, settler, mode
        self._clock = clock or clocks.SystemClock()
        self._poll_interval_s, self._check_s = poll_interval_s, check_s
        self.mode: Literal["inotify", "polling"] = "polling" if mode == "polling" else "inotify"
        self.healthy = False
        self.reason = "not started"
        self.n_restarts = 0
        """How often the tree of watches was opened anew."""
        self.n_folders = 0
        """Folders watched or, when polling, walked."""
        self._post: Post | None = None
        self._tree: kernel.Tree | None = None
        self._seen: scan.Scan | None = None
        """What polling saw last."""
        self._why_polling = ""
        self._is_started = False
        self._backoff_s = FIRST_BACKOFF_S
        self._opened_at = self._tried_at = self._clock.monotonic_s()
        self._poll_wait_s = poll_interval_s

    async def start(self) -> None:
        """Begin to hear: whatever changes after the return is marked. The caller compares the disk itself, after it."""
        self._post = Post(asyncio.get_running_loop(), self._settler)
        self._is_started = True
        await self._open()

    async def run(self) -> None:
        """Watch over the watching until cancelled. Starts what is not started, and stops it in the end."""
        if not self._is_started:
            await self.start()
        try:
            while True:
                try:
                    await self._turn()
                except Exception:
                    # Whatever it is, a daemon that goes on without eyes would be worse than one that tries again.
                    log.exception("watcher_failed")
                    await self._reopen("the watcher failed")
        finally:
            await asyncio.shield(self.stop())

    async def stop(self) -> None:
        """Stop hearing and give all watches back. Idempotent."""
        self._is_started = False
        tree, self._tree = self._tree, None
        self.healthy, self.reason = False, "stopped"
        if tree is not None:
            await asyncio.to_thread(tree.close)

    async def _turn(self) -> None:
        """Wait for the next thing to see to, and see to it."""
        assert self._post is not None  # noqa: S101 - `start` set it
        wait_s = self._poll_wait_s if self.mode == "polling" else self._check_s
        await self._post.wait(self._clock, wait_s)
        now = self._clock.monotonic_s()
        if self.mode == "polling":
            await self._poll()
            if self._wanted != "polling" and now - self._tried_at >= RETRY_KERNEL_S:
                await self._return_to_kernel()
        else:
            await self._check()

    # Events of the kernel.

    async def _check(self) -> None:
        """Open the tree anew when it no longer hears everything."""
        assert self._post is not None  # noqa: S101 - `start` set it
        trouble = self._post.take_lost()
        if self._tree is None:
            trouble = self.reason
        elif not trouble:
            trouble = await asyncio.to_thread(self._tree.trouble)
        if trouble:
            await self._reopen(trouble)
        elif self._clock.monotonic_s() - self._opened_at >= LAST_BACKOFF_S:
            self._backoff_s = FIRST_BACKOFF_S

    async def _reopen(self, trouble: str) -> None:
        """Close the tree and open it again, after a pause that grows; a rescan finds what was missed meanwhile."""
        was, self.healthy, self.reason = self.reason, False, trouble
        say = log.debug if was == trouble else log.warning
        say("watcher_reopens", reason=trouble, n_restarts=self.n_restarts)
        pause_s, self._backoff_s = self._backoff_s, min(2 * self._backoff_s, LAST_BACKOFF_S)
        await self._clock.sleep(pause_s)
        tree, self._tree = self._tree, None
        if tree is not None:
            await asyncio.to_thread(tree.close)
        if self._post is not None:
            self._post.take_lost()
        self.n_restarts += 1
        has_eyes = await self._open()
        if has_eyes or self.reason != was:
            self._settler.mark_all(trouble)

    async def _open(self) -> bool:
        """Set up whatever way of noticing can be had; False when there is none. `mode` and `reason` tell the rest."""
        assert self._post is not None  # noqa: S101 - `start` set it
        self._tried_at = self._clock.monotonic_s()
        remote = await asyncio.to_thread(mount.remote_type, self._root) if self._wanted == "auto" else ""
        if self._wanted == "polling" or remote:
            await self._start_polling(f"the root is on {remote}, which does not report changes" if remote else "")
            return True
        tree = self._tree = kernel.Tree(self._root, self._post)
        try:
            await asyncio.to_thread(tree.open)
        except OSError as error:
            self._tree = None
            if error.errno in kernel.LIMITS:
                await self._start_polling(await asyncio.to_thread(limit_reason, error))
                return True
            self.healthy, self.reason = False, f"the root cannot be watched: {(error.strerror or '').lower()}"
            return False
        self.mode = "inotify"
        self.healthy, self.reason, self.n_folders = True, "", tree.n_folders
        self._opened_at = self._clock.monotonic_s()
        return True

    async def _return_to_kernel(self) -> None:
        """Try whether events can be had again; a rescan bridges the change."""
        await self._open()
        if self._tree is not None:
            log.info("watcher_hears_again", n_folders=self.n_folders)
            self._settler.mark_all("the kernel reports changes again")

    # Polling.

    async def _start_polling(self, reason: str) -> None:
        """Take the walks' starting point, or compare with it where there is one already."""
        if reason and reason != self._why_polling:
            log.warning("watcher_polls", reason=reason, interval_s=self._poll_interval_s)
        self.mode, self._why_polling = "polling", reason
        self.reason = reason or self.reason
        await self._poll()

    async def _poll(self) -> None:
        """Walk the root and mark what is not as it was at the walk before."""
        started_at = self._clock.monotonic_s()
        before, after = self._seen, await asyncio.to_thread(scan.scan, self._root)
        self._seen, self.n_folders = after, after.n_folders
        self._poll_wait_s = max(self._poll_interval_s, (self._clock.monotonic_s() - started_at) / POLL_SHARE)
        missing = dict(after.unreadable).get("", "")
        self.reason = f"the root cannot be read: {missing}" if missing else self._why_polling
        self.healthy = not self.reason
        if before is None:
            return
        paths, others = await asyncio.to_thread(scan.changed, before, after)
        for path in paths:
            self._settler.mark(path, is_final=True)
        for other in others:
            self._settler.mark_other(other)


class Post:
    """Carries what the reader's thread hears to the event loop: one wake-up for however much piled up meanwhile."""

    def __init__(self, loop: asyncio.AbstractEventLoop, settler: settle.Settler) -> None:
        """Take the loop that the settler lives on."""
        self._loop, self._settler = loop, settler
        self._lock = threading.Lock()
        self._files: dict[RelPath, tuple[bool, bool]] = {}
        """`(is_final, is_writing)` of what was heard last."""
        self._others: set[str] = set()
        self._folders: set[RelPath] = set()
        self._flood = ""
        self._lost = ""
        self._is_called = False
        self._alarm = asyncio.Event()

    # Called from the reader's thread (`kernel.Listener`).

    def file(self, path: RelPath, *, is_final: bool, is_writing: bool) -> None:
        """Keep a Markdown file to look at."""
        with self._lock:
            was_final, was_writing = self._files.get(path, (None, False))
            kind = "memory" if was_final is not None else scan.sort(path) if scan.is_text(path) else "leftover"
            if kind == "leftover":
                return
            if kind == "memory":
                is_done = is_final or (bool(was_final) and not is_writing)
                self._files[path] = (is_done, is_writing or was_writing)
            else:
                self._others.add(path)
            self._call()

    def folder(self, path: RelPath) -> None:
        """Keep a folder to walk; the root as a whole is `""`."""
        if scan.is_text(path):
            with self._lock:
                self._folders.add(path)
                self._call()

    def lost(self, reason: str) -> None:
        """Raise the alarm: events were lost."""
        with self._lock:
            self._lost = self._lost or reason
            self._call()

    def _call(self) -> None:
        if len(self._files) + len(self._others) + len(self._folders) > settle.MAX_DIRTY:
            self._forget()
            self._flood = f"more than {settle.MAX_DIRTY} paths changed at once"
        if not self._is_called:
            self._is_called = True
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens any more
                self._loop.call_soon_threadsafe(self._deliver)

    def _forget(self) -> None:
        self._files, self._others, self._folders = {}, set(), set()

    # Called on the event loop.

    def _deliver(self) -> None:
        with self._lock:
            files, others, folders = self._files, self._others, self._folders
            self._forget()
            flood, self._flood, self._is_called = self._flood, "", False
            if self._lost:
                self._alarm.set()
        for path, (is_final, is_writing) in files.items():
            self._settler.mark(path, is_final=is_final, is_writing=is_writing)
        for other in others:
            self._settler.mark_other(other)
        for folder in folders:
            if folder:
                self._settler.mark_folder(folder)
            else:
                flood = flood or "the permissions of the root changed"
        if flood:
            self._settler.mark_all(flood)

    async def wait(self, clock: clocks.Clock, seconds: float) -> None:
        """Wait for the alarm, at most `seconds`."""
        await clocks.wait(self._alarm, seconds, clock)

    def take_lost(self) -> str:
        """Return why events were lost since the last call; empty when none were. Ends the alarm."""
        with self._lock:
            lost, self._lost = self._lost, ""
            self._alarm.clear()
        return lost


def limit_reason(error: OSError) -> str:
    """Say which limit is used up, how high it is, and what to type."""
    name = {errno.ENOSPC: "max_user_watches", errno.EMFILE: "max_user_instances"}.get(error.errno or 0, "")
    if not name:
        return f"inotify gives no more watches ({(error.strerror or '').lower()}): changes are found by polling"
    try:
        current = Path("/proc/sys/fs/inotify", name).read_text(encoding="ascii").strip()
        raised = max(2 * int(current), LEAST_RAISED[name])
    except (OSError, ValueError):
        current, raised = "unknown", LEAST_RAISED[name]
    return (
        f"fs.inotify.{name} is used up (it is {current}): changes are found by polling; "
        f"raise it with `sudo sysctl fs.inotify.{name}={raised}`"
    )
