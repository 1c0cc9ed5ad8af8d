"""A reflection that somebody asked for: what a session's memories come to, and the themes that recur in its project."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from remembrancer.actors.consolidator.handlers import Clock
from remembrancer.actors.consolidator.store_access import StoreAccess, all_memories
from remembrancer.actors.consolidator.work.patterns import PatternPlan, name_of, plan_patterns
from remembrancer.actors.consolidator.work.reading import aside, read_settled
from remembrancer.actors.consolidator.work.rules import WorkRules, rules_of
from remembrancer.actors.consolidator.work.summing_up import Derived, plan_summaries
from remembrancer.actors.consolidator.work.writing import Group, Head, lost, parts_of, run_id_of, submit_run
from remembrancer.config.settings import Settings
from remembrancer.protocol.consolidation import (
    ConsolidatedMemory,
    Material,
    Pattern,
    ReadMemories,
    Reflect,
    ReflectDuty,
    Reflected,
)
from remembrancer.protocol.kinds import Status, type_of_kind
from remembrancer.protocol.runs import ApplyRun, Method, Place
from remembrancer.protocol.writes import ProjectRef

WAIT_S: Final = 3.0
"""How long somebody who asks is kept waiting for vectors that are still being made."""
THEMES_AMONG: Final = 1500
"""Of a project's memories the latest so many are searched for themes."""
PAGE: Final = 500
LAST: Final = 2**62
"""Above the number of any memory."""
STANDING: Final[tuple[Status, ...]] = ("active", "consolidated", "promoted")
"""What is archived is no theme any more."""


async def reflect(duty: ReflectDuty, store: StoreAccess, settings: Settings, clock: Clock) -> Reflected:
    """Carry out a reflection, or say what it would do. The same operation again does nothing twice."""
    rules, request = rules_of(settings), duty.request
    project = request.project
    own = await read_settled(store, ReadMemories(project, session_id=request.about), min(WAIT_S, rules.vectors_wait_s))
    summaries: list[Derived] = []
    if request.strategy != "extract_patterns":
        summaries = await aside(lambda: plan_summaries(own, clock(), rules.clusters, again=True))
    patterns: list[PatternPlan] = []
    if request.strategy != "summarize":
        patterns = await find_patterns(store, project, own, rules, clock())
    looked_at = [memory for memory in own if not memory.is_derived]
    answer = Reflected(
        memories=tuple(_told(derived) for derived in summaries),
        patterns=tuple(plan.pattern for plan in patterns),
        analyzed=len(looked_at),
        not_embedded=sum(not memory.vector for memory in looked_at),
    )
    return answer if request.dry_run else await _carry_out(request, store, summaries, patterns, answer, clock)


async def find_patterns(
    store: StoreAccess, project: ProjectRef, own: Sequence[Material], rules: WorkRules, now: float
) -> list[PatternPlan]:
    """The themes of a project's latest memories and of a session's own."""
    shared = await _latest(store, project)
    seen = {memory.id for memory in shared}
    memories = [*shared, *(memory for memory in own if memory.id not in seen)]
    return await aside(lambda: plan_patterns(memories, now, rules.themes, name_of(project)))


def reflection_parts(
    run_id: str,
    summaries: Sequence[Derived],
    patterns: Sequence[PatternPlan],
    *,
    session_id: str = "",
    place: Place = "project",
) -> list[ApplyRun]:
    """The parts of a run that writes summaries and procedures."""
    procedures = [plan.derived for plan in patterns if plan.derived is not None]
    work: tuple[tuple[Method, Sequence[Derived]], ...] = (
        ("summarize_cluster", summaries),
        ("extract_patterns", procedures),
    )
    parts: list[ApplyRun] = []
    for method, made in work:
        head = Head(run_id, place, "consolidation", method, session_id)
        groups: list[Group] = [derived.group for derived in made]
        sources = [source.id for derived in made for source in derived.sources]
        results = [derived.memory.id for derived in made]
        parts += parts_of(head, groups, first=len(parts), sources=sources, results=results)
    return parts


async def _carry_out(
    request: Reflect,
    store: StoreAccess,
    summaries: Sequence[Derived],
    patterns: Sequence[PatternPlan],
    answer: Reflected,
    clock: Clock,
) -> Reflected:
    """Write it. What an earlier attempt at the same operation has made belongs to the answer as well."""
    project = request.project
    versions = [sorted((each.id, each.version) for each in derived.sources) for derived in summaries]
    run_id = run_id_of("reflection", project.id, request.about, request.operation_id or versions)
    earlier = await all_memories(store, ReadMemories(project, made_by=run_id))
    passed_over: set[str] = set()
    parts = reflection_parts(run_id, summaries, patterns, session_id=request.about)
    for part in parts:
        result = await submit_run(store, project, part, clock())
        passed_over |= lost(result)
    made = {memory.id: memory for memory in answer.memories if memory.id not in passed_over}
    before = {memory.id: _told_of(memory) for memory in earlier if memory.type == "semantic"}
    wrote = (
        bool(earlier)
        or bool(made)
        or any(plan.derived is not None and plan.derived.memory.id not in passed_over for plan in patterns)
    )
    return msgspec.structs.replace(
        answer,
        memories=tuple((before | made).values()),
        patterns=tuple(_without_lost(pattern, passed_over) for pattern in answer.patterns),
        skipped=len(passed_over),
        run_id=run_id if wrote else None,
    )


async def _latest(store: StoreAccess, project: ProjectRef) -> list[Material]:
    """The latest memories of a project with their vectors, whatever became of them, the first one first."""
    request = ReadMemories(project, scopes=("project",), statuses=STANDING, limit=PAGE, with_vectors=True)
    latest: list[Material] = []
    before = LAST
    while len(latest) < THEMES_AMONG:
        page = await store.read_memories(msgspec.structs.replace(request, before=before))
        latest.extend(page.memories)
        if not page.more or not page.memories:
            break
        before = page.memories[-1].number
    return latest[:THEMES_AMONG][::-1]


def _told(derived: Derived) -> ConsolidatedMemory:
    memory = derived.memory
    return ConsolidatedMemory(
        id=memory.id,
        content=memory.content,
        type=type_of_kind(memory.kind),
        kind=memory.kind,
        scope=memory.scope,
        derived_from=tuple(source.id for source in derived.sources),
    )


def _told_of(memory: Material) -> ConsolidatedMemory:
    return ConsolidatedMemory(memory.id, memory.content, memory.type, memory.kind, memory.scope, memory.derived_from)


def _without_lost(pattern: Pattern, passed_over: set[str]) -> Pattern:
    """A pattern whose memory was not made stays a suggestion."""
    return msgspec.structs.replace(pattern, memory_id=None) if pattern.memory_id in passed_over else pattern
