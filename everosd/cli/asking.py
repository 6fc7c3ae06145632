"""What commands share: options, asking the node, and what becomes of a refusal."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import Annotated, NoReturn, cast

import msgspec
import typer

from everosd import config, errors
from everosd.cli import client, node, progress, show
from everosd.cli import root as root_folder

API = "/api/v1"
OPTIONS = {
    "user_id": "--user",
    "agent_id": "--agent",
    "app_id": "--app",
    "project_id": "--project",
    "session_id": "--session",
    "team_id": "--team",
    "memory_type": "--type",
    "path_filter": "--path",
    "semantic_key": "--key",
    "promotion_key": "--promotion-key",
    "expires_at": "--expires",
    "timestamp": "--at",
    "source_ids": "--source",
    "time_window_hours": "--hours",
    "action_type": "--action",
    "actions": "--action",
    "content": "TEXT",
    "replacement_content": "--replacement",
    "memory_id": "ID",
    **{
        name: f"--{name}"
        for name in ("subject", "bucket", "scope", "importance", "confidence", "metadata", "provenance")
    },
    **{name: f"--{name}" for name in ("clear", "reason", "since", "until", "limit", "offset", "status")},
}
"""Where the fields of a request come from."""
SENTENCES = ("expected ", "Expected ", "there is ", "give ")
"""What is said of an option and has no subject in it, as `must not be empty` has."""
OK = 200
REFUSED = frozenset(("CONFLICT", "NOT_FOUND"))
"""Codes of what no second try makes right."""
FOR_DOCTOR = frozenset(("CAPABILITY_UNAVAILABLE", "EXTERNAL_SERVICE_UNAVAILABLE", "PROVIDER_NOT_CONFIGURED"))
"""Codes of what a model, an index or a disk does not let be: `doctor` has the hint that the envelope lacks."""
MAX_NAMED = 10
"""Owners that a question names."""

Root = Annotated[
    str | None,
    typer.Option(
        "--root", metavar="FOLDER", help="Memory root. Default: $EVEROS_ROOT, else ~/.everos.", show_default=False
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the answer as JSON, for programs.")]
App = Annotated[str, typer.Option("--app", metavar="ID", help="Which app's memory.")]
Project = Annotated[str, typer.Option("--project", metavar="ID", help="Which project's memory.")]


class RequestFailed(errors.EverosdError):
    """The daemon answered that it would not."""

    def __init__(self, body: dict[str, object]) -> None:
        """Take code and message from the error envelope."""
        error = show.section(body, "error")
        message, code = error.get("message"), error.get("code")
        self.code = str(code or "")
        super().__init__(str(message or f"the request failed ({code or 'no code'})"))
        self.hint = str(error.get("hint") or ("everosd doctor says what to do" if code in FOR_DOCTOR else ""))


class RequestRefused(RequestFailed, errors.RequestError):
    """What was asked for does not exist, or is at odds with what has happened since: the person has to ask otherwise."""

    field = ""


def root_option(root: Path) -> str:
    """Return what has to be typed for a command to find `root`; nothing where it is the usual one."""
    return "" if root == config.root_path() else f" --root {shlex.quote(str(root))}"


def ask(root: Path, method: str, path: str, body: object = None, *, waits_s: float = 0.0) -> dict[str, object]:
    """Ask the daemon, or the files alone, and return the body of a good answer; see `node.ask`."""
    return checked(node.ask(root, method, path, body, waits_s=waits_s))


def ask_whose(root: Path, app: str, project: str, *, is_of_users: bool = False) -> NoReturn:
    """Ask the person whose memory is meant, and name who there is; of users alone where agents have none of it."""
    users = root_folder.owners(root, app, project, "user")
    agents = [] if is_of_users else root_folder.owners(root, app, project, "agent")
    scope = f"app {app}, project {project}"
    if not users and not agents:
        also = (
            "everosd remember PATH TEXT --user <you>, everosd add FILE, or a note saved below"
            " <root>/<app>/<project>/users/<you>/episodes/ begins one; --app, --project and --root name another"
        )
        refuse(f"{root} has no memory in {scope}", also)
    options = [f"{option} {names(ids)}" for option, ids in (("--user", users), ("--agent", agents)) if ids]
    refuse(
        f"whose memory? There {'is' if len(users) == 1 else 'are'} {show.count(len(users), 'user')} in {scope}",
        f"add {', or '.join(options)}",
    )


def names(ids: list[str]) -> str:
    """Return ids as they would be typed, the first of them."""
    typed = [shlex.quote(one) for one in ids[:MAX_NAMED]]
    return "|".join(typed) + ("|…" if len(ids) > MAX_NAMED else "")


def refuse(message: str, hint: str) -> NoReturn:
    """End a command that cannot do what was typed."""
    refused = errors.RequestError(message)
    refused.hint = hint
    raise refused


def work(root: Path, route: str, title: str, body: object) -> tuple[dict[str, object], float]:
    """Have long work done with its progress shown; return its result and how long it took."""
    started_s = time.monotonic()
    with progress.Progress(title) as shown:

        def follow(line: dict[str, object]) -> None:
            if isinstance(line.get("done"), int):
                stage = f"{title} {line.get('stage') or ''}".rstrip()
                shown.update(cast("int", line["done"]), cast("int", line.get("total") or 0), stage)

        answer = checked(node.ask(root, "POST", f"{API}/admin/{route}", body, follow))
    return dict(show.section(answer, "result")), time.monotonic() - started_s


def checked(answer: client.Answer) -> dict[str, object]:
    """Return the body of a good answer.

    Raises:
        RequestError: the answer says that the request was wrong, or `RequestRefused` that it cannot be answered.
        RequestFailed: the answer is another error.
    """
    if answer.status == OK and "error" not in answer.body:
        return answer.body
    error = show.section(answer.body, "error")
    if error.get("code") == "INVALID_INPUT":
        message = str(error.get("message"))
        said, _, field = message.rpartition(": ")
        if option := OPTIONS.get(field):
            message = f"{option}: {said}" if said.startswith(SENTENCES) else f"{option} {said}"
        elif field == "path":
            message = said
        refused = errors.RequestError(message)
        refused.field = field
        if field == "path":
            refused.hint = (
                "name a file below users/ or agents/, or none for all of them; docs/ARCHITECTURE.md has the places"
            )
        raise refused
    if error.get("code") in REFUSED:
        raise RequestRefused(answer.body)
    raise RequestFailed(answer.body)


def below(root: Path, path: str) -> str:
    """Return a path as the log names it: below the root, with forward slashes."""
    given = Path(path)
    full = given if given.is_absolute() or given.exists() else root / given
    try:
        return full.resolve().relative_to(root).as_posix()
    except ValueError:
        raise errors.RootError(str(root), f"{path} is not below it", hint="name a file of this memory root") from None


def legible(typed: str) -> str:
    """Return a text from the command line with what is no UTF-8 in it replaced: JSON cannot carry it."""
    return typed.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def print_json(value: object) -> None:
    """Print one JSON document, in UTF-8 whatever the terminal's encoding."""
    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
    sys.stdout.buffer.flush()
