"""Answers of models as they are: wrapped, mended, or refused, and never half taken."""

from __future__ import annotations

import time
from typing import Annotated, Any, Literal, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everosd.models import answer
from tests import chat_stub


class Episode(msgspec.Struct, frozen=True, kw_only=True):
    """What we know, and no model needs to."""

    subject: str
    summary: str
    content: str = ""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """A struct with one list, and nothing that has to be there."""

    facts: list[str] = []


class Trait(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a struct."""

    trait: str
    """Of the person."""
    basis: str = ""
    weight: Annotated[int, msgspec.Meta(ge=0, le=10)] = 5


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """A struct with parts."""

    summary: str
    traits: tuple[Trait, ...] = ()
    mood: Literal["up", "down"] | None = None
    is_final: bool = False


FACTS = Facts(
    facts=["Mara [28] lives in {Vienna}", 'She said "no", twice', "It's 5 o'clock\nor 6: who knows?", "茶が好き"]
)
EPISODE = Episode(subject="Mara's flat", summary='She looks, "soon".', content="One.\nTwo, and {three}.")
READABLE = [
    dress for dress in get_args(chat_stub.Dress) if dress not in ("only_think", "cut", "only_prose")
]  # fmt: skip


@pytest.mark.parametrize("value", [FACTS, EPISODE], ids=["facts", "episode"])
@pytest.mark.parametrize("dress", READABLE)
def test_L01_L04_an_answer_is_read_whatever_it_is_wrapped_in(dress: chat_stub.Dress, value: Facts | Episode) -> None:
    """Fences, prose, reasoning, trailing commas, Python's quotes: the same value comes out, none of its letters lost."""
    said = chat_stub.dressed(msgspec.to_builtins(value), dress)
    assert value == answer.read(said, type(value))


@pytest.mark.parametrize("dress", ["only_think", "cut", "only_prose"])
def test_L01_L04_an_answer_without_an_answer_is_refused(dress: chat_stub.Dress) -> None:
    """Reasoning alone, half a list, an excuse: nothing of it is taken for the answer."""
    with pytest.raises(answer.Unreadable):
        answer.read(chat_stub.dressed(msgspec.to_builtins(FACTS), dress), Facts)


@pytest.mark.parametrize("dress", ["plain", "fenced_json", "trailing_comma", "single_quotes", "think", "list"])
@pytest.mark.parametrize("value", [FACTS, [Trait(trait="calm"), Trait(trait="quick")]], ids=["texts", "objects"])
def test_L01_an_answer_that_is_cut_anywhere_is_never_taken_for_a_whole_one(dress: chat_stub.Dress, value: Any) -> None:
    """At whatever letter the model ran out of tokens: all of the answer is read, or none of it."""
    said = chat_stub.dressed(msgspec.to_builtins(value), dress)
    kind: Any = Facts if isinstance(value, Facts) else list[Trait]
    for n_chars in range(len(said)):
        try:
            found = answer.read(said[:n_chars], kind)
        except answer.Unreadable:
            continue
        assert value == found


@pytest.mark.parametrize(
    ("said", "facts"),
    [
        ('{"facts": ["a" "b"]}', ["a", "b"]),
        ('{"facts": ["a",, "b",]}', ["a", "b"]),
        ('{facts: ["a"]}', ["a"]),
        ('{"Facts": ["a"], "note": "x"}', ["a"]),
        ('{"facts": "a"}', ["a"]),
        ('{"facts": null}', []),
        ('{"facts": []}', []),
        ('{"facts": [{"fact": "a"}, {"fact": "b"}]}', ["a", "b"]),
        ('["a", "b"]', ["a", "b"]),
        ('{"result": ["a", "b"]}', ["a", "b"]),
        ('{"output": {"facts": ["a"]}}', ["a"]),
        ('{"reasoning": "none", "answer": {"facts": ["a"]}}', ["a"]),
        ('[{"facts": ["a"]}]', ["a"]),
        ('{"facts": ["say "hi" to him", "b"]}', ['say "hi" to him', "b"]),
        ("{“facts”: [“a”, “b”]}", ["a", "b"]),
        ("{'facts': ['it\\'s', 'don't']}", ["it's", "don't"]),
        ('{"facts": ["a\\_b", "c\\d", "\\u00e9\\ud83d\\ude00"]}', ["a_b", "cd", "é😀"]),
        ('{"facts": ["a", // the first\n "b"] // all\n}', ["a", "b"]),
        ('\ufeff{"facts": ["a"]}', ["a"]),
        ('```json\n{"facts": ["old"]}\n```\nBetter:\n```json\n{"facts": ["new"]}\n```', ["new"]),
        ('```json {"facts": ["a"]} ```', ["a"]),
        ('{"facts": ["a"]}\n```', ["a"]),
        ('<think>{"facts": ["draft"]}</think>{"facts": ["a"]}', ["a"]),
        ('<think>x</think>{"facts": ["a"]}<think>y</think>', ["a"]),
        ('<THINKING effort="low">x</THINKING>\n{"facts": ["a"]}', ["a"]),
        ('[THINK]{"facts": ["draft", "two"]}[/THINK]{"facts": ["a"]}', ["a"]),
        ('{"facts": ["He wrote <think> there"]}', ["He wrote  there"]),
        ('{"facts": ["<think>hm, {}</think>a"]}', ["a"]),
        ('```\n{"facts": ["It is said </think> twice", "b"]}\n```', ["It is said  twice", "b"]),
        ('{"facts": ["a"]} {"facts": ["a", "b"]}', ["a", "b"]),
        ("As you said [1], [see]: {\"facts\": ['a']} [2]", ["a"]),
    ],
)
def test_L01_small_mistakes_are_mended(said: str, facts: list[str]) -> None:
    """What leaves no doubt is read as it was meant."""
    assert facts == answer.read(said, Facts).facts


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("", "is empty"),
        (" \n", "is empty"),
        ("nothing to report", "holds no JSON"),
        ("As you said [1], there is nothing.", "shape"),
        ("null", "holds no JSON"),
        ("{}", "none of the fields"),
        ("There is nothing {} to tell.", "none of the fields"),
        ('{"items": 5}', "none of the fields"),
        ('{"facts": 7}', "shape"),
        ('{"facts": ["a", 5, {"a": 1, "b": 2}]}', "shape"),
        ('{"facts": ["a", "b"', "cut off"),
        ('{"facts": ["old"]}\n{"facts": ["new", "er', "cut off"),
        ('```json\n{"facts": ["old"]}\n```\n```json\n{"facts": ["new", "er', "cut off"),
        ('{"facts": [1, b c, "d"]} ["e"]', "broken"),
        ('{"a": 1 oops {"facts": ["inner"]}', "broken"),
        ("<think>only this</think>", "reasoning"),
        ("only this</think>", "reasoning"),
        ('<think>perhaps {"facts": ["draft"]}, or not', "reasoning"),
        ('{"facts": ["<think>hm</think>"]}', "reasoning"),
        ("<|channel|>analysis<|message|>We need to", "reasoning"),
        ("[" * 100_000, "broken"),
    ],
)
def test_L01_L04_doubt_is_no_answer(said: str, reason: str) -> None:
    """Nothing, numbers that stand for notes, drafts, halves: refused, and the reason says which."""
    with pytest.raises(answer.Unreadable, match=reason):
        answer.read(said, Facts)


def test_the_parts_of_a_struct_are_mended_too() -> None:
    """One object for a list of them, other spellings, numbers as texts, words for yes: as they were meant."""
    said = (
        '{"summary": ["Calm.", "Quick."], "Traits": {"trait": 5, "Weight": "7", "basis": null}, "mood": "Up",'
        ' "isFinal": "yes", "more": []}'
    )
    wanted = Profile(summary="Calm.\nQuick.", traits=(Trait(trait="5", weight=7),), mood="up", is_final=True)
    assert wanted == answer.read(said, Profile)
    assert Profile(summary="x") == answer.read('{"summary": "x", "mood": null, "traits": null}', Profile)


@pytest.mark.parametrize(
    "said",
    [
        '[{"trait": "calm"}, {"trait": "quick"}]',
        '{"traits": [{"trait": "calm"}, {"trait": "quick"}]}',
        '{"items": [{"trait": "calm"}, {"trait": "quick"}]}',
        '{"trait": "calm"}\n{"trait": "quick"}',
        'First: {"trait": "calm"}\nand then {"trait": "quick"}.',
        '```json\n[{"trait": "calm"},\n{"trait": "quick"},]\n```',
    ],
)
def test_a_list_is_read_from_lines_objects_and_lists(said: str) -> None:
    """All of its items are there, whether the model wrote one list, one object around it, or one object a line."""
    assert ["calm", "quick"] == [one.trait for one in answer.read(said, list[Trait])]


def test_one_object_is_a_list_of_one() -> None:
    """Where only one is there, models leave the brackets out."""
    assert [Trait(trait="calm")] == answer.read('{"trait": "calm"}', list[Trait])


@pytest.mark.parametrize("said", ['{"summary": "x", "mood": "sk-secret"}', '{"summary": {"sk-secret": 1}}'])
def test_Z07_a_reason_holds_no_word_of_the_answer(said: str) -> None:
    """It goes into logs and errors: it names the field, not what stood there."""
    with pytest.raises(answer.Unreadable) as caught:
        answer.read(said, Profile)
    assert "sk-secret" not in caught.value.reason
    assert None is caught.value.__cause__ is caught.value.__context__


@pytest.mark.parametrize(
    "said",
    [
        "{" * 40_000, "[[" * 20_000, '{"' * 20_000, "{/" * 20_000, '{"a":' * 10_000, "<think>" * 10_000,
        "</think>" * 10_000, "```\n" * 10_000, "[" + "1" * 80_000 + "x", '["' + '",x' * 20_000, "{'a': '" + "'x " * 20_000,
        '{"a" ' * 16_000, "[1,{" * 16_000, " " * 80_000 + "{", "['\\" * 20_000, "{a" * 40_000,
    ],
    ids=range(16),
)  # fmt: skip
def test_no_answer_takes_long_to_refuse(said: str) -> None:
    """A hundred thousand letters of braces, quotes and marks, as models that are stuck write them, hold nobody up."""
    started = time.process_time()
    with pytest.raises(answer.Unreadable):
        answer.read(said, Facts)
    assert time.process_time() - started < 1.5


@given(st.text(alphabet="{}[]\",':\\ab1 \n<think>/`", max_size=60))
def test_whatever_is_said_is_read_or_refused(said: str) -> None:
    """No text brings another error than the one that callers know."""
    for kind in (Facts, Profile, list[Trait], list[str]):
        try:
            answer.read(said, kind)
        except answer.Unreadable:
            continue


@given(st.lists(st.text(max_size=30).filter(lambda text: "<" not in text and "[" not in text), max_size=5))
def test_texts_come_through_unchanged(facts: list[str]) -> None:
    """Whatever the texts hold, written as JSON or as Python writes it, they are what they were."""
    for dress in ("plain", "fenced_json", "single_quotes", "trailing_comma"):
        assert facts == answer.read(chat_stub.dressed({"facts": facts}, dress), Facts).facts


def test_a_schema_is_one_that_every_server_takes() -> None:
    """An object with all its fields required and no others, nothing referred to, no limits, no words of ours but of fields."""
    trait = {
        "type": "object",
        "properties": {"trait": {"type": "string"}, "basis": {"type": "string"}, "weight": {"type": "integer"}},
        "required": ["trait", "basis", "weight"],
        "additionalProperties": False,
    }
    assert {"type": "array", "items": trait} == answer.schema(Profile)["properties"]["traits"]
    assert {"anyOf": [{"enum": ["down", "up"]}, {"type": "null"}]} == answer.schema(Profile)["properties"]["mood"]
    assert ["summary", "traits", "mood", "is_final"] == answer.schema(Profile)["required"]
    assert {"items": {"type": "array", "items": trait}} == answer.schema(list[Trait])["properties"]
    assert "ref" not in str(answer.schema(Profile)) + str(answer.schema(list[Trait]))


def test_what_is_whole_is_known() -> None:
    """A server that says that the answer is cut is believed, unless the JSON has its end."""
    assert answer.is_whole(' {"a": 1}\n')
    assert not answer.is_whole('{"a": 1')
    assert not answer.is_whole('{"a": 1} and')
