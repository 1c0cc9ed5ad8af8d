"""The thread that answers questions, at the same time as passages are embedded."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Sequence
from typing import Final

import numpy as np

from remembrancer.actors.embedder.engine import Engine, Vector, unit_rows
from remembrancer.actors.embedder.passages import split_passages
from remembrancer.actors.embedder.workers import Crashed, Finish, Post, QuestionAnswers, embed_each, in_words
from remembrancer.protocol.tracing import NO_TRACE, Trace
from remembrancer.protocol.work import EmbedQuery, QueryEmbedded

QUESTIONS_AT_ONCE: Final = 16

logger = logging.getLogger(__name__)


class QuestionThread(threading.Thread):
    """Answers questions as they come, at the same time as passages are embedded; those that wait go together."""

    def __init__(self, engine: Engine, post: Post) -> None:
        super().__init__(name="questions", daemon=True)
        self._engine = engine
        self._post = post
        self._inbox: queue.SimpleQueue[tuple[int, EmbedQuery, Trace] | Finish] = queue.SimpleQueue()

    def submit(self, generation: int, question: EmbedQuery, trace: Trace = NO_TRACE) -> None:
        """Take a question in hand."""
        self._inbox.put((generation, question, trace))

    def finish(self) -> None:
        """End after the questions that came before this."""
        self._inbox.put(Finish())

    def run(self) -> None:
        """The thread's life."""
        try:
            self._work()
        except Exception:
            logger.exception("crashed", extra={"thread_name": self.name})
            self._post(Crashed(self.name))

    def _work(self) -> None:
        finished = False
        while not finished:
            items = [self._inbox.get()]
            while len(items) < QUESTIONS_AT_ONCE and not self._inbox.empty():
                items.append(self._inbox.get())
            questions = [item for item in items if not isinstance(item, Finish)]
            finished = len(questions) < len(items)
            if questions:
                for _, _, trace in questions:
                    trace.mark("thread took it")
                answers = answer_questions(self._engine, [question for _, question, _ in questions])
                generations = [generation for generation, _, _ in questions]
                for _, _, trace in questions:
                    trace.end("vector made")
                self._post(QuestionAnswers(list(zip(generations, answers, strict=True))))


def answer_questions(engine: Engine, questions: Sequence[EmbedQuery]) -> list[QueryEmbedded]:
    """The vector of each question, or why there is none.

    A question longer than the window is the mean of its parts: the first two and the last two, where what is asked
    usually stands.
    """
    texts: list[str] = []
    parts: list[range | str] = []
    for question in questions:
        try:
            passages = split_passages(question.text, engine.tokenizer, engine.passage_budget)
        except Exception as error:
            logger.exception("a question cannot be split")
            parts.append(in_words(error))
            continue
        if len(passages) > 4:
            passages = passages[:2] + passages[-2:]
        parts.append(range(len(texts), len(texts) + len(passages)))
        texts.extend(question.text[each.start : each.end] for each in passages)
    results = embed_each(engine.embed_questions, texts) if texts else []
    return [
        _question_answer(question.query_id, [part] if isinstance(part, str) else [results[index] for index in part])
        for question, part in zip(questions, parts, strict=True)
    ]


def _question_answer(query_id: int, parts: Sequence[Vector | str]) -> QueryEmbedded:
    vectors: list[Vector] = []
    for part in parts:
        if isinstance(part, str):
            return QueryEmbedded(query_id, b"", part)
        vectors.append(part)
    (unit,) = unit_rows(np.mean(vectors, axis=0, keepdims=True))
    return QueryEmbedded(query_id, unit.astype("<f4").tobytes())
