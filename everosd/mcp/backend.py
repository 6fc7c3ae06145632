"""Who carries a tool's request to the daemon: over HTTP, or inside it."""

from __future__ import annotations

from typing import Protocol

import msgspec

from everosd import errors


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What a route answered."""

    status: int
    body: dict[str, object]
    """The whole envelope, decoded."""


class Backend(Protocol):
    """Sends requests to the routes of one daemon."""

    async def call(self, method: str, path: str, body: object = None, *, is_read: bool = False) -> Reply:
        """Send one request and return the answer, whatever its status; a cancelled call is not waited for any longer.

        `is_read`: it changes nothing, so it is sent once more where the daemon went away before it had answered.

        Raises:
            Unanswered: nobody answered.
        """


class Unanswered(errors.EverosdError):
    """No answer came: there is no daemon, or it ended meanwhile."""

    def __init__(self, reason: str, *, is_sent: bool, hint: str = "") -> None:
        """Say why; `is_sent`: the request had been sent, and nobody knows what became of it."""
        super().__init__(f"the memory daemon did not answer: {reason}")
        self.is_sent = is_sent
        self.hint = hint or (
            "it may have been carried out all the same: look before you send it again"
            if is_sent
            else "nothing was done: send it again in a moment; if that does not help, see `everosd doctor`"
        )
