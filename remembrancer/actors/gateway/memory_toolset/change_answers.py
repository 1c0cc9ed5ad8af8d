"""What the tools answer that change a memory or show one: the first seed's fields where it has the tool. Pure."""

from __future__ import annotations

from typing import Any, Final

from remembrancer.actors.gateway.memory_toolset.memory_answers import iso, source_of
from remembrancer.actors.gateway.toolkit.tools import Answer
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.reads import MemoryShown, RecalledMemory
from remembrancer.protocol.writes import (
    EntityRef,
    ForgottenResult,
    HistoryEntry,
    PortableMemory,
    PromotedResult,
    RestoredResult,
    Result,
    TaggedResult,
    UpdatedResult,
)

MAX_HISTORY: Final = 50
"""Versions that are listed, the last ones; all can be asked for by number."""


def changed(result: Result) -> Answer:
    """The answer to a change that the store has applied."""
    match result:
        case UpdatedResult():
            answer: Answer = {
                "memory_id": result.memory_id,
                "updated_fields": list(result.updated_fields),
                "re_embedded": result.re_embedded,
                "version": result.version,
            }
        case TaggedResult():
            answer = {"memory_id": result.memory_id, "tags": list(result.tags)}
        case ForgottenResult():
            answer = {"memory_id": result.memory_id, "status": "forgotten", "reason": result.reason}
            if result.already:
                answer["already_forgotten"] = True
        case PromotedResult():
            answer = {
                "memory_id": result.memory_id,
                "previous_scope": result.previous_scope,
                "new_scope": result.new_scope,
                "reason": result.reason,
            }
        case RestoredResult():
            answer = {
                "memory_id": result.memory_id,
                "status": "active",
                "restored_fields": list(result.restored_fields),
                "re_embedded": result.re_embedded,
                "version": result.version,
            }
        case _:
            raise AssertionError(result)
    return answer


def shown(found: MemoryShown, version: int | None = None) -> Answer:
    """One memory whole; with `version`, the content and fields that it had then.

    Raises:
        InvalidInput: it has no such version; the message names those that there are.
    """
    memory = found.memory
    entry = None if version is None else _entry_of(memory, version)
    answer = _whole(memory) if entry is None else _as_of(memory, entry)
    if entry is None:
        answer["embedded"] = found.embedded
    if memory.links:
        answer["links"] = [
            {"target": link.target, "relation": link.relation, "strength": round(link.strength, 4)}
            for link in memory.links
        ]
    if found.near_duplicates:
        answer["near_duplicates"] = list(found.near_duplicates)
    answer["access_count"] = memory.access_count
    if memory.last_accessed_at is not None:
        answer["last_accessed"] = iso(memory.last_accessed_at)
    listed = memory.history[-MAX_HISTORY:]
    if len(listed) < len(memory.history):
        answer["history_omitted"] = len(memory.history) - len(listed)
    answer["history"] = [_history(each) for each in listed]
    return answer


def known(memory: PortableMemory | RecalledMemory) -> Answer:
    """One memory as far as it is known without the store."""
    if isinstance(memory, PortableMemory):
        return _whole(memory)
    answer: Answer = {
        "id": memory.id,
        "content": memory.content,
        "type": memory.type,
        "scope": memory.scope,
        "importance": memory.importance,
        "tags": list(memory.tags),
        "source": source_of(memory.source),
        "created_at": iso(memory.created_at),
    }
    if memory.occurred_at is not None:
        answer["occurred_at"] = iso(memory.occurred_at)
    return {**answer, "status": "forgotten" if memory.forgotten else "active"}


def _whole(memory: PortableMemory) -> Answer:
    answer: Answer = {
        "id": memory.id,
        "content": memory.content,
        "type": memory.type,
        "scope": memory.scope,
        "importance": memory.importance,
        "tags": list(memory.tags),
        "metadata": memory.metadata,
        "source": source_of(memory.source),
        "related_entities": _entities(memory.related_entities, stale=memory.forgotten_at is not None),
        "session_id": memory.session_id,
        "created_at": iso(memory.created_at),
        "updated_at": iso(memory.updated_at),
        "version": memory.version,
    }
    if memory.occurred_at is not None:
        answer["occurred_at"] = iso(memory.occurred_at)
    if memory.forgotten_at is None:
        return {**answer, "status": "active"}
    forgotten = {"forgotten_at": iso(memory.forgotten_at), "forgotten_reason": memory.forgotten_reason}
    return {**answer, "status": "forgotten", **forgotten}


def _as_of(memory: PortableMemory, entry: HistoryEntry) -> Answer:
    """What the memory was then; `current_version` says that it may be something else now."""
    record = entry.record
    answer: Answer = {
        "id": memory.id,
        "content": record.content,
        "type": record.type,
        "scope": record.scope,
        "importance": record.importance,
        "tags": list(record.tags),
        "metadata": record.metadata,
        "source": source_of(record.source),
        "related_entities": _entities(record.related_entities, stale=record.forgotten),
        "session_id": record.session_id,
        "created_at": iso(memory.created_at),
        "updated_at": iso(entry.changed_at),
        "version": entry.version,
        "current_version": memory.version,
    }
    if record.occurred_at is not None:
        answer["occurred_at"] = iso(record.occurred_at)
    if not record.forgotten:
        return {**answer, "status": "active"}
    return {**answer, "status": "forgotten", "forgotten_reason": record.forgotten_reason}


def _entry_of(memory: PortableMemory, version: int) -> HistoryEntry:
    for entry in memory.history:
        if entry.version == version:
            return entry
    there_are = ", ".join(str(entry.version) for entry in memory.history[-MAX_HISTORY:])
    raise InvalidInput(f"version must be one that the memory has had ({there_are}), not {version}", field="version")


def _entities(entities: tuple[EntityRef, ...], *, stale: bool) -> list[dict[str, Any]]:
    return [
        {"name": entity.name, "type": entity.type, "relationship": entity.relationship, "stale": stale}
        for entity in entities
    ]


def _history(entry: HistoryEntry) -> dict[str, Any]:
    """One line of the history. Contents are left out: an old one is asked for by its version."""
    line: dict[str, Any] = {
        "version": entry.version,
        "change": entry.change,
        "at": iso(entry.changed_at),
        "session_id": entry.session_id,
    }
    return {**line, **{name: value for name, value in entry.details.items() if value not in (None, [], ())}}
