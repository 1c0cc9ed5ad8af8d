"""How a memory that is there changes inside its file. Each function runs inside the caller's transaction.

What is refused (`InvalidInput`, `NotFound`) is refused before anything is written.
"""

from __future__ import annotations

import sqlite3

import msgspec

from remembrancer.actors.store.records.history import read_history
from remembrancer.actors.store.records.link_rows import add_links, check_may_supersede, find_targets, remove_links
from remembrancer.actors.store.records.memory_rows import Done, MemoryRow, memory_to_change, revise
from remembrancer.actors.store.records.promotion_rows import log_entry, log_promotion, step_of
from remembrancer.actors.store.records.snapshots import (
    check_broader,
    check_remembered,
    is_version_visible,
    reverted,
    tagged,
    updated,
)
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.wording.spans import spans_of
from remembrancer.protocol.writes import (
    ForgetMemory,
    ForgottenResult,
    Operation,
    PromotedResult,
    PromoteMemory,
    RestoredResult,
    RestoreMemory,
    Snapshot,
    TaggedResult,
    TagMemory,
    UpdatedResult,
    UpdateMemory,
)


def update_memory(connection: sqlite3.Connection, operation: Operation, change: UpdateMemory, now: float) -> Done:
    """Change what the change names. Links alone make no new version."""
    memory = memory_to_change(connection, operation, change.memory_id)
    check_remembered(memory.id, memory.now)
    after = updated(memory.now, change)
    to_add = find_targets(connection, operation, memory, change.add_links, "add_links")
    check_may_supersede(memory, to_add, "add_links")
    to_remove = find_targets(connection, operation, memory, change.remove_links, "remove_links")
    made = revise(connection, operation, memory, after, "updated", now)
    removed = remove_links(connection, operation, memory, to_remove, now)
    added = add_links(connection, operation, memory, to_add, now)
    fields = (*made.fields, "links") if added or removed else made.fields
    result = UpdatedResult(memory.id, fields, "content" in fields, made.version)
    return Done(result, made.to_embed, made.removed_passages)


def tag_memory(connection: sqlite3.Connection, operation: Operation, change: TagMemory, now: float) -> Done:
    """Add tags and take tags away."""
    memory = memory_to_change(connection, operation, change.memory_id)
    check_remembered(memory.id, memory.now)
    after = tagged(memory.now, change)
    made = revise(connection, operation, memory, after, "tagged", now)
    return Done(TaggedResult(memory.id, after.tags, made.version))


def forget_memory(connection: sqlite3.Connection, operation: Operation, change: ForgetMemory, now: float) -> Done:
    """Hide a memory. For one that is forgotten already, the first reason stands."""
    memory = memory_to_change(connection, operation, change.memory_id)
    if memory.now.forgotten:
        return Done(ForgottenResult(memory.id, memory.now.forgotten_reason, already=True))
    after = msgspec.structs.replace(memory.now, forgotten=True, forgotten_reason=change.reason)
    revise(connection, operation, memory, after, "forgotten", now, reason=change.reason)
    return Done(ForgottenResult(memory.id, change.reason))


def restore_memory(connection: sqlite3.Connection, operation: Operation, change: RestoreMemory, now: float) -> Done:
    """Show a forgotten memory again, or make it what it was in an earlier version."""
    memory = memory_to_change(connection, operation, change.memory_id)
    if change.version is None and memory.now.forgotten:
        after = msgspec.structs.replace(memory.now, forgotten=False, forgotten_reason=None)
    else:
        after = reverted(memory.now, _earlier(connection, operation, memory, change.version))
    made = revise(
        connection, operation, memory, after, "restored", now, reason=change.reason, restored_version=change.version
    )
    result = RestoredResult(memory.id, made.version, made.fields, "content" in made.fields)
    return Done(result, made.to_embed, made.removed_passages)


def _earlier(connection: sqlite3.Connection, operation: Operation, memory: MemoryRow, version: int | None) -> Snapshot:
    """What a memory was in a version. One that the session may not see is as unknown to it as one that never was.

    Raises:
        InvalidInput: there is no such version, or none is named.
    """
    known = {
        entry.version: entry.record
        for entry in read_history(lambda query, values: connection.execute(query, values).fetchall(), memory.id)
        if is_version_visible(
            entry.record, memory.now.scope, memory.source_project, operation.session_id, operation.project.id
        )
    }
    if version is not None and version in known:
        return known[version]
    if version is None:
        message = f"{memory.id} is not forgotten: name the version to return to, one of {spans_of(known)}"
    else:
        message = f"{memory.id} has no version {version}: known are {spans_of(known)}"
    raise InvalidInput(message, field="version")


def promote_memory(connection: sqlite3.Connection, operation: Operation, change: PromoteMemory, now: float) -> Done:
    """Give a session's memory to its project, in the same file. The session stays known as where it came from."""
    memory = memory_to_change(connection, operation, change.memory_id)
    check_remembered(memory.id, memory.now)
    check_broader(memory.now.scope, change.target_scope)
    before = memory.now.scope
    made = revise(
        connection,
        operation,
        memory,
        msgspec.structs.replace(memory.now, scope=change.target_scope),
        "promoted",
        now,
        chain=(*memory.promotion_chain, step_of(memory.id, memory.now, change, now, None)),
        reason=change.reason,
        previous_scope=before,
        score=change.score,
    )
    log_promotion(connection, log_entry(memory.id, memory.now, change), None, now)
    return Done(PromotedResult(memory.id, before, change.target_scope, made.version, change.reason))
