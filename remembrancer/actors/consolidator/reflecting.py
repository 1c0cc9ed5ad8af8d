"""A reflection on request: summaries of a session's memories, and recurring themes of its project."""

from collections.abc import Sequence
from typing import Final

import msgspec
from anyio.to_thread import run_sync

from remembrancer.actors.consolidator.derived_memories import (
    Derived,
    PatternPlan,
    by_id,
    name_of,
    plan_patterns,
    plan_summaries,
)
from remembrancer.actors.consolidator.store_requests import Clock, Run, pages, read_settled, run_id_of
from remembrancer.config.settings import Settings
from remembrancer.protocol.consolidation import ConsolidatedMemory, Material, ReadMemories, Reflect, Reflected
from remembrancer.protocol.kinds import Status, type_of_kind
from remembrancer.protocol.store_client import StoreClient
from remembrancer.protocol.writes import ProjectRef

WAIT_S: Final = 3.0
"""The maximum time that a caller waits for missing vectors."""
THEME_MEMORIES: Final = 1500
"""The number of a project's latest memories searched for themes."""
THEME_STATUSES: Final[tuple[Status, ...]] = ("active", "consolidated", "promoted")
"""The statuses of memories that count for a theme; archived memories do not count."""


async def reflect(request: Reflect, store: StoreClient, settings: Settings, clock: Clock) -> Reflected:
    """Carry out a reflection. Repeating it has no further effect."""
    project = request.project
    own = await read_settled(store, ReadMemories(project, session_id=request.session_id), settings, WAIT_S)
    summaries: list[Derived] = []
    if request.strategy != "extract_patterns":
        summaries = await run_sync(lambda: plan_summaries(own, clock(), again=True))
    patterns: list[PatternPlan] = []
    if request.strategy != "summarize":
        patterns = await find_patterns(store, project, own, clock())
    looked_at = [memory for memory in own if not memory.is_derived]
    answer = Reflected(
        memories=tuple(_shown(derived) for derived in summaries),
        patterns=tuple(pattern for pattern, _ in patterns),
        analyzed=len(looked_at),
        not_embedded=sum(not memory.vector for memory in looked_at),
    )
    if request.dry_run:
        return answer
    run_id = run_id_of("reflection", project.id, request.session_id, request.operation_id)
    run = Run(store, project, run_id, "consolidation", clock, request.session_id)
    made = by_id([*summaries, *(derived for _, derived in patterns if derived is not None)])
    passed_over = await run.write(made.values())
    return msgspec.structs.replace(
        answer,
        memories=tuple(memory for memory in answer.memories if memory.id not in passed_over),
        patterns=tuple(  # a pattern whose memory was not stored remains a suggestion
            msgspec.structs.replace(pattern, memory_id=None) if pattern.memory_id in passed_over else pattern
            for pattern in answer.patterns
        ),
        skipped=len(passed_over),
        run_id=None if passed_over.issuperset(made) else run_id,
    )


async def find_patterns(
    store: StoreClient, project: ProjectRef, own: Sequence[Material], now: float
) -> list[PatternPlan]:
    """The themes of a project's latest memories (also summarised and promoted ones) and a session's memories."""
    request = ReadMemories(project, scopes=("project",), statuses=THEME_STATUSES, with_vectors=True, newest_first=True)
    latest: list[Material] = []
    async for page in pages(store, request):
        latest += page
        if len(latest) >= THEME_MEMORIES:
            break
    shared = latest[:THEME_MEMORIES][::-1]
    seen = {memory.id for memory in shared}
    memories = [*shared, *(memory for memory in own if memory.id not in seen)]
    return await run_sync(lambda: plan_patterns(memories, now, name_of(project)))


def _shown(derived: Derived) -> ConsolidatedMemory:
    memory, sources = derived[0].memory, tuple(source for source, _ in derived[0].made_of)
    return ConsolidatedMemory(memory.id, memory.content, type_of_kind(memory.kind), memory.scope, sources)
