"""The text of a typed memory: what is written of it, and what a change makes of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from everosd import errors
from everosd.log import entry, entry_text, kind, layout, replacement, view
from everosd.store import row as store_row

KIND = "memory"
SUBJECT, CONTENT = "Subject", "Content"
DEFAULT_BUCKET = "public"

ORDER = (
    *("owner_id", "session_id", "timestamp", "memory_type", "bucket", "scope", "team_id", "importance", "confidence"),
    *("expires_at", "pinned", "semantic_key", "promotion_key", "sources", "occurred_from", "occurred_to"),
    *("metadata", "provenance", "updated_at", "version"),
)
"""Inline fields as they are written first; what a person moves stays where it is."""
_KEPT_REDACTED = frozenset(
    (
        *(
            "owner_id",
            "owner_type",
            "session_id",
            "timestamp",
            "memory_type",
            "bucket",
            "scope",
            "team_id",
            "importance",
        ),
        *("confidence", "expires_at", "pinned", "status", "sources", "occurred_from", "occurred_to", "updated_at"),
        *("version", "parent_type", "parent_id", "sender_ids", "report_id", "mode", "source_count", "read_from"),
        "extracted_by",
    )
)
"""Fields that say nothing of what the text said."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What of a memory is to be another."""

    content: str | None = None
    """None: stays."""
    subject: str | None = None
    """None: stays; empty: goes."""
    fields: Mapping[str, str] = {}
    """Inline fields by name, as written; an empty one goes. Never mutated."""


def check_path(value: str) -> str:
    """Return the path of a typed memory in NFC, without slashes at its ends.

    Raises:
        RequestError: it is none that there can be; a part whose folder could not bear its name is refused, too.
    """
    text = layout.check_memory_path(value)
    if any(layout.encode(part).endswith(layout.ending(part)) for part in text.split("/")):
        message = f"must not have a part of more than {layout.MAX_SEGMENT_BYTES} bytes, as its folder is called"
        raise errors.RequestError(message, field="path")
    return text


def draft(change: Change) -> entry.Draft:
    """Return a new memory."""
    written = {name: value for name in ORDER if (value := change.fields.get(name, ""))}
    subject = ((SUBJECT, change.subject),) if change.subject else ()
    return entry.Draft(fields=written, sections=(*subject, (CONTENT, change.content or "")))


def changed(old: entry.Entry, change: Change, number: int, updated_at: str) -> entry.Entry:
    """Return the entry after a change, as version `number`; the very entry where it says all that already."""
    fields = {name: text for name, text in old.fields.items() if change.fields.get(name, text)}
    fields |= {name: text for name, text in change.fields.items() if text}
    new = _said(msgspec.structs.replace(old, fields=fields), change)
    if (new.fields, new.heading, new.preamble, new.sections) == (old.fields, old.heading, old.preamble, old.sections):
        return old
    fields = {name: text for name, text in new.fields.items() if name not in ("updated_at", "version")}
    fields |= {"updated_at": updated_at, "version": str(number)}
    return msgspec.structs.replace(new, fields=fields, raw="", digest=b"")


def _said(old: entry.Entry, change: Change) -> entry.Entry:
    seen = seen_of(old)
    subject = seen.subject if change.subject is None else change.subject
    is_same_subject = subject == seen.subject
    if (change.content is None or change.content == seen.content) and is_same_subject:
        return old
    content = seen.content if change.content is None else change.content
    titles = {title.casefold() for title, _ in old.sections}
    if CONTENT.casefold() in titles:
        others = [each for each in old.sections if each[0].casefold() not in (SUBJECT.casefold(), CONTENT.casefold())]
        preamble = old.preamble
    else:  # written by hand: what it says is all that stands there
        others, preamble = [], ""
    head = ((SUBJECT, subject),) if subject else ()
    heading = old.heading if is_same_subject or old.form == "hand" else ""
    return msgspec.structs.replace(
        old, heading=heading, preamble=preamble, sections=(*head, *others, (CONTENT, content))
    )


def redacted(old: entry.Entry, replacement_text: str) -> entry.Entry:
    """Return an entry without anything that it said, its keys and what is told beside it included."""
    fields = {name: text for name, text in old.fields.items() if name in _KEPT_REDACTED}
    main = kind.BY_NAME[old.kind].sections[-1]
    return msgspec.structs.replace(
        old, fields=fields, heading="", preamble="", sections=((main, replacement_text),), raw="", digest=b""
    )


def of_row(found: store_row.EntryRow) -> entry.Entry:
    """Take the text of an entry apart."""
    return entry_text.read(found.kind, found.entry_id, found.raw, form=found.form)


def seen_of(found: entry.Entry) -> kind.Memory:
    """Return a memory with its fields."""
    seen = view.view(found)
    assert isinstance(seen, kind.Memory)  # noqa: S101  # asked of memories alone
    return seen


def digest_of(found: entry.Entry) -> str:
    """Return 32 hex that stand for an entry as it stands, or will stand, in its file.

    Raises:
        ValueError: it cannot be written.
    """
    if found.digest:
        return found.digest.hex()
    return digest_of_text(found.kind, found.id, replacement.raw(found))


def digest_of_text(name: str, entry_id: str, raw: str) -> str:
    """Return 32 hex that stand for the raw text of an entry."""
    return entry_text.digest(name, entry_id, raw).hex()
