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
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar, get_args

import anyio
import msgspec

from remembrancer.actors.store.code_handlers import CodeHandlers
from remembrancer.actors.store.explaining import DEFAULT_RULES, Circumstances, Rules, explain
from remembrancer.actors.store.memory_files import USER, MemoryFiles
from remembrancer.actors.store.readers import Readers
from remembrancer.actors.store.records.contract import Vectors
from remembrancer.actors.store.records.sessions import describe_session
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.actors.store.replaced_memories import ReplacedMemories
from remembrancer.actors.store.requests import Handler, LoadGate, RequestContext
from remembrancer.actors.store.retrieval.context import Gathering
from remembrancer.actors.store.retrieval.graph_search import search_graph, suggest
from remembrancer.actors.store.retrieval.recalls import recall
from remembrancer.actors.store.retrieval.view import PROJECTS, Ref, Source, View
from remembrancer.actors.store.vectors.embedding_scheduler import EmbeddingScheduler
from remembrancer.actors.store.vectors.vector_spaces import VectorSpaces
from remembrancer.memory.changes import unknown_memory
from remembrancer.memory.decay import is_stale, memory_strength
from remembrancer.memory.limits import LISTED_BYTES, MAX_ANSWER_BYTES, first_that_fit
from remembrancer.memory.promotion import used_in
from remembrancer.memory.ranking import DEFAULT_WEIGHTS, Weights, is_given_whole
from remembrancer.memory.sentences import first_words
from remembrancer.memory.short_ids import LEAST, NAMED, has_part, keys_of, short_forms
from remembrancer.protocol.browsing import BrowserRequest, FindPairs, PairsFound
from remembrancer.protocol.consolidation import ReadSession
from remembrancer.protocol.errors import (
    DeadlineExceeded,
    FileLocked,
    NotFound,
    RecordsUnusable,
    RemembrancerError,
)
from remembrancer.protocol.kinds import SCOPES, Scope
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.reads import (
    AwaitEmbedding,
    ContextGathered,
    Counts,
    DescribeSession,
    DescribeStore,
    Doubt,
    EmbeddingState,
    EmbeddingSummary,
    Filters,
    FindIds,
    FollowLinks,
    GatherContext,
    GetMemory,
    GraphFound,
    IdsFound,
    LinksFound,
    Listed,
    ListedMemory,
    ListMemories,
    MemoryShown,
    NoteAccess,
    Notice,
    Promotion,
    Recall,
    Recalled,
    SearchGraph,
    SessionDescription,
    StoreDescription,
    Suggest,
)
from remembrancer.protocol.tracing import current
from remembrancer.protocol.work import AskModels, ChooseModel, ModelProgress
from remembrancer.protocol.writes import NearMemory, PortableMemory, ProjectRef

QUERY_VECTOR_SHARE: Final = 0.5
"""Of the time that a read may take: how long it waits for its query's vector before it goes on with words alone."""
ANSWER_MARGIN_S: Final = 0.1
"""The part of a deadline that is kept for the way back, where an answer that says "not yet" is worth more than none."""
DEFAULT_DEADLINE_S: Final = 5.0
LOADED_AT_ONCE: Final = 32
"""Memories of a list that are read together."""
RECALLED_BYTES: Final = 4 * MAX_ANSWER_BYTES
"""Of the memories of a recall of which parts are to be shown, as many as a budget of tokens allows."""

CANDIDATE_WORDS: Final = 8
"""Words of a memory by which it is told from others whose ids are alike."""
WHAT_TO_DO: Final = "'remembrancer doctor' examines it, 'remembrancer backup restore' puts a backup in its place"

T = TypeVar("T")
R = TypeVar("R", LinksFound, Recalled, GraphFound, ContextGathered)
logger = logging.getLogger(__name__)


DOUBTS: Final = 20
"""Pairs of memories that the description of a store names."""


class ReadHandlers:
    """Answers the questions of clients. `embedding` says how the embedding is."""

    def __init__(
        self,
        paths: RuntimePaths,
        files: MemoryFiles,
        vectors: VectorSpaces,
        scheduler: EmbeddingScheduler,
        readers: Readers,
        gate: LoadGate,
        embedding: Callable[[], EmbeddingSummary],
        replaced: ReplacedMemories,
        notes_of: Callable[[Recall, str | None], Awaitable[Source | None]],
        code: CodeHandlers,
        weights: Weights = DEFAULT_WEIGHTS,
        *,
        lane_notices: Callable[[str], tuple[Notice, ...]] = lambda _: (),
        rules: Rules = DEFAULT_RULES,
        read_budget_s: float = 2.0,
    ) -> None:
        self._paths = paths
        self._files = files
        self._vectors = vectors
        self._scheduler = scheduler
        self._readers = readers
        self._gate = gate
        self._embedding = embedding
        self._replaced = replaced
        self._notes_of = notes_of
        self._code = code
        self._weights = weights
        self._rules = rules
        self._lane_notices = lane_notices
        self._vector_timeout_s = QUERY_VECTOR_SHARE * read_budget_s
        self._started_at = time.monotonic()
        self._touched: defaultdict[tuple[str, str], Counter[int]] = defaultdict(Counter)
        self._used: defaultdict[tuple[str, str], set[str]] = defaultdict(set)

    def handlers(self) -> dict[type, Handler]:
        """The handlers of reads."""
        readings: dict[type, Callable[[Any, View], Any]] = {
            GetMemory: self._shown,
            ListMemories: list_memories,
            Suggest: suggest,
            FindIds: find_ids,
            DescribeStore: self._description,
            DescribeSession: describe,
            **dict.fromkeys(get_args(BrowserRequest), lambda request, view: view.reader.browse(request)),
        }
        return {
            Recall: self._recall,
            FollowLinks: self._follow,
            AwaitEmbedding: self._await_embedding,
            SearchGraph: self._search_graph,
            GatherContext: self._gather_context,
            NoteAccess: self._note_access,
            AskModels: self._tell_models,
            ChooseModel: self._choose_model,
            **{kind: partial(self._read, work) for kind, work in readings.items()},
        }

    async def _read(self, work: Callable[[Any, View], Any], request: Any, _context: RequestContext) -> Any:
        """The answer of `work`, which is done on a thread that reads, with the notices if it has a place for them."""
        scopes = (request.scopes if isinstance(request, Filters) else ()) or SCOPES
        answer, notices = await answered(
            await self._readable(request.project, scopes),
            lambda view: self._readers.read(lambda: work(request, view)),
        )
        return with_notices(answer, notices) if "notices" in answer.__struct_fields__ else answer

    def take_touched(self) -> dict[tuple[str, str], tuple[Counter[int], set[str]]]:
        """The accesses to be counted: how often answers have shown memories since the last call, by file and session.

        Beside that, the ids of those that were used.
        """
        touched, used = self._touched, self._used
        self._touched, self._used = defaultdict(Counter), defaultdict(set)
        return {key: (touched.get(key, Counter()), used.get(key, set())) for key in {**touched, **used}}

    async def _recall(self, request: Recall, context: RequestContext) -> Recalled:
        async with self._readers.turn(request.project.id):
            if context.remaining_s(DEFAULT_DEADLINE_S) <= 0:
                raise DeadlineExceeded("other recalls came first, and took all of its time")
            return await self._recalled(request, context)

    async def _recalled(self, request: Recall, context: RequestContext) -> Recalled:
        model = self._scheduler.answering.key
        scopes = request.scopes or SCOPES if not request.sources or "memory" in request.sources else ()
        in_scope = await self._readable(request.project, scopes, model)
        current().mark("files at hand")
        embed, threads = self.embed_within(context, model), self._readers.threads
        notes, without_notes = await self._notes_or_why_not(request, model)

        async def search(view: View) -> Recalled:
            nonlocal without_notes
            if notes is not None:
                try:
                    return await search_in(view.beside(notes))
                except CANNOT_BE_READ as error:  # of the index, or of a file of memories, which is told by itself
                    answer = await search_in(view)
                    without_notes = _without_notes(error)
                    return answer
            return await search_in(view)

        async def search_in(view: View) -> Recalled:
            answer, seen = await recall(request, view, embed, threads, time.time(), self._weights)
            if request.counts_accesses:
                given = [ref for ref, each in zip(seen, answer.memories, strict=True) if is_given_whole(each)]
                self._note_shown(view.by_file(given), request.session_id, used_in(answer.memories))
            return answer

        with self._gate.serving():
            answer = with_notices(*await answered(in_scope, search))
            answer = self._code.beside_code(request.project, answer)
            answer = _sendable(with_notices(answer, without_notes), in_parts=request.with_passages)
            if (missing := self._scheduler.missing) and request.strategy != "keyword":
                text = (
                    f"The model was replaced: {missing} texts wait for its vectors, and were searched by their words."
                )
                answer = with_notices(answer, (Notice("partial_results", text),))
            return answer

    async def _notes_or_why_not(self, request: Recall, model: str | None) -> tuple[Source | None, tuple[Notice, ...]]:
        """The notes to look into; where their index cannot be read, which is derived, the notice that says so."""
        try:
            return await self._notes_of(request, model), ()
        except RemembrancerError as error:
            return None, _without_notes(error)

    def embed_within(self, context: RequestContext, model: str | None) -> Callable[[str], Awaitable[Vectors]]:
        """A function that makes a question's vector by that model in good time for the answer."""
        timeout_s = min(self._vector_timeout_s, context.remaining_s(DEFAULT_DEADLINE_S) * 0.6)
        answer_by = time.monotonic() + timeout_s  # however often it is asked for

        async def embed(text: str) -> Vectors:
            current().mark("vector to be asked for")
            vector = await self._scheduler.embed_query(text, max(0.0, answer_by - time.monotonic()), model)
            current().mark("vector at hand")
            return vector

        return embed

    async def _search_graph(self, request: SearchGraph, _context: RequestContext) -> GraphFound:
        async def search(view: View) -> GraphFound:
            def walk() -> tuple[GraphFound, list[Ref]]:
                with self._code.reading(request.project) as code:
                    about = partial(self._code.memories_about, request.project.id)
                    return search_graph(request, view, time.time(), self._weights, code, about)

            answer, seen = await self._readers.read(walk)
            self._note_shown(view.by_file(seen), request.session_id)
            return answer

        with self._gate.serving():
            return with_notices(*await answered(await self._readable(request.project), search))

    async def _gather_context(self, request: GatherContext, context: RequestContext) -> ContextGathered:
        model = self._scheduler.answering.key
        embed, now = self.embed_within(context, model), time.time()
        threads = self._readers.threads

        # Preferences are the user's alone.
        scopes: tuple[Scope, ...] = SCOPES if any(each != "preferences" for each in request.sections) else ("user",)
        with self._gate.serving():
            return with_notices(
                *await answered(
                    await self._readable(request.project, scopes, model),
                    lambda view: Gathering(request, view, embed, threads, now, self._weights).gathered(),
                )
            )

    async def _note_access(self, request: NoteAccess, _context: RequestContext) -> bool:
        view = (await self._readable(request.project)).view
        filters = Filters(request.session_id, include_forgotten=True)
        seen = await self._readers.read(lambda: view.visible(request.memory_ids, filters))
        self._note_shown({**dict.fromkeys(view.names, ()), **view.by_file(seen)}, request.session_id, request.used)
        return True

    def _note_shown(self, shown: Mapping[str, Sequence[int]], session_id: str, used: Collection[str] = ()) -> None:
        """Count accesses to these memories by their files, and note ids of memories that were used."""
        for name, numbers in shown.items():
            self._touched[name, session_id].update(numbers)
            if used:
                self._used[name, session_id].update(used)

    async def _await_embedding(self, request: AwaitEmbedding, context: RequestContext) -> EmbeddingState:
        view, threads = (await self._readable(request.project)).view, self._readers.threads
        ref = await self._readers.read(lambda: view.find(request.memory_id))
        if ref is None:
            return EmbeddingState(request.memory_id, embedded=False, error="there is no such memory")
        records, number = view.records_of(ref), ref
        timeout_s = context.remaining_s(DEFAULT_DEADLINE_S, ANSWER_MARGIN_S)
        answer_at = anyio.current_time() + timeout_s
        embedded, error = await self._scheduler.wait_for(records, number, timeout_s)
        near: tuple[NearMemory, ...] = ()
        if embedded:
            with anyio.CancelScope(deadline=answer_at):  # the search itself goes on
                comparing = asyncio.ensure_future(self._vectors.check_now(records.name, number, threads))
                await asyncio.shield(comparing)
            near = self._replaced.untold(request.session_id)
        similar = await self._readers.read(lambda: near_duplicates(view, ref, request.session_id))
        return EmbeddingState(request.memory_id, embedded, similar, error, near)

    def _shown(self, request: GetMemory, view: View) -> MemoryShown:
        return show_memory(request, view, self._scheduler.is_embedded, time.time(), self._rules)

    async def _follow(self, request: FollowLinks, _context: RequestContext) -> LinksFound:
        async def follow(view: View) -> LinksFound:
            wanted = (request.memory_ids, request.session_id, request.depth, request.limit + 1)
            found = list((await self._readers.read(lambda: view.reader.follow(*wanted))).items())
            if not found:
                raise unknown_memory(", ".join(request.memory_ids))
            asked = {memory_id: place for place, memory_id in enumerate(request.memory_ids)}
            found.sort(key=lambda item: (item[1].distance, asked.get(item[1].id, 0)))
            lengths = itertools.accumulate(len(each.content) for _, each in found)
            fits = [request.characters is None or length <= request.characters for length in lengths]
            shown = found[: max(1, min(request.limit, sum(fits)))]
            memories = [each for _, each in shown]
            by_file = view.by_file(ref for ref, _ in shown)
            names = {ref: name for name, refs in by_file.items() for ref in refs}
            for place, (number, each) in enumerate(shown):
                touched = self._touched[names[number], request.session_id]
                touched[number] += request.counts_accesses
                if touched[number]:  # shown, and not written down yet
                    count = each.access_count + touched[number]
                    memories[place] = msgspec.structs.replace(each, access_count=count, last_accessed_at=now)
            return LinksFound(tuple(memories), more=len(found) > len(shown))

        now = time.time()
        with self._gate.serving():
            return with_notices(*await answered(await self._readable(request.project), follow))

    async def _tell_models(self, _request: AskModels, _context: RequestContext) -> tuple[ModelProgress, ...]:
        return self._scheduler.models()

    async def _choose_model(self, request: ChooseModel, _context: RequestContext) -> tuple[ModelProgress, ...]:
        await self._scheduler.choose(request.choice)
        return self._scheduler.models()

    def _description(self, request: DescribeStore, view: View) -> StoreDescription:
        start = view.reader.session_start(request.session_id)
        return StoreDescription(
            counts=view.reader.counts(request.session_id),
            embedding=self._embedding(),
            database_bytes=self._files.size_bytes,
            database_path=str(self._paths.database),
            uptime_s=time.monotonic() - self._started_at,
            memories_this_session=start.stored,
            session_started_at=start.started_at,
            proposals=view.reader.proposals(),
            doubts=_doubts(view, request),
        )

    async def _readable(
        self, project: ProjectRef, scopes: Collection[Scope] = SCOPES, model: str | None = None
    ) -> Readable:
        """The project's file if it has one, and the user's, for whom that is, with a model's vectors; where memories
        of these scopes lie. To ask makes no file."""
        files = self._files
        await files.wait_for_opening()
        found = files.users if "user" in scopes and project.sees_user else []
        of_user = self._lane_notices(USER) if found else ()
        is_asked = not PROJECTS.isdisjoint(scopes)
        own = await files.project(project) if is_asked and files.is_there(project) else None
        if own is not None:
            shared = files.lanes_of(project.id)["project"]
            found[:0] = [own] if shared is own else [own, shared]
        sources = [Source(records, self._vectors.searchable(records.name, model)) for records in found]
        view = View(sources, database=files.database)
        # Of the project's lane when that is open: it is since its file is.
        notices = (*files.losses, *self._lane_notices(project.id), *of_user)
        return Readable(view, files.note_unusable, notices)


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


def list_memories(request: ListMemories, view: View) -> Listed:
    """The memories of a list, read as they are taken: a page may end early."""
    if request.valid_at is not None and request.as_of is not None:
        asked = request.session_id, request.project.id, request.valid_at, request.as_of
        known: Iterable[ListedMemory] = (
            memory for _, memory in view.reader.known_as_of(*asked, request.limit, request.offset)
        )
    else:
        refs = view.reader.top(request.filters, request.order, request.offset + request.limit)[request.offset :]
        pages = (refs[begin : begin + LOADED_AT_ONCE] for begin in range(0, len(refs), LOADED_AT_ONCE))
        loaded = ((page, view.load(page, request.filters)) for page in pages)
        known = (ListedMemory(**found[ref].listed()) for page, found in loaded for ref in page if ref in found)
    memories, cut = first_that_fit(known)
    return Listed(memories, cut=cut)


def describe(request: DescribeSession, view: View) -> SessionDescription:
    """The work of a session, by what each space knows of it."""
    return describe_session([records.session_story(request.session_id) for records in reversed(view.records)])


def find_ids(request: FindIds, view: View) -> IdsFound:
    """The memories that parts of ids may stand for, and the short forms of whole ids."""
    known = set(view.reader.ids_with(keys_of([*request.parts, *(each[-LEAST:] for each in request.ids)])))
    filters = Filters(request.session_id, include_forgotten=True)
    candidates: dict[str, list[tuple[str, str]]] = {}
    for part in request.parts:
        seen = view.visible([each for each in known if has_part(each, part)], filters)
        ids = dict(sorted((memory_id, ref) for ref, (memory_id, _) in seen.items()))
        named = view.load(list(ids.values())[:NAMED], filters)
        candidates[part] = [
            (memory_id, first_words(named[ref].content, CANDIDATE_WORDS) if ref in named else "")
            for memory_id, ref in ids.items()
        ]
    return IdsFound(candidates, short_forms(request.ids, known))


def show_memory(
    request: GetMemory,
    view: View,
    is_embedded: Callable[[Records, int], bool],
    now: float,
    rules: Rules,
) -> MemoryShown:
    """The memory, forgotten or not.

    Raises:
        NotFound: there is none that the session may see.
    """
    memory = view.reader.portable(request.memory_id, request.session_id, request.project.id)
    ref = view.find(request.memory_id)
    if memory is None or ref is None:
        raise unknown_memory(request.memory_id)
    records = view.records_of(ref)
    embedded = is_embedded(records, ref)
    accessed_at = memory.created_at if memory.last_accessed_at is None else memory.last_accessed_at
    known = view.reader.surroundings(memory.id, memory.content, request.session_id)
    promotions = promotions_known(memory, known.promotions)
    asked = ReadSession(request.project, memory.session_id)
    session = records.materials(asked).entry if memory.scope == "session" else None
    around = Circumstances(embedded, known.incoming, promotions, session, known.summed_up_in, known.proposal)
    return MemoryShown(
        memory,
        embedded,
        near_duplicates(view, ref, request.session_id),
        strength=memory_strength(
            memory.importance,
            memory.confidence,
            memory.access_count,
            accessed_at,
            memory.scope,
            now,
            is_open=memory.is_open,
        ),
        is_stale=not memory.is_open and is_stale(memory.status, accessed_at, memory.access_count, now),
        incoming=known.incoming,
        promotions=promotions,
        observed_in=known.observed_in,
        found_entities=known.found_entities,
        copies=known.copies,
        reasons=explain(memory, around, now, rules),
    )


def near_duplicates(view: View, ref: Ref, session_id: str) -> tuple[str, ...]:
    """Ids of the nearest near-duplicates of a memory that a session may see, in either direction."""
    found = view.load([ref], Filters(session_id, include_forgotten=True)).get(ref)
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


def _sendable(answer: Recalled, *, in_parts: bool) -> Recalled:
    """The answer without those at its end that are too many bytes. `in_parts`: not all of each is shown."""
    room = RECALLED_BYTES if in_parts else LISTED_BYTES
    lengths = itertools.accumulate(len(memory.content.encode()) for memory in answer.memories)
    kept = max(1, sum(length <= room for length in lengths))
    if kept >= len(answer.memories):
        return answer
    text = (
        f"Of {len(answer.memories)} memories these are the first {kept}: all would be too many bytes for one answer "
        "(ask for something narrower, or with max_tokens)."
    )
    notices = (*answer.notices, Notice("answer_cut", text))
    return msgspec.structs.replace(answer, memories=answer.memories[:kept], notices=notices)


CANNOT_BE_READ: Final = (RecordsUnusable, FileLocked)
"""Errors of a space that is left out of an answer, which says so."""


class Readable(NamedTuple):
    """The view for a question. `note_unusable` is told of damage that shows later; `notices` belong into the answer."""

    view: View
    note_unusable: Callable[[RemembrancerError], None]
    notices: tuple[Notice, ...] = ()


async def answered(question: Readable, work: Callable[[View], Awaitable[T]]) -> tuple[T, tuple[Notice, ...]]:
    """The result of `work` on the spaces that can be read, and notices of those that cannot.

    Damage shows only when a page is read: `work` is done again then, without the space that has it.

    Raises:
        RecordsUnusable, FileLocked: no space is left, or what was asked for may be in the missing one.
        RemembrancerError: what `work` raises.
    """
    view, note_unusable, notices = question
    try:
        return await work(view), notices
    except CANNOT_BE_READ as damage:
        for name in reversed(view.names) if len(view.names) > 1 else ():
            with contextlib.suppress(*CANNOT_BE_READ, NotFound):
                reply = await work(view.without(name))
                logger.warning("answered without a space", extra={"space": name, "reason": damage.message})
                if not isinstance(damage, FileLocked):
                    note_unusable(damage)
                return reply, (_missing("user" if view.is_users(name) else "project", damage), *notices)
        raise


def with_notices(reply: R, missing: tuple[Notice, ...]) -> R:
    """The reply, which says what is missing from it."""
    return msgspec.structs.replace(reply, notices=(*missing, *reply.notices)) if missing else reply


def _without_notes(error: RemembrancerError) -> tuple[Notice, ...]:
    return (Notice("partial_results", f"The notes are missing from this answer: {error.message}."),)


def _missing(whose: str, error: RemembrancerError) -> Notice:
    what_to_do = f" ({WHAT_TO_DO})" if isinstance(error, RecordsUnusable) else ""
    return Notice(error.code, f"The {whose}'s memories are missing from this answer: {error.message}{what_to_do}.")


def _doubts(view: View, request: DescribeStore) -> tuple[Doubt, ...]:
    found = view.reader.browse(FindPairs(request.project, request.session_id, DOUBTS))
    pairs = found.pairs if isinstance(found, PairsFound) else ()
    return tuple(
        Doubt(each.older.id, each.older.content, each.newer.id, each.newer.content)
        for each in pairs
        if each.relation == "contradicts"
    )
