"""Jobs: what the writer has been asked to do to a file, and the queue of those that wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from everosd import types
from everosd.log import displaced, entry, file, heal, layout, parse

Change = Callable[[entry.Entry], entry.Entry]

Condition = Callable[[entry.Entry], bool]
"""An entry as it stands in its file → whether it is meant. Pure: called again for each attempt."""

Rewriting = Callable[[bytes | None], bytes | None]
"""What stands in a file (None: there is none) → what is to stand there; None or the same: nothing is written."""


Expunging = Callable[[Sequence[entry.Entry]], Mapping[str, entry.Entry | None]]
"""The rows of a file → those of them that change, by id: what stands in their place; None: nothing does."""


class Grew(msgspec.Struct, frozen=True, kw_only=True):
    """A file just before and just after an append."""

    path: types.RelPath
    before: file.Identity | None
    """None: there was none."""
    after: file.Identity


class Append(msgspec.Struct, kw_only=True):
    """Add entries at the end."""

    owner: types.Owner
    kind: str
    drafts: tuple[entry.Draft, ...]
    ids: tuple[types.EntryId, ...] = ()
    """Allotted once: an attempt that has to be repeated keeps them."""
    grew: Grew | None = None
    """How a file that only machines write has grown, where by these entries alone; None: that is not certain."""


class Update(msgspec.Struct, frozen=True, kw_only=True):
    """Replace the text of one entry."""

    entry_id: str
    change: Change
    """Pure: called again for each attempt."""


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """Set or remove keys of `deprecated_entries`."""

    successors: dict[str, str] = {}
    """Entry id → successor, for those whose entry is in the file."""
    where: Condition | None = None
    """Which of these entries are pointed, of those that are not yet; None: all."""
    revived: dict[str, str] = {}
    """Entry ids whose key goes → the successor that it has to name for that; empty: any."""


class Adopt(msgspec.Struct, frozen=True, kw_only=True):
    """Give hand-written text its markers."""


class Heal(msgspec.Struct, frozen=True, kw_only=True):
    """Put back what a stale save wiped."""

    known: heal.Known | None
    """What the ledger knows of the file, if the caller does; None: the journal is asked."""


class Replace(msgspec.Struct, frozen=True, kw_only=True):
    """Make something else of a file that is one entry."""

    change: Rewriting
    """Pure: called again for each attempt, in a thread."""


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """Give the folder of a file that is one entry another name."""

    to: Path
    """The folder; there must be nothing of that name."""


class Expunge(msgspec.Struct, frozen=True, kw_only=True):
    """Take rows out of a file that only machines write, or change them, for good."""

    change: Expunging
    """Pure: called again for each attempt."""


class PutBack(msgspec.Struct, frozen=True, kw_only=True):
    """Add an entry under the id that it has had before."""

    owner: types.Owner
    entry: entry.Entry


class Take(msgspec.Struct, frozen=True, kw_only=True):
    """Take an entry out, because it stands in another file now."""

    entry_id: str
    where: Condition
    """Only as long as this holds of it."""


class Late(msgspec.Struct, kw_only=True):
    """Bring a save into a displaced file into the present one."""

    save: displaced.LateSave
    parsed: tuple[parse.Parsed, parse.Parsed | None] | None = None
    """The save and its base, read once."""


What = Append | Update | Point | Adopt | Heal | Replace | Move | Expunge | PutBack | Take | Late


class Job:
    """One thing asked of one file, and the future that its caller waits for."""

    def __init__(self, what: What, asked_s: float) -> None:
        """Make a job of the running event loop; `asked_s` is monotonic."""
        self.what = what
        self.asked_s = asked_s
        self.future: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    def finish(self, result: object) -> None:
        """Give the caller what they wait for, unless they have gone."""
        if not self.future.done():
            self.future.set_result(result)

    def fail(self, error: BaseException) -> None:
        """Let the caller have an error, unless they have gone."""
        if not self.future.done():
            self.future.set_exception(error)


class Queue:
    """What waits for one file, and what is known of it since the daemon last wrote to it."""

    def __init__(self, path: types.RelPath, place: layout.Place) -> None:
        """Start empty."""
        self.path, self.place = path, place
        self.jobs: list[Job] = []
        """Waiting."""
        self.active: list[Job] = []
        """Being written."""
        self.contended_until_s = 0.0
        """Monotonic: somebody changes the file faster than it can be replaced."""
        self.was_there = False
        self.absent_since_s: float | None = None
        self.settled: file.Identity | None = None
        """State of the file that needs no quiet time."""
        self.left: file.Identity | None = None
        """State in which an append left a file that only machines write."""
        self.digest = b""
        """Of what the daemon wrote last."""
        self.is_plain = False
        """What the daemon wrote last has markers throughout: to add to it, its head is all that has to be read."""
        self.newline = "\n"
        self.disputed: set[tuple[str, str]] = set()
        """Conflicts that are in the log already, so that a repeated attempt does not report them twice."""
        self._n_turns = 0

    def take(self) -> list[Job]:
        """Return what is to be written in the next turn: all that waits, but a late save alone."""
        self.active = [job for job in (*self.active, *self.jobs) if not job.future.done()]
        self.jobs = []
        late = [job for job in self.active if isinstance(job.what, Late)]
        others = [job for job in self.active if not isinstance(job.what, Late)]
        self._n_turns += 1
        # Turn and turn about: neither may keep the other waiting while somebody keeps changing the file.
        return late[:1] if late and (not others or self._n_turns % 2) else others
