"""Answers on their way out: the envelope, the encoding, and who the request was."""

from __future__ import annotations

from typing import Any, TypeAlias, TypeVar

import litestar
import msgspec
from litestar import exceptions, response

from everosd.api import errors, schema

DataT = TypeVar("DataT", bound=msgspec.Struct)

Request: TypeAlias = litestar.Request[Any, Any, Any]
Response: TypeAlias = response.Response[bytes]

JSON = "application/json"


def request_id(request: Request) -> str:
    """Return the id that the guard gave this request."""
    found: str = request.scope["state"]["request_id"]
    return found


async def body(request: Request) -> bytes:
    """Return the body of a request.

    Raises:
        errors.ClientLeft: The connection ended before all of it had come.
    """
    try:
        return await request.body()
    except exceptions.InternalServerException as error:
        message = "the connection ended before the whole body had come"
        raise errors.ClientLeft(message) from error


def called(request: Request, route: str) -> None:
    """Say under which template this request is counted."""
    request.scope["state"]["route"] = route


def raw(body: bytes, *, status: int = 200, media_type: str = JSON) -> Response:
    """Return an answer that is encoded already."""
    return response.Response(content=body, status_code=status, media_type=media_type)


def success(request: Request, data: DataT, *, degraded: tuple[str, ...] = (), status: int = 200) -> Response:
    """Return `data` in the envelope, with what could not be done as asked beside it."""
    request.scope["state"]["is_degraded"] = bool(degraded)
    envelope = schema.Envelope(request_id=request_id(request), data=data, degraded=degraded or msgspec.UNSET)
    return raw(schema.ENCODER.encode(envelope), status=status)
