"""The tool `get_status`."""

from __future__ import annotations

from remembrancer.toolsets.memory.get_memory_status import GetMemoryStatusArguments, get_memory_status
from remembrancer.toolsets.tools import Answer, Call, tool


@tool("Health and counts.", read_only=True)
async def get_status(call: Call, arguments: GetMemoryStatusArguments) -> Answer:
    """How the memory is, as `get_memory_status` says it."""
    return await get_memory_status(call, arguments)
