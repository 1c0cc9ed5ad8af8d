"""The way of a read: to the store if it answers, else to what is known here, which the answer then says."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import anyio
import msgspec

from remembrancer.actors.gateway.read_cache import ReadCache
from remembrancer.actors.gateway.store_link import AWAY, StoreLink
from remembrancer.actors.gateway.write_queue import WriteQueue
from remembrancer.config.settings import Settings
from remembrancer.protocol.reads import DescribeStore, Notice, Recall, Recalled, StoreDescription

CATCH_UP_S: Final = 0.5
"""How long a read waits for queued writes to reach the store, so that a session reads what it wrote."""
RESTART_S: Final = 2.0
"""For so long a store that went away is expected back any moment, and a read waits for it."""
MARGIN_S: Final = 0.2
LEAST_BUDGET_S: Final = 0.25


class Answer(msgspec.Struct, frozen=True):
    """What was found, and whether something is missing from it."""

    recalled: Recalled
    degraded: bool


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

    async def recall(self, request: Recall, received_at: float) -> Answer:
        """The memories that match.

        Raises:
            RemembrancerError: the store refuses the question, and why.
        """
        until = self._until(received_at)
        if await self._is_store_there(until):
            await self._catch_up(until)
            try:
                reply = await self._link.request(request, self._left(until))
            except AWAY:
                pass
            else:
                assert isinstance(reply, Recalled)
                self._cache.put(request, reply)
                return self._complete(reply)
        return Answer(self._without_store(request), degraded=True)

    def _complete(self, reply: Recalled) -> Answer:
        notices = reply.notices
        if self._queue.depth:
            missing = Notice("partial_results", f"{self._queue.depth} queued writes are not searched yet.")
            notices = (*notices, missing)
        return Answer(msgspec.structs.replace(reply, notices=notices), degraded=bool(notices))

    def _without_store(self, request: Recall) -> Recalled:
        memories = tuple(self._cache.answer(request, self._queue.mirrored()))
        notice = Notice(
            "memory_unavailable",
            f"Only recent answers and queued writes were searched, by their words: {self._link.explain_away()}. "
            "There may be more; ask again in a moment.",
        )
        return Recalled(
            memories=memories,
            total_matched=len(memories),
            below_threshold=0,
            strategy_used="keyword",
            query_time_ms=0.0,
            notices=(notice,),
        )

    async def describe(self, request: DescribeStore, received_at: float) -> tuple[StoreDescription | None, bool]:
        """What is in the memory, and whether the store says so now. None: it has never said so to this session."""
        until = self._until(received_at)
        viewer = (request.project.id, request.session_id)
        if await self._is_store_there(until):
            try:
                reply = await self._link.request(request, self._left(until))
            except AWAY:
                pass
            else:
                assert isinstance(reply, StoreDescription)
                self._cache.put_description(viewer, reply)
                return reply, True
        return self._cache.description(viewer), False

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
