"""A message as it is given, as it is kept, and the segment of a session that is read as one."""

from __future__ import annotations

from typing import Literal

import msgspec

from everosd import types

Role = Literal["user", "assistant", "tool"]

Reason = Literal["flush", "tokens", "messages", "gap", "idle", "model"]
"""Why a segment was cut."""


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message of a session, in the order in which it is to be read."""

    id: str
    """`m_<session>_<ms>_<idx>`; unique within its session."""
    sender_id: str
    sender_name: str = ""
    """Empty where none was given."""
    role: Role
    timestamp_us: int
    """By the sender's clock, microseconds since 1970."""
    text: str
    """All of its text, secrets made unreadable; may be empty."""
    content: str = ""
    """JSON of the items as they arrived where there were several or none; empty: the text is all there was."""
    tool_calls: str = ""
    """JSON as it arrived; empty without tool calls."""
    tool_call_id: str = ""

    @property
    def name(self) -> str:
        """What the sender is called, on one line."""
        return " ".join(self.sender_name.split()) or self.sender_id


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of a session that is extracted as one: the unit of retry."""

    session: types.Owner
    """Of type `session`."""
    id: str
    """`mc_<12 hex>`; unique within its session."""
    messages: tuple[Message, ...]
    """In time order, at least one."""
    reason: Reason

    @property
    def user_ids(self) -> tuple[str, ...]:
        """Senders with role `user`, in order of appearance: whose memory an Episode of this becomes."""
        return tuple(dict.fromkeys(one.sender_id for one in self.messages if one.role == "user"))

    @property
    def sender_ids(self) -> tuple[str, ...]:
        """Everybody who sent something, in order of appearance."""
        return tuple(dict.fromkeys(one.sender_id for one in self.messages))

    @property
    def timestamp_us(self) -> int:
        """Moment of the last message."""
        return max(one.timestamp_us for one in self.messages)

    @property
    def has_tools(self) -> bool:
        """Whether tools were used in it."""
        return any(one.tool_calls or one.role == "tool" for one in self.messages)


class Extracted(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a segment: the same for each of its users."""

    subject: str
    """One line, at most 120 characters."""
    summary: str
    content: str
    by: str
    """`verbatim`, or the model that wrote it."""
