"""The end of a session: valuable memories are promoted, related ones are summarised, and the session is closed, each in
a separate transaction. If the process dies between two of them, the repeated job continues with the rest."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

import graspologic_native
from anyio.to_thread import run_sync

from remembrancer.actors.consolidator.derived_memories import plan_summaries
from remembrancer.actors.consolidator.promoting import (
    Promoted,
    changed_by,
    observe_patterns,
    plan_for_project,
    propose_to_user,
)
from remembrancer.actors.consolidator.store_requests import Clock, Run, read_settled, run_id_of
from remembrancer.config.settings import Settings
from remembrancer.memory.promotion import SESSION_END_LIMIT, SESSION_END_SCORE, strongest, to_project
from remembrancer.protocol.consolidation import Material, ReadEntityEdges, ReadMemories
from remembrancer.protocol.runs import CloseSession, SaveTopics, Topic
from remembrancer.protocol.session_life import SessionEntry
from remembrancer.protocol.store_client import StoreClient
from remembrancer.protocol.writes import ProjectRef

Edge = tuple[str, str, int]
"""Two names, in either order, and a positive weight. Each pair occurs once."""

MOST_COMMUNITIES: Final = 50
MOST_MEMBERS: Final = 50
"""The maximum number of members named for a community, best connected first."""
LABEL_NAMES: Final = 3
SEED: Final = 20_240_229
ITERATIONS: Final = 4
"""The number of further runs, each starting from the previous result; more runs hardly change it."""
RANDOMNESS: Final = 0.001


async def end_session(
    session: SessionEntry, project: ProjectRef, store: StoreClient, settings: Settings, clock: Clock
) -> None:
    run_id = run_id_of("session_end", project.id, session.session_id, session.ended_at)
    run = Run(store, project, run_id, "session_end", clock, session.session_id)
    request = ReadMemories(project, session_id=session.session_id, statuses=("active", "consolidated"))
    memories = await read_settled(store, request, settings)
    chosen = promoted_of(memories, clock())
    groups = await plan_for_project(store, project, chosen, clock())
    stored = [memory for memory in memories if memory.scope == "project"]
    await observe_patterns(store, project, [*stored, *(memory for memory, _ in chosen)], clock())
    await run.write(groups)
    if settings.consolidation_on_shutdown:
        changed = changed_by(groups)
        left = [memory for memory in memories if memory.id not in changed]
        await run.write(await run_sync(plan_summaries, left, clock()))
    to_user = await propose_to_user(store, project, clock)
    has_changed = bool(stored or run.parts or to_user["promoted"])
    assert session.ended_at is not None, "the job's session must have ended"
    closing = CloseSession(session.session_id, session.ending or "completed", session.ended_at)
    topics = await run_sync(find_communities, await store.ask(ReadEntityEdges(project))) if has_changed else ()
    await run.write([(SaveTopics(topics), closing) if has_changed else (closing,)])


def promoted_of(own: Sequence[Material], now: float) -> list[Promoted]:
    """The memories of a session to promote, strongest first. Derived memories have a separate limit, so that a session
    that has been summarised does not promote fewer sources."""
    decide = partial(to_project, least=SESSION_END_SCORE)
    promoted: list[Promoted] = []
    for is_derived in (False, True):
        memories = (each for each in own if each.scope == "session" and each.is_derived == is_derived)
        promoted += strongest(memories, decide, now, SESSION_END_LIMIT)
    return promoted


def find_communities(edges: Iterable[Edge]) -> tuple[Topic, ...]:
    """The topics of an entity graph: communities of at least two members, found by the Leiden algorithm (Traag, Waltman
    and van Eck, 2019) with a fixed seed, the largest first, each with its best connected members first."""
    if not edges:
        return ()
    kept = sorted((min(one, two), max(one, two), float(weight)) for one, two, weight in edges)
    _, membership = graspologic_native.leiden(
        edges=kept,
        starting_communities=None,
        resolution=1.0,
        randomness=RANDOMNESS,
        iterations=ITERATIONS,
        use_modularity=True,
        seed=SEED,
        trials=1,
    )
    strengths: dict[str, float] = {}
    for one, two, weight in kept:
        strengths[one] = strengths.get(one, 0.0) + weight
        strengths[two] = strengths.get(two, 0.0) + weight
    groups: dict[int, list[str]] = {}
    for name in sorted(strengths, key=lambda each: (-strengths[each], each)):
        groups.setdefault(membership[name], []).append(name)
    large = sorted((names for names in groups.values() if len(names) > 1), key=lambda names: (-len(names), names[0]))
    return tuple(
        Topic(", ".join(names[:LABEL_NAMES]), tuple(names[:MOST_MEMBERS])) for names in large[:MOST_COMMUNITIES]
    )
