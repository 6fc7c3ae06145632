"""Consolidations undone: one, a chain of them, and what stands in the way."""

from __future__ import annotations

import asyncio
import errno
import itertools
from collections.abc import AsyncIterator

import msgspec
import pytest
import pytest_asyncio

from everosd import errors, types
from everosd.cascade import verify
from everosd.log import file
from everosd.reflection import source
from everosd.store import cluster, report
from tests import open_root, reflecting
from tests.reflecting import CLUSTER, STORY, said

NUMBERS = itertools.count(1)

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def root(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[open_root.Root]:
    """Return a root that is open for all tests of this module."""
    async with open_root.opened(tmp_path_factory.mktemp("undone")) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="module")
async def mind(root: open_root.Root) -> AsyncIterator[reflecting.Mind]:
    """Return a new person in it."""
    made = reflecting.over(root)
    made.owner = msgspec.structs.replace(made.owner, id=f"u_{next(NUMBERS)}")
    yield made
    await reflecting.over(root).run()


async def test_one_consolidation_is_undone(mind: reflecting.Mind) -> None:
    """Its sources and their facts live again, the narrative and its facts are mapped to the newest source; all on record."""
    ids = await mind.tell(*STORY)
    facts = await mind.facts()
    await mind.run()
    narrative = await mind.narrative()
    done = await mind.rollback(narrative.entry_id)
    assert (tuple(ids), narrative.entry_id) == (done.restored, done.retired)
    assert ids == [one.entry_id for one in await mind.live()]
    assert facts == await mind.facts()
    assert set(ids) == {one.parent_id for one in await mind.live("atomic_fact")}
    retired = await mind.of(narrative.entry_id)
    assert ("deprecated", ids[2]) == (retired.status, retired.deprecated_by)
    of_narrative = await mind.root.reader.children(mind.owner, [narrative.entry_id], "atomic_fact")
    assert {ids[2]} == {one.deprecated_by for one in of_narrative}
    told = await mind.report_of(narrative.entry_id)
    assert ("rolled_back", True, 3) == (told.status, told.is_restored, told.source_count)
    members = await cluster.members(mind.root.reader, mind.owner, CLUSTER)
    assert ids == [one.entry_id for one in members]
    assert () == (await verify.verify(mind.root.node.cascade)).differences


async def test_what_was_undone_is_not_merged_again_as_it_is(mind: reflecting.Mind) -> None:
    """Not by the next run; once a member is added, or edited, it is."""
    ids = await mind.tell(*STORY, has_facts=False)
    await mind.run()
    await mind.rollback((await mind.narrative()).entry_id)
    assert " undone and wait" in (await mind.run()).note
    assert ids == [one.entry_id for one in await mind.live()]
    mind.merging.is_set_up = False
    assert " undone and wait" in (await mind.run()).note
    mind.merging.is_set_up = True
    path = (await mind.of(ids[1])).path
    await mind.root.edit(path, "named Toby", "named Tobias")
    await mind.root.settled()
    await mind.run()
    second = await mind.narrative()
    assert "Tobias" in said(second)
    await mind.rollback(second.entry_id)
    (new,) = await mind.tell("Andrew lives in Bergen.", day=9, has_facts=False)
    await mind.run()
    assert (*ids, new) == source.episode(await mind.narrative()).read_from


async def test_a_chain_is_undone_newest_first(mind: reflecting.Mind) -> None:
    """In the middle it is refused, by the id of what builds on it; from the end everything comes back as it was."""
    ids = await mind.tell(*STORY)
    await mind.run()
    first = await mind.narrative()
    of_first = await mind.facts()
    (new,) = await mind.tell("Andrew lives in Bergen.", day=9)
    await mind.run()
    second = await mind.narrative()
    before = await asyncio.to_thread(mind.digest)
    with pytest.raises(errors.Conflict, match=second.entry_id) as caught:
        await mind.rollback(first.entry_id)
    assert types.public_id(mind.owner.id, second.entry_id) in caught.value.hint
    assert before == await asyncio.to_thread(mind.digest)
    await mind.rollback(second.entry_id)
    assert {first.entry_id, new} == {one.entry_id for one in await mind.live()}
    assert sorted([*of_first, "Andrew lives in Bergen."]) == await mind.facts()
    assert new == (await mind.of(second.entry_id)).deprecated_by
    assert (await mind.run()).note.startswith("nothing to consolidate")
    await mind.rollback(first.entry_id)
    assert {*ids, new} == {one.entry_id for one in await mind.live()}
    assert 4 == len(await mind.facts())
    assert (await mind.run()).note.startswith("nothing to consolidate"), "all of it was undone"
    assert () == (await verify.verify(mind.root.node.cascade)).differences


async def test_what_is_undone_already_says_so(mind: reflecting.Mind) -> None:
    """Nothing is written a second time; a report that there is not is not found."""
    await mind.tell(*STORY, has_facts=False)
    await mind.run()
    narrative = await mind.narrative()
    told = await mind.report_of(narrative.entry_id)
    await mind.rollback(narrative.entry_id)
    before = await asyncio.to_thread(mind.digest)
    with pytest.raises(errors.Conflict, match="already"):
        await mind.reflection.rollback(told)
    with pytest.raises(errors.NotFound):
        await mind.reflection.rollback(msgspec.structs.replace(told, report_id="0" * 32))
    assert before == await asyncio.to_thread(mind.digest)


async def test_what_people_undo_of_a_rollback_stays_undone(mind: reflecting.Mind) -> None:
    """A person deprecates a source again by hand: no run and no start brings it back."""
    ids = await mind.tell(*STORY, has_facts=False)
    await mind.run()
    narrative = await mind.narrative()
    await mind.rollback(narrative.entry_id)
    path = (await mind.of(ids[0])).path
    await mind.root.edit(path, "deprecated_entries:\n", f"deprecated_entries:\n  {ids[0]}: {ids[1]}\n")
    await mind.root.settled()
    assert "" == await mind.reflection.recover()
    await mind.run()
    assert {ids[1], ids[2]} == {one.entry_id for one in await mind.live()}


async def test_sources_that_were_deleted_or_pointed_elsewhere_are_left_so(mind: reflecting.Mind) -> None:
    """What is there is restored; with nothing left there is nothing to go back to."""
    ids = await mind.tell(*STORY, has_facts=False)
    await mind.run()
    narrative = await mind.narrative()
    path = (await mind.of(ids[0])).path
    text = await mind.root.text(path)
    gone = text[text.index(f"<!-- entry:{ids[2]} -->") : text.index(f"<!-- /entry:{ids[2]} -->")]
    text = text.replace(f"{gone}<!-- /entry:{ids[2]} -->\n", "")
    text = text.replace(f"  {ids[0]}: {narrative.entry_id}\n", f"  {ids[0]}: {ids[1]}\n")
    await mind.root.save(path, text)
    await mind.root.settled()
    done = await mind.rollback(narrative.entry_id)
    assert (ids[1],) == done.restored
    assert [ids[1]] == [one.entry_id for one in await mind.live()]
    assert ids[1] == (await mind.of(narrative.entry_id)).deprecated_by


async def test_two_rollbacks_at_once_are_one(mind: reflecting.Mind) -> None:
    """Somebody clicks twice: the second is refused."""
    ids = await mind.tell(*STORY, has_facts=False)
    await mind.run()
    narrative = await mind.narrative()
    both = await asyncio.gather(
        mind.rollback(narrative.entry_id), mind.rollback(narrative.entry_id), return_exceptions=True
    )
    assert [False, True] == sorted(isinstance(one, errors.Conflict) for one in both)
    assert ids == [one.entry_id for one in await mind.live()]
    rows = await mind.live("cluster")
    assert 1 == sum("**event**: rolled_back" in one.raw for one in rows)


async def test_a_rollback_while_the_model_updates_the_narrative_wins(mind: reflecting.Mind) -> None:
    """What the model was shown is not what stands there any more: nothing of its answer is stored."""
    ids = await mind.tell(*STORY, has_facts=False)
    await mind.run()
    first = await mind.narrative()
    (new,) = await mind.tell("Andrew lives in Bergen.", day=9, has_facts=False)

    async def undo(_: object) -> None:
        mind.merging.before = None
        await mind.rollback(first.entry_id)

    mind.merging.before = undo
    await mind.run()
    narrative = await mind.narrative()
    assert [narrative] == await mind.live()
    assert (*ids, new) == source.episode(narrative).read_from
    told = await report.of_narrative(mind.root.reader, mind.owner, narrative.entry_id)
    assert told is not None
    assert "init" == told.mode


async def test_what_is_begun_is_finished_before_it_is_undone(mind: reflecting.Mind) -> None:
    """Cut off right after its append, an update builds on the first narrative: that one is refused, by the update's id."""
    ids = await mind.tell(*STORY)
    await mind.run()
    first = await mind.narrative()
    await mind.tell("Andrew lives in Bergen.", day=9)
    assert [] == mind.owed
    cut = reflecting.over(mind.root, reflecting.Fuse(1))
    assert await reflecting.killed(cut.run())
    await mind.root.settled()
    with pytest.raises(errors.Conflict) as caught:
        await mind.rollback(first.entry_id)
    second = await mind.narrative()
    assert second.entry_id in str(caught.value)
    assert [second] == await mind.live()
    assert [second.entry_id] == [one.entry_id for one in mind.owed], (
        "who asks does not wait for a model that takes facts"
    )
    await mind.rollback(second.entry_id)
    await mind.rollback(first.entry_id)
    assert 4 == len(await mind.facts())
    assert set(ids) < {one.entry_id for one in await mind.live()}


async def test_who_waited_for_a_rollback_does_not_finish_what_it_undid(mind: reflecting.Mind) -> None:
    """A run has seen a consolidation that is not completed; before its turn comes somebody finishes it, and undoes it."""
    ids = await mind.tell(*STORY, has_facts=False)
    cut = reflecting.over(mind.root, reflecting.Fuse(1))
    assert await reflecting.killed(cut.run())
    await mind.root.settled()
    narrative = await mind.narrative()
    async with mind.reflection._locks[mind.owner]:
        both = [asyncio.ensure_future(mind.reflection.complete(lambda _: True)) for _ in range(2)]
        running = asyncio.ensure_future(mind.run())
        for _ in range(50):
            await asyncio.sleep(0.002)
    await asyncio.gather(*both)
    await mind.rollback(narrative.entry_id)
    await running
    assert ids == [one.entry_id for one in await mind.live()]
    rows = [one.raw for one in await mind.live("cluster")]
    assert 1 == sum("**event**: completed" in one for one in rows)
    assert 1 == sum("**event**: restored" in one for one in rows)


@pytest.mark.parametrize("n_written", [0, 1, 2])
async def test_a_rollback_that_the_disk_stopped_goes_on_when_it_is_asked_for_again(
    mind: reflecting.Mind, n_written: int
) -> None:
    """Full at one of its writes: refused, with nothing lost; typed again, it is done, and says so."""
    ids = await mind.tell(*STORY)
    await mind.run()
    narrative = await mind.narrative()
    left = iter(range(n_written))

    def full(name: str) -> None:
        if name == "written" and next(left, None) is None:
            raise OSError(errno.ENOSPC, "no space left on device")

    context = mind.root.pen._context
    context.step = full
    try:
        with pytest.raises(errors.WriteRefused, match="no space"):
            await mind.rollback(narrative.entry_id)
    finally:
        context.step = file.no_step
    assert [] == [text for text in STORY if not any(text in said(one) for one in await mind.live())]
    done = await mind.rollback(narrative.entry_id)
    assert (tuple(ids), narrative.entry_id) == (done.restored, done.retired)
    assert ids == [one.entry_id for one in await mind.live()]
    assert 3 == len(await mind.facts())
