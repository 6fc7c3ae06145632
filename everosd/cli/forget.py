"""The command that forgets: one memory, or all of somebody."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, cast

import msgspec
import typer

from everosd import config, types
from everosd.cli import asking, memories, memory, progress, show, whose
from everosd.cli import root as root_folder

commands = typer.Typer(rich_markup_mode=None)

FORGET = f"{asking.API}/memory/forget"

SHOWN = 20
"""Entries of others that are named in a terminal; `--json` has more."""


@commands.command(epilog="Examples: everosd forget mara_mem_20260302_00000001, or everosd forget --owner mara")
def forget(
    id_: Annotated[
        str | None,
        typer.Argument(metavar="[ID]", help="One memory or Episode: hidden, until it is restored.", show_default=False),
    ] = None,
    *,
    root: asking.Root = None,
    owner: Annotated[
        str | None,
        typer.Option(
            "--owner",
            metavar="ID",
            help="Instead: everything of this person, for good. The same as --everything --user.",
            show_default=False,
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--everything", help="With --user or --agent: all that is theirs, for good.")
    ] = False,
    hard: Annotated[bool, typer.Option("--hard", help="With ID: remove it from the files, for good.")] = False,
    redact: Annotated[
        bool, typer.Option("--redact", help="With ID: remove its text, for good; the entry stays.")
    ] = False,
    replacement: Annotated[
        str | None,
        typer.Option(
            "--replacement", metavar="TEXT", help="With --redact: what stands there instead.", show_default=False
        ),
    ] = None,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Why; goes into the log.", show_default=False)
    ] = "",
    user: whose.User = None,
    agent: whose.Agent = None,
    app: asking.App = "default",
    project: asking.Project = "default",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for the id to be typed once more.")] = False,
    as_json: asking.Json = False,
) -> None:
    """Forget one memory, or everything of a person or an agent.

    One memory is hidden and can be restored; --redact and --hard remove text for good, wherever it went, and say what would go first.
    With --owner or --everything all files, messages and what was derived from them are removed. What others remember stays, and is named.
    Typing the same again finishes what was interrupted.
    """
    where = config.root_path(root)
    root_folder.require(where)
    if (id_ is not None) + (owner is not None) + everything != 1:
        asking.refuse(
            "say what is to be forgotten: the id of a memory, or --owner",
            "everosd forget mara_mem_20260302_00000001, or everosd forget --owner mara",
        )
    if id_ is None and (hard or redact or replacement is not None or reason):
        asking.refuse("--hard, --redact, --replacement and --reason go with the id of a memory", "leave them out")
    given = whose.Whose(user=user, agent=agent, app=app, project=project)
    if id_ is None:
        _forget_owner(where, _all_of(owner, given), yes=yes, as_json=as_json)
        return
    mode = _mode(hard=hard, redact=redact, has_replacement=replacement is not None)
    known = types.nfc(asking.legible(id_))
    body: dict[str, object] = {"memory_id": known, "reason": asking.legible(reason), **given.fields()}
    body["mode"] = mode
    if replacement is not None:
        body["replacement_content"] = asking.legible(replacement)
    with memory.known(), whose.asks(where, given):
        if mode != "soft_delete" and not yes:
            _confirm(_what_would_go(where, body), known)
        with progress.waiting("forgetting"):
            answer = asking.ask(where, "POST", FORGET, {**body, "confirm": mode != "soft_delete"})
    data = show.section(answer, "data")
    left = cast("list[str]", data.get("left") or [])
    if as_json:
        asking.print_json(answer)
    else:
        again = asking.root_option(where) + given.typed()
        print("\n".join(memories.forgotten(data, f"everosd memory restore{again} {data.get('id')}")))
        for one in left:
            print(f"left: {one}", file=sys.stderr)
    if left:
        raise typer.Exit(1)


def _mode(*, hard: bool, redact: bool, has_replacement: bool) -> str:
    """Return how a memory is to be forgotten."""
    if hard and redact:
        asking.refuse("--hard and --redact exclude each other", "leave one of them out")
    if has_replacement and not redact:
        asking.refuse("--replacement goes with --redact", "add --redact, or change it: everosd memory update")
    return "hard_delete" if hard else "redact" if redact else "soft_delete"


def _all_of(owner: str | None, given: whose.Whose) -> whose.Whose:
    """Return of whom everything is to be removed: nobody whom nobody has named."""
    if owner is None:
        if given.user is None and given.agent is None:
            asking.refuse("--everything needs to be told of whom", "add --user ID or --agent ID")
        return given
    if given.user is not None or given.agent is not None:
        asking.refuse(
            "--owner names a person by itself", "leave --user and --agent out; of an agent: --everything --agent ID"
        )
    return msgspec.structs.replace(given, user=owner)


def _what_would_go(root: Path, body: dict[str, object]) -> str:
    """Return what a removal would remove; nothing is removed."""
    try:
        asking.ask(root, "POST", FORGET, body)
    except asking.RequestFailed as error:
        if error.code == "CONFIRMATION_REQUIRED":
            return str(error).partition("; it cannot be undone")[0] + "; it cannot be undone"
        raise
    return f"{body['memory_id']} would be removed, for good"


def _forget_owner(where: Path, given: whose.Whose, *, yes: bool, as_json: bool) -> None:
    """Remove everything of a person or an agent."""
    fields = given.fields()
    kind = "user" if given.agent is None else "agent"
    known = types.nfc(fields[f"{kind}_id"])
    if not yes:
        place = f"app {given.app}, project {given.project} of {where}"
        _confirm(f"everything of {kind} {known} in {place} would be removed, for good", known)
    body = {**fields, f"{kind}_id": known, "confirm": known}
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
    """Say what would go, and have the id typed once more where somebody sits at a terminal.

    Raises:
        errors.RequestError: nobody does, or another id was typed.
    """
    print(what, file=sys.stderr)
    if not sys.stdin.isatty():
        asking.refuse("nobody is there to confirm it; nothing was removed", "add --yes")
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
