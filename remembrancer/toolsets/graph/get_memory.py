"""The tool `get_memory` of facts: a short form of that of the toolset `memory`."""

from __future__ import annotations

import msgspec

from remembrancer.toolsets.memory.get_memory import GetMemoryArguments
from remembrancer.toolsets.memory.get_memory import get_memory as get_whole
from remembrancer.toolsets.tools import Answer, Call, tool


class FactToGet(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str


@tool("One memory, with its history.", read_only=True, is_short_form=True, shows_whole_ids=True)
async def get_memory(call: Call, arguments: FactToGet) -> Answer:
    """Show a memory whole."""
    return await get_whole(call, GetMemoryArguments(arguments.id))
