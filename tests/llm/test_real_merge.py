"""Clusters merged by small models that invent, repeat and run into the limit: nothing untrue is kept, and nothing is lost."""

from __future__ import annotations

import re

import pytest

from everosd import clock, config, errors
from everosd.models import chat, prompt
from everosd.narrative import faithful, merge, source
from tests.unit.test_faithful import FULL, SEED, sources

pytestmark = [pytest.mark.llm, pytest.mark.slow, pytest.mark.timeout(1800)]

TOLD = (
    "Andrew has no pets yet, because his landlord in Rennes does not allow a dog.",
    "Andrew moved to a house in Brest in September 2026. He pays 780 euros of rent.",
    "On 3 October 2026 Andrew adopted a dog named Toby for 120 euros.",
    "Andrew also adopted Buddy, a second dog. Toby and Buddy get along well.",
)
KNOWN = (
    {"2026", "3", "120", "780", "2"}
    | {f"{number:02}" for number in range(1, 13)}
    | {"2027", "10", "9", "11", "8", "09", "08"}
)
LIES = re.compile(r"happy dog|three dogs|no dogs|2020|2021|2023|cat\b|Max\b", re.IGNORECASE)


@pytest.mark.parametrize("contents", [SEED, FULL, TOLD], ids=["seed", "full", "told"])
async def test_R06_a_small_model_s_merge_is_true_and_whole_or_refused(
    model_url: str, contents: tuple[str, ...]
) -> None:
    """Every statement of the sources is found in the narrative, and no year, number or name that nobody wrote."""
    settings = config.Llm(
        model="small", api_key=config.Secret(""), base_url=model_url, timeout_seconds=600.0, max_retries=0, max_concurrent=1,
        max_input_tokens=2500, max_output_tokens=200, language="", prompts="",
    )  # fmt: skip
    model = chat.Chat(settings, clock.SystemClock())
    given = sources(*contents)
    try:
        merging = merge.ByModel(model, lambda name: prompt.load(name, [merge.PROMPTS]))
        assert len(given) == merging.n_fitting(given)
        try:
            found = await merging.merge(given)
        except (
            errors.LLMRejected
        ) as error:  # its answers are none, or no narrative of the sources: the cluster is skipped
            print(f"\nrefused: {error}: {error.check.said() if isinstance(error, source.Refused) else ''}")  # noqa: T201  # with -s one sees what models do
            return
    finally:
        await model.close()
    print(f"\n{found.check.said()}\n# {found.subject}\n{found.content}")  # noqa: T201
    verdict = faithful.Evidence(given).judge(found.content)
    assert verdict.is_true
    assert not verdict.missing
    assert not LIES.search(found.content)
    assert set(re.findall(r"\d+", found.content)) <= KNOWN
    names = {"Andrew", "Toby", "Buddy", "Rennes", "Brest", "September", "October", "August", "Details"}
    assert set(re.findall(r"(?<=[a-z,] )[A-Z][a-z]+", found.content)) <= names
