"""Summaries and promotions of the real daemon, with a model that speaks over HTTP; kill -9 in the middle of promotions."""

from __future__ import annotations

import collections
import datetime as dt
import re
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from tests import chat_stub, effort
from tests.process.conftest import wait_for

if TYPE_CHECKING:
    from tests.process.conftest import Daemon

N_FACTS = effort.rounds(300, 60)
LOG = "default_app/default_project/users/mara/.lifecycle"
FACTS = "default_app/default_project/users/mara/memories/notes"


def post(client: httpx.Client, route: str, **body: object) -> dict[str, Any]:
    """Ask for something of mara's."""
    answer = client.post(f"/api/v1/memory/{route}", json={"user_id": "mara"} | body, timeout=120)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()["data"]
    return found


def write(root: Path) -> None:
    """Write every fact three times, an hour ago."""
    at = dt.datetime.now(dt.UTC) - dt.timedelta(hours=1)
    entries = [
        f"<!-- entry:mem_20260101_{nth:08} -->\n## mem_20260101_{nth:08}\n\n**timestamp**: {at.isoformat()}\n"
        f"**memory_type**: episodic\n\n### Content\nfact number {nth % N_FACTS} about boats\n"
        f"<!-- /entry:mem_20260101_{nth:08} -->\n"
        for nth in range(3 * N_FACTS)
    ]
    head = "---\nid: memory_log_mara\ntype: memory_daily\nuser_id: mara\ndate: '2026-01-01'\n---\n"
    folder = root / FACTS
    folder.mkdir(parents=True)
    (folder / "episodic-2026-01-01.md").write_text(head + "".join(entries), encoding="utf-8")


def superseded(root: Path) -> collections.Counter[str]:
    """Return how often each memory is superseded in the log."""
    text = "".join(path.read_text(encoding="utf-8") for path in sorted((root / LOG).glob("*.md")))
    return collections.Counter(re.findall(r"\*\*action\*\*: supersede\n\*\*target\*\*: (\S+)", text))


def facts(root: Path) -> collections.Counter[str]:
    """Return the promoted facts."""
    text = "".join(path.read_text(encoding="utf-8") for path in (root / FACTS).glob("semantic-*.md"))
    return collections.Counter(re.findall(r"^fact number \d+ about boats$", text, re.MULTILINE))


def test_promotions_that_were_killed_are_finished_by_the_next_pass_and_none_is_made_twice(daemon: Daemon) -> None:
    """Kill -9 in between: one fact each, one row for each source, and nothing is found twice."""
    write(daemon.root)
    client = daemon.start()
    daemon.wait_ready(60)

    def ask() -> None:
        try:
            post(httpx.Client(base_url=client.base_url), "reflect", actions=["promote"], limit=100_000)
        except httpx.TransportError:
            return

    asking = threading.Thread(target=ask)
    asking.start()
    wait_for(lambda: len(facts(daemon.root)) > 5, "the first facts", 60)
    daemon.signal(signal.SIGKILL)
    daemon.wait()
    asking.join()
    assert len(superseded(daemon.root)) < 3 * N_FACTS
    client = daemon.start()
    daemon.wait_ready(60)
    post(client, "reflect", actions=["promote"], limit=100_000)
    assert {f"fact number {nth} about boats": 1 for nth in range(N_FACTS)} == dict(facts(daemon.root))
    assert {f"mem_20260101_{nth:08}": 1 for nth in range(3 * N_FACTS)} == dict(superseded(daemon.root))
    again = post(client, "reflect", actions=["promote"], limit=100_000)
    assert 0 == again["actions"][0]["counts"]["apply"]
    found = daemon.search("fact number 7 about boats", "mara")
    assert {"semantic"} == {one["memory_type"] for one in found}


def test_a_day_is_summarized_and_promoted_over_http_and_a_dry_run_decides_the_same(daemon: Daemon) -> None:
    """The summary is found, its sources are, too; what was promoted is found once."""
    said = ("Mara met Jonas in Ghent.", "Mara bought a red bicycle for 250 euros.", "Mara had soup with Lena.")
    with chat_stub.ChatStub() as stub:
        (daemon.root / "everos.toml").write_text(f'[llm]\nmodel = "stub"\nbase_url = "{stub.url}"\n')
        client = daemon.start()
        for content in said:
            post(client, "remember", path="trips", content=content, session_id="s_1")
        for _ in range(3):
            post(client, "remember", path="home", content="Mara lives in Ghent.", memory_type="episodic")
        asked = {"actions_csv": "promote,summarize", "min_group_size": 2}
        dry = post(client, "reflect", **asked, dry_run=True)
        real = post(client, "reflect", **asked)
    assert dry["actions"] == real["actions"]
    assert {"summarize": 6, "promote": 3} == {one["action"]: one["counts"]["apply"] for one in real["actions"]}
    found = daemon.search("red bicycle", "mara")
    assert {"reflections/episodic", "trips"} == {one["path"] for one in found}
    home = [one for one in daemon.search("lives in Ghent", "mara") if one["path"] == "home"]
    assert ["semantic"] == [one["memory_type"] for one in home]
    listed = client.get("/api/v1/memory/lifecycle", params={"user_id": "mara", "status": "superseded"}).json()["data"]
    assert {home[0]["id"]} == {one["successor"] for one in listed["items"]}
