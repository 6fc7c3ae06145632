"""What was said in one segment is taken out of the session's log for good; what is left says that it is not to come back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence

import msgspec

from everosd import clock, errors, types
from everosd.intake import extraction, line, row, session
from everosd.log import entry, escape, file, layout, parse, writer

Whose = Callable[[entry.Entry], bool]
"""A message's row → whether its text is to go."""


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """The messages of a segment that are to go, as they stand in the log."""

    message_ids: tuple[str, ...] = ()
    paths: Mapping[types.RelPath, tuple[str, ...]] = {}
    """File → ids of the rows in it that have text to be removed. Never mutated."""
    others: tuple[str, ...] = ()
    """Message ids that stay: somebody else's."""
    illegible: tuple[str, ...] = ()
    """Files that cannot be read, each with the reason."""


class Unsaying:
    """Takes messages back. Lives on the event loop."""

    def __init__(
        self,
        places: layout.Layout,
        pen: writer.Writer,
        time: clock.Clock,
        *,
        lines: line.Lines | None = None,
        work: extraction.Extraction | None = None,
    ) -> None:
        """Work on one root; the last two are given where messages are being taken and extracted meanwhile."""
        self._places, self._pen, self._work = places, pen, work
        self._lines = line.Lines(places, pen, time) if lines is None else lines

    async def look(self, at: types.Owner, memcell_id: str, whose: Whose) -> Said:
        """Return what of a segment would go."""
        return await asyncio.to_thread(self._look, at, memcell_id, whose)

    async def unsay(self, at: types.Owner, memcell_id: str, whose: Whose) -> Said:
        """Take the texts out; done twice, nothing changes.

        Raises:
            WriteRefused: a file may not be rewritten; nothing of it was changed.
        """
        here = self._lines.of(at)
        async with here.lock:
            if self._work is not None:
                await self._work.halt(here)
            try:
                found = await self.look(at, memcell_id, whose)
                change = _taken_out(frozenset(found.message_ids))
                for path in found.paths:
                    await self._pen.expunge(path, change)
            finally:
                with contextlib.suppress(errors.LogError):  # said by whoever reads it next
                    await here.renew()
        if self._work is not None:
            self._work.start(here)
        return found

    def _look(self, at: types.Owner, memcell_id: str, whose: Whose) -> Said:
        """Read the log of a session. Blocks."""
        parsed, illegible = self._parsed(at)
        wanted = {
            one
            for each in parsed
            for found in each.entries
            if found.kind == "segment" and found.fields.get("memcell_id") == memcell_id
            for one in escape.read_list(found.fields.get("message_ids", ""))
        }
        rows = [found for each in parsed for found in each.entries if found.fields.get("message_id") in wanted]
        going = {found.fields["message_id"] for found in rows if row.is_forgotten(found) or whose(found)}
        paths: dict[types.RelPath, tuple[str, ...]] = {}
        for each in parsed:
            if ids := tuple(found.id for found in each.entries if _is_meant(found, going)):
                paths[each.path] = ids
        return Said(
            message_ids=tuple(sorted(going)),
            paths=paths,
            others=tuple(sorted(wanted - going)),
            illegible=tuple(illegible),
        )

    def _parsed(self, at: types.Owner) -> tuple[list[parse.Parsed], list[str]]:
        folder = self._places.owner_folder(at)
        found: list[parse.Parsed] = []
        illegible: list[str] = []
        try:
            names = session.identities(self._places, at)
        except errors.LogError as error:
            return [], [str(error)]
        for name in names:
            path = types.RelPath(f"{folder}/{name}")
            place = layout.place(path)
            if place is None:
                continue
            try:
                found.append(parse.parse(path, file.read(self._places.root / path).data, place))
            except OSError as error:
                illegible.append(f"{path}: {error.strerror or error}")
        return found, illegible


def _is_meant(found: entry.Entry, going: set[str] | frozenset[str]) -> bool:
    """Tell whether a row has text that is to go: a message's, or that of another one under its key."""
    if found.kind != "message" or row.is_forgotten(found):
        return False
    return found.fields.get("message_id") in going or found.fields.get("duplicate_of") in going


def _taken_out(going: frozenset[str]) -> Callable[[Sequence[entry.Entry]], Mapping[str, entry.Entry | None]]:
    def change(rows: Sequence[entry.Entry]) -> Mapping[str, entry.Entry | None]:
        return {
            found.id: None if found.fields.get("duplicate_of") in going else row.forgotten(found)
            for found in rows
            if _is_meant(found, going)
        }

    return change
