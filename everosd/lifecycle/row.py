"""Rows of `.lifecycle/` about one memory, as drafts; fields that say nothing are not written."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import msgspec

from everosd.log import entry, escape

KIND = "lifecycle"
BEFORE = "Before"
"""Title of the section that has the text of an entry before a change."""
REPLACEMENT = "Replacement"
"""Title of the section of a tombstone that has what stands in the place of the text, where it is not the usual word."""

VERSIONS = ("update", "pin")
"""Actions of rows that end a version."""
TOMBSTONES = ("redact", "hard_delete")
"""Actions of rows that say that a text is gone for good."""
MADE = "summarize"
"""Action of the row that says what a summary was made of; it outlives the summary, which would come back else."""
REMOVED = "removed"
"""Action of the row that says that all is done that a tombstone says."""
CONFLICT = "conflict"
"""Action of rows that keep a text whose place another one has taken."""
SNAPSHOTS = ("delete", "archive")
"""Actions of rows that hold the text as it was when it went."""


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """A change of status."""

    action: str
    """`delete`, `restore`, `expire`, `archive` or `supersede`."""
    target: str
    base: str
    """As written in the entry; `active` where nothing is."""
    was: str
    """In force before."""
    value: str
    reason: str = ""
    run_id: str = ""
    successor: str = ""
    before: str = ""
    """Raw text of the entry, as a snapshot."""
    file: str = ""
    """Where the entry stood, of a snapshot."""


def status(change: Status, at: dt.datetime) -> entry.Draft:
    """Return the row of a change of status."""
    return _draft(
        {
            "timestamp": stamp(at),
            "action": change.action,
            "target": change.target,
            "run_id": change.run_id,
            "field": "status",
            "base": change.base,
            "was": change.was,
            "value": change.value,
            "successor": change.successor,
            "file": change.file,
            "reason": change.reason,
        },
        change.before,
    )


def version(
    action: str,
    target: str,
    *,
    number: int,
    digest: str,
    before: str,
    at: dt.datetime,
    importance: tuple[str, str] = ("", ""),
    reason: str = "",
    run_id: str = "",
) -> entry.Draft:
    """Return the row that ends a version: to be on disk before the entry says anything else.

    Args:
        action: `update` or `pin`.
        target: Entry id.
        number: Of the version that ends here, from 1.
        digest: 32 hex of the entry after the change.
        before: Raw text of the entry before it.
        at: When.
        importance: As written in the entry before and after the change; equal: it stays.
        reason: Why; may be empty.
        run_id: Of the call; empty without.
    """
    fields = {
        "timestamp": stamp(at),
        "action": action,
        "target": target,
        "run_id": run_id,
        "version": str(number),
        "digest": digest,
        **_given(*importance),
        "reason": reason,
    }
    return _draft(fields, before)


def tombstone(
    action: str,
    target: str,
    *,
    at: dt.datetime,
    reason: str = "",
    message_ids: Sequence[str] = (),
    replacement: str = "",
) -> entry.Draft:
    """Return the row that says that a text is gone for good, what takes its place, and which messages may not bring it back."""
    fields = {
        "timestamp": stamp(at),
        "action": action,
        "target": target,
        "message_ids": escape.write_list(message_ids) if message_ids else "",
        "reason": reason,
    }
    return _draft(fields, replacement, REPLACEMENT)


def made(target: str, *, at: dt.datetime, sources: Sequence[str], reason: str = "", run_id: str = "") -> entry.Draft:
    """Return the row that says what a summary was made of: ids, each with `@` and the digest of what was read."""
    fields = {
        "timestamp": stamp(at),
        "action": MADE,
        "target": target,
        "run_id": run_id,
        "sources": escape.write_list(sources),
        "reason": reason,
    }
    return _draft(fields, "")


def conflict(target: str, before: str, at: dt.datetime) -> entry.Draft:
    """Return the row that keeps what a person had written into a second copy of an entry, which is replaced."""
    reason = "a second copy of it, with another text, stood where it was moved to"
    return _draft({"timestamp": stamp(at), "action": CONFLICT, "target": target, "reason": reason}, before)


def removed(mode: str, target: str, *, at: dt.datetime) -> entry.Draft:
    """Return the row that says that all is done that the tombstone of this mode says."""
    return _draft({"timestamp": stamp(at), "action": REMOVED, "target": target, "value": mode}, "")


def _given(was: str, value: str) -> dict[str, str]:
    return {} if was == value else {"field": "importance", "was": was, "value": value}


def stamp(at: dt.datetime) -> str:
    """Return a moment as rows have it."""
    return at.astimezone(dt.UTC).isoformat(timespec="microseconds")


def replacement(found: entry.Entry) -> str:
    """Return what a tombstone says is to stand in the place of the text; empty: the usual word."""
    return next((text for title, text in found.sections if title == REPLACEMENT), "")


def _draft(fields: dict[str, str], text: str, title: str = BEFORE) -> entry.Draft:
    sections = ((title, text),) if text else ()
    return entry.Draft(fields={name: value for name, value in fields.items() if value}, sections=sections)
