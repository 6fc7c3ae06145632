"""What follows from entries: memberships of clusters, the same whatever way the ledger has come to hold its rows."""

from __future__ import annotations

import pathlib
import sqlite3
from collections.abc import Iterator

import hypothesis
import msgspec
import pytest
from hypothesis import strategies as st

from everosd import types
from everosd.store import cluster, db, ledger, meta, migrate, numbering, read, state
from tests.ledger_files import (
    JUN,
    MARA,
    apply,
    ask,
    entry,
    ep,
    episode,
    episodes,
    file,
    ledger_in_memory,
    remove,
    tables,
)

Row = tuple[int, str, str]
"""Number of a row, the member's number, the letter of the cluster."""


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


def joined(row: Row, event: str = "joined") -> state.EntryState:
    """One row of a log of clusters."""
    number, member, letter = row
    raw = f"\n**event**: {event}\n**cluster_id**: cl_{letter}\n**member_id**: {ep(member)}\n**member_type**: episode\n"
    return entry(f"ca_20260302_{number:08}", "cluster", f"{raw}**similarity**: 0.{number}\n", number)


def rows(*given: Row, path: str = "clusters.md", owner: types.Owner = MARA) -> state.FileState:
    """A log of clusters."""
    return file(path, *(joined(row) for row in given), owner=owner)


def append(connection: sqlite3.Connection, old: state.FileState, *given: Row) -> state.FileState:
    """Read what was appended to a log; return the log as it is then."""
    added = tuple(joined(row) for row in given)
    new = msgspec.structs.replace(old, digest=old.digest + b"+", entries=added)
    n = len(old.entries)
    connection.execute("BEGIN")
    assert ledger.append_rows(connection, new, base=old.digest, n_before=n, now_us=8, read_at_us=8) is not None
    connection.execute("COMMIT")
    return msgspec.structs.replace(new, entries=(*old.entries, *added))


def said(connection: sqlite3.Connection, owner: types.Owner = MARA) -> dict[str, str]:
    """Return member → cluster of an owner, as the log says."""
    found = connection.execute("SELECT member_id, cluster_id FROM cluster_members WHERE owner_id = ?", (owner.id,))
    return {member_id.removeprefix("ep_20260302_").lstrip("0"): where.removeprefix("cl_") for member_id, where in found}


def test_the_last_row_about_a_member_says_where_it_belongs(connection: sqlite3.Connection) -> None:
    """A later row moves a member, whatever the order in which rows are read."""
    apply(connection, rows((1, "1", "a"), (2, "2", "a"), (10, "1", "b")), rows((3, "1", "c"), path="part2.md"))
    assert {"1": "b", "2": "a"} == said(connection)


def test_a_row_that_is_edited_moves_its_member(connection: sqlite3.Connection) -> None:
    """Another cluster in a row, or another member, is what holds from then on."""
    apply(connection, rows((1, "1", "a"), (2, "2", "a")))
    apply(connection, rows((1, "1", "b"), (2, "3", "a")))
    assert {"1": "b", "3": "a"} == said(connection)


def test_a_row_that_is_removed_gives_way_to_the_one_before(connection: sqlite3.Connection) -> None:
    """Without its last row a member is where it was before; without any it is nowhere, and an empty cluster is none."""
    apply(connection, rows((1, "1", "a"), (2, "1", "b")))
    apply(connection, rows((1, "1", "a")))
    assert {"1": "a"} == said(connection)
    assert [("cl_a",)] == connection.execute("SELECT cluster_id FROM clusters").fetchall()
    remove(connection, "mara/clusters.md")
    assert [] == [name for name, found in tables(connection).items() if found]


def test_rows_of_other_events_move_nobody(connection: sqlite3.Connection) -> None:
    """A row that says something else of a member, or lacks what it takes, leaves it where it is."""
    other = [joined((2, "1", "b"), event="no_facts"), entry("ca_20260302_00000003", "cluster", "**event**: joined\n")]
    apply(connection, file("clusters.md", joined((1, "1", "a")), *other))
    assert {"1": "a"} == said(connection)


def test_a_log_that_was_copied_counts_once(connection: sqlite3.Connection) -> None:
    """Of equal rows in two files one counts; when it goes, the other one does."""
    apply(connection, rows((1, "1", "a")), rows((1, "1", "b"), path="z copy.md"))
    assert {"1": "a"} == said(connection)
    remove(connection, "mara/clusters.md")
    assert {"1": "b"} == said(connection)


def test_what_was_appended_gives_what_reading_it_whole_gives(connection: sqlite3.Connection) -> None:
    """A log read as it grows says the same as one read at once."""
    log = rows((1, "1", "a"))
    apply(connection, log)
    log = append(connection, log, (2, "2", "a"), (3, "1", "b"))
    append(connection, log, (4, "3", "c"))
    assert {"1": "b", "2": "a", "3": "c"} == said(connection)


def test_appending_costs_the_same_whatever_is_there(path: pathlib.Path) -> None:
    """A row appended to a log of 1,000 costs what one appended to a log of 40 costs."""

    def instructions(n: int, name: str) -> int:
        connection = db.connect(path.with_name(name), db.Settings())
        log = rows(*((i, str(i), str(i % (n // 4))) for i in range(1, n + 1)))
        apply(connection, log)
        steps = 0

        def count() -> int:
            nonlocal steps
            steps += 1
            return 0

        connection.set_progress_handler(count, 10)
        append(connection, log, (n + 1, str(n + 1), "1"))
        connection.close()
        return steps

    assert instructions(1_000, "large.db") < 1.5 * instructions(40, "small.db")


def test_a_rebuild_changes_no_membership(connection: sqlite3.Connection) -> None:
    """Rows that are read again say what they said: nobody has to look at a member anew."""
    apply(connection, rows((1, "1", "a"), (2, "2", "a")))
    before = tables(connection), cluster_changes(connection)
    apply(connection, rows((1, "1", "a"), (2, "2", "a")), force=True)
    assert before == (tables(connection), cluster_changes(connection))


def cluster_changes(connection: sqlite3.Connection) -> list[tuple[object, ...]]:
    return connection.execute("SELECT n, owner_id, member_id FROM cluster_changes ORDER BY n").fetchall()


_ROWS = st.dictionaries(st.integers(1, 12), st.tuples(st.sampled_from("123"), st.sampled_from("abc")), max_size=6)


@hypothesis.given(st.lists(st.tuples(st.sampled_from(("one.md", "two.md")), _ROWS), max_size=6))
@hypothesis.settings(max_examples=20, deadline=None)
def test_whatever_is_saved_the_tables_are_those_of_a_rebuild(
    saves: list[tuple[str, dict[int, tuple[str, str]]]],
) -> None:
    """After any saves and deletions of logs memberships are what reading the logs afresh gives."""
    live, fresh = ledger_in_memory(), ledger_in_memory()
    last: dict[str, state.FileState] = {}
    for name, content in saves:
        if content:
            last[name] = rows(*((n, *where) for n, where in content.items()), path=name)
            apply(live, last[name])
        else:
            last.pop(name, None)
            remove(live, f"mara/{name}")
    apply(fresh, *last.values())
    assert tables(fresh) == tables(live)
    live.close()
    fresh.close()


def test_M10_memberships_go_with_their_episodes_and_come_back_with_them(
    connection: sqlite3.Connection, path: pathlib.Path
) -> None:
    """A file of Episodes that is deleted takes its memberships along; put back, it brings them back."""
    apply(connection, episodes(1, 2), rows((1, "1", "a"), (2, "2", "a"), (3, "3", "b")))
    only = cluster.Cluster(cluster_id="cl_a", created_us=1, n_members=2, newest_us=2_000_000)

    async def now(reader: read.Reader) -> tuple[list[str], list[cluster.Cluster], bool]:
        found = [each.entry_id for each in await cluster.members(reader, MARA, "cl_a")]
        return found, await cluster.clusters(reader, MARA), await cluster.member(reader, MARA, ep(1)) is not None

    assert ([ep(1), ep(2)], [only], True) == ask(path, now)
    remove(connection, "mara/episodes.md")
    assert ([], [], False) == ask(path, now)
    apply(connection, episodes(1, 2))
    assert ([ep(1), ep(2)], [only], True) == ask(path, now)


def test_I09_nobody_inherits_a_cluster(connection: sqlite3.Connection, path: pathlib.Path) -> None:
    """Two users with the same ids have clusters of their own; who comes after one of them has none."""
    apply(connection, episodes(1, 2), rows((1, "1", "a"), (2, "2", "a")))
    apply(connection, episodes(1, 2, owner=JUN), rows((1, "1", "b"), owner=JUN))
    ada = types.Owner(app="default", project="default", type="user", id="ada")
    remove(connection, "jun/episodes.md", "jun/clusters.md")
    apply(connection, episodes(1, 2, owner=ada))
    found = ask(path, lambda reader: cluster.all_members(reader, MARA))
    assert [(ep(1), "cl_a"), (ep(2), "cl_a")] == sorted((each.entry_id, each.cluster_id) for each in found)
    for owner in (JUN, ada):
        assert [] == ask(path, lambda reader, owner=owner: cluster.all_members(reader, owner))  # type: ignore[misc]
    assert ask(path, lambda reader: cluster.cluster_of(reader, ada, ep(1))) is None


def test_I09_an_id_that_a_row_speaks_of_is_not_given_again(connection: sqlite3.Connection) -> None:
    """Where only the log of clusters is left of somebody, new entries get ids above those that it names."""
    apply(connection, rows((1, "7", "a")))
    found = connection.execute("SELECT high FROM sequences WHERE owner_id = 'mara' AND prefix = 'ep'").fetchall()
    assert [(7,)] == found


def test_who_keeps_centroids_hears_of_every_change(connection: sqlite3.Connection, path: pathlib.Path) -> None:
    """Joining, moving, and an entry that changes or goes are told; entries of no cluster are not."""
    apply(connection, episodes(1, 2, 3))
    assert (0, []) == ask(path, lambda reader: cluster.changes(reader, 0))
    apply(connection, rows((1, "1", "a"), (2, "2", "a")))
    apply(connection, rows((1, "1", "b"), (2, "2", "a")))
    edited = file("episodes.md", episode(1), episode(2, "other"), episode(3, "other"), kind="episode")
    apply(connection, edited)
    remove(connection, "mara/episodes.md")
    found = ask(path, lambda reader: cluster.changes(reader, 0))
    assert found is not None
    assert (6, [1, 2, 1, 2, 1, 2]) == (found[0], [int(each.member_id[-8:]) for each in found[1]])
    assert (6, []) == ask(path, lambda reader: cluster.changes(reader, 6))


def test_who_was_away_too_long_is_told_so(
    connection: sqlite3.Connection, path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changes are not kept for ever, and a ledger that was made anew knows none: both are said."""
    monkeypatch.setattr(cluster, "KEPT_CHANGES", 2)
    apply(connection, rows(*((n, str(n), "a") for n in range(1, 6))))
    assert ask(path, lambda reader: cluster.changes(reader, 2)) is None
    assert ask(path, lambda reader: cluster.changes(reader, 99)) is None
    found = ask(path, lambda reader: cluster.changes(reader, 3))
    assert found is not None
    assert [ep(4), ep(5)] == [each.member_id for each in found[1]]


def test_an_older_ledger_reads_its_logs_of_clusters_again(path: pathlib.Path) -> None:
    """A ledger from before there were clusters has their logs marked to be read, and nothing else."""
    old = sqlite3.connect(path, isolation_level=None)
    version, sql = migrate.steps()[0]
    old.executescript(f"{sql}; PRAGMA user_version = {version}; PRAGMA application_id = {migrate.APPLICATION_ID};")
    meta.put(old, "reader", "x")
    insert = (
        "INSERT INTO files (path, kind, app, project, owner_type, owner_id, inode, size, mtime_ns, digest, n_entries,"
        " read_at_us) VALUES (?, ?, '', '', '', '', 0, 0, 0, x'', 0, 0)"
    )
    old.executemany(insert, [(kind, kind) for kind in ("cluster", "episode", "message")])
    old.close()
    new = db.connect(path, db.Settings())
    assert [("cluster",)] == new.execute("SELECT path FROM files WHERE is_stale = 1").fetchall()
    assert 0 == numbering.sequence(new, "cluster_changes")
    new.close()
