"""What is wrong here, and what to type: one look at the root, the settings, the system and the daemon.

Reads only. What the files say is asked of the daemon, or of the files alone under the lock.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import socket
import stat
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

import msgspec

from everosd import clock, config, errors, lock, types
from everosd.cli import client, node, show
from everosd.watch import mount

if TYPE_CHECKING:
    from everosd.engine import settings as strategy_settings
    from everosd.models import chat, embed

Level = Literal["ok", "note", "warn", "fail"]

MARKS: dict[Level, str] = {"ok": "ok", "note": "note", "warn": "WARN", "fail": "FAIL"}
LOW_DISK_BYTES = 200 * 2**20
NO_DISK_BYTES = 20 * 2**20
"""Below this the next write of a large file may already fail."""
OTHERS = 0o077
MEMORY = Path("default_app")
WATCHES = Path("/proc/sys/fs/inotify/max_user_watches")
SPARE_WATCHES = 2
"""Editors and sync programs of the same person watch too: half of the limit is theirs."""
MAX_LISTED = 3
MAX_FILES = 20
"""Files that are not read as they should be and are named; a list of hundreds would hide the rest."""
RESTART = "stop it and start it again; under systemd: systemctl --user restart everosd"
MODEL_FAILS = (
    "the index waits for the model: see `model` above; where that is ok, the daemon asks again within a minute,"
    " or has other EVEROS_ variables than you have here"
)

SEE_LLM = "see that the model runs, and correct [llm] in everos.toml; messages are kept, and read once it answers"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing looked at."""

    level: Level
    """`fail` stops everosd, or keeps it from making memories; `warn` costs something, `note` is for knowing."""
    about: str
    text: str
    hint: str = ""
    """What to type or do; empty where nothing is to be done."""


def examine(root: Path) -> list[Finding]:
    """Look at everything; blocking. What depends on a thing that failed is left out."""
    found = [_python(), _root(root)]
    settings, finding = _settings(root)
    found.append(finding)
    found.extend(_ignored(settings))
    if found[1].level == "fail":
        return found
    found.extend(_strategies(root, settings))
    for look in (_modes, _disk, _watches):
        found.extend(look(root))
    found.extend(_mount(root, settings))
    found.extend(_model(settings))
    found.extend(_reader(settings))
    found.extend(_prompts(settings))
    holder = lock.holder(root)
    found.append(_daemon(root, holder, settings))
    if settings is not None or holder is not None:
        said = [one.text for one in found if one.level in ("warn", "fail")]
        # A daemon says of the settings what was found here already.
        found.extend(
            one for one in _memory(root) if one.about != "daemon" or not any(text in one.text for text in said)
        )
    return found


def report(findings: list[Finding]) -> str:
    """Return the findings as text, each with its hint below it."""
    lines = []
    for one in findings:
        lines.append(f"{MARKS[one.level]:<5} {one.about:<10} {one.text}")
        if one.hint:
            lines.append(f"{'':<16} → {one.hint}")
    n_bad = sum(one.level in ("warn", "fail") for one in findings)
    lines.append(
        "\nall is well" if n_bad == 0 else f"\n{n_bad} {'thing needs' if n_bad == 1 else 'things need'} a look"
    )
    return "\n".join(lines)


def _python() -> Finding:
    """Look at the interpreter and the libraries that are not pure Python."""
    import importlib

    version = ".".join(map(str, sys.version_info[:3]))
    for name in ("tantivy", "watchdog", "msgspec", "uvloop", "numpy", "hnswlib"):
        try:
            importlib.import_module(name)
        except (ImportError, RuntimeError) as error:  # the latter is NumPy's, on a processor that it was not built for
            hint = f"install everosd again: {sys.executable} -m pip install --force-reinstall everosd"
            return Finding(
                level="fail", about="python", text=f"Python {version} cannot load {name}: {error}", hint=hint
            )
    return Finding(level="ok", about="python", text=f"Python {version}, all libraries load")


def _root(root: Path) -> Finding:
    """Look whether the root is a folder that can be used."""
    if not root.exists():
        return Finding(
            level="fail",
            about="root",
            text=f"{root} does not exist",
            hint=f"mount it, or make it: everosd init --root {_quoted(root)}",
        )
    if not root.is_dir():
        return Finding(level="fail", about="root", text=f"{root} is not a folder", hint="name a folder with --root")
    if not os.access(root, os.R_OK | os.W_OK | os.X_OK):
        text = f"{root} cannot be read and written by user {os.geteuid()}"
        return Finding(
            level="fail",
            about="root",
            text=text,
            hint=f"run everosd as the folder's owner, or: chown -R $USER {_quoted(root)}",
        )
    return Finding(level="ok", about="root", text=str(root))


def _settings(root: Path) -> tuple[config.Config | None, Finding]:
    """Read the settings as `everosd serve` would."""
    try:
        settings = config.load(root)
    except errors.ConfigError as error:
        return None, Finding(level="fail", about="settings", text=str(error), hint=error.hint)
    own = (root / config.FILE_NAME).exists()
    return settings, Finding(
        level="ok",
        about="settings",
        text=f"{config.FILE_NAME} is in order" if own else f"no {config.FILE_NAME}: all defaults",
    )


def _ignored(settings: config.Config | None) -> Iterator[Finding]:
    """Name the keys that EverOS knows and everosd does not use."""
    if settings is not None and settings.ignored:
        sections = {name.partition(".")[0] for name in settings.ignored}
        whole = {name for name in sections if "*" in config.IGNORED.get(name, ())}
        names = [f"[{name}]" for name in sorted(whole)]
        names += [name for name in settings.ignored if name.partition(".")[0] not in whole]
        yield Finding(level="note", about="settings", text=f"accepted and not used: {', '.join(names)}")


def _strategies(root: Path, settings: config.Config | None) -> Iterator[Finding]:
    """Look for mistakes in ome.toml, which the daemon does not take over, and at what it says of reflection and of the lifecycle."""
    from everosd.engine import advice
    from everosd.engine import settings as of_strategies

    found = of_strategies.Watcher(root, clock.SystemClock()).check()
    for error in found.errors:
        yield Finding(level="warn", about="settings", text=str(error), hint=error.hint)
    for note in found.notes:
        yield Finding(level="note", about="settings", text=note)
    if settings is not None:  # what is wrong is not in force: the defaults are, until a daemon has known better
        yield from _reflection(found.settings, settings)
        yield _lifecycle(found.settings[advice.LIFECYCLE])


def _lifecycle(wanted: strategy_settings.Settings) -> Finding:
    """Look whether passes over typed memories come by themselves, as far as they are wanted."""
    from everosd.engine import advice

    if not wanted.enabled:
        text = "switched off: everosd lifecycle run --dry-run shows what it would do"
        return Finding(level="ok", about="lifecycle", text=text)
    if wanted.times is None and wanted.idle_seconds is None:
        return Finding(level="warn", about="lifecycle", text=advice.unfired(), hint=advice.UNFIRED_HINT)
    when = wanted.cron or wanted.preset
    silence = "" if wanted.idle_seconds is None else f"after {show.span(wanted.idle_seconds)} of silence"
    return Finding(
        level="ok", about="lifecycle", text=f"switched on: {', '.join(str(one) for one in (when, silence) if one)}"
    )


def _reflection(strategies: Mapping[str, strategy_settings.Settings], settings: config.Config) -> Iterator[Finding]:
    """Look whether reflection is switched on, has something that merges, and leaves time between two runs."""
    from everosd.engine import advice, schedule

    wanted = strategies[advice.REFLECTION]
    if not wanted.enabled:
        yield Finding(
            level="ok", about="reflection", text="switched off: everosd reflect --dry-run shows what it would do"
        )
        return
    merges = settings.reflection.merge == "extractive" or settings.llm.is_set_up
    if not merges:
        yield Finding(
            level="warn",
            about="reflection",
            text=advice.without_model(),
            hint="everosd set llm.model NAME, or: everosd set reflection.merge extractive",
        )
    silence = "" if wanted.idle_seconds is None else f"after {show.span(wanted.idle_seconds)} of silence"
    if wanted.cron is None:
        if silence and merges:
            yield Finding(level="ok", about="reflection", text=f"switched on; {silence}")
        return
    times = schedule.Schedule(wanted.cron, settings.memory.zone)
    if times.is_hasty:
        hint = "everosd unset reflect_episodes.cron"
        yield Finding(level="warn", about="reflection", text=advice.hasty(wanted.cron), hint=hint)
    elif merges:
        at = times.after(clock.SystemClock().now())
        text = "never" if at is None else show.minute(at.astimezone(settings.memory.zone).isoformat())
        yield Finding(
            level="ok",
            about="reflection",
            text=f"switched on; next {text}, {settings.memory.timezone}{f'; also {silence}' if silence else ''}",
        )


def _modes(root: Path) -> Iterator[Finding]:
    """Look whether other people of this machine can read the memory; where the root is shut, what is inside is too."""
    open_to_others = [path for path in (root, root / config.FILE_NAME, root / MEMORY) if _mode(path) & OTHERS]
    if _mode(root) & OTHERS:
        names = ", ".join(map(str, open_to_others[:MAX_LISTED]))
        yield Finding(
            level="warn",
            about="privacy",
            text=f"other users of this machine may look into {names}",
            hint=f"chmod -R go= {_quoted(root)}",
        )
    else:
        yield Finding(level="ok", about="privacy", text="only you can read the memory")


def _disk(root: Path) -> Iterator[Finding]:
    """Look how much room is left."""
    free = shutil.disk_usage(root).free
    room = f"{free / 2**30:,.1f} GiB free"
    if free < LOW_DISK_BYTES:
        level: Level = "fail" if free < NO_DISK_BYTES else "warn"
        yield Finding(
            level=level,
            about="disk",
            text=f"only {free // 2**20} MiB free",
            hint="make room; nothing is lost meanwhile, but writes are refused",
        )
    else:
        yield Finding(level="ok", about="disk", text=room)


def _mount(root: Path, settings: config.Config | None) -> Iterator[Finding]:
    """Look whether changes on this file system send events."""
    kind = mount.remote_type(root)
    if not kind:
        return
    text = f"{kind}: changes made on another machine send no events here"
    if settings is not None and settings.watch.mode == "inotify":
        yield Finding(level="warn", about="watching", text=text, hint='set [watch] mode = "auto" in everos.toml')
    else:
        yield Finding(level="note", about="watching", text=f"{text}: the tree is polled")


def _watches(root: Path) -> Iterator[Finding]:
    """Look whether inotify has room for every folder of the root."""
    try:
        limit = int(WATCHES.read_text(encoding="ascii"))
    except (OSError, ValueError):
        yield Finding(level="note", about="watching", text="no inotify here: the tree is polled")
        return
    n_folders = sum(1 for _ in os.walk(root))
    text = f"{n_folders:,} {'folder' if n_folders == 1 else 'folders'}, {limit:,} inotify watches allowed"
    if n_folders * SPARE_WATCHES > limit:
        hint = f"sudo sysctl fs.inotify.max_user_watches={max(limit * 4, n_folders * 4)}"
        yield Finding(level="warn", about="watching", text=text, hint=hint)
    else:
        yield Finding(level="ok", about="watching", text=text)


def _daemon(root: Path, holder: lock.Holder | None, settings: config.Config | None) -> Finding:
    """Look whether a daemon serves the root, or could."""
    if holder is not None:
        at = f", port {holder.port}" if holder.port else ""
        return Finding(level="ok", about="daemon", text=f"pid {holder.pid}{at}")
    if settings is None:
        return Finding(level="warn", about="daemon", text="none runs, and none can start with these settings")
    api = settings.api
    if api.port and (reason := _taken(api.host, api.port)):
        text = f"none serves {root}, and port {api.port} is not free: {reason}"
        return Finding(
            level="warn",
            about="daemon",
            text=text,
            hint=f"stop what listens there, or set [api] port in {root / config.FILE_NAME}",
        )
    return Finding(
        level="note", about="daemon", text=f"none serves {root}", hint=f"everosd serve --root {_quoted(root)}"
    )


def _model(settings: config.Config | None) -> Iterator[Finding]:
    """Ask the embedding model for a vector."""
    if settings is None:
        return
    wanted = settings.embedding
    if wanted.provider == "none":
        yield Finding(level="note", about="model", text="no embedding model is wanted: search goes by keyword")
        return
    if wanted.is_half_set:
        text = f"{wanted.model} at {wanted.url} has no api_key: the built-in model stands in"
        yield Finding(level="warn", about="model", text=text, hint="set EVEROS_EMBEDDING__API_KEY")
    try:
        from everosd.models import provider

        embedder = provider.open_embedder(wanted, clock.SystemClock())
        assert embedder is not None  # noqa: S101  # none is wanted otherwise
        space, took_s = asyncio.run(_answers(embedder))
    except errors.EverosdError as error:
        yield Finding(level="warn", about="model", text=str(error), hint=error.hint)
    except (ImportError, RuntimeError) as error:
        yield Finding(level="warn", about="model", text=f"it cannot be run here: {error}", hint="install everosd again")
    else:
        yield Finding(
            level="ok", about="model", text=f"{embedder.name}, {space.dim} wide, answers in {took_s * 1000:.0f} ms"
        )


async def _answers(embedder: embed.Embedder) -> tuple[types.Space, float]:
    """Have the model embed a question; return its space and how long the second answer took, seconds."""
    try:
        space = await embedder.probe()
        await embedder.query("is anybody there")
        began_s = time.perf_counter()
        await embedder.query("is anybody else there")
        return space, time.perf_counter() - began_s
    finally:
        await embedder.close()


def _reader(settings: config.Config | None) -> Iterator[Finding]:
    """Ask the model that reads conversations for one short answer."""
    if settings is None:
        return
    wanted = settings.llm
    if wanted.is_half_set:
        text = f"[llm] is half set, {wanted.missing} is missing: it counts as none, and extraction is verbatim"
        hint = "set EVEROS_LLM__API_KEY" if wanted.missing == "api_key" else "set model under [llm] in everos.toml"
        yield Finding(level="warn", about="llm", text=text, hint=hint)
        return
    if not wanted.is_set_up:
        yield Finding(level="ok", about="llm", text="no model is set up to read conversations: extraction is verbatim")
        return
    from everosd.models import chat

    # Once more at most: a person waits, and what fails here is asked for again by the daemon.
    asked = chat.Chat(msgspec.structs.replace(wanted, max_retries=min(wanted.max_retries, 1)), clock.SystemClock())
    try:
        took_s = asyncio.run(_reads(asked))
    except errors.LLMError as error:
        hint = SEE_LLM if "everosd doctor" in error.hint else error.hint
        yield Finding(level="fail", about="llm", text=f"no model reads conversations: {error}", hint=hint)
    except (ImportError, RuntimeError) as error:
        yield Finding(level="fail", about="llm", text=f"it cannot be asked: {error}", hint="install everosd again")
    else:
        yield Finding(level="ok", about="llm", text=f"{asked.name} answers in {took_s * 1000:,.0f} ms")


class _Greeting(msgspec.Struct, frozen=True, kw_only=True):
    """A short answer in the shape that all answers have to have."""

    word: str


async def _reads(asked: chat.Chat) -> float:
    """Have the model say a word; return how long that took, seconds."""
    from everosd.models import prompt

    question = 'Answer with JSON alone: {"word": "yes"}'
    try:
        began_s = time.perf_counter()
        await asked.ask(prompt.Prompt(name="doctor", version=1, system="", user=question), _Greeting)
        return time.perf_counter() - began_s
    finally:
        await asked.close()


def _prompts(settings: config.Config | None) -> Iterator[Finding]:
    """Look whether the person's own prompts are used."""
    if settings is None or not settings.prompts.is_dir():
        return
    from everosd import faculties
    from everosd.models import prompt

    for error in prompt.problems((settings.prompts,), faculties.FOLDERS):
        yield Finding(level="warn", about="prompts", text=str(error), hint=error.hint)


def _memory(root: Path) -> Iterator[Finding]:
    """Ask what the files and the indexes say."""
    try:
        answer = node.ask(root, "GET", "/api/v1/admin/status")
    except errors.EverosdError as error:
        yield Finding(level="fail", about="memory", text=str(error), hint=error.hint)
        return
    if answer.status != client.OK:
        yield Finding(level="fail", about="memory", text=str(show.section(answer.body, "error").get("message")))
        return
    data = dict(show.section(answer.body, "data"))
    yield Finding(
        level="ok",
        about="memory",
        text=f"{show.how_much(data)} in {show.count(cast('int', data.get('files_indexed', 0)), 'file')}",
    )
    if data.get("alarm"):
        yield Finding(level="fail", about="memory", text=str(data["alarm"]))
    for notice in cast("list[object]", data.get("notices") or []):
        yield Finding(level="warn", about="daemon", text=str(notice), hint=RESTART if "restart" in str(notice) else "")
    if not data.get("watch_healthy", True):
        yield Finding(level="warn", about="watching", text=str(data.get("watch_reason")))
    yield from _indexes(root, data)
    yield from _files(root, data)


def _indexes(root: Path, data: show.Body) -> Iterator[Finding]:
    """Say which index does not get on, and whether it is itself to blame or the model that it waits for."""
    models = show.section(data, "embedding").get("error")
    for name, one in show.section(data, "projections").items():
        if error_text := cast("dict[str, object]", one).get("error"):
            hint = MODEL_FAILS if error_text == models else f"everosd rebuild --root {_quoted(root)}"
            yield Finding(level="warn", about=f"index {name}", text=str(error_text), hint=hint)


def _files(root: Path, data: show.Body) -> Iterator[Finding]:
    """Turn the files that are not read as they should be into findings; `--json` of status has more of them."""
    problems = show.rows(data, "problems")
    for one in problems[:MAX_FILES]:
        kind = str(one.get("kind") or "warning")
        line = f":{one['line']}" if one.get("line") else ""
        level, hint = KINDS.get(kind, KINDS["warning"])
        yield Finding(
            level=level,
            about="file",
            text=f"{one.get('path')}{line}: {one.get('reason')}",
            hint=hint(root, str(one.get("path"))),
        )
    if n_more := cast("int", data.get("n_problems") or len(problems)) - len(problems[:MAX_FILES]):
        text = f"… and {n_more:,} more"
        yield Finding(level="note", about="file", text=text, hint=f"everosd status --json --root {_quoted(root)}")


def _taken(host: str, port: int) -> str:
    """Return why nobody can listen on an address; empty where one can."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _mode(path: Path) -> int:
    """Return permission bits; 0 where there is no such file."""
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return 0


def _said(_root: Path, _path: str) -> str:
    return ""  # the reason says what to do, or there is nothing to do


def _quoted(path: Path) -> str:
    """Return a path as it has to be typed."""
    return shlex.quote(str(path))


def _open(root: Path, path: str) -> str:
    return f"open {root / path} and correct that line; nothing in it is lost, and the daemon does not rewrite it"


def _allow(root: Path, path: str) -> str:
    if os.path.islink(root / path):  # noqa: PTH114  # `Path.is_symlink` raises where a folder above is shut
        return _within(root, path)
    if "\\udc" in path:  # how a byte that is no UTF-8 is printed
        return f"give it a name in UTF-8; it lies in {(root / path).parent}"
    return f"make it readable: chmod u+rX {_quoted(root / path)}"


def _merge(root: Path, path: str) -> str:
    return f"merge {root / path} into the original by hand, then delete it"


def _retitle(_root: Path, _path: str) -> str:
    return "give one of the two entries another id"


def _repoint(root: Path, path: str) -> str:
    return f"correct or remove its line in deprecated_entries of {root / path}, or bring the other entry back"


def _move(_root: Path, path: str) -> str:
    return f"move {path} to where it is read, e.g. users/<you>/episodes/episode-<date>.md; docs/ARCHITECTURE.md has the places"


def _within(_root: Path, _path: str) -> str:
    return "it leads out of the memory root and is not followed: put the file itself there"


def _reword(_root: Path, _path: str) -> str:
    return "correct the text, or lower [embedding] max_tokens where it is too long for the model"


KINDS: dict[str, tuple[Level, Callable[[Path, str], str]]] = {
    "error": ("warn", _open),
    "warning": ("note", _said),
    "healed": ("note", _said),
    "unreadable": ("warn", _allow),
    "duplicate": ("warn", _retitle),
    "successor": ("note", _repoint),
    "conflict": ("warn", _merge),
    "stray": ("note", _move),
    "link": ("note", _within),
    "unembedded": ("note", _reword),
}
"""What each kind of problem with a file (`cascade.status.FileProblem`) means here, and its hint."""
