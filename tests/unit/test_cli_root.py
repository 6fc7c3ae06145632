"""Making a memory root."""

from __future__ import annotations

import os
import stat
import tomllib
from pathlib import Path

import pytest

from everosd import config, errors
from everosd.cli import root


def test_Z08_init_makes_everything_for_its_owner_alone(tmp_path: Path) -> None:
    """Under umask 022, the folder is 0700 and every file 0600."""
    old = os.umask(0o022)
    try:
        made = root.make(tmp_path / "a" / "memory")
    finally:
        os.umask(old)
    assert [path.name for path in made] == ["memory", "everos.toml", "ome.toml"]
    assert [stat.S_IMODE(path.stat().st_mode) for path in made] == [0o700, 0o600, 0o600]


def test_init_twice_changes_nothing(tmp_path: Path) -> None:
    """What a person wrote into their settings outlives a second init."""
    root.make(tmp_path / "memory")
    (tmp_path / "memory" / "everos.toml").write_text("[api]\nport = 9\n")
    assert root.make(tmp_path / "memory") == []
    assert (tmp_path / "memory" / "everos.toml").read_text() == "[api]\nport = 9\n"


def test_the_files_of_init_are_valid_settings(tmp_path: Path) -> None:
    """A root as init makes it loads, and so do the examples in its comments."""
    root.make(tmp_path)
    assert config.load(tmp_path, {}).api.port == 8000
    for name, text in root.FILES.items():
        example = "\n".join(line.removeprefix("# ") for line in text.splitlines() if line[:3] == "# [" or " = " in line)
        (tmp_path / name).write_text(example)
        assert tomllib.loads(example)
    assert config.load(tmp_path, {}).memory.timezone == "Europe/Vienna"


def test_owners_are_those_who_have_a_folder(tmp_path: Path) -> None:
    """A question whose memory is meant can name who there is, by id."""
    for name in ("users/mara", "users/J%C3%BCrgen", "users/.trash", "agents/helper"):
        (tmp_path / "default_app" / "default_project" / name).mkdir(parents=True)
    (tmp_path / "default_app" / "default_project" / "users" / "notes.md").write_text("")
    assert ["Jürgen", "mara"] == root.owners(tmp_path, "default", "default", "user")
    assert ["helper"] == root.owners(tmp_path, "default", "default", "agent")
    assert [] == root.owners(tmp_path, "work", "default", "user")
    assert [True, False] == [
        root.has_owner(tmp_path, "default", "default", "user", name) for name in ("mara", "helper")
    ]


def test_init_on_a_file_names_it(tmp_path: Path) -> None:
    """A root that cannot be made is an error with the path and a way out."""
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.RootError, match="file") as caught:
        root.make(tmp_path / "file")
    assert "--root" in caught.value.hint
