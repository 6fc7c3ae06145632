"""How long a memory has been left alone: the one age that decay and archive go by.

Activity is what the log knows of: uses, restores, pins, updates, edits by hand, what the entry says of its last update, and that
it was created. Pure.
"""

from __future__ import annotations

from everosd.store import lifecycle as store


def last_us(record: store.Record) -> int:
    """Return the newest moment of activity, microseconds since 1970."""
    newest = max(record.created_us, record.updated_us)
    if record.accessed_us is not None and record.accessed_us > newest:
        newest = record.accessed_us
    if record.anchor_us is not None and record.anchor_us > newest:
        newest = record.anchor_us
    if record.moments and record.moments[-1] > newest:
        newest = record.moments[-1]
    return newest


def moments(record: store.Record, now_us: int) -> list[int]:
    """Return the moments between which decay is counted, ascending, up to now: the first is where counting begins.

    That is where the last decay was counted from, or the importance was given anew, else the creation. What is said to be in the future counts by `last_us`
    alone: until then nothing is old.
    """
    since_us = record.created_us if record.since_us is None else record.since_us
    known = (*record.moments, record.updated_us, record.accessed_us or 0, record.anchor_us or 0)
    return [since_us, *sorted({at_us for at_us in known if since_us < at_us <= now_us})]
