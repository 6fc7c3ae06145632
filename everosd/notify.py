"""What systemd is told: ready, alive, reloading, stopping (the sd_notify protocol, systemd's `sd_notify(3)`).

One datagram per message to the socket that `NOTIFY_SOCKET` names. Without one every call does nothing. A message that
cannot be sent is dropped: the daemon must not fail, or wait, because nobody listens.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping

MICROSECONDS = 1_000_000


class Notifier:
    """The line to the service manager. Not for several threads."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        """Read `NOTIFY_SOCKET`, `WATCHDOG_USEC` and `WATCHDOG_PID`."""
        address = environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._is_stopping = False
        self.watchdog_s = _watchdog_s(environ) if address else None
        """Longest silence that the service manager takes, seconds; None: it does not watch."""

    @property
    def is_heard(self) -> bool:
        """Whether there is a service manager at the other end."""
        return bool(self._address)

    def ready(self, status: str) -> None:
        """Say that the daemon serves, or that a reload is over."""
        self._send("READY=1", f"STATUS={_line(status)}")

    def status(self, text: str) -> None:
        """Say in a line what is going on."""
        self._send(f"STATUS={_line(text)}")

    def watchdog(self) -> None:
        """Say that the event loop turns."""
        self._send("WATCHDOG=1")

    def extend(self, seconds: float) -> None:
        """Ask for `seconds` more, from now, before a start or stop counts as failed."""
        self._send(f"EXTEND_TIMEOUT_USEC={int(seconds * MICROSECONDS)}")

    def reloading(self) -> None:
        """Say that settings are being read again; `ready` ends it."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self, status: str) -> None:
        """Say, once, that the daemon is going down."""
        if not self._is_stopping:
            self._is_stopping = True
            self._send("STOPPING=1", f"STATUS={_line(status)}")

    def _send(self, *lines: str) -> None:
        """Send one datagram without waiting."""
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK) as line:
                line.sendto("\n".join(lines).encode(), self._address)
        except OSError:
            return


def _line(text: str) -> str:
    """Keep a text from being read as a second message."""
    return " ".join(text.split())


def _watchdog_s(environ: Mapping[str, str]) -> float | None:
    """Return the watchdog's period, if it is meant for this process."""
    try:
        period_us = int(environ.get("WATCHDOG_USEC", "0"))
        pid = int(environ.get("WATCHDOG_PID", "") or os.getpid())
    except ValueError:
        return None
    return period_us / MICROSECONDS if period_us > 0 and pid == os.getpid() else None
