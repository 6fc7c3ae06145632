"""The installed `everosd serve` as a subprocess, and a client light enough not to be what is measured."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0

Settings = Mapping[str, str]
"""Environment variables that set the daemon."""

BUILTIN: Settings = {"EVEROS_EMBEDDING__MODEL": "builtin"}
"""As installed."""
WITHOUT_MODEL: Settings = {"EVEROS_EMBEDDING__MODEL": "none"}


class Failed(Exception):  # noqa: N818 - it reads as a sentence where it is raised
    """A measurement could not be made; the message says why."""


class Embedding(msgspec.Struct, frozen=True, kw_only=True):
    """What `/health` says of the model."""

    dim: int
    """0: not known yet."""
    owed: int
    requested: int
    error: str


class Client:
    """One keep-alive connection. Not for several threads."""

    def __init__(self, port: int, *, timeout_s: float = 120.0) -> None:
        """Connect to a daemon of this machine at the first request."""
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
        self._decoder = msgspec.json.Decoder()

    def request(self, method: str, path: str, body: object = None) -> dict[str, object]:
        """Send one request and return the decoded answer; raises `Failed` on a status of 400 or more."""
        data = None if body is None else msgspec.json.encode(body)
        try:
            response = self._exchange(method, path, data)
        except (ConnectionError, http.client.HTTPException):  # a connection that idled is closed by the other side
            self._connection.close()
            response = self._exchange(method, path, data)
        answer = response.read()
        if response.status >= http.HTTPStatus.BAD_REQUEST:
            msg = f"{method} {path}: {response.status} {answer[:300]!r}"
            raise Failed(msg)
        return msgspec.convert(self._decoder.decode(answer), dict[str, object])

    def _exchange(self, method: str, path: str, data: bytes | None) -> http.client.HTTPResponse:
        self._connection.request(method, path, data, {"content-type": "application/json"} if data else {})
        return self._connection.getresponse()

    def health(self) -> dict[str, object]:
        """Return the answer of `/health`."""
        return self.request("GET", "/health")

    def pending(self) -> int:
        """Return how much the daemon has noticed and not indexed yet."""
        return msgspec.convert(msgspec.convert(self.health()["cascade"], dict[str, object])["pending"], int)

    def embedding(self) -> Embedding | None:
        """Return how the model does; None where no vectors are wanted."""
        return msgspec.convert(self.health().get("embedding"), Embedding | None)

    def has_vectors(self) -> bool:
        """Say whether everything on disk is in every index, with its vectors."""
        return self.pending() == 0 and (model := self.embedding()) is not None and model.dim > 0 and model.owed == 0

    def is_ready(self) -> bool:
        """Say whether the disk was compared and nothing waits."""
        return self.health()["ready"] is True and self.pending() == 0

    def status(self) -> dict[str, object]:
        """Return the daemon's own account of itself."""
        answer = self.request("GET", "/api/v1/admin/status")
        return msgspec.convert(answer.get("data", answer), dict[str, object])

    def answer(self, user: str, query: str, *, top_k: int = 10, method: str = "keyword") -> dict[str, object]:
        """Return the whole answer to a search of one user; `degraded` in it says why it is less than asked for."""
        body = {"user_id": user, "query": query, "top_k": top_k, "method": method}
        return self.request("POST", "/api/v1/memory/search", body)

    def search(self, user: str, query: str, *, top_k: int = 10, method: str = "keyword") -> list[dict[str, object]]:
        """Return the episodes that a search of one user finds."""
        answer = self.answer(user, query, top_k=top_k, method=method)
        return msgspec.convert(msgspec.convert(answer["data"], dict[str, object])["episodes"], list[dict[str, object]])

    def has(self, user: str, word: str) -> bool:
        """Say whether a search for `word` finds an entry that holds it."""
        return any(word in str(hit.get("episode")) for hit in self.search(user, word, top_k=3))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class Daemon:
    """A daemon on one root."""

    def __init__(self, root: Path, settings: Settings = BUILTIN, *, log: Path | None = None) -> None:
        """Choose a free port for `root`; nothing starts yet."""
        self.root = root
        self._settings = settings
        self.port = free_port()
        self._log = log or root.with_name(f"{root.name}.log")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> float:
        """Start it and return the seconds until `/health` answered."""
        command = [str(installed()), "serve", "--root", str(self.root), "--port", str(self.port)]
        given = {name: value for name, value in os.environ.items() if not name.startswith("EVEROS_")}
        started = time.perf_counter()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env={**given, **self._settings}
            )
        while time.perf_counter() - started < START_TIMEOUT_S:
            if self._process.poll() is not None:
                msg = f"everosd ended with {self._process.returncode}: {self.log_tail()}"
                raise Failed(msg)
            with contextlib.suppress(OSError, http.client.HTTPException):
                client = Client(self.port, timeout_s=5)
                client.health()
                client.close()
                return time.perf_counter() - started
            time.sleep(0.005)
        msg = f"everosd was not healthy after {START_TIMEOUT_S} s: {self.log_tail()}"
        raise Failed(msg)

    def stop(self) -> float:
        """Stop it as systemd would and return the seconds that took."""
        if self._process is None:
            return 0.0
        started = time.perf_counter()
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None
        return time.perf_counter() - started

    def client(self) -> Client:
        """Return a new connection."""
        return Client(self.port)

    @property
    def proc(self) -> Path:
        """The kernel's account of the running process."""
        if self._process is None:
            msg = "the daemon does not run"
            raise Failed(msg)
        return Path("/proc", str(self._process.pid))

    def rss_mb(self) -> float:
        """Return resident memory in MB."""
        return int((self.proc / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

    def workers_mb(self) -> tuple[float, int]:
        """Return what the processes below the daemon have in memory, pages they share counted once, and how many."""
        sizes = [_shared_mb(pid) for pid in _children(self.proc)]
        return sum(sizes), len(sizes)

    def cpu_s(self) -> float:
        """Return seconds of CPU used so far, user and system."""
        fields = (self.proc / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def written_bytes(self) -> int:
        """Return bytes sent to the disk so far."""
        lines = (self.proc / "io").read_text().splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith("write_bytes")))

    def log_tail(self) -> str:
        """Return the end of its log."""
        return self._log.read_text(encoding="utf-8", errors="replace")[-1500:] if self._log.exists() else ""


def _children(proc: Path) -> list[int]:
    return [int(pid) for task in (proc / "task").iterdir() for pid in (task / "children").read_text().split()]


def _shared_mb(pid: int) -> float:
    try:
        lines = Path("/proc", str(pid), "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return int(next(line.split()[1] for line in lines if line.startswith("Pss:"))) * 1024 / 1e6


@contextlib.contextmanager
def running(root: Path, settings: Settings = BUILTIN) -> Iterator[Daemon]:
    """Serve `root` while the block runs."""
    root.mkdir(parents=True, exist_ok=True)
    daemon = Daemon(root, settings)
    try:
        daemon.start()
        yield daemon
    finally:
        daemon.stop()


def installed() -> Path:
    """Return the `everosd` command beside the Python that runs this."""
    return Path(sys.executable).with_name("everosd")


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(is_true: Callable[[], bool], *, timeout_s: float, what: str, pause_s: float = 0.001) -> float:
    """Ask until `is_true` and return the seconds that took; raises `Failed` naming `what` at the end of the time."""
    started = time.perf_counter()
    while not is_true():
        if time.perf_counter() - started > timeout_s:
            msg = f"waited {timeout_s:.0f} s for {what}"
            raise Failed(msg)
        time.sleep(pause_s)
    return time.perf_counter() - started


def tree_bytes(folder: Path) -> int:
    """Return the bytes of all files below `folder`."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += Path(parent, name).stat().st_size
    return total
