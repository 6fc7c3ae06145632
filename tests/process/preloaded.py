"""Commands in processes of their own that need not import anything: forks of a process that has, once.

Importing is two thirds of what a short command costs, and of a daemon's start. A fork has the arguments, environment, folder
and streams that it is given, and ends as the installed command does. With `make long` every command is the installed one.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import everosd
from everosd.models import builtin

REPO = Path(__file__).resolve().parents[2]
HAVE_MAIN = ("everosd.__main__", "everosd.models.worker")
"""Modules that do something when they are imported."""
LATE = (
    "anyio._backends._asyncio",
    "importlib.readers",
    "litestar._kwargs.cleanup",
    "litestar.exceptions.responses",
    "litestar.middleware._internal.exceptions",
    "typer._adapters",
    "typer._click.decorators",
    "uvicorn.lifespan.on",
    "uvicorn.protocols.http.httptools_impl",
    "uvloop",
)
"""What is imported when it is needed first."""
STREAMS = (0, 1, 2)
_NUMBER = struct.Struct("!i")


class Process:
    """A fork, as `subprocess.Popen` shows a child."""

    def __init__(self, pid: int, outcome: int) -> None:
        """`outcome` is a descriptor on which the status comes that it ends with."""
        self.pid = pid
        self.returncode: int | None = None
        """What it ended with as far as is known; negative: the signal that ended it."""
        self._outcome = outcome

    def poll(self) -> int | None:
        """Return what it ended with; None: it has not ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and return what it ended with."""
        if self.returncode is None:
            if not select.select([self._outcome], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            self.returncode = os.waitstatus_to_exitcode(_number(self._outcome))
            os.close(self._outcome)
        return self.returncode

    def send_signal(self, sig: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, sig)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)


class Preloaded:
    """A process that has imported everosd, and forks when it is asked to."""

    def __init__(self) -> None:
        """Start it; what it imports is waited for by the first who asks."""
        self._line, theirs = socket.socketpair()
        self._sends = threading.Lock()
        program = f"from tests.process import preloaded; preloaded.stand_by({theirs.fileno()})"
        # NumPy makes its threads when it is imported, and threads are not forked.
        env = {**os.environ, "PYTHONPATH": str(REPO), "OPENBLAS_NUM_THREADS": "1"}
        self._process = subprocess.Popen([sys.executable, "-c", program], pass_fds=[theirs.fileno()], env=env)
        theirs.close()

    def spawn(self, arguments: Sequence[str], env: Mapping[str, str], streams: Sequence[int]) -> Process:
        """Start a command with descriptors for its input, output and errors, which stay the caller's."""
        told, tells = os.pipe()
        job = json.dumps({"arguments": arguments, "env": dict(env), "folder": str(Path.cwd())}).encode()
        with self._sends:  # a command is two messages
            socket.send_fds(self._line, [_NUMBER.pack(len(job))], [*streams, tells])
            self._line.sendall(job)
        os.close(tells)
        return Process(_number(told), told)

    def run(
        self, arguments: Sequence[str], env: Mapping[str, str], timeout_s: float
    ) -> subprocess.CompletedProcess[str]:
        """Run a command without input to its end."""
        with tempfile.TemporaryFile() as nothing, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            process = self.spawn(arguments, env, [one.fileno() for one in (nothing, out, err)])
            try:
                code = process.wait(timeout_s)
            finally:
                process.kill()
            said = [os.pread(one.fileno(), os.fstat(one.fileno()).st_size, 0).decode() for one in (out, err)]
        return subprocess.CompletedProcess(list(arguments), code, *said)

    def close(self) -> None:
        """End it; what it has forked goes on."""
        self._line.close()
        self._process.wait()


def stand_by(descriptor: int) -> None:
    """Import everosd, and fork as often as is asked for. A fork ends here as the command that it is."""
    for module in pkgutil.walk_packages(everosd.__path__, "everosd."):
        if module.name not in HAVE_MAIN:
            importlib.import_module(module.name)
    for name in LATE:
        importlib.import_module(name)
    builtin._PASSAGES_NICENESS = 0  # beside more tests than there are cores, a nicer process would get next to nothing
    gc.collect()
    gc.freeze()  # what is shared is not looked through, and so not copied, by each fork
    line = socket.socket(fileno=descriptor)
    forks: dict[int, tuple[int, int]] = {}
    while True:
        for ready in select.select([descriptor, *forks], [], [])[0]:
            if ready != descriptor:
                _reap(ready, *forks.pop(ready))
                continue
            head, given, _, _ = socket.recv_fds(line, _NUMBER.size, len(STREAMS) + 1)
            if not head:
                return
            job = json.loads(line.recv(_NUMBER.unpack(head)[0], socket.MSG_WAITALL))
            if (pid := os.fork()) == 0:
                _become(given, **job)
            forks[os.pidfd_open(pid)] = pid, given[-1]
            os.write(given[-1], _NUMBER.pack(pid))
            for stream in given[:-1]:
                os.close(stream)


def _reap(handle: int, pid: int, tells: int) -> None:
    """Pass on what a fork ended with."""
    _, status = os.waitpid(pid, 0)
    with contextlib.suppress(BrokenPipeError):
        os.write(tells, _NUMBER.pack(status))
    os.close(tells)
    os.close(handle)


def _become(given: Sequence[int], arguments: Sequence[str], env: Mapping[str, str], folder: str) -> NoReturn:
    """Be the command, in this fork, to the end."""
    from everosd import __main__ as command

    for stream, descriptor in zip(STREAMS, given, strict=False):
        os.dup2(descriptor, stream)
    os.closerange(len(STREAMS), os.sysconf("SC_OPEN_MAX"))
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    os.chdir(folder)
    sys.argv = list(arguments)
    code: object = 1
    try:
        command.main()
    except SystemExit as ended:
        code = ended.code
    except BaseException:  # noqa: BLE001  # as the interpreter does
        traceback.print_exc()
    # All that the interpreter does at the end but taking its modules apart, one by one.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)


def _number(descriptor: int) -> int:
    """Wait for a number."""
    found: int = _NUMBER.unpack(os.read(descriptor, _NUMBER.size))[0]
    return found
