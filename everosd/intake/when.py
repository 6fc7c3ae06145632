"""When it was: words like `last week` in a text, and the dates that they mean by the clock of whoever wrote them.

A phrase that may mean something else, or more than one date, is left alone: no date is better than a wrong one.
"""

from __future__ import annotations

import datetime as dt
import re
from typing import NamedTuple

from everosd import clock


class Mention(NamedTuple):
    """A phrase of a text that says when, and the days that it means."""

    start: int
    end: int
    """Place behind its last character."""
    from_date: dt.date
    to_date: dt.date
    """The last of its days; the same as the first where it is one."""
    language: str = "en"
    """ISO 639-1 code of the phrase."""

    @property
    def dates(self) -> str:
        """Return them in ISO 8601, as short as they can be said: a day, a month, a year, or from when to when."""
        first, last = self.from_date, self.to_date
        if first == last:
            return first.isoformat()
        return f"{first} to {last}"


_SIMPLE = {"the day before yesterday": -2, "yesterday": -1, "today": 0, "tomorrow": 1}
_PHRASE = re.compile(rf"\b(?:(?P<day>{'|'.join(_SIMPLE)})|(?P<week>last week))\b", re.IGNORECASE)


def mentions(text: str, moment_us: int, zone: dt.tzinfo) -> list[Mention]:
    """Return what `text`, written at a moment in a zone, says of when, in order; phrases do not overlap."""
    today = clock.from_us(moment_us).astimezone(zone).date()
    found: list[Mention] = []
    for match in _PHRASE.finditer(text):
        if match["day"]:
            day = today + dt.timedelta(days=_SIMPLE[match["day"].lower()])
            found.append(Mention(match.start(), match.end(), day, day))
        else:
            monday = today - dt.timedelta(days=today.weekday() + 7)
            found.append(Mention(match.start(), match.end(), monday, monday + dt.timedelta(days=6)))
    return found


def resolved(text: str, moment_us: int, zone: dt.tzinfo) -> str:
    """Return `text` with the dates behind each such phrase; a text that has them already comes back as it is."""
    parts: list[str] = []
    at = 0
    for one in mentions(text, moment_us, zone):
        parts += [text[at : one.end], f" ({one.dates})"]
        at = one.end
    return "".join([*parts, text[at:]])
