"""A value that a model gave, as the struct that was asked for: what leaves no doubt is put right, the rest is refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import msgspec
from msgspec import inspect

_MAX_DEPTH = 64
_Clean = Callable[[str], str]


class Misfit(Exception):  # noqa: N818  # it says what the value is
    """The value is of another shape; `reason` says how, without a word of it."""

    def __init__(self, reason: str) -> None:
        """Keep the reason, which reads on after "the answer"."""
        super().__init__(reason)
        self.reason = reason


def best(values: Sequence[Any], kind: type[Any], clean: _Clean) -> Any:
    """Return the one of `values` that fits best, as a `kind`: most fields (of a list: items), then the last.

    Where none fits, a list is taken for the struct whose only list it can be, an object for a list of one. `clean` is
    put over every text.

    Raises:
        Misfit: none fits, whatever is made of it.
    """
    wanted = inspect.type_info(kind)
    reason = ""
    found, rank = None, -1
    for value in values:
        for one in _peeled(value):
            try:
                fitting = _converted(one, kind, wanted, clean)
            except Misfit as error:
                reason = reason or error.reason
                continue
            if (n_known := _n_known(one, wanted)) >= rank:
                found, rank = fitting, n_known
            break
    if rank >= 0:
        return found
    for made in _made(values, wanted):
        try:
            return _converted(made, kind, wanted, clean)
        except Misfit as error:
            reason = reason or error.reason
    raise Misfit(reason or "holds no JSON")


def _peeled(value: Any) -> Iterator[Any]:
    """Return `value`, and what it may be wrapped around: `{"result": {…}}`, `[{…}]`."""
    yield value
    if isinstance(value, dict):
        inner = [each for each in value.values() if isinstance(each, dict | list)]
        if len(inner) == 1 and isinstance(inner[0], dict):
            yield inner[0]
    elif isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict):
        yield value[0]


def _made(values: Sequence[Any], wanted: inspect.Type) -> Iterator[Any]:
    """Return what may be made of values of which none fits: a list, or the struct around it."""
    lists = [name for name, field in _fields(wanted).items() if _is_list(field.type)]
    if not values or (not _is_list(wanted) and len(lists) != 1):
        return
    found = [only for value in values if (only := _only_list(value)) is not None]
    if all(isinstance(each, dict | list) for each in values):
        found.append([one for value in values for one in (value if isinstance(value, list) else [_Alone(value)])])
    for each in found:
        yield each if _is_list(wanted) else {lists[0]: each}


class _Alone(dict[str, Any]):
    """An object that no list held: it stands for itself, and for no text."""


def _only_list(value: Any) -> list[Any] | None:
    """Return a list, or the only one in an object, if that is all that it holds."""
    if isinstance(value, dict) and len(value) == 1:
        (value,) = value.values()
    return value if isinstance(value, list) else None


def _n_known(value: Any, wanted: inspect.Type) -> int:
    """Return how much of what was asked for is in a value."""
    if isinstance(value, dict):
        fields = _fields(wanted)
        return sum(_name(key, fields) is not None for key in value)
    return len(value) if isinstance(value, list) else 0


def _converted(value: Any, kind: type[Any], wanted: inspect.Type, clean: _Clean) -> Any:
    if _fields(wanted) and isinstance(value, dict) and not _n_known(value, wanted):
        reason = "has none of the fields that were asked for"
        raise Misfit(reason)
    if _is_list(wanted) and not isinstance(value, list):
        reason = "is no list"
        raise Misfit(reason)
    try:
        return msgspec.convert(_Fit(clean).value(value, wanted, 0), kind, strict=False)
    except (msgspec.ValidationError, RecursionError) as error:
        raise Misfit(_why(error)) from None


def _why(error: Exception) -> str:
    """Return what msgspec says of a value, without the value."""
    if not isinstance(error, msgspec.ValidationError):
        return "is nested too deeply"
    said = re.sub(r"(?<=value )(?:'.*'|\S+)(?= - at|$)", "that is none of them", str(error), flags=re.DOTALL)
    return f"has another shape: {said[:1].lower()}{said[1:]}".replace("`", "")


def _fields(wanted: inspect.Type) -> dict[str, inspect.Field]:
    return {field.encode_name: field for field in wanted.fields} if isinstance(wanted, inspect.StructType) else {}


def _is_list(wanted: inspect.Type) -> bool:
    return isinstance(wanted, inspect.ListType | inspect.VarTupleType)


def _name(key: Any, fields: dict[str, inspect.Field]) -> str | None:
    """Return the field that `key` means: models write `Key Insight` for `key_insight`."""
    if key in fields:
        return cast("str", key)
    return next((name for name in fields if _letters(name) == _letters(str(key))), None)


def _letters(name: str) -> str:
    return "".join(letter for letter in name.casefold() if letter.isalnum())


class _Fit:
    """Puts right what leaves no doubt; msgspec judges the rest."""

    def __init__(self, clean: _Clean) -> None:
        self._clean = clean

    def value(self, value: Any, wanted: inspect.Type, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise RecursionError
        if isinstance(wanted, inspect.UnionType):
            others = [each for each in wanted.types if not isinstance(each, inspect.NoneType)]
            return value if value is None or len(others) != 1 else self.value(value, others[0], depth)
        if isinstance(wanted, inspect.StructType):
            return self._struct(value, wanted, depth)
        if isinstance(wanted, inspect.ListType | inspect.VarTupleType):
            return self._list(value, wanted.item_type, depth)
        return self._text(value) if isinstance(wanted, inspect.StrType) else _plain(value, wanted)

    def _struct(self, value: Any, wanted: inspect.StructType, depth: int) -> Any:
        if not isinstance(value, dict):
            return value
        fields = _fields(wanted)
        found: dict[str, Any] = {}
        for key, given in value.items():
            name = _name(key, fields)
            if name is None or (name in found and key != name):
                continue
            field = fields[name]
            if given is None and not field.required and not _takes_null(field.type):
                continue  # the default is for what was not said
            found[name] = self.value(given, field.type, depth + 1)
        return found

    def _list(self, value: Any, item: inspect.Type, depth: int) -> Any:
        if value is None:
            return []
        is_text = isinstance(item, inspect.StrType)
        if isinstance(value, dict) and isinstance(item, inspect.StructType):
            value = [value]
        elif isinstance(value, str) and is_text:
            value = [value] if value.strip() else []
        if not isinstance(value, list):
            return value
        if not is_text:
            return [self.value(each, item, depth + 1) for each in value]
        # `[{"fact": "…"}]` for `["…"]`; but a number in brackets is a mark in prose.
        bare = [
            next(iter(each.values())) if isinstance(each, dict) and len(each) == 1 and type(each) is dict else each
            for each in value
        ]
        return [self._text(each) if isinstance(each, str) else each for each in bare]

    def _text(self, value: Any) -> Any:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return str(value)
        if isinstance(value, list) and value and all(isinstance(each, str) for each in value):
            value = "\n".join(value)
        return self._clean(value) if isinstance(value, str) else value


def _takes_null(wanted: inspect.Type) -> bool:
    return isinstance(wanted, inspect.UnionType) and any(isinstance(each, inspect.NoneType) for each in wanted.types)


def _plain(value: Any, wanted: inspect.Type) -> Any:
    if isinstance(wanted, inspect.LiteralType) and isinstance(value, str):
        known = {_letters(each): each for each in wanted.values if isinstance(each, str)}
        return known.get(_letters(value), value)
    if isinstance(wanted, inspect.BoolType) and isinstance(value, str):
        word = value.strip().casefold()
        return {"yes": True, "no": False}.get(word, word)
    if isinstance(wanted, inspect.IntType) and isinstance(value, float) and value.is_integer():
        return int(value)
    return value
