"""Applies the operations of all projects, each to the space of its memory, in one transaction."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec

from remembrancer.actors.store.memory_files import Lanes, MemoryFiles
from remembrancer.actors.store.records.memory_rows import read_copies, read_short_forms
from remembrancer.actors.store.records.space import SpaceConnection
from remembrancer.actors.store.records.sqlite_edits import SqliteEdits, read_applied
from remembrancer.actors.store.records.sqlite_file import Query
from remembrancer.actors.store.records.sqlite_records import Records, apply_each
from remembrancer.actors.store.records.types import RECORDS, Outcome
from remembrancer.memory.changes import is_visible, unknown_memory
from remembrancer.protocol.errors import FileLocked, InvalidInput, NotFound, RemembrancerError
from remembrancer.protocol.runs import ApplyRun, UndoRun
from remembrancer.protocol.session_life import EndSession, RecordEvents, StartSession
from remembrancer.protocol.writes import (
    Applied,
    EraseMemory,
    ImportMemory,
    Operation,
    ProjectRef,
    PromoteMemory,
    StoredResult,
    StoreMemory,
    memory_id_of,
)

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
MOST_COPIES: Final = 5
"""The number of copies that the answer to a store names: an event may have been stored a hundred times."""
_PLACES: Final = """SELECT space FROM memories WHERE space = @SPACE AND id = ?1
    UNION SELECT m.space FROM aliases AS a CROSS JOIN memories AS m ON m.number = a.memory
    WHERE a.alias = ?1 AND m.space = @SPACE"""


class Forwarded(FileLocked, code=FileLocked.code):
    """The operation is still to be applied on the thread of a shared lane."""

    def __init__(self, lane: Records) -> None:
        super().__init__("the shared memories have just been opened: try again in a moment")
        self.lane = lane


class MemoryWriter:
    """Applies operations. Its methods run on the thread of the records."""

    name = RECORDS

    def __init__(self, files: MemoryFiles) -> None:
        self._files = files

    def apply(self, operations: Sequence[Operation]) -> list[Outcome]:
        """Apply the operations in order, in one durable transaction, and return an outcome for each. A repeated id gets
        its earlier answer.

        An operation that cannot be applied changes nothing and does not affect the others. The memory of each is looked
        for within the transaction, in the lanes that its project sees. What belongs to a shared lane is `Forwarded`.
        Raises the errors of the database if it can be neither read nor written.
        """
        changed: set[Records] = set()
        with self._files.database.transaction() as connection:
            outcomes = apply_each(connection, operations, partial(self._apply_one, connection, changed))
        for records in changed:
            records.note_commit()
        return outcomes

    def _apply_one(self, connection: sqlite3.Connection, changed: set[Records], operation: Operation) -> Outcome:
        try:
            lanes = self._files.lanes_of(operation.project.id)
            seen = _seen_by(operation.project, lanes)
            query = SpaceConnection(connection, *{each.space for each in lanes.values()}).query
            earlier = read_applied(query, operation.operation_id)
            if earlier is not None:
                return _with_copies(connection, seen, operation, earlier)
            source, destination = self._place(connection, query, lanes, seen, operation)
            if source.is_shared or destination.is_shared:
                return Forwarded(source if source.is_shared else destination)
            outcome = source.apply_in(connection, operation, destination)
        except RemembrancerError as refusal:
            return refusal
        if isinstance(outcome, Applied):
            changed |= {source, destination}
        return _with_copies(connection, seen, operation, outcome)

    def with_copies(self, operation: Operation, outcome: Outcome) -> Outcome:
        """Return the outcome of an operation that was forwarded, as `apply` returns that of others. Reads on the
        calling thread."""
        with contextlib.suppress(RemembrancerError):
            seen = _seen_by(operation.project, self._files.lanes_of(operation.project.id))
            return self._files.database.read_together(lambda each: _with_copies(each, seen, operation, outcome))
        return outcome

    def _place(
        self, connection: sqlite3.Connection, query: Query, lanes: Lanes, seen: Lanes, operation: Operation
    ) -> tuple[Records, Records]:
        """Return the lane that an operation changes, and the one to which it moves the memory: the same if it moves
        none.

        Raises:
            NotFound: no lane has the memory.
            InvalidInput: the memory cannot move there, or the project's token is not for the user's memories.
            FileLocked: the project is not open.
        """
        change, own = operation.change, lanes.get("session")
        match change:
            case StoreMemory(scope=scope):
                pass
            case StartSession() | EndSession() | RecordEvents():
                scope = "session"
            case ApplyRun(place="user") | UndoRun(place="user"):
                scope = "user"
            case ApplyRun() | UndoRun():
                place = self._files.shared_lane(operation.project.id) if own is None else own
                if own is not None and isinstance(change, UndoRun):
                    run = query("SELECT 1 FROM runs WHERE space = ? AND run_id = ?", (own.space, change.run_id))
                    place = own if run else lanes["project"]
                if place is None:
                    raise NotFound(f"the project {operation.project.id} has no memories")
                return place, place
            case _:
                memory_id = memory_id_of(change)
                assert memory_id is not None, f"a {type(change).__name__} does not change records"
                spaces = {space for (space,) in query(_PLACES, (memory_id,))}
                having = [each for each in seen.values() if each.space in spaces]
                if having:
                    return _from_known(connection, lanes, seen, operation, having[-1])
                if isinstance(change, EraseMemory) and seen:
                    erased = "SELECT 1 FROM erased WHERE space = ? AND memory_id = ?"
                    gone = (each for each in seen.values() if query(erased, (each.space, memory_id)))
                    place = next(gone, seen.get("session") or seen["user"])
                    return place, place
                if not isinstance(change, ImportMemory):
                    raise unknown_memory(memory_id)
                scope = change.memory.scope
        if scope not in lanes:
            raise NOT_OPEN
        if scope not in seen:
            raise NOT_THE_USERS
        return seen[scope], seen[scope]


def _seen_by(project: ProjectRef, lanes: Lanes) -> Lanes:
    """Return the lanes whose memories a project's token may see."""
    return {scope: each for scope, each in lanes.items() if project.sees_user or not each.is_users}


def _with_copies(connection: sqlite3.Connection, seen: Lanes, operation: Operation, outcome: Outcome) -> Outcome:
    """Return the outcome of a store with the memories of the same text in all scopes, and short forms of the ids;
    without them if they cannot be read."""
    change = operation.change
    if isinstance(outcome, RemembrancerError) or not isinstance(outcome.result, StoredResult):
        return outcome
    assert isinstance(change, StoreMemory), "only a store has this result"
    memory_id = outcome.result.memory_id
    query = SpaceConnection(connection, *{each.space for each in seen.values()}).query
    with contextlib.suppress(sqlite3.Error):
        copies = tuple(read_copies(query, memory_id, change.content, operation.session_id, MOST_COPIES))
        result = msgspec.structs.replace(outcome.result, duplicates=copies)
        short_ids = read_short_forms(query, (memory_id, *copies))
        return msgspec.structs.replace(outcome, result=result, short_ids=short_ids)
    return outcome


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
