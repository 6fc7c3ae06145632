"""The last step of the demonstration: three months of fragments become one narrative, and it is undone again."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

from everosd.cli import client, conversation, show

USER = "andrew"
TALKS = ("andrew-august", "andrew-september", "andrew-october")
QUESTION = "How many pets does Andrew have?"
SETTINGS = """\

# For the demonstration: its fragments lie a month apart, and with the 7 days of the default they would be three topics.
[clustering]
time_window_days = 400

# No model is asked: the narrative is what the fragments say, dated, in order.
[reflection]
merge = "extractive"
"""
"""Of the sample root's everos.toml."""
CLUSTERED = "**event**: joined"
CLUSTER = re.compile(r"cl_[0-9a-f]{12}")
API = "/api/v1"
TIMEOUT_S = 40.0
LOOK_S = 0.05
FOLDER = Path("default_app/default_project/users") / USER


def reflect(asked: client.Client, root: Path, say: Callable[[str], None]) -> None:
    """Tell three conversations, merge them, and undo it; show what a search answers each time.

    Raises:
        conversation.NotAsPromised: one of them is not as it should be.
    """
    say("\n8. reflection: scattered fragments become one narrative (everosd reflect; weekly, once it is switched on)")
    for name in TALKS:
        conversation.send(asked, name)
    if not _is_one_topic(root):
        say(f"   left out: the talks were not sorted by topic within {TIMEOUT_S:.0f} s")
        return
    say(
        "   Andrew told of his pets in August, September and October: one topic, by [clustering] time_window_days = 400,"
    )
    say(f"   because the talks lie a month apart. Before, “{QUESTION}” finds fragments, one of them out of date:")
    say("\n".join(_answers(asked, n_wanted=len(TALKS))))
    started_s = time.monotonic()
    run = asked.call("POST", f"{API}/ome/trigger", {"name": "reflect_episodes", "timeout": 60, "force": True})
    took_s = time.monotonic() - started_s
    reports = _reports(asked)
    if run.body.get("status") != "ok" or len(reports) != 1:
        reason = f"nothing was merged: {run.body}"
        raise conversation.NotAsPromised(reason)
    (report,) = reports
    say(f"   merged in {took_s:.1f} s; checked: {report.get('check')}. After, it finds one answer:")
    say("\n".join(_answers(asked, n_wanted=1)))
    say("   the fragments stay in their file, which says what stands for them now:")
    say("\n".join(_pointers(root)))
    undone = asked.call("POST", f"{API}/reflection/rollback", {"report_id": report["report_id"]})
    restored = cast("list[str]", show.section(undone.body, "data").get("restored") or [])
    if len(restored) != len(TALKS):
        reason = f"it was not undone: {undone.body}"
        raise conversation.NotAsPromised(reason)
    _answers(asked, n_wanted=len(TALKS))
    say(f"   undone (everosd rollback {report['report_id']}): the {len(restored)} fragments are found again")


def _is_one_topic(root: Path) -> bool:
    """Wait until all three are members of a cluster, which takes their vectors; tell whether they are, and of one."""
    give_up_s = time.monotonic() + TIMEOUT_S
    while time.monotonic() < give_up_s:
        rows = "".join(path.read_text(encoding="utf-8") for path in (root / FOLDER / ".clusters").glob("*.md"))
        if rows.count(CLUSTERED) == len(TALKS):
            return len(set(CLUSTER.findall(rows))) == 1
        time.sleep(LOOK_S)
    return False


def _answers(asked: client.Client, *, n_wanted: int) -> Iterator[str]:
    """Return lines for what the question finds, once that is as many as wanted: the indexes follow within moments."""
    body = {"user_id": USER, "query": QUESTION, "method": "hybrid", "top_k": 5}
    give_up_s = time.monotonic() + TIMEOUT_S
    found: list[show.Body] = []
    while time.monotonic() < give_up_s:
        answer = asked.call("POST", f"{API}/memory/search", body).body
        found = show.rows(show.section(answer, "data"), "episodes")
        if len(found) == n_wanted:
            return _lines(found)
        time.sleep(LOOK_S)
    reason = f"{QUESTION!r} finds {len(found)} answers, not {n_wanted}"
    raise conversation.NotAsPromised(reason)


def _lines(found: list[show.Body]) -> Iterator[str]:
    for one in found:
        yield f"     {str(one['timestamp'])[:10]}  {one['subject']}  (score {one['score']:.2f})"
        if len(found) == 1:
            yield from (f"       {line}" for line in str(one["episode"]).splitlines() if line.strip())


def _reports(asked: client.Client) -> list[show.Body]:
    answer = asked.call("GET", f"{API}/reflection/reports?user_id={USER}")
    return show.rows(show.section(answer.body, "data"), "items")


def _pointers(root: Path) -> Iterator[str]:
    """Yield the lines of `deprecated_entries`."""
    for path in sorted((root / FOLDER / "episodes").glob("*.md")):
        head = path.read_text(encoding="utf-8").split("---")[1]
        if "deprecated_entries:" in head:
            yield f"     {path.relative_to(root / FOLDER)}"
            pointers = head.partition("deprecated_entries:")[2].splitlines()
            yield from (f"       {line.strip()}" for line in pointers if line.startswith("  "))
