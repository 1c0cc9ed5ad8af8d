import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from remembrancer.actors.actor_process import EXIT_STOPPED
from remembrancer.actors.embedder import actor, providers
from remembrancer.actors.embedder.engine import Engine
from remembrancer.actors.embedder.providers import PROVIDERS, ProviderEngine, load
from remembrancer.actors.embedder.workers import embed_texts, load_engine
from remembrancer.config.settings import Settings
from remembrancer.protocol.control import Stop
from remembrancer.protocol.errors import InternalError, ModelUnusable
from remembrancer.protocol.work import EmbeddedText, ModelChoice
from tests.actors.store_process import chronicle, store_rig
from tests.cases import cases
from tests.providers import HANGS, KEY, WELL, FakeProvider, Trouble, fake_provider

Batches = Iterator[list[tuple[int, EmbeddedText | str]]]


def is_told() -> bool:
    """True once there is a certain file in the home."""
    time.sleep(0.01)
    return Path(os.environ["REMEMBRANCER_HOME"], "told").exists()


def load_once_told(settings: Settings, threads: int) -> Engine:
    while not is_told():
        pass
    return load_engine(settings, threads)


def embed_once_told(engine: Engine, texts: Mapping[int, str], most: int) -> Batches:
    """Embed one batch as ever, and the others once it is told so."""
    batches = embed_texts(engine, texts, most)
    yield from islice(batches, 2)  # the first one is empty
    while not is_told():
        yield []
    yield from batches


async def test_a_model_that_takes_long_to_load_is_reported_and_used_when_it_is_there(home: Path) -> None:
    slow = {f"{actor.__name__}.load_engine": load_once_told}
    async with store_rig(home, settings=Settings(model_load_timeout_s=0.01), constants=slow) as rig:
        rig.launch("embedder")
        await rig.gateway.until(lambda now: "still loading after 0.01 s" in str(now.embedding.error))
        memory_id = await rig.gateway.store("The harbour is dredged in April")
        (home / "told").touch()
        await rig.gateway.until_embedded()
        assert (await rig.gateway.show(memory_id)).embedded


async def test_a_worker_that_leaves_amid_its_texts_loses_none_and_another_goes_on(home: Path) -> None:
    async with store_rig(home, constants={f"{actor.__name__}.embed_texts": embed_once_told}) as rig:
        earlier = await rig.gateway.store("The harbour is dredged in April")
        count = len(await chronicle(rig, 100)) + 2
        later = await rig.gateway.store("The museum opens at noon")
        leaving = rig.launch("embedder")
        await rig.gateway.until(lambda now: now.embedding.pending < count)
        await rig.launcher.tell(leaving, Stop("scaled down", 10.0))
        assert await leaving.ended() == EXIT_STOPPED
        now = (await rig.gateway.describe()).embedding
        assert (now.workers, 0 < now.pending < count) == (0, True)
        (home / "told").touch()
        rig.launch("embedder")
        await rig.gateway.until_embedded()
        for question, memory_id in {"When is the harbour dredged?": earlier, "museum hours": later}.items():
            assert (await rig.gateway.recall(question, strategy="vector")).memories[0].id == memory_id


QUICK = Settings(provider_batch_tokens=512)


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    with fake_provider() as made:
        yield made


@contextmanager
def engine_of(provider: FakeProvider) -> Iterator[ProviderEngine]:
    voyage = PROVIDERS["voyage"]
    engine = ProviderEngine(voyage, voyage.model, provider.url, KEY, QUICK)
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
        provider.gathers = QUICK.provider_requests
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
        with pytest.raises(ModelUnusable, match=r"429.*retried in 3600 s"):
            engine.embed_passages(["one"])
        provider.once = [Trouble(500)]
        with pytest.raises(ModelUnusable, match="500"):
            engine.embed_questions(["a question does not wait"])


@pytest.mark.parametrize(("behaviour", "said"), cases("embedder", "troubles"))
def test_what_is_wrong_with_a_provider_makes_it_unusable_and_is_said_without_its_key(
    provider: FakeProvider,
    behaviour: dict[str, Any],
    said: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(providers, "ATTEMPTS", 2)
    caplog.set_level(logging.DEBUG)
    with engine_of(provider) as engine:
        provider.trouble = Trouble(**behaviour)
        with monkeypatch.context() as patch:
            if provider.trouble.status == HANGS.status:  # nothing else is waited for
                patch.setattr(providers, "PASSAGES_TIMEOUT_S", 0.3)
                patch.setattr(providers, "QUESTION_TIMEOUT_S", 0.3)
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
