"""The tool `store_memory` of facts: a short form of that of the toolset `memory`."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from remembrancer.protocol.writes import MemoryType
from remembrancer.toolsets.memory.store_memory import StoreMemoryArguments
from remembrancer.toolsets.memory.store_memory import store_memory as store_whole
from remembrancer.toolsets.tools import Answer, Call, tool, whole


class FactToStore(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    content: Annotated[str, Meta(description="One fact that makes sense alone")]
    memory_type: MemoryType | UnsetType = UNSET
    metadata: dict[str, Any] | UnsetType = UNSET
    valid_from: Annotated[str, Meta(description="ISO 8601; default now")] | UnsetType = UNSET
    valid_until: str | UnsetType = UNSET
    allow_secrets: bool | UnsetType = UNSET


@tool("Remember a fact, durably.", is_short_form=True, marks_data=False)
async def store_memory(call: Call, arguments: FactToStore) -> Answer:
    """Store a memory of the project."""
    return await store_whole(call, whole(arguments, StoreMemoryArguments, memory_type="type"))
