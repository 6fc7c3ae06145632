"""Lines of standard input that the SDK does not take for a message: mended where that can be, answered where not.

The SDK passes over such a line in silence, and whoever sent it waits for an answer as long as it has patience. Half of a
surrogate pair is not rare: a program that cuts a text in the middle of an emoji sends it.
"""

from __future__ import annotations

import contextvars
import json
import re
from types import TracebackType
from typing import Any, Self

import anyio
import mcp_types
import pydantic
from mcp.shared.message import SessionMessage

_HALF = re.compile("[\ud800-\udfff]")
_INSTEAD = "\ufffd"
_MEMBER = 2  # names that lead to a member of a message: the kind of message, and its own


class Lines:
    """A stream of messages without anything that is none. Lives on the event loop."""

    def __init__(self, incoming: Any, outgoing: Any) -> None:
        """Take messages and failures of `stdio_server` from `incoming`, and answer to `outgoing`."""
        self._incoming, self._outgoing = incoming, outgoing

    @property
    def last_context(self) -> contextvars.Context | None:
        """What the SDK asks of its own streams."""
        found: contextvars.Context | None = self._incoming.last_context
        return found

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message.

        Raises:
            anyio.EndOfStream: standard input has ended.
        """
        while True:
            item = await self._incoming.receive()
            if not isinstance(item, pydantic.ValidationError):
                found: SessionMessage | Exception = item
                return found
            taken = refused(item)
            if isinstance(taken, SessionMessage):
                return taken
            if taken is not None:
                await self._outgoing.send(SessionMessage(taken))

    async def aclose(self) -> None:
        """Close the stream."""
        await self._incoming.aclose()

    def __aiter__(self) -> Self:
        """Go through all messages."""
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        """Return the next message."""
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        """Enter."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the stream."""
        await self.aclose()


def refused(error: pydantic.ValidationError) -> SessionMessage | mcp_types.JSONRPCError | None:
    """Return what a line says that the SDK refused, or what is answered, as `read` does."""
    told = error.errors(include_url=False)
    if told[0]["type"] == "json_invalid":
        return read(str(told[0]["input"]))
    # It is JSON, of which each kind of message says what does not suit it: the whole of it where a member is missing.
    whole = (one["input"] for one in told if one["type"] == "missing" and len(one["loc"]) == _MEMBER)
    return _no_message(next(whole, None))


def read(line: str) -> SessionMessage | mcp_types.JSONRPCError | None:
    """Return what a line says once halves of characters are replaced, else what is answered; None: it is blank."""
    if not line.strip():
        return None
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return _error(None, mcp_types.PARSE_ERROR, "this line is no JSON")
    try:
        text = _HALF.sub(_INSTEAD, json.dumps(found, ensure_ascii=False))
        return SessionMessage(mcp_types.jsonrpc_message_adapter.validate_json(text, by_name=False))
    except (ValueError, RecursionError):
        return _no_message(found)


def _no_message(found: object) -> mcp_types.JSONRPCError:
    key = found.get("id") if isinstance(found, dict) else None
    return _error(key, mcp_types.INVALID_REQUEST, "this line is no JSON-RPC message")


def _error(key: object, code: int, message: str) -> mcp_types.JSONRPCError:
    known = key if isinstance(key, int | str) and not isinstance(key, bool) else None
    return mcp_types.JSONRPCError(jsonrpc="2.0", id=known, error=mcp_types.ErrorData(code=code, message=message))
