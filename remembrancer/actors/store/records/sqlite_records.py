"""`Records` in one SQLite file: WAL, `synchronous=FULL`, one writing connection, one reading connection a thread.

Readers see the last commit and never wait for the writer (https://sqlite.org/wal.html).
"""

from __future__ import annotations

import logging
import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from remembrancer.actors.store.graph.sqlite_graph import SqliteGraph
from remembrancer.actors.store.records.background import SqliteBackground
from remembrancer.actors.store.records.contract import (
    EmbeddedMemory,
    Filters,
    KeywordHit,
    MemoryRecord,
    NearDuplicate,
    Order,
    Outcome,
    PassageVectors,
    RankingFacts,
    SavedEmbeddings,
    SessionStory,
    Told,
)
from remembrancer.actors.store.records.materials import passage_vectors
from remembrancer.actors.store.records.memory_rows import decoded, note_session_access, revive
from remembrancer.actors.store.records.operations import apply_operation, decode_result, record_done, replay_operation
from remembrancer.actors.store.records.search import (
    condition_of,
    padded,
    places_for,
    read_counts,
    read_from_files,
    read_hits_apart,
    read_keyword_hits,
    read_matching,
    read_neighbours,
    read_top,
    read_words_in,
)
from remembrancer.actors.store.records.sessions import import_sessions, read_session_story
from remembrancer.actors.store.records.sqlite_file import SqliteFile, unusable
from remembrancer.actors.store.records.sqlite_passages import (
    fail_embedding,
    link_similar,
    require_embeddings,
    save_embeddings,
)
from remembrancer.actors.store.records.transfer import (
    begin_move,
    cancel_move,
    end_move,
    read_moves,
    read_portable,
    receive_move,
)
from remembrancer.protocol.errors import InvalidInput, NotFound, RemembrancerError, StorageFull
from remembrancer.protocol.reads import Counts
from remembrancer.protocol.session_life import SessionEntry
from remembrancer.protocol.writes import (
    Applied,
    ForgetMemory,
    Operation,
    PortableMemory,
    PromotedResult,
    PromoteMemory,
    Scope,
)

NAMED: Final = {"near_duplicates": 5, "derived_from": 20, "possibly_superseded_by": 5}
"""Ids that an answer names; more would only cost tokens."""
LISTED_COLUMNS: Final = (
    "number",
    *(name for name in MemoryRecord.__struct_fields__ if name not in (*NAMED, "number", "forgotten")),
)
_LISTED: Final = ", ".join(f"m.{name}" for name in LISTED_COLUMNS)


class SqliteReading:
    """The part of `Records` that searches and shows."""

    _file: SqliteFile

    def pending(self) -> list[int]:
        return [row[0] for row in self._file.read("SELECT memory FROM pending_embeddings ORDER BY memory")]

    def texts(self, numbers: Sequence[int]) -> dict[int, str]:
        rows = self._file.read(
            f"SELECT number, content FROM memories WHERE number IN {places_for(numbers)}",  # noqa: S608 - only "?"
            tuple(numbers),
        )
        return dict(rows)

    def number_of(self, memory_id: str) -> int | None:
        rows = self._file.read("SELECT number FROM memories WHERE id = ?", (memory_id,))
        return int(rows[0][0]) if rows else None

    def outcome_of(self, operation_id: str) -> Applied | None:
        rows = self._file.read("SELECT result FROM applied_operations WHERE operation_id = ?", (operation_id,))
        try:
            return Applied(operation_id, decode_result(rows[0][0]), replayed=True) if rows else None
        except ValueError as error:
            raise unusable(self._file.path, error) from error

    def portable(self, memory_id: str, session_id: str | None, project_id: str | None = None) -> PortableMemory | None:
        try:
            return self._file.read_together(lambda query: read_portable(query, memory_id, session_id, project_id))
        except ValueError as error:
            raise unusable(self._file.path, error) from error

    def keyword_hits(self, match: str, filters: Filters, limit: int) -> list[KeywordHit]:
        return read_keyword_hits(self._file.read, match, filters, limit)

    def keyword_hits_apart(self, match: str, filters: Filters, limit: int) -> tuple[list[KeywordHit], list[KeywordHit]]:
        return read_hits_apart(self._file.read, match, filters, limit)

    def words_in(self, expressions: Sequence[str], numbers: Sequence[int]) -> dict[int, int]:
        return read_words_in(self._file.read, expressions, numbers)

    def matching(self, filters: Filters, limit: int) -> list[int] | None:
        return self._file.read_together(lambda query: read_matching(query, filters, limit))

    def top(self, filters: Filters, order: Order, limit: int) -> list[int]:
        return self._file.read_together(lambda query: read_top(query, filters, order, limit))

    def from_files(self, names: Sequence[str], filters: Filters, limit: int) -> list[int]:
        return read_from_files(self._file.read, names, filters, limit)

    def ranking_facts(self, numbers: Sequence[int], filters: Filters) -> dict[int, RankingFacts]:
        condition, arguments = condition_of(filters)
        rows = self._file.read(
            f"""SELECT m.number, m.importance, coalesce(m.occurred_at, m.created_at), m.status, m.scope, m.valid_until
                FROM memories AS m WHERE m.number IN {places_for(numbers)} AND {condition}""",  # noqa: S608 - fixed clauses
            (*numbers, *arguments),
        )
        return {row[0]: RankingFacts(*row[1:]) for row in rows}

    def neighbours(self, numbers: Sequence[int], filters: Filters) -> Told:
        return read_neighbours(self._file.read, numbers, filters)

    def load(self, numbers: Sequence[int], filters: Filters) -> dict[int, MemoryRecord]:
        condition, arguments = condition_of(filters)
        rows = self._file.read(
            f"""SELECT {_LISTED}
                FROM memories AS m WHERE m.number IN {places_for(numbers)} AND {condition}""",  # noqa: S608 - fixed clauses
            (*numbers, *arguments),
        )
        linked = self._linked([row[0] for row in rows], filters.session_id)
        try:
            return {row[0]: _record(row, linked.get(row[0], {})) for row in rows}
        except ValueError as error:
            raise unusable(self._file.path, error) from error

    def merged_into(self, memory_ids: Sequence[str]) -> dict[str, str]:
        if not memory_ids:
            return {}
        asked = padded(memory_ids)
        rows = self._file.read(
            f"""SELECT memory_id, merged_into FROM promotion_log
                WHERE memory_id IN {places_for(asked)} AND merged_into IS NOT NULL ORDER BY sequence""",  # noqa: S608 - only "?"
            asked,
        )
        return dict(rows)

    def _linked(self, numbers: Sequence[int], session_id: str) -> dict[int, dict[str, list[str]]]:
        """Ids that each memory is linked to, by the field that names them: of what the session may see and is not
        forgotten, the strongest links first."""
        places = places_for(numbers)
        rows = self._file.read(
            f"""SELECT l.memory, l.field, o.id FROM (
                    SELECT source AS memory, target AS other, strength,
                           iif(relation = 'similar_to', 'near_duplicates', 'derived_from') AS field
                    FROM memory_links WHERE source IN {places} AND relation IN ('similar_to', 'derived_from')
                    UNION ALL SELECT target, source, strength,
                           iif(relation = 'similar_to', 'near_duplicates', 'possibly_superseded_by') FROM memory_links
                    WHERE target IN {places} AND relation IN ('similar_to', 'contradicts', 'supersedes')) AS l
                JOIN memories AS o ON o.number = l.other
                WHERE o.forgotten_at IS NULL AND (o.scope != 'session' OR o.session_id = ?)
                ORDER BY l.strength DESC, o.number""",  # noqa: S608 - only "?"
            (*numbers, *numbers, session_id),
        )
        linked: dict[int, dict[str, list[str]]] = {}
        for memory, field, other in rows:
            named = linked.setdefault(memory, {}).setdefault(field, [])
            if len(named) < NAMED[field] and other not in named:
                named.append(other)
        return linked

    def memory_vectors(self, model: str, numbers: Sequence[int]) -> PassageVectors:
        return self._read_vectors(
            f"""SELECT number, memory, ordinal, vector FROM passages
                WHERE memory IN {places_for(numbers)} AND model = ?""",  # noqa: S608 - only "?"
            (*numbers, model),
        )

    def head_vectors(self, model: str, numbers: Sequence[int]) -> PassageVectors:
        return self._read_vectors(
            f"""SELECT number, memory, ordinal, vector FROM passages AS head
                WHERE memory IN {places_for(numbers)} AND model = ? AND ordinal = 0
                    AND EXISTS (SELECT 1 FROM passages AS next
                                WHERE next.memory = head.memory AND next.model = head.model AND next.ordinal = 1)""",  # noqa: S608
            (*numbers, model),
        )

    def passage_ranges(self, model: str, numbers: Sequence[int]) -> dict[int, tuple[int, int]]:
        rows = self._file.read(
            f"""SELECT number, start, "end" FROM passages WHERE memory IN {places_for(numbers)}
                AND model = ?""",  # noqa: S608 - only "?"
            (*numbers, model),
        )
        return {number: (start, end) for number, start, end in rows}

    def passages(self, numbers: Sequence[int]) -> PassageVectors:
        return self._read_vectors(
            f"SELECT number, memory, ordinal, vector FROM passages WHERE number IN {places_for(numbers)}",  # noqa: S608
            tuple(numbers),
        )

    def passage_owners(self, numbers: Sequence[int]) -> dict[int, tuple[int, int]]:
        asked = padded(numbers)
        rows = self._file.read(
            f"""SELECT number, memory, ordinal FROM passages INDEXED BY passages_owned
                WHERE number IN {places_for(asked)}""",  # noqa: S608 - only "?"
            asked,
        )
        return {number: (memory, ordinal) for number, memory, ordinal in rows}

    def has_passages(self, model: str) -> bool:
        ((exists,),) = self._file.read("SELECT EXISTS (SELECT 1 FROM passages WHERE model = ?)", (model,))
        return bool(exists)

    def passage_numbers(self, model: str) -> list[int]:
        rows = self._file.read("SELECT number FROM passages WHERE model = ? ORDER BY number", (model,))
        return [row[0] for row in rows]

    def last_passage(self) -> int:
        ((last,),) = self._file.read("SELECT max(number) FROM passages")
        return last or 0

    def passage_count(self, model: str) -> int:
        ((count,),) = self._file.read("SELECT count(*) FROM passages WHERE model = ?", (model,))
        return int(count)

    def is_embedded(self, model: str, number: int) -> bool:
        rows = self._file.read(
            """SELECT EXISTS (SELECT 1 FROM passages WHERE memory = ? AND model = ?)
               AND NOT EXISTS (SELECT 1 FROM pending_embeddings WHERE memory = ?)""",
            (number, model, number),
        )
        return bool(rows[0][0])

    def similar_ids(self, number: int, session_id: str) -> tuple[str, ...]:
        found = self.load([number], Filters(session_id, include_forgotten=True)).get(number)
        return () if found is None else found.near_duplicates

    def counts(self, session_id: str | None) -> Counts:
        return self._file.read_together(lambda query: read_counts(query, session_id))

    def sizes(self) -> dict[Scope, int]:
        return dict(self._file.read("SELECT scope, sum(count) FROM tallies WHERE NOT forgotten GROUP BY scope"))

    def session(self, session_id: str) -> tuple[float | None, int]:
        started = self._file.read("SELECT started_at FROM sessions WHERE session_id = ?", (session_id,))
        ((stored,),) = self._file.read("SELECT count(*) FROM memories WHERE session_id = ?", (session_id,))
        return (started[0][0] if started else None), stored

    def session_story(self, session_id: str) -> SessionStory:
        return read_session_story(self._file.read, session_id)

    def _read_vectors(self, query: str, arguments: Sequence[object]) -> PassageVectors:
        rows = self._file.read(query, arguments)
        try:
            return passage_vectors(rows)
        except ValueError as error:
            raise unusable(self._file.path, error) from error


def _record(row: Sequence[Any], linked: Mapping[str, Sequence[str]]) -> MemoryRecord:
    fields = decoded(dict(zip(LISTED_COLUMNS, row, strict=True)))
    links = {name: tuple(ids) for name, ids in linked.items()}
    return MemoryRecord(**fields | links, forgotten=fields["forgotten_at"] is not None)


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


class SqliteRecords(SqliteReading, SqliteBackground):
    """`Records` in one file. `clock`: seconds since the epoch. At `limit_bytes` it takes no write but to forget."""

    def __init__(self, path: Path, name: str, clock: Callable[[], float], *, limit_bytes: int | None = None) -> None:
        self._file = SqliteFile(path)
        self._name = name
        self._clock = clock
        self._limit_bytes = limit_bytes
        self._graph = SqliteGraph(self._file)

    @property
    def name(self) -> str:
        return self._name

    @property
    def graph(self) -> SqliteGraph:
        return self._graph

    # Writing: from the store's one writer thread.

    def apply(self, operations: Sequence[Operation]) -> list[Outcome]:
        full = self._full()
        if full is not None:  # to forget adds a small row, and is never refused for want of room
            refused = Outcome(full)
            return [
                self._apply_all([operation])[0]
                if isinstance(operation.change, ForgetMemory)
                else replay_operation(self._file.writer, operation) or refused
                for operation in operations
            ]
        return self._apply_all(operations)

    def _apply_all(self, operations: Sequence[Operation]) -> list[Outcome]:
        now = self._clock()
        try:
            with self._file.transaction() as connection:
                try:
                    return [apply_operation(connection, operation, now) for operation in operations]
                except UNACCEPTABLE:  # rare: from the start, with a savepoint for each, to tell which one it is
                    connection.execute("ROLLBACK")
                    connection.execute("BEGIN IMMEDIATE")
                    return [_apply_alone(connection, operation, now) for operation in operations]
        except RemembrancerError as error:
            return [Outcome(error) for _ in operations]

    def begin_move(self, operation: Operation) -> Outcome | PortableMemory:
        with self._file.transaction() as connection:
            earlier = replay_operation(connection, operation)
            if earlier is not None:
                return earlier
            try:
                return begin_move(connection, operation, _promotion(operation), self._clock())
            except (InvalidInput, NotFound) as refusal:
                return Outcome(refusal)

    def receive_move(self, operation: Operation, memory: PortableMemory) -> Outcome:
        full, now = self._full(), self._clock()
        with self._file.transaction() as connection:
            earlier = replay_operation(connection, operation)
            if earlier is not None:
                return earlier
            if full is not None:
                return Outcome(full)
            try:
                done = receive_move(connection, operation, _promotion(operation), memory, now)
            except InvalidInput as refusal:
                return Outcome(refusal)
            return record_done(connection, operation, done, now)

    def end_move(self, operation: Operation, reply: Applied) -> tuple[int, ...]:
        assert isinstance(reply.result, PromotedResult)
        with self._file.transaction() as connection:
            done = end_move(connection, operation, reply.result)
            record_done(connection, operation, done, self._clock())
            return done.removed_passages

    def cancel_move(self, operation: Operation) -> None:
        with self._file.transaction() as connection:
            cancel_move(connection, operation)

    def moves(self) -> list[Operation]:
        try:
            with self._file.transaction() as connection:
                return read_moves(connection)
        except ValueError as error:
            raise unusable(self._file.path, error) from error

    def save_embeddings(self, model: str, embedded: Sequence[EmbeddedMemory]) -> SavedEmbeddings:
        with self._file.transaction() as connection:
            return save_embeddings(connection, model, embedded)

    def fail_embedding(self, number: int, digest: bytes, error: str, *, final: bool) -> None:
        with self._file.transaction() as connection:
            fail_embedding(connection, number, digest, error, final=final)

    def require_embeddings(self, model: str) -> None:
        with self._file.transaction() as connection:
            require_embeddings(connection, model)

    def link_similar(self, links: Sequence[NearDuplicate]) -> None:
        now = self._clock()
        with self._file.transaction() as connection:
            link_similar(connection, links, now)

    def touch(self, numbers: Sequence[int], at: float, session_id: str = "") -> None:
        with self._file.transaction() as connection:
            if session_id:
                note_session_access(connection, numbers, session_id)
            connection.executemany(
                "UPDATE memories SET access_count = access_count + ?, last_accessed_at = ? WHERE number = ?",
                [(count, at, number) for number, count in Counter(numbers).items()],
            )
            revive(connection, numbers, at)

    def import_sessions(self, sessions: Sequence[SessionEntry]) -> None:
        with self._file.transaction() as connection:
            import_sessions(connection, sessions)

    # Upkeep.

    def size_bytes(self) -> int:
        return self._file.size_bytes()

    def checkpoint(self) -> None:
        self._file.checkpoint()

    def close(self) -> None:
        self._file.close()

    def _full(self) -> StorageFull | None:
        """The error for a file that has reached its limit."""
        if self._limit_bytes is None or (size_bytes := self.size_bytes()) < self._limit_bytes:
            return None
        message = (
            f"{self._file.path.name} of {self._name} has reached its limit of {self._limit_bytes} bytes: "
            "raise database_limit_bytes"
        )
        return StorageFull.at_limit(message, current_bytes=size_bytes, limit_bytes=self._limit_bytes)


def _apply_alone(connection: sqlite3.Connection, operation: Operation, now: float) -> Outcome:
    """Apply inside a savepoint: an operation that fails takes nothing with it."""
    connection.execute("SAVEPOINT operation")
    try:
        outcome = apply_operation(connection, operation, now)
    except UNACCEPTABLE as error:
        connection.execute("ROLLBACK TO operation")
        logger.error("an operation was refused", extra={"operation": operation.operation_id, "reason": str(error)})
        outcome = Outcome(InvalidInput(f"the records refuse this operation: {error}"))
    connection.execute("RELEASE operation")  # not after any other error: that has ended the transaction, or will
    return outcome


def _promotion(operation: Operation) -> PromoteMemory:
    assert isinstance(operation.change, PromoteMemory)
    return operation.change
