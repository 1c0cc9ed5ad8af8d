"""A recall whose order the client's own model has a say in, where the user has it so (`reranker = client`)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import msgspec

from remembrancer.actors.gateway.memory_toolset.client_order import OrderBounds, order_by_client
from remembrancer.actors.gateway.store_access.reads import Answer, ReadPath
from remembrancer.actors.gateway.toolkit.client_model import ClientModel, SamplingFailed
from remembrancer.actors.gateway.toolkit.tools import Call
from remembrancer.config.settings import Settings
from remembrancer.protocol.control import RerankerFigures
from remembrancer.protocol.reads import Notice, Recall, RecalledMemory
from remembrancer.protocol.reranker_tally import RerankerTally

MARGIN_S: Final = 0.2
"""What is kept of the call's budget for the way back."""
REST_S: Final = 60.0
"""A client that gave no order is not asked again for so long: each time costs its user something."""
RESTING: Final = "it gave no order a moment ago, and is asked again in a minute"
REMEMBERED: Final = 128
"""Clients that rest."""


class OrderedRecall:
    """Recalls for the tool. `clock` gives seconds since the epoch."""

    def __init__(self, reads: ReadPath, settings: Settings, clock: Callable[[], float] = time.time) -> None:
        self._reads = reads
        self._settings = settings
        self._clock = clock
        self._resting: dict[str, float] = {}
        self._tally = RerankerTally(SamplingFailed)

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
        recalled = msgspec.structs.replace(answer.recalled, memories=shown, notices=notices)
        return msgspec.structs.replace(answer, recalled=recalled)

    def figures(self) -> RerankerFigures | None:
        """How it is, and what it costs a recall; None where the client is not to be asked."""
        if self._settings.reranker != "client":
            return None
        error = None if self._settings.sampling else "the setting sampling is off, so no client's model may be asked"
        figures = RerankerFigures(
            kind="client",
            state="ready" if error is None else "failed",
            candidates=self._settings.reranker_candidates,
            error=error,
        )
        return self._tally.added_to(figures)

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
        try:
            with self._tally.asking():
                return await order_by_client(model, query, memories, bounds)
        except SamplingFailed:
            self._rest(call.caller.bridge)
            raise

    def _rest(self, bridge: str) -> None:
        self._resting[bridge] = self._clock() + REST_S
        if len(self._resting) > REMEMBERED:
            del self._resting[next(iter(self._resting))]
