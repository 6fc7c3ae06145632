"""The ledger: one file's state in, numbered changes out."""

from __future__ import annotations

import hashlib
import pathlib
import sqlite3
from collections.abc import Iterator

import msgspec
import pytest

from everosd import types
from everosd.store import db, ledger, standing, state

OWNER = types.Owner(app="default", project="default", type="user", id="mara")


@pytest.fixture
def connection(tmp_path: pathlib.Path) -> Iterator[sqlite3.Connection]:
    """An empty ledger."""
    made = db.connect(tmp_path / "system.db", db.Settings())
    yield made
    made.close()


def entry(
    entry_id: str, text: str = "text", *, nth: int = 0, line: int = 1, status: str = "active"
) -> state.EntryState:
    """One entry."""
    return state.EntryState(
        entry_id=entry_id,
        nth=nth,
        line=line,
        form="marked",
        kind="episode",
        digest=hashlib.blake2b(f"{entry_id}{text}".encode(), digest_size=16).digest(),
        session_id="s",
        timestamp_us=1,
        parent_type="",
        parent_id="",
        sender_ids="[]",
        memory_type="",
        memory_path="",
        own_status=status,
        expires_us=None,
        raw=text,
    )


def file(
    path: str,
    *entries: state.EntryState,
    deprecated: dict[str, str] | None = None,
    date: str = "20260302",
    count: int = 0,
) -> state.FileState:
    """One file."""
    return state.FileState(
        path=types.RelPath(path),
        kind="episode",
        owner=OWNER,
        date=date,
        inode=1,
        size=1,
        mtime_ns=1,
        digest=b"d",
        stamp="",
        entry_count=count,
        entries=entries,
        deprecated=deprecated or {},
    )


def apply(connection: sqlite3.Connection, *files: state.FileState, **options: object) -> dict[str, state.Outcome]:
    """Apply in a transaction."""
    connection.execute("BEGIN")
    outcomes = ledger.apply_files(connection, files, now_us=7, **options)  # type: ignore[arg-type]
    connection.execute("COMMIT")
    return outcomes


def live(connection: sqlite3.Connection) -> dict[str, tuple[str, str, str | None]]:
    """Entry id → (path, status, successor) of what counts."""
    rows = connection.execute("SELECT entry_id, path, status, deprecated_by FROM entries WHERE is_shadowed = 0")
    return {row[0]: (row[1], row[2], row[3]) for row in rows}


def changes(connection: sqlite3.Connection) -> list[str]:
    """All numbered changes, in order."""
    return [row[0] for row in connection.execute("SELECT change FROM events ORDER BY lsn")]


A, B, C = "ep_20260302_00000001", "ep_20260302_00000002", "ep_20260302_00000003"


def test_an_edit_of_one_entry_is_one_event(connection: sqlite3.Connection) -> None:
    """Of many entries only the edited one is numbered again."""
    apply(connection, file("a.md", entry(A), entry(B), entry(C)))
    outcome = apply(connection, file("a.md", entry(A), entry(B, "other"), entry(C)))["a.md"]
    assert (0, 1, 0) == (outcome.added, outcome.modified, outcome.removed)
    assert ["added", "added", "added", "modified"] == changes(connection)


def test_an_entry_that_only_moved_within_its_file_is_no_event(connection: sqlite3.Connection) -> None:
    """A paragraph above it is new: its line and place are brought up to date, and nobody re-embeds it."""
    assert 2 == apply(connection, file("a.md", entry(A, line=3), entry(B, line=9)))["a.md"].added
    before = changes(connection)
    outcome = apply(connection, file("a.md", entry(B, line=5), entry(A, line=11)))["a.md"]
    assert (0, 0, 0) == (outcome.added, outcome.modified, outcome.removed)
    assert before == changes(connection)
    rows = connection.execute("SELECT entry_id, line FROM entries ORDER BY position").fetchall()
    assert [(B, 5), (A, 11)] == rows


def test_applying_twice_changes_nothing(connection: sqlite3.Connection) -> None:
    """The same state again makes no event."""
    apply(connection, file("a.md", entry(A), deprecated={A: B}))
    before = changes(connection)
    apply(connection, file("a.md", entry(A), deprecated={A: B}))
    assert before == changes(connection)


def test_missing_entries_are_withheld_until_they_are_named(connection: sqlite3.Connection) -> None:
    """Absence is not deletion: an entry goes only when it is said to be gone for certain."""
    apply(connection, file("a.md", entry(A), entry(B)))
    held = apply(connection, file("a.md", entry(A)), removable={})["a.md"]
    assert ((B, 0),) == held.withheld
    assert {A, B} == set(live(connection))
    apply(connection, file("a.md", entry(A)), removable={"a.md": {(B, 0)}})
    assert {A} == set(live(connection))


def test_an_entry_that_stands_elsewhere_goes_at_once(connection: sqlite3.Connection) -> None:
    """Moving an entry to another file of the owner leaves no moment without it, and none with two."""
    apply(connection, file("a.md", entry(A), entry(B)))
    apply(connection, file("b.md", entry(B)))
    outcome = apply(connection, file("a.md", entry(A)), removable={})["a.md"]
    assert () == outcome.withheld
    assert "b.md" == live(connection)[B][0]


def test_I05_of_equal_ids_the_file_of_the_date_wins_then_path_order(connection: sqlite3.Connection) -> None:
    """A duplicate id has one winner by rule, and the loser is listed with both paths."""
    apply(connection, file("a.md", entry(A, "one"), date="20250101"), file("z.md", entry(A, "two")))
    assert "z.md" == live(connection)[A][0]
    assert [("a.md", 1, A, "z.md")] == standing.duplicates(connection)
    apply(connection, file("b.md", entry(A, "three")))
    assert "b.md" == live(connection)[A][0]
    ledger.remove_files(connection, ["b.md", "z.md"], now_us=9)
    assert "a.md" == live(connection)[A][0]


def test_M01_a_copied_file_never_takes_the_originals_with_it(connection: sqlite3.Connection) -> None:
    """Deleting the copy leaves the originals; deleting the originals leaves the copy."""
    apply(connection, file("a.md", entry(A), entry(B)), file("a copy.md", entry(A), entry(B), date=""))
    assert {"a.md"} == {path for path, _, _ in live(connection).values()}
    ledger.remove_files(connection, ["a copy.md"], now_us=9)
    assert {A, B} == set(live(connection))
    assert [] == standing.duplicates(connection)
    apply(connection, file("a copy.md", entry(A), entry(B), date=""))
    ledger.remove_files(connection, ["a.md"], now_us=9)
    assert {"a copy.md"} == {path for path, _, _ in live(connection).values()}
    assert [] == standing.duplicates(connection)


def test_deprecated_only_while_a_successor_is_there(connection: sqlite3.Connection) -> None:
    """A dangling pointer leaves the entry live; the successor's coming and going decides."""
    apply(connection, file("a.md", entry(A), deprecated={A: C}))
    assert ("a.md", "active", None) == live(connection)[A]
    assert [("a.md", 1, A, C)] == standing.unresolved(connection)
    apply(connection, file("b.md", entry(C)))
    assert ("a.md", "deprecated", C) == live(connection)[A]
    ledger.remove_files(connection, ["b.md"], now_us=9)
    assert ("a.md", "active", None) == live(connection)[A]


def test_a_chain_of_successors_counts_to_its_end(connection: sqlite3.Connection) -> None:
    """A → B → C: with B gone A is still replaced, with C gone B lives again and A stays replaced by B."""
    apply(connection, file("a.md", entry(A), deprecated={A: B, B: C}), file("b.md", entry(B)), file("c.md", entry(C)))
    assert (B, C) == (live(connection)[A][2], live(connection)[B][2])
    ledger.remove_files(connection, ["c.md"], now_us=9)
    assert ("deprecated", "active") == (live(connection)[A][1], live(connection)[B][1])
    apply(connection, file("c.md", entry(C)))
    ledger.remove_files(connection, ["b.md"], now_us=9)
    assert "deprecated" == live(connection)[A][1]


def test_what_stands_at_the_end_of_a_chain_decides_for_its_beginning(connection: sqlite3.Connection) -> None:
    """A → B → C with B gone: C's coming retires A, its going revives A."""
    apply(connection, file("a.md", entry(A), deprecated={A: B, B: C}))
    assert "active" == live(connection)[A][1]
    apply(connection, file("c.md", entry(C)))
    assert ("deprecated", B) == live(connection)[A][1:]
    ledger.remove_files(connection, ["c.md"], now_us=9)
    assert ("active", None) == live(connection)[A][1:]


def test_a_chain_that_runs_into_a_circle_ends(connection: sqlite3.Connection) -> None:
    """A → B → C → B leads nowhere, and is found out."""
    apply(connection, file("a.md", entry(A), entry(B), entry(C), deprecated={A: B, B: C, C: B}))
    assert {"active"} == {status for _, status, _ in live(connection).values()}


def test_R01_a_narrative_that_is_deleted_revives_what_it_replaced(connection: sqlite3.Connection) -> None:
    """Episodes and facts of two consolidations are hidden only while a narrative of the chain is there, in any file."""
    first, second, third, fact, later = (f"ep_20260302_{n:08}" for n in (1, 42, 50, 101, 142))
    of_first, of_second = fact.replace("ep", "af"), later.replace("ep", "af")
    pointers = {first: second, second: third}
    facts = file("facts.md", entry(of_first), entry(of_second), deprecated={of_first: second, of_second: third})

    def statuses(*there: str) -> list[str]:
        apply(connection, file("e.md", *map(entry, there), deprecated=pointers))
        found = live(connection)
        return [found[each][1] if each in found else "gone" for each in (first, of_first, second, of_second, third)]

    apply(connection, facts)
    assert ["deprecated", "deprecated", "deprecated", "deprecated", "active"] == statuses(first, second, third)
    assert ["deprecated", "deprecated", "active", "active", "gone"] == statuses(first, second)
    assert ["active", "active", "gone", "active", "gone"] == statuses(first)
    assert ["deprecated", "deprecated", "gone", "deprecated", "active"] == statuses(first, third)
    # The rows that lead nowhere are told of while they do.
    assert [] == standing.unresolved(connection)
    statuses(first)
    assert [first, of_first, of_second] == sorted(
        (each[2] for each in standing.unresolved(connection)), key=(first, of_first, of_second).index
    )


def test_a_rollback_half_done_hides_nothing(connection: sqlite3.Connection) -> None:
    """While sources still point to their narrative and it points to the newest of them already, all of them are live."""
    apply(connection, file("a.md", entry(A), entry(B), entry(C), deprecated={A: C, B: C, C: B}))
    assert {"active"} == {status for _, status, _ in live(connection).values()}
    apply(connection, file("a.md", entry(A), entry(B), entry(C), deprecated={A: C, C: B}))
    assert ["deprecated", "active", "deprecated"] == [live(connection)[each][1] for each in (A, B, C)]
    apply(connection, file("a.md", entry(A), entry(B), entry(C), deprecated={C: B}))
    assert ["active", "active", "deprecated"] == [live(connection)[each][1] for each in (A, B, C)]


def test_circular_successors_leave_all_live(connection: sqlite3.Connection) -> None:
    """A loop of pointers is reported and hides nothing."""
    apply(connection, file("a.md", entry(A), entry(B), deprecated={A: B, B: A}))
    assert {"active"} == {status for _, status, _ in live(connection).values()}
    assert 2 == len(standing.unresolved(connection))


def test_M05_removing_a_deprecation_by_hand_revives_and_putting_it_back_retires(connection: sqlite3.Connection) -> None:
    """Lines of deprecated_entries count as they stand."""
    for deprecated, wanted in (({A: B}, "deprecated"), ({}, "active"), ({A: B}, "deprecated")):
        apply(connection, file("a.md", entry(A), entry(B), deprecated=deprecated))
        assert wanted == live(connection)[A][1]


def test_M05_a_slip_in_the_frontmatter_brings_nothing_back(connection: sqlite3.Connection) -> None:
    """While it does not parse, the pointers known before count; mended, those that stand there."""
    good = file("a.md", entry(A), entry(B), deprecated={A: B})
    broken = msgspec.structs.replace(good, deprecated={}, error="the frontmatter does not parse", error_line=3)
    apply(connection, good)
    apply(connection, broken)
    assert ("deprecated", B) == live(connection)[A][1:]
    apply(connection, msgspec.structs.replace(good, deprecated={}))
    assert ("active", None) == live(connection)[A][1:]
    apply(connection, broken)
    assert ("active", None) == live(connection)[A][1:]


def test_lsn_and_keys_only_grow(connection: sqlite3.Connection) -> None:
    """Removed entries give back neither their key nor their LSN."""
    first = apply(connection, file("a.md", entry(A)))["a.md"].lsn
    ledger.remove_files(connection, ["a.md"], now_us=9)
    again = apply(connection, file("a.md", entry(A)))["a.md"].lsn
    assert first < again
    assert [2] == [row[0] for row in connection.execute("SELECT key FROM entries")]


def test_ids_are_remembered_after_their_entries_are_gone(connection: sqlite3.Connection) -> None:
    """The highest number of a date counts entries, the frontmatter's entry_count, and what was removed."""
    apply(connection, file("a.md", entry(A), entry(C), count=9))
    apply(connection, file("a.md", entry(A)))
    assert [9] == [row[0] for row in connection.execute("SELECT high FROM sequences")]


def test_a_rebuild_rewrites_columns_without_an_event(connection: sqlite3.Connection) -> None:
    """Rows that somebody changed in SQLite are put right, and indexes need not hear of it."""
    apply(connection, file("a.md", entry(A)))
    connection.execute("UPDATE entries SET session_id = 'forged'")
    apply(connection, file("a.md", entry(A)), force=True)
    assert ["s"] == [row[0] for row in connection.execute("SELECT session_id FROM entries")]
    assert ["added"] == changes(connection)


def test_owners_do_not_share_ids(connection: sqlite3.Connection) -> None:
    """The same entry id of two owners is two entries, and a successor is looked for at home only."""
    theirs = types.Owner(app="default", project="default", type="user", id="ben")
    apply(
        connection,
        file("a.md", entry(A), deprecated={A: B}),
        msgspec.structs.replace(file("b.md", entry(A), entry(B)), owner=theirs),
    )
    assert 3 == connection.execute("SELECT count(*) FROM entries WHERE is_shadowed = 0").fetchone()[0]
    assert "active" == connection.execute("SELECT status FROM entries WHERE path = 'a.md'").fetchone()[0]


def test_I05_a_duplicate_that_is_mended_or_moves_is_told_anew(connection: sqlite3.Connection) -> None:
    """The copy that does not count changes its line, then goes: both times what is reported has to be read again."""
    name = "ep_20260302_00000001"
    twice = [entry(name), entry(name, "copy", nth=1, line=9)]
    assert apply(connection, file("a.md", *twice))["a.md"].is_standing_changed
    moved = [twice[0], entry(name, "copy", nth=1, line=12)]
    assert apply(connection, file("a.md", *moved))["a.md"].is_standing_changed
    assert [("a.md", 12, name, "a.md")] == standing.duplicates(connection)
    assert apply(connection, file("a.md", twice[0]), removable=None)["a.md"].is_standing_changed
    assert [] == standing.duplicates(connection)
    assert not apply(connection, file("a.md", twice[0]))["a.md"].is_standing_changed


def test_appended_entries_are_added_to_what_is_known(connection: sqlite3.Connection) -> None:
    """Behind those that are there, numbered once; the file is known in its new state, and its numbers are given."""
    ledger.apply_files(connection, [file("a.md", entry("ep_20260302_00000001"))], now_us=1)
    known = file("a.md", entry("ep_20260302_00000001"))
    new = msgspec.structs.replace(file("a.md", entry("ep_20260302_00000007", line=9)), digest=b"new", size=77)
    outcome = ledger.append_rows(connection, new, base=known.digest, n_before=1, now_us=2, read_at_us=3)
    assert outcome is not None
    assert (1, 0, 1) == (outcome.added, outcome.modified, outcome.entries_delta)
    rows = connection.execute("SELECT entry_id, position, line, lsn FROM entries ORDER BY position").fetchall()
    assert [("ep_20260302_00000001", 0, 1, 1), ("ep_20260302_00000007", 1, 9, outcome.lsn)] == rows
    assert (b"new", 77, 2, 3) == connection.execute("SELECT digest, size, n_entries, read_at_us FROM files").fetchone()
    assert (7,) == connection.execute("SELECT high FROM sequences").fetchone()


def test_nothing_is_added_to_another_state_of_a_file_nor_an_id_twice(connection: sqlite3.Connection) -> None:
    """Neither to bytes that the ledger does not hold, nor to a file that is to be read anew, nor an id that is there."""
    known = file("a.md", entry("ep_20260302_00000001"))
    ledger.apply_files(connection, [known], now_us=1)
    new = file("a.md", entry("ep_20260302_00000002"))

    def add(found: state.FileState, base: bytes) -> state.Outcome | None:
        return ledger.append_rows(connection, found, base=base, n_before=1, now_us=2, read_at_us=2)

    assert add(new, b"another state") is None
    assert add(file("a.md", entry("ep_20260302_00000001", "other")), known.digest) is None
    connection.execute("UPDATE files SET is_stale = 1")
    assert add(new, known.digest) is None
    assert (1,) == connection.execute("SELECT count(*) FROM entries").fetchone()
