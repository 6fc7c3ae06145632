"""What of a hit is shown: what matched, not how its text begins."""

from __future__ import annotations

from typing import Any

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
    assert ["· Andrew has no pets.", "· Andrew has two pets."] == shown("pets", ITEM | {"atomic_facts": facts})


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
