"""Rows that were appended a moment ago: until the ledger has read them, nobody else knows that they were in the file."""

from __future__ import annotations

import collections
from collections.abc import Callable

from everosd import types
from everosd.log import heal

KEEP_US = 60_000_000
"""Much longer than the ledger takes to read what was appended, also while it reads a backlog."""

_MAX_BYTES = 16 << 20


class Recent:
    """The rows of one writer, each with its file. Lives on the event loop."""

    def __init__(self) -> None:
        """Start with none."""
        self._rows: collections.deque[tuple[types.RelPath, heal.Row]] = collections.deque()
        self._n_bytes = 0
        self._refused: set[tuple[types.RelPath, str]] = set()

    def refuse(self, path: types.RelPath, entry_id: str) -> None:
        """Note a row that was taken back because it could not be written: whoever read it meanwhile is mistaken."""
        self._refused.add((path, entry_id))

    def is_refused(self, path: types.RelPath, entry_id: str) -> bool:
        """Tell whether a row was taken back, and not written since."""
        return (path, entry_id) in self._refused

    def add(self, path: types.RelPath, row: heal.Row) -> None:
        """Remember a row, and forget those that are old by its time."""
        self._refused.discard((path, row.id))
        self._rows.append((path, row))
        self._n_bytes += len(row.text)
        while self._n_bytes > _MAX_BYTES or self._rows[0][1].at_us < row.at_us - KEEP_US:
            _, oldest = self._rows.popleft()
            self._n_bytes -= len(oldest.text)

    def forget(self, is_gone: Callable[[types.RelPath, str], bool]) -> None:
        """Let go of the rows (file and id) that were taken out for good."""
        self._rows = collections.deque((path, row) for path, row in self._rows if not is_gone(path, row.id))
        self._n_bytes = sum(len(row.text) for _, row in self._rows)
        self._refused = {(path, entry_id) for path, entry_id in self._refused if not is_gone(path, entry_id)}

    def of(self, path: types.RelPath) -> list[heal.Row]:
        """Return the rows of one file, oldest first."""
        return [row for at, row in self._rows if at == path]
