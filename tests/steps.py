"""What a person does to a file while the daemon writes it, at a named moment or long before; and looks for afterwards."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

from everosd.log import file


def once(moment: str, act: Callable[[], object]) -> file.Step:
    """Return a step that acts at one moment, once."""
    done: list[str] = []

    def step(name: str) -> None:
        if name == moment and not done:
            done.append(name)
            act()

    return step


def age(path: Path) -> None:
    """Let a file look as if it had not been touched for a while."""
    then = time.time() - 10
    os.utime(path, (then, then))


def holders(root: Path, word: str) -> list[str]:
    """Return the files below a root that have a word, in any case, in their bytes; indexes merge theirs meanwhile."""
    found, mark = [], word.encode().lower()
    for path in root.rglob("*"):
        with contextlib.suppress(FileNotFoundError, IsADirectoryError):
            if mark in path.read_bytes().lower():
                found.append(path.relative_to(root).as_posix())
    return sorted(found)
