"""Consolidations as text: what stood there, what stands there, what is gone and what is new."""

from __future__ import annotations

from typing import Any

import pytest

from everosd.cli import excerpt, merged

REPORT: dict[str, Any] = {
    "report_id": "0" * 32,
    "owner_id": "mara",
    "cluster_id": "cl_0123456789ab",
    "mode": "init",
    "source_count": 2,
    "status": "completed",
    "created_at": "2026-03-09T02:00:00Z",
    "before": [
        {"timestamp": "2026-03-01T10:00:00Z", "subject": "No dog", "text": "Mara has no dog yet. She wants one."},
        {"timestamp": None, "subject": "", "id": "mara_ep_20260302_00000001", "text": ""},
    ],
    "after": {
        "timestamp": "2026-03-02T10:00:00Z",
        "subject": "A dog",
        "content": "Mara wants one.\nMara has a dog, Bilbo.",
    },
    "check": "3 of 3 statements told",
}
UNDO = f"everosd rollback {'0' * 32}"


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


def test_the_difference_is_what_is_gone_and_what_is_new_in_order() -> None:
    """A statement that moved, or is told twice, is neither."""
    before = ["A is one. B is two.", "C is three. A is one."]
    assert ["- B is two.", "+ B was two.", "+ D is new."] == merged.difference(
        before, "C is three.\nA is one. B was two. D is new."
    )
    assert [] == merged.difference(before, "C is three. B is two. A is one.")
    assert [] == merged.difference(["2026-03-02 09:00\nA is one."], "2026-03-02\nA is one."), "the form of a date"


def test_statements_are_told_apart_in_any_script() -> None:
    """By their full stops, or by lines; marks of Markdown alone are none."""
    assert ["今日は雨。", "明日は晴れ。"] == excerpt.statements("今日は雨。 明日は晴れ。")
    assert ["Dr. Furlan and Mrs. Hall came.", "Both left."] == excerpt.statements(
        "Dr. Furlan and Mrs. Hall came. Both left."
    )
    assert ["One.", "Two"] == excerpt.statements("One.\n---\n#### \n\nTwo")


def test_one_consolidation_with_everything_about_it() -> None:
    """Head, both sides, the difference, the check, and what undoes it."""
    assert [
        "2026-03-09 02:00  A dog\n    mara  cl_0123456789ab  2 fragments → 1 narrative",
        "    before",
        "      2026-03-01  No dog",
        "      Mara has no dog yet. She wants one.",
        "      no date  mara_ep_20260302_00000001",
        "    after",
        "      2026-03-02  A dog",
        "      Mara wants one.",
        "      Mara has a dog, Bilbo.",
        "    difference:",
        "      - Mara has no dog yet.",
        "      - She wants one.",
        "      + Mara wants one.",
        "      + Mara has a dog, Bilbo.",
        "    checked: 3 of 3 statements told",
        f"    undo: {UNDO}",
    ] == list(merged.whole(REPORT, undo=UNDO))


def test_what_was_undone_or_is_gone_says_so() -> None:
    """A rolled-back one cannot be undone again; a narrative that no file has is named as gone."""
    undone = REPORT | {"status": "rolled_back"}
    assert "A dog  [rolled back]" in merged.head(undone)
    assert set() == merged.undoable([undone])
    lost = list(merged.whole(REPORT | {"after": None, "check": None}, undo=""))
    assert "(gone)" in lost[0]
    assert not [line for line in lost if "difference" in line or "after" in line]


def test_in_short_a_narrative_is_shown_as_it_ends() -> None:
    """What is true now stands last; numbers say once what was made of what."""
    update = REPORT | {
        "mode": "update",
        "after": {"subject": "A dog", "content": "It was so. " * 60 + "Now it is not."},
    }
    lines = list(merged.brief(update, undo=UNDO))
    assert "    mara  cl_0123456789ab  1 narrative and 1 fragment → 1 narrative" == lines[0].splitlines()[1]
    assert lines[1].startswith("      … It was so.")
    assert lines[3].endswith("Now it is not.")
    assert ["    checked: 3 of 3 statements told", f"    undo: {UNDO}"] == lines[4:]


def test_what_was_skipped_names_whose_about_what_and_why() -> None:
    """And what was made up of it."""
    one = {"owner_id": "mara", "cluster_id": "cl_1", "topic": "Dogs", "reason": "says what no source says"}
    assert ["mara  cl_1  Dogs", "    skipped: says what no source says"] == list(merged.skipped(one))
    assert "    checked: invented: Rex" == list(merged.skipped(one | {"check": "invented: Rex"}))[2]


def test_undo_is_offered_where_it_would_be_accepted() -> None:
    """Not of what a later one builds on, of what is undone, or where nothing could come back."""
    first = REPORT | {"merged_entry_id": "ep_1", "source_members": [{"member_id": "ep_0"}]}
    later = REPORT | {"report_id": "1" * 32, "merged_entry_id": "ep_2", "source_members": [{"member_id": "ep_1"}]}
    others = later | {"report_id": "2" * 32, "owner_id": "theo"}
    assert {"1" * 32} == merged.undoable([later, first])
    assert {"0" * 32} == merged.undoable([later | {"status": "rolled_back"}, first])
    assert {"0" * 32, "2" * 32} == merged.undoable([others, first])
    assert set() == merged.undoable([first | {"before": [{"id": "ep_0", "status": "gone"}]}])
