"""Dry runs: what a run would do, batch by batch, with nothing written."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
import pytest
import pytest_asyncio
import structlog

from everosd import errors, types
from everosd.narrative import source as texts
from everosd.reflection import merges, source
from tests import open_root, reflecting
from tests.reflecting import CLUSTER, STORY

NUMBERS = itertools.count(1)

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def root(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[open_root.Root]:
    """Return a root that is open for all tests of this module."""
    async with open_root.opened(tmp_path_factory.mktemp("rehearsal")) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="module")
async def mind(root: open_root.Root) -> AsyncIterator[reflecting.Mind]:
    """Return a new person in it."""
    made = reflecting.over(root)
    made.owner = msgspec.structs.replace(made.owner, id=f"u_{next(NUMBERS)}")
    yield made
    await reflecting.over(root).run()


async def rehearsed(mind: reflecting.Mind) -> list[dict[str, Any]]:
    """Return what a dry run shows, which has written nothing."""
    before = await asyncio.to_thread(mind.digest)
    done = await mind.run(is_dry_run=True)
    assert before == await asyncio.to_thread(mind.digest)
    assert msgspec.json.decode(msgspec.json.encode(done.detail)) == done.detail
    shown: list[dict[str, Any]] = msgspec.convert(done.detail, dict[str, Any])["clusters"]
    return shown


async def test_R06_a_dry_run_shows_the_narrative_and_the_difference(mind: reflecting.Mind) -> None:
    """Whose, which cluster, what is replaced, the text, and how it differs; no byte of the log changes."""
    ids = await mind.tell(*STORY, has_facts=False)
    (shown,) = await rehearsed(mind)
    public = [types.public_id(mind.owner.id, each) for each in ids]
    assert (mind.owner.id, CLUSTER, "init", public, None) == (
        shown["owner_id"], shown["cluster_id"], shown["mode"], shown["sources"], shown["reason"],
    )  # fmt: skip
    assert {"subject": "What happened", "content": "\n".join(STORY)} == shown["narrative"]
    assert "3 of 3 statements told" == shown["check"]
    lines = shown["diff"].splitlines()
    assert "-A talk" in lines
    assert "+What happened" in lines
    assert f" {STORY[0]}" in lines


async def test_an_immediate_real_run_takes_the_same_decisions(mind: reflecting.Mind) -> None:
    """Batches included: each is planned upon what the one before would have left."""

    class Narrow(reflecting.Scripted):
        def n_fitting(self, sources: Sequence[texts.Source]) -> int:
            return min(4, len(sources))

    mind.merging = Narrow()
    await mind.tell(*(f"Mara drank tea number {nth}." for nth in range(9)), has_facts=False)
    await mind.tell("a b", "c d", cluster="cl_000000000001", has_facts=False)
    shown = await rehearsed(mind)
    asked = list(mind.merging.asked)
    assert ["init", "update", "update", "init"] == [one["mode"] for one in shown]
    mind.merging.asked.clear()
    await mind.run()
    assert [len(one) for one in asked] == [len(one) for one in mind.merging.asked]
    told = {one.merged_entry_id: one for one in await mind.reports() if one.owner == mind.owner}
    ordered = [told[key] for key in sorted(told)]
    assert [one["mode"] for one in shown] == [one.mode for one in ordered]
    assert [len(one["sources"]) for one in shown] == [one.source_count for one in ordered]
    narrative = await mind.of(ordered[2].merged_entry_id)
    assert shown[2]["narrative"]["content"] == source.episode(narrative).content


async def test_a_dry_run_says_why_clusters_would_be_skipped(mind: reflecting.Mind) -> None:
    """Without a model, with one that is away, and with one that invents: nothing is shown as if it would be done."""
    await mind.tell(*STORY, has_facts=False)
    mind.merging.is_set_up = False
    (shown,) = await rehearsed(mind)
    assert (None, merges.NO_MODEL) == (shown["narrative"], shown["reason"])
    mind.merging.is_set_up = True
    mind.merging.error = errors.LLMUnavailable("scripted", "is away")
    (shown,) = await rehearsed(mind)
    assert (None, "scripted: is away") == (shown["narrative"], shown["reason"])
    check = texts.Check(inventions=("Rex",), n_statements=3, n_covered=2)
    mind.merging.error = texts.Refused("scripted", "says what no source says", check)
    (shown,) = await rehearsed(mind)
    assert (None, "says what no source says") == (shown["narrative"], shown["reason"])
    assert "invented: Rex" in shown["check"]
    mind.merging.error = None


async def test_a_dry_run_takes_clusters_in_the_turn_of_a_real_one(mind: reflecting.Mind) -> None:
    """What was refused the last time comes last, and a fault that nobody thought of stops nothing."""
    await mind.tell(*STORY, has_facts=False)
    await mind.tell("a b", "c d", cluster="cl_000000000001", has_facts=False)

    async def decline(sources: Sequence[texts.Source]) -> None:
        if len(sources) == len(STORY):
            raise mistake

    mind.merging.before = decline
    mistake: Exception = ZeroDivisionError("nobody thought of this")
    with structlog.testing.capture_logs():
        assert [True, False] == ["ZeroDivisionError" in str(one["reason"]) for one in await rehearsed(mind)]
    check = texts.Check(n_statements=3, n_covered=2)
    mistake = texts.Refused("scripted", "says what no source says", check)
    await mind.run()
    await mind.tell("e f", "g h", cluster="cl_000000000002", has_facts=False)
    assert ["cl_000000000002", CLUSTER] == [one["cluster_id"] for one in await rehearsed(mind)]
    mind.merging.before = None


async def test_a_dry_run_sees_what_was_begun_as_finished(mind: reflecting.Mind, root: open_root.Root) -> None:
    """A consolidation that was cut off: a real run would finish it first, and then fold in what is new."""
    ids = await mind.tell(*STORY, has_facts=False)
    cut = reflecting.over(root, reflecting.Fuse(1))
    assert await reflecting.killed(cut.run())
    await root.settled()
    (new,) = await mind.tell("Andrew lives in Bergen.", day=9, has_facts=False)
    (shown,) = await rehearsed(mind)
    narrative = next(one for one in await mind.live() if source.is_narrative(one))
    assert "update" == shown["mode"]
    assert {narrative.entry_id, new} == {each.removeprefix(f"{mind.owner.id}_") for each in shown["sources"]}
    assert (*ids, new) == mind.merging.asked[-1]
