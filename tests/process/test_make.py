"""`make demo` on a machine where something is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]

OLD = """case "$*" in -V) echo "Python 3.9.2" ;; *version_info*) exit 1 ;; esac"""
NO_VENV = """case "$*" in *ensurepip*) exit 1 ;; esac"""
BROKEN_VENV = """case "$*" in "-m venv"*) mkdir -p .venv/bin && touch .venv/bin/python && exit 1 ;; esac"""
NO_COMPILER = """case "$*" in
"-m venv"*) mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
*CXX*) exit 1 ;;
"-m pip"*) echo "pip ran" >&2; exit 1 ;;
esac"""
NO_HEADERS = NO_COMPILER.replace("CXX", "Python.h")
NO_WHEELS = """case "$*" in
"-m venv"*) mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
"-m pip"*) echo "pip says why" >&2; exit 1 ;;
-V) echo "Python 3.14.0" ;;
esac"""


@pytest.mark.parametrize(
    ("python", "said"),
    [
        (None, "there is no"),
        (OLD, "is Python 3.9.2"),
        (NO_VENV, "apt-get install python3-venv"),
        (NO_COMPILER, "apt-get install build-essential python3-dev"),
        (NO_HEADERS, "no Python.h here"),
        (NO_WHEELS, "pip could not install everosd"),
    ],
    ids=["no Python", "old Python", "no venv module", "no compiler", "no headers", "pip fails"],
)
def test_make_says_plainly_what_is_missing(tmp_path: Path, python: str | None, said: str) -> None:
    """What is missing is named with what to type, before anything is made."""
    done = make(tmp_path, python)
    assert done.returncode != 0
    assert said in done.stderr
    assert "pip ran" not in done.stderr


def test_a_compiler_is_not_asked_for_where_everything_comes_compiled(tmp_path: Path) -> None:
    """`make COMPILES=no` goes straight to pip."""
    assert "pip ran" in make(tmp_path, NO_COMPILER, "COMPILES=no").stderr


@pytest.mark.parametrize(
    ("compilers", "said"),
    [
        ({"CC": "no-cc -pthread"}, "no no-cc here"),
        ({"CC": "no-cc", "CXX": "no-c++"}, "no no-cc and no no-c++ here"),
        ({"CC": sys.executable, "CXX": f"{sys.executable} -O2"}, ""),
    ],
    ids=["no C", "neither", "both"],
)
def test_the_compilers_that_are_named_are_looked_for(compilers: dict[str, str], said: str) -> None:
    """It is CC and CXX that build a package, so it is they that have to be there."""
    done = subprocess.run(
        ["make", "-s", "-C", str(REPO), f"VENV={sys.prefix}", "can-compile"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env=os.environ | {"CXX": sys.executable} | compilers,
    )
    assert (not said) == (done.returncode == 0), done.stderr
    assert said in done.stderr


def test_an_environment_that_was_made_by_half_is_removed(tmp_path: Path) -> None:
    """A failed `python -m venv` leaves nothing that the next try would take for an environment."""
    make(tmp_path, BROKEN_VENV)
    assert not (tmp_path / ".venv").exists()


def make(folder: Path, python: str | None, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `make demo` in a folder with the Makefile and a Python that is a shell script."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(REPO / name, folder)
    fake = folder / "fake-python"
    if python is not None:
        fake.write_text(f"#!/bin/sh\n{python}\n")
        fake.chmod(0o755)
    command = ["make", "-C", str(folder), f"PYTHON={fake}", *arguments, "demo"]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
