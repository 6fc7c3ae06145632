"""Clusters merged without a model: the sources' own words, dated, nothing twice, nothing lost."""

from __future__ import annotations

import datetime as dt
import time

import pytest

from everosd.narrative import extractive, faithful, source, spoken
from tests.unit.test_faithful import FULL, sources

TALKS = (
    "2026-08-10 09:00\nMara: Hi Tom! How are you?\nTom: Thanks!\nMara: I rent a flat in Porto, it costs 900 euros.\nTom: I live in Ghent.",
    "2026-09-09 09:00\nMara: I rent a flat in Porto, it costs 900 euros.\n[search]: nothing found\nTom: Try this:\n  ```\n  ls -l\n  ```\nMara: Now the rent is 950 euros.",
)


def passes(found: source.Narrative, given: list[source.Source]) -> faithful.Verdict:
    """Return what the check says of a narrative, which has to be that nothing is wrong."""
    verdict = faithful.Evidence(given).judge(found.content)
    assert (True, ()) == (verdict.is_true, verdict.missing), verdict
    return verdict


def test_prose_is_told_under_its_days_and_passes_its_own_check() -> None:
    """In time order, whatever order it came in; the current state is last."""
    given = sources(*FULL)
    found = extractive.merged(given[::-1])
    assert f"2026-08-10\n{FULL[0]}\n2026-09-09\n{FULL[1]}\n2026-10-09\n{FULL[2]}" == found.content
    assert ("extractive", "4 of 4 statements told") == (found.by, found.check.said())
    passes(found, given)


def test_a_transcript_keeps_who_said_what_and_its_code_and_drops_what_says_nothing() -> None:
    """What was said again is there once; what a tool answered is no statement."""
    given = sources(*TALKS)
    found = extractive.merged(given)
    assert (
        "2026-08-10\nMara: Hi Tom! How are you?\nMara: I rent a flat in Porto, it costs 900 euros.\nTom: I live in Ghent.\n"
        "2026-09-09\nTom: Try this:\n  ```\n  ls -l\n  ```\nMara: Now the rent is 950 euros."
    ) == found.content
    passes(found, given)


def test_short_statements_stay() -> None:
    """Two words can be a fact, unlike thanks."""
    given = sources("2026-08-10 09:00\nMara: Rex barks.\nMara: Thanks, Tom!", "Toby bites.")
    found = extractive.merged(given)
    assert "2026-08-10\nMara: Rex barks.\nMara: Thanks, Tom!\n2026-09-09\nToby bites." == found.content
    passes(found, given)


def test_facts_of_a_narrative_carry_their_day() -> None:
    """The narrative itself is of one moment; what it tells is not."""
    facts = spoken.facts(extractive.merged(sources(*TALKS)).content)
    assert "Mara: I rent a flat in Porto, it costs 900 euros. (2026-08-10)" in facts
    assert "Mara: Now the rent is 950 euros. (2026-09-09)" in facts


def test_a_narrative_is_merged_again_without_a_day_twice() -> None:
    """Ten updates in a row: every value that there ever was is there once, with its day, the present one last."""
    (old,) = sources(extractive.merged(sources(*TALKS)).content, is_narrative=True)
    rents = [950]
    for month in range(10):
        rents.append(1000 + 10 * month)
        at = dt.datetime(2027, 1 + month, 5, tzinfo=dt.UTC)
        new = source.Source(
            entry_id=f"ep_{month}",
            at=at,
            subject="",
            content=f"{at:%Y-%m-%d %H:%M}\nMara: The rent is {rents[-1]} euros.",
        )
        found = extractive.merged([old, new])
        passes(found, [old, new])
        old = source.Source(entry_id="ep_n", at=at, subject="", content=found.content, is_narrative=True)
    lines = old.content.splitlines()
    assert all(1 == sum(f"{rent} euros" in line for line in lines) for rent in rents)
    days = [line for line in lines if spoken.DAY.match(line)]
    assert sorted(set(days)) == days
    assert "Mara: The rent is 1090 euros." == lines[-1]


def test_details_of_a_merged_narrative_find_their_days() -> None:
    """Prose without a day stands first, details under theirs, with those who said them."""
    content = (
        f"Andrew has two dogs.\n\n{spoken.DETAILS}\n- He lives in Rennes.\n- 2026-08-11: Tom: Toby cost 120 euros."
    )
    old, new = sources(content, "Andrew moved to Brest.")
    given = [source.Source(entry_id=old.entry_id, at=old.at, subject="", content=content, is_narrative=True), new]
    found = extractive.merged(given)
    assert (
        "Andrew has two dogs.\nHe lives in Rennes.\n2026-08-11\nTom: Toby cost 120 euros.\n2026-09-09\nAndrew moved to Brest."
    ) == found.content
    passes(found, given)


def test_what_a_person_put_into_a_narrative_stands_last() -> None:
    """Its statements are the latest, whatever the others say."""
    old, new = sources("Toby is 4 years old.", "Toby is 3 years old.")
    edited = source.Source(
        entry_id="ep_n", at=old.at, subject="", content=old.content, is_narrative=True, is_latest=True
    )
    assert "2026-09-09\nToby is 3 years old.\nToby is 4 years old." == extractive.merged([edited, new]).content


def test_R03_a_state_that_came_back_is_the_last_one() -> None:
    """It is told when it was first so, and again when it became so again; never more often."""
    said = [
        "Mara loves coffee.",
        "Mara hates coffee.",
        "Mara loves coffee.",
        "Mara hates coffee.",
        "Mara loves coffee.",
    ]
    lines = extractive.merged(sources(*said)).content.splitlines()[1::2]
    assert ["Mara loves coffee.", "Mara hates coffee.", "Mara hates coffee.", "Mara loves coffee."] == lines


def test_R02_three_hundred_near_identical_episodes_become_one_short_text() -> None:
    """In no time, and all of them fit into one merge."""
    text = "Mara drinks {} green tea every morning. She lives in Ghent{} with her cat. The rent is 900 euros."
    given = sources(*(text.format(("", "the")[at % 2], ("", " also")[at % 3 == 0]) for at in range(300)))
    began_s = time.process_time()
    assert 300 == extractive.Extractive(2_000).n_fitting(given)
    found = extractive.merged(given)
    assert time.process_time() - began_s < 2.0  # 0.2 alone
    assert len(found.content) < 300
    passes(found, given)


def test_as_many_sources_fit_as_there_is_room_for_what_is_new_in_them() -> None:
    """The oldest first; none where the first alone is too long."""
    given = sources(*(f"Mara has been to the town number {at} with her friend." for at in range(20)))
    assert [0, 1, 20] == [extractive.Extractive(room).n_fitting(given[::-1]) for room in (40, 100, 2_000)]


def test_a_fact_that_the_content_does_not_have_is_taken_along() -> None:
    """A person may have written it."""
    given = sources("Mara lives in Ghent.", facts=[["Mara has a parrot named Rio.", "Mara lives in Ghent"]])
    assert "2026-08-10\nMara lives in Ghent.\nMara has a parrot named Rio." == extractive.merged(given).content


@pytest.mark.parametrize(
    ("subjects", "expected"),
    [(["Pets", "Pets", "Dogs"], "Pets"), (["Pets", "Dogs"], "Dogs"), (["Pets", ""], "Pets"), (["", ""], FULL[1])],
)
def test_the_subject_is_the_most_frequent_one_or_the_newest(subjects: list[str], expected: str) -> None:
    """Without any, it is what was said last."""
    given = [
        source.Source(entry_id=one.entry_id, at=one.at, subject=name, content=one.content)
        for one, name in zip(sources(*FULL), subjects, strict=False)
    ]
    assert expected == extractive.subject(given)


@pytest.mark.parametrize(
    "contents",
    [
        (
            "2026-08-10 09:00\n王明: 我有两个孩子，我们住在北京。",
            "2026-09-09 09:00\n王明: 我有两个孩子，我们住在北京。\n王明: 现在我们住在上海。",
        ),
        ("Luc a deux chats.", "Luc a trois chats depuis le 5 mai.", "Mara: I like tea.\nMara: I live in Ghent."),
        ("Anna wohnt in Köln.", "Anna zog am 3. März nach Berlin und hat 2 Hunde."),
        ("健太は大阪に住んでいます。犬を二匹飼っています。", "健太は京都へ引っ越した。"),
    ],
)
def test_L11_each_source_stays_in_its_language(contents: tuple[str, ...]) -> None:
    """Nothing is translated, and the check agrees."""
    given = sources(*contents)
    found = extractive.merged(given)
    passes(found, given)
    assert all(turn.text in found.content for one in given for turn in spoken.turns(one.content)[-1:])


@pytest.mark.parametrize(
    "content",
    [
        "",
        " \n",
        "?!",
        "Thanks!",
        "#### Details",
        "- ",
        "2026-08-10",
        "2026-08-10\n2026-08-10 09:00\n",
        "a: b: c:",
        "9" * 2000,
    ],
)
async def test_strange_sources_make_a_narrative_too(content: str) -> None:
    """Nothing keeps a run."""
    merging = extractive.Extractive(1_000)
    found = await merging.merge(sources(content, "Mara lives in Ghent."))
    assert "Mara lives in Ghent." in found.content
    assert merging.is_set_up
