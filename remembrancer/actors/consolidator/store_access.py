"""What the consolidator's work may ask of the store: nothing but this. Tests give it one over records of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

import msgspec

from remembrancer.protocol.consolidation import (
    EntityEdges,
    FindNear,
    Material,
    MemoriesRead,
    NearFound,
    ReadMemories,
    SessionRead,
    Upkeep,
)
from remembrancer.protocol.runs import Prune
from remembrancer.protocol.writes import Applied, Operation, ProjectRef


class StoreAccess(Protocol):
    """Every method waits for a store that is away for a while, and raises a `RemembrancerError` when it stays away or
    refuses."""

    async def read_memories(self, request: ReadMemories) -> MemoriesRead:
        """A page of memories."""

    async def find_near(self, request: FindNear) -> NearFound:
        """The nearest memories to some vectors."""

    async def read_edges(self, project: ProjectRef | None, after: int = 0) -> EntityEdges:
        """The entity graph of a file, as a page of its memories makes it."""

    async def read_upkeep(
        self, project: ProjectRef | None, orphans_before: float, prune: Prune | None = None
    ) -> Upkeep:
        """What the maintenance of a file has to know."""

    async def read_session(self, project: ProjectRef, session_id: str, turns: int = 50) -> SessionRead:
        """What is known of a session."""

    async def projects(self) -> tuple[ProjectRef, ...]:
        """The projects that there are, the last used first."""

    async def submit(self, operation: Operation) -> Applied:
        """Have an operation applied, once: it is sent again with the same id after trouble on the way."""


async def pages(store: StoreAccess, request: ReadMemories) -> AsyncIterator[MemoriesRead]:
    """All memories of a request, page by page: no more than a page is held in memory."""
    while True:
        page = await store.read_memories(request)
        yield page
        if not page.more or not page.memories:
            return
        request = msgspec.structs.replace(request, after=page.memories[-1].number)


async def all_memories(store: StoreAccess, request: ReadMemories) -> list[Material]:
    """All memories of a request at once, for those that are few."""
    return [memory async for page in pages(store, request) for memory in page.memories]
