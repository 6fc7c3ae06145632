"""What the disk holds of one owner: their folder, and in which sessions they have spoken. Blocks: call it from a thread."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

import msgspec

from everosd import types
from everosd.log import entry, escape, file, layout, parse
from everosd.log import kind as kinds

_RUN = re.compile(r"[\w-]+")
_USER_ROLE = "user"


class Talk(msgspec.Struct, frozen=True, kw_only=True):
    """One session in which an owner may have spoken."""

    session: types.Owner
    folder: types.RelPath
    paths: tuple[types.RelPath, ...]
    """Its files, in the order of their names."""
    message_ids: frozenset[str]
    """Of the owner's messages."""
    n_messages: int
    """Rows of messages, everybody's."""
    n_sent: int
    """Of these: the owner's."""
    spent: frozenset[str]
    """Segments that had no messages but the owner's."""
    illegible: tuple[str, ...] = ()
    """Files that cannot be rewritten and may hold messages of the owner, each with its reason."""


class Sender:
    """Tells the rows of one owner from those of others."""

    def __init__(self, owner: types.Owner, *, by_role: bool) -> None:
        """Go by the sender's id; `by_role` too where a user and an agent share it."""
        self.owner = owner
        self._by_role = by_role
        # What every spelling of the id in a file has in it, so that most files need not be taken apart.
        self._mark = max(_RUN.findall(owner.id), key=len, default="").encode()

    def may_be_in(self, data: bytes) -> bool:
        """Tell whether a file may hold a row of theirs; cheap."""
        return self._mark in data

    def sent(self, row: entry.Entry) -> bool:
        """Tell whether a row is a message of theirs."""
        if row.kind != "message" or types.nfc(row.fields.get("sender_id", "")) != self.owner.id:
            return False
        is_user = row.fields.get("role") == _USER_ROLE
        return not self._by_role or is_user == (self.owner.type == "user")

    def taken_out(self, talk: Talk) -> Callable[[Sequence[entry.Entry]], Mapping[str, entry.Entry | None]]:
        """Return what takes their messages out of a file of a session, and their ids out of its segments."""

        def change(rows: Sequence[entry.Entry]) -> Mapping[str, entry.Entry | None]:
            changed: dict[str, entry.Entry | None] = {}
            for row in rows:
                if self.sent(row) or (row.kind == "segment" and row.fields.get("memcell_id") in talk.spent):
                    changed[row.id] = None
                elif row.kind == "segment" and "message_ids" in row.fields:
                    named = escape.read_list(row.fields["message_ids"])
                    left = [one for one in named if one not in talk.message_ids]
                    if len(left) < len(named):
                        fields = row.fields | {"message_ids": escape.write_list(left)}
                        changed[row.id] = msgspec.structs.replace(row, fields=fields)
            return changed

        return change


def folders(places: layout.Layout, owner: types.Owner) -> list[types.RelPath]:
    """Return the folders that stand for an owner: the usual one, and any whose name means the same id."""
    usual = places.owner_folder(owner)
    above, name = PurePosixPath(usual).parent, PurePosixPath(usual).name
    found = [name] if os.path.lexists(places.root / usual) else []
    found += [each for each in _names(places.root / above) if each != name and layout.decode(each) == owner.id]
    return [types.RelPath(f"{above}/{each}") for each in found]


def files(places: layout.Layout, folder: types.RelPath) -> list[types.RelPath]:
    """Return every file below a folder."""
    found = []
    for at, _, names in os.walk(places.root / folder):
        below = Path(at).relative_to(places.root).as_posix()
        found += [types.RelPath(f"{below}/{name}") for name in names]
    return sorted(found)


def talks(places: layout.Layout, sender: Sender) -> Iterator[Talk]:
    """Yield the sessions of the owner's app and project in which they have spoken, or may have."""
    base = _sessions(places, sender.owner)
    for name in sorted(_names(places.root / base)):
        found = talk(places, sender, types.RelPath(f"{base}/{name}"))
        if found is not None and (found.n_sent or found.illegible):
            yield found


def talk(places: layout.Layout, sender: Sender, folder: types.RelPath, *, is_whole: bool = False) -> Talk | None:
    """Read the session in a folder, as far as the owner is concerned; None where there is no log of it.

    Without `is_whole` one that cannot be of the owner is not taken apart, and nothing is counted in it.
    """
    session: types.Owner | None = None
    paths: list[types.RelPath] = []
    theirs: set[str] = set()
    n_messages = n_sent = 0
    cut: dict[str, frozenset[str]] = {}
    illegible: list[str] = []
    read = list(_logs(places, folder))
    is_concerned = is_whole or any(data is None or sender.may_be_in(data) for _, _, data in read)
    for path, place, data in read:
        session = session or place.owner
        paths.append(path)
        if data is None:
            illegible.append(f"{path}: cannot be read")
            continue
        if not is_concerned:
            continue
        parsed = parse.parse(path, data, place)
        session = parsed.place.owner
        rows = [each for each in parsed.entries if each.kind == "message"]
        n_messages += len(rows)
        sent = [each for each in rows if sender.sent(each)]
        theirs.update(each.fields["message_id"] for each in sent if each.fields.get("message_id"))
        n_sent += len(sent)
        if parsed.error is not None and sender.may_be_in(data):
            illegible.append(f"{path}:{parsed.error.line}: {parsed.error.reason}")
        for each in parsed.entries:
            if each.kind == "segment" and each.fields.get("message_ids"):
                ids = escape.read_list(each.fields["message_ids"])
                cut.setdefault(each.fields.get("memcell_id", ""), frozenset(ids))
    if session is None:
        return None
    return Talk(
        session=session,
        folder=folder,
        paths=tuple(paths),
        message_ids=frozenset(theirs),
        n_messages=n_messages,
        n_sent=n_sent,
        spent=frozenset(one for one, ids in cut.items() if ids <= theirs),
        illegible=tuple(illegible),
    )


def strays(places: layout.Layout, sender: Sender, found: Talk) -> list[types.RelPath]:
    """Return files in the folder of a session that are no log of it and name the owner: copies that a sync program made."""
    named = []
    for path in files(places, found.folder):
        if path not in found.paths:
            try:
                is_named = sender.may_be_in(file.read(places.root / path).data)
            except OSError:
                is_named = True
            if is_named:
                named.append(path)
    return named


def _sessions(places: layout.Layout, owner: types.Owner) -> PurePosixPath:
    some = msgspec.structs.replace(owner, type="session", id="s")
    return PurePosixPath(places.owner_folder(some)).parent


def _logs(places: layout.Layout, folder: types.RelPath) -> Iterator[tuple[types.RelPath, layout.Place, bytes | None]]:
    """Yield the files of a session with what is in them; None: it cannot be read."""
    for name in sorted(_names(places.root / folder)):
        path = types.RelPath(f"{folder}/{name}")
        place = layout.place(path)
        if place is None or kinds.BY_NAME[place.kind].name != "message":
            continue
        try:
            yield path, place, file.read(places.root / path).data
        except FileNotFoundError:
            continue
        except OSError:
            yield path, place, None


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208
    except (FileNotFoundError, NotADirectoryError):
        return []
