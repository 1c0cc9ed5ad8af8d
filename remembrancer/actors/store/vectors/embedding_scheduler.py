"""Schedules the embedding of what is stored, and of questions: jobs go out on credit, vectors come back to be kept.

Each model has its queue, workers and vectors (`models.py`). Questions are answered by one whose vectors are whole.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import math
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

import anyio
import msgspec
import numpy as np

from remembrancer.actors.store.committer import Committer
from remembrancer.actors.store.memory_files import MemoryFiles
from remembrancer.actors.store.readers import Readers
from remembrancer.actors.store.records.catalog import NAME as CATALOG
from remembrancer.actors.store.records.contract import MAX_ATTEMPTS, EmbeddedMemory, Vectors
from remembrancer.actors.store.records.passage_rows import EmbeddedTexts
from remembrancer.actors.store.requests import JOBS_UNDER_LOAD, LoadGate
from remembrancer.actors.store.vectors.leases import HAND_BYTES, EmbeddingJob, Leases
from remembrancer.actors.store.vectors.models import KnownModel, ModelState, ModelWork
from remembrancer.actors.store.vectors.vector_spaces import VectorSpaces
from remembrancer.config.settings import REMOTE_ENGINES
from remembrancer.protocol.control import PeerGone
from remembrancer.protocol.errors import EmbeddingStarting, EmbeddingUnavailable, MemoryUnavailable, RemembrancerError
from remembrancer.protocol.sockets import Peer
from remembrancer.protocol.work import (
    EmbedPassages,
    EmbedQuery,
    JobFailed,
    ModelChoice,
    ModelIdentity,
    ModelProgress,
    PassageJob,
    PassagesEmbedded,
    QueryEmbedded,
    ToWorker,
    WhoAreYou,
    WorkerFailed,
    WorkerLeaving,
    WorkerMessage,
    WorkerReady,
)

SAVE_BATCH: Final = 64
"""Memories whose vectors are saved in one transaction: few enough that a client's write does not wait for long."""
BYTES_UNDER_LOAD: Final = 5_000
"""Text in a worker's hands while clients are served: about 50 ms of its time, as `JOBS_UNDER_LOAD` are."""
LEASE_CHECK_S: Final = 5.0
PRUNE_BATCH: Final = 200
"""Passages of models that are not needed any more, deleted in one transaction."""
RETRY_S: Final = 1.0
"""Before the records are written again that could not be: a full disk, say."""
DEADLY: Final = f"its text was in the hands of {MAX_ATTEMPTS} embedders that died: it is found by its words"
DEADLY_S: Final = 3600.0
"""So long a text of which workers have died is kept from those that come after them."""
UNATTENDED_S: Final = 10.0
"""So long after the start, or after the last that was heard of any worker, one may still be on its way."""
STARTING_S: Final = 60.0
"""So long a worker is waited for that the launcher starts: a model takes seconds to load, on a busy machine many."""
NO_WORKER: Final = "no embedder is running: see `remembrancer status`"
FIRST_ID_BITS: Final = 48
"""A store counts its jobs and questions from anywhere: an answer that an earlier store asked for fits none of them."""

LENGTH_TOLERANCE: Final = 0.01
"""Of a unit vector's length: another machine's float32 may round otherwise."""
CACHED_QUERIES: Final = 1024
"""1.5 MB at 384 dimensions."""

logger = logging.getLogger(__name__)


class _Finished(NamedTuple):
    """Vectors that have come and are to be saved; `digest` tells which text they were made of."""

    job: EmbeddingJob
    message: PassagesEmbedded
    work: ModelWork
    digest: bytes


class _Failed(NamedTuple):
    """A text that could not be embedded, which is to be noted; `died`: its worker has died."""

    job: EmbeddingJob
    work: ModelWork
    reason: str
    died: bool


class EmbeddingScheduler:
    """Has the workers embed what is stored, and saves the vectors. `send` sends to a worker; False: it is gone.

    The settings have `configured` a model; `fallbacks` stand in for one that is on another machine. `open_all` opens
    what is embedded beside memories, which otherwise waits until somebody asks for it.
    """

    def __init__(
        self,
        files: MemoryFiles,
        committer: Committer,
        vectors: VectorSpaces,
        readers: Readers,
        send: Callable[[Peer, ToWorker], bool],
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
        self._send = send
        self._gate = gate
        self._fallbacks = fallbacks
        self._open_all = open_all
        self._questions = WorkerQuestions(send, secrets.randbits(FIRST_ID_BITS))
        self._query_vectors: OrderedDict[tuple[str, str], Vectors] = OrderedDict()
        self._finished: list[_Finished] = []
        self._failed: list[_Failed] = []
        self._missing_in: dict[tuple[str, str | None], tuple[int, int]] = {}
        """By file and model, after how many commits it was counted what has no vectors, and how much."""
        self._recent: dict[str, None] = {}
        """The files, those last that have got something to be embedded last."""
        self._waiters: dict[EmbeddingJob, list[asyncio.Future[str | None]]] = {}
        self._failures: dict[str, WorkerFailed] = {}  # by the worker's incarnation
        self._clock = clock
        self._attended_at = clock()
        self._expected_until = self._asked_at = -math.inf
        self._may_rest = False
        self._handing = asyncio.Event()
        self._awaited = asyncio.Event()
        self._saving = asyncio.Event()
        self._looking = asyncio.Event()
        self._deciding = asyncio.Event()
        self.all_files_open = False
        """Set when every project that is known has been opened: no model is whole before."""
        self.on_untruth: Callable[[Peer, str], None] = self._lose_liar
        """Told of a worker on another host that was caught in an untruth: it is to be given nothing more."""
        self._state = ModelState.read(files.catalog.models(), configured)
        self._works: list[ModelWork] = []
        self._said: ModelWork | None = None
        self._decide(self._state)

    @property
    def _all_fallbacks(self) -> tuple[ModelChoice, ...]:
        active = self._state.active
        in_use = {self._state.chosen.engine, *([active.choice.engine] if active else [])}
        return self._fallbacks if in_use & REMOTE_ENGINES else ()

    @property
    def needed(self) -> tuple[ModelChoice, ...]:
        """The models that workers are needed for, the chosen one first."""
        return tuple(dict.fromkeys([self._state.chosen, *(work.choice for work in self._works)]))

    @property
    def answering(self) -> ModelWork:
        """The model whose vectors are searched now: the active one; while that has no worker, one whose vectors are
        whole. One whose vectors are not answers only where nobody can make the active one's questions any more."""
        first = self._works[0]
        attended = [work for work in self._works if work.identity is not None and work.leases.has_workers]
        if not attended or (first in attended and self._is_active(first)):
            return first
        if whole := [work for work in attended if self._is_whole(work)]:
            return whole[0]
        is_lost = not self._is_active(first) or any(work.choice == first.choice for work in attended)
        return attended[0] if is_lost else first

    @property
    def identity(self) -> ModelIdentity | None:
        """The model whose vectors are searched now."""
        return self.answering.identity

    @property
    def workers(self) -> list[Peer]:
        """All workers with a model."""
        return [worker for work in self._works for worker in work.leases.workers]

    @property
    def pending(self) -> int:
        """Memories that wait for their vectors, to the moment in which these can be searched."""
        return self._pending(self.answering)

    @property
    def missing(self) -> int:
        """The number of memories that cannot be found by meaning because the model that answers is new, and the old one
        is lost."""
        work = self.answering
        is_new = self._state.active is not None and not self._is_active(work)
        return self._pending(work) if is_new and not self._is_whole(work) else 0

    @property
    def is_busy(self) -> bool:
        """True if anything waits for vectors of any model."""
        return any(self._pending(work) for work in self._works)

    @property
    def dead_letters(self) -> dict[EmbeddingJob, str]:
        """The memories that could not be embedded by the model that answers, and why."""
        return self.answering.dead

    @property
    def error(self) -> str | None:
        """Why there are no vectors: the last word of a worker that could not load its model, or that there is none."""
        if self.answering.leases.has_workers:
            return None
        for failure in self._failures.values():
            return failure.message
        if self.is_starting or self._clock() - self._attended_at < UNATTENDED_S:
            return None
        return NO_WORKER

    @property
    def is_starting(self) -> bool:
        """True if the first worker is still on its way: meaning joins when its model is loaded."""
        return not self.answering.leases.has_workers and not self._failures and self._clock() < self._expected_until

    def expect_workers(self) -> None:
        """The launcher starts workers now, and none has a model yet."""
        self._expected_until = self._clock() + STARTING_S
        self._may_rest = True

    def workers_failed(self) -> None:
        """The launcher can start no workers."""
        self._expected_until = -math.inf
        self._may_rest = False

    def models(self) -> tuple[ModelProgress, ...]:
        """The progress of each model."""
        found = []
        for work in self._works:
            is_chosen = work.choice == self._state.chosen
            failures = [each.message for each in self._failures.values() if each.choice == work.choice]
            found.append(
                ModelProgress(
                    work.choice,
                    "active" if self._is_active(work) else "next" if is_chosen else "fallback",
                    work.identity.dimensions if work.identity else 0,
                    len(work.leases.workers),
                    self._pending(work),
                    max(self._state.total, self._pending(work)) if is_chosen and self._state.total else 0,
                    work is self.answering and work.leases.has_workers,
                    failures[0] if failures and not work.leases.has_workers else None,
                )
            )
        return tuple(found)

    async def choose(self, choice: ModelChoice | None) -> None:
        """Have everything embedded by another model, and then answer by it; None: stay with the active one.

        Raises:
            RemembrancerError: that cannot be written down.
        """
        await self._committer.run(
            CATALOG, partial(self._files.catalog.note_models, self._state.choosing(choice).written())
        )
        for work in self._works:
            work.embedded = 0
        self._decide(self._state.choosing(choice))

    def _is_active(self, work: ModelWork) -> bool:
        active = self._state.active
        return active is not None and work.choice == active.choice and work.identity == active.identity

    def _decide(self, state: ModelState) -> None:
        """This counts from now on: there is work for each model that it names, and for no other."""
        self._state = state
        before = self._works
        self._works = []
        for choice, identity in state.models(self._all_fallbacks):
            fits = (work for work in before if work.choice == choice and work.identity in (identity, None))
            work = next(fits, None) or ModelWork(choice, None, Leases(secrets.randbits(FIRST_ID_BITS)))
            work.identity = identity
            self._works.append(work)
        for gone in (work for work in before if work not in self._works):
            for worker in gone.leases.workers:
                self._questions.worker_gone(worker)
        active = state.active.identity if state.active else self._works[0].identity
        identities = [work.identity for work in self._works if work.identity is not None]
        self._vectors.use_models(identities, active, self._files.embedded())
        self._note_answering()
        self._looking.set()
        self._deciding.set()
        self._handing.set()

    def _note_answering(self) -> None:
        """Say in the log when questions are answered by another model than before."""
        answering = self.answering
        if answering is not self._said and answering.leases.has_workers:
            self._said = answering
            logger.warning("questions are answered by this model now", extra={"model": answering.choice.model})

    async def run(self) -> None:
        """Hand out jobs and save vectors until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._hand_out)
            tasks.start_soon(self._save)
            tasks.start_soon(self._catch_up)
            tasks.start_soon(self._carry_out)

    def enqueue(self, name: str, numbers: Iterable[int]) -> None:
        """These memories of a file need vectors: they are new, or their content is another."""
        for number in numbers:
            for work in self._works:
                work.dead.pop((name, number), None)
                work.leases.forget_failures((name, number))
        self._recent.pop(name, None)
        self._recent[name] = None
        self._handing.set()

    def _pending(self, work: ModelWork) -> int:
        """The number of memories that wait for vectors of a model."""
        return sum(self._missing(work, records) for records in self._files.embedded())

    def _missing(self, work: ModelWork, records: EmbeddedTexts) -> int:
        place, commits = (records.name, work.key), records.commits
        counted, missing = self._missing_in.get(place, (-1, 0))
        if counted != commits:
            with contextlib.suppress(RemembrancerError):  # of a file that cannot be read now
                missing = records.missing(work.key)
            self._missing_in[place] = commits, missing
        return missing

    def _is_whole(self, work: ModelWork) -> bool:
        """True if everything has its vectors, or cannot have any."""
        return work.identity is not None and work.is_counted and not self._pending(work)

    async def embed_query(self, text: str, timeout_s: float, model: str | None = None) -> Vectors:
        """The unit vector of a question, (dimensions,), of that model (None: of the one that answers now); recent ones
        are kept.

        Raises:
            EmbeddingUnavailable: no worker has the model, none answered within `timeout_s`, or the answer is no vector.
        """
        if self._may_rest and not self.workers and self._clock() - self._asked_at > STARTING_S:
            self.expect_workers()  # the first question after a while wakes those that rest
        self._asked_at = self._clock()
        work = next((work for work in self._works if work.key == (model or self.answering.key)), None)
        identity = None if work is None else work.identity
        if work is None or identity is None or not work.leases.has_workers:
            unavailable = EmbeddingStarting if self.is_starting else EmbeddingUnavailable
            raise unavailable("no embedding worker has a model loaded")
        key = (identity.key, text)
        if (cached := self._query_vectors.get(key)) is not None:
            self._query_vectors.move_to_end(key)
            return cached
        # Those of this host first: they answer sooner, and whether they hang is known sooner.
        least_busy = sorted(work.leases.workers, key=lambda each: (bool(each.key), work.leases.count_held(each)))
        answer = await self._questions.ask(text, least_busy, timeout_s)
        if not vectors_fit(answer.vector, 1, identity.dimensions):
            raise EmbeddingUnavailable("a worker's answer does not fit its model")
        vector = np.frombuffer(answer.vector, dtype="<f4")
        self._query_vectors[key] = vector
        if len(self._query_vectors) > CACHED_QUERIES:
            self._query_vectors.popitem(last=False)
        return vector

    async def wait_for(self, records: EmbeddedTexts, number: int, timeout_s: float) -> tuple[bool, str | None]:
        """Wait until a memory has its vectors: whether it has them now, and the error if it cannot have any.

        While there is nobody who could make them, that is said at once."""
        job = (records.name, number)
        with anyio.move_on_after(timeout_s):
            while True:
                with self._waiting_for(job) as news:
                    if self.is_embedded(records, number):
                        return True, None
                    if (reason := self.dead_letters.get(job)) is not None:
                        return False, reason
                    if self.error is not None:
                        return False, self.error
                    self._awaited.set()
                    error = await news
                if error is not None:
                    return False, error
        return False, self.error

    @contextlib.contextmanager
    def _waiting_for(self, job: EmbeddingJob) -> Iterator[asyncio.Future[str | None]]:
        """The next news of a job: None when its vectors are kept, or else why it has none."""
        news: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        waiters = self._waiters.setdefault(job, [])
        waiters.append(news)
        try:
            yield news
        finally:
            waiters.remove(news)
            if not waiters:
                self._waiters.pop(job, None)

    def is_embedded(self, records: EmbeddedTexts, number: int) -> bool:
        """True if a memory has vectors that can be searched now."""
        key = self.answering.key
        return key is not None and records.is_embedded(key, number)

    def hear(self, worker: Peer, message: WorkerMessage) -> None:
        """Take in a worker's message."""
        self._attended_at = self._clock()
        match message:
            case WorkerReady():
                self._expected_until = -math.inf
                self._failures.pop(worker.incarnation, None)
                self._welcome(worker, message)
            case WorkerFailed():
                self._failures[worker.incarnation] = message
                self._lose(worker)
            case WorkerLeaving():
                self._failures.pop(worker.incarnation, None)
                self._lose(worker)
            case QueryEmbedded():
                self._questions.answered(worker, message)
            case PassagesEmbedded() | JobFailed():
                work = self._work_of(worker)
                if work is None:
                    self._send(worker, WhoAreYou())
                elif isinstance(message, PassagesEmbedded):
                    self._vectors_came(work, worker, message)
                else:
                    self._job_failed(work, worker, message.job_id, message.message)

    def peer_gone(self, gone: PeerGone) -> None:
        """A process of the runtime has died. If it was a worker, its jobs go to another."""
        if gone.role == "embedder":
            self._attended_at = self._clock()
            self._expected_until = max(self._expected_until, self._clock() + UNATTENDED_S)  # it is started again
        for worker in self.workers:
            if worker.incarnation == gone.incarnation:
                self._lose(worker, died=True)
        self._failures.pop(gone.incarnation, None)

    def lose(self, worker: Peer) -> None:
        """A worker on another host is gone, or not believed any more. Its jobs go to another."""
        self._lose(worker)
        self._failures.pop(worker.incarnation, None)
        self._note_answering()
        self._handing.set()

    def _lose_liar(self, worker: Peer, reason: str) -> None:
        logger.error("a worker is not believed any more", extra={"worker": worker.name, "reason": reason})
        self.lose(worker)

    def identity_of(self, choice: ModelChoice) -> ModelIdentity | None:
        """The model of a choice, if a worker has said what it is."""
        return next((work.identity for work in self._works if work.choice == choice), None)

    def workers_here(self, identity: ModelIdentity) -> list[Peer]:
        """The workers of this host with that model."""
        return [
            each for work in self._works if work.identity == identity for each in work.leases.workers if not each.key
        ]

    def better_choice(self, worker: Peer, choice: ModelChoice) -> ModelChoice | None:
        """The model that a worker on another host should have instead of that of its choice; None: it is right.

        Most of the work is the chosen model's; another that is needed keeps a worker.
        """
        if choice not in self.needed:
            return self._state.chosen
        others = (each for work in self._works if work.choice == choice for each in work.leases.workers)
        has_others = any(each != worker for each in others)
        return self._state.chosen if choice != self._state.chosen and has_others else None

    async def ask(self, worker: Peer, text: str, timeout_s: float) -> QueryEmbedded:
        """One worker's answer to a question. Raises `EmbeddingUnavailable`."""
        return await self._questions.ask(text, [worker], timeout_s)

    def trial_of(self, identity: ModelIdentity) -> bytes | None:
        """A model's vector of the text that workers on other hosts are tried with, if it is known."""
        return next((each.trial for each in self._state.known if each.identity == identity), b"") or None

    def note_trial(self, choice: ModelChoice, identity: ModelIdentity, vector: bytes) -> None:
        """Keep a model's vector of that text."""
        self._decide(self._state.tried(choice, identity, vector))

    def _work_of(self, worker: Peer) -> ModelWork | None:
        return next((work for work in self._works if work.leases.knows(worker)), None)

    def _lose(self, worker: Peer, *, died: bool = False) -> None:
        self._questions.worker_gone(worker)
        work = self._work_of(worker)
        if work is None:
            return
        if died:
            self._failed += [_Failed(job, work, DEADLY, died=True) for job in work.leases.worker_died(worker)]
            self._saving.set()
        else:
            work.leases.worker_gone(worker)
        self._note_answering()
        self._handing.set()

    def _vectors_came(self, work: ModelWork, worker: Peer, message: PassagesEmbedded) -> None:
        identity, held = work.identity, work.leases.held(worker, message.job_id)
        if held is None:
            return
        if worker.key and (reason := _untruth(message, identity, held.length)) is not None:
            self.on_untruth(worker, reason)
            return
        if identity is None or not vectors_fit(message.vectors, len(message.passages), identity.dimensions):
            self._job_failed(work, worker, message.job_id, "the worker's answer does not fit its model")
            return
        work.leases.finish(worker, message.job_id, self._clock())
        self._finished.append(_Finished(held.job, message, work, held.digest))
        self._saving.set()
        self._handing.set()

    def _welcome(self, worker: Peer, ready: WorkerReady) -> None:
        """Let a worker in, if its model is one that is needed."""
        self._lose(worker)
        if ready.choice not in self.needed:
            return  # the launcher is about to end it
        known = KnownModel(ready.choice, ready.identity)
        state = self._state.introduced(known)
        is_first = state.active is None and ready.choice == state.chosen
        if is_first and not any(self._is_whole(each) for each in self._works):
            state = state.swapped()
        if state is not self._state:
            self._decide(state)
        work = next(each for each in self._works if (each.choice, each.identity) == (ready.choice, ready.identity))
        self._vectors.note_scale(ready.identity.key, ready.scale, keeps=bool(worker.key))
        work.leases.worker_ready(worker, ready.credit, is_remote=bool(worker.key))
        work.arrivals += 1
        self._note_answering()
        self._looking.set()
        self._handing.set()

    async def _catch_up(self) -> None:
        """After a decision or a worker's arrival, count what has no vectors, and give dead letters another chance."""
        while True:
            await self._looking.wait()
            self._looking.clear()
            for work in [work for work in self._works if not work.is_counted]:
                arrivals, all_files_open = work.arrivals, self.all_files_open
                if self._open_all is not None and len(self._works) > 1:
                    await self._open_all()
                for records in self._files.embedded():
                    await self._look_into(work, records, again=arrivals > work.retried_for)
                work.retried_for = arrivals
                work.counted_for = arrivals if all_files_open else -1
                self._handing.set()
                state = self._state
                if work.is_counted and work.choice == state.chosen and not self._is_active(work) and not state.total:
                    self._decide(msgspec.structs.replace(state, total=work.embedded + self._pending(work)))
                if self._may_take_over(work):
                    logger.info("the model was changed", extra={"model": work.choice.model})
                    self._decide(self._state.swapped())

    def files_opened(self) -> None:
        """Every project that is known has been opened."""
        self.all_files_open = True
        self._looking.set()
        self._deciding.set()

    def _may_take_over(self, work: ModelWork) -> bool:
        """True if all vectors of the chosen model are there and in the index, and a worker for questions as well."""
        is_next = work.choice == self._state.chosen and not self._is_active(work) and work in self._works
        return is_next and work.leases.has_workers and self._is_whole(work) and self._vectors.is_whole(work.key)

    def _look_whether_whole(self) -> None:
        """If the chosen model may take over, have everything looked through once more: then it does."""
        for work in self._works:
            if self._may_take_over(work):
                work.counted_for = -1
                self._looking.set()

    async def _carry_out(self) -> None:
        """Write down what was decided, again and again until it is written; then delete other models' vectors.

        Before it is written they stay: a store that is killed meanwhile goes on with the decision that it finds.
        """
        while True:
            await self._deciding.wait()
            self._deciding.clear()
            state = self._state
            try:
                await self._committer.run(CATALOG, partial(self._files.catalog.note_models, state.written()))
                identities = [work.identity for work in self._works]
                if state is self._state and self.all_files_open and state.active and None not in identities:
                    await self._prune([identity.key for identity in identities if identity is not None])
            except MemoryUnavailable:  # the store is stopping
                return
            except RemembrancerError as error:
                logger.warning("the choice of a model is not written yet", extra={"reason": error.message})
                self._deciding.set()
                await anyio.sleep(RETRY_S)

    async def _prune(self, kept: list[str]) -> None:
        for records in self._files.embedded():
            pruned = PRUNE_BATCH
            while pruned >= PRUNE_BATCH and not self._deciding.is_set():
                await anyio.sleep(self._gate.hold_s(now := time.monotonic(), now))
                pruned = await self._committer.run(records.name, partial(records.prune_models, kept, PRUNE_BATCH))
        self._vectors.nudge()

    async def enqueue_missing(self, records: EmbeddedTexts) -> None:
        """A file is open: what has no vectors in it is to be embedded."""
        for work in self._works:
            await self._look_into(work, records, again=work.leases.has_workers)
        self._deciding.set()

    async def _look_into(self, work: ModelWork, records: EmbeddedTexts, *, again: bool) -> None:
        """Read which texts of a file are dead letters. `again`: there is a worker that gives them another chance."""
        if (key := work.key) is not None:
            try:
                if again:
                    await self._committer.run(records.name, partial(records.try_again, key, time.time()))
                dead = await self._readers.read(partial(records.dead_letters, key))
            except RemembrancerError as error:
                logger.warning("a file's embedding waits", extra={"file": records.name, "reason": error.message})
                return
            work.dead = {job: reason for job, reason in work.dead.items() if job[0] != records.name}
            work.dead |= {(records.name, number): reason for number, reason in dead.items()}
        self._handing.set()

    def _job_failed(self, work: ModelWork, worker: Peer, job_id: int, reason: str) -> None:
        failed = work.leases.fail(worker, job_id, self._clock())
        if failed is None:
            return
        held, counts = failed
        name, number = held.job
        logger.warning("a memory could not be embedded", extra={"file": name, "number": number, "reason": reason})
        if counts:
            self._failed.append(_Failed(held.job, work, reason, died=False))
            self._saving.set()
        else:
            work.leases.release(held.job)
        self._handing.set()

    async def _hand_out(self) -> None:
        while True:
            with anyio.move_on_after(LEASE_CHECK_S):
                await self._handing.wait()
            self._handing.clear()
            limit = await self._let_clients_pass()
            for work in list(self._works):
                await self._hand_out_of(work, limit, HAND_BYTES if limit is None else BYTES_UNDER_LOAD)
            self._vectors.nudge()
            self._look_whether_whole()

    async def _hand_out_of(self, work: ModelWork, limit: int | None, hand_bytes: int) -> None:
        is_next = self._state.active is not None and work.choice == self._state.chosen and not self._is_active(work)
        if is_next and not self._state.total and not work.is_counted:
            return  # it is counted first how much there is to be embedded
        room = work.leases.room(self._clock())
        room = room if limit is None else min(room, limit)
        for records in self._newest_first():
            if room <= 0 or work.key is None:
                return
            leased = work.leases.leased_of(records.name)
            wanted = min(room, self._missing(work, records) - len(leased))  # or all would be looked through for more
            if wanted <= 0:
                continue
            ask = partial(records.next_texts, work.key, wanted, len(work.leases.workers) * hand_bytes, leased)
            try:
                texts = await self._readers.read(ask)
            except RemembrancerError as error:
                logger.warning("a file's embedding waits", extra={"file": records.name, "reason": error.message})
                continue
            handed = work.leases.hand_out(records.name, texts, self._clock(), hand_bytes)
            for worker, leases in handed.items():
                jobs = tuple(PassageJob(lease.job_id, lease.text.content) for lease in leases)
                room -= len(jobs)
                if not self._send(worker, EmbedPassages(jobs)):
                    self._lose(worker)
            if sum(map(len, handed.values())) < len(texts):
                return

    def _newest_first(self) -> list[EmbeddedTexts]:
        """The files, those first that have got something to be embedded last; files of a project after memories."""
        places = {name: place for place, name in enumerate(self._recent)}
        files = self._files.embedded()
        return sorted(files, key=lambda each: (each.name in self._files.indexes, -places.get(each.name, -1)))

    async def _let_clients_pass(self) -> int | None:
        """Hold the jobs back while clients are served, unless one of them waits for its vector.

        Returns how many may go out now; None: as many as the workers take.
        """
        began = time.monotonic()
        while self.workers and self.is_busy and not self._waiters:
            hold_s = self._gate.hold_s(time.monotonic(), began)
            if hold_s <= 0:
                return JOBS_UNDER_LOAD if self._gate.is_serving(time.monotonic()) else None
            self._awaited.clear()
            with anyio.move_on_after(hold_s):
                await self._awaited.wait()
        return None

    async def _save(self) -> None:
        while True:
            await self._saving.wait()
            self._saving.clear()
            failed, self._failed = self._failed, []
            batch, self._finished = self._finished[:SAVE_BATCH], self._finished[SAVE_BATCH:]
            if self._finished:
                self._saving.set()
            put_off = 0
            places = [(each.job[0], each.work) for each in failed] + [(each.job[0], each.work) for each in batch]
            for name, work in dict.fromkeys(places):
                finished = [each for each in batch if each.job[0] == name and each.work is work]
                lost = [each for each in failed if each.job[0] == name and each.work is work]
                try:
                    await self._save_file(name, work, finished)
                    await self._note_failed(name, work, lost)
                except RemembrancerError as error:
                    logger.warning("vectors cannot be saved yet", extra={"file": name, "reason": error.message})
                    self._finished.extend(finished)
                    self._failed.extend(lost)
                    self._saving.set()
                    put_off += len(finished) + len(lost)
                else:
                    for job in [each.job for each in finished] + [each.job for each in lost]:
                        work.leases.release(job)
            if put_off and put_off == len(places):  # what comes for other files is not held up by these
                await anyio.sleep(RETRY_S)
            self._look_whether_whole()
            self._handing.set()

    async def _note_failed(self, name: str, work: ModelWork, failed: list[_Failed]) -> None:
        """Count the attempts at texts that could not be embedded: some are dead letters then."""
        records = self._files.embedded_file(name)
        if records is None or work.key is None:
            return
        for reason, died in dict.fromkeys((each.reason, each.died) for each in failed):
            numbers = [each.job[1] for each in failed if (each.reason, each.died) == (reason, died)]
            until = time.time() + (DEADLY_S if died else 0.0)
            note = partial(records.note_attempts, work.key, numbers, reason, until, died=died)
            for number in await self._committer.run(name, note):
                logger.error("a memory cannot be embedded", extra={"file": name, "number": number, "reason": reason})
                work.dead[name, number] = reason
                self._tell((name, number), reason)

    async def _save_file(self, name: str, work: ModelWork, finished: list[_Finished]) -> None:
        """Save a model's vectors of what the memories are now. The others are dropped, and made again."""
        records, identity = self._files.embedded_file(name), work.identity
        if records is None or identity is None or work not in self._works or not finished:
            return
        embedded = [
            EmbeddedMemory(job[1], digest, message.passages, vectors_of(message.vectors, identity.dimensions))
            for job, message, _, digest in finished
        ]
        saved = await self._committer.run(name, lambda: records.save_embeddings(identity.key, embedded))
        self._vectors.note_kept(name, len(embedded))
        work.embedded += len(embedded) - len(saved.outdated)
        for memory in embedded:
            if memory.number not in saved.outdated:
                work.leases.forget_failures((name, memory.number))
                work.dead.pop((name, memory.number), None)
                self._tell((name, memory.number), None)

    def _tell(self, job: EmbeddingJob, error: str | None) -> None:
        for future in self._waiters.get(job, ()):
            if not future.done():
                future.set_result(error)


def vectors_of(data: bytes, dimensions: int) -> Vectors:
    """Vectors as a worker sends them, one a row."""
    return np.frombuffer(data, dtype="<f4").reshape(-1, dimensions)


def vectors_fit(data: bytes, count: int, dimensions: int) -> bool:
    """True if `data` is `count` vectors of finite float32 values, and not none."""
    if not count or len(data) != 4 * count * dimensions:
        return False
    return bool(np.isfinite(np.frombuffer(data, dtype="<f4")).all())


def are_unit_vectors(data: bytes, count: int, dimensions: int) -> bool:
    """As `vectors_fit`, and each is of length 1: a longer one would seem to be near everything."""
    if not vectors_fit(data, count, dimensions):
        return False
    return bool((np.abs(np.linalg.norm(vectors_of(data, dimensions), axis=1) - 1) < LENGTH_TOLERANCE).all())


def _untruth(message: PassagesEmbedded, identity: ModelIdentity | None, length: int | None) -> str | None:
    """The fault in an answer that no honest worker makes; None: there is none, or nobody asked for it (`length` is of
    the text that was asked about)."""
    if identity is None or length is None:
        return None
    if not are_unit_vectors(message.vectors, len(message.passages), identity.dimensions):
        return "an answer was no vectors of its model: their number, dimensions or lengths are wrong"
    starts = [each.start for each in message.passages]
    if starts != sorted(set(starts)) or any(not 0 <= each.start <= each.end <= length for each in message.passages):
        return "an answer was of passages that its text does not have"
    return None


class WorkerQuestions:
    """Questions to the workers that somebody waits for. `send` sends to a worker; False: it is gone."""

    def __init__(self, send: Callable[[Peer, ToWorker], bool], first_id: int) -> None:
        self._send = send
        self._waiting: dict[int, tuple[Peer, asyncio.Future[QueryEmbedded]]] = {}
        self._ids = itertools.count(first_id)

    async def ask(self, text: str, workers: Sequence[Peer], timeout_s: float) -> QueryEmbedded:
        """The answer of the first of `workers` that can be reached to a question.

        Raises:
            EmbeddingUnavailable: none can be reached, none answered within `timeout_s`, or the answer is an error.
        """
        asked = EmbedQuery(next(self._ids), text)
        future: asyncio.Future[QueryEmbedded] = asyncio.get_running_loop().create_future()
        try:
            with anyio.fail_after(timeout_s):
                for worker in workers:
                    self._waiting[asked.query_id] = (worker, future)
                    if self._send(worker, asked):
                        break
                else:
                    raise EmbeddingUnavailable("no embedding worker can be reached")
                found = await future
        except TimeoutError as error:
            raise EmbeddingUnavailable(f"no embedding worker answered within {timeout_s:.2g} s") from error
        finally:
            self._waiting.pop(asked.query_id, None)
        if found.error is not None:
            raise EmbeddingUnavailable(found.error)
        return found

    def answered(self, worker: Peer, answer: QueryEmbedded) -> None:
        """A worker's answer. One that nobody waits for any more is dropped."""
        asked, future = self._waiting.get(answer.query_id, (None, None))
        if future is not None and not future.done() and asked == worker:
            future.set_result(answer)

    def worker_gone(self, worker: Peer) -> None:
        """Wait no longer for what that worker was asked."""
        for asked, future in self._waiting.values():
            if asked == worker and not future.done():
                future.set_exception(EmbeddingUnavailable("the embedding worker died"))
