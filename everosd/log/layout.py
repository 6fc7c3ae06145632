"""Where memory lives below the root: ids as path segments, paths as places, and what is no memory at all."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import unicodedata
import urllib.parse
from pathlib import Path, PurePosixPath
from typing import Literal, assert_never

import msgspec

from everosd import errors, types
from everosd.log import kind as kinds

MAX_SEGMENT_BYTES = 200
"""File systems take 255; the rest is left for temporary names and `.part2`."""
MAX_ID_CHARS = 128
"""As the HTTP contract has it."""
MAX_MEMORY_PATH_CHARS = 512
"""Of a typed memory's path; with the longest owner segments a path then stays far below 4,096 bytes."""
MEMORY_TYPES = ("working", "episodic", "semantic", "procedural", "identity")
"""What a typed memory can be; also the stems of their files."""
UNKNOWN_DATE = "1970-01-01"
"""Date of a file that tells none."""

_HASH_HEX_CHARS = 16
_UNSAFE = frozenset('/\\<>:"|?*%~\u2028\u2029\ufeff')
_SHORTENED = re.compile(r"~[0-9a-f]{16}$")
_UNUSABLE = re.compile(r"[\0\ud800-\udfff]")
"""No name holds a NUL; one that is no UTF-8 cannot be shown, asked for or stored."""
_PERCENT = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
_RESERVED_ON_WINDOWS = re.compile(
    r"(?:con|prn|aux|nul|conin\$|conout\$|(?:com|lpt)[0-9\u00b9\u00b2\u00b3]) *(?:\.|$)", re.IGNORECASE
)
_SCOPE_ID = re.compile(r"[a-zA-Z0-9_.@+-]+")
_RESERVED_SCOPE_IDS = frozenset((".index", ".tmp", ".lock", ".cache", "default_app", "default_project"))
_DATE = re.compile(r"(?<!\d)(\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01]))(?!\d)")
_PART = re.compile(r"\.part(\d{1,6})\.md$")
_LEFTOVER = re.compile(
    r"^\.|^4913$|~$|^#.*#$|\.tmp(?:\.[^.]*)*$|\.sw[a-p]x?$|\.(?:bak|orig|part|crdownload)$", re.IGNORECASE
)
_CONFLICT = re.compile(
    r"\.sync-conflict-|\([^()]*\bconflict(?:ed)?[ _-]+cop(?:y|ies)\b[^()]*\)|_conflict-\d{8}", re.IGNORECASE
)
_OWNER_FOLDERS: dict[str, types.OwnerType] = {"users": "user", "agents": "agent", "sessions": "session"}
_N_OWNER_PARTS = 4
"""`<app>/<project>/users/<id>`."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """What a path says about the file that stands there."""

    owner: types.Owner
    """The path decides; an id that was shortened is completed from the frontmatter when the file is read."""
    kind: str
    """Name of the kind; session logs are `message`, whatever their rows are."""
    date: str | None = None
    """`YYYY-MM-DD` from the file name; None means that the name tells none."""
    memory_type: str = ""
    """Of typed memories, where the file name tells one."""
    memory_path: str = ""
    """Of typed memories: the folders below `memories/`, decoded."""
    part: int = 1
    """2 and up for the files that take a day's entries while its first file cannot be rewritten."""
    name: str = ""
    """Name of a skill; for files that have not the usual name, their path below the kind's folder."""
    is_shortened: bool = False
    """The owner's segment is a prefix and a hash: `owner.id` is that segment until the frontmatter tells more."""


def encode(id_: str, *, fold_case: bool = False) -> str:
    """Return the path segment of an id; two ids (compared in NFC) never share one.

    Plain names stay readable; what some file system refuses becomes `%XX` of its UTF-8. With `fold_case`, for roots
    that do not tell `A` from `a`, every character that has another case is written so too.

    Raises:
        RequestError: the id is empty or holds half a surrogate pair.
    """
    text = types.nfc(id_)
    if not text or any("\ud800" <= char <= "\udfff" for char in text):
        raise _refused(field="id", reason="must be text and not empty")
    reserved = _RESERVED_ON_WINDOWS.match(text) is not None
    out: list[str] = []
    was_encoded = False
    for at, char in enumerate(text):
        is_edge = (at == 0 and char in ". ") or (at == len(text) - 1 and char in ". ")
        # A mark after `%3C` would melt into its last letter when a sync tool normalises the name.
        is_glued = was_encoded and unicodedata.combining(char) != 0
        is_cased = fold_case and char.casefold() != char
        was_encoded = is_edge or is_glued or is_cased or (at == 0 and reserved) or char in _UNSAFE or _is_control(char)
        out.append("".join(f"%{byte:02X}" for byte in char.encode()) if was_encoded else char)
    segment = "".join(out)
    if len(segment.encode()) <= MAX_SEGMENT_BYTES:
        return segment
    return f"{_prefix(out)}{ending(text)}"


def ending(id_: str) -> str:
    """Return what the segment of an id ends in where it is shortened."""
    digest = hashlib.sha256(types.nfc(id_).encode(errors="surrogatepass"))
    return f"~{digest.hexdigest()[:_HASH_HEX_CHARS]}"


def _prefix(pieces: list[str]) -> str:
    room = MAX_SEGMENT_BYTES - 1 - _HASH_HEX_CHARS
    taken: list[str] = []
    for piece in pieces:
        room -= len(piece.encode())
        if room < 0:
            break
        taken.append(piece)
    return "".join(taken)


def _is_control(char: str) -> bool:
    return unicodedata.category(char) == "Cc"


def decode(segment: str) -> str:
    """Return the id that a path segment stands for, in NFC; a shortened segment is returned as it is."""
    if _SHORTENED.search(segment):
        return types.nfc(segment)
    return types.nfc(_PERCENT.sub(_decode_run, segment))


def _is_plain(segment: str) -> bool:
    """Whether a shortened segment is one that `encode` could have written."""
    return not segment.startswith((".", " ")) and not any(
        char in _UNSAFE - {"%", "~"} or _is_control(char) for char in segment
    )


def _decode_run(match: re.Match[str]) -> str:
    try:
        return urllib.parse.unquote_to_bytes(match[0]).decode()
    except UnicodeDecodeError:
        return match[0]  # by hand: not something that `encode` writes


def _refused(field: str, reason: str) -> errors.RequestError:
    return errors.RequestError(reason, field=field)


def is_case_insensitive(root: Path) -> bool:
    """Find out by a temporary file whether the root tells `a` from `A`; False where it cannot be tried."""
    try:
        with tempfile.NamedTemporaryFile(dir=root, prefix=".case-", suffix=".tmp") as probe:
            name = Path(probe.name)
            return name.with_name(name.name.upper()).exists()
    except OSError:
        return False


def check_scope_id(value: str, field: str) -> str:
    """Return an app, project, user or agent id in NFC.

    Args:
        value: the id as a program or a folder name gave it.
        field: dotted name for the message; `app_id` and `project_id` have the narrower alphabet of the contract.

    Raises:
        RequestError: it is empty, too long, reserved, or would be read as a path.
    """
    text = types.nfc(value)
    leaf = field.rpartition(".")[2]
    if not 1 <= len(text) <= MAX_ID_CHARS:
        raise _refused(field, f"must have 1 to {MAX_ID_CHARS} characters")
    if any(_is_control(char) or char in "\u2028\u2029" or "\ud800" <= char <= "\udfff" for char in text):
        raise _refused(field, "must not hold control characters")
    plain = urllib.parse.unquote(text)
    if any(char in form for char in "/\\" for form in (text, plain)) or plain.strip(". ") == "":
        raise _refused(field, "must not be a path")
    if _SHORTENED.search(text):
        raise _refused(field, "must not end like a shortened name (~ and 16 hex digits)")
    if leaf in ("app_id", "project_id"):
        folded = text.casefold()
        if _SCOPE_ID.fullmatch(text) is None:
            raise _refused(field, "may hold only letters, digits and _ . @ + -")
        if folded in _RESERVED_SCOPE_IDS or folded.endswith(".toml"):
            raise _refused(field, "is a reserved name")
    return text


def check_session_id(value: str, field: str = "session_id") -> str:
    """Return a session id in NFC: any 1 to 128 characters, for it is encoded and never a path.

    Raises:
        RequestError: it is empty, too long, or half a surrogate pair.
    """
    text = types.nfc(value)
    if not 1 <= len(text) <= MAX_ID_CHARS:
        raise _refused(field, f"must have 1 to {MAX_ID_CHARS} characters")
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise _refused(field, "must be valid text")
    return text


def check_memory_path(value: str, field: str = "path") -> str:
    """Return the path of a typed memory in NFC, without slashes at its ends.

    Raises:
        RequestError: it is empty, too long, or has an empty, `.` or `..` part or control characters.
    """
    text = types.nfc(value).strip("/")
    if not 1 <= len(text) <= MAX_MEMORY_PATH_CHARS:
        raise _refused(field, f"must have 1 to {MAX_MEMORY_PATH_CHARS} characters")
    parts = text.split("/")
    if any(not part.strip(". ") for part in parts):
        raise _refused(field, "must not have empty, . or .. parts")
    if any(_is_control(char) or "\ud800" <= char <= "\udfff" for char in text):
        raise _refused(field, "must not hold control characters")
    return text


def leftover(name: str) -> Literal["", "leftover", "conflict"]:
    """Say whether a file name is an editor's or a sync program's leftover, a conflict copy, or neither."""
    if _CONFLICT.search(name):
        return "conflict"
    return "leftover" if _LEFTOVER.search(name) else ""


def is_in_session(path: types.RelPath) -> bool:
    """Tell whether a path of memory is one of a session's."""
    return path.split("/", 3)[2:3] == ["sessions"]


def place(path: types.RelPath) -> Place | None:
    """Say whose memory of which kind stands at a path; None where none is read.

    Also None: editor leftovers, conflict copies, hidden folders that are no kind's, owners whose id is not allowed.
    """
    parts = PurePosixPath(path).parts
    if len(parts) <= _N_OWNER_PARTS or not path.endswith(".md") or leftover(parts[-1]) or _UNUSABLE.search(path):
        return None
    owner = _owner(parts[:_N_OWNER_PARTS])
    if owner is None:
        return None
    is_shortened = _SHORTENED.search(parts[_N_OWNER_PARTS - 1]) is not None
    found = _kind(owner.type, parts[_N_OWNER_PARTS:])
    if found is None:
        return None
    kind, below = found
    if any(part.startswith(".") for part in below):
        return None
    if kind.is_whole_file:
        name = below[0].removeprefix("skill_") if kind.folder else ""
        return Place(owner=owner, kind=kind.name, name=decode(name) if name else "", is_shortened=is_shortened)
    return _daily(owner, kind, below, is_shortened=is_shortened)


def is_machine_log(path: types.RelPath) -> bool:
    """Tell whether only machines write what stands at a path: its entries are rows, and nobody's memories."""
    at = place(path)
    return at is not None and at.kind in kinds.ROWS


def segment_of(path: types.RelPath) -> str:
    """Return the owner's segment of a path that `place` accepts."""
    return PurePosixPath(path).parts[_N_OWNER_PARTS - 1]


def _owner(parts: tuple[str, ...]) -> types.Owner | None:
    app, project, folder, segment = parts
    owner_type = _OWNER_FOLDERS.get(folder)
    if owner_type is None or any(part.startswith(".") for part in parts):
        return None
    owner_id = decode(segment)
    try:
        app_id, project_id = _scope_id(app, "default_app"), _scope_id(project, "default_project")
        if owner_type == "session":
            check_session_id(owner_id[:MAX_ID_CHARS])
        elif not _SHORTENED.search(segment):
            check_scope_id(owner_id, f"{owner_type}_id")
    except errors.RequestError:
        return None
    return types.Owner(app=app_id, project=project_id, type=owner_type, id=owner_id)


def _scope_id(segment: str, default: str) -> str:
    return "default" if segment == default else check_scope_id(decode(segment), "app_id")


def _kind(owner_type: types.OwnerType, parts: tuple[str, ...]) -> tuple[kinds.Kind, tuple[str, ...]] | None:
    """Return the kind and the parts below its folder."""
    for kind in kinds.KINDS:
        if owner_type not in kind.owners:
            continue
        if kind.folder:
            if len(parts) > 1 and parts[0] == kind.folder and (not kind.is_whole_file or _is_skill(kind, parts[1:])):
                return kind, parts[1:]
        elif not kind.is_whole_file or parts == (f"{kind.stem}.md",):
            return kind, parts
    return None


def _is_skill(kind: kinds.Kind, below: tuple[str, ...]) -> bool:
    is_there = len(below) == 2 and below[1] == f"{kind.stem}.md"  # noqa: PLR2004 - a folder and the file in it
    return is_there and is_name(decode(below[0].removeprefix("skill_")))


def is_name(text: str) -> bool:
    """Tell whether a text can be the name of a skill: whoever makes a file of it must not be led elsewhere."""
    return bool(text.strip(". ")) and not any(char in "/\\" or _is_control(char) for char in text)


def _daily(owner: types.Owner, kind: kinds.Kind, below: tuple[str, ...], *, is_shortened: bool) -> Place:
    file_name = below[-1]
    dates = _DATE.findall(file_name)
    date = dates[-1] if dates else None
    part_match = _PART.search(file_name)
    part = max(1, int(part_match[1])) if part_match else 1
    stem = file_name[: -len(".md")] if date is None else file_name[: file_name.rindex(date)].rstrip("-")
    is_memory = kind.name == "memory"
    usual = _file_name(kind.stem or stem, date or UNKNOWN_DATE, part)
    is_usual = file_name == usual and (stem in MEMORY_TYPES if is_memory else len(below) == 1)
    return Place(
        owner=owner,
        kind=kind.name,
        date=date,
        memory_type=stem if is_memory and stem in MEMORY_TYPES else "",
        memory_path="/".join(decode(piece) for piece in below[:-1]) if is_memory else "",
        part=part,
        name="" if is_usual else types.nfc("/".join(below)),
        is_shortened=is_shortened,
    )


def _file_name(stem: str, date: str, part: int) -> str:
    return f"{stem}-{date}.md" if part == 1 else f"{stem}-{date}.part{part}.md"


class Layout:
    """Paths below one memory root."""

    def __init__(self, root: Path, fold_case: bool = False) -> None:  # noqa: FBT001, FBT002 - the interface others build on
        """Take the root and whether its file system folds case (`is_case_insensitive`)."""
        self.root = root
        self.fold_case = fold_case

    def owner_folder(self, owner: types.Owner) -> types.RelPath:
        """Return the folder that holds everything of an owner."""
        app = "default_app" if owner.app == types.DEFAULT_APP else self._encode(owner.app)
        project = "default_project" if owner.project == types.DEFAULT_PROJECT else self._encode(owner.project)
        match owner.type:
            case "user":
                folder = "users"
            case "agent":
                folder = "agents"
            case "session":
                folder = "sessions"
            case _:
                assert_never(owner.type)
        # A person's id that nobody knows in full any more stands for its segment; session ids may look like one.
        is_segment = owner.type != "session" and _SHORTENED.search(owner.id) is not None
        segment = owner.id if is_segment and _is_plain(owner.id) else self._encode(owner.id)
        return types.RelPath(f"{app}/{project}/{folder}/{segment}")

    def path_for(
        self,
        owner: types.Owner,
        kind: str,
        date: str | None,
        *,
        memory_type: str = "",
        memory_path: str = "",
        part: int = 1,
        name: str = "",
    ) -> types.RelPath:
        """Return where entries of a kind and a day go.

        Args:
            owner: whose they are.
            kind: name of the kind.
            date: `YYYY-MM-DD`; None for kinds that are one file each.
            memory_type: of typed memories (default `episodic`).
            memory_path: of typed memories.
            part: 2 and up while the first file of the day cannot be rewritten.
            name: of a skill.
        """
        row = kinds.BY_NAME[kind]
        folder = self.owner_folder(owner)
        if row.folder:
            folder = types.RelPath(f"{folder}/{row.folder}")
        if row.is_whole_file:
            skill = f"/skill_{self._encode(name)}" if row.folder else ""
            return types.RelPath(f"{folder}{skill}/{row.stem}.md")
        stem = row.stem
        if kind == "memory":
            stem = memory_type or "episodic"
            pieces = check_memory_path(memory_path).split("/")
            folder = types.RelPath("/".join((folder, *(self._encode(piece) for piece in pieces))))
        return types.RelPath(f"{folder}/{_file_name(stem, date or UNKNOWN_DATE, part)}")

    def _encode(self, id_: str) -> str:
        return encode(id_, fold_case=self.fold_case)

    def absolute(self, path: types.RelPath) -> Path:
        """Return the absolute path, checked a second time to lie in the root after all links are followed.

        Raises:
            LogError: it does not.
        """
        if path.startswith("/") or "\0" in path or any(part in ("..", ".", "") for part in path.split("/")):
            raise errors.LogError(path, "is not a path below the memory root")
        root = Path(os.path.realpath(self.root))
        if not Path(os.path.realpath(root / path)).is_relative_to(root):
            raise errors.LogError(
                path, "leads out of the memory root", hint="remove the link, or point the root at its target"
            )
        return self.root / path
