"""Facts of Episodes over a real root, with a real chat model server and without."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import itertools
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from everosd import clock, config, daemon, errors, learning, types
from everosd.cascade import verify
from everosd.engine import strategy
from everosd.intake import contradiction, fact
from everosd.log import entry as entries
from everosd.log import entry_text
from everosd.models import chat, prompt
from everosd.search import query
from everosd.store import row
from tests import chat_stub

BEN = types.Owner(app="default", project="default", type="user", id="ben")
OSLO = "2026-03-01 12:00\nMara: I live in Oslo, near the harbour.\nBen: The harbour must be cold."
BERGEN = "2026-03-09 12:00\nMara: I have moved to Bergen last week.\nBen: What a change!"
NUMBERS = itertools.count(1)
PROMPTS = Path(learning.__file__).parent / "intake" / "prompts"


pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclasses.dataclass(kw_only=True)
class Place:
    """A person's memory, in a root that is open for all tests, with the strategy over it."""

    root: Path
    node: daemon.Node
    owner: types.Owner
    model: chat.Chat

    def asks(self, stub: chat_stub.ChatStub, **settings: Any) -> None:
        """Ask the model behind a stub from now on."""
        given = {"model": "stub", "base_url": stub.url, "max_retries": 0} | settings
        self.model.use(msgspec.structs.replace(self.node.config.llm, **given))

    async def write(
        self, content: str, day: int = 1, owner: types.Owner | None = None, *, origin: str = "memcell"
    ) -> str:
        """Write an Episode of a day of March; return its id."""
        at = dt.datetime(2026, 3, day, 12, tzinfo=dt.UTC).isoformat()
        fields = {"session_id": "s_1", "timestamp": at, "parent_type": origin}
        draft = entries.Draft(fields=fields, sections=(("Subject", "A talk"), ("Content", content)))
        pen = self.node.cascade.writer
        return (await pen.append(owner or self.owner, "episode", [draft], date="2026-03-02"))[0]

    async def run(
        self, entry_id: str, topic: strategy.Topic = "episode_written", owner: types.Owner | None = None
    ) -> str:
        """Run the strategy as the engine does."""
        return await self.facts().run(strategy.Event(topic=topic, owner=owner or self.owner, subject=entry_id))

    def facts(self) -> fact.Facts:
        """Return the strategy."""
        return fact.Facts(
            reader=self.node.reader,
            pen=self.node.cascade.writer,
            model=self.model,
            prompts=lambda name: prompt.load(name, (PROMPTS,)),
            search=self.node.search,
            zone=lambda: dt.UTC,
            time=self.node.clock,
            settled=_nothing,
        )

    async def put(self, content: str, day: int = 1, owner: types.Owner | None = None) -> str:
        """Write an Episode and take its facts; return its id."""
        entry_id = await self.write(content, day, owner)
        await self.run(entry_id, owner=owner)
        return entry_id

    async def of(self, entry_id: str, owner: types.Owner | None = None) -> list[row.EntryRow]:
        """Return all facts of an Episode, once the ledger is in step."""
        await self.caught_up()
        return await self.node.reader.children(owner or self.owner, [entry_id], "atomic_fact")

    async def live(self, entry_id: str) -> dict[types.EntryId, str]:
        """Return what the live facts of an Episode say, by id."""
        return {one.entry_id: contradiction.said(one) for one in await self.of(entry_id) if one.status == "active"}

    async def edit(self, change: Callable[[str], str]) -> None:
        """Edit the file of Episodes as a person does."""
        (path,) = (self.root / f"default_app/default_project/users/{self.owner.id}/episodes").iterdir()
        await asyncio.to_thread(lambda: path.write_text(change(path.read_text())))
        await self.caught_up()

    async def caught_up(self) -> None:
        """Wait until what is on disk is known, whether its file's change was heard of yet or not."""
        await self.node.cascade.reconcile("test")
        await self.node.cascade.settled(20.0)

    async def found(self, text: str, method: query.Method = "keyword") -> list[str]:
        """Return the Episodes that a search finds, best first, once all of it is searchable."""
        await self.caught_up()
        asked = query.Query(owner=self.owner, text=text, method=method)
        return [hit.row.entry_id for hit in (await self.node.search.run(asked)).episodes]


def fields(one: row.EntryRow) -> Mapping[str, str]:
    return entry_text.read(one.kind, one.entry_id, one.raw).fields


async def _nothing() -> None:
    """Wait for nothing: the daemon has started."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def node(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[daemon.Node]:
    """Open a root as the daemon does, without vectors."""
    root = tmp_path_factory.mktemp("facts")
    (root / config.FILE_NAME).write_text('[embedding]\nmodel = "none"\n')
    loaded = await asyncio.to_thread(config.load, root, {})
    async with daemon.open_parts(loaded, clock.SystemClock()) as opened, daemon.loops(opened, is_watching=True):
        yield opened


@pytest_asyncio.fixture(loop_scope="module")
async def place(node: daemon.Node) -> AsyncIterator[Place]:
    """A new person, and no model."""
    owner = msgspec.structs.replace(BEN, id=f"mara_{next(NUMBERS)}")
    model = chat.Chat(node.config.llm, node.clock)
    yield Place(root=node.config.root, node=node, owner=owner, model=model)
    await model.close()


@pytest.fixture
def stub() -> Iterator[chat_stub.ChatStub]:
    """A model."""
    with chat_stub.ChatStub() as served:
        yield served


async def test_an_episode_gets_its_facts_once(place: Place) -> None:
    """Each says where it comes from and of which text; a second event about the same text, as after a crash, adds none."""
    entry_id = await place.write(OSLO)
    assert "2 facts" == await place.run(entry_id)
    made = await place.of(entry_id)
    assert ["Mara: I live in Oslo, near the harbour.", "Ben: The harbour must be cold."] == [
        contradiction.said(one) for one in made
    ]
    expected = {
        "owner_id": place.owner.id,
        "timestamp": "2026-03-01T12:00:00+00:00",
        "parent_type": "episode",
        "parent_id": entry_id,
        "session_id": "s_1",
        "source_digest": fact.source_digest(OSLO),
        "extracted_by": "verbatim",
    }
    assert [expected, expected] == [fields(one) for one in made]
    assert "2 facts" == await place.run(entry_id)
    assert made == await place.of(entry_id)


async def test_an_episode_gets_its_facts_once_however_many_ask_at_the_same_time(place: Place) -> None:
    """An event, an edit that is owed, and a consolidation that is being finished: one of them takes the facts."""
    entry_id = await place.write(OSLO)
    event = strategy.Event(topic="episode_written", owner=place.owner, subject=entry_id)
    facts = place.facts()
    assert ["2 facts"] * 3 == await asyncio.gather(*(facts.run(event) for _ in range(3)))
    assert 2 == len(await place.of(entry_id))


async def test_a_correction_is_written_beside_the_fact_and_ranks_above(place: Place) -> None:
    """Whatever the question fits better; another person's same words are neither asked nor touched; a rebuild agrees."""
    foreign = await place.put(OSLO, owner=BEN)
    old = await place.put(OSLO)
    new = await place.put(BERGEN, day=9)
    (lives, _), moved = await place.of(old), (await place.of(new))[0]
    assert f"[{lives.entry_id}]" == fields(moved)["corrects"]
    assert [new, old] == await place.found("Does Mara live in Oslo?")
    assert [new, old] == await place.found("Where in Oslo near the harbour?", "hybrid")
    assert [] == [one for one in await place.of(foreign, BEN) if "corrects" in fields(one)]
    assert (await verify.verify(place.node.cascade)).is_clean


async def test_facts_of_a_narrative_are_of_their_days(place: Place) -> None:
    """What it tells of an earlier day corrects nothing that was said since; what no day of the calendar is, is no day."""
    new = await place.put(BERGEN, day=9)
    said = ("2026-03-01", "Mara: I live in Oslo, near the harbour.", "2026-03-20", "Mara: My garden is in bloom again.")
    content = "\n".join((*said, "2026-03-32", "Mara: My cat has had kittens."))
    old = await place.write(content, day=20, origin="cluster")
    await place.run(old)
    facts, moved = await place.of(old), (await place.of(new))[0]
    assert ["Oslo, near the harbour. (2026-03-01)", "in bloom again. (2026-03-20)", "had kittens. (2026-03-32)"] == [
        contradiction.said(one).split(maxsplit=4)[-1] for one in facts
    ]
    assert ["2026-03-01T12:00:00+00:00", *["2026-03-20T12:00:00+00:00"] * 2] == [
        fields(one)["timestamp"] for one in facts
    ]
    assert [] == [one for one in facts if "corrects" in fields(one)]
    assert f"[{facts[0].entry_id}]" == fields(moved)["corrects"]
    plain = await place.put("A note.\n\nMara was in Oslo (2026-02-02)", day=3)
    assert ["2026-03-03T12:00:00+00:00"] == [fields(one)["timestamp"] for one in await place.of(plain)]


async def test_what_was_read_later_and_said_earlier_is_corrected(place: Place) -> None:
    """Old conversations that are taken in afterwards do not overrule what is known."""
    new = await place.put(BERGEN, day=9)
    old = await place.put(OSLO)
    (lives, _), moved = await place.of(old), (await place.of(new))[0]
    assert f"[{lives.entry_id}]" == fields(moved)["corrects"]
    assert "corrects" not in fields(lives)
    assert [new, old] == await place.found("Does Mara live in Oslo?")


async def test_a_correction_within_an_episode_is_linked(place: Place) -> None:
    """Also where a crash came before the link was written."""
    said = (
        "2026-03-01 12:00\nMara: I live in Oslo by now.\nBen: Nice, I like Oslo too.\nMara: Sorry, I moved to Bergen."
    )
    entry_id = await place.put(said)
    lives, _, moved = await place.of(entry_id)
    assert f"[{lives.entry_id}]" == fields(moved)["corrects"]

    def forgotten(one: entries.Entry) -> entries.Entry:
        kept = {name: value for name, value in one.fields.items() if name != "corrects"}
        return entries.Entry(**{name: getattr(one, name) for name in one.__struct_fields__} | {"fields": kept})

    await place.node.cascade.writer.update(moved.path, moved.entry_id, forgotten)
    assert "corrects" not in fields((await place.of(entry_id))[2])
    await place.run(entry_id)
    assert f"[{lives.entry_id}]" == fields((await place.of(entry_id))[2])["corrects"]


async def test_an_edited_episode_gets_new_facts_and_the_old_ones_are_deprecated_by_them(place: Place) -> None:
    """Each by the new one that is most like it; what a crash left undone is done by the next run."""
    entry_id = await place.put(OSLO)
    before = await place.live(entry_id)
    await place.edit(lambda text: text.replace("cold", "windy").replace("near the harbour", "near the park"))
    assert "2 facts, 2 replaced" == await place.run(entry_id, topic="episode_edited")
    after = await place.live(entry_id)
    assert ["Mara: I live in Oslo, near the park.", "Ben: The harbour must be windy."] == list(after.values())
    rows = {one.entry_id: one for one in await place.of(entry_id)}
    assert list(after) == [rows[each].deprecated_by for each in before]
    path = rows[next(iter(before))].path
    await place.node.cascade.writer.revive(path, before)
    assert 4 == len(await place.live(entry_id))
    assert "2 facts, 2 replaced" == await place.run(entry_id, topic="episode_edited")
    assert after == await place.live(entry_id)


async def test_a_correction_outlives_edits_on_both_sides(place: Place) -> None:
    """New facts of either Episode are linked as the old ones were."""
    old, new = await place.put(OSLO), await place.put(BERGEN, day=9)
    for word, entry_id in (("harbour", old), ("last week", new)):
        await place.edit(lambda text, word=word: text.replace(word, "other times"))  # type: ignore[misc]
        await place.run(entry_id, topic="episode_edited")
        assert [new, old] == await place.found("Does Mara live in Oslo?")


async def test_a_text_that_says_nothing_is_noted_once(place: Place) -> None:
    """Its facts of before go to the Episode itself, and nobody asks again until it says something."""
    entry_id = await place.put(OSLO)
    await place.edit(lambda text: re.sub(r"### Content\n.*?(?=<!-- /entry)", "### Content\n…\n", text, flags=re.DOTALL))
    for _ in range(2):
        assert (await place.run(entry_id, topic="episode_edited")).startswith("0 facts")
        assert [entry_id, entry_id] == [one.deprecated_by for one in await place.of(entry_id)]
    notes = await place.node.reader.children(place.owner, [entry_id], "cluster")
    assert [("no_facts", entry_id, fact.source_digest("…"))] == [
        tuple(fields(one)[name] for name in ("event", "member_id", "digest")) for one in notes
    ]


async def test_facts_of_other_programs_are_left_alone(place: Place) -> None:
    """An Episode that came with facts, as in a root of EverOS, gets no second ones, until somebody edits it."""
    entry_id = await place.write(OSLO)
    given = {"owner_id": place.owner.id, "parent_type": "episode", "parent_id": entry_id}
    draft = entries.Draft(fields=given, sections=(("Fact", "Mara lives in Oslo."),))
    await place.node.cascade.writer.append(place.owner, "atomic_fact", [draft])
    await place.of(entry_id)
    assert "it has 1 facts of other programs" == await place.run(entry_id)
    assert ["Mara lives in Oslo."] == list((await place.live(entry_id)).values())
    await place.run(entry_id, topic="episode_edited")
    assert 2 == len(await place.live(entry_id))


async def test_what_is_gone_or_retired_gets_no_facts(place: Place) -> None:
    """A deprecated Episode is another one's matter."""
    first, second = await place.write(OSLO), await place.write(BERGEN)
    await place.of(first)
    row_of = await place.node.reader.find(place.owner, first)
    assert row_of is not None
    await place.node.cascade.writer.deprecate(row_of.path, {first: second})
    await place.of(first)
    assert "the Episode is deprecated" == await place.run(first)
    assert [] == await place.of(first)


# -- with a model ------------------------------------------------------------------------------------------------------


async def test_the_models_facts_are_kept_as_far_as_the_episode_has_them(place: Place, stub: chat_stub.ChatStub) -> None:
    """What it makes up is left out, and where nothing is left the Episode's own sentences are taken."""
    true, wrong = "Mara lives in Oslo, near the harbour.", "Mara paid 900 euros to Sarah Connor in Madrid."
    stub.script("atomic_facts", {"facts": [true, wrong, true, "  "]})
    place.asks(stub)
    entry_id = await place.put(OSLO)
    assert [true] == list((await place.live(entry_id)).values())
    assert "stub" in fields((await place.of(entry_id))[0])["extracted_by"]
    stub.script("atomic_facts", {"facts": [wrong]})
    entry_id = await place.put(OSLO, day=2)
    assert "verbatim" == fields((await place.of(entry_id))[0])["extracted_by"]
    assert 2 == len(await place.live(entry_id))


async def test_L04_an_unusable_answer_gives_verbatim_facts(place: Place, stub: chat_stub.ChatStub) -> None:
    """Reasoning alone, prose, half an answer: nothing of it is stored, and the Episode is not without facts."""
    place.asks(stub)
    for day, dress in enumerate(("only_think", "cut", "only_prose"), start=1):
        stub.dress = dress  # type: ignore[assignment]
        entry_id = await place.put(OSLO, day=day)
        assert {"verbatim"} == {fields(one)["extracted_by"] for one in await place.of(entry_id)}
    text = "".join(path.read_text() for path in place.root.rglob("*.md"))
    assert "think" not in text


async def test_a_model_that_is_away_is_asked_again_later(place: Place, stub: chat_stub.ChatStub) -> None:
    """Nothing is written until then."""
    place.asks(stub)
    entry_id = await place.write(OSLO)
    stub.fail(1, status=503)
    with pytest.raises(errors.LLMUnavailable):
        await place.run(entry_id)
    assert [] == await place.of(entry_id)
    await place.run(entry_id)
    assert await place.live(entry_id)


async def test_a_long_episode_is_read_in_parts(place: Place, stub: chat_stub.ChatStub) -> None:
    """Every line of it is shown once, and no prompt is longer than the model takes."""
    lines = [f"Mara: In month {number} of that year I sold {number + 100} paintings." for number in range(200)]
    place.asks(stub, max_input_tokens=2000)
    entry_id = await place.put("\n".join(["2026-03-01 12:00", *lines]))
    shown = [asked.user for asked in stub.asked_of("atomic_facts")]
    assert len(shown) > 2
    assert lines == [line for one in shown for line in one.splitlines() if line.startswith("Mara:")]
    assert len(await place.live(entry_id)) > 50


async def test_Z04_a_model_links_only_what_it_was_shown(place: Place, stub: chat_stub.ChatStub) -> None:
    """A contradiction that only a model sees is written; numbers out of range, of unrelated facts, or its own, are not."""
    stub.script("atomic_facts", lambda asked: {"facts": [re.search(r"Mara: (.*)", asked.user)[1]]})  # type: ignore[index]
    place.asks(stub)
    garden = await place.put("2026-03-01 12:00\nMara: Painting the garden is what keeps Mara calm.")
    other = await place.put("2026-03-02 12:00\nMara: Mara paid the plumber of the garden.", day=2)
    wild = [{"later": later, "earlier": earlier} for later in (-1, 0, 2, 99) for earlier in (-1, 0, 1, 99)]
    stub.script("contradictions", {"contradictions": [*wild, {"later": 1, "earlier": 99}]})
    none = await place.put("2026-03-03 12:00\nMara: Mara took the painting of the garden down.", day=3)
    assert [] == [one for one in await place.of(none) if "corrects" in fields(one)]

    def told(asked: chat_stub.Asked) -> dict[str, Any]:
        number = re.search(r"(\d+)\. \(2026-03-01\)", asked.user)
        assert number is not None
        return {"contradictions": [{"later": 1, "earlier": int(number[1])}]}

    stub.script("contradictions", told)
    new = await place.put("2026-03-04 12:00\nMara: Painting the garden makes Mara mad.", day=4)
    (first,), (later,) = await place.of(garden), await place.of(new)
    assert f"[{first.entry_id}]" == fields(later)["corrects"]
    assert {"active"} == {one.status for each in (garden, other, none) for one in await place.of(each)}
