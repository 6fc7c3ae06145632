"""Files that people edit: read, heal, apply what was asked, and replace exactly what was read.

When somebody saved meanwhile nothing is replaced, and the next turn begins again.
"""

from __future__ import annotations

import codecs
import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, cast

import msgspec
import structlog

from everosd import errors, types
from everosd.log import context as contexts
from everosd.log import (
    displaced,
    entry,
    exchange,
    file,
    frontmatter,
    heal,
    job,
    numbering,
    parse,
    replacement,
    stale,
    swap,
)

log = structlog.get_logger()

_URGENT_AFTER_S = 2.0
"""Somebody who saves all the time must not keep the daemon from writing: then comparing alone has to do."""
_RETURN_WAIT_S = 1.0
"""A file that was there and is not: an editor may be about to put its new version there."""
_ABSENT_PAUSE_S = 0.05


class _Found:
    """A file as it was found."""

    __slots__ = ("data", "numbered", "parsed", "path")

    def __init__(self, path: Path, data: bytes | None, parsed: parse.Parsed | None) -> None:
        self.path, self.data, self.parsed = path, data, parsed
        self.numbered: list[list[entry.Entry]] = []
        """What is to be appended, call by call."""


class _Written(NamedTuple):
    """What became of an attempt to replace a file."""

    plan: replacement.Replacement
    outcome: exchange.Replaced | exchange.Changed | exchange.Busy
    new: bytes
    stamp: str


class Rewriter:
    """Replaces the files of one writer. Lives on the event loop."""

    def __init__(
        self,
        context: contexts.Context,
        numbers: numbering.Numbering,
        saves: stale.StaleSaves,
        watch: displaced.Watch,
    ) -> None:
        """Take ids from `numbers`, heal by `saves`, and give what loses its name to `watch`."""
        self._context, self._numbers, self._saves, self._watch = context, numbers, saves, watch
        self._stamps: dict[types.RelPath, str] = {}

    def newest_stamp(self, path: types.RelPath) -> str:
        """Return the stamp of the last write of this process to a file; empty when there was none."""
        return self._stamps.get(path, "")

    async def turn(self, queue: job.Queue, jobs: Sequence[job.Job]) -> parse.Warning | None:
        """Try once; jobs that are not finished or failed afterwards wait for the next turn.

        Returns:
            Why the file cannot be rewritten; None otherwise.

        Raises:
            errors.WriteRefused: The disk is full, the file is protected, …: nothing was written.
        """
        waited_s = self._context.clock.monotonic_s() - min(each.asked_s for each in jobs)
        is_urgent = waited_s > _URGENT_AFTER_S
        found = await self._context.in_thread(lambda: self._append_as_left(queue, jobs, is_urgent=is_urgent))
        if isinstance(found, _Found):
            if found.data and _drop_halves(jobs, found.data):
                return None
            return await self._rewrite(queue, found, jobs, is_urgent=is_urgent)
        await self._written(queue, found)
        return None

    async def _rewrite(
        self, queue: job.Queue, found: _Found, jobs: Sequence[job.Job], *, is_urgent: bool
    ) -> parse.Warning | None:
        """Try once with a file that somebody may have saved; see `turn`."""
        absolute, data, parsed = found.path, found.data, found.parsed
        if not data and queue.was_there:
            # An editor that has emptied the file is about to write it; one that moved it away, to put a new one there.
            now_s = self._context.clock.monotonic_s()
            queue.absent_since_s = queue.absent_since_s or now_s
            if now_s - queue.absent_since_s < _RETURN_WAIT_S:
                await self._context.clock.sleep(_ABSENT_PAUSE_S)
                return None
        else:
            queue.absent_since_s = None
        whole = [each for each in jobs if isinstance(each.what, job.Replace | job.Move)]
        if whole:
            # The others wait for the next turn: they are about the entry in the file, these about the file.
            await self._turn_whole(queue, absolute, data, whole[0], is_urgent=is_urgent)
            return None
        if parsed is not None and parsed.error is not None:
            return parsed.error
        plan = await self._plan(queue, found, jobs)
        if plan.is_empty():
            plan.finish()
            return None
        try:
            written = await self._context.in_thread(lambda: self._write(queue, found, plan, is_urgent=is_urgent))
        except ValueError:
            if not plan.blame():
                raise
            return None
        await self._written(queue, written)
        if data and isinstance(written.outcome, exchange.Replaced):
            _drop_halves((*queue.active, *queue.jobs), data)
        return None

    def _append_as_left(
        self, queue: job.Queue, jobs: Sequence[job.Job], *, is_urgent: bool
    ) -> _Written | _Found | exchange.Busy:
        """Append to a file that is as the daemon left it, or was never there; else return what there is. Blocks."""
        found = self._load(queue, is_urgent=is_urgent, is_light=all(_needs_no_entries(each.what) for each in jobs))
        if isinstance(found, exchange.Busy) or (found.parsed is not None and found.parsed.error is not None):
            return found
        asked = [each.what for each in jobs if isinstance(each.what, job.Append)]
        found.numbered = self._numbers.entries(queue, found.parsed, asked)
        is_as_left = found.parsed.digest == queue.digest if found.parsed is not None else not queue.was_there
        if len(asked) < len(jobs) or not is_as_left:
            return found
        plan = replacement.Replacement(found.parsed)
        for each, what, entries in zip(jobs, asked, found.numbered, strict=True):
            plan.appended += entries
            plan.results.append((each, what.ids))
        try:
            return self._write(queue, found, plan, is_urgent=is_urgent)
        except ValueError:  # whose fault that is, is found out where they can be told
            return found

    async def _written(self, queue: job.Queue, written: _Written | exchange.Busy) -> None:
        """Tell everybody; those whose entries are not on disk wait for the next turn."""
        outcome = written.outcome if isinstance(written, _Written) else written
        if isinstance(outcome, exchange.Busy):
            await self._wait(queue, outcome)
        elif isinstance(outcome, exchange.Replaced) and isinstance(written, _Written):
            self._note(queue, outcome, written.new)
            queue.is_plain = written.plan.leaves_plain_file()
            self._stamps[queue.path] = written.stamp
            written.plan.finish()

    async def _turn_whole(
        self, queue: job.Queue, absolute: Path, data: bytes | None, asked: job.Job, *, is_urgent: bool
    ) -> None:
        """Try once to do what one caller asked of a file that is one entry.

        The journal is not told: such files have no stamp, and whoever writes them keeps what the file is merged with.
        """
        what = asked.what
        if isinstance(what, job.Move):
            to = what.to
            asked.finish(await self._context.in_thread(lambda: _move(absolute, to)))
            queue.was_there = False
            return
        try:
            change = cast("job.Replace", what).change
            new = await self._context.in_thread(lambda: change(data))
        except Exception as error:  # noqa: BLE001 - the caller's own
            asked.fail(error)
            return
        if new is None or new == data:
            asked.finish(data)
            return
        outcome = await self._context.in_thread(lambda: self._exchange(queue, absolute, data, new, is_urgent=is_urgent))
        if isinstance(outcome, exchange.Busy):
            await self._wait(queue, outcome)
        elif isinstance(outcome, exchange.Replaced):
            self._note(queue, outcome, new)
            queue.is_plain = False
            asked.finish(new)

    def _exchange(
        self, queue: job.Queue, absolute: Path, data: bytes | None, new: bytes, *, is_urgent: bool
    ) -> exchange.Replaced | exchange.Changed | exchange.Busy:
        """Put `new` in the place of `data`, and have looked after what loses its name. Blocks."""
        context = self._context
        if data is None:
            file.make_folder(absolute.parent)
        outcome = exchange.replace(
            absolute, data, new, context.tmp, settled=queue.settled, is_urgent=is_urgent, step=context.step
        )
        if isinstance(outcome, exchange.Replaced) and data:
            self._watch.overtaken(absolute, data)
        for each in outcome.displaced if not isinstance(outcome, exchange.Busy) else ():
            self._watch.add(each)
        return outcome

    def _note(self, queue: job.Queue, outcome: exchange.Replaced, new: bytes) -> None:
        queue.settled, queue.digest, queue.was_there = outcome.identity, file.digest(new), True

    async def _wait(self, queue: job.Queue, busy: exchange.Busy) -> None:
        queue.settled = busy.identity
        await self._context.clock.sleep(busy.wait_s)

    def _load(self, queue: job.Queue, *, is_urgent: bool, is_light: bool) -> _Found | exchange.Busy:
        absolute = self._context.layout.absolute(queue.path)
        if not is_urgent:
            busy = exchange.busy(absolute, queue.settled)
            if busy is not None:
                return busy
        try:
            data = file.read(absolute).data
        except (FileNotFoundError, NotADirectoryError):
            return _Found(absolute, None, None)
        except OSError as error:
            raise file.refusal(absolute, error) from error
        queue.was_there = True
        if is_light and queue.is_plain and file.digest(data) == queue.digest:
            return _Found(absolute, data, self._parse_head(queue, data))
        return _Found(absolute, data, parse.parse(queue.path, data, queue.place))

    def _parse_head(self, queue: job.Queue, data: bytes) -> parse.Parsed:
        """Read what an addition needs of a file that is as the daemon left it: everything but the entries."""
        has_bom = data.startswith(codecs.BOM_UTF8)
        text = data[len(codecs.BOM_UTF8) if has_bom else 0 :].decode("utf-8", "surrogateescape")
        head = text[: frontmatter.read(text).end].encode("utf-8", "surrogateescape")
        parsed = parse.parse(queue.path, head, queue.place)
        return msgspec.structs.replace(parsed, text=text, has_bom=has_bom, digest=queue.digest)

    async def _plan(self, queue: job.Queue, found: _Found, jobs: Sequence[job.Job]) -> replacement.Replacement:
        parsed = found.parsed
        if isinstance(jobs[0].what, job.Late):
            # What a stale buffer wiped would look like what was deleted since the late one was opened: first it is put back.
            plan = replacement.Replacement(parsed)
            await self._saves.heal(queue, plan, None)
            if not plan.is_empty():
                return plan
            plan = await self._saves.take_in(queue, parsed, jobs[0].what)
            plan.results.append((jobs[0], None))
            return plan
        plan = replacement.Replacement(parsed)
        known = next((each.what.known for each in jobs if isinstance(each.what, job.Heal)), None)
        report = await self._saves.heal(queue, plan, known)
        numbered = iter(found.numbered)
        await self._prepare(queue, plan, jobs)
        # Pointers last: an entry is judged as it will stand in the file.
        for each in sorted(jobs, key=lambda each: isinstance(each.what, job.Point)):
            what = each.what
            try:
                if isinstance(what, job.Append):
                    plan.appended += next(numbered)
                    plan.results.append((each, what.ids))
                elif isinstance(what, job.Heal):
                    plan.results.append((each, report))
                elif isinstance(what, job.Update | job.Point | job.Adopt | job.PutBack | job.Take):
                    plan.results.append((each, plan.apply(queue.path, what)))
            except Exception as error:  # noqa: BLE001 - one caller's mistake is not that of those who wrote with it
                each.fail(error)
        return plan

    async def _prepare(self, queue: job.Queue, plan: replacement.Replacement, jobs: Sequence[job.Job]) -> None:
        for each in jobs:
            if isinstance(each.what, job.Expunge):
                # First: what is asked to be appended beside it is not looked at.
                await self._expunge(queue, plan, each, each.what)
            elif isinstance(each.what, job.PutBack) and queue.place.is_shortened:
                # The path has lost the end of a long owner id; whoever asks knows it.
                queue.place = msgspec.structs.replace(queue.place, owner=each.what.owner, is_shortened=False)

    async def _expunge(
        self, queue: job.Queue, plan: replacement.Replacement, asked: job.Job, what: job.Expunge
    ) -> None:
        """Plan what takes rows out, under a stamp later than any of them: none is missed as lost afterwards."""
        try:
            gone = await self._context.in_thread(lambda: plan.expunge(what.change))
        except Exception as error:  # noqa: BLE001 - the caller's own
            asked.fail(error)
            return
        if gone:
            plan.stamps += await self._saves.moments(queue.path)
        plan.results.append((asked, gone))

    def _write(self, queue: job.Queue, found: _Found, plan: replacement.Replacement, *, is_urgent: bool) -> _Written:
        """Try once to put the planned version in the place of the one that was found. Blocks.

        Raises:
            errors.WriteRefused: Nothing has changed.
            ValueError: An entry cannot be written: see `Replacement.blame`.
        """
        stamp = self._next_stamp(queue.path, plan)
        new, write = plan.render(queue.place, stamp), plan.write(stamp)
        journal = self._context.journal
        number = journal.planned(queue.path, write)
        try:
            outcome = self._exchange(queue, found.path, found.data, new, is_urgent=is_urgent)
        except errors.WriteRefused:
            journal.dropped(number)
            raise
        if isinstance(outcome, exchange.Replaced):
            # Before anybody is told: after a crash in between a stale save would make it look as if it had not been written.
            self._landed(queue.path, number)
        else:
            journal.dropped(number)
        return _Written(plan=plan, outcome=outcome, new=new, stamp=stamp)

    def _landed(self, path: types.RelPath, number: int) -> None:
        try:
            self._context.journal.landed(number)
        except errors.StoreError as error:
            # The entries are on disk: to refuse them now would have them written twice. At the next start the ledger
            # finds out from the file whether the planned write is in it.
            log.exception("write_not_recorded", path=path, reason=str(error))

    def _next_stamp(self, path: types.RelPath, plan: replacement.Replacement) -> str:
        """Return a stamp later than every one that the file has had, as far as anybody knows."""
        floors = [heal.moment(each) for each in (self.newest_stamp(path), *plan.stamps)]
        latest = max((each for each in floors if each is not None), default=None)
        now = self._context.clock.now()
        if latest is not None and latest >= now:
            try:
                now = latest.astimezone(dt.UTC) + dt.timedelta(microseconds=1)
            except OverflowError:
                log.warning("stamp_in_the_far_future", path=path, stamp=latest.isoformat())
        return now.astimezone(dt.UTC).isoformat(timespec="microseconds")


def _drop_halves(jobs: Sequence[job.Job], data: bytes) -> bool:
    """Have done with late saves that had the name of a file, and that it begins with; tell whether there were any.

    Such a save was put back while its editor was still writing, and is whole in the file: as a save of its own it would take
    out of the file what it had not come to yet.
    """
    n = 0
    for each in jobs:
        if isinstance(each.what, job.Late) and each.what.save.is_copy and data.startswith(each.what.save.data):
            each.finish(None)
            n += 1
    return n > 0


def _needs_no_entries(what: job.What) -> bool:
    return isinstance(what, job.Append) or (isinstance(what, job.Point) and not what.successors)


def _move(path: Path, folder: Path) -> bool:
    """Rename the folder of a file; False where the name is taken. Blocks."""
    with file.refusals(path.parent):
        is_moved = swap.move_new(path.parent, folder)
        if is_moved:
            file.sync_folder(folder.parent)
        return is_moved
