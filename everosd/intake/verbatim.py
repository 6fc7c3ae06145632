"""Extraction without a model: what was said is the content, and subject, summary and facts are picked from it.

Deterministic, in whatever language was spoken: nothing is added to the words but who said them and what date they mean.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence

from everosd import clock
from everosd.intake import message, when

BY = "verbatim"
"""What stands where a model's name would."""

MAX_SUBJECT_CHARS = 120
MAX_SUMMARY_CHARS = 400

_TURN = re.compile(r"^(?P<name>[^\s:：][^:：\n]{0,79})[:：]\s(?P<text>.*)$")  # noqa: RUF001


def extract(segment: message.Segment, zone: dt.tzinfo) -> message.Extracted:
    """Return the segment as an Episode; `zone` is that of whoever took part."""
    content = transcript(segment.messages, zone)
    return message.Extracted(subject=subject(content), summary=summary(content), content=content, by=BY)


def transcript(messages: Sequence[message.Message], zone: dt.tzinfo) -> str:
    """Return who said what, a line each under its day; relative times have their dates behind them.

    Further lines of a message are indented: no message can pass for another sender's.
    """
    lines: list[str] = []
    day: dt.date | None = None
    for one in messages:
        if not one.text.strip():
            continue
        moment = clock.from_us(one.timestamp_us).astimezone(zone)
        if moment.date() != day:
            day = moment.date()
            lines.append(f"{moment:%Y-%m-%d}")
        text = when.resolved(one.text.strip(), one.timestamp_us, zone)
        lines.append(f"{one.name}: " + text.replace("\n", "\n  "))
    return "\n".join(lines)


def facts(content: str) -> list[str]:
    """Return the statements of an Episode's content, each of which can stand alone; in order, none twice."""
    found = (line.strip() for line in content.split("\n"))
    return list(dict.fromkeys(line for line in found if _TURN.match(line)))


def summary(content: str) -> str:
    """Return the beginning of what was said, at most 400 characters."""
    return " ".join(facts(content))[:MAX_SUMMARY_CHARS]


def subject(content: str) -> str:
    """Return one line of at most 120 characters that says what it is about."""
    return (facts(content) or [content.strip().split("\n")[0]])[0][:MAX_SUBJECT_CHARS]
