"""How much a test does: what the default run has time for, or, with `make long`, what the fault that it stands for asks."""

from __future__ import annotations

import os

IS_FULL = os.environ.get("EVEROSD_FULL") == "1"


def rounds(full: int, short: int) -> int:
    """Return how often to do something."""
    return full if IS_FULL else short
