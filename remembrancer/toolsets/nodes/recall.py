"""The tool `recall` of linked nodes."""

from contextlib import suppress
from typing import Annotated, Final

from msgspec import Meta

from remembrancer.memory.promotion import used_in
from remembrancer.memory.text import check_text
from remembrancer.protocol.errors import InvalidInput, NotFound
from remembrancer.protocol.reads import ListedMemory, ListMemories, Recall
from remembrancer.protocol.store_client import AWAY
from remembrancer.protocol.wire import Notice
from remembrancer.toolsets.memory.fields import clean_tags
from remembrancer.toolsets.memory.recall_memories import MAX_QUERY_BYTES
from remembrancer.toolsets.nodes.answering import follow, node_of
from remembrancer.toolsets.tools import Answer, Call, tool

NO_LINKS: Final = "Their links are not available now."


@tool("Find nodes by query, tags or both, best (or newest) first.", read_only=True)
async def recall(
    call: Call,
    query: str = "",
    tags: Annotated[tuple[str, ...], Meta(description="Any of these")] = (),
    limit: Annotated[int, Meta(ge=1, le=50)] = 10,
) -> Answer:
    """The best nodes for the query with any of the tags; without a query, the newest ones.

    Facts that are no longer valid are left out, because a node could not show that.
    """
    tags = clean_tags(tags)
    project, session_id = call.caller.project, call.caller.session_id
    found: tuple[ListedMemory, ...]
    used: list[str] = []
    if query.strip():
        check_text(query, field="query", longest_bytes=MAX_QUERY_BYTES)
        recalling = Recall(
            session_id,
            project=project,
            query=query,
            tags=tags,
            limit=limit,
            counts_accesses=False,
            sources=("memory",),
            valid_only=True,
        )
        recalled = (await call.ask(recalling, is_search=True)).memories
        found, used = recalled, used_in(recalled)
    elif tags:
        listing = ListMemories(session_id, project=project, tags=tags, limit=limit, valid_at=call.received_at)
        found = (await call.ask(listing)).memories
    else:
        raise InvalidInput("give a query, tags, or both", field="query")
    ids = [memory.id for memory in found]
    linked: dict[str, ListedMemory] = {}
    if found:
        with suppress(NotFound, *AWAY):  # all may just have been deleted
            asked = await call.service.ask(follow(call, ids), call.received_at)
            linked = {memory.id: memory for memory in asked.reply.memories}
    call.service.shown(call.caller, ids, used=used, tool=call.tool, question=query)
    if len(linked) < len(ids):
        call.notices.append(Notice("no_links", NO_LINKS))
    return {"nodes": [node_of(linked.get(memory.id, memory)) for memory in found]}
