"""The plan: what a comparison with the disk says has to be read."""

from __future__ import annotations

import msgspec

from everosd import types
from everosd.cascade import plan
from everosd.watch import scan

PATH = types.RelPath("app/project/users/mara/episodes/episode-2026-03-02.md")
SEEN = scan.DiskFile(path=PATH, inode=1, size=2, mtime_ns=1_000)
KNOWN = plan.Known(
    inode=1, size=2, mtime_ns=1_000, read_at_ns=1_000 + plan.PROOF_NS + 1, is_stale=False, digest=b"", n_entries=1
)


def planned(known: plan.Known | None, *files: scan.DiskFile, unreadable: tuple[tuple[str, str], ...] = ()) -> plan.Plan:
    """The plan for one known file and what a scan saw."""
    seen = scan.Scan(files={file.path: file for file in files}, unreadable=unreadable)
    return plan.plan({} if known is None else {PATH: known}, seen)


def test_a_proven_file_is_not_read_again() -> None:
    """Same inode, size and mtime, read long after the change: nothing to do."""
    assert plan.Plan(stale=(), vanished=()) == planned(KNOWN, SEEN)


def test_new_changed_and_stale_files_are_read() -> None:
    """Every difference of the stat counts, and so does a stale mark."""
    assert (PATH,) == planned(None, SEEN).stale
    for change in ({"inode": 9}, {"size": 9}, {"mtime_ns": 9}, {"is_stale": True}):
        assert (PATH,) == planned(msgspec.structs.replace(KNOWN, **change), SEEN).stale


def test_a_file_read_in_the_tick_of_its_change_is_read_again() -> None:
    """A second save in the same clock tick leaves the stat as it was: it proves nothing yet."""
    assert (PATH,) == planned(msgspec.structs.replace(KNOWN, read_at_ns=1_500), SEEN).stale


def test_W18_below_an_unreadable_folder_nothing_vanishes() -> None:
    """A folder that cannot be listed hides files, it does not delete them."""
    assert (PATH,) == planned(KNOWN).vanished
    for folder in ("", "app", "app/project/users/mara"):
        assert () == planned(KNOWN, unreadable=((folder, "permission denied"),)).vanished
    assert (PATH,) == planned(KNOWN, unreadable=(("app/project/users/ma", "permission denied"),)).vanished


def test_whole_seconds_prove_less() -> None:
    """A file system that stamps whole seconds may have taken a second save in the same one."""
    fine = msgspec.structs.replace(KNOWN, mtime_ns=5_000_000_001, read_at_ns=5_100_000_000)
    coarse = msgspec.structs.replace(KNOWN, mtime_ns=5_000_000_000, read_at_ns=5_100_000_000)
    seen = [msgspec.structs.replace(SEEN, mtime_ns=known.mtime_ns) for known in (fine, coarse)]
    assert ((), (PATH,)) == (planned(fine, seen[0]).stale, planned(coarse, seen[1]).stale)
