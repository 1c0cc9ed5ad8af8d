"""A provider of embeddings on this machine: the HTTP of Voyage's and of OpenAI's API, well or badly behaved."""

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tests.patience import PATIENCE_S
from tests.ports import QuietHandler, serving

KEY = "sk-this-is-the-key-0123456789"
DIMENSIONS = {"voyage-3-large": 1024, "text-embedding-3-small": 1536}
DEFAULT_DIMENSIONS = 768
STOP_WORDS = frozenset(
    ["the", "a", "is", "are", "of", "on", "in", "by", "to", "and", "what", "which", "does", "when", "how", "often"]
)


def vector_of(text: str, dimensions: int) -> list[float]:
    """The sum of the words' own directions: texts that share words are near each other."""
    total = np.zeros(dimensions)
    for word in set(re.findall(r"\w+", text.lower())) - STOP_WORDS or {"?"}:
        seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8])
        total += np.random.default_rng(seed).standard_normal(dimensions)
    return [float(each) for each in total / np.linalg.norm(total)]


class Trouble:
    def __init__(self, status: int = 200, *, headers: dict[str, str] | None = None, vectors: str = "good") -> None:
        self.status = status
        self.headers = headers or {}
        self.vectors = vectors


WELL = Trouble()
HANGS = Trouble(0)


class FakeProvider:
    """Both APIs under one address. `requests` has all that came, `most_at_once` how many it had at the same time."""

    def __init__(self) -> None:
        self.trouble = WELL
        self.once: list[Trouble] = []
        """For one request each, before `trouble`."""
        self.requests: list[dict[str, Any]] = []
        self.keys: set[str | None] = set()
        self.most_at_once = 0
        self.gathers = 1
        """Requests are answered from when it has had so many at the same time."""
        self.refuses = "forbidden"
        """A word; requests with a text that holds it are answered with 400."""
        self._at_once = 0
        self._lock = threading.Condition()
        self.end = threading.Event()
        self.url = ""

    def answer(self, handler: QuietHandler) -> None:
        body = handler.asked()
        with self._lock:
            self.requests.append(body)
            self.keys.add(handler.headers["authorization"])
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
            trouble = self.once.pop(0) if self.once else self.trouble
            self._lock.notify_all()
            self._lock.wait_for(lambda: self.most_at_once >= self.gathers, PATIENCE_S)
            self._lock.wait_for(lambda: self.most_at_once > self.gathers, 0.05 if self.gathers > 1 else 0.0)
            self._at_once -= 1
        if trouble.status == 0:
            self.end.wait(60)
            handler.close_connection = True
            return
        status, said = trouble.status, self._said(body, trouble, handler.headers["authorization"] or "")
        if status == 200 and any(self.refuses in text for text in body["input"]):
            status, said = 400, {"error": {"message": f"no: {body['input']}", "type": "invalid_request_error"}}
        handler.reply(status, json.dumps(said).encode(), **trouble.headers)

    def _said(self, body: dict[str, Any], trouble: Trouble, key: str) -> dict[str, Any]:
        if trouble.status != 200:
            message = f"something is wrong with {key}"
            return {"detail": message} if "input_type" in body else {"error": {"message": message, "type": "error"}}
        dimensions = DIMENSIONS.get(body["model"], DEFAULT_DIMENSIONS)
        vectors = [vector_of(text, dimensions) for text in body["input"]]
        if trouble.vectors == "short":
            vectors = [vector[:-1] for vector in vectors]
        elif trouble.vectors == "nan":
            vectors = [[float("nan")] * dimensions for _ in vectors]
        data = [
            {"object": "embedding", "index": place, "embedding": vector}
            for place, vector in enumerate(vectors)
            if trouble.vectors != "none"
        ]
        return {"object": "list", "data": data[::-1], "model": body["model"], "usage": {"total_tokens": 1}}


@contextmanager
def fake_provider() -> Iterator[FakeProvider]:
    provider = FakeProvider()

    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            provider.answer(self)

    with serving(Handler) as address:
        provider.url = f"{address}/v1"
        try:
            yield provider
        finally:
            provider.end.set()
