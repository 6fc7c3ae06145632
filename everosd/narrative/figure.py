"""Numbers, dates and times of day in a text, read as what they mean: `7 May`, `2023-05-07` and `5月7日` can be compared."""

from __future__ import annotations

import functools
import re
import zlib
from collections.abc import Callable, Iterable
from typing import NamedTuple

from everosd.narrative import words


class Date(NamedTuple):
    """A day, a month, a year or a weekday, as far as it was said."""

    year: int | None = None
    month: int | None = None
    day: int | None = None
    weekday: int | None = None
    """Monday 0."""

    def fits(self, other: Date) -> bool:
        """Return whether `other` says all that this says."""
        return all(mine is None or mine == theirs for mine, theirs in zip(self, other, strict=True))


class Said(NamedTuple):
    """A date, time or number where it stands in a text, with what it can mean."""

    start: int
    end: int
    dates: tuple[Date, ...] = ()
    minutes: frozenset[int] = frozenset()
    """Of the day."""
    numbers: frozenset[float] = frozenset()


_MONTH = "|".join(sorted(map(re.escape, words.MONTHS), key=len, reverse=True))
_YEAR = r"(?P<year>(?:1[5-9]|20|21)\d\d)(?!\d)"
_DAY = r"(?P<day>[0-3]?\d)(?:st|nd|rd|th|er|º|ª|\.)?"
_OF = r"(?:\s+of|\s+de|\s+del|\s+di|\s+do)?"

_DATES = tuple(
    re.compile(form)
    for form in (
        rf"(?<!\d){_YEAR}[-/.](?P<month>[01]\d)(?:[-/.](?P<day>[0-3]\d))?(?!\d)(?:t(?=\d))?",
        rf"{_YEAR}\s?[年년]\s?(?:(?P<month>\d{{1,2}})\s?[月월]\s?(?:(?P<day>\d{{1,2}})\s?[日号號일])?)?",
        r"(?P<month>\d{1,2})\s?[月월]\s?(?:(?P<day>\d{1,2})\s?[日号號일])?",
        rf"(?<![\d.])(?P<one>[0-3]?\d)[./-](?P<two>[0-3]?\d)[./-]{_YEAR}",
        rf"(?<![\w.]){_DAY}{_OF}\s+(?P<name>{_MONTH})\b\.?(?:{_OF},?\s+{_YEAR})?",
        rf"\b(?P<name>{_MONTH})\b\.?\s+(?:the\s+)?{_DAY}(?![\w:])(?:{_OF},?\s+{_YEAR})?",
        rf"\b(?P<name>{_MONTH})\b\.?,?{_OF}\s+{_YEAR}",
        rf"(?P<lead>\b\w+[\s-]+)?\b(?P<name>{_MONTH})\b",
        rf"(?<![\d.,:/-]){_YEAR}(?![.,:/-]?\d)(?!\s?%)",
    )
)
"""Longest first: what one of them has read is not read again. On folded text."""
_HAS_HAN = re.compile(r"[\u3041-\u30ff\u4e00-\u9fff]")
_WEEKDAY = re.compile(
    "|".join(
        word if _HAS_HAN.search(word) else rf"\b{re.escape(word)}\b"
        for word in sorted(words.WEEKDAYS, key=len, reverse=True)
    )
)
_CLOCK = re.compile(
    r"(?<![\d.:])(?P<hour>[0-2]?\d)[:h](?P<minute>[0-5]\d)(?::[0-5]\d(?:\.\d+)?)?(?:[^\S\n]?(?P<half>[ap])\.?m\b\.?)?(?![\d:])(?:z|[+-]\d\d:?\d\d)?"
    r"|(?<![\d.:])(?P<hour2>[01]?\d)[^\S\n]?(?P<half2>[ap])\.?m\b\.?"
    r"|(?<![\d.:])(?P<hour3>[0-2]?\d)\s?(?:uhr\b|o'clock|点|點|时(?!间)|時(?!間))(?:\s?(?P<minute3>[0-5]?\d)\s?分)?"
)
_DIGITS = re.compile(r"(?<![^\W\d_])(?<![^\W\d_]-)\d+(?:[.,:'’]\d+)*(?P<k>\s?(?:k|tsd|mio|million|thousand)\b)?")  # noqa: RUF001  # as typeset
_GROUPS = re.compile(r"\d{1,3}(?:[.,'’]\d{3})+")  # noqa: RUF001
_NUMBER_WORD = re.compile(
    r"\b(?:" + "|".join(sorted(map(re.escape, (*words.NUMBERS, *words.MULTIPLES)), key=len, reverse=True)) + r")\b"
)
_GERMAN_TENS = re.compile(r"\b(ein|zwei|drei|vier|funf|sechs|sieben|acht|neun)und(\w+?zig|dreiszig|dreissig)\b")
_HAN = re.compile(
    rf"[{''.join(words.HAN_DIGITS)}{''.join(words.HAN_UNITS)}]+(?=[{words.HAN_COUNTERS}])"
    rf"|[{''.join(words.HAN_DIGITS)}{''.join(words.HAN_UNITS)}]{{2,}}"
)
_TOKEN, _DIGIT = re.compile(r"\w+"), re.compile(r"\d")
_WEEKDAY_PARTS = frozenset(part for word in words.WEEKDAYS for part in _TOKEN.findall(word))
_NUMBER_PARTS = frozenset(part for word in (*words.NUMBERS, *words.MULTIPLES) for part in _TOKEN.findall(word))
_BREAK = re.compile(r"\n\n+|(?<![\d.])\n|(?<=[^\W\d_][.!?])\s+(?=[A-ZÀ-ÖØ-ÞΑ-ΩА-Я])")
"""Where no date and no number goes on: a long text is read in parts, which are remembered."""
_SHORT_CHARS = 500
"""Texts up to here are remembered: sentences are read several times over."""
_JOINS = re.compile(r"[\s-]+(?:and[\s-]+|und[\s-]+|et[\s-]+|y[\s-]+|e[\s-]+)?")


def read(text: str) -> list[Said]:
    """Return what a text says of dates, times of day and numbers, in order; places are those of `text`."""
    if len(text) <= _SHORT_CHARS:
        return list(_remembered(text))
    found: list[Said] = []
    start = 0
    for end in [*(match.end() for match in _BREAK.finditer(text)), len(text)]:
        part = text[start:end]
        said = _remembered(part.rstrip()) if len(part) <= _SHORT_CHARS else _read(part)
        found += [one._replace(start=one.start + start, end=one.end + start) for one in said] if start else said
        start = end
    return found


@functools.lru_cache(maxsize=8192)
def _remembered(text: str) -> tuple[Said, ...]:
    return tuple(_read(text))


def _read(text: str) -> list[Said]:
    folded, places = _folded(text)
    found: list[Said] = []

    def take(form: re.Pattern[str], meaning: Callable[[re.Match[str]], Said | None]) -> None:
        nonlocal folded
        new = [
            said for match in form.finditer(folded) if (said := meaning(match)) is not None and said.end > said.start
        ]
        if new:
            left = list(folded)
            for said in new:
                left[said.start : said.end] = "\x00" * (said.end - said.start)
            folded = "".join(left)
            found.extend(new)

    # Most sentences have none of what these forms look for, and looking for it takes long.
    said = set(_TOKEN.findall(folded))
    has_digit, has_han = _DIGIT.search(folded) is not None, _HAS_HAN.search(folded) is not None
    has_month = not said.isdisjoint(words.MONTHS)
    for form in _DATES:
        if has_month if "name" in form.groupindex else has_digit:
            take(form, _date)
    if has_han or not said.isdisjoint(_WEEKDAY_PARTS):
        take(_WEEKDAY, lambda m: Said(*m.span(), dates=(Date(weekday=words.WEEKDAYS[m[0]]),)))
    if has_digit:
        take(_CLOCK, _clock)
        take(_DIGITS, _digits)
    if "und" in folded:
        take(_GERMAN_TENS, _german)
    if not said.isdisjoint(_NUMBER_PARTS):
        found += _worded(folded)
    take(_HAN, lambda m: Said(*m.span(), numbers=frozenset({_han(m[0])})))
    found = [one._replace(start=places[one.start], end=places[one.end]) for one in sorted(found)]
    return [one._replace(end=one.end - 1) if text[one.end - 1] == "." else one for one in found]


def _folded(text: str) -> tuple[str, list[int]]:
    """Return `text` folded, and for each of its characters and its end the place in `text`."""
    lower = text.lower()
    if lower.isascii():
        return lower, list(range(len(text) + 1))
    parts = [words.fold(char) for char in text]
    places = [at for at, part in enumerate(parts) for _ in part]
    return "".join(parts), [*places, len(text)]


def _date(match: re.Match[str]) -> Said | None:
    said = match.groupdict()
    year = int(said["year"]) if said.get("year") else None
    if said.get("one"):
        one, two = int(said["one"]), int(said["two"])
        pairs = {(one, two), (two, one)}
        dates = tuple(Date(year, month, day) for day, month in sorted(pairs) if _is_day(month, day))
        return Said(*match.span(), dates=dates) if dates else None
    start, end = match.span()
    if lead := said.get("lead"):
        start += len(lead)
    name = said.get("name")
    is_alone = name is not None and not said.get("day") and year is None
    if is_alone and name in words.VAGUE_MONTHS and (lead or "").strip(" -") not in words.LEADS_TO_MONTH:
        return None
    month = words.MONTHS[name] if name else int(said.get("month") or 0) or None
    day = int(said.get("day") or 0) or None
    if (month or day) and not _is_day(month or 1, day or 1):
        return None
    return Said(
        start, end, dates=(Date(year, month, day),), numbers=frozenset({float(year)} if year and not month else ())
    )


def _is_day(month: int, day: int) -> bool:
    return 1 <= month <= 12 and 1 <= day <= 31  # noqa: PLR2004  # months, days


def _clock(match: re.Match[str]) -> Said | None:
    said = match.groupdict()
    hour = int(next(said[name] for name in ("hour", "hour2", "hour3") if said[name]))
    minute = int(said["minute"] or said["minute3"] or 0)
    half = said["half"] or said["half2"]
    if hour > 24:  # noqa: PLR2004  # hours of a day
        return None
    if half:
        hour = hour % 12 + (12 if half == "p" else 0)
    # "at 2:30" may be in the afternoon
    hours = {hour} if half or hour >= 12 else {hour, hour + 12}  # noqa: PLR2004  # hours of half a day
    return Said(*match.span(), minutes=frozenset(60 * each + minute for each in hours))


def _digits(match: re.Match[str]) -> Said:
    text = match[0]
    factor = 1
    if tail := match["k"]:
        text = text.removesuffix(tail)
        factor = 10**6 if tail.strip()[0] == "m" else 1000
    parts = re.split(r"\D", text)
    if _GROUPS.fullmatch(text) or len(parts) == 1:
        value = float(re.sub(r"\D", "", text)[:300])
    elif len(parts) == 2:  # noqa: PLR2004  # whole and fraction
        value = float(f"{parts[0]}.{parts[1]}"[:300])
    else:  # a version, an address: equal to itself alone
        value = zlib.crc32(text.encode()) + 0.5
    return Said(*match.span(), numbers=frozenset({value, value * factor}))


def _german(match: re.Match[str]) -> Said:
    ones = words.NUMBERS.get(
        match[1].replace("ein", "eins") if match[1] == "ein" else match[1], 8 if match[1] == "acht" else 1
    )
    return Said(*match.span(), numbers=frozenset({float(ones + words.NUMBERS.get(match[2], 0))}))


def _worded(text: str) -> Iterable[Said]:
    """Yield numbers in words: `twenty-five`, `three hundred`, `two`."""
    start = end = -1
    total = current = 0
    last = ""
    for match in _NUMBER_WORD.finditer(text):
        word = match[0]
        joins = start >= 0 and _JOINS.fullmatch(text[end : match.start()]) is not None
        if joins and word in words.MULTIPLES:
            multiple = words.MULTIPLES[word]
            current = (current or 1) * multiple
            if multiple >= 1000:  # noqa: PLR2004  # closes a group
                total, current = total + current, 0
        elif joins and (last in words.MULTIPLES or (last in words.TENS and words.NUMBERS.get(word, 99) < 10)):  # noqa: PLR2004
            current += words.NUMBERS[word]
        else:
            if start >= 0:
                yield Said(start, end, numbers=frozenset({float(total + current)}))
            start, total = match.start(), 0
            current = words.MULTIPLES[word] if word in words.MULTIPLES else words.NUMBERS[word]
        end, last = match.end(), word
    if start >= 0:
        yield Said(start, end, numbers=frozenset({float(total + current)}))


def _han(text: str) -> float:
    total = section = digit = 0
    for char in text:
        if char in words.HAN_DIGITS:
            digit = digit * 10 + words.HAN_DIGITS[char]
        elif (unit := words.HAN_UNITS[char]) == 10_000:  # noqa: PLR2004  # 万
            total, section, digit = (total + section + digit) * unit, 0, 0
        else:
            section, digit = section + (digit or 1) * unit, 0
    return float(total + section + digit)
