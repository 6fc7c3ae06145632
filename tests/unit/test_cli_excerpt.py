"""What of a hit is shown: what matched, not how its text begins."""

from __future__ import annotations

import random
import textwrap
import time
from typing import Any

import pytest

from everosd.cli import excerpt

NARRATIVE = """\
2026-08-10
Andrew: I have no pets yet, and the flat is small, so that will take some time.
2026-09-10
Andrew: We adopted a puppy from the shelter and called him Toby. He sleeps in the hall.
2026-10-10
Andrew: Now there is Buddy as well, a grown dog from the same shelter. Two pets are enough for this flat.
The heating was repaired by somebody whose name nobody in the house remembers, and the bill was low enough for once.
"""
ITEM: dict[str, Any] = {"id": "andrew_ep_20261123_00000001", "session_id": None, "sender_ids": [], "episode": NARRATIVE}
NOTE = ITEM | {"id": "andrew_ep_20261123_h0123abcd"}
WIDTH = 70


def shown(query: str, item: dict[str, Any] = ITEM) -> list[str]:
    return excerpt.lines(item, item["episode"], query, WIDTH)


def test_a_short_text_is_shown_whole_whatever_was_asked() -> None:
    """Three lines at most, and facts are not told beside it."""
    short = ITEM | {"episode": "Andrew has two dogs.", "atomic_facts": [{"id": "a", "content": "x", "score": 1.0}]}
    assert ["Andrew has two dogs."] == shown("dogs", short)


def test_facts_that_matched_stand_for_a_long_text_the_newest_last() -> None:
    """The best three, as they were told; those that match much less are left out."""
    facts = [
        {"id": "andrew_af_20261123_00000004", "content": "Andrew has two pets.", "score": 0.9},
        {"id": "andrew_af_20261123_00000001", "content": "Andrew has\nno pets.", "score": 0.6},
        {"id": "andrew_af_20261123_00000002", "content": "The flat is small.", "score": 0.1},
    ]
    assert ["· Andrew has no pets.", "· Andrew has two pets."] == shown(
        "pets", ITEM | {"session_id": "s1", "atomic_facts": facts}
    )


def test_facts_of_a_narrative_are_shown_with_their_days_the_newest_first() -> None:
    """One without a day of its own is of the newest; best first within a day; what matches much less is left out."""
    facts = [
        {"id": "andrew_af_20261123_00000001", "content": "Andrew has no pets. (2026-08-10)", "score": 0.9},
        {"id": "andrew_af_20261123_00000005", "content": "The food costs 30 euros. (2026-10-10)", "score": 0.6},
        {"id": "andrew_af_20261123_00000002", "content": "The flat is small. (2026-08-10)", "score": 0.6},
        {"id": "andrew_af_20261123_00000003", "content": "Andrew has Toby. (2026-09-10)", "score": 0.5},
        {"id": "andrew_af_20261123_00000004", "content": "Andrew has Toby and Buddy.", "score": 0.4},
        {"id": "andrew_af_20261123_00000006", "content": "The heating was repaired.", "score": 0.2},
    ]
    assert [
        "· 2026-10-10 The food costs 30 euros.",
        "· 2026-10-10 Andrew has Toby and Buddy.",
        "· 2026-09-10 Andrew has Toby.",
        "· 2026-08-10 Andrew has no pets.",
        "· 2026-08-10 The flat is small.",
    ] == shown("pets", ITEM | {"timestamp": "2026-10-10T10:01:00Z", "atomic_facts": facts})


def test_the_newest_day_of_a_narrative_is_shown_whatever_else_matches_better() -> None:
    """There are more facts than lines: the best of the newest day has one of them."""
    facts = [
        {"id": f"andrew_af_20261123_{nth:08}", "content": f"Pet {nth}. (2026-0{nth}-01)", "score": 1 - nth / 20}
        for nth in range(1, 9)
    ]
    lines = shown("pets", ITEM | {"timestamp": "2026-08-01T10:01:00Z", "atomic_facts": facts})
    assert excerpt.FACTS == len(lines)
    assert "· 2026-08-01 Pet 8." == lines[0]
    assert "· 2026-01-01 Pet 1." == lines[-1]


def test_a_narrative_is_shown_from_the_last_sentence_that_matches_best() -> None:
    """It is told in the order of time: the last one of equals says how things stand. Its day stands before it."""
    assert shown("How many pets does Andrew have?")[0].startswith("… Two pets are enough")
    assert shown("puppy")[0].startswith("… 2026-09-10 Andrew: We adopted a puppy")


def test_a_note_is_shown_from_the_first_sentence_that_matches_best() -> None:
    """Nobody has said that it is in the order of time."""
    assert shown("pets", NOTE)[0].startswith("2026-08-10 Andrew: I have no pets yet")


def test_where_no_word_matches_a_narrative_is_shown_at_its_end_and_anything_else_at_its_beginning() -> None:
    """It was found by its meaning."""
    assert shown("zeppelin")[-1].endswith("enough for once.")
    assert excerpt.LINES >= len(shown("zeppelin"))
    assert shown("zeppelin", NOTE)[0].startswith("2026-08-10 Andrew: I have no pets yet")


def test_a_text_without_full_stops_is_cut() -> None:
    """There is nothing to choose from."""
    endless = shown("words", ITEM | {"episode": "words and " * 100})
    assert excerpt.LINES == len(endless)
    assert endless[-1].endswith("…")


def test_the_end_of_a_text_is_the_longest_that_fits() -> None:
    """It is found from the end on: the sentence before it is the first that does not fit."""
    dice = random.Random(7)  # noqa: S311  # no secret
    for _ in range(50):
        parts = [" ".join(["word"] * dice.randrange(1, 12)) + f" {nth}." for nth in range(30)]
        fitting = [
            at
            for at in range(len(parts))
            if len(textwrap.wrap("… " + " ".join(parts[at:]), WIDTH)) <= excerpt.LINES  # of all that there are
        ]
        assert textwrap.wrap("… " + " ".join(parts[fitting[0] :]), WIDTH) == excerpt.end(" ".join(parts), WIDTH)


@pytest.mark.parametrize("item", [ITEM, NOTE], ids=["narrative", "note"])
@pytest.mark.parametrize("pause", [". ", " "], ids=["sentences", "no sentences"])
def test_search_does_not_hang_on_a_long_memory(item: dict[str, Any], pause: str) -> None:
    """Two megabytes in one line took minutes: what was left was wrapped anew from every sentence on."""
    endless = ("some words that nobody asks for" + pause) * 60_000
    began_s = time.process_time()
    lines = shown("zeppelin", item | {"episode": endless})
    assert excerpt.LINES == len(lines)
    assert time.process_time() - began_s < 2.0  # it takes a tenth of a second; a shared machine is slow


@pytest.mark.parametrize("item", [ITEM, NOTE], ids=["narrative", "note"])
def test_what_answers_is_found_anywhere_in_a_long_memory(item: dict[str, Any]) -> None:
    """Of a text that is too long to be read sentence by sentence the piece with the words of the question is."""
    filler = "Some words that nobody asks for. " * 10_000
    lines = shown(
        "How many zeppelins does Andrew have?", item | {"episode": f"{filler}Andrew has a Zeppelin. {filler}"}
    )
    assert lines[0].startswith("… Andrew has a Zeppelin. Some words")
    assert lines[-1].endswith("…")
