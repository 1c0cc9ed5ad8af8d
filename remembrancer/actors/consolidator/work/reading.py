"""How the work reads: memories that wait for their vectors are waited for, and much is asked for in portions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final, TypeVar

import anyio
import anyio.to_thread
import msgspec

from remembrancer.actors.consolidator.store_access import StoreAccess, all_memories, pages
from remembrancer.protocol.consolidation import FindNear, Material, ReadMemories
from remembrancer.protocol.kinds import Scope
from remembrancer.protocol.writes import ProjectRef

FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 0.5
PAGE: Final = 500
SLICE: Final = 2000
"""Memories that are thought about together: of a session that has more, those that came together."""
ROWS: Final = 64
"""Vectors in one question for what is near them."""
IDS: Final = 200
"""Memories that are asked for by their ids at once."""

T = TypeVar("T")


async def settled(store: StoreAccess, request: ReadMemories, patience_s: float) -> None:
    """Wait until none of the memories of a request waits for its vectors, at the latest when patience ends.

    An embedder may be at work on them, or about to start. Whether there is one left is asked, and nothing read.
    """
    request = msgspec.structs.replace(request, waiting=True, with_vectors=False, with_content=False, limit=1)
    give_up_at = anyio.current_time() + patience_s
    pause_s = FIRST_PAUSE_S
    while (left_s := give_up_at - anyio.current_time()) > 0:
        if not (await store.read_memories(request)).memories:
            return
        await anyio.sleep(min(pause_s, left_s))
        pause_s = min(pause_s * 2, LONGEST_PAUSE_S)


async def read_settled(store: StoreAccess, request: ReadMemories, patience_s: float) -> list[Material]:
    """All memories of a request, with their vectors as soon as all have them, at the latest when patience ends."""
    await settled(store, request, patience_s)
    return await all_memories(store, msgspec.structs.replace(request, with_vectors=True))


async def slices(store: StoreAccess, request: ReadMemories, patience_s: float = 0.0) -> AsyncIterator[list[Material]]:
    """The memories of a request with their vectors, so many at a time that they can be thought about together, and
    that a session of any length fits into memory."""
    await settled(store, request, patience_s)
    held: list[Material] = []
    async for page in pages(store, msgspec.structs.replace(request, with_vectors=True, limit=PAGE)):
        held.extend(page.memories)
        if len(held) >= SLICE:
            yield held
            held = []
    if held:
        yield held


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
