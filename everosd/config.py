"""Settings: shipped defaults, everos.toml of the root and the environment → one frozen `Config`.

`config/default.toml` is the only place with default values; the structs below say types and ranges. A misspelt key is
refused with the nearest known one; keys that EverOS knows and everosd does not need are accepted and listed.
"""

from __future__ import annotations

import difflib
import functools
import ipaddress
import os
import re
import stat
import urllib.parse
import zoneinfo
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, TypeVar, get_args, get_origin

import msgspec
from msgspec import Meta

from everosd import errors, toml

FILE_NAME = "everos.toml"
ENV_PREFIX = "EVEROS_"
ROOT_VARIABLE = "EVEROS_ROOT"
DEFAULT_ROOT = "~/.everos"
PROMPTS = "prompts"
"""Folder in the memory root for prompts that stand in for ours."""
ENVIRONMENT = "environment"
MIN_TOKEN_CHARS = 16
"""Of a user's own token: it opens a person's memory, and what is shorter can be guessed."""
MAX_INTERVAL_S = 366 * 86_400.0
"""Longer waits are mistakes of unit; they also overflow timers."""

SectionT = TypeVar("SectionT", bound=msgspec.Struct)
Seconds = Annotated[float, Meta(gt=0, le=MAX_INTERVAL_S)]


class Secret:
    """A text that must not be seen: `reveal()` gives it, everything else shows stars."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        """Keep `text`."""
        self._text = text

    def reveal(self) -> str:
        """Return the text itself."""
        return self._text

    def __bool__(self) -> bool:
        """Tell whether there is a text at all."""
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        """Compare by text, so that a reload notices a change."""
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        """Agree with equality."""
        return hash(self._text)

    def __repr__(self) -> str:
        """Show that there is something, never what."""
        return "'***'" if self._text else "''"

    __str__ = __repr__


class Memory(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[memory]`: how memory is read and shown."""

    timezone: str
    """IANA name of the zone of dates in file names, ids and answers."""

    @property
    def zone(self) -> zoneinfo.ZoneInfo:
        """The zone itself; `load` has made sure that it exists."""
        return zoneinfo.ZoneInfo(self.timezone)


class Api(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[api]`: where HTTP is served and what it takes."""

    host: Annotated[str, Meta(min_length=1)]
    port: Annotated[int, Meta(ge=0, le=65_535)]
    """0 means: the system chooses."""
    max_body_bytes: Annotated[int, Meta(ge=1024, le=2**31 - 1)]
    token: Secret
    """Empty means: no request needs one."""


class Sqlite(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[sqlite]`: pragmas of the ledger."""

    synchronous: Literal["OFF", "NORMAL", "FULL", "EXTRA"]
    busy_timeout_ms: Annotated[int, Meta(ge=0, le=600_000)]
    journal_size_limit_bytes: Annotated[int, Meta(ge=0, le=2**40)]
    cache_size_kb: Annotated[int, Meta(ge=64, le=2**22)]


class Watch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[watch]`: how changes on disk are noticed."""

    mode: Literal["auto", "inotify", "polling"]
    poll_interval_s: Seconds
    scan_interval_s: Seconds
    settle_ms: Annotated[int, Meta(ge=0, le=60_000)]


Provider = Literal["builtin", "endpoint", "none"]
"""Where vectors come from."""

BUILTIN, NONE = "builtin", "none"
OPENAI_URL = "https://api.openai.com/v1"


class Embedding(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[embedding]`: the model that turns text into vectors."""

    model: str
    """`builtin`, `none`, or what the endpoint calls its model."""
    api_key: Secret
    base_url: str
    """Of an OpenAI-compatible endpoint; empty: OpenAI's own where another model than the built-in is named."""
    dim: Annotated[int, Meta(ge=0, le=65_536)]
    """Width that the endpoint has to give; 0 means as it comes."""
    timeout_seconds: Seconds
    max_retries: Annotated[int, Meta(ge=0, le=100)]
    batch_size: Annotated[int, Meta(ge=1, le=2048)]
    max_concurrent: Annotated[int, Meta(ge=1, le=1000)]
    query_max_concurrent: Annotated[int, Meta(ge=1, le=1000)]
    query_timeout_seconds: Seconds
    max_tokens: Annotated[int, Meta(ge=64, le=1_000_000)]
    """Longest text in one piece, tokens of about four letters; longer ones are split."""
    cache_max_mb: Annotated[int, Meta(ge=1, le=1_000_000)]

    @property
    def provider(self) -> Provider:
        """Where vectors come from.

        An endpoint on another machine without a key counts as not set up: EverOS ships its own settings so.
        """
        if self.model == NONE:
            return "none"
        if self.model in ("", BUILTIN) and not self.base_url:
            return "builtin"
        return "endpoint" if self.api_key or is_loopback(self._host) else "builtin"

    @property
    def is_half_set(self) -> bool:
        """Whether an endpoint is named but has no key, so that the built-in model stands in."""
        return self.provider == "builtin" and not (self.model in ("", BUILTIN) and not self.base_url)

    @property
    def url(self) -> str:
        """The endpoint's address."""
        return self.base_url or OPENAI_URL

    @property
    def _host(self) -> str:
        return urllib.parse.urlsplit(self.url).hostname or ""


class Vectors(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[vectors]`: the vector index."""

    memory_mb: Annotated[int, Meta(ge=1, le=1_000_000)]
    """Vectors of the owners searched last that are kept in memory."""


class Llm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[llm]`: the model that reads conversations."""

    model: str
    """What the endpoint calls it; empty: none, extraction is verbatim."""
    api_key: Secret
    base_url: str
    """Of an OpenAI-compatible endpoint; empty: OpenAI's own."""
    timeout_seconds: Seconds
    max_retries: Annotated[int, Meta(ge=0, le=100)]
    max_concurrent: Annotated[int, Meta(ge=1, le=1000)]
    max_input_tokens: Annotated[int, Meta(ge=256, le=10_000_000)]
    """Longest prompt; longer conversations are read in parts."""
    max_output_tokens: Annotated[int, Meta(ge=64, le=1_000_000)]
    language: str
    """What is written is in this language; empty: in that of the conversation."""
    prompts: str
    """Folder with prompts that stand in for ours; empty: `prompts` in the memory root."""

    @property
    def is_set_up(self) -> bool:
        """Whether there is a model to ask: an endpoint on another machine without a key counts as none."""
        return bool(self.model) and (bool(self.api_key) or is_loopback(self._host))

    @property
    def is_half_set(self) -> bool:
        """Whether a model is named, but its endpoint has no key."""
        return bool(self.model or self.base_url) and not self.is_set_up

    @property
    def missing(self) -> str:
        """The key without which a model that is half set counts as none."""
        return "api_key" if self.model else "model"

    @property
    def url(self) -> str:
        """The endpoint's address."""
        return self.base_url or OPENAI_URL

    @property
    def _host(self) -> str:
        return urllib.parse.urlsplit(self.url).hostname or ""


class Intake(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[intake]`: what becomes of messages."""

    redact: bool
    """Credentials in messages are made unreadable before they are written."""
    keep_messages_days: Annotated[float, Meta(ge=0, le=36_500)]
    """Days that raw messages are kept after extraction; 0: for ever."""


class BoundaryDetection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[boundary_detection]`: when a stretch of conversation ends."""

    hard_token_limit: Annotated[int, Meta(ge=64, le=10_000_000)]
    hard_msg_limit: Annotated[int, Meta(ge=1, le=100_000)]
    idle_minutes: Annotated[float, Meta(ge=0, le=527_040)]
    """Silence after which what is there is extracted, by the daemon's clock; 0: never."""
    gap_hours: Annotated[float, Meta(ge=0, le=87_840)]
    """Time between two messages, by their own clocks, that parts two conversations; 0: none does."""
    asks_model: bool


class Memorize(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[memorize]`: whose memory is made."""

    mode: Literal["agent", "chat"]
    """`agent`: of people and, where tools are used, of agents; `chat`: of people alone."""


class AsyncQueue(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[memorize.async_queue]`: work that goes on after the answer."""

    max_concurrency: Annotated[int, Meta(ge=1, le=1000)]
    max_pending_per_session: Annotated[int, Meta(ge=1, le=1_000_000)]
    max_pending_total: Annotated[int, Meta(ge=1, le=1_000_000)]
    max_payload_bytes: Annotated[int, Meta(ge=1024, le=2**31 - 1)]
    retry_backoff_seconds: Seconds
    row_retention_hours: Annotated[float, Meta(gt=0, le=87_840)]


class Clustering(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[clustering]`: which Episodes are about the same."""

    threshold: Annotated[float, Meta(ge=0, le=1)]
    time_window_days: Annotated[float, Meta(gt=0, le=36_500)]


class Reflection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[reflection]`: how the Episodes of a cluster become one narrative."""

    merge: Literal["llm", "extractive"]
    """Who merges: the model of `[llm]`, or nobody: statements of the sources in time order."""
    clusters_per_run: Annotated[int, Meta(ge=1, le=100_000)]
    """Of each owner, the largest first."""
    max_narrative_tokens: Annotated[int, Meta(ge=256, le=1_000_000)]
    """Longest narrative of an extractive merge, tokens of about four letters."""


class Mcp(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[mcp]`: whose memory agents reach over MCP. No tool takes an owner: this is the only place that says it."""

    user_id: str
    """Empty: the only user of the scope, where there is exactly one, else `me`."""
    app_id: Annotated[str, Meta(min_length=1)]
    project_id: Annotated[str, Meta(min_length=1)]


Share = Annotated[float, Meta(ge=0, le=1)]
Days = Annotated[float, Meta(gt=0, le=36_500)]


class Lifecycle(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[lifecycle]`: what becomes of memories by rule."""

    episodes: bool
    """Episodes expire, decay and are archived as typed episodic memories are."""
    max_share: Share
    """A pass that would change more of an owner's memories than this does not."""
    min_group_size: Annotated[int, Meta(ge=1, le=100_000)]
    summarize: Literal["llm", "extractive", "off"]


class Decay(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[lifecycle.decay.<type>]`: how importance sinks while a memory of a type is not used."""

    period_days: Days
    step: Share
    """Taken away for each whole period."""
    floor: Share
    """Not below this; what lies below it already stays."""


class Retention(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[lifecycle.retention]`: days after which a memory that is not used is archived, by type."""

    working: Days
    episodic: Days
    semantic: Days
    procedural: Days
    superseded: Days
    """Of any type, since it was superseded."""


class Promote(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[lifecycle.promote]`: what a pattern needs to become a semantic memory."""

    min_occurrences: Annotated[int, Meta(ge=1, le=100_000)]
    min_importance: Share
    """On average."""
    min_confidence: Share
    """On average."""


class OwnerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[owners."<id>"]`: what is otherwise for one user or agent."""

    timezone: str = ""
    """IANA name of the zone of their nights; empty: `memory.timezone`."""
    token: Secret = Secret("")
    """Who brings it to /mcp reaches this user's memory and nobody else's, `MIN_TOKEN_CHARS` or more; empty: there is none."""

    @property
    def zone(self) -> zoneinfo.ZoneInfo | None:
        """The zone itself, None where it is everybody's; `load` has made sure that it exists."""
        return zoneinfo.ZoneInfo(self.timezone) if self.timezone else None


class Daemon(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[daemon]`: the process itself."""

    drain_timeout_s: Seconds
    stalled_after_s: Seconds


class Log(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[log]`: what the daemon says of itself."""

    level: Literal["debug", "info", "warning", "error"]
    format: Literal["auto", "console", "json", "journald"]
    repeat_window_s: Seconds


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is set, checked, in force."""

    root: Path
    """The memory root, absolute, symlinks resolved."""
    memory: Memory
    api: Api
    sqlite: Sqlite
    watch: Watch
    embedding: Embedding
    vectors: Vectors
    llm: Llm
    intake: Intake
    boundary_detection: BoundaryDetection
    memorize: Memorize
    memorize_async_queue: AsyncQueue
    clustering: Clustering
    reflection: Reflection
    lifecycle: Lifecycle
    lifecycle_decay_working: Decay
    lifecycle_decay_episodic: Decay
    lifecycle_decay_semantic: Decay
    lifecycle_decay_procedural: Decay
    lifecycle_retention: Retention
    lifecycle_promote: Promote
    mcp: Mcp
    daemon: Daemon
    log: Log
    owners: tuple[tuple[str, OwnerSettings], ...] = ()
    """By user or agent id, sorted; those that nobody named are as everybody."""
    given: tuple[tuple[str, object], ...] = ()
    """Dotted keys that the command line set: they stay above everything when the rest is read again."""
    ignored: tuple[str, ...] = ()
    """Dotted keys and variables that EverOS knows and everosd does not need, sorted."""

    @property
    def prompts(self) -> Path:
        """Folder with the person's own prompts; it need not be there."""
        return Path(self.llm.prompts).expanduser() if self.llm.prompts else self.root / PROMPTS

    def zone_of(self, owner_id: str) -> zoneinfo.ZoneInfo:
        """Return the zone of a user or agent: their own, else `memory.timezone`."""
        return next((one.zone for known, one in self.owners if known == owner_id), None) or self.memory.zone

    def zones(self) -> tuple[zoneinfo.ZoneInfo, ...]:
        """Return the zones of all users and agents: `memory.timezone`, and those that somebody has for themselves."""
        return (self.memory.zone, *(self.zone_of(owner_id) for owner_id, _ in self.owners))


SECTIONS: dict[str, type[msgspec.Struct]] = {
    "memory": Memory,
    "api": Api,
    "sqlite": Sqlite,
    "watch": Watch,
    "embedding": Embedding,
    "vectors": Vectors,
    "llm": Llm,
    "intake": Intake,
    "boundary_detection": BoundaryDetection,
    "memorize": Memorize,
    "memorize.async_queue": AsyncQueue,
    "clustering": Clustering,
    "reflection": Reflection,
    "lifecycle": Lifecycle,
    "lifecycle.decay.working": Decay,
    "lifecycle.decay.episodic": Decay,
    "lifecycle.decay.semantic": Decay,
    "lifecycle.decay.procedural": Decay,
    "lifecycle.retention": Retention,
    "lifecycle.promote": Promote,
    "mcp": Mcp,
    "daemon": Daemon,
    "log": Log,
}

OWNERS = "owners"
"""Section of sections: one for each owner that is named."""
GROUPS = frozenset({"lifecycle.decay", OWNERS})
"""Names that hold sections and no keys."""

LIVE_SECTIONS = ("embedding", "llm", "intake", "boundary_detection", "memorize", "clustering", "reflection", "mcp")
"""All of whose keys are reloadable; `lifecycle` and what is below it besides."""

RELOADABLE = frozenset(
    {
        "daemon.drain_timeout_s",
        "daemon.stalled_after_s",
        "log.level",
        "log.repeat_window_s",
        *(
            f"{section}.{key}"
            for section in SECTIONS
            if section in LIVE_SECTIONS or f"{section}.".startswith("lifecycle.")
            for key in SECTIONS[section].__struct_fields__
        ),
        *(f"memorize.async_queue.{key}" for key in AsyncQueue.__struct_fields__),
    }
)
"""Keys that are taken over without a restart: nothing that is open was built from them, or it is opened afresh.

So is what is said of owners, whose names nobody can list."""

IGNORED: dict[str, frozenset[str]] = {
    "memory": frozenset({"root"}),
    "sqlite": frozenset({"journal_mode", "foreign_keys", "temp_store"}),
    "memorize.async_queue": frozenset({"enabled", "scan_interval_seconds", "max_attempts", "max_replays"}),
    "index": frozenset({"backend"}),
    **dict.fromkeys(
        (
            "lancedb",
            "milvus",
            "decider",
            "multimodal",
            "rerank",
            "knowledge",
            "cascade",
            "observability",
        ),
        frozenset({"*"}),
    ),
}
"""Of EverOS, accepted and not used; `*` stands for every key, and for tables below. `memory.root` cannot move the root
that its own file lies in."""


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One value that somebody set, and where."""

    section: str
    key: str
    value: object
    origin: str
    """File or `environment`."""
    name: str
    """What the person wrote: a dotted key or the variable's name."""
    line: int | None = None


Origins = dict[tuple[str, str], Setting]
"""Who set which key; keys that nobody set are not there."""


def root_path(given: str | Path | None = None, environ: Mapping[str, str] = os.environ) -> Path:
    """Return the memory root: `given`, else `EVEROS_ROOT` (or `EVEROS_MEMORY__ROOT`), else `~/.everos`.

    Absolute and resolved, so that a root reached through a symlink is the same root. It need not exist.
    """
    if given == "":
        what = "--root"
        raise errors.RootError(what, "names no folder", hint="name one, or leave it out: $EVEROS_ROOT, else ~/.everos")
    chosen = given or environ.get(ROOT_VARIABLE) or environ.get("EVEROS_MEMORY__ROOT") or DEFAULT_ROOT
    try:
        return Path(chosen).expanduser().resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise errors.RootError(str(chosen), str(error), hint="name another folder with --root") from error


@functools.cache
def defaults(name: str = "default.toml") -> str:
    """Return the text of a shipped default file (`default.toml`, `default_ome.toml`)."""
    package = Path(__file__).parent
    for folder in (package / "_config", package.parent / "config"):
        if (path := folder / name).is_file():
            return path.read_text(encoding="utf-8")
    raise errors.ConfigError(name, "", "missing from this installation", hint="install everosd again")


def load(
    root: Path,
    environ: Mapping[str, str] = os.environ,
    *,
    given: Mapping[str, object] | None = None,
    text: str | None = None,
) -> Config:
    """Read all sources and return the settings in force.

    Args:
        root: Holds everos.toml.
        environ: Above the file.
        given: Dotted keys from the command line, above everything (`{"api.port": 0}`).
        text: What everos.toml is to hold; None: what it holds.

    Raises:
        ConfigError: names file, line and key of the first thing that is wrong.
    """
    values = flat(toml.read(defaults(), "default.toml"))
    ignored: set[str] = set()
    origins: Origins = {}
    path = root / FILE_NAME
    text = read(path) if text is None else text
    for setting in (*_from_text(path, text), *_from_environment(environ), *_from_arguments(given or {})):
        if _is_ignored(setting):
            ignored.add(setting.name)
            continue
        _require_known(setting)
        values.setdefault(setting.section, {})[setting.key] = _value(setting)
        origins[setting.section, setting.key] = setting
    loaded = Config(
        root=root,
        memory=_section(Memory, "memory", values, origins),
        api=_section(Api, "api", values, origins),
        sqlite=_section(Sqlite, "sqlite", values, origins),
        watch=_section(Watch, "watch", values, origins),
        embedding=_section(Embedding, "embedding", values, origins),
        vectors=_section(Vectors, "vectors", values, origins),
        llm=_section(Llm, "llm", values, origins),
        intake=_section(Intake, "intake", values, origins),
        boundary_detection=_section(BoundaryDetection, "boundary_detection", values, origins),
        memorize=_section(Memorize, "memorize", values, origins),
        memorize_async_queue=_section(AsyncQueue, "memorize.async_queue", values, origins),
        clustering=_section(Clustering, "clustering", values, origins),
        reflection=_section(Reflection, "reflection", values, origins),
        lifecycle=_section(Lifecycle, "lifecycle", values, origins),
        lifecycle_decay_working=_section(Decay, "lifecycle.decay.working", values, origins),
        lifecycle_decay_episodic=_section(Decay, "lifecycle.decay.episodic", values, origins),
        lifecycle_decay_semantic=_section(Decay, "lifecycle.decay.semantic", values, origins),
        lifecycle_decay_procedural=_section(Decay, "lifecycle.decay.procedural", values, origins),
        lifecycle_retention=_section(Retention, "lifecycle.retention", values, origins),
        lifecycle_promote=_section(Promote, "lifecycle.promote", values, origins),
        mcp=_section(Mcp, "mcp", values, origins),
        daemon=_section(Daemon, "daemon", values, origins),
        log=_section(Log, "log", values, origins),
        owners=tuple(
            (section.removeprefix(f"{OWNERS}."), _section(OwnerSettings, section, values, origins))
            for section in sorted(values)
            if section.startswith(f"{OWNERS}.")
        ),
        given=tuple((given or {}).items()),
        ignored=tuple(sorted(ignored)),
    )
    _check_meaning(loaded, origins)
    return loaded


def reread(current: Config, environ: Mapping[str, str] = os.environ) -> Config:
    """Read all sources again, the command line's settings as they were; raises as `load` does."""
    return load(current.root, environ, given=dict(current.given))


class Reload(msgspec.Struct, frozen=True, kw_only=True):
    """What a second reading of the sources changed."""

    config: Config
    """In force from now on: the old settings with what could be taken over."""
    applied: tuple[str, ...]
    """Dotted keys that changed and are in force."""
    waits_for_restart: tuple[str, ...]
    """Dotted keys that changed and are not."""


def merge(current: Config, fresh: Config) -> Reload:
    """Take over from `fresh` what can change while the daemon runs."""
    applied, waiting = [], []
    result = current
    for section in SECTIONS:
        attribute = section.replace(".", "_")
        before, after = getattr(current, attribute), getattr(fresh, attribute)
        for key in before.__struct_fields__:
            if (value := getattr(after, key)) == getattr(before, key):
                continue
            name = f"{section}.{key}"
            if name not in RELOADABLE:
                waiting.append(name)
                continue
            applied.append(name)
            changed = msgspec.structs.replace(getattr(result, attribute), **{key: value})
            result = msgspec.structs.replace(result, **{attribute: changed})
    if fresh.owners != current.owners:
        applied.append(OWNERS)
    result = msgspec.structs.replace(result, ignored=fresh.ignored, owners=fresh.owners)
    return Reload(config=result, applied=tuple(applied), waits_for_restart=tuple(waiting))


def read(path: Path) -> str:
    """Return what stands in a file of settings; nothing where there is none.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):  # opening a pipe would wait for somebody who writes into it
            raise errors.ConfigError(str(path), "", "is not a file", hint=f"make {path} a file that you can read")
        if found.st_size > toml.MAX_BYTES:
            raise errors.ConfigError(str(path), "", "is too large for settings")
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise errors.ConfigError(str(path), "", "is not UTF-8", line=line, hint=f"save {path} as UTF-8") from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise errors.ConfigError(str(path), "", reason, hint=f"make {path} a file that you can read") from error


def _from_text(path: Path, text: str) -> Iterator[Setting]:
    """Yield what everos.toml sets."""
    tables = toml.read(text, str(path))
    for section, table in tables.items():
        if not isinstance(table, dict):
            _refuse_bare_key(path, text, section)
    for section, table in flat(tables).items():
        for key, value in table.items():
            yield Setting(
                section=section,
                key=key,
                value=value,
                origin=str(path),
                name=f"{section}.{key}",
                line=line_of(text, section, key),
            )


def flat(tables: Mapping[str, Any], within: str = "") -> dict[str, dict[str, Any]]:
    """Return tables by their dotted names: a section within a section stands beside it."""
    found: dict[str, dict[str, Any]] = {}
    for name, table in tables.items():
        section = f"{within}{name}"
        inner = {key: value for key, value in table.items() if isinstance(value, dict) and _is_inner(section, key)}
        rest = {key: value for key, value in table.items() if key not in inner}
        if rest or section not in GROUPS:
            found[section] = rest
        found.update(flat(inner, f"{section}."))
    return found


def _is_inner(section: str, key: str) -> bool:
    """Tell whether a table within a section is one of its own."""
    name = f"{section}.{key}"
    return name in SECTIONS or name in GROUPS or section in GROUPS


def kind_of(section: str) -> type[msgspec.Struct] | None:
    """Return what a section holds; None: nobody knows it."""
    return OwnerSettings if section.startswith(f"{OWNERS}.") else SECTIONS.get(section)


def _refuse_bare_key(path: Path, text: str, key: str) -> NoReturn:
    """Refuse a key that stands before the first `[section]`."""
    homes = [section for section, kind in SECTIONS.items() if key in kind.__struct_fields__]
    hint = f"put it below [{homes[0]}]" if len(homes) == 1 else "put it below the [section] it belongs to"
    raise errors.ConfigError(str(path), key, "stands outside any section", line=line_of(text, "", key), hint=hint)


def _from_environment(environ: Mapping[str, str]) -> Iterator[Setting]:
    """Yield what `EVEROS_<SECTION>__<KEY>` variables set; other `EVEROS_` variables are not settings."""
    for name in sorted(environ):
        section, has_key, key = name.removeprefix(ENV_PREFIX).lower().partition("__")
        within, _, rest = key.partition("__")
        while rest and (f"{section}.{within}" in SECTIONS or f"{section}.{within}" in GROUPS):
            section, key = f"{section}.{within}", rest
            within, _, rest = key.partition("__")
        if name.startswith(ENV_PREFIX) and has_key:
            yield Setting(section=section, key=key, value=environ[name], origin=ENVIRONMENT, name=name)


def _from_arguments(given: Mapping[str, object]) -> Iterator[Setting]:
    """Yield what the command line sets."""
    for name, value in given.items():
        section, _, key = name.rpartition(".")
        yield Setting(section=section, key=key, value=value, origin="command line", name=name)


def _is_ignored(setting: Setting) -> bool:
    """Tell whether EverOS knows the key and everosd has no use for it."""
    keys = IGNORED.get(setting.section, frozenset())
    return "*" in keys or setting.key in keys


def _require_known(setting: Setting) -> None:
    """Refuse a section or key that nobody knows, with the nearest one that somebody does."""
    kind = kind_of(setting.section)
    if setting.section == OWNERS:
        reason = "stands below no owner"
        raise _wrong(setting, reason, hint=f'put it below [{OWNERS}."<user or agent id>"]')
    if kind is None:
        known: Iterable[str] = [*SECTIONS, *IGNORED]
        what, wrong, shown = "section", setting.section, "[{}]"
    else:
        known = [*kind.__struct_fields__, *(IGNORED.get(setting.section, frozenset()))]
        what, wrong, shown = "key", setting.key, "{}"
        if setting.key in known:
            return
    near = difflib.get_close_matches(wrong, sorted(set(known)), n=1)
    if near:
        also = f"did you mean {shown.format(near[0])}?"
    else:
        also = f"known are {', '.join(shown.format(name) for name in sorted(set(known)))}"
    raise _wrong(setting, f"unknown {what}; {also}")


def _value(setting: Setting) -> object:
    """Return the value as TOML would have it: variables are text and become numbers where numbers are asked for."""
    if setting.origin != ENVIRONMENT:
        return setting.value
    kind = {field.name: field.type for field in msgspec.structs.fields(SECTIONS[setting.section])}[setting.key]
    if kind is Secret:
        return setting.value
    try:
        return msgspec.convert(setting.value, kind, strict=False)
    except msgspec.ValidationError as error:
        raise _wrong(setting, _reason(str(error), kind)) from error


def _section(kind: type[SectionT], name: str, values: Mapping[str, Any], origins: Origins) -> SectionT:
    """Check one section; the first wrong value is named with the place it was set at."""
    try:
        return msgspec.convert(values[name], kind, dec_hook=_secret)
    except msgspec.ValidationError as error:
        reason, _, place = str(error).partition(" - at `$.")
        key = re.split(r"[`.\[]", place, maxsplit=1)[0]
        setting = origins.get((name, key))
        if setting is None:
            raise
        fields = {field.name: field.type for field in msgspec.structs.fields(kind)}
        raise _wrong(setting, _reason(reason, fields.get(key))) from error


def _reason(said: str, kind: object) -> str:
    """Return what a failed check says, in words for people: which values there are, not which type."""
    if get_origin(kind) is Literal:
        return f"{said}; there are {', '.join(map(str, get_args(kind)))}"
    for name, word in (("`int`", "a whole number"), ("`float`", "a number"), ("`str`", "a text")):
        said = said.replace(name, word)
    return said


def _secret(kind: type, value: object) -> Secret:
    """Make a secret of a text; anything else is of the wrong type, and is not shown."""
    if kind is Secret and isinstance(value, str):
        return Secret(value)
    reason = "Expected `str`"
    raise ValueError(reason)


def _wrong(setting: Setting, reason: str, *, hint: str = "") -> errors.ConfigError:
    """Return the error for a value that does not fit."""
    if setting.origin.endswith(FILE_NAME):
        return errors.ConfigError(setting.origin, setting.name, reason, line=setting.line, hint=hint)
    verb = "unset" if setting.origin == ENVIRONMENT else "leave out"
    hint = hint or f"correct or {verb} {setting.name}"
    return errors.ConfigError(setting.origin, setting.name, reason, hint=hint)


def _check_meaning(config: Config, origins: Origins) -> None:
    """Check what a type cannot say."""
    _check_zone(config.memory, "memory", origins)
    for owner_id, one in config.owners:
        _check_zone(one, f"{OWNERS}.{owner_id}", origins)
    _check_tokens(config, origins)
    if config.embedding.base_url and not _is_address(config.embedding.base_url):
        raise _wrong(origins["embedding", "base_url"], 'expected an address such as "http://127.0.0.1:11434/v1"')
    if config.llm.base_url and not _is_address(config.llm.base_url):
        raise _wrong(origins["llm", "base_url"], 'expected an address such as "http://127.0.0.1:11434/v1"')
    if config.embedding.base_url and config.embedding.model in ("", BUILTIN):
        raise _wrong(
            origins["embedding", "base_url"],
            "names an endpoint, and no model of it is named",
            hint="set [embedding] model to what the endpoint calls it, or leave base_url out",
        )
    if not config.api.token and not is_loopback(config.api.host):
        raise _wrong(
            origins["api", "host"],
            f"{config.api.host} is not loopback, and no api.token is set",
            hint='set [api] token = "a long secret" in everos.toml, or EVEROS_API__TOKEN; or stay on 127.0.0.1',
        )


def _check_tokens(config: Config, origins: Origins) -> None:
    """Refuse a token that can be guessed, and one for two: nobody could tell whose memory is meant."""
    known = {config.api.token: "api.token"}
    for owner_id, one in config.owners:
        if not one.token:
            continue
        if len(one.token.reveal()) < MIN_TOKEN_CHARS:
            reason = f"is shorter than {MIN_TOKEN_CHARS} characters, and it opens a person's memory"
            hint = "make one: python3 -c 'import secrets; print(secrets.token_urlsafe(32))'"
            raise _wrong(origins[f"{OWNERS}.{owner_id}", "token"], reason, hint=hint)
        if one.token in known:
            reason = f"is that of {known[one.token]}, too"
            raise _wrong(origins[f"{OWNERS}.{owner_id}", "token"], reason, hint="give each a long secret of its own")
        known[one.token] = f"{OWNERS}.{owner_id}"


def _check_zone(one: Memory | OwnerSettings, section: str, origins: Origins) -> None:
    """Refuse a zone that does not exist, with the nearest one that does."""
    try:
        _ = one.zone
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        near = difflib.get_close_matches(one.timezone, sorted(zoneinfo.available_timezones()), n=1)
        also = f"; did you mean {near[0]}?" if near else "; use an IANA name such as Europe/Berlin"
        raise _wrong(origins[section, "timezone"], f"no such time zone: {one.timezone}{also}") from error


def _is_address(url: str) -> bool:
    """Return whether an endpoint may be at `url`."""
    try:
        parts = urllib.parse.urlsplit(url)
        _ = parts.port  # which is looked at only when it is asked for
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and not re.search(r"\s", url)


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach `host` (a name other than `localhost` counts as reachable)."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def line_of(text: str, section: str, key: str) -> int | None:
    """Return the 1-based line of `key` in `[section]` of a TOML text, as well as it can be told without its grammar."""
    current = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if header := re.match(r"\s*\[+\s*([^\]]+?)\s*\]+", line):
            current = header[1].replace('"', "").replace("'", "")
            if current == f"{section}.{key}":
                return number
        elif assignment := re.match(r"""\s*([\w."'-]+)\s*=""", line):
            name = assignment[1].replace('"', "").replace("'", "")
            full = f"{current}.{name}" if current else name
            wanted = f"{section}.{key}" if section else key
            if full == wanted or full.startswith(f"{wanted}."):
                return number
    return None
