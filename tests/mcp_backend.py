"""A backend that answers from a table and notes what it was asked: the routes, as the tools see them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from everosd.mcp import backend


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """One request that came."""

    method: str
    path: str
    """Without the query."""
    query: str
    body: dict[str, object]
    is_read: bool


Answer = dict[str, object] | backend.Reply | Exception | Callable[[Asked], object]


class Table:
    """Answers by path; a dictionary is what stands under `data`."""

    def __init__(self, *users: str) -> None:
        """Know these users; every other route is unknown until `answers` has it."""
        self.asked: list[Asked] = []
        self.answers: dict[str, Answer] = {"/api/v1/owners": {"users": list(users), "agents": []}}
        self.delay_s = 0.0
        self.n_cancelled = 0

    async def call(self, method: str, path: str, body: object = None, *, is_read: bool = False) -> backend.Reply:
        """Answer one request."""
        bare, _, query = path.partition("?")
        one = Asked(
            method=method,
            path=bare,
            query=query,
            body=body if isinstance(body, dict) else {},
            is_read=is_read,
        )
        self.asked.append(one)
        if bare != "/api/v1/owners":
            try:
                await asyncio.sleep(self.delay_s)
            except asyncio.CancelledError:
                self.n_cancelled += 1
                raise
        found = self.answers.get(bare, refusal(404, "NOT_FOUND", "Not Found", detail="Not Found"))
        answer = found(one) if callable(found) else found
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, backend.Reply):
            return answer
        return backend.Reply(status=200, body={"request_id": "0" * 32, "data": answer})

    @property
    def last(self) -> Asked:
        """The newest request that is about memory."""
        return [one for one in self.asked if one.path != "/api/v1/owners"][-1]


def refusal(status: int, code: str, message: str, **more: object) -> backend.Reply:
    """Return an error as the routes send it."""
    error = {"code": code, "message": message, "timestamp": "2026-03-02T09:00:00Z", "path": "/x"}
    return backend.Reply(status=status, body={"request_id": "0" * 32, "error": error, **more})
