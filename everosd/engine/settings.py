"""Settings of strategies: shipped defaults and ome.toml of the root, read again whenever that is saved."""

from __future__ import annotations

import pathlib

from everosd import clock


class Watcher:
    """Holds the settings in force."""

    def __init__(self, root: pathlib.Path, time: clock.Clock) -> None:
        """Watch `ome.toml` in `root`; the defaults are in force until `look`, which the engine calls."""
        raise NotImplementedError
