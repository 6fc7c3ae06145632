"""Logs of machines that have grown: only what was appended is read, where it is certain that nothing else has changed.

A log is read whole once; from then on what the daemon appended itself is read alone (`log.growth` says from which state of
the file to which). Every `PROOF_S` the bytes before it are compared as well. Anything else (a hand edit, another
program's rows, something odd in them, a restart) means that the file is read whole again.
"""

from __future__ import annotations

import errno
import os
import pathlib
import time
import zoneinfo
from collections.abc import Callable

import msgspec

from everosd import types
from everosd.cascade import reading
from everosd.cascade import tail as tails
from everosd.log import file, parse
from everosd.store import state
from everosd.watch import scan

PROOF_S = 10.0
"""How long the bytes before an append count as known without being compared once more."""

_ATTEMPTS = 5
_PAUSE_S = 0.002
"""An append is in the file for a moment before its writer can have said so."""

Reaches = Callable[[types.RelPath, file.Identity, file.Identity], bool]


class Grown(msgspec.Struct, frozen=True, kw_only=True):
    """What was appended to a file."""

    found: state.FileState
    """Of the whole file, but with the new entries only."""
    base: tails.Tail
    tail: tails.Tail
    is_compared: bool
    """The bytes before it were compared."""


class Same(msgspec.Struct, frozen=True, kw_only=True):
    """A file about which nothing new is to be said: its last append has been read already."""


def read(
    root: pathlib.Path,
    path: types.RelPath,
    timezone: zoneinfo.ZoneInfo,
    tail: tails.Tail,
    reaches: Reaches,
    now_s: float,
) -> Grown | Same | None:
    """Read what was appended to a file since `tail`; None: it has to be read whole. Blocking."""
    is_due = now_s - tail.compared_s > PROOF_S
    try:
        seen = _appended(root, path, tail, reaches, 0 if is_due else tail.identity.size)
    except OSError:
        return None
    if seen is None:
        return None
    at, data = seen
    if at == tail.identity:
        return None if is_due else Same()
    if is_due:
        size = tail.identity.size
        if file.digest(data[:size]) != tail.digest:
            return None
        data = data[size:]
        tail = msgspec.structs.replace(tail, compared_s=now_s)
    return _grown(path, timezone, tail, at, data, is_compared=is_due)


def _appended(
    root: pathlib.Path, path: types.RelPath, tail: tails.Tail, reaches: Reaches, start: int
) -> tuple[file.Identity, bytes] | None:
    """Return the state of a file and its bytes from `start` on, if it came to it by our appends alone.

    Raises:
        OSError: It cannot be read.
    """
    if not isinstance(scan.look(root, path), scan.DiskFile):
        return None
    descriptor = file.open_to_read(root / path)
    try:
        at = _state(descriptor, path, tail, reaches)
        if at is None or at == tail.identity:
            return None if at is None else (at, b"")
        data = _read_range(descriptor, start, at.size)
        after = file.identity_of(os.fstat(descriptor))
    finally:
        os.close(descriptor)
    return (at, data) if reaches(path, at, after) and _names(root / path, at) else None


def _state(descriptor: int, path: types.RelPath, tail: tails.Tail, reaches: Reaches) -> file.Identity | None:
    """Return the state of the file if it came to it from the known one by our appends alone."""
    for attempt in range(_ATTEMPTS):
        at = file.identity_of(os.fstat(descriptor))
        if reaches(path, tail.identity, at):
            return at
        is_longer = at.inode == tail.identity.inode and at.size > tail.identity.size
        if not is_longer or not reaches(path, tail.identity, tail.identity) or attempt == _ATTEMPTS - 1:
            return None
        time.sleep(_PAUSE_S)
    return None


def _read_range(descriptor: int, start: int, end: int) -> bytes:
    parts: list[bytes] = []
    while start < end:
        part = os.pread(descriptor, end - start, start)
        if not part:
            raise OSError(errno.EIO, "it became shorter while it was read")
        parts.append(part)
        start += len(part)
    return b"".join(parts)


def _names(path: pathlib.Path, at: file.Identity) -> bool:
    """Return whether the name still stands for the file that was read."""
    now = file.identify(path)
    return now is not None and (now.device, now.inode) == (at.device, at.inode)


def _grown(
    path: types.RelPath,
    timezone: zoneinfo.ZoneInfo,
    tail: tails.Tail,
    at: file.Identity,
    data: bytes,
    *,
    is_compared: bool,
) -> Grown | None:
    try:
        data.decode()
    except UnicodeDecodeError:
        return None
    parsed = parse.parse(path, data, tail.place)
    disk = scan.DiskFile(path=path, inode=at.inode, size=at.size, mtime_ns=at.mtime_ns)
    found = reading.to_state(parsed, disk, timezone)
    if not tails.is_plain(parsed, found) or parsed.text[: parsed.spans[0].start].strip():
        return None
    hasher = tail.hash.copy()
    hasher.update(data)
    grown = msgspec.structs.replace(
        tail,
        identity=at,
        hash=hasher,
        digest=hasher.digest(),
        n_lines=tail.n_lines + parsed.text.count("\n"),
        n_entries=tail.n_entries + len(parsed.entries),
    )
    rows = tuple(msgspec.structs.replace(each, line=each.line + tail.n_lines) for each in found.entries)
    found = msgspec.structs.replace(
        found, digest=grown.digest, stamp=tail.stamp, entry_count=tail.entry_count, entries=rows
    )
    return Grown(found=found, base=tail, tail=grown, is_compared=is_compared)
