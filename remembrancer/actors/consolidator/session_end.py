"""The end of a session: what is worth it goes into the project, what is related is summed up, and its entry is closed.

Its record the store has written already, with the end itself; with the closing it is written anew.

In that order, in transactions of their own. When this process dies in between, the next one reads what is left: what
was promoted or summed up is not looked at again, and the entry is closed once.
"""

from collections.abc import Sequence

from anyio.to_thread import run_sync

from remembrancer.actors.consolidator.communities import topics_of
from remembrancer.actors.consolidator.derived_memories import plan_summaries
from remembrancer.actors.consolidator.promoting import Promoted, observe_patterns, plan_for_project, propose_to_user
from remembrancer.actors.consolidator.store_connection import (
    Clock,
    Run,
    StoreConnection,
    read_settled,
    run_id_of,
)
from remembrancer.config.settings import Settings
from remembrancer.memory.promotion import SESSION_END_LIMIT, at_session_end, strongest
from remembrancer.protocol.consolidation import Material, ReadMemories
from remembrancer.protocol.runs import CloseSession, SaveTopics
from remembrancer.protocol.session_life import SessionEntry
from remembrancer.protocol.writes import ProjectRef


async def end_session(
    session: SessionEntry, project: ProjectRef, store: StoreConnection, settings: Settings, clock: Clock
) -> None:
    """Deal with the end of a session."""
    run_id = run_id_of("session_end", project.id, session.session_id, session.ended_at)
    run = Run(store, project, run_id, "session_end", clock, session.session_id)
    request = ReadMemories(project, session_id=session.session_id, statuses=("active", "consolidated"))
    memories = await read_settled(store, request, settings)
    chosen = promoted_of(memories, clock())
    plan = await plan_for_project(store, project, chosen, clock())
    stored = [memory for memory in memories if memory.scope == "project"]
    promoted = [memory for memory, _ in chosen]
    await observe_patterns(store, project, [*stored, *promoted], clock())
    await run.write(plan.groups)
    if settings.consolidation_on_shutdown:
        left = [memory for memory in memories if memory.id not in plan.changed]
        await run.write(summary.group for summary in await run_sync(plan_summaries, left, clock()))
    to_user = await propose_to_user(store, project, clock)
    changed = bool(stored or run.parts or to_user["promoted"])
    assert session.ended_at is not None, "a job is about a session that has ended"
    closing = CloseSession(session.session_id, session.ending or "completed", session.ended_at)
    await run.write([(SaveTopics(await topics_of(store, project)), closing) if changed else (closing,)])


def promoted_of(own: Sequence[Material], now: float) -> list[Promoted]:
    """The memories of a session that go into its project, the strongest first, and then what was made of others.

    What was made of others takes no place from them: a session that was summed up while it ran leaves at least what it
    would have left without.
    """
    mine = [memory for memory in own if memory.scope == "session"]
    return [
        each
        for is_derived in (False, True)
        for each in strongest(
            (memory for memory in mine if memory.is_derived == is_derived), at_session_end, now, SESSION_END_LIMIT
        )
    ]
