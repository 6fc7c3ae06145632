"""The memory routes over a real root: what programs written for EverOS see."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import sqlite3
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from structlog import testing

from everosd import errors
from everosd.log import layout

if TYPE_CHECKING:
    from tests.unit.conftest import Open, Said

DAY = "default_app/default_project/users/{user}/episodes/episode-2026-03-02.md"
FIVE = {"episodes", "profiles", "agent_cases", "agent_skills", "unprocessed_messages"}
REQUEST_ID = re.compile(r"[0-9a-f]{32}")

WRONG_PATHS = ("..", "../../x", "/etc", "a/b", "a\0b", ".", "", "x" * 129, "a\nb")
WRONG_IDS = (*WRONG_PATHS, ".index", ".tmp", "default_app", "default_project", "everos.toml", "a b", "ä")
"""Apps and projects have fewer names than people."""

BODIES: dict[str, dict[str, object]] = {"memory/search": {"query": "canal"}, "memory/get": {"memory_type": "episode"}}
"""The least that each route takes."""


def error_of(answer: Any) -> tuple[int, str]:
    """Return status and code of an error answer, whose envelope is checked on the way."""
    body = answer.json()
    assert answer.headers["x-request-id"] == body["request_id"]
    assert REQUEST_ID.fullmatch(body["request_id"])
    assert {"code", "message", "timestamp", "path"} == set(body["error"])
    return answer.status_code, body["error"]["code"]


async def test_a_search_answers_in_the_envelope_of_everos(
    open_door: Open, log_of: Callable[..., str], episode: Callable[..., Said]
) -> None:
    """`request_id` is 32 hex and in the header too, and the item has the fields that programs read, uncut."""
    text = "Mara looks for a flat near the canal. " * 60
    files = {DAY.format(user="mara"): log_of("mara", "2026-03-02", episode(1, text.strip()))}
    async with open_door(files) as door:
        body = {"query": "canal", "user_id": "mara", "method": "keyword"}
        answer = await door.client.post("/api/v1/memory/search", json=body)

    assert 200 == answer.status_code
    assert REQUEST_ID.fullmatch(answer.json()["request_id"])
    assert answer.json()["request_id"] == answer.headers["x-request-id"]
    assert {"request_id", "data"} == set(answer.json())
    assert FIVE == set(answer.json()["data"])
    item = answer.json()["data"]["episodes"][0]
    assert 0.0 < item.pop("score") <= 1.0
    assert {
        "id": "mara_ep_20260302_00000001",
        "user_id": "mara",
        "app_id": "default",
        "project_id": "default",
        "session_id": "s_17",
        "timestamp": "2026-03-02T00:01:00Z",
        "sender_ids": ["mara", "helper"],
        "summary": "In short 1",
        "subject": "About 1",
        "episode": text.strip(),
        "type": "Conversation",
        "atomic_facts": [],
    } == item


@pytest.mark.parametrize("prefix", ["/api/v1", "/api/v2"])
async def test_both_prefixes_are_the_same_handlers(prefix: str, open_door: Open) -> None:
    """v2 answers as v1 does."""
    async with open_door({}) as door:
        answers = [
            await door.client.post(f"{prefix}/memory/search", json={"query": "q", "user_id": "mara"}),
            await door.client.post(f"{prefix}/memory/get", json={"memory_type": "profile", "user_id": "mara"}),
            await door.client.get(f"{prefix}/entries/mara_ep_20260302_00000001"),
        ]

    assert [200, 200, 404] == [answer.status_code for answer in answers]


async def test_X18_a_fresh_root_answers_with_nothing(open_door: Open) -> None:
    """Search and get on an empty root are 200 with empty arrays, whatever the method."""
    async with open_door({}) as door:
        for method in ("keyword", "vector", "hybrid", "agentic", "llm_multiround"):
            found = await door.search("anything", user_id="mara", method=method)
            assert {name: [] for name in FIVE} == found
        for kind, owner in (
            ("episode", "user_id"),
            ("profile", "user_id"),
            ("agent_case", "agent_id"),
            ("agent_skill", "agent_id"),
        ):
            got = await door.get(kind, **{owner: "mara"})
            assert (0, 0) == (got.pop("total_count"), got.pop("count"))
            assert {name: [] for name in FIVE - {"unprocessed_messages"}} == got


async def test_what_cannot_be_done_as_asked_stands_beside_data(open_door: Open) -> None:
    """Hybrid search says that it was answered by keyword, and is counted; keyword search says nothing."""
    async with open_door({}) as door:
        body = {"query": "q", "user_id": "mara"}
        hybrid = (await door.client.post("/api/v1/memory/search", json=body)).json()
        by_keyword = (await door.client.post("/api/v1/memory/search", json=body | {"method": "keyword"})).json()
        metrics = (await door.client.get("/metrics")).text

    assert "everosd_degraded_answers_total 1.0" in metrics
    assert hybrid["degraded"][0].endswith("answered by keyword")
    assert "degraded" not in by_keyword


async def test_A07_misspelt_fields_are_422(
    open_door: Open, log_of: Callable[..., str], episode: Callable[..., Said]
) -> None:
    """A typing error in a scope field is refused by name instead of widening the scope."""
    files = {DAY.format(user="mara"): log_of("mara", "2026-03-02", episode(1, "canal"))}
    async with open_door(files) as door:
        for route, body in BODIES.items():
            for wrong in ("userid", "filter", "user_ids"):
                answer = await door.client.post(f"/api/v1/{route}", json=body | {wrong: "mara"})
                assert (422, "INVALID_INPUT") == error_of(answer)
                assert answer.json()["error"]["message"].endswith(f": {wrong}")


@pytest.mark.parametrize("field", ["user_id", "agent_id", "app_id", "project_id"])
async def test_Z01_ids_that_could_be_paths_are_422_on_every_route(field: str, open_door: Open) -> None:
    """An id that is no id is refused with its field, and nothing is made or read outside the root."""
    async with open_door({}) as door:
        before = sorted(door.root.parent.rglob("*"))
        for route, right in BODIES.items():
            owner = {} if field in {"user_id", "agent_id"} else {"user_id": "mara"}
            kind = {"memory_type": "agent_case"} if (route, field) == ("memory/get", "agent_id") else {}
            for value in WRONG_IDS if owner else WRONG_PATHS:
                answer = await door.client.post(f"/api/v1/{route}", json=right | owner | kind | {field: value})
                assert (422, "INVALID_INPUT") == error_of(answer), value
                assert answer.json()["error"]["message"].endswith(f": {field}"), value
        after = sorted(door.root.parent.rglob("*"))

    assert before == after


async def test_Z01_entry_ids_that_could_be_paths_are_not_found(open_door: Open) -> None:
    """GET entries looks ids up and never opens what they might name."""
    odd = (
        "..",
        "../../../etc/passwd",
        "%2e%2e%2f%2e%2e%2fetc%2fpasswd",
        "a%2Fb_ep_20260302_00000001",
        "%00",
        ".",
        "x" * 4000,
    )
    async with open_door({}) as door:
        for path in odd:
            answer = await door.client.get(f"/api/v1/entries/{path}")
            assert answer.status_code in {404, 405, 422}, path
            assert {"request_id", "error"} <= set(answer.json())


async def test_Z03_an_owner_that_is_no_id_is_refused(open_door: Open) -> None:
    """Empty text, lists, maps and numbers are 422, so that none can mean `everybody`."""
    async with open_door({}) as door:
        for value in ("", ["mara"], ["mara", "theo"], {"ne": "theo"}, 7, True):
            answer = await door.client.post("/api/v1/memory/search", json={"query": "q", "user_id": value})
            assert (422, "INVALID_INPUT") == error_of(answer), value


async def test_Z03_a_wildcard_is_just_an_unknown_user(
    open_door: Open, log_of: Callable[..., str], episode: Callable[..., Said]
) -> None:
    """What means `all` elsewhere finds nothing here."""
    files = {
        DAY.format(user=user): log_of(user, "2026-03-02", episode(1, f"canal {user}")) for user in ("mara", "theo")
    }
    async with open_door(files) as door:
        for wild in ("*", "%", "_", "mara*", "(mara OR theo)", 'mara" OR owner:"theo'):
            answer = await door.client.post("/api/v1/memory/search", json={"query": "canal", "user_id": wild})
            assert answer.status_code in {200, 422}
            assert [] == answer.json().get("data", {}).get("episodes", []), wild


async def test_Z03_what_one_wrote_another_never_reads(
    open_door: Open, log_of: Callable[..., str], episode: Callable[..., Said]
) -> None:
    """Search, get and entry of another user, app or project find nothing; filters cannot override the owner."""
    files = {
        DAY.format(user="mara"): log_of("mara", "2026-03-02", episode(1, "the canal secret")),
        DAY.format(user="theo"): log_of("theo", "2026-03-02", episode(2, "theo writes")),
        "other/default_project/users/mara/episodes/episode-2026-03-02.md": log_of(
            "mara", "2026-03-02", episode(3, "elsewhere")
        ),
    }
    async with open_door(files) as door:
        for scope in (
            {"user_id": "theo"},
            {"user_id": "mara", "app_id": "other"},
            {"user_id": "mara", "project_id": "p"},
            {"agent_id": "mara"},
        ):
            assert [] == (await door.search("canal secret", **scope))["episodes"]
        got = await door.get("episode", user_id="theo")
        assert ["theo_ep_20260302_00000002"] == [item["id"] for item in got["episodes"]]
        for query in ({"user_id": "theo"}, {"agent_id": "mara"}, {"app_id": "other"}, {"project_id": "p"}):
            answer = await door.client.get("/api/v1/entries/mara_ep_20260302_00000001", params=query)
            assert (404, "NOT_FOUND") == error_of(answer)
        for field in ("owner_id", "owner_type", "app_id", "project_id"):
            body = {"query": "canal", "user_id": "theo", "filters": {"OR": [{field: "mara"}]}}
            assert (422, "INVALID_INPUT") == error_of(await door.client.post("/api/v1/memory/search", json=body))


async def test_a_search_without_owner_means_the_only_user(
    open_door: Open, log_of: Callable[..., str], episode: Callable[..., Said]
) -> None:
    """EverOS's own examples name no user; with one user in the scope that user is meant."""
    files = {DAY.format(user="mara"): log_of("mara", "2026-03-02", episode(1, "the canal"))}
    async with open_door(files) as door:
        found = await door.search("canal")

    assert ["mara_ep_20260302_00000001"] == [item["id"] for item in found["episodes"]]


async def test_Z03_a_search_without_owner_among_several_is_refused(
    open_door: Open, log_of: Callable[..., str], episode: Callable[..., Said]
) -> None:
    """With two users nobody is guessed, and the message names the field; null is as good as absent."""
    files = {DAY.format(user=user): log_of(user, "2026-03-02", episode(1, "canal")) for user in ("mara", "theo")}
    async with open_door(files) as door:
        absent = await door.client.post("/api/v1/memory/search", json={"query": "canal"})
        null = await door.client.post("/api/v1/memory/search", json={"query": "canal", "user_id": None})

    for answer in (absent, null):
        assert (422, "INVALID_INPUT") == error_of(answer)
        assert answer.json()["error"]["message"].endswith(": user_id")


async def test_two_owners_at_once_are_refused(open_door: Open) -> None:
    """A request is about one owner."""
    async with open_door({}) as door:
        body = {"query": "q", "user_id": "mara", "agent_id": "helper"}
        answer = await door.client.post("/api/v1/memory/search", json=body)

    assert (422, "INVALID_INPUT") == error_of(answer)


WRONG_PAGES: tuple[tuple[dict[str, object], str], ...] = (
    ({"memory_type": "episode"}, "user_id"),
    ({"memory_type": "episode", "agent_id": "a"}, "user_id"),
    ({"memory_type": "profile", "agent_id": "a"}, "user_id"),
    ({"memory_type": "agent_case", "user_id": "a"}, "agent_id"),
    ({"memory_type": "agent_skill", "user_id": "a"}, "agent_id"),
    ({"memory_type": "atomic_fact", "user_id": "a"}, "memory_type"),
    ({"memory_type": "episode", "user_id": "a", "page": 0}, "page"),
    ({"memory_type": "episode", "user_id": "a", "page_size": 101}, "page_size"),
    ({"memory_type": "episode", "user_id": "a", "sort_by": "score"}, "sort_by"),
    ({"memory_type": "episode", "user_id": "a", "include_status": []}, "include_status"),
    ({"memory_type": "episode", "user_id": "a", "filters": {"colour": "red"}}, "colour"),
)


async def test_get_refuses_what_does_not_go_together(open_door: Open) -> None:
    """Kind and owner have to fit, pages have limits, and the message names the field."""
    async with open_door({}) as door:
        for body, field in WRONG_PAGES:
            answer = await door.client.post("/api/v1/memory/get", json=body)
            assert (422, "INVALID_INPUT") == error_of(answer), body
            assert answer.json()["error"]["message"].endswith(field), body


async def test_top_k_has_its_limits(open_door: Open) -> None:
    """-1 or 1..100; everything else names the field."""
    async with open_door({}) as door:
        for top_k in (0, -2, 101, 10**30):
            body = {"query": "q", "user_id": "a", "top_k": top_k}
            answer = await door.client.post("/api/v1/memory/search", json=body)
            assert (422, "INVALID_INPUT") == error_of(answer), top_k
            assert answer.json()["error"]["message"].endswith(": top_k")


async def test_M17_every_page_and_order_shows_a_merged_narrative(
    open_door: Open, log_of: Callable[..., str], episode: Callable[..., Said]
) -> None:
    """A narrative has no session: it is there with `session_id: null`, and its originals are not counted."""
    entries = [episode(number, f"part {number}") for number in range(1, 6)]
    merged = episode(6, "all of it", session=None, parent_type="cluster", parent_id="cl_0123456789ab", sender_ids="[]")
    merged.sections.pop("Summary")
    moved = {entry.id: merged.id for entry in entries[:2]}
    files = {DAY.format(user="mara"): log_of("mara", "2026-03-02", *entries, merged, deprecated=moved)}
    async with open_door(files) as door:
        for sort_by, order in itertools.product(("timestamp", "updated_at"), ("asc", "desc")):
            seen: list[dict[str, Any]] = []
            for page in range(1, 6):
                got = await door.get(
                    "episode", user_id="mara", page=page, page_size=1, sort_by=sort_by, sort_order=order
                )
                assert (4, 1 if page <= 4 else 0) == (got["total_count"], got["count"])
                seen += got["episodes"]
            assert 4 == len({item["id"] for item in seen})
            narrative = next(item for item in seen if item["id"] == "mara_ep_20260302_00000006")
            assert (None, "", [], "all of it") == tuple(
                narrative[name] for name in ("session_id", "summary", "sender_ids", "episode")
            )
        beyond = await door.get("episode", user_id="mara", page=10**25)

    assert (4, []) == (beyond["total_count"], beyond["episodes"])


async def test_statuses_are_shown_only_where_they_were_asked_for(
    open_door: Open, log_of: Callable[..., str], episode: Callable[..., Said]
) -> None:
    """`include_status` opens deprecated entries, and then items say their status and successor."""
    old, new = episode(1, "canal old"), episode(2, "canal new")
    files = {DAY.format(user="mara"): log_of("mara", "2026-03-02", old, new, deprecated={old.id: new.id})}
    async with open_door(files) as door:
        usual = await door.search("canal", user_id="mara")
        opened = await door.search("canal", user_id="mara", include_status=["active", "deprecated"])
        listed = await door.get("episode", user_id="mara", include_status=["deprecated"])

    assert ["mara_ep_20260302_00000002"] == [item["id"] for item in usual["episodes"]]
    assert "status" not in usual["episodes"][0]
    assert {
        "mara_ep_20260302_00000001": ("deprecated", "mara_ep_20260302_00000002"),
        "mara_ep_20260302_00000002": ("active", None),
    } == {item["id"]: (item["status"], item["deprecated_by"]) for item in opened["episodes"]}
    assert [("deprecated", 1)] == [(item["status"], listed["total_count"]) for item in listed["episodes"]]


async def test_typed_memories_are_found_among_episodes_and_not_counted_by_get(open_door: Open) -> None:
    """A typed memory has `memory_type` and `path`; an expired one is hidden at once and shown with its status."""
    text = (
        "<!-- entry:mem_20260302_00000001 -->\n## mem_20260302_00000001\n\n**path**: work\n\n### Subject\nLadder\n\n"
        "### Content\nThe ladder is in the shed\n<!-- /entry:mem_20260302_00000001 -->\n"
        "<!-- entry:mem_20260302_00000002 -->\n## mem_20260302_00000002\n\n**expires_at**: 2026-03-03T00:00:00Z\n\n"
        "### Content\nThe ladder was lent\n<!-- /entry:mem_20260302_00000002 -->\n"
    )
    files = {"default_app/default_project/users/mara/memories/home/semantic-2026-03-02.md": text}
    async with open_door(files) as door:
        found = await door.search("ladder", user_id="mara")
        expired = await door.search("ladder", user_id="mara", include_status=["expired"])
        got = await door.get("episode", user_id="mara")
        entry = await door.entry("mara_mem_20260302_00000001")

    assert [("mara_mem_20260302_00000001", "semantic", "home")] == [
        (item["id"], item["memory_type"], item["path"]) for item in found["episodes"]
    ]
    assert [("mara_mem_20260302_00000002", "expired")] == [(item["id"], item["status"]) for item in expired["episodes"]]
    assert 0 == got["total_count"]
    assert ("memory", "semantic", "home", 0.5, 0.7) == tuple(
        entry[name] for name in ("kind", "memory_type", "path", "importance", "confidence")
    )


async def test_A05_get_gives_the_full_text_of_every_kind(
    open_door: Open, log_of: Callable[..., str], episode: Callable[..., Said]
) -> None:
    """Episode, profile, case and skill come whole, to the last word."""
    long = " ".join(f"word{n}" for n in range(20_000))
    base = "default_app/default_project"
    files = {
        DAY.format(user="mara"): log_of("mara", "2026-03-02", episode(1, long)),
        f"{base}/users/mara/user.md": (
            "---\nid: profile_mara\ntype: user_profile\nschema_version: 1\nuser_id: mara\ntrack: user\n"
            "summary: Mara climbs.\nexplicit_info:\n- category: Hobby\n  description: climbing\n"
            "profile_timestamp_ms: 1795993180382\n---\nMara climbs.\n"
        ),
        f"{base}/agents/helper/.cases/agent_case-2026-03-02.md": (
            "---\nid: x\ntype: agent_case_daily\nagent_id: helper\ntrack: agent\ndate: '2026-03-02'\n---\n"
            "<!-- entry:ac_20260302_00000001 -->\n## ac_20260302_00000001\n\n**owner_id**: helper\n**session_id**: s_9\n"
            "**timestamp**: 2026-03-02T10:00:00+00:00\n**quality_score**: 0.75\n\n### TaskIntent\nBook a train\n\n"
            f"### Approach\n{long}\n\n### KeyInsight\nAsk for the date first\n<!-- /entry:ac_20260302_00000001 -->\n"
        ),
        f"{base}/agents/helper/skills/skill_booking/SKILL.md": (
            "---\nid: skill_booking\ntype: agent_skill\nschema_version: 1\nagent_id: helper\ntrack: agent\nname: booking\n"
            "description: Books trains\nconfidence: 0.9\nmaturity_score: 0.5\nsource_case_ids:\n- ac_20260302_00000001\n"
            f"---\n# How to book\n\n{long}\n"
        ),
    }
    async with open_door(files) as door:
        got_episode = (await door.get("episode", user_id="mara"))["episodes"][0]
        profile = (await door.get("profile", user_id="mara"))["profiles"][0]
        case = (await door.get("agent_case", agent_id="helper"))["agent_cases"][0]
        skill = (await door.get("agent_skill", agent_id="helper"))["agent_skills"][0]
        whole = await door.entry("helper_skill_booking")

    assert long == got_episode["episode"]
    assert {
        "id": "mara_profile_mara",
        "user_id": "mara",
        "app_id": "default",
        "project_id": "default",
        "profile_data": {
            "summary": "Mara climbs.",
            "explicit_info": [{"category": "Hobby", "description": "climbing"}],
            "profile_timestamp_ms": 1795993180382,
        },
    } == profile
    assert ("Book a train", long, 0.75, "Ask for the date first", "s_9", "2026-03-02T10:00:00Z") == tuple(
        case[name] for name in ("task_intent", "approach", "quality_score", "key_insight", "session_id", "timestamp")
    )
    assert ("booking", "Books trains", f"# How to book\n\n{long}", 0.9, 0.5, ["ac_20260302_00000001"]) == tuple(
        skill[name] for name in ("name", "description", "content", "confidence", "maturity_score", "source_case_ids")
    )
    assert ("agent_skill", "helper", skill["id"]) == (whole["kind"], whole["agent_id"], whole["id"])


async def test_an_agent_search_gives_agent_arrays_only(open_door: Open) -> None:
    """User owners never get agent arrays, and the reverse."""
    files = {
        "default_app/default_project/agents/helper/.cases/agent_case-2026-03-02.md": (
            "<!-- entry:ac_20260302_00000001 -->\n## ac_20260302_00000001\n\n### TaskIntent\nBook a train\n\n"
            "### Approach\nAsk first\n<!-- /entry:ac_20260302_00000001 -->\n"
        )
    }
    async with open_door(files) as door:
        found = await door.search("train", agent_id="helper")

    assert (["helper_ac_20260302_00000001"], []) == ([item["id"] for item in found["agent_cases"]], found["episodes"])


async def test_moments_are_shown_in_the_zone_of_the_memory(
    open_door: Open, log_of: Callable[..., str], episode: Callable[..., Said]
) -> None:
    """With `memory.timezone` set, the offset is explicit and the instant is the same."""
    files = {DAY.format(user="mara"): log_of("mara", "2026-03-02", episode(1, "canal"))}
    async with open_door(files, settings='[memory]\ntimezone = "Asia/Tokyo"\n') as door:
        got = await door.get("episode", user_id="mara")

    assert "2026-03-02T09:01:00+09:00" == got["episodes"][0]["timestamp"]


async def test_hand_written_text_is_an_item_too(open_door: Open) -> None:
    """A heading and its paragraph, without any markers, come with the heading as subject and all of the text."""
    files = {DAY.format(user="mara"): "## Boiler\n\nThe plumber comes on Thursday.\n\nHe needs the key.\n"}
    async with open_door(files) as door:
        item = (await door.search("plumber", user_id="mara"))["episodes"][0]

    assert ("Boiler", True, True) == (
        item["subject"],
        "comes on Thursday" in item["episode"],
        "needs the key" in item["episode"],
    )


async def test_hybrid_nests_the_facts_that_matched(
    open_door: Open, log_of: Callable[..., str], episode: Callable[..., Said]
) -> None:
    """Facts stand inside their Episode, with an id and their text; keyword leaves them out."""
    fact = (
        "<!-- entry:af_20260302_00000001 -->\n## af_20260302_00000001\n\n**owner_id**: mara\n**parent_type**: episode\n"
        "**parent_id**: ep_20260302_00000001\n\n### Fact\nMara likes herons.\n<!-- /entry:af_20260302_00000001 -->\n"
    )
    files = {
        DAY.format(user="mara"): log_of("mara", "2026-03-02", episode(1, "A walk by the canal")),
        "default_app/default_project/users/mara/.atomic_facts/atomic_fact-2026-03-02.md": fact,
    }
    async with open_door(files) as door:
        hybrid = (await door.search("herons", user_id="mara", method="hybrid"))["episodes"]
        keyword = (await door.search("herons", user_id="mara"))["episodes"]
        entry = await door.entry("mara_ep_20260302_00000001")

    assert [("mara_af_20260302_00000001", "Mara likes herons.")] == [
        (fact["id"], fact["content"]) for fact in hybrid[0]["atomic_facts"]
    ]
    assert [] == keyword[0]["atomic_facts"]
    assert ["mara_af_20260302_00000001"] == entry["facts"]


def session_log(n_done: int) -> str:
    """Return a session of four messages, the first `n_done` of them extracted."""
    parts = []
    for index, (sender, role, text) in enumerate(
        [
            ("mara", "user", "I look for a flat"),
            ("helper", "assistant", "Where?"),
            ("mara", "user", "By the canal"),
            ("helper", "assistant", "Noted"),
        ]
    ):
        entry_id = f"ms_20260302_{index + 1:08}"
        parts.append(
            f"<!-- entry:{entry_id} -->\n## {entry_id}\n\n**type**: message\n**message_id**: m_s_17_{index}_0\n"
            f"**sender_id**: {sender}\n**sender_name**: {sender.title()}\n**role**: {role}\n"
            f"**timestamp**: 2026-03-02T10:0{index}:00+00:00\n\n### Text\n{text}\n<!-- /entry:{entry_id} -->\n"
        )
    for number, state in enumerate(("open", "done"), start=5) if n_done else ():
        ids = ", ".join(f"m_s_17_{index}_0" for index in range(n_done))
        entry_id = f"ms_20260302_{number:08}"
        parts.append(
            f"<!-- entry:{entry_id} -->\n## {entry_id}\n\n**type**: segment\n**memcell_id**: mc_000000000001\n"
            f"**timestamp**: 2026-03-02T10:10:00+00:00\n**message_ids**: [{ids}]\n**state**: {state}\n<!-- /entry:{entry_id} -->\n"
        )
    return "".join(parts)


async def test_unprocessed_messages_are_those_of_the_session_that_was_named(open_door: Open) -> None:
    """A plain `filters.session_id` brings the messages not yet extracted, in time order, to who took part."""
    files = {"default_app/default_project/sessions/s_17/messages-2026-03-02.md": session_log(2)}
    async with open_door(files) as door:
        mine = await door.search("q", user_id="mara", filters={"session_id": "s_17"})
        nested = await door.search("q", user_id="mara", filters={"AND": [{"session_id": "s_17"}]})
        operator = await door.search("q", user_id="mara", filters={"session_id": {"eq": "s_17"}})
        others = await door.search("q", user_id="theo", filters={"session_id": "s_17"})

    assert ["By the canal", "Noted"] == [message["content"] for message in mine["unprocessed_messages"]]
    assert {
        "id": "m_s_17_2_0",
        "app_id": "default",
        "project_id": "default",
        "session_id": "s_17",
        "sender_id": "mara",
        "sender_name": "Mara",
        "role": "user",
        "content": "By the canal",
        "timestamp": "2026-03-02T10:02:00Z",
        "tool_calls": None,
        "tool_call_id": None,
    } == mine["unprocessed_messages"][0]
    for found in (nested, operator, others):
        assert [] == found["unprocessed_messages"]


async def test_an_entry_leads_back_to_its_messages(
    open_door: Open, log_of: Callable[..., str], episode: Callable[..., Said]
) -> None:
    """GET entries shows where the entry stands, what it says, and the messages it was extracted from."""
    files = {
        DAY.format(user="mara"): log_of("mara", "2026-03-02", episode(1, "A flat by the canal", colour="blue")),
        "default_app/default_project/sessions/s_17/messages-2026-03-02.md": session_log(2),
    }
    async with open_door(files) as door:
        entry = await door.entry("mara_ep_20260302_00000001")
        bare = await door.entry("ep_20260302_00000001", user_id="mara")

    assert entry == bare
    assert ["I look for a flat", "Where?"] == [message["content"] for message in entry["messages"]]
    assert ("episode", "active", None, DAY.format(user="mara"), "blue") == (
        entry["kind"],
        entry["status"],
        entry["deprecated_by"],
        entry["file"],
        entry["fields"]["colour"],
    )
    assert entry["line"] > 1
    assert "A flat by the canal" in entry["text"]


async def test_a_deprecated_entry_is_shown_with_its_successor(
    open_door: Open, log_of: Callable[..., str], episode: Callable[..., Said]
) -> None:
    """An id that a program kept still leads to the entry, which says what replaced it."""
    old, new = episode(1, "old"), episode(2, "new", sources=f"[{{id: {'ep_20260302_00000001'}, hash: aa}}]")
    files = {DAY.format(user="mara"): log_of("mara", "2026-03-02", old, new, deprecated={old.id: new.id})}
    async with open_door(files) as door:
        before, after = await door.entry(f"mara_{old.id}"), await door.entry(f"mara_{new.id}")

    assert ("deprecated", f"mara_{new.id}") == (before["status"], before["deprecated_by"])
    assert ("active", [f"mara_{old.id}"]) == (after["status"], after["sources"])


async def test_an_id_of_any_owner_reads_from_the_right(
    open_door: Open, log_of: Callable[..., str], episode: Callable[..., Said]
) -> None:
    """Owners whose name holds signs, underscores or an entry id are told from their entries."""
    users = ("anna@example.org", "a+b", "ep_20260101_00000001", "Ünï", "名前", "a_b_c", "with space")
    files = {DAY.format(user=layout.encode(user)): log_of(user, "2026-03-02", episode(1, "canal")) for user in users}
    async with open_door(files) as door:
        for user in users:
            found = (await door.search("canal", user_id=user))["episodes"][0]
            entry = await door.entry(found["id"])
            assert (f"{user}_ep_20260302_00000001", user) == (found["id"], found["user_id"])
            assert (found["id"], user) == (entry["id"], entry["user_id"])


UNKNOWN = (
    ("GET", "/nope", 404, "Not Found"),
    ("GET", "/", 404, "Not Found"),
    ("POST", "/api/v1/memory/adds", 404, "Not Found"),
    ("POST", "/api/v3/memory/search", 404, "Not Found"),
    ("GET", "/api/v1/memory/search", 405, "Method Not Allowed"),
    ("DELETE", "/health", 405, "Method Not Allowed"),
)


async def test_unknown_routes_and_methods_have_the_envelope_and_a_detail(open_door: Open) -> None:
    """Programs that look for `detail` and programs that look for `error` both find it."""
    async with open_door({}) as door:
        for method, path, status, detail in UNKNOWN:
            answer = await door.client.request(method, path)
            assert status == error_of(answer)[0], path
            assert detail == answer.json()["detail"]


async def test_a_body_that_is_no_json_object_is_422(open_door: Open) -> None:
    """Malformed bodies are the caller's error, whatever their content type."""
    async with open_door({}) as door:
        for route, body in itertools.product(BODIES, (b"", b"{", b"[]", b"null", b"\xff", b'{"query": "q"')):
            answer = await door.client.post(f"/api/v1/{route}", content=body)
            assert (422, "INVALID_INPUT") == error_of(answer), body


@pytest.mark.parametrize("is_announced", [True, False])
async def test_a_body_over_the_limit_is_413(is_announced: bool, open_door: Open) -> None:  # noqa: FBT001
    """`[api] max_body_bytes` holds with and without a Content-Length; just under it passes."""

    async def pieces() -> Any:
        yield b'{"query": "'
        for _ in range(8):
            yield b"x" * 1024
        yield b'", "user_id": "a"}'

    async with open_door({}, settings="[api]\nmax_body_bytes = 4096\n") as door:
        content: Any = b'{"query": "' + b"x" * 8192 + b'"}' if is_announced else pieces()
        large = await door.client.post("/api/v1/memory/search", content=content)
        fits = await door.client.post("/api/v1/memory/search", json={"query": "x" * 3000, "user_id": "a"})

    assert (413, "PAYLOAD_TOO_LARGE") == error_of(large)
    assert 200 == fits.status_code


async def test_A04_a_broken_ledger_is_500_with_the_envelope_on_each_route(open_door: Open) -> None:
    """What fails inside is a generic 5xx, logged once with its id and cause; the cause is not told to the caller."""
    async with open_door({}) as door:
        await door.node.reader.close()
        with testing.capture_logs() as logged:
            answers = [
                await door.client.post("/api/v1/memory/search", json={"query": "q"}),
                await door.client.post("/api/v1/memory/get", json={"memory_type": "episode", "user_id": "a"}),
                await door.client.get("/api/v1/entries/a_ep_20260302_00000001"),
            ]

    for answer in answers:
        assert (500, "INTERNAL_ERROR") == error_of(answer)
        assert answer.json()["error"]["message"].startswith("an internal error occurred")
        assert "connection" not in answer.text
    failed = [line for line in logged if line["event"] == "request_failed"]
    assert [answer.json()["request_id"] for answer in answers] == [line["request_id"] for line in failed]
    assert all(isinstance(line["exc_info"], ValueError) for line in failed)


async def test_A04_a_read_only_ledger_does_not_stop_reading(
    open_door: Open, log_of: Callable[..., str], episode: Callable[..., Said]
) -> None:
    """Search and get need no write: they answer while the ledger cannot be written."""
    files = {DAY.format(user="mara"): log_of("mara", "2026-03-02", episode(1, "canal"))}
    async with open_door(files) as door:
        blocker = await asyncio.to_thread(_hold_the_write_lock, str(door.node.database.path))
        try:
            found = await door.search("canal", user_id="mara")
        finally:
            await asyncio.to_thread(blocker.close)

    assert 1 == len(found["episodes"])


def _hold_the_write_lock(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    return connection


@pytest.mark.parametrize(
    "failure",
    [
        errors.DerivedIndexError("text", "segment 3 is gone"),
        errors.IndexUnavailable("text", "Input/output error"),
        errors.StoreError("system.db: damaged"),
    ],
)
async def test_A04_an_index_that_fails_is_503_and_named(
    open_door: Open, monkeypatch: pytest.MonkeyPatch, failure: errors.EverosdError
) -> None:
    """A damaged text index or ledger is no internal error: the caller is told that it is unavailable."""
    async with open_door({}) as door:

        def broken(*_: object, **__: object) -> None:
            raise failure

        monkeypatch.setattr(type(door.node.text.index), "search", broken)
        answer = await door.client.post("/api/v1/memory/search", json={"query": "q", "user_id": "a"})

    assert (503, "CAPABILITY_UNAVAILABLE") == error_of(answer)


async def test_a_client_that_leaves_in_the_middle_is_no_fault(open_door: Open) -> None:
    """A connection that ends while the body comes is not logged as an error of the daemon."""
    waiting: list[Any] = [{"type": "http.request", "body": b'{"que', "more_body": True}, {"type": "http.disconnect"}]
    path = "/api/v1/memory/search"
    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"host", b"localhost")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8000),
        "scheme": "http",
        "http_version": "1.1",
        "asgi": {"version": "3.0"},
        "root_path": "",
    }

    async def receive() -> Any:
        return waiting.pop(0)

    async def send(_message: Any) -> None:
        return

    async with open_door({}) as door:
        with testing.capture_logs() as logged:
            await door.app(scope, receive, send)

    assert [] == [line for line in logged if line["log_level"] == "error"]
    assert [] == waiting


async def test_health_metrics_and_schema_answer(
    open_door: Open, log_of: Callable[..., str], episode: Callable[..., Said]
) -> None:
    """The three routes that every service has, over a root with one entry."""
    files = {DAY.format(user="mara"): log_of("mara", "2026-03-02", episode(1, "canal"))}
    async with open_door(files) as door:
        health = await door.client.get("/health")
        metrics = await door.client.get("/metrics")
        schema = await door.client.get("/openapi.json")

    assert ("ok", 0, 1, 1) == (
        health.json()["status"],
        health.json()["cascade"]["pending"],
        health.json()["cascade"]["entries"],
        health.json()["cascade"]["index_rows"]["text"],
    )
    assert "text/plain" in metrics.headers["content-type"]
    assert "everosd_entries 1.0" in metrics.text
    assert "/api/v1/memory/search" in json.loads(schema.content)["paths"]
