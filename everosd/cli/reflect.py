"""The commands of reflection: consolidate now, look at what was consolidated, undo one of it."""

from __future__ import annotations

import contextlib
import re
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Annotated, cast

import typer

from everosd import config, errors, types
from everosd.cli import asking, merged, node, progress, reflection, show
from everosd.cli import root as root_folder

commands = typer.Typer(rich_markup_mode=None)

SUCCESS = "success"
NO_MODEL = "no model is set up"
"""What a run says of clusters that it had to skip for want of one."""
BUILT_ON = "a later consolidation"
"""What a rollback is told that has to wait for another one."""
REPORT_ID = re.compile(r"[0-9a-f]{32}")
TICK_S = 0.2

User = Annotated[str | None, typer.Option("--user", metavar="ID", help="Whose. Default: the only user there is.")]


@commands.command()
def reflect(
    *,
    root: asking.Root = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be merged; nothing is written.")
    ] = False,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout",
            metavar="SECONDS",
            help="How long to wait for a daemon, which goes on. Default: a day. Without one the command does it all itself.",
            min=0,
            max=node.MAX_WAIT_S,
            show_default=False,
        ),
    ] = node.MAX_WAIT_S,
    as_json: asking.Json = False,
) -> None:
    """Fold scattered Episodes of one topic into one narrative now. Everybody's; also where it is switched off.

    What it replaces stays in the files, and `everosd rollback` brings it back.
    """
    where = config.root_path(root)
    root_folder.require(where)
    run = reflection.Run(where, is_dry=dry_run)
    waits_s = node.MAX_WAIT_S if node.running(where) is None else timeout  # alone, nobody would go on with it
    with _waiting("reflecting, seconds"):
        node.ask_all(where, run.requests(waits_s), run.take, waits_s=waits_s)
    answer, made = run.answer, run.found()
    if as_json:
        asking.print_json({**answer, "reports": made} if not dry_run else answer)
    else:
        print("\n".join(_said(answer, made, is_dry=dry_run)))
        for note in _notes(answer, made):
            print(f"note: {note}", file=sys.stderr)
    if answer.get("status") != "ok" or any(run.get("status") != SUCCESS for run in show.rows(answer, "runs")):
        raise typer.Exit(1)


@commands.command()
def reports(
    *,
    root: asking.Root = None,
    user: User = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", metavar="ID", help="Only this cluster's.", show_default=False)
    ] = None,
    app: asking.App = "default",
    project: asking.Project = "default",
    limit: Annotated[int, typer.Option("--limit", metavar="N", help="At most so many, 1 to 100.", min=1, max=100)] = 20,
    full: Annotated[bool, typer.Option("--full", help="With the texts before and after, and the difference.")] = False,
    as_json: asking.Json = False,
) -> None:
    """Say what was consolidated, the newest first. With --full also what it was made of, and what became of it."""
    where = config.root_path(root)
    root_folder.require(where)
    scope = {"app_id": asking.legible(app), "project_id": asking.legible(project)}
    asked = scope | {"limit": str(limit)}
    if user is not None:
        asked["user_id"] = asking.legible(user)
    if cluster is not None:
        asked["cluster_id"] = asking.legible(cluster)
    try:
        answer = asking.ask(where, "GET", reflection.reports(asked))
    except errors.RequestError as error:
        if error.field == "user_id" and user is None:
            asking.ask_whose(where, app, project, is_of_users=True)
        raise
    if as_json:
        asking.print_json(answer)
        return
    data = show.section(answer, "data")
    found, total = show.rows(data, "items"), cast("int", data.get("total_count") or 0)
    for one in found:
        print("\n".join(merged.whole(one)) if full else merged.head(one))
        if not full:
            print(f"{merged.INDENT}undo: everosd rollback {one['report_id']}" * (one.get("status") == "completed"))
    if not found:
        print("nothing was consolidated yet")
    if total > len(found):
        print(f"… and {total - len(found):,} older")


@commands.command()
def rollback(
    which: Annotated[
        str, typer.Argument(metavar="REPORT|NARRATIVE", help="Id of a report, or of a narrative.", show_default=False)
    ],
    *,
    root: asking.Root = None,
    user: User = None,
    app: asking.App = "default",
    project: asking.Project = "default",
    as_json: asking.Json = False,
) -> None:
    """Undo one consolidation. What it replaced is found again, its narrative is kept and no longer found.

    The same fragments are not merged again until one is added or edited.
    """
    where = config.root_path(root)
    root_folder.require(where)
    given = asking.legible(which)
    body = {"app_id": asking.legible(app), "project_id": asking.legible(project)}
    body["report_id" if REPORT_ID.fullmatch(given) else "merged_entry_id"] = given
    if user is not None:
        body["user_id"] = asking.legible(user)
    elif types.ENTRY_ID.fullmatch(given):
        users = root_folder.owners(where, app, project, "user")
        if len(users) != 1:
            asking.ask_whose(where, app, project, is_of_users=True)
        body["user_id"] = users[0]
    try:
        answer = asking.ask(where, "POST", f"{asking.API}/reflection/rollback", body)
    except asking.RequestFailed as error:
        if error.code == "CONFLICT" and BUILT_ON in str(error):
            error.hint = "`everosd reports` has them in order: undo the newest first"
        raise
    if as_json:
        asking.print_json(answer)
        return
    data = show.section(answer, "data")
    restored = cast("list[str]", data.get("restored") or [])
    print(f"{show.count(len(restored), 'fragment')} restored: {', '.join(restored)}")
    print(f"retired: {data.get('retired')}, kept in its file")


def _said(answer: show.Body, made: Sequence[show.Body], *, is_dry: bool) -> Iterator[str]:
    """Yield what a run did, or what a dry one would do."""
    if answer.get("status") == "not_dispatched":
        is_running = bool(show.rows(answer, "runs"))
        yield "reflection is running already; nothing else was begun" if is_running else "reflection was not begun"
        return
    for one in made:
        if one.get("reason"):
            yield f"{one.get('owner_id')}  {one.get('cluster_id')}  skipped: {one['reason']}"
            if one.get("check"):
                yield f"{merged.INDENT}checked: {one['check']}"
        else:
            yield from merged.whole(one)
        yield ""
    for run in show.rows(answer, "runs"):
        result = run.get("result")
        yield str(run.get("error") or (_dry_note(made) if is_dry else result) or f"the run is {run.get('status')}")
    if answer.get("status") == "timeout":
        yield "it goes on: `everosd status` says when it has ended, `everosd reports` what came of it"


def _dry_note(made: Sequence[show.Body]) -> str:
    n_skipped = sum(bool(one.get("reason")) for one in made)
    if not made:
        return "dry run: nothing to consolidate"
    skipped = f", {show.count(n_skipped, 'cluster')} would be skipped" if n_skipped else ""
    return f"dry run: {show.count(len(made) - n_skipped, 'narrative')} would be written{skipped}; nothing was changed"


def _notes(answer: show.Body, made: Sequence[show.Body]) -> Iterator[str]:
    """Yield what a person may do about what was not done."""
    said = " ".join(str(run.get("result") or "") for run in show.rows(answer, "runs"))
    if NO_MODEL in said or any(NO_MODEL in str(one.get("reason")) for one in made):
        yield (
            "name a model: everosd set llm.model NAME (and llm.base_url, EVEROS_LLM__API_KEY),"
            " or merge without one: everosd set reflection.merge extractive"
        )
    elif not made and answer.get("status") == "ok":
        yield (
            "a topic needs two Episodes or more that are alike ([clustering] threshold) and near in time"
            " (time_window_days), and is merged again once something new joins it"
        )


@contextlib.contextmanager
def _waiting(title: str) -> Iterator[None]:
    """Show how long something has been taking while the block runs: nobody knows how long it will."""
    began_s, over = time.monotonic(), threading.Event()
    with progress.Progress(title) as shown:

        def tick() -> None:
            while not over.wait(TICK_S):
                shown.update(int(time.monotonic() - began_s), 0)

        ticking = threading.Thread(target=tick, name="waiting", daemon=True)
        ticking.start()
        try:
            yield
        finally:
            over.set()
            ticking.join()
