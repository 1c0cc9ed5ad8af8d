"""How one memory is shown whole: from whichever file it is in, to those who may see it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from remembrancer.actors.store.explaining import Circumstances, Rules, explain
from remembrancer.actors.store.records.contract import Records
from remembrancer.actors.store.records.snapshots import unknown_memory
from remembrancer.protocol.dynamics import is_stale, memory_strength
from remembrancer.protocol.kinds import Scope
from remembrancer.protocol.reads import GetMemory, MemoryShown, Promotion
from remembrancer.protocol.writes import PortableMemory


def show_memory(
    request: GetMemory,
    files: Sequence[Records],
    is_embedded: Callable[[Records, int], bool],
    now: float,
    rules: Rules,
) -> MemoryShown:
    """The memory, forgotten or not. `files` are the user's and then the project's: a memory in both is the user's.

    Raises:
        NotFound: there is none that the session may see.
    """
    for records in files:
        memory = records.portable(request.memory_id, request.session_id, request.project.id)
        number = records.number_of(request.memory_id)
        if memory is not None and number is not None:
            return _shown(request, records, memory, number, is_embedded(records, number), now, rules)
    raise unknown_memory(request.memory_id)


def _shown(
    request: GetMemory,
    records: Records,
    memory: PortableMemory,
    number: int,
    embedded: bool,
    now: float,
    rules: Rules,
) -> MemoryShown:
    accessed_at = memory.created_at if memory.last_accessed_at is None else memory.last_accessed_at
    incoming = records.incoming_links(memory.id, request.session_id)
    promotions = promotions_known(memory, records.promotions_of(memory.id))
    session = records.session_read(memory.session_id, 0).entry if memory.scope == "session" else None
    around = Circumstances(embedded, incoming, promotions, session)
    return MemoryShown(
        memory,
        embedded,
        records.similar_ids(number, request.session_id),
        strength=memory_strength(
            memory.importance, memory.confidence, memory.access_count, accessed_at, memory.scope, now
        ),
        is_stale=is_stale(memory.status, accessed_at, memory.access_count, now),
        incoming=incoming,
        promotions=promotions,
        observed_in=records.observed_in(memory.id),
        reasons=explain(memory, around, now, rules),
    )


def promotions_known(memory: PortableMemory, logged: Sequence[Promotion]) -> tuple[Promotion, ...]:
    """The log's entries of a memory, and the steps of its chain that another file has logged, the first one first.

    A file logs what was promoted into its scope. What a memory of the user went through in its project is known from
    its chain. Pure.
    """
    known = {(each.memory_id, each.from_scope, each.merged_into is not None) for each in logged}
    scopes: list[Scope] = [step.scope for step in memory.promotion_chain if step.action == "promoted"]
    targets = iter([*scopes[1:], memory.scope])
    target = scopes[0] if scopes else memory.scope
    found = list(logged)
    for step in memory.promotion_chain:
        is_merged = step.action == "merged"
        if not is_merged:
            target = next(targets)
        if (step.memory_id, step.scope, is_merged) not in known:
            found.append(
                Promotion(
                    memory_id=step.memory_id,
                    from_scope=step.scope,
                    to_scope=target,
                    promoted_at=step.promoted_at,
                    reason=step.reason or "",
                    source_session=step.session_id or "",
                    score=step.score,
                    merged_into=memory.id if is_merged else None,
                )
            )
    return tuple(sorted(found, key=lambda each: each.promoted_at))
