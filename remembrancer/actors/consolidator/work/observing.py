"""What the user's memory already says is observed in one more project."""

from __future__ import annotations

from collections.abc import Sequence

from remembrancer.actors.consolidator.store_access import StoreAccess
from remembrancer.actors.consolidator.work.agreement import says_the_same
from remembrancer.actors.consolidator.work.reading import find_near
from remembrancer.actors.consolidator.work.rules import WorkRules
from remembrancer.actors.consolidator.work.writing import derive, run_id_of, submit_run
from remembrancer.protocol.consolidation import Material
from remembrancer.protocol.runs import ApplyRun, NotePattern
from remembrancer.protocol.writes import ProjectRef


async def observe_patterns(
    store: StoreAccess, project: ProjectRef, memories: Sequence[Material], rules: WorkRules, now: float
) -> None:
    """Note which of the user's memories say what these of a project say. Each pair counts once, however often."""
    telling = [memory for memory in memories if memory.kind in rules.promotion.user_kinds and memory.vector]
    near = await find_near(store, None, telling, rules.promotion.merge_cosine, limit=3, scopes=("user",))
    for memory in telling:
        found = near.get(memory.id, ())
        same = says_the_same(memory, found, now, rules.promotion.merge_cosine, rules.contradictions)
        if same is not None:
            await observe(store, project, memory.id, same[0].id, now)


async def observe(store: StoreAccess, project: ProjectRef, memory_id: str, user_memory_id: str, now: float) -> None:
    """A memory of a project says what one of the user's says: count that, once for ever."""
    run = ApplyRun(
        run_id=run_id_of("observed", project.id, memory_id, user_memory_id),
        place="user",
        kind="promotion",
        method="promote",
        edits=(NotePattern(user_memory_id, project.id),),
    )
    name = derive("observed", project.id, memory_id, user_memory_id)
    await submit_run(store, project, run, now, operation_id=name)
