"""The tool `remember`."""

from typing import Annotated

from msgspec import Meta

from remembrancer.memory.limits import MAX_NAME
from remembrancer.memory.text import check_text, clean_name
from remembrancer.protocol.writes import SourceRef, StoreMemory
from remembrancer.toolsets.memory.fields import clean_tags
from remembrancer.toolsets.memory.store_memory import STATED
from remembrancer.toolsets.nodes.answering import known_links, write_node
from remembrancer.toolsets.tools import Answer, Call, tool


@tool("Remember something as a node, linked to others.")
async def remember(
    call: Call,
    content: Annotated[str, Meta(description="The memory to store")],
    tags: tuple[str, ...] = (),
    links: Annotated[tuple[str, ...], Meta(description="Ids of nodes to link to, both ways")] = (),
    source: Annotated[str, Meta(description="Conversation or context")] = "",
    allow_secrets: bool = False,
) -> Answer:
    """Store a node and return it. The same content is the same node, which gets these tags and links as well."""
    check_text(content, field="content", longest_bytes=call.service.settings.content_limit_bytes)
    ids, no_ids = known_links(links)
    change = StoreMemory(
        memory_id=call.memory_id(),
        content=content,
        type="semantic",
        scope="project",
        session_id=call.caller.session_id,
        tags=clean_tags(tags),
        source=SourceRef(label=clean_name(source, field="source", longest=MAX_NAME) if source else None),
        confidence=STATED,
        pinned=True,
        related=ids,
    )
    return await write_node(call, change, no_ids, allow_secrets)
