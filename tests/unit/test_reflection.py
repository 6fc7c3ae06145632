"""Consolidations over a real root: what a run leaves behind, what it leaves alone, and that it can be repeated."""

from __future__ import annotations

import asyncio
import errno
import itertools
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import msgspec
import pytest
import pytest_asyncio
import structlog

from everosd import errors, types
from everosd.cascade import verify
from everosd.engine import strategy
from everosd.log import entry, file
from everosd.models import chat, prompt
from everosd.narrative import extractive, merge, spoken
from everosd.narrative import source as texts
from everosd.reflection import lag, merges, source
from everosd.search import query
from everosd.store import cluster, row
from tests import chat_stub, effort, open_root, reflecting
from tests.reflecting import CLUSTER, STORY, said

NUMBERS = itertools.count(1)
PROMPTS = {name: prompt.load(name, [merge.PROMPTS]) for name in (merge.NAME, merge.REPAIR)}

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def root(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[open_root.Root]:
    """Return a root that is open for all tests of this module."""
    async with open_root.opened(tmp_path_factory.mktemp("reflection")) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="module")
async def mind(root: open_root.Root) -> AsyncIterator[reflecting.Mind]:
    """Return a new person in it; what a test leaves undone is done afterwards, so that the next one has the run to itself."""
    made = reflecting.over(root)
    made.owner = msgspec.structs.replace(made.owner, id=f"u_{next(NUMBERS)}")
    yield made
    await reflecting.over(root).run()


async def members(mind: reflecting.Mind) -> list[str]:
    """Return the ids of the live members of the cluster."""
    found = await cluster.members(mind.root.reader, mind.owner, CLUSTER)
    return [one.entry_id for one in found if one.status == "active"]


async def found(mind: reflecting.Mind, text: str, **fields: object) -> list[str]:
    """Return the Episodes that a search finds, best first, as things stand."""
    asked = query.Query(owner=mind.owner, text=text, method="keyword", **fields)  # type: ignore[arg-type]
    return [hit.row.entry_id for hit in (await mind.root.node.search.run(asked)).episodes]


async def edit(mind: reflecting.Mind, entry_id: str, old: str, new: str) -> None:
    """Edit an entry as a person does."""
    await mind.root.edit((await mind.of(entry_id)).path, old, new)


async def test_a_cluster_becomes_one_narrative(mind: reflecting.Mind) -> None:
    """Three fragments: one Episode with all of them, which names what it replaced; its facts live, theirs do not."""
    ids = await mind.tell(*STORY)
    before = {one.entry_id for one in await mind.live("atomic_fact")}
    done = await mind.run()
    assert "1 cluster consolidated (3 fragments)" == done.note
    narrative = await mind.narrative()
    assert [narrative] == await mind.live()
    seen = source.episode(narrative)
    assert ("cluster", CLUSTER, None, ()) == (
        narrative.parent_type, narrative.parent_id, narrative.session_id, narrative.sender_ids
    )  # fmt: skip
    assert "\n".join(STORY) == seen.content
    assert ("init", 3, "scripted", tuple(ids)) == (seen.mode, seen.source_count, seen.extracted_by, seen.read_from)
    assert tuple(ids) == tuple(entry_id for entry_id, _ in source.replaced(narrative))
    assert "2026-03-03T12:00:00+00:00" == seen.timestamp
    assert not source.is_edited(narrative)
    assert [narrative.entry_id] * 3 == [(await mind.of(each)).deprecated_by for each in ids]
    facts = await mind.live("atomic_fact")
    assert {narrative.entry_id} == {one.parent_id for one in facts}
    assert 3 == len(facts)
    assert {narrative.entry_id} == {(await mind.of(each)).deprecated_by for each in before}
    told = await mind.report_of(narrative.entry_id)
    assert (CLUSTER, "init", 3, 3, "completed") == (
        told.cluster_id, told.mode, told.source_count, told.deprecated_fact_count, told.status
    )  # fmt: skip
    assert ids == [one.member_id for one in told.source_members]
    assert source.replaced(narrative) == told.sources
    assert [narrative.entry_id] == await members(mind)
    assert () == (await verify.verify(mind.root.node.cascade)).differences


async def test_M07_a_search_right_after_finds_the_narrative_alone(mind: reflecting.Mind) -> None:
    """No wait in between: the run ends when a search shows what it did, and the same after an undo."""
    ids = await mind.tell(*STORY, has_facts=False)
    await mind.run()
    states = mind.root.node.cascade.projection_states().values()
    assert min(one.lsn for one in states) >= await mind.root.reader.lsn()
    narrative = await mind.root.reader.find(mind.owner, (await found(mind, "Andrew"))[0])
    assert narrative is not None
    assert [narrative.entry_id] == await found(mind, "Andrew")
    await mind.rollback(narrative.entry_id)
    assert set(ids) == set(await found(mind, "Andrew"))


async def test_a_second_run_without_new_members_writes_nothing(mind: reflecting.Mind) -> None:
    """Nothing to do: not a byte of the log changes, and no model is asked."""
    await mind.tell(*STORY, has_facts=False)
    await mind.run()
    before = await asyncio.to_thread(mind.digest)
    assert (await mind.run()).note.startswith("nothing to consolidate")
    assert before == await asyncio.to_thread(mind.digest)
    assert 1 == len(mind.merging.asked)


async def test_a_new_fragment_updates_the_narrative(mind: reflecting.Mind) -> None:
    """The old narrative is replaced by the new one, which counts it among its sources; older pointers are as they were."""
    ids = await mind.tell(*STORY)
    await mind.run()
    first = await mind.narrative()
    (new,) = await mind.tell("Andrew now lives in Bergen.", day=9)
    assert "1 cluster consolidated (1 fragment)" == (await mind.run()).note
    second = await mind.narrative()
    assert [second] == await mind.live()
    assert [*STORY, "Andrew now lives in Bergen."] == said(second).splitlines()
    told = await mind.report_of(second.entry_id)
    assert ("update", 2) == (told.mode, told.source_count)
    assert {first.entry_id, new} == {one.member_id for one in told.source_members}
    assert (*ids, new) == mind.merging.asked[-1] == source.episode(second).read_from
    assert {first.entry_id} == {(await mind.of(each)).deprecated_by for each in ids}
    assert second.entry_id == (await mind.of(first.entry_id)).deprecated_by
    assert 4 == len(await mind.facts())
    assert () == (await verify.verify(mind.root.node.cascade)).differences


async def test_updates_in_a_row_keep_every_value_with_the_present_one_last(mind: reflecting.Mind) -> None:
    """The rent changes each month, and a model drops one statement of each answer: none is lost, and each has a live fact."""

    def dropping(asked: chat_stub.Asked) -> dict[str, str]:
        whole = chat_stub.sensible(asked)
        assert isinstance(whole, dict)
        told = [one for part in whole["content"].splitlines() for one in spoken.sentences(part) if "rent" in one]
        told.pop(len(told) // 2)
        return {"subject": "Mara's flat", "content": " ".join(told)}

    values = [f"The rent of Mara is {400 + 10 * month} euros." for month in range(effort.rounds(11, 5))]
    with chat_stub.ChatStub(answers={merge.NAME: dropping, merge.REPAIR: dropping}) as stub:
        model = chat.Chat(
            msgspec.structs.replace(mind.root.node.config.llm, model="stub", base_url=stub.url), mind.root.node.clock
        )
        mind.merging = merge.ByModel(model, PROMPTS.__getitem__)  # type: ignore[assignment]
        for month, value in enumerate(values):
            await mind.tell(value, day=1 + month)
            await mind.run()
        await model.close()
    narrative = await mind.narrative()
    assert [narrative] == await mind.live()
    told, _, details = said(narrative).partition(spoken.DETAILS)
    assert [1] * len(values) == [said(narrative).count(value) for value in values]
    for part in (told, details):
        at = [part.index(value) for value in values if value in part]
        assert sorted(at) == at, "in the order of time, the present one last"
    dated = [line.removeprefix("- ") for line in details.splitlines() if line.strip()]
    assert [f"2026-03-{values.index(line[12:]) + 1:02}: {line[12:]}" for line in dated] == dated
    facts = await mind.facts()
    assert [] == [value for value in values if not any(value.rstrip(".") in one for one in facts)]
    assert len(values) == len(source.episode(narrative).read_from)


async def test_what_a_person_adds_to_a_narrative_stays_in_it(mind: reflecting.Mind) -> None:
    """Its originals would take the edit back: it is read instead of them, and its statements are the latest."""
    await mind.tell(*STORY, has_facts=False)
    await mind.run()
    first = await mind.narrative()
    await edit(mind, first.entry_id, "### Content\n", "### Content\nBuddy is a cat.\n")
    await mind.root.settled()
    assert source.is_edited(await mind.of(first.entry_id))
    await mind.tell("Andrew now lives in Bergen.", day=9, has_facts=False)
    read: list[tuple[str, bool]] = []

    async def look(sources: Sequence[texts.Source]) -> None:
        read.extend((one.entry_id, one.is_latest) for one in sources)

    mind.merging.before = look
    await mind.run()
    assert (first.entry_id, True) in read
    assert 2 == len(read)
    assert "Buddy is a cat." in said(await mind.narrative())


async def test_C07_an_edit_during_the_merge_is_in_the_narrative(mind: reflecting.Mind) -> None:
    """The model thinks while a person edits a source: it is asked again, about the new text."""
    ids = await mind.tell(*STORY, has_facts=False)

    async def save(_: Sequence[texts.Source]) -> None:
        if len(mind.merging.asked) == 1:
            await edit(mind, ids[1], "named Toby", "named Tobias")

    mind.merging.before = save
    await mind.run()
    narrative = await mind.narrative()
    assert 2 == len(mind.merging.asked)
    assert "Tobias" in said(narrative)
    assert [narrative] == await mind.live()
    digests = dict(source.replaced(narrative))
    assert [digests[each] for each in ids] == [source.digest(await mind.of(each)) for each in ids]


async def test_C07_an_edit_after_the_commit_stays_live(mind: reflecting.Mind) -> None:
    """Saved between the append and the deprecation: nothing is deprecated against an old text, and the next merge takes it in."""
    ids = await mind.tell(*STORY, has_facts=False)

    async def save() -> None:
        mind.at_facts = None
        await edit(mind, ids[1], "named Toby", "named Tobias")

    mind.at_facts = save
    await mind.run(is_stopping=lambda: len(mind.merging.asked) > 0)
    narrative = await mind.narrative()
    assert {narrative.entry_id, ids[1]} == {one.entry_id for one in await mind.live()}
    assert {narrative.entry_id, ids[1]} == set(await members(mind))
    told = await mind.report_of(narrative.entry_id)
    assert [ids[0], ids[2]] == [one.member_id for one in told.source_members]
    assert 2 == told.source_count
    await mind.run()
    assert "Tobias" in said(await mind.narrative())
    assert 1 == len(await mind.live())


async def test_C07_a_cluster_that_is_edited_all_the_time_is_left_for_the_next_run(mind: reflecting.Mind) -> None:
    """Planned a few times, then skipped; the sources are as they were, and the text of the person too."""
    ids = await mind.tell(*STORY, has_facts=False)

    async def save(_: Sequence[texts.Source]) -> None:
        await edit(mind, ids[2], "Andrew also", "Andrew also also")

    mind.merging.before = save
    done = await mind.run()
    assert merges.N_PLANS == len(mind.merging.asked)
    assert "1 skipped: its Episodes were edited" in done.note
    assert set(ids) == {one.entry_id for one in await mind.live()}
    assert "also " * merges.N_PLANS in said(await mind.of(ids[2]))


async def test_R02_a_cluster_of_hundreds_is_merged_in_batches(mind: reflecting.Mind) -> None:
    """No merge is shown more than fits, each is committed before the next, and one live Episode is left."""
    number = effort.rounds(300, 30)
    owner = mind.owner
    drafts = [
        entry.Draft(
            fields={"timestamp": f"2026-03-01T{nth // 60:02}:{nth % 60:02}:00+00:00", "parent_type": "memcell"},
            sections=(("Subject", "Tea"), ("Content", f"Mara drank tea number {nth:04}.")),
        )
        for nth in range(number)
    ]
    ids = await mind.root.pen.append(owner, "episode", drafts)
    rows = [
        entry.Draft(fields={"event": "joined", "cluster_id": CLUSTER, "member_id": each, "member_type": "episode"})
        for each in ids
    ]
    await mind.root.pen.append(owner, "cluster", rows)
    await mind.root.settled()
    mind.wants_facts = False
    calls: list[int] = []

    class Narrow(reflecting.Scripted):
        def n_fitting(self, sources: Sequence[texts.Source]) -> int:
            return min(10, len(sources))

        async def merge(self, sources: Sequence[texts.Source]) -> texts.Narrative:
            calls.append(len(sources))
            return await super().merge(sources)

    mind.merging = Narrow()
    await mind.run()
    narrative = await mind.narrative()
    assert [narrative] == await mind.live()
    assert max(calls) <= 10
    assert number == len(said(narrative).splitlines())
    mine = [one for one in await mind.reports() if one.owner == owner]
    assert len(calls) == len(mine)
    assert {"init", "update"} == {one.mode for one in mine}


async def test_R03_a_changed_mind_is_live_and_the_old_one_is_kept(mind: reflecting.Mind) -> None:
    """'I love X' then 'I hate X': the narrative ends on the latest, the old Episode links to it; never neither."""
    mind.merging = extractive.Extractive(8000)  # type: ignore[assignment]
    ids = await mind.tell("Mara: I love opera.", "Mara: I hate opera now.")
    await mind.run()
    narrative = await mind.narrative()
    assert [narrative.entry_id] == await found(mind, "opera")
    text = said(narrative)
    assert text.index("I love opera") < text.index("I hate opera now")
    assert text.rstrip().endswith("I hate opera now.")
    assert {narrative.entry_id} == {(await mind.of(each)).deprecated_by for each in ids}
    assert {*ids, narrative.entry_id} == set(await found(mind, "opera", statuses=("active", "deprecated")))


async def test_no_model_skips_and_logs_every_cluster(mind: reflecting.Mind) -> None:
    """The run succeeds, the log names the clusters, and nothing is written."""
    await mind.tell(*STORY, has_facts=False)
    await mind.tell("a b", "c d", cluster="cl_000000000001", has_facts=False)
    mind.merging.is_set_up = False
    before = await asyncio.to_thread(mind.digest)
    with structlog.testing.capture_logs() as logged:
        done = await mind.run()
    assert f"2 skipped: {merges.NO_MODEL}" == done.note
    assert [True, True] == [one["is_away"] for one in cast("dict[str, Any]", done.detail)["skipped"]]
    skipped = {one["cluster_id"] for one in logged if one["event"] == "cluster_skipped"}
    assert {CLUSTER, "cl_000000000001"} == skipped
    assert before == await asyncio.to_thread(mind.digest)


async def test_a_model_that_is_away_is_not_asked_about_everything(mind: reflecting.Mind) -> None:
    """Two clusters without an answer: the others are skipped without being tried; the run succeeds."""
    for nth in range(5):
        await mind.tell("a b", "c d", cluster=f"cl_00000000000{nth}", has_facts=False)
    mind.merging.error = errors.LLMUnavailable("scripted", "is away")
    done = await mind.run()
    assert "5 skipped: scripted: is away" == done.note
    assert 2 == len(mind.merging.asked)


async def test_R06_a_narrative_with_inventions_is_not_stored(mind: reflecting.Mind) -> None:
    """The cluster is skipped and logged; the others are consolidated; the next run begins with those that may succeed."""
    ids = await mind.tell(*STORY, has_facts=False)
    await mind.tell("a b", "c d", cluster="cl_000000000001", has_facts=False)
    check = texts.Check(inventions=("Rex",), n_statements=3, n_covered=2)
    refusal = texts.Refused("scripted", "says what no source says", check)

    async def invent(sources: Sequence[texts.Source]) -> None:
        if sources[0].entry_id == ids[0]:
            raise refusal

    mind.merging.before = invent
    done = await mind.run()
    assert "1 cluster consolidated (2 fragments), 1 skipped: says what no source says" == done.note
    (skipped,) = cast("dict[str, Any]", done.detail)["skipped"]
    assert (mind.owner.id, CLUSTER, False) == (skipped["owner_id"], skipped["cluster_id"], skipped["is_away"])
    assert "invented: Rex" in skipped["check"]
    assert "topic" in skipped
    assert set(ids) <= {one.entry_id for one in await mind.live()}
    await mind.tell("e f", "g h", cluster="cl_000000000002", has_facts=False)
    mind.settings = msgspec.structs.replace(mind.settings, clusters_per_run=1)
    mind.merging.asked.clear()
    await mind.run()
    assert ids[0] not in mind.merging.asked[0]


async def test_at_most_so_many_clusters_of_each_owner_the_largest_first(mind: reflecting.Mind) -> None:
    """The others are left for the next run."""
    mind.settings = msgspec.structs.replace(mind.settings, clusters_per_run=2)
    for nth, number in enumerate((2, 4, 3)):
        await mind.tell(*("x y" for _ in range(number)), cluster=f"cl_00000000000{nth}", has_facts=False)
    await mind.run()
    assert [4, 3] == [len(one) for one in mind.merging.asked]
    await mind.run()
    assert [4, 3, 2] == [len(one) for one in mind.merging.asked]


async def test_a_fault_at_one_owner_does_not_stop_the_next(mind: reflecting.Mind) -> None:
    """An error that nobody thought of: logged and counted; the same name in another app and project has its turn."""
    other = msgspec.structs.replace(mind.owner, app="work", project="notes")
    ids = await mind.tell(*STORY, has_facts=False)
    await mind.tell("a b", "c d", owner=other, has_facts=False)

    async def fail(sources: Sequence[texts.Source]) -> None:
        if sources[0].entry_id == ids[0] and len(sources) == 3:
            message = "nobody thought of this"
            raise ZeroDivisionError(message)

    mind.merging.before = fail
    with structlog.testing.capture_logs() as logged:
        done = await mind.run()
    assert done.note.startswith("1 cluster consolidated (2 fragments), 1 failed: ZeroDivisionError in ")
    assert "nobody" not in done.note
    assert [mind.owner.id] == [one["owner"] for one in logged if one["event"] == "consolidation_failed"]
    assert 1 == len(await mind.live(owner=other))


async def test_a_stop_ends_the_run_between_two_clusters(mind: reflecting.Mind) -> None:
    """What is under way is finished, the rest is the next run's."""
    for nth in range(3):
        await mind.tell("a b", "c d", cluster=f"cl_00000000000{nth}", has_facts=False)
    done = await mind.run(is_stopping=lambda: len(mind.merging.asked) > 0)
    assert 1 == len(mind.merging.asked)
    assert done.note.endswith("the next run does the rest")
    await mind.run()
    assert 3 == len(mind.merging.asked)


async def test_O03_a_run_that_is_cut_off_leaves_nothing_or_all_of_it(mind: reflecting.Mind) -> None:
    """Cancelled while the model thinks: nothing is written. Cancelled at the append: it ends by itself, once, and is finished."""
    await mind.tell(*STORY, has_facts=False)
    before = await asyncio.to_thread(mind.digest)
    thinking, for_ever = asyncio.Event(), asyncio.Event()

    async def think(_: Sequence[texts.Source]) -> None:
        thinking.set()
        await for_ever.wait()

    mind.merging.before = think
    running = asyncio.ensure_future(mind.run())
    await thinking.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert before == await asyncio.to_thread(mind.digest)
    mind.merging.before = None
    running = asyncio.ensure_future(mind.run())
    while not mind.reflection._commit._appending:  # noqa: ASYNC110  # the very moment
        await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await mind.run()
    assert [await mind.narrative()] == await mind.live()
    assert 2 == len(mind.merging.asked)


@pytest.mark.parametrize("error", [errors.LLMUnavailable("scripted", "is away"), IndexError("nobody thought of this")])
async def test_facts_are_taken_later_where_that_fails(mind: reflecting.Mind, error: Exception) -> None:
    """The sources are replaced all the same, and their facts with them."""
    await mind.tell(*STORY)
    mind.fails_facts = error
    await mind.run()
    narrative = await mind.narrative()
    assert [] == await mind.facts()
    assert [narrative.entry_id] == [one.entry_id for one in mind.owed]


async def test_no_facts_are_taken_where_that_strategy_is_off(mind: reflecting.Mind) -> None:
    """Those of the sources are deprecated with them."""
    await mind.tell(*STORY)
    mind.wants_facts = False
    await mind.run()
    assert [] == await mind.facts()
    assert [] == mind.owed


async def test_M05_an_entry_that_a_person_revives_leaves_its_cluster(mind: reflecting.Mind) -> None:
    """Its key is taken out: it is live again, stays so over runs, and is merged into nothing."""
    ids = await mind.tell(*STORY, has_facts=False)
    await mind.run()
    narrative = await mind.narrative()
    await edit(mind, ids[0], f"  {ids[0]}: {narrative.entry_id}\n", "")
    assert {narrative.entry_id, ids[0]} == {one.entry_id for one in await mind.live()}
    assert [narrative.entry_id] == await members(mind)
    await mind.run()
    assert "" == await mind.reflection.recover()
    assert {narrative.entry_id, ids[0]} == {one.entry_id for one in await mind.live()}
    await edit(mind, ids[1], "deprecated_entries:\n", f"deprecated_entries:\n  {ids[0]}: {narrative.entry_id}\n")
    assert [narrative.entry_id] == [one.entry_id for one in await mind.live()]


async def test_a_deleted_narrative_revives_what_it_replaced(mind: reflecting.Mind) -> None:
    """Its text is taken out of the file: the sources are live, and no run deprecates them against nothing."""
    ids = await mind.tell(*STORY, has_facts=False)
    await mind.run()
    narrative = await mind.narrative()
    text = await mind.root.text(narrative.path)
    start = text.index(f"<!-- entry:{narrative.entry_id} -->")
    end = text.index(f"<!-- /entry:{narrative.entry_id} -->") + len(f"<!-- /entry:{narrative.entry_id} -->\n")
    await mind.root.save(narrative.path, text[:start] + text[end:])
    assert set(ids) == {one.entry_id for one in await mind.live()}
    await mind.run()
    assert set(ids) == {one.entry_id for one in await mind.live()}


async def test_sources_that_are_deleted_right_after_the_commit_hold_nothing_up(mind: reflecting.Mind) -> None:
    """Nothing is left to be deprecated: the narrative has their statements, and the consolidation is completed."""
    await mind.tell(*STORY, has_facts=False)
    (path,) = {one.path for one in await mind.live()}
    before = await mind.root.text(path)

    async def delete() -> None:
        mind.at_facts = None
        now = await mind.root.text(path)
        start = now.index("<!-- entry:")
        end = now.rindex("<!-- entry:")
        await mind.root.save(path, now[:start] + now[end:])
        await mind.root.settled()

    mind.at_facts = delete
    await mind.run()
    narrative = await mind.narrative()
    assert [narrative] == await mind.live()
    told = await mind.report_of(narrative.entry_id)
    assert ("completed", 0, ()) == (told.status, told.source_count, told.source_members)
    with pytest.raises(errors.Conflict, match="nothing of what"):
        await mind.rollback(narrative.entry_id)
    assert before != await mind.root.text(path)
    assert (await mind.run()).note.startswith("nothing to consolidate")


async def test_forgetting_an_owner_ends_what_is_under_way_for_them(mind: reflecting.Mind) -> None:
    """The model is thinking about their Episodes: nothing comes of it, and the next owner's turn comes."""
    other = msgspec.structs.replace(mind.owner, id=f"{mind.owner.id}_z")
    ids = await mind.tell(*STORY, has_facts=False)
    await mind.tell("a b", "c d", owner=other, has_facts=False)
    thinking, for_ever = asyncio.Event(), asyncio.Event()

    async def think(sources: Sequence[texts.Source]) -> None:
        if len(sources) == 3:
            thinking.set()
            await for_ever.wait()

    mind.merging.before = think
    running = asyncio.ensure_future(mind.run())
    await thinking.wait()
    await mind.reflection.forget(mind.owner)
    await running
    assert set(ids) == {one.entry_id for one in await mind.live()}
    assert 1 == len(await mind.live(owner=other))


async def test_hand_text_and_single_entry_files_are_sources_like_any_other(mind: reflecting.Mind) -> None:
    """Their digests hold while their files get markers; the person's words are in the narrative."""
    folder = f"default_app/default_project/users/{mind.owner.id}/episodes"
    await mind.root.save(f"{folder}/episode-2026-02-01.md", "## A walk\n\nMara saw a heron by hand.\n")
    head = f"owner_id: {mind.owner.id}\ntimestamp: 2026-02-02T12:00:00+00:00\nparent_type: memcell\nparent_id: mc_1"
    single = f"---\n{head}\n---\n## Subject\nA swim\n\n## Content\nMara swam to the heron alone.\n"
    await mind.root.save(f"{folder}/episode-2026-02-02.md", single)
    ids = [one.entry_id for one in await mind.live()]
    assert 2 == len(ids)
    for each in ids:
        await mind.root.join(mind.owner, each, CLUSTER, "episode")
    await mind.root.settled()
    await mind.run()
    narrative = await mind.narrative()
    assert [narrative] == await mind.live()
    assert ["Mara saw a heron by hand.", "Mara swam to the heron alone."] == said(narrative).splitlines()
    digests = [at for _, at in source.replaced(narrative)]
    assert digests == [source.digest(await mind.of(each)) for each in ids]
    draft = entry.Draft(sections=(("Subject", "Later"), ("Content", "Mara slept.")))
    await mind.root.pen.append(mind.owner, "episode", [draft], date="2026-02-02")  # a daily log from now on
    await mind.root.settled()
    await mind.root.node.cascade.adopt()
    await mind.root.edit((await mind.of(ids[1])).path, "**parent_id**: mc_1", "**parent_id**: mc_2")
    await mind.root.settled()
    assert digests == [source.digest(await mind.of(each)) for each in ids]


async def test_a_source_in_a_file_that_cannot_be_rewritten_is_not_merged(mind: reflecting.Mind) -> None:
    """Broken frontmatter: it could not be deprecated, so nothing is put in its place; mended, it is."""
    await mind.tell(*STORY, has_facts=False)
    (path,) = {one.path for one in await mind.live()}
    text = await mind.root.text(path)
    await mind.root.save(path, text.replace("schema_version: 1", "schema_version: [1"))
    await mind.root.settled()
    done = await mind.run()
    assert "1 skipped:" in done.note
    assert [] == mind.merging.asked
    await mind.root.save(path, text)
    await mind.root.settled()
    await mind.run()
    assert 1 == len(await mind.live())


async def test_facts_that_are_taken_while_their_episode_is_replaced_go_with_it(mind: reflecting.Mind) -> None:
    """The model that takes facts of a source is slow: when they are written, the source is not what is searched any more."""
    ids = await mind.tell(*STORY, has_facts=False)
    with chat_stub.ChatStub(is_hanging=True) as stub:
        settings = msgspec.structs.replace(mind.root.node.config.llm, model="stub", base_url=stub.url)
        slow = chat.Chat(settings, mind.root.node.clock)
        event = strategy.Event(topic="episode_written", owner=mind.owner, subject=ids[1])
        taking = asyncio.ensure_future(reflecting.facts_of(mind.root, slow).run(event))
        while not stub.n_under_way:  # noqa: ASYNC110  # a thread decides
            await asyncio.sleep(0.01)
        await mind.run()
        before = await mind.facts()
        stub.is_hanging = False
        note = await taking
        await slow.close()
    narrative = await mind.narrative()
    assert f"the Episode was replaced by {narrative.entry_id} meanwhile, and its facts with it" == note
    assert before == await mind.facts()
    late = await mind.root.reader.children(mind.owner, [ids[1]], "atomic_fact")
    assert {narrative.entry_id} == {one.deprecated_by for one in late}


@pytest.mark.parametrize("n_written", [0, 1, 2, 3])
async def test_O10_a_full_disk_harms_nothing_and_is_got_over(mind: reflecting.Mind, n_written: int) -> None:
    """At the append or after it: the run fails, with the reason, and the next one does, or finishes, what is left."""
    ids = await mind.tell(*STORY)
    done: list[str] = []

    def full(name: str) -> None:
        if name == "written":
            done.append(name)
            if len(done) > n_written:
                raise OSError(errno.ENOSPC, "no space left on device")

    context = mind.root.pen._context
    context.step = full
    try:
        with pytest.raises(errors.WriteRefused, match="no space"):
            await mind.run()
    finally:
        context.step = file.no_step
    assert [] == [text for text in STORY if not any(text in said(one) for one in await mind.live())]
    await mind.run()
    assert [await mind.narrative()] == await mind.live()
    assert 1 + (not n_written) == len(mind.merging.asked)
    assert 3 == len(await mind.facts())
    assert set(ids) == {one for one, _ in source.replaced(await mind.narrative())}


async def test_a_narrative_that_the_ledger_is_slow_to_read_is_waited_for(
    mind: reflecting.Mind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long that takes, nothing is merged a second time; one that somebody has deleted is not waited for."""
    await mind.tell(*STORY, has_facts=False)
    is_behind = True
    find = mind.root.reader.find

    async def behind(owner: types.Owner, entry_id: str) -> row.EntryRow | None:
        one = await find(owner, entry_id)
        return None if is_behind and one is not None and source.is_narrative(one) else one

    monkeypatch.setattr(mind.root.reader, "find", behind)
    monkeypatch.setattr(lag, "PATIENCE_S", 0.1)
    with pytest.raises(errors.StoreError, match="has not read"):
        await mind.run()
    (unseen,) = mind.reflection._commit._unseen
    with pytest.raises(errors.StoreError, match=unseen.entry_id):
        await mind.run()
    assert 1 == len(mind.merging.asked)
    is_behind = False
    await mind.run()
    assert [await mind.narrative()] == await mind.live()
    assert 1 == len(mind.merging.asked)
    assert [] == mind.reflection._commit._unseen
    mind.reflection._commit._unseen = [msgspec.structs.replace(unseen, entry_id=types.EntryId("ep_20260101_00000099"))]
    await mind.run()
    assert [] == mind.reflection._commit._unseen
