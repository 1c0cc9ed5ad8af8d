"""How one memory is shown whole: from whichever file it is in, to those who may see it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from remembrancer.actors.store.records.contract import Records
from remembrancer.actors.store.records.snapshots import unknown_memory
from remembrancer.protocol.reads import GetMemory, MemoryShown


def show_memory(
    request: GetMemory, files: Sequence[Records], is_embedded: Callable[[Records, int], bool]
) -> MemoryShown:
    """The memory, forgotten or not. `files` are the user's and then the project's: a memory in both is the user's.

    Raises:
        NotFound: there is none that the session may see.
    """
    for records in files:
        memory = records.portable(request.memory_id, request.session_id)
        number = records.number_of(request.memory_id)
        if memory is not None and number is not None:
            similar = records.similar_ids(number, request.session_id)
            return MemoryShown(memory, is_embedded(records, number), similar)
    raise unknown_memory(request.memory_id)
