"""What people are told of reflection: by the status, the doctor and `everosd set`, in the same words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer import testing

from everosd.cli import app, doctor, show
from everosd.cli import root as root_folder
from everosd.engine import advice, runs, shown

ON = shown.StrategyStatus(name="reflect_episodes", enabled=True, trigger="cron", cron="0 2 * * 1")


def told(*, merges: bool = True, **more: Any) -> list[str]:
    """Return the notices of reflection with other values than `ON`."""
    return list(advice.notices([shown.StrategyStatus(**{**fields(ON), **more})], merges=merges))


def fields(one: shown.StrategyStatus) -> dict[str, Any]:
    return {name: getattr(one, name) for name in one.__struct_fields__}


def run(status: str, **more: Any) -> runs.Record:
    return runs.Record(
        run_id="0" * 32,
        strategy="reflect_episodes",
        trigger="cron",
        status=status,
        attempt=1,
        started_at="2026-03-09T02:00:00+00:00",
        **more,
    )


def test_all_is_well_when_it_runs_weekly_and_something_merges() -> None:
    """A success, a run cut off, and nothing yet, are no reason to say anything."""
    assert [[], [], []] == [told(last_run=last) for last in (None, run("success"), run("released"))]


def test_more_than_weekly_nothing_that_merges_and_what_was_missed_are_told() -> None:
    """Each with what to do; of what is switched off only what it missed or failed."""
    assert told(is_hasty=True, cron="0 2 * * *") == [advice.hasty("0 2 * * *")]
    assert told(merges=False) == [advice.without_model()]
    assert told(enabled=False, is_hasty=True, merges=False) == []
    assert told(last_run=run("missed", error="due at 02:00")) == ["reflect_episodes missed a run: due at 02:00"]
    assert "is tried again: the disk is full" in told(last_run=run("failed", error="the disk is full"))[0]


@pytest.mark.parametrize(
    ("ome", "everos", "level", "word"),
    [
        ("", "", "ok", "switched off"),
        ("enabled = true", "", "warn", "no model is set up"),
        ("enabled = true", '[reflection]\nmerge = "extractive"', "ok", "switched on; next "),
        ('enabled = true\ncron = "0 2 * * *"', '[reflection]\nmerge = "extractive"', "warn", "more than once a week"),
        ("enabled = true", '[llm]\nmodel = "m"\nbase_url = "http://127.0.0.1:1/v1"', "ok", "switched on"),
    ],
)
def test_the_doctor_says_how_reflection_stands(tmp_path: Path, ome: str, everos: str, level: str, word: str) -> None:
    """Off, on with nothing that merges, too often, or on: with the next run in the memory's own zone."""
    (tmp_path / "everos.toml").write_text(f'[memory]\ntimezone = "Asia/Tokyo"\n[embedding]\nmodel = "none"\n{everos}\n')
    (tmp_path / "ome.toml").write_text(f"[strategies.reflect_episodes]\n{ome}\n")
    settings, _ = doctor._settings(tmp_path)
    found = [one for one in doctor._strategies(tmp_path, settings) if one.about == "reflection"]
    assert [(level, True)] == [(one.level, word in one.text) for one in found], found
    assert bool(found[0].hint) == (level == "warn")
    if "next" in word:
        assert found[0].text.endswith(" 02:00, Asia/Tokyo")


def test_set_warns_in_the_same_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who switches it on without a model, or makes it run daily, hears of it at once; the setting is written all the same."""
    root_folder.make(tmp_path)
    monkeypatch.setenv("EVEROS_ROOT", str(tmp_path))
    monkeypatch.delenv("EVEROS_LLM__MODEL", raising=False)
    said = testing.CliRunner().invoke(app.commands, ["set", "reflect_episodes.enabled", "true"]).output
    assert advice.without_model() in said
    said = testing.CliRunner().invoke(app.commands, ["set", "reflect_episodes.cron", "0 3 * * *"]).output
    assert advice.hasty("0 3 * * *") in said
    assert 'cron = "0 3 * * *"' in (tmp_path / "ome.toml").read_text()


def test_the_status_has_a_line_for_each_strategy_that_has_something_to_tell() -> None:
    """The clock's with next and last run; of the others those with something waiting, given up or failed."""
    last = {
        "status": "success",
        "finished_at": "2026-03-09T02:00:04Z",
        "result": "1 cluster consolidated (3 fragments)",
    }
    timed = {
        "name": "reflect_episodes",
        "trigger": "cron",
        "cron": "0 2 * * 1",
        "enabled": True,
        "next_fire_time": "2026-03-16T02:00:00Z",
    }
    event = {"name": "extract_atomic_facts", "trigger": "event", "cron": None, "enabled": True, "next_fire_time": None}
    lines = [
        *show.clockwork(
            [
                timed | {"last_run": last},
                timed | {"last_run": None, "idle_seconds": 600.0},
                timed | {"enabled": False, "next_fire_time": None, "last_run": None},
                event | {"last_run": last, "waiting": 0, "running": 0, "dead": 0},
                event | {"last_run": None, "waiting": 3, "running": 1, "dead": 2},
                event | {"last_run": {"status": "failed", "finished_at": "2026-03-09T02:00:04Z", "error": "no room"}},
            ]
        )
    ]
    pad = " " * 15
    assert [
        "strategies     reflect_episodes: next 2026-03-16 02:00; last success 2026-03-09 02:00 (1 cluster consolidated (3 fragments))",
        f"{pad}reflect_episodes: next 2026-03-16 02:00, after 10 min 0 s of silence",
        f"{pad}reflect_episodes: off",
        f"{pad}extract_atomic_facts: 1 running; 3 waiting; 2 given up",
        f"{pad}extract_atomic_facts: last failed 2026-03-09 02:00 (no room)",
    ] == lines
