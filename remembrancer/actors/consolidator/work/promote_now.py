"""What is so good that it does not wait for the end of its session."""

from __future__ import annotations

from remembrancer.actors.consolidator.handlers import Clock
from remembrancer.actors.consolidator.promotion import at_once
from remembrancer.actors.consolidator.store_access import StoreAccess
from remembrancer.actors.consolidator.work.facts import candidate_of, strength_of
from remembrancer.actors.consolidator.work.observing import observe_patterns
from remembrancer.actors.consolidator.work.promoting import Promoted
from remembrancer.actors.consolidator.work.reading import read_settled
from remembrancer.actors.consolidator.work.rules import rules_of
from remembrancer.actors.consolidator.work.session_end import plan_for_project
from remembrancer.actors.consolidator.work.writing import Head, parts_of, run_id_of, submit_run
from remembrancer.config.settings import Settings
from remembrancer.protocol.consolidation import PromoteDuty, ReadMemories


async def promote_now(duty: PromoteDuty, store: StoreAccess, settings: Settings, clock: Clock) -> None:
    """Look at memories of running sessions, and promote those that reach the score for that."""
    rules = rules_of(settings)
    request = ReadMemories(duty.project, memory_ids=duty.memory_ids, scopes=("session",), statuses=("active",))
    memories = await read_settled(store, request, rules.vectors_wait_s)
    memories.sort(key=lambda each: (-strength_of(each, clock()), each.id))
    judged = [Promoted(memory, at_once(candidate_of(memory), rules.promotion)) for memory in memories]
    promoted = [each for each in judged if each.verdict.promote]
    if not promoted:
        return
    plan = await plan_for_project(store, duty.project, promoted, rules, clock())
    await observe_patterns(store, duty.project, [each.memory for each in promoted], rules, clock())
    sessions = {each.memory.session_id for each in promoted}
    versions = sorted((each.memory.id, each.memory.version) for each in promoted)
    run_id = run_id_of("promotion", duty.project.id, versions)
    head = Head(run_id, "project", "promotion", "promote", sessions.pop() if len(sessions) == 1 else "")
    for part in parts_of(head, plan.groups):
        await submit_run(store, duty.project, part, clock())
