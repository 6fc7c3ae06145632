"""The vector index on a disk that fails, is cut, flipped, full or taken away; and under endless edits."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from everosd import errors, types
from everosd.index import contract, slab, vector, where
from tests import memory_rows

DIM = 32
SPACE = types.Space(model="test", dim=DIM)
EVERYTHING = where.Where(owner=memory_rows.OWNER, kinds=("episode",), now_us=1)


def document(key: int, body: str = "a word") -> contract.Document:
    return contract.Document(
        key=types.EntryKey(key),
        owner=memory_rows.OWNER,
        entry_id=f"ep_{key}",
        kind="episode",
        status="active",
        title="",
        body=body,
        timestamp_us=key,
    )


def one(seed: int) -> NDArray[np.float32]:
    drawn = np.random.default_rng(seed).standard_normal(DIM).astype(np.float32)
    made: NDArray[np.float32] = drawn / np.linalg.norm(drawn)
    return made


def embedded(given: contract.Document, seed: int) -> vector.Embedded:
    return vector.Embedded(key=given.key, digest=contract.text_digest(given), vectors=one(seed)[None, :])


def made(folder: Path, n: int) -> vector.VectorIndex:
    index = vector.VectorIndex(folder)
    index.use(SPACE)
    index.write([document(key) for key in range(1, n + 1)], [])
    index.commit()
    assert n == index.put([embedded(document(key), key) for key in range(1, n + 1)])
    return index


def found(index: vector.VectorIndex, k: int = 1_000) -> list[int]:
    return [hit.key for hit in index.search(one(1), EVERYTHING, k)]


def tampered(folder: Path, statement: str) -> None:
    connection = sqlite3.connect(folder / slab.FILE_NAME)
    with connection:
        assert connection.execute(statement).rowcount == 1
    connection.close()


def test_X05_vectors_with_a_wrong_checksum_are_never_served_and_owed_again(tmp_path: Path) -> None:
    """One bad row costs one embedding call, not the index."""
    made(tmp_path / "v", 20).close()
    tampered(tmp_path / "v", "UPDATE vectors SET codes = zeroblob(length(codes)) WHERE key = 7")
    index, is_new = vector.open_or_set_aside(tmp_path / "v")
    assert (False, 0) == (is_new, index.n_owed())
    assert set(range(1, 21)) - {7} == set(found(index))
    assert ([7], 1) == ([owed.key for owed in index.owed(10)], index.n_owed())
    assert 1 == index.put([embedded(document(7), 7)])
    assert set(range(1, 21)) == set(found(index))
    index.close()


def test_X05_a_damaged_document_is_noticed_and_the_index_filled_anew(tmp_path: Path) -> None:
    """What says whose entry it is and whether it is deprecated is not believed without its checksum."""
    made(tmp_path / "v", 20).close()
    tampered(
        tmp_path / "v", "UPDATE documents SET fields = CAST(replace(fields, 'active', 'hidden') AS BLOB) WHERE key = 7"
    )
    index, _ = vector.open_or_set_aside(tmp_path / "v")
    with pytest.raises(errors.DerivedIndexError, match="entry 7"):
        found(index)
    index.close()
    again, is_new = vector.open_or_set_aside(tmp_path / "v")
    assert (True, 0) == (is_new, again.count())
    assert 1 == len(list(tmp_path.glob("v.damaged-*")))
    again.close()


@pytest.mark.parametrize("seed", range(12))
def test_X05_flipped_bytes_and_cut_files_never_crash_nor_lie(tmp_path: Path, seed: int) -> None:
    """Whatever is found was put there; what is not found is owed again, or the index is set aside."""
    dice = random.Random(seed)  # noqa: S311  # the same damage each time
    made(tmp_path / "v", 300).close()
    path = tmp_path / "v" / slab.FILE_NAME
    content = bytearray(path.read_bytes())
    if seed % 3 == 0:
        del content[dice.randrange(1, len(content)) :]
    else:
        for _ in range(1 + seed * 3):
            content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
    path.write_bytes(content)
    try:
        index, is_new = vector.open_or_set_aside(tmp_path / "v")
        hits = index.search(one(1), EVERYTHING, 1_000)
        owed = {each.key for each in index.owed(1_000)}
        index.commit()
        index.close()
    except errors.DerivedIndexError:
        index, is_new = vector.open_or_set_aside(tmp_path / "v")
        index.close()
        assert is_new
        return
    for hit in hits:
        assert pytest.approx(max(0.0, float(one(hit.key) @ one(1))), abs=1e-3) == hit.score
    if not is_new:
        assert {hit.key for hit in hits} >= set(range(1, 301)) - owed or len(hits) < 300


def test_X05_a_file_cut_to_half_is_set_aside_when_it_is_opened(tmp_path: Path) -> None:
    """It does not take a search to notice."""
    made(tmp_path / "v", 300).close()
    path = tmp_path / "v" / slab.FILE_NAME
    os.truncate(path, path.stat().st_size // 2)
    index, is_new = vector.open_or_set_aside(tmp_path / "v")
    assert is_new
    index.close()


@pytest.mark.parametrize("content", [b"", b"not a database, but long enough to be taken for one" * 100])
def test_X05_what_is_no_database_is_filled_anew(tmp_path: Path, content: bytes) -> None:
    """An empty file and one of something else."""
    made(tmp_path / "v", 3).close()
    (tmp_path / "v" / slab.FILE_NAME).write_bytes(content)
    index, is_new = vector.open_or_set_aside(tmp_path / "v")
    assert (True, 0) == (is_new, index.count())
    index.close()


def test_X13_an_index_of_the_version_before_is_filled_anew_and_pays_for_no_vector(tmp_path: Path) -> None:
    """What documents say has changed since; their texts, and so their vectors, have not."""
    made(tmp_path / "v", 3).close()
    connection = sqlite3.connect(tmp_path / "v" / slab.FILE_NAME)
    connection.execute("PRAGMA user_version = 1")
    connection.close()
    index, is_new = vector.open_or_set_aside(tmp_path / "v")
    assert (True, 0, SPACE) == (is_new, index.count(), index.space)
    index.write([document(1), document(2), document(3, "another text")], [])
    index.commit()
    assert [3] == [each.key for each in index.owed(10)], "until then the vectors of its former text stand in"
    assert [1, 2, 3] == sorted(found(index))
    index.close()
    index, is_new = vector.open_or_set_aside(tmp_path / "v")
    assert (False, 3) == (is_new, index.count())
    index.close()


def test_X09_an_index_of_another_version_is_set_aside(tmp_path: Path) -> None:
    """It is derived: nobody migrates it."""
    made(tmp_path / "v", 3).close()
    connection = sqlite3.connect(tmp_path / "v" / slab.FILE_NAME)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(errors.DerivedIndexError, match="schema 99"):
        vector.VectorIndex(tmp_path / "v")
    index, is_new = vector.open_or_set_aside(tmp_path / "v")
    assert is_new
    index.close()


def test_X09_a_disk_that_refuses_is_told_apart_from_damage(tmp_path: Path) -> None:
    """A file where the folder should be, and a folder where the file should be: named, and left as they are."""
    (tmp_path / "v").write_text("mine")
    (tmp_path / "w" / slab.FILE_NAME).mkdir(parents=True)
    for name in ("v", "w"):
        with pytest.raises(errors.IndexUnavailable):
            vector.open_or_set_aside(tmp_path / name)
    assert ("mine", []) == ((tmp_path / "v").read_text(), list(tmp_path.glob("*.damaged-*")))


@pytest.mark.parametrize("holds", ["documents", "graphs", "nothing"])
def test_without_what_counts_with_vectors_the_index_says_so_and_is_as_it_was_once_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, holds: str
) -> None:
    """NumPy that is not there, or not for this processor, is a reason to try again: no file is set aside, none stays open."""
    folder = tmp_path / "v"
    made(folder, 3 if holds == "documents" else 0).close()
    if holds == "graphs":
        (folder / "graphs").mkdir()
    with monkeypatch.context() as patch:
        for name in ("build", "graph"):
            patch.setitem(sys.modules, f"everosd.index.{name}", None)
            patch.delattr(f"everosd.index.{name}")
        with pytest.raises(errors.IndexUnavailable) as raised, contextlib.closing(vector.VectorIndex(folder)) as empty:
            empty.write([document(9)], [])
        assert "install everosd again" in raised.value.hint
        held = [each.readlink() for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
        assert [] == [each for each in held if folder in each.parents]
    assert [folder] == list(tmp_path.iterdir())
    index, _ = vector.open_or_set_aside(folder)
    index.write([document(9)], [])
    index.commit()
    assert (4 if holds == "documents" else 1) == index.count()
    index.close()


def test_X15_a_full_disk_is_reported_and_writing_goes_on_afterwards(tmp_path: Path) -> None:
    """What was not committed has to be written again; nothing is set aside and what was there is still found."""
    index = made(tmp_path / "v", 20)
    n_pages = int(index._slab._writer.execute("PRAGMA page_count").fetchone()[0])
    index._slab._writer.execute(f"PRAGMA max_page_count = {n_pages}")
    index.write([document(key, "x" * 50) for key in range(100, 600)], [])
    with pytest.raises(errors.IndexUnavailable, match="full"):
        index.commit()
    assert (20, 20) == (index.count(), len(found(index)))
    index._slab._writer.execute("PRAGMA max_page_count = 1000000")
    index.commit()
    assert 20 == index.count()
    index.write([document(100)], [])
    index.commit()
    assert (21, 1) == (index.count(), index.n_owed())
    index.close()
    assert not vector.open_or_set_aside(tmp_path / "v")[1]


def test_an_index_whose_files_were_deleted_says_so(tmp_path: Path) -> None:
    """Writing into files that nobody can see any more would be lost at the next start."""
    index = made(tmp_path / "v", 3)
    shutil.rmtree(tmp_path / "v")
    index.write([document(4)], [])
    with pytest.raises(errors.DerivedIndexError):
        index.commit()
    index.close()
    again, is_new = vector.open_or_set_aside(tmp_path / "v")
    assert is_new
    again.close()


KILLED = """
import sys
from pathlib import Path
from tests.unit import test_vector_damage as t
from everosd.index import vector
index = vector.VectorIndex(Path(sys.argv[1]))
index.use(t.SPACE)
for key in range(1, 100_000):
    index.write([t.document(key)], [])
    index.commit()
    print("w", key, flush=True)
    index.put([t.embedded(t.document(key), key)])
    print("p", key, flush=True)
"""


@pytest.mark.parametrize("n_lines", [1, 8, 41])
def test_X08_what_was_committed_before_a_kill_is_there(tmp_path: Path, n_lines: int) -> None:
    """Killed in the midst of writing: every commit and every put that returned is found, at once after the start."""
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, tmp_path / "v"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2]), "OPENBLAS_NUM_THREADS": "1"},
    )
    assert process.stdout is not None
    lines = [process.stdout.readline().split() for _ in range(n_lines)]
    process.send_signal(signal.SIGKILL)
    lines += [line.split() for line in process.stdout.read().splitlines()]
    process.stdout.close()
    process.wait()
    written = {int(line[1]) for line in lines if line[0] == "w"}
    put = {int(line[1]) for line in lines if line[0] == "p"}
    index, is_new = vector.open_or_set_aside(tmp_path / "v")
    assert not is_new
    assert written <= index.keys() <= {*written, len(written) + 1}
    assert put <= set(found(index, 100_000)) <= index.keys()
    assert index.n_owed() == index.count() - len(found(index, 100_000))
    index.close()


def test_X04_endless_edits_of_one_entry_take_no_more_room(tmp_path: Path) -> None:
    """Rows are overwritten, on disk and in memory."""
    index = made(tmp_path / "v", 50)
    found(index)
    sizes = []
    for step in range(400):
        edited = document(7, f"edit {step}")
        index.write([edited], [])
        index.commit()
        index.put([embedded(edited, step)])
        sizes.append(sum(path.stat().st_size for path in (tmp_path / "v").iterdir() if path.is_file()))
    (part,) = index._loaded.values()
    assert part._n <= 51
    assert max(sizes) < 6_000_000  # the write-ahead log is emptied every 1,000 pages
    index.close()
    assert sum(path.stat().st_size for path in (tmp_path / "v").iterdir()) < 150_000


def test_X14_the_file_shrinks_with_what_is_in_it(tmp_path: Path) -> None:
    """Space of entries that are gone goes back to the file system, a little with each commit."""
    index = made(tmp_path / "v", 20_000)
    index.close()
    full = (tmp_path / "v" / slab.FILE_NAME).stat().st_size
    index = vector.VectorIndex(tmp_path / "v")
    index.write([], [types.EntryKey(key) for key in range(1, 19_001)])
    index.commit()
    for step in range(12):
        index.write([document(20_000, f"{step}")], [])
        index.commit()
    index.close()
    assert (tmp_path / "v" / slab.FILE_NAME).stat().st_size < 0.65 * full
    assert 1_000 == vector.VectorIndex(tmp_path / "v").count()
