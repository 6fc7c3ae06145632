"""Consolidations undone: one, a chain of them, and what stands in the way."""

from __future__ import annotations

import asyncio
import errno
import itertools
from collections.abc import AsyncIterator, Iterable

import msgspec
import pytest
import pytest_asyncio

from everosd import errors, types
from everosd.cascade import verify
from everosd.log import entry, file
from everosd.reflection import finish, source
from everosd.search import query
from everosd.store import cluster, report, row, standing
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


async def test_R01_a_rollback_is_refused_while_a_file_does_not_parse(mind: reflecting.Mind) -> None:
    """Nothing is written, what was replaced stays so, the file is named; once it is mended the rollback does all of it."""
    ids = await mind.tell(*STORY)
    await mind.run()
    narrative = await mind.narrative()
    for one in (ids[0], (await mind.root.reader.children(mind.owner, [ids[1]], "atomic_fact"))[0].entry_id):
        path = (await mind.of(one)).path
        good = await mind.root.text(path)
        await mind.root.save(path, good.replace("entry_count:", "bad: [\nentry_count:", 1))
        await mind.root.settled()
        before = await asyncio.to_thread(mind.digest)
        with pytest.raises(errors.WriteRefused, match="does not parse") as caught:
            await mind.rollback(narrative.entry_id)
        assert path in str(caught.value)
        assert caught.value.line is not None
        assert caught.value.hint
        assert before == await asyncio.to_thread(mind.digest)
        assert [narrative.entry_id] == [one.entry_id for one in await mind.live()], (
            "a slip of the pen brings nothing back"
        )
        assert () == (await verify.verify(mind.root.node.cascade)).differences
        await mind.root.save(path, good)
        await mind.root.settled()
    assert tuple(ids) == (await mind.rollback(narrative.entry_id)).restored
    assert 3 == len(await mind.facts())


async def test_R01_a_file_that_breaks_during_a_rollback_is_finished_later(mind: reflecting.Mind) -> None:
    """The error says that it is done and what is left, the status names it; sources live; mended, the next run finishes."""
    ids = await mind.tell(*STORY)
    await mind.run()
    narrative = await mind.narrative()
    told = await mind.report_of(narrative.entry_id)
    path = (await mind.of(ids[0])).path
    good = await mind.root.text(path)
    cut = reflecting.over(mind.root, reflecting.Fuse(1))
    assert await reflecting.killed(cut.reflection.rollback(told))
    await mind.root.save(path, good.replace("entry_count:", "bad: [\nentry_count:", 1))
    await mind.root.settled()
    with pytest.raises(errors.WriteRefused, match=r"rolled back, and what is left .* by itself"):
        await mind.rollback(narrative.entry_id)
    assert set(ids) < {one.entry_id for one in await mind.live()}, "the narrative stands in the same file"
    assert 3 <= len(await mind.facts())
    assert "rolled_back" == (await mind.report_of(narrative.entry_id)).status
    assert any(told.report_id in one.reason for one in mind.root.node.cascade.status().problems)
    await mind.root.save(path, good)
    await mind.root.settled()
    assert "1 consolidation finished" in (await mind.run()).note
    assert ids == [one.entry_id for one in await mind.live()]
    assert not any(told.report_id in one.reason for one in mind.root.node.cascade.status().problems)
    assert f": {narrative.entry_id}\n" not in await mind.root.text(path)


async def test_M10_files_that_come_back_after_a_rollback_hide_nothing(mind: reflecting.Mind) -> None:
    """Episodes and facts as they were while merged, put back by a sync: the sources live on, and no narrative beside them."""
    ids = await mind.tell(*STORY)
    await mind.run()
    narrative = await mind.narrative()
    paths = {(await mind.of(one)).path for one in ids}
    paths |= {one.path for one in await mind.root.reader.children(mind.owner, ids, "atomic_fact")}
    old = {path: await mind.root.text(path) for path in paths if (await mind.of(narrative.entry_id)).path != path}
    assert all(narrative.entry_id in text for text in old.values())
    await mind.rollback(narrative.entry_id)
    for path, text in old.items():
        await mind.root.save(path, text)
    await mind.root.settled()
    assert ids == [one.entry_id for one in await mind.live()]
    assert 3 == len([one for one in await mind.live("atomic_fact") if one.parent_id in ids])
    assert () == (await verify.verify(mind.root.node.cascade)).differences


async def test_R01_a_rollback_takes_out_pointers_that_the_ledger_has_not_read(
    mind: reflecting.Mind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A merge of many facts was undone at once, and most of them were gone for good."""
    await mind.tell(*STORY)
    await mind.run()
    narrative = await mind.narrative()

    async def knows_nothing(*_: object) -> list[object]:
        return []

    monkeypatch.setattr(standing, "pointing", knows_nothing)
    await mind.rollback(narrative.entry_id)
    texts = [path.read_text() for path in mind.root.path.rglob("*.md") if mind.owner.id in path.parts]
    assert not any(f": {narrative.entry_id}\n" in text.partition("\n---\n")[0] for text in texts)
    assert 3 == len(await mind.facts())


async def test_R01_old_facts_are_out_of_the_ledger_when_a_run_is_over(
    mind: reflecting.Mind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the ledger knows that they are replaced there is no row that says so."""
    ids = await mind.tell(*STORY)
    facts = [one.entry_id for one in await mind.root.reader.children(mind.owner, ids, "atomic_fact")]
    waited: list[set[str]] = []
    real = finish.Finish._until_deprecated

    async def noted(self: finish.Finish, narrative: row.EntryRow, replaced: Iterable[str]) -> None:
        waited.append(set(replaced))
        await real(self, narrative, waited[-1])

    monkeypatch.setattr(finish.Finish, "_until_deprecated", noted)
    await mind.run()
    assert [set(ids), set(facts)] == waited


async def test_two_reports_of_one_narrative_are_told_apart(mind: reflecting.Mind) -> None:
    """A person copies a row under another id: the one that does not count is refused by the name of the one that does."""
    ids = await mind.tell(*STORY, has_facts=False)
    await mind.run()
    narrative = await mind.narrative()
    (real,) = [one for one in await mind.reports() if one.owner == mind.owner]
    fields = {
        "timestamp": "2026-01-01T00:00:00+00:00",
        "event": "completed",
        "cluster_id": CLUSTER,
        "report_id": "7" * 32,
        "source_members": "[]",
        "merged_entry_id": narrative.entry_id,
    }
    await mind.root.pen.append(mind.owner, "cluster", [entry.Draft(fields=fields)])
    await mind.root.settled()
    (copied,) = [one for one in await mind.reports() if one.report_id == "7" * 32]
    with pytest.raises(errors.Conflict, match=real.report_id) as caught:
        await mind.reflection.rollback(copied)
    assert real.report_id in caught.value.hint
    assert tuple(ids) == (await mind.reflection.rollback(real)).restored


async def test_O10_a_run_on_a_full_disk_fails_and_says_why(mind: reflecting.Mind) -> None:
    """It is no success with something in a log: the engine tries again, and nothing is lost."""
    ids = await mind.tell(*STORY, has_facts=False)

    def full(name: str) -> None:
        if name == "written":
            raise OSError(errno.ENOSPC, "no space left on device")

    context = mind.root.pen._context
    context.step = full
    try:
        with pytest.raises(errors.WriteRefused, match="no space"):
            await mind.run()
    finally:
        context.step = file.no_step
    assert ids == [one.entry_id for one in await mind.live()]
    mind.merging.error = errors.StoreRefused("system.db: no space left on the disk")
    with pytest.raises(errors.StoreRefused, match="no space"):
        await mind.run()
    mind.merging.error = None
    assert "1 cluster consolidated (3 fragments)" == (await mind.run()).note


async def test_M10_a_narrative_that_is_deleted_takes_its_facts_along(mind: reflecting.Mind) -> None:
    """By hand, one entry of its file: facts are found once, those of the sources that live again; put back, the narrative's."""
    mind.owner = msgspec.structs.replace(mind.owner, app="deleting")
    ids = await mind.tell(*STORY)
    await mind.run()
    narrative = await mind.narrative()

    async def parents() -> list[str]:
        await mind.root.settled()
        asked = query.Query(
            owner=mind.owner, text="Andrew dog Toby", method="keyword", kinds=("atomic_fact",), top_k=20
        )
        return sorted(hit.row.parent_id for hit in (await mind.root.node.search.run(asked)).facts)

    assert [narrative.entry_id] * 3 == await parents()
    text = await mind.root.text(narrative.path)
    start, end = f"<!-- entry:{narrative.entry_id} -->", f"<!-- /entry:{narrative.entry_id} -->\n"
    await mind.root.save(narrative.path, text[: text.index(start)] + text.partition(end)[2])
    await mind.root.settled()
    assert ids == await parents()
    await mind.root.save(narrative.path, text)
    assert [narrative.entry_id] * 3 == await parents()


async def test_O10_a_rollback_is_refused_before_anything_is_written_where_a_file_is_write_protected(
    mind: reflecting.Mind,
) -> None:
    """Nothing is half done: the narrative stands until the file can be written."""
    ids = await mind.tell(*STORY)
    await mind.run()
    narrative = await mind.narrative()
    fact = (await mind.root.reader.children(mind.owner, [ids[0]], "atomic_fact"))[0]
    path = mind.root.path / fact.path
    await asyncio.to_thread(path.chmod, 0o400)
    before = await asyncio.to_thread(mind.digest)
    with pytest.raises(errors.WriteRefused, match="write-protected"):
        await mind.rollback(narrative.entry_id)
    assert before == await asyncio.to_thread(mind.digest)
    await asyncio.to_thread(path.chmod, 0o600)
    assert tuple(ids) == (await mind.rollback(narrative.entry_id)).restored
