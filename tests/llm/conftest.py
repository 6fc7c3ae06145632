"""Real models take minutes and 200 MB of wheels: these tests run with `make test-llm` alone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.llm import server
from tests.process import conftest as process

collect_ignore_glob = [] if os.environ.get("EVEROSD_TEST_LLM") else ["test_*.py"]

daemon = process.daemon
root = process.root


@pytest.fixture(scope="session", params=server.MODELS)
def model_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the base URL of a llama.cpp server with each of the models."""
    if lacking := server.missing():
        pytest.skip(f"not installed: {lacking}; make test-llm does it")
    folder: Path = tmp_path_factory.mktemp("weights")
    with (folder / "server.log").open("wb") as log:
        process_of = subprocess.Popen(
            [sys.executable, "-m", "tests.llm.server", request.param, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        )
    assert process_of.stdout is not None
    try:
        url = process_of.stdout.readline().decode().strip()
        assert url.startswith("http://127.0.0.1:"), (folder / "server.log").read_text(errors="replace")
        yield f"{url}/v1"
    finally:
        process_of.kill()
        process_of.wait()
