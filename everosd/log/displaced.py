"""Files that lost their name to a new version: watched for a while, because an editor may still be writing to them.

An editor that writes in place opens the file, and saves into what it opened even if that has lost its name meanwhile. What
comes in that way is a save, made on the version that was displaced. After a crash the same question is asked of every
temporary file that is found: was it ours, or does it hold somebody's save?
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import structlog

from everosd.log import file, swap

log = structlog.get_logger()

KEEP_S = 60.0
"""How long a displaced file that somebody may have open is watched."""

CLOSED_KEEP_S = 1.0
"""How long one is kept that nobody has open: a program that had looked the name up may be about to open it."""

RETRY_S = 5.0
"""How soon a save that could not be brought into the log is tried again."""

_QUIET_S = 0.2
"""An in-place save is taken up when nothing has been written for this long."""

_PART = ".part"
"""A save that is being written: whoever finds it after a crash has its source as well."""

_SUFFIX, _SAVE, _ORIGIN = ".displaced", ".save", ".origin"

GONE = ".gone"
"""What is being erased."""

_MAX_BYTES = 256 << 20
"""What displaced files may take on the disk together; beyond it the oldest are read once more and let go."""


class Displaced(msgspec.Struct, frozen=True, kw_only=True):
    """A file that lost its name to ours; an editor may still write to it."""

    path: Path
    """The name it had."""
    now_at: Path
    """Where it is now."""
    digest: bytes
    """`file.digest` of what it held."""
    size: int
    """In bytes."""
    is_closed: bool
    """True when it is certain that nobody had it open for writing."""
    base: bytes | None
    """What it held, where somebody may still write to it; None where `is_closed`."""
    is_copy: bool = False
    """It is ours, of a save that had the name itself for a moment, or has it."""


class LateSave(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody saved into a file that had lost its name already."""

    path: Path
    """The name that it was meant for."""
    data: bytes
    base: bytes | None
    """The version that they had opened; None where it is not known (after a crash)."""
    kept_at: Path | None = None
    """A copy that survives a crash; whoever has brought the save into the log deletes it."""
    is_copy: bool = False
    """It had the name for a moment, or may have had it (after a crash): its editor may have written on there."""


class _Watched:
    """One displaced file and what is known of it."""

    def __init__(self, displaced: Displaced, since_s: float) -> None:
        self.displaced = displaced
        self.until_s = since_s + (CLOSED_KEEP_S if displaced.is_closed else KEEP_S)
        self.digest = displaced.digest
        self.base = displaced.base
        self.before = self.digest, self.base
        """As they were before the save that was handed out last."""
        self.size = displaced.size
        self.seen: file.Identity | None = None
        self.read: file.Identity | None = None
        self.seen_s = since_s


class Watch:
    """The displaced files of one root. Every method may be called from any thread, and blocks for disk reads."""

    def __init__(self, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        """Start with nothing to watch."""
        self._monotonic_s = monotonic_s
        self._watched: list[_Watched] = []
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Return how many files are being watched."""
        return len(self._watched)

    def add(self, displaced: Displaced) -> None:
        """Watch one more."""
        with self._lock:
            self._watched.append(_Watched(displaced, self._monotonic_s()))

    def late_saves(self, *, is_final: bool = False) -> tuple[LateSave, ...]:
        """Look at every watched file; return what was saved into them, each save once.

        Args:
            is_final: Look at all of them for the last time, whatever their age, as when the daemon stops: what nobody
                has open is deleted, the rest stays for the next start.
        """
        with self._lock:
            saves = [save for watched in tuple(self._watched) if (save := self._look(watched, is_final)) is not None]
            total = sum(watched.size for watched in self._watched)
            for oldest in tuple(self._watched):
                if total <= _MAX_BYTES:
                    break
                total -= oldest.size
                save = self._look(oldest, is_final=True)
                if save is None:
                    self._let_go(oldest)
                else:
                    # Until whoever gets it has kept it, this is the only copy: it goes the next time.
                    saves.append(save)
        return tuple(saves)

    def give_back(self, save: LateSave) -> bool:
        """Have a save found once more, after `RETRY_S`: it could not be kept, and the file it was read from must stay.

        Returns:
            False when that file is not watched any more.
        """
        mark = file.digest(save.data)
        with self._lock:
            for watched in self._watched:
                if watched.displaced.path == save.path and watched.digest == mark:
                    watched.digest, watched.base = watched.before
                    watched.read = None
                    watched.seen_s = watched.until_s = self._monotonic_s() + RETRY_S
                    return True
        return False

    def taken(self, save: LateSave) -> None:
        """Note that a save is in the log: the next start does not take it up once more, over what came after it."""
        mark = file.digest(save.data)
        with self._lock:
            for watched in self._watched:
                if watched.displaced.path == save.path and watched.digest == mark:
                    _mark_as_known(watched)

    def overtaken(self, path: Path, data: bytes) -> None:
        """Note what stood under a name when it was replaced: a save that had the name and that it begins with is whole in it."""
        real = Path(os.path.realpath(path))
        with self._lock:
            for watched in self._watched:
                if watched.displaced.path != real or not watched.displaced.is_copy:
                    continue
                with contextlib.suppress(OSError):
                    held = file.read(watched.displaced.now_at).data
                    digest = file.digest(held)
                    if held and digest != watched.digest and data.startswith(held):
                        watched.digest, watched.base = digest, held
                        _mark_as_known(watched)

    def forget(self, covers: Callable[[Path], bool]) -> None:
        """Delete what was displaced from these paths, also where an editor still has it open."""
        with self._lock:
            for watched in tuple(self._watched):
                if covers(watched.displaced.path):
                    self._let_go(watched)

    def make_room(self) -> None:
        """Delete what nobody has open, at once: the disk is full, or a text is to be gone. What was saved into it stays."""
        with self._lock:
            for watched in tuple(self._watched):
                if not watched.displaced.is_closed:
                    continue
                if self._look(watched, is_final=True) is None:
                    self._let_go(watched)
                else:  # whoever asks for late saves gets it
                    watched.digest, watched.base = watched.before
                    watched.read = None

    def _look(self, watched: _Watched, is_final: bool) -> LateSave | None:  # noqa: FBT001 - private
        now_s = self._monotonic_s()
        at = watched.displaced.now_at
        identity = file.identify(at)
        if identity is None:
            self._watched.remove(watched)
            return None
        if identity != watched.seen:
            watched.seen, watched.seen_s, watched.size = identity, now_s, identity.size
        is_due = is_final or now_s >= watched.until_s
        is_quiet = now_s - watched.seen_s >= _QUIET_S
        if not is_due and (watched.displaced.is_closed or identity == watched.read or not is_quiet):
            return None
        watched.read = identity
        save = self._changed(watched)
        if save is not None:
            # Whoever saved once may save again.
            watched.until_s = now_s + KEEP_S
        elif is_due and not (
            is_final and not watched.displaced.is_closed and swap.is_open_for_writing(at) is not False
        ):
            self._let_go(watched)
        return save

    def _changed(self, watched: _Watched) -> LateSave | None:
        try:
            read = file.read(watched.displaced.now_at)
        except OSError:
            return None
        digest = file.digest(read.data)
        # An empty file is an editor that has truncated and not written yet, or gave up: nothing that one could mean.
        if digest == watched.digest or not read.data:
            return None
        displaced = watched.displaced
        save = LateSave(path=displaced.path, data=read.data, base=watched.base, is_copy=displaced.is_copy)
        watched.before = watched.digest, watched.base
        watched.digest, watched.base = digest, read.data
        return save

    def _let_go(self, watched: _Watched) -> None:
        if watched in self._watched:
            self._watched.remove(watched)
        with contextlib.suppress(OSError):
            watched.displaced.now_at.unlink()
        with contextlib.suppress(OSError):
            origin_of(watched.displaced.now_at).unlink()


def _mark_as_known(watched: _Watched) -> None:
    """Have the name of a displaced file say that what it holds by now is in the log."""
    old = watched.displaced.now_at
    if old.suffix != _SUFFIX:
        return
    new = _name(old.parent, watched.digest)
    with contextlib.suppress(OSError):
        _write_new(origin_of(new), origin_of(old).read_bytes())
        old.rename(new)
        watched.displaced = msgspec.structs.replace(watched.displaced, now_at=new)
        origin_of(old).unlink()


def displace(path: Path, now_at: Path, tmp_dir: Path, held: bytes) -> Displaced:
    """Move a file that lost its name to `.tmp/`, and find out whether anybody can still write to it.

    Args:
        path: The name it had.
        now_at: The name it has.
        tmp_dir: Where to move it; made when missing. It stays where it is if that is another file system.
        held: What it held when it lost its name.
    """
    is_closed = swap.is_open_for_writing(now_at) is False
    mark = file.digest(held)
    with contextlib.suppress(OSError):
        # What an editor saves into it after a crash of ours is a save all the same: the next start must know for what.
        now_at = _move(path, now_at, tmp_dir, mark, has_origin=not is_closed)
    return Displaced(
        path=path, now_at=now_at, digest=mark, size=len(held), is_closed=is_closed, base=None if is_closed else held
    )


def keep_save(path: Path, data: bytes, tmp_dir: Path, base: bytes) -> Displaced:
    """Keep a person's save that a newer one may take the place of, to be merged into what is there then.

    The newer one need not be made on it: while names were exchanged, an editor could load what stood there for that
    moment. It is on disk when this returns.

    Args:
        path: The name it has.
        data: The save.
        tmp_dir: Where to keep it.
        base: What it was made on.

    Raises:
        OSError: It cannot be written: whoever asks must leave the save where it is.
    """
    mark = file.digest(base)
    kept = _name(tmp_dir, mark)
    _store(path, data, tmp_dir, kept)
    return Displaced(path=path, now_at=kept, digest=mark, size=len(data), is_closed=False, base=base, is_copy=True)


def keep_file(path: Path, now_at: Path, tmp_dir: Path, base: bytes) -> Displaced:
    """Keep a person's save that lost its name, as the file that it is; arguments as above.

    Nothing has to be written for it: where it cannot be moved it stays under a name by which the next start knows it.
    """
    mark = file.digest(base)
    with contextlib.suppress(OSError):
        now_at = _move(path, now_at, tmp_dir, mark, has_origin=True)
    with contextlib.suppress(OSError):
        descriptor = file.open_to_read(now_at)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        file.sync_folder(now_at.parent)
    return Displaced(path=path, now_at=now_at, digest=mark, size=len(base), is_closed=False, base=base)


def _move(path: Path, now_at: Path, tmp_dir: Path, mark: bytes, *, has_origin: bool) -> Path:
    """Move a file to `.tmp/`, its origin first; return where it is."""
    kept = _name(tmp_dir, mark)
    tmp_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        if has_origin:
            _write_origin(path, tmp_dir, kept)
        now_at.rename(kept)
    except OSError:
        origin_of(kept).unlink(missing_ok=True)
        raise
    return kept


def _name(tmp_dir: Path, mark: bytes) -> Path:
    return tmp_dir / f"{secrets.token_hex(8)}.{mark[:8].hex()}{_SUFFIX}"


def _store(path: Path, data: bytes, tmp_dir: Path, kept: Path) -> None:
    """Write a save to `kept`, and what it is for beside it; both are whole and on disk, or neither is there."""
    file.make_folder(tmp_dir)
    # A crash must not leave half a save under a name that the next start takes up.
    part = kept.with_suffix(_PART)
    try:
        _write_origin(path, tmp_dir, kept)
        _write_new(part, data)
        part.rename(kept)
        file.sync_folder(tmp_dir)
    except OSError:
        for left in (part, kept, origin_of(kept)):
            left.unlink(missing_ok=True)
        raise


def _write_origin(path: Path, tmp_dir: Path, kept: Path) -> None:
    _write_new(origin_of(kept), os.fsencode(os.path.relpath(path, tmp_dir.parent)))


def _write_new(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        file.write_all(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def origin_of(displaced: Path) -> Path:
    """Return where the name that a displaced file had is written down."""
    return displaced.with_suffix(_ORIGIN)


def read_origin(displaced: Path) -> str | None:
    """Return the name that a displaced file had, relative to the root; None when nobody could write to it."""
    try:
        return os.fsdecode(origin_of(displaced).read_bytes())
    except OSError:
        return None


def recover(
    root: Path, tmp_dir: Path, watch: Watch, *, skip: tuple[str, ...] = (".index", ".cache", ".tmp")
) -> tuple[LateSave, ...]:
    """Put right what a crash left between two names, below the whole root.

    A temporary file that holds the new or the old version is a left-over. One that holds anything else is a save that
    came in at the moment of the crash: it goes back to its name, or is returned when the name has moved on. Blocks.

    Args:
        root: The memory root.
        tmp_dir: Its `.tmp/`.
        watch: Gets the left-overs, in case an editor still has them open.
        skip: Folders of the root that are not looked at.
    """
    late: list[LateSave] = []
    sweep(tmp_dir)
    for temporary in _temporaries(root, skip):
        save = _recover_one(temporary, tmp_dir, watch)
        if save is not None:
            late.append(save)
    if tmp_dir.is_dir():
        for left in tmp_dir.glob(f"*{_PART}"):
            left.unlink(missing_ok=True)
        for left in sorted((*tmp_dir.glob(f"*{_SUFFIX}"), *tmp_dir.glob(f"*{_SAVE}"))):
            save = _sort_out(root, left)
            if save is not None:
                late.append(save)
        for left in tmp_dir.glob(f"*{_ORIGIN}"):
            if not any(left.with_suffix(each).exists() for each in (_SUFFIX, _SAVE)):
                left.unlink(missing_ok=True)  # a crash came between it and what it is of, or after that was gone
    return tuple(late)


def keep(save: LateSave, tmp_dir: Path) -> Path:
    """Keep a save as a file, and write down what for, until it is in the log; return where. Nothing if it is kept.

    Raises:
        OSError: It cannot be written.
        errors.WriteRefused: The folder cannot be made.
    """
    if save.kept_at is not None and save.kept_at.suffix == _SAVE:
        return save.kept_at
    kept = tmp_dir / f"{secrets.token_hex(8)}{_SAVE}"
    _store(save.path, save.data, tmp_dir, kept)
    if save.kept_at is not None:
        discard(save.kept_at)
    return kept


def purge(tmp_dir: Path, covers: Callable[[str], bool]) -> None:
    """Delete whatever `.tmp/` holds of some files, given by path relative to the root; halves of rows, whosever they are.

    Raises:
        OSError: Something of it cannot be deleted.
    """
    if not tmp_dir.is_dir():
        return
    for each in sorted(tmp_dir.iterdir()):
        if each.suffix == GONE:
            shutil.rmtree(each)
        elif each.suffix == ".torn":
            each.unlink(missing_ok=True)
        elif each.suffix == ".conflict":
            with each.open("rb") as file_:
                if covers(os.fsdecode(file_.readline().rstrip(b"\r\n"))):
                    each.unlink(missing_ok=True)
        elif each.suffix == _ORIGIN and covers(os.fsdecode(each.read_bytes())):
            for suffix in (_SUFFIX, _SAVE, _PART, _ORIGIN):
                each.with_suffix(suffix).unlink(missing_ok=True)
    file.sync_folder(tmp_dir)


def erase(path: Path, tmp_dir: Path) -> bool:
    """Delete a file or a folder with all that is in it; False where there is nothing. Of a link only the link goes.

    It loses its place in the memory at once, whatever it holds: a crash leaves no half of it there.

    Raises:
        OSError: It cannot be deleted.
    """
    if not os.path.lexists(path):
        return False
    if path.is_symlink() or not path.is_dir():
        path.unlink()
    else:
        file.make_folder(tmp_dir)
        gone = tmp_dir / f"{secrets.token_hex(8)}{GONE}"
        try:
            path.rename(gone)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            gone = path  # on a file system of its own
        file.sync_folder(path.parent)
        shutil.rmtree(gone)
    file.sync_folder(path.parent)
    return True


def sweep(tmp_dir: Path) -> None:
    """Delete what was being erased when a crash came."""
    if tmp_dir.is_dir():
        for each in tmp_dir.glob(f"*{GONE}"):
            shutil.rmtree(each, ignore_errors=True)


def discard(kept: Path) -> None:
    """Delete the file of a save that is in the log now."""
    kept.unlink(missing_ok=True)
    origin_of(kept).unlink(missing_ok=True)


def _temporaries(root: Path, skip: tuple[str, ...]) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        if Path(folder) == root:
            folders[:] = [name for name in folders if name not in skip]
        for name in names:
            if name.startswith(".") and file.TEMPORARY.match(name):
                yield Path(folder, name)


def _recover_one(temporary: Path, tmp_dir: Path, watch: Watch) -> LateSave | None:
    match = file.TEMPORARY.match(temporary.name)
    if match is None:
        return None
    path = _target(temporary, match["name"])
    if match["expected"] is None:
        # Not complete: the exchange had not begun.
        temporary.unlink(missing_ok=True)
        return None
    try:
        held = file.read(temporary)
    except OSError:
        return None
    mark = file.digest(held.data)[:8].hex()
    try:
        current = file.read(path)
    except OSError:
        current = None
    if current is not None and current.identity.inode == held.identity.inode:
        temporary.unlink(missing_ok=True)
    elif mark in (match["expected"], match["new"]):
        watch.add(displace(path, temporary, tmp_dir, held.data))
    elif current is None:
        if not swap.move_new(temporary, path):
            return _late(path, temporary)
    elif file.digest(current.data)[:8].hex() == match["new"] and swap.exchange(temporary, path):
        watch.add(displace(path, temporary, tmp_dir, current.data))
    else:
        return _late(path, temporary)
    return None


def _late(path: Path, kept_at: Path) -> LateSave | None:
    try:
        data = file.read(kept_at).data
    except OSError:
        return None
    return LateSave(path=path, data=data, base=None, kept_at=kept_at, is_copy=True) if data else None


def _target(temporary: Path, name: str) -> Path:
    """Return the file that a temporary one was for; long names are cut in it."""
    target = temporary.with_name(name)
    if target.exists():
        return target
    longer = [each for each in temporary.parent.glob("*.md") if each.name.startswith(name)]
    return longer[0] if len(longer) == 1 else target


def _sort_out(root: Path, left: Path) -> LateSave | None:
    """Take up what an editor saved into a displaced file while no daemon ran; delete the file otherwise."""
    mark = left.name.split(".")[1]
    origin = read_origin(left)
    save = _late(Path(), left)
    is_save = save is not None and file.digest(save.data)[:8].hex() != mark
    if is_save and origin is None:
        # Whose it is stands in its own frontmatter; a text that nobody else has is not thrown away.
        log.warning("save_of_unknown_origin", kept=str(left))
        return None
    if save is None or origin is None or not is_save:
        left.unlink(missing_ok=True)
        origin_of(left).unlink(missing_ok=True)
        return None
    return msgspec.structs.replace(save, path=root / origin)
