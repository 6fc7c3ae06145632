"""Clusters merged by small models that invent, repeat and run into the limit: nothing untrue is kept, and nothing is lost."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from everosd import clock, config
from everosd.models import chat, prompt
from everosd.narrative import faithful, merge
from everosd.reflection import source
from everosd.search import query
from tests import reflecting
from tests.unit import test_faithful

pytestmark = [pytest.mark.llm, pytest.mark.slow, pytest.mark.timeout(1800)]

TOLD = (
    "Andrew has no pets yet, because his landlord in Rennes does not allow a dog.",
    "Andrew moved to a house in Brest in September 2026. He pays 780 euros of rent.",
    "On 3 October 2026 Andrew adopted a dog named Toby for 120 euros.",
    "Andrew also adopted Buddy, a second dog. Toby and Buddy get along well.",
)
KNOWN = {"2026", "120", "780", "1", "2", "3", "4"} | {f"{number:02}" for number in range(1, 13)}
NAMES = {"Andrew", "Toby", "Buddy", "Rennes", "Brest", "March", "September", "October", "Details"}
LIES = re.compile(r"happy dog|three dogs|no dogs|2020|2021|2023|cat\b|Max\b", re.IGNORECASE)


@pytest.mark.parametrize("contents", [test_faithful.SEED, test_faithful.FULL, TOLD], ids=["seed", "full", "told"])
async def test_R06_a_small_model_s_merge_is_true_and_whole_or_refused(
    model_url: str, contents: tuple[str, ...], tmp_path: Path
) -> None:
    """A narrative with all that was told and no year, number or name that nobody wrote, or the cluster as it was."""
    settings = config.Llm(
        model="small", api_key=config.Secret(""), base_url=model_url, timeout_seconds=1200.0, max_retries=0, max_concurrent=1,
        max_input_tokens=2500, max_output_tokens=150, language="", prompts="",
    )  # fmt: skip
    model = chat.Chat(settings, clock.SystemClock())
    async with reflecting.opened(tmp_path) as mind:
        mind.merging = merge.ByModel(model, lambda name: prompt.load(name, [merge.PROMPTS]))  # type: ignore[assignment]
        ids = await mind.tell(*contents)
        facts = await mind.facts()
        assert facts
        done = await mind.run()
        await model.close()
        print(f"\n{done.note}: {done.detail}")  # noqa: T201  # with -s one sees what models do
        live = await mind.live()
        if source.is_narrative(live[-1]):
            assert [live[-1]] == live
            _is_true(source.episode(live[-1]).subject, source.episode(live[-1]).content, contents)
        else:
            (skipped,) = cast("dict[str, Any]", done.detail)["skipped"]
            assert not skipped["is_away"]  # it answered, and was refused
            assert (ids, facts) == ([one.entry_id for one in live], await mind.facts())
        for fact in facts:
            assert await _is_found(mind, fact), fact


def _is_true(subject: str, content: str, contents: tuple[str, ...]) -> None:
    """Hold a narrative against its sources, and against what small models are known to say."""
    print(f"# {subject}\n{content}")  # noqa: T201
    verdict = _evidence(*contents).judge(content)
    assert verdict.is_true
    assert not verdict.missing
    for text in (subject, content):
        assert not LIES.search(text)
        assert set(re.findall(r"\d+", text)) <= KNOWN
        assert set(re.findall(r"(?<=[a-z,] )[A-Z][a-z]+", text)) <= NAMES


async def _is_found(mind: reflecting.Mind, fact: str) -> bool:
    """Search for a fact in its own words: what comes first says it."""
    asked = query.Query(owner=mind.owner, text=fact, method="keyword")
    hits = (await mind.root.node.search.run(asked)).episodes
    return bool(hits) and not _evidence(fact).judge(reflecting.said(hits[0].row)).missing


def _evidence(*contents: str) -> faithful.Evidence:
    """Return what the texts bear out, a day of March 2026 each, as they are told to `reflecting.Mind`."""
    first = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
    given = test_faithful.sources(*contents)
    return faithful.Evidence(
        [msgspec.structs.replace(one, at=first + dt.timedelta(days=at)) for at, one in enumerate(given)]
    )
