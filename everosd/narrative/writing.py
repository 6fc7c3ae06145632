"""What a model writes: without reasoning and repetitions, in the language that was asked for."""

from __future__ import annotations

import re
from collections.abc import Sequence

from everosd.narrative import check, tongue

_REASONING = re.compile(
    r"<(think|thinking|reasoning)>.*?(?:</\1>|\Z)|</?(?:think|thinking|reasoning)>", re.DOTALL | re.IGNORECASE
)
_SAMPLE = 40
"""A text of fewer letters may be in any language."""
_LANGUAGES = {
    "en": "English", "de": "German", "fr": "French", "es": "Spanish", "it": "Italian", "pt": "Portuguese", "zh": "Chinese",
    "ja": "Japanese",
}  # fmt: skip
_OWN_NAMES = {
    "deutsch": "de", "français": "fr", "francais": "fr", "español": "es", "espanol": "es", "italiano": "it", "português": "pt",
    "portugues": "pt", "中文": "zh", "汉语": "zh", "mandarin": "zh", "日本語": "ja", "british english": "en", "american english": "en",
}  # fmt: skip
_SCRIPTS = (
    re.compile(r"[A-Za-zÀ-ɏ]"), re.compile(r"[Ѐ-ӿ]"), re.compile(r"[Ͱ-Ͽ]"), re.compile(r"[\u0590-\u05ff]"), re.compile(r"[\u0600-\u06ff]"),
    re.compile(r"[\u0900-\u097f]"), re.compile(r"[\u0e00-\u0e7f]"), re.compile(r"[\uac00-\ud7a3]"), re.compile(r"[\u3041-\u30ff\u4e00-\u9fff]"),
)  # fmt: skip


class Language:
    """The language to write in."""

    def __init__(self, forced: str, talk: str, *, unknown: str = "the language of the conversation") -> None:
        """Take that of the talk, unless a person forces one; `unknown` names one that is none of those told apart."""
        self._code = _code(forced) if forced else tongue.of(talk)
        self._script = None if forced else _script(talk)
        self.is_other = bool(forced) and (not self._code or self._code != tongue.of(talk))
        """Whether the talk is in another one: then its words say nothing about the text's."""
        self.name = forced or _LANGUAGES.get(self._code, unknown)

    @property
    def is_known(self) -> bool:
        """Whether it is one of those that are told apart."""
        return bool(self._code)

    def is_of(self, text: str) -> bool:
        """Return whether a text is in it, as far as one can tell."""
        if sum(char.isalpha() for char in text) < _SAMPLE and _script(text) == _SCRIPTS[0]:
            return True
        if self._script is not None and _script(text) not in (None, self._script):
            return False
        found = tongue.of(text)
        return not found or not self._code or found == self._code


def _code(language: str) -> str:
    """Return the code of a language that a person named; empty: none of those that are told apart."""
    named = language.strip().casefold()
    codes = {name.casefold(): code for code, name in _LANGUAGES.items()} | _OWN_NAMES
    return codes.get(named) or (named[:2] if named[:2] in _LANGUAGES and not named[2:3].isalpha() else "")


def _script(text: str) -> re.Pattern[str] | None:
    """Return the script that most letters of a text are of; None: it has none of these."""
    counts = [(len(script.findall(text[:20_000])), at) for at, script in enumerate(_SCRIPTS)]
    most, at = max(counts, key=lambda each: (each[0], -each[1]))
    return _SCRIPTS[at] if most else None


def plain(text: str) -> str:
    """Return a text without reasoning, lines in it as lines should be, and nothing said twice."""
    seen: set[str] = set()
    paragraphs: list[str] = []
    for paragraph in _REASONING.sub("", text).split("\n"):
        said: list[str] = []
        for one in check.sentences(paragraph):
            key = " ".join(one.casefold().split())
            if key not in seen:
                seen.add(key)
                said.append(one)
        if said:
            paragraphs.append(joined(said))
    return "\n".join(paragraphs)


def line(text: str) -> str:
    """Return a text without reasoning, on one line."""
    return " ".join(_REASONING.sub("", text).split())


def joined(said: Sequence[str]) -> str:
    """Return sentences as one text."""
    return "".join(f" {one}" if at and said[at - 1][-1].isascii() else one for at, one in enumerate(said))
