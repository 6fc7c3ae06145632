"""Days and months that a query names, and how well an entry's moment fits them.

Most entries do not say in words when they were: their moment does. Read are dates as English, ISO 8601 and East Asian
texts write them, and `3.7.2023`; what could be something else (`may`, `march`, a bare number) is no date. Days are those of UTC.
"""

from __future__ import annotations

import calendar
import datetime as dt
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from everosd import clock

LATER = dt.timedelta(days=7)
"""So long afterwards something is still told of as what was just now."""

LATER_FITS = 0.5
"""How well such an entry fits."""

N_YEARS = 10
"""A date without a year is looked for in so many, the present one the last."""

MAX_PERIODS = 50
"""Of a query: one that lists dates is not about when."""

_NAMES = [name.lower() for name in calendar.month_name]
_MONTHS = {name: number for number, name in enumerate(_NAMES) if name}
_MONTHS |= {name[:3]: number for name, number in _MONTHS.items()} | {"sept": 9}
_MONTH = rf"(?P<name>{'|'.join(sorted(_MONTHS, key=len, reverse=True))})\b\.?"
_YEAR = r"(?P<year>(?:19|20)\d\d)\b(?![.,:/-]?\d)"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?\b"
_WHEN = r"\b(?:in|during|of|early|mid|late|last|this|next)[\s-]+"
_VERBS = ("may", "march", "mar")
"""Not a month beside a bare number, unless written like one: `which of the 2 may fail`."""

_FORMS = tuple(
    re.compile(form, re.IGNORECASE)
    for form in (
        r"\b(?P<year>(?:19|20)\d\d)-(?P<month>\d\d)(?:-(?P<day>\d\d))?\b(?!-?\d)",
        r"(?P<year>(?:19|20)\d\d)年(?:(?P<month>\d{1,2})月(?:(?P<day>\d{1,2})日)?)?",
        r"\b(?P<day>\d{1,2})\.\s?(?P<month>\d{1,2})\.\s?(?P<year>(?:19|20)\d\d)\b",
        rf"\b{_DAY}\s+(?:of\s+)?{_MONTH}(?:,?\s+{_YEAR})?",
        rf"\b{_MONTH}\s+{_DAY}(?!:)(?:,?\s+{_YEAR})?",
        rf"\b{_MONTH},?\s+(?:of\s+)?{_YEAR}",
        rf"{_WHEN}{_MONTH}",
        rf"{_WHEN}{_YEAR}",
    )
)
"""Longest first: what one of them has read is not read again."""


class Period(NamedTuple):
    """A day, a month or a year, in microseconds since 1970."""

    from_us: int
    until_us: int
    """First moment after it."""

    @property
    def later_us(self) -> int:
        """First moment that does not fit any more."""
        return self.until_us + _LATER_US


def named(text: str, now_us: int) -> tuple[Period, ...]:
    """Return the periods that a query names; none where it names none, or more than anybody asks for."""
    if not any(char.isdigit() for char in text) and not any(name in text.lower() for name in _NAMES if name):
        return ()
    found: list[Period] = []
    for form in _FORMS:
        for match in form.finditer(text):
            found += _periods(match.groupdict(), now_us)
        text = form.sub(" ", text)
    return tuple(dict.fromkeys(found)) if len(found) <= MAX_PERIODS else ()


def fit(periods: Sequence[Period], moment_us: int) -> float:
    """Return how well a moment fits the best of them: 1 within, half as well in the week after, else 0."""
    best = 0.0
    for one in periods:
        if one.from_us <= moment_us < one.until_us:
            return 1.0
        if one.until_us <= moment_us < one.later_us:
            best = LATER_FITS
    return best


def _periods(said: dict[str, str | None], now_us: int) -> Iterator[Period]:
    name = said.get("name")
    if name in _VERBS and said.get("day") and not said.get("year"):
        return
    month = _MONTHS[name.lower()] if name else int(said.get("month") or 0)
    day = int(said.get("day") or 0)
    year = said.get("year")
    this = clock.from_us(now_us).year
    for each in [int(year)] if year else range(this - N_YEARS + 1, this + 1):
        try:
            first = dt.datetime(each, month or 1, day or 1, tzinfo=dt.UTC)
        except ValueError:  # the 30th of February, the 13th month
            continue
        yield Period(clock.to_us(first), clock.to_us(_end(first, has_month=bool(month), has_day=bool(day))))


def _end(first: dt.datetime, *, has_month: bool, has_day: bool) -> dt.datetime:
    if has_day:
        return first + dt.timedelta(days=1)
    if has_month:
        return first + dt.timedelta(days=calendar.monthrange(first.year, first.month)[1])
    return first.replace(year=first.year + 1)


_LATER_US = LATER // dt.timedelta(microseconds=1)
