"""Questions to a root that was made, and how long the answers take: with one client, and with several at once."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence

import msgspec

from bench import daemon, roots, text

Question = tuple[str, str]
"""A user and what they ask."""

BACKLOG = "vectors are being made"
"""What an answer says while entries wait for their vectors; where that is so, it was meant."""
METHODS = ("keyword", "vector", "hybrid")


def questions(made: roots.Made, count: int, *, seed: int = 3) -> list[Question]:
    """Return questions, each another one: half of three words, half of one rare word."""
    dice = random.Random(seed)
    pairs = []
    for number in range(count):
        item = dice.choice(made.items)
        query = item.word if number % 2 else " ".join(dice.sample(text.sentence(dice).strip(".").split(), 3))
        pairs.append((item.user, query))
    return pairs


def latencies(served: daemon.Daemon, pairs: Sequence[Question], method: str = "keyword") -> list[float]:
    """Return the seconds of each answer, one client asking one question after the other.

    Raises:
        daemon.Failed: an answer was less than what was asked for.
    """
    client = served.client()
    samples = []
    for user, query in pairs:
        started = time.perf_counter()
        answer = client.answer(user, query, method=method)
        samples.append(time.perf_counter() - started)
        _check(answer, method)
    client.close()
    return samples


def in_turns(served: daemon.Daemon, pairs: Sequence[Question]) -> dict[str, list[float]]:
    """Return the seconds of each answer by method, every question asked by each: what disturbs one disturbs all."""
    client = served.client()
    samples: dict[str, list[float]] = {method: [] for method in METHODS}
    for user, query in pairs:
        for method, taken in samples.items():
            started = time.perf_counter()
            answer = client.answer(user, query, method=method)
            taken.append(time.perf_counter() - started)
            _check(answer, method)
    client.close()
    return samples


def at_once(
    served: daemon.Daemon, pairs: Sequence[Question], method: str = "keyword", *, n_clients: int = 8
) -> tuple[list[float], float]:
    """Return the seconds of each answer with several clients, and answers a second. The clients share the cores."""
    samples: list[float] = []
    failures: list[Exception] = []

    def ask(part: Sequence[Question]) -> None:
        try:
            samples.extend(latencies(served, part, method))
        except (daemon.Failed, OSError) as error:
            failures.append(error)

    threads = [
        threading.Thread(target=ask, args=(pairs[number::n_clients],), name=f"client{number}")
        for number in range(n_clients)
    ]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return samples, len(samples) / (time.perf_counter() - started)


def _check(answer: dict[str, object], method: str) -> None:
    reasons = [one for one in msgspec.convert(answer.get("degraded", ()), list[str]) if not one.startswith(BACKLOG)]
    if reasons:
        msg = f"a {method} search was answered with less: {reasons}"
        raise daemon.Failed(msg)
