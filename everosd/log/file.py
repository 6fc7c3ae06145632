"""Bytes of log files: what tells one state of a file from another, reading it whole, making a new one beside it.

All of it blocks: call it from a thread. `log.exchange` replaces files that people edit, `log.tail` appends to those that only
machines write.

`step` arguments name the moments at which a crash or a save from outside matters; tests act at them.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from everosd import errors

_READ_ATTEMPTS = 20
_READ_PAUSE_S = 0.005


class Identity(NamedTuple):
    """What tells one state of a file from another without reading it."""

    device: int
    inode: int
    size: int
    mtime_ns: int


class FileBytes(msgspec.Struct, frozen=True, kw_only=True):
    """A file as it was at one moment."""

    data: bytes
    identity: Identity
    is_stable: bool = True
    """False when the file changed during each attempt: what was read may be a mixture."""


Step = Callable[[str], None]


def no_step(name: str) -> None:
    """Do nothing at a named moment."""


def digest(data: bytes) -> bytes:
    """Return 16 bytes of BLAKE2b."""
    return hashlib.blake2b(data, digest_size=16).digest()


@contextlib.contextmanager
def refusals(path: Path) -> Iterator[None]:
    """Turn what the system says into an error that tells what to do."""
    try:
        yield
    except OSError as error:
        raise refusal(path, error) from error


def refusal(path: Path, error: OSError) -> errors.WriteRefused:
    """Return the error for what the system said; raise it `from` that."""
    reason = error.strerror or type(error).__name__
    return errors.WriteRefused(str(path), reason.lower(), hint=_HINTS.get(error.errno or 0, ""))


_HINTS = {
    errno.ENOSPC: "free some disk space; nothing was changed and the write can be repeated",
    errno.EDQUOT: "free some of the disk quota; nothing was changed and the write can be repeated",
    errno.EROFS: "remount the file system of the memory root writable; nothing was changed",
    errno.EACCES: "let the user that everosd runs as read and write the file and its folder (chmod u+rw, u+rwx)",
    errno.EPERM: "let the user that everosd runs as read and write the file and its folder (lsattr shows immutable files)",
    errno.ENAMETOOLONG: "choose a shorter id",
}


def identity_of(found: os.stat_result) -> Identity:
    """Return what tells this state of a file from another."""
    return Identity(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def identify(path: Path) -> Identity | None:
    """Return the identity of the file at `path`, links followed; None when there is none."""
    try:
        return identity_of(path.stat())
    except (FileNotFoundError, NotADirectoryError):
        return None


def read_all(descriptor: int, size: int) -> bytes:
    """Read from the start to the end, even if the file grows meanwhile."""
    parts: list[bytes] = []
    offset = 0
    while True:
        part = os.pread(descriptor, max(size - offset, 0) + 4096, offset)
        if not part:
            return parts[0] if len(parts) == 1 else b"".join(parts)
        parts.append(part)
        offset += len(part)


def open_to_read(path: Path) -> int:
    """Open a regular file that may be read; return the descriptor.

    Raises:
        OSError: There is none, it may not be read, or it is a folder, a pipe, a device.
    """
    # Without O_NONBLOCK, opening a named pipe would wait for a writer for ever.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    found = os.fstat(descriptor)
    number = 0
    if not stat.S_ISREG(found.st_mode):
        number = errno.EISDIR if stat.S_ISDIR(found.st_mode) else errno.EINVAL
    elif not found.st_mode & 0o444:
        # Root may read it all the same, but whoever took every read bit away does not want it read.
        number = errno.EACCES
    if number:
        os.close(descriptor)
        raise OSError(number, os.strerror(number), str(path))
    return descriptor


def read(path: Path) -> FileBytes:
    """Read a file whole, such that the bytes were all there at one moment.

    Raises:
        FileNotFoundError: There is none.
        PermissionError: It may not be read.
        OSError: It is no regular file, or the disk failed.
    """
    for attempt in range(_READ_ATTEMPTS):
        descriptor = open_to_read(path)
        try:
            before = os.fstat(descriptor)
            data = read_all(descriptor, before.st_size)
            after = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        is_stable = identity_of(before) == identity_of(after) and len(data) == after.st_size
        if is_stable or attempt == _READ_ATTEMPTS - 1:
            return FileBytes(data=data, identity=identity_of(after), is_stable=is_stable)
        time.sleep(_READ_PAUSE_S)
    raise AssertionError  # pragma: no cover - the last attempt returns


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, 0700, and bring their names to disk.

    Raises:
        errors.WriteRefused: It cannot be made.
    """
    with refusals(folder):
        missing = []
        while not folder.is_dir():
            missing.append(folder)
            folder = folder.parent
        for each in reversed(missing):
            with contextlib.suppress(FileExistsError):
                each.mkdir(mode=0o700)
            sync_folder(each.parent)


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems do not sync folders; their servers write names through.
        if error.errno not in {errno.EINVAL, errno.ENOTSUP}:
            raise
    finally:
        os.close(descriptor)


_OWNER_READ_WRITE = 0o600


def is_ours_to_write(path: Path, found: os.stat_result) -> bool:
    """Refuse a file that is write-protected: a rename would get around its permissions.

    Returns:
        False when the name stands for something else by now, which is no matter of permission.
    """
    # The bits count for root too: who took them away does not want the file changed.
    if found.st_mode & _OWNER_READ_WRITE == _OWNER_READ_WRITE:
        is_effective = os.access in os.supports_effective_ids
        for _ in range(3):
            if os.access(path, os.R_OK | os.W_OK, effective_ids=is_effective):
                return True
            now = identify(path)
            if now is None or now.inode != found.st_ino:
                return False
    raise PermissionError(errno.EACCES, "the file is write-protected", str(path))


TEMPORARY = re.compile(
    r"^\.(?P<name>.*)\.tmp\.everosd-[0-9a-f]{8}(?:\.(?P<expected>[0-9a-f]{16})\.(?P<new>[0-9a-f]{16})(?P<old>\.old)?)?$",
    re.DOTALL,
)
"""Names of our temporary files. With digests the file was complete and the exchange may have begun (`log.displaced`)."""

NAME_BYTES = 180


def temporary_name(path: Path) -> Path:
    """Return a name beside `path` that nothing has; `TEMPORARY` tells it again."""
    short = os.fsdecode(os.fsencode(path.name)[:NAME_BYTES])
    return path.with_name(f".{short}.tmp.everosd-{secrets.token_hex(4)}")


def write_temporary(temporary: Path, data: bytes, like: os.stat_result | None, source: Path) -> Identity:
    """Write and sync a new file with the mode, owner and attributes of the old one (0600 without one)."""
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        write_all(descriptor, data)
        if like is None:
            os.fchmod(descriptor, 0o600)
        else:
            _copy_attributes(descriptor, like, source)
        os.fsync(descriptor)
        return identity_of(os.fstat(descriptor))
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of it, in as many calls as that takes."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _copy_attributes(descriptor: int, like: os.stat_result, source: Path) -> None:
    made = os.fstat(descriptor)
    for uid, gid in ((-1, like.st_gid), (like.st_uid, -1)):
        if (uid, gid) not in ((-1, made.st_gid), (made.st_uid, -1)):
            # Not root: the owner cannot be kept, and the group only if it is one of ours.
            with contextlib.suppress(PermissionError):
                os.fchown(descriptor, uid, gid)
    os.fchmod(descriptor, stat.S_IMODE(like.st_mode))
    if not hasattr(os, "listxattr"):
        return
    with contextlib.suppress(OSError):
        for name in os.listxattr(source):
            # Access lists come as attributes as well; what may not be set (security.*) is the system's own business.
            with contextlib.suppress(OSError):
                os.setxattr(descriptor, name, os.getxattr(source, name))
