"""Where a session is cut into segments: pure, so that the same messages are always cut the same way."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from everosd import config
from everosd.intake import message

_HOUR_US = 3_600_000_000
_OVERHEAD_TOKENS = 8
"""What stands around a message: who said it, and when."""
_MOST_PER_CHAR = 3
"""Tokens; no text has more."""
_LATE_SHARE = 4
"""A limit cuts in the last quarter of what it allows, where the talk pauses."""


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """The first `n_messages` of what waits make a segment."""

    n_messages: int
    reason: message.Reason


def has_to_count(waiting: Sequence[message.Message], limits: config.BoundaryDetection) -> bool:
    """Tell whether `cuts` has to count tokens, with `models.piece`: so many characters may be more than a segment has."""
    return sum(map(_most, waiting)) >= limits.hard_token_limit


def _most(one: message.Message) -> int:
    """Return how many tokens a message has at most."""
    return (len(one.text) + len(one.tool_calls)) * _MOST_PER_CHAR + _OVERHEAD_TOKENS


def _sizes(waiting: Sequence[message.Message], limit: int, known: dict[str, int]) -> list[int]:
    """Return how much of a limit each message takes: a guess that is too high where all of it fits even so."""
    most = list(map(_most, waiting))
    if sum(most) < limit:
        return most
    from everosd.models import piece  # NumPy, which a short conversation does without

    for one in waiting:
        if one.id not in known:
            known[one.id] = piece.n_tokens(one.text) + piece.n_tokens(one.tool_calls) + _OVERHEAD_TOKENS
    return [known[one.id] for one in waiting]


def cuts(
    waiting: Sequence[message.Message],
    limits: config.BoundaryDetection,
    *,
    is_flush: bool,
    known: dict[str, int] | None = None,
) -> list[Cut]:
    """Return the segments that are complete, in order; what is left over goes on waiting.

    Args:
        waiting: Messages in time order.
        limits: What a segment may have at most, and which pause ends one.
        is_flush: Nothing is left over: the rest is a segment, too.
        known: Tokens by message id, of those that were counted before; more are added. Counting takes 0.2 ms each.
    """
    sizes = _sizes(waiting, limits.hard_token_limit, {} if known is None else known)
    found: list[Cut] = []
    start = 0
    while start < len(waiting):
        cut = _first(waiting, sizes, start, limits)
        if cut is None:
            break
        found.append(cut)
        start += cut.n_messages
    if is_flush and start < len(waiting):
        found.append(Cut(n_messages=len(waiting) - start, reason="flush"))
    return found


def _first(
    waiting: Sequence[message.Message], sizes: Sequence[int], start: int, limits: config.BoundaryDetection
) -> Cut | None:
    """Return the first cut behind `start`; None: nothing is complete."""
    gap_us = limits.gap_hours * _HOUR_US
    n_used = 0
    for at in range(start, len(waiting)):
        if at > start:
            if gap_us and waiting[at].timestamp_us - waiting[at - 1].timestamp_us >= gap_us:
                return Cut(n_messages=at - start, reason="gap")
            if n_used + sizes[at] > limits.hard_token_limit:
                return Cut(n_messages=_pause(waiting, start, at) - start, reason="tokens")
        n_used += sizes[at]
        if n_used >= limits.hard_token_limit:
            return Cut(n_messages=at + 1 - start, reason="tokens")
        if at + 1 - start >= limits.hard_msg_limit:
            return Cut(n_messages=_pause(waiting, start, at + 1) - start, reason="messages")
    return None


def _pause(waiting: Sequence[message.Message], start: int, end: int) -> int:
    """Return where to cut at the latest before `end`: at the longest pause of the last quarter, never within a turn.

    A turn is what a person says and all that follows from it: answers, calls of tools and what those return. Where the
    quarter has no start of a turn, the limit itself cuts.
    """
    earliest = end - (end - start) // _LATE_SHARE
    best, longest_us = end, -1
    if end == len(waiting) or waiting[end].role == "user":
        longest_us = waiting[end].timestamp_us - waiting[end - 1].timestamp_us if end < len(waiting) else 0
    for at in range(earliest, end):
        pause_us = waiting[at].timestamp_us - waiting[at - 1].timestamp_us
        if at > start and waiting[at].role == "user" and pause_us > longest_us:
            best, longest_us = at, pause_us
    return best
