"""What the next merge of a cluster is: which of its members it replaces, and what its text is made from. Pure.

A cluster that is too large for one merge takes several, each an update of the narrative before it. A narrative is made anew
from its originals while they fit, so that what one merge loses the next one finds again; one that a person edited is read
instead of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from everosd import types
from everosd.narrative import source as texts

Fits = Callable[[Sequence[texts.Source]], bool]
"""Whether sources fit into one merge, all of them; more than fit never do."""

Mode = Literal["init", "update"]


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A live Episode of a cluster."""

    source: texts.Source
    digest: str
    """Of the text that was read."""
    path: types.RelPath
    timestamp_us: int
    originals: tuple[texts.Source, ...] = ()
    """Of a narrative: what it was made from, down to what no consolidation wrote; empty where not all of it is there."""

    @property
    def id(self) -> str:
        """Its entry id."""
        return self.source.entry_id


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One merge."""

    mode: Mode
    replaced: tuple[Member, ...]
    """What the narrative stands for afterwards, in time order; at least 2. Of an update one is the narrative before it."""
    read: tuple[texts.Source, ...]
    """What its text is made from, in time order."""

    @property
    def timestamp_us(self) -> int:
        """Moment of the narrative: that of the newest of what it replaces."""
        return max(one.timestamp_us for one in self.replaced)


class Outlook(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done about a cluster."""

    plan: Plan | None
    """None: nothing."""
    too_long: tuple[str, ...] = ()
    """Episodes that are too long for any merge, and stay as they are."""


def outlook(members: Sequence[Member], fits: Fits) -> Outlook:
    """Return the next merge of a cluster's live members.

    A narrative that is so long that nothing fits beside it stays as it is, and what is new becomes another.
    """
    fragments = sorted((one for one in members if not one.source.is_narrative), key=_order)
    narratives = sorted((one for one in members if one.source.is_narrative), key=_order, reverse=True)
    if not fragments or len(members) < 2:  # noqa: PLR2004  # one alone is merged with nothing
        return Outlook(plan=None)
    for narrative in narratives:
        if (plan := _update(narrative, fragments, fits)) is not None:
            return Outlook(plan=plan)
    too_long: list[str] = []
    for at, first in enumerate(fragments):
        if not _fit([first], fits):
            too_long.append(first.id)
        elif following := _fitting([first], fragments[at + 1 :], fits):
            replaced = (first, *following)
            plan = Plan(mode="init", replaced=replaced, read=tuple(one.source for one in replaced))
            return Outlook(plan=plan, too_long=tuple(too_long))
    return Outlook(plan=None, too_long=tuple(too_long))


def _update(narrative: Member, fragments: Sequence[Member], fits: Fits) -> Plan | None:
    """Return the merge that folds fragments into a narrative; None where none of them fits."""
    # Beside what a person made of them, the originals would bring back what was corrected or taken out.
    if narrative.originals and not narrative.source.is_latest:
        sources = _in_order([*narrative.originals, *(one.source for one in fragments)])
        if fits(sources):
            return Plan(mode="update", replaced=tuple(sorted([narrative, *fragments], key=_order)), read=sources)
    if not (picked := _fitting([narrative], fragments, fits)):
        return None
    replaced = tuple(sorted([narrative, *picked], key=_order))
    return Plan(mode="update", replaced=replaced, read=_in_order([one.source for one in replaced]))


def _fitting(begun: Sequence[Member], others: Sequence[Member], fits: Fits) -> Sequence[Member]:
    """Return as many of the others, the oldest first, as fit beside what is begun.

    Those that are too long are passed over for shorter ones: they would be merged next, and the narrative made twice.
    """
    picked: list[Member] = []
    while others and _fit([*begun, *picked, min(others, key=_length)], fits):
        while not _fit([*begun, *picked, others[0]], fits):
            others = others[1:]
        least, most = 1, len(others)
        while least < most:
            middle = (least + most + 1) // 2
            if _fit([*begun, *picked, *others[:middle]], fits):
                least = middle
            else:
                most = middle - 1
        picked += others[:least]
        others = others[least:]
    return picked


def _fit(members: Sequence[Member], fits: Fits) -> bool:
    return fits(_in_order([one.source for one in members]))


def _in_order(sources: Sequence[texts.Source]) -> tuple[texts.Source, ...]:
    """Return sources in time order, each once; of those of one moment a narrative is last."""
    return tuple(
        sorted(
            {one.entry_id: one for one in sources}.values(), key=lambda one: (one.at, one.is_narrative, one.entry_id)
        )
    )


def _order(one: Member) -> tuple[int, bool, str]:
    return one.timestamp_us, one.source.is_narrative, one.id


def _length(one: Member) -> int:
    return len(one.source.content) + sum(map(len, one.source.facts))
