"""Every setting, command, route, kind and exit code is documented, and nothing is documented that is not there."""

from __future__ import annotations

import itertools
import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import get_args, get_type_hints

import msgspec
import pytest
import typer
from typer import core, testing

from everosd import config, daemon, types
from everosd.api import openapi
from everosd.cascade import problems
from everosd.cli import app, remember
from everosd.log import kind, layout, parse, view

REPO = Path(__file__).resolve().parents[2]
PAGES = sorted([*REPO.glob("*.md"), *(REPO / "docs").rglob("*.md")])
OPERATIONS = (REPO / "docs" / "OPERATIONS.md").read_text(encoding="utf-8")
README = (REPO / "README.md").read_text(encoding="utf-8")
ARCHITECTURE = (REPO / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
CHANGELOG = (REPO / "CHANGELOG.md").read_text(encoding="utf-8")

SETTINGS = {
    f"{section}.{key}": value
    for section, table in config.flat(tomllib.loads(config.defaults())).items()
    for key, value in table.items()
}


def commands_of(group: object, before: str = "") -> dict[str, core.TyperCommand]:
    """Return the commands of a group by name, those of groups in it as `memory show`."""
    assert isinstance(group, core.TyperGroup)
    found: dict[str, core.TyperCommand] = {}
    for name, one in group.commands.items():
        if isinstance(one, core.TyperGroup):
            found |= commands_of(one, f"{before}{name} ")
        else:
            assert isinstance(one, core.TyperCommand)
            found[before + name] = one
    return found


GROUP = typer.main.get_command(app.commands)
COMMANDS = commands_of(GROUP)
WORDS = {name.split()[0] for name in COMMANDS}


def rows(page: str, heading: str) -> list[list[str]]:
    """Return the cells of the first table after a heading."""
    after = page.split(f"\n{heading}\n", 1)[1]
    table = re.search(r"(?:^\|.*\n)+", after, re.MULTILINE)
    assert table is not None
    cells = [re.split(r"(?<!\\)\|", line.strip("|\n")) for line in table[0].splitlines()[2:]]
    return [[cell.strip() for cell in row] for row in cells]


def test_every_setting_is_documented_with_its_default() -> None:
    """OPERATIONS lists exactly the settings there are, with the defaults that are shipped."""
    documented = {name.strip("`"): default.strip("`") for name, default, *_ in rows(OPERATIONS, "## Settings")}
    assert {name: tomllib.loads(f"x = {text}")["x"] for name, text in documented.items()} == SETTINGS


def test_every_live_setting_is_marked_so() -> None:
    """What comes into force without a restart is marked in OPERATIONS, and nothing else is."""
    live = {name.strip("`") for name, _, text in rows(OPERATIONS, "## Settings") if text.startswith("*live*")}
    assert live == set(config.RELOADABLE)


def test_every_line_of_the_shipped_defaults_has_a_comment() -> None:
    """A person who opens default.toml is told what each key means."""
    for name in ("default.toml", "default_ome.toml"):
        lines = config.defaults(name).splitlines()
        bare = [
            line for before, line in itertools.pairwise(lines) if " = " in line and line[0] != "#" and before[:1] != "#"
        ]
        assert bare == []


def test_every_command_is_documented() -> None:
    """OPERATIONS and CHANGELOG name every command, and OPERATIONS every option of it."""
    documented = {}
    for typed, *_ in rows(OPERATIONS, "## Commands"):
        first, *more = typed.strip("`").split()[1:]
        documented[first if first in COMMANDS else " ".join((first, *more[:1]))] = typed
    documented.pop("--version")
    assert set(documented) == set(COMMANDS)
    for name, command in COMMANDS.items():
        options = {option for one in command.params for option in one.opts if option.startswith("--")}
        in_row = set(re.findall(r"--[a-z-]+", documented[name]))
        assert options - {"--root"} == in_row - {"--root"}, name
        assert f"`{name}`" in CHANGELOG


def test_the_help_has_every_command_in_the_order_of_operations() -> None:
    """One order for both: first steps, memory, what becomes of it, settings, repair."""
    assert set(app.ORDER) == WORDS
    documented = dict.fromkeys(typed.strip("`").split()[1] for typed, *_ in rows(OPERATIONS, "## Commands"))
    assert [*app.ORDER] == [name for name in documented if not name.startswith("-")]


def test_every_command_says_what_it_does() -> None:
    """Each command and each option has a help text of its own."""
    for name, command in COMMANDS.items():
        assert command.help, name
        assert [one.name for one in command.params if isinstance(one, core.TyperOption) and not one.help] == [], name


def test_every_command_of_typed_memories_has_an_example_that_can_be_typed() -> None:
    """The end of its help is a command that there is, with options that it has."""
    named = [name for name in COMMANDS if name.split()[0] in ("remember", "recall", "forget", "memory", "lifecycle")]
    assert 15 <= len(named)
    for name in named:
        for typed in re.findall(r"everosd ([a-z].*?)(?=, (?:then|or) |$)", str(COMMANDS[name].epilog)):
            words = typed.split()
            called = " ".join(words[:2]) if " ".join(words[:2]) in COMMANDS else words[0]
            known = {option for one in COMMANDS[called].params for option in one.opts}
            assert set(re.findall(r"--[a-z-]+", typed)) <= known, typed
        assert f"everosd {name}" in str(COMMANDS[name].epilog), name


def test_the_memory_written_by_hand_of_operations_is_read_as_it_says() -> None:
    """Heading, fields and text of the example, at the path of its folder and of the type of its name."""
    text = OPERATIONS.split("**By hand.**", 1)[1].split("```markdown\n", 1)[1].split("```", 1)[0]
    path = types.RelPath("default_app/default_project/users/mara/memories/projects/atlas/semantic-2026-03-02.md")
    place = layout.place(path)
    assert place is not None
    (found,) = parse.parse(path, text.encode(), place).entries
    seen = view.view(found)
    assert isinstance(seen, kind.Memory)
    assert (0.8, "atlas-release", "2026-12-31") == (seen.importance, seen.semantic_key, seen.expires_at)
    assert ("Release of Atlas", "Atlas ships on 10 May 2026.") == (view.title(found), seen.content)
    assert ("projects/atlas", "semantic") == (place.memory_path, place.memory_type)


def test_readme_names_commands_that_exist() -> None:
    """Every `everosd <command>` of the README can be typed."""
    block = README.split("## Five commands")[1].split("```")[1]
    named = set(re.findall(r"^everosd (\w+)", block, re.MULTILINE))
    assert len(named) == 5
    assert named <= WORDS


def test_readme_shows_commands_that_work_in_the_order_in_which_they_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever types them one after the other is never asked whose memory is meant."""
    monkeypatch.setenv("EVEROS_ROOT", str(tmp_path / "root"))
    monkeypatch.setenv("EVEROS_EMBEDDING__MODEL", "none")
    monkeypatch.chdir(tmp_path)
    talk = [{"role": "user", "content": "I moved to Porto."}, {"role": "assistant", "content": "How is it there?"}]
    Path("chat.json").write_text(json.dumps(talk), encoding="utf-8")
    parts = [
        README.split(f"## {title}\n")[1] for title in ("Tell it something", "Have something remembered, and let it age")
    ]
    typed = [line for part in parts for line in re.findall(r"^everosd .*", part.split("\n## ")[0], re.MULTILINE)]
    assert ["add", "remember", "remember", "recall", "lifecycle"] == [line.split()[1] for line in typed]
    for line in ("everosd init", *typed):
        done = testing.CliRunner().invoke(app.commands, shlex.split(line, comments=True)[1:])
        assert 0 == done.exit_code, (line, done.output, done.exception)
        assert "10 May 2026" in done.stdout or " recall " not in line


def test_every_type_that_remember_takes_is_explained() -> None:
    """Those of the table, and what is chosen from them where none is given."""
    choices = get_args(get_type_hints(remember.remember)["type_"])
    section = OPERATIONS.split("\n## Typed memories\n", 1)[1].split("\n### ", 1)[0]
    assert "auto" in choices
    assert [] == [one for one in choices if f"`{one}`" not in section]


def test_readme_names_targets_that_exist() -> None:
    """Every `make <target>` of the pages is a target of the Makefile."""
    targets = set(re.findall(r"^([\w-]+):", (REPO / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = {name for page in PAGES for name in re.findall(r"`make (\w+)`", page.read_text(encoding="utf-8"))}
    assert named - targets == set()


def test_every_route_is_documented() -> None:
    """OPERATIONS lists exactly the routes of the schema, once for both prefixes."""
    paths = msgspec.json.decode(openapi.document("0"), type=dict[str, object])["paths"]
    assert isinstance(paths, dict)
    served = {
        f"{method.upper()} {path}" for path, item in paths.items() for method in item if not path.startswith("/api/v2")
    }
    documented = {name.strip("`") for name, _ in rows(OPERATIONS, "## Routes")}
    assert documented == served


def test_every_exit_code_is_documented() -> None:
    """OPERATIONS lists exactly the exit codes of the daemon's table."""
    codes = {daemon.OK, daemon.UNEXPECTED, daemon.USAGE, daemon.DISK_FAILED, *(code for _, code in daemon.EXIT_CODES)}
    assert {int(code) for code, *_ in rows(OPERATIONS, "### Exit codes")} == codes


def test_every_kind_of_file_problem_is_explained() -> None:
    """What stands first in the lines of `everosd status` stands in OPERATIONS, with what to do."""
    seen = " ".join(row[0] for row in rows(OPERATIONS, "## What to do when"))
    assert [kind for kind in problems.ORDER if f"`{kind}`" not in seen] == []


def test_every_package_has_a_section_titled_by_a_question() -> None:
    """ARCHITECTURE answers one question for each package."""
    packages = {path.parent.name for path in (REPO / "everosd").glob("*/__init__.py")} | {"daemon"}
    assert set(re.findall(r"^## .*\? \(`everosd\.(\w+)`\)$", ARCHITECTURE, re.MULTILINE)) == packages


def test_every_module_named_in_architecture_exists() -> None:
    """No page sends a reader to a file that is not there."""
    sections = re.split(r"^## .*\(`everosd\.(\w+)`\)$", ARCHITECTURE, flags=re.MULTILINE)
    for package, text in zip(sections[1::2], sections[2::2], strict=True):
        folder = REPO / "everosd" / ("" if package == "daemon" else package)
        missing = [name for name in re.findall(r"`([a-z_]+\.py)`", text) if not (folder / name).exists()]
        assert missing == [], package
    missing = [
        name
        for name in re.findall(r"`((?:[a-z]+/)+[a-z]+\.py)`", ARCHITECTURE)
        if not (REPO / "everosd" / name).exists()
    ]
    assert missing == []


@pytest.mark.parametrize("one", kind.KINDS, ids=lambda one: str(one.name))
def test_every_kind_has_its_place_in_architecture(one: kind.Kind) -> None:
    """Where files of a kind live stands in ARCHITECTURE."""
    assert (one.folder or one.stem) in ARCHITECTURE


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPO)))
def test_links_lead_somewhere(page: Path) -> None:
    """A relative link of a page is a file of the repository."""
    text = page.read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_decisions_are_numbered_without_gaps() -> None:
    """Decision records count up from 0001."""
    numbers = sorted(int(path.name[:4]) for path in (REPO / "docs" / "decisions").glob("*.md"))
    assert numbers == list(range(1, len(numbers) + 1))


def test_the_glossary_has_each_word_once() -> None:
    """A word with two meanings is two words."""
    glossary = (REPO / "docs" / "GLOSSARY.md").read_text(encoding="utf-8")
    words = [word.strip() for cell in re.findall(r"^\| ([^|]+) \|", glossary, re.MULTILINE) for word in cell.split(",")]
    words = [word for word in words if word not in {"word", "---"}]
    assert len(words) == len(set(words))
