"""What systemd is told."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from everosd import notify


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """Stand in for the service manager: a datagram socket that keeps what it is told."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.bind(str(tmp_path / "notify"))
        line.settimeout(5)
        yield line


def test_messages_are_those_of_the_protocol(manager: socket.socket, tmp_path: Path) -> None:
    """Each call is one datagram in sd_notify's words."""
    line = notify.Notifier({"NOTIFY_SOCKET": str(tmp_path / "notify")})
    line.ready("serving\n3 files")
    line.watchdog()
    line.extend(2.5)
    line.status("reading")
    assert manager.recv(999) == b"READY=1\nSTATUS=serving 3 files"
    assert manager.recv(999) == b"WATCHDOG=1"
    assert manager.recv(999) == b"EXTEND_TIMEOUT_USEC=2500000"
    assert manager.recv(999) == b"STATUS=reading"


def test_reloading_carries_the_monotonic_time(manager: socket.socket, tmp_path: Path) -> None:
    """Systemd orders reloads by it."""
    notify.Notifier({"NOTIFY_SOCKET": str(tmp_path / "notify")}).reloading()
    first, second = manager.recv(999).split(b"\n")
    assert first == b"RELOADING=1"
    assert second.startswith(b"MONOTONIC_USEC=")


def test_stopping_is_said_once(manager: socket.socket, tmp_path: Path) -> None:
    """However many signals come."""
    line = notify.Notifier({"NOTIFY_SOCKET": str(tmp_path / "notify")})
    line.stopping("draining")
    line.stopping("draining")
    line.watchdog()
    assert manager.recv(999).startswith(b"STOPPING=1")
    assert manager.recv(999) == b"WATCHDOG=1"


def test_abstract_socket_is_reached() -> None:
    """`@name` stands for a name that begins with NUL."""
    name = f"everosd-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.bind("\0" + name)
        line.settimeout(5)
        notify.Notifier({"NOTIFY_SOCKET": "@" + name}).watchdog()
        assert line.recv(999) == b"WATCHDOG=1"


def test_nobody_listening_is_no_failure(tmp_path: Path) -> None:
    """Without a socket, or with a dead one, every call does nothing."""
    notify.Notifier({}).ready("x")
    notify.Notifier({"NOTIFY_SOCKET": str(tmp_path / "gone")}).ready("x")
    assert not notify.Notifier({}).is_heard


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({}, None),
    ],
)
def test_watchdog_period_is_only_taken_when_meant_for_this_process(
    environ: dict[str, str], expected: float | None
) -> None:
    """`WATCHDOG_PID` of another process means that process is watched."""
    assert expected == notify.Notifier({"NOTIFY_SOCKET": "/x", **environ}).watchdog_s
