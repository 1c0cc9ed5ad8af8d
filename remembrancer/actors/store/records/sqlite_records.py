"""`Records` in one SQLite file: what writes operations to it, and the parts that read it joined."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from remembrancer.actors.store.records.background import SqliteBackground
from remembrancer.actors.store.records.contract import Outcome
from remembrancer.actors.store.records.memory_rows import erase_traces, is_erased, note_session_access, revive
from remembrancer.actors.store.records.operations import (
    apply_operation,
    begin_note,
    end_note,
    forget_note,
    notes_begun,
    read_applied,
    record_done,
)
from remembrancer.actors.store.records.passage_rows import SqlitePassages
from remembrancer.actors.store.records.search import SqliteSearch
from remembrancer.actors.store.records.sessions import import_sessions
from remembrancer.actors.store.records.sqlite_file import SqliteFile, encode_json, query_of
from remembrancer.actors.store.records.sqlite_graph import SqliteGraph
from remembrancer.actors.store.records.transfer import (
    begin_move,
    end_move,
    forget_move,
    read_moves,
    read_portable,
    receive_move,
)
from remembrancer.protocol.errors import InvalidInput, NotFound, RemembrancerError, StorageFull
from remembrancer.protocol.session_life import SessionEntry
from remembrancer.protocol.writes import (
    Applied,
    EraseMemory,
    ForgetMemory,
    NoteWritten,
    Operation,
    PortableMemory,
    PromotedResult,
    PromoteMemory,
)

UNACCEPTABLE: Final = (
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    ValueError,  # text that is no UTF-8
    OverflowError,
)
"""What is the fault of an operation itself, and not of the file."""

logger = logging.getLogger(__name__)


class SqliteRecords(SqliteSearch, SqlitePassages, SqliteBackground):
    """`Records` in one file. `clock`: seconds since the epoch. At `limit_bytes` it takes no write but to forget.

    A session that has stored `session_limit` memories in it stores no more.
    """

    def __init__(
        self,
        path: Path,
        name: str,
        clock: Callable[[], float],
        *,
        limit_bytes: int | None = None,
        session_limit: int | None = None,
    ) -> None:
        self._file = SqliteFile(path)
        self.name = name
        self.graph = SqliteGraph(self._file, clock)
        self._clock = clock
        self._limit_bytes = limit_bytes
        self._session_limit = session_limit

    # Writing: from the store's one writer thread.

    def apply(self, operations: Sequence[Operation]) -> list[Outcome]:
        full = self._full()
        if full is not None:  # to forget adds a small row, and is never refused for want of room
            outcomes = []
            for operation in operations:
                if isinstance(operation.change, ForgetMemory | EraseMemory):
                    outcomes += self._apply_all([operation])
                else:
                    earlier = read_applied(query_of(self._file.writer), operation.operation_id)
                    outcomes.append(Outcome(full if earlier is None else earlier))
            return outcomes
        return self._apply_all(operations)

    def _apply_all(self, operations: Sequence[Operation]) -> list[Outcome]:
        now = self._clock()
        try:
            with self._file.transaction() as connection:
                try:
                    return [
                        apply_operation(connection, operation, now, self._session_limit) for operation in operations
                    ]
                except UNACCEPTABLE:  # rare: from the start, with a savepoint for each, to tell which one it is
                    connection.execute("ROLLBACK")
                    connection.execute("BEGIN IMMEDIATE")
                    return [_apply_alone(connection, operation, now, self._session_limit) for operation in operations]
        except RemembrancerError as error:
            return [Outcome(error) for _ in operations]

    def begin_move(self, operation: Operation) -> Outcome | PortableMemory:
        with self._file.transaction() as connection:
            earlier = read_applied(query_of(connection), operation.operation_id)
            if earlier is not None:
                return Outcome(earlier)
            try:
                return begin_move(connection, operation, _promotion(operation), self._clock())
            except (InvalidInput, NotFound) as refusal:
                return Outcome(refusal)

    def receive_move(self, operation: Operation, memory: PortableMemory) -> Outcome:
        full, now = self._full(), self._clock()
        with self._file.transaction() as connection:
            earlier = read_applied(query_of(connection), operation.operation_id)
            if earlier is not None:
                return Outcome(earlier)
            if full is not None:
                return Outcome(full)
            try:
                done = receive_move(connection, operation, _promotion(operation), memory, now)
            except InvalidInput as refusal:
                return Outcome(refusal)
            return record_done(connection, operation, done, now)

    def end_move(self, operation: Operation, reply: Applied | None) -> tuple[int, ...]:
        with self._file.transaction() as connection:
            if reply is None:
                forget_move(connection, operation)
                return ()
            assert isinstance(reply.result, PromotedResult)
            done = end_move(connection, operation, reply.result)
            record_done(connection, operation, done, self._clock())
            return done.removed_passages

    def moves(self) -> list[Operation]:
        return self._file.read_together(read_moves)

    def begin_note(self, operation: Operation, result: NoteWritten) -> None:
        with self._file.transaction() as connection:
            begin_note(connection, operation, result)

    def end_note(self, operation: Operation, result: NoteWritten) -> Outcome:
        with self._file.transaction() as connection:
            return end_note(connection, operation, result, self._clock())

    def forget_note(self, operation: Operation) -> None:
        with self._file.transaction() as connection:
            forget_note(connection, operation)

    def notes_begun(self) -> list[tuple[Operation, NoteWritten]]:
        return self._file.read_together(notes_begun)

    def scrub(self, memory_id: str) -> bool:
        with self._file.transaction() as connection:
            found = erase_traces(connection, memory_id, self._clock()) or is_erased(connection, memory_id)
            if found:
                for table in ("memories_text", "entities_text"):  # whose deleted words stay until they are merged away
                    connection.execute(f"INSERT INTO {table} ({table}) VALUES ('optimize')")  # noqa: S608 - our names
        if found:
            self._file.empty_log()
        return found

    def is_erased(self, memory_id: str) -> bool:
        return bool(self._file.read("SELECT 1 FROM erased WHERE memory_id = ?", (memory_id,)))

    def touch(self, numbers: Sequence[int], at: float, session_id: str = "") -> None:
        with self._file.transaction() as connection:
            if session_id:
                note_session_access(connection, numbers, session_id)
            connection.execute(  # one statement for all of them: readers have the interpreter meanwhile
                """UPDATE memories SET access_count = access_count + shown.count, last_accessed_at = ? FROM (
                       SELECT value AS memory, count(*) AS count FROM json_each(?) GROUP BY value) AS shown
                   WHERE number = shown.memory""",
                (at, encode_json(numbers).decode()),
            )
            revive(connection, numbers, at)

    def import_sessions(self, sessions: Sequence[SessionEntry]) -> None:
        with self._file.transaction() as connection:
            import_sessions(connection, sessions)

    # Reading.

    def number_of(self, memory_id: str) -> int | None:
        find = "SELECT number FROM memories WHERE id = ?1 UNION ALL SELECT memory FROM aliases WHERE alias = ?1"
        rows = self._file.read(find, (memory_id,))
        return int(rows[0][0]) if rows else None

    def outcome_of(self, operation_id: str) -> Applied | None:
        return self._file.read_together(lambda query: read_applied(query, operation_id))

    def portable(self, memory_id: str, session_id: str | None, project_id: str | None = None) -> PortableMemory | None:
        return self._file.read_together(lambda query: read_portable(query, memory_id, session_id, project_id))

    # Upkeep.

    def checkpoint(self) -> None:
        self._file.checkpoint()

    def close(self) -> None:
        self._file.close()

    def _full(self) -> StorageFull | None:
        """The error for a file that has reached its limit."""
        if self._limit_bytes is None or (size_bytes := self._file.size_bytes()) < self._limit_bytes:
            return None
        message = (
            f"{self._file.path.name} of {self.name} has reached its limit of {self._limit_bytes} bytes: "
            "raise database_limit_bytes"
        )
        return StorageFull.at_limit(message, current_bytes=size_bytes, limit_bytes=self._limit_bytes)


def _apply_alone(
    connection: sqlite3.Connection, operation: Operation, now: float, session_limit: int | None
) -> Outcome:
    """Apply inside a savepoint: an operation that fails takes nothing with it."""
    connection.execute("SAVEPOINT operation")
    try:
        outcome = apply_operation(connection, operation, now, session_limit)
    except UNACCEPTABLE as error:
        connection.execute("ROLLBACK TO operation")
        logger.error("an operation was refused", extra={"operation": operation.operation_id, "reason": str(error)})
        outcome = Outcome(InvalidInput(f"the records refuse this operation: {error}"))
    connection.execute("RELEASE operation")  # not after any other error: that has ended the transaction, or will
    return outcome


def _promotion(operation: Operation) -> PromoteMemory:
    assert isinstance(operation.change, PromoteMemory)
    return operation.change
