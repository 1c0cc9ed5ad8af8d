"""The engines of providers against a server that speaks their APIs, and what each fault of it comes to."""

from __future__ import annotations

import email.utils
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from remembrancer.actors.embedder import providers
from remembrancer.actors.embedder.providers import PROVIDERS, ProviderEngine, load_provider
from remembrancer.actors.embedder.workers import embed_each
from remembrancer.config.settings import Settings
from remembrancer.protocol.errors import InternalError, ModelUnusable
from remembrancer.protocol.work import ModelChoice
from tests.providers import HANGS, KEY, WELL, FakeProvider, Trouble, fake_provider

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
    engine = load_provider(ModelChoice("openai", "nomic-embed-text"), Settings(openai_url=provider.url))
    engine.close()
    assert provider.keys == {None}
    with pytest.raises(ModelUnusable, match=r"\$\{MINE\} is not set"):
        load_provider(ModelChoice("openai", "x"), Settings(openai_key_from="${MINE}"))


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


@pytest.mark.parametrize("when", ["1", "date"])
def test_a_provider_that_wants_to_be_left_alone_for_a_moment_is(provider: FakeProvider, when: str) -> None:
    with engine_of(provider) as engine:
        value = email.utils.formatdate(time.time() + 2, usegmt=True) if when == "date" else when
        provider.once = [Trouble(429, headers={"retry-after": value}), Trouble(503)]
        began = time.monotonic()
        assert engine.embed_passages(["one"]).shape == (1, 1024)
        assert time.monotonic() - began >= 1.0
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
        (HANGS, "did not answer within 1 s"),
        (Trouble(vectors="short"), "1023 numbers"),
        (Trouble(vectors="nan"), "not finite|no vectors"),
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
    monkeypatch.setattr(providers, "PASSAGES_TIMEOUT_S", 1.0)
    caplog.set_level(logging.DEBUG)
    with engine_of(provider) as engine:
        provider.trouble = trouble
        with pytest.raises(ModelUnusable, match=said) as raised:
            embed_each(engine.embed_passages, ["one", "two"])
        with pytest.raises(ModelUnusable):
            engine.embed_questions(["one"])
        provider.trouble = WELL
        assert engine.embed_passages(["one"]).shape == (1, 1024)
    assert KEY not in str(raised.value) + repr(raised.value.__cause__) + caplog.text


def test_a_refused_text_does_not_hurt_the_others(provider: FakeProvider, caplog: pytest.LogCaptureFixture) -> None:
    with engine_of(provider) as engine:
        found = embed_each(engine.embed_passages, ["good", "forbidden secret content", "fine"])
        assert [isinstance(each, str) for each in found] == [False, True, False]
        assert "secret content" not in caplog.text + str(found[1]), "a provider's refusal may quote it"
        with pytest.raises(InternalError):
            engine.embed_questions(["a forbidden question"])
