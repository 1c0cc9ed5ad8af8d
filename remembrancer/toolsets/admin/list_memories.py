"""The tool `list_memories`."""

from collections.abc import Callable
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from remembrancer.memory.fields import DETAILS
from remembrancer.protocol.kinds import Kind
from remembrancer.protocol.reads import ListedMemory, ListMemories, Order
from remembrancer.protocol.writes import MemoryType, Scope
from remembrancer.toolsets.memory.answers import fields_of, iso, set_fields, standing_of
from remembrancer.toolsets.memory.fields import Offset, clean_tags, given, seconds_of
from remembrancer.toolsets.tools import Answer, Call, cut_notice, tool

_DETAILS: Final = tuple(name for name in DETAILS if name in ListedMemory.__struct_fields__)


class ListMemoriesArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    order: Order | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] | None = None
    offset: Offset = 0
    scope: list[Scope] = []
    type: list[MemoryType] = []
    kind: list[Kind] = []
    domain: list[str] = []
    tags: list[str] = []
    min_importance: Annotated[float, Meta(ge=0, le=1)] = 0.0
    after: str | None = None
    before: str | None = None
    include_forgotten: bool = False
    only_forgotten: bool = False


@tool("List memories.", read_only=True, unlisted=("only_forgotten",))
async def list_memories(call: Call, arguments: ListMemoriesArguments) -> Answer:
    """List memories without a question. Does not count as an access. Raises `MemoryUnavailable` if the store is
    away."""
    request = ListMemories(
        project=call.caller.project,
        session_id=call.caller.session_id,
        order=given(arguments.order, "latest"),
        limit=given(arguments.limit, 50),
        offset=arguments.offset,
        scopes=tuple(arguments.scope),
        types=tuple(arguments.type),
        kinds=tuple(arguments.kind),
        domains=clean_tags(arguments.domain, field="domain"),
        tags=clean_tags(arguments.tags),
        min_importance=arguments.min_importance,
        after=seconds_of(arguments.after, "after"),
        before=seconds_of(arguments.before, "before"),
        include_forgotten=arguments.include_forgotten,
        only_forgotten=arguments.only_forgotten,
    )
    return await listed(call, request, _listed)


async def listed(call: Call, request: ListMemories, shown: Callable[[ListedMemory], Answer]) -> Answer:
    """The memories of a list. Raises `MemoryUnavailable` if the store is away."""
    reply = await call.ask(request)
    if reply.more:
        call.notices.append(cut_notice(len(reply.memories), request.offset))
    return {"memories": [shown(memory) for memory in reply.memories]}


def _listed(memory: ListedMemory) -> Answer:
    shown = {
        **fields_of(memory, "id", "content", "type", "scope", "importance", "created_at", "access_count"),
        **set_fields(memory, "tags", *_DETAILS),
    }
    changed = {"updated": iso(memory.updated_at)} if memory.version > 1 else {}
    return shown | changed | standing_of(memory)
