r"""A provider of embeddings that does as it is told: a real HTTP server on the loopback, in threads of its own.

It speaks `POST /v1/embeddings` as OpenAI does. Vectors are sums of one random direction per word, so texts that share
words are near each other; they depend on the text, the model that was asked for and the width, and on nothing else.

    with EmbeddingStub(dim=64) as stub:
        settings = f'[embedding]\nmodel = "stub-a"\nbase_url = "{stub.url}"\n'
        stub.fail(3, status=429, retry_after="1")

As a program, `python -m tests.embedding_stub --port 0 --delay-ms 500` prints its address and serves until it is
stopped; `GET /stub` then tells what came in, and `PUT /stub` with `{"delay_s": 2, "is_hanging": true, …}` sets any
attribute of `Behaviour`.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import dataclasses
import functools
import gzip
import hashlib
import http.server
import json
import re
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

_WORD = re.compile(r"\w+")
_WRITTEN_WITHOUT_SPACES = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\ua4cf\uac00-\ud7af\uf900-\ufaff]"
)

Garbage = Literal[
    "html", "empty", "no_data", "none", "too_few", "too_many", "nan", "null", "zeros", "wrong_width", "shuffled", "text",
    "same_index", "no_index", "cut", "endless", "packed",
]  # fmt: skip
"""What an answer may be instead of vectors.

html: a page, with status 200. empty: no body. no_data: `{}`. none: an empty list. too_few, too_many: one vector. nan,
null, zeros: in one vector. wrong_width: one number more. shuffled: in another order, with honest `index`. text: words
for numbers. same_index: all 0. no_index: right order, none named. cut: the connection ends in the middle of the body.
endless: blanks until the other side hangs up. packed: 300 MB of blanks in 300 KB.
"""


@dataclasses.dataclass(kw_only=True)
class Behaviour:
    """What the server does; all of it may be changed at any time, from any thread."""

    dim: int = 64
    """Width where the request names no `dimensions`."""
    model: str | None = None
    """The only model served (others: 404); None: any, each with vectors of its own."""
    takes_dimensions: bool = True
    """False: a request with `dimensions` is refused with 400, as older models do."""
    ignores_dimensions: bool = False
    """True: `dimensions` is accepted and not heeded."""
    takes_base64: bool = True
    """False: numbers come as a list whatever `encoding_format` says."""
    delay_s: float = 0.0
    """Before every answer."""
    delay_per_text_s: float = 0.0
    """For each text, after the other."""
    is_hanging: bool = False
    """Requests are read and never answered, until this is set to False again."""
    is_cutting: bool = False
    """The connection is reset instead of an answer."""
    status: int = 200
    """Of every answer; `fail` for a number of them."""
    retry_after: str = ""
    """Header of every answer that is no 200."""
    moved_to: str = ""
    """Every request is sent to this address instead, with status 307."""
    key: str = ""
    """The only bearer token that is let in (401, which repeats what was sent, as careless proxies do); empty: all."""
    garbage: Garbage | None = None
    rejected: str = ""
    """Requests with a text that has this in it get 400."""
    max_inputs: int = 2048
    """Requests with more texts get 400."""
    max_chars: int = 0
    """Requests with a longer text get 400; 0: no limit."""
    max_concurrent: int = 0
    """Requests beyond that many at once get 429; 0: no limit."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asked:
    """One request as it came in."""

    texts: tuple[str, ...]
    model: str
    dimensions: int | None
    authorization: str
    at_s: float
    """`time.monotonic()`"""
    status: int
    """Of the answer; 0: none was given."""


class EmbeddingStub(Behaviour):
    """The server. `with` starts and stops it; `stop` and `start` in between give a provider that is not there."""

    def __init__(self, *, port: int = 0, **behaviour: Any) -> None:
        """Serve on `port` of 127.0.0.1, kept over `stop` and `start`; 0: a free one."""
        super().__init__(**behaviour)
        self.port = port
        self.asked: list[Asked] = []
        """All requests, in the order in which they were answered."""
        self.n_under_way = 0
        self.most_under_way = 0
        """Most requests that were under way at one time."""
        self._failures: list[tuple[int, str]] = []
        self._lock = threading.Lock()
        self._turn = threading.Lock()
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """What goes into `base_url`."""
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def texts(self) -> list[str]:
        """All texts that vectors were given for, in order; a text that was paid for twice is there twice."""
        return [text for each in list(self.asked) if each.status == 200 for text in each.texts]

    def fail(self, times: int, *, status: int, retry_after: str = "") -> None:
        """Answer the next `times` requests with `status`, or reset their connection where that is 0."""
        with self._lock:
            self._failures += [(status, retry_after)] * times

    def forget(self) -> None:
        """Forget what came in so far, and failures to come."""
        with self._lock:
            self.asked, self._failures, self.most_under_way = [], [], 0

    def start(self) -> None:
        """Listen; ready when it returns."""
        with self._turn:
            server = self._server = _Server(("127.0.0.1", self.port), _Handler)
            server.stub = self
            self.port = server.server_address[1]
            self._thread = threading.Thread(
                target=server.serve_forever, args=(0.02,), name="embedding-stub", daemon=True
            )
            self._thread.start()

    def stop(self) -> None:
        """Stop listening and cut the connections: whoever comes now is refused by the system."""
        with self._turn:
            server, self._server = self._server, None
            if server is None or self._thread is None:
                return
            server.shutdown()
            self._thread.join()
            server.server_close()
            server.cut_all()

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.stop()

    def vector(self, text: str, *, model: str = "", dim: int = 0) -> NDArray[np.float32]:
        """Return the vector that is given for `text`: `(dim,)` float32 of length 1."""
        return vector(text, model or self.model or "", dim or self.dim)

    def _next_failure(self) -> tuple[int, str] | None:
        with self._lock:
            return self._failures.pop(0) if self._failures else None

    @contextlib.contextmanager
    def _under_way(self) -> Any:
        with self._lock:
            self.n_under_way += 1
            self.most_under_way = max(self.most_under_way, self.n_under_way)
            n = self.n_under_way
        try:
            yield n
        finally:
            with self._lock:
                self.n_under_way -= 1


def vector(text: str, model: str, dim: int) -> NDArray[np.float32]:
    """Return a unit vector: the sum of the directions of the words in `text`, each counted once."""
    total = np.zeros(dim, dtype=np.float32)
    for word in sorted(set(_words(text))) or [""]:
        total += _direction(word, model, dim)
    length = float(np.linalg.norm(total))
    unit: NDArray[np.float32] = total / np.float32(length)
    return unit


def _words(text: str) -> list[str]:
    found: list[str] = []
    for word in _WORD.findall(text.casefold()):
        if _WRITTEN_WITHOUT_SPACES.search(word):
            found += [word[at : at + 2] for at in range(max(1, len(word) - 1))]
        else:
            found.append(word)
    return found


@functools.lru_cache(maxsize=50_000)
def _direction(word: str, model: str, dim: int) -> NDArray[np.float32]:
    seed = hashlib.blake2b(f"{model}\0{word}".encode("utf-8", "replace"), digest_size=8).digest()
    return np.random.default_rng(int.from_bytes(seed, "big")).standard_normal(dim, dtype=np.float32)


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    stub: EmbeddingStub

    def __init__(self, *args: Any) -> None:
        self._connections: set[socket.socket] = set()
        self._guard = threading.Lock()
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._guard:
            self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._guard:
            self._connections.discard(request)
        super().shutdown_request(request)

    def cut_all(self) -> None:
        with self._guard:
            connections = list(self._connections)
        for each in connections:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients that go away are part of the play."""


class _Refused(Exception):  # noqa: N818
    def __init__(self, status: int, message: str, code: str = "invalid_request_error") -> None:
        super().__init__(message)
        self.status, self.message, self.code = status, message, code


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def do_POST(self) -> None:
        stub = self.server.stub
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        at_s, authorization = time.monotonic(), self.headers.get("Authorization", "")
        request = json.loads(body)
        raw = request.get("input", [])
        texts = [raw] if isinstance(raw, str) else list(raw)
        with stub._under_way() as n_under_way:
            failure = stub._next_failure()
            time.sleep(stub.delay_s + stub.delay_per_text_s * len(texts))
            while stub.is_hanging and stub._server is self.server:
                time.sleep(0.02)
            status, send = self._answer(stub, request, texts, failure, n_under_way)
        # All is noted down before the answer goes out: a test looks as soon as it has it.
        asked = Asked(
            texts=tuple(texts),
            model=str(request.get("model")),
            dimensions=request.get("dimensions"),
            authorization=authorization,
            at_s=at_s,
            status=status,
        )
        stub.asked.append(asked)
        send()

    def do_GET(self) -> None:
        stub = self.server.stub
        state = {each.name: getattr(stub, each.name) for each in dataclasses.fields(Behaviour)}
        state |= {
            "n_requests": len(stub.asked), "n_texts": len(stub.texts), "n_different": len(set(stub.texts)),
            "most_under_way": stub.most_under_way, "statuses": [each.status for each in stub.asked[-1000:]],
        }  # fmt: skip
        self._send(200, json.dumps(state).encode())

    def do_PUT(self) -> None:
        for name, value in json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0)))).items():
            setattr(self.server.stub, name, value)
        self.do_GET()

    def _answer(
        self, stub: EmbeddingStub, request: dict[str, Any], texts: Sequence[str], failure: Any, n_under_way: int
    ) -> tuple[int, Callable[[], None]]:
        """Return the status to note down, and what sends the answer."""
        status, retry_after = failure or (stub.status, stub.retry_after)
        if stub.is_cutting or status == 0 or stub._server is not self.server:
            return 0, self._cut
        try:
            self._check(stub, request, texts, status, n_under_way)
        except _Refused as refused:
            error = {"error": {"message": refused.message, "type": refused.code, "code": refused.code, "param": None}}
            body = json.dumps(error).encode()
            return refused.status, functools.partial(self._send, refused.status, body, retry_after=retry_after)
        return self._given(stub, request, texts)

    def _given(
        self, stub: EmbeddingStub, request: dict[str, Any], texts: Sequence[str]
    ) -> tuple[int, Callable[[], None]]:
        if stub.moved_to:
            return 307, functools.partial(self._send, 307, b"", location=stub.moved_to)
        if stub.garbage == "endless":
            return 200, self._flood
        if stub.garbage == "packed":
            return 200, functools.partial(self._send, 200, _packed(), content_encoding="gzip")
        body = self._body(stub, request, texts)
        if stub.garbage == "cut":
            self.close_connection = True
            return 200, functools.partial(self._send, 200, body, n_sent=len(body) // 2)
        if stub.garbage == "html":
            body = b"<!doctype html><title>Sign in</title><p>Welcome to the hotel"
            return 200, functools.partial(self._send, 200, body, content_type="text/html")
        return 200, functools.partial(self._send, 200, b"" if stub.garbage == "empty" else body)

    def _flood(self) -> None:
        self.close_connection = True
        self.send_response(200)
        self.end_headers()
        with contextlib.suppress(OSError):
            while self.server.stub._server is self.server:
                self.wfile.write(b" " * 100_000)

    def _cut(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True

    def _check(
        self, stub: EmbeddingStub, request: dict[str, Any], texts: Sequence[str], status: int, n_under_way: int
    ) -> None:
        if status != 200:
            raise _Refused(status, f"told to answer {status}", "told_to")
        if stub.max_concurrent and n_under_way > stub.max_concurrent:
            raise _Refused(429, "too many requests at once", "rate_limit_exceeded")
        authorization = self.headers.get("Authorization", "")
        if stub.key and authorization != f"Bearer {stub.key}":
            raise _Refused(401, f"Incorrect API key provided: {authorization}", "invalid_api_key")
        if not self.path.startswith("/v1/embeddings"):
            raise _Refused(404, f"no such route {self.path}", "not_found")
        if stub.model is not None and request.get("model") != stub.model:
            raise _Refused(404, f"The model {request.get('model')} does not exist", "model_not_found")
        if "dimensions" in request and not stub.takes_dimensions:
            raise _Refused(400, "This model does not support specifying dimensions.")
        _check_texts(stub, texts)

    def _body(self, stub: EmbeddingStub, request: dict[str, Any], texts: Sequence[str]) -> bytes:
        dim: int = stub.dim if stub.ignores_dimensions else request.get("dimensions") or stub.dim
        dim += stub.garbage == "wrong_width"
        model = str(request.get("model"))
        rows = _spoiled([vector(text, model, dim) for text in texts], stub.garbage)
        is_base64 = request.get("encoding_format") == "base64" and stub.takes_base64
        data = [_item(index, row, stub.garbage, is_base64=is_base64) for index, row in enumerate(rows)]
        if stub.garbage == "shuffled":
            data.reverse()
        usage = {"prompt_tokens": sum(map(len, texts)) // 4, "total_tokens": sum(map(len, texts)) // 4}
        answer = {"object": "list", "data": data, "model": model, "usage": usage}
        return json.dumps({} if stub.garbage == "no_data" else answer).encode()

    def _send(
        self,
        status: int,
        body: bytes,
        *,
        retry_after: str = "",
        content_type: str = "application/json",
        content_encoding: str = "",
        location: str = "",
        n_sent: int = -1,
    ) -> None:
        self.send_response(status)
        if content_encoding:
            self.send_header("Content-Encoding", content_encoding)
        if location:
            self.send_header("Location", location)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        if retry_after:
            self.send_header("Retry-After", retry_after)
        self.end_headers()
        self.wfile.write(body if n_sent < 0 else body[:n_sent])

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def _check_texts(stub: Behaviour, texts: Sequence[Any]) -> None:
    if not texts or not all(isinstance(text, str) and text for text in texts):
        raise _Refused(400, "'$.input' is invalid")
    if len(texts) > stub.max_inputs:
        raise _Refused(400, f"'$.input' has {len(texts)} elements, at most {stub.max_inputs} are allowed")
    if stub.max_chars and (longest := max(map(len, texts))) > stub.max_chars:
        raise _Refused(400, f"maximum context length exceeded: {longest} > {stub.max_chars}")
    if stub.rejected and any(stub.rejected in text for text in texts):
        raise _Refused(400, "this text is refused")


@functools.lru_cache
def _packed() -> bytes:
    return gzip.compress(b" " * 300_000_000, 1)


def _spoiled(rows: list[NDArray[np.float32]], garbage: Garbage | None) -> list[NDArray[np.float32]]:
    if garbage == "nan":
        rows[-1] = np.full_like(rows[-1], np.nan)
    elif garbage == "zeros":
        rows[-1] = np.zeros_like(rows[-1])
    elif garbage == "too_many":
        rows.append(rows[-1])
    elif garbage == "too_few":
        rows.pop()
    elif garbage == "none":
        rows = []
    return rows


def _item(index: int, row: NDArray[np.float32], garbage: Garbage | None, *, is_base64: bool) -> dict[str, Any]:
    numbers: Any = base64.b64encode(row.astype("<f4").tobytes()).decode() if is_base64 else row.tolist()
    if garbage == "text":
        numbers = ["many", "words"]
    elif garbage == "null":
        numbers = [None] * len(row)
    item = {"object": "embedding", "index": 0 if garbage == "same_index" else index, "embedding": numbers}
    if garbage == "no_index":
        del item["index"]
    return item


def main() -> None:
    """Serve until stopped."""
    parser = argparse.ArgumentParser(description="A provider of embeddings for tests, on 127.0.0.1.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--delay-ms", type=float, default=0)
    parser.add_argument("--delay-per-text-ms", type=float, default=0)
    parser.add_argument("--status", type=int, default=200, help="of every answer")
    parser.add_argument("--retry-after", default="", help="header of answers that are no 200")
    parser.add_argument("--key", default="", help="the only key that is let in")
    given = parser.parse_args()
    stub = EmbeddingStub(
        port=given.port, dim=given.dim, delay_s=given.delay_ms / 1000, delay_per_text_s=given.delay_per_text_ms / 1000,
        status=given.status, retry_after=given.retry_after, key=given.key,
    )  # fmt: skip
    with stub, contextlib.suppress(KeyboardInterrupt):
        sys.stdout.write(f"{stub.url}\n")
        sys.stdout.flush()
        threading.Event().wait()


if __name__ == "__main__":
    main()
