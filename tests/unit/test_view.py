"""What an entry means to filters, searches and answers."""

from __future__ import annotations

import zoneinfo

import pytest

from everosd import types
from everosd.log import entry, entry_text, kind, layout, view

UTC = zoneinfo.ZoneInfo("UTC")
PLACE = layout.Place(
    owner=types.Owner(app="default", project="default", type="user", id="mara"), kind="episode", date="2026-03-02"
)


def made(kind_name: str = "episode", raw: str = "", form: entry.Form = "marked") -> entry.Entry:
    return entry_text.read(kind_name, f"{kind.BY_NAME[kind_name].prefix}_20260302_1", raw, form=form)


def test_wrong_values_have_defaults_and_are_reported() -> None:
    """Each value that cannot be used is named; the entry goes on with the default."""
    found = view.record(
        made(raw="**status**: gone\n**expires_at**: soon\n**timestamp**: never\n**owner_id**: eve\n"), PLACE, UTC
    )
    assert ("active", None, view.file_date_us(PLACE, UTC)) == (found.own_status, found.expires_us, found.timestamp_us)
    assert 4 == len(found.warnings)
    for word in ("gone", "soon", "never", "eve"):
        assert any(word in warning for warning in found.warnings)


@pytest.mark.parametrize("written", ["", "null", "~", "None"])
def test_null_is_no_session(written: str) -> None:
    """A narrative's session is none, however that is written."""
    found = view.record(
        made(raw=f"**session_id**: {written}\n**expires_at**: {written}\n**timestamp**: {written}\n"), PLACE, UTC
    )
    assert (None, None, ()) == (found.session_id, found.expires_us, found.warnings)


def test_an_unknown_memory_type_is_episodic() -> None:
    """The type falls back to the file's, then to episodic."""
    place = layout.Place(owner=PLACE.owner, kind="memory", date="2026-03-02", memory_path="p")
    found = view.record(made("memory", "**memory_type**: vague\n"), place, UTC)
    assert ("episodic", "p", 1) == (found.memory_type, found.memory_path, len(found.warnings))


def test_every_word_of_an_entry_is_searchable_once() -> None:
    """Title and body together hold subject, heading, preamble, unknown sections and fields, and nothing technical."""
    item = made(
        raw="## A walk\n\n**owner_id**: mara\n**mood**: calm\n**report_id**: r1\n\nopening\n\n### Subject\nLake\n\n### Notes\nboots\n\n### Content\nwater\n"
    )
    assert "Lake" == view.title(item)
    assert "A walk\ncalm\nopening\nNotes\nboots\nwater" == view.body(item)
    assert "A walk" == view.title(made(raw="## A walk\n\n### Subject\n\n### Content\nx"))


@pytest.mark.parametrize(
    ("name", "raw", "field", "value"),
    [
        ("foresight", "## Trip\nshe will go", "foresight", "she will go"),
        ("atomic_fact", "She likes tea.", "fact", "She likes tea."),
        ("episode", "## Trip\nshe went\n\n### Where\nthe lake", "content", "she went\n\n### Where\nthe lake"),
        ("episode", "## Trip", "content", "Trip"),
        ("memory", "text only", "content", "text only"),
        ("cluster", "**source_count**: 3\n**deprecated_fact_count**: x", "source_count", 3),
        ("message", "**tool_call_id**: null\n**sender_name**: Ada", "tool_call_id", None),
    ],
)
def test_text_by_hand_is_where_answers_look(name: str, raw: str, field: str, value: object) -> None:
    """Text without sections is shown as the kind's main text; values are converted to the struct's types."""
    assert value == getattr(view.view(made(name, raw, "hand")), field)


def test_json_in_a_profile_is_searched_as_text() -> None:
    """Every text in lists and maps is found, broken JSON is text, and the summary is there once."""
    item = entry_text.read(
        "profile",
        "profile_mara",
        "---\nsummary: tea\ninfo:\n- k: [deep, {x: er}]\nodd: '[not json'\n---\ntea\n",
        form="whole",
    )
    assert "tea\ndeep\ner\n[not json" == view.body(item)
    assert ("tea", "profile_mara") == (view.view(item).summary, view.view(item).id)  # type: ignore[attr-defined]


def test_where_an_entry_comes_from_is_not_searched_for() -> None:
    """Nor what it corrects, also on a kind that knows no such field."""
    told = (
        "**corrects**: [mem_20260302_00000001]\n**source_digest**: 0123\n**extracted_by**: verbatim\n**mood**: glad\n"
    )
    assert "glad\nTea." == view.body(made("memory", f"{told}\n### Content\nTea.\n"))
    assert "Tea." == view.body(made("atomic_fact", f"{told.replace('**mood**: glad', '')}\n### Fact\nTea.\n"))


@pytest.mark.parametrize("written", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_a_moment_that_its_offset_puts_outside_the_calendar_is_none(written: str) -> None:
    """It could not be shown to anybody: the file's date is taken, and that is told."""
    found = view.record(made(raw=f"**timestamp**: {written}\n"), PLACE, UTC)
    assert (1, view.file_date_us(PLACE, UTC)) == (len(found.warnings), found.timestamp_us)
