"""The cache of vectors: what it keeps, what it survives."""

from __future__ import annotations

import datetime as dt
import os
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from everosd import clock, errors, types
from everosd.models import cache, embed

A = types.Space(model="a", dim=32)
MIB = 1 << 20


class _Later(clock.SystemClock):
    """The machine's clock, some days ahead."""

    days = 0

    def now(self) -> dt.datetime:
        return super().now() + dt.timedelta(days=self.days)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / ".cache" / "embeddings.db"


@pytest.fixture
def kept(path: Path) -> Iterator[cache.Cache]:
    found = cache.Cache(path, 64 * MIB)
    yield found
    found.close()


def _made(numbers: range, dim: int = 32) -> dict[bytes, NDArray[np.float32]]:
    found = np.random.default_rng(numbers.start).standard_normal((len(numbers), dim)).astype(np.float32)
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    return {embed.digest(f"text {n}"): row for n, row in zip(numbers, found, strict=True)}


def test_what_was_put_is_found_again(kept: cache.Cache, path: Path) -> None:
    """Also by the next process, also among texts that were never seen."""
    made = _made(range(1200))
    kept.put(A, made)
    kept.close()
    found = cache.Cache(path, MIB).get(A, [embed.digest("unseen"), *made])
    assert set(made) == set(found)
    assert [] == [digest for digest, row in made.items() if not np.allclose(row, found[digest], atol=1e-3)]
    assert {np.dtype(np.float32)} == {row.dtype for row in found.values()}


def test_what_comes_back_is_the_same_however_often_it_is_kept(kept: cache.Cache) -> None:
    """A rebuild that puts what it got changes no bit: an index of it equals the one before."""
    kept.put(A, _made(range(50)))
    first = kept.get(A, list(_made(range(50))))
    kept.put(A, first)
    second = kept.get(A, list(first))
    assert [] == [digest for digest in first if not np.array_equal(first[digest], second[digest])]


@pytest.mark.parametrize(
    "other",
    [
        types.Space(model="b", dim=32),
        types.Space(model="a", dim=64),
        types.Space(model="a", dim=32, calibration="mean-1"),
    ],
)
def test_E01_vectors_of_another_space_are_not_found(kept: cache.Cache, other: types.Space) -> None:
    """The same text has vectors of its own for each model, width and calibration, and all of them stay."""
    mine, others = _made(range(3)), _made(range(3), other.dim)
    kept.put(A, mine)
    assert {} == kept.get(other, list(mine))
    kept.put(other, others)
    assert 32 == kept.get(A, list(mine))[embed.digest("text 0")].size
    assert other.dim == kept.get(other, list(mine))[embed.digest("text 0")].size


def test_the_cache_stays_within_its_bound(path: Path) -> None:
    """What was not used for longest leaves first: a text of the last days is not paid for twice."""
    time = _Later()
    kept = cache.Cache(path, 2 * MIB, time)
    old, fresh = _made(range(1000), 384), _made(range(10_000, 10_100), 384)
    space = types.Space(model="a", dim=384)
    kept.put(space, old)
    kept.put(space, fresh)
    for day in range(1, 8):
        time.days = day
        assert set(fresh) == set(kept.get(space, list(fresh)))
        kept.put(space, _made(range(day * 1000, day * 1000 + 1000), 384))
        assert kept.n_bytes() < 8 * MIB
    assert {} == kept.get(space, list(old))
    kept.close()
    assert path.stat().st_size <= 2 * MIB


def test_a_smaller_bound_shrinks_the_file(path: Path) -> None:
    """An operator who lowers `cache_max_mb` gets the space back."""
    kept = cache.Cache(path, 64 * MIB)
    for start in range(0, 8000, 1000):
        kept.put(A, _made(range(start, start + 1000)))
    before = kept.n_bytes()
    kept.max_bytes = before // 4
    kept.put(A, _made(range(9000, 9001)))
    kept.close()
    assert path.stat().st_size <= before // 4


def test_only_the_owner_may_read_it(kept: cache.Cache, path: Path) -> None:
    """Vectors tell of what they were made from."""
    kept.put(A, _made(range(1)))
    assert {0o600} == {stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
    assert 0o700 == stat.S_IMODE(path.parent.stat().st_mode)


def test_X05_a_flipped_bit_is_never_served(kept: cache.Cache, path: Path) -> None:
    """The row whose checksum is wrong is gone, the others stay; the text is simply embedded again."""
    made = _made(range(3))
    kept.put(A, made)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE vectors SET vector = zeroblob(64) WHERE digest = ?", (embed.digest("text 1"),))
    connection.close()
    assert {embed.digest("text 0"), embed.digest("text 2")} == set(kept.get(A, list(made)))
    kept.put(A, made)
    assert set(made) == set(kept.get(A, list(made)))


@pytest.mark.parametrize("kind", ["noise", "short", "empty", "no tables", "other version"])
@pytest.mark.parametrize("is_open", [False, True])
def test_X05_a_damaged_cache_is_begun_anew(path: Path, kind: str, *, is_open: bool) -> None:
    """At start or in the middle of the work: nothing fails, nothing wrong comes out, and it keeps vectors again."""
    made = _made(range(500))
    kept = cache.Cache(path, 64 * MIB)
    kept.put(A, made)
    if not is_open or kind in ("noise", "short", "empty"):
        kept.close()
    if is_open:
        kept.get(A, list(made))
    if kind in ("no tables", "other version"):
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("DROP TABLE vectors" if kind == "no tables" else "PRAGMA user_version = 99")
        other.close()
    else:
        whole = path.read_bytes()
        broken = {"noise": os.urandom(4096) * 20, "short": whole[: len(whole) // 3], "empty": b""}[kind]
        with path.open("r+b") as file:
            file.write(broken)
            file.truncate(len(broken))
    if kind == "other version":
        kept.close()
    kept.get(A, list(made))
    kept.put(A, made)
    kept.close()
    assert set(made) == set(cache.Cache(path, MIB).get(A, list(made)))


def test_a_cache_that_is_deleted_in_the_middle_is_made_again(kept: cache.Cache, path: Path) -> None:
    """`rm -r .cache` is allowed at any time: what comes after is kept where people see it."""
    kept.put(A, _made(range(5)))
    for each in path.parent.iterdir():
        each.unlink()
    path.parent.rmdir()
    assert {} == kept.get(A, list(_made(range(5))))
    kept.put(A, _made(range(5)))
    assert path.exists()
    assert 5 == len(kept.get(A, list(_made(range(5)))))


def test_a_file_where_the_folder_belongs_is_reported_and_stays(kept: cache.Cache, path: Path) -> None:
    """The caller goes on without a cache; once the way is free the same object works."""
    path.parent.write_text("mine")
    for _ in range(2):
        with pytest.raises(errors.StoreRefused):
            kept.put(A, _made(range(1)))
    assert "mine" == path.parent.read_text()
    path.parent.unlink()
    kept.put(A, _made(range(1)))
    assert 1 == len(kept.get(A, list(_made(range(1)))))


def test_a_full_disk_is_reported_and_what_is_there_is_still_read(kept: cache.Cache, path: Path) -> None:
    """SQLite's own limit stands in for the disk: the put fails as refused, nothing is set aside, gets go on."""
    kept.put(A, _made(range(5)))
    connection = kept._connection
    assert connection is not None
    n_pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {n_pages}")
    with pytest.raises(errors.StoreRefused):
        kept.put(A, _made(range(100, 3000)))
    assert 5 == len(kept.get(A, list(_made(range(5)))))
    assert [] == list(path.parent.glob("*damaged*"))


def test_threads_may_share_it(kept: cache.Cache) -> None:
    """Eight threads put and get at once, and each finds what it put."""
    failed: list[object] = []

    def work(number: int) -> None:
        for turn in range(10):
            made = _made(range(number * 1000 + turn * 20, number * 1000 + turn * 20 + 20))
            kept.put(A, made)
            if set(kept.get(A, list(made))) != set(made):
                failed.append((number, turn))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert [] == failed


def test_what_was_put_survives_kill_9(path: Path) -> None:
    """Committed when `put` returns: a killed daemon does not pay again."""
    code = (
        "import os, sys, pathlib, numpy\n"
        "from everosd import types\n"
        "from everosd.models import cache\n"
        "c = cache.Cache(pathlib.Path(sys.argv[1]), 1 << 26)\n"
        "c.put(types.Space(model='a', dim=4), {bytes([n]) * 16: numpy.ones(4, numpy.float32) for n in range(200)})\n"
        "os.kill(os.getpid(), 9)\n"
    )
    assert -9 == subprocess.run([sys.executable, "-c", code, str(path)], check=False).returncode
    space = types.Space(model="a", dim=4)
    assert 200 == len(cache.Cache(path, MIB).get(space, [bytes([n]) * 16 for n in range(200)]))
