"""The requests of one `everosd reflect`, and what they show: merges with the texts before and after."""

from __future__ import annotations

import contextlib
import datetime as dt
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

from everosd import types
from everosd.cli import asking, client, node, show

STRATEGY = "reflect_episodes"
MAX_SOURCES = 500
"""Fragments whose text a dry run shows."""
PAGE = 100
SLACK_S = 2.0
"""Times of files may lie a little behind the clock; those of consolidations are the clock's own."""


class Run:
    """The requests of one `everosd reflect`: the run, then what shows it; where no daemon runs, the root is opened once."""

    def __init__(self, root: Path, *, is_dry: bool) -> None:
        """Send nothing yet."""
        self.answer: dict[str, object] = {}
        self._root, self._is_dry, self._began_s = root, is_dry, time.time()
        self._asked: list[str] = []
        """Public ids of sources whose entries are asked for, in order."""
        self._texts: dict[str, show.Body] = {}
        self._made: list[show.Body] = []

    def requests(self, timeout_s: float) -> Iterator[node.Request]:
        """Yield them; each after the answer to the one before was taken."""
        body = {"name": STRATEGY, "timeout": timeout_s, "force": True, "dry_run": self._is_dry}
        yield node.Request(method="POST", path=f"{asking.API}/ome/trigger", body=body)
        if self._is_dry:
            wanted = [(one, source) for one in self._clusters() for source in _sources(one)]
            for one, source in wanted[:MAX_SOURCES]:
                self._asked.append(source)
                yield node.Request(method="GET", path=entry(one, source))
            return
        for owner in _touched(self._root, self._began_s - SLACK_S):
            asked = {"user_id": owner.id, "app_id": owner.app, "project_id": owner.project, "limit": str(PAGE)}
            yield node.Request(method="GET", path=reports(asked))

    def take(self, got: client.Answer) -> None:
        """Take the answer to the newest request."""
        if not self.answer:
            self.answer = asking.checked(got)
        elif self._is_dry:
            # A narrative that a dry run has only thought of is no entry.
            self._texts[self._asked[-1]] = show.section(got.body, "data") if got.status == asking.OK else {}
        else:
            items = show.rows(show.section(asking.checked(got), "data"), "items")
            self._made += [one for one in items if _is_since(one, self._began_s)]

    def skipped(self) -> list[show.Body]:
        """Return the clusters that were left as they are, or would be, each with its reason."""
        if self._is_dry:
            return [one for one in self._clusters() if one.get("reason")]
        details = [show.section(run, "detail") for run in show.rows(self.answer, "runs")]
        return [one for each in details for one in show.rows(each, "skipped")]

    def n_undone(self) -> int:
        """Return how many topics are just what a rollback has brought back."""
        key = "result" if self._is_dry else "detail"
        return sum(cast("int", show.section(run, key).get("undone") or 0) for run in show.rows(self.answer, "runs"))

    def found(self) -> list[show.Body]:
        """Return what was merged, or would be, the oldest first, as reports have it: with the texts before and after."""
        if not self._is_dry:
            return sorted(self._made, key=lambda one: str(one.get("created_at")))
        return [
            {
                **one,
                "source_count": len(_sources(one)),
                "before": [_before(self._texts.get(source, {}), source) for source in _sources(one)],
                "after": one.get("narrative") or {},
            }
            for one in self._clusters()
            if not one.get("reason")
        ]

    def _clusters(self) -> list[show.Body]:
        """Return what a dry run says."""
        results = [run.get("result") for run in show.rows(self.answer, "runs")]
        return [one for each in results if isinstance(each, Mapping) for one in show.rows(each, "clusters")]


def _sources(one: show.Body) -> list[str]:
    return cast("list[str]", one.get("sources") or [])


def entry(one: show.Body, public_id: str) -> str:
    """Return the path of an entry, in the scope that `one` names."""
    scope = {key: str(one.get(key)) for key in ("app_id", "project_id")}
    return f"{asking.API}/entries/{urllib.parse.quote(public_id, safe='')}?{urllib.parse.urlencode(scope)}"


def _before(entry: show.Body, public_id: str) -> show.Body:
    return {
        "id": public_id,
        "timestamp": entry.get("timestamp"),
        "subject": entry.get("subject") or public_id,
        "text": entry.get("content") or "",
    }


def reports(asked: Mapping[str, str]) -> str:
    """Return the path of a page of reports."""
    return f"{asking.API}/reflection/reports?{urllib.parse.urlencode(asked)}"


def _touched(root: Path, began_s: float) -> list[types.Owner]:
    """Return the users to whose clusters something was added since a moment: a consolidation ends with a row there."""
    from everosd.log import layout

    found: dict[types.Owner, None] = {}
    for path in root.glob("*/*/users/*/.clusters/*.md"):
        place = layout.place(types.RelPath(path.relative_to(root).as_posix()))
        with contextlib.suppress(OSError):
            if place is not None and path.stat().st_mtime >= began_s:
                found[place.owner] = None
    return list(found)


def _is_since(one: show.Body, began_s: float) -> bool:
    try:
        return dt.datetime.fromisoformat(str(one.get("created_at"))).timestamp() >= began_s
    except ValueError:
        return False
