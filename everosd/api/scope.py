"""Whose memory a request is about. Nothing here widens a scope: what is missing or wrong is refused."""

from __future__ import annotations

from typing import Protocol

import msgspec

from everosd import errors, types
from everosd.log import layout
from everosd.store import read


class Placed(Protocol):
    """A request that is about one app and project."""

    @property
    def app_id(self) -> str: ...  # noqa: D102  # as on the wire
    @property
    def project_id(self) -> str: ...  # noqa: D102  # as on the wire


class Named(Placed, Protocol):
    """A request that names an owner, or leaves it out."""

    @property
    def user_id(self) -> str | None: ...  # noqa: D102  # as on the wire
    @property
    def agent_id(self) -> str | None: ...  # noqa: D102  # as on the wire


class Space(msgspec.Struct, frozen=True, kw_only=True):
    """An app and a project, checked."""

    app: str
    project: str

    def owner(self, owner_type: types.OwnerType, owner_id: str) -> types.Owner:
        """Return an owner in this space; `owner_id` is checked here.

        Raises:
            errors.RequestError: The id is none that an owner can have.
        """
        field = f"{owner_type}_id"
        known = types.nfc(owner_id)
        if owner_type == "session":
            layout.check_session_id(known)
        else:
            layout.check_scope_id(known, field)
        return types.Owner(app=self.app, project=self.project, type=owner_type, id=known)


def space(request: Placed) -> Space:
    """Return the app and project of a request.

    Raises:
        errors.RequestError: One of them is none that there can be.
    """
    app, project = types.nfc(request.app_id), types.nfc(request.project_id)
    layout.check_scope_id(app, "app_id")
    layout.check_scope_id(project, "project_id")
    return Space(app=app, project=project)


def named_owner(request: Named) -> types.Owner | None:
    """Return the owner that a request names, None where it names none.

    Raises:
        errors.RequestError: It names two, or one that there cannot be.
    """
    where = space(request)
    if request.user_id is not None and request.agent_id is not None:
        message = "give user_id or agent_id, not both"
        raise errors.RequestError(message, field="agent_id")
    if request.user_id is not None:
        return where.owner("user", request.user_id)
    if request.agent_id is not None:
        return where.owner("agent", request.agent_id)
    return None


async def owner_or_only_user(request: Named, reader: read.Reader) -> types.Owner:
    """Return the owner that a request names, else the only user of its scope.

    Raises:
        errors.RequestError: No owner is named and the scope has none or several users.
    """
    owner = named_owner(request)
    if owner is not None:
        return owner
    where = space(request)
    ids = await reader.owner_ids(where.app, where.project, "user")
    if len(ids) != 1:
        message = f"say whose memory is meant: this scope has {len(ids)} users"
        raise errors.RequestError(message, field="user_id")
    return types.Owner(app=where.app, project=where.project, type="user", id=ids[0])
