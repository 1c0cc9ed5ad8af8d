"""How an operation changes a file of records: once. Each function runs inside a transaction that its caller owns."""

from __future__ import annotations

import sqlite3
from typing import Final

import msgspec

from remembrancer.actors.store.records.contract import Outcome
from remembrancer.actors.store.records.editing import (
    forget_memory,
    promote_memory,
    restore_memory,
    tag_memory,
    update_memory,
)
from remembrancer.actors.store.records.memory_rows import Done, register_session
from remembrancer.actors.store.records.portable import import_memory
from remembrancer.actors.store.records.run_rows import apply_run
from remembrancer.actors.store.records.run_undo import undo_run
from remembrancer.actors.store.records.session_events import record_events
from remembrancer.actors.store.records.session_registry import end_session, start_session
from remembrancer.actors.store.records.storing import store_memory
from remembrancer.protocol.errors import InvalidInput, NotFound
from remembrancer.protocol.runs import ApplyRun, UndoRun
from remembrancer.protocol.session_life import EndSession, RecordEvents, StartSession
from remembrancer.protocol.writes import (
    Applied,
    ForgetMemory,
    ImportMemory,
    Operation,
    PromoteMemory,
    RestoreMemory,
    Result,
    StoreMemory,
    TagMemory,
    UpdateMemory,
)

_encode_result: Final = msgspec.msgpack.Encoder().encode
_result_decoder: Final = msgspec.msgpack.Decoder(Result)


def apply_operation(connection: sqlite3.Connection, operation: Operation, now: float) -> Outcome:
    """Apply once: a second call with the same operation id changes nothing and answers as the first did.

    A refusal is an outcome, and has written nothing. What SQLite raises leaves the transaction to be rolled back.
    """
    earlier = replay_operation(connection, operation)
    if earlier is not None:
        return earlier
    try:
        done = _carry_out(connection, operation, now)
    except (InvalidInput, NotFound) as refusal:
        return Outcome(refusal)
    return record_done(connection, operation, done, now)


def replay_operation(connection: sqlite3.Connection, operation: Operation) -> Outcome | None:
    """What came of the operation when it was applied; None when it has not been."""
    earlier = connection.execute(
        "SELECT result FROM applied_operations WHERE operation_id = ?", (operation.operation_id,)
    ).fetchone()
    if earlier is None:
        return None
    return Outcome(Applied(operation.operation_id, decode_result(earlier[0]), replayed=True))


def record_done(connection: sqlite3.Connection, operation: Operation, done: Done, now: float) -> Outcome:
    """Note what came of an operation, from which its repetition will be answered."""
    connection.execute(
        "INSERT INTO applied_operations VALUES (?, ?, ?)", (operation.operation_id, _encode_result(done.result), now)
    )
    reply = Applied(operation.operation_id, done.result)
    return Outcome(reply, done.to_embed, done.removed_passages, done.also_to_embed)


def decode_result(encoded: bytes) -> Result:
    """A result as it was recorded."""
    result: Result = _result_decoder.decode(encoded)
    return result


def _carry_out(connection: sqlite3.Connection, operation: Operation, now: float) -> Done:
    match operation.change:
        case StoreMemory() as change:
            return store_memory(connection, operation, change, now)
        case ImportMemory() as change:
            return import_memory(connection, operation, change, now)
        case UpdateMemory() as change:
            done = update_memory(connection, operation, change, now)
        case TagMemory() as change:
            done = tag_memory(connection, operation, change, now)
        case ForgetMemory() as change:
            done = forget_memory(connection, operation, change, now)
        case RestoreMemory() as change:
            done = restore_memory(connection, operation, change, now)
        case PromoteMemory() as change:
            done = promote_memory(connection, operation, change, now)
        case StartSession() as change:
            return start_session(connection, change, now)
        case EndSession() as change:
            return end_session(connection, change, now)
        case RecordEvents() as change:
            return record_events(connection, change, now)
        case ApplyRun() as change:
            return apply_run(connection, operation, change, now)
        case UndoRun() as change:
            return undo_run(connection, operation, change, now)
    register_session(connection, operation.session_id, now)
    return done
