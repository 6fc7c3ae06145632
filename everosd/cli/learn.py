"""Commands that make memories: of conversations, of files copied in, of what strategies gave up on."""

from __future__ import annotations

import collections
import datetime as dt
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from everosd import config, errors
from everosd.cli import asking, client, node, progress, show, transcript
from everosd.cli import root as root_folder

commands = typer.Typer(rich_markup_mode=None)

BATCH = 100
"""Messages of one request: few enough that the bar moves."""
STDIN = "-"
RETRIED = (429, 503)


class Outcome(msgspec.Struct, kw_only=True):
    """What has become of a file so far."""

    sessions: int = 0
    messages: int = 0
    extracted: int = 0
    """Sessions of which something was extracted."""
    waiting: list[str] = []
    """Sessions whose messages are kept and not extracted yet, each with its reason."""


@commands.command()
def add(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A conversation, or - for standard input.", show_default=False)
    ],
    *,
    root: asking.Root = None,
    user: Annotated[
        str, typer.Option("--user", metavar="ID", help="Whose messages are those with role `user` and no name.")
    ] = "me",
    agent: Annotated[
        str, typer.Option("--agent", metavar="ID", help="Whose messages are those with role `assistant` and no name.")
    ] = "assistant",
    session: Annotated[
        str | None,
        typer.Option(
            "--session", metavar="ID", help="Session to add to. Default: the file's name.", show_default=False
        ),
    ] = None,
    form: Annotated[
        transcript.Format,
        typer.Option("--format", help="What the file is. auto: what it looks like."),
    ] = "auto",
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="TIME",
            help="When the first message was said, ISO, where the file does not say. Default: when it was saved.",
            show_default=False,
        ),
    ] = None,
    app: asking.App = "default",
    project: asking.Project = "default",
    flush: Annotated[
        bool, typer.Option("--flush/--no-flush", help="Extract it now, or leave it to the daemon.")
    ] = True,
    as_json: asking.Json = False,
) -> None:
    """Take a conversation in: a chat as JSON or JSON lines, a transcript, or LoCoMo.

    The same file twice is taken once.
    """
    where = config.root_path(root)
    root_folder.require(where)
    name, data, saved_at = _read(file)
    zone = config.load(where).memory.zone
    names = transcript.Names(user=asking.legible(user), agent=asking.legible(agent))
    start = saved_at if at is None else _moment(at, zone)
    sessions = transcript.read(data, name, form=form, names=names, start=start, zone=zone)
    if session is not None:
        if len(sessions) > 1:
            asking.refuse(
                f"{file} holds {len(sessions)} conversations", "leave --session out: each has a name of its own"
            )
        sessions = [msgspec.structs.replace(one, id=asking.legible(session)) for one in sessions]
    scope = {"app_id": asking.legible(app), "project_id": asking.legible(project)}
    outcome = _send(where, sessions, scope, has_flush=flush)
    if as_json:
        asking.print_json(outcome)
    else:
        print(
            f"{show.count(outcome.messages, 'message')} of {show.count(outcome.sessions, 'session')} taken;"
            f" {outcome.extracted} extracted"
        )
        for reason in outcome.waiting:
            print(f"kept, and extracted later: {reason}", file=sys.stderr)
    if outcome.waiting:
        raise typer.Exit(1)


def _send(root: Path, sessions: list[transcript.Session], scope: dict[str, str], *, has_flush: bool) -> Outcome:
    """Send all messages, show how far it has come, and return what has become of them."""
    outcome = Outcome()
    asked: collections.deque[tuple[transcript.Session, int]] = collections.deque()
    total = sum(len(one.messages) for one in sessions)

    def requests() -> Iterator[node.Request]:
        for one in sessions:
            key = {"session_id": one.id, **scope}
            for first in range(0, len(one.messages), BATCH):
                some = one.messages[first : first + BATCH]
                asked.append((one, len(some)))
                # Deferred: a pause in the file is no reason to wait for the model between two requests.
                body = {**key, "messages": some, "defer_extraction": has_flush}
                yield node.Request(method="POST", path=f"{asking.API}/memory/add", body=body)
            if has_flush and one.messages:
                asked.append((one, 0))
                yield node.Request(method="POST", path=f"{asking.API}/memory/flush", body=key)

    with progress.Progress("adding") as shown:

        def take(answer: client.Answer) -> None:
            one, n_messages = asked.popleft()
            _take(outcome, one, n_messages, answer)
            shown.update(outcome.messages, total)

        node.ask_all(root, requests(), take)
    outcome.sessions = sum(bool(one.messages) for one in sessions)
    return outcome


def _take(outcome: Outcome, one: transcript.Session, n_messages: int, answer: client.Answer) -> None:
    """Note one answer; a flush that the model failed leaves messages that are extracted later.

    Raises:
        errors.EverosdError: the messages were not taken.
    """
    if not n_messages and answer.status in RETRIED:
        outcome.waiting.append(f"session {one.id}: {show.section(answer.body, 'error').get('message')}")
        return
    data = show.section(asking.checked(answer), "data")
    outcome.messages += n_messages
    outcome.extracted += not n_messages and data.get("status") in ("extracted", "queued")


def _read(file: str) -> tuple[str, bytes, dt.datetime]:
    """Return name, content and time of a file, or of standard input."""
    if file == STDIN:
        return "stdin", sys.stdin.buffer.read(), dt.datetime.now(dt.UTC)
    path = Path(file)
    try:
        return path.stem, path.read_bytes(), dt.datetime.fromtimestamp(path.stat().st_mtime, dt.UTC)
    except OSError as error:
        refused = errors.RequestError(f"{file}: {error.strerror or error}")
        refused.hint = "name a file that you can read, or - for standard input"
        raise refused from error


def _moment(text: str, zone: dt.tzinfo) -> dt.datetime:
    try:
        at = dt.datetime.fromisoformat(text)
    except ValueError:
        asking.refuse(f"--at {text} is no moment", "write it like 2026-03-02T09:00")
    return at if at.tzinfo is not None else at.replace(tzinfo=zone)
