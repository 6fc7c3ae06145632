"""Reflection over a real root, with a merge that a test scripts: what reflection's tests share."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from pathlib import Path

from everosd import config, types
from everosd.engine import strategy
from everosd.intake import fact
from everosd.log import entry, entry_text, file, view
from everosd.models import chat, prompt
from everosd.narrative import source as texts
from everosd.reflection import lag, reflect, rollback, source
from everosd.store import report, row
from tests import open_root

ANDREW = types.Owner(app="default", project="default", type="user", id="u_andrew")
CLUSTER = "cl_a1b2c3d4e5f6"
STORY = ("Andrew has no pets yet.", "Andrew adopted a dog named Toby.", "Andrew also adopted a dog named Buddy.")
PROMPTS = Path(fact.__file__).parent / "prompts"
DUE = dt.datetime(2026, 3, 9, 2, tzinfo=dt.UTC)


class Scripted:
    """A merge that keeps every sentence of its sources, once, in time order; tests change what it does."""

    def __init__(self) -> None:
        """Begin as one that is set up and does its work."""
        self.name = "scripted"
        self.is_set_up = True
        self.room = 1_000_000
        """Characters that fit into one merge."""
        self.asked: list[tuple[str, ...]] = []
        """Ids of the sources of each merge."""
        self.before: Callable[[Sequence[texts.Source]], Awaitable[None]] | None = None
        """Awaited while the model would be thinking."""
        self.error: Exception | None = None

    def n_fitting(self, sources: Sequence[texts.Source]) -> int:
        """Count characters."""
        used = 0
        for at, one in enumerate(sources):
            used += len(one.content)
            if used > self.room:
                return at
        return len(sources)

    async def merge(self, sources: Sequence[texts.Source]) -> texts.Narrative:
        """Put the sentences together; what a person edited is last."""
        self.asked.append(tuple(one.entry_id for one in sources))
        if self.before is not None:
            await self.before(sources)
        if self.error is not None:
            raise self.error
        ordered = sorted(sources, key=lambda one: (one.is_latest, one.at, one.is_narrative, one.entry_id))
        lines = dict.fromkeys(line for one in ordered for line in one.content.splitlines() if line.strip())
        check = texts.Check(n_statements=len(lines), n_covered=len(lines))
        return texts.Narrative(subject="What happened", content="\n".join(lines), by=self.name, check=check)


@dataclasses.dataclass(kw_only=True)
class Mind:
    """A root with a reflection over it."""

    root: open_root.Root
    reflection: reflect.Reflection
    merging: Scripted
    settings: config.Reflection
    owed: list[row.EntryRow]
    """Episodes whose facts are to be taken later."""
    owner: types.Owner = ANDREW
    wants_facts: bool = True
    fails_facts: Exception | None = None
    at_facts: Callable[[], Awaitable[None]] | None = None
    """Awaited before facts are taken: after the commit point, and before anything is deprecated."""

    async def tell(
        self, *said: str, cluster: str = CLUSTER, day: int = 1, owner: types.Owner | None = None, has_facts: bool = True
    ) -> list[str]:
        """Write an Episode for each text, a day apart, with its facts, into one cluster; return their ids."""
        owner, ids = owner or self.owner, []
        for nth, text in enumerate(said):
            ids.append(await self.root.episode(owner, text, day=day + nth))
        for each in ids:
            await self.root.join(owner, each, cluster, "episode")
        await self.root.settled()
        if has_facts:
            for each in ids:
                await self.take_facts(strategy.Event(topic="episode_written", owner=owner, subject=each))
            await self.root.settled()
        return ids

    async def take_facts(self, event: strategy.Event) -> str:
        """Run the strategy, without a model."""
        if self.fails_facts is not None:
            raise self.fails_facts
        return await facts_of(self.root).run(event)

    async def run(self, **fire: object) -> strategy.Done:
        """Fire by hand."""
        given = {"run_id": "r", "trigger": "manual", "due_at": DUE, "is_stopping": lambda: False} | fire
        return await self.reflection.run(strategy.Fire(**given))  # type: ignore[arg-type]

    async def live(self, kind: str = "episode", owner: types.Owner | None = None) -> list[row.EntryRow]:
        """Return live entries, in time order."""
        return await self.root.all(owner or self.owner, kind)

    async def narrative(self) -> row.EntryRow:
        """Return the only live narrative."""
        (found,) = [one for one in await self.live() if source.is_narrative(one)]
        return found

    async def of(self, entry_id: str) -> row.EntryRow:
        """Return an entry."""
        found = await self.root.reader.find(self.owner, entry_id)
        assert found is not None
        return found

    async def report_of(self, entry_id: str) -> report.Report:
        """Return the report of a narrative."""
        found = await report.of_narrative(self.root.reader, self.owner, entry_id)
        assert found is not None
        return found

    async def rollback(self, entry_id: str) -> rollback.RolledBack:
        """Undo the consolidation that wrote a narrative."""
        return await self.reflection.rollback(await self.report_of(entry_id))

    async def facts(self) -> list[str]:
        """Return what the live facts say, sorted."""
        return sorted(said(one) for one in await self.live("atomic_fact"))

    async def reports(self) -> list[report.Report]:
        """Return all reports, the newest first."""
        found, _ = await report.page(
            self.root.reader, app="default", project="default", owner_id=None, cluster_id=None, limit=100, offset=0
        )
        return found

    def digest(self) -> str:
        """Return what stands for every byte of the log."""
        every = hashlib.blake2b()
        for path in sorted(self.root.path.rglob("*.md")):
            if ".index" not in path.parts and ".tmp" not in path.parts:
                every.update(str(path).encode() + path.read_bytes())
        return every.hexdigest()


def said(one: row.EntryRow) -> str:
    """Return what a fact or an Episode says."""
    seen = view.view(entry_text.read(one.kind, one.entry_id, one.raw, form=one.form))
    return str(getattr(seen, "fact", "") or getattr(seen, "content", ""))


def facts_of(root: open_root.Root, model: chat.Chat | None = None) -> fact.Facts:
    """Return what takes facts; without a model, verbatim."""
    return fact.Facts(
        reader=root.reader,
        pen=root.pen,
        model=model or chat.Chat(root.node.config.llm, root.node.clock),
        prompts=lambda name: prompt.load(name, (PROMPTS,)),
        search=root.node.search,
        zone=lambda: dt.UTC,
        time=root.node.clock,
        settled=root.is_settled,
    )


def over(root: open_root.Root, step: file.Step = file.no_step, merging: Scripted | None = None) -> Mind:
    """Return a reflection over an open root."""
    cascade, scripted, owed = root.node.cascade, merging or Scripted(), list[row.EntryRow]()
    settings = config.Reflection(merge="llm", clusters_per_run=10, max_narrative_tokens=3000)

    def is_shown(lsn: types.Lsn) -> bool:
        return all(one.lsn >= lsn for one in cascade.projection_states().values())

    async def take_facts(event: strategy.Event) -> str:
        if mind.at_facts is not None:
            await mind.at_facts()
        return await mind.take_facts(event)

    async def owe(episode: row.EntryRow) -> None:
        owed.append(episode)

    reflection = reflect.Reflection(
        reader=root.reader,
        pen=root.pen,
        behind=lag.Lag(root.reader, root.pen.layout, cascade.mark, is_shown, root.node.clock),
        merging=lambda: mind.merging,
        settings=lambda: mind.settings,
        facts=take_facts,
        wants_facts=lambda: mind.wants_facts,
        owe=owe,
        zone=lambda: dt.UTC,
        settled=root.is_settled,
        give_way=root.is_settled,
        time=root.node.clock,
        step=step,
    )
    mind = Mind(root=root, reflection=reflection, merging=scripted, settings=settings, owed=owed)
    return mind


@contextlib.asynccontextmanager
async def opened(path: Path, step: file.Step = file.no_step, merging: Scripted | None = None) -> AsyncIterator[Mind]:
    """Open a root, and a reflection over it."""
    async with open_root.opened(path) as root:
        yield over(root, step, merging)


class Killed(BaseException):
    """The process ends here: nothing catches it on the way."""


class Fuse:
    """A step that ends everything at the nth moment, or at the first that has a new name."""

    def __init__(self, nth: int = 0, known: Collection[str] | None = None) -> None:
        """Give one of the two."""
        self._nth, self._known, self._n = nth, known, 0
        self.last = ""

    def __call__(self, name: str) -> None:
        """Be called at a moment."""
        self.last = name
        self._n += 1
        if self._n == self._nth or (self._known is not None and name not in self._known):
            raise Killed


async def killed(work: Awaitable[object]) -> bool:
    """Do it until it is killed; False: it was not."""
    was_killed = False
    try:
        await work
    except* Killed:
        was_killed = True
    return was_killed


def shop(number: int) -> str:
    """Return a statement that is like no other."""
    return f"Mara bought {100 + number} grams of tea in shop {number:03}."


async def scatter(
    root: open_root.Root, owner: types.Owner, numbers: Sequence[int], *, cluster: str = CLUSTER
) -> list[str]:
    """Write Episodes of one statement each with their facts, over several files; return their ids."""
    ids: list[str] = []
    for first in range(0, len(numbers), 10):
        part = numbers[first : first + 10]
        date = f"2026-01-{1 + (part[0] // 10) % 28:02}"
        moments = [f"{date}T12:{number % 60:02}:00+00:00" for number in part]
        drafts = [
            entry.Draft(
                fields={"owner_id": owner.id, "session_id": "s", "timestamp": at, "parent_type": "memcell"},
                sections=(("Subject", "Tea"), ("Content", shop(number))),
            )
            for number, at in zip(part, moments, strict=True)
        ]
        new = await root.pen.append(owner, "episode", drafts, date=date)
        facts = [
            entry.Draft(
                fields={
                    "owner_id": owner.id,
                    "timestamp": at,
                    "parent_type": "episode",
                    "parent_id": entry_id,
                    "source_digest": fact.source_digest(shop(number)),
                },
                sections=(("Fact", shop(number)),),
            )
            for number, at, entry_id in zip(part, moments, new, strict=True)
        ]
        await root.pen.append(owner, "atomic_fact", facts, date=date)
        rows = [
            entry.Draft(fields={"event": "joined", "cluster_id": cluster, "member_id": each, "member_type": "episode"})
            for each in new
        ]
        await root.pen.append(owner, "cluster", rows, date=date)
        ids += new
    return ids


async def wrongs(mind: Mind, statements: Sequence[str], *, is_finished: bool) -> list[str]:
    """Return what is wrong with a memory that has these statements; nothing should be, wherever it was cut off.

    Once what was begun is finished, each is said by one live fact, and no two live Episodes say the same.
    """
    episodes, facts = await mind.live(), await mind.facts()
    found = [f"gone: {one}" for one in statements if not any(one in said(each) for each in episodes)]
    problems = mind.root.node.cascade.status().problems
    found += [f"{one.path}: {one.reason}" for one in problems if one.kind == "successor"]
    told = [one for each in episodes for one in said(each).splitlines() if one.strip()]
    if is_finished:
        found += [f"said {told.count(one)} times: {one}" for one in statements if told.count(one) != 1]
        found += [f"{facts.count(one)} facts: {one}" for one in statements if facts.count(one) != 1]
        owners = {one.entry_id for one in episodes}
        found += [f"fact of nobody: {one.raw}" for one in await mind.live("atomic_fact") if one.parent_id not in owners]
    else:
        found += [f"no fact: {one}" for one in statements if one not in facts]
    made = [
        source.episode(one).report_id for one in await mind.root.all(mind.owner, "episode") if source.is_narrative(one)
    ]
    found += [f"two narratives of one merge: {one}" for one in made if made.count(one) > 1]
    return found
