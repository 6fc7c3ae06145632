"""POST memory/remember, update, forget, restore and usage, and GET entries/{id}/history: typed memories, one by one."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec

from everosd import clock, errors, types
from everosd.api import item, later, moment, recall_schema, reply, schema, scope, services, typed_schema
from everosd.api import request as requests
from everosd.intake import redact
from everosd.lifecycle import memory, versions
from everosd.lifecycle import row as lifecycle_row
from everosd.log import entry as log_entry
from everosd.log import escape, layout, view
from everosd.store import lifecycle

if TYPE_CHECKING:
    from everosd.lifecycle import forget as forgetting_of
    from everosd.lifecycle import remember as remembering_of
    from everosd.lifecycle import restore as restoring_of
    from everosd.lifecycle import trace
    from everosd.lifecycle import update as updating_of

MAX_JSON_BYTES = 64 << 10
"""Of `metadata` and of `provenance`."""
HISTORY = "/history"
"""What stands behind an id where its history is asked for."""
N_CHANGES = 1000
"""Rows of a history."""
GONE = "gone"

_OBJECT = msgspec.json.Decoder(dict[str, Any])
_TYPES_OF: dict[str, tuple[types.OwnerType, ...]] = {"mem": ("user", "agent"), "ep": ("user",)}
"""By prefix of the entry id: who may have such an entry."""
_CONFIRM = "it cannot be undone: send the same with confirm = true"

REMEMBER = msgspec.json.Decoder(typed_schema.RememberRequest)
UPDATE = msgspec.json.Decoder(typed_schema.UpdateRequest)
FORGET = msgspec.json.Decoder(typed_schema.ForgetMemoryRequest)
RESTORE = msgspec.json.Decoder(typed_schema.RestoreRequest)
USAGE = msgspec.json.Decoder(typed_schema.UsageRequest)

Asked = (
    typed_schema.UpdateRequest
    | typed_schema.ForgetMemoryRequest
    | typed_schema.RestoreRequest
    | typed_schema.UsageRequest
    | recall_schema.ExplainRequest
    | schema.EntryQuery
)


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """What writes."""

    remembering: remembering_of.Remembering
    updates: updating_of.Updates
    forgetting: forgetting_of.Forgetting
    restoring: restoring_of.Restoring


class Typed:
    """Handlers of the routes that write typed memories."""

    def __init__(self, given: services.Services) -> None:
        """Answer from `given`."""
        self._given = given
        self._zone = given.config.memory.zone
        self._made: Work | None = None
        self._later = later.Later(
            "intake.unsay", "lifecycle.forget", "lifecycle.remember", "lifecycle.restore", "lifecycle.update"
        )

    # -- routes ----------------------------------------------------------------------------------------------------

    async def remember(self, request: reply.Request) -> reply.Response:
        """Answer POST memory/remember."""
        await self._later.load()
        reply.called(request, "memory/remember")
        asked = requests.decode(REMEMBER, await reply.body(request))
        wanted = self._wanted(asked)
        owner = await scope.owner_or_only_user(asked, self._given.reader)
        wanted = self._of_owner(wanted, owner, asked.source_ids)
        written = await self._work().remembering.remember(owner, wanted)
        return reply.success(request, self._written(written))

    async def update(self, request: reply.Request) -> reply.Response:
        """Answer POST memory/update."""
        await self._later.load()
        from everosd.lifecycle import update  # noqa: PLC0415  # see `_work`

        reply.called(request, "memory/update")
        asked = requests.decode(UPDATE, await reply.body(request))
        change = self._change(asked)
        path = None if asked.path is None else memory.check_path(asked.path)
        owner, entry_id = await self.target(asked, asked.memory_id)
        if not entry_id.startswith("mem_"):
            message = "only typed memories are updated: of anything else its file is edited"
            raise errors.RequestError(message, field="memory_id")
        is_pin = set(change.fields) == {"pinned"} and change.content is change.subject is path is None
        written = await self._work().updates.update(
            owner,
            entry_id,
            change,
            path=path,
            expected=update.Expected(version=asked.expected_version, digest=asked.expected_digest),
            action="pin" if is_pin else "update",
            reason=self._clean(asked.reason, "reason"),
        )
        return reply.success(request, self._written(written))

    async def forget(self, request: reply.Request) -> reply.Response:
        """Answer POST memory/forget."""
        await self._later.load()
        reply.called(request, "memory/forget")
        asked = requests.decode(FORGET, await reply.body(request))
        if asked.replacement_content is not None and asked.mode != "redact":
            message = "goes with mode redact only"
            raise errors.RequestError(message, field="replacement_content")
        text = "" if asked.replacement_content is None else self._text(asked.replacement_content, "replacement_content")
        owner, entry_id = await self.target(asked, asked.memory_id)
        reason = self._clean(asked.reason, "reason")
        forgetting = self._work().forgetting
        if asked.mode == "soft_delete":
            done = await forgetting.hide(owner, entry_id, reason=reason)
        elif not asked.confirm:
            found = await forgetting.look(owner, entry_id)
            raise errors.ConfirmationRequired(_would_go(asked.mode, found), _CONFIRM)
        else:
            done = await forgetting.remove(owner, entry_id, asked.mode, reason=reason, replacement_text=text)
        data = typed_schema.ForgottenData(
            id=types.public_id(owner.id, entry_id),
            mode=asked.mode,
            status=done.status,
            was=done.was,
            removed=tuple(typed_schema.RemovedItem(file=path, ids=ids) for path, ids in done.removed.items()),
            narratives=done.made_of_it,
            left=done.left,
            out_of_reach=() if asked.mode == "soft_delete" else _out_of_reach(),
        )
        return reply.success(request, data)

    async def restore(self, request: reply.Request) -> reply.Response:
        """Answer POST memory/restore."""
        await self._later.load()
        reply.called(request, "memory/restore")
        asked = requests.decode(RESTORE, await reply.body(request))
        owner, entry_id = await self.target(asked, asked.memory_id)
        done = await self._work().restoring.restore(owner, entry_id, reason=self._clean(asked.reason, "reason"))
        data = typed_schema.RestoredData(
            id=types.public_id(owner.id, entry_id),
            status=self._maker().status(done.row),
            was=done.was,
            file=done.row.path,
        )
        return reply.success(request, data)

    async def history(self, request: reply.Request) -> reply.Response:
        """Answer GET entries/{id}/history."""
        reply.called(request, "entries/history")
        asked = requests.decode_query(request.query_params.multi_items(), schema.EntryQuery)
        given = str(request.path_params["entry_id"]).removeprefix("/").removesuffix(HISTORY)
        owner, entry_id = await self.target(asked, given)
        reader = self._given.reader
        found = await reader.find(owner, entry_id)
        told = await lifecycle.rows(reader, owner, target=entry_id, limit=N_CHANGES)
        if found is None and not told:
            raise _unknown()
        now = None if found is None else item.parsed(found)
        kind = "memory" if entry_id.startswith("mem_") else "episode"
        rows = await versions.rows(reader, owner, entry_id)
        ended = versions.landed(rows, now, kind, entry_id)
        others = [one for one in told if one.fields.get("action") not in lifecycle_row.VERSIONS]
        data = typed_schema.HistoryData(
            id=types.public_id(owner.id, entry_id),
            entry_id=entry_id,
            status=GONE if found is None else self._maker().status(found),
            version=None if now is None else versions.number_of(rows, now),
            digest=None if now is None else memory.digest_of(now),
            versions=tuple(map(self._version, ended)),
            changes=tuple(self.changed(owner, one) for one in others),
        )
        return reply.success(request, data)

    async def usage(self, request: reply.Request) -> reply.Response:
        """Answer POST memory/usage."""
        reply.called(request, "memory/usage")
        asked = requests.decode(USAGE, await reply.body(request))
        noted: dict[types.Owner, list[str]] = {}
        unknown: list[str] = []
        for given in dict.fromkeys(asked.memory_ids):
            try:
                owner, entry_id = await self.target(asked, given)
            except errors.NotFound:
                unknown.append(given)
                continue
            if await self._given.reader.find(owner, entry_id) is None:
                unknown.append(given)
            else:
                noted.setdefault(owner, []).append(entry_id)
        if noted and self._given.usage is None:
            message = "nothing takes note of uses here: start the daemon with `everosd serve`"
            raise errors.CapabilityMissing(message)
        for owner, ids in noted.items():
            assert self._given.usage is not None  # noqa: S101  # said above
            self._given.usage.note(owner, ids, self._given.now_us())
        n_noted = sum(map(len, noted.values()))
        return reply.success(request, typed_schema.UsedData(noted=n_noted, unknown=tuple(unknown)))

    # -- whose, and which ------------------------------------------------------------------------------------------

    async def target(self, asked: Asked, given: str) -> tuple[types.Owner, str]:
        """Return whose entry is meant, and its entry id; it may not be there.

        Raises:
            errors.RequestError: the scope is none that there can be, or it is no entry that is written to one by one.
            errors.NotFound: there can be no such entry.
        """
        where, named, wanted = scope.space(asked), scope.named_owner(asked), types.nfc(given)
        if named is not None:
            entry_id = wanted.removeprefix(f"{named.id}_")
            _require_single(entry_id)
            return named, entry_id
        parts = types.parse_public_id(wanted)
        if parts is None:
            _require_single(wanted)
            return await scope.owner_or_only_user(
                _Nobody(app_id=asked.app_id, project_id=asked.project_id), self._given.reader
            ), wanted
        _require_single(parts.entry_id)
        kinds = _TYPES_OF[parts.entry_id.partition("_")[0]]
        if isinstance(asked, schema.EntryQuery) and asked.owner_type is not None:
            kinds = (asked.owner_type,)
        owners = [types.Owner(app=where.app, project=where.project, type=kind, id=parts.owner_id) for kind in kinds]
        having = [owner for owner in owners if await self._has(owner, parts.entry_id)]
        if not having:
            raise _unknown()
        if len(having) > 1:
            message = f"a user and an agent are called {parts.owner_id!r} and both have it: send user_id or agent_id"
            raise errors.RequestError(message, field="memory_id")
        return having[0], parts.entry_id

    async def _has(self, owner: types.Owner, entry_id: str) -> bool:
        """Tell whether an owner has an entry, or had it: what was removed for good is not somebody else's then."""
        reader = self._given.reader
        if await reader.find(owner, entry_id) is not None:
            return True
        return bool(await lifecycle.rows(reader, owner, target=entry_id, limit=1))

    # -- what is asked ---------------------------------------------------------------------------------------------

    def _wanted(self, asked: typed_schema.RememberRequest) -> remembering_of.Wanted:
        from everosd.lifecycle import remember  # noqa: PLC0415  # see `_work`

        metadata, given = self._json(asked.metadata, "metadata")
        promotion_key = asked.promotion_key
        if promotion_key is None and isinstance(key := given.get("promotion_key"), str):
            promotion_key = key[: typed_schema.MAX_KEY_CHARS]
        session_id = None if asked.session_id is None else _session_id(asked.session_id)
        fields = {
            "session_id": session_id,
            "timestamp": self._moment(asked.timestamp, "timestamp"),
            "importance": _number(asked.importance),
            "confidence": _number(asked.confidence),
            "expires_at": self._moment(asked.expires_at, "expires_at"),
            "pinned": "true" if asked.pinned else None,
            "semantic_key": _label(asked.semantic_key, "semantic_key"),
            "promotion_key": _label(promotion_key, "promotion_key"),
            "metadata": metadata,
            "provenance": self._json(asked.provenance, "provenance")[0],
        }
        return remember.Wanted(
            path=memory.check_path(asked.path),
            memory_type=asked.memory_type,
            change=memory.Change(
                content=self._text(asked.content, "content"),
                subject=None if asked.subject is None else self._subject(asked.subject),
                fields={name: text for name, text in fields.items() if text},
            ),
            bucket=_label(asked.bucket, "bucket") or memory.DEFAULT_BUCKET,
            scope=_label(asked.scope, "scope") or "",
            team_id=_label(asked.team_id, "team_id") or "",
            semantic_key=_label(asked.semantic_key, "semantic_key") or "",
            dedupe=asked.dedupe,
        )

    def _of_owner(
        self, wanted: remembering_of.Wanted, owner: types.Owner, source_ids: Iterable[str]
    ) -> remembering_of.Wanted:
        """Return what is wanted with the sources as the owner's log names them."""
        sources = tuple(dict.fromkeys(types.nfc(one).removeprefix(f"{owner.id}_") for one in source_ids if one.strip()))
        if not sources:
            return wanted
        fields = {**wanted.change.fields, "sources": escape.write_list(sources)}
        return msgspec.structs.replace(wanted, change=msgspec.structs.replace(wanted.change, fields=fields))

    def _change(self, asked: typed_schema.UpdateRequest) -> memory.Change:
        fields: dict[str, str | None] = {
            "importance": _number(asked.importance),
            "confidence": _number(asked.confidence),
            "expires_at": self._moment(asked.expires_at, "expires_at"),
            "memory_type": asked.memory_type,
            "pinned": None if asked.pinned is None else "true" if asked.pinned else "",
            "semantic_key": _label(asked.semantic_key, "semantic_key"),
            "promotion_key": _label(asked.promotion_key, "promotion_key"),
            "metadata": self._json(asked.metadata, "metadata")[0],
            "provenance": self._json(asked.provenance, "provenance")[0],
        }
        given = {name: text for name, text in fields.items() if text is not None}
        subject = None if asked.subject is None else self._subject(asked.subject)
        for name in asked.clear:
            if name in given or (name == "subject" and subject):
                message = f"is given, and to be cleared: {name}"
                raise errors.RequestError(message, field="clear")
            if name == "subject":
                subject = ""
            else:
                given[name] = ""
        content = None if asked.content is None else self._text(asked.content, "content")
        if not given and content is subject is asked.path is None:
            message = "say what is to be another"
            raise errors.RequestError(message, field="memory_id")
        return memory.Change(content=content, subject=subject, fields=given)

    def _text(self, given: str, field: str) -> str:
        text = self._clean(given, field)
        if not text:
            message = "must not be blank"
            raise errors.RequestError(message, field=field)
        return text

    def _subject(self, given: str) -> str:
        return " ".join(self._clean(given, "subject").split())

    def _clean(self, given: str, field: str) -> str:
        """Return text as the log keeps it, without credentials where that is wished."""
        del field
        text = escape.clean(given)
        return redact.redacted(text) if self._redacts() else text

    def _json(self, given: typed_schema.JsonOrText | None, field: str) -> tuple[str | None, dict[str, Any]]:
        """Return an object as JSON, and as it is; None and an empty one where none is given.

        Raises:
            errors.RequestError: it is no object, or too large.
        """
        if given is None or given == "":
            return None, {}
        try:
            found = _OBJECT.decode(given) if isinstance(given, str) else given
            text = msgspec.json.encode(found).decode().replace("\\u0000", "")
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            message = "expected a JSON object, or the same as text"
            raise errors.RequestError(message, field=field) from error
        if len(text.encode()) > MAX_JSON_BYTES:
            message = f"must not have more than {MAX_JSON_BYTES} bytes"
            raise errors.RequestError(message, field=field)
        if self._redacts():
            text = redact.redacted_all(("", text, "", "", ""))[1]
        return ("" if not found else text), found

    def _moment(self, given: typed_schema.Moment | None, field: str) -> str | None:
        if given is None or given == "":
            return None
        us = view.moment_us(str(given), self._zone)
        if us is None:
            message = "expected ISO 8601, as 2026-12-31 or 2026-12-31T18:00:00Z, or milliseconds since 1970"
            raise errors.RequestError(message, field=field)
        return moment.iso(us, self._zone)

    def _redacts(self) -> bool:
        now = self._given.config if self._given.in_force is None else self._given.in_force()
        return now.intake.redact

    # -- what is answered ------------------------------------------------------------------------------------------

    def _written(self, done: updating_of.Written) -> typed_schema.WrittenData:
        return typed_schema.WrittenData(
            id=types.public_id(done.row.owner.id, done.row.entry_id),
            entry_id=done.row.entry_id,
            outcome=done.outcome,
            version=done.version,
            digest=done.digest,
            memory_type=done.row.memory_type,
            path=done.row.memory_path,
            status=self._maker().status(done.row),
            file=done.row.path,
        )

    def _version(self, one: versions.Ended) -> typed_schema.VersionItem:
        fields, before = one.row.fields, None
        if one.before is not None:
            seen = view.view(one.before)
            before = typed_schema.VersionText(
                subject=view.title(one.before),
                content=item.content_of(one.before, seen),
                fields=one.before.fields,
            )
        return typed_schema.VersionItem(
            version=one.number,
            at=self._iso(fields.get("timestamp", "")),
            action=fields.get("action", ""),
            reason=fields.get("reason", ""),
            run_id=fields.get("run_id", ""),
            before=before,
        )

    def changed(self, owner: types.Owner, one: log_entry.Entry) -> typed_schema.ChangeItem:
        """Return what a row of the log tells."""
        fields = one.fields
        successor = fields.get("successor", "")
        return typed_schema.ChangeItem(
            id=one.id,
            at=self._iso(fields.get("timestamp", "")),
            action=fields.get("action", ""),
            field=fields.get("field", ""),
            was=fields.get("was", ""),
            value=fields.get("value", ""),
            reason=fields.get("reason", ""),
            successor=types.public_id(owner.id, successor) if successor else None,
            run_id=fields.get("run_id", ""),
        )

    def _iso(self, written: str) -> str:
        us = view.moment_us(written, dt.UTC)
        return written if us is None else moment.iso(us, self._zone)

    def _maker(self) -> item.Maker:
        return item.Maker(zone=self._zone, now_us=clock.to_us(self._given.clock.now()), has_status=True)

    def _work(self) -> Work:
        """Return what writes; imported when it is needed first: a command that reads has no use for it."""
        if self._made is None:
            from everosd.intake import unsay  # noqa: PLC0415
            from everosd.lifecycle import desk, forget, remember, restore, update  # noqa: PLC0415

            given = self._given
            parts = desk.Desk(given.reader, given.cascade, given.clock)
            updates = update.Updates(parts)

            def unsaying() -> unsay.Unsaying:
                if given.intake is not None:
                    return given.intake.unsaying()
                return unsay.Unsaying(parts.places, parts.pen, given.clock)

            self._made = Work(
                remembering=remember.Remembering(parts, updates),
                updates=updates,
                forgetting=forget.Forgetting(parts, unsaying),
                restoring=restore.Restoring(parts, updates),
            )
        return self._made


class _Nobody(msgspec.Struct, frozen=True, kw_only=True):
    """A request that names no owner."""

    app_id: str
    project_id: str
    user_id: str | None = None
    agent_id: str | None = None


def _unknown() -> errors.NotFound:
    message = "there is no such entry in this scope"
    return errors.NotFound(message)


def _require_single(entry_id: str) -> None:
    """Make sure that an id is one of those that are written to one by one.

    Raises:
        errors.NotFound: it is none that there can be.
        errors.RequestError: it is one of another kind.
    """
    if types.ENTRY_ID.fullmatch(entry_id) is None:
        raise _unknown()
    if entry_id.partition("_")[0] not in _TYPES_OF:
        message = "only typed memories (mem_…) and Episodes (ep_…) are meant"
        raise errors.RequestError(message, field="memory_id")


def _session_id(given: str) -> str:
    if "\0" in given:
        message = "must not hold NUL characters"
        raise errors.RequestError(message, field="session_id")
    return layout.check_session_id(given)


def _label(given: str | None, field: str) -> str | None:
    """Return a key or a label in NFC, on one line.

    Raises:
        errors.RequestError: it holds control characters.
    """
    if given is None:
        return None
    text = types.nfc(given).strip()
    if any(not char.isprintable() for char in text):
        message = "must not hold control characters"
        raise errors.RequestError(message, field=field)
    return text


def _number(given: float | None) -> str | None:
    return None if given is None else str(float(given))


def _would_go(mode: str, found: trace.Trace) -> str:
    """Say what would be removed."""
    parts = [
        f"the {'entry' if mode == 'hard_delete' else 'text of the entry'} in {', '.join(found.entries) or 'no file'}"
    ]
    for n, what in (
        (_count(found.derived.values()), "fact{s} taken from it"),
        (_count(found.rows.values()), "row{s} with its versions and snapshots"),
        (len(found.said.message_ids), f"message{{s}} of session {found.session.id if found.session else ''}"),
    ):
        if n:
            parts.append(f"{n:,} {what.replace('{s}', '' if n == 1 else 's', 1)}")
    kept = len(found.made_of_it) + len(found.others)
    stays = (
        f"; {kept} {'entry that was made of it stays' if kept == 1 else 'entries that were made of it stay'}"
        if kept
        else ""
    )
    return f"{mode} would remove for good {', '.join(parts)}{stays}"


def _count(found: Iterable[Sequence[str]]) -> int:
    return sum(map(len, found))


def _out_of_reach() -> tuple[str, ...]:
    from everosd.lifecycle import forget  # noqa: PLC0415  # see `Typed._work`

    return cast("tuple[str, ...]", forget.OUT_OF_REACH)
