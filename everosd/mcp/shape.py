"""What an agent is shown of an answer: less than programs get, and never more than a client takes in one piece."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec

from everosd.mcp import takes

JsonObject: TypeAlias = dict[str, Any]

MAX_BYTES = 300_000
"""Longest structured part of an answer: with its text, which may double it, it stays below the 1 MiB that clients read as
one event."""

LISTS = (
    "items",
    "hits",
    "versions",
    "changes",
    "actions",
    "candidates",
    "runs",
    "removed",
    "narratives",
    "audit_ids",
    "profiles",
)
"""Fields that may be cut short at their end, the longest of them first."""


HITS: JsonObject = {
    "type": "object",
    "properties": {
        "hits": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "id": {"type": "string"},
                    "kind": {"enum": ["memory", "episode"]},
                    "memory_type": {"type": "string"},
                    "path": {"type": "string"},
                    "session_id": {"type": "string"},
                    "subject": {"type": "string"},
                    "timestamp": {"type": "string", "description": "ISO 8601, with offset."},
                    "score": {"type": "number", "minimum": 0, "maximum": 1},
                    "text": {"type": "string"},
                    "is_cut": {"type": "boolean", "description": "The text goes on."},
                    "facts": {"type": "array", "items": {"type": "object"}},
                },
                "required": ["id", "kind", "memory_type", "score", "text"],
            },
        },
        "left_out": {"type": "integer", "description": "Hits that did not fit into the answer."},
        "degraded": {"type": "array", "items": {"type": "string"}, "description": "What could not be done as asked."},
    },
    "required": ["hits"],
}
"""JSON Schema of what `found` shows."""


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """An answer as an agent sees it."""

    text: str
    data: JsonObject


def whole(data: JsonObject, _: object) -> Shown:
    """Show an answer as it is."""
    kept = bounded(data)
    return Shown(text=_json(kept), data=kept)


def decided(data: JsonObject, arguments: object) -> Shown:
    """Show what a run decided: what changes before what does not, counts in any case."""
    actions = [
        {**one, "candidates": sorted(one.get("candidates") or (), key=lambda each: each.get("decision") != "apply")}
        for one in data.get("actions") or ()
        if isinstance(one, dict)
    ]
    return whole({**data, "actions": actions}, arguments)


def recalled(data: JsonObject, _: object) -> Shown:
    """Show the block of text; where it comes from stands beside it."""
    text = data.get("text", data.get("context_text"))
    kept = bounded(data)
    if not isinstance(text, str):
        return Shown(text=_json(kept), data=kept)
    return Shown(text=_cut(text, MAX_BYTES // 4)[0] or "Nothing is remembered of that.", data=kept)


def found(data: JsonObject, arguments: takes.SearchMemory) -> Shown:
    """Show hits of every kind as one list, best first, each text up to the length that was asked for."""
    hits = [_hit(one, arguments.max_chars) for one in data.get("episodes") or ()]
    answer: JsonObject = {"hits": hits}
    if profiles := data.get("profiles"):
        answer["profiles"] = profiles
    kept = bounded(answer)
    return Shown(text=_listed(kept), data=kept)


def _hit(one: Mapping[str, Any], max_chars: int) -> JsonObject:
    text, is_cut = _cut(str(one.get("episode", "")), max_chars or MAX_BYTES)
    hit: JsonObject = {
        "id": one.get("id"),
        "kind": "memory" if one.get("memory_type") else "episode",
        "memory_type": one.get("memory_type") or "episodic",
    }
    hit |= {name: one[name] for name in ("path", "session_id", "subject", "timestamp") if one.get(name)}
    hit |= {"score": one.get("score"), "text": text}
    if is_cut:
        hit["is_cut"] = True
    if facts := one.get("atomic_facts"):
        hit["facts"] = [{"id": fact.get("id"), "text": fact.get("content")} for fact in facts]
    hit |= {name: one[name] for name in ("status", "deprecated_by", "explain") if one.get(name)}
    return hit


def _listed(answer: JsonObject) -> str:
    """Return hits as text that costs few tokens."""
    if not answer["hits"]:
        return "Nothing in memory matches."
    parts = []
    for nth, hit in enumerate(answer["hits"], start=1):
        filed = f", {hit['path']}" if hit.get("path") else ""
        score = hit["score"]
        rank = f"{score:.2f}" if isinstance(score, float | int) else "?"
        head = f"[{nth}] {hit['id']} ({hit['memory_type']}{filed}, {hit.get('timestamp', 'undated')}, score {rank})"
        lines = [head]
        if hit.get("subject"):
            lines.append(hit["subject"])
        lines.append(hit["text"] + (" … (cut: max_chars=0 shows all of it)" if hit.get("is_cut") else ""))
        lines += [f"- {fact['text']}" for fact in hit.get("facts", ())]
        if hit.get("explain"):
            lines.append(f"score: {_json(hit['explain'])}")
        parts.append("\n".join(lines))
    if answer.get("left_out"):
        parts.append(
            f"({answer['left_out']} more did not fit into this answer: ask for fewer, or with a smaller max_chars)"
        )
    return "\n\n".join(parts)


def bounded(data: JsonObject) -> JsonObject:
    """Return an answer that a client takes: lists lose their ends until it fits, and `left_out` says how many items."""
    if len(msgspec.json.encode(data)) <= MAX_BYTES:
        return data
    kept, left_out = dict(data), 0
    for _ in range(64):
        place = _longest(kept)
        if place is None:
            break
        items, replace = place
        half = len(items) // 2
        left_out += len(items) - half
        replace(items[:half])
        answer = {**kept, "left_out": left_out}
        if len(msgspec.json.encode(answer)) <= MAX_BYTES:
            return answer
    empty: JsonObject = {name: [] for name in LISTS if isinstance(kept.get(name), list)}
    return {**empty, "cut": _cut(_json(kept), MAX_BYTES // 16)[0], "left_out": left_out}


def _longest(data: JsonObject) -> tuple[list[Any], Callable[[list[Any]], None]] | None:
    """Return the list that takes most room, and what puts another in its place; None: nothing can be cut.

    Dictionaries on the way are copied, so that the answer that was given stays as it is.
    """
    best: tuple[int, list[Any], JsonObject, str] | None = None
    waiting = [data]
    while waiting:
        one = waiting.pop()
        for name, value in list(one.items()):
            if not isinstance(value, list):
                continue
            if name in LISTS and value:
                size = len(msgspec.json.encode(value))
                inner = [each for each in value if isinstance(each, dict) and any(key in each for key in LISTS)]
                if inner:
                    one[name] = [dict(each) if isinstance(each, dict) else each for each in value]
                    waiting += [each for each in one[name] if isinstance(each, dict)]
                elif best is None or size > best[0]:
                    best = (size, value, one, name)
    if best is None:
        return None
    _, items, holder, name = best

    def replace(shorter: list[Any]) -> None:
        holder[name] = shorter

    return items, replace


def _cut(text: str, max_chars: int) -> tuple[str, bool]:
    """Return the beginning of a text, at a space where there is one near, and whether something is missing."""
    if len(text) <= max_chars:
        return text, False
    end = text.rfind(" ", max_chars - min(200, max_chars // 2), max_chars)
    return text[: end if end > 0 else max_chars].rstrip(), True


def _json(data: object) -> str:
    return msgspec.json.encode(data).decode()
