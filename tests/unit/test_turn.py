"""A turn of embedding over an embedder that a test plays."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence

import numpy as np
import pytest

from everosd import errors, types
from everosd.cascade import turn
from everosd.models import embed

SPACE = types.Space(model="played", dim=2)


class Played:
    """Implements `embed.Embedder`."""

    name = "played"
    batch_size = 1
    max_concurrent = 4

    def __init__(self, failure: Exception) -> None:
        """Fail with `failure` what is asked, once `is_open` is set; `is_full` says that nothing more fits."""
        self.failure = failure
        self.is_open, self.is_full = asyncio.Event(), asyncio.Event()
        self._n_under_way = 0

    async def start(self) -> None:
        """Have nothing to do."""

    def expect(self, space: types.Space) -> bool:
        """Have one space."""
        return space == SPACE

    async def probe(self) -> types.Space:
        """Have one space."""
        return SPACE

    async def passages(self, texts: Sequence[str]) -> embed.Vectors:
        """Fail."""
        del texts
        self._n_under_way += 1
        if self._n_under_way == self.max_concurrent:
            self.is_full.set()
        await self.is_open.wait()
        raise self.failure

    async def query(self, text: str) -> embed.Vectors:
        """Give any vector."""
        del text
        return np.array([1, 0], dtype=np.float32)

    async def close(self) -> None:
        """Have nothing to do."""


@pytest.fixture
def embedder() -> Played:
    return Played(errors.ConfigError("everos.toml", "embedding.dim", "asks for another width"))


def entries(n: int) -> list[turn.Entry]:
    return [
        turn.Entry(
            key=types.EntryKey(key),
            digest=b"%d" % key,
            path=types.RelPath("a.md"),
            line=1,
            pieces=(turn.Piece(text=f"text {key}", digest=b"%d" % key),),
        )
        for key in range(1, n + 1)
    ]


async def nothing() -> None:
    """Take note of no answer."""


def begun(n: int) -> turn.Turn:
    return turn.Turn(SPACE, entries(n), turn.Store(), turn.Pace(1))


async def test_what_every_request_fails_with_is_raised_once_and_not_logged_as_lost(
    embedder: Played, caplog: pytest.LogCaptureFixture
) -> None:
    """A width that the settings do not ask for is one mistake, not a traceback for each request that was under way."""
    embedder.is_open.set()
    with pytest.raises(errors.ConfigError, match="another width"):
        await begun(4).ask(embedder, (), nothing)
    gc.collect()
    assert [] == caplog.messages


async def test_what_fails_after_a_stop_is_not_logged_as_lost(
    embedder: Played, caplog: pytest.LogCaptureFixture
) -> None:
    """Requests that are under way at a stop may fail before it lets go of them: nobody has to read of that."""
    now = begun(4)
    asking = asyncio.create_task(now.ask(embedder, (), nothing))
    await embedder.is_full.wait()
    asking.cancel()
    await asyncio.wait({asking})
    embedder.is_open.set()
    await now.drain(5)
    del now
    gc.collect()
    assert [] == caplog.messages
