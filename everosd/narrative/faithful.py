"""A narrative is held against what it was merged from: what it invents, and what it leaves out.

What a source says are its statements: its atomic facts and, of a narrative, the sentences of its content; besides, whatever
of a content holds a name, a number or a date. A statement is told by a narrative that says it in whatever words, with its
names, numbers and dates; that it held earlier, and no more, tells it as well.
"""

# ruff: noqa: RUF001  # signs of other scripts are meant

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from everosd.index import token
from everosd.narrative import bound, chatter, check, figure, measure, people, source, spoken, words, writing

LEAST = 0.15
"""Share of the sources' statements that a text has something of; with less it is none of them (as in extraction)."""

_MIN_WEIGHT = 1.5
"""Words of weight and figures of a statement, besides who makes it: less is a greeting."""
_SIGN_WEIGHT = 0.3
_QUESTION = re.compile(r"[?？؟][\"'”’」』)）]*$")
_REFERS = re.compile(
    r"(?:he|she|they|it|his|her|their|its|er|sie|es|ihr|ihre|sein|seine|il|elle|ils|elles|él|ella|ellos|ellas|lui|lei|loro|ele|ela|eles"
    r"|elas)\b|[他她它]|彼",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\W_]+(?:['’.&-][^\W_]+)*")
_SAID = re.compile(rf"(?<!\S)[-−](?=\d)|[%€$£¥°]|{_WORD.pattern}")
"""Words, and signs that make another number of one."""
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u3041-\u30ff\u3400-\u9fff\uac00-\ud7a3]")
_EMPTY = frozenset(
    "a an the also too really very just so well oh wow yeah der die das dem den des ein eine einen einem einer auch sehr le la les un une"  # noqa: SIM905  # reads better
    " des aussi très el los las una también muy il lo gli anche molto o os uma também muito de het een ook".split()
)
"""Two statements that differ in these say the same."""


class Statement(NamedTuple):
    """One thing that a source says."""

    text: str
    """On one line, with who said it where somebody did."""
    day: dt.date | None
    """When it was said; None: a narrative says it, and not when."""
    at: int
    """Place of its source among them."""
    lead: str = ""
    """The sentence before, where it speaks of `him` or `her`."""


class Verdict(NamedTuple):
    """How a text stands to its sources."""

    inventions: tuple[str, ...]
    """Names, numbers and dates that no source has."""
    strange: tuple[str, ...]
    """Sentences that no source bears out."""
    missing: tuple[Statement, ...]
    """What it does not say, the oldest first."""
    n_statements: int
    n_told: int
    """Of the statements, those that it says."""
    is_of_them: bool
    """Whether it has something of enough of what they say."""

    @property
    def is_true(self) -> bool:
        """Whether it says nothing of its own."""
        return not self.inventions and not self.strange

    @property
    def n_wrong(self) -> int:
        """How much is wrong with it; what is invented weighs more than what is missing."""
        return (len(self.inventions) + len(self.strange)) * 1000 + len(self.missing)


class _Told(NamedTuple):
    """What a text says."""

    grounds: check.Grounds
    bound: bound.Bound
    known: str
    """Its lines, plain."""
    words: frozenset[str]
    """Of them."""

    @classmethod
    def of(cls, lines: Sequence[str], days: Iterable[dt.date]) -> _Told:
        """Read a text."""
        known = "\n".join(map(_plain, lines))
        return cls(_grounds(lines, days), bound.Bound(lines), known, frozenset(known.split()))

    def has(self, text: str) -> bool:
        """Return whether it says something in the same words."""
        plain = _plain(text)
        # Looking for it is what takes long, and only its first and its last word may be part of another.
        return self.words.issuperset(plain.split()[1:-1]) and plain in self.known


class Evidence:
    """Sources, read once. Making it and each `judge` may take a second for long ones: in a thread."""

    def __init__(
        self, sources: Sequence[source.Source], *, is_translated: bool = False, is_summary: bool = False
    ) -> None:
        """Take the sources.

        Args:
            sources: In time order.
            is_translated: Texts are in another language, so only figures can be compared.
            is_summary: Texts may leave things out: what is not certain to be the sources' is none of theirs.
        """
        self._is_translated, self._is_summary = is_translated, is_summary
        self._days = {one.at.date() for one in sources} | {
            day for one in sources for turn in spoken.turns(one.content) if (day := day_of(turn.day)) is not None
        }
        lines = [text for one in sources for text in (one.subject, *_lines(one.content), *beside(one)) if text]
        self._people = people.People((one.subject, *_lines(one.content), *one.facts) for one in sources)
        self._measures = measure.Measures(lines)
        self._grounds = _grounds(lines, self._days)
        self._bound = bound.Bound(lines)
        self._said = {_plain(sentence) for line in lines for sentence in check.sentences(line)}
        self._newest = _grounds(
            [text for one in sources[-1:] for text in (*_lines(one.content), *one.facts)], self._days
        )
        self.statements = distinct(each for at, one in enumerate(sources) for each in _statements(one, at))
        self._figured = distinct(each for at, one in enumerate(sources) for each in _of_content(one, at))
        """What the contents say, for the names, numbers and dates in it."""

    def judge(self, text: str) -> Verdict:
        """Return what is wrong with a text."""
        lines = _lines(text)
        told = _Told.of(lines, self._days)
        missing = [one for one in self.statements if not self._is_told(one, told)]
        n_told = len(self.statements) - len(missing)
        lacking = {one.text for one in missing}
        missing += [one for one in self._figured if one.text not in lacking and self._lacks_figure(one.text, told)]
        return Verdict(
            inventions=tuple(one.text for one in self._inventions("\n".join(lines))),
            strange=self._strange(lines),
            missing=tuple(sorted(distinct(missing), key=_order)),
            n_statements=len(self.statements),
            n_told=n_told,
            is_of_them=self._is_translated
            or n_told > LEAST * len(self.statements)
            or self._grounds.coverage("\n".join(lines)) >= LEAST,
        )

    def bears_out(self, text: str) -> bool:
        """Return whether a line, as a subject is, says nothing of its own."""
        return not self._inventions(text) and (self._is_translated or self._grounds.knows(text))

    def _inventions(self, text: str) -> list[check.Invention]:
        found = self._grounds.inventions(text)
        return [one for one in found if not self._is_translated or one.kind != "name"]

    def _strange(self, lines: Sequence[str]) -> tuple[str, ...]:
        """Return the sentences that no source bears out; what the newest one says cannot have ended."""
        if self._is_translated:
            return ()
        found: list[str] = []
        misplaced = self._people.misplaced(lines)
        for sentence in (each for line in lines for each in check.sentences(line)):
            if sentence in misplaced:
                found.append(sentence)
                continue
            if _plain(sentence) in self._said:
                continue
            if not self._grounds.unsupported(sentence, is_strict=self._is_summary):
                if self._bound.belies(sentence) or self._measures.belies(sentence):
                    found.append(sentence)
                continue
            ended = [one for one in check.clauses(sentence) if words.OVER.search(one)]
            is_over = ended and not self._grounds.unsupported(sentence, may_end=True, is_strict=self._is_summary)
            if not is_over or any(self._newest.supports(words.OVER.sub(" ", one)) for one in ended):
                found.append(sentence)
        return tuple(found)

    def _is_told(self, one: Statement, told: _Told) -> bool:
        if told.has(one.text):
            return True
        if self._is_translated:
            return not self._lacks_figure(one.text, told)
        return told.grounds.supports(one.text) and not told.bound.belies(one.text)

    def _lacks_figure(self, statement: str, told: _Told) -> bool:
        if told.has(statement):
            return False
        return any(not self._is_translated or one.kind != "name" for one in told.grounds.inventions(statement))


def distinct(statements: Iterable[Statement]) -> list[Statement]:
    """Return statements without those that another says in the same words, and goes on; of equal ones the first stays."""
    found = list(statements)
    keys = [key(one.text) for one in found]
    kept: list[int] = []
    # What a statement is the beginning of stands right behind it.
    for at in sorted(range(len(found)), key=lambda at: (keys[at], -at), reverse=True):
        is_said = bool(kept) and keys[kept[-1]][: len(keys[at])] == keys[at]
        if not is_said or check.is_negated(found[kept[-1]].text) is not check.is_negated(found[at].text):
            kept.append(at)
    return [found[at] for at in sorted(kept)]


def key(text: str) -> tuple[str, ...]:
    """Return the words of a statement, in order and in one form each, without those that say nothing."""
    if len(_UNSPACED.findall(text)) * 2 > len(text):
        return tuple(char for char in text if char.isalnum())
    found = []
    for word in _SAID.findall(text):
        folded = words.fold(word).removesuffix("'s")
        if folded not in _EMPTY:
            # Of what has a sign within, as `2.5`, no part stands for the whole.
            found.append((token.lead_terms(folded, "").split() or [folded])[-1] if folded.isalnum() else folded)
    return tuple(found)


def details(missing: Sequence[Statement]) -> str:
    """Return statements as dated lines under their heading; empty: there are none."""
    known = {one.text for one in missing}
    lines: list[str] = []
    for one in missing:
        text = writing.joined([one.lead, one.text]) if one.lead and one.lead not in known else one.text
        lines.append(f"- {one.day.isoformat()}: {text}" if one.day else f"- {text}")
    return "\n".join((spoken.DETAILS, *lines)) if lines else ""


def body(content: str) -> str:
    """Return a content without its details."""
    lines = content.splitlines()
    return "\n".join(lines[: lines.index(spoken.DETAILS)] if spoken.DETAILS in lines else lines).strip()


def refers(sentence: str) -> bool:
    """Return whether a sentence speaks of somebody or something that another one names."""
    return _REFERS.match(sentence) is not None


def is_stated(text: str, present: Iterable[str] = ()) -> bool:
    """Return whether a text states anything: more than a question or a greeting of those who are `present`, folded."""
    said = [one for one in spoken.sentences(text) if not _QUESTION.search(one)]
    return _weight(" ".join(said), frozenset(present)) >= _MIN_WEIGHT


def _weight(text: str, present: frozenset[str]) -> float:
    """Return how much a text says: words of weight, names twice, figures, signs of scripts without spaces."""
    found = [(word, words.fold(word)) for word in _WORD.findall(text) if not _UNSPACED.search(word)]
    said = [(word, folded) for word, folded in found if len(folded) > 2 and folded not in present]  # noqa: PLR2004  # shorter ones say nothing
    n_words = sum(folded not in check.LIGHT or folded in words.NEGATIONS for _, folded in said)
    n_names = sum(word[0].isupper() and folded not in words.STARTERS for word, folded in said[1:])
    return float(n_words + n_names) + len(_UNSPACED.findall(text)) * _SIGN_WEIGHT + len(figure.read(text))


def beside(one: source.Source) -> list[str]:
    """Return the facts of a source that its content does not say, as those that a person added."""
    known = "\n".join(map(_plain, _lines(one.content)))
    left = [fact for fact in one.facts if _plain(fact) not in known]
    if not left or one.is_narrative:
        return []
    grounds = check.Grounds(_lines(one.content), dates=[one.at.date()])
    return [fact for fact in left if not grounds.supports(fact)]


def _statements(one: source.Source, at: int) -> list[Statement]:
    """Return what a source says. The facts of a narrative are taken from its content, which says when."""
    if one.is_narrative or not one.facts:
        return _of_content(one, at)
    found = []
    for fact in one.facts:
        (turn, *_) = spoken.turns(f"{one.at:%Y-%m-%d %H:%M}\n{fact}") or [spoken.Turn("", "")]
        found += _said(turn, one.at.date(), at, map(words.fold, _WORD.findall(turn.name)))
    return found


def _of_content(one: source.Source, at: int) -> list[Statement]:
    found: list[Statement] = []
    turns = spoken.turns(one.content)
    present = frozenset(words.fold(word) for name in {turn.name for turn in turns} for word in _WORD.findall(name))
    for turn in turns:
        if not turn.is_tool:
            day = day_of(turn.day) or (None if one.is_narrative else one.at.date())
            found += _said(turn, day, at, present)
    return found


def _said(turn: spoken.Turn, day: dt.date | None, at: int, present: Iterable[str]) -> list[Statement]:
    """Return the statements of a turn; one that speaks of `him` has the sentence before it with it."""
    found: list[Statement] = []
    lead = ""
    names = frozenset(present)
    for sentence in _whole(spoken.sentences(turn.text)):
        is_about = not turn.name and refers(sentence)
        if not is_about:
            lead = sentence
        if not _QUESTION.search(sentence) and is_stated(sentence, names) and not chatter.is_empty(sentence, names):
            text = f"{turn.name}: {sentence}" if turn.name else sentence
            found.append(Statement(text, day, at, lead if is_about else ""))
    return found


def _whole(sentences: Iterable[str]) -> list[str]:
    """Return sentences, each with what follows it and is none by itself, as `12 litres.`: it may have been cut from it."""
    found: list[str] = []
    for one in sentences:
        is_part = not is_stated(one) and not _QUESTION.search(one) and bool(figure.read(one))
        if found and is_part and not _QUESTION.search(found[-1]):
            found[-1] = writing.joined([found[-1], one])
        else:
            found.append(one)
    return found


def _lines(content: str) -> list[str]:
    """Return a content as the check reads it: who said what, without days and headings."""
    found = []
    for turn in spoken.turns(content):
        text = turn.text.replace("\n", f"\n{spoken.INDENT}") if turn.name else turn.text
        found.append(f"{turn.name}: {text}" if turn.name else text)
    return found


def _grounds(lines: Sequence[str], days: Iterable[dt.date]) -> check.Grounds:
    """Return sources; where they speak of pets and do not say which, a text may know that they are dogs."""
    said = {words.fold(word) for line in lines for word in _WORD.findall(line)}
    is_open = bool(said & words.PET) and not said & words.PETS
    return check.Grounds(lines, dates=days, implied=words.PETS if is_open else ())


def _plain(text: str) -> str:
    return " ".join(text.casefold().split()).rstrip(".。!")


def day_of(text: str) -> dt.date | None:
    """Return a day that is written `2026-08-10`; None: it is none."""
    try:
        return dt.date.fromisoformat(text)
    except ValueError:
        return None


def _order(one: Statement) -> tuple[dt.date, int]:
    return one.day or dt.date.min, one.at
