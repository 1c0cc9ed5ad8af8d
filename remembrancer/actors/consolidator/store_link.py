"""The consolidator's connection to the store. Whatever is asked is asked again when the store was away."""

from __future__ import annotations

import logging
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
from remembrancer.protocol.errors import PeerUnavailable, QueueFull
from remembrancer.protocol.runs import Prune
from remembrancer.protocol.sockets import Speaker
from remembrancer.protocol.store_client import AWAY, StoreClient, checked
from remembrancer.protocol.wire import FromStoreToConsolidator, to_consolidator
from remembrancer.protocol.writes import Applied, Operation, ProjectRef, Submit

ANSWER_S: Final = 30.0
"""How long one question may take: a page of vectors, a run of hundreds of edits behind other writes."""
AWAY_S: Final = 120.0
"""How long the store may be away in the middle of a duty, until the duty is given up."""
POLL_S: Final = 10.0
"""How long a question for a duty stays open."""
RETRY_S: Final = 0.2

T = TypeVar("T")
logger = logging.getLogger(__name__)


class StoreLink:
    """Use as an asynchronous context manager. Is a `StoreAccess`."""

    def __init__(self, endpoint: str, speaker: Speaker) -> None:
        self._client: StoreClient[FromStoreToConsolidator] = StoreClient(
            endpoint, speaker, to_consolidator, on_connection=self._on_connection
        )

    async def __aenter__(self) -> StoreLink:
        await self._client.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._client.__aexit__(kind, error, traceback)

    async def await_duty(self, done: tuple[int, ...], sort: DutySort | None = None) -> Duty:
        """The next duty (of a sort), or `NoDuty` after a while. `done` has arrived when this returns.

        Waits for the store.
        """
        while True:
            if not await self._client.wait_connected(POLL_S):
                continue
            request = AwaitDuty(done, sort)
            try:
                duty: Duty = checked(request, await self._client.request(request, POLL_S), *_DUTY)
                return duty
            except (*AWAY, QueueFull) as error:
                logger.debug("no answer to the question for a duty", extra={"code": error.code})
                await anyio.sleep(RETRY_S)

    async def report(self, report: DutyReport) -> None:
        """Say what came of a duty. Lost with a store that dies: the next one knows nothing of the duty."""
        try:
            self._client.send(report)
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
        return checked(body, await self._client.request_patiently(body, ANSWER_S, away_s=AWAY_S), kind)

    def _on_connection(self, up: bool) -> None:
        logger.info("store connected" if up else "store disconnected")


_DUTY: Final = Duty.__args__
assert NoDuty in _DUTY
