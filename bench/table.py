"""Figures with the budgets beside them, as one Markdown table and as JSON."""

from __future__ import annotations

import datetime as dt
import os
import platform
from collections.abc import Sequence

import msgspec


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One measured number."""

    name: str
    size: str = ""
    """What it was measured on, e.g. `10,000`."""
    value: float
    unit: str
    budget: float | None = None
    """The most it may be (DESIGN, budgets); None: nothing was promised."""
    is_floor: bool = False
    """The budget is the least instead."""
    note: str = ""

    @property
    def is_met(self) -> bool | None:
        """Whether the budget holds; None without one."""
        if self.budget is None:
            return None
        return self.value >= self.budget if self.is_floor else self.value <= self.budget


def markdown(figures: Sequence[Figure]) -> str:
    """Return the table."""
    load = os.getloadavg()[0]
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    lines = [
        f"everosd on {machine}, {dt.datetime.now(dt.UTC):%Y-%m-%d %H:%M} UTC, load average {load:.1f} (ours alone: about 1)",
        "",
        "| what | entries | measured | budget | | note |",
        "|---|---:|---:|---:|---|---|",
    ]
    for figure in figures:
        sign = "≥" if figure.is_floor else "≤"
        budget = "" if figure.budget is None else f"{sign} {number(figure.budget)} {figure.unit}"
        verdict = {None: "", True: "met", False: "**MISSED**"}[figure.is_met]
        lines.append(
            f"| {figure.name} | {figure.size} | {number(figure.value)} {figure.unit} | {budget} | {verdict} | {figure.note} |"
        )
    return "\n".join(lines) + "\n"


def encoded(figures: Sequence[Figure]) -> bytes:
    """Return the figures as JSON, one object each."""
    return msgspec.json.format(msgspec.json.encode(list(figures)), indent=1) + b"\n"


def number(value: float) -> str:
    """Return `value` with three digits that count."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value that `share` of `values` do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, round(share * len(ordered) + 0.5) - 1))]
