"""The tables of everos.toml as the planners go by them: periods in microseconds, importance in millionths.

Importance is counted in whole millionths, so that ten steps of 0.03 are 0.3, whether they are taken one a day or all at once.
"""

from __future__ import annotations

import functools

import msgspec

from everosd import config
from everosd.store import lifecycle

DAY_US = 86_400_000_000
MILLION = 1_000_000

IDENTITY = "identity"
"""Of this type nothing decays, and nothing is archived."""


class Decay(msgspec.Struct, frozen=True, kw_only=True):
    """How importance of one type sinks."""

    period_us: int
    step: int
    """Millionths."""
    floor: int
    """Millionths."""


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """What is decided by, of one moment."""

    decay: dict[str, Decay]
    """By type; a type that is not there does not decay. Never mutated."""
    retention_us: dict[str, int]
    """By type; a type that is not there is not archived for its age. Never mutated."""
    superseded_us: int
    """After so long a superseded memory is archived."""
    max_share: float
    kinds: tuple[str, ...]
    """Whose memories expire, decay and are archived: `memory`, and `episode` where that is wanted."""


def of(settings: config.Config) -> Policy:
    """Return the policy that the settings describe."""
    retention = settings.lifecycle_retention
    return Policy(
        decay={
            "working": _decay(settings.lifecycle_decay_working),
            "episodic": _decay(settings.lifecycle_decay_episodic),
            "semantic": _decay(settings.lifecycle_decay_semantic),
            "procedural": _decay(settings.lifecycle_decay_procedural),
        },
        retention_us={
            "working": _us(retention.working),
            "episodic": _us(retention.episodic),
            "semantic": _us(retention.semantic),
            "procedural": _us(retention.procedural),
        },
        superseded_us=_us(retention.superseded),
        max_share=settings.lifecycle.max_share,
        kinds=("memory", "episode") if settings.lifecycle.episodes else ("memory",),
    )


def rules(policies: Policy) -> tuple[lifecycle.Rule, ...]:
    """Return the same by type, as the ledger counts by it."""
    return tuple(
        lifecycle.Rule(
            memory_type=name,
            period_us=decay.period_us if decay is not None and decay.step else None,
            floor=1.0 if decay is None else importance(decay.floor),
            kept_us=policies.retention_us.get(name),
        )
        for name in sorted(policies.decay.keys() | policies.retention_us.keys())
        for decay in (policies.decay.get(name),)
    )


def millionths(value: float) -> int:
    """Return importance as whole millionths."""
    return round(value * MILLION)


@functools.lru_cache(maxsize=4096)
def importance(value: int) -> float:
    """Return millionths as importance, the shortest number that says it."""
    return round(value / MILLION, 6)


@functools.lru_cache(maxsize=4096)
def number(value: int) -> str:
    """Return millionths as rows have them, and as people are told them: no more digits than it takes."""
    return f"{importance(value):.6f}".rstrip("0").rstrip(".")


@functools.lru_cache(maxsize=4096)
def days(us: int) -> str:
    """Return a span of time as people are told it: days, as exact as they are said to be, never rounded up to an edge."""
    tenths = us * 10 // DAY_US
    return f"{tenths // 10}" if tenths % 10 == 0 else f"{tenths / 10:.1f}"


def _decay(table: config.Decay) -> Decay:
    return Decay(period_us=_us(table.period_days), step=millionths(table.step), floor=millionths(table.floor))


def _us(days_: float) -> int:
    """Return days as microseconds, at least one."""
    return max(1, round(days_ * DAY_US))
