"""GET owners: who has memory in a scope."""

from __future__ import annotations

from typing import Annotated

import msgspec

from everosd.api import reply, scope, services
from everosd.api import request as requests

LIMIT = 1000


class OwnersQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Query string of GET owners."""

    app_id: str = "default"
    project_id: str = "default"
    limit: Annotated[int, msgspec.Meta(ge=1, le=LIMIT)] = LIMIT
    """At most so many of each."""


class OwnersData(msgspec.Struct, frozen=True, kw_only=True):
    """Who has a file in a scope, sorted by id."""

    users: tuple[str, ...]
    agents: tuple[str, ...]


class Owners:
    """Handler of the route."""

    def __init__(self, given: services.Services) -> None:
        """Answer from `given`."""
        self._given = given

    async def owners(self, request: reply.Request) -> reply.Response:
        """Answer GET owners."""
        reply.called(request, "owners")
        asked = requests.decode_query(request.query_params.multi_items(), OwnersQuery)
        where = scope.space(asked)
        users, agents = [
            await self._given.reader.owner_ids(where.app, where.project, kind, asked.limit)
            for kind in ("user", "agent")
        ]
        return reply.success(request, OwnersData(users=tuple(users), agents=tuple(agents)))
