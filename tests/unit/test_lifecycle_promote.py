"""Facts that recur: which gates they pass, what is written, and what is left alone."""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from everosd import config
from everosd.cascade import verify
from everosd.lifecycle import decisions, lineage, memory, outcome, overlay, promote, remember, update
from everosd.log import entry
from everosd.store import lifecycle as store
from tests import governed

FACT = "Mara lives in Ghent."
HOUR = dt.timedelta(hours=1)
SHIPPED = config.load(Path("/nowhere"), {}).lifecycle_promote


@pytest.fixture
async def life(tmp_path: Path) -> AsyncIterator[governed.Life]:
    """A root on a calendar, whose passes promote."""
    async with governed.living(tmp_path) as made:
        remembering = remember.Remembering(made.parts, update.Updates(made.parts))
        made.passes.consolidators["promote"] = promote.Promote(
            made.parts, remembering, lambda: made.settings.lifecycle_promote
        )
        yield made


async def say(life: governed.Life, n: int = 3, content: str = FACT, **fields: str) -> list[str]:
    """Write the same some times, an hour apart; return the ids."""
    ids = []
    for _ in range(n):
        life.calendar.at += HOUR
        ids.append(await life.remember(content=content, **fields))
    return ids


async def facts(life: governed.Life) -> list[store.Record]:
    """Return the promoted facts, whatever their status."""
    found = await store.records(life.root.reader, life.owner, memory_type="semantic", statuses=())
    return [one for one in found if one.semantic_key.startswith(promote.KEYS)]


async def seen(life: governed.Life, entry_id: str) -> tuple[str, str, tuple[str, ...]]:
    """Return subject, content and sources of a memory."""
    found = await life.root.reader.find(life.owner, entry_id)
    assert found is not None
    one = memory.seen_of(memory.of_row(found))
    return one.subject, one.content, one.sources


def reasons(found: outcome.Result) -> dict[str, str]:
    """Return why what was skipped was, by id."""
    return {one.id: one.reason for one in governed.decided(found, "promote") if one.decision == "skip"}


# -- gates -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "is_passed"),
    [
        ({"importance": [0.35] * 3}, True),
        ({"importance": [0.3, 0.35, 0.4]}, True),
        ({"importance": [0.35, 0.35, 0.349999]}, False),  # by less than a mean is told with
        ({"confidence": [0.6] * 3}, True),
        ({"confidence": [0.5, 0.6, 0.7]}, True),
        ({"confidence": [0.6, 0.6, 0.599]}, False),
        ({"importance": [0.5, 0.5]}, False),
        ({"importance": [0.5, 0.5, 0.5]}, True),
    ],
)
def test_gates_are_inclusive_at_their_edges(values: dict[str, list[float]], *, is_passed: bool) -> None:
    """Three occurrences, 0.35 and 0.6 on average pass; whatever is less does not, and the reason has both numbers."""
    n = len(next(iter(values.values())))
    records = [governed.record(**{name: some[at] for name, some in values.items()}) for at in range(n)]
    why = promote.gate(records, SHIPPED)
    assert is_passed == (not why), why
    if not is_passed:
        assert "needed" in why
        assert any(char.isdigit() for char in why)


def test_the_shipped_gates_are_three_occurrences_and_the_published_means() -> None:
    """3, 0.35, 0.6."""
    assert (3, 0.35, 0.6) == (SHIPPED.min_occurrences, SHIPPED.min_importance, SHIPPED.min_confidence)


def test_a_pattern_is_a_promotion_key_else_a_semantic_key_else_the_text() -> None:
    """At one path, for one audience; sessions do not matter, nor does spelling."""
    said = {"a": "Mara  lives in GHENT", "b": "mara lives in Ghent."}
    digests = {name: store.content_digest(text) for name, text in said.items()}

    def n(**other: object) -> int:
        return len(promote.grouped([governed.record(entry_id="a"), governed.record(entry_id="b", **other)], digests))

    assert 1 == n(session_id="s_2")
    assert [2, 2, 2, 2] == [n(path="else"), n(bucket="own"), n(scope="x"), n(team_id="t")]
    assert [2, 2] == [n(promotion_key="home"), n(semantic_key="home")]
    some = [
        governed.record(entry_id="a", promotion_key="k", semantic_key="x"),
        governed.record(entry_id="b", promotion_key="k"),
    ]
    assert ["k"] == [one.name for one in promote.grouped(some, {})]


# -- what is written ---------------------------------------------------------------------------------------------------


async def test_R09_what_clearly_passes_is_promoted_and_a_dry_run_says_the_same(life: governed.Life) -> None:
    """One semantic fact at the sources' path with their ids and range; they are superseded, and still there."""
    ids = await say(life, importance="0.8", confidence="0.9")
    other = await life.remember(content="Mara had soup.")
    before = governed.bytes_below(life.root.path)
    dry = await life.reflect("promote", is_dry_run=True)
    after = governed.bytes_below(life.root.path)
    assert all(".lifecycle/" in path for path in after if after[path] != before.get(path))
    assert [] == await facts(life)
    real = await life.reflect("promote")
    assert dry.actions == real.actions
    assert sorted(ids) == sorted(governed.applied(real, "promote"))
    (fact,) = await facts(life)
    assert [("promote", fact.entry_id, tuple(ids))] == [msgspec.structs.astuple(one) for one in real.written]
    assert ("semantic", "notes", "active") == (fact.memory_type, fact.path, fact.status)
    assert (0.8, 0.9) == (fact.importance, fact.confidence)
    assert (FACT, tuple(ids)) == (await seen(life, fact.entry_id))[1:]
    now = await life.all()
    assert {("superseded", fact.entry_id)} == {(now[one].status, now[one].successor) for one in ids}
    assert "active" == now[other].status
    told = await store.rows(life.root.reader, life.owner, actions=("supersede",))
    assert {real.run_id} == {one.fields["run_id"] for one in told}
    assert {one.id for one in told} <= set(real.audit_ids)
    texts = "\n".join(path.read_text() for path in (life.root.path / "default_app").rglob("episodic-*.md"))
    assert 3 == texts.count(FACT)


async def test_R09_zero_promotions_come_with_a_reason_for_every_candidate(life: governed.Life) -> None:
    """Too few, too unimportant, too uncertain: both numbers are in the reason."""
    few = await say(life, 2, "few")
    dull = await say(life, 3, "dull", importance="0.34")
    vague = await say(life, 3, "vague", confidence="0.59")
    found = await life.reflect("promote")
    assert 0 == found.n_applied
    said = reasons(found)
    assert {*few, *dull, *vague} == set(said)
    assert {"notes: 2 occurrences, 3 are needed"} == {said[one] for one in few}
    assert {"notes: mean importance 0.34, 0.35 is needed"} == {said[one] for one in dull}
    assert {"notes: mean confidence 0.59, 0.6 is needed"} == {said[one] for one in vague}


async def test_the_newest_wording_is_that_of_the_fact(life: governed.Life) -> None:
    """Under a key wordings differ; the metadata's key counts as one."""
    await say(life, 1, "Mara lives in Gent", promotion_key="home")
    await say(life, 1, "Mara lives near Ghent", metadata='{"promotion_key": "home"}')
    await say(life, 1, "Mara lives in Ghent, Belgium", promotion_key="home")
    await life.reflect("promote")
    (fact,) = await facts(life)
    assert "Mara lives in Ghent, Belgium" == (await seen(life, fact.entry_id))[1]
    assert "home" == fact.promotion_key


async def test_only_active_memories_of_the_window_count(life: governed.Life) -> None:
    """Neither expired ones, nor what is older than a day."""
    await say(life, 1)
    life.calendar.at += 24 * HOUR
    await say(life, 1, expires_at=(life.calendar.now() + 2 * HOUR).isoformat())
    await say(life, 2)
    found = await life.reflect("promote")
    assert (0, 2) == (found.n_applied, len(reasons(found)))
    week = decisions.Window(since_us=governed.START_US, until_us=life.parts.now_us())
    assert 3 == (await life.reflect("promote", window=week)).n_applied


async def test_what_recurs_again_updates_the_fact_and_keeps_its_version(life: governed.Life) -> None:
    """One fact for good, whose sources are all that there were."""
    first = await say(life, 3, "Mara is in Ghent", promotion_key="home")
    await life.reflect("promote")
    assert 0 == (await life.reflect("promote")).n_applied
    second = await say(life, 3, "Mara is in Rome", promotion_key="home")
    await life.reflect("promote")
    (fact,) = await facts(life)
    assert ("Mara is in Rome", (*first, *second)) == (await seen(life, fact.entry_id))[1:]
    assert 1 == fact.n_versions


async def test_episodes_of_conversations_are_promoted_too(life: governed.Life) -> None:
    """They are filed under nothing, so that their fact gets a path of its own."""
    drafts = [
        entry.Draft(
            fields={"timestamp": life.calendar.now().isoformat(), "owner_id": life.owner.id},
            sections=(("Subject", "Home"), ("Content", FACT)),
        )
        for _ in range(3)
    ]
    ids = await life.root.pen.append(life.owner, "episode", drafts)
    await life.root.settled()
    assert sorted(ids) == sorted(governed.applied(await life.reflect("promote"), "promote"))
    (fact,) = await facts(life)
    assert (promote.PATH, ("Home", FACT, tuple(ids))) == (fact.path, await seen(life, fact.entry_id))
    assert {"superseded"} == {(await life.look(one)).status for one in ids}


# -- what is left alone ------------------------------------------------------------------------------------------------


async def test_what_somebody_restored_is_not_superseded_again(life: governed.Life) -> None:
    """Undone stays undone, night after night."""
    ids = await say(life)
    await life.reflect("promote")
    await life.log("restore", ids[0], field="status", base="active", was="superseded", value="active")
    found = await life.reflect("promote")
    assert {ids[0]: "it was superseded before, and that was undone: it stays"} == reasons(found)
    assert "active" == (await life.look(ids[0])).status


async def test_a_fact_that_somebody_took_away_or_changed_stays_so(life: governed.Life) -> None:
    """Nothing brings it back but what was said since; nobody's wording is replaced."""
    ids = await say(life)
    await life.reflect("promote")
    (fact,) = await facts(life)
    await update.Updates(life.parts).update(life.owner, fact.entry_id, memory.Change(content="Mara lives in Rome."))
    more = await say(life)
    found = await life.reflect("promote")
    assert 0 == found.n_applied
    assert all("somebody has changed the fact" in reasons(found)[one] for one in more)
    assert "Mara lives in Rome." == (await seen(life, fact.entry_id))[1]
    await life.log("delete", fact.entry_id, field="status", base="active", was="active", value="deleted")
    found = await life.reflect("promote")
    assert 0 == found.n_applied
    assert all("somebody has taken away the fact" in reasons(found)[one] for one in more)
    life.calendar.at += 24 * HOUR
    again = await say(life)
    assert sorted(again) == sorted(governed.applied(await life.reflect("promote"), "promote"))
    assert ids


async def test_an_edit_while_the_pass_writes_keeps_its_memory(life: governed.Life) -> None:
    """The edited one stays; where the others are too few, nothing is promoted."""
    ids = await say(life)
    promoting = life.passes.consolidators["promote"]

    class Edited:
        async def plan(self, state: overlay.State, call: decisions.Call) -> decisions.Plan:
            made = await promoting.plan(state, call)
            await update.Updates(life.parts).update(life.owner, ids[1], memory.Change(content="Mara lives in Rome."))
            return made

    life.passes.consolidators["promote"] = Edited()
    found = await life.reflect("promote")
    assert (0, [], {"active"}) == (found.n_applied, await facts(life), {(await life.look(one)).status for one in ids})


async def test_a_text_that_was_removed_for_good_came_back_as_a_fact_that_had_waited_for_its_turn(
    life: governed.Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sources are looked at once more when nobody else writes any more: who came first has changed or removed one."""
    ids = await say(life)
    remembers = remember.Remembering.remember

    async def late(one: remember.Remembering, *given: Any, **named: Any) -> update.Written:
        await update.Updates(life.parts).update(life.owner, ids[-1], memory.Change(content="Mara lives in Rome."))
        return await remembers(one, *given, **named)

    monkeypatch.setattr(remember.Remembering, "remember", late)
    found = await life.reflect("promote")
    assert (0, [], {"active"}) == (found.n_applied, await facts(life), {(await life.look(one)).status for one in ids})


async def test_filters_and_other_owners_are_obeyed(life: governed.Life) -> None:
    """Only what fits is looked at."""
    await say(life)
    here = await say(life, path="work/atlas")
    found = await life.reflect("promote", filters=decisions.Filters(path="work%"))
    assert sorted(here) == sorted(one.id for one in governed.decided(found, "promote"))
    rob = msgspec.structs.replace(life.owner, id="u_rob")
    assert 0 == (await life.passes.reflect(rob, outcome.Wanted(actions=("promote",)))).n_applied


async def test_the_limit_counts_sources_the_oldest_first(life: governed.Life) -> None:
    """A group that does not fit is left whole; one alone that is too long is taken in part."""
    first, second = await say(life, 3, "one"), await say(life, 3, "two")
    found = await life.reflect("promote", limit=5)
    assert sorted(first) == sorted(governed.applied(found, "promote"))
    assert {"the limit of 5 is reached: the next pass goes on"} == {reasons(found)[one] for one in second}
    found = await life.reflect("promote", limit=2)
    assert (0, 3) == (found.n_applied, found.actions[0].n_skipped)
    await say(life, 2, "two")
    found = await life.reflect("promote", limit=4)
    assert (4, 1) == (found.n_applied, len(reasons(found)))


async def test_a_pass_without_a_limit_takes_all_that_recurs_and_the_fact_names_the_newest(life: governed.Life) -> None:
    """Nothing is left behind by a pass that pages to the end."""
    ids = await life.remember_all({"content": FACT} for _ in range(lineage.MAX_SOURCES + 20))
    found = await life.reflect("promote", limit=None)
    assert len(ids) == found.n_applied
    (fact,) = await facts(life)
    assert ids[20:] == list((await seen(life, fact.entry_id))[2])
    assert {"superseded"} == {(await life.look(one)).status for one in ids[::50]}


# -- crashes -----------------------------------------------------------------------------------------------------------


class Killed(Exception):  # noqa: N818  # no error
    """The process ends here."""


async def test_a_pass_cut_off_between_the_fact_and_the_rows_is_finished_by_the_next(life: governed.Life) -> None:
    """Even when the sources have left the window, or are too few by then; there is one fact."""
    ids = await say(life)

    def kill(name: str) -> None:
        if name == "promoted":
            raise Killed

    life.parts.step = kill
    with pytest.raises(Killed):
        await life.reflect("promote")
    (fact,) = await facts(life)
    assert {"active"} == {(await life.look(one)).status for one in ids}
    await life.log("supersede", ids[0], field="status", base="active", value="superseded", successor=fact.entry_id)
    life.parts.step = lambda _: None
    life.calendar.at += 72 * HOUR
    dry = await life.reflect("promote", is_dry_run=True)
    real = await life.reflect("promote")
    assert dry.actions == real.actions
    assert [(fact.entry_id, tuple(ids[1:]))] == [(one.entry_id, one.sources) for one in real.written]
    assert ids[1:] == governed.applied(real, "promote")
    assert [fact.entry_id] == [one.entry_id for one in await facts(life)]
    assert {"superseded"} == {(await life.look(one)).status for one in ids}
    assert 0 == (await life.reflect("promote")).n_applied


async def test_what_was_rewritten_after_a_cut_is_not_superseded(life: governed.Life) -> None:
    """It says something else than the fact by then."""
    ids = await say(life)

    def kill(_: str) -> None:
        raise Killed

    life.parts.step = kill
    with pytest.raises(Killed):
        await life.reflect("promote")
    life.parts.step = lambda _: None
    await update.Updates(life.parts).update(life.owner, ids[2], memory.Change(content="Mara lives in Rome."))
    assert ids[:2] == governed.applied(await life.reflect("promote"), "promote")
    assert "active" == (await life.look(ids[2])).status


# -- nights ------------------------------------------------------------------------------------------------------------

CODE = "```python\ndef f(x):\n    return x + 1\n```"
HALF = "and then the thing with the"
MARKED = "<!-- entry:mem_20260301_00000009 -->\n## mem_20260301_00000009\n\n**importance**: 1.0\n<!-- /entry:mem_20260301_00000009 -->"


async def test_R08_five_nights_over_odd_candidates_obey_the_gates_and_stay_bounded(life: governed.Life) -> None:
    """Code, half sentences, markers: promoted as they are where they recur, once; nothing of the pass is in a text."""
    for night in range(5):
        for content in (CODE, HALF, MARKED):
            await say(life, 3, content)
        await say(life, 2, f"never asked for {night}")
        first = await life.reflect("promote")
        assert 9 == len(governed.applied(first, "promote"))
        assert {"notes: 2 occurrences, 3 are needed"} == set(reasons(first).values())
        again = await life.reflect("promote")
        assert 0 == again.n_applied
        life.calendar.pass_days(1)
    found = await facts(life)
    assert 3 == len(found)
    told = [await seen(life, one.entry_id) for one in found]
    assert {CODE, HALF, MARKED} == {content for _, content, _ in told}
    assert {15} == {len(sources) for _, _, sources in told}
    said = "\n".join(path.read_text() for path in (life.root.path / "default_app").rglob("semantic-*.md"))
    assert [] == [word for word in ("run_id", "n_uses", "score", "digest", "lsn") if word in said]
    assert [] == [one for one in (await life.all()).values() if one.importance == 1.0]  # as the marked text has it
    assert (await verify.verify(life.root.node.cascade)).is_clean


def test_R08_a_fact_names_a_bounded_number_of_sources() -> None:
    """The newest ones."""
    records = [governed.record(entry_id=f"mem_20260301_{at:08d}") for at in range(10)]
    written = lineage.fields(records, (f"mem_20260201_{at:08d}" for at in range(10_000)))["sources"]
    assert lineage.MAX_SOURCES == written.count("mem_")
    assert written.rstrip("]").endswith(records[-1].entry_id)
