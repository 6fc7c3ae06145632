"""Whatever is sent, the answer is an envelope and never our fault."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.unit.conftest import Open, Said

DAY = "default_app/default_project/users/mara/episodes/episode-2026-03-02.md"
ODD_QUERIES = (
    *(
        "fish days:",
        "C++ (x",
        '"open',
        "-x",
        "AND",
        "OR NOT",
        "https://a.b/c?d=1",
        "{0}",
        ">>>",
        "a^",
        "*",
        "canal*",
        "   ",
    ),
    *(
        "x" * 10_000,
        "canal " * 2_000,
        "\0",
        "\u202e",
        "😀",
        "権威",
        "canal AND owner:theo",
        "\\",
        "'",
        "[a TO b]",
        "a~2",
    ),
)
ODD_VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        -1,
        1,
        10**9,
        10**10,
        2**63,
        10**40,
        -(10**40),
        0.5,
        1e308,
        "",
        " ",
        "mara",
        "..",
        "\0",
        "x" * 5_000,
    ),
    *(
        [],
        [None],
        {},
        {"eq": "mara"},
        {"in": ["a", 1, None]},
        ["mara"],
        {"AND": []},
        {"OR": [{}]},
        "2026-03-02",
        "2026-99-99",
    ),
    *("2026-03-02T10:00:00+99:99", "active", ["active"], ["gone"], {"ne": {"eq": {}}}, "\u0130", "e\u0301"),
)
FIELDS = {
    "search": [
        "query",
        "user_id",
        "agent_id",
        "app_id",
        "project_id",
        "method",
        "top_k",
        "radius",
        "min_score",
        "include_profile",
        "enable_llm_rerank",
        "filters",
        "include_status",
        "with_readable_episode",
        "userid",
    ],
    "get": [
        "user_id",
        "agent_id",
        "app_id",
        "project_id",
        "memory_type",
        "page",
        "page_size",
        "sort_by",
        "sort_order",
        "filters",
        "include_status",
        "x",
    ],
}
FILTER_FIELDS = ["session_id", "timestamp", "parent_id", "parent_type", "sender_id", "owner_id", "AND", "OR", "colour"]
OPERATORS = ["eq", "ne", "gt", "gte", "lt", "lte", "in", "like"]


def odd_filter(dice: random.Random, depth: int = 0) -> Any:
    """Return something that is nearly a filter."""
    if depth > 3 or dice.random() < 0.2:
        return dice.choice(ODD_VALUES)
    node: dict[str, Any] = {}
    for _ in range(dice.randrange(3)):
        field = dice.choice(FILTER_FIELDS)
        if field in {"AND", "OR"} and dice.random() < 0.9:
            node[field] = [odd_filter(dice, depth + 1) for _ in range(dice.randrange(3))]
        elif dice.random() < 0.5:
            node[field] = {dice.choice(OPERATORS): dice.choice(ODD_VALUES)}
        else:
            node[field] = dice.choice(ODD_VALUES)
    return node


def odd_body(dice: random.Random, route: str) -> dict[str, Any]:
    """Return a body that is right but for some fields."""
    body: dict[str, Any] = {"query": dice.choice(ODD_QUERIES)} if route == "search" else {"memory_type": "episode"}
    body["user_id"] = "mara"
    for _ in range(dice.randrange(3)):
        body[dice.choice(FIELDS[route])] = dice.choice(ODD_VALUES)
    if dice.random() < 0.5:
        body["filters"] = odd_filter(dice)
    return body


@pytest.mark.parametrize("seed", range(4))
async def test_no_body_makes_an_internal_error(
    seed: int, open_door: Open, log_of: Callable[..., str], episode: Callable[..., Said]
) -> None:
    """Hundreds of odd bodies are 200 or 422 with an envelope, and what is found belongs to who was named."""
    dice = random.Random(seed)  # noqa: S311  # made to be repeated
    async with open_door({DAY: log_of("mara", "2026-03-02", episode(1, "canal"), episode(2, "heron"))}) as door:
        for _ in range(150):
            route = dice.choice(("search", "get"))
            body = odd_body(dice, route)
            answer = await door.client.post(f"/api/v1/memory/{route}", content=json.dumps(body).encode())
            assert answer.status_code in {200, 422}, (body, answer.text)
            assert ("data" if answer.status_code == 200 else "error") in answer.json()
            shown = answer.json().get("data", {}).get("episodes", [])
            assert all(item["user_id"] == "mara" for item in shown), body


async def test_S01_any_text_is_a_query(open_door: Open) -> None:
    """Signs of query languages, very long and invisible texts are 200; a blank query finds nothing."""
    async with open_door({DAY: "## Canal\n\nMara walked along the canal.\n"}) as door:
        for query in ODD_QUERIES:
            found = await door.search(query, user_id="mara")
            assert int("canal" in query) == len(found["episodes"]), query


async def test_a_page_of_long_entries_comes_whole(
    open_door: Open, log_of: Callable[..., str], episode: Callable[..., Said]
) -> None:
    """Entries of half a megabyte, taken apart beside the loop, are as whole as short ones."""
    long = "canal " * 100_000
    files = {DAY: log_of("mara", "2026-03-02", episode(1, long.strip()), episode(2, long.strip()))}
    async with open_door(files) as door:
        got = await door.get("episode", user_id="mara")
        found = await door.search("canal", user_id="mara")

    assert [long.strip()] * 2 == [item["episode"] for item in got["episodes"]]
    assert [long.strip()] * 2 == [item["episode"] for item in found["episodes"]]
