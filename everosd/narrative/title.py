"""The subject of a narrative that no model wrote: what its sources have in common, and from when to when.

The subject that a source has from a model or a person is one; what an extraction without a model puts together (who, when, a
sentence) is none.
"""

# ruff: noqa: RUF001  # signs of other scripts are meant

from __future__ import annotations

import collections
import datetime as dt
import re
from collections.abc import Sequence

from everosd.narrative import chatter, check, faithful, figure, source, spoken, tongue, words

MAX_CHARS = 80
_N_WORDS, _MIN_LETTERS = 3, 4
_N_NAMES = 2
_MIN_SHARED = 2
"""Words that say more than a sentence does."""
_SPAN = re.compile(r" \(\d{4}-\d\d(?: – \d{4}-\d\d)?\)$")
_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
_HAN = re.compile(r"[\u0e00-\u0eff\u3041-\u30ff\u3400-\u9fff\uac00-\ud7a3]")
_MACHINES = frozenset(
    "assistant assistent assistente asistente assistante ai ki bot chatbot agent system 助手 アシスタント".split()  # noqa: SIM905  # reads better
)
_COMMON = (
    frozenset(word for one in tongue.BY_CODE.values() for word in map(words.fold, one.common))
    | frozenset("euro euros eur dollar dollars pound pounds franken cent cents uhr hour hours stunden every".split())  # noqa: SIM905  # reads better
    | check.LIGHT
)


def of(sources: Sequence[source.Source]) -> str:
    """Return the subject of sources, which are in time order: one that they have, else one that is made of their words."""
    given = [subject for one in sources if (subject := " ".join(one.subject.split())) and _is_title(subject)]
    if given:
        counts = collections.Counter(given)
        return max(reversed(given), key=lambda each: counts[each])
    if not sources:
        return ""
    span = _span(sources)
    said = _shared(sources) or _newest(sources)
    return f"{_cut(said, MAX_CHARS - len(span))}{span}" if said else ""


def _is_title(subject: str) -> bool:
    """Return whether somebody gave a subject: no day of it may be outdated, and no head as `Marta, 1 September 2026: …`."""
    return not _SPAN.search(subject) and not any(date.day for one in figure.read(subject) for date in one.dates)


def _span(sources: Sequence[source.Source]) -> str:
    days = [one.at.date() for one in sources if not one.is_narrative]
    days += [day for one in sources if one.is_narrative for day in _days(one)] or (
        [one.at.date() for one in sources] if not days else []
    )
    first, last = f"{min(days):%Y-%m}", f"{max(days):%Y-%m}"
    return f" ({first})" if first == last else f" ({first} – {last})"


def _days(one: source.Source) -> list[dt.date]:
    return [day for turn in spoken.turns(one.content) if (day := faithful.day_of(turn.day)) is not None]


def _shared(sources: Sequence[source.Source]) -> str:
    """Return who speaks, and the names and words that most sources have; empty: they have none in common."""
    having: collections.Counter[str] = collections.Counter()
    speaking: collections.Counter[str] = collections.Counter()
    written: dict[str, collections.Counter[str]] = {}
    for one in sources:
        turns = [turn for turn in spoken.turns(one.content) if not turn.is_tool]
        turns = [turn for turn in turns if words.fold(turn.name) not in _MACHINES] or turns
        speaking.update(sorted({turn.name for turn in turns if turn.name}))
        forms = [word for turn in turns for word in _WORD.findall(turn.text)]
        for word in forms:
            written.setdefault(words.fold(word), collections.Counter())[word] += 1
        having.update(dict.fromkeys(map(words.fold, forms), 1))
    least = max(2, len(sources) // 2 + 1)
    who = [name for name, n in speaking.items() if n >= least and words.fold(name) not in _MACHINES][:_N_NAMES]
    parts = {words.fold(part) for name in speaking for part in name.split()}
    light = _COMMON | parts
    found: list[tuple[bool, int, int, str]] = []
    for folded, n in having.items():
        form = written[folded].most_common(1)[0][0]
        is_name = form[0].isupper() and folded not in words.STARTERS
        is_word = (is_name or len(folded) >= _MIN_LETTERS) and not _HAN.search(form)
        if n >= least and is_word and folded not in light and not chatter.is_empty(form, frozenset()):
            found.append((is_name, n, written[folded].total(), form))
    found.sort(key=lambda each: (not each[0], -each[1], -each[2]))
    if len(found) + len(who) < _MIN_SHARED:
        return ""
    n_names = sum(is_name for is_name, *_ in found)
    topic = ", ".join(form for *_, form in found[: min(_N_WORDS, n_names) if n_names >= _MIN_SHARED else _N_WORDS])
    return f"{', '.join(who)}: {topic}" if who and topic else topic


def _newest(sources: Sequence[source.Source]) -> str:
    """Return the sentence of the newest source that says most; empty: none says anything."""
    for one in reversed(sources):
        turns = [turn for turn in spoken.turns(one.content) if not turn.is_tool]
        present = frozenset(words.fold(part) for turn in turns for part in turn.name.split())
        said = [each for turn in turns for each in spoken.sentences(turn.text)]
        told = [each for each in said if not chatter.is_empty(each, present) and not chatter.asks(each)]
        if told:
            return max(
                reversed(told), key=lambda each: min(len(figure.read(each)), 2) + min(len(each), MAX_CHARS) / MAX_CHARS
            )
    return ""


def _cut(text: str, room: int) -> str:
    """Return a text cut at a word."""
    if len(text) <= room:
        return text
    cut = text.rfind(" ", room // 2, room - 1)
    return text[: cut if cut > 0 else room - 1].rstrip(" ,;:") + "…"
