"""The thread that loads the reranker when it is wanted, and then reranks, beside the passages and the questions."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from remembrancer.actors.embedder.reranker import Reranker
from remembrancer.actors.embedder.workers import (
    FIRST_RETRY_S,
    LAST_RETRY_S,
    Crashed,
    Finish,
    RerankerAnswer,
    WorkEvent,
    give_back_memory,
    in_words,
)
from remembrancer.protocol.errors import ModelUnusable
from remembrancer.protocol.work import PassagesReranked, RerankerFailed, RerankerReady, RerankPassages

PASSAGES_AT_ONCE: Final = 8
"""Between these the clock is looked at: what nobody waits for any more is not gone on with."""
TOO_LATE: Final = "the reranker did not get to it in time"

logger = logging.getLogger(__name__)


class _Question(NamedTuple):
    generation: int
    asked: RerankPassages


class RerankThread(threading.Thread):
    """Loads the reranker, trying again until it can, then answers questions in their order."""

    def __init__(self, load: Callable[[], Reranker], post: Callable[[WorkEvent], None]) -> None:
        super().__init__(name="reranker", daemon=True)
        self._load = load
        self._post = post
        self._inbox: queue.SimpleQueue[_Question | Finish] = queue.SimpleQueue()
        self._finished = False

    def submit(self, generation: int, question: RerankPassages) -> None:
        """Take a question in hand."""
        self._inbox.put(_Question(generation, question))

    def finish(self) -> None:
        """End after the questions that came before this."""
        self._inbox.put(Finish())

    def run(self) -> None:
        """The thread's life."""
        try:
            reranker = self._load_until_possible()
            while reranker is not None and not self._finished:
                item = self._inbox.get()
                if isinstance(item, Finish):
                    break
                self._post(RerankerAnswer(item.generation, reranked(reranker, item.asked, time.time)))
        except Exception:
            logger.exception("crashed", extra={"thread_name": self.name})
            self._post(Crashed(self.name))

    def _load_until_possible(self) -> Reranker | None:
        """The reranker; None when the end came first."""
        delay_s = FIRST_RETRY_S
        while not self._finished:
            try:
                reranker = self._load()
            except ModelUnusable as error:
                message = error.message
            except Exception as error:
                logger.exception("the reranker cannot be loaded")
                message = f"the reranker cannot be loaded: {in_words(error)}"
            else:
                give_back_memory()
                self._post(RerankerAnswer(None, RerankerReady(reranker.name)))
                return reranker
            self._post(RerankerAnswer(None, RerankerFailed(message)))
            self._refuse_for(delay_s, message)
            delay_s = min(2 * delay_s, LAST_RETRY_S)
        return None

    def _refuse_for(self, delay_s: float, reason: str) -> None:
        """Answer what comes with the reason until the next attempt."""
        retry_at = time.monotonic() + delay_s
        while not self._finished and (left_s := retry_at - time.monotonic()) > 0:
            try:
                item = self._inbox.get(timeout=left_s)
            except queue.Empty:
                return
            if isinstance(item, Finish):
                self._finished = True
            else:
                self._post(RerankerAnswer(item.generation, PassagesReranked(item.asked.query_id, (), reason)))


def reranked(reranker: Reranker, question: RerankPassages, clock: Callable[[], float]) -> PassagesReranked:
    """The answer to a question, or why there is none. `clock` gives seconds since the epoch."""
    scores: list[float] = []
    for first in range(0, len(question.passages), PASSAGES_AT_ONCE):
        if clock() > question.answer_by:
            return PassagesReranked(question.query_id, (), TOO_LATE)
        try:
            scores += reranker.score(question.query, question.passages[first : first + PASSAGES_AT_ONCE])
        except Exception as error:
            logger.exception("passages cannot be reranked")
            return PassagesReranked(question.query_id, (), in_words(error))
    return PassagesReranked(question.query_id, tuple(scores))
