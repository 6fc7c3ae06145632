"""The MCP server: tools and resources over one backend, and standard input and output. Imports the SDK (0.8 s, 40 MB)."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from collections.abc import AsyncIterator, Callable
from http import HTTPStatus
from typing import Any, TypeAlias

import mcp_types
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

import everosd
from everosd import clock as clocks
from everosd import config, errors, logs
from everosd.mcp import backend, line, owner, refusal, resource, takes, tools

Context: TypeAlias = ServerRequestContext[Any, Any]

PROGRESS_S = 1.0
"""How often a long call says that it is still at work."""

log = logs.logger(__name__)


class Memory:
    """Handlers of one server."""

    def __init__(
        self,
        asked: backend.Backend,
        *,
        settings: Callable[[], config.Mcp],
        clock: clocks.Clock,
        zone: Callable[[], dt.tzinfo],
    ) -> None:
        """Answer from `asked`; `settings` and `zone` give what is in force at each call."""
        self._backend = asked
        self._settings = settings
        self._clock = clock
        self._zone = zone
        self._tools = tuple(_described(one) for one in tools.TOOLS)

    def server(self) -> Server[Any]:
        """Return the server; run it on a transport."""
        return Server(
            "everosd",
            version=everosd.__version__,
            title="everosd: long-term memory",
            instructions=tools.INSTRUCTIONS,
            on_list_tools=self.list_tools,
            on_call_tool=self.call_tool,
            on_list_resources=self.list_resources,
            on_list_resource_templates=self.list_templates,
            on_read_resource=self.read_resource,
        )

    async def list_tools(self, _: Context, __: object) -> mcp_types.ListToolsResult:
        """Say which tools there are."""
        return mcp_types.ListToolsResult(tools=list(self._tools))

    async def call_tool(self, context: Context, params: mcp_types.CallToolRequestParams) -> mcp_types.CallToolResult:
        """Answer one call. What goes wrong is told as an error of the tool, so that the agent can act on it.

        Raises:
            MCPError: there is no such tool.
        """
        tool = tools.BY_NAME.get(params.name)
        if tool is None:
            known = ", ".join(tools.BY_NAME)
            raise MCPError(mcp_types.INVALID_PARAMS, f"there is no tool {params.name[:200]!r}; there are {known}")
        try:
            async with _told(context, tool):
                return await self._answer(tool, params.arguments, _named(context))
        except errors.EverosdError as error:
            log.debug("tool_refused", tool=tool.name, reason=str(error))
            return _failure(refusal.of_error(error))
        except Exception as error:  # noqa: BLE001  # the agent is told, and the person's log has the traceback
            await asyncio.to_thread(log.error, "tool_failed", tool=tool.name, exc_info=error)  # it reads source files
            reason = f"something is wrong inside everosd ({errors.describe(error)}): tell the person, its log has more"
            return _failure(reason)

    async def _answer(self, tool: tools.Tool, given: dict[str, Any] | None, named: str) -> mcp_types.CallToolResult:
        arguments = takes.take(tool.takes, given)
        request = tool.request(arguments, await self._call(named))
        reply = await self._backend.call(request.method, request.path, request.body, is_read=tool.reads or tool.repeats)
        if reply.status >= HTTPStatus.BAD_REQUEST:
            log.debug("tool_refused", tool=tool.name, status=reply.status)
            return _failure(refusal.of_reply(reply, has_id="memory_id" in tool.takes.__struct_fields__))
        data = reply.body.get("data", reply.body)  # POST ome/trigger answers with a bare object
        # In a thread: a hundred long memories take a while to be cut.
        shown = await asyncio.to_thread(tool.shown, data if isinstance(data, dict) else {"data": data}, arguments)
        text = shown.text
        if degraded := reply.body.get("degraded"):
            shown.data["degraded"] = degraded
            text = (
                f"{text}\n\n(not done as asked: {'; '.join(map(str, degraded))})"
                if isinstance(degraded, list)
                else text
            )
        return mcp_types.CallToolResult(content=[mcp_types.TextContent(text=text)], structured_content=shown.data)

    async def _call(self, named: str) -> tools.Call:
        whose = await owner.whose(self._backend, self._settings(), named)
        return tools.Call(whose=whose, now=self._clock.now(), zone=self._zone())

    async def list_resources(self, _: Context, __: object) -> mcp_types.ListResourcesResult:
        """Say what can be read as it is."""
        return mcp_types.ListResourcesResult(
            resources=[
                mcp_types.Resource(
                    uri=one.uri,
                    name=one.name,
                    title=one.title,
                    description=one.description,
                    mime_type=resource.MARKDOWN,
                )
                for one in resource.RESOURCES
            ]
        )

    async def list_templates(self, _: Context, __: object) -> mcp_types.ListResourceTemplatesResult:
        """Say what can be read once its blanks are filled in."""
        return mcp_types.ListResourceTemplatesResult(
            resource_templates=[
                mcp_types.ResourceTemplate(
                    uri_template=one.uri,
                    name=one.name,
                    title=one.title,
                    description=one.description,
                    mime_type=resource.MARKDOWN,
                )
                for one in resource.TEMPLATES
            ]
        )

    async def read_resource(
        self, context: Context, params: mcp_types.ReadResourceRequestParams
    ) -> mcp_types.ReadResourceResult:
        """Read one resource.

        Raises:
            MCPError: there is none such, or it cannot be read now.
        """
        uri = str(params.uri)
        try:
            text = await resource.read(uri, await self._call(_named(context)), self._backend)
        except errors.NotFound as error:
            raise MCPError(mcp_types.INVALID_PARAMS, str(error), {"uri": uri}) from error
        except errors.EverosdError as error:
            raise MCPError(mcp_types.INTERNAL_ERROR, refusal.of_error(error), {"uri": uri}) from error
        return mcp_types.ReadResourceResult(
            contents=[mcp_types.TextResourceContents(uri=uri, mime_type=resource.MARKDOWN, text=text)]
        )


async def serve_stdio(server: Server[Any]) -> None:
    """Answer one client until standard input ends, one JSON-RPC message a line.

    Meanwhile file descriptor 1 leads to standard error: what anything else prints, a library or a process that is started,
    cannot get between the messages.
    """
    async with stdio_server() as (incoming, outgoing):
        await server.run(line.Lines(incoming, outgoing), outgoing, server.create_initialization_options())


@contextlib.asynccontextmanager
async def _told(context: Context, tool: tools.Tool) -> AsyncIterator[None]:
    """While the block runs, tell who asked for it how long a call that may be long has been at work."""
    if not tool.is_long:
        yield
        return
    ticker = asyncio.create_task(_tick(context, tool), name=f"progress of {tool.name}")
    try:
        yield
    finally:
        ticker.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):  # telling is a courtesy
            await ticker


async def _tick(context: Context, tool: tools.Tool) -> None:
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    while True:
        took_s = round(loop.time() - began_s, 1)
        message = f"{tool.title}: begun" if took_s < PROGRESS_S else f"{tool.title}: at work for {took_s:.0f} s"
        await context.session.report_progress(took_s, None, message)
        await asyncio.sleep(PROGRESS_S)


def _named(context: Context) -> str:
    """Return the user whose token a request brought; empty: it was nobody's own, or nothing of HTTP."""
    return "" if context.request is None else str(context.request.scope["state"].get(owner.STATE, ""))


def _failure(text: str) -> mcp_types.CallToolResult:
    return mcp_types.CallToolResult(content=[mcp_types.TextContent(text=text)], is_error=True)


def _described(one: tools.Tool) -> mcp_types.Tool:
    return mcp_types.Tool(
        name=one.name,
        title=one.title,
        description=one.description,
        input_schema=takes.input_schema(one.takes),
        output_schema=one.gives,
        annotations=mcp_types.ToolAnnotations(
            title=one.title,
            read_only_hint=one.reads,
            destructive_hint=one.destroys and not one.reads,
            idempotent_hint=one.reads or one.repeats,
            open_world_hint=False,
        ),
    )
