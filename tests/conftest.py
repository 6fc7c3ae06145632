"""What every test gets: Hypothesis profiles; in tests/unit also warnings as errors and a loop that must not be blocked."""

from __future__ import annotations

import asyncio.constants
import gc
import logging
import os
import re
import shutil
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path

import blockbuster
import hypothesis
import pytest
import structlog

from tests import effort

TESTS = Path(__file__).parent
UNIT = TESTS / "unit"
SLOWEST_STEP_S = 1.0
"""A step of the event loop that takes longer is blocking work; far above what a busy machine does to a fair one."""
MEMORY = Path("/dev/shm")  # noqa: S108  # where Linux has a file system in memory
MEMORY_BYTES = 4 << 30
"""So much has to be free there; a run takes an eighth of it at most."""

# structlog's own default draws tracebacks with rich, which imports and reads sources while it does.
structlog.configure(processors=[structlog.processors.format_exc_info, structlog.processors.KeyValueRenderer()])

# Debug mode notes the stack of whatever makes a callback or a future: who did is enough, and all of it takes half the time.
asyncio.constants.DEBUG_STACK_DEPTH = 2  # type: ignore[misc]  # final, but read anew each time
traceback.extract_stack.__defaults__ = (None, 2)  # what futures and tasks ask, which are written in C: for all of it

# A test that is run all day tries the same examples each time; looking for new ones is what `make fuzz` is for.
hypothesis.settings.register_profile("default", deadline=None, max_examples=100, derandomize=True)
hypothesis.settings.register_profile("fuzz", deadline=None, max_examples=5_000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_configure() -> None:
    """Have temporary files in memory, unless somebody says where: a sixth of the work is a disk's, and most of the waiting.

    With `make long` they are on the disk.
    """
    if not effort.IS_FULL and "TMPDIR" not in os.environ and _has_memory():
        os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)


def _has_memory() -> bool:
    """Tell whether there is room in memory for files, programs among them."""
    try:
        may_execute = not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC
        return may_execute and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > MEMORY_BYTES
    except OSError:
        return False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Make warnings errors in tests/unit; process tests meet third parties."""
    for item in items:
        if UNIT in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("error"))


def pytest_collection_finish() -> None:
    """Keep the garbage collector from looking through thousands of tests and all modules, again and again while they run."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Put asyncio in debug mode for tests/unit: before any fixture, because one of them makes the loop."""
    item.config.option.asyncio_debug = UNIT in item.path.parents


@pytest.fixture(autouse=True)
def _loop_is_never_blocked(request: pytest.FixtureRequest) -> Iterator[None]:
    """In tests/unit: a blocking call of ours on an event loop raises, and a step that takes long fails the test."""
    if UNIT not in request.path.parents:
        yield
        return
    slow = _SlowSteps()
    logger = logging.getLogger("asyncio")
    logger.addHandler(slow)
    try:
        with blockbuster.blockbuster_ctx("everosd") as guard:
            for name in ("os.getcwd", "os.path.abspath"):  # an import asks for them, and they wait for nothing
                guard.functions[name].deactivate()
            yield
    finally:
        logger.removeHandler(slow)
    assert slow.found == []


class _SlowSteps(logging.Handler):
    """Collects what asyncio's debug mode says of steps that took too long."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        took = re.search(r"took ([\d.]+) seconds", text)
        if took and float(took[1]) > SLOWEST_STEP_S:
            self.found.append(text)
