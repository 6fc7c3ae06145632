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
    assert grace.Grace().is_mass_deletion({"a.md": 1}, n_files=1, n_entries=1, now_s=0.0)


def test_more_than_half_and_more_than_a_hundred_entries_have_to_be_confirmed() -> None:
    """Both bounds have to be passed: a small root may lose most of its entries, a large one many."""
    waiting = grace.Grace()
    assert not waiting.is_mass_deletion({"a.md": 100}, n_files=3, n_entries=120, now_s=0.0)
    assert waiting.is_mass_deletion({"a.md": 101}, n_files=3, n_entries=201, now_s=0.0)
    assert not waiting.is_mass_deletion({"a.md": 101}, n_files=3, n_entries=202, now_s=0.0)


def test_a_slow_mass_deletion_is_seen_as_one() -> None:
    """Files that go one after the other within a minute are counted together."""
    waiting = grace.Grace()
    for n in range(5):
        assert not waiting.is_mass_deletion({f"{n}.md": 20}, n_files=20 - n, n_entries=190 - 20 * n, now_s=float(n))
        waiting.deleted(20, float(n))
    assert waiting.is_mass_deletion({"5.md": 20}, n_files=15, n_entries=90, now_s=5.0)
    assert not waiting.is_mass_deletion({"5.md": 20}, n_files=15, n_entries=90, now_s=90.0)
