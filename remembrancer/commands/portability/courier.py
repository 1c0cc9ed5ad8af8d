"""Requests of a command to the store, with a runtime started when none is up, and patience when one goes away."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Final

import anyio

from remembrancer.actors.bridge.places import find_places
from remembrancer.actors.bridge.starter import Starter
from remembrancer.protocol.errors import (
    DeadlineExceeded,
    Failure,
    MemoryUnavailable,
    PeerLost,
    PeerUnavailable,
    from_failure,
)
from remembrancer.protocol.ids import new_ulid
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.reads import Refused
from remembrancer.protocol.sockets import Dealer, Speaker
from remembrancer.protocol.wire import GatewayRequest, ToGateway, to_gateway

BUDGET_S: Final = 30.0
"""How long the store may be away before a request is given up. A runtime starts in one second."""
ANSWER_S: Final = 10.0
LOOK_S: Final = 0.05
AWAY: Final = (PeerUnavailable, PeerLost, DeadlineExceeded, MemoryUnavailable)


class Courier:
    """Use as an asynchronous context manager. What it asks for has to bear being asked twice.

    The runtime that it starts goes down by itself, as any that a session has started.
    """

    def __init__(self, environ: Mapping[str, str] = os.environ, *, budget_s: float = BUDGET_S) -> None:
        places = find_places(environ)
        self._starter = Starter(places, environ)
        self._budget_s = budget_s
        self._stack = AsyncExitStack()
        self._logs = places.logs
        endpoint = RuntimePaths(Path(places.home)).store_endpoint
        self._dealer: Dealer[ToGateway] = Dealer(endpoint, Speaker("command", new_ulid()), to_gateway)

    async def __aenter__(self) -> Courier:
        await self._stack.enter_async_context(self._dealer)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._stack.aclose()
        self._starter.connected()  # gives back the lock under which it may be starting one

    async def request(self, body: GatewayRequest, *, answer_s: float = ANSWER_S) -> ToGateway:
        """The store's answer, which may come after it was away for a while. `answer_s`: how long its work may take.

        Raises:
            MemoryUnavailable: there is no store, and none came within the budget.
            RemembrancerError: the store refuses this, and says why.
        """
        give_up_at = time.monotonic() + self._budget_s
        while True:
            await self._connect(give_up_at)
            try:
                return await self._ask(body, answer_s)
            except AWAY as error:
                if time.monotonic() >= give_up_at:
                    raise self._gave_up(error.message) from error
                await anyio.sleep(LOOK_S)

    async def _connect(self, give_up_at: float) -> None:
        """Wait for the store; start a runtime if there is none."""
        while not await self._dealer.wait_connected(LOOK_S):
            now = time.monotonic()
            self._starter.tend(now)
            if self._starter.failure is not None:
                raise MemoryUnavailable(self._starter.failure)
            if now >= give_up_at:
                raise self._gave_up("nothing listens")
        self._starter.connected()

    async def _ask(self, body: GatewayRequest, answer_s: float) -> ToGateway:
        reply = await self._dealer.request(body, timeout_s=answer_s)
        if isinstance(reply, Refused):
            raise from_failure(Failure(reply.code, reply.message, reply.retry_possible, reply.field))
        return reply

    def _gave_up(self, why: str) -> MemoryUnavailable:
        return MemoryUnavailable(
            f"the store was away for {self._budget_s:.0f} s ({why}): look at {self._logs}, "
            "then run the command again: it goes on where it stopped"
        )
