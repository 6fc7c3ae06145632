"""The main job on real input: folders of Markdown appear while the daemon runs, and are found whole and once."""

from __future__ import annotations

import hashlib
import json
import shutil
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench import notes, roots
from tests import effort
from tests.process import conftest

SETTLE_TIMEOUT_S = 90.0
WALKS_OFTEN = {"EVEROS_WATCH__SCAN_INTERVAL_S": "2"}
"""A link that leaves the root is met by the next walk of the root; by default that may take a minute."""
OWN_FOLDERS = (".index", ".cache", ".tmp", ".lock")


def status(daemon: conftest.Daemon) -> dict[str, Any]:
    """Return the daemon's account of itself."""
    answer: dict[str, Any] = daemon.http.get("/api/v1/admin/status").raise_for_status().json()
    found: dict[str, Any] = answer.get("data", answer)
    return found


def settled(daemon: conftest.Daemon, n_entries: int | None = None) -> dict[str, Any]:
    """Wait until everything on disk is searchable (and is `n_entries`), and return the status."""
    if n_entries is None:  # what was written a moment ago may not be noticed yet, and nothing tells how much it is
        daemon.http.post("/api/v1/admin/reconcile", timeout=SETTLE_TIMEOUT_S).raise_for_status()

    def look() -> dict[str, Any] | None:
        now = status(daemon)
        return now if now["pending"] == 0 and now["phase"] == "ready" and n_entries in (None, now["entries"]) else None

    try:
        return conftest.wait_for(look, f"{n_entries or 'all'} entries to be searchable", SETTLE_TIMEOUT_S)
    except AssertionError as error:
        now = status(daemon)
        pytest.fail(
            f"{error}; status: { {name: now[name] for name in ('phase', 'pending', 'entries', 'alarm')} }\n{daemon.log()[-2000:]}"
        )


def episodes_of(daemon: conftest.Daemon, user: str) -> list[dict[str, Any]]:
    """Return all episodes of a user, page by page."""
    items: list[dict[str, Any]] = []
    page = 1
    while True:
        body = {"user_id": user, "memory_type": "episode", "page": page, "page_size": 100}
        data = daemon.http.post("/api/v1/memory/get", json=body).raise_for_status().json()["data"]
        items += data["episodes"]
        if not data["episodes"] or len(items) >= data["total_count"]:
            assert data["total_count"] == len(items)
            return items
        page += 1


def assert_verified(daemon: conftest.Daemon) -> None:
    """Run `everosd verify` against the running daemon: every index equals the Markdown."""
    done = conftest.run("verify", "--root", str(daemon.root), "--json")
    assert (0, True) == (done.returncode, json.loads(done.stdout)["is_clean"]), done.stdout + done.stderr


@pytest.fixture
def locomo_source() -> Path:
    """Return where the LoCoMo conversations are; the test is left out where they are not."""
    source = roots.locomo_path()
    if source is None:
        pytest.skip(f"LoCoMo is not here: set {roots.LOCOMO_VARIABLE} to its JSON file")
    return source


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_locomo_written_while_the_daemon_runs_is_found_whole_and_once(
    daemon: conftest.Daemon, locomo_source: Path
) -> None:
    """Seven long conversations arrive as files: each session and turn is there once, is found, and verify is clean."""
    daemon.start()
    made = roots.write_locomo(daemon.root, locomo_source)
    settled(daemon, len(made.sessions) + len(made.turns))

    for user in {session.user for session in made.sessions}:
        wanted = {f"{user}_{item.entry_id}": item.text for item in made.sessions if item.user == user}
        found = {item["id"]: item["episode"] for item in episodes_of(daemon, user)}
        assert wanted == found
    for turn in made.turns[:: effort.rounds(1, 7)]:
        public = urllib.parse.quote(f"{turn.user}_{turn.entry_id}", safe="")
        answer = daemon.http.get(f"/api/v1/entries/{public}")
        assert 200 == answer.status_code, answer.text
    missed = [
        item.entry_id for item in made.sessions if not _is_first(daemon, item.user, item.text[:1500], item.entry_id)
    ]
    assert [] == missed
    long_turns = [turn for turn in made.turns if len(turn.text.split()) >= 12][:: effort.rounds(2, 12)]
    missed = [turn.entry_id for turn in long_turns if not _is_among(daemon, turn.user, turn.text, turn.parent_id)]
    assert [] == missed
    assert_verified(daemon)

    _edit_like_an_editor(daemon, made)
    settled(daemon, len(made.sessions) + len(made.turns))
    assert_verified(daemon)


def _edit_like_an_editor(daemon: conftest.Daemon, made: roots.Locomo) -> None:
    """Change a word of one session by rename and wait until exactly that session is found by it."""
    user = made.sessions[0].user
    path = min((daemon.root / "default_app/default_project/users" / user / "episodes").glob("*.md"))
    changed = path.read_text(encoding="utf-8").replace("### Content\n", "### Content\nqualmweed\n", 1)
    temporary = path.with_name(".edit.tmp")
    temporary.write_text(changed, encoding="utf-8")
    temporary.replace(path)
    found = conftest.wait_for(lambda: daemon.search("qualmweed", user), "the edit")
    assert ["qualmweed"] == [hit["episode"].split("\n")[0] for hit in found]


def _is_first(daemon: conftest.Daemon, user: str, query: str, entry_id: str) -> bool:
    return [f"{user}_{entry_id}"] == [hit["id"] for hit in daemon.search(query, user, top_k=1)]


def _is_among(daemon: conftest.Daemon, user: str, query: str, entry_id: str) -> bool:
    ids = [hit["id"] for hit in daemon.search(query, user, top_k=10)]
    assert len(set(ids)) == len(ids)
    return f"{user}_{entry_id}" in ids


@pytest.mark.timeout(180)
def test_notes_folder_as_people_have_it_is_found_whole_and_once(daemon: conftest.Daemon) -> None:
    """Hand-written, broken, oddly named files of many scripts: each text is found as often as it stands there."""
    daemon.start(env=WALKS_OFTEN)
    made = notes.write(daemon.root)
    before = _contents(daemon.root)
    settled(daemon)
    assert_as_described(daemon, made)
    assert_verified(daemon)

    assert 0 == daemon.stop()
    daemon.start()
    settled(daemon)
    assert_as_described(daemon, made)

    assert 0 == daemon.stop()
    shutil.rmtree(daemon.root / ".index")
    daemon.start()
    settled(daemon)
    assert_as_described(daemon, made)
    assert_verified(daemon)
    assert before == _contents(daemon.root)
    rows = [row for path in daemon.root.rglob(".lifecycle/*.md") for row in path.read_text().splitlines()]
    assert {"**action**: usage"} == {row for row in rows if row.startswith("**action**:")}


def test_notes_folder_copied_in_before_the_start_reads_the_same(daemon: conftest.Daemon) -> None:
    """The first scan and the watcher agree on what a notes folder holds."""
    made = notes.write(daemon.root)
    daemon.start()
    settled(daemon)
    assert_as_described(daemon, made)


def assert_as_described(daemon: conftest.Daemon, made: notes.Notes) -> None:
    """Compare what searches find, and what status lists, with what the folder's description says."""
    found = tuple((probe.user, probe.query, _count(daemon, probe), probe.why) for probe in made.probes)
    assert notes.expectations(made) == found
    conftest.wait_for(lambda: not unlisted(daemon, made), f"status to list {unlisted(daemon, made)}")


def unlisted(daemon: conftest.Daemon, made: notes.Notes) -> list[notes.Problem]:
    """Return the problems that status does not list as what they are."""
    listed: dict[str, set[str]] = {}
    for problem in status(daemon)["problems"]:
        listed.setdefault(problem["path"], set()).add(problem["kind"])
    return [problem for problem in made.problems if not listed.get(problem.path, set()) & set(problem.kinds)]


def _count(daemon: conftest.Daemon, probe: notes.Probe) -> int:
    """Return how many hits hold the query's text."""
    hits = daemon.search(probe.query, probe.user, top_k=50)
    ids = [hit["id"] for hit in hits]
    assert len(set(ids)) == len(ids)
    return sum(1 for hit in hits if probe.query in f"{hit['subject']}\n{hit['summary']}\n{hit['episode']}".casefold())


def _contents(root: Path) -> dict[str, str]:
    """Return a digest of every file of the root that is not the daemon's own; a search that found a typed memory is noted in its log."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in root.rglob("*")
        if path.is_file() and path.relative_to(root).parts[0] not in OWN_FOLDERS and ".lifecycle" not in path.parts
    }


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_edits_deletes_and_moves_during_an_ingest_leave_what_is_on_disk(daemon: conftest.Daemon) -> None:
    """Files are written, changed, moved and deleted without a pause: in the end the index is the disk, no more and no less."""
    daemon.start()
    made = roots.write(daemon.root, effort.rounds(2_000, 800), n_users=3, per_file=10)
    by_path: dict[str, list[roots.Item]] = {}
    for item in made.items:
        by_path.setdefault(item.path, []).append(item)
    live = {item.word: item.user for item in made.items}
    for number, (path, items) in enumerate(by_path.items()):
        _disturb(daemon.root / path, items, number, live)
    settled(daemon, len(live))
    found = {word: len(daemon.search(word, user, top_k=5)) for word, user in live.items()}
    assert dict.fromkeys(live, 1) == found
    gone = [item for item in made.items if item.word not in live]
    assert [] == [item.word for item in gone if daemon.search(item.word, item.user, top_k=5)]
    assert_verified(daemon)


def _disturb(path: Path, items: list[roots.Item], number: int, live: dict[str, str]) -> None:
    """Do one of several things to a file, by its number; `live` follows."""
    what: list[Callable[[], object]] = [
        lambda: path.rename(path.with_name(f"moved {path.name}")),
        lambda: None,
        lambda: _rewrite(path, items, live),
        path.unlink,
        lambda: shutil.copy2(path, path.with_name(f"{path.name}~")),
    ]
    what[number % 5]()
    if number % 5 == 3:
        for item in items:
            del live[item.word]


def _rewrite(path: Path, items: list[roots.Item], live: dict[str, str]) -> None:
    """Change the first entry's word in place."""
    word = f"{items[0].word}x"
    path.write_text(path.read_text(encoding="utf-8").replace(items[0].word, word), encoding="utf-8")
    live[word] = live.pop(items[0].word)
