"""The gateway: every MCP conversation, the write queue and the read cache in one process."""

from __future__ import annotations

import gc

import anyio
import anyio.abc

from remembrancer.actors.gateway.handlers import compose_handlers
from remembrancer.actors.gateway.hook_intake import HookIntake
from remembrancer.actors.gateway.listener import Listener
from remembrancer.actors.gateway.memory_toolset.change_tools import ChangeTools
from remembrancer.actors.gateway.memory_toolset.context_arguments import GetMemoryContextArguments, to_gather
from remembrancer.actors.gateway.memory_toolset.context_tools import ContextTools
from remembrancer.actors.gateway.memory_toolset.graph_tools import GraphTools
from remembrancer.actors.gateway.memory_toolset.memory_tools import MemoryTools
from remembrancer.actors.gateway.memory_toolset.reflect_tools import ReflectTools
from remembrancer.actors.gateway.server import build_server
from remembrancer.actors.gateway.session_life import SessionLife
from remembrancer.actors.gateway.store_access.access_notes import AccessNotes
from remembrancer.actors.gateway.store_access.drain import Drain
from remembrancer.actors.gateway.store_access.happenings import Happenings
from remembrancer.actors.gateway.store_access.read_cache import ReadCache
from remembrancer.actors.gateway.store_access.reads import ReadPath
from remembrancer.actors.gateway.store_access.store_link import StoreLink
from remembrancer.actors.gateway.store_access.write_queue import WriteQueue
from remembrancer.actors.gateway.store_access.writes import WritePath
from remembrancer.actors.gateway.toolkit.tools import Caller, Toolbox, Toolset
from remembrancer.actors.shell import ORPHANED, Actor, LaunchSpec, acquire
from remembrancer.protocol.control import GatewayHealth, PeerFailed
from remembrancer.protocol.paths import FileLock


class GatewayActor(Actor):
    """Ready as soon as its socket listens and its queue is open; it never waits for the store."""

    def __init__(self, spec: LaunchSpec) -> None:
        super().__init__(spec)
        self._lock = FileLock(spec.paths.gateway_lock)
        self._link = StoreLink(spec.paths.store_endpoint, self.speaker)
        self._queue = WriteQueue(spec.paths.write_queue, spec.settings.queue_limit)
        self._listener: Listener | None = None
        self._life: SessionLife | None = None
        self.happenings = Happenings()
        self.reads: ReadPath

    async def run(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        settings, paths = self.spec.settings, self.spec.paths
        await acquire(self._lock, "gateway")
        await self._queue.open()
        cache, happenings = ReadCache(), self.happenings
        drain = Drain(self._queue, self._link, cache, happenings)
        try:
            async with anyio.create_task_group() as tasks:
                writes = WritePath(self._link, self._queue, cache, happenings, settings)
                reads = self.reads = ReadPath(self._link, self._queue, cache, settings)
                notes = AccessNotes(self._link, tasks)
                memory = MemoryTools(
                    writes, reads, self._link, self._queue, drain, settings, str(paths.home), happenings, notes
                )
                changes = ChangeTools(writes, reads, settings)
                context = ContextTools(reads, happenings, notes)
                graph = GraphTools(reads, happenings)
                reflection = ReflectTools(writes, reads, settings, happenings)
                groups = (memory, changes, context, graph, reflection)
                toolset = Toolset("memory", tuple(tool for group in groups for tool in group.tools()))
                handlers = compose_handlers(toolset.tools, reads, happenings, lambda: self._link.usable, tasks)
                server = build_server(lambda: not self._link.usable, *handlers)
                happenings.on_write.append(reads.ready.heard_write)

                async def make_context_ready(caller: Caller) -> None:
                    await reads.prepare(to_gather(GetMemoryContextArguments(), caller.project, caller.session_id))

                self._life = SessionLife(writes, self._link, make_context_ready)
                self._listener = Listener(
                    paths.gateway_socket,
                    self.spec.incarnation,
                    server,
                    Toolbox([toolset]),
                    settings,
                    self._life,
                    tasks,
                    self.traces,
                )
                tasks.start_soon(self._link.run)
                tasks.start_soon(self._life.run)
                tasks.start_soon(drain.run)
                tasks.start_soon(HookIntake(paths.hooks, writes, self._link.tell).run)
                await self._listener.open()
                gc.freeze()  # the modules are for good: a collection need not walk through them in the middle of a call
                task_status.started()
                await anyio.sleep_forever()
        finally:
            if self._listener is not None:
                await self._listener.aclose()
            await self._queue.aclose()
            self._lock.release()

    def health(self) -> GatewayHealth:
        return GatewayHealth(
            sessions=self._listener.sessions if self._listener else 0,
            queue_depth=self._queue.depth,
            queue_rejected=self._queue.rejected,
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
        if self._listener is not None:
            await self._listener.drain(None if reason == ORPHANED else reason)
        if self._life is not None:
            await self._life.drain()
