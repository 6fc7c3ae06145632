"""What the kernel offers for replacing a file without losing a save: exchange of two names, and who holds a file open.

`renameat2` has no wrapper in the standard library, so that it is called through ctypes. Nothing here decides anything;
`log.exchange` does.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import functools
import os
import signal
from collections.abc import Callable
from pathlib import Path

RENAME_NOREPLACE = 1
RENAME_EXCHANGE = 2
"""Flags of renameat2(2), Linux 3.15."""

_AT_FDCWD = -100
_UNSUPPORTED = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EXDEV, errno.EPERM})
"""What kernels and file systems answer that do not know the flag (EPERM: old seccomp filters)."""


@functools.cache
def _renameat2() -> Callable[[int, bytes, int, bytes, int], int] | None:
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return None
    call.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    call.restype = ctypes.c_int
    return call


def _rename(source: Path, target: Path, flags: int) -> bool:
    call = _renameat2()
    if call is None:
        return False
    if call(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), flags) == 0:
        return True
    number = ctypes.get_errno()
    if number in _UNSUPPORTED:
        return False
    raise OSError(number, os.strerror(number), str(source), None, str(target))


def exchange(one: Path, other: Path) -> bool:
    """Let two names trade what they name, atomically.

    Returns:
        False when the kernel or the file system cannot; nothing has happened then.

    Raises:
        OSError: One of the names is gone, or the folder may not be written.
    """
    return _rename(one, other, RENAME_EXCHANGE)


def move_new(source: Path, target: Path) -> bool:
    """Rename `source` to `target`, unless `target` exists.

    Returns:
        False when `target` exists; nothing has happened then.

    Raises:
        OSError: Anything else that went wrong.
    """
    try:
        if _rename(source, target, RENAME_NOREPLACE):
            return True
    except FileExistsError:
        return False
    # A hard link refuses an existing name too; only file systems without links (FAT) are left with the check.
    try:
        os.link(source, target, follow_symlinks=False)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        if os.path.lexists(target):
            return False
        source.rename(target)
        return True
    source.unlink()
    return True


def is_held_for_writing(descriptor: int) -> bool | None:
    """Tell whether any process has the file open for writing (or mapped writable).

    A read lease is granted only on a file that nobody has open for writing; it is given back at once. Whoever opens the
    file in between waits for those microseconds.

    Args:
        descriptor: Open read-only.

    Returns:
        None when it cannot be told: no leases on this file system, or the file belongs to somebody else.
    """
    if not hasattr(fcntl, "F_SETLEASE"):
        return None
    try:
        # A broken lease is told by a signal; SIGURG is one that does nothing by default, SIGIO would end the process.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as error:
        return True if error.errno == errno.EAGAIN else None
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError:
        return None
    return False


def is_open_for_writing(path: Path) -> bool | None:
    """Tell whether any process has the file at `path` open for writing; None when it cannot be told, as above."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return is_held_for_writing(descriptor)
    finally:
        os.close(descriptor)
