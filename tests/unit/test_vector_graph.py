"""Graphs over large partitions: what they find, how they follow edits, and that damaged ones are never read."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from everosd import types
from everosd.index import build, contract, graph, partition, vector, where
from tests import memory_rows

OWNER = memory_rows.OWNER
GRAPH_ROWS = 4_500
"""Instead of more: many tests build a graph, and a small one shows the same."""
N, DIM = GRAPH_ROWS + 400, 16
SPACE = types.Space(model="test", dim=DIM)
PATIENCE_S = 25.0

Vectors = NDArray[np.float32]


def clustered(n: int, seed: int = 1) -> Vectors:
    """Return vectors as texts have them: about a few hundred subjects."""
    dice = np.random.default_rng(seed)
    subjects = np.random.default_rng(7).standard_normal((200, DIM))
    drawn = subjects[dice.integers(0, 200, n)] + 0.5 * dice.standard_normal((n, DIM))
    made: Vectors = (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32)
    return made


def document(key: int, body: str = "a word", status: str = "active") -> contract.Document:
    return contract.Document(
        key=types.EntryKey(key),
        owner=OWNER,
        entry_id=f"ep_{key}",
        kind="episode",
        status=status,
        title="",
        body=body,
        timestamp_us=key % 1_000,
    )


def fill(index: vector.VectorIndex, vectors: Vectors, first: int = 1, body: str = "a word") -> None:
    documents = [document(first + i, body) for i in range(len(vectors))]
    index.write(documents, [])
    index.commit()
    done = [
        vector.Embedded(key=each.key, digest=contract.text_digest(each), vectors=vectors[i : i + 1])
        for i, each in enumerate(documents)
    ]
    assert len(done) == index.put(done)


def bounds(n_of_1000: int = 1_000, statuses: tuple[str, ...] = ("active",)) -> where.Where:
    clause = where.During(to_us=n_of_1000 - 1)
    return where.Where(owner=OWNER, kinds=("episode",), now_us=1, statuses=statuses, clause=clause)


def recall(index: vector.VectorIndex, vectors: Vectors, within: where.Where, n_of_1000: int = 1_000) -> float:
    """Return the share of the ten nearest that are found, over queries near and not so near to what is there."""
    moments = (np.arange(len(vectors)) + 1) % 1_000
    n_found = 0
    queries = clustered(40, seed=99)
    for query in queries:
        cosines = np.where(moments < n_of_1000, vectors @ query, -2)
        least = np.partition(cosines, -10)[-10]
        hits = index.search(query, within, 10)
        assert 10 == len({hit.key for hit in hits})
        n_found += int(np.count_nonzero(vectors[[hit.key - 1 for hit in hits]] @ query >= least - 1e-4))
    return n_found / (10 * len(queries))


def part_of(index: vector.VectorIndex) -> partition.Partition:
    (part,) = index._loaded.values()
    return part


def with_graph(folder: Path) -> vector.VectorIndex:
    """Open an index, search it, and wait for the graph that it wants."""
    index = vector.VectorIndex(folder)
    index.search(clustered(1)[0], bounds(), 10)
    assert index._builder.wait(PATIENCE_S)
    return index


@pytest.fixture(scope="module", autouse=True)
def _smaller() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition, "GRAPH_ROWS", GRAPH_ROWS)
        patch.setattr(partition, "_MIN_DELTA", 600)
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, _smaller: None) -> Path:
    """Return the folder of an index whose only partition has a graph; to be copied."""
    folder = tmp_path_factory.mktemp("made") / "vectors"
    index = vector.VectorIndex(folder)
    index.use(SPACE)
    fill(index, clustered(N))
    index.close()
    with_graph(folder).close()
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Iterator[Path]:
    shutil.copytree(made, tmp_path / "vectors")
    yield tmp_path / "vectors"
    shutil.rmtree(tmp_path / "vectors", ignore_errors=True)


def test_a_graph_finds_what_exact_search_finds_at_any_share_that_fits(folder: Path) -> None:
    """From everything down to one in a hundred: at least 98 of 100 of the ten nearest, and always ten."""
    index = with_graph(folder)
    assert part_of(index).has_graph
    vectors = clustered(N)
    for n_of_1000 in (1_000, 900, 700, 300, 100, 10):
        assert recall(index, vectors, bounds(n_of_1000), n_of_1000) >= 0.98
    index.close()


def test_replaced_and_added_vectors_are_found_before_and_after_a_new_graph(folder: Path) -> None:
    """Edits are searched exactly beside the graph until another one holds them; what they replaced is never found."""
    index = with_graph(folder)
    vectors = np.concatenate([clustered(N), clustered(900, seed=4)])
    vectors[:300] = clustered(300, seed=5)
    first = part_of(index)._graph
    fill(index, vectors[:300], body="edited")
    assert recall(index, vectors[:N], bounds()) >= 0.98
    fill(index, vectors[N:], first=N + 1)
    assert recall(index, vectors, bounds()) >= 0.98
    assert index._builder.wait(PATIENCE_S)
    second = part_of(index)._graph
    assert first is not None
    assert second is not None
    assert second.n == first.n + 1_200  # extended, not built anew
    assert recall(index, vectors, bounds()) >= 0.98
    index.close()
    again = with_graph(folder)
    assert second.n == part_of(again)._graph.n  # type: ignore[union-attr]  # it has one
    assert recall(again, vectors, bounds()) >= 0.98
    again.close()


def test_a_graph_of_which_much_is_dead_is_built_anew(folder: Path) -> None:
    """Endless edits do not make the graph grow: it holds what is there, once."""
    index = with_graph(folder)
    for seed in (5, 6, 7):
        fill(index, clustered(1_400, seed=seed), body=f"edit {seed}")
        index.search(clustered(1)[0], bounds(), 10)
        assert index._builder.wait(PATIENCE_S)
    part = part_of(index)
    assert part._graph is not None
    assert part._graph.n < 1.3 * N
    assert 1 == len(list(folder.glob("graphs/*.hnsw")))
    assert part._n < 1.2 * N
    index.close()


def test_deprecated_entries_are_no_neighbours(folder: Path) -> None:
    """A status that changes counts at once, though the graph does not know of it."""
    index = with_graph(folder)
    query = clustered(N)[5]
    near = [hit.key for hit in index.search(query, bounds(), 30)]
    index.write([document(key, status="deprecated") for key in near[:20]], [types.EntryKey(near[20])])
    index.commit()
    hits = [hit.key for hit in index.search(query, bounds(), 10)]
    assert near[21:] == hits[:9]
    assert set(near[:20]) == {hit.key for hit in index.search(query, bounds(statuses=("deprecated",)), 30)}
    index.close()


def test_a_graph_is_loaded_and_not_built_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A restart costs no processor time worth mentioning."""
    monkeypatch.setattr(build.Builder, "_build", lambda *_: pytest.fail("built"))
    index = with_graph(folder)
    assert part_of(index).has_graph
    assert N == part_of(index)._n_in_graph
    index.close()


@pytest.mark.parametrize("what", ["truncated", "flipped", "no manifest", "garbage manifest", "no marks"])
def test_X05_a_damaged_graph_is_set_aside_and_built_again(folder: Path, what: str) -> None:
    """Hnswlib, which crashes over garbage, never reads any; searches are exact meanwhile and never fail."""
    graphs = folder / "graphs"
    (file,) = graphs.glob("*.hnsw")
    (marks,) = graphs.glob("*.marks")
    (manifest,) = graphs.glob("*.json")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0x40
    match what:
        case "truncated":
            file.write_bytes(content[: len(content) // 2])
        case "flipped":
            file.write_bytes(content)
        case "no manifest":
            manifest.unlink()
        case "garbage manifest":
            manifest.write_bytes(b"\0garbage")
        case _:
            marks.unlink()
    index = vector.VectorIndex(folder)
    assert 1.0 == recall(index, clustered(N), bounds())
    assert index._builder.wait(PATIENCE_S)
    assert part_of(index).has_graph
    assert recall(index, clustered(N), bounds()) >= 0.98
    index.close()


def test_what_a_crash_left_of_graphs_is_removed(folder: Path) -> None:
    """Files that no manifest names are those of a save that never ended."""
    left = [folder / "graphs" / name for name in ("1-99.hnsw", "1-99.marks", "1.tmp")]
    for path in left:
        path.write_bytes(b"half")
    index = vector.VectorIndex(folder)
    assert [] == [path for path in left if path.exists()]
    index.close()
    assert 1 == len(list(folder.glob("graphs/*.hnsw")))


def test_a_graph_without_the_promised_recall_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no list of candidates is long enough, search stays exact, and it is not tried again after each start."""
    monkeypatch.setattr(build, "RECALL", 1.01)
    index = vector.VectorIndex(tmp_path / "v")
    index.use(SPACE)
    vectors = clustered(N, seed=3)
    fill(index, vectors)
    index.search(vectors[0], bounds(), 10)
    assert index._builder.wait(PATIENCE_S)
    assert not part_of(index).has_graph
    assert 1.0 == recall(index, vectors, bounds())
    index.close()
    monkeypatch.setattr(build.Builder, "_build", lambda *_: pytest.fail("built"))
    again = with_graph(tmp_path / "v")
    assert not part_of(again).has_graph
    assert [] == list(tmp_path.glob("v/graphs/*.hnsw"))
    again.close()


def test_a_graph_that_was_measured_during_many_edits_is_not_refused_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenth of the vectors is replaced while its recall is measured: the next search has another one built."""
    index = vector.VectorIndex(tmp_path / "v")
    index.use(SPACE)
    vectors = clustered(N)
    fill(index, vectors)
    original, n_measured = build.Builder._tune, [0]

    def tune(builder: build.Builder, part: partition.Partition, plan: partition.Plan, made: graph.Graph) -> bool:
        n_measured[0] += 1
        if n_measured[0] > 1:
            return original(builder, part, plan, made)
        vectors[: N // 10] = clustered(N // 10, seed=99)
        fill(index, vectors[: N // 10], body="edited")
        return False

    monkeypatch.setattr(build.Builder, "_tune", tune)
    for is_there in (False, True):
        index.search(vectors[0], bounds(), 10)
        assert index._builder.wait(PATIENCE_S)
        assert is_there == part_of(index).has_graph
    assert recall(index, vectors, bounds()) >= 0.98
    index.close()


def test_edits_during_a_build_are_found_after_it(tmp_path: Path) -> None:
    """A vector that was replaced while the graph took it in is neither lost nor found in two places."""
    index = vector.VectorIndex(tmp_path / "v")
    index.use(SPACE)
    vectors = clustered(N)
    fill(index, vectors)
    index.search(vectors[0], bounds(), 10)
    n = 0
    while not index._builder.wait(0.0) and n < 500:
        vectors[n] = clustered(1, seed=1_000 + n)[0]
        fill(index, vectors[n : n + 1], first=n + 1, body="edited")
        n += 1
    assert index._builder.wait(PATIENCE_S)
    part = part_of(index)
    assert part.has_graph
    assert N == part.n_live
    for i in range(n):
        hits = index.search(vectors[i], bounds(), 3)
        assert pytest.approx(1.0, abs=1e-3) == hits[0].score
        assert i + 1 in [hit.key for hit in hits if hit.score > 0.999]
    assert recall(index, vectors, bounds()) >= 0.98
    index.close()


def test_S05_a_few_entries_beside_thousands_of_equal_ones_are_found(tmp_path: Path) -> None:
    """Equal vectors lead a graph nowhere else: it is not used, or what it does not lead to is searched beside it."""
    index = vector.VectorIndex(tmp_path / "v")
    index.use(SPACE)
    vectors = np.concatenate([np.repeat(clustered(1), N - 50, axis=0), clustered(50, seed=6)])
    fill(index, vectors)
    index.search(vectors[0], bounds(), 10)
    assert index._builder.wait(PATIENCE_S)
    for i in range(N - 50, N):
        assert i + 1 == index.search(vectors[i], bounds(), 3)[0].key
    assert 10 == len(index.search(vectors[0], bounds(), 10))
    index.close()


def test_closing_stops_a_build_in_the_middle(tmp_path: Path) -> None:
    """A stop does not wait for a graph."""
    index = vector.VectorIndex(tmp_path / "v")
    index.use(SPACE)
    fill(index, clustered(N))
    index.search(clustered(1)[0], bounds(), 10)
    thread = index._builder._thread
    index.close()
    assert thread is not None
    assert not thread.is_alive()
    assert [] == list(tmp_path.glob("v/graphs/*"))


def test_another_model_makes_the_graph_useless(folder: Path) -> None:
    """The files of a graph of another space are removed, not read."""
    index = vector.VectorIndex(folder)
    index.use(types.Space(model="other", dim=DIM))
    vectors = clustered(N, seed=8)
    fill(index, vectors)
    index.search(vectors[0], bounds(), 10)
    assert index._builder.wait(PATIENCE_S)
    assert recall(index, vectors, bounds()) >= 0.98
    assert "other" == graph.Folder(folder / "graphs").manifest("1").space.model  # type: ignore[union-attr]  # it is there
    index.close()
