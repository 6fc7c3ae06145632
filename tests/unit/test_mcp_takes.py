"""What tools take: checked, with messages that an agent can act on, and never an owner."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everosd import errors
from everosd.mcp import takes, tools

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda one: st.lists(one, max_size=3) | st.dictionaries(st.text(max_size=8), one, max_size=3),
    max_leaves=8,
)


def properties(schema: dict[str, Any]) -> set[str]:
    """Return the names of all arguments, those of messages included."""
    found = set(schema.get("properties", ()))
    for one in schema.get("properties", {}).values():
        found |= properties(one.get("items", {}))
    return found


def refusal(kind: type[msgspec.Struct], arguments: dict[str, Any] | None) -> str:
    """Return what is said of arguments that do not fit."""
    with pytest.raises(errors.RequestError) as refused:
        takes.take(kind, arguments)
    return str(refused.value)


@pytest.mark.parametrize("tool", tools.TOOLS, ids=lambda one: str(one.name))
@pytest.mark.parametrize("name", sorted(takes.WHOSE))
def test_Z03_no_tool_takes_an_owner(tool: tools.Tool, name: str) -> None:
    """Whose memory it is stands in no schema, and is refused as an argument, with what says it instead."""
    assert name not in properties(takes.input_schema(tool.takes))
    required: dict[str, Any] = {
        "memory_id": "mem_20260302_00000001",
        "path": "a",
        "content": "b",
        "query": "c",
        "name": "d",
    }
    required |= {"session_id": "s", "messages": [{"role": "user", "content": "x"}]}
    fields = {one.name: one for one in msgspec.structs.fields(tool.takes)}
    given_well = {key: value for key, value in required.items() if key in fields and fields[key].required}
    said = refusal(tool.takes, {**given_well, name: "bob"})
    assert "[mcp] user_id" in said
    assert said.endswith(name)


def test_Z03_no_message_says_who_sent_it() -> None:
    """What a person says is said by the owner: a message with a sender is refused."""
    message = {"role": "user", "content": "x", "sender_id": "bob"}
    assert "[mcp] user_id" in refusal(takes.AddMessages, {"session_id": "s", "messages": [message]})


@pytest.mark.parametrize("tool", tools.TOOLS, ids=lambda one: str(one.name))
def test_schemas_stand_for_themselves(tool: tools.Tool) -> None:
    """A schema is one object without references and nulls; every field says what it is for."""
    schema = takes.input_schema(tool.takes)
    text = msgspec.json.encode(schema).decode()
    assert "object" == schema["type"]
    assert schema["additionalProperties"] is False
    assert "$ref" not in text
    assert '"null"' not in text
    assert set(schema["properties"]) == set(tool.takes.__struct_fields__)
    bare = [name for name, one in schema["properties"].items() if not one.get("description")]
    assert bare == []


def test_lists_and_objects_may_be_json_strings() -> None:
    """An agent that sends JSON in a string is understood."""
    taken = takes.take(
        takes.Remember,
        {
            "path": "projects/atlas",
            "content": "The port is 8123.",
            "metadata_json": '{"team": "core"}',
            "provenance_json": {"url": "x"},
            "source_ids": '["mem_20260302_00000001"]',
            "importance": "0.7",
            "dedupe": "true",
        },
    )
    assert {"team": "core"} == taken.metadata_json
    assert {"url": "x"} == taken.provenance_json
    assert ("mem_20260302_00000001",) == taken.source_ids
    assert 0.7 == taken.importance
    assert taken.dedupe
    messages = takes.take(takes.AddMessages, {"session_id": "s", "messages": '[{"role": "user", "content": "x"}]'})
    assert "x" == messages.messages[0].content
    assert ("expires_at", "pinned") == takes.take(
        takes.UpdateMemory, {"memory_id": "a", "clear": "expires_at, pinned"}
    ).clear


def test_content_that_is_json_stays_text() -> None:
    """Only lists and objects are read out of strings: what is remembered may look like JSON."""
    assert '{"a": 1}' == takes.take(takes.Remember, {"path": "a", "content": '{"a": 1}'}).content


def test_null_is_left_out() -> None:
    """Agents fill in null for what they have nothing to say of."""
    taken = takes.take(takes.SearchMemory, {"query": "tea", "scope": None, "limit": None, "memory_type": None})
    assert takes.SearchMemory(query="tea") == taken
    assert "missing" not in refusal(takes.SearchMemory, {"query": None})


def test_what_does_not_fit_is_named() -> None:
    """A message names the argument, and the one that was probably meant."""
    assert "missing argument: content" == refusal(takes.Remember, {"path": "a"})
    assert "unknown argument; did you mean content?: contents" == refusal(
        takes.Remember, {"path": "a", "content": "b", "contents": "c"}
    )
    assert "known are memory_id" in refusal(takes.ListMemoryVersions, {"memory_id": "a", "zzz": 1})
    assert refusal(takes.Remember, {"path": "a", "content": "b", "importance": 1.5}).endswith(": importance")
    assert refusal(takes.AddMessages, {"session_id": "s", "messages": "["}).endswith(": messages")
    assert refusal(takes.AddMessages, {"session_id": "s", "messages": [{"role": "system", "content": ""}]}).endswith(
        ": messages[0].role"
    )


@pytest.mark.parametrize("tool", tools.TOOLS, ids=lambda one: str(one.name))
def test_hostile_arguments_are_refused_in_words(tool: tools.Tool) -> None:
    """Whatever stands in the arguments, it is taken or refused as an error of the request, never anything else."""
    names = [*tool.takes.__struct_fields__, "", "\x00", "__class__", "x" * 5000]

    @given(st.dictionaries(st.sampled_from(names), ANYTHING, max_size=6))
    def check(arguments: dict[str, Any]) -> None:
        with contextlib.suppress(errors.RequestError):
            assert isinstance(takes.take(tool.takes, arguments), tool.takes)

    check()


def test_arguments_nested_without_end_are_refused() -> None:
    """A JSON string of brackets alone does not end the server."""
    assert refusal(takes.Remember, {"path": "a", "content": "b", "metadata_json": "[" * 100_000})


def test_an_agent_was_sent_back_the_200_kilobytes_that_it_had_given_for_a_type() -> None:
    """A refusal repeats only the beginning of what does not fit."""
    said = refusal(takes.Remember, {"path": "p", "content": "c", "memory_type": "x" * 200_000})
    assert said.startswith("Invalid enum value 'xxx")
    assert said.endswith("memory_type")
    assert len(said) < 1200
    assert len(refusal(takes.Remember, {"path": "p", "content": "c", "x" * 200_000: 1})) < 1500
