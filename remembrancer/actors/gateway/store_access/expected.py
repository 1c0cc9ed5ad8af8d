"""What a queued change is going to come to, so far as it is known while the store is away. Pure."""

from __future__ import annotations

from typing import Any

from remembrancer.actors.gateway.store_access.overlay import tags_after
from remembrancer.actors.gateway.toolkit.tools import Answer
from remembrancer.protocol.reads import RecalledMemory
from remembrancer.protocol.writes import (
    ForgetMemory,
    PortableMemory,
    PromoteMemory,
    RestoreMemory,
    TagMemory,
    UpdateMemory,
)

PlainChange = UpdateMemory | TagMemory | ForgetMemory | PromoteMemory | RestoreMemory
"""What a session asks for of a memory that is there."""


def expected(change: PlainChange, known: PortableMemory | RecalledMemory | None) -> Answer:
    """The answer's fields. `known` is the memory before the change, None when nothing is known of it here.

    Versions are the store's to give and are left out, and so is what only it can tell.
    """
    memory_id = change.memory_id
    match change:
        case UpdateMemory():
            return {
                "memory_id": memory_id,
                "updated_fields": asked_fields(change),
                "re_embedded": change.content is not None and (known is None or known.content != change.content),
            }
        case TagMemory(add=add, remove=remove):
            return {"memory_id": memory_id, "tags": list(tags_after(known.tags if known else (), add, remove))}
        case ForgetMemory(reason=reason):
            return {"memory_id": memory_id, "status": "forgotten", "reason": reason}
        case PromoteMemory(target_scope=target, reason=reason):
            answer: dict[str, Any] = {"memory_id": memory_id}
            if known is not None:
                answer["previous_scope"] = known.scope
            return {**answer, "new_scope": target, "reason": reason}
        case RestoreMemory():
            return {"memory_id": memory_id, "status": "active"}


def asked_fields(change: UpdateMemory) -> list[str]:
    """The names of the fields that an update is about."""
    fields = {
        "content": change.content is not None,
        "importance": change.importance is not None,
        "tags": bool(change.add_tags or change.remove_tags),
        "metadata": bool(change.metadata),
        "related_entities": bool(change.add_entities or change.remove_entities),
        "kind": change.kind is not None,
        "summary": change.summary is not None,
        "structured": bool(change.structured),
        "confidence": change.confidence is not None,
        "domain": change.domain is not None,
        "valid_from": "valid_from" in change.ends_asked(),
        "valid_until": "valid_until" in change.ends_asked(),
        "links": bool(change.add_links or change.remove_links),
    }
    return [name for name, is_asked in fields.items() if is_asked]
