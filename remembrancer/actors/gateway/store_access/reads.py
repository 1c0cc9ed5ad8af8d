"""The way of a read: to the store if it answers, else to what is known here, which the answer then says."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from typing import Final

import anyio
import msgspec

from remembrancer.actors.gateway.store_access.overlay import asker_of, target_of
from remembrancer.actors.gateway.store_access.read_cache import ReadCache
from remembrancer.actors.gateway.store_access.ready_answers import ReadyAnswers
from remembrancer.actors.gateway.store_access.store_link import StoreLink
from remembrancer.actors.gateway.store_access.write_queue import WriteQueue
from remembrancer.config.settings import Settings
from remembrancer.protocol.errors import DeadlineExceeded, MemoryUnavailable, PeerLost, PeerUnavailable
from remembrancer.protocol.reads import (
    ContextGathered,
    DescribeSession,
    DescribeStore,
    GatherContext,
    GetMemory,
    Notice,
    Recall,
    Recalled,
    RecalledMemory,
    SearchGraph,
    StoreDescription,
)
from remembrancer.protocol.store_client import AWAY
from remembrancer.protocol.wire import GatewayRequest, ToGateway
from remembrancer.protocol.writes import Operation, PortableMemory

CATCH_UP_S: Final = 0.5
"""How long a read waits for queued writes to reach the store, so that a session reads what it wrote."""
RESTART_S: Final = 2.0
"""For so long a store that went away is expected back any moment, and a read waits for it."""
RESTORE_WAITS: Final = "A return to an earlier version waits for the store: this is the memory as it was before."
RESTORED_SINCE: Final = "It has been returned to an earlier version since: this is the memory as it was before."
WHOLE: Final = frozenset({"no_entity", "not_reranked"})
"""Notices of answers from which nothing is missing."""
MARGIN_S: Final = 0.2
LEAST_BUDGET_S: Final = 0.25
_WAIT_FOR_WRITES: Final = (Recall, GetMemory, SearchGraph, GatherContext, DescribeSession)
"""Questions about what a session may have written itself a moment ago."""


class Away(msgspec.Struct, frozen=True):
    """The store had no part in an answer. `asked`: it was asked, and did not answer in time."""

    asked: bool = False


class Answer(msgspec.Struct, frozen=True):
    """What was found, and whether something is missing from it.

    `counted` False: whoever shows it has to say what of it was shown (`AccessNotes`).
    """

    recalled: Recalled
    degraded: bool
    counted: bool


class Asked(msgspec.Struct, frozen=True):
    """What came of a question: an answer of the store, its last one to this question (`from_cache`), or None.

    The notices say what is missing; the store's own are in its reply. `away` says why the store had no part in it: a
    caller that answers from what is known here words its own notice (`ReadPath.explain`).
    """

    reply: ToGateway | None
    notices: tuple[Notice, ...] = ()
    from_cache: bool = False
    away: Away | None = None


class Known(msgspec.Struct, frozen=True):
    """A memory as far as it is known here. `caveat` says, if it is not known as it is now, what is missing."""

    memory: PortableMemory | RecalledMemory
    caveat: str = ""


class ReadPath:
    """Asks the store, or answers without it."""

    def __init__(
        self,
        link: StoreLink,
        queue: WriteQueue,
        cache: ReadCache,
        settings: Settings,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._link = link
        self._queue = queue
        self._cache = cache
        self._settings = settings
        self._clock = clock
        self.ready = ReadyAnswers()
        """Answers that `prepare` has fetched. Has to be told of writes."""

    async def ask(self, request: GatewayRequest, received_at: float) -> Asked:
        """Ask the store, within its budget and what is left of the call that came at `received_at`.

        Without it: its last answer to the very same question, after all changes that are known here, or None. The
        notice is `query_timeout` when it was asked and did not answer in time, `memory_unavailable` when it is away.

        Raises:
            RemembrancerError: the store refuses the question, and why.
        """
        ready = self._take_ready(request)
        if ready is not None:
            return Asked(ready, self.behind)
        found = await self._from_store(request, received_at)
        if not isinstance(found, Away):
            return Asked(found, self.behind)
        last = self._cache.last(request, self._queue.mirrored())
        if last is None:
            text = "There is no earlier answer to this question."
            return Asked(None, (self.explain(found, text),), away=found)
        reply, at = last
        age_s = max(0, round(self._clock() - at))
        text = f"This is the answer of {age_s} seconds ago, with the changes that are known since."
        if isinstance(request, GetMemory):
            known = self.look_for(request)
            text = known.caveat if known is not None and known.caveat else text
        return Asked(reply, (self.explain(found, text),), from_cache=True, away=found)

    async def prepare(self, request: GatherContext) -> None:
        """Ask the store ahead: who asks the same soon is answered at once, unless something was written in between.

        Raises:
            RemembrancerError: the store refuses the question, and why.
        """
        now = self._clock()
        ticket = self.ready.begin(request, now)
        is_whole = False
        try:
            found = await self._from_store(request, now)
            is_whole = isinstance(found, ContextGathered) and not found.notices and not self._queue.depth
        finally:
            self.ready.finish(ticket, self._clock(), is_whole=is_whole)

    def _take_ready(self, request: GatewayRequest) -> ToGateway | None:
        """The answer that is ready for this question. Without a store there is none: the answer has to say so then."""
        if not isinstance(request, GatherContext) or not self._link.usable:
            return None
        kept = self._cache.last(request, ()) if self.ready.take(request, self._clock()) else None
        return None if kept is None else kept[0]

    async def require(self, request: GatewayRequest, timeout_s: float) -> ToGateway:
        """The store's answer to what only it can do, after what the session wrote. It may take all of `timeout_s`.

        Raises:
            MemoryUnavailable: the store is away.
            DeadlineExceeded: it has not answered in time.
            RemembrancerError: it refuses the request, and why.
        """
        until = self._clock() + timeout_s
        if not await self._is_store_there(until):
            raise MemoryUnavailable(f"{self._link.explain_away()}: call again in a moment")
        await self._catch_up(until)
        try:
            return await self._link.request(request, self._left(until), is_long=True)
        except (PeerUnavailable, PeerLost) as error:
            raise MemoryUnavailable("the store went away meanwhile: call again in a moment") from error

    async def recall(self, request: Recall, received_at: float) -> Answer:
        """The memories that match.

        Raises:
            RemembrancerError: the store refuses the question, and why.
        """
        found = await self._from_store(request, received_at)
        if isinstance(found, Away):
            return Answer(self._without_store(request, found), degraded=True, counted=request.counts_accesses)
        assert isinstance(found, Recalled)
        notices = (*found.notices, *self.behind)
        degraded = any(notice.code not in WHOLE for notice in notices)
        recalled = msgspec.structs.replace(found, notices=notices)
        return Answer(recalled, degraded, counted=request.counts_accesses)

    async def describe(self, request: DescribeStore, received_at: float) -> tuple[StoreDescription | None, bool]:
        """What is in the memory, and whether the store says so now. None: it has never said so to this session."""
        asked = await self.ask(request, received_at)
        assert isinstance(asked.reply, StoreDescription | None)
        return asked.reply, asked.reply is not None and not asked.from_cache

    def known(self, project_id: str, session_id: str) -> list[RecalledMemory]:
        """What is known here without the store and that session may see: recent and queued writes, then what it was
        shown last."""
        return self._cache.known((project_id, session_id), self._queue.mirrored())

    def made(self, project_id: str, session_id: str) -> list[PortableMemory]:
        """The memories that recent and queued writes made and that session may see, whole, oldest first."""
        return self._cache.made((project_id, session_id), self._queue.mirrored())

    def look_for(self, request: GetMemory) -> Known | None:
        """One memory, forgotten or not, so far as it is known here and the session may see it."""
        viewer = (request.project.id, request.session_id)
        followed = self._cache.follow(viewer, request.memory_id, self._queue.mirrored())
        if followed is None:
            return None
        if followed.unknown_from is None:
            return Known(followed.memory)
        return Known(followed.memory, RESTORE_WAITS if math.isinf(followed.unknown_from) else RESTORED_SINCE)

    def find_before(self, operation: Operation) -> PortableMemory | RecalledMemory | None:
        """The memory that a queued operation is going to change, as it is until then, so far as it is known here."""
        older = itertools.takewhile(lambda each: each.operation_id != operation.operation_id, self._queue.mirrored())
        return self._cache.find(asker_of(operation), target_of(operation.change), older)

    def explain(self, away: Away, what: str) -> Notice:
        """The notice of an answer that the store had no part in; `what` says what it was made of instead."""
        if away.asked:
            return Notice("query_timeout", f"The store did not answer in time. {what}")
        why = self._link.explain_away()
        return Notice("memory_unavailable", f"{what} ({why}; ask again in a moment)")

    async def _from_store(self, request: GatewayRequest, received_at: float) -> ToGateway | Away:
        until = self._until(received_at)
        if not await self._is_store_there(until):
            return Away()
        if isinstance(request, _WAIT_FOR_WRITES):
            await self._catch_up(until)
        mark = self._cache.mark
        try:
            reply = await self._link.request(request, self._left(until))
        except AWAY as error:
            return Away(asked=isinstance(error, DeadlineExceeded))
        self._cache.put(request, reply, mark, self._clock())
        return reply

    @property
    def behind(self) -> tuple[Notice, ...]:
        """The notice that the store does not have all that was written, if there are queued writes."""
        if not self._queue.depth:
            return ()
        return (Notice("partial_results", f"{self._queue.depth} queued writes are not searched yet."),)

    def _without_store(self, request: Recall, away: Away) -> Recalled:
        # Passages that were the best for another question, or of an earlier content, are not these.
        known = self._cache.answer(request, self._queue.mirrored())
        memories = tuple(msgspec.structs.replace(memory, passages=()) for memory in known)
        what = "Only recent answers and queued writes were searched, by their words: there may be more."
        if self._queue.unmirrored:
            what = f"{what} {self._queue.unmirrored} queued writes were not looked at."
        return Recalled(
            memories=memories,
            total_matched=len(memories),
            below_threshold=0,
            strategy_used="keyword",
            query_time_ms=0.0,
            notices=(self.explain(away, what),),
        )

    def _until(self, received_at: float) -> float:
        """When the store's time is over: its own budget, within what is left of the call's."""
        now = self._clock()
        budget_s = min(self._settings.read_budget_s, received_at + self._settings.call_budget_s - MARGIN_S - now)
        return now + max(LEAST_BUDGET_S, budget_s)

    def _left(self, until: float) -> float:
        return max(LEAST_BUDGET_S, until - self._clock())

    async def _is_store_there(self, until: float) -> bool:
        if self._link.usable:
            return True
        if self._link.state != "reconnecting":
            return False
        patience_s = min(RESTART_S - self._link.away_s, until - self._clock())
        return patience_s > 0 and await self._link.wait_usable(patience_s)

    async def _catch_up(self, until: float) -> None:
        if self._queue.depth:
            with anyio.move_on_after(min(CATCH_UP_S, until - self._clock())):
                await self._queue.wait_empty()
