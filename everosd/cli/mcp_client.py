"""The entry that a client needs to start `everosd mcp`: where it belongs, what it looks like, how it gets there."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

import msgspec
import tomlkit
from tomlkit import exceptions, items

from everosd import errors

Name = Literal["claude-code", "codex", "vscode", "cursor"]
JsonObject: TypeAlias = dict[str, Any]
ENTRY = "everosd"
"""What the entry is called everywhere."""
MAX_BYTES = 64 * 1024 * 1024


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """How `everosd mcp` is started on this machine."""

    command: str
    args: tuple[str, ...]

    @staticmethod
    def of_root(root: Path) -> Setup:
        """Return how to start it for a root; the root is named, because a client has an environment of its own."""
        script = Path(sys.executable).with_name("everosd")
        found = str(script) if script.exists() else shutil.which("everosd")
        if found is None:
            return Setup(command=sys.executable, args=("-m", "everosd", "mcp", "--root", str(root)))
        return Setup(command=found, args=("mcp", "--root", str(root)))


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What writing an entry would do to a file."""

    path: Path
    before: str | None
    """None: there is no file."""
    text: str
    replaces: bool
    """An entry of that name is there."""
    backup: Path | None
    """Where what is there now is kept; None: there is nothing."""


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """One program that starts MCP servers."""

    title: str
    path: Callable[[], Path]
    """The file of the person's own settings, for all projects."""
    table: str
    """Where entries stand in it."""
    fields: JsonObject
    """What an entry says besides command and arguments."""
    is_toml: bool = False

    def entry(self, setup: Setup) -> JsonObject:
        """Return the entry."""
        return {**self.fields, "command": setup.command, "args": list(setup.args)}

    def shown(self, setup: Setup) -> str:
        """Return the entry as a person would paste it."""
        alone = {self.table: {ENTRY: self.entry(setup)}}
        return tomlkit.dumps(alone) if self.is_toml else _json(alone) + "\n"

    def plan(self, setup: Setup) -> Plan:
        """Return what the file would be with the entry in it; writes nothing.

        Raises:
            ConfigError: the file is not what it should be; it stays as it is.
        """
        path = self.path()
        before = _read(path)
        with_entry = _with_entry_toml if self.is_toml else _with_entry_json
        text, replaces = with_entry(path, before or "", self.table, self.entry(setup))
        return Plan(path=path, before=before, text=text, replaces=replaces, backup=_backup(path) if before else None)


def _claude() -> Path:
    return Path.home() / ".claude.json"


def _codex() -> Path:
    return Path(os.environ.get("CODEX_HOME") or Path.home() / ".codex") / "config.toml"


def _vscode() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "Code" / "User" / "mcp.json"
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "Code" / "User" / "mcp.json"


def _cursor() -> Path:
    return Path.home() / ".cursor" / "mcp.json"


CLIENTS: dict[Name, Client] = {
    "claude-code": Client(title="Claude Code", path=_claude, table="mcpServers", fields={"type": "stdio"}),
    "codex": Client(title="Codex", path=_codex, table="mcp_servers", fields={}, is_toml=True),
    "vscode": Client(title="VS Code", path=_vscode, table="servers", fields={"type": "stdio"}),
    "cursor": Client(title="Cursor", path=_cursor, table="mcpServers", fields={}),
}


def write(plan: Plan) -> None:
    """Do what a plan says: keep what is there now under another name, then replace the file in one step.

    Raises:
        ConfigError: the file changed since the plan was made, or cannot be written.
    """
    target = plan.path.resolve()  # dotfiles are often links into a repository
    try:
        if _read(plan.path) != plan.before:
            raise errors.ConfigError(str(plan.path), "", "changed meanwhile", hint="type the same again")
        target.parent.mkdir(parents=True, exist_ok=True)
        mode = 0o600
        if plan.backup is not None:
            shutil.copy2(target, plan.backup)
            mode = target.stat().st_mode & 0o777
        descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
                os.fchmod(file.fileno(), mode)
                file.write(plan.text)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise errors.ConfigError(
            str(plan.path), "", error.strerror or str(error), hint="paste the entry by hand, or mend the permissions"
        ) from error


def _read(path: Path) -> str | None:
    """Return the text of a file, line endings as they are; None where there is none."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            text = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, str(error)) from error
    if len(text) > MAX_BYTES:
        raise _unreadable(path, "is too large for settings")
    return text


def _with_entry_json(path: Path, before: str, table: str, entry: JsonObject) -> tuple[str, bool]:
    """Return a JSON text with the entry; everything else in it stays, in its order.

    Raises:
        ConfigError: it is not JSON, or the place of the entry is taken by something else. Comments count as no JSON: they
            would be lost.
    """
    try:
        known = msgspec.json.decode(before) if before.strip() else {}
    except msgspec.DecodeError as error:
        raise _unreadable(path, f"is not JSON ({error}); a file with comments is not rewritten") from error
    if not isinstance(known, dict) or not isinstance(known.get(table, {}), dict):
        raise _unreadable(path, f"has no object {table!r} where entries belong")
    old = known.get(table, {}).get(ENTRY)
    new = _over(old, entry)
    if new == old:
        return before, True
    known.setdefault(table, {})[ENTRY] = new
    return _json(known) + "\n", old is not None


def _with_entry_toml(path: Path, before: str, table: str, entry: JsonObject) -> tuple[str, bool]:
    """Return a TOML text with the entry; comments and order stay.

    Raises:
        ConfigError: it is not TOML, or the place of the entry is taken by something else.
    """
    try:
        wanted = tomllib.loads(before)
        tables = wanted.setdefault(table, {})
        if not isinstance(tables, dict):
            raise _unreadable(path, f"has no table [{table}] where entries belong")
        old = tables.get(ENTRY)
        tables[ENTRY] = new = _over(old, entry)
        if new == old:
            return before, True
        for text in _texts_toml(before, table, new):
            with contextlib.suppress(tomllib.TOMLDecodeError):
                if tomllib.loads(text) == wanted:
                    return text, old is not None
    except (exceptions.TOMLKitError, tomllib.TOMLDecodeError) as error:
        raise _unreadable(path, f"is not TOML ({error})") from error
    raise _unreadable(path, f"writes [{table}] in a way that nothing can be added to without changing the rest")


def _texts_toml(before: str, table: str, entry: JsonObject) -> Iterator[str]:
    """Yield TOML texts that should have the entry: set in its place, then behind all else."""
    known = tomlkit.parse(before)
    tables = known.get(table)
    if tables is None:
        known[table] = tables = tomlkit.table(is_super_table=True)
    made = tomlkit.inline_table() if isinstance(tables, items.InlineTable) else tomlkit.table()
    made.update(entry)
    cast("JsonObject", tables)[ENTRY] = made
    yield tomlkit.dumps(known)
    if before and not before.endswith("\n"):
        before += "\n"
    yield f"{before}\n{tomlkit.dumps({table: {ENTRY: entry}})}"


def _over(old: object, entry: JsonObject) -> JsonObject:
    """Return the entry with what a person had added to the one before it, its `env` say; one of another transport goes."""
    return {**old, **entry} if isinstance(old, dict) and "url" not in old else entry


def _backup(path: Path) -> Path:
    """Return a name beside a file that is free."""
    target = path.resolve()
    nth = 0
    while (kept := target.with_name(f"{target.name}.before-everosd{f'-{nth}' if nth else ''}")).exists():
        nth += 1
    return kept


def _json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def _unreadable(path: Path, reason: str) -> errors.ConfigError:
    return errors.ConfigError(str(path), "", reason, hint="nothing was changed; paste the entry by hand")
