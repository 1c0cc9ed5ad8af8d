"""The reranker: a cross-encoder of the sentence-transformers library from a local directory. Off by default, an extra.

It reads query and passage together, which no vector does, and so costs a run of a model for each candidate.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np

from remembrancer.actors.embedder.sentence_transformers import EXTRA, set_offline
from remembrancer.actors.embedder.workers import Answers, Post, WorkThread, in_words
from remembrancer.protocol.errors import InternalError, ModelUnusable
from remembrancer.protocol.work import PassagesReranked, RerankPassages

VARIABLE: Final = "REMEMBRANCER_RERANKER_MODEL"
PASSAGES_AT_ONCE: Final = 8
"""Between these the clock is looked at: what nobody waits for any more is not gone on with."""
TOO_LATE: Final = "the reranker did not get to it in time"
LOADING: Final = "the reranker is being loaded"

logger = logging.getLogger(__name__)


class Reranker(Protocol):
    """A loaded model."""

    def score(self, query: str, passages: Sequence[str]) -> list[float]:
        """How well each passage answers the query: in [0, 1], in the order given. What does not fit is cut off."""


class CrossEncoderReranker:
    """A model with one output for a pair of texts; its logistic is the score (Nogueira and Cho, 2019)."""

    def __init__(self, model: Any, activation: Any) -> None:
        self._model = model
        self._activation = activation

    def score(self, query: str, passages: Sequence[str]) -> list[float]:
        pairs = [(query, passage) for passage in passages]
        scores = np.asarray(
            self._model.predict(pairs, batch_size=len(pairs), show_progress_bar=False, activation_fn=self._activation),
            dtype=np.float32,
        )
        if scores.shape != (len(pairs),) or not np.isfinite(scores).all():
            raise InternalError("the reranker made scores that are none")
        return [float(score) for score in scores]


def load_cross_encoder(model: str, threads: int) -> CrossEncoderReranker:
    """The reranker in a directory. Nothing is fetched. Takes seconds, most of them for importing torch.

    Raises:
        ModelUnusable: the library or the directory is missing, or holds something else; the message says what to do.
    """
    directory = Path(model).expanduser()
    if not (directory / "config.json").is_file():
        why = "has no config.json" if directory.is_dir() else "is not a directory"
        raise ModelUnusable(f"{model} {why}: set {VARIABLE} to a directory with a cross-encoder")
    set_offline()
    try:
        import torch
        from sentence_transformers import CrossEncoder
    except ImportError as error:
        raise ModelUnusable(f"the sentence-transformers library cannot be imported ({error}): {EXTRA}") from error
    torch.set_num_threads(threads)
    try:
        loaded = CrossEncoder(str(directory.resolve()), local_files_only=True)
        outputs = int(loaded.num_labels)
        if outputs == 1:
            reranker = CrossEncoderReranker(loaded, torch.nn.Sigmoid())
            reranker.score("?", ["."])
            return reranker
    except Exception as error:  # whatever a model's files can do to the library
        raise ModelUnusable(f"sentence-transformers cannot load the cross-encoder in {directory}: {error}") from error
    raise ModelUnusable(f"{directory} holds a model with {outputs} outputs, and a reranker has one: choose another")


class RerankThread(WorkThread[tuple[int, RerankPassages]]):
    """Loads the reranker, then answers questions in their order. Until it is loaded each has the reason as its answer:
    nobody waits for it."""

    def __init__(self, load: Callable[[], Reranker], post: Post) -> None:
        super().__init__("reranker", post)
        self._load = load
        self._why_not: str | None = LOADING

    def submit(self, generation: int, question: RerankPassages) -> None:
        """Take a question in hand; its answer is of that generation."""
        if self._why_not is None:
            self._inbox.put((generation, question))
        else:
            self._post(Answers(generation, [PassagesReranked(question.query_id, (), self._why_not)]))

    def work(self) -> None:
        reranker = self.load_until_possible(self._load, lambda reason: setattr(self, "_why_not", reason))
        self._why_not = None
        while reranker is not None and (item := self._inbox.get()) is not None:
            self._post(Answers(item[0], [reranked(reranker, item[1], time.time)]))


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
