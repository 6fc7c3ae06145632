"""Which memories a call is about: when they happened, and what they are filed under. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

from everosd import clock, errors
from everosd.index import where
from everosd.lifecycle import decisions
from everosd.store import lifecycle as store

HOUR_US = 3_600_000_000
DEFAULT_HOURS = 24.0
FIRST_US = clock.to_us(dt.datetime.min.replace(tzinfo=dt.UTC))
"""The first moment of the calendar, microseconds since 1970."""


def of(
    now_us: int, *, hours: float = DEFAULT_HOURS, since_us: int | None = None, until_us: int | None = None
) -> decisions.Window:
    """Return the window of a call: the last `hours`, unless `since_us` or `until_us` say otherwise.

    Raises:
        RequestError: it ends before it begins.
    """
    until = now_us if until_us is None else until_us
    since = max(FIRST_US, until - round(hours * HOUR_US)) if since_us is None else since_us
    if since > until:
        message = "is later than until"
        raise errors.RequestError(message, field="since")
    return decisions.Window(since_us=since, until_us=until)


def fits(filters: decisions.Filters) -> Callable[[store.Record], bool]:
    """Return whether a memory is one that the filters mean; a pattern means what it means to a search."""
    wanted = [
        (name, where.fitting(pattern))
        for name, pattern in (
            ("bucket", filters.bucket),
            ("scope", filters.scope),
            ("team_id", filters.team_id),
            ("path", filters.path),
        )
        if pattern.strip("%")
    ]
    if not wanted:
        return lambda _: True
    return lambda record: all(is_fit(getattr(record, name)) for name, is_fit in wanted)
