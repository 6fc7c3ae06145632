"""One pattern means the same to whoever looks at what memories are filed under: the ledger, both indexes, a pass."""

from __future__ import annotations

import random
import re
import sqlite3
from collections.abc import Callable, Iterator

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from everosd import types
from everosd.index import contract, fields, mask, text, token, where
from everosd.lifecycle import decisions, window
from everosd.store import lifecycle
from tests import governed, memory_rows

LETTERS = (
    *("a", "A", "b", "/", "_", "*", "?", "[", "]", "^", "-", "\\", ".", "(", "|", "{", "'", '"', " ", "\n", "\r", "\t"),
    *("é", "e\u0301", "ß", "İ", "ı", "日", "\u2028", "\x7f", "\ue000", "😀", "\U0010ffff"),
)
"""What means something to some matcher, or counts as one letter here and as several there."""
_DICE = random.Random(7)  # noqa: S311  # the same values always
VALUES = sorted(
    {
        *("", "a", "A", "a/b", "a/b/c", "ab", "a_b", "a%b", "x\ny", "[a]", "a\\b", "projects/atlas", "Projects/atlas"),
        *("".join(_DICE.choices(LETTERS, k=_DICE.randint(1, 6))) for _ in range(300)),
    }
)
RECORDS = [governed.record(scope=value) for value in VALUES]
WORD = (token.Term(text="word", weight=1.0),)
Found = Callable[[str], set[str]]


def by_expression(pattern: str) -> set[str]:
    """Return the values that an expression of the same meaning matches."""
    said = re.compile("".join(".*" if each == "%" else re.escape(each) for each in pattern or "%"), re.DOTALL)
    return {value for value in VALUES if said.fullmatch(value)}


def by_ledger(pattern: str) -> set[str]:
    """Return the values that the ledger finds."""
    with sqlite3.connect(":memory:") as connection:
        connection.execute("CREATE TABLE filed (scope TEXT)")
        connection.executemany("INSERT INTO filed VALUES (?)", [(value,) for value in VALUES])
        said, given = lifecycle.match("scope", pattern)
        return {value for (value,) in connection.execute(f"SELECT scope FROM filed WHERE {said or '1'}", given)}  # noqa: S608


def by_pass(pattern: str) -> set[str]:
    """Return the values of memories that a pass takes in."""
    fits = window.fits(decisions.Filters(scope=pattern or "%"))
    return {one.scope for one in RECORDS if fits(one)}


def document(nth: int, value: str) -> contract.Document:
    """Return a memory that is filed under a value."""
    return contract.Document(
        key=types.EntryKey(nth), owner=memory_rows.OWNER, kind="memory", status="active", title="", body="word",
        timestamp_us=0, scope=value,
    )  # fmt: skip


def bounds(pattern: str) -> where.Where:
    """Return the bounds of a search that a pattern makes."""
    return where.Where(owner=memory_rows.OWNER, kinds=("memory",), now_us=0, likes=where.likes(scope=pattern))


@pytest.fixture(scope="module")
def by_text(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Found]:
    """Give what finds values by the text index."""
    index = text.TextIndex(tmp_path_factory.mktemp("text"))
    index.write([document(nth, value) for nth, value in enumerate(VALUES)], [])
    index.commit()
    yield lambda pattern: {VALUES[hit.key] for hit in index.search(WORD, bounds(pattern), len(VALUES))}
    index.close()


@pytest.fixture(scope="module")
def by_vectors() -> Found:
    """Give what finds values by the columns beside the vectors."""
    columns = mask.Columns()
    columns.resize(0, len(VALUES))
    rows = np.arange(len(VALUES))
    columns.put(rows, list(rows), [fields.of(document(nth, value)) for nth, value in enumerate(VALUES)])
    return lambda pattern: {VALUES[nth] for nth in np.flatnonzero(columns.fits(bounds(pattern), slice(None)))}


FROM_VALUES = st.builds(
    lambda value, marks: "".join("%" if mark else each for each, mark in zip(value, marks, strict=False)),
    st.sampled_from(VALUES),
    st.lists(st.booleans(), min_size=6, max_size=6),
)
PATTERNS = FROM_VALUES | st.lists(st.sampled_from((*LETTERS, "%", "%", "\0")), max_size=8).map("".join)


@hypothesis.given(pattern=PATTERNS)
@hypothesis.example(pattern="")
@hypothesis.example(pattern="%%")
@hypothesis.example(pattern="\0%")
@hypothesis.example(pattern="%\0")
@hypothesis.example(pattern="x%y")
@hypothesis.example(pattern="a_b")
@hypothesis.example(pattern="%[a]")
@hypothesis.example(pattern="[%a%]")
@hypothesis.example(pattern="%\\%")
def test_a_pattern_means_the_same_everywhere(by_text: Found, by_vectors: Found, pattern: str) -> None:
    """`%` is any text, over lines too; everything else is itself, letter by letter, in upper or lower case."""
    expected = by_expression(pattern)
    assert expected == by_ledger(pattern)
    assert expected == by_pass(pattern)
    assert expected == by_text(pattern)
    assert expected == by_vectors(pattern)


@pytest.mark.timeout(10)
def test_nobody_keeps_a_pass_or_the_ledger_busy_with_a_pattern() -> None:
    """A hundred wildcards over a long text are told at once, where trying all ways would take longer than anybody waits."""
    pattern, long = "%a" * 100 + "%b", governed.record(scope="a" * 10_000)
    said, given = lifecycle.match("?", pattern)
    assert not window.fits(decisions.Filters(scope=pattern))(long)
    assert (0,) == sqlite3.connect(":memory:").execute(f"SELECT {said}", (long.scope, *given)).fetchone()
