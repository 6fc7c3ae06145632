"""The commands of the lifecycle: a pass over memories, what it put away, what the log tells of it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, cast

import typer

from everosd import config
from everosd.cli import asking, client, decided, memories, node, progress, show, whose
from everosd.cli import root as root_folder

commands = typer.Typer(
    rich_markup_mode=None,
    no_args_is_help=True,
    help="What becomes of typed memories by rule: summarize, promote, expire, decay, archive.",
)

MAX_TITLES = 500
"""Memories whose titles are asked for."""
BY_HAND = "pass"
"""What people are shown of a pass by hand: the log calls it by its route, which `everosd reflect` has nothing to do with."""
BY_ROUTE = "reflect"
PIN = "pin"


@commands.command(
    epilog="Example: everosd lifecycle run --dry-run, then everosd lifecycle run --action expire --action archive"
)
def run(
    *,
    root: asking.Root = None,
    action: Annotated[
        list[str] | None,
        typer.Option(
            "--action",
            metavar="NAME",
            help="summarize, promote, expire, decay or archive; may be repeated, and runs in this order. Default: all.",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be decided; nothing is changed.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Go on where so many memories would change that the pass stops.")
    ] = False,
    hours: Annotated[
        float,
        typer.Option(
            "--hours", metavar="N", help="Summarize and promote what happened in the last so many hours.", min=0.001
        ),
    ] = 24.0,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="Instead: from then on.", show_default=False)
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="And up to then. Default: now.", show_default=False)
    ] = None,
    limit: Annotated[
        int,
        typer.Option(
            "--limit",
            metavar="N",
            help="Memories that each action changes at most, the oldest first.",
            min=1,
            max=100_000,
        ),
    ] = 500,
    min_group_size: Annotated[
        int | None,
        typer.Option(
            "--min-group-size",
            metavar="N",
            help="Summarize groups from so many on. Default: [lifecycle] min_group_size.",
            min=1,
            show_default=False,
        ),
    ] = None,
    max_share: Annotated[
        float | None,
        typer.Option(
            "--max-share",
            metavar="SHARE",
            help="Stop where more than this share would change, 0 to 1. Default: [lifecycle] max_share.",
            min=0,
            max=1,
            show_default=False,
        ),
    ] = None,
    path: memories.PathFilter = memories.ANY,
    bucket: memories.BucketFilter = memories.ANY,
    scope: memories.ScopeFilter = None,
    team: memories.TeamFilter = None,
    full: Annotated[bool, typer.Option("--full", help="List every decision, not ten of each.")] = False,
    user: whose.User = None,
    agent: whose.Agent = None,
    app: asking.App = "default",
    project: asking.Project = "default",
    as_json: asking.Json = False,
) -> None:
    """Make a pass over one owner's memories now. Look first with --dry-run: an immediate real pass decides the same.

    Nothing leaves its file; `everosd memory restore` undoes. Everybody's: everosd trigger run_lifecycle --force.
    """
    where = config.root_path(root)
    root_folder.require(where)
    given = whose.Whose(user=user, agent=agent, app=app, project=project)
    body: dict[str, object] = {"dry_run": dry_run, "force": force, "limit": limit, "time_window_hours": hours}
    body |= {"actions": [asking.legible(one) for one in action]} if action else {}
    body |= {name: asking.legible(one) for name, one in (("since", since), ("until", until)) if one is not None}
    numbers = (("min_group_size", min_group_size), ("max_share", max_share))
    body |= {name: one for name, one in numbers if one is not None}
    body |= memories.filters(path=path, bucket=bucket, scope=scope, team=team) | given.fields()
    made = _Pass(body, given, full=full, has_titles=not as_json)
    with whose.asks(where, given), progress.waiting("looking at memories"):
        node.ask_all(where, made.requests(), made.take, waits_s=node.MAX_WAIT_S)
    data = show.section(made.answer, "data")
    if as_json:
        asking.print_json(made.answer)
    else:
        print("\n".join(decided.told(data, made.titles, full=full)))
        for line in _hints(where, data, given):
            print(line, file=sys.stderr)
    if data.get("stopped") and not dry_run:
        raise typer.Exit(1)


@commands.command("list", epilog="Example: everosd lifecycle list --status archived --limit 20")
def list_(
    *,
    root: asking.Root = None,
    status: Annotated[
        list[str] | None,
        typer.Option(
            "--status",
            metavar="STATUS",
            help=f"{memories.STATUSES}; may be repeated. Default: all but active.",
            show_default=False,
        ),
    ] = None,
    limit: memories.Limit = 50,
    offset: memories.Offset = 0,
    user: whose.User = None,
    agent: whose.Agent = None,
    app: asking.App = "default",
    project: asking.Project = "default",
    as_json: asking.Json = False,
) -> None:
    """List what is not found any more, typed memories and Episodes. Why, since when, what took its place, what is due."""
    where = config.root_path(root)
    given = whose.Whose(user=user, agent=agent, app=app, project=project)
    asked: dict[str, object] = {
        **given.fields(),
        "status": asking.legible(",".join(status)) if status else None,
        "limit": limit,
        "offset": offset,
    }
    with whose.asks(where, given):
        answer = asking.ask(where, "GET", whose.url("memory/lifecycle", asked))
    if as_json:
        asking.print_json(answer)
        return
    data = show.section(answer, "data")
    total = memories.print_page(data, offset)
    is_empty = not show.rows(data, "items")
    if is_empty and offset < max(1, total):
        n_active = show.section(data, "counts").get("active") or 0
        print(
            f"nothing was put away: {show.count(cast('int', n_active), 'memory')} active"
            if not status
            else "no such memory"
        )
        whose.says_nobody(where, given)
    if not is_empty and not status:
        print(f"\nbring one back: everosd memory restore{asking.root_option(where)} ID", file=sys.stderr)


@commands.command(epilog="Example: everosd lifecycle audit --action archive --since 2026-03-01")
def audit(
    *,
    root: asking.Root = None,
    action: Annotated[
        str | None,
        typer.Option(
            "--action",
            metavar="NAME",
            help=(
                "Only this: decay, archive, update, …; pin: unpin, too; audit: the calls;"
                " pass: those of lifecycle run; run_lifecycle: those of the strategy."
            ),
            show_default=False,
        ),
    ] = None,
    run_id: Annotated[
        str | None, typer.Option("--run", metavar="ID", help="Only this pass.", show_default=False)
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="From then on.", show_default=False)
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Before then.", show_default=False)
    ] = None,
    limit: memories.Limit = 50,
    offset: memories.Offset = 0,
    user: whose.User = None,
    agent: whose.Agent = None,
    app: asking.App = "default",
    project: asking.Project = "default",
    as_json: asking.Json = False,
) -> None:
    """Say what changed which memory and why, the newest first. Also who looked: passes and dry runs."""
    where = config.root_path(root)
    given = whose.Whose(user=user, agent=agent, app=app, project=project)
    texts = {"action_type": BY_ROUTE if action == BY_HAND else action, "run_id": run_id, "since": since, "until": until}
    asked: dict[str, object] = {name: asking.legible(one) for name, one in texts.items() if one is not None}
    with whose.asks(where, given):
        answer = asking.ask(
            where, "GET", whose.url("memory/audit", {**given.fields(), **asked, "limit": limit, "offset": offset})
        )
    if as_json:
        asking.print_json(answer)
        return
    data = show.section(answer, "data")
    found = show.rows(data, "items")
    for one in found:
        print("\n".join(_row(one)))
    if not found:
        print("the log says nothing of that" if asked or offset else "nothing has happened to any memory yet")
    if data.get("has_more"):
        print(f"… and more: --offset {offset + len(found)}")


class _Pass:
    """The requests of one pass: the pass, then the titles of what it names; where no daemon runs, the root is opened once."""

    def __init__(self, body: dict[str, object], given: whose.Whose, *, full: bool, has_titles: bool) -> None:
        self.answer: dict[str, object] = {}
        self.titles: dict[str, str] = {}
        self._body, self._given, self._full, self._has_titles = body, given, full, has_titles
        self._asked = ""

    def requests(self) -> Iterator[node.Request]:
        """Yield them; each after the answer to the one before was taken."""
        yield node.Request(method="POST", path=f"{asking.API}/memory/reflect", body=self._body)
        if not self._has_titles:
            return
        found = [*decided.listed(show.section(self.answer, "data"), full=self._full)]
        for self._asked in found[:MAX_TITLES]:
            yield node.Request(method="GET", path=whose.entry(self._asked, self._given))

    def take(self, got: client.Answer) -> None:
        """Take the answer to the newest request."""
        if not self.answer:
            self.answer = asking.checked(got)
        elif got.status == asking.OK:
            data = show.section(got.body, "data")
            self.titles[self._asked] = str(data.get("subject") or " ".join(str(data.get("content") or "").split()))


def _hints(where: Path, data: show.Body, given: whose.Whose) -> Iterator[str]:
    """Yield what to type next."""
    again = asking.root_option(where) + given.typed()
    if data.get("stopped"):
        yield f"note: if that is meant: everosd lifecycle run --force{again}"
        yield "note: else look at the tables ([lifecycle] in everos.toml); raise lifecycle.max_share where so much is usual"
    elif data.get("dry_run") and decided.n_applied(data):
        yield "note: to have it done, type the same without --dry-run"
    elif not data.get("dry_run") and decided.n_applied(data):
        yield f"note: undo one: everosd memory restore{again} ID (of a decay: everosd memory update ID --importance N)"
        yield f"note: what was done: everosd lifecycle audit{again} --run {shlex.quote(str(data.get('run_id')))}"
    elif not decided.n_applied(data):
        yield "note: nothing is due; everosd memory list shows when what will be"
    if decided.n_left(data):
        yield "note: the rest is due, too: type the same again, or a larger --limit"


def _row(one: show.Body) -> Iterator[str]:
    """Yield the lines of one row of the log."""
    if one.get("action") != "audit":
        yield memories.changed(
            one if one.get("action") != PIN else {**one, "action": _word(one), "was": "", "value": ""}
        )
        if one.get("target"):
            yield f"      {one['target']}"
        return
    counts = show.section(show.section(one, "counts"), "actions")
    done = ", ".join(f"{name} {_applied(value):,}" for name, value in counts.items() if _applied(value))
    if stopped := show.section(show.section(one, "counts"), "stopped"):
        done = f"STOPPED: {stopped.get('reason')}"
    done = done or "nothing was due"
    dry = ", dry run" if one.get("dry_run") else ""
    error = f"; FAILED: {one['error']}" if one.get("error") else ""
    yield f"{show.minute(str(one.get('timestamp')))}  {BY_HAND if one.get('tool') == BY_ROUTE else one.get('tool')}{dry}: {done}{error}"
    yield f"      run {one.get('run_id')}"


def _word(pinning: show.Body) -> str:
    """Return what a row of pinning did, which the log calls the same either way; both where its text is gone."""
    return {"true": "unpin", "false": PIN}.get(str(pinning.get("was")), "pin/unpin")


def _applied(value: object) -> int:
    """Return how many decisions of an action a row says were applied."""
    found = value.get("apply") if isinstance(value, dict) else 0
    return found if isinstance(found, int) and not isinstance(found, bool) else 0
