"""What an edit did to entries: the events that the ledger numbers."""

from __future__ import annotations

from typing import Literal

import msgspec

Change = Literal["added", "modified", "removed"]


class EntryChange(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of one file changed."""

    change: Change
    entry_id: str
    nth: int
    """0 for the first entry with this id in the file, 1 for a second one."""
