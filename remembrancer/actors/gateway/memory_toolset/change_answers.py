"""What the tools answer that change a memory or show one. Pure."""

from __future__ import annotations

from typing import Any, Final

from remembrancer.actors.gateway.memory_toolset.memory_answers import iso, source_of
from remembrancer.actors.gateway.toolkit.tools import Answer
from remembrancer.memory.changes import spans_of
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.reads import MemoryShown, Promotion, RecalledMemory
from remembrancer.protocol.runs import ChainLink
from remembrancer.protocol.writes import (
    EntityRef,
    ForgottenResult,
    HistoryEntry,
    MemoryLink,
    PortableMemory,
    PromotedResult,
    RestoredResult,
    Result,
    Snapshot,
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
        if found.strength is not None:
            answer["strength"] = round(found.strength, 3)
            answer["is_stale"] = found.is_stale
    if memory.links:
        answer["links"] = [_link(link, "target") for link in memory.links]
    if found.incoming:
        answer["incoming_links"] = [_link(link, "source") for link in found.incoming]
    if found.near_duplicates:
        answer["near_duplicates"] = list(found.near_duplicates)
    answer["access_count"] = memory.access_count
    if memory.last_accessed_at is not None:
        answer["last_accessed"] = iso(memory.last_accessed_at)
    answer |= _provenance(found)
    if found.reasons and entry is None:
        answer["why"] = list(found.reasons)
    listed = memory.history[-MAX_HISTORY:]
    if len(listed) < len(memory.history):
        answer["history_omitted"] = len(memory.history) - len(listed)
    answer["history"] = [_history(each) for each in listed]
    return answer


def _link(link: MemoryLink, end: str) -> dict[str, Any]:
    """A link; `end` says which of its ends the other memory is."""
    return {end: link.target, "relation": link.relation, "strength": round(link.strength, 4)}


def _provenance(found: MemoryShown) -> Answer:
    """How the memory came to its scope, and where else it has been of use."""
    memory = found.memory
    said: Answer = {}
    if memory.promotion_chain:
        said["promotion_chain"] = [_step(each) for each in memory.promotion_chain]
    if found.promotions:
        said["promotions"] = [_promotion(each) for each in found.promotions]
    if memory.source_project is not None:
        said["source_project"] = memory.source_project
    if memory.accessed_in:
        said["sessions_accessed"] = len(memory.accessed_in)
    if found.observed_in:
        said["observed_in_projects"] = list(found.observed_in)
    return said


def _step(step: ChainLink) -> dict[str, Any]:
    line = {
        "action": step.action,
        "from_scope": step.scope,
        "memory_id": step.memory_id,
        "at": iso(step.promoted_at),
        "session_id": step.session_id,
        "source_project": step.source_project,
        "score": None if step.score is None else round(step.score, 3),
        "reason": step.reason,
        "content": step.content,
    }
    return {name: value for name, value in line.items() if value is not None}


def _promotion(entry: Promotion) -> dict[str, Any]:
    line = {
        "memory_id": entry.memory_id,
        "from_scope": entry.from_scope,
        "to_scope": entry.to_scope,
        "at": iso(entry.promoted_at),
        "reason": entry.reason,
        "score": None if entry.score is None else round(entry.score, 3),
        "source_session": entry.source_session or None,
        "merged_into": entry.merged_into,
    }
    return {name: value for name, value in line.items() if value is not None}


def _of_the_model(memory: PortableMemory | Snapshot) -> Answer:
    """The fields of the model of three scopes, so far as they say something."""
    said: Answer = {}
    if memory.kind is not None:
        said["kind"] = memory.kind
    said["confidence"] = memory.confidence
    for name, value in (("summary", memory.summary), ("domain", memory.domain), ("structured", memory.structured)):
        if value:
            said[name] = value
    for name, at in (("valid_from", memory.valid_from), ("valid_until", memory.valid_until)):
        if at is not None:
            said[name] = iso(at)
    return said


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
    if memory.kind is not None:
        answer["kind"] = memory.kind
    if memory.summary is not None:
        answer["summary"] = memory.summary
    return {**answer, "status": "forgotten" if memory.forgotten else memory.status}


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
        **_of_the_model(memory),
    }
    if memory.occurred_at is not None:
        answer["occurred_at"] = iso(memory.occurred_at)
    if memory.forgotten_at is None:
        return {**answer, "status": memory.status}
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
        **_of_the_model(record),
    }
    if record.occurred_at is not None:
        answer["occurred_at"] = iso(record.occurred_at)
    if not record.forgotten:
        return {**answer, "status": record.status}
    return {**answer, "status": "forgotten", "forgotten_reason": record.forgotten_reason}


def _entry_of(memory: PortableMemory, version: int) -> HistoryEntry:
    for entry in memory.history:
        if entry.version == version:
            return entry
    known = spans_of(entry.version for entry in memory.history)
    raise InvalidInput(f"{memory.id} has no version {version}: known are {known}", field="version")


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
