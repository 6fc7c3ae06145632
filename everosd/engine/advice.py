"""What people are told of strategies that the clock fires: in the status, by the doctor, and after `everosd set`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from everosd.engine import shown

REFLECTION = "reflect_episodes"
LIFECYCLE = "run_lifecycle"
WEEKLY = "0 2 * * 1"


def notices(strategies: Iterable[shown.StrategyStatus], *, merges: bool) -> Iterator[str]:
    """Yield what is worth a look; `merges` tells whether anything would merge what reflection finds."""
    for one in strategies:
        if one.enabled and one.is_hasty and one.name == REFLECTION:
            yield hasty(one.cron or "")
        if one.enabled and one.name == REFLECTION and not merges:
            yield without_model()
        last = one.last_run
        if last is not None and last.event is None and last.status == "missed":
            yield f"{one.name} missed a run: {last.error or 'nothing ran when it was due'}"
        elif last is not None and last.event is None and last.status == "failed":
            yield f"the last run of {one.name} failed, and is tried again: {last.error or 'no reason given'}"


def hasty(cron: str) -> str:
    """Return what is to be said of a cron that fires reflection more than once a week."""
    return (
        f'{REFLECTION} fires more than once a week (cron = "{cron}"): each merge may lose something, and merging the same'
        f' again and again makes it worse; "{WEEKLY}" is every Monday'
    )


def without_model() -> str:
    """Return what is to be said of reflection that is switched on and has nothing that merges."""
    return (
        f"{REFLECTION} is switched on and no model is set up: it skips every cluster; name one under [llm],"
        ' or set [reflection] merge = "extractive"'
    )


def unfired() -> str:
    """Return what is to be said of a lifecycle that is switched on and never comes."""
    return f"{LIFECYCLE} is switched on and nothing fires it: its preset is manual"


UNFIRED_HINT = f"everosd set {LIFECYCLE}.preset weekly (or daily)"
