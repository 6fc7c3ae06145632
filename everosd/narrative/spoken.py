"""The content of an Episode, by whomever it was written, taken apart: who said what, when, and its statements.

A content is prose, or a transcript: lines like `Name: what was said` under the day that it was said. Below a narrative there
may be details, which are dated lines: `- 2026-08-10: what was known then`.
"""

# ruff: noqa: RUF001  # signs of other scripts are meant

from __future__ import annotations

import collections
import re
from collections.abc import Sequence
from typing import NamedTuple

from everosd.narrative import sentence

MAX_FACT_CHARS = 480
"""A longer statement becomes several: about what one vector stands for well."""
MAX_FACTS = 10_000
"""Of one Episode: far more than a segment within the limits has, so that no message goes without one; a book has more."""
NAME_CHARS = 60
INDENT = "  "
"""Of further lines of what somebody said, so that none can pass for another's."""
DETAILS = "#### Details"
"""Heading of dated lines below a narrative."""
DAY = re.compile(r"^(?P<day>\d{4}-\d\d-\d\d)(?P<time> \d\d:\d\d)?$")
"""A line that says when was said what follows; without a time, it stands in a narrative."""

_MIN_WORDS, _MIN_SIGNS = 3, 4
_DATED = re.compile(r"\S \((\d{4}-\d\d-\d\d)\)$")
_TURN = re.compile(rf"^(?P<name>[^\s:：][^:：\n]{{0,{NAME_CHARS - 1}}})(?P<mark>: ?|：)(?P<text>.*)$")
_DETAIL = re.compile(r"^[-*] (?:(?P<day>\d{4}-\d\d-\d\d): )?(?P<text>.*)$")
_FENCE = re.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)", re.DOTALL)
_MARKUP = re.compile(r"^(?:#{1,6}\s+|[-*+•]\s+|>\s*|\|)+")
_NUMBER = re.compile(r"^\d{1,3}[.)]\s+(?=\S)")
"""Of a line of a list; a single line that begins so may be `3. März`."""
_LETTER = re.compile(r"[^\W\d_]")
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u3041-\u30ff\u4e00-\u9fff\uac00-\ud7a3]")


class Turn(NamedTuple):
    """What somebody said, or a paragraph that nobody is named for."""

    name: str
    """Empty: nobody."""
    text: str
    day: str = ""
    """`2026-08-10`; empty: the text does not say."""
    is_dated: bool = False
    """Whether it is the text that dates it, as narratives do; else the day is when the talk took place."""

    @property
    def is_tool(self) -> bool:
        """Whether a tool answered it: no statement of anybody."""
        return self.name.startswith("[") and self.name.endswith("]")


def facts(content: str) -> list[str]:
    """Return the statements of an Episode's content, each of which can stand alone; in order, none twice.

    Of a transcript these are the turns, with who said them; of prose its sentences. Code, what tools answered, and what says
    nothing, as `Thanks!`, are left out. What a narrative dates has the day behind it.
    """
    found: dict[str, None] = {}
    for turn in turns(content):
        for part in parts(turn):
            said = f"{turn.name}: {part}" if turn.name else part
            found.setdefault(f"{said} ({turn.day})" if turn.is_dated and turn.day not in said else said)
            if len(found) >= MAX_FACTS:
                return list(found)
    return list(found)


def day_of(fact: str) -> str:
    """Return the day behind a fact of a narrative, `2026-08-10`; empty where there is none."""
    found = _DATED.search(fact)
    return found[1] if found else ""


def parts(turn: Turn) -> list[str]:
    """Return what a turn says, without who and when, in as many parts as it takes; none where it says nothing."""
    if turn.is_tool:
        return []
    found = _grouped(turn) if turn.name else _short(turn.text)
    return [part for part in found if says_something(part)]


def turns(content: str) -> list[Turn]:
    """Return who said what, as far as the content is a transcript; other lines have no name."""
    lines = content.splitlines()
    is_transcript = _has_speakers(lines)
    is_dated = is_detail = False
    found: list[Turn] = []
    day = ""
    for line in lines:
        if line.rstrip() == DETAILS:
            is_detail = True
        elif head := DAY.match(line.rstrip()):
            day, is_dated, is_transcript = head["day"], head["time"] is None, True
        elif is_detail and (detail := _DETAIL.match(line)):
            said = _TURN.match(detail["text"])
            name, text = (said["name"], said["text"]) if said else ("", detail["text"])
            found.append(Turn(name, text.strip(), detail["day"] or "", detail["day"] is not None))
        elif (match := _TURN.match(line) if is_transcript and not line.startswith(INDENT) else None) is not None:
            found.append(Turn(match["name"], match["text"].strip(), day, is_dated))
        elif found and (line.startswith(INDENT) or not is_transcript):
            found[-1] = found[-1]._replace(text=f"{found[-1].text}\n{line.removeprefix(INDENT)}")
        else:
            found.append(Turn("", line, day, is_dated))
    return [turn for turn in found if turn.text.strip()]


def sentences(text: str) -> list[str]:
    """Return the sentences of a text, each on one line; without code, and marks of lists and headings."""
    return [" ".join(one.split()) for one in sentence.split(_plain(text))]


def _short(text: str) -> list[str]:
    """Return the sentences of a text, in parts where they are longer than a fact may be."""
    found: list[str] = []
    for one in sentences(text):
        rest = one
        while len(rest) > MAX_FACT_CHARS:
            cut = rest.rfind(" ", MAX_FACT_CHARS // 2, MAX_FACT_CHARS)
            cut = cut if cut > 0 else MAX_FACT_CHARS
            found.append(rest[:cut])
            rest = rest[cut:].strip()
        found.append(rest)
    return found


def says_something(text: str) -> bool:
    """Return whether there are at least three words or a few signs of a script without spaces."""
    n_words = 0
    for word in text.split():
        n_words += _LETTER.search(word) is not None
        if n_words == _MIN_WORDS:
            return True
    has_number = n_words > 0 and any(char.isdigit() for char in text)
    return has_number or len(_UNSPACED.findall(text)) >= _MIN_SIGNS


def _has_speakers(lines: Sequence[str]) -> bool:
    """Whether most lines begin with a name, and some name comes twice: who wrote it has not written the day above."""
    lines = lines[: lines.index(DETAILS)] if DETAILS in lines else lines
    names = collections.Counter(match["name"] for line in lines if (match := _TURN.match(line)))
    n_lines = sum(bool(line.strip()) and not line.startswith(INDENT) for line in lines)
    return bool(names) and names.total() * 3 >= n_lines * 2 and max(names.values()) > 1


def _grouped(turn: Turn) -> list[str]:
    """Return what was said in one piece, or sentence by sentence in as few as there is room for."""
    text = " ".join(_plain(turn.text).split())
    if len(text) <= MAX_FACT_CHARS:
        return [text]
    groups: list[str] = []
    for one in _short(turn.text):
        joined = f"{groups[-1]} {one}" if groups else one
        if groups and len(joined) <= MAX_FACT_CHARS:
            groups[-1] = joined
        else:
            groups.append(one)
    return groups


def _plain(text: str) -> str:
    """Return a text without code and without the marks of lists, headings and quotations."""
    lines = [_MARKUP.sub("", line.strip()) for line in _FENCE.sub("\n", text).split("\n")]
    is_list = sum(_NUMBER.match(line) is not None and not _is_dated(line) for line in lines) > 1
    return "\n".join(_NUMBER.sub("", line) if is_list and not _is_dated(line) else line for line in lines)


def _is_dated(line: str) -> bool:
    number, _, rest = line.partition(" ")
    return sentence.is_within_date(number, rest)
