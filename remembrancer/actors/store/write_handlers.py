"""Accepts writes, finds the space of each, commits it together with other waiting writes, and answers it."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, cast

import msgspec

from remembrancer.actors.sqlite_file import Query
from remembrancer.actors.store.dispatcher import Handler, Handlers, RequestContext, StoreParts
from remembrancer.actors.store.note_files import write_note
from remembrancer.actors.store.records.memory_rows import read_copies
from remembrancer.actors.store.records.space import SpaceConnection
from remembrancer.actors.store.records.sqlite_edits import SqliteEdits, read_applied
from remembrancer.actors.store.records.sqlite_records import Reader, Records, apply_each
from remembrancer.actors.store.records.types import RECORDS, USER, Outcome
from remembrancer.actors.store.replaced_memories import MAX_REPORTED, ReplacedMemories
from remembrancer.actors.store.spaces import HomeSpaces, Lanes, scrub_spaces
from remembrancer.memory.changes import MOVE_UNDONE, is_visible, standing, unknown_memory
from remembrancer.memory.wording import same_in_words
from remembrancer.protocol.errors import UNREADABLE, Failure, FileLocked, InvalidInput, NotFound, RemembrancerError
from remembrancer.protocol.runs import IMPORTS, ApplyRun, UndoRun
from remembrancer.protocol.session_life import EndSession, RecordEvents, SessionResult, StartSession
from remembrancer.protocol.writes import (
    Applied,
    BatchApplied,
    ErasedResult,
    EraseMemory,
    ImportMemory,
    NearMemory,
    Operation,
    PortableMemory,
    ProjectRef,
    PromotedResult,
    PromoteMemory,
    RestoredResult,
    StoredResult,
    StoreMemory,
    Submit,
    SubmitBatch,
    UndoChange,
    UpdatedResult,
    WriteNote,
    memory_id_of,
)

if TYPE_CHECKING:
    from remembrancer.actors.store.shared_lane import SharedLane

NOT_THE_USERS: Final = InvalidInput("this token may not see the user's memories; use scope project or session")
SHARED: Final = (
    "this memory is shared with other machines, which would lose it; store whatever only you need as a new memory, "
    "with the scope user"
)
SHARED_WITH_OTHERS: Final = (
    "this memory is on your own machines only, and the project is shared with others; store what they may read "
    "in the project, as a new memory"
)
MAX_COPIES: Final = 5
"""The number of copies named in the answer to a store, since an event may have been stored a hundred times."""
_PLACES: Final = """SELECT space FROM memories WHERE space = @SPACE AND id = ?1
    UNION SELECT m.space FROM aliases AS a CROSS JOIN memories AS m ON m.number = a.memory
    WHERE a.alias = ?1 AND m.space = @SPACE"""


class WriteHandlers(Handlers):
    """Carries out writes. `purge_journals` removes erased memories from the journals of shared lanes."""

    def __init__(
        self, parts: StoreParts, replaced: ReplacedMemories, purge_journals: Callable[[], Awaitable[None]]
    ) -> None:
        super().__init__(parts)
        self._writer = MemoryWriter(parts.files)
        self._replaced = replaced
        self._purge_journals = purge_journals
        self._starts: dict[str, dict[str, Operation]] = {}
        """The starts of sessions in projects without a space, by project and session; lost if the store restarts."""

    def handlers(self) -> dict[type, Handler]:
        return {Submit: self.submit, SubmitBatch: lambda request, _: self._submit_batch(request.operations)}

    async def submit(self, request: Submit, _: RequestContext | None = None) -> Applied:
        operation, quotes = request.operation, request.quotes
        if quotes:  # before the memory, so that the caller can try again after an error
            await self._committer.run(USER, partial(self._files.drop_quotes, quotes, operation.project.id))
        reply = await self._apply(operation)
        if isinstance(reply, RemembrancerError):
            raise reply
        if isinstance(operation.change, EraseMemory) and isinstance(reply.result, ErasedResult):
            gone = tuple(dict.fromkeys((operation.change.memory_id, *reply.result.gone)))
            await self.scrub(gone, quotes)
            await self._purge_journals()
        return await self._with_near_memories(operation, reply)

    async def _with_near_memories(self, operation: Operation, reply: Applied) -> Applied:
        """Add copies, short ids, and memories that the session's memories probably replace, to the reply to a store."""
        change, result = operation.change, reply.result
        if not (isinstance(change, StoreMemory) and isinstance(result, StoredResult)):
            return reply
        with contextlib.suppress(RemembrancerError):
            seen = _seen_by(operation.project, self._files.lanes_of(operation.project.id))
            reader = Reader.of(list(seen.values()), self._files.database)
            copies = tuple(
                read_copies(reader.spaces.read, result.memory_id, change.content, operation.session_id, MAX_COPIES)
            )
            near: tuple[NearMemory, ...] = ()
            if self._replaced.near_waits(operation):
                near = await self._readers.read(lambda: self._replaced.take(reader, operation, MAX_REPORTED))
            return msgspec.structs.replace(
                reply,
                result=msgspec.structs.replace(result, duplicates=copies),
                short_ids=reader.short_forms((result.memory_id, *copies)),
                near=tuple(it for it in near if it.may_be_done or not same_in_words(it.content, change.content)),
                near_waits=self._replaced.near_waits(operation),
            )
        return reply

    async def scrub(self, memory_ids: Sequence[str], quotes: Sequence[str] = ()) -> None:
        work = partial(scrub_spaces, self._files.database, time.time(), memory_ids, quotes)
        await self._committer.run(USER, work)

    async def _submit_batch(self, operations: Sequence[Operation]) -> BatchApplied:
        """Apply operations in order. If one is refused for good, it is reported and skipped. Any other error ends the
        batch, and is raised if the first operation caused it."""
        applied: list[str] = []
        rejected: dict[str, Failure] = {}
        left = list(operations)
        while left:
            run = _independent(left)
            left = left[len(run) :]
            with contextlib.suppress(RemembrancerError):  # `_apply` reports it
                for operation in run:  # if a task opened it, later operations could go first
                    await self._open_for(operation)
            for operation, reply in zip(run, await asyncio.gather(*map(self._apply, run)), strict=True):
                if isinstance(reply, Applied):
                    applied.append(reply.operation_id)
                elif reply.retry_possible or reply.code in UNREADABLE:  # the file may become readable again
                    if not (applied or rejected):
                        raise reply
                    return BatchApplied(tuple(applied), rejected)
                else:
                    rejected[operation.operation_id] = reply.to_failure()
        return BatchApplied(tuple(applied), rejected)

    async def _apply(self, operation: Operation) -> Outcome:
        change = operation.change
        try:
            project = await self._open_for(operation)
            if isinstance(change, WriteNote):
                assert project is not None
                outcome = await write_note(project, self._committer.run, operation)
            elif isinstance(change, StartSession | EndSession) and project is None:
                # A project gets its space with its first memory. Until then, a session has nothing to record.
                starts = self._starts.setdefault(operation.project.id, {})
                starts.pop(change.session_id, None)
                if isinstance(change, StartSession):
                    starts[change.session_id] = operation
                outcome = Applied(operation.operation_id, SessionResult())
            else:
                outcome = await self._committer.submit(self._writer, operation)
            if isinstance(outcome, Forwarded):
                outcome = await self._committer.submit(outcome.lane, outcome.operation)
        except RemembrancerError as error:
            return error
        if isinstance(outcome, RemembrancerError) or outcome.replayed:
            return outcome
        self._replaced.note_stored(operation, outcome)
        self._scheduler.wake()
        match outcome.result:
            case SessionResult() if isinstance(change, StartSession) and project is not None:
                note = partial(self._files.catalog.note_session, operation.project, change.directory)
                self._committer.run(USER, note).add_done_callback(asyncio.Future.exception)
            case (  # a new text always comes first among changed fields
                StoredResult(already_known=False)
                | UpdatedResult(updated_fields=("content", *_))
                | RestoredResult(restored_fields=("content", *_))
            ):
                outcome = msgspec.structs.replace(outcome, embedding_error=self._scheduler.error)
            case PromotedResult():  # its vectors move with it, and are compared without embedding it again
                for lane in self._files.lanes_of(operation.project.id).values():
                    self._vectors.note_kept(lane.name)
        return outcome

    async def _open_for(self, operation: Operation) -> Records | None:
        """Return an operation's project, which is created if the operation needs it; None if it has no space."""
        await self._files.wait_for_opening()
        match operation.change:
            case StoreMemory(scope=scope) | ImportMemory(memory=PortableMemory(scope=scope)):
                needs_space = scope != "user"
            case PromoteMemory(target_scope=scope):
                needs_space = scope == "project"
            case change:
                needs_space = isinstance(change, RecordEvents | WriteNote)
        if not needs_space and self._files.open_project(operation.project) is None:
            return None
        project = await self._files.project(operation.project)
        for start in self._starts.pop(operation.project.id, {}).values():
            await self._apply(start)
        return project


def _independent(operations: Sequence[Operation]) -> list[Operation]:
    """Return the first operations, up to the second operation on any memory, since one may move it to another space. A
    session's end waits for earlier operations, which may create its project's space."""
    run: list[Operation] = []
    touched: set[tuple[str, str]] = set()
    for operation in operations:
        memory = operation.project.id, memory_id_of(operation.change) or operation.operation_id
        if memory in touched or (run and isinstance(operation.change, EndSession)):
            break
        touched.add(memory)
        run.append(operation)
    return run


class Forwarded(FileLocked, code=FileLocked.code):
    """The operation must still be applied, on the thread of a shared lane."""

    def __init__(self, lane: SharedLane, operation: Operation) -> None:
        super().__init__("the shared memories have just been opened; try again in a moment")
        self.lane = lane
        self.operation = operation


class MemoryWriter:
    name = RECORDS

    def __init__(self, files: HomeSpaces) -> None:
        self._files = files

    def apply(self, operations: Sequence[Operation]) -> list[Outcome]:
        """Apply the operations in order, in one durable transaction. A repeated id gets its earlier answer. An
        operation that cannot be applied changes nothing. Each memory is looked up within the transaction, in the lanes
        that its project sees. Operations on a shared lane are `Forwarded`. Raises the database's errors."""
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
            if (earlier := read_applied(query, operation.operation_id)) is not None:
                return earlier
            operation = _move_back(connection, seen, operation)
            source, destination = self._place(connection, query, lanes, seen, operation)
            for lane in (source, destination):
                if lane.is_shared:
                    return Forwarded(cast("SharedLane", lane), operation)
            outcome = source.apply_in(connection, operation, destination)
        except RemembrancerError as refusal:
            return refusal
        if isinstance(outcome, Applied):
            changed |= {source, destination}
        return outcome

    def _place(
        self, connection: sqlite3.Connection, query: Query, lanes: Lanes, seen: Lanes, operation: Operation
    ) -> tuple[Records, Records]:
        """Return the lane that an operation changes, and the lane to which it moves the memory (or the same lane)."""
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
                if own is not None and isinstance(change, UndoRun) and change.place == "project":
                    of_own = "SELECT 1 FROM runs WHERE space = ? AND run_id = ?"
                    # An import is undone in the lane, since its memories move there if the project is shared later.
                    is_own = not change.run_id.startswith(IMPORTS) and query(of_own, (own.space, change.run_id))
                    place = own if is_own else lanes["project"]
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
            raise FileLocked("the project is being opened; try again in a moment")
        if scope not in seen:
            raise NOT_THE_USERS
        return seen[scope], seen[scope]


def _seen_by(project: ProjectRef, lanes: Lanes) -> Lanes:
    return {scope: each for scope, each in lanes.items() if project.sees_user or not each.is_users}


def _move_back(connection: sqlite3.Connection, seen: Lanes, operation: Operation) -> Operation:
    """Return the operation or, if it undoes a move between lanes, one that moves the memory back."""
    change = operation.change
    if not isinstance(change, UndoChange):
        return operation
    for lane in seen.values():
        edits = SqliteEdits(connection, lane.space, 0.0)
        memory = edits.memory(change.memory_id)
        changes = [] if memory is None else standing(edits.history(memory.id))
        scope = changes[-1].details.get("previous_scope") if changes else None
        if memory is not None and scope in ("project", "user") and change.version in (None, memory.version):
            back = PromoteMemory(change.memory_id, scope, MOVE_UNDONE)
            return msgspec.structs.replace(operation, change=back)
    return operation


def _from_known(
    connection: sqlite3.Connection, lanes: Lanes, seen: Lanes, operation: Operation, found: Records
) -> tuple[Records, Records]:
    change = operation.change
    destination = lanes.get(change.target_scope) if isinstance(change, PromoteMemory) else None
    if destination is None or destination is found or (found.is_users and destination.is_users):
        return found, found
    if destination not in seen.values():
        memory = SqliteEdits(connection, found.space, 0.0).memory(memory_id_of(change) or "")
        assert memory is not None, "it was found in this transaction"
        is_seen = is_visible(memory.now, operation.session_id)
        raise NOT_THE_USERS if is_seen else unknown_memory(memory.id)
    if not found.is_users and found is not lanes.get("session"):
        raise InvalidInput(SHARED, field="target_scope")
    if found.is_shared and destination.is_shared:
        raise InvalidInput(SHARED_WITH_OTHERS, field="target_scope")
    return found, destination
