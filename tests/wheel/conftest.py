"""A wheel is installed from the package index, with 350 MB of what it needs: `make test-wheel` alone does it."""

from __future__ import annotations

import os

from tests.process import conftest as process

collect_ignore_glob = [] if os.environ.get("EVEROSD_TEST_WHEEL") else ["test_*.py"]

daemon = process.daemon
root = process.root
