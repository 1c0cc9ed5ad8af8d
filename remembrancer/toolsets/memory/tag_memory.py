"""The tool `tag_memory`."""

from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.ids import parse_memory_id
from remembrancer.protocol.writes import TaggedResult, TagMemory
from remembrancer.toolsets.memory.fields import clean_tag_changes
from remembrancer.toolsets.tools import Answer, Call, tool


@tool("Change tags.")
async def tag_memory(call: Call, memory_id: str, add: tuple[str, ...] = (), remove: tuple[str, ...] = ()) -> Answer:
    """Add and remove tags."""
    memory_id = parse_memory_id(memory_id)
    add, remove = clean_tag_changes(add, remove)
    if not (add or remove):
        raise InvalidInput("there is nothing to change: give tags to add or to remove", field="add")
    result = await call.write(TagMemory(memory_id, add, remove), TaggedResult)
    return {"memory_id": memory_id, "tags": list(result.tags)}
