"""The commands of reflection over answers that are given."""

from __future__ import annotations

import datetime as dt
import shlex
import urllib.parse
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from typer import testing

from everosd.cli import app, client, node
from everosd.cli import root as root_folder

REPORT = {
    "owner_id": "mara",
    "cluster_id": "cl_1",
    "mode": "init",
    "source_count": 2,
    "status": "completed",
    "after": {"subject": "A dog", "content": "Mara has a dog."},
    "before": [{"id": "mara_ep_20260301_00000001", "status": "deprecated", "text": "Mara has a dog."}],
}
SKIPPED = {"owner_id": "mara", "cluster_id": "cl_1", "topic": "Dogs", "reason": "no model is set up", "is_away": True}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a memory root with two people, the one of this process."""
    root_folder.make(tmp_path / "root")
    for user in ("mara", "theo"):
        (tmp_path / "root" / "default_app" / "default_project" / "users" / user).mkdir(parents=True)
    monkeypatch.setenv("EVEROS_ROOT", str(tmp_path / "root"))
    return tmp_path / "root"


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[node.Request], dict[str, Any]]], None]:
    """Have requests answered by a function."""

    def by(function: Callable[[node.Request], dict[str, Any]]) -> None:
        def ask_all(
            _root: Path, requests: Iterable[node.Request], take: Callable[[client.Answer], None], **_: Any
        ) -> None:
            for one in requests:
                take(client.Answer(status=200, body=function(one)))

        monkeypatch.setattr(node, "ask_all", ask_all)

    return by


def run(*arguments: str) -> testing.Result:
    """Run a command in this process."""
    return testing.CliRunner().invoke(app.commands, arguments)


@pytest.mark.usefixtures("root")
def test_reports_of_everybody_are_asked_for_one_by_one(answers: Callable[..., None]) -> None:
    """No request is about several people; the newest is first, whosever it is."""
    asked: list[str] = []

    def answer(one: node.Request) -> dict[str, Any]:
        (user,) = urllib.parse.parse_qs(urllib.parse.urlparse(one.path).query)["user_id"]
        asked.append(user)
        day = {"mara": "2026-03-01", "theo": "2026-03-02"}[user]
        made = REPORT | {"owner_id": user, "created_at": f"{day}T02:00:00Z", "report_id": user}
        return {"data": {"items": [made], "total_count": 2}}

    answers(answer)
    said = run("reports").output
    assert ["mara", "theo"] == asked
    assert said.index("2026-03-02") < said.index("2026-03-01")
    assert "undo: everosd rollback theo" in said
    assert "… and 2 older" in said


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize(("is_away", "code"), [(True, 1), (False, 0)])
def test_what_was_skipped_is_named_and_fails_where_no_model_was_there(
    answers: Callable[..., None], *, is_away: bool, code: int
) -> None:
    """Whose, about what, and why; a cluster that was refused for what it says is no failure of the run."""
    why = SKIPPED | (
        {} if is_away else {"is_away": False, "reason": "says what no source says", "check": "invented: Rex"}
    )
    ended = {"run_id": "r", "status": "success", "error": None, "result": "1 skipped", "detail": {"skipped": [why]}}
    answers(lambda _: {"status": "ok", "name": "reflect_episodes", "dispatched": 1, "runs": [ended]})
    done = run("reflect")
    assert code == done.exit_code
    assert "mara  cl_1  Dogs\n    skipped: " in done.output
    assert ("nothing was merged: no model is set up" in done.output) is is_away
    assert ("invented: Rex" in done.output) is not is_away
    assert "a topic needs two Episodes" not in done.output


@pytest.mark.parametrize("is_usual", [True, False])
def test_a_run_shows_what_it_did_and_nothing_that_was_merged_a_moment_before(
    root: Path, answers: Callable[..., None], monkeypatch: pytest.MonkeyPatch, *, is_usual: bool
) -> None:
    """Its own merges, with a command that undoes them where it was typed; those of the run before are left to `reports`."""
    if not is_usual:
        monkeypatch.delenv("EVEROS_ROOT")
    option = "" if is_usual else f" --root {shlex.quote(str(root))}"
    touched = root / "default_app" / "default_project" / "users" / "mara" / ".clusters" / "clusters-2026-03-02.md"
    touched.parent.mkdir()
    touched.write_text("")
    ids = {"before": "0" * 32, "now": "1" * 32}
    moments = {"before": dt.datetime.now(dt.UTC)}
    is_merging = True

    def made(which: str) -> dict[str, Any]:
        return REPORT | {"app_id": "shop", "report_id": ids[which], "created_at": moments[which].isoformat()}

    def answer(one: node.Request) -> dict[str, Any]:
        if one.method == "GET":
            return {"data": {"items": [made(which) for which in moments], "total_count": len(moments)}}
        if is_merging:
            moments["now"] = dt.datetime.now(dt.UTC)
        done = {"run_id": "r", "status": "success", "error": None, "result": "1 cluster consolidated" * is_merging}
        return {"status": "ok", "name": "reflect_episodes", "dispatched": 1, "runs": [done]}

    answers(answer)
    said = run("reflect", "--root", str(root)).output
    assert f"undo: everosd rollback{option} --app shop {ids['now']}\n" in said
    assert ids["before"] not in said
    is_merging = False
    said = run("reflect", "--root", str(root)).output
    assert "undo:" not in said
    assert "A dog" not in said
    assert f"note: what was merged before: everosd reports{option}\n" in said
