"""The embedder between a real socket of a store and a real model, and the engines of providers."""

import logging
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import anyio
import anyio.abc
import msgspec
import numpy as np
import pytest

from remembrancer.actors.actor_process import LaunchSpec
from remembrancer.actors.embedder import providers
from remembrancer.actors.embedder.actor import CREDIT, EmbedderActor
from remembrancer.actors.embedder.engine import Engine
from remembrancer.actors.embedder.providers import PROVIDERS, ProviderEngine, load
from remembrancer.actors.embedder.workers import embed_texts, load_engine
from remembrancer.config.settings import Settings
from remembrancer.protocol.errors import EmbeddingUnavailable, InternalError, ModelUnusable, PeerLost, RemembrancerError
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.sockets import Peer, Router, Speaker
from remembrancer.protocol.wire import Envelope
from remembrancer.protocol.work import EmbeddedText, EmbedQuery, EmbedText, ModelChoice, WorkerState
from tests.operations import to_store
from tests.patience import PATIENCE_S, until
from tests.providers import HANGS, KEY, WELL, FakeProvider, Trouble, fake_provider

Kind = TypeVar("Kind")


class Embedded(NamedTuple):
    number: int
    result: EmbeddedText | bytes | RemembrancerError


class StoreSide:
    """The store's socket: what came in, in order, and what is asked of the worker that was heard last."""

    def __init__(self, home: Path, tasks: anyio.abc.TaskGroup) -> None:
        self._tasks = tasks
        self._arrived: list[Any] = []
        self._worker: Peer | None = None
        self.router: Router[Any] = Router(
            RuntimePaths(home).store_endpoint, Speaker("store", "store-1"), to_store, self._hear
        )

    def _hear(self, peer: Peer, envelope: Envelope, body: Any) -> None:
        self._worker = peer
        self._arrived.append(body)

    async def next(self) -> Any:
        await until(lambda: self._arrived)
        return self._arrived.pop(0)

    async def expect(self, kind: type[Kind]) -> Kind:
        message = await self.next()
        assert isinstance(message, kind), message
        return message

    async def until(self, kind: type[Kind]) -> Kind:
        """The next message of this kind. Others may come before it, as a worker announces itself to each connection."""
        while not isinstance(message := await self.next(), kind):
            pass
        return message

    async def text(self) -> tuple[int, EmbeddedText]:
        number, result = await self.expect(Embedded)
        assert isinstance(result, EmbeddedText), result
        return number, result

    def give(self, *texts: str, first: int = 1) -> None:
        for number, text in enumerate(texts, first):
            self._tasks.start_soon(self._ask, number, EmbedText(text))

    def ask(self, text: str, number: int = 0) -> None:
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
        self._arrived.append(Embedded(number, result))


@asynccontextmanager
async def store_at(home: Path) -> AsyncIterator[StoreSide]:
    RuntimePaths(home).run.mkdir(mode=0o700, exist_ok=True)
    async with anyio.create_task_group() as tasks:
        side = StoreSide(home, tasks)
        async with side.router:
            yield side


@asynccontextmanager
async def worker_in(home: Path, actor: EmbedderActor | None = None) -> AsyncIterator[EmbedderActor]:
    """A worker that runs, and at the end leaves as the shell would have it leave."""
    worker = actor or EmbedderActor(spec_of(home))
    async with anyio.create_task_group() as tasks:
        with anyio.fail_after(PATIENCE_S):
            await tasks.start(worker.run)
        yield worker
        with anyio.fail_after(PATIENCE_S):
            await worker.drain("the test ends")
        tasks.cancel_scope.cancel()


def spec_of(home: Path, **settings: object) -> LaunchSpec:
    return LaunchSpec(
        role="embedder",
        name="embedder-1",
        incarnation="01",
        home=str(home),
        settings=msgspec.convert(settings, Settings),
        threads=2,
    )


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
        assert worker.health().error is None
        stacked = np.frombuffer(b"".join(answers[number].vectors for number in sorted(answers)), "<f4").reshape(-1, 384)
        assert np.allclose(np.linalg.norm(stacked, axis=1), 1.0, atol=1e-5)
        again = load_engine(Settings(), 2).embed_passages(texts[:5])
        assert np.einsum("ij,ij->i", stacked[:5], again).min() > 0.9999


async def test_a_model_that_takes_long_to_load_is_reported_and_used_when_it_is_there(home: Path) -> None:
    may_load = threading.Event()

    def load() -> Engine:
        may_load.wait()
        return load_engine(Settings(), 2)

    actor = EmbedderActor(spec_of(home, model_load_timeout_s=0.01), load)
    async with store_at(home) as store, worker_in(home, actor) as worker:
        try:
            failed = await store.expect(WorkerState)
            assert "still loading after 0.01 s" in str(failed.error)
            assert worker.health().error == failed.error
            store.ask("anybody there?", 9)
            number, why = await store.expect(Embedded)
            assert isinstance(why, EmbeddingUnavailable)
            assert (number, why.message) == (9, failed.error)
        finally:
            may_load.set()
        assert (await store.expect(WorkerState)).identity is not None
        assert worker.health().error is None


async def test_a_worker_that_leaves_says_so_and_answers_the_batch_under_way(home: Path) -> None:
    async with store_at(home) as store:
        async with worker_in(home) as worker:
            await store.expect(WorkerState)
            store.give(*["Something that takes a while to read. " * 6] * 100)
            await store.text()
            answered = 1
            await worker.drain("scaled down")
            assert (await store.until(WorkerState)).is_leaving
            store.ask("still there?")
            while isinstance(result := (await store.expect(Embedded)).result, EmbeddedText):
                answered += 1
            assert str(result) == "this worker is leaving"
        assert answered < 100


QUICK = Settings(provider_batch_tokens=512)


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    with fake_provider() as made:
        yield made


@contextmanager
def engine_of(provider: FakeProvider, name: str = "voyage", model: str | None = None) -> Iterator[ProviderEngine]:
    known = PROVIDERS[name]
    engine = ProviderEngine(known, model or known.model, provider.url, KEY, QUICK)
    try:
        engine.check()
        yield engine
    finally:
        engine.close()


def test_voyage_is_told_what_is_a_question_and_how_many_dimensions_there_are(provider: FakeProvider) -> None:
    with engine_of(provider) as engine:
        passages = engine.embed_passages(["the deploy key is rotated", "the payroll run"])
        questions = engine.embed_questions(["when is the deploy key rotated"])
    assert passages.shape == (2, 1024)
    assert passages.dtype == np.float32
    assert np.allclose(np.linalg.norm(passages, axis=1), 1)
    assert (passages @ questions[0]).argmax() == 0, "vectors are in the order of the texts"
    kinds = [request["input_type"] for request in provider.requests]
    assert kinds == ["query", "document", "query"]
    assert {request["output_dimension"] for request in provider.requests} == {1024}
    assert provider.keys == {f"Bearer {KEY}"}
    identity = engine.identity
    assert (identity.engine, identity.model, identity.dimensions) == ("voyage", "voyage-3-large", 1024)


def test_a_local_server_needs_no_key_a_provider_does(provider: FakeProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    engine = load(ModelChoice("openai", "nomic-embed-text"), Settings(openai_url=provider.url), 1)
    engine.close()
    assert provider.keys == {None}
    with pytest.raises(ModelUnusable, match=r"\$\{MINE\} is not set"):
        load(ModelChoice("openai", "x"), Settings(openai_key_from="${MINE}"), 1)


def test_texts_go_in_requests_of_so_many_tokens_four_at_once(provider: FakeProvider) -> None:
    texts = [f"number {n} " + "harbour " * 90 for n in range(40)]
    with engine_of(provider) as engine:
        provider.delay_s = 0.2
        vectors = engine.embed_passages(texts)
        counts = engine.tokenizer.count_tokens(texts)
    assert vectors.shape == (40, 1024)
    batches = [request["input"] for request in provider.requests[1:]]
    assert sorted(text for batch in batches for text in batch) == sorted(texts)
    assert max(len(batch) for batch in batches) * max(counts) <= QUICK.provider_batch_tokens
    assert provider.most_at_once == QUICK.provider_requests


def test_a_provider_that_wants_to_be_left_alone_for_a_moment_is(provider: FakeProvider) -> None:
    with engine_of(provider) as engine:
        provider.once = [Trouble(429, headers={"retry-after": "0.3"}), Trouble(503)]
        began = time.monotonic()
        assert engine.embed_passages(["one"]).shape == (1, 1024)
        assert time.monotonic() - began >= 0.3
        provider.once = [Trouble(429, headers={"retry-after": "3600"})]
        with pytest.raises(ModelUnusable, match=r"429.*asked again in 3600 s"):
            engine.embed_passages(["one"])
        provider.once = [Trouble(500)]
        with pytest.raises(ModelUnusable, match="500"):
            engine.embed_questions(["a question does not wait"])


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        (Trouble(401), r"does not accept the key in \$\{VOYAGE_API_KEY\} \(401\)"),
        (Trouble(429, headers={"retry-after": "60"}), "429"),
        (Trouble(404), "404: something is wrong"),
        (Trouble(500), "500: something is wrong"),
        (HANGS, "did not answer within 0.3 s"),
        (Trouble(vectors="short"), "1023 numbers"),
        (Trouble(vectors="nan"), "not finite|not answer with vectors"),
        (Trouble(vectors="none"), "where 1×1024 were expected"),
        (Trouble(400), "refuses a text, or the model"),
    ],
)
def test_what_is_wrong_with_a_provider_makes_it_unusable_and_is_said_without_its_key(
    provider: FakeProvider,
    trouble: Trouble,
    said: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in (("PASSAGES_TIMEOUT_S", 0.3), ("QUESTION_TIMEOUT_S", 0.3), ("ATTEMPTS", 2)):
        monkeypatch.setattr(providers, name, value)
    caplog.set_level(logging.DEBUG)
    with engine_of(provider) as engine:
        provider.trouble = trouble
        with pytest.raises(ModelUnusable, match=said) as raised:
            list(embed_texts(engine, {1: "one", 2: "two"}, 0))
        with pytest.raises(ModelUnusable):
            engine.embed_questions(["one"])
        provider.trouble = WELL
        assert engine.embed_passages(["one"]).shape == (1, 1024)
    assert KEY not in str(raised.value) + repr(raised.value.__cause__) + caplog.text


def test_a_refused_text_does_not_hurt_the_others(provider: FakeProvider, caplog: pytest.LogCaptureFixture) -> None:
    with engine_of(provider) as engine:
        texts = {1: "good", 2: "forbidden secret content", 3: "fine"}
        found = dict(chain.from_iterable(embed_texts(engine, texts, 0)))
        assert {key: isinstance(each, str) for key, each in found.items()} == {1: False, 2: True, 3: False}
        assert "secret content" not in caplog.text + str(found[2]), "a provider's refusal may quote it"
        with pytest.raises(InternalError):
            engine.embed_questions(["a forbidden question"])
