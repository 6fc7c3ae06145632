"""What has to be looked at, and in which order: saves first, then the backlog of a start-up or rebuild."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from everosd import types
from everosd.watch import scan

CHUNK_FILES = 64
"""Files per transaction. A save that arrives meanwhile waits for at most this many."""

CHUNK_BYTES = 4_000_000
"""Bytes per transaction, so that many large files do not make one long one."""

LOGS_S = 0.1
"""How long what everosd itself writes is collected before it is read: twenty conversations then cost little more than one."""

HELD_S, LOOK_S = 1.0, 0.02
"""How long that waits at most while somebody is being answered, and how often it is looked whether that is still so."""

RETRY_S = (0.2, 1.0, 5.0, 15.0, 60.0)
"""Waits before a file that could not be read is tried again."""

PERMANENT_ATTEMPTS = 5
"""A file that failed this often counts as failed for good (and is still tried once a minute)."""


class Dirty:
    """The queue of paths. Pure bookkeeping, time is an argument."""

    def __init__(self) -> None:
        """Start with nothing to do."""
        self._urgent: dict[types.RelPath, None] = {}
        self._backlog: dict[types.RelPath, None] = {}
        self._logs: dict[types.RelPath, None] = {}
        self._logs_due_s = float("-inf")
        self._logs_held_s = float("inf")
        """Monotonic: they are read then, whoever is being answered."""
        self._inflight: tuple[types.RelPath, ...] = ()
        self._retries: dict[types.RelPath, tuple[int, float]] = {}
        self._total = 0

    def __len__(self) -> int:
        """Return how many paths are queued or in work."""
        n_urgent = sum(path not in self._backlog for path in self._urgent)
        return n_urgent + len(self._backlog) + len(self._logs) + len(self._inflight)

    def mark(self, paths: Iterable[types.RelPath]) -> None:
        """Queue paths before any backlog."""
        for path in paths:
            self._urgent[path] = None
            self._logs.pop(path, None)

    def mark_logs(self, paths: Iterable[types.RelPath], now_s: float, *, is_busy: bool = False) -> None:
        """Queue what everosd itself wrote and nobody waits for: at once, but not again within `LOGS_S`.

        While the daemon `is_busy` with answers that has time until it is not, but for no longer than `HELD_S`.
        """
        if not self._logs:
            self._logs_held_s = now_s + HELD_S
        self._logs.update(dict.fromkeys(paths))
        self._mark_logs_due(now_s, is_busy=is_busy)

    def _mark_logs_due(self, now_s: float, *, is_busy: bool) -> None:
        if self._logs and self._logs_due_s <= now_s and (not is_busy or self._logs_held_s <= now_s):
            self.mark(tuple(self._logs))
            self._logs_due_s = now_s + LOGS_S

    def add_backlog(self, paths: Iterable[types.RelPath]) -> None:
        """Queue paths for when nothing else is to be done."""
        self._backlog.update(dict.fromkeys(paths))
        self._total = len(self._backlog)

    def take(self, sizes: Mapping[types.RelPath, scan.DiskFile]) -> tuple[types.RelPath, ...]:
        """Return the next chunk, which counts as in work until `done` or `put_back`."""
        chunk: list[types.RelPath] = []
        n_bytes = 0
        for path in self._urgent or self._backlog:
            seen = sizes.get(path)
            n_bytes += 0 if seen is None else seen.size
            if chunk and (len(chunk) >= CHUNK_FILES or n_bytes > CHUNK_BYTES):
                break
            chunk.append(path)
        for path in chunk:
            self._urgent.pop(path, None)
            self._backlog.pop(path, None)
        self._inflight = tuple(chunk)
        return self._inflight

    @property
    def in_work(self) -> tuple[types.RelPath, ...]:
        """The chunk in work: as long as it is, the same tuple."""
        return self._inflight

    def waits_below(self, folder: str) -> bool:
        """Tell whether any file of a folder is queued or in work."""
        queued = (self._urgent, self._backlog, self._logs, self._inflight)
        return any(path.startswith(f"{folder}/") for paths in queued for path in paths)

    def done(self) -> None:
        """Note that the chunk in work is finished."""
        self._inflight = ()

    def put_back(self) -> None:
        """Queue the chunk in work again, first in the backlog."""
        self._backlog = dict.fromkeys(self._inflight) | self._backlog
        self._inflight = ()

    def failed(self, path: types.RelPath, now_s: float) -> int:
        """Note that a file could not be read; return the number of attempts so far. It is tried again by itself."""
        attempts = self._retries.get(path, (0, 0.0))[0] + 1
        self._retries[path] = (attempts, now_s + RETRY_S[min(attempts, len(RETRY_S)) - 1])
        return attempts

    def succeeded(self, path: types.RelPath) -> None:
        """Note that a file could be read, or is known to be gone."""
        self._retries.pop(path, None)

    def mark_due(self, now_s: float, *, is_busy: bool = False) -> None:
        """Queue the files whose time has come."""
        self._mark_logs_due(now_s, is_busy=is_busy)
        self.mark([path for path, (_, due_s) in self._retries.items() if due_s <= now_s])

    def next_due_s(self, now_s: float) -> float | None:
        """Return in how many seconds the time of the next file comes; None when there is none."""
        dues = [due_s for _, due_s in self._retries.values()]
        if self._logs:
            dues.append(self._logs_due_s if self._logs_due_s > now_s else now_s + LOOK_S)
        return min((max(0.0, due_s - now_s) for due_s in dues), default=None)

    def progress(self) -> tuple[int, int]:
        """Return (done, total) paths of the comparison in progress."""
        return max(0, self._total - len(self._backlog)), self._total

    def n_new(self, known: Mapping[types.RelPath, object]) -> int:
        """Return how many paths that are queued or failed were never read."""
        queued = self._urgent.keys() | self._backlog.keys() | self._logs.keys() | self._retries.keys()
        return sum(path not in known for path in queued)

    def n_failed(self) -> tuple[int, int]:
        """Return how many files wait for another attempt, and how many have failed too often."""
        attempts = [n for n, _ in self._retries.values()]
        return sum(n < PERMANENT_ATTEMPTS for n in attempts), sum(n >= PERMANENT_ATTEMPTS for n in attempts)
