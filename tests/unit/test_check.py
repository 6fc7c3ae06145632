"""A text is held against its sources: what it invents is found, and what it takes from them is left alone."""

from __future__ import annotations

import datetime as dt

import pytest

from everosd.narrative import check, figure, spoken

TALK = (
    "2023-05-08 13:56 Caroline: I went to a support group yesterday (2023-05-07), it was so powerful.",
    "2023-05-08 13:57 Melanie: Wow! I have three kids and no pets. I painted a lake sunrise last year (2022).",
    "2023-05-08 13:58 Caroline: Do you still play the violin?",
    "2023-05-08 13:59 Melanie: Every Monday, for 20 minutes. It cost $1,200.",
    "2023-05-08 14:00 Caroline: Oliver, my cat, hides his bone in Sweden, so to say.",
)


def said(text: str, *sources: str, dates: tuple[dt.date, ...] = ()) -> list[tuple[str, str]]:
    return [(one.kind, one.text) for one in check.inventions(text, sources or TALK, dates=dates)]


@pytest.mark.parametrize(
    "text",
    [
        "Caroline went to a support group on 7 May 2023.",
        "On May 7, 2023, a Sunday, Caroline went to a support group.",
        "Melanie painted a sunrise in 2022. She plays for twenty minutes.",
        "Mel's violin cost 1200 dollars. Later, she told Caroline so at 1:59 pm.",
        "Oliver the cat is Swedish. However, Caroline is not.",
        "They talked on Monday, May 8th.",
        "Two people talked: Caroline and Melanie.",
    ],
)
def test_what_the_sources_say_is_no_invention_however_it_is_written(text: str) -> None:
    """Dates, numbers and names in another form than the sources' are known again."""
    assert [] == said(text)


@pytest.mark.parametrize(
    ("text", "invented"),
    [
        ("Caroline went to a support group on 8 May 2022.", [("date", "8 May 2022")]),
        ("Caroline went there on 9 May.", [("date", "9 May")]),
        ("She went in June 2023.", [("date", "June 2023")]),
        ("It was on a Friday at 3 pm.", [("date", "Friday"), ("date", "3 pm")]),
        ("Melanie has four kids and plays for 30 minutes.", [("number", "four"), ("number", "30")]),
        ("Sarah has a cat, and Melanie knows Rex.", [("name", "Sarah"), ("name", "Rex")]),
        ("It cost 12,000 dollars, Melanie said to GPT-4.", [("number", "12,000"), ("name", "GPT-4")]),
    ],
)
def test_names_numbers_and_dates_out_of_nowhere_are_found(text: str, invented: list[tuple[str, str]]) -> None:
    """What no source has is returned as it is written, in the order of the text."""
    assert invented == said(text)


def test_days_that_the_sources_are_of_may_be_named() -> None:
    """A message's own day is no invention, though no message says it."""
    assert [("date", "3 June 2024")] == said("He left on 3 June 2024.", "Ben: I left today.")
    assert [] == said("He left on 3 June 2024.", "Ben: I left today.", dates=(dt.date(2024, 6, 3),))


def test_a_day_without_a_year_gets_the_year_of_the_talk_and_no_other() -> None:
    """`May 7` may become 7 May 2023 where the talk is of 2023."""
    source, day = "Ana: My exam is on May 7.", dt.date(2023, 4, 1)
    assert [] == said("Ana has an exam on 7 May 2023.", source, dates=(day,))
    assert [("date", "7 May 2024")] == said("Ana has an exam on 7 May 2024.", source, dates=(day,))


def test_a_count_of_what_is_listed_is_no_invention() -> None:
    """The seeds' own example: two dogs, where the fragments name Toby and Buddy."""
    fragments = ("Andrew has no pets yet", "Andrew adopted Toby", "Andrew also adopted Buddy")
    narrative = "Andrew initially had no pets. He later adopted a dog named Toby, then another named Buddy. He currently has two dogs."
    assert [] == said(narrative, *fragments)
    assert [("number", "three")] == said(narrative.replace("two", "three"), "Andrew has no pets", *fragments[1:])


@pytest.mark.parametrize(
    ("text", "source", "invented"),
    [
        (
            "Anna zog am 3. März 2023 mit ihrem Hund nach Köln.",
            "Anna: Ich bin am 3.3.2023 mit Bello nach Köln gezogen.",
            [],
        ),
        ("Anna hat einen Hund namens Rex.", "Anna: Ich habe einen Hund.", ["Rex"]),
        ("Luc a trois chats depuis le 5 mai.", "Luc: J'ai deux chats depuis le 5 mai.", ["trois"]),
        ("Anna は2023年5月7日に京都へ行った。", "Anna: 5月7日に京都へ行きました。今は2023年です。", []),
        ("健太は5月8日に京都へ行った。", "Anna: 5月7日に京都へ行きました。", ["5月8日"]),
        ("小王有三个孩子。", "王明: 我有两个孩子。", ["小王", "三"]),
        ("田中さんが来た。", "アンナ: 昨日は楽しかった。", ["田中"]),
        ("Анна поехала в Москву 3 мая.", "Анна: Я еду в Казань 3 мая.", ["Москву"]),
    ],
)
def test_inventions_are_found_in_other_languages(text: str, source: str, invented: list[str]) -> None:
    """Months, number words and names of several languages are read."""
    assert invented == [one.text for one in check.inventions(text, (source,))]


@pytest.mark.parametrize(
    "statement",
    [
        "Caroline went to a powerful support group on 2023-05-07.",
        "Melanie has three kids.",
        "Melanie plays the violin every Monday.",
        "Melanie: I painted a lake sunrise last year (2022).",
        "Melanie has no pets.",
    ],
)
def test_a_statement_with_the_words_of_the_sources_is_supported(statement: str) -> None:
    """So is the answer to a question that the other asked."""
    assert check.is_supported(statement, TALK)


@pytest.mark.parametrize(
    "statement",
    [
        "Melanie has a happy dog.",  # nothing of it
        "Melanie went to a support group with her dog.",  # most of it, and of somebody else
        "Caroline went to a support group with her dog.",  # most of it
        "Caroline has three kids.",  # of somebody else
        "Melanie has pets.",  # they are denied
        "Melanie does not have kids.",  # they are not
        "Caroline went to a support group on 2023-05-09.",
        "Caroline is a famous astronaut.",
    ],
)
def test_a_statement_that_the_sources_do_not_make_is_not_supported(statement: str) -> None:
    """Words out of nowhere, the words of another speaker, and a negation too many or too few are told apart."""
    assert not check.is_supported(statement, TALK)


@pytest.mark.parametrize(
    ("statement", "is_said"),
    [
        ("王明有两个孩子,住在北京。", True),
        ("王明喜欢打篮球和看电影。", False),
        ("王明没有孩子。", False),
    ],
)
def test_statements_without_spaces_are_held_against_the_sources_sign_by_sign(statement: str, is_said: bool) -> None:  # noqa: FBT001
    """Chinese and Japanese have no words to compare, but signs."""
    assert is_said is check.is_supported(statement, ("王明: 我有两个孩子，我们住在北京。",))


def test_unsupported_sentences_are_returned_as_they_are() -> None:
    """The rest of a text is left alone."""
    text = "Caroline went to a support group. Dr. Melanie keeps a happy parrot. Melanie has three kids!"
    assert ("Dr. Melanie keeps a happy parrot.",) == check.Grounds(TALK).unsupported(text)


def test_prose_is_a_source_as_well() -> None:
    """Reflection holds a narrative against Episodes, which are prose."""
    grounds = check.Grounds(("Andrew adopted Toby in September 2023. Toby is a golden retriever.",))
    assert grounds.supports("Andrew's retriever Toby was adopted in September.")
    assert not grounds.supports("Andrew's retriever Toby ran away.")


@pytest.mark.parametrize(
    "text", ["", " \n", "?!", "Caroline", "9" * 5000, "zwei" * 2000, "A, " * 3000, "「" * 3000, "( " * 5000]
)
def test_strange_texts_are_read_quickly(text: str) -> None:
    """No text keeps the loop."""
    check.Grounds(TALK).inventions(text)
    check.Grounds((text,)).supports(text)


@pytest.mark.parametrize(
    ("text", "number"),
    [("twenty-five", 25), ("three hundred and five", 305), ("fünfundzwanzig", 25), ("vingt-deux", 22), ("二十五岁", 25), ("1.5k", 1500),
     ("three thousand", 3000), ("1,200", 1200), ("1.200.000", 1_200_000), ("两个", 2)],
)  # fmt: skip
def test_numbers_are_read_in_figures_and_in_words(text: str, number: float) -> None:
    """What they mean can be compared."""
    (one,) = figure.read(text)
    assert number in one.numbers


def test_places_are_those_of_the_text_as_it_was_given() -> None:
    """Folding may change how long a text is."""
    text = "Ein Straßenfest ﬁel auf den 3. März 2023"
    assert ["3. März 2023"] == [text[one.start : one.end] for one in figure.read(text)]


@pytest.mark.parametrize("text", ["Mara paid 3. \n", "3. ", "am 3.  ", "It was the 3.\n\nToby"])
def test_a_number_and_blanks_at_the_end_of_a_text_are_read(text: str) -> None:
    """Nothing follows that could be a month."""
    assert text.split() == " ".join(spoken.sentences(text)).split()
