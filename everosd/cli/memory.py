"""The commands about single typed memories: look, change, pin, bring back, and what became of them."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, cast

import typer

from everosd import config
from everosd.cli import asking, memories, remember, show, whose

commands = typer.Typer(
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Look at typed memories, change them, bring them back. `everosd remember` makes one, `everosd forget` removes one.",
)

Id = Annotated[str, typer.Argument(metavar="ID", help="As search, recall and list show it.", show_default=False)]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; goes into the log.", show_default=False)]
CLEARABLE = (
    "subject",
    "importance",
    "confidence",
    "expires_at",
    "semantic_key",
    "promotion_key",
    "metadata",
    "provenance",
)
"""Fields that can be taken away."""
HINTS = {
    "is at version": "nothing was changed; everosd memory show ID has what it says now",
    "was redacted": "remember what is to be known instead: everosd remember PATH TEXT",
    "removed for good": "there is nothing to bring back; remember it anew: everosd remember PATH TEXT",
    "is active under the semantic_key": "update or forget that one, or use another key",
    "in a consolidation": "everosd rollback undoes that; everosd reports has its id",
}
"""What to do about a change that was refused, by what is said of it."""
NOT_KNOWN = "everosd memory list has the ids; --user, --agent, --app and --project say whose"


@commands.command("list", epilog='Example: everosd memory list --path "projects/%" --limit 20')
def list_(
    *,
    root: asking.Root = None,
    type_: memories.TypeFilter = memories.ANY,
    path: memories.PathFilter = memories.ANY,
    status: Annotated[
        list[str] | None,
        typer.Option(
            "--status",
            metavar="STATUS",
            help=f"{memories.STATUSES}; may be repeated. Default: active.",
            show_default=False,
        ),
    ] = None,
    include_all: Annotated[bool, typer.Option("--all", help="Of every status.")] = False,
    limit: memories.Limit = 50,
    offset: memories.Offset = 0,
    user: whose.User = None,
    agent: whose.Agent = None,
    app: asking.App = "default",
    project: asking.Project = "default",
    as_json: asking.Json = False,
) -> None:
    """List typed memories, the newest first. Each with its importance, its path, and when it expires or is archived."""
    where = config.root_path(root)
    given = whose.Whose(user=user, agent=agent, app=app, project=project)
    wanted = ("active", "deprecated", "expired", "superseded", "archived", "deleted") if include_all else status
    asked: dict[str, object] = {
        **given.fields(),
        **memories.filters(type_=type_, path=path),
        "kind": "memory",
        "status": ",".join(wanted or ("active",)),
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
        print("no such memory")
        if whose.says_nobody(where, given):
            return
        others = {
            name: n for name, n in show.section(data, "counts").items() if n and name not in (wanted or ("active",))
        }
        if others:
            told = ", ".join(f"{n:,} {name}" for name, n in cast("dict[str, int]", others).items())
            print(f"note: {told}: --all lists what is put away", file=sys.stderr)


@commands.command("show", epilog="Example: everosd memory show mara_mem_20260302_00000001")
def show_(
    id_: Id,
    *,
    root: asking.Root = None,
    user: whose.User = None,
    agent: whose.Agent = None,
    app: asking.App = "default",
    project: asking.Project = "default",
    as_json: asking.Json = False,
) -> None:
    """Show all of a memory: what it says, its fields, where it stands. Takes the id of any entry."""
    where = config.root_path(root)
    given = whose.Whose(user=user, agent=agent, app=app, project=project)
    with known(), whose.asks(where, given):
        answer = asking.ask(where, "GET", whose.entry(id_, whose.only(where, id_, given)))
    if as_json:
        asking.print_json(answer)
        return
    print("\n".join(memories.whole(show.section(answer, "data"))))


@commands.command(epilog='Example: everosd memory update mara_mem_20260302_00000001 "Atlas ships on 10 May" --expect 2')
def update(
    id_: Id,
    text: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TEXT|-]", help="What it is to say; - is standard input. Default: as it is.", show_default=False
        ),
    ] = None,
    *,
    root: asking.Root = None,
    subject: Annotated[
        str | None, typer.Option("--subject", metavar="TITLE", help="Another title.", show_default=False)
    ] = None,
    type_: Annotated[remember.Type | None, typer.Option("--type", help="Another sort.", show_default=False)] = None,
    path: Annotated[
        str | None, typer.Option("--path", metavar="PATH", help="Move it there.", show_default=False)
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="Another semantic key.", show_default=False)
    ] = None,
    promotion_key: Annotated[
        str | None, typer.Option("--promotion-key", metavar="KEY", help="Another promotion key.", show_default=False)
    ] = None,
    importance: Annotated[
        float | None, typer.Option("--importance", metavar="N", help="0 to 1.", min=0, max=1, show_default=False)
    ] = None,
    confidence: Annotated[
        float | None, typer.Option("--confidence", metavar="N", help="0 to 1.", min=0, max=1, show_default=False)
    ] = None,
    expires: Annotated[
        str | None, typer.Option("--expires", metavar="TIME", help="Found until then.", show_default=False)
    ] = None,
    metadata: Annotated[
        str | None, typer.Option("--metadata", metavar="JSON", help="Another object.", show_default=False)
    ] = None,
    provenance: Annotated[
        str | None, typer.Option("--provenance", metavar="JSON", help="Another object.", show_default=False)
    ] = None,
    clear: Annotated[
        list[str] | None,
        typer.Option(
            "--clear",
            metavar="FIELD",
            help=f"Take it away: {', '.join(CLEARABLE)}; may be repeated.",
            show_default=False,
        ),
    ] = None,
    expect: Annotated[
        int | None,
        typer.Option(
            "--expect", metavar="VERSION", help="Only where it is at this version.", min=1, show_default=False
        ),
    ] = None,
    reason: Reason = "",
    user: whose.User = None,
    agent: whose.Agent = None,
    app: asking.App = "default",
    project: asking.Project = "default",
    as_json: asking.Json = False,
) -> None:
    """Change a typed memory. What it said before is kept as a version; `everosd memory versions` shows it."""
    where = config.root_path(root)
    given = whose.Whose(user=user, agent=agent, app=app, project=project)
    for one in clear or ():
        if one not in CLEARABLE:
            asking.refuse(f"--clear {one}: there is no such field to take away", f"there are {', '.join(CLEARABLE)}")
    texts = {
        "content": remember.content_of(text) if text else None,
        "subject": subject,
        "memory_type": type_,
        "path": path,
        "semantic_key": key,
        "promotion_key": promotion_key,
        "expires_at": expires,
        "metadata": metadata,
        "provenance": provenance,
    }
    body: dict[str, object] = {name: asking.legible(value) for name, value in texts.items() if value is not None}
    numbers = {"importance": importance, "confidence": confidence, "expected_version": expect}
    if not body and importance is confidence is None and not clear:
        asking.refuse("nothing is to be another", 'give a text, or an option: everosd memory update ID "new text"')
    body |= {name: value for name, value in numbers.items() if value is not None}
    _change(where, id_, given, {**body, "clear": clear or [], "reason": asking.legible(reason)}, as_json=as_json)


@commands.command(epilog="Example: everosd memory pin mara_mem_20260302_00000001")
def pin(
    id_: Id,
    *,
    root: asking.Root = None,
    reason: Reason = "",
    user: whose.User = None,
    agent: whose.Agent = None,
    app: asking.App = "default",
    project: asking.Project = "default",
    as_json: asking.Json = False,
) -> None:
    """Keep a typed memory as important as it is. Pinned ones never decay and are never archived."""
    given = whose.Whose(user=user, agent=agent, app=app, project=project)
    body: dict[str, object] = {"pinned": True, "reason": asking.legible(reason)}
    _change(config.root_path(root), id_, given, body, done="pinned", as_json=as_json)


@commands.command(epilog="Example: everosd memory unpin mara_mem_20260302_00000001")
def unpin(
    id_: Id,
    *,
    root: asking.Root = None,
    reason: Reason = "",
    user: whose.User = None,
    agent: whose.Agent = None,
    app: asking.App = "default",
    project: asking.Project = "default",
    as_json: asking.Json = False,
) -> None:
    """Let a pinned memory go the way of the others. The time before does not count."""
    given = whose.Whose(user=user, agent=agent, app=app, project=project)
    body: dict[str, object] = {"pinned": False, "reason": asking.legible(reason)}
    _change(config.root_path(root), id_, given, body, done="not pinned any more", as_json=as_json)


@commands.command(epilog="Example: everosd memory restore mara_mem_20260302_00000001 --reason 'still true'")
def restore(
    id_: Id,
    *,
    root: asking.Root = None,
    reason: Reason = "",
    user: whose.User = None,
    agent: whose.Agent = None,
    app: asking.App = "default",
    project: asking.Project = "default",
    as_json: asking.Json = False,
) -> None:
    """Bring back what was forgotten, archived, expired or superseded. A typed memory or an Episode."""
    where = config.root_path(root)
    given = whose.Whose(user=user, agent=agent, app=app, project=project)
    body = {"memory_id": asking.legible(id_), "reason": asking.legible(reason), **given.fields()}
    with known(), whose.asks(where, given):
        answer = asking.ask(where, "POST", f"{asking.API}/memory/restore", body)
    if as_json:
        asking.print_json(answer)
        return
    data = show.section(answer, "data")
    if data.get("was") == "active":
        print(f"{data.get('id')} is active; nothing was changed")
    else:
        print(f"{data.get('id')} is found again; it was {data.get('was')}\n    {data.get('file')}")


@commands.command(epilog="Example: everosd memory versions mara_mem_20260302_00000001 --full")
def versions(
    id_: Id,
    *,
    root: asking.Root = None,
    full: Annotated[bool, typer.Option("--full", help="All of them, with their whole texts.")] = False,
    user: whose.User = None,
    agent: whose.Agent = None,
    app: asking.App = "default",
    project: asking.Project = "default",
    as_json: asking.Json = False,
) -> None:
    """Say what a memory said before and what happened to it. The newest first."""
    where = config.root_path(root)
    given = whose.Whose(user=user, agent=agent, app=app, project=project)
    with known(), whose.asks(where, given):
        answer = asking.ask(where, "GET", whose.entry(id_, given, what="/history"))
    if as_json:
        asking.print_json(answer)
        return
    print("\n".join(memories.history(show.section(answer, "data"), full=full)))


@commands.command(epilog='Example: everosd memory explain mara_mem_20260302_00000001 "when does Atlas ship?"')
def explain(
    id_: Id,
    query: Annotated[
        list[str] | None,
        typer.Argument(metavar="[QUERY]", help="Also why this finds it, or does not.", show_default=False),
    ] = None,
    *,
    root: asking.Root = None,
    user: whose.User = None,
    agent: whose.Agent = None,
    app: asking.App = "default",
    project: asking.Project = "default",
    as_json: asking.Json = False,
) -> None:
    """Say why a memory is as it is. Its status, its importance, what changed it, and when what is due."""
    where = config.root_path(root)
    given = whose.Whose(user=user, agent=agent, app=app, project=project)
    body: dict[str, object] = {"memory_id": asking.legible(id_), **given.fields()}
    if query:
        body["query"] = asking.legible(" ".join(query))
    with known(), whose.asks(where, given):
        answer = asking.ask(where, "POST", f"{asking.API}/memory/explain", body)
    if as_json:
        asking.print_json(answer)
        return
    print("\n".join(memories.explained(show.section(answer, "data"))))


@commands.command(epilog="Example: everosd memory use mara_mem_20260302_00000001")
def use(
    ids: Annotated[
        list[str], typer.Argument(metavar="ID…", help="What was of use, at most 200 ids.", show_default=False)
    ],
    *,
    root: asking.Root = None,
    user: whose.User = None,
    agent: whose.Agent = None,
    app: asking.App = "default",
    project: asking.Project = "default",
    as_json: asking.Json = False,
) -> None:
    """Say that memories were of use. What is used does not decay; what a daemon finds counts by itself."""
    where = config.root_path(root)
    given = whose.Whose(user=user, agent=agent, app=app, project=project)
    body = {"memory_ids": [asking.legible(one) for one in ids], **given.fields()}
    with whose.asks(where, given):
        answer = asking.ask(where, "POST", f"{asking.API}/memory/usage", body)
    data = show.section(answer, "data")
    unknown = cast("list[str]", data.get("unknown") or [])
    if as_json:
        asking.print_json(answer)
    else:
        print(f"{show.count(cast('int', data.get('noted') or 0), 'use')} noted")
        for one in unknown:
            print(f"not known: {one}", file=sys.stderr)
    if unknown:
        raise typer.Exit(1)


@commands.command(epilog="Example: everosd memory stats --user mara")
def stats(
    *,
    root: asking.Root = None,
    user: whose.User = None,
    agent: whose.Agent = None,
    app: asking.App = "default",
    project: asking.Project = "default",
    as_json: asking.Json = False,
) -> None:
    """Count typed memories: by sort, status, path and bucket."""
    where = config.root_path(root)
    given = whose.Whose(user=user, agent=agent, app=app, project=project)
    with whose.asks(where, given):
        answer = asking.ask(where, "GET", whose.url("memory/stats", given.fields()))
    if as_json:
        asking.print_json(answer)
        return
    print("\n".join(memories.numbers(show.section(answer, "data"))) or "there is no typed memory")


def _change(
    where: Path, id_: str, given: whose.Whose, change: dict[str, object], *, done: str = "updated", as_json: bool
) -> None:
    """Change a memory and say what became of it."""
    body = {"memory_id": asking.legible(id_), **change, **given.fields()}
    with known(), whose.asks(where, given):
        answer = remember.ask_with_path(where, f"{asking.API}/memory/update", body)
    if as_json:
        asking.print_json(answer)
        return
    print("\n".join(memories.written(show.section(answer, "data"), done)))


@contextlib.contextmanager
def known() -> Iterator[None]:
    """Say where ids are to be had where one is not known, and what to look at where another was faster."""
    try:
        yield
    except asking.RequestFailed as error:
        if error.code == "NOT_FOUND":
            error.hint = error.hint or NOT_KNOWN
        else:
            error.hint = next((hint for said, hint in HINTS.items() if said in str(error)), error.hint)
        raise
