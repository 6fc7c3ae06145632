"""Files that are one entry: laid out as EverOS does it, changed where they must be, and never over a person's save."""

from __future__ import annotations

import asyncio
import os
import zoneinfo
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies

from everosd import clock as clocks
from everosd import errors, types
from everosd.log import entry_text, file, frontmatter, layout, parse, view, whole, writer
from tests import memory_journal, steps

PEER = Path("/work/shared/peer/formats/user.md")
PATH = types.RelPath("default_app/default_project/users/mara/user.md")
SKILL = types.RelPath("default_app/default_project/agents/helper/skills/skill_deploy/SKILL.md")
CLIMBS = {"category": "Sport", "description": "Mara climbs", "evidence": "I climb."}
SINGS = {"category": "Music", "description": "Mara sings: alto, and it's fun", "evidence": "I sing."}
FILE = """---
id: profile_mara
# who this is about
user_id: mara
nickname: M.   # only friends
explicit_info:
# the one that matters
- category: Sport
  description: Mara climbs
  evidence: I climb.

- category: Music   # alto
  description: 'Mara sings: alto, and it''s fun'
  evidence: I sing.
phone: 007
---
Mara climbs.
"""


def parsed(data: bytes, path: str = PATH) -> parse.Parsed:
    """Read a file."""
    place = layout.place(types.RelPath(path))
    assert place is not None
    return parse.parse(types.RelPath(path), data, place)


def changed(text: str, values: dict[str, whole.Value], body: str | None = None) -> str:
    """Return a text after a change."""
    return whole.changed(parsed(text.encode()), values, body).decode()


def test_a_new_file_looks_as_everos_writes_it() -> None:
    """Keys, quoting and folding are those of a file that EverOS wrote, byte for byte."""
    first = "alice said: I went climbing at Yosemite again this spring and led El Capitan's first pitch."
    info = [{"category": "Statement", "description": first, "evidence": first.removeprefix("alice said: ")}]
    made = whole.new(
        PATH,
        {
            "id": "profile_alice",
            "schema_version": 1,
            "summary": first,
            "explicit_info": info,
            "profile_timestamp_ms": 7,
        },
        first,
    )
    expected = """---
id: profile_alice
schema_version: 1
summary: 'alice said: I went climbing at Yosemite again this spring and led El Capitan''s
  first pitch.'
explicit_info:
- category: Statement
  description: 'alice said: I went climbing at Yosemite again this spring and led
    El Capitan''s first pitch.'
  evidence: I went climbing at Yosemite again this spring and led El Capitan's first
    pitch.
profile_timestamp_ms: 7
---
alice said: I went climbing at Yosemite again this spring and led El Capitan's first pitch.
"""
    assert expected == made.decode()


def test_what_is_not_changed_keeps_every_byte() -> None:
    """Comments, other keys, blank lines and the items that stay are as they were."""
    running = {"category": "Sport", "description": "Mara runs", "evidence": "I run."}
    result = changed(FILE, {"explicit_info": [SINGS, running], "profile_timestamp_ms": 12}, "Mara sings.")
    expected = """---
id: profile_mara
# who this is about
user_id: mara
nickname: M.   # only friends
explicit_info:
# the one that matters

- category: Music   # alto
  description: 'Mara sings: alto, and it''s fun'
  evidence: I sing.
- category: Sport
  description: Mara runs
  evidence: I run.
phone: 007
profile_timestamp_ms: 12
---
Mara sings.
"""
    assert expected == result


def test_nothing_to_change_is_the_same_file() -> None:
    """Values that are there already leave every byte, whatever they are written like."""
    values: dict[str, whole.Value] = {"explicit_info": [CLIMBS, SINGS], "phone": "007", "id": "profile_mara"}
    assert FILE == changed(FILE, values, "Mara climbs.")


@pytest.mark.parametrize(
    ("before", "values", "after"),
    [
        ("a: []\n", {"a": ["x"]}, "a:\n- x\n"),
        ("a: []   # none yet\n", {"a": ["x"]}, "a:\n- x   # none yet\n"),
        ("a:\nb: 1\n", {"a": ["x"]}, "a:\n- x\nb: 1\n"),
        ("a:\n- x\n- y\nb: 1\n", {"a": []}, "a: []\nb: 1\n"),
        ("a:\n- x\n- y\nb: 1\n", {"a": ["y", "x"]}, "a:\n- y\n- x\nb: 1\n"),
        ("a: [x, y]\n", {"a": ["x", "y", "z"]}, "a:\n- x\n- y\n- z\n"),
        ("a:\n    - x\n    - y\n", {"a": ["y", {"k": "v", "l": "w"}]}, "a:\n    - y\n    - k: v\n      l: w\n"),
        ("'a': old   # why\n", {"a": "new"}, "'a': new   # why\n"),
        ("a: |\n  one\n  two\nb: 1\n", {"a": "new"}, "a: new\nb: 1\n"),
        ("  a: 1\n  b: 2\n", {"a": "new: one", "c": 3}, "  a: 'new: one'\n  b: 2\n  c: 3\n"),
        ("a:\n-\n  k: v\n- # a-b\n  k: w\n", {"a": [{"k": "w"}]}, "a:\n- k: w\n"),
        ("a: {k: v}\n", {"a": "text"}, "a: text\n"),
        ("", {"a": ["x"]}, "a:\n- x\n"),
    ],
)
def test_keys_are_set_however_they_are_written(before: str, values: dict[str, whole.Value], after: str) -> None:
    """Flow, block, empty, quoted and indented values are replaced where they stand."""
    assert f"---\n{after}---\nbody\n" == changed(f"---\n{before}---\nbody\n", values)


def test_a_file_without_frontmatter_gets_one() -> None:
    """What a person wrote into it stays below."""
    assert "---\na: b\n---\nhello\n" == changed("hello\n", {"a": "b"})


def test_line_endings_and_bom_stay() -> None:
    """A file of another system keeps its own, and what is added has them, too."""
    data = b"\xef\xbb\xbf" + FILE.replace("\n", "\r\n").encode()
    result = whole.changed(parsed(data), {"explicit_info": [CLIMBS], "summary": "Mara climbs"}, "Mara\nclimbs.")
    assert result.startswith(b"\xef\xbb\xbf---\r\n")
    assert result.count(b"\n") == result.count(b"\r\n")
    assert b"---\r\nMara\r\nclimbs.\r\n" in result


@pytest.mark.parametrize("broken", ["---\na: [\n---\n", "---\na: 1\na: 2\n---\n", "---\na: 1\n", "\0\0\0"])
def test_a_file_that_does_not_parse_is_refused_with_its_line(broken: str) -> None:
    """Nothing is made of it, and the person is told where to look."""
    with pytest.raises(errors.WriteRefused) as refused:
        whole.changed(parsed(broken.encode()), {"a": "b"})
    assert refused.value.line is not None


def test_text_that_looks_like_structure_stays_text() -> None:
    """Markers, closing lines and colons in a value or the body are read back as they were."""
    odd = "x " * 37 + "<!-- entry:ep_20260302_00000001 --> --- a: b # no"
    made = whole.new(PATH, {"summary": odd, "explicit_info": [{"description": "---\n<!-- entry:x -->"}]}, "---\na: b")
    again = parsed(made)
    assert None is again.error
    assert odd == again.frontmatter.values["summary"]
    assert [{"description": "---\n<!-- entry:x -->"}] == again.frontmatter.values["explicit_info"]


TEXTS = strategies.text(max_size=100)
VALUES = strategies.dictionaries(
    strategies.sampled_from(("summary", "explicit_info", "note", "on", "null")),
    TEXTS | strategies.lists(TEXTS | strategies.dictionaries(strategies.sampled_from("abc"), TEXTS, min_size=1)),
    min_size=1,
)


@hypothesis.given(first=VALUES, second=VALUES, body=TEXTS)
@hypothesis.settings(max_examples=25)
def test_whatever_is_written_reads_back(
    first: dict[str, whole.Value], second: dict[str, whole.Value], body: str
) -> None:
    """Any texts, in a new file and in place of others, are read back as the same texts."""
    again = parsed(whole.new(PATH, first, body))
    assert {key: whole.read_back(value) for key, value in first.items()} == again.frontmatter.values
    last = parsed(whole.changed(again, second))
    expected = {key: whole.read_back(value) for key, value in (first | second).items()}
    assert expected == last.frontmatter.values
    assert again.entries[0].preamble == last.entries[0].preamble


# -- Writer.replace ----------------------------------------------------------------------------------------------------


class Node:
    """A root with a writer."""

    def __init__(self, root: Path) -> None:
        """Open it."""
        self.root = root
        self.step: file.Step = file.no_step
        places = layout.Layout(root)
        journal = memory_journal.MemoryJournal()
        self.writer = writer.Writer(places, journal, clocks.SystemClock(), zoneinfo.ZoneInfo("UTC"), step=self._at)

    def _at(self, moment: str) -> None:
        # A test may exchange `step` while the writer lives.
        self.step(moment)

    def at(self, path: str = PATH) -> Path:
        """Return where a file is."""
        return self.root / path

    def save(self, text: str, path: str = PATH) -> None:
        """Save as an editor does, long enough ago."""
        target = self.at(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        other = target.with_name("saving")
        other.write_text(text)
        steps.age(other)
        other.replace(target)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    """A node on an empty root."""
    made = Node(tmp_path)
    yield made
    await made.writer.close()


def names(folder: Path) -> list[str]:
    """Return what is in a folder."""
    return sorted(each.name for each in folder.glob("*"))


def appending(line: str) -> Callable[[bytes | None], bytes]:
    """Return a change that adds a line."""
    return lambda data: (data or b"") + line.encode()


async def test_Z08_a_new_file_is_private_and_on_disk(node: Node) -> None:
    """0600 in folders of 0700, whatever the umask."""
    before = os.umask(0o022)
    try:
        assert b"one\n" == await node.writer.replace(PATH, appending("one\n"))
    finally:
        os.umask(before)
    assert b"one\n" == node.at().read_bytes()
    assert (0o600, 0o700) == (node.at().stat().st_mode & 0o777, node.at().parent.stat().st_mode & 0o777)


async def test_changes_at_once_are_all_made(node: Node) -> None:
    """Each sees what the one before it made."""
    await asyncio.gather(*(node.writer.replace(PATH, appending(f"{nth}\n")) for nth in range(20)))
    assert [str(nth) for nth in range(20)] == node.at().read_text().split()


async def test_nothing_is_written_where_nothing_changes(node: Node) -> None:
    """The same bytes, or none, leave the file alone."""
    node.save("one\n")
    before = node.at().stat()
    assert b"one\n" == await node.writer.replace(PATH, lambda data: data)
    assert b"one\n" == await node.writer.replace(PATH, lambda _: None)
    after = node.at().stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    assert None is await node.writer.replace(SKILL, lambda _: None)
    assert not node.at(SKILL).parent.exists()


@pytest.mark.parametrize("moment", ["opened", "ready", "exchanged"])
async def test_C02_a_save_meanwhile_is_never_lost(node: Node, moment: str) -> None:
    """A person saves at the worst moment: the change is made again, on what they saved."""
    node.save("old\n")
    node.step = steps.once(moment, lambda: node.save("person\n"))
    await node.writer.replace(PATH, appending("daemon\n"))
    if moment == "exchanged":
        # Their save took the name from ours, which it had not seen: they win.
        assert "person\n" in node.at().read_text()
    else:
        assert "person\ndaemon\n" == node.at().read_text()


async def test_a_save_by_an_editor_that_had_the_file_open_is_kept(node: Node) -> None:
    """It saves into the file that lost its name: what a person wrote has the name again, and both changes are on disk."""
    before = FILE.encode()
    node.save(FILE)
    with node.at().open("r+b") as editor:
        steps.age(node.at())
        new = whole.changed(parsed(before), {"explicit_info": [CLIMBS]}, "Mara climbs well.")
        replaced = asyncio.ensure_future(node.writer.replace(PATH, lambda _: new))
        await asyncio.sleep(0)
        async with asyncio.timeout(10):
            await replaced
        editor.write(FILE.replace("only friends", "and family").encode())
        editor.flush()
        async with asyncio.timeout(10):
            while "and family" not in node.at().read_text():  # noqa: ASYNC110 - the disk sends no events here
                await asyncio.sleep(0.02)
    lifecycle = node.root / "default_app/default_project/users/mara/.lifecycle"
    assert any("Mara climbs well." in each.read_text() for each in lifecycle.glob("*.md"))


async def test_a_save_in_the_last_200_ms_is_waited_for(node: Node) -> None:
    """Somebody who is saving right now has time to finish."""
    node.at().parent.mkdir(parents=True)
    node.at().write_text("half")
    seen: list[bytes | None] = []

    def change(data: bytes | None) -> bytes:
        seen.append(data)
        return b"daemon"

    asked = asyncio.ensure_future(node.writer.replace(PATH, change))
    await asyncio.sleep(0.05)
    assert [] == seen
    node.at().write_text("whole")
    await asked
    assert [b"whole"] == seen


async def test_what_a_change_raises_reaches_its_caller_alone(node: Node) -> None:
    """A file that is refused stays byte-identical; others who asked get what they asked for."""
    node.save("---\na: [\n---\n")

    def refuse(data: bytes | None) -> bytes:
        return whole.changed(parsed(data or b""), {"a": "b"})

    refused, added = await asyncio.gather(
        node.writer.replace(PATH, refuse), node.writer.replace(PATH, appending("x")), return_exceptions=True
    )
    assert isinstance(refused, errors.WriteRefused)
    assert b"---\na: [\n---\nx" == added


async def test_only_files_that_are_one_entry_are_replaced(node: Node) -> None:
    """A daily log is not, and neither is what lies outside."""
    for path in ("default_app/default_project/users/mara/episodes/episode-2026-03-02.md", "../user.md", "everos.toml"):
        with pytest.raises(errors.WriteRefused):
            await node.writer.replace(types.RelPath(path), appending("x"))


async def test_I06_a_skill_moves_with_all_that_is_in_its_folder(node: Node) -> None:
    """The old path is gone, nothing is doubled, and a name that is taken is left alone."""
    node.save("one\n", SKILL)
    node.save("notes\n", SKILL.replace("SKILL.md", "notes.txt"))
    to = types.RelPath(SKILL.replace("skill_deploy", "skill_release"))
    assert await node.writer.move(SKILL, to)
    assert ["skill_release"] == names(node.at(SKILL).parent.parent)
    assert {"SKILL.md", "notes.txt"} == set(names(node.at(to).parent))
    node.save("other\n", SKILL)
    assert not await node.writer.move(SKILL, to)
    assert ("other\n", "one\n") == (node.at(SKILL).read_text(), node.at(to).read_text())


def test_values_are_shown_as_they_are() -> None:
    """A profile's lists come out of the entry as the lists that they are."""
    made = parsed(whole.new(PATH, {"id": "profile_mara", "explicit_info": [CLIMBS], "profile_timestamp_ms": 5}, "x"))
    (only,) = made.entries
    assert only == entry_text.read("profile", only.id, only.raw, form="whole", line=1)
    assert "Mara climbs" in view.body(only)
    assert frontmatter.read(made.text).values == made.frontmatter.values
