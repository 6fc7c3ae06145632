"""Raw messages that were kept long enough: whole files of sessions go once all of what they hold has been extracted.

`[intake] keep_messages_days` says how long; 0 is for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

import structlog

from everosd import clock, config, errors, types
from everosd.cascade import apply
from everosd.intake import line, row
from everosd.log import entry, file, layout, parse

log = structlog.get_logger(__name__)

LOOK_S = 86_400.0
"""Once a day, and at the start."""
STEP_S = 600.0
"""Longest sleep: a machine that was suspended looks soon after."""
NOTICED_S = 30.0
"""How long the ledger may take to notice what is gone, before it is left to find out by itself."""


class Retention:
    """Removes old files of sessions. Lives on the event loop."""

    def __init__(
        self,
        *,
        cascade: apply.Cascade,
        lines: line.Lines,
        settings: Callable[[], config.Config],
        time: clock.Clock,
        caught_up: Callable[[], Awaitable[None]],
    ) -> None:
        """Wire it; `caught_up` waits until the ledger is in step with the disk."""
        self._cascade, self._pen, self._places = cascade, cascade.writer, cascade.writer.layout
        self._lines, self._settings, self._clock, self._caught_up = lines, settings, time, caught_up

    async def run(self) -> None:
        """Look at the start and once a day, until cancelled."""
        await self._caught_up()
        while True:
            try:
                await self.look()
            except (errors.LogError, OSError) as error:
                log.warning("messages_not_removed", reason=str(error))
            wait_s = LOOK_S
            while wait_s > 0:
                began = self._clock.now()
                await self._clock.sleep(min(STEP_S, wait_s))
                wait_s -= max(0.0, (self._clock.now() - began).total_seconds())

    async def look(self) -> int:
        """Remove what was kept long enough; return how many files went."""
        days = self._settings().intake.keep_messages_days
        if not days:
            return 0
        zone = self._settings().memory.zone
        # A file is of its whole day: it is as old as its youngest message can be.
        newest = (self._clock.now() - dt.timedelta(days=days)).astimezone(zone).date() - dt.timedelta(days=1)
        found = await asyncio.to_thread(lambda: list(_old(self._places, newest.isoformat())))
        n_files = n_sessions = 0
        for session, folder in found:
            n_removed = await self._thin(session, folder, newest.isoformat())
            n_files += n_removed
            n_sessions += bool(n_removed)
        if n_files:
            log.info("messages_removed", files=n_files, sessions=n_sessions, kept_days=days)
        return n_files

    async def _thin(self, session: types.Owner, folder: types.RelPath, newest: str) -> int:
        """Remove the old files of one session that nothing waits in; whoever adds to it meanwhile waits for that."""
        here = self._lines.of(session)
        with contextlib.ExitStack() as stack:
            async with here.lock:
                paths = await asyncio.to_thread(finished, self._places, folder, newest)
                if not paths:
                    return 0
                stack.enter_context(self._cascade.erasing(paths))
                async with self._pen.erasing(paths):
                    for path in paths:
                        await self._pen.erase(path)
                    await asyncio.to_thread(_drop_if_empty, Path(self._places.root, folder))
                with contextlib.suppress(errors.LogError):  # said by whoever reads it next
                    await here.renew()
            await self._cascade.notice(paths, NOTICED_S)  # without the lock: others may add meanwhile
        return len(paths)


def finished(places: layout.Layout, folder: types.RelPath, newest: str) -> list[types.RelPath]:
    """Return the files of a session up to the day `newest` of which every message was extracted and followed up.

    A session of which a file cannot be read keeps all of them. Blocks.
    """
    found = _Session()
    for path, place in _logs(places, folder):
        try:
            parsed = parse.parse(path, file.read(places.root / path).data, place)
        except OSError:
            return []
        if parsed.error is not None:
            return []
        found.take(parsed, is_old=place.date is not None and place.date <= newest)
    return found.finished()


class _Session:
    """What the log of a session says of which file may go."""

    def __init__(self) -> None:
        self._said: dict[str, types.RelPath] = {}
        """Where each message stands."""
        self._cut: dict[str, tuple[types.RelPath, tuple[str, ...]]] = {}
        """Where each segment was cut, and of which messages."""
        self._rows: dict[types.RelPath, set[str]] = {}
        """The segments that each file tells of."""
        self._followed: set[str] = set()
        self._candidates: set[types.RelPath] = set()

    def take(self, parsed: parse.Parsed, *, is_old: bool) -> None:
        """Take in one file; one with a row that nobody can read stays."""
        path = parsed.path
        self._rows[path] = set()
        legible = [
            self._segment(path, one) if one.kind == "segment" else self._message(path, one) for one in parsed.entries
        ]
        if is_old and all(legible):
            self._candidates.add(path)

    def _segment(self, path: types.RelPath, found: entry.Entry) -> bool:
        segment = row.read_segment(found)
        if segment is None:
            return False
        self._rows[path].add(segment.id)
        if segment.message_ids:
            self._cut.setdefault(segment.id, (path, segment.message_ids))
        if segment.state == "followed":
            self._followed.add(segment.id)
        return True

    def _message(self, path: types.RelPath, found: entry.Entry) -> bool:
        read = row.read_message(found)
        if read is None:
            return False
        if not read[1]:  # of a second one under the same key nothing is ever extracted
            self._said.setdefault(read[0].id, path)
        return True

    def finished(self) -> list[types.RelPath]:
        """Return the files that nothing waits in, and without which no other one says anything else."""
        done = {one for memcell_id in self._followed & self._cut.keys() for one in self._cut[memcell_id][1]}
        left = self._candidates - {path for one, path in self._said.items() if one not in done}
        while kept := {path for path in left if any(self._holds(memcell_id, left) for memcell_id in self._rows[path])}:
            left -= kept
        return sorted(left)

    def _holds(self, memcell_id: str, left: set[types.RelPath]) -> bool:
        """Tell whether what is said of a segment has to stay: else its messages would be taken for new, or be cut anew."""
        if memcell_id not in self._followed:
            return True
        if memcell_id not in self._cut:
            return False
        path, message_ids = self._cut[memcell_id]
        return path not in left or any(self._said[one] not in left for one in message_ids if one in self._said)


def _old(places: layout.Layout, newest: str) -> Iterable[tuple[types.Owner, types.RelPath]]:
    """Yield the sessions that have a file up to a day, with their folders. Blocks."""
    for folder in sorted(places.root.glob("*/*/sessions/*")):
        relative = types.RelPath(folder.relative_to(places.root).as_posix())
        for path, place in _logs(places, relative):
            if place.date is not None and place.date <= newest:
                owner = place.owner
                if place.is_shortened:
                    with contextlib.suppress(OSError):
                        owner = parse.parse(path, file.read(places.root / path).data, place).place.owner
                yield owner, relative
                break


def _logs(places: layout.Layout, folder: types.RelPath) -> Iterable[tuple[types.RelPath, layout.Place]]:
    for each in sorted(Path(places.root, folder).glob("*.md")):
        path = types.RelPath(f"{folder}/{each.name}")
        place = layout.place(path)
        if place is not None and place.kind == "message":
            yield path, place


def _drop_if_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()
