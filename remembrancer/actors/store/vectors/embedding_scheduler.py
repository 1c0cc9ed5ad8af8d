"""Schedules the embedding of stored texts and of queries: texts go out on credit, and vectors come back to be stored.

The records show which texts have no vectors of a model (`next_texts`), so nothing is queued here. Each model has its
own workers and vectors (`models.py`). Queries use a model whose vectors are complete.
"""

import asyncio
import contextlib
import logging
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Final, TypeVar

import anyio
import numpy as np

from remembrancer.actors.store.committer import Committer, Readers
from remembrancer.actors.store.records.passage_rows import EmbeddedTexts
from remembrancer.actors.store.records.types import (
    MAX_ATTEMPTS,
    RECORDS,
    EmbeddedMemory,
    FailedText,
    TextToEmbed,
    Vectors,
)
from remembrancer.actors.store.spaces import HomeSpaces
from remembrancer.actors.store.vectors.leases import HAND_BYTES, EmbeddingJob, Leases
from remembrancer.actors.store.vectors.models import Model, ModelState
from remembrancer.actors.store.vectors.vector_spaces import VectorSpaces
from remembrancer.config.settings import KNOWN_DIMENSIONS, REMOTE_ENGINES
from remembrancer.protocol.control import PeerGone
from remembrancer.protocol.errors import (
    DeadlineExceeded,
    EmbeddingStarting,
    EmbeddingUnavailable,
    PeerLost,
    PeerUnavailable,
    RemembrancerError,
)
from remembrancer.protocol.reads import EmbeddingSummary
from remembrancer.protocol.sockets import Peer, Router
from remembrancer.protocol.work import (
    EmbeddedText,
    EmbedQuery,
    EmbedText,
    ModelChoice,
    ModelIdentity,
    ModelProgress,
    WorkerState,
)

SAVE_BATCH: Final = 64
"""The number of memories whose vectors are saved in one transaction: few enough not to delay a client's write."""
BURST_S: Final = 0.03
"""Background work waits for this long after a client's request and its answer, because more requests may follow."""
LONGEST_HOLD_S: Final = 2.0
"""The time after which background work goes on even if requests keep coming."""
CHECK_INTERVAL_S: Final = 5.0
IN_USE_S: Final = 4.0
"""A replaced model's vectors are kept for this long: longer than any recall that uses them."""
PRUNE_BATCH: Final = 200
"""The number of passages of unneeded models that are deleted in one transaction."""
RETRY_S: Final = 1.0
"""The pause before a failed write of vectors (for example, on a full disk) is repeated."""
SUSPECTS: Final = 32
"""The number of texts that may have killed a worker: the oldest ones that it held, since it works in order."""
DEADLY: Final = f"{MAX_ATTEMPTS} embedders died while embedding this text: only word search finds it"
DEADLY_S: Final = 3600.0
"""A text that killed workers is not handed out for this long."""
UNATTENDED_S: Final = 10.0
"""A worker may still be starting for this long after the start or after a worker's last message."""
ABSENT_S: Final = 60.0
STARTING_S: Final = 60.0
"""The time that a worker may take to start: loading a model takes seconds, and longer on a busy machine."""
LENGTH_TOLERANCE: Final = 0.01
"""The tolerance for the length of a unit vector, since machines may round float32 differently."""

T = TypeVar("T")
logger = logging.getLogger(__name__)


@dataclass(eq=False)
class EmbeddingScheduler:
    """Has workers embed the stored texts, and saves the vectors. `router_of` returns the socket to which a worker is
    connected. The model in the settings is `configured`; `fallbacks` replace a model on another machine. `open_all`
    opens embedded texts other than memories, which otherwise open on demand."""

    files: HomeSpaces
    committer: Committer
    vectors: VectorSpaces
    readers: Readers
    router_of: Callable[[Peer], Router[Any]]
    configured: ModelChoice
    fallbacks: tuple[ModelChoice, ...]
    open_all: Callable[[], Awaitable[None]]

    def __post_init__(self) -> None:
        self._leases: Leases[Peer] = Leases()
        self._failures: dict[str, WorkerState] = {}  # by incarnation of the worker
        self.embedded: Counter[str] = Counter()
        """The number of texts that each worker has embedded, by its incarnation."""
        self.on_false_answer: Callable[[Peer, str], None] = lambda worker, reason: None
        """Called with a worker on another host that gave a false answer and must get no more work, and the reason."""
        self.served_at = -math.inf
        self._attended_at = time.monotonic()
        self._expected_until = -math.inf
        self._may_rest = False
        self._woken = asyncio.Event()
        self._saving = asyncio.Event()
        self._saved = asyncio.Event()
        """Set after each save; then a new event takes its place."""
        self._to_try_again: set[str] = set()
        """The keys of models whose dead letters get another chance, since workers were added."""
        self._state = ModelState.read(self.files.catalog.models(), self.configured)
        self._stored: ModelState | None = None
        self._prune_at = math.inf
        """The time from which the vectors of unused models are deleted; infinite if there are none to delete."""
        self._models: list[Model] = []
        """The models in use. The first one is active, or will be."""
        self._adopt(self._state)

    async def run(self) -> None:
        async with anyio.create_task_group() as self._tasks:
            self._tasks.start_soon(self._work)
            self._tasks.start_soon(self._save)

    def wake(self) -> None:
        self._woken.set()

    # --- The state of embedding.

    def summary(self) -> EmbeddingSummary:
        answering = self.answering
        choice, identity = answering.choice, answering.identity
        letters = self._read_each(lambda texts: texts.dead_letters(answering.key or ""))
        dead = [reason for each in letters for reason in each.values()]
        return EmbeddingSummary(
            engine=choice.engine,
            model=identity.model if identity else choice.model,
            dimensions=identity.dimensions if identity else KNOWN_DIMENSIONS.get(choice.model, 0),
            pending=self._pending(answering),
            workers=len(self._leases.workers_of(answering.key)),
            is_starting=self.is_starting,
            error=self.error or self.vectors.error,
            dead_letters=len(dead),
            dead_letter_error=dead[-1] if dead else None,
            models=self.models(),
        )

    def models(self) -> tuple[ModelProgress, ...]:
        answering, active = self.answering, self._state.active
        progress = []
        for model in self._models:
            choice, workers = model.choice, len(self._leases.workers_of(model.key))
            is_next = choice == self._state.chosen and model != active
            failures = [failure.error for failure in self._failures.values() if failure.choice == choice]
            progress.append(
                ModelProgress(
                    choice,
                    "active" if model == active else "next" if is_next else "fallback",
                    model.identity.dimensions if model.identity else 0,
                    workers,
                    self._pending(model),
                    self._pending(Model(choice)) if is_next and active else 0,
                    model == answering and workers > 0,
                    failures[0] if failures and not workers else None,
                )
            )
        return tuple(progress)

    @property
    def workers(self) -> list[Peer]:
        return list(self._leases.workers)

    @property
    def error(self) -> str | None:
        """The reason why there are no vectors: a worker could not load its model, or there is no worker."""
        if self._leases.workers_of(self.answering.key):
            return None
        for failure in self._failures.values():
            return failure.error
        if time.monotonic() < max(self._expected_until, self._attended_at + UNATTENDED_S):
            return None
        return "no embedder is running ('remembrancer admin scale embedder=1' starts one)"

    @property
    def is_starting(self) -> bool:
        """True if the first worker is still starting. Search by meaning begins when its model is loaded."""
        has_none = not self._leases.workers_of(self.answering.key) and not self._failures
        return has_none and time.monotonic() < self._expected_until

    def _pending(self, model: Model) -> int:
        return sum(self._read_each(lambda texts: texts.missing(model.key)))

    def _is_complete(self, model: Model) -> bool:
        return model.identity is not None and not self._pending(model)

    def _read_each(self, read: Callable[[EmbeddedTexts], T]) -> list[T]:
        """Return the results of `read` for all texts that can be read now."""
        results = []
        for texts in self.files.texts():
            with contextlib.suppress(RemembrancerError):
                results.append(read(texts))
        return results

    # --- The models.

    @property
    def needed(self) -> tuple[ModelChoice, ...]:
        return tuple(dict.fromkeys([self._state.chosen, *(model.choice for model in self._models)]))

    @property
    def answering(self) -> Model:
        """The model whose vectors are searched now: the active one or, if that has no worker, one with complete
        vectors. A model with incomplete vectors answers only if nothing can embed queries for the active one."""
        first, active = self._models[0], self._state.active
        attended = [model for model in self._models if self._leases.workers_of(model.key)]
        if not attended or (first in attended and first == active):
            return first
        if whole := [model for model in attended if self._is_complete(model)]:
            return whole[0]
        is_lost = first != active or any(model.choice == first.choice for model in attended)
        return attended[0] if is_lost else first

    def identity_of(self, choice: ModelChoice) -> ModelIdentity | None:
        return next((model.identity for model in self._models if model.choice == choice), None)

    def read_state(self) -> None:
        state = ModelState.read(self.files.catalog.models(), self.configured)
        for known in self._state.known:
            state = state.introduced(known)
        self._adopt(state)

    async def choose(self, choice: ModelChoice | None) -> None:
        """Have everything embedded by another model, and then answer with that model; None: keep the active one."""
        chosen = self._state.choosing(choice).written()
        await self.committer.run(RECORDS, partial(self.files.catalog.note_models, chosen))
        self._adopt(self._state.choosing(choice))

    def _adopt(self, state: ModelState) -> None:
        self._state = state
        in_use = {state.chosen.engine, *([state.active.choice.engine] if state.active else [])}
        self._models = state.models(self.fallbacks if in_use & REMOTE_ENGINES else ())
        identities = {model.key: model.identity for model in self._models if model.identity is not None}
        for worker, key in self._leases.workers.items():
            if key not in identities:
                self.lose(worker)
        self.vectors.use_models(list(identities.values()), self._models[0].identity)
        self._woken.set()

    async def _carry_out(self) -> None:
        """Carry out a decision. Other models' vectors are kept until the decision is stored, since a store that was
        killed continues with the previous one, and until the recalls that search these vectors have been answered."""
        keys, self._to_try_again = self._to_try_again, set()
        for key in keys:
            await self._write_each(partial(EmbeddedTexts.try_again, model=key, now=time.time()))
        if self._state is not self._stored:
            if len(self._models) > 1:
                await self.open_all()
            state = self._state
            await self.committer.run(RECORDS, partial(self.files.catalog.note_models, state.written()))
            self._stored, self._prune_at = state, time.monotonic() + IN_USE_S
            self._woken.set()
        elif any(
            self._leases.workers_of(model.key) and self._is_complete(model)
            for model in self._models
            if model.choice == self._state.chosen and model != self._state.active
        ):
            self._adopt(self._state.swapped())
            logger.info("the model was changed", extra={"model": self._state.chosen.model})
        elif self._state.active is not None and time.monotonic() >= self._prune_at:
            self._prune_at = math.inf
            kept = [model.key for model in self._models if model.key is not None]
            if len(kept) == len(self._models):
                pruned = await self._write_each(lambda texts: texts.prune_models(kept, PRUNE_BATCH))
                if max(pruned, default=0) >= PRUNE_BATCH:
                    self._prune_at = -math.inf
                    self._woken.set()

    async def _write_each(self, work: Callable[[EmbeddedTexts], T]) -> list[T]:
        """Return the results of `work` for all texts that can be written now."""
        results = []
        for texts in self.files.texts():
            try:
                results.append(await self.committer.run(texts.name, partial(work, texts)))
            except RemembrancerError as error:
                logger.warning("vectors are delayed", extra={"file": texts.name, "reason": error.message})
        return results

    # --- Workers.

    def expect_workers(self) -> None:
        self._expected_until = time.monotonic() + STARTING_S
        self._may_rest = True

    def note_request(self) -> None:
        """Record a client's request, or its answer. The first one after `ABSENT_S` wakes idle workers."""
        if self._may_rest and not self._leases.workers and time.monotonic() - self.served_at > ABSENT_S:
            self.expect_workers()
        self.served_at = time.monotonic()

    async def until_quiet(self) -> None:
        """Wait until clients have been quiet for `BURST_S`, or for `LONGEST_HOLD_S` in all."""
        latest = time.monotonic() + LONGEST_HOLD_S
        while (now := time.monotonic()) < (until := min(latest, self.served_at + BURST_S)):  # noqa: ASYNC110
            await anyio.sleep(until - now)

    def hear(self, worker: Peer, state: WorkerState) -> None:
        self._attended_at = time.monotonic()
        self.lose(worker)
        if state.is_leaving:
            return
        if state.error is not None:
            self._failures[worker.incarnation] = state
        elif state.identity is not None:
            self._expected_until = -math.inf
            if state.choice in self.needed:  # if it is not, the launcher is about to stop the worker
                self._welcome(worker, state, state.identity)

    def peer_gone(self, gone: PeerGone) -> None:
        """Handle the death of a process of the runtime. If it was a worker, its texts go to another worker."""
        if gone.role == "embedder":
            self._attended_at = time.monotonic()
            if gone.failure is None:  # it will be restarted
                self._expected_until = max(self._expected_until, time.monotonic() + UNATTENDED_S)
            else:
                self._expected_until, self._may_rest = -math.inf, False
        for worker in self.workers:
            if worker.incarnation == gone.incarnation:
                self._bury(worker)
        self._failures.pop(gone.incarnation, None)

    def _bury(self, worker: Peer, undelivered: EmbeddingJob | None = None) -> None:
        until = time.time() + DEADLY_S
        suspects = [job for job in self._leases.worker_gone(worker) if job != undelivered]
        for job in suspects[:SUSPECTS]:
            self._leases.finished[job] = FailedText(job.number, DEADLY, died=True, until=until)
        self._saving.set()
        self.lose(worker)

    def lose(self, worker: Peer) -> None:
        """Handle a worker that is lost, cannot be trusted, or is no longer needed. Its texts go to another worker."""
        self.router_of(worker).lose(worker)
        self._leases.worker_gone(worker)
        self._failures.pop(worker.incarnation, None)
        self._woken.set()

    def _welcome(self, worker: Peer, ready: WorkerState, identity: ModelIdentity) -> None:
        state = self._state.introduced(Model(ready.choice, identity))
        is_first = state.active is None and ready.choice == state.chosen
        if is_first and not any(self._is_complete(each) for each in self._models):
            state = state.swapped()
        if state is not self._state:
            self._adopt(state)
        self.vectors.note_scale(identity.key, ready.scale)
        self._leases.worker_ready(worker, identity.key, ready.credit)
        self._to_try_again.add(identity.key)
        self._woken.set()

    # --- Queries.

    async def embed_query(self, text: str, timeout_s: float, model: str | None) -> Vectors:
        """Return the unit vector of a query, (dimensions,). Raises `EmbeddingUnavailable` if no worker has the model,
        none answers within `timeout_s`, or the answer is not a vector."""
        identity = next((each.identity for each in self._models if each.key == model), None)
        workers = self._leases.workers_of(model)
        if identity is None or not workers:
            unavailable = EmbeddingStarting if self.is_starting else EmbeddingUnavailable
            raise unavailable("no embedding worker has a model loaded")
        # Local workers first: they answer sooner, and a hang is noticed sooner.
        least_busy = sorted(workers, key=lambda peer: (bool(peer.key), self._leases.count_held(peer)))
        for worker in least_busy:
            try:
                answer = await self.router_of(worker).ask(worker, EmbedQuery(text), timeout_s=timeout_s)
            except PeerUnavailable:
                continue
            except PeerLost as error:
                raise EmbeddingUnavailable("the embedding worker died") from error
            except DeadlineExceeded as error:
                raise EmbeddingUnavailable(f"no embedding worker answered within {timeout_s:.2g} s") from error
            if (vectors := unit_vectors(answer, 1, identity.dimensions)) is None:
                raise EmbeddingUnavailable("a worker's answer does not fit its model")
            vector: Vectors = vectors[0]
            return vector
        raise EmbeddingUnavailable("no embedding worker can be reached")

    # --- Texts.

    async def wait_for(self, records: EmbeddedTexts, number: int, timeout_s: float) -> tuple[bool, str | None]:
        """Wait until a memory has its vectors. Returns True if it has them, and the error if it cannot have any."""
        with anyio.move_on_after(timeout_s):
            while True:
                saved, key = self._saved, self.answering.key
                if self.is_embedded(records, number):
                    return True, None
                reason = None if key is None else records.dead_letters(key).get(number)
                if (error := reason or self.error) is not None:
                    return False, error
                await saved.wait()
        return False, self.error

    def is_embedded(self, records: EmbeddedTexts, number: int) -> bool:
        key = self.answering.key
        return key is not None and records.is_embedded(key, number)

    async def _work(self) -> None:
        while True:
            with anyio.move_on_after(CHECK_INTERVAL_S):
                await self._woken.wait()
            await self.until_quiet()
            self._woken.clear()
            try:
                await self._carry_out()
            except RemembrancerError as error:
                logger.warning("the choice of a model could not be stored yet", extra={"reason": error.message})
            for model in list(self._models):
                if model.identity is not None:
                    await self._hand_out(model.identity)

    async def _hand_out(self, identity: ModelIdentity) -> None:
        key = identity.key
        room = self._leases.room(key)
        for texts in self.files.texts():
            if room <= 0:
                return
            leased = self._leases.leased_of(key, texts.name)
            ask = partial(texts.next_texts, key, room, len(self._leases.workers_of(key)) * HAND_BYTES, leased)
            try:
                next_texts = await self.readers.read(ask)
            except RemembrancerError as error:
                logger.warning("embedding is delayed", extra={"file": texts.name, "reason": error.message})
                continue
            handed = self._leases.hand_out(key, texts.name, next_texts)
            for worker, text in handed:
                self._tasks.start_soon(self._embed, worker, identity, texts.name, text)
            if len(handed) < len(next_texts):
                return
            room -= len(handed)

    async def _embed(self, worker: Peer, identity: ModelIdentity, name: str, text: TextToEmbed) -> None:
        result: EmbeddedMemory | FailedText
        job = EmbeddingJob(identity.key, name, text.number)
        try:
            answer = await self.router_of(worker).ask(worker, EmbedText(text.content), timeout_s=None)
        except PeerLost:
            return
        except PeerUnavailable:
            if worker.key:
                self.lose(worker)  # on another host, only its connection may be gone
            else:
                self._bury(worker, undelivered=job)
            return
        except RemembrancerError as error:
            result = FailedText(text.number, error.message)
        else:
            result = _checked(answer, identity, text)
            if worker.key and isinstance(result, FailedText):
                self.on_false_answer(worker, result.reason)
                return
        self._attended_at = time.monotonic()
        if not self._leases.finish(worker, job, result):
            return
        if isinstance(result, EmbeddedMemory):
            self.embedded[worker.incarnation] += 1
        else:
            extra = {"file": name, "number": text.number, "reason": result.reason}
            logger.warning("a memory could not be embedded", extra=extra)
        self._saving.set()
        self._woken.set()

    async def _save(self) -> None:
        finished = self._leases.finished
        while True:
            await self._saving.wait()
            while finished:
                first = next(iter(finished))
                alike = ((job, result) for job, result in finished.items() if job[:2] == first[:2])
                batch = dict(islice(alike, SAVE_BATCH))
                try:
                    await self._write(first.model, first.name, list(batch.values()))
                except RemembrancerError as error:
                    logger.warning("vectors cannot be saved yet", extra={"file": first.name, "reason": error.message})
                    finished |= {job: finished.pop(job) for job in batch}  # moved behind the texts of other files
                    await anyio.sleep(RETRY_S)
                else:
                    for job in batch:
                        del finished[job]
                self._saved.set()
                self._saved = asyncio.Event()
                self._woken.set()
            self._saving.clear()

    async def _write(self, key: str, name: str, results: list[EmbeddedMemory | FailedText]) -> None:
        """Vectors of outdated texts are dropped and computed again. Some texts without vectors become dead letters."""
        texts = next((each for each in self.files.texts() if each.name == name), None)
        if texts is None or all(model.key != key for model in self._models):
            return
        if embedded := [each for each in results if isinstance(each, EmbeddedMemory)]:
            await self.committer.run(name, partial(texts.save_embeddings, key, embedded))
            for space in await self.readers.read(partial(texts.names_of, [each.number for each in embedded])):
                self.vectors.note_kept(space)
        if failed := [each for each in results if isinstance(each, FailedText)]:
            for dead in await self.committer.run(name, partial(texts.note_attempts, key, failed)):
                extra = {"file": name, "number": dead.number, "reason": dead.reason}
                logger.error("a memory cannot be embedded", extra=extra)


def unit_vectors(data: bytes, count: int, dimensions: int) -> Vectors | None:
    """Decode vectors, one per row. Returns None unless there are `count` (at least one), of finite float32 values and
    length 1: a longer vector would seem close to everything."""
    if not count or len(data) != 4 * count * dimensions:
        return None
    vectors = np.frombuffer(data, dtype="<f4").reshape(count, dimensions)
    lengths = np.linalg.norm(vectors, axis=1)
    return vectors if (np.abs(lengths - 1) < LENGTH_TOLERANCE).all() else None


def _checked(answer: EmbeddedText, identity: ModelIdentity, text: TextToEmbed) -> EmbeddedMemory | FailedText:
    passages, length = answer.passages, len(text.content)
    starts = [each.start for each in passages]
    vectors = unit_vectors(answer.vectors, len(passages), identity.dimensions)
    if vectors is None:
        fault = "an answer did not fit its model: the number, dimensions or lengths of its vectors are wrong"
    elif starts != sorted(set(starts)) or any(not 0 <= each.start <= each.end <= length for each in passages):
        fault = "an answer had passages that its text does not have"
    else:
        return EmbeddedMemory(text.number, text.digest, passages, vectors)
    return FailedText(text.number, fault)
