"""The installed `everosd serve` in a process of its own, and a service manager for it to talk to."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import httpx
import pytest

from everosd import lock
from tests import effort
from tests.process import preloaded

T = TypeVar("T")

Process: TypeAlias = "subprocess.Popen[bytes] | preloaded.Process"

Env: TypeAlias = Mapping[str, str | None]
"""Variables on top of the tests' own; None takes one away."""

START_TIMEOUT_S = 15.0
STOP_TIMEOUT_S = 15.0
POLL_S = 0.01


def command() -> list[str]:
    """Return how to call the installed everosd; from a source tree without a script, the module."""
    script = Path(sys.executable).with_name("everosd")
    return [str(script)] if script.exists() else [sys.executable, "-m", "everosd"]


def wait_for(look: Callable[[], T | None], what: str, timeout_s: float = START_TIMEOUT_S) -> T:
    """Return what `look` returns as soon as that is true; fail with `what` after `timeout_s`."""
    give_up_s = time.monotonic() + timeout_s
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < give_up_s, f"waited {timeout_s} s for {what}"
        threading.Event().wait(POLL_S)


class Daemon:
    """One root and the process that serves it, which may be started again and again."""

    def __init__(self, root: Path, log_path: Path) -> None:
        """Remember where things are; nothing is started."""
        self.root = root
        self.log_path = log_path
        self.command: list[str] | None = None
        """What is run instead of the installed everosd where a test sets it."""
        self.process: Process | None = None
        self.client: httpx.Client | None = None

    def spawn(self, *arguments: str, env: Env | None = None) -> Process:
        """Start `everosd serve` without waiting for anything; its lines go to `log_path`."""
        given = [*(self.command or command()), "serve", "--root", str(self.root), *(arguments or ("--port", "0"))]
        variables = _environment(env or {})
        with self.log_path.open("ab") as log, Path(os.devnull).open("rb") as nothing:
            streams = [one.fileno() for one in (nothing, log, log)]
            if self.command is None and _may_fork(env or {}):
                self.process = _preloaded().spawn(given, variables, streams)
            else:
                self.process = subprocess.Popen(given, stdin=nothing, stdout=log, stderr=log, env=variables)
        return self.process

    def start(self, *arguments: str, env: Env | None = None, ready: bool = True) -> httpx.Client:
        """Start it and return a client once /health answers (and, with `ready`, what is on disk is searchable)."""
        process = self.spawn(*arguments, env=env)
        port = wait_for(lambda: self._port(process), "the port in the lock file")
        if self.client is not None:
            self.client.close()
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30)
        wait_for(self._answers, "an answer of /health")
        if ready:
            self.wait_ready()
        return self.client

    def _port(self, process: Process) -> int | None:
        assert process.poll() is None, f"exit code {process.returncode}:\n{self.log()}"
        found = lock.holder(self.root)
        return found.port if found and found.pid == process.pid else None

    def _answers(self) -> bool:
        with contextlib.suppress(httpx.TransportError):
            return self.http.get("/health").status_code == 200
        return False

    @property
    def http(self) -> httpx.Client:
        """The client of the running daemon."""
        assert self.client is not None
        return self.client

    def health(self) -> dict[str, Any]:
        """Return /health."""
        answer: dict[str, Any] = self.http.get("/health").raise_for_status().json()
        return answer

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until keyword search serves what is on disk."""

        def is_ready() -> bool:
            now = self.health()
            return bool(now["ready"]) and now["cascade"]["pending"] == 0

        wait_for(is_ready, "ready", timeout_s)

    def wait_settled(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until nothing that was noticed is waiting for an index."""
        wait_for(lambda: self.health()["cascade"]["pending"] == 0, "pending == 0", timeout_s)

    def search(self, query: str, user_id: str, **fields: object) -> list[dict[str, Any]]:
        """Return the episodes that a keyword search finds."""
        body = {"query": query, "user_id": user_id, "method": "keyword", **fields}
        answer = self.http.post("/api/v1/memory/search", json=body)
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()["data"]["episodes"]
        return found

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        assert self.process is not None
        self.process.send_signal(number)

    def wait(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Wait for its end and return the exit code."""
        assert self.process is not None
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            pytest.fail(f"still there after {timeout_s} s:\n{self.log()}")

    def stop(self) -> int:
        """Ask it to stop as systemd does, and return the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """Kill it without a chance to tidy up."""
        self.signal(signal.SIGKILL)
        self.wait()

    def log(self) -> str:
        """Return everything it has said so far."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def close(self) -> None:
        """Leave nothing running."""
        if self.client is not None:
            self.client.close()
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def _environment(more: Env) -> dict[str, str]:
    """Return the tests' environment without what would change settings or talk to a real service manager.

    No model is asked unless a test says which: most are about something else, and a model takes its time.
    """
    foreign = ("EVEROS_", "NOTIFY_SOCKET", "WATCHDOG_", "JOURNAL_STREAM")
    own: dict[str, str | None] = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    own |= {"EVEROS_EMBEDDING__MODEL": "none", **more}
    return {name: value for name, value in own.items() if value is not None}


def _may_fork(env: Env) -> bool:
    """Return whether a fork does as well: not for `make long`, for coverage, or where Python itself is told something."""
    is_plain = not any(name.startswith("PYTHON") for name in env)
    return is_plain and not effort.IS_FULL and "coverage" not in sys.modules and hasattr(os, "pidfd_open")


@functools.cache
def _preloaded() -> preloaded.Preloaded:
    """Return what forks commands for all tests of this process."""
    one = preloaded.Preloaded()
    atexit.register(one.close)
    return one


def run(*arguments: str, env: Env | None = None) -> subprocess.CompletedProcess[str]:
    """Run an `everosd` command to its end."""
    if _may_fork(env or {}):
        return _preloaded().run([*command(), *arguments], _environment(env or {}), 60)
    return subprocess.run(
        [*command(), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env=_environment(env or {}),
        check=False,
        stdin=subprocess.DEVNULL,
    )


class Manager:
    """Stands in for systemd: takes what the daemon says and keeps it with the time it came."""

    def __init__(self, path: Path) -> None:
        """Listen at `path`."""
        self.path = path
        self._heard: list[tuple[float, str]] = []
        self._line = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._line.bind(str(path))
        self._thread = threading.Thread(target=self._listen, name="service-manager", daemon=True)
        self._thread.start()

    @property
    def env(self) -> dict[str, str]:
        """What the daemon's environment needs to find it."""
        return {"NOTIFY_SOCKET": str(self.path)}

    def heard(self, word: str) -> list[float]:
        """Return when each message came that has `word` as one of its lines, or as the name of one."""
        return [at for at, text in self._heard for line in text.split("\n") if word in (line, line.partition("=")[0])]

    def close(self) -> None:
        """Stop listening."""
        self._line.sendto(b"", str(self.path))
        self._thread.join()
        self._line.close()

    def _listen(self) -> None:
        while text := self._line.recv(4096):
            self._heard.append((time.monotonic(), text.decode()))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return an empty memory root."""
    folder = tmp_path / "root"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def daemon(root: Path, tmp_path: Path) -> Iterator[Daemon]:
    """Return a daemon for `root`, not started; whatever it started is gone afterwards."""
    one = Daemon(root, tmp_path / "everosd.log")
    yield one
    one.close()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    """Return a service manager; start the daemon with `env=manager.env`."""
    one = Manager(tmp_path / "notify.sock")
    yield one
    one.close()
