"""The gateway's access to the store. A write goes to the store if it is available, and into the write queue if not. A
read waits for a restarting store for as long as the call may take, and then gets the previous answer."""

import asyncio
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

import anyio
import anyio.abc
import anyio.to_thread
import msgspec

from remembrancer.actors.gateway.shown_log import ShownLog
from remembrancer.actors.gateway.write_queue import NOTES, USER_LANE, Drain, WriteQueue
from remembrancer.code.actions import PastActions
from remembrancer.config.settings import Settings
from remembrancer.memory.changes import texts_of
from remembrancer.memory.contexts import in_sections
from remembrancer.memory.sentences import quotable
from remembrancer.protocol.control import RuntimeStatus
from remembrancer.protocol.errors import (
    DeadlineExceeded,
    Failure,
    FileLocked,
    JournalAway,
    MemoryUnavailable,
    NotFound,
    PeerLost,
    PeerUnavailable,
    QueueFull,
    RecordsUnusable,
    RemembrancerError,
)
from remembrancer.protocol.files import DescribeFiles, ListFiles, SyncFiles
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.problems import Problem, find_problems, launcher_silent
from remembrancer.protocol.reads import (
    AwaitEmbedding,
    ContextGathered,
    EmbeddingState,
    FindIds,
    GatherContext,
    GetMemory,
    GraphFound,
    NoteAccess,
    Recall,
    Recalled,
    RecalledMemory,
)
from remembrancer.protocol.sockets import Reply
from remembrancer.protocol.store_client import AWAY, StoreClient
from remembrancer.protocol.wire import Notice, Request
from remembrancer.protocol.writes import ErasedResult, EraseMemory, Operation, ProjectRef, Submit, memory_id_of
from remembrancer.toolsets.memory.answers import iso
from remembrancer.toolsets.service import Asked, Caller, MemoryService, SessionState, Written

WRITE_SHARE: Final = 0.25
"""The fraction of a call's budget for which a write waits for the store before it is queued."""
MIN_BUDGET_S: Final = 0.25
"""The minimum budget of a request, however long its client has waited."""
LOST_PAUSE_S: Final = 0.02
"""The pause before a request is sent again after its connection was lost."""
MARGIN_S: Final = 0.2
"""The time reserved for returning the answer."""
ERASE_S: Final = 30.0
"""The time limit for erasing a memory, which includes rebuilding the word index."""
MAX_REFUSED: Final = 20
"""The maximum number of notices about refused writes kept for a session's next answer."""
MOST_SESSIONS: Final = 512
"""The maximum number of sessions for which state is kept."""
MAX_ANSWERS: Final = 100
T = TypeVar("T")
logger = logging.getLogger(__name__)


class LastAnswers:
    """The last answers, by request, with the times of their arrival (seconds since the epoch). A request names its
    project and session, so nobody gets another's answer."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Request[Any], tuple[Any, float]] = OrderedDict()

    def put(self, question: Request[Any], received_at: float, reply: Any) -> None:
        if isinstance(question, FindIds):  # a short id may have become ambiguous
            return
        question = _timeless(question, received_at)
        self._kept[question] = reply, time.time()
        self._kept.move_to_end(question)
        if len(self._kept) > MAX_ANSWERS:
            self._kept.popitem(last=False)

    def find(self, question: Request[Any], received_at: float) -> tuple[Any, float] | None:
        return self._kept.get(_timeless(question, received_at))

    def last_shown(self, project: ProjectRef, session_id: str) -> tuple[tuple[RecalledMemory, ...], float] | None:
        """The memories in a session's last answer that contained any, and the time of that answer."""
        for question, (reply, at) in reversed(self._kept.items()):
            asker = getattr(question, "project", None), getattr(question, "session_id", None)
            is_of_memories = isinstance(reply, Recalled | GraphFound | ContextGathered)
            if asker == (project, session_id) and is_of_memories and reply.memories:
                return reply.memories, at
        return None

    def clear(self) -> None:
        """Forget all answers: any of them may contain a memory that was deleted for good."""
        self._kept.clear()


def _timeless(question: Request[Any], received_at: float) -> Request[Any]:
    """The request without its reference time, which makes it equal to a later request for the current state."""
    if getattr(question, "valid_at", None) == received_at:
        return msgspec.structs.replace(question, valid_at=math.inf)
    return question


class StoreAccess(MemoryService):
    """Reads, writes and counts on behalf of tools, resources, hooks and sessions. Run `run` as a task."""

    def __init__(
        self,
        store: StoreClient,
        queue: WriteQueue,
        settings: Settings,
        paths: RuntimePaths,
        tasks: anyio.abc.TaskGroup,
        open_browser: Callable[[], Awaitable[str]],
        ask_status: Callable[[], Awaitable[RuntimeStatus]],
    ) -> None:
        self.settings = settings
        self.paths = paths
        self._store = store
        self.store_health = store.health
        self.past_actions: dict[str, PastActions] = {}
        self._told_of_data: set[str] = set()
        self._sessions: dict[tuple[str, str], SessionState] = {}
        self._queue = queue
        self._tasks = tasks
        self.writes = WriteNews()
        self.applied = self.writes.note
        self.on_recall: Callable[[Caller], None] = lambda caller: None
        """Called with the caller when a request shows memories."""
        self._answers = LastAnswers()
        self.run = Drain(queue, store, self.writes.note, self._note_refused).run
        self.shown_log = ShownLog(paths.home, settings.shown_kept_s)
        self.open_browser = open_browser
        self.ask_status = ask_status

    async def look(self, seen_by: ProjectRef | None) -> tuple[tuple[Problem, ...], RuntimeStatus | None]:
        try:
            status = await self.ask_status()
        except RemembrancerError:
            return (launcher_silent(self.paths.logs / "launcher.log"),), None
        return find_problems(status, seen_by), status

    def queue_counts(self) -> tuple[int, int]:
        return self._queue.depth, self._queue.rejected

    def session(self, of: Caller | Operation) -> SessionState:
        key = (of.project.id, of.session_id)
        state = self._sessions[key] = self._sessions.pop(key, SessionState())
        if len(self._sessions) > MOST_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        return state

    def take_refused(self, caller: Caller) -> list[Notice]:
        state = self.session(caller)
        refused, state.refused = state.refused, []
        return refused

    def _note_refused(self, operation: Operation, why: Failure) -> None:
        about = memory_id_of(operation.change)
        name = type(operation.change).__name__
        text = f"{name} of {about} was queued, and then refused: {why.message}" if about else why.message
        notices = self.session(operation).refused
        if len(notices) < MAX_REFUSED:
            notices.append(Notice("queued_rejected", f"{text} (`remembrancer admin queue` lists what is set aside)"))

    # --- writes ---

    async def apply(self, operation: Operation, received_at: float) -> Written:
        call_budget_s = self.settings.call_budget_s
        budget_s = min(WRITE_SHARE * call_budget_s, _left_s(received_at + call_budget_s))
        why, health = None, self.store_health
        if not health.has_answered and self._queue.lane_of(operation) not in self._queue.lanes:
            # At startup, the store may need a moment longer than this process. Later, calls do not wait for it.
            await self._store.wait_usable(budget_s)
        lane = self._queue.lane_of(operation)
        if health.usable and lane not in self._queue.lanes:
            try:
                reply = (await self._store.fetch(Submit(operation), budget_s)).body
            except (*AWAY, QueueFull, FileLocked, JournalAway, RecordsUnusable) as error:  # the id makes a retry safe
                why = error.message if isinstance(error, FileLocked | JournalAway | RecordsUnusable) else None
            else:
                self._note_writer(operation, getattr(reply.result, "memory_id", None))
                self.writes.note(operation)
                return Written(reply)
        await self._queue.append(operation)
        self.writes.note(operation)
        self._note_writer(operation, memory_id_of(operation.change))
        older = self._queue.stuck.get(lane, "older writes come first")
        why = why or (older if self.store_health.usable else self.store_health.explain_absence())
        text = f"Queued durably, to be stored as soon as possible ({why}). Recalls may miss it until then."
        return Written(None, (Notice("queued", text),), degraded=not self.store_health.usable)

    def _note_writer(self, operation: Operation, memory_id: str | None) -> None:
        """Record that the writing session is the only one that has seen the memory's current content."""
        if memory_id is None:
            return
        for each in self._sessions.values():
            each.seen.discard(memory_id)
        self.session(operation).seen.add(memory_id)

    async def erase(self, operation: Operation) -> ErasedResult:
        until, memory_id = time.time() + ERASE_S, memory_id_of(operation.change) or ""
        await self._wait_for_store(until)
        with anyio.move_on_after(_left_s(until)):
            await self._queue.wait_empty(operation.project.id, USER_LANE)
        if self._queue.waits(operation.project.id, USER_LANE) > 0:
            raise MemoryUnavailable("queued writes may concern this memory; erase it after they have been applied")
        # The memory itself is deleted last: after an error, it can be erased again, and nothing is left behind.
        quotes: tuple[str, ...] = ()
        with suppress(NotFound):  # the session cannot see the memory, so the store refuses
            found = await self.require(GetMemory(operation.project, operation.session_id, memory_id), ERASE_S)
            quotes = quotable(texts_of(found.memory, found.memory.history))
            await self._queue.erase(memory_id)
            await anyio.to_thread.run_sync(self.shown_log.erase, (memory_id,), quotes, operation.project.id)
        reply = await self.require(Submit(operation, quotes), ERASE_S)
        assert isinstance(reply.result, ErasedResult)
        self._answers.clear()
        if reply.result.also_erased:
            await anyio.to_thread.run_sync(self.shown_log.erase, reply.result.also_erased)
        self.writes.note(operation)
        return reply.result

    async def await_embedding(self, caller: Caller, memory_id: str, received_at: float) -> EmbeddingState:
        timeout_s = max(MIN_BUDGET_S, _left_s(received_at + self.settings.call_budget_s) - MARGIN_S)
        question = AwaitEmbedding(caller.project, caller.session_id, memory_id)
        try:
            return await self._store.request(question, timeout_s)
        except RemembrancerError as error:  # the memory is stored anyway
            return EmbeddingState(embedded=False, error=error.message)

    def others_wrote(self, operations: Sequence[Operation]) -> None:
        for operation in operations:
            if isinstance(operation.change, EraseMemory):
                self._answers.clear()
                self._tasks.start_soon(self._forget_shown, operation.change.memory_id)
            self.writes.note(operation)

    async def _forget_shown(self, memory_id: str) -> None:
        try:
            await anyio.to_thread.run_sync(self.shown_log.erase, (memory_id,))
        except RemembrancerError as error:  # the entries expire, and do not contain its text
            logger.warning("the log still shows an erased memory", extra={"reason": error.message})

    def shown(
        self,
        caller: Caller,
        memory_ids: Sequence[str],
        *,
        counted: Sequence[str] = (),
        used: Sequence[str] = (),
        tool: str = "",
        question: str = "",
        listed: Sequence[str] = (),
    ) -> None:
        state = self.session(caller)
        state.seen.update(memory_ids, used)
        state.served.update(memory_ids)
        state.queries += 1
        self.on_recall(caller)
        if tool:
            self.shown_log.note(caller.project.id, caller.session_id, listed or memory_ids, tool, question)
        if (counted or used) and self.store_health.usable:
            self._store.send(NoteAccess(caller.project, caller.session_id, tuple(counted), tuple(used)))

    def shown_by_hook(self, operation: Operation, memory_ids: Sequence[str], question: str, is_all: bool) -> None:
        """Count memories printed by a hook as accessed, unless there are no other memories."""
        caller = Caller("", operation.session_id, operation.project, operation.requested_at)
        counted = () if is_all else memory_ids
        self.shown(caller, memory_ids, counted=counted, tool="get_memory_context", question=question)

    def is_first_data_for(self, caller: Caller) -> bool:
        is_first = caller.bridge not in self._told_of_data
        if len(self._told_of_data) >= MOST_SESSIONS:  # over HTTP, each request without a session has its own name
            self._told_of_data.clear()
        self._told_of_data.add(caller.bridge)
        return is_first

    # --- reads ---

    async def ask(self, question: Request[T], received_at: float) -> Asked[T]:
        until = time.time() + _left_s(received_at + self.settings.call_budget_s - MARGIN_S)
        try:
            reply = await self._from_store(question, until, self.settings.read_budget_s)
        except (MemoryUnavailable, DeadlineExceeded) as error:
            return self._last_answer(question, received_at, error)
        self._answers.put(question, received_at, reply.body)
        return Asked(reply.body, (*reply.notices, *self._behind(question)))

    def _last_answer(self, question: Request[T], received_at: float, error: RemembrancerError) -> Asked[T]:
        reply: Any
        if (kept := self._answers.find(question, received_at)) is not None:
            reply, at = kept
            what = f"This is the answer to this question as of {iso(at)}."
        elif isinstance(question, GatherContext) or (isinstance(question, Recall) and question.searches_memories):
            memories, at = self._answers.last_shown(question.project, question.session_id) or ((), received_at)
            what = "Nothing has been found for this session yet."
            if memories:
                what = f"These are the memories last found for this session, as of {iso(at)}."
            if isinstance(question, Recall):
                shown = memories[: question.limit]
                reply = Recalled(shown, len(shown), 0, question.strategy)
            else:
                reply = ContextGathered(in_sections(memories, question.sections))
        else:
            raise error
        return Asked(reply, (Notice(error.code, f"{what} ({error.message})"),), is_old=True)

    async def require(self, question: Request[T], timeout_s: float) -> T:
        return (await self._from_store(question, time.time() + timeout_s, timeout_s)).body

    def _behind(self, question: Request[Any]) -> tuple[Notice, ...]:
        lanes = (*_memory_lanes(question), _project_of(question) + NOTES)
        waiting = self._queue.waits(*lanes)
        if not waiting:
            return ()
        stuck = self._queue.stuck
        reasons = [stuck[lane] for lane in lanes if lane in stuck]
        why = f": {reasons[0]}" if reasons else "."
        writes = "1 queued write is" if waiting == 1 else f"{waiting} queued writes are"
        return (Notice("partial_results", f"{writes} not searched yet{why}"),)

    async def _from_store(self, question: Request[T], until: float, answer_s: float) -> Reply[T]:
        """Waits for a restarting store. Raises `MemoryUnavailable`, `DeadlineExceeded`, or the store's refusal."""
        while True:
            await self._wait_for_store(until)
            if self._queue.depth:
                with anyio.move_on_after(min(self.settings.read_budget_s, until - time.time())):
                    await self._queue.wait_empty(*_memory_lanes(question))
            try:
                return await self._store.fetch(question, min(answer_s, _left_s(until)))
            except AWAY as error:
                # A lost connection shows in the store's health only after a moment.
                is_lost = isinstance(error, PeerUnavailable | PeerLost)
                if is_lost and time.time() < until:
                    await anyio.sleep(LOST_PAUSE_S)
                elif self.store_health.usable or time.time() >= until:
                    if isinstance(error, MemoryUnavailable | DeadlineExceeded):
                        raise
                    raise MemoryUnavailable(f"{error.message}; call again in a moment") from error

    async def _wait_for_store(self, until: float) -> None:
        """Wait until `until` (seconds since the epoch) for the store to reconnect. Raises `MemoryUnavailable`."""
        health = self.store_health
        if not health.usable and not (health.is_reconnecting and await self._store.wait_usable(_left_s(until))):
            raise MemoryUnavailable(f"{health.explain_absence()}; call again in a moment")


class WriteNews:
    """Announces writes that the store or the queue has accepted."""

    def __init__(self) -> None:
        self.listeners: list[Callable[[Operation], None]] = []
        self.happened = asyncio.Event()
        """Set at the next write; then a new event takes its place."""

    def note(self, operation: Operation) -> None:
        for listener in self.listeners:
            listener(operation)
        self.happened.set()
        self.happened = asyncio.Event()


def _left_s(until: float) -> float:
    return max(MIN_BUDGET_S, until - time.time())


def _memory_lanes(request: Request[Any]) -> tuple[str, ...]:
    """The lanes whose writes affect the answer. Writes to notes reach the index only later."""
    if isinstance(request, DescribeFiles | ListFiles | SyncFiles):
        return ()
    is_of_notes = isinstance(request, Recall) and not request.searches_memories
    return () if is_of_notes else (_project_of(request), USER_LANE)


def _project_of(request: Request[Any]) -> str:
    """The id of the request's project; empty if it concerns all projects."""
    project = getattr(request, "project", None)
    return project.id if isinstance(project, ProjectRef) else ""
