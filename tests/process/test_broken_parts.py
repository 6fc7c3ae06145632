"""The installed daemon where a library that vectors need cannot be loaded: keyword search needs nothing of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from everosd import daemon as daemons
from tests.process import conftest, test_daemon

BROKEN = "raise {}('it was built for another processor')\n"


@pytest.fixture(params=["numpy:ImportError", "numpy:RuntimeError", "hnswlib:ImportError"])
def env(request: pytest.FixtureRequest, tmp_path: Path) -> conftest.Env:
    """Put a broken library before the installed one, and ask for vectors."""
    name, _, error = request.param.partition(":")
    package = tmp_path / "broken" / name
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(BROKEN.format(error))
    return {"PYTHONPATH": str(package.parent), "EVEROS_EMBEDDING__MODEL": "builtin"}


def test_a_broken_library_costs_the_vectors_alone(daemon: conftest.Daemon, root: Path, env: conftest.Env) -> None:
    """The daemon starts, finds what is on disk and an edit by keyword, and says what to do; doctor says it too."""
    test_daemon.write_day(root, "2026-03-02", "fog on the mountain")
    daemon.start(env=env, ready=False)
    conftest.wait_for(lambda: daemon.search("mountain", "u_mara"), "the entry by keyword")
    conftest.wait_for(lambda: "another processor" in str(daemon.health().get("degraded")), "health to say it")
    assert daemon.search("mountain", "u_mara", method="hybrid")
    test_daemon.write_day(root, "2026-03-03", "a violin concert")
    conftest.wait_for(lambda: daemon.search("violin", "u_mara"), "the edit by keyword")
    assert daemons.OK == daemon.stop()
    done = conftest.run("doctor", "--root", str(root), env=env)
    assert "another processor" in done.stdout
    assert "Traceback" not in done.stderr
