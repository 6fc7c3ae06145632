"""What a run has done so far, and how it is said."""

from __future__ import annotations

import errno
from collections.abc import Iterable

import msgspec
import structlog

from everosd import errors, types
from everosd.reflection import finish, plan
from everosd.store import report

log = structlog.get_logger(__name__)

_MAX_REASONS = 3
_OF_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})
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


class Skipped(msgspec.Struct, frozen=True, kw_only=True):
    """Why a cluster was left for the next run."""

    reason: str
    topic: str = ""
    """Subject of the newest of its Episodes."""
    check: str = ""
    """What was found wrong with the narrative that was refused; empty: there was none."""
    is_away: bool = False
    """Whether what merges is not set up, or did not answer."""


class Tally:
    """Counts of one run."""

    def __init__(self) -> None:
        """Start with nothing."""
        self.n_finished = 0
        """Begun by an earlier run."""
        self.is_cut_short = False
        self.unfinished: Exception | None = None
        """Why something that was begun could not be finished, or the disk took nothing; the engine tries again."""
        self._clusters: set[tuple[types.Owner, str]] = set()
        self._n_fragments = 0
        self._skipped: dict[tuple[types.Owner, str], Skipped] = {}
        self._undone: set[tuple[types.Owner, str]] = set()
        self._failed: list[str] = []
        """Why, for each cluster that failed."""
        self.patience = Patience()

    def consolidated(self, one: report.Candidate, wanted: plan.Plan, done: finish.Finished) -> None:
        """Count a merge that is done."""
        self._clusters.add((one.owner, one.cluster_id))
        self._n_fragments += len(done.replaced) - (wanted.mode == "update")

    def skipped(self, one: report.Candidate, why: Skipped) -> None:
        """Note, and log, that a cluster was left for the next run."""
        self._skipped[one.owner, one.cluster_id] = why
        log.warning("cluster_skipped", owner=one.owner.id, cluster_id=one.cluster_id, reason=why.reason)

    def undone(self, one: report.Candidate) -> None:
        """Note that a cluster is just what a rollback has brought back."""
        self._undone.add((one.owner, one.cluster_id))

    def left(self, owner: types.Owner, what: str, error: Exception) -> None:
        """Note, and log, that something is on disk by halves: the next run finishes it."""
        self.unfinished = self.unfinished or error
        log.warning("consolidation_left_unfinished", owner=owner.id, subject=what, reason=errors.describe(error))

    def failed(self, owner: types.Owner, what: str, error: Exception) -> None:
        """Note, and log, what nobody had thought of; the others go on. A fault of the disk fails the run: it is tried again."""
        said = errors.describe(error)
        if is_of_disk(error):
            self._failed.append(said)
            self.unfinished = self.unfinished or error
            log.warning("consolidation_stopped", owner=owner.id, subject=what, reason=said)
        else:
            self._failed.append(f"{said} (see the log)")
            log.error("consolidation_failed", owner=owner.id, subject=what, reason=said, exc_info=error)

    @property
    def has_written(self) -> bool:
        """Whether anything is on disk that was not there before."""
        return bool(self._clusters or self.n_finished)

    def detail(self) -> dict[str, object]:
        """Return what was left out, ready to be written as JSON."""
        skipped = [
            {
                "owner_id": owner.id,
                "owner_type": owner.type,
                "app_id": owner.app,
                "project_id": owner.project,
                "cluster_id": cluster_id,
                "topic": why.topic,
                "reason": why.reason,
                "check": why.check or None,
                "is_away": why.is_away,
            }
            for (owner, cluster_id), why in self._skipped.items()
        ]
        return {"skipped": skipped, "undone": len(self._undone)}

    def note(self) -> str:
        """Return it in a line."""
        parts = []
        if self.n_finished:
            parts.append(f"{_n(self.n_finished, 'consolidation')} finished that an earlier run had begun")
        if self._clusters:
            parts.append(f"{_n(len(self._clusters), 'cluster')} consolidated ({_n(self._n_fragments, 'fragment')})")
        if self._skipped:
            parts.append(f"{len(self._skipped)} skipped: {_said(why.reason for why in self._skipped.values())}")
        if self._failed:
            parts.append(f"{len(self._failed)} failed: {_said(self._failed)}")
        if self.is_cut_short:
            parts.append("everosd is stopping: the next run does the rest")
        return ", ".join(parts) or nothing(len(self._undone))


def is_of_disk(error: Exception) -> bool:
    """Return whether the disk or the ledger is at fault, not a file that a person can mend, nor a model."""
    cause = error.__cause__
    is_full = isinstance(error, errors.WriteRefused) and isinstance(cause, OSError) and cause.errno in _OF_DISK
    return is_full or isinstance(error, errors.StoreError)


def _said(each: Iterable[str]) -> str:
    reasons = list(dict.fromkeys(each))
    more = f"; and {len(reasons) - _MAX_REASONS} other reasons" if len(reasons) > _MAX_REASONS else ""
    return "; ".join(reasons[:_MAX_REASONS]) + more


def nothing(n_undone: int) -> str:
    """Return what is said where nothing was to be done, and so many topics are just what a rollback has brought back."""
    one = n_undone == 1
    also = (
        f"{_n(n_undone, 'topic')} {'was' if one else 'were'} undone and {'waits' if one else 'wait'} for something new"
    )
    return "nothing to consolidate" + (f"; {also}" if n_undone else "")


def _n(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
