"""The wiring that can be tested without a process."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import re
import socket
import sqlite3
import threading
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog

from everosd import config, daemon, errors, lock, logs, notify, process
from everosd.cascade import status
from everosd.store import db


@pytest.fixture
def run(tmp_path: Path) -> Iterator[process._Run]:
    """Return a run that has a lock and a port and a service manager at `tmp_path/notify`."""
    settings = config.load(tmp_path, {}, given={"api.port": 0})
    environ = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "60000"}
    handlers, level = logging.root.handlers[:], logging.root.level
    with lock.acquire(tmp_path) as held, process._listen("127.0.0.1", 0) as listener:
        yield process._Run(settings, held, listener, notify.Notifier(environ), logs.RepeatLimiter(60))
    structlog.reset_defaults()
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)
    logging.captureWarnings(capture=False)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ConfigError("everos.toml", "api.port", "wrong"), 3),
        (errors.LockHeld("/r", pid=1, port=2), 4),
        (errors.PortTaken("127.0.0.1", 8000, "in use"), 5),
        (errors.RootError("/r", "gone"), 6),
        (errors.StoreError("damaged"), 7),
        (errors.DerivedIndexError("text", "damaged"), 7),
        (errors.WriteRefused("a.md", "disk full"), 8),
        (db.store_error(Path("system.db"), sqlite3.OperationalError("database or disk is full")), 8),
        (errors.IndexUnavailable("text", "Permission denied"), 8),
        (OSError(errno.ENOSPC, "No space left on device"), 8),
        (errors.SchemaTooNew(9, 1), 9),
        (errors.RequestError("no"), 2),
        (OSError(errno.EPIPE, "Broken pipe"), 1),
        (ValueError("bug"), 1),
    ],
)
def test_each_error_has_its_exit_code(error: Exception, code: int) -> None:
    """Scripts and systemd tell causes apart by the code."""
    assert code == daemon.exit_code(error)


def test_unit_file_does_not_restart_what_only_a_person_can_mend() -> None:
    """Usage, settings, lock, port and a newer ledger must not loop under systemd."""
    unit = (Path(__file__).parents[2] / "systemd" / "everosd.service").read_text()
    found = re.search(r"^RestartPreventExitStatus=(.*)$", unit, re.MULTILINE)
    assert found
    prevented = {int(code) for code in found[1].split()}
    hopeless = (errors.ConfigError, errors.LockHeld, errors.PortTaken, errors.SchemaTooNew)
    assert {daemon.USAGE} | {dict(daemon.EXIT_CODES)[kind] for kind in hopeless} == prevented


def test_unit_file_gives_a_stop_more_time_than_the_daemon_takes(tmp_path: Path) -> None:
    """The daemon's own limit comes first, so that it can say what did not end."""
    unit = (Path(__file__).parents[2] / "systemd" / "everosd.service").read_text()
    found = re.search(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)
    assert found
    assert int(found[1]) > config.load(tmp_path, {}).daemon.drain_timeout_s


def test_listening_port_is_taken_for_everybody_else() -> None:
    """It listens, not only binds: a second daemon is refused at once."""
    with process._listen("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(errors.PortTaken) as refused:
            process._listen("127.0.0.1", port)
        assert str(port) in str(refused.value)
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            pass  # waits in the queue until somebody answers


@pytest.mark.parametrize("host", ["203.0.113.7", "no.such.host.invalid"])
def test_address_of_another_machine_is_refused_with_its_name(host: str) -> None:
    """Neither a traceback nor another code."""
    with pytest.raises(errors.PortTaken, match=re.escape(host)):
        process._listen(host, 0)


async def test_O11_blocked_loop_feeds_no_watchdog_and_is_reported(
    run: process._Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The sign of life comes from the loop itself: what blocks it silences it."""
    logs.set_up(msgspec.structs.replace(run._settings.log, format="json"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(0)
        beat = asyncio.create_task(run._beat(), name="heartbeat")
        await _until(lambda: b"WATCHDOG=1" in _drained(manager))
        _hold_up_the_loop(0.8)
        assert b"WATCHDOG=1" not in _drained(manager)
        await _until(lambda: b"WATCHDOG=1" in _drained(manager))
        beat.cancel()
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["for_s"] > 0.5 for line in lines if line["event"] == "event_loop_blocked"] == [True]


async def test_wrong_settings_are_named_until_they_are_mended(run: process._Run, tmp_path: Path) -> None:
    """Health shows the mistake as long as the file has it."""
    settings = tmp_path / config.FILE_NAME
    settings.write_text("[api]\nprot = 1\n")
    await run._reload()
    assert "did you mean port?" in run._notices()[0]
    settings.write_text("[watch]\nsettle_ms = 9\n")
    await run._reload()
    assert run._notices() == ("changed settings wait for a restart: watch.settle_ms",)
    settings.unlink()
    await run._reload()
    assert run._notices() == ()


async def test_a_model_for_conversations_that_is_half_set_is_named(run: process._Run, tmp_path: Path) -> None:
    """It counts as none: a person who named one has to hear so, and what is missing."""
    settings = tmp_path / config.FILE_NAME
    for text, missing in (
        ('model = "gpt"', "api_key is missing"),
        ('base_url = "http://127.0.0.1:1/v1"', "model is missing"),
    ):
        settings.write_text(f"[llm]\n{text}\n")
        await run._reload()
        assert [True] == [missing in one for one in run._notices()]
    settings.write_text('[llm]\nmodel = "m"\nbase_url = "http://127.0.0.1:1/v1"\n')
    await run._reload()
    assert () == run._notices()


async def test_an_index_that_stands_still_while_the_others_go_on_is_named(run: process._Run) -> None:
    """Readiness goes by the age of progress, not by a flag that somebody set."""

    def behind(age_s: float, n: int = 8) -> Any:
        text = status.ProjectionStatus(lsn=4, behind=n, documents=4, age_s=age_s)
        return types.SimpleNamespace(cascade=types.SimpleNamespace(projection_states=lambda: {"text": text}))

    run._node = behind(29.0)
    assert [] == list(run._stalls())
    run._node = behind(31.0)
    assert ["the text index is 8 changes behind, and has not moved for 31 s"] == list(run._stalls())
    run._node = behind(31.0, 1)
    assert ["the text index is 1 change behind, and has not moved for 31 s"] == list(run._stalls())


async def test_error_of_ours_is_told_from_what_it_brought_down() -> None:
    """A loop fails, its siblings are cancelled or fail too: the message is about the cause."""

    async def fails(error: Exception) -> None:
        raise error

    async def together() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(fails(ValueError("pipe closed")), name="a")
            tasks.create_task(fails(errors.StoreError("no space left")), name="b")

    with pytest.raises(ExceptionGroup) as group:
        await together()
    assert str(daemon.cause(group.value)) == "no space left"


def _hold_up_the_loop(for_s: float) -> None:
    """Do what must not be done on a loop."""
    end_s = time.monotonic() + for_s
    while time.monotonic() < end_s:
        pass


def _drained(manager: socket.socket) -> bytes:
    """Return everything that came until now."""
    heard = b""
    while True:
        try:
            heard += manager.recv(999) + b"\n"
        except BlockingIOError:
            return heard


async def _until(look: Callable[[], bool]) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(5):
        while not look():  # noqa: ASYNC110  # what is waited for happens in the kernel
            await asyncio.sleep(0.005)


def test_a_command_that_works_on_the_files_is_waited_for(tmp_path: Path) -> None:
    """`everosd status` just when the daemon starts does not keep it from starting."""
    command = lock.acquire(tmp_path)
    timer = threading.Timer(0.3, command.close)
    timer.start()
    with process._acquire(tmp_path):
        assert os.getpid() == lock.holder(tmp_path).pid  # type: ignore[union-attr]  # it is held: by this test
    timer.join()


def test_a_command_that_takes_long_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start does not wait for ever, and does not call a command a daemon."""
    monkeypatch.setattr(process, "COMMAND_S", 0.2)
    with lock.acquire(tmp_path), pytest.raises(errors.LockHeld, match="does not listen") as refused:
        process._acquire(tmp_path)
    assert "wait until it has ended" in refused.value.hint


def test_a_daemon_is_not_waited_for(tmp_path: Path) -> None:
    """A second daemon is refused at once."""
    began_s = time.monotonic()
    with lock.acquire(tmp_path) as held:
        held.announce(host="127.0.0.1", port=8123)
        with pytest.raises(errors.LockHeld, match=r"already served by everosd with pid \d+ on port 8123"):
            process._acquire(tmp_path)
    assert time.monotonic() - began_s < process.COMMAND_S / 2
