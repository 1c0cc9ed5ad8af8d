"""Schedules the embedding of stored texts and of queries: texts go out on credit, and vectors come back to be stored.

The records say which texts have no vectors of a model (`next_texts`), so nothing is queued here. Each model has its own
workers and vectors (`models.py`). Queries use a model whose vectors are complete.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import math
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import anyio
import msgspec
import numpy as np

from remembrancer.actors.store.committer import Committer
from remembrancer.actors.store.memory_files import MemoryFiles
from remembrancer.actors.store.readers import Readers
from remembrancer.actors.store.records.passage_rows import EmbeddedTexts
from remembrancer.actors.store.records.types import (
    MAX_ATTEMPTS,
    RECORDS,
    EmbeddedMemory,
    TextToEmbed,
    Vectors,
)
from remembrancer.actors.store.requests import JOBS_UNDER_LOAD, LoadGate
from remembrancer.actors.store.vectors.leases import HAND_BYTES, EmbeddingJob, Leases
from remembrancer.actors.store.vectors.models import KnownModel, Model, ModelState
from remembrancer.actors.store.vectors.vector_spaces import VectorSpaces
from remembrancer.config.settings import KNOWN_DIMENSIONS, REMOTE_ENGINES
from remembrancer.protocol.control import PeerGone
from remembrancer.protocol.errors import (
    DeadlineExceeded,
    EmbeddingStarting,
    EmbeddingUnavailable,
    MemoryUnavailable,
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
"""The number of memories whose vectors are saved in one transaction, few enough not to delay a client's write."""
BYTES_UNDER_LOAD: Final = 5_000
"""The amount of text given to a worker while clients are served: about 50 ms of its time, like `JOBS_UNDER_LOAD`."""
AGAIN_S: Final = 5.0
PRUNE_BATCH: Final = 200
"""The number of unneeded models' passages that are deleted in one transaction."""
RETRY_S: Final = 1.0
"""The pause before a failed write of vectors is repeated, for example when the disk is full."""
DEADLY: Final = f"its text was in the hands of {MAX_ATTEMPTS} embedders that died: it is found by its words"
DEADLY_S: Final = 3600.0
"""The time for which a text that killed workers is not handed out."""
UNATTENDED_S: Final = 10.0
"""The time after the start, or after a worker's last message, during which a worker may still be starting."""
STARTING_S: Final = 60.0
"""The time that a worker has to start: loading a model takes seconds, and many on a busy machine."""
NO_WORKER: Final = "no embedder is running: see `remembrancer status`"
LENGTH_TOLERANCE: Final = 0.01
"""The tolerance on a unit vector's length, since another machine rounds float32 differently."""
CACHED_QUERIES: Final = 1024
"""1.5 MB at 384 dimensions."""

logger = logging.getLogger(__name__)


class _Answer(NamedTuple):
    """A text that a worker has finished: its passages with their vectors, or the `reason` why there are none (`died`:
    its worker died). `digest` identifies the text."""

    job: EmbeddingJob[Model]
    digest: bytes = b""
    embedded: EmbeddedText | None = None
    reason: str = ""
    died: bool = False


class _Counted(NamedTuple):
    """The number of texts that wait for vectors of a model, and the dead letters, as of a number of commits."""

    texts: EmbeddedTexts
    commits: int
    missing: int
    dead: dict[int, str]


class EmbeddingScheduler:
    """Has workers embed the stored texts, and saves the vectors. `router_of` returns the socket that a worker is
    connected to.

    The model in the settings is `configured`; `fallbacks` stand in for a model on another machine. `open_all` opens the
    other embedded texts besides memories, which otherwise open on demand.
    """

    def __init__(
        self,
        files: MemoryFiles,
        committer: Committer,
        vectors: VectorSpaces,
        readers: Readers,
        router_of: Callable[[Peer], Router[Any]],
        gate: LoadGate,
        configured: ModelChoice,
        fallbacks: tuple[ModelChoice, ...] = (),
        open_all: Callable[[], Awaitable[None]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._files = files
        self._committer = committer
        self._vectors = vectors
        self._readers = readers
        self._router_of = router_of
        self._gate = gate
        self._fallbacks = fallbacks
        self._open_all = open_all
        self._leases: Leases[Peer, Model] = Leases()
        self._query_vectors: OrderedDict[tuple[str, str], Vectors] = OrderedDict()
        self._answers: list[_Answer] = []
        """The answers that are not saved yet."""
        self._counts: dict[tuple[str, str | None], _Counted] = {}
        """The counts by name of the texts and model."""
        self._waiting = 0
        """The number of callers waiting for the vectors of a memory."""
        self._failures: dict[str, WorkerState] = {}  # by the worker's incarnation
        self.embedded: Counter[str] = Counter()
        """The number of texts that workers have embedded, by incarnation."""
        self._clock = clock
        self._attended_at = clock()
        self._expected_until = self._asked_at = -math.inf
        self._may_rest = False
        self._handing = asyncio.Event()
        self._hurrying = asyncio.Event()
        """Set when somebody begins to wait for the vectors of a memory."""
        self._answered = asyncio.Event()
        self._saved = asyncio.Event()
        """Set after each save, and then replaced."""
        self._deciding = asyncio.Event()
        self._to_try_again: set[str] = set()
        """The keys of models whose dead letters get another chance, since a worker or texts have come."""
        self.on_untruth: Callable[[Peer, str], None] = lambda worker, reason: None
        """Called with a worker on another host that gave a false answer, and the reason; it must get no more work."""
        self._configured = configured
        self._state = ModelState.read(files.catalog.models(), configured)
        self._models: list[Model] = []
        """The models in use, the one first that is active or will be."""
        self._decide(self._state)

    def read_state(self) -> None:
        """Load the decisions about models, since the records could not be read at the start."""
        state = ModelState.read(self._files.catalog.models(), self._configured)
        for known in self._state.known:
            state = state.introduced(known)
        self._decide(state)

    @property
    def _all_fallbacks(self) -> tuple[ModelChoice, ...]:
        active = self._state.active
        in_use = {self._state.chosen.engine, *([active.choice.engine] if active else [])}
        return self._fallbacks if in_use & REMOTE_ENGINES else ()

    @property
    def needed(self) -> tuple[ModelChoice, ...]:
        """The models that workers are needed for, the chosen one first."""
        return tuple(dict.fromkeys([self._state.chosen, *(model.choice for model in self._models)]))

    @property
    def answering(self) -> Model:
        """The model whose vectors are searched now: the active one, or, while it has no worker, one whose vectors are
        complete. A model with incomplete vectors answers only if nothing can embed queries for the active one."""
        first = self._models[0]
        attended = [model for model in self._models if self._leases.workers_of(model)]
        if not attended or (first in attended and self._is_active(first)):
            return first
        if whole := [model for model in attended if self._is_whole(model)]:
            return whole[0]
        is_lost = not self._is_active(first) or any(model.choice == first.choice for model in attended)
        return attended[0] if is_lost else first

    @property
    def identity(self) -> ModelIdentity | None:
        """The model whose vectors are searched now."""
        return self.answering.identity

    @property
    def workers(self) -> list[Peer]:
        """All workers with a model."""
        return list(self._leases.workers)

    @property
    def answering_workers(self) -> int:
        """The number of workers of the model whose vectors are searched now."""
        return len(self._leases.workers_of(self.answering))

    def summary(self) -> EmbeddingSummary:
        """Return the state of embedding."""
        choice, identity = self.answering
        dead_letters = self.dead_letters
        return EmbeddingSummary(
            engine=choice.engine,
            model=identity.model if identity else choice.model,
            dimensions=identity.dimensions if identity else KNOWN_DIMENSIONS.get(choice.model, 0),
            pending=self.pending,
            workers=self.answering_workers,
            vectors_ready=True,
            error=self.error or self._vectors.error,
            dead_letters=len(dead_letters),
            dead_letter_error=dead_letters[-1] if dead_letters else None,
            models=self.models(),
        )

    @property
    def pending(self) -> int:
        """The number of memories that wait for searchable vectors."""
        return self._pending(self.answering)

    @property
    def missing(self) -> int:
        """The number of memories without vectors of a new model that already answers because the old one is lost."""
        model = self.answering
        is_new = self._state.active is not None and not self._is_active(model)
        return self._pending(model) if is_new else 0

    @property
    def is_busy(self) -> bool:
        """True if any text waits for vectors of any model."""
        return any(self._pending(model) for model in self._models)

    @property
    def dead_letters(self) -> list[str]:
        """The reasons why memories could not be embedded by the answering model, the newest last."""
        model = self.answering
        return [reason for texts in self._files.texts() for reason in self._counted(model, texts).dead.values()]

    @property
    def error(self) -> str | None:
        """The reason why there are no vectors: the last failure of a worker to load its model, or that there is no
        worker."""
        if self.answering_workers:
            return None
        for failure in self._failures.values():
            return failure.error
        if self.is_starting or self._clock() - self._attended_at < UNATTENDED_S:
            return None
        return NO_WORKER

    @property
    def is_starting(self) -> bool:
        """True if the first worker is still starting: search by meaning begins when its model is loaded."""
        return not self.answering_workers and not self._failures and self._clock() < self._expected_until

    def expect_workers(self) -> None:
        """Note that the launcher is starting workers, and that none has a model yet."""
        self._expected_until = self._clock() + STARTING_S
        self._may_rest = True

    def workers_failed(self) -> None:
        """Note that the launcher cannot start workers."""
        self._expected_until = -math.inf
        self._may_rest = False

    def models(self) -> tuple[ModelProgress, ...]:
        """Return the progress of each model."""
        progress = []
        for model in self._models:
            is_chosen, workers = model.choice == self._state.chosen, len(self._leases.workers_of(model))
            failures = [failure.error for failure in self._failures.values() if failure.choice == model.choice]
            progress.append(
                ModelProgress(
                    model.choice,
                    "active" if self._is_active(model) else "next" if is_chosen else "fallback",
                    model.identity.dimensions if model.identity else 0,
                    workers,
                    self._pending(model),
                    max(self._state.total, self._pending(model)) if is_chosen and self._state.total else 0,
                    model == self.answering and workers > 0,
                    failures[0] if failures and not workers else None,
                )
            )
        return tuple(progress)

    async def choose(self, choice: ModelChoice | None) -> None:
        """Have everything embedded by another model, and then answer with it; None: stay with the active one.

        Raises:
            RemembrancerError: the choice cannot be stored.
        """
        chosen = self._state.choosing(choice).written()
        await self._committer.run(RECORDS, partial(self._files.catalog.note_models, chosen))
        self._decide(self._state.choosing(choice))

    def _is_active(self, model: Model) -> bool:
        active = self._state.active
        return active is not None and model == Model(active.choice, active.identity)

    def _decide(self, state: ModelState) -> None:
        """Adopt a state: keep the workers of the models that it names, and no others."""
        self._state = state
        self._models = state.models(self._all_fallbacks)
        for worker, model in self._leases.workers.items():
            if model not in self._models:
                self._lose(worker)
        identities = [model.identity for model in self._models if model.identity is not None]
        self._vectors.use_models(identities, self._models[0].identity)
        if (following := self._next) is not None and not state.total:
            self._state = msgspec.structs.replace(state, total=self._pending(following))
        self._deciding.set()
        self._handing.set()

    @property
    def _next(self) -> Model | None:
        """The model that will take over, if it is known."""
        chosen = (each for each in self._models if each.choice == self._state.chosen and each.identity is not None)
        return next((model for model in chosen if not self._is_active(model)), None)

    async def run(self) -> None:
        """Hand out jobs and save vectors until cancelled."""
        async with anyio.create_task_group() as self._tasks:
            self._tasks.start_soon(self._hand_out)
            self._tasks.start_soon(self._save)
            self._tasks.start_soon(self._carry_out)

    def wake(self) -> None:
        """Look for texts without vectors."""
        self._handing.set()

    def texts_opened(self) -> None:
        """Include texts that could not be read before. Their dead letters get another chance as well."""
        self._to_try_again.update(model.key for model in self._leases.workers.values() if model.key is not None)
        self._deciding.set()
        self._handing.set()

    def _pending(self, model: Model) -> int:
        """Return the number of texts that wait for vectors of a model."""
        return sum(self._counted(model, texts).missing for texts in self._files.texts())

    def _counted(self, model: Model, texts: EmbeddedTexts) -> _Counted:
        key, commits = model.key, texts.commits
        counted = self._counts.get((texts.name, key))
        if counted is None or counted.texts is not texts or counted.commits != commits:
            missing, dead = (0, {}) if counted is None else (counted.missing, counted.dead)
            with contextlib.suppress(RemembrancerError):  # an unreadable file
                missing = texts.missing(key)
                dead = {} if key is None else texts.dead_letters(key)
            counted = self._counts[texts.name, key] = _Counted(texts, commits, missing, dead)
        return counted

    def _is_whole(self, model: Model) -> bool:
        """True if every text has its vectors, or cannot have any."""
        return model.identity is not None and not self._pending(model)

    async def embed_query(self, text: str, timeout_s: float, model: str | None = None) -> Vectors:
        """Return the unit vector of a query, (dimensions,), of that model (None: the one that answers now). Recent ones
        are cached.

        Raises:
            EmbeddingUnavailable: no worker has the model, none answered within `timeout_s`, or the answer is not a
            vector.
        """
        if self._may_rest and not self._leases.workers and self._clock() - self._asked_at > STARTING_S:
            self.expect_workers()  # the first query after a while wakes idle workers
        self._asked_at = self._clock()
        asked = next((each for each in self._models if each.key == (model or self.answering.key)), None)
        workers = [] if asked is None else self._leases.workers_of(asked)
        if asked is None or asked.identity is None or not workers:
            unavailable = EmbeddingStarting if self.is_starting else EmbeddingUnavailable
            raise unavailable("no embedding worker has a model loaded")
        key = (asked.identity.key, text)
        if (cached := self._query_vectors.get(key)) is not None:
            self._query_vectors.move_to_end(key)
            return cached
        # Local ones first, since they answer sooner, and a hang is noticed sooner.
        least_busy = sorted(workers, key=lambda peer: (bool(peer.key), self._leases.count_held(peer)))
        answer = await self.ask(least_busy, text, timeout_s)
        if not vectors_fit(answer, 1, asked.identity.dimensions):
            raise EmbeddingUnavailable("a worker's answer does not fit its model")
        vector = np.frombuffer(answer, dtype="<f4")
        self._query_vectors[key] = vector
        if len(self._query_vectors) > CACHED_QUERIES:
            self._query_vectors.popitem(last=False)
        return vector

    async def wait_for(self, records: EmbeddedTexts, number: int, timeout_s: float) -> tuple[bool, str | None]:
        """Wait until a memory has its vectors. Returns whether it has them, and the error if it cannot have any.

        If no worker could make them, the error is returned at once.
        """
        self._waiting += 1
        self._handing.set()
        self._hurrying.set()
        try:
            with anyio.move_on_after(timeout_s):
                while True:
                    saved, key = self._saved, self.answering.key
                    if self.is_embedded(records, number):
                        return True, None
                    reason = None if key is None else records.dead_letters(key).get(number)
                    if (error := reason or self.error) is not None:
                        return False, error
                    await saved.wait()
        finally:
            self._waiting -= 1
        return False, self.error

    def is_embedded(self, records: EmbeddedTexts, number: int) -> bool:
        """True if a memory has vectors that can be searched now."""
        key = self.answering.key
        return key is not None and records.is_embedded(key, number)

    def hear(self, worker: Peer, state: WorkerState) -> None:
        """Handle a worker's new state: whatever it held may go to others."""
        self._attended_at = self._clock()
        self.lose(worker)
        if state.error is not None and not state.is_leaving:
            self._failures[worker.incarnation] = state
        elif state.identity is not None and not state.is_leaving:
            self._expected_until = -math.inf
            self._welcome(worker, state, state.identity)

    def peer_gone(self, gone: PeerGone) -> None:
        """Handle the death of a process of the runtime. If it was a worker, its jobs go to another."""
        if gone.role == "embedder":
            self._attended_at = self._clock()
            self._expected_until = max(self._expected_until, self._clock() + UNATTENDED_S)  # it will be restarted
        for worker in self.workers:
            if worker.incarnation == gone.incarnation:
                self._put(*(_Answer(job, reason=DEADLY, died=True) for job in self._leases.worker_died(worker)))
                self._lose(worker)
        self._failures.pop(gone.incarnation, None)

    def lose(self, worker: Peer) -> None:
        """Handle the loss of a worker, or of its credibility. Its jobs go to another."""
        self._lose(worker)
        self._failures.pop(worker.incarnation, None)

    def identity_of(self, choice: ModelChoice) -> ModelIdentity | None:
        """Return the model of a choice, if a worker has identified it."""
        return next((model.identity for model in self._models if model.choice == choice), None)

    def workers_here(self, identity: ModelIdentity) -> list[Peer]:
        """Return the workers of this host with that model."""
        return [each for each, model in self._leases.workers.items() if model.identity == identity and not each.key]

    def better_choice(self, worker: Peer, choice: ModelChoice) -> ModelChoice | None:
        """Return the model that a worker on another host should use instead of its own; None if its own is right.

        Most of the work is for the chosen model; any other needed model keeps one worker.
        """
        if choice not in self.needed:
            return self._state.chosen
        has_others = any(each != worker and model.choice == choice for each, model in self._leases.workers.items())
        return self._state.chosen if choice != self._state.chosen and has_others else None

    async def ask(self, workers: Sequence[Peer], text: str, timeout_s: float) -> bytes:
        """Return the vector of a query from the first of the workers that can be reached.

        Raises:
            EmbeddingUnavailable: none can be reached, it has not answered within `timeout_s`, or it has no vector.
        """
        for worker in workers:
            try:
                return await self._router_of(worker).ask(worker, EmbedQuery(text), timeout_s=timeout_s)
            except PeerUnavailable:
                continue
            except PeerLost as error:
                raise EmbeddingUnavailable("the embedding worker died") from error
            except DeadlineExceeded as error:
                raise EmbeddingUnavailable(f"no embedding worker answered within {timeout_s:.2g} s") from error
        raise EmbeddingUnavailable("no embedding worker can be reached")

    def trial_of(self, identity: ModelIdentity) -> bytes | None:
        """Return a model's vector of the trial text for workers on other hosts, if it is known."""
        return next((model.trial for model in self._state.known if model.identity == identity), b"") or None

    def note_trial(self, choice: ModelChoice, identity: ModelIdentity, vector: bytes) -> None:
        """Store a model's vector of the trial text."""
        self._decide(self._state.tried(choice, identity, vector))

    def _lose(self, worker: Peer) -> None:
        self._router_of(worker).lose(worker)
        self._leases.worker_gone(worker)
        self._handing.set()

    def _put(self, *answers: _Answer) -> None:
        """Have answers saved."""
        self._answers += answers
        self._answered.set()
        self._handing.set()

    async def _embed(self, worker: Peer, job: EmbeddingJob[Model], text: TextToEmbed) -> None:
        """Have a worker embed a text that it was given. Its answer is saved later."""
        embedded, failure = None, "the worker's answer does not fit its model"
        try:
            embedded = await self._router_of(worker).ask(worker, EmbedText(text.content), timeout_s=None)
        except PeerUnavailable:
            self._lose(worker)
        except PeerLost:
            return
        except RemembrancerError as error:
            failure = error.message
        self._attended_at = self._clock()
        if not self._leases.holds(worker, job):
            return  # it may have gone to another
        identity = job.model.identity
        assert identity is not None, "it has a worker"
        if embedded is not None and worker.key:
            reason = _untruth(embedded, identity, len(text.content))
            if reason is not None:
                self.on_untruth(worker, reason)
                return
        self._leases.finish(worker, job)
        if embedded is not None:
            self.embedded[worker.incarnation] += 1
            if vectors_fit(embedded.vectors, len(embedded.passages), identity.dimensions):
                self._put(_Answer(job, text.digest, embedded))
                return
        logger.warning(
            "a memory could not be embedded", extra={"file": job.name, "number": job.number, "reason": failure}
        )
        self._put(_Answer(job, reason=failure))

    def _welcome(self, worker: Peer, ready: WorkerState, identity: ModelIdentity) -> None:
        """Admit a worker if its model is needed."""
        if ready.choice not in self.needed:
            return  # the launcher is about to stop it
        state = self._state.introduced(KnownModel(ready.choice, identity))
        is_first = state.active is None and ready.choice == state.chosen
        if is_first and not any(self._is_whole(each) for each in self._models):
            state = state.swapped()
        if state is not self._state:
            self._decide(state)
        self._vectors.note_scale(identity.key, ready.scale, keeps=bool(worker.key))
        model = Model(ready.choice, identity)
        self._leases.worker_ready(worker, model, ready.credit)
        self._to_try_again.add(identity.key)
        self._deciding.set()
        self._handing.set()

    def _may_take_over(self) -> bool:
        """True if all vectors of the chosen model exist, and a worker can embed its queries."""
        model = self._next
        return model is not None and bool(self._leases.workers_of(model)) and self._is_whole(model)

    async def _carry_out(self) -> None:
        """Carry out a decision, or follow up a worker's arrival: give dead letters another chance, let the chosen model
        take over once it may, store the decision, and then delete other models' vectors.

        The vectors stay until the decision is stored, since a store that is killed before continues with the previous
        one.
        """
        while True:
            await self._deciding.wait()
            self._deciding.clear()
            await self._try_again()
            if self._open_all is not None and len(self._models) > 1:
                await self._open_all()
            if self._may_take_over():
                self._decide(self._state.swapped())
                logger.info("the model was changed", extra={"model": self._state.chosen.model})
            state = self._state
            try:
                await self._committer.run(RECORDS, partial(self._files.catalog.note_models, state.written()))
                keys = [model.key for model in self._models]
                if state is self._state and state.active and None not in keys:
                    await self._prune([key for key in keys if key is not None])
            except MemoryUnavailable:  # the store is stopping
                return
            except RemembrancerError as error:
                logger.warning("the choice of a model is not written yet", extra={"reason": error.message})
                self._deciding.set()
                await anyio.sleep(RETRY_S)

    async def _try_again(self) -> None:
        keys, self._to_try_again = self._to_try_again, set()
        for key, texts in itertools.product(keys, self._files.texts()):
            try:
                await self._committer.run(texts.name, partial(texts.try_again, key, time.time()))
            except RemembrancerError as error:
                logger.warning("dead letters wait", extra={"file": texts.name, "reason": error.message})
        self._handing.set()

    async def _prune(self, kept: list[str]) -> None:
        for texts in self._files.texts():
            pruned = PRUNE_BATCH
            while pruned >= PRUNE_BATCH and not self._deciding.is_set():
                await anyio.sleep(self._gate.hold_s(now := time.monotonic(), now))
                pruned = await self._committer.run(texts.name, partial(texts.prune_models, kept, PRUNE_BATCH))
        self._vectors.nudge()

    async def _hand_out(self) -> None:
        while True:
            with anyio.move_on_after(AGAIN_S):  # texts may have been unreadable
                await self._handing.wait()
            limit = await self._let_clients_pass()
            self._handing.clear()
            for model in list(self._models):
                await self._hand_out_of(model, limit)
            if self._may_take_over():
                self._deciding.set()

    async def _hand_out_of(self, model: Model, limit: int | None) -> None:
        """Give texts to the workers of a model, at most `limit` while clients are served (None: they are not)."""
        room, key = self._leases.room(model), model.key
        room, hand_bytes = (room, HAND_BYTES) if limit is None else (min(room, limit), BYTES_UNDER_LOAD)
        for texts in self._files.texts():
            if room <= 0 or key is None:
                return
            leased = self._leases.leased_of(model, texts.name)
            ask = partial(texts.next_texts, key, room, len(self._leases.workers_of(model)) * hand_bytes, leased)
            try:
                next_texts = await self._readers.read(ask)
            except RemembrancerError as error:
                logger.warning("embedding waits", extra={"file": texts.name, "reason": error.message})
                continue
            handed = self._leases.hand_out(model, texts.name, next_texts, hand_bytes)
            for worker, given in handed.items():
                room -= len(given)
                for text in given:
                    self._tasks.start_soon(self._embed, worker, EmbeddingJob(model, texts.name, text.number), text)
            if sum(map(len, handed.values())) < len(next_texts):
                return

    async def _let_clients_pass(self) -> int | None:
        """Hold back jobs while clients are served, unless one of them waits for its vector.

        Returns the number of jobs that may go out now; None: no limit.
        """
        began = time.monotonic()
        while self._leases.workers and not self._waiting:
            hold_s = self._gate.hold_s(time.monotonic(), began)
            if hold_s <= 0:
                return JOBS_UNDER_LOAD if self._gate.is_serving(time.monotonic()) else None
            self._hurrying.clear()
            with anyio.move_on_after(hold_s):
                await self._hurrying.wait()
        return None

    async def _save(self) -> None:
        while True:
            await self._answered.wait()
            self._answered.clear()
            batch, self._answers = self._answers[:SAVE_BATCH], self._answers[SAVE_BATCH:]
            groups: dict[tuple[Model, str], list[_Answer]] = {}
            for answer in batch:
                groups.setdefault(answer.job[:2], []).append(answer)
            put_off = 0
            for (model, name), answers in groups.items():
                try:
                    await self._write(name, model, answers)
                except RemembrancerError as error:
                    logger.warning("vectors cannot be saved yet", extra={"file": name, "reason": error.message})
                    self._answers += answers
                    put_off += 1
                else:
                    for answer in answers:
                        self._leases.release(answer.job)
            if self._answers:
                self._answered.set()
            if put_off and put_off == len(groups):  # they must not hold up other texts
                await anyio.sleep(RETRY_S)
            self._saved.set()
            self._saved = asyncio.Event()
            self._handing.set()

    async def _write(self, name: str, model: Model, answers: list[_Answer]) -> None:
        """Save a model's vectors of the current texts, and count failed attempts.

        Vectors of outdated texts are dropped, and made again. Some texts without vectors become dead letters.
        """
        identity = model.identity
        texts = next((each for each in self._files.texts() if each.name == name), None)
        if texts is None or identity is None or model not in self._models:
            return
        embedded = [
            EmbeddedMemory(job.number, digest, message.passages, vectors_of(message.vectors, identity.dimensions))
            for job, digest, message, *_ in answers
            if message is not None
        ]
        if embedded:
            saved = await self._committer.run(name, partial(texts.save_embeddings, identity.key, embedded))
            for space in saved.spaces or [name]:
                self._vectors.note_kept(space)
        failed: dict[tuple[str, bool], list[int]] = {}
        for answer in answers:
            if answer.embedded is None:
                failed.setdefault((answer.reason, answer.died), []).append(answer.job.number)
        for (reason, died), numbers in failed.items():
            until = time.time() + (DEADLY_S if died else 0.0)
            note = partial(texts.note_attempts, identity.key, numbers, reason, until, died=died)
            for number in await self._committer.run(name, note):
                logger.error("a memory cannot be embedded", extra={"file": name, "number": number, "reason": reason})


def vectors_of(data: bytes, dimensions: int) -> Vectors:
    """Decode vectors as a worker sends them, one a row."""
    return np.frombuffer(data, dtype="<f4").reshape(-1, dimensions)


def vectors_fit(data: bytes, count: int, dimensions: int) -> bool:
    """True if `data` has `count` vectors of finite float32 values, and is not empty."""
    if not count or len(data) != 4 * count * dimensions:
        return False
    return bool(np.isfinite(np.frombuffer(data, dtype="<f4")).all())


def are_unit_vectors(data: bytes, count: int, dimensions: int) -> bool:
    """Like `vectors_fit`, and each has length 1: a longer one would seem near to everything."""
    if not vectors_fit(data, count, dimensions):
        return False
    return bool((np.abs(np.linalg.norm(vectors_of(data, dimensions), axis=1) - 1) < LENGTH_TOLERANCE).all())


def _untruth(message: EmbeddedText, identity: ModelIdentity, length: int) -> str | None:
    """Return the fault in an answer that no honest worker makes; None if there is none. `length` is that of the
    requested text."""
    if not are_unit_vectors(message.vectors, len(message.passages), identity.dimensions):
        return "an answer was no vectors of its model: their number, dimensions or lengths are wrong"
    starts = [each.start for each in message.passages]
    if starts != sorted(set(starts)) or any(not 0 <= each.start <= each.end <= length for each in message.passages):
        return "an answer was of passages that its text does not have"
    return None
