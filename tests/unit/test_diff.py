"""Entries before, entries after → events."""

from __future__ import annotations

from everosd.log import diff, entry, event


def made(id_: str, digest: bytes, nth: int = 0) -> entry.Entry:
    return entry.Entry(kind="episode", id=id_, digest=digest, nth=nth)


def test_an_edit_is_one_event() -> None:
    """Only the entry whose digest differs is a change, wherever the others moved to."""
    before = {("a", 0): b"1", ("b", 0): b"2", ("c", 0): b"3"}
    after = [made("c", b"3"), made("b", b"changed"), made("a", b"1")]
    assert (event.EntryChange(change="modified", entry_id="b", nth=0),) == diff.diff(before, after)


def test_nothing_changed_is_no_event() -> None:
    """Replaying a file that is known changes nothing."""
    assert () == diff.diff({("a", 0): b"1"}, [made("a", b"1")])


def test_added_and_removed_are_told_apart_by_number() -> None:
    """A second entry with an id that is there already is another one."""
    changes = diff.diff({("a", 0): b"1", ("b", 0): b"2"}, [made("a", b"1"), made("a", b"1", nth=1)])
    assert [("removed", "b", 0), ("added", "a", 1)] == [
        (change.change, change.entry_id, change.nth) for change in changes
    ]
