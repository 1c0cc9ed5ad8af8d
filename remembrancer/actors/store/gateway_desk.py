"""Where the store and the gateway meet: each request is answered once, with a reply or with an error."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from functools import partial
from typing import Any, Final, TypeVar

import anyio

from remembrancer.actors.store.committer import Committer
from remembrancer.actors.store.counting import total_counts
from remembrancer.actors.store.embedding_desk import EmbeddingDesk
from remembrancer.actors.store.index_keeper import IndexKeeper
from remembrancer.actors.store.memory_files import MemoryFiles
from remembrancer.actors.store.quiet import Quiet
from remembrancer.actors.store.recalls import Source, recall
from remembrancer.actors.store.records import Outcome, Records, Vectors
from remembrancer.actors.store.schema import SCHEMA_VERSION
from remembrancer.protocol.envelope import Envelope
from remembrancer.protocol.errors import InternalError, MemoryUnavailable, RemembrancerError
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.reads import (
    AwaitEmbedding,
    DescribeStore,
    EmbeddingState,
    EmbeddingSummary,
    Recall,
    Recalled,
    StoreDescription,
)
from remembrancer.protocol.sockets import Peer, Router
from remembrancer.protocol.wire import GatewayRequest, ToStore
from remembrancer.protocol.writes import Applied, BatchApplied, Operation, ProjectRef, Rejected, Submit, SubmitBatch

QUERY_VECTOR_TIMEOUT_S: Final = 1.0
"""How long a recall waits for its query's vector before it goes on with words alone."""
ANSWER_MARGIN_S: Final = 0.1
"""What is kept of a deadline for the way back, where an answer that says "not yet" is worth more than none."""
COMPARISON_S: Final = 0.5
"""How long an answer about a memory's vectors waits for the search for its near-duplicates, which goes on."""
DEFAULT_DEADLINE_S: Final = 5.0

T = TypeVar("T")
logger = logging.getLogger(__name__)


class GatewayDesk:
    """Carries out the gateway's requests. `embedding` says how the embedding is."""

    def __init__(
        self,
        paths: RuntimePaths,
        files: MemoryFiles,
        committer: Committer,
        index: IndexKeeper,
        desk: EmbeddingDesk,
        threads: Executor,
        quiet: Quiet,
        embedding: Callable[[], EmbeddingSummary],
    ) -> None:
        self._paths = paths
        self._files = files
        self._committer = committer
        self._index = index
        self._desk = desk
        self._threads = threads
        self._quiet = quiet
        self._embedding = embedding
        self._started_at = time.monotonic()
        self._touched: dict[str, list[int]] = defaultdict(list)
        self.draining = False
        """Set before a stop: what comes from then on is refused, and can be queued."""

    def take_touched(self) -> dict[str, list[int]]:
        """The memories that answers have shown since the last call, by file: their accesses are to be counted."""
        touched, self._touched = self._touched, defaultdict(list)
        return touched

    def submit_now(self, router: Router[ToStore], peer: Peer, envelope: Envelope, operation: Operation) -> bool:
        """Take a write whose file is open without a task of its own; False when it is not. Most writes go this way."""
        records = self._files.open_for(operation.change.scope, operation.project)
        if records is None or self.draining:
            return False
        try:
            committed = self._committer.submit(records, [operation])
        except RemembrancerError as error:
            router.refuse_now(peer, error.to_failure(), in_reply_to=envelope.message_id)
            return True

        def answer(done: asyncio.Future[list[Outcome]]) -> None:
            self._quiet.end(time.monotonic())
            reply = self._embed_and_reply(records, done.result())[0]
            if isinstance(reply, RemembrancerError):
                router.refuse_now(peer, reply.to_failure(), in_reply_to=envelope.message_id)
            else:
                router.send_now(peer, reply, in_reply_to=envelope.message_id)

        self._quiet.begin()
        committed.add_done_callback(answer)
        return True

    async def serve(self, router: Router[ToStore], peer: Peer, envelope: Envelope, request: GatewayRequest) -> None:
        """Carry out a request and answer it."""
        if not isinstance(request, (Submit, Recall)):
            await self._answer(router, peer, envelope, request)
            return
        self._quiet.begin()
        try:
            await self._answer(router, peer, envelope, request)
        finally:
            self._quiet.end(time.monotonic())

    async def _answer(self, router: Router[ToStore], peer: Peer, envelope: Envelope, request: GatewayRequest) -> None:
        """The one place where an error of a request becomes a message."""
        try:
            if self.draining:
                raise MemoryUnavailable("the store is stopping")
            reply: Any = await self._carry_out(request, envelope)
        except RemembrancerError as error:
            await router.refuse(peer, error.to_failure(), in_reply_to=envelope.message_id)
        except Exception:
            logger.exception("a request failed", extra={"request": type(request).__name__})
            failure = InternalError("the store failed on this request: see store.log").to_failure()
            await router.refuse(peer, failure, in_reply_to=envelope.message_id)
        else:
            await router.send(peer, reply, in_reply_to=envelope.message_id)

    def _carry_out(self, request: GatewayRequest, envelope: Envelope) -> Awaitable[Any]:
        match request:
            case Submit(operation=operation):
                return self._submit(operation)
            case SubmitBatch(operations=operations):
                return self._submit_batch(operations)
            case Recall():
                return self._recall(request, envelope)
            case AwaitEmbedding():
                return self._await_embedding(request, envelope)
            case DescribeStore():
                return self._describe(request)

    async def _submit(self, operation: Operation) -> Applied:
        outcome = (await self._commit([operation]))[0]
        if isinstance(outcome, RemembrancerError):
            raise outcome
        return outcome

    async def _submit_batch(self, operations: tuple[Operation, ...]) -> BatchApplied:
        """Apply in order. A refusal for good is named and passed over; anything else ends the batch there."""
        applied: list[str] = []
        rejected: list[Rejected] = []
        for _, run in itertools.groupby(operations, _file_of):
            together = list(run)
            try:
                outcomes = await self._commit(together)
            except RemembrancerError as error:
                outcomes = [error] * len(together)
            for operation, outcome in zip(together, outcomes, strict=True):
                if isinstance(outcome, Applied):
                    applied.append(outcome.operation_id)
                elif outcome.retry_possible:
                    return BatchApplied(tuple(applied), tuple(rejected))
                else:
                    rejected.append(Rejected(operation.operation_id, outcome.code, outcome.message))
        return BatchApplied(tuple(applied), tuple(rejected))

    async def _commit(self, operations: list[Operation]) -> list[Applied | RemembrancerError]:
        """Commit operations that belong to one file, together."""
        first = operations[0]
        records = await self._files.for_scope(first.change.scope, first.project)
        return self._embed_and_reply(records, await self._committer.submit(records, operations))

    def _embed_and_reply(self, records: Records, outcomes: list[Outcome]) -> list[Applied | RemembrancerError]:
        to_embed = [outcome.to_embed for outcome in outcomes if outcome.to_embed is not None]
        if to_embed:
            self._desk.enqueue(records.name, to_embed)
        return [outcome.reply for outcome in outcomes]

    async def _recall(self, request: Recall, envelope: Envelope) -> Recalled:
        files = await self._files_in_scope(request)
        sources = [Source(records, self._index.searchable(records.name)) for records in files]
        remaining_s = envelope.remaining_s()
        timeout_s = min(QUERY_VECTOR_TIMEOUT_S, (DEFAULT_DEADLINE_S if remaining_s is None else remaining_s) * 0.6)

        async def embed(text: str) -> Vectors:
            return await self._desk.embed_query(text, timeout_s)

        answer, seen = await recall(request, sources, embed, self._threads, time.time())
        for place, numbers in seen.items():
            self._touched[files[place].name].extend(numbers)
        return answer

    async def _files_in_scope(self, request: Recall) -> list[Records]:
        scopes = request.scopes or ("session", "project", "user")
        files: list[Records] = []
        if {"session", "project"}.intersection(scopes) and self._files.exists(request.project):
            files.append(await self._files.project(request.project))
        if "user" in scopes:
            files.append(self._files.user)
        return files

    async def _await_embedding(self, request: AwaitEmbedding, envelope: Envelope) -> EmbeddingState:
        for records in await self._files_that_exist(request.project):
            number = await self._read(partial(records.number_of, request.memory_id))
            if number is None:
                continue
            remaining_s = envelope.remaining_s()
            timeout_s = DEFAULT_DEADLINE_S if remaining_s is None else max(0.0, remaining_s - ANSWER_MARGIN_S)
            embedded, error = await self._desk.wait_for(records, number, timeout_s)
            if embedded:
                with anyio.move_on_after(COMPARISON_S):
                    await asyncio.shield(asyncio.ensure_future(self._index.check_now(records.name, number)))
            similar = await self._read(partial(records.similar_ids, number, request.session_id))
            return EmbeddingState(request.memory_id, embedded, similar, error)
        return EmbeddingState(request.memory_id, embedded=False, error="there is no such memory")

    async def _describe(self, request: DescribeStore) -> StoreDescription:
        files = await self._files_that_exist(request.project)
        return await self._read(lambda: self._description(files, request))

    async def _files_that_exist(self, project: ProjectRef) -> list[Records]:
        """The user's file, and the project's if it has one: to ask makes none."""
        exists = self._files.exists(project)
        return [self._files.user, await self._files.project(project)] if exists else [self._files.user]

    def _description(self, files: list[Records], request: DescribeStore) -> StoreDescription:
        counts = total_counts([records.counts(request.session_id) for records in files])
        sessions = [records.session(request.session_id) for records in files]
        return StoreDescription(
            counts=counts,
            embedding=self._embedding(),
            database_bytes=sum(records.size_bytes() for records in files),
            database_path=str(self._paths.project_database(request.project.id)),
            uptime_s=time.monotonic() - self._started_at,
            schema_version=SCHEMA_VERSION,
            memories_this_session=sum(stored for _, stored in sessions),
            session_started_at=min((started for started, _ in sessions if started is not None), default=None),
        )

    async def _read(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


def _file_of(operation: Operation) -> str:
    """The file that an operation changes, so far as it can be told without opening it."""
    return "user" if operation.change.scope == "user" else operation.project.id
