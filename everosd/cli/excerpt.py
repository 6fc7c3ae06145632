"""What of a hit is shown: all of a short text; of a long one what answers, not how it happens to begin."""

from __future__ import annotations

import collections
import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import cast

LINES = 3
"""Of a hit's text, so that ten hits fit on a screen."""
SHARE = 0.5
"""Of the best fact's score, or of the best sentence's words; what matches less is not shown for it."""
WRITTEN = re.compile(r"(?:^|_)[a-z]+_\d{8}_\d+$")
"""Ids of entries that everosd or EverOS wrote."""
DAY = re.compile(r"\W*\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?)?\W*")
"""A line that says of when the next ones are."""
MORE = " …"
PAUSE = re.compile(r"(?<=[.!?。！？])(?<!\b[DMSP]r\.)(?<!\bMrs\.)(?<!\bMs\.)(?<!\bProf\.)\s+|\n+")  # noqa: RUF001  # those of East Asia
"""Between two statements; a title is no end of one."""


def lines(item: Mapping[str, object], text: str, query: str, width: int) -> list[str]:
    """Return the lines that are shown of a hit with this text."""
    whole = textwrap.wrap(" ".join(text.split()), width)
    if len(whole) <= LINES:
        return whole
    if facts := _facts(item):
        return [textwrap.shorten(f"· {one}", width, placeholder=MORE) for one in facts]
    parts = _parts(text)
    is_narrative = _is_narrative(item)
    tail, best = _tail(parts, width), _best(parts, query, is_narrative=is_narrative)
    at = min(tail, best) if best is not None else tail if is_narrative else 0
    return _cut(("… " if at else "") + " ".join(parts[at:]), width)


def statements(text: str) -> list[str]:
    """Return the sentences and lines of a text, in order."""
    return [" ".join(part.split()) for part in PAUSE.split(text) if part.strip(" #*-\t")]


def end(text: str, width: int) -> list[str]:
    """Return the last lines of a text that is told in the order of time: how things stand."""
    parts = _parts(text)
    at = _tail(parts, width)
    return _cut(("… " if at else "") + " ".join(parts[at:]), width)


def _cut(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, max_lines=LINES, placeholder=MORE)


def _facts(item: Mapping[str, object]) -> list[str]:
    """Return the facts that matched best, in the order in which they were told: the last one is the newest."""
    given = cast("Sequence[Mapping[str, object]]", item.get("atomic_facts") or ())
    ranked = sorted(given, key=_score, reverse=True)[:LINES]
    near = [one for one in ranked if _score(one) >= _score(ranked[0]) * SHARE]
    return [" ".join(str(one.get("content")).split()) for one in sorted(near, key=lambda one: str(one.get("id")))]


def _score(fact: Mapping[str, object]) -> float:
    return cast("float", fact.get("score") or 0.0)


def _is_narrative(item: Mapping[str, object]) -> bool:
    """Tell whether a hit may be made of others, oldest first: it is of no session, and no hand has written it."""
    is_of_session = item.get("session_id") or item.get("sender_ids")
    return "episode" in item and not is_of_session and WRITTEN.search(str(item.get("id"))) is not None


def _parts(text: str) -> list[str]:
    """Return sentences, each with the line above it that says of which day it is, if there is one."""
    parts: list[str] = []
    day = ""
    for line in text.splitlines():
        if DAY.fullmatch(line):
            day = line.strip()
            continue
        for nth, sentence in enumerate(statements(line)):
            parts.append(f"{day} {sentence}" if day and nth == 0 else sentence)
            day = ""
    return parts or [" ".join(text.split())]


def _best(parts: Sequence[str], query: str, *, is_narrative: bool) -> int | None:
    """Return which sentence has most words of the query, rare ones above all; None: none has any.

    Of a narrative the last one that has half of that: what it says later holds instead.
    """
    from everosd.index import token

    found = [frozenset(token.matched_words(query, one)) for one in parts]
    n_having = collections.Counter(word for words in found for word in words)
    weights = [sum(math.log1p(len(parts) / n_having[word]) for word in words) for words in found]
    most = max(weights)
    if not most:
        return None
    return max(nth for nth, one in enumerate(weights) if one >= most * SHARE) if is_narrative else weights.index(most)


def _tail(parts: Sequence[str], width: int) -> int:
    """Return from which sentence on the rest fits; the last one at least is shown."""
    for at in range(len(parts)):
        if len(textwrap.wrap("… " + " ".join(parts[at:]), width)) <= LINES:
            return at
    return len(parts) - 1
