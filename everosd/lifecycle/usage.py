"""Uses of memories: what answers had in them, and what programs say that they used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from everosd import types


class Noting(Protocol):
    """Takes note of uses. Cheap; what is noted is appended to `.lifecycle/` later, once per entry and day at most."""

    def note(self, owner: types.Owner, entry_ids: Sequence[str], at_us: int) -> None:
        """Take note that these entries of an owner were used, at a moment in microseconds since 1970."""
