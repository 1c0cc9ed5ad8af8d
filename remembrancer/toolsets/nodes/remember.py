"""The tool `remember`."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from remembrancer.memory.limits import MAX_NAME
from remembrancer.memory.text import check_text, clean_name
from remembrancer.protocol.writes import SourceRef, StoredResult, StoreMemory
from remembrancer.toolsets.memory.answers import changed, near_of
from remembrancer.toolsets.memory.fields import clean_tags
from remembrancer.toolsets.memory.store_memory import STATED
from remembrancer.toolsets.nodes.answering import known_links, written_node
from remembrancer.toolsets.tools import Answer, Call, tool


class RememberArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    content: Annotated[str, Meta(description="The memory to store")]
    tags: list[str] = []
    links: Annotated[list[str], Meta(description="Ids of nodes to link to, both ways")] = []
    source: Annotated[str, Meta(description="Conversation or context")] = ""
    allow_secrets: bool = False


@tool("Remember something as a node, linked to others.")
async def remember(call: Call, arguments: RememberArguments) -> Answer:
    """Store a node and return it. The same content is the same node, which gets these tags and links as well."""
    check_text(arguments.content, field="content", longest_bytes=call.service.settings.content_limit_bytes)
    label = arguments.source
    tags, (links, no_ids) = clean_tags(arguments.tags), known_links(arguments.links)
    change = StoreMemory(
        memory_id=call.memory_id,
        content=arguments.content,
        type="semantic",
        scope="project",
        session_id=call.caller.session_id,
        tags=tags,
        source=SourceRef(label=clean_name(label, field="source", longest=MAX_NAME) if label else None),
        confidence=STATED,
        pinned=True,
        related=links,
    )
    written = await call.submit(change, allow_secrets=arguments.allow_secrets)
    result = written.result
    if not isinstance(result, StoredResult):
        return changed(written, {"id": change.memory_id})
    return await written_node(call, written, result.memory_id, (*result.missing, *no_ids)) | near_of(written.near)
