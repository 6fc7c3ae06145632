"""The filter language of search and get: JSON → conditions, and conditions → SQL for the ledger.

Fields `session_id, timestamp, parent_id, parent_type, sender_id`; a scalar means `eq`; operators `eq ne gt gte lt lte
in` (`sender_id`: `eq`, `in`); several join by AND; `AND` and `OR` take lists that nest. Who owns an entry is no field:
the owner predicate stands beside the filter and nothing in here can touch it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

from everosd import clock, errors, types
from everosd.index import where
from everosd.store import row

RESERVED = ("owner_id", "owner_type", "app_id", "project_id", "user_id", "agent_id")
"""Scope is given beside the filter, never in it."""
TEXT_FIELDS: dict[str, where.TextField] = {
    "session_id": "session_id",
    "parent_id": "parent_id",
    "parent_type": "parent_type",
    "sender_id": "sender_id",
}
COMPARISONS: dict[str, where.Comparison] = {"gt": "gt", "gte": "gte", "lt": "lt", "lte": "lte"}
OPERATORS = ("eq", "ne", *COMPARISONS, "in")
MAX_DEPTH = 16
"""Levels of AND and OR; deeper ones only serve to exhaust a stack."""
MAX_CONDITIONS = 500
"""Conditions and listed values in one filter: SQLite takes 32,766 parameters, and a longer list is a mistake."""

_SECONDS = range(1_000_000_000, 10_000_000_000)  # ten digits: seconds, as EverOS reads them; all else is milliseconds
_COLUMNS = {"session_id": "e.session_id", "parent_id": "e.parent_id", "parent_type": "e.parent_type"}
_SIGNS = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
_COMPARE = {"gt": str.__gt__, "gte": str.__ge__, "lt": str.__lt__, "lte": str.__le__}
_MS_US = 1_000


def parse(given: object, *, timezone: dt.tzinfo = dt.UTC) -> where.Clause:
    """Return the conditions of a `filters` object.

    `timezone` is what an ISO time without an offset is read in.

    Raises:
        RequestError: with the dotted name of the field at fault.
    """
    if not isinstance(given, Mapping):
        message = "expected an object"
        raise errors.RequestError(message, field="filters")
    if not given:
        return where.All()
    return _Parser(timezone).node(given, "filters", 0)


def to_sql(clause: where.Clause) -> tuple[str, tuple[object, ...]]:
    """Return a condition on the table `entries` under the alias `e`, with its parameters; empty for no condition."""
    if clause == where.All():
        return "", ()
    return _sql(clause)


def fits(clause: where.Clause, entry: row.EntryRow) -> bool:  # noqa: PLR0911  # one for each kind of condition
    """Return whether an entry meets the conditions: what `to_sql` says of it, without asking the ledger."""
    match clause:
        case where.Is(field="sender_id", values=values):
            return not set(values).isdisjoint(entry.sender_ids)
        case where.Is(field=field, values=values):
            return _value(entry, field) in values
        case where.Compare(field=field, comparison=comparison, value=value):
            has_value = field != "session_id" or bool(entry.session_id)
            return has_value and _COMPARE[comparison](_value(entry, field), value)
        case where.During(from_us=from_us, to_us=to_us):
            is_after = from_us is None or entry.timestamp_us >= from_us
            return is_after and (to_us is None or entry.timestamp_us <= to_us)
        case where.Not(part=part):
            return not fits(part, entry)
        case where.All(parts=parts):
            return all(fits(part, entry) for part in parts)
        case where.Any(parts=parts):
            return any(fits(part, entry) for part in parts)


def _value(entry: row.EntryRow, field: where.TextField) -> str:
    value: str | None = getattr(entry, field)
    return value or ""


class _Parser:
    def __init__(self, timezone: dt.tzinfo) -> None:
        self._timezone = timezone
        self._n_conditions = 0

    def node(self, given: object, at: str, depth: int) -> where.Clause:
        """Return the conditions of one object: its fields, its AND and its OR, all to hold."""
        if not isinstance(given, Mapping):
            message = "expected an object"
            raise errors.RequestError(message, field=at)
        if not given:
            message = "expected at least one condition"
            raise errors.RequestError(message, field=at)
        if depth > MAX_DEPTH:
            message = f"AND and OR nest deeper than {MAX_DEPTH} levels"
            raise errors.RequestError(message, field=at)
        parts = []
        for key, value in given.items():
            if key in ("AND", "OR"):
                parts.append(self._list(str(key), value, f"{at}.{key}", depth))
            else:
                parts.append(self._field(str(key), value, f"{at}.{key}"))
        return parts[0] if len(parts) == 1 else where.All(parts=tuple(parts))

    def _list(self, key: str, given: object, at: str, depth: int) -> where.Clause:
        if given is None:
            return where.All()
        if not isinstance(given, list):
            message = "expected a list of conditions"
            raise errors.RequestError(message, field=at)
        parts = tuple(self.node(part, f"{at}.{i}", depth + 1) for i, part in enumerate(given))
        if not parts:  # an empty list restricts nothing, in either
            return where.All()
        return where.All(parts=parts) if key == "AND" else where.Any(parts=parts)

    def _field(self, field: str, given: object, at: str) -> where.Clause:
        if field in RESERVED:
            message = "the owner is named beside the filter, never in it"
            raise errors.RequestError(message, field=at)
        if field != "timestamp" and field not in TEXT_FIELDS:
            message = f"unknown field; known are {', '.join(('timestamp', *TEXT_FIELDS))}"
            raise errors.RequestError(message, field=at)
        operations = given if isinstance(given, Mapping) else {"eq": given}
        if not operations:
            message = "expected at least one operator"
            raise errors.RequestError(message, field=at)
        parts = []
        for operator, value in operations.items():
            where_at = f"{at}.{operator}" if isinstance(given, Mapping) else at
            allowed = ("eq", "in") if field == "sender_id" else OPERATORS
            if operator not in allowed:
                message = f"unknown operator; {field} takes {', '.join(allowed)}"
                raise errors.RequestError(message, field=where_at)
            parts.append(self._condition(field, str(operator), value, where_at))
        return parts[0] if len(parts) == 1 else where.All(parts=tuple(parts))

    def _condition(self, field: str, operator: str, value: object, at: str) -> where.Clause:
        values = self._listed(value, at) if operator == "in" else [value]
        self._n_conditions += len(values)
        if self._n_conditions > MAX_CONDITIONS:
            message = f"more than {MAX_CONDITIONS} values in one filter"
            raise errors.RequestError(message, field=at)
        if field == "timestamp":
            return _moment(operator, [self._span(one, at) for one in values])
        return _text(TEXT_FIELDS[field], operator, [_string(one, at) for one in values])

    def _listed(self, value: object, at: str) -> list[object]:
        if not isinstance(value, list) or not value:
            message = "expected a list with at least one value"
            raise errors.RequestError(message, field=at)
        return value

    def _span(self, value: object, at: str) -> tuple[int, int]:
        """Return the first and last microsecond that a value stands for: an integer names a whole millisecond."""
        if isinstance(value, int) and not isinstance(value, bool):
            from_us = value * 1_000_000 if value in _SECONDS else value * _MS_US
            try:
                clock.from_us(from_us)
            except OverflowError:
                message = "a moment out of range"
                raise errors.RequestError(message, field=at) from None
            return from_us, from_us + _MS_US - 1
        if isinstance(value, str):
            try:
                moment = dt.datetime.fromisoformat(value)
                aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=self._timezone)
                from_us = clock.to_us(aware)
            except (ValueError, OverflowError):
                pass
            else:
                return from_us, from_us
        message = "expected milliseconds since 1970 or an ISO 8601 time"
        raise errors.RequestError(message, field=at)


def _string(value: object, at: str) -> str:
    if not isinstance(value, str):
        message = "expected a string"
        raise errors.RequestError(message, field=at)
    try:
        value.encode()
    except UnicodeEncodeError:
        message = "half a surrogate pair is no text"
        raise errors.RequestError(message, field=at) from None
    return types.nfc(value)


def _text(field: where.TextField, operator: str, values: list[str]) -> where.Clause:
    """No session is no value: nothing that is said of a session holds for an entry without one."""
    if operator in COMPARISONS:
        return where.Compare(field=field, comparison=COMPARISONS[operator], value=values[0])
    if operator == "ne":
        missing = ("",) if field == "session_id" else ()
        return where.Not(part=where.Is(field=field, values=(*dict.fromkeys((*values, *missing)),)))
    present = values if field != "session_id" else [value for value in values if value]
    return where.Is(field=field, values=tuple(dict.fromkeys(present)))


def _moment(operator: str, spans: list[tuple[int, int]]) -> where.Clause:
    from_us, to_us = spans[0]
    if operator == "in":
        return where.Any(parts=tuple(where.During(from_us=low, to_us=high) for low, high in spans))
    during = {
        "eq": where.During(from_us=from_us, to_us=to_us),
        "ne": where.During(from_us=from_us, to_us=to_us),
        "gt": where.During(from_us=to_us + 1),
        "gte": where.During(from_us=from_us),
        "lt": where.During(to_us=from_us - 1),
        "lte": where.During(to_us=to_us),
    }[operator]
    return where.Not(part=during) if operator == "ne" else during


def _sql(clause: where.Clause) -> tuple[str, tuple[object, ...]]:
    match clause:
        case where.Is():
            return _one_of(clause)
        case where.Compare(field=field, comparison=comparison, value=value):
            has_value = " AND e.session_id <> ''" if field == "session_id" else ""
            return f"({_COLUMNS[field]} {_SIGNS[comparison]} ?{has_value})", (value,)
        case where.During(from_us=from_us, to_us=to_us):
            ends = [(sign, end) for sign, end in ((">=", from_us), ("<=", to_us)) if end is not None]
            return " AND ".join(f"e.timestamp_us {sign} ?" for sign, _ in ends) or "1", tuple(end for _, end in ends)
        case where.Not(part=part):
            inner, values = _sql(part)
            return f"NOT ({inner})", values
        case where.All(parts=parts):
            return _joined(" AND ", parts, "1")
        case where.Any(parts=parts):
            return _joined(" OR ", parts, "0")


def _one_of(clause: where.Is) -> tuple[str, tuple[object, ...]]:
    marks = ", ".join("?" * len(clause.values))
    if clause.field == "sender_id":
        # The only text put in is question marks.
        return f"EXISTS (SELECT 1 FROM json_each(e.sender_ids) s WHERE s.value IN ({marks}))", clause.values  # noqa: S608
    return f"ifnull({_COLUMNS[clause.field]}, '') IN ({marks})", clause.values


def _joined(word: str, parts: tuple[where.Clause, ...], without: str) -> tuple[str, tuple[object, ...]]:
    """Join conditions; `without` is what holds where there are none."""
    if not parts:
        return without, ()
    sides = [_sql(part) for part in parts]
    return "(" + word.join(f"({sql})" for sql, _ in sides) + ")", tuple(one for _, values in sides for one in values)
