"""The schema that we serve against the one that programs were written for."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # its stubs are a package more
import msgspec
import pytest

from everosd.api import openapi, schema

PEER = Path(os.environ.get("EVEROSD_PEER", Path(__file__).parents[3] / "shared" / "peer")) / "openapi.json"

SHARED = (
    "AcceptedResponseData",
    "AddResponseData",
    "CascadeHealthBlock",
    "ContentItemDTO",
    "FlushResponseData",
    "GetAgentCaseItem",
    "GetAgentSkillItem",
    "GetData",
    "GetEpisodeItem",
    "GetProfileItem",
    "GetRequest",
    "GetResponse",
    "HealthCapabilities",
    "HealthResponse",
    "MemorizeAddRequest",
    "MemorizeFlushRequest",
    "MemorizeQueueHealthBlock",
    "MessageItemDTO",
    "RunSummary",
    "SearchAgentCaseItem",
    "SearchAgentSkillItem",
    "SearchAtomicFactItem",
    "SearchData",
    "SearchEpisodeItem",
    "SearchProfileItem",
    "SearchRequest",
    "SearchResponse",
    "SuccessEnvelope_AcceptedResponseData_",
    "SuccessEnvelope_AddResponseData_",
    "SuccessEnvelope_FlushResponseData_",
    "SuccessEnvelope_TaskItem_",
    "SuccessEnvelope_TaskPage_",
    "TaskItem",
    "TaskPage",
    "ToolCallDTO",
    "ToolFunctionDTO",
    "TriggerRequest",
    "TriggerResponse",
    "UnprocessedMessageDTO",
)
"""Schemas of routes that both have."""

OURS = {
    "CascadeHealthBlock": {"phase", "lsn", "files_on_disk", "files_indexed", "entries", "scan_age_s", "done", "total"}
    | {"projections", "rows"},
    "GetRequest": {"include_status", "with_readable_episode"},
    "SearchRequest": {
        *("include_status", "with_readable_episode", "explain"),
        *("memory_type", "path_filter", "bucket", "scope", "team_id", "semantic_key"),
    },
    "GetResponse": {"degraded"},
    "SearchResponse": {"degraded"},
    "HealthResponse": {"ready", "degraded", "watch", "embedding", "problems", "n_problems", "uptime_s"},
    "RunSummary": {"result", "detail"},
    "TaskItem": set(),
    "TriggerRequest": {"dry_run"},
    **{
        f"SuccessEnvelope_{name}_": {"degraded"}
        for name in ("AcceptedResponseData", "AddResponseData", "FlushResponseData", "TaskItem", "TaskPage")
    },
    "SearchEpisodeItem": {"memory_type", "path", "status", "deprecated_by", "explain"},
    "SearchAgentCaseItem": {"status", "deprecated_by", "explain"},
    "SearchAgentSkillItem": {"status", "deprecated_by", "explain"},
}
"""What we have more of; items have `status` and `deprecated_by` besides."""

LIMITS = (
    *("minimum", "maximum", "minLength", "maxLength", "enum", "const", "pattern", "exclusiveMinimum"),
    *("minItems", "maxItems"),
)


@pytest.fixture(scope="module")
def served() -> dict[str, Any]:
    """What GET /openapi.json answers."""
    found: dict[str, Any] = msgspec.json.decode(openapi.document("1.2.3"))
    return found


@pytest.fixture(scope="module")
def peer() -> dict[str, Any]:
    """The schema that programs were written for."""
    if not PEER.is_file():
        pytest.skip(f"{PEER} is not there (set EVEROSD_PEER)")
    found: dict[str, Any] = msgspec.json.decode(PEER.read_bytes())
    return found


def resolved(shape: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    """Follow a reference, also one among alternatives with null."""
    options = [option for option in shape.get("anyOf", ()) if option.get("type") != "null"]
    if len(options) == 1:
        shape = options[0]
    if "$ref" in shape:
        found: dict[str, Any] = document["components"]["schemas"][shape["$ref"].rpartition("/")[2]]
        return found
    return shape


def limits(shape: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    """Return the limits of a field, with sets in order."""
    found = resolved(shape, document)
    kept = {name: found[name] for name in LIMITS if name in found}
    if "const" in kept:
        kept["enum"] = [kept.pop("const")]
    if "enum" in kept:
        kept["enum"] = sorted(kept["enum"])
    return kept


@pytest.mark.parametrize("name", SHARED)
def test_shared_schemas_have_the_fields_and_limits_that_programs_expect(
    name: str, served: dict[str, Any], peer: dict[str, Any]
) -> None:
    """Every field of the original is there, as required and as limited; nothing is added but what is listed."""
    ours, theirs = served["components"]["schemas"][name], peer["components"]["schemas"][name]
    added = OURS.get(name, {"status", "deprecated_by"} if name.endswith("Item") and "Fact" not in name else set())

    assert set(theirs["properties"]) | added == set(ours["properties"])
    for field, shape in theirs["properties"].items():
        assert limits(shape, peer) == limits(ours["properties"][field], served), field
        if "default" in shape:
            assert shape["default"] == ours["properties"][field].get("default", shape["default"]), field
    if theirs.get("additionalProperties") is False and name not in {"GetResponse", "SearchResponse"}:
        assert ours["additionalProperties"] is False


@pytest.mark.parametrize(
    "name",
    [
        *(
            "ContentItemDTO",
            "GetRequest",
            "MemorizeAddRequest",
            "MemorizeFlushRequest",
            "MessageItemDTO",
            "SearchRequest",
        ),
        *("ToolCallDTO", "ToolFunctionDTO", "TriggerRequest"),
    ],
)
def test_requests_require_what_the_original_requires(name: str, served: dict[str, Any], peer: dict[str, Any]) -> None:
    """A program that sent enough still sends enough."""
    assert sorted(peer["components"]["schemas"][name]["required"]) == sorted(
        served["components"]["schemas"][name]["required"]
    )


def test_every_reference_leads_somewhere(served: dict[str, Any]) -> None:
    """No schema refers to one that is not there."""
    names = set(re.findall(r"#/components/schemas/([^\"]+)", msgspec.json.encode(served).decode()))

    assert set() == names - set(served["components"]["schemas"])


def test_every_schema_is_a_json_schema(served: dict[str, Any]) -> None:
    """Tools that read JSON Schema can read ours."""
    for shape in served["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(shape)


def test_both_prefixes_have_the_same_routes(served: dict[str, Any]) -> None:
    """What v1 has, v2 has."""
    first, second = (
        {path.removeprefix(prefix) for path in served["paths"] if path.startswith(prefix)} for prefix in schema.PREFIXES
    )

    assert first == second
    assert {"/memory/add", "/memory/flush", "/tasks", "/tasks/{task_id}", "/ome/trigger", "/ome/strategies"} <= first
    assert {"/memory/search", "/memory/get", "/entries/{id}"} <= first
