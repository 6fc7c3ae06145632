"""Bodies and query strings, decoded here and nowhere else, and what is refused is named by its dotted field."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeVar

import msgspec

from everosd import errors
from everosd.api import schema

DecodedT = TypeVar("DecodedT")

SEARCH = msgspec.json.Decoder(schema.SearchRequest)
GET = msgspec.json.Decoder(schema.GetRequest)
REBUILD = msgspec.json.Decoder(schema.RebuildRequest)
VERIFY = msgspec.json.Decoder(schema.VerifyRequest)
ADOPT = msgspec.json.Decoder(schema.AdoptRequest)
RECONCILE = msgspec.json.Decoder(schema.ReconcileRequest)
FORGET = msgspec.json.Decoder(schema.ForgetRequest)
ROLLBACK = msgspec.json.Decoder(schema.RollbackRequest)
EXTRACT = msgspec.json.Decoder(schema.ExtractRequest)
ADD = msgspec.json.Decoder(schema.MemorizeAddRequest, strict=False)
FLUSH = msgspec.json.Decoder(schema.MemorizeFlushRequest, strict=False)
TRIGGER = msgspec.json.Decoder(schema.TriggerRequest, strict=False)
"""These three take what EverOS's take: fields that are not known, and numbers and truth values written as text."""

_UNKNOWN = re.compile(r"Object contains unknown field `(?P<field>.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(?P<field>.*)`", re.DOTALL)
_AT = re.compile(r"(?P<what>.*) - at `\$(?P<path>.*)`", re.DOTALL)
_INDEX = re.compile(r"\[(?P<index>\d+|\.\.\.)\]")


def decode(decoder: msgspec.json.Decoder[DecodedT], body: bytes) -> DecodedT:
    """Decode a request body.

    Raises:
        errors.RequestError: The body is not JSON or not what the route takes; the message ends in the dotted field.
    """
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise refusal(error) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        message = "the body is empty, JSON is expected" if not body.strip() else f"the body is not JSON ({error})"
        raise errors.RequestError(message) from error
    except RecursionError as error:
        message = "the body is nested too deeply"
        raise errors.RequestError(message) from error


def decode_query(pairs: Iterable[tuple[str, str]], kind: type[DecodedT]) -> DecodedT:
    """Decode a query string.

    Raises:
        errors.RequestError: A parameter is unknown, wrong, or given twice.
    """
    values: dict[str, str] = {}
    for name, value in pairs:
        if name in values:
            message = "given twice"
            raise errors.RequestError(message, field=name)
        values[name] = value
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise refusal(error) from error


def refusal(error: msgspec.ValidationError) -> errors.RequestError:
    """Return what to tell the caller: the sentence, then the dotted name of the field at fault."""
    text = str(error)
    path = ""
    if at := _AT.fullmatch(text):
        text, path = at["what"], at["path"]
    field = _INDEX.sub(lambda match: "" if match["index"] == "..." else f".{match['index']}", path).lstrip(".")
    if unknown := _UNKNOWN.fullmatch(text):
        return errors.RequestError("unknown field", field=_joined(field, unknown["field"]))
    if missing := _MISSING.fullmatch(text):
        return errors.RequestError("missing field", field=_joined(field, missing["field"]))
    return errors.RequestError(text, field=field)


def _joined(outer: str, inner: str) -> str:
    return f"{outer}.{inner}" if outer else inner
