"""The application: which route is answered by what, and what becomes of errors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import litestar
import structlog
from litestar import exceptions, handlers, response
from litestar.types import Receive, Scope, Send

from everosd.api import (
    admin,
    guard,
    health,
    intake,
    lifecycle,
    mcp,
    memory,
    metrics,
    ome,
    owners,
    recall,
    reflection,
    reply,
    schema,
    services,
    typed,
)
from everosd.api import errors as wire
from everosd.mcp import owner

Answer = Callable[[reply.Request], Awaitable[Any]]

log = structlog.get_logger()


class Application(litestar.Litestar):
    """A Litestar application with the guard around all of it, unknown routes included."""

    __slots__ = ("guard",)

    guard: guard.Guard

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # as ASGI has it
        """Answer one request, or follow the server's start and stop."""
        await self.guard(scope, receive, send)

    @staticmethod
    def _get_default_plugins(plugins: list[Any]) -> list[Any]:
        """Load none of the plugins that Litestar loads where pydantic or attrs are installed.

        Nothing here uses them, and importing pydantic takes 0.1 s and 8 MB of a start that has 0.7 s and 80 MB.
        """
        return plugins

    async def unguarded(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that the guard let through."""
        await super().__call__(scope, receive, send)


def create_app(given: services.Services) -> Application:
    """Return the application that answers from `given`. Opens nothing; the daemon closes what it opened."""
    counted = metrics.Metrics(given.version)
    work, agents = admin.Admin(given), mcp.Endpoint(given)
    app = Application(
        route_handlers=[*_own_routes(given, counted), *_api_routes(given, work), _agents(agents)],
        exception_handlers={Exception: _failed(given)},
        on_shutdown=[work.stop],
        lifespan=[agents.lifespan],
        openapi_config=None,
        logging_config=None,
        request_max_body_size=given.config.api.max_body_bytes,
        debug=False,
    )
    app.guard = guard.Guard(
        app.unguarded,
        counted=counted,
        clock=given.clock,
        host=given.config.api.host,
        max_body_bytes=given.config.api.max_body_bytes,
        token=given.config.api.token.reveal(),
        owners=agents.tokens,
    )
    agents.routes = app
    return app


def _agents(endpoint: mcp.Endpoint) -> Any:  # a handler, as Litestar has it
    """Return what answers /mcp: an application of its own, behind the same guard."""

    @handlers.asgi(owner.PATH, copy_scope=True)
    async def answer_mcp(scope: Scope, receive: Receive, send: Send) -> None:
        await endpoint(scope, receive, send)

    return answer_mcp


def _api_routes(given: services.Services, work: admin.Admin) -> list[Any]:
    """Return the same routes under every prefix."""
    answers, takes, engine = memory.Memory(given), intake.Intake(given), ome.Ome(given)
    consolidations, people = reflection.Reflection(given), owners.Owners(given)
    memories, passes = typed.Typed(given), lifecycle.Lifecycle(given)
    recalls = recall.Recall(given, memories)

    async def entry(request: reply.Request) -> reply.Response:
        is_history = str(request.path_params["entry_id"]).endswith(typed.HISTORY)
        return await (memories.history(request) if is_history else answers.entry(request))

    return [
        _post("/memory/search", answers.search),
        _post("/memory/get", answers.get),
        _get("/entries/{entry_id:path}", entry),
        _post("/memory/remember", memories.remember),
        _post("/memory/update", memories.update),
        _post("/memory/forget", memories.forget),
        _post("/memory/restore", memories.restore),
        _post("/memory/usage", memories.usage),
        _post("/memory/recall", recalls.recall),
        _post("/memory/explain", recalls.explain),
        _get("/memory/stats", recalls.stats),
        _post("/memory/reflect", passes.reflect),
        _get("/memory/lifecycle", passes.lifecycle),
        _get("/memory/audit", passes.audit),
        _get("/memory/timeline", answers.timeline),
        _post("/memory/add", takes.add),
        _post("/memory/flush", takes.flush),
        _get("/owners", people.owners),
        _get("/tasks", takes.tasks),
        _get("/tasks/{task_id:str}", takes.task_by_id),
        _post("/ome/trigger", engine.trigger),
        _get("/ome/strategies", engine.strategies),
        _get("/reflection/reports", consolidations.reports),
        _post("/reflection/rollback", consolidations.rollback),
        _get("/admin/status", work.status),
        _post("/admin/rebuild", work.rebuild),
        _post("/admin/verify", work.verify),
        _post("/admin/adopt", work.adopt),
        _post("/admin/reconcile", work.reconcile),
        _post("/admin/forget", work.forget),
        _post("/admin/extract", work.extract),
    ]


def _get(path: str, answer: Answer) -> Any:
    """Return a route that is asked for something: one handler for all prefixes, since one for each costs a quarter of what making the application takes."""
    return handlers.get([f"{prefix}{path}" for prefix in schema.PREFIXES])(_handler(answer))


def _post(path: str, answer: Answer) -> Any:
    """Return a route that is told something."""
    return handlers.post([f"{prefix}{path}" for prefix in schema.PREFIXES], status_code=200)(_handler(answer))


def _handler(answer: Answer) -> Answer:
    """Return a plain function around a method.

    Litestar copies handlers deeply for every route, and with a method whatever its object holds, open files included.
    """

    async def handle(request: reply.Request) -> response.Response[Any]:
        found: response.Response[Any] = await answer(request)
        return found

    return handle


def _own_routes(given: services.Services, counted: metrics.Metrics) -> list[Any]:
    """Return the routes that every service has."""
    documents: dict[str, bytes] = {}

    @handlers.get("/health")
    async def answer_health(request: reply.Request) -> reply.Response:
        reply.called(request, "health")
        return reply.raw(schema.ENCODER.encode(health.answer(given)))

    @handlers.get("/metrics")
    async def answer_metrics(request: reply.Request) -> reply.Response:
        reply.called(request, "metrics")
        queue = None if given.intake is None else given.intake.status()
        strategies = () if given.engine is None else given.engine.status()
        text = await asyncio.to_thread(counted.render, given.status(), given.uptime_s(), queue, strategies)
        return reply.raw(text, media_type=metrics.CONTENT_TYPE)

    @handlers.get("/openapi.json")
    async def answer_openapi(request: reply.Request) -> reply.Response:
        reply.called(request, "openapi")
        if "json" not in documents:
            documents["json"] = await asyncio.to_thread(_document, given.version)
        return reply.raw(documents["json"])

    return [answer_health, answer_metrics, answer_openapi]


def _document(version: str) -> bytes:
    from everosd.api import openapi  # noqa: PLC0415  # it takes a while, and hardly anybody asks for it

    return openapi.document(version)


def _failed(given: services.Services) -> Any:  # a handler, as Litestar has it
    """Return what turns an exception into an answer. A fault of the daemon is left for the guard to log."""

    def handle(request: reply.Request, error: Exception) -> reply.Response:
        answer = wire.answer(error)
        request_id = reply.request_id(request)
        path = request.scope["path"]
        if answer.is_fault:
            request.scope["state"]["fault"] = error
        else:
            log.debug("request_refused", request_id=request_id, path=path, status=answer.status, code=answer.code)
        body = wire.encode(answer, request_id=request_id, path=path, now=given.clock.now())
        refusal = reply.raw(body, status=answer.status)
        if isinstance(error, exceptions.HTTPException):
            refusal.headers.update(error.headers or {})
        return refusal

    return handle
