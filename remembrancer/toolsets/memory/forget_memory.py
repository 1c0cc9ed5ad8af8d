"""The tool `forget_memory`."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from remembrancer.protocol.errors import NotFound
from remembrancer.protocol.ids import parse_memory_id
from remembrancer.protocol.reads import GetMemory, MemoryShown
from remembrancer.protocol.writes import ForgetMemory, ForgottenResult
from remembrancer.toolsets.memory.answers import changed, copies_of
from remembrancer.toolsets.memory.fields import clean_reason
from remembrancer.toolsets.tools import Answer, Call, saying, tool, with_caveats


class ForgetMemoryArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    memory_id: str
    reason: str | UnsetType = UNSET
    copies: bool | UnsetType = UNSET


@tool("Hide a memory from recall.", destructive=True, unlisted=("copies",))
async def forget_memory(call: Call, arguments: ForgetMemoryArguments) -> Answer:
    """Hide a memory; nothing is deleted. Its text may be in other scopes: that is said, or hidden as well."""
    change = ForgetMemory(parse_memory_id(arguments.memory_id), clean_reason(arguments.reason))
    written = await call.submit(change)
    result = written.result
    reason = result.reason if isinstance(result, ForgottenResult) else change.reason
    answer: Answer = {"memory_id": change.memory_id, "status": "forgotten", "reason": reason}
    answer |= saying(already_forgotten=isinstance(result, ForgottenResult) and result.already)
    answer = changed(written, answer)
    question = GetMemory(call.caller.project, call.caller.session_id, change.memory_id)
    try:
        asked = await call.service.ask(question, call.received_at)
    except NotFound:  # it is on its way to the store
        return answer
    if not isinstance(asked.reply, MemoryShown):
        unknown = "Whether its text is in another memory too is not known now: forget it again later with copies."
        if arguments.copies is True and asked.away is not None:
            return with_caveats(answer, [call.service.explain(asked.away, unknown)])
        return answer
    if asked.reply.copies and arguments.copies is not True:
        answer["copies"] = copies_of(asked.reply)
    elif asked.reply.copies:
        for copy in asked.reply.copies:
            await call.submit(ForgetMemory(copy.memory_id, change.reason), part=copy.memory_id)
        answer["copies_forgotten"] = [copy.memory_id for copy in asked.reply.copies]
    return answer
