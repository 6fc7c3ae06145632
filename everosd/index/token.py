"""Text → terms: one way of cutting for documents and queries, for every script, without a dictionary.

Words of scripts that put spaces between them are terms, folded (case, width, Latin and Greek accents) and, where they
are Latin, also in their English stem; two of them that stand together can be one term more. Scripts without spaces (Han, Kana, Hangul, Thai, …) become single characters and
pairs of neighbours. Compounds (`foo_bar`, `1.5.1`, `a.b@c.de`) are terms as a whole and in their parts.
"""

from __future__ import annotations

import functools
import itertools
import re
import threading
import unicodedata
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from snowballstemmer.english_stemmer import EnglishStemmer

MAX_TERM_CHARS = 64
"""Longer words (hashes, base64) are cut here in documents and queries alike: they stay findable and the dictionary small."""

MAX_QUERY_CHARS = 20_000
"""A query is read up to here; it takes a few ms and no person types more."""

_MEMO_SIZE = 100_000
"""Words whose terms are remembered; about 20 MB when full of long words, and a vocabulary rarely reaches it."""

_JOINERS = "._@'+/:\\-&"
"""Characters that join words into a compound when they stand alone between two of them."""

# Combining marks that belong to words of spaced scripts: `\w` leaves them out, and Devanagari, Arabic or Hebrew words
# would fall apart at each vowel sign.
_MARKS = (
    "\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670"
    "\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed\u0711\u0730-\u074a\u07a6-\u07b0\u07eb-\u07f3\u0816-\u082d"
    "\u0859-\u085b\u08d3-\u0903\u093a-\u094f\u0951-\u0957\u0962\u0963\u0981-\u0983\u09bc-\u09cd\u09d7\u09e2\u09e3"
    "\u0a01-\u0a03\u0a3c-\u0a51\u0a70\u0a71\u0a75\u0a81-\u0a83\u0abc-\u0acd\u0ae2\u0ae3\u0b01-\u0b03\u0b3c-\u0b57"
    "\u0b62\u0b63\u0b82\u0bbe-\u0bcd\u0bd7\u0c00-\u0c04\u0c3c-\u0c56\u0c62\u0c63\u0c81-\u0c83\u0cbc-\u0cd6\u0ce2"
    "\u0ce3\u0d00-\u0d03\u0d3b-\u0d4d\u0d57\u0d62\u0d63\u0d81-\u0d83\u0dca-\u0df3\u0e31\u0e34-\u0e3a\u0e47-\u0e4e"
    "\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ece\u0f18\u0f19\u0f35\u0f37\u0f39\u0f3e\u0f3f\u0f71-\u0f84\u0f86\u0f87\u0f8d-\u0fbc"
    "\u102b-\u103e\u1056-\u1059\u105e-\u1060\u1062-\u106d\u1071-\u1074\u1082-\u108d\u108f\u109a-\u109d\u135d-\u135f"
    "\u1712-\u1734\u17b4-\u17d3\u17dd\u180b-\u180d\u18a9\u1920-\u193b\u1a17-\u1a1b\u1a55-\u1a7f\u1ab0-\u1ace\u1b00-\u1b04"
    "\u1b34-\u1b44\u1b80-\u1b82\u1ba1-\u1bad\u1c24-\u1c37\u1cd0-\u1cf9\u1dc0-\u1dff\u200c\u200d\u20d0-\u20f0\u302a-\u302f"
    "\u3099\u309a\ua66f-\ua67d\ua6f0\ua6f1\ua802\ua80b\ua823-\ua827\ua880\ua881\ua8b4-\ua8c5\ua8e0-\ua8f1\ua926-\ua92d"
    "\ua947-\ua953\ua980-\ua983\ua9b3-\ua9c0\uaa29-\uaa36\uaa7b-\uaa7d\uaab0-\uaac1\uaaeb-\uaaef\uabe3-\uabed\ufb1e\ufe00-\ufe0f"
    "\ufe20-\ufe2f"
)
# Scripts written without spaces, or (Hangul) with particles glued to words.
_UNSPACED = (
    "\u0e00-\u0fff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u1950-\u19df\u1a20-\u1aaf\u1b00-\u1b7f\u2e80-\u2fdf"
    "\u3005-\u3007\u3021-\u302f\u3031-\u3035\u3038-\u303c\u3040-\u30ff\u3100-\u318f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\ua000-\ua4cf\ua960-\ua97f\ua980-\ua9ff\uaa00-\uaa5f\uaa60-\uaadf\uac00-\ud7ff\uf900-\ufaff"
    "\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
_EMOJI = "\u2600-\u27bf\U0001f000-\U0001faff"

_WORD_ASCII = re.compile(rf"\w+(?:[{_JOINERS}]\w+)*(?:\+\+|#)?")
_WORD = re.compile(rf"[\w{_MARKS}]+(?:[{_JOINERS}][\w{_MARKS}]+)*(?:\+\+|#)?|[{_EMOJI}]")
_PART = re.compile(rf"[^_{_JOINERS}#]+")
_PIECE = re.compile(r"[^@/:\\&]+")
_IS_UNSPACED = re.compile(rf"[{_UNSPACED}]")
_STEMMABLE = re.compile(r"[a-z]{3,32}")
# Arabic and Hebrew vowel points, tatweel, joiners and variation selectors: optional in writing, so taken away.
_OPTIONAL = re.compile(
    "[\u0591-\u05bd\u05bf\u05c1\u05c2\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06dc\u200c\u200d\ufe00-\ufe0f]"
)
_ACCENT = re.compile("[\u0300-\u036f]")
# Letters without a decomposition, and those that many write for one another; by code point, for they look alike.
_LETTERS = str.maketrans(
    {
        "\u00e6": "ae",
        "\u0153": "oe",
        "\u00f8": "o",
        "\u0111": "d",
        "\u00f0": "d",
        "\u00fe": "th",
        "\u0142": "l",
        "\u0127": "h",
        "\u0131": "i",  # dotless i
        "\u0451": "\u0435",  # Cyrillic io → ie
        "\u0622": "\u0627",  # Arabic alef with madda, with hamza above and below, wasla → alef
        "\u0623": "\u0627",
        "\u0625": "\u0627",
        "\u0671": "\u0627",
        "\u0649": "\u064a",  # alef maksura and Farsi yeh → yeh
        "\u06cc": "\u064a",
        "\u0629": "\u0647",  # teh marbuta → heh
        "\u06a9": "\u0643",  # keheh → kaf
    }
)

STOP_WORDS = frozenset(
    """a about above after again against all am an and any are aren't as at be because been before being below between
    both but by can can't cannot could couldn't did didn't do does doesn't doing don't down during each few for from
    further had hadn't has hasn't have haven't having he her here hers herself him himself his how i i'd i'll i'm i've if
    in into is isn't it it's its itself just let's me more most my myself no nor not of off on once only or other our ours
    ourselves out over own same shan't she should shouldn't so some such than that that's the their theirs them themselves
    then there there's these they they're they've this those through to too under until up upon us very was wasn't we
    we're we've were weren't what what's when where which while who who's whom whose why with won't would wouldn't you
    you're you've your yours yourself yourselves also would will shall many much kind kinds sort get gets got getting
    like""".split()  # noqa: SIM905 - reads better than a list
)
"""English words that say nothing about what is looked for; left out of queries, never out of documents."""


class Term(msgspec.Struct, frozen=True, kw_only=True):
    """One term of a query."""

    text: str
    weight: float
    """Share of the word that this form stands for: the forms of one word add up to about 1."""
    is_pair: bool = False
    """Two words that stand together: speaks for a document that has it, and not against one that lacks it."""


EXACT_WEIGHT = 0.3
"""Share of a word's own form beside its stem: an exact match ranks first, another inflection is still found."""
PART_WEIGHT = 0.5
"""Weight of each part of a compound beside the whole."""
SINGLE_WEIGHT = 0.2
"""Weight of single characters beside the pairs of a run of Han, Kana, Hangul, Thai, …"""
NEIGHBOUR_WEIGHT = 0.5
"""Weight of two words that stand together in the query, beside each of them. From 0.3 to 0.6 LoCoMo's
sessions are found equally well."""

_NEXT = "~"  # between the words of a pair; no word has it


def lead_terms(text: str, lead: str, *, has_pairs: bool = False) -> str:
    """Return the terms of a document's text separated by one space, each with `lead` put before it.

    With `has_pairs` those of neighbours are among them.
    """
    words = _words(text)
    joined = " ".join([*filter(None, map(_MEMO.__getitem__, words)), *(_pairs(words) if has_pairs else ())])
    return lead + joined.replace(" ", " " + lead) if joined else ""


def query_words(text: str) -> tuple[str, ...]:
    """Return the distinct words to look for, folded, in order; stop words only where nothing else is left."""
    words = _words(text[:MAX_QUERY_CHARS])
    return tuple(dict.fromkeys([word for word in words if word not in STOP_WORDS] or words))


def query_terms(text: str) -> tuple[Term, ...]:
    """Return the distinct terms to look for, in order."""
    weights: dict[str, float] = {}
    for word in query_words(text):
        for term, weight in _forms(word):
            weights[term] = max(weight, weights.get(term, 0.0))
    pairs = _pairs(_words(text[:MAX_QUERY_CHARS]))
    return (
        *(Term(text=term, weight=weight) for term, weight in weights.items()),
        *(Term(text=pair, weight=NEIGHBOUR_WEIGHT, is_pair=True) for pair in dict.fromkeys(pairs)),
    )


def matched_words(query: str, text: str) -> tuple[str, ...]:
    """Return the words of a query that a document's text has, in any of the forms that are looked for."""
    terms = set(lead_terms(text, "").split())
    return tuple(word for word in query_words(query) if any(term in terms for term, _ in _forms(word)))


def _words(text: str) -> list[str]:
    """Return words and compounds, folded as far as that goes for a whole text."""
    if text.isascii():
        return _WORD_ASCII.findall(text.lower())
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return _WORD.findall(folded.replace("\u2019", "'").replace("\u2011", "-"))


def _pairs(words: list[str]) -> list[str]:
    """Return the pairs of neighbours among the words that say something."""
    heads = list(filter(None, map(_HEADS.__getitem__, words)))
    return [(first + _NEXT + second)[:MAX_TERM_CHARS] for first, second in itertools.pairwise(heads)]


def _forms(word: str) -> Iterator[tuple[str, float]]:
    """Yield the terms of one word or compound with their weights in a query; in documents all count alike."""
    parts = _PART.findall(word)
    if len(parts) == 2 and parts[1] == "s" and word.endswith("'s"):  # noqa: PLR2004 - a possessive
        parts = parts[:1]
        word = parts[0]
    if not parts:
        return
    if len(parts) == 1 and not word.endswith(("+", "#")):
        yield from _part_forms(parts[0], 1.0)
        return
    whole = _fold(word.strip("._@'/:-&").replace("-", "").replace("'", ""))
    yield whole[:MAX_TERM_CHARS], 1.0
    pieces = _PIECE.findall(whole)
    if len(pieces) > 1:  # the host of an address, the file of a path
        yield from ((piece[:MAX_TERM_CHARS], PART_WEIGHT) for piece in pieces if _PART.fullmatch(piece) is None)
    for part in parts:
        yield from _part_forms(part, PART_WEIGHT)


def _part_forms(part: str, weight: float) -> Iterator[tuple[str, float]]:
    if _IS_UNSPACED.search(part) is None:
        yield from _word_forms(part, weight)
        return
    for run in _run().findall(part):
        if _IS_UNSPACED.search(run) is None:
            yield from _word_forms(run, weight)
        else:
            yield from _run_forms(run, weight)


def _word_forms(word: str, weight: float) -> Iterator[tuple[str, float]]:
    folded = _fold(word)
    if not folded:
        return
    stem = _stem(folded) if _STEMMABLE.fullmatch(folded) else folded
    if stem == folded:
        yield folded[:MAX_TERM_CHARS], weight
        return
    yield folded, weight * EXACT_WEIGHT
    yield stem, weight * (1 - EXACT_WEIGHT)


@functools.cache
def _run() -> re.Pattern[str]:
    """Match what is, and what is not, written without spaces; compiled with the first such text, since it takes a while."""
    return re.compile(rf"[{_UNSPACED}{_MARKS}]*[{_UNSPACED}][{_UNSPACED}{_MARKS}]*|[^{_UNSPACED}]+")


@functools.cache
def _cluster() -> re.Pattern[str]:
    """Match a character with the marks on it; compiled as `_run` is."""
    return re.compile(rf"[^{_MARKS}][{_MARKS}]*|[{_MARKS}]+")


def _run_forms(run: str, weight: float) -> Iterator[tuple[str, float]]:
    """Yield characters (with the marks on them) and pairs of neighbours."""
    clusters = _cluster().findall(run)
    if len(clusters) == 1:
        yield clusters[0][:MAX_TERM_CHARS], weight
        return
    for cluster in clusters:
        yield cluster[:MAX_TERM_CHARS], weight * SINGLE_WEIGHT
    for first, second in itertools.pairwise(clusters):
        yield (first + second)[:MAX_TERM_CHARS], weight


def _fold(word: str) -> str:
    """Take accents off Latin and Greek letters, optional points off Arabic and Hebrew; other scripts keep their marks."""
    if word.isascii():
        return word
    word = _OPTIONAL.sub("", word)
    if any(char < "\u0400" or "\u1e00" <= char <= "\u1fff" for char in word if char > "\u007f"):
        word = "".join(_unaccented(char) for char in word)
    return word.translate(_LETTERS)


@functools.lru_cache(maxsize=2_000)
def _unaccented(char: str) -> str:
    """Return a Latin or Greek letter without its accent; a stray accent becomes nothing."""
    if char < "\u0400" or "\u1e00" <= char <= "\u1fff":
        return _ACCENT.sub("", unicodedata.normalize("NFD", char))
    return char


class _Stemmer:
    """The English stemmer, loaded at the first word; it keeps state while it works, so one thread at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._english: EnglishStemmer | None = None

    def stem(self, word: str) -> str:
        with self._lock:
            if self._english is None:
                from snowballstemmer.english_stemmer import EnglishStemmer  # noqa: PLC0415 - 50 ms that a start need not pay

                self._english = EnglishStemmer()
            return str(self._english.stemWord(word))


_stem = functools.lru_cache(maxsize=50_000)(_Stemmer().stem)


class _Memo(dict[str, str]):
    """Word → its terms separated by spaces: a lookup in C per word once the vocabulary is known."""

    def __missing__(self, word: str) -> str:
        terms = " ".join(term for term, _ in _forms(word))
        if len(word) <= MAX_TERM_CHARS and _IS_UNSPACED.search(word) is None:
            if len(self) >= _MEMO_SIZE:
                self.clear()
            self[word] = terms
        return terms


_MEMO = _Memo()


class _Heads(dict[str, str]):
    """Word → what stands for it in a pair: its stem, or the whole of a compound; nothing for stop words."""

    def __missing__(self, word: str) -> str:
        head = ""
        if word not in STOP_WORDS and len(word) <= MAX_TERM_CHARS and _IS_UNSPACED.search(word) is None:
            forms = [term for term, weight in _forms(word) if weight > PART_WEIGHT]
            head = forms[-1] if forms else ""
        if len(self) >= _MEMO_SIZE:
            self.clear()
        self[word] = head
        return head


_HEADS = _Heads()
