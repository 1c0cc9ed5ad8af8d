"""The client of the store, for all who ask it: requests with a deadline, and errors with all their fields."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

import anyio

from remembrancer.protocol.errors import (
    DeadlineExceeded,
    Failure,
    InternalError,
    MemoryUnavailable,
    PeerLost,
    PeerUnavailable,
    QueueFull,
    RemembrancerError,
    from_failure,
)
from remembrancer.protocol.reads import Refused
from remembrancer.protocol.sockets import Dealer

AWAY: Final = (PeerUnavailable, PeerLost, DeadlineExceeded, MemoryUnavailable)
"""What a request ends with when the store is not there for it. All may be tried again."""
RETRY_S: Final = 0.05
"""How long to wait between two attempts of a patient request."""
NEWS_RETRY_S: Final = 0.2
ANSWER_S: Final = 30.0
"""How long one question of `ask` may take: a page of vectors, hundreds of edits or chunks behind other writes."""

In = TypeVar("In")
T = TypeVar("T")
logger = logging.getLogger(__name__)


class StoreAway(MemoryUnavailable):
    """The store was away for all the time that a patient request may take."""


class StoreClient(Dealer[In]):
    """A connection to the store. The decoder says which answers its socket gives."""

    away_s = 60.0
    """How long the store may be away for a question of `ask`."""

    async def exchange(self, body: Any, timeout_s: float) -> In | RemembrancerError:
        """Ask once; returns the answer, or the error with which the store refuses the request.

        Raises:
            PeerUnavailable, PeerLost, DeadlineExceeded: the store did not answer.
        """
        reply = await super().request(body, timeout_s=timeout_s)
        if isinstance(reply, Refused):
            return from_failure(Failure(reply.code, reply.message, reply.retry_possible, reply.field, reply.details))
        return reply

    async def request(self, body: Any, *, timeout_s: float) -> In:
        """Ask once.

        Raises:
            PeerUnavailable, PeerLost, DeadlineExceeded, MemoryUnavailable: see `AWAY`.
            RemembrancerError: the store refuses the request, with its reason.
        """
        answer = await self.exchange(body, timeout_s)
        if isinstance(answer, RemembrancerError):
            raise answer
        return answer

    async def request_patiently(
        self, body: Any, timeout_s: float, *, away_s: float, on_wait: Callable[[], None] | None = None
    ) -> In:
        """Ask, and ask again whenever the store was away, for at most `away_s`. It has to bear being asked twice.

        `on_wait` is called again and again while there is no connection.

        Raises:
            StoreAway: the store was away for all that time.
            RemembrancerError: the store refuses the request, or `on_wait` has given up.
        """
        give_up_at = time.monotonic() + away_s
        while True:
            wait_s = max(RETRY_S, give_up_at - time.monotonic()) if on_wait is None else RETRY_S
            if await self.wait_connected(wait_s):
                try:
                    return await self.request(body, timeout_s=timeout_s)
                except (*AWAY, QueueFull) as error:
                    why = error.message
                    await anyio.sleep(RETRY_S)
            else:
                why = "nothing listens"
                if on_wait is not None:
                    on_wait()
            if time.monotonic() >= give_up_at:
                raise StoreAway(f"the store was away for {away_s:.0f} s ({why})")

    async def ask(self, question: object, kind: type[T]) -> T:
        """The answer to a question, which is of that type. Raises as `request_patiently`."""
        return checked(question, await self.request_patiently(question, ANSWER_S, away_s=self.away_s), kind)

    async def await_news(self, question: Callable[[], object], timeout_s: float, *kinds: type[T]) -> T:
        """The answer to a question that stays open for up to `timeout_s`. Made anew when the store was away."""
        while True:
            if await self.wait_connected(timeout_s):
                body = question()
                try:
                    return checked(body, await self.request(body, timeout_s=timeout_s), *kinds)
                except (*AWAY, QueueFull) as error:
                    logger.debug("no news", extra={"question": type(body).__name__, "code": error.code})
                    await anyio.sleep(NEWS_RETRY_S)

    def tell(self, body: object) -> None:
        """Send what wants no answer. A store that is away does not hear it."""
        try:
            self.send(body)
        except PeerUnavailable:
            logger.info("the store was not told", extra={"message": type(body).__name__})


def checked(body: object, answer: object, *kinds: type[T]) -> T:
    """An answer that has to be of one of these types. Raises `InternalError`: it is of another."""
    if not isinstance(answer, kinds):
        raise InternalError(f"the store answered {type(body).__name__} with {type(answer).__name__}")
    return answer
