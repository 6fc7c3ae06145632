"""A segment becomes an Episode: told by the model where there is one and it tells nothing else, else what was said itself.

What a model answers is held against the messages. What no message says is named to it once; what is ungrounded after that is
not stored, and the segment is taken word by word.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

import msgspec
import structlog

from everosd import clock, errors, types
from everosd.intake import message, opinion, verbatim, when
from everosd.models import chat
from everosd.narrative import check, writing

log = structlog.get_logger(__name__)

NAME = "episode"
REPAIR = "episode_repair"

MIN_PART_TOKENS = 128
"""Of the conversation in one prompt, however little room its settings leave."""
_RESERVE = 64
"""Tokens of a prompt that stand around its texts."""
_REPAIR_SHARE = 3
"""A text and what is wrong with it take up to one part in so many of a prompt that has the conversation repaired."""

KEPT = 0.6
"""Least share of the sentences of a text that is left when unsupported ones are taken out; with less, it is another text."""
_AT_ONCE = 0.75
"""The same without asking for a repair first."""

COVERAGE = 0.15
"""Least share of the statements of a conversation that a text of it has something of. Short summaries have 0.25 and more; 30
lines told in one of them have less."""

_MAX_PROBLEMS = 12
_NAME_CHARS = 60
_REFERS = re.compile(
    r"(?:he|she|they|it|his|her|their|its|this|that|these|those|there|then|er|sie|es|ihr|ihre|sein|seine|dies|das|il|elle|ils|elles"
    r"|son|sa|ses|leur|cela|él|ella|ellos|ellas|su|sus|esto|eso|lui|lei|loro|suo|sua|questo|ele|ela|eles|elas|seu|isso)\b|[他她它这那]|彼",
    re.IGNORECASE,
)
"""A sentence that begins so may be about what the sentence before it told of."""


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """The model's answer."""

    subject: str = ""
    summary: str = ""
    content: str


class Quoted(Protocol):
    """What knows memories that were only read out."""

    async def without(
        self, owners: Sequence[types.Owner], messages: Sequence[message.Message]
    ) -> tuple[message.Message, ...]:
        """Return the messages without what an agent quoted from the owners' memory."""


class _Part(NamedTuple):
    """Messages that fit into one prompt."""

    shown: str
    note: str
    """Which part of the conversation it is; empty: all of it."""
    grounds: check.Grounds


class Extractor:
    """Reads segments. Any number at once, from the event loop."""

    def __init__(
        self,
        model: chat.Chat,
        prompts: opinion.Prompts,
        zone: Callable[[], dt.tzinfo],
        quoted: Quoted | None = None,
    ) -> None:
        """Ask `model`; `zone` is that of the people who talk."""
        self._model, self._prompts, self._zone, self._quoted = model, prompts, zone, quoted
        self.n_ungrounded = 0
        """Texts that said what no message says, even after they were mended."""

    async def extract(self, segment: message.Segment) -> message.Extracted:
        """Return what the segment says.

        Raises:
            errors.LLMUnavailable: the same may succeed later.
            errors.LLMRejected: the model's answers are no texts at all. Where it declines this conversation, or comes to no
                end with it, the conversation is taken word by word.
        """
        segment = await self._own_words(segment)
        if not self._model.is_set_up:
            return await self._word_by_word(segment)
        try:
            told = await self._tell(segment)
        except errors.LLMRejected as error:
            if not error.is_final:
                raise
            told = None
        if told is not None:
            return told
        self.n_ungrounded += 1
        log.info("taken_word_by_word", memcell=segment.id, model=self._model.name)
        return await self._word_by_word(segment)

    async def _word_by_word(self, segment: message.Segment) -> message.Extracted:
        return await asyncio.to_thread(verbatim.extract, segment, self._zone())

    async def _own_words(self, segment: message.Segment) -> message.Segment:
        """Return the segment without what was only quoted from memory; as it is where nothing else was said."""
        if self._quoted is None:
            return segment
        at = segment.session
        owners = [types.Owner(app=at.app, project=at.project, type="user", id=each) for each in segment.user_ids]
        left = await self._quoted.without(owners, segment.messages)
        if not any(one.text.strip() for one in left):
            return segment
        return msgspec.structs.replace(segment, messages=left)

    async def _tell(self, segment: message.Segment) -> message.Extracted | None:
        """Return the Episode in the model's words; None: they are not grounded in the messages."""
        # Long conversations take a second to be read: that is done beside the loop.
        parts = await asyncio.to_thread(self._parts, segment.messages)
        if not parts:
            return None
        language = writing.Language(self._model.language, "\n".join(one.text for one in segment.messages))
        told: list[Told] = []
        for part in parts:  # one after the other: the model is asked side by side for different conversations
            found = await self._tell_part(part, language)
            if found is None:
                return None
            told.append(found)
        content = "\n\n".join(one.content for one in told)
        subject = next((one.subject for one in told if one.subject), "")
        if not subject:
            subject = (await self._word_by_word(segment)).subject
        summary = " ".join(one.summary for one in told if one.summary) or verbatim.summary(content)
        return message.Extracted(subject=subject, summary=summary, content=content, by=self._model.name)

    async def _tell_part(self, part: _Part, language: writing.Language) -> Told | None:
        asked = (await asyncio.to_thread(self._prompts, NAME)).filled(
            conversation=part.shown, part=part.note, language=language.name
        )
        told = _plain(await self._model.ask(asked, Told))
        kept = await asyncio.to_thread(_kept, told, part.grounds, language, _AT_ONCE)
        if kept is None:
            problems = await asyncio.to_thread(_problems, told, part.grounds, language)
            asked = (await asyncio.to_thread(self._prompts, REPAIR)).filled(
                conversation=part.shown,
                part=part.note,
                language=language.name,
                text=told.content[: len(part.shown) * 2 + 1000],
                problems="\n".join(f"- {one}" for one in problems),
            )
            told = _plain(await self._model.ask(asked, Told))
            kept = await asyncio.to_thread(_kept, told, part.grounds, language, KEPT)
        return kept

    # -- what the model is shown ----------------------------------------------------------------------------------------

    def _parts(self, messages: Sequence[message.Message]) -> list[_Part]:
        """Return the messages in parts that a prompt has room for; one that is too long for any is itself parted."""
        zone = self._zone()
        empty = self._prompts(REPAIR).filled(conversation="", part="", language="", text="", problems="")
        room = self._model.max_input_tokens - self._model.n_tokens(empty.system + empty.user) - _RESERVE
        room = max(MIN_PART_TOKENS, room * (_REPAIR_SHARE - 1) // _REPAIR_SHARE)
        groups: list[list[str]] = [[]]
        n_used = 0
        for one in messages:
            for line in self._lines(one, zone, room):
                n_tokens = self._model.n_tokens(line) + 1
                if groups[-1] and n_used + n_tokens > room:
                    groups.append([])
                    n_used = 0
                groups[-1].append(line)
                n_used += n_tokens
        groups = [group for group in groups if group]
        days = {clock.from_us(one.timestamp_us).astimezone(zone).date() for one in messages}
        return [
            _Part(
                shown="\n".join(group),
                note="" if len(groups) == 1 else f"This is part {number} of {len(groups)} of one conversation.",
                grounds=check.Grounds(group, dates=days),
            )
            for number, group in enumerate(groups, start=1)
        ]

    def _lines(self, one: message.Message, zone: dt.tzinfo, room: int) -> list[str]:
        """Return a message as the model is shown it; further lines are indented, so that none can pass for a message."""
        text = one.text.strip()
        if not text:
            return []
        if one.role == "tool":
            text = text if len(text) <= verbatim.MAX_TOOL_CHARS else text[: verbatim.MAX_TOOL_CHARS].rstrip() + " …"
        else:
            text = when.resolved(text, one.timestamp_us, zone)
        moment = clock.from_us(one.timestamp_us).astimezone(zone)
        name = " ".join(re.sub(r"[:：]", " ", one.name).split())[:_NAME_CHARS] or "?"  # noqa: RUF001  # as typeset
        head = f"{moment:%Y-%m-%d %H:%M} {name}: "
        n_head = self._model.n_tokens(head) + 1
        return [head + "\n  ".join(part.splitlines()) for part in self._cut(text, max(64, room - n_head))]

    def _cut(self, text: str, room: int) -> list[str]:
        """Return a text in pieces of at most `room` tokens, cut between words where there are any."""
        pieces: list[str] = []
        while self._model.n_tokens(text) > room:
            end = len(text)
            while self._model.n_tokens(text[:end]) > room:
                end = max(1, end * room // self._model.n_tokens(text[:end]) - 1)
                if end == 1:
                    break
            space = max(text.rfind(" ", end // 2, end), text.rfind("\n", end // 2, end))
            end = space if space > 0 else end
            pieces.append(text[:end].rstrip())
            text = text[end:].lstrip()
        return [*pieces, text] if text else pieces


# -- what the model answers --------------------------------------------------------------------------------------------


def _kept(told: Told, grounds: check.Grounds, language: writing.Language, share: float) -> Told | None:
    """Return what of an answer can be stored; None: its content cannot.

    Sentences that the messages do not support are left out where most are left, and the next one does not lean on them.
    A subject or a summary that is not grounded is left empty.
    """
    if not told.content or not language.is_of(told.content) or _invents(grounds, told.content, language):
        return None
    content = told.content
    if not language.is_other:
        unsupported = set(grounds.unsupported(content))
        said = check.sentences(content)
        left = _without(said, unsupported)
        if sum(map(len, left)) < share * sum(map(len, said)) or not left:
            return None
        if unsupported:
            content = writing.joined(left)
        if grounds.coverage(content) < COVERAGE:
            return None
    return Told(
        subject=_grounded(told.subject, grounds, language),
        summary=_grounded(told.summary, grounds, language),
        content=content,
    )


def _without(said: Sequence[str], unsupported: set[str]) -> list[str]:
    """Return the sentences that can stay: one that may refer to a sentence that goes, goes with it."""
    left: list[str] = []
    is_gone = False
    for one in said:
        is_gone = one in unsupported or (is_gone and _REFERS.match(one) is not None)
        if not is_gone:
            left.append(one)
    return left


def _grounded(text: str, grounds: check.Grounds, language: writing.Language) -> str:
    """Return a line as it is, or nothing."""
    if not language.is_of(text) or _invents(grounds, text, language):
        return ""
    return text if language.is_other or not grounds.unsupported(text) else ""


def _invents(grounds: check.Grounds, text: str, language: writing.Language) -> list[check.Invention]:
    """Return the inventions of a text; names change with the language, so of a translation they are not known."""
    return [one for one in grounds.inventions(text) if not language.is_other or one.kind != "name"]


def _problems(told: Told, grounds: check.Grounds, language: writing.Language) -> Iterable[str]:
    if not told.content:
        return ["It is empty."]
    if not language.is_of(told.content):
        return [f"It is not written in {language.name}."]
    problems = [f"No message says: {one.text}" for one in _invents(grounds, told.content, language)[:_MAX_PROBLEMS]]
    if not language.is_other:
        problems += [
            f"No message says this in these words: {one[:300]}"
            for one in grounds.unsupported(told.content)[:_MAX_PROBLEMS]
        ]
        if not problems:
            problems = ["It leaves out most of what the messages say."]
    return problems or ["It says what no message says."]


def _plain(told: Told) -> Told:
    """Return an answer without reasoning, lines in it as lines should be, and nothing said twice."""
    return Told(
        subject=writing.line(told.subject)[: verbatim.MAX_SUBJECT_CHARS],
        summary=writing.line(told.summary)[: 2 * verbatim.MAX_SUMMARY_CHARS],
        content=writing.plain(told.content),
    )
