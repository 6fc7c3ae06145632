"""Consolidations over a real root: what a run leaves behind, what it leaves alone, and that it can be repeated."""

from __future__ import annotations

import asyncio
import datetime as dt
from pathlib import Path

import msgspec
import pytest

from everosd import errors, types
from everosd.cascade import verify
from everosd.log import entry_text, kind, view
from everosd.narrative import source as texts
from everosd.reflection import source
from everosd.store import cluster
from tests import open_root, reflecting
from tests.reflecting import ANDREW, CLUSTER, STORY

BEA = msgspec.structs.replace(ANDREW, id="u_bea")


async def test_a_cluster_becomes_one_narrative(tmp_path: Path) -> None:
    """Three fragments: one Episode with all of them, which names what it replaced; its facts live, theirs do not."""
    async with reflecting.opened(tmp_path) as mind:
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
        gone = [await mind.of(each) for each in before]
        assert {narrative.entry_id} == {one.deprecated_by for one in gone}
        (told,) = await mind.reports()
        assert (CLUSTER, "init", 3, narrative.entry_id, 3, "completed") == (
            told.cluster_id, told.mode, told.source_count, told.merged_entry_id, told.deprecated_fact_count, told.status
        )  # fmt: skip
        assert ids == [one.member_id for one in told.source_members]
        members = await cluster.members(mind.root.reader, ANDREW, CLUSTER)
        assert [narrative.entry_id] == [one.entry_id for one in members]
        assert () == (await verify.verify(mind.root.node.cascade)).differences


async def test_a_second_run_without_new_members_writes_nothing(tmp_path: Path) -> None:
    """Nothing to do: not a byte of the log changes, and no model is asked."""
    async with reflecting.opened(tmp_path) as mind:
        await mind.tell(*STORY)
        await mind.run()
        before = await asyncio.to_thread(mind.digest)
        assert "nothing to consolidate" == (await mind.run()).note
        assert before == await asyncio.to_thread(mind.digest)
        assert 1 == len(mind.merging.asked)
