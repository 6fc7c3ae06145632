"""What schemathesis makes of our own OpenAPI document, sent to the real application over a real root.

Answers are what the document says: a status that it names, its media type, its schema; never a fault of ours.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import threading
from collections.abc import Iterator
from typing import Any, cast

import httpx
import hypothesis
import msgspec
import pytest
import requests
import schemathesis
from hypothesis import strategies as st
from schemathesis.specs.openapi import checks as openapi_checks

from everosd import clock, config, daemon
from everosd.api import admin, openapi, schema
from tests import effort

HOST = "http://127.0.0.1:8000"
PREFIX, SAME = schema.PREFIXES
IS_FUZZ = os.environ.get("HYPOTHESIS_PROFILE") == "fuzz"
EXAMPLES = 1_000 if IS_FUZZ else effort.rounds(60, 20)
"""Of each operation, right ones and wrong ones each."""
ANSWER_S = 60.0
DAY = "default_app/default_project/users/mara/episodes/episode-2026-03-02.md"
NOTES = "default_app/default_project/users/mara/memories/notes/semantic-2026-03-02.md"
EPISODE, MEMORY = "ep_20260302_00000001", "mem_20260302_00000001"
FILES = {
    DAY: f"""<!-- entry:{EPISODE} -->
## {EPISODE}

**owner_id**: mara
**session_id**: s_17
**timestamp**: 2026-03-02T18:39:55+00:00
**parent_type**: memcell
**parent_id**: mc_000000000001
**sender_ids**: [mara, helper]

### Subject
The canal

### Content
Mara walked along the canal.
<!-- /entry:{EPISODE} -->
""",
    NOTES: f"""<!-- entry:{MEMORY} -->
## {MEMORY}

**owner_id**: mara
**timestamp**: 2026-03-02T18:39:55+00:00
**memory_type**: semantic
**importance**: 0.5

### Content
Mara lives by the canal.
<!-- /entry:{MEMORY} -->
""",
}
SCOPE = {"app_id": "default", "project_id": "default", "user_id": "mara"}
KNOWN: dict[str, tuple[Any, ...]] = {
    "owner_type": ("user",),
    "session_id": ("s_17",),
    "memory_id": (MEMORY, f"mara_{MEMORY}", f"mara_{EPISODE}"),
    "memory_ids": ([f"mara_{MEMORY}"],),
    "source_ids": ([f"mara_{EPISODE}"],),
    "id": (f"mara_{MEMORY}", f"mara_{EPISODE}", EPISODE),
    "path": (DAY, "notes"),
    "paths": ([DAY],),
    "path_filter": ("%", "notes%"),
    "bucket": ("public",),
    "scope": ("home", None),
    "team_id": ("t1", None),
    "memory_type": ("semantic", "working"),
    "semantic_key": ("home",),
    "metadata": ({"a": [1]},),
    "top_k": (-1, 3),
    "page": (1, 2),
    "filters": (None, {"session_id": "s_17"}, {"OR": [{"timestamp": {"gte": 0}}, {"sender_id": {"in": ["mara"]}}]}),
    "since": ("2026-03-01", 0),
    "until": ("2027-03-01T10:00:00+02:00", 2**41),
    "timestamp": (1_772_442_000_000,),
    "expires_at": ("2999-01-01",),
    "status": ("deleted", "active"),
    "actions": (["expire", "decay"], None),
    "actions_csv": ("archive", None),
    "role": ("user", "assistant"),
    "name": ("reflect_episodes", "run_lifecycle", "extract_atomic_facts"),
    "confirm": ("mara", True),
}
"""What there is in the root: put in the place of made-up names now and then, so that requests get further than a 404."""
GET, OF_GET = f"POST {PREFIX}/memory/get", ("episode", "profile")
"""Where `memory_type` means something else."""
SHORT = {"timeout": 0.2, "timeout_s": 0.2}
"""What a request may wait for, seconds."""
LENT = {"CAPABILITY_UNAVAILABLE", "EXTERNAL_SERVICE_UNAVAILABLE"}
"""Codes of 503, where it is in the document: something that is not set up here was asked for."""

CHECKS = [
    openapi_checks.negative_data_rejection,
    openapi_checks.status_code_conformance,
    openapi_checks.content_type_conformance,
    openapi_checks.response_schema_conformance,
]
"""Of schemathesis. That all that fits is taken is not among them: some rules are between two fields, or are of names."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Served:
    """An application on a loop in another thread."""

    loop: asyncio.AbstractEventLoop
    client: httpx.AsyncClient

    def send(self, case: schemathesis.Case[Any]) -> httpx.Response:
        """Send one request, byte for byte as schemathesis would."""
        made: Any = requests.Request(**case.as_transport_kwargs(base_url=HOST)).prepare()
        headers = {name: value for name, value in made.headers.items() if name.lower() != "content-length"}
        asked = self.client.request(made.method, made.url, headers=headers, content=made.body or b"")
        return asyncio.run_coroutine_threadsafe(asked, self.loop).result(ANSWER_S)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A root of its own with one Episode and one typed memory, everything that learns included, but for models."""
    root = tmp_path_factory.mktemp("root")
    for path, text in FILES.items():
        (root / path).parent.mkdir(parents=True)
        (root / path).write_text(text)
    (root / config.FILE_NAME).write_text('[embedding]\nmodel = "none"\n')
    ready, made, over = threading.Event(), list[Served](), asyncio.Event()

    async def serve() -> None:
        loaded = await asyncio.to_thread(config.load, root, {})
        async with daemon.open_node(loaded, clock.SystemClock(), learns=True) as node:
            await node.cascade.reconcile("test")
            await node.cascade.settled(20.0)
            app = cast("Any", await asyncio.to_thread(daemon.application, node))
            transport = httpx.ASGITransport(app, raise_app_exceptions=False, client=("127.0.0.1", 4711))
            async with httpx.AsyncClient(transport=transport) as client:
                made.append(Served(loop=asyncio.get_running_loop(), client=client))
                ready.set()
                await over.wait()

    def run() -> None:
        try:
            asyncio.run(serve())
        finally:
            ready.set()

    thread = threading.Thread(target=run, name="served")
    thread.start()
    ready.wait()
    try:
        assert made, "the application could not be opened"
        yield made[0]
    finally:
        if made:
            made[0].loop.call_soon_threadsafe(over.set)
        thread.join()


DOCUMENT = msgspec.json.decode(openapi.document("0"))


def _operations() -> dict[str, Any]:
    """Return the operations of the document by label; of two prefixes with the same routes, one unless there is time."""
    read = cast("Any", schemathesis.openapi.from_dict(DOCUMENT)).get_all_operations()
    found = {one.label: one for one in (each.ok() for each in read)}
    return {label: one for label, one in found.items() if effort.IS_FULL or SAME not in label}


def _takes(label: str) -> set[str]:
    """Return the names of what an operation takes."""
    method, _, path = label.partition(" ")
    operation = DOCUMENT["paths"][path][method.lower()]
    names = {one["name"] for one in operation.get("parameters", ())}
    if "requestBody" in operation:
        of_body = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        names |= DOCUMENT["components"]["schemas"][of_body]["properties"].keys()
    return names


OPERATIONS = _operations()
TAKES = {label: _takes(label) for label in OPERATIONS}
ASKED = [
    pytest.param(label, mode, id=f"{label.replace(' ', '-')}-{mode.value}")
    for label, one in OPERATIONS.items()
    for mode in schemathesis.GenerationMode
    if mode.is_positive or one.body or any(each.location == "query" for each in one.iter_parameters())
]


@pytest.mark.xdist_group("http-schema")
@pytest.mark.timeout(0 if IS_FUZZ else 300)
@pytest.mark.parametrize(("label", "mode"), ASKED)
def test_answers_are_those_of_the_document(label: str, mode: schemathesis.GenerationMode, served: Served) -> None:
    """Whatever fits the document, and whatever does not: no fault, no status, media type or shape that is not in it."""
    operation = OPERATIONS[label]

    @hypothesis.settings(
        max_examples=EXAMPLES,
        derandomize=not IS_FUZZ,
        deadline=None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(case=operation.as_strategy(generation_mode=mode), data=st.data())
    def ask(case: schemathesis.Case[Any], data: st.DataObject) -> None:
        _shorten(case.body)
        if mode.is_positive and data.draw(st.integers(0, 3)):
            _place(label, case)
            for holder in (case.body, case.query, case.path_parameters):
                if isinstance(holder, dict):
                    _put(label, holder, data)
        answer = served.send(case)
        assert not _is_fault(answer), answer.text
        case.validate_response(answer, checks=CHECKS)

    ask()


def _shorten(body: Any) -> None:
    """Let nothing be waited for."""
    for name in SHORT.keys() & body.keys() if isinstance(body, dict) else set():
        if isinstance(body[name], int | float):
            body[name] = min(body[name], SHORT[name])


def _place(label: str, case: schemathesis.Case[Any]) -> None:
    """Ask in the scope, and of the user, that there is."""
    holder = case.body if isinstance(case.body, dict) else case.query
    holder.update({name: value for name, value in SCOPE.items() if name in TAKES[label]})
    if "user_id" in holder:
        holder.pop("agent_id", None)


def _put(label: str, holder: dict[str, Any], data: st.DataObject) -> None:
    """Put what there is in the place of made-up names."""
    for name in sorted(holder.keys() & KNOWN.keys()):
        if data.draw(st.integers(0, 3)):
            choices = OF_GET if (label, name) == (GET, "memory_type") else KNOWN[name]
            holder[name] = data.draw(st.sampled_from(choices))
    for each in holder.get("messages") or ():
        each["role"] = data.draw(st.sampled_from(KNOWN["role"]))


def _is_fault(answer: httpx.Response) -> bool:
    """Tell whether something broke: in the answer, or in work whose progress is streamed."""
    if answer.status_code < 500:
        is_stream = answer.headers["content-type"].startswith(admin.NDJSON)
        return is_stream and "INTERNAL_ERROR" in answer.text.splitlines()[-1]
    return answer.status_code != 503 or answer.json()["error"]["code"] not in LENT
