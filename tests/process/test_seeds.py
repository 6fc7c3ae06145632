"""The examples of the two pages that say what reflection is, typed as they stand there, against the installed daemon.

Once with a model that merges, once without any. The port and the root are put in where the examples have theirs; a shell
without jq or sqlite3 gets a few lines of Python of that name.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime as dt
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer import testing

from everosd.cli import app
from tests import chat_stub, embedding_stub
from tests.process import conftest
from tests.process.talking import add, flush

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("curl") is None, reason="no curl on this machine")]

ONE_LINE = """\
[strategies.reflect_episodes]
enabled = true
"""
TWO_LINES = """\
[strategies.reflect_episodes]
enabled = true
cron = "0 3 * * 0"        # optional: Sundays at 03:00
"""
TRIGGER = """\
curl -X POST http://127.0.0.1:8000/api/v1/ome/trigger \\
  -H "Content-Type: application/json" \\
  -d '{"name": "reflect_episodes", "timeout": 120, "force": true}'
"""
WALKTHROUGH = """\
BASE=http://localhost:8000/api/v1

# 1. With Reflection enabled (set enabled = true in <root>/ome.toml),
#    trigger a run by hand here (for the demo; in production it runs on schedule)
curl -s -X POST "$BASE/ome/trigger" \\
  -H "Content-Type: application/json" \\
  -d '{"name": "reflect_episodes", "timeout": 120, "force": true}' \\
  | jq .
# → { "status": "ok", "name": "reflect_episodes" }

# 2. Review the consolidation audit
sqlite3 <root>/.index/sqlite/system.db \\
  "SELECT mode, source_count, merged_entry_id
   FROM reflection_report ORDER BY created_at DESC LIMIT 1;"
# → init|3|ep_20261010_0042

# 3. Verify via search: the hit is the merged narrative, not the old fragments
curl -s -X POST "$BASE/memory/search" \\
  -H "Content-Type: application/json" \\
  -d '{"query": "how many pets does Andrew have", "top_k": 5}' \\
  | jq '.data.episodes[0] | {subject, episode, session_id}'
"""
AUDIT = """\
sqlite3 <root>/.index/sqlite/system.db \\
  "SELECT cluster_id, mode, source_count, merged_entry_id
   FROM reflection_report ORDER BY created_at DESC LIMIT 10;"
"""
SNIPPET = """\
import httpx


async def trigger_reflection() -> str:
    async with httpx.AsyncClient(base_url="http://localhost:8000") as client:
        resp = await client.post(
            "/api/v1/ome/trigger",
            json={"name": "reflect_episodes", "timeout": 120, "force": True},
        )
        resp.raise_for_status()
        return resp.json()["status"]
"""
STAND_INS = {
    "jq": """\
import json, sys
found = json.load(sys.stdin)
if sys.argv[1] != ".":
    found = {key: found["data"]["episodes"][0][key] for key in ("subject", "episode", "session_id")}
print(json.dumps(found, indent=2))
""",
    "sqlite3": """\
import sqlite3, sys
for row in sqlite3.connect(sys.argv[1]).execute(sys.argv[2]):
    print("|".join(map(str, row)))
""",
}

TALKS = (
    ("2026-08-10", "Andrew has no pets yet. Andrew would like to have a dog one day."),
    ("2026-09-10", "Andrew adopted a dog, Toby. Andrew has one dog now, Toby is 4 years old."),
    ("2026-10-10", "Andrew also adopted a dog, Buddy. Andrew has two dogs now, Toby and Buddy."),
)
LATER = ("2026-11-10", "Andrew has two dogs now, Toby and Buddy. Toby weighs 18 kilograms.")
NARRATIVE = (
    "On 10 August 2026 Andrew had no pets yet, and would like to have a dog one day. By 10 September 2026 he had adopted a dog,"
    " Toby, who is 4 years old. By 10 October 2026 he had also adopted a dog, Buddy. Andrew has two dogs now, Toby and Buddy."
)
SEARCH, GET, REPORTS = "/api/v1/memory/search", "/api/v1/memory/get", "/api/v1/reflection/reports"
TRIGGERED, ROLLBACK = "/api/v1/ome/trigger", "/api/v1/reflection/rollback"
QUESTION = "how many pets does Andrew have"
USER = Path("default_app/default_project/users/andrew")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Andrew:
    """A root with three months of Andrew, and the daemon that serves it."""

    daemon: conftest.Daemon
    model: chat_stub.ChatStub | None
    """None: merging is extractive."""
    folder: Path

    @property
    def root(self) -> Path:
        """The memory root."""
        return self.daemon.root

    def shell(self, script: str) -> str:
        """Run an example in bash, for this root and port; return what it prints."""
        port = self.daemon.http.base_url.port
        script = script.replace(":8000", f":{port}").replace("<root>", str(self.root))
        path = f"{_tools(self.folder)}:{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", script],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=os.environ | {"PATH": path},
        )
        assert 0 == done.returncode, done.stdout + done.stderr
        return done.stdout

    def tell(self, date: str, text: str) -> None:
        """Have Andrew say something on a day, and wait until it is in a cluster."""
        n_before = self.joined()
        at = dt.datetime.fromisoformat(f"{date}T12:00:00+00:00")
        said = {"sender_id": "andrew", "role": "user", "timestamp": int(at.timestamp() * 1000), "content": text}
        add(self.daemon.http, f"s_{date}", said)
        assert "extracted" == flush(self.daemon.http, f"s_{date}").json()["data"]["status"]
        conftest.wait_for(lambda: self.joined() > n_before, f"the talk of {date} in a cluster")
        self.daemon.http.post("/api/v1/admin/reconcile").raise_for_status()  # the ledger knows, too

    def joined(self) -> int:
        """Return how many Episodes have joined a cluster."""
        return self.rows().count("**event**: joined")

    def rows(self) -> str:
        """Return the log of clusters."""
        return "".join(path.read_text() for path in (self.root / USER / ".clusters").glob("*.md"))

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Return what a request is answered with, whatever its status."""
        answer: dict[str, Any] = self.daemon.http.post(path, json=body).json()
        return answer

    def found(self, method: str = "keyword", **more: Any) -> list[dict[str, Any]]:
        """Return the Episodes that answer the question."""
        body = {"user_id": "andrew", "query": "Andrew dog pets Toby", "method": method, "top_k": 10, **more}
        answer = self.post(SEARCH, body)
        assert "degraded" not in answer, answer
        episodes: list[dict[str, Any]] = answer["data"]["episodes"]
        return episodes

    def reports(self) -> list[dict[str, Any]]:
        """Return all reports of Andrew, the newest first."""
        items: list[dict[str, Any]] = self.daemon.http.get(REPORTS, params={"user_id": "andrew"}).json()["data"][
            "items"
        ]
        return items

    def run(self, **more: Any) -> dict[str, Any]:
        """Trigger a run and return the answer."""
        return self.post(TRIGGERED, {"name": "reflect_episodes", "timeout": 60, "force": True, **more})


def _tools(folder: Path) -> Path:
    """Return a folder with stand-ins for the programs that this machine lacks."""
    tools = folder / "tools"
    tools.mkdir(exist_ok=True)
    for name, source in STAND_INS.items():
        if shutil.which(name) is None:
            (tools / f"{name}.py").write_text(source)
            (tools / name).write_text(f'#!/bin/sh\nexec {sys.executable} {tools / name}.py "$@"\n')
            (tools / name).chmod(0o755)
    return tools


@contextlib.contextmanager
def _andrew(folder: Path, model: chat_stub.ChatStub | None) -> Iterator[Andrew]:
    root = folder / "root"
    root.mkdir(mode=0o700)
    daemon = conftest.Daemon(root, folder / "everosd.log")
    with embedding_stub.EmbeddingStub(dim=256) as vectors:
        env = {
            "EVEROS_EMBEDDING__MODEL": "stub",
            "EVEROS_EMBEDDING__BASE_URL": vectors.url,
            "EVEROS_CLUSTERING__TIME_WINDOW_DAYS": "400",  # the fragments are a month apart
            "EVEROS_CLUSTERING__THRESHOLD": "0.2",  # of vectors that are made of words, not of what they mean
        }
        if model is None:
            env["EVEROS_REFLECTION__MERGE"] = "extractive"
        else:
            env |= {
                "EVEROS_LLM__MODEL": "stub",
                "EVEROS_LLM__BASE_URL": model.url,
                "EVEROS_BOUNDARY_DETECTION__ASKS_MODEL": "false",
            }
        try:
            daemon.start(env=env)
            andrew = Andrew(daemon=daemon, model=model, folder=folder)
            for date, text in TALKS:
                andrew.tell(date, text)
            yield andrew
        finally:
            daemon.close()


@pytest.fixture(scope="module")
def by_model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Andrew]:
    """Give Andrew's root with a model that tells and merges; the tests below go on from each other."""
    with chat_stub.ChatStub() as model:
        model.script("episode", _episode)
        model.script("merge", {"subject": "Andrew's dogs", "content": NARRATIVE})
        with _andrew(tmp_path_factory.mktemp("model"), model) as andrew:
            yield andrew


def _episode(asked: chat_stub.Asked) -> dict[str, str]:
    """Tell a talk in its own words."""
    (said,) = re.findall(r"andrew: (.*)", asked.user)
    return {"subject": said.partition(".")[0], "summary": said.partition(".")[0] + ".", "content": said}


@pytest.fixture(scope="module")
def extractive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Andrew]:
    """Give Andrew's root without a model."""
    with _andrew(tmp_path_factory.mktemp("extractive"), None) as andrew:
        yield andrew


def strategy(andrew: Andrew) -> dict[str, Any]:
    """Return what the engine says of reflection."""
    items = andrew.daemon.http.get("/api/v1/ome/strategies").json()["data"]["items"]
    (one,) = [one for one in items if one["name"] == "reflect_episodes"]
    found: dict[str, Any] = one
    return found


@pytest.mark.timeout(120)  # the first of a run, for which everything is imported
@pytest.mark.xdist_group("seeds-model")
class TestWithAModel:
    """One story: switched on, run dry, refused, merged, looked at, updated, undone."""

    def test_one_line_switches_it_on(self, by_model: Andrew) -> None:
        """Saved, it is in force within two seconds, for the next Monday at 02:00; the second line moves it to Sunday."""
        assert (False, None) == (strategy(by_model)["enabled"], strategy(by_model)["next_fire_time"])
        for text, weekday, hour in ((ONE_LINE, 0, 2), (TWO_LINES, 6, 3), (ONE_LINE, 0, 2)):
            began_s = time.monotonic()
            (by_model.root / "ome.toml").write_text(text)

            def is_in_force(weekday: int = weekday, hour: int = hour) -> bool:
                now = strategy(by_model)
                if not now["enabled"] or now["next_fire_time"] is None:
                    return False
                at = dt.datetime.fromisoformat(now["next_fire_time"])
                return (weekday, hour, 0) == (at.weekday(), at.hour, at.minute)

            conftest.wait_for(is_in_force, "the new line in force", 4)
            assert time.monotonic() - began_s < 3, "a save is in force within two seconds"

    def test_A03_states_of_a_trigger_are_told_apart(self, by_model: Andrew) -> None:
        """Unknown is 404; what is no strategy of the clock, or is switched off, is not dispatched."""
        answer = by_model.daemon.http.post(TRIGGERED, json={"name": "reflect_episode"})
        assert (404, "NOT_FOUND") == (answer.status_code, answer.json()["error"]["code"])
        assert "reflect_episodes" in answer.json()["error"]["message"]
        nothing = by_model.post(TRIGGERED, {"name": "extract_foresight"})
        assert ("not_dispatched", 0, []) == (nothing["status"], nothing["dispatched"], nothing["runs"])

    def test_R06_a_merge_that_lies_is_refused_and_harms_nothing(self, by_model: Andrew) -> None:
        """Another name, a number too many and a fact that nobody said: flagged, nothing written, everything found."""
        assert by_model.model is not None
        lie = {"subject": "Andrew's cats", "content": "Andrew moved to Lisbon with 7 cats, Tobias and Buddy, in 2019."}
        model = by_model.model
        model.say("merge", lie, lie)
        model.say("merge_repair", lie, lie)
        before = files(by_model)
        dry = by_model.run(dry_run=True)
        (shown,) = dry["runs"][0]["result"]["clusters"]
        assert shown["narrative"] is None
        assert shown["reason"]
        done = by_model.run()
        assert ("ok", "success") == (done["status"], done["runs"][0]["status"]), done
        assert "skipped" in done["runs"][0]["result"]
        assert before == files(by_model)
        assert [] == by_model.reports()
        assert 3 == len(by_model.found())

    def test_R06_a_dry_run_shows_and_writes_nothing(self, by_model: Andrew) -> None:
        """The clusters, the narrative, the difference and the check; and not a byte of the memory is another one."""
        before = files(by_model)
        answer = by_model.run(dry_run=True)
        (shown,) = answer["runs"][0]["result"]["clusters"]
        assert ("andrew", "init", 3) == (shown["owner_id"], shown["mode"], len(shown["sources"]))
        assert NARRATIVE == shown["narrative"]["content"]
        assert "\n+" in shown["diff"]
        assert shown["check"]
        assert before == files(by_model)
        assert [] == by_model.reports()

    def test_the_walkthrough_as_it_is_printed(self, by_model: Andrew) -> None:
        """Trigger, audit and search, one after the other, by curl, jq and sqlite3."""
        _walk(by_model)
        (first, *_) = by_model.found("hybrid", query=QUESTION)
        assert (NARRATIVE, None) == (first["episode"], first["session_id"])
        assert ([], "", "Conversation") == (first["sender_ids"], first["summary"], first["type"])
        assert by_model.shell(AUDIT).startswith("cl_")
        (one,) = by_model.reports()
        assert (3, "completed") == (len(one["before"]), one["status"])
        assert NARRATIVE == one["after"]["content"]
        assert {"deprecated"} == {each["status"] for each in one["before"]}

    def test_the_files_say_what_became_of_it(self, by_model: Andrew) -> None:
        """The narrative says that it came from a cluster; the frontmatter of the originals says what replaced them."""
        text = "".join(path.read_text() for path in sorted((by_model.root / USER / "episodes").glob("*.md")))
        (one,) = by_model.reports()
        narrative = one["merged_entry_id"]
        assert 3 == len(re.findall(rf"^  ep_\d{{8}}_\d+: {narrative}$", text, re.MULTILINE))
        written = text.partition(f"<!-- entry:{narrative} -->")[2].partition("<!-- /entry")[0]
        assert (
            f"**owner_id**: andrew\n**timestamp**: {TALKS[-1][0]}T12:00:00+00:00\n**parent_type**: cluster\n" in written
        )
        assert f"**parent_id**: {one['cluster_id']}\n" in written
        assert "session_id" not in written
        for _, said in TALKS:
            assert said in text
        entry = by_model.daemon.http.get(f"/api/v1/entries/andrew_{narrative}").json()["data"]
        assert [each["id"] for each in one["before"]] == entry["sources"]
        assert ("cluster", None, None) == (entry["parent_type"], entry["session_id"], entry["deprecated_by"])
        assert entry["facts"]

    def test_a_second_run_and_the_python_example(self, by_model: Andrew) -> None:
        """Without anything new nothing is written, and the snippet says that it is done."""
        before = files(by_model)
        scope: dict[str, Any] = {}
        exec(SNIPPET.replace(":8000", f":{by_model.daemon.http.base_url.port}"), scope)  # noqa: S102  # as it is printed
        assert "ok" == asyncio.run(scope["trigger_reflection"]())
        assert {"status": "ok", "name": "reflect_episodes"}.items() <= json.loads(by_model.shell(TRIGGER)).items()
        assert before == files(by_model)
        assert 1 == len(by_model.reports())

    def test_a_run_that_takes_longer_says_timeout_and_ends_well(self, by_model: Andrew) -> None:
        """Something new joins, the model takes its time: `timeout`; the same again is under way; then it is an update."""
        assert by_model.model is not None
        by_model.tell(*LATER)
        by_model.model.delays_s["merge"] = 1.0
        by_model.model.script(
            "merge", {"subject": "Andrew's dogs", "content": f"{NARRATIVE} Toby weighs 18 kilograms."}
        )
        slow = by_model.run(timeout=0.2)
        assert ("timeout", 1, "running") == (slow["status"], slow["dispatched"], slow["runs"][0]["status"])
        again = by_model.run()
        assert ("not_dispatched", 0) == (again["status"], again["dispatched"])
        assert [slow["runs"][0]["run_id"]] == [one["run_id"] for one in again["runs"]]
        conftest.wait_for(lambda: len(by_model.reports()) == 2, "the update")
        newest, oldest = by_model.reports()
        assert ("update", 2, "init", 3) == (
            newest["mode"],
            newest["source_count"],
            oldest["mode"],
            oldest["source_count"],
        )
        assert newest["cluster_id"] == oldest["cluster_id"]
        assert oldest["merged_entry_id"] in {one["member_id"] for one in newest["source_members"]}
        (only,) = by_model.found()
        assert "18 kilograms" in only["episode"]

    def test_it_is_undone_newest_first(self, by_model: Andrew) -> None:
        """The older one is refused with the later one's id; undone in order all four fragments are found, and stay so."""
        newest, oldest = by_model.reports()
        refused = by_model.daemon.http.post(ROLLBACK, json={"report_id": oldest["report_id"]})
        assert (409, "CONFLICT") == (refused.status_code, refused.json()["error"]["code"])
        assert f"andrew_{newest['merged_entry_id']}" in refused.json()["error"]["message"]
        undone = by_model.post(ROLLBACK, {"merged_entry_id": f"andrew_{newest['merged_entry_id']}"})["data"]
        assert 2 == len(undone["restored"])
        assert f"andrew_{newest['merged_entry_id']}" == undone["retired"]
        assert 2 == len(by_model.found())
        undone = by_model.post(ROLLBACK, {"report_id": oldest["report_id"]})["data"]
        assert 3 == len(undone["restored"])
        assert {text for _, text in (*TALKS, LATER)} == {one["episode"] for one in by_model.found()}
        assert ["rolled_back"] * 2 == [one["status"] for one in by_model.reports()]


@pytest.mark.timeout(120)  # the first of a run, for which everything is imported
@pytest.mark.xdist_group("seeds-extractive")
class TestWithoutAModel:
    """The same with nothing but the fragments' own statements."""

    def test_A03_the_walkthrough_as_it_is_printed(self, extractive: Andrew) -> None:
        """The narrative holds every statement, in order of time, and ends on how things stand."""
        off = extractive.run(force=False)
        assert ("not_dispatched", 0, []) == (off["status"], off["dispatched"], off["runs"])
        _walk(extractive)
        (one,) = extractive.found()
        for _, text in TALKS:
            for statement in ("no pets yet", "4 years old", "two dogs now, Toby and Buddy"):
                if statement in text:
                    assert statement in one["episode"]
        at = [one["episode"].rindex(word) for word in ("no pets", "4 years", "two dogs")]
        assert sorted(at) == at
        assert one["session_id"] is None
        assert "**extracted_by**: extractive" in "".join(
            path.read_text() for path in (extractive.root / USER / "episodes").glob("*.md")
        )

    def test_M17_narratives_are_got_in_every_page_and_order(self, extractive: Andrew) -> None:
        """200 with session_id null wherever a narrative stands; what it replaced is listed only where that is asked for."""
        orders = [(by, order) for by in ("timestamp", "updated_at") for order in ("asc", "desc")]
        for by, order in orders:
            body = {"memory_type": "episode", "user_id": "andrew", "sort_by": by, "sort_order": order}
            data = extractive.post(GET, body)["data"]
            assert (1, [None]) == (data["total_count"], [one["session_id"] for one in data["episodes"]])
            asked = body | {"include_status": ["active", "deprecated"], "page_size": 1}
            pages = [extractive.post(GET, asked | {"page": page})["data"]["episodes"] for page in (1, 2, 3, 4, 5)]
            assert [1, 1, 1, 1, 0] == [len(page) for page in pages]
            narratives = [one for page in pages for one in page if one["session_id"] is None]
            assert ["active"] == [one["status"] for one in narratives]

    def test_S07_what_was_replaced_is_found_on_no_path(self, extractive: Andrew) -> None:
        """Keyword, vector, hybrid, list and by session; also after a restart and a rebuild. With its status where asked for."""
        self._is_hidden(extractive)
        extractive.daemon.http.post("/api/v1/admin/rebuild").raise_for_status()
        extractive.daemon.wait_settled()
        self._is_hidden(extractive)

    def _is_hidden(self, andrew: Andrew) -> None:
        for method in ("keyword", "vector", "hybrid"):
            (only,) = conftest.wait_for(lambda method=method: andrew.found(method), method)  # type: ignore[misc]
            assert only["session_id"] is None
            shown = andrew.found(method, include_status=["active", "deprecated"])
            replaced = [one for one in shown if one["status"] == "deprecated"]
            assert (4, 3) == (len(shown), len(replaced))
            assert {only["id"]} == {one["deprecated_by"] for one in replaced}
            for date, _ in TALKS:
                assert [] == andrew.found(method, filters={"session_id": f"s_{date}"})
            facts = [fact["id"] for fact in only["atomic_facts"]]
            assert bool(facts) == (method == "hybrid")
            for one in facts:
                assert "active" == andrew.daemon.http.get(f"/api/v1/entries/{one}").json()["data"]["status"]

    def test_the_commands_show_and_undo_it(self, extractive: Andrew) -> None:
        """`reports` shows both sides, `rollback` undoes it, `reflect` then leaves it alone; with a daemon running."""
        said = cli(extractive, "reports", "--full")
        assert "before\n" in said
        assert "undo: everosd rollback " in said
        (one,) = extractive.reports()
        assert "3 fragments restored" in cli(extractive, "rollback", f"andrew_{one['merged_entry_id']}")
        assert 3 == len(extractive.found())
        assert "nothing to consolidate" in cli(extractive, "reflect")
        assert "rolled back" in cli(extractive, "reports")
        assert "rolled back already" in cli(extractive, "rollback", one["report_id"], code=1)

    def test_alone_the_commands_do_the_same(self, extractive: Andrew) -> None:
        """With the daemon stopped `reflect` shows what it would do, does it, and `rollback` takes it back."""
        extractive.tell(*LATER)  # of what was undone alone nothing is made again
        assert 0 == extractive.daemon.stop()
        before = files(extractive)
        said = cli(extractive, "reflect", "--dry-run")
        assert "dry run: 1 narrative would be written" in said
        assert before == files(extractive)
        said = cli(extractive, "reflect")
        assert re.search(r"4 fragments → 1 narrative", said), said
        assert "18 kilograms" in said
        (report,) = re.findall(rf"everosd rollback --root {re.escape(str(extractive.root))} ([0-9a-f]{{32}})", said)
        assert "4 fragments restored" in cli(extractive, "rollback", report)


def cli(andrew: Andrew, name: str, *arguments: str, code: int = 0) -> str:
    """Run a command on Andrew's root, in this process, and return what it prints."""
    env = {
        "EVEROS_EMBEDDING__MODEL": "none",
        "EVEROS_REFLECTION__MERGE": "extractive",
        "EVEROS_CLUSTERING__TIME_WINDOW_DAYS": "400",
    }
    done = testing.CliRunner(env=env).invoke(app.commands, [name, "--root", str(andrew.root), *arguments])
    said = done.output if done.exception is None else f"{done.output}{done.exception}"
    assert code == done.exit_code, said
    return said


def files(andrew: Andrew) -> dict[str, str]:
    """Return all of Andrew's memory, as it stands in its files."""
    return {str(path.relative_to(andrew.root)): path.read_text() for path in sorted((andrew.root / USER).rglob("*.md"))}


def _walk(andrew: Andrew) -> None:
    """Type the end-to-end example and look at what it prints."""
    said = andrew.shell(WALKTHROUGH)
    triggered, rest = json.JSONDecoder().raw_decode(said)
    assert {"status": "ok", "name": "reflect_episodes"}.items() <= triggered.items()
    audit, _, hit = said[rest:].strip().partition("\n")
    assert re.fullmatch(r"init\|3\|ep_\d{8}_\d{4,}", audit), audit
    found = json.loads(hit)
    assert found["session_id"] is None
    assert "two dogs" in found["episode"]
    assert found["subject"]
    assert 1 == len(andrew.found())
