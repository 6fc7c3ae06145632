"""What every index promises to the cascade; one suite, run against each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st

from everosd import types
from everosd.index import contract, text, vector
from tests import memory_rows

Opener = Callable[[Path], contract.Index]


@pytest.fixture(params=[text.TextIndex, vector.VectorIndex], ids=["text", "vectors"])
def opener(request: pytest.FixtureRequest) -> Opener:
    made: Opener = request.param
    return made


def document(key: int, body: str = "a word", kind: str = "episode") -> contract.Document:
    return contract.Document(
        key=types.EntryKey(key),
        owner=memory_rows.OWNER,
        kind=kind,
        status="active",
        title="",
        body=body,
        timestamp_us=0,
    )


def keys(*given: int) -> list[types.EntryKey]:
    return [types.EntryKey(key) for key in given]


def test_an_empty_index_holds_nothing(opener: Opener, tmp_path: Path) -> None:
    """A new index is empty and can be committed."""
    index = opener(tmp_path / "index")
    index.commit()
    assert (0, set()) == (index.count(), index.keys())


def test_what_is_written_is_reached_after_commit_and_not_before(opener: Opener, tmp_path: Path) -> None:
    """Writing makes nothing visible; committing all of it."""
    index = opener(tmp_path / "index")
    index.write([document(1), document(2)], [])
    assert set() == index.keys()
    index.commit()
    assert {1, 2} == index.keys()
    assert 2 == index.count()


def test_what_is_shown_is_reached_before_it_is_committed_and_once_after(opener: Opener, tmp_path: Path) -> None:
    """A small batch is seen at once, in the place of what it replaces; the commit of it changes nothing more."""
    index = opener(tmp_path / "index")
    index.write([document(1), document(2), document(3)], [])
    index.commit()
    batch = [document(2), document(4)], [types.EntryKey(3)]
    index.show(*batch)
    assert ({1, 2, 4}, 3) == (index.keys(), index.count())
    index.write(*batch)
    assert ({1, 2, 4}, 3) == (index.keys(), index.count())
    index.commit()
    assert ({1, 2, 4}, 3) == (index.keys(), index.count())
    index.close()


def test_writing_the_same_key_replaces_the_document(opener: Opener, tmp_path: Path) -> None:
    """Replaying a batch, within a commit or after one, doubles nothing."""
    index = opener(tmp_path / "index")
    for _ in range(2):
        index.write([document(1), document(1, "another")], [])
        index.write([document(1, "a third")], [])
        index.commit()
        assert (1, {1}) == (index.count(), index.keys())


def test_a_document_that_changes_its_kind_is_one_document(opener: Opener, tmp_path: Path) -> None:
    """The key alone is the identity: a fact that becomes an Episode is not left behind as a fact."""
    index = opener(tmp_path / "index")
    for kind in ("episode", "atomic_fact", "episode"):
        index.write([document(1, kind=kind)], [])
        index.commit()
        assert (1, {1}) == (index.count(), index.keys())


def test_removing_is_idempotent_and_unknown_keys_are_fine(opener: Opener, tmp_path: Path) -> None:
    """A removal can be replayed, and comes before what the same batch writes."""
    index = opener(tmp_path / "index")
    index.write([document(1), document(2)], keys(1, 7))
    index.commit()
    assert {1, 2} == index.keys()
    for _ in range(2):
        index.write([], keys(1, 99))
        index.commit()
        assert {2} == index.keys()
    index.write([document(3)], [])
    index.write([], keys(3))
    index.commit()
    assert {2} == index.keys()


def test_committed_documents_are_there_after_closing_and_the_others_are_not(opener: Opener, tmp_path: Path) -> None:
    """Close drops what was not committed, and a reopened index goes on from there."""
    index = opener(tmp_path / "index")
    index.write([document(1)], [])
    index.commit()
    index.write([document(2)], keys(1))
    index.close()
    again = opener(tmp_path / "index")
    assert {1} == again.keys()
    again.write([document(3)], [])
    again.commit()
    assert {1, 3} == again.keys()
    again.close()


def test_keys_are_as_large_as_the_ledger_makes_them(opener: Opener, tmp_path: Path) -> None:
    """Keys of 63 bits keep apart and can be removed."""
    index = opener(tmp_path / "index")
    large = 2**63 - 1
    index.write([document(large), document(large - 1), document(1)], [])
    index.commit()
    assert {large, large - 1, 1} == index.keys()
    index.write([], keys(large))
    index.commit()
    assert {large - 1, 1} == index.keys()


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.lists(st.integers(1, 6), max_size=4)),
        st.tuples(st.just("remove"), st.lists(st.integers(1, 6), max_size=4)),
        st.tuples(st.just("commit"), st.just([])),
    ),
    max_size=12,
)


@hypothesis.given(steps=STEPS)
@hypothesis.settings(max_examples=15, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
def test_an_index_is_what_a_dict_would_be(
    opener: Opener, tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, list[int]]]
) -> None:
    """Any order of writes, removals and commits leaves the keys that a dict would hold."""
    index = opener(tmp_path_factory.mktemp("index") / "index")
    expected: set[int] = set()
    for step, numbers in steps:
        if step == "write":
            index.write([document(number) for number in numbers], [])
            expected |= set(numbers)
        elif step == "remove":
            index.write([], keys(*numbers))
            expected -= set(numbers)
        else:
            index.commit()
            assert expected == index.keys()
    index.commit()
    assert expected == index.keys()
    index.close()
