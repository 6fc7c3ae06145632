"""The commands that put something into memory, and that bring back what matters."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal, NoReturn, cast

import typer

from everosd import config, errors
from everosd.cli import asking, memories, show, whose
from everosd.cli import root as root_folder

commands = typer.Typer(rich_markup_mode=None)

STDIN = "-"
PATH_HINT = "a path says what it is about, like a folder: projects/atlas, people/mara, preferences"
MAX_TEXT_BYTES = 4 << 20
"""Of standard input: far above what a memory may have, so that a wrong file is refused without being read."""

Type = Literal["working", "episodic", "semantic", "procedural", "identity"]


@commands.command(epilog='Example: everosd remember projects/atlas "Atlas ships on 3 May 2026" --key atlas-release')
def remember(
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="What it is about, like a folder: projects/atlas.", show_default=False)
    ],
    text: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TEXT|-]", help="What to remember. Default, and -: standard input.", show_default=False
        ),
    ] = None,
    *,
    root: asking.Root = None,
    type_: Annotated[
        Literal["auto", "working", "episodic", "semantic", "procedural", "identity"],
        typer.Option("--type", help="Of what sort. auto: episodic where --session is given, else semantic."),
    ] = "auto",
    subject: Annotated[
        str | None, typer.Option("--subject", metavar="TITLE", help="A title.", show_default=False)
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            "--key",
            metavar="KEY",
            help="Its semantic key: of what has the same key one memory is active, and this updates it.",
            show_default=False,
        ),
    ] = None,
    importance: Annotated[
        float | None,
        typer.Option("--importance", metavar="N", help="0 to 1. Default: 0.5.", min=0, max=1, show_default=False),
    ] = None,
    confidence: Annotated[
        float | None,
        typer.Option("--confidence", metavar="N", help="0 to 1. Default: 0.7.", min=0, max=1, show_default=False),
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option("--expires", metavar="TIME", help="Found until then, e.g. 2026-12-31.", show_default=False),
    ] = None,
    at: Annotated[
        str | None, typer.Option("--at", metavar="TIME", help="When it happened. Default: now.", show_default=False)
    ] = None,
    pin: Annotated[bool, typer.Option("--pin", help="Never let it decay or be archived.")] = False,
    dedupe: Annotated[
        bool, typer.Option("--dedupe", help="Write nothing where a memory at the same path says the same.")
    ] = False,
    session: Annotated[
        str | None, typer.Option("--session", metavar="ID", help="Of which conversation.", show_default=False)
    ] = None,
    bucket: Annotated[str, typer.Option("--bucket", metavar="NAME", help="A compartment of the memory.")] = "public",
    scope: Annotated[
        str | None, typer.Option("--scope", metavar="NAME", help="A label to filter by.", show_default=False)
    ] = None,
    team: Annotated[
        str | None, typer.Option("--team", metavar="ID", help="Another label to filter by.", show_default=False)
    ] = None,
    promotion_key: Annotated[
        str | None,
        typer.Option(
            "--promotion-key",
            metavar="KEY",
            help="What episodic memories of the same fact have in common. Default: their text.",
            show_default=False,
        ),
    ] = None,
    metadata: Annotated[
        str | None, typer.Option("--metadata", metavar="JSON", help="An object of your own.", show_default=False)
    ] = None,
    provenance: Annotated[
        str | None,
        typer.Option("--provenance", metavar="JSON", help="An object: where it is from.", show_default=False),
    ] = None,
    source: Annotated[
        list[str] | None,
        typer.Option("--source", metavar="ID", help="What it was made from; may be repeated.", show_default=False),
    ] = None,
    user: whose.User = None,
    agent: whose.Agent = None,
    app: asking.App = "default",
    project: asking.Project = "default",
    as_json: asking.Json = False,
) -> None:
    """Keep a typed memory. It is a Markdown file below memories/PATH, which you can edit, and found from then on."""
    where = config.root_path(root)
    root_folder.require(where)
    given = whose.Whose(user=user, agent=agent, app=app, project=project)
    owner = given.fields()
    if user is agent is None and not root_folder.owners(where, app, project, "user"):
        asking.refuse(f"{where} has no memory in app {app}, project {project}", "say whose this is: --user <you>")
    body: dict[str, object] = {"path": asking.legible(path), "content": content_of(text), **owner}
    body |= {"memory_type": type_, "pinned": pin, "dedupe": dedupe, "bucket": asking.legible(bucket)}
    texts = {
        "subject": subject,
        "semantic_key": key,
        "expires_at": expires,
        "timestamp": at,
        "session_id": session,
        "scope": scope,
        "team_id": team,
        "promotion_key": promotion_key,
        "metadata": metadata,
        "provenance": provenance,
    }
    body |= {name: asking.legible(value) for name, value in texts.items() if value is not None}
    body |= {
        name: value for name, value in (("importance", importance), ("confidence", confidence)) if value is not None
    }
    if source:
        body["source_ids"] = [asking.legible(one) for one in source]
    with whose.asks(where, given):
        answer = ask_with_path(where, f"{asking.API}/memory/remember", body)
    if as_json:
        asking.print_json(answer)
        return
    print("\n".join(memories.written(show.section(answer, "data"))))


@commands.command(epilog='Example: everosd recall "what did we decide about the release?" --path "projects/%"')
def recall(
    query: Annotated[list[str], typer.Argument(metavar="QUERY", help="What it is about; any text is a query.")],
    *,
    root: asking.Root = None,
    max_items: Annotated[
        int, typer.Option("--max-items", metavar="N", help="At most so many memories, 1 to 100.", min=1, max=100)
    ] = 10,
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", metavar="N", help="The text is at most so long.", min=1, max=100_000)
    ] = 1500,
    type_: memories.TypeFilter = "%",
    path: memories.PathFilter = "%",
    bucket: memories.BucketFilter = "%",
    scope: memories.ScopeFilter = None,
    team: memories.TeamFilter = None,
    user: whose.User = None,
    agent: whose.Agent = None,
    app: asking.App = "default",
    project: asking.Project = "default",
    as_json: asking.Json = False,
) -> None:
    """Print what memory has on something as one text. It is dated, newest state first, and has the ids of its sources."""
    where = config.root_path(root)
    asked = asking.legible(" ".join(query))
    if not asked.strip():
        asking.refuse("there is nothing to look for", "give some words, e.g.: everosd recall the flat")
    given = whose.Whose(user=user, agent=agent, app=app, project=project)
    body: dict[str, object] = {"query": asked, "max_items": max_items, "max_tokens": max_tokens, **given.fields()}
    body |= memories.filters(type_=type_, path=path, bucket=bucket, scope=scope, team=team)
    with whose.asks(where, given):
        answer = asking.ask(where, "POST", f"{asking.API}/memory/recall", body)
    if as_json:
        asking.print_json(answer)
        return
    data = show.section(answer, "data")
    text = str(data.get("text") or "").strip()
    n_left_out = data.get("left_out")
    has_more = isinstance(n_left_out, int) and n_left_out > 0
    print(text or ("nothing fits in so few tokens" if has_more else "nothing is known of that"))
    if isinstance(n_left_out, int) and has_more:
        print(
            f"\nnote: {show.count(n_left_out, 'more hit')} left out: --max-tokens and --max-items let in more",
            file=sys.stderr,
        )
    for reason in cast("list[object]", answer.get("degraded") or data.get("degraded") or []):
        print(f"note: {reason}", file=sys.stderr)


def content_of(text: list[str] | None) -> str:
    """Return the text that was typed, or that comes on standard input.

    Raises:
        errors.RequestError: there is none, or far too much.
    """
    if text and text != [STDIN]:
        found = " ".join(text)
    else:
        if sys.stdin.isatty():
            print("type what to remember; Ctrl-D on a line of its own ends it", file=sys.stderr)
        data = sys.stdin.buffer.read(MAX_TEXT_BYTES + 1)
        if len(data) > MAX_TEXT_BYTES:
            asking.refuse(
                "standard input is larger than a memory may be", "split it: a memory is one statement, or a page"
            )
        found = data.decode("utf-8", "replace").removeprefix("\ufeff")
    found = asking.legible(found)
    if not found.strip():
        asking.refuse("there is nothing to remember", 'e.g.: everosd remember projects/atlas "Atlas ships in May"')
    return found


def ask_with_path(where: Path, route: str, body: dict[str, object]) -> dict[str, object]:
    """Ask a route that takes the path of a memory; what is wrong with it is said of PATH."""
    try:
        return asking.ask(where, "POST", route, body)
    except errors.RequestError as error:
        if error.field == "path":
            _refuse_path(error)
        raise


def _refuse_path(error: errors.RequestError) -> NoReturn:
    refused = errors.RequestError(f"the path {error}")
    refused.hint = PATH_HINT
    raise refused from error
