"""The tool `forget` of linked nodes."""

from __future__ import annotations

import msgspec

from remembrancer.protocol.ids import parse_memory_id
from remembrancer.toolsets.admin.erase_memory import erased
from remembrancer.toolsets.tools import Answer, Call, tool


class NodeToForget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    node_id: str


@tool("Delete a node for good, and all links to it.", destructive=True, marks_data=False)
async def forget(call: Call, arguments: NodeToForget) -> Answer:
    """Erase a memory as `erase_memory` does."""
    node_id = parse_memory_id(arguments.node_id, field="node_id")
    return {"node_id": node_id, "status": "erased", **await erased(call, node_id)}
