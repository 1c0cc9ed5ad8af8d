"""The memories of a store that a test plays: enough of the real one's behaviour for the gateway to be driven by."""

from __future__ import annotations

from typing import Any

import msgspec

from remembrancer.actors.gateway.overlay import after, as_portable
from remembrancer.protocol.reads import Refused
from remembrancer.protocol.runs import ApplyRun, RunResult, UndoneResult, UndoRun
from remembrancer.protocol.session_life import EndSession, RecordEvents, SessionResult, StartSession
from remembrancer.protocol.writes import (
    ErasedResult,
    EraseMemory,
    ForgetMemory,
    ForgottenResult,
    HistoryEntry,
    ImportedResult,
    ImportMemory,
    Operation,
    PortableMemory,
    PromotedResult,
    PromoteMemory,
    RestoredResult,
    RestoreMemory,
    Result,
    Snapshot,
    StoredResult,
    StoreMemory,
    TaggedResult,
    TagMemory,
    UpdatedResult,
    UpdateMemory,
)

CHANGES = {
    StoreMemory: "stored",
    UpdateMemory: "updated",
    TagMemory: "tagged",
    ForgetMemory: "forgotten",
    PromoteMemory: "promoted",
    RestoreMemory: "restored",
    ImportMemory: "imported",
}


class PlayedRecords:
    """Memories by id, each with its history."""

    def __init__(self) -> None:
        self.memories: dict[str, PortableMemory] = {}

    def apply(self, operation: Operation) -> Result | Refused:
        """Carry out a change."""
        change = operation.change
        if isinstance(change, StoreMemory | ImportMemory):
            made = as_portable(operation)
            self.memories[made.id] = _with_history(made, operation)
            if isinstance(change, ImportMemory):
                return ImportedResult(made.id, "imported")
            return StoredResult(made.id, made.type, made.scope, len(made.related_entities))
        if isinstance(change, StartSession | EndSession | RecordEvents):
            return SessionResult(change.session_id, "active")
        if isinstance(change, ApplyRun):
            return RunResult(change.run_id, len(change.edits))
        if isinstance(change, UndoRun):
            return UndoneResult(change.run_id)
        old = self.memories.get(change.memory_id)
        if old is None:
            return Refused("not_found", f"there is no memory {change.memory_id}", field="memory_id")
        if isinstance(change, EraseMemory):
            del self.memories[old.id]
            return ErasedResult(old.id)
        if old.forgotten_at is not None and isinstance(change, UpdateMemory | TagMemory | PromoteMemory):
            return Refused("invalid_input", "it is forgotten: restore it first", field="memory_id")
        new = self._restored(old, change) if isinstance(change, RestoreMemory) else after(old, operation)
        assert new is not None
        if new is not old:
            new = _with_history(new, operation)
        self.memories[old.id] = new
        return _result(old, new, change)

    def _restored(self, old: PortableMemory, change: RestoreMemory) -> PortableMemory:
        fields: dict[str, Any] = {"forgotten_at": None, "forgotten_reason": None, "version": old.version + 1}
        for entry in old.history:
            if entry.version == change.version:
                fields.update(content=entry.record.content, tags=entry.record.tags, importance=entry.record.importance)
        return msgspec.structs.replace(old, **fields)


def _result(
    old: PortableMemory,
    new: PortableMemory,
    change: UpdateMemory | TagMemory | ForgetMemory | PromoteMemory | RestoreMemory,
) -> Result:
    differing = tuple(
        name
        for name in ("content", "importance", "tags", "metadata", "related_entities")
        if getattr(old, name) != getattr(new, name)
    )
    match change:
        case UpdateMemory():
            return UpdatedResult(new.id, differing, "content" in differing, new.version)
        case TagMemory():
            return TaggedResult(new.id, new.tags, new.version)
        case ForgetMemory():
            return ForgottenResult(new.id, new.forgotten_reason, already=new is old)
        case PromoteMemory(reason=reason):
            return PromotedResult(new.id, old.scope, new.scope, new.version, reason)
        case RestoreMemory():
            return RestoredResult(new.id, new.version, differing, "content" in differing)


def _with_history(memory: PortableMemory, operation: Operation) -> PortableMemory:
    reason = getattr(operation.change, "reason", None)
    record = Snapshot(
        content=memory.content,
        type=memory.type,
        scope=memory.scope,
        session_id=memory.session_id,
        importance=memory.importance,
        tags=memory.tags,
        source=memory.source,
        related_entities=memory.related_entities,
        metadata=memory.metadata,
        occurred_at=memory.occurred_at,
        forgotten=memory.forgotten_at is not None,
        forgotten_reason=memory.forgotten_reason,
    )
    entry = HistoryEntry(
        version=memory.version,
        change=CHANGES[type(operation.change)],
        changed_at=memory.updated_at,
        session_id=operation.session_id,
        operation_id=operation.operation_id,
        record=record,
        details={} if reason is None else {"reason": reason},
    )
    return msgspec.structs.replace(memory, history=(*memory.history, entry))
