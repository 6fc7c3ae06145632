"""/health: what is said of a cascade that is well, behind, held up or watching badly."""

from __future__ import annotations

import msgspec

from everosd.api import health, schema
from everosd.cascade import status as cascade_status

WELL = cascade_status.Status(
    phase="ready",
    lsn=12,
    files_on_disk=3,
    files_indexed=3,
    entries=9,
    pending=0,
    failed_retryable=0,
    failed_permanent=0,
    problems=(),
    n_problems=0,
    projections={"text": cascade_status.ProjectionStatus(lsn=12, behind=0, documents=9, age_s=0.0)},
)


def block(status: cascade_status.Status) -> schema.CascadeHealthBlock:
    found = health.health(status, version="1", uptime_s=1.0).cascade
    assert found is not None
    return found


def test_all_is_well_when_all_is_well() -> None:
    """A cascade that is up to date is healthy, ready and without a `degraded`."""
    found = health.health(WELL, version="1.2.3", uptime_s=7.0)

    assert ("ok", "1.2.3", True, msgspec.UNSET) == (found.status, found.version, found.ready, found.degraded)
    assert (True, (), 0, {"text": 9}) == (
        block(WELL).healthy,
        block(WELL).reasons,
        block(WELL).pending,
        block(WELL).index_rows,
    )


def test_status_is_ok_even_when_degraded() -> None:
    """Programs take any other word for a dead server; what is wrong stands in `degraded` and `cascade`."""
    found = health.health(msgspec.structs.replace(WELL, failed_permanent=1), version="1", uptime_s=0.0)

    assert "ok" == found.status
    assert found.degraded


def test_notices_are_said_last_and_do_not_make_the_cascade_ill() -> None:
    """Settings that wait for a restart are for a person to know; what is served is what the files say."""
    found = health.health(
        msgspec.structs.replace(WELL, failed_permanent=1, notices=("settings wait",)), version="1", uptime_s=0.0
    )

    assert ("not read as it should be: 1 file; `everosd doctor` names what to mend", "settings wait") == found.degraded
    assert block(msgspec.structs.replace(WELL, notices=("settings wait",))).healthy


def test_W01_drift_between_disk_and_index_is_never_clean() -> None:
    """Files on disk that are not indexed, with nothing under way, are named as a reason."""
    found = block(msgspec.structs.replace(WELL, files_on_disk=5))

    assert (False, 5, 3) == (found.healthy, found.files_on_disk, found.files_indexed)
    assert "5 files on disk, 3 indexed" in found.reasons[0]


def test_W09_polling_is_degraded_and_says_what_to_raise() -> None:
    """Without inotify the reason names the sysctl."""
    reason = "fs.inotify.max_user_watches is 128: raise it"
    polling = msgspec.structs.replace(WELL, watch_mode="polling", watch_healthy=False, watch_reason=reason)

    found = health.health(polling, version="1", uptime_s=0.0)

    assert (f"changes are noticed by polling: {reason}",) == found.degraded


def test_polling_by_choice_is_not_degraded() -> None:
    """A person who set `[watch] mode = "polling"` is not told that something is wrong."""
    assert block(msgspec.structs.replace(WELL, watch_mode="polling")).healthy


def test_a_held_back_mass_deletion_comes_first() -> None:
    """The alarm is the first reason, and the index counts as emptied."""
    found = block(msgspec.structs.replace(WELL, alarm="3 of 3 files are gone: `everosd rebuild`", failed_retryable=1))

    assert ("3 of 3 files are gone: `everosd rebuild`", True) == (found.reasons[0], found.index_emptied)


def test_an_index_that_is_just_behind_is_no_reason() -> None:
    """A few changes under way are `pending`, not a fault."""
    behind = cascade_status.ProjectionStatus(lsn=4, behind=8, documents=4, age_s=0.2)

    found = block(msgspec.structs.replace(WELL, pending=8, projections={"text": behind}))

    assert (True, 8) == (found.healthy, found.pending)


def test_a_rebuild_says_how_far_it_is() -> None:
    """While an index is made anew, the reason has the figures."""
    rebuilding = cascade_status.ProjectionStatus(
        lsn=0, behind=9, documents=0, age_s=0.0, state="rebuilding", progress=(3, 9)
    )

    assert ("the text index is being rebuilt: 3 of 9",) == block(
        msgspec.structs.replace(WELL, projections={"text": rebuilding})
    ).reasons


def test_a_start_is_not_ready_and_not_degraded() -> None:
    """Before the first comparison with the disk nothing is claimed."""
    found = health.health(msgspec.structs.replace(WELL, phase="starting", files_indexed=0), version="1", uptime_s=0.0)

    assert (False, msgspec.UNSET) == (found.ready, found.degraded)


def test_only_the_first_problem_files_are_shown() -> None:
    """A root with thousands of odd files does not make /health a long read; the count is whole."""
    problems = tuple(cascade_status.FileProblem(path=f"{n}.md", reason="odd") for n in range(200))

    found = health.health(msgspec.structs.replace(WELL, problems=problems, n_problems=4_000), version="1", uptime_s=0.0)

    assert (health.MAX_PROBLEMS, 4_000) == (len(found.problems), found.n_problems)
