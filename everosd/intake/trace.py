"""What an agent did with its tools in a segment: calls, what came of them, and whether that was a failure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from everosd.intake import message

MAX_ARGUMENTS_CHARS = 160
MAX_OUTCOME_CHARS = 200
MAX_STEPS = 30
"""Of a trace that is shown; the middle of a longer one is counted."""

WORKED = 0.5
"""From this quality on the tools did what they were asked."""

_MAX_VALUE_CHARS = 60
_FAILED_TEXT = re.compile(
    r"^\s*(?:\W*\s*)?(?:error|exception|fatal|failed|failure|fehler|erreur|traceback|permission denied|timed? ?out)\b"
    r"|Traceback \(most recent call last\)|\b[A-Z]\w*(?:Error|Exception):|command not found|No such file or directory"
    r"|\bexit(?:ed)?(?: with)? (?:code|status)[: ]+[1-9]|\bHTTP(?:/[\d.]+)? [45]\d\d\b",
    re.IGNORECASE,
)
_LIST_SIGN = re.compile(r"^[ \t]*(?:\d{1,3}[.)]|[-*+#]+)[ \t]+", re.MULTILINE)
_FAILED_WORDS = frozenset(("error", "failed", "failure", "fail", "timeout", "exception"))
_CLIENT_ERROR = 400
"""HTTP statuses from here on are failures."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a tool."""

    sender_id: str
    """The agent's."""
    tool: str
    arguments: str
    """Shortened, on one line; empty where there are none."""
    outcome: str = ""
    """The beginning of what came back, on one line; empty where nothing did."""
    is_failed: bool = False
    is_answered: bool = False
    """Whether anything came back."""

    def call(self) -> str:
        """Return the call as one reads it: `search(query="trains to Bergen")`."""
        return f"{self.tool}({self.arguments})"

    def line(self) -> str:
        """Return the call and what came of it."""
        if not self.is_answered:
            return self.call()
        outcome = self.outcome or "done"
        return f"{self.call()} → {'failed: ' if self.is_failed else ''}{outcome}"


def steps(messages: Sequence[message.Message]) -> tuple[Step, ...]:
    """Return the calls in a segment, in order, each with its answer.

    An answer belongs to the call that it names, else to the first one before it that has none.
    """
    found: list[Step] = []
    ids: list[str] = []
    for one in messages:
        for call in _calls(one.tool_calls):
            name, arguments, call_id = call
            found.append(Step(sender_id=one.sender_id, tool=name, arguments=arguments))
            ids.append(call_id)
        if one.role == "tool":
            at = _asked(found, ids, one.tool_call_id)
            if at is not None:
                found[at] = msgspec.structs.replace(
                    found[at], outcome=shortened(one.text), is_failed=is_failure(one.text), is_answered=True
                )
    return tuple(found)


def _asked(found: Sequence[Step], ids: Sequence[str], call_id: str) -> int | None:
    """Return which call an answer belongs to."""
    open_calls = [at for at, step in enumerate(found) if not step.is_answered]
    named = [at for at in open_calls if call_id and ids[at] == call_id]
    unnamed = [at for at in open_calls if not call_id or not ids[at]]
    return next(iter((*named, *unnamed)), None)


def _calls(written: str) -> Iterable[tuple[str, str, str]]:
    """Yield name, shortened arguments and id of each call in what a program sent; what is no call is passed over."""
    if not written:
        return
    try:
        decoded = msgspec.json.decode(written)
    except msgspec.DecodeError:
        return
    for call in decoded if isinstance(decoded, list) else [decoded]:
        if not isinstance(call, dict):
            continue
        function = call.get("function")
        inner = function if isinstance(function, dict) else call
        name = inner.get("name") or (function if isinstance(function, str) else "") or call.get("type")
        if isinstance(name, str) and name.strip():
            given = next((inner[key] for key in ("arguments", "args", "input", "parameters") if key in inner), None)
            yield " ".join(name.split()), _arguments(given), str(call.get("id") or "")


def _arguments(given: object) -> str:
    if isinstance(given, str):
        try:
            given = msgspec.json.decode(given)
        except msgspec.DecodeError:
            return shortened(str(given), MAX_ARGUMENTS_CHARS)
    if given in (None, {}, [], ""):
        return ""
    if isinstance(given, dict):
        return shortened(", ".join(f"{key}={_value(value)}" for key, value in given.items()), MAX_ARGUMENTS_CHARS)
    return shortened(_value(given), MAX_ARGUMENTS_CHARS)


def _value(value: object) -> str:
    text = msgspec.json.encode(value).decode()
    is_cut = len(text) > _MAX_VALUE_CHARS
    return f"{text[: _MAX_VALUE_CHARS - 1]}…" if is_cut else text


def shortened(text: str, limit: int = MAX_OUTCOME_CHARS) -> str:
    """Return the beginning of a text on one line, at most `limit` characters."""
    line = " ".join(text[: limit * 4].split())
    return line if len(line) <= limit else f"{line[: limit - 1].rstrip()}…"


def is_failure(text: str) -> bool:
    """Tell whether what a tool answered says that it failed."""
    start = text.lstrip()[:1]
    if start in ("{", "["):
        try:
            decoded = msgspec.json.decode(text)
        except msgspec.DecodeError:
            pass
        else:
            return isinstance(decoded, dict) and _says_failure(decoded)
    return _FAILED_TEXT.search(text[:2000]) is not None


def _says_failure(answer: Mapping[str, object]) -> bool:
    return any(_FAILURES.get(key.casefold(), _never)(value) for key, value in answer.items())


def _never(_value: object) -> bool:
    return False


def _is_something(value: object) -> bool:
    return value not in (None, "", False, [], {}, 0)


def _is_bad_status(value: object) -> bool:
    is_word = isinstance(value, str) and value.casefold() in _FAILED_WORDS
    return is_word or (isinstance(value, int) and value >= _CLIENT_ERROR)


_FAILURES: Mapping[str, Callable[[object], bool]] = {
    **dict.fromkeys(("error", "errors", "exception"), _is_something),
    **dict.fromkeys(("is_error", "iserror", "failed"), lambda value: value is True),
    **dict.fromkeys(("ok", "success", "succeeded"), lambda value: value is False),
    **dict.fromkeys(("status", "status_code", "code"), _is_bad_status),
    **dict.fromkeys(("exit_code", "exitcode", "returncode"), lambda value: isinstance(value, int) and value != 0),
}
"""What a key of an answer has to say for the answer to be a failure."""


def numbered(lines: Sequence[str]) -> str:
    """Return lines with their numbers; of very many the first and the last ones."""
    shown = [f"{number}. {line}" for number, line in enumerate(lines, start=1)]
    if len(shown) > MAX_STEPS:
        half = MAX_STEPS // 2
        shown = [*shown[:half], f"… {len(shown) - 2 * half} more", *shown[-half:]]
    return "\n".join(shown)


def unnumbered(text: str) -> str:
    """Return a text without the numbers and signs that its lines begin with: they are nobody's."""
    return _LIST_SIGN.sub("", text)


def quality(found: Sequence[Step]) -> float:
    """Return how well the tools did, 0 to 1: six tenths for the share that worked, four for the last one that answered."""
    answered = [step for step in found if step.is_answered]
    if not answered:
        return 0.5
    share = sum(not step.is_failed for step in answered) / len(answered)
    return round(0.6 * share + 0.4 * (not answered[-1].is_failed), 2)
