"""The commands of reflection: consolidate now, look at what was consolidated, undo one of it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, cast

import typer

from everosd import config, errors, types
from everosd.cli import asking, client, merged, node, progress, reflection, show, whose
from everosd.cli import root as root_folder

commands = typer.Typer(rich_markup_mode=None)

SUCCESS = "success"
NO_MODEL = "no model is set up"
"""What a run says of clusters that it had to skip for want of one."""
HINTS = {
    "a later consolidation": "`everosd reports` has them in order: undo the newest first",
    "is rolled back already": "there is nothing to do: what it replaced is found again; `everosd reports` has the others",
    "no such consolidation": "`everosd reports` has the ids of those there are; --user, --app and --project say whose",
}
"""What to do about a rollback that was refused, by what is said of it."""
REPORT_ID = re.compile(r"[0-9a-f]{32}")

User = Annotated[str | None, typer.Option("--user", metavar="ID", help="Whose. Default: the only user there is.")]

Users = Annotated[
    str | None,
    typer.Option("--user", metavar="ID", help="Whose. Default: everybody's in the project.", show_default=False),
]
Full = Annotated[bool, typer.Option("--full", help="With the texts before and after, and the difference.")]


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
    full: Full = False,
    as_json: asking.Json = False,
) -> None:
    """Fold scattered Episodes of one topic into one narrative now. Everybody's; also where it is switched off.

    What it replaces stays in the files, and `everosd rollback` brings it back.
    """
    where = config.root_path(root)
    root_folder.require(where)
    run = reflection.Run(where, is_dry=dry_run)
    waits_s = node.MAX_WAIT_S if node.running(where) is None else timeout  # alone, nobody would go on with it
    with progress.waiting("reflecting"):
        node.ask_all(where, run.requests(waits_s), run.take, waits_s=waits_s)
    answer, made = run.answer, run.found()
    if as_json:
        asking.print_json({**answer, "reports": made} if not dry_run else answer)
    else:
        print("\n".join(_said(where, run, made, is_dry=dry_run, full=full)))
        for note in _notes(where, run, made, is_dry=dry_run):
            print(f"note: {note}", file=sys.stderr)
    if answer.get("status") != "ok" or _failed(run):
        raise typer.Exit(1)
    if not dry_run and not made and (left := run.skipped()) and all(one.get("is_away") for one in left):
        if not as_json:
            print(f"everosd: nothing was merged: {left[0].get('reason')}", file=sys.stderr)
        raise typer.Exit(1)


@commands.command()
def reports(
    *,
    root: asking.Root = None,
    user: Users = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", metavar="ID", help="Only this cluster's.", show_default=False)
    ] = None,
    app: asking.App = "default",
    project: asking.Project = "default",
    limit: Annotated[int, typer.Option("--limit", metavar="N", help="At most so many, 1 to 100.", min=1, max=100)] = 20,
    full: Full = False,
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
    users = root_folder.owners(where, app, project, "user")
    if user is None and len(users) > 1:
        answer = _of_everybody(where, asked, users, limit)
    else:
        answer = _of_one(where, asked, app, project)
    if as_json:
        asking.print_json(answer)
        return
    data = show.section(answer, "data")
    found, total = show.rows(data, "items"), cast("int", data.get("total_count") or 0)
    undoable = merged.undoable(found)
    for one in found:
        undo = _undo(where, one) if one.get("report_id") in undoable else ""
        print("\n".join(merged.whole(one, undo=undo) if full else merged.listed(one, undo=undo)))
    if not found:
        print("nothing was consolidated yet")
        if user is not None and not root_folder.has_owner(where, app, project, "user", user):
            there_is = asking.names(users) or "nobody"
            print(f"note: no user {user} in app {app}, project {project}; there is {there_is}", file=sys.stderr)
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
        error.hint = next((hint for said, hint in HINTS.items() if said in str(error)), error.hint)
        raise
    if as_json:
        asking.print_json(answer)
        return
    data = show.section(answer, "data")
    restored = cast("list[str]", data.get("restored") or [])
    print(f"{show.count(len(restored), 'fragment')} restored: {', '.join(restored)}")
    print(f"retired: {data.get('retired')}{_kept(where, str(data.get('retired')), app, project)}")


def _undo(root: Path, one: show.Body) -> str:
    """Return what is typed to undo a consolidation."""
    space = whose.Whose(app=str(one.get("app_id") or "default"), project=str(one.get("project_id") or "default"))
    return f"everosd rollback{asking.root_option(root)}{space.typed()} {one['report_id']}"


def _kept(root: Path, narrative: str, app: str, project: str) -> str:
    """Say that a narrative is kept, unless no file has it any more."""
    path = reflection.entry({"app_id": asking.legible(app), "project_id": asking.legible(project)}, narrative)
    if node.ask(root, "GET", path).status == asking.OK:
        return ", kept in its file"
    return ", which no file has any more"


def _of_one(root: Path, asked: dict[str, str], app: str, project: str) -> dict[str, object]:
    """Return the reports of the user that is meant; of the only one where none was named."""
    try:
        return asking.ask(root, "GET", reflection.reports(asked))
    except errors.RequestError as error:
        if error.field == "user_id" and "user_id" not in asked:
            asking.ask_whose(root, app, project, is_of_users=True)
        raise


def _of_everybody(root: Path, asked: dict[str, str], users: Sequence[str], limit: int) -> dict[str, object]:
    """Return the newest reports of all users of a scope, asked for one by one: no request is about several people."""
    items: list[show.Body] = []
    total = 0

    def take(got: client.Answer) -> None:
        nonlocal total
        data = show.section(asking.checked(got), "data")
        items.extend(show.rows(data, "items"))
        total += cast("int", data.get("total_count") or 0)

    paths = [reflection.reports(asked | {"user_id": one}) for one in users]
    node.ask_all(root, (node.Request(method="GET", path=path) for path in paths), take, only_reads=True)
    items.sort(key=lambda one: str(one.get("created_at")), reverse=True)
    return {"data": {"items": items[:limit], "total_count": total}}


def _said(root: Path, run: reflection.Run, made: Sequence[show.Body], *, is_dry: bool, full: bool) -> Iterator[str]:
    """Yield what a run did, or what a dry one would do."""
    answer = run.answer
    if answer.get("status") == "not_dispatched":
        is_running = bool(show.rows(answer, "runs"))
        yield "reflection is running already; nothing else was begun" if is_running else "reflection was not begun"
        return
    undoable = merged.undoable(made)
    for one in made:
        undo = _undo(root, one) if one.get("report_id") in undoable else ""
        yield from (merged.whole if full else merged.brief)(one, undo=undo)
        yield ""
    for one in run.skipped():
        yield from merged.skipped(one)
        yield ""
    for each in show.rows(answer, "runs"):
        done = _dry_note(run, made) if is_dry else each.get("result")
        yield str(each.get("error") or done or f"the run is {each.get('status')}")
    if answer.get("status") == "timeout":
        yield "it goes on: `everosd status` says when it has ended, `everosd reports` what came of it"


def _dry_note(run: reflection.Run, made: Sequence[show.Body]) -> str:
    n_skipped = len(run.skipped())
    if not made and not n_skipped:
        n = run.n_undone()
        also = f"{show.count(n, 'topic')} {'was' if n == 1 else 'were'} undone and {'waits' if n == 1 else 'wait'}"
        return "dry run: nothing to consolidate" + (f"; {also} for something new" if n else "")
    skipped = f", {show.count(n_skipped, 'cluster')} would be skipped" if n_skipped else ""
    return f"dry run: {show.count(len(made), 'narrative')} would be written{skipped}; nothing was changed"


def _notes(root: Path, run: reflection.Run, made: Sequence[show.Body], *, is_dry: bool) -> Iterator[str]:
    """Yield what a person may do about what was not done."""
    skipped = run.skipped()
    if any(NO_MODEL in str(one.get("reason")) for one in skipped):
        yield (
            "name a model: everosd set llm.model NAME (and llm.base_url, EVEROS_LLM__API_KEY),"
            " or merge without one: everosd set reflection.merge extractive"
        )
    elif not made and not skipped and not run.n_undone() and run.answer.get("status") == "ok" and not _failed(run):
        clustering = config.load(root).clustering
        yield (
            f"a topic needs two Episodes or more that are alike ([clustering] threshold = {clustering.threshold:g}) and near"
            f" in time (time_window_days = {clustering.time_window_days:g}), and is merged again once something new joins it"
        )
        if not is_dry:
            yield f"what was merged before: everosd reports{asking.root_option(root)}"


def _failed(run: reflection.Run) -> bool:
    return any(one.get("status") != SUCCESS for one in show.rows(run.answer, "runs"))
