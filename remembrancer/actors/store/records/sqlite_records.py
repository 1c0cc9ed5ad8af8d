"""The records of one space of the database: writes operations, and combines the classes that read."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from remembrancer.actors.sqlite_file import AMONG, SqliteFile, json_list
from remembrancer.actors.store.records.background import SqliteBackground
from remembrancer.actors.store.records.memory_rows import read_portable
from remembrancer.actors.store.records.moves import end_move, memory_to_move, proposal_of, receive_move
from remembrancer.actors.store.records.passage_rows import EmbeddedTexts
from remembrancer.actors.store.records.rules import apply_rule
from remembrancer.actors.store.records.search import SqliteSearch
from remembrancer.actors.store.records.sessions import describe_session
from remembrancer.actors.store.records.space import Spaces, number_of_space
from remembrancer.actors.store.records.sqlite_edits import ArrivingEdits, SqliteEdits, read_applied
from remembrancer.actors.store.records.types import USER, Clock, Outcome
from remembrancer.actors.store.records.writer import Writer, revive
from remembrancer.protocol.errors import InvalidInput, NotFound, StorageFull, size_on_disk
from remembrancer.protocol.kinds import SESSION_RECORD
from remembrancer.protocol.reads import SessionDescription
from remembrancer.protocol.writes import Applied, Operation, PortableMemory, PromotedResult, Result, needs_room

OPERATION_ERRORS: Final = (
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    ValueError,  # text that is not UTF-8
    OverflowError,
)

logger = logging.getLogger(__name__)


class Reader(SqliteSearch, SqliteBackground):
    """The memories in several spaces that one viewer may see, for all reads except full-text search."""

    def __init__(self, spaces: Spaces, users: frozenset[int]) -> None:
        self._file = spaces
        self.users = users
        """The numbers of the spaces that contain the user's memories."""

    @staticmethod
    def of(spaces: Sequence[Records], database: SqliteFile | None = None) -> Reader:
        """Return a reader of these spaces, narrowest first. `database` is required only if there are no spaces."""
        file, numbers = database or spaces[0]._file.file, [each.space for each in spaces]
        return Reader(Spaces(file, numbers), frozenset(each.space for each in spaces if each.is_users))

    def describe_session(self, session_id: str) -> SessionDescription:
        with self._file.reading() as query:
            return describe_session(query, self._file, session_id)

    def portable(self, memory_id: str, session_id: str | None, project_id: str | None = None) -> PortableMemory | None:
        """None if the session (None: anybody) may not see the memory. Omits versions and links that it may not see."""
        with self._file.reading() as query:
            return read_portable(query, memory_id, session_id, project_id)

    def spaces_of(self, numbers: Sequence[int]) -> dict[int, int]:
        asked = f"SELECT number, space FROM memories WHERE number IN {AMONG}"  # noqa: S608 - fixed
        return dict(self._file.read(asked, (json_list(numbers),)))


class Limits(NamedTuple):
    """At `database_bytes`, only requests to forget or erase are accepted. `session` is a limit of memories."""

    database_bytes: int | None = None
    session: int | None = None


NO_LIMITS: Final = Limits()


class Records(Reader, EmbeddedTexts):
    """The records of one space: a project's (with its sessions' memories), the user's, or a shared lane's. Methods
    block and may be called from any thread; the store calls the writing methods from one thread only. They raise
    `RecordsUnusable` (the file is damaged), `StorageFull`, `FileLocked` (by another program), or `InternalError`."""

    is_shared = False

    def __init__(
        self, database: SqliteFile, name: str, clock: Clock, limits: Limits = NO_LIMITS, *, is_users: bool = False
    ) -> None:
        self.name = name
        self.space = number_of_space(database, name)
        self.is_users = is_users or name == USER
        super().__init__(Spaces(database, [self.space]), frozenset({self.space} if self.is_users else ()))
        self._clock = clock
        self._limits = limits

    @property
    def writes(self) -> int:
        return self._file.commits

    @property
    def works_here(self) -> bool:
        """True if this host does the background work of the space; in a shared lane, the last host to write does."""
        return True

    @property
    def time(self) -> float:
        return self._clock()

    @property
    def lane_time(self) -> float | None:
        return self.time if self.is_shared else None

    # Writing, on the thread that writes.

    def apply_in(self, connection: sqlite3.Connection, operation: Operation, destination: Records) -> Outcome:
        """Apply a new operation inside a transaction, and move its memory if the destination is another space. If it is
        refused, nothing is written, and the outcome says so. After an SQLite error, the caller must roll back."""
        full = destination._limit_error() if needs_room(operation.change) else None
        if full is not None:
            return full
        edits = SqliteEdits(connection, self.space, self._clock())
        if destination is self:
            return Writer(operation, edits, session_limit=self._limits.session).carry_out(apply_rule)
        return _promoted(operation, edits, ArrivingEdits(edits, destination.space))

    @contextlib.contextmanager
    def _edits(self, *, is_access: bool = False) -> Iterator[SqliteEdits]:
        with self._file.transaction(durable=not is_access, is_access=is_access) as connection:
            yield SqliteEdits(connection.connection, self.space, self._clock())

    def shareable(self) -> list[str]:
        """Return the ids of the memories to share, forgotten or not: all but session memories and session records."""
        rows = self._file.read(
            "SELECT id FROM memories WHERE space = @SPACE AND scope = ? AND kind != ? ORDER BY number",
            ("user" if self.is_users else "project", SESSION_RECORD),
        )
        return [memory_id for (memory_id,) in rows]

    def complete(self, operation: Operation, step: Callable[[Writer], Result]) -> Outcome:
        """Carry out the last step of an operation in a durable transaction, unless this was done before."""
        with self._edits() as edits:
            earlier = read_applied(edits.query, operation.operation_id)
            return earlier or Writer(operation, edits).carry_out(step)

    def note_commit(self) -> None:
        self._file.commits += 1

    def touch(self, numbers: Sequence[int], at: float, session_id: str = "", used: Sequence[str] = ()) -> None:
        """Count an access to each memory (one that is listed twice counts twice), and note which memories the session
        has used, if they are in this database. An access makes an archived memory active."""
        with self._edits(is_access=True) as edits:
            edits.note_use(used, session_id)
            edits.count_accesses(numbers, at)
            archived = edits.query(
                f"SELECT id FROM memories WHERE forgotten_at IS NULL AND status = 'archived' AND number IN {AMONG}",  # noqa: S608
                (json_list(numbers),),
            )
        if archived:
            self._revive([memory_id for (memory_id,) in archived], at)

    def _revive(self, archived: Sequence[str], at: float) -> None:
        with self._edits() as edits:  # an ordinary write, since Review may show pairs of these memories again
            revive(edits, archived, at)

    # Reading.

    def outcome_of(self, operation_id: str) -> Applied | None:
        with self._file.reading() as query:
            return read_applied(query, operation_id)

    # Maintenance.

    def close(self) -> None:
        self._file.file.close()

    def _limit_error(self) -> StorageFull | None:
        database, limit_bytes = self._file.file, self._limits.database_bytes
        if limit_bytes is None or (size_bytes := size_on_disk(database.path)) < limit_bytes:
            return None
        message = f"{database.path.name} has reached its limit of {limit_bytes} bytes; raise database_limit_bytes"
        return StorageFull.at_limit(message, current_bytes=size_bytes, limit_bytes=limit_bytes)


def _promoted(operation: Operation, source: SqliteEdits, destination: SqliteEdits) -> Outcome:
    try:
        memory = memory_to_move(Writer(operation, source))
    except (InvalidInput, NotFound) as refusal:
        return refusal
    received = Writer(operation, destination).carry_out(
        partial(receive_move, memory=memory, proposal=proposal_of(source, memory.id))
    )
    if isinstance(received, Applied):
        assert isinstance(received.result, PromotedResult)
        Writer(operation, source).carry_out(partial(end_move, result=received.result))
    return received


def apply_each(
    connection: sqlite3.Connection, operations: Sequence[Operation], apply_one: Callable[[Operation], Outcome]
) -> list[Outcome]:
    """Apply operations in order. If one cannot be written at all, start over with a savepoint for each (slower)."""
    try:
        return [apply_one(operation) for operation in operations]
    except OPERATION_ERRORS:
        connection.execute("ROLLBACK")
        connection.execute("BEGIN IMMEDIATE")
        return [apply_alone(connection, each.operation_id, partial(apply_one, each)) for each in operations]


def apply_alone(connection: sqlite3.Connection, name: str, apply: Callable[[], Outcome]) -> Outcome:
    """Apply an operation at a savepoint: if it cannot be written, nothing changes. `name` identifies it in the log."""
    connection.execute("SAVEPOINT operation")
    try:
        outcome = apply()
    except OPERATION_ERRORS as error:
        connection.execute("ROLLBACK TO operation")
        logger.error("an operation was refused", extra={"operation": name, "reason": str(error)})
        outcome = InvalidInput(f"this operation cannot be stored: {error}")
    connection.execute("RELEASE operation")  # not after other errors, which end the transaction
    return outcome
