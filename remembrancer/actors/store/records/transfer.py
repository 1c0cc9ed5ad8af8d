"""Memories between files: whole memories in and out, and a move from a project's file to the user's.

A move has three steps: the project's file notes it and keeps the memory; the user's file takes the memory in, and with
it the operation; the project's file lets the memory go, notes the operation too, and forgets the move. A process that
dies between two of them leaves a note from which the rest is done: every step can be repeated.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Sequence
from typing import Final

import msgspec

from remembrancer.actors.store.records.contract import Outcome, Records
from remembrancer.actors.store.records.memory_rows import (
    SAVED_FIELDS,
    Done,
    add_entry,
    add_tags,
    archived_since,
    columns_of,
    delete_memory,
    insert_row,
    is_erased,
    link_entities,
    memory_to_change,
    note_version,
    read_history,
    read_memory,
    register_session,
)
from remembrancer.actors.store.records.promotion_rows import log_entry, log_promotion, note_pattern, step_of
from remembrancer.actors.store.records.run_undo import note_departure
from remembrancer.actors.store.records.sqlite_file import Query, encode_json, query_of
from remembrancer.memory.changes import check_broader, check_remembered, is_version_visible, is_visible
from remembrancer.protocol.errors import InvalidInput, RemembrancerError
from remembrancer.protocol.kinds import kind_of_type
from remembrancer.protocol.runs import NotePattern
from remembrancer.protocol.writes import (
    Applied,
    HistoryEntry,
    ImportedResult,
    ImportMemory,
    MemoryLink,
    Operation,
    PortableMemory,
    PromotedResult,
    PromoteMemory,
    Snapshot,
)


def read_portable(
    query: Query, memory_id: str, session_id: str | None, project_id: str | None = None
) -> PortableMemory | None:
    """A memory with its history and its links, forgotten or not; None when there is none that the session may see.

    For a session only versions and links to memories that it may see; for None all, also links whose other end is not
    here yet.
    """
    found = read_memory(query, memory_id)
    if found is None or not is_visible(found.now.scope, found.now.session_id, session_id):
        return None
    now = found.now
    return PortableMemory(
        **now.recorded(),
        id=found.id,
        created_at=found.created_at,
        updated_at=found.updated_at,
        version=found.version,
        access_count=found.access_count,
        last_accessed_at=found.last_accessed_at,
        forgotten_at=found.forgotten_at,
        history=tuple(
            _told(query, entry, session_id)
            for entry in read_history(query, found.id)
            if is_version_visible(entry.record, now.scope, found.source_project, session_id, project_id)
        ),
        links=_read_links(query, found.number, session_id),
        promotion_chain=found.promotion_chain,
        source_project=found.source_project,
        accessed_in=tuple(
            row[0]
            for row in query("SELECT session_id FROM memory_sessions WHERE memory = ? ORDER BY 1", (found.number,))
        ),
    )


def _told(query: Query, entry: HistoryEntry, session_id: str | None) -> HistoryEntry:
    """An entry of the history without the id of what superseded the memory, if the session may not see that."""
    by = entry.details.get("by")
    newer = read_memory(query, by) if session_id is not None and isinstance(by, str) else None
    if newer is None or is_visible(newer.now.scope, newer.now.session_id, session_id):
        return entry
    known = {name: value for name, value in entry.details.items() if name != "by"}
    return msgspec.structs.replace(entry, details=known)


def import_memory(connection: sqlite3.Connection, operation: Operation, change: ImportMemory, now: float) -> Done:
    """Take a memory in as it is. One whose id is here already stays as it is here."""
    memory = change.memory
    if is_erased(connection, memory.id):
        raise InvalidInput(f"{memory.id} was erased for good: it is not taken in again", field="id")
    if connection.execute("SELECT 1 FROM memories WHERE id = ?", (memory.id,)).fetchone():
        return Done(ImportedResult(memory.id, "present"))
    number = insert_portable(connection, memory, now)
    if all(entry.version != memory.version for entry in memory.history):
        note_version(connection, operation, memory.id, memory.version, "imported", snapshot_of_portable(memory), now)
    return Done(ImportedResult(memory.id, "imported"), to_embed=number)


def insert_portable(connection: sqlite3.Connection, memory: PortableMemory, now: float) -> int:
    """Insert a memory with its history, and its links so far as their other ends are here; its number.

    A link whose other end is not here waits for it: memories may come in any order.
    """
    number = insert_row(
        connection,
        columns_of(snapshot_of_portable(memory), SAVED_FIELDS)
        | {
            "id": memory.id,
            "session_id": memory.session_id,
            "version": memory.version,
            "created_at": memory.created_at,
            "updated_at": memory.updated_at,
            "occurred_at": memory.occurred_at,
            "access_count": memory.access_count,
            "last_accessed_at": memory.last_accessed_at,
            "forgotten_at": memory.forgotten_at,
            "forgotten_reason": memory.forgotten_reason,
            "archived_at": archived_since(memory),
            "promotion_chain": encode_json(memory.promotion_chain).decode(),
            "source_project": memory.source_project,
        },
    )
    connection.executemany(
        "INSERT OR IGNORE INTO memory_sessions VALUES (?, ?)", [(number, each) for each in memory.accessed_in]
    )
    add_tags(connection, number, memory.tags)
    link_entities(connection, number, memory.related_entities, now)
    for entry in memory.history:
        add_entry(connection, memory.id, entry)
    connection.executemany(
        "INSERT OR IGNORE INTO awaited_links VALUES (?, ?, ?, ?, ?)",
        [(number, link.target, link.relation, link.strength, link.created_at) for link in memory.links],
    )
    _make_awaited_links(connection, number, memory.id)
    return number


def snapshot_of_portable(memory: PortableMemory) -> Snapshot:
    """The part of a memory that its versions differ in."""
    fields = memory.recorded() | {"kind": memory.kind or kind_of_type(memory.type)}
    return Snapshot(**fields, forgotten=memory.forgotten_at is not None)


def _read_links(query: Query, number: int, session_id: str | None) -> tuple[MemoryLink, ...]:
    rows = query(
        """SELECT o.id, l.relation, l.strength, l.created_at FROM memory_links AS l
           JOIN memories AS o ON o.number = l.target
           WHERE l.source = ? AND (? IS NULL OR o.scope != 'session' OR o.session_id = ?)""",
        (number, session_id, session_id),
    )
    if session_id is None:
        rows += query("SELECT target, relation, strength, created_at FROM awaited_links WHERE source = ?", (number,))
    return tuple(MemoryLink(*row) for row in sorted(rows))


def _make_awaited_links(connection: sqlite3.Connection, number: int, memory_id: str) -> None:
    """Make the links of which both ends are here now: those from this memory, and those to it."""
    connection.execute(
        """INSERT OR IGNORE INTO memory_links
           SELECT a.source, o.number, a.relation, a.strength, a.created_at
           FROM awaited_links AS a JOIN memories AS o ON o.id = a.target WHERE a.source = ?
           UNION ALL SELECT source, ?, relation, strength, created_at FROM awaited_links WHERE target = ?""",
        (number, number, memory_id),
    )
    connection.execute(
        """DELETE FROM awaited_links WHERE target = ?
           OR (source = ? AND EXISTS (SELECT 1 FROM memories WHERE id = target))""",
        (memory_id, number),
    )


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
    portable = read_portable(query_of(connection), memory.id, None)
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
    forget_move(connection, operation)
    return Done(result, removed_passages=removed)


def forget_move(connection: sqlite3.Connection, operation: Operation) -> None:
    """In the project's file: the move is over."""
    connection.execute("DELETE FROM moves WHERE operation_id = ?", (operation.operation_id,))


def read_moves(query: Query) -> list[Operation]:
    """The moves that were begun and not ended, oldest first."""
    rows = query("SELECT operation FROM moves ORDER BY begun_at", ())
    return [_decode_operation(row[0]) for row in rows]


logger = logging.getLogger(__name__)


class Move:
    """Takes memories from `source` to `destination`. From the store's one writer thread.

    An outcome's `to_embed` is a number in the destination, its `removed_passages` are the source's.
    """

    def __init__(self, source: Records, destination: Records) -> None:
        self.source = source
        self.destination = destination

    def apply(self, operations: Sequence[Operation]) -> list[Outcome]:
        """Move the memory of each promotion, in order. One that was moved by the same operation before is answered."""
        return [self._apply(operation) for operation in operations]

    def finish(self) -> bool:
        """Do what is left of the moves that a process did not live to end. Whether there were any.

        Raises:
            RemembrancerError: a file cannot be written now; what is left is done another time.
        """
        moves = self.source.moves()
        for operation in moves:
            outcome = self._apply(operation)
            if isinstance(outcome.reply, RemembrancerError):
                if outcome.reply.retry_possible:
                    raise outcome.reply
                self.source.end_move(operation, None)
            logger.info("a move was finished", extra={"file": self.source.name, "operation": operation.operation_id})
        return bool(moves)

    def _apply(self, operation: Operation) -> Outcome:
        try:
            begun = self.source.begin_move(operation)
            if not isinstance(begun, PortableMemory):
                return begun
            received = self._receive(operation, begun)
            if not isinstance(received.reply, Applied):
                return received
            ended = self.source.end_move(operation, received.reply)
        except RemembrancerError as error:
            return Outcome(error)
        return Outcome(received.reply, received.to_embed, ended)

    def _receive(self, operation: Operation, memory: PortableMemory) -> Outcome:
        """What came of the second step; if nothing, the first one is undone."""
        try:
            received = self.destination.receive_move(operation, memory)
        except RemembrancerError as error:
            received = Outcome(error)
        if not isinstance(received.reply, Applied):
            self.source.end_move(operation, None)
        return received
