"""A provider that is away for questions alone: what is said of it, and what a stop does to those who wait for it."""

from __future__ import annotations

import concurrent.futures
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import embedding_stub
from tests.process import conftest, test_daemon, test_meaning


@pytest.fixture
def stub() -> Iterator[embedding_stub.EmbeddingStub]:
    """A provider."""
    with embedding_stub.EmbeddingStub() as served:
        yield served


def test_S10_health_shows_an_outage_that_only_questions_meet(
    daemon: conftest.Daemon, root: Path, stub: embedding_stub.EmbeddingStub
) -> None:
    """Everything is embedded when the provider goes: the first question shows it in health, until it is back."""
    test_daemon.write_day(root, test_meaning.DAY, *test_meaning.TEXTS)
    daemon.start(env=test_meaning.asking(stub))
    test_meaning.embedded(daemon, 3)
    stub.status = 503
    assert 503 == test_meaning.ask(daemon, "fog", "vector").status_code
    now = daemon.health()
    assert (False, 0) == (now["capabilities"]["embed"], now["cascade"]["pending"])
    assert "status 503" in now["embedding"]["error"]
    assert "the vectors index is failing" in now["degraded"][0]
    stub.status = 200
    conftest.wait_for(lambda: "degraded" not in daemon.health(), "a healthy daemon")
    assert daemon.health()["capabilities"]["embed"]
    assert 200 == test_meaning.ask(daemon, "fog", "vector").status_code


def test_O03_searches_that_wait_for_a_hanging_provider_are_answered_at_a_stop(
    daemon: conftest.Daemon, root: Path, stub: embedding_stub.EmbeddingStub
) -> None:
    """SIGTERM: they are told 503, and by keyword where that was allowed, at once; no traceback in the log."""
    test_daemon.write_day(root, test_meaning.DAY, *test_meaning.TEXTS)
    daemon.start(env=test_meaning.asking(stub, query_timeout_seconds=20, timeout_seconds=30))
    test_meaning.embedded(daemon, 3)
    stub.is_hanging = True
    with concurrent.futures.ThreadPoolExecutor() as threads:
        asked = [
            threads.submit(test_meaning.ask, daemon, f"fog {n}", method)
            for n, method in enumerate(("vector", "vector", "hybrid"))
        ]
        conftest.wait_for(lambda: stub.n_under_way == len(asked), "the questions to be asked")
        began_s = time.monotonic()
        assert 0 == daemon.stop()
        answers = [one.result() for one in asked]
    assert [503, 503, 200] == [answer.status_code for answer in answers]
    assert answers[2].json()["degraded"]
    assert time.monotonic() - began_s < 4
    assert "Traceback" not in daemon.log()
