"""Requests: what is taken, what is refused, and whether the refusal names the field."""

from __future__ import annotations

import pytest

from everosd import errors
from everosd.api import request, schema


def refused(body: bytes) -> errors.RequestError:
    with pytest.raises(errors.RequestError) as caught:
        request.decode(request.SEARCH, body)
    return caught.value


@pytest.mark.parametrize("wrong", ["userid", "filter", "user_ids", "userId", "User_id"])
def test_A07_a_misspelt_field_is_refused_by_name(wrong: str) -> None:
    """A field that search does not have is refused and named, so that a typing error never widens the scope."""
    error = refused(f'{{"query": "q", "user_id": "a", "{wrong}": "b"}}'.encode())

    assert (wrong, f"unknown field: {wrong}") == (error.field, str(error))


def test_search_takes_what_the_cloud_client_always_sends() -> None:
    """`with_readable_episode` is accepted on search and get, whatever its value."""
    found = request.decode(request.SEARCH, b'{"query": "q", "with_readable_episode": true}')
    got = request.decode(request.GET, b'{"memory_type": "episode", "with_readable_episode": null}')

    assert ("q", "episode") == (found.query, got.memory_type)


def test_search_has_the_documented_defaults() -> None:
    """A body with a query alone is a hybrid search for as much as there may be, active entries only."""
    found = request.decode(request.SEARCH, b'{"query": "q"}')

    assert ("hybrid", -1, "default", "default", None, None) == (
        found.method,
        found.top_k,
        found.app_id,
        found.project_id,
        found.user_id,
        found.include_status,
    )


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b'{"query": ""}', "query"),
        (b'{"query": 7}', "query"),
        (b"{}", "query"),
        (b'{"query": "q", "user_id": ""}', "user_id"),
        (b'{"query": "q", "user_id": ["a", "b"]}', "user_id"),
        (b'{"query": "q", "user_id": {"ne": "a"}}', "user_id"),
        (b'{"query": "q", "app_id": null}', "app_id"),
        (b'{"query": "q", "method": "magic"}', "method"),
        (b'{"query": "q", "top_k": 1.5}', "top_k"),
        (b'{"query": "q", "top_k": true}', "top_k"),
        (b'{"query": "q", "radius": 1.01}', "radius"),
        (b'{"query": "q", "min_score": -0.1}', "min_score"),
        (b'{"query": "q", "filters": []}', "filters"),
        (b'{"query": "q", "include_status": "active"}', "include_status"),
        (b'{"query": "q", "include_status": ["active", "gone"]}', "include_status.1"),
    ],
)
def test_a_refusal_ends_in_the_field_at_fault(body: bytes, field: str) -> None:
    """Where one field is wrong, the message ends in its dotted name."""
    error = refused(body)

    assert (field, True) == (error.field, str(error).endswith(f": {field}"))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"  ",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b"7",
        b"\xff\xfe",
        b'{"query": "\xff"}',
        b"{'query': 'q'}",
        b'{"query": NaN}',
    ],
)
def test_what_is_no_json_object_is_refused(body: bytes) -> None:
    """Empty, malformed and non-object bodies are the caller's error, never ours."""
    assert str(refused(body))


def test_a_body_nested_without_end_is_refused() -> None:
    """Nesting that would exhaust the stack is the caller's error."""
    depth = 100_000

    assert str(refused(b'{"query": "q", "filters": ' + b'{"AND": [' * depth + b"]}" * depth + b"}"))


def test_a_query_parameter_given_twice_is_refused() -> None:
    """Two values for one parameter are refused instead of one being picked."""
    with pytest.raises(errors.RequestError) as caught:
        request.decode_query([("user_id", "a"), ("user_id", "b")], schema.EntryQuery)

    assert "user_id" == caught.value.field


def test_an_unknown_query_parameter_is_refused() -> None:
    """A misspelt parameter of a route of ours is refused by name."""
    with pytest.raises(errors.RequestError) as caught:
        request.decode_query([("userid", "a")], schema.EntryQuery)

    assert "unknown field: userid" == str(caught.value)
