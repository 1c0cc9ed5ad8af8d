"""The threads of an embedder: one loads the model and embeds passages, one answers questions at the same time.

Both speak to the event loop through one function, `post`, which may be called from any thread, and are spoken to
through their inboxes."""

from __future__ import annotations

import ctypes
import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

import numpy as np

from remembrancer.actors.embedder.batching import BatchSize, JobTable, Row, RowQueue
from remembrancer.actors.embedder.engine import Engine, Vector, Vectors, unit_rows
from remembrancer.actors.embedder.passages import PASSAGE_TOKENS, split_passages
from remembrancer.config.settings import Settings
from remembrancer.protocol.errors import InternalError, ModelUnusable, RemembrancerError
from remembrancer.protocol.tracing import NO_TRACE, Trace
from remembrancer.protocol.work import (
    EmbedQuery,
    JobFailed,
    Passage,
    PassageJob,
    PassagesEmbedded,
    PassagesReranked,
    QueryEmbedded,
)

FIRST_RETRY_S: Final = 1.0
LAST_RETRY_S: Final = 30.0
"""Between the attempts to load a model: 1, 2, 4 … 30 s."""
IDLE_S: Final = 2.0
"""After so long without work, freed memory is given back."""
SPLIT_AT_ONCE_CHARACTERS: Final = 65_536
"""Text that is split between two batches, so that the model does not wait for the splitting of every job in hand."""

logger = logging.getLogger(__name__)


def load_engine(settings: Settings, threads: int) -> Engine:
    """The engine that the settings ask for, computing with `threads` threads. Takes a fraction of a second or seconds.

    Raises:
        ModelUnusable: its library, weights or vocabulary are missing or are not what was pinned; the message says
            what to do.
    """
    # Imported here: a process pays for the library of the one engine that it runs.
    match settings.engine:
        case "onnx":
            from remembrancer.actors.embedder.onnx import load_onnx

            return load_onnx(settings.model, threads)
        case "sentence-transformers":
            from remembrancer.actors.embedder.sentence_transformers import load_sentence_transformer

            return load_sentence_transformer(settings.model, threads)


class Loaded(NamedTuple):
    """The model is there."""

    engine: Engine


class Unusable(NamedTuple):
    """The model cannot be loaded now. Another attempt follows."""

    message: str


class Answers(NamedTuple):
    """Finished jobs of one generation (see `PassageThread.forget`)."""

    generation: int
    messages: list[PassagesEmbedded | JobFailed]


class QuestionAnswers(NamedTuple):
    """Finished questions, each with the generation that it was submitted with."""

    messages: list[tuple[int, QueryEmbedded]]


class Crashed(NamedTuple):
    """A thread has ended by a fault of ours: the process cannot do its work any more."""

    thread: str


class RerankerAnswer(NamedTuple):
    """A finished question to the reranker, with the generation that it was submitted with."""

    generation: int
    message: PassagesReranked


WorkEvent = Loaded | Unusable | Answers | QuestionAnswers | RerankerAnswer | Crashed
Post = Callable[[WorkEvent], None]


class _Forget(NamedTuple):
    generation: int


class Finish:
    """The end of an inbox."""


class PassageThread(threading.Thread):
    """Loads the model, trying again until it can, then embeds the jobs that it is given."""

    def __init__(self, load: Callable[[], Engine], post: Post) -> None:
        super().__init__(name="passages", daemon=True)
        self._load = load
        self._post = post
        self._inbox: queue.SimpleQueue[tuple[PassageJob, ...] | _Forget | Finish] = queue.SimpleQueue()
        self._unsplit: dict[int, PassageJob] = {}
        self._rows = RowQueue()
        self._jobs = JobTable()
        self._size = BatchSize()
        self._generation = 0
        self._finished = False
        self._beside = ThreadPoolExecutor(1, "batch", initializer=yield_to_others)

    def submit(self, jobs: tuple[PassageJob, ...]) -> None:
        """Take jobs in hand. A job that is in hand already is not taken twice."""
        self._inbox.put(jobs)

    def forget(self, generation: int) -> None:
        """Drop what is in hand: the store that gave it is gone. Answers name the generation that they belong to."""
        self._inbox.put(_Forget(generation))

    def finish(self) -> None:
        """End after the batch under way."""
        self._inbox.put(Finish())

    def run(self) -> None:
        """The thread's life."""
        try:
            yield_to_others()
            self._work()
        except Exception:
            logger.exception("crashed", extra={"thread_name": self.name})
            self._post(Crashed(self.name))

    def _work(self) -> None:
        engine = self._load_until_possible()
        worked = True
        while engine is not None and not self._finished:
            if self._rows or self._unsplit:
                self._hear_waiting()
                if not self._rows:
                    self._split_some(engine)
                self._embed_batch(engine)
                worked = True
            elif not self._hear_one(IDLE_S if worked else None):
                give_back_memory()
                worked = False

    def _load_until_possible(self) -> Engine | None:
        """The engine; None when the end came first."""
        delay_s = FIRST_RETRY_S
        while not self._finished:
            try:
                engine = self._load()
            except ModelUnusable as error:
                message = error.message
            except Exception as error:
                logger.exception("the model cannot be loaded")
                message = f"the model cannot be loaded: {type(error).__name__}: {error}"
            else:
                give_back_memory()
                self._post(Loaded(engine))
                return engine
            self._post(Unusable(message))
            retry_at = time.monotonic() + delay_s
            while not self._finished and (left_s := retry_at - time.monotonic()) > 0:
                self._hear_one(left_s)
            delay_s = min(2 * delay_s, LAST_RETRY_S)
        return None

    def _hear_waiting(self) -> None:
        while not self._inbox.empty():
            self._hear_one(None)

    def _hear_one(self, timeout_s: float | None) -> bool:
        """Take one item from the inbox; False when none came in time."""
        try:
            item = self._inbox.get(timeout=timeout_s)
        except queue.Empty:
            return False
        match item:
            case Finish():
                self._finished = True
            case _Forget(generation=generation):
                self._generation = generation
                self._unsplit.clear()
                self._rows.clear()
                self._jobs.clear()
            case jobs:
                self._unsplit.update((job.job_id, job) for job in jobs if job.job_id not in self._jobs)
        return True

    def _split_some(self, engine: Engine) -> None:
        characters = 0
        while self._unsplit and characters < SPLIT_AT_ONCE_CHARACTERS:
            job = self._unsplit.pop(next(iter(self._unsplit)))
            characters += len(job.text)
            try:
                budget = min(engine.passage_budget, PASSAGE_TOKENS)
                passages = split_passages(job.text, engine.tokenizer, budget)
            except Exception as error:
                logger.exception("a text cannot be split", extra={"job_id": job.job_id})
                self._post(Answers(self._generation, [JobFailed(job.job_id, in_words(error))]))
                continue
            marks = engine.identity.window_tokens - engine.passage_budget
            self._jobs.begin(job.job_id, [Passage(each.start, each.end) for each in passages])
            self._rows.add(job.job_id, [(job.text[each.start : each.end], each.tokens + marks) for each in passages])

    def _embed_batch(self, engine: Engine) -> None:
        batch = self._rows.take(self._size.tokens)
        if not batch or self._finished:
            return
        began = time.perf_counter()
        under_way = self._beside.submit(embed_each, engine.embed_passages, [row.text for row in batch])
        self._split_some(engine)  # meanwhile: the model leaves the interpreter to others
        results = under_way.result()
        self._size.observe(len(batch) * batch[-1].tokens, time.perf_counter() - began)
        messages = [
            message for row, result in zip(batch, results, strict=True) if (message := self._settle(row, result))
        ]
        if messages:
            self._post(Answers(self._generation, messages))

    def _settle(self, row: Row, result: Vector | str) -> PassagesEmbedded | JobFailed | None:
        if not isinstance(result, str):
            return self._jobs.put(row, result)
        if row.job_id not in self._jobs:
            return None  # another passage of this job failed before
        self._jobs.drop(row.job_id)
        self._rows.discard(row.job_id)
        return JobFailed(row.job_id, result)


def embed_each(embed: Callable[[Sequence[str]], Vectors], texts: Sequence[str]) -> list[Vector | str]:
    """A vector for each text, or why it has none: one bad text does not hurt those that share its batch."""
    try:
        return list(_finite(embed(texts)))
    except Exception:
        logger.exception("a batch failed: each text is tried by itself", extra={"texts": len(texts)})
    results: list[Vector | str] = []
    for text in texts:
        try:
            results.append(_finite(embed([text]))[0])
        except Exception as error:
            logger.exception("a text cannot be embedded")
            results.append(in_words(error))
    return results


def _finite(vectors: Vectors) -> Vectors:
    if not np.isfinite(vectors).all():
        raise InternalError("the model made a vector that is not finite")
    return vectors


def in_words(error: Exception) -> str:
    """What an answer says of an error."""
    return error.message if isinstance(error, RemembrancerError) else f"{type(error).__name__}: {error}"[:200]


QUESTIONS_AT_ONCE: Final = 16


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


NICENESS: Final = 10
"""For the thread that embeds passages: they can wait, and the store and the gateway should not wait for them."""


def yield_to_others() -> None:
    """Lower the priority of the calling thread, and of the threads that it starts. On Linux; nothing elsewhere.

    Linux knows a niceness for each thread (sched(7)); questions are answered by another thread, which keeps its own.
    """
    if sys.platform == "linux":
        try:
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
        except OSError as error:
            logger.debug("priority not lowered", extra={"reason": str(error)})


def give_back_memory() -> None:
    """Return freed memory to the system, where the C library can (glibc). Loading a model frees about 80 MB."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
