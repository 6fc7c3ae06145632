"""Whether an index on disk is whole, and what becomes of one that is not.

Damage has a cure, a rebuild from the ledger: such an index is set aside. A disk that refuses has none here: it is
reported, and nothing is renamed or removed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from everosd import errors

NAME = "text"
"""The index that is spoken of in errors."""

KEPT_ASIDE = 2
"""Damaged indexes that are kept for a look."""

_SCHEMA_FILE = "schema.json"
_FOOTER_MAGIC = 1337  # last four bytes of Tantivy's files (tantivy 0.27, directory/footer.rs)
_FOOTER_ENDS = 8  # length of the footer's JSON and the magic, four bytes each
_CHUNK_BYTES = 1 << 20
_SUFFIXES = ("term", "idx", "pos", "store", "fast", "fieldnorm")
_SEGMENT_FILE = re.compile(r"[0-9a-f]{32}\.(" + "|".join(_SUFFIXES) + r"|temp|\d+\.del)|\.tmp\w+")
# How Tantivy's errors name the system's: as `… (os error 13)` or as `IoError { … Os { code: 13, … } … }`.
_REFUSED = re.compile(r"\(os error \d+\)|\bIoError\b|\bOs \{ code: \d+|\bIO error\b|LockFailure")
# A file of the index was deleted under it: damage, not a disk that refuses.
_GONE = re.compile(r"\(os error 2\)|\bOs \{ code: 2,|FileDoesNotExist")


def set_aside(folder: Path) -> Path:
    """Rename a damaged index so that it can be looked at; only the last `KEPT_ASIDE` are kept."""
    names = [path.name.rpartition("-")[2] for path in folder.parent.glob(f"{folder.name}.damaged-*")]
    numbers = sorted(int(name) for name in names if name.isdigit())
    target = folder.with_name(f"{folder.name}.damaged-{numbers[-1] + 1 if numbers else 1}")
    with translated(), contextlib.suppress(FileNotFoundError):  # `.index/` was deleted: nothing is left to keep
        folder.rename(target)
    for number in numbers[: max(0, len(numbers) + 1 - KEPT_ASIDE)]:
        shutil.rmtree(folder.with_name(f"{folder.name}.damaged-{number}"), ignore_errors=True)
    return target


def check(folder: Path, known: int, parts: Iterable[Path]) -> bool:
    """Look at the version and compare every file that the parts name with its checksum.

    Tantivy would fail, or answer nonsense, much later. 100 MB take about 0.1 s.

    Returns:
        Whether anything was ever committed there; False: it has to be filled.

    Raises:
        DerivedIndexError: something is missing, damaged or of another version.
    """
    is_begun = _check_version(folder, known)
    n_segments = sum(_check_files(part, is_begun=is_begun) for part in parts)
    if n_segments and not is_begun:
        raise errors.DerivedIndexError(NAME, f"{_SCHEMA_FILE} is missing")
    return is_begun


def _check_version(folder: Path, known: int) -> bool:
    try:
        found = json.loads((folder / _SCHEMA_FILE).read_bytes())
        version = found["schema"]
    except FileNotFoundError:
        return False
    except (ValueError, TypeError, KeyError) as error:
        raise errors.DerivedIndexError(NAME, f"{_SCHEMA_FILE} is damaged") from error
    if version != known:
        raise errors.DerivedIndexError(NAME, f"it has schema {version}, this everosd writes {known}")
    return True


def write_version(folder: Path, known: int) -> None:
    """Mark an index as begun, before its first commit: one without the mark holds nothing."""
    path = folder / _SCHEMA_FILE
    if not path.exists():
        path.write_text(json.dumps({"schema": known}))
        path.chmod(0o600)


def _check_files(folder: Path, *, is_begun: bool) -> int:
    """Return the number of segments of a part whose files are whole."""
    try:
        n_segments, names = _named(folder)
    except FileNotFoundError:
        if is_begun or (folder.is_dir() and any(folder.iterdir())):
            raise errors.DerivedIndexError(NAME, f"{folder.name}/meta.json is missing") from None
        return 0
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise errors.DerivedIndexError(NAME, f"{folder.name}/meta.json is damaged") from error
    for name in names:
        if not _is_whole(folder / name):
            raise errors.DerivedIndexError(NAME, f"{folder.name}/{name} is missing or damaged")
    return n_segments


def _named(folder: Path) -> tuple[int, list[str]]:
    """Return how many segments `meta.json` names, and their files."""
    meta = json.loads((folder / "meta.json").read_bytes())
    segments = [(segment["segment_id"].replace("-", ""), segment["deletes"]) for segment in meta["segments"]]
    names = [f"{stem}.{suffix}" for stem, _ in segments for suffix in _SUFFIXES]
    names += [f"{stem}.{deletes['opstamp']}.del" for stem, deletes in segments if deletes]
    return len(segments), names


def sweep(folder: Path) -> None:
    """Remove what a commit that was cut off has left in a part: files that `meta.json` does not name.

    The same commit would write files of the same names again, and Tantivy refuses to, each time.
    """
    if not folder.is_dir():
        return
    named = set(_named(folder)[1]) if (folder / "meta.json").exists() else set()
    for path in folder.iterdir():
        if _SEGMENT_FILE.fullmatch(path.name) and path.name not in named:
            with contextlib.suppress(OSError):  # of a disk that refuses nothing is written over either
                path.unlink()


def _is_whole(path: Path) -> bool:
    """Compare a file with the checksum in its footer, a chunk at a time: an index is larger than what we may hold."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _FOOTER_ENDS))
            length, magic = struct.unpack("<II", file.read(_FOOTER_ENDS))
            n_body = size - _FOOTER_ENDS - length
            if magic != _FOOTER_MAGIC or n_body < 0:
                return False
            file.seek(n_body)
            expected = json.loads(file.read(length))["crc"]
            file.seek(0)
            found = 0
            while n_body > 0 and (chunk := file.read(min(_CHUNK_BYTES, n_body))):
                found, n_body = zlib.crc32(chunk, found), n_body - len(chunk)
    except FileNotFoundError:
        return False
    except (struct.error, ValueError, KeyError, TypeError):
        return False
    return bool(found == expected)


@contextlib.contextmanager
def translated(after: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Turn what Tantivy and the disk raise into our errors; a panic in Rust is no Exception and would end the daemon.

    `after` is called first where there was a failure.
    """
    try:
        yield
    except errors.EverosdError:
        raise
    except BaseException as error:
        is_panic = type(error).__name__ == "PanicException"
        if not is_panic and not isinstance(error, Exception):
            raise
        after()
        reason = str(error)
        is_refused = isinstance(error, OSError) or _REFUSED.search(reason) is not None
        is_gone = isinstance(error, FileNotFoundError) or _GONE.search(reason) is not None
        if is_refused and not is_gone:
            raise errors.IndexUnavailable(NAME, reason) from error
        raise errors.DerivedIndexError(NAME, reason) from error
