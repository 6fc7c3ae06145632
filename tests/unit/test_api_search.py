"""Search by meaning over HTTP: what each method answers, what it says when it cannot, and how a score is explained."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from everosd import errors
from everosd.cascade import project
from everosd.search import fuse
from tests import memory_vectors

if TYPE_CHECKING:
    from tests.unit.conftest import Door, Open, Said

USER = "default_app/default_project/users/mara"
SEARCH = "/api/v1/memory/search"

FACT = (
    "---\nid: facts\ntype: atomic_fact_daily\nuser_id: mara\ntrack: user\ndate: '2026-03-02'\n---\n"
    "<!-- entry:af_20260302_00000001 -->\n## af_20260302_00000001\n\n**owner_id**: mara\n"
    "**timestamp**: 2026-03-02T20:00:00+00:00\n**parent_type**: episode\n**parent_id**: ep_20260302_00000001\n\n"
    "### Fact\nMara's dog is called Bilbo.\n<!-- /entry:af_20260302_00000001 -->\n"
)


@pytest.fixture
def files(log_of: Callable[..., str], episode: Callable[..., Said]) -> dict[str, str]:
    """Two Episodes, the first with a fact."""
    said = episode(1, "Mara took in a puppy near the canal."), episode(2, "The roof was mended before the rain.")
    return {
        f"{USER}/episodes/episode-2026-03-02.md": log_of("mara", "2026-03-02", *said),
        f"{USER}/.atomic_facts/atomic_fact-2026-03-02.md": FACT,
    }


@asynccontextmanager
async def meaning(open_door: Open, files: dict[str, str], folder: Path) -> AsyncIterator[tuple[Door, Any]]:
    """Open a door whose entries have vectors."""
    async with open_door(files) as door:
        vectors = await asyncio.to_thread(memory_vectors.MemoryVectors, folder)
        rows = await door.node.reader.rows(sorted(door.node.text.index.keys()))
        await asyncio.to_thread(vectors.add_documents, [project.document(row) for row in rows])
        door.node.search._vectors = door.node.search.queries = vectors
        yield door, vectors


async def answer_of(door: Door, method: str, **body: object) -> Any:
    asked = {"query": "What is the puppy of Mara called?", "user_id": "mara", "method": method, **body}
    return await door.client.post(SEARCH, json=asked)


@pytest.mark.parametrize("method", ["keyword", "vector", "hybrid"])
async def test_every_method_finds_the_episode_first(
    open_door: Open, files: dict[str, str], tmp_path: Path, method: str
) -> None:
    """Facts are nested by hybrid alone, nothing is degraded, and nothing is explained that was not asked for."""
    async with meaning(open_door, files, tmp_path) as (door, _):
        answer = (await answer_of(door, method)).json()

    first = answer["data"]["episodes"][0]
    assert "mara_ep_20260302_00000001" == first["id"]
    assert (["Mara's dog is called Bilbo."] if method == "hybrid" else []) == [
        fact["content"] for fact in first["atomic_facts"]
    ]
    assert "degraded" not in answer
    assert "explain" not in first


@pytest.mark.parametrize("method", ["keyword", "vector", "hybrid"])
async def test_a_score_is_explained_when_asked(
    open_door: Open, files: dict[str, str], tmp_path: Path, method: str
) -> None:
    """From what is told the score can be computed, and the words are those of the question."""
    async with meaning(open_door, files, tmp_path) as (door, _):
        first = (await answer_of(door, method, explain=True)).json()["data"]["episodes"][0]

    why = first["explain"]
    both = why["keyword"], why["similarity"]
    assert {"keyword": (False, True), "vector": (True, False), "hybrid": (False, False)}[method] == tuple(
        part is None for part in both
    )
    parts = [
        (weight, part) for weight, part in zip((fuse.WORDS, 1 - fuse.WORDS), both, strict=True) if part is not None
    ]
    mean = sum(weight * part**2 for weight, part in parts) / sum(weight for weight, _ in parts)
    assert mean**0.5 == pytest.approx(why["own"])
    assert why["own"] + (1 - why["own"]) * why["lift"] * why["fact"]["score"] == pytest.approx(first["score"])
    assert 0 == why["dated"]
    assert "mara_af_20260302_00000001" == why["fact"]["id"]
    assert "Mara's dog is called Bilbo." == why["fact"]["content"]
    assert ([] if method == "vector" else ["puppy", "mara"]) == why["words"]


REFUSED = [
    (errors.LLMUnavailable("stub", "it answered 503"), 503, "EXTERNAL_SERVICE_UNAVAILABLE"),
    (errors.LLMRejected("stub", "it answered with words"), 503, "EXTERNAL_SERVICE_UNAVAILABLE"),
    (errors.ConfigError("everos.toml", "embedding.dim", "64 wanted, 32 came"), 422, "PROVIDER_NOT_CONFIGURED"),
    (errors.DerivedIndexError("vectors", "not open yet"), 503, "CAPABILITY_UNAVAILABLE"),
]


@pytest.mark.parametrize(("failure", "status", "code"), REFUSED)
async def test_M09_a_vector_search_that_cannot_be_made_fails_and_says_why(
    open_door: Open, files: dict[str, str], tmp_path: Path, failure: errors.EverosdError, status: int, code: str
) -> None:
    """Hybrid answers by keyword meanwhile and names the same reason."""
    async with meaning(open_door, files, tmp_path) as (door, vectors):
        vectors.failure = failure
        by_vector, hybrid = await answer_of(door, "vector"), (await answer_of(door, "hybrid")).json()

    assert (status, code) == (by_vector.status_code, by_vector.json()["error"]["code"])
    assert str(failure) in by_vector.json()["error"]["message"]
    assert [f"{failure}: answered by keyword"] == hybrid["degraded"]
    assert "mara_ep_20260302_00000001" == hybrid["data"]["episodes"][0]["id"]


async def test_M09_without_a_model_a_vector_search_is_unavailable(open_door: Open, files: dict[str, str]) -> None:
    """503 with a code of its own: nothing is answered by keyword under the name of vectors."""
    async with open_door(files) as door:
        answer = await answer_of(door, "vector")

    assert (503, "CAPABILITY_UNAVAILABLE") == (answer.status_code, answer.json()["error"]["code"])


async def test_E06_a_query_of_another_width_is_a_configuration_error(
    open_door: Open, files: dict[str, str], tmp_path: Path
) -> None:
    """It fails at once, and both widths are named."""
    async with meaning(open_door, files, tmp_path) as (door, vectors):
        vectors.dim = 64
        answer = await answer_of(door, "vector")

    assert (422, "PROVIDER_NOT_CONFIGURED") == (answer.status_code, answer.json()["error"]["code"])
    assert "64 wide" in answer.json()["error"]["message"]
    assert "256 wide" in answer.json()["error"]["message"]
