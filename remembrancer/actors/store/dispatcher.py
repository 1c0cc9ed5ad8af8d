"""Dispatches the store's messages: a table of handlers by request type, an error boundary, and a base class."""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Union, get_type_hints

import msgspec

from remembrancer.actors.store.committer import Committer, Readers
from remembrancer.actors.store.records.types import Vectors
from remembrancer.actors.store.spaces import HomeSpaces
from remembrancer.actors.store.vectors.embedding_scheduler import EmbeddingScheduler
from remembrancer.actors.store.vectors.vector_spaces import VectorSpaces
from remembrancer.config.settings import Settings
from remembrancer.protocol.errors import InternalError, MemoryUnavailable, RemembrancerError
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.sockets import Peer, Router
from remembrancer.protocol.wire import Envelope, Notice

ANSWER_MARGIN_S: Final = 0.2
"""The part of a time limit reserved for sending the answer."""
DEFAULT_DEADLINE_S: Final = 10.0
QUERY_VECTOR_SHARE: Final = 0.5
"""The fraction of a read's budget spent waiting for the query's vector. After that, only words are searched."""
logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class RequestContext:
    envelope: Envelope
    notices: list[Notice] = field(default_factory=list)

    def remaining_s(self, margin_s: float = ANSWER_MARGIN_S) -> float:
        remaining_s = self.envelope.remaining_s
        return DEFAULT_DEADLINE_S if remaining_s == math.inf else max(0.0, remaining_s - margin_s)


Handler = Callable[[Any, RequestContext], Coroutine[Any, Any, Any]]


def by_request(*handlers: Callable[..., Any]) -> dict[type, Callable[..., Any]]:
    """Return the handlers by the type of their first parameter, the request."""
    return {next(iter(get_type_hints(each).values())): each for each in handlers}


Listener = Callable[[Peer, Any], None]


class Dispatcher:
    """The store's handlers and listeners. `hear` gets every message first, `answered` each request after its answer."""

    def __init__(self, hear: Listener, answered: Listener, listeners: Mapping[type, Listener]) -> None:
        self.tasks = asyncio.TaskGroup()  # three times as fast as anyio's, for the most frequent tasks
        self._hear = hear
        self._answered = answered
        self._handlers: dict[type, Handler] = {}
        self._listeners = listeners
        self.router: Router[Any]
        self.draining = False
        """Set before a stop. From then on, requests are refused; clients may queue them."""

    def register(self, handlers: Mapping[type, Handler]) -> None:
        assert self._handlers.keys().isdisjoint(handlers), f"two handlers for one of {list(handlers)}"
        self._handlers.update(handlers)

    def decoder(self) -> msgspec.msgpack.Decoder[Any]:
        return msgspec.msgpack.Decoder(Union[(*self._handlers, *self._listeners)])

    def take(self, peer: Peer, envelope: Envelope, message: Any) -> None:
        self._hear(peer, message)
        if (listener := self._listeners.get(type(message))) is not None:
            listener(peer, message)
        else:
            self.tasks.create_task(self._answer(peer, message, RequestContext(envelope)))

    async def _answer(self, peer: Peer, request: Any, context: RequestContext) -> None:
        """Answer a request. Only here do the errors of requests become messages."""
        router, message_id = self.router, context.envelope.message_id
        try:
            if self.draining:
                raise MemoryUnavailable("the store is stopping")
            reply = await self._handlers[type(request)](request, context)
            router.send(peer, reply, in_reply_to=message_id, notices=context.notices)
        except RemembrancerError as error:
            router.send(peer, error.to_failure(), in_reply_to=message_id)
        except Exception:
            logger.exception("a request failed", extra={"request": type(request).__name__})
            failure = InternalError("the store failed on this request; see store.log")
            router.send(peer, failure.to_failure(), in_reply_to=message_id)
        finally:
            self._answered(peer, request)


class StoreParts(NamedTuple):
    paths: RuntimePaths
    settings: Settings
    files: HomeSpaces
    committer: Committer
    vectors: VectorSpaces
    scheduler: EmbeddingScheduler
    readers: Readers


class Handlers:
    """Handlers for requests on one subject. They belong to one event loop, and their reads run on `readers`."""

    def __init__(self, parts: StoreParts) -> None:
        self._paths, self._settings, self._files, self._committer = parts[:4]
        self._vectors, self._scheduler, self._readers = parts[4:]

    def embed_within(self, context: RequestContext, model: str | None) -> Callable[[str], Awaitable[Vectors]]:
        """Return a function that embeds a query with that model in time for the answer."""
        timeout_s = min(QUERY_VECTOR_SHARE * self._settings.read_budget_s, context.remaining_s(0.0) * 0.6)
        answer_by = time.monotonic() + timeout_s  # one limit for all calls

        async def embed(text: str) -> Vectors:
            return await self._scheduler.embed_query(text, max(0.0, answer_by - time.monotonic()), model)

        return embed
