"""Requests that are worked on after their answer: what programs are told of them. May be lost; the messages may not."""

from __future__ import annotations

import sqlite3
from typing import Literal, cast

import msgspec

from everosd import types

Status = Literal["queued", "processing", "success", "failed"]
TaskType = Literal["memory_add", "memory_flush"]

INTERRUPTED = (
    "the daemon stopped before this task had ended; its messages are in the log and are extracted without being asked"
)

_COLUMNS = "task_id, app, project, session_id, task_type, status, error, error_code, created_us, finished_us"


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One request."""

    id: str
    """The id of the request."""
    session: types.Owner
    task_type: TaskType
    status: Status = "queued"
    error: str | None = None
    error_code: str | None = None
    """As in the error envelope."""
    created_us: int
    finished_us: int | None = None


def put(connection: sqlite3.Connection, one: Task) -> None:
    """Keep a task, or what has become of it."""
    at = one.session
    connection.execute(
        f"INSERT OR REPLACE INTO tasks ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608  # our own columns
        (
            one.id, at.app, at.project, at.id, one.task_type, one.status, one.error, one.error_code,
            one.created_us, one.finished_us,
        ),
    )  # fmt: skip


def find(connection: sqlite3.Connection, task_id: str) -> Task | None:
    """Return one task."""
    found = connection.execute(f"SELECT {_COLUMNS} FROM tasks WHERE task_id = ?", (task_id,)).fetchone()  # noqa: S608
    return None if found is None else _task(found)


def page(
    connection: sqlite3.Connection,
    space: tuple[str, str],
    *,
    session_id: str | None,
    status: str | None,
    limit: int,
    offset: int,
) -> tuple[list[Task], int]:
    """Return one page of the tasks of an app and project, the newest first, and how many there are in all."""
    condition, values = "app = ? AND project = ?", [*space]
    for column, value in (("session_id", session_id), ("status", status)):
        if value is not None:
            condition += f" AND {column} = ?"
            values.append(value)
    total = connection.execute(f"SELECT count(*) FROM tasks WHERE {condition}", values).fetchone()[0]  # noqa: S608
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM tasks WHERE {condition} ORDER BY created_us DESC, task_id DESC LIMIT ? OFFSET ?",  # noqa: S608
        (*values, limit, offset),
    )
    return [_task(found) for found in rows], int(total)


def interrupt(connection: sqlite3.Connection, now_us: int) -> None:
    """Say of the tasks that an earlier process left behind that it was interrupted."""
    connection.execute(
        "UPDATE tasks SET status = 'failed', error = ?, error_code = 'INTERRUPTED', finished_us = ?"
        " WHERE status IN ('queued', 'processing')",
        (INTERRUPTED, now_us),
    )


def forget(connection: sqlite3.Connection, before_us: int) -> None:
    """Let tasks go that ended before a moment."""
    connection.execute("DELETE FROM tasks WHERE finished_us < ?", (before_us,))


def _task(values: sqlite3.Row | tuple[object, ...]) -> Task:
    task_id, app, project, session_id, task_type, status, error, error_code, created_us, finished_us = values
    return Task(
        id=cast("str", task_id),
        session=types.Owner(
            app=cast("str", app), project=cast("str", project), type="session", id=cast("str", session_id)
        ),
        task_type=cast("TaskType", task_type),
        status=cast("Status", status),
        error=cast("str | None", error),
        error_code=cast("str | None", error_code),
        created_us=cast("int", created_us),
        finished_us=cast("int | None", finished_us),
    )
