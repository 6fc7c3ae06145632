"""The commands: each asks a node, shows the answer, and ends with an exit code."""

from __future__ import annotations

import datetime as dt
import sys
import time
from pathlib import Path
from typing import Annotated, Literal, NoReturn, cast

import msgspec
import typer

import everosd
from everosd import config, errors
from everosd.cli import client, failure, node, progress, show
from everosd.cli import root as root_folder
from everosd.cli import serve as serve_command

API = "/api/v1"
HINTS = {"user_id": "name one with --user, or an agent with --agent"}
"""What to type where a field of a request is at fault."""
OK = 200

Root = Annotated[
    Path | None,
    typer.Option("--root", help="Memory root. Default: $EVEROS_ROOT, else ~/.everos.", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="Print the answer as JSON, for programs.")]
App = Annotated[str, typer.Option("--app", help="App id.")]
Project = Annotated[str, typer.Option("--project", help="Project id.")]
Method = Literal["keyword", "vector", "hybrid"]

commands = typer.Typer(
    name="everosd",
    help="A memory daemon: Markdown that anyone can edit, searchable within milliseconds of a save.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # they print local variables, and a local variable may be a key
    rich_markup_mode=None,
)


class RequestFailed(errors.EverosdError):
    """The daemon answered that it would not."""

    def __init__(self, body: dict[str, object]) -> None:
        """Take code and message from the error envelope."""
        error = show.section(body, "error")
        super().__init__(f"{error.get('message') or 'the request failed'} ({error.get('code') or 'no code'})")
        self.hint = str(error.get("hint") or "")


def main() -> NoReturn:
    """Run the command that the process's arguments name; every error becomes one message and one exit code."""
    failure.ends(commands)


@commands.callback(invoke_without_command=True)
def _options(
    *, version: Annotated[bool, typer.Option("--version", help="Print the version and stop.", is_eager=True)] = False
) -> None:
    if version:
        print(f"everosd {everosd.__version__}")
        raise typer.Exit


@commands.command()
def init(*, root: Root = None) -> None:
    """Make a memory root: the folder, everos.toml and ome.toml. What exists stays as it is."""
    where = config.root_path(root)
    made = root_folder.make(where)
    for path in made:
        print(f"made   {path}")
    if not made:
        print(f"{where} is a memory root already; nothing was changed")
    option = "" if root is None else f" --root {where}"
    print(f"\nnext:  everosd serve{option}")
    print(f"then save Markdown below {where}/default_app/default_project/users/<you>/episodes/")
    print(f"and:   everosd search{option} a few words")


@commands.command()
def serve(
    *,
    root: Root = None,
    host: Annotated[str | None, typer.Option("--host", help="Address to listen on.", show_default=False)] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", help="TCP port; 0 lets the system choose.", min=0, max=65535, show_default=False),
    ] = None,
) -> None:
    """Run the daemon in the foreground until SIGTERM or Ctrl-C."""
    raise typer.Exit(serve_command.run(None if root is None else str(root), host, port))


@commands.command()
def search(
    query: Annotated[list[str], typer.Argument(help="What to look for; any text is a query.")],
    *,
    root: Root = None,
    user: Annotated[str | None, typer.Option("--user", help="Whose memory. Default: the only user there is.")] = None,
    agent: Annotated[str | None, typer.Option("--agent", help="An agent's memory instead of a person's.")] = None,
    app: App = "default",
    project: Project = "default",
    top_k: Annotated[int, typer.Option("--top-k", help="At most so many hits.", min=1, max=100)] = 10,
    min_score: Annotated[float, typer.Option("--min-score", help="Leave out weaker hits, 0 to 1.", min=0, max=1)] = 0.0,
    include_all: Annotated[bool, typer.Option("--all", help="Also what is deprecated, expired or archived.")] = False,
    method: Annotated[
        Method, typer.Option("--method", help="vector and hybrid answer by keyword for now.")
    ] = "keyword",
    as_json: Json = False,
) -> None:
    """Search one person's or agent's memory."""
    body: dict[str, object] = {
        "query": " ".join(query),
        "app_id": app,
        "project_id": project,
        "method": method,
        "top_k": top_k,
        "min_score": min_score,
        "user_id": user,
        "agent_id": agent,
    }
    if include_all:
        body["include_status"] = ["active", "deprecated", "expired", "superseded", "archived"]
    answer = _ask(root, "POST", f"{API}/memory/search", body)
    if as_json:
        _print_json(answer)
        return
    print(show.hits(show.section(answer, "data")))
    for reason in cast("list[object]", answer.get("degraded") or []):
        print(f"\nnote: {reason}", file=sys.stderr)


@commands.command()
def status(*, root: Root = None, as_json: Json = False) -> None:
    """Say what the daemon is doing, how far the indexes have come, and which files need a look."""
    where = config.root_path(root)
    holder = node.running(where)
    answer = _ask(root, "GET", f"{API}/admin/status")
    data = dict(show.section(answer, "data"))
    if as_json:
        known = None if holder is None else msgspec.to_builtins(holder)
        _print_json({"root": str(where), "daemon": known, **data})
        return
    if holder is None:
        print(f"no daemon serves {where} (start one: everosd serve); this is what its files say\n")
    else:
        age = show.since(holder.started_at, dt.datetime.now(dt.UTC))
        print(
            f"everosd {everosd.__version__} serves {where}: pid {holder.pid}, port {holder.port}, up {age or 'since unknown'}\n"
        )
    print("\n".join(show.status(data, is_served=holder is not None)))


@commands.command()
def rebuild(*, root: Root = None, as_json: Json = False) -> None:
    """Build every index afresh from the Markdown, accepting the disk as it is. Search goes on meanwhile."""
    result, took_s = _work(root, "rebuild", "rebuilding", {})
    if as_json:
        _print_json(result)
        return
    print(f"rebuilt in {show.span(took_s)}{_figures(result)}")


@commands.command()
def verify(*, root: Root = None, as_json: Json = False) -> None:
    """Compare the live state with what a rebuild would make; exits with 0 only where they are equal."""
    result, took_s = _work(root, "verify", "verifying", {})
    if as_json:
        _print_json(result)
    else:
        print("\n".join(show.verdict(result, took_s)))
    if not result.get("is_clean"):
        raise typer.Exit(failure.exit_code(errors.DerivedIndexError("all", "differs from the Markdown")))


@commands.command()
def adopt(
    path: Annotated[
        str | None, typer.Argument(help="A file below the root. Default: every file.", show_default=False)
    ] = None,
    *,
    root: Root = None,
    as_json: Json = False,
) -> None:
    """Give hand-written entries their markers and ids in the file, so that they can be moved and retitled freely."""
    where = config.root_path(root)
    result, took_s = _work(root, "adopt", "adopting", {"path": None if path is None else _below(where, path)})
    if as_json:
        _print_json(result)
        return
    print(f"{result.get('entries', 0):,} hand-written entries got their markers, in {show.span(took_s)}")


@commands.command()
def doctor(*, root: Root = None, as_json: Json = False) -> None:
    """Say what is wrong here, and what to type."""
    from everosd.cli import doctor as physician

    findings = physician.examine(config.root_path(root))
    if as_json:
        _print_json({"findings": msgspec.to_builtins(findings)})
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
            "--root", help="Where to make the sample root; it is kept. Default: a temporary one.", show_default=False
        ),
    ] = None,
) -> None:
    """Make a sample memory root, serve it, search, edit a file as an editor would, and find the new text."""
    from everosd.cli import demo as show_case

    raise typer.Exit(show_case.run(root))


def _ask(root: Path | None, method: str, path: str, body: object = None) -> dict[str, object]:
    """Ask the daemon, or the files alone, and return the body of a good answer."""
    return _checked(node.ask(config.root_path(root), method, path, body))


def _work(root: Path | None, route: str, title: str, body: object) -> tuple[dict[str, object], float]:
    """Have long work done with its progress shown; return its result and how long it took."""
    started_s = time.monotonic()
    with progress.Progress(title) as shown:

        def follow(line: dict[str, object]) -> None:
            if isinstance(line.get("done"), int):
                what = str(line.get("what") or "")
                shown.update(cast("int", line["done"]), cast("int", line.get("total") or 0), f"{title} {what}".rstrip())

        answer = _checked(node.ask(config.root_path(root), "POST", f"{API}/admin/{route}", body, follow))
    return dict(show.section(answer, "result")), time.monotonic() - started_s


def _checked(answer: client.Answer) -> dict[str, object]:
    """Return the body of a good answer.

    Raises:
        RequestError: the answer says that the request was wrong.
        RequestFailed: the answer is another error.
    """
    if answer.status == OK and "error" not in answer.body:
        return answer.body
    error = show.section(answer.body, "error")
    if error.get("code") == "INVALID_INPUT":
        refused = errors.RequestError(str(error.get("message")))
        refused.hint = HINTS.get(refused.args[0].rpartition(": ")[2], "")
        raise refused
    raise RequestFailed(answer.body)


def _below(root: Path, path: str) -> str:
    """Return a path as the log names it: below the root, with forward slashes."""
    given = Path(path)
    full = given if given.is_absolute() or given.exists() else root / given
    try:
        return full.resolve().relative_to(root).as_posix()
    except ValueError:
        raise errors.RootError(str(root), f"{path} is not below it", hint="name a file of this memory root") from None


def _figures(result: dict[str, object]) -> str:
    """Return the counts of a result as `: a 1, b 2`."""
    found = [f"{name.replace('_', ' ')} {value:,}" for name, value in result.items() if type(value) is int]
    return f": {', '.join(found)}" if found else ""


def _print_json(value: object) -> None:
    """Print one JSON document."""
    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())
