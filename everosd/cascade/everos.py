"""What an EverOS database holds that the log must have: read, changed in nothing, turned into rows of the log."""

from __future__ import annotations

import contextlib
import datetime as dt
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from everosd import errors, types
from everosd.log import entry as entries
from everosd.log import layout
from everosd.store import db

DATABASE = Path("sqlite", "system.db")
THEIR_TABLES = frozenset({"md_change_state", "unprocessed_buffer", "memcell", "memorize_inbox", "cluster_member"})
OUR_TABLES = frozenset({"events", "checkpoints", "entries"})
TAKEN_INBOX_STATUSES = frozenset({"success", "succeeded", "done", "completed", "complete", "processed", "extracted"})
"""What a queued request is called once its messages are in the buffer; those of any other status still wait."""
SECONDS_BELOW = 100_000_000_000
"""Message times below this are seconds (10 digits), above it milliseconds."""


_UNUSABLE = (KeyError, ValueError, TypeError, OverflowError, msgspec.MsgspecError, errors.RequestError)
"""What a row raises that cannot be taken over: it is named and stays in the database."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One row on its way to the log."""

    owner: types.Owner
    kind: str
    key: str
    """What tells it from other rows of its kind and owner, in the database and in the log alike."""
    order: tuple[str, int, int]
    """Time, then a rank between rows of one time, then the row's place in the database."""
    draft: entries.Draft


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What the database holds that the log must have."""

    rows: tuple[Row, ...]
    skipped: tuple[str, ...]


def is_everos(folder: Path) -> bool:
    """Say whether `folder` (an `.index/`) holds a database that EverOS made. Blocking.

    Raises:
        errors.StoreError: EverOS has it open right now.

    """
    path = folder / DATABASE
    if not path.is_file():
        return False
    try:
        with contextlib.closing(_open(path)) as connection:
            names = {str(name) for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    except db.FAILURES as error:
        if _is_locked(error):
            raise _in_use(path, error) from error
        return False
    return bool(names & THEIR_TABLES) and not names & OUR_TABLES


def read(folder: Path) -> Found:
    """Read what is to be taken over from the database in `folder`. Blocking; changes nothing.

    Raises:
        errors.StoreError: EverOS has the database open.

    """
    path = folder / DATABASE
    skipped: list[str] = []
    rows: list[Row] = []
    try:
        connection = _open(path)
    except db.FAILURES as error:
        raise _in_use(path, error) from error
    with contextlib.closing(connection):
        done = _extracted_ids(connection, skipped)
        for table, to_rows in (
            ("unprocessed_buffer", _buffered),
            ("memorize_inbox", _queued),
            ("cluster_member", _memberships(connection, skipped)),
            ("reflection_report", _reports(connection, skipped)),
        ):
            for number, record in enumerate(_records(connection, table, skipped)):
                try:
                    rows += to_rows(record, number)
                except _UNUSABLE as error:
                    skipped.append(f"{table} row {number + 1}: {type(error).__name__}: {error}")
    first: dict[tuple[types.Owner, str, str], Row] = {}
    for row in rows:
        if row.kind == "message" and (row.owner.app, row.owner.project, row.key) in done:
            continue
        # A queued request may have reached the buffer before EverOS stopped: the same message in both is one message.
        first.setdefault((row.owner, row.kind, row.key), row)
    return Found(rows=tuple(sorted(first.values(), key=lambda row: row.order)), skipped=tuple(skipped))


def _open(path: Path) -> sqlite3.Connection:
    """Open EverOS's database so that a running EverOS is noticed.

    In exclusive mode SQLite refuses while any other process has the file open; a rename under a running EverOS would
    let it go on writing messages where nobody looks.
    """
    connection = sqlite3.connect(path, isolation_level=None, timeout=2.0)
    try:
        connection.row_factory = sqlite3.Row
        connection.text_factory = lambda data: data.decode("utf-8", errors="replace")
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def _is_locked(error: Exception) -> bool:
    return "locked" in str(error) or "busy" in str(error)


def _in_use(path: Path, error: Exception) -> errors.StoreError:
    """Say why `path` cannot be taken over now."""
    if not _is_locked(error):
        return errors.StoreError(f"{path}: cannot be read ({error})")
    refused = errors.StoreError(f"{path}: EverOS, or another program, has this database open")
    refused.hint = "stop EverOS, then start everosd again; its un-extracted messages are then taken over"
    return refused


def _records(connection: sqlite3.Connection, table: str, skipped: list[str]) -> Iterator[sqlite3.Row]:
    """Yield the rows of `table` as far as they can be read; a table that is missing has none."""
    try:
        yield from connection.execute(f"SELECT * FROM {table} ORDER BY rowid")  # noqa: S608 - names of our own choosing
    except db.FAILURES as error:
        if "no such table" not in str(error):
            skipped.append(f"table {table}: {error}")


def _extracted_ids(connection: sqlite3.Connection, skipped: list[str]) -> set[tuple[str, str, str]]:
    """Return (app, project, message id) of all messages that EverOS has made memory of already."""
    ids: set[tuple[str, str, str]] = set()
    for record in _records(connection, "memcell", skipped):
        with contextlib.suppress(msgspec.MsgspecError):
            members = msgspec.json.decode(record["message_ids_json"], type=list[str])
            ids.update((record["app_id"], record["project_id"], message_id) for message_id in members)
    return ids


# --- messages ---------------------------------------------------------------------------------------------------------


def _buffered(record: sqlite3.Row, number: int) -> list[Row]:
    """Return the row for a message of `unprocessed_buffer`."""
    items = _list(record["content_items_json"])
    fields = {
        "message_id": str(record["message_id"]),
        "sender_id": str(record["sender_id"]),
        "sender_name": _text(record["sender_name"]),
        "role": str(record["role"]),
        "timestamp": _moment(record["timestamp"]).isoformat(),
        "tool_calls": _text(record["tool_calls_json"]),
        "tool_call_id": _text(record["tool_call_id"]),
    }
    return [_message(_session(record), fields, items, str(record["text"] or ""), number)]


def _queued(record: sqlite3.Row, number: int) -> list[Row]:
    """Return the rows for the messages of a request that waits in `memorize_inbox`."""
    if str(record["status"]).lower() in TAKEN_INBOX_STATUSES:
        return []
    owner = _session(record)
    rows = []
    for index, message in enumerate(_payload_messages(msgspec.json.decode(record["payload_json"]))):
        moment = _moment(message["timestamp"])
        ms = round(moment.timestamp() * 1000)
        content = message.get("content", message.get("content_items", ""))
        items: list[object] = [{"type": "text", "text": content}] if isinstance(content, str) else _list(content)
        fields = {
            "message_id": str(message.get("message_id") or f"m_{owner.id}_{ms}_{index}"),
            "sender_id": str(message["sender_id"]),
            "sender_name": _text(message.get("sender_name")),
            "role": str(message["role"]),
            "timestamp": moment.isoformat(),
            "tool_calls": _json(message.get("tool_calls")),
            "tool_call_id": _text(message.get("tool_call_id")),
        }
        rows.append(_message(owner, fields, items, "", number))
    return rows


def _message(owner: types.Owner, fields: dict[str, str], items: list[object], text: str, number: int) -> Row:
    """Return the row of one message; content that is more than one text keeps its items beside the text."""
    texts = [str(item.get("text") or "") for item in items if isinstance(item, dict) and item.get("type") == "text"]
    written = {"type": "message", **{name: value for name, value in fields.items() if value}}
    if len(texts) != len(items) or len(items) > 1:
        written["content_items"] = _json(items)
    return Row(
        owner=owner,
        kind="message",
        key=fields["message_id"],
        order=(fields["timestamp"], 0, number),
        draft=entries.Draft(fields=written, sections=(("Text", text or "\n".join(texts)),)),
    )


def _payload_messages(payload: object) -> list[dict[str, object]]:
    """Find the list of messages in what a queued request carries: the list itself, or an object around it."""
    if isinstance(payload, dict):
        inner = payload.get("messages", payload.get("payload", payload.get("request", [])))
        return _payload_messages(inner)
    return msgspec.convert(payload or [], list[dict[str, object]])


def _session(record: sqlite3.Row) -> types.Owner:
    return _owner(record, "session", str(record["session_id"]))


# --- clusters and reports ---------------------------------------------------------------------------------------------


def _memberships(connection: sqlite3.Connection, skipped: list[str]) -> Callable[[sqlite3.Row, int], list[Row]]:
    """Return the reader of `cluster_member`: who owns a cluster stands in another table."""
    owners = _cluster_owners(connection, skipped)

    def to_rows(record: sqlite3.Row, number: int) -> list[Row]:
        cluster_id = str(record["cluster_id"])
        if cluster_id not in owners:
            msg = f"its cluster {cluster_id} is not in the database"
            raise ValueError(msg)
        fields = {
            "timestamp": _moment(record["added_ts"]).isoformat(),
            "event": "joined",
            "cluster_id": cluster_id,
            "member_id": _entry_id(str(record["member_id"])),
            "member_type": str(record["member_type"]),
        }
        return [_cluster_row(owners[cluster_id], fields, number)]

    return to_rows


def _reports(connection: sqlite3.Connection, skipped: list[str]) -> Callable[[sqlite3.Row, int], list[Row]]:
    """Return the reader of `reflection_report`."""
    owners = _cluster_owners(connection, skipped)

    def to_rows(record: sqlite3.Row, number: int) -> list[Row]:
        cluster_id = str(record["cluster_id"])
        owner_type: types.OwnerType = "user"  # EverOS consolidates Episodes, and those are users'
        owner = owners.get(cluster_id) or _owner(record, owner_type, str(record["owner_id"]))
        fields = {
            "timestamp": _moment(record["created_at"]).isoformat(),
            "event": "rolled_back" if str(record["status"]) == "rolled_back" else "completed",
            "cluster_id": cluster_id,
            "report_id": str(record["id"]),
            "mode": str(record["mode"]),
            "source_members": str(record["source_members"]),
            "source_count": str(int(record["source_count"])),
            "merged_entry_id": _entry_id(str(record["merged_entry_id"])),
            "deprecated_fact_count": str(int(record["deprecated_fact_count"])),
        }
        return [_cluster_row(owner, fields, number)]

    return to_rows


def _cluster_owners(connection: sqlite3.Connection, skipped: list[str]) -> dict[str, types.Owner]:
    owners: dict[str, types.Owner] = {}
    for record in _records(connection, "cluster", skipped):
        owner_type: types.OwnerType = "agent" if record["owner_type"] == "agent" else "user"
        # One whose owner cannot be has no members or reports either: those are named.
        with contextlib.suppress(errors.RequestError):
            owners[str(record["cluster_id"])] = _owner(record, owner_type, str(record["owner_id"]))
    return owners


def _cluster_row(owner: types.Owner, fields: dict[str, str], number: int) -> Row:
    # A narrative joins its cluster in the moment that consolidates it: the consolidation is told first.
    rank = 1 if fields["event"] == "joined" else 0
    return Row(
        owner=owner,
        kind="cluster",
        key=cluster_key(fields),
        order=(fields["timestamp"], rank, number),
        draft=entries.Draft(fields=fields, sections=()),
    )


def cluster_key(fields: dict[str, str]) -> str:
    """Return what tells a cluster row from others of its owner."""
    return " ".join(fields.get(name, "") for name in ("event", "cluster_id", "member_type", "member_id", "report_id"))


# --- values -----------------------------------------------------------------------------------------------------------


def _owner(record: sqlite3.Row, owner_type: types.OwnerType, owner_id: str) -> types.Owner:
    """Return the owner of a row.

    Raises:
        RequestError: it has ids that no memory can have.
    """
    is_session = owner_type == "session"
    return types.Owner(
        app=layout.check_scope_id(str(record["app_id"] or types.DEFAULT_APP), "app_id"),
        project=layout.check_scope_id(str(record["project_id"] or types.DEFAULT_PROJECT), "project_id"),
        type=owner_type,
        id=layout.check_session_id(owner_id) if is_session else layout.check_scope_id(owner_id, f"{owner_type}_id"),
    )


def _moment(value: object) -> dt.datetime:
    """Read a moment as EverOS stores it (naive UTC) or as a request carries it (epoch seconds or milliseconds)."""
    if isinstance(value, int | float):
        return dt.datetime.fromtimestamp(value if value < SECONDS_BELOW else value / 1000, dt.UTC)
    moment = dt.datetime.fromisoformat(str(value))
    return moment.replace(tzinfo=dt.UTC) if moment.tzinfo is None else moment.astimezone(dt.UTC)


def _entry_id(member_id: str) -> str:
    """Return the entry id of a member named by its public id or by its entry id."""
    public = types.parse_public_id(member_id)
    return member_id if public is None else public.entry_id


def _list(value: object) -> list[object]:
    """Return a JSON list, given as text or decoded; empty for nothing."""
    decoded = msgspec.json.decode(value) if isinstance(value, str | bytes) and value else value
    return list(decoded) if isinstance(decoded, list) else []


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _json(value: object) -> str:
    return "" if value is None else msgspec.json.encode(value).decode()
