"""`everosd set` and `everosd unset`: one line of everos.toml or ome.toml, judged as the daemon would before it is written."""

from __future__ import annotations

import codecs
import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from everosd import config, errors, lock, toml
from everosd.cli import asking
from everosd.cli import place as places
from everosd.engine import advice, schedule

if TYPE_CHECKING:
    from everosd.engine import settings as strategy_settings

commands = typer.Typer(rich_markup_mode=None)

KINDS: tuple[type[msgspec.Struct], ...] = (*config.SECTIONS.values(), config.OwnerSettings)
SECRETS = frozenset(
    field.name for kind in KINDS for field in msgspec.structs.fields(kind) if field.type is config.Secret
)
"""Keys whose values are never shown, whichever table they stand in: sections that only EverOS reads have such, too."""
HIDDEN = "(secret)"
OF_A_SAVE = "correct "
"""How hints begin that help whoever saved a file; here none is."""
Key = Annotated[
    str,
    typer.Argument(
        metavar="KEY",
        help="As in docs/OPERATIONS.md: memory.timezone, or of a strategy: reflect_episodes.enabled.",
        show_default=False,
    ),
]


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
    place = places.find(config.root_path(root), key)
    _change(place, places.typed(place, asking.legible(" ".join(value))), as_json=as_json)


@commands.command()
def unset(key: Key, *, root: asking.Root = None, as_json: asking.Json = False) -> None:
    """Take one value out of everos.toml or ome.toml. Its default is in force again."""
    _change(places.find(config.root_path(root), key), None, as_json=as_json)


def _change(place: places.Place, new: object | None, *, as_json: bool) -> None:
    """Change one value, or take it out where `new` is None, and say so.

    Raises:
        errors.ConfigError: the file is broken as it stands, or would be.
    """
    from everosd.cli import line  # tomlkit, which no other command needs

    data, text = places.read(place)
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
        places.write(
            place, data, (codecs.BOM_UTF8 if (data or b"").startswith(codecs.BOM_UTF8) else b"") + made.encode()
        )
    _say(place, before, new, notes, as_json=as_json)


def _require_toml(place: places.Place, text: str) -> None:
    """Refuse a file that does not parse, in the daemon's words.

    Raises:
        errors.ConfigError: it does not.
    """
    try:
        toml.read(text, str(place.shown))
    except errors.ConfigError:
        _judge(place, text)


def _judge(place: places.Place, text: str) -> tuple[str, ...]:
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
            hint=f"{_helps(error) if is_own else 'mend that first; '}nothing was written",
        ) from error
    told = tuple(one for one in reading.notes if f" {'.'.join(place.name)}: " in one)
    if place.name[1] == advice.LIFECYCLE:
        return (*told, *_of_lifecycle(reading.settings[advice.LIFECYCLE], place.name[-1]))
    return told if place.name[1] != advice.REFLECTION else (*told, *_of_reflection(place, reading))


def _helps(error: errors.ConfigError) -> str:
    """Return the beginning of a hint: what else helps besides another value."""
    return "" if error.hint.startswith(OF_A_SAVE) else f"{error.hint}; "


def _of_reflection(place: places.Place, reading: strategy_settings.Reading) -> Iterator[str]:
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


def _of_lifecycle(wanted: strategy_settings.Settings, key: str) -> Iterator[str]:
    """Yield what is missing for passes to come by themselves: it takes the switch and a time."""
    if wanted.enabled and wanted.times is None and wanted.idle_seconds is None:
        yield f"{advice.unfired()}: {advice.UNFIRED_HINT}"
    elif not wanted.enabled and key in {"preset", "cron", "idle_seconds"}:
        yield f"it is switched off: everosd set {advice.LIFECYCLE}.enabled true"


def _require_known(place: places.Place) -> None:
    """Refuse to take out what nobody knows.

    Raises:
        errors.ConfigError: nobody does.
    """
    if places.kind(place) is None:
        from everosd.cli import line

        _judge(place, line.put("", place.name, ""))


def _template(place: places.Place) -> str:
    from everosd.cli import root as root_folder

    return root_folder.FILES[place.shown.name]


def _say(place: places.Place, before: object, new: object, also: tuple[str, ...], *, as_json: bool) -> None:
    """Say what stands there now, and from when on it is in force."""
    dotted, key = ".".join(place.name), place.name[-1]
    is_live = place.is_strategy or dotted in config.RELOADABLE or place.name[0] == config.OWNERS
    when = "live" if is_live else "restart"
    if as_json:
        shown = {"before": hidden(before, key), "after": hidden(new, key)}
        asking.print_json({"file": str(place.shown), "key": dotted, **shown, "in_force": when})
        return
    if new is None and before is None:
        print(f"{place.dotted} is not set in {place.shown}; nothing was changed")
        return
    if before == new:
        print(f"{place.dotted} = {_shown(new, key)} already; nothing was changed  ({place.shown})")
        for note in also:
            print(f"note: {note}")
        return
    was = "" if before is None else f", before: {_shown(before, key)}"
    now = "is taken out, its default holds" if new is None else f"= {_shown(new, key)}"
    print(f"{place.dotted} {now}{was}  ({place.shown})")
    for note in (*also, *_notes(place, when)):
        print(f"note: {note}")


def _shown(value: object, key: str) -> str:
    shown = hidden(value, key)
    return HIDDEN if shown == HIDDEN else msgspec.json.encode(shown).decode()


def hidden(value: object, key: str) -> object:
    """Return the value of a key as it may be seen: without secrets, in tables neither; None stays None."""
    if key in SECRETS:
        return None if value is None else HIDDEN
    if isinstance(value, Mapping):
        return {name: hidden(one, name) for name, one in value.items()}
    return [hidden(one, key) for one in value] if isinstance(value, list) else value


def _notes(place: places.Place, when: str) -> list[str]:
    """Return what a person may want to know beside it."""
    notes = []
    if not place.is_strategy and (name := f"{config.ENV_PREFIX}{'__'.join(place.name)}".upper()) in os.environ:
        notes.append(f"{name} is set in this environment and stands above the file")
    with contextlib.suppress(errors.EverosdError):
        if lock.holder(place.shown.parent) is not None:
            notes.append(f"in force {'once the daemon is restarted' if when == 'restart' else 'in two seconds'}")
    return notes
