"""`everosd serve` without the command framework."""

from __future__ import annotations

import subprocess
import sys

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
