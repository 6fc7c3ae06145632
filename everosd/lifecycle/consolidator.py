"""What plans `summarize` or `promote`, the two actions that write new memories."""

from __future__ import annotations

from typing import Protocol

from everosd.lifecycle import decisions, overlay


class Consolidator(Protocol):
    """Plans one of the two actions that write new memories."""

    async def plan(self, state: overlay.State, call: decisions.Call) -> decisions.Plan:
        """Return what would be done; writes nothing. The sources are `state.episodic(call)`.

        A model that is away or refuses skips its groups with the reason: no fault of the call.

        Raises:
            StoreError: the ledger cannot be read.
        """
