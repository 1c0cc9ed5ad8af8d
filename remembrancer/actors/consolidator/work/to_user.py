"""What is of use in every project goes from the project to the user."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Final

from remembrancer.actors.consolidator.handlers import Clock
from remembrancer.actors.consolidator.promotion import (
    PromotionRules,
    Verdict,
    merged_confidence,
    merged_importance,
    promoted_to_user,
)
from remembrancer.actors.consolidator.store_access import StoreAccess, pages
from remembrancer.actors.consolidator.work.agreement import alike, other_words, says_the_same
from remembrancer.actors.consolidator.work.facts import candidate_of
from remembrancer.actors.consolidator.work.observing import observe
from remembrancer.actors.consolidator.work.patterns import name_of
from remembrancer.actors.consolidator.work.reading import find_near, read_named
from remembrancer.actors.consolidator.work.rules import WorkRules
from remembrancer.actors.consolidator.work.writing import derive, run_id_of, submit_run
from remembrancer.protocol.consolidation import Material, ReadMemories
from remembrancer.protocol.errors import InvalidInput, NotFound
from remembrancer.protocol.runs import AddLink, ApplyRun, ChainLink, LogPromotion, ReviseMemory
from remembrancer.protocol.writes import Operation, ProjectRef, PromoteMemory

ATTEMPTS: Final = 3
"""How often a merge is tried again, if the user's memory was changed at that moment."""
PAGE: Final = 1000

logger = logging.getLogger(__name__)


async def promote_to_user(
    store: StoreAccess,
    project: ProjectRef,
    rules: WorkRules,
    clock: Clock,
    *,
    dry_run: bool = False,
    spoken_for: Collection[str] = (),
    run_id: str | None = None,
) -> int:
    """Promote what deserves it, or merge it into what the user's memory says already; how many memories those are.

    What is `spoken_for` is left out: something else is about to be done with it. `run_id` is the session's end of
    which this is a consequence; its undoing names what has gone.
    """
    promising = await _promising(store, project, rules.promotion)
    memories = {memory.id: memory for memory in await read_named(store, project, promising)}
    chosen = promoted_to_user(
        [candidate_of(memory) for memory in memories.values() if memory.id not in spoken_for],
        clock(),
        rules.promotion,
        project_name=name_of(project),
    )
    if dry_run:
        return len(chosen)
    done = 0
    for candidate, verdict in chosen:
        done += await _promote(store, project, memories[candidate.id], verdict, rules, clock, run_id)
    return done


async def _promising(store: StoreAccess, project: ProjectRef, rules: PromotionRules) -> list[str]:
    """Ids of the few that are worth being read whole."""
    request = ReadMemories(
        project,
        scopes=("project",),
        statuses=("active",),
        limit=PAGE,
        with_content=False,
        min_sessions=rules.user_min_sessions,
        min_importance=rules.user_min_importance,
        kinds=tuple(sorted(rules.user_kinds)),
    )
    return [memory.id async for page in pages(store, request) for memory in page.memories]


async def _promote(
    store: StoreAccess,
    project: ProjectRef,
    memory: Material,
    verdict: Verdict,
    rules: WorkRules,
    clock: Clock,
    run_id: str | None,
) -> bool:
    near = await _near(store, memory, rules)
    same = says_the_same(memory, near, clock(), rules.promotion.merge_cosine, rules.contradictions)
    if same is not None:
        return await _merge(store, project, memory, verdict, same, rules, clock)
    change = PromoteMemory(memory.id, "user", verdict.reason, why="pattern_match", score=verdict.score, run_id=run_id)
    name = derive("to_user", project.id, memory.id, memory.version)
    try:
        await store.submit(Operation(name, project, "", clock(), change))
    except (NotFound, InvalidInput) as error:
        logger.info("a memory was not promoted", extra={"memory_id": memory.id, "code": error.code})
        return False
    links = tuple(
        AddLink(memory.id, other.id, "similar_to", min(1.0, cosine))
        for other, cosine in alike(memory, near, clock(), rules.promotion.merge_cosine)
    )
    if links:
        run = ApplyRun(_run_id(project, memory), "user", "promotion", "promote", links)
        await submit_run(store, project, run, clock(), operation_id=derive("alike", project.id, memory.id))
    return True


async def _near(store: StoreAccess, memory: Material, rules: WorkRules) -> list[tuple[Material, float]]:
    """The user's memories that are near one of a project."""
    near = await find_near(store, None, [memory], rules.promotion.merge_cosine, limit=3, scopes=("user",))
    return near.get(memory.id, [])


async def _same(store: StoreAccess, memory: Material, rules: WorkRules, now: float) -> tuple[Material, float] | None:
    near = await _near(store, memory, rules)
    return says_the_same(memory, near, now, rules.promotion.merge_cosine, rules.contradictions)


async def _merge(
    store: StoreAccess,
    project: ProjectRef,
    memory: Material,
    verdict: Verdict,
    same: tuple[Material, float] | None,
    rules: WorkRules,
    clock: Clock,
) -> bool:
    """First in the user's file, then in the project's. When it ends in between, the repetition finds the first step
    done, by the id of its operation, and does the second."""
    for attempt in range(ATTEMPTS):
        if same is None:
            return False
        into, cosine = same
        await observe(store, project, memory.id, into.id, clock())
        name = derive("merged_to_user", project.id, memory.id, memory.version, attempt)
        run = user_part(project, memory, verdict, into, cosine, rules.promotion, clock())
        merged = await submit_run(store, project, run, clock(), operation_id=name)
        if not merged.skipped:
            await submit_run(store, project, project_part(project, memory, verdict, into.id), clock())
            return True
        same = await _same(store, memory, rules, clock())
    return False


def user_part(
    project: ProjectRef,
    memory: Material,
    verdict: Verdict,
    into: Material,
    cosine: float,
    rules: PromotionRules,
    now: float,
) -> ApplyRun:
    """What becomes of the user's memory that a project's memory is merged into."""
    chain = ChainLink(
        "project",
        memory.id,
        now,
        action="merged",
        session_id=memory.session_id or None,
        source_project=project.id,
        score=verdict.score,
        reason=verdict.reason,
        content=other_words(memory, into),
    )
    edit = ReviseMemory(
        into.id,
        "merged",
        expected_version=into.version,
        importance=merged_importance(into.importance, memory.importance),
        confidence=merged_confidence(into.confidence, "user", rules),
        tags=memory.tags,
        accessed=True,
        chain=chain,
        reason=f"{memory.id} of the project {project.id} was merged into it (cosine {cosine:.3f})",
    )
    return ApplyRun(_run_id(project, memory), "user", "promotion", "merge_similar", (edit,))


def project_part(project: ProjectRef, memory: Material, verdict: Verdict, into: str) -> ApplyRun:
    """What becomes of a project's memory that was merged into one of the user's."""
    reason = f"merged into the user's {into}, which says the same; {verdict.reason}"
    return ApplyRun(
        _run_id(project, memory),
        "project",
        "promotion",
        "merge_similar",
        (
            ReviseMemory(memory.id, "promoted", expected_version=memory.version, status="promoted", reason=reason),
            LogPromotion(
                memory.id, memory.kind, "project", "user", "pattern_match", memory.session_id, verdict.score, into
            ),
        ),
    )


def _run_id(project: ProjectRef, memory: Material) -> str:
    return run_id_of("to_user", project.id, memory.id, memory.version)
