"""The queue of paths: what counts as waiting."""

from __future__ import annotations

import pytest

from everosd import types
from everosd.cascade import dirty


def paths(n: int) -> list[types.RelPath]:
    """Return names of files."""
    return [types.RelPath(f"{number}.md") for number in range(n)]


def test_a_path_that_waits_twice_counts_once() -> None:
    """A file of the backlog that is saved meanwhile is one path that waits; one in work still counts."""
    queue = dirty.Dirty()
    queue.add_backlog(paths(100))
    queue.mark([*paths(1), types.RelPath("other.md")])
    assert 101 == len(queue)
    assert (*paths(1), "other.md") == queue.take({})
    assert 101 == len(queue)
    queue.done()
    assert 99 == len(queue)


class Counted(str):
    """A path that counts how often any of its kind is looked up."""

    __slots__ = ()
    n_looks = 0

    def __hash__(self) -> int:
        """Count, and return what text returns."""
        Counted.n_looks += 1
        return super().__hash__()


def test_asking_how_much_waits_does_not_walk_the_backlog() -> None:
    """It is asked many times a second while the files of a first read wait: that must not be the work."""
    queue = dirty.Dirty()
    queue.add_backlog(types.RelPath(Counted(path)) for path in paths(1000))
    before = Counted.n_looks
    assert 1000 == len(queue)
    assert Counted.n_looks - before < 10


def test_logs_of_conversations_wait_for_each_other_and_nothing_else_does() -> None:
    """The first is read at once; those of the next moments together, and what a person saves meanwhile before them."""
    queue = dirty.Dirty()
    first, second, third, note = paths(4)
    queue.mark_logs([first], 10.0)
    assert (first,) == queue.take({})
    queue.done()
    queue.mark_logs([second], 10.01)
    queue.mark_logs([third], 10.02)
    queue.mark([note])
    assert (note,) == queue.take({})
    queue.done()
    assert 2 == len(queue)
    due_s = queue.next_due_s(10.03)
    assert due_s is not None
    assert () == queue.take({})
    queue.mark_due(10.03 + due_s)
    assert (second, third) == queue.take({})
    queue.done()
    assert queue.next_due_s(10.2) is None
    assert 0 == len(queue)


def test_what_everosd_wrote_waits_while_somebody_is_answered_but_not_for_ever() -> None:
    """A log is read once nobody is being answered, or when its time is up; what is asked for by name is read at once."""
    queue = dirty.Dirty()
    first, second, note = paths(3)
    queue.mark_logs([first], 10.0, is_busy=True)
    queue.mark([note])
    assert (note,) == queue.take({})
    queue.done()
    queue.mark_due(10.5, is_busy=True)
    assert () == queue.take({})
    assert dirty.LOOK_S == pytest.approx(queue.next_due_s(10.5))
    queue.mark_due(10.5)
    assert (first,) == queue.take({})
    queue.done()
    queue.mark_logs([second], 20.0, is_busy=True)
    queue.mark_due(20.0 + dirty.HELD_S, is_busy=True)
    assert (second,) == queue.take({})
    queue.done()
    queue.mark_logs([first], 30.0, is_busy=True)
    queue.mark([first])
    assert (first,) == queue.take({})
    queue.done()
    assert 0 == len(queue)
