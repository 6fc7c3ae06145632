"""Where an entry comes from and what became of it: its messages, facts, sources and successor."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import cast

import msgspec

from everosd import errors, types
from everosd.api import item, schema, scope
from everosd.intake import message
from everosd.log import kind, view
from everosd.store import lifecycle, read
from everosd.store import row as store_row

EXTRACTED = frozenset({"done", "followed"})
"""States of a segment whose messages were extracted."""

SPLIT_MAX = 64
"""How many ways of taking an id apart are tried: ids of profiles and skills have no prefix to go by."""

_OWNER_OF_PREFIX: dict[str, types.OwnerType] = {
    "ep": "user",
    "af": "user",
    "fs": "user",
    "ac": "agent",
    "ms": "session",
}
"""Prefixes that only one type of owner has; `mem`, `lc` and `ca` belong to users and agents."""

_OBJECTS = msgspec.json.Decoder(tuple[dict[str, object], ...])


def owners(asked: schema.EntryQuery, public_id: str) -> Iterator[types.Owner]:
    """Yield the owners whose entry a public id may be, the likeliest first.

    Raises:
        errors.RequestError: The scope is none that there can be.
    """
    where = scope.space(asked)
    if (named := scope.named_owner(asked)) is not None:
        yield named
        return
    for owner_id, entry_id in _splits(types.nfc(public_id)):
        owner_type = asked.owner_type or _OWNER_OF_PREFIX.get(entry_id.partition("_")[0])
        for each in ("user", "agent") if owner_type is None else (owner_type,):
            yield types.Owner(app=where.app, project=where.project, type=each, id=owner_id)


async def find(reader: read.Reader, asked: schema.EntryQuery, public_id: str) -> store_row.EntryRow | None:
    """Return the live entry of a public id, or of an entry id where the request names the owner.

    Raises:
        errors.RequestError: The scope is none that there can be, or the id does not say whose of two it is.
    """
    where = scope.space(asked)
    named = scope.named_owner(asked)
    wanted = types.nfc(public_id)
    if named is not None:
        return await reader.find(named, wanted) or await reader.find(named, wanted.removeprefix(f"{named.id}_"))
    for owner_id, entry_id in _splits(wanted):
        owner_type = asked.owner_type or _OWNER_OF_PREFIX.get(entry_id.partition("_")[0])
        if owner_type is None:
            found = await reader.find_each(where.app, where.project, owner_id, entry_id)
            if len(found) > 1:
                message = f"a user and an agent are called {owner_id!r} and both have it: send user_id or agent_id"
                raise errors.RequestError(message, field="entry_id")
            row = found[0] if found else None
        else:
            owner = types.Owner(app=where.app, project=where.project, type=owner_type, id=owner_id)
            row = await reader.find(owner, entry_id)
        if row is not None:
            return row
    return None


def _splits(public_id: str) -> Iterator[tuple[str, str]]:
    """Yield the ways to take a public id apart, the documented one first; ids without a date: at any underscore."""
    parts = types.parse_public_id(public_id)
    if parts is not None:
        yield parts.owner_id, parts.entry_id
        return
    at = [match.start() for match in re.finditer("_", public_id)][:SPLIT_MAX]
    yield from ((public_id[:place], public_id[place + 1 :]) for place in at if place)


async def entry(reader: read.Reader, maker: item.Maker, row: store_row.EntryRow) -> schema.EntryItem:
    """Return everything that is known of an entry."""
    facts = await reader.children(row.owner, (row.entry_id,), "atomic_fact") if row.kind == "episode" else []
    messages = await _messages(reader, maker, row)
    taken = item.parsed(row)
    seen = view.view(taken)
    is_memory = row.kind == "memory"
    known = await lifecycle.find(reader, row.owner, row.entry_id) if is_memory else None
    return schema.EntryItem(
        id=item.public(row),
        entry_id=row.entry_id,
        kind=row.kind,
        user_id=row.owner.id if row.owner.type == "user" else None,
        agent_id=row.owner.id if row.owner.type == "agent" else None,
        app_id=row.owner.app,
        project_id=row.owner.project,
        session_id=row.owner.id if row.owner.type == "session" else row.session_id or None,
        timestamp=maker.iso(row.timestamp_us),
        updated_at=maker.iso(row.updated_us),
        status=maker.status(row),
        deprecated_by=item.successor(row),
        parent_type=row.parent_type,
        parent_id=row.parent_id,
        sender_ids=row.sender_ids,
        subject=view.title(taken),
        summary=getattr(seen, "summary", ""),
        content=item.content_of(taken, seen),
        text=item.text_of(taken),
        fields=taken.fields,
        sections=tuple(schema.Section(title=title, text=text) for title, text in taken.sections),
        memory_type=row.memory_type or None,
        path=row.memory_path if is_memory else None,
        importance=known.importance if known is not None else getattr(seen, "importance", None),
        confidence=known.confidence if known is not None else getattr(seen, "confidence", None),
        expires_at=None if row.expires_us is None else maker.iso(row.expires_us),
        sources=sources(row.owner.id, taken.fields.get("sources", "")),
        facts=tuple(item.public(fact) for fact in facts),
        messages=messages,
        file=row.path,
        line=row.line,
        form=row.form,
        lsn=row.lsn,
    )


def sources(owner_id: str, text: str) -> tuple[str, ...]:
    """Return the public ids of what a narrative names as its sources, each once, in its order."""
    return tuple(dict.fromkeys(types.public_id(owner_id, found[0]) for found in types.ENTRY_ID.finditer(text)))


async def _messages(
    reader: read.Reader, maker: item.Maker, row: store_row.EntryRow
) -> tuple[schema.UnprocessedMessageDTO, ...]:
    """Return the messages that an entry was extracted from; of a fact, those of its Episode."""
    if row.parent_type == "episode":
        parent = await reader.find(row.owner, row.parent_id.removeprefix(f"{row.owner.id}_"))
        return () if parent is None or parent.parent_type == "episode" else await _messages(reader, maker, parent)
    if row.parent_type != "memcell" or not row.session_id:
        return ()
    rows = await reader.messages(row.owner.app, row.owner.project, row.session_id)
    if not took_part(rows, row.owner):
        return ()
    ids = {taken for cut in _segments(rows) if cut.memcell_id == row.parent_id for taken in cut.message_ids}
    return tuple(shown for shown in _in_time_order(maker, rows) if shown.id in ids)


def unprocessed(
    maker: item.Maker, rows: Sequence[store_row.EntryRow], owner: types.Owner
) -> tuple[schema.UnprocessedMessageDTO, ...]:
    """Return the messages of a session that nothing was extracted from, in time order.

    They are shown only to an owner who sent one of the session's messages.
    """
    if not took_part(rows, owner):
        return ()
    segments = list(_segments(rows))
    closed = {segment.memcell_id for segment in segments if segment.state in EXTRACTED}
    done = {taken for segment in segments if segment.memcell_id in closed for taken in segment.message_ids}
    return tuple(shown for shown in _in_time_order(maker, rows) if shown.id not in done)


def took_part(rows: Sequence[store_row.EntryRow], owner: types.Owner) -> bool:
    """Tell whether an owner sent any message of a session: a user as a user, an agent as what answers or calls tools."""
    said = (item.parsed(row).fields for row in rows if row.kind == "message")
    return any(is_from(fields.get("sender_id"), fields.get("role"), owner) for fields in said)


def is_from(sender_id: str | None, role: str | None, owner: types.Owner) -> bool:
    """Tell whether an owner sent a message: a user and an agent may have the same id."""
    return sender_id == owner.id and (role == "user") == (owner.type == "user")


def _segments(rows: Sequence[store_row.EntryRow]) -> Iterator[kind.Segment]:
    for row in rows:
        if row.kind == "segment":
            seen = view.view(item.parsed(row))
            if isinstance(seen, kind.Segment):
                yield seen


def _in_time_order(maker: item.Maker, rows: Sequence[store_row.EntryRow]) -> Iterator[schema.UnprocessedMessageDTO]:
    """Yield the messages of a session by time, those of one moment as they arrived; second copies are left out."""
    for row in sorted(rows, key=lambda row: row.timestamp_us):
        if row.kind != "message":
            continue
        seen = view.view(item.parsed(row))
        if not isinstance(seen, kind.Message) or seen.duplicate_of or seen.forgotten:
            continue
        yield _shown(
            maker,
            row.owner,
            message.Message(
                id=seen.message_id or row.entry_id,
                sender_id=seen.sender_id,
                sender_name=seen.sender_name or "",
                role=cast("schema.Role", seen.role),
                timestamp_us=row.timestamp_us,
                text=seen.text,
                content=seen.content,
                tool_calls=seen.tool_calls,
                tool_call_id=seen.tool_call_id or "",
            ),
        )


def waiting(
    maker: item.Maker, session: types.Owner, messages: Iterable[message.Message]
) -> tuple[schema.UnprocessedMessageDTO, ...]:
    """Return messages of a session that nothing was extracted from as answers show them."""
    return tuple(_shown(maker, session, one) for one in messages)


def _shown(maker: item.Maker, session: types.Owner, one: message.Message) -> schema.UnprocessedMessageDTO:
    return schema.UnprocessedMessageDTO(
        id=one.id,
        app_id=session.app,
        project_id=session.project,
        session_id=session.id,
        sender_id=one.sender_id,
        sender_name=one.sender_name or None,
        role=one.role,
        content=_content(one),
        timestamp=maker.iso(one.timestamp_us),
        tool_calls=_objects(one.tool_calls),
        tool_call_id=one.tool_call_id or None,
    )


def _content(one: message.Message) -> str | tuple[dict[str, object], ...]:
    """Return what a message says: its items as they arrived, one text alone as a string."""
    items = _objects(one.content)
    if items is None:
        return one.text
    if len(items) == 1 and isinstance(text := items[0].get("text"), str):
        return text
    return items


def _objects(text: str) -> tuple[dict[str, object], ...] | None:
    """Return JSON objects as they arrived; what a person made unreadable in the log is shown as none."""
    if not text:
        return None
    try:
        return _OBJECTS.decode(text)
    except msgspec.DecodeError:
        return None
