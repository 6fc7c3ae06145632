"""The command that forgets somebody."""

from __future__ import annotations

import sys
from typing import Annotated, cast

import typer

from everosd import config, types
from everosd.cli import asking, show
from everosd.cli import root as root_folder

commands = typer.Typer(rich_markup_mode=None)

SHOWN = 20
"""Entries of others that are named in a terminal; `--json` has more."""


@commands.command()
def forget(
    *,
    root: asking.Root = None,
    owner: Annotated[str, typer.Option("--owner", metavar="ID", help="Whom.", show_default=False)],
    agent: Annotated[bool, typer.Option("--agent", help="An agent, not a person.")] = False,
    app: asking.App = "default",
    project: asking.Project = "default",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for the id to be typed once more.")] = False,
    as_json: asking.Json = False,
) -> None:
    """Remove everything of a person or an agent, for good. Files, messages, and all that was derived from them.

    What others remember of them stays, and is named. Typing the same again finishes what was interrupted.
    """
    where = config.root_path(root)
    root_folder.require(where)
    known = types.nfc(asking.legible(owner))
    kind = "agent" if agent else "user"
    if not yes:
        _confirm(f"everything of {kind} {known} in app {app}, project {project} of {where} is removed, for good", known)
    body = {
        f"{kind}_id": known,
        "app_id": asking.legible(app),
        "project_id": asking.legible(project),
        "confirm": known,
    }
    result, took_s = asking.work(where, "forget", "forgetting", body)
    left = cast("list[str]", result.get("left") or [])
    if as_json:
        asking.print_json(result)
    else:
        _show(result, took_s, known)
        for reason in left:
            print(f"left: {reason}", file=sys.stderr)
    if left:
        raise typer.Exit(1)


def _confirm(what: str, known: str) -> None:
    """Have the id typed once more, where somebody sits at a terminal.

    Raises:
        errors.RequestError: nobody does, or another id was typed.
    """
    if not sys.stdin.isatty():
        asking.refuse("nobody is there to confirm it", "add --yes")
    print(what, file=sys.stderr)
    print("type the id to confirm: ", end="", file=sys.stderr, flush=True)
    if types.nfc(sys.stdin.readline().strip()) != known:
        asking.refuse("that is another id; nothing was removed", "type it exactly as it was given")


def _show(result: dict[str, object], took_s: float, known: str) -> None:
    def count(name: str) -> int:
        return cast("int", result.get(name) or 0)

    print(
        f"{known} is forgotten: {show.count(count('files'), 'file')} with {show.count(count('entries'), 'entry')},"
        f" {show.count(count('messages'), 'message')} of {show.count(count('sessions'), 'session')}, in {show.span(took_s)}"
    )
    if n_removed := count("sessions_removed"):
        print(f"nothing was left of {show.count(n_removed, 'session')}")
    if n_quoted := count("quoted"):
        ids = cast("list[str]", result.get("quoted_in") or [])
        more = f" and {n_quoted - SHOWN:,} more" if n_quoted > SHOWN else ""
        print(f"others remember them in {show.count(n_quoted, 'entry')}: {', '.join(ids[:SHOWN])}{more}")
    for place in cast("list[str]", result.get("out_of_reach") or []):
        print(f"out of reach: {place}")
