"""Setbacks: entries whose text could not be embedded, each with its reason and the moment at which it is tried again."""

from __future__ import annotations

import msgspec
import structlog

from everosd import clock, errors, types
from everosd.cascade import status, turn

log = structlog.get_logger(__name__)

RETRY_S = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0)
"""Waits between attempts at one text while the provider answers to others."""

REFUSED_RETRY_S = 3600.0
"""A text that the model refuses twice is asked for again after this long: the refusal may have been a whim."""


class Setback(msgspec.Struct, frozen=True, kw_only=True):
    """Why an entry has no vectors."""

    digest: bytes
    """Of the text that failed: another text is another matter."""
    path: types.RelPath
    line: int
    reason: str
    n: int
    """Attempts that failed."""
    due_s: float
    is_refused: bool
    """The model will not take it, as far as that can be told; else it failed, and may be taken next time."""


class Setbacks:
    """The entries that are set apart, so that the others go on."""

    def __init__(self, time: clock.Clock) -> None:
        """Begin with none."""
        self._clock = time
        self._of: dict[types.EntryKey, Setback] = {}
        self.n_refused = 0
        """Entries whose text the model refuses."""

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._of)

    def __contains__(self, key: object) -> bool:
        """Tell whether an entry failed before: it goes alone then."""
        return key in self._of

    def clear(self) -> None:
        """Forget all of them: another model may take what this one did not."""
        self._of.clear()
        self.n_refused = 0

    def forget(self, key: types.EntryKey) -> None:
        """Forget one: it has its vectors, or another text."""
        before = self._of.pop(key, None)
        self.n_refused -= before is not None and before.is_refused

    def has_to_wait(self, key: types.EntryKey, digest: bytes) -> bool:
        """Return whether it is too early to try this text of this entry again."""
        found = self._of.get(key)
        if found is not None and found.digest != digest:
            self.forget(key)
            return False
        return found is not None and found.due_s > self._clock.monotonic_s()

    def refuses(self, key: types.EntryKey) -> bool:
        """Return whether the text of an entry was refused more than once."""
        found = self._of.get(key)
        return found is not None and found.is_refused and found.n > 1

    def add(self, entry: turn.Entry, error: errors.LLMError) -> None:
        """Set an entry apart for a while."""
        before = self._of.get(entry.key)
        n = 1 if before is None else before.n + 1
        is_refused = isinstance(error, errors.LLMRejected)
        # Refused once it may have met a provider that was out of its mind for a moment: it is asked for again at once.
        wait_s = REFUSED_RETRY_S if is_refused and n > 1 else RETRY_S[min(n, len(RETRY_S)) - 1]
        if n == 1:
            log.warning("entry_not_embedded", path=entry.path, line=entry.line, reason=str(error), retry_s=wait_s)
        self.forget(entry.key)
        self._of[entry.key] = Setback(
            digest=entry.digest,
            path=entry.path,
            line=entry.line,
            reason=str(error),
            n=n,
            due_s=self._clock.monotonic_s() + wait_s,
            is_refused=is_refused,
        )
        self.n_refused += is_refused

    def next_due_s(self) -> float | None:
        """Return seconds until the first of them is tried again; None where there is none."""
        now_s = self._clock.monotonic_s()
        return min((max(0.01, one.due_s - now_s) for one in self._of.values()), default=None)

    def problems(self) -> list[status.FileProblem]:
        """Return them as what is not as it should be with files."""
        return [
            status.FileProblem(path=one.path, line=one.line, reason=f"no vector of it: {one.reason}", kind="unembedded")
            for one in sorted(self._of.values(), key=lambda one: (one.path, one.line))
        ]
