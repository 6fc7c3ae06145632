"""The daemon catches up with the disk: after a start, after a deleted index, with a very large file, under load."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bench import measure, roots, text
from tests import effort
from tests.process import conftest, test_main_job

N_LARGE = effort.rounds(20_000, 5_000)
"""Entries of one large file."""


def patience() -> float:
    """Return how much slower than idle this machine may be just now; `make bench` holds the budgets themselves."""
    return max(2.0, os.getloadavg()[0] / (os.cpu_count() or 1) * 2)


def written(daemon: conftest.Daemon, n_entries: int, **more: int) -> roots.Made:
    """Write a root under a running daemon and wait until it is searchable."""
    made = roots.write(daemon.root, n_entries, **more)
    test_main_job.settled(daemon, n_entries)
    return made


def found(daemon: conftest.Daemon, item: roots.Item) -> list[str]:
    """Return the ids that the item's own word finds."""
    return [hit["id"] for hit in daemon.search(item.word, item.user, top_k=5)]


def public(item: roots.Item) -> str:
    """Return the id that the API shows for an item."""
    return f"{item.user}_{item.entry_id}"


def replace_word(root: Path, item: roots.Item, word: str) -> None:
    """Change an item's word by rename, as an editor does."""
    path = root / item.path
    measure.by_rename(path, path.read_bytes().replace(item.word.encode(), word.encode()))


def test_W04_fifty_files_before_the_start_are_all_found(daemon: conftest.Daemon) -> None:
    """What lies in the root before the first start is indexed by the scan of that start."""
    made = roots.write(daemon.root, 250, per_file=5)
    assert made.n_files == 50
    daemon.start()
    test_main_job.settled(daemon, 250)
    assert [[public(item)] for item in made.items] == [found(daemon, item) for item in made.items]


def test_W02_changes_while_stopped_are_seen_before_ready(daemon: conftest.Daemon) -> None:
    """A file removed and one edited while the daemon was down: once it says ready, the old text is found no more."""
    daemon.start()
    made = written(daemon, 100)
    gone = [item for item in made.items if item.path == made.items[0].path]
    edited = made.items[-1]
    daemon.stop()
    (daemon.root / gone[0].path).unlink()
    replace_word(daemon.root, edited, "quaftermath")
    daemon.start(ready=True)
    assert [] == [item.word for item in gone if found(daemon, item)]
    assert [] == found(daemon, edited)
    assert [public(edited)] == [hit["id"] for hit in daemon.search("quaftermath", edited.user)]
    ids = {item["id"] for item in test_main_job.episodes_of(daemon, edited.user)}
    assert not ids & {public(item) for item in gone}


def test_M10_deleted_file_takes_its_entries_along_and_brings_them_back(daemon: conftest.Daemon) -> None:
    """An episode file goes: its entries are found no more; it is put back: they are."""
    daemon.start()
    made = written(daemon, 100)
    item = made.items[7]
    path = daemon.root / item.path
    data = path.read_bytes()
    path.unlink()
    conftest.wait_for(lambda: not found(daemon, item), "the entries of a deleted file to go")
    path.write_bytes(data)
    conftest.wait_for(lambda: found(daemon, item) == [public(item)], "them to come back")
    test_main_job.settled(daemon, 100)


def test_M07_every_entry_with_the_word_is_a_hit_right_after_each_write(daemon: conftest.Daemon) -> None:
    """One word in each of seven entries, added one by one: after each, all so far are hits."""
    daemon.start()
    made = roots.write(daemon.root, 7, n_users=1, per_file=1)
    test_main_job.settled(daemon, 7)
    for number, item in enumerate(made.items):
        replace_word(daemon.root, item, "quseven")
        wanted = {public(one) for one in made.items[: number + 1]}

        def is_there(wanted: set[str] = wanted) -> bool:
            return wanted == {hit["id"] for hit in daemon.search("quseven", made.items[0].user)}

        conftest.wait_for(is_there, f"{number + 1} hits")


@pytest.mark.timeout(120)
def test_X11_deleted_index_is_rebuilt_with_progress_that_only_grows(daemon: conftest.Daemon) -> None:
    """Without `.index/` the start reads everything again; health says how far it is, and ends."""
    n_files = effort.rounds(400, 150)
    roots.write(daemon.root, 10 * n_files, per_file=10)
    daemon.start()
    test_main_job.settled(daemon, 10 * n_files)
    daemon.stop()
    shutil.rmtree(daemon.root / ".index")
    daemon.start(ready=False)
    seen: list[int] = []

    def is_over() -> bool:
        cascade = daemon.health()["cascade"]
        seen.append(cascade["files_indexed"])
        return (cascade["pending"], cascade["entries"]) == (0, 10 * n_files)

    conftest.wait_for(is_over, "the rebuild to end", 60)
    assert sorted(seen) == seen
    assert seen[-1] == n_files
    assert len(set(seen)) > 1, "it was over before it could be watched"
    test_main_job.assert_verified(daemon)


@pytest.mark.timeout(120)
def test_X16_searches_during_a_rebuild_find_what_they_found_before(daemon: conftest.Daemon) -> None:
    """While every index is made anew, each search is answered, and by everything."""
    n_entries = effort.rounds(2_000, 600)
    daemon.start()
    made = written(daemon, n_entries)
    answers: list[tuple[list[str], list[str]]] = []
    with during(lambda: answers.append(_answer(daemon, made.items[len(answers) % n_entries]))):
        done = conftest.run("rebuild", "--root", str(daemon.root))
        test_main_job.settled(daemon, n_entries)
    assert done.returncode == 0, done.stderr
    assert len(answers) > 10
    assert [] == [(wanted, got) for wanted, got in answers if wanted != got]


def _answer(daemon: conftest.Daemon, item: roots.Item) -> tuple[list[str], list[str]]:
    return [public(item)], found(daemon, item)


class during:  # noqa: N801 - reads as a sentence
    """Do something again and again in a thread while the block runs; an exception of it is raised at the end."""

    def __init__(self, act: Callable[[], object]) -> None:
        """Remember what to do."""
        self._act = act
        self._is_over = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="during")

    def __enter__(self) -> None:
        """Begin."""
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        """End, and raise what went wrong."""
        self._is_over.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            while not self._is_over.wait(0.005):
                self._act()
        except BaseException as error:  # noqa: BLE001 - handed to the test's own thread
            self._error = error


@pytest.fixture
def large(daemon: conftest.Daemon) -> tuple[Path, roots.Made]:
    """Serve one file of 19 MB with 20,000 entries; of a quarter of that but with `make long`."""
    daemon.start()
    made = roots.write(daemon.root, N_LARGE, n_users=1, per_file=N_LARGE, n_bytes=930)
    test_main_job.settled(daemon, N_LARGE)
    return daemon.root / made.items[0].path, made


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_M13_one_word_in_a_file_of_twenty_thousand_entries_is_one_change(
    daemon: conftest.Daemon, large: tuple[Path, roots.Made]
) -> None:
    """The edit is found within a second, health goes on answering, and exactly one entry was indexed again."""
    path, made = large
    item, word = made.items[N_LARGE * 5 // 8], text.word(50_000_000)
    data = path.read_bytes().replace(item.word.encode(), word.encode())
    before, waits = test_main_job.status(daemon)["lsn"], [0.0]
    with during(lambda: waits.append(_health_s(daemon))):
        started = time.perf_counter()
        measure.by_rename(path, data)
        conftest.wait_for(lambda: daemon.search(word, item.user), "the edit", 60)
        took = time.perf_counter() - started
    now = test_main_job.settled(daemon, N_LARGE)
    assert [public(item)] == [hit["id"] for hit in daemon.search(word, item.user)]
    assert before + 1 == now["lsn"]
    assert took < 1.0 * patience()
    assert max(waits) < 0.2 * patience()


def _health_s(daemon: conftest.Daemon) -> float:
    started = time.perf_counter()
    json.dumps(daemon.health())
    return time.perf_counter() - started
