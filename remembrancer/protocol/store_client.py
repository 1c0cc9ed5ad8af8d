"""The client of the store, for all who ask it: requests with a deadline, and errors with all their fields."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Generic, TypeVar

import anyio
import msgspec

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
from remembrancer.protocol.sockets import Dealer, Speaker

AWAY: Final = (PeerUnavailable, PeerLost, DeadlineExceeded, MemoryUnavailable)
"""What a request ends with when the store is not there for it. All may be tried again."""
RETRY_S: Final = 0.05
"""How long to wait between two attempts of a patient request."""

In = TypeVar("In")
T = TypeVar("T")


class StoreAway(MemoryUnavailable):
    """The store was away for all the time that a patient request may take."""


class StoreClient(Generic[In]):
    """Use as an asynchronous context manager. `decoder` says which answers the store's socket gives.

    `on_connection` is called when the connection comes and goes; it must not block.
    """

    def __init__(
        self,
        endpoint: str,
        speaker: Speaker,
        decoder: msgspec.msgpack.Decoder[In],
        *,
        on_connection: Callable[[bool], None] | None = None,
    ) -> None:
        self._dealer: Dealer[In] = Dealer(endpoint, speaker, decoder, on_connection=on_connection)

    async def __aenter__(self) -> StoreClient[In]:
        await self._dealer.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._dealer.aclose()

    @property
    def connected(self) -> bool:
        """Whether there is a connection now."""
        return self._dealer.connected

    async def wait_connected(self, timeout_s: float) -> bool:
        """Wait for the connection; False when it has not come about in time."""
        return await self._dealer.wait_connected(timeout_s)

    def send(self, body: Any) -> None:
        """Send what wants no answer. Raises `PeerUnavailable` without a connection."""
        self._dealer.send(body)

    async def exchange(self, body: Any, timeout_s: float) -> In | RemembrancerError:
        """Ask once; returns the answer, or the error with which the store refuses the request.

        Raises:
            PeerUnavailable, PeerLost, DeadlineExceeded: the store did not answer.
        """
        reply = await self._dealer.request(body, timeout_s=timeout_s)
        if isinstance(reply, Refused):
            return from_failure(Failure(reply.code, reply.message, reply.retry_possible, reply.field, reply.details))
        return reply

    async def request(self, body: Any, timeout_s: float) -> In:
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
                    return await self.request(body, timeout_s)
                except (*AWAY, QueueFull) as error:
                    why = error.message
                    await anyio.sleep(RETRY_S)
            else:
                why = "nothing listens"
                if on_wait is not None:
                    on_wait()
            if time.monotonic() >= give_up_at:
                raise StoreAway(f"the store was away for {away_s:.0f} s ({why})")


def checked(body: object, answer: object, *kinds: type[T]) -> T:
    """An answer that has to be of one of these types.

    Raises:
        InternalError: it is of another.
    """
    if not isinstance(answer, kinds):
        raise InternalError(f"the store answered {type(body).__name__} with {type(answer).__name__}")
    return answer
