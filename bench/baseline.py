"""What the machine does without everosd, measured in the same run: a figure means little without the disk under it."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import tantivy

from bench import table, text
from bench.table import Figure

ROUNDS = 40


def measure(folder: Path) -> Iterator[Figure]:
    """Yield the baseline figures; `folder` is on the disk that roots are made on."""
    folder.mkdir(parents=True, exist_ok=True)
    yield _figure("baseline: write 4 KB and fsync, p50", _fsync(folder / "fsync"))
    yield _figure("baseline: SQLite commit of one row (WAL), p50", _sqlite(folder / "one.db"))
    yield Figure(name="baseline: SQLite insert", size="10,000", value=_insert(folder / "many.db"), unit="s")
    yield _figure("baseline: Tantivy commit of one document, p50", _tantivy(folder / "tantivy"))


def commit_ms(folder: Path) -> float:
    """Return the median milliseconds of a Tantivy commit of one document just now: what an edit cannot be faster than."""
    return table.quantile(_tantivy(folder), 0.5) * 1000


def _figure(name: str, samples: list[float]) -> Figure:
    return Figure(name=name, value=table.quantile(samples, 0.5) * 1000, unit="ms")


def _timed(act: Callable[[int], None], rounds: int = ROUNDS) -> list[float]:
    samples = []
    for number in range(rounds):
        started = time.perf_counter()
        act(number)
        samples.append(time.perf_counter() - started)
    return samples


def _fsync(path: Path) -> list[float]:
    with path.open("wb", buffering=0) as file:

        def act(_: int) -> None:
            file.write(b"x" * 4096)
            os.fsync(file.fileno())

        return _timed(act)


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript(
        "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; CREATE TABLE t (k INTEGER PRIMARY KEY, v TEXT)"
    )
    return connection


def _sqlite(path: Path) -> list[float]:
    connection = _connect(path)
    samples = _timed(lambda number: void(connection.execute("INSERT INTO t VALUES (?, ?)", (number, "x" * 700))))
    connection.close()
    return samples


def _insert(path: Path) -> float:
    connection = _connect(path)
    rows = [(number, "x" * 700) for number in range(10_000)]

    def act(_: int) -> None:
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO t VALUES (?, ?)", rows)
        connection.execute("COMMIT")

    seconds = _timed(act, 1)[0]
    connection.close()
    return seconds


def _tantivy(folder: Path) -> list[float]:
    folder.mkdir(parents=True, exist_ok=True)
    builder = tantivy.SchemaBuilder()
    builder.add_text_field("body", stored=False)
    index = tantivy.Index(builder.build(), path=str(folder), reuse=False)
    writer = index.writer(heap_size=15_000_000, num_threads=1)

    def act(number: int) -> None:
        document = tantivy.Document()
        document.add_text("body", f"one document {text.word(number)}")
        writer.add_document(document)
        writer.commit()

    samples = _timed(act, 20)
    writer.wait_merging_threads()
    return samples


def void(_: object) -> None:
    """Take a value that nobody needs."""
