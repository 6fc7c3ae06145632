"""Ids, scope and units: the words that every stage shares."""

from __future__ import annotations

import re
import unicodedata
from typing import Literal, NewType

import msgspec

Lsn = NewType("Lsn", int)
"""Number of a change in the ledger: positive, strictly growing, never reused while the ledger lives."""

EntryKey = NewType("EntryKey", int)
"""Row number of one entry in the ledger; what the indexes know an entry by. Never reused."""

EntryId = NewType("EntryId", str)
"""`<prefix>_<YYYYMMDD>_<seq>`, compared as written; unique within one owner."""

RelPath = NewType("RelPath", str)
"""A path below the memory root, with forward slashes, as found on disk."""

OwnerType = Literal["user", "agent", "session"]

PREFIXES = ("ep", "af", "fs", "ac", "ms", "mem", "lc", "ca")
"""What entry ids begin with, each of one kind (`log.kind`); messages and segments share `ms`."""

ENTRY_ID = re.compile(rf"(?P<prefix>{'|'.join(PREFIXES)})_(?P<date>\d{{8}})_(?P<seq>\w+)")
PUBLIC_ID = re.compile(rf"^(?P<owner>.+)_(?P<entry>(?:{'|'.join(PREFIXES)})_\d{{8}}_\w+)$", re.DOTALL)

MAX_NUMBER = 10**8 - 1
"""Of an entry id: eight digits. Greater ones were written by hand, and are names like any other."""

DEFAULT_APP = "default"
DEFAULT_PROJECT = "default"


class Owner(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """Whose memory an entry is: the scope that no filter, answer or missing parameter widens."""

    app: str
    """App id, NFC; `default` where none was named."""
    project: str
    """Project id, NFC; `default` where none was named."""
    type: OwnerType
    """`session` owns raw messages; people and agents own the rest."""
    id: str
    """User, agent or session id, NFC, as programs write it (never a path segment)."""


class Space(msgspec.Struct, frozen=True, kw_only=True):
    """Which vectors can be compared with each other: those of one model, one width, one calibration."""

    model: str
    """As the provider calls it."""
    dim: int
    """Numbers per vector."""
    calibration: str = ""
    """Name of what was done to the model's own vectors; empty: nothing."""

    def __str__(self) -> str:
        """Return what people are shown."""
        return f"{self.model} ({self.dim} wide)"


class PublicId(msgspec.Struct, frozen=True, kw_only=True):
    """An id as the API shows it, taken apart."""

    owner_id: str
    entry_id: EntryId


def numbered(entry_id: str) -> tuple[str, str, int] | None:
    """Return prefix, date and number of an entry id; None where it has no number of ours."""
    match = ENTRY_ID.fullmatch(entry_id)
    if match is None or not (match["seq"].isascii() and match["seq"].isdigit()):
        return None
    digits = match["seq"].lstrip("0") or "0"
    return (match["prefix"], match["date"], int(digits)) if len(digits) <= len(str(MAX_NUMBER)) else None


def nfc(text: str) -> str:
    """Return `text` in Unicode NFC, the form in which ids are compared."""
    return unicodedata.normalize("NFC", text)


def public_id(owner_id: str, entry_id: str) -> str:
    """Return the id that the API shows for an entry of an owner."""
    return f"{owner_id}_{entry_id}"


def parse_public_id(text: str) -> PublicId | None:
    """Take a public id apart, read from the right; None when `text` is not one."""
    match = PUBLIC_ID.match(text)
    if match is None:
        return None
    return PublicId(owner_id=match["owner"], entry_id=EntryId(match["entry"]))
