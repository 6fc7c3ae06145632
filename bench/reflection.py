"""What search finds of LoCoMo before its sessions are consolidated without a model, and after, through the daemon's HTTP.

An Episode is a session, its facts are its turns, a conversation is one user: the prepared root of `bench.retrieval`. Clusters
are the daemon's; a conversation goes on for months, and so may a cluster. The evidence of a question is found where the
live Episode is its session or the narrative that stands for it.

Fewer Episodes are easier to find: with seven of them recall@10 is 100 % whatever is asked. So *by chance* stands beside
each figure, what any order finds in the mean (k of n live Episodes), and both are compared at equal length: the answer is read from the
top until so many characters are read, its matching facts or its full texts, and counted are the statements that are a
question's evidence. A narrative leaves out what was said before: a repetition that is the evidence counts as missing. The
day behind a narrative's fact is not counted as read, since that of a session's stands once beside all of them; with it, and
best facts first whoever has them, the same stands in the note, beside the questions of which more and of which less was
found, and the standard error of the difference. Missed is what is less than before by more than one question, which is what
two runs differ by: near ties fall one way or the other. Of full texts nothing is promised, for whoever reads a narrative
from its beginning reads much that has nothing to do with the question; nor of recall, which tells whole texts where they fit.

A part of the conversations is measured where `EVEROSD_LOCOMO` names a file that holds only them.
"""

from __future__ import annotations

import functools
import math
import re
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from bench import daemon, retrieval, roots
from bench.table import Figure, quantile

SETTINGS = {
    **daemon.BUILTIN,
    "EVEROS_CLUSTERING__TIME_WINDOW_DAYS": "400",
    "EVEROS_REFLECTION__MERGE": "extractive",
}
METHODS = ("hybrid", "keyword")
STRATEGY = "reflect_episodes"
RUN_S = 1_800.0
MAX_RUNS = 100
LIVE_SHARE = 50.0
"""Live Episodes afterwards, of a hundred before, at most."""
FACT_CHARS = (500, 1_500, 4_000)
TEXT_CHARS = (3_000, 12_000, 30_000)
"""A session, a narrative, all that a model of small context takes."""
RECALL_TOKENS = (500, 1_500, 4_000)
_QUOTED = "> "

_DAY = re.compile(r" \(\d{4}-\d\d-\d\d\)$")
_WORD = re.compile(r"[^\W_]+")
_MIN_WORDS = 3
_PAGE = 100


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """What one user has."""

    live: frozenset[str]
    """Public ids of live Episodes."""
    successors: dict[str, str]
    """What stands for an Episode that was replaced."""

    def stands_for(self, one: str) -> str:
        """Return the live Episode that an Episode has become."""
        while one not in self.live:
            one = self.successors[one]
        return one


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A question, where its evidence was found, and how much of it is read."""

    found: retrieval.Asked
    n_live: int
    """Live Episodes of that user."""
    facts: tuple[float, ...]
    """Share of the evidence that is read in so many characters of matching facts, Episode by Episode."""
    dated_facts: tuple[float, ...]
    """The same, days counted."""
    best_facts: tuple[float, ...]
    """The same as the first, the best facts of all Episodes first."""
    texts: tuple[float, ...]
    """The same of full texts."""
    recalled: tuple[float, ...]
    """Share of the evidence that is told in a block of so many tokens, as an agent gets it; the method makes no difference."""
    first_chars: int
    """Length of the first text."""


def measure(folder: Path, source: Path) -> Iterator[Figure]:
    """Yield what is found before and after, and what there is less of."""
    root = folder / "reflection"
    made = roots.write_locomo(root, source)
    turns = {(turn.user, turn.entry_id): _words(turn.text) for turn in made.turns}
    users = list(dict.fromkeys(one.user for one in made.sessions))
    with daemon.running(root, SETTINGS) as served:
        client = daemon.Client(served.port, timeout_s=RUN_S + 60)
        n_entries = len(made.sessions) + len(made.turns)
        _until(client, lambda: client.status()["entries"] == n_entries)
        done = subprocess.run([daemon.installed(), "extract", "--root", root], capture_output=True, check=False)
        if done.returncode != 0:
            msg = f"everosd extract ended with {done.returncode}: {done.stderr[-500:]!r}"
            raise daemon.Failed(msg)
        _until(client)
        before = _asked(client, users, made.questions, turns)
        n_before = _n_live(client, users)
        n_texts = _n_embedded(client)
        took_s = _reflect(client)
        yield Figure(
            name="reflection of LoCoMo, extractive", size=f"{len(made.sessions):,} sessions", value=took_s, unit="s"
        )
        started = time.perf_counter()
        _until(client)
        followed_s = time.perf_counter() - started
        note = f"{_n_embedded(client) - n_texts:,} texts embedded, {n_texts:,} before reflection"
        yield Figure(name="reflection of LoCoMo: vectors after that", value=followed_s, unit="s", note=note)
        n_after = _n_live(client, users)
        yield Figure(
            name="LoCoMo: live Episodes after reflection, of those before",
            size=f"{n_before:,}",
            value=100 * n_after / n_before,
            unit="%",
            budget=LIVE_SHARE,
            note=f"{n_after:,} live",
        )
        after = _asked(client, users, made.questions, turns)
    for method in METHODS:
        yield from _compared(method, before[method], after[method])


def _until(client: daemon.Client, is_true: Callable[[], bool] = lambda: True) -> None:
    daemon.wait_until(
        lambda: client.is_ready() and client.has_vectors() and is_true(),
        timeout_s=retrieval.EMBEDDING_S,
        what="LoCoMo's vectors",
        pause_s=0.5,
    )


# -- reflection --------------------------------------------------------------------------------------------------------


def _reflect(client: daemon.Client) -> float:
    """Run it until there is nothing to be merged and return the seconds that took."""
    started = time.perf_counter()
    for _ in range(MAX_RUNS):
        body = {"name": STRATEGY, "timeout": RUN_S, "force": True}
        answer = client.request("POST", "/api/v1/ome/trigger", body)
        runs = msgspec.convert(answer["runs"], list[dict[str, object]])
        results = [str(run["result"]) for run in runs]
        if answer["status"] != "ok" or len(results) != 1 or "failed" in results[0] or "skipped" in results[0]:
            msg = f"reflection: {answer}"
            raise daemon.Failed(msg)
        if results[0].startswith("nothing to consolidate"):
            return time.perf_counter() - started
    msg = f"reflection has something to merge after {MAX_RUNS} runs"
    raise daemon.Failed(msg)


def _memory(client: daemon.Client, user: str) -> Memory:
    live: set[str] = set()
    successors: dict[str, str] = {}
    page = 0
    while True:
        page += 1
        body = {"user_id": user, "memory_type": "episode", "page": page, "page_size": _PAGE}
        body["include_status"] = ["active", "deprecated"]
        answer = msgspec.convert(client.request("POST", "/api/v1/memory/get", body)["data"], dict[str, object])
        for item in msgspec.convert(answer["episodes"], list[dict[str, object]]):
            if item["status"] == "active":
                live.add(str(item["id"]))
            else:
                successors[str(item["id"])] = str(item["deprecated_by"])
        if page * _PAGE >= msgspec.convert(answer["total_count"], int):
            return Memory(live=frozenset(live), successors=successors)


def _n_live(client: daemon.Client, users: Iterable[str]) -> int:
    return sum(len(_memory(client, user).live) for user in users)


def _n_embedded(client: daemon.Client) -> int:
    model = client.embedding()
    return 0 if model is None else model.requested


# -- questions ---------------------------------------------------------------------------------------------------------

Turns = dict[tuple[str, str], tuple[str, ...]]
"""Words of each turn, by user and id of its fact."""


def _asked(
    client: daemon.Client, users: Iterable[str], questions: Sequence[roots.Question], turns: Turns
) -> dict[str, list[Asked]]:
    memories = {user: _memory(client, user) for user in users}
    recalled = [_recalled(client, one, turns) for one in questions]
    return {
        method: [
            _ask(client, memories[one.user], one, turns, method, told)
            for one, told in zip(questions, recalled, strict=True)
        ]
        for method in METHODS
    }


def _recalled(client: daemon.Client, question: roots.Question, turns: Turns) -> tuple[float, ...]:
    evidence = [turns[question.user, one] for one in question.facts]
    found = []
    for n_tokens in RECALL_TOKENS:
        body = {"user_id": question.user, "query": question.question, "max_tokens": n_tokens}
        data = msgspec.convert(client.request("POST", "/api/v1/memory/recall", body)["data"], dict[str, object])
        lines = str(data["text"]).splitlines()
        told = [line.removeprefix(_QUOTED) for line in lines if line.startswith(_QUOTED)]
        found.append(_read(told, evidence, n_chars=sum(len(one) + 1 for one in told)))
    return tuple(found)


def _ask(
    client: daemon.Client,
    memory: Memory,
    question: roots.Question,
    turns: Turns,
    method: str,
    recalled: tuple[float, ...],
) -> Asked:
    started = time.perf_counter()
    answer = client.answer(question.user, question.question, top_k=retrieval.TOP_K, method=method)
    took_ms = (time.perf_counter() - started) * 1000
    if answer.get("degraded"):
        msg = f"{method} search: {answer['degraded']}"
        raise daemon.Failed(msg)
    data = msgspec.convert(answer["data"], dict[str, object])
    hits = msgspec.convert(data["episodes"], list[dict[str, object]])
    places = {str(hit["id"]): place for place, hit in enumerate(hits)}
    wanted = [memory.stands_for(f"{question.user}_{entry_id}") for entry_id in question.episodes]
    evidence = [turns[question.user, one] for one in question.facts]
    nested = [fact for hit in hits for fact in msgspec.convert(hit["atomic_facts"], list[dict[str, object]])]
    dated = [str(fact["content"]) for fact in nested]
    nested.sort(key=lambda fact: -msgspec.convert(fact["score"], float))
    facts, best = [_undated(each) for each in dated], [_undated(str(fact["content"])) for fact in nested]
    lines = [line for hit in hits for line in str(hit["episode"]).splitlines()]
    return Asked(
        found=retrieval.Asked(
            user=question.user,
            ranks=tuple(places.get(one, retrieval.TOP_K) for one in wanted),
            took_ms=took_ms,
        ),
        n_live=len(memory.live),
        facts=tuple(_read(facts, evidence, n_chars) for n_chars in FACT_CHARS),
        dated_facts=tuple(_read(dated, evidence, n_chars) for n_chars in FACT_CHARS),
        best_facts=tuple(_read(best, evidence, n_chars) for n_chars in FACT_CHARS),
        texts=tuple(_read(lines, evidence, n_chars) for n_chars in TEXT_CHARS),
        recalled=recalled,
        first_chars=len(str(hits[0]["episode"])) if hits else 0,
    )


def _read(said: Iterable[str], evidence: Sequence[tuple[str, ...]], n_chars: int) -> float:
    """Return the share of the evidence that is in the first `n_chars` characters of what is said."""
    left, found = n_chars, set[int]()
    for one in said:
        left -= len(one) + 1
        if left < 0:
            break
        found |= {at for at, turn in enumerate(evidence) if at not in found and _is_of(_words(one), turn)}
    return len(found) / len(evidence)


@functools.lru_cache(maxsize=100_000)
def _words(said: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(_undated(said).casefold()))


def _undated(said: str) -> str:
    return _DAY.sub("", said)


def _is_of(said: tuple[str, ...], turn: tuple[str, ...]) -> bool:
    """Return whether a statement is a turn, or some of its sentences: its words, the name included, in their order."""
    if said[:1] != turn[:1] or (len(said) <= _MIN_WORDS and said != turn):
        return False
    rest = iter(turn)
    return all(word in rest for word in said)


# -- figures -----------------------------------------------------------------------------------------------------------


def _compared(method: str, before: Sequence[Asked], after: Sequence[Asked]) -> Iterator[Figure]:
    name, size = f"LoCoMo before and after reflection, {method}", f"{len(after):,}"
    found = [one.found for one in before], [one.found for one in after]
    for k in retrieval.PLACES:
        least = 100 * retrieval.recall(found[0], k)
        yield Figure(
            name=f"{name}: recall@{k}",
            size=size,
            value=100 * retrieval.recall(found[1], k),
            unit="%",
            budget=least,
            is_floor=True,
            note=f"before: {least:.1f} %; by chance {_chance(before, k):.1f} % before, {_chance(after, k):.1f} % after",
        )
    if method == "hybrid":  # the only one that shows facts
        for at, n_chars in enumerate(FACT_CHARS):
            least, value = _pair(before, after, lambda one, at=at: one.facts[at])  # type: ignore[misc]
            dated = _pair(before, after, lambda one, at=at: one.dated_facts[at])  # type: ignore[misc]
            best = _pair(before, after, lambda one, at=at: one.best_facts[at])  # type: ignore[misc]
            yield Figure(
                name=f"{name}: evidence in {n_chars:,} characters of matching facts",
                size=size,
                value=value,
                unit="%",
                budget=least - 100 / len(after),
                is_floor=True,
                note=f"before: {least:.1f} %; {_judged(before, after, lambda one, at=at: one.facts[at])}; "  # type: ignore[misc]
                f"days counted {dated[0]:.1f} → {dated[1]:.1f} %; best facts first {best[0]:.1f} → {best[1]:.1f} %",
            )
        for at, n_tokens in enumerate(RECALL_TOKENS):
            told, value = _pair(before, after, lambda one, at=at: one.recalled[at])  # type: ignore[misc]
            yield Figure(
                name=f"LoCoMo before and after reflection: evidence in {n_tokens:,} tokens of recall",
                size=size,
                value=value,
                unit="%",
                note=f"before: {told:.1f} %",
            )
    for at, n_chars in enumerate(TEXT_CHARS):
        least, value = _pair(before, after, lambda one, at=at: one.texts[at])  # type: ignore[misc]
        yield Figure(
            name=f"{name}: evidence in {n_chars:,} characters of full texts",
            size=size,
            value=value,
            unit="%",
            note=f"before: {least:.1f} %",
        )
    yield Figure(
        name=f"{name}: length of the first text, p50",
        size=size,
        value=quantile([one.first_chars for one in after], 0.5),
        unit="characters",
        note=f"before: {quantile([one.first_chars for one in before], 0.5):,}",
    )


def _pair(before: Sequence[Asked], after: Sequence[Asked], share: Callable[[Asked], float]) -> tuple[float, float]:
    """Return the mean share before and after, percent."""
    of_before, of_after = (100 * sum(map(share, each)) / len(each) for each in (before, after))
    return of_before, of_after


def _judged(before: Sequence[Asked], after: Sequence[Asked], share: Callable[[Asked], float]) -> str:
    """Say of how many questions more and of how many less is found, and the standard error of the mean difference, in points."""
    gains = [share(two) - share(one) for one, two in zip(before, after, strict=True)]
    error = 100 * statistics.pstdev(gains) / math.sqrt(len(gains))
    return (
        f"more of {sum(gain > 0 for gain in gains)} questions, less of {sum(gain < 0 for gain in gains)}, ± {error:.1f}"
    )


def _chance(asked: Sequence[Asked], k: int) -> float:
    """Return what any order finds in the mean, percent."""
    return 100 * sum(min(1.0, k / one.n_live) for one in asked) / len(asked)
