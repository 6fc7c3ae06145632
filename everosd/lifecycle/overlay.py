"""One owner's memories at one moment, as the decisions of a pass have left them so far; nothing of it is written anywhere."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from everosd import types
from everosd.lifecycle import decisions, window
from everosd.store import lifecycle as store
from everosd.store import read

GOVERNED = ("active", "expired", "superseded")
"""Statuses that a pass has anything to say about."""

EPISODIC = "episodic"


class State:
    """What a pass sees. Lives on the event loop, for one pass."""

    def __init__(self, reader: read.Reader, owner: types.Owner, now_us: int) -> None:
        """Know nothing of `owner` yet; `load` reads."""
        self._reader, self.owner, self.now_us = reader, owner, now_us
        self._taken: list[store.Record] | None = None
        self._status: dict[str, tuple[str, int]] = {}
        """Entry id → what it is by now, and since when, microseconds since 1970; others are as the ledger has them."""

    def fork(self) -> State:
        """Return a copy that later decisions of one leave the other alone."""
        made = State(self._reader, self.owner, self.now_us)
        made._taken, made._status = self._taken, dict(self._status)
        return made

    def take(self, records: Iterable[store.Record]) -> None:
        """Take over what the ledger knows of the owner's memories of `GOVERNED` statuses, the oldest first."""
        self._taken = list(records)

    @property
    def records(self) -> list[store.Record]:
        """Return the memories of the owner as the ledger has them, the oldest first: ask `status` what they are by now."""
        return self._taken or []

    def status(self, record: store.Record) -> tuple[str, int | None]:
        """Return what a memory is by now, and since when; None: the log does not say."""
        found = self._status.get(record.entry_id)
        return (record.status, record.status_since_us) if found is None else found

    def change(self, entry_ids: Iterable[str], status: str) -> None:
        """Let memories have another status from `now_us` on."""
        self._status.update(dict.fromkeys(entry_ids, (status, self.now_us)))

    def supersede(self, superseded: Mapping[str, str]) -> None:
        """Let a consolidation's sources be superseded."""
        self.change(superseded, "superseded")

    async def episodic(self, call: decisions.Call) -> list[store.Record]:
        """Return the episodic memories in the window of a call, typed ones and Episodes, the oldest first.

        Only such as can be recalled: active, not expired, not redacted, and not superseded by an earlier decision. Fits the
        filters of the call; `call.limit` is for the planner to heed.

        Raises:
            StoreError: the ledger cannot be read.
        """
        kinds = store.KINDS if self._taken is None else ("episode",)
        found = await store.records(
            self._reader,
            self.owner,
            kinds=kinds,
            memory_type=EPISODIC,
            bucket=call.filters.bucket,
            scope=call.filters.scope,
            team_id=call.filters.team_id,
            path=call.filters.path,
            from_us=call.window.since_us,
            to_us=call.window.until_us + 1,
        )
        return await asyncio.to_thread(self._recallable, found, call)

    def _recallable(self, found: Iterable[store.Record], call: decisions.Call) -> list[store.Record]:
        """Return those of memories that can be recalled, and of those taken over that the call is about as well."""
        since_us, until_us, fits = call.window.since_us, call.window.until_us, window.fits(call.filters)
        taken = [
            one
            for one in self._taken or ()
            if one.kind == "memory"
            and one.memory_type == EPISODIC
            and since_us <= one.created_us <= until_us
            and fits(one)
        ]
        some = [one for one in (*found, *taken) if self.is_recallable(one)]
        return sorted(some, key=lambda one: (one.created_us, one.entry_id)) if taken else some

    def is_recallable(self, record: store.Record) -> bool:
        """Tell whether a memory can be recalled by now."""
        is_expired = record.expires_us is not None and record.expires_us <= self.now_us
        return self.status(record)[0] == "active" and not is_expired and not record.is_redacted
