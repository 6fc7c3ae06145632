"""The profile of a person, `user.md`: kept up to date from new Episodes, with whatever the person writes into it."""

from __future__ import annotations

import asyncio
import collections
import datetime as dt
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import msgspec
import structlog

from everosd import clock, errors, types
from everosd.engine import strategy
from everosd.intake import correct, opinion, portrait, revision, statement
from everosd.log import entry_text, escape, file, layout, parse, view, whole, writer
from everosd.models import chat, prompt
from everosd.narrative import check, spoken
from everosd.store import read, told
from everosd.store import row as store_row

log = structlog.get_logger(__name__)

NAME = "extract_user_profile"
PROMPT = "user_profile"

_ACTION = "profile"
_MAX_ATTEMPTS = 5
"""At a file that somebody else keeps saving."""
_MAX_UNREAD = 2000
"""Episodes that one run takes over; of more, the newest."""
_MAX_PER_TURN = 50
"""Episodes that become one change of the file, if a model takes as many at once."""
_KEPT_EVERY = 20
"""Episodes that may be read once more after a crash, because nothing in them was new."""
_N_REMEMBERED = 1000
"""People whose name is in memory."""
_MAX_CATEGORY_CHARS = 40
_QUOTED_SHARE = 0.5
"""Share of an item's words that a sentence has to have to be its evidence."""


class Info(msgspec.Struct, frozen=True, kw_only=True):
    """One fact, as the model gives it."""

    category: str = ""
    description: str = ""
    evidence: str = ""


class Trait(msgspec.Struct, frozen=True, kw_only=True):
    """One trait, as the model gives it."""

    trait: str = ""
    description: str = ""
    basis: str = ""
    evidence: str = ""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What the model says."""

    summary: str = ""
    explicit_info: tuple[Info, ...] = ()
    implicit_traits: tuple[Trait, ...] = ()
    outdated: tuple[int, ...] = ()


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """An Episode as a profile is made of it."""

    entry_id: str
    joined_us: int
    """When it joined its cluster, of one that another program wrote; else 0."""
    timestamp_us: int
    session_id: str
    """Empty where it is of none."""
    content: str
    is_own: bool
    """Whether everosd wrote it."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """How far an owner's log has been read."""

    joined_us: int = 0
    """When the last Episode of another program joined a cluster, microseconds since 1970."""
    entry_id: str = ""
    """The last one that everosd wrote."""

    def __str__(self) -> str:
        """Return it as a row keeps it."""
        return f"{self.joined_us} {self.entry_id}".strip()

    @classmethod
    def read(cls, text: str) -> Place | None:
        """Return what a row keeps; None where it keeps none."""
        joined, _, entry_id = text.partition(" ")
        return cls(joined_us=int(joined), entry_id=entry_id) if _is_number(joined) else None

    def after(self, read: Sequence[Told]) -> Place:
        """Return the place after Episodes."""
        own = [each.entry_id for each in read if types.ENTRY_ID.fullmatch(each.entry_id) and each.is_own]
        return Place(
            joined_us=max((self.joined_us, *(each.joined_us for each in read))), entry_id=max((self.entry_id, *own))
        )


class Profile:
    """The strategy. Lives on the event loop; one run of an owner at a time."""

    def __init__(
        self,
        *,
        reader: read.Reader,
        pen: writer.Writer,
        model: chat.Chat,
        prompts: opinion.Prompts,
        zone: Callable[[], dt.tzinfo],
        time: clock.Clock,
        settled: Callable[[], Awaitable[None]],
    ) -> None:
        """Wire it.

        Args:
            reader: Where Episodes are found.
            pen: Writes the profile.
            model: Asked where one is set up; else sentences are picked.
            prompts: Where its prompt is found.
            zone: Of the dates that the model is shown.
            time: For stamps.
            settled: Returns once the ledger has what is on disk.
        """
        self._reader, self._pen, self._model, self._prompts = reader, pen, model, prompts
        self._zone, self._clock, self._settled = zone, time, settled
        self._revisions = revision.Revisions(_ACTION, reader, pen, time, settled)
        self._names: collections.OrderedDict[types.Owner, str] = collections.OrderedDict()
        self._n_unkept: collections.Counter[types.Owner] = collections.Counter()

    async def run(self, event: strategy.Event) -> str:
        """Take over what the owner's Episodes say that have joined a cluster since the last time.

        A file that does not parse is left as it is, and so is what it would have taken over: that is read again.

        Raises:
            errors.LLMUnavailable: the model cannot be asked now.
            errors.WriteRefused: the disk is full, the file is protected, or somebody keeps changing it.
        """
        owner = event.owner
        await self._settled()
        path = self._pen.layout.path_for(owner, "profile", None)
        found = await self._load(path)
        broken = found.error
        if broken is not None:
            log.warning("profile_left_alone", path=path, line=broken.line, reason=broken.reason)
            return f"{path}:{broken.line} does not parse and is left as it is"
        since = await self._read_until(owner, found)
        waiting = await self._told(owner, event.subject, since)
        n_written = 0
        # All of them have been read once the last one has: until then a crash begins with the first again.
        until = since.after(waiting)
        while waiting:
            turn = await asyncio.to_thread(self._turn, waiting)
            waiting = waiting[len(turn) :]
            n_written += await self._take(owner, path, turn, str(since if waiting else until))
        return f"{path} was changed" if n_written else "nothing new"

    async def _read_until(self, owner: types.Owner, found: _Found) -> Place:
        """Return how far the owner's log has been read for the profile that is there.

        A version that never came to be, or that a stale save has wiped, knows nothing; a profile that somebody else wrote
        knows what there was when it was written.
        """
        latest = await self._revisions.latest(owner, _target(owner))
        through = latest.through
        if latest.newest is not None and latest.newest.stamp != found.stamp:
            base = await self._revisions.of_stamp(owner, _target(owner), found.stamp)
            is_missing = found.data is None and not latest.is_on_disk
            through = base.through if base is not None else "" if is_missing else through
        return Place.read(through) or Place(joined_us=_ms(found.stamp) * 1000)

    def forget_owner(self, owner: types.Owner) -> None:
        """Let go of what is known of an owner whose files have been deleted: nothing of it may come back."""
        self._revisions.forget_owner(owner)
        self._names.pop(owner, None)
        self._n_unkept.pop(owner, None)

    async def _take(self, owner: types.Owner, path: types.RelPath, turn: Sequence[Told], through: str) -> bool:
        """Take over what some Episodes say; tell whether the file was changed."""
        target = _target(owner)
        name = await self._name(owner, turn)
        proposal = await self._proposal(owner, path, name, turn)
        for _ in range(_MAX_ATTEMPTS):
            outcome = await self._attempt(owner, path, proposal, through)
            if outcome is not None:
                if outcome:
                    self._n_unkept[owner] = 0
                else:
                    self._n_unkept[owner] += len(turn)
                    is_kept = self._n_unkept[owner] >= _KEPT_EVERY
                    self._n_unkept[owner] *= not is_kept
                    await self._revisions.read_on(owner, target, through, is_kept=is_kept)
                return outcome
        raise errors.WriteRefused(path, "somebody else keeps changing it", hint="close what writes to it")

    async def _attempt(
        self, owner: types.Owner, path: types.RelPath, proposal: portrait.Proposal, through: str
    ) -> bool | None:
        """Merge and write once; tell whether anything was written, None where somebody saved meanwhile."""
        target = _target(owner)
        found = await self._load(path)
        newest, base = await self._versions(owner, found)
        gone = () if newest is None else newest.gone
        merge = portrait.merged(owner, found.present, base, gone, proposal)
        if merge is None:
            return False
        stamp = str(max(clock.to_us(self._clock.now()) // 1000, *(_ms(each) + 1 for each in _stamps(found, newest))))
        new = await asyncio.to_thread(lambda: _rendered(path, found, merge, stamp))
        if new is None:
            return False
        await self._revisions.add(
            owner, target, new, revision.of_text(new, stamp, through=through, gone=merge.gone, theirs=merge.theirs)
        )
        expected = found.data
        written = await self._pen.replace(path, lambda now: new if now == expected else now)
        if written != new:
            return None
        await self._revisions.landed(owner, target)
        return True

    async def _versions(
        self, owner: types.Owner, found: _Found
    ) -> tuple[revision.Revision | None, revision.Revision | None]:
        """Return the newest version, and the one that what is on disk was made of."""
        latest = await self._revisions.latest(owner, _target(owner))
        if found.data is None:
            return latest.newest, latest.newest if latest.is_on_disk else None
        return latest.newest, await self._revisions.of_stamp(owner, _target(owner), found.stamp) or latest.newest

    async def _load(self, path: types.RelPath) -> _Found:
        return await asyncio.to_thread(lambda: _read(self._pen.layout.root, path))

    # -- what is new -----------------------------------------------------------------------------------------------

    async def _told(self, owner: types.Owner, subject: str, since: Place) -> list[Told]:
        """Return the Episodes that are new since a place, and the one that is asked for, oldest first.

        New are those that everosd wrote, and those of others that have joined a cluster: not files copied in.
        """
        written = await told.written_since(self._reader, owner, "episode", since.entry_id, limit=_MAX_UNREAD)
        joined = await told.joined_since(self._reader, owner, "episode", since.joined_us, limit=_MAX_UNREAD)
        found = await self._reader.rows(list(dict.fromkeys((*written, *joined))))
        if subject not in {each.entry_id for each in found}:
            one = await self._reader.find(owner, subject)
            found += [one] if one is not None and one.kind == "episode" and one.status == "active" else []
        made = [_told(each, joined.get(each.key, 0)) for each in found]
        return sorted(made, key=lambda each: (each.timestamp_us, each.entry_id))

    def _turn(self, told: Sequence[Told]) -> Sequence[Told]:
        """Return the first Episodes that are taken over together: at least one."""
        if not self._model.is_set_up:
            return told[:_MAX_PER_TURN]
        room = self._model.max_input_tokens // 2
        n_taken = 0
        for each in told[:_MAX_PER_TURN]:
            room -= self._model.n_tokens(each.content)
            if room < 0 and n_taken:
                break
            n_taken += 1
        return told[:n_taken]

    async def _proposal(
        self, owner: types.Owner, path: types.RelPath, name: str, turn: Sequence[Told]
    ) -> portrait.Proposal:
        found = await self._load(path)
        values = {} if found.present is None else found.present[0]
        if self._model.is_set_up:
            newest, base = await self._versions(owner, found)
            gone = [*(() if newest is None else newest.gone), *portrait.taken_out(values, base)]
            try:
                answer = await self._ask(name, values, gone, turn)
            except errors.LLMRejected as error:
                log.info("profile_verbatim", path=path, reason=str(error))
            else:
                made = await asyncio.to_thread(lambda: checked(answer, name, values, turn, self._zone()))
                if made.explicit or made.traits or made.summary:
                    return made
        is_latest = await self._is_latest(owner, turn)
        return await asyncio.to_thread(lambda: picked((name, owner.id), turn, values, is_latest=is_latest))

    async def _ask(
        self, name: str, values: Mapping[str, object], gone: Sequence[tuple[str, ...]], turn: Sequence[Told]
    ) -> Answer:
        return await self._model.ask(await asyncio.to_thread(self._filled, name, values, gone, turn), Answer)

    def _filled(
        self, name: str, values: Mapping[str, object], gone: Sequence[tuple[str, ...]], turn: Sequence[Told]
    ) -> prompt.Prompt:
        """Return the prompt with as much of everything as the model takes. Blocks."""
        known = [f"{at}. {portrait.main_text(each)[:400]}" for at, each in enumerate(_all_items(values), start=1)]
        removed = [f"- {each[0][:400]}" for each in gone[-50:]]
        room = self._model.max_input_tokens // 2
        texts = [f"[{self._day(each)}]\n{self._cut(each.content, room)}" for each in turn]
        known, removed = self._last(known, room // 3), self._last(removed, room // 6)
        return self._prompts(PROMPT).filled(
            person=name,
            known="\n".join(known) or "nothing yet",
            removed="\n".join(removed) or "nothing",
            conversations="\n\n".join(texts),
            language=self._model.language or "the language of the conversations",
        )

    def _day(self, one: Told) -> str:
        return clock.from_us(one.timestamp_us).astimezone(self._zone()).date().isoformat()

    def _last(self, lines: list[str], room: int) -> list[str]:
        """Return the last lines that take no more than so many tokens."""
        first = len(lines)
        while first > 0 and (room := room - self._model.n_tokens(lines[first - 1])) >= 0:
            first -= 1
        return lines[first:]

    def _cut(self, text: str, n_tokens: int) -> str:
        while self._model.n_tokens(text) > n_tokens:
            text = text[: len(text) * 3 // 4]
        return text

    # -- whose it is -----------------------------------------------------------------------------------------------

    async def _name(self, owner: types.Owner, turn: Sequence[Told]) -> str:
        """Return what a person is called: as their newest message says, else their id."""
        name = self._names.get(owner, "")
        for session_id in dict.fromkeys(each.session_id for each in reversed(turn) if each.session_id):
            if name:
                break
            session = types.Owner(app=owner.app, project=owner.project, type="session", id=session_id)
            name = await told.sender_name(self._reader, session, owner.id)
        if name:
            self._names[owner] = name
            while len(self._names) > _N_REMEMBERED:
                self._names.popitem(last=False)
        return name or owner.id

    async def _is_latest(self, owner: types.Owner, turn: Sequence[Told]) -> bool:
        """Tell whether no other Episode of the owner is newer: only then is what it says the latest state."""
        marks = ", ".join("?" * len(turn))
        condition = f"e.entry_id NOT IN ({marks})"
        rows, _ = await self._reader.page(
            owner,
            "episode",
            where=(condition, [each.entry_id for each in turn]),
            now_us=clock.to_us(self._clock.now()),
            limit=1,
        )
        last = turn[-1].timestamp_us, turn[-1].entry_id
        return not rows or (rows[0].timestamp_us, rows[0].entry_id) < last


class _Found(msgspec.Struct, frozen=True, kw_only=True):
    """A profile as it is on disk."""

    data: bytes | None
    parsed: parse.Parsed | None = None

    @property
    def error(self) -> parse.Warning | None:
        """Why it cannot be changed."""
        return None if self.parsed is None else self.parsed.error

    @property
    def present(self) -> tuple[Mapping[str, object], str] | None:
        """Its keys and its body; None: there is none."""
        if self.parsed is None:
            return None
        body = escape.strip_blank_lines(self.parsed.text[self.parsed.frontmatter.end :].replace("\r\n", "\n"))
        return self.parsed.frontmatter.values, body

    @property
    def stamp(self) -> str:
        """What it carries; empty where it carries none."""
        return "" if self.parsed is None else self.parsed.frontmatter.text(portrait.STAMP)


def _read(root: Path, path: types.RelPath) -> _Found:
    try:
        data = file.read(root / path).data
    except (FileNotFoundError, NotADirectoryError):
        return _Found(data=None)
    except OSError as error:
        raise file.refusal(root / path, error) from error
    place = layout.place(path)
    return _Found(data=data, parsed=None if place is None else parse.parse(path, data, place))


def _rendered(path: types.RelPath, found: _Found, merge: portrait.Merged, stamp: str) -> bytes | None:
    """Return the bytes of the new version; None where it would say nothing else."""
    if found.parsed is None or not found.data:
        return whole.new(path, {**merge.values, portrait.STAMP: int(stamp)}, merge.body or "")
    if whole.changed(found.parsed, merge.values, merge.body) == found.data:
        return None
    return whole.changed(found.parsed, {**merge.values, portrait.STAMP: int(stamp)}, merge.body)


def _stamps(found: _Found, newest: revision.Revision | None) -> tuple[str, str]:
    return found.stamp, "" if newest is None else newest.stamp


_MAX_MS_DIGITS = 15


def _ms(stamp: str) -> int:
    return int(stamp) if _is_number(stamp) and len(stamp) <= _MAX_MS_DIGITS else 0


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 2 * _MAX_MS_DIGITS


def _target(owner: types.Owner) -> str:
    return f"profile_{owner.id}"


def _told(found: store_row.EntryRow, joined_us: int) -> Told:
    read_back = entry_text.read(found.kind, found.entry_id, found.raw, form=found.form)
    seen = view.view(read_back)
    content = getattr(seen, "content", "") or getattr(seen, "summary", "")
    return Told(
        entry_id=found.entry_id,
        joined_us=joined_us,
        timestamp_us=found.timestamp_us,
        session_id=found.session_id or "",
        content=content,
        is_own=bool(read_back.fields.get("extracted_by")) and "_h" not in found.entry_id,
    )


def _all_items(values: Mapping[str, object]) -> list[object]:
    return [*(portrait.items(values, portrait.EXPLICIT) or []), *(portrait.items(values, portrait.TRAITS) or [])]


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= portrait.MAX_ITEM_CHARS else ""


class _Person:
    """Who a profile is about, as texts name them."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._written = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)")
        # What tells a name from a word is how it is written; an id like `u_mara` is written as no name is.
        self._is_odd = not name[:1].isupper()

    def shown(self, text: str) -> str:
        """Return a text in which the person has a name that looks like one."""
        return self._written.sub("Nemo", text) if self._is_odd else text

    def is_speaking_or_named(self, said: Sequence[tuple[str, str]], evidence: str, description: str) -> bool:
        """Tell whether the person said the evidence (`said`: `_said`), or is named in it; prose has no speakers."""
        if self._written.search(evidence) or evidence.casefold().startswith(f"{self._name.casefold()}:"):
            return True
        others = {name for name, _ in said} - {self._name.casefold()}
        if description.partition(":")[0].strip().casefold() in others:
            return False
        speakers = {name for name, text in said if evidence.casefold() in text}
        return not speakers or self._name.casefold() in speakers

    def is_about(self, former: str, new: str) -> bool:
        """Tell whether two texts share a word beside the person's name: one can take the place of the other."""
        return bool(portrait.shared_words(former, new) - portrait.shared_words(self._name, self._name))


def _said(contents: Sequence[str]) -> list[tuple[str, str]]:
    """Return who said what in transcripts, folded and on one line each."""
    turns = (one for content in contents for one in spoken.turns(content) if one.name)
    return [(one.name.casefold(), " ".join(one.text.split()).casefold()) for one in turns]


class _Quotes:
    """Sentences that may be quoted."""

    def __init__(self, contents: Sequence[str]) -> None:
        self._text = " ".join(" ".join(contents).split()).casefold()
        self._sentences = [sentence for content in contents for sentence in statement.sentences(content)]

    def evidence(self, quoted: str, description: str) -> str:
        """Return the words that bear something out: as quoted, or the sentence nearest to it; empty: there are none."""
        line = " ".join(quoted.split()).strip("\"'“”„«»")
        if line and len(line) <= portrait.MAX_ITEM_CHARS and line.casefold() in self._text:
            return line
        wanted = description or line
        n_words = len(portrait.shared_words(wanted, wanted))
        best = max(self._sentences, key=lambda each: len(portrait.shared_words(wanted, each)), default="")
        if not wanted or len(portrait.shared_words(wanted, best)) < max(2, _QUOTED_SHARE * n_words):
            return ""
        return _cut_turn(best)[: portrait.MAX_ITEM_CHARS]


def _cut_turn(sentence: str) -> str:
    """Return a sentence without who says it."""
    name, colon, text = sentence.partition(": ")
    return text if colon and len(name.split()) <= 3 and text else sentence  # noqa: PLR2004 - a name


def checked(
    answer: Answer, name: str, values: Mapping[str, object], turn: Sequence[Told], zone: dt.tzinfo
) -> portrait.Proposal:
    """Return what of the model's answer its sources bear out.

    Args:
        answer: what it said.
        name: of the person.
        values: of the profile that it was shown.
        turn: Episodes that it was shown.
        zone: of the days that they are of.
    """
    contents = [each.content for each in turn]
    items = _all_items(values)
    days = [clock.from_us(each.timestamp_us).astimezone(zone).date() for each in turn]
    person, said = _Person(name), _said(contents)
    grounds = check.Grounds(map(person.shown, contents), dates=days)
    quotes = _Quotes(contents)
    explicit = []
    for info in answer.explicit_info:
        description, evidence = _short(info.description), quotes.evidence(info.evidence, info.description)
        is_theirs = person.is_speaking_or_named(said, evidence, description)
        if description and evidence and is_theirs and grounds.supports(person.shown(description)):
            category = _short(info.category)[:_MAX_CATEGORY_CHARS] or "Statement"
            explicit.append({"category": category, "description": description, "evidence": evidence})
    traits = []
    for trait in answer.implicit_traits:
        word, description = _short(trait.trait)[:_MAX_CATEGORY_CHARS], _short(trait.description)
        evidence = quotes.evidence(trait.evidence, "")
        # A trait's own word is the model's; what is said of it has to be the talk's, and the person's.
        shown = person.shown(description)
        is_borne_out = not grounds.inventions(f"{word.lower()}: {shown}") and grounds.supports(shown)
        if word and description and evidence and is_borne_out and person.is_speaking_or_named(said, evidence, shown):
            basis = _short(trait.basis)[:_MAX_CATEGORY_CHARS] or "conversation"
            traits.append({"trait": word, "description": description, "basis": basis, "evidence": evidence})
    new_words = [portrait.main_text(each) for each in explicit]
    outdated = [
        items[number - 1]
        for number in answer.outdated
        if 0 < number <= len(items)
        and any(person.is_about(portrait.main_text(items[number - 1]), new) for new in new_words)
    ]
    everything = check.Grounds(map(person.shown, [*contents, *map(portrait.main_text, items)]), dates=days)
    summary = " ".join(answer.summary.split())
    shown = person.shown(summary)
    if len(summary) > portrait.MAX_SUMMARY_CHARS or everything.inventions(shown) or everything.unsupported(shown):
        summary = ""
    return portrait.Proposal(explicit=tuple(explicit), traits=tuple(traits), outdated=tuple(outdated), summary=summary)


def picked(
    names: Sequence[str], turn: Sequence[Told], values: Mapping[str, object], *, is_latest: bool
) -> portrait.Proposal:
    """Return what a person says about themselves, in their own words, without a model.

    Args:
        names: what they are called in transcripts; the first one is shown.
        turn: Episodes, oldest first.
        values: of the profile as it is.
        is_latest: whether what they say is the latest state, so that it takes the place of what was said before.
    """
    found: dict[str, statement.Statement] = {}
    slots: dict[str, str] = {}
    items = [(item, _evidence(item)) for item in portrait.items(values, portrait.EXPLICIT) or []]
    outdated = []
    for episode in turn:
        for sentence in (
            one for text in statement.said_by(names, episode.content) for one in statement.sentences(text)
        ):
            if correct.may_correct(sentence):
                known = (names[0], sentence)
                found = {key: one for key, one in found.items() if not _is_over(one.text, known)}
                outdated += [item for item, told in items if item not in outdated and told and _is_over(told, known)]
            one = statement.statement(sentence)
            if one is None:
                continue
            former = found.get(slots.get(one.slot, "")) if one.slot else None
            if former is not None and former.is_alone:
                del found[former.text.casefold()]
            found[one.text.casefold()] = one
            if one.slot:
                slots[one.slot] = one.text.casefold()
    explicit = tuple(
        {"category": one.category, "description": f"{names[0]}: {one.text}", "evidence": one.text}
        for one in found.values()
    )
    for item, evidence in items:
        former = statement.statement(evidence)
        if (
            former is not None
            and former.is_alone
            and former.slot in slots
            and slots[former.slot] != former.text.casefold()
            and item not in outdated
        ):
            outdated.append(item)
    return portrait.Proposal(explicit=explicit, outdated=tuple(outdated) if is_latest else ())


def _evidence(item: object) -> str:
    evidence = item.get("evidence", "") if isinstance(item, Mapping) else ""
    return evidence if isinstance(evidence, str) else ""


def _is_over(former: str, said: tuple[str, str]) -> bool:
    """Return whether what somebody said before does not hold any more, by what they say later (their name, and that).

    A sentence of which a part still holds that says something by itself does not go: nothing of it is to be lost.
    """
    name, later = said[0], f"{said[0]}: {said[1]}"
    if not correct.contradicts(later, f"{name}: {former}"):
        return False
    parts = correct.clauses(former)
    return len(parts) == 1 or not any(
        statement.statement(part) is not None and not correct.contradicts(later, f"{name}: {part}") for part in parts
    )
