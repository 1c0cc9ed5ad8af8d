"""The way to the store for everything that the gateway does: reads, writes, and what is answered while it is away.

A write goes to the store if it answers, else into the write queue, and behind what is queued already. A read goes to
the store if it answers, else to what is known here, which the answer then says.
"""

from __future__ import annotations

import itertools
import logging
import math
import sqlite3
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import anyio
import anyio.abc
import anyio.to_thread
import msgspec

from remembrancer.actors.gateway.erasing import Erasing, Erasings
from remembrancer.actors.gateway.overlay import Overlay, as_listed, asker_of, viewer_in
from remembrancer.actors.gateway.read_cache import PreparedAnswers, ReadCache
from remembrancer.actors.gateway.recent_writes import RecentWrites
from remembrancer.actors.gateway.shown_log import ShownLog
from remembrancer.actors.gateway.write_queue import NOTES, USER_LANE, Drain, WriteQueue
from remembrancer.config.settings import Settings
from remembrancer.memory.limits import first_that_fit
from remembrancer.memory.plan import texts_of
from remembrancer.memory.sentences import quotable
from remembrancer.protocol.errors import (
    DeadlineExceeded,
    FileLocked,
    JournalAway,
    MemoryUnavailable,
    NotFound,
    PeerLost,
    PeerUnavailable,
    QueueFull,
    RecordsUnusable,
    RemembrancerError,
    StorageFull,
)
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.reads import (
    AwaitEmbedding,
    ContextGathered,
    DescribeSession,
    EmbeddingState,
    FollowLinks,
    GatherContext,
    GetMemory,
    Listed,
    ListedMemory,
    ListMemories,
    MemoryShown,
    NoteAccess,
    Notice,
    Recall,
    Recalled,
    RecalledMemory,
    SearchGraph,
)
from remembrancer.protocol.session_life import BROWSER_SESSION
from remembrancer.protocol.store_client import AWAY, StoreClient, checked
from remembrancer.protocol.wire import GatewayRequest, ToGateway
from remembrancer.protocol.writes import (
    Applied,
    ErasedResult,
    EraseMemory,
    Operation,
    PortableMemory,
    ProjectRef,
    Rejected,
    Result,
    StoredResult,
    StoreMemory,
    Submit,
    UpdateMemory,
    memory_id_of,
    needs_room,
)
from remembrancer.toolsets.service import Asked, Away, Caller, Known, QueueHealth, Written
from remembrancer.toolsets.tools import WHOLE

CATCH_UP_S: Final = 0.5
"""The time that a read waits for queued writes to reach the store, so that a session reads what it wrote."""
RESTART_S: Final = 2.0
"""For so long a store that went away is expected back any moment, and a read waits for it."""
MOMENT_S: Final = 0.3
"""For so long after it was heard last a store may only have been slow: a write waits as long before it is queued."""
LEAST_BUDGET_S: Final = 0.25
"""The budget that a request still gets when the client has waited long for it."""
MARGIN_S: Final = 0.2
"""Kept from a call's budget for the way back."""
ERASE_S: Final = 30.0
"""The time to delete a memory for good may take: the words of its file are sorted anew."""
ERASE_AGAIN_S: Final = 5.0
"""The time until what could not be erased is tried again."""
NOTE_TIMEOUT_S: Final = 5.0
"""The time that the store has to take note of what was shown. Nobody waits for it."""
MOST_CHANGED: Final = 100
"""Memories with queued changes that are looked up for a list, if they are not in it: a few milliseconds each."""
MAX_REFUSED: Final = 20
MAX_REFUSED_SESSIONS: Final = 1000
"""Sessions, and notices of each, that are kept for their next answer."""
RESTORE_WAITS: Final = "A return to an earlier version waits for the store: this is the memory as it was before."
RESTORED_SINCE: Final = "It has been returned to an earlier version since: this is the memory as it was before."
MOST_SESSIONS: Final = 512
"""Sessions of which it is known what they were shown."""
_FIRST: Final = (GatherContext, Recall)
"""The first questions of a session: while the store starts, they are worth a wait of all that the call may take."""
_WAIT_FOR_WRITES: Final = (Recall, ListMemories, FollowLinks, GetMemory, SearchGraph, GatherContext, DescribeSession)
"""Questions about what a session may have written itself a moment ago."""

T = TypeVar("T")
logger = logging.getLogger(__name__)


class StoreAccess:
    """Reads, writes and counts for tools, resources, hooks and sessions: a `MemoryService`. Run `run` as a task."""

    def __init__(
        self,
        store: StoreClient[ToGateway],
        queue: WriteQueue,
        settings: Settings,
        home: str,
        tasks: anyio.abc.TaskGroup,
    ) -> None:
        self.settings = settings
        self.home = home
        self._store = store
        self.store_health = store.health
        self.short_ids: dict[tuple[str, str], str] = {}
        self._told_of_data: set[str] = set()
        self._seen: OrderedDict[tuple[str, str], set[str]] = OrderedDict()
        self._queue = queue
        self._tasks = tasks
        self.writes = RecentWrites()
        self.on_recall: list[Callable[[Caller, tuple[str, ...]], None]] = []
        """Functions that are told who was shown which memories, in the midst of a request (none: nothing was found)."""
        self._cache = ReadCache(self.writes)
        self._drain = Drain(queue, store, self.writes, self._note_refused)
        self._refused: OrderedDict[tuple[str, str], list[Notice]] = OrderedDict()
        """The writes that were queued for a session and refused later, until it is told of them."""
        self.prepared = PreparedAnswers(self.writes)
        self.shown_log = ShownLog(Path(home), settings.shown_kept_s)
        self._erasings = Erasings(RuntimePaths(Path(home)).erasing)
        self._cut_off = anyio.Event()
        """Set when an erasing could not be ended, and replaced by another."""
        self.open_browser: Callable[[], Awaitable[str]] = _nowhere

    async def run(self) -> None:
        """Drain the write queue whenever there is something in it, and end what erasing was cut off. Ends when it is
        cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._drain.run)
            tasks.start_soon(self._end_erasings)

    def queue_health(self) -> QueueHealth:
        """The state of the write queue."""
        queue = self._queue
        return QueueHealth(queue.depth, queue.rejected, dict(queue.stuck), queue.damage)

    def take_refused(self, caller: Caller) -> list[Notice]:
        """The session's own writes that were queued and refused later; each is told once."""
        return self._refused.pop((caller.project.id, caller.session_id), [])

    def _note_refused(self, operation: Operation, why: Rejected) -> None:
        about = memory_id_of(operation.change)
        name = type(operation.change).__name__
        text = f"{name} of {about} was queued and has been refused: {why.message}" if about else why.message
        key = (operation.project.id, operation.session_id)
        notices = self._refused.setdefault(key, [])
        if len(notices) < MAX_REFUSED:
            notices.append(Notice("queued_rejected", f"{text} (`remembrancer queue` lists what is set aside)"))
        while len(self._refused) > MAX_REFUSED_SESSIONS:
            self._refused.popitem(last=False)

    async def browser_url(self) -> str:
        """The address of the memory browser."""
        return await self.open_browser()

    # --- writes ---

    async def apply(self, operation: Operation, received_at: float) -> Written:
        """Make an operation durable, in the store or in the queue. Must not be cancelled half-way.

        Raises:
            RemembrancerError: it is neither in the one nor in the other, and why.
        """
        budget_s = min(self.settings.write_budget_s, _left_s(received_at + self.settings.call_budget_s))
        why = None
        # At the very start the store may take a moment longer than this process. Later nobody waits for it.
        is_there = self._queue.is_next(operation) and (
            self.store_health.usable
            or (not self.store_health.has_answered and await self._store.wait_usable(budget_s))
            or (self.store_health.away_s < MOMENT_S and await self._store.wait_usable(MOMENT_S))
        )
        lane = self._queue.lane_of(operation)
        if is_there and self._queue.is_next(operation):  # still, after the wait
            try:
                reply = await self._store.request(Submit(operation), budget_s)
            except StorageFull as error:
                self._queue.full[lane] = error
                raise
            except (*AWAY, QueueFull, FileLocked, JournalAway, RecordsUnusable) as error:  # its id is known afterwards
                why = error.message if isinstance(error, FileLocked | JournalAway | RecordsUnusable) else None
            else:
                assert isinstance(reply, Applied)
                self._note_writer(operation, getattr(reply.result, "memory_id", None))
                self.writes.note(
                    _as_done(operation, reply.result),
                    "repeated" if reply.replayed else "applied",
                    self._store.asked_bytes,
                )
                full: tuple[Notice, ...] = ()
                if self._queue.full:
                    self._queue.note_room(lane, operation)
                    full = self._full(operation.project.id)
                return Written(operation, reply.result, full, embedding_error=reply.embedding_error, near=reply.near)
        if lane in self._queue.full and needs_room(operation.change):  # it could not be kept
            raise self._queue.full[lane]
        self.writes.note(operation, "queued", await self._queue.append(operation))
        self._note_writer(operation, memory_id_of(operation.change))
        older = self._queue.stuck.get(lane, "older writes go first")
        why = why or (older if self.store_health.usable else self.store_health.explain_away())
        text = f"Queued durably, and stored as soon as possible ({why}). Recalls may miss it until then."
        return Written(operation, None, (Notice("queued", text),), degraded=not self.store_health.usable)

    def _note_writer(self, operation: Operation, memory_id: str | None) -> None:
        """The session that wrote knows what the memory says now, and no other one does."""
        if memory_id is None:
            return
        for seen in self._seen.values():
            seen.discard(memory_id)
        self._seen.setdefault((operation.project.id, operation.session_id), set()).add(memory_id)

    async def erase(self, operation: Operation) -> ErasedResult:
        """Delete a memory for good: in the store, and then in the write queue and in what is kept of answers here.

        Raises:
            RemembrancerError: the store refuses that, and nothing was deleted. If `retry_possible`, it goes on by
                itself as soon as it can.
        """
        await self._require_store(time.time() + ERASE_S)
        erasing = self._erasings.find(operation.operation_id)
        if erasing is None:
            erasing = Erasing(operation, await self._quotes_of(operation))
            await self._erasings.begin(erasing)
        try:
            return await self._erase(erasing)
        except RemembrancerError:
            self._cut_off.set()
            raise

    async def _end_erasings(self) -> None:
        """Take up again what a crash, or an error that may pass, has cut off."""
        while True:
            await self._store.wait_answering()
            for erasing in self._erasings.all():
                try:
                    await self._erase(erasing)
                except RemembrancerError as error:
                    logger.warning("a memory is not erased yet", extra={"code": error.code, "reason": error.message})
            with anyio.move_on_after(ERASE_AGAIN_S if self._erasings.all() else math.inf):
                await self._cut_off.wait()
            self._cut_off = anyio.Event()

    async def _erase(self, erasing: Erasing) -> ErasedResult:
        operation, memory_id = erasing.operation, memory_id_of(erasing.operation.change) or ""
        try:
            result = await self._erase_in_store(erasing, memory_id)
        except RemembrancerError as error:
            if not error.retry_possible:
                await self._erasings.end(erasing)
            raise
        gone = tuple(dict.fromkeys((memory_id, *result.gone)))
        await self._queue.erase(gone, operation)
        for each in gone:
            self._cache.erase(each)
        try:
            await anyio.to_thread.run_sync(self.shown_log.erase, gone, erasing.quotes, operation.project.id)
        except sqlite3.Error as error:
            raise MemoryUnavailable(f"the record of what was shown cannot be changed: {error}") from error
        self.applied([operation])
        await self._erasings.end(erasing)
        return result

    async def _erase_in_store(self, erasing: Erasing, memory_id: str) -> ErasedResult:
        """Raises `NotFound` for a memory that is neither there nor in the queue, for all that the session may see."""
        operation = erasing.operation
        try:
            reply = await self.require(Submit(operation, erasing.quotes), Applied, ERASE_S)
        except NotFound:
            if not await self._queue.makes(memory_id, operation):
                raise
            change = EraseMemory(memory_id, was_queued=True)
            reply = await self.require(Submit(msgspec.structs.replace(operation, change=change)), Applied, ERASE_S)
        assert isinstance(reply.result, ErasedResult)
        return reply.result

    async def _quotes_of(self, operation: Operation) -> tuple[str, ...]:
        """The texts by which it is known where a memory is quoted; none of one that the store does not know."""
        try:
            question = GetMemory(operation.project, operation.session_id, memory_id_of(operation.change) or "")
            shown = await self.require(question, MemoryShown, ERASE_S)
        except NotFound:
            return ()
        return quotable(texts_of(shown.memory, shown.memory.history))

    async def await_embedding(self, caller: Caller, memory_id: str, received_at: float) -> EmbeddingState:
        """Wait until a stored memory has its vectors, within the call's budget. Says so if it has none by then."""
        timeout_s = max(LEAST_BUDGET_S, _left_s(received_at + self.settings.call_budget_s) - MARGIN_S)
        question = AwaitEmbedding(caller.project, caller.session_id, memory_id)
        try:
            reply = await self._store.request(question, timeout_s)
        except RemembrancerError as error:  # the memory is stored all the same
            return EmbeddingState(memory_id, embedded=False, error=error.message)
        assert isinstance(reply, EmbeddingState)
        return reply

    def applied(self, operations: Sequence[Operation]) -> None:
        """The store has these, though they did not come by here."""
        for operation in operations:
            self.writes.note(operation, "repeated")

    def others_wrote(self, operations: Sequence[Operation]) -> None:
        """Other machines have done this to what is shared: the answers that are kept here are to know of it."""
        for operation in operations:
            if isinstance(operation.change, EraseMemory):
                gone = (operation.change.memory_id,)
                self._cache.erase(*gone)
                self._tasks.start_soon(anyio.to_thread.run_sync, self.shown_log.erase, gone, (), "")
            self.writes.note(operation)

    def shown(
        self,
        caller: Caller,
        memory_ids: Sequence[str],
        *,
        count: bool = False,
        used: Sequence[str] = (),
        tool: str = "",
        question: str = "",
    ) -> None:
        """These memories were found for somebody. `count`, `used`: tell the store so, where it cannot know that."""
        self._seen.setdefault((caller.project.id, caller.session_id), set()).update(memory_ids, used)
        if len(self._seen) > MOST_SESSIONS:
            self._seen.popitem(last=False)
        for listener in self.on_recall:
            listener(caller, tuple(memory_ids))
        if tool:
            self.shown_log.note(caller.project.id, caller.session_id, memory_ids, tool, question)
        counted = tuple(memory_ids) if count else ()
        if (counted or used) and self.store_health.usable:
            note = NoteAccess(caller.project, caller.session_id, counted, tuple(used))
            self._tasks.start_soon(self._note_access, note)

    def is_first_data_for(self, caller: Caller) -> bool:
        """See `MemoryService`."""
        is_first = caller.bridge not in self._told_of_data
        if len(self._told_of_data) >= MOST_SESSIONS:
            self._told_of_data.clear()
        self._told_of_data.add(caller.bridge)
        return is_first

    def seen(self, caller: Caller) -> set[str]:
        """Ids of the memories that the session was shown as they are, or wrote, since the runtime has been up."""
        return self._seen.get((caller.project.id, caller.session_id), set())

    def answered(self, caller: Caller, tool: str, answer: dict[str, Any], received_at: float) -> None:
        """A tool that only reads has given this answer. One to the memory browser is nobody's."""
        if caller.session_id != BROWSER_SESSION:
            took_s = time.time() - received_at
            self.shown_log.note_answer(caller.project.id, caller.session_id, tool, answer, took_s)

    async def _note_access(self, note: NoteAccess) -> None:
        """One that the store does not get is lost: it is a count."""
        try:
            await self._store.request(note, NOTE_TIMEOUT_S)
        except RemembrancerError as error:
            logger.debug("the store took no note of an access", extra={"code": error.code})

    # --- reads ---

    async def ask(self, request: GatewayRequest, received_at: float) -> Asked:
        """Ask the store, within its budget and what is left of the call that came at `received_at`.

        Without it: its last answer to the very same question, after all changes that are known here, or None. The
        notice is `query_timeout` when it was asked and did not answer in time, `memory_unavailable` when it is away.

        Raises:
            RemembrancerError: the store refuses the question, and why.
        """
        usable = self.store_health.usable
        if usable and isinstance(request, GatherContext) and self.prepared.take(request, time.time()):
            kept = self._cache.last(request, ())
            if kept is not None:
                return Asked(kept[0], self.behind(request.project.id))
        found = await self._from_store(request, received_at)
        if not isinstance(found, Away):
            return Asked(found, self.behind(_project_of(request)))
        last = self._cache.last(request, self._queue.mirrored())
        if last is None:
            return Asked(None, (self.explain(found, "There is no earlier answer to this question."),), away=found)
        reply, at = last
        age_s = max(0, round(time.time() - at))
        text = f"This is the answer of {age_s} seconds ago, with the changes that are known since."
        known = self.look_for(request) if isinstance(request, GetMemory) else None
        if known is not None and known.caveat:
            text = known.caveat
        return Asked(reply, (self.explain(found, text),), from_cache=True, away=found)

    async def recall(self, request: Recall, received_at: float) -> tuple[Recalled, bool]:
        """The memories that match, and whether something is missing from them.

        Raises:
            RemembrancerError: the store refuses the question, and why.
        """
        found = await self._from_store(request, received_at)
        if isinstance(found, Recalled):
            notices = (*found.notices, *self.behind(request.project.id))
            is_degraded = any(notice.code not in WHOLE for notice in notices)
            return msgspec.structs.replace(found, notices=notices), is_degraded
        assert isinstance(found, Away)
        # Passages that were the best for another question, or of an earlier content, are not these.
        known = self._cache.answer(request, self._queue.mirrored())
        memories, is_cut = first_that_fit(msgspec.structs.replace(memory, passages=()) for memory in known)
        what = "Only recent answers and queued writes were searched, by their words: there may be more."
        if self._queue.unmirrored:
            what = f"{what} {self._queue.unmirrored} queued writes were not looked at."
        if is_cut:
            what = f"{what} These are the first of {len(known)}: all would be too many bytes."
        notices = (self.explain(found, what),)
        return Recalled(memories, len(memories), 0, "keyword", 0.0, notices), True

    async def require(self, request: GatewayRequest, kind: type[T], timeout_s: float) -> T:
        """The store's answer, of that type, to what only it can do, after what the session wrote. It may take all of
        `timeout_s`; a store that dies meanwhile is asked again when it is back.

        Raises:
            MemoryUnavailable: the store is away.
            DeadlineExceeded: it has not answered in time.
            RemembrancerError: it refuses the request, and why.
        """
        until = time.time() + timeout_s
        while True:
            await self._require_store(until)
            await self._catch_up(request, until)
            try:
                with suppress(PeerLost):
                    return checked(request, await self._store.request(request, _left_s(until), is_long=True), kind)
            except PeerUnavailable as error:
                raise MemoryUnavailable("the store went away meanwhile: call again in a moment") from error

    def known(self, project: ProjectRef, session_id: str) -> list[RecalledMemory]:
        """The recent and queued memories that a session may see, then those that it was shown last."""
        return self._cache.known(viewer_in(project, session_id), self._queue.mirrored())

    def made(self, project: ProjectRef, session_id: str) -> list[PortableMemory]:
        """The memories that recent and queued writes made and that session may see, whole, oldest first."""
        return self._cache.made(viewer_in(project, session_id), self._queue.mirrored())

    def look_for(self, request: GetMemory) -> Known | None:
        """One memory, forgotten or not, so far as it is known here and the session may see it."""
        viewer = viewer_in(request.project, request.session_id)
        followed = self._cache.follow(viewer, request.memory_id, self._queue.mirrored())
        if followed is None or followed.first_unknown is None:
            return None if followed is None else Known(followed.memory)
        return Known(followed.memory, RESTORE_WAITS if math.isinf(followed.first_unknown) else RESTORED_SINCE)

    def find_before(self, operation: Operation) -> PortableMemory | RecalledMemory | None:
        """The memory that a queued operation is going to change, as it is until then, so far as it is known here."""
        older = itertools.takewhile(lambda each: each.operation_id != operation.operation_id, self._queue.mirrored())
        return self._cache.find(asker_of(operation), memory_id_of(operation.change) or "", older)

    def explain(self, away: Away, what: str) -> Notice:
        """The notice of an answer that the store had no part in; `what` says what it was made of instead."""
        if away.asked:
            return Notice("query_timeout", f"The store did not answer in time. {what}")
        why = self.store_health.explain_away()
        return Notice("memory_unavailable", f"{what} ({why}; ask again in a moment)")

    def behind(self, project_id: str) -> tuple[Notice, ...]:
        """The notices that the store does not have all that a session of a project may see, or takes no more."""
        if not (self._queue.depth or self._queue.full):
            return ()
        waiting, full = self._queue.waits(project_id), self._full(project_id)
        if not waiting:
            return full
        lanes = (project_id, USER_LANE, project_id + NOTES)
        reasons = [self._queue.stuck[lane] for lane in lanes if lane in self._queue.stuck]
        why = f" They have to wait: {reasons[0]}" if reasons else ""
        return (Notice("partial_results", f"{waiting} queued writes are not searched yet.{why}"), *full)

    def _full(self, project_id: str) -> tuple[Notice, ...]:
        """The notice that nothing more is stored of a project, or of the user, by the store's last word."""
        found = [self._queue.full[lane] for lane in (project_id, USER_LANE) if lane in self._queue.full]
        return tuple(Notice(error.code, f"Nothing more is stored: {error.message}") for error in found)

    async def _from_store(self, request: GatewayRequest, received_at: float) -> ToGateway | Away:
        now = time.time()
        left_s = _left_s(received_at + self.settings.call_budget_s) - MARGIN_S
        if not (self.store_health.is_starting and isinstance(request, _FIRST)):
            left_s = min(self.settings.read_budget_s, left_s)
        until = now + max(LEAST_BUDGET_S, left_s)
        if not self.store_health.usable and not await self._is_store_there(until):
            return Away()
        if self._queue.depth and isinstance(request, _WAIT_FOR_WRITES):
            await self._catch_up(request, until)
        mark = self.writes.next_number
        is_behind = bool(self._queue.depth and self._queue.waits(_project_of(request)))
        try:
            if is_behind and isinstance(request, ListMemories) and request.as_of is None:
                return await self._listed(request, until)
            reply = await self._store.request(request, _left_s(until))
        except AWAY as error:
            return Away(asked=isinstance(error, DeadlineExceeded))
        self._cache.put(request, reply, mark, time.time(), self._store.answer_bytes)
        if self._queue.depth and self._queue.waits(_project_of(request)):
            return self._cache.laid_over(request, reply, mark, self._queue.mirrored())
        return reply

    async def _listed(self, request: ListMemories, until: float) -> Listed:
        """A page as it is after what waits in the queue.

        It is cut out of the list from its beginning on: a change may move a memory from one page into another.
        """
        queued, viewer = self._queue.mirrored(), viewer_in(request.project, request.session_id)
        changed = Overlay((), queued).changed(viewer)[:MOST_CHANGED]
        end = request.offset + request.limit
        rows: list[ListedMemory] = []
        while True:
            more = msgspec.structs.replace(request, offset=len(rows), limit=end + len(changed) - len(rows))
            reply = checked(more, await self._store.request(more, _left_s(until)), Listed)
            rows += reply.memories
            if not (reply.cut and more.limit > len(reply.memories)):
                break
        others: dict[str, ListedMemory] = {}
        aliases: dict[str, str] = {}
        for memory_id in set(changed).difference(row.id for row in rows):
            question = GetMemory(request.project, request.session_id, memory_id)
            try:
                shown = checked(question, await self._store.request(question, _left_s(until)), MemoryShown)
            except NotFound:
                continue
            aliases[memory_id] = shown.memory.id
            others[shown.memory.id] = msgspec.structs.replace(
                as_listed(shown.memory), near_duplicates=shown.near_duplicates
            )
        found = Overlay((), queued, aliases).listed(rows, others.values(), request, viewer)
        page, is_cut = first_that_fit(found[request.offset : end])
        return Listed(page, reply.notices, is_cut)

    async def _require_store(self, until: float) -> None:
        """Wait for a store that is on its way, as long as that may take."""
        health = self.store_health
        is_coming = health.state == "reconnecting" and await self._store.wait_usable(_left_s(until))
        if not (is_coming or health.usable):
            raise MemoryUnavailable(f"{self.store_health.explain_away()}: call again in a moment")

    async def _is_store_there(self, until: float) -> bool:
        if self.store_health.usable or self.store_health.state != "reconnecting":
            return self.store_health.usable
        patience_s = until - time.time()
        if not self.store_health.is_starting:
            patience_s = min(RESTART_S - self.store_health.away_s, patience_s)
        return patience_s > 0 and await self._store.wait_usable(patience_s)

    async def _catch_up(self, request: GatewayRequest, until: float) -> None:
        if self._queue.depth:
            with anyio.move_on_after(min(CATCH_UP_S, until - time.time())):
                await self._queue.wait_empty(_project_of(request))

    async def prepare(self, request: GatherContext) -> None:
        """Ask the store ahead: who asks the same soon is answered at once, unless something was written in between.

        An answer is given once: it has been shown then, which counts. It is in the read cache.

        Raises:
            RemembrancerError: the store refuses the question, and why.
        """
        now = time.time()
        ticket = self.prepared.begin(request, now)
        is_whole = False
        try:
            found = await self._from_store(request, now)
            is_whole = (
                isinstance(found, ContextGathered) and not found.notices and not self._queue.waits(request.project.id)
            )
        finally:
            self.prepared.finish(ticket, time.time(), is_whole=is_whole)


def _left_s(until: float) -> float:
    """The seconds until then, and a little even where there are none."""
    return max(LEAST_BUDGET_S, until - time.time())


async def _nowhere() -> str:
    raise MemoryUnavailable("this process serves no pages")


def _as_done(operation: Operation, result: Result) -> Operation:
    """The change that an operation was in the end: to store a text that is known is to change the memory that has
    it."""
    change = operation.change
    if not (isinstance(change, StoreMemory) and isinstance(result, StoredResult) and result.already_known):
        return operation
    added = UpdateMemory(result.memory_id, add_tags=change.tags, add_entities=change.related_entities)
    return msgspec.structs.replace(operation, change=added)


def _project_of(request: GatewayRequest) -> str:
    """The id of the project that a question is about; empty for one that is about all."""
    project = getattr(request, "project", None)
    return project.id if isinstance(project, ProjectRef) else ""
