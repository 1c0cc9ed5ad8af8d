"""A memory as rows: how it is found, made and changed. Each function runs inside the caller's transaction."""

from __future__ import annotations

import hashlib
import sqlite3
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from remembrancer.actors.store.records.entity_rows import entities_of, relink_entities, remove_unlinked
from remembrancer.actors.store.records.history import Query, encode_json, note_version
from remembrancer.actors.store.records.snapshots import differences, is_visible, unknown_memory
from remembrancer.protocol.writes import EntityRef, Operation, Result, Snapshot, SourceRef

SIMILAR: Final = "similar_to"

_decode_tags = msgspec.json.Decoder(tuple[str, ...]).decode
_decode_source = msgspec.json.Decoder(SourceRef).decode
_decode_metadata = msgspec.json.Decoder(dict[str, Any]).decode


@dataclass(frozen=True, slots=True)
class Done:
    """What came of a change: its result, the memory that needs vectors, and the passages that are gone."""

    result: Result
    to_embed: int | None = None
    removed_passages: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """A memory that is there: its number, what it is now, and when it was forgotten."""

    number: int
    id: str
    version: int
    now: Snapshot
    created_at: float
    updated_at: float
    access_count: int
    last_accessed_at: float | None
    forgotten_at: float | None


def digest_of(content: str) -> bytes:
    """What tells two contents apart: the SHA-256 of the UTF-8."""
    return hashlib.sha256(content.encode()).digest()


def read_memory(query: Query, memory_id: str) -> MemoryRow | None:
    """A memory by its id. Raises `ValueError` for what cannot be decoded."""
    rows = query(
        """SELECT number, id, version, content, type, scope, session_id, importance, tags, source, metadata,
                  occurred_at, forgotten_at, forgotten_reason, created_at, updated_at, access_count, last_accessed_at
           FROM memories WHERE id = ?""",
        (memory_id,),
    )
    if not rows:
        return None
    row = rows[0]
    now = Snapshot(
        content=row[3],
        type=row[4],
        scope=row[5],
        session_id=row[6],
        importance=row[7],
        tags=_decode_tags(row[8]),
        source=_decode_source(row[9]),
        related_entities=_read_entities(query, row[0]),
        metadata=_decode_metadata(row[10]),
        occurred_at=row[11],
        forgotten=row[12] is not None,
        forgotten_reason=row[13],
    )
    return MemoryRow(row[0], row[1], row[2], now, row[14], row[15], row[16], row[17], row[12])


def memory_to_change(connection: sqlite3.Connection, operation: Operation, memory_id: str) -> MemoryRow:
    """The memory that an operation changes. Raises `NotFound` when its session sees no such memory."""
    found = read_memory(lambda query, values: connection.execute(query, values).fetchall(), memory_id)
    if found is None or not is_visible(found.now.scope, found.now.session_id, operation.session_id):
        raise unknown_memory(memory_id)
    return found


def insert_row(connection: sqlite3.Connection, values: dict[str, object]) -> int:
    """Insert a row of `memories` by column; its number."""
    number = connection.execute(
        f"INSERT INTO memories ({', '.join(values)}) VALUES ({', '.join('?' * len(values))})",  # noqa: S608 - our names
        tuple(values.values()),
    ).lastrowid
    assert number is not None
    return number


def columns_of(snapshot: Snapshot, fields: tuple[str, ...]) -> dict[str, object]:
    """The columns that hold some fields of a memory; `related_entities` and `status` have none here."""
    columns: dict[str, object] = {}
    for field in fields:
        match field:
            case "content":
                columns |= {"content": snapshot.content, "content_digest": digest_of(snapshot.content)}
            case "tags":
                columns["tags"] = encode_json(snapshot.tags).decode()
            case "source":
                columns["source"] = encode_json(snapshot.source).decode()
            case "metadata":
                columns["metadata"] = encode_json(snapshot.metadata).decode()
            case "importance":
                columns["importance"] = snapshot.importance
            case "scope":
                columns["scope"] = snapshot.scope
    return columns


def add_tags(connection: sqlite3.Connection, number: int, tags: tuple[str, ...]) -> None:
    """Note tags where they are searched."""
    connection.executemany("INSERT OR IGNORE INTO memory_tags VALUES (?, ?)", [(number, tag) for tag in tags])


def want_embedding(connection: sqlite3.Connection, number: int) -> None:
    """Put a memory on the list of those that wait for vectors."""
    connection.execute("INSERT OR REPLACE INTO pending_embeddings (memory) VALUES (?)", (number,))


@dataclass(frozen=True, slots=True)
class Revision:
    """A new version, the fields in which it differs (none: it was not made), and the passages that are gone."""

    version: int
    fields: tuple[str, ...]
    to_embed: int | None = None
    removed_passages: tuple[int, ...] = ()


def revise(
    connection: sqlite3.Connection,
    operation: Operation,
    memory: MemoryRow,
    after: Snapshot,
    change: str,
    now: float,
    **details: object,
) -> Revision:
    """Make `after` the next version of a memory, with its row of history. Where nothing differs, nothing is done."""
    fields = differences(memory.now, after)
    if not fields:
        return Revision(memory.version, ())
    version = memory.version + 1
    columns = columns_of(after, fields) | {"version": version, "updated_at": now}
    if "status" in fields:
        columns |= {
            "forgotten_at": now if after.forgotten else None,
            "forgotten_reason": after.forgotten_reason,
        }
    connection.execute(
        f"UPDATE memories SET {', '.join(f'{name} = ?' for name in columns)} WHERE number = ?",  # noqa: S608 - our names
        (*columns.values(), memory.number),
    )
    if "tags" in fields:
        connection.execute("DELETE FROM memory_tags WHERE memory = ?", (memory.number,))
        add_tags(connection, memory.number, after.tags)
    if "related_entities" in fields:
        relink_entities(connection, memory.number, after.related_entities, now)
    said = {name: value for name, value in details.items() if value is not None} | {"fields": fields}
    note_version(connection, operation, memory.id, version, change, after, now, said)
    if "content" not in fields:
        return Revision(version, fields)
    return Revision(version, fields, memory.number, _drop_vectors(connection, memory.number))


def delete_memory(connection: sqlite3.Connection, number: int) -> tuple[int, ...]:
    """Delete a memory with all that hangs on it but its history. Returns its passages."""
    entities = entities_of(connection, number)
    passages = connection.execute("SELECT number FROM passages WHERE memory = ?", (number,)).fetchall()
    connection.execute("DELETE FROM memories WHERE number = ?", (number,))
    remove_unlinked(connection, entities)
    return tuple(row[0] for row in passages)


def register_session(connection: sqlite3.Connection, session_id: str, now: float) -> None:
    """Note that a session is active at `now`, and register it when it is new."""
    connection.execute(
        """INSERT INTO sessions VALUES (?, ?, ?)
           ON CONFLICT DO UPDATE SET last_active_at = max(last_active_at, excluded.last_active_at)""",
        (session_id, now, now),
    )


def _read_entities(query: Query, number: int) -> tuple[EntityRef, ...]:
    rows = query(
        """SELECT e.name, e.type, me.relationship FROM memory_entities AS me JOIN entities AS e ON e.number = me.entity
           WHERE me.memory = ? ORDER BY me.ordinal, me.entity, me.relationship""",
        (number,),
    )
    return tuple(EntityRef(*row) for row in rows)


def _drop_vectors(connection: sqlite3.Connection, number: int) -> tuple[int, ...]:
    """The content is another: its passages and what is nearly the same as it have to be found anew."""
    removed = connection.execute("DELETE FROM passages WHERE memory = ? RETURNING number", (number,)).fetchall()
    connection.execute(
        "DELETE FROM memory_links WHERE relation = ? AND (source = ? OR target = ?)", (SIMILAR, number, number)
    )
    want_embedding(connection, number)
    return tuple(row[0] for row in removed)
