"""Waiting for what is on disk to be in the ledger and in the indexes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence

import msgspec

from everosd import clock, errors, types
from everosd.log import entry, file, layout, parse
from everosd.reflection import source
from everosd.store import read, row

POLL_S = 0.02
PATIENCE_S = 10.0
"""How long something may take to be read that is on disk."""
SHOWN_S = 5.0
"""How long the indexes may take to follow the ledger: after it a search may still find what was replaced, for a moment."""

_PUT_BACK = "put it back, or wait until everosd has noticed that it is gone, then try again"
_MEND = "mend the file and save it, then try again"


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """An entry as it stands in its file."""

    digest: str
    """`source.digest_of` it."""
    successor: str
    """What `deprecated_entries` of its file says; empty: nothing."""


class Pointer(msgspec.Struct, frozen=True, kw_only=True):
    """A key of `deprecated_entries`."""

    entry_id: str
    parent_id: str
    """Of the entry, where it is in that file; else empty."""


class Lag:
    """Compares the ledger with the disk. Lives on the event loop."""

    def __init__(
        self,
        reader: read.Reader,
        places: layout.Layout,
        look: Callable[[Collection[types.RelPath]], None],
        is_shown: Callable[[types.Lsn], bool],
        time: clock.Clock,
    ) -> None:
        """Wire the parts.

        Args:
            reader: What the ledger knows.
            places: The root.
            look: Asks for a look at these files.
            is_shown: Whether every index that is open has followed the ledger as far as this.
            time: For waiting.
        """
        self._reader, self._places, self.look, self._is_shown, self._clock = reader, places, look, is_shown, time

    async def until(self, holds: Callable[[], Awaitable[bool]], what: str, paths: Collection[types.RelPath]) -> None:
        """Wait until something that was written to these files is in the ledger.

        Raises:
            StoreError: it was not after `PATIENCE_S`.
        """
        until_s = self._clock.monotonic_s() + PATIENCE_S
        n = 0
        while not await holds():
            if self._clock.monotonic_s() > until_s:
                message = f"the ledger has not read {what} yet"
                raise errors.StoreError(message)
            n += 1
            if paths and n % 25 == 0:  # the watch may have missed it
                self.look(paths)
            await self._clock.sleep(POLL_S)

    async def until_found(self, owner: types.Owner, entry_id: str) -> row.EntryRow:
        """Return an entry that was appended, once the ledger has it.

        Raises:
            StoreError: it had not after `PATIENCE_S`.
        """
        found: list[row.EntryRow] = []

        async def is_there() -> bool:
            one = await self._reader.find(owner, entry_id)
            if one is not None:
                found.append(one)
            return one is not None

        await self.until(is_there, f"{entry_id} of {owner.id}", ())
        return found[0]

    async def until_shown(self) -> None:
        """Wait until a search finds what the ledger has now, but not for long."""
        lsn = types.Lsn(await self._reader.lsn())
        until_s = self._clock.monotonic_s() + SHOWN_S
        while not self._is_shown(lsn) and self._clock.monotonic_s() < until_s:
            await self._clock.sleep(POLL_S)

    def is_on_disk(self, owner: types.Owner, entry_id: str) -> bool:
        """Return whether any log of an owner's Episodes holds one of this id. Blocks.

        Raises:
            WriteRefused: a file cannot be read.
        """
        folder = self._places.path_for(owner, source.EPISODE, None).rpartition("/")[0]
        names = [path.name for path in self._places.absolute(types.RelPath(folder)).glob("*.md")]
        paths = [types.RelPath(f"{folder}/{name}") for name in names]
        files = (self._parsed(path) for path in paths)
        return any(one.id == entry_id for parsed in files if parsed is not None for one in parsed.entries)

    def standing(self, wanted: Sequence[tuple[types.RelPath, str]]) -> dict[str, Standing]:
        """Return how entries of one owner, named by file and id, stand there now; what is not there is left out. Blocks.

        Raises:
            WriteRefused: a file cannot be read, or may not be rewritten as it is.
        """
        found: dict[str, Standing] = {}
        here = set(wanted)
        for path in dict.fromkeys(path for path, _ in wanted):
            parsed = self._parsed(path)
            if parsed is None:
                continue
            if parsed.error is not None:
                raise errors.WriteRefused(path, parsed.error.reason, line=parsed.error.line)
            for one in parsed.entries:
                if one.nth == 0 and (path, one.id) in here:
                    found[one.id] = _standing(one, parsed)
        return found

    def pointers(
        self, paths: Collection[types.RelPath], successor: str, *, are_all_needed: bool = False
    ) -> dict[types.RelPath, list[Pointer]]:
        """Return what points to `successor` in these files as they are now, by file. Blocks.

        Args:
            paths: Which files; those that are not there hold nothing.
            successor: Entry id.
            are_all_needed: Refuse where one is not there, or is write-protected.

        Raises:
            WriteRefused: a file cannot be read, or does not parse.
        """
        found: dict[types.RelPath, list[Pointer]] = {}
        for path in paths:
            parsed = self._parsed(path)
            if parsed is None:
                if are_all_needed:
                    raise errors.WriteRefused(path, "the file is not there", hint=_PUT_BACK)
                continue
            if parsed.error is not None:
                raise errors.WriteRefused(path, parsed.error.reason, line=parsed.error.line, hint=_MEND)
            if are_all_needed:
                absolute = self._places.absolute(path)
                with file.refusals(absolute):
                    file.is_ours_to_write(absolute, absolute.stat())
            parents = {one.id: one.fields.get("parent_id", "") for one in parsed.entries}
            ids = [one for one, named in parsed.deprecated.items() if named == successor]
            if ids:
                found[path] = [Pointer(entry_id=one, parent_id=parents.get(one, "")) for one in ids]
        return found

    def _parsed(self, path: types.RelPath) -> parse.Parsed | None:
        absolute, place = self._places.absolute(path), layout.place(path)
        try:
            data = file.read(absolute).data
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise file.refusal(absolute, error) from error
        return None if place is None else parse.parse(path, data, place)


def _standing(one: entry.Entry, parsed: parse.Parsed) -> Standing:
    return Standing(digest=source.digest_of(one), successor=parsed.deprecated.get(one.id, ""))
