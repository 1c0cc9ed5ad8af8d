"""How the work reads: memories that wait for their vectors are waited for, and much is asked for in portions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import anyio
import anyio.to_thread
import msgspec

from remembrancer.actors.consolidator.store_access import StoreAccess, all_memories
from remembrancer.protocol.consolidation import FindNear, Material, ReadMemories
from remembrancer.protocol.kinds import Scope
from remembrancer.protocol.writes import ProjectRef

FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 0.5
ROWS: Final = 64
"""Vectors in one question for what is near them."""
IDS: Final = 200
"""Memories that are asked for by their ids at once."""

T = TypeVar("T")


async def read_settled(store: StoreAccess, request: ReadMemories, patience_s: float) -> list[Material]:
    """All memories of a request, with their vectors as soon as all have them, at the latest when patience ends.

    They are read again as long as some have none: an embedder may be at work on them, or about to start.
    """
    request = msgspec.structs.replace(request, with_vectors=True)
    give_up_at = anyio.current_time() + patience_s
    pause_s = FIRST_PAUSE_S
    while True:
        memories = await all_memories(store, request)
        left_s = give_up_at - anyio.current_time()
        if left_s <= 0 or all(memory.vector for memory in memories):
            return memories
        await anyio.sleep(min(pause_s, left_s))
        pause_s = min(pause_s * 2, LONGEST_PAUSE_S)


async def read_named(
    store: StoreAccess, project: ProjectRef | None, memory_ids: Sequence[str], *, with_vectors: bool = True
) -> list[Material]:
    """Those of the memories that are there and not forgotten."""
    found: list[Material] = []
    for begin in range(0, len(memory_ids), IDS):
        ids = tuple(memory_ids[begin : begin + IDS])
        request = ReadMemories(project, memory_ids=ids, with_vectors=with_vectors)
        found.extend(await all_memories(store, request))
    return found


async def find_near(
    store: StoreAccess,
    project: ProjectRef | None,
    memories: Sequence[Material],
    min_cosine: float,
    *,
    limit: int = 5,
    scopes: tuple[Scope, ...] = ("project", "user"),
) -> dict[str, list[tuple[Material, float]]]:
    """By id: the active memories of a file (None: the user's) that are near each of these, itself left out."""
    near: dict[str, list[tuple[Material, float]]] = {}
    embedded = [memory for memory in memories if memory.vector]
    for begin in range(0, len(embedded), ROWS):
        portion = embedded[begin : begin + ROWS]
        vectors = b"".join(memory.vector for memory in portion)
        found = await store.find_near(
            FindNear(project, vectors, len(portion), min_cosine, limit=limit + 1, scopes=scopes)
        )
        for memory, row in zip(portion, found.rows, strict=True):
            near[memory.id] = [(other, cosine) for other, cosine in row if other.id != memory.id][:limit]
    return near


async def aside(work: Callable[[], T]) -> T:
    """What takes its time, in a thread: the process answers its heartbeats meanwhile."""
    return await anyio.to_thread.run_sync(work)
