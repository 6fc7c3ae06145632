"""A row of `.clusters/` about a consolidation, taken apart: whatever a person has made of it, reading it never fails."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, cast

import msgspec

from everosd.log import escape

Event = Literal["completed", "rolled_back", "restored"]

_WRITTEN = "**report_id**:"
_DIGEST_SIGN = "@"
_MAX_DIGITS = 9
_ANYTHING = msgspec.json.Decoder(Any)


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """An entry that a consolidation replaced."""

    member_id: str
    """Entry id."""
    member_type: str
    """Kind of the entry, as its row says; may be empty."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What one row says of a consolidation."""

    event: Event
    report_id: str
    cluster_id: str
    """This and what follows may be empty in a `restored` row."""
    mode: str
    source_members: tuple[Member, ...]
    source_count: int
    merged_entry_id: str
    deprecated_fact_count: int
    sources: tuple[tuple[str, str], ...]
    """(entry id, digest)."""


def may_be(raw: str) -> bool:
    """Return whether the text of a row may say something of a report; cheap."""
    return _WRITTEN in raw


def read(fields: Mapping[str, str]) -> Row | None:
    """Return what the fields of a row say; None where they say nothing of a consolidation that could be told from others."""
    event, report_id = fields.get("event", ""), fields.get("report_id", "")
    cluster_id, merged_entry_id = fields.get("cluster_id", ""), fields.get("merged_entry_id", "")
    is_whole = report_id and ((cluster_id and merged_entry_id) or event == "restored")
    if event not in ("completed", "rolled_back", "restored") or not is_whole:
        return None
    members = _members(fields.get("source_members", ""), besides=merged_entry_id)
    return Row(
        event=cast("Event", event),
        report_id=report_id,
        cluster_id=cluster_id,
        mode=fields.get("mode", ""),
        source_members=members,
        source_count=_count(fields.get("source_count", ""), len(members)),
        merged_entry_id=merged_entry_id,
        deprecated_fact_count=_count(fields.get("deprecated_fact_count", ""), 0),
        sources=tuple(_source(each) for each in escape.read_list(fields.get("sources", ""))),
    )


def write_members(members: Iterable[Member]) -> str:
    """Return members as they stand in a row and in the table: JSON, on one line."""
    return msgspec.json.encode([msgspec.structs.asdict(each) for each in members]).decode()


def write_source(entry_id: str, digest: str) -> str:
    """Return how a source is named in a list of them."""
    return f"{entry_id}{_DIGEST_SIGN}{digest}"


def _source(written: str) -> tuple[str, str]:
    entry_id, _, digest = written.partition(_DIGEST_SIGN)
    return entry_id, digest


def _members(written: str, *, besides: str) -> tuple[Member, ...]:
    """Return the members of a JSON list, each once; what is none is left out, and a narrative does not replace itself."""
    try:
        listed = _ANYTHING.decode(written)
    except (ValueError, RecursionError):
        return ()
    found: dict[str, Member] = {}
    for each in listed if isinstance(listed, list) else ():
        member_id = each.get("member_id") if isinstance(each, dict) else None
        if isinstance(member_id, str) and member_id not in ("", besides):
            member_type = each.get("member_type")
            kind = member_type if isinstance(member_type, str) else ""
            found.setdefault(member_id, Member(member_id=member_id, member_type=kind))
    return tuple(found.values())


def _count(written: str, otherwise: int) -> int:
    text = written.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS else otherwise
