"""Where a session is cut: at limits, pauses and flushes, the same way every time, and never within a turn."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from everosd import config
from everosd.intake import boundary, message

MINUTE_US = 60_000_000


def limits(n_tokens: int = 65_536, n_messages: int = 500, gap_hours: float = 24.0) -> config.BoundaryDetection:
    """Return limits."""
    return config.BoundaryDetection(
        hard_token_limit=n_tokens,
        hard_msg_limit=n_messages,
        idle_minutes=30,
        gap_hours=gap_hours,
        asks_model=False,
    )


def talk(roles: str, *, pauses: Sequence[float] = (), text: str = "word") -> list[message.Message]:
    """Return messages, `u`ser, `a`ssistant or `t`ool; `pauses` are minutes before each, 1 where there are no more."""
    found, at_us = [], 0
    names: dict[str, message.Role] = {"u": "user", "a": "assistant", "t": "tool"}
    for nth, role in enumerate(roles):
        at_us += int((pauses[nth] if nth < len(pauses) else 1) * MINUTE_US)
        one = message.Message(id=f"m{nth}", sender_id=role, role=names[role], timestamp_us=at_us, text=text)
        found.append(one)
    return found


def sizes(cuts: Sequence[boundary.Cut]) -> list[tuple[int, str]]:
    """Return what was cut as plain values."""
    return [(one.n_messages, one.reason) for one in cuts]


def test_what_is_within_the_limits_waits() -> None:
    """Nothing is cut before a limit is reached; a flush takes all of it."""
    assert [] == boundary.cuts(talk("uaua"), limits(), is_flush=False)
    assert [(4, "flush")] == sizes(boundary.cuts(talk("uaua"), limits(), is_flush=True))
    assert [] == boundary.cuts([], limits(), is_flush=True)


def test_the_message_limit_cuts_when_it_is_reached() -> None:
    """The third message of three completes a segment; what comes after it waits."""
    assert [(3, "messages")] == sizes(boundary.cuts(talk("uau"), limits(n_messages=3), is_flush=False))
    assert [(3, "messages")] == sizes(boundary.cuts(talk("uauau"), limits(n_messages=3), is_flush=False))


def test_a_long_pause_parts_two_conversations() -> None:
    """A day of silence by the messages' own clocks ends a segment; without that limit it does not."""
    waiting = talk("uaua", pauses=(0, 1, 24 * 60, 1))
    assert [(2, "gap")] == sizes(boundary.cuts(waiting, limits(), is_flush=False))
    assert [] == boundary.cuts(waiting, limits(gap_hours=0), is_flush=False)


def test_a_limit_cuts_at_the_longest_pause_of_its_last_quarter() -> None:
    """Eight messages at most: the talk paused before the seventh, so that is where it is cut."""
    waiting = talk("uauauauauaua", pauses=(0, 1, 1, 1, 1, 1, 30))
    assert (6, "messages") == sizes(boundary.cuts(waiting, limits(n_messages=8), is_flush=False))[0]


def test_a_limit_does_not_cut_between_a_question_and_its_answer() -> None:
    """The limit falls between a call of a tool and what it returned: the turn goes to the next segment as a whole."""
    waiting = talk("uauauaua" + "uat" + "ua")
    assert (8, "messages") == sizes(boundary.cuts(waiting, limits(n_messages=10), is_flush=False))[0]


def test_the_token_limit_holds_for_every_segment() -> None:
    """Long messages: no segment has more tokens than it may, unless a single message does."""
    waiting = talk("ua" * 20, text="many different words " * 20)
    cuts = boundary.cuts(waiting, limits(n_tokens=500), is_flush=True)
    each = boundary._sizes(waiting, 500, {})
    start = 0
    for one in cuts:
        assert sum(each[start : start + one.n_messages]) <= 500
        start += one.n_messages
    assert len(waiting) == start


@settings(max_examples=60, deadline=None)
@given(
    roles=st.text("uat", max_size=60),
    pauses=st.lists(st.floats(0, 3000), max_size=60),
    n_messages=st.integers(1, 20),
    is_flush=st.booleans(),
)
def test_cuts_take_every_message_once_and_in_order(
    *, roles: str, pauses: list[float], n_messages: int, is_flush: bool
) -> None:
    """Whatever the talk: segments are not empty, within the limit, and a flush leaves nothing over."""
    waiting = talk(roles, pauses=pauses)
    cuts = boundary.cuts(waiting, limits(n_messages=n_messages), is_flush=is_flush)
    assert all(1 <= one.n_messages <= n_messages for one in cuts)
    n_cut = sum(one.n_messages for one in cuts)
    assert n_cut == len(waiting) if is_flush else n_cut <= len(waiting)


def test_a_message_is_counted_once() -> None:
    """What was counted for the message before is known for the next one: a long session costs no more with each."""
    some = talk("ua" * 50, text="word " * 60)
    known: dict[str, int] = {}
    cut = boundary.cuts(some, limits(4000), is_flush=False, known=known)
    assert {one.id for one in some} == known.keys()
    assert cut == boundary.cuts(some, limits(4000), is_flush=False, known=known)
    assert cut == boundary.cuts(some, limits(4000), is_flush=False)
    assert [] == boundary.cuts(some, limits(4000), is_flush=False, known=dict.fromkeys(known, 1))
