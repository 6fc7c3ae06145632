"""Which documents a search may return: scope, kinds, statuses and a tree of conditions, the same for every index."""

from __future__ import annotations

from typing import Literal

import msgspec

from everosd import types

TextField = Literal["session_id", "parent_id", "parent_type", "sender_id"]
Comparison = Literal["gt", "gte", "lt", "lte"]


class Is(msgspec.Struct, frozen=True, kw_only=True):
    """The field has one of the values; a document with several (senders) needs one of them. No values: nothing fits."""

    field: TextField
    values: tuple[str, ...]


class Compare(msgspec.Struct, frozen=True, kw_only=True):
    """The field stands before or after a value in code point order; a missing session fits no comparison."""

    field: TextField
    comparison: Comparison
    value: str


class During(msgspec.Struct, frozen=True, kw_only=True):
    """The entry's moment lies between two, both included; None leaves that end open."""

    from_us: int | None = None
    to_us: int | None = None


class Not(msgspec.Struct, frozen=True, kw_only=True):
    """The part does not hold. `Is` with "" stands for a missing value."""

    part: Clause


class All(msgspec.Struct, frozen=True, kw_only=True):
    """Every part holds; without parts everything fits."""

    parts: tuple[Clause, ...] = ()


class Any(msgspec.Struct, frozen=True, kw_only=True):
    """One part holds; without parts nothing fits."""

    parts: tuple[Clause, ...]


Clause = Is | Compare | During | Not | All | Any


class Where(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of one search. The owner is part of it always: nothing widens the scope."""

    owner: types.Owner
    kinds: tuple[str, ...]
    """Names of kinds, at least one."""
    statuses: tuple[str, ...] = ("active",)
    now_us: int
    """An active entry whose `expires_at` lies at or before this moment counts as `expired`."""
    clause: Clause = All()
