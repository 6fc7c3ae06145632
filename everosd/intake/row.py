"""Messages and segments as rows of a session's log: written, and read back."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Sequence
from typing import Literal, cast

import msgspec

from everosd import clock, types
from everosd.intake import message
from everosd.log import entry, escape, kind, view

State = Literal["open", "done", "followed"]
"""Of a segment: cut; its Episodes are on disk; facts, clusters and the rest are, too."""

ROLES: tuple[message.Role, ...] = ("user", "assistant", "tool")


class SegmentRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row about a segment."""

    id: str
    message_ids: tuple[str, ...]
    """Only the row that cuts it names them."""
    state: State
    reason: message.Reason


def message_id(session_id: str, timestamp_us: int, index: int) -> str:
    """Return the id of a message, as programs know it."""
    return f"m_{session_id}_{timestamp_us // 1000}_{index}"


def memcell_id(session: types.Owner, message_ids: Sequence[str]) -> str:
    """Return the id of the segment of these messages: the same ones always make the same id."""
    text = "\x1f".join((session.app, session.project, session.id, *message_ids))
    return f"mc_{hashlib.blake2b(text.encode('utf-8', 'surrogatepass'), digest_size=6).hexdigest()}"


def digest(one: message.Message) -> bytes:
    """Return 16 bytes of what was said, whoever's turn it was: two messages under one key are the same if these are."""
    parts = (one.sender_id, one.role, one.text, one.content, one.tool_calls, one.tool_call_id)
    said = b"\x1f".join(part.encode("utf-8", "surrogatepass") for part in parts)
    return hashlib.blake2b(said, digest_size=16).digest()


def iso(timestamp_us: int) -> str:
    """Return a moment as it stands in the log: ISO 8601, UTC."""
    return clock.from_us(timestamp_us).astimezone(dt.UTC).isoformat()


def of_message(one: message.Message, *, duplicate_of: str = "", is_deferred: bool = False) -> entry.Draft:
    """Return the row that keeps a message."""
    fields = {
        "type": "message",
        "message_id": one.id,
        "sender_id": one.sender_id,
        "sender_name": one.sender_name,
        "role": one.role,
        "timestamp": iso(one.timestamp_us),
        "tool_calls": one.tool_calls,
        "tool_call_id": one.tool_call_id,
        "duplicate_of": duplicate_of,
        "content": one.content,
        "is_deferred": "true" if is_deferred else "",
    }
    return entry.Draft(fields={name: value for name, value in fields.items() if value}, sections=(("Text", one.text),))


def of_segment(segment: message.Segment, state: State, at: dt.datetime) -> entry.Draft:
    """Return a row about a segment; the one that cuts it names its messages."""
    fields = {"type": "segment", "memcell_id": segment.id, "timestamp": at.astimezone(dt.UTC).isoformat()}
    if state == "open":
        fields["message_ids"] = escape.write_list(one.id for one in segment.messages)
        fields["reason"] = segment.reason
    return entry.Draft(fields=fields | {"state": state})


def read_message(found: entry.Entry) -> tuple[message.Message, str, bool] | None:
    """Return a kept message, what it is a duplicate of, and whether it was deferred; None where a person made it illegible."""
    seen = view.view(found)
    if not isinstance(seen, kind.Message) or not seen.message_id or seen.role not in ROLES:
        return None
    timestamp_us = view.moment_us(seen.timestamp, dt.UTC)
    if timestamp_us is None or not seen.sender_id:
        return None
    one = message.Message(
        id=seen.message_id,
        sender_id=seen.sender_id,
        sender_name=seen.sender_name or "",
        role=seen.role,
        timestamp_us=timestamp_us,
        text=seen.text,
        content=seen.content,
        tool_calls=seen.tool_calls,
        tool_call_id=seen.tool_call_id or "",
    )
    return one, seen.duplicate_of, seen.is_deferred == "true"


def forgotten(found: entry.Entry) -> entry.Entry:
    """Return what is left of a kept message whose text is removed for good: that there was one, when, and by whom."""
    kept = ("type", "message_id", "sender_id", "role", "timestamp", "is_deferred")
    fields = {name: text for name, text in found.fields.items() if name in kept} | {"forgotten": "true"}
    return msgspec.structs.replace(found, fields=fields, heading="", preamble="", sections=(), raw="", digest=b"")


def is_forgotten(found: entry.Entry) -> bool:
    """Tell whether a row is what is left of a message whose text was removed for good."""
    return found.kind == "message" and found.fields.get("forgotten") == "true"


def read_segment(found: entry.Entry) -> SegmentRow | None:
    """Return a row about a segment; None where a person made it illegible."""
    seen = view.view(found)
    if not isinstance(seen, kind.Segment) or not seen.memcell_id or seen.state not in ("open", "done", "followed"):
        return None
    return SegmentRow(
        id=seen.memcell_id,
        message_ids=seen.message_ids,
        state=cast("State", seen.state),
        reason=cast("message.Reason", seen.reason or "flush"),
    )
