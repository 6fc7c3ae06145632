"""Whose memory a connection is about: said by its token or the settings, never by what an agent writes."""

from __future__ import annotations

import urllib.parse

import msgspec

from everosd import config, errors, types
from everosd.mcp import backend

API = "/api/v1"
PATH = "/mcp"
"""Of the daemon, where agents ask."""
STATE = "owner"
"""Of a request over HTTP, in its ASGI state: the user whose token it brought, where it was one's own."""
NOBODY_NAMED = "me"
"""The user where the settings name none, and the scope has none or several."""


class Whose(msgspec.Struct, frozen=True, kw_only=True):
    """The user whose memory is read and written, with the scope."""

    user_id: str
    app_id: str
    project_id: str

    def fields(self) -> dict[str, object]:
        """Return what every request says of it."""
        return {"user_id": self.user_id, "app_id": self.app_id, "project_id": self.project_id}


class Users(msgspec.Struct, frozen=True, kw_only=True):
    """What GET owners says of users."""

    users: tuple[str, ...]


class _Owners(msgspec.Struct, frozen=True, kw_only=True):
    data: Users


async def whose(asked: backend.Backend, settings: config.Mcp, named: str = "") -> Whose:
    """Return whose memory is meant: whom the token names, else `[mcp] user_id`, else the only user of the scope, else `me`.

    Raises:
        Unanswered: nobody answers.
        EverosdError: the daemon does not say which users there are.
    """
    user_id = types.nfc(named or settings.user_id) or await _only_user(asked, settings) or NOBODY_NAMED
    return Whose(user_id=user_id, app_id=settings.app_id, project_id=settings.project_id)


def checked(owner: Whose, memory_id: str) -> str:
    """Return an id that a tool was given, once it is one of this owner's.

    The routes refuse other owners' ids, too: this refuses them before they are asked.

    Raises:
        NotFound: it names another owner's memory, or nothing that could be one.
    """
    given = types.nfc(memory_id.strip())
    prefix = f"{owner.user_id}_"
    bare = given.removeprefix(prefix)
    if types.ENTRY_ID.fullmatch(bare) is None:
        message = f"there is no memory {memory_id[:200]!r} here"
        raise errors.NotFound(message)
    return prefix + bare


async def _only_user(asked: backend.Backend, settings: config.Mcp) -> str:
    """Return the only user of the scope; empty where there are none or several."""
    query = urllib.parse.urlencode({"app_id": settings.app_id, "project_id": settings.project_id})
    reply = await asked.call("GET", f"{API}/owners?{query}", is_read=True)
    try:
        users = msgspec.convert(reply.body, _Owners).data.users
    except msgspec.ValidationError as error:
        reason = f"whose memory this is cannot be told (status {reply.status})"
        unknown = errors.EverosdError(reason)
        unknown.hint = "set [mcp] user_id in everos.toml of the memory root"
        raise unknown from error
    return users[0] if len(users) == 1 else ""
