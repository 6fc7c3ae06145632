"""Passes that were stopped as too much at once: what /health says of them until one of that owner goes through."""

from __future__ import annotations

from everosd import types
from everosd.lifecycle import decisions, guard, outcome

MAX_NAMED = 5


class Alarms:
    """Remembers the last real pass of each owner, where it was stopped. Lives on the event loop."""

    def __init__(self) -> None:
        """Begin with none."""
        self._stopped: dict[types.Owner, guard.Stopped] = {}

    def note(self, owner: types.Owner, stopped: guard.Stopped | None) -> None:
        """Take note of how an owner's last pass ended; None: it went through."""
        if stopped is None:
            self._stopped.pop(owner, None)
        else:
            self._stopped[owner] = stopped

    def ended(self, found: outcome.Result) -> None:
        """Take note of the end of a real pass; one that asks for nothing that is guarded says nothing."""
        if any(one.action in decisions.GUARDED for one in found.actions):
            self.note(found.owner, found.stopped)

    def said(self) -> tuple[str, ...]:
        """Return a sentence for each, with what to do."""
        named = [
            f"the lifecycle of {owner.type} {owner.id} was stopped, and nothing of it done: {one.reason};"
            " look at it with `dry_run`, correct [lifecycle] in everos.toml, or go on with `force`"
            for owner, one in sorted(self._stopped.items())[:MAX_NAMED]
        ]
        if (n_more := len(self._stopped) - MAX_NAMED) > 0:
            named.append(f"the lifecycle of {n_more:,} others was stopped as well")
        return tuple(named)
