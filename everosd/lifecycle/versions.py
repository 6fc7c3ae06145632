"""Versions of a memory: which there have been, and which number the present one has. Pure, but for the reading of rows.

The row that ends a version is on disk before the entry is replaced, so that nothing is lost in between; a row whose change
never happened is told by the digest of what it announced, and by the number that the entry itself bears. What a person writes
as that number can only have counting go on from there.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from everosd import types
from everosd.lifecycle import memory, row
from everosd.log import entry, entry_text
from everosd.store import lifecycle, read

MAX_ROWS = 1000
"""Rows about one memory that a history is made of, the newest."""
_MAX_INLINE = 999_999
"""Highest number that is believed of an entry: one that somebody wrote there must not be where counting ends."""
_MAX_DIGITS = 18
"""A longer number is none."""
_NEWEST = 5
"""Rows that tell the number of the present version: numbers grow, and none but the newest can be void."""


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """A version that has ended."""

    number: int
    row: entry.Entry
    before: entry.Entry | None
    """What it said; None: that was removed for good."""


def landed(rows: Sequence[entry.Entry], current: entry.Entry | None, kind: str, target: str) -> list[Ended]:
    """Return the versions that have ended, the newest first.

    Args:
        rows: All rows about the memory that end a version, the newest first.
        current: The entry as it is; None: there is none.
        kind: Of the entry.
        target: Its id.
    """
    found: list[Ended] = []
    seen: set[int] = set()
    for nth, each in enumerate(rows):
        number = _number(each)
        if not number or number in seen or (not nth and current is not None and _is_void(each, number, current)):
            continue
        seen.add(number)
        text = dict(each.sections).get(row.BEFORE, "")
        before = entry_text.read(kind, target, text) if text else None
        found.append(Ended(number=number, row=each, before=before))
    return found


def number_of(rows: Sequence[entry.Entry], current: entry.Entry) -> int:
    """Return the number of the present version, from 1; `rows` as `landed` takes them."""
    ended = landed(rows, current, current.kind, current.id)
    return max(_inline(current), *(one.number + 1 for one in ended), 1)


def _is_void(newest: entry.Entry, number: int, current: entry.Entry) -> bool:
    """Tell whether the change that a row announced never happened."""
    if newest.fields.get("digest") == current.digest.hex():
        return False
    text = dict(newest.sections).get(row.BEFORE, "")
    is_as_before = memory.digest_of_text(current.kind, current.id, text) == current.digest.hex()
    # A lower number than that of the row was written by hand: counting does not go back for it.
    return is_as_before or _inline(current) == number


def _number(one: entry.Entry) -> int:
    text = one.fields.get("version", "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS else 0


def _inline(current: entry.Entry) -> int:
    found = _number(current)
    return found if 1 <= found <= _MAX_INLINE else 1


async def number(reader: read.Reader, owner: types.Owner, current: entry.Entry) -> int:
    """Return the number of the present version of a memory, however many there have been."""
    found = await lifecycle.rows(reader, owner, target=current.id, actions=row.VERSIONS, limit=_NEWEST)
    return number_of(found, current)


async def rows(reader: read.Reader, owner: types.Owner, target: str) -> list[entry.Entry]:
    """Return the rows about a memory that end a version, the newest first."""
    return await lifecycle.rows(reader, owner, target=target, actions=row.VERSIONS, limit=MAX_ROWS)
