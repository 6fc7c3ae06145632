"""POST memory/add, POST memory/flush, GET tasks and GET tasks/{id}: requests → messages, outcomes → answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
import structlog

from everosd import errors, types
from everosd.api import moment, reply, schema, scope, services
from everosd.api import request as requests
from everosd.log import escape, layout

if TYPE_CHECKING:
    from everosd.intake import online, task

NUL = "\0"
ESCAPED_NUL = b"\\u0000"
"""How one comes in JSON; a text about this escape looks the same."""
SECONDS = range(10**9, 10**10)
"""Timestamps that are seconds: those of ten digits. All others are milliseconds."""
MAX_MS = 221_845_392_000_000
"""The year 9000: what is said of times long after it must still be in the calendar, which ends with the year 9999."""
ACCEPTED = 202
MAX_PAGE_SIZE = 10_000
"""Longest page that is made, whatever was asked for."""
MAX_PAGE = 2**40
"""Any page from here on is as empty as one just past the end."""

PAYLOAD_KEY = "[memorize.async_queue] max_payload_bytes"

log = structlog.get_logger()


class Intake:
    """Handlers of the routes that take messages."""

    def __init__(self, given: services.Services) -> None:
        """Answer from `given`."""
        self._given = given
        self._zone = given.config.memory.zone

    async def add(self, request: reply.Request) -> reply.Response:
        """Answer POST memory/add: the messages are on disk when it is answered."""
        reply.called(request, "memory/add")
        body = await reply.body(request)
        asked = requests.decode(requests.ADD, body)
        if asked.async_mode and len(body) > (limit := self._max_payload_bytes()):
            raise errors.PayloadTooLarge(len(body), limit, PAYLOAD_KEY)
        session = _session(asked)
        given = [_given(index, message) for index, message in enumerate(asked.messages)]
        mended = _with_nul(asked.messages) if ESCAPED_NUL in body else ()
        if mended:
            log.warning("nul_characters_left_out", request_id=reply.request_id(request), messages=mended)
        added = await self._intake().add(
            session,
            given,
            task_id=reply.request_id(request),
            is_async=asked.async_mode,
            is_deferred=asked.defer_extraction,
        )
        notes = tuple(f"NUL characters were left out of messages.{index}" for index in mended)
        if added.status == "queued":
            return _queued(request, added.message_count, added.pending, notes)
        data = schema.AddResponseData(message_count=added.message_count, status=added.status)
        return reply.success(request, data, degraded=notes)

    async def flush(self, request: reply.Request) -> reply.Response:
        """Answer POST memory/flush: where it says `extracted`, the Markdown is on disk."""
        reply.called(request, "memory/flush")
        asked = requests.decode(requests.FLUSH, await reply.body(request))
        session = _session(asked)
        flushed = await self._intake().flush(session, task_id=reply.request_id(request))
        if flushed.status == "queued":
            return _queued(request, 0, flushed.pending)
        return reply.success(request, schema.FlushResponseData(status=flushed.status))

    async def tasks(self, request: reply.Request) -> reply.Response:
        """Answer GET tasks."""
        reply.called(request, "tasks")
        asked = requests.decode_query(request.query_params.multi_items(), schema.TasksQuery)
        where = scope.space(asked)
        session_id = None if asked.session_id is None else types.nfc(asked.session_id)
        found, total = await self._intake().tasks(
            where.app,
            where.project,
            session_id=session_id,
            status=asked.status,
            page=min(asked.page, MAX_PAGE),
            page_size=min(asked.page_size, MAX_PAGE_SIZE),
        )
        items = tuple(map(self._item, found))
        return reply.success(
            request, schema.TaskPage(total=total, page=asked.page, page_size=asked.page_size, items=items)
        )

    async def task_by_id(self, request: reply.Request) -> reply.Response:
        """Answer GET tasks/{id}."""
        reply.called(request, "tasks/{id}")
        found = await self._intake().task(str(request.path_params["task_id"]))
        if found is None:
            message = "there is no such task, or it ended too long ago"
            raise errors.NotFound(message)
        return reply.success(request, self._item(found))

    def _intake(self) -> online.Intake:
        if self._given.intake is None:
            message = "nothing takes messages here: start the daemon with `everosd serve`"
            raise errors.CapabilityMissing(message)
        return self._given.intake

    def _max_payload_bytes(self) -> int:
        now = self._given.config if self._given.in_force is None else self._given.in_force()
        return now.memorize_async_queue.max_payload_bytes

    def _item(self, one: task.Task) -> schema.TaskItem:
        return schema.TaskItem(
            id=one.id,
            status=one.status,
            task_type=one.task_type,
            error=one.error,
            error_code=one.error_code,
            created_at=moment.iso(one.created_us, self._zone),
            finished_at=None if one.finished_us is None else moment.iso(one.finished_us, self._zone),
        )


def _session(asked: schema.MemorizeAddRequest | schema.MemorizeFlushRequest) -> types.Owner:
    """Return the session that a request is about.

    Raises:
        errors.RequestError: There can be none of that name.
    """
    if NUL in asked.session_id:
        message = "must not hold NUL characters: message ids are made of it, and no file may hold them"
        raise errors.RequestError(message, field="session_id")
    return scope.space(asked).owner("session", asked.session_id)


def _queued(request: reply.Request, n_messages: int, pending: int, degraded: tuple[str, ...] = ()) -> reply.Response:
    data = schema.AcceptedResponseData(message_count=n_messages, pending=pending)
    return reply.success(request, data, degraded=degraded, status=ACCEPTED)


def _given(index: int, message: schema.MessageItemDTO) -> online.Given:
    """Return one message of a request as the intake takes it.

    Raises:
        errors.RequestError: Something in it cannot be; the message names the dotted field.
        errors.CapabilityMissing: It holds what only a multimodal model could read.
    """
    from everosd.intake import online  # noqa: PLC0415  # loaded where messages are taken; commands that read go without

    field = f"messages.{index}"
    layout.check_scope_id(message.sender_id, f"{field}.sender_id")
    if message.role == "tool" and not message.tool_call_id:
        reason = "a message of role tool says which tool call it answers"
        raise errors.RequestError(reason, field=f"{field}.tool_call_id")
    text, content = _content(message.content, f"{field}.content")
    return online.Given(
        sender_id=message.sender_id,
        sender_name=_without_nul(message.sender_name or ""),
        role=message.role,
        timestamp_us=_timestamp_us(message.timestamp, f"{field}.timestamp"),
        index=index,
        text=text,
        content=content,
        tool_calls=_json(message.tool_calls) if message.tool_calls else "",
        tool_call_id=_without_nul(message.tool_call_id or ""),
    )


def _timestamp_us(given: int, field: str) -> int:
    if given > MAX_MS:
        message = "expected milliseconds since 1970, or seconds in ten digits"
        raise errors.RequestError(message, field=field)
    return given * 1_000_000 if given in SECONDS else given * 1000


def _content(given: str | tuple[schema.ContentItemDTO, ...], field: str) -> tuple[str, str]:
    """Return all of a message's text, and its items as JSON; empty where the text is all there was."""
    if isinstance(given, str):
        given = (schema.ContentItemDTO(type="text", text=given),)
    for index, item in enumerate(given):
        if item.type != "text":
            message = f"no model here reads content of type {item.type}: {field}.{index}"
            raise errors.CapabilityMissing(message)
    said = "\n".join(_without_nul(item.text or "") for item in given)
    text = escape.clean(said)  # as the log gives it back, so that a repetition is known by it after a restart too
    is_all = text == said and len(given) == 1 and given[0] == schema.ContentItemDTO(type="text", text=given[0].text)
    return text, "" if is_all else _json(given)


def _with_nul(messages: Sequence[schema.MessageItemDTO]) -> tuple[int, ...]:
    """Return the places of the messages that hold NUL characters."""
    plain = [msgspec.to_builtins(one) for one in messages]
    return tuple(index for index, one in enumerate(plain) if _mended(one) != one)


def _json(given: Sequence[msgspec.Struct]) -> str:
    """Return structs as JSON, without NUL characters in any text of theirs."""
    return msgspec.json.encode(_mended(msgspec.to_builtins(given))).decode()


def _mended(value: object) -> object:
    if isinstance(value, str):
        return _without_nul(value)
    if isinstance(value, dict):
        return {_without_nul(key): _mended(part) for key, part in value.items()}
    return [_mended(part) for part in value] if isinstance(value, list | tuple) else value


def _without_nul(text: str) -> str:
    """Return a text without NUL characters: no Markdown file may hold any."""
    return text.replace(NUL, "") if NUL in text else text
