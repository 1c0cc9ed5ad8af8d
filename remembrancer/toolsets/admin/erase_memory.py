"""The tool `erase_memory`."""

from remembrancer.protocol.ids import parse_memory_id
from remembrancer.protocol.writes import EraseMemory, Operation
from remembrancer.toolsets.tools import Answer, Call, non_empty, tool


@tool("Delete a memory for good, with its history. It cannot be restored.", destructive=True, marks_data=False)
async def erase_memory(call: Call, memory_id: str) -> Answer:
    """Delete content, history, vectors, full text and queued copies at once. The id stays known as erased.

    Raises:
        NotFound: the caller can see no such memory, and none was erased.
        MemoryUnavailable: the store is away; nothing is queued.
    """
    memory_id = parse_memory_id(memory_id)
    operation = Operation(
        call.operation_id, call.caller.project, call.caller.session_id, call.received_at, EraseMemory(memory_id)
    )
    result = await call.service.erase(operation)
    answer: Answer = {"memory_id": memory_id, "status": "erased"}
    return answer | non_empty(
        already_erased=result.already, also_said_by=list(result.said_by), also_erased=list(result.also_erased)
    )
