"""How one memory is shown whole: from whichever file it is in, to those who may see it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from remembrancer.actors.store.explaining import Circumstances, Rules, explain
from remembrancer.actors.store.records.contract import Records
from remembrancer.actors.store.records.snapshots import unknown_memory
from remembrancer.protocol.dynamics import is_stale, memory_strength
from remembrancer.protocol.reads import GetMemory, MemoryShown
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
        memory = records.portable(request.memory_id, request.session_id)
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
    promotions = records.promotions_of(memory.id)
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
