"""Extraction without a model: what was said is the content, and subject, summary and facts are picked from it.

Deterministic, in whatever language was spoken: nothing is added to the words but who said them and what dates they mean.
"""

# ruff: noqa: RUF001  # signs of other scripts are meant

from __future__ import annotations

import collections
import datetime as dt
import itertools
import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from everosd import clock
from everosd.index import token
from everosd.intake import message, when
from everosd.narrative import spoken, tongue

BY = "verbatim"
"""What stands where a model's name would."""

MAX_SUBJECT_CHARS = 120
MAX_SUMMARY_CHARS = 400
"""Of whatever extracts. What is picked from a transcript is shorter: it says twice what the content says, and LoCoMo's
sessions are found better (docs/decisions) with less of that."""
MAX_TOOL_CHARS = 600
"""Of what a tool answered; all of it is in the session's log."""

_SUBJECT_CHARS, _SUMMARY_CHARS = 80, 200
_N_SUMMARY = 5
_MIN_TAIL = 20  # characters of a sentence that are better than none
_BRACKETS = re.compile(r"\((?!\d{4})[^()\n]*\)")
_QUESTION = re.compile(r"[?？؟][\"'”’」』)）]*$")
_DIGITS = re.compile(r"\d+(?:[.,:/-]\d+)*")
_NAME = re.compile(r"(?<=[\w,;] )[A-ZÀ-ÖØ-ÞА-Я][\w’'-]{2,}")
"""A word that is written large within a sentence; in German nouns are, which are as good."""
_DATED = re.compile(r" ?[(（]\d{4}(?:-\d\d)?(?:-\d\d)?[^()（）]{0,20}[)）]")
"""What `when` puts behind a phrase."""
_SELF = frozenset(
    "i i'm my we our me us ich mein meine wir unser mir je j mon ma mes nous yo mi mis nosotros io mio mia noi eu meu minha "  # noqa: SIM905
    "nós".split()
)
_OTHER = frozenset("you your du dein deine ihr euch tu ton ta tes vous votre tú te ti usted você seu sua voi".split())  # noqa: SIM905  # reads better
_HAN_SELF, _HAN_OTHER = re.compile("[我咱私僕俺]"), re.compile("[你您]|あなた")
_DATE_WEIGHT, _MAX_DEFINITE = 2, 3
_FULL_WORDS = 7
"""Words that say something; a sentence with fewer weighs less."""
_WORD = re.compile(r"[^\W\d_]+")
_RUN = re.compile(r"[\u3041-\u30ff\u4e00-\u9fff]{2,}")
_COMMON = token.STOP_WORDS.union(*(one.common for one in tongue.BY_CODE.values()))


# -- a segment ---------------------------------------------------------------------------------------------------------


def extract(segment: message.Segment, zone: dt.tzinfo) -> message.Extracted:
    """Return the segment as an Episode; `zone` is that of whoever took part."""
    content = transcript(segment.messages, zone)
    said = spoken.turns(content)
    telling = _telling(said)
    return message.Extracted(
        subject=_subject(content, said, telling), summary=_summary(telling), content=content, by=BY
    )


def transcript(messages: Sequence[message.Message], zone: dt.tzinfo) -> str:
    """Return who said what under the day it was said, with the dates of relative times behind them.

    Further lines of a message are indented, so that no message can pass for another sender's. Messages without text are
    left out. Of what a tool answered there is the beginning, and its name is in brackets, as nobody else's is.
    """
    lines: list[str] = []
    day: dt.date | None = None
    for one in messages:
        text = one.text.strip()
        if not text:
            continue
        moment = clock.from_us(one.timestamp_us).astimezone(zone)
        if moment.date() != day:
            day = moment.date()
            lines.append(f"{moment:%Y-%m-%d %H:%M}")
        name = _called(one.name)
        if one.role == "tool":
            name = f"[{name}]"
            text = text if len(text) <= MAX_TOOL_CHARS else text[:MAX_TOOL_CHARS].rstrip() + " …"
        else:
            text = when.resolved(text, one.timestamp_us, zone)
        lines.append(f"{name}: " + f"\n{spoken.INDENT}".join(text.splitlines()))
    return "\n".join(lines)


def _called(name: str) -> str:
    """Return a name that a line can begin with."""
    return " ".join(re.sub(r"[:：\s]+", " ", name).strip(" []").split())[: spoken.NAME_CHARS - 2].strip(" []") or "?"


# -- what it is about --------------------------------------------------------------------------------------------------


def subject(content: str) -> str:
    """Return one line of at most 80 characters: who, when, and the sentence that says most of what it is about."""
    said = spoken.turns(content)
    return _subject(content, said, _telling(said))


def _subject(content: str, said: Sequence[spoken.Turn], telling: Sequence[_Sentence]) -> str:
    names = list(dict.fromkeys(turn.name for turn in said if turn.name and not turn.is_tool))
    day = next((line[:10] for line in content.splitlines() if spoken.DAY.match(line.rstrip())), "")
    code = tongue.of(content)
    parts = [", ".join(names[:3])] if names else []
    if day:
        parts.append(tongue.date(dt.date.fromisoformat(day), code))
    head = ", ".join(parts)
    room = _SUBJECT_CHARS - len(head) - 2
    tail = ""
    if telling and room > _MIN_TAIL:
        best = telling[0].who if len(names) > 1 else telling[0].text
        tail = _cut(_DATED.sub("", best), room)  # the day it was said on stands before it
    return (f"{head}: {tail}" if head and tail else head or tail)[:_SUBJECT_CHARS]


def summary(content: str) -> str:
    """Return the sentences that say most of what it is about, in order, at most 200 characters."""
    return _summary(_telling(spoken.turns(content)))


def _summary(telling: Sequence[_Sentence]) -> str:
    picked: list[tuple[int, str]] = []
    room = _SUMMARY_CHARS
    for one in telling[:_N_SUMMARY]:
        if len(one.who) < room:
            picked.append((one.at, one.who))
            room -= len(one.who) + 1
    return " ".join(sentence for _, sentence in sorted(picked))


def _telling(said: Sequence[spoken.Turn]) -> list[_Sentence]:
    """Return the sentences, those that say most first.

    That is: something definite, as a date, a name or a number; of whoever speaks and not of whom is spoken to; and
    something of what else is spoken of.
    """
    present = frozenset(word for turn in said for word in turn.name.lower().split())
    sentences: list[_Sentence] = []
    counts: collections.Counter[str] = collections.Counter()
    for turn in (one for one in said if not one.is_tool):
        for sentence in spoken.sentences(_BRACKETS.sub(" ", turn.text)):
            if spoken.says_something(sentence) and not _QUESTION.search(sentence):
                words = _words(sentence) - present
                counts.update(words)
                who = f"{turn.name}: {sentence}" if turn.name else sentence
                sentences.append(_Sentence(len(sentences), who, sentence, words))
    if not sentences:
        first = " ".join(said[0].text.split()) if said else ""
        return [_Sentence(0, first, first, frozenset())] if first else []

    def weight(one: _Sentence) -> float:
        said = set(_WORD.findall(one.text.lower()))
        names = {name for name in _NAME.findall(one.text) if name.lower() not in present}
        text, n_dates = _DATED.subn("", one.text)
        definite = _DATE_WEIGHT * bool(n_dates) + min(_MAX_DEFINITE, len(_DIGITS.findall(text)) + len(names))
        person = bool(said & _SELF or _HAN_SELF.search(one.text)) - bool(said & _OTHER or _HAN_OTHER.search(one.text))
        shared = sum(math.log(counts[word]) for word in one.words) / math.sqrt(len(one.words) + 4)
        short = min(1.0, (len(one.words) + 1) / _FULL_WORDS)
        return (definite + person + shared + 1) * short * (1 - 0.3 * one.at / len(sentences))

    return sorted(sentences, key=weight, reverse=True)


class _Sentence(NamedTuple):
    at: int
    """Place among them."""
    who: str
    """With who said it."""
    text: str
    words: frozenset[str]


def _words(sentence: str) -> frozenset[str]:
    """Return the words that say something; of scripts without spaces pairs of signs."""
    words = {word for word in _WORD.findall(sentence.lower()) if len(word) > 2 and word not in _COMMON}  # noqa: PLR2004
    for run in _RUN.findall(sentence):
        words.update(first + second for first, second in itertools.pairwise(run))
    return frozenset(words)


def _cut(text: str, room: int) -> str:
    """Return a text cut at a word."""
    if len(text) <= room:
        return text
    cut = text.rfind(" ", room // 2, room - 1)
    return text[: cut if cut > 0 else room - 1].rstrip(" ,;:") + "…"
