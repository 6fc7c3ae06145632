"""Skills: procedures that an agent learned, `skills/skill_<name>/SKILL.md`, one for each cluster of its cases.

A skill keeps its id for life; its name and folder may change with what it is about. What a person changed in one stays.
"""

from __future__ import annotations

import asyncio
import collections
import datetime as dt
import hashlib
import unicodedata
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import msgspec
import structlog

from everosd import clock, errors, types
from everosd.engine import strategy
from everosd.index import token
from everosd.intake import arrival, opinion, revision, statement, trace
from everosd.log import entry_text, escape, file, layout, parse, view, whole, writer
from everosd.log import kind as kinds
from everosd.models import chat
from everosd.narrative import check
from everosd.store import cluster, read
from everosd.store import row as store_row

log = structlog.get_logger(__name__)

NAME = "extract_agent_skill"
PROMPT = "agent_skill"

MIN_CASES = 2
"""One case is an anecdote."""
MAX_NAME_CHARS = 60
MAX_DESCRIPTION_CHARS = 400
MAX_BODY_CHARS = 12_000

_ACTION = "skill"
_STAMP = "updated_at"
_MAX_ATTEMPTS = 5
"""At a file that somebody else keeps saving."""
_MAX_CASES = 20
"""That one skill is made of, the newest."""
_MATURE_FROM = 5
"""Cases that make a skill as mature as it gets."""
_MAX_SAME_NAME = 99
_PATIENCE_S = 2.0
"""How long one run waits for the ledger."""
_N_NAME_WORDS = 4
_COURTESIES = frozenset(
    ("please", "can", "could", "would", "hi", "hello", "hey", "help", "need", "want", "let", "bitte")
)
_SHOWN_SHARE = 2
"""A half of what the model takes is for the cases."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What the model says."""

    name: str = ""
    description: str = ""
    content: str = ""


class Skill(msgspec.Struct, frozen=True, kw_only=True):
    """What a skill is to say."""

    name: str
    """As a folder takes it (`slug`)."""
    description: str
    body: str


class _File(NamedTuple):
    """A skill on disk."""

    path: types.RelPath
    data: bytes
    parsed: parse.Parsed


class _Shelf(NamedTuple):
    """The skills of an agent on disk."""

    mine: _File | None
    """That of the cluster."""
    broken: parse.Parsed | None
    """One that does not parse and speaks of the cluster."""
    names: frozenset[str]
    """Of all folders, folded: names that are taken."""


class Skills:
    """The strategy. Lives on the event loop; one run of an owner at a time."""

    def __init__(
        self,
        *,
        reader: read.Reader,
        pen: writer.Writer,
        model: chat.Chat,
        prompts: opinion.Prompts,
        time: clock.Clock,
        settled: Callable[[], Awaitable[None]],
    ) -> None:
        """Wire it.

        Args:
            reader: Where cases and clusters are found.
            pen: Writes skills.
            model: Asked where one is set up; else a skill is put together from its cases.
            prompts: Where its prompt is found.
            time: For stamps.
            settled: Returns once the ledger has what is on disk.
        """
        self._reader, self._pen, self._model, self._prompts = reader, pen, model, prompts
        self._clock, self._settled = time, settled
        self._revisions = revision.Revisions(_ACTION, reader, pen, time, settled)
        self._arrivals = arrival.Arrivals(time, _PATIENCE_S)
        """Cases that the ledger has in no cluster, and since when (monotonic)."""

    async def run(self, event: strategy.Event) -> str:
        """Make or bring up to date the skill of the cluster that a case has joined.

        Raises:
            errors.LLMUnavailable: the model cannot be asked now.
            errors.WriteRefused: the disk is full, the file is protected, or somebody keeps changing it.
        """
        owner = event.owner
        await self._settled()
        cluster_id = await self._cluster(owner, event.subject)
        if cluster_id is None:
            return "the case is in no cluster any more"
        members = await cluster.members(self._reader, owner, cluster_id)
        rows = await self._reader.rows([each.key for each in members])
        cases = [_case(each) for each in rows if each.kind == "agent_case" and each.status == "active"]
        if len(cases) < MIN_CASES:
            return f"{cluster_id} has {len(cases)} of the {MIN_CASES} cases that make a skill"
        return await self._keep(owner, cluster_id, cases[-_MAX_CASES:])

    def forget_owner(self, owner: types.Owner) -> None:
        """Let go of what is known of an owner whose files have been deleted: nothing of it may come back."""
        self._revisions.forget_owner(owner)
        self._arrivals.forget(owner)

    async def _cluster(self, owner: types.Owner, case_id: str) -> str | None:
        """Return the cluster that a case has joined, once the ledger knows; None where it has left it meanwhile.

        Raises:
            errors.LLMUnavailable: the ledger does not know yet.
        """
        return await self._arrivals.find(
            owner,
            case_id,
            lambda: cluster.cluster_of(self._reader, owner, case_id),
            lambda: errors.LLMUnavailable(_ACTION, f"it is not known yet which cluster {case_id} has joined"),
        )

    async def _keep(self, owner: types.Owner, cluster_id: str, cases: Sequence[_Case]) -> str:
        shelf = await self._shelf(owner, cluster_id)
        if shelf.broken is not None and shelf.mine is None:
            error = shelf.broken.error
            line = 1 if error is None else error.line
            log.warning("skill_left_alone", path=shelf.broken.path, line=line)
            return f"{shelf.broken.path}:{line} does not parse and is left as it is"
        latest = await self._revisions.latest(owner, _id(cluster_id))
        if shelf.mine is None and latest.is_on_disk:
            return "somebody deleted this skill: it is not made again"
        ids = [each.entry_id for each in cases]
        if shelf.mine is not None and shelf.mine.parsed.frontmatter.values.get("source_case_ids") == ids:
            return f"{shelf.mine.path} has these cases already"
        skill = await self._skill(cluster_id, cases, shelf.mine)
        for _ in range(_MAX_ATTEMPTS):
            path = await self._attempt(owner, cluster_id, cases, skill)
            if path is not None:
                return f"{path} from {len(cases)} cases"
        raise errors.WriteRefused(
            self._pen.layout.path_for(owner, "agent_skill", None, name=skill.name),
            "somebody else keeps changing it",
            hint="close what writes to it",
        )

    async def _attempt(
        self, owner: types.Owner, cluster_id: str, cases: Sequence[_Case], skill: Skill
    ) -> types.RelPath | None:
        """Merge and write once; return where, None where somebody saved meanwhile."""
        target = _id(cluster_id)
        shelf = await self._shelf(owner, cluster_id)
        newest = (await self._revisions.latest(owner, target)).newest
        found = shelf.mine
        base = None
        if found is not None:
            base = await self._revisions.of_stamp(owner, target, found.parsed.frontmatter.text(_STAMP)) or newest
        found, name = await self._named(owner, shelf, base, skill.name)
        path = self._pen.layout.path_for(owner, "agent_skill", None, name=name) if found is None else found.path
        stamp = self._next_stamp(found, newest)
        scores = _scores(cases)
        made = msgspec.structs.replace(skill, name=name)

        theirs = frozenset[str]() if found is None else _theirs(found, base)

        def rendered() -> bytes:
            if found is None:
                return whole.new(path, _values(owner, cluster_id, made, scores, stamp), made.body)
            return _changed(found, theirs, made, scores, stamp)

        new = await asyncio.to_thread(rendered)
        await self._revisions.add(owner, target, new, revision.of_text(new, stamp, theirs=theirs))
        expected = None if found is None else found.data
        written = await self._pen.replace(path, lambda now: new if now == expected else now)
        if written != new:
            return None
        await self._revisions.landed(owner, target)
        return path

    async def _named(
        self, owner: types.Owner, shelf: _Shelf, base: revision.Revision | None, wanted: str
    ) -> tuple[_File | None, str]:
        """Return the file of a skill, moved if it is called otherwise from now on, and its name.

        A name that a person gave it, in the file or as a folder, stays.
        """
        found = shelf.mine
        if found is None:
            return None, _free(wanted, shelf.names)
        folder = found.parsed.place.name
        given = found.parsed.frontmatter.text("name")
        is_own = base is not None and "name" not in base.theirs and given == base.values.get("name") == folder
        if not is_own or wanted == folder:
            return found, given or folder
        name = _free(wanted, shelf.names - {_folded(folder)})
        to = self._pen.layout.path_for(owner, "agent_skill", None, name=name)
        if name == folder or not await self._pen.move(found.path, to):
            return found, folder
        return found._replace(path=to), name

    def _next_stamp(self, found: _File | None, newest: revision.Revision | None) -> str:
        """Return a moment later than every one that the skill has been written at."""
        now = self._clock.now()
        texts = ("" if found is None else found.parsed.frontmatter.text(_STAMP), "" if newest is None else newest.stamp)
        for text in texts:
            us = view.moment_us(text, dt.UTC)
            if us is not None and us >= clock.to_us(now):
                now = clock.from_us(us + 1)
        return now.astimezone(dt.UTC).isoformat(timespec="microseconds")

    async def _shelf(self, owner: types.Owner, cluster_id: str) -> _Shelf:
        return await asyncio.to_thread(lambda: _look(self._pen.layout, owner, cluster_id))

    # -- what it says ----------------------------------------------------------------------------------------------

    async def _skill(self, cluster_id: str, cases: Sequence[_Case], found: _File | None) -> Skill:
        former = None if found is None else found.parsed.place.name
        plain = put_together(cases, name=former or "", fallback=f"skill-{cluster_id[-6:]}")
        if not self._model.is_set_up:
            return plain
        present = "" if found is None else found.parsed.text
        prompt, known, shown = await asyncio.to_thread(
            lambda: (self._prompts(PROMPT), self._fitting(present), self._shown(cases))
        )
        try:
            answer = await self._model.ask(
                prompt.filled(
                    known=known or "none yet",
                    cases=shown,
                    language=self._model.language or "the language of the tasks",
                ),
                Answer,
            )
        except errors.LLMRejected as error:
            log.info("skill_verbatim", cluster=cluster_id, reason=str(error))
            return plain
        return await asyncio.to_thread(lambda: checked(answer, plain, [*(each.text() for each in cases), present]))

    def _fitting(self, text: str) -> str:
        """Return the beginning of a skill, as much as goes beside the cases."""
        while text and self._model.n_tokens(text) > self._model.max_input_tokens // 4:
            text = text[: len(text) * 3 // 4]
        return text

    def _shown(self, cases: Sequence[_Case]) -> str:
        """Return as many of the cases as the model takes, the newest ones."""
        room = self._model.max_input_tokens // _SHOWN_SHARE
        shown: list[str] = []
        for each in reversed(cases):
            text = each.text()
            room -= self._model.n_tokens(text)
            if room < 0 and shown:
                break
            shown.append(text)
        return "\n\n".join(reversed(shown))


class _Case(msgspec.Struct, frozen=True, kw_only=True):
    """An agent case, as a skill is made of it."""

    entry_id: str
    intent: str
    approach: str
    insight: str
    quality: float

    def text(self) -> str:
        """Return all of it."""
        insight = f"\nInsight: {self.insight}" if self.insight else ""
        return f"Task: {self.intent}\nQuality: {self.quality}\n{self.approach}{insight}"


def _case(row: store_row.EntryRow) -> _Case:
    seen = view.view(entry_text.read(row.kind, row.entry_id, row.raw, form=row.form))
    made = seen if isinstance(seen, kinds.AgentCase) else kinds.AgentCase()
    return _Case(
        entry_id=row.entry_id,
        intent=made.task_intent.strip(),
        approach=made.approach.strip(),
        insight=(made.key_insight or "").strip(),
        quality=min(1.0, max(0.0, made.quality_score)),
    )


def _id(cluster_id: str) -> str:
    return f"skill_{cluster_id.removeprefix('cl_')}"


def slug(name: str) -> str:
    """Return a name as a folder takes it: letters, marks, digits, `-` and `_`; two names that differ in these never share one.

    Empty where nothing is left of it.
    """
    text = types.nfc(name).strip().lower()
    kept = "".join(char if char in "-_" or unicodedata.category(char)[0] in "LMN" else " " for char in text)
    joined = "-".join(kept.split()).strip("-_")
    if len(joined) <= MAX_NAME_CHARS:
        return joined
    mark = hashlib.blake2b(joined.encode(), digest_size=3).hexdigest()
    return f"{joined[: MAX_NAME_CHARS - len(mark) - 1].rstrip('-_')}-{mark}"


def _folded(name: str) -> str:
    return types.nfc(name).casefold()


def _free(name: str, taken: frozenset[str]) -> str:
    """Return a name that no other skill has."""
    candidates = (name, *(f"{name}-{number}" for number in range(2, _MAX_SAME_NAME + 1)))
    return next((each for each in candidates if _folded(each) not in taken), name)


def put_together(cases: Sequence[_Case], *, name: str, fallback: str) -> Skill:
    """Return a skill made of its cases, without a model: the approach of the best one, and what was learned in all.

    Args:
        cases: oldest first, at least one.
        name: what it is called already; empty: it gets a name.
        fallback: its name where the cases suggest none.
    """
    best = max(reversed(cases), key=lambda each: each.quality)
    intents = list(dict.fromkeys(_wanted(each) for each in reversed(cases) if each.intent))
    called = name or slug(" ".join(_common_words(cases))) or fallback
    insights = list(dict.fromkeys(each.insight for each in reversed(cases) if each.insight))
    parts = [f"# {called}", "## When\n" + "\n".join(f"- {intent}" for intent in intents), f"## Steps\n{best.approach}"]
    if insights:
        parts.append("## Seen\n" + "\n".join(f"- {insight}" for insight in insights))
    return Skill(
        name=called,
        description=trace.shortened(_wanted(best) or called, MAX_DESCRIPTION_CHARS),
        body="\n\n".join(parts)[:MAX_BODY_CHARS],
    )


def _wanted(one: _Case) -> str:
    """Return the first sentence of a task that says something: what follows it may be anything."""
    sentences = list(statement.sentences(one.intent))
    return next((each for each in sentences if len(each.split()) > 2 or not each.isascii()), one.intent)  # noqa: PLR2004 - more than a greeting


def _common_words(cases: Sequence[_Case]) -> list[str]:
    """Return the first few words that most of the tasks have in common, in the order of the newest."""
    counts = collections.Counter(word for each in cases for word in set(token.query_words(each.intent)))
    words = [word for word in token.query_words(_wanted(cases[-1])) if word not in _COURTESIES]
    common = [word for word in words if 2 * counts[word] > len(cases)]
    return (common or words)[:_N_NAME_WORDS]


def checked(answer: Answer, plain: Skill, sources: Sequence[str]) -> Skill:
    """Return the model's skill as far as its sources have what it says; what they have not is taken from `plain`."""
    grounds = check.Grounds(sources)

    def kept(text: str, limit: int) -> str:
        text = escape.clean(text).strip()
        return text if text and len(text) <= limit and not grounds.inventions(trace.unnumbered(text)) else ""

    body = kept(answer.content, MAX_BODY_CHARS)
    return Skill(
        name=slug(answer.name) or plain.name,
        description=" ".join(kept(answer.description, MAX_DESCRIPTION_CHARS).split()) or plain.description,
        body=body or plain.body,
    )


class _Scores(NamedTuple):
    """What is computed of the cases of a skill."""

    confidence: float
    maturity: float
    case_ids: list[str]


def _scores(cases: Sequence[_Case]) -> _Scores:
    confidence = round(sum(each.quality for each in cases) / len(cases), 2)
    maturity = round(min(1.0, len(cases) / _MATURE_FROM), 2)
    return _Scores(confidence, maturity, [each.entry_id for each in cases])


def _values(owner: types.Owner, cluster_id: str, made: Skill, scores: _Scores, stamp: str) -> dict[str, whole.Value]:
    return {
        "id": _id(cluster_id),
        "type": "agent_skill",
        "schema_version": 1,
        "agent_id": owner.id,
        "track": "agent",
        "name": made.name,
        "description": made.description,
        "confidence": scores.confidence,
        "maturity_score": scores.maturity,
        "source_case_ids": scores.case_ids,
        "cluster_id": cluster_id,
        "created_at": stamp,
        _STAMP: stamp,
    }


_BODY = "body"
_OWN_KEYS = ("name", "description", "confidence", "maturity_score")
"""What a person may change for good."""


def _body(found: _File) -> str:
    return escape.strip_blank_lines(found.parsed.text[found.parsed.frontmatter.end :].replace("\r\n", "\n"))


def _theirs(found: _File, base: revision.Revision | None) -> frozenset[str]:
    """Return the parts of a skill that a person has changed since `base`, or before it."""
    if base is None:
        return frozenset((*_OWN_KEYS, _BODY))
    there = found.parsed.frontmatter.values
    changed = {key for key in _OWN_KEYS if there.get(key) != base.values.get(key)}
    return base.theirs | changed | ({_BODY} if _body(found) != base.body else frozenset())


def _changed(found: _File, theirs: frozenset[str], made: Skill, scores: _Scores, stamp: str) -> bytes:
    """Return the new bytes of a skill: what is a person's stays as they have it."""
    wanted: dict[str, whole.Value] = {
        "name": made.name,
        "description": made.description,
        "confidence": scores.confidence,
        "maturity_score": scores.maturity,
    }
    values = {key: each for key, each in wanted.items() if key not in theirs}
    kept: dict[str, whole.Value] = {"source_case_ids": scores.case_ids, _STAMP: stamp}
    return whole.changed(found.parsed, values | kept, None if _BODY in theirs else made.body)


def _look(places: layout.Layout, owner: types.Owner, cluster_id: str) -> _Shelf:
    """Read the skills of an agent. Blocking."""
    row = kinds.BY_NAME["agent_skill"]
    folder = types.RelPath(f"{places.owner_folder(owner)}/{row.folder}")
    try:
        names = sorted(each.name for each in (places.root / folder).iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return _Shelf(None, None, frozenset())
    mine: _File | None = None
    broken: parse.Parsed | None = None
    for name in names:
        path = types.RelPath(f"{folder}/{name}/{row.stem}.md")
        place = layout.place(path)
        try:
            data = None if place is None else file.read(places.root / path).data
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise file.refusal(places.root / path, error) from error
        if place is None or data is None:
            continue
        parsed = parse.parse(path, data, place)
        if parsed.error is not None:
            broken = parsed if cluster_id in parsed.text else broken
        elif mine is None and parsed.frontmatter.text("cluster_id") == cluster_id:
            mine = _File(path, data, parsed)
    taken = frozenset(_folded(layout.decode(name.removeprefix("skill_"))) for name in names)
    return _Shelf(mine, broken, taken)
