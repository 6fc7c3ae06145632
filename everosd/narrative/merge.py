"""Sources become one narrative in a model's words: what it invents is not stored, and what it leaves out is added to it.

The answer is held against the sources. What is wrong with it is named to the model once. What is missing after that follows
below it, in the sources' own words and with its day; sentences that no source bears out are taken out where most are left,
else the narrative is refused. A summary is made in the same way, but may leave things out, its sources stay:
so a short sentence in it that is not theirs for certain is taken out as well.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import structlog

from everosd import errors
from everosd.models import chat, prompt
from everosd.narrative import check, faithful, source, spoken, title, writing

log = structlog.get_logger(__name__)

PROMPTS = Path(__file__).parent / "prompts"
"""Folder of the prompts, of these names."""
NAME = "merge"
REPAIR = "merge_repair"

KEPT = 0.5
"""Least share of a text that is left when sentences are taken out; with less, it is another text."""

_RESERVE = 64
"""Tokens of a prompt that stand around its texts."""
_NOTES_SHARE = 2
"""Notes take up to one part in so many of a prompt: a repair needs room for the text and what is wrong with it."""
_ANSWER_SHARE = 1.5
"""Notes are up to so many times as long as an answer, which tells twice-told things once and may be asked for longer."""
_MAX_PROBLEMS = 40
_PROBLEM_CHARS = 300
_MAX_SUBJECT_CHARS = 120


class Merged(msgspec.Struct, frozen=True, kw_only=True):
    """The model's answer."""

    subject: str = ""
    content: str


class _Draft(NamedTuple):
    """An answer, read."""

    subject: str
    body: str
    """Without details: those are the sources' own words."""
    problem: str
    """Why it is unusable as a whole; empty: it is not."""
    verdict: faithful.Verdict

    @property
    def n_wrong(self) -> float:
        """How much is wrong with it."""
        return float("inf") if self.problem else self.verdict.n_wrong


class ByModel:
    """Merges with the model that is set up. Any number at once, from the event loop."""

    def __init__(
        self,
        model: chat.Chat,
        prompts: Callable[[str], prompt.Prompt],
        *,
        name: str = NAME,
        repair: str = REPAIR,
        is_summary: bool = False,
    ) -> None:
        """Ask `model`.

        Args:
            model: Which.
            prompts: Finds a prompt by its name, and may block.
            name: Of the prompt that asks for a text.
            repair: Of the one that says what is wrong with it.
            is_summary: The text may leave things out.
        """
        self._model, self._prompts = model, prompts
        self._name, self._repair, self._is_summary = name, repair, is_summary

    @property
    def name(self) -> str:
        """What the endpoint calls the model."""
        return self._model.name

    @property
    def is_set_up(self) -> bool:
        """Whether there is a model to ask."""
        return self._model.is_set_up

    def n_fitting(self, sources: Sequence[source.Source]) -> int:
        """Return how many of the first sources, in time order, fit into one merge; 0: the first one alone is too long."""
        room = min(self._room() // _NOTES_SHARE, int(self._model.max_output_tokens * _ANSWER_SHARE))
        n_used = 0
        for at, one in enumerate(_in_order(sources)):
            n_used += self._model.n_tokens(_note(one, at + 1)) + 1
            if n_used > room:
                return at
        return len(sources)

    async def merge(self, sources: Sequence[source.Source]) -> source.Narrative:
        """Return one narrative of the sources, whatever their order.

        Raises:
            source.Refused: there is none that invents nothing.
            errors.LLMRejected: the model declines, or its answers are unusable.
            errors.LLMUnavailable: the same may succeed later.
        """
        sources = _in_order(sources)
        languages = await asyncio.to_thread(_Languages, self._model.language, sources)
        evidence = await asyncio.to_thread(
            faithful.Evidence, sources, is_translated=languages.is_other, is_summary=self._is_summary
        )
        notes = await asyncio.to_thread(lambda: "\n\n".join(_note(one, at) for at, one in enumerate(sources, 1)))
        asked = (await asyncio.to_thread(self._prompts, self._name)).filled(notes=notes, language=languages.name)
        best = await self._draft(asked, evidence, languages)
        is_repaired = False
        if best.n_wrong:
            log.info("narrative_wrong", model=self.name, inventions=len(best.verdict.inventions), strange=len(best.verdict.strange),
                     missing=len(best.verdict.missing), reason=best.problem)  # fmt: skip
            again = await self._repaired(best, notes, evidence, languages)
            is_repaired = again is not None
            best = min((one for one in (again, best) if one is not None), key=lambda one: one.n_wrong)
        return await asyncio.to_thread(self._finished, best, sources, evidence, languages, is_repaired=is_repaired)

    async def _draft(self, asked: prompt.Prompt, evidence: faithful.Evidence, languages: _Languages) -> _Draft:
        answer = await self._model.ask(asked, Merged)
        return await asyncio.to_thread(self._read, answer, evidence, languages)

    def _read(self, answer: Merged, evidence: faithful.Evidence, languages: _Languages) -> _Draft:
        """Hold an answer against the sources. Takes up to a second: in a thread."""
        body = writing.plain(faithful.body(answer.content))
        verdict = self._judged(body, evidence)
        problem = ""
        if not body:
            problem = "is empty"
        elif not languages.is_in(body):
            problem = "is in another language"
        elif not verdict.is_of_them:
            problem = "leaves out most of what the sources say"
        return _Draft(writing.line(answer.subject)[:_MAX_SUBJECT_CHARS], body, problem, verdict)

    def _judged(self, body: str, evidence: faithful.Evidence) -> faithful.Verdict:
        verdict = evidence.judge(body)
        return verdict._replace(missing=()) if self._is_summary else verdict

    async def _repaired(
        self, draft: _Draft, notes: str, evidence: faithful.Evidence, languages: _Languages
    ) -> _Draft | None:
        """Return the answer to what is wrong with another; None: there is no room to say it, or no answer."""
        problems = await asyncio.to_thread(self._named, draft, notes, languages)
        if not problems:
            return None
        asked = (await asyncio.to_thread(self._prompts, self._repair)).filled(
            notes=notes, language=languages.name, text=draft.body, problems="\n".join(problems)
        )
        try:
            return await self._draft(asked, evidence, languages)
        except errors.LLMRejected as error:
            log.info("narrative_not_repaired", model=self.name, reason=str(error))
            return None

    def _named(self, draft: _Draft, notes: str, languages: _Languages) -> list[str]:
        """Return what is wrong with an answer as lines of a prompt, as far as there is room. Runs in a thread."""
        room = self._room() - self._model.n_tokens(notes) - self._model.n_tokens(draft.body)
        problems: list[str] = []
        for one in _problems(draft, languages):
            room -= self._model.n_tokens(one) + 2
            if room < 0 or len(problems) == _MAX_PROBLEMS:
                break
            problems.append(f"- {one}")
        return problems

    def _finished(
        self,
        draft: _Draft,
        sources: Sequence[source.Source],
        evidence: faithful.Evidence,
        languages: _Languages,
        *,
        is_repaired: bool,
    ) -> source.Narrative:
        """Return what can be stored of a draft. Runs in a thread."""
        body, verdict = draft.body, draft.verdict
        reason = draft.problem
        if not reason and not verdict.is_true:
            body = _without(body, verdict)
            left = self._judged(body, evidence)
            if len(body) < KEPT * len(draft.body) or not left.is_true or not left.is_of_them:
                reason = "says what no source says"
            else:
                verdict = left
        found = source.Check(
            inventions=(*verdict.inventions, *verdict.strange),
            missing=tuple(one.text for one in verdict.missing),
            n_statements=verdict.n_statements,
            n_covered=verdict.n_told,
            is_repaired=is_repaired,
        )
        if reason:
            raise source.Refused(self.name, f"gives a narrative that {reason}", found)
        subject = draft.subject
        if not subject or not languages.is_in(subject) or not evidence.bears_out(subject):
            subject = title.of(sources)
        content = "\n\n".join(filter(None, (body, faithful.details(verdict.missing))))
        return source.Narrative(subject=subject, content=content, by=self.name, check=found)

    def _room(self) -> int:
        """Return how many tokens the texts of a prompt may have together."""
        empty = self._prompts(self._repair).filled(notes="", language="", text="", problems="")
        return self._model.max_input_tokens - self._model.n_tokens(empty.system + empty.user) - _RESERVE


class _Languages:
    """The language to write in: the one that is forced, else any that a source is in."""

    def __init__(self, forced: str, sources: Sequence[source.Source]) -> None:
        unknown = "the language of the notes"
        contents = [one.content for one in sources]
        whole = writing.Language(forced, "\n".join(contents), unknown=unknown)
        self.name, self.is_other = whole.name, whole.is_other
        parts = [] if forced else [writing.Language("", each) for each in contents]
        self._any = [whole, *(one for one in parts if one.is_known)]

    def is_in(self, text: str) -> bool:
        return any(one.is_of(text) for one in self._any)


def _in_order(sources: Sequence[source.Source]) -> list[source.Source]:
    return sorted(sources, key=lambda one: (one.at, one.entry_id))


def _note(one: source.Source, number: int) -> str:
    """Return a source as the model is shown it: its lines are indented, so that none can pass for another note."""
    head = f"Note {number}, {one.at:%Y-%m-%d}"
    if one.is_narrative:
        head += ", merged from earlier notes"
    if one.is_latest:
        head += ", corrected by hand: it holds against all others"
    lines = [one.subject, *one.content.splitlines(), *faithful.beside(one)]
    return "\n".join((f"{head}:", *(spoken.INDENT + line for line in lines if line.strip())))


def _problems(draft: _Draft, languages: _Languages) -> list[str]:
    """Return what is wrong with an answer, in words for the model."""
    if not draft.body:
        return ["It is empty."]
    found = [] if languages.is_in(draft.body) else [f"It is not written in {languages.name}."]
    found += [f"No note says: {one}" for one in draft.verdict.inventions]
    found += [f"No note says this: {one}" for one in draft.verdict.strange]
    found += [
        f"It leaves out what the note of {one.day} says: {one.text}" if one.day else f"It leaves out: {one.text}"
        for one in draft.verdict.missing
    ]
    return [one[:_PROBLEM_CHARS] for one in found] or ["It leaves out most of what the notes say."]


def _without(body: str, verdict: faithful.Verdict) -> str:
    """Return a text without the sentences that say what no source says, and those that lean on them."""
    invented = re.compile("|".join(map(_form, verdict.inventions)) or r"(?!)")
    strange = set(verdict.strange)
    paragraphs: list[str] = []
    for paragraph in body.split("\n"):
        left: list[str] = []
        is_gone = False
        for sentence in check.sentences(paragraph):
            refers = faithful.refers(sentence)
            if sentence in strange or invented.search(sentence):
                is_gone = not refers  # one who is "he" there is somebody whom an earlier sentence named
            elif not (is_gone and refers):
                is_gone = False
                left.append(sentence)
        if left:
            paragraphs.append(writing.joined(left))
    return "\n".join(paragraphs)


def _form(text: str) -> str:
    """Return what finds a text as a whole, where words are apart."""
    return rf"(?<![^\W_]){re.escape(text)}(?![^\W_])" if text.isascii() else re.escape(text)
