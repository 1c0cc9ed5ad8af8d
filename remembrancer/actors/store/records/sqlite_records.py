"""The records of one space of the database: what writes operations to it, and the parts that read it joined."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar, cast

from remembrancer.actors.store.records.background import SqliteBackground
from remembrancer.actors.store.records.browsing import browse
from remembrancer.actors.store.records.contract import USER, Belongings, Outcome
from remembrancer.actors.store.records.found_entities import find_entities
from remembrancer.actors.store.records.passage_rows import EmbeddedTexts
from remembrancer.actors.store.records.search import SqliteSearch
from remembrancer.actors.store.records.sessions import import_sessions
from remembrancer.actors.store.records.space import Space, SpaceConnection, Spaces
from remembrancer.actors.store.records.sqlite_edits import ArrivingEdits, SqliteEdits, read_applied, read_rows
from remembrancer.actors.store.records.sqlite_file import AMONG, SqliteFile, json_list
from remembrancer.actors.store.records.sqlite_graph import SqliteGraph
from remembrancer.actors.store.records.transfer import read_belongings, read_portable
from remembrancer.memory.edits import AppliedOperation, Edits, Put, Row
from remembrancer.memory.moves import begin_move, end_move, receive_move
from remembrancer.memory.plan import carry_out
from remembrancer.memory.planner import Planner
from remembrancer.protocol.browsing import BrowserAnswer, BrowserRequest
from remembrancer.protocol.errors import InvalidInput, NotFound, RemembrancerError, StorageFull
from remembrancer.protocol.session_life import SessionEntry
from remembrancer.protocol.writes import (
    Applied,
    Operation,
    PortableMemory,
    PromotedResult,
    Result,
    needs_room,
)

UNACCEPTABLE: Final = (
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    ValueError,  # text that is no UTF-8
    OverflowError,
)
"""The errors that are the fault of an operation itself, and not of the file."""

T = TypeVar("T")
R = TypeVar("R", bound=Row)
logger = logging.getLogger(__name__)


class Reader(SqliteSearch, SqliteBackground):
    """The memories of several spaces of a database, which one viewer may see: what can be asked of them together, which
    is all but the words of full texts. A number names a memory of the database."""

    def __init__(self, spaces: Spaces, clock: Callable[[], float], users: frozenset[int] = frozenset()) -> None:
        self._file = cast(Space, spaces)
        self._users = users
        self._clock = clock
        self.graph = SqliteGraph(spaces, clock)

    @staticmethod
    def of(spaces: Sequence[Records], database: SqliteFile | None = None) -> Reader:
        """A reader of these spaces, the narrowest first. `database` is theirs, where there may be none."""
        clock = spaces[0]._clock if spaces else time.time
        users = frozenset(each.space for each in spaces if each.is_users)
        return Reader(Spaces(database or spaces[0]._file.file, [each.space for each in spaces]), clock, users)

    @property
    def users(self) -> frozenset[int]:
        """Those of the spaces that have the user's memories."""
        return self._users

    def browse(self, request: BrowserRequest) -> BrowserAnswer:
        """The answer to the memory browser."""
        return browse(self, self.users, request, self._clock())

    def portable(self, memory_id: str, session_id: str | None, project_id: str | None = None) -> PortableMemory | None:
        """A memory whole, forgotten or not; None when there is none that the session (None: anybody) may see.

        Its links are those that begin at it, and whose other end the session may see; its versions those that a session
        of this project may.
        """
        return self._file.read_together(lambda query: read_portable(query, memory_id, session_id, project_id))

    def spaces_of(self, numbers: Sequence[int]) -> dict[int, int]:
        """By number the spaces that these memories lie in."""
        asked = f"SELECT number, space FROM memories WHERE number IN {AMONG}"  # noqa: S608 - fixed
        return dict(self._file.read(asked, (json_list(numbers),)))

    def number_beside(self, memory_id: str, number: int) -> int | None:
        """The memory of an id in the space of another memory."""
        rows = self._file.read(
            "SELECT o.number FROM memories AS m JOIN memories AS o USING (space) WHERE o.id = ? AND m.number = ?",
            (memory_id, number),
        )
        return rows[0][0] if rows else None


class Records(Reader, EmbeddedTexts):
    """The records of one space: a project's (with its sessions' memories), the user's, or those of a shared lane.

    `clock`: seconds since the epoch. At `limit_bytes` of the database it takes no write but to forget. A session that
    has stored `session_limit` memories in it stores no more.

    Methods block, and may be called from any thread; the store calls those that write from one thread alone.

    Raises, from every method:
        RecordsUnusable: the file is damaged.
        StorageFull: the disk has no room for a write.
        FileLocked: another program has the file locked.
        InternalError: anything else that the database says.
    `apply` answers with them.
    """

    is_shared = False
    _file: Space

    def __init__(
        self,
        database: SqliteFile,
        name: str,
        clock: Callable[[], float],
        *,
        limit_bytes: int | None = None,
        session_limit: int | None = None,
    ) -> None:
        super().__init__(Space(database, name), clock)
        self.name = name
        self.is_users = name == USER
        self._limit_bytes = limit_bytes
        self._session_limit = session_limit

    @property
    def commits(self) -> int:
        return self._file.file.commits  # vectors are kept for all spaces together

    @property
    def space(self) -> int:
        """The number of its space."""
        return self._file.number

    @property
    def users(self) -> frozenset[int]:
        """Its space, if that has the user's memories."""
        return frozenset({self.space}) if self.is_users else frozenset()

    # Writing: from the thread of the file.

    def apply(self, operations: Sequence[Operation]) -> list[Outcome]:
        """Apply each in order, all in one durable transaction, and answer each. An id seen before answers as before.

        An operation that cannot be applied changes nothing and does not hurt the others.
        """
        full = self._full()
        if full is not None:
            outcomes = []
            for operation in operations:
                if needs_room(operation.change):
                    earlier = self.outcome_of(operation.operation_id)
                    outcomes.append(Outcome(full if earlier is None else earlier))
                else:
                    outcomes += self._apply_all([operation])
            return outcomes
        return self._apply_all(operations)

    def _apply_all(self, operations: Sequence[Operation]) -> list[Outcome]:
        limit, now = self._session_limit, self._clock()
        try:
            with self._file.transaction() as connection:
                try:
                    return [SqliteEdits(connection, now).apply_operation(each, limit) for each in operations]
                except UNACCEPTABLE:  # rare: from the start, with a savepoint for each, to tell which one it is
                    connection.execute("ROLLBACK")
                    connection.execute("BEGIN IMMEDIATE")
                    return [_apply_alone(connection, each, limit, now) for each in operations]
        except RemembrancerError as error:
            return [Outcome(error) for _ in operations]

    @contextlib.contextmanager
    def _edits(self, *, durable: bool = True) -> Iterator[SqliteEdits]:
        """A transaction of edits."""
        with self._file.transaction(durable=durable) as connection:
            yield SqliteEdits(connection, self._clock())

    def rename_project(self, old: str, new: str) -> None:
        """In the user's file: what came from the project `old` came from `new`, which is the same one elsewhere."""
        with self._edits() as edits:
            edits.rename_project(old, new)

    def belongings(self) -> Belongings:
        """All that has to come along when this file is joined with another: a few memories, that is to say."""
        return self._file.read_together(read_belongings)

    def held(self) -> contextlib.AbstractContextManager[object]:
        """Inside it no other thread writes here: what a move has read is what it takes away. Nobody
        waits for the journal, which may be slow: what others want to write is refused with `FileLocked`."""
        return self._file.held()

    def prepare(self, operation: Operation, step: Callable[[Planner], Edits[T]]) -> T | Outcome:
        """Carry out a step of an operation that others follow, in one durable transaction; its result.

        What came of the operation when it is refused, or was completed before.
        """
        with self._edits() as edits:
            earlier = edits.outcome_of(operation.operation_id)
            if earlier is not None:
                return Outcome(earlier)
            try:
                return carry_out(step(Planner(operation, edits)), edits.apply)
            except (InvalidInput, NotFound) as refusal:
                return Outcome(refusal)

    def complete(self, operation: Operation, step: Callable[[Planner], Edits[Result]]) -> Outcome:
        """Carry out the last step of an operation here, and note what came of it, in one durable transaction.

        One that was completed before is answered as then.
        """
        with self._edits() as edits:
            earlier = edits.outcome_of(operation.operation_id)
            return edits.carry_out(operation, step(Planner(operation, edits))) if earlier is None else Outcome(earlier)

    def note_commit(self) -> None:
        """Something was written to this space in a transaction of another one."""
        self._file.commits += 1

    def take_outcomes(self, applied: Sequence[AppliedOperation]) -> None:
        """Answer these operations, which the lane has applied whose memories came here, as it did."""
        with self._edits() as edits:
            for each in applied:
                edits.apply(Put(each))

    def promote(self, operations: Sequence[Operation], destination: Records) -> list[Outcome]:
        """Move the memory of each promotion to another space of the database, or back, all in one transaction, and
        answer each. One that was moved by the same operation before is answered as then."""
        full, now = destination._full(), self._clock()
        outcomes: list[Outcome] = []
        try:
            with self._file.transaction_with(destination._file) as (source, target):
                for operation in operations:
                    source.execute("SAVEPOINT move")
                    leaving = SqliteEdits(source, now)
                    try:
                        outcomes.append(_promoted(operation, leaving, ArrivingEdits(target, now, leaving), full))
                    except UNACCEPTABLE as error:
                        outcomes.append(Outcome(InvalidInput(f"the records refuse this operation: {error}")))
                    if isinstance(outcomes[-1].reply, RemembrancerError):
                        source.execute("ROLLBACK TO move")
                    source.execute("RELEASE move")
        except RemembrancerError as error:
            return [Outcome(error) for _ in operations]
        return outcomes

    def move(self, operation: Operation, local: Records) -> Outcome:
        """Bring a memory of a space of this host in, or take one back there. Of shared lanes alone."""
        raise NotImplementedError

    def unfinished(self, kind: type[R]) -> list[R]:
        """The rows that say which operations were prepared and not completed, the oldest first: `Move`s or
        `NoteWrite`s."""
        return self._file.read_together(lambda query: read_rows(query, kind))

    def is_erased(self, memory_id: str) -> bool:
        """True if a memory of that id was erased here."""
        return bool(self._file.read("SELECT 1 FROM erased WHERE space = @SPACE AND memory_id = ?", (memory_id,)))

    def touch(self, numbers: Sequence[int], at: float, session_id: str = "", used: Sequence[str] = ()) -> None:
        """Count an access to each memory (twice in the list counts twice), and of those that were used the session.

        `used` are ids: one that is not here, or that the session may not see, is passed over.

        What is archived becomes active by it: a version of its own, which belongs to no operation.
        """
        with self._edits(durable=False) as edits:
            edits.note_use(used, session_id)
            edits.count_accesses(numbers, at)

    def import_sessions(self, sessions: Sequence[SessionEntry]) -> None:
        """Register sessions that were active at another time or place."""
        with self._file.transaction() as connection:
            import_sessions(connection, sessions)

    def tidy(self) -> bool:
        """Do some of the work that nobody waits for: look for names in memories that are new or say something else,
        which become entities that are marked as found; then merge what the index of words has taken in. Whether more is
        left. From the thread of the file."""
        if self._file.commits == self._merged_at:
            return False
        if self._file.read(
            """SELECT 1 FROM names_to_find AS n CROSS JOIN memories AS m ON m.number = n.memory
               WHERE m.space = @SPACE LIMIT 1"""
        ):
            with self._edits() as edits:
                if find_entities(edits, self._clock()):
                    return True
        return super().tidy()

    # Reading.

    def outcome_of(self, operation_id: str) -> Applied | None:
        """The outcome of an operation when it was applied here; None when it was not."""
        return self._file.read_together(lambda query: read_applied(query, operation_id))

    # Upkeep.

    def close(self) -> None:
        """Close. May be called twice."""
        self._file.file.close()

    def _full(self) -> StorageFull | None:
        """The error for a file that has reached its limit."""
        database = self._file.file
        if self._limit_bytes is None or (size_bytes := database.size_bytes()) < self._limit_bytes:
            return None
        message = f"{database.path.name} has reached its limit of {self._limit_bytes} bytes: raise database_limit_bytes"
        return StorageFull.at_limit(message, current_bytes=size_bytes, limit_bytes=self._limit_bytes)


def _promoted(operation: Operation, source: SqliteEdits, destination: SqliteEdits, full: StorageFull | None) -> Outcome:
    """The outcome of a promotion, or of its return: the steps of a move between lanes, in one transaction."""
    earlier = destination.outcome_of(operation.operation_id) or source.outcome_of(operation.operation_id)
    if earlier is not None:
        return Outcome(earlier)
    if full is not None:
        return Outcome(full)
    try:
        memory = carry_out(begin_move(Planner(operation, source)), source.apply)
    except (InvalidInput, NotFound) as refusal:
        return Outcome(refusal)
    received = destination.carry_out(operation, receive_move(Planner(operation, destination), memory))
    if isinstance(received.reply, Applied):
        assert isinstance(received.reply.result, PromotedResult)
        source.carry_out(operation, end_move(Planner(operation, source), received.reply.result))
    return received


def _apply_alone(connection: SpaceConnection, operation: Operation, session_limit: int | None, now: float) -> Outcome:
    """Apply inside a savepoint: an operation that fails takes nothing with it."""
    connection.execute("SAVEPOINT operation")
    try:
        outcome = SqliteEdits(connection, now).apply_operation(operation, session_limit)
    except UNACCEPTABLE as error:
        connection.execute("ROLLBACK TO operation")
        logger.error("an operation was refused", extra={"operation": operation.operation_id, "reason": str(error)})
        outcome = Outcome(InvalidInput(f"the records refuse this operation: {error}"))
    connection.execute("RELEASE operation")  # not after any other error: that has ended the transaction, or will
    return outcome
