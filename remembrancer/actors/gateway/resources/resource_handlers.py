"""MCP's requests about resources: lists, reading, and both ways of subscribing."""

from __future__ import annotations

from typing import Any, Final

import mcp_types as mcp
from mcp.server.subscriptions import ListenHandler

from remembrancer.actors.gateway.mcp_errors import Context
from remembrancer.actors.gateway.resources.reading import RESOURCES, TEMPLATES, Resources
from remembrancer.actors.gateway.resources.resource_uris import is_known, quoted, unknown_resource
from remembrancer.actors.gateway.resources.subscriptions import SessionWatcher, Subscriptions
from remembrancer.actors.gateway.session import RequestContext, request_context
from remembrancer.actors.gateway.toolkit.tools import COMPLETE
from remembrancer.protocol.errors import InvalidInput, NotFound
from remembrancer.protocol.gateway_link import REPLAY_ID

STAMP_S: Final = 0.001
"""How exactly a bridge says when it saw a line."""
MAX_STREAMS: Final = 16
"""Streams of one session that are open at once."""
UNCACHED: dict[str, Any] = {"ttlMs": 0, "cacheScope": "private", **COMPLETE}
"""What a result that can be cached has to say in the 2026-07-28 protocol; the SDK takes it out for older clients."""


class ResourceHandlers:
    """One method a request. Each request comes with a `RequestContext` as its transport's context."""

    def __init__(self, resources: Resources, subscriptions: Subscriptions) -> None:
        self._resources = resources
        self._subscriptions = subscriptions

    async def list_resources(self, _: Context, __: mcp.PaginatedRequestParams | None) -> Any:
        """`resources/list`."""
        resources = [
            {"uri": uri, "name": name, "description": description, "mimeType": mime_type}
            for uri, name, description, mime_type in RESOURCES
        ]
        return {"resources": resources, **UNCACHED}

    async def list_templates(self, _: Context, __: mcp.PaginatedRequestParams | None) -> Any:
        """`resources/templates/list`."""
        templates = [
            {"uriTemplate": uri, "name": name, "description": description, "mimeType": mime_type}
            for uri, name, description, mime_type in TEMPLATES
        ]
        return {"resourceTemplates": templates, **UNCACHED}

    async def read(self, ctx: Context, params: mcp.ReadResourceRequestParams) -> Any:
        """`resources/read`."""
        context = request_context(ctx)
        uri = str(params.uri)
        try:
            content = await self._resources.read(await context.session.caller(), uri, context.received_at)
        except NotFound as error:
            raise NotFound(error.message, details={**error.details, "uri": quoted(uri)}) from error
        contents = [{"uri": uri, "mimeType": content.mime_type, "text": content.text}]
        return {"contents": contents, **UNCACHED}

    async def subscribe(self, ctx: Context, params: mcp.SubscribeRequestParams) -> Any:
        """`resources/subscribe`, of the handshake protocols."""
        uri = str(params.uri)
        _check_known(uri)
        context = request_context(ctx)
        watcher = await self._watcher(context)
        await watcher.subscribe(
            uri, ctx.session.send_resource_updated, context.received_at, is_replay=_is_replay(ctx, context)
        )
        return {}

    async def unsubscribe(self, ctx: Context, params: mcp.UnsubscribeRequestParams) -> Any:
        """`resources/unsubscribe`, of the handshake protocols."""
        uri = str(params.uri)
        _check_known(uri)
        context = request_context(ctx)
        if context.session.watcher is not None:
            context.session.watcher.unsubscribe(uri)
        return {}

    async def listen(self, ctx: Context, params: mcp.SubscriptionsListenRequestParams) -> Any:
        """`subscriptions/listen`, of the 2026-07-28 protocol: lasts as long as the stream.

        Only resources that are there are acknowledged. The lists of tools, resources and prompts never change.
        """
        context = request_context(ctx)
        watcher = await self._watcher(context)
        if watcher.streams >= MAX_STREAMS:
            raise InvalidInput(f"a session can have {MAX_STREAMS} streams of events open at most")
        held: list[str] = []
        watcher.streams += 1
        try:
            for uri in dict.fromkeys(params.notifications.resource_subscriptions or ()):
                if not is_known(uri):
                    continue
                try:
                    await watcher.hold((uri,), context.received_at, is_replay=_is_replay(ctx, context))
                except NotFound:
                    continue
                held.append(uri)
            honoured = mcp.SubscriptionFilter(resource_subscriptions=held or None)
            stream = ListenHandler(watcher.bus, max_subscriptions=1)
            return await stream(ctx, params.model_copy(update={"notifications": honoured}))
        finally:
            watcher.streams -= 1
            watcher.release(held)

    async def _watcher(self, context: RequestContext) -> SessionWatcher:
        session = context.session
        caller = await session.caller()
        if session.watcher is None:
            watcher = session.watcher = self._subscriptions.open(caller)
            session.at_end(lambda: self._subscriptions.close(watcher))
        return session.watcher


def _check_known(uri: str) -> None:
    if not is_known(uri):
        raise NotFound(unknown_resource(uri), details={"uri": quoted(uri)})


def _is_replay(ctx: Context, context: RequestContext) -> bool:
    """Whether a bridge repeats to this gateway what its client once asked of another.

    A subscription comes under an id of the bridge's own; a stream as it was, with its first time, to the millisecond.
    """
    is_older = context.received_at < context.session.started_at - STAMP_S
    return is_older or str(ctx.request_id).startswith(REPLAY_ID)
