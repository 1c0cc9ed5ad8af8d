"""The tool `list_memories`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

from remembrancer.memory.fields import DETAILS
from remembrancer.protocol.kinds import Kind
from remembrancer.protocol.reads import ListedMemory, ListMemories, Order
from remembrancer.protocol.writes import MemoryType, Scope
from remembrancer.toolsets.memory.answers import fields_of, set_fields, standing_of, updated
from remembrancer.toolsets.memory.fields import Offset, clean_tags, given, seconds_of
from remembrancer.toolsets.tools import Answer, Call, cut_notice, tool, with_caveats

_DETAILS: Final = tuple(name for name in DETAILS if name in ListedMemory.__struct_fields__)


class ListMemoriesArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    order: Order | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, le=1000)] | UnsetType = UNSET
    offset: Offset | UnsetType = UNSET
    scope: list[Scope] | UnsetType = UNSET
    type: list[MemoryType] | UnsetType = UNSET
    kind: list[Kind] | UnsetType = UNSET
    domain: list[str] | UnsetType = UNSET
    tags: list[str] | UnsetType = UNSET
    min_importance: Annotated[float, Meta(ge=0, le=1)] | UnsetType = UNSET
    after: str | UnsetType = UNSET
    before: str | UnsetType = UNSET
    include_forgotten: bool | UnsetType = UNSET
    only_forgotten: bool | UnsetType = UNSET


@tool("List memories.", read_only=True, unlisted=("only_forgotten",))
async def list_memories(call: Call, arguments: ListMemoriesArguments) -> Answer:
    """List memories without a question. Does not count as an access. Raises `MemoryUnavailable` if the store is
    away."""
    request = ListMemories(
        project=call.caller.project,
        session_id=call.caller.session_id,
        order=given(arguments.order, "latest"),
        limit=given(arguments.limit, 50),
        offset=given(arguments.offset, 0),
        scopes=tuple(given(arguments.scope, ())),
        types=tuple(given(arguments.type, ())),
        kinds=tuple(given(arguments.kind, ())),
        domains=clean_tags(arguments.domain, field="domain"),
        tags=clean_tags(arguments.tags),
        min_importance=given(arguments.min_importance, 0.0),
        after=seconds_of(arguments.after, "after"),
        before=seconds_of(arguments.before, "before"),
        include_forgotten=arguments.include_forgotten is True,
        only_forgotten=arguments.only_forgotten is True,
    )
    return await listed(call, request, _listed)


async def listed(call: Call, request: ListMemories, shown: Callable[[ListedMemory], Answer]) -> Answer:
    """The memories of a list. Raises `MemoryUnavailable` if the store is away."""
    asked = await call.service.ask(request, call.received_at)
    answer: Answer = {"memories": [shown(memory) for memory in asked.reply.memories]}
    cut = [cut_notice(len(asked.reply.memories), request.offset)] if asked.reply.more else []
    return with_caveats(answer, [*asked.notices, *cut], degraded=asked.is_old)


def _listed(memory: ListedMemory) -> Answer:
    shown = {
        **fields_of(memory, "id", "content", "type", "scope", "importance", "created_at", "access_count"),
        **set_fields(memory, "tags", *_DETAILS),
    }
    return shown | updated(memory) | standing_of(memory)
