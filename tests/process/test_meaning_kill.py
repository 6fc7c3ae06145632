"""Vectors over kill -9 and damage: afterwards nothing is missing, doubled or half embedded, and nothing is paid twice.

A start imports a second's worth of libraries before it does anything that could be cut short. Here a process that has
imported them already is forked for each start; from there on it is the daemon. Graphs, which large partitions get, are
made of small ones.
"""

from __future__ import annotations

import collections
import contextlib
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from bench import measure
from everosd import lock
from everosd.index import slab
from everosd.models import piece
from tests import effort, embedding_stub
from tests.process import conftest, test_daemon, test_meaning

REPO = Path(__file__).resolve().parents[2]
N_FILES, PER_FILE = 12, 20
N_ENTRIES = N_FILES * PER_FILE
N_EDITED = 30
LONG = 7
"""Every file has one entry that is embedded in several pieces, in this place."""
SETTINGS = {
    "MODEL": "a", "MAX_RETRIES": "0", "TIMEOUT_SECONDS": "5", "BATCH_SIZE": "5", "MAX_CONCURRENT": "2", "MAX_TOKENS": "250",
}  # fmt: skip
AT_ONCE = 2
"""Requests that may be under way at a kill."""

PRELOADED = """
import functools, importlib, os, pkgutil, signal, sys
from pathlib import Path
import openai
import everosd
for found in pkgutil.walk_packages(everosd.__path__, "everosd."):
    if not found.name.endswith(("__main__", "worker")):
        importlib.import_module(found.name)
from everosd import config, process
from everosd.index import partition
openai.AsyncOpenAI(api_key="none").embeddings.with_raw_response.create
partition.GRAPH_ROWS, partition._MIN_DELTA, partition._DELTA, partition.EXACT_ROWS = 200, 5, 0.02, 50

def die_at(place, moment, nth):
    names = place.split(".")
    for n in range(len(names) - 1, 0, -1):
        if (owner := sys.modules.get(".".join(names[:n]))) is not None:
            break
    for name in names[n:-1]:
        owner = getattr(owner, name)
    original, n_calls = getattr(owner, names[-1]), 0

    @functools.wraps(original)
    def wrapped(*args, **fields):
        nonlocal n_calls
        n_calls += 1
        is_last = n_calls == int(nth)
        if is_last and moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*args, **fields)
        if is_last and moment == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, names[-1], wrapped)

print("ready", flush=True)
while line := sys.stdin.readline():
    pid = os.fork()
    if pid == 0:
        if point := line.split():
            die_at(*point)
        os._exit(process.serve(config.load(Path(sys.argv[1]), given={"api.port": 0})))
    print(pid, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


class Moment(NamedTuple):
    """Where a daemon is killed."""

    place: str
    """A function of everosd."""
    when: str
    """`before` or `after` it."""
    nth: int
    """At which call, counted from the start."""

    def __str__(self) -> str:
        """As the process takes it."""
        return f"everosd.{self.place} {self.when} {self.nth}"


EMBEDDING = (
    Moment("models.endpoint.Endpoint.passages", "before", 2),
    Moment("models.cache.Cache.put", "before", 2),
    Moment("models.cache.Cache.put", "after", 3),
    Moment("index.slab.Slab.write", "after", 1),
    Moment("index.record.vectors_crc", "after", 7),
    Moment("index.slab.Slab.put", "before", 2),
    Moment("index.slab.Slab.put", "after", 1),
)
"""While texts are embedded: before and after they are asked for, remembered, put in, and in the middle of that."""
SAVING = (
    Moment("index.graph._save", "before", 1),
    Moment("index.graph._save", "after", 1),
    Moment("index.graph.Folder._write_manifest", "before", 1),
    Moment("index.graph._sync", "after", 3),
    Moment("index.graph.Folder._write_manifest", "after", 1),
)
"""While a graph is saved."""
SWAPPING = (
    Moment("cascade.embed.Embedding.fill_from_cache", "before", 1),
    Moment("store.checkpoint.promote", "before", 2),
    Moment("store.checkpoint.promote", "after", 2),
    Moment("cascade.project.Projection._sweep", "before", 4),
)
"""While a rebuild lets its indexes take over, that of the texts first."""
N_RANDOM = effort.rounds(4, 2)
EVERY = effort.rounds(1, 2)
"""Which moments of each kind have their turn: all of them, or the first, the third …"""


class Preloaded:
    """Starts daemons over one root, one after the other."""

    def __init__(self, root: Path, log_path: Path, stub: embedding_stub.EmbeddingStub) -> None:
        """Have the libraries imported; ready when it returns."""
        self.daemon = conftest.Daemon(root, log_path)
        env = conftest._environment({f"EVEROS_EMBEDDING__{name}": value for name, value in SETTINGS.items()})
        env |= {"EVEROS_EMBEDDING__BASE_URL": stub.url, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(REPO)}
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", PRELOADED, str(root)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=env,
                text=True,
                bufsize=1,
            )
        assert self._said() == "ready"
        self._pid = 0

    def _said(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def start(self, point: Moment | None = None) -> None:
        """Start a daemon, which kills itself at `point`."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{point or ''}\n")
        self._pid = int(self._said())

    @property
    def is_alive(self) -> bool:
        """Whether the daemon runs."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, 0)
            return True
        return False

    def connect(self) -> bool:
        """Wait until the daemon listens; False where it is gone before."""

        def look() -> bool:
            held = lock.holder(self.daemon.root)
            if held is None or held.pid != self._pid or not held.port:
                return not self.is_alive
            if self.daemon.client is not None:
                self.daemon.client.close()
            self.daemon.client = httpx.Client(base_url=f"http://127.0.0.1:{held.port}", timeout=30)
            return True

        conftest.wait_for(look, "the port, or the end")
        return self.is_alive

    def end(self, number: signal.Signals | None = None) -> int:
        """Send a signal, wait for the end and return the exit code, negative where it was a signal."""
        if number is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, number)
        conftest.wait_for(lambda: not self.is_alive, "the end of the daemon", 20)
        return int(self._said())

    def close(self) -> None:
        """Leave nothing running."""
        with contextlib.suppress(ProcessLookupError):
            if self._pid:
                os.kill(self._pid, signal.SIGKILL)
        self.daemon.close()
        self._process.communicate(timeout=20)


@pytest.fixture
def stub() -> Iterator[embedding_stub.EmbeddingStub]:
    """A provider."""
    with embedding_stub.EmbeddingStub(dim=32, delay_s=0.01) as served:
        yield served


@pytest.fixture
def preloaded(root: Path, tmp_path: Path, stub: embedding_stub.EmbeddingStub) -> Iterator[Preloaded]:
    """Daemons over `root`; the last one is gone afterwards."""
    one = Preloaded(root, tmp_path / "everosd.log", stub)
    yield one
    one.close()


class Notes:
    """The entries on disk, each with a word of its own that its text has throughout."""

    def __init__(self, root: Path) -> None:
        """Write them."""
        self.root = root
        self.texts = [[self._text(day, n, 0) for n in range(PER_FILE)] for day in range(N_FILES)]
        for day in range(N_FILES):
            self.save(day)

    @staticmethod
    def word(day: int, n: int) -> str:
        """Return the word that one entry alone has, as its title has it."""
        return f"qu{day:02}x{n:02}"

    def _text(self, day: int, n: int, version: int) -> str:
        word = self.word(day, n)
        dice = random.Random(f"{word} {version}")  # noqa: S311  # texts that are far from each other: graphs like it
        words = [f"w{dice.randrange(500)}" for _ in range(400 if n == LONG else 5)]
        return " ".join([word, *words])

    def edit(self, dice: random.Random, version: int) -> None:
        """Write some of them anew, as an editor does."""
        chosen = dice.sample(range(N_ENTRIES), N_EDITED)
        for day in {at // PER_FILE for at in chosen}:
            for n in [at % PER_FILE for at in chosen if at // PER_FILE == day]:
                self.texts[day][n] = self._text(day, n, version)
            self.save(day)

    def save(self, day: int) -> None:
        """Write one file by rename."""
        name = f"2026-03-{day + 1:02}"
        with _elsewhere(self.root) as other:
            made = test_daemon.write_day(other, name, *self.texts[day])
            path = self.root / made.relative_to(other)
            path.parent.mkdir(parents=True, exist_ok=True)
            measure.by_rename(path, made.read_bytes())

    def n_pieces(self) -> collections.Counter[int]:
        """Return how many entries there are of each number of pieces."""
        return collections.Counter(len(pieces(text)) for day in self.texts for text in day)


def pieces(text: str) -> list[str]:
    """Return an entry's text as it is embedded."""
    return piece.pieces(text[:40].strip(), text, 250)


@contextlib.contextmanager
def _elsewhere(root: Path) -> Iterator[Path]:
    other = root.parent / "elsewhere"
    try:
        yield other
    finally:
        shutil.rmtree(other)


def assert_whole(preloaded: Preloaded, notes: Notes) -> None:
    """Every entry is found by vector, as itself and once; the index has its rows and nothing else."""
    daemon = preloaded.daemon
    test_meaning.embedded(daemon, N_ENTRIES)
    missed = []
    for day in range(N_FILES):
        for n in range(PER_FILE):
            wanted = f"{test_meaning.USER}_ep_202603{day + 1:02}_{n + 1:08}"
            if test_meaning.found(daemon, " ".join(pieces(notes.texts[day][n])[0].split()), "vector", top_k=1) != [
                wanted
            ]:
                missed.append(wanted)
    assert [] == missed
    ids = test_meaning.found(daemon, notes.word(3, 3), "vector", top_k=100)
    assert (100, 100) == (len(ids), len(set(ids)))
    assert conftest.run("verify", "--root", str(daemon.root)).returncode == 0
    assert 0 == preloaded.end(signal.SIGTERM)
    folders = [path for path in (daemon.root / ".index" / "vectors").iterdir() if path.name.isdigit()]
    assert 1 == len(folders)
    index = sqlite3.connect(folders[0] / slab.FILE_NAME)
    (n_documents, n_vectors) = index.execute(
        "SELECT count(*), count(v.key) FROM documents d LEFT JOIN vectors v USING (key, digest)"
    ).fetchone()
    assert (N_ENTRIES, N_ENTRIES) == (n_documents, n_vectors)
    assert (N_ENTRIES,) == index.execute("SELECT count(*) FROM vectors").fetchone()
    assert notes.n_pieces() == collections.Counter(n for (n,) in index.execute("SELECT n FROM vectors"))
    index.close()
    stems = {path.stem for path in (folders[0] / "graphs").glob("*.hnsw")}
    assert len(stems) <= 1


# -- kill -9 -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_X05_kill_while_embedding_saving_or_swapping_loses_and_doubles_nothing(
    preloaded: Preloaded, root: Path, stub: embedding_stub.EmbeddingStub
) -> None:
    """20 kills (11 but with `make long`), edits before each: what was answered and kept is not asked for again, only what was under way may be."""
    dice = random.Random(7)  # noqa: S311  # the same edits each time
    notes = Notes(root)
    preloaded.start()
    assert preloaded.connect()
    test_meaning.embedded(preloaded.daemon, N_ENTRIES)
    preloaded.end(signal.SIGKILL)
    points: list[Moment | None] = [*EMBEDDING[::EVERY], *SAVING[::EVERY], *SWAPPING[::EVERY], *[None] * N_RANDOM]
    assert effort.rounds(20, 11) == len(points)
    dice.shuffle(points)
    under_way: collections.Counter[str] = collections.Counter()
    for version, point in enumerate(points, start=1):
        notes.edit(dice, version)
        n_before = len(stub.asked)
        preloaded.start(point)
        code = live(preloaded, point, dice)
        assert -signal.SIGKILL == code, f"{point}\n{preloaded.daemon.log()[-3000:]}"
        conftest.wait_for(lambda: not stub.n_under_way, "the last answers")
        requests = [one.texts for one in stub.asked[n_before:] if "\n" in one.texts[0]]
        under_way.update(text for texts in requests[-AT_ONCE:] for text in texts)
    preloaded.start()
    assert preloaded.connect()
    assert_whole(preloaded, notes)
    said = [line for line in preloaded.daemon.log().splitlines() if '_failed"' in line]
    assert [] == said, "a start over what a kill has left, or a swap, is no failure of anything"
    twice = {text: n for text, n in collections.Counter(test_meaning.paid(stub)).items() if n > 1}
    assert {} == {text: n for text, n in twice.items() if n > 1 + under_way[text]}


def live(preloaded: Preloaded, point: Moment | None, dice: random.Random) -> int:
    """Let a daemon do what it is to be killed at, until it is; return its exit code."""
    if point is None and dice.random() < 0.5:
        time.sleep(dice.random() * 0.3)
        return preloaded.end(signal.SIGKILL)
    rebuilding: threading.Thread | None = None
    give_up_s = time.monotonic() + 20
    is_there = preloaded.connect()
    if is_there and (point in SWAPPING or point is None):
        rebuilding = threading.Thread(target=_rebuild, args=(preloaded.daemon,))
        rebuilding.start()
    if point is None:
        time.sleep(dice.random() * 0.5)
        code = preloaded.end(signal.SIGKILL)
    else:
        while preloaded.is_alive and time.monotonic() < give_up_s:
            with contextlib.suppress(httpx.TransportError):
                if is_there:  # whose partition is searched gets a graph
                    test_meaning.ask(preloaded.daemon, "what version says", "vector")
            time.sleep(0.02)
        code = preloaded.end(None if not preloaded.is_alive else signal.SIGTERM)
    if rebuilding is not None:
        rebuilding.join()
    return code


def _rebuild(daemon: conftest.Daemon) -> None:
    with contextlib.suppress(httpx.TransportError), httpx.Client(base_url=daemon.http.base_url, timeout=30) as client:
        client.post("/api/v1/admin/rebuild", json={})


# -- damage ------------------------------------------------------------------------------------------------------------


def cut(path: Path) -> None:
    """Leave the first half."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path: Path) -> None:
    """Turn a byte in each fifth of the file."""
    data = bytearray(path.read_bytes())
    for fifth in range(5):
        data[len(data) * (2 * fifth + 1) // 10] ^= 0x55
    path.write_bytes(data)


def spoil(path: Path) -> None:
    """Put something else in its place."""
    path.write_bytes(b"no index of ours " * 100)


Harm = Callable[[Path], object]
DAMAGE: tuple[dict[str, Harm], ...] = (
    {"vectors.db": cut},
    {"vectors.db": flip},
    {"vectors.db": spoil},
    {"vectors.db": Path.unlink},
    {"*.hnsw": cut, "embeddings.db": cut},
    {"*.hnsw": flip, "embeddings.db": flip},
    {"*.marks": Path.unlink, "embeddings.db": spoil},
    {"*.json": spoil, "embeddings.db": Path.unlink},
)
"""By name of the file, what happens to it between two starts. The index or the cache is whole each time."""


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_X05_damage_to_anything_derived_is_mended_and_costs_nothing(
    preloaded: Preloaded, root: Path, stub: embedding_stub.EmbeddingStub
) -> None:
    """Index, graph or cache cut, flipped, replaced or deleted: everything is found, and no text is paid for again."""
    notes = Notes(root)
    with_graph(preloaded, notes)
    stub.forget()
    for harm in DAMAGE:
        for pattern, harmed in harm.items():
            paths = [path for path in root.rglob(pattern) if "damaged" not in str(path)]
            assert paths, f"{pattern}: {sorted(map(str, (root / '.index').rglob('*')))}"
            for path in paths:
                harmed(path)
        with_graph(preloaded, notes)
        assert [] == test_meaning.paid(stub), harm
        if "*.hnsw" in harm:
            (aside,) = root.rglob("graphs/damaged")
            shutil.rmtree(aside)
    preloaded.start()
    assert preloaded.connect()
    assert_whole(preloaded, notes)
    assert [] == test_meaning.paid(stub)


def with_graph(preloaded: Preloaded, notes: Notes) -> None:
    """Serve until everything has vectors, a search finds what it should, and there is a graph; then stop."""
    daemon = preloaded.daemon
    preloaded.start()
    assert preloaded.connect()
    test_meaning.embedded(daemon, N_ENTRIES)
    for day in range(N_FILES):
        conftest.wait_for(lambda day=day: is_found(daemon, notes, day), "the entry itself")  # type: ignore[misc]
    conftest.wait_for(lambda: list(daemon.root.rglob("graphs/*.json")), "a graph")
    test_meaning.embedded(daemon, N_ENTRIES)
    assert 0 == preloaded.end(signal.SIGTERM)


def is_found(daemon: conftest.Daemon, notes: Notes, day: int) -> bool:
    """Tell whether a search by meaning finds an entry.

    It is refused while the index is made anew, and until the model has been asked how wide its vectors are: a search may
    come upon damage first.
    """
    answer = test_meaning.ask(daemon, notes.texts[day][5], "vector", top_k=1)
    if answer.status_code != 200:
        status, code = test_meaning.refusal(answer)
        assert status == 503
        assert code in {"CAPABILITY_UNAVAILABLE", "EXTERNAL_SERVICE_UNAVAILABLE"}
        return False
    found = [hit["id"] for hit in answer.json()["data"]["episodes"]]
    return found == [f"{test_meaning.USER}_ep_202603{day + 1:02}_00000006"]
