"""Calls to a daemon, with something real on the other end of the socket."""

from __future__ import annotations

import http.server
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from everosd import errors, lock
from everosd.cli import client, node

SLOW_S = 0.2
STREAM = b'{"done": 1, "total": 2}\n\n{"done": 2, "total": 2}\n{"result": {"n": 2}}\n'


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers a few paths, each in its own way."""

    def do_GET(self) -> None:
        """Answer one request."""
        kind, body = {
            "/object": ("application/json", b'{"a": 1}'),
            "/list": ("application/json", b"[]"),
            "/page": ("text/html", b"<html>"),
            "/stream": (client.STREAM, STREAM),
            "/cut": (client.STREAM, b""),
            "/slow": ("application/json", b'{"a": 1}'),
            "/token": ("application/json", b'{"got": "' + str(self.headers["Authorization"]).encode() + b'"}'),
        }[self.path]
        if self.path == "/slow":
            time.sleep(SLOW_S)
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class has it
        """Say nothing."""


@pytest.fixture
def served() -> Iterator[client.Client]:
    """Give a client of a server on a port of its own."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield client.Client("127.0.0.1", server.server_port, token="t", pid=7)
        server.shutdown()
        thread.join()


def test_an_object_is_an_answer(served: client.Client) -> None:
    """A JSON object comes back with its status."""
    assert served.call("GET", "/object") == client.Answer(status=200, body={"a": 1})


def test_lines_arrive_one_by_one_and_the_last_is_the_answer(served: client.Client) -> None:
    """Of a streamed answer every line is passed on, blank ones left out."""
    lines: list[dict[str, object]] = []
    answer = served.call("GET", "/stream", on_line=lines.append)
    assert answer.body == {"result": {"n": 2}}
    assert lines == [{"done": 1, "total": 2}, {"done": 2, "total": 2}, {"result": {"n": 2}}]


def test_the_token_is_sent(served: client.Client) -> None:
    """A daemon that asks for a token gets it."""
    assert served.call("GET", "/token").body == {"got": "Bearer t"}


@pytest.mark.parametrize("path", ["/list", "/page"])
def test_something_else_on_the_port_is_told_apart(served: client.Client, path: str) -> None:
    """What is not everosd's answer is an error that asks whether it is everosd at all."""
    with pytest.raises(errors.EverosdError, match="is it everosd"):
        served.call("GET", path)


def test_a_stream_that_ends_without_a_word_is_an_error(served: client.Client) -> None:
    """A daemon that dies before the first line does not look like success."""
    with pytest.raises(errors.EverosdError, match="stopped before it answered"):
        served.call("GET", "/cut")


def test_a_port_where_nobody_listens_names_pid_and_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """A holder of the lock that does not answer is named, with what to do."""
    monkeypatch.setattr(client, "START_TIMEOUT_S", 0.0)
    with pytest.raises(client.Silent, match=r"pid 7 .* http://127.0.0.1:1") as caught:
        client.Client("127.0.0.1", 1, pid=7).call("GET", "/health")
    assert "kill 7" in caught.value.hint


def test_an_ipv6_address_is_a_url() -> None:
    """Brackets stand around an IPv6 address."""
    assert client.Client("::1", 8000).url == "http://[::1]:8000"


def test_a_daemon_may_say_nothing_for_as_long_as_it_was_asked_to_wait(
    served: client.Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A run may take hours: who waits for its end is not told that the daemon does not answer."""
    holder = lock.Holder(pid=7, host="127.0.0.1", port=int(served.url.rpartition(":")[2]))
    monkeypatch.setattr(client, "ANSWER_TIMEOUT_S", SLOW_S / 4)
    monkeypatch.setattr(node, "running", lambda _: holder)
    with pytest.raises(client.Silent, match="timed out"):
        node.ask(tmp_path, "GET", "/slow")
    assert {"a": 1} == node.ask(tmp_path, "GET", "/slow", waits_s=60.0).body
    answers: list[client.Answer] = []
    node.ask_all(tmp_path, [node.Request(method="GET", path="/slow")], answers.append, waits_s=60.0)
    assert [{"a": 1}] == [one.body for one in answers]
    assert {"a": 1} == node.ask(tmp_path, "GET", "/slow", waits_s=float("inf")).body
