"""Engines behind HTTP: Voyage AI, and any server with OpenAI's API (Ollama, LM Studio, vLLM, TEI). If a provider fails,
its engine is unusable for a while; if it fails on one text, only that text is affected."""

import math
import os
import random
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, NamedTuple

import httpx
import msgspec
import numpy as np

from remembrancer.actors.embedder.engine import Engine, Vectors, default_tokenizer, unit_rows
from remembrancer.config.settings import Settings, key_variable
from remembrancer.protocol.errors import InternalError, ModelUnusable
from remembrancer.protocol.work import ModelChoice, ModelIdentity

ATTEMPTS: Final = 4
"""The number of attempts for passages. A question gets one, since a fallback or keyword search is faster."""
LONGEST_WAIT_S: Final = 20.0
"""If a provider asks for a longer pause, it is not used for a while."""
QUESTION_TIMEOUT_S: Final = 3.0
PASSAGES_TIMEOUT_S: Final = 30.0
CONNECT_TIMEOUT_S: Final = 5.0
MOST_TEXTS: Final = 128
"""Every provider accepts this many texts in one request."""
WINDOW_TOKENS: Final = 512
"""For questions, and for passages of providers' own models. These models can read thousands of tokens but are made for
paragraphs of this length. Shorter passages would mean more vectors, each three times as wide as a small model's."""
PROBE: Final = "."
FAULTS_OF_TEXTS: Final = frozenset({400, 413, 422})
PASSING: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
REASON_CHARACTERS: Final = 200


class _Item(msgspec.Struct):
    embedding: list[float]
    index: int


class _Answer(msgspec.Struct):
    data: list[_Item]


_decode_answer: Final = msgspec.json.Decoder(_Answer).decode


class Provider(NamedTuple):
    """The differences between the APIs. `dimensions` are requested from the provider's own models."""

    name: str
    model: str
    dimensions: int
    own_models: str
    """The prefix of the names of the provider's own models. Others (of Ollama, TEI …) count as small models."""
    kinds: tuple[str, str] | None
    """The API's names for a passage and a question, if it distinguishes between them."""

    def body(self, model: str, texts: Sequence[str], *, is_question: bool) -> dict[str, Any]:
        body: dict[str, Any] = {"model": model, "input": list(texts)}
        if self.kinds is None:
            return {**body, "encoding_format": "float"}
        body["input_type"] = self.kinds[is_question]
        return {**body, "output_dimension": self.dimensions} if model == self.model else body


PROVIDERS: Final = {
    "voyage": Provider("voyage", "voyage-3-large", 1024, "voyage-", ("document", "query")),
    "openai": Provider("openai", "text-embedding-3-small", 1536, "text-embedding-", None),
}


class _BadAnswer(Exception):
    """An invalid answer, or a refusal, that a text in the request may have caused."""


class ProviderEngine(Engine):
    """Its threads do not run a model but wait for answers, as many at once as the settings allow."""

    def __init__(self, provider: Provider, model: str, url: str, key: str | None, settings: Settings) -> None:
        self._provider = provider
        self._model = model
        self._key = key or ""
        self._variable = key_variable(settings, provider.name)
        self._batch_tokens = settings.provider_batch_tokens
        self.batch_tokens = settings.provider_batch_tokens * settings.provider_requests
        self.tokenizer = default_tokenizer()
        self.passage_budget = WINDOW_TOKENS - self.tokenizer.marks
        if model.startswith(provider.own_models):
            self.passage_tokens = self.passage_budget
        self._threads = ThreadPoolExecutor(settings.provider_requests, "provider")
        self._not_before = 0.0
        self._client = httpx.Client(
            base_url=url.rstrip("/") + "/",
            headers={"Authorization": f"Bearer {key}"} if key else {},
            limits=httpx.Limits(max_connections=settings.provider_requests + 1),
        )
        name, dimensions = provider.name, provider.dimensions if model == provider.model else 0
        self.identity = ModelIdentity(name, model, name, "provider", dimensions, WINDOW_TOKENS)

    def check(self) -> None:
        """Raises `ModelUnusable` if the provider does not return a vector."""
        try:
            dimensions = self._ask([PROBE], QUESTION_TIMEOUT_S, is_question=True).shape[1]
        except _BadAnswer as error:
            raise ModelUnusable(str(error)) from None
        self.identity = msgspec.structs.replace(self.identity, dimensions=dimensions)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._client.close()

    def embed_questions(self, texts: Sequence[str]) -> Vectors:
        return self._ask_or_blame(texts, QUESTION_TIMEOUT_S, is_question=True)

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """Sends several requests of limited size at once, and retries after temporary failures."""
        return np.vstack(list(self._threads.map(self._embed_batch, self._batches(texts))))

    def _batches(self, texts: Sequence[str]) -> Iterator[list[str]]:
        batch: list[str] = []
        left = self._batch_tokens
        for text, tokens in zip(texts, self.tokenizer.count_tokens(texts), strict=True):
            if batch and (tokens > left or len(batch) == MOST_TEXTS):
                yield batch
                batch, left = [], self._batch_tokens
            batch.append(text)
            left -= tokens
        if batch:
            yield batch

    def _embed_batch(self, texts: list[str]) -> Vectors:
        for attempt in range(ATTEMPTS):
            while (pause_s := self._not_before - time.monotonic()) > 0:
                time.sleep(pause_s)
            try:
                return self._ask_or_blame(texts, PASSAGES_TIMEOUT_S)
            except _Passing as error:
                wait_s = error.wait_s if error.wait_s is not None else 0.5 * 2**attempt * random.uniform(0.8, 1.2)  # noqa: S311
                if attempt == ATTEMPTS - 1 or wait_s > LONGEST_WAIT_S:
                    raise
                # The limit belongs to the key, so it applies to all requests.
                self._not_before = max(self._not_before, time.monotonic() + wait_s)
        raise AssertionError("the last attempt returns or raises")

    def _ask_or_blame(self, texts: Sequence[str], timeout_s: float, *, is_question: bool = False) -> Vectors:
        """A bad answer is blamed on a text (`InternalError`) only if the provider works for a test text."""
        try:
            return self._ask(texts, timeout_s, is_question=is_question)
        except _BadAnswer as error:
            self.check()
            raise InternalError(str(error)) from None

    def _ask(self, texts: Sequence[str], timeout_s: float, *, is_question: bool = False) -> Vectors:
        """Raises `_BadAnswer` or `ModelUnusable`."""
        body = self._provider.body(self._model, texts, is_question=is_question)
        try:
            response = self._client.post(
                "embeddings", json=body, timeout=httpx.Timeout(timeout_s, connect=min(timeout_s, CONNECT_TIMEOUT_S))
            )
        except httpx.TimeoutException:
            raise ModelUnusable(f"{self._where} did not answer within {timeout_s:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise _Passing(f"{self._where} cannot be reached: {self._harmless(str(error))}", None) from None
        if response.status_code != 200:
            raise self._refusal(response)
        try:
            items = sorted(_decode_answer(response.content).data, key=lambda item: item.index)
            vectors = np.array([item.embedding for item in items], dtype=np.float32)
        except (ValueError, RecursionError):
            raise _BadAnswer(f"{self._where} returned no vectors") from None
        dimensions = self.identity.dimensions
        if len(items) != len(texts) or vectors.ndim != 2 or vectors.shape[1] != (dimensions or vectors.shape[1]):
            shape = "×".join(map(str, vectors.shape))
            expected = f"{len(texts)}×{dimensions or 'any'}"
            raise _BadAnswer(f"{self._where} returned {shape} numbers instead of {expected}")
        if not np.isfinite(vectors).all() or not np.linalg.norm(vectors, axis=1).all():
            raise _BadAnswer(f"{self._where} returned a vector that is zero or not finite")
        return unit_rows(vectors)

    @property
    def _where(self) -> str:
        return f"{self._client.base_url.host} ({self._provider.name})"

    def _refusal(self, response: httpx.Response) -> Exception:
        status = response.status_code
        if status in (401, 403):
            return ModelUnusable(f"{self._where} does not accept the key in {self._variable} ({status})")
        if status in FAULTS_OF_TEXTS:  # its message may quote the text
            return _BadAnswer(f"{self._where} rejected a text, or the model {self._model} ({status})")
        reason = f"{self._where} answered {status}: {self._harmless(response.text)}".rstrip(": ")
        if status not in PASSING:
            return ModelUnusable(reason)
        wait_s = _retry_after(response)
        if wait_s is not None:
            reason += f"; it can be retried in {wait_s:.0f} s"
        return _Passing(reason, wait_s)

    def _harmless(self, text: str) -> str:
        text = text.replace(self._key, "***") if self._key else text
        return " ".join(text.split())[:REASON_CHARACTERS]


class _Passing(ModelUnusable, code=ModelUnusable.code):
    """A failure after which a retry in `wait_s` (None: soon) may succeed."""

    def __init__(self, message: str, wait_s: float | None) -> None:
        super().__init__(message)
        self.wait_s = wait_s


def _retry_after(response: httpx.Response) -> float | None:
    """The pause in seconds that the provider asks for (RFC 9110, 10.2.3)."""
    with suppress(ValueError):
        seconds = float(response.headers.get("retry-after", ""))
        return max(0.0, seconds) if math.isfinite(seconds) else None
    return None


def load(choice: ModelChoice, settings: Settings, _: int) -> ProviderEngine:
    """Raises `ModelUnusable` if a test request fails."""
    url = settings.voyage_url if choice.engine == "voyage" else settings.openai_url
    variable = key_variable(settings, choice.engine)
    key = os.environ.get(variable.strip("${}"))
    if not key and url == getattr(Settings(), f"{choice.engine}_url"):
        raise ModelUnusable(f"{variable} is not set in the runtime's environment; set it, and restart the runtime")
    engine = ProviderEngine(PROVIDERS[choice.engine], choice.model, url, key, settings)
    engine.check()
    return engine
