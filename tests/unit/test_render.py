"""Entries → bytes: what changes, what never does, and when the daemon refuses to write."""

from __future__ import annotations

import zoneinfo
from pathlib import Path
from typing import Any

import msgspec
import pytest

from everosd import errors, types
from everosd.log import entry, entry_text, escape, layout, parse, render, surgery
from everosd.log import kind as kinds

UTC = zoneinfo.ZoneInfo("UTC")
FOLDER = "default_app/default_project/users/mara"
EPISODES = f"{FOLDER}/episodes/episode-2026-03-02.md"
STAMP = "2026-03-02T19:00:00.000001+00:00"
HEAD = "---\nid: episode_log_mara_2026-03-02\nuser_id: mara\ndate: '2026-03-02'\nentry_count: 1 # one\nlast_appended_at: '2026-03-02T18:40:12+00:00'\n---\n"
ONE = "<!-- entry:ep_20260302_00000001 -->\n## ep_20260302_00000001\n\n**owner_id**: mara\n\n### Content\nShe moved.\n<!-- /entry:ep_20260302_00000001 -->\n"
NEW = entry.Entry(
    kind="episode",
    id="ep_20260302_00000002",
    fields={"owner_id": "mara", "sender_ids": "[mara, helper]"},
    sections=(("Subject", "Tea"), ("Content", "She drinks tea.")),
)
NEW_TEXT = "<!-- entry:ep_20260302_00000002 -->\n## ep_20260302_00000002\n\n**owner_id**: mara\n**sender_ids**: [mara, helper]\n\n### Subject\nTea\n\n### Content\nShe drinks tea.\n<!-- /entry:ep_20260302_00000002 -->\n"


def read(text: str | bytes, path: str = EPISODES) -> parse.Parsed:
    found = layout.place(types.RelPath(path))
    assert found is not None
    return parse.parse(types.RelPath(path), text if isinstance(text, bytes) else text.encode(), found)


def test_an_entry_is_laid_out_as_everos_does() -> None:
    """Markers, heading, fields, sections and blank lines are where other programs look for them."""
    assert NEW_TEXT == render.marked_text(NEW)
    assert NEW_TEXT.replace("\n", "\r\n") == render.marked_text(NEW, "\r\n")


def test_a_new_file_has_the_frontmatter_of_everos() -> None:
    """Names, order and quoting of a new day's frontmatter are EverOS's."""
    place = read("").place
    assert (
        "---\nid: episode_log_mara_2026-03-02\ntype: episode_daily\nfile_type: episode_daily\nschema_version: 1\nuser_id: mara\ntrack: user\n"
        f"date: '2026-03-02'\nentry_count: 2\nlast_appended_at: '{STAMP}'\n---\n{NEW_TEXT}"
    ) == render.new_file(place, [NEW], stamp=STAMP).decode()


@pytest.mark.parametrize("owner_id", ["yes", "007", "a: b", "it's", "José", "#x", "a\u00a0b"])
def test_odd_owners_read_back_from_the_frontmatter(owner_id: str) -> None:
    """Ids that YAML would read as something else are quoted."""
    owner = types.Owner(app="default", project="default", type="user", id=owner_id)
    place = layout.Place(owner=owner, kind="episode", date="2026-03-02")
    parsed = parse.parse(types.RelPath("x"), render.new_file(place, [NEW], stamp=STAMP), place)
    assert () == parsed.warnings
    assert owner_id == parsed.frontmatter.text("user_id")


@pytest.mark.parametrize("kind", [kind.name for kind in kinds.KINDS if not kind.is_whole_file])
def test_every_kind_reads_back(kind: str) -> None:
    """What is written of a kind is read as that kind."""
    row = kinds.BY_NAME[kind]
    owner = types.Owner(app="a", project="p", type=row.owners[0], id="x/y" if row.owners[0] == "session" else "x")  # type: ignore[arg-type]
    path = layout.Layout(Path("/root")).path_for(
        owner, kind, "2026-03-02", memory_path="p/q" if kind == "memory" else ""
    )
    place = layout.place(path)
    assert place is not None
    fields = {"timestamp": "2026-03-02T10:00:00Z"} | ({"type": "segment"} if kind == "segment" else {})
    made = entry.Entry(
        kind=kind,
        id=f"{row.prefix}_20260302_00000001",
        fields=fields,
        sections=tuple((title, f"text of {title}") for title in row.sections),
    )
    parsed = parse.parse(path, render.new_file(place, [made], stamp=STAMP), place)
    assert () == parsed.warnings
    (only,) = parsed.entries
    assert (made.kind, made.id, made.fields, made.sections) == (only.kind, only.id, only.fields, only.sections)


def test_whole_files_read_back() -> None:
    """A skill's fields and body come back, lists and numbers as they were."""
    place = layout.place(types.RelPath("default_app/default_project/agents/bot/skills/skill_deploy/SKILL.md"))
    assert place is not None
    fields = {
        "id": "skill_deploy",
        "name": "Deploy: it",
        "confidence": "0.90",
        "source_case_ids": '["ac_1", "ac_2"]',
        "description": "two\nlines",
    }
    made = entry.Entry(
        kind="agent_skill", id="skill_deploy", fields=fields, preamble="1. push\n---\n2. wait", form="whole"
    )
    (only,) = parse.parse(types.RelPath("x"), render.new_file(place, [made], stamp=STAMP), place).entries
    assert (fields, made.preamble, made.id) == (only.fields, only.preamble, only.id)
    assert only.raw == render.whole_text(only)


def test_a_profile_is_changed_key_by_key() -> None:
    """Of a file that is one entry only what differs is written; comments, order and the other keys stay."""
    text = "---\nid: profile_mara\n# hers\nuser_id: mara\nsummary: 'likes tea'   # so far\ninfo:\n- a: 1\nold: x\nscore: 0.50\n---\nlikes tea\n"
    parsed = read(text, f"{FOLDER}/user.md")
    (only,) = parsed.entries
    fields = {key: value for key, value in only.fields.items() if key != "old"} | {
        "summary": "likes: coffee",
        "facts": '["b", "c"]',
    }
    changed = msgspec.structs.replace(only, fields=fields, preamble="likes coffee\n\nand cake")
    written = surgery.rewritten(parsed, replaced={only.id: changed}, stamp=STAMP).decode()
    expected = (
        text.replace("'likes tea'", "'likes: coffee'")
        .replace("old: x\n", "")
        .replace(
            "---\nlikes tea\n", f'facts: ["b", "c"]\nlast_appended_at: \'{STAMP}\'\n---\nlikes coffee\n\nand cake\n'
        )
    )
    assert expected == written
    back = read(written, f"{FOLDER}/user.md")
    assert fields | {"last_appended_at": STAMP} == back.entries[0].fields
    assert (
        "---\nsummary: x\n"
        in surgery.rewritten(
            read("hello\n", f"{FOLDER}/user.md"),
            replaced={
                "profile_mara": entry.Entry(
                    kind="profile", id="profile_mara", fields={"summary": "x"}, preamble="hello"
                )
            },
            stamp=STAMP,
        ).decode()
    )


def test_an_append_touches_three_lines_and_the_end() -> None:
    """Comments, order, spacing and unknown keys of the frontmatter stay; the entries before are byte-identical."""
    head = HEAD.replace("user_id", "# whose\nuser_id").replace("date:", "mood:   [calm,glad]  # how\ndate:")
    written = surgery.rewritten(
        read(head + ONE), appended=[NEW], deprecated={"ep_20260302_00000001": NEW.id}, stamp=STAMP
    ).decode()
    expected = (
        head.replace("entry_count: 1 # one", "entry_count: 2 # one")
        .replace("'2026-03-02T18:40:12+00:00'", f"'{STAMP}'")
        .replace(f"{STAMP}'\n---", f"{STAMP}'\ndeprecated_entries:\n  ep_20260302_00000001: {NEW.id}\n---")
    )
    assert expected + ONE + NEW_TEXT == written


def test_carriage_returns_stay() -> None:
    """A file with CRLF is written with CRLF."""
    text = (HEAD + ONE).replace("\n", "\r\n")
    written = surgery.rewritten(read(text), appended=[NEW], deprecated={"ep_20260302_00000001": NEW.id}, stamp=STAMP)
    assert written.count(b"\n") == written.count(b"\r\n")
    assert ONE.replace("\n", "\r\n").encode() in written


def test_an_append_to_a_file_that_ends_in_the_middle_of_a_line() -> None:
    """The new entry starts on a line of its own."""
    written = surgery.rewritten(read((HEAD + ONE).removesuffix("\n")), appended=[NEW], stamp=STAMP).decode()
    assert written.endswith(ONE + NEW_TEXT)


def test_deprecations_come_and_go_line_by_line() -> None:
    """Keys are added, changed and taken out of the mapping without touching the others or their comments."""
    head = HEAD.replace(
        "entry_count", "deprecated_entries:   # old ones\n    a: b   # first\n    # second\n    c: d\nentry_count"
    )
    added = surgery.rewritten(read(head + ONE), deprecated={"e": "f", "a": "z"}, stamp=STAMP).decode()
    assert (
        "deprecated_entries:   # old ones\n    a: z   # first\n    # second\n    c: d\n    e: f\nentry_count" in added
    )
    fewer = surgery.rewritten(read(added), undeprecated=["c", "nothing"], stamp=STAMP).decode()
    assert "    # second\n    e: f\nentry_count" in fewer
    none = surgery.rewritten(read(fewer), undeprecated=["a", "e"], stamp=STAMP).decode()
    assert "deprecated_entries" not in none
    assert {} == read(none).deprecated


@pytest.mark.parametrize("value", ["", " {}", " null", " {a: b, c: d}", " # none yet", " ~"])
def test_deprecations_in_any_notation(value: str) -> None:
    """An empty, null or braced mapping takes new keys and keeps the old ones."""
    before = read(HEAD.replace("entry_count", f"deprecated_entries:{value}\nentry_count") + ONE)
    after = read(surgery.rewritten(before, deprecated={"x": "y"}, stamp=STAMP))
    assert {**before.deprecated, "x": "y"} == after.deprecated
    assert before.entries[0].digest == after.entries[0].digest


def test_a_file_without_a_frontmatter_gets_one_with_its_deprecations() -> None:
    """A person's own file is deprecated from as well: its text stays, below a new head."""
    before = read("## Tea\nShe drinks tea.\n")
    (old,) = before.entries
    written = surgery.rewritten(before, deprecated={old.id: NEW.id}, stamp=STAMP)
    after = read(written)
    assert {old.id: NEW.id} == after.deprecated
    assert (old.id, STAMP) == (after.entries[0].id, after.stamp)
    assert b"deprecated_entries" not in surgery.rewritten(before, stamp=STAMP)


def test_the_count_is_never_below_a_number_given() -> None:
    """`entry_count` keeps what the highest number was, so that no number is given twice after a deletion."""
    gone = read(HEAD.replace("entry_count: 1", "entry_count: 6"))
    assert 7 == read(surgery.rewritten(gone, appended=[NEW], stamp=STAMP)).entry_count
    high = msgspec.structs.replace(NEW, id="ep_20260302_00000042")
    assert 42 == read(surgery.rewritten(gone, appended=[high], stamp=STAMP)).entry_count
    assert 6 == read(surgery.rewritten(gone, deprecated={"a": "b"}, stamp=STAMP)).entry_count


def test_replacing_and_removing_leave_the_neighbours_alone() -> None:
    """One entry changes where it stands, another goes with its markers, the rest is byte-identical."""
    three = ONE + NEW_TEXT + ONE.replace("00000001", "00000003")
    parsed = read(HEAD + three)
    changed = msgspec.structs.replace(parsed.entries[1], sections=(("Content", "coffee"),))
    written = surgery.rewritten(
        parsed, replaced={changed.id: changed}, removed=["ep_20260302_00000001"], stamp=STAMP
    ).decode()
    body = written.split("---\n", 2)[2]
    assert body == render.marked_text(changed) + ONE.replace("00000001", "00000003")


def test_text_that_did_not_change_keeps_its_layout() -> None:
    """An entry that a person laid out otherwise is written as it stands, until a value of it changes."""
    odd = "<!-- entry:ep_20260302_00000001 -->\n##   ep_20260302_00000001\n**owner_id**:mara\n### Content\n\n\n  She moved.  \n<!-- /entry:ep_20260302_00000001 -->\n"
    (found,) = read(odd).entries
    assert odd == render.marked_text(found)
    assert "**owner_id**: eve\n\n### Content\n  She moved.  \n" in render.marked_text(
        msgspec.structs.replace(found, fields={"owner_id": "eve"})
    )


def test_raw_text_that_would_break_out_is_laid_out_anew() -> None:
    """Stored text with a marker outside any fence is escaped when it is put back."""
    bad = entry_text.read("episode", "ep_20260302_00000001", "### Content\nx\n<!-- /entry:ep_20260302_00000001 -->\ny")
    (back,) = read(render.marked_text(bad)).entries
    assert bad.sections == back.sections


def test_adoption_gives_markers_and_changes_nothing_else() -> None:
    """Hand-written text gets markers with the id it had; taking these lines away gives the file as it was."""
    text = "# March\n\n## Flat\nthree rooms\n\n\nlast words"
    before = read(text)
    written = surgery.rewritten(before, stamp=STAMP).decode()
    after = read(written)
    assert [item.digest for item in before.entries] == [item.digest for item in after.entries]
    assert ["marked", "marked"][:1] * len(after.entries) == [item.form for item in after.entries]
    body = written.split("---\n", 2)[2]
    assert text == "".join(line for line in body.splitlines(keepends=True) if "entry:" not in line).removesuffix("\n")
    assert before.place.owner.id == after.frontmatter.text("user_id")


def test_the_single_entry_form_becomes_a_daily_log() -> None:
    """The entry of a single-entry file keeps id, digest and comments when another is appended."""
    text = "---\n# mine\nowner_id: mara\ntimestamp: 2026-10-11T02:00:00+00:00\nparent_type: cluster\nodd key!: kept\n---\n## Subject\nFlat\n\n## Content\nShe moved.\n"
    before = read(text)
    assert ["single"] == [item.form for item in before.entries]
    written = surgery.rewritten(before, appended=[NEW], stamp=STAMP).decode()
    after = read(written)
    assert before.entries[0].digest == after.entries[0].digest
    assert ["marked", "marked"] == [item.form for item in after.entries]
    assert () == after.warnings
    assert (2, "kept", "mara", "episode_daily") == (
        after.entry_count,
        *(after.frontmatter.text(key) for key in ("odd key!", "user_id", "type")),
    )
    assert "# mine\n" in written
    assert "parent_type" not in after.frontmatter.values


def test_the_single_entry_form_stays_when_only_marked_as_replaced() -> None:
    """A deprecation in a single-entry file touches its frontmatter alone."""
    text = (
        "---\nowner_id: mara\ntimestamp: 2026-10-11T02:00:00+00:00\n---\n## Subject\nFlat\n\n## Content\nShe moved.\n"
    )
    before = read(text)
    after = read(surgery.rewritten(before, deprecated={before.entries[0].id: NEW.id}, stamp=STAMP))
    assert before.entries[0].digest == after.entries[0].digest
    assert {before.entries[0].id: NEW.id} == after.deprecated
    assert "single" == after.entries[0].form


BROKEN = [
    "---\ntitle: *x*\n---\n",
    '---\ndescription: "abc "def" ghi"\n---\n',
    "---\npath: `C:\\x`\n---\n",
    "---\nnever: closed\n",
    "---\n{a: b}\n---\n",
    "---\na: 1\na: 2\n---\n",
    "---\n- list\n---\n",
]


ACTIONS: dict[str, dict[str, Any]] = {
    "append": {"appended": [NEW]},
    "deprecate": {"deprecated": {"a": "b"}},
    "replace": {"replaced": {"ep_20260302_00000001": NEW}},
    "remove": {"removed": ["ep_20260302_00000001"]},
    "adopt": {},
}


@pytest.mark.parametrize("head", BROKEN)
@pytest.mark.parametrize("action", list(ACTIONS))
def test_P01_a_file_that_does_not_parse_is_never_rewritten(head: str, action: str) -> None:
    """Every action that would write refuses, names file and line, and says what to do."""
    parsed = read(head + ONE)
    with pytest.raises(errors.WriteRefused) as caught:
        surgery.rewritten(parsed, **ACTIONS[action], stamp=STAMP)
    assert EPISODES == caught.value.path
    assert caught.value.line
    assert caught.value.hint


def test_P06_a_quote_in_a_quote_is_refused() -> None:
    """A hand edit that breaks the quoting stops the stamp, with the line of the mistake."""
    parsed = read('---\nid: x\ndescription: "abc "def" ghi"\n---\n' + ONE)
    with pytest.raises(errors.WriteRefused) as caught:
        surgery.rewritten(parsed, stamp=STAMP)
    assert 3 == caught.value.line


@pytest.mark.parametrize(
    "head",
    [
        "---\n---\n",
        "---\n\n---\n",
        "---\n# only a comment\n---\n",
        "---\n  indented: yes\n---\n",
        "---\nx: |+\n  kept\n\n\n---\n",
        "---\n'quoted key': &a 1\nagain: *a\n---\n",
        "---\nlast_appended_at: >-\n  2026-03-02\nentry_count: !!int 3\n---\n",
        "---\nentry_count:\nlast_appended_at: # soon\n---\n",
        "---\nid: 007\nuser: on\ntags: null\nwhen: 2026-01-01\n---\n",
    ],
)
def test_P01_unusual_yaml_keeps_every_value(head: str) -> None:
    """What parses is changed in its own notation: other values read the same, and there is one frontmatter."""
    before = read(head + ONE)
    assert before.error is None
    written = surgery.rewritten(before, appended=[NEW], deprecated={"a": "b"}, stamp=STAMP)
    after = read(written)
    ours = {"entry_count", "last_appended_at", "deprecated_entries"}
    assert {key: value for key, value in before.frontmatter.values.items() if key not in ours} == {
        key: value for key, value in after.frontmatter.values.items() if key not in ours
    }
    assert (STAMP, {"a": "b"}) == (after.stamp, after.deprecated)
    assert 2 == len(after.entries)
    assert 2 == written.decode().count("---\n")


def test_P01_yaml_that_cannot_be_changed_safely_is_refused() -> None:
    """A frontmatter that ends in `...` would become two documents: nothing is written."""
    parsed = read("---\nuser_id: mara\n...\n---\n" + ONE)
    with pytest.raises(errors.WriteRefused):
        surgery.rewritten(parsed, appended=[NEW], stamp=STAMP)


def test_P05_a_rewrite_changes_no_value() -> None:
    """Dates, leading zeros, null and on are the same text before and after."""
    head = "---\ntitle: 2026-01-01\nid: 007\ntags: null\nuser: on\nnote: 'a: b'\n---\n"
    written = surgery.rewritten(read(head + ONE), appended=[NEW], stamp=STAMP).decode()
    assert written.startswith(head.removesuffix("---\n"))


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("plain text: with colon", "plain text: with colon"),
        ("", '""'),
        (" lead", '" lead"'),
        ('"quoted"', '"\\"quoted\\""'),
        ("a\n**owner_id**: eve", '"a\\n**owner_id**: eve"'),
        ("[a, b]", "[a, b]"),
        ("tab\there", '"tab\\there"'),
    ],
)
def test_fields_are_one_line(value: str, written: str) -> None:
    """A value that would not read back, or would forge another field, is a JSON string."""
    assert written == escape.write_value(value)
    assert value == escape.read_value(written)


def test_bad_names_are_a_mistake_of_the_program() -> None:
    """Field names and titles are ours to choose: what could not be read back is refused."""
    for broken in (
        msgspec.structs.replace(NEW, fields={"Bad Name": "x"}),
        msgspec.structs.replace(NEW, sections=(("", "x"),)),
    ):
        with pytest.raises(ValueError, match=r"snake case|no title"):
            render.marked_text(broken)


def test_a_second_entry_with_an_id_gets_no_closing_marker() -> None:
    """Behind a fence that was left open it would close the first one, which would swallow the second."""
    name = "ep_20260302_00000002"
    data = f"<!-- entry:{name} -->\n```\n<!-- /entry:ep_20260302_00000001 -->\n<!-- entry:{name} -->\n```".encode()
    place = layout.place(types.RelPath(EPISODES))
    assert place is not None
    before = parse.parse(types.RelPath(EPISODES), data, place)
    after = parse.parse(types.RelPath(EPISODES), surgery.rewritten(before, stamp=STAMP), place)
    assert [item.digest for item in before.entries] == [item.digest for item in after.entries]
