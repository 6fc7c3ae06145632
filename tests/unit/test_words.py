"""Words that a reader has to know."""

from __future__ import annotations

import pytest

from everosd.narrative import words


@pytest.mark.parametrize(
    ("word", "number"), [("six", 6), ("nove", 9), ("tre", 3), ("acht", 8), ("onze", 11), ("zwei", 2)]
)
def test_words_that_are_numbers_wherever_they_stand_are_numbers(word: str, number: int) -> None:
    assert number == words.NUMBERS[word]


@pytest.mark.parametrize("word", ["once", "due", "elf", "sei"])
def test_words_that_are_mostly_others_are_no_numbers(word: str) -> None:
    """English `once`, `due` and `elf`, German `sei`."""
    assert word not in words.NUMBERS
