"""One daemon per root: `flock` on `<root>/.lock`, which the kernel frees whatever way the holder dies.

The lock is on the inode, so another path to the same root (symlink, bind mount) meets the same lock. The file's text
says who holds it and is only a courtesy: the lock is what counts.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from everosd import errors

FILE_NAME = ".lock"
ATTEMPTS = 6
PAUSE_S = 0.02
"""`holder` takes a shared lock for a moment; a daemon that starts just then must not be refused for it."""


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """Who says that it holds the lock."""

    pid: int
    port: int | None = None
    """None until it listens, and for commands that do not."""
    host: str = ""
    started_at: str = ""
    """ISO, UTC."""


_DECODER = msgspec.json.Decoder(Holder)


class Lock:
    """A held lock. Closing it, or the end of the process, frees it."""

    def __init__(self, root: Path, descriptor: int, holder: Holder) -> None:
        """Keep what `acquire` opened."""
        self._root = root
        self._root_inode = _inode(root)
        self._descriptor = descriptor
        self._holder = holder

    def announce(self, *, host: str, port: int) -> None:
        """Write down where the holder listens, for commands that look for it."""
        self._holder = msgspec.structs.replace(self._holder, host=host, port=port)
        _write(self._descriptor, self._holder)

    def is_intact(self) -> bool:
        """Tell whether the path still leads to the root that is locked; True also while the root is out of sight.

        A deleted lock file (someone tidied up) is put back and locked. False means that another folder (a mount, a
        restored backup) or another daemon's lock file stands there now: what is open belongs to the one that is gone.
        Blocking, a few microseconds.
        """
        try:
            if _inode(self._root) != self._root_inode:
                return False
            return _is_at(self._root, self._descriptor) or self._put_back()
        except OSError:
            return True

    def is_in_sight(self) -> bool:
        """Tell whether the root that is locked stands at its path just now. Blocking, a few microseconds."""
        try:
            return _inode(self._root) == self._root_inode
        except OSError:
            return False

    def _put_back(self) -> bool:
        """Put a new lock file in the place of a deleted one; False where another's stands."""
        if (self._root / FILE_NAME).exists():
            return False
        try:
            fresh = _open(self._root)
        except errors.RootError:
            return True
        if not _try_lock(fresh):
            os.close(fresh)
            return False
        os.close(self._descriptor)
        self._descriptor = fresh
        _write(fresh, self._holder)
        return True

    def close(self) -> None:
        """Free the lock; the file stays, empty, because removing it would race with the next holder."""
        if self._descriptor < 0:
            return
        with contextlib.suppress(OSError):  # stale text in a free lock file misleads nobody
            os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)
        self._descriptor = -1

    def __enter__(self) -> Self:
        """Hold the lock for a block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Free the lock."""
        self.close()


def acquire(root: Path, *, started_at: str = "") -> Lock:
    """Take the lock of `root` or say who has it. Blocking, at most `ATTEMPTS * PAUSE_S`.

    Raises:
        LockHeld: another process has it; nothing was written.
        RootError: the root is missing, not a directory, or cannot hold a lock file.
    """
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(PAUSE_S)
        descriptor = _open(root)
        try:
            if not _try_lock(descriptor):
                continue
            if not _is_at(root, descriptor):  # deleted between open and lock: locking a ghost guards nothing
                continue
            holder = Holder(pid=os.getpid(), started_at=started_at)
            _write(descriptor, holder)
        except OSError as error:
            raise _root_error(root, error) from error
        else:
            held, descriptor = Lock(root, descriptor, holder), -1
            return held
        finally:
            if descriptor >= 0:
                os.close(descriptor)
    other = _read(root)
    raise errors.LockHeld(str(root), pid=other.pid if other else None, port=other.port if other else None)


def holder(root: Path) -> Holder | None:
    """Return who holds the lock of `root`; None when nobody does. Blocking, brief; changes nothing on disk.

    A holder whose text cannot be read is `Holder(pid=0)`.
    """
    try:
        descriptor = os.open(root / FILE_NAME, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return _read(root) or Holder(pid=0)
    finally:
        os.close(descriptor)
    return None


def _open(root: Path) -> int:
    """Open the lock file, made with mode 0600 if need be."""
    try:
        return os.open(root / FILE_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise _root_error(root, error) from error


def _root_error(root: Path, error: OSError) -> errors.RootError:
    """Say what a failed system call means for the person."""
    reason = error.strerror or str(error)
    if isinstance(error, FileNotFoundError):
        return errors.RootError(
            str(root), "no such folder", hint=f"mount it, or make it with: everosd init --root {shlex.quote(str(root))}"
        )
    if isinstance(error, NotADirectoryError):
        return errors.RootError(str(root), "is not a folder", hint="name a folder with --root")
    if isinstance(error, PermissionError):
        return errors.RootError(
            str(root), reason, hint=f"give the daemon's user rights on it: chown -R $USER {shlex.quote(str(root))}"
        )
    return errors.RootError(
        str(root), f"cannot lock {FILE_NAME}: {reason}", hint="use a root on a local, writable disk"
    )


def _try_lock(descriptor: int) -> bool:
    """Take the exclusive lock without waiting."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(root: Path, descriptor: int) -> bool:
    """Tell whether the path leads to the open file."""
    try:
        found = (root / FILE_NAME).lstat()
    except FileNotFoundError:
        return False
    mine = os.fstat(descriptor)
    return (found.st_dev, found.st_ino) == (mine.st_dev, mine.st_ino)


def _inode(folder: Path) -> tuple[int, int]:
    """Return what a folder is known by, whatever path leads to it."""
    found = folder.stat()
    return found.st_dev, found.st_ino


def _write(descriptor: int, who: Holder) -> None:
    """Replace the text in place (a rename would change the inode that the lock is on); a full disk does without."""
    text = msgspec.json.encode(who) + b"\n"
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text, 0)


def _read(root: Path) -> Holder | None:
    """Return what the lock file says; None where it says nothing that can be read."""
    try:
        return _DECODER.decode((root / FILE_NAME).read_bytes())
    except (OSError, msgspec.DecodeError):
        return None
