"""Consolidations: what the rows of `.clusters/` say of them, as the table `reflection_report`, and read again.

A report is what its rows say: `completed` that a narrative has replaced its sources, `rolled_back` that this is undone,
`restored` that the files say so, too. A report that was rolled back stays so. Queries of what waits to be done are here as well:
narratives whose consolidation is not completed, rollbacks whose files are not done, clusters that may be merged.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from everosd import types
from everosd.store import read

Status = Literal["completed", "rolled_back"]


class SourceMember(msgspec.Struct, frozen=True, kw_only=True):
    """An entry that a consolidation replaced."""

    member_id: str
    """Entry id."""
    member_type: str
    """Kind of the entry, as its row says."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """One consolidation of a cluster."""

    report_id: str
    owner: types.Owner
    cluster_id: str
    mode: str
    """`init` or `update`; empty where no row says."""
    source_members: tuple[SourceMember, ...]
    """What it replaced."""
    source_count: int
    """As its row says; an update counts the narrative before it."""
    merged_entry_id: str
    """Entry id of the narrative."""
    deprecated_fact_count: int
    status: Status
    created_us: int
    """When it was completed."""
    updated_us: int
    """When its status was decided."""
    sources: tuple[tuple[str, str], ...]
    """(entry id, digest of the text that was read) of `source_members`; empty for EverOS's."""
    is_restored: bool
    """Rolled back, and all of its files say so."""


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster with several live Episodes."""

    owner: types.Owner
    cluster_id: str
    n_live: int
    """Live Episodes in it, narratives among them; at least 2."""
    n_narratives: int
    """Of these, what a consolidation wrote."""
    newest_us: int
    """Moment of the newest of them."""


async def page(
    reader: read.Reader,
    *,
    app: str,
    project: str,
    owner_id: str | None,
    cluster_id: str | None,
    limit: int,
    offset: int,
    owner_type: types.OwnerType = "user",
) -> tuple[list[Report], int]:
    """Return one page of the reports of a scope, the newest first, and how many there are in all.

    None for `owner_id` or `cluster_id` means all of them; `owner_type` is that of `owner_id`.
    """
    raise NotImplementedError


async def find(
    reader: read.Reader,
    report_id: str,
    *,
    app: str | None = None,
    project: str | None = None,
    owner_id: str | None = None,
) -> Report | None:
    """Return a report by its id; of several, as where a person copied a folder of memory, the first by owner."""
    raise NotImplementedError


async def of_narrative(reader: read.Reader, owner: types.Owner, entry_id: str) -> Report | None:
    """Return the report of the consolidation that wrote a narrative."""
    raise NotImplementedError


async def builds_on(reader: read.Reader, owner: types.Owner, entry_id: str) -> Report | None:
    """Return the newest completed consolidation that replaced an entry; None where there is none, or it is rolled back."""
    raise NotImplementedError


async def unfinished(reader: read.Reader, now_us: int = 0) -> list[types.EntryKey]:
    """Return the live narratives whose report no row of their owner's speaks of, the oldest first."""
    raise NotImplementedError


async def unrestored(reader: read.Reader) -> list[Report]:
    """Return the reports that are rolled back and whose files may not say so yet, the oldest first."""
    raise NotImplementedError


async def rolled_back(reader: read.Reader, owner: types.Owner, cluster_id: str) -> list[Report]:
    """Return the reports of a cluster that are rolled back, the newest first."""
    raise NotImplementedError


async def candidates(reader: read.Reader, now_us: int = 0) -> list[Candidate]:
    """Return the clusters of all owners with at least 2 live Episodes, each owner's largest first.

    Live is what is active, wins its id, and does not expire before `now_us`.
    """
    raise NotImplementedError
