"""Nodes: the form in which this toolset shows memories of the project, and the way to ask for them."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from remembrancer.memory.limits import MAX_ANSWER_BYTES, MAX_LINKS, MAX_NAME, check_count
from remembrancer.protocol.errors import InvalidInput, NotFound
from remembrancer.protocol.ids import parse_memory_id
from remembrancer.protocol.reads import FollowLinks, LinkedMemory, ListedMemory
from remembrancer.protocol.store_client import AWAY
from remembrancer.protocol.wire import Notice
from remembrancer.protocol.writes import StoredResult, StoreMemory, UpdatedResult, UpdateMemory
from remembrancer.toolsets.admin.erase_memory import erase_memory
from remembrancer.toolsets.memory.answers import iso, near_of, source_of
from remembrancer.toolsets.tools import Answer, Call, derived_tool

MOST: Final = 100
MOST_CHARACTERS: Final = 60_000
"""The most nodes and characters in one answer, about 25,000 tokens altogether."""


def node_of(memory: ListedMemory) -> Answer:
    """A node. Its links are left out while the store is away."""
    node: Answer = {
        "id": memory.id,
        "content": memory.content,
        "tags": list(memory.tags),
    }
    last_accessed_at = memory.created_at
    if isinstance(memory, LinkedMemory):
        node["links"] = list(memory.related)
        last_accessed_at = memory.last_accessed_at or memory.created_at
    source = source_of(memory.source)
    return node | {
        "source": source.get("label") or source.get("file") or source.get("tool") or "",
        "created_at": iso(memory.created_at),
        "last_accessed": iso(last_accessed_at),
        "access_count": memory.access_count,
    }


def follow(call: Call, memory_ids: Sequence[str], *, depth: int = 0, count: bool = True) -> FollowLinks:
    """The question for memories with their links, and for those up to `depth` links away."""
    return FollowLinks(
        call.caller.project,
        call.caller.session_id,
        tuple(memory_ids),
        depth,
        MOST,
        count,
        MOST_CHARACTERS if depth else MAX_ANSWER_BYTES,
    )


def known_links(links: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The distinct valid ids, and the invalid ones. Raises `InvalidInput` for too many."""
    check_count(links, field="links", most=MAX_LINKS)
    ids: dict[str, None] = {}
    others: dict[str, None] = {}
    for each in links:
        try:
            ids[parse_memory_id(each, field="links")] = None
        except InvalidInput:
            others[each[:MAX_NAME]] = None
    return tuple(ids), tuple(others)


async def write_node(
    call: Call, change: StoreMemory | UpdateMemory, no_ids: Sequence[str], allow_secrets: bool
) -> Answer:
    """Write a node, and return it whole; only its id if the write is queued, or the node was just deleted or cannot be
    read now. `no_ids` are links that are no ids."""
    result = await call.submit(change, allow_secrets=allow_secrets)
    assert isinstance(result, StoredResult | UpdatedResult | None)
    node: Answer = {"id": change.memory_id, "status": "queued"}
    if result is not None:
        node = {"id": result.memory_id}
        with suppress(NotFound, *AWAY):
            asked = await call.service.ask(follow(call, [result.memory_id], count=False), call.received_at)
            node = node if asked.is_old else node_of(asked.reply.memories[0])
    if missing := (*(result.missing if result else ()), *no_ids):
        text = f"Not linked, since there is no such node: {', '.join(missing)}."
        call.notices.append(Notice("unknown_link", text))
    return node | near_of(call.near)


derived_tool(
    __name__,
    "forget",
    "Delete a node for good, and all links to it.",
    erase_memory,
    renamed={"node_id": "memory_id"},
    answer_names={"memory_id": "node_id"},
    destructive=True,
    marks_data=False,
)
