"""Facts: shows and invalidates memories, and has tools whose names and arguments differ from the `memory` toolset."""

import time
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from remembrancer.memory.decay import has_ended
from remembrancer.memory.promotion import used_in
from remembrancer.memory.relevance import is_given_whole
from remembrancer.protocol.ids import parse_memory_id
from remembrancer.protocol.reads import ListedMemory, ListMemories, Order, Ranking, RecalledMemory, Strategy
from remembrancer.protocol.writes import InvalidatedResult, InvalidateMemory, MemoryType
from remembrancer.toolsets.admin.home_tools import erase_memory, listed
from remembrancer.toolsets.memory.answers import VALIDITY, fields_of, iso, set_fields
from remembrancer.toolsets.memory.fields import Offset, clean_reason, seconds_of
from remembrancer.toolsets.memory.get_memory import get_memory as get
from remembrancer.toolsets.memory.get_memory_status import get_memory_status
from remembrancer.toolsets.memory.store_memory import StoreMemoryArguments
from remembrancer.toolsets.memory.store_memory import store_memory as store
from remembrancer.toolsets.memory.update_memory import UpdateMemoryArguments
from remembrancer.toolsets.memory.update_memory import update_memory as update
from remembrancer.toolsets.tools import Answer, Call, non_empty, tool

Found = Annotated[int, Meta(ge=1, le=50)]
Listed = Annotated[int, Meta(ge=1, le=1000)]


class FactId(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str


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


async def _found(
    call: Call, query: str, strategy: Strategy, ranking: Ranking, limit: int, include_invalid: bool
) -> Answer:
    memories = await call.find(query, strategy=strategy, ranking=ranking, limit=limit, valid_only=not include_invalid)
    ids = [memory.id for memory in memories]
    counted = [] if call.is_old else [memory.id for memory in memories if is_given_whole(memory)]
    call.service.shown(call.caller, ids, counted=counted, used=used_in(memories), tool=call.tool, question=query)
    return {"memories": [fact_of(memory) for memory in memories]}


@tool("Find memories by meaning, words and relations, best first.", read_only=True)
async def recall(call: Call, query: str, limit: Found = 10, include_invalid: bool = False) -> Answer:
    return await _found(call, query, "hybrid", "pagerank", limit, include_invalid)


@tool("Find memories by meaning alone.", read_only=True)
async def search(call: Call, query: str, limit: Found = 10, include_invalid: bool = False) -> Answer:
    return await _found(call, query, "vector", "fitted", limit, include_invalid)


@tool("Find memories by words alone.", read_only=True)
async def search_text(call: Call, query: str, limit: Found = 10, include_invalid: bool = False) -> Answer:
    return await _found(call, query, "keyword", "fitted", limit, include_invalid)


async def _page(call: Call, limit: int, offset: int, order: Order, valid_at: float | None) -> Answer:
    session_id, project = call.caller.session_id, call.caller.project
    request = ListMemories(session_id, project=project, order=order, valid_at=valid_at, limit=limit, offset=offset)
    return await listed(call, request, fact_of)


@tool("All memories, newest first.", read_only=True, is_short_form=True)
async def list_memories(call: Call, limit: Listed = 20, offset: Offset = 0) -> Answer:
    return await _page(call, limit, offset, "latest", None)


@tool("Facts that are true now, the latest first.", read_only=True)
async def get_valid(call: Call, limit: Listed = 20, offset: Offset = 0) -> Answer:
    return await _page(call, limit, offset, "valid", call.received_at)


@tool("Facts that were true at a time.", read_only=True)
async def get_valid_at(
    call: Call,
    timestamp: Annotated[str, Meta(description="ISO 8601")],
    limit: Listed = 20,
    offset: Offset = 0,
) -> Answer:
    return await _page(call, limit, offset, "valid", seconds_of(timestamp, "timestamp"))


@tool("One memory, with its history.", read_only=True, is_short_form=True, shows_whole_ids=True)
async def get_memory(call: Call, arguments: FactId) -> Answer:
    return await get(call, arguments.id)


@tool("Health and counts.", read_only=True, marks_data=False)
async def get_status(call: Call) -> Answer:
    return await get_memory_status(call)


@tool("Remember a fact, durably.", marks_data=False, is_short_form=True)
async def store_memory(call: Call, arguments: FactToStore) -> Answer:
    fields = msgspec.structs.asdict(arguments)
    return await store(call, StoreMemoryArguments(type=fields.pop("memory_type"), **fields))


@tool("Change a memory. Earlier versions are kept.", destructive=True, marks_data=False, is_short_form=True)
async def update_memory(call: Call, arguments: FactChanges) -> Answer:
    fields = msgspec.structs.asdict(arguments)
    return await update(call, UpdateMemoryArguments(memory_id=fields.pop("id"), **fields))


@tool("Delete a memory or relation for good, with its history.", destructive=True, marks_data=False)
async def delete_memory(call: Call, arguments: FactId) -> Answer:
    erased = await erase_memory(call, arguments.id)
    return {"id": erased.pop("memory_id"), **erased}


class FactToInvalidate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: Annotated[str, Meta(description="Of a memory or a relation")]
    reason: str | None = None
    replaced_by: Annotated[str, Meta(description="Id of the fact that is true now")] | None = None
    at: Annotated[str, Meta(description="Since when; default now")] | None = None


@tool('Say that a memory or relation is no longer true. It is kept; update_memory with valid_until "" undoes it.')
async def invalidate(call: Call, arguments: FactToInvalidate) -> Answer:
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
