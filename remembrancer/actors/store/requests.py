"""Dispatches what the store is told: one table from a request's type to its handler, and one error boundary.

The load gate says when background work may run beside that.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Union

import anyio
import msgspec

from remembrancer.protocol.errors import InternalError, MemoryUnavailable, RemembrancerError
from remembrancer.protocol.sockets import Peer, Router
from remembrancer.protocol.tracing import current, follow, working_on
from remembrancer.protocol.wire import Envelope

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class RequestContext:
    """One request: who asked, until when, and the way back."""

    router: Router[Any]
    peer: Peer
    envelope: Envelope
    undelivered: Callable[[], None] | None = None
    """A handler sets it to be told that its reply could not be sent."""

    def remaining_s(self, default_s: float, margin_s: float = 0.0) -> float:
        """Seconds until the deadline less `margin_s`; `default_s` for a request without a deadline."""
        remaining_s = self.envelope.remaining_s()
        return default_s if remaining_s is None else max(0.0, remaining_s - margin_s)

    def reply(self, body: Any) -> None:
        """Send the answer."""
        sent = self.router.send(self.peer, body, in_reply_to=self.envelope.message_id)
        if not sent and self.undelivered is not None:
            self.undelivered()

    def refuse(self, error: RemembrancerError) -> None:
        """Answer with an error."""
        self.router.refuse(self.peer, error, in_reply_to=self.envelope.message_id)


Handler = Callable[[Any, RequestContext], Coroutine[Any, Any, Any] | None]
"""Usually `async def (request, context) -> reply`, run in a task of its own; a reply of None is not sent. A plain
function may answer through the context itself and return None, which spares the task."""
Listener = Callable[[Peer, Any], None]
"""Takes a message that wants no answer."""


class Dispatcher:
    """The store's table of handlers; handlers run within `async with`. `hear` is shown every message before them."""

    def __init__(self, hear: Listener) -> None:
        self._tasks = asyncio.TaskGroup()  # a third of the time of anyio's, for the most frequent of all tasks
        self._hear = hear
        self._handlers: dict[type, Handler] = {}
        self._listeners: dict[type, Listener] = {}
        self.router: Router[Any]
        self.draining = False
        """Set before a stop: requests are refused from then on, and can be queued."""

    async def __aenter__(self) -> Dispatcher:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._tasks.__aexit__(*error)

    def register(self, handlers: Mapping[type, Handler]) -> None:
        """Add handlers of requests. Two for one type are a mistake in the program."""
        assert self._handlers.keys().isdisjoint(handlers), f"two handlers for one of {list(handlers)}"
        self._handlers.update(handlers)

    def listen(self, listeners: Mapping[type, Listener]) -> None:
        """Add listeners for messages that want no answer."""
        assert self._listeners.keys().isdisjoint(listeners), f"two listeners for one of {list(listeners)}"
        self._listeners.update(listeners)

    def decoder(self) -> msgspec.msgpack.Decoder[Any]:
        """The decoder of all that there is a handler or a listener for."""
        return msgspec.msgpack.Decoder(Union[(*self._handlers, *self._listeners)])

    def take(self, peer: Peer, envelope: Envelope, message: Any) -> None:
        """Dispatch a message, within its trace if it has one."""
        kind = type(message)
        with working_on(follow(envelope.trace, kind.__name__)) as trace:
            trace.mark("question received")
            self._hear(peer, message)
            if kind in self._listeners:
                self._listeners[kind](peer, message)
                return
            context = RequestContext(self.router, peer, envelope)
            try:
                if self.draining:
                    raise MemoryUnavailable("the store is stopping")
                work = self._handlers[kind](message, context)
            except Exception as error:  # noqa: BLE001 - the boundary, in `_refuse`
                _refuse(context, kind.__name__, error)
            else:
                if work is not None:
                    self._tasks.create_task(_answer(work, context, kind.__name__))


async def _answer(work: Coroutine[Any, Any, Any], context: RequestContext, name: str) -> None:
    try:
        reply = await work
    except Exception as error:  # noqa: BLE001 - the boundary, in `_refuse`
        _refuse(context, name, error)
    else:
        current().end("answer ready")
        if reply is not None:
            context.reply(reply)


def _refuse(context: RequestContext, name: str, error: Exception) -> None:
    """The one place where an error of a request becomes a message."""
    if not isinstance(error, RemembrancerError):
        logger.error("a request failed", exc_info=error, extra={"request": name})
        error = InternalError("the store failed on this request: see store.log")
    current().end("refusal ready")
    context.refuse(error)


BURST_S: Final = 0.03
"""After so long without a request, clients are not in the middle of a burst: embedding may go on."""
IDLE_S: Final = 0.3
"""After so long without a request, nobody is at work: the index may be tidied, which takes longer at a time."""
LONGEST_HOLD_S: Final = 2.0
"""Embedding that has waited for so long goes on under load too, `JOBS_UNDER_LOAD` at a time."""
JOBS_UNDER_LOAD: Final = 16
"""About 50 ms of a worker's time."""
READING_S: Final = 0.3
"""So long after many chunks of files have come, more of them are on their way."""
ASIDE_S: Final = 0.2
"""The time that one question of the background's waits at most for clients to be served."""


class LoadGate:
    """The measure of the clients' load: embedding and indexing step back while they are served.

    Times are seconds of any clock that only goes forward.
    """

    def __init__(self) -> None:
        self._being_served = 0
        self._last_served_at = float("-inf")
        self._reading_until = float("-inf")

    def begin(self) -> None:
        """A client's request has come."""
        self._being_served += 1

    def end(self, now: float) -> None:
        """A client's request has been answered."""
        self._being_served -= 1
        self._last_served_at = now

    @contextmanager
    def serving(self) -> Iterator[None]:
        """While a client's request is being answered."""
        self.begin()
        try:
            yield
        finally:
            self.end(time.monotonic())

    def note_reading(self, now: float) -> None:
        """Many chunks of files have come: embedding leaves the processors to the reading of the others."""
        self._reading_until = now + READING_S

    def hold_s(self, now: float, waiting_since: float) -> float:
        """The seconds that embedding which has waited since `waiting_since` should still wait; 0: it may go on."""
        until = max(self._burst_ends_at(now), self._reading_until)
        return max(0.0, min(until, waiting_since + LONGEST_HOLD_S) - now)

    async def step_aside(self) -> None:
        """Wait a moment, while clients are being served: for what is asked by those for whom nobody waits."""
        give_up_at = time.monotonic() + ASIDE_S
        while (now := time.monotonic()) < min(give_up_at, self._burst_ends_at(now)):  # noqa: ASYNC110
            await anyio.sleep(min(give_up_at, self._burst_ends_at(now)) - now)

    def is_serving(self, now: float) -> bool:
        """True if clients are in the middle of a burst."""
        return now < self._burst_ends_at(now)

    def is_idle(self, now: float) -> bool:
        """True if nobody has been at work for a while."""
        return not self._being_served and now >= self._last_served_at + IDLE_S

    def _burst_ends_at(self, now: float) -> float:
        return (now if self._being_served else self._last_served_at) + BURST_S
