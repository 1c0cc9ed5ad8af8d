"""A recall whose order the client's own model has a say in, where the user has it so (`reranker = client`)."""

from __future__ import annotations

import logging
import statistics
import time
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from remembrancer.actors.gateway.memory_toolset.client_order import OrderBounds, order_by_client
from remembrancer.actors.gateway.store_access.reads import Answer, ReadPath
from remembrancer.actors.gateway.store_access.store_link import StoreLink
from remembrancer.actors.gateway.toolkit.client_model import ClientModel, SamplingFailed
from remembrancer.actors.gateway.toolkit.tools import Call
from remembrancer.config.settings import Settings
from remembrancer.protocol.control import RerankerFigures
from remembrancer.protocol.errors import RemembrancerError
from remembrancer.protocol.reads import NoteAccess, Notice, Recall, RecalledMemory

MARGIN_S: Final = 0.2
"""What is kept of the call's budget for the way back."""
REST_S: Final = 60.0
"""A client that gave no order is not asked again for so long: each time costs its user something."""
RESTING: Final = "it gave no order a moment ago, and is asked again in a minute"
NOTE_TIMEOUT_S: Final = 0.5
REMEMBERED: Final = 128
"""Answers of which the median is made, and clients that rest."""

logger = logging.getLogger(__name__)


class OrderedRecall:
    """Recalls for the tool. `clock` gives seconds since the epoch."""

    def __init__(
        self, reads: ReadPath, link: StoreLink, settings: Settings, clock: Callable[[], float] = time.time
    ) -> None:
        self._reads = reads
        self._link = link
        self._settings = settings
        self._clock = clock
        self._resting: dict[str, float] = {}
        self._took_ms: deque[float] = deque(maxlen=REMEMBERED)
        self._asked = 0
        self._failed = 0

    async def recall(self, call: Call, request: Recall) -> Answer:
        """The memories that match, in the order of the client's model if it may be asked and gives one.

        Raises:
            RemembrancerError: as `ReadPath.recall`.
        """
        settings = self._settings
        if settings.reranker != "client" or not settings.sampling or call.model is None:
            return await self._reads.recall(request, call.received_at)
        wider = msgspec.structs.replace(
            request,
            limit=max(request.limit, settings.reranker_candidates),
            with_passages=True,
            counts_accesses=False,
        )
        answer = await self._reads.recall(wider, call.received_at)
        memories = list(answer.recalled.memories)
        notices = answer.recalled.notices
        if len(memories) > 1:
            try:
                memories = await self._ordered(call, call.model, request.query, memories)
            except SamplingFailed as error:
                text = f"The order is that of the search alone, not of the client's model: {error}."
                notices = (*notices, Notice("not_reranked", text))
        shown = tuple(memories[: request.limit])
        if not request.with_passages:
            shown = tuple(msgspec.structs.replace(memory, passages=()) for memory in shown)
        await self._note(NoteAccess(request.project, request.session_id, tuple(memory.id for memory in shown)))
        return Answer(msgspec.structs.replace(answer.recalled, memories=shown, notices=notices), answer.degraded)

    def figures(self) -> RerankerFigures | None:
        """How it is, and what it costs a recall; None where the client is not to be asked."""
        if self._settings.reranker != "client":
            return None
        error = None if self._settings.sampling else "the setting sampling is off, so no client's model may be asked"
        return RerankerFigures(
            kind="client",
            state="ready" if error is None else "failed",
            candidates=self._settings.reranker_candidates,
            asked=self._asked,
            failed=self._failed,
            last_ms=self._took_ms[-1] if self._took_ms else None,
            median_ms=statistics.median(self._took_ms) if self._took_ms else None,
            error=error,
        )

    async def _ordered(
        self, call: Call, model: ClientModel, query: str, memories: list[RecalledMemory]
    ) -> list[RecalledMemory]:
        settings, now = self._settings, self._clock()
        if self._resting.get(call.caller.bridge, now) > now:
            raise SamplingFailed(RESTING)
        left_s = call.received_at + settings.call_budget_s - MARGIN_S - now
        budget_s = min(settings.reranker_budget_s, settings.sampling_budget_s, left_s)
        if budget_s <= 0:
            raise SamplingFailed("the call has no time left for it")
        bounds = OrderBounds(settings.reranker_candidates, settings.sampling_length, budget_s)
        self._asked += 1
        began = time.perf_counter()
        try:
            ordered = await order_by_client(model, query, memories, bounds)
        except SamplingFailed:
            self._failed += 1
            self._rest(call.caller.bridge)
            raise
        self._took_ms.append((time.perf_counter() - began) * 1000)
        return ordered

    def _rest(self, bridge: str) -> None:
        self._resting[bridge] = self._clock() + REST_S
        if len(self._resting) > REMEMBERED:
            del self._resting[next(iter(self._resting))]

    async def _note(self, note: NoteAccess) -> None:
        """Tell the store of what is shown: it was asked for more than that."""
        if not note.memory_ids or not self._link.usable:
            return
        try:
            await self._link.request(note, NOTE_TIMEOUT_S)
        except RemembrancerError as error:
            logger.debug("the store took no note of an access", extra={"code": error.code})
