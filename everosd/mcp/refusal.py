"""What an agent is told when a tool did not do what it was asked: what is wrong, and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

import msgspec

from everosd import errors
from everosd.mcp import backend

ADVICE: Mapping[str, str] = {
    "INVALID_INPUT": "correct the argument that is named at the end",
    "NOT_FOUND": "look the id up with search_memory; ids are taken exactly, and only this person's are known here",
    "CONFLICT": "look at what is there now (list_memory_versions, search_memory), then decide again",
    "CONFIRMATION_REQUIRED": (
        "nothing was done: show the person what would go, and repeat the call with confirm=true only if they agree"
    ),
    "PAYLOAD_TOO_LARGE": "send it in smaller parts",
    "QUEUE_SATURATED": "wait a minute and send the same again",
    "CAPABILITY_UNAVAILABLE": "tell the person: `everosd doctor` says what is missing; try again later",
    "EXTERNAL_SERVICE_UNAVAILABLE": "a model is away; what was given is kept and read later. Do not send it again",
    "PROVIDER_NOT_CONFIGURED": "tell the person: `everosd doctor` says what is to be set up",
    "UNAUTHORIZED": "tell the person: the token of this connection is not [api] token",
    "FORBIDDEN": "tell the person: this daemon does not answer requests from there",
    "INTERNAL_ERROR": "tell the person: the daemon's log has the reason; nothing else can be done here",
}
"""What to do about each code of the routes."""

UNKNOWN_ROUTE = (
    "this daemon does not know that: it is older than its MCP server. Tell the person to restart it (everosd serve)"
)
OF_SETTINGS = (": user_id", ": app_id", ": project_id")
"""How a message ends that is about what no tool takes."""
NO_SUCH_OWNER = "tell the person: [mcp] in everos.toml names a user, an app or a project that there cannot be"
OWN = frozenset({"request_id", "error", "detail"})
"""Of an error's envelope, what an agent has no use for or has been told."""


def of_reply(reply: backend.Reply, *, has_id: bool = True) -> str:
    """Return what to say of an answer that is no success; `has_id`: the call named a memory by its id."""
    error = reply.body.get("error")
    if not isinstance(error, dict):
        return _joined(f"the daemon answered with status {reply.status}", ADVICE["INTERNAL_ERROR"])
    code, message = str(error.get("code", "")), str(error.get("message", ""))
    is_unknown_route = reply.status in {HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED} and "detail" in reply.body
    advice = str(error.get("hint") or ADVICE.get(code, ""))
    if is_unknown_route:
        advice = UNKNOWN_ROUTE
    elif code == "INVALID_INPUT" and message.endswith(OF_SETTINGS):
        advice = NO_SUCH_OWNER
    elif code == "NOT_FOUND" and not has_id:
        advice = ""
    more = {name: value for name, value in reply.body.items() if name not in OWN}
    more |= {
        name: value for name, value in error.items() if name not in {"code", "message", "timestamp", "path", "hint"}
    }
    shown = f"\n{msgspec.json.encode(more).decode()}" if more else ""
    return _joined(f"{code}: {message}" if code else message, advice) + shown


def of_error(error: errors.EverosdError) -> str:
    """Return what to say of an error of our own."""
    if isinstance(error, errors.RequestError):
        return _joined(f"INVALID_INPUT: {error}", error.hint)
    if isinstance(error, errors.NotFound):
        return _joined(f"NOT_FOUND: {error}", error.hint or ADVICE["NOT_FOUND"])
    return _joined(str(error), error.hint)


def _joined(what: str, advice: str) -> str:
    return f"{what}\n{advice}" if advice else what
