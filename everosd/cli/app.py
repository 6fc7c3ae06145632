"""The commands: each asks a node, shows the answer, and ends with an exit code."""

from __future__ import annotations

import datetime as dt
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, cast

import msgspec
import typer
from typer import core

import everosd
from everosd import config, errors
from everosd.cli import (
    asking,
    failure,
    forget,
    learn,
    lifecycle,
    mcp,
    memories,
    memory,
    node,
    reflect,
    remember,
    setting,
    show,
    whose,
)
from everosd.cli import root as root_folder
from everosd.cli import serve as serve_command

Method = Literal["keyword", "vector", "hybrid"]

ORDER = (
    *("init", "serve", "status", "doctor", "search", "recall", "add", "remember", "memory", "forget", "lifecycle"),
    *("reflect", "reports", "rollback", "mcp", "set", "unset"),
    *("extract", "trigger", "adopt", "rebuild", "verify", "demo"),
)
"""Of commands in the help: first steps, then memory, what becomes of it, settings, and repair."""


class Ordered(core.TyperGroup):
    """Commands as a person needs them."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return their names; one that is not in the order comes last."""
        return sorted(super().list_commands(ctx), key=lambda one: ORDER.index(one) if one in ORDER else len(ORDER))


commands = typer.Typer(
    name="everosd",
    cls=Ordered,
    help="A memory daemon: Markdown that anyone can edit, searchable within milliseconds of a save.",
    epilog="First steps: everosd init, then everosd serve, then everosd search. Something is wrong: everosd doctor.",
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # they print local variables, and a local variable may be a key
    rich_markup_mode=None,
)

commands.add_typer(learn.commands)
commands.add_typer(remember.commands)
commands.add_typer(memory.commands, name="memory")
commands.add_typer(
    lifecycle.commands, name="lifecycle", short_help="Have typed memories age by rule, and see what became of them."
)
commands.add_typer(forget.commands)
commands.add_typer(reflect.commands)
commands.add_typer(setting.commands)
commands.add_typer(mcp.commands)


def main() -> NoReturn:
    """Run the command that the process's arguments name; every error becomes one message and one exit code."""
    failure.ends(commands)


@commands.callback(invoke_without_command=True)
def _options(
    ctx: typer.Context,
    *,
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.", is_eager=True)] = False,
    root: asking.Root = None,
) -> None:
    if version:
        print(f"everosd {everosd.__version__}")
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        ctx.fail("Missing command.")
    if root is not None:
        ctx.default_map = _with_root(ctx.command, root)


def _with_root(command: object, root: str) -> dict[str, Any]:
    """Return the defaults of a command and of all below it once `--root` stands before it."""
    below = command.commands if isinstance(command, core.TyperGroup) else {}
    return {"root": root, **{name: _with_root(one, root) for name, one in below.items()}}


@commands.command()
def init(*, root: asking.Root = None) -> None:
    """Make a memory root: the folder, everos.toml and ome.toml. What exists stays as it is."""
    where = config.root_path(root)
    made = root_folder.make(where)
    for path in made:
        print(f"made   {path}")
    if not made:
        print(f"{where} is a memory root already; nothing was changed")
    option = asking.root_option(where)
    print(f"\nnext:  everosd serve{option}")
    print(f"then:  save Markdown as {where}/default_app/default_project/users/<you>/episodes/episode-<YYYY-MM-DD>.md")
    print(f"and:   everosd search{option} a few words")


@commands.command()
def serve(
    *,
    root: asking.Root = None,
    host: Annotated[
        str | None,
        typer.Option(
            "--host",
            metavar="ADDRESS",
            help="Address to listen on. Default: [api] host, else 127.0.0.1.",
            show_default=False,
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            metavar="PORT",
            help="TCP port; 0 lets the system choose. Default: [api] port, else 8000.",
            min=0,
            max=65535,
            show_default=False,
        ),
    ] = None,
) -> None:
    """Run the daemon in the foreground until SIGTERM or Ctrl-C."""
    raise typer.Exit(serve_command.run(root, host, port))


@commands.command()
def search(
    query: Annotated[list[str], typer.Argument(metavar="WORDS", help="What to look for; any text is a query.")],
    *,
    root: asking.Root = None,
    user: whose.User = None,
    agent: whose.Agent = None,
    app: asking.App = "default",
    project: asking.Project = "default",
    top_k: Annotated[
        int, typer.Option("--top-k", metavar="N", help="At most so many hits, 1 to 100.", min=1, max=100)
    ] = 10,
    min_score: Annotated[
        float | None,
        typer.Option(
            "--min-score",
            metavar="SCORE",
            help="Leave out weaker hits, 0 to 1. Default: 0; by meaning, without --json, a third of the best score.",
            min=0,
            max=1,
        ),
    ] = None,
    include_all: Annotated[
        bool, typer.Option("--all", help="Also what is deprecated, expired, superseded or archived.")
    ] = False,
    method: Annotated[
        Method,
        typer.Option(
            "--method", help="By words, by meaning, or by both (hybrid). Without a daemon meaning takes longer."
        ),
    ] = "keyword",
    explain: Annotated[bool, typer.Option("--explain", help="Say what each score is made of.")] = False,
    type_: memories.TypeFilter = memories.ANY,
    path: memories.PathFilter = memories.ANY,
    bucket: memories.BucketFilter = memories.ANY,
    scope: memories.ScopeFilter = None,
    team: memories.TeamFilter = None,
    key: Annotated[
        str | None,
        typer.Option(
            "--key", metavar="PATTERN", help="Only with this semantic key; atlas% begins so.", show_default=False
        ),
    ] = None,
    as_json: asking.Json = False,
) -> None:
    """Search one person's or agent's memory."""
    where = config.root_path(root)
    if not " ".join(query).strip():
        asking.refuse("there is nothing to look for", "give some words, e.g.: everosd search fish market")
    given = whose.Whose(user=user, agent=agent, app=app, project=project)
    body: dict[str, object] = {
        "query": asking.legible(" ".join(query)),
        "method": method,
        "top_k": top_k,
        "min_score": min_score or 0.0,
        **given.fields(),
    }
    body |= memories.filters(type_=type_, path=path, bucket=bucket, scope=scope, team=team)
    if key is not None:
        body["semantic_key"] = asking.legible(key)
    if explain:
        body["explain"] = True
    if include_all:
        body["include_status"] = ["active", "deprecated", "expired", "superseded", "archived"]
    with whose.asks(where, given):
        answer = asking.ask(where, "POST", f"{asking.API}/memory/search", body)
    if as_json:
        asking.print_json(answer)
        return
    data = show.section(answer, "data")
    print(show.hits(data, str(body["query"]), has_tail=method == "keyword" or min_score is not None))
    if not any(show.rows(data, name) for name, *_ in show.SHOWN):
        _say_why_nothing(where, given, body)
    for reason in cast("list[object]", answer.get("degraded") or []):
        print(f"\nnote: {reason}", file=sys.stderr)


@commands.command()
def status(*, root: asking.Root = None, as_json: asking.Json = False) -> None:
    """Say what the daemon is doing and which files need a look. Also how far the indexes have come."""
    where = config.root_path(root)
    holder = node.running(where)
    answer = asking.ask(where, "GET", f"{asking.API}/admin/status")
    data = dict(show.section(answer, "data"))
    strategies = [] if holder is None else _strategies(where)
    if as_json:
        known = None if holder is None else msgspec.to_builtins(holder)
        asking.print_json({"root": str(where), "daemon": known, **data, "strategies": strategies})
        return
    if holder is None:
        start = f"everosd serve{asking.root_option(where)}"
        print(f"no daemon serves {where} (start one: {start}); this is what its files say\n")
    else:
        age = show.since(holder.started_at, dt.datetime.now(dt.UTC))
        print(
            f"everosd {everosd.__version__} serves {where}: pid {holder.pid}, port {holder.port}, up {age or 'since unknown'}\n"
        )
    print("\n".join(show.status(data, is_served=holder is not None, strategies=strategies)))


@commands.command()
def rebuild(*, root: asking.Root = None, as_json: asking.Json = False) -> None:
    """Build every index afresh from the Markdown. Accepts the disk as it is: what is gone counts as deleted.

    Search goes on meanwhile.
    """
    result, took_s = asking.work(config.root_path(root), "rebuild", "rebuilding", {})
    if as_json:
        asking.print_json(result)
        return
    print(f"rebuilt in {show.span(took_s)}{_figures(result)}")


@commands.command()
def verify(*, root: asking.Root = None, as_json: asking.Json = False) -> None:
    """Prove that what is served equals the Markdown. Exits with 0 only where every row and document does."""
    result, took_s = asking.work(config.root_path(root), "verify", "verifying", {})
    if as_json:
        asking.print_json(result)
    else:
        print("\n".join(show.verdict(result, took_s)))
    if not result.get("is_clean"):
        raise typer.Exit(failure.exit_code(errors.DerivedIndexError("all", "differs from the Markdown")))


@commands.command()
def adopt(
    path: Annotated[
        str | None,
        typer.Argument(metavar="FILE", help="A file below the root. Default: every file.", show_default=False),
    ] = None,
    *,
    root: asking.Root = None,
    as_json: asking.Json = False,
) -> None:
    """Give hand-written notes ids of their own. Then they can be moved and retitled freely.

    Markers are written around them in the file; the text stays as it is.
    """
    where = config.root_path(root)
    result, took_s = asking.work(
        where, "adopt", "adopting", {"path": None if path is None else asking.legible(asking.below(where, path))}
    )
    refused = cast("list[str]", result.get("refused") or [])
    if as_json:
        asking.print_json(result)
    else:
        n_adopted = cast("int", result.get("entries") or 0)
        print(f"{show.count(n_adopted, 'hand-written entry')} got markers, in {show.span(took_s)}")
        for reason in refused:
            print(f"left as it is: {reason}", file=sys.stderr)
    if refused:
        raise typer.Exit(1)


@commands.command()
def doctor(*, root: asking.Root = None, as_json: asking.Json = False) -> None:
    """Say what is wrong here, and what to type."""
    from everosd.cli import doctor as physician

    findings = physician.examine(config.root_path(root))
    if as_json:
        asking.print_json({"findings": msgspec.to_builtins(findings)})
    else:
        print(physician.report(findings))
    if any(one.level == "fail" for one in findings):
        raise typer.Exit(1)


@commands.command()
def demo(
    *,
    root: Annotated[
        Path | None,
        typer.Option(
            "--root",
            metavar="FOLDER",
            help="Where to make the sample root; it is kept. Default: a temporary one.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """See it work on a sample memory root. It is served, searched, and edited as an editor would; then it is gone."""
    from everosd.cli import demo as show_case

    raise typer.Exit(show_case.run(root))


def _say_why_nothing(root: Path, given: whose.Whose, body: Mapping[str, object]) -> None:
    """Say that there is nobody of that name, which may be misspelt, or what was not looked at."""
    if whose.says_nobody(root, given):
        return
    told = []
    if body.get("method") == "keyword":
        told.append("no memory looked at has these words; --method hybrid goes by their meaning, too")
    if "include_status" not in body:
        told.append("--all looks at what was put away, too")
    told.append(f"everosd lifecycle list{asking.root_option(root)}{given.typed()} names what was forgotten")
    if "%" not in (path := str(body.get("path_filter") or "%")):
        told.append(f"--path {shlex.quote(f'{path}/%')} is all below {path}")
    if told:
        print(f"\nnote: {'; '.join(told)}", file=sys.stderr)


def _strategies(root: Path) -> list[show.Body]:
    """Return what the daemon says of its strategies; nothing while it has none yet."""
    answer = node.ask(root, "GET", f"{asking.API}/ome/strategies")
    return show.rows(show.section(answer.body, "data"), "items")


def _figures(result: dict[str, object]) -> str:
    """Return the counts of a result as `: a 1, b 2`."""
    found = [f"{name.replace('_', ' ')} {value:,}" for name, value in result.items() if type(value) is int]
    return f": {', '.join(found)}" if found else ""
