"""`everosd set` and `everosd unset`: one line of everos.toml or ome.toml, judged as the daemon would before it is written."""

from __future__ import annotations

import codecs
import contextlib
import difflib
import os
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, get_args, get_origin

import msgspec
import typer

from everosd import config, errors, lock
from everosd.cli import asking
from everosd.engine import advice, schedule

if TYPE_CHECKING:
    from everosd.engine import settings as strategy_settings

commands = typer.Typer(rich_markup_mode=None)

TABLE = "strategies"
SECRETS = tuple(
    f"{section}.{field.name}"
    for section, kind in config.SECTIONS.items()
    for field in msgspec.structs.fields(kind)
    if field.type is config.Secret
)
Key = Annotated[
    str,
    typer.Argument(
        metavar="KEY",
        help="As in docs/OPERATIONS.md: memory.timezone, or of a strategy: reflect_episodes.enabled.",
        show_default=False,
    ),
]


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


@commands.command("set")
def set_(
    key: Key,
    value: Annotated[
        list[str], typer.Argument(metavar="VALUE", help="As it would stand in the file; a text needs no quotes.")
    ],
    *,
    root: asking.Root = None,
    as_json: asking.Json = False,
) -> None:
    """Set one value in everos.toml or ome.toml. Comments and order stay; what is wrong is refused, and nothing is written."""
    place = _place(config.root_path(root), key)
    _change(place, _typed(place, asking.legible(" ".join(value))), as_json=as_json)


@commands.command()
def unset(key: Key, *, root: asking.Root = None, as_json: asking.Json = False) -> None:
    """Take one value out of everos.toml or ome.toml. Its default is in force again."""
    _change(_place(config.root_path(root), key), None, as_json=as_json)


def _change(place: Place, new: object | None, *, as_json: bool) -> None:
    """Change one value, or take it out where `new` is None, and say so.

    Raises:
        errors.ConfigError: the file is broken as it stands, or would be.
    """
    from everosd.cli import line  # tomlkit, which no other command needs

    data, text = _read(place)
    _require_toml(place, text)
    before = line.value(text, place.name)
    if new is None and before is None:
        _require_known(place)
        _say(place, before, new, (), as_json=as_json)
        return
    made = line.take_out(text, place.name) if new is None else line.put(text, place.name, new)
    if not made.strip():
        made = _template(place)  # what is empty is taken for the rest of a crash
    notes = _judge(place, made)
    if made != text:
        _write(place, data, (codecs.BOM_UTF8 if (data or b"").startswith(codecs.BOM_UTF8) else b"") + made.encode())
    _say(place, before, new, notes, as_json=as_json)


def _place(root: Path, key: str) -> Place:
    """Return the file and the tables of a key; names of strategies stand for themselves.

    Raises:
        errors.RootError: there is no such root.
        errors.RequestError: it names no key.
    """
    if not root.is_dir():
        raise errors.RootError(str(root), "is no memory root", hint=f"make it: everosd init{asking.root_option(root)}")
    from everosd.engine import settings as strategy_settings  # and structlog with it, which no `--help` waits for

    name = tuple(part.strip() for part in asking.legible(key).split("."))
    known = strategy_settings.defaults()
    is_section = name[0] in config.SECTIONS or name[0] in config.IGNORED
    if name[0] in known or (not is_section and difflib.get_close_matches(name[0], known, n=1)):
        name = (TABLE, *name)
    file = strategy_settings.FILE_NAME if name[0] == TABLE else config.FILE_NAME
    # Of two names for one thing the section's counts: `memorize.async_queue` is one.
    if len(name) < (3 if name[0] == TABLE else 2) or not all(name) or key.strip(" .") in config.SECTIONS:
        asking.refuse(f"{key} is not the name of a setting", "write section.key, e.g.: everosd set memory.timezone UTC")
    return Place(path=Path(os.path.realpath(root / file)), shown=root / file, name=name)


def _read(place: Place) -> tuple[bytes | None, str]:
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


def _require_toml(place: Place, text: str) -> None:
    """Refuse a file that does not parse, in the daemon's words.

    Raises:
        errors.ConfigError: it does not.
    """
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        _judge(place, text)


def _judge(place: Place, text: str) -> tuple[str, ...]:
    """Refuse what the daemon would refuse, before anything is written; return what is right and has no effect.

    Raises:
        errors.ConfigError: names the place in the file as it stands, or the key that was given.
    """
    from everosd.engine import settings as strategy_settings

    try:
        if not place.is_strategy:
            config.load(place.shown.parent, text=text)
            return ()
        reading = strategy_settings.read(text, str(place.shown))
        for error in reading.errors:
            raise error
    except errors.ConfigError as error:
        own = ".".join(place.name)
        is_own = bool(error.key) and (own == error.key or own.startswith(f"{error.key}."))
        raise errors.ConfigError(
            error.file,
            error.key,
            error.reason,
            line=None if is_own else error.line,
            hint="nothing was written" if is_own else "mend that first; nothing was written",
        ) from error
    told = tuple(one for one in reading.notes if f" {'.'.join(place.name)}: " in one)
    return told if place.name[1] != advice.REFLECTION else (*told, *_of_reflection(place, reading))


def _of_reflection(place: Place, reading: strategy_settings.Reading) -> Iterator[str]:
    """Yield what `everosd doctor` would say of reflection, set so."""
    wanted = reading.settings[advice.REFLECTION]
    if not wanted.enabled:
        return
    with contextlib.suppress(errors.ConfigError):
        settings = config.load(place.shown.parent)
        if settings.reflection.merge != "extractive" and not settings.llm.is_set_up:
            yield advice.without_model()
        if wanted.cron is not None and schedule.Schedule(wanted.cron, settings.memory.zone).is_hasty:
            yield advice.hasty(wanted.cron)


def _require_known(place: Place) -> None:
    """Refuse to take out what nobody knows.

    Raises:
        errors.ConfigError: nobody does.
    """
    if _kind(place) is None:
        from everosd.cli import line

        _judge(place, line.put("", place.name, ""))


def _kind(place: Place) -> object | None:
    """Return the declared type of a setting, None where nobody knows it."""
    from everosd.engine import settings as strategy_settings

    if place.is_strategy:
        known = place.name[1] in strategy_settings.defaults() and len(place.name) == 3  # noqa: PLR2004  # table, name, key
        kind: type[msgspec.Struct] | None = strategy_settings.Settings if known else None
    else:
        kind = config.SECTIONS.get(".".join(place.name[:-1]))
    fields = () if kind is None else msgspec.structs.fields(kind)
    return next((field.type for field in fields if field.name == place.name[-1]), None)


def _typed(place: Place, typed: str) -> object:
    """Return what was typed as TOML has it: a text where one is wanted, whatever it looks like."""
    try:
        found: object = tomllib.loads(f"x = {typed}")["x"]
    except tomllib.TOMLDecodeError:
        return typed
    return typed if _is_text(_kind(place)) and not isinstance(found, str) else found


def _is_text(kind: object) -> bool:
    """Tell whether a type takes texts."""
    if kind in (str, config.Secret):
        return True
    if get_origin(kind) is Literal:
        return all(isinstance(one, str) for one in get_args(kind))
    return any(_is_text(one) for one in get_args(kind)) and kind is not None


def _write(place: Place, expected: bytes | None, new: bytes) -> None:
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


def _template(place: Place) -> str:
    from everosd.cli import root as root_folder

    return root_folder.FILES[place.shown.name]


def _say(place: Place, before: object, new: object, also: tuple[str, ...], *, as_json: bool) -> None:
    """Say what stands there now, and from when on it is in force."""
    is_secret = place.dotted in SECRETS
    dotted = ".".join(place.name)
    when = "live" if place.is_strategy or dotted in config.RELOADABLE else "restart"
    if as_json:
        shown = {"before": before, "after": new}
        if is_secret:
            shown = {key: None if one is None else "(secret)" for key, one in shown.items()}
        asking.print_json({"file": str(place.shown), "key": dotted, **shown, "in_force": when})
        return
    if new is None and before is None:
        print(f"{place.dotted} is not set in {place.shown}; nothing was changed")
        return
    was = "" if before is None else f", before: {_shown(before, is_secret=is_secret)}"
    now = "is taken out, its default holds" if new is None else f"= {_shown(new, is_secret=is_secret)}"
    print(f"{place.dotted} {now}{was}  ({place.shown})")
    for note in (*also, *_notes(place, when)):
        print(f"note: {note}")


def _shown(value: object, *, is_secret: bool) -> str:
    return "(secret)" if is_secret else msgspec.json.encode(value).decode()


def _notes(place: Place, when: str) -> list[str]:
    """Return what a person may want to know beside it."""
    notes = []
    if not place.is_strategy and (name := f"{config.ENV_PREFIX}{'__'.join(place.name)}".upper()) in os.environ:
        notes.append(f"{name} is set in this environment and stands above the file")
    with contextlib.suppress(errors.EverosdError):
        if lock.holder(place.shown.parent) is not None:
            notes.append(f"in force {'once the daemon is restarted' if when == 'restart' else 'in two seconds'}")
    return notes
