"""The tool `get_valid`."""

from __future__ import annotations

from remembrancer.toolsets.graph.get_valid_at import valid
from remembrancer.toolsets.graph.list_memories import Page
from remembrancer.toolsets.tools import Answer, Call, tool


@tool("What is true now; what became true last comes first.", read_only=True)
async def get_valid(call: Call, arguments: Page) -> Answer:
    """A page of what is valid at the time of the call."""
    return await valid(call, call.received_at, None, arguments.limit, arguments.offset)
