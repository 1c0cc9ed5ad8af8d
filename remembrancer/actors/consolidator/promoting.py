"""Promotion: a session's memories are promoted to its project; memories that are useful in every project are proposed
for the user, and promoted if two projects have them. Memories that say the same thing are merged."""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import msgspec
from anyio.to_thread import run_sync

from remembrancer.actors.consolidator.clusters import vectors_of
from remembrancer.actors.consolidator.derived_memories import name_of
from remembrancer.actors.consolidator.store_requests import (
    Clock,
    Found,
    Group,
    Run,
    all_memories,
    find_near,
    read_settled,
    run_id_of,
)
from remembrancer.config.settings import Settings
from remembrancer.memory.decay import has_ended
from remembrancer.memory.open_ends import can_stand_for
from remembrancer.memory.promotion import (
    AT_ONCE_SCORE,
    MERGE_COSINE,
    SPEAKING_KINDS,
    USER_KINDS,
    USER_LIMIT,
    USER_MIN_IMPORTANCE,
    USER_MIN_SESSIONS,
    Verdict,
    merged_confidence,
    speaks_of_user,
    strongest,
    to_project,
    to_user,
)
from remembrancer.memory.ranking import NEAR_DUPLICATE_COSINE
from remembrancer.memory.wording import normalised, same_in_words
from remembrancer.protocol.consolidation import Material, ReadMemories, ReadProjects, Upkeep
from remembrancer.protocol.errors import InvalidInput, NotFound
from remembrancer.protocol.ids import derive_id
from remembrancer.protocol.kinds import Scope
from remembrancer.protocol.runs import (
    AddLink,
    LogPromotion,
    NotePattern,
    PromotionReason,
    ProposeMemory,
    ReviseMemory,
)
from remembrancer.protocol.store_client import StoreClient
from remembrancer.protocol.writes import Operation, ProjectRef, PromoteMemory, Submit

NEAR_TO_USER: Final = 3

Promoted = tuple[Material, Verdict]

logger = logging.getLogger(__name__)


# --- Memories that say the same thing. If in doubt, both are kept.


def says_the_same(memory: Material, near: Found, now: float, min_cosine: float) -> tuple[Material, float] | None:
    """The memory that this one can be merged into, with their cosine: the nearest (`near` is sorted) with the same
    words. A memory that says something else may be just as near, and a derived memory may be derived from this one."""
    originals = (pair for pair in alike(memory, near, now, min_cosine) if not pair[0].is_derived)
    return next((pair for pair in originals if same_in_words(memory.content, pair[0].content)), None)


def alike(memory: Material, near: Found, now: float, min_cosine: float) -> Found:
    """The memories near enough to this one that a person may want to compare them."""
    return [
        (other, cosine)
        for other, cosine in near
        if cosine > min_cosine
        and not has_ended(other.valid_until, now)
        and other.id not in memory.derived_from
        and memory.id not in other.derived_from
        and can_stand_for(memory, other)
    ]


# --- From a session into its project.


async def promote_now(
    memory_ids: Sequence[str], project: ProjectRef, store: StoreClient, settings: Settings, clock: Clock
) -> None:
    """Promote memories of running sessions that are too valuable to wait for the session's end."""
    request = ReadMemories(project, memory_ids=tuple(memory_ids), scopes=("session",), statuses=("active",))
    memories = await read_settled(store, request, settings)
    promoted = strongest(memories, partial(to_project, least=AT_ONCE_SCORE), clock())
    if not promoted:
        return
    groups = await plan_for_project(store, project, promoted, clock())
    await observe_patterns(store, project, [memory for memory, _ in promoted], clock())
    sessions = {memory.session_id for memory, _ in promoted}
    run_id = run_id_of("promotion", project.id, sorted((memory.id, memory.version) for memory, _ in promoted))
    run = Run(store, project, run_id, "promotion", clock, sessions.pop() if len(sessions) == 1 else "")
    await run.write(groups)


async def plan_for_project(
    store: StoreClient, project: ProjectRef, promoted: Sequence[Promoted], now: float
) -> list[Group]:
    near = await find_near(store, project, [memory for memory, _ in promoted])
    return await run_sync(plan_promotions, promoted, near, now)


def plan_promotions(promoted: Sequence[Promoted], near: Mapping[str, Found], now: float) -> list[Group]:
    """The edits that promote memories, strongest first, grouped by memory. `near` contains the project's memories near
    each of them. If several memories say the same thing, the strongest is promoted and the rest are merged into it."""
    covered = {source for memory, _ in promoted for source in memory.derived_from}
    rows = vectors_of([memory for memory, _ in promoted])
    cosines = rows @ rows.T
    moved: list[int] = []
    targets: dict[str, Material] = {}  # promoted memories and merge targets, with the edits so far
    groups: list[Group] = []
    for place, (memory, verdict) in enumerate(promoted):
        siblings = [(promoted[other][0], float(cosines[place, other])) for other in moved if cosines[place, other] > 0]
        others = sorted((*near.get(memory.id, ()), *siblings), key=lambda pair: (-pair[1], pair[0].id))
        same = says_the_same(memory, others, now, MERGE_COSINE)
        if same is None:
            logged = _logged(memory, verdict, "importance")
            revision = ReviseMemory(
                memory.id,
                "promoted",
                expected_version=memory.version,
                status=None if memory.id in covered else "active",  # a summary left in the session is invisible
                scope="project",
                chain=logged.step(now, verdict.reason),
                reason=verdict.reason,
            )
            links = [
                AddLink(memory.id, other.id, "similar_to", min(1.0, cosine))
                for other, cosine in alike(memory, others, now, MERGE_COSINE)
            ]
            groups.append((revision, logged, *links))
            targets[memory.id] = msgspec.structs.replace(memory, version=memory.version + 1)
            moved.append(place)
        else:
            other, cosine = same
            into = targets.get(other.id, other)
            merging, source, logged = _merge(memory, verdict, now, into, cosine)
            merging = msgspec.structs.replace(merging, expected_version=into.version, only_with=memory.id)
            link = AddLink(memory.id, into.id, "supports", min(1.0, cosine))
            groups.append((source, merging, link, logged))
            targets[into.id] = msgspec.structs.replace(
                into, version=into.version + 1, importance=merging.importance, confidence=merging.confidence
            )
    return groups


def changed_by(groups: Iterable[Group]) -> set[str]:
    return {edit.memory_id for group in groups for edit in group if isinstance(edit, ReviseMemory)}


def _merge(
    memory: Material, verdict: Verdict, now: float, into: Material, cosine: float, project: str | None = None
) -> tuple[ReviseMemory, ReviseMemory, LogPromotion]:
    """The edits that merge a memory into another: first the target's, then the memory's own. `project` is the memory's
    project if the target is one of the user's memories."""
    logged = _logged(memory, verdict, "importance" if project is None else "pattern_match", into.id)
    content = None if normalised(memory.content) == normalised(into.content) else memory.content
    origin, whose = ("", "") if project is None else (f" of the project {project}", "the user's ")
    merging = ReviseMemory(
        into.id,
        "merged",
        importance=max(into.importance, memory.importance),
        confidence=merged_confidence(into.confidence, "project" if project is None else "user"),
        tags=memory.tags,
        accessed=True,
        chain=logged.step(now, verdict.reason, project, content),
        reason=f"{memory.id}{origin} was merged into it (cosine {cosine:.3f})",
    )
    reason = f"merged into {whose}{into.id}, which says the same thing (cosine {cosine:.3f}); {verdict.reason}"
    source = ReviseMemory(memory.id, "promoted", expected_version=memory.version, status="promoted", reason=reason)
    return merging, source, logged


def _logged(memory: Material, verdict: Verdict, why: PromotionReason, into: str | None = None) -> LogPromotion:
    to: Scope = "project" if memory.scope == "session" else "user"
    return LogPromotion(memory.id, memory.kind, memory.scope, to, why, memory.session_id, verdict.score, into)


# --- From a project to the user.


async def propose_to_user(
    store: StoreClient, project: ProjectRef, clock: Clock, *, dry_run: bool = False, left_out: Collection[str] = ()
) -> dict[Upkeep, list[str]]:
    """Propose valuable memories for promotion to the user, and promote those that another project or the user also has.
    Returns the ids of both groups. `left_out` are memories that this job is about to change in other ways."""
    request = ReadMemories(project, scopes=("project",), statuses=("active",), proposed=False, with_vectors=True)
    in_use = {"min_sessions": USER_MIN_SESSIONS, "min_importance": USER_MIN_IMPORTANCE}
    promising = {
        memory.id: memory
        for fields in ({**in_use, "kinds": tuple(sorted(USER_KINDS))}, {"kinds": SPEAKING_KINDS})
        for memory in await all_memories(store, msgspec.structs.replace(request, **fields))
        if memory.id not in left_out
    }
    chosen = strongest(promising.values(), partial(to_user, project_name=name_of(project)), clock(), USER_LIMIT)
    if dry_run:
        return {"proposed": [memory.id for memory, _ in chosen], "promoted": []}
    near = await find_near(store, None, [memory for memory, _ in chosen], NEAR_TO_USER)
    merged: list[str] = []
    new: list[Promoted] = []
    for memory, verdict in chosen:
        same = says_the_same(memory, near.get(memory.id, ()), clock(), MERGE_COSINE)
        if same is None:
            new.append((memory, verdict))
        elif await _merge_into_user(store, project, clock, (memory, verdict), same[0].id, same[1]):
            merged.append(memory.id)
    proposing = run_id_of("proposed", project.id, [memory.id for memory, _ in new])
    groups = [(ProposeMemory(memory.id, verdict.reason, verdict.score),) for memory, verdict in new]
    await Run(store, project, proposing, "promotion", clock).write(groups)
    promoted = await _promote_held_in_both(store, project, clock) if new else []
    proposed = [memory.id for memory, _ in new if memory.id not in promoted]
    return {"proposed": proposed, "promoted": [*merged, *promoted]}


async def _promote_held_in_both(store: StoreClient, project: ProjectRef, clock: Clock) -> list[str]:
    """Promote proposed memories about the user that another project has as well, and merge that project's copies."""
    request = ReadMemories(project, scopes=("project",), statuses=("active",), kinds=SPEAKING_KINDS, with_vectors=True)
    proposed = msgspec.structs.replace(request, proposed=True)
    verdict_of = partial(to_user, project_name=name_of(project))
    mine = [each for each in await all_memories(store, proposed) if speaks_of_user(each) and verdict_of(each).promote]
    promoted: list[str] = []
    for other in (await store.ask(ReadProjects(project))) if mine else ():
        theirs = await all_memories(store, msgspec.structs.replace(proposed, project=other))
        for memory, same, cosine in await run_sync(held_in_both, mine, theirs, clock()):
            score = verdict_of(memory).score
            if memory.id not in promoted:
                why = f"the project {name_of(other)} says the same thing, and it is about the user"
                change = PromoteMemory(memory.id, "user", why, why="pattern_match", score=score)
                name = derive_id("to_user", project.id, memory.id, memory.version)
                try:
                    await store.ask(Submit(Operation(name, project, "", clock(), change)))
                except (NotFound, InvalidInput) as error:
                    logger.info("a memory was not promoted", extra={"memory_id": memory.id, "code": error.code})
                    continue
                promoted.append(memory.id)
            verdict = Verdict(True, score, f"the project {name_of(project)} says the same thing")
            await _merge_into_user(store, other, clock, (same, verdict), memory.id, cosine)
    return promoted


def held_in_both(
    memories: Sequence[Material], others: Sequence[Material], now: float
) -> list[tuple[Material, Material, float]]:
    """The memories that both projects have in the same words: each with its counterpart and their cosine."""
    by_text = {normalised(other.content): other for other in reversed(others) if not has_ended(other.valid_until, now)}
    rows = vectors_of([*memories, *others])
    cosines = rows[: len(memories)] @ rows[len(memories) :].T
    pairs = []
    for memory, row in zip(memories, cosines, strict=True):
        near = [(others[place], float(row[place])) for place in (row > NEAR_DUPLICATE_COSINE).nonzero()[0]]
        near.sort(key=lambda pair: (-pair[1], pair[0].id))
        nearest = says_the_same(memory, near, now, NEAR_DUPLICATE_COSINE)
        if (same := by_text.get(normalised(memory.content))) is not None and can_stand_for(memory, same):
            nearest = (same, 1.0)
        if nearest is not None:
            pairs.append((memory, *nearest))
    return pairs


async def _merge_into_user(
    store: StoreClient, project: ProjectRef, clock: Clock, promoted: Promoted, into_id: str, cosine: float
) -> bool:
    """Returns False if the memory was not merged. The user's memory is changed first: if the process dies after that,
    the repeated job skips the first change, which has the same operation id, and makes the second."""
    memory, verdict = promoted
    targets = await all_memories(store, ReadMemories(None, memory_ids=(into_id,)))
    if not targets:
        return False
    await observe(store, project, memory.id, into_id, clock())
    edit, source, logged = _merge(memory, verdict, clock(), targets[0], cosine, project.id)
    run = Run(store, project, run_id_of("to_user", project.id, memory.id, memory.version), "promotion", clock)
    name = derive_id("merged_to_user", project.id, memory.id, memory.version)
    if (await replace(run, place="user").write_part((edit,), operation_id=name)).skipped:
        return False
    await run.write_part((source, logged))
    return True


# --- The user's memories that a project also has.


async def observe_patterns(store: StoreClient, project: ProjectRef, memories: Sequence[Material], now: float) -> None:
    """Record which of the user's memories say the same thing as these memories of a project. Each pair counts once."""
    candidates = [memory for memory in memories if memory.kind in USER_KINDS and memory.vector]
    near = await find_near(store, None, candidates, NEAR_TO_USER)
    for memory in candidates:
        same = says_the_same(memory, near.get(memory.id, ()), now, MERGE_COSINE)
        if same is not None:
            await observe(store, project, memory.id, same[0].id, now)


async def observe(store: StoreClient, project: ProjectRef, memory_id: str, user_memory_id: str, now: float) -> None:
    what = ("observed", project.id, memory_id, user_memory_id)
    run = Run(store, project, run_id_of(*what), "promotion", lambda: now, place="user")
    await run.write_part((NotePattern(user_memory_id, project.id),), operation_id=derive_id(*what))
