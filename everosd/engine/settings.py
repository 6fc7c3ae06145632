"""Settings of strategies: shipped defaults and ome.toml of the root, read again whenever that is saved.

One wrong key refuses the whole file, so that half a thought never comes into force: the settings from before stay, and
every mistake is listed with its line until it is mended. What a person takes out of the file has its default again.
"""

from __future__ import annotations

import asyncio
import difflib
import functools
import os
import pathlib
import re
import stat
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, get_args

import msgspec
import structlog
from msgspec import Meta

from everosd import clock, config, errors, toml
from everosd.engine import schedule

FILE_NAME = "ome.toml"
DEFAULTS = "default_ome.toml"
TABLE = "strategies"

LOOK_S = 0.4
"""Between two looks at the file. One sees that it was saved, the next takes it if it has stayed as it is: an editor may
write in two halves. So a save is in force within two seconds, also by a busy machine's clock."""

BROKEN_S = 1.0
"""One that cannot be used, or is gone, is taken for such after so long: it may be on its way."""

log = structlog.get_logger(__name__)

Preset = Literal["manual", "daily", "weekly"]
PRESETS = {"daily": "0 3 * * *", "weekly": "0 3 * * 1"}
"""Crons; `manual` has none."""

Action = Literal["summarize", "promote", "expire", "decay", "archive"]

_Signature = tuple[int, ...]
"""What tells that a file was saved; empty: there is none."""


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How one strategy runs."""

    enabled: bool = True
    max_retries: Annotated[int, Meta(ge=0, le=100)] | None = None
    """How often an event that failed is tried again; None: as the strategy says."""
    cron: str | None = None
    """Five fields; None: not fired by the clock."""
    idle_seconds: Annotated[float, Meta(gt=0, le=config.MAX_INTERVAL_S)] | None = None
    """How long nothing may have happened before it is fired; None: not by silence."""
    preset: Preset | None = None
    """Of a strategy that goes by owner: when, in each owner's own zone; a `cron` stands above it. None: it has none."""
    actions: tuple[Action, ...] | None = None
    """Of a strategy that has several: those that it runs; None: it has none, or runs all."""
    gate: object = None
    """Of EverOS: taken as it is and not used."""

    @property
    def times(self) -> str | None:
        """Return the cron that it is fired by, be it that of a preset; None: it is not fired by the clock."""
        return self.cron if self.cron is not None else PRESETS.get(self.preset or "manual")

    @property
    def is_by_owner(self) -> bool:
        """Whether the cron is meant in each owner's own zone."""
        return self.cron is None and self.times is not None


KEYS = Settings.__struct_fields__
OWN_KEYS = ("preset", "actions")
"""Keys that only strategies have whose shipped settings have them."""


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What a text says."""

    settings: Mapping[str, Settings]
    """Of every known strategy; meaningless where there are errors."""
    errors: tuple[errors.ConfigError, ...] = ()
    """In order of their lines."""
    notes: tuple[str, ...] = ()
    """What is right and has no effect."""


@functools.cache
def defaults() -> Mapping[str, Settings]:
    """Return the shipped settings of every strategy that has any."""
    tables = toml.read(config.defaults(DEFAULTS), DEFAULTS)[TABLE]
    return {name: msgspec.convert(table, Settings) for name, table in tables.items()}


def read(text: str, file: str) -> Reading:
    """Return what `text`, which stands in `file`, changes about the defaults. Pure, up to what croniter says."""
    try:
        tables = toml.read(text, file, hint=_hint(file))
    except errors.ConfigError as error:
        return Reading(settings=defaults(), errors=(error,))
    found = dict(defaults())
    wrong: list[errors.ConfigError] = []
    notes: list[str] = []
    for name, table in tables.items():
        if name != TABLE:
            meant = name if name in found else "…"
            wrong.append(_unknown(file, text, "", name, (TABLE,), f"table; did you mean [{TABLE}.{meant}]?"))
        elif not isinstance(table, dict):
            wrong.append(_wrong(file, text, "", name, "expected tables [strategies.<name>]"))
    given = tables.get(TABLE)
    for name, table in given.items() if isinstance(given, dict) else ():
        if name not in found:
            wrong.append(_unknown(file, text, TABLE, name, tuple(found), "strategy"))
        elif not isinstance(table, dict):
            wrong.append(_wrong(file, text, TABLE, name, f"expected a table [{TABLE}.{name}]"))
        else:
            bad = list(_mistakes(file, text, name, table))
            wrong += bad
            notes += _notes(file, text, name, table)
            if not bad:
                values = {key: getattr(found[name], key) for key in KEYS} | table
                found[name] = msgspec.convert(values, Settings)
    wrong.sort(key=lambda error: error.line or 0)
    return Reading(settings=found, errors=tuple(wrong), notes=tuple(notes))


def _mistakes(file: str, text: str, name: str, table: Mapping[str, Any]) -> Iterator[errors.ConfigError]:
    section, known = f"{TABLE}.{name}", keys_of(name)
    for key, value in table.items():
        if key not in known:
            yield _unknown(file, text, section, key, known, "key")
            continue
        try:
            msgspec.convert({key: value}, Settings)
        except msgspec.ValidationError as error:
            yield _wrong(file, text, section, key, _said(error))
            continue
        if key in ("max_retries", "cron", "idle_seconds") and value is None:
            continue
        if key == "cron" and (reason := schedule.mistake(value)):
            yield _wrong(file, text, section, key, reason)


def _notes(file: str, text: str, name: str, table: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is said about a strategy that has no use for it."""
    shipped = defaults()[name]
    if shipped.cron is not None or shipped.idle_seconds is not None or shipped.preset is not None:
        return  # one that is fired by the clock is fired by silence too, where somebody says so
    for key in ("cron", "idle_seconds"):
        if key in table:
            line = _line(text, f"{TABLE}.{name}", key)
            yield f"{file}:{line}: {TABLE}.{name}.{key}: has no effect: this strategy is fired by events"


def keys_of(name: str) -> tuple[str, ...]:
    """Return the keys that a strategy may have."""
    shipped = defaults()[name]
    return tuple(key for key in KEYS if key not in OWN_KEYS or getattr(shipped, key) is not None)


def _said(error: msgspec.ValidationError) -> str:
    """Return a failed check in words for people."""
    said, _, place = str(error).partition(" - at ")
    if "enum value" in said:
        said += f"; there are {', '.join(get_args(Action if 'actions' in place else Preset))}"
    for name, word in (("`array | null`", "a list"), ("`str | null`", "a text")):
        said = said.replace(name, word)
    for name, word in (("`int | null`", "a whole number"), ("`float | null`", "a number"), ("`str | null`", "a text")):
        said = said.replace(name, word)
    for name, word in (("`int`", "a whole number"), ("`float`", "a number"), ("`str`", "a text")):
        said = said.replace(name, word)
    return said.replace("`bool`", "true or false")


def _unknown(file: str, text: str, section: str, key: str, known: tuple[str, ...], what: str) -> errors.ConfigError:
    """Return the error for a name that nobody knows, with the nearest one that somebody does."""
    near = difflib.get_close_matches(key, known, n=1)
    if "; " in what:
        return _wrong(file, text, section, key, f"unknown {what}")
    also = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(known))}"
    return _wrong(file, text, section, key, f"unknown {what}; {also}")


def _wrong(file: str, text: str, section: str, key: str, reason: str) -> errors.ConfigError:
    name = f"{section}.{key}" if section else key
    return errors.ConfigError(
        file,
        name,
        reason,
        line=_line(text, section, key),
        hint=_hint(file),
    )


def _hint(file: str) -> str:
    return f"correct {file} and save it; until then nothing of it is in force that was not before"


def _line(text: str, section: str, key: str) -> int | None:
    """Return the line of a key, or of the inline table that holds it."""
    found = config.line_of(text, section, key)
    if not section and (header := re.search(rf"^\s*\[+\s*[\"']?{re.escape(key)}\b", text, re.MULTILINE)):
        found = min(text.count("\n", 0, header.end()) + 1, found or toml.MAX_BYTES)
    if found is None and section:
        outer, _, inner = section.rpartition(".")
        found = config.line_of(text, outer, inner)
    return found


class _Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What stands on the disk."""

    signature: _Signature
    is_gone: bool = False
    """There is no file, in a root that is there."""
    text: str | None = None
    error: errors.ConfigError | None = None
    """Why it cannot be read."""


class Watcher:
    """Holds the settings in force, and looks whether ome.toml says otherwise."""

    def __init__(self, root: pathlib.Path, time: clock.Clock) -> None:
        """Watch `ome.toml` in `root`; until the first `look`, everything is enabled."""
        self.path = root / FILE_NAME
        self._root = root
        self._clock = time
        self._in_force: Mapping[str, Settings] = {}
        self.errors: tuple[errors.ConfigError, ...] = ()
        """What is wrong with the file as it stands; empty: it is in force."""
        self.notes: tuple[str, ...] = ()
        """What of it has no effect."""
        self._signature: _Signature | None = None
        self._since_s = 0.0
        self._is_pending = True

    @property
    def names(self) -> tuple[str, ...]:
        """Names that ome.toml may have."""
        return tuple(self._in_force)

    def of(self, name: str) -> Settings:
        """Return the settings in force of a strategy."""
        return self._in_force.get(name) or Settings()

    def error_of(self, name: str) -> str | None:
        """Return what keeps the settings of one strategy from coming into force: what is wrong with it, else with the file."""
        own = [error for error in self.errors if f"{error.key}.".startswith(f"{TABLE}.{name}.")]
        whole = [error for error in self.errors if error.key in ("", TABLE)]
        found = own or whole or list(self.errors)
        return str(found[0]) if found else None

    def check(self) -> Reading:
        """Return what the file says as it stands, for a look from outside: nothing comes into force. Blocking."""
        self._in_force = self._in_force or defaults()
        seen = self._see(None)
        return Reading(settings=defaults()) if seen is None else self._judge(seen)

    async def look(self) -> bool:
        """Read the file if it was saved; return whether other settings are in force than before.

        The first call takes the file as it is, later ones wait until it has settled. Reads in a thread.
        """
        is_first = self._signature is None
        seen = await asyncio.to_thread(self._see, None if is_first or self._is_pending else self._signature)
        now_s = self._clock.monotonic_s()
        self._in_force = self._in_force or defaults()
        if seen is None:
            return False
        if seen.signature != self._signature:
            self._signature, self._since_s, self._is_pending = seen.signature, now_s, True
            if not is_first:
                return False
        age_s = float("inf") if is_first else now_s - self._since_s
        reading = await asyncio.to_thread(self._judge, seen)  # croniter, and what it imports, takes its time
        if (reading.errors or seen.is_gone) and age_s < BROKEN_S:
            return False
        self._is_pending = False
        return self._take(reading)

    def _see(self, known: _Signature | None) -> _Seen | None:
        """Return what stands on the disk, or None where it is as `known`. Blocking."""
        defaults()  # read here, once: the event loop has no time for it
        signature: _Signature = ()
        try:
            found = self.path.stat()
            signature = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
            return None if signature == known else self._content(found, signature)
        except (FileNotFoundError, NotADirectoryError):
            # A dangling link, or a root that is out of sight, is no file that somebody has removed.
            if self.path.is_symlink() or not self._root.is_dir():
                return _Seen(signature=signature, error=self._unreadable("is out of reach"))
            return None if signature == known else _Seen(signature=signature, is_gone=True)
        except OSError as error:
            return _Seen(signature=signature, error=self._unreadable(error.strerror or str(error)))

    def _content(self, found: os.stat_result, signature: _Signature) -> _Seen:
        if not stat.S_ISREG(found.st_mode):  # opening a pipe would wait for somebody who writes into it
            return _Seen(signature=signature, error=self._unreadable("is not a file"))
        if found.st_size > toml.MAX_BYTES:
            return _Seen(signature=signature, error=self._unreadable("is too large for settings"))
        try:
            return _Seen(signature=signature, text=self.path.read_bytes().decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            line = error.object.count(b"\n", 0, error.start) + 1
            return _Seen(signature=signature, error=self._unreadable("is not UTF-8", line))

    def _unreadable(self, reason: str, line: int | None = None) -> errors.ConfigError:
        return errors.ConfigError(
            str(self.path), "", reason, line=line, hint=f"make {self.path} a file that can be read"
        )

    def _judge(self, seen: _Seen) -> Reading:
        if seen.is_gone:
            return Reading(settings=defaults())
        if seen.error is not None:
            return Reading(settings=defaults(), errors=(seen.error,))
        text = seen.text or ""
        if not text.strip() and self._in_force != defaults():
            # What a crash or a full disk leaves of a file; a person who wants the defaults deletes lines, or the file.
            reason = "is empty"
            hint = f"write into {self.path} what you want otherwise, or delete it to have the defaults"
            return Reading(settings=defaults(), errors=(errors.ConfigError(str(self.path), "", reason, hint=hint),))
        return read(text, str(self.path))

    def _take(self, reading: Reading) -> bool:
        """Put what was read in force, or say what is wrong with it."""
        said = tuple(map(str, reading.errors))
        if reading.errors:
            if said != tuple(map(str, self.errors)):
                log.error("strategies_refused", reasons=list(said), hint=reading.errors[0].hint)
            self.errors = reading.errors
            return False
        was_wrong, self.errors = bool(self.errors), ()
        if reading.notes != self.notes and reading.notes:
            log.warning("strategies_without_effect", keys=list(reading.notes))
        self.notes = reading.notes
        before, self._in_force = self._in_force, reading.settings
        changed = sorted(_differences(before, reading.settings))
        if changed or was_wrong:
            log.info("strategies_read", applied=changed)
        return bool(changed)


def _differences(before: Mapping[str, Settings], after: Mapping[str, Settings]) -> Iterator[str]:
    for name in after:
        for key in KEYS:
            if getattr(before[name], key) != getattr(after[name], key):
                yield f"{name}.{key}"
