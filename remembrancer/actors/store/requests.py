"""Dispatches what the store is told: one table from a request's type to its handler, and one error boundary."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from remembrancer.protocol.errors import InternalError, MemoryUnavailable, RemembrancerError
from remembrancer.protocol.sockets import Peer, Router
from remembrancer.protocol.tracing import Traces, current, working_on
from remembrancer.protocol.wire import Envelope, ToStore

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class RequestContext:
    """One request: who asked, until when, and the way back."""

    router: Router[ToStore]
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
        self.router.refuse(self.peer, error.to_failure(), in_reply_to=self.envelope.message_id)


Handler = Callable[[Any, RequestContext], Coroutine[Any, Any, Any] | None]
"""Usually `async def (request, context) -> reply`, run in a task of its own; a reply of None is not sent. A plain
function may answer through the context itself and return None, which spares the task."""
Listener = Callable[[Peer, Any], None]
"""Takes a message that wants no answer."""


class Dispatcher:
    """The store's table of handlers. `spawn` starts a task; `hear` is shown every message before it is dispatched."""

    def __init__(
        self,
        spawn: Callable[[Callable[..., Coroutine[Any, Any, None]], Any, RequestContext, str], object],
        traces: Traces,
        hear: Listener,
    ) -> None:
        self._spawn = spawn
        self._traces = traces
        self._hear = hear
        self._handlers: dict[type, Handler] = {}
        self._listeners: dict[type, Listener] = {}
        self.router: Router[ToStore]
        self.draining = False
        """Set before a stop: requests are refused from then on, and can be queued."""

    def register(self, handlers: Mapping[type, Handler]) -> None:
        """Add handlers of requests. Two for one type are a mistake in the program."""
        assert self._handlers.keys().isdisjoint(handlers), f"two handlers for one of {list(handlers)}"
        self._handlers.update(handlers)

    def listen(self, listeners: Mapping[type, Listener]) -> None:
        """Add listeners for messages that want no answer."""
        assert self._listeners.keys().isdisjoint(listeners), f"two listeners for one of {list(listeners)}"
        self._listeners.update(listeners)

    def take(self, peer: Peer, envelope: Envelope, message: ToStore) -> None:
        """Dispatch a message, within its trace if it has one."""
        if not envelope.trace:
            self._take(peer, envelope, message)
            return
        with working_on(self._traces.follow(envelope.trace, type(message).__name__)) as trace:
            trace.mark("question received")
            self._take(peer, envelope, message)

    def _take(self, peer: Peer, envelope: Envelope, message: ToStore) -> None:
        self._hear(peer, message)
        kind = type(message)
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
                self._spawn(_answer, work, context, kind.__name__)


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
