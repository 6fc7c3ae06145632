"""An entry's text as the pieces that a model can take: each begins with the title, and together they hold all of it."""

from __future__ import annotations

import re
import unicodedata

import numpy as np
from numpy.typing import NDArray

RESERVE = 16
"""Tokens of a piece that no text of ours fills: marks of the model, its prefix (`passage: ` takes 5), an unlucky guess."""

_LEAD_SHARE = 4
"""A title that fills more than one part in so many of a piece is cut where it leads, and stands in full once."""
_LOOK_BACK = 0.5
"""A piece ends at the last seam in this share of it; a seam further ahead would leave it too short to mean much."""
_EVEN = 1.15
"""How much longer than even the pieces of one text may be: seams lie where they lie, and no crumb is left over."""

_SEAMS = (
    re.compile(r"\n[^\S\n]*\n\s*"),
    re.compile(r"\n\s*"),
    re.compile(r"[.!?…؟۔।]+[\"'”’»)\]]*\s+|[。！？｡]+[」』”’）]*"),  # noqa: RUF001  # the same in all scripts
    re.compile(r"[,;:،、，；：]\s*|\s[—–-]\s"),  # noqa: RUF001
    re.compile(r"\s+"),
)
"""Where a text comes apart, best first: paragraph, line, sentence, clause, word."""

# Tokens per character and class, found by least squares under which a guess too low costs 40 times one too high, from
# 170 languages' texts, code and tables, counted by multilingual-e5's tokenizer (XLM-R, SentencePiece).
# docs/decisions: guesses are 1.0 to 1.6 times the count; too low in random letters (a third), and by up to a
# tenth in a few languages that the tokenizer itself hardly knows.
_SPACE, _LOWER, _UPPER, _DIGIT, _MARK, _ACCENTED, _CASED, _SEMITIC, _INDIC, _THAI, _KANA, _HANGUL, _ONE = range(13)
_TOKENS = np.array(
    [0.0, 0.26, 0.47, 0.36, 0.95, 0.32, 0.35, 0.34, 0.37, 0.34, 0.25, 0.45, 1.0], dtype=np.float32
)  # fmt: skip
_PER_WORD = np.float32(0.75)
"""For the first letter, on top."""
_PER_TURN = np.float32(0.42)
"""For a change of class within a word, as in `a1b2`, on top; not for `Aa`."""
_PER_LATE = np.float32(0.7)
"""For each Latin letter or digit after the sixteenth of a word, on top: no language, but a hash, a key, a path."""
_LATE = 16


def _classes() -> NDArray[np.uint8]:
    """Return the class of each character below U+10000; whatever is not named counts one token."""
    table = np.full(0x10000, _ONE, dtype=np.uint8)
    for kind, ranges in (
        (_MARK, ((0x21, 0x7E), (0xA1, 0xBF))),
        (_SPACE, ((0x09, 0x0D), (0x20, 0x20), (0x85, 0x85), (0xA0, 0xA0), (0x2000, 0x200A), (0x2028, 0x2029), (0x3000, 0x3000))),
        (_DIGIT, ((0x30, 0x39),)),
        (_UPPER, ((0x41, 0x5A),)),
        (_LOWER, ((0x61, 0x7A),)),
        (_ACCENTED, ((0xC0, 0x17F), (0x1A0, 0x1B0), (0x1E00, 0x1EFF))),
        (_CASED, ((0x370, 0x45F), (0x490, 0x491), (0x49A, 0x49B), (0x4A2, 0x4A3), (0x4AE, 0x4B1), (0x4D8, 0x4E9), (0x530, 0x58F), (0x10A0, 0x10FF))),
        (_SEMITIC, ((0x590, 0x670), (0x67E, 0x6CC), (0x6D0, 0x6D4), (0x750, 0x77F))),
        (_INDIC, ((0x900, 0xDFF),)),
        (_THAI, ((0xE00, 0xEFF), (0x1000, 0x109F), (0x1780, 0x17FF))),
        (_KANA, ((0x3041, 0x30FF),)),
        (_HANGUL, ((0xAC00, 0xD7A3),)),
    ):  # fmt: skip
        for first, last in ranges:
            table[first : last + 1] = kind
    return table


_CLASS = _classes()
_IN_WORD = np.ones(len(_TOKENS), dtype=bool)
_IN_WORD[[_SPACE, _MARK, _ONE]] = False


def pieces(title: str, body: str, max_tokens: int) -> list[str]:
    """Return the texts to embed for one entry, in order; none is empty, and the same entry gives the same.

    Empty where the entry has no text at all. Each is taken to fill at most `max_tokens`, `RESERVE` included.
    """
    title, body = title.strip(), body.strip()
    whole = f"{title}\n{body}" if title and body else title or body
    if not whole:
        return []
    budget = max(RESERVE, max_tokens - RESERVE)
    sums = _sums(whole)
    if sums[-1] <= budget:
        return [whole]
    lead, is_cut = _lead(title, budget // _LEAD_SHARE)
    if is_cut or not body:
        lead, body = (lead, whole) if body else ("", whole)
    if lead:
        budget -= int(_sums(lead)[-1]) + 1
    return [f"{lead}\n{part}" if lead else part for part in _split(body, _sums(body), budget)]


def n_tokens(text: str) -> int:
    """Return about how many tokens a model makes of `text`; in all likelihood not fewer than it does."""
    return int(np.ceil(_sums(text)[-1])) if text else 0


def _sums(text: str) -> NDArray[np.float64]:
    """Return the tokens of `text[:1]`, `text[:2]`, …; takes 10 ms for a million characters."""
    if not text:
        return np.zeros(1)
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    kinds = np.where(points < len(_CLASS), _CLASS[np.minimum(points, len(_CLASS) - 1)], _ONE)
    before = np.concatenate(([_SPACE], kinds[:-1]))
    in_word = _IN_WORD[kinds]
    starts = in_word & ~_IN_WORD[before]
    cost = _TOKENS[kinds]
    cost[starts] += _PER_WORD
    cost[(kinds == _ONE) & (before == _SPACE)] += 1  # the blank before a sign is a token of its own
    latin = (kinds == _ACCENTED) | (kinds == _LOWER)
    turns = in_word & ~starts & (kinds != before) & ~((before == _UPPER) & latin) & (before != _ACCENTED)
    cost[turns & (kinds != _ACCENTED)] += _PER_TURN
    at = np.arange(len(kinds))
    since = at - np.maximum.accumulate(np.where(starts, at, -1))
    cost[in_word & (since >= _LATE) & (kinds >= _LOWER) & (kinds <= _DIGIT)] += _PER_LATE
    return np.cumsum(cost, dtype=np.float64)


def _lead(title: str, most: int) -> tuple[str, bool]:
    """Return what leads every piece, and whether that is less than the title."""
    sums = _sums(title)
    if sums[-1] <= most:
        return title, False
    end = max(1, int(np.searchsorted(sums, most, side="right")))
    return title[: _seam(title, 0, end)].rstrip(), True


def _split(text: str, sums: NDArray[np.float64], budget: int) -> list[str]:
    """Cut `text` into parts of at most `budget` tokens each, about equally long, at the best seams there are."""
    found: list[str] = []
    start, spent = 0, 0.0
    while start < len(text):
        rest = float(sums[-1]) - spent
        n_left = int(np.ceil(rest / max(1, budget)))
        if n_left <= 1:
            end = len(text)
        else:
            aim = min(budget, rest / n_left * _EVEN)
            reach = max(start + 1, int(np.searchsorted(sums, spent + aim, side="right")))
            end = _seam(text, start, reach)
        part = text[start:end].strip()
        if part:
            found.append(part)
        start, spent = end, float(sums[end - 1])
    return found


def _seam(text: str, start: int, end: int) -> int:
    """Return where `text[start:]` is best cut, at `end` or before; more than `start`."""
    if end >= len(text):
        return len(text)
    first = start + max(1, int((end - start) * _LOOK_BACK))
    window = text[first:end]
    for seam in _SEAMS:
        last = None
        for last in seam.finditer(window):  # noqa: B007  # the last one is what is wanted
            pass
        if last is not None:
            return first + last.end()
    return _whole_character(text, first, end)


def _whole_character(text: str, first: int, end: int) -> int:
    """Return `end`, or a place shortly before where no accent or joined emoji is torn from its base."""
    at = end
    while at > first and (unicodedata.category(text[at]) in ("Mn", "Mc", "Me") or "\u200d" in text[at - 1 : at + 1]):
        at -= 1
    return at if at > first else end
