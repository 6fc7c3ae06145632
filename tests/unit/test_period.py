"""What a query says of when, and how well a moment fits that."""

from __future__ import annotations

import datetime as dt
import time

import hypothesis
import pytest
from hypothesis import strategies as st

from everosd import clock
from everosd.search import period

NOW_US = clock.to_us(dt.datetime(2026, 6, 1, tzinfo=dt.UTC))


def us(year: int, month: int = 1, day: int = 1) -> int:
    return clock.to_us(dt.datetime(year, month, day, tzinfo=dt.UTC))


DAY = us(2023, 7, 3), us(2023, 7, 4)
MONTH = us(2023, 7), us(2023, 8)
YEAR = us(2023), us(2024)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("What did she say on 3 July, 2023?", DAY),
        ("on the 3rd of July 2023", DAY),
        ("July 3rd, 2023", DAY),
        ("on jul. 3 2023", DAY),
        ("2023-07-03", DAY),
        ("am 3.7.2023", DAY),
        ("2023年7月3日", DAY),
        ("in July 2023", MONTH),
        ("JULY of 2023", MONTH),
        ("2023-07", MONTH),
        ("2023年7月に", MONTH),
        ("December 2023", (us(2023, 12), us(2024))),
        ("what happened in 2023?", YEAR),
        ("29 February 2024", (us(2024, 2, 29), us(2024, 3))),
        ("3 may 2023", (us(2023, 5, 3), us(2023, 5, 4))),
    ],
)
def test_days_months_and_years_are_read(text: str, expected: tuple[int, int]) -> None:
    """Each once, however it is written."""
    assert (expected,) == period.named(text, NOW_US)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "who is the dog",
        "which of the 2 may fail",
        "What may I do?",
        "the march of the penguins",
        "Did April call?",
        "version 2023.7.3",
        "order 2023-07-03-17",
        "it costs 2023",
        "30 February 2023",
        "on 99 July 2023",
        "2023-13-01",
        "TS-2026-0417",
        ", ".join(f"{day}.1.2023" for day in range(1, 32)) + ", " + ", ".join(f"{day}.3.2023" for day in range(1, 32)),
    ],
)
def test_what_is_no_date_is_none(text: str) -> None:
    """Nor is a list of dates a question about when."""
    assert () == period.named(text, NOW_US)


def test_without_a_year_it_is_any_of_the_last_ones() -> None:
    """Up to the present one."""
    found = period.named("camping in June", NOW_US)
    assert [(us(year, 6), us(year, 7)) for year in range(2017, 2027)] == list(found)
    assert period.N_YEARS == len(period.named("on June 3rd", NOW_US))


def test_two_dates_are_two_periods() -> None:
    """An entry fits where it fits either."""
    found = period.named("between 3 July 2023 and August 2023", NOW_US)
    assert {DAY, (us(2023, 8), us(2023, 9))} == set(found)


def test_a_moment_fits_within_and_half_as_well_in_the_week_after() -> None:
    """And not at all before or later."""
    asked = period.named("in July 2023", NOW_US)
    moments = (us(2023, 7) - 1, us(2023, 7), us(2023, 8) - 1, us(2023, 8), us(2023, 8, 8) - 1, us(2023, 8, 8))
    assert [0, 1, 1, 0.5, 0.5, 0] == [period.fit(asked, moment) for moment in moments]
    assert 0 == period.fit((), us(2023, 7))


@hypothesis.given(st.text() | st.from_regex(r"(in |on )?[0-9]{1,4}[-./ ](may|july|13|2)[-./ ][0-9]{1,4}"))
def test_any_text_can_be_read(text: str) -> None:
    """No text raises; periods have a beginning before their end."""
    assert all(one.from_us < one.until_us < one.later_us for one in period.named(text, NOW_US))


def test_a_long_query_is_read_in_no_time() -> None:
    """Nothing in a text makes a pattern go over it again and again."""
    started_s = time.process_time()
    for text in ("in " * 7_000, "3 " * 10_000, "july " * 4_000, "2023-" * 4_000, "1.1." * 5_000):
        period.named(text, NOW_US)
    assert time.process_time() - started_s < 0.5
