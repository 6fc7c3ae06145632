"""What a search needs to know of a document beside its vectors; kept with it."""

from __future__ import annotations

import msgspec

from everosd.index import contract


class Fields(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """New fields come last, with a default."""

    kind: str
    status: str
    timestamp_us: int
    expires_us: int | None
    session_id: str
    parent_type: str
    parent_id: str
    sender_ids: tuple[str, ...]
    own_link: int
    parent_link: int
    memory_type: str = ""
    memory_path: str = ""
    bucket: str = ""
    scope: str = ""
    team_id: str = ""
    semantic_key: str = ""


def of(document: contract.Document) -> Fields:
    """Return what is kept of a document."""
    return Fields(
        kind=document.kind,
        status=document.status,
        timestamp_us=document.timestamp_us,
        expires_us=document.expires_us,
        session_id=document.session_id,
        parent_type=document.parent_type,
        parent_id=document.parent_id,
        sender_ids=document.sender_ids,
        own_link=contract.link(document.owner, document.entry_id),
        parent_link=contract.link(document.owner, document.parent_id),
        memory_type=document.memory_type,
        memory_path=document.memory_path,
        bucket=document.bucket,
        scope=document.scope,
        team_id=document.team_id,
        semantic_key=document.semantic_key,
    )
