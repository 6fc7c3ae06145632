"""Episodes and cases that were copied in as files get what follows from them: facts, clusters, profile, skills.

The engine's strategies do it, each time only what is missing; here they are told of it, and waited for.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Collection, Sequence

import msgspec

from everosd import clock, errors, types
from everosd.cascade import apply, rebuild
from everosd.engine import engine as engines
from everosd.engine import strategy
from everosd.intake import online
from everosd.models import chat
from everosd.store import owned

TOPICS: dict[str, strategy.Topic] = {"episode": "episode_written", "agent_case": "case_written"}
"""By kind: what is said to have happened."""

SETTLE_S = 600.0
"""How long files that were copied in a moment ago may take to be read."""
PATIENCE_S = 5.0
"""Nothing runs, nothing ends, and something failed: the rest waits for a model or a disk, and is done later."""
MAX_SAID = 100
"""Failures that are told; the rest is counted."""
_LOOK_S = 0.1

_Key = tuple[types.Owner, str]
"""Whose, and the id of an entry or a segment."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Whose Episodes and cases, and which."""

    owner: types.Owner | None = None
    """None: everybody's."""
    paths: tuple[types.RelPath, ...] = ()
    """Files that they stand in; none: all files."""


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """What has become of them."""

    entries: int
    """Episodes and cases that were looked at."""
    done: int
    """Of these: nothing is left to be done."""
    retried: int
    """Segments of conversations that had failed, and were tried again."""
    n_failed: int
    failed: tuple[str, ...]
    """What failed, each with its reason, up to `MAX_SAID`; it is tried again later, or by hand where it was given up."""
    n_waiting: int = 0
    waiting: tuple[str, ...] = ()
    """What waits, and is done later without being asked as long as the process runs, up to `MAX_SAID`."""
    waits_for: str = ""
    """Why: the model that reads conversations, and what is wrong with it; empty: something else is away, or nothing is."""


class _Entry(msgspec.Struct, frozen=True, kw_only=True):
    key: int
    owner: types.Owner
    entry_id: types.EntryId
    kind: str


class Copied:
    """Does it. Lives on the event loop."""

    def __init__(
        self,
        cascade: apply.Cascade,
        engine: engines.Engine,
        intake: online.Intake,
        time: clock.Clock,
        model: chat.Chat | None = None,
    ) -> None:
        """Work on the root of `cascade`; `model` is what strategies ask."""
        self._cascade, self._engine, self._intake, self._clock = cascade, engine, intake, time
        self._model = model

    async def extract(self, wanted: Wanted, progress: rebuild.Progress = rebuild.silent) -> Done:
        """Have everything made that is wanted and not there, and try again what failed of conversations.

        Raises:
            errors.NotFound: One of the files is not there.
            errors.StoreError: The ledger cannot be read.
        """
        progress("files", 0, 0)
        await self._engine.is_ready.wait()
        await self._cascade.reconcile("extract")
        await self._cascade.settled(SETTLE_S)
        entries = await self._cascade.database.write(lambda connection: _entries(connection, wanted))
        before, n_before = self._intake.failed(), self._n_failures()
        n_retried = self._intake.retry()
        run = secrets.token_hex(4)
        origins = {f"extract:{run}:{one.key}": one for one in entries}
        for origin, one in origins.items():
            self._engine.emit(
                strategy.Event(topic=TOPICS[one.kind], owner=one.owner, subject=one.entry_id, origin=origin)
            )
        left = await self._wait(origins.keys(), n_before, progress)
        again = await self._retried(before, n_before)
        away = self._away(n_before) or (self._away(-1) if left else "")
        failures = self._failures(entries, has_put_off=not away)
        open_ = {(origins[origin].owner, str(origins[origin].entry_id)) for origin in left}
        failed, waiting = [*failures.values()], [_named(key) for key in sorted(open_ - failures.keys(), key=str)]
        if away:
            waiting += [f"session {key[0].id}, {key[1]}" for key in again]
        else:
            failed += [f"session {key[0].id}, {key[1]}: {reason}" for key, reason in again.items()]
        return Done(
            entries=len(entries),
            done=len(entries) - len(open_ | failures.keys()),
            retried=n_retried,
            n_failed=len(failed),
            failed=tuple(failed[:MAX_SAID]),
            n_waiting=len(waiting),
            waiting=tuple(waiting[:MAX_SAID]),
            waits_for=away,
        )

    def _n_failures(self) -> int:
        return 0 if self._model is None else self._model.state.n_failures

    def _away(self, n_before: int) -> str:
        """Return why the model answers nobody, having been asked since there were `n_before` failures; empty: it does."""
        if self._model is None or not (state := self._model.state).is_away or state.n_failures <= n_before:
            return ""
        return state.reason

    async def _wait(self, origins: Collection[str], n_before: int, progress: rebuild.Progress) -> set[str]:
        """Wait until all of it is done, or is to be tried again much later; return what is not done.

        A model that is away is not waited for: each attempt would take its time, and none would be the last.
        """
        left = set(origins)
        moved_s, n_owed = self._clock.monotonic_s(), 0
        while True:
            still = {origin for origin in left if self._engine.is_open(origin)}
            now_s = self._clock.monotonic_s()
            is_running = any(one.running for one in self._engine.status())
            if len(still) < len(left) or is_running or self._cascade.n_owed() != n_owed:
                moved_s = now_s
            left, n_owed = still, self._cascade.n_owed()
            progress("entries", len(origins) - len(left), len(origins))
            if not left or self._away(n_before) or (now_s - moved_s > PATIENCE_S and self._engine.put_off()):
                return left
            await self._clock.sleep(_LOOK_S)

    def _failures(self, entries: Sequence[_Entry], *, has_put_off: bool) -> dict[_Key, str]:
        """Say what strategies gave up on of these entries and what follows from them, or also what is to be tried again."""
        ours = {(one.owner, str(one.entry_id)) for one in entries}
        return {
            key: f"{one.strategy}, {_named(key)}: {one.error}"
            for one in (*self._engine.dead(), *(self._engine.put_off() if has_put_off else ()))
            if one.event is not None and (key := (one.event.owner, one.event.subject)) in ours
        }

    async def _retried(self, before: dict[_Key, tuple[int, str]], n_before: int) -> dict[_Key, str]:
        """Wait until what had failed of conversations has been tried once more, or cannot be; say what fails, and why."""
        while True:
            now = self._intake.failed()
            again = [key for key, (n_failed, _) in before.items() if key in now and now[key][0] <= n_failed]
            if not again or self._away(n_before):
                return {key: now[key][1] for key in before if key in now}
            await self._clock.sleep(_LOOK_S)


def _named(key: _Key) -> str:
    """Return an entry as people name it."""
    return types.public_id(key[0].id, types.EntryId(key[1]))


def _entries(connection: sqlite3.Connection, wanted: Wanted) -> list[_Entry]:
    """Return what is wanted, each owner's in time order."""
    for path in wanted.paths:
        if connection.execute("SELECT 1 FROM files WHERE path = ?", (path,)).fetchone() is None:
            message = f"there is no {path}"
            raise errors.NotFound(message)
    where, values = "", []
    if wanted.owner is not None:
        one = wanted.owner
        where = f" AND {owned.by()}"
        values = [*owned.scope(one)]
    marks = ", ".join("?" * len(TOPICS))
    rows = connection.execute(
        f"SELECT key, app, project, owner_type, owner_id, entry_id, kind, path FROM entries WHERE kind IN ({marks})"  # noqa: S608
        f" AND is_shadowed = 0 AND status = 'active'{where}"
        " ORDER BY app, project, owner_type, owner_id, timestamp_us, entry_id",
        [*TOPICS, *values],
    )
    paths = frozenset(wanted.paths)
    return [
        _Entry(
            key=row[0],
            owner=types.Owner(app=row[1], project=row[2], type=row[3], id=row[4]),
            entry_id=row[5],
            kind=row[6],
        )
        for row in rows
        if not paths or row[7] in paths
    ]
