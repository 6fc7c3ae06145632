"""The HTTP contract that programs written for EverOS rely on: each claim about a route that exists is a test.

One application on one root serves all of them, with vectors from a provider on the loopback and no model that reads
conversations. Each test has a session, and where it matters a scope, of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime as dt
import itertools
import re
import urllib.parse
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import pytest_asyncio
from litestar import exceptions

from everosd import clock, config, daemon, errors, types
from everosd.api import errors as wire
from everosd.api import openapi, schema
from everosd.engine import strategy
from everosd.intake import row, session
from everosd.log import layout
from tests import embedding_stub

pytestmark = pytest.mark.asyncio(loop_scope="module")

V1 = "/api/v1"
HOST = "http://127.0.0.1:8000"
T0 = 1_772_445_600_000
"""2026-03-02T10:00:00Z, milliseconds."""
REQUEST_ID = re.compile(r"[0-9a-f]{32}")
GET_ARRAYS = {"episodes", "profiles", "agent_cases", "agent_skills"}
SEARCH_ARRAYS = GET_ARRAYS | {"unprocessed_messages"}
METHODS = ("keyword", "vector", "hybrid", "agentic", "llm_multiround")

SETTINGS = """
[embedding]
model = "stub"
base_url = "{url}"
[api]
max_body_bytes = 2000000
[boundary_detection]
hard_msg_limit = 50
[memorize.async_queue]
max_concurrency = 1
max_pending_per_session = 4
max_payload_bytes = 20000
"""

STRATEGIES = (
    *("extract_atomic_facts", "trigger_profile_clustering", "extract_user_profile", "extract_agent_case"),
    *("trigger_skill_clustering", "extract_agent_skill"),
)
OURS = "extract_foresight"
"""The name under which the tests run a strategy of their own; what follows from Episodes is switched off beside it."""
SWITCHED_OFF = "".join(f"[strategies.{name}]\nenabled = false\n" for name in STRATEGIES)


class Scripted:
    """A strategy that does as it is told."""

    def __init__(self) -> None:
        """Succeed until told otherwise."""
        self.is_failing = False
        self.gate = asyncio.Event()
        self.gate.set()

    async def run(self, event: strategy.Event) -> str:
        """Fail, wait, or succeed."""
        if self.is_failing and event.subject.startswith("scripted"):
            raise errors.LLMRejected(OURS, "told to fail")
        await self.gate.wait()
        return f"did {event.subject}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Server:
    """The application, and a client inside this process."""

    root: Path
    node: daemon.Node
    client: httpx.AsyncClient
    scripted: Scripted

    async def post(self, route: str, body: object) -> httpx.Response:
        """Send a body to a route below /api/v1."""
        return await self.client.post(f"{V1}/{route}", json=body)

    async def get(self, route: str, **query: object) -> httpx.Response:
        """Ask a route below /api/v1."""
        return await self.client.get(f"{V1}/{route}", params={name: str(value) for name, value in query.items()})

    async def data(self, route: str, body: object) -> dict[str, Any]:
        """Return what stands under `data` of an answer that is a success."""
        return data_of(await self.post(route, body))

    async def search(self, query: str, **body: object) -> dict[str, Any]:
        """Search by keyword unless told otherwise."""
        return await self.data("memory/search", {"query": query, "method": "keyword", **body})

    async def episodes(self, user_id: str, **body: object) -> dict[str, Any]:
        """Get a page of Episodes."""
        return await self.data("memory/get", {"memory_type": "episode", "user_id": user_id, **body})

    async def add(self, session_id: str, *messages: dict[str, Any], **body: object) -> dict[str, Any]:
        """Add messages."""
        return await self.data("memory/add", {"session_id": session_id, "messages": messages, **body})

    async def flush(self, session_id: str, **body: object) -> dict[str, Any]:
        """Flush a session."""
        return await self.data("memory/flush", {"session_id": session_id, **body})

    async def waiting(self, session_id: str, user_id: str = "mara", **body: object) -> list[dict[str, Any]]:
        """Return the messages of a session that nothing was extracted from."""
        found = await self.search("anything", user_id=user_id, filters={"session_id": session_id}, **body)
        messages: list[dict[str, Any]] = found["unprocessed_messages"]
        return messages

    async def searchable(self) -> None:
        """Wait until everything on disk is in every index."""
        await self.node.cascade.reconcile("test")
        await self.node.cascade.settled(20.0)

    async def done(self, task_id: str) -> dict[str, Any]:
        """Wait until a task has ended."""
        async with asyncio.timeout(10.0):
            while (task := data_of(await self.get(f"tasks/{task_id}")))["status"] in {"queued", "processing"}:  # noqa: ASYNC110  # as a program would
                await asyncio.sleep(0.005)
        return task

    async def strategy(self, name: str) -> dict[str, Any]:
        """Return one strategy as GET ome/strategies shows it."""
        items = data_of(await self.get("ome/strategies"))["items"]
        found: dict[str, Any] = next(item for item in items if item["name"] == name)
        return found

    async def until(self, **wanted: object) -> None:
        """Wait until our strategy is shown so."""
        async with asyncio.timeout(10.0):
            while not wanted.items() <= (await self.strategy(OURS)).items():  # noqa: ASYNC110  # as a person would
                await asyncio.sleep(0.01)

    async def trigger(self, name: str, **body: object) -> dict[str, Any]:
        """Fire a strategy by hand and return the bare answer."""
        answer = await self.post("ome/trigger", {"name": name, **body})
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        assert {"status", "name", "dispatched", "runs"} == set(found)
        return found

    def fail(self, subject: str) -> None:
        """Have our strategy fail on something."""
        assert self.node.learning is not None
        owner = types.Owner(app="default", project="default", type="user", id="nadia")
        self.scripted.is_failing = True
        self.node.learning.engine.emit(strategy.Event(topic="episode_written", owner=owner, subject=subject))

    @contextlib.asynccontextmanager
    async def stalled(self) -> AsyncIterator[None]:
        """Keep every extraction waiting while the block runs."""
        assert self.node.learning is not None
        async with self.node.learning.intake._extraction._slots:
            yield

    async def log_of(self, session_id: str) -> session.Session:
        """Read a session from its log alone, as after a restart, once its segments are closed."""
        owner = types.Owner(app="default", project="default", type="session", id=session_id)
        async with asyncio.timeout(10.0):
            while (log := session.read(layout.Layout(self.root), owner)).open:  # noqa: ASYNC110  # by hand, as it says
                await asyncio.sleep(0.005)
        return log


def data_of(answer: httpx.Response) -> dict[str, Any]:
    """Return what stands under `data` of a success, whose envelope is checked on the way."""
    assert answer.status_code in {200, 202}, answer.text
    body = answer.json()
    assert {"request_id", "data"} == set(body) - {"degraded"}
    assert REQUEST_ID.fullmatch(body["request_id"])
    assert body["request_id"] == answer.headers["x-request-id"]
    data: dict[str, Any] = body["data"]
    return data


def refusal(answer: httpx.Response) -> tuple[int, str]:
    """Return status and code of an error, whose envelope is checked on the way."""
    body = answer.json()
    assert {"request_id", "error"} == set(body) - {"detail"}
    assert {"code", "message", "timestamp", "path"} == set(body["error"])
    assert body["request_id"] == answer.headers["x-request-id"]
    assert REQUEST_ID.fullmatch(body["request_id"])
    assert answer.request.url.path == body["error"]["path"]
    assert dt.datetime.fromisoformat(body["error"]["timestamp"]).tzinfo is not None
    return answer.status_code, body["error"]["code"]


def at_fault(answer: httpx.Response) -> str:
    """Return the field that a 422 names at the end of its message."""
    assert (422, "INVALID_INPUT") == refusal(answer), answer.text
    message: str = answer.json()["error"]["message"]
    return message.rpartition(": ")[2]


def said(content: Any, *, minute: int = 0, sender: str = "mara", role: str = "user", **more: object) -> dict[str, Any]:
    """Return one message of a request."""
    return {"sender_id": sender, "role": role, "timestamp": T0 + minute * 60_000, "content": content, **more}


def folders(root: Path, depth: int = 4) -> set[Path]:
    """Return what stands beside the root and, down to owners, in it."""
    patterns = ["*/" * level for level in range(1, depth)] if depth > 1 else []
    inside = {path for pattern in patterns for path in root.glob(pattern.rstrip("/")) if ".tmp" not in path.parts}
    return set(root.parent.iterdir()) | inside


# -- a root with what earlier days left ---------------------------------------------------------------------------------


def entry(entry_id: str, fields: dict[str, str], **sections: str) -> str:
    """Return an entry between its markers, as EverOS writes it."""
    inline = "\n".join(f"**{name}**: {value}" for name, value in fields.items())
    parts = "\n\n".join(f"### {title}\n{text}" for title, text in sections.items())
    return f"<!-- entry:{entry_id} -->\n## {entry_id}\n\n{inline}\n\n{parts}\n<!-- /entry:{entry_id} -->\n"


def episode(number: int, content: str, session_id: str = "s_17", **fields: str) -> str:
    """Return an Episode of the 2nd of March."""
    inline = {"owner_id": "nadia", "session_id": session_id, "timestamp": f"2026-03-02T10:{number:02}:00+00:00"}
    inline |= {"parent_type": "memcell", "parent_id": f"mc_{number:012x}", "sender_ids": "[nadia, helper]"} | fields
    inline = {name: value for name, value in inline.items() if value}
    sections = {"Subject": f"About {number}", "Summary": f"In short {number}", "Content": content}
    if inline["parent_type"] == "cluster":
        del sections["Summary"]
    return entry(f"ep_20260302_{number:08}", inline, **sections)


def head(kind: str, owner: str, track: str = "user", more: str = "") -> str:
    """Return the frontmatter of a daily log."""
    return f"---\nid: x\ntype: {kind}\n{track}_id: {owner}\ntrack: {track}\ndate: '2026-03-02'\n{more}---\n"


def files() -> dict[str, str]:
    """Return a user with fragments, a narrative of two of them, a fact and a profile, and an agent; and elsewhere others."""
    base, day = "default_app/default_project", "2026-03-02"
    deprecated = "deprecated_entries:\n  ep_20260302_00000001: ep_20260302_00000004\n  ep_20260302_00000002: ep_20260302_00000004\n"
    narrative = episode(
        4, "The lighthouse was painted white.", session_id="", parent_type="cluster",
        parent_id="cl_0123456789ab", sender_ids="[]", sources="[ep_20260302_00000001, ep_20260302_00000002]",
    )  # fmt: skip
    fact = {"owner_id": "nadia", "parent_type": "episode", "parent_id": "ep_20260302_00000003"}
    case = {
        "owner_id": "helper",
        "session_id": "s_9",
        "timestamp": "2026-03-02T10:00:00+00:00",
        "quality_score": "0.75",
    }
    return {
        f"broken/default_project/users/bo/episodes/episode-{day}.md": "---\nid: [unclosed\n---\ntext\n",
        f"{base}/users/nadia/episodes/episode-{day}.md": head("episode_daily", "nadia", more=deprecated)
        + episode(1, "The lighthouse is red.")
        + episode(2, "The lighthouse is being painted.", session_id="s_18")
        + episode(3, "A walk to the lighthouse with a thermos of tea.", session_id='o"Brien', sender_ids="[nadia, bo]")
        + narrative,
        f"{base}/users/nadia/.atomic_facts/atomic_fact-{day}.md": head("atomic_fact_daily", "nadia")
        + entry("af_20260302_00000001", fact, Fact="Nadia drinks peppermint tea."),
        f"{base}/users/nadia/user.md": (
            "---\nid: profile_nadia\ntype: user_profile\nuser_id: nadia\nsummary: Nadia likes the sea.\n---\nNadia likes the sea.\n"
        ),
        f"{base}/agents/helper/.cases/agent_case-{day}.md": head("agent_case_daily", "helper", "agent")
        + entry("ac_20260302_00000001", case, TaskIntent="Book a lighthouse tour", Approach="Ask for the date first"),
        f"solo/default_project/users/ada/episodes/episode-{day}.md": head("episode_daily", "ada")
        + episode(1, "A kite over the lighthouse.", owner_id="ada"),
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """The application on a root with what earlier days left, all of it searchable."""
    root = tmp_path_factory.mktemp("root")
    for path, text in files().items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    with embedding_stub.EmbeddingStub(dim=32) as stub:
        (root / "ome.toml").write_text(SWITCHED_OFF, encoding="utf-8")
        (root / config.FILE_NAME).write_text(SETTINGS.format(url=stub.url), encoding="utf-8")
        loaded = config.load(root, {})
        async with daemon.open_node(loaded, clock.SystemClock(), has_vectors=True, learns=True) as node:
            transport = httpx.ASGITransport(
                daemon.application(node), raise_app_exceptions=False, client=("127.0.0.1", 4711)
            )
            async with httpx.AsyncClient(transport=transport, base_url=HOST) as client:
                made = Server(root=root, node=node, client=client, scripted=Scripted())
                assert node.learning is not None
                ours = strategy.Strategy(name=OURS, topics=("episode_written",), run=made.scripted.run, max_retries=0)
                node.learning.engine.add(ours)
                await made.searchable()
                yield made


# -- envelope, ids, time ------------------------------------------------------------------------------------------------


async def test_a_success_is_an_envelope_with_the_request_id_in_the_header_too(server: Server) -> None:
    """`request_id` is 32 lower-case hex, stands beside `data`, and is the header `x-request-id`."""
    for answer in (
        await server.post("memory/add", {"session_id": "envelope", "messages": [said("hello")]}),
        await server.post("memory/flush", {"session_id": "envelope"}),
        await server.post("memory/search", {"query": "tea", "user_id": "nadia"}),
        await server.post("memory/get", {"memory_type": "profile", "user_id": "nadia"}),
        await server.get("tasks"),
        await server.get("entries/nadia_ep_20260302_00000003"),
        await server.get("ome/strategies"),
    ):
        assert data_of(answer)


async def test_health_is_a_bare_object(server: Server) -> None:
    """`/health` has no envelope; the id is in the header alone."""
    answer = await server.client.get("/health")

    assert not {"request_id", "data"} & set(answer.json())
    assert REQUEST_ID.fullmatch(answer.headers["x-request-id"])


async def test_what_is_malformed_is_422(server: Server) -> None:
    """Empty, malformed and non-object JSON are INVALID_INPUT on every route that takes a body."""
    for route in ("memory/add", "memory/flush", "memory/search", "memory/get", "ome/trigger"):
        for body in (b"", b"{", b"[]", b"null", b'"x"', b"\xff"):
            answer = await server.client.post(f"{V1}/{route}", content=body)
            assert (422, "INVALID_INPUT") == refusal(answer), (route, body)


WRONG_ADD: tuple[tuple[dict[str, Any], str], ...] = (
    ({"session_id": ""}, "session_id"),
    ({"session_id": "x" * 129}, "session_id"),
    ({"session_id": 7}, "session_id"),
    ({"session_id": "a\0b"}, "session_id"),
    ({"app_id": "a/b"}, "app_id"),
    ({"app_id": ".index"}, "app_id"),
    ({"project_id": ".."}, "project_id"),
    ({"project_id": ""}, "project_id"),
    ({"messages": []}, "messages"),
    ({"messages": "hello"}, "messages"),
    ({"messages": [said("x")] * 501}, "messages"),
    ({"messages": [said("x"), said("x", role="system")]}, "messages.1.role"),
    ({"messages": [said("x", role="")]}, "messages.0.role"),
    ({"messages": [said("x", sender="")]}, "messages.0.sender_id"),
    ({"messages": [said("x", sender="a b")]}, "messages.0.sender_id"),
    ({"messages": [said("x", sender="a/b")]}, "messages.0.sender_id"),
    ({"messages": [said("x", sender="..")]}, "messages.0.sender_id"),
    ({"messages": [said("x", sender="mara\n")]}, "messages.0.sender_id"),
    ({"messages": [said("x", sender="x" * 129)]}, "messages.0.sender_id"),
    ({"messages": [said(None)]}, "messages.0.content"),
    ({"messages": [said({"type": "text"})]}, "messages.0.content"),
    ({"messages": [said([{"type": "film"}])]}, "messages.0.content.0.type"),
    ({"messages": [said([{"text": "no type"}])]}, "messages.0.content.0.type"),
    ({"messages": [said([{"type": "text", "text": "x", "size": 4}])]}, "messages.0.content.0.size"),
    ({"messages": [{**said("x"), "timestamp": 0}]}, "messages.0.timestamp"),
    ({"messages": [{**said("x"), "timestamp": -5}]}, "messages.0.timestamp"),
    ({"messages": [{**said("x"), "timestamp": 1.5}]}, "messages.0.timestamp"),
    ({"messages": [{**said("x"), "timestamp": "2026-03-02T10:00:00Z"}]}, "messages.0.timestamp"),
    ({"messages": [{**said("x"), "timestamp": 10**18}]}, "messages.0.timestamp"),
    ({"messages": [said("x", tool_calls=[{"id": "c1", "function": {"name": "f"}}])]}, "messages.0.tool_calls.0.function.arguments"),
    ({"messages": [said("x", tool_calls="f()")]}, "messages.0.tool_calls"),
    ({"defer_extraction": "perhaps"}, "defer_extraction"),
    ({"async_mode": []}, "async_mode"),
)  # fmt: skip


async def test_a_validation_message_ends_in_the_field_at_fault(server: Server) -> None:
    """Where one field is wrong, INVALID_INPUT names it dotted at the end, and nothing of the request is kept."""
    for wrong, field in WRONG_ADD:
        body = {"session_id": "refused", "messages": [said("x")], **wrong}
        assert field == at_fault(await server.post("memory/add", body)), wrong
    for route, body, field in (
        ("memory/add", {"messages": [said("x")]}, "session_id"),
        ("memory/add", {"session_id": "refused"}, "messages"),
        ("memory/add", {"session_id": "refused", "messages": [{"role": "user", "timestamp": 1, "content": ""}]}, "messages.0.sender_id"),
        ("memory/flush", {}, "session_id"),
        ("memory/flush", {"session_id": "s", "project_id": "x.toml"}, "project_id"),
        ("memory/search", {"query": "q", "user_id": "nadia", "filters": {"timestamp": {"gte": []}}}, "filters.timestamp.gte"),
        ("memory/get", {"memory_type": "episode", "user_id": "nadia", "page": 0}, "page"),
        ("ome/trigger", {"timeout": 1}, "name"),
        ("ome/trigger", {"name": "extract_user_profile", "timeout": "soon"}, "timeout"),
    ):  # fmt: skip
        assert field == at_fault(await server.post(route, body)), body

    assert [] == await server.waiting("refused")
    assert not (server.root / "default_app/default_project/sessions/refused").exists()


CODES: tuple[tuple[Exception, int, str], ...] = (
    (errors.RequestError("wrong"), 422, "INVALID_INPUT"),
    (errors.NotFound("no"), 404, "NOT_FOUND"),
    (errors.Conflict("busy"), 409, "CONFLICT"),
    (errors.PayloadTooLarge(2, 1, "x"), 413, "PAYLOAD_TOO_LARGE"),
    (exceptions.HTTPException(status_code=415), 415, "UNSUPPORTED_FORMAT"),
    (errors.QueueSaturated("x", 2, 1), 429, "QUEUE_SATURATED"),
    (errors.CapabilityMissing("no"), 503, "CAPABILITY_UNAVAILABLE"),
    (errors.LLMUnavailable("p", "down"), 503, "EXTERNAL_SERVICE_UNAVAILABLE"),
    (errors.LLMRejected("p", "no"), 503, "EXTERNAL_SERVICE_UNAVAILABLE"),
    (errors.ConfigError("everos.toml", "llm.model", "none"), 422, "PROVIDER_NOT_CONFIGURED"),
    (RuntimeError("secret"), 500, "INTERNAL_ERROR"),
)


@pytest.mark.parametrize(("error", "status", "code"), CODES, ids=lambda value: str(value)[:24])
async def test_each_failure_has_its_code(error: Exception, status: int, code: str) -> None:
    """What a caller can act on is told by code and status; what is ours is a generic 500."""
    found = wire.answer(error)

    assert (status if status != 415 else 422, code) == (found.status, found.code)
    assert "secret" not in found.message


async def test_an_internal_error_is_generic(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """What breaks inside is INTERNAL_ERROR 500 and tells nothing of itself."""

    async def broken(*_: object, **__: object) -> None:
        message = "secret"
        raise RuntimeError(message)

    monkeypatch.setattr(server.node.reader, "page", broken, raising=True)
    answer = await server.post("memory/get", {"memory_type": "episode", "user_id": "nadia"})

    assert (500, "INTERNAL_ERROR") == refusal(answer)
    assert "secret" not in answer.text


async def test_unknown_routes_and_methods_have_a_detail_besides(server: Server) -> None:
    """Ours: they are refused in the same envelope, with `detail` at the top as EverOS has it."""
    for method, path, status in (
        ("GET", "/nope", 404),
        ("POST", f"{V1}/memory/nope", 404),
        ("GET", f"{V1}/memory/add", 405),
        ("POST", f"{V1}/tasks", 405),
    ):
        answer = await server.client.request(method, path)
        assert status == refusal(answer)[0], path
        assert answer.json()["detail"] in {"Not Found", "Method Not Allowed"}


async def test_v1_and_v2_are_the_same_handlers(server: Server) -> None:
    """What was added under one prefix is extracted and listed under the other."""
    v2 = {"session_id": "prefixes", "messages": [said("the ferry leaves at nine")]}
    added = data_of(await server.client.post("/api/v2/memory/add", json=v2))
    flushed = await server.flush("prefixes")
    paths = msgspec.json.decode(openapi.document("0"))["paths"]
    routes = [{path.removeprefix(prefix) for path in paths if path.startswith(prefix)} for prefix in schema.PREFIXES]

    assert ("accumulated", "extracted") == (added["status"], flushed["status"])
    assert routes[0] == routes[1]


async def test_ids_have_the_shapes_that_programs_take_apart(server: Server) -> None:
    """Public id `<owner>_<entry id>`, memcell `mc_<12 hex>`, message `m_<session>_<ms>_<idx>`, cluster `cl_<12 hex>`."""
    await server.add("ids", said("my bicycle is green"), said("and fast", minute=1))
    waiting = await server.waiting("ids")
    await server.flush("ids")
    await server.searchable()
    found = (await server.search("bicycle", user_id="mara"))["episodes"][0]
    one = data_of(await server.get(f"entries/{found['id']}"))

    assert [f"m_ids_{T0}_0", f"m_ids_{T0 + 60_000}_1"] == [message["id"] for message in waiting]
    assert re.fullmatch(r"mara_ep_\d{8}_\d{8}", found["id"])
    assert ("memcell", True) == (one["parent_type"], bool(re.fullmatch(r"mc_[0-9a-f]{12}", one["parent_id"])))
    assert [message["id"] for message in waiting] == [message["id"] for message in one["messages"]]
    narrative = data_of(await server.get("entries/nadia_ep_20260302_00000004"))
    assert re.fullmatch(r"cl_[0-9a-f]{12}", narrative["parent_id"])


async def test_message_timestamps_are_milliseconds_or_ten_digits_of_seconds(server: Server) -> None:
    """The same moment in either unit is the same moment."""
    seconds = {**said("in seconds"), "timestamp": T0 // 1000}
    await server.add("units", seconds, said("in milliseconds", minute=0))

    assert ["2026-03-02T10:00:00Z"] * 2 == [message["timestamp"] for message in await server.waiting("units")]


async def test_filters_take_integers_and_iso(server: Server) -> None:
    """One moment as milliseconds, as seconds and as ISO filters the same."""
    for moment in (T0 + 240_000, (T0 + 240_000) // 1000, "2026-03-02T10:04:00Z", "2026-03-02T11:04:00+01:00"):
        found = await server.episodes("nadia", filters={"timestamp": {"gte": moment}})
        assert ["nadia_ep_20260302_00000004"] == [item["id"] for item in found["episodes"]], moment


async def test_answers_are_iso_in_the_zone_of_the_memory_and_the_day_is_that_of_writing(server: Server) -> None:
    """Default UTC is `Z`; another zone has its offset and the instant does not move; ids and files carry the day of writing."""
    before = dt.datetime.now(dt.UTC).date()
    await server.add("zones", said("a picnic under the elm"))
    await server.flush("zones")
    await server.searchable()
    elsewhere = config.Memory(timezone="Asia/Tokyo")
    moved = dataclasses.replace(server.node, config=msgspec.structs.replace(server.node.config, memory=elsewhere))
    transport = httpx.ASGITransport(daemon.application(moved), client=("127.0.0.1", 1))
    asked = {"query": "picnic", "user_id": "mara", "method": "keyword"}
    async with httpx.AsyncClient(transport=transport, base_url=HOST) as client:
        there = data_of(await client.post(f"{V1}/memory/search", json=asked))["episodes"][0]
    here = (await server.search("picnic", user_id="mara"))["episodes"][0]
    one = data_of(await server.get(f"entries/{here['id']}"))

    assert ("2026-03-02T10:00:00Z", "2026-03-02T19:00:00+09:00") == (here["timestamp"], there["timestamp"])
    days = {before, dt.datetime.now(dt.UTC).date()}
    assert one["entry_id"].split("_")[1] in {f"{day:%Y%m%d}" for day in days}
    assert one["file"].rpartition("episode-")[2] in {f"{day}.md" for day in days}


# -- memory/add, memory/flush, tasks --------------------------------------------------------------------------------------


async def test_extra_fields_are_ignored_on_add_flush_and_trigger(server: Server) -> None:
    """Fields of a newer client change nothing, in the body and in a message."""
    message = said("extra", mood="good", tool_calls=[{"id": "c", "index": 0, "function": {"name": "f", "arguments": "{}", "strict": True}}])  # fmt: skip
    added = await server.add("extras", message, colour="blue", user_id="mara")
    flushed = await server.flush("extras", colour="blue")
    triggered = await server.post("ome/trigger", {"name": "no_such_strategy", "colour": "blue"})

    assert (1, "accumulated", "extracted") == (added["message_count"], added["status"], flushed["status"])
    assert 404 == triggered.status_code


async def test_extra_fields_are_422_elsewhere(server: Server) -> None:
    """Search, get and the routes that EverOS lacks refuse what they do not know, but `with_readable_episode`."""
    for answer in (
        await server.post("memory/search", {"query": "tea", "user_id": "nadia", "colour": "blue"}),
        await server.post("memory/get", {"memory_type": "episode", "user_id": "nadia", "colour": "blue"}),
        await server.get("entries/nadia_ep_20260302_00000001", colour="blue"),
        await server.get("ome/strategies", colour="blue"),
        await server.get("tasks", colour="blue"),
    ):
        assert "colour" == at_fault(answer)
    for value in (True, False, None):
        assert (await server.search("tea", user_id="nadia", with_readable_episode=value))["episodes"]
        assert (await server.episodes("nadia", with_readable_episode=value))["episodes"]


async def test_a_tool_message_needs_its_call(server: Server) -> None:
    """`role: tool` without `tool_call_id` is refused; with it call and result are kept as they came."""
    call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"at": "Bergen"}'}}
    asks = said("", sender="helper", role="assistant", minute=1, tool_calls=[call])
    tells = said("rain", sender="helper", role="tool", minute=2)
    refused = await server.post("memory/add", {"session_id": "tools", "messages": [said("weather?"), asks, tells]})
    await server.add("tools", said("weather?", tool_calls=None), asks, tells | {"tool_call_id": "call_1"})
    waiting = await server.waiting("tools")

    assert "messages.2.tool_call_id" == at_fault(refused)
    assert [None, [call], None] == [message["tool_calls"] for message in waiting]
    assert [None, None, "call_1"] == [message["tool_call_id"] for message in waiting]


CONTENTS: tuple[tuple[Any, Any], ...] = (
    ("plain", "plain"),
    ("", ""),
    ([], []),
    ([{"type": "text", "text": "one"}], "one"),
    ("\r\n two \r\n\n", "\r\n two \r\n\n"),
    ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]),
)  # fmt: skip


async def test_content_is_a_string_or_text_items(server: Server) -> None:
    """`""`, `[]`, a string and text items are taken; shown as they came, one text item collapsed to a string."""
    for number, (given, shown) in enumerate(CONTENTS):
        await server.add(f"content {number}", said(given))
        assert [shown] == [message["content"] for message in await server.waiting(f"content {number}")], given
    await server.flush(f"content {len(CONTENTS) - 1}")
    await server.searchable()
    found = await server.episodes("mara", filters={"session_id": f"content {len(CONTENTS) - 1}"})

    assert re.search(r"\ba\b[\s\S]*\bb\b", found["episodes"][0]["episode"])


async def test_what_is_no_text_is_503_without_a_multimodal_provider(server: Server) -> None:
    """An image, a PDF or a mail is CAPABILITY_UNAVAILABLE, and nothing of the request is kept."""
    for kind in ("image", "audio", "doc", "pdf", "html", "email"):
        item = {"type": kind, "uri": "https://example.org/x", "ext": "bin", "name": "x", "extras": {"a": 1}}
        message = said([{"type": "text", "text": "look"}, item])
        answer = await server.post("memory/add", {"session_id": "pictures", "messages": [said("first"), message]})
        assert (503, "CAPABILITY_UNAVAILABLE") == refusal(answer), kind

    assert [] == await server.waiting("pictures")


async def test_A01_a_message_already_buffered_is_not_taken_again(server: Server) -> None:
    """Session, timestamp and index are the key: the first message wins, and `message_count` counts all that were sent."""
    first = [said("the key is under the pot"), said("which pot?", sender="helper", role="assistant", minute=1)]
    answers = await asyncio.gather(*(server.add("twice", *first) for _ in range(3)))
    other = await server.add("twice", said("the key is under the mat"), said("a third", minute=2))
    waiting = await server.waiting("twice")
    flushed = await asyncio.gather(server.flush("twice"), server.flush("twice"))
    again = await server.add("twice", *first)
    await server.searchable()
    found = await server.episodes("mara", filters={"session_id": "twice"})
    health = (await server.client.get("/health")).json()

    assert [2, 2, 2, 2, 2] == [answer["message_count"] for answer in (*answers, other, again)]
    assert ["the key is under the pot", "which pot?"] == [message["content"] for message in waiting[:2]]
    assert "extracted" in [answer["status"] for answer in flushed]
    assert ([], 1) == (await server.waiting("twice"), found["total_count"])
    assert any("duplicate_of" in reason for reason in health["memorize_queue"]["reasons"])


async def test_every_batch_is_accounted_for(server: Server) -> None:
    """The largest batch is counted whole, and each message of it becomes part of one Episode."""
    batch = [said(f"item {number:03}", minute=number) for number in range(500)]
    added = await server.add("batches", *batch)
    await server.flush("batches")
    log = await server.log_of("batches")
    await server.searchable()
    found = await server.episodes("mara", filters={"session_id": "batches"}, page_size=100)
    read = " ".join(item["episode"] for item in found["episodes"])

    assert (500, "extracted") == (added["message_count"], added["status"])
    assert ([], {}) == (log.waiting, log.open)
    assert 500 == len(set(re.findall(r"item \d{3}", read)))


SESSIONS = ("a/b", "..", "/etc/passwd", "%2e%2e", "CON", "a\nb", "a\x01\x85b", "q\"'`$[x, y]", " ", "名" * 128, "😀é")


async def test_I08_a_session_id_is_any_1_to_128_characters(server: Server) -> None:
    """Slashes, dots, quotes, brackets, newlines and emoji are encoded: kept apart, traceable, never a path."""
    before = folders(server.root, depth=1)
    for session_id in SESSIONS:
        assert "accumulated" == (await server.add(session_id, said(f"said in {SESSIONS.index(session_id)}")))["status"]
        assert "extracted" == (await server.flush(session_id))["status"], session_id
        log = await server.log_of(session_id)
        assert ([], {}, 1) == (log.waiting, log.open, len(log)), session_id
    await server.searchable()
    for number, session_id in enumerate(SESSIONS):
        found = await server.episodes("mara", filters={"session_id": session_id})
        assert [session_id] == [item["session_id"] for item in found["episodes"]]
        one = data_of(await server.get(f"entries/{found['episodes'][0]['id']}"))
        assert [f"said in {number}"] == [message["content"] for message in one["messages"]], session_id

    assert before == folders(server.root, depth=1)


async def test_I08_sender_ids_of_every_accepted_form_get_their_own_memory(server: Server) -> None:
    """Mail addresses, plus signs, leading dots and reserved names of other systems are owners like others."""
    senders = ("mara@example.org", "a+b", ".hidden", "CON", "x" * 128, "-", "A", "a")
    await server.add("senders", *(said(f"I am {sender[:20]}", sender=sender) for sender in senders))
    await server.flush("senders")
    await server.searchable()

    for sender in senders:
        assert 1 == (await server.episodes(sender))["total_count"], sender


async def test_add_says_extracted_where_a_limit_ended_the_conversation(server: Server) -> None:
    """What add answers is `{message_count, status: accumulated | extracted}`."""
    first = await server.add("limit", *(said(f"line {number}", minute=number) for number in range(40)))
    second = await server.add("limit", *(said(f"line {number}", minute=number) for number in range(40, 60)))

    assert {"message_count": 40, "status": "accumulated"} == first
    assert {"message_count": 20, "status": "extracted"} == second


async def test_when_flush_says_extracted_the_markdown_is_on_disk(server: Server) -> None:
    """What flush answers is `{status: extracted | no_extraction}`, and the file can be read at that moment."""
    await server.add("on disk", said("the anchor is rusty"))
    flushed = await server.flush("on disk")
    texts = [path.read_text(encoding="utf-8") for path in server.root.rglob("users/mara/episodes/*.md")]

    assert {"status": "extracted"} == flushed
    assert any("the anchor is rusty" in text for text in texts)
    assert {"status": "no_extraction"} == await server.flush("on disk")
    assert {"status": "no_extraction"} == await server.flush("never heard of")


async def test_a_session_without_a_user_has_nothing_to_extract(server: Server) -> None:
    """Owners of an Episode are the senders of role `user`; without one there is none."""
    await server.add("robots", said("beep", sender="helper", role="assistant"))

    assert {"status": "no_extraction"} == await server.flush("robots")


async def test_defer_extraction_only_buffers(server: Server) -> None:
    """Beyond every limit nothing is extracted before the flush."""
    batch = [said(f"line {number}", minute=number) for number in range(60)]
    added = await server.add("deferred", *batch, defer_extraction=True)

    assert {"message_count": 60, "status": "accumulated"} == added
    assert 60 == len(await server.waiting("deferred"))
    assert {"status": "extracted"} == await server.flush("deferred")


async def test_async_mode_is_queued_and_later_requests_join(server: Server) -> None:
    """202 `{status: queued, message_count, pending}`; task id = request id; order is kept; others are not held up; backlog is 429."""
    batch = [said(f"line {number}", minute=number) for number in range(50)]
    async with server.stalled():
        first = await server.post("memory/add", {"session_id": "queue", "messages": batch, "async_mode": True})
        second = await server.post("memory/add", {"session_id": "queue", "messages": [said("later", minute=90)]})
        third = await server.post("memory/flush", {"session_id": "queue"})
        elsewhere = await server.add("no queue", said("not held up"))
        listed = data_of(await server.get("tasks", session_id="queue"))
        await server.post("memory/flush", {"session_id": "queue"})
        refused = await server.post("memory/flush", {"session_id": "queue"})
        crowded = await server.post("memory/add", {"session_id": "queue", "messages": [said("no", minute=91)]})
    ended = [await server.done(answer.json()["request_id"]) for answer in (first, second, third)]

    assert [202, 202, 202] == [answer.status_code for answer in (first, second, third)]
    assert [("queued", 50, 1), ("queued", 1, 2), ("queued", 0, 3)] == [
        (data["status"], data["message_count"], data["pending"]) for data in map(data_of, (first, second, third))
    ]
    assert "accumulated" == elsewhere["status"]
    assert [answer.json()["request_id"] for answer in (third, second, first)] == [
        item["id"] for item in listed["items"]
    ]
    assert ["queued", "queued", "processing"] == [item["status"] for item in listed["items"]]
    for answer in (refused, crowded):
        assert (429, "QUEUE_SATURATED") == refusal(answer)
    assert ["success"] * 3 == [task["status"] for task in ended]
    assert sorted(task["finished_at"] for task in ended) == [task["finished_at"] for task in ended]
    await server.searchable()
    found = await server.episodes("mara", filters={"session_id": "queue"}, sort_order="asc")
    assert ["line 0", "later"] == [re.findall(r"line 0|later", item["episode"])[0] for item in found["episodes"]]


async def test_requests_at_once_do_not_get_past_the_limit(server: Server) -> None:
    """Of many that arrive in one moment as many are queued as there is room for; the others are 429 and leave nothing."""
    batch = [said(f"line {number}", minute=number) for number in range(50)]
    async with server.stalled():
        await server.add("burst", *batch, async_mode=True)
        answers = await asyncio.gather(
            *(
                server.post("memory/add", {"session_id": "burst", "messages": [said("more", minute=60 + number)]})
                for number in range(8)
            )
        )
    queued = [await server.done(answer.json()["request_id"]) for answer in answers if answer.status_code == 202]
    log = await server.log_of("burst")

    assert [202] * 3 + [429] * 5 == sorted(answer.status_code for answer in answers)
    assert ["success"] * 3 == [task["status"] for task in queued]
    assert 53 == sum(map(len, log.kept.values()))


async def test_an_async_request_may_be_smaller_than_others(server: Server) -> None:
    """Over `max_payload_bytes` an async add is 413, a sync one of that size is not; over `max_body_bytes` both are."""
    large = {"session_id": "large", "messages": [said("x" * 30_000)]}
    refused = await server.post("memory/add", large | {"async_mode": True})
    taken = await server.post("memory/add", large)
    beyond = await server.post("memory/add", {"session_id": "large", "messages": [said("x" * 3_000_000)]})

    assert [(413, "PAYLOAD_TOO_LARGE")] * 2 == [refusal(refused), refusal(beyond)]
    assert 200 == taken.status_code


async def test_tasks_are_listed_as_the_schema_says(server: Server) -> None:
    """Fields, filters and pages of GET tasks, and one task by id; a task that is not there is 404."""
    posted = [
        await server.post("memory/add", {"session_id": "tasks", "messages": [said("x", minute=number)], "async_mode": True})
        for number in range(3)
    ]  # fmt: skip
    ids = [answer.json()["request_id"] for answer in posted]
    one, *_ = [await server.done(task_id) for task_id in ids]
    pages = [data_of(await server.get("tasks", session_id="tasks", page=page, page_size=2)) for page in (1, 2, 3)]
    by_status = [data_of(await server.get("tasks", session_id="tasks", status=status))["total"] for status in ("success", "failed", "queued", "no such")]  # fmt: skip

    assert {"id", "status", "task_type", "error", "error_code", "created_at", "finished_at"} == set(one)
    assert (ids[0], "success", "memory_add", None, None) == tuple(
        one[name] for name in ("id", "status", "task_type", "error", "error_code")
    )
    assert one["created_at"].endswith("Z")
    assert one["finished_at"] >= one["created_at"]
    assert [(3, 1, 2), (3, 2, 2), (3, 3, 2)] == [(page["total"], page["page"], page["page_size"]) for page in pages]
    assert ids[::-1] == [item["id"] for page in pages for item in page["items"]]
    assert [3, 0, 0, 0] == by_status
    assert 0 == data_of(await server.get("tasks", app_id="elsewhere"))["total"]
    assert 20 == data_of(await server.get("tasks"))["page_size"]
    assert (404, "NOT_FOUND") == refusal(await server.get(f"tasks/{'0' * 32}"))
    assert (404, "NOT_FOUND") == refusal(await server.get(f"tasks/{ids[0][:-1]}"))
    for query, field in (({"page": 0}, "page"), ({"page_size": 0}, "page_size"), ({"page": "one"}, "page"), ({"app_id": "../x"}, "app_id")):  # fmt: skip
        assert field == at_fault(await server.get("tasks", **query))


# -- memory/get -----------------------------------------------------------------------------------------------------------


async def test_each_kind_of_memory_goes_with_its_owner(server: Server) -> None:
    """`episode` and `profile` with `user_id`, `agent_case` and `agent_skill` with `agent_id`, exactly one of them; else 422."""
    right = {"episode": "user_id", "profile": "user_id", "agent_case": "agent_id", "agent_skill": "agent_id"}
    for kind, owner in right.items():
        for given in ((), ("user_id",), ("agent_id",), ("user_id", "agent_id")):
            body = {"memory_type": kind} | dict.fromkeys(given, "nadia")
            answer = await server.post("memory/get", body)
            assert (200 if given == (owner,) else 422) == answer.status_code, body
            if answer.status_code == 200:
                assert GET_ARRAYS | {"total_count", "count"} == set(data_of(answer))


async def test_total_count_is_before_paging_and_without_deprecated_entries(server: Server) -> None:
    """Four Episodes, two of them deprecated, count as two on every page; past the end is an empty 200."""
    pages = [await server.episodes("nadia", page=page, page_size=1) for page in (1, 2, 3, 10**9)]

    assert [(2, 1), (2, 1), (2, 0), (2, 0)] == [(page["total_count"], page["count"]) for page in pages]
    assert {"nadia_ep_20260302_00000003", "nadia_ep_20260302_00000004"} == {
        item["id"] for page in pages for item in page["episodes"]
    }


async def test_get_returns_a_merged_narrative(server: Server) -> None:
    """Ours: with `session_id: null`, where the real server fails."""
    found = (await server.episodes("nadia"))["episodes"][0]

    assert ("nadia_ep_20260302_00000004", None, [], "", "Conversation") == tuple(
        found[name] for name in ("id", "session_id", "sender_ids", "summary", "type")
    )


# -- memory/search --------------------------------------------------------------------------------------------------------


async def test_every_method_answers_with_five_arrays(server: Server) -> None:
    """keyword, vector, hybrid, agentic, llm_multiround, and hybrid where none is named; another is 422."""
    for method in (*METHODS, None):
        body = {"query": "lighthouse", "user_id": "nadia"} | ({} if method is None else {"method": method})
        found = await server.data("memory/search", body)
        assert SEARCH_ARRAYS == set(found)
        assert {"nadia_ep_20260302_00000003", "nadia_ep_20260302_00000004"} == {
            item["id"] for item in found["episodes"]
        }
    unnamed = await server.data("memory/search", {"query": "tea", "user_id": "nadia"})
    assert unnamed == await server.search("tea", user_id="nadia", method="hybrid")
    assert "method" == at_fault(
        await server.post("memory/search", {"query": "q", "user_id": "nadia", "method": "magic"})
    )


async def test_top_k_is_minus_one_or_1_to_100(server: Server) -> None:
    """Nothing else is taken, and no more than that comes."""
    assert 1 == len((await server.search("lighthouse", user_id="nadia", top_k=1))["episodes"])
    for top_k in (-1, 100):
        assert 2 == len((await server.search("lighthouse", user_id="nadia", top_k=top_k))["episodes"])
    for top_k in (0, -2, 101, True):
        answer = await server.post("memory/search", {"query": "q", "user_id": "nadia", "top_k": top_k})
        assert "top_k" == at_fault(answer), top_k


async def test_an_empty_query_is_422_and_a_blank_one_200(server: Server) -> None:
    """A blank query finds nothing, by any method."""
    assert "query" == at_fault(await server.post("memory/search", {"query": "", "user_id": "nadia"}))
    for method in METHODS:
        found = await server.search("  ", user_id="nadia", method=method)
        assert [] == [item for name in SEARCH_ARRAYS for item in found[name]]


async def test_users_never_get_agent_arrays_and_the_reverse(server: Server) -> None:
    """The word stands in memories of both; each is shown their own kind."""
    user = await server.search("lighthouse", user_id="nadia", include_profile=True)
    agent = await server.search("lighthouse", agent_id="helper", include_profile=True)

    assert (True, [], []) == (bool(user["episodes"]), user["agent_cases"], user["agent_skills"])
    assert (True, [], []) == (bool(agent["agent_cases"]), agent["episodes"], agent["profiles"])
    assert [None] == [profile["score"] for profile in user["profiles"]]


async def test_unprocessed_messages_are_those_of_one_plain_session_id(server: Server) -> None:
    """Only a scalar at the top of the filter fills them, in time order; `eq`, lists and nested ones do not."""
    await server.add("order", said("second", minute=2), said("first", minute=1))
    await server.add("order", said("third", minute=3))
    for filters in ({"session_id": {"eq": "order"}}, {"session_id": {"in": ["order"]}}, {"AND": [{"session_id": "order"}]}, {"sender_id": "mara"}, None):  # fmt: skip
        assert [] == (await server.search("q", user_id="mara", filters=filters))["unprocessed_messages"], filters

    shown = await server.waiting("order")
    assert ["first", "second", "third"] == [message["content"] for message in shown]
    assert {
        "id": f"m_order_{T0 + 60_000}_1",
        "app_id": "default",
        "project_id": "default",
        "session_id": "order",
        "sender_id": "mara",
        "sender_name": None,
        "role": "user",
        "content": "first",
        "timestamp": "2026-03-02T10:01:00Z",
        "tool_calls": None,
        "tool_call_id": None,
    } == shown[0]
    assert [] == await server.waiting("order", user_id="theo")
    assert [] == await server.waiting("order", app_id="elsewhere")
    await server.add("order", said("me too", sender="theo", minute=4))
    assert 4 == len(await server.waiting("order", user_id="theo"))


async def test_hybrid_nests_the_facts_of_an_episode_and_the_others_none(server: Server) -> None:
    """Search by keyword and by vector leave `atomic_facts` empty; a hybrid one puts in those whose parent the Episode is."""
    for method in ("keyword", "vector", "hybrid"):
        found = await server.search("peppermint tea", user_id="nadia", method=method)
        first = next(item for item in found["episodes"] if item["id"].endswith("3"))
        facts = [(fact["id"], fact["content"]) for fact in first["atomic_facts"]]
        wanted = [("nadia_af_20260302_00000001", "Nadia drinks peppermint tea.")] if method == "hybrid" else []
        assert wanted == facts, method


async def test_a_stricter_radius_never_gives_more(server: Server) -> None:
    """What is found within a radius is found within every wider one."""
    for method in ("vector", "hybrid"):
        sizes = []
        for radius in (0.0, 0.2, 0.5, 0.8, 1.0):
            found = await server.search("a walk with tea", user_id="nadia", method=method, radius=radius)
            sizes.append(len(found["episodes"]))
        assert sorted(sizes, reverse=True) == sizes, method


async def test_a_merged_narrative_has_no_session_and_no_filter_of_one_matches_it(server: Server) -> None:
    """`session_id: null`, `sender_ids: []`, `summary: ""`, `type: Conversation`."""
    found = {item["id"]: item for item in (await server.search("lighthouse", user_id="nadia"))["episodes"]}
    narrative = found["nadia_ep_20260302_00000004"]

    assert (None, [], "", "Conversation") == tuple(
        narrative[name] for name in ("session_id", "sender_ids", "summary", "type")
    )
    for session_id in ("s_17", "s_18", "", {"ne": "s_17"}, {"in": ["s_17", "s_18"]}):
        body = {"query": "lighthouse", "user_id": "nadia", "filters": {"session_id": session_id}}
        answer = await server.post("memory/search", body)
        shown = answer.json().get("data", {}).get("episodes", [])
        assert narrative["id"] not in {item["id"] for item in shown}, session_id


async def test_without_an_owner_the_only_user_is_meant(server: Server) -> None:
    """Ours: where the scope has several users, or none, 422 names the field."""
    found = await server.search("lighthouse", app_id="solo")

    assert ["ada_ep_20260302_00000001"] == [item["id"] for item in found["episodes"]]
    assert "user_id" == at_fault(await server.post("memory/search", {"query": "lighthouse"}))
    assert "user_id" == at_fault(await server.post("memory/search", {"query": "lighthouse", "app_id": "nobody"}))


async def test_include_status_opens_what_is_not_active(server: Server) -> None:
    """Ours: only then items carry `status` and `deprecated_by`; an unknown status is 422."""
    both = await server.search("lighthouse", user_id="nadia", include_status=["active", "deprecated"])
    shown = {item["id"][-1]: (item["status"], item["deprecated_by"]) for item in both["episodes"]}
    usual = await server.search("lighthouse", user_id="nadia")

    successor = "nadia_ep_20260302_00000004"
    assert {"1": ("deprecated", successor), "2": ("deprecated", successor), "3": ("active", None), "4": ("active", None)} == shown  # fmt: skip
    assert not {"status", "deprecated_by"} & set(usual["episodes"][0])
    assert 2 == (await server.episodes("nadia", include_status=["deprecated"]))["total_count"]
    for status in ("active", "deprecated", "expired", "superseded", "archived", "deleted"):
        assert 200 == (await server.post("memory/get", {"memory_type": "episode", "user_id": "nadia", "include_status": [status]})).status_code  # fmt: skip
    body = {"query": "q", "user_id": "nadia", "include_status": ["gone"]}
    assert "include_status.0" == at_fault(await server.post("memory/search", body))


# -- filters --------------------------------------------------------------------------------------------------------------

FILTERS: tuple[tuple[dict[str, Any], set[str]], ...] = (
    ({}, {"3", "4"}),
    ({"session_id": 'o"Brien'}, {"3"}),
    ({"session_id": {"eq": 'o"Brien'}}, {"3"}),
    ({"session_id": {"ne": 'o"Brien'}}, set()),
    ({"session_id": {"in": ["x", 'o"Brien']}}, {"3"}),
    ({"session_id": "' OR 1=1 --"}, set()),
    ({"parent_type": "cluster"}, {"4"}),
    ({"parent_type": {"ne": "cluster"}}, {"3"}),
    ({"parent_id": "cl_0123456789ab"}, {"4"}),
    ({"sender_id": "bo"}, {"3"}),
    ({"sender_id": {"in": ["bo", "nobody"]}}, {"3"}),
    ({"timestamp": {"gt": T0 + 180_000}}, {"4"}),
    ({"timestamp": {"gte": T0 + 180_000, "lt": T0 + 240_000}}, {"3"}),
    ({"timestamp": {"lte": T0 + 240_000}, "parent_type": "cluster"}, {"4"}),
    ({"timestamp": {"eq": T0 + 240_000}}, {"4"}),
    ({"AND": [{"parent_type": "memcell"}, {"sender_id": "bo"}]}, {"3"}),
    ({"OR": [{"parent_type": "cluster"}, {"AND": [{"sender_id": "bo"}, {"sender_id": "nadia"}]}]}, {"3", "4"}),
    ({"OR": [{"parent_type": "cluster"}], "sender_id": "bo"}, set()),
    ({"AND": []}, {"3", "4"}),
    ({"OR": []}, {"3", "4"}),
)


async def test_filters_mean_what_they_say_inside_every_method(server: Server) -> None:
    """Fields, operators, AND and OR lists; empty lists restrict nothing; quotes are text; get and every search agree."""
    for filters, wanted in FILTERS:
        listed = await server.episodes("nadia", filters=filters)
        assert wanted == {item["id"][-1] for item in listed["episodes"]}, filters
        assert len(wanted) == listed["total_count"]
        for method in ("keyword", "vector", "hybrid"):
            found = await server.search(
                "lighthouse", user_id="nadia", method=method, filters=filters, top_k=len(wanted) or 1
            )
            assert wanted == {item["id"][-1] for item in found["episodes"]}, (method, filters)


async def test_filters_that_cannot_be_are_422(server: Server) -> None:
    """Scope is reserved; unknown fields and operators, wrong types, empty maps, `in: []` and NOT are refused."""
    wrong: Iterable[dict[str, Any]] = (
        *({name: "nadia"} for name in ("owner_id", "owner_type", "app_id", "project_id")),
        *({"AND": [{name: "nadia"}]} for name in ("owner_id", "owner_type", "app_id", "project_id")),
        {"colour": "red"},
        {"session_id": {"like": "s"}},
        {"sender_id": {"ne": "bo"}},
        {"sender_id": {"gt": "bo"}},
        {"session_id": 7},
        {"timestamp": []},
        {"session_id": {}},
        {"session_id": {"in": []}},
        {"NOT": [{"session_id": "s"}]},
        {"AND": {"session_id": "s"}},
    )
    for filters, (route, body) in itertools.product(
        wrong, (("memory/search", {"query": "q"}), ("memory/get", {"memory_type": "episode"}))
    ):
        answer = await server.post(route, {**body, "user_id": "nadia", "filters": filters})
        assert (422, "INVALID_INPUT") == refusal(answer), filters


# -- ome/trigger ------------------------------------------------------------------------------------------------------------


async def test_A03_a_trigger_tells_what_became_of_its_runs(server: Server) -> None:
    """`ok`: settled, look at `runs`; `timeout`: it goes on; `not_dispatched`: nothing started, all 200; an unknown name is 404."""
    server.fail("scripted_1")
    await server.until(dead=1)
    health = (await server.client.get("/health")).json()
    dry = await server.trigger(OURS, dry_run=True)
    failed = await server.trigger(OURS)
    server.scripted.is_failing = False
    server.scripted.gate.clear()
    slow = await server.trigger(OURS, timeout=0)
    await server.until(running=1)
    second = await server.trigger(OURS)
    server.scripted.gate.set()
    await server.until(running=0, waiting=0, dead=0)
    last = (await server.strategy(OURS))["last_run"]

    assert any(OURS in reason and "scripted_1" in reason for reason in health["degraded"])
    assert ("ok", OURS, 0) == (dry["status"], dry["name"], dry["dispatched"])
    assert "scripted_1" in dry["runs"][0]["result"]
    assert ("ok", 1, "dead_letter") == (failed["status"], failed["dispatched"], failed["runs"][0]["status"])
    assert failed["runs"][0]["error"]
    assert ("timeout", 1) == (slow["status"], slow["dispatched"])
    assert ("not_dispatched", 0) == (second["status"], second["dispatched"])
    assert [("running", slow["runs"][0]["run_id"])] == [(run["status"], run["run_id"]) for run in second["runs"]]
    assert ("success", slow["runs"][0]["run_id"]) == (last["status"], last["run_id"])
    assert {"status": "not_dispatched", "name": OURS, "dispatched": 0, "runs": []} == await server.trigger(OURS)
    assert "not_dispatched" == (await server.trigger("reflect_episodes"))["status"]
    for unknown in ("no_such_strategy", "", "extract_foresigh"):
        assert (404, "NOT_FOUND") == refusal(await server.post("ome/trigger", {"name": unknown}))


async def test_removing_an_override_restores_the_default(server: Server) -> None:
    """A strategy that is switched off is not dispatched but by `force`; without the line it is on again."""
    path = server.root / "ome.toml"
    server.fail("scripted_2")
    await server.until(dead=1)
    server.scripted.is_failing = False
    path.write_text(f"{SWITCHED_OFF}[strategies.{OURS}]\nenabled = false\n", encoding="utf-8")
    await server.until(enabled=False)
    refused = await server.trigger(OURS)
    forced = await server.trigger(OURS, force=True)
    path.write_text(SWITCHED_OFF, encoding="utf-8")
    await server.until(enabled=True)

    assert ("not_dispatched", 0) == (refused["status"], refused["dispatched"])
    assert ("ok", ["success"]) == (forced["status"], [run["status"] for run in forced["runs"]])


async def test_strategies_are_listed(server: Server) -> None:
    """Ours: GET ome/strategies has name, switch, trigger, cron, next and last run and what is wrong in the settings of each."""
    listed = {item["name"]: item for item in data_of(await server.get("ome/strategies"))["items"]}

    assert {*STRATEGIES, OURS, "reflect_episodes"} <= set(listed)
    for item in listed.values():
        assert {"name", "enabled", "trigger", "cron", "next_fire_time", "last_run", "settings_error"} <= set(item)
    assert (False, "0 2 * * 1") == (listed["reflect_episodes"]["enabled"], listed["reflect_episodes"]["cron"])


# -- health, and what EverOS lacks ------------------------------------------------------------------------------------------


async def test_health_has_the_blocks_that_programs_read(server: Server) -> None:
    """Status, version, capabilities, what is switched off, cascade and queue; `pending` 0 means that all is in every index."""
    await server.searchable()
    async with asyncio.timeout(10.0):
        while (found := (await server.client.get("/health")).json())["cascade"]["pending"]:  # noqa: ASYNC110  # the vectors
            await asyncio.sleep(0.01)

    assert "ok" == found["status"]
    assert {"llm", "embed", "rerank", "multimodal_llm", "parser"} == set(found["capabilities"])
    assert (True, False) == (found["capabilities"]["embed"], found["capabilities"]["llm"])
    assert "llm" in found["disabled_features"]
    assert {"healthy", "reasons", "pending", "failed_permanent", "failed_retryable"} <= set(found["cascade"])
    assert 0 == found["cascade"]["pending"]
    assert {
        *("healthy", "reasons", "loop_alive", "accepting", "pending", "oldest_pending_age_s", "failed"),
        *("loop_restarts", "last_loop_error_at"),
    } == set(found["memorize_queue"])
    assert (True, True) == (found["memorize_queue"]["loop_alive"], found["memorize_queue"]["accepting"])


async def test_health_is_200_even_when_degraded(server: Server) -> None:
    """A file that cannot be read is told, and the status stays `ok`."""
    answer = await server.client.get("/health")

    assert (200, "ok", False) == (answer.status_code, answer.json()["status"], answer.json()["cascade"]["healthy"])
    assert any("1 file" in reason for reason in answer.json()["degraded"])


async def test_an_entry_is_told_with_its_lineage(server: Server) -> None:
    """Ours: GET entries/{id} has kind, status, deprecated_by, sources, messages, file and line."""
    old = data_of(await server.get("entries/nadia_ep_20260302_00000001"))
    new = data_of(await server.get("entries/nadia_ep_20260302_00000004"))

    assert {"kind", "status", "deprecated_by", "sources", "messages", "file", "line", "importance"} <= set(old)
    assert ("episode", "deprecated", "nadia_ep_20260302_00000004") == (old["kind"], old["status"], old["deprecated_by"])
    assert ["nadia_ep_20260302_00000001", "nadia_ep_20260302_00000002"] == new["sources"]
    assert old == data_of(await server.get("entries/ep_20260302_00000001", user_id="nadia"))


async def test_I07_an_id_that_is_nearly_right_is_404(server: Server) -> None:
    """No other entry is shown for a missing digit, another case, a blank or another owner."""
    for wrong in ("nadia_ep_20260302_0000001", "nadia_ep_20260302_000000011", "Nadia_ep_20260302_00000001", "nadia_EP_20260302_00000001", "nadi_ep_20260302_00000001", "nadia_ep_20260302_00000001%20", "ep_20260302_00000001", "mara_ep_20260302_00000001"):  # fmt: skip
        assert (404, "NOT_FOUND") == refusal(await server.get(f"entries/{wrong}")), wrong


async def test_Z01_ids_that_could_be_paths_are_refused_on_every_route(server: Server) -> None:
    """Users, agents, apps and projects are never a way out of the root; nothing is made for a refused one."""
    before = folders(server.root)
    for wrong in ("..", "../../x", "/etc", "a/b", "%2e%2e/x", "a\0b", ".", "x" * 129):
        for field in ("app_id", "project_id"):
            for route, body in (
                ("memory/add", {"session_id": "s", "messages": [said("x")]}),
                ("memory/flush", {"session_id": "s"}),
                ("memory/search", {"query": "q", "user_id": "nadia"}),
                ("memory/get", {"memory_type": "episode", "user_id": "nadia"}),
            ):
                assert field == at_fault(await server.post(route, body | {field: wrong})), (route, wrong)
            assert field == at_fault(await server.get("tasks", **{field: wrong}))
            assert field == at_fault(await server.get("entries/nadia_ep_20260302_00000001", **{field: wrong}))
        for field in ("user_id", "agent_id"):
            assert field == at_fault(await server.post("memory/search", {"query": "q", field: wrong}))
        message = said("x", sender=wrong)
        answer = await server.post("memory/add", {"session_id": "s", "messages": [message]})
        assert "messages.0.sender_id" == at_fault(answer)
        if wrong.strip("."):  # clients take dots for steps
            task = await server.get(f"tasks/{urllib.parse.quote(wrong, safe='')}")
            assert task.status_code in {404, 405, 422}

    assert before == folders(server.root)


async def test_P08_nul_characters_are_left_out_with_a_warning(server: Server) -> None:
    """The rest of that message and the other messages of the batch survive; the answer says which."""
    call = {"id": "c\0", "type": "function", "function": {"name": "f\0", "arguments": '{"a": "\\u0000"}'}}
    items = [{"type": "text", "text": "be\0fore"}, {"type": "text", "text": "after", "name": "n\0"}]
    batch = [
        said("a\0b", sender_name="Ma\0ra"),
        said("whole \\u0000", minute=1),
        said(items, minute=2, tool_calls=[call]),
    ]
    answer = await server.post("memory/add", {"session_id": "nul", "messages": batch})
    waiting = await server.waiting("nul")
    await server.flush("nul")
    texts = [path.read_bytes() for path in server.root.rglob("*.md")]

    assert ["NUL characters were left out of messages.0", "NUL characters were left out of messages.2"] == answer.json()["degraded"]  # fmt: skip
    assert ("ab", "Mara") == (waiting[0]["content"], waiting[0]["sender_name"])
    assert "whole \\u0000" == waiting[1]["content"]
    assert ["before", "after"] == [item["text"] for item in waiting[2]["content"]]
    assert ("c", "f", '{"a": "\\u0000"}') == (
        waiting[2]["tool_calls"][0]["id"],
        *(waiting[2]["tool_calls"][0]["function"][name] for name in ("name", "arguments")),
    )
    assert not any(b"\0" in text for text in texts)


async def test_L14_a_message_of_many_lines_is_kept_whole(server: Server) -> None:
    """Long text that looks like markers and headings comes back to the last character."""
    long = "<!-- /entry:ms_20260302_00000001 -->\n## heading\n**role**: tool\n---\n" * 800
    await server.add("long", said(long))

    assert [long] == [message["content"] for message in await server.waiting("long")]
    assert [row.message_id("long", T0 * 1000, 0)] == [one.id for one in (await server.log_of("long")).waiting]
    assert [long.strip()] == [one.text for one in (await server.log_of("long")).waiting]


async def test_L14_a_message_of_a_megabyte_is_taken(server: Server) -> None:
    """It is kept to the last word, and the next message after it."""
    long = "the quick brown fox jumps over the lazy dog and " * 21_000 + "zanzibar"
    added = await server.add("megabyte", said(long), said("and then?", minute=1), defer_extraction=True)

    assert {"message_count": 2, "status": "accumulated"} == added
    assert [long, "and then?"] == [message["content"] for message in await server.waiting("megabyte")]
    assert [long, "and then?"] == [one.text for one in (await server.log_of("megabyte")).waiting]
