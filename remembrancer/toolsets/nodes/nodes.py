"""Tools for nodes (memories of the project) and the links between them."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Final

from msgspec import Meta

from remembrancer.memory.decay import accessed_at
from remembrancer.memory.fields import clean_tags, tags_named
from remembrancer.memory.limits import MAX_ANSWER_BYTES, MAX_LINKS, MAX_NAME, check_count
from remembrancer.memory.promotion import used_in
from remembrancer.memory.text import check_text, clean_name
from remembrancer.protocol.errors import InvalidInput, NotFound
from remembrancer.protocol.ids import parse_memory_id
from remembrancer.protocol.reads import FollowLinks, LinkedMemory, ListedMemory, ListMemories
from remembrancer.protocol.store_client import AWAY
from remembrancer.protocol.writes import SourceRef, StoredResult, StoreMemory, UpdatedResult, UpdateMemory
from remembrancer.toolsets.admin.home_tools import erase_memory
from remembrancer.toolsets.memory.answers import iso, near_of
from remembrancer.toolsets.memory.store_memory import project_memory
from remembrancer.toolsets.tools import Answer, Call, tool

MOST: Final = 100
MOST_CHARACTERS: Final = 60_000
"""The limits of one answer, about 25,000 tokens."""
UNKNOWN_LINK: Final = "Not linked, since there is no such node: {}."


def node_of(memory: ListedMemory) -> Answer:
    """Its links are left out while the store is unavailable."""
    return {
        "id": memory.id,
        "content": memory.content,
        "tags": list(memory.tags),
        **({"links": list(memory.related)} if isinstance(memory, LinkedMemory) else {}),
        "source": memory.source.label or memory.source.file or memory.source.tool or "",
        "created_at": iso(memory.created_at),
        "last_accessed": iso(accessed_at(memory)),
        "access_count": memory.access_count,
    }


def follow(call: Call, memory_ids: Sequence[str], *, depth: int = 0) -> FollowLinks:
    """A request for memories with their links, and for other memories up to `depth` links away."""
    characters = MOST_CHARACTERS if depth else MAX_ANSWER_BYTES
    return FollowLinks(*call.caller.viewer, tuple(memory_ids), depth, MOST, characters)


def known_links(call: Call, links: Sequence[str]) -> tuple[str, ...]:
    """The distinct ids. Anything else is dropped with a warning. Raises `InvalidInput` if there are too many."""
    check_count(links, field="links", most=MAX_LINKS)
    ids: dict[str, None] = {}
    others: dict[str, None] = {}
    for each in links:
        try:
            ids[parse_memory_id(each, field="links")] = None
        except InvalidInput:
            others[each[:MAX_NAME]] = None
    if others:
        call.warn("unknown_link", UNKNOWN_LINK.format(", ".join(others)))
    return tuple(ids)


async def write_node(call: Call, change: StoreMemory | UpdateMemory, allow_secrets: bool) -> Answer:
    """Returns the whole node, or only its id if the node cannot be read now."""
    result = await call.submit(change, allow_secrets=allow_secrets)
    assert isinstance(result, StoredResult | UpdatedResult | None)
    node: Answer = {"id": change.memory_id, "status": "queued"}
    if result is not None:
        node = {"id": result.memory_id}
        with suppress(NotFound, *AWAY):
            asked = await call.service.ask(follow(call, [result.memory_id]), call.received_at)
            node = node if asked.is_old else node_of(asked.reply.memories[0])
        if result.missing:
            call.warn("unknown_link", UNKNOWN_LINK.format(", ".join(result.missing)))
    return node | near_of(call.near, [node["id"]])


@tool("Find nodes by query, tags or both, best (or newest) first.", read_only=True)
async def recall(
    call: Call,
    query: str = "",
    tags: Annotated[tuple[str, ...], Meta(description="Any of these")] = (),
    limit: Annotated[int, Meta(ge=1, le=50)] = 10,
) -> Answer:
    """Returns only valid nodes, since nodes do not show their validity. Without a query, the newest are first."""
    tags = tags_named(tags)
    found: tuple[ListedMemory, ...]
    used: list[str] = []
    if query.strip():
        recalled = await call.find(query, tags=tags, limit=limit, valid_only=True)
        found, used = recalled, used_in(recalled)
    elif tags:
        project, session_id = call.caller.viewer
        listing = ListMemories(session_id, project=project, tags=tags, limit=limit, valid_at=call.received_at)
        found = (await call.ask(listing)).memories
    else:
        raise InvalidInput("give a query, tags, or both", field="query")
    ids = [memory.id for memory in found]
    linked: dict[str, ListedMemory] = {}
    if found:
        with suppress(NotFound, *AWAY):  # all of them may just have been deleted
            asked = await call.service.ask(follow(call, ids), call.received_at)
            linked = {memory.id: memory for memory in asked.reply.memories}
    call.service.shown(call.caller, ids, counted=ids, used=used, tool=call.tool, question=query)
    if len(linked) < len(ids):
        call.warn("no_links", "Their links are currently unavailable.")
    return {"nodes": [node_of(linked.get(memory.id, memory)) for memory in found]}


@tool("A node and its linked nodes, the nearest first.", read_only=True)
async def connections(
    call: Call, node_id: str, depth: Annotated[int, Meta(ge=0, le=10, description="Links away")] = 1
) -> Answer:
    node_id = parse_memory_id(node_id, field="node_id")
    found = await call.ask(follow(call, [node_id], depth=depth))
    ids = [memory.id for memory in found.memories]
    call.service.shown(call.caller, ids, counted=ids, used=(node_id,), tool=call.tool, question=node_id)
    if found.more:
        call.warn("more_nodes", "Only the nearest are shown: there are more within that depth.")
    return {"nodes": [node_of(memory) | {"distance": memory.distance} for memory in found.memories]}


@tool("Remember something as a node, linked to others.")
async def remember(
    call: Call,
    content: Annotated[str, Meta(description="The memory to store")],
    tags: tuple[str, ...] = (),
    links: Annotated[tuple[str, ...], Meta(description="Ids of nodes to link to, both ways")] = (),
    source: Annotated[str, Meta(description="Conversation or context")] = "",
    allow_secrets: bool = False,
) -> Answer:
    """Storing the same content again adds these tags and links to the existing node."""
    check_text(content, field="content", longest_bytes=call.service.settings.content_limit_bytes)
    label = clean_name(source, field="source", longest=MAX_NAME) if source else None
    source_ref, related = SourceRef(label=label), known_links(call, links)
    change = project_memory(call, content, tags=clean_tags(tags), source=source_ref, related=related)
    return await write_node(call, change, allow_secrets)


@tool("Replace a node's content, tags or links.", destructive=True)
async def update(
    call: Call,
    node_id: str,
    content: str | None = None,
    tags: Annotated[list[str], Meta(description="In place of all tags")] | None = None,
    links: Annotated[list[str], Meta(description="In place of all links")] | None = None,
    allow_secrets: bool = False,
) -> Answer:
    node_id = parse_memory_id(node_id, field="node_id")
    if content is not None:
        check_text(content, field="content", longest_bytes=call.service.settings.content_limit_bytes)
    change = UpdateMemory(
        node_id,
        content=content,
        tags=None if tags is None else clean_tags(tags),
        related=None if links is None else known_links(call, links),
    )
    if change == UpdateMemory(node_id):
        raise InvalidInput("there is nothing to change; give content, tags or links", field="content")
    return await write_node(call, change, allow_secrets)


@tool("Delete a node for good, and all links to it.", destructive=True, marks_data=False)
async def forget(call: Call, node_id: str) -> Answer:
    erased = await erase_memory(call, node_id)
    return {"node_id": erased.pop("memory_id"), **erased}
