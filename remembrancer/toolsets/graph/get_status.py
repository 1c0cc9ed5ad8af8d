"""The tool `get_status`."""

from __future__ import annotations

from remembrancer.toolsets.memory.get_memory_status import GetMemoryStatusArguments, get_memory_status
from remembrancer.toolsets.tools import Answer, Call, tool


@tool("Health and counts.", read_only=True, marks_data=False)
async def get_status(call: Call, arguments: GetMemoryStatusArguments) -> Answer:
    """Say the state of the memory, as `get_memory_status` does."""
    return await get_memory_status(call, arguments)
