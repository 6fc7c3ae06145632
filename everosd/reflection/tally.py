"""What a run has done so far, and how it is said."""

from __future__ import annotations

import structlog

from everosd import errors, types
from everosd.reflection import finish, plan
from everosd.store import report

log = structlog.get_logger(__name__)

_MAX_REASONS = 3
_FEW_AWAY = 2
"""Clusters one after the other without an answer of the model's, after which it is not asked about any other."""


class Patience:
    """How long a run goes on asking a model that does not answer."""

    def __init__(self) -> None:
        """Begin with all of it."""
        self._n = 0
        self.away = ""
        """Why the model is not asked about anything more; empty: it is."""

    def answered(self) -> None:
        """Note that the model is there."""
        self._n = 0

    def without_answer(self, error: errors.LLMUnavailable) -> None:
        """Note that it did not answer."""
        self._n += 1
        if self._n >= _FEW_AWAY:
            self.away = str(error)


class Tally:
    """Counts of one run."""

    def __init__(self) -> None:
        """Start with nothing."""
        self.n_finished = 0
        """Begun by an earlier run."""
        self.is_cut_short = False
        self.unfinished: Exception | None = None
        """Why something that was begun could not be finished; the engine tries again."""
        self._clusters: set[tuple[types.Owner, str]] = set()
        self._n_fragments = 0
        self._skipped: dict[tuple[types.Owner, str], str] = {}
        self._n_failed = 0
        self.patience = Patience()

    def consolidated(self, one: report.Candidate, wanted: plan.Plan, done: finish.Finished) -> None:
        """Count a merge that is done."""
        self._clusters.add((one.owner, one.cluster_id))
        self._n_fragments += len(done.replaced) - (wanted.mode == "update")

    def skipped(self, one: report.Candidate, reason: str) -> None:
        """Note, and log, that a cluster was left for the next run."""
        self._skipped[one.owner, one.cluster_id] = reason
        log.warning("cluster_skipped", owner=one.owner.id, cluster_id=one.cluster_id, reason=reason)

    def left(self, owner: types.Owner, what: str, error: Exception) -> None:
        """Note, and log, that something is on disk by halves: the next run finishes it."""
        self.unfinished = self.unfinished or error
        log.warning("consolidation_left_unfinished", owner=owner.id, subject=what, reason=errors.describe(error))

    def failed(self, owner: types.Owner, what: str, error: Exception) -> None:
        """Note, and log, what nobody had thought of; the others go on."""
        self._n_failed += 1
        log.error("consolidation_failed", owner=owner.id, subject=what, reason=errors.describe(error), exc_info=error)

    @property
    def has_written(self) -> bool:
        """Whether anything is on disk that was not there before."""
        return bool(self._clusters or self.n_finished)

    def note(self) -> str:
        """Return it in a line."""
        parts = []
        if self.n_finished:
            parts.append(f"{_n(self.n_finished, 'consolidation')} finished that an earlier run had begun")
        if self._clusters:
            parts.append(f"{_n(len(self._clusters), 'cluster')} consolidated ({_n(self._n_fragments, 'fragment')})")
        if self._skipped:
            reasons = list(dict.fromkeys(self._skipped.values()))
            more = f"; and {len(reasons) - _MAX_REASONS} other reasons" if len(reasons) > _MAX_REASONS else ""
            parts.append(f"{len(self._skipped)} skipped: {'; '.join(reasons[:_MAX_REASONS])}{more}")
        if self._n_failed:
            parts.append(f"{self._n_failed} failed: see the log")
        if self.is_cut_short:
            parts.append("everosd is stopping: the next run does the rest")
        return ", ".join(parts) or "nothing to consolidate"


def _n(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
