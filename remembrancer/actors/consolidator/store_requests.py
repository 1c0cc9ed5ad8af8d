"""The consolidator's requests to the store. The id of an operation is derived from its edits, which name the versions
that they expect. Repeating a plan therefore repeats the same operation, and the store skips edits of older versions."""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import anyio
import anyio.to_thread
import msgspec

from remembrancer.config.settings import Settings
from remembrancer.memory.promotion import MERGE_COSINE
from remembrancer.protocol.consolidation import FindNear, Material, ReadMemories
from remembrancer.protocol.ids import derive_id
from remembrancer.protocol.runs import AddMemory, ApplyRun, Edit, Place, ReviseMemory, RunKind, RunResult
from remembrancer.protocol.store_client import StoreClient
from remembrancer.protocol.writes import Operation, ProjectRef, Submit

VECTORS_WAIT_S: Final = 10.0
"""The longest wait for missing vectors. A memory without a vector is promoted, but never merged."""
FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 0.5
ROWS: Final = 16
PART_EDITS: Final = 200
"""The number of edits in one transaction, for which later operations must wait."""
NO_PROJECT: Final = ProjectRef("", "")

Clock = Callable[[], float]
"""Seconds since the epoch."""
Group = tuple[Edit, ...]
"""Edits of one transaction."""
Found = Sequence[tuple[Material, float]]
"""Nearest first, with their cosines."""


# --- Reading.


async def find_near(
    store: StoreClient, project: ProjectRef | None, memories: Sequence[Material], limit: int = 5
) -> dict[str, Found]:
    """For each memory with a vector, by id, the other active memories that it might be merged into."""
    near: dict[str, Found] = {}
    embedded = [memory for memory in memories if memory.vector]
    for begin in range(0, len(embedded), ROWS):
        portion = embedded[begin : begin + ROWS]
        numbers = tuple(memory.number for memory in portion)
        rows = await store.ask(FindNear(project, numbers, MERGE_COSINE, limit=limit + 1))
        for memory, row in zip(portion, rows, strict=True):
            near[memory.id] = [(other, cosine) for other, cosine in row if other.id != memory.id][:limit]
    return near


async def pages(store: StoreClient, request: ReadMemories) -> AsyncIterator[Sequence[Material]]:
    """All requested memories, page by page, with only one page in RAM."""
    while True:
        page = await store.ask(request)
        yield page.memories
        if not page.more or not page.memories:
            return
        request = msgspec.structs.replace(request, after=page.memories[-1].number)


async def all_memories(store: StoreClient, request: ReadMemories) -> list[Material]:
    return [memory async for page in pages(store, request) for memory in page]


async def read_settled(
    store: StoreClient, request: ReadMemories, settings: Settings, longest_s: float = VECTORS_WAIT_S
) -> list[Material]:
    """All requested memories, with vectors. Waits up to `longest_s` for missing vectors if embedders run here."""
    request = msgspec.structs.replace(request, with_vectors=True)
    give_up_at = anyio.current_time() + (longest_s if settings.embedders else 0.0)
    pause_s = FIRST_PAUSE_S
    while True:
        memories = await all_memories(store, request)
        if all(memory.vector for memory in memories) or anyio.current_time() >= give_up_at:
            return memories
        await anyio.sleep(pause_s)
        pause_s = min(pause_s * 2, LONGEST_PAUSE_S)


# --- Runs.


def run_id_of(*parts: object) -> str:
    return "run:" + derive_id("run", *parts)


@dataclass
class Run:
    """A run that is written in parts or, with `dry_run`, not at all."""

    store: StoreClient
    project: ProjectRef | None
    """The project whose memories the run changes, or None for the user's memories."""
    run_id: str
    kind: RunKind
    clock: Clock
    session_id: str = ""
    dry_run: bool = False
    place: Place = "project"
    """A run on a project may also change the user's memories."""
    parts: int = 0

    async def write(self, groups: Iterable[Group]) -> set[str]:
        """Returns the ids of memories whose edits the store skipped."""
        passed_over: set[str] = set()
        for edits in [] if self.dry_run else packed(groups):
            outcome = await self.write_part(edits)
            # If a link already exists, skipping it need not be reported.
            making = (AddMemory.__name__, ReviseMemory.__name__)
            passed_over |= {skipped.memory_id for skipped in outcome.skipped if skipped.edit in making}
        return passed_over

    async def write_part(self, edits: Group, *, operation_id: str | None = None) -> RunResult:
        part = ApplyRun(self.run_id, self.place, self.kind, edits, self.session_id)
        where = self.project or NO_PROJECT
        name = operation_id or derive_id("part", self.run_id, where.id, self.place, edits)
        applied = await self.store.ask(Submit(Operation(name, where, "", self.clock(), part)))
        assert isinstance(applied.result, RunResult)
        self.parts += 1
        return applied.result


def packed(groups: Iterable[Group]) -> list[Group]:
    """The edits of each part of a run, in order. No group is split, however large."""
    parts: list[Group] = []
    for group in filter(None, groups):
        if parts and len(parts[-1]) + len(group) <= PART_EDITS:
            parts[-1] += group
        else:
            parts.append(group)
    return parts
