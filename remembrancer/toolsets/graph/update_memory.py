"""The tool `update_memory` of facts: a short form of that of the toolset `memory`."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from remembrancer.toolsets.memory.update_memory import UpdateMemoryArguments
from remembrancer.toolsets.memory.update_memory import update_memory as update_whole
from remembrancer.toolsets.tools import Answer, Call, tool, whole


class FactChanges(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    content: str | UnsetType = UNSET
    metadata: Annotated[dict[str, Any], Meta(description="Merged; null removes")] | UnsetType = UNSET
    valid_from: str | UnsetType = UNSET
    valid_until: Annotated[str, Meta(description="Empty: no end")] | UnsetType = UNSET
    allow_secrets: bool | UnsetType = UNSET


@tool("Change a memory. Earlier versions are kept.", destructive=True, is_short_form=True, marks_data=False)
async def update_memory(call: Call, arguments: FactChanges) -> Answer:
    """Change what is given, and leave the rest."""
    return await update_whole(call, whole(arguments, UpdateMemoryArguments, id="memory_id"))
