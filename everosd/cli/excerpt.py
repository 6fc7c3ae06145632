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
FACTS = 5
"""Of a narrative, a line each: it tells of months."""
NEAR = 1 / 3
"""Of the best fact's score: a newer state may be told in words that match less than those of the question's."""
READ = 50_000
"""Characters of a text among which the best place is looked for sentence by sentence."""
TERMS = 50
"""Of a question, by which those characters are found in a longer text."""
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
    whole = " ".join(text.split())
    if _fits(whole, width):
        return textwrap.wrap(whole, width)
    is_narrative = _is_narrative(item)
    if facts := _dated_facts(item) if is_narrative else _facts(item):
        return [textwrap.shorten(_beginning(f"· {one}", width), width, placeholder=MORE) for one in facts]
    parts = _parts(_piece(text, query, is_narrative=is_narrative))
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
    return textwrap.wrap(_beginning(text, width), width, max_lines=LINES, placeholder=MORE)


def _beginning(text: str, width: int) -> str:
    """Return as much of a text as decides how its first lines are wrapped: wrapping reads all that it is given."""
    return text[: (LINES + 2) * (width + 1)]


def _fits(text: str, width: int) -> bool:
    """Tell whether a text is shown whole; one that is longer than its lines can be is not wrapped to find out."""
    return len(text) <= LINES * (width + 1) and len(textwrap.wrap(text, width)) <= LINES


def _facts(item: Mapping[str, object]) -> list[str]:
    """Return the facts that matched best, in the order in which they were told: the last one is the newest."""
    given = cast("Sequence[Mapping[str, object]]", item.get("atomic_facts") or ())
    ranked = sorted(given, key=_score, reverse=True)[:LINES]
    near = [one for one in ranked if _score(one) >= _score(ranked[0]) * SHARE]
    return [" ".join(str(one.get("content")).split()) for one in sorted(near, key=lambda one: str(one.get("id")))]


def _dated_facts(item: Mapping[str, object]) -> list[str]:
    """Return the facts of a narrative that matched best, each behind its day, the newest first.

    The best one of the newest day is among them: how things stand may be told in other words than those of the question.
    """
    from everosd.narrative import spoken

    given = cast("Sequence[Mapping[str, object]]", item.get("atomic_facts") or ())
    newest = str(item.get("timestamp") or "")[:10]
    ranked = sorted(given, key=_score, reverse=True)
    near = []
    for one in ranked:
        if _score(one) >= _score(ranked[0]) * NEAR:
            text = " ".join(str(one.get("content")).split())
            day = spoken.day_of(text)
            near.append((day, text.removesuffix(f"({day})").rstrip()) if day else (newest, text))
    latest = max(near, key=lambda one: one[0], default=None)
    shown = near[:FACTS]
    if latest is not None and latest not in shown:
        shown[-1] = latest
    return [f"{day} {text}".strip() for day, text in sorted(shown, key=lambda one: one[0], reverse=True)]


def _score(fact: Mapping[str, object]) -> float:
    return cast("float", fact.get("score") or 0.0)


def _is_narrative(item: Mapping[str, object]) -> bool:
    """Tell whether a hit may be made of others, oldest first: it is of no session, and no hand has written it."""
    is_of_session = item.get("session_id") or item.get("sender_ids")
    return "episode" in item and not is_of_session and WRITTEN.search(str(item.get("id"))) is not None


def _piece(text: str, query: str, *, is_narrative: bool) -> str:
    """Return a text, of a long one the piece in which most words of the query are, as far as that can be told at a glance."""
    if len(text) <= READ:
        return text
    from everosd.index import token

    terms = [one.text for one in token.query_terms(query) if not one.is_pair]
    words = tuple(dict.fromkeys((*token.query_words(query), *terms)))[:TERMS]
    starts = range(0, len(text) - READ // 2, READ // 2)
    found = []
    for start in starts:
        looked_at = text[start : start + READ].lower()
        found.append(sum(word in looked_at for word in words))
    at = _chosen(found, is_narrative=is_narrative)
    start = starts[at if at is not None else -1 if is_narrative else 0]
    piece = text[start : start + READ]
    before = "… " if start else ""
    return before + piece + (MORE if start + READ < len(text) else "")


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
    return _chosen(weights, is_narrative=is_narrative)


def _chosen(weights: Sequence[float], *, is_narrative: bool) -> int | None:
    most = max(weights)
    if not most:
        return None
    return max(nth for nth, one in enumerate(weights) if one >= most * SHARE) if is_narrative else weights.index(most)


def _tail(parts: Sequence[str], width: int) -> int:
    """Return from which sentence on the rest fits; the last one at least is shown."""
    at = len(parts) - 1
    while at > 0 and _fits("… " + " ".join(parts[at - 1 :]), width):
        at -= 1
    return at
