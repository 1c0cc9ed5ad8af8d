"""The client of the store for all processes: requests with a deadline, errors with all their fields, and the state of
the connection to the store."""

import logging
import math
import time
from collections.abc import Callable
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
    from_failure,
)
from remembrancer.protocol.sharing import OthersWrote
from remembrancer.protocol.sockets import Dealer, Reply, Speaker
from remembrancer.protocol.wire import Request
from remembrancer.protocol.writes import SubmitBatch

AWAY: Final = (PeerUnavailable, PeerLost, DeadlineExceeded, MemoryUnavailable)
"""The errors of a request while the store is unavailable. All can be retried."""
RETRY_S: Final = 0.05
ANSWER_S: Final = 30.0
"""The time limit of one attempt of `ask`, enough for a page of vectors, or hundreds of edits or chunks after other
writes."""
AWAY_S: Final = 120.0
"""The time that the store may be away during a job of the consolidator, before the job fails."""
PAUSES_S: Final = (0.0, 1.0, 2.0, 4.0, 8.0)
"""The pauses before the first attempts to reach a store that was lost."""
DEGRADED_PAUSE_S: Final = 30.0
"""The pause between attempts after those have failed."""
PROBE_TIMEOUT_S: Final = 0.5

StoreState = Literal["connected", "reconnecting", "away", "degraded"]
T = TypeVar("T")
logger = logging.getLogger(__name__)


class StoreAway(MemoryUnavailable, code=MemoryUnavailable.code):
    """The store was away for the whole time limit of a request of `ask`."""


class StoreAvailability:
    """The state of the store as its client sees it. After one request without an answer in time, the store counts as
    unusable until it answers another.

    `connected`: the store answers. `reconnecting`: there is no connection, or a new one has not been tried yet. `away`:
    it did not answer in time, or cannot be started. `degraded`: all first attempts failed.
    """

    def __init__(self) -> None:
        self.usable = False
        """True if the store answered the last request."""
        self.has_answered = False
        """True if the store has ever answered this process."""
        self.attempts = 0
        """The number of attempts since the store was lost; 0 while it answers."""
        self.failure: str | None = None
        """The reason if the store cannot be started: then nothing waits for it."""
        self._is_silent = False
        self._next_attempt_at = time.monotonic()
        self.answered_at = -math.inf
        """The moment of the last answer, on the monotonic clock."""

    @property
    def state(self) -> StoreState:
        if self.usable:
            return "connected"
        if self.attempts >= len(PAUSES_S):
            return "degraded"
        return "away" if self._is_silent or self.failure is not None else "reconnecting"

    @property
    def next_attempt_s(self) -> float | None:
        """The seconds until the next attempt; None while the store answers."""
        return None if self.usable else max(0.0, self._next_attempt_at - time.monotonic())

    @property
    def is_reconnecting(self) -> bool:
        """True while the first attempts to reach the store again are being made."""
        return not self.usable and self.failure is None and self.attempts < len(PAUSES_S)

    @property
    def is_starting(self) -> bool:
        """True if the store has never answered yet, and has not failed either."""
        return not self.has_answered and self.is_reconnecting

    def explain_absence(self) -> str:
        if self.failure is not None:
            return f"the store cannot be started: {self.failure}"
        if self.state in ("away", "degraded"):
            return "the store does not answer"
        return "the store is starting" if not self.has_answered else "the store is being restarted"

    def note_answer(self) -> bool:
        """Note that the store has answered. Returns True if it was unusable before."""
        self.answered_at = time.monotonic()
        if self.usable:
            return False
        self.usable = self.has_answered = True
        self._is_silent = False
        self.attempts = 0
        self.failure = None
        logger.info("the store answers")
        return True

    def note_silence(self) -> None:
        if self.usable:
            logger.info("the store does not answer")
            self.attempts = 0
        self.usable = False
        self._is_silent = True

    def note_connection(self) -> None:
        """Note that the connection was made or lost: the known state is out of date."""
        if self.usable:
            logger.info("the connection to the store broke")
        self.usable = self._is_silent = False
        self.attempts = 0

    def plan_attempt(self) -> float:
        """The pause before the next attempt, in seconds."""
        pause_s = PAUSES_S[self.attempts] if self.attempts < len(PAUSES_S) else DEGRADED_PAUSE_S
        self._next_attempt_at = time.monotonic() + pause_s
        return pause_s


class StoreClient(Dealer[OthersWrote]):
    def __init__(
        self,
        endpoint: str,
        speaker: Speaker,
        *,
        on_connection: Callable[[bool], None] | None = None,
        on_message: Callable[[OthersWrote], None] | None = None,
    ) -> None:
        decoder = msgspec.msgpack.Decoder(OthersWrote)
        super().__init__(endpoint, speaker, decoder, on_connection=on_connection, on_message=on_message)
        self.health = StoreAvailability()
        self._changed = anyio.Event()
        self._reconnected = anyio.Event()

    async def request(self, question: Request[T], timeout_s: float) -> T:
        """Ask once. Raises the errors of `fetch`."""
        return (await self.fetch(question, timeout_s)).body

    async def fetch(self, question: Request[T], timeout_s: float, *, is_long: bool = False) -> Reply[T]:
        """Ask once. A request that is slow by nature (`is_long`) does not change the store's state when it is late.

        Raises:
            PeerUnavailable, PeerLost, DeadlineExceeded, MemoryUnavailable: see `AWAY`.
            RemembrancerError: the store refuses the request, with its reason.
        """
        asked_at = time.monotonic()
        try:
            reply = await self.exchange(question, timeout_s=timeout_s)
        except DeadlineExceeded:
            if not is_long and self.health.answered_at < asked_at:  # else one file is slow
                self._note_silence()
            raise
        body = reply.body
        if isinstance(body, Failure) and body.code == MemoryUnavailable.code:
            self._note_silence()
        elif self.health.note_answer():
            self._announce()
        if isinstance(body, Failure):
            raise from_failure(body)
        return Reply(body, reply.size_bytes, reply.notices)

    def _note_silence(self) -> None:
        self.health.note_silence()
        self._announce()

    async def run(self) -> None:
        """Keep the connection, and detect when the store answers again. Runs until cancelled."""
        async with self:
            while True:
                if self.health.usable:
                    await self._changed.wait()
                else:
                    await self._try()

    async def _try(self) -> None:
        """Make one attempt when it is due: an empty batch takes the path of every write, and changes nothing."""
        pause_s = self.health.plan_attempt()
        reconnected = self._reconnected
        if pause_s:
            with anyio.move_on_after(pause_s):
                await reconnected.wait()
            if reconnected.is_set() or self.health.usable:
                return
        self.health.attempts += 1
        if not self.connected:
            return
        try:
            await self.request(SubmitBatch(()), PROBE_TIMEOUT_S)
        except RemembrancerError as error:
            logger.debug("the store does not answer yet", extra={"code": error.code})

    async def wait_usable(self, timeout_s: float) -> bool:
        """Wait until the store answers. Returns False after `timeout_s`, or if the store cannot be started."""
        with anyio.move_on_after(timeout_s):
            while not self.health.usable and self.health.failure is None:
                await self._changed.wait()
        return self.health.usable

    def store_failed(self, why: str) -> None:
        """Note that the store cannot be started, and why. From then on, nothing waits for it."""
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
        """The answer to a request, which is repeated whenever the store was away, for at most `away_s`, so it must be
        safe to repeat. One attempt may take `answer_s`.

        `on_wait` is called repeatedly while there is no connection.

        Raises:
            StoreAway: the store was away for all that time.
            RemembrancerError: the store refuses the request, or `on_wait` has given up.
        """
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
                raise StoreAway(f"the store was away for {away_s:.0f} s ({why})")

    def _take_event(self, frames: list[bytes]) -> None:
        super()._take_event(frames)
        self.health.note_connection()
        self._announce()
        self._reconnected.set()
        self._reconnected = anyio.Event()

    def _announce(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
