"""The consolidation of a whole file, in slices: what was summed up before is not looked at again."""

from __future__ import annotations

from typing import Final

from remembrancer.actors.consolidator.handlers import Clock
from remembrancer.actors.consolidator.store_access import StoreAccess, pages
from remembrancer.actors.consolidator.work.maintaining import Tidying
from remembrancer.actors.consolidator.work.reading import aside
from remembrancer.actors.consolidator.work.reflecting import find_patterns, reflection_parts
from remembrancer.actors.consolidator.work.rules import WorkRules, rules_of
from remembrancer.actors.consolidator.work.summing_up import plan_summaries
from remembrancer.actors.consolidator.work.to_user import promote_to_user
from remembrancer.actors.consolidator.work.writing import run_id_of, submit_run
from remembrancer.config.settings import Settings
from remembrancer.protocol.consolidation import ConsolidateDuty, ReadMemories
from remembrancer.protocol.runs import ApplyRun, CloseRequest, Place
from remembrancer.protocol.writes import ProjectRef

SLICE: Final = 500
"""Memories that are thought about together."""


async def consolidate(duty: ConsolidateDuty, store: StoreAccess, settings: Settings, clock: Clock) -> None:
    """Consolidate a project's memories, or the user's, and close the request."""
    rules, project = rules_of(settings), duty.project
    run_id = run_id_of("consolidation", "user" if project is None else project.id, duty.request_id)
    if rules.summarise_in_background:
        await _sum_up(store, project, run_id, rules, clock)
        tidying = Tidying(store, project, run_id, "consolidation", rules, clock)
        await tidying.deduplicate()
        await tidying.find_contradictions((await store.read_upkeep(project, 0.0)).done_at)
    if project is not None:
        await promote_to_user(store, project, rules, clock)
    place: Place = "user" if project is None else "project"
    closing = (CloseRequest(duty.request_id),)
    run = ApplyRun(run_id_of("closing", run_id), place, "consolidation", "summarize_cluster", closing)
    await submit_run(store, project, run, clock())


async def _sum_up(store: StoreAccess, project: ProjectRef | None, run_id: str, rules: WorkRules, clock: Clock) -> None:
    """Slice by slice. The place in the file is known by the last number of the slice before."""
    place: Place = "user" if project is None else "project"
    request = ReadMemories(
        project, scopes=(place,), statuses=("active",), types=("episodic",), limit=SLICE, with_vectors=True
    )
    async for page in pages(store, request):
        summaries = await aside(lambda: plan_summaries(page.memories, clock(), rules.clusters))  # noqa: B023 - awaited
        for part in reflection_parts(run_id, summaries, (), place=place):
            await submit_run(store, project, part, clock())
    if project is not None:
        patterns = await find_patterns(store, project, (), rules, clock())
        for part in reflection_parts(run_id, (), patterns):
            await submit_run(store, project, part, clock())
