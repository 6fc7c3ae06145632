"""The grammar, for any text: what is written reads back, what a person wrote stays, no bytes crash the reader."""

from __future__ import annotations

import zoneinfo

import msgspec
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from everosd import errors, types
from everosd.log import entry, entry_text, escape, layout, parse, render, surgery, view
from everosd.log import kind as kinds
from tests import effort

UTC = zoneinfo.ZoneInfo("UTC")
PATH = types.RelPath("default_app/default_project/users/mara/episodes/episode-2026-03-02.md")
STAMP = "2026-03-02T10:00:00.000001+00:00"
QUICK = settings(
    max_examples=max(effort.rounds(200, 80), settings().max_examples), suppress_health_check=[HealthCheck.too_slow]
)

IDS = ("ep_20260302_00000001", "ep_20260302_00000002", "ep_20260302_0003")
STRUCTURE = st.sampled_from(
    (
        *(
            f"{indent}{back}<!-- {slash}entry:{id_} -->"
            for indent in ("", "   ", "    ")
            for back in ("", "\\", "\\\\")
            for slash in ("", "/")
            for id_ in IDS
        ),
        *(
            "<!--ENTRY: ep_20260302_00000002-->",
            "<!-- entry:",
            "<!-- /entry:x",
            "<!-- note -->",
            "\\### Content",
            "### Content",
            "###\tNotes",
        ),
        *(
            "### Subject",
            "## ep_20260302_00000002",
            "## A heading",
            "# Title",
            "#### Deeper",
            "**timestamp**: 2020-01-01",
            "\\**owner_id**: eve",
        ),
        *(
            "```",
            "```python",
            "~~~",
            "````",
            "~~~~ x",
            "---",
            "***",
            "",
            " ",
            "\t",
            "\\",
            "plain",
            "  indented",
            "[a, b]",
            '"quoted"',
            "\x85\u2028\x0b\x1c",
        ),
    ),
)
LINES = st.one_of(STRUCTURE, st.text(max_size=20))
TEXT = st.lists(LINES, max_size=8).map("\n".join)
NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,12}", fullmatch=True)
FIELDS = st.dictionaries(NAMES, TEXT, max_size=4)


def place(path: str = PATH) -> layout.Place:
    found = layout.place(types.RelPath(path))
    assert found is not None
    return found


def read(data: bytes, path: str = PATH) -> parse.Parsed:
    return parse.parse(types.RelPath(path), data, place(path))


@st.composite
def written_entries(draw: st.DrawFn, id_: str = IDS[0], kind: str = "episode") -> entry.Entry:
    """An entry as the daemon might write it, of values that nobody checked."""
    last = kinds.BY_NAME[kind].sections[-1]
    titles = st.one_of(st.sampled_from(("Subject", "Summary", "Notes", "Details")), st.text(min_size=1, max_size=8))
    sections = [
        (title, text)
        for title, text in draw(st.lists(st.tuples(titles, TEXT), max_size=3))
        if escape.one_line(title) and escape.one_line(title).casefold() != last.casefold()
    ]
    if draw(st.booleans()):
        sections.append((last, draw(TEXT)))
    return entry.Entry(
        kind=kind,
        id=id_,
        fields=draw(FIELDS),
        heading=draw(st.one_of(st.just(""), st.text(max_size=10))),
        preamble=draw(TEXT),
        sections=tuple(sections),
    )


def meant(item: entry.Entry) -> tuple[object, ...]:
    """What must come back of an entry: its values, cleaned as `escape.clean` says."""
    heading = escape.one_line(item.heading)
    return (
        item.id,
        {name: value.replace("\0", "") for name, value in item.fields.items()},
        "" if heading == item.id else heading,
        escape.clean(item.preamble),
        tuple((escape.one_line(title), escape.clean(text)) for title, text in item.sections),
    )


def got(item: entry.Entry) -> tuple[object, ...]:
    return (item.id, item.fields, item.heading, item.preamble, item.sections)


@QUICK
@given(st.lists(written_entries(), min_size=1, max_size=3), st.sampled_from(("\n", "\r\n")))
def test_what_is_written_reads_back(items: list[entry.Entry], newline: str) -> None:
    """Whatever the fields and texts hold, as many entries come back as were written, each with the same values."""
    items = [msgspec.structs.replace(item, id=id_) for item, id_ in zip(items, IDS, strict=False)]
    parsed = read(render.new_file(place(), items, stamp=STAMP, newline=newline))
    assert [meant(item) for item in items] == [got(item) for item in parsed.entries]
    assert () == parsed.warnings
    assert newline == parsed.newline


@QUICK
@given(written_entries())
def test_raw_text_says_all_of_an_entry(item: entry.Entry) -> None:
    """The stored raw text, parsed again, is the entry; written again, it is the same text."""
    (first,) = read(render.new_file(place(), [item], stamp=STAMP)).entries
    assert first == entry_text.read(first.kind, first.id, first.raw, form=first.form, line=first.line)
    assert first.raw == render.inner_text(first)
    assert first.raw == render.inner_text(msgspec.structs.replace(first, raw=""))


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """A file as people make them: with or without frontmatter, entries, paragraphs and things that look like either."""
    head = draw(
        st.sampled_from(
            (
                "",
                "---\n---\n",
                "---\ndate: 2026-03-02\nentry_count: 2 # two\ndeprecated_entries:\n  # why\n  ep_20260302_0009: ep_20260302_0003\nx: |\n  y\n---\n",
                "---\n  a: b\n  entry_count:\n---\n",
                "---\nowner_id: mara\ntimestamp: 2026-03-02\n---\n## Subject\nS\n## Content\n",
            )
        )
    )
    pieces = draw(
        st.lists(
            st.one_of(
                TEXT,
                st.sampled_from(IDS).map(
                    lambda id_: (
                        f"<!-- entry:{id_} -->\n## {id_}\n\n**owner_id**: mara\n\n### Content\nbody\n<!-- /entry:{id_} -->"
                    )
                ),
            ),
            max_size=6,
        )
    )
    text = head + "\n".join(pieces) + draw(st.sampled_from(("", "\n", "\n\n")))
    if draw(st.booleans()):
        text = text.replace("\r", "").replace("\n", "\r\n")
    return draw(st.sampled_from((b"", b"\xef\xbb\xbf"))) + text.encode()


@QUICK
@given(files())
@example(b"---\na: b\n...\n---\n")
def test_adopting_changes_no_entry(data: bytes) -> None:
    """Markers given to hand-written text leave every id and digest as they were, and taken away the file as it was."""
    before = read(data)
    try:
        after = read(surgery.rewritten(before, stamp=STAMP))
    except errors.WriteRefused:
        return
    assert [(item.id, item.nth, item.digest) for item in before.entries] == [
        (item.id, item.nth, item.digest) for item in after.entries
    ]
    assert all(item.form in ("marked", "single") for item in after.entries)
    assert before.has_bom == after.has_bom
    assert after.stamp == STAMP


@QUICK
@given(files(), written_entries(id_="ep_20260302_00000077"))
def test_an_append_changes_nothing_else(data: bytes, item: entry.Entry) -> None:
    """An appended entry comes back, and the ones before it are untouched."""
    before = read(data)
    try:
        result = surgery.rewritten(before, appended=[item], deprecated={IDS[0]: item.id}, stamp=STAMP)
    except errors.WriteRefused:
        return
    after = read(result)
    assert [item.digest for item in before.entries] == [item.digest for item in after.entries[:-1]]
    assert meant(item) == got(after.entries[-1])
    assert {**before.deprecated, IDS[0]: item.id} == after.deprecated
    again = read(surgery.rewritten(after, undeprecated=[IDS[0]], stamp=STAMP + "2"))
    assert {key: value for key, value in before.deprecated.items() if key != IDS[0]} == again.deprecated
    assert [item.digest for item in after.entries] == [item.digest for item in again.entries]


@QUICK
@given(
    st.one_of(
        st.binary(max_size=300),
        files(),
        st.tuples(
            files(),
            st.integers(0, 500),
            st.sampled_from((b"", b"\xff", b"\0", b"\xed\xa0\x80", b"\n")) | st.binary(max_size=4),
        ).map(lambda cut: cut[0][: cut[1]] + cut[2] + cut[0][cut[1] :]),
    )
)
def test_no_bytes_make_the_reader_raise(data: bytes) -> None:
    """Any bytes, in any place that is read, come back as entries, warnings or an error."""
    for path in (
        PATH,
        "a/b/users/u/user.md",
        "a/b/sessions/s/messages-2026-03-02.md",
        "a/b/agents/x/skills/skill_y/SKILL.md",
        "a/b/users/u/memories/p/notes.md",
        "a/b/users/u/.lifecycle/lifecycle-2026-03-02.md",
    ):
        parsed = read(data, path)
        assert len(parsed.entries) == len(parsed.spans)
        for item in parsed.entries:
            view.record(item, parsed.place, UTC)
            view.view(item)
            view.title(item)
            view.body(item)
            item.raw.encode()
            item.id.encode()
        for said in (
            *(warning.reason for warning in parsed.warnings),
            *parsed.quarantined,
            *parsed.ids,
            parsed.error.reason if parsed.error else "",
        ):
            said.encode()
        assert all(a.end <= b.start for a, b in zip(parsed.spans, parsed.spans[1:], strict=False))


@QUICK
@given(st.text(min_size=1, max_size=150), st.text(min_size=1, max_size=150), st.booleans())
def test_two_ids_never_share_a_segment(one: str, other: str, fold_case: bool) -> None:  # noqa: FBT001 - a property's input
    """Ids that differ have segments that differ; a segment is safe, and says its id unless it was shortened."""
    first, second = layout.encode(one, fold_case=fold_case), layout.encode(other, fold_case=fold_case)
    assert (types.nfc(one) == types.nfc(other)) == (
        (first.casefold() if fold_case else first) == (second.casefold() if fold_case else second)
    )
    assert len(first.encode()) <= layout.MAX_SEGMENT_BYTES
    assert not set(first) & set('/\\<>:"|?*\0\n')
    assert first[0] not in ". "
    assert first[-1] not in ". "
    if "~" not in first:
        assert types.nfc(one) == layout.decode(first)
        assert types.nfc(one) == layout.decode(types.nfc(first))


@QUICK
@given(TEXT, st.lists(TEXT, max_size=3))
def test_inline_values_read_back(value: str, items: list[str]) -> None:
    """A value or list of any text is one line that reads back as the same."""
    written = escape.write_value(value)
    assert "\n" not in written
    assert value.replace("\0", "") == escape.read_value(written)
    assert tuple(items) == escape.read_list(escape.write_list(items))
