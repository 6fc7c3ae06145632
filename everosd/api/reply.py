"""Answers on their way out: the envelope, the encoding, and who the request was."""

from __future__ import annotations

from typing import Any, TypeAlias, TypeVar

import litestar
import msgspec
from litestar import response

from everosd.api import schema

DataT = TypeVar("DataT", bound=msgspec.Struct)

Request: TypeAlias = litestar.Request[Any, Any, Any]
Response: TypeAlias = response.Response[bytes]

JSON = "application/json"


def request_id(request: Request) -> str:
    """Return the id that the guard gave this request."""
    found: str = request.scope["state"]["request_id"]
    return found


def called(request: Request, route: str) -> None:
    """Say under which template this request is counted."""
    request.scope["state"]["route"] = route


def raw(body: bytes, *, status: int = 200, media_type: str = JSON) -> Response:
    """Return an answer that is encoded already."""
    return response.Response(content=body, status_code=status, media_type=media_type)


def success(request: Request, data: DataT, *, degraded: tuple[str, ...] = ()) -> Response:
    """Return `data` in the envelope, with what could not be done as asked beside it."""
    envelope = schema.Envelope(request_id=request_id(request), data=data, degraded=degraded or msgspec.UNSET)
    return raw(schema.ENCODER.encode(envelope))
