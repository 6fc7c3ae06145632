"""Absence waits before it counts as deletion."""

from __future__ import annotations

from everosd.cascade import grace


def test_a_file_counts_as_gone_after_a_second() -> None:
    """The first look never deletes; one a second later may."""
    waiting = grace.Grace()
    assert not waiting.miss_file("a.md", 10.0)
    assert () == waiting.due(10.5)
    assert ("a.md",) == waiting.due(11.0)
    assert waiting.miss_file("a.md", 11.0)


def test_a_file_that_comes_back_starts_afresh() -> None:
    """Vanished and back is never a delete, however often."""
    waiting = grace.Grace()
    waiting.miss_file("a.md", 10.0)
    waiting.found_file("a.md")
    assert not waiting.miss_file("a.md", 11.5)


def test_entries_are_timed_one_by_one() -> None:
    """An entry that is missed later waits its own second."""
    waiting = grace.Grace()
    waiting.miss_entries("a.md", [("x", 0)], 10.0)
    waiting.miss_entries("a.md", [("x", 0), ("y", 0)], 10.8)
    assert frozenset({("x", 0)}) == waiting.removable("a.md", 11.0)
    waiting.miss_entries("a.md", [("y", 0)], 11.1)
    assert frozenset() == waiting.removable("a.md", 11.2)


def test_W21_all_files_gone_has_to_be_confirmed() -> None:
    """An empty mount is not a deletion of everything, even of a single file."""
    assert grace.Grace().is_mass_deletion({"a.md": grace.Size(1)}, n_files=1, held=grace.Size(1), now_s=0.0)


def test_more_than_half_and_more_than_a_hundred_entries_have_to_be_confirmed() -> None:
    """Both bounds have to be passed: a small root may lose most of its entries, a large one many."""
    waiting = grace.Grace()
    assert not waiting.is_mass_deletion({"a.md": grace.Size(100)}, n_files=3, held=grace.Size(120), now_s=0.0)
    assert waiting.is_mass_deletion({"a.md": grace.Size(101)}, n_files=3, held=grace.Size(201), now_s=0.0)
    assert not waiting.is_mass_deletion({"a.md": grace.Size(101)}, n_files=3, held=grace.Size(202), now_s=0.0)


def test_most_memories_are_a_mass_deletion_however_many_rows_of_logs_stay() -> None:
    """And so is most of everything; rows alone that are few of all are not."""
    held = grace.Size(200, 5000)
    assert grace.Grace().is_mass_deletion({"a.md": grace.Size(101)}, n_files=3, held=held, now_s=0.0)
    assert not grace.Grace().is_mass_deletion({"a.md": grace.Size(100)}, n_files=3, held=held, now_s=0.0)
    assert not grace.Grace().is_mass_deletion({"a.md": grace.Size(0, 2600)}, n_files=3, held=held, now_s=0.0)
    assert grace.Grace().is_mass_deletion({"a.md": grace.Size(0, 2601)}, n_files=3, held=held, now_s=0.0)


def test_a_slow_mass_deletion_is_seen_as_one() -> None:
    """Files that go one after the other within a minute are counted together."""
    waiting = grace.Grace()
    for n in range(5):
        assert not waiting.is_mass_deletion(
            {f"{n}.md": grace.Size(20)}, n_files=20 - n, held=grace.Size(190 - 20 * n), now_s=float(n)
        )
        waiting.deleted(grace.Size(20), float(n))
    assert waiting.is_mass_deletion({"5.md": grace.Size(20)}, n_files=15, held=grace.Size(90), now_s=5.0)
    assert not waiting.is_mass_deletion({"5.md": grace.Size(20)}, n_files=15, held=grace.Size(90), now_s=90.0)


def test_whoever_waits_is_told_how_long() -> None:
    """The next look comes when the first thing is ripe; nothing waits: no look."""
    waiting = grace.Grace()
    assert waiting.next_due_s(10.0) is None
    waiting.miss_entries("a.md", [("x", 0)], 10.0)
    waiting.miss_file("b.md", 10.4)
    assert (2, True, True) == (len(waiting), waiting.waits("a.md"), waiting.waits("b.md"))
    assert 0.5 == waiting.next_due_s(10.5)
    assert ("a.md",) == waiting.due(11.0)
    waiting.forget("a.md")
    assert (1, False) == (len(waiting), waiting.waits("a.md"))
    assert 0.0 == waiting.next_due_s(20.0)
    waiting.forget("b.md")
    assert (0, (), None) == (len(waiting), waiting.missing_files(), waiting.next_due_s(20.0))


def test_what_stays_withheld_is_looked_at_once_a_second() -> None:
    """A file that is open for writing keeps its entries, and does not keep the daemon busy."""
    waiting = grace.Grace()
    waiting.miss_entries("a.md", [("x", 0)], 10.0)
    waiting.miss_entries("a.md", [("x", 0)], 15.0)
    assert () == waiting.due(15.9)
    assert ("a.md",) == waiting.due(16.0)
    assert not waiting.has_waited("a.md", 69.9, 60.0)
    assert waiting.has_waited("a.md", 70.0, 60.0)
    waiting.miss_entries("a.md", [], 71.0)
    assert not waiting.waits("a.md")


def test_a_minute_later_a_deletion_is_another_one() -> None:
    """The window is open at its end: what was deleted a minute ago is no part of it any more."""
    waiting = grace.Grace()
    waiting.deleted(grace.Size(100), 0.0)
    assert waiting.is_mass_deletion({"a.md": grace.Size(20)}, n_files=9, held=grace.Size(100), now_s=59.9)
    assert not waiting.is_mass_deletion({"a.md": grace.Size(20)}, n_files=9, held=grace.Size(100), now_s=60.0)
