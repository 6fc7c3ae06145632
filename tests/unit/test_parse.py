"""The grammar in all its forms, and what is said of files that are not of it."""

from __future__ import annotations

import datetime as dt
import os
import zoneinfo
from pathlib import Path

import pytest

from everosd import clock, types
from everosd.log import entry, entry_text, layout, parse, render, structure, surgery, view

PEER_FORMATS = Path(os.environ.get("EVEROSD_PEER", Path(__file__).parents[3] / "shared" / "peer")) / "formats"
UTC = zoneinfo.ZoneInfo("UTC")
BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
FOLDER = "default_app/default_project/users/mara"
EPISODES = f"{FOLDER}/episodes/episode-2026-03-02.md"
FACTS = f"{FOLDER}/.atomic_facts/atomic_fact-2026-03-02.md"
HEAD = """---
id: episode_log_mara_2026-03-02
type: episode_daily
file_type: episode_daily
schema_version: 1
user_id: mara
track: user
date: '2026-03-02'
entry_count: 5
last_appended_at: '2026-03-02T18:40:12+00:00'
---
"""


def read(text: str | bytes, path: str = EPISODES) -> parse.Parsed:
    found = layout.place(types.RelPath(path))
    assert found is not None
    return parse.parse(types.RelPath(path), text if isinstance(text, bytes) else text.encode(), found)


def episode(n: int, content: str = "Mara looks for a flat.", more: str = "") -> str:
    id_ = f"ep_20260302_{n:08}"
    return (
        f"<!-- entry:{id_} -->\n## {id_}\n\n**owner_id**: mara\n**session_id**: s_{n}\n"
        f"**timestamp**: 2026-03-02T1{n}:00:00+00:00\n**parent_type**: memcell\n**parent_id**: mc_{n}\n**sender_ids**: [mara, helper]\n{more}"
        f"\n### Subject\nSubject {n}\n\n### Summary\nSummary {n}\n\n### Content\n{content}\n<!-- /entry:{id_} -->\n"
    )


def ids(parsed: parse.Parsed) -> list[str]:
    return [item.id for item in parsed.entries]


def sections(parsed: parse.Parsed, n: int = 0) -> dict[str, str]:
    return dict(parsed.entries[n].sections)


FIVE = [f"ep_20260302_{n:08}" for n in range(1, 6)]


def five() -> list[str]:
    return [episode(n, content=f"content {n}") for n in range(1, 6)]


def test_a_daily_log_reads_as_everos_writes_it() -> None:
    """Frontmatter, fields and sections of a daily log come back, and nothing is complained about."""
    parsed = read(HEAD + "".join(five()))
    assert FIVE == ids(parsed)
    assert () == parsed.warnings
    assert parsed.error is None
    assert ("2026-03-02T18:40:12+00:00", 5, {}) == (parsed.stamp, parsed.entry_count, parsed.deprecated)
    first = parsed.entries[0]
    assert ("episode", "marked", 12, 0) == (first.kind, first.form, first.line, first.nth)
    assert ["owner_id", "session_id", "timestamp", "parent_type", "parent_id", "sender_ids"] == list(first.fields)
    assert (("Subject", "Subject 1"), ("Summary", "Summary 1"), ("Content", "content 1")) == first.sections
    for item, span in zip(parsed.entries, parsed.spans, strict=True):
        assert render.marked_text(item) == parsed.text[span.start : span.end]


def test_a_file_of_everos_reads_whole() -> None:
    """A log after a reflection has its mapping and its narrative."""
    text = (
        HEAD.replace("---\n<", "<").removesuffix("---\n")
        + "deprecated_entries:\n  ep_20260302_00000001: ep_20260302_00000002\n---\n"
    )
    narrative = "<!-- entry:ep_20260302_00000002 -->\n## ep_20260302_00000002\n\n**owner_id**: mara\n**parent_type**: cluster\n\n### Content\nAll of it.\n<!-- /entry:ep_20260302_00000002 -->\n"
    parsed = read(text + episode(1) + narrative)
    assert {"ep_20260302_00000001": "ep_20260302_00000002"} == parsed.deprecated
    seen = view.view(parsed.entries[1])
    assert (None, (), "", "All of it.") == (seen.session_id, seen.sender_ids, seen.summary, seen.content)  # type: ignore[attr-defined]


def test_P03_a_byte_order_mark_is_not_part_of_the_text() -> None:
    """A file with BOM reads as the same file without, and keeps it when it is written."""
    plain, marked = read(HEAD + episode(1)), read(b"\xef\xbb\xbf" + (HEAD + episode(1)).encode())
    assert plain.entries == marked.entries
    assert marked.has_bom
    written = surgery.rewritten(
        marked, appended=[entry.Entry(kind="episode", id="ep_20260302_00000006")], stamp="2026-03-02T19:00:00+00:00"
    )
    assert written.startswith(b"\xef\xbb\xbf---\n")
    assert 1 == written.count(b"\xef\xbb\xbf")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_P03_utf_16_gives_a_clear_error(encoding: str) -> None:
    """A file in UTF-16, with BOM or without, is an error that says what to do."""
    parsed = read((HEAD + episode(1)).encode(encoding))
    assert parsed.error is not None
    assert "UTF-16" in parsed.error.reason
    assert "UTF-8" in parsed.error.reason
    assert () == parsed.entries


def test_carriage_returns_change_no_entry() -> None:
    """The same file with CRLF has the same entries with the same digests."""
    text = HEAD + "".join(five()) + "\n## By hand\n\nkept\n"
    unix, dos = read(text), read(text.replace("\n", "\r\n"))
    assert "\r\n" == dos.newline
    assert [item.digest for item in unix.entries] == [item.digest for item in dos.entries]
    assert () == dos.warnings


def test_M03_a_lost_closing_marker_loses_no_entry() -> None:
    """An entry without closing marker ends where the next one starts; the line is named."""
    parts = five()
    parts[2] = parts[2].replace("<!-- /entry:ep_20260302_00000003 -->\n", "")
    parsed = read(HEAD + "".join(parts))
    assert FIVE == ids(parsed)
    assert ["content 1", "content 2", "content 3", "content 4", "content 5"] == [
        sections(parsed, n)["Content"] for n in range(5)
    ]
    (warning,) = parsed.warnings
    assert parsed.entries[2].line == warning.line
    assert "ep_20260302_00000003 has no closing marker" in warning.reason
    assert [item.digest for item in read(HEAD + "".join(five())).entries] == [item.digest for item in parsed.entries]


def test_M03_a_lost_opening_marker_loses_no_entry() -> None:
    """An entry without opening marker keeps the id of its heading and ends at its closing marker."""
    parts = five()
    parts[1] = parts[1].replace("<!-- entry:ep_20260302_00000002 -->\n", "")
    parsed = read(HEAD + "".join(parts))
    assert FIVE == ids(parsed)
    assert "headed" == parsed.entries[1].form
    assert [item.digest for item in read(HEAD + "".join(five())).entries] == [item.digest for item in parsed.entries]
    (warning,) = parsed.warnings
    assert (parsed.entries[1].line, "ep_20260302_00000002 has no opening marker") == (warning.line, warning.reason)


def test_M03_the_last_entry_may_be_cut_off() -> None:
    """A file that ends inside an entry still has what is there of it."""
    text = HEAD + "".join(five())
    parsed = read(text[: text.index("content 5") + len("content")])
    assert FIVE == ids(parsed)
    assert "content" == sections(parsed, 4)["Content"]
    assert 1 == len(parsed.warnings)


@pytest.mark.parametrize("content", ["content 2", "```\ncontent 2\n```", "```\ncontent 2"])
def test_a_misspelt_closing_marker_ends_its_entry(content: str) -> None:
    """A closing marker with another id is taken for the missing one, with a warning."""
    parts = five()
    parts[1] = episode(2, content=content)
    parts[1] = parts[1].replace("/entry:ep_20260302_00000002", "/entry:ep_20260302_0002")
    parsed = read(HEAD + "".join(parts))
    assert FIVE == ids(parsed)
    assert content == sections(parsed, 1)["Content"]
    assert ["the closing marker of ep_20260302_00000002 says ep_20260302_0002"] == [
        warning.reason for warning in parsed.warnings
    ]


def test_M06_what_a_person_adds_to_an_entry_is_found() -> None:
    """An unknown section, a paragraph between entries and a heading inside Content are all there; Content is whole."""
    content = "first\n\n### Not a section\nsecond\n\n## Nor this\n- third"
    added = episode(1, content=content).replace("### Content", "### Notes\nbuy boxes\n\n### Content")
    parsed = read(HEAD + added + "\nThe landlord called back.\n\n" + episode(2))
    assert [FIVE[0], parsed.entries[1].id, FIVE[1]] == ids(parsed)
    assert content == sections(parsed)["Content"]
    assert "buy boxes" == sections(parsed)["Notes"]
    text = "\n".join(view.title(item) + "\n" + view.body(item) for item in parsed.entries)
    for word in ("buy boxes", "Not a section", "Nor this", "third", "landlord"):
        assert word in text
    assert () == parsed.warnings


def test_text_in_an_entry_may_hold_anything() -> None:
    """Markers in a fence or behind four blanks, rules and frontmatter are text."""
    content = (
        "Look:\n```markdown\n---\nid: x\n---\n<!-- entry:ep_20260302_00000009 -->\n## ep_20260302_00000009\n<!-- /entry:ep_20260302_00000001 -->\n```\n"
        "and\n    <!-- /entry:ep_20260302_00000001 -->\n---\nend"
    )
    parsed = read(HEAD + episode(1, content=content) + episode(2))
    assert FIVE[:2] == ids(parsed)
    assert content == sections(parsed)["Content"]


@pytest.mark.parametrize("fence", ["```", "~~~~", "```python", "   ```"])
@pytest.mark.parametrize("later", ["nothing", "```\ncode\n```", "~~~~\ncode\n~~~~", "```python\ncode\n```"])
def test_a_fence_left_open_swallows_no_entry(fence: str, later: str) -> None:
    """However fences are opened in one entry and closed in another, each entry keeps its id and its text."""
    contents = [f"open\n{fence}\ncode", later, later, f"{fence}\nat the end", "last"]
    parsed = read(HEAD + "".join(episode(n, content=content) for n, content in enumerate(contents, 1)))
    assert FIVE == ids(parsed)
    assert contents == [sections(parsed, n)["Content"] for n in range(5)]


def test_a_fence_left_open_by_hand_swallows_no_entry() -> None:
    """A paragraph that opens a fence and forgets it hides nothing that follows."""
    parsed = read(HEAD + "see\n```\ncode\n\n" + episode(1, content="```\nmine\n```") + episode(2))
    assert FIVE[:2] == ids(parsed)[1:]
    assert "```\nmine\n```" == sections(parsed, 1)["Content"]


def test_fenced_markers_in_hand_written_text_are_text() -> None:
    """An example of the format in a note is part of the note."""
    parsed = read(f"# How it works\n\n```\n{episode(1)}```\n\ndone\n")
    (only,) = parsed.entries
    assert "hand" == only.form
    assert "done" in view.body(only)


@pytest.mark.parametrize(
    ("opening", "closing"),
    [
        ("<!--entry:ep_20260302_0001-->", "<!--/entry:ep_20260302_0001-->"),
        ("   <!--  ENTRY : ep_20260302_0001  -->  ", "  <!-- / Entry: ep_20260302_0001 -->\t"),
    ],
)
def test_markers_may_be_spaced_and_cased_by_hand(opening: str, closing: str) -> None:
    """Up to three blanks, any case and any inner spacing are a marker still; four digits of a number stay four."""
    parsed = read(f"{opening}\n### Content\nx\n{closing}\n")
    assert ["ep_20260302_0001"] == ids(parsed)
    assert () == parsed.warnings


def test_the_single_entry_form_of_the_seeds_is_an_entry() -> None:
    """Fields in the frontmatter and `##` sections are one entry."""
    text = "---\nowner_id: mara\ntimestamp: 2026-10-11T02:00:00+00:00\nparent_type: cluster   # merged\nparent_id: cl_a1b2c3d4e5f6\nmood: [calm, glad]\n---\n## Subject\nThe flat\n\n## Content\nShe moved.\n\n## Later\nShe stayed.\n"
    parsed = read(text)
    (only,) = parsed.entries
    assert "single" == only.form
    assert ("cluster", "[calm, glad]") == (only.fields["parent_type"], only.fields["mood"])
    assert (("Subject", "The flat"), ("Content", "She moved.\n\n## Later\nShe stayed.")) == only.sections
    assert entry_text.read("episode", only.id, only.raw, form="single", line=1) == only


def test_headings_and_paragraphs_by_hand_are_entries() -> None:
    """A heading with its text, and text before any heading, are entries with ids that stay; a lone title is none."""
    text = "# March\n\n## Flat\nthree rooms\n\n### Rent\n900\n\n## Flat\nanother\n\n## Call Ada\n"
    parsed = read(text)
    assert [("Flat", "hand"), ("Flat", "hand"), ("Call Ada", "hand")] == [
        (item.heading, item.form) for item in parsed.entries
    ]
    assert 3 == len(set(ids(parsed)))
    assert all(id_.startswith("ep_20260302_h") and len(id_) == len("ep_20260302_h") + 8 for id_ in ids(parsed))
    assert ids(parsed) == ids(read(text.replace("three", "four")))
    assert "900" in view.body(parsed.entries[0])
    assert "Flat" == view.title(parsed.entries[0])
    assert ids(parsed)[1:] == ids(read("Before.\n\n" + text.replace("three", "four")))[2:]


@pytest.mark.parametrize(
    "names",
    [
        ("episodes/one.md", "episodes/other.md"),
        ("episodes/one/notes.md", "episodes/other/notes.md"),
        ("episodes/episode-2026-03-02.md", "episodes/episode-2026-03-02.part2.md"),
        ("episodes/episode-2026-03-02.md", "episodes/dinner 2026-03-02.md"),
        ("memories/a/semantic-2026-03-02.md", "memories/b/semantic-2026-03-02.md"),
        ("memories/a/semantic-2026-03-02.md", "memories/a/working-2026-03-02.md"),
        ("memories/a/tea-2026-03-02.md", "memories/a/cake-2026-03-02.md"),
    ],
)
def test_paragraphs_of_two_files_are_two_entries(names: tuple[str, str]) -> None:
    """Text without heading in two files of one day, or of none, never shares an id: both are found."""
    one, other = (read("Just a thought.\n", f"{FOLDER}/{name}") for name in names)
    assert ids(one) != ids(other)


def test_a_file_without_a_date_says_so() -> None:
    """Neither name nor frontmatter: the first day of 1970 is taken and reported."""
    parsed = read("Just a thought.\n", f"{FOLDER}/episodes/one.md")
    assert "1970-01-01" == parsed.place.date
    assert any("1970-01-01" in warning.reason for warning in parsed.warnings)


def test_the_frontmatter_can_give_the_date() -> None:
    """`date` in the frontmatter is the file's date; a file name that says otherwise is reported."""
    assert "2025-12-24" == read("---\ndate: 2025-12-24\n---\nx\n", f"{FOLDER}/episodes/eve.md").place.date
    parsed = read("---\ndate: 2025-12-24\n---\nx\n")
    assert "2025-12-24" == parsed.place.date
    assert 1 == len(parsed.warnings)


def test_kinds_without_hand_text_report_it() -> None:
    """Text outside the entries of a file that only machines write is named, not taken for an entry."""
    path = f"{FOLDER}/.clusters/cluster-2026-03-02.md"
    parsed = read(
        "stray\n<!-- entry:ca_20260302_00000001 -->\n## ca_20260302_00000001\n\n**event**: joined\n<!-- /entry:ca_20260302_00000001 -->\n",
        path,
    )
    assert ["ca_20260302_00000001"] == ids(parsed)
    assert ["text outside the entries of this file is not read"] == [warning.reason for warning in parsed.warnings]


def test_messages_and_segments_share_a_file() -> None:
    """What a row of a session log is follows from its type."""
    path = "default_app/default_project/sessions/s%2F1/messages-2026-03-02.md"
    rows = "".join(
        f"<!-- entry:ms_20260302_{n:08} -->\n## ms_20260302_{n:08}\n\n**type**: {what}\n<!-- /entry:ms_20260302_{n:08} -->\n"
        for n, what in enumerate(("message", "segment"), 1)
    )
    parsed = read("---\nsession_id: s/1\n---\n" + rows, path)
    assert ["message", "segment"] == [item.kind for item in parsed.entries]
    assert "s/1" == view.record(parsed.entries[0], parsed.place, UTC).session_id
    assert () == parsed.warnings


def test_whole_files_are_one_entry() -> None:
    """A profile and a skill have their fields in the frontmatter and all their words are searchable."""
    profile = read(
        "---\nid: profile_mara\nuser_id: mara\nsummary: likes tea\nexplicit_info:\n- category: Home\n  description: lives in Kraków\nprofile_timestamp_ms: 1795993180382\n---\nlikes tea\n",
        f"{FOLDER}/user.md",
    )
    (only,) = profile.entries
    assert ("profile_mara", "whole") == (only.id, only.form)
    assert 1 == view.body(only).count("likes tea")
    assert "Kraków" in view.body(only)
    assert 1795993180382000 == view.record(only, profile.place, UTC).timestamp_us
    skill = read(
        "---\nname: Deploy\ndescription: how to\n---\n1. push\n",
        "default_app/default_project/agents/bot/skills/skill_deploy/SKILL.md",
    )
    assert "skill_deploy" == skill.entries[0].id
    assert "Deploy" == view.title(skill.entries[0])
    assert "1. push" in view.body(skill.entries[0])
    assert only == entry_text.read("profile", only.id, only.raw, form="whole", line=1)


def test_the_folder_decides_whose_a_file_is() -> None:
    """A user id in the frontmatter that differs is reported and not obeyed."""
    parsed = read(HEAD.replace("user_id: mara", "user_id: eve") + episode(1))
    assert "mara" == parsed.place.owner.id
    (warning,) = parsed.warnings
    assert 6 == warning.line
    assert "eve" in warning.reason


def test_a_shortened_owner_is_completed_from_the_frontmatter() -> None:
    """The full id comes back where it fits the folder's hash, and only there."""
    full = "é" * 128
    path = f"default_app/default_project/users/{layout.encode(full)}/episodes/episode-2026-03-02.md"
    assert full == read(f"---\nuser_id: {full}\n---\n", path).place.owner.id
    wrong = read("---\nuser_id: somebody else\n---\n", path)
    assert layout.encode(full) == wrong.place.owner.id
    assert 1 == len(wrong.warnings)


@pytest.mark.parametrize("head", ["path: `C:\\x`", "title: *x*", "- [[a]]b", 'd: "abc "def" ghi"'])
def test_P02_entries_of_a_file_with_broken_yaml_are_read(head: str) -> None:
    """The file is named with line and reason, and what its markers enclose is there."""
    parsed = read(f"---\n{head}\n---\n" + "".join(five()))
    assert parsed.error is not None
    assert 2 == parsed.error.line
    assert FIVE == ids(parsed)


def test_P02_a_rule_never_closed_hides_no_entry() -> None:
    """The YAML of a frontmatter without end is no paragraph, the entries behind it are read."""
    parsed = read("---\nid: x\nuser_id: mara\n" + "".join(five()))
    assert parsed.error is not None
    assert 1 == parsed.error.line
    assert FIVE == ids(parsed)


def test_P08_null_bytes_are_taken_out_with_a_warning() -> None:
    """A NUL in one entry is reported with its line; entry and file are read."""
    parsed = read((HEAD + episode(1, content="a\0b") + episode(2)).replace("\r", ""))
    assert FIVE[:2] == ids(parsed)
    assert "ab" == sections(parsed)["Content"]
    (warning,) = parsed.warnings
    assert parsed.text[: parsed.text.index("\0")].count("\n") + 1 == warning.line
    assert "\0" not in parsed.entries[0].raw


def test_M11_an_entry_with_a_bad_byte_is_quarantined() -> None:
    """The entry is named with its line, the others of the file go on and can be edited."""
    data = (HEAD + "".join(five())).encode().replace(b"content 3", b"content \xff")
    parsed = read(data)
    assert [FIVE[0], FIVE[1], FIVE[3], FIVE[4]] == ids(parsed)
    assert (FIVE[2],) == parsed.quarantined
    (warning,) = parsed.warnings
    assert data[: data.index(b"\xff")].count(b"\n") + 1 == warning.line
    assert parsed.error is None
    edited = read(data.replace(b"content 4", b"content four"))
    before = {item.id: item.digest for item in parsed.entries}
    assert [FIVE[3]] == [item.id for item in edited.entries if item.digest != before[item.id]]
    assert b"content \xff" in surgery.rewritten(parsed, stamp="x")


def test_M11_a_bad_byte_in_the_frontmatter_is_an_error() -> None:
    """A file whose frontmatter cannot be read is not rewritten."""
    parsed = read(HEAD.encode().replace(b"track: user", b"track: us\xe9r") + episode(1).encode())
    assert parsed.error is not None
    assert FIVE[:1] == ids(parsed)


def test_M11_a_bad_byte_in_a_marker_loses_no_other_entry() -> None:
    """A marker that cannot be read is no marker; what was between the two is still reported or read, the others are there."""
    data = (HEAD + "".join(five())).encode()
    for old, new in (
        (b"<!-- entry:ep_20260302_00000003", b"<!-- entry:ep_2026\xff302_00000003"),
        (b"/entry:ep_20260302_00000003", b"/entry:ep_\x000260302_00000003"),
    ):
        parsed = read(data.replace(old, new))
        assert [FIVE[0], FIVE[1]] == ids(parsed)[:2]
        assert [FIVE[3], FIVE[4]] == ids(parsed)[-2:]
        assert parsed.warnings
        for warning in parsed.warnings:
            warning.reason.encode()


def test_M11_a_broken_timestamp_is_reported_and_the_entry_served() -> None:
    """The file's date stands in for a time that is none, and it says so."""
    parsed = read(HEAD + episode(1).replace("2026-03-02T11:00:00+00:00", "noonish"))
    found = view.record(parsed.entries[0], parsed.place, BERLIN)
    assert clock.to_us(dt.datetime(2026, 3, 1, 23, tzinfo=dt.UTC)) == found.timestamp_us
    assert ["timestamp 'noonish' is no time: the file's date is taken"] == list(found.warnings)


def test_M19_edited_fields_are_what_filters_see() -> None:
    """Timestamp, session and senders come from the file as it now is."""
    text = HEAD + episode(1)
    edited = (
        text.replace("2026-03-02T11:00:00+00:00", "2026-03-05 09:30")
        .replace("s_1", "s_new")
        .replace("[mara, helper]", '["ada, b", mara]')
    )
    parsed = read(edited)
    found = view.record(parsed.entries[0], parsed.place, BERLIN)
    assert clock.to_us(dt.datetime(2026, 3, 5, 8, 30, tzinfo=dt.UTC)) == found.timestamp_us
    assert ("s_new", ("ada, b", "mara")) == (found.session_id, found.sender_ids)
    assert read(text).entries[0].digest != parsed.entries[0].digest


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("2026-03-02T18:39:55+00:00", dt.datetime(2026, 3, 2, 18, 39, 55, tzinfo=dt.UTC)),
        ("2026-03-02T18:39:55.000001Z", dt.datetime(2026, 3, 2, 18, 39, 55, 1, tzinfo=dt.UTC)),
        ("2026-07-02T18:39", dt.datetime(2026, 7, 2, 16, 39, tzinfo=dt.UTC)),
        ("2026-03-02", dt.datetime(2026, 3, 1, 23, tzinfo=dt.UTC)),
        ("1772476795", dt.datetime(2026, 3, 2, 18, 39, 55, tzinfo=dt.UTC)),
        ("1772476795123", dt.datetime(2026, 3, 2, 18, 39, 55, 123000, tzinfo=dt.UTC)),
        ("0001-01-01T00:00:00+14:00", None),
        ("99999999999999999", None),
        ("yesterday", None),
        ("2026-02-30", None),
        ("", None),
    ],
)
def test_moments_are_read_as_people_and_programs_write_them(written: str, expected: dt.datetime | None) -> None:
    """ISO with and without offset, dates, seconds and milliseconds; anything else is none, and never an exception."""
    found = view.moment_us(written, BERLIN)
    if expected is not None:
        assert clock.to_us(expected) == found
    elif written.startswith("0001"):
        assert found is None or found < 0
    else:
        assert found is None


def test_I05_a_second_entry_with_the_same_id_is_reported() -> None:
    """Both are there, numbered by their order, with a warning at the second."""
    parsed = read(HEAD + episode(1) + episode(1, content="copy"))
    assert [(FIVE[0], 0), (FIVE[0], 1)] == [(item.id, item.nth) for item in parsed.entries]
    (warning,) = parsed.warnings
    assert parsed.entries[1].line == warning.line


def test_typed_memories_take_their_path_from_the_folder() -> None:
    """The folder beats an inline path, an inline type beats the file name."""
    path = f"{FOLDER}/memories/projects/atlas/semantic-2026-03-02.md"
    inner = "**path**: elsewhere\n**memory_type**: procedural\n**expires_at**: 2026-04-01\n**status**: archived\n\n### Content\nx"
    parsed = read(
        f"<!-- entry:mem_20260302_00000001 -->\n## mem_20260302_00000001\n\n{inner}\n<!-- /entry:mem_20260302_00000001 -->\n## hand\ny\n",
        path,
    )
    marked, by_hand = (view.record(item, parsed.place, UTC) for item in parsed.entries)
    assert ("projects/atlas", "procedural", "archived") == (marked.memory_path, marked.memory_type, marked.own_status)
    assert clock.to_us(dt.datetime(2026, 4, 1, tzinfo=dt.UTC)) == marked.expires_us
    assert 1 == len(marked.warnings)
    assert ("projects/atlas", "semantic", "active", None) == (
        by_hand.memory_path,
        by_hand.memory_type,
        by_hand.own_status,
        by_hand.expires_us,
    )


def test_unknown_fields_survive_and_are_searchable() -> None:
    """A field that nobody knows stays with the entry, and its words are found."""
    parsed = read(HEAD + episode(1, more='**mood**: wistful\n**subject_line**: "two\\nlines"\n'))
    assert ("wistful", "two\nlines") == (parsed.entries[0].fields["mood"], parsed.entries[0].fields["subject_line"])
    assert "wistful" in view.body(parsed.entries[0])


def test_the_view_has_a_default_for_what_is_wrong() -> None:
    """Numbers that are none and absent sections leave the struct's defaults; nothing raises."""
    bad = entry_text.read(
        "memory", "mem_20260302_00000001", "**importance**: high\n**confidence**: nan\n\n### Content\nx"
    )
    seen = view.view(bad)
    assert (0.5, 0.7, "x") == (seen.importance, seen.confidence, seen.content)  # type: ignore[attr-defined]
    case = view.view(
        entry_text.read(
            "agent_case",
            "ac_20260302_00000001",
            "**quality_score**: 0.9\n\n### TaskIntent\nship\n\n### KeyInsight\ntest first",
        )
    )
    assert (0.9, "ship", "test first") == (case.quality_score, case.task_intent, case.key_insight)  # type: ignore[attr-defined]
    fact = view.view(read("## Tea\nMara drinks tea.\n", FACTS).entries[0])
    assert "Mara drinks tea." == fact.fact  # type: ignore[attr-defined]


def test_structure_is_found_wherever_the_scan_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scan goes in windows; none of their ends hides or cuts a line."""
    text = "lead\n" + "".join(five()) + "\n\n## By hand\n```\n<!-- entry:ep_20260302_00000009 -->\n```\n"
    whole = read(text)
    for size in (1, 2, 3, 7, 20, 100):
        monkeypatch.setattr(structure, "_WINDOW_CHARS", size)
        assert whole == read(text)


def test_warnings_are_bounded() -> None:
    """A file of nothing but mistakes does not fill the status."""
    parsed = read("<!-- entry:ep_20260302_00000001 -->\n" * 2000)
    assert 2000 == len(parsed.entries)
    assert 201 == len(parsed.warnings)


def test_shipped_shapes_of_everos_read_clean() -> None:
    """The sample files of EverOS, where they lie beside this repository, read without a word and render byte for byte."""
    if not PEER_FORMATS.is_dir():
        pytest.skip(f"{PEER_FORMATS} is not there (set EVEROSD_PEER)")
    for name, path in (("episode_after_reflection.md", EPISODES), ("atomic_facts_after.md", FACTS)):
        data = (PEER_FORMATS / name).read_bytes()
        parsed = read(data, path.replace("mara", "alice").replace("2026-03-02", "2026-11-29"))
        assert () == parsed.warnings
        assert parsed.error is None
        assert data == render.new_file(parsed.place, parsed.entries, stamp=parsed.stamp, deprecated=parsed.deprecated)


def test_each_paragraph_outside_headings_is_an_entry() -> None:
    """Blank lines part text without a heading, except inside a closed fence; rules are nothing."""
    text = "one\nstill one\n\n```\ncode\n\nmore\n```\n\n---\n\ntwo\n\n## Heading\nthree\n\nstill three\n"
    raws = [found.raw for found in read(text).entries]
    assert ["one\nstill one", "```\ncode\n\nmore\n```", "two", "## Heading\nthree\n\nstill three"] == raws
