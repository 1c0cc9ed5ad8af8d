"""The consolidator's way to the store: jobs to be done, memories to be read, and runs to be applied.

Whatever is asked is asked again when the store was away. An operation's id is made from its edits, and the edits say
which versions they are about: what was planned twice from the same memories is one operation, and what was planned
from older ones is passed over by the store.
"""

import hashlib
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import anyio
import anyio.to_thread
import msgspec

from remembrancer.config.settings import Settings
from remembrancer.protocol.consolidation import (
    FindNear,
    Material,
    ReadMemories,
)
from remembrancer.protocol.runs import (
    AddMemory,
    ApplyRun,
    Edit,
    Place,
    ReviseMemory,
    RunKind,
    RunResult,
)
from remembrancer.protocol.store_client import StoreClient
from remembrancer.protocol.writes import Applied, Operation, ProjectRef, Submit

VECTORS_WAIT_S: Final = 10.0
"""The time that memories are waited for that have no vectors yet. Without, they are promoted and never merged."""
FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 0.5
ROWS: Final = 16
"""Memories in one question for what is near them."""
PART_EDITS: Final = 200
"""Edits in one transaction: what comes after them waits for as long as these take."""
NO_PROJECT: Final = ProjectRef("", "")
"""The project of an operation that is about the user's memories alone."""

Clock = Callable[[], float]
"""Seconds since the epoch."""
Group = tuple[Edit, ...]
"""Edits that belong together: they are in one part, so that they are applied in one transaction."""
Found = Sequence[tuple[Material, float]]
"""Memories with their cosines, the nearest first."""
_canonical: Final = msgspec.json.Encoder(order="deterministic")


class StoreConnection(StoreClient):
    """The store, for the consolidator.

    Every question waits for a store that is away for a while, and ends with a `RemembrancerError` when it stays away or
    refuses.
    """

    away_s = 120.0
    """The time that the store may be away in the middle of a job, until the job is given up."""

    async def find_near(
        self,
        project: ProjectRef | None,
        memories: Sequence[Material],
        min_cosine: float,
        limit: int = 5,
    ) -> dict[str, Found]:
        """The id of each of these memories, with the other active memories of a project (None: of the user) near it."""
        near: dict[str, Found] = {}
        embedded = [memory for memory in memories if memory.vector]
        for begin in range(0, len(embedded), ROWS):
            portion = embedded[begin : begin + ROWS]
            numbers = tuple(memory.number for memory in portion)
            rows = await self.ask(FindNear(project, numbers, min_cosine, limit=limit + 1))
            for memory, row in zip(portion, rows, strict=True):
                near[memory.id] = [(other, cosine) for other, cosine in row if other.id != memory.id][:limit]
        return near

    async def submit(self, operation: Operation) -> Applied:
        """Have an operation applied, once: it is sent again with the same id after trouble on the way."""
        return await self.ask(Submit(operation))


# --- Reading much.


async def pages(store: StoreConnection, request: ReadMemories) -> AsyncIterator[Sequence[Material]]:
    """All memories of a request, page by page: no more than a page is held in memory."""
    while True:
        page = await store.ask(request)
        yield page.memories
        if not page.more or not page.memories:
            return
        request = msgspec.structs.replace(request, after=page.memories[-1].number)


async def all_memories(store: StoreConnection, request: ReadMemories) -> list[Material]:
    """All memories of a request at once, for those that are few."""
    return [memory async for page in pages(store, request) for memory in page]


async def read_settled(
    store: StoreConnection, request: ReadMemories, settings: Settings, longest_s: float = VECTORS_WAIT_S
) -> list[Material]:
    """All memories of a request, with their vectors as soon as all have them, at the latest after `longest_s`; where no
    embedder runs, they are not waited for."""
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


def derive(*parts: object) -> str:
    """32 hexadecimal digits that stand for these parts: the same for the same ones, whoever derives them."""
    return hashlib.sha256(_canonical.encode(parts)).hexdigest()[:32]


def run_id_of(*parts: object) -> str:
    """The id of a run."""
    return "run:" + derive("run", *parts)


@dataclass
class Run:
    """A run while it is written, part by part. With `dry_run` nothing is written."""

    store: StoreConnection
    project: ProjectRef | None
    """The project of the run; None: the user's."""
    run_id: str
    kind: RunKind
    clock: Clock
    session_id: str = ""
    dry_run: bool = False
    of_user: bool = False
    """True: a run of the project changes the user's memories."""
    parts: int = 0
    """The number of parts that were written."""

    @property
    def place(self) -> Place:
        """The scope whose memories it changes."""
        return "user" if self.of_user or self.project is None else "project"

    async def write(self, groups: Iterable[Group]) -> set[str]:
        """Have edits carried out. Returns the memories that were not made or changed as they should have been."""
        passed_over: set[str] = set()
        for edits in [] if self.dry_run else packed(groups):
            outcome = await self.write_part(edits)
            # A link that was there already is no loss.
            making = (AddMemory.__name__, ReviseMemory.__name__)
            passed_over |= {skipped.memory_id for skipped in outcome.skipped if skipped.edit in making}
        return passed_over

    async def write_part(self, edits: Group, *, operation_id: str | None = None) -> RunResult:
        """Have the edits of one transaction carried out, once; their outcome."""
        part = ApplyRun(self.run_id, self.place, self.kind, edits, self.session_id)
        where = self.project or NO_PROJECT
        name = operation_id or derive("part", where.id, self.place, self.session_id, edits)
        applied = await self.store.submit(Operation(name, where, "", self.clock(), part))
        assert isinstance(applied.result, RunResult)
        self.parts += 1
        return applied.result


def packed(groups: Iterable[Group]) -> list[Group]:
    """The edits of the parts of a run, in their order. No group is divided; one that is larger than a part is a part of
    its own."""
    parts: list[list[Edit]] = []
    for group in groups:
        if group and (not parts or len(parts[-1]) + len(group) > PART_EDITS):
            parts.append([])
        if group:
            parts[-1].extend(group)
    return [tuple(edits) for edits in parts]
