"""The fields of a partition's rows as columns, and bounds evaluated over all of them at once.

What fits is exactly what the text index lets through (`shelf`); the contract suite compares the two. Strings are
dictionary-encoded: a condition is decided once per distinct value, then looked up by code for every row.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from everosd.index import fields, where

T = TypeVar("T")
N = TypeVar("N", bound=np.generic)

Mask = NDArray[np.bool_]
"""`(n,)`: which rows fit."""

At = slice | NDArray[np.int64]
"""Rows: the first ones, or any."""

NEVER_US = 2**63 - 1
"""Stands for an entry that does not expire."""

_VALUE_BYTES = 160  # a distinct value: the string, its place in the list and in the dict
_ROW_BYTES = 5 * 8 + (6 + len(where.FILINGS)) * 4  # five numbers, twelve codes


class Columns:
    """One array per field, grown together; a row is overwritten in place. Not safe without the partition's lock."""

    def __init__(self) -> None:
        """Start without rows."""
        self.keys = np.zeros(0, dtype=np.int64)
        self.own_links = np.zeros(0, dtype=np.int64)
        self.parent_links = np.zeros(0, dtype=np.int64)
        self.timestamps = np.zeros(0, dtype=np.int64)
        self._expires = np.zeros(0, dtype=np.int64)
        self._kinds: _Coded[str] = _Coded()
        self._statuses: _Coded[str] = _Coded()
        self._senders: _Coded[tuple[str, ...]] = _Coded()
        texts = ("session_id", "parent_type", "parent_id", *where.FILINGS)
        self._texts: dict[str, _Coded[str]] = {name: _Coded() for name in texts}

    @property
    def n_bytes(self) -> int:
        """Memory in use, about."""
        return _ROW_BYTES * len(self.keys) + _VALUE_BYTES * self.n_values

    @property
    def n_values(self) -> int:
        """Distinct values ever seen: those of rows long overwritten too."""
        return sum(len(coded.values) for coded in self._coded())

    def resize(self, n: int, capacity: int) -> None:
        """Make room for `capacity` rows; the first `n` are kept."""
        self.keys = resized(self.keys, n, capacity)
        self.own_links = resized(self.own_links, n, capacity)
        self.parent_links = resized(self.parent_links, n, capacity)
        self.timestamps = resized(self.timestamps, n, capacity)
        self._expires = resized(self._expires, n, capacity)
        for coded in self._coded():
            coded.codes = resized(coded.codes, n, capacity)

    def put(self, rows: NDArray[np.int64], keys: Sequence[int], given: Sequence[fields.Fields]) -> None:
        """Write one document's key and fields into each of these rows."""
        self.keys[rows] = keys
        self.own_links[rows] = [each.own_link for each in given]
        self.parent_links[rows] = [each.parent_link for each in given]
        self.timestamps[rows] = [each.timestamp_us for each in given]
        self._expires[rows] = [NEVER_US if each.expires_us is None else each.expires_us for each in given]
        self._kinds.put(rows, [each.kind for each in given])
        self._statuses.put(rows, [each.status for each in given])
        self._senders.put(rows, [each.sender_ids for each in given])
        for name, coded in self._texts.items():
            coded.put(rows, [getattr(each, name) for each in given])

    def fits(self, bounds: where.Where, at: At) -> Mask:
        """Return which of these rows lie within the bounds; the owner is the partition's and not looked at."""
        mask = self._kinds.any_of(bounds.kinds, at) & self._status(bounds, at)
        if bounds.clause != where.All():
            mask &= self._clause(bounds.clause, at)
        for like in bounds.likes:
            mask &= self._like(like, at)
        return mask

    def _coded(self) -> list[_Coded[str] | _Coded[tuple[str, ...]]]:
        return [self._kinds, self._statuses, self._senders, *self._texts.values()]

    def _status(self, bounds: where.Where, at: At) -> Mask:
        """An active entry is an expired one from its `expires_at` on, before anything has written that down."""
        mask = self._statuses.any_of([status for status in bounds.statuses if status != "active"], at)
        is_active = self._statuses.any_of(["active"], at)
        if "active" in bounds.statuses and "expired" in bounds.statuses:
            return mask | is_active
        if "active" in bounds.statuses:
            return mask | (is_active & ~self._is_over(bounds.now_us, at))
        if "expired" in bounds.statuses:
            return mask | (is_active & self._is_over(bounds.now_us, at))
        return mask

    def _is_over(self, now_us: int, at: At) -> Mask:
        expires = self._expires[at]
        over: Mask = (expires <= now_us) & (expires != NEVER_US)
        return over

    def _clause(self, clause: where.Clause, at: At) -> Mask:
        match clause:
            case where.Is():
                return self._any_of(clause, at)
            case where.Compare():
                return self._compared(clause, at)
            case where.During(from_us=from_us, to_us=to_us):
                return self._during(from_us, to_us, at)
            case where.Not(part=part):
                return ~self._clause(part, at)
            case where.All(parts=parts) | where.Any(parts=parts):
                join, start = (np.logical_and, True) if isinstance(clause, where.All) else (np.logical_or, False)
                mask = np.full(len(self.keys[at]), start)
                for part in parts:
                    join(mask, self._clause(part, at), out=mask)
                return mask

    def _like(self, like: where.Like, at: At) -> Mask:
        texts = self._texts[like.field]
        return texts.any_of([like.pattern], at) if like.is_exact else texts.where(where.fitting(like.pattern), at)

    def _any_of(self, clause: where.Is, at: At) -> Mask:
        if clause.field == "sender_id":
            wanted = set(clause.values)
            return self._senders.where(lambda senders: not wanted.isdisjoint(senders), at)
        return self._texts[clause.field].any_of(clause.values, at)

    def _compared(self, clause: where.Compare, at: At) -> Mask:
        compare: Callable[[str, str], bool] = {
            "gt": operator.gt,
            "gte": operator.ge,
            "lt": operator.lt,
            "lte": operator.le,
        }[clause.comparison]
        if clause.field == "sender_id":
            return self._senders.where(lambda senders: any(compare(one, clause.value) for one in senders), at)
        can_lack = clause.field == "session_id"  # a missing session fits no comparison
        return self._texts[clause.field].where(
            lambda value: compare(value, clause.value) and not (can_lack and not value), at
        )

    def _during(self, from_us: int | None, to_us: int | None, at: At) -> Mask:
        mask = np.ones(len(self.keys[at]), dtype=np.bool_)
        if from_us is not None:
            mask &= self.timestamps[at] >= from_us
        if to_us is not None:
            mask &= self.timestamps[at] <= to_us
        return mask


class _Coded(Generic[T]):
    """A column of values of which many are equal."""

    def __init__(self) -> None:
        self.codes = np.zeros(0, dtype=np.int32)
        self.values: list[T] = []
        self._code_of: dict[T, int] = {}

    def put(self, rows: NDArray[np.int64], values: Sequence[T]) -> None:
        """Write one value into each of these rows."""
        self.codes[rows] = [self._code(value) for value in values]

    def _code(self, value: T) -> int:
        code = self._code_of.get(value)
        if code is None:
            code = self._code_of[value] = len(self.values)
            self.values.append(value)
        return code

    def any_of(self, values: Sequence[T], at: At) -> Mask:
        """Return which of these rows have one of the values."""
        codes = [self._code_of[value] for value in values if value in self._code_of]
        if len(codes) == 1:
            one: Mask = self.codes[at] == codes[0]
            return one
        is_so = np.zeros(len(self.values) + 1, dtype=np.bool_)  # one more: rows never written, where there is no value
        is_so[codes] = True
        mask: Mask = is_so[self.codes[at]]
        return mask

    def where(self, is_fit: Callable[[T], bool], at: At) -> Mask:
        """Return which of these rows have a value that fits."""
        is_so = np.array([*map(is_fit, self.values), False])  # one more: rows never written
        mask: Mask = is_so[self.codes[at]]
        return mask


def resized(column: NDArray[N], n: int, capacity: int) -> NDArray[N]:
    """Return a column with room for `capacity` rows, the first `n` of which are kept."""
    larger = np.zeros(capacity, dtype=column.dtype)
    larger[:n] = column[:n]
    return larger
