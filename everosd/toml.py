"""The text of a settings file → its tables; whatever is wrong with it is one error that names file and line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from typing import Any

from everosd import errors

MAX_BYTES = 1 << 18
"""A larger file is something else: the shipped one, with all its comments, has a tenth of it."""

MAX_DEPTH = 32
"""So deep may values and tables stand in each other; settings need four. What reads them calls itself for each level."""

_DOTTED = re.compile(rf"(?:^|[\[{{,])[ \t]*(?:[^\s.=\[\]{{}},#]+[ \t]*\.[ \t]*){{{MAX_DEPTH}}}", re.MULTILINE)
"""A key of so many parts: `tomllib` takes time with the square of them."""

_PLACE = re.compile(r"\(at line (\d+), column \d+\)")


def read(text: str, file: str, *, hint: str = "") -> dict[str, Any]:
    """Return the tables of a text that stands in `file`; `hint` says what to do about a wrong one.

    Raises:
        errors.ConfigError: it is not TOML, too large, or nested too deeply.
    """
    if len(text) > MAX_BYTES:
        raise errors.ConfigError(file, "", "is too large for settings", hint=hint)
    if dotted := _DOTTED.search(text):
        raise _too_deep(text, file, dotted.start(), hint)
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = _PLACE.search(str(error))
        line = int(place[1]) if place else text.count("\n") + 1
        raise errors.ConfigError(file, "", f"is not TOML: {error}", line=line, hint=hint) from error
    except ValueError as error:  # a number of thousands of digits
        raise errors.ConfigError(file, "", f"is not TOML: {error}", hint=hint) from error
    except RecursionError as error:
        raise _too_deep(text, file, _deepest(text), hint) from error
    if _is_deep(tables):
        raise _too_deep(text, file, _deepest(text), hint)
    return tables


def _too_deep(text: str, file: str, at: int, hint: str) -> errors.ConfigError:
    return errors.ConfigError(file, "", "is nested too deeply", line=text.count("\n", 0, at) + 1, hint=hint)


def _deepest(text: str) -> int:
    """Return where most brackets are open, as well as it can be told without the grammar."""
    depth = deepest = at = 0
    for found in re.finditer(r"[\[\]{}]", text):
        depth = depth + 1 if found[0] in "[{" else max(0, depth - 1)
        if depth > deepest:
            deepest, at = depth, found.start()
    return at


def _is_deep(tables: Mapping[str, Any]) -> bool:
    """Tell whether anything stands deeper than `MAX_DEPTH`; calls itself for nothing."""
    level: list[object] = [tables]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for one in level
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return False
    return True
