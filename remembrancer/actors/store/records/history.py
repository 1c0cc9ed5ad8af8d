"""A memory's history: a row for each version, which is only ever added to. Inside the caller's transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from remembrancer.protocol.writes import HistoryEntry, Operation, Snapshot

Query = Callable[[str, Sequence[object]], list[Any]]
"""All rows of a query with its arguments."""

encode_json: Final = msgspec.json.Encoder().encode
_decode_snapshot = msgspec.json.Decoder(Snapshot).decode
_decode_details = msgspec.json.Decoder(dict[str, Any]).decode
_COLUMNS: Final = "version, change, changed_at, session_id, operation_id, record, details"


def note_version(
    connection: sqlite3.Connection,
    operation: Operation,
    memory_id: str,
    version: int,
    change: str,
    after: Snapshot,
    now: float,
    details: dict[str, Any] | None = None,
) -> None:
    """Add what a memory is after one of its changes."""
    entry = HistoryEntry(
        version=version,
        change=change,
        changed_at=now,
        session_id=operation.session_id,
        operation_id=operation.operation_id,
        record=after,
        details=details or {},
    )
    add_entry(connection, memory_id, entry)


def add_entry(connection: sqlite3.Connection, memory_id: str, entry: HistoryEntry) -> None:
    """Add an entry as it is. One that is there already (its memory was here before) is not added twice."""
    connection.execute(
        f"INSERT OR IGNORE INTO history (memory_id, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 - fixed names
        (
            memory_id,
            entry.version,
            entry.change,
            entry.changed_at,
            entry.session_id,
            entry.operation_id,
            encode_json(entry.record).decode(),
            encode_json(entry.details).decode(),
        ),
    )


def read_history(query: Query, memory_id: str) -> tuple[HistoryEntry, ...]:
    """All versions of a memory, the first one first. Raises `ValueError` for what cannot be decoded."""
    rows = query(
        f"SELECT {_COLUMNS} FROM history WHERE memory_id = ? ORDER BY version, changed_at",  # noqa: S608 - fixed names
        (memory_id,),
    )
    return tuple(
        HistoryEntry(
            version=version,
            change=change,
            changed_at=changed_at,
            session_id=session_id,
            operation_id=operation_id,
            record=_decode_snapshot(record),
            details=_decode_details(details),
        )
        for version, change, changed_at, session_id, operation_id, record, details in rows
    )


def snapshot_of(connection: sqlite3.Connection, memory_id: str, version: int) -> Snapshot | None:
    """What a memory was in a version; None when that is not known."""
    row = connection.execute(
        "SELECT record FROM history WHERE memory_id = ? AND version = ? ORDER BY changed_at DESC LIMIT 1",
        (memory_id, version),
    ).fetchone()
    return None if row is None else _decode_snapshot(row[0])
