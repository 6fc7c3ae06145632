"""`everosd mcp`: memory for an agent over standard input and output, and the entry that its client needs."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

import typer

from everosd import config
from everosd.cli import asking, mcp_client
from everosd.cli import root as root_folder

commands = typer.Typer(rich_markup_mode=None)


@commands.command()
def mcp(
    what: Annotated[
        Literal["serve", "install"],
        typer.Argument(
            metavar="[install]",
            help="install: show the entry that a client needs. Nothing: speak MCP on standard input.",
        ),
    ] = "serve",
    *,
    root: asking.Root = None,
    client: Annotated[
        mcp_client.Name | None,
        typer.Option(
            "--client",
            metavar="NAME",
            help="With install: claude-code, codex, vscode or cursor. Default: all of them are shown.",
            show_default=False,
        ),
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", help="With install: write the entry into the client's file, after asking.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --write: do not ask.")] = False,
) -> None:
    """Give an agent memory over MCP (stdio). Uses the daemon of the root, or starts one and leaves it running."""
    where = config.root_path(root)
    if what == "install":
        _install(mcp_client.Setup.of_root(where), client, writes=write, asks=not yes)
        return
    if client is not None or write or yes:
        asking.refuse("--client, --write and --yes go with install", "type: everosd mcp install")
    root_folder.require(where)
    from everosd.cli import mcp_stdio

    mcp_stdio.run(where)


def _install(setup: mcp_client.Setup, name: mcp_client.Name | None, *, writes: bool, asks: bool) -> None:
    """Show the entries, and write one where that is wanted and agreed to."""
    if writes and name is None:
        asking.refuse("--write needs --client", f"name one of {', '.join(mcp_client.CLIENTS)}")
    for one in [mcp_client.CLIENTS[name]] if name is not None else mcp_client.CLIENTS.values():
        print(f"{one.title}, in {one.path()}:\n")
        print(one.shown(setup))
    if not writes or name is None:
        print(f"\nto write it: everosd mcp install --client {name or 'NAME'} --write")
        return
    chosen = mcp_client.CLIENTS[name]
    plan = chosen.plan(setup)
    if plan.text == plan.before:
        print(f"{plan.path} has it already; nothing was changed")
        return
    kept = f"; what is there now is kept as {plan.backup.name}" if plan.backup is not None else ""
    what = "the entry `everosd` there is replaced" if plan.replaces else "the entry is added, the rest stays"
    print(f"\n{plan.path} is {'written' if plan.before is not None else 'made'}: {what}{kept}")
    if asks:
        if not sys.stdin.isatty():
            asking.refuse("nobody is here to ask", "add --yes once you have seen what is written")
        typer.confirm("Write it?", abort=True)
    mcp_client.write(plan)
    print(f"wrote  {plan.path}\nnext:  restart {chosen.title}, and ask it what it remembers")
