"""The outermost layer: who may ask, from where, and how much."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from everosd import clock
from everosd.api import guard, metrics

LIMIT = 1000
Owners = tuple[tuple[str, bytes], ...]


class Asked:
    """An application that says `yes`, a server's two callables, and what went through them."""

    def __init__(self, *, token: str = "", host: str = "127.0.0.1", owners: Owners = ()) -> None:
        """Stand behind a guard with these settings."""
        self.reached = 0
        self.sent: list[dict[str, Any]] = []
        self.waiting: list[dict[str, Any]] = [{"type": "http.request", "body": b"", "more_body": False}]
        self.metrics = metrics.Metrics("1")
        self.guard = guard.Guard(
            self._app,
            counted=self.metrics,
            clock=clock.SystemClock(),
            host=host,
            max_body_bytes=LIMIT,
            token=token,
            owners=lambda: owners,
        )
        self.state: dict[str, Any] = {}

    async def _app(self, _scope: Any, _receive: Any, send: Any) -> None:
        self.reached += 1
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"yes"})

    async def status(self, path: str = "/x", **headers: str) -> int:
        """Send a request with these headers and return the status of the answer."""
        await self.guard(
            {
                "type": "http",
                "method": "POST",
                "path": path,
                "state": self.state,
                "client": ("127.0.0.1", 1),
                "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()],
            },
            self._receive,
            self._send,
        )
        status: int = next(message["status"] for message in self.sent if message["type"] == "http.response.start")
        return status

    async def _receive(self) -> dict[str, Any]:
        if self.waiting:
            return self.waiting.pop(0)
        await asyncio.Event().wait()
        raise AssertionError

    async def _send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:8000", "localhost:8000", "LOCALHOST", "localhost.", "[::1]:8000", "[::1]", "192.168.1.7:8000", ""],
)
async def test_names_that_only_mean_this_machine_are_served(host: str) -> None:
    """Addresses and `localhost` cannot be made to point here by somebody else's DNS."""
    asked = Asked()

    assert 200 == await asked.status(**({"host": host} if host else {}))


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example", "[evil]"]
)
async def test_a_rebound_name_is_refused(host: str) -> None:
    """A page whose own name was made to point at this machine gets nothing (DNS rebinding)."""
    asked = Asked()

    assert 403 == await asked.status(host=host)
    assert 0 == asked.reached


async def test_the_configured_name_is_served() -> None:
    """Who listens under a name of their own is asked for by it."""
    assert 200 == await Asked(host="memory.lan").status(host="Memory.LAN:8000")


@pytest.mark.parametrize("origin", ["http://localhost:8000", "http://127.0.0.1:3000", "https://[::1]:8000"])
async def test_pages_of_this_machine_may_ask(origin: str) -> None:
    """The dashboard, and a developer's own page, are local origins."""
    assert 200 == await Asked().status(host="localhost:8000", origin=origin)


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "null",
        "",
        "file://",
        "http://10.0.0.7",
        "chrome-extension://abc",
        "http://[evil",
        "http://localhost.evil.example",
    ],
)
async def test_pages_of_other_sites_may_not_ask(origin: str) -> None:
    """A page from elsewhere cannot write into or read from the memory of whoever looks at it."""
    asked = Asked()

    assert 403 == await asked.status(host="localhost:8000", origin=origin)
    assert 0 == asked.reached


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        ("Bearer hunter2", 200),
        ("Bearer hunter", 401),
        ("bearer hunter2", 200),
        ("hunter2", 401),
        ("", 401),
        ("Bearer hünter2", 401),
    ],
)
async def test_a_token_is_asked_for_where_one_is_set(sent: str, status: int) -> None:
    """With `[api] token` every request needs it, exactly."""
    asked = Asked(token="hunter2")

    assert status == await asked.status(host="localhost", authorization=sent)
    assert int(status == 200) == asked.reached


@pytest.mark.parametrize(
    ("daemon_token", "path", "sent", "status", "owner"),
    [
        ("", "/mcp", "Bearer hers", 200, "mara"),
        ("", "/mcp/", "Bearer hers", 200, "mara"),
        ("", "/mcp", "Bearer his", 200, "jon"),
        ("", "/mcp", "Bearer her", 401, None),  # mistyped: not whoever the settings name
        ("", "/mcp", "Bearer ", 401, None),  # as a client sends it whose variable is not set
        ("", "/mcp", "hers", 401, None),
        ("", "/mcp", "Basic hers", 401, None),
        ("", "/mcp", "", 200, None),
        ("hunter2", "/mcp", "Bearer hers", 200, "mara"),
        ("hunter2", "/mcp", "Bearer hunter2", 200, None),
        ("hunter2", "/mcp", "", 401, None),
        ("hunter2", "/mcp", "Bearer", 401, None),
        ("hunter2", "/mcp", "Basic hers", 401, None),
        ("hunter2", "/api/v1/memory/search", "Bearer hers", 401, None),
        ("hunter2", "/mcpx", "Bearer hers", 401, None),
        ("hunter2", "/api/v1/mcp", "Bearer hers", 401, None),
    ],
)
async def test_a_users_own_token_opens_mcp_and_says_who_they_are(
    daemon_token: str, path: str, sent: str, status: int, owner: str | None
) -> None:
    """And nothing else; that of the daemon says nothing of it."""
    asked = Asked(token=daemon_token, owners=(("mara", b"hers"), ("jon", b"his")))

    assert status == await asked.status(path, host="localhost", authorization=sent)
    assert owner == asked.state.get("owner")


@pytest.mark.parametrize(
    ("daemon_token", "path", "sent", "said"),
    [
        (
            "",
            "/mcp",
            "Bearer her",
            """this bearer is nobody's: /mcp asks for … a user's token ([owners."<user>"] token)""",
        ),
        (
            "hunter2",
            "/mcp",
            "Bearer her",
            """this bearer is nobody's: /mcp asks for … a user's token ([owners."<user>"] token), or [api] token""",
        ),
        ("hunter2", "/mcp", "", """/mcp asks for … a user's token ([owners."<user>"] token), or [api] token"""),
        (
            "hunter2",
            "/api/v1/memory/search",
            "Bearer hers",
            "this address asks for `Authorization: Bearer <[api] token>`",
        ),
    ],
)
async def test_a_refusal_names_the_tokens_that_open_the_address(
    daemon_token: str, path: str, sent: str, said: str
) -> None:
    """Where only users have one, nobody is told to bring that of the daemon."""
    asked = Asked(token=daemon_token, owners=(("mara", b"hers"),))
    await asked.status(path, host="localhost", authorization=sent)
    message = json.loads(asked.sent[1]["body"])["error"]["message"]
    assert said == message.replace("`Authorization: Bearer …` with", "…")


async def test_a_refusal_has_the_envelope_and_the_id() -> None:
    """Also what never reaches a route has a request id in header and body, and is counted."""
    asked = Asked()

    await asked.status(host="evil.example")

    headers = dict(asked.sent[0]["headers"])
    assert headers[b"x-request-id"] in asked.sent[1]["body"]
    assert b'"code":"FORBIDDEN"' in asked.sent[1]["body"]
    assert b'status="403"' in await asyncio.to_thread(_figures, asked.metrics)


def _figures(counted: metrics.Metrics) -> bytes:
    from prometheus_client import generate_latest, registry

    class Requests:
        def collect(self) -> Any:
            return counted.families()

    own = registry.CollectorRegistry()
    own.register(Requests())
    return generate_latest(own)


async def test_a_large_body_is_read_to_its_end_before_it_is_refused() -> None:
    """A client that is still writing hears the 413 instead of a reset, and the application hears nothing."""
    asked = Asked()
    asked.waiting = [{"type": "http.request", "body": b"x" * 700, "more_body": more} for more in (True, True, False)]

    assert 413 == await asked.status(host="localhost", content_length="2100")
    assert ([], 0) == (asked.waiting, asked.reached)


async def test_a_client_that_hangs_up_is_not_waited_for() -> None:
    """A disconnect in the middle of a body that is too large ends the request."""
    asked = Asked()
    asked.waiting = [{"type": "http.disconnect"}]

    assert 413 == await asked.status(host="localhost", content_length="2100")


async def test_what_breaks_in_the_answering_itself_is_500() -> None:
    """An error that no handler took still becomes an envelope."""
    asked = Asked()

    async def broken(_scope: Any, _receive: Any, _send: Any) -> None:
        message = "secret cause"
        raise RuntimeError(message)

    asked.guard._app = broken

    assert 500 == await asked.status(host="localhost")
    assert b"INTERNAL_ERROR" in asked.sent[1]["body"]
    assert b"secret" not in asked.sent[1]["body"]


@pytest.mark.parametrize("length", ["x", "-1", "9" * 30, ""])
async def test_an_odd_content_length_does_not_break_the_guard(length: str) -> None:
    """What is no length is left to the server; what is far too much is refused."""
    expected = 413 if length.isdigit() else 200

    assert expected == await Asked().status(host="localhost", content_length=length)
