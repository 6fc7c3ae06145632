"""What is known of one session: its messages by key, those that wait, and its segments that are not finished."""

from __future__ import annotations

import bisect
import operator
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from everosd import errors, types
from everosd.intake import message, row
from everosd.log import entry, file, layout, parse
from everosd.log import kind as kinds

Key = tuple[int, int]
"""Moment (ms) and place in the request: what a message is known by within its session."""

BY_TIME = operator.attrgetter("timestamp_us")


class Kept(msgspec.Struct, kw_only=True):
    """A message that the log has."""

    id: str
    digest: bytes
    is_cut: bool = False
    """Belongs to a segment."""
    is_forgotten: bool = False
    """What was said was removed for good."""


class Session:
    """The state of one session. Not for several threads at once."""

    def __init__(self, owner: types.Owner) -> None:
        """Start without a message."""
        self.owner = owner
        self.kept: dict[Key, list[Kept]] = {}
        """Several under one key: the same moment and place again, after what was there had been extracted."""
        self._by_id: dict[str, Kept] = {}
        self.waiting: list[message.Message] = []
        """Not cut yet, in time order; those of one moment as they arrived."""
        self.open: dict[str, message.Segment] = {}
        """Cut, and without their Episodes: by id, in order."""
        self.unfollowed: dict[str, message.Segment] = {}
        """With their Episodes, and without all that follows from them: by id, in order."""
        self.finished: set[str] = set()
        """Ids of segments that the log says are done though the row that cut them is gone: their Episodes are there."""
        self.is_deferred = False
        """Only a flush cuts what waits."""
        self.conflicting: set[tuple[Key, bytes]] = set()
        """Keys and digests of messages that came under the key of another one that waited."""
        self.files: dict[str, file.Identity] = {}
        """The log as it was when it was read or written last."""

    def __len__(self) -> int:
        """Return how many messages are known."""
        return len(self.kept)

    def keep(self, one: message.Message, key: Key) -> None:
        """Note a message that is in the log now and waits."""
        self.know(one, key)
        bisect.insort_right(self.waiting, one, key=BY_TIME)

    def know(self, one: message.Message, key: Key) -> Kept:
        """Note a message that the log has."""
        kept = self._by_id[one.id] = Kept(id=one.id, digest=row.digest(one))
        self.kept.setdefault(key, []).append(kept)
        return kept

    def forget(self, message_ids: Iterable[str]) -> None:
        """Note messages that were removed for good; those of other sessions are passed over.

        The log says so itself as long as it has the rows that are left of them.
        """
        for one in message_ids:
            key = _written_key(one, self.owner.id)
            if key is not None and not any(kept.is_forgotten for kept in self.kept.get(key, ())):
                self.kept.setdefault(key, []).append(Kept(id=one, digest=b"", is_forgotten=True))

    def mark_cut(self, message_ids: Iterable[str]) -> None:
        """Note that these messages belong to a segment."""
        for one in message_ids:
            if (kept := self._by_id.get(one)) is not None:
                kept.is_cut = True

    def known(self, key: Key, digest: bytes) -> Kept | None:
        """Return the message under a key that a new one repeats, or that stands in its way; None: it is a new one.

        Of those that are cut already only the same text counts as a repetition; whatever comes under the key of one whose
        text was removed for good repeats that.
        """
        found = self.kept.get(key, [])
        forgotten = next((one for one in found if one.is_forgotten), None)
        if forgotten is not None:
            return forgotten
        same = next((one for one in found if one.digest == digest), None)
        return same or next((one for one in found if not one.is_cut), None)

    def new_id(self, key: Key) -> str:
        """Return an id that no message of the session has."""
        first = row.message_id(self.owner.id, key[0] * 1000, key[1])
        n_before = len(self.kept.get(key, ()))
        return first if not n_before else f"{first}-{n_before + 1}"

    def segments(self, counts: Iterable[tuple[int, message.Reason]]) -> list[message.Segment]:
        """Return the first messages that wait as segments of these sizes; nothing is changed yet."""
        made, start = [], 0
        for n_messages, reason in counts:
            some = tuple(self.waiting[start : start + n_messages])
            start += n_messages
            made.append(
                message.Segment(
                    session=self.owner,
                    id=row.memcell_id(self.owner, [one.id for one in some]),
                    messages=some,
                    reason=reason,
                )
            )
        return made

    def cut(self, segments: Sequence[message.Segment]) -> None:
        """Note segments that the log has now."""
        taken = {one.id for segment in segments for one in segment.messages}
        self.waiting = [one for one in self.waiting if one.id not in taken]
        self.mark_cut(taken)
        self.open.update({segment.id: segment for segment in segments})
        if not self.waiting:
            self.is_deferred = False


def read(places: layout.Layout, owner: types.Owner) -> Session:
    """Read a session from its log; one without a log is empty. Blocking.

    Raises:
        errors.LogError: a file of it cannot be read, so that nothing can be said of what it holds.
    """
    found = Session(owner)
    said: dict[str, message.Message] = {}
    cut: dict[str, row.SegmentRow] = {}
    states: dict[str, row.State] = {}
    deferred: set[str] = set()
    for path, data in _files(places, owner, found):
        place = layout.place(path)
        if place is None:
            continue
        parsed = parse.parse(path, data, place)
        if parsed.error is not None:
            raise errors.LogError(
                path, parsed.error.reason, line=parsed.error.line, hint="mend that line and save the file"
            )
        for each in parsed.entries:
            _take(found, each, said, deferred, cut, states)
    found.finished = {one for one, state in states.items() if state != "open" and one not in cut}
    taken = {one for segment in cut.values() for one in segment.message_ids}
    found.mark_cut(taken)
    found.waiting = sorted((one for one in said.values() if one.id not in taken), key=BY_TIME)
    found.is_deferred = bool(found.waiting) and next(reversed(said)) in deferred  # what came last says how it goes on
    for segment in cut.values():
        state = states[segment.id]
        messages = tuple(said[one] for one in segment.message_ids if one in said)
        if state == "followed" or not messages:  # a person took all of its messages out of the log
            continue
        made = message.Segment(session=owner, id=segment.id, messages=messages, reason=segment.reason)
        (found.open if state == "open" else found.unfollowed)[segment.id] = made
    return found


def segment(places: layout.Layout, owner: types.Owner, memcell_id: str) -> message.Segment | None:
    """Return one segment of a session with its messages, whatever has become of it; None where there is none. Blocking.

    Raises:
        errors.LogError: a file of the session cannot be read.
    """
    said: dict[str, message.Message] = {}
    wanted: row.SegmentRow | None = None
    for path, data in _files(places, owner, Session(owner)):
        place = layout.place(path)
        if place is None:
            continue
        for each in parse.parse(path, data, place).entries:
            if row.is_forgotten(each):
                continue
            if each.kind == "message" and (read_one := row.read_message(each)) is not None and not read_one[1]:
                said.setdefault(read_one[0].id, read_one[0])
            elif each.kind == "segment" and wanted is None:
                seen = row.read_segment(each)
                wanted = seen if seen is not None and seen.id == memcell_id and seen.message_ids else None
    if wanted is None:
        return None
    messages = tuple(said[one] for one in wanted.message_ids if one in said)
    return message.Segment(session=owner, id=memcell_id, messages=messages, reason=wanted.reason) if messages else None


def identities(places: layout.Layout, owner: types.Owner) -> dict[str, file.Identity]:
    """Return what tells whether the log of a session is as it was. Blocking.

    Raises:
        errors.LogError: its folder cannot be listed.
    """
    relative = places.owner_folder(owner)
    folder = places.root / relative
    stem = kinds.BY_NAME["message"].stem
    try:
        names = sorted(one.name for one in folder.iterdir() if one.name.startswith(f"{stem}-") and one.suffix == ".md")
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise errors.LogError(
            relative, error.strerror or str(error), hint="make it a folder that you can read"
        ) from error
    found = {name: file.identify(folder / name) for name in names}
    return {name: identity for name, identity in found.items() if identity is not None}


def _files(places: layout.Layout, owner: types.Owner, found: Session) -> Iterable[tuple[types.RelPath, bytes]]:
    folder = places.owner_folder(owner)
    found.files = identities(places, owner)
    for name in found.files:
        path = types.RelPath(f"{folder}/{name}")
        try:
            yield path, file.read(Path(places.root, path)).data
        except OSError as error:
            raise errors.LogError(
                path, error.strerror or str(error), hint="make it a file that you can read"
            ) from error


def _take(
    found: Session,
    each: entry.Entry,
    said: dict[str, message.Message],
    deferred: set[str],
    cut: dict[str, row.SegmentRow],
    states: dict[str, row.State],
) -> None:
    """Take one row in; the rows of a session stand in the order in which they were written."""
    if each.kind == "segment":
        seen = row.read_segment(each)
        if seen is None:
            return
        if seen.message_ids:
            cut.setdefault(seen.id, seen)
        order = ("open", "done", "followed")
        states[seen.id] = max(states.get(seen.id, "open"), seen.state, key=order.index)
        return
    read_one = row.read_message(each)
    if read_one is None:
        return
    one, duplicate_of, is_deferred = read_one
    if row.is_forgotten(each):
        found.know(one, _key(one, found.owner.id)).is_forgotten = True
    elif duplicate_of:
        found.conflicting.add((_key(one, found.owner.id), row.digest(one)))
    elif one.id not in said:
        said[one.id] = one
        found.know(one, _key(one, found.owner.id))
        if is_deferred:
            deferred.add(one.id)


def _key(one: message.Message, session_id: str) -> Key:
    """Return the key that a message id was made of; of a foreign id the moment and 0."""
    return _written_key(one.id, session_id) or (one.timestamp_us // 1000, 0)


def _written_key(message_id: str, session_id: str) -> Key | None:
    """Return the key that an id of the session was made of; None: it is a foreign one."""
    head, _, tail = message_id.removeprefix(f"m_{session_id}_").rpartition("_")
    index = tail.partition("-")[0]
    is_ours = head.isascii() and head.lstrip("-").isdigit() and index.isascii() and index.isdigit()
    return (int(head), int(index)) if is_ours else None
