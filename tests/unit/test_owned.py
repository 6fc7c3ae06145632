"""Whose a row is, in SQL: said in one place."""

from __future__ import annotations

import re
from pathlib import Path

import everosd
from everosd import types
from everosd.store import owned

SPELT_OUT = re.compile(
    r"\bapp(?:_id)? = \?\s*AND\s+(?:\w+\.)?project(?:_id)? = \?\s*AND\s+(?:\w+\.)?owner_type = \?\s*AND"
)


def test_the_condition_and_its_parameters_go_together() -> None:
    """Four columns and four values, in one order; a report has two of them under the names that people know."""
    assert "app = ? AND project = ? AND owner_type = ? AND owner_id = ?" == owned.by()
    assert "e.app = ? AND e.project = ? AND e.owner_type = ? AND e.owner_id = ?" == owned.by("e")
    assert "app_id = ? AND project_id = ? AND owner_type = ? AND owner_id = ?" == owned.by("", owned.REPORT_COLUMNS)
    assert ("a", "p", "agent", "bot") == owned.scope(types.Owner(app="a", project="p", type="agent", id="bot"))


def test_nobody_spells_the_owner_out() -> None:
    """A condition that is written by hand is one in which a column can be forgotten."""
    found = [
        path.name
        for path in Path(everosd.__file__).parent.rglob("*.py")
        if SPELT_OUT.search(re.sub(r'"\s*f?"', "", path.read_text(encoding="utf-8")))
    ]
    assert [] == found
