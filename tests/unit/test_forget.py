"""An owner is forgotten: their files, their messages, and every byte of both in what is derived; and nothing else is."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import threading
from collections.abc import AsyncIterator, Collection
from pathlib import Path

import pytest

from everosd import clock, config, daemon, errors, types
from everosd.engine import runs
from everosd.intake import forget, message, online, row
from everosd.log import entry, file
from tests import steps

MORNING_US = 1_772_442_000_000_000  # 2026-03-02T09:00:00Z
SECRET = "xylophonist"
"""A word that only Mara says."""


def owner(name: str, kind: types.OwnerType = "user") -> types.Owner:
    return types.Owner(app="default", project="default", type=kind, id=name)


def session(name: str = "s_1") -> types.Owner:
    return owner(name, "session")


def said(*texts: str, start: int = 0, sender: str = "mara", role: message.Role = "user") -> list[online.Given]:
    """Return messages a minute apart; `start` is how many came before in the session."""
    return [
        online.Given(
            sender_id=sender, role=role, timestamp_us=MORNING_US + (start + at) * 60_000_000, index=at, text=text
        )
        for at, text in enumerate(texts)
    ]


@contextlib.asynccontextmanager
async def running(root: Path) -> AsyncIterator[daemon.Node]:
    """Open the files with intake."""
    loaded = await asyncio.to_thread(config.load, root, {"EVEROS_EMBEDDING__MODEL": "none"})
    async with daemon.open_node(loaded, clock.SystemClock(), learns=True) as node:
        await settled(node)
        yield node


async def settled(node: daemon.Node) -> None:
    await node.cascade.reconcile("test")
    await node.cascade.settled(20.0)


def intake(node: daemon.Node) -> online.Intake:
    assert node.learning is not None
    return node.learning.intake


def forgetting(node: daemon.Node) -> forget.Forget:
    assert node.learning is not None
    return node.learning.intake.forgetting(node.learning.engine)


async def told(node: daemon.Node, *given: list[online.Given], at: str = "s_1", has_flush: bool = True) -> None:
    """Have messages taken, extracted and followed up."""
    for each in given:
        await intake(node).add(session(at), each, task_id="t")
    if has_flush:
        await intake(node).flush(session(at), task_id="t")
        await intake(node).settled(20.0)
        await settled(node)


def traces(root: Path, word: str = SECRET) -> list[str]:
    """Return the files below the root that have a word, in any case, in their bytes."""
    return steps.holders(root, word)


async def n_found(node: daemon.Node, of: types.Owner, kind: str = "episode") -> int:
    _, n = await node.reader.page(of, kind, now_us=0, limit=1)
    return n


async def merged(node: daemon.Node, cluster_id: str) -> None:
    """Have two narratives of Mara's written, of one of which a row says that it is completed."""
    fields = {"parent_type": "cluster", "parent_id": cluster_id}
    drafts = [
        entry.Draft(fields={**fields, "report_id": each * 32}, sections=(("Content", "All of it."),)) for each in "12"
    ]
    narrative, _ = await node.cascade.writer.append(owner("mara"), "episode", drafts)
    row = {"event": "completed", "cluster_id": cluster_id, "report_id": "1" * 32, "merged_entry_id": narrative}
    await node.cascade.writer.append(owner("mara"), "cluster", [entry.Draft(fields=row)])


async def test_I09_nothing_of_a_forgotten_user_is_left_in_any_byte_of_the_root(tmp_path: Path) -> None:
    """Files, messages, ledger, write-ahead log, text index and `.tmp/` have no word of theirs afterwards."""
    async with running(tmp_path) as node:
        # As SQLite is built in most places: what is deleted stays in its pages.
        await node.cascade.database.write(
            lambda connection: connection.execute("PRAGMA secure_delete = OFF").fetchall()
        )
        await told(node, said(f"I am a {SECRET}. I live in Porto."), at="alone")
        await told(node, said(f"My sister is a {SECRET} too.", "She lives in Lisbon."), at="later")
        await told(node, said(f"Not flushed, {SECRET}.", start=5), at="waiting", has_flush=False)
        await merged(node, f"cl_{SECRET}")
        await settled(node)
        assert len(traces(tmp_path)) > 5
        assert 1 == len(await node.reader.fetch("SELECT id FROM reflection_report"))
        done = await forgetting(node).forget(owner("mara"))
        assert [] == traces(tmp_path)
        assert (4, 3, 3, ()) == (done.messages, done.sessions, done.sessions_removed, done.left)
        assert 0 == await n_found(node, owner("mara"))
        await settled(node)
        assert [] == traces(tmp_path)
        for table in ("reflection_report", "report_rows", "narratives"):
            assert [] == await node.reader.fetch(f"SELECT * FROM {table}"), table  # noqa: S608  # one of these
        assert "" == node.cascade.status().alarm
    assert [] == traces(tmp_path)


async def test_I09_a_later_user_of_the_same_id_inherits_nothing(tmp_path: Path) -> None:
    """Whoever comes by a forgotten id starts with nothing: no entry, no entry id that was given, no message taken for known."""
    async with running(tmp_path) as node:
        await told(node, said("I live in Porto."), at="s_1")
        (before,) = (await node.reader.page(owner("mara"), "episode", now_us=0, limit=9))[0]
        await forgetting(node).forget(owner("mara"))
        again = await intake(node).add(session(), said("I live in Porto."), task_id="t")
        assert 1 == again.message_count
        await told(node, said("I live in Rome.", start=3))
        (after,) = (await node.reader.page(owner("mara"), "episode", now_us=0, limit=9))[0]
        assert "Porto" in after.raw  # said anew
        assert before.entry_id < after.entry_id
        facts, _ = await node.reader.page(owner("mara"), "atomic_fact", now_us=0, limit=9)
        assert {after.entry_id} == {one.parent_id for one in facts}
    async with running(tmp_path) as node:  # and what was said anew is not extracted twice
        await intake(node).settled(20.0)
        await settled(node)
        assert 1 == await n_found(node, owner("mara"))


async def test_I09_what_they_said_is_new_when_it_is_said_again(tmp_path: Path) -> None:
    """In a session that others are part of, too: no segment claims the messages, neither now nor after a restart."""
    alone, among = said("I live in Porto."), said("I like figs.", start=5)
    async with running(tmp_path) as node:
        await told(node, alone)
        await told(node, among, said("So do I.", start=6, sender="ben"))
        assert 2 == await n_found(node, owner("mara"))
        done = await forgetting(node).forget(owner("mara"))
        assert (2, 0) == (done.messages, done.sessions_removed)
        log = "".join(path.read_text() for path in (tmp_path / "default_app/default_project/sessions").rglob("*.md"))
        assert row.memcell_id(session(), [row.message_id("s_1", MORNING_US, 0)]) not in log
        await told(node, alone, among, has_flush=False)
    async with running(tmp_path) as node:
        await told(node)
        rows, _ = await node.reader.page(owner("mara"), "episode", now_us=0, limit=9)
        told_again = "".join(one.raw for one in rows)
        assert (True, True) == ("Porto" in told_again, "figs" in told_again)
    async with running(tmp_path) as node:
        await intake(node).settled(20.0)
        await settled(node)
        assert len(rows) == await n_found(node, owner("mara"))
        assert 1 == await n_found(node, owner("ben"))


async def test_I09_what_others_said_and_remember_stays(tmp_path: Path) -> None:
    """Others' messages, Episodes and facts are as they were, waiting ones are still extracted; who tells of them is named."""
    async with running(tmp_path) as node:
        await told(node, said(f"I play as a {SECRET}."), said("So do I.", start=1, sender="ben"))
        await told(node, said("Ben waits here.", sender="ben"), said("Mara, too.", start=1), at="open", has_flush=False)
        await settled(node)
        (theirs,) = (await node.reader.page(owner("ben"), "episode", now_us=0, limit=9))[0]
        done = await forgetting(node).forget(owner("mara"))
        assert (types.public_id("ben", theirs.entry_id),) == done.quoted_in
        assert (2, 2, 0) == (done.messages, done.sessions, done.sessions_removed)
        after = (await node.reader.page(owner("ben"), "episode", now_us=0, limit=9))[0]
        assert [theirs.raw] == [one.raw for one in after]
        await intake(node).flush(session("open"), task_id="t")
        await intake(node).settled(20.0)
        await settled(node)
        rows = (await node.reader.page(owner("ben"), "episode", now_us=0, limit=9))[0]
        (late,) = (one.raw for one in rows if one.session_id == "open")
        assert (True, False) == ("Ben waits here." in late, "Mara" in late)
        assert 0 == await n_found(node, owner("mara"))
    async with running(tmp_path) as node:
        await intake(node).settled(20.0)
        await settled(node)
        assert (2, 0) == (await n_found(node, owner("ben")), await n_found(node, owner("mara")))


async def test_I09_rows_that_were_taken_out_do_not_come_back(tmp_path: Path) -> None:
    """Neither healing, nor a restart, nor what was appended meanwhile brings them back, and nobody's append is lost."""
    async with running(tmp_path) as node:
        await told(node, said("Ben begins.", sender="ben"), said(f"{SECRET} goes on.", start=1), has_flush=False)
        await settled(node)

        async def adding() -> None:
            for nth in range(20):
                await intake(node).add(session(), said(f"Ben {nth}.", start=9 + nth, sender="ben"), task_id="t")

        added = asyncio.create_task(adding())
        done = await forgetting(node).forget(owner("mara"))
        await added
        await settled(node)
        assert (1, [], ()) == (done.messages, traces(tmp_path), done.left)
        rows = await node.reader.messages("default", "default", "s_1")
        assert 21 == sum(one.kind == "message" for one in rows)
        assert () == node.cascade.status().problems
    async with running(tmp_path) as node:
        assert [] == traces(tmp_path)
        assert 21 == len(await node.reader.messages("default", "default", "s_1"))


async def test_I09_forgetting_most_of_a_root_is_no_accident(tmp_path: Path) -> None:
    """However much goes, no alarm is due to it; what else is gone at that time is not taken for meant, and is held back."""
    mine, lost, other = (
        f"default_app/default_project/users/{name}/episodes/episode-2026-03-02.md" for name in ("mara", "eve", "ben")
    )
    for path, text, n_notes in ((mine, SECRET, 150), (lost, "It hums.", 250), (other, "It drips.", 1)):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text("".join(f"## Note {nth}\n\n{text} {nth}.\n\n" for nth in range(n_notes)))
    async with running(tmp_path) as node:
        assert 401 == node.cascade.status().entries
        await asyncio.to_thread((tmp_path / lost).unlink)
        await node.cascade.reconcile("test")
        while not node.cascade.status().alarm:  # noqa: ASYNC110  # after a second
            await asyncio.sleep(0.01)
        done = await forgetting(node).forget(owner("mara"))
        assert (1, 150) == (done.files, done.entries)
        assert [] == traces(tmp_path)
        assert ["2"] == [path.name for path in (tmp_path / ".index/text").iterdir()]  # filled anew
        assert (251, True) == (node.cascade.status().entries, bool(node.cascade.status().alarm))
        await asyncio.to_thread((tmp_path / lost).write_text, "## Back\n\nHere.\n")
        await settled(node)
        assert "" == node.cascade.status().alarm


@pytest.mark.parametrize("step", ["_ledger_without", "_sweep_generations", "_sweep_index"])
async def test_I09_a_crash_in_the_middle_is_finished_by_asking_again(tmp_path: Path, step: str) -> None:
    """Files are gone, and the ledger was not told or not compacted: asked again, the rest goes; a third time is 404."""
    async with running(tmp_path) as node:
        await told(node, said(f"I am a {SECRET}."))
        folder = tmp_path / node.cascade.writer.layout.owner_folder(owner("mara"))
        failed = forgetting(node)
        setattr(failed, step, _dies)
        with pytest.raises(errors.StoreError):
            await failed.forget(owner("mara"))
        assert not await asyncio.to_thread(folder.exists)
    async with running(tmp_path) as node:
        again = forgetting(node)
        await again.require(owner("mara"))
        await again.forget(owner("mara"))
        assert [] == traces(tmp_path)
        assert "" == node.cascade.status().alarm
        with pytest.raises(errors.NotFound):
            await again.require(owner("mara"))


async def test_I09_a_clock_that_was_set_back_brings_no_row_back(tmp_path: Path) -> None:
    """A row that was noticed later than now is no row that an editor lost, once it was taken out."""
    async with running(tmp_path) as node:
        await told(node, said("One.", "Two."), has_flush=False)
        await settled(node)
        await node.database.write(
            lambda connection: connection.execute("UPDATE entries SET updated_us = updated_us + 9e9")
        )
        (path,) = (tmp_path / "default_app/default_project/sessions/s_1").glob("*.md")
        await node.cascade.writer.expunge(
            types.RelPath(path.relative_to(tmp_path).as_posix()), lambda rows: {rows[-1].id: None}
        )
        await settled(node)
        assert 1 == len(await node.reader.messages("default", "default", "s_1"))
        assert "Two." not in await asyncio.to_thread(path.read_text)


def _dies(*_: object) -> None:
    message = "killed"
    raise errors.StoreError(message)


async def test_I09_agents_and_users_of_one_name_are_two(tmp_path: Path) -> None:
    """Forgetting the agent leaves the user of the same id, and the other way round."""
    async with running(tmp_path) as node:
        await told(node, said("I am a person."), said("I am a program.", start=1, role="assistant"))
        case = entry.Draft(fields={"owner_id": "mara"}, sections=(("TaskIntent", "x"), ("Approach", "y")))
        await node.cascade.writer.append(owner("mara", "agent"), "agent_case", [case])
        await settled(node)
        done = await forgetting(node).forget(owner("mara", "agent"))
        assert (1, 1, 1) == (done.files, done.messages, done.sessions)
        assert 1 == await n_found(node, owner("mara"))
        rows = await node.reader.messages("default", "default", "s_1")
        assert ["I am a person."] == [one.raw.split("### Text\n")[1].strip() for one in rows if one.kind == "message"]


async def test_I09_nobody_of_a_similar_name_is_forgotten(tmp_path: Path) -> None:
    """An id that nobody has is not found, whatever it resembles."""
    async with running(tmp_path) as node:
        await told(node, said("Here I am."))
        for near in ("mar", "maraa", "Mara", "mara "):
            with pytest.raises(errors.NotFound):
                await forgetting(node).require(owner(near))


class SlowExtractor:
    """Reads a segment once it may."""

    def __init__(self) -> None:
        """Wait for `may_go_on`."""
        self.has_begun, self.may_go_on = asyncio.Event(), asyncio.Event()

    async def extract(self, segment: message.Segment) -> message.Extracted:
        """Say what everybody said, after a while."""
        self.has_begun.set()
        await self.may_go_on.wait()
        said_by_all = " ".join(one.text for one in segment.messages)
        return message.Extracted(subject="A talk", summary="", content=said_by_all, by="slow")


async def test_I09_what_is_being_extracted_is_extracted_without_them(tmp_path: Path) -> None:
    """A model that has just read their messages changes nothing: its answer is not taken, and who waits is answered."""
    async with running(tmp_path) as node:
        slow = SlowExtractor()
        intake(node)._episodes._extractor = slow
        await told(node, said(f"I am a {SECRET}."), said("I am Ben.", start=1, sender="ben"), has_flush=False)
        await told(node, said(f"I, the {SECRET}, am alone."), at="alone", has_flush=False)
        both = asyncio.create_task(intake(node).flush(session(), task_id="t"))
        alone = asyncio.create_task(intake(node).flush(session("alone"), task_id="t"))
        await slow.has_begun.wait()
        done = await forgetting(node).forget(owner("mara"))
        slow.may_go_on.set()
        await asyncio.wait_for(asyncio.gather(both, alone), 10)
        await intake(node).settled(20.0)
        await settled(node)
        assert (2, 1, []) == (done.messages, done.sessions_removed, traces(tmp_path))
        (his,) = (await node.reader.page(owner("ben"), "episode", now_us=0, limit=9))[0]
        assert "I am Ben." in his.raw
        assert 0 == await n_found(node, owner("mara"))


async def test_C02_rows_are_taken_out_of_what_is_there_at_that_moment(tmp_path: Path) -> None:
    """A save that comes between reading and replacing stays, without the rows that are taken out."""
    async with running(tmp_path) as node:
        pen = node.cascade.writer
        await told(node, said("One.", "Two."), has_flush=False)
        (path,) = (tmp_path / "default_app/default_project/sessions/s_1").glob("*.md")
        relative = types.RelPath(path.relative_to(tmp_path).as_posix())
        calls = []

        def change(rows: object) -> dict[str, entry.Entry | None]:
            assert isinstance(rows, tuple)
            calls.append(len(rows))
            if len(calls) == 1:
                path.write_text(path.read_text().replace("Two.", "Two, corrected."))
                steps.age(path)
            return {rows[0].id: None}

        gone = await pen.expunge(relative, change)
        text = (await asyncio.to_thread(file.read, path)).data.decode()
        assert (1, 2) == (len(gone), len(calls))
        assert ("One." in text, "Two, corrected." in text) == (False, True)


async def test_nothing_is_written_to_what_is_being_erased(tmp_path: Path) -> None:
    """An append that comes meanwhile is refused with what to do, and is taken afterwards."""
    async with running(tmp_path) as node:
        pen, draft = node.cascade.writer, entry.Draft(sections=(("Content", "x"),))
        folder = pen.layout.owner_folder(owner("mara"))
        async with pen.erasing((folder,)):
            with pytest.raises(errors.WriteRefused, match="is being erased"):
                await pen.append(owner("mara"), "episode", [draft])
            await pen.append(owner("marabu"), "episode", [draft])
        await pen.append(owner("mara"), "episode", [draft])


async def test_I09_what_a_strategy_remembers_of_a_forgotten_user_does_not_come_back(tmp_path: Path) -> None:
    """Whoever comes by a forgotten id gets a profile of what they say: not a word of what was taken out of the former one."""
    async with running(tmp_path) as node:
        await told(node, said(f"I work as a {SECRET}."))
        profile = tmp_path / node.cascade.writer.layout.path_for(owner("mara"), "profile", None)
        assert SECRET in await asyncio.to_thread(profile.read_text)
        await forgetting(node).forget(owner("mara"))
        await told(node, said("I live in Rome.", start=3), at="s_2")
        assert "Rome" in await asyncio.to_thread(profile.read_text)
        assert [] == traces(tmp_path)


# -- moments -----------------------------------------------------------------------------------------------------------


class HeldPen:
    """Has whoever appends entries of one kind wait until it may."""

    def __init__(self, node: daemon.Node, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Stand before the writer of `node`."""
        self.has_come, self.may_go_on, self.is_done = asyncio.Event(), asyncio.Event(), asyncio.Event()
        append = node.cascade.writer.append

        async def held(of: types.Owner, what: str, *given: object, **more: object) -> object:
            if what != kind:
                return await append(of, what, *given, **more)  # type: ignore[arg-type]
            self.has_come.set()
            await self.may_go_on.wait()
            ids = await append(of, what, *given, **more)  # type: ignore[arg-type]
            self.is_done.set()
            return ids

        monkeypatch.setattr(node.cascade.writer, "append", held)


async def test_I09_what_a_strategy_writes_at_that_moment_goes_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Facts that come to disk and into the ledger after the files were listed, and before they are deleted."""
    async with running(tmp_path) as node:
        held = HeldPen(node, "atomic_fact", monkeypatch)
        await told(node, said(f"I am a {SECRET}."), has_flush=False)
        await intake(node).flush(session(), task_id="t")
        await node.cascade.reconcile("test")
        await held.has_come.wait()
        late = forgetting(node)
        listed, loop = late._on_disk, asyncio.get_running_loop()

        async def go_on() -> None:
            held.may_go_on.set()
            await held.is_done.wait()
            await node.cascade.reconcile("test")
            while not await n_found(node, owner("mara"), "atomic_fact"):  # noqa: ASYNC110  # the ledger tells nobody
                await asyncio.sleep(0.005)

        def on_disk(
            of: types.Owner, known: Collection[types.RelPath]
        ) -> tuple[list[types.RelPath], list[types.RelPath]]:
            found = listed(of, known)
            asyncio.run_coroutine_threadsafe(go_on(), loop).result(10)
            return found

        monkeypatch.setattr(late, "_on_disk", on_disk)
        done = await late.forget(owner("mara"))
        assert ([], ()) == (traces(tmp_path), done.left)
        await settled(node)
        assert ([], 0) == (traces(tmp_path), await n_found(node, owner("mara"), "atomic_fact"))
        assert "" == node.cascade.status().alarm


async def test_I09_what_is_being_read_at_that_moment_does_not_come_in_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that was read before it was deleted, and is not in the ledger yet: the forgetting waits for it."""
    async with running(tmp_path) as node:
        ingest = node.cascade._ingest
        read, is_read, may_go_on = ingest.read, threading.Event(), threading.Event()

        def slow(*given: object) -> object:
            looks = read(*given)  # type: ignore[arg-type]
            is_read.set()
            may_go_on.wait(10)
            return looks

        monkeypatch.setattr(ingest, "read", slow)
        draft = entry.Draft(sections=(("Content", f"I shall be a {SECRET}."),))
        await node.cascade.writer.append(owner("mara"), "foresight", [draft])
        await node.cascade.reconcile("test")
        assert await asyncio.to_thread(is_read.wait, 10)
        begun = forgetting(node)
        without = begun._ledger_without

        async def ledger_without(*given: object) -> None:
            waiting = asyncio.create_task(without(*given))  # type: ignore[arg-type]
            done, _ = await asyncio.wait([waiting], timeout=0.2)
            may_go_on.set()
            assert set() == done
            await waiting

        monkeypatch.setattr(begun, "_ledger_without", ledger_without)
        await begun.forget(owner("mara"))
        assert [] == traces(tmp_path)
        await settled(node)
        assert [] == traces(tmp_path)


async def test_I09_the_answer_comes_once_the_former_index_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the index that was replaced takes to close."""
    async with running(tmp_path) as node:
        await told(node, said(f"I am a {SECRET}."))
        close, has_closed = node.text.index.close, threading.Event()

        def slow() -> None:
            threading.Event().wait(0.5)
            close()
            has_closed.set()

        monkeypatch.setattr(node.text.index, "close", slow)
        await forgetting(node).forget(owner("mara"))
        assert ([], True) == (traces(tmp_path), has_closed.is_set())


async def test_I09_segments_that_are_merged_meanwhile_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A merge of the former index that writes a file while its folder is being deleted leaves that folder there."""
    async with running(tmp_path) as node:
        await told(node, said(f"I am a {SECRET}."))
        merging = [tmp_path / ".index/text/1"]

        def rmtree(path: Path, *, ignore_errors: bool = False) -> None:
            remove(path, ignore_errors=ignore_errors)
            if path in merging:
                merging.clear()
                (path / "long").mkdir(parents=True)
                (path / "long/merged.term").write_text(SECRET)

        remove = shutil.rmtree
        monkeypatch.setattr(shutil, "rmtree", rmtree)
        done = await forgetting(node).forget(owner("mara"))
        assert ([], ["2"], (), []) == (
            traces(tmp_path),
            [path.name for path in (tmp_path / ".index/text").iterdir()],
            done.left,
            merging,
        )


async def test_I09_an_index_that_is_being_filled_anew_is_filled_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a rebuild, or because somebody else is being forgotten: what it took in before is in its segments."""
    async with running(tmp_path) as node:
        await told(node, said(f"I am a {SECRET}."))
        await told(node, said("I am Ben.", sender="ben"), at="s_2")
        is_filled, may_swap = asyncio.Event(), asyncio.Event()

        async def before_swap(_: object) -> None:
            is_filled.set()
            await may_swap.wait()

        monkeypatch.setattr(node.text, "before_swap", before_swap)
        await node.text.rebuild()
        await is_filled.wait()

        def progress(stage: str, _done: int, _total: int) -> None:
            if stage == "text":
                may_swap.set()

        await forgetting(node).forget(owner("mara"), progress)
        names = [path.name for path in (tmp_path / ".index/text").iterdir()]
        assert (["3"], []) == (names, traces(tmp_path))


async def test_I09_runs_that_are_cut_off_are_struck_from_the_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records are written behind the work: none of a forgotten owner comes after the others were struck."""
    monkeypatch.setattr(runs, "BATCH_S", 60.0)
    async with running(tmp_path) as node:
        held = HeldPen(node, "atomic_fact", monkeypatch)
        await told(node, said(f"I am a {SECRET}."), has_flush=False)
        await intake(node).flush(session(), task_id="t")
        await node.cascade.reconcile("test")
        await held.has_come.wait()
        await forgetting(node).forget(owner("mara"))
        assert node.learning is not None
        await node.learning.engine._runs.flush()
        assert [] == await node.reader.fetch("SELECT * FROM runs WHERE owner_id = 'mara'")


async def test_I09_a_ledger_that_could_not_be_written_anew_is_so_when_it_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody reads it all the time, or the disk is full: until that is done nobody is told that there is no such user."""
    async with running(tmp_path) as node:
        await told(node, said(f"I am a {SECRET}."))
        with monkeypatch.context() as patch:
            patch.setattr(node.database, "_compact", _dies)
            with pytest.raises(errors.StoreError):
                await forgetting(node).forget(owner("mara"))
        await forgetting(node).require(owner("mara"))
        await forgetting(node).forget(owner("mara"))
        assert ([], []) == (traces(tmp_path), traces(tmp_path / ".index", 'forget ["default"'))
        with pytest.raises(errors.NotFound):
            await forgetting(node).require(owner("mara"))
