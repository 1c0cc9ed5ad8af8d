"""The embedder: takes as many texts from the store as its credit allows and returns vectors for each. It is ready as
soon as its socket is open; the model loads in the background, and loading is retried until it succeeds."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import Final, TypeVar

import anyio
import anyio.abc

from remembrancer.actors.actor_process import Actor, LaunchSpec
from remembrancer.actors.embedder.engine import Engine
from remembrancer.actors.embedder.workers import embed_texts, in_words, load_engine, question_vector
from remembrancer.config.settings import model_choices
from remembrancer.protocol.control import EmbedderHealth
from remembrancer.protocol.errors import EmbeddingUnavailable, Failure, InternalError, ModelUnusable, WorkerRefused
from remembrancer.protocol.sockets import CurveKeys, Dealer
from remembrancer.protocol.system import give_back_memory, lower_thread_priority
from remembrancer.protocol.work import AskWorker, EmbedQuery, EmbedText, ToWorker, WorkerState, to_worker

CREDIT: Final = 128
"""The number of texts taken at a time. Memories are short: with at least two batches, the model never waits."""

OPEN_TEXTS: Final = 32
"""The maximum number of texts in progress. When a worker dies, the store suspects this many of its oldest jobs."""
FIRST_RETRY_S: Final = 1.0
LAST_RETRY_S: Final = 30.0
"""The longest pause between attempts to load a model: 1, 2, 4 … 30 s."""
IDLE_S: Final = 2.0
"""After this time without work, freed memory is returned to the system."""
NOT_ADMITTED: Final = "the store does not accept this embedder: it was revoked there, or never invited"

Made = TypeVar("Made")
logger = logging.getLogger(__name__)


class EmbedderActor(Actor):
    """One thread loads the model and embeds passages, another embeds questions. A worker that announces a loaded model
    holds no texts. `endpoint` and `keys` are for a store on another host."""

    def __init__(self, spec: LaunchSpec, *, endpoint: str = "", keys: CurveKeys | None = None) -> None:
        super().__init__(spec)
        self._loop = asyncio.get_running_loop()
        self._store: Dealer[ToWorker] = Dealer(
            endpoint or spec.paths.store_endpoint,
            self.speaker,
            to_worker,
            on_message=self._hear,
            on_connection=self._on_connection,
            keys=keys,
            on_refused=self._on_refused,
        )
        self._load = partial(load_engine, spec.settings, spec.threads)
        self._load_timeout_s = spec.settings.model_load_timeout_s
        self._passages = ThreadPoolExecutor(1, "passages", lower_thread_priority)
        self._questions = ThreadPoolExecutor(1, "questions")
        self._choice, _ = model_choices(spec.settings)
        self._engine: Engine | None = None
        self._error: str | None = None
        self._leaving = False
        self._news = asyncio.Event()
        """Set when a text arrives, the model becomes unusable, or the wait is over."""
        self._texts: dict[int, str] = {}
        """Texts waiting to be embedded, by request id."""
        self._open: dict[int, str] = {}
        """Texts being embedded. They are dropped by replacing the dictionary."""

    async def run(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        async with self._store:
            if self._load_timeout_s:
                self._loop.call_later(self._load_timeout_s, self._say_slow)
            task_status.started()
            try:
                await self._work()
                await anyio.sleep_forever()  # meanwhile, the last answers are sent, and questions are refused
            finally:
                self._passages.shutdown(wait=False)
                self._questions.shutdown(wait=False)

    async def _work(self) -> None:
        delay_s = FIRST_RETRY_S
        while not self._leaving:
            try:
                engine = await self._in_thread(self._load)
                self._use(engine)
                delay_s = FIRST_RETRY_S
                while self._engine is engine and not self._leaving:
                    await (self._embed_texts(engine) if self._texts else self._wait_for_news())
            except ModelUnusable as error:
                self._use(None, error=error.message)
            if not self._leaving:
                await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, LAST_RETRY_S)

    async def _in_thread(self, function: Callable[[], Made]) -> Made:
        return await self._loop.run_in_executor(self._passages, function)

    async def _wait_for_news(self) -> None:
        self._news.clear()
        try:
            async with asyncio.timeout(IDLE_S):
                await self._news.wait()
        except TimeoutError:
            await self._in_thread(give_back_memory)
            await self._news.wait()

    async def _embed_texts(self, engine: Engine) -> None:
        texts = self._open = dict(islice(self._texts.items(), OPEN_TEXTS))
        self._texts = dict(islice(self._texts.items(), OPEN_TEXTS, None))
        batches = embed_texts(engine, texts, self.spec.settings.embedding_batch_texts)
        while not self._leaving and (finished := await self._in_thread(lambda: next(batches, None))) is not None:
            if self._open is not texts:  # dropped in the meantime
                return
            for message_id, answer in finished:
                reply = InternalError(answer).to_failure() if isinstance(answer, str) else answer
                self._store.send(reply, in_reply_to=message_id)

    def _use(self, engine: Engine | None, error: str | None = None) -> None:
        """Use this model from now on, or none because of an error. The store will send the dropped texts again."""
        if engine is None:
            logger.error("no model", extra={"reason": error})
        else:
            logger.info("model loaded", extra={"model": engine.identity.key})
        self._drop()
        self._engine, self._error = engine, error
        self._news.set()
        self._announce()

    def _drop(self) -> None:
        self._texts, self._open = {}, {}

    def _say_slow(self) -> None:
        if self._engine is None and self._error is None:
            limit = f"{self._load_timeout_s:g} s (model_load_timeout_s)"
            self._use(None, error=f"the model is still loading after {limit}; until then, searches only match words")

    def health(self) -> EmbedderHealth:
        return EmbedderHealth(self._error)

    async def drain(self, reason: str) -> None:
        """Tell the store that this worker is leaving, and answer the texts that the current batch completes."""
        self._leaving = True
        self._store.send(self._state())
        self._news.set()
        for thread in (self._passages, self._questions):
            await self._loop.run_in_executor(thread, lambda: None)

    def _hear(self, message: ToWorker) -> None:
        message_id = self._store.heard.message_id
        match message:
            case EmbedText(text=text):
                # Otherwise the store has been told, and gives the text to another worker.
                if self._engine is not None and not self._leaving:
                    self._texts[message_id] = text
                    self._news.set()
            case EmbedQuery(text=text):
                engine = self._engine
                if self._leaving or engine is None:
                    reason = "this worker is leaving" if self._leaving else (self._error or "the model is being loaded")
                    self._refuse(message_id, reason)
                    return
                asked = self._loop.run_in_executor(self._questions, self._vector_of, text, engine)
                asked.add_done_callback(partial(self._answer, message_id, engine))
            case AskWorker():
                self._store.send(self._state(), in_reply_to=message_id)
            case Failure():
                self._on_refused(message.message)

    def _on_connection(self, up: bool) -> None:
        logger.info("store connected" if up else "store disconnected")
        if up:
            self._announce()
        else:
            self._drop()  # a restarted store hands out its texts again

    def _on_refused(self, reason: bool | str) -> None:
        logger.warning("the store refuses this worker", extra={"reason": reason})

    def _state(self) -> WorkerState:
        if (engine := self._engine) is None:
            return WorkerState(self._choice, error=self._error, is_leaving=self._leaving)
        return WorkerState(self._choice, engine.identity, CREDIT, engine.scale, is_leaving=self._leaving)

    def _announce(self) -> None:
        if self._engine is not None or self._error is not None:
            self._store.send(self._state())

    def _vector_of(self, question: str, engine: Engine) -> bytes:
        if engine is not self._engine:
            raise EmbeddingUnavailable(self._error or "the model was loaded again")
        return question_vector(engine, question)

    def _answer(self, message_id: int, engine: Engine, asked: asyncio.Future[bytes]) -> None:
        try:
            self._store.send(asked.result(), in_reply_to=message_id)
        except EmbeddingUnavailable as error:
            self._refuse(message_id, error.message)
        except ModelUnusable as error:
            if engine is self._engine:
                self._use(None, error=error.message)
            self._refuse(message_id, error.message)
        except Exception as error:
            logger.exception("a question cannot be embedded")
            self._refuse(message_id, in_words(error))

    def _refuse(self, message_id: int, reason: str) -> None:
        self._store.send(EmbeddingUnavailable(reason).to_failure(), in_reply_to=message_id)


class RemoteEmbedderActor(EmbedderActor):
    """Works for another host's store, over TCP with CURVE, and reports to a person through `say`. No launcher watches
    it: it runs until `stop` is called or the store refuses it for good; both complete `ended`."""

    def __init__(self, spec: LaunchSpec, endpoint: str, keys: CurveKeys, say: Callable[[str], None]) -> None:
        super().__init__(spec, endpoint=endpoint, keys=keys)
        self._endpoint = endpoint
        self._tell = say
        self._is_doubted = False
        self.ended: asyncio.Future[None] = self._loop.create_future()
        """Completed by `stop`, or fails with `WorkerRefused`."""

    def stop(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    def _use(self, engine: Engine | None, error: str | None = None) -> None:
        super()._use(engine, error)
        unusable = f"the model cannot be used, but loading it will be tried again soon: {error}"
        self._tell(unusable if engine is None else f"the model {engine.identity.model} is loaded")

    def _on_connection(self, up: bool) -> None:
        self._tell(f"connected to {self._endpoint}" if up else f"lost the connection to {self._endpoint}: retrying")
        super()._on_connection(up)

    def _on_refused(self, reason: bool | str) -> None:
        """`reason`: True if the store does not accept this worker; a text if the store gave a reason; False if the
        handshake was not completed, which may be temporary (or permanent, if the key file belongs to another store)."""
        if reason is False:
            if not self._is_doubted:
                self._tell(f"{self._endpoint} does not accept this key file: does it belong to another memory?")
            self._is_doubted = True
        elif not self.ended.done():
            self.ended.set_exception(WorkerRefused(NOT_ADMITTED if reason is True else reason))
