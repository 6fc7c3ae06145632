"""Files that only machines write: appended to, one write and one fsync for all that waits."""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Sequence
from typing import NamedTuple, cast

from everosd import clock, errors
from everosd.log import context as contexts
from everosd.log import entry, exchange, file, growth, job, numbering, parse, recent, render, replacement, rewrite, tail
from everosd.log import heal as healing


class _Written(NamedTuple):
    """What became of an attempt to append."""

    good: list[tuple[job.Job, job.Append]]
    bad: list[tuple[job.Job, ValueError]]
    """Whose entries cannot be written, and why."""
    rows: list[tuple[entry.Entry, str]]
    """Those of the good ones, with their raw text."""
    grew: job.Grew | None
    """None: the file was not as it was, and nothing was written."""
    refusal: errors.WriteRefused | None


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

    async def turn(self, queue: job.Queue, jobs: Sequence[job.Job]) -> parse.Warning | None:
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
            return await self._rewriter.turn(queue, jobs)
        if not jobs:
            return None
        found = await self._context.in_thread(lambda: self._append_as_left(queue, jobs))
        if isinstance(found, parse.Parsed):
            if found.error is not None:
                return found.error
            if healing.lost_rows(found, self._recent.of(queue.path)):
                # Somebody saved a copy that is older than these rows. Once more is appended to it, that shows no longer.
                return await self._rewriter.turn(queue, jobs)
            read = found
            found = await self._context.in_thread(lambda: self._append(queue, jobs, read, is_there=True))
        self._finish(queue, found)
        return None

    def _append_as_left(self, queue: job.Queue, jobs: Sequence[job.Job]) -> _Written | parse.Parsed:
        """Append to a file that is as the daemon left it, or is not there; return any other one, as it is. Blocks."""
        is_there, parsed = self._load(queue)
        return self._append(queue, jobs, None, is_there=is_there) if parsed is None else parsed

    def _append(
        self, queue: job.Queue, jobs: Sequence[job.Job], parsed: parse.Parsed | None, *, is_there: bool
    ) -> _Written:
        """Append; `parsed` is the file where it is not as the daemon left it. Blocks."""
        made = self._numbers.entries(queue, parsed, [cast("job.Append", each.what) for each in jobs])
        good: list[tuple[job.Job, job.Append]] = []
        bad: list[tuple[job.Job, ValueError]] = []
        rows: list[tuple[entry.Entry, str]] = []
        for asked, entries in zip(jobs, made, strict=True):
            try:
                texts = [(each, replacement.raw(each)) for each in entries]
                for _, text in texts:
                    text.encode()
            except ValueError as error:
                bad.append((asked, error))
            else:
                good.append((asked, cast("job.Append", asked.what)))
                rows += texts
        grew: job.Grew | None = None
        refusal: errors.WriteRefused | None = None
        try:
            if rows:
                grew = self._write(queue, rows, is_there=is_there)
        except errors.WriteRefused as error:
            refusal = error
        return _Written(good=good, bad=bad, rows=rows, grew=grew, refusal=refusal)

    def _finish(self, queue: job.Queue, written: _Written) -> None:
        """Tell everybody; those whose rows are not on disk wait for the next turn.

        Raises:
            errors.WriteRefused: Nothing was written.
        """
        for asked, error in written.bad:
            asked.fail(error)
        if written.refusal is not None:
            for row, _ in written.rows:
                self._recent.refuse(queue.path, row.id)
            raise written.refusal
        if not written.rows:
            return
        queue.left = None if written.grew is None else written.grew.after
        if written.grew is not None:
            queue.settled = queue.left
            at_us = clock.to_us(self._context.clock.now())
            for row, text in written.rows:
                self._recent.add(queue.path, healing.Row(id=row.id, text=text, at_us=at_us))
            for asked, what in written.good:
                what.grew = written.grew if len(written.good) == 1 else None
                asked.finish(what.ids)

    def _load(self, queue: job.Queue) -> tuple[bool, parse.Parsed | None]:
        """Read the file, unless it is as the daemon left it; cut what a crash left half-written."""
        absolute = self._context.layout.absolute(queue.path)
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

    def _write(self, queue: job.Queue, rows: Sequence[tuple[entry.Entry, str]], *, is_there: bool) -> job.Grew | None:
        """Return the file before and after; None when it is not as it was and nothing was written."""
        absolute = self._context.layout.root / queue.path
        if is_there:
            text = "".join(render.between_markers(row.id, raw, queue.newline) for row, raw in rows)
            data = text.encode("utf-8", "surrogatepass")
            grew = functools.partial(self._growth.grew, queue.path)
            states = tail.append(absolute, data, step=self._context.step, grew=grew)
            return None if states is None else job.Grew(path=queue.path, before=states[0], after=states[1])
        file.make_folder(absolute.parent)
        stamp = self._context.clock.now().astimezone(dt.UTC).isoformat(timespec="microseconds")
        new = render.new_file(queue.place, [row for row, _ in rows], stamp=stamp)
        outcome = exchange.replace(absolute, None, new, self._context.tmp, step=self._context.step)
        if not isinstance(outcome, exchange.Replaced):
            return None
        return job.Grew(path=queue.path, before=None, after=outcome.identity)
