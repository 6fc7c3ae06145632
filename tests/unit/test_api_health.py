"""/health: what is said of a cascade that is well, behind, held up or watching badly."""

from __future__ import annotations

import datetime as dt

import msgspec

from everosd import errors, types
from everosd.api import health, schema
from everosd.cascade import status as cascade_status
from everosd.engine import shown, strategy
from everosd.intake import online
from everosd.models import chat

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


SESSION = types.Owner(app="default", project="default", type="session", id="s_17")
QUEUE = online.Status(is_running=True, pending=0, oldest_pending_age_s=None, failed=0, n_errors=0, last_error_at=None)


def of_queue(queue: online.Status) -> tuple[schema.MemorizeQueueHealthBlock, tuple[str, ...]]:
    found = health.health(WELL, version="1", uptime_s=1.0, queue=queue)
    assert found.memorize_queue is not None
    return found.memorize_queue, found.degraded or ()


def test_a_queue_that_is_well_says_nothing() -> None:
    """It runs, accepts, and nothing is degraded; without an intake there is no block at all."""
    block_, degraded = of_queue(QUEUE)

    assert (True, (), True, True, ()) == (
        block_.healthy,
        block_.reasons,
        block_.loop_alive,
        block_.accepting,
        degraded,
    )
    assert health.health(WELL, version="1", uptime_s=1.0).memorize_queue is None


def test_segments_that_failed_again_and_again_are_named() -> None:
    """Each with its session and why, up to a number; they are reasons of the queue and stand in `degraded`."""
    dead = tuple(online.Dead(session=SESSION, memcell_id=f"mc_{n:012}", n_failed=9, error="cut off") for n in range(9))

    block_, degraded = of_queue(msgspec.structs.replace(QUEUE, dead=dead, failed=9, pending=9))

    assert (False, 9) == (block_.healthy, block_.failed)
    assert "mc_000000000000 of session s_17: cut off" in block_.reasons[0]
    assert (health.MAX_NAMED + 1, "failed so often besides: 4 segments") == (len(block_.reasons), block_.reasons[-1])
    assert block_.reasons == degraded


def test_messages_under_a_doubled_key_are_counted() -> None:
    """What came under the session, timestamp and place of another message is kept, and said; the queue goes on."""
    block_, degraded = of_queue(msgspec.structs.replace(QUEUE, n_conflicting=2))

    assert (True, block_.reasons) == (block_.healthy, degraded)
    assert "kept and not extracted: 2 messages" in degraded[0]


def test_a_fault_of_the_intake_is_dated() -> None:
    """When everosd itself failed last stands in the block, as ISO."""
    at = dt.datetime(2026, 3, 2, 10, 0, tzinfo=dt.UTC)
    queue = msgspec.structs.replace(QUEUE, n_errors=1, last_error_at=at, oldest_pending_age_s=1.23456)

    block_, _ = of_queue(queue)

    assert ("2026-03-02T10:00:00Z", 1.235) == (block_.last_loop_error_at, block_.oldest_pending_age_s)


def test_a_model_that_reads_conversations_is_a_capability() -> None:
    """None set up: `llm` is a disabled feature; one that fails is none, and the reason is told."""
    without = health.health(WELL, version="1", uptime_s=1.0)
    well = health.health(WELL, version="1", uptime_s=1.0, model=chat.State())
    ill = health.health(WELL, version="1", uptime_s=1.0, model=chat.State(is_failing=True, reason="refuses the key"))

    assert [False, True, False] == [found.capabilities.llm for found in (without, well, ill)]
    assert [True, False, False] == ["llm" in found.disabled_features for found in (without, well, ill)]
    assert (msgspec.UNSET, True) == (well.degraded, "refuses the key" in str(ill.degraded))


def test_what_strategies_gave_up_on_and_bad_settings_are_named() -> None:
    """One sentence for each strategy, with the first thing and why; a mistake in ome.toml with its line."""
    event = strategy.Event(topic="episode_written", owner=SESSION, subject="ep_20260302_00000001")
    dead = [
        shown.Dead(strategy=name, event=event, attempts=4, error="cut off") for name in ("facts", "facts", "clusters")
    ]
    wrong = [errors.ConfigError("ome.toml", "strategies.facts.cron", "no cron", line=3)]

    found = health.health(WELL, version="1", uptime_s=1.0, dead=dead, wrong=wrong)

    assert found.degraded is not msgspec.UNSET
    assert found.degraded[0].startswith("ome.toml:3: strategies.facts.cron: no cron")
    assert ["clusters gave up on 1", "facts gave up on 2"] == [text.partition(",")[0] for text in found.degraded[1:]]
    assert "ep_20260302_00000001 of s_17: cut off" in found.degraded[2]
