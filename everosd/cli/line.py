"""One value of a TOML text set or taken out; every other line, comment and blank stays as it is."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, cast

import msgspec
import tomlkit
from tomlkit import container, exceptions, items

from everosd import errors

Name = tuple[str, ...]
"""Tables, then the key."""
Tables = MutableMapping[str, Any]
BARE = re.compile(r"[A-Za-z0-9_-]+")


class Awkward(errors.EverosdError):
    """The text is written in a way that cannot be changed line by line."""

    hint = "open the file and change it there"


def value(text: str, name: Name) -> object | None:
    """Return what `text` sets `name` to; None where it does not. The text has to be TOML."""
    found: object = tomllib.loads(text)
    for part in name:
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def put(text: str, name: Name, new: object) -> str:
    """Return `text` with `name` set: in its line where it has one, in its table, else in a table at the end.

    Raises:
        Awkward: nothing of it leads to the wanted text.
        errors.RequestError: what should be a table on the way to it is a value.
    """
    wanted = tomllib.loads(text)
    _set(wanted, name, new)
    for change in (_replaced, _inserted, _appended, _through_tomlkit):
        made = _tried(change, text, name, new)
        if made is not None and tomllib.loads(made) == wanted:
            return made
    raise _awkward(name)


def take_out(text: str, name: Name) -> str:
    """Return `text` without `name`, and without its table where that has nothing else in it. `name` has to be there.

    Raises:
        Awkward: it stands where it cannot be taken out alone.
    """
    wanted = tomllib.loads(text)
    _drop(wanted, name)
    document = tomlkit.parse(text)
    tables: list[Tables] = [document]
    for part in name[:-1]:
        tables.append(tables[-1][part])
    tables[-1].pop(name[-1])
    for inner, outer, key in zip(tables[:0:-1], tables[-2::-1], name[-2::-1], strict=True):
        if not inner and _is_bare(inner):
            outer.pop(key)
    made = _with_its_ends(text, tomlkit.dumps(document))
    if _emptied(tomllib.loads(made)) != _emptied(wanted):
        raise _awkward(name)
    return made


def _tried(change: Callable[[str, Name, object], str | None], text: str, name: Name, new: object) -> str | None:
    try:
        made = change(text, name, new)
        if made is not None:
            tomllib.loads(made)
    except (exceptions.TOMLKitError, tomllib.TOMLDecodeError, KeyError, TypeError, ValueError, AttributeError):
        return None  # of another shape than this way of changing it takes
    return made


def _replaced(text: str, name: Name, new: object) -> str | None:
    """Write the value over the one that stands there."""
    document = tomlkit.parse(text)
    table = _table(document, name)
    if table is None or name[-1] not in table:
        return None
    table[name[-1]] = new
    return _with_its_ends(text, tomlkit.dumps(document))


def _inserted(text: str, name: Name, new: object) -> str | None:
    """Write a line below the last key of the table, above the blanks and comments before the next one."""
    document = tomlkit.parse(text)
    table = _table(document, name)
    if not isinstance(table, items.Table) or table.is_super_table():
        return None
    inside: container.Container = table.value
    keys = [key for key, item in inside.body if key is not None and not isinstance(item, items.Table | items.AoT)]
    if not keys:
        return None
    inside._insert_after(keys[-1], name[-1], tomlkit.item(cast("Any", new)))  # noqa: SLF001  # `append` puts it below
    return _with_its_ends(text, tomlkit.dumps(document))


def _appended(text: str, name: Name, new: object) -> str | None:
    """Write a new table at the end."""
    header = ".".join(part if BARE.fullmatch(part) else msgspec.json.encode(part).decode() for part in name[:-1])
    gap = "" if not text.strip() else "\n" if text.endswith("\n") else "\n\n"
    return _with_its_ends(text, f"{text}{gap}[{header}]\n{name[-1]} = {tomlkit.item(cast('Any', new)).as_string()}\n")


def _through_tomlkit(text: str, name: Name, new: object) -> str | None:
    """Leave it to the library: dotted keys, inline tables."""
    document = tomlkit.parse(text)
    _set(document, name, new)
    return _with_its_ends(text, tomlkit.dumps(document))


def _table(document: Tables, name: Name) -> Tables | None:
    found: Tables = document
    for part in name[:-1]:
        if part not in found:
            return None
        found = found[part]
    return found


def _set(tables: Tables, name: Name, new: object) -> None:
    for depth, part in enumerate(name[:-1], start=1):
        tables = tables.setdefault(part, {})
        if not isinstance(tables, MutableMapping):
            refused = errors.RequestError(f"{'.'.join(name[:depth])} is a value and no table: nothing can be set in it")
            refused.hint = f"set {'.'.join(name[:depth])} itself, or correct the name"
            raise refused
    tables[name[-1]] = new


def _drop(tables: Tables, name: Name) -> None:
    for part in name[:-1]:
        tables = tables[part]
    del tables[name[-1]]


def _is_bare(table: Tables) -> bool:
    """Tell whether nothing stands in an empty table, no comment either."""
    text: str = getattr(table, "as_string", str)()
    return not text.strip() or isinstance(table, items.InlineTable)


def _emptied(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return tables without those in which nothing stands: taking them out changes nothing."""
    inner = {key: _emptied(one) if isinstance(one, Mapping) else one for key, one in tables.items()}
    return {key: one for key, one in inner.items() if one != {}}


def _with_its_ends(before: str, made: str) -> str:
    """Return a text with the line ends that it had."""
    return made.replace("\r\n", "\n").replace("\n", "\r\n") if "\r\n" in before else made


def _awkward(name: Name) -> Awkward:
    return Awkward(f"{'.'.join(name)} stands in the file in a way that cannot be changed from here")
