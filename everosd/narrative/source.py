"""What is merged, and what comes of it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Protocol

import msgspec

from everosd import errors


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """A text that goes into a narrative: an Episode, or a narrative that there is already."""

    entry_id: str
    at: dt.datetime
    """Its moment, in the zone that its days are told in."""
    subject: str
    """Empty: none."""
    content: str
    facts: tuple[str, ...] = ()
    """Its atomic facts; empty: its content says all."""
    is_narrative: bool = False
    """Whether it was merged from others."""
    is_latest: bool = False
    """Whether it is a narrative that a person edited: what it says is the latest, whatever the others say."""


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """How a narrative stands to its sources."""

    inventions: tuple[str, ...] = ()
    """What it says and none of them; of a narrative that may be stored there are none."""
    missing: tuple[str, ...] = ()
    """What they say and the model's text did not: of a narrative that may be stored it stands under Details."""
    n_statements: int
    """That the sources make, each counted once."""
    n_covered: int
    """Of them, those that the model's text told by itself."""
    is_repaired: bool = False
    """Whether the model was asked twice."""

    def said(self) -> str:
        """Return it in a line, as it stands in the log."""
        parts = [f"{self.n_covered} of {self.n_statements} statements told"]
        if self.missing:
            parts.append(f"{len(self.missing)} under Details")
        if self.is_repaired:
            parts.append("asked twice")
        if self.inventions:
            parts.append(f"invented: {', '.join(self.inventions)[:_MAX_SAID]}")
        return "; ".join(parts)


_MAX_SAID = 300


class Narrative(msgspec.Struct, frozen=True, kw_only=True):
    """One text in place of several."""

    subject: str
    content: str
    by: str
    """The model's name, or `extractive`."""
    check: Check


class Refused(errors.LLMRejected):
    """What a model made of the sources is no narrative of them, even after it was told why; nothing of it is taken."""

    def __init__(self, provider: str, reason: str, check: Check) -> None:
        """Name the model, what is wrong, and what the check found."""
        super().__init__(provider, reason, is_final=True)
        self.check = check
        self.hint = 'the sources stay as they are; merge = "extractive" under [reflection] merges without a model'


class Merging(Protocol):
    """What makes one narrative of several sources."""

    @property
    def name(self) -> str:
        """What stands as `extracted_by`."""

    @property
    def is_set_up(self) -> bool:
        """Whether it can be asked at all."""

    def n_fitting(self, sources: Sequence[Source]) -> int:
        """Return how many of the first sources, in time order, fit into one merge; 0: the first one alone is too long.

        Takes a while for long sources: call it in a thread.
        """

    async def merge(self, sources: Sequence[Source]) -> Narrative:
        """Return one narrative of the sources, whatever their order.

        Raises:
            Refused: there is none that invents nothing.
            LLMRejected: the model declines, or its answers are unusable.
            LLMUnavailable: the same may succeed later.
        """
