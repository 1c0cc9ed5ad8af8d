"""The tool `get_valid_at`: what was true at a time, by what is known now or was known then."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from remembrancer.protocol.reads import ListMemories
from remembrancer.toolsets.admin.list_memories import listed
from remembrancer.toolsets.graph.fact_answers import PAGE, PageLimit, fact_of
from remembrancer.toolsets.memory.fields import Offset, given, seconds_of
from remembrancer.toolsets.tools import Answer, Call, tool


class TimeOfFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    timestamp: Annotated[str, Meta(description="ISO 8601")]
    as_of: Annotated[str, Meta(description="By what was known then")] | UnsetType = UNSET
    limit: PageLimit | UnsetType = UNSET
    offset: Offset | UnsetType = UNSET


@tool("What was true at a time.", read_only=True)
async def get_valid_at(call: Call, arguments: TimeOfFacts) -> Answer:
    """A page of what was valid at a time.

    Raises:
        InvalidInput: a time is none.
        MemoryUnavailable: the store is away.
    """
    at = seconds_of(arguments.timestamp, "timestamp")
    assert at is not None
    return await valid(call, at, seconds_of(arguments.as_of, "as_of"), arguments.limit, arguments.offset)


async def valid(call: Call, at: float, as_of: float | None, limit: int | UnsetType, offset: int | UnsetType) -> Answer:
    """A page of what was valid at a time (seconds since the epoch), by what was known then or (None) is known now."""
    request = ListMemories(
        call.caller.session_id,
        project=call.caller.project,
        order="valid",
        valid_at=at,
        as_of=as_of,
        limit=given(limit, PAGE),
        offset=given(offset, 0),
    )
    return await listed(call, request, fact_of)
