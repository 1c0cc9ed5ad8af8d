"""The tool `connections`."""

from typing import Annotated

from msgspec import Meta

from remembrancer.protocol.ids import parse_memory_id
from remembrancer.protocol.wire import Notice
from remembrancer.toolsets.nodes.answering import follow, node_of
from remembrancer.toolsets.tools import Answer, Call, tool


@tool("A node and those linked to it, the nearest first.", read_only=True)
async def connections(
    call: Call, node_id: str, depth: Annotated[int, Meta(ge=0, le=10, description="Links away")] = 1
) -> Answer:
    """Walk breadth first from the node; each result has its distance.

    Raises:
        NotFound: there is no such node.
        MemoryUnavailable: the store is away.
    """
    node_id = parse_memory_id(node_id, field="node_id")
    found = await call.ask(follow(call, [node_id], depth=depth))
    ids = [memory.id for memory in found.memories]
    call.service.shown(call.caller, ids, used=(node_id,), tool=call.tool, question=node_id)
    if found.more:
        call.notices.append(Notice("more_nodes", "Only the nearest are shown: there are more within that depth."))
    return {"nodes": [node_of(memory) | {"distance": memory.distance} for memory in found.memories]}
