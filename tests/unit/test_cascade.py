"""The cascade over a real root: what is on disk is what is searchable, through every kind of trouble."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog

from everosd import config, daemon, errors, types
from everosd.cascade import grown, reading, rebuild, verify
from everosd.log import entry as entries
from everosd.log import entry_text
from everosd.search import query
from tests import effort, fast_clock, open_root

NOBODY = 65534


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An empty root."""
    return tmp_path


@pytest.fixture
async def powerless() -> AsyncIterator[Path]:
    """A root of somebody whom permissions hold back (tests may run as root, whom they do not)."""
    made = Path(tempfile.mkdtemp(prefix="everosd-cascade-"))
    async with opened(made) as node:  # imports everything while it can be read
        await found(node, "walnut")
        await live(node)
        structlog.get_logger().info("imported", exc_info=OSError())
    is_powerful = os.geteuid() == 0
    if is_powerful:
        for folder, _, names in os.walk(made):
            for name in (".", *names):
                os.chown(Path(folder, name), NOBODY, NOBODY)
        os.seteuid(NOBODY)
    try:
        yield made
    finally:
        if is_powerful:
            os.seteuid(0)
        shutil.rmtree(made)


@contextlib.asynccontextmanager
async def opened(root: Path) -> AsyncIterator[daemon.Node]:
    """Open the parts over `root`, everything on disk searchable."""
    settings = await asyncio.to_thread(config.load, root, {})
    async with daemon.open_node(settings, fast_clock.FastClock()) as node:
        await caught_up(node)
        yield node


async def caught_up(node: daemon.Node) -> None:
    """Compare with the disk and wait until all of it is searchable."""
    await node.cascade.reconcile("test")
    await node.cascade.settled(20.0)


async def until(condition: Callable[[], bool]) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110  # of a status that is polled by others too
            await asyncio.sleep(0.01)


def file(root: Path, user: str = "mara", day: str = "2026-03-02") -> Path:
    """Return the path of a day's episodes; its folder is there."""
    path = root / "default_app" / "default_project" / "users" / user / "episodes" / f"episode-{day}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def entry(number: int, text: str, day: str = "20260302") -> str:
    """Return one marked entry."""
    name = f"ep_{day}_{number:08d}"
    return f"<!-- entry:{name} -->\n## {name}\n\n**session_id**: s\n\n### Content\n{text}\n<!-- /entry:{name} -->\n"


def owner(user: str = "mara") -> types.Owner:
    """Return a user of the default scope."""
    return types.Owner(app="default", project="default", type="user", id=user)


async def found(node: daemon.Node, text: str, user: str = "mara") -> list[str]:
    """Return the entry ids that a keyword search finds."""
    answer = await node.search.run(query.Query(owner=owner(user), text=text, method="keyword", top_k=100))
    return sorted(hit.row.entry_id for hit in answer.episodes)


async def live(node: daemon.Node) -> int:
    """Return how many entries and rows count, after making sure that live state and disk agree."""
    report = await verify.verify(node.cascade)
    assert () == report.differences
    return report.entries + report.rows


async def test_W03_the_index_follows_whatever_comes_and_goes(root: Path) -> None:
    """Files made, renamed and deleted one after the other: after each, searches say what the disk says."""
    async with opened(root) as node:
        file(root, day="2026-01-01").write_text(entry(1, "anchor", "20260101"))
        for n in range(6):
            path = file(root, day=f"2026-02-0{n + 1}")
            path.write_text(entry(n + 1, f"walnut{n}", f"2026020{n + 1}"))
            await caught_up(node)
            assert [f"ep_2026020{n + 1}_{n + 1:08d}"] == await found(node, f"walnut{n}")
            path.rename(path.with_name(f"renamed {n}.md"))
            await caught_up(node)
            assert [f"ep_2026020{n + 1}_{n + 1:08d}"] == await found(node, f"walnut{n}")
            if n % 2:
                path.with_name(f"renamed {n}.md").unlink()
                await caught_up(node)
                assert [] == await found(node, f"walnut{n}")
        assert 4 == await live(node)


async def test_W16_an_idle_root_costs_no_write(root: Path) -> None:
    """Comparing an unchanged root again and again changes no byte of the ledger and opens no file."""
    for n in range(9):
        file(root, day=f"2026-03-0{n + 1}").write_text(entry(1, "quiet", f"2026030{n + 1}"))
        old = time.time() - 60
        os.utime(file(root, day=f"2026-03-0{n + 1}"), (old, old))
    async with opened(root) as node:
        before = await node.database.write(lambda connection: connection.total_changes)
        for _ in range(5):
            await caught_up(node)
        assert before == await node.database.write(lambda connection: connection.total_changes)


async def test_W18_unreadable_is_never_deleted(powerless: Path) -> None:
    """A folder, then the root, loses its permissions and gets them back: not one entry goes."""
    root = powerless
    file(root).write_text(entry(1, "walnut"))
    file(root, "ben").write_text(entry(1, "cherry"))
    async with opened(root) as node:
        for folder in (file(root).parent, root / "default_app"):
            folder.chmod(0o000)
            await node.cascade.reconcile("test")
            await node.clock.sleep(2.5)
            await node.cascade.reconcile("test")
            status = node.cascade.status()
            assert ["ep_20260302_00000001"] == await found(node, "walnut")
            assert "unreadable" in {problem.kind for problem in status.problems}
            folder.chmod(0o700)
            await caught_up(node)
        assert () == node.cascade.status().problems
        assert 2 == await live(node)


async def test_W08_what_no_event_told_is_found_by_the_clock(root: Path) -> None:
    """Whatever the watcher keeps silent about, the comparison comes at the interval that is set."""
    settings = await asyncio.to_thread(config.load, root, {}, given={"watch.scan_interval_s": 2.0})
    async with daemon.open_node(settings, fast_clock.FastClock()) as node:
        await caught_up(node)
        for n, word in enumerate(("walnut", "hazel"), start=1):
            file(root).write_text("".join(entry(k, word) for k in range(1, n + 1)))
            async with asyncio.timeout(10):
                while n != len(await found(node, word)):  # noqa: ASYNC110  # of an index: nothing tells
                    await asyncio.sleep(0.01)


async def test_W19_what_was_acknowledged_survives_forced_rescans(root: Path) -> None:
    """Appends while the root is compared without pause, then a restart: all are there, once."""
    async with opened(root) as node:
        tokens = [f"walnut{n}" for n in range(40)]

        async def rescan() -> None:
            while True:
                await node.cascade.reconcile("forced")
                await asyncio.sleep(0)

        rescanning = asyncio.create_task(rescan())
        for word in tokens:
            await node.cascade.writer.append(
                owner(), "episode", [entries.Draft(fields={}, sections=(("Content", word),))]
            )
        rescanning.cancel()
        await caught_up(node)
        assert 40 == await live(node)
    async with opened(root) as node:
        assert [1] * 40 == [len(await found(node, word)) for word in tokens]


async def test_W21_all_files_gone_is_an_alarm_until_a_person_says_so(root: Path) -> None:
    """An emptied root deletes nothing; files that come back clear the alarm; a rebuild accepts the disk."""
    file(root).write_text(entry(1, "walnut"))
    async with opened(root) as node:
        data = file(root).read_bytes()
        file(root).unlink()
        await node.cascade.reconcile("test")
        await node.clock.sleep(2.5)
        assert "everosd rebuild" in node.cascade.status().alarm
        assert ["ep_20260302_00000001"] == await found(node, "walnut")
        file(root).write_bytes(data)
        await caught_up(node)
        assert "" == node.cascade.status().alarm
        file(root).unlink()
        await rebuild.rebuild(node.cascade)
        assert [] == await found(node, "walnut")
        assert ("", 0) == (node.cascade.status().alarm, node.cascade.status().files_indexed)


async def test_W21_after_a_confirmed_mass_deletion_the_next_single_one_is_no_alarm(root: Path) -> None:
    """A rebuild accepted that 300 entries are gone; deleting one more file a moment later is an ordinary deletion."""
    file(root).write_text("".join(entry(n + 1, "walnut") for n in range(300)))
    for day in ("2026-03-03", "2026-03-04"):
        file(root, day=day).write_text(entry(1, "chestnut", day.replace("-", "")))
    async with opened(root) as node:
        file(root).unlink()
        await node.cascade.reconcile("test")
        await until(lambda: node.cascade.status().alarm != "")
        await rebuild.rebuild(node.cascade)
        file(root, day="2026-03-03").unlink()
        await caught_up(node)
        assert ("", 1) == (node.cascade.status().alarm, len(await found(node, "chestnut")))


async def test_W23_an_entry_edited_to_another_topic_is_found_by_the_new_one_only(root: Path) -> None:
    """The old words stop finding it at the moment when the new ones do."""
    file(root).write_text(entry(1, "about walnuts") + entry(2, "about pears"))
    async with opened(root) as node:
        file(root).write_text(entry(1, "about sailing") + entry(2, "about pears"))
        await caught_up(node)
        assert ([], ["ep_20260302_00000001"]) == (await found(node, "walnuts"), await found(node, "sailing"))


async def test_W26_one_bad_file_holds_up_no_other(powerless: Path) -> None:
    """A file that cannot be read stops no other one, and is indexed once it can be read."""
    root = powerless
    days = [f"2026-03-{n + 1:02d}" for n in range(20)]
    for n, day in enumerate(days):
        file(root, day=day).write_text(entry(1, f"walnut{n}", day.replace("-", "")))
    file(root, day=days[4]).chmod(0o000)
    settings = await asyncio.to_thread(config.load, root, {})
    async with daemon.open_node(settings, fast_clock.FastClock()) as node:
        await until(lambda: node.cascade.status().files_indexed == 19)
        assert (20, 19) == (node.cascade.status().files_on_disk, node.cascade.status().files_indexed)
        file(root, day=days[4]).chmod(0o600)
        await caught_up(node)
        assert ["ep_20260305_00000001"] == await found(node, "walnut4")


async def test_P12_an_unreadable_file_is_counted_and_named_until_it_can_be_read(powerless: Path) -> None:
    """Status has the number of files that wait for another attempt, and their paths; both go when they are read."""
    root = powerless
    file(root).write_text(entry(1, "walnut"))
    async with opened(root) as node:
        file(root, "ben").write_text(entry(1, "cherry"))
        file(root, "ben").chmod(0o000)
        await node.cascade.reconcile("test")
        await until(lambda: node.cascade.status().failed_retryable == 1)
        bad = file(root, "ben").relative_to(root).as_posix()
        assert {bad} == {problem.path for problem in node.cascade.status().problems}
        file(root, "ben").chmod(0o600)
        await until(lambda: node.cascade.status().files_indexed == 2)  # by itself, nobody asks
        await caught_up(node)
        assert (0, ()) == (node.cascade.status().failed_retryable, node.cascade.status().problems)


async def test_half_written_and_emptied_files_lose_nothing(root: Path) -> None:
    """A file caught empty or cut while it is saved keeps its entries; what is cut for good goes after the grace."""
    whole = entry(1, "walnut") + entry(2, "cherry")
    file(root).write_text(whole)
    async with opened(root) as node:
        file(root).write_text("")
        await node.cascade.reconcile("test")
        await node.clock.sleep(0.1)
        assert ["ep_20260302_00000002"] == await found(node, "cherry")
        file(root).write_text(whole)
        await caught_up(node)
        file(root).write_text(entry(1, "walnut"))
        await caught_up(node)
        assert ([], ["ep_20260302_00000001"]) == (await found(node, "cherry"), await found(node, "walnut"))


async def test_X15_an_index_that_cannot_be_written_catches_up_by_itself(powerless: Path) -> None:
    """While the index folder is read-only changes wait and are counted; afterwards they are found, nobody helping."""
    root = powerless
    file(root).write_text(entry(1, "walnut"))
    async with opened(root) as node:
        folders = [folder for folder, _, _ in os.walk(root / ".index" / "text")]
        for folder in folders:
            Path(folder).chmod(0o500)
        file(root).write_text(entry(1, "walnut") + entry(2, "cherry"))
        await node.cascade.reconcile("test")
        await until(lambda: node.cascade.status().projections["text"].state == "failing")
        assert node.cascade.status().pending > 0
        for folder in folders:
            Path(folder).chmod(0o700)
        await caught_up(node)
        assert ["ep_20260302_00000002"] == await found(node, "cherry")
        assert "ok" == node.cascade.status().projections["text"].state
        assert 2 == await live(node)


async def test_X14_constant_edits_leave_no_more_than_a_fresh_index(root: Path) -> None:
    """A hundred edits of one entry (forty but with `make long`): the events are pruned and the index has one document."""
    async with opened(root) as node:
        n_edits = effort.rounds(100, 40)
        for n in range(n_edits):
            file(root).write_text(entry(1, f"walnut{n}"))
            node.cascade.mark([types.RelPath(file(root).relative_to(root).as_posix())])
            await node.cascade.settled(20.0)
        events = await node.database.write(
            lambda connection: connection.execute("SELECT count(*) FROM events").fetchone()[0]
        )
        assert (1, 0) == (node.text.index.count(), events)
        assert ["ep_20260302_00000001"] == await found(node, f"walnut{n_edits - 1}")


async def test_I09_a_new_owner_inherits_nothing(root: Path) -> None:
    """Same day and ordinals for two users; one goes, a third comes: each finds its own entries only."""
    file(root).write_text(entry(1, "walnut"))
    file(root, "ben").write_text(entry(1, "cherry"))
    async with opened(root) as node:
        shutil.rmtree(file(root, "ben").parent.parent)
        await caught_up(node)
        file(root, "cleo").write_text(entry(1, "plum"))
        await caught_up(node)
        seen = [
            await found(node, word, user) for user in ("mara", "ben", "cleo") for word in ("walnut", "cherry", "plum")
        ]
        only = ["ep_20260302_00000001"]
        assert [only, [], [], [], [], [], [], [], only] == seen


async def test_a_rebuild_that_was_cut_short_is_taken_up_again(root: Path) -> None:
    """A rebuild that ends in the middle goes on at the next start, and searches are answered throughout."""
    for n in range(30):
        file(root, day=f"2026-03-{n + 1:02d}").write_text(entry(1, f"walnut{n}", f"202603{n + 1:02d}"))
    async with opened(root) as node:
        begun = asyncio.create_task(rebuild.rebuild(node.cascade))
        await asyncio.sleep(0.01)
        begun.cancel()
        await asyncio.gather(begun, return_exceptions=True)
        assert 1 == len(await found(node, "walnut7"))
    async with opened(root) as node:
        async with asyncio.timeout(20):
            while await node.database.write(
                lambda connection: connection.execute("SELECT 1 FROM meta WHERE key = 'rebuild'").fetchone()
            ):
                assert 1 == len(await found(node, "walnut7"))
                await asyncio.sleep(0.01)
        assert 30 == await live(node)


async def test_C02_a_stale_buffer_saved_over_daemon_entries_gets_them_back(root: Path) -> None:
    """A person saves a buffer loaded before the daemon wrote: their edit stands, and so does what the daemon wrote."""
    async with opened(root) as node:
        append = node.cascade.writer.append
        await append(
            owner(), "episode", [entries.Draft(fields={}, sections=(("Content", "first"),))], date="2026-03-02"
        )
        await caught_up(node)
        buffer = file(root).read_text()
        await append(
            owner(), "episode", [entries.Draft(fields={}, sections=(("Content", "second"),))], date="2026-03-02"
        )
        await caught_up(node)
        file(root).write_text(buffer.replace("first", "edited"))
        async with asyncio.timeout(20):
            while "second" not in file(root).read_text():
                await node.cascade.reconcile("test")
                await asyncio.sleep(0.01)
        await caught_up(node)
        assert "edited" in file(root).read_text()
        assert (1, 1, 0) == (
            len(await found(node, "edited")),
            len(await found(node, "second")),
            len(await found(node, "first")),
        )
        assert "healed" in {problem.kind for problem in node.cascade.status().problems}


async def test_C02_a_stale_buffer_over_an_entry_that_both_changed_is_found_as_the_person_saved_it(root: Path) -> None:
    """Nothing has to be put back, so the save stands as it is: read once, told once, and so for each later one."""
    async with opened(root) as node:
        (key,) = await node.cascade.writer.append(
            owner(), "episode", [entries.Draft(fields={}, sections=(("Content", "first"),))], date="2026-03-02"
        )
        await caught_up(node)
        buffer = file(root).read_text()
        await node.cascade.writer.update(
            types.RelPath(file(root).relative_to(root).as_posix()),
            key,
            lambda one: msgspec.structs.replace(one, sections=(("Content", "second"),)),
        )
        await caught_up(node)
        for word in ("plum", "cherry"):
            file(root).write_text(buffer.replace("first", word))
            await caught_up(node)
            assert [1, 0, 0] == [len(await found(node, each)) for each in (word, "second", "first")]
            assert word in file(root).read_text()
        rows = await node.reader.page(owner(), "lifecycle", now_us=0, descending=False, limit=10)
        assert [("conflict", key)] == [
            (one.fields["action"], one.fields["target"])
            for one in (entry_text.read(row.kind, row.entry_id, row.raw) for row in rows[0])
        ]
        assert "healed" in {problem.kind for problem in node.cascade.status().problems}
        report = await verify.verify(node.cascade)
        assert report.is_clean, report.differences
    async with opened(root) as node:
        assert 1 == len(await found(node, "cherry"))


async def messages(node: daemon.Node, *texts: str) -> Path:
    """Append messages to a session; return where they are, once the ledger knows them."""
    session = types.Owner(app="default", project="default", type="session", id="s")
    for text in texts:
        drafts = [entries.Draft(fields={"type": "message"}, sections=(("Text", text),))]
        await node.cascade.writer.append(session, "message", drafts, date="2026-03-02")
    await caught_up(node)
    return node.cascade.root / node.cascade.writer.layout.path_for(session, "message", "2026-03-02")


def message(number: int, text: str) -> str:
    """Return one row of a session."""
    name = f"ms_20260302_{number:08d}"
    return f"<!-- entry:{name} -->\n## {name}\n\n### Text\n{text}\n<!-- /entry:{name} -->\n"


def without(text: str, *numbers: int) -> str:
    """Return a session log without some of its rows."""
    for number in numbers:
        name = f"entry:ms_20260302_{number:08d} -->\n"
        before, _, rest = text.partition(f"<!-- {name}")
        text = before + rest.partition(f"<!-- /{name}")[2]
    return text


async def healed(node: daemon.Node, path: Path, text: str) -> None:
    """Save a text over a file and wait until the daemon has put back what it misses."""
    path.write_text(text)
    async with asyncio.timeout(20):
        while path.read_text() == text:
            await node.cascade.reconcile("test")
            await asyncio.sleep(0.01)
    await caught_up(node)


async def test_C02_a_stale_buffer_saved_over_a_session_gets_its_rows_back(root: Path) -> None:
    """Also when the daemon was started anew since: the ledger knows what came last. It is said, and verify agrees."""
    async with opened(root) as node:
        buffer = (await messages(node, "a", "b")).read_text()
        path = await messages(node, "c", "d")
    async with opened(root) as node:
        await healed(node, path, buffer.replace("\na\n", "\nA\n"))
        assert ["A", "b", "c", "d"] == re.findall(r"(?m)^(\w)$", path.read_text())
        assert "healed" in {problem.kind for problem in node.cascade.status().problems}
        assert 4 == await live(node)
        await messages(node, "e")
        await healed(node, path, buffer)
        assert ["a", "b", "c", "d", "e"] == re.findall(r"(?m)^(\w)$", path.read_text())
        assert 5 == await live(node)


async def test_rows_that_were_meant_to_go_from_a_session_go(root: Path) -> None:
    """From the middle; moved to another file; from the end once they had been put back, after they were loaded again."""
    async with opened(root) as node:
        path = await messages(node, "a", "b", "c", "d", "e", "f")
        whole = path.read_text()
        path.write_text(without(whole, 2))
        await caught_up(node)
        assert 5 == await live(node)
        path.write_text(without(whole, 2, 6))
        row = whole[whole.index("<!-- entry:ms_20260302_00000006 -->") :]
        path.with_name("messages-2026-03-02.part2.md").write_text(row)
        await caught_up(node)
        assert 5 == await live(node)
        await healed(node, path, without(whole, 2, 5, 6))
        assert 5 == await live(node)
        text = without(path.read_text(), 5)
        path.write_text(text)
        await caught_up(node)
        assert (4, text) == (await live(node), path.read_text())


async def test_C04_a_torn_row_that_was_cut_is_not_put_back(root: Path) -> None:
    """The ledger had read half a row that a crash left; the next append cuts it."""
    async with opened(root) as node:
        path = await messages(node, "a")
        with path.open("a") as out:
            out.write("<!-- entry:ms_20260302_00000007 -->\n## ms_20260302_00000007\n\n### Text\nhalf")
        await caught_up(node)
        assert 2 == await live(node)
        await messages(node, "b")
        assert 2 == await live(node)
        assert "half" not in path.read_text()


async def test_a_session_whose_frontmatter_breaks_keeps_its_rows_until_it_is_mended(root: Path) -> None:
    """A stale save with a slip in its frontmatter: what it lacks is put back once the slip is mended."""
    async with opened(root) as node:
        buffer = (await messages(node, "a")).read_text()
        path = await messages(node, "b")
        path.write_text(buffer.replace("schema_version: 1", "schema_version: [1"))
        await caught_up(node)
        await node.clock.sleep(2.5)
        await caught_up(node)
        await healed(node, path, buffer)
        assert ["a", "b"] == re.findall(r"(?m)^(\w)$", path.read_text())
        assert 2 == await live(node)


async def test_an_append_to_a_session_reads_what_was_appended(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the file is: it is read whole once, and the ledger says what a reading of all of it says."""
    whole: list[str] = []
    read = reading.read

    def counted(root: Path, path: types.RelPath, *args: Any) -> reading.Look:
        whole.append(path)
        return read(root, path, *args)

    monkeypatch.setattr(grown, "PROOF_S", 1e9)
    async with opened(root) as node:
        path = await messages(node, "a", "b")
        await messages(node, "c")
        monkeypatch.setattr(reading, "read", counted)
        for n in range(20):
            await messages(node, f"d{n}", f"e{n}")
        monkeypatch.setattr(reading, "read", read)
        assert [] == whole
        assert 43 == await live(node)
        with path.open("a") as out:  # another program: not provable
            out.write(message(99, "theirs"))
        await caught_up(node)
        assert 44 == await live(node)
        await messages(node, "f")
        assert 45 == await live(node)


async def test_a_change_that_hides_behind_an_append_is_found_by_comparing(root: Path) -> None:
    """Somebody changed a row in place in the clock tick of an append: neither size nor time tells."""
    async with opened(root) as node:
        path = await messages(node, "walnut", "b")
        await messages(node, "c")
        at = path.stat()
        with path.open("r+b") as out:
            out.seek(path.read_bytes().index(b"walnut"))
            out.write(b"cherry")
        os.utime(path, ns=(at.st_atime_ns, at.st_mtime_ns))
        await node.clock.sleep(grown.PROOF_S + 1)
        await messages(node, "d")
        assert 4 == await live(node)
        at = path.stat()
        with path.open("r+b") as out:
            out.seek(path.read_bytes().index(b"cherry"))
            out.write(b"walnut")
        os.utime(path, ns=(at.st_atime_ns, at.st_mtime_ns))
        await node.clock.sleep(grown.PROOF_S + 1)
        await caught_up(node)
        assert 4 == await live(node)


@pytest.mark.parametrize("seed", range(6))
async def test_whatever_comes_between_appends_the_ledger_says_what_the_file_says(
    root: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of the daemon, and between them edits, rows of others, half rows, fences, CRLF, copies, deletions."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    if seed % 2:
        monkeypatch.setattr(grown, "PROOF_S", 1e9)

    def lines(path: Path, change: Callable[[str], str]) -> None:
        path.write_bytes(change(path.read_bytes().decode()).encode())

    # After these the file is as plain as before; the others are warned of, and keep it from being read on.
    deeds: list[Callable[[str], str]] = [
        lambda text: text.replace("\nword ", "\nWORD ", 1),
        lambda text: text + message(1000 + len(text), "by hand"),
        lambda text: text.replace("\r\n", "\n").replace("\n", "\r\n"),
        lambda text: text.removesuffix("\n"),
        lambda text: without(text, chance.randrange(1, 9)),
        lambda text: text.replace("schema_version: 1", "schema_version: 2"),
    ]
    odd: list[Callable[[str], str]] = [
        lambda text: text + "<!-- entry:ms_20260302_00000500 -->\nhalf a row",
        lambda text: text + "```\nnot closed\n",
        lambda text: text + "a note below the rows\n",
        lambda text: text + message(1, "an id that is there"),
        lambda text: text.replace("### Text\n", "### Text\n~~~\n", 1),
    ]
    async with opened(root) as node:
        path = await messages(node, "word 0")
        for n in range(30):
            if chance.random() < 0.3:
                lines(path, chance.choice(deeds if seed < 4 or n < 20 else odd))
            if chance.random() < 0.7:
                await messages(node, *(f"word {n} ```\n{at}" for at in range(chance.randrange(1, 4))))
            if chance.random() < 0.3:
                await caught_up(node)
            if n % 5 == 0:
                await live(node)
        await node.clock.sleep(2.5)
        await live(node)


async def test_bytes_that_say_nothing_are_no_deletion(root: Path) -> None:
    """A file that turns into UTF-16 is reported, and its entries are found as they were until it can be read again."""
    file(root).write_text(entry(1, "walnut"))
    file(root, "ben").write_text(entry(1, "cherry"))
    async with opened(root) as node:
        file(root).write_bytes(entry(1, "walnut").encode("utf-16"))
        await caught_up(node)
        await node.clock.sleep(2.5)
        await caught_up(node)
        assert ["ep_20260302_00000001"] == await found(node, "walnut")
        assert "error" in {problem.kind for problem in node.cascade.status().problems}
        assert 1 == await live(node)
        file(root).write_text(entry(1, "apricot"))
        await caught_up(node)
        assert ([], ["ep_20260302_00000001"]) == (await found(node, "walnut"), await found(node, "apricot"))


async def test_a_slow_writer_in_place_takes_nothing_away(root: Path) -> None:
    """While a program keeps a file open for writing, what is missing from it is held; once closed it goes."""
    file(root).write_text(entry(1, "walnut") + entry(2, "cherry"))
    async with opened(root) as node:
        with file(root).open("w") as slow:
            slow.write(entry(1, "walnut"))
            slow.flush()
            await node.cascade.reconcile("test")
            await node.clock.sleep(4.0)
            assert ["ep_20260302_00000002"] == await found(node, "cherry")
        node.cascade.mark([types.RelPath(file(root).relative_to(root).as_posix())])
        await caught_up(node)
        assert [] == await found(node, "cherry")


async def test_a_lost_ledger_takes_its_index_along(root: Path) -> None:
    """Only .index/sqlite is deleted: documents under the old ledger's numbers answer no search."""
    for n in range(5):
        file(root, day=f"2026-03-0{n + 1}").write_text(entry(1, f"walnut{n}", f"2026030{n + 1}"))
    async with opened(root) as node:
        file(root, day="2026-03-01").unlink()
        await caught_up(node)
    shutil.rmtree(root / ".index" / "sqlite")
    async with opened(root) as node:
        assert [[], *([f"ep_2026030{n + 1}_00000001"] for n in range(1, 5))] == [
            await found(node, f"walnut{n}") for n in range(5)
        ]
        assert 4 == await live(node)


async def test_ready_is_not_said_before_the_disk_was_compared(root: Path) -> None:
    """From the first moment at which the daemon calls itself ready, what was on disk at its start is found."""
    for n in range(20):
        file(root, day=f"2026-03-{n + 1:02}").write_text(entry(1, "chestnut", f"202603{n + 1:02}"))
    settings = await asyncio.to_thread(config.load, root, {})
    async with daemon.open_parts(settings, fast_clock.FastClock()) as node:

        async def when_ready() -> int:
            while node.cascade.phase() != "ready":  # noqa: ASYNC110  # looks at every turn of the loop
                await asyncio.sleep(0)
            return node.text.index.count()

        async with asyncio.TaskGroup() as tasks:
            found_then = tasks.create_task(when_ready())
            async with daemon.loops(node, is_watching=False):
                assert 20 == await found_then


async def test_a_successor_that_is_not_there_is_reported_until_it_comes(root: Path) -> None:
    """A pointer that leads nowhere hides nothing and is said; the successor's arrival ends both."""
    old, new = "ep_20260302_00000001", "ep_20260302_00000002"
    head = f"---\ndate: '2026-03-02'\ndeprecated_entries:\n  {old}: {new}\n---\n"
    file(root).write_text(head + entry(1, "walnut"))
    async with opened(root) as node:
        assert [old] == await found(node, "walnut")
        (problem,) = node.cascade.status().problems
        assert ("successor", True) == (problem.kind, new in problem.reason)
        file(root).write_text(head + entry(1, "walnut") + entry(2, "hazel"))
        await caught_up(node)
        assert [] == await found(node, "walnut")
        assert () == node.cascade.status().problems


async def test_an_edit_of_a_large_file_is_one_change(root: Path) -> None:
    """Entries that stay the same are not taken apart again; a copy of one, a swap and a removal are still seen."""
    texts = [entry(n, f"walnut{n} " + "x" * 300) for n in range(1, 301)]
    file(root).write_text("".join(texts))
    async with opened(root) as node:
        lsn = node.cascade.status().lsn
        file(root).write_text("".join(texts).replace("walnut150 ", "cherry150 "))
        await caught_up(node)
        assert (lsn + 1, [], 1) == (
            node.cascade.status().lsn,
            await found(node, "walnut150"),
            len(await found(node, "cherry150")),
        )
        copied = [*texts[:10], entry(1, "walnut1 " + "x" * 300), *reversed(texts[20:])]
        file(root).write_text("".join(copied))
        await caught_up(node)
        assert ([], 1) == (await found(node, "walnut15"), len(await found(node, "walnut299")))
        assert 291 == await live(node)


async def test_I06_a_renamed_skill_keeps_its_id_and_leaves_nothing_behind(root: Path) -> None:
    """The folder of a skill gets another name: same id, new path, one entry."""
    file(root).write_text(entry(1, "walnut"))
    skills = root / "default_app" / "default_project" / "agents" / "helper" / "skills"
    (skills / "skill_brewing").mkdir(parents=True)
    (skills / "skill_brewing" / "SKILL.md").write_text(
        "---\nid: skill_7\ntype: agent_skill\nagent_id: helper\ntrack: agent\nname: brewing\n---\nHeat the water.\n"
    )
    helper = types.Owner(app="default", project="default", type="agent", id="helper")
    async with opened(root) as node:
        (skills / "skill_brewing").rename(skills / "skill_green_tea")
        await caught_up(node)
        kept = await node.reader.find(helper, "skill_7")
        assert kept is not None
        assert "default_app/default_project/agents/helper/skills/skill_green_tea/SKILL.md" == kept.path
        assert 2 == await live(node)


async def test_X01_an_index_grows_in_one_batch_and_one_by_one(root: Path) -> None:
    """A thousand entries at once, a restart, then twenty one after the other: each is found as soon as it is there."""
    n_entries, n_more = effort.rounds(3_000, 1_000), effort.rounds(50, 20)
    file(root).write_text("".join(entry(n, f"walnut{n}") for n in range(1, n_entries + 1)))
    async with opened(root) as node:
        assert [f"ep_20260302_{n_entries:08}"] == await found(node, f"walnut{n_entries}")
    async with opened(root) as node:
        for n in range(1, n_more + 1):
            file(root, "ben").write_text("".join(entry(k, f"cherry{k}") for k in range(1, n + 1)))
            node.cascade.mark([types.RelPath(file(root, "ben").relative_to(root).as_posix())])
            await node.cascade.settled(20.0)
            assert [f"ep_20260302_{n:08d}"] == await found(node, f"cherry{n}", "ben")
        assert n_entries + n_more == node.text.index.count()


async def test_X13_restarts_write_nothing_and_answer_at_once(root: Path) -> None:
    """Five restarts over unchanged files: no change is numbered, and the first search finds."""
    file(root).write_text(entry(1, "walnut"))
    async with opened(root) as node:
        lsn = node.cascade.status().lsn
    for _ in range(5):
        settings = await asyncio.to_thread(config.load, root, {})
        async with daemon.open_node(settings, fast_clock.FastClock()) as node:
            assert ["ep_20260302_00000001"] == await found(node, "walnut")
            await caught_up(node)
            assert lsn == node.cascade.status().lsn


async def test_E04_the_tail_of_a_very_long_line_is_found(root: Path) -> None:
    """200 KB of Chinese in one line, and 3,000 entries beside it: all of it is indexed, its last words too."""
    line = "把機器推論洗成權威事實" * 6_000 + "最後的琥珀"
    file(root).write_text(entry(1, line))
    file(root, "ben").write_text("".join(entry(n, f"plum{n}") for n in range(1, 3001)))
    async with opened(root) as node:
        assert ["ep_20260302_00000001"] == await found(node, "琥珀")
        assert ["ep_20260302_00003000"] == await found(node, "plum3000", "ben")


async def test_verify_says_when_there_is_nothing_to_compare_yet(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not become searchable is named, instead of an internal error."""
    monkeypatch.setattr(verify, "SETTLE_S", 0.05)
    async with opened(root) as node:
        node.text.wake(node.cascade.status().lsn + 1)
        with pytest.raises(errors.IndexUnavailable, match="not everything on disk was searchable"):
            await verify.verify(node.cascade)


async def test_verify_does_not_wait_for_an_index_that_only_fails(powerless: Path) -> None:
    """While its folder refuses to be written, verify soon says which index fails and why."""
    root = powerless
    file(root).write_text(entry(1, "walnut"))
    async with opened(root) as node:
        folders = [Path(folder) for folder, _, _ in os.walk(root / ".index" / "text")]
        for folder in folders:
            folder.chmod(0o500)
        file(root).write_text(entry(1, "cherry"))
        with pytest.raises(errors.IndexUnavailable, match="ermission"):
            await verify.verify(node.cascade)
        for folder in folders:
            folder.chmod(0o700)


async def test_an_entry_that_was_deleted_just_before_a_stop_is_gone_after_the_next_start(tmp_path: Path) -> None:
    """It was withheld when the process ended, and nothing else says that its file has no such entry any more."""
    mara = types.Owner(app="default", project="default", type="user", id="mara")
    async with open_root.opened(tmp_path) as root:
        gone = await root.episode(mara, "Mara sails.")
        await root.episode(mara, "Mara reads.")
        (path, *_) = [one.path for one in await root.all(mara, "episode")]
        text = await root.text(path)
        start, end = text.index(f"<!-- entry:{gone} -->"), text.index(f"<!-- /entry:{gone} -->")
        await root.save(path, text[:start] + text[text.index("\n", end) + 1 :])
        await root.node.cascade.reconcile("test")
        while not len(root.node.cascade._ingest.grace):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    async with open_root.opened(tmp_path) as root:
        assert ["Mara reads."] == [one.raw.rpartition("\n")[2] for one in await root.all(mara, "episode")]
        assert (await verify.verify(root.node.cascade)).is_clean
