"""The gateway: every MCP conversation, the write queue and the read cache in one process."""

from __future__ import annotations

import gc
import time
from typing import TYPE_CHECKING

import anyio
import anyio.abc

from remembrancer.actors.gateway.events import Events
from remembrancer.actors.gateway.hook_events import HookIntake
from remembrancer.actors.gateway.listener import Listener
from remembrancer.actors.gateway.prompts import Prompts
from remembrancer.actors.gateway.resources import RecallCounts, Resources
from remembrancer.actors.gateway.server import Handlers, build_server
from remembrancer.actors.gateway.session_registry import SessionRegistry
from remembrancer.actors.gateway.store_access import StoreAccess
from remembrancer.actors.gateway.store_link import StoreLink
from remembrancer.actors.gateway.subscriptions import Subscriptions
from remembrancer.actors.gateway.write_queue import WriteQueue
from remembrancer.actors.shell import ORPHANED, Actor, LaunchSpec, acquire
from remembrancer.protocol.control import GatewayHealth, PeerFailed
from remembrancer.protocol.paths import FileLock
from remembrancer.protocol.reads import Notice
from remembrancer.toolsets.memory.get_memory_context import GetMemoryContextArguments, to_gather
from remembrancer.toolsets.service import Caller
from remembrancer.toolsets.tools import load_tools

if TYPE_CHECKING:
    from remembrancer.actors.gateway.http_server import HttpServer


class GatewayActor(Actor):
    """Ready as soon as its socket listens and its queue is open; it never waits for the store."""

    def __init__(self, spec: LaunchSpec) -> None:
        super().__init__(spec)
        self._lock = FileLock(spec.paths.gateway_lock)
        self._link = StoreLink(spec.paths.store_endpoint, self.speaker)
        self._queue = WriteQueue(spec.paths.write_queue, spec.settings.queue_limit)
        self._listener: Listener | None = None
        self._registry: SessionRegistry | None = None
        self._http: HttpServer | None = None
        self.events = Events()
        self.access: StoreAccess

    async def run(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        settings, paths, events = self.spec.settings, self.spec.paths, self.events
        await acquire(self._lock, "gateway")
        await self._queue.open()
        try:
            async with anyio.create_task_group() as tasks:
                access = self.access = StoreAccess(self._link, self._queue, events, settings, str(paths.home), tasks)
                tools, counts = load_tools(), RecallCounts(time.time())
                by_name = {each.name: each for each in tools}
                resources = Resources(by_name, access, counts)
                subscriptions = Subscriptions(resources.read, lambda: self._link.usable, tasks)
                events.on_recall += [counts.heard_recall, subscriptions.heard_recall]
                events.on_write.append(subscriptions.heard_write)
                handlers = Handlers(access, resources, subscriptions, Prompts(by_name, access, counts))

                async def prepare_context(caller: Caller) -> None:
                    await access.prepare(to_gather(GetMemoryContextArguments(), caller.project, caller.session_id))

                self._registry = SessionRegistry(access, self._link, prepare_context)
                server = build_server(handlers)
                self._listener = Listener(
                    paths.gateway_socket,
                    self.spec.incarnation,
                    server,
                    handlers.call,
                    tools,
                    settings,
                    self._registry,
                    tasks,
                    self.traces,
                    self._queue_notices,
                )
                tasks.start_soon(self._link.run)
                tasks.start_soon(self._registry.run)
                tasks.start_soon(access.run)
                tasks.start_soon(HookIntake(paths.hooks, access, self._link.tell).run)
                await self._listener.open()
                if settings.http_port:
                    from remembrancer.actors.gateway.http_server import HttpServer  # uvicorn, which few need

                    self._http = HttpServer(
                        paths.home,
                        settings,
                        self.spec.incarnation,
                        server,
                        handlers.call,
                        tools,
                        self._registry,
                        self.traces,
                        self._queue_notices,
                    )
                    tasks.start_soon(self._http.serve)
                gc.freeze()  # the modules are for good: a collection need not walk through them in the middle of a call
                task_status.started()
                await anyio.sleep_forever()
        finally:
            if self._listener is not None:
                await self._listener.aclose()
            await self._queue.aclose()
            self._lock.release()

    def _queue_notices(self) -> list[Notice]:
        """What every session is told at its first answer."""
        return [Notice("queue_damaged", self._queue.damage)] if self._queue.damage is not None else []

    def health(self) -> GatewayHealth:
        return GatewayHealth(
            sessions=(self._listener.sessions if self._listener else 0) + (self._http.sessions if self._http else 0),
            http=self._http.url if self._http else None,
            http_error=self._http.error if self._http else None,
            queue_depth=self._queue.depth,
            queue_rejected=self._queue.rejected,
            queue_stuck=dict(self._queue.stuck),
            queue_damage=self._queue.damage,
            store=self._link.state,
            store_attempts=self._link.attempts,
            store_next_attempt_s=self._link.next_attempt_s,
        )

    def on_peer_failed(self, peer: PeerFailed) -> None:
        if peer.role == "store":
            self._link.peer_failed(peer)

    async def drain(self, reason: str) -> None:
        """Answer what is under way, and tell the bridges that this end is in good order: if it is.

        Without a word, they take it for a crash and start a runtime again.
        """
        if self._http is not None:
            self._http.stop()
        if self._listener is not None:
            await self._listener.drain(None if reason == ORPHANED else reason)
        if self._registry is not None:
            await self._registry.drain()
