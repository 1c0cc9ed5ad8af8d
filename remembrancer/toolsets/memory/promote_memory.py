"""The tool `promote_memory`."""

from typing import Literal

from remembrancer.protocol.ids import parse_memory_id
from remembrancer.protocol.writes import PromotedResult, PromoteMemory
from remembrancer.toolsets.memory.fields import clean_reason
from remembrancer.toolsets.tools import Answer, Call, non_empty, tool


@tool("Move a memory between scopes.", unlisted=("reason",))
async def promote_memory(
    call: Call, memory_id: str, target_scope: Literal["project", "user"], reason: str | None = None
) -> Answer:
    """Make a memory visible to more sessions or projects; or (`project`) decline its promotion to the user, or undo
    it."""
    memory_id = parse_memory_id(memory_id)
    change = PromoteMemory(memory_id, target_scope, clean_reason(reason))
    result = await call.write(change, PromotedResult)
    answer: Answer = {"memory_id": memory_id, "previous_scope": result.previous_scope}
    answer |= non_empty(merged_into=result.merged_into)
    return answer | {"new_scope": change.target_scope, "reason": change.reason}
