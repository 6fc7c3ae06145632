"""The tree of inotify watches: every folder of the root that can hold memory, through watchdog's inotify reader.

watchdog's `InotifyFD` reads the queue and calls us back; the emitter above it is left out, for four reasons that were
measured or read there (watchdog 7.1): it holds every event back for up to 0.5 s behind a move whose other half has
not come yet, it swallows the error when a subfolder cannot be watched (so that a used-up limit goes unnoticed), it
only logs a lost queue, and it watches `.index/` as well. Pairing moves is not needed here: events say where to look.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from pathlib import Path
from typing import Protocol

from watchdog.observers import inotify_c

from everosd.types import RelPath
from everosd.watch import scan

IN = inotify_c.InotifyConstants

MASK = inotify_c.Mask(
    IN.IN_MODIFY
    | IN.IN_CLOSE_WRITE
    | IN.IN_ATTRIB
    | IN.IN_CREATE
    | IN.IN_DELETE
    | IN.IN_MOVED_FROM
    | IN.IN_MOVED_TO
    | IN.IN_DELETE_SELF
    | IN.IN_MOVE_SELF
    | IN.IN_ONLYDIR
    | IN.IN_DONT_FOLLOW
    | IN.IN_EXCL_UNLINK
)
"""Opening, reading and closing unwritten are left out: the daemon's own reads must not wake it."""

APPEARED = IN.IN_CREATE | IN.IN_MOVED_TO
FINAL = IN.IN_CLOSE_WRITE | IN.IN_MOVED_TO
LIMITS = frozenset({errno.ENOSPC, errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Errors that say that no (further) watch can be had: the answer is polling."""


class Listener(Protocol):
    """Whom the tree tells what it hears. Called from the reader's thread; must be quick and must not raise."""

    def file(self, path: RelPath, *, is_final: bool, is_writing: bool) -> None:
        """A name ending in `.md` was created, written, closed, moved here or away, deleted or given other modes."""

    def folder(self, path: RelPath) -> None:
        """A folder appeared, vanished or changed its modes."""

    def lost(self, reason: str) -> None:
        """Events were lost or the tree is no longer complete: it has to be opened anew."""


class Tree:
    """Watches on the root and all folders below it that can hold memory.

    `open` and `close` block and belong in a worker thread. One tree is opened once.
    """

    def __init__(self, root: Path, listener: Listener) -> None:
        """Remember what to watch; nothing happens before `open`."""
        self._root = os.fspath(root)
        self._listener = listener
        self._lock = threading.RLock()
        self._folders: dict[inotify_c.WatchDescriptor, str] = {}
        self._ids: dict[inotify_c.WatchDescriptor, inotify_c.CallbackId] = {}
        self._last_id = 0
        self._watches: dict[str, inotify_c.WatchDescriptor] = {}
        self._aliases: dict[str, set[str]] = {}
        """Target inside the root → symbolic links that lead to it: an event there is one at the link too."""
        self._reader: inotify_c.InotifyFD | None = None
        self._identity = (0, 0)

    @property
    def n_folders(self) -> int:
        """Folders watched."""
        return len(self._watches)

    def open(self) -> None:
        """Set all watches; whatever changes after the return is reported.

        Raises:
            OSError: the root cannot be watched, or a limit of inotify is reached (`errno` in `LIMITS`).
        """
        self._root = os.path.realpath(self._root)
        self._identity = identity(self._root)
        reader = self._reader = inotify_c.InotifyFD()
        try:
            reader.start()
            self._add("")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give the watches back. Idempotent."""
        reader, self._reader = self._reader, None
        if reader is None:
            return
        reader.stop()
        if reader.is_alive():
            reader.join(timeout=5)

    def trouble(self) -> str:
        """Say why the tree no longer hears everything; empty while it does. Blocking."""
        reader = self._reader
        if reader is None or not reader.is_alive():
            return "the watcher's thread has ended"
        try:
            if identity(self._root) != self._identity:
                return "the root was replaced by another folder"
        except OSError as error:
            return f"the root cannot be read: {(error.strerror or '').lower()}"
        return ""

    # What watchdog calls, in its reader's thread (`inotify_c.WatchCallback`).

    def on_event(self, event: inotify_c.InotifyEvent) -> None:
        """Turn one event into where to look."""
        with self._lock:
            folder = self._folders.get(event.wd)
        if folder is None:
            return
        if not event.name:
            self._on_folder_itself(folder, event.mask)
            return
        name = os.fsdecode(event.name)
        path = f"{folder}/{name}" if folder else name
        if event.mask & IN.IN_ISDIR:
            self._on_folder(name, path, event.mask)
            return
        if name.endswith(scan.SUFFIX):
            is_final, is_writing = bool(event.mask & FINAL), not event.mask & IN.IN_ATTRIB
            for each in (path, *self._seen_as(path)):
                self._listener.file(RelPath(each), is_final=is_final, is_writing=is_writing)
        if event.mask & APPEARED:
            self._on_link(path)

    def on_watch_deleted(self, wd: inotify_c.WatchDescriptor) -> None:
        """Forget the watch of a folder that is gone."""
        with self._lock:
            folder = self._folders.pop(wd, None)
            self._ids.pop(wd, None)
            if folder is not None and self._watches.get(folder) == wd:
                del self._watches[folder]

    def on_queue_overflow(self) -> None:
        """Report that the kernel dropped events."""
        self._listener.lost("inotify's queue overflowed (fs.inotify.max_queued_events)")

    def _on_folder_itself(self, folder: str, mask: int) -> None:
        if mask & IN.IN_UNMOUNT:
            self._listener.lost("a file system below the root was unmounted")
        elif folder:
            # Its parent reports the rest.
            return
        elif mask & (IN.IN_DELETE_SELF | IN.IN_MOVE_SELF):
            self._listener.lost("the root was deleted or moved")
        elif mask & IN.IN_ATTRIB:
            self._listener.folder(RelPath(""))

    def _on_folder(self, name: str, path: str, mask: int) -> None:
        if not scan.is_walked(name):
            return
        if not mask & APPEARED and not mask & IN.IN_ATTRIB:
            self._drop(path)
        elif mask & APPEARED or path not in self._watches:
            # A folder that could not be read before has watches neither on itself nor on what is below.
            self._grow(path)
        for each in (path, *self._seen_as(path)):
            self._listener.folder(RelPath(each))

    def _on_link(self, path: str) -> None:
        """A link to a folder or file inside the root appeared: what changes there changes here."""
        is_link = Path(self._root, path).is_symlink()
        if is_link and self._add_alias(path) and not path.endswith(scan.SUFFIX):
            self._listener.folder(RelPath(path))

    def _grow(self, path: str) -> None:
        try:
            self._add(path)
        except OSError as error:
            if error.errno in LIMITS:
                self._listener.lost("no watch could be had for a new folder")

    def _add(self, top: str) -> None:
        """Watch a folder and everything below it. Each is watched before it is listed, so that nothing slips by."""
        waiting = [top]
        while waiting:
            folder = waiting.pop()
            try:
                if self._watch(folder):
                    waiting += self._subfolders(folder)
            except OSError as error:
                # What vanished or cannot be read is reported by the walk; a limit, or the root, by us.
                if error.errno in LIMITS or not folder:
                    raise

    def _watch(self, folder: str) -> bool:
        """Watch one folder; False when it may not be read."""
        with self._lock:
            if folder in self._watches:
                return True
            if self._reader is None:
                return False
            self._last_id += 1
            callback_id = inotify_c.CallbackId(self._last_id)
            wd = self._reader.add_callback(os.fsencode(f"{self._root}/{folder}"), MASK, self, callback_id)
            if wd < 0:  # how watchdog returns "permission denied"
                return False
            # The kernel knows folders by inode: one that was moved here keeps its watch. If the event of its going
            # is still in the queue, taking it out of the old place must not take it out of the new one.
            if wd in self._ids:
                self._reader.remove_callbacks([(wd, self._ids[wd])])
                self._watches.pop(self._folders.get(wd, ""), None)
            self._ids[wd], self._folders[wd], self._watches[folder] = callback_id, folder, wd
        return True

    def _subfolders(self, folder: str) -> list[str]:
        found = []
        with os.scandir(f"{self._root}/{folder}") as listing:
            for entry in listing:
                path = f"{folder}/{entry.name}" if folder else entry.name
                if entry.is_symlink():
                    self._add_alias(path)
                elif entry.is_dir(follow_symlinks=False) and scan.is_walked(entry.name):
                    found.append(path)
        return found

    def _drop(self, top: str) -> None:
        """Stop watching a folder that left its place, and everything below it."""
        with self._lock:
            if top not in self._watches:
                return  # deleted: the kernel took the watches back one by one before
            gone = [folder for folder in self._watches if folder == top or folder.startswith(top + "/")]
            wds = [self._watches.pop(folder) for folder in gone]
            ids = [(wd, self._ids.pop(wd)) for wd in wds]
            for wd in wds:
                self._folders.pop(wd, None)
            if self._reader is not None:
                with contextlib.suppress(OSError):
                    self._reader.remove_callbacks(ids)

    def _add_alias(self, path: str) -> bool:
        target, reason = scan.link_target(self._root, f"{self._root}/{path}")
        if not reason:
            with self._lock:
                self._aliases.setdefault(target, set()).add(path)
        return not reason

    def _seen_as(self, path: str) -> list[str]:
        """Return the paths that links give to what is at `path`."""
        if not self._aliases:
            return []
        with self._lock:
            return [
                link + path[len(target) :]
                for target, links in self._aliases.items()
                if path == target or path.startswith(target + "/")
                for link in links
            ]


def identity(root: str) -> tuple[int, int]:
    """Return device and inode of the root: another pair is another folder under the same name."""
    status = os.stat(root)  # noqa: PTH116
    return status.st_dev, status.st_ino
