"""The end of a session: what is worth it goes into the project, what is related is summed up, and its entry is closed.

In that order, in transactions of their own. When this process dies in between, the next one reads what is left: what
was promoted or summed up is not looked at again, and the entry is closed once.
"""

from __future__ import annotations

from collections.abc import Sequence

from remembrancer.actors.consolidator.handlers import Clock
from remembrancer.actors.consolidator.promotion import promoted_at_session_end
from remembrancer.actors.consolidator.store_access import StoreAccess, all_memories
from remembrancer.actors.consolidator.work.facts import candidate_of
from remembrancer.actors.consolidator.work.observing import observe_patterns
from remembrancer.actors.consolidator.work.promoting import Promoted, PromotionPlan, plan_promotions
from remembrancer.actors.consolidator.work.reading import aside, find_near, slices
from remembrancer.actors.consolidator.work.rules import WorkRules, rules_of
from remembrancer.actors.consolidator.work.session_summary import MOST_TURNS, session_summary
from remembrancer.actors.consolidator.work.summing_up import Derived, plan_summaries
from remembrancer.actors.consolidator.work.tidying import plan_contradictions
from remembrancer.actors.consolidator.work.to_user import promote_to_user
from remembrancer.actors.consolidator.work.topics import topics_of
from remembrancer.actors.consolidator.work.writing import Group, Head, parts_of, run_id_of, submit_run
from remembrancer.config.settings import Settings
from remembrancer.protocol.consolidation import Material, ReadMemories, SessionEndDuty
from remembrancer.protocol.runs import ApplyRun, CloseSession, SaveTopics
from remembrancer.protocol.session_life import SessionEntry
from remembrancer.protocol.writes import ProjectRef


async def end_session(duty: SessionEndDuty, store: StoreAccess, settings: Settings, clock: Clock) -> None:
    """Deal with the end of a session."""
    rules = rules_of(settings)
    project, session = duty.project, duty.session
    run_id = run_id_of("session_end", project.id, session.session_id, session.ended_at)
    request = ReadMemories(project, session_id=session.session_id, statuses=("active", "consolidated"))
    chosen, stored = await _look_through(store, project, request, run_id, rules, clock)
    promotions = await plan_for_project(store, project, chosen, rules, clock())
    await observe_patterns(
        store, project, [each.memory for each in chosen if each.memory.id in promotions.changed], rules, clock()
    )
    parts = session_parts(run_id, session.session_id, promotions, ())
    for part in parts:
        await submit_run(store, project, part, clock())
    written = len(parts)
    if rules.summarise_in_background:
        written += await _sum_up(store, project, request, run_id, promotions, rules, clock, first=written)
    gone = await promote_to_user(store, project, rules, clock, run_id=run_id)
    changed = written > 0 or gone > 0 or stored
    head = Head(run_id, "project", "session_end", "promote", session.session_id)
    for part in parts_of(head, [await _closing(store, project, session, changed, clock())], first=written):
        await submit_run(store, project, part, clock())


async def _look_through(
    store: StoreAccess, project: ProjectRef, request: ReadMemories, run_id: str, rules: WorkRules, clock: Clock
) -> tuple[list[Promoted], bool]:
    """The memories of a session that go into its project, and whether it stored others there itself.

    What those others say that the user's memory says too is observed, and what they contradict is linked.
    """
    chosen: list[Promoted] = []
    has_stored = False
    async for portion in slices(store, request, rules.vectors_wait_s):
        chosen = promoted_of([*(each.memory for each in chosen), *portion], rules, clock())
        stored = [memory for memory in portion if memory.scope == "project"]
        has_stored = has_stored or bool(stored)
        await observe_patterns(store, project, stored, rules, clock())
        telling = [memory for memory in stored if memory.type == "semantic" and memory.status == "active"]
        near = await find_near(store, project, telling, rules.contradictions.cosine, scopes=("project",))
        changes = await aside(lambda: plan_contradictions(telling, near, clock(), rules.contradictions))  # noqa: B023
        head = Head(run_id, "project", "session_end", "contradict", request.session_id or "")
        for part in parts_of(head, [change.group for change in changes]):
            await submit_run(store, project, part, clock())
    return chosen, has_stored


async def _sum_up(
    store: StoreAccess,
    project: ProjectRef,
    request: ReadMemories,
    run_id: str,
    promotions: PromotionPlan,
    rules: WorkRules,
    clock: Clock,
    *,
    first: int,
) -> int:
    """Sum up what is not promoted; how many parts were written. They are counted from `first`."""
    written = 0
    async for portion in slices(store, request):
        left = [memory for memory in portion if memory.id not in promotions.changed]
        summaries = await aside(lambda: plan_summaries(left, clock(), rules.clusters))  # noqa: B023 - awaited
        for part in session_parts(run_id, request.session_id or "", PromotionPlan(), summaries, first=first + written):
            await submit_run(store, project, part, clock())
            written += 1
    return written


def promoted_of(own: Sequence[Material], rules: WorkRules, now: float) -> list[Promoted]:
    """The memories of a session that go into its project, the strongest first, and then what was made of others.

    What was made of others takes no place from them: a session that was summed up while it ran leaves at least what it
    would have left without.
    """
    by_id = {memory.id: memory for memory in own}
    chosen = []
    for is_derived in (False, True):
        candidates = [
            candidate_of(memory) for memory in own if memory.scope == "session" and memory.is_derived == is_derived
        ]
        chosen += promoted_at_session_end(candidates, now, rules.promotion)
    return [Promoted(by_id[candidate.id], verdict) for candidate, verdict in chosen]


async def plan_for_project(
    store: StoreAccess, project: ProjectRef, promoted: Sequence[Promoted], rules: WorkRules, now: float
) -> PromotionPlan:
    """What is done about memories that are promoted, given what the project knows already."""
    if not promoted:
        return PromotionPlan()
    nearest = min(rules.promotion.merge_cosine, rules.contradictions.cosine)
    near = await find_near(store, project, [each.memory for each in promoted], nearest, scopes=("project",))
    return await aside(lambda: plan_promotions(promoted, near, now, rules.promotion, rules.contradictions))


def session_parts(
    run_id: str, session_id: str, promotions: PromotionPlan, summaries: Sequence[Derived], *, first: int = 0
) -> list[ApplyRun]:
    """The parts of a session's end: its promotions, and then its summaries."""
    promoting = parts_of(Head(run_id, "project", "session_end", "promote", session_id), promotions.groups, first=first)
    summing_up = parts_of(
        Head(run_id, "project", "session_end", "summarize_cluster", session_id),
        [derived.group for derived in summaries],
        first=first + len(promoting),
        sources=[source.id for derived in summaries for source in derived.sources],
        results=[derived.memory.id for derived in summaries],
    )
    return [*promoting, *summing_up]


async def _closing(store: StoreAccess, project: ProjectRef, session: SessionEntry, changed: bool, now: float) -> Group:
    """The last edits of the run. The promotions are counted from the log: some may be of an earlier attempt."""
    everything = await all_memories(store, ReadMemories(project, session_id=session.session_id))
    read = await store.read_session(project, session.session_id, MOST_TURNS)
    summary = await aside(lambda: session_summary(everything, read))
    counted = session.memories_promoted if read.entry is None else read.entry.memories_promoted
    assert session.ended_at is not None, "a duty is about a session that has ended"
    closing = CloseSession(
        session.session_id,
        session.ending or "completed",
        session.ended_at,
        summary,
        max(0, read.promoted - counted),
    )
    topics = await topics_of(store, project, now) if changed else None
    return (closing,) if topics is None else (SaveTopics(topics), closing)
