"""The writer: acknowledged means on disk, a person's save is never overwritten, and neither is the daemon's entry."""

from __future__ import annotations

import asyncio
import datetime as dt
import errno
import os
import re
import threading
import zoneinfo
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from everosd import clock as clocks
from everosd import errors, types
from everosd.log import displaced, entry, file, heal, job, layout, parse, writer
from tests import memory_journal, steps

UTC = zoneinfo.ZoneInfo("UTC")
MARA = types.Owner(app="default", project="default", type="user", id="u_mara")
SESSION = types.Owner(app="default", project="default", type="session", id="s_1")
DAY = "2026-03-02"
PATH = types.RelPath("default_app/default_project/users/u_mara/episodes/episode-2026-03-02.md")


def episode(text: str) -> entry.Draft:
    """Return an episode to write."""
    return entry.Draft(
        fields={"owner_id": "u_mara", "timestamp": "2026-03-02T10:00:00+00:00"},
        sections=(("Subject", text), ("Content", f"{text} at length")),
    )


class Node:
    """A root with a writer, and eyes and hands of a person on it."""

    def __init__(self, root: Path, *, step: file.Step = file.no_step) -> None:
        """Open it."""
        self.root = root
        self.journal = memory_journal.MemoryJournal()
        self.step = step
        self.writer = self.open()

    def open(self) -> writer.Writer:
        """Return another writer on the same root and journal, as after a restart."""
        places = layout.Layout(self.root)
        return writer.Writer(places, self.journal, clocks.SystemClock(), UTC, step=self._at)

    def _at(self, moment: str) -> None:
        # A test may exchange `step` while the writer lives.
        self.step(moment)

    async def append(self, *texts: str) -> tuple[types.EntryId, ...]:
        """Append episodes."""
        return await self.writer.append(MARA, "episode", [episode(text) for text in texts], date=DAY)

    def path(self, path: str = PATH) -> Path:
        """Return where a file is."""
        return self.root / path

    def text(self, path: str = PATH) -> str:
        """Return what is in a file."""
        return self.path(path).read_text()

    def parsed(self, path: str = PATH) -> parse.Parsed:
        """Read a file."""
        place = layout.place(types.RelPath(path))
        assert place is not None
        return parse.parse(types.RelPath(path), self.path(path).read_bytes(), place)

    def subjects(self, path: str = PATH) -> list[str]:
        """Return the subjects of all entries, in order."""
        return [dict(each.sections).get("Subject", "") for each in self.parsed(path).entries]

    def save(self, text: str, path: str = PATH, *, is_settled: bool = True) -> None:
        """Save as an editor does: by rename."""
        target = self.path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        other = target.with_name("saving")
        other.write_text(text)
        if is_settled:
            steps.age(other)
        other.replace(target)

    def rows(self) -> list[entry.Entry]:
        """Return the rows of the owner's `.lifecycle/`."""
        folder = self.path("default_app/default_project/users/u_mara/.lifecycle")
        return [
            each
            for found in sorted(folder.glob("*.md"))
            for each in self.parsed(found.relative_to(self.root).as_posix()).entries
        ]


class OffClock(clocks.SystemClock):
    """A clock that somebody sets."""

    days = 0

    def now(self) -> dt.datetime:
        """Return a moment so many days away."""
        return super().now() + dt.timedelta(days=self.days)


async def until_there(node: Node, text: str) -> None:
    """Wait until a text is in the file."""
    async with asyncio.timeout(5):
        while text not in await asyncio.to_thread(node.text):  # noqa: ASYNC110 - the disk sends no events here
            await asyncio.sleep(0.02)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    """A node on an empty root."""
    made = Node(tmp_path)
    yield made
    await made.writer.close()


async def test_nothing_is_acknowledged_before_the_journal_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash before that, and a stale save while nothing runs: the next start would take the write for one that never was."""
    node = Node(tmp_path)
    marking, marked = threading.Event(), threading.Event()
    landed = node.journal.landed

    def slowly(number: int) -> None:
        marking.set()
        assert marked.wait(10)
        landed(number)

    monkeypatch.setattr(node.journal, "landed", slowly)
    asking = asyncio.create_task(node.append("first"))
    assert await asyncio.to_thread(marking.wait, 10)
    for _ in range(20):
        await asyncio.sleep(0)
    assert ["first"] == node.subjects()
    assert not asking.done()
    marked.set()
    assert 1 == len(await asking)
    await node.writer.close()


async def test_entries_are_on_disk_when_append_returns(node: Node) -> None:
    """Ids count up from 1, and the file reads back as what was written."""
    assert await node.append("flat", "cat") == ("ep_20260302_00000001", "ep_20260302_00000002")
    assert await node.append("dog") == ("ep_20260302_00000003",)
    assert node.subjects() == ["flat", "cat", "dog"]
    assert node.parsed().warnings == ()
    assert node.parsed().entry_count == 3


async def test_Z08_everything_written_is_private(node: Node) -> None:
    """0600 for files and 0700 for folders, whatever the umask."""
    before = os.umask(0o022)
    try:
        await node.append("flat")
        await node.append("cat")
        await node.writer.append(SESSION, "message", [entry.Draft(sections=(("Text", "hello"),))], date=DAY)
    finally:
        os.umask(before)
    modes = {path.is_dir(): path.stat().st_mode & 0o777 for path in node.root.rglob("*")}
    assert modes == {True: 0o700, False: 0o600}


async def test_many_appends_become_few_replacements(node: Node) -> None:
    """What arrives while the file is busy is written together; every caller gets ids of its own."""
    written: list[str] = []
    node.step = written.append
    ids = await asyncio.gather(*(node.append(f"note {nth}") for nth in range(500)))
    assert len({each for group in ids for each in group}) == 500
    assert sorted(node.subjects()) == sorted(f"note {nth}" for nth in range(500))
    assert written.count("synced") <= 5


async def test_C01_parallel_appends_never_interleave(node: Node) -> None:
    """20 at a time, 50 rounds: each call's entries stand together and in order."""
    for nth in range(50):
        await asyncio.gather(*(node.append(f"{nth}.{each}.a", f"{nth}.{each}.b") for each in range(20)))
    subjects = node.subjects()
    assert len(subjects) == 2000
    assert all(
        one.endswith(".a") and other == one[:-1] + "b" for one, other in zip(subjects[::2], subjects[1::2], strict=True)
    )


async def test_ids_are_never_given_twice(node: Node) -> None:
    """The highest number known to the file, its counter, its pointers, the ledger or this process decides."""
    await node.append("one", "two")
    node.save(re.sub(r"<!-- entry:ep_20260302_00000002.*", "", node.text(), flags=re.DOTALL))
    assert await node.append("three") == ("ep_20260302_00000003",)
    node.journal.high[MARA, "ep", "20260302"] = 41
    assert await node.append("four") == ("ep_20260302_00000042",)
    node.save(node.text().replace("entry_count: 42", "entry_count: 50"))
    assert await node.open().append(MARA, "episode", [episode("five")], date=DAY) == ("ep_20260302_00000051",)


async def test_files_of_one_owner_and_day_share_their_numbers(node: Node) -> None:
    """Typed memories of one day stand in several files, and their ids differ all the same."""
    ids = await asyncio.gather(
        *(
            node.writer.append(MARA, "memory", [episode(kind)], date=DAY, memory_type=kind, memory_path="work/notes")
            for kind in ("semantic", "episodic", "working") * 20
        )
    )
    assert len({each for group in ids for each in group}) == 60


async def test_stamps_only_move_forward(node: Node) -> None:
    """Even when the file's stamp lies ahead of the clock."""
    await node.append("one")
    ahead = (dt.datetime.now(dt.UTC) + dt.timedelta(days=1)).isoformat()
    node.save(re.sub(r"last_appended_at: .*", f"last_appended_at: '{ahead}'", node.text()))
    await node.append("two")
    first = node.parsed().stamp
    assert heal.is_older(ahead, first)
    await node.append("three")
    assert heal.is_older(first, node.parsed().stamp)


async def test_update_changes_one_entry_and_nothing_else(node: Node) -> None:
    """Everything but the entry's text, the stamp and the counter stays byte for byte."""
    await node.append("one", "two")
    before = node.text()
    await node.writer.update(
        PATH, "ep_20260302_00000001", lambda old: msgspec.structs.replace(old, sections=(("Subject", "uno"),))
    )
    assert node.subjects() == ["uno", "two"]
    tail = before[before.index("<!-- entry:ep_20260302_00000002") :]
    assert node.text().endswith(tail)
    (write,) = [write for _, write in list(node.journal.writes.values())[1:]]
    assert list(write.updated) == ["ep_20260302_00000001"]
    assert write.updated["ep_20260302_00000001"].after == node.parsed().entries[0].raw


async def test_update_that_changes_nothing_writes_nothing(node: Node) -> None:
    """Not even a new stamp."""
    await node.append("one")
    before = node.path().stat()
    await node.writer.update(PATH, "ep_20260302_00000001", lambda old: old)
    assert node.path().stat() == before


async def test_what_is_not_there_is_not_found(node: Node) -> None:
    """An unknown entry and an unknown file are told to the one who asked; others' writes go on."""
    with pytest.raises(errors.NotFound):
        await node.writer.deprecate(PATH, {"a": "b"})
    await node.append("one")
    results = await asyncio.gather(
        node.writer.update(PATH, "ep_20260302_00000009", lambda old: old), node.append("two"), return_exceptions=True
    )
    assert isinstance(results[0], errors.NotFound)
    assert node.subjects() == ["one", "two"]


async def test_one_callers_impossible_entry_does_not_fail_the_others(node: Node) -> None:
    """Half a surrogate pair is made text; a field name that is none fails its caller alone, in files of both sorts."""
    bad = (entry.Draft(sections=(("Subject", "\ud800"),)), entry.Draft(fields={"not a name": "x"}))
    for owner, kind in ((MARA, "episode"), (SESSION, "message")):
        results = await asyncio.gather(
            *(node.writer.append(owner, kind, [draft], date=DAY) for draft in (episode("fine"), *bad, episode("too"))),
            return_exceptions=True,
        )
        assert [isinstance(each, ValueError) for each in results] == [False, False, True, False]
        path = node.writer.layout.path_for(owner, kind, DAY)
        assert len(node.parsed(path).entries) == 3


async def test_deprecate_and_revive(node: Node) -> None:
    """Keys of `deprecated_entries` come and go."""
    await node.append("one", "two", "three")
    ids = [each.id for each in node.parsed().entries]
    await asyncio.gather(
        node.writer.deprecate(PATH, {ids[0]: ids[2]}), node.writer.deprecate(PATH, {ids[1]: ids[2]}), node.append("x")
    )
    assert node.parsed().deprecated == {ids[0]: ids[2], ids[1]: ids[2]}
    await node.writer.revive(PATH, ids[:2])
    assert node.parsed().deprecated == {}


async def test_an_entry_that_a_person_edits_meanwhile_is_not_deprecated(node: Node) -> None:
    """What was meant is judged in the very write: a save that lands before it is seen, and its entry stays live."""
    ids = await node.append("one", "two", "three")
    node.step = steps.once("ready", lambda: node.save(node.text().replace("two at length", "two, and more")))
    asked: list[str] = []

    def is_as_read(each: entry.Entry) -> bool:
        asked.append(each.id)
        return "at length" in each.raw

    pointed = await node.writer.deprecate(PATH, {ids[0]: ids[2], ids[1]: ids[2]}, is_as_read)
    assert (ids[0],) == pointed
    assert {ids[0]: ids[2]} == node.parsed().deprecated
    assert [*ids[:2], *ids[:2]] == asked
    assert "two, and more" in node.text()


async def test_an_entry_that_the_daemon_changes_in_the_same_write_is_judged_as_it_will_be(node: Node) -> None:
    """Whoever asks first, a pointer is set by the text that stands beside it on disk."""
    ids = await node.append("one", "two")
    asked = [
        node.writer.deprecate(
            PATH, {ids[0]: ids[1]}, lambda each: "at length" in each.raw or "at length" in str(each.sections)
        ),
        node.writer.update(PATH, ids[0], lambda old: msgspec.structs.replace(old, sections=(("Content", "other"),))),
    ]
    assert () == (await asyncio.gather(*asked))[0]
    assert {} == node.parsed().deprecated


async def test_only_entries_of_the_file_are_pointed(node: Node) -> None:
    """An id whose entry is elsewhere is left out, and no key is set for it; what points there already counts, unasked."""
    ids = await node.append("one", "two", "three")
    missing = "ep_20260302_00000009"
    assert (ids[0],) == await node.writer.deprecate(PATH, {missing: ids[2], ids[0]: ids[2]})
    stamp = node.parsed().stamp
    assert (ids[0],) == await node.writer.deprecate(PATH, {ids[0]: ids[2], ids[1]: ids[2]}, lambda _: False)
    assert ({ids[0]: ids[2]}, stamp) == (node.parsed().deprecated, node.parsed().stamp)
    assert () == await node.writer.deprecate(PATH, {ids[0]: ids[1]}, lambda _: False)


async def test_keys_come_and_go_in_one_write(node: Node) -> None:
    """Sources are revived and their narrative is mapped at once; a key that a person has set to something else stays."""
    ids = await node.append("one", "two", "three")
    await node.writer.deprecate(PATH, {ids[0]: ids[2], ids[1]: "ep_20260303_00000001"})
    n_writes = len(node.journal.writes)
    revived: dict[str, str] = {ids[0]: ids[2], ids[1]: ids[2]}
    assert (ids[2],) == await node.writer.deprecate(PATH, {ids[2]: ids[0]}, revived=revived)
    assert {ids[1]: "ep_20260303_00000001", ids[2]: ids[0]} == node.parsed().deprecated
    assert n_writes + 1 == len(node.journal.writes)


async def test_a_condition_that_fails_fails_its_caller_alone(node: Node) -> None:
    """No key of that caller is set, and the others' writes go on."""
    ids = await node.append("one", "two", "three")

    def fails(each: entry.Entry) -> bool:
        if each.id == ids[1]:
            raise ValueError(each.id)
        return True

    found = await asyncio.gather(
        node.writer.deprecate(PATH, {ids[0]: ids[2], ids[1]: ids[2]}, fails),
        node.append("four"),
        return_exceptions=True,
    )
    assert isinstance(found[0], ValueError)
    assert {} == node.parsed().deprecated
    assert ["one", "two", "three", "four"] == node.subjects()


async def test_adoption_gives_markers_to_hand_written_text(node: Node) -> None:
    """By `adopt`, or the next time the daemon writes the file; the id and text stay."""
    node.save("## Garden\n\nTomatoes need water.\n")
    (before,) = node.parsed().entries
    assert await node.writer.adopt(PATH) == 1
    (after,) = node.parsed().entries
    assert (after.id, after.form, after.digest) == (before.id, "marked", before.digest)
    assert await node.writer.adopt(PATH) == 0


BROKEN = '---\nid: x\ndescription: "abc "def" ghi"\n---\n<!-- entry:ep_20260302_00000007 -->\nold\n<!-- /entry:ep_20260302_00000007 -->\n'


async def test_P01_P06_broken_frontmatter_is_never_rewritten(node: Node) -> None:
    """New entries go to the next part; what must change the file is refused with file and line; no byte changes."""
    node.save(BROKEN)
    assert await node.append("new") == ("ep_20260302_00000008",)
    part = PATH.replace(".md", ".part2.md")
    assert node.subjects(part) == ["new"]
    for ask in (
        lambda: node.writer.deprecate(PATH, {"ep_20260302_00000007": "ep_20260302_00000008"}),
        lambda: node.writer.revive(PATH, ["ep_20260302_00000007"]),
        lambda: node.writer.adopt(PATH),
        lambda: node.writer.update(
            PATH, "ep_20260302_00000007", lambda old: msgspec.structs.replace(old, preamble="new")
        ),
    ):
        with pytest.raises(errors.WriteRefused) as caught:
            await ask()
        assert caught.value.line is not None
        assert PATH in str(caught.value)
    assert node.text() == BROKEN
    node.save(BROKEN.replace('"abc "def" ghi"', "abc"))
    await node.append("mended")
    assert node.subjects()[-1] == "mended"
    assert node.subjects(part) == ["new"]


async def test_P03_byte_order_mark_and_newlines_are_kept(node: Node) -> None:
    """A file with BOM and CRLF has them after an append."""
    node.path().parent.mkdir(parents=True)
    text = "\ufeff---\r\nid: x\r\ndate: '2026-03-02'\r\n---\r\n"
    node.path().write_bytes(text.encode())
    steps.age(node.path())
    await node.append("one")
    data = node.path().read_bytes()
    assert data.startswith(b"\xef\xbb\xbf---\r\n")
    assert b"\n" not in data.replace(b"\r\n", b"")


async def test_P03_utf_16_is_left_alone(node: Node) -> None:
    """It cannot be read, so it is not rewritten."""
    node.path().parent.mkdir(parents=True)
    data = "## Garden\n".encode("utf-16")
    node.path().write_bytes(data)
    steps.age(node.path())
    await node.append("one")
    assert node.path().read_bytes() == data
    assert node.subjects(PATH.replace(".md", ".part2.md")) == ["one"]


async def test_P10_unreadable_file_refuses_and_keeps(node: Node) -> None:
    """Chmod 000: the caller gets the error, the file its peace; later it works again."""
    await node.append("one")
    before = node.text()
    node.path().chmod(0)
    for ask in (node.append("two"), node.writer.deprecate(PATH, {"ep_20260302_00000001": "ep_20260302_00000002"})):
        with pytest.raises(errors.WriteRefused):
            await ask
    node.path().chmod(0o600)
    assert node.text() == before
    await node.append("two")
    assert node.subjects() == ["one", "two"]


@pytest.mark.parametrize("moment", ["opened", "written", "ready"])
async def test_C02_edit_between_read_and_write_survives(node: Node, moment: str) -> None:
    """A person saves while the daemon is about to replace the file: both texts are there afterwards."""
    await node.append("one")
    mine = node.text().replace("### Content\none at length", "### Content\nmine")
    node.step = steps.once(moment, lambda: node.save(mine))
    assert await node.append("two") == ("ep_20260302_00000002",)
    assert node.subjects() == ["one", "two"]
    assert "### Content\nmine" in node.text()


async def test_C02_stale_buffer_is_merged_before_the_next_append(node: Node) -> None:
    """A buffer loaded before two appends is saved after them: the text is kept and the entries come back."""
    await node.append("one")
    buffer = node.text().replace("one at length", "mine")
    await node.append("two")
    await node.append("three")
    node.save(buffer)
    await node.append("four")
    assert node.subjects() == ["one", "four", "two", "three"] or sorted(node.subjects()) == [
        "four",
        "one",
        "three",
        "two",
    ]
    assert "mine" in node.text()
    assert len({each.id for each in node.parsed().entries}) == 4


async def test_C02_healing_reports_what_it_did(node: Node) -> None:
    """Entries, keys and updates made after the buffer was loaded come back; the report names them."""
    await node.append("one", "two", "three")
    ids = [each.id for each in node.parsed().entries]
    buffer = node.text().replace("three at length", "mine")
    await node.append("four")
    await node.writer.deprecate(PATH, {ids[0]: ids[1]})
    await node.writer.update(PATH, ids[1], lambda old: msgspec.structs.replace(old, sections=(("Subject", "due"),)))
    node.save(buffer)
    report = await node.writer.heal(PATH, node.parsed())
    assert report.restored == ("ep_20260302_00000004",)
    assert report.updated == (ids[1],)
    assert report.deprecated == (ids[0],)
    assert report.conflicts == ()
    assert "delete them again" in report.describe()
    assert node.subjects() == ["one", "due", "three", "four"]
    assert node.parsed().deprecated == {ids[0]: ids[1]}
    assert "mine" in node.text()


async def test_C02_conflict_keeps_the_persons_text_and_logs_the_daemons(node: Node) -> None:
    """Both changed one entry: the file has the person's version, `.lifecycle/` the daemon's, once."""
    await node.append("one")
    key = node.parsed().entries[0].id
    buffer = node.text().replace("one at length", "mine")
    await node.writer.update(PATH, key, lambda old: msgspec.structs.replace(old, sections=(("Subject", "daemon's"),)))
    node.save(buffer)
    report = await node.writer.heal(PATH, node.parsed())
    assert [each.entry_id for each in report.conflicts] == [key]
    assert "mine" in node.text()
    (row,) = node.rows()
    assert (row.fields["action"], row.fields["target"]) == ("conflict", key)
    assert "daemon's" in dict(row.sections)["Before"]


async def test_a_save_with_the_current_stamp_means_what_it_says(node: Node) -> None:
    """Deleting an entry in a fresh buffer deletes it."""
    await node.append("one", "two")
    node.save(node.text()[: node.text().index("<!-- entry:ep_20260302_00000002")])
    assert not await node.writer.heal(PATH, node.parsed())
    await node.append("three")
    assert node.subjects() == ["one", "three"]


async def test_C02_stale_save_after_the_index_was_deleted_loses_nothing(node: Node) -> None:
    """Without a journal everything that the ledger knows comes back."""
    await node.append("one")
    buffer = node.text()
    await node.append("two")
    parsed = node.parsed()
    known = {each.id: each.raw for each in parsed.entries}
    fresh = Node(node.root)
    fresh.journal.on_record[PATH] = heal.Known(stamp=parsed.stamp, entries=known)
    node.save(buffer)
    await fresh.append("three")
    await fresh.writer.close()
    assert sorted(node.subjects()) == ["one", "three", "two"]


async def test_C02_in_place_editor_that_saves_into_the_displaced_file(node: Node) -> None:
    """The editor opened the file before the daemon replaced it and writes through its old handle afterwards."""
    await node.append("one")
    steps.age(node.path())
    buffer = node.text().replace("one at length", "mine")
    editor: list[int] = []
    node.step = steps.once("written", lambda: editor.append(os.open(node.path(), os.O_RDWR)))
    await node.append("two")
    os.ftruncate(editor[0], 0)
    os.write(editor[0], buffer.encode())
    os.close(editor[0])
    await until_there(node, "mine")
    assert node.subjects() == ["one", "two"]


@pytest.mark.parametrize("cut", ["last_appended_at", "### Content\nBread"])
@pytest.mark.parametrize("is_killed", [False, True])
async def test_C02_a_save_that_was_half_written_when_it_was_put_back_is_whole_afterwards(
    node: Node, cut: str, *, is_killed: bool
) -> None:
    """The editor writes on where its half was put back; the copy of the half takes nothing out of what came of it."""
    await node.append("Tea", "Bread", "Milk")
    steps.age(node.path())
    whole = node.text().replace("Milk at length", "Milk of goats")
    at = whole.index(cut)
    editor: list[int] = []

    def act(moment: str) -> None:
        if moment == "ready" and not editor:
            editor.append(os.open(node.path(), os.O_WRONLY | os.O_TRUNC))
            os.write(editor[0], whole[:at].encode())
        elif moment == "put_back":
            os.write(editor[0], whole[at:].encode())
            os.close(editor[0])

    node.step = act
    await node.append("Salt")
    assert list((node.root / ".tmp").glob("*.displaced"))
    if is_killed:
        node.writer = node.open()
        await node.writer.recover()
    await node.writer.close()
    assert ["Tea", "Bread", "Milk", "Salt"] == node.subjects()
    assert "Milk of goats" in node.text()


async def test_C02_a_late_save_that_was_taken_up_does_not_come_back_after_a_crash(node: Node) -> None:
    """What was written over it since is the newer text, and a start finds the file that it was saved into still."""
    await node.append("one")
    steps.age(node.path())
    buffer = node.text().replace("one at length", "mine")
    editor: list[int] = []
    node.step = steps.once("written", lambda: editor.append(os.open(node.path(), os.O_RDWR)))
    await node.append("two")
    os.ftruncate(editor[0], 0)
    os.write(editor[0], buffer.encode())
    await until_there(node, "mine")
    async with asyncio.timeout(5):
        while list((node.root / ".tmp").glob("*.save")):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    os.close(editor[0])
    node.save(node.text().replace("mine", "thought better of"))
    assert list((node.root / ".tmp").glob("*.displaced"))
    node.writer = node.open()
    await node.writer.recover()
    assert "thought better of" in node.text()
    assert [] == node.rows()
    await node.writer.close()


async def test_O10_a_late_save_on_a_full_disk_is_told_and_taken_up_later(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a copy nor a new version can be written: the save stays where it is until there is room again."""

    def full(*_: object) -> Path:
        raise OSError(errno.ENOSPC, "no space left on device")

    def step(name: str) -> None:
        if name == "opened":
            full()

    await node.append("flat")
    steps.age(node.path())
    base = node.path().read_bytes()
    mine = base.replace(b"flat at length", b"flat with a view")
    kept = await asyncio.to_thread(displaced.keep_save, node.path(), mine, node.root / ".tmp", base)
    node.writer._watch.add(kept)
    monkeypatch.setattr(displaced, "RETRY_S", 0.3)
    with monkeypatch.context() as disk:
        disk.setattr(displaced, "keep", full)
        node.step = step
        node.writer._watch_displaced()
        async with asyncio.timeout(5):
            while not node.writer.unmerged():  # noqa: ASYNC110 - found out by a loop of its own
                await asyncio.sleep(0.02)
        assert [(PATH, "")] == [(each.path, each.kept_at) for each in node.writer.unmerged()]
        assert "no space" in node.writer.unmerged()[0].reason
        node.step = file.no_step
    await until_there(node, "flat with a view")
    async with asyncio.timeout(5):
        while node.writer.unmerged():  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.02)


async def test_late_save_and_later_changes_are_both_kept(node: Node) -> None:
    """Between the replacement and the late save the daemon wrote on: three versions become one."""
    await node.append("one", "two")
    steps.age(node.path())
    buffer = node.text().replace("one at length", "mine")
    editor: list[int] = []
    node.step = steps.once("written", lambda: editor.append(os.open(node.path(), os.O_RDWR)))
    await node.append("three")
    key = node.parsed().entries[1].id
    await node.writer.update(PATH, key, lambda old: msgspec.structs.replace(old, sections=(("Subject", "due"),)))
    os.ftruncate(editor[0], 0)
    os.write(editor[0], buffer.encode())
    os.close(editor[0])
    await until_there(node, "mine")
    assert node.subjects() == ["one", "due", "three"]


async def test_C02_a_late_save_meets_a_stale_one(node: Node) -> None:
    """What a stale buffer has just wiped is not taken for something that was deleted since the late one was opened."""
    await node.append("one")
    steps.age(node.path())
    stale = node.text()
    await node.append("two")
    steps.age(node.path())
    buffer = node.text().replace("one at length", "mine")
    editor: list[int] = []
    node.step = steps.once("written", lambda: editor.append(os.open(node.path(), os.O_RDWR)))
    await node.append("three")
    node.save(stale.replace("one at length", "one at length, and more"))
    os.ftruncate(editor[0], 0)
    os.write(editor[0], buffer.encode())
    os.close(editor[0])
    await until_there(node, "three")
    await until_there(node, "two")
    assert {"one", "two", "three"} == set(node.subjects())


async def test_a_file_that_is_away_for_a_moment_is_waited_for(node: Node) -> None:
    """An editor that moves the old file to a backup and then writes the new one loses nothing."""
    await node.append("one")
    text = node.text()
    backup = node.path().with_name("backup~")
    node.path().rename(backup)
    pending = asyncio.create_task(node.append("two"))
    await asyncio.sleep(0.1)
    await asyncio.to_thread(node.save, text)
    await pending
    assert node.subjects() == ["one", "two"]


async def test_a_deleted_file_is_begun_anew(node: Node) -> None:
    """After a second it counts as deleted; its ids stay used."""
    await node.append("one")
    node.path().unlink()
    assert await node.append("two") == ("ep_20260302_00000002",)
    assert node.subjects() == ["two"]


async def test_rows_of_machine_logs_are_appended(node: Node) -> None:
    """The file grows at its end and is not replaced."""

    async def say(text: str) -> tuple[types.EntryId, ...]:
        return await node.writer.append(SESSION, "message", [entry.Draft(sections=(("Text", text),))], date=DAY)

    path = node.writer.layout.path_for(SESSION, "message", DAY)
    assert await say("hello") == ("ms_20260302_00000001",)
    inode = node.path(path).stat().st_ino
    await asyncio.gather(*(say(f"message {nth}") for nth in range(100)))
    assert node.path(path).stat().st_ino == inode
    assert len(node.parsed(path).entries) == 101
    assert node.parsed(path).warnings == ()
    with node.path(path).open("a") as out:
        out.write("<!-- entry:ms_20260302_00000102 -->\nhalf a ro")
    assert await say("after the crash") == ("ms_20260302_00000102",)
    assert node.parsed(path).warnings == ()
    assert [each.read_text()[:15] for each in (node.root / ".tmp").glob("*.torn")] == ["<!-- entry:ms_2"]


async def test_whoever_appends_to_a_log_hears_how_it_has_grown(node: Node) -> None:
    """From nothing, from what it was, from what another program made of it; not where somebody wrote in the same turn."""

    async def add(text: str) -> job.Grew | None:
        return await node.writer.append_seen(SESSION, "message", [entry.Draft(sections=(("Text", text),))])

    first = await add("one")
    assert first is not None
    assert first.before is None
    path = node.path(first.path)
    assert first.after == await asyncio.to_thread(file.identify, path)
    second = await add("two")
    assert second is not None
    assert (second.before, second.after) == (first.after, await asyncio.to_thread(file.identify, path))
    with path.open("a") as out:
        out.write("theirs\n")
    changed = await asyncio.to_thread(file.identify, path)
    third = await add("three")
    assert third is not None
    assert (third.before, third.after) == (changed, await asyncio.to_thread(file.identify, path))
    assert [None, None] == list(await asyncio.gather(add("four"), add("five")))


async def say(node: Node, *texts: str) -> str:
    """Append messages; return where they are."""
    for text in texts:
        await node.writer.append(SESSION, "message", [entry.Draft(sections=(("Text", text),))], date=DAY)
    return node.writer.layout.path_for(SESSION, "message", DAY)


def said(node: Node, path: str) -> list[str]:
    """Return the texts of all messages."""
    return [dict(each.sections)["Text"] for each in node.parsed(path).entries]


async def test_C02_a_stale_buffer_over_a_machine_log_costs_no_row(node: Node) -> None:
    """An old copy is saved over newer rows: they are back before anything else is appended, each with its id."""
    path = await say(node, "a", "b")
    buffer = node.text(path)
    await say(node, "c", "d")
    ids = [each.id for each in node.parsed(path).entries]
    node.save(buffer.replace("\na\n", "\nA\n"), path)
    await say(node, "e")
    assert said(node, path) == ["A", "b", "c", "d", "e"]
    assert [each.id for each in node.parsed(path).entries[:4]] == ids
    node.save(buffer, path)
    await say(node, "f")
    assert said(node, path) == ["a", "b", "c", "d", "e", "f"]


async def test_rows_that_a_person_took_out_of_a_machine_log_stay_out(node: Node) -> None:
    """In the middle at once; at the end once they had been put back and were seen by whoever deleted them again."""
    path = await say(node, "a", "b", "c", "d")
    rows = [f"<!-- entry:{each.id} -->\n{each.raw}\n<!-- /entry:{each.id} -->\n" for each in node.parsed(path).entries]
    node.save(node.text(path).replace(rows[1], ""), path)
    await say(node, "e")
    assert said(node, path) == ["a", "c", "d", "e"]
    node.save(node.text(path).replace(rows[3], "").partition("<!-- entry:ms_20260302_00000005")[0], path)
    await say(node, "f")
    assert said(node, path) == ["a", "c", "d", "e", "f"]
    node.save(node.text(path).replace(rows[3], "").partition("<!-- entry:ms_20260302_00000005")[0], path)
    await say(node, "g")
    assert said(node, path) == ["a", "c", "g"]


async def test_O10_a_row_that_was_refused_is_not_put_back(node: Node) -> None:
    """The ledger had read it before the disk was full and it was taken back: whoever asked was told that it is not there."""

    def step(name: str) -> None:
        if name == "written":
            raise OSError(errno.ENOSPC, "no space left on device")

    path = types.RelPath(await say(node, "a"))
    node.step = step
    with pytest.raises(errors.WriteRefused):
        await say(node, "b")
    node.step = file.no_step
    row = heal.Row(id="ms_20260302_00000002", text="## ms_20260302_00000002\n\n### Text\nb", at_us=2**51)
    node.journal.rows[path] = [row]
    report = await node.writer.heal(path, node.parsed(path))
    assert (report.restored, report.meant) == ((), (row.id,))
    await say(node, "c")
    assert said(node, path) == ["a", "c"]
    node.journal.rows[path] = [msgspec.structs.replace(row, id="ms_20260302_00000009")]
    assert (await node.writer.heal(path, node.parsed(path))).restored == ("ms_20260302_00000009",)


async def test_C02_a_late_save_of_a_machine_log_is_merged(node: Node) -> None:
    """Somebody had the log open while rows were put back, and saves into what they had opened."""
    path = await say(node, "a", "b")
    buffer = node.text(path)
    await say(node, "c")
    node.save(buffer, path)
    with node.path(path).open("r+") as editor:
        # Held open, it is replaced only after two seconds.
        await say(node, "d")
        editor.write(buffer.replace("\nb\n", "\nB\n"))
    async with asyncio.timeout(5):
        while said(node, path) != ["a", "B", "c", "d"]:  # noqa: ASYNC110 - the disk sends no events here
            await asyncio.sleep(0.02)


async def test_Z01_nothing_is_written_outside_the_root(node: Node, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A link that leads out is refused by the writer itself."""
    outside = tmp_path_factory.mktemp("outside")
    folder = node.path().parent
    folder.parent.mkdir(parents=True)
    folder.symlink_to(outside)
    with pytest.raises(errors.LogError):
        await node.append("one")
    assert list(outside.iterdir()) == []


async def test_a_cancelled_caller_stops_nobody(node: Node) -> None:
    """Its entry may be written or not; those of others are."""
    tasks = [asyncio.create_task(node.append(f"note {nth}")) for nth in range(20)]
    await asyncio.sleep(0)
    tasks[7].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert set(node.subjects()) >= {f"note {nth}" for nth in range(20) if nth != 7}


async def test_closing_finishes_what_was_asked_and_refuses_more(node: Node) -> None:
    """Nothing that was begun is dropped; afterwards the error says what to do."""
    pending = [asyncio.create_task(node.append(f"note {nth}")) for nth in range(20)]
    await asyncio.sleep(0)
    await node.writer.close()
    assert len([await each for each in pending]) == 20
    with pytest.raises(errors.WriteRefused):
        await node.append("late")


@pytest.mark.parametrize("kind", ["lifecycle", "cluster"])
async def test_rows_written_after_the_clock_was_put_back_stand_behind_those_before(tmp_path: Path, kind: str) -> None:
    """The last row decides: in files of earlier days they would be outdone by what they were to undo, also after a restart."""
    time, places = OffClock(), layout.Layout(tmp_path)
    pens = [writer.Writer(places, memory_journal.MemoryJournal(), time, UTC) for _ in range(2)]

    async def row(nth: int) -> str:
        (made,) = await pens[nth].append(MARA, kind, [entry.Draft(fields={"action": "restore", "target": "ep_1"})])
        return made

    time.days = 400
    written = [await row(0)]
    time.days = 0
    written += [await row(0), await row(1), *await asyncio.gather(*(row(1) for _ in range(3)))]
    assert sorted(written) == written
    assert 6 == len({*written})
    (future,) = (tmp_path / places.owner_folder(MARA) / f".{'clusters' if kind == 'cluster' else kind}").glob("*.md")
    future.unlink()
    assert dt.datetime.now(dt.UTC).strftime("%Y%m%d") in await row(1)
    assert await pens[0].append(SESSION, "message", [entry.Draft(fields={})])
    for one in pens:
        await one.close()
    with pytest.raises(errors.WriteRefused):
        await row(0)
