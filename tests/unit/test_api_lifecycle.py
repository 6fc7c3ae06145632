"""POST memory/reflect, GET memory/lifecycle and GET memory/audit, and what search, status and health say of it."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest

from everosd.cli import decided

if TYPE_CHECKING:
    from tests.unit.conftest import Door, Open

BASE = "default_app/default_project/users/mara"
NOW = dt.datetime.now(dt.UTC)
DAY = dt.timedelta(days=1)


def memory(nth: int, memory_type: str, days_old: float, said: str, **fields: str) -> str:
    """Return a typed memory as it stands in a file."""
    entry_id = f"mem_20260101_{nth:08}"
    written = {"timestamp": (NOW - days_old * DAY).isoformat(), "memory_type": memory_type} | fields
    inline = "".join(f"**{name}**: {value}\n" for name, value in written.items())
    return f"<!-- entry:{entry_id} -->\n## {entry_id}\n\n{inline}\n### Content\n{said}\n<!-- /entry:{entry_id} -->\n"


def log_of(*memories: str, owner: str = "mara") -> dict[str, str]:
    """Return a root of these memories."""
    head = f"---\nid: memory_log_{owner}\ntype: memory_daily\nuser_id: {owner}\ndate: '2026-01-01'\n---\n"
    path = f"default_app/default_project/users/{owner}/memories/notes/semantic-2026-01-01.md"
    return {path: head + "".join(memories)}


async def reflect(door: Door, *, status: int = 200, **body: object) -> dict[str, Any]:
    """Make a pass over mara's memories; return `data`, of a refusal the error."""
    answer = await door.client.post("/api/v1/memory/reflect", json={"user_id": "mara"} | body)
    assert status == answer.status_code, answer.text
    found: dict[str, Any] = answer.json()["data" if status == 200 else "error"]
    return found


async def ask(door: Door, route: str, **query: str | int) -> dict[str, Any]:
    """Ask a route about mara's memories."""
    params: dict[str, str | int] = {"user_id": "mara", **query}
    answer = await door.client.get(f"/api/v1/memory/{route}", params=params)
    assert 200 == answer.status_code, answer.text
    found: dict[str, Any] = answer.json()["data"]
    return found


def applied(found: dict[str, Any], action: str) -> list[str]:
    """Return the ids that an action was applied to."""
    (one,) = [one for one in found["actions"] if one["action"] == action]
    return [each["id"] for each in one["candidates"] if each["decision"] == "apply"]


async def test_reflect_shows_every_decision_and_does_it(open_door: Open) -> None:
    """The answer has run, window, candidates with reason, before and after, counts and the ids of the audit rows."""
    files = log_of(
        memory(1, "semantic", 91, "decays"),
        memory(2, "semantic", 181, "is archived"),
        memory(3, "semantic", 5, "expires", expires_at=(NOW - DAY).isoformat()),
        memory(4, "identity", 900, "stays"),
    )
    async with open_door(files, learns=True) as door:
        dry = await reflect(door, dry_run=True)
        assert [] == [one for one in dry["audit_ids"] if not one.startswith("mara_lc_")]
        assert (True, 1, None) == (dry["dry_run"], len(dry["audit_ids"]), dry["stopped"])
        assert ["summarize", "promote", "expire", "decay", "archive"] == [one["action"] for one in dry["actions"]]
        assert ["mara_mem_20260101_00000003"] == applied(dry, "expire")
        assert ["mara_mem_20260101_00000002", "mara_mem_20260101_00000001"] == applied(dry, "decay")
        assert ["mara_mem_20260101_00000002", "mara_mem_20260101_00000003"] == applied(dry, "archive")
        (first,) = [one for one in dry["actions"][3]["candidates"] if one["id"].endswith("1")]
        assert ("apply", {"importance": 0.5}, {"importance": 0.47}) == (
            first["decision"],
            first["before"],
            first["after"],
        )
        window = dry["window"]
        assert DAY == dt.datetime.fromisoformat(window["until"]) - dt.datetime.fromisoformat(window["since"])
        real = await reflect(door, actions_csv="archive, decay,EXPIRE")
        assert ["expire", "decay", "archive"] == [one["action"] for one in real["actions"]]
        assert [one["counts"] for one in dry["actions"][2:]] == [one["counts"] for one in real["actions"]]
        for action in ("expire", "decay", "archive"):
            assert applied(dry, action) == applied(real, action)
        assert (1 + 2 + 2 + 1) == len(real["audit_ids"])
        again = await reflect(door, actions=["decay", "archive"])
        assert [0, 0] == [one["counts"]["apply"] for one in again["actions"]]


async def test_what_was_written_is_named_with_what_went_into_it(open_door: Open) -> None:
    """A promotion has its id beside the decisions, and the command shows it; a dry run has none to name."""
    files = log_of(*(memory(nth, "episodic", 0.1 * nth, "The gate was locked.", importance="0.8") for nth in (3, 2, 1)))
    async with open_door(files, learns=True) as door:
        dry = await reflect(door, actions=["promote"], dry_run=True)
        real = await reflect(door, actions=["promote"])
        (written,) = real["written"]
        entry = await door.entry(written["id"])
    ids = [f"mara_mem_20260101_{nth:08}" for nth in (3, 2, 1)]
    assert ([], "promote", ids) == (dry["written"], written["action"], written["sources"])
    assert ("semantic", "The gate was locked.") == (entry["memory_type"], entry["content"])
    assert {written["id"], *ids} == set(decided.listed(real, full=False))
    said = list(decided.told(real, {written["id"]: "The gate"}, full=False))
    at = said.index(f"    {written['id']}")
    assert "  The gate                              ← 3 memories" == said[at - 1]
    assert not any("←" in line for line in decided.told(dry, {}, full=False))


REFUSED: tuple[tuple[dict[str, object], str], ...] = (
    ({"actions_csv": "decay,forget"}, "actions_csv"),
    ({"actions": ["decya"]}, "actions"),
    ({"actions": []}, "actions"),
    ({"actions": ["decay"], "actions_csv": "decay"}, "actions_csv"),
    ({"limit": 0}, "limit"),
    ({"max_share": 1.5}, "max_share"),
    ({"since": "yesterday"}, "since"),
    ({"since": "2026-03-02", "until": "2026-03-01"}, "since"),
    ({"time_window_hours": 0}, "time_window_hours"),
    ({"min_group_size": 0}, "min_group_size"),
    ({"owner": "jon"}, "owner"),
    ({"user_id": "mara", "agent_id": "helper"}, "agent_id"),
    ({"user_id": "../x"}, "user_id"),
)


async def test_what_cannot_be_asked_is_refused_by_name(open_door: Open) -> None:
    """422 with the field at fault; nothing is written."""
    async with open_door(log_of(memory(1, "working", 9, "x")), learns=True) as door:
        for body, field in REFUSED:
            error = await reflect(door, status=422, **body)
            assert error["message"].endswith(field), (body, error)
        assert not (door.root / BASE / ".lifecycle").exists()


async def test_Z03_nobody_reaches_the_memories_of_another(open_door: Open) -> None:
    """Without an owner only the only user is meant; with two there is none."""
    files = log_of(memory(1, "working", 9, "of mara")) | log_of(memory(1, "working", 9, "of jon"), owner="jon")
    async with open_door(files, learns=True) as door:
        answer = await door.client.post("/api/v1/memory/reflect", json={})
        assert 422 == answer.status_code
        found = await reflect(door, user_id="jon", actions=["archive"])
        assert ["jon_mem_20260101_00000001"] == applied(found, "archive")
        assert 1 == (await ask(door, "lifecycle"))["counts"]["active"]
        assert [] == (await ask(door, "audit"))["items"]
        assert [] == applied(await reflect(door, user_id="nobody"), "archive")
        assert not (door.root / "default_app/default_project/users/nobody").exists()


async def test_Y06_what_is_put_away_is_listed_with_reason_successor_and_days_left(open_door: Open) -> None:
    """Expired, superseded, archived and deprecated: why, since when, by what, and how long until the next thing."""
    superseded = memory(4, "semantic", 3, "old address")
    files = log_of(
        memory(1, "working", 8, "is archived"),
        memory(2, "semantic", 3, "expires", expires_at=(NOW - DAY).isoformat()),
        memory(3, "semantic", 3, "new address"),
        superseded,
        memory(5, "episodic", 3, "stays"),
    )
    at = (NOW - 2 * DAY).isoformat()
    files[f"{BASE}/.lifecycle/lifecycle-2026-01-01.md"] = (
        "---\nid: lifecycle_log_mara\ntype: lifecycle_daily\nuser_id: mara\ndate: '2026-01-01'\n---\n"
        "<!-- entry:lc_20260101_00000001 -->\n## lc_20260101_00000001\n\n"
        f"**timestamp**: {at}\n**action**: supersede\n**target**: mem_20260101_00000004\n**field**: status\n"
        "**base**: active\n**was**: active\n**value**: superseded\n**successor**: mem_20260101_00000003\n"
        "**reason**: she moved\n<!-- /entry:lc_20260101_00000001 -->\n"
    )
    episodes = "".join(
        f"<!-- entry:ep_20260101_{nth:08} -->\n## ep_20260101_{nth:08}\n\n**timestamp**: {at}\n\n### Content\n{said}\n"
        f"<!-- /entry:ep_20260101_{nth:08} -->\n"
        for nth, said in ((1, "a fragment"), (2, "the whole story"))
    )
    files[f"{BASE}/episodes/episode-2026-01-01.md"] = (
        "---\nid: episode_log_mara\ntype: episode_daily\nuser_id: mara\ndate: '2026-01-01'\n"
        f"deprecated_entries:\n  ep_20260101_00000001: ep_20260101_00000002\n---\n{episodes}"
    )
    async with open_door(files, learns=True) as door:
        await reflect(door, actions=["archive"])
        found = {one["id"].removeprefix("mara_"): one for one in (await ask(door, "lifecycle"))["items"]}
        assert {
            "mem_20260101_00000001": ("archived", None, None),
            "mem_20260101_00000002": ("expired", 0.0, "archive"),
            "mem_20260101_00000004": ("superseded", 28.0, "archive"),
            "ep_20260101_00000001": ("deprecated", None, None),
        } == {
            one: (each["status"], None if each["days_left"] is None else round(each["days_left"], 1), each["next"])
            for one, each in found.items()
        }
        assert "not used for 8 days" in found["mem_20260101_00000001"]["reason"]
        assert found["mem_20260101_00000001"]["since"] is not None
        moved = found["mem_20260101_00000004"]
        assert ("she moved", "mara_mem_20260101_00000003") == (moved["reason"], moved["successor"])
        assert "mara_ep_20260101_00000002" == found["ep_20260101_00000001"]["successor"]
        # What changed last is first: archived now, expired a day ago, superseded two days ago, and a deprecation says no moment.
        assert ["archived", "expired", "superseded", "deprecated"] == [one["status"] for one in found.values()]
        pages = [await ask(door, "lifecycle", limit=1, offset=nth) for nth in range(5)]
        assert list(found.values()) == [one for page in pages for one in page["items"]]
        assert {4} == {page["total_count"] for page in pages}
        only = await ask(door, "lifecycle", status="archived")
        assert (1, ["archived"]) == (only["total_count"], [one["status"] for one in only["items"]])
        live = await ask(door, "lifecycle", status="active", limit=1)
        assert (3, 1) == (live["total_count"], len(live["items"]))
        assert {"archived": 1, "expired": 1, "superseded": 1, "deprecated": 1, "active": 3} == live["counts"]
        answer = await door.client.get("/api/v1/memory/lifecycle", params={"user_id": "mara", "status": "gone"})
        assert 422 == answer.status_code


async def test_Y02_archive_nine_of_ten_and_search(open_door: Open) -> None:
    """Search leaves them out, `include_status` finds them with their status, and the counts are in the listing."""
    files = log_of(
        *(memory(nth, "working", 9, f"boat number {nth}") for nth in range(1, 19)),
        *(memory(nth, "semantic", 9, f"boat number {nth}") for nth in range(19, 21)),
    )
    async with open_door(files, learns=True) as door:
        stopped = await reflect(door, actions=["archive"])
        assert (18, 20, 0.9) == tuple(stopped["stopped"][name] for name in ("affected", "total", "share"))
        health = (await door.client.get("/health")).json()
        assert [one for one in health["degraded"] if "18 of 20" in one and "mara" in one]
        done = await reflect(door, actions=["archive"], force=True)
        assert 18 == done["actions"][0]["counts"]["apply"]
        health = (await door.client.get("/health")).json()
        assert [] == [one for one in health.get("degraded", ()) if "mara" in one]
        hits = (await door.search("boat", user_id="mara"))["episodes"]
        assert {"mara_mem_20260101_00000019", "mara_mem_20260101_00000020"} == {one["id"] for one in hits}
        all_of_them = (await door.search("boat", user_id="mara", include_status=["active", "archived"]))["episodes"]
        assert 20 == len(all_of_them)
        assert {"active": 2, "archived": 18} == (await ask(door, "lifecycle"))["counts"]
        assert {"active", "archived"} == {one["status"] for one in all_of_them}


async def test_the_audit_tells_of_rows_and_of_calls(open_door: Open) -> None:
    """By action, by run, by tool and by time, page by page, the newest first."""
    files = log_of(*(memory(nth, "semantic", 91, f"note {nth}") for nth in range(1, 4)))
    async with open_door(files, learns=True) as door:
        dry = await reflect(door, dry_run=True, actions=["decay"])
        real = await reflect(door, actions=["decay"], limit=2)
        everything = (await ask(door, "audit"))["items"]
        assert ["audit", "decay", "decay", "audit"] == [one["action"] for one in everything]
        assert [False, True] == [one["dry_run"] for one in everything if one["action"] == "audit"]
        assert [one["id"] for one in everything][:3] == real["audit_ids"][::-1]
        decays = await ask(door, "audit", action_type="decay", limit=1)
        assert (1, True) == (len(decays["items"]), decays["has_more"])
        one = decays["items"][0]
        assert ("importance", "0.5", "0.47", real["run_id"]) == (one["field"], one["was"], one["value"], one["run_id"])
        assert 1 == len((await ask(door, "audit", action_type="decay", offset=1))["items"])
        calls = (await ask(door, "audit", action_type="reflect"))["items"]
        assert [real["run_id"], dry["run_id"]] == [one["run_id"] for one in calls]
        assert {"user_id": "mara", "actions": ["decay"], "limit": 2} == calls[0]["parameters"]
        assert {"apply": 2, "skip": 0, "left": 1} == calls[0]["counts"]["actions"]["decay"]
        assert 3 == len((await ask(door, "audit", run_id=real["run_id"]))["items"])
        assert [] == (await ask(door, "audit", since=(NOW + DAY).isoformat()))["items"]
        assert [] == (await ask(door, "audit", until=(NOW - DAY).isoformat()))["items"]


async def test_a_command_that_only_reads_makes_no_pass(open_door: Open) -> None:
    """503, and the listing is there."""
    async with open_door(log_of(memory(1, "working", 9, "x"))) as door:
        assert "CAPABILITY_UNAVAILABLE" == (await reflect(door, status=503))["code"]
        assert 0 == (await ask(door, "lifecycle"))["total_count"]


@pytest.mark.parametrize(
    "asked",
    [
        {"actions": ["decay"] * 21},
        {"actions_csv": "decay," * 40},
        {"since": "9999-12-31T23:59:59Z"},
        {"limit": 100_001},
    ],
)
async def test_a_call_that_is_too_much_is_refused(open_door: Open, asked: dict[str, object]) -> None:
    """What was asked for stands in the row of the call: it is bounded."""
    async with open_door(log_of(memory(1, "working", 1, "boat")), learns=True) as door:
        answer = await door.client.post("/api/v1/memory/reflect", json={"user_id": "mara", **asked})
        assert 422 == answer.status_code, answer.text
        assert [] == (await ask(door, "audit"))["items"]


async def test_a_window_does_not_reach_out_of_the_calendar(open_door: Open) -> None:
    """The day before the first of January of the year 1 is none."""
    async with open_door(log_of(memory(1, "working", 1, "boat")), learns=True) as door:
        found = await reflect(door, until="0001-01-01T00:00:00Z")
        assert found["window"]["since"] == found["window"]["until"]
