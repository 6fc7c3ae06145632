"""Files that people edit, replaced without losing a save.

Two names are exchanged and then one looks at what came out: when that is not what was read, somebody saved in between, and
their save is put back. What was displaced is kept a while (`log.displaced`), because an editor that writes in place may
still hold it open. All of it blocks: call it from a thread.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from pathlib import Path

import msgspec

from everosd import errors
from everosd.log import displaced, file, swap

QUIET_NS = 200_000_000
"""A file that changed this recently is left alone: editors save in several steps (write, then rename, then chmod)."""

_MAX_EXCHANGES = 50
"""Each further exchange needs another save within microseconds; the bound only keeps a fault from looping for ever."""


class Replaced(msgspec.Struct, frozen=True, kw_only=True):
    """The new bytes are in place and on disk."""

    identity: file.Identity
    displaced: tuple[displaced.Displaced, ...] = ()


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing was replaced: the file is not what was expected. Read it again."""

    displaced: tuple[displaced.Displaced, ...] = ()


class Busy(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing was replaced: the file changed just now, or another program is at it."""

    identity: file.Identity
    """Pass it as `settled` after `wait_s`: if the file is still the same then, it has settled."""
    wait_s: float


def _busy(descriptor: int, found: os.stat_result, settled: file.Identity | None) -> Busy | None:
    """Tell whether somebody is at the file right now."""
    identity = file.identity_of(found)
    if identity != settled:
        # Both sides come from the wall clock; a time in the future (another machine's clock) counts as just now.
        age_ns = time.time_ns() - found.st_mtime_ns
        if age_ns < QUIET_NS:
            return Busy(identity=identity, wait_s=min(QUIET_NS - age_ns, QUIET_NS) / 1e9)
    if swap.is_held_for_writing(descriptor):
        return Busy(identity=identity, wait_s=0.02)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return Busy(identity=identity, wait_s=0.02)
    except OSError as error:
        # NFS locks need write access, FUSE may know none: the exchange below does not depend on the lock.
        if error.errno not in {errno.EBADF, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL, errno.ENOLCK}:
            raise
    return None


def busy(path: Path, settled: file.Identity | None) -> Busy | None:
    """Tell whether somebody is at the file right now, as `replace` would; None also where there is no file.

    Raises:
        errors.WriteRefused: The file may not be read.
    """
    with file.refusals(path):
        try:
            descriptor = file.open_to_read(path)
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
    settled: file.Identity | None = None,
    is_urgent: bool = False,
    can_exchange: bool = True,
    step: file.Step = file.no_step,
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
    with file.refusals(path):
        path = Path(os.path.realpath(path))
        if expected is None:
            return _create(path, new, step)
        try:
            descriptor = file.open_to_read(path)
        except (FileNotFoundError, NotADirectoryError):
            return Changed()
        try:
            found = os.fstat(descriptor)
            if not file.is_ours_to_write(path, found):
                return Changed()
            step("opened")
            if not is_urgent:
                busy = _busy(descriptor, found, settled)
                if busy is not None:
                    return busy
            if found.st_size != len(expected) or file.read_all(descriptor, found.st_size) != expected:
                return Changed()
            return _swap_in(path, found, expected, new, tmp_dir, can_exchange=can_exchange, step=step)
        finally:
            os.close(descriptor)


def _create(path: Path, new: bytes, step: file.Step) -> Replaced | Changed:
    temporary = file.temporary_name(path)
    try:
        identity = file.write_temporary(temporary, new, None, path)
        step("written")
        if not swap.move_new(temporary, path):
            return Changed()
        step("exchanged")
        file.sync_folder(path.parent)
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
    step: file.Step,
) -> Replaced | Changed:
    temporary = file.temporary_name(path)
    lost: list[displaced.Displaced] = []
    is_ours = True
    try:
        identity = file.write_temporary(temporary, new, found, path)
        step("written")
        # From here on a crash may leave somebody's save under the temporary name: the digests in it tell whose it is.
        marks = f".{file.digest(expected)[:8].hex()}.{file.digest(new)[:8].hex()}"
        ready = temporary.with_name(temporary.name + marks)
        temporary.rename(ready)
        temporary = ready
        step("ready")
        if can_exchange:
            is_ours = False
            outcome = _exchange(path, temporary, expected, new, tmp_dir, lost, step)
            is_ours = outcome is None
        else:
            outcome = None
        if outcome is None:
            outcome = _rename_over(path, temporary, expected, tmp_dir, lost, step)
        file.sync_folder(path.parent)
        step("synced")
    finally:
        if is_ours:
            temporary.unlink(missing_ok=True)
    if not outcome:
        return Changed(displaced=tuple(lost))
    return Replaced(identity=identity, displaced=tuple(lost))


def _exchange(
    path: Path,
    temporary: Path,
    expected: bytes,
    new: bytes,
    tmp_dir: Path,
    lost: list[displaced.Displaced],
    step: file.Step,
) -> bool | None:
    """Exchange the names and look at what came out; put a save that came out back.

    Returns:
        True: replaced. False: not what was expected. None: names cannot be exchanged here, nothing was done.
    """
    wanted: bytes | None = expected
    placed: bytes | None = new
    # `wanted` is what has the name and should come out, `placed` what the exchange gives the name to.
    for turn in range(_MAX_EXCHANGES):
        try:
            if turn > 1 and wanted is not None:
                # This save is about to lose its name to a newer one, which may have been made without it.
                lost.append(displaced.keep_save(path, wanted, tmp_dir, expected))
            is_exchanged = swap.exchange(temporary, path)
        except FileNotFoundError:
            # The file is gone: deleted, or an editor is about to write it anew.
            is_back = _restore(path, temporary, tmp_dir, expected, lost, is_first=turn == 0)
            _keep_put_back(path, placed if is_back else None, tmp_dir, expected, lost)
            return False
        except (OSError, errors.WriteRefused):
            if turn == 0:
                temporary.unlink(missing_ok=True)
                raise
            # No room to keep the save that has the name, or no exchange any more: both saves stay as they are, and the
            # one that came out is brought into the log from where it is.
            is_exchanged = False
        if not is_exchanged:
            if turn == 0:
                return None
            break
        step("exchanged" if turn == 0 else "put_back")
        came_out = _peek(temporary)
        if came_out == wanted:
            lost.append(displaced.displace(path, temporary, tmp_dir, wanted or b""))
            _keep_put_back(path, placed if turn else None, tmp_dir, expected, lost)
            return turn == 0
        # Somebody saved between comparing and exchanging, and this is their text: it goes back. Each time something
        # else comes out than what was put there last, it is a still newer save.
        wanted, placed = placed, came_out
    lost.append(displaced.keep_file(path, temporary, tmp_dir, expected))
    return False


def _peek(path: Path) -> bytes | None:
    """Read what came out, once: a mixture is not what was expected either. None: it cannot be read."""
    try:
        descriptor = file.open_to_read(path)
    except OSError:
        return None
    try:
        return file.read_all(descriptor, os.fstat(descriptor).st_size)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _keep_put_back(path: Path, save: bytes | None, tmp_dir: Path, base: bytes, lost: list[displaced.Displaced]) -> None:
    """Keep a save that has its name again as well.

    While our text stood there an editor may have loaded it, and will save what it made of that over this one.
    """
    if save is not None:
        with contextlib.suppress(OSError, errors.WriteRefused):  # no room: it has its name, and that is where most stay
            lost.append(displaced.keep_save(path, save, tmp_dir, base))


def _restore(
    path: Path, temporary: Path, tmp_dir: Path, base: bytes, lost: list[displaced.Displaced], *, is_first: bool
) -> bool:
    """Put what came out back under a name that has gone; tell whether it stands there."""
    if is_first:
        temporary.unlink(missing_ok=True)
        return False
    if swap.move_new(temporary, path):
        return True
    # The newest save has its name already; this one was saved before it.
    lost.append(displaced.keep_file(path, temporary, tmp_dir, base))
    return False


def _rename_over(
    path: Path, temporary: Path, expected: bytes, tmp_dir: Path, lost: list[displaced.Displaced], step: file.Step
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
        if file.read(path).data != expected:
            return False
        temporary.replace(path)
        step("exchanged")
        return True
    try:
        is_same = file.read(path).data == expected and path.stat().st_ino == aside.stat().st_ino
    except FileNotFoundError:
        is_same = False
    if not is_same:
        aside.unlink()
        return False
    temporary.replace(path)
    step("exchanged")
    lost.append(displaced.displace(path, aside, tmp_dir, expected))
    return True
