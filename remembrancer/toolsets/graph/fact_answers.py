"""Facts as the tools of this toolset show them, and the searches that find them."""

from __future__ import annotations

import time
from typing import Annotated, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

from remembrancer.memory.decay import has_ended
from remembrancer.memory.text import check_text
from remembrancer.protocol.reads import ListedMemory, Ranking, Recall, RecalledMemory, Strategy
from remembrancer.toolsets.memory.answers import VALIDITY, fields_of, said_by
from remembrancer.toolsets.memory.fields import given
from remembrancer.toolsets.memory.recall_memories import MAX_QUERY_BYTES
from remembrancer.toolsets.tools import Answer, Call, with_caveats

LIMIT: Final = 10
PAGE: Final = 20
PageLimit = Annotated[int, Meta(ge=1, le=1000, extra_json_schema={"default": PAGE})]


class FactQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    query: str
    limit: Annotated[int, Meta(ge=1, le=50, extra_json_schema={"default": LIMIT})] | UnsetType = UNSET
    include_invalid: bool | UnsetType = UNSET


def fact_of(memory: ListedMemory) -> Answer:
    """A memory as a fact: what it says, when it is true, and why no longer."""
    fact: Answer = {
        **fields_of(memory, "id", "content"),
        "memory_type": memory.type,
        **said_by(memory, "metadata"),
        **fields_of(memory, "created_at"),
        **said_by(memory, *VALIDITY),
    }
    if has_ended(memory.valid_until, time.time()):
        fact |= {"valid": False, **said_by(memory, "superseded_by")}
    if isinstance(memory, RecalledMemory):
        fact["score"] = round(memory.scores.final, 3)
    return fact


async def found(call: Call, arguments: FactQuery, strategy: Strategy, ranking: Ranking = "fitted") -> Answer:
    """The best memories for a query: without those that are not valid now, unless they are asked for as well."""
    check_text(arguments.query, field="query", longest_bytes=MAX_QUERY_BYTES)
    request = Recall(
        call.caller.session_id,
        project=call.caller.project,
        query=arguments.query,
        strategy=strategy,
        ranking=ranking,
        limit=given(arguments.limit, LIMIT),
        sources=("memory",),
        valid_only=arguments.include_invalid is not True,
    )
    asked = await call.service.ask(request, call.received_at)
    memories = asked.reply.memories
    ids = [memory.id for memory in memories]
    call.service.shown(call.caller, ids, tool=call.tool, question=arguments.query)
    answer: Answer = {"memories": [fact_of(memory) for memory in memories]}
    return with_caveats(answer, asked.notices, degraded=asked.is_degraded)
