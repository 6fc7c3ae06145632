"""Decay: importance sinks by a step for each whole period in which a memory was left alone, down to a floor. Pure.

Periods are counted from one moment of activity to the next, and what is left of one at its end is over: a use begins anew.
So it makes no difference how often decay is run, as long as nobody changes the tables in between. What lies before an importance
that somebody has given anew counts nothing: there everything begins again. A row says from which moment
its steps are counted and how many there were; what has been taken since then is not taken again.
"""

from __future__ import annotations

import itertools

from everosd.lifecycle import age, change, decisions, past, policy
from everosd.store import lifecycle as store


def plan(
    record: store.Record, status: str, policies: policy.Policy, now_us: int, before: past.Past = past.ALL
) -> change.Change | None:
    """Return what is decided about a memory that has this status by now; None: it is no candidate.

    A candidate is an active memory, of a type that decays, for which a whole period has passed since it was created.
    """
    wanted = policies.decay.get(record.memory_type)
    if status != "active" or wanted is None or now_us - record.created_us < wanted.period_us:
        return None
    was = policy.millionths(record.importance)
    found = None if record.is_pinned or was <= wanted.floor else steps(record, wanted, now_us, was, before)
    if found is None:
        return _spared(record, wanted, now_us, was)
    reason = (
        f"{found.n_taken} x {policy.number(wanted.step)} for {policy.days(now_us - found.since_us)} days without use,"
        f" one each {policy.days(wanted.period_us)} days, floor {policy.number(wanted.floor)}"
    )
    decision = decisions.Decision(
        id=record.entry_id,
        owner=record.owner,
        action="decay",
        decision="apply",
        reason=reason,
        before={"importance": policy.importance(was)},
        after={"importance": policy.importance(found.value)},
    )
    return change.Change(record=record, decision=decision, decayed=found)


def steps(
    record: store.Record, wanted: policy.Decay, now_us: int, was: int, before: past.Past = past.ALL
) -> change.Decayed | None:
    """Return how far importance sinks that is `was` millionths, above the floor; None: not at all."""
    if age.last_us(record) > now_us:
        return None
    found = age.moments(record, now_us)
    n_new, n_last = 0, 0
    for nth, since_us in enumerate(found):
        until_us = found[nth + 1] if nth + 1 < len(found) else now_us
        n_last = max(0, before.get(until_us, until_us) - since_us) // wanted.period_us
        taken = record.steps if nth == 0 and record.since_us is not None else 0
        n_new += max(0, n_last - taken)
    if not n_new or not wanted.step:
        return None
    n_to_floor = -((wanted.floor - was) // wanted.step)
    return change.Decayed(
        was=was,
        value=max(wanted.floor, was - n_new * wanted.step),
        since_us=found[-1],
        steps=n_last,
        n_taken=min(n_new, n_to_floor),
    )


def settled(record: store.Record, policies: policy.Policy, now_us: int) -> change.Change | None:
    """Return that up to its newest activity nothing is to be taken from a memory; None: something is, or it cannot be told.

    What a row of it says is what counting comes to without it: from that activity on, no step so far. It takes the place of all
    moments before.
    """
    wanted = policies.decay.get(record.memory_type)
    if wanted is None or record.status != "active" or record.is_pinned or age.last_us(record) > now_us:
        return None
    found = age.moments(record, now_us)
    whole = [(until_us - since_us) // wanted.period_us for since_us, until_us in itertools.pairwise(found)]
    was = policy.millionths(record.importance)
    is_due = bool(whole) and (whole[0] > (0 if record.since_us is None else record.steps) or any(whole[1:]))
    if not whole or (is_due and was > wanted.floor):
        return None
    decision = decisions.Decision(
        id=record.entry_id,
        owner=record.owner,
        action="decay",
        decision="apply",
        reason=f"counted up to here: used so often that nothing was due in {policy.days(found[-1] - found[0])} days",
    )
    counted = change.Decayed(was=was, value=was, since_us=found[-1], steps=0, n_taken=0)
    return change.Change(record=record, decision=decision, decayed=counted)


def due_at(record: store.Record, policies: policy.Policy, now_us: int) -> tuple[int, float] | None:
    """Return when an active memory sinks next, or should have by now, and to what by that one step; None: never."""
    wanted = policies.decay.get(record.memory_type)
    was = policy.millionths(record.importance)
    if wanted is None or not wanted.step or record.is_pinned or was <= wanted.floor:
        return None
    since_us = max(age.moments(record, now_us)[-1], age.last_us(record))
    taken = record.steps if since_us == record.since_us else 0
    value = policy.importance(max(wanted.floor, was - wanted.step))
    return since_us + (taken + 1) * wanted.period_us, value


def _spared(record: store.Record, wanted: policy.Decay, now_us: int, was: int) -> change.Change | None:
    """Return why nothing is taken from a candidate; None: all that was due was taken before."""
    left_alone_us = now_us - age.last_us(record)
    if record.is_pinned:
        reason = "pinned: exempt"
    elif was <= wanted.floor:
        reason = f"{policy.number(was)} is at or below the floor {policy.number(wanted.floor)}"
    elif left_alone_us < 0:
        reason = "active in the future, by its own dates"
    elif left_alone_us < wanted.period_us:
        reason = f"active {policy.days(left_alone_us)} days ago, less than {policy.days(wanted.period_us)}"
    else:
        return None
    decision = decisions.Decision(
        id=record.entry_id,
        owner=record.owner,
        action="decay",
        decision="skip",
        reason=reason,
        before={"importance": policy.importance(was)},
    )
    return change.Change(record=record, decision=decision)
