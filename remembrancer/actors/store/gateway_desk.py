"""Where the store and the gateway meet: each request is answered once, with a reply or with an error."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any, Final, TypeVar

import anyio

from remembrancer.actors.store.committer import Committer
from remembrancer.actors.store.counting import total_counts
from remembrancer.actors.store.explaining import DEFAULT_RULES, Rules
from remembrancer.actors.store.graph.graph_search import search_graph, suggest
from remembrancer.actors.store.in_part import Readable, answered, readable, told
from remembrancer.actors.store.memory_files import USER, MemoryFiles
from remembrancer.actors.store.quiet import Quiet
from remembrancer.actors.store.records.contract import Records, Vectors
from remembrancer.actors.store.records.schema import SCHEMA_VERSION
from remembrancer.actors.store.records.session_story import describe_session
from remembrancer.actors.store.retrieval.context import Gathering, visible_numbers
from remembrancer.actors.store.retrieval.ranking import DEFAULT_WEIGHTS, Weights
from remembrancer.actors.store.retrieval.recalls import Source, recall
from remembrancer.actors.store.retrieval.reranker_desk import RerankerDesk
from remembrancer.actors.store.retrieval.reranking import Reranking
from remembrancer.actors.store.showing import show_memory
from remembrancer.actors.store.vectors.embedding_desk import EmbeddingDesk
from remembrancer.actors.store.vectors.index_keeper import IndexKeeper
from remembrancer.actors.store.write_desk import WriteDesk
from remembrancer.config.settings import Settings
from remembrancer.protocol.consolidation import Maintain, Maintained, NotePresence, Reflect, Reflected
from remembrancer.protocol.errors import InternalError, MemoryUnavailable, RemembrancerError
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.reads import (
    AwaitEmbedding,
    ContextGathered,
    DescribeSession,
    DescribeStore,
    EmbeddingState,
    EmbeddingSummary,
    GatherContext,
    GetMemory,
    GraphFound,
    MemoryShown,
    NoteAccess,
    Noted,
    Recall,
    Recalled,
    SearchGraph,
    SessionDescription,
    StoreDescription,
    Suggest,
    Suggestions,
)
from remembrancer.protocol.sockets import Peer, Router
from remembrancer.protocol.tracing import current
from remembrancer.protocol.wire import Envelope, GatewayRequest, ToStore
from remembrancer.protocol.writes import (
    Applied,
    ImportSessions,
    Operation,
    ProjectRef,
    SessionsImported,
    Submit,
    SubmitBatch,
)

QUERY_VECTOR_TIMEOUT_S: Final = 1.0
"""How long a recall waits for its query's vector before it goes on with words alone."""
ANSWER_MARGIN_S: Final = 0.1
"""What is kept of a deadline for the way back, where an answer that says "not yet" is worth more than none."""
DEFAULT_DEADLINE_S: Final = 5.0

T = TypeVar("T")
logger = logging.getLogger(__name__)


class GatewayDesk:
    """Carries out the gateway's requests. `embedding` says how the embedding is.

    `on_commit` is told of each file that was written; `delegate` has the consolidator do what is its own to do.
    `reranker`, where there is one, comes with the settings that say how much it may cost.
    """

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
        weights: Weights = DEFAULT_WEIGHTS,
        *,
        rules: Rules = DEFAULT_RULES,
        on_commit: Callable[[str], None],
        delegate: Callable[[Reflect | Maintain, Envelope], Awaitable[Reflected | Maintained]],
        reranker: tuple[RerankerDesk, Settings] | None = None,
    ) -> None:
        self._paths = paths
        self._files = files
        self._committer = committer
        self._index = index
        self._desk = desk
        self._threads = threads
        self._quiet = quiet
        self._embedding = embedding
        self._weights = weights
        self._rules = rules
        self._writes = WriteDesk(files, committer, index, desk, quiet, on_commit)
        self._delegate = delegate
        self._reranker = reranker
        self._started_at = time.monotonic()
        self._touched: dict[tuple[str, str], list[int]] = defaultdict(list)
        self.draining = False
        """Set before a stop: what comes from then on is refused, and can be queued."""

    def take_touched(self) -> dict[tuple[str, str], list[int]]:
        """The memories that answers have shown since the last call, by file and session: accesses to be counted."""
        touched, self._touched = self._touched, defaultdict(list)
        return touched

    def submit_now(self, router: Router[ToStore], peer: Peer, envelope: Envelope, operation: Operation) -> bool:
        """Take a write whose file is open without a task of its own; False when it is not. Most writes go this way."""
        return not self.draining and self._writes.submit_now(router, peer, envelope, operation)

    async def submit(self, operation: Operation) -> Applied:
        """Apply an operation of the store's own. Raises what it is refused with."""
        return await self._writes.submit(operation)

    async def serve(self, router: Router[ToStore], peer: Peer, envelope: Envelope, request: GatewayRequest) -> None:
        """Carry out a request and answer it."""
        if not isinstance(request, (Submit, Recall, GatherContext, SearchGraph)):
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
            current().end("refusal ready")
            await router.refuse(peer, error.to_failure(), in_reply_to=envelope.message_id)
        except Exception:
            logger.exception("a request failed", extra={"request": type(request).__name__})
            failure = InternalError("the store failed on this request: see store.log").to_failure()
            await router.refuse(peer, failure, in_reply_to=envelope.message_id)
        else:
            current().end("answer ready")
            await router.send(peer, reply, in_reply_to=envelope.message_id)

    def _carry_out(self, request: GatewayRequest, envelope: Envelope) -> Awaitable[Any]:
        match request:
            case Submit(operation=operation):
                return self._writes.submit(operation)
            case SubmitBatch(operations=operations):
                return self._writes.submit_batch(operations)
            case Recall():
                return self._recall(request, envelope)
            case GetMemory():
                return self._show(request)
            case AwaitEmbedding():
                return self._await_embedding(request, envelope)
            case SearchGraph():
                return self._search_graph(request)
            case Suggest():
                return self._suggest(request)
            case GatherContext():
                return self._gather_context(request, envelope)
            case NoteAccess():
                return self._note_access(request)
            case DescribeStore():
                return self._describe(request)
            case DescribeSession():
                return self._describe_session(request)
            case ImportSessions():
                return self._import_sessions(request)
            case Reflect() | Maintain():
                return self._delegate(request, envelope)
            case NotePresence():
                raise AssertionError("the actor takes note of it: it has no answer")

    async def _recall(self, request: Recall, envelope: Envelope) -> Recalled:
        in_scope = await self._files_in_scope(request)
        current().mark("files at hand")
        embed, reranking = self._embed_within(envelope), self._reranking_within(envelope)

        async def search(files: Sequence[Records]) -> Recalled:
            sources = [Source(records, self._index.searchable(records.name)) for records in files]
            answer, seen = await recall(request, sources, embed, self._threads, time.time(), self._weights, reranking)
            for place, numbers in seen.items() if request.counts_accesses else ():
                self._touched[files[place].name, request.session_id].extend(numbers)
            return answer

        return told(*await answered(in_scope, search))

    def _reranking_within(self, envelope: Envelope) -> Reranking | None:
        """What orders the first candidates anew in good time for the answer; None where that is not asked for."""
        if self._reranker is None:
            return None
        desk, settings = self._reranker
        remaining_s = envelope.remaining_s()
        left_s = (DEFAULT_DEADLINE_S if remaining_s is None else remaining_s) * 0.8 - ANSWER_MARGIN_S
        answer_by = time.monotonic() + left_s

        async def ask(query: str, passages: Sequence[str], timeout_s: float) -> Sequence[float]:
            # Counted from here: the search has had its time by now.
            return await desk.ask(query, passages, max(0.0, min(timeout_s, answer_by - time.monotonic())))

        return Reranking(ask, settings.reranker_candidates, settings.reranker_budget_s, self._weights.asked())

    def _embed_within(self, envelope: Envelope) -> Callable[[str], Awaitable[Vectors]]:
        """What makes a question's vector in good time for the answer."""
        remaining_s = envelope.remaining_s()
        timeout_s = min(QUERY_VECTOR_TIMEOUT_S, (DEFAULT_DEADLINE_S if remaining_s is None else remaining_s) * 0.6)
        answer_by = time.monotonic() + timeout_s  # however often it is asked for

        async def embed(text: str) -> Vectors:
            current().mark("vector to be asked for")
            vector = await self._desk.embed_query(text, max(0.0, answer_by - time.monotonic()))
            current().mark("vector at hand")
            return vector

        return embed

    async def _search_graph(self, request: SearchGraph) -> GraphFound:
        async def search(files: Sequence[Records]) -> GraphFound:
            answer, seen = await self._read(lambda: search_graph(request, files, time.time(), self._weights))
            for place, numbers in seen.items():
                self._touched[files[place].name, request.session_id].extend(numbers)
            return answer

        return told(*await answered(await self._graph_files(request.project), search))

    async def _suggest(self, request: Suggest) -> Suggestions:
        files = await self._graph_files(request.project)
        suggested, _ = await answered(files, lambda files: self._read(lambda: suggest(request, files)))
        return suggested

    async def _graph_files(self, project: ProjectRef) -> Readable:
        """The project's file first: a name is shown as the project spells it."""
        found = await readable(self._files, project)
        return found._replace(files=found.files[::-1])

    async def _gather_context(self, request: GatherContext, envelope: Envelope) -> ContextGathered:
        embed, now = self._embed_within(envelope), time.time()

        async def gather(files: Sequence[Records]) -> ContextGathered:
            sources = [Source(records, self._index.searchable(records.name)) for records in files]
            user = next((source for source in sources if source.records.name == USER), None)
            its = next((source for source in sources if source is not user), None)
            return await Gathering(request, its, user, embed, self._threads, now, self._weights).gathered()

        of_project = any(section != "preferences" for section in request.sections)  # which are the user's alone
        return told(*await answered(await readable(self._files, request.project, of_project=of_project), gather))

    async def _note_access(self, request: NoteAccess) -> Noted:
        for records in (await readable(self._files, request.project)).files:
            seen = await self._read(partial(visible_numbers, records, request.memory_ids, request.session_id))
            self._touched[records.name, request.session_id].extend(seen)
        return Noted()

    async def _files_in_scope(self, request: Recall) -> Readable:
        """The project's file first."""
        scopes = request.scopes or ("session", "project", "user")
        of_project = not {"session", "project"}.isdisjoint(scopes)
        found = await readable(self._files, request.project, of_project=of_project, of_user="user" in scopes)
        return found._replace(files=found.files[::-1])

    async def _await_embedding(self, request: AwaitEmbedding, envelope: Envelope) -> EmbeddingState:
        question = await readable(self._files, request.project)
        for records in question.files:
            number = await self._read(partial(records.number_of, request.memory_id))
            if number is None:
                continue
            remaining_s = envelope.remaining_s()
            timeout_s = DEFAULT_DEADLINE_S if remaining_s is None else max(0.0, remaining_s - ANSWER_MARGIN_S)
            answer_at = anyio.current_time() + timeout_s
            embedded, error = await self._desk.wait_for(records, number, timeout_s)
            if embedded:
                with anyio.CancelScope(deadline=answer_at):  # the search itself goes on
                    comparing = asyncio.ensure_future(self._index.check_now(records.name, number, self._threads))
                    await asyncio.shield(comparing)
            similar = await self._read(partial(records.similar_ids, number, request.session_id))
            return EmbeddingState(request.memory_id, embedded, similar, error)
        error = "there is no such memory" if question.error is None else question.error.message
        return EmbeddingState(request.memory_id, embedded=False, error=error)

    async def _show(self, request: GetMemory) -> MemoryShown:
        embedded, rules = self._desk.is_embedded, self._rules
        shown, _ = await answered(
            await readable(self._files, request.project),
            lambda files: self._read(lambda: show_memory(request, files, embedded, time.time(), rules)),
        )
        return shown

    async def _describe(self, request: DescribeStore) -> StoreDescription:
        found = await readable(self._files, request.project)
        return told(*await answered(found, lambda files: self._read(lambda: self._description(files, request))))

    async def _describe_session(self, request: DescribeSession) -> SessionDescription:
        def describe(files: Sequence[Records]) -> SessionDescription:
            return describe_session([records.session_story(request.session_id) for records in files])

        found = await readable(self._files, request.project)
        return told(*await answered(found, lambda files: self._read(lambda: describe(files))))

    async def _import_sessions(self, request: ImportSessions) -> SessionsImported:
        records = self._files.user if request.project is None else await self._files.project(request.project)
        await self._committer.run(partial(records.import_sessions, request.sessions))
        return SessionsImported()

    def _description(self, files: Sequence[Records], request: DescribeStore) -> StoreDescription:
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
