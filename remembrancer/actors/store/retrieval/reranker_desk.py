"""Where the store and the worker with the reranker meet: one worker loads it, and answers for it while it lives."""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import anyio

from remembrancer.actors.store.retrieval.reranking import RerankingFailed
from remembrancer.protocol.control import PeerGone
from remembrancer.protocol.sockets import Peer
from remembrancer.protocol.wire import ToWorker, WorkerMessage
from remembrancer.protocol.work import (
    PassagesReranked,
    PrepareReranker,
    RerankerFailed,
    RerankerReady,
    RerankPassages,
    WorkerFailed,
    WorkerLeaving,
    WorkerReady,
)

FIRST_ID_BITS: Final = 48
"""As of the questions for vectors: an answer that an earlier store asked for fits none of ours."""
NO_WORKER: Final = "no embedding worker is there to run the reranker"


class RerankerDesk:
    """`send` sends to a worker; False: it is gone. The worker that was there first loads the reranker.

    When it dies or leaves, the next one does. Until it is ready nobody waits for it.
    """

    def __init__(
        self,
        send: Callable[[Peer, ToWorker], Awaitable[bool]],
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._send = send
        self._wall_clock = wall_clock
        self._workers: list[Peer] = []
        self._state: RerankerReady | RerankerFailed | None = None
        self._waiting: dict[int, asyncio.Future[tuple[float, ...]]] = {}
        self._ids = itertools.count(secrets.randbits(FIRST_ID_BITS))

    def hear(self, worker: Peer, message: WorkerMessage) -> None:
        """What a worker says."""
        match message:
            case WorkerReady():
                if worker not in self._workers:
                    self._workers.append(worker)
                if self._workers[0] == worker:
                    self._prepare()
            case WorkerFailed() | WorkerLeaving():
                self._lose(worker)
            case RerankerReady() | RerankerFailed() if self._workers[:1] == [worker]:
                self._state = message
            case PassagesReranked() if self._workers[:1] == [worker]:
                self._answered(message)

    def peer_gone(self, gone: PeerGone) -> None:
        """A process of the runtime has died."""
        for worker in [each for each in self._workers if each.incarnation == gone.incarnation]:
            self._lose(worker)

    async def ask(self, query: str, passages: Sequence[str], timeout_s: float) -> Sequence[float]:
        """A score in [0, 1] for each passage.

        Raises:
            RerankingFailed: there is no reranker yet, or it has not answered within `timeout_s`, or could not.
        """
        if not isinstance(self._state, RerankerReady):
            raise RerankingFailed(self._why_not())
        return await self._answer_of(self._workers[0], query, passages, timeout_s)

    def _why_not(self) -> str:
        if isinstance(self._state, RerankerFailed):
            return self._state.message
        return "the reranker is being loaded" if self._workers else NO_WORKER

    def _prepare(self) -> None:
        self._state = None
        asyncio.ensure_future(self._send(self._workers[0], PrepareReranker()))  # noqa: RUF006 - its end is told

    def _lose(self, worker: Peer) -> None:
        if worker not in self._workers:
            return
        was_asked = self._workers[0] == worker
        self._workers.remove(worker)
        if not was_asked:
            return
        self._state = None
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(RerankingFailed("the worker with the reranker died"))
        if self._workers:
            self._prepare()

    def _answered(self, answer: PassagesReranked) -> None:
        future = self._waiting.get(answer.query_id)
        if future is None or future.done():
            return
        if answer.error is not None:
            future.set_exception(RerankingFailed(answer.error))
        else:
            future.set_result(answer.scores)

    async def _answer_of(
        self, worker: Peer, query: str, passages: Sequence[str], timeout_s: float
    ) -> tuple[float, ...]:
        query_id = next(self._ids)
        future: asyncio.Future[tuple[float, ...]] = asyncio.get_running_loop().create_future()
        self._waiting[query_id] = future
        question = RerankPassages(query_id, query, tuple(passages), self._wall_clock() + timeout_s)
        try:
            with anyio.fail_after(timeout_s):
                if not await self._send(worker, question):
                    raise RerankingFailed("the worker with the reranker cannot be reached")
                scores = await future
        except TimeoutError as error:
            raise RerankingFailed(f"the reranker did not answer within {timeout_s:.2g} s") from error
        finally:
            del self._waiting[query_id]
        if len(scores) != len(passages) or not all(0.0 <= score <= 1.0 for score in scores):
            raise RerankingFailed("the reranker's answer does not fit the question")
        return scores
