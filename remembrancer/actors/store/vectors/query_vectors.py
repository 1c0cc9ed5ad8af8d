"""The vectors of questions: asked of a worker, remembered for a while."""

from __future__ import annotations

import asyncio
import itertools
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

import anyio
import numpy as np

from remembrancer.actors.store.records.contract import Vectors
from remembrancer.protocol.errors import EmbeddingUnavailable
from remembrancer.protocol.work import EmbedQuery, ModelIdentity, QueryEmbedded

CACHED_QUERIES: Final = 1024
"""1.5 MB at 384 dimensions."""

Worker = TypeVar("Worker")


def vectors_fit(data: bytes, count: int, dimensions: int) -> bool:
    """Whether `data` is `count` vectors of finite float32 values, and not none."""
    if not count or len(data) != 4 * count * dimensions:
        return False
    return bool(np.isfinite(np.frombuffer(data, dtype="<f4")).all())


class QueryVectors(Generic[Worker]):
    """An LRU of recent query vectors in front of the workers. `ask` sends to a worker; False: it is gone."""

    def __init__(self, ask: Callable[[Worker, EmbedQuery], Awaitable[bool]], first_query_id: int = 1) -> None:
        self._ask = ask
        self._cache: OrderedDict[tuple[str, str], Vectors] = OrderedDict()
        self._waiting: dict[int, tuple[Worker, asyncio.Future[bytes]]] = {}
        self._ids = itertools.count(first_query_id)

    async def embed(
        self, text: str, identity: ModelIdentity | None, workers: list[Worker], timeout_s: float
    ) -> Vectors:
        """The unit vector of `text`, (dimensions,). The first of `workers` that can be reached makes it.

        Raises:
            EmbeddingUnavailable: no worker has a model, none answered within `timeout_s`, or the answer is no vector.
        """
        if identity is None or not workers:
            raise EmbeddingUnavailable("no embedding worker has a model loaded")
        key = (identity.key, text)
        cached = self._cache.get(key)
        if cached is not None:
            self._cache.move_to_end(key)
            return cached
        answer = await self._ask_one(text, workers, timeout_s)
        if not vectors_fit(answer, 1, identity.dimensions):
            raise EmbeddingUnavailable("a worker's answer does not fit its model")
        vector = np.frombuffer(answer, dtype="<f4")
        self._cache[key] = vector
        if len(self._cache) > CACHED_QUERIES:
            self._cache.popitem(last=False)
        return vector

    def answered(self, worker: Worker, answer: QueryEmbedded) -> None:
        """A worker's answer. One that nobody waits for any more is dropped."""
        asked, future = self._waiting.get(answer.query_id, (None, None))
        if future is None or future.done() or asked != worker:
            return
        if answer.error is not None:
            future.set_exception(EmbeddingUnavailable(answer.error))
        else:
            future.set_result(answer.vector)

    def worker_gone(self, worker: Worker) -> None:
        """Give up on what that worker was asked."""
        for asked, future in self._waiting.values():
            if asked == worker and not future.done():
                future.set_exception(EmbeddingUnavailable("the embedding worker died"))

    async def _ask_one(self, text: str, workers: list[Worker], timeout_s: float) -> bytes:
        query_id = next(self._ids)
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        try:
            with anyio.fail_after(timeout_s):
                for worker in workers:
                    self._waiting[query_id] = (worker, future)
                    if await self._ask(worker, EmbedQuery(query_id, text)):
                        return await future
        except TimeoutError as error:
            raise EmbeddingUnavailable(f"no embedding worker answered within {timeout_s:.1f} s") from error
        finally:
            self._waiting.pop(query_id, None)
        raise EmbeddingUnavailable("no embedding worker can be reached")
