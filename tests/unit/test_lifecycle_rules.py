"""Expire, decay and archive by the numbers, each at its edge, on both sides of it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everosd.lifecycle import archive, change, decay, expire, guard, past, policy
from everosd.lifecycle import window as windows
from everosd.lifecycle.decisions import Filters
from everosd.store import lifecycle as store
from tests import governed

DAY_US, START_US = governed.DAY_US, governed.START_US
POLICIES = governed.policies()

DECAY = (
    ("working", 1, 0.20, 0.05),
    ("episodic", 14, 0.10, 0.10),
    ("semantic", 90, 0.03, 0.20),
    ("procedural", 120, 0.02, 0.25),
)
RETENTION = (("working", 7), ("episodic", 30), ("semantic", 180), ("procedural", 365))


def decayed(one: store.Record, now_us: int, policies: policy.Policy = POLICIES) -> change.Decayed | None:
    """Return how far a memory decays; None: not at all."""
    found = decay.plan(one, one.status, policies, now_us)
    return None if found is None or not found.is_applied else found.decayed


def archived(one: store.Record, now_us: int, status: str | None = None) -> str | None:
    """Return whether a memory is archived: `apply`, `skip`; None: it is no candidate."""
    found = archive.plan(one, status or one.status, one.status_since_us, POLICIES, now_us)
    return None if found is None else found.decision.decision


# -- expire ------------------------------------------------------------------------------------------------------------


def test_a_memory_expires_at_its_moment_and_not_a_microsecond_before() -> None:
    """`expires_at` at or before the evaluation time; without one, never; a type or a pin is no excuse."""
    one = governed.record(expires_us=START_US, memory_type="identity", is_pinned=True)
    assert expire.plan(one, "active", START_US - 1) is None
    found = expire.plan(one, "active", START_US)
    assert found is not None
    assert ({"status": "active"}, {"status": "expired"}) == (found.decision.before, found.decision.after)
    assert expire.plan(governed.record(), "active", START_US + 10**15) is None


@pytest.mark.parametrize("status", ["expired", "superseded", "archived", "deleted", "deprecated"])
def test_only_active_memories_expire_or_decay(status: str) -> None:
    """What is put away stays as it is."""
    one = governed.record(expires_us=START_US, status=status)
    assert expire.plan(one, status, START_US + DAY_US) is None
    assert decay.plan(one, status, POLICIES, START_US + 1000 * DAY_US) is None


# -- decay -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("memory_type", "days", "step", "floor"), DECAY)
def test_importance_sinks_by_a_step_for_each_whole_period(
    memory_type: str, days: int, step: float, floor: float
) -> None:
    """None before the first period is over, one at its end, two at the end of the second; the floor is the end."""
    one = governed.record(memory_type=memory_type, importance=0.9)
    end_us = START_US + days * DAY_US
    assert decay.plan(one, "active", POLICIES, end_us - 1) is None
    for n, at_us in ((1, end_us), (1, end_us + days * DAY_US - 1), (2, end_us + days * DAY_US)):
        found = decayed(one, at_us)
        assert found is not None
        assert (round(0.9 - n * step, 6), n, n) == (policy.importance(found.value), found.steps, found.n_taken)
    late = decayed(one, START_US + 10_000 * DAY_US)
    assert late is not None
    assert floor == policy.importance(late.value)


@pytest.mark.parametrize(("memory_type", "days", "step", "floor"), DECAY)
def test_nothing_sinks_below_the_floor_and_nothing_below_it_is_raised(
    memory_type: str, days: int, step: float, floor: float
) -> None:
    """A millionth above the floor sinks to it; at it, and below it, nothing happens."""
    now_us = START_US + days * DAY_US
    above = decayed(governed.record(memory_type=memory_type, importance=floor + 1e-6), now_us)
    assert above is not None
    assert floor == policy.importance(above.value)
    assert step > 1e-6
    for importance in (floor, floor - 1e-6, 0.0):
        found = decay.plan(governed.record(memory_type=memory_type, importance=importance), "active", POLICIES, now_us)
        assert found is not None
        assert ("skip", {}) == (found.decision.decision, found.decision.after)
        assert "floor" in found.decision.reason


def test_identity_never_decays_and_a_pinned_memory_says_why_not() -> None:
    """Both are exempt, however long they are left alone."""
    now_us = START_US + 10_000 * DAY_US
    assert decay.plan(governed.record(memory_type="identity"), "active", POLICIES, now_us) is None
    found = decay.plan(governed.record(is_pinned=True), "active", POLICIES, now_us)
    assert found is not None
    assert ("skip", "pinned: exempt") == (found.decision.decision, found.decision.reason)


@pytest.mark.parametrize("by", ["accessed_us", "anchor_us", "updated_us", "created_us"])
def test_the_most_recent_activity_spares_a_memory(by: str) -> None:
    """Use, restore or pin, update, creation: whichever was last starts the period."""
    old = {"created_us": START_US - 5 * DAY_US} if by != "created_us" else {}
    one = governed.record(**{**old, by: START_US})
    at_us = START_US + 14 * DAY_US
    assert decayed(one, at_us - 1) is None
    found = decayed(one, at_us)
    assert found is not None
    assert (START_US, 1) == (found.since_us, found.steps)


def test_a_use_after_two_periods_takes_both_and_starts_anew() -> None:
    """Gap by gap: what was due before the use is due, what is left of a period at the use is over."""
    one = governed.used(governed.record(importance=0.9), START_US + 41 * DAY_US)
    found = decayed(one, START_US + 42 * DAY_US)
    assert found is not None
    assert (0.7, 0, START_US + 41 * DAY_US) == (policy.importance(found.value), found.steps, found.since_us)
    later = governed.folded(one, found)
    assert decayed(later, START_US + (41 + 14) * DAY_US - 1) is None
    again = decayed(later, START_US + (41 + 14) * DAY_US)
    assert again is not None
    assert 0.6 == policy.importance(again.value)


def test_a_memory_of_the_future_is_left_alone() -> None:
    """A clock that was wrong once makes nothing old."""
    one = governed.record(updated_us=START_US + 900 * DAY_US)
    found = decay.plan(one, "active", POLICIES, START_US + 100 * DAY_US)
    assert found is not None
    assert "skip" == found.decision.decision
    assert archived(one, START_US + 100 * DAY_US) is None


def simulated(
    one: store.Record, uses: Sequence[int], runs: Sequence[int], policies: policy.Policy = POLICIES
) -> store.Record:
    """Return a memory after uses and runs of decay, each at its moment; a use comes before a run of the same moment."""
    for at_us, is_run in sorted([(at, False) for at in uses] + [(at, True) for at in runs]):
        if not is_run:
            one = governed.used(one, at_us)
        elif (found := decayed(one, at_us, policies)) is not None:
            assert found.value < found.was
            assert found.value >= policies.decay[one.memory_type].floor
            one = governed.folded(one, found)
    return one


@settings(max_examples=300, deadline=None)
@given(
    memory_type=st.sampled_from([name for name, *_ in DECAY]),
    importance=st.integers(0, 1000).map(lambda n: n / 1000),
    uses=st.lists(st.integers(1, 400 * 24), max_size=8),
    runs=st.lists(st.integers(1, 400 * 24), max_size=60),
)
def test_Y01_many_runs_equal_one(memory_type: str, importance: float, uses: list[int], runs: list[int]) -> None:
    """However often decay runs, and whenever a memory is used in between, the end is the same to the last digit."""
    hour = DAY_US // 24
    end = 400 * 24 + 1
    one = governed.record(memory_type=memory_type, importance=importance)
    at = [START_US + n * hour for n in uses]
    once = simulated(one, at, [START_US + end * hour])
    often = simulated(one, at, [*(START_US + n * hour for n in runs), START_US + end * hour])
    daily = simulated(one, at, [*(START_US + n * DAY_US for n in range(1, 401)), START_US + end * hour])
    assert once.importance == often.importance == daily.importance


@pytest.mark.parametrize(
    ("memory_type", "after_30", "after_60", "after_90"),
    [
        ("working", 0.05, 0.05, 0.05),
        ("episodic", 0.3, 0.1, 0.1),
        ("semantic", 0.5, 0.5, 0.47),
        ("procedural", 0.5, 0.5, 0.5),
        ("identity", 0.5, 0.5, 0.5),
    ],
)
def test_Y01_thirty_sixty_and_ninety_idle_days_daily_and_once(
    memory_type: str, after_30: float, after_60: float, after_90: float
) -> None:
    """What is left of 0.5 by type; run daily it is the same as run once."""
    one = governed.record(memory_type=memory_type)
    for days, expected in ((30, after_30), (60, after_60), (90, after_90)):
        daily = simulated(one, (), [START_US + n * DAY_US for n in range(1, days + 1)])
        once = simulated(one, (), [START_US + days * DAY_US])
        assert (expected, expected) == (daily.importance, once.importance)


@given(
    gaps=st.lists(st.integers(1, 40) | st.sampled_from([13, 14, 15, 89, 90, 91]), min_size=1, max_size=12),
    more=st.lists(st.sampled_from([1, 13, 14, 28, 90, 200]), min_size=1, max_size=4),
    memory_type=st.sampled_from(["episodic", "semantic", "identity"]),
    importance=st.sampled_from([0.05, 0.1, 0.5, 0.9]),
)
def test_what_is_counted_up_to_a_use_comes_to_the_same(
    gaps: list[int], more: list[int], memory_type: str, importance: float
) -> None:
    """Uses before it are let go only where nothing is due for them: every later decay is what it would have been."""
    at = list(itertools.accumulate(gaps, lambda us, days: us + days * DAY_US, initial=START_US))
    one = governed.record(memory_type=memory_type, importance=importance, moments=tuple(at[1:]), accessed_us=at[-1])
    found = decay.settled(one, POLICIES, at[-1])
    if found is None or found.decayed is None:
        return
    other = governed.folded(one, found.decayed)
    assert () == other.moments
    for days in itertools.accumulate(more):
        now_us = at[-1] + days * DAY_US
        kept, let_go = (decay.plan(each, "active", POLICIES, now_us) for each in (one, other))
        assert _taken(kept) == _taken(let_go)
        one, other = (governed.used(each, now_us) for each in (one, other))


def _taken(found: change.Change | None) -> tuple[int, int] | None:
    return None if found is None or found.decayed is None else (found.decayed.value, found.decayed.n_taken)


def test_time_in_the_archive_or_pinned_does_not_count() -> None:
    """A memory that comes back does not sink by the time in which it was not there to be used."""
    back_us, now_us = START_US + 300 * DAY_US, START_US + 310 * DAY_US
    one = governed.record(importance=0.9, anchor_us=back_us, moments=(back_us,))
    found = decay.plan(one, "active", POLICIES, now_us)
    assert found is not None
    assert found.decayed is not None
    assert 0.1 == policy.importance(found.decayed.value)
    spared: tuple[past.Past, ...] = ({back_us: START_US + 13 * DAY_US}, {back_us: 0})
    for before in spared:
        kept = decay.plan(one, "active", POLICIES, now_us, before)
        assert kept is not None
        assert "skip" == kept.decision.decision
    counted = decay.plan(one, "active", POLICIES, now_us, {back_us: START_US + 14 * DAY_US})
    assert counted is not None
    assert counted.decayed is not None
    assert 0.8 == policy.importance(counted.decayed.value)


def test_the_row_of_a_decay_says_what_it_was_made_on() -> None:
    """Base, before and after, since when and how many steps: what the fold, and a person, need."""
    found = decay.plan(governed.record(own_importance="0.5"), "active", POLICIES, START_US + 28 * DAY_US)
    assert found is not None
    row = change.draft(found, "r" * 32, governed.START)
    assert {
        "timestamp": "2026-03-01T12:00:00.000000+00:00",
        "action": "decay",
        "target": "mem_20260301_00000001",
        "run_id": "r" * 32,
        "field": "importance",
        "base": "0.5",
        "was": "0.5",
        "value": "0.3",
        "since": "2026-03-01T12:00:00.000000+00:00",
        "steps": "2",
        "reason": "2 x 0.1 for 28 days without use, one each 14 days, floor 0.1",
    } == row.fields


# -- archive -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("memory_type", "days"), RETENTION)
def test_a_memory_is_archived_at_the_end_of_its_retention(memory_type: str, days: int) -> None:
    """Not a microsecond before; a use starts it anew, by the same age that decay goes by."""
    one = governed.record(memory_type=memory_type)
    end_us = START_US + days * DAY_US
    assert (None, "apply") == (archived(one, end_us - 1), archived(one, end_us))
    used = governed.used(one, START_US + DAY_US)
    assert (None, "apply") == (archived(used, end_us), archived(used, end_us + DAY_US))


def test_what_is_expired_is_archived_at_once() -> None:
    """Of every type that is not exempt."""
    for memory_type, _ in RETENTION:
        one = governed.record(memory_type=memory_type, status="expired", status_since_us=START_US)
        assert "apply" == archived(one, START_US)


def test_what_is_superseded_is_archived_after_thirty_days() -> None:
    """Since it was superseded; where nobody knows when, since its last activity."""
    end_us = START_US + 30 * DAY_US
    one = governed.record(status="superseded", status_since_us=START_US, created_us=START_US - 900 * DAY_US)
    assert (None, "apply") == (archived(one, end_us - 1), archived(one, end_us))
    by_hand = governed.record(status="superseded")
    assert (None, "apply") == (archived(by_hand, end_us - 1), archived(by_hand, end_us))


def test_identity_and_pinned_memories_are_never_archived() -> None:
    """Neither for their age, nor expired, nor superseded."""
    late_us = START_US + 10_000 * DAY_US
    for status in ("active", "expired", "superseded"):
        pinned = governed.record(status=status, status_since_us=START_US, is_pinned=True)
        assert "skip" == archived(pinned, late_us)
        identity = governed.record(status=status, status_since_us=START_US, memory_type="identity")
        assert archived(identity, late_us) in (None, "skip")
        assert archive.due_at(identity, status, START_US, POLICIES) is None


@pytest.mark.parametrize("status", ["archived", "deleted", "deprecated"])
def test_what_is_away_already_is_no_candidate(status: str) -> None:
    """However old."""
    assert archived(governed.record(status=status), START_US + 10_000 * DAY_US) is None


# -- the safety stop ---------------------------------------------------------------------------------------------------


def expiring(n: int) -> tuple[list[store.Record], list[change.Change]]:
    """Return so many memories that expire."""
    records = [governed.record(entry_id=f"mem_20260301_{nth:08}", expires_us=START_US) for nth in range(n)]
    found = [expire.plan(one, "active", START_US) for one in records]
    return records, [one for one in found if one is not None]


def live(n: int) -> list[store.Record]:
    """Return so many memories of which nothing becomes."""
    return [governed.record(entry_id=f"mem_20260302_{nth:08}") for nth in range(n)]


def drastic(*changes: change.Change | None) -> set[str]:
    """Return the ids that the safety stop counts."""
    return {one.record.entry_id for one in changes if one is not None and one.is_drastic}


def test_more_than_half_stops_a_pass_and_half_does_not() -> None:
    """Six of twelve go, seven of thirteen do not."""
    records, changes = expiring(6)
    assert guard.check([*records, *live(6)], drastic(*changes), 0.5) is None
    records, changes = expiring(7)
    stopped = guard.check([*records, *live(6)], drastic(*changes), 0.5)
    assert stopped is not None
    assert (7, 13) == (stopped.affected, stopped.total)


def test_five_memories_never_stop_a_pass() -> None:
    """All of five may go, all of six may not."""
    records, changes = expiring(5)
    assert guard.check(records, drastic(*changes), 0.5) is None
    records, changes = expiring(6)
    assert guard.check(records, drastic(*changes), 0.5) is not None


def test_one_step_of_decay_does_not_count_and_two_do() -> None:
    """A nightly run takes one step from everything, and is no mistake; a wrong table takes many."""
    records = live(10)
    for days, is_stopped in ((27, False), (28, True)):
        found = [decay.plan(one, "active", POLICIES, START_US + days * DAY_US) for one in records]
        assert is_stopped == (guard.check(records, drastic(*found), 0.5) is not None)


def test_a_memory_that_expires_and_is_archived_counts_once() -> None:
    """What is counted is memories, not changes."""
    records, changes = expiring(6)
    both = [archive.plan(one, "expired", START_US, POLICIES, START_US) for one in records]
    found = guard.check([*records, *live(6)], drastic(*changes, *both), 0.5)
    assert found is None


# -- which memories ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "fits"),
    [
        ("%", True),
        ("", True),
        ("projects/%", True),
        ("projects/atlas", True),
        ("projects", False),
        ("%atlas", True),
        ("p_ojects/atlas", False),
        ("projects/ATLAS", False),
        ("projects/atl.s", False),
    ],
)
def test_a_filter_is_a_pattern_with_one_wildcard(pattern: str, fits: bool) -> None:  # noqa: FBT001
    """`%` is anything; everything else is itself."""
    assert fits == windows.fits(Filters(path=pattern))(governed.record(path="projects/atlas"))


def test_the_window_is_the_last_day_unless_said_otherwise() -> None:
    """`since` and `until` replace it, alone or together."""
    now_us = START_US
    assert (now_us - DAY_US, now_us) == msgspec.structs.astuple(windows.of(now_us))
    assert (now_us - 7 * DAY_US, now_us) == msgspec.structs.astuple(windows.of(now_us, hours=168))
    assert (5, 9) == msgspec.structs.astuple(windows.of(now_us, since_us=5, until_us=9))
    assert (9 - DAY_US, 9) == msgspec.structs.astuple(windows.of(now_us, until_us=9))
