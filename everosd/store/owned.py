"""Whose a row of the ledger is: the four columns that every table of owners' things begins with.

All that is read or written of an owner is bounded by them; one place says how, so that none of the four is ever left out.
"""

from __future__ import annotations

import functools

from everosd import types

Scope = tuple[str, str, str, str]
"""What the columns hold, in their order."""

COLUMNS = ("app", "project", "owner_type", "owner_id")


REPORT_COLUMNS = ("app_id", "project_id", "owner_type", "owner_id")
"""The same of `reflection_report`, which people know by these names."""


@functools.cache
def by(alias: str = "", columns: tuple[str, ...] = COLUMNS) -> str:
    """Return the SQL condition that a row is of an owner, whose `scope` gives the parameters; `alias` is that of the table."""
    return " AND ".join(f"{alias}.{name} = ?" if alias else f"{name} = ?" for name in columns)


def scope(owner: types.Owner) -> Scope:
    """Return an owner as the columns have it."""
    return owner.app, owner.project, owner.type, owner.id
