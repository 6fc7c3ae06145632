"""What a model answered, read as the struct that was asked for: its clothes may be anything, its content may not.

Reasoning, fences, prose around and the small mistakes of a hand that writes JSON are taken off. What is cut off, broken
in the middle, or of another shape is refused: half an answer would pass for a whole one.
"""

from __future__ import annotations

import functools
import re
from typing import Any, TypeVar, cast

import msgspec

from everosd.models import fit, loose

T = TypeVar("T")

MAX_CHARS = 500_000
"""A longer answer is a flood."""

_WORD = r"(?:think|thinking|thoughts?|reasoning|reflection|scratchpad|analysis|seed:think)"
_TAG = re.compile(
    rf"(?P<closing></{_WORD}\s{{0,9}}>|<\|/{_WORD}\|>|\[/THINK\])|<\|?{_WORD}(?:\s[^<>]{{0,99}})?\|?>|\[THINK\]",
    re.IGNORECASE,
)
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)[^<]{0,99}<\|message\|>")
_END_OF_CHANNEL = re.compile(r"<\|(?:end|return|start|call)\|>")
_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[^\n`]*\n(.*?)^[ \t]*\1[ \t]*$", re.DOTALL | re.MULTILINE)
_FENCE_MARK = re.compile(r"^[ \t]*(?:```|~~~)", re.MULTILINE)
_MAX_FENCES = 10
"""So many of the last ones are looked into."""
_ONLY_REASONING = "holds reasoning and nothing else"


class Unreadable(Exception):  # noqa: N818  # it says what the answer is
    """The answer cannot be used; `reason` says why, without a word of it."""

    def __init__(self, reason: str) -> None:
        """Keep the reason, which reads on after "the answer"."""
        super().__init__(reason)
        self.reason = reason


def read(text: str, kind: type[T]) -> T:
    """Return the value of `kind` (a struct, or a list) that `text` holds.

    Where it holds several, the one that has most of the fields is taken, and of those alike the last. A bare list is
    taken for the struct whose only list it can be, an object for a list of one. Takes time in proportion to the text,
    0.2 ms for a page.

    Raises:
        Unreadable: there is none, it is cut off, or it is of another shape.
    """
    if len(text) > MAX_CHARS:
        reason = f"is longer than {MAX_CHARS} characters"
        raise Unreadable(reason)
    said = text.strip().removeprefix("\ufeff")
    if not said:
        reason = "is empty"
        raise Unreadable(reason)
    try:
        return cast("T", _read(said, kind))
    except fit.Misfit as error:
        reason = error.reason
    except loose.Cut:
        reason = "is cut off"
    except loose.Broken:
        reason = "holds JSON that is broken in the middle"
    raise Unreadable(reason)


def is_whole(text: str) -> bool:
    """Return whether `text` is one JSON value and nothing else: not cut off, whatever the server says."""
    return isinstance(loose.whole(text.strip()), dict | list)


@functools.cache
def schema(kind: Any) -> dict[str, Any]:
    """Return the JSON schema of `kind`, as servers take it: an object, no references, every field required.

    Limits are left out, as some servers refuse them; `read` heeds them. Never to be changed by the caller.
    """
    (given,), parts = msgspec.json.schema_components([kind])
    plain = _plain(given, parts)
    if plain.get("type") == "object":
        return plain
    return {"type": "object", "properties": {"items": plain}, "required": ["items"], "additionalProperties": False}


def _plain(given: dict[str, Any], parts: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in given:
        given = parts[given["$ref"].rpartition("/")[2]]
    kept: dict[str, Any] = {key: given[key] for key in ("type", "enum", "const") if key in given}
    if "anyOf" in given:
        kept["anyOf"] = [_plain(each, parts) for each in given["anyOf"]]
    if given.get("items"):
        kept["items"] = _plain(given["items"], parts)
    if "properties" in given:
        kept["properties"] = {name: _plain(each, parts) for name, each in given["properties"].items()}
        kept["required"] = list(kept["properties"])
        kept["additionalProperties"] = False
    elif "description" in given:
        kept["description"] = given["description"]  # of a field; that of a struct is for us
    return kept


def _read(said: str, kind: type[Any]) -> Any:
    value = loose.whole(said)
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        return _read(value.strip(), kind)  # JSON in a JSON text
    if value is not None:
        return fit.best([value], kind, _clean)
    if (tag := _TAG.search(said)) is None and _CHANNEL.search(said) is None:
        return _within(said, kind)
    if (tag is None or tag.start()) and said.startswith(("{", "[", "```")):
        # What looks like reasoning may then be in its texts.
        try:
            return _within(said, kind)
        except (fit.Misfit, loose.Cut, loose.Broken):
            pass
    said, thought = _without_reasoning(said)
    return _within(said, kind) if said else _at_the_end(thought, kind)


def _within(text: str, kind: type[Any]) -> Any:
    """Return the value that stands in `text`: in the last fence that has one, else anywhere."""
    fences = list(_FENCE.finditer(text))
    if fences and _FENCE_MARK.search(text, fences[-1].end()) is None:
        for each in fences[: -_MAX_FENCES - 1 : -1]:
            try:
                return _best(each[2], kind)
            except (fit.Misfit, loose.Cut, loose.Broken):
                continue
    return _best(text, kind)


def _best(text: str, kind: type[Any]) -> Any:
    value = loose.whole(text.strip())
    values = [each.value for each in loose.scan(text)] if value is None else [value]
    return fit.best(values, kind, _clean)


def _at_the_end(thought: str, kind: type[Any]) -> Any:
    """Return the value that ends reasoning which nobody closed: what stands before it is thought, not said."""
    fences = list(_FENCE.finditer(thought))
    if fences and not thought[fences[-1].end() :].strip():
        return _best(fences[-1][2], kind)
    found = loose.scan(thought)
    if not found or thought[found[-1].end :].strip():
        raise fit.Misfit(_ONLY_REASONING)
    return fit.best([found[-1].value], kind, _clean)


def _without_reasoning(text: str) -> tuple[str, str]:
    """Return what was said, and, where reasoning begins and does not end, what was thought."""
    channels = list(_CHANNEL.finditer(text))
    if channels:
        last = channels[-1]
        end = _END_OF_CHANNEL.search(text, last.end())
        said = text[last.end() : end and end.start()].strip()
        return ("", "") if last[1] in ("analysis", "commentary") else (said, "")
    said, thought = _parted(text)
    return said.strip(), thought.strip()


def _parted(text: str, *, is_all_thought: bool = True) -> tuple[str, str]:
    """Return `text` without its reasoning, and the rest from a mark on that nobody closed.

    `is_all_thought`: a closing mark alone ends reasoning that began before the text; some servers swallow the first one.
    """
    said: list[str] = []
    start, is_open = 0, False
    for tag in _TAG.finditer(text):
        if tag["closing"] is None:
            if not is_open:
                said.append(text[start : tag.start()])
            start, is_open = tag.end() if not is_open else start, True
        else:
            if not is_open:
                said = [] if is_all_thought else [*said, text[start : tag.start()]]
            start, is_open = tag.end(), False
    return ("".join(said), text[start:]) if is_open else ("".join([*said, text[start:]]), "")


def _clean(text: str) -> str:
    """Return a text of an answer without reasoning in it."""
    if _TAG.search(text) is None:
        return text
    said, thought = _parted(text, is_all_thought=False)
    bare = (said + thought).strip()  # a mark that nobody closed is a word among others
    if not bare:
        raise fit.Misfit(_ONLY_REASONING)
    return bare
