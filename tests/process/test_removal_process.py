"""A removal for good that the real daemon was killed in is finished by its next start, unasked."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import httpx
import pytest

from tests.process import conftest

WORD = "xylophonist"


def traces(root: Path) -> list[Path]:
    """Return the files below the root that have the word in their bytes."""
    found = []
    for path in root.rglob("*"):
        with contextlib.suppress(FileNotFoundError, IsADirectoryError):  # the daemon goes on
            if WORD.encode() in path.read_bytes():
                found.append(path)
    return found


@pytest.mark.timeout(120)
def test_a_removal_that_was_killed_after_its_tombstone_is_finished_by_the_next_start(daemon: conftest.Daemon) -> None:
    """Kill -9 as soon as the tombstone is on disk: the next start leaves nothing of the text in any file, and says so."""
    http = daemon.start()
    said = {"user_id": "mara", "path": "notes", "semantic_key": "job"}
    answers = [
        http.post("/api/v1/memory/remember", json={**said, "content": text}).raise_for_status()
        for text in (f"Mara was a {WORD}.", f"Mara is a {WORD}.")
    ]
    asked = {"user_id": "mara", "memory_id": answers[-1].json()["data"]["id"], "mode": "hard_delete", "confirm": True}

    def forget(client: httpx.Client = http) -> None:
        with contextlib.suppress(httpx.TransportError):
            client.post("/api/v1/memory/forget", json=asked)

    log = daemon.root / "default_app/default_project/users/mara/.lifecycle"
    asking = threading.Thread(target=forget)
    asking.start()
    conftest.wait_for(
        lambda: any("hard_delete" in path.read_text() for path in log.glob("*.md")), "the tombstone", timeout_s=20
    )
    daemon.kill()
    asking.join()

    http = daemon.start()
    conftest.wait_for(lambda: not traces(daemon.root), "every trace to go", timeout_s=60)
    conftest.wait_for(
        lambda: "**action**: removed" in "".join(path.read_text() for path in log.glob("*.md")), "the last row"
    )
    assert 404 == http.get(f"/api/v1/entries/{asked['memory_id']}").status_code
    assert [] == daemon.health()["problems"]
