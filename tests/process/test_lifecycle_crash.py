"""Kill -9 in the middle of writing memories: nothing is lost, doubled or left by halves, and the same once more finishes it."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal

import pytest

from everosd import types
from everosd.cascade import verify
from everosd.intake import unsay
from everosd.lifecycle import desk, forget, memory, moved, remember, restore, row, update, versions
from everosd.store import lifecycle
from tests import effort, open_root, steps

MARA = types.Owner(app="default", project="default", type="user", id="mara")
FORKS = multiprocessing.get_context("forkserver")
"""A process that has imported everything, and opened nothing: what has threads must not be forked."""
FORKS.set_forkserver_preload(["tests.process.test_lifecycle_crash", "everosd.search.query", "everosd.cascade.apply"])
STRIDE = effort.rounds(1, 3)
"""Every so manieth moment of a request is one at which it is killed."""
WORD = "Zanzibarquartz"
INSTEAD = "A name was told.\n\n### Where\nOn two lines."


class Countdown:
    """A step of the writer, or of what writes memories, that ends the process at the nth moment of either."""

    def __init__(self, nth: int) -> None:
        """Let `nth` - 1 pass; 0: all of them."""
        self.left = nth

    def __call__(self, _: str) -> None:
        """Be called at a moment, in any thread."""
        self.left -= 1
        if not self.left:
            os.kill(os.getpid(), signal.SIGKILL)


class Work:
    """What writes memories over an open root."""

    def __init__(self, root: open_root.Root, step: Callable[[str], None]) -> None:
        """Wire it as the daemon does."""
        self.root = root
        self.desk = desk.Desk(root.reader, root.node.cascade, root.node.clock, step)
        root.pen._context.step = step
        self.updates = update.Updates(self.desk)
        self.remembering = remember.Remembering(self.desk, self.updates)
        self.restoring = restore.Restoring(self.desk, self.updates)
        self.forgetting = forget.Forgetting(
            self.desk, lambda: unsay.Unsaying(self.desk.places, root.pen, root.node.clock)
        )

    async def remember(self, content: str, key: str = "", path: str = "notes") -> update.Written:
        """Remember something of mara."""
        change = memory.Change(content=content, fields={"semantic_key": key} if key else {})
        return await self.remembering.remember(MARA, remember.Wanted(path=path, change=change, semantic_key=key))

    async def memories(self) -> list[lifecycle.Record]:
        """Return all of mara's memories, whatever their status."""
        await self.root.settled()
        return await lifecycle.records(self.root.reader, MARA, statuses=())

    async def text(self, entry_id: str) -> str:
        """Return what a memory says."""
        found = await self.root.reader.find(MARA, entry_id)
        assert found is not None
        return memory.seen_of(memory.of_row(found)).content

    async def ended(self, entry_id: str) -> list[tuple[int, str]]:
        """Return the versions that have ended, the newest first: number and text."""
        found = await self.root.reader.find(MARA, entry_id)
        now = None if found is None else memory.of_row(found)
        rows = await versions.rows(self.root.reader, MARA, entry_id)
        listed = versions.landed(rows, now, memory.KIND, entry_id)
        return [(one.number, memory.seen_of(one.before).content) for one in listed if one.before is not None]

    async def is_clean(self) -> None:
        """Make sure that what is live is what a rebuild would make."""
        report = await verify.verify(self.root.node.cascade)
        assert report.is_clean, report.differences


Act = Callable[[Work], Awaitable[object]]


def work(root: Path, act: Act, nth: int = 0) -> None:
    """Open a root and do something, until the nth moment of that."""
    for path in root.rglob("*.md"):
        steps.age(path)  # let files look untouched: the killed process need not be waited for

    async def run() -> None:
        async with open_root.opened(root) as opened:
            await act(Work(opened, Countdown(nth)))

    asyncio.run(run())


def is_killed(root: Path, act: Act, nth: int) -> bool:
    """Have another process do something; tell whether it was killed before it was done."""
    process = FORKS.Process(target=work, args=(root, act, nth))
    process.start()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode != 0


async def first(one: Work) -> None:
    """Remember the first text under a key, and something else beside it."""
    await one.remember("Tea at four.", "drink")
    await one.remember("Bread at noon.")


async def change(one: Work) -> None:
    """Make the next version of the memory under the key."""
    (found,) = [each for each in await one.memories() if each.semantic_key == "drink"]
    text = await one.text(found.entry_id)
    number = int(text.removeprefix("Coffee number ").strip(".")) if text.startswith("Coffee") else 0
    await one.updates.update(MARA, found.entry_id, memory.Change(content=f"Coffee number {number + 1}."))


@pytest.mark.timeout(300)
def test_a_kill_between_version_and_update_loses_nothing_and_doubles_nothing(tmp_path: Path) -> None:
    """After each moment: one entry, the old text or the new one, and exactly the versions that it had before that."""
    work(tmp_path, first)
    texts = ["Tea at four."]

    async def look(one: Work) -> None:
        (found,) = [each for each in await one.memories() if each.semantic_key == "drink"]
        text = await one.text(found.entry_id)
        if text != texts[-1]:
            texts.append(text)
        ended = await one.ended(found.entry_id)
        assert [(n, each) for n, each in enumerate(texts[:-1], 1)][::-1] == ended
        assert 2 == len(await one.memories())
        await one.is_clean()

    nth, n_killed = 1, 0
    while is_killed(tmp_path, change, nth):
        work(tmp_path, look)
        nth, n_killed = nth + STRIDE, n_killed + 1
    work(tmp_path, look)
    assert n_killed > 2
    assert len(texts) > 1


async def upsert(one: Work) -> None:
    """Remember something under a key of which nothing is known yet."""
    await one.remember("The code is 7.", "code")


@pytest.mark.timeout(300)
def test_a_kill_while_something_is_remembered_under_a_key_makes_no_second_memory(tmp_path: Path) -> None:
    """Whoever asks again after it has one memory, whether the first request got to the disk or not."""

    async def look(one: Work) -> None:
        await upsert(one)
        (found,) = await one.memories()
        assert "The code is 7." == await one.text(found.entry_id)
        assert [] == await one.ended(found.entry_id)
        await one.is_clean()

    nth = 1
    while True:
        root = tmp_path / str(nth)
        root.mkdir()
        has_more = is_killed(root, upsert, nth)
        work(root, look)
        if not has_more:
            break
        nth += STRIDE
    assert nth > 2


async def move(one: Work) -> None:
    """Have the memory under the key stand under another path."""
    (found,) = [each for each in await one.memories() if each.semantic_key == "drink"]
    await one.updates.update(MARA, found.entry_id, memory.Change(), path="elsewhere/now")


@pytest.mark.timeout(300)
def test_a_kill_while_a_memory_moves_leaves_it_where_it_is_found(tmp_path: Path) -> None:
    """In one file or, for a moment, in both: the next start, or the same request, leaves it in one."""
    nth, n_finished = 1, 0
    while True:
        root = tmp_path / str(nth)
        root.mkdir()
        work(root, first)
        has_more = is_killed(root, move, nth)

        async def look(one: Work, *, is_odd: bool = bool(nth % 2)) -> None:
            (found,) = [each for each in await one.memories() if each.semantic_key == "drink"]
            assert "Tea at four." == await one.text(found.entry_id)
            nonlocal n_finished
            if is_odd:
                n_finished += await moved.recover(one.desk)
                assert 1 == n_files(one.root.path, found.entry_id)
            await move(one)
            assert 1 == n_files(one.root.path, found.entry_id)
            (now,) = [each for each in await one.memories() if each.semantic_key == "drink"]
            assert "elsewhere/now" == now.path
            await one.is_clean()

        work(root, look)
        if not has_more:
            break
        nth += STRIDE
    assert nth > 2
    assert n_finished > 0


def n_files(root: Path, entry_id: str) -> int:
    """Return how often an entry stands in memories' files."""
    texts = [path.read_text() for path in root.rglob("*.md") if "memories" in path.parts]
    return sum(text.count(f"entry:{entry_id} ") for text in texts) // 2


async def secret(one: Work) -> None:
    """Remember a secret in two versions, and something else."""
    await one.remember(f"It is called {WORD}.", "secret")
    await one.remember(f"It is still called {WORD}.", "secret")
    await one.remember("Bread at noon.")


async def remove(one: Work) -> None:
    """Remove the first memory for good."""
    await one.memories()
    await one.forgetting.remove(MARA, f"mem_{_today(one)}_00000001", "hard_delete")


async def redact(one: Work) -> None:
    """Put something else in the place of what the first memory says."""
    await one.memories()
    await one.forgetting.remove(MARA, f"mem_{_today(one)}_00000001", "redact", replacement_text=INSTEAD)


def _today(one: Work) -> str:
    return next(path for path in one.root.path.rglob("semantic-*.md")).stem.removeprefix("semantic-").replace("-", "")


@pytest.mark.timeout(300)
def test_a_kill_while_a_memory_is_removed_for_good_is_finished_by_the_same_request(tmp_path: Path) -> None:
    """It is found by nobody from the tombstone on, and nothing of it is anywhere in the end."""
    nth = 1
    while True:
        root = tmp_path / str(nth)
        root.mkdir()
        work(root, secret)
        has_more = is_killed(root, remove, nth)

        async def look(one: Work) -> None:
            await remove(one)
            assert ["Bread at noon."] == [await one.text(each.entry_id) for each in await one.memories()]
            told = await lifecycle.rows(one.root.reader, MARA, actions=row.TOMBSTONES)
            assert 1 == len(told)
            await one.is_clean()

        work(root, look)
        left = [path for path in root.rglob("*") if path.is_file() and WORD.encode() in path.read_bytes()]
        assert [] == left
        if not has_more:
            break
        nth += STRIDE
    assert nth > 2


@pytest.mark.parametrize("mode", ["redact", "hard_delete"])
@pytest.mark.timeout(300)
def test_a_kill_while_a_memory_is_removed_for_good_is_finished_by_the_next_start(
    tmp_path: Path, mode: Literal["redact", "hard_delete"]
) -> None:
    """The tombstone is the commit: without it nothing has happened, with it nothing of the text is anywhere, unasked."""
    nth, n_finished = 1, 0

    async def look(one: Work) -> None:
        nonlocal n_finished
        told = await lifecycle.rows(one.root.reader, MARA, actions=row.TOMBSTONES)
        n = await one.forgetting.recover()
        assert 0 == await one.forgetting.recover()
        n_finished += n
        texts = [await one.text(each.entry_id) for each in await one.memories()]
        if not told:
            assert [f"It is still called {WORD}.", "Bread at noon."] == texts
            return
        stays = [INSTEAD] if mode == "redact" else []
        assert [*stays, "Bread at noon."] == texts
        done = await lifecycle.rows(one.root.reader, MARA, actions=(row.REMOVED,))
        assert [mode] == [each.fields["value"] for each in done]
        await one.is_clean()

    while True:
        root = tmp_path / str(nth)
        root.mkdir()
        work(root, secret)
        has_more = is_killed(root, redact if mode == "redact" else remove, nth)
        work(root, look)
        is_buried = any(f"**action**: {mode}" in path.read_text() for path in root.rglob("lifecycle-*.md"))
        left = [path for path in root.rglob("*") if path.is_file() and WORD.encode() in path.read_bytes()]
        assert is_buried == (left == [])
        if not has_more:
            break
        nth += STRIDE
    assert n_finished > 2


@pytest.mark.timeout(300)
def test_what_comes_back_after_it_was_removed_for_good_is_not_removed_unasked(tmp_path: Path) -> None:
    """A person who puts an old file back wants it: a start finishes only what was not finished, and asked again it goes."""
    work(tmp_path, secret)
    (path,) = tmp_path.rglob("semantic-*.md")
    before = path.read_bytes()
    work(tmp_path, remove)
    path.write_bytes(before)

    async def look(one: Work) -> None:
        assert 0 == await one.forgetting.recover()
        assert WORD in await one.text(f"mem_{_today(one)}_00000001")
        await remove(one)
        assert ["Bread at noon."] == [await one.text(each.entry_id) for each in await one.memories()]

    work(tmp_path, look)
    assert WORD not in path.read_text()
