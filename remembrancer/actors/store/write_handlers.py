"""Accepts writes: each goes to its file, is committed with the others that wait there, and is answered."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from remembrancer.actors.store.committer import Committer
from remembrancer.actors.store.memory_files import (
    Answer,
    MemoryFiles,
    Target,
    broadest_first,
    find_target,
    is_ready,
    moved_to,
    stays_in,
    target_of,
)
from remembrancer.actors.store.moves import Move
from remembrancer.actors.store.note_files import NoteFiles
from remembrancer.actors.store.records.contract import USER, Outcome
from remembrancer.actors.store.requests import Handler, LoadGate, RequestContext
from remembrancer.actors.store.vectors.embedding_scheduler import EmbeddingScheduler
from remembrancer.actors.store.vectors.vector_spaces import VectorSpaces
from remembrancer.protocol.errors import UNREADABLE, NotFound, RemembrancerError
from remembrancer.protocol.session_life import StartSession
from remembrancer.protocol.tracing import current
from remembrancer.protocol.writes import (
    Applied,
    BatchApplied,
    ErasedResult,
    EraseMemory,
    ImportSessions,
    Operation,
    Rejected,
    RestoredResult,
    StoredResult,
    StoreMemory,
    Submit,
    SubmitBatch,
    UpdatedResult,
    memory_id_of,
)

logger = logging.getLogger(__name__)


class WriteHandlers:
    """Carries out writes. Changed memories are embedded again, and are no longer found by their old text.

    `on_commit` is called with the name of each file after a commit.
    """

    def __init__(
        self,
        files: MemoryFiles,
        committer: Committer,
        vectors: VectorSpaces,
        scheduler: EmbeddingScheduler,
        gate: LoadGate,
        on_commit: Callable[[str], None] = lambda name: None,
    ) -> None:
        self._files = files
        self._committer = committer
        self._vectors = vectors
        self._scheduler = scheduler
        self._gate = gate
        self._on_commit = on_commit
        self._writing: set[asyncio.Future[list[Outcome]]] = set()
        """Writes of notes in progress."""

    def handlers(self) -> dict[type, Handler]:
        """Return the handlers of writes."""
        return {
            Submit: self._take,
            SubmitBatch: lambda request, _: self._submit_batch(request.operations),
            ImportSessions: lambda request, _: self._import_sessions(request),
        }

    def _take(self, request: Submit, context: RequestContext) -> Coroutine[Any, Any, Applied] | None:
        """Answer from the commit's callback if the file is open, as it usually is; otherwise in a task."""
        operation, trace = request.operation, current()
        if isinstance(operation.change, EraseMemory) or not is_ready(self._files, operation):
            return self._take_slowly(request)
        try:
            target = target_of(self._files, operation)
        except RemembrancerError as error:  # an unreadable file
            target = error

        def answer(reply: Answer) -> None:
            self._gate.end(time.monotonic())
            reply = self._completed(operation, reply)
            trace.end("answer ready")
            if isinstance(reply, RemembrancerError):
                context.refuse(reply)
            else:
                context.reply(reply)

        self._gate.begin()
        self._commit_one(target, operation, answer)
        return None

    async def _take_slowly(self, request: Submit) -> Applied:
        with self._gate.serving():
            return await self.submit(request.operation, request.quotes)

    async def submit(self, operation: Operation, quotes: Sequence[str] = ()) -> Applied:
        """Apply one operation; raises the error if it is refused. For `quotes` see `Submit`."""
        target = await find_target(self._files, operation)
        replied: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def answer(reply: Answer) -> None:
            if not replied.done():  # the caller may be gone; the operation is committed all the same
                replied.set_result(reply)

        self._commit_one(target, operation, answer)
        reply = self._completed(operation, await replied)
        if isinstance(reply, RemembrancerError):
            raise reply
        if isinstance(operation.change, EraseMemory) and isinstance(reply.result, ErasedResult):
            gone = tuple(dict.fromkeys((operation.change.memory_id, *reply.result.gone)))
            await self._committer.run(USER, partial(self._files.scrub, gone, quotes, operation.project.id))
        return reply

    async def scrub(self, memory_id: str) -> None:
        """Remove the remains of an erased memory from every space."""
        await self._committer.run(USER, partial(self._files.scrub, (memory_id,)))

    async def _import_sessions(self, request: ImportSessions) -> int:
        records = self._files.user_file if request.project is None else await self._files.project(request.project)
        await self._committer.run(records.name, partial(records.import_sessions, request.sessions))
        return len(request.sessions)

    async def _submit_batch(self, operations: Sequence[Operation]) -> BatchApplied:
        """Apply operations in order. A permanent refusal is reported and skipped; any other error ends the batch."""
        applied: list[str] = []
        rejected: list[Rejected] = []
        left = list(operations)
        while left:
            target, run = await self._next_run(left)
            left = left[len(run) :]
            for operation, reply in zip(run, await self._commit_run(target, run), strict=True):
                if isinstance(reply, Applied):
                    applied.append(reply.operation_id)
                elif reply.retry_possible or reply.code in UNREADABLE:  # the file may become readable again
                    return BatchApplied(tuple(applied), tuple(rejected))
                else:
                    rejected.append(Rejected(operation.operation_id, reply.code, reply.message))
        return BatchApplied(tuple(applied), tuple(rejected))

    async def _next_run(self, operations: Sequence[Operation]) -> tuple[Target | Answer, list[Operation]]:
        """Return the first operations that certainly share a target: a memory's place may depend on earlier
        operations."""
        target = await self._find(operations[0])
        run = [operations[0]]
        if isinstance(target, (Applied, RemembrancerError)):
            return target, run
        touched = {_memory_of(operations[0])}
        for operation in operations[1:]:
            memory = _memory_of(operation)
            if memory in touched and not stays_in(self._files, target, operation):
                break
            if memory not in touched and await self._find(operation) != target:
                break
            run.append(operation)
            touched.add(memory)
        return target, run

    async def _find(self, operation: Operation) -> Target | Answer:
        try:
            return await find_target(self._files, operation)
        except RemembrancerError as error:  # an unreadable file
            return error

    async def _commit_run(
        self, target: Target | Answer, run: list[Operation], *, is_retry: bool = False
    ) -> list[Answer]:
        if isinstance(target, (Applied, RemembrancerError)):
            self._note_without_file(run[0], target)
            return [target]
        try:
            if isinstance(target, NoteFiles):
                outcomes = await target.write(run)
            else:
                outcomes = await self._committer.submit(target, run)
        except RemembrancerError as error:
            return [error] * len(run)
        replies = self._follow_up(target, run, outcomes)
        for place, operation in enumerate(run):
            present = self._moved_from(target, operation, replies[place], is_retry=is_retry)
            if present is not None:
                (replies[place],) = await self._commit_run(present, [operation], is_retry=present == target)
        return replies

    def _commit_one(
        self,
        target: Target | Answer,
        operation: Operation,
        answer: Callable[[Answer], None],
        *,
        is_retry: bool = False,
    ) -> None:
        """Commit an operation and answer it, at once or after the commit."""
        if isinstance(target, (Applied, RemembrancerError)):
            self._note_without_file(operation, target)
            answer(target)
            return

        def done(outcomes: list[Outcome]) -> None:
            (reply,) = self._follow_up(target, [operation], outcomes)
            present = self._moved_from(target, operation, reply, is_retry=is_retry)
            if present is None:
                answer(reply)
            else:
                self._commit_one(present, operation, answer, is_retry=present == target)

        if isinstance(target, NoteFiles):
            writing = asyncio.ensure_future(target.write([operation]))
            self._writing.add(writing)
            writing.add_done_callback(self._writing.discard)
            writing.add_done_callback(lambda written: None if written.cancelled() else done(written.result()))
            return
        try:
            self._committer.commit(target, [operation], done)
        except RemembrancerError as error:
            answer(error)

    def _moved_from(self, target: Target, operation: Operation, reply: Answer, *, is_retry: bool) -> Target | None:
        """Return the target to try next if the memory was moved between the lookup and the commit, perhaps there and
        back. None if it was not moved, or `target` has been tried twice."""
        present = moved_to(self._files, operation, target) if isinstance(reply, NotFound) else None
        return None if is_retry and present == target else present

    def _completed(self, operation: Operation, reply: Answer) -> Answer:
        """Add to a reply the memories of the same text in another file, and the reason if the memory cannot be embedded
        now."""
        if isinstance(reply, RemembrancerError):
            return reply
        change, result = operation.change, reply.result
        if isinstance(change, StoreMemory) and isinstance(result, StoredResult):
            duplicates = dict.fromkeys((*result.duplicates, *self._duplicates(operation, change, result.memory_id)))
            reply = msgspec.structs.replace(reply, result=msgspec.structs.replace(result, duplicates=tuple(duplicates)))
        error = self._scheduler.error
        if error is None:
            return reply
        match reply.result:
            case StoredResult(already_known=False) | UpdatedResult(re_embedded=True) | RestoredResult(re_embedded=True):
                if not (reply.replayed and self._has_vectors(operation)):
                    return msgspec.structs.replace(reply, embedding_error=error)
        return reply

    def _duplicates(self, operation: Operation, change: StoreMemory, memory_id: str) -> Iterator[str]:
        for records in broadest_first(self._files.lanes_of(operation.project.id)):
            is_other = records.is_users is not (change.scope == "user")
            if is_other and (operation.project.sees_user or not records.is_users):
                with contextlib.suppress(RemembrancerError):  # an unreadable file
                    found = records.surroundings(memory_id, change.content, operation.session_id)
                    yield from (copy.memory_id for copy in found.copies)

    def _has_vectors(self, operation: Operation) -> bool:
        """True if the memory has its vectors, in any space. Used for repeated operations, which are rare: two reads a
        file."""
        memory_id = memory_id_of(operation.change) or ""
        for records in broadest_first(self._files.lanes_of(operation.project.id)):
            number = records.number_of(memory_id)
            if number is not None and self._scheduler.is_embedded(records, number):
                return True
        return False

    def _note_without_file(self, operation: Operation, answer: Answer) -> None:
        """Remember a session that begins or ends in a project without a space. Other operations are ignored."""
        if isinstance(answer, Applied) and self._files.open_project(operation.project) is None:
            self._files.pending_sessions.note(operation)

    def _follow_up(self, target: Target, operations: Sequence[Operation], outcomes: list[Outcome]) -> list[Answer]:
        """Have new content embedded and new sessions recorded, and return the replies."""
        if isinstance(target, NoteFiles):
            return [outcome.reply for outcome in outcomes]
        gains, loses = (target.destination, target.source) if isinstance(target, Move) else (target, target)
        for name in {gains.name, loses.name}:
            self._on_commit(name)
            if gains is not loses:
                self._committer.note_commit(name)
        for operation, outcome in zip(operations, outcomes, strict=True):
            change, reply = operation.change, outcome.reply
            if isinstance(change, StartSession) and isinstance(reply, Applied) and not reply.replayed:
                note = partial(self._files.catalog.note_session, operation.project, change.directory)
                self._committer.run(USER, note).add_done_callback(asyncio.Future.exception)
        return [outcome.reply for outcome in outcomes]


def _memory_of(operation: Operation) -> tuple[str, str]:
    """Return the project and id of an operation's memory: the same id in two projects may be two memories."""
    return operation.project.id, memory_id_of(operation.change) or operation.operation_id
