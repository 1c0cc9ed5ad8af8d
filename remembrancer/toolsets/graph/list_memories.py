"""The tool `list_memories` of facts: a short form of that of the toolset `admin`."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from remembrancer.protocol.reads import ListMemories
from remembrancer.toolsets.admin.list_memories import listed
from remembrancer.toolsets.graph.fact_answers import PAGE, PageLimit, fact_of
from remembrancer.toolsets.memory.fields import Offset, given
from remembrancer.toolsets.tools import Answer, Call, tool


class Page(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    limit: PageLimit | UnsetType = UNSET
    offset: Offset | UnsetType = UNSET


@tool("All memories, newest first.", read_only=True, is_short_form=True)
async def list_memories(call: Call, arguments: Page) -> Answer:
    """A page of what is remembered, valid or not."""
    request = ListMemories(
        call.caller.session_id,
        project=call.caller.project,
        limit=given(arguments.limit, PAGE),
        offset=given(arguments.offset, 0),
    )
    return await listed(call, request, fact_of)
