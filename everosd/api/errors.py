"""Errors on the wire: which class is which status and code, and the envelope around it."""

from __future__ import annotations

import datetime as dt
from http import HTTPStatus

import msgspec
from litestar import exceptions

from everosd import clock, errors
from everosd.api import moment, schema

NOT_FOUND = "NOT_FOUND"
METHOD_NOT_ALLOWED = "METHOD_NOT_ALLOWED"
FORBIDDEN = "FORBIDDEN"
PAYLOAD_TOO_LARGE = "PAYLOAD_TOO_LARGE"
INVALID_INPUT = "INVALID_INPUT"
INTERNAL_ERROR = "INTERNAL_ERROR"


class Forbidden(errors.EverosdError):
    """The request comes from where it may not come from."""


class ClientLeft(errors.EverosdError):
    """The connection ended in the middle of a request: nobody reads the answer, and nothing is wrong here."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """An error as the caller sees it."""

    status: int
    code: str
    message: str
    detail: str = ""
    """Set on unknown routes and methods."""
    is_fault: bool = False
    """The daemon's own fault: log it with its traceback."""


TABLE: tuple[tuple[type[Exception], int, str], ...] = (
    (errors.RequestError, 422, INVALID_INPUT),
    (errors.NotFound, 404, NOT_FOUND),
    (errors.Conflict, 409, "CONFLICT"),
    (errors.ConfirmationRequired, 409, "CONFIRMATION_REQUIRED"),
    (Forbidden, 403, FORBIDDEN),
    (ClientLeft, 400, INVALID_INPUT),
    (errors.LogError, 409, "CONFLICT"),
    (errors.QueueSaturated, 429, "QUEUE_SATURATED"),
    (errors.PayloadTooLarge, 413, PAYLOAD_TOO_LARGE),
    (errors.CapabilityMissing, 503, "CAPABILITY_UNAVAILABLE"),
    (errors.DerivedIndexError, 503, "CAPABILITY_UNAVAILABLE"),
    (errors.IndexUnavailable, 503, "CAPABILITY_UNAVAILABLE"),
    (errors.StoreError, 503, "CAPABILITY_UNAVAILABLE"),
    (errors.NoVectors, 503, "CAPABILITY_UNAVAILABLE"),
    (errors.LLMError, 503, "EXTERNAL_SERVICE_UNAVAILABLE"),
    (errors.WrongWidth, 422, "PROVIDER_NOT_CONFIGURED"),
    (errors.ConfigError, 422, "PROVIDER_NOT_CONFIGURED"),
)
"""Errors whose message is meant for the caller; everything else is a generic 500."""

ELSEWHERE = (errors.NoVectors, errors.LLMError, errors.CapabilityMissing)
"""Errors that are no fault of the daemon's: a model that is not set up, or its provider's; told once where it is kept."""

ROUTING: dict[int, str] = {
    404: NOT_FOUND,
    405: METHOD_NOT_ALLOWED,
    413: PAYLOAD_TOO_LARGE,
    415: "UNSUPPORTED_FORMAT",
    429: "QUEUE_SATURATED",
}
"""Codes for what the framework refuses before a handler runs."""


TOO_LARGE = Answer(status=413, code=PAYLOAD_TOO_LARGE, message="the body is larger than [api] max_body_bytes allows")
UNAUTHORIZED = Answer(
    status=401, code="UNAUTHORIZED", message="this address asks for `Authorization: Bearer <[api] token>`"
)


def nobodys(*, is_given: bool, has_common: bool) -> Answer:
    """Return the answer at /mcp where users have tokens of their own; `has_common`: [api] token would open it, too."""
    opens = """a user's token ([owners."<user>"] token)""" + (", or [api] token" if has_common else "")
    said = "this bearer is nobody's: " if is_given else ""
    return Answer(
        status=401, code=UNAUTHORIZED.code, message=f"{said}/mcp asks for `Authorization: Bearer …` with {opens}"
    )


def foreign(reason: str, header: str) -> Answer:
    """Return the answer to a request that a page of another site may have made (DNS rebinding, forged requests)."""
    return Answer(status=403, code=FORBIDDEN, message=f"{reason}: {header}")


def answer(error: Exception) -> Answer:
    """Return what the caller is told of `error`."""
    for kind, status, code in TABLE:
        if isinstance(error, kind):
            is_fault = status >= HTTPStatus.INTERNAL_SERVER_ERROR and not isinstance(error, ELSEWHERE)
            return Answer(status=status, code=code, message=str(error), is_fault=is_fault)
    if isinstance(error, exceptions.HTTPException):
        return _routing(error)
    return Answer(
        status=500,
        code=INTERNAL_ERROR,
        message="an internal error occurred; the daemon's log has it under this request id",
        is_fault=True,
    )


def hint(error: Exception) -> str:
    """Return what the person can do about `error`; empty where nobody knows."""
    return error.hint if isinstance(error, errors.EverosdError) else ""


def _routing(error: exceptions.HTTPException) -> Answer:
    status = error.status_code
    if status in {HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED}:
        phrase = HTTPStatus(status).phrase
        return Answer(status=status, code=ROUTING[status], message=phrase, detail=phrase)
    if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return TOO_LARGE
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return Answer(status=500, code=INTERNAL_ERROR, message="an internal error occurred", is_fault=True)
    return Answer(status=422, code=ROUTING.get(status, INVALID_INPUT), message=error.detail)


def encode(answer: Answer, *, request_id: str, path: str, now: dt.datetime) -> bytes:
    """Return the body of an error answer."""
    body = schema.ErrorBody(
        code=answer.code, message=answer.message, timestamp=moment.iso(clock.to_us(now), moment.UTC), path=path
    )
    envelope = schema.ErrorEnvelope(request_id=request_id, error=body, detail=answer.detail or msgspec.UNSET)
    return schema.ENCODER.encode(envelope)
