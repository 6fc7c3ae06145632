"""Somebody is forgotten by the installed daemon: also while it is killed, and while others go on talking."""

from __future__ import annotations

import contextlib
import json
import random
import threading
from pathlib import Path

import httpx
import pytest

from tests.process import conftest
from tests.process.talking import add, episodes, flush, said

SECRET = "xylophonist"
"""A word that Mara says where nobody else is: what others were told, they keep."""
MARA = {"user_id": "mara", "confirm": "mara"}
N_KILLS = 3


def traces(root: Path) -> list[str]:
    """Return the files below the root that have Mara's word in their bytes, each with what stands around it."""
    found = []
    for path in root.rglob("*"):
        try:
            data = path.read_bytes()
        except (FileNotFoundError, IsADirectoryError):  # the daemon goes on
            continue
        at = data.find(SECRET.encode())
        if at >= 0:
            found.append(f"{path.relative_to(root)} at {at} of {len(data)}: {data[max(0, at - 200) : at + 200]!r}")
    return found


def talk(http: httpx.Client, nth: int) -> None:
    """Have both say something in a session of their own and in a common one, extracted and not."""
    at = nth * 100
    add(http, f"both{nth}", said("I am a cellist.", at), said(f"Ben answers {nth}.", at + 1, sender="ben"))
    add(http, f"alone{nth}", said(f"Nobody knows that I am a {SECRET}.", at))
    add(http, f"ben{nth}", said(f"Ben alone {nth}.", at, sender="ben"))
    for session in (f"both{nth}", f"alone{nth}", f"ben{nth}"):
        assert "extracted" == flush(http, session).json()["data"]["status"]
    add(http, f"both{nth}", said("Still a cellist.", at + 2), said(f"Ben waits {nth}.", at + 3, sender="ben"))


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_I09_a_user_is_forgotten_whenever_the_daemon_is_killed(daemon: conftest.Daemon) -> None:
    """Kill -9 at random moments: asked again, nothing of Mara is left in any file, and everything of Ben is there."""
    chance = random.Random(9)  # noqa: S311  # moments, no secrets
    http = daemon.start()
    for nth in range(N_KILLS):
        talk(http, nth)
        daemon.wait_settled()

        def forgetting(http: httpx.Client = http) -> None:
            with contextlib.suppress(httpx.TransportError):
                http.post("/api/v1/admin/forget", json=MARA)

        asked = threading.Thread(target=forgetting)
        asked.start()
        threading.Event().wait(chance.uniform(0, 0.5))
        daemon.kill()
        asked.join()
        http = daemon.start()
    answer = http.post("/api/v1/admin/forget", json=MARA)
    assert 404 == answer.status_code or "result" in json.loads(answer.text.splitlines()[-1])
    assert [] == traces(daemon.root)
    assert [] == episodes(http)
    assert [] == daemon.health()["problems"]
    for nth in range(N_KILLS):
        flush(http, f"both{nth}")
    daemon.wait_settled()
    told = "\n".join(one["episode"] for one in episodes(http, "ben"))
    for nth in range(N_KILLS):
        assert f"Ben alone {nth}." in told
        assert f"Ben answers {nth}." in told
        assert f"Ben waits {nth}." in told


@pytest.mark.timeout(60)
def test_I09_forget_extract_and_trigger_from_the_command_line(daemon: conftest.Daemon) -> None:
    """With a daemon that others talk to: the counts are told, exit codes say how it went, and nothing of theirs is lost."""
    http, root = daemon.start(), str(daemon.root)
    talk(http, 0)
    daemon.wait_settled()
    refused = conftest.run("forget", "--root", root, "--owner", "mara")
    assert (2, True) == (refused.returncode, "add --yes" in refused.stderr)
    nobody = conftest.run("forget", "--root", root, "--owner", "marah", "--yes")
    assert (2, "everosd: there is no user marah in app default, project default") == (
        nobody.returncode,
        nobody.stderr.strip(),
    )
    is_over = threading.Event()
    n_said: list[int] = []

    def talking() -> None:
        while not is_over.is_set():
            add(http, "both0", said(f"Ben goes on {len(n_said)}.", 200 + len(n_said), sender="ben"))
            n_said.append(1)

    others = threading.Thread(target=talking)
    others.start()
    done = conftest.run("forget", "--root", root, "--owner", "mara", "--yes", "--json")
    is_over.set()
    others.join()
    assert 0 == done.returncode, done.stderr
    told = json.loads(done.stdout)
    assert (3, 2, 1, 1, []) == tuple(
        told[name] for name in ("messages", "sessions", "sessions_removed", "quoted", "left")
    )
    assert [] == traces(daemon.root)
    quoting = {
        path.relative_to(daemon.root).parts[3] for path in daemon.root.rglob("*.md") if "cellist" in path.read_text()
    }
    assert {"ben"} == quoting  # what he remembers of her, as named
    log = "".join(path.read_text() for path in daemon.root.glob("*/*/sessions/both0/*.md"))
    assert [1] * len(n_said) == [log.count(f"Ben goes on {nth}.") for nth in range(len(n_said))]
    extracted = conftest.run("extract", "--root", root, "--user", "ben")
    assert (0, True) == (extracted.returncode, extracted.stdout.startswith("2 of 2 entries done")), extracted.stderr
    for arguments, code in (
        (("extract_atomic_facts",), 1),  # nothing of it has failed
        (("extract_atomic_fact",), 2),
        (("extract_atomic_facts", "--dry-run", "--force"), 1),
    ):
        assert code == conftest.run("trigger", "--root", root, *arguments).returncode, arguments
