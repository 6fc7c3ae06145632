"""What is said of whom: swaps between people are found, and good merges are left alone."""

from __future__ import annotations

import time

import pytest

from everosd.narrative import faithful, measure, people
from tests.unit.merged_well import GOOD
from tests.unit.test_faithful import sources

PAY = (
    "Anna earns 4000 euros a month. Ben earns 3000 euros a month.",
    "Anna lives in Porto. Ben lives in Lyon.",
    "Anna moved to Berlin on 12 March 2026. Ben has 2 dogs.",
)
TOLD = (
    "Anna earns 4000 euros a month, and Ben earns 3000 euros a month. Anna lived in Porto; Ben lives in Lyon."
    " On 12 March 2026 Anna moved to Berlin. Ben has 2 dogs."
)


def strange(text: str, *contents: str) -> tuple[str, ...]:
    return faithful.Evidence(sources(*contents)).judge(text).strange


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("Anna lived in Porto; Ben lives in Lyon.", "Anna lived in Lyon; Ben lives in Porto."),
        ("Ben has 2 dogs.", "Anna has 2 dogs."),
        ("On 12 March 2026 Anna moved to Berlin.", "On 12 March 2026 Ben moved to Berlin."),
        ("On 12 March 2026 Anna moved to Berlin.", "On 12 March 2026 Anna moved to Porto."),
        ("Anna earns 4000 euros a month", "Anna earns 4000 pounds a month"),
        ("Anna earns 4000 euros a month", "Anna earns 4000 euros a day"),
        ("Ben has 2 dogs.", "Ben has 2 dogs. Anna still lives in Porto."),
        ("Anna moved to Berlin.", "Anna moved to Berlin with Ben."),
    ],
)
def test_R06_what_is_said_of_one_is_not_said_of_another(right: str, wrong: str) -> None:
    """Every word of it is a source's, and the sentence is strange all the same."""
    assert () == strange(TOLD, *PAY)
    assert 1 == len(strange(TOLD.replace(right, wrong), *PAY))


@pytest.mark.parametrize(
    ("wrong", "contents"),
    [
        ("Ben wohnt in Köln.", ("Anna wohnt in Köln. Ben wohnt in Mainz.",)),
        ("Anna hat 3 Hunde.", ("Anna wohnt in Köln. Ben hat 3 Hunde.",)),
        ("Luis vive en Sevilla.", ("Ana vive en Sevilla. Luis vive en Madrid.",)),
        ("Marc habite à Lyon.", ("Claire habite à Lyon. Marc habite à Lille.",)),
        ("Ben lives in Porto.", ("Anna lives in Porto and Ben lives in Lyon.",)),
        (
            "Ben lives in Porto, and Anna lives in Lyon.",
            ("2026-08-10 09:00\nAnna: I live in Porto.\nBen: I live in Lyon.",),
        ),
        ("She lives in Lyon. Ben lives there too.", ("Ann lives in Porto.", "Ben lives in Lyon.")),
        ("王明每月挣8000美元。", ("王明每月挣8000元。",)),
    ],
)
def test_L11_swaps_are_found_in_other_languages_and_forms(wrong: str, contents: tuple[str, ...]) -> None:
    """As in English; where one sentence says both, and in a transcript."""
    assert strange(wrong if not wrong.startswith("She") else f"Ann is here. {wrong}", *contents)


@pytest.mark.parametrize(("contents", "text"), GOOD)
def test_good_merges_say_of_nobody_what_is_of_another(contents: tuple[str, ...], text: str) -> None:
    """Nothing of them is strange or invented, so none is refused."""
    found = faithful.Evidence(sources(*contents)).judge(text)
    assert found.is_true, found


@pytest.mark.parametrize(
    ("contents", "text"),
    [
        (("Anna lives in Porto. Ben lives there too.",), "Ben lives in Porto."),
        (("Anna lives in Porto.", "Ben lives with Anna."), "Ben lives in Porto."),
        (("Anna lives in Porto. Her brother is Ben.", "She has 3 cats."), "Anna, sister of Ben, has 3 cats."),
        (("Anna: Where do you live, Ben?\nBen: In Lyon, near the Rhône.",), "Ben lives in Lyon, near the Rhône."),
        (("Anna: Your flat in Lyon is lovely.\nBen: Thank you, Anna!",), "Ben has a lovely flat in Lyon."),
        (("Anna has a sister, Mia. Mia lives in Lyon.",), "Anna's sister lives in Lyon."),
        (("Ben moved to Lyon. Anna visited him.",), "Anna visited him in Lyon, where Ben had moved."),
        (("Anna lives in Porto.", "Anna moved to Berlin."), "Anna moved from Porto to Berlin."),
        (("Anna lives in Porto.", "Anna moved to Berlin."), "At first she still lived in Porto; Anna moved to Berlin."),
        (("The rent is 900 euros a month.",), "The monthly rent is €900."),
        (("Anna Schmidt lives in Porto. Ben Weber lives in Lyon.",), "Weber lives in Lyon, and Schmidt in Porto."),
        (("Benjamin lives in Lyon. Anna lives in Porto.",), "Ben lives in Lyon."),
        (("They moved to Berlin.", "Anna lives in Porto. Ben lives in Lyon."), "Anna and Ben moved to Berlin."),
    ],
)
def test_what_may_be_of_both_is_not_strange(contents: tuple[str, ...], text: str) -> None:
    """`There`, `with`, `you`, relatives, nicknames: whoever is meant has it."""
    lines = [one.content.splitlines() for one in sources(*contents)]
    assert frozenset() == people.People(lines).misplaced([text])
    assert not measure.Measures(line for one in lines for line in one).belies(text)


def test_a_number_keeps_its_units() -> None:
    """Money, how often and lengths; of another thing, or where the sources name none, it may have any."""
    said = measure.Measures(["Anna earns 4000 euros a month and runs 10 km a day.", "She has 3 dogs.", "It took 20."])
    for text in ("4000 dollars", "4000 euros per week", "runs 10 miles", "£4000", "10 km a week"):
        assert said.belies(text), text
    for text in ("4000 €", "EUR 4000", "monthly 4000 euros", "3 euros", "20 pounds", "10 kilometres daily", "4000"):
        assert not said.belies(text), text


def test_twenty_long_episodes_of_four_people_are_read_in_no_time() -> None:
    """In a line of their length."""
    said = [
        " ".join(f"{name} lives in {place} and has {at + step} books." for step, (name, place) in enumerate(zip(("Anna", "Ben", "Mia", "Leo") * 12, ("Porto", "Lyon", "Rome") * 16, strict=True)))
        for at in range(20)
    ]  # fmt: skip
    assert min(map(len, said)) > 1500
    began_s = time.process_time()
    people.People([[one] for one in said]).misplaced(said)
    assert time.process_time() - began_s < 1.5  # 0.3 alone
