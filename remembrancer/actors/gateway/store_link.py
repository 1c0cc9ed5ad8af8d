"""The gateway's line to the store: requests with a deadline, and the knowledge of whether it answers at all.

After one request without an answer in time nothing waits for the store again, until a probe has had its answer.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from typing import Final, Literal

import anyio

from remembrancer.protocol.control import PeerFailed
from remembrancer.protocol.errors import (
    DeadlineExceeded,
    MemoryUnavailable,
    PeerUnavailable,
    RemembrancerError,
)
from remembrancer.protocol.sockets import Speaker
from remembrancer.protocol.store_client import StoreClient
from remembrancer.protocol.tracing import current
from remembrancer.protocol.wire import GatewayRequest, ToGateway, to_gateway
from remembrancer.protocol.writes import SubmitBatch

LinkState = Literal["connected", "reconnecting", "away", "degraded"]
PAUSES_S: Final = (0.0, 1.0, 2.0, 4.0, 8.0)
"""Before each of the attempts that are made in a row."""
DEGRADED_PAUSE_S: Final = 30.0
"""Between attempts when those were in vain."""


class LinkHealth:
    """`connected`: the store answers. `reconnecting`: there is no connection, or a new one has not been tried yet.
    `away`: it is connected and did not answer in time. `degraded`: all attempts in a row were in vain."""

    def __init__(self) -> None:
        self.has_answered = False
        """Whether the store has ever answered this process."""
        self.attempts = 0
        """How often the store has been tried since it was lost."""
        self.is_up = False
        """Whether the store answered when it was last asked."""
        self._is_silent = False

    @property
    def state(self) -> LinkState:
        """How the store is seen from here."""
        if self.is_up:
            return "connected"
        if self.attempts >= len(PAUSES_S):
            return "degraded"
        return "away" if self._is_silent else "reconnecting"

    def connection(self) -> None:
        """The connection came about, or broke: what was known of the store is old."""
        self.is_up = self._is_silent = False
        self.attempts = 0

    def answered(self) -> None:
        """The store has answered."""
        self.is_up = self.has_answered = True
        self._is_silent = False
        self.attempts = 0

    def silent(self) -> None:
        """A request had no answer in time."""
        if self.is_up:
            self.attempts = 0
        self.is_up = False
        self._is_silent = True

    def next_pause_s(self) -> float:
        """How long to wait before the next attempt."""
        return PAUSES_S[self.attempts] if self.attempts < len(PAUSES_S) else DEGRADED_PAUSE_S

    def attempt(self) -> None:
        """The store is being tried."""
        self.attempts += 1


PROBE_TIMEOUT_S: Final = 0.5

logger = logging.getLogger(__name__)


class StoreLink:
    """Use `run` as a task for as long as the link is wanted."""

    def __init__(self, endpoint: str, speaker: Speaker) -> None:
        self._health = LinkHealth()
        self._client: StoreClient[ToGateway] = StoreClient(
            endpoint, speaker, to_gateway, on_connection=self._connection_changed
        )
        self._changed = anyio.Event()
        self._reconnected = anyio.Event()
        self._next_attempt_at = time.monotonic()
        self._since = time.monotonic()
        self._failure: PeerFailed | None = None

    @property
    def state(self) -> LinkState:
        """How the store is seen from here."""
        state = self._health.state
        return "away" if self._failure is not None and state == "reconnecting" else state

    @property
    def usable(self) -> bool:
        """Whether the store answered when it was last asked."""
        return self._health.is_up

    @property
    def attempts(self) -> int:
        """How often the store has been tried since it was lost; 0 while it answers."""
        return self._health.attempts

    @property
    def next_attempt_s(self) -> float | None:
        """In how many seconds it is tried again; None while it answers."""
        return None if self.usable else max(0.0, self._next_attempt_at - time.monotonic())

    @property
    def is_reconnecting(self) -> bool:
        """Whether the attempts in a row that are to bring the store back are still being made."""
        return not self.usable and self._failure is None and self._health.state != "degraded"

    @property
    def has_answered(self) -> bool:
        """Whether the store has answered since this process started."""
        return self._health.has_answered

    @property
    def away_s(self) -> float:
        """For how long the store has not been usable, in seconds; 0 while it is."""
        return 0.0 if self.usable else time.monotonic() - self._since

    def explain_away(self) -> str:
        """Why the store is not usable, for a person."""
        if self._failure is not None:
            return f"the store cannot be started: {self._failure.message}"
        if self._health.state in ("away", "degraded"):
            return "the store does not answer"
        return "the store is starting" if not self.has_answered else "the store is being restarted"

    def peer_failed(self, failure: PeerFailed) -> None:
        """The store cannot be started, and why. Nothing waits for it any more."""
        self._failure = failure
        self._announce()

    async def run(self) -> None:
        """Keep the connection, and find out when the store answers again. Ends when it is cancelled."""
        async with self._client:
            while True:
                if self.usable:
                    await self._changed.wait()
                else:
                    await self._try()

    async def _try(self) -> None:
        """One attempt, when its time has come: an empty batch goes the way of every write, and changes nothing."""
        pause_s = self._health.next_pause_s()
        self._next_attempt_at = time.monotonic() + pause_s
        reconnected = self._reconnected
        if pause_s:
            with anyio.move_on_after(pause_s):
                await reconnected.wait()
            if reconnected.is_set() or self.usable:
                return
        self._health.attempt()
        if not self._client.connected:
            return
        try:
            await self.request(SubmitBatch(()), PROBE_TIMEOUT_S)
        except RemembrancerError as error:
            logger.debug("the store does not answer yet", extra={"code": error.code})

    async def request(self, body: GatewayRequest, timeout_s: float, *, is_long: bool = False) -> ToGateway:
        """Ask the store. What takes `is_long` by its nature says nothing of the store when it is not ready in time.

        Raises:
            PeerUnavailable, PeerLost, DeadlineExceeded, MemoryUnavailable: see `AWAY`.
            RemembrancerError: the store refuses the request, with its reason.
        """
        current().mark("store to be asked")
        try:
            answer = await self._client.exchange(body, timeout_s)
            current().mark("store's answer taken")
        except DeadlineExceeded:
            if not is_long:
                self._set_silent()
            raise
        if isinstance(answer, RemembrancerError):
            if isinstance(answer, MemoryUnavailable):
                self._set_silent()
            else:
                self._set_answered()
            raise answer
        self._set_answered()
        return answer

    async def tell(self, body: GatewayRequest) -> None:
        """Send what wants no answer, if the store is there; else it is dropped."""
        if self.usable:
            with suppress(PeerUnavailable):
                self._client.send(body)

    async def wait_usable(self, timeout_s: float) -> bool:
        """Wait until the store answers; False when it has not after `timeout_s`, or cannot be started."""
        with anyio.move_on_after(timeout_s):
            while not self.usable and self._failure is None:
                await self._changed.wait()
        return self.usable

    async def wait_answering(self) -> None:
        """Wait until the store answers, however long that is."""
        while not self.usable:
            await self._changed.wait()

    def _set_answered(self) -> None:
        if not self.usable:
            self._health.answered()
            self._failure = None
            logger.info("the store answers")
            self._announce()

    def _set_silent(self) -> None:
        if self.usable:
            logger.warning("the store does not answer")
            self._since = time.monotonic()
        self._health.silent()
        self._announce()

    def _connection_changed(self, _: bool) -> None:
        if self.usable:
            logger.warning("the connection to the store broke")
            self._since = time.monotonic()
        self._health.connection()
        self._reconnected.set()
        self._reconnected = anyio.Event()
        self._announce()

    def _announce(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
