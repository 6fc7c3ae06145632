"""Where a sentence ends: at a full stop that ends none, as in `Dr.`, `z. B.`, `No. 77` or `3. März`, it goes on.

What is read in halves would be told and compared in halves, so where in doubt two sentences are read as one.
"""

# ruff: noqa: RUF001  # signs of other scripts are meant

from __future__ import annotations

import re

from everosd.narrative import words

_END = re.compile(r"(?<=[.!?…؟۔।])[\"'”’»)\]]*\s+|(?<=[。！？｡])[」』”’）]*|(?<=[。！？｡][」』”’）])|\n+")
_CLOSING = "\"'”’»)]」』）"
_ABBREVIATED = re.compile(
    r"(?<![^\W_])(?:mr|mrs|ms|messrs|dr|dra|prof|st|ste|sr|sra|srta|jr|vs|cf|ca|approx|esp|incl|resp|fig|abb|nr|bzw|evtl|ggf|inkl|exkl|vgl"
    r"|bspw|sog|geb|ugs|hr|frl|mme|mlle|sig|dott|ing|dipl|lt|capt|rev|mt|ft|z\.b|d\.h|u\.a|e\.g|i\.e)\.$",
    re.IGNORECASE,
)
"""A full stop after these ends no sentence, whatever follows."""
_INITIAL = re.compile(r"(?<![^\W_])(?!I\.)[A-Za-zÀ-ÖØ-öø-ÿА-Яа-я]\.$")
"""`J.`, `z.` and `B.`, but not `So do I.`"""
_OPEN = re.compile(r"(?<![^\W_])(?:[ap]\.m|etc|usw|u\.s|u\.k|e\.v|o\.ä|inc|ltd|co|corp)\.$", re.IGNORECASE)
"""These may end one: it goes on before what is not written large."""
_NUMBERED = re.compile(r"(?:(?<![^\W_])[^\W\d_]{1,4}|str)\.$", re.IGNORECASE)
"""`No.`, `Tel.`, `Goethestr.`: it goes on before a number."""
_ORDINAL = re.compile(r"(?<![\d.,:])\d{1,2}\.$")
_ORDERED = re.compile(
    r"\b(?:am|im|der|die|das|den|dem|des|zum|zur|vom|beim|ab|bis|seit|ein|eine|einen|einem|einer|ihr|sein|mein)\s\d{1,2}\.$",
    re.IGNORECASE,
)
"""`der 2. Hund`."""
_ALONE = re.compile(r"(?:\d{1,3}|[^\W\d_])\.$")
"""What numbers a line is no sentence."""
_LINES = re.compile(r"\s*\n\s*")
_FIRST = re.compile(r"[^\W_]")


def split(text: str) -> list[str]:
    """Return the sentences of a text in order, each on one line: all of it but the space between them."""
    found: list[str] = []
    start = at = 0
    for match in _END.finditer(text):
        if match.end() == at:
            continue
        at = match.end()
        before, after = text[start:at].strip(), text[at : at + 40].lstrip()
        if before and not (after and _goes_on(before, after, is_line="\n" in match[0])):
            found.append(_LINES.sub(" ", before))
            start = at
    if last := text[start:].strip():
        found.append(_LINES.sub(" ", last))
    return found


def _goes_on(before: str, after: str, *, is_line: bool) -> bool:
    """Return whether what looks like the end of a sentence is none; `is_line`: a line ends there."""
    bare = before.rstrip(_CLOSING) if before[-1] in _CLOSING else before
    if not bare.endswith((".", "…")):
        return False
    if is_within_date(bare, after) or _ABBREVIATED.search(bare):
        return True
    return not is_line and _goes_on_in_line(bare, after)


def _goes_on_in_line(before: str, after: str) -> bool:
    first = after.lstrip("\"'“„«»‘([")[:1]
    if _ORDERED.search(before) or _ALONE.fullmatch(before):
        return True
    if first.isdigit() or first == "+":
        return _NUMBERED.search(before) is not None
    if _OPEN.search(before):
        word = words.fold((after.split(maxsplit=1) or [""])[0].strip(".,;!?)"))
        return first.islower() or word in words.MONTHS or word in words.WEEKDAYS
    # Who begins sentences with small letters ends them before small letters.
    opening = _FIRST.search(before)
    is_small = first.islower() and opening is not None and not opening[0].islower()
    return is_small or _INITIAL.search(before) is not None


def is_within_date(before: str, after: str) -> bool:
    """Return whether what looks like the end of a sentence stands in a date, as in `am 3. März`."""
    first = after.split(maxsplit=1)[:1]
    return _ORDINAL.search(before) is not None and any(words.fold(one.strip(".,;!?)")) in words.MONTHS for one in first)
