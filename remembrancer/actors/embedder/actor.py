"""The embedder: takes texts from the store, up to its credit, and answers each with vectors.

It is ready as soon as its socket is open; the model is loaded meanwhile, with retries until that works.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

import anyio
import anyio.abc

from remembrancer.actors.embedder.engine import Engine
from remembrancer.actors.embedder.workers import (
    Answer,
    Crashed,
    Loaded,
    PassageThread,
    Text,
    Unusable,
    WorkEvent,
    in_words,
    load_engine,
    question_vector,
)
from remembrancer.actors.shell import Actor, LaunchSpec
from remembrancer.config.settings import model_choices
from remembrancer.protocol.control import EmbedderHealth
from remembrancer.protocol.errors import (
    EmbeddingUnavailable,
    Failure,
    InternalError,
    ModelUnusable,
    PeerUnavailable,
)
from remembrancer.protocol.sockets import Dealer
from remembrancer.protocol.work import (
    CALIBRATED,
    EmbeddedText,
    EmbedQuery,
    EmbedText,
    ToWorker,
    WorkerState,
    to_worker,
)

CREDIT: Final = 128
"""The most texts in hand. Memories are short: this is about two batches or more, so the model never waits for the
store."""

logger = logging.getLogger(__name__)


class EmbedderActor(Actor):
    """One worker. When it says that its model is loaded, it holds no text: earlier ones have been dropped."""

    def __init__(
        self,
        spec: LaunchSpec,
        load: Callable[[], Engine] | None = None,
    ) -> None:
        super().__init__(spec)
        self._loop = asyncio.get_running_loop()
        self._store = self._dealer()
        self._crashed: asyncio.Future[None] = self._loop.create_future()
        self._load_timeout_s = spec.settings.model_load_timeout_s
        self._passages = PassageThread(
            load or (lambda: load_engine(spec.settings, spec.threads)), self._post, spec.settings.embedding_batch_texts
        )
        self._questions = ThreadPoolExecutor(1, "questions")
        self._choice, _ = model_choices(spec.settings)
        self._engine: Engine | None = None
        self._scale = CALIBRATED
        self._error: str | None = None
        self._leaving = False

    def _dealer(self) -> Dealer[ToWorker]:
        """The connection to the store."""
        return Dealer(
            self.spec.paths.store_endpoint,
            self.speaker,
            to_worker,
            on_message=self._hear,
            on_connection=self._on_connection,
        )

    async def run(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        async with self._store:
            self._passages.start()
            if self._load_timeout_s:
                self._loop.call_later(self._load_timeout_s, self._say_slow)
            task_status.started()
            try:
                await self._crashed
                raise InternalError("the thread of the passages has ended; the log says why")
            finally:
                self._finish()

    def _say_slow(self) -> None:
        """Report why there are no vectors, if the model takes longer to load than allowed."""
        if self._engine is None and self._error is None:
            limit = f"{self._load_timeout_s:g} s (model_load_timeout_s)"
            self._deal_with(Unusable(f"the model is still being loaded after {limit}: words find memories meanwhile"))

    def health(self) -> EmbedderHealth:
        return EmbedderHealth(self._error)

    async def drain(self, reason: str) -> None:
        """Tell the store that this worker leaves, and answer the texts that the current batch completes."""
        self._leaving = True
        self._say(self._state())
        self._finish()
        await anyio.to_thread.run_sync(self._passages.join, abandon_on_cancel=True)
        await anyio.to_thread.run_sync(self._questions.shutdown, abandon_on_cancel=True)

    def _finish(self) -> None:
        """Tell the threads to end after their present work."""
        self._passages.finish()
        self._questions.shutdown(wait=False)

    def _hear(self, message: ToWorker) -> None:
        message_id = self._store.heard.message_id
        match message:
            case EmbedText(text=text):
                # Without a model, or before leaving: the store knows, and gives the text to another worker.
                if self._engine is not None and not self._leaving:
                    self._passages.put(Text(message_id, text))
            case EmbedQuery(text=text):
                engine = self._engine
                if self._leaving or engine is None:
                    reason = "this worker is leaving" if self._leaving else (self._error or "the model is being loaded")
                    self._refuse(message_id, reason)
                    return
                asked = self._questions.submit(self._vector_of, text, engine)
                asked.add_done_callback(lambda done: self._call_soon(self._answer, message_id, engine, done))
            case Failure(code=code):
                logger.warning("the store refuses this worker", extra={"code": code, "reason": message.message})

    def _on_connection(self, up: bool) -> None:
        logger.info("store connected" if up else "store disconnected")
        if up:
            self._announce()
        else:
            self._passages.put("")  # a restarted store gives its own texts

    def _state(self) -> WorkerState:
        identity = None if self._engine is None else self._engine.identity
        return WorkerState(self._choice, identity, CREDIT, self._scale, self._error, self._leaving)

    def _announce(self) -> None:
        if self._engine is not None or self._error is not None:
            self._say(self._state())

    def _post(self, event: WorkEvent) -> None:
        self._call_soon(self._deal_with, event)

    def _call_soon(self, function: Callable[..., None], *arguments: object) -> None:
        """From a thread: call a function in the event loop."""
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            logger.debug("the event loop has ended before a thread did")

    def _vector_of(self, question: str, engine: Engine) -> bytes:
        if engine is not self._engine:
            raise EmbeddingUnavailable(self._error or "the model was loaded again")
        return question_vector(engine, question)

    def _answer(self, message_id: int, engine: Engine, asked: Future[bytes]) -> None:
        """Send the vector of a question, or the reason why there is none."""
        try:
            self._say(asked.result(), in_reply_to=message_id)
        except EmbeddingUnavailable as error:
            self._refuse(message_id, error.message)
        except ModelUnusable as error:
            if engine is self._engine:
                self._passages.put(error.message)  # which loads it again
                self._deal_with(Unusable(error.message))
            self._refuse(message_id, error.message)
        except Exception as error:
            logger.exception("a question cannot be embedded")
            self._refuse(message_id, in_words(error))

    def _refuse(self, message_id: int, reason: str) -> None:
        self._say(EmbeddingUnavailable(reason).to_failure(), in_reply_to=message_id)

    def _deal_with(self, event: WorkEvent) -> None:
        match event:
            case Loaded(engine=engine, scale=scale):
                logger.info("model loaded", extra={"model": engine.identity.key})
                self._engine, self._scale, self._error = engine, scale, None
                self._announce()
            case Unusable(message=reason):
                logger.error("no model", extra={"reason": reason})
                self._engine, self._error = None, reason
                self._announce()
            case Answer(message_id=message_id, body=body):
                self._say(body, in_reply_to=message_id)
            case Crashed():
                if not self._crashed.done():
                    self._crashed.set_result(None)

    def _say(self, message: WorkerState | EmbeddedText | bytes | Failure, *, in_reply_to: int | None = None) -> None:
        """Send a message to the store. If that fails, the message is dropped: the store asks again when it is back."""
        try:
            self._store.send(message, in_reply_to=in_reply_to)
        except PeerUnavailable as error:
            logger.debug("not sent", extra={"message_type": type(message).__name__, "reason": error.message})
