"""What decay does not count: time in which a memory was pinned or away. Pure.

Without it a memory that comes back from the archive would sink at once by the years that it has been there.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence

from everosd.lifecycle import row as rows
from everosd.log import entry, entry_text, view

AWAY = ("expire", "archive", "supersede", "delete")
ACTIONS = ("restore", "pin", "update", *AWAY)
"""Of the rows that tell of it."""
MAX_ROWS = 1000
"""Of one memory that are looked at, the newest."""

Past = Mapping[int, int]
"""Moment of activity → up to when the time before it counts; others count as a whole. Never mutated."""

ALL: Past = {}
"""Everything counts."""


def of(found: Sequence[entry.Entry], *, is_pinned: bool) -> Past:
    """Return what the rows about one memory say, the newest first; `is_pinned` is as of now."""
    told = [
        (at_us, one) for one in reversed(found) if (at_us := view.moment_us(one.fields.get("timestamp", ""), dt.UTC))
    ]
    return _while_away(told) | _while_pinned(told, is_pinned=is_pinned)


def _while_away(told: Sequence[tuple[int, entry.Entry]]) -> dict[int, int]:
    """Return up to when the time before each restore counts: up to the first row that took the memory away.

    Where none did, a person wrote it into the entry, or it was before all that counts.
    """
    found: dict[int, int] = {}
    away_us: int | None = None
    for at_us, one in told:
        action = one.fields.get("action", "")
        if action in AWAY and away_us is None:
            away_us = at_us
        elif action == "restore":
            found[at_us] = away_us or 0
            away_us = None
    return found


def _while_pinned(told: Sequence[tuple[int, entry.Entry]], *, is_pinned: bool) -> dict[int, int]:
    """Return that the time before a memory was let go does not count, seen backwards from what it is now."""
    found: dict[int, int] = {}
    after = is_pinned
    for at_us, one in reversed(told):
        if one.fields.get("action", "") not in rows.VERSIONS:
            continue
        before = was_pinned(one)
        if before and not after:
            found[at_us] = 0
        after = before
    return found


def was_pinned(one: entry.Entry) -> bool:
    """Return whether a memory was pinned before the change that a row tells of; False where its text is gone."""
    text = before(one)
    return (
        entry_text.read("memory", one.fields.get("target", ""), text).fields.get("pinned", "").strip().casefold()
        == "true"
    )


def before(one: entry.Entry) -> str:
    """Return the text of a memory before the change that a row tells of; empty where that is gone."""
    return next((text for title, text in one.sections if title.casefold() == rows.BEFORE.casefold()), "")
