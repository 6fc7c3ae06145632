"""What an entry means: its typed view, its searchable text, and the columns that filters go by."""

from __future__ import annotations

import datetime as dt
import functools
import json
import math
import re
import zoneinfo
from collections.abc import Iterator
from typing import Literal

import msgspec

from everosd import clock, types
from everosd.log import entry as entries
from everosd.log import escape, layout
from everosd.log import kind as kinds

STATUSES = ("active", "deprecated", "expired", "superseded", "archived", "deleted")
"""What an entry can be; only `active` ones are found unless a request asks for others."""

_NULLS = ("", "null", "None", "~")
_TITLE_SECTION = "subject"
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_INTEGER = re.compile(r"-?\d{1,17}", re.ASCII)
_BOOKKEEPING = frozenset(
    (
        *("sources", "read_from", "mode", "source_count", "report_id", "check", "owner_type", "app_id", "project_id"),
        *("extracted_by", "source_digest", "corrects"),
    )
)
"""Fields that say where an entry came from, and what it corrects, also on kinds that do not know them: no text that
anyone looks for."""
_TIMES = {
    "profile": ("timestamp", "profile_timestamp_ms", "updated_at"),
    "agent_skill": ("timestamp", "updated_at", "created_at"),
}
_TECHNICAL = frozenset(
    (
        *(
            "id",
            "type",
            "file_type",
            "schema_version",
            "user_id",
            "agent_id",
            "track",
            "entry_count",
            "last_appended_at",
        ),
        *("profile_timestamp_ms", "created_at", "updated_at", "confidence", "maturity_score", "source_case_ids"),
        *("cluster_id", "timestamp"),
    ),
)
"""Frontmatter of whole files that nobody searches for."""
_MAX_SECONDS_DIGITS = 10
"""An integer of more digits is milliseconds, as in the HTTP contract."""


class Fields(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the ledger stores in columns of its own."""

    session_id: str | None
    timestamp_us: int
    """Microseconds since 1970; the file's date at 00:00 where the entry tells none or a bad one."""
    parent_type: str
    parent_id: str
    sender_ids: tuple[str, ...]
    memory_type: str
    """Of typed memories; empty for other kinds."""
    memory_path: str
    own_status: str
    """As written in the entry; `active` where it says nothing."""
    expires_us: int | None
    """None means never."""
    warnings: tuple[str, ...] = ()
    """What is wrong with the values; the entry is used with the defaults above."""


def view(entry: entries.Entry) -> msgspec.Struct:
    """Return the kind's struct, filled; what is missing or does not fit its type has the struct's default."""
    row = kinds.BY_NAME[entry.kind]
    values: dict[str, object] = {}
    for name, reads in _columns(entry.kind):
        written = entry.fields.get(name)
        value = None if written is None else _convert(written, reads)
        if value is not None:
            values[name] = value
    names = set(row.struct.__struct_fields__)
    for title, text in reversed(entry.sections):
        if (name := _snake(title)) in names:
            values[name] = text
    if entry.form == "whole":
        values.setdefault("id", entry.id)
    elif row.takes_hand_text:
        _hand(entry, row, names, values)
    return row.struct(**values)


def _hand(entry: entries.Entry, row: kinds.Kind, names: set[str], values: dict[str, object]) -> None:
    """Show hand-written text where the kind keeps its text, and its heading as the subject."""
    if entry.heading and "subject" in names and not values.get("subject"):
        values["subject"] = entry.heading
    last = _snake(row.sections[-1])
    if not any(_snake(title) == last for title, _ in entry.sections) and (
        entry.preamble or entry.form == "hand" or entry.heading
    ):
        own = {_snake(title) for title in row.sections}
        rest = [f"### {title}\n{text}".rstrip() for title, text in entry.sections if _snake(title) not in own]
        text = "\n\n".join(part for part in (entry.preamble, *rest) if part)
        main = "fact" if "fact" in names else "foresight" if "foresight" in names else last
        values.setdefault(main, text or entry.heading)


_Reads = Literal["text", "optional", "float", "int", "list"]


@functools.cache
def _columns(kind: str) -> tuple[tuple[str, _Reads], ...]:
    """Return the fields of a kind's struct and how each is read."""
    by_type: dict[object, _Reads] = {float: "float", int: "int", tuple[str, ...]: "list"}
    return tuple(
        (field.name, by_type.get(field.type, "optional" if field.default is None else "text"))
        for field in msgspec.structs.fields(kinds.BY_NAME[kind].struct)
    )


def _convert(written: str, reads: _Reads) -> object | None:
    """Return a field's value; None means that the struct's default is to be taken."""
    match reads:
        case "text":
            return written
        case "optional":
            return None if written in _NULLS else written
        case "list":
            return escape.read_list(written)
        case "float":
            return _number(written)
        case "int":
            number = _number(written)
            return None if number is None else int(number)


def _number(written: str) -> float | None:
    try:
        number = float(written)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _snake(title: str) -> str:
    """Return the field name of a section: `TaskIntent` → `task_intent`."""
    return _CAMEL.sub("_", title.strip()).replace(" ", "_").casefold()


def title(entry: entries.Entry) -> str:
    """Return the subject, heading or name; may be empty."""
    if entry.form == "whole":
        return entry.fields.get("name", "")
    for name, text in entry.sections:
        if _snake(name) == _TITLE_SECTION and text.strip():
            return text.strip()
    return entry.heading


def body(entry: entries.Entry) -> str:
    """Return all other searchable text: preamble, every section, fields that the kind does not know."""
    known = {name for name, _ in _columns(entry.kind)}
    own = {_snake(section) for section in kinds.BY_NAME[entry.kind].sections}
    parts: list[str] = []
    if entry.form == "whole":
        texts = [entry.preamble]
        for name, value in entry.fields.items():
            if name not in _TECHNICAL and name != "name":
                texts += [text for text in _flat(value) if text != entry.preamble]
        return "\n".join(dict.fromkeys(text for text in texts if text))
    is_titled = False
    if entry.heading and title(entry) != entry.heading:
        parts.append(entry.heading)
    parts += [value for name, value in entry.fields.items() if name not in known and name not in _BOOKKEEPING]
    parts.append(entry.preamble)
    for section, text in entry.sections:
        if not is_titled and _snake(section) == _TITLE_SECTION and text.strip():
            is_titled = True  # it is the title
            continue
        parts.append(text if _snake(section) in own else f"{section}\n{text}")
    return "\n".join(part for part in parts if part)


def _flat(value: str) -> Iterator[str]:
    """Yield the texts in a field that may be JSON."""
    if value[:1] not in ("[", "{"):
        yield value
        return
    try:
        waiting: list[object] = [json.loads(value)]
    except (ValueError, RecursionError):
        yield value
        return
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, list):
            waiting += reversed(item)
        elif isinstance(item, dict):
            waiting += reversed(list(item.values()))


def moment_us(written: str, tz: dt.tzinfo) -> int | None:
    """Return microseconds since 1970 of a moment as people and programs write it; None where it is none.

    ISO 8601 (without offset: in `tz`; a date alone: at 00:00), or an integer: seconds up to 10 digits, else milliseconds.
    """
    text = written.strip()
    try:
        if _INTEGER.fullmatch(text):
            us = int(text) * (1_000_000 if len(text.lstrip("-")) <= _MAX_SECONDS_DIGITS else 1_000)
        else:
            moment = dt.datetime.fromisoformat(text)
            us = clock.to_us(moment if moment.tzinfo is not None else moment.replace(tzinfo=tz))
        clock.from_us(us)  # raises where no calendar has it, as an offset can put it there
    except (ValueError, OverflowError):
        return None
    return us


def file_date_us(place: layout.Place, tz: dt.tzinfo) -> int:
    """Return the file's date at 00:00 in `tz`, microseconds since 1970."""
    found = moment_us(place.date or layout.UNKNOWN_DATE, tz)
    return found if found is not None else 0


def sender_ids(entry: entries.Entry) -> tuple[str, ...]:
    """Return who spoke in what the entry is about."""
    return escape.read_list(entry.fields.get("sender_ids", ""))


def record(entry: entries.Entry, place: layout.Place, tz: zoneinfo.ZoneInfo) -> Fields:
    """Return the columns of an entry; never raises, whatever a person wrote into it."""
    fields, warnings = entry.fields, list[str]()
    when: int | None = None
    for name in _TIMES.get(entry.kind, ("timestamp",)):
        if (written := fields.get(name, "")) not in _NULLS and when is None:
            when = moment_us(written, tz)
            if when is None:
                warnings.append(f"{name} {written[:60]!r} is no time: the file's date is taken")
    status = fields.get("status", "").strip().casefold() or "active"
    if status not in STATUSES:
        warnings.append(f"status {status[:60]!r} is none of {', '.join(STATUSES)}: active is taken")
        status = "active"
    expires: int | None = None
    if (written := fields.get("expires_at", "")) not in _NULLS:
        expires = moment_us(written, tz)
        if expires is None:
            warnings.append(f"expires_at {written[:60]!r} is no time: the entry does not expire")
    owner_id = fields.get("owner_id", "")
    if entry.form != "whole" and owner_id and types.nfc(owner_id) != place.owner.id and not place.is_shortened:
        warnings.append(
            f"owner_id is {owner_id[:60]!r}, but the file belongs to {place.owner.id[:60]!r}: the file holds"
        )
    if entry.kind == "agent_skill" and (name := fields.get("name", "")) and not layout.is_name(name):
        warnings.append(f"name {name[:60]!r} is a path: the folder's name is taken")
    memory_type, memory_path = _memory(entry, place, warnings)
    session_id = fields.get("session_id", "")
    return Fields(
        session_id=(place.owner.id if place.owner.type == "session" else None)
        if session_id in _NULLS
        else types.nfc(session_id),
        timestamp_us=file_date_us(place, tz) if when is None else when,
        parent_type=fields.get("parent_type", ""),
        parent_id=fields.get("parent_id", ""),
        sender_ids=sender_ids(entry),
        memory_type=memory_type,
        memory_path=memory_path,
        own_status=status,
        expires_us=expires,
        warnings=tuple(warnings),
    )


def _memory(entry: entries.Entry, place: layout.Place, warnings: list[str]) -> tuple[str, str]:
    """Return type and path of a typed memory: an inline type beats the file name, the folder beats an inline path."""
    if place.kind != "memory":
        return "", ""
    for name in ("importance", "confidence"):
        share = entry.fields.get(name, "")
        if share not in _NULLS and ((number := _number(share)) is None or not 0 <= number <= 1):
            taken = "the default is taken" if number is None else "the nearest is taken"
            warnings.append(f"{name} {share[:60]!r} is no number from 0 to 1: {taken}")
    written_path = types.nfc(entry.fields.get("path", "")).strip("/")
    if written_path and written_path != place.memory_path:
        warnings.append(
            f"path is {written_path[:60]!r}, but the file lies in {place.memory_path[:60]!r}: the folder holds"
        )
    written = entry.fields.get("memory_type", "").strip().casefold()
    if written in layout.MEMORY_TYPES:
        return written, place.memory_path
    if written not in _NULLS:
        warnings.append(f"memory_type {written[:60]!r} is none of {', '.join(layout.MEMORY_TYPES)}")
    return place.memory_type or "episodic", place.memory_path
