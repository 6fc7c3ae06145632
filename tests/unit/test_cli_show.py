"""How answers are shown to people."""

from __future__ import annotations

import datetime as dt

import msgspec
import pytest

from everosd.cascade import status
from everosd.cli import excerpt, show

READY = status.Status(
    phase="ready",
    lsn=42,
    files_on_disk=3,
    files_indexed=3,
    entries=1_204,
    pending=0,
    failed_retryable=0,
    failed_permanent=0,
    problems=(),
    n_problems=0,
    owners=2,
    scan_age_s=75.0,
    projections={"text": status.ProjectionStatus(lsn=42, behind=0, documents=1_200, age_s=0.0)},
)


def shown(now: status.Status) -> str:
    return "\n".join(show.status(msgspec.json.decode(msgspec.json.encode(now))))


def test_status_says_that_everything_is_searchable() -> None:
    """A daemon with nothing to do says so in words."""
    assert "ready; everything on disk is searchable" in shown(READY)
    assert "1,204 entries of 2 owners in 3 files" in shown(READY)
    logs = msgspec.structs.replace(READY, rows=1)
    assert "1,204 entries of 2 owners and 1 row of logs in 3 files" in shown(logs)
    assert "1,200 documents, ok" in shown(READY)
    assert "inotify, disk compared 1 min 15 s ago" in shown(READY)


def test_status_never_calls_a_busy_daemon_done() -> None:
    """Pending changes and a start-up in progress are shown with their figures."""
    busy = msgspec.structs.replace(READY, phase="reconciling", done=10, total=2_000, pending=7)
    assert "reconciling, 10 of 2,000 files compared; 7 changes pending" in shown(busy)
    assert "everything on disk is searchable" not in shown(busy)


def test_status_shows_alarm_and_degraded_watching() -> None:
    """What is wrong is shown whatever else is well."""
    bad = msgspec.structs.replace(
        READY,
        alarm="12 files are gone",
        watch_healthy=False,
        watch_mode="polling",
        watch_reason="limit",
    )
    text = shown(bad)
    assert "ALARM: 12 files are gone" in text
    assert "polling, disk compared 1 min 15 s ago; DEGRADED: limit" in text


def test_status_shows_what_else_health_says() -> None:
    """Settings that wait for a restart, and files on disk that are not indexed, are shown too."""
    text = shown(
        msgspec.structs.replace(READY, files_on_disk=5, notices=("changed settings wait for a restart: api.port",))
    )
    assert "in 3 files (5 on disk)" in text
    assert "NOTE: changed settings wait for a restart: api.port" in text


def test_one_of_a_thing_is_said_in_the_singular() -> None:
    """A first note is one entry of one owner in one file."""
    first = msgspec.structs.replace(READY, entries=1, owners=1, files_on_disk=1, files_indexed=1, failed_permanent=1)
    assert "1 entry of 1 owner in 1 file\n" in shown(first)
    assert "; 1 file not read as it should be" in shown(first)


def test_status_names_file_line_and_reason() -> None:
    """A file that is not read as it should be is named with line and reason."""
    problem = status.FileProblem(path="a/b.md", reason="frontmatter does not parse", line=3, kind="error")
    text = shown(msgspec.structs.replace(READY, problems=(problem,), n_problems=1))
    assert "1 thing needs a look:" in text
    assert "error      a/b.md:3: frontmatter does not parse" in text


def test_long_problem_lists_are_cut_and_counted() -> None:
    """Two hundred problems do not scroll the rest away, and how many are left out is said."""
    problems = tuple(status.FileProblem(path=f"{n}.md", reason="x") for n in range(50))
    text = shown(msgspec.structs.replace(READY, problems=problems, n_problems=50))
    assert "… and 30 more" in text


def test_hits_show_score_title_text_and_id() -> None:
    """A hit shows what a person needs to recognise it."""
    item = {
        "id": "lena_ep_20260516_00000001",
        "subject": "Lena adopts Pesto",
        "episode": "word " * 200,
        "timestamp": "2026-05-16T17:45:00Z",
        "score": 0.832,
    }
    text = show.hits({"episodes": [item]})
    assert text.startswith("0.83  Lena adopts Pesto  2026-05-16 17:45")
    assert text.endswith("lena_ep_20260516_00000001")
    assert len(text.splitlines()) == 2 + excerpt.LINES


def test_a_hit_tells_what_its_score_is_made_of() -> None:
    """One line for itself, with the words that matched, and one for the fact that lifts it; nothing without `explain`."""
    fact = {"content": "Mara's dog is called Bilbo. " * 9, "keyword": 0.5, "similarity": None, "score": 0.375}
    why = {"keyword": 0.6, "similarity": 0.4, "own": 0.5, "lift": 0.5, "fact": fact, "words": ["puppy", "mara"]}
    hit = {"id": "mara_ep_1", "subject": "A puppy", "episode": "Mara took in a puppy.", "score": 0.59}
    text = show.hits({"episodes": [hit | {"explain": why}]})
    assert "      = 0.50 by itself: words 0.60 (puppy, mara), meaning 0.40\n" in text
    assert "      + a fact of 0.38 (words 0.50, meaning -): Mara's dog is called Bilbo." in text
    assert "by itself" not in show.hits({"episodes": [hit]})
    dated = show.hits({"episodes": [hit | {"explain": why | {"dated": 0.5}}]})
    assert dated.endswith("\n      + its moment fits when it was by 0.50")
    later = show.hits({"episodes": [hit | {"explain": why | {"corrects": "mara_af_1"}}]})
    assert later.endswith("\n      + as much as what it corrects has: mara_af_1")
    alone = why | {"keyword": None, "words": [], "fact": None}
    assert show.hits({"episodes": [hit | {"explain": alone}]}).endswith("by itself: words -, meaning 0.40")


def test_hits_flag_what_is_not_active() -> None:
    """With --all a deprecated entry cannot be taken for a live one."""
    item = {"id": "x", "subject": "s", "episode": "", "status": "deprecated", "score": 1}
    assert "[deprecated]" in show.hits({"episodes": [item]})


def test_no_hits_are_said() -> None:
    """An empty answer is not an empty screen."""
    assert show.hits({"episodes": [], "agent_cases": []}) == "nothing found"


def test_the_tail_of_a_search_by_meaning_is_counted_instead_of_shown() -> None:
    """Everything is somewhat near: only what comes near the best is shown, and how to see the rest is said."""

    def found(*scores: float) -> dict[str, object]:
        return {
            "episodes": [{"id": f"id{n}", "subject": "s", "episode": "", "score": one} for n, one in enumerate(scores)]
        }

    weak = found(0.07, 0.03, 0.02, 0.0)
    assert "id3" in show.hits(weak)
    text = show.hits(weak, has_tail=False)
    assert "id1" in text
    assert "id2" not in text
    assert text.endswith("\n\n2 weaker hits left out: --min-score 0 shows them")
    nothing = "nothing found\n\n1 weaker hit left out: --min-score 0 shows it"
    assert nothing == show.hits(found(0.004), has_tail=False)
    assert "left out" not in show.hits(found(0.9, 0.5), has_tail=False)
    assert "nothing found" == show.hits(found(), has_tail=False)


def test_verdict_lists_differences_and_what_to_type() -> None:
    """A verify that found something says what, where, and how to mend it."""
    report = {
        "is_clean": False,
        "entries": 3,
        "files": 1,
        "differences": [{"what": "missing", "path": "a.md", "entry_id": "ep_20260101_00000001", "detail": ""}],
        "unreadable": ["b.md"],
    }
    lines = list(show.verdict(report, 1.25))
    assert lines[0] == "NOT CLEAN: 3 entries of 1 file compared in 1.2 s"
    assert lines[1] == "  missing: a.md ep_20260101_00000001"
    assert lines[2] == "  not compared, cannot be read: b.md"
    assert "everosd rebuild" in lines[3]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.25, "0.2 s"), (12, "12 s"), (75, "1 min 15 s"), (3_700, "1 h 1 min"), (200_000, "2 d 7 h")],
)
def test_spans_have_two_units_at_most(seconds: float, text: str) -> None:
    """A length of time is shown in units that a person thinks in."""
    assert show.span(seconds) == text


def test_since_survives_a_moment_that_is_none() -> None:
    """A lock file without a start time does not break status."""
    now = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
    assert show.since("", now) == ""
    assert show.since("2026-03-01T11:58:00+00:00", now) == "2 min 0 s"
