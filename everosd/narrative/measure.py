"""What a number is a number of: euros or dollars, a month or a day, kilometres or miles."""

# ruff: noqa: RUF001  # signs of other scripts are meant

from __future__ import annotations

import re
from collections.abc import Iterable

from everosd.narrative import figure, words

_CURRENCIES = {
    "euro": "euro euros eur €", "dollar": "dollar dollars usd $ dólares dólar 美元 美金", "pound": "pound pounds gbp £ pfund livres libras 英镑",
    "yen": "yen jpy 円 日元", "yuan": "yuan cny rmb 元 块 人民币", "franc": "franc francs franken chf francos", "krone": "krone kronen kroner",
    "rupee": "rupee rupees rupien roupies rupias", "rouble": "rouble roubles ruble rubles rubel", "peso": "peso pesos", "real": "reais",
}  # fmt: skip
_LENGTHS = {
    "km": "km kilometre kilometres kilometer kilometers kilómetros kilomètres kilomètre 公里", "mile": "mile miles meilen millas 英里",
    "metre": "m metre metres meter meters mètres metros 米", "foot": "feet ft",
}  # fmt: skip
_PERIODS = {
    "hour": "hour stunde heure hora 小时", "day": "day tag jour día dia 天", "week": "week woche semaine semana 周",
    "month": "month monat mois mes mês 月", "year": "year jahr an année año ano 年",
}  # fmt: skip
_OFTEN = {
    "hour": "hourly stündlich", "day": "daily täglich", "week": "weekly wöchentlich hebdomadaire semanal", "month": "monthly monatlich mensuel mensual",
    "year": "yearly annual annually jährlich annuel anual",
}  # fmt: skip


def _named(table: dict[str, str]) -> dict[str, str]:
    return {words.fold(word): unit for unit, said in table.items() for word in said.split()}


_MONEY, _LENGTH, _PERIOD, _RATE = map(_named, (_CURRENCIES, _LENGTHS, _PERIODS, _OFTEN))
_RATED = re.compile(
    r"(?:\b(?:an?|per|each|every|pro|im|par|al|por|la)\s+|/\s?|每个?)"
    rf"(?P<period>{'|'.join(sorted(_PERIOD, key=len, reverse=True))})(?![a-z])"
)
_OFTEN_SAID = re.compile(
    rf"\b(?P<rate>{'|'.join(sorted(_RATE, key=len, reverse=True))})(?:e|e[mnrs]|les?|ment|mente)?\b"
)
_AFTER, _BEFORE = 36, 30
"""Characters around a number where its rate may stand."""
_BETWEEN = re.compile(r"[.;,，。；]\s|[，。；]|\b(?:and|und|et|y|e|but)\b")
_WORD = re.compile(r"[^\W\d_]+|[€$£]")

Units = frozenset[tuple[str, str]]
"""Kind of a unit (money, length, rate) and which."""


def of(text: str) -> list[tuple[frozenset[float], Units]]:
    """Return the numbers of a text, each with its units, as far as they are known."""
    said = [one for one in figure.read(text) if one.numbers and not one.dates and not one.minutes]
    return [(one.numbers, _units(text, one.start, one.end)) for one in said]


class Measures:
    """Numbers of sources, with their units."""

    def __init__(self, lines: Iterable[str]) -> None:
        """Take the lines."""
        self._units: dict[float, set[tuple[str, str]]] = {}
        for line in lines:
            for numbers, units in of(line):
                for number in numbers:
                    self._units.setdefault(number, set()).update(units)

    def belies(self, sentence: str) -> bool:
        """Return whether a number has a unit there which it has nowhere here, where it has another of the kind."""
        for numbers, units in of(sentence):
            known = set[tuple[str, str]]().union(*(self._units.get(number, ()) for number in numbers))
            kinds = {kind for kind, _ in known}
            if any(kind in kinds and (kind, unit) not in known for kind, unit in units):
                return True
        return False


def _units(text: str, start: int, end: int) -> Units:
    found: set[tuple[str, str]] = set()
    before, after = words.fold(text[max(0, start - _BEFORE) : start]), words.fold(text[end : end + _AFTER])
    after = _BETWEEN.split(after, maxsplit=1)[0]
    next_number = re.search(r"\d", after)
    after = after[: next_number.start()] if next_number else after
    before = re.split(r"\d|[.;]\s", _BETWEEN.split(before)[-1])[-1]
    near = after.lstrip(" -")
    first = _WORD.match(near)
    noun = first[0] if first else ""
    sign = before.rstrip()[-1:]
    if money := _MONEY.get(noun) or (_MONEY.get(sign) if sign in "€$£" else None):
        found.add(("money", money))
    elif noun in _LENGTH:
        found.add(("length", _LENGTH[noun]))
    elif noun and not noun.isascii():
        found |= {("money", unit) for said, unit in _MONEY.items() if not said.isascii() and noun.startswith(said)}
    found |= {("rate", _PERIOD[match["period"]]) for match in _RATED.finditer(after)}
    found |= {("rate", _RATE[match["rate"]]) for part in (before, after) for match in _OFTEN_SAID.finditer(part)}
    return frozenset(found)
