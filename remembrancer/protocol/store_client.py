"""The client of the store, for all who ask it: requests with a deadline, errors with all their fields, and the
knowledge of whether the store answers at all."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from typing import Final, Literal, TypeVar

import anyio
import msgspec

from remembrancer.protocol.control import PeerFailed
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
from remembrancer.protocol.sockets import Dealer, Speaker
from remembrancer.protocol.tracing import current
from remembrancer.protocol.wire import Request
from remembrancer.protocol.writes import SubmitBatch

AWAY: Final = (PeerUnavailable, PeerLost, DeadlineExceeded, MemoryUnavailable)
"""The errors with which a request ends when the store is not there for it. All may be tried again."""
RETRY_S: Final = 0.05
"""The time to wait between two attempts of a patient request."""
NEWS_RETRY_S: Final = 0.2
ANSWER_S: Final = 30.0
"""The time that one question of `ask` may take: a page of vectors, hundreds of edits or chunks behind other writes."""
PAUSES_S: Final = (0.0, 1.0, 2.0, 4.0, 8.0)
"""Before each of the attempts in a row to reach a store that was lost."""
DEGRADED_PAUSE_S: Final = 30.0
"""Between attempts when those were in vain."""
PROBE_TIMEOUT_S: Final = 0.5

StoreState = Literal["connected", "reconnecting", "away", "degraded"]
T = TypeVar("T")
logger = logging.getLogger(__name__)


class StoreAway(MemoryUnavailable):
    """The store was away for all the time that a patient request may take."""


class StoreAvailability:
    """The state of the store as its client sees it. After one request without an answer in time the store is not
    usable, until it has answered another.

    `connected`: the store answers. `reconnecting`: there is no connection, or a new one has not been tried yet.
    `away`: it did not answer in time, or cannot be started. `degraded`: all attempts in a row were in vain.
    """

    def __init__(self) -> None:
        self.usable = False
        """True if the store answered when it was last asked."""
        self.has_answered = False
        """True if the store has ever answered this process."""
        self.attempts = 0
        """The number of attempts since the store was lost; 0 while it answers."""
        self.failure: PeerFailed | None = None
        """Set if the store cannot be started: nothing waits for it then."""
        self._is_silent = False
        self._since = time.monotonic()
        self._next_attempt_at = time.monotonic()
        self._answered_at = -math.inf

    @property
    def state(self) -> StoreState:
        """The state in a word."""
        if self.usable:
            return "connected"
        if self.attempts >= len(PAUSES_S):
            return "degraded"
        return "away" if self._is_silent or self.failure is not None else "reconnecting"

    @property
    def next_attempt_s(self) -> float | None:
        """In how many seconds it is tried again; None while it answers."""
        return None if self.usable else max(0.0, self._next_attempt_at - time.monotonic())

    @property
    def is_reconnecting(self) -> bool:
        """True if the attempts in a row that are to bring the store back are still being made."""
        return not self.usable and self.failure is None and self.attempts < len(PAUSES_S)

    @property
    def is_starting(self) -> bool:
        """True if the store has never answered yet, and is not known to fail."""
        return not self.has_answered and self.is_reconnecting

    @property
    def away_s(self) -> float:
        """For how long the store has not been usable, in seconds; 0 while it is."""
        return 0.0 if self.usable else time.monotonic() - self._since

    def explain_away(self) -> str:
        """Why the store is not usable, for a person."""
        if self.failure is not None:
            return f"the store cannot be started: {self.failure.message}"
        if self.state in ("away", "degraded"):
            return "the store does not answer"
        return "the store is starting" if not self.has_answered else "the store is being restarted"

    def has_answered_since(self, moment: float) -> bool:
        """True if an answer has come after a moment of the monotonic clock."""
        return self._answered_at >= moment

    def note_answer(self) -> bool:
        """The store has answered. True if that is news."""
        self._answered_at = time.monotonic()
        if self.usable:
            return False
        self.usable = self.has_answered = True
        self._is_silent = False
        self.attempts = 0
        self.failure = None
        logger.info("the store answers")
        return True

    def note_silence(self) -> None:
        """A request had no answer in time."""
        if self.usable:
            logger.info("the store does not answer")
            self._since = time.monotonic()
            self.attempts = 0
        self.usable = False
        self._is_silent = True

    def note_connection(self) -> None:
        """The connection came about, or broke: what was known of the store is old."""
        if self.usable:
            logger.info("the connection to the store broke")
            self._since = time.monotonic()
        self.usable = self._is_silent = False
        self.attempts = 0

    def plan_attempt(self) -> float:
        """The pause before the next attempt, in seconds."""
        pause_s = PAUSES_S[self.attempts] if self.attempts < len(PAUSES_S) else DEGRADED_PAUSE_S
        self._next_attempt_at = time.monotonic() + pause_s
        return pause_s

    def note_attempt(self) -> None:
        """The store is being tried."""
        self.attempts += 1


class StoreClient(Dealer[OthersWrote]):
    """A connection to the store."""

    away_s = 60.0
    """The time that the store may be away for a question of `ask`."""

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

    async def request(self, question: Request[T], timeout_s: float, *, is_long: bool = False) -> T:
        """Ask once. A request that takes `is_long` by its nature says nothing of the store when it is late.

        Raises:
            PeerUnavailable, PeerLost, DeadlineExceeded, MemoryUnavailable: see `AWAY`.
            RemembrancerError: the store refuses the request, with its reason.
        """
        asked_at = time.monotonic()
        trace = current()
        trace.mark("store to be asked")
        try:
            answer = await self.exchange(question, timeout_s=timeout_s)
            trace.mark("store's answer taken")
        except DeadlineExceeded:
            if not is_long and not self.health.has_answered_since(asked_at):  # else it is one file that is slow
                self.health.note_silence()
                self._announce()
            raise
        error = from_failure(answer) if isinstance(answer, Failure) else None
        if isinstance(error, MemoryUnavailable):
            self.health.note_silence()
            self._announce()
        elif self.health.note_answer():
            self._announce()
        if isinstance(answer, Failure):
            raise from_failure(answer)
        return answer

    async def run(self) -> None:
        """Keep the connection, and find out when the store answers again. Ends when it is cancelled."""
        async with self:
            while True:
                if self.health.usable:
                    await self._changed.wait()
                else:
                    await self._try()

    async def _try(self) -> None:
        """One attempt, when its time has come: an empty batch goes the way of every write, and changes nothing."""
        pause_s = self.health.plan_attempt()
        reconnected = self._reconnected
        if pause_s:
            with anyio.move_on_after(pause_s):
                await reconnected.wait()
            if reconnected.is_set() or self.health.usable:
                return
        self.health.note_attempt()
        if not self.connected:
            return
        try:
            await self.request(SubmitBatch(()), PROBE_TIMEOUT_S)
        except RemembrancerError as error:
            logger.debug("the store does not answer yet", extra={"code": error.code})

    async def wait_usable(self, timeout_s: float) -> bool:
        """Wait until the store answers; False when it has not after `timeout_s`, or cannot be started."""
        with anyio.move_on_after(timeout_s):
            while not self.health.usable and self.health.failure is None:
                await self._changed.wait()
        return self.health.usable

    async def wait_answering(self) -> None:
        """Wait until the store answers, however long that is."""
        while not self.health.usable:
            await self._changed.wait()

    def peer_failed(self, failure: PeerFailed) -> None:
        """The store cannot be started, and why. Nothing waits for it any more."""
        self.health.failure = failure
        self._announce()

    async def request_patiently(
        self, question: Request[T], timeout_s: float, *, away_s: float, on_wait: Callable[[], None] | None = None
    ) -> T:
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
                    return await self.request(question, timeout_s)
                except (*AWAY, QueueFull) as error:
                    why = error.message
                    await anyio.sleep(RETRY_S)
            else:
                why = "nothing listens"
                if on_wait is not None:
                    on_wait()
            if time.monotonic() >= give_up_at:
                raise StoreAway(f"the store was away for {away_s:.0f} s ({why})")

    async def ask(self, question: Request[T]) -> T:
        """The answer to a question. Raises as `request_patiently`."""
        return await self.request_patiently(question, ANSWER_S, away_s=self.away_s)

    async def await_news(self, question: Callable[[], Request[T]], timeout_s: float) -> T:
        """The answer to a question that stays open for up to `timeout_s`. Made anew when the store was away."""
        while True:
            if await self.wait_connected(timeout_s):
                body = question()
                try:
                    return await self.request(body, timeout_s)
                except (*AWAY, QueueFull) as error:
                    logger.debug("no news", extra={"question": type(body).__name__, "code": error.code})
                    await anyio.sleep(NEWS_RETRY_S)

    def tell(self, body: object) -> None:
        """Send what wants no answer. A store that is away does not hear it."""
        try:
            self.send(body)
        except PeerUnavailable:
            logger.info("the store was not told", extra={"message": type(body).__name__})

    def _take_event(self, frames: list[bytes]) -> None:
        super()._take_event(frames)
        self.health.note_connection()
        self._announce()
        self._reconnected.set()
        self._reconnected = anyio.Event()

    def _announce(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
