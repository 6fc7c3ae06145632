"""What a person does to a file while the daemon writes it: at a named moment, or long before."""

from __future__ import annotations

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
