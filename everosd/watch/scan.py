"""What is on disk: the walk of the memory root, and a look at one path.

Both only list and stat, and both tell three things apart that must never be confused: a file that is there, one that
is not, and one about which nothing can be said because something on the way to it cannot be read.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path, PurePosixPath
from typing import Literal

import msgspec

from everosd import config
from everosd.log import kind, layout
from everosd.types import RelPath

SUFFIX = ".md"

HIDDEN_FOLDERS_READ = frozenset(row.folder for row in kind.KINDS if row.folder.startswith("."))
"""The folders with a leading dot that hold memory. Any other one is somebody else's (`.git`, `.obsidian`,
`.stversions`) or ours and disposable (`.index`, `.cache`, `.tmp`), and is neither walked nor watched."""

GONE = frozenset({errno.ENOENT, errno.ENOTDIR})


class DiskFile(msgspec.Struct, frozen=True, kw_only=True):
    """A memory file as the file system describes it: equal structs mean that it need not be read again."""

    path: RelPath
    inode: int
    size: int
    """Bytes."""
    mtime_ns: int


class Absent(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing of that name is there."""

    parent_lists: bool
    """The nearest folder that is left lists normally, so that the file is gone and not merely out of reach."""


class Unreadable(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing can be said about the path."""

    reason: str


class Scan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything below the root, or below one folder of it, at about one moment."""

    files: dict[RelPath, DiskFile] = {}
    """Memory files, in path order. Never mutated."""
    unreadable: tuple[tuple[str, str], ...] = ()
    """`(path, reason)` of folders and files that cannot be listed; `""` is the root itself."""
    conflicts: tuple[str, ...] = ()
    """Copies that a sync program made of a file that two sides had changed."""
    strays: tuple[str, ...] = ()
    """Markdown in places that are not read."""
    links: tuple[tuple[str, str], ...] = ()
    """`(path, reason)` of symbolic links that are not followed."""
    n_folders: int = 0
    """Folders listed."""

    blind: frozenset[str] = frozenset()
    """The paths of `unreadable` and `links`."""

    def knows(self, path: str) -> bool:
        """Tell whether this scan could see `path`: only then does its not being in `files` mean anything."""
        return not self.blind or self.blind.isdisjoint(("", path, *map(str, PurePosixPath(path).parents)))


def is_walked(name: str) -> bool:
    """Tell whether a folder of this name can hold memory."""
    return not name.startswith(".") or name in HIDDEN_FOLDERS_READ


def link_target(root: str, path: str) -> tuple[str, str]:
    """Resolve a symbolic link at the absolute `path` below the resolved `root`.

    Returns:
        `(target relative to the root, "")` where the link may be followed, else `("", why not)`.
    """
    try:
        target = os.path.realpath(path, strict=True)
    except OSError as error:
        return "", "leads nowhere" if error.errno in GONE else _words(error)
    inside = target.removeprefix(root.rstrip("/") + "/")
    if inside == target:
        return "", "leads back to the root" if target == root else "leaves the root"
    if not _is_readable_place(root, target):
        return "", "leads to a folder that is not read"
    if os.path.realpath(os.path.dirname(path)).startswith(target + "/"):  # noqa: PTH120
        return "", "leads back to a folder above it"
    return inside, ""


def scan(root: Path, *, below: RelPath | None = None) -> Scan:
    """Walk the root, or the folder `below` in it. Blocking; never raises for what it meets on disk.

    A folder `below` that is not there gives an empty scan; a root that is not there is unreadable. Links inside the
    root are followed one link deep, so that no loop and no explosion is possible.
    """
    walk = _Walk(os.path.realpath(root))
    if not below:
        walk.folder("", is_linked=False, is_asked_for=True)
    elif all(map(is_walked, PurePosixPath(below).parts)):
        walk.start(below)
    return walk.result()


class _Walk:
    """One walk in progress."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.files: list[DiskFile] = []
        self.unreadable: list[tuple[str, str]] = []
        self.conflicts: list[str] = []
        self.strays: list[str] = []
        self.links: list[tuple[str, str]] = []
        self.n_folders = 0
        self._folder = ""
        """Of the file met last."""
        self._takes_any_name: bool | None = None

    def result(self) -> Scan:
        self.files.sort(key=lambda file: file.path)
        return Scan(
            files={file.path: file for file in self.files},
            unreadable=tuple(sorted(self.unreadable)),
            conflicts=tuple(sorted(self.conflicts)),
            strays=tuple(sorted(self.strays)),
            links=tuple(sorted(self.links)),
            n_folders=self.n_folders,
            blind=frozenset(path for path, _ in self.unreadable + self.links),
        )

    def start(self, below: RelPath) -> None:
        """Walk one folder, after making sure that the way to it stays inside the root."""
        path = f"{self.root}/{below}"
        try:
            real = os.path.realpath(path, strict=True)
        except OSError as error:
            self._trouble(below, error)
            return
        is_linked = real != path
        if is_linked and not real.startswith(self.root + "/"):
            self.links.append((below, "leaves the root"))
        else:
            self.folder(below, is_linked=is_linked, is_asked_for=False)

    def folder(self, top: str, *, is_linked: bool, is_asked_for: bool) -> None:
        """Walk `top` and everything below it; `is_asked_for`: its not being there is trouble, not news."""
        waiting = [(top, is_linked)]
        while waiting:
            folder, is_linked = waiting.pop()
            try:
                with os.scandir(f"{self.root}/{folder}") as listing:
                    for entry in listing:
                        waiting += self._entry(entry, f"{folder}/{entry.name}" if folder else entry.name, is_linked)
                self.n_folders += 1
            except OSError as error:
                if is_asked_for and folder == top:
                    self.unreadable.append((folder, _words(error)))
                else:
                    self._trouble(folder, error)

    def _entry(self, entry: os.DirEntry[str], path: str, is_linked: bool) -> list[tuple[str, bool]]:  # noqa: FBT001
        """Take note of one name of a listing; returns the folder to walk next, if it is one."""
        try:
            if entry.is_symlink():
                return self._link(entry, path, is_linked)
            if entry.is_dir(follow_symlinks=False):
                return self._subfolder(entry.name, path, is_linked)
            if entry.name.endswith(SUFFIX):
                self._file(entry.name, path, entry.stat(follow_symlinks=False))
        except OSError as error:
            self._trouble(path, error)
        return []

    def _subfolder(self, name: str, path: str, is_linked: bool) -> list[tuple[str, bool]]:  # noqa: FBT001
        if not is_walked(name):
            return []
        if not is_text(name):
            self.unreadable.append((printable(path), "the name is not UTF-8"))
            return []
        return [(path, is_linked)]

    def _link(self, entry: os.DirEntry[str], path: str, is_linked: bool) -> list[tuple[str, bool]]:  # noqa: FBT001
        if not is_walked(entry.name):
            return []
        is_markdown = entry.name.endswith(SUFFIX)
        if is_markdown and layout.leftover(entry.name) == "leftover":
            return []  # an editor's lock may be a dangling link (`.#x.md`)
        target, reason = link_target(self.root, entry.path)
        if is_linked and target and entry.is_dir():
            reason = "is a link below a link"
        if reason:
            self.links.append((printable(path), reason))
            return []
        if entry.is_dir():
            return self._subfolder(entry.name, path, is_linked=True)
        if is_markdown:
            self._file(entry.name, path, entry.stat())
        return []

    def _file(self, name: str, path: str, status: os.stat_result) -> None:
        found: str = layout.leftover(name)
        if found == "leftover":
            return
        if not found and not self._is_memory(path):
            found = _outside(path)
            if found == "leftover":
                return
        if not is_text(name):
            self.unreadable.append((printable(path), "the name is not UTF-8"))
        elif not stat.S_ISREG(status.st_mode):
            self.unreadable.append((path, "is not a regular file"))
        elif found == "conflict":
            self.conflicts.append(path)
        elif found == "stray":
            self.strays.append(path)
        else:
            self.files.append(_disk_file(RelPath(path), status))

    def _is_memory(self, path: str) -> bool:
        """Tell whether memory is read from a path; in most folders any name will do, so one answer serves all."""
        folder = path.rpartition("/")[0]
        if folder != self._folder:
            self._folder, self._takes_any_name = folder, None
            return layout.place(RelPath(path)) is not None
        if self._takes_any_name is None:
            self._takes_any_name = layout.place(RelPath(f"{folder}/any name.md")) is not None
        return self._takes_any_name or layout.place(RelPath(path)) is not None

    def _trouble(self, path: str, error: OSError) -> None:
        """Note what cannot be read; what vanished under the walk is normal."""
        if error.errno not in GONE:
            self.unreadable.append((printable(path), _words(error)))


def sort(path: str) -> str:
    """Tell what a path ending in `.md` is by its name and place: `memory`, `conflict`, `stray` or `leftover`."""
    found = layout.leftover(path.rpartition("/")[2])
    if found:
        return found
    return "memory" if layout.place(RelPath(path)) is not None else _outside(path)


def _outside(path: str) -> Literal["stray", "leftover"]:
    """Tell what a path is that lies in no place of memory: prompts of the person's own are where they belong."""
    return "leftover" if path.startswith(f"{config.PROMPTS}/") else "stray"


def look(root: Path, path: RelPath) -> DiskFile | Absent | Unreadable:
    """Tell what is at one path now. Blocking; never raises for what it meets on disk."""
    top = os.path.realpath(root)
    where = f"{top}/{path}"
    try:
        status = os.lstat(where)
        real = os.path.realpath(where)
        if real != where and not _is_readable_place(top, real):
            return Unreadable(reason="leads out of the memory through a symbolic link")
        if stat.S_ISLNK(status.st_mode):
            status = os.stat(where)  # noqa: PTH116
    except OSError as error:
        if error.errno in GONE:
            return _absent(top, path)
        return Unreadable(reason=_words(error))
    if stat.S_ISREG(status.st_mode):
        return _disk_file(path, status)
    if stat.S_ISDIR(status.st_mode):
        return Absent(parent_lists=True)
    return Unreadable(reason="is not a regular file")


def changed(before: Scan, after: Scan) -> tuple[set[RelPath], set[str]]:
    """Compare two scans: memory files that were added, modified or removed, and the same for all other Markdown.

    A file that `after` could not see is not in the answer.
    """
    paths = {path for path, file in after.files.items() if before.files.get(path) != file}
    gone = before.files.keys() - after.files.keys()
    paths |= {path for path in gone if after.knows(path)}
    others = set(before.conflicts + before.strays) ^ set(after.conflicts + after.strays)
    return paths, others


def printable(path: str) -> str:
    """Return a path that may hold undecodable bytes as text that every encoder takes."""
    return path.encode("utf-8", "backslashreplace").decode("utf-8")


def is_text(name: str) -> bool:
    """Tell whether a name is valid Unicode: one that is not could go into no database and no answer."""
    return name.isascii() or not any("\ud800" <= char <= "\udfff" for char in name)


def _absent(root: str, path: RelPath) -> Absent | Unreadable:
    """Find the nearest folder that is left above a missing path, and see whether it lists without it."""
    parts = PurePosixPath(path).parts
    for n in range(len(parts) - 1, -1, -1):
        folder = "/".join((root, *parts[:n]))
        try:
            names = os.listdir(folder)  # noqa: PTH208
        except OSError as error:
            if n and error.errno in GONE:
                continue
            return Absent(parent_lists=False) if error.errno in GONE else Unreadable(reason=_words(error))
        # A name that is listed and still cannot be reached came back meanwhile, or leads nowhere: not gone.
        return Absent(parent_lists=parts[n] not in names)
    return Absent(parent_lists=False)


def _is_readable_place(root: str, real: str) -> bool:
    """Tell whether a resolved path is below the root, and in folders that are read."""
    inside = real.removeprefix(root.rstrip("/") + "/")
    return inside != real and all(map(is_walked, PurePosixPath(inside).parent.parts))


def _disk_file(path: RelPath, status: os.stat_result) -> DiskFile:
    return DiskFile(path=path, inode=status.st_ino, size=status.st_size, mtime_ns=status.st_mtime_ns)


def _words(error: OSError) -> str:
    """Return what the system says, without the path."""
    return (error.strerror or type(error).__name__).lower()
