"""The MCP server of all sessions: handles requests, and translates errors to JSON-RPC."""

import logging
from typing import Any, Final

import mcp_types as mcp
from mcp.server.context import CallNext, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.subscriptions import ListenHandler
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from remembrancer import __version__
from remembrancer.actors.gateway.conversations import FAILED, CallContext, ToolCalls
from remembrancer.actors.gateway.subscriptions import SessionWatcher, Subscriptions
from remembrancer.protocol.errors import InternalError, InvalidInput, NotFound, RemembrancerError
from remembrancer.protocol.gateway_link import UNAVAILABLE
from remembrancer.toolsets.memory.prompts import message_of, prompts_for
from remembrancer.toolsets.memory.resources import FIXED, RESOURCES, TEMPLATES, Resources
from remembrancer.toolsets.tools import COMPLETE, error_envelope, instructions_of

NAME: Final = "remembrancer"
RESOURCE_NOT_FOUND: Final = -32002
"""The error code in the handshake protocols; the 2026-07-28 protocol uses `INVALID_PARAMS` instead."""
UNCACHED: Final[dict[str, Any]] = {"ttlMs": 0, "cacheScope": "private", **COMPLETE}
"""The fields of cacheable results in the 2026-07-28 protocol; the SDK removes them for older clients."""
READ_ONLY: Final = "This session can only read: its token allows no changes."
CONSTANT: Final[dict[str, Any]] = {**UNCACHED, "ttlMs": 86_400_000}

APPS: Final = "io.modelcontextprotocol/ui"
APP_TYPE: Final = "text/html;profile=mcp-app"
CARD: Final = "ui://remembrancer/card"
"""The page in which clients with MCP Apps show the memories that a tool stored or found."""
WITH_CARD: Final = frozenset({("memory", "store_memory"), ("memory", "recall_memories")})

Context = ServerRequestContext[Any, Any]
logger = logging.getLogger(__name__)


class Handlers:
    """One method for each MCP request. The transport passes a `CallContext` with each request."""

    def __init__(self, calls: ToolCalls, resources: Resources, subscriptions: Subscriptions) -> None:
        self.calls = calls
        self._resources = resources
        self._subscriptions = subscriptions

    async def list_tools(self, ctx: Context, _: mcp.PaginatedRequestParams | None) -> Any:
        tools = [(tool, tool.described()) for tool in request_context(ctx).session.tools.values()]
        for tool, described in tools if _shows_apps(ctx) else ():
            if (tool.toolset, tool.name) in WITH_CARD:
                described["_meta"] = {**described.get("_meta", {}), "ui": {"resourceUri": CARD}}
        return {"tools": [described for _, described in tools], **CONSTANT}

    async def call_tool(self, ctx: Context, params: mcp.CallToolRequestParams) -> Any:
        assert ctx.request_id is not None
        answer = await self.calls.call(request_context(ctx), ctx.request_id, params.name, params.arguments or {})
        return answer.as_mcp()

    async def list_resources(self, _: Context, __: mcp.PaginatedRequestParams | None) -> Any:
        return {"resources": RESOURCES, **CONSTANT}

    async def list_templates(self, _: Context, __: mcp.PaginatedRequestParams | None) -> Any:
        return {"resourceTemplates": TEMPLATES, **CONSTANT}

    async def read_resource(self, ctx: Context, params: mcp.ReadResourceRequestParams) -> Any:
        context = request_context(ctx)
        uri = str(params.uri)
        if uri == CARD:
            from remembrancer.browser.rendering import card_page  # loads templates, which few sessions need

            return {"contents": [{"uri": uri, "mimeType": APP_TYPE, "text": card_page()}], **CONSTANT}
        return {"contents": [{"uri": uri, **await self._read(context, uri)}], **UNCACHED}

    async def subscribe(self, ctx: Context, params: mcp.SubscribeRequestParams) -> Any:
        uri, context = str(params.uri), request_context(ctx)
        await self._check_there(context, uri)
        (await self._watcher(context)).subscribe(uri, ctx.session.send_resource_updated)
        return {}

    async def unsubscribe(self, ctx: Context, params: mcp.UnsubscribeRequestParams) -> Any:
        (await self._watcher(request_context(ctx))).unsubscribe(str(params.uri))
        return {}

    async def listen(self, ctx: Context, params: mcp.SubscriptionsListenRequestParams) -> Any:
        """Handle `subscriptions/listen` until the stream ends. Only existing resources are acknowledged."""
        context = request_context(ctx)
        watcher = await self._watcher(context)
        held: list[str] = []
        try:
            for uri in dict.fromkeys(params.notifications.resource_subscriptions or ()):
                try:
                    await self._check_there(context, uri)
                except NotFound:
                    continue
                watcher.hold(uri)
                held.append(uri)
            honoured = mcp.SubscriptionFilter(resource_subscriptions=held or None)
            stream = ListenHandler(watcher.bus, max_subscriptions=1)
            return await stream(ctx, params.model_copy(update={"notifications": honoured}))
        finally:
            watcher.release(held)

    async def _watcher(self, context: CallContext) -> SessionWatcher:
        return self._subscriptions.watcher(context.session, await context.session.caller())

    async def _check_there(self, context: CallContext, uri: str) -> None:
        """A session must not learn of resources that it cannot see. Raises `NotFound`, or the store's error."""
        if uri not in FIXED:
            await self._read(context, uri)

    async def _read(self, context: CallContext, uri: str) -> dict[str, str]:
        try:
            return await self._resources.read(await context.session.caller(), uri, context.received_at)
        except NotFound as error:
            raise NotFound(error.message, details={**error.details, "uri": uri[:200]}) from error

    async def list_prompts(self, ctx: Context, _: mcp.PaginatedRequestParams | None) -> Any:
        prompts = prompts_for(request_context(ctx).session.tools)
        return {"prompts": [prompt.described(name) for name, prompt in prompts.items()], **CONSTANT}

    async def get_prompt(self, ctx: Context, params: mcp.GetPromptRequestParams) -> Any:
        description, text = message_of(params.name, params.arguments or {}, request_context(ctx).session.tools)
        message = {"role": "user", "content": {"type": "text", "text": text}}
        return {"description": description, "messages": [message], **COMPLETE}


def request_context(ctx: ServerRequestContext[Any, Any]) -> CallContext:
    request: Any = ctx.request
    context = request if isinstance(request, CallContext) else request.scope["remembrancer"]
    assert isinstance(context, CallContext)
    return context


def build_server(handlers: Handlers) -> Server[Any]:
    server: Server[Any] = Server(
        NAME,
        version=__version__,
        on_list_tools=handlers.list_tools,
        on_call_tool=handlers.call_tool,
        on_list_resources=handlers.list_resources,
        on_list_resource_templates=handlers.list_templates,
        on_read_resource=handlers.read_resource,
        on_subscribe_resource=handlers.subscribe,
        on_unsubscribe_resource=handlers.unsubscribe,
        on_subscriptions_listen=handlers.listen,
        on_list_prompts=handlers.list_prompts,
        on_get_prompt=handlers.get_prompt,
        get_tool_input_schema=lambda name: None,  # no argument of a tool is repeated in a header
    )

    def instructions(ctx: Context) -> str:
        session = request_context(ctx).session
        return instructions_of(session.tools) + (f" {READ_ONLY}" if session.withheld else "")

    async def discover(ctx: ServerRequestContext[Any, Any], _: mcp.RequestParams | None) -> Any:
        """Like the SDK's handler, but does not announce that lists change."""
        return mcp.DiscoverResult(
            supported_versions=list(MODERN_PROTOCOL_VERSIONS),
            capabilities=server.get_capabilities(),
            instructions=instructions(ctx),
        )

    async def answer(ctx: Context, call_next: CallNext) -> Any:
        """Give errors a code, a message and `data`, and the answer to `initialize` the instructions for the tools."""
        try:
            result = await call_next(ctx)
        except (MCPError, ValidationError):
            raise
        except RemembrancerError as error:
            raise as_mcp(error, ctx.protocol_version, degraded=handlers.calls.is_degraded(error)) from error
        except Exception as error:
            logger.exception("a request failed", extra={"method": ctx.method})
            failure = InternalError(FAILED)
            raise as_mcp(failure, ctx.protocol_version, degraded=handlers.calls.is_degraded(failure)) from error
        if ctx.method == "initialize" and isinstance(result, dict):
            result["instructions"] = instructions(ctx)
        return result

    server.add_request_handler("server/discover", mcp.RequestParams, discover)
    server.middleware[:] = [answer]  # without telemetry spans, which nobody collects
    return server


def as_mcp(error: RemembrancerError, protocol_version: str, *, degraded: bool) -> MCPError:
    data = error_envelope(error, degraded=degraded)
    if isinstance(error, InvalidInput):
        code = INVALID_PARAMS
    elif isinstance(error, NotFound):
        code = INVALID_PARAMS if protocol_version in MODERN_PROTOCOL_VERSIONS else RESOURCE_NOT_FOUND
    elif isinstance(error, InternalError) or not error.retry_possible:
        code = INTERNAL_ERROR
    else:
        code = UNAVAILABLE
    return MCPError(code, data.pop("message"), data)


def _shows_apps(ctx: Context) -> bool:
    declared = ctx.session.client_capabilities
    settings = ((declared and declared.extensions) or {}).get(APPS)
    return settings is not None and APP_TYPE in settings.get("mimeTypes", ())
