"""Facts: the form in which this toolset shows memories, their invalidation, and the tools that only rename another
tool."""

import time
from functools import partial
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from remembrancer.memory.decay import has_ended
from remembrancer.memory.limits import MAX_QUERY_BYTES
from remembrancer.memory.promotion import used_in
from remembrancer.memory.relevance import is_given_whole
from remembrancer.memory.text import check_text
from remembrancer.protocol.ids import parse_memory_id
from remembrancer.protocol.reads import ListedMemory, ListMemories, Ranking, Recall, RecalledMemory, Strategy
from remembrancer.protocol.writes import InvalidatedResult, InvalidateMemory, MemoryType
from remembrancer.toolsets.admin.home_tools import erase_memory, listed
from remembrancer.toolsets.memory.answers import VALIDITY, fields_of, iso, set_fields
from remembrancer.toolsets.memory.fields import Offset, clean_reason, seconds_of
from remembrancer.toolsets.memory.get_memory import get_memory
from remembrancer.toolsets.memory.get_memory_status import get_memory_status
from remembrancer.toolsets.memory.store_memory import store_memory
from remembrancer.toolsets.memory.update_memory import update_memory
from remembrancer.toolsets.tools import Answer, Call, derived_tool, non_empty, tool

NOW: Final = "now"


class FactToStore(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    content: Annotated[str, Meta(description="One fact that makes sense alone")]
    memory_type: MemoryType | None = None
    metadata: dict[str, Any] | None = None
    valid_from: Annotated[str, Meta(description="ISO 8601; default now")] | None = None
    valid_until: str | None = None
    allow_secrets: bool | None = None


class FactChanges(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    content: str | None = None
    metadata: Annotated[dict[str, Any], Meta(description="Merged; null removes")] | None = None
    valid_from: str | None = None
    valid_until: Annotated[str, Meta(description="Empty: no end")] | None = None
    allow_secrets: bool | None = None


def fact_of(memory: ListedMemory) -> Answer:
    """A memory as a fact: its content, its period of validity, and why it ended."""
    fact: Answer = {
        **fields_of(memory, "id", "content"),
        "memory_type": memory.type,
        **set_fields(memory, "metadata"),
        **fields_of(memory, "created_at"),
        **set_fields(memory, *VALIDITY),
    }
    if has_ended(memory.valid_until, time.time()):
        fact |= {"valid": False, **set_fields(memory, "superseded_by")}
    if isinstance(memory, RecalledMemory):
        fact["score"] = round(memory.scores.final, 3)
    return fact


async def find_facts(
    call: Call,
    query: str,
    strategy: Strategy,
    ranking: Ranking,
    limit: Annotated[int, Meta(ge=1, le=50)] = 10,
    include_invalid: bool = False,
) -> Answer:
    """The best memories for a query; those no longer valid only on request."""
    check_text(query, field="query", longest_bytes=MAX_QUERY_BYTES)
    request = Recall(
        call.caller.session_id,
        project=call.caller.project,
        query=query,
        strategy=strategy,
        ranking=ranking,
        limit=limit,
        sources=("memory",),
        valid_only=not include_invalid,
    )
    memories = (await call.ask(request, is_search=True)).memories
    ids = [memory.id for memory in memories]
    counted = [] if call.is_old else [memory.id for memory in memories if is_given_whole(memory)]
    call.service.shown(call.caller, ids, counted=counted, used=used_in(memories), tool=call.tool, question=query)
    return {"memories": [fact_of(memory) for memory in memories]}


async def list_facts(
    call: Call,
    timestamp: Annotated[str, Meta(description="ISO 8601")] | None,
    limit: Annotated[int, Meta(ge=1, le=1000)] = 20,
    offset: Offset = 0,
) -> Answer:
    """A page of the memories valid at a time; without a time, of all memories."""
    is_now = timestamp == NOW
    request = ListMemories(
        call.caller.session_id,
        project=call.caller.project,
        order="latest" if timestamp is None else "valid",
        valid_at=call.received_at if is_now else seconds_of(timestamp, "timestamp"),
        limit=limit,
        offset=offset,
    )
    return await listed(call, request, fact_of)


_tool = partial(derived_tool, __name__)
_search = partial(_tool, handler=find_facts, read_only=True)
_RANKED: Final = {"strategy": "hybrid", "ranking": "pagerank"}
_search("recall", "Find memories by meaning, words and relations, best first.", fixed=_RANKED)
_search("search", "Find memories by meaning alone.", fixed={"strategy": "vector", "ranking": "fitted"})
_search("search_text", "Find memories by words alone.", fixed={"strategy": "keyword", "ranking": "fitted"})

_list = partial(_tool, handler=list_facts, read_only=True)
_list("list_memories", "All memories, newest first.", fixed={"timestamp": None}, is_short_form=True)
_list("get_valid", "Facts that are true now, the latest first.", fixed={"timestamp": NOW})
_list("get_valid_at", "Facts that were true at a time.")

_tool(
    "get_memory",
    "One memory, with its history.",
    get_memory,
    renamed={"id": "memory_id"},
    fixed={"version": None, "detail": False},
    read_only=True,
    is_short_form=True,
    shows_whole_ids=True,
)
_tool("get_status", "Health and counts.", get_memory_status, read_only=True, marks_data=False)

_write = partial(_tool, marks_data=False)
_write(
    "store_memory",
    "Remember a fact, durably.",
    store_memory,
    FactToStore,
    renamed={"memory_type": "type"},
    is_short_form=True,
)
_write(
    "update_memory",
    "Change a memory. Earlier versions are kept.",
    update_memory,
    FactChanges,
    renamed={"id": "memory_id"},
    destructive=True,
    is_short_form=True,
)
_write(
    "delete_memory",
    "Delete a memory or relation for good, with its history.",
    erase_memory,
    renamed={"id": "memory_id"},
    answer_names={"memory_id": "id"},
    destructive=True,
)


class FactToInvalidate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: Annotated[str, Meta(description="Of a memory or a relation")]
    reason: str | None = None
    replaced_by: Annotated[str, Meta(description="Id of the fact that is true now")] | None = None
    at: Annotated[str, Meta(description="Since when; default now")] | None = None


@tool('Say that a memory or relation is no longer true. It is kept; update_memory with valid_until "" undoes it.')
async def invalidate(call: Call, arguments: FactToInvalidate) -> Answer:
    """End a memory's period of validity and keep the reason."""
    memory_id = parse_memory_id(arguments.id, field="id")
    newer = None if arguments.replaced_by is None else parse_memory_id(arguments.replaced_by, field="replaced_by")
    at = seconds_of(arguments.at, "at")
    change = InvalidateMemory(memory_id, clean_reason(arguments.reason), newer, at)
    result = await call.write(change, InvalidatedResult, ids={"id": memory_id})
    answer: Answer = {
        "id": result.memory_id,
        "valid_until": iso(result.valid_until),
        "reason": result.reason,
        "version": result.version,
    }
    return answer | non_empty(already_invalid=result.already, replaced_by=newer)
