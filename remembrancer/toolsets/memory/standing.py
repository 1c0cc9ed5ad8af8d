"""Tools that change a memory's visibility, scope or tags, but not its text."""

from typing import Final, Literal

from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.ids import parse_memory_id
from remembrancer.protocol.reads import GetMemory
from remembrancer.protocol.store_client import AWAY
from remembrancer.protocol.writes import (
    ForgetMemory,
    ForgottenResult,
    PromotedResult,
    PromoteMemory,
    RestoredResult,
    RestoreMemory,
    TaggedResult,
    TagMemory,
    UndoChange,
)
from remembrancer.toolsets.memory.answers import copies_of
from remembrancer.toolsets.memory.fields import Version, clean_reason, clean_tag_changes
from remembrancer.toolsets.tools import Answer, Call, Queued, non_empty, tool

UNKNOWN: Final = (
    "The store cannot currently tell whether other memories have the same text; "
    "forget it again later, with copies=true."
)


@tool("Hide a memory.", destructive=True, unlisted=("reason", "copies"))
async def forget_memory(call: Call, memory_id: str, reason: str | None = None, copies: bool = False) -> Answer:
    """Copies of the text are reported or hidden, too. Memories that it replaced stay expired until restored."""
    change = ForgetMemory(parse_memory_id(memory_id), clean_reason(reason))
    try:
        result = await call.write(change, ForgottenResult)
    except Queued:
        if copies:
            call.warn("queued", UNKNOWN)
        raise
    answer: Answer = {"memory_id": change.memory_id, "status": "forgotten"}
    answer |= non_empty(reason=result.reason, already_forgotten=result.already)
    question = GetMemory(*call.caller.viewer, change.memory_id)
    try:
        known = await call.service.require(question, call.service.settings.read_budget_s)
    except AWAY as error:
        call.warn(error.code, UNKNOWN)
        return answer
    answer |= non_empty(supersedes=[each.target for each in known.memory.links if each.relation == "supersedes"])
    if known.copies and not copies:
        answer["copies"] = copies_of(known)
    elif known.copies:
        for copy in known.copies:
            await call.submit(ForgetMemory(copy, change.reason), part=copy)
        answer["copies_forgotten"] = list(known.copies)
    return answer


@tool("Undo a forget or replacement, or revert.", destructive=True, marks_data=False, unlisted=("reason", "undo"))
async def restore_memory(
    call: Call, memory_id: str, version: Version | None = None, reason: str | None = None, undo: bool = False
) -> Answer:
    """`undo` undoes the last change if the version is still the given one. The answer names the changed memory."""
    memory_id = parse_memory_id(memory_id)
    if not undo:
        result = await call.write(RestoreMemory(memory_id, version, clean_reason(reason)), RestoredResult)
        answer: Answer = {"memory_id": memory_id, "status": "active"}
        answer |= {"restored_fields": list(result.restored_fields), "version": result.version}
        return answer | non_empty(proposed_again=result.proposed_again)
    undone = await call.submit(UndoChange(memory_id, version))
    if isinstance(undone, RestoredResult):
        answer = {"memory_id": undone.memory_id, "undone": undone.undone}
        answer["restored_fields"] = list(undone.restored_fields)
        return answer | non_empty(valid_again=list(undone.valid_again))
    if isinstance(undone, PromotedResult):
        return {"memory_id": memory_id, "undone": "moved", "restored_fields": ["scope"]}
    raise Queued({"memory_id": memory_id})


@tool("Move a memory between scopes.", unlisted=("reason",))
async def promote_memory(
    call: Call, memory_id: str, target_scope: Literal["project", "user"], reason: str | None = None
) -> Answer:
    """The target `project` also declines a promotion to the user, or undoes one."""
    memory_id = parse_memory_id(memory_id)
    change = PromoteMemory(memory_id, target_scope, clean_reason(reason))
    result = await call.write(change, PromotedResult)
    answer: Answer = {"memory_id": memory_id, "previous_scope": result.previous_scope}
    return answer | non_empty(merged_into=result.merged_into, new_scope=change.target_scope, reason=change.reason)


@tool("Change tags.")
async def tag_memory(call: Call, memory_id: str, add: tuple[str, ...] = (), remove: tuple[str, ...] = ()) -> Answer:
    memory_id = parse_memory_id(memory_id)
    add, remove = clean_tag_changes(add, remove)
    if not (add or remove):
        raise InvalidInput("there is nothing to change; give tags to add or to remove", field="add")
    result = await call.write(TagMemory(memory_id, add, remove), TaggedResult)
    answer: Answer = {"memory_id": memory_id, "tags": list(result.tags)}
    return answer if result.is_changed else answer | {"updated_fields": []}
