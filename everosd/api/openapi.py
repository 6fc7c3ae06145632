"""/openapi.json, made from the structs that requests are decoded into and answers are encoded from."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from everosd.api import lifecycle_schema, owners, recall_schema, schema, typed_schema
from everosd.cascade import status as cascade_status

REF = "#/components/schemas/{name}"

_NAMED: dict[Any, str] = {
    schema.SearchRequest: "SearchRequest",
    schema.GetRequest: "GetRequest",
    schema.Envelope[schema.SearchData]: "SearchResponse",
    schema.Envelope[schema.GetData]: "GetResponse",
    schema.Envelope[schema.EntryItem]: "EntryResponse",
    schema.Envelope[cascade_status.Status]: "StatusResponse",
    schema.MemorizeAddRequest: "MemorizeAddRequest",
    schema.MemorizeFlushRequest: "MemorizeFlushRequest",
    schema.TriggerRequest: "TriggerRequest",
    schema.TriggerResponse: "TriggerResponse",
    schema.Envelope[schema.AddResponseData]: "SuccessEnvelope_AddResponseData_",
    schema.Envelope[schema.AcceptedResponseData]: "SuccessEnvelope_AcceptedResponseData_",
    schema.Envelope[schema.FlushResponseData]: "SuccessEnvelope_FlushResponseData_",
    schema.Envelope[schema.TaskItem]: "SuccessEnvelope_TaskItem_",
    schema.Envelope[schema.TaskPage]: "SuccessEnvelope_TaskPage_",
    schema.Envelope[schema.Strategies]: "StrategiesResponse",
    schema.Envelope[schema.ReportsData]: "ReportsResponse",
    schema.Envelope[owners.OwnersData]: "OwnersResponse",
    schema.RollbackRequest: "RollbackRequest",
    schema.Envelope[schema.RollbackData]: "RollbackResponse",
    schema.ErrorEnvelope: "ErrorEnvelope",
    schema.HealthResponse: "HealthResponse",
    schema.AdoptRequest: "AdoptRequest",
    schema.ReconcileRequest: "ReconcileRequest",
    schema.ForgetRequest: "ForgetRequest",
    schema.ExtractRequest: "ExtractRequest",
    typed_schema.RememberRequest: "RememberRequest",
    typed_schema.UpdateRequest: "UpdateRequest",
    typed_schema.ForgetMemoryRequest: "ForgetMemoryRequest",
    typed_schema.RestoreRequest: "RestoreRequest",
    typed_schema.UsageRequest: "UsageRequest",
    schema.Envelope[typed_schema.WrittenData]: "WrittenResponse",
    schema.Envelope[typed_schema.ForgottenData]: "ForgottenResponse",
    schema.Envelope[typed_schema.RestoredData]: "RestoredResponse",
    schema.Envelope[typed_schema.HistoryData]: "HistoryResponse",
    schema.Envelope[typed_schema.UsedData]: "UsedResponse",
    recall_schema.RecallRequest: "RecallRequest",
    recall_schema.ExplainRequest: "ExplainRequest",
    schema.Envelope[recall_schema.RecallData]: "RecallResponse",
    schema.Envelope[recall_schema.ExplainData]: "ExplainResponse",
    schema.Envelope[recall_schema.StatsData]: "StatsResponse",
    schema.Envelope[schema.TimelineData]: "TimelineResponse",
    lifecycle_schema.ReflectRequest: "ReflectRequest",
    schema.Envelope[lifecycle_schema.ReflectData]: "ReflectResponse",
    schema.Envelope[lifecycle_schema.LifecycleData]: "LifecycleResponse",
    schema.Envelope[lifecycle_schema.AuditData]: "AuditResponse",
}
"""Everything that a route takes or gives."""


_WRITES = (
    ("remember", "RememberRequest", "WrittenResponse", "Remember something under a path; under a key, update it."),
    ("update", "UpdateRequest", "WrittenResponse", "Change a typed memory; its version before is kept."),
    ("forget", "ForgetMemoryRequest", "ForgottenResponse", "Hide a memory, or remove its text for good."),
    ("restore", "RestoreRequest", "RestoredResponse", "Bring a memory back that is hidden, expired or archived."),
    ("usage", "UsageRequest", "UsedResponse", "Say which memories were of use."),
)
"""Routes that write typed memories: name, what it takes and gives, summary."""


def document(version: str) -> bytes:
    """Return the OpenAPI 3.1 document. Takes some milliseconds: made once, when first asked for."""
    components = _components()
    paths: dict[str, object] = {
        "/health": {"get": _operation("HealthResponse", "What works, what does not, how far the indexes are.")},
        "/metrics": {"get": _text("The figures, as Prometheus reads them.")},
        "/openapi.json": {"get": _text("This document.", "application/json")},
    }
    for prefix in schema.PREFIXES:
        for path, item in _api_paths().items():
            paths[prefix + path] = item
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {"title": "everosd", "version": version},
            "paths": paths,
            "components": {"schemas": components},
        }
    )


def _api_paths() -> dict[str, object]:
    entry = _operation("EntryResponse", "One entry with status, lineage and successor.", (404, 422, 500))
    entry["parameters"] = [
        {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}},
        *_query_parameters(schema.EntryQuery),
    ]
    history = _operation("HistoryResponse", "Its versions, and what the lifecycle did to it.", (404, 422, 500))
    history["parameters"] = entry["parameters"]
    tasks = _operation("SuccessEnvelope_TaskPage_", "Requests that were answered before they were done.", (422, 503))
    tasks["parameters"] = _query_parameters(schema.TasksQuery)
    task = _operation("SuccessEnvelope_TaskItem_", "One of them.", (404, 503))
    task["parameters"] = [{"name": "task_id", "in": "path", "required": True, "schema": {"type": "string"}}]
    reports = _operation("ReportsResponse", "What was consolidated, before and after.", (422, 500))
    reports["parameters"] = _query_parameters(schema.ReportsQuery)
    people = _operation("OwnersResponse", "Who has memory in a scope.", (422, 500))
    people["parameters"] = _query_parameters(owners.OwnersQuery)
    put_away = _operation("LifecycleResponse", "What is expired, archived, superseded, why and since when.", (422, 500))
    put_away["parameters"] = _query_parameters(lifecycle_schema.LifecycleQuery)
    audit = _operation("AuditResponse", "What changed memories, and which call did.", (422, 500))
    audit["parameters"] = _query_parameters(lifecycle_schema.AuditQuery)
    timeline = _operation("TimelineResponse", "What was remembered, in the order of its moments.", (422, 500))
    timeline["parameters"] = _query_parameters(schema.TimelineQuery)
    figures = _operation("StatsResponse", "How many memories there are, of what kind, and what is due.", (422, 500))
    figures["parameters"] = _query_parameters(recall_schema.StatsQuery)
    recalling = _post("RecallRequest", "RecallResponse", "One text of what matters here.", (413, 422, 500, 503))
    explaining = _post("ExplainRequest", "ExplainResponse", "Why a memory is what it is.", (404, 413, 422, 500, 503))
    passes = _post("ReflectRequest", "ReflectResponse", "Consolidate memories by rule.", (409, 413, 422, 500, 503))
    undo = _post("RollbackRequest", "RollbackResponse", "Undo one consolidation.", (404, 409, 413, 422, 500, 503))
    return {
        "/memory/search": {"post": _post("SearchRequest", "SearchResponse", "Find memories.", (413, 422, 500, 503))},
        "/memory/get": {"post": _post("GetRequest", "GetResponse", "List memories.", (413, 422, 500))},
        "/memory/add": {"post": _queueing("Add", "Keep messages; extract from them where a conversation ends.")},
        "/memory/flush": {"post": _queueing("Flush", "Extract from what is kept of a session.")},
        "/owners": {"get": people},
        "/tasks": {"get": tasks},
        "/tasks/{task_id}": {"get": task},
        "/ome/trigger": {"post": _post("TriggerRequest", "TriggerResponse", "Run a strategy.", (404, 413, 422, 503))},
        "/ome/strategies": {"get": _operation("StrategiesResponse", "What the engine runs.", (422, 503))},
        "/memory/recall": {"post": recalling},
        "/memory/explain": {"post": explaining},
        "/memory/stats": {"get": figures},
        "/memory/reflect": {"post": passes},
        "/memory/lifecycle": {"get": put_away},
        "/memory/audit": {"get": audit},
        "/memory/timeline": {"get": timeline},
        "/reflection/reports": {"get": reports},
        "/reflection/rollback": {"post": undo},
        "/entries/{id}": {"get": entry},
        "/entries/{id}/history": {"get": history},
        **{
            f"/memory/{name}": {"post": _post(takes, gives, summary, (404, 409, 413, 422, 500, 503))}
            for name, takes, gives, summary in _WRITES
        },
        "/admin/status": {"get": _operation("StatusResponse", "What the cascade says of itself.", (403,))},
        "/admin/rebuild": {"post": _streamed(None, "Read all Markdown again and make every index anew.")},
        "/admin/verify": {"post": _streamed(None, "Compare every index with the Markdown.")},
        "/admin/adopt": {"post": _streamed("AdoptRequest", "Give hand-written entries their markers.")},
        "/admin/reconcile": {"post": _streamed("ReconcileRequest", "Compare with the disk now.")},
        "/admin/forget": {"post": _streamed("ForgetRequest", "Remove everything of an owner.", 404)},
        "/admin/extract": {"post": _streamed("ExtractRequest", "Make what follows from Episodes copied in.", 503)},
    }


def _components() -> dict[str, Any]:
    """Return every struct as a JSON Schema, by name; generic envelopes under the names that EverOS gives them."""
    _, found = msgspec.json.schema_components(list(_NAMED), ref_template=REF)
    text = msgspec.json.encode(found).decode()
    for kind, name in _NAMED.items():
        generated = _generated_name(kind)
        if generated != name:
            text = text.replace(f'"{generated}"', f'"{name}"').replace(f'schemas/{generated}"', f'schemas/{name}"')
    components = cast("dict[str, Any]", _with_filters(msgspec.json.decode(text)))
    components["FilterNode"] = {
        "type": "object",
        "properties": {join: {"anyOf": [_list_of_filters(), {"type": "null"}]} for join in ("AND", "OR")},
        "additionalProperties": True,
    }
    return components


def _list_of_filters() -> dict[str, object]:
    return {"type": "array", "items": _ref("FilterNode")}


def _generated_name(kind: Any) -> str:  # a struct, or a generic one with its parameter
    """Return what msgspec calls the schema of `kind`."""
    parameters = getattr(kind, "__args__", ())
    return f"Envelope_{parameters[0].__name__}_" if parameters else cast("str", kind.__name__)


def _with_filters(shape: object) -> object:
    """Return a schema in which what is marked as a filter refers to the filter language."""
    if isinstance(shape, dict):
        return _ref("FilterNode") if "x-filter" in shape else {key: _with_filters(part) for key, part in shape.items()}
    return [_with_filters(part) for part in shape] if isinstance(shape, list) else shape


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": REF.format(name=name)}


def _content(name: str) -> dict[str, object]:
    return {"application/json": {"schema": _ref(name)}}


def _operation(name: str, summary: str, failures: tuple[int, ...] = ()) -> dict[str, object]:
    refusals = {str(status): {"description": "Refused.", "content": _content("ErrorEnvelope")} for status in failures}
    return {"summary": summary, "responses": {"200": {"description": "Done.", "content": _content(name)}, **refusals}}


def _post(takes: str, gives: str, summary: str, failures: tuple[int, ...]) -> dict[str, object]:
    return {"requestBody": {"content": _content(takes), "required": True}, **_operation(gives, summary, failures)}


def _queueing(name: str, summary: str) -> dict[str, object]:
    """Return an operation that is answered when it is done, or queued with 202."""
    accepted = "SuccessEnvelope_AcceptedResponseData_"
    made = _post(f"Memorize{name}Request", f"SuccessEnvelope_{name}ResponseData_", summary, (413, 422, 429, 500, 503))
    answers = cast("dict[str, object]", made["responses"])
    answers["202"] = {"description": "Queued.", "content": _content(accepted)}
    return made


def _streamed(takes: str | None, summary: str, *more: int) -> dict[str, object]:
    """Return an operation that answers this machine only, with progress lines and one last `result` or `error`."""
    refusals = {
        str(status): {"description": "Refused.", "content": _content("ErrorEnvelope")}
        for status in (403, 409, 422, *more)
    }
    lines = {"description": "Progress, then the result.", "content": {"application/x-ndjson": {"schema": {}}}}
    body = {} if takes is None else {"requestBody": {"content": _content(takes)}}
    return {"summary": summary, **body, "responses": {"200": lines, **refusals}}


def _text(summary: str, media_type: str = "text/plain") -> dict[str, object]:
    return {"summary": summary, "responses": {"200": {"description": "Done.", "content": {media_type: {}}}}}


def _query_parameters(kind: type[msgspec.Struct]) -> list[dict[str, Any]]:
    _, found = msgspec.json.schema_components([kind], ref_template=REF)
    properties = found[kind.__name__]["properties"]
    return [{"name": name, "in": "query", "required": False, "schema": shape} for name, shape in properties.items()]
