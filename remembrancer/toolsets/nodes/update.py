"""The tool `update`."""

from typing import Annotated

from msgspec import Meta

from remembrancer.memory.text import check_text
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.ids import parse_memory_id
from remembrancer.protocol.writes import UpdateMemory
from remembrancer.toolsets.memory.fields import clean_tags
from remembrancer.toolsets.nodes.answering import known_links, write_node
from remembrancer.toolsets.tools import Answer, Call, tool


@tool("Replace a node's content, tags or links.", destructive=True)
async def update(
    call: Call,
    node_id: str,
    content: str | None = None,
    tags: Annotated[list[str], Meta(description="In place of all tags")] | None = None,
    links: Annotated[list[str], Meta(description="In place of all links")] | None = None,
    allow_secrets: bool = False,
) -> Answer:
    """Change the given fields, and return the whole node."""
    node_id = parse_memory_id(node_id, field="node_id")
    if content is not None:
        check_text(content, field="content", longest_bytes=call.service.settings.content_limit_bytes)
    ids, no_ids = known_links(links or ())
    change = UpdateMemory(
        node_id,
        content=content,
        tags=None if tags is None else clean_tags(tags),
        related=None if links is None else ids,
    )
    if change == UpdateMemory(node_id):
        raise InvalidInput("there is nothing to change: give content, tags or links", field="content")
    return await write_node(call, change, no_ids, allow_secrets)
