"""Episodes as sources of a narrative: what they say, by which digest it is known again, and what a narrative replaced."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Sequence

from everosd import clock, types
from everosd.log import entry, entry_text, escape, kind, view
from everosd.narrative import source
from everosd.store import read, row

EPISODE, FACT, ROW = "episode", "atomic_fact", "cluster"
NARRATIVE = "cluster"
"""`parent_type` of a narrative."""

_OWN = ("subject", "summary", "content")


def digest(found: row.EntryRow) -> str:
    """Return 16 hex digits that stand for what an Episode says."""
    return digest_of(of_row(found))


def digest_of(one: entry.Entry) -> str:
    """Return 16 hex digits that stand for what an entry says.

    Over its heading, what precedes its sections, and these: not over the text as it stands in the file, which changes
    when hand-written text gets its markers or a single-entry file becomes a daily log.
    """
    sections = [(title.casefold(), text) for title, text in one.sections]
    said = json.dumps([one.heading, one.preamble, sections], ensure_ascii=False)
    return hashlib.blake2b(said.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def of_row(found: row.EntryRow) -> entry.Entry:
    """Take the text of an entry apart."""
    return entry_text.read(found.kind, found.entry_id, found.raw, form=found.form)


def episode(found: row.EntryRow) -> kind.Episode:
    """Return an Episode with its fields."""
    seen = view.view(of_row(found))
    assert isinstance(seen, kind.Episode)  # noqa: S101  # asked of Episodes alone
    return seen


def is_narrative(found: row.EntryRow) -> bool:
    """Return whether an Episode was merged from others."""
    return found.parent_type == NARRATIVE


def is_edited(found: row.EntryRow) -> bool:
    """Return whether a person has changed a narrative since it was written; one of another program tells nothing."""
    written = episode(found).text_digest
    return bool(written) and written != digest(found)


def replaced(found: row.EntryRow) -> tuple[tuple[str, str], ...]:
    """Return ids and digests of what a narrative replaces, as it says itself; empty where it is another program's."""
    parts = [each.partition("@") for each in episode(found).sources]
    return tuple((entry_id, of_text) for entry_id, _, of_text in parts if entry_id)


def of(found: row.EntryRow, facts: Sequence[str], zone: dt.tzinfo, *, is_latest: bool = False) -> source.Source:
    """Return an Episode as it goes into a merge."""
    one, seen = of_row(found), episode(found)
    has_content = any(title.casefold() == "content" and text.strip() for title, text in one.sections)
    if has_content:
        others = [f"{title}\n{text}" for title, text in one.sections if title.casefold() not in _OWN and text.strip()]
        content = "\n\n".join(part for part in (one.preamble, *others, seen.content) if part.strip())
    else:
        content = seen.content or view.body(one)
    return source.Source(
        entry_id=found.entry_id,
        at=clock.local(found.timestamp_us, zone),
        subject=" ".join(view.title(one).split()),
        content=content,
        facts=tuple(facts),
        is_narrative=is_narrative(found),
        is_latest=is_latest,
    )


async def facts(reader: read.Reader, owner: types.Owner, found: Sequence[row.EntryRow]) -> dict[str, list[str]]:
    """Return the facts of Episodes by their ids; of one that was replaced those that were replaced with it."""
    said: dict[str, list[str]] = {each.entry_id: [] for each in found}
    successor: dict[str, str | None] = {each.entry_id: each.deprecated_by for each in found}
    for one in await reader.children(owner, list(said), FACT):
        of_then = one.deprecated_by is not None and one.deprecated_by == successor[one.parent_id]
        if one.status == "active" or of_then:
            seen = view.view(of_row(one))
            assert isinstance(seen, kind.AtomicFact)  # noqa: S101  # asked of facts alone
            said[one.parent_id].append(seen.fact)
    return said


def digest_of_draft(draft: entry.Draft) -> str:
    """Return the digest of a draft as it will be once it is written and read again."""
    raw = escape.raw_text(
        kind.BY_NAME[EPISODE], "ep_00000000_0", fields=draft.fields, preamble=draft.preamble, sections=draft.sections
    )
    return digest_of(entry_text.read(EPISODE, "ep_00000000_0", raw))
