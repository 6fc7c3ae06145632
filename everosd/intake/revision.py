"""What everosd last wrote into files that people edit, too (`user.md`, `SKILL.md`): the base of a three-way merge.

Each version goes to the owner's `.lifecycle/` before it goes to the file, under a stamp that the file carries: what a
person changed is what differs from the version whose stamp they left in it, however old the copy was that they edited.
"""

from __future__ import annotations

import collections
import datetime as dt
import hashlib
import json
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from everosd import clock, types
from everosd.log import entry, entry_text, escape, frontmatter, writer
from everosd.store import read

_N_REMEMBERED = 200
"""Files whose newest version is in memory."""

_THEIRS = msgspec.json.Decoder(frozenset[str])
_GONE = msgspec.json.Decoder(tuple[tuple[str, ...], ...])
_IS_ON_DISK = "is on disk"
_WRITTEN = "written by everosd"


class Revision(msgspec.Struct, frozen=True, kw_only=True):
    """One version of one file, and what was known when it was made."""

    stamp: str
    """As the file carries it; unique within the file."""
    values: dict[str, object] = {}
    """Its frontmatter, as `log.frontmatter` reads it. Never mutated."""
    body: str = ""
    through: str = ""
    """How far the owner's log had been read, in the words of whoever wrote it."""
    gone: tuple[tuple[str, ...], ...] = ()
    """Texts of what people took out so far; it does not come back."""
    theirs: frozenset[str] = frozenset()
    """Marks of the parts that are a person's, though everosd wrote the file: it wrote them as it had found them."""


class Latest(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a file that everosd writes."""

    newest: Revision | None = None
    """None: it was never written."""
    through: str = ""
    is_on_disk: bool = False
    """Whether it certainly has been on disk: when it is not there any more, somebody deleted it."""


class Revisions:
    """Reads and writes the versions of the files of one kind. Lives on the event loop."""

    def __init__(
        self,
        action: str,
        reader: read.Reader,
        pen: writer.Writer,
        time: clock.Clock,
        settled: Callable[[], Awaitable[None]],
    ) -> None:
        """`action` is what the rows are called; `settled` returns once the ledger has what is on disk."""
        self._action, self._reader, self._pen, self._clock, self._settled = action, reader, pen, time, settled
        self._latest: collections.OrderedDict[tuple[types.Owner, str], Latest] = collections.OrderedDict()

    async def latest(self, owner: types.Owner, target: str) -> Latest:
        """Return what is known of a file; `target` is the id of its entry."""
        known = self._latest.get((owner, target))
        if known is None:
            await self._settled()
            with_text = await self._rows(owner, target, ("### Before", 1))
            every = await self._rows(owner, target, ("", 1))
            marks = await self._rows(owner, target, (f"**reason**: {_IS_ON_DISK}\n", 1))
            newest = _revision(with_text[0]) if with_text else None
            through = every[0].fields.get("through", "") if every else ""
            known = Latest(newest=newest, through=through, is_on_disk=bool(marks))
            self._remember(owner, target, known)
        return known

    async def of_stamp(self, owner: types.Owner, target: str, stamp: str) -> Revision | None:
        """Return the version that a file carries the stamp of; None where the log has none."""
        newest = (await self.latest(owner, target)).newest
        if newest is None or newest.stamp == stamp:
            return newest
        await self._settled()
        rows = await self._rows(owner, target, (f"**value**: {escape.write_value(stamp)}\n", 2)) if stamp else []
        return next((_revision(each) for each in rows if each.sections), None)

    async def add(self, owner: types.Owner, target: str, data: bytes, made: Revision) -> None:
        """Put a version into the log, before it goes to the file as `data`."""
        text = data.decode("utf-8", "surrogateescape")
        await self._append(owner, target, made.stamp, made.through, made=made, text=text, reason=_WRITTEN)
        known = await self.latest(owner, target)
        self._remember(owner, target, Latest(newest=made, through=made.through, is_on_disk=known.is_on_disk))

    async def landed(self, owner: types.Owner, target: str) -> None:
        """Note that a file is on disk, so that its absence means something."""
        known = await self.latest(owner, target)
        if not known.is_on_disk and known.newest is not None:
            await self._append(owner, target, known.newest.stamp, known.through, reason=_IS_ON_DISK)
            self._remember(owner, target, msgspec.structs.replace(known, is_on_disk=True))

    async def read_on(self, owner: types.Owner, target: str, through: str, *, is_kept: bool) -> None:
        """Note how far the owner's log has been read without anything new; in the log as well where `is_kept`."""
        known = await self.latest(owner, target)
        if is_kept:
            stamp = "" if known.newest is None else known.newest.stamp
            await self._append(owner, target, stamp, through, reason="nothing new")
        self._remember(owner, target, msgspec.structs.replace(known, through=through))

    def forget_owner(self, owner: types.Owner) -> None:
        """Let go of what is known of an owner whose files have been deleted."""
        for key in [key for key in self._latest if key[0] == owner]:
            del self._latest[key]

    async def _append(
        self,
        owner: types.Owner,
        target: str,
        stamp: str,
        through: str,
        *,
        reason: str,
        made: Revision | None = None,
        text: str = "",
    ) -> None:
        fields = {
            "timestamp": self._clock.now().astimezone(dt.UTC).isoformat(timespec="microseconds"),
            "action": self._action,
            "target": target,
            "value": stamp,
            "reason": reason,
            "through": through,
        }
        if made is not None and made.gone:
            fields["gone"] = msgspec.json.encode(made.gone).decode()
        if made is not None and made.theirs:
            fields["theirs"] = msgspec.json.encode(sorted(made.theirs)).decode()
        sections = (("Before", text),) if text else ()
        await self._pen.append(owner, "lifecycle", [entry.Draft(fields=fields, sections=sections)])

    async def _rows(self, owner: types.Owner, target: str, wanted: tuple[str, int]) -> list[entry.Entry]:
        """Return the newest rows of a file that hold a text, at most so many."""
        text, limit = wanted
        about = f"**action**: {self._action}\n**target**: {escape.write_value(target)}\n"
        condition = "instr(e.raw, ?) > 0 AND instr(e.raw, ?) > 0"
        now_us = clock.to_us(self._clock.now())
        rows, _ = await self._reader.page(
            owner, "lifecycle", where=(condition, (about, text or about)), now_us=now_us, limit=limit
        )
        return [entry_text.read("lifecycle", each.entry_id, each.raw) for each in rows]

    def _remember(self, owner: types.Owner, target: str, known: Latest) -> None:
        self._latest[owner, target] = known
        self._latest.move_to_end((owner, target))
        while len(self._latest) > _N_REMEMBERED:
            self._latest.popitem(last=False)


def _revision(row: entry.Entry) -> Revision:
    text = dict(row.sections).get("Before", "")
    head = frontmatter.read(text)
    try:
        gone = _GONE.decode(row.fields.get("gone", "[]"))
        theirs = _THEIRS.decode(row.fields.get("theirs", "[]"))
    except msgspec.DecodeError:
        gone, theirs = (), frozenset()
    return Revision(
        stamp=row.fields.get("value", ""),
        values=head.values,
        body=escape.strip_blank_lines(text[head.end :]),
        through=row.fields.get("through", ""),
        gone=gone,
        theirs=theirs,
    )


def of_text(
    data: bytes,
    stamp: str,
    *,
    through: str = "",
    gone: Sequence[tuple[str, ...]] = (),
    theirs: frozenset[str] = frozenset(),
) -> Revision:
    """Return the version that `data` is, as it is read back from the log."""
    text = data.decode("utf-8", "surrogateescape").replace("\r\n", "\n").removeprefix("\ufeff")
    head = frontmatter.read(text)
    body = escape.strip_blank_lines(text[head.end :])
    return Revision(stamp=stamp, values=head.values, body=body, through=through, gone=tuple(gone), theirs=theirs)


def mark(key: str, item: object) -> str:
    """Return what stands for an item of a list among the parts that are a person's."""
    text = json.dumps(item, sort_keys=True, ensure_ascii=False)
    return f"{key}:{hashlib.blake2b(text.encode('utf-8', 'surrogatepass'), digest_size=8).hexdigest()}"
