"""The tool `forget_memory`."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from remembrancer.protocol.ids import parse_memory_id
from remembrancer.protocol.writes import ForgetMemory, ForgottenResult
from remembrancer.toolsets.memory.answers import changed
from remembrancer.toolsets.memory.fields import clean_reason
from remembrancer.toolsets.tools import Answer, Call, tool


class ForgetMemoryArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    memory_id: str
    reason: str | UnsetType = UNSET


@tool("Hide a memory from recall.", destructive=True, idempotent=True)
async def forget_memory(call: Call, arguments: ForgetMemoryArguments) -> Answer:
    """Hide a memory; nothing is deleted."""
    change = ForgetMemory(parse_memory_id(arguments.memory_id), clean_reason(arguments.reason))
    written = await call.submit(change)
    result = written.result
    reason = result.reason if isinstance(result, ForgottenResult) else change.reason
    answer: Answer = {"memory_id": change.memory_id, "status": "forgotten", "reason": reason}
    if isinstance(result, ForgottenResult) and result.already:
        answer["already_forgotten"] = True
    return changed(written, answer)
