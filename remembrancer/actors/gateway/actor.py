"""The gateway: all MCP conversations, the write queue and a cache of recent answers, in one process."""

from __future__ import annotations

import functools
import gc
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import anyio
import anyio.abc
import msgspec

from remembrancer.actors.actor_process import Actor, LaunchSpec, acquire
from remembrancer.actors.gateway.conversations import Listener, McpService, Session, ToolCalls
from remembrancer.actors.gateway.hook_events import HookIntake
from remembrancer.actors.gateway.markdown_index import MarkdownIndex
from remembrancer.actors.gateway.session_registry import ClientConversation, SessionRegistry
from remembrancer.actors.gateway.store_access import StoreAccess
from remembrancer.actors.gateway.subscriptions import Subscriptions
from remembrancer.actors.gateway.write_queue import WriteQueue
from remembrancer.config.settings import Settings
from remembrancer.protocol.control import AskStatus, GatewayHealth, PeerGone, RuntimeStatus
from remembrancer.protocol.errors import MemoryUnavailable
from remembrancer.protocol.file_locks import FileLock
from remembrancer.protocol.store_client import StoreClient
from remembrancer.protocol.wire import Notice
from remembrancer.toolsets.memory.resources import Resources
from remembrancer.toolsets.service import Caller
from remembrancer.toolsets.tools import choose_tools, load_tools

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server
    from starlette.types import ASGIApp

    from remembrancer.actors.gateway.http_server import HttpServer

BROWSER_TOOLSETS: Final = "memory,admin,files,code"
BROWSER_PORTS: Final = (18_080, 0)
"""The ports to try for the memory browser: a rarely used one, which keeps bookmarks valid, then any port (0)."""

STATUS_S: Final = 2.0
"""The time limit for the launcher's report, which takes 0.5 s if a process hangs."""


class GatewayActor(Actor):
    """Ready once it listens on its socket and its queue is open. The gateway never waits for the store."""

    def __init__(self, spec: LaunchSpec) -> None:
        super().__init__(spec)
        self._lock = FileLock(spec.paths.gateway_lock)
        self._store: StoreClient = StoreClient(
            spec.paths.store_endpoint,
            self.speaker,
            on_message=lambda message: self.access.others_wrote(message.operations),
            on_connection=lambda _: self._subscriptions.heard_store(),
        )
        self._queue = WriteQueue(spec.paths.write_queue, spec.settings.queue_limit)
        self._http: HttpServer | None = None
        self._http_error: str | None = None
        self._opening = anyio.Lock()
        self._browsed = spec.paths.run / "browser"  # the browser's address, while its pages may be open

    async def run(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        settings, paths = self.spec.settings, self.spec.paths
        await acquire(self._lock, "gateway")
        await self._queue.open()
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                access = self.access = StoreAccess(
                    self._store, self._queue, settings, paths, tasks, self._browser_url, self._ask_status
                )
                tools = load_tools()
                resources = Resources({tool.name: tool for tool in tools}, access)
                subscriptions = self._subscriptions = Subscriptions(tasks)
                access.writes.listeners.append(subscriptions.heard_write)
                access.on_recall = subscriptions.heard_recall
                calls = ToolCalls(access)

                @functools.cache
                def server() -> Server[Any]:
                    from remembrancer.actors.gateway.server import Handlers, build_server  # loads the SDK

                    made = build_server(Handlers(calls, resources, subscriptions))
                    gc.freeze()
                    return made

                index = MarkdownIndex(access)

                def is_known(session: ClientConversation, caller: Caller) -> None:
                    subscriptions.move(session, caller)
                    tasks.start_soon(index.attend, caller)

                hooks = HookIntake(paths.hooks, access.apply, access.shown_by_hook)
                registry = SessionRegistry(access, self._store, hooks.present, is_known, subscriptions.close)
                self._registry = registry
                notices = self._queue_notices
                self._service = McpService(self.spec.incarnation, server, calls.call, tools, registry, notices)
                self._listener = Listener(paths.gateway_socket, self._service, self._load_mcp, settings, tasks)
                for part in (self._store, registry, access, access.shown_log, index, hooks):
                    tasks.start_soon(part.run)
                try:
                    await self._listener.open()
                    if settings.http_port:
                        async with self._opening:
                            self._http_error = (await self._open_http(settings)).error
                    else:
                        with suppress(MemoryUnavailable, OSError, ValueError):  # usually, no page was open
                            await self._browser_url(urlsplit(self._browsed.read_text()).port or 0)
                    gc.freeze()  # modules stay loaded, so garbage collections during calls need not scan them
                    task_status.started()
                    await anyio.sleep_forever()
                finally:
                    await self._listener.aclose()
        finally:
            await self._queue.aclose()
            self._lock.release()

    def _load_mcp(self) -> type[Session]:
        self._service.server()
        from remembrancer.actors.gateway.mcp_session import McpSession

        return McpSession

    async def _open_http(self, settings: Settings) -> HttpServer:
        from remembrancer.actors.gateway.http_server import HttpServer  # loads uvicorn, which is rarely needed

        home, no_token = self.spec.paths.home, self.spec.no_token
        self._http = HttpServer(home, settings, self._service, no_token=no_token, open_browser=self._make_browser)
        await self._tasks.start(self._http.serve)
        return self._http

    def _make_browser(self) -> ASGIApp:
        from remembrancer.browser.app import Browser  # loads templates, which only the browser needs

        named, _ = choose_tools(self._service.tools, BROWSER_TOOLSETS)
        return Browser(
            self.spec.paths,
            self.access,
            named,
            lambda: self.access.writes.happened,
            self.access.shown_log.read,
            no_token=self.spec.no_token,
        )

    async def _browser_url(self, *ports: int) -> str:
        """If HTTP is off, the browser is served locally, preferably on `ports`. Raises `MemoryUnavailable`."""
        async with self._opening:
            http = self._http
            for port in (*ports, *BROWSER_PORTS):
                if http is None or http.url is None:
                    own = msgspec.structs.replace(self.spec.settings, http_port=port, http_host="127.0.0.1")
                    http = await self._open_http(own)
            assert http is not None
            if http.url is None:
                raise MemoryUnavailable(http.error or "HTTP is off")
            with suppress(OSError):  # for example, a full disk, which the browser's Health page shows
                self._browsed.write_text(http.browser_url)
        return http.browser_url

    async def _ask_status(self) -> RuntimeStatus:
        return await self.control.request(AskStatus(), timeout_s=STATUS_S)

    def _queue_notices(self) -> list[Notice]:
        return [Notice("queue_damaged", each) for each in (self._queue.problem, self._queue.damage) if each is not None]

    def health(self) -> GatewayHealth:
        queue, http = self._queue, self._http
        return GatewayHealth(
            sessions=len(self._listener.sessions) + (http.sessions if http else 0),
            queue_depth=queue.depth,
            queue_rejected=queue.rejected,
            queue_stuck=queue.stuck,
            queue_stuck_at={name: queue.lanes[name].refused_at for name in queue.stuck},
            queue_damage=queue.damage,
            queue_problem=queue.problem,
            store=self._store.health.state,
            pages=http.pages if http else 0,
            http=http.url if http else None,
            http_error=self._http_error,
        )

    def on_peer_gone(self, peer: PeerGone) -> None:
        if peer.role == "store" and peer.failure is not None:
            self._store.store_failed(peer.failure)

    async def drain(self, reason: str) -> None:
        """Finish the requests in progress, and tell the bridges that the stop is orderly, so they start no runtime."""
        if self._http is not None:
            if not self._http.pages:
                self._browsed.unlink(missing_ok=True)
            self._http.stop()
        await self._listener.drain(reason)
        await self._registry.drain()
