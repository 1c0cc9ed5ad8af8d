"""The thread of an embedder that loads the model and embeds passages, and the vectors of questions.

It reports to the event loop through one function, `post`, which may be called from any thread.
"""

import ctypes
import logging
import os
import queue
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np

from remembrancer.actors.embedder.engine import Engine, Vector, Vectors, scale_of, unit_rows
from remembrancer.actors.embedder.passages import split_passages
from remembrancer.config.settings import Settings, model_choices
from remembrancer.protocol.errors import (
    Failure,
    InternalError,
    ModelUnusable,
    RemembrancerError,
)
from remembrancer.protocol.work import CosineScale, EmbeddedText, Passage

FIRST_RETRY_S: Final = 1.0
LAST_RETRY_S: Final = 30.0
"""The longest pause between attempts to load a model: 1, 2, 4 … 30 s."""
IDLE_S: Final = 2.0
"""Freed memory is returned to the system after being idle for this long."""
BATCH_TOKENS: Final = 2048
"""The padded tokens (rows times longest row) of a batch, where the engine sets no other number: long enough to be worth
its fixed cost, short enough that others hardly wait for it."""
OPEN_TEXTS: Final = 32
"""The texts that are begun at once: the store suspects the oldest so many of a worker that died."""

logger = logging.getLogger(__name__)


def load_engine(settings: Settings, threads: int) -> Engine:
    """The engine that the settings select, computing with `threads` threads. Takes a fraction of a second, or seconds.

    Raises:
        ModelUnusable: its library, weights or vocabulary are missing or do not have the pinned checksum; the message
            says what to do.
    """
    # Imported here, so that a process loads only the library of its own engine.
    choice, _ = model_choices(settings)
    try:
        match choice.engine:
            case "onnx":
                from remembrancer.actors.embedder.onnx import load_onnx

                return load_onnx(choice.model, threads)
            case "multilingual":
                from remembrancer.actors.embedder.multilingual import load_multilingual

                return load_multilingual(choice.model, threads)
            case "sentence-transformers":
                from remembrancer.actors.embedder.sentence_transformers import load_sentence_transformer

                return load_sentence_transformer(choice.model, threads)
            case "voyage" | "openai":
                from remembrancer.actors.embedder.providers import load_provider

                return load_provider(choice, settings)
            case _:
                raise ModelUnusable(f"there is no engine {choice.engine}")
    except ModelUnusable:
        raise
    except Exception as error:  # a model's files can cause any error in a library
        logger.info("the model cannot be loaded", exc_info=True)
        raise ModelUnusable(f"the engine {choice.engine} cannot load {choice.model}: {error}") from error


class Loaded(NamedTuple):
    """The model is loaded."""

    engine: Engine
    scale: CosineScale


class Unusable(NamedTuple):
    """The model cannot be loaded, or used, now. Another attempt follows."""

    message: str


class Answer(NamedTuple):
    """The answer to a text of the store: its passages, or the reason why there are none."""

    message_id: int
    body: EmbeddedText | Failure


class Crashed:
    """The thread has ended because of a bug: the process cannot work any more."""


WorkEvent = Loaded | Unusable | Answer | Crashed
Post = Callable[[WorkEvent], None]


class Text(NamedTuple):
    """A text to be embedded, with the id of the request."""

    message_id: int
    text: str


class PassageRow(NamedTuple):
    """One passage on its way to the model: number `place` of a request's text. Ordered by length."""

    tokens: int
    message_id: int
    place: int
    text: str


class PassageThread(threading.Thread):
    """Loads the model and embeds the passages of texts; reloads the model when it has become unusable.

    Its inbox gets texts, or "" when the store of the present ones is gone, or the reason why a question found the model
    unusable: then it drops its texts and reloads.
    """

    def __init__(self, load: Callable[[], Engine], post: Post, batch_texts: int = 0) -> None:
        super().__init__(name="passages", daemon=True)
        self._post = post
        self._inbox: queue.SimpleQueue[Text | str] = queue.SimpleQueue()
        self._finished = threading.Event()
        self._load = load
        self._batch_texts = batch_texts
        self._texts: dict[int, str] = {}
        """Texts that are not begun yet, by the ids of the requests."""
        self._open: dict[int, tuple[tuple[Passage, ...], dict[int, Vector]]] = {}
        """The passages of the texts that are begun, and their vectors so far."""

    def put(self, item: Text | str) -> None:
        """Give the thread an item of work."""
        self._inbox.put(item)

    def finish(self) -> None:
        """End the thread after its present work."""
        self._finished.set()
        self.put("")

    def run(self) -> None:
        """The main function of the thread."""
        try:
            self._work()
        except Exception:
            logger.exception("crashed")
            self._post(Crashed())

    def _work(self) -> None:
        yield_to_others()
        while True:
            loaded = self._load_until_possible()
            if loaded is None:
                return
            self._drop()
            while not self._inbox.empty():  # texts from before the model was loaded: the store gives them again
                self._inbox.get()
            self._post(loaded)
            try:
                self._embed_by(loaded.engine)
            except ModelUnusable as error:
                self._post(Unusable(error.message))
                self._finished.wait(FIRST_RETRY_S)
            if self._finished.is_set():
                return

    def _load_until_possible(self) -> Loaded | None:
        """Load the model, with retries until that works; None when the thread was told to end first."""
        delay_s = FIRST_RETRY_S
        while not self._finished.is_set():
            try:
                engine = self._load()
                loaded = Loaded(engine, scale_of(engine))
            except Exception as error:
                reason = in_words(error)
                if not isinstance(error, ModelUnusable):
                    logger.exception("the model cannot be loaded")
                    reason = f"the model cannot be loaded: {reason}"
                self._post(Unusable(reason))
                self._finished.wait(delay_s)
                delay_s = min(2 * delay_s, LAST_RETRY_S)
            else:
                give_back_memory()
                return loaded
        return None

    def _embed_by(self, engine: Engine) -> None:
        worked = True
        while not self._finished.is_set():
            while self._texts and not self._inbox.empty():
                self._hear(self._inbox.get())
            if self._texts:
                self._embed_texts(engine)
                worked = True
                continue
            try:
                self._hear(self._inbox.get(timeout=IDLE_S if worked else None))
            except queue.Empty:
                give_back_memory()
                worked = False

    def _hear(self, item: Text | str) -> None:
        if isinstance(item, Text):
            self._texts[item.message_id] = item.text
        elif item:
            raise ModelUnusable(item)
        else:
            self._drop()

    def _drop(self) -> None:
        self._texts.clear()
        self._open.clear()

    def _embed_texts(self, engine: Engine) -> None:
        """Embed the oldest texts together, in batches of passages of similar length, and answer each as soon as it is
        complete: the shortest first."""
        marks = engine.identity.window_tokens - engine.passage_budget
        rows: list[PassageRow] = []
        for message_id in list(self._texts)[:OPEN_TEXTS]:
            text = self._texts.pop(message_id)
            try:
                measured = split_passages(text, engine.tokenizer, engine.passage_tokens)
            except Exception as error:
                logger.exception("a text cannot be split")
                self._refuse(message_id, in_words(error))
                continue
            self._open[message_id] = tuple(Passage(start, end) for start, end, _ in measured), {}
            rows += [
                PassageRow(count + marks, message_id, place, text[start:end])
                for place, (start, end, count) in enumerate(measured)
            ]
        rows.sort()
        while rows and not self._finished.is_set():
            most, tokens = self._batch_texts or len(rows), engine.batch_tokens or BATCH_TOKENS
            fitting = (number for number, row in enumerate(rows[:most], start=1) if number * row.tokens <= tokens)
            count = max(fitting, default=1)
            self._embed_batch(engine, rows[:count])
            while not self._inbox.empty():
                self._hear(self._inbox.get())
            rows = [row for row in rows[count:] if row.message_id in self._open]

    def _refuse(self, message_id: int, reason: str) -> None:
        self._post(Answer(message_id, InternalError(reason).to_failure()))

    def _embed_batch(self, engine: Engine, batch: Sequence[PassageRow]) -> None:
        for row, result in zip(batch, embed_each(engine.embed_passages, [row.text for row in batch]), strict=True):
            message_id = row.message_id
            if message_id not in self._open:  # another passage of this text has failed before
                continue
            passages, vectors = self._open[message_id]
            if isinstance(result, str):
                del self._open[message_id]
                self._refuse(message_id, result)
                continue
            vectors[row.place] = result
            if len(vectors) == len(passages):
                del self._open[message_id]
                matrix = np.stack([vectors[place] for place in range(len(passages))])
                self._post(Answer(message_id, EmbeddedText(passages, matrix.astype("<f4").tobytes())))


def embed_each(embed: Callable[[Sequence[str]], Vectors], texts: Sequence[str]) -> list[Vector | str]:
    """A vector for each text, or its error: one bad text does not affect the others of its batch.

    Raises:
        ModelUnusable: see `Engine.embed_passages`.
    """
    try:
        return list(finite(embed(texts)))
    except ModelUnusable:
        raise
    except Exception as error:
        logger.exception("texts cannot be embedded", extra={"texts": len(texts)})
        if len(texts) == 1:
            return [in_words(error)]
    return [embed_each(embed, [text])[0] for text in texts]


def finite(vectors: Vectors) -> Vectors:
    """The vectors. Raises `InternalError` if one is not finite."""
    if not np.isfinite(vectors).all():
        raise InternalError("the model made a vector that is not finite")
    return vectors


def in_words(error: Exception) -> str:
    """The error's text for an answer."""
    return error.message if isinstance(error, RemembrancerError) else f"{type(error).__name__}: {error}"[:200]


def question_vector(engine: Engine, question: str) -> bytes:
    """The vector of a question as float32: that of a question longer than the window is the mean of its parts, the
    first two and the last two, which usually contain the actual question.

    Raises:
        ModelUnusable: see `Engine.embed_passages`.
    """
    passages = split_passages(question, engine.tokenizer, engine.passage_budget)
    if len(passages) > 4:
        passages = passages[:2] + passages[-2:]
    vectors = finite(engine.embed_questions([question[each.start : each.end] for each in passages]))
    return unit_rows(vectors.mean(axis=0, keepdims=True)).astype("<f4").tobytes()


NICENESS: Final = 10
"""For the thread that embeds passages, which are less urgent than the work of the store and the gateway."""


def yield_to_others() -> None:
    """Lower the priority of the calling thread, and of the threads that it starts. On Linux; no effect elsewhere.

    Linux has a niceness for each thread (sched(7)); questions are answered by another thread, which keeps its own.
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
