"""The tool `forget_memory`."""

from typing import Final

from remembrancer.protocol.ids import parse_memory_id
from remembrancer.protocol.reads import GetMemory
from remembrancer.protocol.store_client import AWAY
from remembrancer.protocol.wire import Notice
from remembrancer.protocol.writes import ForgetMemory, ForgottenResult
from remembrancer.toolsets.memory.answers import copies_of
from remembrancer.toolsets.memory.fields import clean_reason
from remembrancer.toolsets.tools import Answer, Call, Queued, non_empty, tool

UNKNOWN: Final = (
    "The store cannot tell now whether other memories have the same text: forget it again later with copies."
)


@tool("Hide a memory.", destructive=True, unlisted=("reason", "copies"))
async def forget_memory(call: Call, memory_id: str, reason: str | None = None, copies: bool = False) -> Answer:
    """Hide a memory; nothing is deleted. Copies of its text in other scopes are reported, or hidden as well, and so are
    the memories that it replaced, which stay outdated."""
    change = ForgetMemory(parse_memory_id(memory_id), clean_reason(reason))
    try:
        result = await call.write(change, ForgottenResult)
    except Queued:
        call.notices += [Notice("queued", UNKNOWN)] * copies
        raise
    answer: Answer = {"memory_id": change.memory_id, "status": "forgotten", "reason": result.reason}
    answer |= non_empty(already_forgotten=result.already)
    question = GetMemory(call.caller.project, call.caller.session_id, change.memory_id)
    try:
        known = await call.service.require(question, call.service.settings.read_budget_s)
    except AWAY as error:
        call.notices.append(Notice(error.code, UNKNOWN))
        return answer
    answer |= non_empty(supersedes=[each.target for each in known.memory.links if each.relation == "supersedes"])
    if known.copies and not copies:
        answer["copies"] = copies_of(known)
    elif known.copies:
        for copy in known.copies:
            await call.submit(ForgetMemory(copy, change.reason), part=copy)
        answer["copies_forgotten"] = list(known.copies)
    return answer
