"""What is written of the log."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from typing import Literal

import pytest
import structlog

from everosd import config, logs


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    before, root = structlog.get_config(), logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.configure(**before)
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)


def test_a_command_prints_no_line_of_the_log_but_a_fault() -> None:
    """A model that is away is the answer's to tell; a traceback that nobody had thought of is wanted."""
    stream = io.StringIO()
    logs.set_up(config.Log(level="error", format="console", repeat_window_s=60.0), target=stream, only_faults=True)
    logs.logger("t").error("extraction_failed", reason="the model is away")
    assert "" == stream.getvalue()
    try:
        raise ZeroDivisionError  # noqa: TRY301
    except ZeroDivisionError:
        logs.logger("t").exception("consolidation_failed")
    assert "consolidation_failed" in stream.getvalue()
    assert "ZeroDivisionError" in stream.getvalue()


@pytest.mark.parametrize(("level", "is_told"), [("info", False), ("debug", True)])
def test_a_client_that_hangs_up_is_no_error_of_a_library(level: Literal["info", "debug"], *, is_told: bool) -> None:
    """Whoever vanishes in the middle of a request to /mcp leaves no traceback; another fault there does."""
    requests = pytest.importorskip("starlette.requests")
    stream = io.StringIO()
    logs.set_up(config.Log(level=level, format="console", repeat_window_s=60.0), target=stream)
    library = logging.getLogger("mcp.server.streamable_http")
    for fault in (requests.ClientDisconnect(), KeyError("x")):
        try:
            raise fault
        except type(fault):
            library.exception("Error handling POST request")
    written = stream.getvalue()
    assert is_told == ("debug" in written)
    assert "ClientDisconnect" not in written
    assert "KeyError" in written
