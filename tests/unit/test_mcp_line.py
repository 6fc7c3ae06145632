"""Lines that the SDK takes for no message: whoever sent one is not left waiting."""

from __future__ import annotations

import json
from typing import Any

import anyio
import mcp_types
import pytest
from mcp.shared.message import SessionMessage

from everosd.mcp import line


def call(content: str) -> str:
    """Return a line that calls a tool, as JavaScript and Python write it: half a pair as an escape."""
    return json.dumps(
        {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "x", "arguments": {"content": content}}}
    )


class Stream:
    """One side of `stdio_server`."""

    last_context = None

    def __init__(self, *items: Any) -> None:
        """Have these to give."""
        self.items = list(items)
        self.sent: list[Any] = []
        self.is_closed = False

    async def receive(self) -> Any:
        """Give the next one."""
        if not self.items:
            raise anyio.EndOfStream
        return self.items.pop(0)

    async def send(self, item: Any) -> None:
        """Take one."""
        self.sent.append(item)

    async def aclose(self) -> None:
        """Note that it was closed."""
        self.is_closed = True


def as_sdk_reads(text: str) -> object:
    """Return what the SDK makes of a line."""
    try:
        return SessionMessage(mcp_types.jsonrpc_message_adapter.validate_json(text, by_name=False))
    except ValueError as error:
        return error


@pytest.mark.parametrize("half", ["a\ud800b", "\udc00", "end \ud83d"])
def test_half_of_a_character_is_replaced_and_the_call_is_made(half: str) -> None:
    """The rest of what was to be remembered is whole."""
    taken = line.read(call(f"😀 {half}"))
    assert isinstance(taken, SessionMessage)
    assert isinstance(taken.message, mcp_types.JSONRPCRequest)
    assert taken.message.params is not None
    said = taken.message.params["arguments"]["content"]
    assert "😀" in said
    assert "\ufffd" in said
    said.encode()


@pytest.mark.parametrize(
    ("text", "key", "code"),
    [
        ("{", None, mcp_types.PARSE_ERROR),
        ("[" * 100_000, None, mcp_types.PARSE_ERROR),
        ("null", None, mcp_types.INVALID_REQUEST),
        ('{"id": 5}', 5, mcp_types.INVALID_REQUEST),
        ('{"id": true, "jsonrpc": "2.0"}', None, mcp_types.INVALID_REQUEST),
        ('{"id": "s", "jsonrpc": "1.0", "method": "m"}', "s", mcp_types.INVALID_REQUEST),
        ('{"id": 5, "jsonrpc": "2.0", "method": 7}', 5, mcp_types.INVALID_REQUEST),
        ('{"id": 5, "jsonrpc": "2.0", "method": "m", "params": ["\\ud83d"]}', 5, mcp_types.INVALID_REQUEST),
        ("[1]", None, mcp_types.INVALID_REQUEST),
    ],
)
async def test_what_is_no_message_is_answered_with_its_id_where_it_has_one(text: str, key: object, code: int) -> None:
    """JSON-RPC says so: null where no id can be told."""
    outgoing = Stream()
    assert [] == [one async for one in line.Lines(Stream(as_sdk_reads(text)), outgoing)]
    (told,) = (one.message for one in outgoing.sent)
    assert (key, code) == (told.id, told.error.code)


async def test_messages_go_on_after_lines_that_are_none() -> None:
    """Blank lines are passed over; the stream ends where standard input does."""
    outgoing = Stream()
    incoming = Stream(*map(as_sdk_reads, ("{", "\n", call("half \ud800"), call("whole"))))
    async with line.Lines(incoming, outgoing) as lines:
        taken = [one async for one in lines]
    assert [7, 7] == [one.message.id for one in taken if isinstance(one, SessionMessage)]  # type: ignore[union-attr]
    assert [mcp_types.PARSE_ERROR] == [one.message.error.code for one in outgoing.sent]
    assert incoming.is_closed
