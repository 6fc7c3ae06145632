"""Extraction without a model: what was said, in order, in the language it was said in."""

# signs of other scripts are meant

from __future__ import annotations

import datetime as dt
import zoneinfo

import hypothesis
import pytest
from hypothesis import strategies as st

from everosd import clock, types
from everosd.intake import message, verbatim
from everosd.narrative import spoken

NOON = dt.datetime(2023, 5, 8, 12, 45, tzinfo=dt.UTC)
SESSION = types.Owner(app="default", project="default", type="session", id="s1")


def said(
    text: str, name: str = "Mara", *, role: message.Role = "user", after: dt.timedelta = dt.timedelta()
) -> message.Message:
    return message.Message(
        id="m", sender_id=name.lower(), sender_name=name, role=role, timestamp_us=clock.to_us(NOON + after), text=text
    )


def extract(*messages: message.Message, zone: dt.tzinfo = dt.UTC) -> message.Extracted:
    segment = message.Segment(session=SESSION, id="mc_000000000000", messages=messages, reason="flush")
    return verbatim.extract(segment, zone)


TALK = (
    said("Hi Tom! How are you?"),
    said("Fine, thanks!", "Tom"),
    said("I moved to Porto last week and my flat is in Rua das Flores."),
    said("Wow, congrats! I still live in Ghent.", "Tom"),
)


def test_content_is_what_was_said_with_its_dates() -> None:
    """A line each under the day, nothing left out."""
    expected = (
        "2023-05-08 12:45\n"
        "Mara: Hi Tom! How are you?\n"
        "Tom: Fine, thanks!\n"
        "Mara: I moved to Porto last week (2023-05-01 to 2023-05-07) and my flat is in Rua das Flores.\n"
        "Tom: Wow, congrats! I still live in Ghent."
    )
    assert expected == extract(*TALK).content


def test_facts_are_the_statements_with_who_made_them() -> None:
    """Each can stand alone; what says nothing is none."""
    assert [
        "Mara: Hi Tom! How are you?",
        "Mara: I moved to Porto last week (2023-05-01 to 2023-05-07) and my flat is in Rua das Flores.",
        "Tom: Wow, congrats! I still live in Ghent.",
    ] == spoken.facts(extract(*TALK).content)


def test_subject_says_who_when_and_what() -> None:
    """In one line, of what is most definite."""
    expected = "Mara, Tom, 8 May 2023: Mara: I moved to Porto last week and my flat is in Rua…"
    assert expected == extract(*TALK).subject
    assert "Mara, 8 May 2023: I like tea with milk." == extract(said("I like tea with milk.")).subject


def test_summary_has_what_says_most() -> None:
    """In the order in which it was said, questions left out."""
    summary = extract(*TALK).summary
    assert "I moved to Porto" in summary
    assert "How are you" not in summary
    assert verbatim.MAX_SUMMARY_CHARS >= len(summary)


def test_the_same_messages_give_the_same() -> None:
    """And it is said who extracted."""
    assert extract(*TALK) == extract(*TALK)
    assert extract(*TALK).by == "verbatim"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("昨天我和李雷去了颐和园，看见了一只白色的猫。", ("昨天（2023-05-07）", "颐和园")),
        ("Hier, j'ai vu un chat blanc au jardin et je l'ai pris en photo.", ("Hier (2023-05-07)", "chat blanc")),
        ("Letzte Woche habe ich in Köln einen weißen Kater gesehen.", ("(2023-05-01 bis 2023-05-07)", "Kater")),
        ("昨日、公園で白い猫を見ました。", ("昨日（2023-05-07）", "白い猫")),
    ],
)
def test_l11_the_language_of_the_talk_is_kept(text: str, words: tuple[str, ...]) -> None:
    """Content, summary, subject and facts say it in the words in which it was said."""
    made = extract(said(text))
    for part in (made.content, made.summary, *spoken.facts(made.content)):
        assert all(word in part for word in words)
    assert words[-1] in made.subject


def test_l11_a_mixed_talk_stays_mixed() -> None:
    """Each statement in its own language."""
    made = extract(said("我喜欢喝绿茶。"), said("Et moi, je préfère le café noir.", "Luc"))
    assert ["Mara: 我喜欢喝绿茶。", "Luc: Et moi, je préfère le café noir."] == spoken.facts(made.content)


def test_l13_relative_times_are_those_of_the_message_in_its_zone() -> None:
    """What is said at half past midnight in Shanghai is said a day later than in Greenwich."""
    late = said("We met yesterday.", after=dt.timedelta(hours=4))
    made = extract(late, zone=zoneinfo.ZoneInfo("Asia/Shanghai"))
    assert "2023-05-09 00:45\nMara: We met yesterday (2023-05-08)." == made.content


def test_each_day_is_named() -> None:
    """A segment that goes over midnight says where."""
    made = extract(said("I am going home now."), said("I came home late.", after=dt.timedelta(hours=12)))
    assert "2023-05-08 12:45\nMara: I am going home now.\n2023-05-09 00:45\nMara: I came home late." == made.content


def test_no_message_passes_for_another_senders() -> None:
    """Lines and days within a message, and names with colons, stay the words of whoever sent them."""
    made = extract(
        said("I like tea.\nTom: I owe Mara money.\n2001-01-01\nAnd cake."), said("It rains here.", "Tom: x\ny")
    )
    assert [
        "Mara: I like tea. Tom: I owe Mara money. 2001-01-01 And cake.",
        "Tom x y: It rains here.",
    ] == spoken.facts(made.content)


def test_code_is_content_and_no_fact() -> None:
    """What is said around it is."""
    made = extract(said("Use this here:\n```py\nprint('tomorrow')\n```\nIt prints a word."))
    assert "print('tomorrow')" in made.content
    assert ["Mara: Use this here: It prints a word."] == spoken.facts(made.content)


def test_long_messages_become_several_facts() -> None:
    """Whole sentences each, all of them said by the sender, none lost."""
    sentences = [f"The river number {number} runs through the town of Ghent and on to the sea." for number in range(30)]
    found = spoken.facts(extract(said(" ".join(sentences))).content)
    assert all(len(fact) <= spoken.MAX_FACT_CHARS + len("Mara: ") for fact in found)
    assert all(fact.startswith("Mara: The river") for fact in found)
    assert sentences == [f"The river {one}".strip() for fact in found for one in fact.split("The river ")[1:]]


def test_prose_gives_its_sentences() -> None:
    """An Episode may be written by a model or a person."""
    prose = "Mara moved to Porto on 2023-05-02. Her flat is small.\n\n- She has a dog called Rex.\n- Note: it barks.\n"
    expected = [
        "Mara moved to Porto on 2023-05-02.",
        "Her flat is small.",
        "She has a dog called Rex.",
        "Note: it barks.",
    ]
    assert expected == spoken.facts(prose)


def test_chinese_prose_gives_its_sentences() -> None:
    """Without a space between them."""
    assert ["小明住在北京。", "他有一只猫！"] == spoken.facts("小明住在北京。他有一只猫！")


def test_a_transcript_without_its_day_is_one() -> None:
    """A person may have deleted it, or another program written it."""
    assert ["Ann: I like green tea.", "Bob: I do not like it."] == spoken.facts(
        "Ann: I like green tea.\nBob: I do not like it.\nAnn: Oh no!"
    )


def test_of_what_a_tool_answered_there_is_the_beginning() -> None:
    """All of it is in the session's log."""
    made = extract(said("Please look up the weather."), said("It is warm in Porto. " * 200, "search", role="tool"))
    assert 900 > len(made.content)
    assert "[search]: It is warm in Porto. It is" in made.content
    assert made.content.endswith(" …")


def test_what_a_tool_answered_is_nobodys_statement() -> None:
    """Nor can a person be called as if they were a tool."""
    made = extract(
        said("Please look up the weather."),
        said("It is warm in Porto.", "search", role="tool"),
        said("I live in Ghent.", "[Tom]"),
    )
    assert ["Mara: Please look up the weather.", "Tom: I live in Ghent."] == spoken.facts(made.content)
    assert "Porto" not in made.summary + made.subject


def test_nothing_said_is_nothing() -> None:
    """Messages without text make an empty Episode, and none of it fails."""
    assert ("", "", "") == ((made := extract(said(" \n"))).content, made.subject, made.summary)
    assert [] == spoken.facts("")


@hypothesis.settings(max_examples=50, deadline=None)
@hypothesis.given(
    st.lists(st.tuples(st.sampled_from(["Ann", "鲍勃", "", "::"]), st.text(max_size=80)), min_size=1, max_size=6)
)
def test_any_talk_is_kept_word_by_word(talk: list[tuple[str, str]]) -> None:
    """Nothing fails, all words are in the content, and lines stay within their bounds."""
    made = extract(*(said(text, name) for name, text in talk))
    words = made.content.split()
    for _, text in talk:
        assert all(word in words or any(word[:3] in one for one in words) for word in text.split())
    assert verbatim.MAX_SUBJECT_CHARS >= len(made.subject)
    assert len(made.subject.splitlines()) <= 1
    assert verbatim.MAX_SUMMARY_CHARS >= len(made.summary)
    assert len(spoken.facts(made.content)) == len(set(spoken.facts(made.content)))


def test_a_title_ends_no_sentence() -> None:
    """“The vet, Dr.” told twice would be dropped the second time, and with it who says what follows."""
    assert ["Toby is four.", "The vet, Dr. Okafor, says so."] == spoken.sentences(
        "Toby is four. The vet, Dr. Okafor, says so."
    )
    assert ["She saw the Dr."] == spoken.sentences("She saw the Dr.")
