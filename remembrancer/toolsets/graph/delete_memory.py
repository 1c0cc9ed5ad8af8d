"""The tool `delete_memory`."""

from __future__ import annotations

import msgspec

from remembrancer.protocol.ids import parse_memory_id
from remembrancer.toolsets.admin.erase_memory import erased
from remembrancer.toolsets.tools import Answer, Call, tool


class FactToDelete(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str


@tool("Delete a memory or relation for good, with its history.", destructive=True, marks_data=False)
async def delete_memory(call: Call, arguments: FactToDelete) -> Answer:
    """Erase a memory as `erase_memory` does."""
    memory_id = parse_memory_id(arguments.id, field="id")
    return {"id": memory_id, "status": "erased", **await erased(call, memory_id)}
