"""What a text says of when, and the dates that this means."""

# signs of other scripts are meant

from __future__ import annotations

import datetime as dt
import zoneinfo

import hypothesis
import pytest
from hypothesis import strategies as st

from everosd import clock
from everosd.intake import when
from everosd.narrative import tongue

THURSDAY_US = clock.to_us(dt.datetime(2023, 7, 20, 10, tzinfo=dt.UTC))
WEEK = "2023-07-10", "2023-07-16"
NEXT_WEEK = "2023-07-24", "2023-07-30"


def resolved(text: str, moment_us: int = THURSDAY_US) -> str:
    return when.resolved(text, moment_us, dt.UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I met him yesterday.", "I met him yesterday (2023-07-19)."),
        ("the day before yesterday", "the day before yesterday (2023-07-18)"),
        ("Tomorrow morning then", "Tomorrow morning (2023-07-21) then"),
        ("last night", "last night (2023-07-19)"),
        ("last week was wild", "last week (2023-07-10 to 2023-07-16) was wild"),
        ("the week before last", "the week before last (2023-07-03 to 2023-07-09)"),
        ("this weekend", "this weekend (2023-07-22 to 2023-07-23)"),
        ("two weekends ago", "two weekends ago (2023-07-08 to 2023-07-09)"),
        ("Last month", "Last month (2023-06)"),
        ("since last year", "since last year (2022)"),
        ("next year", "next year (2024)"),
        ("last Tuesday", "last Tuesday (2023-07-18)"),
        ("last Thursday night", "last Thursday night (2023-07-13)"),
        ("last fri it rained", "last fri it rained"),
        ("last Fri it rained", "last Fri (2023-07-14) it rained"),
        ("next Tuesday", "next Tuesday (2023-07-25)"),
        ("on Monday last week", "on Monday last week (2023-07-10)"),
        ("next week on Friday", "next week on Friday (2023-07-28)"),
        ("three weeks ago", "three weeks ago (2023-06-26 to 2023-07-02)"),
        ("5 days ago", "5 days ago (2023-07-15)"),
        ("a month ago", "a month ago (2023-06)"),
        ("twelve years ago", "twelve years ago (2011)"),
        ("We'll move in two months.", "We'll move in two months (2023-09)."),
        ("two weeks from now", "two weeks from now (2023-07-31 to 2023-08-06)"),
        ("yesterday's talk and last year's trip", "yesterday's (2023-07-19) talk and last year's (2022) trip"),
        ("last November", "last November (2022-11)"),
        ("It's tomorrow, like last year", "It's tomorrow (2023-07-21), like last year (2022)"),
        ("I was born twenty years ago", "I was born twenty years ago (2003)"),
        ("this upcoming Monday", "this upcoming Monday (2023-07-24)"),
        ("letzten Montag", "letzten Montag (2023-07-17)"),
        ("Gestern Abend kam er", "Gestern Abend (2023-07-19) kam er"),
        ("vor drei Wochen", "vor drei Wochen (2023-06-26 bis 2023-07-02)"),
        ("übermorgen", "übermorgen (2023-07-22)"),
        ("vorletzte Woche", "vorletzte Woche (2023-07-03 bis 2023-07-09)"),
        ("Morgen fahre ich weg", "Morgen (2023-07-21) fahre ich weg"),
        ("in zwei Monaten ziehen wir um", "in zwei Monaten (2023-09) ziehen wir um"),
        ("la semaine dernière", "la semaine dernière (2023-07-10 au 2023-07-16)"),
        ("je suis parti hier", "je suis parti hier (2023-07-19)"),
        ("il y a deux ans", "il y a deux ans (2021)"),
        ("cet après-midi", "cet après-midi (2023-07-20)"),
        ("lundi prochain", "lundi prochain (2023-07-24)"),
        ("la semana pasada", "la semana pasada (2023-07-10 al 2023-07-16)"),
        ("anoche llovió", "anoche (2023-07-19) llovió"),
        ("hace tres días", "hace tres días (2023-07-17)"),
        ("mañana por la mañana", "mañana por la mañana (2023-07-21)"),
        ("ieri sera", "ieri sera (2023-07-19)"),
        ("due anni fa", "due anni fa (2021)"),
        ("la prossima settimana", "la prossima settimana (2023-07-24 al 2023-07-30)"),
        ("ontem à noite", "ontem à noite (2023-07-19)"),
        ("há duas semanas", "há duas semanas (2023-07-03 a 2023-07-09)"),
        ("no ano passado", "no ano passado (2022)"),
        ("上周我去了北京", "上周（2023-07-10至2023-07-16）我去了北京"),
        ("昨天晚上", "昨天晚上（2023-07-19）"),
        ("去年和前年", "去年（2022）和前年（2021）"),
        ("下周五见", "下周五（2023-07-28）见"),
        ("这个周末", "这个周末（2023-07-22至2023-07-23）"),
        ("三个月前", "三个月前（2023-04）"),
        ("先週の火曜日に会った", "先週の火曜日（2023-07-11）に会った"),
        ("昨日は雨でした", "昨日（2023-07-19）は雨でした"),
        ("二年前、今朝", "二年前（2021）、今朝（2023-07-20）"),
    ],
)
def test_phrases_get_their_dates(text: str, expected: str) -> None:
    """By the calendar of whoever spoke, as a day, a month, a year, or the days of a week."""
    assert expected == resolved(text)


@pytest.mark.parametrize(
    "text",
    [
        "see https://example.org/yesterday and yesterday.txt, --since=yesterday",
        "`last week` is a column, so is last_week",
        "```\nreturn today\n```",
        'She said: "I will come tomorrow."',
        "> yesterday it was fine",
        "«demain» et „gestern“ und 「昨日」",
        "mail yesterday@example.org #yesterday",
        "The Day After Tomorrow",
        "over the last year, in the next week",
        "the last week of May, last week of school",
        "two or three weeks ago; a year and two months ago; over two years ago; two and a half years ago",
        "I learned it in two weeks. We haven't met in two years.",
        "There are twelve months in a year.",
        "it feels like yesterday, as if it was born yesterday, like it was just yesterday",
        "Tom's last year",
        "my last year at school",
        "next Friday or next weekend",
        "this may be, this sun",
        "last May",
        "guten Morgen! Am Morgen",
        "ich bin hier",
        "Ich habe in zwei Wochen Deutsch gelernt.",
        "por la mañana, esta es la mañana",
        "hoy en día",
        "al giorno d'oggi",
        "1990年前",
        "明日香さん",
        "yesterday (2023-07-19)",
        "last Tuesday, July 18th",
        "2023-07-19 (yesterday)",
        "gestern, am 19. Juli",
        "400 years ago",
        "",
    ],
)
def test_what_may_mean_something_else_is_left_alone(text: str) -> None:
    """Names, code, what others said, stretches of time, dates that stand there already, and what has two meanings."""
    assert text == resolved(text)


def test_l13_last_week_is_that_of_the_message() -> None:
    """A message of 2023 that says `last week` means a week of 2023, whenever it is read."""
    (found,) = when.mentions("as I said last week", THURSDAY_US, dt.UTC)
    assert WEEK == (found.from_date.isoformat(), found.to_date.isoformat())
    assert "last week" == "as I said last week"[found.start : found.end]


@pytest.mark.parametrize(
    ("hour", "zone", "expected"),
    [(23, "UTC", "2023-07-19"), (23, "Asia/Shanghai", "2023-07-20"), (3, "America/Los_Angeles", "2023-07-18")],
)
def test_l13_the_zone_says_which_day_it_was(hour: int, zone: str, expected: str) -> None:
    """It is another day in Shanghai, and in Los Angeles, than in Greenwich."""
    moment_us = clock.to_us(dt.datetime(2023, 7, 20, hour, tzinfo=dt.UTC))
    assert f"yesterday ({expected})" == when.resolved("yesterday", moment_us, zoneinfo.ZoneInfo(zone))


def test_the_end_of_january_has_a_month_before_it() -> None:
    """Months are counted on the calendar, over the turn of the year and where the next one is shorter."""
    moment_us = clock.to_us(dt.datetime(2024, 1, 31, tzinfo=dt.UTC))
    assert "last month (2023-12), next month (2024-02)" == resolved("last month, next month", moment_us)


@pytest.mark.parametrize(("text", "day"), [("last year", (1, 1, 1)), ("next week", (9999, 12, 31))])
def test_where_the_calendar_ends_nothing_is_said(text: str, day: tuple[int, int, int]) -> None:
    """Nor does it fail."""
    assert text == resolved(text, clock.to_us(dt.datetime(*day, tzinfo=dt.UTC)))


@hypothesis.settings(max_examples=60, deadline=None)
@hypothesis.given(
    st.lists(
        st.sampled_from(
            [
                "yesterday",
                "last week",
                "tomorrow",
                "gestern",
                "hier",
                "昨天",
                "先週",
                "2023-07-19",
                "(",
                ")",
                ",",
                '"',
                "\n",
                "ago",
            ]
        ),
        max_size=8,
    ),
    st.sampled_from([" ", ""]),
)
def test_dates_are_put_in_once(words: list[str], gap: str) -> None:
    """Whatever is read again comes out as it was."""
    once = resolved(gap.join(words))
    assert once == resolved(once)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello there, how are you?", ("en", "8 May 2023")),
        ("Ich bin hier und du auch", ("de", "8. Mai 2023")),
        ("Je suis là et tu es ici", ("fr", "8 mai 2023")),
        ("No lo sé, está en la casa", ("es", "8 de mayo de 2023")),
        ("Non lo so, è in casa mia", ("it", "8 maggio 2023")),
        ("Não sei, você está em casa", ("pt", "8 de maio de 2023")),
        ("我去北京", ("zh", "2023年5月8日")),
        ("東京に行く", ("ja", "2023年5月8日")),
        ("Привет, как дела", ("", "2023-05-08")),
        ("", ("", "2023-05-08")),
    ],
)
def test_a_text_shows_its_language(text: str, expected: tuple[str, str]) -> None:
    """And a date is written as people write it there."""
    code = tongue.of(text)
    assert expected == (code, tongue.date(dt.date(2023, 5, 8), code))


def test_what_is_told_at_a_glance_is_told_by_looking_closely() -> None:
    """No kind of quotation, code or address is passed over by the look that most texts end with."""
    quiet = (
        "```a```", "~~~a~~~", "`a`", "ftp://a", "www.a", "WWW.a", "[a](b)", "a@b", "> a", '"a"', "“a”", "„a“", "«a»", "'a'",
        "‘a’", "「a」", "『a』", "《a》", "〈a〉",
    )  # fmt: skip
    for one in quiet:
        text = f"So {one} it was"
        text = f"So\n{one}" if one.startswith(">") else text
        assert when._QUIET.search(text), one
        assert when._MAY_BE_QUIET.search(text), one
    assert not when._MAY_BE_QUIET.search("I'm off; that is it: 3 - 4 (or so), isn't it?")
