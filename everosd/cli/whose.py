"""Whose memory a command is about: its options, and what is asked where they say too little."""

from __future__ import annotations

import contextlib
import shlex
import sys
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from everosd import errors, types
from everosd.cli import asking
from everosd.cli import root as root_folder

User = Annotated[
    str | None,
    typer.Option("--user", metavar="ID", help="Whose memory. Default: the only user there is.", show_default=False),
]
Agent = Annotated[
    str | None,
    typer.Option("--agent", metavar="ID", help="An agent's memory instead of a person's.", show_default=False),
]


class Whose(msgspec.Struct, frozen=True, kw_only=True):
    """Owner and scope as they were typed."""

    user: str | None = None
    agent: str | None = None
    app: str = "default"
    project: str = "default"

    def fields(self) -> dict[str, str]:
        """Return the fields of a request; an owner that was not named is not in it.

        Raises:
            errors.RequestError: two owners were named.
        """
        if self.user is not None and self.agent is not None:
            asking.refuse("--user and --agent exclude each other", "leave one of them out")
        given = {"user_id": self.user, "agent_id": self.agent, "app_id": self.app, "project_id": self.project}
        return {name: asking.legible(value) for name, value in given.items() if value is not None}

    def typed(self) -> str:
        """Return the options as they would be typed again; nothing of what is default."""
        given = (("--user", self.user), ("--agent", self.agent), ("--app", self.app), ("--project", self.project))
        return "".join(f" {option} {shlex.quote(text)}" for option, text in given if text not in (None, "default"))


@contextlib.contextmanager
def asks(root: Path, given: Whose) -> Iterator[None]:
    """Ask whose memory is meant where a request of the block is refused for want of it."""
    try:
        yield
    except errors.RequestError as error:
        if error.field == "user_id" and given.user is None:
            asking.ask_whose(root, given.app, given.project)
        raise


def says_nobody(root: Path, given: Whose) -> bool:
    """Say that there is nobody of the name that was typed, which may be misspelt; tell whether that is so."""
    kind: types.OwnerType = "user" if given.agent is None else "agent"
    named = given.user if given.agent is None else given.agent
    if named is None or root_folder.has_owner(root, given.app, given.project, kind, named):
        return False
    known = asking.names(root_folder.owners(root, given.app, given.project, kind)) or "nobody"
    print(f"\nnote: no {kind} {named} in app {given.app}, project {given.project}; there is {known}", file=sys.stderr)
    return True


def only(root: Path, id_: str, given: Whose) -> Whose:
    """Return whose entry an id is: an entry id alone is that of the only user there is.

    Raises:
        errors.RequestError: there are several, or none.
    """
    if given.user is not None or given.agent is not None or not types.ENTRY_ID.fullmatch(id_):
        return given
    users = root_folder.owners(root, given.app, given.project, "user")
    if len(users) != 1:
        asking.ask_whose(root, given.app, given.project)
    return msgspec.structs.replace(given, user=users[0])


def url(route: str, asked: Mapping[str, object]) -> str:
    """Return the path of a GET, with what is None left out."""
    given = {name: str(value) for name, value in asked.items() if value is not None}
    return f"{asking.API}/{route}?{urllib.parse.urlencode(given)}"


def entry(public_id: str, given: Whose, *, what: str = "") -> str:
    """Return the path of an entry; `what` follows its id (`/history`)."""
    return url(f"entries/{urllib.parse.quote(asking.legible(public_id), safe='')}{what}", given.fields())
