"""What the consolidator reads. It steps aside while clients are being served."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final, TypeVar

import anyio
import msgspec

from remembrancer.actors.store.jobs.findings import upkeep_of
from remembrancer.actors.store.load_gate import LoadGate
from remembrancer.actors.store.memory_files import MemoryFiles
from remembrancer.actors.store.records.contract import Records
from remembrancer.actors.store.vectors.embedding_scheduler import EmbeddingScheduler
from remembrancer.actors.store.vectors.index_manager import IndexManager
from remembrancer.actors.store.vectors.near import find_near
from remembrancer.protocol.consolidation import (
    EntityEdges,
    FindNear,
    MaterialAnswer,
    MaterialRequest,
    MemoriesRead,
    NearFound,
    ReadEntityEdges,
    ReadMemories,
    ReadSession,
    ReadUpkeep,
    SessionRead,
    Upkeep,
)
from remembrancer.protocol.errors import MemoryUnavailable
from remembrancer.protocol.writes import ProjectRef

ASIDE_S: Final = 0.2
"""How long one question waits at most for clients to be served: under a lasting load the work goes on, slowly."""
LARGEST_PAGE: Final = 1000
"""Memories that one answer holds at most."""

T = TypeVar("T")


class MaterialDesk:
    """Reads for the consolidator. A project that has no file yet has nothing in it: to ask makes none."""

    def __init__(
        self, files: MemoryFiles, index: IndexManager, desk: EmbeddingScheduler, threads: Executor, gate: LoadGate
    ) -> None:
        self._files = files
        self._index = index
        self._desk = desk
        self._threads = threads
        self._gate = gate
        self.draining = False
        """Set before a stop: the files are about to be closed."""

    async def read(self, request: MaterialRequest) -> MaterialAnswer:
        """The answer to a question. Raises what the records raise."""
        await self._step_aside()
        if self.draining:
            raise MemoryUnavailable("the store is stopping")
        match request:
            case ReadMemories():
                return await self._memories(request)
            case FindNear():
                return await self._near(request)
            case ReadEntityEdges(project=project, after=after):
                records = await self._records_of(project)
                edges = None if records is None else functools.partial(records.entity_edges, after)
                return EntityEdges(()) if edges is None else await self._read(edges)
            case ReadUpkeep(project=project):
                records = await self._records_of(project)
                return Upkeep() if records is None else await self._read(functools.partial(upkeep_of, records, request))
            case ReadSession(project=project, session_id=session_id, turns=turns):
                records = await self._records_of(project)
                if records is None:
                    return SessionRead(None)
                found = records
                return await self._read(lambda: found.session_read(session_id, turns))

    async def _memories(self, request: ReadMemories) -> MemoriesRead:
        records = await self._records_of(request.project)
        if records is None or request.limit < 1:
            return MemoriesRead((), more=False)
        if request.limit > LARGEST_PAGE:
            request = msgspec.structs.replace(request, limit=LARGEST_PAGE)
        model = None if self._desk.identity is None else self._desk.identity.key
        return await self._read(lambda: records.materials(request, model))

    async def _near(self, request: FindNear) -> NearFound:
        records = await self._records_of(request.project)
        identity = self._desk.identity
        if records is None or identity is None:
            return NearFound(((),) * request.rows)
        index = self._index.searchable(records.name)
        return await self._read(lambda: find_near(records, index, identity.key, request))

    async def _records_of(self, project: ProjectRef | None) -> Records | None:
        if project is None:
            return self._files.user
        return await self._files.project(project) if self._files.exists(project) else None

    async def _step_aside(self) -> None:
        give_up_at = time.monotonic() + ASIDE_S
        while (wait_s := self._gate.hold_s(now := time.monotonic(), now)) > 0 and now < give_up_at:  # noqa: ASYNC110
            await anyio.sleep(min(wait_s, give_up_at - now))

    async def _read(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)
