"""The end of files that only machines write: appended to, and cut where a crash has torn it. Blocks: call it from a thread."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import time
from collections.abc import Callable
from pathlib import Path

from everosd import errors
from everosd.log import file

_LOCK_WAIT_S = 5.0
_LOCK_PAUSE_S = 0.005
_TAIL_BYTES = 1 << 16

_CLOSE = re.compile(rb"^ {0,3}<!--\s*/entry:[^\n]*?-->[ \t]*\r?$", re.MULTILINE | re.IGNORECASE)
_OPEN = re.compile(rb"^ {0,3}<!--\s*entry:", re.MULTILINE | re.IGNORECASE)
_TORN = re.compile(r"\A {0,3}<!--\s*entry:\s*([^\s<>]+)\s*-->[ \t]*\n(.*)", re.DOTALL | re.IGNORECASE)
_MARKER = b"<!-- entry:"


Grew = Callable[[file.Identity, file.Identity, int], None]
"""Gets the states of a file just before and just after a write, and by how many bytes it was meant to grow."""


def _tell_nobody(before: file.Identity, after: file.Identity, n_bytes: int) -> None:
    """Do nothing."""


def append(
    path: Path, data: bytes, *, step: file.Step = file.no_step, grew: Grew = _tell_nobody
) -> tuple[file.Identity, file.Identity] | None:
    """Add bytes at the end of a file that only machines write, and bring them to disk.

    A line that was left without an end gets one first. After a failure the file is as long as before.

    Args:
        path: An existing file.
        data: Whole rows.
        step: Called at `written` and `synced`.
        grew: Called as soon as the bytes can be read.

    Returns:
        The states of the file just before and afterwards; None when there is none, or the name stands for another file
        now: read again and repeat.

    Raises:
        errors.WriteRefused: No space, no permission, read-only, or another program holds a lock on it.
    """
    with file.refusals(path):
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            found = os.fstat(descriptor)
            if not file.is_ours_to_write(path, found):
                return None
            _lock(path, descriptor)
            before = file.identity_of(os.fstat(descriptor))
            size = before.size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                data = b"\n" + data
            try:
                file.write_all(descriptor, data)
                grew(before, file.identity_of(os.fstat(descriptor)), len(data))
                step("written")
                os.fsync(descriptor)
            except OSError:
                os.ftruncate(descriptor, size)
                raise
            step("synced")
            written = file.identity_of(os.fstat(descriptor))
        finally:
            os.close(descriptor)
        now = file.identify(path)
        if now is None or now.inode != written.inode or now.device != written.device:
            return None
        return before, written


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
            time.sleep(_LOCK_PAUSE_S)
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
    with file.refusals(path):
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
            torn = file.read_all(descriptor, size)[start:]
            file.make_folder(tmp_dir)
            file.write_temporary(
                tmp_dir / f"{path.name[: file.NAME_BYTES]}.{secrets.token_hex(4)}.torn", torn, None, path
            )
            os.ftruncate(descriptor, start)
            os.fsync(descriptor)
            return torn
        finally:
            os.close(descriptor)


def torn_rows(tmp_dir: Path) -> frozenset[tuple[str, str]]:
    """Return id and text of the rows that were cut off half-written and are kept in `tmp_dir`."""
    found: set[tuple[str, str]] = set()
    for torn in tmp_dir.glob("*.torn"):
        try:
            text = file.read(torn).data.decode("utf-8", "replace").replace("\r\n", "\n")
        except OSError:
            continue
        found.update((match[1], match[2].strip()) for match in _TORN.finditer(text))
    return frozenset(found)


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
