"""The consolidator's connection to the store. Whatever is asked is asked again when the store was away."""

from __future__ import annotations

import logging
import time
from types import TracebackType
from typing import Final, TypeVar

import anyio

from remembrancer.protocol.consolidation import (
    AwaitDuty,
    Duty,
    DutyReport,
    DutySort,
    EntityEdges,
    FindNear,
    MemoriesRead,
    NearFound,
    NoDuty,
    ProjectsKnown,
    ReadEntityEdges,
    ReadMemories,
    ReadProjects,
    ReadSession,
    ReadUpkeep,
    SessionRead,
    Upkeep,
)
from remembrancer.protocol.errors import (
    DeadlineExceeded,
    Failure,
    InternalError,
    MemoryUnavailable,
    PeerLost,
    PeerUnavailable,
    QueueFull,
    from_failure,
)
from remembrancer.protocol.reads import Refused
from remembrancer.protocol.runs import Prune
from remembrancer.protocol.sockets import Dealer, Speaker
from remembrancer.protocol.wire import FromStoreToConsolidator, to_consolidator
from remembrancer.protocol.writes import Applied, Operation, ProjectRef, Submit

ANSWER_S: Final = 30.0
"""How long one question may take: a page of vectors, a run of hundreds of edits behind other writes."""
AWAY_S: Final = 120.0
"""How long the store may be away in the middle of a duty, until the duty is given up."""
POLL_S: Final = 10.0
"""How long a question for a duty stays open."""
RETRY_S: Final = 0.2
AWAY: Final = (PeerUnavailable, PeerLost, DeadlineExceeded, MemoryUnavailable, QueueFull)

T = TypeVar("T")
logger = logging.getLogger(__name__)


class StoreLink:
    """Use as an asynchronous context manager. Is a `StoreAccess`."""

    def __init__(self, endpoint: str, speaker: Speaker) -> None:
        self._dealer: Dealer[FromStoreToConsolidator] = Dealer(
            endpoint, speaker, to_consolidator, on_connection=self._on_connection
        )

    async def __aenter__(self) -> StoreLink:
        await self._dealer.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._dealer.aclose()

    async def await_duty(self, done: tuple[int, ...], sort: DutySort | None = None) -> Duty:
        """The next duty (of a sort), or `NoDuty` after a while. `done` has arrived when this returns.

        Waits for the store.
        """
        while True:
            await self._connected(None)
            try:
                return await self._ask(AwaitDuty(done, sort), _DUTY, POLL_S)
            except AWAY as error:
                logger.debug("no answer to the question for a duty", extra={"code": error.code})
                await anyio.sleep(RETRY_S)

    async def report(self, report: DutyReport) -> None:
        """Say what came of a duty. Lost with a store that dies: the next one knows nothing of the duty."""
        try:
            self._dealer.send(report)
        except PeerUnavailable:
            logger.info("a report was not sent", extra={"duty_id": report.duty_id})

    async def read_memories(self, request: ReadMemories) -> MemoriesRead:
        """See `StoreAccess`."""
        return await self._request(request, MemoriesRead)

    async def find_near(self, request: FindNear) -> NearFound:
        """See `StoreAccess`."""
        return await self._request(request, NearFound)

    async def read_edges(self, project: ProjectRef | None, after: int = 0) -> EntityEdges:
        """See `StoreAccess`."""
        return await self._request(ReadEntityEdges(project, after), EntityEdges)

    async def read_upkeep(
        self, project: ProjectRef | None, orphans_before: float, prune: Prune | None = None
    ) -> Upkeep:
        """See `StoreAccess`."""
        return await self._request(ReadUpkeep(project, orphans_before, prune), Upkeep)

    async def read_session(self, project: ProjectRef, session_id: str, turns: int = 50) -> SessionRead:
        """See `StoreAccess`."""
        return await self._request(ReadSession(project, session_id, turns), SessionRead)

    async def projects(self) -> tuple[ProjectRef, ...]:
        """See `StoreAccess`."""
        return (await self._request(ReadProjects(), ProjectsKnown)).projects

    async def submit(self, operation: Operation) -> Applied:
        """See `StoreAccess`."""
        return await self._request(Submit(operation), Applied)

    async def _request(self, body: object, kind: type[T]) -> T:
        give_up_at = time.monotonic() + AWAY_S
        while True:
            await self._connected(give_up_at)
            try:
                return await self._ask(body, (kind,), ANSWER_S)
            except AWAY as error:
                if time.monotonic() >= give_up_at:
                    raise MemoryUnavailable(f"the store was away for {AWAY_S:.0f} s: {error.message}") from error
                await anyio.sleep(RETRY_S)

    async def _ask(self, body: object, kinds: tuple[type[T], ...], timeout_s: float) -> T:
        answer = await self._dealer.request(body, timeout_s=timeout_s)
        if isinstance(answer, Refused):
            raise from_failure(Failure(answer.code, answer.message, answer.retry_possible, answer.field))
        if not isinstance(answer, kinds):
            raise InternalError(f"the store answered {type(body).__name__} with {type(answer).__name__}")
        return answer

    async def _connected(self, give_up_at: float | None) -> None:
        while not await self._dealer.wait_connected(POLL_S):
            if give_up_at is not None and time.monotonic() >= give_up_at:
                raise MemoryUnavailable(f"the store was away for {AWAY_S:.0f} s")

    def _on_connection(self, up: bool) -> None:
        logger.info("store connected" if up else "store disconnected")


_DUTY: Final = Duty.__args__
assert NoDuty in _DUTY
