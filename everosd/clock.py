"""Time, passed in as an argument: the real clock, and what tests replace it with."""

from __future__ import annotations

import asyncio
import datetime as dt
import time as system_time
from typing import Protocol


class Clock(Protocol):
    """What the daemon knows of time."""

    def now(self) -> dt.datetime:
        """Return the current moment, aware, UTC."""

    def monotonic_s(self) -> float:
        """Return seconds that never go back; only differences mean something."""

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds` of monotonic time."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> dt.datetime:
        """Return the current moment, aware, UTC."""
        return dt.datetime.now(dt.UTC)

    def monotonic_s(self) -> float:
        """Return `time.monotonic()`."""
        return system_time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait on the running event loop."""
        await asyncio.sleep(seconds)


def to_us(moment: dt.datetime) -> int:
    """Return microseconds since 1970 of an aware moment, exact (no float in between)."""
    delta = moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


def from_us(us: int) -> dt.datetime:
    """Return the aware UTC moment of microseconds since 1970."""
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=us)


LAST_US = to_us(dt.datetime.max.replace(tzinfo=dt.UTC))
"""The last moment of the calendar, microseconds since 1970."""


def local(us: int, zone: dt.tzinfo) -> dt.datetime:
    """Return the moment of microseconds since 1970 in `zone`; in UTC where the zone would push it out of the calendar."""
    moment = from_us(us)
    try:
        return moment.astimezone(zone)
    except OverflowError:
        return moment


async def wait(event: asyncio.Event, seconds: float | None, time: Clock) -> None:
    """Wait until `event` is set, or for `seconds` of `time`; None: for as long as it takes."""
    if seconds is None:
        await event.wait()
        return
    sleep = asyncio.ensure_future(time.sleep(seconds))
    waiting = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait((sleep, waiting), return_when=asyncio.FIRST_COMPLETED)
    finally:
        sleep.cancel()
        waiting.cancel()
