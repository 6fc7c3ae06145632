"""Plans of merges: what is replaced, and what the text is made from."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import hypothesis
from hypothesis import strategies as st

from everosd import clock, types
from everosd.narrative import source as texts
from everosd.reflection import plan

DAY_US = 86_400_000_000


def source(name: str, day: int, size: int = 1, *, is_narrative: bool = False, is_latest: bool = False) -> texts.Source:
    at = clock.from_us(day * DAY_US).astimezone(dt.UTC)
    return texts.Source(
        entry_id=name, at=at, subject="", content="x" * size, is_narrative=is_narrative, is_latest=is_latest
    )


def member(
    name: str,
    day: int,
    size: int = 1,
    *,
    is_narrative: bool = False,
    originals: Sequence[texts.Source] = (),
    is_latest: bool = False,
) -> plan.Member:
    return plan.Member(
        source=source(name, day, size, is_narrative=is_narrative, is_latest=is_latest),
        digest=name,
        path=types.RelPath("x.md"),
        timestamp_us=day * DAY_US,
        originals=tuple(originals),
    )


def room(size: int) -> plan.Fits:
    return lambda sources: sum(len(one.content) for one in sources) <= size


def shown(found: plan.Outlook) -> tuple[str, str, str] | None:
    """Return mode, what is replaced, and what is read."""
    if found.plan is None:
        return None
    return (
        found.plan.mode,
        " ".join(one.id for one in found.plan.replaced),
        " ".join(one.entry_id for one in found.plan.read),
    )


def test_fragments_become_a_narrative_in_time_order() -> None:
    """Never consolidated: all of them, the oldest first; its moment is the newest one's."""
    found = plan.outlook([member("c", 3), member("a", 1), member("b", 2)], room(99))
    assert ("init", "a b c", "a b c") == shown(found)
    assert found.plan is not None
    assert 3 * DAY_US == found.plan.timestamp_us


def test_nothing_is_done_where_nothing_is_new() -> None:
    """One Episode, one narrative, narratives alone: none of them is merged."""
    for members in ([], [member("a", 1)], [member("N", 1, is_narrative=True), member("M", 2, is_narrative=True)]):
        assert plan.Outlook(plan=None) == plan.outlook(members, room(99))


def test_an_update_is_made_from_the_originals_while_they_fit() -> None:
    """What one merge lost the next one finds; only the narrative and the new fragment are replaced."""
    narrative = member("N", 2, 5, is_narrative=True, originals=[source("a", 1), source("b", 2)])
    assert ("update", "N c", "a b c") == shown(plan.outlook([narrative, member("c", 3)], room(99)))


def test_an_update_is_made_from_the_narrative_where_the_originals_do_not_fit() -> None:
    """Or where one of them is gone."""
    long = member("N", 2, 5, is_narrative=True, originals=[source("a", 1, 50), source("b", 2, 50)])
    assert ("update", "N c", "N c") == shown(plan.outlook([long, member("c", 3)], room(99)))
    lacking = member("N", 2, 5, is_narrative=True)
    assert ("update", "N c", "N c") == shown(plan.outlook([lacking, member("c", 3)], room(99)))


def test_a_narrative_that_a_person_edited_is_read_instead_of_its_originals() -> None:
    """They would take the edit back, and bring what was deleted."""
    edited = member("N", 2, 5, is_narrative=True, is_latest=True, originals=[source("a", 1), source("b", 2)])
    assert ("update", "N c", "N c") == shown(plan.outlook([edited, member("c", 3)], room(99)))


def test_fragments_that_are_older_than_the_narrative_stand_where_they_belong() -> None:
    """A late arrival: what is read is in time order whatever is replaced."""
    narrative = member("N", 5, 5, is_narrative=True, originals=[source("b", 2), source("d", 5)])
    found = plan.outlook([narrative, member("c", 3)], room(99))
    assert ("update", "c N", "b c d") == shown(found)
    assert found.plan is not None
    assert 5 * DAY_US == found.plan.timestamp_us


def test_R02_a_large_cluster_is_merged_in_batches() -> None:
    """As many as fit, at least two; then the narrative and as many as fit beside it."""
    members = [member(f"{nth:03}", nth, 10) for nth in range(300)]
    found = plan.outlook(members, room(45))
    assert ("init", "000 001 002 003") == (shown(found) or ())[:2]
    narrative = member("N", 3, 20, is_narrative=True)
    found = plan.outlook([narrative, *members[4:]], room(45))
    assert ("update", "N 004 005", "N 004 005") == shown(found)


def test_R02_a_full_narrative_is_left_alone() -> None:
    """Nothing fits beside it: what is new becomes another, and one alone waits for company."""
    full = member("N", 2, 95, is_narrative=True)
    assert ("init", "c d", "c d") == shown(plan.outlook([full, member("c", 3, 10), member("d", 4, 10)], room(99)))
    assert None is shown(plan.outlook([full, member("c", 3, 10)], room(99)))
    other = member("M", 4, 20, is_narrative=True)
    assert ("update", "M e", "M e") == shown(plan.outlook([full, other, member("e", 5, 10)], room(99)))


def test_what_fits_beside_the_others_is_merged_with_them_at_once() -> None:
    """A short fragment behind a long one: merged afterwards, it would have the narrative made and embedded twice."""
    members = [member("a", 1, 40), member("b", 2, 40), member("c", 3, 30), member("d", 4, 5), member("e", 5, 30)]
    found = plan.outlook(members, room(99))
    assert ("init", "a b d", "a b d") == shown(found)
    narrative = member("N", 4, 85, is_narrative=True)
    assert ("init", "c e", "c e") == shown(plan.outlook([narrative, members[2], members[4]], room(99)))


def test_one_fragment_that_is_too_long_does_not_keep_the_others() -> None:
    """It is named, and stays as it is."""
    found = plan.outlook([member("a", 1, 200), member("b", 2), member("c", 3)], room(99))
    assert ("init", "b c", "b c") == shown(found)
    assert ("a",) == found.too_long
    narrative = member("N", 1, 5, is_narrative=True)
    assert ("update", "N c", "N c") == shown(plan.outlook([narrative, member("b", 2, 200), member("c", 3)], room(99)))


def test_fragments_of_which_no_two_fit_together_stay_as_they_are() -> None:
    """Each fits alone: nothing can be merged, and it is found out without trying every pair."""
    tried: list[int] = []

    def fits(sources: Sequence[texts.Source]) -> bool:
        tried.append(len(sources))
        return room(99)(sources)

    assert plan.Outlook(plan=None) == plan.outlook([member(f"{nth:03}", nth, 60) for nth in range(200)], fits)
    assert len(tried) <= 3 * 200


@hypothesis.given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 60), st.booleans()), max_size=12), st.integers(5, 100)
)
def test_a_plan_keeps_its_promises(given: list[tuple[int, int, bool]], size: int) -> None:
    """Whatever there is: at least two are replaced, at most one of them a narrative, and what is read fits."""
    members = [
        member(f"{nth:02}", day, length, is_narrative=is_narrative)
        for nth, (day, length, is_narrative) in enumerate(given)
    ]
    found = plan.outlook(members, room(size)).plan
    if found is None:
        fragments = sorted(length for _, length, is_narrative in given if not is_narrative)
        others = sorted(length for _, length, is_narrative in given if is_narrative)
        pairs = [fragments[0] + each for each in (*fragments[1:2], *others[:1])] if fragments else []
        assert not [each for each in pairs if each <= size]
        return
    assert len(found.replaced) >= 2
    assert sum(one.source.is_narrative for one in found.replaced) == (found.mode == "update")
    assert room(size)(found.read)
    assert sorted(one.timestamp_us for one in found.replaced) == [one.timestamp_us for one in found.replaced]
