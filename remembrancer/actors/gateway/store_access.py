"""The way to the store for everything that the gateway does: reads, writes, and what is answered while it is away.

A write goes to the store if it answers, else into the write queue, and behind what is queued already. A read goes to
the store if it answers, else to what is known here, which the answer then says.
"""

from __future__ import annotations

import itertools
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

import anyio
import anyio.abc
import msgspec

from remembrancer.actors.gateway.events import Events
from remembrancer.actors.gateway.overlay import asker_of, viewer_in
from remembrancer.actors.gateway.read_cache import PreparedAnswers, ReadCache
from remembrancer.actors.gateway.store_link import StoreLink
from remembrancer.actors.gateway.write_queue import USER_LANE, Drain, WriteQueue
from remembrancer.config.settings import Settings
from remembrancer.protocol.errors import (
    DeadlineExceeded,
    FileLocked,
    MemoryUnavailable,
    PeerLost,
    PeerUnavailable,
    QueueFull,
    RemembrancerError,
)
from remembrancer.protocol.reads import (
    AwaitEmbedding,
    ContextGathered,
    DescribeSession,
    EmbeddingState,
    FollowLinks,
    GatherContext,
    GetMemory,
    ListMemories,
    NoteAccess,
    Notice,
    Recall,
    Recalled,
    RecalledMemory,
    SearchGraph,
)
from remembrancer.protocol.store_client import AWAY
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
)
from remembrancer.toolsets.service import Asked, Away, Caller, Known, ServiceHealth, Written

CATCH_UP_S: Final = 0.5
"""How long a read waits for queued writes to reach the store, so that a session reads what it wrote."""
RESTART_S: Final = 2.0
"""For so long a store that went away is expected back any moment, and a read waits for it."""
LEAST_BUDGET_S: Final = 0.25
"""What a request still gets when the client has waited long for it."""
MARGIN_S: Final = 0.2
"""Kept from a call's budget for the way back."""
ERASE_S: Final = 30.0
"""How long to delete a memory for good may take: the words of its file are sorted anew."""
NOTE_TIMEOUT_S: Final = 5.0
"""How long the store has to take note of what was shown. Nobody waits for it."""
MAX_REFUSED: Final = 20
MAX_REFUSED_SESSIONS: Final = 1000
"""Sessions, and notices of each, that are kept for their next answer."""
RESTORE_WAITS: Final = "A return to an earlier version waits for the store: this is the memory as it was before."
RESTORED_SINCE: Final = "It has been returned to an earlier version since: this is the memory as it was before."
WHOLE: Final = frozenset({"no_entity", "not_reranked", "other_language"})
"""Notices of answers from which nothing is missing."""
_WAIT_FOR_WRITES: Final = (Recall, ListMemories, FollowLinks, GetMemory, SearchGraph, GatherContext, DescribeSession)
"""Questions about what a session may have written itself a moment ago."""

logger = logging.getLogger(__name__)


class StoreAccess:
    """Reads, writes and counts for tools, resources, hooks and sessions: a `MemoryService`. Run `run` as a task."""

    def __init__(
        self,
        link: StoreLink,
        queue: WriteQueue,
        events: Events,
        settings: Settings,
        home: str,
        tasks: anyio.abc.TaskGroup,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings
        self.home = home
        self._link = link
        self._queue = queue
        self._events = events
        self._tasks = tasks
        self._clock = clock
        self._cache = ReadCache()
        self._drain = Drain(queue, link, self._cache, events, self._note_refused)
        self._refused: OrderedDict[tuple[str, str], list[Notice]] = OrderedDict()
        """What was queued for a session and refused later, until it is told of it."""
        self.prepared = PreparedAnswers()
        events.on_write.append(self.prepared.heard_write)

    async def run(self) -> None:
        """Drain the write queue whenever there is something in it. Ends when it is cancelled."""
        await self._drain.run()

    def health(self) -> ServiceHealth:
        """How the way to the store is."""
        return ServiceHealth(
            usable=self._link.usable,
            is_reconnecting=self._link.is_reconnecting,
            attempts=self._link.attempts,
            next_attempt_s=self._link.next_attempt_s,
            why_away=self._link.explain_away(),
            queue_depth=self._queue.depth,
            queue_rejected=self._queue.rejected,
            queue_stuck=dict(self._queue.stuck),
            queue_damage=self._queue.damage,
        )

    def take_refused(self, caller: Caller) -> list[Notice]:
        """What a session has to be told once: writes of its own that were queued and refused later."""
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

    # --- writes ---

    async def apply(self, operation: Operation, received_at: float) -> Written:
        """Make an operation durable, in the store or in the queue. Must not be cancelled half-way.

        Raises:
            RemembrancerError: it is neither in the one nor in the other, and why.
        """
        budget_s = min(self.settings.write_budget_s, self._remaining_s(received_at))
        why = None
        # At the very start the store may take a moment longer than this process. Later nobody waits for it.
        is_there = self._queue.is_next(operation) and (
            self._link.usable or (not self._link.has_answered and await self._link.wait_usable(budget_s))
        )
        if is_there:
            try:
                reply = await self._link.request(Submit(operation), budget_s)
            except (*AWAY, QueueFull, FileLocked) as error:  # its id is known when it comes again
                why = error.message if isinstance(error, FileLocked) else None
            else:
                assert isinstance(reply, Applied)
                done = _as_done(operation, reply.result)
                if not reply.replayed:
                    self._cache.changes.note(done)
                self._events.written((done,), is_applied=True)
                return Written(operation, reply.result, embedding_error=reply.embedding_error)
        await self._queue.append(operation)
        self._events.written((operation,), is_applied=False)
        why = why or ("older writes go first" if self._link.usable else self._link.explain_away())
        text = f"Queued durably, and stored as soon as possible ({why}). Recalls may miss it until then."
        return Written(operation, None, (Notice("queued", text),), degraded=not self._link.usable)

    async def erase(self, operation: Operation) -> ErasedResult:
        """Delete a memory for good: in the write queue, in the store, and in what is kept of answers here."""
        change = operation.change
        assert isinstance(change, EraseMemory)
        await self._require_store(self._clock() + ERASE_S)  # what is queued is not let go for nothing
        was_queued = await self._queue.erase(change.memory_id)
        change = msgspec.structs.replace(change, was_queued=was_queued)
        reply = await self.require(Submit(msgspec.structs.replace(operation, change=change)), ERASE_S)
        self._cache.erase(change.memory_id)
        self.applied([operation])
        assert isinstance(reply, Applied)
        assert isinstance(reply.result, ErasedResult)
        return reply.result

    async def await_embedding(self, caller: Caller, memory_id: str, received_at: float) -> EmbeddingState:
        """Wait until a stored memory has its vectors, within the call's budget. Says so if it has none by then."""
        timeout_s = max(LEAST_BUDGET_S, self._remaining_s(received_at) - MARGIN_S)
        question = AwaitEmbedding(caller.project, caller.session_id, memory_id)
        try:
            reply = await self._link.request(question, timeout_s)
        except RemembrancerError as error:  # the memory is stored all the same
            return EmbeddingState(memory_id, embedded=False, error=error.message)
        assert isinstance(reply, EmbeddingState)
        return reply

    def applied(self, operations: Sequence[Operation]) -> None:
        """The store has these, though they did not come by here."""
        self._events.written(operations, is_applied=True)

    def shown(self, caller: Caller, memory_ids: Sequence[str], *, count: bool = False) -> None:
        """These memories were found for somebody. `count`: tell the store so, where it cannot know what was shown."""
        self._events.recalled(caller, tuple(memory_ids))
        if count and memory_ids and self._link.usable:
            self._tasks.start_soon(self._note_access, NoteAccess(caller.project, caller.session_id, tuple(memory_ids)))

    async def _note_access(self, note: NoteAccess) -> None:
        """One that the store does not get is lost: it is a count."""
        try:
            await self._link.request(note, NOTE_TIMEOUT_S)
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
        if isinstance(request, GatherContext) and self._link.usable and self.prepared.take(request, self._clock()):
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
        age_s = max(0, round(self._clock() - at))
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
        memories = tuple(msgspec.structs.replace(memory, passages=()) for memory in known)
        what = "Only recent answers and queued writes were searched, by their words: there may be more."
        if self._queue.unmirrored:
            what = f"{what} {self._queue.unmirrored} queued writes were not looked at."
        notices = (self.explain(found, what),)
        return Recalled(memories, len(memories), 0, "keyword", 0.0, notices), True

    async def require(self, request: GatewayRequest, timeout_s: float) -> ToGateway:
        """The store's answer to what only it can do, after what the session wrote. It may take all of `timeout_s`.

        Raises:
            MemoryUnavailable: the store is away.
            DeadlineExceeded: it has not answered in time.
            RemembrancerError: it refuses the request, and why.
        """
        until = self._clock() + timeout_s
        await self._require_store(until)
        await self._catch_up(request, until)
        try:
            return await self._link.request(request, self._left_s(until), is_long=True)
        except (PeerUnavailable, PeerLost) as error:
            raise MemoryUnavailable("the store went away meanwhile: call again in a moment") from error

    def known(self, project: ProjectRef, session_id: str) -> list[RecalledMemory]:
        """What that session may see of recent and queued writes, then what it was shown last."""
        return self._cache.known(viewer_in(project, session_id), self._queue.mirrored())

    def made(self, project: ProjectRef, session_id: str) -> list[PortableMemory]:
        """The memories that recent and queued writes made and that session may see, whole, oldest first."""
        return self._cache.made(viewer_in(project, session_id), self._queue.mirrored())

    def look_for(self, request: GetMemory) -> Known | None:
        """One memory, forgotten or not, so far as it is known here and the session may see it."""
        viewer = viewer_in(request.project, request.session_id)
        followed = self._cache.follow(viewer, request.memory_id, self._queue.mirrored())
        if followed is None or followed.unknown_from is None:
            return None if followed is None else Known(followed.memory)
        return Known(followed.memory, RESTORE_WAITS if math.isinf(followed.unknown_from) else RESTORED_SINCE)

    def find_before(self, operation: Operation) -> PortableMemory | RecalledMemory | None:
        """The memory that a queued operation is going to change, as it is until then, so far as it is known here."""
        older = itertools.takewhile(lambda each: each.operation_id != operation.operation_id, self._queue.mirrored())
        return self._cache.find(asker_of(operation), memory_id_of(operation.change) or "", older)

    def explain(self, away: Away, what: str) -> Notice:
        """The notice of an answer that the store had no part in; `what` says what it was made of instead."""
        if away.asked:
            return Notice("query_timeout", f"The store did not answer in time. {what}")
        why = self._link.explain_away()
        return Notice("memory_unavailable", f"{what} ({why}; ask again in a moment)")

    def behind(self, project_id: str) -> tuple[Notice, ...]:
        """The notice that the store does not have all that a session of a project may see, if writes are queued."""
        waiting = self._queue.waits(project_id)
        if not waiting:
            return ()
        reasons = [self._queue.stuck[lane] for lane in (project_id, USER_LANE) if lane in self._queue.stuck]
        why = f" They have to wait: {reasons[0]}" if reasons else ""
        return (Notice("partial_results", f"{waiting} queued writes are not searched yet.{why}"),)

    async def _from_store(self, request: GatewayRequest, received_at: float) -> ToGateway | Away:
        now = self._clock()
        until = now + max(LEAST_BUDGET_S, min(self.settings.read_budget_s, self._remaining_s(received_at) - MARGIN_S))
        if not self._link.usable and not await self._is_store_there(until):
            return Away()
        if self._queue.depth and isinstance(request, _WAIT_FOR_WRITES):
            await self._catch_up(request, until)
        mark = self._cache.changes.next_number
        try:
            reply = await self._link.request(request, self._left_s(until))
        except AWAY as error:
            return Away(asked=isinstance(error, DeadlineExceeded))
        self._cache.put(request, reply, mark, self._clock())
        return reply

    async def _require_store(self, until: float) -> None:
        if not await self._is_store_there(until):
            raise MemoryUnavailable(f"{self._link.explain_away()}: call again in a moment")

    async def _is_store_there(self, until: float) -> bool:
        if self._link.usable or self._link.state != "reconnecting":
            return self._link.usable
        patience_s = min(RESTART_S - self._link.away_s, until - self._clock())
        return patience_s > 0 and await self._link.wait_usable(patience_s)

    async def _catch_up(self, request: GatewayRequest, until: float) -> None:
        if self._queue.depth:
            with anyio.move_on_after(min(CATCH_UP_S, until - self._clock())):
                await self._queue.wait_empty(_project_of(request))

    def _left_s(self, until: float) -> float:
        return max(LEAST_BUDGET_S, until - self._clock())

    def _remaining_s(self, received_at: float) -> float:
        """What is left of the budget of a call that the client made at `received_at`."""
        return max(LEAST_BUDGET_S, received_at + self.settings.call_budget_s - self._clock())

    async def prepare(self, request: GatherContext) -> None:
        """Ask the store ahead: who asks the same soon is answered at once, unless something was written in between.

        An answer is given once: it has been shown then, which counts. It is in the read cache.

        Raises:
            RemembrancerError: the store refuses the question, and why.
        """
        now = self._clock()
        ticket = self.prepared.begin(request, now)
        is_whole = False
        try:
            found = await self._from_store(request, now)
            is_whole = (
                isinstance(found, ContextGathered) and not found.notices and not self._queue.waits(request.project.id)
            )
        finally:
            self.prepared.finish(ticket, self._clock(), is_whole=is_whole)


def _as_done(operation: Operation, result: Result) -> Operation:
    """What an operation has come to: to store a text that is known is to change the memory that has it."""
    change = operation.change
    if not (isinstance(change, StoreMemory) and isinstance(result, StoredResult) and result.already_known):
        return operation
    added = UpdateMemory(result.memory_id, add_tags=change.tags, add_entities=change.related_entities)
    return msgspec.structs.replace(operation, change=added)


def _project_of(request: GatewayRequest) -> str:
    """The id of the project that a question is about; empty for one that is about all."""
    project = getattr(request, "project", None)
    return project.id if isinstance(project, ProjectRef) else ""
