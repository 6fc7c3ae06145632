"""GET reflection/reports and POST reflection/rollback: what they show, whose, and what they refuse."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from everosd import errors, types
from everosd.cli import asking, client
from everosd.log import entry

if TYPE_CHECKING:
    from tests.unit.conftest import Door, Open, Said

BASE = "default_app/default_project/users"
REPORTS, ROLLBACK = "/api/v1/reflection/reports", "/api/v1/reflection/rollback"
REPORT, LATER = "0" * 31 + "1", "0" * 31 + "2"
MERGED = "ep_20260309_00000001"
CLUSTER = "cl_0123456789ab"


@pytest.fixture
def files(log_of: Callable[..., str], episode: Callable[..., Said]) -> dict[str, str]:
    """Return two users' roots: of mara two fragments and their narrative, of theo one Episode."""
    first = episode(1, "Mara thinks about a puppy.")
    second = episode(2, "The puppy is called Bilbo.", session="s_18")
    merged = episode(
        1,
        "Mara took in a puppy, Bilbo.",
        date="20260309",
        session=None,
        parent_type="cluster",
        parent_id=CLUSTER,
        report_id=REPORT,
        mode="init",
        check="2 of 2 statements covered",
    )
    del merged.sections["Summary"]
    gone = {first.id: merged.id, second.id: merged.id}
    return {
        f"{BASE}/mara/episodes/episode-2026-03-02.md": log_of("mara", "2026-03-02", first, second, deprecated=gone),
        f"{BASE}/mara/episodes/episode-2026-03-09.md": log_of("mara", "2026-03-09", merged),
        f"{BASE}/theo/episodes/episode-2026-03-02.md": log_of("theo", "2026-03-02", episode(1, "Theo sails.")),
    }


async def completed(door: Door, user: str = "mara", report: str = REPORT, **fields: str) -> None:
    """Write the row of a consolidation into a user's log, and wait until it is known."""
    members = [f"ep_20260302_{nth:08}" for nth in (1, 2)]
    row = {
        "timestamp": dt.datetime(2026, 3, 9, 2, tzinfo=dt.UTC).isoformat(),
        "event": "completed",
        "cluster_id": CLUSTER,
        "report_id": report,
        "mode": "init",
        "source_members": json.dumps([{"member_id": one, "member_type": "episode"} for one in members]),
        "source_count": "2",
        "merged_entry_id": MERGED,
        "deprecated_fact_count": "3",
        "sources": f"[{', '.join(f'{one}@0123456789abcdef' for one in members)}]",
    } | fields
    owner = types.Owner(app="default", project="default", type="user", id=user)
    await door.node.cascade.writer.append(owner, "cluster", [entry.Draft(fields=row)])
    await door.node.cascade.reconcile("test")
    await door.node.cascade.settled(20.0)


async def shown(door: Door, **query: Any) -> dict[str, Any]:
    """Return what stands under `data` of a page of reports."""
    answer = await door.client.get(REPORTS, params=query)
    assert 200 == answer.status_code, answer.text
    data: dict[str, Any] = answer.json()["data"]
    return data


async def test_a_report_is_its_row_with_the_texts_before_and_after(open_door: Open, files: dict[str, str]) -> None:
    """Columns as in the table, the fragments as they stand in their files, the narrative, and how it was checked."""
    async with open_door(files) as door:
        await completed(door)
        data = await shown(door, user_id="mara")

    assert 1 == data["total_count"]
    (one,) = data["items"]
    before, after = one.pop("before"), one.pop("after")
    assert {
        "report_id": REPORT,
        "id": REPORT,
        "cluster_id": CLUSTER,
        "owner_id": "mara",
        "app_id": "default",
        "project_id": "default",
        "owner_type": "user",
        "mode": "init",
        "source_members": [
            {"member_id": "ep_20260302_00000001", "member_type": "episode"},
            {"member_id": "ep_20260302_00000002", "member_type": "episode"},
        ],
        "source_count": 2,
        "merged_entry_id": MERGED,
        "deprecated_fact_count": 3,
        "status": "completed",
        "created_at": "2026-03-09T02:00:00Z",
        "updated_at": "2026-03-09T02:00:00Z",
        "check": "2 of 2 statements covered",
    } == one
    assert {
        "id": "mara_ep_20260302_00000001",
        "timestamp": "2026-03-02T00:01:00Z",
        "subject": "About 1",
        "text": "Mara thinks about a puppy.",
        "status": "deprecated",
    } == before[0]
    assert ["deprecated", "deprecated"] == [each["status"] for each in before]
    assert {
        "id": f"mara_{MERGED}",
        "timestamp": "2026-03-09T00:01:00Z",
        "subject": "About 1",
        "content": "Mara took in a puppy, Bilbo.",
        "status": "active",
        "deprecated_by": None,
    } == after


async def test_a_report_outlives_what_it_speaks_of(open_door: Open, files: dict[str, str]) -> None:
    """What a person has deleted is shown as gone, and the report stays."""
    async with open_door({path: text for path, text in files.items() if "03-09" not in path}) as door:
        members = json.dumps([{"member_id": "ep_20260101_00000001", "member_type": "episode"}])
        await completed(door, source_members=members)
        (one,) = (await shown(door, user_id="mara"))["items"]

    assert (None, None) == (one["after"], one["check"])
    gone = {"id": "mara_ep_20260101_00000001", "timestamp": None, "subject": "", "text": "", "status": "gone"}
    assert [gone] == one["before"]


async def test_nobody_sees_the_reports_of_another(open_door: Open, files: dict[str, str]) -> None:
    """A page is of one user: of several somebody has to be named, and another app, project or name shows nothing."""
    async with open_door(files) as door:
        await completed(door)
        answer = await door.client.get(REPORTS)
        assert (422, "user_id") == (answer.status_code, answer.json()["error"]["message"].rpartition(": ")[2])
        for other in ({"user_id": "theo"}, {"user_id": "mara", "app_id": "x"}, {"user_id": "mara", "project_id": "x"}):
            assert {"items": [], "total_count": 0} == await shown(door, **other)
        (door.root / f"{BASE}/theo/episodes/episode-2026-03-02.md").unlink()
        await door.node.cascade.reconcile("test")
        await door.node.cascade.settled(20.0)
        assert 1 == (await shown(door, user_id="mara"))["total_count"]


async def test_pages_clusters_and_limits(open_door: Open, files: dict[str, str]) -> None:
    """The newest first, page by page; one cluster's where that is asked; what is past the end is an empty 200."""
    async with open_door(files) as door:
        await completed(door)
        await completed(door, report=LATER, timestamp="2026-03-16T02:00:00+00:00", cluster_id="cl_000000000000")
        pages = [await shown(door, user_id="mara", limit=1, offset=at) for at in (0, 1, 2, 2**62)]
        assert [[LATER], [REPORT], [], []] == [[one["report_id"] for one in page["items"]] for page in pages]
        assert [2] * 4 == [page["total_count"] for page in pages]
        assert [REPORT] == [one["id"] for one in (await shown(door, user_id="mara", cluster_id=CLUSTER))["items"]]
        for wrong in (
            {"limit": 0},
            {"limit": 101},
            {"offset": -1},
            {"limit": "x"},
            {"cluster_id": ""},
            {"user": "mara"},
            {"agent_id": "mara"},
            {"user_id": "../mara"},
        ):
            answer = await door.client.get(REPORTS, params={"user_id": "mara", **wrong})
            assert 422 == answer.status_code, wrong
            assert answer.json()["error"]["message"].endswith(f": {next(iter(wrong))}"), answer.text
        v2 = await door.client.get(REPORTS.replace("v1", "v2"), params={"user_id": "mara"})
        assert 2 == v2.json()["data"]["total_count"]


REFUSED: tuple[tuple[dict[str, str], int, str | None], ...] = (
    ({}, 422, "report_id"),
    ({"report_id": REPORT, "merged_entry_id": f"mara_{MERGED}"}, 422, "merged_entry_id"),
    ({"merged_entry_id": MERGED}, 422, "user_id"),
    ({"report_id": ""}, 422, "report_id"),
    ({"report": REPORT}, 422, "report"),
    ({"report_id": REPORT, "user_id": ".."}, 422, "user_id"),
    ({"report_id": LATER}, 404, None),
    ({"report_id": REPORT, "user_id": "theo"}, 404, None),
    ({"report_id": REPORT, "app_id": "x"}, 404, None),
    ({"merged_entry_id": "mara_ep_20260302_00000001"}, 404, None),
    ({"merged_entry_id": f"theo_{MERGED}"}, 404, None),
    ({"merged_entry_id": MERGED, "user_id": "theo"}, 404, None),
    ({"merged_entry_id": "nothing like an id"}, 404, None),
    ({"report_id": REPORT}, 503, None),  # found; and nothing that undoes it runs over files alone
    ({"merged_entry_id": f"mara_{MERGED}"}, 503, None),
    ({"merged_entry_id": MERGED, "user_id": "mara"}, 503, None),
    ({"merged_entry_id": f"mara_{MERGED}", "user_id": "mara"}, 503, None),
)
"""Body, status, and the field at fault."""


async def test_what_a_rollback_refuses(open_door: Open, files: dict[str, str]) -> None:
    """One id, of that scope; who names another, or none, is told which field is at fault."""
    async with open_door(files) as door:
        await completed(door)
        for body, status, field in REFUSED:
            answer = await door.client.post(ROLLBACK, json=body)
            assert status == answer.status_code, (body, answer.text)
            if field is not None:
                assert answer.json()["error"]["message"].endswith(f": {field}"), answer.text


async def test_a_report_of_two_people_is_undone_for_the_one_who_is_named(
    open_door: Open, files: dict[str, str]
) -> None:
    """A folder of memory was copied: its reports are of both, and nobody's memory is changed by guessing."""
    async with open_door(files) as door:
        await completed(door)
        await completed(door, user="theo")
        answer = await door.client.post(ROLLBACK, json={"report_id": REPORT})
        assert 422 == answer.status_code
        message = answer.json()["error"]["message"]
        assert f"has to say which is meant, mara and theo have a report {REPORT}: user_id" == message
        with pytest.raises(errors.RequestError, match=f"^--user has to say .* have a report {REPORT}$"):
            asking.checked(client.Answer(status=422, body=answer.json()))
        answer = await door.client.post(ROLLBACK, json={"report_id": REPORT, "user_id": "theo"})
        assert 503 == answer.status_code, answer.text  # found
