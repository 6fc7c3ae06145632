"""Vectors as a person meets them: the installed daemon, and a provider of embeddings that does as it is told."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from bench import measure
from everosd import daemon as daemons
from tests import effort, embedding_stub
from tests.process import conftest, test_catching_up, test_daemon

USER = "u_mara"
DAY = "2026-03-02"
KEY = "sk-live-4f9c27d1a86be035"
TEXTS = (
    "The cat sleeps on the radiator",
    "An invoice must be paid by friday",
    "Fog lies on the mountain all day",
)
FIRST, SECOND, THIRD = (f"{USER}_ep_20260302_{n:08}" for n in (1, 2, 3))
GARBAGE: tuple[embedding_stub.Garbage, ...] = ("html", "too_few", "nan", "shuffled", "wrong_width", "cut")
UNPRIVILEGED = """
import ctypes, os, sys
for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
    ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP: what is executed next has it no more
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Whom permissions hold back though the tests run as root, whom they do not."""


@pytest.fixture
def stub() -> Iterator[embedding_stub.EmbeddingStub]:
    """A provider."""
    with embedding_stub.EmbeddingStub() as served:
        yield served


def asking(stub: embedding_stub.EmbeddingStub, **more: object) -> dict[str, str | None]:
    """Return the variables with which a daemon asks the provider; it gives up soon, and is not sent texts twice."""
    given: dict[str, object] = {"model": "a", "base_url": stub.url, "max_retries": 0, "timeout_seconds": 5}
    return {f"EVEROS_EMBEDDING__{name.upper()}": str(value) for name, value in (given | more).items()}


def save_settings(root: Path, stub: embedding_stub.EmbeddingStub, **more: object) -> None:
    """Save everos.toml as an editor does, by rename."""
    given = {"model": "a", "base_url": stub.url, "max_retries": 0, "timeout_seconds": 5} | more
    lines = [f'{name} = "{value}"' if isinstance(value, str) else f"{name} = {value}" for name, value in given.items()]
    fresh = root / "everos.toml.new"
    fresh.write_text("\n".join(["[embedding]", *lines, ""]))
    fresh.replace(root / "everos.toml")


def model(daemon: conftest.Daemon) -> dict[str, Any]:
    """Return what /health says of the model; empty where none is wanted."""
    found: dict[str, Any] = daemon.health()["embedding"] or {}
    return found


def degraded(daemon: conftest.Daemon) -> str:
    """Return what /health says does not work as it should, in one text."""
    return "; ".join(daemon.health().get("degraded", ()))


def embedded(daemon: conftest.Daemon, n_entries: int, name: str = "a", timeout_s: float = 20.0) -> dict[str, Any]:
    """Wait until all entries have vectors of the model, nothing is amiss and nothing under way; return /health."""

    def look() -> dict[str, Any] | None:
        now = daemon.health()
        said, vectors = now["embedding"] or {}, now["cascade"]["projections"].get("vectors", {})
        is_done = said.get("model", "").split(" ")[0] == name and said["dim"] and not said["owed"] and not said["error"]
        counts = now["cascade"]["pending"], vectors.get("state"), vectors.get("documents")
        return now if is_done and counts == (0, "ok", n_entries) else None

    try:
        return conftest.wait_for(look, f"vectors of {n_entries} entries", timeout_s)
    except AssertionError as error:
        now = daemon.health()
        pytest.fail(f"{error}; {now['embedding']}; {now['cascade']['projections']}\n{daemon.log()[-3000:]}")


def ask(daemon: conftest.Daemon, query: str, method: str, **fields: object) -> httpx.Response:
    """Search for episodes and return the answer, whatever it is."""
    body = {"query": query, "user_id": USER, "method": method, **fields}
    return daemon.http.post("/api/v1/memory/search", json=body)


def found(daemon: conftest.Daemon, query: str, method: str, **fields: object) -> list[str]:
    """Return the ids that a search finds."""
    answer = ask(daemon, query, method, **fields)
    assert 200 == answer.status_code, answer.text
    return [hit["id"] for hit in answer.json()["data"]["episodes"]]


def refusal(answer: httpx.Response) -> tuple[int, str]:
    """Return status and code of an error."""
    return answer.status_code, answer.json()["error"]["code"]


def paid(stub: embedding_stub.EmbeddingStub) -> list[str]:
    """Return the texts of entries that vectors were given for; an entry's text has its title in a line of its own."""
    return [text for text in stub.texts if "\n" in text]


def lines_of(daemon: conftest.Daemon, event: str) -> list[str]:
    """Return the lines of the log with this event."""
    return [line for line in daemon.log().splitlines() if f'"event":"{event}"' in line]


# -- a provider that is slow, hangs, fails, or answers nonsense ------------------------------------------------------


@pytest.mark.timeout(120)
def test_O01_vectors_are_made_in_the_background_and_nothing_waits_for_them(
    daemon: conftest.Daemon, root: Path, stub: embedding_stub.EmbeddingStub
) -> None:
    """2,000 entries, a provider of 300 ms: health at once, keywords soon, vectors later with their progress shown."""
    stub.delay_s = 0.3
    test_daemon.write_many(root, 10, 200)
    waits, said = [0.0], [0]

    def look() -> None:
        began_s = time.monotonic()
        now = degraded(daemon)
        waits.append(time.monotonic() - began_s)
        if progress := re.search(r"the vectors are being made: ([\d,]+) of 2,000; keyword search has everything", now):
            said.append(int(progress[1].replace(",", "")))

    began_s = time.monotonic()
    daemon.start(ready=False, env=asking(stub, batch_size=20, max_concurrent=10))
    assert time.monotonic() - began_s < 1.0 * test_catching_up.patience()
    with test_catching_up.during(look):
        conftest.wait_for(lambda: daemon.health()["ready"], "ready")
        assert 1 == len(daemon.search("Note 3 77", USER, top_k=1))
        assert daemon.health()["cascade"]["pending"], "vectors were there before it could be watched without them"
        answer = ask(daemon, "Note 3 77 ferry", "hybrid")
        assert (200, 100) == (answer.status_code, len(answer.json()["data"]["episodes"]))
        assert answer.json()["degraded"]
        embedded(daemon, 2_000, timeout_s=60)
    assert sorted(said) == said
    assert len(set(said)) > 3
    assert max(waits) < 0.2 * test_catching_up.patience()
    assert not lines_of(daemon, "event_loop_blocked")
    assert (2_000, 2_000) == (len(paid(stub)), len(set(paid(stub))))
    assert "degraded" not in ask(daemon, "Note 3 77 ferry", "hybrid").json()
    assert "degraded" not in daemon.health()


def test_O02_a_provider_that_hangs_is_named_by_age_and_keywords_do_not_notice(
    daemon: conftest.Daemon, root: Path, stub: embedding_stub.EmbeddingStub
) -> None:
    """Nothing is answered: keyword search is as fast as ever, hybrid gives up in time, health says since when; it recovers."""
    test_daemon.write_day(root, DAY, *TEXTS)
    env = asking(stub, query_timeout_seconds=0.3, timeout_seconds=60) | {"EVEROS_DAEMON__STALLED_AFTER_S": "0.5"}
    daemon.start(env=env)
    embedded(daemon, 3)
    stub.is_hanging = True
    test_daemon.write_day(root, "2026-03-03", "A violin concert in the park")
    conftest.wait_for(lambda: found(daemon, "violin", "keyword"), "the edit")
    conftest.wait_for(lambda: stub.n_under_way, "a request")
    stalled = conftest.wait_for(
        lambda: re.search(r"the vectors index is 1 changes? behind, and has not moved for \d+ s", degraded(daemon)),
        "the stall",
    )
    assert stalled
    began_s = time.monotonic()
    assert [FIRST] == [hit["id"] for hit in daemon.search("radiator", USER)]
    assert time.monotonic() - began_s < 0.1 * test_catching_up.patience()
    began_s = time.monotonic()
    answer = ask(daemon, "radiator", "hybrid")
    assert [FIRST] == [hit["id"] for hit in answer.json()["data"]["episodes"]]
    assert "answered by keyword" in answer.json()["degraded"][0]
    assert time.monotonic() - began_s < 1.0 * test_catching_up.patience()
    stub.is_hanging = False
    embedded(daemon, 4)
    conftest.wait_for(lambda: "degraded" not in daemon.health(), "a healthy daemon")
    assert [SECOND] == found(daemon, "invoice paid friday", "vector", top_k=1)


def test_M09_S10_an_outage_costs_the_vectors_alone(
    daemon: conftest.Daemon, root: Path, stub: embedding_stub.EmbeddingStub
) -> None:
    """503 from the provider, an edit: keyword and hybrid find it, hybrid says degraded, vector is 503; then it catches up."""
    path = test_daemon.write_day(root, DAY, *TEXTS)
    daemon.start(env=asking(stub))
    embedded(daemon, 3)
    assert [FIRST] == found(daemon, "cat on a radiator", "vector", top_k=1)
    assert "degraded" not in ask(daemon, "cat on a radiator", "hybrid").json()
    stub.status = 503
    measure.by_rename(
        path, path.read_bytes().replace(b"The cat sleeps on the radiator", b"A violin concert in the park")
    )
    conftest.wait_for(lambda: found(daemon, "violin", "keyword") == [FIRST], "the edit by keyword")
    answer = ask(daemon, "violin", "hybrid")
    assert (200, [FIRST]) == (answer.status_code, [hit["id"] for hit in answer.json()["data"]["episodes"]])
    assert "status 503" in answer.json()["degraded"][0]
    assert (503, "EXTERNAL_SERVICE_UNAVAILABLE") == refusal(ask(daemon, "violin", "vector"))
    conftest.wait_for(lambda: model(daemon)["owed"], "the edit to wait for its vectors")
    conftest.wait_for(lambda: "the vectors index is failing" in degraded(daemon), "health to name it")
    now = daemon.health()
    assert (False, 1) == (now["capabilities"]["embed"], now["embedding"]["owed"])
    assert "status 503" in now["embedding"]["error"]
    assert now["ready"]
    stub.status = 200
    embedded(daemon, 3)
    conftest.wait_for(lambda: ask(daemon, "violin", "vector").status_code == 200, "vectors of queries")
    assert [FIRST] == found(daemon, "violin concert", "vector", top_k=1)
    conftest.wait_for(lambda: "degraded" not in daemon.health(), "a healthy daemon")


def test_garbage_of_a_provider_is_never_a_vector(
    daemon: conftest.Daemon, root: Path, stub: embedding_stub.EmbeddingStub
) -> None:
    """Whatever the provider answers for a while: keywords are found, and afterwards each entry has its own vector."""
    daemon.start(env=asking(stub))
    for n, garbage in enumerate(GARBAGE, start=1):
        day = f"2026-03-{n + 1:02}"
        stub.garbage = garbage
        n_before = len(stub.asked)
        test_daemon.write_day(root, day, f"A violin concert in park {n}", f"Bees behind mill {n}")
        conftest.wait_for(lambda n=n: found(daemon, f"violin park {n}", "keyword", top_k=1), "the text by keyword")  # type: ignore[misc]
        conftest.wait_for(lambda n=n_before: len(stub.asked) > n, "a request")  # type: ignore[misc]
        assert 200 == ask(daemon, f"violin concert {garbage}", "hybrid").status_code
        stub.garbage = None
        # What was refused by itself waits for an hour, or until its text is another.
        test_daemon.write_day(root, day, f"A violin concert in parks {n}", f"Bees behind mills {n}")
        embedded(daemon, 2 * n)
    for n in range(1, len(GARBAGE) + 1):
        for place, query in enumerate((f"a violin concert in parks {n}", f"bees behind mills {n}"), start=1):
            conftest.wait_for(lambda q=query: ask(daemon, q, "vector").status_code == 200, "vectors of queries")  # type: ignore[misc]
            assert [f"{USER}_ep_202603{n + 1:02}_{place:08}"] == found(daemon, query, "vector", top_k=1)


def test_O12_a_provider_that_is_down_under_many_edits_fills_no_log(
    daemon: conftest.Daemon, root: Path, stub: embedding_stub.EmbeddingStub
) -> None:
    """A hundred edits and searches while nobody answers: a few lines, not one for each."""
    test_daemon.write_day(root, DAY, *TEXTS)
    stub.status = 503
    daemon.start(ready=False, env=asking(stub))
    conftest.wait_for(lambda: model(daemon)["error"], "the outage to be noticed")
    for n in range(100):
        test_daemon.write_day(root, DAY, f"Edit number {n} of the day, quedit{n}")
        if n % 10 == 0:
            conftest.wait_for(lambda word=f"quedit{n}": daemon.search(word, USER), "the edit")  # type: ignore[misc]
        ask(daemon, f"question {n}", "hybrid")
        ask(daemon, f"question {n}", "vector")
    lines = daemon.log().splitlines()
    assert len(lines) < 30, daemon.log()
    assert sum(map(len, lines)) < 20_000
    assert "Traceback" not in daemon.log()


def test_O03_a_stop_does_not_wait_for_requests_that_hang(
    daemon: conftest.Daemon, root: Path, stub: embedding_stub.EmbeddingStub
) -> None:
    """SIGTERM while texts and queries are at a provider that never answers: code 0 within the drain, the rest is taken up."""
    test_daemon.write_day(root, DAY, *TEXTS)
    daemon.start(env=asking(stub, timeout_seconds=600, query_timeout_seconds=600))
    embedded(daemon, 3)
    stub.is_hanging = True
    test_daemon.write_day(root, "2026-03-03", "A violin concert in the park")
    conftest.wait_for(lambda: stub.n_under_way, "a request")
    asker = threading.Thread(target=_ask_in_vain, args=(daemon,))
    asker.start()
    conftest.wait_for(lambda: stub.n_under_way == 2, "a query")
    began_s = time.monotonic()
    assert daemon.stop() == daemons.OK
    took_s = time.monotonic() - began_s
    asker.join()
    assert took_s < 10
    stub.is_hanging = False
    daemon.start(env=asking(stub))
    embedded(daemon, 4)


def _ask_in_vain(daemon: conftest.Daemon) -> None:
    with contextlib.suppress(httpx.TransportError):
        ask(daemon, "what hangs", "vector")


# -- what is asked of the provider, and what is not --------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_M13_one_word_in_a_file_of_twenty_thousand_entries_is_one_text_to_embed(
    daemon: conftest.Daemon, root: Path
) -> None:
    """One word changes in one file of 20,000 entries (4,000 but with `make long`): the provider is asked for exactly that entry."""
    n_entries = effort.rounds(20_000, 4_000)
    with embedding_stub.EmbeddingStub(dim=8) as stub:
        path = test_daemon.write_day(root, DAY, *(f"Note {n}: the ferry was late" for n in range(n_entries)))
        daemon.start(ready=False, env=asking(stub, batch_size=1000, max_concurrent=2, timeout_seconds=60))
        embedded(daemon, n_entries, timeout_s=90)
        n_paid = len(paid(stub))
        stub.forget()
        title = f"Note {n_entries * 5 // 8}"
        before, after = f"{title}: the ferry was late\n<!--", f"{title}: the ferry was qualate\n<!--"
        data = path.read_text()
        assert 1 == data.count(before)
        measure.by_rename(path, data.replace(before, after).encode())
        conftest.wait_for(lambda: daemon.search("qualate", USER), "the edit", 20)
        embedded(daemon, n_entries)
    assert (n_entries, [f"{title}: the ferry was late\n{title}: the ferry was qualate"]) == (n_paid, paid(stub))


def test_X13_O15_five_restarts_ask_the_provider_for_nothing(
    daemon: conftest.Daemon, root: Path, stub: embedding_stub.EmbeddingStub
) -> None:
    """Five restarts, a full comparison with the disk in each: not one request, and searches by vector answer at once."""
    test_daemon.write_day(root, DAY, *TEXTS)
    daemon.start(env=asking(stub))
    embedded(daemon, 3)
    daemon.stop()
    stub.forget()
    for _ in range(effort.rounds(5, 3)):
        daemon.start(env=asking(stub))
        daemon.http.post("/api/v1/admin/reconcile").raise_for_status()
        embedded(daemon, 3)
        daemon.stop()
    assert [] == stub.asked
    daemon.start(env=asking(stub))
    conftest.wait_for(lambda: ask(daemon, "paid invoice", "vector").status_code == 200, "vectors")
    assert [SECOND] == found(daemon, "paid invoice", "vector", top_k=1)
    assert ["paid invoice"] == stub.texts


@pytest.mark.timeout(60)
def test_E04_three_thousand_entries_in_one_file_for_a_provider_that_takes_eight(
    daemon: conftest.Daemon, root: Path, stub: embedding_stub.EmbeddingStub
) -> None:
    """The batch that is set is refused: the file is embedded in smaller ones, each text once, a long one in pieces."""
    stub.dim, stub.max_inputs, stub.max_chars = 256, 8, 2_000
    tail = "".join(chr(0x7000 + n) for n in range(150))
    long = "".join(chr(0x4E00 + n % 1500) for n in range(66_000)) + tail  # 200 KB in one line
    n_entries = effort.rounds(3_000, 1_500)
    test_daemon.write_day(root, DAY, *(f"Note {n}: the ferry was late" for n in range(1, n_entries)), long)
    daemon.start(ready=False, env=asking(stub, batch_size=100))
    embedded(daemon, n_entries, timeout_s=40)
    texts = paid(stub)
    assert len(texts) == len(set(texts))
    assert len(texts) > n_entries + 66_000 / 2_000
    assert [] == daemon.health()["problems"]
    assert [f"{USER}_ep_20260302_{n_entries:08}"] == found(daemon, tail, "vector", top_k=1)
    assert [f"{USER}_ep_20260302_00001234"] == found(daemon, "Note 1234: the ferry was late", "vector", top_k=1)


# -- settings ----------------------------------------------------------------------------------------------------------


def test_E01_E02_another_model_and_another_width_embed_anew_beside_keyword_search(
    daemon: conftest.Daemon, root: Path, stub: embedding_stub.EmbeddingStub
) -> None:
    """A, then B, then A in another width: keywords serve from the start, each model is named, the way back is free."""
    test_daemon.write_day(root, DAY, *TEXTS)
    n_paid = 0
    for name, dim, n_new in (("a", 64, 3), ("b", 64, 3), ("a", 96, 3), ("a", 64, 0)):
        daemon.start(ready=False, env=asking(stub, model=name, dim=dim))
        conftest.wait_for(lambda: daemon.health()["ready"], "ready")
        assert [FIRST] == found(daemon, "radiator", "keyword")
        now = embedded(daemon, 3, name)
        n_paid += n_new
        assert (dim, n_paid) == (now["embedding"]["dim"], len(paid(stub)))
        assert [THIRD] == found(daemon, "fog on a mountain", "vector", top_k=1)
        daemon.stop()


def test_E02_Z07_a_wrong_key_costs_vectors_alone_and_is_repeated_nowhere(
    daemon: conftest.Daemon, root: Path, stub: embedding_stub.EmbeddingStub
) -> None:
    """A provider that refuses the key and echoes it: the daemon starts, keywords serve, what it says names no key."""
    test_daemon.write_day(root, DAY, *TEXTS)
    stub.key = "sk-right"
    daemon.start(ready=False, env=asking(stub, api_key=KEY) | {"EVEROS_LOG__LEVEL": "debug"})
    reason = conftest.wait_for(lambda: model(daemon)["error"], "the refusal")
    assert "401" in reason
    assert [FIRST] == found(daemon, "radiator", "keyword")
    answers = [
        ask(daemon, "radiator", "hybrid"),
        ask(daemon, "radiator", "vector"),
        daemon.http.get("/health"),
        daemon.http.get("/api/v1/admin/status"),
        daemon.http.get("/metrics"),
    ]
    assert (503, "EXTERNAL_SERVICE_UNAVAILABLE") == refusal(answers[1])
    said = [answer.text for answer in answers]
    env = asking(stub, api_key=KEY)
    daemon.stop()
    for command in (["doctor"], ["search", "--method", "vector", "radiator"]):
        done = conftest.run(command[0], "--root", str(root), *command[1:], env=env)
        said.append(done.stdout + done.stderr)
    assert "401" in said[-1] + said[-2]
    files = [path for path in root.rglob("*") if path.is_file()]
    assert any(path.name == "vectors.db" for path in files)
    assert KEY in stub.asked[0].authorization
    hidden = KEY.encode()
    assert [] == [text for text in (*said, daemon.log()) if KEY in text or KEY[-12:] in text]
    assert [] == [path for path in files if hidden in path.read_bytes() or hidden[-12:] in path.read_bytes()]


def test_E06_a_width_that_the_provider_does_not_give_is_a_mistake_in_the_settings(
    daemon: conftest.Daemon, root: Path, stub: embedding_stub.EmbeddingStub
) -> None:
    """128 numbers are asked for and 64 come: vector search says both at once, hybrid goes by keyword, no crash."""
    test_daemon.write_day(root, DAY, *TEXTS)
    stub.ignores_dimensions = True
    daemon.start(ready=False, env=asking(stub, dim=128))
    conftest.wait_for(lambda: model(daemon).get("error"), "the mistake to be noticed")
    answer = ask(daemon, "radiator", "vector")
    assert (422, "PROVIDER_NOT_CONFIGURED") == refusal(answer), answer.text
    assert {"128", "64"} <= set(re.findall(r"\d+", answer.json()["error"]["message"]))
    assert [FIRST] == [hit["id"] for hit in ask(daemon, "radiator", "hybrid").json()["data"]["episodes"]]


def test_without_a_model_vector_search_is_refused_and_the_rest_is_whole(daemon: conftest.Daemon, root: Path) -> None:
    """`none` is a choice: nothing is degraded, only what was asked for in so many words is not there."""
    test_daemon.write_day(root, DAY, *TEXTS)
    daemon.start()
    assert (503, "CAPABILITY_UNAVAILABLE") == refusal(ask(daemon, "radiator", "vector"))
    assert [FIRST] == found(daemon, "radiator", "hybrid")
    assert "degraded" not in daemon.health()
    assert not (root / ".cache").exists()


def test_another_model_is_in_force_after_a_save(
    daemon: conftest.Daemon, root: Path, stub: embedding_stub.EmbeddingStub
) -> None:
    """A key that is mended, then another model: each takes effect without a restart."""
    test_daemon.write_day(root, DAY, *TEXTS)
    stub.key = "sk-right"
    save_settings(root, stub, api_key="sk-wrong")
    daemon.start(ready=False, env={"EVEROS_EMBEDDING__MODEL": None})
    conftest.wait_for(lambda: "401" in model(daemon)["error"], "the refusal")
    save_settings(root, stub, api_key="sk-right")
    embedded(daemon, 3, "a")
    assert [THIRD] == found(daemon, "fog on a mountain", "vector", top_k=1)
    save_settings(root, stub, api_key="sk-right", model="b")
    daemon.signal(signal.SIGHUP)
    embedded(daemon, 3, "b")
    assert [THIRD] == found(daemon, "fog on a mountain", "vector", top_k=1)
    assert 6 == len(paid(stub))
    assert "degraded" not in daemon.health()
    save_settings(root, stub, model="none")
    daemon.signal(signal.SIGHUP)
    conftest.wait_for(lambda: daemon.health()["embedding"] is None, "the model to be gone")
    assert (503, "CAPABILITY_UNAVAILABLE") == refusal(ask(daemon, "fog", "vector"))
    save_settings(root, stub, api_key="sk-right", model="a")
    daemon.signal(signal.SIGHUP)
    embedded(daemon, 3, "a")
    assert 6 == len(paid(stub))


def test_a_model_where_there_was_none_waits_for_a_restart_and_is_said_to(
    daemon: conftest.Daemon, root: Path, stub: embedding_stub.EmbeddingStub
) -> None:
    """A daemon that began without vectors has no index for them: health says what to do, and after it all is well."""
    test_daemon.write_day(root, DAY, *TEXTS)
    save_settings(root, stub, model="none")
    daemon.start(env={"EVEROS_EMBEDDING__MODEL": None})
    save_settings(root, stub)
    conftest.wait_for(lambda: "wait for a restart: embedding.model" in degraded(daemon), "health to say it")
    assert [FIRST] == found(daemon, "radiator", "keyword")
    daemon.stop()
    daemon.start(env={"EVEROS_EMBEDDING__MODEL": None})
    embedded(daemon, 3)
    assert "degraded" not in daemon.health()


# -- disks -------------------------------------------------------------------------------------------------------------


def test_X15_vectors_on_a_disk_that_refuses_for_a_while_come_by_themselves(
    daemon: conftest.Daemon, root: Path, stub: embedding_stub.EmbeddingStub
) -> None:
    """The folder of the vectors is read-only during edits: keywords go on, the lack is said, then nobody has to help."""
    test_daemon.write_day(root, DAY, *TEXTS)
    if os.geteuid() == 0:
        daemon.command = [sys.executable, "-c", UNPRIVILEGED, *conftest.command()]
    daemon.start(env=asking(stub))
    embedded(daemon, 3)
    folder = next((root / ".index" / "vectors").iterdir())
    daemon.stop()
    with _read_only(folder):
        test_daemon.write_day(root, "2026-03-03", "A violin concert in the park")
        daemon.start(ready=False, env=asking(stub))
        conftest.wait_for(lambda: found(daemon, "violin", "keyword"), "the edit by keyword")
        conftest.wait_for(lambda: "the vectors index is failing" in degraded(daemon), "health to name it")
        assert [f"{USER}_ep_20260303_00000001"] == found(daemon, "violin", "hybrid", top_k=1)
    embedded(daemon, 4)
    assert [f"{USER}_ep_20260303_00000001"] == found(daemon, "violin concert", "vector", top_k=1)
    assert 4 == len(paid(stub))
    assert [] == list((root / ".index" / "vectors").glob("*damaged*"))
    # Now under way: what SQLite holds open it may write, but not the files it has to make.
    stub.forget()
    with _read_only(root / ".cache"):
        test_daemon.write_day(root, "2026-03-04", "Bees behind the mill")
        embedded(daemon, 5)
    assert 1 == len(paid(stub))


@contextlib.contextmanager
def _read_only(folder: Path) -> Iterator[None]:
    paths = [folder, *folder.rglob("*")]
    for path in paths:
        path.chmod(0o500 if path.is_dir() else 0o400)
    try:
        yield
    finally:
        for path in paths:
            if path.exists():
                path.chmod(0o700 if path.is_dir() else 0o600)


def test_X05_vectors_and_cache_deleted_under_the_daemon_are_made_again(
    daemon: conftest.Daemon, root: Path, stub: embedding_stub.EmbeddingStub
) -> None:
    """`rm -r` of the one, later of the other, while it serves: an edit is found by vector, and only that was paid for."""
    test_daemon.write_day(root, DAY, *TEXTS)
    daemon.start(env=asking(stub))
    embedded(daemon, 3)
    for n, gone in enumerate((root / ".index" / "vectors", root / ".cache"), start=1):
        shutil.rmtree(gone)
        test_daemon.write_day(root, f"2026-04-0{n}", f"A violin concert in park {n}")
        conftest.wait_for(lambda n=n: found(daemon, f"violin {n}", "keyword"), "the edit by keyword")  # type: ignore[misc]
        embedded(daemon, 3 + n)
        assert [f"{USER}_ep_2026040{n}_00000001"] == found(daemon, f"violin concert park {n}", "vector", top_k=1)
        assert [SECOND] == found(daemon, "paid invoice friday", "vector", top_k=1)
        assert 3 + n == len(paid(stub))


# -- the built-in model, and the command line --------------------------------------------------------------------------


def test_the_built_in_model_finds_by_meaning_without_a_key_or_a_network(daemon: conftest.Daemon, root: Path) -> None:
    """A few entries and a question that shares no word with the one it means; a restart embeds nothing again."""
    test_daemon.write_day(root, DAY, *TEXTS)
    env: dict[str, str | None] = {"EVEROS_EMBEDDING__MODEL": "builtin"}
    daemon.start(env=env)
    now = embedded(daemon, 3, "builtin")
    assert 384 == now["embedding"]["dim"]
    assert [SECOND] == found(daemon, "money that is owed", "vector", top_k=1)
    assert [FIRST] == found(daemon, "Haustier, das ein Nickerchen macht", "hybrid", top_k=1)
    assert daemon.stop() == daemons.OK
    daemon.start(env=env)
    assert 0 == embedded(daemon, 3, "builtin")["embedding"]["requested"]


def test_search_by_meaning_from_a_terminal_with_a_daemon_and_without(
    daemon: conftest.Daemon, root: Path, stub: embedding_stub.EmbeddingStub
) -> None:
    """`everosd search --method … --explain` says the same on both roads, and asks for no text that is embedded already."""
    test_daemon.write_day(root, DAY, *TEXTS)
    env = asking(stub)
    daemon.start(env=env)
    embedded(daemon, 3)

    def says(method: str) -> str:
        done = conftest.run(
            "search", "--root", str(root), "--method", method, "--explain", "fog", "on", "a", "mountain", env=env
        )
        assert (0, "") == (done.returncode, done.stderr)
        return done.stdout

    with_daemon = [says("hybrid"), says("vector")]
    assert daemon.stop() == daemons.OK
    stub.forget()
    assert with_daemon[0] == says("hybrid")
    assert [] == paid(stub)
    assert all(THIRD in said.split("\n\n")[0] for said in with_daemon)
    assert all("meaning 0." in said for said in with_daemon)
    stub.stop()
    done = conftest.run("search", "--root", str(root), "--method", "hybrid", "fog", env=env)
    assert (0, True) == (done.returncode, THIRD in done.stdout)
    assert "answered by keyword" in done.stderr
    done = conftest.run("search", "--root", str(root), "--method", "vector", "fog", env=env)
    assert (True, "") == (done.returncode != 0, done.stdout)
    assert "cannot be reached" in done.stderr
    assert "Traceback" not in done.stderr


def test_doctor_asks_the_model(root: Path, stub: embedding_stub.EmbeddingStub) -> None:
    """It names the model that answers, the one that does not with what to do, and the one that is not wanted."""

    def says(env: conftest.Env) -> str:
        done = conftest.run("doctor", "--root", str(root), env=env)
        assert "Traceback" not in done.stderr
        return next(line for line in done.stdout.splitlines() if " model " in line)

    assert re.search(r"^ok .* a .*64 wide, answers in \d+ ms", says(asking(stub)))
    assert re.search(r"^ok .* builtin, 384 wide, answers in \d+ ms", says({"EVEROS_EMBEDDING__MODEL": "builtin"}))
    assert re.search(r"^note .* no embedding model is wanted", says({}))
    stub.stop()
    assert re.search(r"^WARN .* cannot be reached", says(asking(stub)))
