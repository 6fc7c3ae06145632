"""What a model answered, read as the struct that was asked for: strictly in what is taken, tolerantly in its clothes."""

from __future__ import annotations

import json
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


class Unreadable(Exception):  # noqa: N818  # it says what the answer is
    """The answer cannot be used; `reason` says why, without a word of it."""

    def __init__(self, reason: str) -> None:
        """Keep the reason, which reads on after "the answer"."""
        super().__init__(reason)
        self.reason = reason


def read(text: str, kind: type[T]) -> T:
    """Return the value of `kind` (a struct, or a list) that `text` holds.

    Raises:
        Unreadable: there is none, it is cut off, or it is of another shape.
    """
    try:
        return msgspec.convert(json.loads(text), kind, strict=False)
    except (ValueError, msgspec.ValidationError):
        reason = "is no JSON of the shape that was asked for"
        raise Unreadable(reason) from None


def schema(kind: type[Any]) -> dict[str, Any]:
    """Return the JSON schema of `kind`, as servers take it: an object, without references, all fields required."""
    return msgspec.json.schema(kind)
