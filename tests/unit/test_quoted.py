"""What agents read out of a real root's memory, taken out of what they say."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import json
from collections.abc import AsyncIterator
from pathlib import Path

from everosd import clock, config, daemon, errors, types
from everosd.intake import message, quoted
from everosd.log import entry as entries
from everosd.narrative import spoken
from everosd.search import query

MARA = types.Owner(app="default", project="default", type="user", id="mara")
BEN = types.Owner(app="default", project="default", type="user", id="ben")
FACT = "Mara: I have moved to Bergen with my two cats, and I like the rain there."
CHINESE = "李雷: 我上周和姐姐一起去了北京，还在那里买了一套房子。"
SENT = dt.datetime(2026, 5, 1, tzinfo=dt.UTC)


@contextlib.asynccontextmanager
async def opened(root: Path, *, day: int = 1, owner: types.Owner = MARA) -> AsyncIterator[quoted.Quoted]:
    """Open a root where an owner has two facts of a day of April."""
    root.mkdir(exist_ok=True)
    (root / config.FILE_NAME).write_text('[embedding]\nmodel = "none"\n')
    loaded = await asyncio.to_thread(config.load, root, {})
    async with daemon.open_parts(loaded, clock.SystemClock()) as node, daemon.loops(node, is_watching=True):
        at = dt.datetime(2026, 4, day, tzinfo=dt.UTC).isoformat()
        drafts = [
            entries.Draft(fields={"owner_id": owner.id, "timestamp": at}, sections=(("Fact", text),))
            for text in (FACT, CHINESE)
        ]
        await node.cascade.writer.append(owner, "atomic_fact", drafts)
        await node.cascade.until_shown(owner)
        node.search.note_recall(owner)
        yield quoted.Quoted(node.search)


def _said(text: str, role: message.Role = "assistant", at: dt.datetime = SENT) -> message.Message:
    return message.Message(id="m_1", sender_id="helper", role=role, timestamp_us=clock.to_us(at), text=text)


async def _left(found: quoted.Quoted, text: str, role: message.Role = "assistant", owner: types.Owner = MARA) -> str:
    (one,) = await found.without([owner], [_said(text, role)])
    return one.text


async def test_recalled_memories_quoted_back_are_left_out(tmp_path: Path) -> None:
    """Sentences of an agent or a tool that memory has go, nearly the same ones too; what is new stays as it is."""
    async with opened(tmp_path / "root") as found:
        news = "Bergen has 2,562 mm of rain a year, so bring boots."
        assert f"[…]\n{news}" == await _left(found, f"{FACT}\n{news}")
        quoted_back = "- I have moved to Bergen with my two cats, and I like the rain!"
        assert f"[…] {news}" == await _left(found, f"{quoted_back} {news}")
        assert f"{news} […]" == await _left(found, f"{news} {FACT}", "tool")
        assert "" == await _left(found, "我上周和姐姐一起去了北京,还在那里买了一套房子。")
        plain = f"{news}\n\n  ```\nprint(1)\n```"
        assert plain == await _left(found, plain)


async def test_what_was_left_out_leaves_a_mark_that_says_nothing(tmp_path: Path) -> None:
    """What follows may refer to it. Neighbours share one mark, a message of marks alone is empty, and no fact is made of one."""
    async with opened(tmp_path / "root") as found:
        left = await _left(found, f"Sure, Wim! {FACT} {FACT}\n{FACT}\nIt contains no peanuts at all.")
        assert "Sure, Wim! […]\nIt contains no peanuts at all." == left
        assert "" == await _left(found, f"{FACT}\n\n- {FACT}")
        assert [] == spoken.facts(f"2026-05-01 10:00\nhelper: {quoted.LEFT_OUT}")
        prose = "It contains no peanuts at all."
        assert [prose] == spoken.facts(f"{quoted.LEFT_OUT} {prose}")[-1:]


async def test_what_a_person_says_counts_though_it_was_said_before(tmp_path: Path) -> None:
    """Only agents and tools quote."""
    async with opened(tmp_path / "root") as found:
        assert await _left(found, FACT, "user") == FACT


async def test_what_only_has_some_of_the_words_is_no_quotation(tmp_path: Path) -> None:
    """Another city, another number: that is news. So is a short sentence."""
    async with opened(tmp_path / "root") as found:
        for said in (
            "You moved from Bergen to Oslo with your three dogs, and you hate the snow there.",
            "You like the rain there.",
        ):
            assert said == await _left(found, said)


async def test_what_memory_learned_from_these_messages_is_not_taken_for_older(tmp_path: Path) -> None:
    """After a crash the same segment may be read again, with its Episode written already."""
    async with opened(tmp_path / "root", day=30) as found:
        early = _said(FACT, at=dt.datetime(2026, 4, 29, tzinfo=dt.UTC))
        assert (early,) == await found.without([MARA], [early])


async def test_the_memory_of_others_is_not_looked_into(tmp_path: Path) -> None:
    """What the agent quotes is known only if these owners know it."""
    async with opened(tmp_path / "root", owner=BEN) as found:
        assert FACT == await _left(found, FACT)
        assert "" == await _left(found, FACT, owner=BEN)


async def test_blocks_of_recalled_memory_are_left_out_whoever_sends_them(tmp_path: Path) -> None:
    """Programs put them in front of what a person says."""
    async with opened(tmp_path / "root") as found:
        shown = quoted.block(["Mara has a boat.", "Mara rows."])
        assert "Where is my boat?" == await _left(found, f"{shown}\nWhere is my boat?", "user")
        assert "Here." == await _left(found, '<relevant_memories n="2">\nMara rows.\n</relevant_memories>\nHere.')
        assert "a <memory of you" == await _left(found, "a <memory of you", "user")


async def test_an_answer_of_a_memory_server_is_left_out(tmp_path: Path) -> None:
    """It is all memory; JSON of other tools is not."""
    async with opened(tmp_path / "root") as found:
        answer = {"request_id": "r", "data": {"episodes": [{"episode": "Mara rows on Sundays."}], "profiles": []}}
        assert "" == await _left(found, json.dumps(answer), "tool")
        other = json.dumps({"data": {"episodes": ["Pilot", "Finale"], "series": "Rain"}})
        assert other == await _left(found, other, "tool")
        assert "{episodes, profiles" == await _left(found, "{episodes, profiles", "tool")


class _Gone:
    """A search whose ledger is not there."""

    def was_recalled(self, owner: types.Owner) -> bool:  # noqa: ARG002
        """Say yes."""
        return True

    async def run(self, query: query.Query) -> query.Answer:  # noqa: ARG002
        reason = "gone"
        raise errors.StoreError(reason)


async def test_where_memory_cannot_be_searched_what_was_quoted_counts_as_news() -> None:
    """Something told twice is worth less than nothing told."""
    assert FACT == await _left(quoted.Quoted(_Gone()), FACT)


async def test_what_nobody_has_read_nobody_quotes(tmp_path: Path) -> None:
    """Memory that was shown to nobody is not looked through: an agent cannot have it from there."""
    async with opened(tmp_path) as found:
        found._search._recalled.clear()  # type: ignore[attr-defined]
        assert FACT == await _left(found, FACT)
