"""Corrections: read from the log, kept as a table that follows from it, and put in front of what they correct."""

from __future__ import annotations

import asyncio
import datetime as dt
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from everosd import clock, types
from everosd.cascade import rebuild, verify
from everosd.index import where
from everosd.log import entry_text, escape, kind
from everosd.search import look, query
from everosd.store import correction, db, ledger, state
from everosd.store import row as rows
from tests import memory_rows, memory_vectors

if TYPE_CHECKING:
    from tests.unit.conftest import Door, Open, Said

OWNER, OTHER = memory_rows.OWNER, memory_rows.OTHER
METHODS: tuple[query.Method, ...] = ("keyword", "vector", "hybrid")
USER = "default_app/default_project/users/mara"
FACTS = f"{USER}/.atomic_facts/atomic_fact-2026-03-02.md"


# -- the table ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """An empty ledger."""
    opened = db.connect(tmp_path / "system.db", db.Settings())
    yield opened
    opened.close()


def fact(number: int, corrects: str = "", *, nth: int = 0, **fields: object) -> state.EntryState:
    """A fact as it was read."""
    entry_id = f"af_20260302_{number:08}"
    inline = {"parent_id": f"ep_20260302_{number:08}"} | ({"corrects": corrects} if corrects else {})
    raw = escape.raw_text(kind.BY_NAME["atomic_fact"], entry_id, fields=inline, sections=[("Fact", f"fact {number}")])
    given: dict[str, object] = {
        "entry_id": entry_id,
        "nth": nth,
        "line": 1,
        "form": "marked",
        "kind": "atomic_fact",
        "digest": entry_text.digest("atomic_fact", entry_id, raw),
        "session_id": None,
        "timestamp_us": number,
        "parent_type": "episode",
        "parent_id": inline["parent_id"],
        "sender_ids": "[]",
        "memory_type": "",
        "memory_path": "",
        "own_status": "active",
        "expires_us": None,
        "raw": raw,
    }
    return state.EntryState(**(given | fields))  # type: ignore[arg-type]  # fields of the struct by name


def file(*entries: state.EntryState, path: str = "facts.md", owner: types.Owner = OWNER) -> state.FileState:
    return state.FileState(
        path=types.RelPath(path),
        kind="atomic_fact",
        owner=owner,
        date="20260302",
        inode=1,
        size=1,
        mtime_ns=1,
        digest=b"d",
        stamp="",
        entry_count=0,
        entries=entries,
        deprecated={},
    )


def episode_of(number: int) -> state.EntryState:
    """The Episode of a fact, as far as the ledger asks for it: any entry with its id."""
    return fact(number, entry_id=f"ep_20260302_{number:08}", parent_id="", raw="")


def asked(connection: sqlite3.Connection, *ids: str, owner: types.Owner = OWNER) -> set[tuple[str, str, str]]:
    """Return (target, by, entry) as the statement of searches finds them, by entry id."""
    names = dict(connection.execute("SELECT key, entry_id FROM entries").fetchall())
    keys = [key for key, name in names.items() if name in ids]
    found = connection.execute(*correction.query(owner, keys, now_us=1_000))
    return {(names[target], names[by], names[entry]) for target, by, entry in found}


A, B, C = (f"af_20260302_{number:08}" for number in (1, 2, 3))


def test_the_table_follows_every_change_of_a_file(connection: sqlite3.Connection) -> None:
    """What a field names is in the table while the field names it, and while its entry is there."""

    def after(*entries: state.EntryState) -> set[tuple[str, str]]:
        ledger.apply_files(connection, [file(*entries)], now_us=1)
        return set(connection.execute("SELECT entry_id, target FROM corrections"))

    assert {(C, A), (C, B)} == after(fact(1), fact(2), fact(3, f"[{A}, {B}, {A}, {C}]"))
    assert {(C, B)} == after(fact(1), fact(2), fact(3, B))
    assert set() == after(fact(1), fact(2), fact(3))
    assert {(B, A), (C, B)} == after(fact(1), fact(2, A), fact(3, B))
    assert {(C, B)} == after(fact(1), fact(3, B))
    ledger.remove_files(connection, ["facts.md"], now_us=2)
    assert [] == connection.execute("SELECT * FROM corrections").fetchall()


def test_of_two_entries_with_one_id_the_first_counts(connection: sqlite3.Connection) -> None:
    """A copy further down, which goes again, changes nothing."""
    for copies in ([fact(2, C, nth=1)], []):
        ledger.apply_files(connection, [file(fact(1), fact(2, A), *copies)], now_us=1)
        assert [(B, A)] == connection.execute("SELECT entry_id, target FROM corrections").fetchall()


def test_public_ids_count_where_they_are_the_owners_own() -> None:
    """Somebody else's id is no target, and nothing corrects itself."""
    written = f"[u_mara_{A}, u_ben_{B}, {C}, {A}]"
    assert (A,) == correction.targets(C, "u_mara", written)


def test_a_correction_never_leaves_its_owner(connection: sqlite3.Connection) -> None:
    """The same ids of another owner are neither corrected nor do they correct."""
    ledger.apply_files(connection, [file(fact(1), fact(2, A), episode_of(2))], now_us=1)
    ledger.apply_files(connection, [file(fact(1), fact(2), episode_of(2), path="ben.md", owner=OTHER)], now_us=1)
    everything = [key for (key,) in connection.execute("SELECT key FROM entries")]
    found = connection.execute(*correction.query(OTHER, everything, now_us=1_000)).fetchall()
    assert [] == found
    found = connection.execute(*correction.query(OWNER, everything, now_us=1_000)).fetchall()
    owners = {
        connection.execute("SELECT owner_id FROM entries WHERE key = ?", (key,)).fetchone()[0]
        for one in found
        for key in one
    }
    assert {"u_mara"} == owners


def test_chains_and_circles_are_followed_to_their_end(connection: sqlite3.Connection) -> None:
    """What corrects a correction is found from the first, and a circle ends."""
    parents = [episode_of(number) for number in (1, 2, 3)]
    ledger.apply_files(connection, [file(fact(1), fact(2, A), fact(3, B), *parents)], now_us=1)
    assert {(A, B, parents[1].entry_id), (B, C, parents[2].entry_id)} == asked(connection, A)
    ledger.apply_files(connection, [file(fact(1, C), fact(2, A), fact(3, B), *parents)], now_us=1)
    assert 3 == len(asked(connection, A))


@pytest.mark.parametrize("fields", [{"own_status": "archived"}, {"expires_us": 1_000}])
def test_only_live_entries_correct(connection: sqlite3.Connection, fields: dict[str, object]) -> None:
    """A statement that was put away, or is over, contradicts nothing any more; nor does one without its Episode."""
    later = msgspec.structs.replace(fact(2, A), **fields)
    ledger.apply_files(connection, [file(fact(1), later, episode_of(2))], now_us=1)
    assert set() == asked(connection, A)
    ledger.apply_files(connection, [file(fact(1), fact(2, A))], now_us=1)
    assert set() == asked(connection, A)


# -- the ranking -------------------------------------------------------------------------------------------------------


class StoppedClock(clock.SystemClock):
    """A clock that stands still."""

    def now(self) -> dt.datetime:
        """Return the same moment every time."""
        return clock.from_us(memory_rows.NOW_US)


class Memory:
    """Episodes with facts, some of which correct others, searched by every method."""

    def __init__(self, folder: Path) -> None:
        """Start empty."""
        self.store = memory_rows.MemoryStore(folder)
        self.vectors = memory_vectors.MemoryVectors(folder)
        self.search = query.Search(self.store.rows, self.store, StoppedClock(), self.vectors, self.vectors)
        self._waiting: list[rows.EntryRow] = []

    def episode(self, said: str, *facts: str, **fields: object) -> list[rows.EntryRow]:
        """Make up an Episode with facts, stored before the next search; return it and them."""
        made = [self.store.entry(said, **fields)]
        made += [
            self.store.entry(one, kind="atomic_fact", parent_id=made[0].entry_id, entry_id=f"af_{made[0].key}_{at}")
            for at, one in enumerate(facts)
        ]
        self._waiting += made
        return made

    def correct(self, by: rows.EntryRow, target: rows.EntryRow) -> None:
        """Let one fact correct another."""
        shown = next(one for one in self._waiting if one.entry_id == by.parent_id)
        one = correction.Correction(target=target.key, by=by.key, entry=shown.key)
        self.store.rows.corrected += (one,)

    async def found(self, text: str, method: query.Method, **fields: object) -> tuple[query.Hit, ...]:
        """Search as the owner and return what was found among Episodes."""
        given: dict[str, object] = {"owner": OWNER, "text": text, "method": method}
        return (await self.answer(query.Query(**(given | fields)))).episodes  # type: ignore[arg-type]

    async def answer(self, asked: query.Query) -> query.Answer:
        """Store what waits and answer a query."""
        if new := [one for one in self._waiting if one.key not in self.store.rows.by_key]:
            await asyncio.to_thread(self.store.add, *new)
            await asyncio.to_thread(self.vectors.add, *new)
        return await self.search.run(asked)


@pytest.fixture
async def memory(tmp_path: Path) -> Memory:
    return await asyncio.to_thread(Memory, tmp_path)


def keys(hits: tuple[query.Hit, ...]) -> list[int]:
    return [hit.row.key for hit in hits]


@pytest.mark.parametrize("method", METHODS)
async def test_what_corrects_ranks_above_by_every_method(memory: Memory, method: query.Method) -> None:
    """The older Episode fits the question better, and the newer one, which says that it is so no more, is first."""
    old, lives = memory.episode("Mara lives in Oslo, in Oslo by the harbour", "Mara lives in Oslo")
    other, _ = memory.episode("Oslo is cold", "Ben lives in Oslo now")
    new, moved = memory.episode("a long talk of boxes, vans and goodbyes", "Mara has moved to Bergen")
    before = keys(await memory.found("Mara lives in Oslo", method))
    memory.correct(moved, lives)
    hits = await memory.found("Mara lives in Oslo", method, explains=True)

    assert old.key == before[0]
    assert [new.key, old.key, other.key] == keys(hits)
    assert sorted((hit.score for hit in hits), reverse=True) == [hit.score for hit in hits]
    assert (lives, None) == (hits[0].why and hits[0].why.corrects, hits[1].why and hits[1].why.corrects)
    assert ([[moved], [lives]] if method == "hybrid" else [[], []]) == [
        [fact.row for fact in hit.facts] for hit in hits[:2]
    ]


@pytest.mark.parametrize("method", METHODS)
async def test_what_was_not_found_by_itself_comes_in(memory: Memory, method: query.Method) -> None:
    """Also where the answer has one place only."""
    _, lives = memory.episode("Mara lives in Oslo", "Mara lives in Oslo")
    for number in range(60):
        memory.episode(f"Mara lives, says Oslo, number {number}")
    new, moved = memory.episode("zzz", "qqq")
    memory.correct(moved, lives)
    assert [new.key] == keys(await memory.found("Mara lives in Oslo", method, top_k=1))


async def test_an_entry_with_a_better_fact_that_holds_does_not_give_way(memory: Memory) -> None:
    """Only what the question was answered by counts."""
    old, _, lives = memory.episode("two things", "Mara plays the cello", "Mara lives in Oslo")
    _, moved = memory.episode("boxes", "Mara has moved to Bergen")
    memory.correct(moved, lives)
    assert old.key == keys(await memory.found("who plays the cello", "hybrid"))[0]


async def test_chains_end_with_the_newest_and_circles_do_no_harm(memory: Memory) -> None:
    """Three homes: the last is first, whatever the question fits; a circle of corrections is answered, every time alike."""
    made = [memory.episode(f"of {city}", f"Mara lives in {city}") for city in ("Oslo", "Bergen", "Moss")]
    memory.correct(made[1][1], made[0][1])
    memory.correct(made[2][1], made[1][1])
    for city in ("Oslo", "Bergen", "Moss"):
        hits = await memory.found(f"Mara lives in {city}", "hybrid")
        order = keys(hits)
        assert order.index(made[2][0].key) == 0
        if city == "Oslo":
            assert [one[0].key for one in reversed(made)] == order
    memory.correct(made[0][1], made[2][1])
    answers = [keys(await memory.found("Mara lives in Oslo", "hybrid")) for _ in range(2)]
    assert answers[0] == answers[1]
    assert {one[0].key for one in made} == set(answers[0])


async def test_facts_of_one_episode_stand_in_the_same_order(memory: Memory) -> None:
    """Somebody who corrects themselves in the middle of a talk is quoted with the correction first, once."""
    _, *facts = memory.episode("the talk", "Mara lives in Oslo", "Mara likes Oslo", "no, it is Bergen")
    memory.correct(facts[2], facts[0])
    (hit,) = await memory.found("Mara lives in Oslo", "hybrid")
    assert [facts[2], facts[0], facts[1]] == [fact.row for fact in hit.facts]
    scores = [fact.score for fact in hit.facts]
    assert sorted(scores, reverse=True) == scores


async def test_a_narrative_keeps_its_facts_of_many_days_where_one_of_them_is_corrected(memory: Memory) -> None:
    """Eight of each of two days are shown; with a correction among them the same, in its order."""
    _, *facts = memory.episode("the talk", *(f"Mara lives in Oslo {'so ' * nth}" for nth in range(16)))
    day_us = 86_400_000_000
    later = [msgspec.structs.replace(one, timestamp_us=one.timestamp_us + day_us) for one in facts[1::2]]
    memory._waiting[2::2] = later
    (hit,) = await memory.found("Mara lives in Oslo", "hybrid")
    assert {one.key for one in facts} == {fact.row.key for fact in hit.facts}
    memory.correct(later[-1], facts[0])
    (hit,) = await memory.found("Mara lives in Oslo", "hybrid")
    assert {one.key for one in facts} == {fact.row.key for fact in hit.facts}
    assert [later[-1].key, facts[0].key] == [fact.row.key for fact in hit.facts[:2]]


async def test_nothing_comes_in_against_the_bounds_of_the_query(memory: Memory) -> None:
    """Filter, status and owner hold for what corrects, too."""
    old, lives = memory.episode("Mara lives in Oslo", "Mara lives in Oslo", session_id="s_1")
    new, moved = memory.episode("zzz", "qqq", session_id="s_2")
    memory.correct(moved, lives)
    of_session = where.Is(field="session_id", values=("s_1",))
    assert [new.key, old.key] == keys(await memory.found("Mara lives in Oslo", "hybrid"))
    assert [old.key] == keys(await memory.found("Mara lives in Oslo", "hybrid", filter=of_session))
    memory.store.rows.by_key[new.key] = msgspec.structs.replace(new, status="archived")
    assert [old.key] == keys(await memory.found("Mara lives in Oslo", "hybrid"))
    memory.store.rows.by_key[new.key] = msgspec.structs.replace(new, owner=OTHER)
    assert [old.key] == keys(await memory.found("Mara lives in Oslo", "hybrid"))


async def test_facts_can_be_looked_for_by_themselves(memory: Memory) -> None:
    """Only where that is asked for, and with the scores that they have."""
    _, lives = memory.episode("zzz", "Mara lives in Oslo")
    alone = query.Query(owner=OWNER, text="Mara Oslo", kinds=look.FACT_KINDS)
    answer = await memory.answer(alone)
    assert ([lives], ()) == ([hit.row for hit in answer.facts], answer.episodes)
    assert () == (await memory.answer(msgspec.structs.replace(alone, kinds=None))).facts
    assert await memory.search.can_find(OWNER, "atomic_fact", lives.entry_id)
    assert not await memory.search.can_find(OTHER, "atomic_fact", lives.entry_id)
    assert not await memory.search.can_find(OWNER, "atomic_fact", "af_20260302_00000099")


# -- over the files ----------------------------------------------------------------------------------------------------


def facts_file(*facts: tuple[int, str, str]) -> str:
    """Write (number, text, corrects) as a daily log."""
    text = "---\nid: facts\ntype: atomic_fact_daily\nuser_id: mara\ntrack: user\ndate: '2026-03-02'\n---\n"
    for number, said, corrects in facts:
        entry_id, told = f"af_20260302_{number:08}", f"**corrects**: {corrects}\n" if corrects else ""
        text += (
            f"<!-- entry:{entry_id} -->\n## {entry_id}\n\n**owner_id**: mara\n**timestamp**: 2026-03-02T20:00:00+00:00\n"
            f"**parent_type**: episode\n**parent_id**: ep_20260302_{number:08}\n{told}\n### Fact\n{said}\n"
            f"<!-- /entry:{entry_id} -->\n"
        )
    return text


async def ids(door: Door, *, until: int) -> list[str]:
    """Return what a question finds once it finds so many: what is gone from a file is believed to be after a second."""
    async with asyncio.timeout(10):
        while True:
            found = [one["id"] for one in (await door.search("Does Mara live in Oslo?", user_id="mara"))["episodes"]]
            if len(found) == until:
                return found
            await asyncio.sleep(0.1)


async def test_corrections_outlive_restart_and_rebuild_and_end_with_their_fact(
    open_door: Open, log_of: Callable[..., str], episode: Callable[..., Said]
) -> None:
    """The order of the answer follows from the files alone, whichever way the ledger came to know them."""
    said = episode(1, "Mara lives in Oslo."), episode(2, "Boxes and vans.")
    files = {
        f"{USER}/episodes/episode-2026-03-02.md": log_of("mara", "2026-03-02", *said),
        FACTS: facts_file((1, "Mara lives in Oslo.", ""), (2, "Mara moved to Bergen.", f"[{A}]")),
    }
    first, second = "mara_ep_20260302_00000001", "mara_ep_20260302_00000002"
    for is_restart in (False, True):
        async with open_door({} if is_restart else files) as door:
            assert [second, first] == await ids(door, until=2)
            if is_restart:
                await rebuild.rebuild(door.node.cascade)
                assert [second, first] == await ids(door, until=2)
                assert (await verify.verify(door.node.cascade)).is_clean
                path = door.root / FACTS
                await asyncio.to_thread(path.write_text, facts_file((1, "Mara lives in Oslo.", "")))
                await door.node.cascade.reconcile("test")
                await door.node.cascade.settled(20.0)
                assert [first] == await ids(door, until=1)
                assert (await verify.verify(door.node.cascade)).is_clean
