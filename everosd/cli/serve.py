"""`everosd serve`, started without the framework of the other commands.

A daemon keeps for months what its start imports, and the framework is 0.1 s of the start and 8 MB of the memory. What
is not spelled out in full (`--help`, a mistake) goes the way of the other commands.
"""

from __future__ import annotations

from collections.abc import Sequence

from everosd import config
from everosd.cli import root as root_folder

NAME = "serve"
OPTIONS = ("root", "host", "port")
MAX_PORT = 65_535


def asked(arguments: Sequence[str]) -> dict[str, str] | None:
    """Return the options of `serve [--root R] [--host H] [--port P]`; None where it is anything else."""
    if not arguments or arguments[0] != NAME:
        return None
    found: dict[str, str] = {}
    rest = list(arguments[1:])
    while rest:
        name, has_value, value = rest.pop(0).partition("=")
        if not has_value:
            if not rest:
                return None
            value = rest.pop(0)
        if not name.startswith("--") or name[2:] not in OPTIONS or value.startswith("-"):
            return None
        found[name[2:]] = value
    port = found.get("port", "0")
    is_port = port.isascii() and port.isdigit() and int(port) <= MAX_PORT
    return found if is_port else None


def run(root: str | None = None, host: str | None = None, port: int | None = None) -> int:
    """Run the daemon in the foreground until it is told to stop; return its exit code.

    Raises:
        RootError: there is no such root.
        ConfigError: the settings cannot be read.
    """
    from everosd import process

    where = config.root_path(root)
    root_folder.require(where)
    given = {"api.host": host, "api.port": port}
    return process.serve(config.load(where, given={key: value for key, value in given.items() if value is not None}))
