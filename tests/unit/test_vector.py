"""The vector index: nearness, bounds, what is owed, durability, and what it does about damage."""

from __future__ import annotations

import re
import sqlite3
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from numpy.typing import NDArray

from everosd import errors, types
from everosd.index import contract, slab, text, token, vector, where
from tests import memory_rows

OWNER, OTHER = memory_rows.OWNER, memory_rows.OTHER
SPACE = types.Space(model="test", dim=8)


def document(key: int, body: str = "a word", **fields: object) -> contract.Document:
    given: dict[str, object] = {
        "key": key,
        "owner": OWNER,
        "entry_id": f"ep_{key}",
        "kind": "episode",
        "status": "active",
        "title": "",
        "body": body,
        "timestamp_us": key,
    }
    return contract.Document(**(given | fields))  # type: ignore[arg-type]  # fields of the struct by name


def bounds(**fields: object) -> where.Where:
    given: dict[str, object] = {"owner": OWNER, "kinds": ("episode",), "now_us": 1_000}
    return where.Where(**(given | fields))  # type: ignore[arg-type]  # fields of the struct by name


def unit(*rows: Sequence[float]) -> NDArray[np.float32]:
    """Return vectors of eight numbers and of length 1."""
    given = np.zeros((len(rows), SPACE.dim), dtype=np.float32)
    for i, row in enumerate(rows):
        given[i, : len(row)] = row
    made: NDArray[np.float32] = given / np.linalg.norm(given, axis=1, keepdims=True)
    return made


def scattered(n: int, seed: int = 0, dim: int = SPACE.dim) -> NDArray[np.float32]:
    drawn = np.random.default_rng(seed).standard_normal((n, dim)).astype(np.float32)
    made: NDArray[np.float32] = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    return made


def embedded(given: contract.Document, vectors: NDArray[np.float32]) -> vector.Embedded:
    return vector.Embedded(key=given.key, digest=contract.text_digest(given), vectors=vectors)


def fill(index: vector.VectorIndex, *pairs: tuple[contract.Document, NDArray[np.float32]]) -> None:
    """Write documents with their vectors."""
    index.write([given for given, _ in pairs], [])
    index.commit()
    assert len(pairs) == index.put([embedded(*pair) for pair in pairs])


def made(folder: Path, *pairs: tuple[contract.Document, NDArray[np.float32]]) -> vector.VectorIndex:
    index = vector.VectorIndex(folder)
    index.use(SPACE)
    fill(index, *pairs)
    return index


def found(index: vector.VectorIndex, query: NDArray[np.float32], k: int = 10, **fields: object) -> list[int]:
    return [hit.key for hit in index.search(query, bounds(**fields), k)]


EAST, NORTH = unit([1])[0], unit([0, 1])[0]


def test_scores_are_cosines_and_negative_ones_are_zero_but_in_order(tmp_path: Path) -> None:
    """The nearest comes first; what points away scores 0 and is still ordered by how far it points away."""
    index = made(
        tmp_path / "v",
        (document(1), unit([1])),
        (document(2), unit([1, 1])),
        (document(3), unit([-1, 0.5])),
        (document(4), unit([-1])),
    )
    hits = index.search(EAST, bounds(), 10)
    assert [1, 2, 3, 4] == [hit.key for hit in hits]
    assert pytest.approx([1.0, 0.5**0.5, 0.0, 0.0], abs=1e-4) == [hit.score for hit in hits]


def test_equal_vectors_are_ordered_by_key_the_newest_first_wherever_they_lie(tmp_path: Path) -> None:
    """Which of many equal entries are returned does not depend on the order in which they came."""
    one = scattered(1)
    index = made(tmp_path / "v", *((document(key), one) for key in (5, 900, 3, 77, 12, 400, 8)))
    assert [900, 400, 77] == found(index, one[0], 3)


def test_pieces_collapse_to_their_entry_before_k_is_counted(tmp_path: Path) -> None:
    """An entry of thirty near pieces is one hit and leaves room for the others."""
    many = unit(*([1, i / 1000] for i in range(30)))
    index = made(tmp_path / "v", (document(1), many), (document(2), unit([1, 1])), (document(3), unit([0, 1])))
    assert [1, 2, 3] == found(index, EAST, 3)
    assert 1.0 == pytest.approx(index.search(EAST, bounds(), 1)[0].score, abs=1e-4)


def test_X02_there_are_as_many_hits_as_live_entries(tmp_path: Path) -> None:
    """Fifty are asked for: three, one, none are there."""
    index = made(tmp_path / "v", *((document(key), scattered(1, key)) for key in (1, 2, 3)))
    assert 3 == len(found(index, EAST, 50))
    index.write([document(1, status="deprecated"), document(2, status="deprecated")], [])
    index.commit()
    assert [3] == found(index, EAST, 50)
    index.write([document(3, status="deprecated")], [])
    index.commit()
    assert [] == found(index, EAST, 50)
    assert {1, 2, 3} == set(found(index, EAST, 50, statuses=("deprecated",)))


def test_S05_a_small_owner_beside_a_large_one_gets_its_full_answer(tmp_path: Path) -> None:
    """Five of five, with a date filter and a filter by status too: bounds are part of choosing, not a sieve after it."""
    index = vector.VectorIndex(tmp_path / "v")
    index.use(SPACE)
    base = scattered(1)[0]
    near = base + scattered(5_000, 1) * 0.001
    fill(index, *((document(1_000 + i, owner=OTHER), near[i : i + 1]) for i in range(5_000)))
    fill(index, *((document(key), scattered(1, key)) for key in range(1, 6)))
    assert {1, 2, 3, 4, 5} == set(found(index, base, 5))
    assert {2, 3, 4} == set(found(index, base, 5, clause=where.During(from_us=2, to_us=4)))
    index.write([document(3, status="deprecated")], [])
    index.commit()
    assert {1, 2, 4, 5} == set(found(index, base, 5))
    assert [3] == found(index, base, 5, statuses=("deprecated",))
    old = where.During(to_us=1_005)
    assert {1000, 1001, 1002, 1003, 1004, 1005} == set(found(index, base, 10, owner=OTHER, clause=old))


def test_score_returns_the_entries_of_links_as_a_search_scores_them(tmp_path: Path) -> None:
    """A candidate of another leg gets the very score that a search by vector gives it; bounds hold for it too."""
    documents = [document(key, status="active" if key != 3 else "archived") for key in range(1, 6)]
    index = made(tmp_path / "v", *((each, scattered(2, each.key)) for each in documents))
    links = [contract.link(OWNER, each.entry_id) for each in documents[1:4]]
    hits = index.score(EAST, bounds(), [*links, 0, 4711])
    searched: dict[int, contract.Hit] = {hit.key: hit for hit in index.search(EAST, bounds(), 10)}
    assert {2: searched[2], 4: searched[4]} == {hit.key: hit for hit in hits}


def test_what_is_owed_comes_newest_first_and_is_paid_by_put(tmp_path: Path) -> None:
    """A person's edit goes before the backlog; what is skipped, has no text or is done is not asked for."""
    index = vector.VectorIndex(tmp_path / "v")
    index.use(SPACE)
    backlog = [document(key, f"text {key}") for key in range(1, 6)]
    index.write([*backlog, document(9, "")], [])
    index.commit()
    assert ([5, 4], 5) == ([one.key for one in index.owed(2)], index.n_owed())
    edited = document(2, "edited")
    index.write([edited], [])
    index.commit()
    assert [2, 5, 4, 3, 1] == [one.key for one in index.owed(10)]
    assert [5, 3, 1] == [one.key for one in index.owed(10, skip={2, 4})]
    assert 1 == index.put([embedded(edited, scattered(1))])
    assert ([5, 4, 3, 1], 4) == ([one.key for one in index.owed(10)], index.n_owed())
    index.close()
    assert 4 == vector.VectorIndex(tmp_path / "v").n_owed()


def test_until_new_vectors_come_the_old_ones_stand_in(tmp_path: Path) -> None:
    """An edited entry is found by what it was, with what it is now: its fields are never the old ones."""
    index = made(tmp_path / "v", (document(1, "pike"), unit([1])))
    index.write([document(1, "perch", session_id="new")], [])
    index.commit()
    assert [1] == found(index, EAST, clause=where.Is(field="session_id", values=("new",)))
    assert 0 == index.put([embedded(document(1, "pike"), unit([0, 0, 1]))])
    assert 1 == index.put([embedded(document(1, "perch"), unit([0, 1]))])
    assert pytest.approx([0.0, 1.0], abs=1e-4) == [index.search(q, bounds(), 1)[0].score for q in (EAST, NORTH)]
    assert 0 == index.n_owed()


def test_vectors_of_a_document_that_is_gone_are_not_kept(tmp_path: Path) -> None:
    """An answer that comes too late changes nothing; an entry that is emptied loses its vectors."""
    index = made(tmp_path / "v", (document(1), unit([1])), (document(2), unit([1, 1])))
    index.write([document(2, "")], [types.EntryKey(1)])
    index.commit()
    assert 0 == index.put([embedded(document(1), unit([1]))])
    assert ([], 0) == (found(index, EAST), index.n_owed())


def test_E01_another_model_owes_everything_and_the_first_one_is_still_paid_for(tmp_path: Path) -> None:
    """Vectors of two models are never compared, though equally wide; going back costs only what was replaced."""
    documents = [document(key) for key in (1, 2, 3)]
    index = made(tmp_path / "v", *((each, scattered(1, each.key)) for each in documents))
    other = types.Space(model="other", dim=SPACE.dim)
    assert 3 == index.use(other)
    assert [] == found(index, EAST)
    assert 0 == index.put([embedded(documents[0], scattered(1))], SPACE)
    assert 1 == index.put([embedded(documents[0], scattered(1))], other)
    assert [1] == found(index, EAST)
    index.close()
    again = vector.VectorIndex(tmp_path / "v")
    assert (other, [1]) == (again.space, found(again, EAST))
    assert 1 == again.use(SPACE)
    assert {2, 3} == set(found(again, EAST))
    assert [1] == [one.key for one in again.owed(10)]


def test_E06_a_query_of_another_width_is_refused_with_both_widths(tmp_path: Path) -> None:
    """Nonsense is not computed: whoever reads the error sees which two numbers differ."""
    index = made(tmp_path / "v", (document(1), unit([1])))
    for call in (
        lambda: index.search(scattered(1, dim=16)[0], bounds(), 5),
        lambda: index.score(scattered(1, dim=16)[0], bounds(), [1]),
        lambda: index.put([embedded(document(1), scattered(1, dim=16))]),
    ):
        with pytest.raises(errors.WrongWidth, match=r"16 wide.* 8 wide"):
            call()


def test_vectors_are_found_again_after_reopening_with_the_same_scores(tmp_path: Path) -> None:
    """What memory held and what the disk gives back are the same numbers."""
    documents = [document(key) for key in range(1, 60)]
    index = made(tmp_path / "v", *((each, scattered(1 + each.key % 3, each.key)) for each in documents))
    before = index.search(EAST, bounds(), 100)
    index.close()
    again, is_new = vector.open_or_set_aside(tmp_path / "v")
    assert not is_new
    assert before == again.search(EAST, bounds(), 100)
    assert set(range(1, 60)) == again.keys()


def test_a_document_that_changes_owner_or_kind_takes_its_vectors_along(tmp_path: Path) -> None:
    """The key is the identity: shown or committed, it is found where it is now and nowhere else."""
    index = made(tmp_path / "v", (document(1), unit([1])), (document(2, owner=OTHER), unit([1])))
    assert ([1], [2], []) == (
        found(index, EAST),
        found(index, EAST, owner=OTHER),
        found(index, EAST, kinds=("foresight",)),
    )
    for now in (document(1, owner=OTHER), document(1, kind="foresight"), document(1)):
        index.show([now], [])
        owner, kind = now.owner, now.kind
        for _ in range(2):
            for whose in (OWNER, OTHER):
                for which in ("episode", "foresight"):
                    hits = found(index, EAST, owner=whose, kinds=(which,))
                    assert ((whose, which) == (owner, kind)) == (1 in hits)
            index.write([now], [])
            index.commit()


TEXTS = st.sampled_from(["", "a", "b", "ä", "zz"])
FILED = st.sampled_from(["", "a", "a/b", "a/bb", "ä/日本", "A", "a.b*(c)|[d]", "50 off", "a\\b", "a/b/a/b", "x\ny"])
"""What a memory may be filed under, `%` apart, which no pattern can say."""
LONG_PATTERNS = ("%a" * 40, "%b" * 4, "%" * 50 + "b")
"""More than an automaton is made of."""
PATTERNS = st.sampled_from(
    (
        *("%", "a", "a%", "%b", "%/%", "a%b", "%a%b%", "ä%", "%本", "A%", "a.b%", "%(c)|%", "%\\%", "%%b%%", "%a%a%"),
        *("x%y", "_%", "?%", "*", *LONG_PATTERNS),
    )
) | st.text(alphabet="ab/%", max_size=6)
LIKES = st.lists(
    st.builds(where.Like, field=st.sampled_from(["memory_path", "semantic_key", "bucket"]), pattern=PATTERNS),
    max_size=2,
).map(tuple)
DOCUMENTS = st.lists(
    st.fixed_dictionaries(
        {
            "kind": st.sampled_from(["episode", "atomic_fact", "foresight", "agent_case"]),
            "status": st.sampled_from(["active", "deprecated", "expired", "archived"]),
            "timestamp_us": st.integers(0, 5),
            "expires_us": st.none() | st.integers(0, 5),
            "session_id": TEXTS,
            "parent_type": TEXTS,
            "parent_id": TEXTS,
            "sender_ids": st.lists(TEXTS, max_size=3).map(tuple),
            "owner": st.sampled_from([OWNER, OTHER]),
            "memory_path": FILED,
            "semantic_key": FILED,
            "bucket": st.sampled_from(["public", "Public", ""]),
        }
    ),
    min_size=1,
    max_size=8,
)
FIELDS = st.sampled_from(["session_id", "parent_id", "parent_type", "sender_id"])
CLAUSES = st.recursive(
    st.builds(where.Is, field=FIELDS, values=st.lists(TEXTS, max_size=3).map(tuple))
    | st.builds(where.Compare, field=FIELDS, comparison=st.sampled_from(["gt", "gte", "lt", "lte"]), value=TEXTS)
    | st.builds(where.During, from_us=st.none() | st.integers(0, 5), to_us=st.none() | st.integers(0, 5)),
    lambda inner: (
        st.builds(where.Not, part=inner)
        | st.builds(where.All, parts=st.lists(inner, max_size=3).map(tuple))
        | st.builds(where.Any, parts=st.lists(inner, max_size=3).map(tuple))
    ),
    max_leaves=5,
)
BOUNDS = st.builds(
    where.Where,
    owner=st.sampled_from([OWNER, OTHER]),
    kinds=st.lists(st.sampled_from(["episode", "atomic_fact", "foresight"]), min_size=1, max_size=3).map(tuple),
    statuses=st.lists(st.sampled_from(["active", "deprecated", "expired", "archived"]), max_size=4).map(tuple),
    now_us=st.integers(0, 5),
    clause=CLAUSES,
    likes=LIKES,
)


@hypothesis.given(pattern=PATTERNS, text=FILED | st.text(alphabet="ab/", max_size=8))
def test_a_pattern_is_fitted_by_what_an_expression_of_the_same_meaning_matches(pattern: str, text: str) -> None:
    """`%` is any text, everything else is itself, and letters count as they are written."""
    expression = "".join(".*" if each == "%" else re.escape(each) for each in pattern)
    hypothesis.assume(pattern.count("%") < 10)  # where the expression would take for ever, and the pattern does not
    assert where.fitting(pattern)(text) == (re.fullmatch(expression, text, re.DOTALL) is not None)


def test_a_pattern_of_a_thousand_wildcards_is_told_at_once() -> None:
    """Nobody keeps a search busy with one."""
    began_s = time.perf_counter()
    assert not where.fitting("%a" * 500 + "%b")("a" * 100_000)
    assert 1.0 > time.perf_counter() - began_s


@hypothesis.given(given=DOCUMENTS, many=st.lists(BOUNDS, min_size=20, max_size=40))
@hypothesis.settings(
    max_examples=15,
    phases=[hypothesis.Phase.reuse, hypothesis.Phase.generate],  # to shrink, thousands of indexes would be made
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)
def test_both_indexes_let_through_the_same_documents(
    tmp_path_factory: pytest.TempPathFactory, given: list[dict[str, object]], many: list[where.Where]
) -> None:
    """Scope, kinds, statuses, expiry, any tree of conditions and any pattern mean the same by keyword and by vector."""
    folder = tmp_path_factory.mktemp("both")
    words, vectors = text.TextIndex(folder / "t"), vector.VectorIndex(folder / "v")
    vectors.use(SPACE)
    documents = [document(i + 1, "word", **fields) for i, fields in enumerate(given)]
    words.write(documents, [])
    words.commit()
    fill(vectors, *((each, scattered(2, each.key)) for each in documents))
    for within in many:
        expected = {hit.key for hit in words.search(token.query_terms("word"), within, 100)}
        assert expected == {hit.key for hit in vectors.search(EAST, within, 100)}
    words.close()
    vectors.close()


def test_edits_and_searches_at_once_never_fail_nor_miss_what_stays(tmp_path: Path) -> None:
    """Fifty entries stay while others come, change and go: every search finds all fifty."""
    stay = [document(key) for key in range(1, 51)]
    index = made(tmp_path / "v", *((each, unit([1, each.key / 1_000])) for each in stay))
    expected = {each.key for each in stay}
    failures: list[object] = []
    is_over = threading.Event()

    def search() -> None:
        while not is_over.is_set():
            try:
                hits = set(found(index, EAST, 50))
            except Exception as error:  # noqa: BLE001  # of a thread: told below
                failures.append(error)
                return
            if hits != expected:
                failures.append(expected - hits)

    threads = [threading.Thread(target=search) for _ in range(3)]
    for thread in threads:
        thread.start()
    for step in range(30):
        others = [document(1_000 + step % 7 * 10 + i, f"{step}") for i in range(10)]
        fill(index, *((each, unit([-1, i])) for i, each in enumerate(others)))
        index.write([], [each.key for each in others[:5]])
        index.commit()
    is_over.set()
    for thread in threads:
        thread.join()
    assert [] == failures


def test_only_partitions_searched_last_stay_in_memory(tmp_path: Path) -> None:
    """Many owners cost no more memory than is allowed, and every one of them is found again."""
    owners = [types.Owner(app="a", project="p", type="user", id=f"u{i}") for i in range(20)]
    dim = 256
    index = vector.VectorIndex(tmp_path / "v", memory_bytes=300_000)
    index.use(types.Space(model="test", dim=dim))
    for i, owner in enumerate(owners):
        fill(index, *((document(100 * i + j, owner=owner), scattered(1, 100 * i + j, dim)) for j in range(50)))
    for _ in range(2):
        for i, owner in enumerate(owners):
            assert [100 * i] == found(index, scattered(1, 100 * i, dim)[0], 1, owner=owner)
            assert index._n_bytes == sum(part.n_bytes for part in index._loaded.values()) < 300_000
    assert 2 < len(index._loaded) < 10


def test_a_closed_index_answers_from_memory_until_another_one_is_open(tmp_path: Path) -> None:
    """While a disk refuses, what was searched last is still found."""
    index = made(tmp_path / "v", (document(1), unit([1])))
    assert [1] == found(index, EAST)
    index.close()
    assert [1] == found(index, EAST)
    with pytest.raises(errors.IndexUnavailable):
        found(index, EAST, owner=OTHER)
    index.close()


OTHER_SPACE = types.Space(model="other", dim=SPACE.dim)
KEYS = st.integers(1, 5)
TEXT = st.sampled_from(["", "pike", "perch"])
CHANGED = st.builds(
    document,
    KEYS,
    TEXT,
    owner=st.sampled_from([OWNER, OTHER]),
    kind=st.sampled_from(["episode", "foresight"]),
    status=st.sampled_from(["active", "archived"]),
)
STEP = st.one_of(
    st.tuples(st.sampled_from(["write", "show and write"]), st.lists(CHANGED, max_size=3), st.lists(KEYS, max_size=2)),
    st.tuples(st.just("put"), st.lists(st.tuples(KEYS, TEXT, st.integers(1, 3)), min_size=1, max_size=4)),
    st.tuples(st.just("use"), st.sampled_from([SPACE, OTHER_SPACE])),
    st.tuples(st.sampled_from(["reopen", "forget"])),
)


class Model:
    """What a vector index holds, by hand."""

    def __init__(self) -> None:
        """Start empty."""
        self.documents: dict[int, contract.Document] = {}
        self.vectors: dict[int, tuple[types.Space, bytes, int]] = {}
        self.space = SPACE

    def write(self, documents: Sequence[contract.Document], removed: Sequence[int]) -> None:
        """Replace documents by key and remove keys; vectors go with their document, or with its text."""
        for key in removed:
            self.documents.pop(key, None)
        self.documents.update({each.key: each for each in documents})
        for key in list(self.vectors):
            if key not in self.documents or not self.documents[key].body:
                del self.vectors[key]

    def put(self, key: int, body: str, seed: int) -> bool:
        """Keep a vector where the document still has this text."""
        known = self.documents.get(key)
        if known is None or not body or known.body != body:
            return False
        self.vectors[key] = (self.space, contract.text_digest(known), seed)
        return True

    def owed(self) -> set[int]:
        """Return the documents without a vector of their text in this space."""
        return {
            key
            for key, each in self.documents.items()
            if each.body and self.vectors.get(key, (None, b"", 0))[:2] != (self.space, contract.text_digest(each))
        }

    def found(self, within: where.Where) -> list[int]:
        """Return what has a vector, in the order of a search for `EAST`."""
        cosines = {
            key: round(float(scattered(2, self.vectors[key][2])[0] @ EAST), 3)
            for key, each in self.documents.items()
            if key in self.vectors
            and self.vectors[key][0] == self.space
            and (each.owner, each.kind, each.status) == (within.owner, within.kinds[0], within.statuses[0])
        }
        return sorted(cosines, key=lambda key: (-cosines[key], -key))


def check(index: vector.VectorIndex, model: Model) -> None:
    for owner in (OWNER, OTHER):
        for kind in ("episode", "foresight"):
            for status in ("active", "archived"):
                within = bounds(owner=owner, kinds=(kind,), statuses=(status,))
                assert model.found(within) == [hit.key for hit in index.search(EAST, within, 10)]


@hypothesis.given(steps=st.lists(STEP, max_size=14))
@hypothesis.settings(max_examples=60, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
def test_an_index_of_vectors_is_what_two_dicts_would_be(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[Any, ...]]
) -> None:
    """Whatever is written, shown, put, moved, reopened or forgotten: memory, disk and a model by hand agree."""
    folder = tmp_path_factory.mktemp("v") / "v"
    index, model = vector.VectorIndex(folder), Model()
    index.use(SPACE)
    for step in steps:
        match step:
            case ("write" | "show and write") as how, documents, removed:
                documents = list({each.key: each for each in documents}.values())
                removed = [key for key in removed if key not in {each.key for each in documents}]
                model.write(documents, removed)
                if how != "write":
                    index.show(documents, removed)
                    assert (set(model.documents), len(model.documents)) == (index.keys(), index.count())
                    check(index, model)
                index.write(documents, removed)
                index.commit()
            case "put", given:
                for key, body, seed in given:
                    done = embedded(document(key, body), scattered(2, seed)[:1])
                    assert model.put(key, body, seed) == index.put([done])
            case "use", space:
                model.space = space
                assert len(model.owed()) == index.use(space)
            case ("reopen",):
                index.close()
                index = vector.VectorIndex(folder)
            case _:
                for name in list(index._loaded):
                    index._forget(name)
        assert (set(model.documents), len(model.documents)) == (index.keys(), index.count())
        assert (model.owed(), len(model.owed())) == ({one.key for one in index.owed(10)}, index.n_owed())
        check(index, model)
    index.close()


def test_vectors_of_single_entries_are_those_that_were_put(tmp_path: Path) -> None:
    """Vectors come back by key, as near as they are stored, also many at once, and after the index was opened again."""
    given = [document(key, f"text {key}") for key in range(1, slab.MAX_KEYS + 3)]
    pairs = [(one, scattered(1 + one.key % 2, seed=one.key)) for one in given]
    made(tmp_path, *pairs).close()
    index = vector.VectorIndex(tmp_path)
    back = index.vectors([one.key for one in given] + [types.EntryKey(9_999)], SPACE)
    assert {one.key for one in given} == set(back)
    for one, vectors in pairs:
        assert np.allclose(vectors, back[one.key], atol=1e-4)
    index.close()


def test_vectors_of_another_text_or_space_are_not_given(tmp_path: Path) -> None:
    """What an entry said before, and what another model made of it, is no vector of it; nor is a damaged one, which is owed."""
    index = made(tmp_path, (document(1), unit([1])), (document(2), unit([1])), (document(3), unit([1])))
    index.write([document(2, "another word")], [])
    index.commit()
    assert {1, 3} == set(index.vectors(keys(1, 2, 3), SPACE))
    other = types.Space(model="other", dim=8)
    assert {} == index.vectors(keys(1, 2, 3), other)
    with sqlite3.connect(tmp_path / slab.FILE_NAME) as connection:
        connection.execute("UPDATE vectors SET codes = zeroblob(length(codes)) WHERE key = 3")
    connection.close()
    assert {1} == set(index.vectors(keys(1, 2, 3), SPACE))
    assert 2 == index.n_owed()
    index.use(other)
    assert ({}, {}) == (index.vectors(keys(1, 2, 3), SPACE), index.vectors(keys(1, 2, 3), other))
    index.close()


def keys(*numbers: int) -> list[types.EntryKey]:
    return [types.EntryKey(number) for number in numbers]
