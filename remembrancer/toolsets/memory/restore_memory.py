"""The tool `restore_memory`."""

from remembrancer.protocol.ids import parse_memory_id
from remembrancer.protocol.writes import RestoredResult, RestoreMemory
from remembrancer.toolsets.memory.fields import Version, clean_reason
from remembrancer.toolsets.tools import Answer, Call, non_empty, tool


@tool("Undo a forget, or return to a version.", destructive=True, marks_data=False, unlisted=("reason",))
async def restore_memory(
    call: Call, memory_id: str, version: Version | None = None, reason: str | None = None
) -> Answer:
    """Restore a forgotten memory, or return to an earlier version."""
    memory_id = parse_memory_id(memory_id)
    result = await call.write(RestoreMemory(memory_id, version, clean_reason(reason)), RestoredResult)
    answer: Answer = {"memory_id": memory_id, "status": "active"}
    answer |= {"restored_fields": list(result.restored_fields), "version": result.version}
    return answer | non_empty(re_embedded=result.re_embedded, proposed_again=result.proposed_again)
