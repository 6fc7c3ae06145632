"""Ids as path segments, paths as places, and what is no memory."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest

from everosd import errors, types
from everosd.log import kind as kinds
from everosd.log import layout

MARA = types.Owner(app="default", project="default", type="user", id="mara")


def place(path: str) -> layout.Place | None:
    return layout.place(types.RelPath(path))


@pytest.mark.parametrize("id_", ["alice", "a@b+c", "mara.k-2", "日本語", "José", "two words", "😀"])
def test_plain_ids_are_their_own_segment(id_: str) -> None:
    """What every file system takes is written as it is, as EverOS does."""
    assert id_ == layout.encode(id_)
    assert id_ == layout.decode(id_)


@pytest.mark.parametrize(
    ("id_", "segment"),
    [
        ("a/b", "a%2Fb"),
        ("..", "%2E%2E"),
        (".hidden", "%2Ehidden"),
        ("dot.", "dot%2E"),
        (" x ", "%20x%20"),
        ("50%", "50%25"),
        ("a~b", "a%7Eb"),
        ("line\nbreak\0", "line%0Abreak%00"),
        ('q"?*', "q%22%3F%2A"),
        ("CON", "%43ON"),
        ("nul.txt", "%6Eul.txt"),
        ("lpt9", "%6Cpt9"),
        ("console", "console"),
    ],
)
def test_unsafe_ids_are_encoded(id_: str, segment: str) -> None:
    """Whatever some file system or shell would read otherwise is written as %XX, and reads back."""
    assert segment == layout.encode(id_)
    assert id_ == layout.decode(segment)


def test_I01_both_normal_forms_are_one_identity() -> None:
    """An id in NFD, from a program or as a folder name, is the same owner as in NFC."""
    composed, decomposed = unicodedata.normalize("NFC", "José"), unicodedata.normalize("NFD", "José")
    assert composed != decomposed
    assert layout.encode(composed) == layout.encode(decomposed)
    assert composed == layout.decode(decomposed)
    assert composed == layout.check_scope_id(decomposed, "user_id")
    first = place(f"default_app/default_project/users/{composed}/episodes/episode-2026-03-02.md")
    second = place(f"default_app/default_project/users/{decomposed}/episodes/episode-2026-03-02.md")
    assert first is not None
    assert second is not None
    assert first.owner == second.owner


def test_I02_similar_names_have_paths_of_their_own() -> None:
    """Names that differ in a blank, in a combining mark, or only behind the fiftieth character never share a segment."""
    names = [
        "fix django",
        "fix_django",
        "fix%20django",
        "कि",
        "की",
        "a" * 50 + "x",
        "a" * 50 + "y",
        "é" * 120 + "x",
        "é" * 120 + "y",
    ]
    assert len(names) == len({layout.encode(name) for name in names})
    assert len(names) == len({layout.encode(name, fold_case=True).casefold() for name in names})


def test_I08_long_ids_are_shortened_by_hash() -> None:
    """A segment stays within 200 bytes, is cut between characters, and differs for ids that differ."""
    one, other = "é" * 128, "é" * 127 + "e"
    assert layout.encode(one) != layout.encode(other)
    for segment in (layout.encode(one), layout.encode(other), layout.encode("/" * 128), layout.encode("😀" * 128)):
        assert len(segment.encode()) <= layout.MAX_SEGMENT_BYTES
        assert segment == layout.decode(segment)


def test_case_is_encoded_where_the_root_folds_it() -> None:
    """On a root that folds case, `Mara` and `mara` have segments that still differ, and read back."""
    assert "%4Dara" == layout.encode("Mara", fold_case=True)
    assert "Mara" == layout.decode("%4Dara")
    assert "mara" == layout.encode("mara", fold_case=True)
    assert "stra%C3%9Fe" == layout.encode("straße", fold_case=True)


def test_an_empty_id_is_refused() -> None:
    """No id is no folder."""
    with pytest.raises(errors.RequestError):
        layout.encode("")


def test_case_probe_finds_a_plain_linux_folder(tmp_path: Path) -> None:
    """The probe leaves nothing behind and says what the folder does."""
    assert layout.is_case_insensitive(tmp_path) == (tmp_path / "A").exists()
    assert [] == list(tmp_path.iterdir())
    assert not layout.is_case_insensitive(tmp_path / "missing")


@pytest.mark.parametrize(
    "value",
    [
        "",
        "..",
        ".",
        "../../x",
        "/etc",
        "a/b",
        "a\\b",
        "%2e%2e",
        "%2E%2E%2Fx",
        "x\0",
        "a\nb",
        "x" * 129,
        "\x7f",
        "a~0123456789abcdef",
        " ",
        "...",
    ],
)
@pytest.mark.parametrize("field", ["user_id", "agent_id", "app_id", "project_id"])
def test_Z01_ids_that_could_be_paths_are_refused(value: str, field: str) -> None:
    """An id that would leave its folder, or hide in it, never reaches the disk; the field is named."""
    with pytest.raises(errors.RequestError) as caught:
        layout.check_scope_id(value, field)
    assert field == caught.value.field
    assert str(caught.value).endswith(f": {field}")


@pytest.mark.parametrize("value", ["alice@example.org", "a+b", "u_1", "José", "日本", "CON", ".dot", "x" * 128])
def test_I08_ordinary_ids_are_accepted(value: str) -> None:
    """E-mail addresses, plus signs, other scripts and reserved device names are people too."""
    assert value == layout.check_scope_id(value, "user_id")


@pytest.mark.parametrize(
    "value",
    [".index", ".tmp", ".lock", ".cache", "default_app", "DEFAULT_PROJECT", "everos.toml", "x.TOML", "with space", "ü"],
)
def test_reserved_app_and_project_ids_are_refused(value: str) -> None:
    """Names that the root uses itself are no apps and no projects."""
    with pytest.raises(errors.RequestError):
        layout.check_scope_id(value, "app_id")
    with pytest.raises(errors.RequestError):
        layout.check_scope_id(value, "filters.project_id")


@pytest.mark.parametrize(
    "value", ["a/b", "..", "q\"uo'te", "new\nline", "\0", "x" * 128, "~0123456789abcdef", ".index"]
)
def test_any_session_id_is_a_segment_and_never_a_path(value: str) -> None:
    """A session may have any name; it is encoded, stays in its folder, and reads back."""
    owner = types.Owner(app="default", project="default", type="session", id=layout.check_session_id(value))
    path = layout.Layout(Path("/root")).path_for(owner, "message", "2026-03-02")
    found = layout.place(path)
    assert found is not None
    assert owner == found.owner
    assert 5 == len(path.split("/"))


@pytest.mark.parametrize(
    ("path", "kind", "date"),
    [
        ("default_app/default_project/users/mara/episodes/episode-2026-03-02.md", "episode", "2026-03-02"),
        ("default_app/default_project/users/mara/episodes/2025/old/notes.md", "episode", None),
        ("default_app/default_project/users/mara/episodes/walk 2026-13-02.md", "episode", None),
        ("a/p/users/mara/.atomic_facts/atomic_fact-2026-03-02.md", "atomic_fact", "2026-03-02"),
        ("a/p/users/mara/.foresights/foresight-2026-03-02.md", "foresight", "2026-03-02"),
        ("a/p/users/mara/.lifecycle/lifecycle-2026-03-02.md", "lifecycle", "2026-03-02"),
        ("a/p/agents/bot/.clusters/cluster-2026-03-02.md", "cluster", "2026-03-02"),
        ("a/p/agents/bot/.cases/agent_case-2026-03-02.md", "agent_case", "2026-03-02"),
        ("a/p/agents/bot/skills/skill_deploy/SKILL.md", "agent_skill", None),
        ("a/p/users/mara/user.md", "profile", None),
        ("a/p/sessions/s%2F1/messages-2026-03-02.md", "message", "2026-03-02"),
    ],
)
def test_a_path_says_kind_and_date(path: str, kind: str, date: str | None) -> None:
    """Every place of the layout is known, files of any name below a kind's folder too."""
    found = place(path)
    assert found is not None
    assert (kind, date) == (found.kind, found.date)


@pytest.mark.parametrize(
    "path",
    [
        "README.md",
        "default_app/default_project/users/mara/notes.md",
        "default_app/default_project/users/mara/episodes/episode-2026-03-02.txt",
        "default_app/default_project/users/mara/episodes/.trash/episode-2026-03-02.md",
        "default_app/default_project/users/mara/episodes/.episode-2026-03-02.md.swp.md",
        "default_app/default_project/users/mara/episodes/#episode.md#",
        "default_app/default_project/users/mara/episodes/e.sync-conflict-20260101-1-ABC.md",
        "default_app/default_project/users/%2e%2e/episodes/episode-2026-03-02.md",
        "default_app/default_project/users/a%2Fb/episodes/episode-2026-03-02.md",
        "default_app/default_project/agents/bot/episodes/episode-2026-03-02.md",
        ".index/text/users/x/episodes/a.md",
        "a b/default_project/users/x/episodes/a.md",
    ],
)
def test_Z02_other_paths_are_no_places(path: str) -> None:
    """Leftovers, hidden folders, foreign folders and owners whose id is not allowed are not read."""
    assert place(path) is None


def test_typed_memories_have_their_path_from_the_folder() -> None:
    """Type and path of a memory come back from where it was put, whatever they hold."""
    made = layout.Layout(Path("/root")).path_for(
        MARA, "memory", "2026-03-02", memory_type="semantic", memory_path="projects/at:las/.x", part=2
    )
    assert "default_app/default_project/users/mara/memories/projects/at%3Alas/%2Ex/semantic-2026-03-02.part2.md" == made
    found = layout.place(made)
    assert found is not None
    assert ("memory", "semantic", "projects/at:las/.x", 2, "2026-03-02", "") == (
        found.kind,
        found.memory_type,
        found.memory_path,
        found.part,
        found.date,
        found.name,
    )


@pytest.mark.parametrize("path", ["", "/", "a//b", "../x", "a/../b", "a/.", "x" * 513, "a\nb"])
def test_memory_paths_stay_below_their_folder(path: str) -> None:
    """A path with empty or dotted parts is refused before anything is written."""
    with pytest.raises(errors.RequestError):
        layout.Layout(Path("/root")).path_for(MARA, "memory", "2026-03-02", memory_path=path)


@pytest.mark.parametrize("kind", ["episode", "atomic_fact", "foresight", "lifecycle", "cluster", "profile"])
def test_what_path_for_makes_place_reads(kind: str) -> None:
    """The two directions agree for every kind."""
    made = layout.Layout(Path("/root")).path_for(MARA, kind, "2026-03-02", part=3)
    found = layout.place(made)
    assert found is not None
    assert (MARA, kind, "") == (found.owner, found.kind, found.name)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        (".x.md.swp", "leftover"),
        ("4913", "leftover"),
        ("x.md~", "leftover"),
        (".#x.md", "leftover"),
        ("#x.md#", "leftover"),
        (".x.md.tmp.1f", "leftover"),
        ("x.md.tmp", "leftover"),
        ("x.md.tmp.1", "leftover"),
        ("x.sync-conflict-20260101-101010-ABCDEFG.md", "conflict"),
        ("x (conflicted copy).md", "conflict"),
        ("x (Mara's conflicted copy 2026-01-01).md", "conflict"),
        ("x (conflicted copy 2026-01-01 101010).md", "conflict"),
        ("episode-2026-03-02.md", ""),
        ("conflict of interest.md", ""),
        ("template.md", ""),
        ("notes.txt", ""),
    ],
)
def test_W14_leftovers_and_conflict_copies_are_told_apart(name: str, what: str) -> None:
    """What editors and sync programs leave is no memory; conflict copies are named, so that they can be listed."""
    assert what == layout.leftover(name)


def test_links_out_of_the_root_are_refused(tmp_path: Path) -> None:
    """The second check follows every link and refuses what lies outside."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (root / "out").symlink_to(outside)
    (root / "in").mkdir()
    made = layout.Layout(root)
    assert root / "in" / "x.md" == made.absolute(types.RelPath("in/x.md"))
    for path in ("out/x.md", "../outside/x.md", "/etc/passwd", "in/../../x", "in//x", "in/x\0"):
        with pytest.raises(errors.LogError):
            made.absolute(types.RelPath(path))


def test_every_kind_has_a_prefix_that_ids_are_read_by() -> None:
    """A new row in the table of kinds is a prefix more; only kinds that are one file each have none."""
    assert set(types.PREFIXES) == {kind.prefix for kind in kinds.KINDS if not kind.is_whole_file}


def test_an_id_is_shortened_only_where_it_has_to_be() -> None:
    """200 bytes fit as they are; one more becomes a prefix and a hash, is no longer than that, and is told as such."""
    fits, long = "a" * layout.MAX_SEGMENT_BYTES, "a" * (layout.MAX_SEGMENT_BYTES + 1)
    assert fits == layout.encode(fits)
    assert layout.MAX_SEGMENT_BYTES == len(layout.encode(long))
    for id_, is_shortened in (("mara", False), ("語" * 100, True)):
        owner = types.Owner(app="default", project="default", type="user", id=id_)
        path = layout.Layout(Path("/r")).path_for(owner, "episode", "2026-03-02")
        found = layout.place(path)
        assert found is not None
        assert is_shortened == found.is_shortened
        assert ("mara" == found.owner.id) is not is_shortened


def test_what_looks_encoded_and_is_not_stays_as_it_is() -> None:
    """A folder that a person named `100%FF` is no id that `encode` wrote."""
    assert "100%FF" == layout.decode("100%FF")
    assert "a/b" == layout.decode("a%2Fb")
