"""Moments as answers show them: ISO, with an explicit offset, in the zone of the memory."""

from __future__ import annotations

import datetime as dt

from everosd import clock

UTC = dt.UTC


def iso(us: int, zone: dt.tzinfo) -> str:
    """Return a moment in `zone`, `Z` where that is UTC; the instant never moves.

    Microseconds are shown where there are any. A moment that the zone pushes out of the calendar is shown in UTC.
    """
    local = clock.local(us, zone)
    text = local.isoformat()
    return text.removesuffix("+00:00") + "Z" if local.utcoffset() == dt.timedelta(0) else text
