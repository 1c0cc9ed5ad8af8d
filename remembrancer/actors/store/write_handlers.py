"""Accepts writes: each is committed with the others that wait, and is answered."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial

import msgspec

from remembrancer.actors.store.memory_writer import Forwarded, MemoryWriter
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.actors.store.records.types import USER, Outcome
from remembrancer.actors.store.replaced_memories import ReplacedMemories
from remembrancer.actors.store.requests import Handler, Handlers, RequestContext, StoreParts
from remembrancer.protocol.errors import UNREADABLE, Failure, RemembrancerError
from remembrancer.protocol.session_life import EndSession, RecordEvents, SessionResult, StartSession
from remembrancer.protocol.writes import (
    Applied,
    BatchApplied,
    ErasedResult,
    EraseMemory,
    ImportMemory,
    Operation,
    PortableMemory,
    RestoredResult,
    StoredResult,
    StoreMemory,
    Submit,
    SubmitBatch,
    UpdatedResult,
    WriteNote,
    memory_id_of,
)


class WriteHandlers(Handlers):
    """Carries out writes. Changed memories are embedded again, and are no longer found by their old text.

    `purge_journals` removes erased memories from the journals of shared lanes.
    """

    def __init__(
        self, parts: StoreParts, replaced: ReplacedMemories, purge_journals: Callable[[], Awaitable[None]]
    ) -> None:
        super().__init__(parts)
        self._writer = MemoryWriter(parts.files)
        self._replaced = replaced
        self._purge_journals = purge_journals
        self._starts: dict[str, dict[str, Operation]] = {}
        """The starts of sessions in projects without a space, by project and session. A restart of the store loses
        them."""

    def handlers(self) -> dict[type, Handler]:
        """Return the handlers of writes."""
        return {
            Submit: self.submit,
            SubmitBatch: lambda request, _: self._submit_batch(request.operations),
        }

    async def submit(self, request: Submit, _: RequestContext | None = None) -> Applied:
        """Apply one operation; raises the error if it is refused."""
        operation, quotes = request.operation, request.quotes
        if quotes:  # before the memory, by which they are recognised: a caller who gets an error erases again
            await self._committer.run(USER, partial(self._files.drop_quotes, quotes, operation.project.id))
        reply = await self._apply(operation)
        if isinstance(reply, RemembrancerError):
            raise reply
        if isinstance(operation.change, EraseMemory) and isinstance(reply.result, ErasedResult):
            gone = tuple(dict.fromkeys((operation.change.memory_id, *reply.result.gone)))
            await self.scrub(gone, quotes)
            await self._purge_journals()
        return reply

    async def scrub(self, memory_ids: Sequence[str], quotes: Sequence[str] = ()) -> None:
        """Remove the remains of erased memories from every space."""
        await self._committer.run(USER, partial(self._files.scrub, memory_ids, quotes))

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
            with suppress(RemembrancerError):  # reported by `_apply`
                for operation in run:  # an opening in one of the tasks would let later operations go first
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
        """Apply one operation, committed with those that wait as well, and return the reply."""
        change = operation.change
        try:
            project = await self._open_for(operation)
            if isinstance(change, WriteNote):
                assert project is not None
                outcome: Outcome = await self._files.notes_of(project).write(operation)
            elif isinstance(change, StartSession | EndSession) and project is None:
                # A project gets its space with its first memory; until then a session has nothing to record.
                starts = self._starts.setdefault(operation.project.id, {})
                starts.pop(change.session_id, None)
                if isinstance(change, StartSession):
                    starts[change.session_id] = operation
                outcome = Applied(operation.operation_id, SessionResult(change.session_id))
            else:
                outcome = await self._committer.submit(self._writer, operation)
            if isinstance(outcome, Forwarded):
                outcome = await self._committer.submit(outcome.lane, operation)
                outcome = self._writer.with_copies(operation, outcome)
        except RemembrancerError as error:
            return error
        reply = self._replaced.reply_to(operation, outcome)
        if isinstance(reply, RemembrancerError) or reply.replayed:
            return reply
        self._scheduler.wake()
        match reply.result:
            case SessionResult() if isinstance(change, StartSession) and project is not None:
                note = partial(self._files.catalog.note_session, operation.project, change.directory)
                self._committer.run(USER, note).add_done_callback(asyncio.Future.exception)
            case StoredResult(already_known=False) | UpdatedResult(re_embedded=True) | RestoredResult(re_embedded=True):
                self._scheduler.note_demand()
                reply = msgspec.structs.replace(reply, embedding_error=self._scheduler.error)
        return reply

    async def _open_for(self, operation: Operation) -> Records | None:
        """Return the open space of an operation's project, which is made if the operation needs it; None if there is
        none."""
        await self._files.wait_for_opening()
        match operation.change:
            case StoreMemory(scope=scope) | ImportMemory(memory=PortableMemory(scope=scope)):
                needs_space = scope != "user"
            case change:
                needs_space = isinstance(change, RecordEvents | WriteNote)
        if not needs_space and self._files.open_project(operation.project) is None:
            return None
        project = await self._files.project(operation.project)
        for start in self._starts.pop(operation.project.id, {}).values():
            await self._apply(start)
        return project


def _independent(operations: Sequence[Operation]) -> list[Operation]:
    """Return the first operations of which no two change the same memory: where one finds it may depend on the other.
    The same id in two projects may be two memories. A session ends after its project has got its space."""
    run: list[Operation] = []
    touched: set[tuple[str, str]] = set()
    for operation in operations:
        memory = operation.project.id, memory_id_of(operation.change) or operation.operation_id
        if memory in touched or (run and isinstance(operation.change, EndSession)):
            break
        touched.add(memory)
        run.append(operation)
    return run
