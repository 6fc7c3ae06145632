"""Saves made on an older copy, brought together with what the daemon has written since.

`log.heal` computes what has to be done; here it is found out against what, and the daemon's side of a conflict goes to
`.lifecycle/`.
"""

from __future__ import annotations

import datetime as dt
import secrets
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from everosd import clock, types
from everosd.log import context as contexts
from everosd.log import entry, file, job, parse, recent, replacement, tail
from everosd.log import heal as healing
from everosd.log import kind as kinds

Append = Callable[[types.Owner, str, Sequence[entry.Draft]], Awaitable[object]]


class StaleSaves:
    """Heals the files of one writer. Lives on the event loop."""

    def __init__(self, context: contexts.Context, append: Append, rows: recent.Recent) -> None:
        """Report conflicts by `append`, which returns once they are on disk; `rows` were appended a moment ago."""
        self._context = context
        self._append = append
        self._rows = rows

    async def heal(
        self, queue: job.Queue, plan: replacement.Replacement, known: healing.Known | None
    ) -> healing.Report:
        """Find out whether the file was saved from a stale buffer, and plan what puts it right."""
        parsed = plan.parsed
        if parsed is None or not parsed.stamp:
            return healing.Report()
        if kinds.BY_NAME[queue.place.kind].written == "appended":
            return await self._heal_rows(queue, plan, parsed)
        if parsed.digest == queue.digest:
            return healing.Report()
        journal = self._context.journal
        writes = await journal.since(queue.path, parsed.stamp)
        if known is None:
            known = await journal.known(queue.path)
        merged = healing.heal(parsed, writes, known)
        plan.stamps += [write.stamp for write in writes]
        if known is not None:
            plan.stamps.append(known.stamp)
        await self._merge(queue, plan, merged)
        return _report(merged)

    async def _heal_rows(self, queue: job.Queue, plan: replacement.Replacement, parsed: parse.Parsed) -> healing.Report:
        """The same for a file that only machines write."""
        there = {each.id for each in parsed.entries} | parsed.ids
        known = await self._context.journal.missing(queue.path, there)
        # Each is a list without gaps; together they would not be: what was appended after the save is in one only.
        lists = (known, self._rows.of(queue.path))
        lost = {key: text for rows in lists for key, text in healing.lost_rows(parsed, rows).items()}
        if lost:
            torn = await self._context.in_thread(lambda: tail.torn_rows(self._context.tmp))
            moved = await self._context.journal.moved(queue.path, lost)
            lost = {
                key: text
                for key, text in lost.items()
                if key not in moved and (key, text.strip()) not in torn and not self._rows.is_refused(queue.path, key)
            }
        writes = await self._context.journal.since(queue.path, parsed.stamp)
        plan.stamps += [write.stamp for write in writes]
        since = healing.over(healing.Write(stamp="", added=lost), healing.unseen(parsed, writes))
        merged = healing.merge(parsed, since)
        # They come from three places; their numbers tell in which order they were appended.
        merged = msgspec.structs.replace(merged, restored=dict(sorted(merged.restored.items())))
        await self._merge(queue, plan, merged)
        return _report(merged, meant=tuple(row.id for row in known if row.id not in merged.restored))

    async def moments(self, path: types.RelPath) -> list[str]:
        """Return when the rows of a file that only machines write were noticed last, as stamps; none where there are none."""
        known = await self._context.journal.missing(path, ())
        latest = max((row.at_us for row in (*known, *self._rows.of(path))), default=None)
        return [] if latest is None else [clock.from_us(latest).astimezone(dt.UTC).isoformat(timespec="microseconds")]

    async def take_in(self, queue: job.Queue, current: parse.Parsed | None, what: job.Late) -> replacement.Replacement:
        """Plan how a save into a displaced file gets into the present one: as if both had been made at once."""
        save = what.save

        def read(data: bytes) -> parse.Parsed:
            return parse.parse(queue.path, data, queue.place)

        def read_both() -> tuple[parse.Parsed, parse.Parsed | None]:
            return read(save.data), None if save.base is None else read(save.base)

        if what.parsed is None:
            what.parsed = await self._context.in_thread(read_both)
        late, base = what.parsed
        plan = replacement.Replacement(late)
        plan.is_late, plan.before = True, current
        if late.error is not None:
            plan.verbatim = save.data
        elif current is not None:
            plan.stamps.append(current.stamp)
            before: healing.Version = ((), {}) if base is None else (base.entries, base.deprecated)
            since = healing.difference(before, (current.entries, current.deprecated))
            # The base may be a file that the editor had emptied already; what it had loaded is older still.
            writes = await self._context.journal.since(queue.path, late.stamp)
            unseen = healing.unseen(late, writes, await self._context.journal.known(queue.path))
            plan.stamps += [write.stamp for write in writes]
            await self._merge(queue, plan, healing.merge(late, healing.over(unseen, since)))
        return plan

    async def _merge(self, queue: job.Queue, plan: replacement.Replacement, merged: healing.Healing) -> None:
        # The daemon's side of a conflict is in the log before the file loses its last trace.
        await self._report(queue, merged.conflicts)
        plan.heal(queue.place.kind, merged)

    async def _report(self, queue: job.Queue, conflicts: Sequence[healing.Conflict]) -> None:
        new = [each for each in conflicts if (each.entry_id, each.daemon_text) not in queue.disputed]
        if not new:
            return
        if kinds.BY_NAME[queue.place.kind].written == "appended":
            # Its own log may be the one that is being written, and a session has none.
            await self._context.in_thread(lambda: self._set_aside(queue, new))
        else:
            await self._append(queue.place.owner, "lifecycle", self._drafts(new))
        queue.disputed.update((each.entry_id, each.daemon_text) for each in new)

    def _drafts(self, conflicts: Sequence[healing.Conflict]) -> list[entry.Draft]:
        now = self._context.clock.now().isoformat()
        return [
            entry.Draft(
                fields={
                    "timestamp": now,
                    "action": "conflict",
                    "target": each.entry_id,
                    **({"field": "deprecated_by", "value": each.daemon_text} if each.is_key else {}),
                    "reason": "a person and everosd changed it at the same time; the person's version is in the file",
                },
                sections=() if each.is_key else (("Before", each.daemon_text),),
            )
            for each in conflicts
        ]

    def _set_aside(self, queue: job.Queue, conflicts: Sequence[healing.Conflict]) -> None:
        tmp = self._context.tmp
        file.make_folder(tmp)
        path = tmp / f"{queue.place.kind}.{secrets.token_hex(8)}.conflict"
        text = "\n\n".join((queue.path, *(f"{each.entry_id}\n{each.daemon_text}" for each in conflicts)))
        file.write_temporary(path, text.encode("utf-8", "surrogatepass"), None, path)


def _report(merged: healing.Healing, meant: tuple[str, ...] = ()) -> healing.Report:
    return healing.Report(
        restored=tuple(merged.restored),
        updated=tuple(merged.updated),
        removed=merged.removed,
        deprecated=(*merged.deprecated, *merged.undeprecated),
        conflicts=merged.conflicts,
        meant=meant,
    )
