"""Applies the operations of all projects, each to the space of its memory, in one transaction."""

import contextlib
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Literal

import msgspec

from remembrancer.actors.store.records.space import Spaces
from remembrancer.actors.store.records.sqlite_edits import SqliteEdits, read_applied
from remembrancer.actors.store.records.sqlite_file import Query, SqliteFile, query_of
from remembrancer.actors.store.records.sqlite_records import Reader, Records, apply_each
from remembrancer.actors.store.records.types import RECORDS, Outcome
from remembrancer.memory.changes import is_visible, unknown_memory
from remembrancer.protocol.errors import FileLocked, InvalidInput, NotFound, RemembrancerError
from remembrancer.protocol.runs import ApplyRun, UndoRun
from remembrancer.protocol.session_life import EndSession, RecordEvents, StartSession
from remembrancer.protocol.writes import (
    EraseMemory,
    ImportMemory,
    Operation,
    PromoteMemory,
    Scope,
    StoredResult,
    StoreMemory,
    memory_id_of,
)

Lanes = Mapping[Scope | Literal["unshared"], Records]
"""The lane of each scope, narrowest first. Several scopes may have the same lane. `unshared` is the own space of a user
who shares a lane, with the memories that could not be shared."""
NOT_THE_USERS: Final = InvalidInput("this token may not see the user's memories: use scope project or session")
SHARED: Final = (
    "this memory is shared with other machines, which would lose it: store what only you need again, with the scope "
    "user"
)
SHARED_WITH_OTHERS: Final = (
    "this memory is on your own machines only, and the project is shared with others: store what they may read again, "
    "in the project"
)
NOT_OPEN: Final = FileLocked("the project is being opened: try again in a moment")
FORWARDED: Final = FileLocked("the shared memories have just been opened: try again in a moment")
_PLACES: Final = """SELECT space FROM memories WHERE space = @SPACE AND id = ?1
    UNION SELECT m.space FROM aliases AS a CROSS JOIN memories AS m ON m.number = a.memory
    WHERE a.alias = ?1 AND m.space = @SPACE"""


@dataclass(frozen=True, slots=True)
class Forwarded(Outcome):
    """The outcome of an operation that is still to be applied on the thread of a shared lane."""

    lane: Records | None = None


class MemoryWriter:
    """Applies operations. Its methods run on the thread of the records.

    `opened` returns the database, and `lanes_of` the lanes of a project's sessions, by the project's id (only the
    user's if the project is not open); `lane_named` returns an open shared lane, by its name.
    """

    name = RECORDS

    def __init__(
        self,
        opened: Callable[[], SqliteFile],
        lanes_of: Callable[[str], Lanes],
        lane_named: Callable[[str], Records | None],
    ) -> None:
        self._opened = opened
        self._lanes_of = lanes_of
        self._lane_named = lane_named

    def apply(self, operations: Sequence[Operation]) -> list[Outcome]:
        """Apply the operations in order, in one durable transaction, and return an outcome for each. A repeated id gets
        its earlier answer.

        An operation that cannot be applied changes nothing and does not affect the others. The memory of each is looked
        for within the transaction, in the lanes that its project sees. What belongs to a shared lane is `Forwarded`.
        """
        changed: set[Records] = set()
        try:
            database = self._opened()
            with database.transaction() as connection:
                apply_one = partial(self._apply_one, database, connection, changed)
                outcomes = apply_each(connection, operations, apply_one)
        except RemembrancerError as error:
            return [Outcome(error) for _ in operations]
        for records in changed:
            records.note_commit()
        return [self.with_duplicates(each, operation) for each, operation in zip(outcomes, operations, strict=True)]

    def _apply_one(
        self, database: SqliteFile, connection: sqlite3.Connection, changed: set[Records], operation: Operation
    ) -> Outcome:
        try:
            lanes = self._lanes_of(operation.project.id)
            query = Spaces(database, [each.space for each in broadest_first(lanes)]).bound(query_of(connection))
            earlier = read_applied(query, operation.operation_id)
            if earlier is not None:
                return Outcome(earlier)
            source, destination = self._place(connection, query, lanes, operation)
            if source.is_shared or destination.is_shared:
                return Forwarded(FORWARDED, lane=source if source.is_shared else destination)
            outcome = source.apply_in(connection, operation, destination)
        except RemembrancerError as refusal:
            return Outcome(refusal)
        if not isinstance(outcome.reply, RemembrancerError):
            changed |= {source, destination}
        return outcome

    def with_duplicates(self, outcome: Outcome, operation: Operation) -> Outcome:
        """Return the outcome of a committed store with the memories of the same text in all scopes, and short forms of
        the ids; without them if a file cannot be read."""
        reply, change = outcome.reply, operation.change
        if isinstance(reply, RemembrancerError) or not isinstance(reply.result, StoredResult):
            return outcome
        assert isinstance(change, StoreMemory), "only a store has this result"
        result = reply.result
        with contextlib.suppress(RemembrancerError):
            lanes = broadest_first(self._lanes_of(operation.project.id))
            seen = [each for each in lanes if operation.project.sees_user or not each.is_users]
            reader = Reader.of(seen, self._opened())
            copies = reader.copies_of(result.memory_id, change.content, operation.session_id)
            short_ids = reader.short_forms({result.memory_id, *copies})
            result = msgspec.structs.replace(result, duplicates=copies)
            return replace(outcome, reply=msgspec.structs.replace(reply, result=result, short_ids=short_ids))
        return outcome

    def _place(
        self, connection: sqlite3.Connection, query: Query, lanes: Lanes, operation: Operation
    ) -> tuple[Records, Records]:
        """Return the lane that an operation changes, and the one to which it moves the memory: the same if it moves
        none.

        Raises:
            NotFound: no lane has the memory.
            InvalidInput: the memory cannot move there, or the project's token is not for the user's memories.
            FileLocked: the project is not open.
        """
        sees_user = operation.project.sees_user
        seen = {scope: each for scope, each in lanes.items() if sees_user or not each.is_users}
        change, own = operation.change, lanes.get("session")
        match change:
            case StoreMemory(scope=scope):
                return _of_scope(lanes, seen, scope)
            case ApplyRun(place="user") | UndoRun(place="user"):
                return _of_scope(lanes, seen, "user")
            case ApplyRun() | UndoRun():
                place = self._lane_named(operation.project.id) if own is None else own
                if own is not None and isinstance(change, UndoRun):
                    run = query("SELECT 1 FROM runs WHERE space = ? AND run_id = ?", (own.space, change.run_id))
                    place = own if run else lanes["project"]
                if place is None:
                    raise NotFound(f"the project {operation.project.id} has no memories")
                return place, place
            case StartSession() | EndSession() | RecordEvents():
                return _of_scope(lanes, seen, "session")
        memory_id = memory_id_of(change)
        assert memory_id is not None, f"a {type(change).__name__} does not change records"
        spaces = {space for (space,) in query(_PLACES, (memory_id,))}
        found = next((each for each in broadest_first(seen) if each.space in spaces), None)
        if found is not None:
            return _from_known(connection, lanes, seen, operation, found)
        match change:
            case EraseMemory():
                erased = "SELECT 1 FROM erased WHERE space = ? AND memory_id = ?"
                gone = (each for each in seen.values() if query(erased, (each.space, memory_id)))
                place = next(gone, seen.get("session", seen.get("user")))
                if place is not None:
                    return place, place
            case ImportMemory(memory=memory):
                return _of_scope(lanes, seen, memory.scope)
        raise unknown_memory(memory_id)


def broadest_first(lanes: Lanes) -> list[Records]:
    """Return each lane once, broadest scope first."""
    return list(dict.fromkeys(reversed(list(lanes.values()))))


def _of_scope(lanes: Lanes, seen: Lanes, scope: Scope) -> tuple[Records, Records]:
    if scope not in lanes:
        raise NOT_OPEN
    if scope not in seen:
        raise NOT_THE_USERS
    return seen[scope], seen[scope]


def _from_known(
    connection: sqlite3.Connection, lanes: Lanes, seen: Lanes, operation: Operation, found: Records
) -> tuple[Records, Records]:
    """Return the lane that has a memory, and the one to which its operation moves it. Raises as `_place`."""
    change = operation.change
    destination = lanes.get(change.target_scope) if isinstance(change, PromoteMemory) else None
    if destination is None or destination is found or (found.is_users and destination.is_users):
        return found, found
    if destination not in seen.values():
        memory = SqliteEdits(connection, found.space, 0.0).memory(memory_id_of(change) or "")
        assert memory is not None, "it was found in this transaction"
        is_seen = is_visible(memory.now.scope, memory.now.session_id, operation.session_id)
        raise NOT_THE_USERS if is_seen else unknown_memory(memory.id)
    if not found.is_users and found is not lanes.get("session"):
        raise InvalidInput(SHARED, field="target_scope")
    if found.is_shared and destination.is_shared:
        raise InvalidInput(SHARED_WITH_OTHERS, field="target_scope")
    return found, destination
