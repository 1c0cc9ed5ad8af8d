"""Accepts writes: each is committed with the others that wait, and is answered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any

import msgspec

from remembrancer.actors.store.committer import Committer
from remembrancer.actors.store.memory_files import MemoryFiles
from remembrancer.actors.store.memory_writer import Forwarded, MemoryWriter
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.actors.store.records.types import USER, Outcome
from remembrancer.actors.store.requests import Handler, LoadGate, RequestContext
from remembrancer.actors.store.vectors.embedding_scheduler import EmbeddingScheduler
from remembrancer.protocol.errors import UNREADABLE, Failure, RemembrancerError
from remembrancer.protocol.runs import ApplyRun, UndoRun
from remembrancer.protocol.session_life import EndSession, RecordEvents, SessionResult, StartSession
from remembrancer.protocol.tracing import current
from remembrancer.protocol.writes import (
    Applied,
    BatchApplied,
    ErasedResult,
    EraseMemory,
    ImportMemory,
    ImportSessions,
    Operation,
    RestoredResult,
    StoredResult,
    StoreMemory,
    Submit,
    SubmitBatch,
    UpdatedResult,
    WriteNote,
    memory_id_of,
)

Answer = Applied | RemembrancerError


class WriteHandlers:
    """Carries out writes. Changed memories are embedded again, and are no longer found by their old text."""

    def __init__(
        self,
        files: MemoryFiles,
        committer: Committer,
        scheduler: EmbeddingScheduler,
        gate: LoadGate,
    ) -> None:
        self._files = files
        self._committer = committer
        self._writer = MemoryWriter(lambda: files.database, files.lanes_of, files.shared_lane)
        self._scheduler = scheduler
        self._gate = gate

    def handlers(self) -> dict[type, Handler]:
        """Return the handlers of writes."""
        return {
            Submit: self._take,
            SubmitBatch: lambda request, _: self._submit_batch(request.operations),
            ImportSessions: lambda request, _: self._import_sessions(request),
        }

    def _take(self, request: Submit, context: RequestContext) -> Coroutine[Any, Any, Applied] | None:
        """Answer from the commit's callback if no lane, note or opening is involved; otherwise in a task."""
        operation, trace = request.operation, current()
        is_special = isinstance(operation.change, EraseMemory | WriteNote | StartSession | EndSession)
        if is_special or self._files.catalog.lanes or not self._is_ready(operation):
            return self._take_slowly(request)

        def done(outcomes: list[Outcome]) -> None:
            self._gate.end(time.monotonic())
            (reply,) = self._follow_up([operation], outcomes)
            trace.end("answer ready")
            if isinstance(reply, RemembrancerError):
                context.refuse(reply)
            else:
                context.reply(reply)

        self._gate.begin()
        try:
            self._committer.commit(self._writer, [operation], done)
        except RemembrancerError as error:
            done([Outcome(error)])
        return None

    async def _take_slowly(self, request: Submit) -> Applied:
        with self._gate.serving():
            return await self.submit(request.operation, request.quotes)

    async def submit(self, operation: Operation, quotes: Sequence[str] = ()) -> Applied:
        """Apply one operation; raises the error if it is refused. For `quotes` see `Submit`."""
        # A caller may leave: the operation is committed and followed up all the same.
        (reply,) = await asyncio.shield(asyncio.ensure_future(self._commit([operation])))
        if isinstance(reply, RemembrancerError):
            raise reply
        if isinstance(operation.change, EraseMemory) and isinstance(reply.result, ErasedResult):
            gone = tuple(dict.fromkeys((operation.change.memory_id, *reply.result.gone)))
            await self._committer.run(USER, partial(self._files.scrub, gone, quotes, operation.project.id))
            await self._files.purge_journals()
        return reply

    async def scrub(self, memory_id: str) -> None:
        """Remove the remains of an erased memory from every space."""
        await self._committer.run(USER, partial(self._files.scrub, (memory_id,)))

    async def _import_sessions(self, request: ImportSessions) -> int:
        records = self._files.user_file if request.project is None else await self._files.project(request.project)
        await self._committer.run(records.name, partial(records.import_sessions, request.sessions))
        return len(request.sessions)

    async def _submit_batch(self, operations: Sequence[Operation]) -> BatchApplied:
        """Apply operations in order. A permanent refusal is reported and skipped; any other error ends the batch.

        Raises:
            RemembrancerError: the error of the first operation, if it ended the batch.
        """
        applied: list[str] = []
        rejected: dict[str, Failure] = {}
        left = list(operations)
        while left:
            run = _independent(left)
            left = left[len(run) :]
            for operation, reply in zip(run, await self._commit(run), strict=True):
                if isinstance(reply, Applied):
                    applied.append(reply.operation_id)
                elif reply.retry_possible or reply.code in UNREADABLE:  # the file may become readable again
                    if not (applied or rejected):
                        raise reply
                    return BatchApplied(tuple(applied), rejected)
                else:
                    rejected[operation.operation_id] = reply.to_failure()
        return BatchApplied(tuple(applied), rejected)

    async def _commit(self, operations: Sequence[Operation]) -> list[Answer]:
        """Commit operations of which no two change the same memory, and return the replies."""
        outcomes: dict[int, Outcome] = {}
        for place, operation in enumerate(operations):
            try:
                outcome = await self._without_commit(operation)
            except RemembrancerError as error:
                outcome = Outcome(error)
            if outcome is not None:
                outcomes[place] = outcome
        places = [place for place in range(len(operations)) if place not in outcomes]
        await self._commit_at(self._writer, operations, places, outcomes)
        forwarded: dict[Records, list[int]] = {}
        for place, outcome in sorted(outcomes.items()):
            if isinstance(outcome, Forwarded) and outcome.lane is not None:
                forwarded.setdefault(outcome.lane, []).append(place)
        for lane, places in forwarded.items():
            await self._commit_at(lane, operations, places, outcomes)
            for place in places:
                outcomes[place] = self._writer.with_duplicates(outcomes[place], operations[place])
            self._scheduler.wake()
        return self._follow_up(operations, [outcomes[place] for place in range(len(operations))])

    async def _commit_at(
        self,
        target: MemoryWriter | Records,
        operations: Sequence[Operation],
        places: Sequence[int],
        outcomes: dict[int, Outcome],
    ) -> None:
        """Commit the operations of these places to a target, and add their outcomes."""
        if not places:
            return
        try:
            done = await self._committer.submit(target, [operations[place] for place in places])
        except RemembrancerError as error:
            done = [Outcome(error)] * len(places)
        outcomes.update(zip(places, done, strict=True))

    async def _without_commit(self, operation: Operation) -> Outcome | None:
        """Return the outcome of an operation that is no change of records, having opened its project; else None."""
        await self._files.wait_for_opening()
        if not self._is_ready(operation):
            await self._files.project(operation.project)
        project, change = self._files.open_project(operation.project), operation.change
        if isinstance(change, WriteNote):
            assert project is not None
            return await self._files.notes_of(project).write(operation)
        if isinstance(change, StartSession | EndSession) and project is None:
            # A project gets its space with its first memory; until then a session has nothing to record.
            self._files.note_session(operation, change)
            return Outcome(Applied(operation.operation_id, SessionResult(change.session_id, "active")))
        return None

    def _follow_up(self, operations: Sequence[Operation], outcomes: Sequence[Outcome]) -> list[Answer]:
        """Have new content embedded and new sessions recorded, and return the replies."""
        if any(outcome.is_new for outcome in outcomes):
            self._scheduler.wake()
        for operation, outcome in zip(operations, outcomes, strict=True):
            change = operation.change
            if isinstance(change, StartSession) and outcome.is_new:
                note = partial(self._files.catalog.note_session, operation.project, change.directory)
                self._committer.run(USER, note).add_done_callback(asyncio.Future.exception)
        return [self._completed(each) for each in outcomes]

    def _completed(self, outcome: Outcome) -> Answer:
        """Return the reply, with the reason if the memory that was written cannot be embedded now."""
        reply, error = outcome.reply, self._scheduler.error
        if isinstance(reply, RemembrancerError) or reply.replayed or error is None:
            return reply
        match reply.result:
            case StoredResult(already_known=False) | UpdatedResult(re_embedded=True) | RestoredResult(re_embedded=True):
                return msgspec.structs.replace(reply, embedding_error=error)
        return reply

    def _is_ready(self, operation: Operation) -> bool:
        """True if the database is open, and so is the project's space if the operation needs it."""
        if not self._files.is_open:
            return False
        if self._files.open_project(operation.project) is not None:
            return True
        match operation.change:
            case StoreMemory(scope=scope):
                return scope == "user"
            case ApplyRun(place="user") | UndoRun(place="user"):
                return True
            case RecordEvents() | WriteNote():
                return False
            case ImportMemory(memory=memory) if memory.scope != "user":
                return False
            case _:
                return not self._files.is_there(operation.project)


def _independent(operations: Sequence[Operation]) -> list[Operation]:
    """Return the first operations of which no two change the same memory: where one finds it may depend on the other.
    The same id in two projects may be two memories."""
    run: list[Operation] = []
    touched: set[tuple[str, str]] = set()
    for operation in operations:
        memory = operation.project.id, memory_id_of(operation.change) or operation.operation_id
        if memory in touched:
            break
        touched.add(memory)
        run.append(operation)
    return run
