"""What is not as it should be on disk, per path, for the status: kept in memory, the ledger holds what must last."""

from __future__ import annotations

import pathlib
import sqlite3
from collections.abc import Collection, Iterable, Sequence
from typing import get_args

import msgspec

from everosd.cascade import status
from everosd.log import writer
from everosd.store import report, standing, state
from everosd.watch import scan

ORDER = {kind: rank for rank, kind in enumerate(get_args(status.ProblemKind))}

_WARNINGS = msgspec.json.Decoder(tuple[state.Warning, ...])


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """What is odd about ids across files, as `store.standing` finds it."""

    duplicates: Sequence[tuple[str, int, str, str]] = ()
    """(path, line, entry id, path of the entry that counts)."""
    unresolved: Sequence[tuple[str, int, str, str]] = ()
    """(path, line, entry id, successor that is not there)."""
    unrestored: Sequence[tuple[str, int, str]] = ()
    """(path, line, report id) of rollbacks that are not done in all files."""


class Problems:
    """The list behind `status().problems`."""

    def __init__(self) -> None:
        """Start with a clean disk."""
        self._files: dict[str, tuple[status.FileProblem, ...]] = {}
        self._unreadable: dict[str, status.FileProblem] = {}
        self._scanned: tuple[status.FileProblem, ...] = ()
        self._conflicts: set[str] = set()
        self._strays: set[str] = set()
        self._healed: dict[str, status.FileProblem] = {}
        self._ledger_error = ""
        self.standing = Standing()

    def reset(self, files: dict[str, tuple[status.FileProblem, ...]], standing: Standing) -> None:
        """Take what the ledger remembers."""
        self._files, self.standing = files, standing

    def read(self, found: state.FileState) -> None:
        """Replace what is said of a file by what its latest reading found."""
        self._unreadable.pop(found.path, None)
        said = of_file(found.path, found.error, found.error_line, found.warnings)
        if said:
            self._files[found.path] = said
        else:
            self._files.pop(found.path, None)

    def says(self, path: str) -> bool:
        """Return whether the latest reading of a file found anything wrong."""
        return path in self._files

    def unreadable(self, path: str, reason: str) -> None:
        """Note a file that cannot be read; the indexes keep what they have of it."""
        self._unreadable[path] = status.FileProblem(path=path, reason=f"cannot be read: {reason}", kind="unreadable")

    def readable(self, path: str) -> None:
        """Note that a file can be read again."""
        self._unreadable.pop(path, None)

    def forget(self, path: str) -> None:
        """Drop what is said of a file that is gone."""
        self._files.pop(path, None)
        self._unreadable.pop(path, None)
        self._healed.pop(path, None)

    def healed(self, path: str, what: str) -> None:
        """Note that a stale save was merged."""
        self._healed[path] = status.FileProblem(path=path, reason=what, kind="healed")

    def ledger_failed(self, reason: str) -> None:
        """Note why the ledger cannot be written; empty: it can."""
        self._ledger_error = reason

    @property
    def ledger_error(self) -> str:
        """Why the ledger cannot be written; empty: it can."""
        return self._ledger_error

    def scanned(self, seen: scan.Scan) -> None:
        """Take what only a walk of the whole root can see."""
        said = [status.FileProblem(path=path, reason=reason, kind="unreadable") for path, reason in seen.unreadable]
        said += [status.FileProblem(path=path, reason=reason, kind="link") for path, reason in seen.links]
        self._scanned = tuple(said)
        self._conflicts, self._strays = set(seen.conflicts), set(seen.strays)

    def look_at(self, root: pathlib.Path, paths: Collection[str]) -> None:
        """Bring conflict copies and strays in step for a few paths. Blocking."""
        for path in paths:
            self._conflicts.discard(path)
            self._strays.discard(path)
            if (root / path).is_file():
                kind = scan.sort(path)
                if kind in ("conflict", "stray"):
                    (self._conflicts if kind == "conflict" else self._strays).add(path)

    def n_errors(self) -> int:
        """Return how many files do not parse."""
        return sum(any(problem.kind == "error" for problem in said) for said in self._files.values())

    def listing(self) -> tuple[status.FileProblem, ...]:
        """Return all of it, the worst first."""
        said: list[status.FileProblem] = [problem for problems in self._files.values() for problem in problems]
        said += [*self._unreadable.values(), *self._scanned, *self._healed.values()]
        said += [
            status.FileProblem(
                path=path, line=line, reason=f"{entry_id} also stands in {winner}, which counts", kind="duplicate"
            )
            for path, line, entry_id, winner in self.standing.duplicates
        ]
        said += [
            status.FileProblem(
                path=path,
                line=line,
                reason=f"{entry_id} is replaced by {successor}, which is not there: it is live",
                kind="successor",
            )
            for path, line, entry_id, successor in self.standing.unresolved
        ]
        said += [
            status.FileProblem(
                path=path,
                line=line,
                reason=f"{report_id} is rolled back, and not all files say so yet: the next run of reflect_episodes, or"
                f" a start, finishes it; so does `everosd rollback {report_id}`",
            )
            for path, line, report_id in self.standing.unrestored
        ]
        said += [
            status.FileProblem(
                path=path, reason="a copy that a sync program made; merge it by hand and delete it", kind="conflict"
            )
            for path in self._conflicts
        ]
        said += [
            status.FileProblem(path=path, reason="not in a place that is read as memory", kind="stray")
            for path in self._strays
        ]
        return tuple(sorted(said, key=lambda problem: (ORDER[problem.kind], problem.path, problem.line or 0)))


def of_file(
    path: str, error: str | None, error_line: int | None, warnings: Iterable[state.Warning]
) -> tuple[status.FileProblem, ...]:
    """Return what a reading of one file found wrong."""
    said = [status.FileProblem(path=path, reason=warning.reason, line=warning.line) for warning in warnings]
    if error is not None:
        said.insert(0, status.FileProblem(path=path, reason=error, line=error_line, kind="error"))
    return tuple(said)


def of_saves(waiting: Iterable[writer.Unmerged]) -> tuple[status.FileProblem, ...]:
    """Return what is to be said of people's saves that are not in the log yet."""
    return tuple(
        status.FileProblem(
            path=each.kept_at or each.path,
            reason=f"a save of {each.path} that is not in it yet: {each.reason}; it is tried again",
            kind="conflict",
        )
        for each in waiting
    )


def load(connection: sqlite3.Connection) -> tuple[dict[str, tuple[status.FileProblem, ...]], Standing]:
    """Return what the ledger remembers: problems per file, and what is odd about ids."""
    rows = connection.execute(
        "SELECT path, error, error_line, warnings FROM files WHERE error IS NOT NULL OR warnings <> x'5b5d'"
    )
    files = {path: of_file(path, error, line, _WARNINGS.decode(warnings)) for path, error, line, warnings in rows}
    return files, load_standing(connection)


def load_standing(connection: sqlite3.Connection) -> Standing:
    """Return what the ledger holds of duplicate ids and of successors that are not there."""
    return Standing(
        duplicates=standing.duplicates(connection),
        unresolved=standing.unresolved(connection),
        unrestored=report.unrestored_rows(connection),
    )
