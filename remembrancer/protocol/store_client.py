"""The store client of all processes: requests with a deadline, and the state of the connection to the store."""

import logging
import math
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Literal, TypeVar

import anyio
import msgspec

from remembrancer.protocol.errors import (
    DeadlineExceeded,
    Failure,
    MemoryUnavailable,
    PeerLost,
    PeerUnavailable,
    QueueFull,
    RemembrancerError,
)
from remembrancer.protocol.sharing import OthersWrote
from remembrancer.protocol.sockets import Dealer, Reply, Speaker, unless_refused
from remembrancer.protocol.wire import Request
from remembrancer.protocol.writes import SubmitBatch

AWAY: Final = (PeerUnavailable, PeerLost, DeadlineExceeded, MemoryUnavailable)
"""The errors that a request raises while the store is unavailable. The request can be retried."""
RETRY_S: Final = 0.05
ANSWER_S: Final = 30.0
"""The time limit for one attempt by `ask`: enough for a page of vectors, or for hundreds of edits."""
AWAY_S: Final = 120.0
"""The time for which the store may be unavailable before a job of the consolidator fails."""
PROBE_S: Final = 1.0
PROBE_TIMEOUT_S: Final = 0.5
DEGRADED_S: Final = 15.0
"""Nothing waits for a store that has been unavailable for longer than this."""

StoreState = Literal["connected", "reconnecting", "away", "degraded"]
T = TypeVar("T")
logger = logging.getLogger(__name__)


class StoreAway(MemoryUnavailable, code=MemoryUnavailable.code):
    """The store was unavailable for as long as `ask` may wait."""


class StoreAvailability:
    """The state of the store as its client sees it. `connected`: the store answers. `reconnecting`: there is no
    connection, or a new one has not been tried yet. `away`: the store did not answer the last request in time, or
    cannot be started. `degraded`: unusable for `DEGRADED_S`."""

    def __init__(self) -> None:
        self.usable = False
        """True if the store answered the last request."""
        self.has_answered = False
        """True if the store has ever answered this process."""
        self.failure: str | None = None
        """The reason why the store cannot be started (then nothing waits for it), or None."""
        self._is_silent = False
        self.lost_at = time.monotonic()
        """The time at which it became unusable or, if later, at which the connection last changed."""
        self.answered_at = -math.inf

    @property
    def state(self) -> StoreState:
        if self.usable:
            return "connected"
        if time.monotonic() - self.lost_at >= DEGRADED_S:
            return "degraded"
        return "away" if self._is_silent or self.failure is not None else "reconnecting"

    @property
    def is_reconnecting(self) -> bool:
        """True if the store may come back in a moment."""
        return self.failure is None and self.state in ("reconnecting", "away")

    def explain_absence(self) -> str:
        if self.failure is not None:
            return f"the store cannot be started: {self.failure}"
        if self.state in ("away", "degraded"):
            return "the store does not answer"
        return "the store is starting" if not self.has_answered else "the store is being restarted"

    def note_answer(self) -> bool:
        """Record that the store has answered. Returns True if it was unusable before."""
        self.answered_at = time.monotonic()
        if self.usable:
            return False
        self.usable = self.has_answered = True
        self._is_silent = False
        self.failure = None
        logger.info("the store answers")
        return True

    def note_silence(self) -> bool:
        """Record that the store has not answered. Returns True if it was usable before."""
        was_usable, self.usable, self._is_silent = self.usable, False, True
        if was_usable:
            logger.info("the store does not answer")
            self.lost_at = time.monotonic()
        return was_usable

    def note_connection(self) -> None:
        if self.usable:
            logger.info("the connection to the store broke")
        self.usable = self._is_silent = False
        self.lost_at = time.monotonic()


class StoreClient(Dealer[OthersWrote]):
    def __init__(
        self,
        endpoint: str,
        speaker: Speaker,
        *,
        on_connection: Callable[[bool], None] = lambda is_up: None,
        on_message: Callable[[OthersWrote], None] = lambda body: None,
    ) -> None:
        decoder = msgspec.msgpack.Decoder(OthersWrote)
        super().__init__(endpoint, speaker, decoder, on_connection=on_connection, on_message=on_message)
        self.health = StoreAvailability()
        self._changed = anyio.Event()

    async def request(self, question: Request[T], timeout_s: float) -> T:
        return (await self.fetch(question, timeout_s)).body

    async def fetch(self, question: Request[T], timeout_s: float) -> Reply[T]:
        """Ask once, and record whether the store answers. Raises the errors in `AWAY`, and the store's refusal."""
        asked_at = time.monotonic()
        try:
            reply = await self.exchange(question, timeout_s=timeout_s)
        except DeadlineExceeded:
            if self.health.answered_at < asked_at:  # otherwise only this request is slow
                self._note_silence()
            raise
        body = reply.body
        if isinstance(body, Failure) and body.code == MemoryUnavailable.code:
            self._note_silence()
        elif self.health.note_answer():
            self._announce()
        return Reply(unless_refused(body), reply.notices)

    def _note_silence(self) -> None:
        if self.health.note_silence():
            self._announce()

    async def run(self) -> None:
        """Keep the connection open, and detect when the store answers again. Runs until cancelled."""
        async with self:
            while True:
                changed = self._changed
                if self.connected and not self.health.usable:
                    with suppress(RemembrancerError):  # an empty batch takes the same path as every write
                        await self.request(SubmitBatch(()), PROBE_TIMEOUT_S)
                with anyio.move_on_after(None if self.health.usable else PROBE_S):
                    await changed.wait()

    async def wait_usable(self, timeout_s: float) -> bool:
        """Wait until the store answers. Returns False after `timeout_s`, or if the store cannot be started."""
        with anyio.move_on_after(timeout_s):
            while not self.health.usable and self.health.failure is None:
                await self._changed.wait()
        return self.health.usable

    def store_failed(self, why: str) -> None:
        """Record that the store cannot be started. From then on, nothing waits for it."""
        self.health.failure = why
        self._announce()

    async def ask(
        self,
        question: Request[T],
        answer_s: float = ANSWER_S,
        *,
        away_s: float = AWAY_S,
        on_wait: Callable[[], None] | None = None,
    ) -> T:
        """Return the answer to a request that is safe to repeat. It is repeated while the store is unavailable, for at
        most `away_s`; then this raises `StoreAway`. One attempt may take `answer_s`. `on_wait` is called repeatedly
        while there is no connection, and may raise an error to give up."""
        give_up_at = time.monotonic() + away_s
        while True:
            wait_s = max(RETRY_S, give_up_at - time.monotonic()) if on_wait is None else RETRY_S
            if await self.wait_connected(wait_s):
                try:
                    return await self.request(question, answer_s)
                except (*AWAY, QueueFull) as error:
                    why = error.message
                    await anyio.sleep(RETRY_S)
            else:
                why = "nothing listens"
                if on_wait is not None:
                    on_wait()
            if time.monotonic() >= give_up_at:
                raise StoreAway(f"the store was unavailable for {away_s:.0f} s ({why})")

    def _take_event(self, frames: list[bytes]) -> None:
        super()._take_event(frames)
        self.health.note_connection()
        self._announce()

    def _announce(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
