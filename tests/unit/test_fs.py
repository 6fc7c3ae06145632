"""The watcher on real folders: what is changed is noticed, once, and what may have been missed is looked for."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import random
import shutil
import subprocess
import sys
import textwrap
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import structlog
import structlog.testing
from watchdog.observers import inotify_c

from everosd import clock as clocks
from everosd.log import swap
from everosd.types import RelPath
from everosd.watch import fs, kernel, scan, settle
from tests import effort

USER = "default_app/default_project/users/u_mara"
EPISODES = f"{USER}/episodes"
DAY = RelPath(f"{EPISODES}/episode-2026-01-01.md")
TIMEOUT_S = 20.0


class Eyes:
    """A watcher at work on a root, and everything it led to."""

    def __init__(self, root: Path, *, mode: fs.Mode = "inotify", clock: clocks.Clock | None = None) -> None:
        """Prepare; nothing is watched yet."""
        self.root = root
        self.settler = settle.Settler(clocks.SystemClock())
        self.watcher = fs.Watcher(root, self.settler, mode=mode, clock=clock, poll_interval_s=0.05, check_s=0.05)
        self.batches: list[settle.Batch] = []
        self.changes: list[RelPath] = []
        """Paths in the order in which they were found to be different from what they were before."""
        self.absences: list[RelPath] = []
        self.known: dict[RelPath, scan.DiskFile] = {}
        self._news = asyncio.Condition()

    async def follow(self) -> None:
        """Do what the cascade does: look where the batches say."""
        while True:
            batch = await self.settler.next()
            found = await asyncio.to_thread(self._found, batch)
            async with self._news:
                self.batches.append(batch)
                for path, file in found.items():
                    self._see(path, file)
                self._news.notify_all()

    def _found(self, batch: settle.Batch) -> dict[RelPath, object]:
        found: dict[RelPath, object] = {path: scan.look(self.root, path) for path in batch.paths}
        for folder in batch.folders:
            found |= scan.scan(self.root, below=folder).files
            found |= {p: scan.look(self.root, p) for p in self.known if p.startswith(f"{folder}/") and p not in found}
        if batch.rescan:
            whole = scan.scan(self.root)
            found |= whole.files
            found |= {p: scan.look(self.root, p) for p in self.known if p not in whole.files and whole.knows(p)}
        return found

    def _see(self, path: RelPath, file: object) -> None:
        if isinstance(file, scan.DiskFile):
            if self.known.get(path) != file:
                self.changes.append(path)
                self.known[path] = file
        elif isinstance(file, scan.Absent) and path in self.known:
            del self.known[path]
            self.absences.append(path)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a batch makes a condition true."""
        async with asyncio.timeout(TIMEOUT_S), self._news:
            await self._news.wait_for(condition)

    async def quiet(self) -> None:
        """Wait until all that happened before is noticed."""
        last = RelPath(f"{EPISODES}/last-{len(self.batches)}-{len(self.changes)}.md")
        write(self.root, last)
        await self.until(lambda: last in self.changes and len(self.settler) == 0)

    async def changed(self, path: str, times: int = 1) -> None:
        """Wait until a path was found different that often."""
        await self.until(lambda: self.n_changes(path) >= times)

    def n_changes(self, path: str) -> int:
        """Count how often a path was found different."""
        return sum(each == path for each in self.changes)


def write(root: Path, path: str, text: str = "x") -> Path:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


@contextlib.asynccontextmanager
async def watching(root: Path, *, mode: fs.Mode = "inotify", clock: clocks.Clock | None = None) -> AsyncIterator[Eyes]:
    eyes = Eyes(root, mode=mode, clock=clock)
    await eyes.watcher.start()
    eyes.known = await asyncio.to_thread(lambda: scan.scan(root).files)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(eyes.watcher.run(), name="run"), group.create_task(eyes.follow(), name="follow")]
        try:
            yield eyes
        finally:
            for task in tasks:
                task.cancel()
            await eyes.watcher.stop()


async def shell(command: str, cwd: Path) -> None:
    process = await asyncio.create_subprocess_shell(
        command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    _, complaint = await process.communicate()
    assert (0, b"") == (process.returncode, complaint)


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():  # noqa: ASYNC110 - states of the watcher raise no event
            await asyncio.sleep(0.005)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(tmp_path, DAY, "one\n" * 50)
    return tmp_path


async def test_W01_new_file_is_noticed(root: Path) -> None:
    """A file dropped into a watched folder leads to a look at it, and the watcher says that it is well."""
    path = RelPath(f"{EPISODES}/episode-2026-01-02.md")
    async with watching(root) as eyes:
        assert ("inotify", True, "") == (eyes.watcher.mode, eyes.watcher.healthy, eyes.watcher.reason)
        assert eyes.watcher.n_folders == 5 + 1
        write(root, path)
        await eyes.until(lambda: path in eyes.changes)
    assert not eyes.watcher.healthy


SAVES = {
    "vim": "vim -u NONE -i NONE -N -es -c '%s/$/!/' -c 'wq' {name}",
    "vim_in_place": "vim -u NONE -i NONE -N -es -c 'set backupcopy=yes' -c '%s/$/!/' -c 'wq' {name}",
    "vim_backup": "vim -u NONE -i NONE -N -es -c 'set backup backupcopy=no' -c '%s/$/!/' -c 'wq' {name}",
    "sed": "sed -i 's/$/!/' {name}",
    "mv": "sed 's/$/!/' {name} > .{name}.tmp && mv .{name}.tmp {name}",
    "mv_markdown": "sed 's/$/!/' {name} > t-{name} && mv t-{name} {name}",
    "append": "echo more >> {name}",
    "cp": "sed 's/$/!/' {name} > {name}.tmp; cp {name}.tmp {name}; rm {name}.tmp",
}


@pytest.mark.parametrize("save", SAVES)
async def test_W12_editor_saves_are_noticed_once(root: Path, save: str) -> None:
    """Ten saves by an editor are ten changes, and the file is never found absent in between."""
    name = DAY.rpartition("/")[2]
    async with watching(root) as eyes:
        for n in range(1, 11):
            await shell(SAVES[save].format(name=name), root / EPISODES)
            await eyes.changed(DAY, n)
        await eyes.quiet()
    assert 10 == eyes.n_changes(DAY)
    assert DAY not in eyes.absences


async def test_W12_checkout_is_noticed_as_a_whole(root: Path) -> None:
    """`git checkout` of another state of forty files is one change per file, in few batches."""
    git = "git -c user.name=n -c user.email=e -c init.defaultBranch=main -c core.fsync=none"
    for n in range(40):
        write(root, f"{EPISODES}/episode-2026-02-{n:02}.md", "old")
    await shell(f"{git} init -q && {git} add . && {git} commit -qm old", root)
    for n in range(40):
        write(root, f"{EPISODES}/episode-2026-02-{n:02}.md", "newer")
    await shell(f"{git} commit -qam new", root)
    async with watching(root) as eyes:
        await shell(f"{git} checkout -q HEAD~1", root)
        await eyes.until(lambda: len(eyes.changes) >= 40)
        await eyes.quiet()
    assert [] == eyes.absences
    assert {1} == {eyes.n_changes(f"{EPISODES}/episode-2026-02-{n:02}.md") for n in range(40)}


async def test_W10_copied_tree_is_noticed_whole(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Two hundred files three folders deep, and a file in folders made a moment before, are all found."""
    away = tmp_path_factory.mktemp("away")
    paths = {f"app/p{n % 4}/users/u{n % 10}/episodes/{n % 3}/episode-{n}.md" for n in range(200)}
    for path in paths:
        write(away, path)
    deep = f"{USER}/memories/a/b/c/semantic-2026-01-01.md"
    async with watching(root) as eyes:
        await shell(f"cp -a {away}/app {root}/", root)
        await shell(f"mkdir -p {USER}/memories/a/b/c && echo > {deep}", root)
        await eyes.until(lambda: {*paths, deep} <= set(eyes.changes))
        late = f"{USER}/memories/a/b/c/late-2026-01-01.md"
        write(root, late)
        await eyes.until(lambda: late in eyes.changes)


async def test_W25_folders_of_a_new_app_are_watched(root: Path) -> None:
    """An app, project and user made by hand while the watcher runs are watched like the others."""
    async with watching(root) as eyes:
        for n in range(3):
            path = f"app{n}/pro/users/u/user.md"
            write(root, path)
            await eyes.changed(path)
            write(root, path, f"edited {n}")
            await eyes.changed(path, 2)


async def test_W13_temporary_names_that_vanish_are_no_news(root: Path) -> None:
    """A hundred temporary files that come and go lead to no look at anything but the file they become."""
    async with watching(root) as eyes:
        for n in range(100):
            temporary = write(root, f"{DAY}.tmp.1")
            temporary.rename(root / f"{DAY}.tmp.2")
            (root / f"{DAY}.tmp.2").unlink()
            gone = write(root, f"{EPISODES}/gone-{n}.md")
            gone.unlink()
        await eyes.quiet()
    assert {path for batch in eyes.batches for path in batch.paths if ".tmp" in path} == set()
    assert [] == eyes.absences
    assert eyes.watcher.n_restarts == 0


async def test_W14_conflict_copy_is_told_apart(root: Path) -> None:
    """A conflict copy that appears is told for the status and never as a file to read; leftovers are not told."""
    conflict = f"{EPISODES}/e.sync-conflict-20260101-1-ABC.md"
    async with watching(root) as eyes:
        for name in (".#e.md", "e.md~", ".e.md.swp", "e.md.tmp", "#e.md#"):
            write(root, f"{EPISODES}/{name}")
        write(root, conflict)
        await eyes.until(lambda: any(conflict in batch.others for batch in eyes.batches))
        await eyes.quiet()
    assert {1} == {len(batch.paths | batch.others | batch.folders) for batch in eyes.batches}


async def test_W15_nothing_but_changes_of_memory_wakes_the_watcher(root: Path) -> None:
    """Reads, and writes to the index, the cache, the lock and temporary files, post nothing to the event loop."""
    posted: list[str] = []

    class Listener:
        def file(self, path: RelPath, *, is_final: bool, is_writing: bool) -> None:
            posted.append(f"{path} {is_final} {is_writing}")

        def folder(self, path: RelPath) -> None:
            posted.append(path)

        def lost(self, reason: str) -> None:
            posted.append(reason)

    write(root, ".index/sqlite/system.db")
    tree = kernel.Tree(root, Listener())
    await asyncio.to_thread(tree.open)
    try:
        for n in range(50):
            (root / DAY).read_bytes()
            list((root / EPISODES).iterdir())
            write(root, f".index/text/{n}/segment.md")
            write(root, f".cache/{n}.md")
            write(root, f".tmp/{n}.md")
            write(root, ".lock")
            write(root, f"{USER}/.obsidian/{n}.md")
        write(root, f"{EPISODES}/last.md")
        await eventually(lambda: any("last.md True" in each for each in posted))
    finally:
        await asyncio.to_thread(tree.close)
    assert [] == [each for each in posted if "last.md" not in each]


@pytest.mark.parametrize("mode", ["inotify", "polling"])
async def test_moves_are_noticed_at_both_ends(root: Path, mode: fs.Mode) -> None:
    """A file or a whole folder that is moved is gone here and found there, and is still watched there."""
    write(root, f"{USER}/memories/old/semantic-2026-01-01.md")
    write(root, f"{USER}/memories/old/deep/semantic-2026-01-01.md")
    async with watching(root, mode=mode) as eyes:
        there = RelPath(f"{EPISODES}/moved.md")
        (root / DAY).rename(root / there)
        await eyes.until(lambda: DAY in eyes.absences and there in eyes.known)
        (root / USER / "memories/old").rename(root / USER / "memories/new")
        new = RelPath(f"{USER}/memories/new/deep/semantic-2026-01-01.md")
        await eyes.until(lambda: len(eyes.absences) == 3 and new in eyes.known)
        write(root, new, "edited there")
        await eyes.until(lambda: eyes.n_changes(new) == 2)
        shutil.rmtree(root / USER / "memories")
        await eyes.until(lambda: not any("memories" in path for path in eyes.known))


async def test_folder_moved_away_and_another_put_in_its_place_is_watched(root: Path, tmp_path: Path) -> None:
    """A folder swapped for another one of the same name is watched anew."""
    away = tmp_path.parent / f"{tmp_path.name}-away"
    async with watching(root) as eyes:
        for n in range(5):
            (root / EPISODES).rename(away)
            shutil.copytree(away, root / EPISODES)
            shutil.rmtree(away)
            path = f"{EPISODES}/after-{n}.md"
            write(root, path)
            await eyes.changed(path)
            write(root, path, "edited")
            await eyes.changed(path, 2)


async def test_change_is_noticed_at_the_links_to_it(root: Path) -> None:
    """What is written at the target of a link inside the root is a change at the link as well."""
    ben = root / "default_app/default_project/users/u_ben"
    (ben / "episodes").mkdir(parents=True)
    (ben / "episodes/one.md").symlink_to(root / DAY)
    async with watching(root) as eyes:
        (ben / "episodes/all").symlink_to(root / EPISODES)
        base = "default_app/default_project/users/u_ben/episodes"
        await eyes.until(lambda: f"{base}/all/episode-2026-01-01.md" in eyes.known)
        write(root, DAY, "edited")
        expected = {DAY, f"{base}/one.md", f"{base}/all/episode-2026-01-01.md"}
        await eyes.until(lambda: expected <= set(eyes.changes))


async def test_W18_folder_that_becomes_readable_again_is_looked_at(root: Path) -> None:
    """A change of permissions of a file or folder leads to a look at it."""
    async with watching(root) as eyes:
        (root / EPISODES).chmod(0o500)
        await eyes.until(lambda: any(EPISODES in batch.folders for batch in eyes.batches))
        (root / EPISODES).chmod(0o700)
        (root / DAY).chmod(0o600)
        await eyes.until(lambda: any(DAY in batch.paths for batch in eyes.batches))
        root.chmod(0o500)
        await eyes.until(lambda: "the permissions of the root changed" in {batch.rescan for batch in eyes.batches})
        root.chmod(0o700)
    assert [] == eyes.absences + eyes.changes


async def test_W06_overflow_ends_in_a_rescan(root: Path) -> None:
    """When the kernel drops events, that is noticed, and what they were about is found: folders and files."""
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text(encoding="ascii"))
    if limit > 200_000:
        pytest.skip("fs.inotify.max_queued_events is too high to fill the queue")
    async with watching(root) as eyes:
        tree = eyes.watcher._tree
        assert tree is not None
        noise, last = root / EPISODES / "noise.txt", f"{USER}/memories/new/semantic-2026-01-01.md"

        def flood() -> None:
            with tree._lock:  # the reader stands still, as it does on a machine that is too busy
                for _ in range(limit // 2 + 1_000):
                    noise.touch()
                    noise.unlink()
                write(root, last)

        await asyncio.to_thread(flood)
        await eyes.until(lambda: any("overflow" in batch.rescan for batch in eyes.batches))
        await eyes.until(lambda: last in eyes.known)
        await eventually(lambda: eyes.watcher.healthy)
        assert eyes.watcher.n_restarts >= 1
        write(root, last, "edited after it")
        await eyes.until(lambda: eyes.n_changes(last) >= 2)


async def test_W07_folders_made_and_removed_in_a_loop_do_not_blind_the_watcher(root: Path) -> None:
    """After thousands of folders came and went, an edit is still noticed, in old folders and in new ones."""

    def churn() -> None:
        for n in range(effort.rounds(3_000, 800)):
            folder = root / USER / f"memories/f{n % 3}/g"
            folder.mkdir(parents=True)
            shutil.rmtree(folder.parent.parent)

    async with watching(root) as eyes:
        await asyncio.to_thread(churn)
        write(root, DAY, "edited")
        new = f"{USER}/memories/f0/g/semantic-2026-01-01.md"
        write(root, new)
        await eyes.until(lambda: {DAY, new} <= set(eyes.known))
        await eyes.quiet()
        write(root, new, "edited")
        await eyes.until(lambda: eyes.n_changes(new) >= 2)


class SlowSteps(clocks.SystemClock):
    """A clock whose sleeps of the watcher's pauses last until they are let go."""

    def __init__(self) -> None:
        """Begin with the gate closed."""
        self.gate = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        """Wait for the gate where the watcher pauses before it starts again."""
        if seconds == fs.FIRST_BACKOFF_S:
            await self.gate.wait()
        else:
            await super().sleep(seconds)


async def test_W07_dead_watcher_is_red_until_it_is_restarted(root: Path) -> None:
    """The thread that reads events dies: the watcher says so, starts again, and asks for a rescan."""
    clock = SlowSteps()
    async with watching(root, clock=clock) as eyes:
        tree = eyes.watcher._tree
        assert tree is not None
        assert tree._reader is not None
        await asyncio.to_thread(tree._reader.stop)
        await eventually(lambda: not eyes.watcher.healthy)
        assert "the watcher's thread has ended" == eyes.watcher.reason
        missed = f"{EPISODES}/missed.md"
        write(root, missed)
        clock.gate.set()
        await eyes.until(lambda: missed in eyes.changes)
        assert any("thread has ended" in batch.rescan for batch in eyes.batches)
        assert (True, "", 1) == (eyes.watcher.healthy, eyes.watcher.reason, eyes.watcher.n_restarts)
        write(root, DAY, "edited")
        await eyes.until(lambda: DAY in eyes.changes)


async def test_W07_error_in_the_reader_is_noticed_like_its_death(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unforeseen error ends watchdog's thread: the next tree takes over."""
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    async with watching(root) as eyes:
        tree = eyes.watcher._tree
        assert tree is not None
        with monkeypatch.context() as patch:
            patch.setattr(tree, "on_event", None)
            write(root, DAY, "edited")
            await eyes.until(lambda: any(batch.rescan for batch in eyes.batches))
        await eyes.until(lambda: DAY in eyes.changes)
        await eventually(lambda: eyes.watcher.healthy)


async def test_W21_replaced_root_is_watched_anew(root: Path) -> None:
    """The root is moved away and another one takes its place: no folder of the old one is mistaken for it."""
    away = root.parent / f"{root.name}-away"
    async with watching(root) as eyes:
        root.rename(away)
        await eventually(lambda: not eyes.watcher.healthy)
        await eyes.until(lambda: any(batch.rescan for batch in eyes.batches))
        assert [] == eyes.absences
        other = f"{EPISODES}/other.md"
        write(root, other)
        await eyes.until(lambda: other in eyes.known)
        await eventually(lambda: eyes.watcher.healthy)
        write(root, other, "edited")
        await eyes.until(lambda: eyes.n_changes(other) >= 2)
        shutil.rmtree(away)


async def test_W21_root_whose_parent_was_replaced_is_watched_anew(tmp_path: Path) -> None:
    """The kernel does not tell of a move above the root (nor of a mount over it): the watcher finds out by itself."""
    root = tmp_path / "home" / "root"
    write(root, DAY)
    async with watching(root) as eyes:
        (tmp_path / "home").rename(tmp_path / "away")
        write(root, DAY, "of another root")
        await eyes.changed(DAY)
        await eventually(lambda: eyes.watcher.healthy)
        write(root, DAY, "edited")
        await eyes.changed(DAY, 2)
        assert eyes.watcher.n_restarts >= 1


async def test_W07_failing_watcher_goes_on(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error in the watcher's own loop is logged and ends in a rescan, not in blindness."""

    def fail(_: object) -> str:
        raise RuntimeError

    async with watching(root) as eyes:
        with monkeypatch.context() as patch, structlog.testing.capture_logs() as said:
            patch.setattr(kernel.Tree, "trouble", fail)
            await eyes.until(lambda: any("the watcher failed" in batch.rescan for batch in eyes.batches))
        write(root, DAY, "edited")
        await eyes.changed(DAY)
        await eventually(lambda: eyes.watcher.healthy)
    assert "watcher_failed" in {line["event"] for line in said}


async def test_W06_flood_is_a_rescan_before_it_fills_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the event loop is busy, what the reader hears is bounded as well."""
    monkeypatch.setattr(settle, "MAX_DIRTY", 500)
    settler = settle.Settler(clocks.SystemClock())
    post = fs.Post(asyncio.get_running_loop(), settler)

    def hear() -> int:
        for n in range(settle.MAX_DIRTY + 5):
            post.file(RelPath(f"{EPISODES}/{n}.md"), is_final=True, is_writing=True)
        return len(post._files)

    assert 5 >= hear()  # on the loop's own thread: nothing is delivered meanwhile
    assert "more than 500 paths changed at once" == (await settler.next()).rescan


async def test_daemons_own_replacement_is_noticed_once(root: Path) -> None:
    """A file that is swapped in by exchanging two names is one change, though nobody closed a writer of it."""
    async with watching(root) as eyes:
        for n in range(1, 6):
            new = write(root, f"{EPISODES}/.{n}.md.tmp.0a1b", f"new {n}")
            assert await asyncio.to_thread(swap.exchange, new, root / DAY)
            new.unlink()
            await eyes.changed(DAY, n)
        await eyes.quiet()
    assert 5 == eyes.n_changes(DAY)
    assert {1} == {len(batch.paths) for batch in eyes.batches}


@pytest.mark.parametrize("change", ["added", "edited", "removed", "conflict"])
async def test_W11_polling_notices_within_its_interval(root: Path, change: str) -> None:
    """Without events the root is walked: the same changes are noticed, and a watcher told to poll is healthy."""
    async with watching(root, mode="polling") as eyes:
        assert ("polling", True, "") == (eyes.watcher.mode, eyes.watcher.healthy, eyes.watcher.reason)
        if change == "added":
            write(root, f"{EPISODES}/new.md")
            await eyes.until(lambda: f"{EPISODES}/new.md" in eyes.changes)
        elif change == "edited":
            write(root, DAY, "edited")
            await eyes.until(lambda: DAY in eyes.changes)
        elif change == "removed":
            (root / DAY).unlink()
            await eyes.until(lambda: DAY in eyes.absences)
        else:
            write(root, f"{EPISODES}/x (conflicted copy).md")
            await eyes.until(lambda: any(batch.others for batch in eyes.batches))


async def test_W11_idle_polling_marks_nothing(root: Path) -> None:
    """Walks that find nothing new wake nobody."""

    class Counting(clocks.SystemClock):
        n_sleeps = 0

        async def sleep(self, seconds: float) -> None:
            """Count the pauses between walks."""
            self.n_sleeps += 1
            await super().sleep(seconds)

    clock = Counting()
    async with watching(root, mode="polling", clock=clock) as eyes:
        await eventually(lambda: clock.n_sleeps > 4)
    assert [] == eyes.batches


async def test_W11_root_that_vanishes_under_polling_is_red_and_not_empty(root: Path) -> None:
    """An unmounted root is said to be unreadable; nothing is marked as removed."""
    away = root.parent / f"{root.name}-away"
    async with watching(root, mode="polling") as eyes:
        root.rename(away)
        await eventually(lambda: not eyes.watcher.healthy)
        assert "the root cannot be read: no such file or directory" == eyes.watcher.reason
        away.rename(root)
        await eventually(lambda: eyes.watcher.healthy)
        write(root, DAY, "edited")
        await eyes.until(lambda: DAY in eyes.changes)
    assert [] == eyes.absences


LIMITED = """
import asyncio, pathlib, sys
from everosd import clock
from everosd.watch import fs, settle

async def main(root):
    pathlib.Path("/proc/sys/user/" + sys.argv[2]).write_text(sys.argv[3])
    settler = settle.Settler(clock.SystemClock())
    watcher = fs.Watcher(root, settler, poll_interval_s=0.05, mode="inotify")
    await watcher.start()
    print(watcher.mode, watcher.healthy, watcher.reason, sep="|", flush=True)
    run = asyncio.ensure_future(watcher.run())
    (root / sys.argv[4]).write_text("edited")
    async with asyncio.timeout(20):
        batch = await settler.next()
    print(*batch.paths, flush=True)
    run.cancel()

asyncio.run(main(pathlib.Path(sys.argv[1])))
"""


@pytest.mark.parametrize(
    ("limit", "value", "sysctl"),
    [
        ("max_inotify_watches", 20, "fs.inotify.max_user_watches"),
        ("max_inotify_instances", 0, "fs.inotify.max_user_instances"),
    ],
)
def test_W09_used_up_limit_falls_back_to_polling(root: Path, limit: str, value: int, sysctl: str) -> None:
    """Without watches the watcher polls, is degraded, and names the sysctl, its value and what to type."""
    for n in range(50):
        (root / f"app{n}").mkdir()
    command = ["unshare", "--user", "--map-root-user", sys.executable, "-c", textwrap.dedent(LIMITED)]
    if subprocess.run([*command[:3], "true"], check=False, capture_output=True).returncode:
        pytest.skip("user namespaces, in which the limit can be lowered for one process, are not allowed here")
    result = subprocess.run(
        [*command, root, limit, str(value), DAY], check=False, capture_output=True, text=True, timeout=25
    )
    assert 0 == result.returncode, result.stderr
    said, noticed = result.stdout.splitlines()[-2:]
    mode, healthy, reason = said.split("|")
    current = Path("/proc/sys", *sysctl.split(".")).read_text(encoding="ascii").strip()
    assert ("polling", "False") == (mode, healthy)
    assert f"{sysctl} is used up (it is {current})" in reason
    assert f"`sudo sysctl {sysctl}=" in reason
    assert DAY == noticed


async def test_W09_limit_met_while_running_falls_back_and_returns(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is reached by a folder that appears: polling takes over, and events come back once it is raised."""

    def none_left(*_: object) -> int:
        raise OSError(errno.ENOSPC, "inotify watch limit reached")

    monkeypatch.setattr(fs, "RETRY_KERNEL_S", 0.1)
    async with watching(root) as eyes:
        with monkeypatch.context() as patch:
            patch.setattr(inotify_c.InotifyFD, "add_callback", none_left)
            new = f"{USER}/memories/a/semantic-2026-01-01.md"
            write(root, new)
            await eventually(lambda: eyes.watcher.mode == "polling")
            assert "fs.inotify.max_user_watches" in eyes.watcher.reason
            await eyes.until(lambda: new in eyes.known)
            write(root, new, "edited while polling")
            await eyes.until(lambda: eyes.n_changes(new) >= 2)
            assert not eyes.watcher.healthy
        await eventually(lambda: eyes.watcher.mode == "inotify" and eyes.watcher.healthy)
        write(root, new, "edited afterwards")
        await eyes.until(lambda: eyes.n_changes(new) >= 3)


async def test_stopped_watcher_leaves_no_thread_and_no_descriptor(root: Path) -> None:
    """Starting and stopping again and again leaks nothing."""

    def held() -> tuple[int, int]:
        descriptors = [os.path.realpath(each) for each in Path("/proc/self/fd").iterdir()]
        return sum("inotify" in each for each in descriptors), sum("InotifyFD" in str(t) for t in threading.enumerate())

    async with watching(root):
        pass
    before = await asyncio.to_thread(held)
    for _ in range(10):
        async with watching(root):
            pass
    assert before == await asyncio.to_thread(held)


def _disturb(root: Path, chance: random.Random, n_steps: int) -> None:
    """Do what people, editors and sync programs do to folders and files, in any order and without a pause."""
    top = root / USER / "memories"
    top.mkdir()
    for n in range(n_steps):
        folders = [top, *(path for path in top.rglob("*") if path.is_dir())]
        files = list(top.rglob("*.md"))
        folder = chance.choice(folders)
        match chance.randrange(7):
            case 0:
                (folder / f"f{chance.randrange(4)}" / "g").mkdir(parents=True, exist_ok=True)
            case 1 if folder != top:
                shutil.rmtree(folder)
            case 2 if folder != top:
                target = chance.choice(folders) / f"m{n}"
                if not target.is_relative_to(folder):
                    folder.rename(target)
            case 3 if files:
                chance.choice(files).rename(folder / f"semantic-2026-01-{chance.randrange(1, 9):02}.md")
            case 4 if files:
                chance.choice(files).unlink()
            case _:
                (folder / f"semantic-2026-01-{chance.randrange(1, 9):02}.md").write_text(str(n), encoding="utf-8")


@pytest.mark.parametrize("seed", range(6))
async def test_what_was_noticed_equals_the_disk(root: Path, seed: int) -> None:
    """After hundreds of hasty changes to folders and files, following the batches leads to what a walk sees."""
    async with watching(root) as eyes:
        await asyncio.to_thread(_disturb, root, random.Random(seed), 400)  # noqa: S311 - no secret is made of it
        await eyes.quiet()
        await eyes.until(lambda: len(eyes.settler) == 0)
        (root / DAY).touch()
        await eyes.changed(DAY)
        assert (await asyncio.to_thread(scan.scan, root)).files == dict(sorted(eyes.known.items()))
    assert 0 == eyes.watcher.n_restarts
