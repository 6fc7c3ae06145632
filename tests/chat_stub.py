r"""A chat model that does as it is told: a real HTTP server on the loopback, in threads of its own.

It speaks `POST /v1/chat/completions` as OpenAI does, with `response_format`. What it says is scripted by the name of the
prompt (that of the JSON schema; where that is not sent, the `title` of the schema in the text); what is not scripted is
answered sensibly: the shape that was asked for, filled with the conversation's own words.

    with ChatStub() as stub:
        settings = f'[llm]\nmodel = "stub"\nbase_url = "{stub.url}"\n'
        stub.script("facts", {"facts": ["Mara lives in Vienna"]})      # each time
        stub.script("episode", lambda asked: {"subject": asked.user[:20], …})
        stub.say("boundary", "no JSON at all", {"ends": True})         # the next two times
        stub.dress = "think"                                           # how answers are wrapped
        stub.fail(3, status=429, retry_after="1")
        stub.hanging = "session nine"                                  # requests with this in their text hang

As a program, `python -m tests.chat_stub --port 0 --delay-ms 500` prints its address and serves until it is stopped;
`GET /stub` then tells what came in, and `PUT /stub` with `{"delay_s": 2, "dress": "fenced", "answers": {"facts": …}}`
sets any attribute of `Behaviour`.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
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

from tests import embedding_stub

Garbage = Literal[
    "html", "empty", "no_choices", "no_content", "no_json", "cut", "endless", "packed", "refusal", "filtered",
    "reasoning_field", "parts", "old",
]  # fmt: skip
"""What the body may be instead of a completion with the answer in it.

html: a page, with status 200. empty: no body. no_choices: an empty list of them. no_content: null. no_json: `{}`. cut: the
connection ends in the middle of the body. endless: blanks until the other side hangs up. packed: 300 MB of blanks in
300 KB. refusal: the model declines. filtered: a filter of the provider ended it. reasoning_field: all of it under
`reasoning_content`, no content. parts: the content is a list, its first part of type `thinking`; that is readable. old: no
`finish_reason`, fields missing that old servers do not send; readable too.
"""

Dress = Literal[
    "plain", "fenced", "fenced_json", "prose", "here_is", "braces_in_prose", "think", "unclosed_think", "only_think",
    "late_think", "thinking_prose", "trailing_comma", "single_quotes", "raw_newlines", "several", "list", "object",
    "cut", "only_prose", "as_text", "wrapped", "harmony",
]  # fmt: skip
"""What an answer is wrapped in; see `dressed`."""

Answer = str | dict[str, Any] | list[Any]
Answerer = Callable[["Asked"], Answer]


@dataclasses.dataclass(kw_only=True)
class Behaviour:
    """What the server does; all of it may be changed at any time, from any thread."""

    model: str | None = None
    """The only model served (others: 404); None: any."""
    answers: dict[str, Any] = dataclasses.field(default_factory=dict)
    """What is answered, by prompt name; see `ChatStub.script`."""
    dress: Dress = "plain"
    """Of every answer that is given as an object; `dresses` for some prompts."""
    dresses: dict[str, Dress] = dataclasses.field(default_factory=dict)
    takes: tuple[str, ...] = ("json_schema", "json_object", "text")
    """Types of `response_format` that are not refused with 400."""
    limit_word: str = ""
    """`max_completion_tokens` or `max_tokens`: the other one is refused with 400, as OpenAI's newer models do."""
    takes_temperature: bool = True
    """False: any temperature but 1 is refused with 400."""
    names_parameters: bool = True
    """False: a refusal does not say which parameter it is about."""
    max_input_chars: int = 0
    """Requests with more text get 400 `context_length_exceeded`; 0: no limit."""
    max_output_tokens: int = 0
    """Longest answer, tokens of four characters, whatever is asked; 0: no limit but that of the request."""
    heeds_limit: bool = True
    """Whether answers end at the request's limit, with `finish_reason` `length`."""
    delay_s: float = 0.0
    """Before every answer."""
    delays_s: dict[str, float] = dataclasses.field(default_factory=dict)
    """The same for some prompts, by name, on top."""
    is_hanging: bool = False
    """Requests are read and never answered, until this is set to False again."""
    hanging: str = ""
    """The same for those with this in their text; empty: none."""
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
    """Requests with this in their text get 400."""
    max_concurrent: int = 0
    """Requests beyond that many at once get 429; 0: no limit."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asked:
    """One request as it came in."""

    name: str
    """Of the prompt; empty where the request does not tell."""
    system: str
    user: str
    """All that is not from the system, in order."""
    schema: dict[str, Any]
    """Empty: none was sent, neither as such nor in the text."""
    format: str
    """Type of `response_format`; empty: none."""
    model: str
    max_tokens: int | None
    temperature: float | None
    authorization: str
    at_s: float
    """`time.monotonic()`"""
    parameters: frozenset[str]
    """Keys of the request."""
    status: int = 0
    """Of the answer; 0: none was given."""

    @property
    def text(self) -> str:
        """System and user."""
        return f"{self.system}\n{self.user}"


class ChatStub(Behaviour):
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
        self._next: dict[str, list[Answer | Answerer]] = {}
        self._lock = threading.Lock()
        self._turn = threading.Lock()
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """What goes into `base_url`."""
        return f"http://127.0.0.1:{self.port}/v1"

    def script(self, name: str, answer: Answer | Answerer) -> None:
        """Answer prompt `name` so from now on: an object (which is dressed), a text as it stands, or a function."""
        self.answers[name] = answer

    def say(self, name: str, *answers: Answer | Answerer) -> None:
        """Answer the next requests with prompt `name` so, one each, before what is scripted."""
        with self._lock:
            self._next.setdefault(name, []).extend(answers)

    def fail(self, times: int, *, status: int, retry_after: str = "") -> None:
        """Answer the next `times` requests with `status`, or reset their connection where that is 0."""
        with self._lock:
            self._failures += [(status, retry_after)] * times

    def asked_of(self, name: str) -> list[Asked]:
        """Return the requests with prompt `name` that were answered with 200."""
        return [each for each in list(self.asked) if each.name == name and each.status == 200]

    def forget(self) -> None:
        """Forget what came in so far, and failures and answers to come."""
        with self._lock:
            self.asked, self._failures, self.most_under_way = [], [], 0
            self._next.clear()

    def start(self) -> None:
        """Listen; ready when it returns."""
        with self._turn:
            server = self._server = _Server(("127.0.0.1", self.port), _Handler)
            server.stub = self
            self.port = server.server_address[1]
            self._thread = threading.Thread(target=server.serve_forever, args=(0.02,), name="chat-stub", daemon=True)
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

    def answer(self, asked: Asked) -> str:
        """Return the text of the answer to `asked`, dressed."""
        with self._lock:
            waiting = self._next.get(asked.name)
            given: Any = waiting.pop(0) if waiting else self.answers.get(asked.name)
        if given is None:
            given = sensible
        if callable(given):
            given = given(asked)
        return given if isinstance(given, str) else dressed(given, self.dresses.get(asked.name, self.dress))

    def _next_failure(self) -> tuple[int, str] | None:
        with self._lock:
            return self._failures.pop(0) if self._failures else None

    def _is_stuck(self, asked: Asked) -> bool:
        return self.is_hanging or bool(self.hanging and self.hanging in asked.text)

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


_REASONING = 'The user wants {"json": true}. Let me think: perhaps [1, 2] or {"draft": "no"}? I should'


def dressed(value: Any, dress: Dress) -> str:
    """Return the text of an answer that holds `value`."""
    text = json.dumps(value, ensure_ascii=False)
    return _DRESSES[dress](value, text)


_DRESSES: dict[str, Callable[[Any, str], str]] = {
    "plain": lambda _, text: text,
    "fenced": lambda _, text: f"```\n{text}\n```",
    "fenced_json": lambda _, text: f"Sure!\n\n```json\n{text}\n```\n\nLet me know if you need more.",
    "prose": lambda _, text: f"The answer is as follows.\n{text}\nI hope that this helps.",
    "here_is": lambda _, text: f"Here are the results you asked for: {text}",
    "braces_in_prose": lambda _, text: (
        f"As {{you}} asked (see [1]), with {{name}} filled in:\n{text}\nNote: {{}} is [sic]."
    ),
    "think": lambda _, text: f"<think>\n{_REASONING} answer.\n</think>\n\n{text}",
    "unclosed_think": lambda _, text: f"<think>\n{_REASONING} answer.\n\n{text}",
    "only_think": lambda *_: f"<think>\n{_REASONING}",
    "late_think": lambda _, text: f"{_REASONING} answer.\n</think>\n{text}",
    "thinking_prose": lambda _, text: f"<reasoning>{_REASONING} answer.</reasoning>\nSo:\n```json\n{text}\n```",
    "trailing_comma": lambda value, _: re.sub(r"(?<=[^\s{\[])\n(\s*[\]}])", r",\n\1", _indented(value)),
    "single_quotes": lambda value, _: repr(value),
    "raw_newlines": lambda value, _: _indented(value).replace("\\n", "\n"),
    "several": lambda _, text: f'{{"draft": 1}}\n{text}\n{{"confidence": 0.9}}',
    "list": lambda value, text: (
        json.dumps(_first_list(value), ensure_ascii=False) if _first_list(value) else f"[{text}]"
    ),
    "object": lambda value, text: json.dumps(value[0]) if isinstance(value, list) and len(value) == 1 else text,
    "cut": lambda _, text: text[: len(text) * 2 // 3],
    "only_prose": lambda *_: "I am sorry, as a language model I would rather tell you about it in my own words.",
    "as_text": lambda _, text: json.dumps(text, ensure_ascii=False),
    "wrapped": lambda value, _: json.dumps({"result": value}, ensure_ascii=False),
    "harmony": lambda _, text: (
        f"<|channel|>analysis<|message|>{_REASONING}<|end|><|start|>assistant<|channel|>final<|message|>{text}"
    ),
}


def _indented(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1)


def _first_list(value: Any) -> list[Any]:
    if not isinstance(value, dict):
        return []
    return next((each for each in value.values() if isinstance(each, list) and each), [])


_LINE = re.compile(
    r"^\W*(?:\d{4}-\d\d-\d\d[T ]?[\d:.]*(?:Z|[+-]\d\d:?\d\d)?\W+)?(?P<who>[^\n:\[\]<>{}()]{1,60}):[ \t]+(?P<text>\S.*)$",
    re.MULTILINE,
)
"""A line of a conversation: its time, who says it, and what."""
_DATED_LINE = re.compile(r"^(?:- )?\d{4}-\d\d-\d\d(?:: | \d\d:\d\d$|$)|^- ")
_BAR = re.compile(r"^={4,}$", re.MULTILINE)
"""Before and after what a prompt shows."""
_SENTENCE = re.compile(r"[^.!?。！？\n]+[.!?。！？]*")


def sensible(asked: Asked) -> Answer:
    """Return an answer of the shape that was asked for, made of the words of the request: nothing is invented.

    Texts are lines of the last part that the prompt shows between two lines of equal signs, lists are its sentences with
    their speakers, choices are the first that the schema allows; numbers mean nothing, and lists of them are empty.
    """
    shown = [each for each in _BAR.split(asked.user)[1::2] if each.strip()]
    text = shown[-1] if shown else asked.user
    if asked.name in ("merge", "merge_repair", "summarize", "summarize_repair"):
        return merged(text)
    lines = [(found["who"].strip(), found["text"].strip()) for found in _LINE.finditer(text)]
    if not lines:
        lines = [("", each.strip()) for each in text.splitlines() if each.strip()]
    value = _filled(asked.schema or {"type": "object", "properties": {}}, "", lines, asked.schema)
    return value if isinstance(value, dict | list) else {}


def merged(notes: str) -> dict[str, Any]:
    """Return a narrative that holds the lines of notes, each once; the first one is also its subject."""
    lines = [_DATED_LINE.sub("", line.strip()) for line in notes.splitlines() if line.startswith("  ")]
    lines = [line for line in dict.fromkeys(lines) if line and not line.startswith("#")]
    return {"subject": lines[0][:100] if lines else "", "content": "\n".join(lines)}


def _filled(schema: dict[str, Any], name: str, lines: Sequence[tuple[str, str]], root: dict[str, Any]) -> Any:
    if "$ref" in schema:
        schema = root.get("$defs", {}).get(schema["$ref"].rpartition("/")[2], {})
    if "anyOf" in schema:
        schema = schema["anyOf"][0]
    if "enum" in schema:
        return schema["enum"][0]
    if "const" in schema:
        return schema["const"]
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = kind[0]
    if kind == "object":
        return {key: _filled(each, key, lines, root) for key, each in schema.get("properties", {}).items()}
    if kind == "array":
        return _filled_list(schema.get("items", {}), name, lines, root)
    plain: dict[str, Any] = {"integer": 0, "number": 0.5, "boolean": False, "null": None}
    return plain[kind] if kind in plain else _text(name, lines)


def _filled_list(item: dict[str, Any], name: str, lines: Sequence[tuple[str, str]], root: dict[str, Any]) -> list[Any]:
    some = [(who, one.strip()) for who, text in lines for one in _SENTENCE.findall(text) if len(one.split()) > 3][:20]
    if item.get("type", "string") == "string" and "enum" not in item:
        return [f"{who}: {text}" if who else text for who, text in some]
    if item.get("type") in ("integer", "number"):
        return []
    return [_filled(item, name, [one], root) for one in some[:3]]


def _text(name: str, lines: Sequence[tuple[str, str]]) -> str:
    whole = [f"{who}: {text}" if who else text for who, text in lines]
    if name in ("subject", "title", "name", "category", "intent", "task_intent"):
        return (lines[0][1] if lines else "")[:100]
    if name in ("summary", "description", "basis", "evidence"):
        return " ".join(whole[:3])[:500]
    return "\n".join(whole)


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    stub: ChatStub

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
    def __init__(
        self, status: int, message: str, code: str = "invalid_request_error", param: str | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.param = status, message, code, param


_TITLE = re.compile(r'"title":\s*"([\w-]+)"')


def _asked(request: dict[str, Any], authorization: str) -> Asked:
    messages = request.get("messages", [])
    system = "\n".join(str(each["content"]) for each in messages if each.get("role") == "system")
    user = "\n".join(str(each["content"]) for each in messages if each.get("role") != "system")
    given = request.get("response_format") or {}
    shape = given.get("json_schema") or {}
    name, schema = shape.get("name", ""), shape.get("schema", {})
    if not name and (found := _TITLE.search(system)) is not None:
        name = found[1]
        start = system.rfind("{", 0, found.start())
        with contextlib.suppress(ValueError):
            schema = json.JSONDecoder().raw_decode(system[start:])[0]
    return Asked(
        name=name, system=system, user=user, schema=schema, format=given.get("type", ""), model=str(request.get("model")),
        max_tokens=request.get("max_tokens", request.get("max_completion_tokens")),
        temperature=request.get("temperature"), authorization=authorization, at_s=time.monotonic(),
        parameters=frozenset(request),
    )  # fmt: skip


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def do_POST(self) -> None:
        stub = self.server.stub
        request = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        asked = _asked(request, self.headers.get("Authorization", ""))
        with stub._under_way() as n_under_way:
            failure = stub._next_failure()
            time.sleep(stub.delay_s + stub.delays_s.get(asked.name, 0))
            while stub._is_stuck(asked) and stub._server is self.server:
                time.sleep(0.02)
            status, send = self._answer(stub, asked, failure, n_under_way)
        # All is noted down before the answer goes out: a test looks as soon as it has it.
        stub.asked.append(dataclasses.replace(asked, status=status))
        send()

    def do_GET(self) -> None:
        stub = self.server.stub
        state = {each.name: getattr(stub, each.name) for each in dataclasses.fields(Behaviour)}
        asked = list(stub.asked)
        state |= {
            "n_requests": len(asked), "most_under_way": stub.most_under_way, "n_under_way": stub.n_under_way,
            "names": [each.name for each in asked[-1000:]], "statuses": [each.status for each in asked[-1000:]],
        }  # fmt: skip
        self._send(200, json.dumps(state, default=repr).encode())

    def do_PUT(self) -> None:
        for name, value in json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0)))).items():
            setattr(self.server.stub, name, value)
        self.do_GET()

    def _answer(
        self, stub: ChatStub, asked: Asked, failure: tuple[int, str] | None, n_under_way: int
    ) -> tuple[int, Callable[[], None]]:
        """Return the status to note down, and what sends the answer."""
        status, retry_after = failure or (stub.status, stub.retry_after)
        if stub.is_cutting or status == 0 or stub._server is not self.server:
            return 0, self._cut
        try:
            self._check(stub, asked, status, n_under_way)
        except _Refused as refused:
            said = {"message": refused.message, "type": refused.code, "code": refused.code, "param": refused.param}
            body = json.dumps({"error": said}).encode()
            return refused.status, functools.partial(self._send, refused.status, body, retry_after=retry_after)
        return self._given(stub, asked)

    def _check(self, stub: ChatStub, asked: Asked, status: int, n_under_way: int) -> None:
        if status != 200:
            raise _Refused(status, f"told to answer {status} to {asked.text[:200]}", "told_to")
        if stub.max_concurrent and n_under_way > stub.max_concurrent:
            raise _Refused(429, "too many requests at once", "rate_limit_exceeded")
        if stub.key and asked.authorization != f"Bearer {stub.key}":
            raise _Refused(401, f"Incorrect API key provided: {asked.authorization}", "invalid_api_key")
        if not self.path.startswith("/v1/chat/completions"):
            raise _Refused(404, f"no such route {self.path}", "not_found")
        if stub.model is not None and asked.model != stub.model:
            raise _Refused(404, f"The model {asked.model} does not exist", "model_not_found")
        if stub.rejected and stub.rejected in asked.text:
            raise _Refused(400, f"refused: {asked.text[:200]}")
        if stub.max_input_chars and len(asked.text) > stub.max_input_chars:
            raise _Refused(400, "maximum context length exceeded", "context_length_exceeded", "messages")
        for word in _refused_words(stub, asked):
            param = word if stub.names_parameters else None
            raise _Refused(400, f"Unsupported parameter: '{word}'", "unsupported_parameter", param)

    def _given(self, stub: ChatStub, asked: Asked) -> tuple[int, Callable[[], None]]:
        if stub.moved_to:
            return 307, functools.partial(self._send, 307, b"", location=stub.moved_to)
        if stub.garbage == "endless":
            return 200, self._flood
        if stub.garbage == "packed":
            return 200, functools.partial(self._send, 200, embedding_stub._packed(), content_encoding="gzip")
        body = b"" if stub.garbage == "empty" else json.dumps(_completion(stub, asked)).encode()
        if stub.garbage == "cut":
            self.close_connection = True
            return 200, functools.partial(self._send, 200, body, n_sent=len(body) // 2)
        if stub.garbage == "html":
            body = b"<!doctype html><title>Sign in</title><p>Welcome to the hotel"
            return 200, functools.partial(self._send, 200, body, content_type="text/html")
        return 200, functools.partial(self._send, 200, body)

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


def _refused_words(stub: Behaviour, asked: Asked) -> list[str]:
    """Return the parameters of a request that the server does not take."""
    words = []
    if asked.format and asked.format not in stub.takes:
        words.append("response_format")
    limits = asked.parameters & {"max_tokens", "max_completion_tokens"}
    if stub.limit_word and limits - {stub.limit_word}:
        words.append(min(limits - {stub.limit_word}))
    if asked.temperature not in (None, 1) and not stub.takes_temperature:
        words.append("temperature")
    return words


def _completion(stub: ChatStub, asked: Asked) -> dict[str, Any]:
    """Return the body of an answer, as `stub` is told to give it."""
    if stub.garbage in ("no_json", "no_choices"):
        return (
            {} if stub.garbage == "no_json" else {"id": "c", "object": "chat.completion", "created": 0, "choices": []}
        )
    text, reason = stub.answer(asked), "stop"
    limits = [stub.max_output_tokens] if stub.max_output_tokens else []
    if stub.heeds_limit and asked.max_tokens:
        limits.append(asked.max_tokens)
    if limits and len(text) > min(limits) * 4:
        text, reason = text[: min(limits) * 4], "length"
    message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
    if stub.garbage == "no_content":
        message["content"] = None
    elif stub.garbage == "refusal":
        message |= {"content": None, "refusal": "I would rather not."}
    elif stub.garbage == "filtered":
        message["content"], reason = text[:10], "content_filter"
    elif stub.garbage == "reasoning_field":
        message |= {"content": "", "reasoning_content": text}
    elif stub.garbage == "parts":
        message["content"] = [{"type": "thinking", "thinking": _REASONING}, {"type": "text", "text": text}]
    choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": reason, "logprobs": None}
    if stub.garbage == "old":
        return {"choices": [{"message": {"content": text}}]}
    usage = {"prompt_tokens": len(asked.text) // 4, "completion_tokens": len(text) // 4, "total_tokens": 0}
    return {
        "id": "chatcmpl-1", "object": "chat.completion", "created": 0, "model": asked.model, "choices": [choice],
        "usage": usage,
    }  # fmt: skip


def main() -> None:
    """Serve until stopped."""
    parser = argparse.ArgumentParser(description="A chat model for tests, on 127.0.0.1.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--delay-ms", type=float, default=0)
    parser.add_argument("--dress", default="plain", choices=sorted(_DRESSES), help="what answers are wrapped in")
    parser.add_argument("--status", type=int, default=200, help="of every answer")
    parser.add_argument("--retry-after", default="", help="header of answers that are no 200")
    parser.add_argument("--key", default="", help="the only key that is let in")
    given = parser.parse_args()
    stub = ChatStub(
        port=given.port, delay_s=given.delay_ms / 1000, dress=given.dress, status=given.status,
        retry_after=given.retry_after, key=given.key,
    )  # fmt: skip
    with stub, contextlib.suppress(KeyboardInterrupt):
        sys.stdout.write(f"{stub.url}\n")
        sys.stdout.flush()
        threading.Event().wait()


if __name__ == "__main__":
    main()
