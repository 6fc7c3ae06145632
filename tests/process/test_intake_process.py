"""Messages through the installed daemon: many clients at once, kill -9 at any moment, a stop in the middle."""

from __future__ import annotations

import concurrent.futures
import contextlib
import random
import re
import threading
from pathlib import Path

import httpx
import pytest

from tests import effort
from tests.process import conftest
from tests.process.talking import add, episodes, flush, said

N_KILLS = effort.rounds(20, 5)
"""Rounds of kill -9 in the middle of a flush."""
QUICK = {"EVEROS_BOUNDARY_DETECTION__IDLE_MINUTES": "0.02"}
"""A session that nobody adds to is extracted after about a second."""


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_M14_a_flush_that_is_killed_is_finished_by_the_next_start(daemon: conftest.Daemon) -> None:
    """Kill -9 at random moments of a flush: every session is extracted, once, without being asked."""
    chance = random.Random(14)  # noqa: S311  # moments, no secrets
    sessions = [f"s{nth}" for nth in range(N_KILLS)]
    for nth, session in enumerate(sessions):
        http = daemon.start(env=QUICK, ready=False)
        add(http, session, said(f"Round {nth} begins.", nth), said(f"Round {nth} ends.", nth + 100))

        def flushing(session: str = session, http: httpx.Client = http) -> None:
            with contextlib.suppress(httpx.TransportError):
                flush(http, session)

        asked = threading.Thread(target=flushing)
        asked.start()
        threading.Event().wait(chance.uniform(0, 0.04))
        daemon.kill()
        asked.join()
    http = daemon.start(env=QUICK)
    found = conftest.wait_for(
        lambda: found if len(found := episodes(http)) >= N_KILLS else None, "an Episode of every session", 30
    )
    daemon.wait_settled()
    assert sorted(sessions) == sorted(one["session_id"] for one in found)
    for nth in range(N_KILLS):
        (one,) = (one for one in found if one["session_id"] == f"s{nth}")
        assert f"Round {nth} begins." in one["episode"]
        assert f"Round {nth} ends." in one["episode"]


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_C01_twenty_clients_of_one_user_at_once(daemon: conftest.Daemon) -> None:
    """20 parallel add and flush for one user and day, over and over: all Episodes are there, whole, in file and search."""
    http = daemon.start()
    n_clients, n_rounds = 20, effort.rounds(50, 3)

    def work(client: int) -> None:
        for nth in range(n_rounds):
            session = f"s{client}"
            add(http, session, said(f"Client{client} says round{nth} of it.", client * 100 + nth))
            answer = flush(http, session)
            assert "extracted" == answer.json()["data"]["status"]

    with concurrent.futures.ThreadPoolExecutor(n_clients) as pool:
        list(pool.map(work, range(n_clients)))
    wanted = {f"Client{client} says round{nth} of it." for client in range(n_clients) for nth in range(n_rounds)}
    found = conftest.wait_for(
        lambda: all_ if len(all_ := episodes(http)) >= n_clients * n_rounds else None, "all Episodes", 30
    )
    assert n_clients * n_rounds == len(found)
    assert wanted == {re.search(r"Client\d+ says round\d+ of it\.", one["episode"])[0] for one in found}  # type: ignore[index]
    (path,) = (daemon.root / "default_app/default_project/users/mara/episodes").glob("*.md")
    assert wanted == set(re.findall(r"Client\d+ says round\d+ of it\.", path.read_text()))


@pytest.mark.timeout(60)
def test_C03_a_command_and_a_client_write_at_once(daemon: conftest.Daemon, tmp_path: Path) -> None:
    """50 messages by `everosd add` while a client sends 50: all are kept, and found."""
    http = daemon.start()
    file = tmp_path / "talk.txt"
    file.write_text("".join(f"mara: Command says number {nth}.\n" for nth in range(50)))
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        typed = pool.submit(conftest.run, "add", str(file), "--root", str(daemon.root))
        for nth in range(50):
            add(http, "mine", said(f"Client says number {nth}.", nth))
        flush(http, "mine")
        assert 0 == typed.result().returncode, typed.result().stderr
    conftest.wait_for(lambda: len(episodes(http)) >= 2, "both Episodes", 20)
    text = "\n".join(one["episode"] for one in episodes(http))
    assert [] == [nth for nth in range(50) if f"Command says number {nth}." not in text]
    assert [] == [nth for nth in range(50) if f"Client says number {nth}." not in text]


def test_what_waits_survives_a_stop_and_the_index(daemon: conftest.Daemon) -> None:
    """Stop, delete .index/, start: the message is shown as unprocessed, and a flush extracts it."""
    import shutil

    http = daemon.start()
    add(http, "s", said("I moved to Porto."))
    assert 0 == daemon.stop()
    shutil.rmtree(daemon.root / ".index")
    http = daemon.start()
    body = {"user_id": "mara", "query": "x", "method": "keyword", "filters": {"session_id": "s"}}
    (waiting,) = http.post("/api/v1/memory/search", json=body).json()["data"]["unprocessed_messages"]
    assert "I moved to Porto." == waiting["content"]
    assert "extracted" == flush(http, "s").json()["data"]["status"]
    (one,) = conftest.wait_for(lambda: episodes(http), "the Episode", 20)
    entry = http.get(f"/api/v1/entries/{one['id']}").json()["data"]
    assert ["I moved to Porto."] == [message["content"] for message in entry["messages"]]


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_answers_are_the_same_after_the_index_is_deleted(daemon: conftest.Daemon) -> None:
    """Episodes, facts, their order and lineage come from the Markdown alone: the same questions are answered the same."""
    import shutil

    http = daemon.start()
    for nth, text in enumerate(
        ("I adopted a dog called Toby.", "I moved to Porto.", "I no longer live in Porto, I moved to Braga.")
    ):
        add(http, f"s{nth}", said(text, nth * 60), said(f"Noted, number {nth}.", nth * 60 + 1, "bot", "assistant"))
        assert "extracted" == flush(http, f"s{nth}").json()["data"]["status"]
    followed = conftest.wait_for(lambda: _n_followed(daemon.root) == 3, "everything to be followed up", 20)
    assert followed
    daemon.wait_settled()
    before = _answers(http)
    assert 0 == daemon.stop()
    shutil.rmtree(daemon.root / ".index")
    http = daemon.start()
    assert before == _answers(http)
    assert 0 == conftest.run("verify", "--root", str(daemon.root)).returncode


def _n_followed(root: Path) -> int:
    return sum(path.read_text().count("**state**: followed") for path in root.rglob("messages-*.md"))


def _answers(http: httpx.Client) -> list[object]:
    """Return what is found for some questions, in which order, and where each Episode comes from."""
    found: list[object] = []
    for query in ("Where do I live?", "Porto", "Toby the dog", "Braga"):
        body = {"user_id": "mara", "query": query, "method": "hybrid"}
        data = http.post("/api/v1/memory/search", json=body).json()["data"]
        for one in (*data["episodes"], *(fact for each in data["episodes"] for fact in each["atomic_facts"])):
            del one["score"]  # how rare a word is counts versions of an entry that are gone and not yet merged away
        found.append(data)
    for one in episodes(http):
        entry = http.get(f"/api/v1/entries/{one['id']}").json()["data"]
        assert entry["messages"], "an Episode without its messages"
        found.append((one["id"], entry["messages"], entry["facts"]))
    return found


@pytest.mark.slow
def test_requests_during_a_stop_are_answered_and_nothing_of_them_is_lost(daemon: conftest.Daemon) -> None:
    """SIGTERM while clients add and flush: answers have the envelope, what was taken is there after the next start."""
    http = daemon.start(env=QUICK)
    taken: list[str] = []
    odd: list[str] = []
    asked_to_stop = threading.Event()

    def work(client: int) -> None:
        for nth in range(200):
            session = f"s{client}-{nth}"
            body = {"session_id": session, "messages": [said(f"I am in {session}.", nth)]}
            try:
                answer = http.post("/api/v1/memory/add", json=body)
                if answer.status_code == 200:
                    taken.append(session)
                answers = [answer, flush(http, session)]
            except httpx.TransportError:
                return
            odd.extend(
                each.text for each in answers if each.status_code not in (200, 503) or "request_id" not in each.text
            )
            if len(taken) > 20:
                asked_to_stop.set()

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        working = [pool.submit(work, client) for client in range(4)]
        asked_to_stop.wait(20)
        assert 0 == daemon.stop()
        for one in working:
            one.result()
    assert [] == odd
    http = daemon.start(env=QUICK)
    found = conftest.wait_for(
        lambda: ids if set(taken) <= set(ids := [one["session_id"] for one in episodes(http)]) else None,
        "all of it",
        30,
    )
    assert len(set(found)) == len(found)
