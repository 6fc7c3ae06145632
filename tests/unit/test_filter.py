"""The filter language: what it accepts, and that the ledger and the text index read it alike."""

from __future__ import annotations

import datetime as dt
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import msgspec
import pytest
from hypothesis import strategies as st

from everosd import errors
from everosd.index import token, where
from everosd.search import filter as filters
from everosd.store import row
from tests import memory_rows

MS = 1_772_476_795_123
US = MS * 1_000


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ([], "filters"),
        ("x", "filters"),
        ({"user_id": "u"}, "filters.user_id"),
        ({"owner_id": "u"}, "filters.owner_id"),
        ({"owner_type": "user"}, "filters.owner_type"),
        ({"app_id": "a"}, "filters.app_id"),
        ({"AND": [{"project_id": "p"}]}, "filters.AND.0.project_id"),
        ({"colour": "red"}, "filters.colour"),
        ({"NOT": []}, "filters.NOT"),
        ({"session_id": {}}, "filters.session_id"),
        ({"session_id": 7}, "filters.session_id"),
        ({"session_id": None}, "filters.session_id"),
        ({"session_id": ["a"]}, "filters.session_id"),
        ({"session_id": {"like": "a"}}, "filters.session_id.like"),
        ({"session_id": {"in": []}}, "filters.session_id.in"),
        ({"session_id": {"in": "a"}}, "filters.session_id.in"),
        ({"session_id": {"in": ["a", 1]}}, "filters.session_id.in"),
        ({"session_id": "\ud800"}, "filters.session_id"),
        ({"sender_id": {"ne": "a"}}, "filters.sender_id.ne"),
        ({"sender_id": {"gt": "a"}}, "filters.sender_id.gt"),
        ({"timestamp": {"gte": "yesterday"}}, "filters.timestamp.gte"),
        ({"timestamp": {"gte": True}}, "filters.timestamp.gte"),
        ({"timestamp": {"gte": 1.5}}, "filters.timestamp.gte"),
        ({"timestamp": {"gte": 10**30}}, "filters.timestamp.gte"),
        ({"AND": {}}, "filters.AND"),
        ({"AND": [{}]}, "filters.AND.0"),
        ({"OR": ["a"]}, "filters.OR.0"),
    ],
)
def test_A07_what_is_not_of_the_language_is_refused_with_the_field_named(given: object, field: str) -> None:
    """Nothing misspelt is ignored: an ignored condition would widen the answer."""
    with pytest.raises(errors.RequestError) as caught:
        filters.parse(given)
    assert field == caught.value.field
    assert str(caught.value).endswith(f": {field}")


def test_nesting_and_size_are_bounded() -> None:
    """A filter made to exhaust the stack or the database is refused."""
    deep: dict[str, Any] = {"session_id": "s"}
    for _ in range(10_000):
        deep = {"AND": [deep]}
    with pytest.raises(errors.RequestError, match="nest deeper"):
        filters.parse(deep)
    with pytest.raises(errors.RequestError, match="more than 500"):
        filters.parse({"session_id": {"in": ["s"] * 501}})


@pytest.mark.parametrize("given", [{}, {"AND": []}, {"OR": []}, {"AND": None}])
def test_an_empty_list_restricts_nothing(given: object) -> None:
    """Neither an empty filter nor an empty list is a condition."""
    assert ("", ()) == filters.to_sql(filters.parse(given))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (MS, where.During(from_us=US, to_us=US + 999)),
        (1_772_476_795, where.During(from_us=1_772_476_795_000_000, to_us=1_772_476_795_000_999)),
        ("2026-03-02T18:39:55+00:00", where.During(from_us=1_772_476_795_000_000, to_us=1_772_476_795_000_000)),
        ("2026-03-02T19:39:55+01:00", where.During(from_us=1_772_476_795_000_000, to_us=1_772_476_795_000_000)),
        ("2026-03-02T18:39:55Z", where.During(from_us=1_772_476_795_000_000, to_us=1_772_476_795_000_000)),
        ({"gt": MS}, where.During(from_us=US + 1_000)),
        ({"gte": MS}, where.During(from_us=US)),
        ({"lt": MS}, where.During(to_us=US - 1)),
        ({"lte": MS}, where.During(to_us=US + 999)),
    ],
)
def test_timestamps_are_milliseconds_seconds_or_iso(given: object, expected: where.Clause) -> None:
    """Ten digits are seconds; an integer stands for its whole millisecond, so that `eq` finds what `get` showed."""
    assert expected == filters.parse({"timestamp": given})


def test_an_iso_time_without_offset_is_read_in_the_given_zone() -> None:
    """`memory.timezone` is what a person means who names no zone."""
    zone = dt.timezone(dt.timedelta(hours=2))
    assert where.During(from_us=1_772_476_795_000_000, to_us=1_772_476_795_000_000) == filters.parse(
        {"timestamp": "2026-03-02T20:39:55"}, timezone=zone
    )


SESSIONS = (None, "s_1", "s_2", "a/b", "x' OR '1'='1")
PARENTS = ("", "mc_1", "mc_2")
TIMES = (US, US + 1, US + 1_000, US - 1)
VALUES = st.sampled_from(["s_1", "s_2", "a/b", "x' OR '1'='1", "mc_1", "mc_2", "", "u_a", '"', "%"])
TEXT = st.one_of(
    VALUES,
    st.dictionaries(st.sampled_from(["eq", "ne", "gt", "gte", "lt", "lte"]), VALUES, min_size=1, max_size=2),
    st.fixed_dictionaries({"in": st.lists(VALUES, min_size=1, max_size=3)}),
)
MOMENT = st.one_of(
    st.sampled_from([MS, MS + 1, "2026-03-02T18:39:55.123+00:00"]),
    st.dictionaries(
        st.sampled_from(["eq", "ne", "gt", "gte", "lt", "lte"]), st.sampled_from([MS, MS - 1]), min_size=1, max_size=2
    ),
    st.fixed_dictionaries({"in": st.lists(st.sampled_from([MS, MS - 1]), min_size=1, max_size=2)}),
)
SENDER = st.one_of(VALUES, st.fixed_dictionaries({"in": st.lists(VALUES, min_size=1, max_size=2)}))
LEAF = st.fixed_dictionaries(
    {},
    optional={"session_id": TEXT, "parent_id": TEXT, "parent_type": TEXT, "sender_id": SENDER, "timestamp": MOMENT},
).filter(bool)
FILTER = st.recursive(
    LEAF, lambda inner: st.fixed_dictionaries({"OR": st.lists(inner, max_size=2), "AND": st.lists(inner, max_size=2)})
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> memory_rows.MemoryStore:
    """Entries of all shapes, each with the word `here`."""
    made = memory_rows.MemoryStore(tmp_path_factory.mktemp("filter"))
    made.add(
        *(
            made.entry(
                "here",
                session_id=session,
                parent_id=parent,
                parent_type="memcell" if parent else "",
                timestamp_us=TIMES[(i + j) % len(TIMES)],
                sender_ids=(("u_a",), ("u_a", "s_1"), ())[(i + j) % 3],
            )
            for i, session in enumerate(SESSIONS)
            for j, parent in enumerate(PARENTS)
        )
    )
    return made


def in_ledger(store: memory_rows.MemoryStore, clause: where.Clause) -> set[int]:
    """Return the keys that the condition lets through in SQLite."""
    with sqlite3.connect(":memory:") as connection:
        schema = Path(row.__file__).with_name("schema") / "01-ledger.sql"
        connection.executescript(schema.read_text())
        columns = (
            "key, path, entry_id, nth, position, line, form, kind, app, project, owner_type, owner_id, digest, lsn"
        )
        columns += ", session_id, timestamp_us, parent_type, parent_id, sender_ids, updated_us, raw"
        for one in store.rows.by_key.values():
            values: tuple[object, ...] = (
                one.key,
                one.path,
                one.entry_id,
                0,
                0,
                1,
                "marked",
                one.kind,
                "",
                "",
                "",
                "",
                b"",
                1,
            )
            values += (one.session_id, one.timestamp_us, one.parent_type, one.parent_id)
            values += (msgspec.json.encode(one.sender_ids).decode(), 0, "")
            connection.execute(f"INSERT INTO entries ({columns}) VALUES ({', '.join('?' * len(values))})", values)  # noqa: S608
        sql, parameters = filters.to_sql(clause)
        return {key for (key,) in connection.execute(f"SELECT e.key FROM entries e WHERE {sql or '1'}", parameters)}  # noqa: S608


def in_index(store: memory_rows.MemoryStore, clause: where.Clause) -> set[int]:
    """Return the keys that the condition lets through in Tantivy."""
    bounds = where.Where(owner=memory_rows.OWNER, kinds=("episode",), now_us=0, clause=clause)
    return {hit.key for hit in store.index.search(token.query_terms("here"), bounds, 100)}


@hypothesis.given(given=FILTER)
def test_S05_the_ledger_and_the_text_index_read_a_filter_alike(
    store: memory_rows.MemoryStore, given: dict[str, Any]
) -> None:
    """`get` and `search` with the same filter never disagree about an entry, nor does what corrects one come in against it."""
    clause = filters.parse(given)
    in_rows = {key for key, one in store.rows.by_key.items() if filters.fits(clause, one)}
    assert in_ledger(store, clause) == in_index(store, clause) == in_rows


@pytest.mark.parametrize("operation", ["eq", "ne", "gt", "gte", "lt", "lte", "in"])
@pytest.mark.parametrize("value", ["", "s_1", "zz"])
def test_no_condition_on_a_session_matches_an_entry_without_one(
    store: memory_rows.MemoryStore, operation: str, value: str
) -> None:
    """A merged narrative belongs to no session, whatever is asked of it."""
    clause = filters.parse({"session_id": {operation: [value] if operation == "in" else value}})
    without = {key for key, one in store.rows.by_key.items() if one.session_id is None}
    assert set() == in_index(store, clause) & without
    assert set() == in_ledger(store, clause) & without


def test_quotes_in_values_are_text(store: memory_rows.MemoryStore) -> None:
    """A value that looks like SQL or like a query is compared as it stands."""
    clause = filters.parse({"session_id": "x' OR '1'='1"})
    expected = {key for key, one in store.rows.by_key.items() if one.session_id == "x' OR '1'='1"}
    assert len(PARENTS) == len(expected)
    assert expected == in_ledger(store, clause) == in_index(store, clause)


def _session(one: row.EntryRow) -> str:
    return one.session_id or ""


MEANINGS: list[tuple[dict[str, Any], Callable[[row.EntryRow], bool]]] = [
    ({"session_id": "s_1", "parent_id": "mc_1"}, lambda one: _session(one) == "s_1" and one.parent_id == "mc_1"),
    (
        {"AND": [{"session_id": "s_1"}, {"parent_id": "mc_1"}]},
        lambda one: (one.session_id, one.parent_id) == ("s_1", "mc_1"),
    ),
    (
        {"OR": [{"session_id": "s_1"}, {"parent_id": "mc_1"}]},
        lambda one: one.session_id == "s_1" or one.parent_id == "mc_1",
    ),
    ({"session_id": {"gt": "a/b", "lt": "s_2"}}, lambda one: "a/b" < _session(one) < "s_2"),
    ({"session_id": {"gte": "s_1"}}, lambda one: _session(one) >= "s_1"),
    ({"session_id": {"lte": "s_1"}}, lambda one: "" < _session(one) <= "s_1"),
    ({"session_id": {"ne": "s_1"}}, lambda one: _session(one) not in ("", "s_1")),
    ({"session_id": {"in": ["s_1", "s_2"]}}, lambda one: one.session_id in ("s_1", "s_2")),
    ({"parent_id": {"ne": "mc_1"}}, lambda one: one.parent_id != "mc_1"),
    ({"parent_id": ""}, lambda one: one.parent_id == ""),
    ({"sender_id": "u_a"}, lambda one: "u_a" in one.sender_ids),
    ({"sender_id": {"in": ["s_1", "x"]}}, lambda one: "s_1" in one.sender_ids),
    ({"timestamp": MS}, lambda one: US <= one.timestamp_us < US + 1_000),
    ({"timestamp": {"ne": MS}}, lambda one: not US <= one.timestamp_us < US + 1_000),
    ({"timestamp": {"gt": MS}}, lambda one: one.timestamp_us >= US + 1_000),
    ({"timestamp": {"lt": MS}}, lambda one: one.timestamp_us < US),
]


@pytest.mark.parametrize(("given", "holds"), MEANINGS, ids=lambda one: str(one) if isinstance(one, dict) else "")
def test_a_filter_means_what_it_says(
    store: memory_rows.MemoryStore, given: dict[str, Any], holds: Callable[[row.EntryRow], bool]
) -> None:
    """Each operator and both lists let through exactly the entries that they describe: some, and not all."""
    expected = {key for key, one in store.rows.by_key.items() if holds(one)}
    assert 0 < len(expected) < len(store.rows.by_key)
    clause = filters.parse(given)
    assert expected == in_ledger(store, clause) == in_index(store, clause)


def test_sixteen_levels_are_not_too_deep() -> None:
    """The bound itself is allowed, one more is not."""
    deep: dict[str, Any] = {"session_id": "s"}
    for _ in range(filters.MAX_DEPTH):
        deep = {"AND": [deep]}
    filters.parse(deep)
    with pytest.raises(errors.RequestError, match="nest deeper"):
        filters.parse({"AND": [deep]})
