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
    openapi,
    owners,
    recall,
    reflection,
    reply,
    schema,
    services,
    typed,
)
from everosd.api import errors as wire

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
    )
    agents.routes = app
    return app


def _agents(endpoint: mcp.Endpoint) -> Any:  # a handler, as Litestar has it
    """Return what answers /mcp: an application of its own, behind the same guard."""

    @handlers.asgi(mcp.PATH, copy_scope=True)
    async def answer_mcp(scope: Scope, receive: Receive, send: Send) -> None:
        await endpoint(scope, receive, send)

    return answer_mcp


def _api_routes(given: services.Services, work: admin.Admin) -> list[litestar.Router]:
    """Return the same routes under every prefix."""
    answers, takes, engine = memory.Memory(given), intake.Intake(given), ome.Ome(given)
    consolidations, people = reflection.Reflection(given), owners.Owners(given)
    memories, passes = typed.Typed(given), lifecycle.Lifecycle(given)
    recalls = recall.Recall(given, memories)

    async def entry(request: reply.Request) -> reply.Response:
        is_history = str(request.path_params["entry_id"]).endswith(typed.HISTORY)
        return await (memories.history(request) if is_history else answers.entry(request))

    return [
        litestar.Router(
            prefix,
            route_handlers=[
                handlers.post("/memory/search", status_code=200)(_handler(answers.search)),
                handlers.post("/memory/get", status_code=200)(_handler(answers.get)),
                handlers.get("/entries/{entry_id:path}")(_handler(entry)),
                handlers.post("/memory/remember", status_code=200)(_handler(memories.remember)),
                handlers.post("/memory/update", status_code=200)(_handler(memories.update)),
                handlers.post("/memory/forget", status_code=200)(_handler(memories.forget)),
                handlers.post("/memory/restore", status_code=200)(_handler(memories.restore)),
                handlers.post("/memory/usage", status_code=200)(_handler(memories.usage)),
                handlers.post("/memory/recall", status_code=200)(_handler(recalls.recall)),
                handlers.post("/memory/explain", status_code=200)(_handler(recalls.explain)),
                handlers.get("/memory/stats")(_handler(recalls.stats)),
                handlers.post("/memory/reflect", status_code=200)(_handler(passes.reflect)),
                handlers.get("/memory/lifecycle")(_handler(passes.lifecycle)),
                handlers.get("/memory/audit")(_handler(passes.audit)),
                handlers.post("/memory/add", status_code=200)(_handler(takes.add)),
                handlers.post("/memory/flush", status_code=200)(_handler(takes.flush)),
                handlers.get("/owners")(_handler(people.owners)),
                handlers.get("/tasks")(_handler(takes.tasks)),
                handlers.get("/tasks/{task_id:str}")(_handler(takes.task_by_id)),
                handlers.post("/ome/trigger", status_code=200)(_handler(engine.trigger)),
                handlers.get("/ome/strategies")(_handler(engine.strategies)),
                handlers.get("/reflection/reports")(_handler(consolidations.reports)),
                handlers.post("/reflection/rollback", status_code=200)(_handler(consolidations.rollback)),
                handlers.get("/admin/status")(_handler(work.status)),
                handlers.post("/admin/rebuild", status_code=200)(_handler(work.rebuild)),
                handlers.post("/admin/verify", status_code=200)(_handler(work.verify)),
                handlers.post("/admin/adopt", status_code=200)(_handler(work.adopt)),
                handlers.post("/admin/reconcile", status_code=200)(_handler(work.reconcile)),
                handlers.post("/admin/forget", status_code=200)(_handler(work.forget)),
                handlers.post("/admin/extract", status_code=200)(_handler(work.extract)),
            ],
        )
        for prefix in openapi.PREFIXES
    ]


def _handler(answer: Callable[[reply.Request], Awaitable[Any]]) -> Callable[[reply.Request], Awaitable[Any]]:
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
            documents["json"] = await asyncio.to_thread(openapi.document, given.version)
        return reply.raw(documents["json"])

    return [answer_health, answer_metrics, answer_openapi]


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
