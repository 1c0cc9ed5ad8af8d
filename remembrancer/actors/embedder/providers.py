"""Engines behind HTTP: Voyage AI, and whatever speaks OpenAI's API (Ollama, LM Studio, vLLM, TEI).

What is wrong with the provider (key, limits, silence, vectors) makes the engine unusable for a while, and is
said; what is wrong with one text concerns that text alone. The key is in the headers of requests and nowhere else.
"""

from __future__ import annotations

import email.utils
import math
import os
import random
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, Final, NamedTuple

import httpx
import msgspec
import numpy as np

from remembrancer.actors.embedder.engine import Vectors, default_tokenizer, unit_rows
from remembrancer.actors.embedder.passages import PASSAGE_TOKENS
from remembrancer.config.settings import Settings, key_variable
from remembrancer.protocol.errors import InternalError, ModelUnusable
from remembrancer.protocol.work import ModelChoice, ModelIdentity

ATTEMPTS: Final = 4
"""Of one request for passages. Questions have one: a fallback, or words, answer sooner than another attempt."""
LONGEST_WAIT_S: Final = 20.0
"""A provider that wants to be left alone for longer is given up for the time being."""
QUESTION_TIMEOUT_S: Final = 3.0
CONNECT_TIMEOUT_S: Final = 5.0
MOST_TEXTS: Final = 128
"""In one request: any provider takes as many."""
WINDOW_TOKENS: Final = 512
"""Of questions, and of the passages of providers' own models, which read thousands of tokens and were made for such
paragraphs: in shorter ones the same text costs more vectors, each three times as wide as a small model's."""
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
    """The differences between one API and the other. `dimensions` are those of its own model, which it is asked for."""

    name: str
    model: str
    dimensions: int
    own_models: str
    """The beginning of the names of its own models. Others (of Ollama, TEI …) are small ones, for all that we know."""
    kinds: tuple[str, str] | None
    """The API's names for a passage and a question, where it wants to know."""

    def body(self, model: str, texts: Sequence[str], *, is_question: bool) -> dict[str, Any]:
        """The request."""
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
    """An answer, or a refusal, that may be the fault of a text in the request."""


class ProviderEngine:
    """See `Engine`. Its threads hold no model: they wait for answers, so many at once as the settings allow."""

    def __init__(self, provider: Provider, model: str, url: str, key: str | None, settings: Settings) -> None:
        self._provider = provider
        self._model = model
        self._key = key or ""
        self._variable = key_variable(settings, provider.name)
        self._timeout_s = settings.provider_timeout_s
        self._batch_tokens = settings.provider_batch_tokens
        self.batch_tokens: int | None = settings.provider_batch_tokens * settings.provider_requests
        self.tokenizer = default_tokenizer()
        self.passage_budget = WINDOW_TOKENS - self.tokenizer.marks
        self.passage_tokens = self.passage_budget if model.startswith(provider.own_models) else PASSAGE_TOKENS
        self._threads = ThreadPoolExecutor(settings.provider_requests, "provider")
        self._limits = threading.Condition()
        self._not_before = 0.0
        self._client = httpx.Client(
            base_url=url.rstrip("/") + "/",
            headers={"Authorization": f"Bearer {key}"} if key else {},
            limits=httpx.Limits(max_connections=settings.provider_requests + 1),
        )
        self._dimensions = provider.dimensions if model == provider.model else 0

    @property
    def identity(self) -> ModelIdentity:
        name = self._provider.name
        return ModelIdentity(name, self._model, name, "provider", self._dimensions, WINDOW_TOKENS)

    def check(self) -> None:
        """Ask for a vector. Raises `ModelUnusable`: the provider does not give one now."""
        try:
            self._dimensions = self._ask([PROBE], QUESTION_TIMEOUT_S, is_question=True).shape[1]
        except _BadAnswer as error:
            raise ModelUnusable(str(error)) from None

    def close(self) -> None:
        """Let go of the connections. May be called twice."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._client.close()

    def embed_questions(self, texts: Sequence[str]) -> Vectors:
        """See `Engine`. Once, and not for long."""
        return self._told_apart(texts, lambda: self._ask(texts, QUESTION_TIMEOUT_S, is_question=True))

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """See `Engine`. In requests of so many tokens, several at once; what passes by is waited for."""
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
            self._wait_for_limit()
            try:
                return self._told_apart(texts, lambda: self._ask(texts, self._timeout_s))
            except _Passing as error:
                wait_s = error.wait_s if error.wait_s is not None else 0.5 * 2**attempt * random.uniform(0.8, 1.2)  # noqa: S311
                if attempt == ATTEMPTS - 1 or wait_s > LONGEST_WAIT_S:
                    raise
                with self._limits:  # for all requests: the limit is one of the key
                    self._not_before = max(self._not_before, time.monotonic() + wait_s)
        raise AssertionError("the last attempt returns or raises")

    def _wait_for_limit(self) -> None:
        with self._limits:
            while (wait_s := self._not_before - time.monotonic()) > 0:
                self._limits.wait(wait_s)

    def _told_apart(self, texts: Sequence[str], ask: Any) -> Vectors:
        """The vectors that `ask` returns. An answer that is no good is a text's fault only if the provider works
        without it.

        Raises:
            InternalError: one of the texts is at fault.
            ModelUnusable: the provider is.
        """
        try:
            vectors: Vectors = ask()
        except _BadAnswer as error:
            self.check()
            raise InternalError(str(error)) from None
        return vectors

    def _ask(self, texts: Sequence[str], timeout_s: float, *, is_question: bool = False) -> Vectors:
        """One request.

        Raises:
            _BadAnswer: the provider refuses the texts, or answers with what are no vectors of its model.
            ModelUnusable: it cannot be reached, or refuses everything now.
        """
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
            raise _BadAnswer(f"{self._where} answered with what are no vectors") from None
        if len(items) != len(texts) or vectors.ndim != 2 or vectors.shape[1] != (self._dimensions or vectors.shape[1]):
            shape = "×".join(map(str, vectors.shape))
            expected = f"{len(texts)}×{self._dimensions or 'any'}"
            raise _BadAnswer(f"{self._where} answered with {shape} numbers where {expected} were expected")
        if not np.isfinite(vectors).all() or not np.linalg.norm(vectors, axis=1).all():
            raise _BadAnswer(f"{self._where} answered with a vector that is not finite, or zero")
        return unit_rows(vectors)

    @property
    def _where(self) -> str:
        return f"{self._client.base_url.host} ({self._provider.name})"

    def _refusal(self, response: httpx.Response) -> Exception:
        status = response.status_code
        if status in (401, 403):
            return ModelUnusable(f"{self._where} does not accept the key in {self._variable} ({status})")
        if status in FAULTS_OF_TEXTS:  # what it says may quote the text
            return _BadAnswer(f"{self._where} refuses a text, or the model {self._model} ({status})")
        reason = f"{self._where} answered {status}: {self._harmless(_reason_in(response))}".rstrip(": ")
        if status not in PASSING:
            return ModelUnusable(reason)
        wait_s = _retry_after(response)
        if wait_s is not None:
            reason += f"; it wants to be asked again in {wait_s:.0f} s"
        return _Passing(reason, wait_s)

    def _harmless(self, text: str) -> str:
        text = text.replace(self._key, "***") if self._key else text
        return " ".join(text.split())[:REASON_CHARACTERS]


class _Passing(ModelUnusable):
    """A failure that another attempt after `wait_s` (None: soon) may mend."""

    def __init__(self, message: str, wait_s: float | None) -> None:
        super().__init__(message)
        self.wait_s = wait_s


def _reason_in(response: httpx.Response) -> str:
    """The reason that an answer gives: OpenAI's `error.message`, Voyage's `detail`."""
    try:
        said = response.json()
        error = said.get("error", said.get("detail", ""))
        return str(error.get("message", "") if isinstance(error, dict) else error)
    except (ValueError, AttributeError, RecursionError):
        return ""


def _retry_after(response: httpx.Response) -> float | None:
    """Seconds that the provider wants to be left alone for (RFC 9110, 10.2.3); None: it does not say."""
    given = response.headers.get("retry-after")
    if given is None:
        return None
    try:
        seconds = float(given)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(given).timestamp() - time.time()
        except (TypeError, ValueError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


def load_provider(choice: ModelChoice, settings: Settings) -> ProviderEngine:
    """The engine of a provider, which answers now. A process has one.

    Raises:
        ModelUnusable: its key is missing, or it does not answer as it should.
    """
    engine = _engine_of(choice, settings)
    engine.check()
    return engine


@cache
def _engine_of(choice: ModelChoice, settings: Settings) -> ProviderEngine:
    url = settings.voyage_url if choice.engine == "voyage" else settings.openai_url
    variable = key_variable(settings, choice.engine)
    key = os.environ.get(variable.strip("${}"))
    if not key and url == getattr(Settings(), f"{choice.engine}_url"):
        raise ModelUnusable(f"{variable} is not set where the runtime was started: set it, and start the runtime again")
    return ProviderEngine(PROVIDERS[choice.engine], choice.model, url, key, settings)
