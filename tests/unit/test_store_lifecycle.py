"""Rows of `.lifecycle/` and what they come to: the same whatever way the ledger has come to hold them."""

from __future__ import annotations

import pathlib
import sqlite3
from collections.abc import Iterator

import hypothesis
import msgspec
import pytest
from hypothesis import strategies as st

from everosd import types
from everosd.log import entry_text
from everosd.store import db, ledger, lifecycle, lifecycle_log, state
from tests import effort, ledger_files
from tests.ledger_files import JUN, MARA, apply, ask, file, ledger_in_memory, remove, tables

DAY_US = 86_400_000_000
STATUSES = ("active", "expired", "superseded", "archived", "deleted", "deprecated")


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    """Where the ledger is."""
    return tmp_path / "system.db"


@pytest.fixture
def connection(path: pathlib.Path) -> Iterator[sqlite3.Connection]:
    """An empty ledger."""
    made = db.connect(path, db.Settings())
    yield made
    made.close()


def mem(number: int) -> str:
    """Return the id of a typed memory."""
    return f"mem_20260302_{number:08}"


def memory(number: int, text: str = "The tide turns at noon.", *, status: str = "", **fields: str) -> state.EntryState:
    """One typed memory, a second after the one before, as reading its file makes it."""
    lines = "".join(f"**{name}**: {value}\n" for name, value in fields.items())
    said = f"**status**: {status}\n" if status else ""
    made = ledger_files.entry(
        mem(number), "memory", f"## {mem(number)}\n\n{said}{lines}\n### Content\n{text}\n", number * 1_000_000
    )
    return msgspec.structs.replace(
        made, memory_type="semantic", memory_path="projects/tide", own_status=status or "active"
    )


def memories(*entries: state.EntryState, path: str = "memories.md", owner: types.Owner = MARA) -> state.FileState:
    """A file of typed memories."""
    return file(path, *entries, owner=owner, kind="memory")


def row(number: int, action: str, target: str = "", at_us: int | None = None, **fields: str) -> state.EntryState:
    """One row of `.lifecycle/`; without `at_us`: a day after the one before."""
    given = {"action": action, **({"target": target} if target else {}), **fields}
    raw = "\n" + "".join(f"**{name}**: {value}\n" for name, value in given.items())
    return ledger_files.entry(f"lc_20260302_{number:08}", "lifecycle", raw, number * DAY_US if at_us is None else at_us)


def changed(number: int, action: str, target: int, base: str = "active", **fields: str) -> state.EntryState:
    """A row that changes a status."""
    value = lifecycle_log.STATUS_OF[action]
    given = {"field": "status", "base": base, "value": value, "reason": f"why {number}"}
    return row(number, action, mem(target), None, **given, **fields)


def decayed(
    number: int, target: int, value: str, base: str = "", since: str = "1970-01-01T00:00:05+00:00"
) -> state.EntryState:
    """A row that lowers an importance."""
    return row(
        number,
        "decay",
        mem(target),
        run_id="r1",
        field="importance",
        base=base,
        was="0.5",
        value=value,
        since=since,
        steps="2",
    )


def log(*rows: state.EntryState, path: str = "lifecycle.md", owner: types.Owner = MARA) -> state.FileState:
    """A log of the lifecycle."""
    return file(path, *rows, owner=owner, kind="lifecycle")


def one(path: pathlib.Path, number: int = 1) -> lifecycle.Record:
    """Return a memory that is there."""
    found = ask(path, lambda reader: lifecycle.find(reader, MARA, mem(number)))
    assert found is not None
    return found


def statuses(connection: sqlite3.Connection) -> dict[str, str]:
    """Return the status of every memory, as search and get see it."""
    found = connection.execute("SELECT entry_id, status FROM entries WHERE kind = 'memory' AND is_shadowed = 0")
    return {entry_id.rpartition("_")[2].lstrip("0"): status for entry_id, status in found}


def events(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    """Return (id, change) of every event about memories, in order."""
    return connection.execute(
        "SELECT e.entry_id, v.change FROM events v JOIN entries e ON e.key = v.key WHERE e.kind = 'memory' ORDER BY v.lsn"
    ).fetchall()


def all_tables(connection: sqlite3.Connection) -> dict[str, list[tuple[object, ...]]]:
    """Return everything that `verify` compares, standings of entries among it."""
    entries = "SELECT owner_id, entry_id, path, nth, is_shadowed, own_status, status, coalesce(deprecated_by, '') FROM entries"
    return tables(connection) | {"entries": sorted(connection.execute(entries))}


# -- status ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("action", "status"), lifecycle_log.STATUS_OF.items())
def test_a_row_gives_an_entry_its_status_and_says_why(
    connection: sqlite3.Connection, path: pathlib.Path, action: str, status: str
) -> None:
    """Whichever of memory and row is read first; the record has reason, moment and successor."""
    fields = {"successor": mem(2)} if action == "supersede" else {}
    apply(connection, log(changed(3, action, 1, **fields)), memories(memory(1), memory(2)))
    found = one(path)
    assert (status, "active", "why 3") == (found.status, found.own_status, found.reason)
    assert (3 * DAY_US, fields.get("successor", "")) == (found.status_since_us, found.successor)
    assert "active" == statuses(connection)["2"]


def test_the_indexes_are_told_of_a_status_that_a_row_changes(connection: sqlite3.Connection) -> None:
    """Each change of a status is an event of the entry; a row that changes nothing is none."""
    apply(connection, memories(memory(1)))
    apply(connection, log(changed(1, "archive", 1)))
    apply(connection, log(changed(1, "archive", 1), changed(2, "archive", 1)))
    apply(connection, log(changed(1, "archive", 1), changed(2, "archive", 1), changed(3, "restore", 1)))
    assert [(mem(1), "added"), (mem(1), "status"), (mem(1), "status")] == events(connection)


def test_the_last_row_decides_in_the_order_in_which_rows_were_written(connection: sqlite3.Connection) -> None:
    """Files may be read in any order, and clocks may have been wrong: the row's number counts."""
    rows = [changed(9, "archive", 1), changed(10, "restore", 1)]
    backwards = [msgspec.structs.replace(each, timestamp_us=100 - n) for n, each in enumerate(rows)]
    apply(connection, memories(memory(1)), log(backwards[1], path="b.md"), log(backwards[0], path="a.md"))
    assert {"1": "active"} == statuses(connection)


def test_Y04_what_was_archived_or_deleted_or_expired_is_back_once_it_is_restored(
    connection: sqlite3.Connection,
) -> None:
    """A restore row undoes any row before it, and a status that the entry itself says."""
    for number, action in enumerate(("archive", "delete", "expire"), 1):
        apply(connection, memories(memory(number), path=f"m{number}.md"))
        before = log(changed(number * 2, action, number), path=f"l{number}.md")
        apply(connection, before)
        assert "active" != statuses(connection)[str(number)]
        apply(
            connection,
            msgspec.structs.replace(before, entries=(*before.entries, changed(number * 2 + 1, "restore", number))),
        )
        assert "active" == statuses(connection)[str(number)]
    apply(
        connection,
        memories(memory(7, status="archived"), path="m7.md"),
        log(changed(9, "restore", 7, "archived"), path="l7.md"),
    )
    assert "active" == statuses(connection)["7"]


def test_a_row_is_void_once_a_person_has_written_another_status(
    connection: sqlite3.Connection, path: pathlib.Path
) -> None:
    """What stands in the entry holds, whatever rows before it say; a row made on the new status counts again."""
    apply(connection, memories(memory(1)), log(changed(1, "expire", 1), changed(2, "archive", 1)))
    assert {"1": "archived"} == statuses(connection)
    apply(connection, memories(memory(1, status="superseded")))
    assert {"1": "superseded"} == statuses(connection)
    assert (None, "") == (one(path).status_since_us, one(path).reason)
    apply(connection, log(changed(1, "expire", 1), changed(2, "archive", 1), changed(3, "delete", 1, "superseded")))
    assert {"1": "deleted"} == statuses(connection)


def test_an_older_row_does_not_count_again_where_a_newer_one_is_void(connection: sqlite3.Connection) -> None:
    """Archived, revived by hand with another status, and that taken back: the person had the last word."""
    rows = log(changed(1, "archive", 1), changed(2, "expire", 1, "superseded"))
    apply(connection, memories(memory(1)), rows)
    assert {"1": "active"} == statuses(connection)


def test_what_was_superseded_is_live_while_its_successor_is_not_there(
    connection: sqlite3.Connection, path: pathlib.Path
) -> None:
    """The successor goes and comes with its file; without it the row before the supersede row counts."""
    apply(connection, memories(memory(1)), log(changed(1, "supersede", 1, successor=mem(2))))
    assert {"1": "active"} == statuses(connection)
    apply(connection, memories(memory(2), path="other.md"))
    assert {"1": "superseded", "2": "active"} == statuses(connection)
    remove(connection, "mara/other.md")
    assert {"1": "active"} == statuses(connection)
    apply(connection, log(changed(0, "expire", 1), changed(1, "supersede", 1, successor=mem(2))))
    assert {"1": "expired"} == statuses(connection)
    assert "why 0" == one(path).reason


def test_what_was_superseded_stays_so_where_its_successor_was_superseded_or_deleted(
    connection: sqlite3.Connection,
) -> None:
    """A chain of successors counts while it leads to an entry that is there, whatever has become of that one."""
    rows = [changed(1, "supersede", 1, successor=mem(2)), changed(2, "supersede", 2, successor=mem(3))]
    apply(connection, memories(memory(1), memory(2), memory(3)), log(*rows, changed(3, "delete", 3)))
    assert {"1": "superseded", "2": "superseded", "3": "deleted"} == statuses(connection)
    apply(connection, memories(memory(1), memory(3)))
    assert {"1": "superseded", "3": "deleted"} == statuses(connection)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_a_ring_of_successors_hides_nothing(connection: sqlite3.Connection, n: int) -> None:
    """Entries that supersede each other are all live; once one of them is revived by hand, the chain counts."""
    rows = [changed(at, "supersede", at, successor=mem(at % n + 1)) for at in range(1, n + 1)]
    entries = [memory(at) for at in range(1, n + 1)]
    apply(connection, memories(*entries), log(*rows))
    assert {str(at): "active" for at in range(1, n + 1)} == statuses(connection)
    if n > 1:
        apply(connection, memories(memory(1, status="archived"), *entries[1:]))
        expected = {"1": "archived"} | {str(at): "superseded" for at in range(2, n + 1)}
        assert expected == statuses(connection)


def test_a_row_reaches_no_other_owner(connection: sqlite3.Connection) -> None:
    """Ids are an owner's own: a row about the same id of somebody else changes nothing."""
    apply(connection, memories(memory(1)), log(changed(1, "delete", 1), owner=JUN), memories(memory(1), owner=JUN))
    found = connection.execute(
        "SELECT owner_id, status FROM entries WHERE kind = 'memory' ORDER BY owner_id"
    ).fetchall()
    assert [("jun", "deleted"), ("mara", "active")] == found


def test_rows_that_a_second_copy_of_a_log_repeats_count_once(
    connection: sqlite3.Connection, path: pathlib.Path
) -> None:
    """A copied log shadows nothing that was not said; once the first is gone, the copy holds."""
    rows = [row(1, "usage", targets=f"[{mem(1)}@5000]"), changed(2, "archive", 1)]
    apply(connection, memories(memory(1)), log(*rows), log(*rows, path="lifecycle copy.md"))
    assert (1, "archived") == (one(path).n_uses, one(path).status)
    remove(connection, "mara/lifecycle.md")
    assert (1, "archived") == (one(path).n_uses, one(path).status)
    remove(connection, "mara/lifecycle copy.md")
    assert (0, "active") == (one(path).n_uses, one(path).status)


# -- facts of an Episode -----------------------------------------------------------------------------------------------


def fact(number: int, parent: str, owner: types.Owner = MARA) -> state.FileState:
    """A file with one fact of an Episode."""
    made = ledger_files.entry(f"af_20260302_{number:08}", "atomic_fact", f"### Fact\nfact {number}", number)
    said = msgspec.structs.replace(made, parent_type="episode", parent_id=parent)
    return file(f"fact{number}.md", said, owner=owner, kind="atomic_fact")


def of_facts(connection: sqlite3.Connection) -> list[str]:
    """Return the statuses of all facts, in the order of their ids."""
    found = connection.execute("SELECT status FROM entries WHERE kind = 'atomic_fact' ORDER BY entry_id")
    return [status for (status,) in found]


@pytest.mark.parametrize("by_hand", [False, True])
def test_the_facts_of_an_archived_episode_go_and_come_back_with_it(
    connection: sqlite3.Connection, *, by_hand: bool
) -> None:
    """Whether a row or the Episode itself says so, in whatever order the files are read, under either form of its id."""
    episode = ledger_files.episode(1)
    archived = msgspec.structs.replace(episode, own_status="archived", digest=b"archived")
    apply(connection, fact(1, episode.entry_id), ledger_files.file("e.md", episode, kind="episode"))
    gone = row(1, "archive", episode.entry_id, base="active", value="archived")
    if by_hand:
        apply(connection, ledger_files.file("e.md", archived, kind="episode"))
    else:
        apply(connection, log(gone))
    apply(
        connection, fact(2, f"mara_{episode.entry_id}"), fact(3, "ep_20260302_00000009"), fact(4, episode.entry_id, JUN)
    )
    assert ["archived", "archived", "active", "active"] == of_facts(connection)
    if by_hand:
        apply(connection, ledger_files.file("e.md", episode, kind="episode"))
    else:
        apply(connection, log(gone, row(2, "restore", episode.entry_id, base="active", value="active")))
    assert ["active"] * 4 == of_facts(connection)


def test_facts_are_as_they_say_once_no_file_has_their_archived_episode(connection: sqlite3.Connection) -> None:
    """The file of an archived Episode is deleted: its facts are those of an Episode that is gone, as with any other."""
    episode = msgspec.structs.replace(ledger_files.episode(1), own_status="archived")
    apply(connection, fact(1, episode.entry_id), ledger_files.file("e.md", episode, kind="episode"))
    assert ["archived"] == of_facts(connection)
    remove(connection, "mara/e.md")
    assert ["active"] == of_facts(connection)


def test_a_row_about_a_fact_changes_nothing(connection: sqlite3.Connection) -> None:
    """Only memories and Episodes have a lifecycle: no list would show a fact that is hidden alone."""
    apply(connection, fact(1, "ep_20260302_00000001"), log(row(1, "archive", "af_20260302_00000001", base="active")))
    assert ["active"] == of_facts(connection)


# -- importance and activity -------------------------------------------------------------------------------------------


def test_a_decay_lowers_what_is_in_force_until_a_person_writes_another_importance(
    connection: sqlite3.Connection, path: pathlib.Path
) -> None:
    """The last decay counts, with its steps; a hand edit is the new baseline, takes the steps away, and comes after the decay."""
    apply(
        connection,
        memories(memory(1), memory(2, importance="0.9")),
        log(decayed(1, 1, "0.4"), decayed(2, 1, "0.3"), decayed(3, 2, "0.7", "0.9")),
    )
    assert (0.3, "", 5_000_000, 2) == (
        one(path).importance,
        one(path).own_importance,
        one(path).since_us,
        one(path).steps,
    )
    assert 0.7 == one(path, 2).importance
    apply(connection, memories(memory(1, importance="0.5"), memory(2, importance="0.90")))
    assert (0.5, 2 * DAY_US, 0) == (one(path).importance, one(path).since_us, one(path).steps)
    assert (0.9, "0.90") == (one(path, 2).importance, one(path, 2).own_importance)


def given(number: int, action: str, was: str, value: str) -> state.EntryState:
    """A row that gives the first memory an importance."""
    fields = {"version": str(number)} if action == "update" else {}
    return row(number, action, mem(1), None, field="importance", was=was, value=value, **fields)


@pytest.mark.parametrize("action", ["edited", "update"])
def test_decay_begins_anew_where_an_importance_was_given(
    connection: sqlite3.Connection, path: pathlib.Path, action: str
) -> None:
    """Without a decay before it, after one, and where it is what it was once: what was taken before is void."""
    for rows, since_day in (
        ((given(4, action, "", "0.9"),), 4),
        ((decayed(1, 1, "0.4"), given(4, action, "", "0.9")), 4),
        ((decayed(1, 1, "0.8", "0.9"), given(4, action, "0.9", ""), given(5, action, "", "0.9")), 5),
        ((decayed(1, 1, "0.8", "0.9"), row(4, action, mem(1), 4 * DAY_US)), None),
    ):
        apply(connection, memories(memory(1, importance="0.9")), log(*rows))
        found = one(path)
        if since_day is None:  # of the text alone
            assert (0.8, 5_000_000, 2) == (found.importance, found.since_us, found.steps)
        else:
            assert (0.9, since_day * DAY_US, 0, ()) == (found.importance, found.since_us, found.steps, found.moments)
    sunk = decayed(6, 1, "0.8", "0.9", since="1970-01-05T00:00:00+00:00")
    apply(connection, log(given(4, action, "", "0.9"), sunk))
    assert (0.8, 4 * DAY_US, 2) == (one(path).importance, one(path).since_us, one(path).steps)


def test_an_importance_that_was_announced_and_never_written_changes_nothing(
    connection: sqlite3.Connection, path: pathlib.Path
) -> None:
    """The row of an update is on disk first; where a crash came before the entry, the decay stays in force."""
    rows = (decayed(1, 1, "0.4", "0.5"), given(4, "update", "0.5", "0.9"))
    apply(connection, memories(memory(1, importance="0.5")), log(*rows))
    assert (0.4, 5_000_000, 2) == (one(path).importance, one(path).since_us, one(path).steps)


def test_moments_are_all_activity_since_the_last_decay(connection: sqlite3.Connection, path: pathlib.Path) -> None:
    """Uses, restores, pins, updates and hand edits; those before the moment that steps are counted from are past."""
    entries = [
        row(1, "usage", targets=f"[{mem(1)}@4000, {mem(1)}@6000, {mem(2)}@1000]"),
        row(2, "usage", targets=f"[{mem(1)}@9000, {mem(1)}@4500]"),
        row(3, "update", mem(1), 7_000_000, version="1", digest="0" * 32),
        row(4, "edited", mem(1), 3_000_000),
        row(5, "pin", mem(1), 8_000_000, version="2"),
        row(6, "restore", mem(1), 10_000_000, base="active", value="active"),
    ]
    apply(connection, memories(memory(1), memory(2)), log(*entries))
    found = one(path)
    assert (3_000_000, 6_000_000, 7_000_000, 8_000_000, 9_000_000, 10_000_000) == found.moments
    assert (10_000_000, 9_000_000, 2, 2) == (found.anchor_us, found.accessed_us, found.n_uses, found.n_versions)
    assert (1_000_000,) == one(path, 2).moments
    apply(connection, log(*entries, decayed(7, 1, "0.4", since="1970-01-01T00:00:07+00:00")))
    assert (8_000_000, 9_000_000, 10_000_000) == one(path).moments
    assert 9_000_000 == one(path).accessed_us


def test_a_memory_is_redacted_once_a_row_says_so(connection: sqlite3.Connection, path: pathlib.Path) -> None:
    """And its tombstone keeps its id from being given to another."""
    apply(connection, memories(memory(1)), log(row(1, "redact", mem(1)), row(2, "hard_delete", mem(41))))
    assert one(path).is_redacted
    high = connection.execute("SELECT high FROM sequences WHERE prefix = 'mem' AND date = '20260302'").fetchone()
    assert (41,) == high


HOSTILE = [
    row(1, "decay", mem(1), base="", value="nan", since="1970-01-01T00:00:05+00:00", steps="1"),
    row(2, "decay", mem(1), base="", value="-1", since="1970-01-01T00:00:05+00:00", steps="1"),
    row(3, "decay", mem(1), base="", value="1e999", since="1970-01-01T00:00:05+00:00", steps="1"),
    row(4, "decay", mem(1), base="", value="0.1", since="yesterday", steps="1"),
    row(5, "decay", mem(1), base="", value="0.1", since="9999-99-99", steps="1"),
    row(6, "decay", mem(1), base="", value="0.1", since="1970-01-01T00:00:05+00:00", steps="-1"),
    row(7, "decay", mem(1), base="", value="0.1", since="1970-01-01T00:00:05+00:00", steps="9" * 400),
    row(8, "decay", mem(1), base="", value="0.1", since="1970-01-01T00:00:05+00:00", steps="²"),
    row(9, "archive", mem(1), base="active", value="active"),
    row(10, "archive", mem(1), base="active", value="nonsense"),
    row(11, "archive", mem(1), base="nonsense", value="archived"),
    row(12, "supersede", mem(1), base="active", value="superseded"),
    row(13, "supersede", mem(1), base="active", value="superseded", successor=mem(1)),
    row(14, "obliterate", mem(1), base="active", value="deleted"),
    row(15, "archive", base="active", value="archived"),
    row(16, "update", mem(1), version="9" * 30),
    row(17, "usage", targets=f"[{mem(1)}@99999999999999999999, {mem(1)}@-1, {mem(1)}@, @5, {mem(1)}, ]"),
    row(18, "usage", targets="[" * 3000),
    row(19, "usage", mem(1), targets=f"[{mem(1)}@1e3]"),
    row(20, ""),
    row(21, "archive", mem(1) + "\N{ZERO WIDTH SPACE}", base="active", value="archived"),
    ledger_files.entry("lc_20260302_00000022", "lifecycle", "no fields at all \N{SNOWMAN} **action**: archive"),
    ledger_files.entry("lc_20260302_00000023", "lifecycle", ""),
]


def test_a_row_that_cannot_be_says_nothing(connection: sqlite3.Connection, path: pathlib.Path) -> None:
    """Numbers that are none, unknown actions and statuses, moments that no calendar has, a successor that is the entry itself."""
    apply(connection, memories(memory(1)), log(*(each for each in HOSTILE if each.entry_id != "lc_20260302_00000011")))
    found = one(path)
    assert (0.5, "active", None, (), 0, 0) == (
        found.importance,
        found.status,
        found.since_us,
        tuple(us for us in found.moments if us != 16 * DAY_US),
        found.n_uses,
        found.n_versions,
    )


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda each: each.entry_id[-2:])
def test_no_row_by_hand_hides_what_another_row_decides(
    connection: sqlite3.Connection, hostile: state.EntryState
) -> None:
    """The rows of the daemon count beside one that cannot be."""
    apply(connection, memories(memory(1)), log(hostile, changed(90, "expire", 1)))
    assert {"1": "expired"} == statuses(connection)


@hypothesis.given(
    text=st.text(max_size=200), action=st.sampled_from([*lifecycle_log.STATUS_OF, "usage", "decay", "update", "audit"])
)
def test_reading_a_row_never_raises(text: str, action: str) -> None:
    """Whatever a person makes of a row."""
    fields = "".join(
        f"**{name}**: {text}\n" for name in ("target", "targets", "base", "value", "since", "steps", "version")
    )
    for raw in (text, f"**action**: {action}\n{fields}", f"\n**action**: {action}\n{text}"):
        lifecycle_log.read("lc_20260302_00000001", raw, 1)


# -- the same in any order ---------------------------------------------------------------------------------------------

_ACTIONS = [*lifecycle_log.STATUS_OF, "decay", "usage", "update", "edited", "redact"]
_BASES = ["active", "archived", "expired"]


def _drawn(draw: st.DrawFn, number: int) -> state.EntryState:
    action = draw(st.sampled_from(_ACTIONS))
    target, other = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    match action:
        case "decay":
            return decayed(
                number, target, draw(st.sampled_from(["0.1", "0.3", "x"])), draw(st.sampled_from(["", "0.9"]))
            )
        case "usage":
            return row(number, action, targets=f"[{mem(target)}@{number}000, {mem(other)}@{other}000]")
        case "update" | "edited" | "redact":
            return row(number, action, mem(target), version=str(number))
        case _:
            return changed(number, action, target, draw(st.sampled_from(_BASES)), successor=mem(other))


@st.composite
def _states(draw: st.DrawFn) -> list[state.FileState]:
    """States of files, one after the other: memories, an Episode's file that has an id of a memory, logs, copies of logs."""
    found = []
    for _ in range(draw(st.integers(1, 8))):
        name = draw(st.sampled_from(["m1.md", "m2.md", "l1.md", "l2.md", "other.md"]))
        if name.startswith("l"):
            numbers = draw(st.lists(st.integers(1, 6), unique=True, max_size=4))
            found.append(log(*(_drawn(draw, number) for number in numbers), path=name))
            continue
        numbers = draw(st.lists(st.integers(1, 4), unique=True, max_size=3))
        status = st.sampled_from(["", "archived", "deleted"])
        importance = st.sampled_from([{}, {"importance": "0.9"}])
        entries = [memory(number, status=draw(status), **draw(importance)) for number in numbers]
        if name == "other.md":
            entries = [msgspec.structs.replace(each, kind="episode") for each in entries]
        pointed = {mem(draw(st.integers(1, 4))): mem(draw(st.integers(1, 4)))} if draw(st.booleans()) else {}
        made = file(name, *entries, kind="episode" if name == "other.md" else "memory")
        found.append(msgspec.structs.replace(made, deprecated=pointed))
    return found


@hypothesis.given(
    states=_states(), seed=st.randoms(use_true_random=False), gone=st.sampled_from(["", "m1.md", "l1.md", "other.md"])
)
@hypothesis.settings(max_examples=effort.rounds(2000, 100), deadline=None)
def test_the_tables_are_the_same_whatever_way_the_ledger_has_come_to_hold_its_entries(
    states: list[state.FileState], seed: object, gone: str
) -> None:
    """Saved again and again, deleted, read anew in another order, or with everything written afresh: live equals rebuild."""
    live = ledger_in_memory()
    for each in states:
        apply(live, each)
    last = {each.path: each for each in states}
    if gone:
        remove(live, f"mara/{gone}")
        last.pop(types.RelPath(f"mara/{gone}"), None)
    files = list(last.values())
    shuffle = getattr(seed, "shuffle")  # noqa: B009  # hypothesis' own Random has no type of its own
    shuffle(files)
    fresh = ledger_in_memory()
    for each in files:
        apply(fresh, each)
    assert all_tables(fresh) == all_tables(live)
    apply(live, *files, force=True)
    assert all_tables(fresh) == all_tables(live)


def test_rows_that_are_appended_count_as_if_the_log_had_been_read_whole(connection: sqlite3.Connection) -> None:
    """A log that grows is read on from where it ended."""
    first = log(changed(1, "expire", 1))
    apply(connection, memories(memory(1)), first)
    added = (changed(2, "restore", 1), changed(3, "archive", 1))
    new = msgspec.structs.replace(first, digest=b"grown", entries=added)
    connection.execute("BEGIN")
    assert ledger.append_rows(connection, new, base=first.digest, n_before=1, now_us=8, read_at_us=8) is not None
    connection.execute("COMMIT")
    assert {"1": "archived"} == statuses(connection)
    fresh = ledger_in_memory()
    apply(fresh, memories(memory(1)), msgspec.structs.replace(new, entries=(*first.entries, *added)))
    assert all_tables(fresh) == all_tables(connection)


# -- reading -----------------------------------------------------------------------------------------------------------


def test_a_record_has_what_the_entry_says_and_defaults_for_the_rest(
    connection: sqlite3.Connection, path: pathlib.Path
) -> None:
    """Nothing but text: importance 0.5, confidence 0.7, public, of the moment at which it was written."""
    full = {
        "importance": "0.8", "confidence": "0.95", "updated_at": "1970-01-01T00:01:00+00:00", "pinned": "true", "bucket": "team",
        "scope": "eu", "team_id": "t1", "semantic_key": "tide", "promotion_key": "tides",
    }  # fmt: skip
    apply(connection, memories(memory(1), memory(2, **full)))
    bare, told = one(path), one(path, 2)
    assert (0.5, "", 0.7, "public", "", "", "", 1_000_000) == (
        bare.importance, bare.own_importance, bare.confidence, bare.bucket, bare.scope, bare.semantic_key, bare.promotion_key,
        bare.updated_us,
    )  # fmt: skip
    assert (0.8, "0.8", 0.95, "team", "eu", "t1", "tide", "tides", 60_000_000, True) == (
        told.importance, told.own_importance, told.confidence, told.bucket, told.scope, told.team_id, told.semantic_key,
        told.promotion_key, told.updated_us, told.is_pinned,
    )  # fmt: skip
    assert ("semantic", "projects/tide", types.RelPath("mara/memories.md")) == (
        told.memory_type,
        told.path,
        told.path_file,
    )


@pytest.mark.parametrize(
    ("written", "expected"), [("2", 1.0), ("-3", 0.0), ("nan", 0.5), ("inf", 0.5), ("much", 0.5), ("null", 0.5)]
)
def test_an_importance_that_cannot_be_is_the_nearest_or_the_default(
    connection: sqlite3.Connection, path: pathlib.Path, written: str, expected: float
) -> None:
    """Whatever a person writes, a memory has an importance from 0 to 1."""
    apply(connection, memories(memory(1, importance=written)))
    assert expected == one(path).importance


FILTERS: list[tuple[dict[str, object], list[int]]] = [
    ({}, [1, 2, 3]),
    ({"statuses": ()}, [1, 2, 3, 4]),
    ({"statuses": ("archived",)}, [4]),
    ({"bucket": "public"}, [1, 3]),
    ({"bucket": "te%"}, [2]),
    ({"bucket": "TE%"}, []),
    ({"bucket": ""}, [1, 2, 3]),
    ({"scope": "a_b"}, [2]),
    ({"scope": "a_%"}, [2]),
    ({"scope": "[x]*?"}, [3]),
    ({"scope": "[x]%"}, [3]),
    ({"path": "projects/%"}, [1, 2, 3]),
    ({"path": "projects"}, []),
    ({"memory_type": "episodic"}, []),
    ({"session_id": "s%"}, []),
    ({"ids": [mem(3), mem(1), mem(9)]}, [1, 3]),
    ({"ids": []}, []),
    ({"from_us": 2_000_000, "to_us": 3_000_000}, [2]),
    ({"limit": 2}, [1, 2]),
    ({"kinds": ("episode",), "memory_type": "episodic"}, [7]),
    ({"kinds": ("memory", "episode")}, [1, 2, 3, 7]),
    ({"kinds": ("episode",), "path": ""}, [7]),
    ({"kinds": ("episode",), "path": "projects/%"}, []),
    ({"kinds": ()}, []),
    ({"kinds": ("message",)}, []),
]


@pytest.mark.parametrize(("given", "expected"), FILTERS, ids=str)
def test_filters_are_patterns_and_nobody_elses_memories_come_in(
    connection: sqlite3.Connection, path: pathlib.Path, given: dict[str, object], expected: list[int]
) -> None:
    """`%` is anything, an empty filter too; every other letter is itself, oldest first."""
    shown = [memory(1), memory(2, bucket="team", scope="a_b"), memory(3, scope="[x]*?"), memory(4, status="archived")]
    apply(connection, memories(*shown), memories(memory(1), memory(5), owner=JUN), ledger_files.episodes(7))
    found = ask(path, lambda reader: lifecycle.records(reader, MARA, **given))  # type: ignore[arg-type]
    assert expected == [int(each.entry_id[-8:]) for each in found]
    assert {MARA} >= {each.owner for each in found}


def test_pages_follow_each_other_without_a_gap(connection: sqlite3.Connection, path: pathlib.Path) -> None:
    """The last record of a page is where the next begins, be it there still or not; equal moments are told apart by id."""
    entries = [msgspec.structs.replace(memory(n), timestamp_us=5) for n in range(1, 6)]
    apply(connection, memories(*entries))
    first = ask(path, lambda reader: lifecycle.records(reader, MARA, limit=2))
    apply(connection, memories(*entries[:1], *entries[2:]))
    second = ask(path, lambda reader: lifecycle.records(reader, MARA, after=first[-1], limit=2))
    assert [mem(1), mem(2), mem(3), mem(4)] == [each.entry_id for each in (*first, *second)]


def test_a_semantic_key_finds_the_active_memory_of_its_scope(
    connection: sqlite3.Connection, path: pathlib.Path
) -> None:
    """Bucket, scope and team are part of the key; what is archived does not hold it."""
    entries = [
        memory(1, semantic_key="tide"),
        memory(2, semantic_key="tide", bucket="team"),
        memory(3, semantic_key="tide"),
    ]
    apply(
        connection,
        memories(*entries),
        log(changed(1, "archive", 3)),
        memories(memory(4, semantic_key="tide"), owner=JUN),
    )

    def key(**where: str) -> str:
        found = ask(path, lambda reader: lifecycle.by_semantic_key(reader, MARA, "tide", **where))
        return "" if found is None else found.entry_id

    assert [mem(1), mem(2), ""] == [key(), key(bucket="team"), key(scope="eu")]
    assert ask(path, lambda reader: lifecycle.by_semantic_key(reader, MARA, "")) is None


def test_metadata_may_hold_the_keys(connection: sqlite3.Connection, path: pathlib.Path) -> None:
    """A promotion key in the metadata counts where no field says one; what is no JSON object says nothing."""
    apply(
        connection,
        memories(memory(1, metadata='{"promotion_key": "tides", "n": [1]}'), memory(2, metadata='["promotion_key"]')),
    )
    assert ["tides", ""] == [one(path).promotion_key, one(path, 2).promotion_key]


def test_the_same_content_is_found_whatever_its_spelling(connection: sqlite3.Connection, path: pathlib.Path) -> None:
    """Case, white space, compatible letters and the end are of no matter; the path is."""
    apply(connection, memories(memory(1, "The  tide turns\nat NOON"), memory(2, "the tide turns at one")))
    digest = lifecycle.content_digest("\uff34he tide turns at noon!\n")
    found = ask(path, lambda reader: lifecycle.by_content(reader, MARA, digest, "projects/tide"))
    assert [mem(1)] == [each.entry_id for each in found]
    assert [] == ask(path, lambda reader: lifecycle.by_content(reader, MARA, digest, "projects"))


@pytest.mark.parametrize(
    ("one", "other", "is_same"), [("a b.", "A\tB", True), ("a b", "ab", False), ("?!", "?", False), ("", " \n", True)]
)
def test_a_content_digest_stands_for_what_is_said(one: str, other: str, *, is_same: bool) -> None:
    """Two texts that differ in more than spelling have two digests; no content has none."""
    assert is_same == (lifecycle.content_digest(one) == lifecycle.content_digest(other))
    assert ("" == lifecycle.content_digest(other)) == (not other.strip())


def test_rows_are_listed_newest_first_by_target_action_run_and_time(
    connection: sqlite3.Connection, path: pathlib.Path
) -> None:
    """Uses only where they are asked for; rows of other parts of everosd are none of ours."""
    entries = [
        changed(1, "archive", 1, run_id="r1"),
        row(2, "audit", run_id="r1", tool="reflect", dry_run="true"),
        row(3, "usage", targets=f"[{mem(1)}@5, {mem(2)}@5]"),
        changed(4, "restore", 1),
        row(5, "profile", mem(1), value="x"),
        changed(6, "delete", 2),
    ]
    apply(connection, log(*entries))

    def listed(**given: object) -> list[int]:
        found = ask(path, lambda reader: lifecycle.rows(reader, MARA, **given))  # type: ignore[arg-type]
        return [int(each.id[-8:]) for each in found]

    assert [6, 4, 2, 1] == listed()
    assert [4, 1] == listed(target=mem(1))
    assert [3] == listed(actions=("usage",))
    assert [2, 1] == listed(run_id="r1")
    assert [4, 2] == listed(since_us=2 * DAY_US, until_us=6 * DAY_US)
    assert [4, 2] == listed(limit=2, offset=1)
    assert [] == listed(actions=())


def test_owners_are_those_who_have_any(connection: sqlite3.Connection, path: pathlib.Path) -> None:
    """Memories and Episodes are told apart."""
    apply(connection, memories(memory(1), owner=JUN), ledger_files.episodes(1))
    assert [JUN] == ask(path, lifecycle.owners)
    assert [JUN, MARA] == ask(path, lambda reader: lifecycle.owners(reader, ("memory", "episode")))


def test_counts_tell_types_statuses_paths_and_buckets(connection: sqlite3.Connection, path: pathlib.Path) -> None:
    """What is past its time counts as expired; what is deleted only as that."""
    late = msgspec.structs.replace(memory(3), expires_us=50)
    apply(connection, memories(memory(1), memory(2, bucket="team"), late), log(changed(1, "delete", 2)))
    found = ask(path, lambda reader: lifecycle.counts(reader, MARA, 50))
    assert {"active": 1, "deleted": 1, "expired": 1} == found.statuses
    assert (3, {"semantic": 2}, {"projects/tide": 2}, {"public": 2}) == (
        found.total,
        found.types,
        found.paths,
        found.buckets,
    )


def test_reading_takes_one_row_apart_as_it_was_written() -> None:
    """The text before a change is no part of what a row says, whatever stands in it."""
    raw = f"**action**: archive\n**target**: {mem(1)}\n**base**: active\n\n### Before\n**action**: delete\n**target**: {mem(2)}\n"
    (told,) = lifecycle_log.read("lc_20260302_00000001", raw, 1)
    assert ("archive", mem(1), "archived") == (told.action, told.target, told.value)
    assert "delete" not in entry_text.read("lifecycle", "lc_20260302_00000001", raw).fields.values()
