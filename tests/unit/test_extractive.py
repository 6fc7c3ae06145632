"""Clusters merged without a model: the sources' own words, dated, nothing twice, nothing lost."""

from __future__ import annotations

import datetime as dt
import re
import time

import hypothesis
import msgspec
import pytest
from hypothesis import strategies as st

from everosd.narrative import check, extractive, faithful, source, spoken, title, words
from tests import effort
from tests.unit.test_faithful import FULL, sources

_WORD = re.compile(r"-?[^\W_]+(?:[.:-][^\W_]+)*[%€$]?|[€$]")

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
        "2026-08-10\nMara: I rent a flat in Porto, it costs 900 euros.\nTom: I live in Ghent.\n"
        "2026-09-09\nTom: Try this:\n  ```\n  ls -l\n  ```\nMara: Now the rent is 950 euros."
    ) == found.content
    passes(found, given)


async def test_what_says_nothing_at_all_is_not_hidden_behind_an_empty_narrative() -> None:
    """Two talks of greetings: each is still found by what was said in it."""
    merging = extractive.Extractive(10_000)
    with pytest.raises(source.Refused, match="says anything"):
        await merging.merge(
            sources("2026-08-10 09:00\nLea: hallo\nTim: hi lea", "2026-08-11 09:00\nLea: hallo\nTim: danke")
        )
    found = await merging.merge(sources("2026-08-10 09:00\nLea: hallo", "2026-08-11 09:00\nLea: I live in Ghent."))
    assert "I live in Ghent." in found.content


def test_short_statements_stay() -> None:
    """Two words can be a fact, and one; unlike thanks."""
    given = sources("2026-08-10 09:00\nMara: Rex barks.\nTom: Thanks, Mara!\nMara: Pregnant!", "Toby bites.")
    found = extractive.merged(given)
    assert "2026-08-10\nMara: Rex barks.\nMara: Pregnant!\n2026-09-09\nToby bites." == found.content
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
    [
        (["Pets", "Pets", "Dogs"], "Pets"),
        (["Pets", "Dogs"], "Dogs"),
        (["Pets", "On 5 October 2026"], "Pets"),
        (["", "", ""], "Andrew, Toby (2026-08 – 2026-10)"),
        (
            ["Andrew, Toby (2026-07 – 2026-08)", "Andrew, Bot, 1 September 2026: Andrew: I have"],
            "Andrew, Toby (2026-08 – 2026-09)",
        ),
    ],
)
def test_a_subject_is_one_that_somebody_gave_or_what_the_sources_share(subjects: list[str], expected: str) -> None:
    """The most frequent, or the newest; none with a day, which is that of one source, and none that was put together."""
    contents = ("Andrew has a dog, Toby.", "Andrew walks with Toby.", "Andrew sleeps, and Toby eats.")
    given = [
        msgspec.structs.replace(one, subject=name) for one, name in zip(sources(*contents), subjects, strict=False)
    ]
    assert expected == title.of(given)


def test_the_subject_of_talks_names_who_speaks_and_what_they_share() -> None:
    """In their language, with the months; what a machine is called says nothing, and without anything shared the newest speaks."""
    flat = "2026-0{0}-10 09:00\nMarta: Die Wohnung in Köln kostet {1} Euro.\nAssistent: Notiert, Wohnung in Köln."
    head = "Marta, Assistent, 10. August 2026: Marta: Die Wohnung in Köln…"
    given = [msgspec.structs.replace(one, subject=head) for one in sources(flat.format(8, 900), flat.format(9, 950))]
    assert title.of(given) in {"Marta: Wohnung, Köln (2026-08 – 2026-09)", "Marta: Köln, Wohnung (2026-08 – 2026-09)"}
    assert "I like tea. (2026-08 – 2026-09)" == title.of(sources("Rex barks.", "I like tea. Thanks!"))
    assert "" == title.of([])


def test_what_is_said_twice_about_one_thing_stays_once() -> None:
    """Something else that was said of it in between is no change of its state."""
    said = [
        "Gus: The milling machine needs oil every 50 hours.\nGus: It stands in the hall.",
        "Gus: The milling machine got a new belt for 120 euros.\nGus: It hums.",
        "Gus: The milling machine needs oil every 50 hours.\nGus: It stands in the hall.",
    ]
    lines = extractive.merged(sources(*said)).content.splitlines()
    assert len(lines) == len(set(lines))
    assert 6 == len(lines)


@pytest.mark.parametrize(
    ("state", "other"),
    [
        ("Mara: I live in Ghent.", "Mara: I live in Porto."),
        ("Mara pays 900 euros of rent.", "Mara pays 950 euros of rent."),
        ("Mara has a cat.", "Mara does not have a cat."),
        ("Anna wohnt in Köln.", "Anna wohnt in Berlin."),
        ("王明住在北京。", "王明住在上海。"),
    ],
)
def test_R03_a_state_that_came_back_stays_through_updates(state: str, other: str) -> None:
    """Also where the narrative is what is read: it is there twice, and never more often."""
    given = sources(*(f"{line}\n{line}" if ":" in line else line for line in (state, other, state)))
    content = extractive.merged(given).content
    for _ in range(3):
        assert 2 == content.count(state)
        (old,) = sources(content, is_narrative=True)
        content = extractive.merged([old, *sources("", "", "", "Rex barks.")[3:]]).content


NORA = (
    "2026-08-10 09:00\nNora: The rent of my flat is 800 euros.\nNora: My locker code is 7741.\nTom: I live in Ghent.",
    "2026-09-09 09:00\nNora: My flat got a balcony.\nTom: I live in Porto.",
    "2026-10-09 09:00\nNora: My flat is on the third floor.\nTom: I live in Ghent.",
)


@pytest.mark.parametrize("is_edited", [True, False])
def test_no_update_doubles_a_line_or_brings_back_what_a_person_changed(is_edited: bool) -> None:  # noqa: FBT001
    """Nora corrects a sum and deletes a sentence; five updates later both are as she left them."""
    at = sources(*NORA)[-1].at
    content = extractive.merged(sources(*NORA)).content
    expected = content.splitlines()
    if is_edited:
        content = content.replace("800 euros", "850 euros").replace("Nora: My locker code is 7741.\n", "")
        expected = content.splitlines()
        assert 1 == len(set(expected) ^ {*expected, "Nora: My locker code is 7741."})
    for nth in range(5):
        old = source.Source(
            entry_id="ep_n", at=at, subject="", content=content, is_narrative=True, is_latest=is_edited and nth == 0
        )
        at += dt.timedelta(days=30)
        new = source.Source(
            entry_id=f"ep_{nth}",
            at=at,
            subject="",
            content=f"{at:%Y-%m-%d %H:%M}\nTom: Rex barks.\nTom: I met friend {nth}.",
        )
        found = extractive.merged([old, new])
        passes(found, [old, new])
        content = found.content
        assert expected == content.splitlines()[: len(expected)]
    assert 2 == content.count("Tom: I live in Ghent.")
    assert 1 == content.count("Rex barks.")


def test_greetings_and_questions_to_nobody_are_left_out_and_answers_are_not() -> None:
    """A question stays that is answered by the next line, or that tells something itself."""
    talk = (
        "2026-08-10 09:00\nGus: Good morning!\nBot: Great, haha.\nGus: Remind me what it was called again\nBot: You're welcome!\n"
        "Gus: What is the locker code?\nBot: It is 7741.\nGus: Is it safe?\nBot: Yes.\nBot: Any questions?\n"
        "Gus: Did you know that my sister lives in Rome?\nBot: Wow, cool!\nGus: The evening was long."
    )
    found = extractive.merged(sources(talk, "Was it cold? It was."))
    assert (
        "2026-08-10\nGus: What is the locker code?\nBot: It is 7741.\nGus: Is it safe?\nBot: Yes.\n"
        "Gus: Did you know that my sister lives in Rome?\nGus: The evening was long."
    ) == found.content
    passes(found, sources(talk))


AWKWARD = (
    "Am 30. Mai kommt Herr Dr. Lang und prüft z. B. den Brunnen im Garten.",
    "It lost approx. 12 litres, see invoice No. 77.",
    "We met at 9 a.m. with a new valve.",
    "At 5 p.m. Monday Mrs. Okafor left for St. Gallen.",
    "J. R. Smith wohnt im 3. Stock, Goethestr. 5, Tel. 0301 22.",
    "3. März war kalt, d. h. -5 Grad bzw. 23 Fahrenheit.",
    "Die Pumpe verlor u. a. 2.5 Liter Öl, ca. 1.5 Liter Wasser usw. am Tag.",
    'Rex barks. Yes! Pregnant. "Stop." she said. 7741.',
    "1. Platz für Mara",
    "i moved to porto. the rent is 900. vs. 850 before",
    "Anna-Lena und Eva-Lena zahlen 5 € bzw. 5 $.",
    "- Milk\n- Eggs, e.g. 12 brown ones.",
    "The rest\nof it: 40%.",
    "Tom: e.g. tea.\nTom: No. 5 is lost.",
    "2026-05-01 09:00\nLuc: J'ai vu M. Dupont à 8 h.\nLuc: Etc. and so on, No. 9",
)


@hypothesis.settings(max_examples=effort.rounds(500, 60), deadline=None)
@hypothesis.given(st.lists(st.lists(st.sampled_from(AWKWARD), min_size=1, max_size=3), min_size=1, max_size=4))
def test_nothing_of_awkward_sentences_is_lost(texts: list[list[str]]) -> None:
    """Every number, every name and every word of weight of the sources is in the narrative, and its own judge agrees."""
    given = sources(*("\n".join(each) for each in texts))
    found = extractive.merged(given)
    told = set(_WORD.findall(found.content.casefold()))
    for word in _WORD.findall("\n".join(line for each in texts for text in each for line in text.split("\n"))):
        has_weight = any(map(str.isdigit, word)) or words.fold(word) not in check.STOP
        is_day = word in ("2026-05-01", "09:00")
        is_chatter = len(word) == 1 or word == "Yes"
        assert word.casefold() in told or not has_weight or is_day or is_chatter, (word, found.content)
    verdict = faithful.Evidence(given).judge(found.content)
    assert (True, ()) == (verdict.is_true, verdict.missing), verdict


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
