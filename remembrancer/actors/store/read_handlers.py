"""Answers what is asked of the store: from whichever files can be read, with a notice for one that cannot.

Only a file that is needed alone, or that may hold the one memory that was asked for, makes an answer impossible.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Final, NamedTuple, TypeVar

import anyio
import msgspec

from remembrancer.actors.store.explaining import DEFAULT_RULES, Circumstances, Rules, explain
from remembrancer.actors.store.memory_files import USER, MemoryFiles
from remembrancer.actors.store.records.contract import Records, Vectors
from remembrancer.actors.store.records.schema import SCHEMA_VERSION
from remembrancer.actors.store.records.sessions import describe_session
from remembrancer.actors.store.requests import Handler, LoadGate, RequestContext
from remembrancer.actors.store.retrieval.candidates import Source
from remembrancer.actors.store.retrieval.context import Gathering, visible_numbers
from remembrancer.actors.store.retrieval.graph_search import search_graph, suggest
from remembrancer.actors.store.retrieval.recalls import recall
from remembrancer.actors.store.retrieval.reranking import Reranking
from remembrancer.actors.store.vectors.embedding_scheduler import EmbeddingScheduler
from remembrancer.actors.store.vectors.index_manager import IndexManager
from remembrancer.config.settings import Settings
from remembrancer.memory.changes import unknown_memory
from remembrancer.memory.decay import is_stale, memory_strength
from remembrancer.memory.ranking import DEFAULT_WEIGHTS, Weights
from remembrancer.protocol.consolidation import ReadSession
from remembrancer.protocol.errors import FileLocked, NotFound, RecordsUnusable, RemembrancerError, SchemaTooNew
from remembrancer.protocol.kinds import Scope
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.reads import (
    AwaitEmbedding,
    ContextGathered,
    Counts,
    DescribeSession,
    DescribeStore,
    EmbeddingState,
    EmbeddingSummary,
    Filters,
    FollowLinks,
    GatherContext,
    GetMemory,
    GraphFound,
    LinksFound,
    Listed,
    ListedMemory,
    ListMemories,
    MemoryShown,
    NoteAccess,
    Noted,
    Notice,
    Promotion,
    Recall,
    Recalled,
    SearchGraph,
    SessionDescription,
    StoreDescription,
    Suggest,
    Suggestions,
)
from remembrancer.protocol.tracing import current
from remembrancer.protocol.work import AskModels, ChooseModel, ModelsTold
from remembrancer.protocol.writes import PortableMemory, ProjectRef

QUERY_VECTOR_SHARE: Final = 0.5
"""Of the time that a read may take: how long it waits for its query's vector before it goes on with words alone."""
ANSWER_MARGIN_S: Final = 0.1
"""What is kept of a deadline for the way back, where an answer that says "not yet" is worth more than none."""
DEFAULT_DEADLINE_S: Final = 5.0

WHAT_TO_DO: Final = "'remembrancer doctor' examines it, 'remembrancer restore' puts a backup in its place"

T = TypeVar("T")
R = TypeVar("R", Listed, LinksFound, Recalled, GraphFound, ContextGathered, StoreDescription, SessionDescription)
logger = logging.getLogger(__name__)


class ReadHandlers:
    """Answers the questions of clients. `embedding` says how the embedding is.

    `reranker`: the settings that say how much it may cost, where there is one.
    """

    def __init__(
        self,
        paths: RuntimePaths,
        files: MemoryFiles,
        index: IndexManager,
        scheduler: EmbeddingScheduler,
        threads: Executor,
        gate: LoadGate,
        embedding: Callable[[], EmbeddingSummary],
        notes_of: Callable[[Recall, str | None], Awaitable[Source | None]],
        weights: Weights = DEFAULT_WEIGHTS,
        *,
        rules: Rules = DEFAULT_RULES,
        read_budget_s: float = 2.0,
        reranker: Settings | None = None,
    ) -> None:
        self._paths = paths
        self._files = files
        self._index = index
        self._scheduler = scheduler
        self._threads = threads
        self._gate = gate
        self._embedding = embedding
        self._notes_of = notes_of
        self._weights = weights
        self._rules = rules
        self._vector_timeout_s = QUERY_VECTOR_SHARE * read_budget_s
        self._reranker = reranker
        self._started_at = time.monotonic()
        self._touched: defaultdict[tuple[str, str], Counter[int]] = defaultdict(Counter)

    def handlers(self) -> dict[type, Handler]:
        """What is read on request."""
        return {
            Recall: self._recall,
            GetMemory: self._show,
            ListMemories: self._list,
            FollowLinks: self._follow,
            AwaitEmbedding: self._await_embedding,
            SearchGraph: self._search_graph,
            Suggest: self._suggest,
            GatherContext: self._gather_context,
            NoteAccess: self._note_access,
            DescribeStore: self._describe,
            DescribeSession: self._describe_session,
            AskModels: self._tell_models,
            ChooseModel: self._choose_model,
        }

    def take_touched(self) -> dict[tuple[str, str], Counter[int]]:
        """How often answers have shown memories since the last call, by file and session: accesses to be counted."""
        touched, self._touched = self._touched, defaultdict(Counter)
        return touched

    async def _recall(self, request: Recall, context: RequestContext) -> Recalled:
        in_scope = await self._files_in_scope(request)
        current().mark("files at hand")
        model = self._scheduler.answering.key
        embed, reranking = self.embed_within(context, model), self._reranking_within(request.query, context)

        notes = await self._notes_of(request, model)

        async def search(files: Sequence[Records]) -> Recalled:
            sources = [Source(records, self._index.searchable(records.name, model)) for records in files]
            sources += [notes] if notes is not None else []
            answer, seen = await recall(request, sources, embed, self._threads, time.time(), self._weights, reranking)
            for place, numbers in seen.items() if request.counts_accesses else ():
                if place == len(files):  # notes are files, and files count no accesses
                    continue
                self._touched[files[place].name, request.session_id].update(numbers)
            return answer

        with self._gate.serving():
            answer = with_notices(*await answered(in_scope, search))
            if (missing := self._scheduler.missing) and request.strategy != "keyword":
                text = (
                    f"The model was replaced: {missing} texts wait for its vectors, and were searched by their words."
                )
                answer = with_notices(answer, (Notice("partial_results", text),))
            return answer

    def _reranking_within(self, query: str, context: RequestContext) -> Reranking | None:
        """What orders the first candidates anew in good time for the answer; None where that is not asked for."""
        if self._reranker is None:
            return None
        settings = self._reranker
        answer_by = time.monotonic() + context.remaining_s(DEFAULT_DEADLINE_S) * 0.8 - ANSWER_MARGIN_S

        async def ask(query: str, passages: Sequence[str], timeout_s: float) -> Sequence[float]:
            # Counted from here: the search has had its time by now.
            return await self._scheduler.rerank(query, passages, max(0.0, min(timeout_s, answer_by - time.monotonic())))

        return Reranking(ask, settings.reranker_candidates, settings.reranker_budget_s, self._weights.asked(query))

    def embed_within(self, context: RequestContext, model: str | None) -> Callable[[str], Awaitable[Vectors]]:
        """What makes a question's vector by that model in good time for the answer."""
        timeout_s = min(self._vector_timeout_s, context.remaining_s(DEFAULT_DEADLINE_S) * 0.6)
        answer_by = time.monotonic() + timeout_s  # however often it is asked for

        async def embed(text: str) -> Vectors:
            current().mark("vector to be asked for")
            vector = await self._scheduler.embed_query(text, max(0.0, answer_by - time.monotonic()), model)
            current().mark("vector at hand")
            return vector

        return embed

    async def _search_graph(self, request: SearchGraph, _context: RequestContext) -> GraphFound:
        async def search(files: Sequence[Records]) -> GraphFound:
            answer, seen = await self._read(lambda: search_graph(request, files, time.time(), self._weights))
            for place, numbers in seen.items():
                self._touched[files[place].name, request.session_id].update(numbers)
            return answer

        with self._gate.serving():
            return with_notices(*await answered(await self._graph_files(request.project), search))

    async def _suggest(self, request: Suggest, _context: RequestContext) -> Suggestions:
        files = await self._graph_files(request.project)
        suggested, _ = await answered(files, lambda files: self._read(lambda: suggest(request, files)))
        return suggested

    async def _graph_files(self, project: ProjectRef) -> Readable:
        """The project's file first: a name is shown as the project spells it."""
        found = await readable(self._files, project)
        return found._replace(files=found.files[::-1])

    async def _gather_context(self, request: GatherContext, context: RequestContext) -> ContextGathered:
        model = self._scheduler.answering.key
        embed, now = self.embed_within(context, model), time.time()

        async def gather(files: Sequence[Records]) -> ContextGathered:
            sources = [Source(records, self._index.searchable(records.name, model)) for records in files]
            user = next((source for source in sources if source.records.name == USER), None)
            its = next((source for source in sources if source is not user), None)
            return await Gathering(request, its, user, embed, self._threads, now, self._weights).gathered()

        of_project = any(section != "preferences" for section in request.sections)  # which are the user's alone
        with self._gate.serving():
            return with_notices(
                *await answered(await readable(self._files, request.project, of_project=of_project), gather)
            )

    async def _note_access(self, request: NoteAccess, _context: RequestContext) -> Noted:
        for records in (await readable(self._files, request.project)).files:
            seen = await self._read(partial(visible_numbers, records, request.memory_ids, request.session_id))
            self._touched[records.name, request.session_id].update(seen)
        return Noted()

    async def _files_in_scope(self, request: Recall) -> Readable:
        """The project's file first."""
        scopes = request.scopes or ("session", "project", "user")
        of_memory = not request.sources or "memory" in request.sources
        of_project = of_memory and not {"session", "project"}.isdisjoint(scopes)
        of_user = of_memory and "user" in scopes
        found = await readable(self._files, request.project, of_project=of_project, of_user=of_user)
        return found._replace(files=found.files[::-1])

    async def _await_embedding(self, request: AwaitEmbedding, context: RequestContext) -> EmbeddingState:
        question = await readable(self._files, request.project)
        for records in question.files:
            number = await self._read(partial(records.number_of, request.memory_id))
            if number is None:
                continue
            timeout_s = context.remaining_s(DEFAULT_DEADLINE_S, ANSWER_MARGIN_S)
            answer_at = anyio.current_time() + timeout_s
            embedded, error = await self._scheduler.wait_for(records, number, timeout_s)
            if embedded:
                with anyio.CancelScope(deadline=answer_at):  # the search itself goes on
                    comparing = asyncio.ensure_future(self._index.check_now(records.name, number, self._threads))
                    await asyncio.shield(comparing)
            similar = await self._read(partial(near_duplicates, records, number, request.session_id))
            return EmbeddingState(request.memory_id, embedded, similar, error)
        error = "there is no such memory" if question.error is None else question.error.message
        return EmbeddingState(request.memory_id, embedded=False, error=error)

    async def _show(self, request: GetMemory, _context: RequestContext) -> MemoryShown:
        embedded, rules = self._scheduler.is_embedded, self._rules
        shown, _ = await answered(
            await readable(self._files, request.project),
            lambda files: self._read(lambda: show_memory(request, files, embedded, time.time(), rules)),
        )
        return shown

    async def _list(self, request: ListMemories, _context: RequestContext) -> Listed:
        scopes = request.scopes or ("session", "project", "user")
        of_project = not {"session", "project"}.isdisjoint(scopes)
        found = await readable(self._files, request.project, of_project=of_project, of_user="user" in scopes)
        return with_notices(*await answered(found, lambda files: self._read(lambda: list_memories(request, files))))

    async def _follow(self, request: FollowLinks, _context: RequestContext) -> LinksFound:
        async def follow(files: Sequence[Records]) -> LinksFound:
            wanted = (request.memory_ids, request.session_id, request.depth, request.limit + 1)
            by_file = await self._read(lambda: [records.follow(*wanted) for records in files])
            asked = {memory_id: place for place, memory_id in enumerate(request.memory_ids)}
            found = [
                (each, records.name, number)
                for records, its in zip(files, by_file, strict=True)
                for number, each in its.items()
            ]
            if not found:
                raise unknown_memory(", ".join(request.memory_ids))
            found.sort(key=lambda item: (item[0].distance, asked.get(item[0].id, 0)))
            lengths = itertools.accumulate(len(each.content) for each, _, _ in found)
            fits = [request.characters is None or length <= request.characters for length in lengths]
            shown = found[: max(1, min(request.limit, sum(fits)))]
            memories = [each for each, _, _ in shown]
            if request.counts_accesses:
                for place, (each, name, number) in enumerate(shown):
                    touched = self._touched[name, request.session_id]
                    touched[number] += 1
                    count = each.access_count + touched[number]
                    memories[place] = msgspec.structs.replace(each, access_count=count, last_accessed_at=now)
            return LinksFound(tuple(memories), more=len(found) > len(shown))

        now = time.time()
        with self._gate.serving():
            return with_notices(*await answered(await readable(self._files, request.project), follow))

    async def _describe(self, request: DescribeStore, _context: RequestContext) -> StoreDescription:
        found = await readable(self._files, request.project)
        return with_notices(*await answered(found, lambda files: self._read(lambda: self._description(files, request))))

    async def _tell_models(self, _request: AskModels, _context: RequestContext) -> ModelsTold:
        return ModelsTold(self._scheduler.models())

    async def _choose_model(self, request: ChooseModel, _context: RequestContext) -> ModelsTold:
        await self._scheduler.choose(request.choice)
        return ModelsTold(self._scheduler.models())

    async def _describe_session(self, request: DescribeSession, _context: RequestContext) -> SessionDescription:
        def describe(files: Sequence[Records]) -> SessionDescription:
            return describe_session([records.session_story(request.session_id) for records in files])

        found = await readable(self._files, request.project)
        return with_notices(*await answered(found, lambda files: self._read(lambda: describe(files))))

    def _description(self, files: Sequence[Records], request: DescribeStore) -> StoreDescription:
        counts = total_counts([records.counts(request.session_id) for records in files])
        stories = [records.session_story(request.session_id) for records in files]
        return StoreDescription(
            counts=counts,
            embedding=self._embedding(),
            database_bytes=sum(records.sizes(on_disk=True).bytes for records in files),
            database_path=str(self._paths.project_database(request.project.id)),
            uptime_s=time.monotonic() - self._started_at,
            schema_version=SCHEMA_VERSION,
            memories_this_session=sum(sum(story.stored.values()) for story in stories),
            session_started_at=min(
                (story.started_at for story in stories if story.started_at is not None), default=None
            ),
        )

    async def _read(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


def total_counts(all_counts: Sequence[Counts]) -> Counts:
    """The sum of `all_counts`, sort by sort."""
    by_scope: Counter[str] = Counter()
    by_type: Counter[str] = Counter()
    for counts in all_counts:
        by_scope.update(counts.by_scope)
        by_type.update(counts.by_type)
    return Counts(
        total=sum(counts.total for counts in all_counts),
        by_scope=dict(by_scope),
        by_type=dict(by_type),
        forgotten=sum(counts.forgotten for counts in all_counts),
        entities=sum(counts.entities for counts in all_counts),
        relationships=sum(counts.relationships for counts in all_counts),
    )


def list_memories(request: ListMemories, files: Sequence[Records]) -> Listed:
    """A page of the memories of several files in the order asked for."""
    end = request.offset + request.limit

    def key(memory: ListedMemory) -> tuple[float, float, str]:
        if request.order == "valid":
            return 0.0, memory.valid_since, memory.id
        return memory.importance if request.order == "important" else 0.0, memory.happened_at, ""

    if request.valid_at is not None and request.as_of is not None:
        known = request.session_id, request.project.id, request.valid_at, request.as_of
        having = [records for records in files if records.known_as_of(*known, 1)]
        if len(having) == 1:  # nothing to merge it with: the page alone is read
            page = having[0].known_as_of(*known, request.limit, request.offset)
        else:
            found = [each for records in having for each in records.known_as_of(*known, end)]
            page = sorted(found, key=lambda each: (each[0], each[1].id), reverse=True)[request.offset : end]
        return Listed(tuple(memory for _, memory in page))
    tops = [(records, records.top(request.filters, request.order, end)) for records in files]
    begin = request.offset
    if sum(bool(numbers) for _, numbers in tops) == 1:  # nothing to merge it with: the page alone is read
        begin, tops = 0, [(records, numbers[request.offset :]) for records, numbers in tops]
    loaded = [each for records, numbers in tops for each in records.load(numbers, request.filters).values()]
    loaded.sort(key=key, reverse=True)
    return Listed(tuple(ListedMemory(**each.listed()) for each in loaded[begin : begin + request.limit]))


def show_memory(
    request: GetMemory,
    files: Sequence[Records],
    is_embedded: Callable[[Records, int], bool],
    now: float,
    rules: Rules,
) -> MemoryShown:
    """The memory, forgotten or not. `files` are the user's and then the project's: a memory in both is the user's.

    Raises:
        NotFound: there is none that the session may see.
    """
    for records in files:
        memory = records.portable(request.memory_id, request.session_id, request.project.id)
        number = records.number_of(request.memory_id)
        if memory is not None and number is not None:
            found = _shown(request, records, memory, number, is_embedded(records, number), now, rules)
            others = [each for each in files if each is not records]
            copies = (each.surroundings(memory.id, memory.content, request.session_id).copies for each in others)
            return msgspec.structs.replace(found, copies=(*found.copies, *itertools.chain.from_iterable(copies)))
    raise unknown_memory(request.memory_id)


def _shown(
    request: GetMemory,
    records: Records,
    memory: PortableMemory,
    number: int,
    embedded: bool,
    now: float,
    rules: Rules,
) -> MemoryShown:
    accessed_at = memory.created_at if memory.last_accessed_at is None else memory.last_accessed_at
    known = records.surroundings(memory.id, memory.content, request.session_id)
    promotions = promotions_known(memory, known.promotions)
    asked = ReadSession(request.project, memory.session_id, turns=0)
    session = records.materials(asked).entry if memory.scope == "session" else None
    around = Circumstances(embedded, known.incoming, promotions, session, known.summed_up_in)
    return MemoryShown(
        memory,
        embedded,
        near_duplicates(records, number, request.session_id),
        strength=memory_strength(
            memory.importance, memory.confidence, memory.access_count, accessed_at, memory.scope, now
        ),
        is_stale=is_stale(memory.status, accessed_at, memory.access_count, now),
        incoming=known.incoming,
        promotions=promotions,
        observed_in=known.observed_in,
        copies=known.copies,
        reasons=explain(memory, around, now, rules),
    )


def near_duplicates(records: Records, number: int, session_id: str) -> tuple[str, ...]:
    """Ids of the nearest near-duplicates of a memory that a session may see, in either direction."""
    found = records.load([number], Filters(session_id, include_forgotten=True)).get(number)
    return () if found is None else found.near_duplicates


def promotions_known(memory: PortableMemory, logged: Sequence[Promotion]) -> tuple[Promotion, ...]:
    """The log's entries of a memory, and the steps of its chain that another file has logged, the first one first.

    A file logs what was promoted into its scope. What a memory of the user went through in its project is known from
    its chain. Pure.
    """
    known = {(each.memory_id, each.from_scope, each.merged_into is not None) for each in logged}
    scopes: list[Scope] = [step.scope for step in memory.promotion_chain if step.action == "promoted"]
    targets = iter([*scopes[1:], memory.scope])
    target = scopes[0] if scopes else memory.scope
    found = list(logged)
    for step in memory.promotion_chain:
        is_merged = step.action == "merged"
        if not is_merged:
            target = next(targets)
        if (step.memory_id, step.scope, is_merged) not in known:
            found.append(
                Promotion(
                    memory_id=step.memory_id,
                    from_scope=step.scope,
                    to_scope=target,
                    promoted_at=step.promoted_at,
                    reason=step.reason or "",
                    source_session=step.session_id or "",
                    score=step.score,
                    merged_into=memory.id if is_merged else None,
                )
            )
    return tuple(sorted(found, key=lambda each: each.promoted_at))


CANNOT_BE_READ: Final = (RecordsUnusable, SchemaTooNew, FileLocked)
"""Errors of a file that is left out of an answer, which says so."""


class Readable(NamedTuple):
    """The files of a question: the user's first. `error` says why the project's is not among them, if it should be;
    `note_unusable` is told of a file in which damage shows later."""

    files: tuple[Records, ...]
    note_unusable: Callable[[str, RemembrancerError], None]
    error: RemembrancerError | None = None


async def readable(
    files: MemoryFiles, project: ProjectRef, *, of_project: bool = True, of_user: bool = True
) -> Readable:
    """The user's file, for whom that is, and the project's if it has one: to ask makes none."""
    found = (files.user,) if of_user and project.sees_user else ()
    if not of_project or not files.exists(project):
        return Readable(found, files.note_unusable)
    try:
        return Readable((*found, await files.project(project)), files.note_unusable)
    except CANNOT_BE_READ as error:
        return Readable(found, files.note_unusable, error)


async def answered(
    question: Readable, work: Callable[[Sequence[Records]], Awaitable[T]]
) -> tuple[T, tuple[Notice, ...]]:
    """What `work` makes of the files that can be read, and what is missing from it.

    Damage may show only when a page is read: `work` is done again then, without the file that has it.

    Raises:
        RecordsUnusable, SchemaTooNew, FileLocked: no file is left, or what was asked for may be in the missing one.
        RemembrancerError: what `work` raises.
    """
    files, note_unusable, error = question
    if error is not None:
        if not files:
            raise error
        try:
            return await work(files), (_missing("project", error),)
        except NotFound:
            raise error from None
    try:
        return await work(files), ()
    except CANNOT_BE_READ as damage:
        for damaged in files if len(files) > 1 else ():
            with contextlib.suppress(*CANNOT_BE_READ, NotFound):
                reply = await work([each for each in files if each is not damaged])
                logger.warning(
                    "answered without a file", extra={"name_of_file": damaged.name, "reason": damage.message}
                )
                if not isinstance(damage, FileLocked):
                    note_unusable(damaged.name, damage)
                return reply, (_missing("user" if damaged.name == USER else "project", damage),)
        raise


def with_notices(reply: R, missing: tuple[Notice, ...]) -> R:
    """The reply, which says what is missing from it."""
    return msgspec.structs.replace(reply, notices=(*missing, *reply.notices)) if missing else reply


def _missing(whose: str, error: RemembrancerError) -> Notice:
    what_to_do = f" ({WHAT_TO_DO})" if isinstance(error, RecordsUnusable) else ""
    return Notice(error.code, f"The {whose}'s memories are missing from this answer: {error.message}{what_to_do}.")
