"""Memories for tests of what becomes of them by rule, and passes over them on a calendar that the test turns."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime as dt
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path

import msgspec

from everosd import clock, config, daemon, types
from everosd.lifecycle import alarm, change, decisions, desk, outcome, policy, run
from everosd.log import entry
from everosd.store import lifecycle as store
from tests import open_root

MARA = types.Owner(app="default", project="default", type="user", id="u_mara")
DAY_US = policy.DAY_US
START = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
START_US = clock.to_us(START)


def policies(**changes: object) -> policy.Policy:
    """Return the shipped policy."""
    return msgspec.structs.replace(policy.of(config.load(Path("/nowhere"), {})), **changes)


def record(**fields: object) -> store.Record:
    """Return a memory as the ledger knows it, created at `START`, an episodic one where nothing else is said."""
    given: dict[str, object] = {
        "key": 1,
        "owner": MARA,
        "entry_id": "mem_20260301_00000001",
        "kind": "memory",
        "memory_type": "episodic",
        "path": "notes",
        "status": "active",
        "own_status": "active",
        "importance": 0.5,
        "own_importance": "",
        "confidence": 0.7,
        "expires_us": None,
        "created_us": START_US,
        "anchor_us": None,
        "accessed_us": None,
        "n_uses": 0,
        "since_us": None,
        "steps": 0,
        "moments": (),
        "status_since_us": None,
        "reason": "",
        "successor": "",
        "is_pinned": False,
        "is_redacted": False,
        "bucket": "public",
        "scope": "",
        "team_id": "",
        "session_id": None,
        "semantic_key": "",
        "promotion_key": "",
        "n_versions": 0,
        "lsn": 1,
        "path_file": "default_app/default_project/users/u_mara/memories/notes/episodic-2026-03-01.md",
    } | fields
    given.setdefault("updated_us", given["created_us"])
    return store.Record(**given)  # type: ignore[arg-type]


def folded(one: store.Record, decayed: change.Decayed) -> store.Record:
    """Return a memory as the ledger has it once a decay was applied."""
    return msgspec.structs.replace(
        one,
        importance=policy.importance(decayed.value),
        since_us=decayed.since_us,
        steps=decayed.steps,
        moments=tuple(at for at in one.moments if at > decayed.since_us),
    )


def used(one: store.Record, at_us: int) -> store.Record:
    """Return a memory that was used at a moment."""
    return msgspec.structs.replace(one, accessed_us=at_us, moments=(*one.moments, at_us))


class Calendar(clock.SystemClock):
    """Real waiting, and a date that the test turns."""

    def __init__(self, at: dt.datetime = START) -> None:
        """Show an aware moment."""
        self.at = at

    def now(self) -> dt.datetime:
        """Return the moment shown."""
        return self.at

    def pass_days(self, days: float) -> None:
        """Turn the date forward."""
        self.at += dt.timedelta(days=days)


@dataclasses.dataclass(kw_only=True)
class Life:
    """A root, and what makes passes over the memories in it."""

    root: open_root.Root
    calendar: Calendar
    parts: desk.Desk
    passes: run.Passes
    alarms: alarm.Alarms
    settings: config.Config
    owner: types.Owner = MARA

    async def remember(self, *, memory_type: str = "episodic", path: str = "notes", **fields: str) -> str:
        """Write a memory of now; return its entry id."""
        return (await self.remember_all([{"memory_type": memory_type, "path": path} | fields]))[0]

    async def remember_all(self, wanted: Iterable[Mapping[str, str]]) -> list[str]:
        """Write memories of now, all at once; return their ids in the order of their types and paths."""
        groups: dict[tuple[str, str], list[entry.Draft]] = {}
        for nth, one in enumerate(wanted):
            fields = {"timestamp": self.calendar.now().isoformat()} | dict(one)
            path = fields.pop("path", "notes")
            content = fields.pop("content", f"note {nth}")
            draft = entry.Draft(fields=fields, sections=(("Content", content),))
            groups.setdefault((fields.get("memory_type", "episodic"), path), []).append(draft)
        ids: list[str] = []
        for (memory_type, path), drafts in groups.items():
            ids += await self.root.pen.append(self.owner, "memory", drafts, memory_type=memory_type, memory_path=path)
        await self.root.settled()
        return ids

    async def log(self, action: str, target: str, **fields: str) -> None:
        """Write a row of `.lifecycle/` of now."""
        given = {"timestamp": self.calendar.now().isoformat(), "action": action, "target": target} | fields
        written = {name: text for name, text in given.items() if text}
        ids = await self.parts.log(self.owner, [entry.Draft(fields=written)])
        await self.parts.until_logged(self.owner, ids)

    async def reflect(self, *actions: decisions.Action, **wanted: object) -> outcome.Result:
        """Make a pass; without actions, with all of them."""
        given = {"actions": actions or decisions.ORDER} | wanted
        return await self.passes.reflect(self.owner, outcome.Wanted(**given))  # type: ignore[arg-type]

    async def look(self, entry_id: str) -> store.Record:
        """Return a memory as the ledger knows it."""
        found = await store.find(self.root.reader, self.owner, entry_id)
        assert found is not None
        return found

    async def all(self) -> dict[str, store.Record]:
        """Return all memories, by id."""
        found = await store.records(self.root.reader, self.owner, kinds=store.KINDS, statuses=())
        return {one.entry_id: one for one in found}

    def set(self, **sections: msgspec.Struct) -> None:
        """Have other settings in force."""
        self.settings = msgspec.structs.replace(self.settings, **sections)


@contextlib.asynccontextmanager
async def living(path: Path) -> AsyncIterator[Life]:
    """Open a root on a calendar."""
    await asyncio.to_thread(path.mkdir, exist_ok=True)
    calendar = Calendar()
    loaded = await asyncio.to_thread(config.load, path, {"EVEROS_EMBEDDING__MODEL": "none"})
    async with daemon.open_node(loaded, calendar) as node:
        root = open_root.Root(path=path, node=node)
        await root.settled()
        parts, alarms = desk.Desk(node.reader, node.cascade, calendar), alarm.Alarms()
        life: Life
        passes = run.Passes(parts, lambda: life.settings)
        passes.on_end = alarms.ended
        life = Life(root=root, calendar=calendar, parts=parts, passes=passes, alarms=alarms, settings=loaded)
        yield life


def decided(found: outcome.Result, action: decisions.Action) -> list[decisions.Decision]:
    """Return what was decided by one action."""
    return [each for one in found.actions if one.action == action for each in one.candidates]


def applied(found: outcome.Result, action: decisions.Action) -> list[str]:
    """Return the ids of what an action was applied to, or would be."""
    return [one.id for one in decided(found, action) if one.decision == "apply"]


def bytes_below(path: Path) -> dict[str, bytes]:
    """Return all files of a root but what can be derived from them."""
    return {
        each.relative_to(path).as_posix(): each.read_bytes()
        for each in sorted(path.rglob("*"))
        if each.is_file() and each.relative_to(path).parts[0] not in (".index", ".cache", ".lock", ".tmp")
    }
