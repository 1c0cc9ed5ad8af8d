"""The three steps of a move from a project's file to the user's. Each runs inside the caller's transaction.

The project's file notes the move and keeps the memory; the user's file takes the memory in, and with it the operation;
the project's file lets the memory go, notes the operation too, and forgets the move. A process that dies between two
of them leaves a note from which the rest is done: every step can be repeated.
"""

from __future__ import annotations

import sqlite3
from typing import Final

import msgspec

from remembrancer.actors.store.records.history import note_version
from remembrancer.actors.store.records.memory_rows import Done, delete_memory, memory_to_change, register_session
from remembrancer.actors.store.records.portable import insert_portable, read_portable, snapshot_of_portable
from remembrancer.actors.store.records.promotion_rows import log_entry, log_promotion, note_pattern, step_of
from remembrancer.actors.store.records.run_undo import note_departure
from remembrancer.actors.store.records.snapshots import check_broader, check_remembered
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.runs import NotePattern
from remembrancer.protocol.writes import Operation, PortableMemory, PromotedResult, PromoteMemory

_encode_operation = msgspec.msgpack.Encoder().encode
_decode_operation: Final = msgspec.msgpack.Decoder(Operation).decode


def begin_move(
    connection: sqlite3.Connection, operation: Operation, change: PromoteMemory, now: float
) -> PortableMemory:
    """In the project's file: note that the memory is on its way, and give it as it is there.

    Raises:
        NotFound: the session sees no such memory.
        InvalidInput: it is forgotten, or its scope is not narrower than the target.
    """
    memory = memory_to_change(connection, operation, change.memory_id)
    check_remembered(memory.id, memory.now)
    check_broader(memory.now.scope, change.target_scope)
    connection.execute(
        "INSERT OR IGNORE INTO moves VALUES (?, ?, ?)", (operation.operation_id, _encode_operation(operation), now)
    )
    portable = read_portable(lambda query, values: connection.execute(query, values).fetchall(), memory.id, None)
    assert portable is not None
    return portable


def receive_move(
    connection: sqlite3.Connection, operation: Operation, change: PromoteMemory, memory: PortableMemory, now: float
) -> Done:
    """In the user's file: take the memory in, as a new version of it that was observed in its project.

    Raises:
        InvalidInput: there is a memory with its id already.
    """
    if connection.execute("SELECT 1 FROM memories WHERE id = ?", (memory.id,)).fetchone():
        raise InvalidInput(f"the user's memories have one with the id {memory.id} already", field="memory_id")
    before = snapshot_of_portable(memory)
    moved = msgspec.structs.replace(
        memory,
        scope=change.target_scope,
        version=memory.version + 1,
        updated_at=now,
        links=(),
        promotion_chain=(*memory.promotion_chain, step_of(memory.id, before, change, now, operation.project.id)),
        source_project=operation.project.id,
    )
    number = insert_portable(connection, moved, now)
    log_promotion(connection, log_entry(memory.id, before, change), None, now)
    note_pattern(connection, NotePattern(memory.id, operation.project.id), now)
    said: dict[str, object] = {"fields": ("scope",), "previous_scope": memory.scope}
    said |= {name: value for name in ("reason", "score") if (value := getattr(change, name)) is not None}
    note_version(connection, operation, moved.id, moved.version, "promoted", snapshot_of_portable(moved), now, said)
    register_session(connection, operation.session_id, now)
    result = PromotedResult(moved.id, memory.scope, change.target_scope, moved.version, change.reason)
    return Done(result, to_embed=number)


def end_move(connection: sqlite3.Connection, operation: Operation, result: PromotedResult) -> Done:
    """In the project's file: let the memory go, but for its history."""
    row = connection.execute("SELECT number FROM memories WHERE id = ?", (result.memory_id,)).fetchone()
    removed = () if row is None else delete_memory(connection, row[0])
    if isinstance(operation.change, PromoteMemory) and operation.change.run_id is not None:
        note_departure(connection, operation.change.run_id, result.memory_id, operation.requested_at)
    cancel_move(connection, operation)
    return Done(result, removed_passages=removed)


def cancel_move(connection: sqlite3.Connection, operation: Operation) -> None:
    """In the project's file: the move is over."""
    connection.execute("DELETE FROM moves WHERE operation_id = ?", (operation.operation_id,))


def read_moves(connection: sqlite3.Connection) -> list[Operation]:
    """The moves that were begun and not ended, oldest first."""
    rows = connection.execute("SELECT operation FROM moves ORDER BY begun_at").fetchall()
    return [_decode_operation(row[0]) for row in rows]
