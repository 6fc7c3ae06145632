"""Messages through `memory/add` and `memory/flush`: how fast they are taken in, and what is found of them afterwards.

No model reads them: what is extracted is verbatim, and what is measured is everosd's own part. *Paced* is what twenty
programs ask that talk at their own speed; *flat out*, each asks again as soon as it is answered.

Of LoCoMo every session is a session and both speakers are users. What everosd extracted of it is searched beside the
prepared root of `bench.retrieval`, with the same questions, in the same run. The texts of both are mostly the same: their
vectors are made once.
"""

from __future__ import annotations

import datetime as dt
import json
import random
import shutil
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from bench import daemon, provider, retrieval, roots, text
from bench.table import Figure, quantile

N_SESSIONS = 20
PER_S = 50.0
"""Requests a second of all sessions together, paced."""
PACED_S = 24.0
FLUSH_EVERY = 10
"""Of a session's requests one in so many is a flush."""
N_FLAT_OUT = 100
"""Requests of each session."""
ADD_P95_MS, FLUSH_P95_MS = 10.0, 25.0
SPREAD = 10.0
"""p99 at most so many times p50."""

BATCH = 25
"""Messages of LoCoMo in one request."""
FOLLOWED_S = 3600.0
"""Facts of 370 Episodes are extracted, compared and embedded within, on one slow core."""
QUIET_S = 5.0
"""So long nothing changes any more."""

FIRST_MS = 1_700_000_000_000
"""Moment of the first message."""


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """A request that was answered."""

    is_flush: bool
    took_ms: float


# -- speed -------------------------------------------------------------------------------------------------------------


def speed(folder: Path) -> Iterator[Figure]:
    """Yield how long adding and flushing take, paced and flat out, while facts, clusters and vectors are made."""
    with provider.running() as model, daemon.running(folder / "intake-speed", model.settings) as served:
        client = served.client()
        daemon.wait_until(client.has_vectors, timeout_s=60, what="the model to be asked")
        _session(served, "warm", 20, lambda _: None)
        cpu = served.cpu_s()
        sent = _together(served, "paced", int(PACED_S * PER_S / N_SESSIONS), paced=True)
        yield from _paced(sent, (served.cpu_s() - cpu) / len(sent) * 1000)
        sent = _together(served, "flat", N_FLAT_OUT, paced=False)
        yield from _flat_out(sent)
        yield _kept(served.root, sent)


def _together(served: daemon.Daemon, name: str, n_each: int, *, paced: bool) -> list[Sent]:
    """Send the requests of all sessions side by side."""
    sent: list[Sent] = []
    failures: list[Exception] = []
    start_s = time.perf_counter() + 0.1

    def talk(number: int) -> None:
        def wait(at: int) -> None:
            if paced:
                due_s = start_s + (at * N_SESSIONS + number) / PER_S
                time.sleep(max(0.0, due_s - time.perf_counter()))

        try:
            sent.extend(_session(served, f"{name}{number}", n_each, wait))
        except (daemon.Failed, OSError) as error:
            failures.append(error)

    threads = [threading.Thread(target=talk, args=(number,), name=f"session{number}") for number in range(N_SESSIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return sent


def _session(served: daemon.Daemon, session: str, n_requests: int, wait: Callable[[int], None]) -> list[Sent]:
    """Send the requests of one session one after the other, the last one a flush; raises where one is not taken."""
    client = served.client()
    sent: list[Sent] = []
    for at in range(n_requests):
        is_flush = (at + 1) % FLUSH_EVERY == 0 or at == n_requests - 1
        body: dict[str, object] = {"session_id": session}
        if not is_flush:
            body["messages"] = _exchange(session, at)
        wait(at)
        started = time.perf_counter()
        client.request("POST", f"/api/v1/memory/{'flush' if is_flush else 'add'}", body)
        sent.append(Sent(is_flush=is_flush, took_ms=(time.perf_counter() - started) * 1000))
    client.close()
    return sent


def _exchange(session: str, at: int) -> list[dict[str, object]]:
    """Return what a person and an assistant say, each with a word of its own."""
    said = []
    for number, role in enumerate(("user", "assistant")):
        word = _word(session, at, number)
        said.append(
            {
                "sender_id": f"user-{session}" if role == "user" else "assistant",
                "role": role,
                "timestamp": FIRST_MS + at * 20_000 + number * 5_000,
                "content": f"{text.sentence(random.Random(word))} That was yesterday, by the way: {word} is the word.",
            }
        )
    return said


def _word(session: str, at: int, number: int) -> str:
    return f"w{session}x{at}x{number}w"


def _paced(sent: Sequence[Sent], cpu_ms: float) -> Iterator[Figure]:
    for name, is_flush, budget in (("add", False, ADD_P95_MS), ("flush", True, FLUSH_P95_MS)):
        took = [one.took_ms for one in sent if one.is_flush is is_flush]
        yield Figure(
            name=f"memory/{name}, {N_SESSIONS} sessions, {PER_S:.0f} requests a second: p95",
            size=f"{len(took):,}",
            value=quantile(took, 0.95),
            unit="ms",
            budget=budget,
            note=f"p50 {quantile(took, 0.5):.1f} ms, p99 {quantile(took, 0.99):.1f} ms, {cpu_ms:.1f} ms of CPU a request, "
            "what follows of it included",
        )


def _flat_out(sent: Sequence[Sent]) -> Iterator[Figure]:
    for name, is_flush in (("add", False), ("flush", True)):
        took = [one.took_ms for one in sent if one.is_flush is is_flush]
        p50, p99 = quantile(took, 0.5), quantile(took, 0.99)
        yield Figure(
            name=f"memory/{name}, {N_SESSIONS} sessions flat out: p99 in p50s",
            size=f"{len(took):,}",
            value=p99 / p50,
            unit="times",
            budget=SPREAD,
            note=f"p50 {p50:.1f} ms, p99 {p99:.1f} ms",
        )


def _kept(root: Path, sent: Sequence[Sent]) -> Figure:
    """Say how many of the messages that were taken flat out are not in the log."""
    wanted = {
        _word(f"flat{session}", at, number)
        for session in range(N_SESSIONS)
        for at in range(N_FLAT_OUT)
        if (at + 1) % FLUSH_EVERY and at != N_FLAT_OUT - 1
        for number in range(2)
    }
    logs = (path.read_text(encoding="utf-8") for path in root.glob("*/*/sessions/*/messages-*.md"))
    kept = {word for log in logs for word in log.split() if word.startswith("wflat")}
    return Figure(
        name="messages that were taken flat out and are not in the log",
        size=f"{len(sent):,} requests",
        value=len(wanted - kept),
        unit="messages",
        budget=0,
    )


# -- quality -----------------------------------------------------------------------------------------------------------


class Talk(msgspec.Struct, frozen=True, kw_only=True):
    """A LoCoMo session as it is sent."""

    session: str
    messages: tuple[dict[str, object], ...]


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A LoCoMo question and the sessions with its evidence."""

    user: str
    question: str
    sessions: tuple[str, ...]


def quality(folder: Path, source: Path) -> Iterator[Figure]:
    """Yield what is found by both of what was extracted, and of the prepared root."""
    talks, questions = conversations(source)
    extracted, prepared = folder / "extracted", folder / "prepared"
    with daemon.running(extracted, daemon.BUILTIN) as served:
        client = served.client()
        started = time.perf_counter()
        for talk in talks:
            _tell(client, talk)
        took_s = time.perf_counter() - started
        yield Figure(name="LoCoMo taken in and extracted", size=f"{len(talks):,} sessions", value=took_s, unit="s")
        followed_s = _settled(client)
        yield Figure(name="LoCoMo: facts and vectors after that", value=followed_s, unit="s")
        found = [_ask(client, question) for question in questions]
    made = roots.write_locomo(prepared, source)
    shutil.copytree(extracted / retrieval.CACHE, prepared / retrieval.CACHE, dirs_exist_ok=True)
    with daemon.running(prepared, daemon.BUILTIN) as served:
        client = served.client()
        n_entries = len(made.sessions) + len(made.turns)
        daemon.wait_until(
            lambda: client.is_ready() and client.has_vectors() and client.status()["entries"] == n_entries,
            timeout_s=retrieval.EMBEDDING_S,
            what="the vectors of the prepared root",
            pause_s=0.5,
        )
        floor = [retrieval._ask(client, question, "hybrid") for question in made.questions]  # noqa: SLF001
    yield from _compared(found, floor)


def conversations(source: Path) -> tuple[list[Talk], list[Asked]]:
    """Return LoCoMo's sessions as two users' messages, and its questions, each asked of the first of the two."""
    talks: list[Talk] = []
    questions: list[Asked] = []
    for conversation in json.loads(source.read_text(encoding="utf-8")):
        name, said = conversation["sample_id"], conversation["conversation"]
        where: dict[str, str] = {}
        for number in sorted(int(key.split("_")[1]) for key, value in said.items() if isinstance(value, list)):
            session = f"{name}_{number}"
            turns = msgspec.convert(said[f"session_{number}"], list[dict[str, object]])
            moment = roots._moment(str(said[f"session_{number}_date_time"]))  # noqa: SLF001
            talks.append(Talk(session=session, messages=tuple(_messages(name, turns, moment))))
            where |= {str(turn["dia_id"]): session for turn in turns}
        user = _user(name, said["speaker_a"])
        for item in conversation["qa"]:
            sessions = [where[dia] for dia in msgspec.convert(item.get("evidence", []), list[str]) if dia in where]
            if item["category"] != 5 and sessions:  # those of 5 have no answer
                question = str(item["question"])
                questions.append(Asked(user=user, question=question, sessions=tuple(dict.fromkeys(sessions))))
    return talks, questions


def _user(conversation: str, speaker: object) -> str:
    return f"{conversation}_{str(speaker).lower()}"


def _messages(name: str, turns: Sequence[dict[str, object]], moment: dt.datetime) -> Iterator[dict[str, object]]:
    for number, turn in enumerate(turns):
        yield {
            "sender_id": _user(name, turn["speaker"]),
            "sender_name": turn["speaker"],
            "role": "user",
            "timestamp": int(moment.timestamp() * 1000) + number * 1000,
            "content": f"{turn['text']}{roots._picture(turn)}",  # noqa: SLF001
        }


def _tell(client: daemon.Client, talk: Talk) -> None:
    for at in range(0, len(talk.messages), BATCH):
        body = {"session_id": talk.session, "messages": talk.messages[at : at + BATCH]}
        client.request("POST", "/api/v1/memory/add", body)
    answer = client.request("POST", "/api/v1/memory/flush", {"session_id": talk.session})
    status = msgspec.convert(answer["data"], dict[str, object])["status"]
    if status != "extracted":
        msg = f"flush of {talk.session}: {status}"
        raise daemon.Failed(msg)


def _settled(client: daemon.Client) -> float:
    """Wait until nothing is added any more and everything has its vectors."""
    started = time.perf_counter()
    quiet_since, before = started, -1
    while time.perf_counter() - quiet_since < QUIET_S:
        if time.perf_counter() - started > FOLLOWED_S:
            msg = f"LoCoMo was not followed up within {FOLLOWED_S:.0f} s"
            raise daemon.Failed(msg)
        lsn = msgspec.convert(client.status()["lsn"], int)
        if lsn != before or _n_runs(client) or not (client.is_ready() and client.has_vectors()):
            quiet_since, before = time.perf_counter(), lsn
        time.sleep(0.5)
    return quiet_since - started


def _n_runs(client: daemon.Client) -> int:
    """Return how many runs of strategies wait or are under way."""
    answer = msgspec.convert(client.request("GET", "/api/v1/ome/strategies")["data"], dict[str, object])
    items = msgspec.convert(answer["items"], list[dict[str, object]])
    return sum(msgspec.convert(item[name], int) for item in items for name in ("waiting", "running"))


def _ask(client: daemon.Client, asked: Asked) -> retrieval.Asked:
    started = time.perf_counter()
    answer = client.answer(asked.user, asked.question, top_k=retrieval.TOP_K, method="hybrid")
    took_ms = (time.perf_counter() - started) * 1000
    if answer.get("degraded"):
        msg = f"hybrid search: {answer['degraded']}"
        raise daemon.Failed(msg)
    data = msgspec.convert(answer["data"], dict[str, object])
    hits = [str(hit["session_id"]) for hit in msgspec.convert(data["episodes"], list[dict[str, object]])]
    places = {session: place for place, session in reversed(list(enumerate(dict.fromkeys(hits))))}
    ranks = tuple(places.get(session, retrieval.TOP_K) for session in asked.sessions)
    return retrieval.Asked(user=asked.user, ranks=ranks, took_ms=took_ms)


def _compared(found: Sequence[retrieval.Asked], floor: Sequence[retrieval.Asked]) -> Iterator[Figure]:
    """Yield what is found of both; the floor is the prepared root, to one question: near ties turn between two runs."""
    size = f"{len(found):,}"
    question = 100 / len(found)
    for k in retrieval.PLACES:
        least = 100 * retrieval.recall(floor, k)
        won, lost, error = _told_apart(found, floor, k)
        yield Figure(
            name=f"LoCoMo through memory/add, verbatim, hybrid: recall@{k}",
            size=size,
            value=100 * retrieval.recall(found, k),
            unit="%",
            budget=least - question,
            is_floor=True,
            note=f"the prepared root in the same run: {least:.2f} %, less one question ({question:.2f}); {won} questions better, {lost} worse, standard error of the "
            f"difference {100 * error:.2f}; hit@{k} {100 * retrieval.hit(found, k):.1f} %",
        )
    yield Figure(
        name="LoCoMo through memory/add, verbatim, hybrid: MRR",
        size=size,
        value=100 * retrieval.mrr(found),
        unit="%",
        note=f"the prepared root in the same run: {100 * retrieval.mrr(floor):.1f} %",
    )


def _told_apart(found: Sequence[retrieval.Asked], floor: Sequence[retrieval.Asked], k: int) -> tuple[int, int, float]:
    """Return how many questions one of them answers better, how many the other, and the error of their mean difference."""
    gains = [retrieval.recall([one], k) - retrieval.recall([other], k) for one, other in zip(found, floor, strict=True)]
    error = statistics.stdev(gains) / len(gains) ** 0.5
    return sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains), error
