"""What is found in LoCoMo's conversations, by each method, through the daemon's HTTP with the built-in model.

An Episode is a session, its facts are its turns. Counted is *recall@k*, the share of a question's evidence sessions among
the first k in the mean over all questions, *hit@k*, whether any of them is there, and *MRR*, of the first of them. The
first four conversations are those that weights were chosen on; the others were seen beside them: a check, no clean test set.

Ablations change the memory, not the program: without facts, with pieces as long as the model takes. `keyword` and
`vector` are the ablations of `hybrid`. Vectors come from `.cache/`, which the variants share: nothing is embedded twice.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from bench import daemon, roots
from bench.table import Figure, quantile

METHODS = ("keyword", "vector", "hybrid")
PLACES = (1, 5, 10)
TOP_K = 10
N_TUNED = 4
"""Conversations that weights were chosen on."""
FLOORS = {1: 68.1, 5: 87.7, 10: 94.2}
"""recall@k of what was measured before (DESIGN, search): hybrid has to beat it."""
EMBEDDING_S = 3600.0
"""One slow core embeds 5,000 texts within."""

WHOLE = "whole"
FACTS = ".atomic_facts"
CACHE = ".cache"


class Variant(msgspec.Struct, frozen=True, kw_only=True):
    """A memory that is searched."""

    name: str
    settings: dict[str, str]
    """Environment variables that set the daemon."""
    has_facts: bool = True
    methods: tuple[str, ...] = METHODS


BUILTIN = {"EVEROS_EMBEDDING__MODEL": "builtin"}
VARIANTS = (
    Variant(name="whole", settings=BUILTIN),
    Variant(name="no facts", settings=BUILTIN, has_facts=False),
    Variant(
        name="short pieces",
        settings={**BUILTIN, "EVEROS_EMBEDDING__MAX_TOKENS": "250"},
        methods=("vector", "hybrid"),
    ),
)


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A question, where its evidence was found, and how long that took."""

    user: str
    ranks: tuple[int, ...]
    """0-based place of each evidence session; TOP_K where it is not among the first."""
    took_ms: float


def measure(folder: Path, source: Path) -> Iterator[Figure]:
    """Yield what each method finds in each variant."""
    made = roots.write_locomo(folder / WHOLE, source)
    tuned = set(list(dict.fromkeys(one.user for one in made.sessions))[:N_TUNED])
    before: Path | None = None
    for variant in VARIANTS:
        root = _prepared(folder, variant, before)
        before = root
        with daemon.running(root, variant.settings) as served:
            client = served.client()
            n_entries = len(made.sessions) + (len(made.turns) if variant.has_facts else 0)
            yield from _filled(client, variant, n_entries)
            for method in variant.methods:
                asked = [_ask(client, question, method) for question in made.questions]
                yield from _figures(variant, method, asked, tuned)


def _prepared(folder: Path, variant: Variant, before: Path | None) -> Path:
    """Make the root of a variant out of the first one, with the vectors that are there already."""
    whole = folder / WHOLE
    root = folder / variant.name.replace(" ", "-")
    if root != whole:
        ignored = shutil.ignore_patterns(".index", CACHE, *([] if variant.has_facts else [FACTS]))
        shutil.copytree(whole, root, ignore=ignored, dirs_exist_ok=True)
    if before is not None:
        shutil.copytree(before / CACHE, root / CACHE, dirs_exist_ok=True)
    return root


def _filled(client: daemon.Client, variant: Variant, n_entries: int) -> Iterator[Figure]:
    """Wait until everything is searchable by every method, and yield what that took."""
    took = daemon.wait_until(
        lambda: client.is_ready() and client.has_vectors() and client.status()["entries"] == n_entries,
        timeout_s=EMBEDDING_S,
        what="LoCoMo's vectors",
        pause_s=0.5,
    )
    model = client.embedding()
    note = "" if model is None else f"{model.requested:,} texts embedded, the others from the cache"
    yield Figure(name=f"LoCoMo, {variant.name}: all vectors", size=f"{n_entries:,}", value=took, unit="s", note=note)


def _ask(client: daemon.Client, question: roots.Question, method: str) -> Asked:
    started = time.perf_counter()
    answer = client.answer(question.user, question.question, top_k=TOP_K, method=method)
    took_ms = (time.perf_counter() - started) * 1000
    if answer.get("degraded"):
        msg = f"{method} search: {answer['degraded']}"
        raise daemon.Failed(msg)
    data = msgspec.convert(answer["data"], dict[str, object])
    places = {
        str(hit["id"]): place for place, hit in enumerate(msgspec.convert(data["episodes"], list[dict[str, object]]))
    }
    wanted = [f"{question.user}_{entry_id}" for entry_id in question.episodes]
    return Asked(user=question.user, ranks=tuple(places.get(one, TOP_K) for one in wanted), took_ms=took_ms)


def _figures(variant: Variant, method: str, asked: Sequence[Asked], tuned: set[str]) -> Iterator[Figure]:
    parts = {
        "all": asked,
        "tuned on": [one for one in asked if one.user in tuned],
        "the others": [one for one in asked if one.user not in tuned],
    }
    for part, questions in parts.items():
        name = f"LoCoMo, {variant.name}, {method}, {part}"
        is_judged = (variant.name, method, part) == ("whole", "hybrid", "all")
        for k in PLACES:
            budget = FLOORS[k] if is_judged else None
            value = 100 * recall(questions, k)
            yield Figure(
                name=f"{name}: recall@{k}",
                size=f"{len(questions):,}",
                value=value,
                unit="%",
                budget=budget,
                is_floor=True,
            )
        note = ", ".join(f"hit@{k} {100 * hit(questions, k):.1f} %" for k in PLACES)
        yield Figure(name=f"{name}: MRR", size=f"{len(questions):,}", value=100 * mrr(questions), unit="%", note=note)
    times = [one.took_ms for one in asked]
    yield Figure(
        name=f"LoCoMo, {variant.name}, {method}: one search, p50",
        size=f"{len(asked):,}",
        value=quantile(times, 0.5),
        unit="ms",
        note=f"p95 {quantile(times, 0.95):.1f} ms; the embedding of the question is part of it",
    )


def recall(asked: Sequence[Asked], k: int) -> float:
    """Return the share of the evidence among the first `k`, the mean over questions."""
    return sum(sum(rank < k for rank in one.ranks) / len(one.ranks) for one in asked) / len(asked)


def hit(asked: Sequence[Asked], k: int) -> float:
    """Return the share of questions with any evidence among the first `k`."""
    return sum(min(one.ranks) < k for one in asked) / len(asked)


def mrr(asked: Sequence[Asked]) -> float:
    """Return the mean of one over the place of the first evidence; nothing where it is not among the first."""
    return sum(1 / (1 + min(one.ranks)) for one in asked if min(one.ranks) < TOP_K) / len(asked)
