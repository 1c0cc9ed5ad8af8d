"""What a session should know for its task, in four sections: the first seed's `get_memory_context`.

A memory is in one section only. A session's own memories are its history. A procedural memory belongs to the relevant
procedures if it matches the task; without a task the project's do, and the user's are preferences (if that section is
wanted). What is left of the user's semantic and procedural memories are preferences, what is left of the project's is
project knowledge.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

from remembrancer.actors.store.records.contract import Filters, MemoryRecord, Order, Records, Vectors
from remembrancer.actors.store.retrieval.file_mentions import OpenFiles, open_files
from remembrancer.actors.store.retrieval.ranking import DEFAULT_WEIGHTS, Weights, recency
from remembrancer.actors.store.retrieval.recalls import Source, as_recalled, recall
from remembrancer.protocol.reads import (
    ContextGathered,
    ContextSection,
    GatherContext,
    Notice,
    Recall,
    RecalledMemory,
    Scores,
    Section,
    Strategy,
)
from remembrancer.protocol.writes import MemoryType, Scope

SECTIONS: Final[tuple[Section, ...]] = ("preferences", "project_context", "session_history", "relevant_procedures")
TAKES_FIRST: Final[tuple[Section, ...]] = ("relevant_procedures", "preferences", "project_context", "session_history")
"""Which section has a memory that several have found."""
PREFERENCE_TYPES: Final[tuple[MemoryType, ...]] = ("semantic", "procedural")
IMPORTANCE_SHARE: Final = 0.5
RECENCY_SHARE: Final = 0.2
RELEVANCE_SHARE: Final = 0.3
"""What ranks preferences when there is a task. Importance first: a preference holds for tasks that do not name it."""

T = TypeVar("T")


@dataclass(slots=True)
class Finds:
    """What a section has found, the best first. `more`: others match that were not fetched."""

    memories: list[RecalledMemory] = field(default_factory=list)
    more: bool = False


def divided(found: dict[Section, Finds], limit: int) -> tuple[ContextSection, ...]:
    """The sections with each memory in one of them, and at most `limit` in each."""
    taken: set[str] = set()
    kept: dict[Section, ContextSection] = {}
    for name in (name for name in TAKES_FIRST if name in found):
        own = [memory for memory in found[name].memories if memory.id not in taken]
        kept[name] = ContextSection(name, tuple(own[:limit]), more=found[name].more or len(own) > limit)
        taken.update(memory.id for memory in kept[name].memories)
    return tuple(kept[name] for name in SECTIONS if name in kept)


class Gathering:
    """One request under way. A project that has no file yet (`project` is None) has no memories.

    `embed` makes the task's vector, once for all; where it raises `EmbeddingUnavailable`, words are searched alone.
    """

    def __init__(
        self,
        request: GatherContext,
        project: Source | None,
        user: Source,
        embed: Callable[[str], Awaitable[Vectors]],
        threads: Executor,
        now: float,
        weights: Weights = DEFAULT_WEIGHTS,
    ) -> None:
        self._request = request
        self._project = project
        self._user = user
        self._embed = embed
        self._threads = threads
        self._now = now
        self._weights = weights
        self._task = request.task.strip()
        self._files = open_files(request.files)
        self._vector: asyncio.Task[Vectors] | None = None
        self._notices: list[Notice] = []

    async def gathered(self) -> ContextGathered:
        """The sections that are asked for, searched side by side, and what the searches lacked."""
        searches: dict[Section, Callable[[], Awaitable[Finds]]] = {
            "preferences": self._preferences,
            "project_context": self._project_context,
            "session_history": self._session_history,
            "relevant_procedures": self._relevant_procedures,
        }
        wanted = [name for name in SECTIONS if name in self._request.sections]
        found = dict(zip(wanted, await asyncio.gather(*(searches[name]() for name in wanted)), strict=True))
        return ContextGathered(divided(found, self._request.limit), tuple(self._notices))

    async def _preferences(self) -> Finds:
        """The user's semantic and procedural memories: by importance, then recency; with a task also by relevance."""
        most, related = await asyncio.gather(
            self._top([self._user], ("user",), PREFERENCE_TYPES, self._fetched),
            self._recall([self._user], self._task, ("user",), PREFERENCE_TYPES),
        )
        if not self._task:
            return most
        ranked = sorted(_once([*related.memories, *most.memories]), key=_preference, reverse=True)
        return Finds(ranked, more=most.more or related.more)

    async def _relevant_procedures(self) -> Finds:
        """Procedural memories of the project and the user that match the task."""
        sources = [source for source in (self._project, self._user) if source is not None]
        if self._task:
            return await self._recall(sources, self._task, ("project", "user"), ("procedural",))
        if "preferences" in self._request.sections:
            return await self._top(sources, ("project",), ("procedural",), self._request.limit)
        return await self._top(sources, ("project", "user"), ("procedural",), self._request.limit)

    async def _project_context(self) -> Finds:
        """What the project knows of the task and of the open files, memories that name one of these first.

        Without a task the most important follow.
        """
        if self._project is None:
            return Finds()
        sources = [self._project]
        words = self._files.query(self._task)
        strategy: Strategy = "hybrid" if self._task else "keyword"
        rest = Finds()
        matches, of_files = await asyncio.gather(
            self._recall(sources, words, ("project",), (), strategy), self._from_files(self._project.records)
        )
        if not self._task:
            rest = await self._top(sources, ("project",), (), self._fetched)
        known = _once([*matches.memories, *of_files, *rest.memories])
        known.sort(key=partial(_mention, self._files))
        return Finds(known, more=matches.more or rest.more)

    async def _session_history(self) -> Finds:
        """This session's memories, what happened before the rest, the latest first."""
        if self._project is None:
            return Finds()
        sources, limit = [self._project], self._request.limit
        events = await self._top(sources, ("session",), ("episodic",), limit, "latest")
        if len(events.memories) >= limit:
            return events
        others = await self._top(sources, ("session",), ("semantic", "procedural"), limit, "latest")
        return Finds(events.memories + others.memories, more=others.more)

    @property
    def _fetched(self) -> int:
        """How many to fetch where another section may take as many as it may have."""
        return 2 * self._request.limit

    async def _recall(
        self,
        sources: list[Source],
        query: str,
        scopes: tuple[Scope, ...],
        types: tuple[MemoryType, ...],
        strategy: Strategy = "hybrid",
    ) -> Finds:
        if not query:
            return Finds()
        request = Recall(
            project=self._request.project,
            session_id=self._request.session_id,
            query=query,
            strategy=strategy,
            limit=self._fetched,
            scopes=scopes,
            types=types,
        )
        answer, _ = await recall(request, sources, self._vector_of_task, self._threads, self._now, self._weights)
        self._notices.extend(notice for notice in answer.notices if notice not in self._notices)
        return Finds(list(answer.memories), more=answer.total_matched > len(answer.memories))

    async def _vector_of_task(self, _: str) -> Vectors:
        """The one vector for every search, also where the words that are searched differ."""
        if self._vector is None:
            self._vector = asyncio.ensure_future(_awaited(self._embed(self._task)))
        return await asyncio.shield(self._vector)

    async def _top(
        self,
        sources: list[Source],
        scopes: tuple[Scope, ...],
        types: tuple[MemoryType, ...],
        limit: int,
        order: Order = "important",
    ) -> Finds:
        filters = Filters(self._request.session_id, scopes, types)

        def read() -> list[RecalledMemory]:
            found = [
                memory
                for source in sources
                for memory in self._loaded(source.records, source.records.top(filters, order, limit + 1), filters)
            ]
            return sorted(found, key=_latest if order == "latest" else _important, reverse=True)

        memories = await asyncio.get_running_loop().run_in_executor(self._threads, read)
        return Finds(memories[:limit], more=len(memories) > limit)

    async def _from_files(self, records: Records) -> list[RecalledMemory]:
        """The project's memories whose source is one of the open files."""
        filters = Filters(self._request.session_id, ("project",))

        def read() -> list[RecalledMemory]:
            numbers = records.from_files(self._files.names(), filters, self._fetched)
            found = self._loaded(records, numbers, filters)
            return [memory for memory in found if self._files.is_source(memory.source.file)]

        return await asyncio.get_running_loop().run_in_executor(self._threads, read)

    def _loaded(self, records: Records, numbers: Sequence[int], filters: Filters) -> list[RecalledMemory]:
        known = records.load(numbers, filters)
        return [self._shown(known[number]) for number in numbers if number in known]

    def _shown(self, record: MemoryRecord) -> RecalledMemory:
        """A memory that nothing was asked of, so that it has no relevance."""
        recent = recency(_happened_at(record), self._now)
        final = self._weights.final(0.0, record.importance, recent)
        return as_recalled(record, Scores(final, relevance=0.0, importance=record.importance, recency=recent))


def visible_numbers(records: Records, memory_ids: Iterable[str], session_id: str) -> list[int]:
    """The numbers of those of the memories that are in this file and that the session may see."""
    known = [number for number in map(records.number_of, memory_ids) if number is not None]
    return list(records.ranking_facts(known, Filters(session_id, include_forgotten=True)))


async def _awaited(made: Awaitable[T]) -> T:
    return await made


def _once(memories: Iterable[RecalledMemory]) -> list[RecalledMemory]:
    found: dict[str, RecalledMemory] = {}
    for memory in memories:
        found.setdefault(memory.id, memory)
    return list(found.values())


def _happened_at(memory: MemoryRecord | RecalledMemory) -> float:
    return memory.created_at if memory.occurred_at is None else memory.occurred_at


def _important(memory: RecalledMemory) -> tuple[float, float]:
    return memory.importance, _happened_at(memory)


def _latest(memory: RecalledMemory) -> float:
    return _happened_at(memory)


def _preference(memory: RecalledMemory) -> float:
    scores = memory.scores
    return IMPORTANCE_SHARE * scores.importance + RECENCY_SHARE * scores.recency + RELEVANCE_SHARE * scores.relevance


def _mention(files: OpenFiles, memory: RecalledMemory) -> int:
    """Where a memory stands: those that come from an open file, those that name one, the others."""
    if files.is_source(memory.source.file):
        return 0
    return 1 if files.are_named_in(memory.content) else 2
