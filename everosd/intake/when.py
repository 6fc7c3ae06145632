"""When it was: words like `last week` in a text, and the dates that they mean by the clock of whoever wrote them.

A phrase that may mean something else, or other dates, is left alone: no date is better than a wrong one. So is what was
quoted (it was said at another time), what is code or part of an address, and what has its date beside it. Weeks begin on
Monday. What was so many weeks ago was in that week, not on a day of it.
"""

# ruff: noqa: RUF001  # signs of other scripts are meant

from __future__ import annotations

import bisect
import calendar
import datetime as dt
import itertools
import re
from collections.abc import Iterator
from typing import NamedTuple

from everosd import clock
from everosd.narrative import tongue

MAX_CHARS = 40_000
"""Of a text; what comes after is not read. Nobody says when in the middle of a book."""
MAX_PHRASES = 400
"""Of a text in one language, looked at; as much as takes a tenth of a second."""


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
        """Return them as ISO 8601 writes a day, a month or a year; else the first and the last day."""
        first, last = self.from_date, self.to_date
        if first == last:
            return first.isoformat()
        if first.day == 1 and last == _month_end(first):
            return f"{first:%Y-%m}"
        if (first.month, first.day) == (1, 1) and last == first.replace(month=12, day=31):
            return f"{first:%Y}"
        return f"{first}{tongue.BY_CODE[self.language].joiner}{last}"

    @property
    def note(self) -> str:
        """Return what is put behind the phrase."""
        opening, closing = tongue.BY_CODE[self.language].brackets
        return f"{opening}{self.dates}{closing}"


def mentions(text: str, moment_us: int, zone: dt.tzinfo) -> list[Mention]:
    """Return what `text`, written at a moment in a zone, says of when, in order; phrases do not overlap."""
    try:
        today = clock.from_us(moment_us).astimezone(zone).date()
    except OverflowError:
        return []
    text = text[:MAX_CHARS]
    found = [one for code in _languages(text) for one in _mentions(text, tongue.BY_CODE[code], today)]
    if not found:
        return []
    apart: list[Mention] = []
    for one in sorted(found, key=lambda one: (one.start, -one.end)):  # stable: the first language stays first
        if not apart or one.start >= apart[-1].end:
            apart.append(one)
    return [one for one in apart if not _is_said(text, one)]


def resolved(text: str, moment_us: int, zone: dt.tzinfo) -> str:
    """Return `text` with the dates behind each such phrase; a text that has them already comes back as it is."""
    parts: list[str] = []
    at = 0
    for one in mentions(text, moment_us, zone):
        parts += [text[at : one.end], one.note]
        at = one.end
    return "".join([*parts, text[at:]]) if parts else text


# -- which phrases there are -------------------------------------------------------------------------------------------

_WORD = re.compile(r"[^\W\d_]+")
_KANA = re.compile(r"[\u3041-\u30ff]")
_HAN = re.compile(r"[\u4e00-\u9fff]")


def _languages(text: str) -> list[str]:
    """Return the languages in which `text` may say when."""
    words = set(_WORD.findall(text.lower()))
    codes = [code for code, one in tongue.BY_CODE.items() if not one.triggers.isdisjoint(words)]
    if _KANA.search(text):
        return [*codes, "ja"]
    return [*codes, "zh", "ja"] if _HAN.search(text) else codes


def _mentions(text: str, spoken: tongue.Tongue, today: dt.date) -> Iterator[Mention]:
    quiet: _Regions | None = None
    for match in itertools.islice(_matches(text, spoken), MAX_PHRASES):
        at = int(str(match.lastgroup).removeprefix("form_"))
        quiet = quiet or _Regions(text)
        if match.start() in quiet or _is_other(text, match, spoken, at):
            continue
        days = _days(match, spoken, at, today)
        if days is None:
            continue
        end = match.end() + (2 if text[match.end() : match.end() + 2].lower() in _POSSESSIVES else 0)
        yield Mention(match.start(), end, *days, spoken.code)


def _matches(text: str, spoken: tongue.Tongue) -> Iterator[re.Match[str]]:
    """Yield where there is a form of a language, from left to right."""
    pattern = tongue.pattern(spoken.code)
    if not spoken.is_apart:
        yield from pattern.finditer(text)
        return
    leads, end = tongue.leads(spoken.code), 0
    for word in _TOKEN.finditer(text):
        first = word.group()
        if word.start() >= end and (first.lower() in leads or first.isdecimal()):
            match = pattern.match(text, word.start())
            if match:
                yield match
                end = match.end()


_TOKEN = re.compile(r"[^\W_]+")
_POSSESSIVES = ("'s", "’s")
_QUIET = re.compile(
    r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)|`[^`\n]+`"
    r"|\b[a-z][a-z0-9+.-]*://\S+|\bwww\.\S+|\]\([^)\s]*\)|\S+@\S+"
    r"|^[^\S\n]*>.*?$"
    r"|\"[^\"\n]{1,300}\"|“[^”\n]{1,300}”|„[^“”\n]{1,300}[“”]|«[^»\n]{1,300}»|(?<!\w)'[^'\n]{1,100}'(?!\w)"
    r"|(?<!\w)‘[^’\n]{1,100}’(?!\w)|「[^」\n]{1,300}」|『[^』\n]{1,300}』|《[^》\n]{1,300}》|〈[^〉\n]{1,300}〉",
    re.DOTALL | re.MULTILINE | re.IGNORECASE,
)
"""Code, addresses, and what is quoted."""
_MAY_BE_QUIET = re.compile(r"[`>@\"“„«‘「『《〈]|~~~|://|www\.|\]\(|(?<!\w)'", re.IGNORECASE)
"""What none of that is without; most texts have nothing of it, and this is told ten times as fast."""


class _Regions:
    """Where a text is not the words of whoever wrote it."""

    def __init__(self, text: str) -> None:
        found = [match.span() for match in _QUIET.finditer(text)] if _MAY_BE_QUIET.search(text) else []
        self._starts, self._ends = [one[0] for one in found], [one[1] for one in found]

    def __contains__(self, at: int) -> bool:
        before = bisect.bisect_right(self._starts, at) - 1
        return before >= 0 and at < self._ends[before]


_SENTENCE = re.compile(r"[.!?…;:](?:\s|$)|\n|[。！？]")
_NEAR = 160
"""Characters of a sentence that are looked at before and after a phrase."""
_GLUED = re.compile(r"[_/\\@=#]|[-.](?=\w)")
"""Right behind a phrase it makes it part of a name, a path or an address."""
_COUNTED = ("ago", "ahead")
_LISTED = rf"(?:\b\d+|\b(?:{'|'.join(word for one in tongue.BY_CODE.values() for word in one.numbers)}))\s*,\s*$"
"""`two, three` is no number."""
_TITLES = re.compile(r"[A-Z][a-z]+(?:\s+[A-Z][a-z]+)+")


def _is_other(text: str, match: re.Match[str], spoken: tongue.Tongue, at: int) -> bool:
    """Whether a phrase is something else by what stands around it."""
    means = spoken.forms[at].means
    before = _SENTENCE.split(text[max(0, match.start() - _NEAR) : match.start()])[-1]
    after = text[match.end() : match.end() + _NEAR]
    if _GLUED.match(after) or _found(spoken.unless_before, before) or _found_at(spoken.unless_after, after):
        return True
    if means in _COUNTED and (_found(spoken.unless_counted, before) or _found(_LISTED, before)):
        return True
    is_until = means == "ahead" and match.group().lower().startswith("in")
    if is_until and (_found(spoken.unless_past, before) or not _found(spoken.only_ahead, before + " " + after)):
        return True
    if spoken.code == "en" and _TITLES.fullmatch(match.group()) and not _has_name(match, at):
        return True  # the title of a film or a show
    return match.group().lower() == "hier" and tongue.of(text) != "fr"


def _found(form: str, text: str) -> bool:
    return re.search(form, text, re.IGNORECASE) is not None


def _found_at(form: str, text: str) -> bool:
    return re.match(form, text, re.IGNORECASE) is not None


def _has_name(match: re.Match[str], at: int) -> bool:
    """Whether a weekday or month is in it, which are written large anyway."""
    return any(match.groupdict().get(f"{name}_{at}") for name in ("day", "month"))


# -- what they mean ----------------------------------------------------------------------------------------------------

_ABBREVIATED = 3
"""Letters."""
_MAX_AGO = 150
"""Units; more is a figure of speech, or no time."""

Days = tuple[dt.date, dt.date]


def _days(match: re.Match[str], spoken: tongue.Tongue, at: int, today: dt.date) -> Days | None:  # noqa: PLR0911  # a table
    """Return the first and last day of a phrase; None where that is not sure."""
    means, by, _ = spoken.forms[at]
    try:
        match means:
            case "ago" | "ahead":
                return _counted(match, spoken, at, today, sign=-1 if means == "ago" else 1)
            case "last day" | "next day" | "coming day" | "this day" | "day of week":
                said = match[f"day_{at}"]
                if spoken.code == "en" and len(said) <= _ABBREVIATED and not said[0].isupper():
                    return None  # `this sun`
                return _weekday(means, by, spoken.days[said.lower()], today)
            case "last month of year" | "next month of year" | "this month of year":
                said = match[f"month_{at}"]
                is_name = spoken.code != "en" or said[0].isupper()  # `this may`
                return _named_month(means, spoken.months[said.lower()], today) if is_name else None
            case "weekend":
                return _weekend(by, today, is_sure=not spoken.is_apart)
            case _:
                return _span(means, by, today)
    except (OverflowError, ValueError):
        return None


def _span(unit: tongue.Unit, by: int, today: dt.date) -> Days:
    if unit == "day":
        day = today + dt.timedelta(days=by)
        return day, day
    if unit == "week":
        monday = today + dt.timedelta(days=7 * by - today.weekday())
        return monday, monday + dt.timedelta(days=6)
    if unit == "weekend":
        saturday = today + dt.timedelta(days=7 * by - today.weekday() + calendar.SATURDAY)
        return saturday, saturday + dt.timedelta(days=1)
    if unit == "month":
        months = today.year * 12 + today.month - 1 + by
        first = dt.date(months // 12, months % 12 + 1, 1)
        return first, _month_end(first)
    return dt.date(today.year + by, 1, 1), dt.date(today.year + by, 12, 31)


def _weekend(by: int, today: dt.date, *, is_sure: bool) -> Days | None:
    """Return a weekend by what it is called.

    Early in a week this one may be the one just past, and all week the next may be this one; not where it is `is_sure`
    which week is meant, as in Chinese.
    """
    if is_sure:
        return _span("weekend", by, today)
    is_weekend = today.weekday() >= calendar.SATURDAY
    if (by == 0 and today.weekday() <= calendar.TUESDAY) or (by == 1 and not is_weekend):
        return None
    return _span("weekend", by, today)


def _counted(match: re.Match[str], spoken: tongue.Tongue, at: int, today: dt.date, *, sign: int) -> Days | None:
    said = " ".join(match[f"n_{at}"].lower().split())
    number = int(said) if said.isdecimal() else spoken.numbers[said]
    unit = spoken.units[match[f"unit_{at}"].lower()]
    return _span(unit, sign * number, today) if 0 < number <= _MAX_AGO else None


def _weekday(means: tongue.Means, week: int, weekday: int, today: dt.date) -> Days | None:
    """Return a weekday by its name.

    The last one is the latest that is over. The next one is the first to come, unless that is in the week that has begun:
    then some mean this and some the one after. This one is to come in that week; what is over may be meant, or the next.
    """
    ahead = (weekday - today.weekday()) % 7
    if means == "day of week":
        return _span("day", weekday - today.weekday() + 7 * week, today)
    if means == "last day":
        return _span("day", ahead - 7, today)
    is_to_come = weekday > today.weekday()
    if means == "this day":
        is_sure = is_to_come or weekday == today.weekday() or today.weekday() == calendar.SUNDAY
        return _span("day", ahead, today) if is_sure else None
    if means == "next day" and is_to_come:
        return None
    return _span("day", ahead or 7, today)


def _named_month(means: tongue.Means, month: int, today: dt.date) -> Days | None:
    """Return a month by its name; the last or next of that name is not sure where this year has one."""
    if means == "this month of year":
        return _span("month", month - today.month, today)
    if means == "last month of year":
        return _span("month", month - today.month - 12, today) if month >= today.month else None
    return _span("month", month - today.month + 12, today) if month <= today.month else None


def _month_end(first: dt.date) -> dt.date:
    return first.replace(day=calendar.monthrange(first.year, first.month)[1])


# -- dates that stand there already ------------------------------------------------------------------------------------

_MONTHS = "|".join(sorted(tongue.MONTHS, key=len, reverse=True))
_DATE = (
    r"(?:\d{4}[-/.]\d{1,2}(?:[-/.]\d{1,2})?|\d{1,2}/\d{1,2}(?:/\d{2,4})?|\d{1,2}\.\s?\d{1,2}\.(?:\d{2,4})?"
    rf"|\d{{1,2}}(?:st|nd|rd|th|\.|er|º)?\s+(?:of\s+|de\s+)?(?:{_MONTHS})\b|(?:{_MONTHS})\b\.?\s+\d{{1,4}}"
    r"|the\s+\d{1,2}(?:st|nd|rd|th)\b|(?:\d{4}年)?\d{1,2}月(?:\d{1,2}[日号號])?|\d{4}年)"
)
_LEAD = r"[\s,;:(（\[–—-]{0,3}(?:(?:on|the|in|den|der|dem|am|im|le|el|il|lo|o|dia|día|day|d\.\s?h\.|i\.e\.)\s+)?"
_DIGIT = re.compile(r"\d")
_DATE_BEHIND = re.compile(rf"{_LEAD}(?:{_DATE})|\s?[(（\[,]\s?(?:19|20)\d\d\b", re.IGNORECASE)
_DATE_BEFORE = re.compile(rf"(?:{_DATE}|(?:19|20)\d\d)[,\s]*[(（,\s–—-]\s*$", re.IGNORECASE)


def _is_said(text: str, one: Mention) -> bool:
    """Whether the date stands beside the phrase as it is."""
    line = text[max(0, one.start - 40) : one.start].rpartition("\n")[2]
    # There is no date without a digit, and looking for one is quick.
    if _DIGIT.search(text, one.end) and _DATE_BEHIND.match(text, one.end):
        return True
    return _DIGIT.search(line) is not None and _DATE_BEFORE.search(line) is not None
