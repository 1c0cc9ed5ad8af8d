"""The tool `invalidate`."""

from typing import Annotated

import msgspec
from msgspec import Meta

from remembrancer.protocol.ids import parse_memory_id
from remembrancer.protocol.writes import InvalidatedResult, InvalidateMemory
from remembrancer.toolsets.memory.answers import iso
from remembrancer.toolsets.memory.fields import clean_reason, seconds_of
from remembrancer.toolsets.tools import Answer, Call, non_empty, tool


class FactToInvalidate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: Annotated[str, Meta(description="Of a memory or a relation")]
    reason: str | None = None
    replaced_by: Annotated[str, Meta(description="Id of what is true now")] | None = None
    at: Annotated[str, Meta(description="Since when; default now")] | None = None


@tool(
    'Say that a memory or relation is no longer true. It is kept; update_memory with valid_until "" undoes it.',
)
async def invalidate(call: Call, arguments: FactToInvalidate) -> Answer:
    """End a memory's period of validity, and keep the reason.

    Raises:
        NotFound: the caller can see no such memory.
        InvalidInput: the memory that replaces it does not exist.
    """
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
