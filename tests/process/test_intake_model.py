"""Messages through the installed daemon with a model that is slow, overloaded, away, silent or talks nonsense."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterator
from typing import Any

import pytest

from tests import chat_stub
from tests.process import conftest
from tests.process.talking import add, episodes, flush, said

pytestmark = pytest.mark.slow

KEY = "sk-test-0123456789abcdefghij"


@pytest.fixture
def model() -> Iterator[chat_stub.ChatStub]:
    """Return a model that answers sensibly until told otherwise."""
    with chat_stub.ChatStub() as stub:
        yield stub


def env(model: chat_stub.ChatStub, **more: str) -> dict[str, str]:
    """Return the variables of a daemon that asks the model, and is quick to ask again."""
    return {
        "EVEROS_LLM__MODEL": "stub",
        "EVEROS_LLM__BASE_URL": model.url,
        "EVEROS_LLM__MAX_RETRIES": "0",
        "EVEROS_BOUNDARY_DETECTION__ASKS_MODEL": "false",
        "EVEROS_MEMORIZE__ASYNC_QUEUE__RETRY_BACKOFF_SECONDS": "0.2",
        **more,
    }


def waiting(daemon: conftest.Daemon, session: str) -> list[dict[str, Any]]:
    """Return the messages of a session that nothing was extracted from."""
    body = {"user_id": "mara", "query": "x", "method": "keyword", "filters": {"session_id": session}}
    data = daemon.http.post("/api/v1/memory/search", json=body).json()["data"]
    found: list[dict[str, Any]] = data["unprocessed_messages"]
    return found


def eventually(daemon: conftest.Daemon, n_episodes: int) -> list[dict[str, Any]]:
    """Wait until there are as many Episodes, and return them."""
    return conftest.wait_for(
        lambda: found if len(found := episodes(daemon.http)) >= n_episodes else None, f"{n_episodes} Episodes", 20
    )


def test_L05_answers_that_are_only_prose_store_nothing_and_lose_nothing(
    daemon: conftest.Daemon, model: chat_stub.ChatStub
) -> None:
    """Flush says that it failed, the messages wait, health shows it; when the model behaves they are extracted."""
    model.dress = "only_prose"
    http = daemon.start(env=env(model))
    add(http, "s", said("I moved to Porto."))
    answer = flush(http, "s")
    assert (503, "EXTERNAL_SERVICE_UNAVAILABLE") == (answer.status_code, answer.json()["error"]["code"])
    assert [] == episodes(http)
    assert ["I moved to Porto."] == [one["content"] for one in waiting(daemon, "s")]
    queue = daemon.health()["memorize_queue"]
    assert (False, 1) == (queue["healthy"], queue["failed"])
    model.dress = "plain"
    (one,) = eventually(daemon, 1)
    assert "Porto" in one["episode"]
    conftest.wait_for(lambda: daemon.health()["memorize_queue"]["failed"] == 0, "health to be well")


def test_L07_an_overloaded_model_is_left_alone_and_then_everything_is_done_once(
    daemon: conftest.Daemon, model: chat_stub.ChatStub
) -> None:
    """429 with Retry-After while ten sessions are flushed: no storm, at most so many at once, each extracted once."""
    model.status, model.retry_after = 429, "0.6"
    http = daemon.start(env=env(model, EVEROS_LLM__MAX_CONCURRENT="2"))
    for nth in range(10):
        add(http, f"s{nth}", said(f"I have been to town number {nth}.", nth))
    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda nth: flush(http, f"s{nth}").status_code, range(10)))
    assert {503} == set(answers)
    moments = sorted(one.at_s for one in model.asked)
    assert [] == [at for at, third in zip(moments, moments[2:], strict=False) if third - at < 0.5]
    model.status, model.max_concurrent = 200, 2
    found = eventually(daemon, 10)
    daemon.wait_settled()
    assert sorted(f"s{nth}" for nth in range(10)) == sorted(one["session_id"] for one in found)
    assert 10 == len(model.asked_of("episode"))
    assert model.most_under_way <= 2


def test_L08_a_silent_model_stalls_one_session_and_no_other(daemon: conftest.Daemon, model: chat_stub.ChatStub) -> None:
    """The model never answers about one conversation: others are extracted, the stalled one is retried and visible."""
    model.hanging = "qualmweed"
    http = daemon.start(env=env(model, EVEROS_LLM__TIMEOUT_SECONDS="1"))
    add(http, "stalled", said("I planted qualmweed."))
    add(http, "other", said("I moved to Porto.", 1))
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        slow = pool.submit(flush, http, "stalled")
        assert 200 == flush(http, "other").status_code
        assert 503 == slow.result().status_code
    assert 1 == daemon.health()["memorize_queue"]["failed"]
    model.hanging = ""
    eventually(daemon, 2)


def test_O03_a_stop_while_the_model_thinks_is_clean_and_the_flush_is_taken_up(
    daemon: conftest.Daemon, model: chat_stub.ChatStub
) -> None:
    """SIGTERM during a flush with a model that takes a minute: code 0, soon; the next start extracts it."""
    model.is_hanging = True
    http = daemon.start(env=env(model))
    add(http, "s", said("I moved to Porto."))
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        asked = pool.submit(_flush_quietly, http)
        conftest.wait_for(lambda: model.n_under_way, "the model to be asked")
        assert 0 == daemon.stop()
        asked.result()
    assert [] == list(daemon.root.rglob("*.tmp*"))
    model.is_hanging = False
    daemon.start(env=env(model))
    (one,) = eventually(daemon, 1)
    assert "Porto" in one["episode"]


def _flush_quietly(http: Any) -> None:
    import httpx

    try:
        flush(http, "s")
    except httpx.TransportError:
        return


def test_L13_relative_times_are_those_of_the_message_and_its_zone(daemon: conftest.Daemon) -> None:
    """A message of 2023, 00:30 in Shanghai, says "last week" and "yesterday": the dates are in the text, in that zone."""
    http = daemon.start(env={"TZ": "Asia/Shanghai", "EVEROS_MEMORY__TIMEZONE": "Asia/Shanghai"})
    at_ms = 1_683_563_400_000  # 2023-05-08T16:30Z, a Tuesday half an hour old in Shanghai
    add(http, "s", {**said("I ran a marathon last week and swam yesterday."), "timestamp": at_ms})
    flush(http, "s")
    (one,) = eventually(daemon, 1)
    assert "last week (2023-05-01 to 2023-05-07)" in one["episode"]
    assert "yesterday (2023-05-08)" in one["episode"]
    assert one["timestamp"].startswith("2023-05-09T00:30")


@pytest.mark.parametrize(
    ("text", "query"),
    [("我上周搬到了波尔图，住在河边。", "波尔图"), ("J'ai déménagé à Porto, près du fleuve.", "déménagé fleuve")],
)
def test_L11_the_language_of_the_talk_is_kept(
    daemon: conftest.Daemon, model: chat_stub.ChatStub, text: str, query: str
) -> None:
    """What is said in a language is stored in it, and found in it, without a model and with one."""
    http = daemon.start()
    add(http, "verbatim", said(text))
    assert "extracted" == flush(http, "verbatim").json()["data"]["status"]
    assert 0 == daemon.stop()
    http = daemon.start(env=env(model))
    add(http, "read", said(text, 60))
    assert "extracted" == flush(http, "read").json()["data"]["status"]
    conftest.wait_for(
        lambda: {one["session_id"] for one in daemon.search(query, "mara")} == {"verbatim", "read"}, "both to be found"
    )


def test_Z07_the_key_of_the_model_is_nowhere_to_be_read(daemon: conftest.Daemon, model: chat_stub.ChatStub) -> None:
    """A provider that refuses the key and repeats it: no log line, answer, file or row has it."""
    model.key = "another"
    http = daemon.start(env=env(model, EVEROS_LLM__API_KEY=KEY, EVEROS_LOG__LEVEL="debug"))
    add(http, "s", said("I moved to Porto."))
    answer = flush(http, "s")
    assert 503 == answer.status_code
    health = http.get("/health").text
    assert 0 == daemon.stop()
    assert KEY not in answer.text + health + daemon.log()
    assert [] == [path for path in daemon.root.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]
