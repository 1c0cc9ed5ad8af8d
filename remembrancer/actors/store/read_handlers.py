"""Answers read requests. If the index of notes cannot be read, a recall is answered without notes."""

import asyncio
import contextlib
import itertools
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Any, Final, TypeVar

import anyio
import msgspec

from remembrancer.actors.store.code_handlers import CodeHandlers
from remembrancer.actors.store.dispatcher import Handler, Handlers, RequestContext, StoreParts, by_request
from remembrancer.actors.store.file_index import FileMemories
from remembrancer.actors.store.records.browsing import BROWSER_READS, doubted_in_review, undo_forgets
from remembrancer.actors.store.records.sqlite_edits import SqliteEdits
from remembrancer.actors.store.replaced_memories import MAX_REPORTED, ReplacedMemories
from remembrancer.actors.store.retrieval.context import Gathering
from remembrancer.actors.store.retrieval.graph_search import search_graph
from remembrancer.actors.store.retrieval.recalls import recall
from remembrancer.actors.store.retrieval.view import PROJECTS, Ref, Source, View
from remembrancer.actors.store.spaces import USER
from remembrancer.memory.changes import unknown_memory
from remembrancer.memory.decay import is_stale, strength_of
from remembrancer.memory.limits import first_that_fit
from remembrancer.memory.promotion import explain
from remembrancer.memory.sentences import first_words
from remembrancer.memory.short_ids import NAMED_CANDIDATES, has_part, keys_of
from remembrancer.protocol.errors import FileLocked, RecordsUnusable, RemembrancerError
from remembrancer.protocol.kinds import SCOPES, Scope
from remembrancer.protocol.reads import (
    AwaitEmbedding,
    ContextGathered,
    DescribeSession,
    DescribeStore,
    EmbeddingState,
    Filters,
    FindIds,
    FollowLinks,
    GatherContext,
    GetMemory,
    GraphFound,
    IdsFound,
    LinkedMemory,
    ListedMemory,
    ListMemories,
    Memories,
    MemoryShown,
    NearFound,
    NoteAccess,
    Recall,
    Recalled,
    SearchGraph,
    StoreDescription,
    TakeNear,
)
from remembrancer.protocol.wire import Notice
from remembrancer.protocol.work import ChooseModel, ModelProgress
from remembrancer.protocol.writes import NearMemory, ProjectRef

LOAD_BATCH: Final = 32

CANDIDATE_WORDS: Final = 8

CANNOT_BE_READ: Final = (RecordsUnusable, FileLocked)
Found = TypeVar("Found", Recalled, GraphFound)
logger = logging.getLogger(__name__)


class ReadHandlers(Handlers):
    def __init__(
        self,
        parts: StoreParts,
        replaced: ReplacedMemories,
        notes_of: Callable[[Recall, str | None], Awaitable[Source | None]],
        code: CodeHandlers,
        lane_notices: Callable[[str], tuple[Notice, ...]],
    ) -> None:
        super().__init__(parts)
        self._replaced = replaced
        self._notes_of = notes_of
        self._code = code
        self._lane_notices = lane_notices
        self._started_at = time.monotonic()
        self._touched = defaultdict[tuple[int, str], tuple[Counter[int], set[str]]](lambda: (Counter(), set()))

    def handlers(self) -> dict[type, Handler]:
        readings: dict[type, Callable[[Any, View], Any]] = {
            **by_request(self._shown, self._description, follow_links, list_memories, find_ids),
            DescribeSession: lambda request, view: view.reader.describe_session(request.session_id),
            **dict.fromkeys(BROWSER_READS, lambda request, view: BROWSER_READS[type(request)](view.reader, request)),
        }
        searches = by_request(self._recall, self._search_graph, self._gather_context)
        others = by_request(self._await_embedding, self._take_near, self._note_access, self._choose_model)
        return searches | others | {kind: partial(self._read, work) for kind, work in readings.items()}

    async def _read(self, work: Callable[[Any, View], Any], request: Any, context: RequestContext) -> Any:
        scopes = (request.scopes if isinstance(request, Filters) else ()) or SCOPES
        view = await self._view(request.project, scopes)
        context.notices = view.notices
        return await self._readers.read(lambda: work(request, view))

    def take_touched(self) -> dict[tuple[int, str], tuple[Counter[int], set[str]]]:
        """Return and reset the accesses by space and session: each memory's count, and the ids of used memories."""
        touched = dict(self._touched)
        self._touched.clear()
        return touched

    async def _recall(self, request: Recall, context: RequestContext) -> Recalled:
        model = self._scheduler.answering.key
        scopes = request.scopes or SCOPES if request.searches_memories else ()
        embed, threads = self.embed_within(context, model), self._readers.threads
        notes, why_not = await self._notes_or_why_not(request, model)
        view = await self._view(request.project, scopes, model, notes)
        try:
            answer = await recall(request, view, embed, threads, time.time())
        except CANNOT_BE_READ as error:  # perhaps only the notes are unreadable
            if notes is None:
                raise
            view, why_not = await self._view(request.project, scopes, model), [_without_notes(error)]
            answer = await recall(request, view, embed, threads, time.time())
        context.notices = [*why_not, *view.notices]
        if request.path and not (answer.memories or why_not or await self._count_notes(request)):
            text = f"No indexed file is at or below {request.path[:200]}."
            context.notices.append(Notice("unknown_path", text))
        answer = await self._code.with_gone_files(request.project, answer)
        answer = msgspec.structs.replace(answer, near_waits=self._replaced.near_waits(request))
        return _sendable(answer, context.notices)

    async def _notes_or_why_not(self, request: Recall, model: str | None) -> tuple[Source | None, list[Notice]]:
        try:
            return await self._notes_of(request, model), []
        except RemembrancerError as error:
            return None, [_without_notes(error)]

    async def _search_graph(self, request: SearchGraph, context: RequestContext) -> GraphFound:
        answer: GraphFound = await self._read(partial(search_graph, now=time.time()), request, context)
        return _sendable(answer, context.notices)

    async def _gather_context(self, request: GatherContext, context: RequestContext) -> ContextGathered:
        model = self._scheduler.answering.key
        # Only the user has preferences.
        scopes: tuple[Scope, ...] = SCOPES if any(each != "preferences" for each in request.sections) else ("user",)
        view = await self._view(request.project, scopes, model)
        context.notices = view.notices
        embed = self.embed_within(context, model)
        gathered = await Gathering(request, view, embed, self._readers.threads, time.time()).gathered()
        question = Recall(project=request.project, session_id="", query="", root=request.root)
        notes = await self._count_notes(question)
        project, near_waits = request.project, self._replaced.near_waits(request)
        may_know_place = request.root and project.code_within is None and project.id not in self._files.shared
        find = partial(self._files.catalog.former_place, project, request.root)
        place = await self._readers.read(find) if may_know_place else ""
        return msgspec.structs.replace(gathered, notes=notes, former_place=place, near_waits=near_waits)

    async def _count_notes(self, request: Recall) -> int:
        source, _ = await self._notes_or_why_not(request, None)
        if source is None or not isinstance(source.texts, FileMemories):
            return 0
        with contextlib.suppress(*CANNOT_BE_READ):  # a recall reports errors of the index
            return await self._readers.read(source.texts.files)
        return 0

    async def _note_access(self, request: NoteAccess, _context: RequestContext) -> bool:
        view = await self._view(request.project)
        filters = Filters(request.session_id, include_forgotten=True)
        named = {*request.memory_ids, *request.used}
        seen = await self._readers.read(lambda: view.visible(named, filters))
        for number, (memory_id, facts) in seen.items():
            shown, used = self._touched[facts.space, request.session_id]
            shown[number] += memory_id in request.memory_ids
            used.update({memory_id} & set(request.used))
        return True

    async def _await_embedding(self, request: AwaitEmbedding, context: RequestContext) -> EmbeddingState:
        view, threads = await self._view(request.project), self._readers.threads
        ref = await self._readers.read(lambda: view.reader.number_of(request.memory_id))
        if ref is None:
            return EmbeddingState(embedded=False, error="there is no such memory")
        records, timeout_s = view.records_of(ref), context.remaining_s()
        answer_at = anyio.current_time() + timeout_s
        embedded, error = await self._scheduler.wait_for(records, ref, timeout_s)
        near: tuple[NearMemory, ...] = ()
        if embedded:
            with anyio.CancelScope(deadline=answer_at):  # the comparison continues after the deadline
                await asyncio.shield(self._vectors.check_now(records.name, ref, threads))
            near = await self._readers.read(lambda: self._replaced.take(view.reader, request, most=MAX_REPORTED))
        similar = await self._readers.read(lambda: near_duplicates(view, ref, request.session_id))
        return EmbeddingState(embedded, similar, error, near)

    async def _take_near(self, request: TakeNear, context: RequestContext) -> NearFound:
        if not self._replaced.near_waits(request):
            return NearFound()
        work = lambda asked, view: self._replaced.take(view.reader, asked)  # noqa: E731
        return NearFound(await self._read(work, request, context))

    def _shown(self, request: GetMemory, view: View) -> MemoryShown:
        memory = view.reader.portable(request.memory_id, request.session_id, request.project.id)
        ref = view.reader.number_of(request.memory_id)
        if memory is None or ref is None:
            raise unknown_memory(request.memory_id)
        known, now = view.reader.surroundings(memory.id, memory.content, request.session_id), time.time()
        records, forgets = view.records_of(ref), False
        if request.with_undo:
            with view.reader.spaces.file.reading() as connection:
                edits = SqliteEdits(connection, records.space, 0.0)
                forgets = undo_forgets(edits, memory.id, request.session_id)
        return MemoryShown(
            **msgspec.structs.asdict(known),
            memory=memory,
            embedded=self._scheduler.is_embedded(records, ref),
            near_duplicates=near_duplicates(view, ref, request.session_id),
            strength=strength_of(memory, now),
            undo_forgets=forgets,
            is_stale=is_stale(memory, now),
            reasons=tuple(explain(memory, known.proposal)),
        )

    async def _choose_model(self, request: ChooseModel, _context: RequestContext) -> tuple[ModelProgress, ...]:
        if request.choice is not msgspec.UNSET:
            await self._scheduler.choose(request.choice)
        return self._scheduler.models()

    def _description(self, request: DescribeStore, view: View) -> StoreDescription:
        session = view.reader.describe_session(request.session_id)
        return StoreDescription(
            counts=view.reader.counts(request.session_id),
            embedding=self._scheduler.summary(),
            database_bytes=self._files.size_bytes,
            uptime_s=time.monotonic() - self._started_at,
            memories_this_session=sum(session.stored_by_type.values()),
            session_started_at=session.started_at,
        )

    async def _view(
        self,
        project: ProjectRef,
        scopes: Collection[Scope] = SCOPES,
        model: str | None = None,
        notes: Source | None = None,
    ) -> View:
        """The spaces for these scopes: the project's, if it exists, and the user's, if the caller may see it."""
        files = self._files
        await files.wait_for_opening()
        found = list(dict.fromkeys((files.user_file, files.user))) if "user" in scopes and project.sees_user else []
        of_user = self._lane_notices(USER) if found else ()
        own = None if PROJECTS.isdisjoint(scopes) else files.open_project(project)
        if own is not None:
            shared = files.lanes_of(project.id)["project"]
            found[:0] = [own] if shared is own else [own, shared]
        sources = [Source(records, self._vectors.searchable(records.name, model)) for records in found]
        view = View(sources, notes, files.database)
        # Includes the notices of the project's lane, which was opened with its space.
        view.notices += (*self._lane_notices(project.id), *of_user)
        return view


def follow_links(request: FollowLinks, view: View) -> Memories[LinkedMemory]:
    """Raises `NotFound` if none of the ids exists."""
    wanted = (request.memory_ids, request.session_id, request.depth, request.limit + 1)
    found = list(view.reader.follow(*wanted).values())
    if not found:
        raise unknown_memory(", ".join(request.memory_ids))
    asked = {memory_id: place for place, memory_id in enumerate(request.memory_ids)}
    found.sort(key=lambda each: (each.distance, asked.get(each.id, 0)))
    lengths = itertools.accumulate(len(each.content) for each in found)
    fits = [request.characters is None or length <= request.characters for length in lengths]
    shown = found[: max(1, min(request.limit, sum(fits)))]
    return Memories(doubted_in_review(view.reader, request.session_id, shown), more=len(found) > len(shown))


def list_memories(request: ListMemories, view: View) -> Memories[ListedMemory]:
    """The memories are read page by page. If an answer has no room for more, the list ends early."""
    refs = view.reader.top(request.filters, request.order, request.offset + request.limit)[request.offset :]
    pages = (refs[begin : begin + LOAD_BATCH] for begin in range(0, len(refs), LOAD_BATCH))
    loaded = ((page, view.load(page, request.filters)) for page in pages)
    memories, cut = first_that_fit(found[ref] for page, found in loaded for ref in page if ref in found)
    return Memories(doubted_in_review(view.reader, request.session_id, memories), more=cut)


def find_ids(request: FindIds, view: View) -> IdsFound:
    known = view.reader.ids_with(keys_of(request.parts)) if request.parts else []
    filters = Filters(request.session_id, include_forgotten=True)
    candidates: dict[str, list[tuple[str, str]]] = {}
    for part in request.parts:
        seen = view.visible([each for each in known if has_part(each, part)], filters)
        ids = dict(sorted((memory_id, ref) for ref, (memory_id, _) in seen.items()))
        named = view.load(list(ids.values())[:NAMED_CANDIDATES], filters)
        candidates[part] = [
            (memory_id, first_words(named[ref].content, CANDIDATE_WORDS) if ref in named else "")
            for memory_id, ref in ids.items()
        ]
    return IdsFound(candidates, view.reader.short_forms(request.ids))


def near_duplicates(view: View, ref: Ref, session_id: str) -> tuple[str, ...]:
    found = view.load([ref], Filters(session_id, include_forgotten=True)).get(ref)
    return () if found is None else found.near_duplicates


def _sendable(answer: Found, notices: list[Notice]) -> Found:
    memories, is_cut = first_that_fit(answer.memories)
    if not is_cut:
        return answer
    text = (
        f"These are the first {len(memories)} of {len(answer.memories)} memories: the whole list is too large for one "
        "answer (narrow the request)."
    )
    notices.append(Notice("answer_cut", text))
    return msgspec.structs.replace(answer, memories=memories)


def _without_notes(error: RemembrancerError) -> Notice:
    return Notice("partial_results", f"The notes are missing from this answer: {error.message}.")
