"""A provider of embeddings on the loopback: the tests' own, in a process that shares nothing with what is measured.

Its vectors are made of words, which costs it CPU on the same machine; a figure with it is an upper bound of ours.
"""

from __future__ import annotations

import contextlib
import http.client
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import msgspec

from bench import daemon

DIM = 384
"""As wide as the built-in model's."""


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """What came in so far."""

    n_requests: int
    n_texts: int
    """Texts that vectors were given for."""
    n_different: int


class Provider:
    """One such process."""

    def __init__(self, url: str) -> None:
        """Talk to the one at `url`."""
        self.url = url
        self._address = urllib.parse.urlsplit(url).netloc

    @property
    def settings(self) -> daemon.Settings:
        """What makes a daemon ask it."""
        return {
            "EVEROS_EMBEDDING__MODEL": "stub",
            "EVEROS_EMBEDDING__BASE_URL": self.url,
            "EVEROS_EMBEDDING__API_KEY": "bench",
        }

    def behave(self, **how: object) -> None:
        """Set how it answers from now on: attributes of `tests.embedding_stub.Behaviour`."""
        self._ask("PUT", msgspec.json.encode(how))

    def counts(self) -> Counts:
        """Return what came in so far."""
        return msgspec.json.decode(self._ask("GET"), type=Counts)

    def _ask(self, method: str, body: bytes | None = None) -> bytes:
        connection = http.client.HTTPConnection(self._address, timeout=30)
        try:
            connection.request(method, "/stub", body)
            return connection.getresponse().read()
        finally:
            connection.close()


@contextlib.contextmanager
def running(*, delay_ms: float = 0) -> Iterator[Provider]:
    """Serve while the block runs; every request takes `delay_ms` at least."""
    command = [sys.executable, "-m", "tests.embedding_stub", "--dim", str(DIM), "--delay-ms", str(delay_ms)]
    process = subprocess.Popen(command, cwd=Path(__file__).parents[1], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        if not url:
            msg = f"the provider of embeddings did not start: {process.wait(10)}"
            raise daemon.Failed(msg)
        yield Provider(url)
    finally:
        process.terminate()
        process.wait(10)
