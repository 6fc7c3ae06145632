"""Rows of the ledger → items of an answer. Nothing is cut, nothing is guessed; what a file does not say is empty."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from everosd import types
from everosd.api import moment, schema
from everosd.index import token
from everosd.log import entry as log_entry
from everosd.log import entry_text, layout, view
from everosd.search import fuse, query
from everosd.store import memory
from everosd.store import row as store_row

_PROFILE_SCOPE = frozenset({"id", "type", "file_type", "schema_version", "user_id", "track"})
"""Frontmatter of a profile that says what the file is, not what is known of the person."""

_MAIN = ("content", "fact", "foresight", "text")
"""Where kinds have what they say."""

_MAX_DIGITS = 19
"""Longer numbers are no moments."""

ItemT = TypeVar("ItemT", bound=msgspec.Struct)


class Maker(msgspec.Struct, frozen=True, kw_only=True):
    """Makes items: how moments are shown, when now is, and whether statuses are shown."""

    zone: dt.tzinfo
    now_us: int
    """An entry whose `expires_at` is not after it counts as expired."""
    has_status: bool = False
    """Items carry `status` and `deprecated_by`: only where the request asked for statuses."""

    def iso(self, us: int) -> str:
        """Return a moment as answers show it."""
        return moment.iso(us, self.zone)

    def got_episode(self, row: store_row.EntryRow) -> schema.GetEpisodeItem:
        """Return an Episode as memory/get shows it."""
        return _made(schema.GetEpisodeItem, {**self._base(row), **self._episode(row)})

    def got_profile(self, row: store_row.EntryRow) -> schema.GetProfileItem:
        """Return a profile as memory/get shows it."""
        return _made(schema.GetProfileItem, {**self._base(row), **self._profile(row)})

    def got_agent_case(self, row: store_row.EntryRow) -> schema.GetAgentCaseItem:
        """Return a case as memory/get shows it."""
        return _made(schema.GetAgentCaseItem, {**self._base(row), **self._agent_case(row)})

    def got_agent_skill(self, row: store_row.EntryRow) -> schema.GetAgentSkillItem:
        """Return a skill as memory/get shows it."""
        return _made(schema.GetAgentSkillItem, {**self._base(row), **self._agent_skill(row)})

    def found_episode(self, hit: query.Hit) -> schema.SearchEpisodeItem:
        """Return an Episode or a typed memory that a search found, with the facts that matched."""
        row = hit.row
        fields = {**self._base(row), **self._episode(row), "score": hit.score}
        if row.kind == "memory":
            fields |= {"memory_type": row.memory_type, "path": row.memory_path}
        fields["atomic_facts"] = tuple(self._fact(fact) for fact in hit.facts)
        return _made(schema.SearchEpisodeItem, fields | _explained(hit))

    def found_profile(self, hit: query.Hit) -> schema.SearchProfileItem:
        """Return a profile beside what a search found; it has no score."""
        return _made(schema.SearchProfileItem, {**self._base(hit.row), **self._profile(hit.row)})

    def found_agent_case(self, hit: query.Hit) -> schema.SearchAgentCaseItem:
        """Return a case that a search found."""
        fields = {**self._base(hit.row), **self._agent_case(hit.row), "score": hit.score}
        return _made(schema.SearchAgentCaseItem, fields | _explained(hit))

    def found_agent_skill(self, hit: query.Hit) -> schema.SearchAgentSkillItem:
        """Return a skill that a search found."""
        fields = {**self._base(hit.row), **self._agent_skill(hit.row), "score": hit.score}
        return _made(schema.SearchAgentSkillItem, fields | _explained(hit))

    def dated(self, row: store_row.EntryRow) -> schema.TimelineItem:
        """Return an entry as a timeline shows it."""
        entry = parsed(row)
        return schema.TimelineItem(
            id=public(row),
            kind=row.kind,
            memory_type=memory.type_of(row.kind, row.memory_type),
            path=row.memory_path,
            session_id=row.session_id or None,
            timestamp=self.iso(row.timestamp_us),
            subject=view.title(entry),
            text=content_of(entry, view.view(entry)),
        )

    def status(self, row: store_row.EntryRow) -> str:
        """Return the status of an entry now: the clock alone makes an active one expired."""
        is_over = row.status == "active" and row.expires_us is not None and row.expires_us <= self.now_us
        return "expired" if is_over else row.status

    def _base(self, row: store_row.EntryRow) -> dict[str, object]:
        shown: dict[str, object] = {"id": public(row), "app_id": row.owner.app, "project_id": row.owner.project}
        if self.has_status:
            shown |= {"status": self.status(row), "deprecated_by": successor(row)}
        return shown

    def _episode(self, row: store_row.EntryRow) -> dict[str, object]:
        entry = parsed(row)
        seen = view.view(entry)
        return {
            "user_id": row.owner.id if row.owner.type == "user" else None,
            "session_id": row.session_id or None,
            "timestamp": self.iso(row.timestamp_us),
            "sender_ids": row.sender_ids,
            "summary": getattr(seen, "summary", ""),
            "subject": view.title(entry),
            "episode": content_of(entry, seen),
        }

    def _fact(self, hit: query.Hit) -> schema.SearchAtomicFactItem:
        return schema.SearchAtomicFactItem(id=public(hit.row), content=_said(hit.row), score=hit.score)

    def _profile(self, row: store_row.EntryRow) -> dict[str, object]:
        fields = parsed(row).fields
        data = {key: value_of(key, text) for key, text in fields.items() if key not in _PROFILE_SCOPE}
        return {"user_id": row.owner.id, "profile_data": data}

    def _agent_case(self, row: store_row.EntryRow) -> dict[str, object]:
        seen = view.view(parsed(row))
        return {
            "agent_id": row.owner.id,
            "session_id": row.session_id or "",
            "timestamp": self.iso(row.timestamp_us),
            **_named(seen, ("task_intent", "approach", "quality_score", "key_insight")),
        }

    def _agent_skill(self, row: store_row.EntryRow) -> dict[str, object]:
        entry = parsed(row)
        seen = view.view(entry)
        named = _named(seen, ("name", "description", "confidence", "maturity_score", "source_case_ids"))
        if not layout.is_name(str(named["name"])):
            place = layout.place(row.path)
            named["name"] = "" if place is None else place.name
        return {"agent_id": row.owner.id, "content": entry.preamble, **named}


def _made(kind: type[ItemT], fields: dict[str, object]) -> ItemT:
    return kind(**fields)


def _explained(hit: query.Hit) -> dict[str, object]:
    """Return the field that tells what a score is made of; none where that was not asked for."""
    why = hit.why
    if why is None:
        return {}
    entry = parsed(hit.row)
    explanation = schema.Explanation(
        keyword=why.own.keyword,
        similarity=why.own.similarity,
        own=why.own.score,
        lift=fuse.LIFT,
        fact=_explained_fact(why),
        date_lift=fuse.DATED,
        dated=why.dated,
        importance=msgspec.UNSET if why.importance is None else why.importance,
        words=token.matched_words(why.question, f"{view.title(entry)}\n{view.body(entry)}"),
        corrects=None if why.corrects is None else public(why.corrects),
    )
    return {"explain": explanation}


def _explained_fact(why: query.Why) -> schema.ExplainedFact | None:
    if why.fact is None or why.fact_row is None:
        return None
    return schema.ExplainedFact(
        id=public(why.fact_row),
        content=_said(why.fact_row),
        keyword=why.fact.keyword,
        similarity=why.fact.similarity,
        score=why.fact.score,
    )


def _said(row: store_row.EntryRow) -> str:
    """Return what an entry says."""
    entry = parsed(row)
    return content_of(entry, view.view(entry))


def _named(seen: object, names: Sequence[str]) -> dict[str, object]:
    return {name: getattr(seen, name) for name in names}


def parsed(row: store_row.EntryRow) -> log_entry.Entry:
    """Take the stored text of a row apart again."""
    return entry_text.read(row.kind, row.entry_id, row.raw, form=row.form)


def public(row: store_row.EntryRow) -> str:
    """Return the id that programs know an entry by."""
    return types.public_id(row.owner.id, row.entry_id)


def successor(row: store_row.EntryRow) -> str | None:
    """Return the public id of what replaces an entry, None while nothing does."""
    return types.public_id(row.owner.id, row.deprecated_by) if row.deprecated_by else None


def value_of(key: str, text: str) -> object:
    """Return a frontmatter value as JSON has it: lists and maps as they are, `…_ms` as a number, the rest as text."""
    if text[:1] in {"[", "{"}:
        with contextlib.suppress(msgspec.DecodeError):
            return msgspec.json.decode(text)
    return (
        int(text) if key.endswith("_ms") and text.isascii() and text.isdecimal() and len(text) < _MAX_DIGITS else text
    )


def content_of(entry: log_entry.Entry, seen: msgspec.Struct) -> str:
    """Return what an entry says, without its subject and summary; all of its text where no section is the main one."""
    found: str = next((text for name in _MAIN if (text := getattr(seen, name, ""))), "")
    return found or text_of(entry)


def text_of(entry: log_entry.Entry) -> str:
    """Return an entry's whole text: what stands before the sections, then each section under its title if several."""
    texts = [entry.preamble] if entry.preamble else []
    if len(entry.sections) == 1 and not texts:
        return entry.sections[0][1]
    texts += [f"### {title}\n{text}" for title, text in entry.sections]
    return "\n\n".join(texts)
