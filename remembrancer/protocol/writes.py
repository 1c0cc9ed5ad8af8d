"""Operations: every change of the records, as it is sent, queued and applied. An operation is applied exactly once."""

from __future__ import annotations

from typing import Literal

import msgspec

MemoryType = Literal["episodic", "semantic", "procedural"]
Scope = Literal["session", "project", "user"]


class ProjectRef(msgspec.Struct, frozen=True):
    """A project: its id (`p_` and 12 hexadecimal digits) and the path that the id was made from."""

    id: str
    path: str


class SourceRef(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a memory came from."""

    tool: str | None = None
    file: str | None = None
    conversation_turn: int | None = None


class EntityRef(msgspec.Struct, frozen=True):
    """An entity that a memory is about, and how."""

    name: str
    type: str
    relationship: str


class StoreMemory(msgspec.Struct, frozen=True, tag=True, tag_field="change"):
    """Create a memory. `session_id` is the session it belongs to; `occurred_at` is seconds since the epoch."""

    memory_id: str
    content: str
    type: MemoryType
    scope: Scope
    session_id: str
    importance: float = 0.5
    tags: tuple[str, ...] = ()
    source: SourceRef = SourceRef()
    related_entities: tuple[EntityRef, ...] = ()
    occurred_at: float | None = None


Change = StoreMemory
"""The union of all changes; it grows with the tools that write."""


class Operation(msgspec.Struct, frozen=True):
    """One change with its identity. `requested_at` is when the client asked (seconds since the epoch)."""

    operation_id: str
    project: ProjectRef
    session_id: str
    requested_at: float
    change: Change


class Submit(msgspec.Struct, frozen=True, tag=True):
    """Gateway to store: apply this operation. Answered by `Applied` or `Refused`."""

    operation: Operation


class SubmitBatch(msgspec.Struct, frozen=True, tag=True):
    """Gateway to store, from the write queue: apply these in order. Answered by `BatchApplied`."""

    operations: tuple[Operation, ...]


class StoredResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """What came of a `StoreMemory`. `duplicates` are ids of memories with the very same content, oldest first."""

    memory_id: str
    type: MemoryType
    scope: Scope
    graph_edges_created: int = 0
    duplicates: tuple[str, ...] = ()


class Applied(msgspec.Struct, frozen=True, tag=True):
    """Store to gateway: committed, durably. `replayed` says that an earlier request had done it."""

    operation_id: str
    result: StoredResult
    replayed: bool = False


class Rejected(msgspec.Struct, frozen=True):
    """An operation of a batch that can never be applied, and why."""

    operation_id: str
    code: str
    message: str


class BatchApplied(msgspec.Struct, frozen=True, tag=True):
    """Store to gateway: these were committed (now or before); the rejected ones never will be.

    Operations of the batch that are named in neither list were not attempted: send them again.
    """

    applied: tuple[str, ...]
    rejected: tuple[Rejected, ...] = ()
