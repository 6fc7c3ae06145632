"""What a text says that its sources do not: names, numbers and dates out of nowhere, statements without support.

Nothing here asks a model. Names are what is written large, so in scripts without capitals only those are known that stand
in quotation marks, beside a form of address, or in another script. German writes every noun large: there the word before
has to tell. Where in doubt a text is taken to invent: whoever asks has the sources' own words to fall back on.
"""

# ruff: noqa: RUF001  # signs of other scripts are meant

from __future__ import annotations

import datetime as dt
import functools
import re
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

import msgspec

from everosd.index import token
from everosd.narrative import figure, nearest, sentence, words

SUPPORT = 0.6
"""Share of a statement's words that its sources must have."""

PROSE_SUPPORT = 0.5
"""The same of a sentence of a longer text, which has words of its own to hold it together."""

MAX_COUNT = 20
"""Above, a number is no count of what a text lists."""

_CASED = r"[A-ZÀ-ÖØ-ÞĀ-ŽΑ-ΩА-ЯЁ]"
_NAME_WITHIN = re.compile(rf"(?<=[\w,] ){_CASED}[^\W\d_]{{2,}}")
WORD = re.compile(r"[^\W_]+(?:['’.&-][^\W_]+)*")
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u3041-\u30ff\u3400-\u9fff\uac00-\ud7a3]")
_OPENS = re.compile(r"(?:^|[.!?…:;。！？：]|[\"'“”„«»‘(\[*•#>-]|\n)\s*$")
_ABBREVIATED = re.compile(r"\b(?:mr|mrs|ms|dr|prof|st|sr|jr|vs|e\.g|i\.e|bzw|z\.b)\.\s*$", re.IGNORECASE)
_MAY = re.compile(r"\b\d{1,2}(?:er|\.)?\s+mai\b|\bmai\s+\d{4}|\b(?:im|seit|ab|en|fin|debut|depuis)\s+mai\b")
"""A month that is called as Italians say never."""
_BORN = re.compile(r"\bnés?\b", re.IGNORECASE)
"""Without its accent it would deny."""
_SPEAKER = re.compile(
    r"^(?:\W*\d{4}-\d\d-\d\d[^\n:]*(?:\d\d:\d\d(?::\d\d)?)?\]?\s+|\[[^\]\n]{1,40}\]\s*)?(?P<name>[^\s:：][^:：\n]{0,59})[:：]\s?(?P<said>.*)$"
)
_DAY_LINE = re.compile(r"^\d{4}-\d\d-\d\d(?: \d\d:\d\d)?$")
_QUOTED = re.compile(r"[「『《“„]([^」』》”“\n]{2,40})[」』》”“]")
_ADDRESSED = re.compile(
    r"(?P<ja>[\u30a0-\u30ff\u4e00-\u9fffA-Za-z]{1,8})(?:さん|くん|ちゃん|君|様|先生|氏)|(?:名叫|叫做|名为|名為)(?P<zh>[\u4e00-\u9fff]{2,3})|(?P<near>[小老阿][\u4e00-\u9fff])(?![\u4e00-\u9fff]{0,1}[时時家学學])"
)
_KATAKANA = re.compile(r"[\u30a1-\u30fa\u30fc]{2,}")
_LIST = re.compile(r"[^,.;:!?\n]{1,60}(?:, [^,.;:!?\n]{1,60}){1,20},? (?:and|und|et|y|e|en|и) [^,.;:!?\n]{1,60}")
_LISTED = re.compile(r",? (?:and|und|et|y|e|en|и) |, ")
_HAN_GLUE = frozenset(
    "的了是在和他她我你您们們很也不有说說这這那着著过過就都还還要会會能对對为為与與及并其之被把将將让讓给給从從到地得个個一上下来來去以可没沒又再吗呢吧啊呀"
)
_CLAUSE = re.compile(r"[,;:，；：、]|\s[–—-]\s|\b(?:and|but|though|und|aber|sondern|et|mais|y|pero|e|ma|mas|и|но)\b")
_QUESTION = re.compile(r"[?？؟]")
_DETERMINED = re.compile(
    r"\b(?:an?|his|her|their|my|our|your|another|two|three|four|five|some|new)\s+((?:[a-z-]+\s+){0,2}?[a-z-]+)\b(?=\s*(?:[.,;:!?)]|$|\b(?:named|called|and|or|who|which|that|with|from|in|at|on|to|for|of|is|was|has|by|about|as)\b))"
)
_DEMONYMS = (
    "an",
    "n",
    "ian",
    "ean",
    "ish",
    "ese",
    "i",
    "ic",
    "isch",
    "ische",
    "ischen",
    "ischer",
    "er",
    "ais",
    "aise",
    "ano",
    "ana",
    "en",
    "enne",
    "ais",
)
STOP = token.STOP_WORDS | words.STOP
LIGHT = STOP | words.TELLING | words.ABSTRACT
"""Words that a text may bring along."""
_SHORT = 3.0  # words of weight of a sentence in which each of them is what it says
_MIN_STATEMENT = 3  # words of weight; one in so many has to be told
_LEAD_CHARS = 40  # before a word, that say whether it begins a sentence
_MIN_STEM, _SURE_STEM = 4, 5  # letters that two forms of a word share
_MIN_NICKNAME = 3
_N_OTHERS = 2  # words shared with a clause, above which one may be missing


class Invention(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a text says and none of its sources."""

    kind: Literal["name", "number", "date"]
    text: str
    """As it is written there."""


class _Unit(NamedTuple):
    """A line or sentence of the sources."""

    text: str
    terms: frozenset[str]
    about: frozenset[str]
    """Who says it and who is named in it, folded words of names."""


class Grounds:
    """Sources, read once, against which texts are held.

    Lines like `Name: what was said` are read as said by that name: then a statement about one who speaks has to have its
    words from what they say, what is said of them, or what they were asked.
    """

    def __init__(self, sources: Iterable[str], *, dates: Iterable[dt.date] = (), implied: Iterable[str] = ()) -> None:
        """Take the sources, days that they are of besides those that they name (their timestamps), and words that they imply."""
        self._whole = "\n".join(sources)
        self._implied = frozenset(form for word in implied for form in _forms(word))
        figures = figure.read(self._whole)
        self._dates = {date for one in figures for date in one.dates} | {
            figure.Date(day.year, day.month, day.day) for day in dates
        }
        self._years = {date.year for date in self._dates if date.year}
        self._weekdays = {date.weekday for date in self._dates if date.weekday is not None} | {
            day.weekday() for date in self._dates if (day := _day(date)) is not None
        }
        self._minutes = {minute for one in figures for minute in one.minutes}
        self._numbers = {number for one in figures for number in one.numbers}
        self._terms = _terms(self._whole)
        self._names = frozenset(words.fold(word) for word in re.findall(rf"{_CASED}[^\W\d_]+", self._whole))
        self._names_by_start: dict[str, list[str]] = {}
        for name in self._names:
            self._names_by_start.setdefault(name[:_MIN_NICKNAME], []).append(name)
        self._n_listed: frozenset[int] | None = None
        self._speakers: frozenset[str] = frozenset()
        self._names_said: tuple[str, ...] = ()
        """Of those who speak, as they are written, the longest first."""
        self._units = self._read_units()
        # German writes every noun large: only who speaks is known to be a name.
        names = self._speakers if reads_german(self._whole) else self._names
        self._name_forms = frozenset(form for name in names for form in _forms(name))
        self._all = _Pool(self._units)
        self._pools: dict[frozenset[str], _Pool] = {}

    # -- names, numbers, dates ------------------------------------------------------------------------------------------

    def inventions(self, text: str) -> tuple[Invention, ...]:
        """Return the names, numbers and dates of `text` that no source has, in the order of the text, each once.

        No inventions are: the year of a day that has none in the sources, where they are of that year; the weekday of
        a day; a count of what the text or a source lists; one.
        """
        found: list[tuple[int, Invention]] = []
        figures = figure.read(text)
        for one in figures:
            kind: Literal["date", "number"] = "date" if one.dates or one.minutes else "number"
            if not self._has(one, text):
                found.append((one.start, Invention(kind=kind, text=text[one.start : one.end])))
        taken = frozenset(at for one in figures for at in range(one.start, one.end))
        found += ((at, Invention(kind="name", text=name)) for at, name in self._strangers(text, taken))
        return tuple(dict.fromkeys(one for _, one in sorted(found, key=lambda each: each[0])))

    def _has(self, one: figure.Said, text: str) -> bool:
        if one.dates and any(self._has_date(date) for date in one.dates):
            return True
        if one.minutes and one.minutes & self._minutes:
            return True
        if not one.numbers:
            return False
        if one.numbers & self._numbers or 1.0 in one.numbers:
            return True
        number = min(one.numbers)
        return number == 0 or (not one.dates and self._is_count(number, text, one.end))

    def _has_date(self, asked: figure.Date) -> bool:
        if asked.weekday is not None:
            return asked.weekday in self._weekdays
        if asked in self._dates or any(asked.fits(date) for date in self._dates):
            return True
        return asked.year in self._years and any(
            date.year is None and date.month is not None and asked._replace(year=None).fits(date)
            for date in self._dates
        )

    def _is_count(self, number: float, text: str, at: int) -> bool:
        """Return whether a number may count what is listed: as many names stand beside what it counts, or in a list."""
        if number > MAX_COUNT:
            return False
        if self._n_listed is None:
            self._n_listed = _n_listed(self._whole)
        if number in self._n_listed or number in _n_listed(text):
            return True
        after = [words.fold(word) for word in WORD.findall(text[at : at + 60])[:2]]
        if number == len(self._names_said) and not words.PEOPLE.isdisjoint(after):
            return True
        counted = [word for word in WORD.findall(text[at : at + 60])[:3] if words.fold(word) not in LIGHT]
        for word in counted[:2]:
            stems = _forms(word)
            beside: set[str] = set()
            counting = [one for one in sentences(text) if stems & _terms(one)]
            counting += [unit.text for unit in self._units if stems & unit.terms]
            for one in counting:
                beside |= {words.fold(name) for name in _beside(stems, one)} & self._names - words.MONTHS.keys()
            if beside and number in (len(beside), len(beside - self._speakers)):
                return True
        return False

    def _strangers(self, text: str, taken: frozenset[int]) -> Iterator[tuple[int, str]]:
        """Yield the names in `text` that no source has, and where they stand."""
        is_german = reads_german(text)
        before = ""
        for match in WORD.finditer(text):
            word = match[0]
            previous, before = before, word
            if match.start() in taken or _UNSPACED.search(word):
                continue
            has_capital = any(char.isupper() for char in word)
            has_digit = any(char.isdigit() for char in word)
            if not has_capital and not (has_digit and any(char.isalpha() for char in word)):
                continue
            folded = words.fold(word)
            if self._knows_name(word) or folded in words.MONTHS or len(folded) == 1:
                continue
            if not has_digit and _is_common(text, match.start(), word, folded, previous, is_german=is_german):
                continue
            yield match.start(), word
        if _UNSPACED.search(text):
            yield from self._unspaced_strangers(text)

    def _knows_name(self, word: str) -> bool:
        """Return whether the sources have this name, in part, as a nickname, or as what it is derived from."""
        parts = [part for part in re.split(r"['’.&-]", words.fold(word)) if part and part != "s"]
        return bool(_forms(word) & self._terms) or all(self._knows_part(part) for part in parts)

    def _knows_part(self, part: str) -> bool:
        if _forms(part) & self._terms or part in words.STARTERS:
            return True
        for name in self._names_by_start.get(part[:_MIN_NICKNAME], ()):
            short, long = sorted((part, name), key=len)
            if (
                len(short) >= _MIN_NICKNAME
                and long.startswith(short)
                and (len(long) > len(short) + 1 or long[-1] in "sn")
            ):
                return True
            n_shared = _n_shared(part, name)
            if (
                n_shared >= _MIN_STEM - 1
                and (part[n_shared:] in _DEMONYMS or name[n_shared:] in _DEMONYMS)
                and (
                    len(part) - n_shared <= 4 and len(name) - n_shared <= 4  # noqa: PLR2004  # endings
                )
            ):
                return True
        return False

    def _unspaced_strangers(self, text: str) -> Iterator[tuple[int, str]]:
        for form in (_QUOTED, _ADDRESSED, _KATAKANA):
            for match in form.finditer(text):
                name = next((group for group in match.groups() if group), match[0])
                if name not in self._whole and not (form is _KATAKANA and self._has_foreign(name)):
                    yield match.start(), name

    def _has_foreign(self, name: str) -> bool:
        """Return whether most pairs of signs of a word in Katakana are in the sources."""
        pairs = [name[at : at + 2] for at in range(len(name) - 1)]
        return sum(pair in self._whole for pair in pairs) * 3 > len(pairs) * 2

    # -- statements ---------------------------------------------------------------------------------------------------

    def supports(self, statement: str) -> bool:
        """Return whether the sources say a statement.

        That is: nothing of it is an invention, at least `SUPPORT` of its words are theirs, nothing that one could own or
        meet is new in it, it is negated where they are, and what it says of somebody was said by them or of them.
        """
        return not self.inventions(statement) and self._says(statement, SUPPORT)

    def unsupported(self, text: str, *, may_end: bool = False, is_strict: bool = False) -> tuple[str, ...]:
        """Return the sentences of `text` that the sources do not say, inventions apart; at least `PROSE_SUPPORT` is theirs.

        Args:
            text: Whatever.
            may_end: What they say may be said to hold no longer.
            is_strict: Of a short sentence more than half is theirs, and what it says that somebody feels, wants or decides: for
                a text out of which a sentence may be taken without loss.
        """
        return tuple(
            one
            for one in sentences(text)
            if not self._says(one, PROSE_SUPPORT, may_end=may_end)
            or (is_strict and not self._says_all(one, self._pool(one)))
        )

    def knows(self, title: str) -> bool:
        """Return whether a title is made of the words of the sources, whatever they say with them; inventions apart."""
        return self._has_words(title, self._pool(title), PROSE_SUPPORT)

    def coverage(self, text: str) -> float:
        """Return the share of the sources' statements that a text tells something of, 0 to 1; 1 where they make none.

        A statement counts that has at least three words of weight and asks nothing; of each the text has to have one in
        three.
        """
        if not any(_heavy(text)):
            return 0.0
        pool = _Pool([_Unit(text, _terms(text), frozenset())])
        n_told = n_statements = 0
        for unit in self._units:
            heavy = [word for word, _ in _heavy(unit.text)]
            if len(heavy) < _MIN_STATEMENT or _QUESTION.search(unit.text):
                continue
            n_statements += 1
            n_told += sum(self._has_word(word, pool) for word in heavy) * _MIN_STATEMENT >= len(heavy)
        return n_told / n_statements if n_statements else 1.0

    def _says(self, statement: str, support: float, *, may_end: bool = False) -> bool:
        speaker = _SPEAKER.match(statement)
        pool = self._pool(statement)
        told = (
            speaker["said"]
            if speaker and words.fold(speaker["name"]).split(maxsplit=1)[0] in self._speakers
            else statement
        )
        for name in self._names_said:
            told = told.replace(name, " ") if _UNSPACED.search(name) else told
        if not self._heavy_of(told):
            return True
        return self._has_words(told, pool, support) and (
            self._agrees(told, pool) or (may_end and self._agrees(words.OVER.sub(" ", told), pool))
        )

    def _says_all(self, statement: str, pool: _Pool) -> bool:
        """Return whether a short statement has nothing of weight of its own; a longer one has words that hold it together.

        What tells of a talk has words of its own for how it was said: there only a statement without any others is looked at.
        """
        heavy = self._heavy_of(statement)
        total = sum(weight for _, weight in heavy)
        if total > (0 if self._speakers else _SHORT):
            return True
        found = sum(weight for word, weight in heavy if self._has_word(word, pool))
        if heavy and found <= PROSE_SUPPORT * total and not figure.read(statement):
            return False
        stances = [word for word in WORD.findall(statement) if words.fold(word) in words.STANCE]
        return all(self._has_word(word, pool) for word in stances)

    def _has_words(self, told: str, pool: _Pool, support: float) -> bool:
        heavy = self._heavy_of(told)
        found = sum(weight for word, weight in heavy if self._has_word(word, pool))
        total = sum(weight for _, weight in heavy)
        if found < support * total:
            return False
        return all(self._has_thing(phrase, pool) for phrase in _DETERMINED.findall(told))

    def _heavy_of(self, told: str) -> list[tuple[str, float]]:
        """Return the words of weight but names: that somebody is named says nothing of what is told of them."""
        return [(word, weight) for word, weight in _heavy(told) if not _forms(word) & self._name_forms]

    def _has_thing(self, phrase: str, pool: _Pool) -> bool:
        noun = words.fold(phrase.rsplit(maxsplit=1)[-1].rsplit("-", maxsplit=1)[-1])
        if noun in LIGHT or noun in words.NUMBERS or noun.endswith(words.COMMON_ENDINGS):
            return True
        return self._has_word(noun, pool)

    def _has_word(self, word: str, pool: _Pool) -> bool:
        if _UNSPACED.search(word):
            return word in pool.text
        return pool.has(word) or bool(_forms(word) & self._implied)

    def _agrees(self, statement: str, pool: _Pool) -> bool:
        """Return whether a statement is negated as what it was taken from is."""
        return all(self._agrees_clause(clause, pool) for clause in clauses(statement))

    def _agrees_clause(self, clause: str, pool: _Pool) -> bool:
        heavy = {form for word, _ in _heavy(clause, STOP) for form in _forms(word)} - self._name_forms
        denied = pool.like(frozenset(heavy))
        return not denied or is_negated(clause) in denied

    def _pool(self, statement: str) -> _Pool:
        """Return what is said by or of those who speak and are named in a statement; all where nobody is."""
        named = frozenset(words.fold(word) for word in WORD.findall(re.sub(r"['’]s\b", "", statement))) & self._speakers
        if not named or named >= self._speakers:
            return self._all
        if named not in self._pools:
            chosen = []
            for at, unit in enumerate(self._units):
                follows = self._units[at + 1].about if at + 1 < len(self._units) else frozenset[str]()
                if unit.about & named or (follows & named and _QUESTION.search(unit.text)):
                    chosen.append(unit)
            self._pools[named] = _Pool(chosen)
        return self._pools[named]

    def _read_units(self) -> list[_Unit]:
        """Take the sources apart: lines of a transcript, else sentences; who is meant goes on until another is named."""
        lines = [line for line in self._whole.split("\n") if line.strip() and not _DAY_LINE.match(line.strip())]
        spoken = [(_SPEAKER.match(line) if not line.startswith(" ") else None) for line in lines]
        counts: dict[str, int] = {}
        for match in spoken:
            if match:
                counts[match["name"]] = counts.get(match["name"], 0) + 1
        is_talk = sum(counts.values()) * 3 >= len([line for line in lines if not line.startswith(" ")]) * 2
        if is_talk:
            self._names_said = tuple(sorted(counts, key=len, reverse=True))
            self._speakers = frozenset(
                part for name in counts for part in words.fold(name).split() if len(part) > 1 and part not in STOP
            )
        units: list[_Unit] = []
        about: frozenset[str] = frozenset()
        for line, match in zip(lines, spoken, strict=True):
            name = match["name"] if match and is_talk else ""
            said = match["said"] if match and is_talk else line
            if name:
                about = frozenset(words.fold(name).split())
            for one in sentences(said):
                folded = frozenset(words.fold(word) for word in WORD.findall(re.sub(r"['’]s\b", "", one)))
                units.append(_Unit(one, _terms(one), (folded & self._speakers) | about))
        return units


class _Pool:
    """Units to take words from."""

    def __init__(self, units: Iterable[_Unit]) -> None:
        self.units = list(units)
        self.text = "\n".join(unit.text for unit in self.units)
        self._terms: frozenset[str] = frozenset().union(*(unit.terms for unit in self.units))
        self._prefixes = _prefixes(self._terms)
        self._bases = frozenset(words.IRREGULAR[term] for term in self._terms if term in words.IRREGULAR)
        told = [clause for unit in self.units for clause in clauses(unit.text)]
        self._denied = [is_negated(clause) for clause in told]
        self._nearest = nearest.Nearest(map(_terms, told))

    def like(self, terms: frozenset[str]) -> set[bool]:
        """Return whether what the clauses that have most of the terms say is denied, as far as there are any."""
        return {self._denied[at] for at in self._nearest.find(terms, _N_OTHERS)}

    def has(self, word: str) -> bool:
        """Return whether there is a form of `word`."""
        if _forms(word) & self._terms:
            return True
        folded = words.fold(word)
        forms = _forms(word) | {folded}
        bases = {base for form in forms if (base := words.IRREGULAR.get(form)) is not None}
        if bases & self._terms or not (bases or forms).isdisjoint(self._bases):
            return True
        return any(_is_form(folded, other) for other in self._prefixes.get(folded[:_MIN_STEM], ()))


def inventions(text: str, sources: Iterable[str], *, dates: Iterable[dt.date] = ()) -> tuple[Invention, ...]:
    """Return the names, numbers and dates of `text` that no source has; see `Grounds`."""
    return Grounds(sources, dates=dates).inventions(text)


def is_supported(statement: str, sources: Iterable[str], *, dates: Iterable[dt.date] = ()) -> bool:
    """Return whether the sources say what `statement` says; for several statements make `Grounds` once."""
    return Grounds(sources, dates=dates).supports(statement)


def sentences(text: str) -> list[str]:
    """Return the sentences of a text, without those that are empty."""
    return sentence.split(text)


def _n_listed(text: str) -> frozenset[int]:
    """Return how many things a text lists, of each list."""
    return frozenset(len(_LISTED.split(listed)) for listed in _LIST.findall(text))


def _beside(stems: frozenset[str], text: str) -> list[str]:
    """Return the names behind a noun, or those before it where there are none: not the one who has what they are."""
    at = next((match.start() for match in WORD.finditer(text) if _forms(match[0]) & stems), 0)
    found = [(match.start(), match[0]) for match in _NAME_WITHIN.finditer(text)]
    return [name for place, name in found if place > at] or [name for _, name in found]


def _terms(text: str) -> frozenset[str]:
    return frozenset(token.lead_terms(text, "").split())


@functools.lru_cache(maxsize=20_000)
def _forms(word: str) -> frozenset[str]:
    """Return the terms that stand for a word as a whole; a part of a compound does not."""
    plain = re.sub(r"['’]s$", "", word)
    return frozenset(
        term.text for term in token.query_terms(plain) if term.weight > token.PART_WEIGHT and not term.is_pair
    ) or frozenset({words.fold(plain)})


def _prefixes(terms: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for term in terms:
        if len(term) >= _MIN_STEM:
            found.setdefault(term[:_MIN_STEM], []).append(term)
    return found


def _is_form(one: str, other: str) -> bool:
    """Return whether two words may be forms of one."""
    n_shared = _n_shared(one, other)
    if n_shared >= _SURE_STEM and n_shared * 5 >= max(len(one), len(other)) * 3:
        return True
    return n_shared >= _MIN_STEM and one[n_shared:] in words.ENDINGS and other[n_shared:] in words.ENDINGS


def _n_shared(one: str, other: str) -> int:
    return next(
        (at for at, (left, right) in enumerate(zip(one, other, strict=False)) if left != right),
        min(len(one), len(other)),
    )


def _heavy(text: str, light: frozenset[str] = LIGHT) -> Iterator[tuple[str, float]]:
    """Yield the words of a text that are not `light`, with their weight; of scripts without spaces, single signs."""
    taken = frozenset(at for one in figure.read(text) for at in range(one.start, one.end))
    for match in WORD.finditer(text):
        word = match[0]
        if match.start() in taken:
            continue
        if _UNSPACED.search(word):
            yield from ((char, 0.4) for char in word if char not in _HAN_GLUE and not "\u3041" <= char <= "\u309f")
            continue
        folded = words.fold(word)
        if folded in light or folded in words.NEGATIONS or len(folded) < 3:  # noqa: PLR2004  # says nothing
            continue
        yield word, 1.0


def is_negated(text: str) -> bool:
    """Return whether a text denies anything."""
    folded = _MAY.sub(" ", words.fold(_BORN.sub(" ", text)))
    return (
        not words.NEGATIONS.isdisjoint(re.findall(r"[^\W_]+(?:'[^\W_]+)?", folded))
        or "n't" in folded
        or any(sign in text for sign in words.HAN_NEGATIONS)
    )


def clauses(text: str) -> list[str]:
    """Return the parts of a sentence of which one may be denied and the other not."""
    return [one for one in _CLAUSE.split(text) if one.strip()]


def reads_german(text: str) -> bool:
    """Return whether a text is German, where every noun is written large."""
    found = [words.fold(word) for word in WORD.findall(text)]
    return sum(word in words.GERMAN for word in found) * 8 > len(found)


def _is_common(text: str, at: int, word: str, folded: str, previous: str, *, is_german: bool) -> bool:
    """Return whether a word written large is none of the names: it begins a sentence, or German writes it so."""
    if folded in words.STARTERS or folded in STOP:
        return True
    is_plain = word[0].isupper() and word[1:].islower()
    lead = text[max(0, at - _LEAD_CHARS) : at]
    opens = _OPENS.search(lead) is not None and _ABBREVIATED.search(lead) is None
    if is_plain and (opens or is_german) and (folded.endswith(words.COMMON_ENDINGS) or folded in LIGHT):
        return True
    if opens and re.search(rf"\b{re.escape(word.lower())}\b", text):
        return True
    if is_german and is_plain and not opens:
        before = words.fold(previous)
        return before in words.LEADS_TO_NOUN or (
            before not in STOP
            and before.endswith(("e", "en", "er", "es", "em"))
            and before[:1].islower()
            and previous[:1].islower()
        )
    return False


def _day(date: figure.Date) -> dt.date | None:
    if date.year is None or date.month is None or date.day is None:
        return None
    try:
        return dt.date(date.year, date.month, date.day)
    except ValueError:
        return None
