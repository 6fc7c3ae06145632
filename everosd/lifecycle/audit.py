"""The row of `.lifecycle/` that says that a call was made: what was asked, what came of it, what stopped it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

import msgspec

from everosd import clock
from everosd.lifecycle import guard, outcome
from everosd.lifecycle import row as rows
from everosd.log import entry, escape, view

ACTION = "audit"


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """How many decisions of an action."""

    apply: int = 0
    skip: int = 0
    left: int = 0
    """Due, and left for the next call."""

    @classmethod
    def of(cls, one: outcome.Done) -> Counts:
        """Count what an action did."""
        return cls(apply=one.n_applied, skip=one.n_skipped, left=one.n_left)


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What a row says."""

    run_id: str
    tool: str
    is_dry_run: bool
    actions: tuple[str, ...] = ()
    parameters: str = ""
    """JSON."""
    until_us: int | None = None
    """End of the window, microseconds since 1970: what came while the call was at work is for the next. None: it does not say."""
    counts: Mapping[str, Counts] = {}
    """By action. Never mutated."""
    stopped: guard.Stopped | None = None
    error: str = ""


class _Written(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`counts` as it stands in the row."""

    actions: Mapping[str, Counts] = {}
    stopped: guard.Stopped | None = None


_COUNTS = msgspec.json.Decoder(_Written)


def draft(told: Told, at: dt.datetime) -> entry.Draft:
    """Return the row."""
    written = _Written(actions=told.counts, stopped=told.stopped)
    fields = {
        "timestamp": rows.stamp(at),
        "action": ACTION,
        "run_id": told.run_id,
        "tool": told.tool,
        "dry_run": "true" if told.is_dry_run else "false",
        "actions": escape.write_list(told.actions) if told.actions else "",
        "parameters": told.parameters,
        "until": "" if told.until_us is None else rows.stamp(clock.from_us(told.until_us)),
        "counts": msgspec.json.encode(written).decode(),
        "error": told.error.replace("\n", " "),
    }
    return entry.Draft(fields={name: text for name, text in fields.items() if text})


def read(found: entry.Entry) -> Told | None:
    """Return what a row says; None where it is no such row, or a person made it illegible."""
    fields = found.fields
    if fields.get("action") != ACTION:
        return None
    try:
        written = _COUNTS.decode(fields.get("counts", "{}"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return Told(
        run_id=fields.get("run_id", ""),
        tool=fields.get("tool", ""),
        is_dry_run=fields.get("dry_run", "") == "true",
        actions=escape.read_list(fields.get("actions", "")),
        parameters=fields.get("parameters", ""),
        until_us=view.moment_us(fields.get("until", ""), dt.UTC),
        counts=written.actions,
        stopped=written.stopped,
        error=fields.get("error", ""),
    )


def at_us(found: entry.Entry) -> int | None:
    """Return when a row was written, microseconds since 1970; None where it does not say."""
    return view.moment_us(found.fields.get("timestamp", ""), dt.UTC)
