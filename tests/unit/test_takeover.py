"""An `.index/` that EverOS made is taken over into the log, once, and set aside."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import zoneinfo
from pathlib import Path

import pytest

from everosd import clock, errors, types
from everosd.cascade import everos as everos_database
from everosd.cascade import takeover, verify
from everosd.log import entry, layout, parse, writer
from everosd.store import db, journal
from everosd.store import report as store_report
from tests import open_root

UTC = zoneinfo.ZoneInfo("UTC")
SCHEMA = Path(__file__).with_name("data") / "everos_system.sql"
AT = "2026-03-02 18:39:55.250000"
FAR = "2026-03-09 07:00:00"


class Everos:
    """A database as EverOS leaves it."""

    def __init__(self, root: Path) -> None:
        """Make an empty one below `root`."""
        folder = root / ".index" / "sqlite"
        folder.mkdir(parents=True)
        self.path = folder / "system.db"
        with contextlib.closing(self.open()) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.executescript(SCHEMA.read_text())

    def open(self) -> sqlite3.Connection:
        """Return a connection."""
        return sqlite3.connect(self.path)

    def insert(self, table: str, **values: object) -> None:
        """Insert a row; times that are not given are the same moment."""
        values = {"created_at": AT, "updated_at": AT, **values}
        names, marks = ", ".join(values), ", ".join("?" * len(values))
        connection = self.open()
        with connection:
            connection.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(values.values()))  # noqa: S608 - names of the tests
        connection.close()

    def message(self, number: int, session: str = "s_17", *, text: str = "", **values: object) -> None:
        """Insert a message that waits for extraction."""
        text = text or f"Message {number}."
        row = {
            "message_id": f"m_{session}_{number}_0",
            "app_id": "default",
            "project_id": "default",
            "session_id": session,
            "track": "user",
            "sender_id": "u_mara",
            "sender_name": "Mara",
            "role": "user",
            "timestamp": f"2026-03-02 18:{number // 60:02d}:{number % 60:02d}.000000",
            "content_items_json": json.dumps([{"type": "text", "text": text}]),
            "text": text,
        }
        self.insert("unprocessed_buffer", **(row | values))

    def queue(self, number: int, payload: object, *, status: str = "queued") -> None:
        """Insert a request that waits in the inbox."""
        self.insert(
            "memorize_inbox",
            id=number,
            request_id=f"r{number}",
            app_id="default",
            project_id="default",
            session_id="s_17",
            is_final=False,
            defer_extraction=False,
            payload_json=json.dumps(payload),
            message_count=1,
            status=status,
            attempt=0,
        )

    def cluster(self, cluster_id: str, owner_id: str = "u_mara", *, owner_type: str = "user") -> None:
        """Insert a cluster."""
        self.insert(
            "cluster",
            cluster_id=cluster_id,
            app_id="default",
            project_id="default",
            owner_id=owner_id,
            owner_type=owner_type,
            kind="episode",
            centroid_blob=b"\x00\x01",
            count=1,
            last_ts_ms=1,
            preview_json="[]",
        )

    def member(self, cluster_id: str, member_id: str, *, added: str = AT) -> None:
        """Insert a membership."""
        self.insert("cluster_member", cluster_id=cluster_id, member_id=member_id, member_type="episode", added_ts=added)

    def report(self, report_id: str, cluster_id: str, merged: str, **values: object) -> None:
        """Insert a consolidation."""
        row = {"mode": "init", "source_count": 1, "status": "completed", "created_at": FAR} | values
        self.insert(
            "reflection_report",
            id=report_id,
            cluster_id=cluster_id,
            owner_id="u_mara",
            app_id="default",
            project_id="default",
            source_members=json.dumps([{"member_id": "ep_20260301_00000001", "member_type": "episode"}]),
            merged_entry_id=merged,
            deprecated_fact_count=4,
            **row,
        )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return an empty root."""
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


@pytest.fixture
def everos(root: Path) -> Everos:
    """Return EverOS's database on that root."""
    return Everos(root)


async def take_over(root: Path) -> takeover.Report:
    """Do what the daemon does at its start: a passing ledger numbers the rows."""
    with tempfile.TemporaryDirectory() as folder:
        database = await db.Database.open(Path(folder, "passing.db"))
        places = layout.Layout(root)
        pen = writer.Writer(places, journal.Journal(database, clock.SystemClock()), clock.SystemClock(), UTC)
        try:
            return await takeover.take_over(root, pen)
        finally:
            await pen.close()
            await database.close()


def logged(root: Path) -> list[tuple[layout.Place, entry.Entry]]:
    """Return all entries of all files below `root`, by path."""
    found: list[tuple[layout.Place, entry.Entry]] = []
    for file in sorted(root.rglob("*.md")):
        path = types.RelPath(file.relative_to(root).as_posix())
        place = layout.place(path)
        assert place is not None, path
        parsed = parse.parse(path, file.read_bytes(), place)
        assert (None, ()) == (parsed.error, parsed.warnings)
        found += [(parsed.place, one) for one in parsed.entries]
    return found


def test_everos_index_is_recognised_by_its_tables(root: Path, everos: Everos) -> None:
    """EverOS's database is told from none, from one of ours, and from bytes that are none."""
    assert everos.path.exists()
    assert everos_database.is_everos(root / ".index")
    assert not everos_database.is_everos(root / "nowhere")
    everos.path.write_bytes(b"not a database at all, but of some length" * 40)
    assert not everos_database.is_everos(root / ".index")
    everos.path.unlink()
    with contextlib.closing(everos.open()) as connection:
        connection.executescript("CREATE TABLE events (lsn); CREATE TABLE checkpoints (name);")
    assert not everos_database.is_everos(root / ".index")


async def test_buffered_messages_reach_the_session_log_whole(root: Path, everos: Everos) -> None:
    """A message keeps id, sender, role, time and text; the order is that of time."""
    everos.message(
        5, text="Later.\n<!-- entry:ms_20260302_00000009 -->\n### not a section", role="assistant", sender_name=None
    )
    everos.message(3, text="Earlier.", tool_calls_json='[{"id": "c1"}]', tool_call_id="c0")
    report = await take_over(root)
    assert (2, 0, ()) == (report.messages, report.already, report.skipped)
    (place, first), (_, second) = logged(root)
    assert types.Owner(app="default", project="default", type="session", id="s_17") == place.owner
    assert {
        "type": "message",
        "message_id": "m_s_17_3_0",
        "sender_id": "u_mara",
        "sender_name": "Mara",
        "role": "user",
        "timestamp": "2026-03-02T18:00:03+00:00",
        "tool_calls": '[{"id": "c1"}]',
        "tool_call_id": "c0",
    } == first.fields
    assert (("Text", "Earlier."),) == first.sections
    assert (("Text", "Later.\n<!-- entry:ms_20260302_00000009 -->\n### not a section"),) == second.sections
    assert "sender_name" not in second.fields


async def test_message_of_several_items_keeps_them(root: Path, everos: Everos) -> None:
    """What is more than one text is kept as it came, beside the text that can be read."""
    items = [
        {"type": "text", "text": "Look:"},
        {"type": "image", "uri": "file:///cat.png"},
        {"type": "text", "text": "Nice."},
    ]
    everos.message(1, content_items_json=json.dumps(items), text="Look:\nNice.")
    await take_over(root)
    ((_, message),) = logged(root)
    assert items == json.loads(message.fields["content_items"])
    assert (("Text", "Look:\nNice."),) == message.sections


async def test_queued_requests_are_taken_and_finished_ones_are_not(root: Path, everos: Everos) -> None:
    """The inbox holds requests that never reached the buffer; a message that is in both is one message."""
    message = {"sender_id": "u_mara", "role": "user", "timestamp": 1_772_476_800_000, "content": "Waiting."}
    everos.queue(
        1, {"session_id": "s_17", "messages": [message, {**message, "content": [{"type": "text", "text": "Also."}]}]}
    )
    everos.queue(2, [{**message, "timestamp": 1_772_476_900, "message_id": "m_s_17_2_0"}])
    everos.queue(3, {"messages": [{**message, "timestamp": 1_772_477_000_000}]}, status="success")
    everos.message(2)
    report = await take_over(root)
    assert (3, ()) == (report.messages, report.skipped)
    texts = {found.fields["message_id"]: dict(found.sections)["Text"] for _, found in logged(root)}
    assert {
        "m_s_17_1772476800000_0": "Waiting.",
        "m_s_17_1772476800000_1": "Also.",
        "m_s_17_2_0": "Message 2.",
    } == texts


async def test_messages_that_everos_has_extracted_are_not_extracted_again(root: Path, everos: Everos) -> None:
    """A message that a memcell names is memory already, wherever a copy of it still lies."""
    everos.message(1)
    everos.message(2)
    everos.insert(
        "memcell",
        memcell_id="mc_1",
        app_id="default",
        project_id="default",
        session_id="s_17",
        track="user",
        raw_type="conversation",
        message_ids_json='["m_s_17_1_0"]',
        sender_ids_json="[]",
        payload_json="{}",
        timestamp=AT,
    )
    assert (await take_over(root)).messages == 1
    assert ["m_s_17_2_0"] == [found.fields["message_id"] for _, found in logged(root)]


async def test_clusters_and_reports_reach_their_owners_log_in_order(root: Path, everos: Everos) -> None:
    """Memberships and consolidations are told in the order of time, under the owner that the cluster has."""
    everos.cluster("cl_a1b2c3d4e5f6")
    everos.cluster("cl_000000000001", "helper", owner_type="agent")
    everos.member("cl_a1b2c3d4e5f6", "u_mara_ep_20260309_00000001", added=FAR)
    everos.member("cl_a1b2c3d4e5f6", "ep_20260302_00000004")
    everos.member("cl_000000000001", "ac_20260302_00000001")
    everos.report("9a2e", "cl_a1b2c3d4e5f6", "ep_20260309_00000001")
    report = await take_over(root)
    assert (3, 1, ()) == (report.members, report.reports, report.skipped)
    rows = {(place.owner.type, place.owner.id): [] for place, _ in logged(root)}  # type: dict[tuple[str, str], list[dict[str, str]]]
    for place, found in logged(root):
        rows[place.owner.type, place.owner.id].append(found.fields)
    assert [("joined", "ep_20260302_00000004"), ("completed", ""), ("joined", "ep_20260309_00000001")] == [
        (fields["event"], fields.get("member_id", "")) for fields in rows["user", "u_mara"]
    ]
    assert ["ac_20260302_00000001"] == [fields["member_id"] for fields in rows["agent", "helper"]]
    completed = rows["user", "u_mara"][1]
    assert {
        "timestamp": "2026-03-09T07:00:00+00:00",
        "event": "completed",
        "cluster_id": "cl_a1b2c3d4e5f6",
        "report_id": "9a2e",
        "mode": "init",
        "source_members": '[{"member_id": "ep_20260301_00000001", "member_type": "episode"}]',
        "source_count": "1",
        "merged_entry_id": "ep_20260309_00000001",
        "deprecated_fact_count": "4",
    } == completed


_REPORTS = (
    "SELECT id, cluster_id, owner_id, app_id, project_id, mode, source_members, source_count, merged_entry_id,"
    " deprecated_fact_count, status, created_at FROM reflection_report ORDER BY id"
)


async def test_reports_of_everos_are_rows_of_ours(root: Path, everos: Everos) -> None:
    """Taken over twice, each consolidation is one row with what it had; nothing is to be finished or restored."""
    everos.cluster("cl_a1b2c3d4e5f6")
    everos.member("cl_a1b2c3d4e5f6", "ep_20260309_00000002", added=FAR)
    everos.report("1" * 32, "cl_a1b2c3d4e5f6", "ep_20260309_00000001")
    everos.report("2" * 32, "cl_a1b2c3d4e5f6", "ep_20260309_00000002", mode="update", source_count=2)
    # As one whose cluster is gone, at the same moment.
    everos.report("3" * 32, "cl_000000000000", "ep_20260309_00000003", status="rolled_back")
    with contextlib.closing(everos.open()) as connection:
        theirs = connection.execute(_REPORTS).fetchall()
    await take_over(root)
    (root / ".index.everos-1").rename(root / ".index")
    assert 4 == (await take_over(root)).already
    async with open_root.opened(root) as ours:
        found = [tuple(each) for each in await ours.reader.fetch(_REPORTS)]
        assert [_comparable(each) for each in theirs] == [_comparable(each) for each in found]
        assert [] == await store_report.unrestored(ours.reader)
        assert (await verify.verify(ours.node.cascade)).is_clean


def _comparable(row: tuple[object, ...]) -> tuple[object, ...]:
    """Return a report with its members and its moment read."""
    moment = dt.datetime.fromisoformat(str(row[-1]))
    aware = moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
    return (*row[:6], str(json.loads(str(row[6]))), *row[7:-1], aware)


async def test_index_is_set_aside_under_a_free_name_and_kept(root: Path, everos: Everos) -> None:
    """The folder gets another name, whatever else lies in it comes along, and nothing is deleted."""
    (root / ".index.everos-1").mkdir()
    lance = root / ".index" / "lancedb" / "episode.lance"
    lance.parent.mkdir()
    lance.write_bytes(b"vectors")
    everos.message(1)
    report = await take_over(root)
    assert ".index.everos-2" == report.set_aside
    assert not (root / ".index").exists()
    kept = root / ".index.everos-2"
    assert b"vectors" == (kept / "lancedb" / "episode.lance").read_bytes()
    with sqlite3.connect(kept / "sqlite" / "system.db") as connection:
        assert (1,) == connection.execute("SELECT count(*) FROM unprocessed_buffer").fetchone()


async def test_takeover_is_refused_while_everos_has_the_database_open(root: Path, everos: Everos) -> None:
    """A running EverOS would go on writing into the renamed folder: the start stops and says so."""
    everos.message(1)
    running = everos.open()
    assert (1,) == running.execute("SELECT count(*) FROM unprocessed_buffer").fetchone()
    with pytest.raises(errors.StoreError, match="has this database open") as refused:
        await take_over(root)
    assert "stop EverOS" in refused.value.hint
    assert (root / ".index").is_dir()
    assert [] == list(root.rglob("*.md"))
    running.close()
    assert (await take_over(root)).messages == 1


async def test_rows_that_make_no_sense_are_reported_and_the_others_taken(root: Path, everos: Everos) -> None:
    """One bad row costs that row: it is named, and stays in the folder set aside."""
    everos.message(1)
    everos.message(2, timestamp="yesterday")
    everos.queue(1, {"messages": [{"role": "user"}]})
    everos.member("cl_gone", "ep_20260302_00000004")
    with contextlib.closing(everos.open()) as connection:
        connection.execute("DROP TABLE memcell")
    report = await take_over(root)
    assert 1 == report.messages
    assert ["unprocessed_buffer row 2", "memorize_inbox row 1", "cluster_member row 1"] == [
        line.partition(":")[0] for line in report.skipped
    ]


@pytest.mark.parametrize("session", ["a/b", "..", "line\nbreak", 'quote"s', "x" * 128, "日記", "CON"])
async def test_sessions_with_odd_ids_keep_them(root: Path, everos: Everos, session: str) -> None:
    """A session id is never a path: it is encoded, and read back as it was."""
    everos.message(1, session)
    report = await take_over(root)
    assert (1, ()) == (report.messages, report.skipped)
    ((place, _),) = logged(root)
    assert session == place.owner.id
    assert [root / "default_app"] == [path for path in root.iterdir() if not path.name.startswith(".")]


async def test_takeover_done_again_over_a_half_done_log_adds_only_what_is_missing(root: Path, everos: Everos) -> None:
    """What the log holds already is counted and left out, also when a row came on another day."""
    for number in range(6):
        everos.message(number)
    everos.cluster("cl_1")
    everos.member("cl_1", "ep_20260302_00000004")
    await take_over(root)
    first = logged(root)
    (root / ".index.everos-1").rename(root / ".index")
    everos.message(7)
    report = await take_over(root)
    assert (1, 0, 7) == (report.messages, report.members, report.already)
    assert len(first) + 1 == len(logged(root))


KILLED = """
import asyncio, os, pathlib, signal, sys, time
from tests.unit import test_takeover
for given_s in sys.stdin:
    if (pid := os.fork()) == 0:
        os.dup2(2, 1)  # for its log
        asyncio.run(test_takeover.take_over(pathlib.Path(sys.argv[1])))
        os._exit(0)
    time.sleep(float(given_s))
    os.kill(pid, signal.SIGKILL)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""
"""Has imported everything once, and forks for each takeover, of which it is told how long it may live."""


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_takeover_killed_at_any_moment_ends_with_each_row_once(root: Path, everos: Everos) -> None:
    """`kill -9` again and again, then a run to the end: every message is in the log exactly once."""
    connection = everos.open()
    with connection:
        connection.executemany(
            "INSERT INTO unprocessed_buffer VALUES (?, ?, ?, 'default', 'default', ?, 'user', 'u_mara', NULL, 'user', ?, '[]', ?, NULL, NULL)",
            [(AT, AT, f"m_{n}", f"s_{n % 60}", AT, f"Message {n}.") for n in range(600)],
        )
    connection.close()
    assert _die_again_and_again(root) > 2, "some must die half way, or this shows nothing"
    if (root / ".index").exists():
        asyncio.run(take_over(root))
    ids = [found.fields["message_id"] for _, found in logged(root)]
    assert sorted(f"m_{n}" for n in range(600)) == sorted(ids)


def _die_again_and_again(root: Path) -> int:
    """Start takeovers and kill each a little later than the one before; return how many died with the log half done."""
    n_rounds = n_half_done = 0
    command = [sys.executable, "-c", KILLED, str(root)]
    # Threads are not forked; and what the killed leave behind goes with the test's own folder.
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "TMPDIR": str(root.parent)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2], env=env
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        while (root / ".index").exists() and n_rounds < 50:
            process.stdin.write(f"{0.02 + 0.01 * n_rounds}\n")
            process.stdin.flush()
            assert int(process.stdout.readline()) in (0, -signal.SIGKILL)
            n_rounds += 1
            n_half_done += 0 < len(list(root.rglob("messages-*.md"))) and (root / ".index").exists()
        process.stdin.close()
    return n_half_done


async def test_Z01_rows_with_ids_that_no_memory_can_have_are_named_and_the_others_taken(
    root: Path, everos: Everos
) -> None:
    """An app called `../../x` or an owner with a NUL stops neither the start nor any other row, and makes no folder."""
    everos.message(1)
    for number, app in enumerate(("../../x", "[1]", ".index", ""), start=2):
        everos.message(number, app_id=app, message_id=f"m{number}")
    everos.cluster("cl_1", "a\0b")
    everos.member("cl_1", "ep_20260301_00000001")
    report = await take_over(root)
    assert (2, 0, 4) == (report.messages, report.members, len(report.skipped))  # an empty app is the default one
    assert {"default_app", ".index.everos-1"} == {path.name for path in root.iterdir()} - {".tmp"}


async def test_a_damaged_everos_database_gives_what_can_be_read(root: Path, everos: Everos) -> None:
    """Bytes that are no UTF-8 in the names of one table cost that table, not the start."""
    everos.message(1)
    with contextlib.closing(everos.open()) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(
            "UPDATE sqlite_master SET sql = replace(sql, 'member_type', CAST(x'22b3ff22' AS TEXT)) WHERE name = 'cluster_member'"
        )
        connection.commit()
    report = await take_over(root)
    assert 1 == report.messages
