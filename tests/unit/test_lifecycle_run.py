"""A pass over a real root: what it decides, in order, what it writes, and what a dry run leaves alone."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from everosd import errors, types
from everosd.lifecycle import decisions, memory, outcome, overlay, run, update
from everosd.lifecycle.decisions import Applied
from everosd.log import entry
from everosd.store import lifecycle as store
from tests import governed

DAY = dt.timedelta(days=1)


@pytest.fixture
async def life(tmp_path: Path) -> AsyncIterator[governed.Life]:
    """A root on a calendar."""
    async with governed.living(tmp_path) as made:
        yield made


async def rows(life: governed.Life, *actions: str) -> list[entry.Entry]:
    """Return rows of the log, the oldest first."""
    found = await store.rows(life.root.reader, life.owner, actions=actions, limit=100_000)
    return found[::-1]


async def mixed(life: governed.Life) -> dict[str, str]:
    """Write a memory for every rule, then let forty days pass; return their ids by what becomes of them."""
    soon = (life.calendar.now() + 39 * DAY).isoformat()
    names = {
        "expires": {"memory_type": "semantic", "expires_at": soon},
        "decays": {"memory_type": "procedural"},
        "decays twice": {"memory_type": "episodic"},
        "stays": {"memory_type": "semantic"},
        "is archived": {"memory_type": "working"},
        "is pinned": {"memory_type": "working", "pinned": "true"},
        "is who they are": {"memory_type": "identity"},
    }
    ids = {name: await life.remember(**fields, content=name) for name, fields in names.items()}
    life.calendar.pass_days(40)
    return ids


async def test_actions_run_in_one_order_whatever_order_is_given(life: governed.Life) -> None:
    """Backwards, twice, or a few of them: the answer and the rows have expire, decay, archive."""
    await mixed(life)
    found = await life.reflect("archive", "decay", "expire", "decay", "promote", "summarize")
    assert list(decisions.ORDER) == [one.action for one in found.actions]
    written = [one.fields["action"] for one in await rows(life, "expire", "decay", "archive", "audit")]
    assert written == sorted(written, key=("expire", "decay", "archive", "audit").index)
    assert {"expire", "decay", "archive", "audit"} == set(written)
    part = await life.reflect("archive", "expire")
    assert ["expire", "archive"] == [one.action for one in part.actions]


async def test_later_actions_see_what_earlier_ones_decided(life: governed.Life) -> None:
    """What expires in a pass is archived by it, and does not decay; a dry run shows the same."""
    one = await life.remember(memory_type="episodic", expires_at=(life.calendar.now() + DAY).isoformat())
    life.calendar.pass_days(15)
    dry = await life.reflect(is_dry_run=True)
    real = await life.reflect()
    for found in (dry, real):
        assert [one] == governed.applied(found, "expire")
        assert [] == governed.decided(found, "decay")
        assert [one] == governed.applied(found, "archive")
    assert ("archived", "expired") == ((await life.look(one)).status, (await life.look(one)).reason)
    alone = await life.remember(memory_type="episodic", expires_at=(life.calendar.now() + DAY).isoformat())
    life.calendar.pass_days(15)
    assert [alone] == governed.applied(await life.reflect("decay", "archive", is_dry_run=True), "decay")


async def test_every_rule_reaches_what_it_is_for_and_nothing_else(life: governed.Life) -> None:
    """Forty days on: expired and archived, decayed by its type, left alone."""
    ids = await mixed(life)
    await life.reflect()
    now = await life.all()
    assert {
        "expires": ("archived", 0.5),
        "decays": ("active", 0.5),
        "decays twice": ("archived", 0.3),
        "stays": ("active", 0.5),
        "is archived": ("archived", 0.05),
        "is pinned": ("active", 0.5),
        "is who they are": ("active", 0.5),
    } == {name: (now[one].status, now[one].importance) for name, one in ids.items()}


async def test_a_second_pass_at_the_same_time_does_nothing(life: governed.Life) -> None:
    """Idempotent: only its own record is written."""
    await mixed(life)
    first = await life.reflect()
    assert first.n_applied
    before = governed.bytes_below(life.root.path)
    second = await life.reflect()
    assert (0, 1) == (second.n_applied, len(second.audit_ids))
    after = governed.bytes_below(life.root.path)
    (path,) = [path for path in after if after[path] != before.get(path)]
    assert path.startswith("default_app/default_project/users/u_mara/.lifecycle/")
    assert after[path].startswith(before[path])


async def test_a_dry_run_changes_no_byte_but_its_own_record_and_a_real_one_decides_the_same(
    life: governed.Life,
) -> None:
    """Decision by decision, with reasons, before and after."""
    await mixed(life)
    await life.reflect("expire")  # so that there is a log of the day already
    before = governed.bytes_below(life.root.path)
    records = await life.all()
    dry = await life.reflect(is_dry_run=True)
    after = governed.bytes_below(life.root.path)
    (path,) = [path for path in after if after[path] != before.get(path)]
    added = after[path][len(before[path]) :].decode()
    assert ".lifecycle/" in path
    assert after[path].startswith(before[path])
    assert 1 == added.count("<!-- entry:")
    assert "**dry_run**: true" in added
    assert records == await life.all()
    real = await life.reflect()
    assert dry.evaluated_us == real.evaluated_us
    assert dry.actions == real.actions
    assert (1, dry.n_applied + 1) == (len(dry.audit_ids), len(real.audit_ids))


async def test_a_dry_run_on_a_log_of_another_day_changes_no_byte_of_any_file_there_is(life: governed.Life) -> None:
    """Its record goes to a new file of the day."""
    await mixed(life)
    before = governed.bytes_below(life.root.path)
    await life.reflect(is_dry_run=True)
    after = governed.bytes_below(life.root.path)
    assert before == {path: data for path, data in after.items() if path in before}
    assert 1 == len(after.keys() - before.keys())


async def test_nobody_gets_a_folder_by_being_asked_about(life: governed.Life) -> None:
    """X18: every action on a fresh root is answered, with nothing, and nothing is written."""
    before = governed.bytes_below(life.root.path)
    for is_dry_run in (True, False):
        found = await life.reflect(is_dry_run=is_dry_run)
        assert ((), 0, None) == (found.audit_ids, found.n_applied, found.stopped)
    assert before == governed.bytes_below(life.root.path)


async def test_limit_takes_the_oldest_first_and_says_how_many_are_left(life: governed.Life) -> None:
    """Per action; page by page it comes to the same as without."""
    ids = []
    for _ in range(5):
        ids.append(await life.remember(memory_type="semantic"))
        life.calendar.pass_days(1)
    life.calendar.pass_days(89)
    found = await life.reflect("decay", limit=2)
    assert ids[:2] == governed.applied(found, "decay")
    assert 3 == found.actions[0].n_left
    rest = [governed.applied(await life.reflect("decay", limit=2), "decay") for _ in range(3)]
    assert [ids[2:4], ids[4:], []] == rest


async def test_filters_pick_memories_and_no_filter_reaches_another_owner(life: governed.Life) -> None:
    """Path, bucket, scope and team; what they leave out stays as it is."""
    for path in ("projects/atlas", "projects/borea", "home"):
        await life.remember(path=path, bucket="public" if path == "home" else "work", team_id=path[-1])
    other = msgspec.structs.replace(life.owner, id="u_jon")
    await life.root.pen.append(
        other,
        "memory",
        [entry.Draft(fields={"timestamp": governed.START.isoformat()})],
        memory_type="episodic",
        memory_path="home",
    )
    await life.root.settled()
    life.calendar.pass_days(14)
    for filters, n in (
        (decisions.Filters(), 3),
        (decisions.Filters(path="projects/%"), 2),
        (decisions.Filters(bucket="work", team_id="s"), 1),
        (decisions.Filters(bucket="private"), 0),
        (decisions.Filters(scope="x"), 0),
    ):
        found = await life.reflect("decay", filters=filters, is_dry_run=True)
        assert n == len(governed.applied(found, "decay")), filters
    await life.reflect("decay")
    assert [0.5] == [one.importance for one in await store.records(life.root.reader, other)]


async def test_decay_never_moves_updated_at_and_no_text_of_a_person_changes(life: governed.Life) -> None:
    """Only `.lifecycle/` is written; the entry stands as it stood."""
    one = await life.remember(updated_at=governed.START.isoformat())
    before = {path: data for path, data in governed.bytes_below(life.root.path).items() if "/memories/" in path}
    life.calendar.pass_days(28)
    await life.reflect("decay")
    after = {path: data for path, data in governed.bytes_below(life.root.path).items() if "/memories/" in path}
    found = await life.look(one)
    assert before == after
    assert (0.3, governed.START_US) == (found.importance, found.updated_us)


async def test_archive_keeps_a_snapshot_and_the_entry(life: governed.Life) -> None:
    """The row holds the text as it was, and where it stood."""
    one = await life.remember(memory_type="working", content="call the plumber")
    life.calendar.pass_days(7)
    await life.reflect("archive")
    (row,) = await rows(life, "archive")
    assert ("Before", "active", "archived") == (row.sections[0][0], row.fields["was"], row.fields["value"])
    assert "call the plumber" in row.sections[0][1]
    assert row.fields["file"].endswith("memories/notes/working-2026-03-01.md")
    assert "call the plumber" in await life.root.text(row.fields["file"])
    assert "archived" == (await life.look(one)).status


async def test_what_a_person_wrote_is_the_new_baseline(life: governed.Life) -> None:
    """A hand edit of `importance` or `status` voids what was decided on the old value, and the next pass goes by the new."""
    one = await life.remember(importance="0.9")
    life.calendar.pass_days(14)
    await life.reflect("decay")
    assert 0.8 == (await life.look(one)).importance
    path = (await life.look(one)).path_file
    await life.root.edit(path, "**importance**: 0.9", "**importance**: 0.6")
    await life.root.settled()
    assert 0.6 == (await life.look(one)).importance
    life.calendar.pass_days(30)
    await life.reflect("archive")
    assert "archived" == (await life.look(one)).status
    await life.root.edit(path, "**importance**: 0.6", "**importance**: 0.6\n**status**: deleted")
    await life.root.settled()
    assert "deleted" == (await life.look(one)).status


@pytest.mark.parametrize("nights", [range(1, 61), [60]], ids=["every night", "once"])
async def test_an_importance_given_by_hand_sinks_from_the_edit_on(life: governed.Life, nights: Sequence[int]) -> None:
    """Whether decay runs daily or once: 40 days after the edit two steps are due, and none for the 20 days before."""
    one = await life.remember(importance="0.5")
    path = (await life.look(one)).path_file
    for day in range(1, 61):
        life.calendar.pass_days(1)
        if day == 20:
            await life.root.edit(path, "**importance**: 0.5", "**importance**: 0.9")
            await life.root.settled()
            await life.log("edited", one, field="importance", was="0.5", value="0.9")
        if day in nights:
            await life.reflect("decay")
    assert (0.7, 2) == ((await life.look(one)).importance, (await life.look(one)).steps)


async def test_an_importance_given_anew_sinks_from_the_update_on(life: governed.Life) -> None:
    """The row of an update says that it gives another; one that gives what was there before is no exception."""
    updates = update.Updates(life.parts)
    one = await life.remember(importance="0.5")
    life.calendar.pass_days(20)
    await life.reflect("decay")
    for importance in ("0.9", "0.5"):
        await updates.update(life.owner, one, memory.Change(fields={"importance": importance}))
    life.calendar.pass_days(13)
    assert 0 == (await life.reflect("decay")).n_applied
    assert 0.5 == (await life.look(one)).importance
    life.calendar.pass_days(1)
    await life.reflect("decay")
    assert 0.4 == (await life.look(one)).importance


async def test_Y03_a_wrong_threshold_stops_the_pass_and_says_so(life: governed.Life) -> None:
    """2,000 entries that would sink to the floor, and be archived: nothing of it is done, and the alarm says what to do."""
    await life.remember_all([{"memory_type": "semantic", "path": f"p{nth % 4}"} for nth in range(2000)])
    life.calendar.pass_days(3)
    wrong = msgspec.structs.replace(life.settings.lifecycle_decay_semantic, period_days=0.01)
    life.set(lifecycle_decay_semantic=wrong)
    before = await life.all()
    dry = await life.reflect(is_dry_run=True, limit=500)
    assert dry.stopped is not None
    assert () == life.alarms.said()
    real = await life.reflect(limit=500)
    assert real.stopped is not None
    assert (2000, 2000, 1.0) == (real.stopped.affected, real.stopped.total, real.stopped.share)
    assert dry.actions == real.actions
    assert before == await life.all()
    assert all("safety stop" in one.reason for one in governed.decided(real, "decay"))
    (said,) = life.alarms.said()
    assert "2,000 of 2,000" in said
    assert "force" in said
    told = (await rows(life, "audit"))[-1].fields
    assert ("false", real.run_id) == (told["dry_run"], told["run_id"])
    assert "max_share" in told["counts"]

    forced = await life.reflect("decay", is_forced=True, limit=None)
    assert 2000 == forced.n_applied
    of_run = await store.rows(life.root.reader, life.owner, run_id=forced.run_id, limit=5000)
    assert 2001 == len(of_run)
    assert 2000 == len({one.fields["target"] for one in of_run if one.fields["action"] == "decay"})
    assert {0.2} == {one.importance for one in (await life.all()).values()}
    assert () == life.alarms.said()


async def test_Y03_a_wrong_date_on_all_entries_stops_the_pass(life: governed.Life) -> None:
    """Expiry by the thousand is a mistake too; half of it is not."""
    soon = (life.calendar.now() + DAY).isoformat()
    await life.remember_all([{"expires_at": soon} for _ in range(7)] + [{} for _ in range(6)])
    life.calendar.pass_days(2)
    stopped = await life.reflect("expire")
    assert stopped.stopped is not None
    assert [] == governed.applied(stopped, "expire")
    assert 7 == (await life.reflect("expire", max_share=0.54)).n_applied


async def test_memories_changed_while_a_pass_decides_are_left_for_the_next(life: governed.Life) -> None:
    """Somebody pins one after it was read: it is skipped, with the reason, and the others are done."""
    ids = await life.remember_all([{"memory_type": "working"} for _ in range(3)])
    life.calendar.pass_days(7)

    async def pin() -> None:
        life.passes._give_way = run.at_once
        await life.log("pin", ids[1], version="1")

    life.passes._give_way = pin
    found = await life.reflect("archive")
    assert [ids[0], ids[2]] == governed.applied(found, "archive")
    (skipped,) = [one for one in governed.decided(found, "archive") if one.decision == "skip"]
    assert (ids[1], "active") == (skipped.id, (await life.look(ids[1])).status)
    assert "changed since" in skipped.reason


async def test_a_pass_that_was_cut_off_is_finished_by_the_next(
    life: governed.Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is on disk is done; what is not is due; nothing is done twice."""
    monkeypatch.setattr(run, "PART", 4)
    ids = await life.remember_all([{"memory_type": "semantic"} for _ in range(10)])
    life.calendar.pass_days(90)
    n_parts = 0

    async def cut_off() -> None:
        nonlocal n_parts
        n_parts += 1
        if n_parts == 3:
            raise asyncio.CancelledError

    life.passes._give_way = cut_off
    with pytest.raises(asyncio.CancelledError):
        await life.reflect("decay")
    life.passes._give_way = run.at_once
    assert ids[8:] == governed.applied(await life.reflect("decay"), "decay")
    told = [one.fields["target"] for one in await rows(life, "decay")]
    assert sorted(ids) == sorted(told)
    assert {0.47} == {one.importance for one in (await life.all()).values()}


async def test_a_full_disk_leaves_what_is_not_written_due(life: governed.Life, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is the caller's to know, and the next call does the rest."""
    await life.remember(memory_type="working")
    life.calendar.pass_days(7)
    append = life.root.pen.append

    async def refuse(*_: object, **__: object) -> tuple[types.EntryId, ...]:
        path = "lifecycle-2026-03-08.md"
        raise errors.WriteRefused(path, "no space left on device")

    monkeypatch.setattr(life.root.pen, "append", refuse)
    with pytest.raises(errors.WriteRefused):
        await life.reflect("archive")
    monkeypatch.setattr(life.root.pen, "append", append)
    assert 1 == (await life.reflect("archive")).n_applied


async def test_a_restored_memory_does_not_sink_by_the_time_it_was_away(life: governed.Life) -> None:
    """Archived after 30 days, restored after 300: it is as important as it was, and sinks on from then."""
    one = await life.remember(importance="0.9")
    for _ in range(30):
        life.calendar.pass_days(1)
        await life.reflect("decay", "archive")
    assert ("archived", 0.7) == ((await life.look(one)).status, (await life.look(one)).importance)
    life.calendar.pass_days(270)
    await life.log("restore", one, base="active", value="active", field="status")
    life.calendar.pass_days(13)
    assert 0 == (await life.reflect("decay", "archive")).n_applied
    life.calendar.pass_days(1)
    await life.reflect("decay")
    assert ("active", 0.6) == ((await life.look(one)).status, (await life.look(one)).importance)


async def test_the_ledger_was_asked_once_for_each_memory_that_had_been_away(
    life: governed.Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked for many at once, and says of each what it says of it alone."""
    ids = await life.remember_all([{"memory_type": "semantic", "content": f"note {nth}"} for nth in range(60)])
    for action, days in (("archive", 95), ("restore", 200), ("archive", 95), ("restore", 200)):
        life.calendar.pass_days(days)
        value = "archived" if action == "archive" else "active"
        at = life.calendar.now().isoformat()
        fields = {"timestamp": at, "action": action, "field": "status", "base": "active", "value": value}
        drafts = [entry.Draft(fields=fields | {"target": one, "reason": f"{days}"}) for one in ids]
        await life.parts.until_logged(life.owner, (await life.parts.log(life.owner, drafts))[-1:])
    life.calendar.pass_days(95)
    monkeypatch.setattr(run, "PART", 25)
    asked: list[dict[str, int | None]] = []
    of_each = store.rows_of_each

    async def counted(*given: Any, **named: Any) -> dict[str, list[entry.Entry]]:
        asked.append(dict(given[2]))
        return await of_each(*given, **named)

    monkeypatch.setattr(store, "rows_of_each", counted)
    found = await life.reflect("decay", is_forced=True)
    assert (60, [25, 25, 10]) == (found.n_applied, [len(one) for one in asked])
    assert {0.41} == {one.importance for one in (await life.all()).values()}
    first, since_us = ids[0], life.parts.now_us() - 400 * governed.DAY_US
    for wanted, limit in (({first: None}, 100), ({first: since_us, ids[1]: None}, 100), ({first: None}, 2)):
        both = await of_each(life.root.reader, life.owner, wanted, actions=("archive", "restore"), limit=limit)
        for target, from_us in wanted.items():
            alone = await store.rows(
                life.root.reader,
                life.owner,
                target=target,
                actions=("archive", "restore"),
                since_us=from_us,
                limit=limit,
            )
            assert [one.id for one in alone] == [one.id for one in both[target]]
            assert alone


async def test_episodes_are_left_alone_until_that_is_wished(life: governed.Life) -> None:
    """Plain Episodes expire, decay and are archived only with `[lifecycle] episodes = true`."""
    one = await life.root.episode(life.owner, "We talked about boats.", day=1)
    await life.root.settled()
    life.calendar.pass_days(40)
    assert 0 == (await life.reflect()).n_applied
    life.set(lifecycle=msgspec.structs.replace(life.settings.lifecycle, episodes=True))
    found = await life.reflect()
    assert ([one], [one]) == (governed.applied(found, "decay"), governed.applied(found, "archive"))
    assert ("archived", 0.3) == ((await life.look(one)).status, (await life.look(one)).importance)


async def test_what_is_spared_is_counted_and_shown_up_to_the_limit(life: governed.Life) -> None:
    """Of thousands that are spared each night an answer has the first, and the number; what is due is not among them."""
    await life.remember_all([{"memory_type": "working", "path": f"p{nth}", "pinned": "true"} for nth in range(5)])
    await life.remember_all([{"memory_type": "working", "path": f"p{nth}"} for nth in range(4)])
    life.calendar.pass_days(1)
    for is_dry_run in (True, False):
        (found,) = (await life.reflect("decay", limit=3, is_dry_run=is_dry_run)).actions
        assert (3, 5, 1) == (found.n_applied, found.n_skipped, found.n_left)
        assert ["apply"] * 3 + ["skip"] * 3 == [one.decision for one in found.candidates]


async def test_an_action_that_nobody_plans_is_skipped_with_the_reason(life: governed.Life) -> None:
    """The others run."""
    await mixed(life)
    found = await life.reflect("summarize", "promote", "archive")
    assert [True, True, False] == [bool(one.reason) for one in found.actions]
    assert found.n_applied


class Supersedes:
    """A consolidator that has one fact take the place of all episodic memories of the window."""

    def __init__(self, life: governed.Life) -> None:
        """Work in `life`."""
        self._life = life

    async def plan(self, state: overlay.State, call: decisions.Call) -> decisions.Plan:
        """Return one step."""
        found = await state.episodic(call)
        if not found:
            return decisions.Plan()
        return decisions.Plan(steps=(Step(life=self._life, sources=tuple(one.entry_id for one in found)),))


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One promotion."""

    life: governed.Life
    sources: tuple[str, ...]

    @property
    def decisions(self) -> tuple[decisions.Decision, ...]:
        """One for each source."""
        return tuple(
            decisions.Decision(id=one, owner=self.life.owner, action="promote", decision="apply", reason="recurs")
            for one in self.sources
        )

    @property
    def superseded(self) -> dict[str, str]:
        """All of them, by something that is not there yet."""
        return dict.fromkeys(self.sources, "")

    async def apply(self) -> Applied:
        """Write the fact, and that it takes their place."""
        fact = await self.life.remember(memory_type="semantic", content="it recurs")
        for one in self.sources:
            await self.life.log("supersede", one, base="active", value="superseded", successor=fact, field="status")
        superseded = dict.fromkeys(self.sources, fact)
        return Applied(decisions=self.decisions, written=(types.EntryId(fact),), superseded=superseded)


async def test_what_is_promoted_neither_expires_nor_decays_in_the_same_pass(life: governed.Life) -> None:
    """The overlay of a dry run shows what the real one does."""
    soon = (life.calendar.now() + 15 * DAY).isoformat()
    one = await life.remember(expires_at=soon)
    life.calendar.pass_days(14.5)
    life.passes.consolidators["promote"] = Supersedes(life)
    window = decisions.Window(since_us=governed.START_US, until_us=governed.START_US)
    assert [one] == governed.applied(await life.reflect("decay", is_dry_run=True), "decay")
    dry = await life.reflect("decay", "promote", window=window, is_dry_run=True)
    real = await life.reflect("decay", "promote", window=window)
    for found in (dry, real):
        assert ([one], []) == (governed.applied(found, "promote"), governed.decided(found, "decay"))
    assert dry.actions == real.actions
    assert "superseded" == (await life.look(one)).status
    assert isinstance(real, outcome.Result)
