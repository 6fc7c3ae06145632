"""Files that only machines write: appended to, one write and one fsync for all that waits."""

from __future__ import annotations

import asyncio
import datetime as dt
import functools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import cast

from everosd import clock, errors
from everosd.log import context as contexts
from everosd.log import entry, exchange, file, growth, job, numbering, parse, recent, render, replacement, rewrite, tail
from everosd.log import heal as healing


class Rows:
    """Appends rows to the files of one writer. Lives on the event loop."""

    def __init__(
        self,
        context: contexts.Context,
        numbers: numbering.Numbering,
        appended: recent.Recent,
        grown: growth.Growth,
        rewriter: rewrite.Rewriter,
    ) -> None:
        """Take ids from `numbers`, note in `appended` and `grown`, leave to `rewriter` what appending cannot put right."""
        self._context, self._numbers, self._recent, self._rewriter = context, numbers, appended, rewriter
        self._growth = grown

    async def turn(self, queue: job.Queue, absolute: Path, jobs: Sequence[job.Job]) -> parse.Warning | None:
        """Write what was asked for; jobs that are not finished or failed afterwards wait for the next turn.

        Returns:
            Why nothing can be appended to the file; None otherwise.

        Raises:
            errors.WriteRefused: The disk is full, the file is protected, …: nothing was written.
        """
        for each in jobs:
            if not isinstance(each.what, job.Append | job.Heal | job.Expunge | job.Late):
                each.fail(errors.WriteRefused(queue.path, "is only appended to"))
        jobs = [each for each in jobs if not each.future.done()]
        if not all(isinstance(each.what, job.Append) for each in jobs):
            return await self._rewriter.turn(queue, absolute, jobs)
        is_there, parsed = await self._context.in_thread(lambda: self._load(queue, absolute))
        if parsed is not None and parsed.error is not None:
            return parsed.error
        if parsed is not None and healing.lost_rows(parsed, self._recent.of(queue.path)):
            # Somebody saved a copy that is older than these rows. Once more is appended to it, that shows no longer.
            return await self._rewriter.turn(queue, absolute, jobs)
        if jobs:
            await self._append(queue, absolute, jobs, parsed, is_there=is_there)
        return None

    async def _append(
        self,
        queue: job.Queue,
        absolute: Path,
        jobs: Sequence[job.Job],
        parsed: parse.Parsed | None,
        *,
        is_there: bool,
    ) -> None:
        floors: dict[numbering.Slot, int] = {}
        made = []
        for each in jobs:
            what = cast("job.Append", each.what)
            made.append((each, await self._numbers.entries(queue, parsed, what, floors)))
        good, rows = await self._context.in_thread(lambda: _encodable(made))
        if not rows:
            # Those who asked have been told, on the loop's next turn.
            await asyncio.sleep(0)
            return
        try:
            queue.left = await self._context.in_thread(lambda: self._write(queue, absolute, rows, is_there=is_there))
        except errors.WriteRefused:
            for row in rows:
                self._recent.refuse(queue.path, row.id)
            raise
        if queue.left is not None:
            queue.settled = queue.left
            at_us = clock.to_us(self._context.clock.now())
            for row in rows:
                self._recent.add(queue.path, healing.Row(id=row.id, text=replacement.raw(row), at_us=at_us))
            for each in good:
                each.finish(cast("job.Append", each.what).ids)

    def _load(self, queue: job.Queue, absolute: Path) -> tuple[bool, parse.Parsed | None]:
        """Read the file, unless it is as the daemon left it; cut what a crash left half-written."""
        identity = file.identify(absolute)
        if identity is None:
            return False, None
        if identity == queue.left:
            return True, None
        tail.cut_torn_tail(absolute, self._context.tmp)
        try:
            data = file.read(absolute).data
        except OSError as error:
            raise file.refusal(absolute, error) from error
        parsed = parse.parse(queue.path, data, queue.place)
        queue.newline = parsed.newline
        return True, parsed

    def _write(
        self, queue: job.Queue, absolute: Path, rows: Sequence[entry.Entry], *, is_there: bool
    ) -> file.Identity | None:
        """Return the state of the file afterwards; None when it is not as it was and nothing was written."""
        if is_there:
            text = "".join(render.marked_text(each, queue.newline) for each in rows)
            data = text.encode("utf-8", "surrogatepass")
            grew = functools.partial(self._growth.grew, queue.path)
            return tail.append(absolute, data, step=self._context.step, grew=grew)
        file.make_folder(absolute.parent)
        stamp = self._context.clock.now().astimezone(dt.UTC).isoformat(timespec="microseconds")
        new = render.new_file(queue.place, rows, stamp=stamp)
        outcome = exchange.replace(absolute, None, new, self._context.tmp, step=self._context.step)
        return outcome.identity if isinstance(outcome, exchange.Replaced) else None


def _encodable(made: Iterable[tuple[job.Job, list[entry.Entry]]]) -> tuple[list[job.Job], list[entry.Entry]]:
    """Return what can be written; fail those callers whose entries cannot. Runs in a thread."""
    good: list[job.Job] = []
    rows: list[entry.Entry] = []
    for asked, entries in made:
        try:
            for each in entries:
                replacement.raw(each).encode()
        except ValueError as error:
            asked.future.get_loop().call_soon_threadsafe(asked.fail, error)
        else:
            good.append(asked)
            rows += entries
    return good, rows
