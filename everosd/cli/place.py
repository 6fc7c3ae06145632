"""Where a setting stands: which file, which table, of which type; the file read, and replaced whole."""

from __future__ import annotations

import codecs
import difflib
import os
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args, get_origin

import msgspec

from everosd import config, errors, toml
from everosd.cli import asking

TABLE = "strategies"
MAX_SHOWN = 80
"""Of a key that is none: what comes after it in a message is to be read, too."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a setting stands."""

    path: Path
    """The file itself, where a link leads."""
    shown: Path
    """As the person knows it."""
    name: tuple[str, ...]
    """Tables, then the key."""

    @property
    def is_strategy(self) -> bool:
        """Whether it is one of ome.toml."""
        return self.name[0] == TABLE

    @property
    def dotted(self) -> str:
        """How it is called in messages."""
        return ".".join(self.name[1:] if self.is_strategy else self.name)


def find(root: Path, key: str) -> Place:
    """Return the file and the tables of a key; names of strategies stand for themselves.

    Raises:
        errors.RootError: there is no such root.
        errors.RequestError: it names no key.
    """
    if not root.is_dir():
        raise errors.RootError(str(root), "is no memory root", hint=f"make it: everosd init{asking.root_option(root)}")
    from everosd.engine import settings as strategy_settings  # and structlog with it, which no `--help` waits for

    name = tuple(_parts(asking.legible(key)))
    known = strategy_settings.defaults()
    is_section = name[0] in config.SECTIONS or name[0] in config.IGNORED
    if name[0] in known or (not is_section and difflib.get_close_matches(name[0], known, n=1)):
        name = (TABLE, *name)
    file = strategy_settings.FILE_NAME if name[0] == TABLE else config.FILE_NAME
    # Of two names for one thing the section's counts: `memorize.async_queue` is one.
    if (
        len(name) < (3 if name[0] == TABLE else 2)
        or len(name) > toml.MAX_DEPTH
        or not all(name)
        or key.strip(" .") in config.SECTIONS
    ):
        asking.refuse(
            f"{_short(key)} is not the name of a setting", "write section.key, e.g.: everosd set memory.timezone UTC"
        )
    return Place(path=Path(os.path.realpath(root / file)), shown=root / file, name=name)


def _parts(key: str) -> Iterator[str]:
    """Yield the parts of a key; what stands in quotes is one, as in the file: `owners."mara".timezone`."""
    found: object = None
    if '"' in key or "'" in key:
        try:
            found = tomllib.loads(f"{key} = 0") if "\n" not in key else None
        except (ValueError, RecursionError):
            asking.refuse(
                f"{_short(key)} is not the name of a setting", 'a quote is left open; as in: owners."mara".timezone'
            )
    if not isinstance(found, dict):
        yield from (part.strip() for part in key.split("."))
    while isinstance(found, dict):
        part, found = next(iter(found.items()))
        yield part


def _short(key: str) -> str:
    return key if len(key) <= MAX_SHOWN else f"{key[:MAX_SHOWN]}…"


def read(place: Place) -> tuple[bytes | None, str]:
    """Return what stands in the file, None where there is none, and its text.

    Raises:
        errors.ConfigError: it cannot be read.
    """
    text = config.read(place.path)
    try:
        data = place.path.read_bytes()
    except FileNotFoundError:
        return None, ""
    if data.removeprefix(codecs.BOM_UTF8) != text.encode():
        raise _busy(place)
    return data, text


def kind(place: Place) -> object | None:
    """Return the declared type of a setting, None where nobody knows it."""
    from everosd.engine import settings as strategy_settings

    if place.is_strategy:
        known = place.name[1] in strategy_settings.defaults() and len(place.name) == 3  # noqa: PLR2004  # table, name, key
        found: type[msgspec.Struct] | None = strategy_settings.Settings if known else None
    else:
        found = config.kind_of(".".join(place.name[:-1]))
    fields = () if found is None else msgspec.structs.fields(found)
    return next((field.type for field in fields if field.name == place.name[-1]), None)


def typed(place: Place, text: str) -> object:
    """Return what was typed as TOML has it: a text where one is wanted, whatever it looks like; words where a list is."""
    try:
        found: object = toml.read(f"x = {text}", place.dotted)["x"]
    except errors.ConfigError:
        found = text
    if isinstance(found, str) and _is_list(kind(place)):
        return found.replace(",", " ").split()
    return text if _is_text(kind(place)) and not isinstance(found, str) else found


def _is_list(given: object) -> bool:
    """Tell whether a type takes lists, and no texts."""
    origin = get_origin(given)
    if origin is tuple or given is tuple:
        return True
    return origin is not Literal and any(map(_is_list, get_args(given)))


def _is_text(given: object) -> bool:
    """Tell whether a type takes texts."""
    if given in (str, config.Secret):
        return True
    if get_origin(given) is Literal:
        return all(isinstance(one, str) for one in get_args(given))
    if get_origin(given) is tuple:  # a list of texts is none
        return False
    return any(_is_text(one) for one in get_args(given)) and given is not None


def write(place: Place, expected: bytes | None, new: bytes) -> None:
    """Put a file in the place of the one that was read, whole, with its mode; one saved meanwhile stays.

    Raises:
        errors.ConfigError: somebody saved it meanwhile.
        errors.WriteRefused: the disk does not take it.
    """
    from everosd.log import file, swap

    with file.refusals(place.path):
        found = None if expected is None else place.path.stat()
        temporary = file.temporary_name(place.path)
        try:
            file.write_temporary(temporary, new, found, place.path)
            if expected is None:
                is_ours = swap.move_new(temporary, place.path)
            else:
                is_ours = _exchange(place.path, temporary, expected)
            file.sync_folder(place.path.parent)
        finally:
            temporary.unlink(missing_ok=True)
    if not is_ours:
        raise _busy(place)


def _exchange(path: Path, temporary: Path, expected: bytes) -> bool:
    """Exchange two names and look at what came out; what is not as expected goes back. Tell whether it was."""
    from everosd.log import swap

    if path.read_bytes() != expected:
        return False
    if not swap.exchange(temporary, path):
        temporary.replace(path)  # on a file system that cannot exchange
        return True
    if temporary.read_bytes() == expected:
        return True
    swap.exchange(temporary, path)
    return False


def _busy(place: Place) -> errors.ConfigError:
    return errors.ConfigError(str(place.shown), "", "was saved by somebody else just now", hint="type the same again")
