"""How an operation changes a file of records. Each function runs inside a transaction that its caller owns."""

from __future__ import annotations

import hashlib
import sqlite3

import msgspec

from remembrancer.actors.store.records import Outcome
from remembrancer.protocol.writes import Applied, EntityRef, Operation, StoredResult, StoreMemory

_json = msgspec.json.Encoder()
_result_encoder = msgspec.msgpack.Encoder()
_result_decoder = msgspec.msgpack.Decoder(StoredResult)


def apply_operation(connection: sqlite3.Connection, operation: Operation, now: float) -> Outcome:
    """Apply once: a second call with the same operation id changes nothing and answers as the first did."""
    earlier = replay_operation(connection, operation)
    if earlier is not None:
        return earlier
    match operation.change:
        case StoreMemory() as change:
            number, result = _store_memory(connection, operation, change, now)
    connection.execute(
        "INSERT INTO applied_operations VALUES (?, ?, ?)",
        (operation.operation_id, _result_encoder.encode(result), now),
    )
    return Outcome(Applied(operation.operation_id, result), to_embed=number)


def replay_operation(connection: sqlite3.Connection, operation: Operation) -> Outcome | None:
    """What came of the operation when it was applied; None when it has not been."""
    earlier = connection.execute(
        "SELECT result FROM applied_operations WHERE operation_id = ?", (operation.operation_id,)
    ).fetchone()
    if earlier is None:
        return None
    return Outcome(Applied(operation.operation_id, _result_decoder.decode(earlier[0]), replayed=True))


def _store_memory(
    connection: sqlite3.Connection, operation: Operation, change: StoreMemory, now: float
) -> tuple[int, StoredResult]:
    digest = hashlib.sha256(change.content.encode()).digest()
    duplicates = _same_content(connection, change, digest)
    tags = _json.encode(change.tags).decode()
    number = connection.execute(
        """INSERT INTO memories (id, content, content_digest, type, scope, session_id, importance, tags, source,
                                 created_at, updated_at, occurred_at)
           VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
        (
            change.memory_id,
            change.content,
            digest,
            change.type,
            change.scope,
            change.session_id,
            change.importance,
            tags,
            _json.encode(change.source).decode(),
            operation.requested_at,
            now,
            change.occurred_at,
        ),
    ).lastrowid
    assert number is not None
    if change.tags:
        connection.executemany(
            "INSERT OR IGNORE INTO memory_tags VALUES (?, ?)", [(number, tag) for tag in change.tags]
        )
    edges = _link_entities(connection, number, change.related_entities, now)
    connection.execute("INSERT INTO pending_embeddings (memory) VALUES (?)", (number,))
    _write_history(connection, operation, change, now)
    register_session(connection, change.session_id, now)
    result = StoredResult(change.memory_id, change.type, change.scope, edges, duplicates)
    return number, result


def _same_content(connection: sqlite3.Connection, change: StoreMemory, digest: bytes) -> tuple[str, ...]:
    """Memories with this very content that the storing session may see, oldest first, five at the most."""
    rows = connection.execute(
        """SELECT id FROM memories WHERE content_digest = ? AND forgotten_at IS NULL
           AND (scope != 'session' OR session_id = ?) ORDER BY number LIMIT 5""",
        (digest, change.session_id),
    )
    return tuple(row[0] for row in rows)


def _link_entities(connection: sqlite3.Connection, memory: int, entities: tuple[EntityRef, ...], now: float) -> int:
    """Upsert the entities and link them to the memory. Returns how many edges are new."""
    edges = 0
    for entity in entities:
        connection.execute(
            "INSERT INTO entities (name, type, created_at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
            (entity.name, entity.type, now),
        )
        (number,) = connection.execute(
            "SELECT number FROM entities WHERE name = ? AND type = ?", (entity.name, entity.type)
        ).fetchone()
        edges += connection.execute(
            "INSERT OR IGNORE INTO memory_entities VALUES (?, ?, ?, ?)", (memory, number, entity.relationship, now)
        ).rowcount
    return edges


def _write_history(connection: sqlite3.Connection, operation: Operation, change: StoreMemory, now: float) -> None:
    connection.execute(
        """INSERT INTO history (memory_id, version, change, operation_id, session_id, record, changed_at)
           VALUES (?, 1, 'stored', ?, ?, ?, ?)""",
        (change.memory_id, operation.operation_id, operation.session_id, _json.encode(change).decode(), now),
    )


def register_session(connection: sqlite3.Connection, session_id: str, now: float) -> None:
    """Note that a session is active at `now`, and register it when it is new."""
    connection.execute(
        """INSERT INTO sessions VALUES (?, ?, ?)
           ON CONFLICT DO UPDATE SET last_active_at = max(last_active_at, excluded.last_active_at)""",
        (session_id, now, now),
    )
