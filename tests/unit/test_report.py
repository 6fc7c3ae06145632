"""Reports of consolidations: what the rows of `.clusters/` say, whatever way the ledger has come to hold them."""

from __future__ import annotations

import asyncio
import itertools
import json
import pathlib
import random
import shutil
import sqlite3
import time
from collections.abc import Iterator, Sequence
from typing import cast

import hypothesis
import msgspec
import pytest
from hypothesis import strategies as st

from everosd import types
from everosd.cascade import verify
from everosd.log import entry, entry_text
from everosd.store import cluster, consolidation, db, migrate, report, standing, state
from everosd.store import told as told_since
from tests import effort, ledger_files, open_root
from tests.ledger_files import JUN, MARA, apply, ask, ep, file, remove, tables

R1, R2 = "1" * 32, "2" * 32
SEED = (
    "SELECT cluster_id, mode, source_count, merged_entry_id FROM reflection_report ORDER BY created_at DESC LIMIT 10;"
)


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


def row(number: int, event: str, **fields: str) -> state.EntryState:
    """One row of a log of clusters, a second after the one before."""
    raw = "\n" + "".join(f"**{name}**: {value}\n" for name, value in {"event": event, **fields}.items())
    return ledger_files.entry(f"ca_20260302_{number:08}", "cluster", raw, number * 1_000_000)


def joined(number: int, member: int, where: str = "cl_a") -> state.EntryState:
    """An Episode joined a cluster."""
    return row(number, "joined", cluster_id=where, member_id=ep(member), member_type="episode")


def members(*numbers: int) -> str:
    """Return JSON of Episodes, as EverOS writes it."""
    return json.dumps([{"member_id": ep(number), "member_type": "episode"} for number in numbers])


def completed(number: int, report_id: str, replaced: Sequence[int], merged: int, **fields: str) -> state.EntryState:
    """A consolidation was completed."""
    given = {
        "cluster_id": "cl_a",
        "report_id": report_id,
        "mode": "init",
        "source_members": members(*replaced),
        "source_count": str(len(replaced)),
        "merged_entry_id": ep(merged),
        "deprecated_fact_count": "3",
        "sources": f"[{', '.join(f'{ep(each)}@{each:016x}' for each in replaced)}]",
    }
    return row(number, "completed", **(given | fields))


def rolled_back(number: int, report_id: str, sources: Sequence[int], merged: int) -> state.EntryState:
    """One was rolled back."""
    fields = {"cluster_id": "cl_a", "report_id": report_id, "merged_entry_id": ep(merged)}
    return row(number, "rolled_back", **fields, source_members=members(*sources))


def restored(number: int, report_id: str) -> state.EntryState:
    """The files of one say that it was rolled back."""
    return row(number, "restored", report_id=report_id, cluster_id="cl_a")


def narrative(number: int, report_id: str, **changes: object) -> state.EntryState:
    """An Episode that a consolidation wrote; of EverOS, without a report."""
    said = f"**report_id**: {report_id}\n" if report_id else ""
    raw = f"## {ep(number)}\n\n**parent_type**: cluster\n{said}\n### Content\n**report_id**: {R2}\n"
    made = ledger_files.entry(ep(number), "episode", raw, number * 1_000_000)
    return msgspec.structs.replace(made, parent_type="cluster", parent_id="cl_a", **changes)


def where(connection: sqlite3.Connection) -> dict[int, str]:
    """Return member → cluster."""
    found = connection.execute("SELECT member_id, cluster_id FROM cluster_members")
    return {int(member_id[-8:]): cluster_id for member_id, cluster_id in found}


def one(path: pathlib.Path, report_id: str = R1) -> report.Report:
    """Return a report that is there."""
    (found,) = ask(path, lambda reader: report.find(reader, report_id))
    return found


def test_a_completed_consolidation_is_a_report(connection: sqlite3.Connection, path: pathlib.Path) -> None:
    """All that its row says is in the report; its sources have left their cluster, and the narrative has joined it."""
    apply(connection, file("c.md", joined(1, 1), joined(2, 2), joined(3, 3), completed(4, R1, (1, 2), 9)))
    assert {3: "cl_a", 9: "cl_a"} == where(connection)
    expected = report.Report(
        report_id=R1,
        owner=MARA,
        cluster_id="cl_a",
        mode="init",
        source_members=tuple(report.SourceMember(member_id=ep(n), member_type="episode") for n in (1, 2)),
        source_count=2,
        merged_entry_id=ep(9),
        deprecated_fact_count=3,
        status="completed",
        created_us=4_000_000,
        updated_us=4_000_000,
        sources=((ep(1), f"{1:016x}"), (ep(2), f"{2:016x}")),
        is_restored=False,
    )
    assert expected == one(path)


def test_people_query_the_reports_as_the_seeds_show(connection: sqlite3.Connection) -> None:
    """The statement of the documentation answers, the newest first; members are JSON and moments are ISO."""
    apply(connection, file("c.md", completed(1, R1, (1, 2), 8), completed(2, R2, (8, 3), 9, mode="update")))
    assert [("cl_a", "update", 2, ep(9)), ("cl_a", "init", 2, ep(8))] == connection.execute(SEED).fetchall()
    found = connection.execute(
        "SELECT source_members, created_at, app_id, status FROM reflection_report WHERE id = ?", (R2,)
    )
    listed, created_at, app_id, status = found.fetchone()
    assert json.loads(members(8, 3)) == json.loads(listed)
    assert ("1970-01-01T00:00:02.000000+00:00", "default", "completed") == (created_at, app_id, status)


def test_a_rollback_gives_the_cluster_its_sources_back(connection: sqlite3.Connection, path: pathlib.Path) -> None:
    """Rolled back is what the report says, with all that it said before; it is restored once a row says so."""
    log = [joined(1, 1), joined(2, 2), completed(3, R1, (1, 2), 9), rolled_back(4, R1, (1, 2), 9)]
    apply(connection, file("c.md", *log))
    assert {1: "cl_a", 2: "cl_a"} == where(connection)
    found = one(path)
    assert ("rolled_back", False, "init", 3, 2) == (
        found.status, found.is_restored, found.mode, found.deprecated_fact_count, len(found.sources),
    )  # fmt: skip
    assert (3_000_000, 4_000_000) == (found.created_us, found.updated_us)
    assert [found] == ask(path, report.unrestored)
    apply(connection, file("c.md", *log, restored(5, R1)))
    assert msgspec.structs.replace(found, is_restored=True) == one(path)
    assert [] == ask(path, report.unrestored)


def test_a_report_that_was_rolled_back_stays_so(connection: sqlite3.Connection, path: pathlib.Path) -> None:
    """Rows that come twice, as after a crash or a second takeover, make one report, and a late `completed` revives none."""
    log = [completed(1, R1, (1, 2), 9), completed(2, R1, (1,), 9), rolled_back(3, R1, (1,), 9)]
    apply(connection, file("c.md", *log, rolled_back(4, R1, (1,), 9), restored(5, R1), completed(6, R1, (1,), 9)))
    assert [(1,)] == connection.execute("SELECT count(*) FROM reflection_report").fetchall()
    found = one(path)
    assert ("rolled_back", True, 1_000_000, 3_000_000) == (
        found.status, found.is_restored, found.created_us, found.updated_us,
    )  # fmt: skip


def test_the_rollback_that_everos_made_has_nothing_left_to_restore(
    connection: sqlite3.Connection, path: pathlib.Path
) -> None:
    """A `rolled_back` row alone, without digests, makes a report; nothing is to be done about it."""
    everos = completed(1, R1, (1, 2), 9)
    apply(connection, file("c.md", msgspec.structs.replace(everos, raw=everos.raw.replace("completed", "rolled_back"))))
    found = one(path)
    assert ("rolled_back", True, "init", 2) == (found.status, found.is_restored, found.mode, found.source_count)
    assert {1: "cl_a", 2: "cl_a"} == where(connection)
    assert [] == ask(path, report.unrestored)


def test_a_row_that_a_person_removes_says_nothing_any_more(connection: sqlite3.Connection, path: pathlib.Path) -> None:
    """Without its rollback a consolidation is completed again; without any row there is no report."""
    log = [joined(1, 1), joined(2, 2), completed(3, R1, (1, 2), 9), rolled_back(4, R1, (1, 2), 9)]
    apply(connection, file("c.md", *log))
    apply(connection, file("c.md", *log[:3]))
    assert ("completed", {9: "cl_a"}) == (one(path).status, where(connection))
    apply(connection, file("c.md", *log[:2]))
    assert ask(path, lambda reader: report.find(reader, R1)) == []
    assert {1: "cl_a", 2: "cl_a"} == where(connection)
    apply(connection, file("c.md", *log))
    remove(connection, "mara/c.md")
    assert [] == [name for name, found in tables(connection).items() if found]


def test_a_copy_of_a_log_makes_no_second_report(connection: sqlite3.Connection) -> None:
    """Of equal rows in two files one counts; when it goes, the other one does."""
    apply(connection, file("c.md", completed(1, R1, (1, 2), 9)), file("z copy.md", completed(1, R2, (1, 3), 9)))
    assert [(R1,)] == connection.execute("SELECT id FROM reflection_report").fetchall()
    remove(connection, "mara/c.md")
    assert [(R2,)] == connection.execute("SELECT id FROM reflection_report").fetchall()


def test_nobody_sees_the_reports_of_another(connection: sqlite3.Connection, path: pathlib.Path) -> None:
    """A folder of memory that was copied to another user has reports of its own; no question reaches over."""
    apply(connection, file("c.md", completed(1, R1, (1, 2), 9)), file("c.md", completed(1, R1, (1, 2), 9), owner=JUN))
    agent = msgspec.structs.replace(MARA, type="agent")
    apply(connection, file("a.md", completed(2, R1, (1, 2), 9), owner=agent))
    for owner in (MARA, JUN):
        found = ask(path, lambda reader, owner=owner: report.of_narrative(reader, owner, ep(9)))  # type: ignore[misc]
        assert found is not None
        assert owner == found.owner
        scope = {"app": owner.app, "project": owner.project, "owner_id": owner.id}
        listed = ask(path, lambda reader, of=scope: report.page(reader, **of, cluster_id=None, limit=9, offset=0))  # type: ignore[misc]
        assert ([found], 1) == listed
        assert [found] == ask(path, lambda reader, of=scope: report.find(reader, R1, **of))  # type: ignore[misc]
    other = {"app": "work", "project": "default"}
    assert [] == ask(path, lambda reader: report.find(reader, R1, **other))
    remove(connection, "mara/c.md")
    assert ask(path, lambda reader: report.of_narrative(reader, MARA, ep(9))) is None
    assert 2 == ask(path, lambda reader: report.page(
        reader, app="default", project="default", owner_id=None, cluster_id=None, limit=9, offset=0)
    )[1]  # fmt: skip


def test_pages_are_the_newest_first(connection: sqlite3.Connection, path: pathlib.Path) -> None:
    """Reports are paged by time, also of one cluster; past the end there are none, and all are counted."""
    log = [completed(n, f"{n:032}", (n,), 10 + n, cluster_id=f"cl_{n % 2}") for n in range(1, 7)]
    apply(connection, file("c.md", *log))

    def page(cluster_id: str | None, limit: int, offset: int) -> tuple[list[int], int]:
        found, total = ask(
            path,
            lambda reader: report.page(
                reader,
                app="default",
                project="default",
                owner_id="mara",
                cluster_id=cluster_id,
                limit=limit,
                offset=offset,
            ),
        )
        return [int(each.report_id) for each in found], total

    assert ([6, 5, 4, 3], 6) == page(None, 4, 0)
    assert ([2, 1], 6) == page(None, 4, 4)
    assert ([5, 3], 3) == page("cl_1", 2, 0)
    assert ([], 6) == page(None, 4, 8)


def test_what_builds_on_a_narrative_is_known_until_it_is_rolled_back(
    connection: sqlite3.Connection, path: pathlib.Path
) -> None:
    """The consolidation that replaced an entry is found by it, while it holds; rollbacks are listed by their cluster."""
    log = [completed(1, R1, (1, 2), 8), completed(2, R2, (8, 3), 9, mode="update")]
    apply(connection, file("c.md", *log))
    found = ask(path, lambda reader: report.builds_on(reader, MARA, ep(8)))
    assert found == one(path, R2)
    assert ask(path, lambda reader: report.builds_on(reader, MARA, ep(9))) is None
    assert [] == ask(path, lambda reader: report.rolled_back(reader, MARA, "cl_a"))
    apply(connection, file("c.md", *log, rolled_back(3, R2, (8, 3), 9)))
    assert ask(path, lambda reader: report.builds_on(reader, MARA, ep(8))) is None
    assert [one(path, R2)] == ask(path, lambda reader: report.rolled_back(reader, MARA, "cl_a"))
    assert [] == ask(path, lambda reader: report.rolled_back(reader, MARA, "cl_b"))


def test_a_narrative_is_unfinished_until_a_row_of_its_owner_knows_it(
    connection: sqlite3.Connection, path: pathlib.Path
) -> None:
    """Narratives with a report that no row speaks of are found, the oldest first; what is not live, or EverOS's, is none."""
    others = [
        narrative(1, ""),
        narrative(2, R1, own_status="archived"),
        narrative(3, R1, expires_us=5),
        msgspec.structs.replace(narrative(4, R1), parent_type="memcell"),
    ]
    apply(connection, file("e.md", narrative(7, R2), *others, narrative(6, R1), kind="episode"))
    apply(connection, file("c.md", completed(1, R1, (1, 2), 6), completed(2, R2, (1, 2), 7), owner=JUN))

    def ids() -> list[int]:
        keys = ask(path, lambda reader: report.unfinished(reader, 6))
        rows = ask(path, lambda reader: reader.rows(keys))
        return [int(each.entry_id[-8:]) for each in rows]

    # `archived` is set by the entry itself: what the ledger calls its status follows once that changes.
    connection.execute("UPDATE entries SET status = own_status")
    assert [6, 7] == ids()
    apply(connection, file("c.md", completed(1, R2, (1, 2), 7)))
    assert [6] == ids()
    apply(connection, file("c.md", rolled_back(2, R1, (1, 2), 6), owner=MARA))
    assert [7] == ids()
    remove(connection, "mara/c.md")
    assert [6, 7] == ids()
    apply(connection, file("e.md", narrative(7, ""), kind="episode"))
    assert [] == ids()


def test_a_cluster_with_one_live_member_is_no_candidate(connection: sqlite3.Connection, path: pathlib.Path) -> None:
    """Clusters of all owners with two live Episodes are found, an owner's largest first, with how much of them is narrative."""
    expired = msgspec.structs.replace(ledger_files.episode(8), expires_us=5)
    log = (
        [joined(n, n) for n in (1, 2)]
        + [joined(n, n, "cl_b") for n in (3, 4, 9)]
        + [joined(n, n, "cl_c") for n in (7, 8)]
    )
    entries = [*(ledger_files.episode(n) for n in (1, 2, 3, 4, 7)), expired, narrative(9, R1)]
    apply(connection, file("c.md", *log), file("e.md", *entries, kind="episode"))
    apply(connection, file("c.md", joined(1, 1), joined(2, 2), owner=JUN), ledger_files.episodes(1, 2, owner=JUN))

    def found(now_us: int = 6) -> list[tuple[str, str, int, int, int]]:
        rows = ask(path, lambda reader: report.candidates(reader, now_us))
        return [(each.owner.id, each.cluster_id, each.n_live, each.n_narratives, each.newest_us) for each in rows]

    both = [("jun", "cl_a", 2, 0, 2_000_000), ("mara", "cl_b", 3, 1, 9_000_000)]
    assert [*both, ("mara", "cl_a", 2, 0, 2_000_000)] == found()
    assert ("mara", "cl_c", 2, 0, 8_000_000) in found(4)
    gone = file("e.md", *entries[1:], kind="episode")
    apply(connection, msgspec.structs.replace(gone, deprecated={ep(4): ep(9)}))
    assert [both[0], ("mara", "cl_b", 2, 1, 9_000_000)] == found()


def fact(number: int, of: int) -> state.EntryState:
    """One fact of an Episode."""
    made = ledger_files.entry(ep(number).replace("ep", "af"), "atomic_fact", "text")
    return msgspec.structs.replace(made, parent_type="episode", parent_id=ep(of))


def pointing(name: str, *entries: state.EntryState, **pointers: int) -> state.FileState:
    """A file with `deprecated_entries`, by bare numbers."""
    deprecated = {f"{key[:2]}_20260302_{int(key[2:]):08}": ep(to) for key, to in pointers.items()}
    kind = "atomic_fact" if name == "f.md" else "episode"
    return msgspec.structs.replace(file(name, *entries, kind=kind), deprecated=deprecated)


def standing_of(connection: sqlite3.Connection) -> dict[str, str | None]:
    """Return what has replaced each entry that counts."""
    found = "SELECT entry_id, deprecated_by FROM entries WHERE is_shadowed = 0 AND kind <> 'cluster'"
    return dict(connection.execute(found).fetchall())


@pytest.mark.parametrize("order", range(6))
def test_R01_a_rollback_holds_whatever_files_say_that_come_back(connection: sqlite3.Connection, order: int) -> None:
    """Old pointers to the retired narrative hide neither sources nor their facts, and make no circle; others still count."""
    entries = pointing("e.md", *map(ledger_files.episode, (1, 2, 3, 8)), ep1=8, ep2=8, ep3=8, ep8=2)
    facts = pointing("f.md", fact(1, 1), fact(3, 3), fact(8, 8), af1=8, af3=8, af8=2)
    rows = file("c.md", completed(1, R1, (1, 2), 8), rolled_back(2, R1, (1, 2), 8))
    files = [list(each) for each in itertools.permutations((entries, facts, rows))][order]
    expected = {
        ep(1): None,
        ep(2): None,
        ep(3): ep(8),
        ep(8): ep(2),
        fact(1, 1).entry_id: None,
        fact(3, 3).entry_id: ep(8),
        fact(8, 8).entry_id: ep(2),
    }
    apply(connection, *files)
    assert expected == standing_of(connection)
    assert [] == standing.unresolved(connection)
    apply(connection, *files, force=True)
    assert expected == standing_of(connection)
    # Somebody takes the row out of the log: the consolidation holds again.
    apply(connection, file("c.md", completed(1, R1, (1, 2), 8)), pointing("e.md", *entries.entries, ep1=8, ep2=8))  # type: ignore[arg-type]
    assert [ep(8)] * 2 == [standing_of(connection)[each] for each in (ep(1), fact(1, 1).entry_id)]


def test_a_rollback_that_is_not_done_is_named(connection: sqlite3.Connection) -> None:
    """By file and line of its row, until `restored` says that it is."""
    log = [completed(1, R1, (1, 2), 9), rolled_back(2, R1, (1, 2), 9)]
    apply(connection, file("c.md", *log))
    assert [("mara/c.md", 1, R1)] == report.unrestored_rows(connection)
    apply(connection, file("c.md", *log, restored(3, R1)))
    assert [] == report.unrestored_rows(connection)


_ODD = st.sampled_from(
    ("[", "{}", "null", "3", '[{"member_id": 3}]', "[[], 7]", "-4", "9" * 5_000, '"\\ud800"', "[" * 9_000, "ep_x@", "")
)
_FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "event": st.sampled_from(("completed", "rolled_back", "restored", "joined", "other")),
        "report_id": st.sampled_from((R1, R2)) | _ODD,
        "cluster_id": st.sampled_from(("cl_a", "cl_b")) | _ODD,
        "merged_entry_id": st.sampled_from((ep(8), ep(9), "ep_20260302_" + "9" * 30)) | _ODD,
        "source_members": st.sampled_from((members(1, 2), members(2, 3), members(8, 9, 9))) | _ODD,
        "source_count": st.sampled_from(("2", "+1", "-3", "1e9")) | _ODD,
        "deprecated_fact_count": _ODD,
        "sources": st.sampled_from(("[a@1, b]", f"[{ep(1)}@00]")) | _ODD,
        "member_id": st.sampled_from((ep(1), ep(9))) | _ODD,
    },
)
_LOG = st.dictionaries(st.integers(1, 6), _FIELDS, max_size=4)
_EPISODES = st.dictionaries(st.integers(8, 9), st.sampled_from((R1, R2, "")), max_size=2)
_POINTERS = st.dictionaries(
    st.sampled_from(("ep1", "ep2", "ep3", "ep8", "af1", "af2")), st.sampled_from((1, 2, 8, 9)), min_size=1, max_size=4
)


@hypothesis.given(
    st.lists(
        st.tuples(st.sampled_from(("one.md", "two.md")), _LOG)
        | st.tuples(st.just("e.md"), _EPISODES)
        | st.tuples(st.sampled_from(("f.md", "s.md", "t.md")), _POINTERS),
        max_size=6,
    ),
    st.randoms(),
)
@hypothesis.settings(max_examples=effort.rounds(300, 30), deadline=None)
def test_whatever_is_saved_reports_are_those_of_a_rebuild(
    saves: list[tuple[str, dict[int, dict[str, str]] | dict[int, str] | dict[str, int]]], order: random.Random
) -> None:
    """After any saves and deletions, of rows that say anything, every table is what reading the files afresh gives."""
    live, fresh = ledger_files.ledger_in_memory(), ledger_files.ledger_in_memory()
    last: dict[str, state.FileState] = {}
    for name, content in saves:
        if not content:
            last.pop(name, None)
            remove(live, f"mara/{name}")
            continue
        if name in ("f.md", "s.md", "t.md"):
            there = [fact(1, 1), fact(2, 2)] if name == "f.md" else [ledger_files.episode(n) for n in (1, 2, 3)]
            last[name] = pointing(name, *there, **cast("dict[str, int]", content))
            apply(live, last[name])
            continue
        kind = "episode" if name == "e.md" else "cluster"
        entries = [
            narrative(cast("int", n), said)
            if isinstance(said, str)
            else row(cast("int", n), **{"event": "completed", **cast("dict[str, str]", said)})
            for n, said in content.items()
        ]
        last[name] = file(name, *entries, kind=kind)
        apply(live, last[name])
    afresh = list(last.values())
    order.shuffle(afresh)
    apply(fresh, *afresh)
    assert everything(fresh) == everything(live)
    apply(live, *afresh, force=True)
    assert everything(fresh) == everything(live)
    live.close()
    fresh.close()


def everything(connection: sqlite3.Connection) -> dict[str, list[tuple[object, ...]]]:
    """Return all tables about consolidations, with ids in the place of the ledger's numbers."""
    by_id = "SELECT e.path, e.entry_id, t.report_id FROM {} t JOIN entries e ON e.key = t.key ORDER BY 1, 2"
    helpers = {name: connection.execute(by_id.format(name)).fetchall() for name in ("narratives", "report_rows")}
    standings = connection.execute("SELECT path, entry_id, status, deprecated_by FROM entries ORDER BY 1, 2").fetchall()
    return tables(connection) | helpers | {"standing": standings}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"source_count": "-1", "deprecated_fact_count": "99999999999999999999"}, (2, 0)),
        ({"source_count": "7", "deprecated_fact_count": " 4 "}, (7, 4)),
        ({"source_count": "", "deprecated_fact_count": "-0"}, (2, 0)),
    ],
)
def test_absurd_counts_are_none(fields: dict[str, str], expected: tuple[int, int]) -> None:
    """A count that cannot be is that of the members, or nothing; members that cannot be are left out."""
    raw = completed(
        1, R1, (), 9, source_members='[{"member_id": "a"}, {"member_id": "b", "member_type": 3}, 7]', **fields
    )
    found = consolidation.read(entry_text.read("cluster", raw.entry_id, raw.raw).fields)
    assert found is not None
    assert expected == (found.source_count, found.deprecated_fact_count)
    assert [("a", ""), ("b", "")] == [(each.member_id, each.member_type) for each in found.source_members]


@pytest.mark.parametrize("name", ["report_id", "cluster_id", "merged_entry_id"])
def test_a_row_that_lacks_what_it_takes_says_nothing(connection: sqlite3.Connection, name: str) -> None:
    """Without report, cluster or narrative a row makes no report and moves nobody: the consolidation is done once more."""
    whole = completed(2, R1, (1, 2), 9)
    lacking = msgspec.structs.replace(whole, raw=whole.raw.replace(f"**{name}**", "**other**"))
    apply(connection, file("c.md", joined(1, 1), lacking))
    assert {1: "cl_a"} == where(connection)
    assert [] == connection.execute("SELECT id FROM reflection_report").fetchall()


def test_an_older_ledger_reads_what_consolidations_are_made_from_again(path: pathlib.Path) -> None:
    """Of a ledger from before there were reports, logs of clusters and files with narratives are read once more."""
    old = sqlite3.connect(path, isolation_level=None)
    for version, sql in migrate.steps()[:2]:
        old.executescript(f"{sql}; PRAGMA user_version = {version}; PRAGMA application_id = {migrate.APPLICATION_ID};")
    insert = (
        "INSERT INTO files (path, kind, app, project, owner_type, owner_id, inode, size, mtime_ns, digest, n_entries,"
        " read_at_us) VALUES (?, ?, '', '', '', '', 0, 0, 0, x'', 0, 0)"
    )
    old.executemany(insert, [("c", "cluster"), ("n", "episode"), ("e", "episode"), ("f", "atomic_fact")])
    old.execute(
        "INSERT INTO entries (path, entry_id, nth, position, line, form, kind, app, project, owner_type, owner_id, digest,"
        " lsn, timestamp_us, parent_type, updated_us, raw)"
        " VALUES ('n', 'ep', 0, 0, 1, '', 'episode', '', '', '', '', x'', 0, 0, 'cluster', 0, '')"
    )
    old.close()
    new = db.connect(path, db.Settings())
    assert [("c",), ("n",)] == new.execute("SELECT path FROM files WHERE is_stale = 1 ORDER BY path").fetchall()
    new.close()


def test_of_many_owners_with_nothing_to_do_one_look_is_enough(
    connection: sqlite3.Connection, path: pathlib.Path
) -> None:
    """1,000 owners whose clusters are all merged cost well under half a second, and so do 100,000 plain Episodes."""
    n_owners, n_clusters = effort.rounds(1_000, 200), 10
    for nth in range(n_owners):
        owner = types.Owner(app="default", project="default", type="user", id=f"u_{nth}")
        log = [
            completed(n, f"{nth:016x}{n:016x}", (100 + n, 200 + n), n, cluster_id=f"cl_{n}") for n in range(n_clusters)
        ]
        told = [narrative(n, f"{nth:016x}{n:016x}") for n in range(n_clusters)]
        apply(connection, file("c.md", *log, owner=owner), file("e.md", *told, owner=owner, kind="episode"))
    plain = [ledger_files.episode(n) for n in range(effort.rounds(100_000, 5_000))]
    apply(connection, file("plain.md", *plain, owner=JUN, kind="episode"))
    began_s = time.perf_counter()
    assert ([], [], []) == (ask(path, report.candidates), ask(path, report.unfinished), ask(path, report.unrestored))
    assert 0.4 > time.perf_counter() - began_s


def test_nothing_is_looked_through_that_grows_with_memory(connection: sqlite3.Connection) -> None:
    """What is unfinished or not restored is found by indexes: no table of entries is walked for it."""
    for sql, values in (
        (report._UNFINISHED, (0,)),
        ("SELECT id FROM reflection_report WHERE status = 'rolled_back' AND is_restored = 0 ORDER BY created_at", ()),
    ):
        plan = " ".join(str(each[3]) for each in connection.execute(f"EXPLAIN QUERY PLAN {sql}", values))
        assert "SCAN e" not in plan
        assert "SCAN reflection_report " not in f"{plan.replace('SCAN reflection_report USING INDEX', '')} "


def test_members_lead_to_their_entries_and_not_the_other_way_round(connection: sqlite3.Connection) -> None:
    """However much an owner remembers, only the entries of the members asked for are looked at."""
    own = ("default", "default", "user", "mara")
    for sql, values in (
        (cluster._MEMBERS, own),
        (cluster._MEMBERS_OF_ONE, (*own, "cl_1")),
        (f"{cluster._MEMBERS} AND m.member_id = ?", (*own, "ep_1")),
        (told_since._JOINED, (*own, 0, "episode", 10)),
    ):
        plan = [str(each[3]) for each in connection.execute(f"EXPLAIN QUERY PLAN {sql}", values)]
        assert "SEARCH m " in plan[0], plan
        assert "SEARCH e USING INDEX entries_owner" in plan[1], plan
        assert plan[1].endswith("AND entry_id=?)"), plan
        assert ("cluster_id=?" in plan[0]) is (sql == cluster._MEMBERS_OF_ONE), plan


def test_a_cluster_row_costs_the_same_whatever_is_there() -> None:
    """A consolidation appended to a log of many is folded in as many steps as one appended to a log of few."""

    def steps(n: int) -> int:
        made = ledger_files.ledger_in_memory()
        log = [completed(each, f"{each:032}", (each, 5_000 + each), 10_000 + each) for each in range(1, n + 1)]
        apply(made, file("c.md", *log))
        counted = 0

        def count() -> int:
            nonlocal counted
            counted += 1
            return 0

        made.set_progress_handler(count, 10)
        apply(made, file("d.md", completed(n + 1, f"{n + 1:032}", (n + 1, 5_001 + n), 10_001 + n)))
        made.close()
        return counted

    assert steps(500) < 1.5 * steps(40)


def test_candidates_cost_in_proportion_to_what_there_is() -> None:
    """Ten times as many clusters of one owner are found in about ten times as many steps."""

    def steps(n: int) -> int:
        made = ledger_files.ledger_in_memory()
        log = [joined(each, each, f"cl_{each // 2}") for each in range(n)]
        apply(made, file("c.md", *log), ledger_files.episodes(*range(n)))
        counted = 0

        def count() -> int:
            nonlocal counted
            counted += 1
            return 0

        made.set_progress_handler(count, 10)
        assert n // 2 == len(made.execute(report._CANDIDATES, (0,)).fetchall())
        made.close()
        return counted

    assert steps(400) < 15 * steps(40)


def test_members_after_a_rollback_are_told_of(connection: sqlite3.Connection, path: pathlib.Path) -> None:
    """Who keeps centroids hears of what left and what came back."""
    log = [joined(1, 1), completed(2, R1, (1,), 9), rolled_back(3, R1, (1,), 9)]
    for n in (1, 2, 3):
        apply(connection, file("c.md", *log[:n]))
    found = ask(path, lambda reader: cluster.changes(reader, 0))
    assert found is not None
    assert [1, 1, 9, 1, 9] == [int(each.member_id[-8:]) for each in found[1]]


LOGS = "default_app/default_project/users/mara/.clusters"


async def told(root: open_root.Root, *entries: state.EntryState) -> None:
    """Have the daemon write these rows, and wait until the ledger has them."""
    fields = [entry_text.read("cluster", each.entry_id, each.raw).fields for each in entries]
    await root.pen.append(MARA, "cluster", [entry.Draft(fields=each) for each in fields])
    await root.settled()


async def test_M21_reports_survive_the_index_and_verify_watches_over_them(tmp_path: pathlib.Path) -> None:
    """Without `.index/` the same rows are made again; a row that is not what the log says is found and named."""
    question = "SELECT * FROM reflection_report ORDER BY id"
    async with open_root.opened(tmp_path) as root:
        await told(root, completed(1, R1, (1, 2), 8), completed(2, R2, (8, 3), 9), rolled_back(3, R2, (8, 3), 9))
        before = [tuple(each) for each in await root.reader.fetch(question)]
        assert ["completed", "rolled_back"] == [each[11] for each in before]
    await asyncio.to_thread(shutil.rmtree, tmp_path / ".index")
    async with open_root.opened(tmp_path) as root:
        assert before == [tuple(each) for each in await root.reader.fetch(question)]
        assert (await verify.verify(root.node.cascade)).is_clean
        forged = "UPDATE reflection_report SET source_count = 7 WHERE id = ?"
        await root.node.database.write(lambda connection: connection.execute(forged, (R1,)).fetchall())
        (found,) = (await verify.verify(root.node.cascade)).differences
        assert ("differs", ep(8), True) == (found.what, found.entry_id, "source_count" in found.detail)


async def test_absurd_rows_made_by_hand_stop_nothing(tmp_path: pathlib.Path) -> None:
    """Half a surrogate pair, and numbers that no table holds: the file is read, and what comes after it as well."""
    huge = "ep_20260302_" + "9" * 5_000
    odd = [
        completed(1, R1, (1,), 9, cluster_id='"\\ud800"', sources='["\\ud800@1"]'),
        row(2, "joined", cluster_id="cl_a", member_id=huge),
        completed(3, R2, (1,), 9, merged_entry_id="ep_20260302_" + "9" * 25, timestamp="0001-01-01T00:00:00+14:00"),
        row(4, "joined", cluster_id="cl_a", member_id=ep(4), timestamp="0001-01-01T00:00:00+14:00"),
    ]
    texts = [
        f"<!-- entry:{each.entry_id} -->\n## {each.entry_id}\n{each.raw}<!-- /entry:{each.entry_id} -->\n"
        for each in odd
    ]
    texts.append(texts[-1].replace("00000004", "9" * 25))
    async with open_root.opened(tmp_path) as root:
        await root.save(f"{LOGS}/cluster-2026-03-02.md", "---\nid: x\n---\n" + "".join(texts))
        await root.settled()
        await told(root, completed(1, "3" * 32, (1,), 9))
        found = await root.reader.fetch("SELECT id FROM reflection_report ORDER BY id")
        assert [R1, R2, "3" * 32] == [each[0] for each in found]
        assert (await verify.verify(root.node.cascade)).is_clean
