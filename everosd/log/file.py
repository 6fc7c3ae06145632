"""Bytes of log files: read them whole, replace them without losing a save, append to those that only machines write.

All of it blocks: call it from a thread. A file that people edit is replaced by exchanging names and then looking at what
came out: when that is not what was read, somebody saved in between, and their save is put back. What was displaced is
kept a while (`log.displaced`), because an editor that writes in place may still hold it open.

`step` arguments name the moments at which a crash or a save from outside matters; tests act at them.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
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
from everosd.log import swap

QUIET_NS = 200_000_000
"""A file that changed this recently is left alone: editors save in several steps (write, then rename, then chmod)."""

_READ_ATTEMPTS = 20
_READ_PAUSE_S = 0.005
_MAX_EXCHANGES = 50
"""Each further exchange needs another save within microseconds; the bound only keeps a fault from looping for ever."""
_LOCK_WAIT_S = 5.0
_TAIL_BYTES = 1 << 16

_CLOSE = re.compile(rb"^ {0,3}<!--\s*/entry:[^\n]*?-->[ \t]*\r?$", re.MULTILINE | re.IGNORECASE)
_OPEN = re.compile(rb"^ {0,3}<!--\s*entry:", re.MULTILINE | re.IGNORECASE)
_MARKER = b"<!-- entry:"


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
    mode: int
    """Permission bits."""
    uid: int
    gid: int
    read_at_ns: int
    """Wall clock just before reading: a `mtime_ns` that is not clearly older is no proof of an unchanged file."""
    is_stable: bool = True
    """False when the file changed during each attempt: what was read may be a mixture."""

    @property
    def inode(self) -> int:
        """Number of the file on its device."""
        return self.identity.inode

    @property
    def size(self) -> int:
        """Length in bytes, as the file system tells it."""
        return self.identity.size

    @property
    def mtime_ns(self) -> int:
        """When it was last written, in nanoseconds of the wall clock."""
        return self.identity.mtime_ns


class Displaced(msgspec.Struct, frozen=True, kw_only=True):
    """A file that lost its name to ours; an editor may still write to it."""

    path: Path
    """The name it had."""
    now_at: Path
    """Where it is now."""
    digest: bytes
    """`digest()` of what it held."""
    size: int
    """In bytes."""
    is_closed: bool
    """True when it is certain that nobody had it open for writing."""
    base: bytes | None
    """What it held, where somebody may still write to it; None where `is_closed`."""


class Replaced(msgspec.Struct, frozen=True, kw_only=True):
    """The new bytes are in place and on disk."""

    identity: Identity
    displaced: tuple[Displaced, ...] = ()


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing was replaced: the file is not what was expected. Read it again."""

    displaced: tuple[Displaced, ...] = ()


class Busy(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing was replaced: the file changed just now, or another program is at it."""

    identity: Identity
    """Pass it as `settled` after `wait_s`: if the file is still the same then, it has settled."""
    wait_s: float
    is_held: bool = False
    """Another program holds a lock on it or has it open for writing."""


class Appended(msgspec.Struct, frozen=True, kw_only=True):
    """The bytes are at the end of the file and on disk."""

    identity: Identity


Step = Callable[[str], None]


def no_step(name: str) -> None:
    """Do nothing at a named moment."""


def digest(data: bytes) -> bytes:
    """Return 16 bytes of BLAKE2b."""
    return hashlib.blake2b(data, digest_size=16).digest()


@contextlib.contextmanager
def _refusals(path: Path) -> Iterator[None]:
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


def _identity(found: os.stat_result) -> Identity:
    return Identity(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def identify(path: Path) -> Identity | None:
    """Return the identity of the file at `path`, links followed; None when there is none."""
    try:
        return _identity(path.stat())
    except (FileNotFoundError, NotADirectoryError):
        return None


def _read_all(descriptor: int, size: int) -> bytes:
    """Read from the start to the end, even if the file grows meanwhile."""
    parts: list[bytes] = []
    offset = 0
    while True:
        part = os.pread(descriptor, max(size - offset, 0) + 4096, offset)
        if not part:
            return parts[0] if len(parts) == 1 else b"".join(parts)
        parts.append(part)
        offset += len(part)


def _open_to_read(path: Path) -> int:
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
        descriptor = _open_to_read(path)
        try:
            read_at_ns = time.time_ns()
            before = os.fstat(descriptor)
            data = _read_all(descriptor, before.st_size)
            after = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        is_stable = _identity(before) == _identity(after) and len(data) == after.st_size
        if is_stable or attempt == _READ_ATTEMPTS - 1:
            return FileBytes(
                data=data,
                identity=_identity(after),
                mode=stat.S_IMODE(after.st_mode),
                uid=after.st_uid,
                gid=after.st_gid,
                read_at_ns=read_at_ns,
                is_stable=is_stable,
            )
        time.sleep(_READ_PAUSE_S)
    raise AssertionError  # pragma: no cover - the last attempt returns


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, 0700, and bring their names to disk.

    Raises:
        errors.WriteRefused: It cannot be made.
    """
    with _refusals(folder):
        missing = []
        while not folder.is_dir():
            missing.append(folder)
            folder = folder.parent
        for each in reversed(missing):
            with contextlib.suppress(FileExistsError):
                each.mkdir(mode=0o700)
            _sync_folder(each.parent)


def _sync_folder(folder: Path) -> None:
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


def _is_ours_to_write(path: Path, found: os.stat_result) -> bool:
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

_NAME_BYTES = 180


def _temporary(path: Path) -> Path:
    short = os.fsdecode(os.fsencode(path.name)[:_NAME_BYTES])
    return path.with_name(f".{short}.tmp.everosd-{secrets.token_hex(4)}")


def _write_temporary(temporary: Path, data: bytes, like: os.stat_result | None, source: Path) -> Identity:
    """Write and sync a new file with the mode, owner and attributes of the old one (0600 without one)."""
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        _write_all(descriptor, data)
        if like is None:
            os.fchmod(descriptor, 0o600)
        else:
            _copy_attributes(descriptor, like, source)
        os.fsync(descriptor)
        return _identity(os.fstat(descriptor))
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes) -> None:
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


def _busy(descriptor: int, found: os.stat_result, settled: Identity | None) -> Busy | None:
    """Tell whether somebody is at the file right now."""
    identity = _identity(found)
    if identity != settled:
        # Both sides come from the wall clock; a time in the future (another machine's clock) counts as just now.
        age_ns = time.time_ns() - found.st_mtime_ns
        if age_ns < QUIET_NS:
            return Busy(identity=identity, wait_s=min(QUIET_NS - age_ns, QUIET_NS) / 1e9)
    if swap.is_held_for_writing(descriptor):
        return Busy(identity=identity, wait_s=0.02, is_held=True)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return Busy(identity=identity, wait_s=0.02, is_held=True)
    except OSError as error:
        # NFS locks need write access, FUSE may know none: the exchange below does not depend on the lock.
        if error.errno not in {errno.EBADF, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL, errno.ENOLCK}:
            raise
    return None


def busy(path: Path, settled: Identity | None) -> Busy | None:
    """Tell whether somebody is at the file right now, as `replace` would; None also where there is no file.

    Raises:
        errors.WriteRefused: The file may not be read.
    """
    with _refusals(path):
        try:
            descriptor = _open_to_read(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            return _busy(descriptor, os.fstat(descriptor), settled)
        finally:
            os.close(descriptor)


def replace(
    path: Path,
    expected: bytes | None,
    new: bytes,
    tmp_dir: Path,
    *,
    settled: Identity | None = None,
    is_urgent: bool = False,
    can_exchange: bool = True,
    step: Step = no_step,
) -> Replaced | Changed | Busy:
    """Put `new` in the place of `expected`, or leave everything as it is.

    Args:
        path: Where; a link is followed.
        expected: What must be there; None: there must be no file.
        new: What is there afterwards, with the mode, owner and attributes found, else 0600.
        tmp_dir: `.tmp/` of the root, where displaced files wait.
        settled: A state of the file that needs no quiet time: the last one that everosd wrote itself, or one that has
            been the same for `QUIET_NS` already.
        is_urgent: Don't wait for quiet or for other programs any more. Comparing still holds.
        can_exchange: False: behave as on a file system without `RENAME_EXCHANGE`.
        step: Called at `opened`, `written`, `ready`, `exchanged`, `put_back`, `synced`.

    Raises:
        errors.WriteRefused: No space, no permission, read-only: nothing has changed.
    """
    with _refusals(path):
        path = Path(os.path.realpath(path))
        if expected is None:
            return _create(path, new, step)
        try:
            descriptor = _open_to_read(path)
        except (FileNotFoundError, NotADirectoryError):
            return Changed()
        try:
            found = os.fstat(descriptor)
            if not _is_ours_to_write(path, found):
                return Changed()
            step("opened")
            if not is_urgent:
                busy = _busy(descriptor, found, settled)
                if busy is not None:
                    return busy
            if found.st_size != len(expected) or _read_all(descriptor, found.st_size) != expected:
                return Changed()
            return _swap_in(path, found, expected, new, tmp_dir, can_exchange=can_exchange, step=step)
        finally:
            os.close(descriptor)


def _create(path: Path, new: bytes, step: Step) -> Replaced | Changed:
    temporary = _temporary(path)
    try:
        identity = _write_temporary(temporary, new, None, path)
        step("written")
        if not swap.move_new(temporary, path):
            return Changed()
        step("exchanged")
        _sync_folder(path.parent)
        step("synced")
        return Replaced(identity=identity)
    finally:
        temporary.unlink(missing_ok=True)


def _swap_in(
    path: Path,
    found: os.stat_result,
    expected: bytes,
    new: bytes,
    tmp_dir: Path,
    *,
    can_exchange: bool,
    step: Step,
) -> Replaced | Changed:
    temporary = _temporary(path)
    displaced: list[Displaced] = []
    is_ours = True
    try:
        identity = _write_temporary(temporary, new, found, path)
        step("written")
        # From here on a crash may leave somebody's save under the temporary name: the digests in it tell whose it is.
        marks = f".{digest(expected)[:8].hex()}.{digest(new)[:8].hex()}"
        ready = temporary.with_name(temporary.name + marks)
        temporary.rename(ready)
        temporary = ready
        step("ready")
        if can_exchange:
            is_ours = False
            outcome = _exchange(path, temporary, expected, new, tmp_dir, displaced, step)
            is_ours = outcome is None
        else:
            outcome = None
        if outcome is None:
            outcome = _rename_over(path, temporary, expected, tmp_dir, displaced, step)
        _sync_folder(path.parent)
        step("synced")
    finally:
        if is_ours:
            temporary.unlink(missing_ok=True)
    if not outcome:
        return Changed(displaced=tuple(displaced))
    return Replaced(identity=identity, displaced=tuple(displaced))


def _exchange(
    path: Path,
    temporary: Path,
    expected: bytes,
    new: bytes,
    tmp_dir: Path,
    displaced: list[Displaced],
    step: Step,
) -> bool | None:
    """Exchange the names and look at what came out; put a save that came out back.

    Returns:
        True: replaced. False: not what was expected. None: names cannot be exchanged here, nothing was done.
    """
    placed: bytes | None = new
    wanted: bytes | None = expected
    is_replaced = True
    for turn in range(_MAX_EXCHANGES):
        try:
            if not swap.exchange(temporary, path):
                return None if turn == 0 else False
        except FileNotFoundError:
            # The file is gone: deleted, or an editor is about to write it anew.
            return _restore(path, temporary, tmp_dir, placed, displaced, is_first=turn == 0)
        step("exchanged" if turn == 0 else "put_back")
        came_out = _peek(temporary)
        if came_out == wanted:
            break
        # Somebody saved between comparing and exchanging, and this is their text: it goes back. Each time something
        # else comes out than what was put there last, it is a still newer save.
        is_replaced = False
        wanted, placed = placed, came_out
    displaced.append(displace(path, temporary, tmp_dir, wanted or b""))
    return is_replaced


def _peek(path: Path) -> bytes | None:
    """Read what came out, once: a mixture is not what was expected either. None: it cannot be read."""
    try:
        descriptor = _open_to_read(path)
    except OSError:
        return None
    try:
        return _read_all(descriptor, os.fstat(descriptor).st_size)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _restore(
    path: Path, temporary: Path, tmp_dir: Path, placed: bytes | None, displaced: list[Displaced], *, is_first: bool
) -> bool:
    if is_first:
        temporary.unlink(missing_ok=True)
    elif not swap.move_new(temporary, path):
        # The newest save has its name already; this one was saved before it.
        displaced.append(displace(path, temporary, tmp_dir, placed or b""))
    return False


def _rename_over(
    path: Path, temporary: Path, expected: bytes, tmp_dir: Path, displaced: list[Displaced], step: Step
) -> bool:
    """Replace without exchange: a second name keeps the old file, then compare once more and rename."""
    aside = path.with_name(temporary.name + ".old")
    try:
        os.link(path, aside, follow_symlinks=False)
    except FileNotFoundError:
        return False
    except OSError:
        # No hard links either (FAT, some network mounts): an in-place save within the next moments cannot be seen.
        aside.unlink(missing_ok=True)
        if read(path).data != expected:
            return False
        temporary.replace(path)
        step("exchanged")
        return True
    try:
        is_same = read(path).data == expected and path.stat().st_ino == aside.stat().st_ino
    except FileNotFoundError:
        is_same = False
    if not is_same:
        aside.unlink()
        return False
    temporary.replace(path)
    step("exchanged")
    displaced.append(displace(path, aside, tmp_dir, expected))
    return True


def displace(path: Path, now_at: Path, tmp_dir: Path, held: bytes) -> Displaced:
    """Move a file that lost its name to `.tmp/`, and find out whether anybody can still write to it.

    Args:
        path: The name it had.
        now_at: The name it has.
        tmp_dir: Where to move it; made when missing. It stays where it is if that is another file system.
        held: What it held when it lost its name.
    """
    is_held: bool | None = None
    with contextlib.suppress(OSError):
        descriptor = os.open(now_at, os.O_RDONLY | os.O_CLOEXEC)
        try:
            is_held = swap.is_held_for_writing(descriptor)
        finally:
            os.close(descriptor)
    kept = tmp_dir / f"{secrets.token_hex(8)}.{digest(held)[:8].hex()}.displaced"
    with contextlib.suppress(OSError):
        tmp_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        now_at.rename(kept)
        now_at = kept
    is_closed = is_held is False
    if not is_closed:
        # What an editor saves into it after a crash of ours is a save all the same: the next start must know for what.
        with contextlib.suppress(OSError):
            origin_of(kept).write_bytes(os.fsencode(os.path.relpath(path, tmp_dir.parent)))
    return Displaced(
        path=path,
        now_at=now_at,
        digest=digest(held),
        size=len(held),
        is_closed=is_closed,
        base=None if is_closed else held,
    )


def origin_of(displaced: Path) -> Path:
    """Return where the name that a displaced file had is written down."""
    return displaced.with_suffix(".origin")


def origin(displaced: Path) -> str | None:
    """Return the name that a displaced file had, relative to the root; None when nobody could write to it."""
    try:
        return os.fsdecode(origin_of(displaced).read_bytes())
    except OSError:
        return None


def append(path: Path, data: bytes, *, step: Step = no_step) -> Appended | Changed:
    """Add bytes at the end of a file that only machines write, and bring them to disk.

    A line that was left without an end gets one first. After a failure the file is as long as before.

    Args:
        path: An existing file.
        data: Whole rows.
        step: Called at `written` and `synced`.

    Returns:
        `Changed` when there is no such file, or the name stands for another file now: read again and repeat.

    Raises:
        errors.WriteRefused: No space, no permission, read-only, or another program holds a lock on it.
    """
    with _refusals(path):
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        except FileNotFoundError:
            return Changed()
        try:
            found = os.fstat(descriptor)
            if not _is_ours_to_write(path, found):
                return Changed()
            _lock(path, descriptor)
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                data = b"\n" + data
            try:
                _write_all(descriptor, data)
                step("written")
                os.fsync(descriptor)
            except OSError:
                os.ftruncate(descriptor, size)
                raise
            step("synced")
            written = _identity(os.fstat(descriptor))
        finally:
            os.close(descriptor)
        now = identify(path)
        if now is None or now.inode != written.inode or now.device != written.device:
            return Changed()
        return Appended(identity=written)


def _lock(path: Path, descriptor: int) -> None:
    deadline = time.monotonic() + _LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise errors.WriteRefused(
                    str(path), "another program holds a lock on it", hint="close what holds it (lslocks shows it)"
                ) from None
            time.sleep(_READ_PAUSE_S)
        else:
            return


def cut_torn_tail(path: Path, tmp_dir: Path) -> bytes:
    """Cut off what a crash left half-written at the end of a file that only machines write.

    A row is whole once its closing marker is there. What follows the last one is torn when it holds an opening marker,
    the beginning of one, or nothing but NULs (a file that was grown but not written before the power went); anything
    else is left alone. What is cut is kept in `tmp_dir` under a name ending in `.torn`.

    Returns:
        What was cut; empty when nothing was.

    Raises:
        errors.WriteRefused: The file may not be changed.
    """
    with _refusals(path):
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return b""
        try:
            _lock(path, descriptor)
            size = os.fstat(descriptor).st_size
            start = _torn_from(descriptor, size)
            if start is None:
                return b""
            torn = _read_all(descriptor, size)[start:]
            make_folder(tmp_dir)
            _write_temporary(tmp_dir / f"{path.name[:_NAME_BYTES]}.{secrets.token_hex(4)}.torn", torn, None, path)
            os.ftruncate(descriptor, start)
            os.fsync(descriptor)
            return torn
        finally:
            os.close(descriptor)


def _torn_from(descriptor: int, size: int) -> int | None:
    """Return where the torn tail begins; None when the file ends well."""
    window = _TAIL_BYTES
    while True:
        start = max(0, size - window)
        tail = os.pread(descriptor, size - start, start)
        # The window may begin within a line, and then what looks like a marker at its edge need not be one.
        whole_lines = 0 if start == 0 else tail.find(b"\n") + 1
        closes = [match.end() for match in _CLOSE.finditer(tail, whole_lines)]
        if closes or start == 0:
            break
        window *= 4
    end = closes[-1] if closes else 0
    rest = tail[end:]
    opening = _OPEN.search(rest)
    if opening is not None:
        return start + end + opening.start()
    last = rest.rpartition(b"\n")[2]
    if last.strip() and _MARKER.startswith(last.strip()) and closes:
        return start + end + len(rest) - len(last)
    if b"\0" in rest and not rest.strip(b"\0\r\n"):
        return start + end + len(rest) - len(rest.lstrip(b"\r\n"))
    return None
