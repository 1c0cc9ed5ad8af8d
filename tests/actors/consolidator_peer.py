"""A consolidator that does what a test says, on the real socket of a real store."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TypeVar

import anyio

from remembrancer.protocol.consolidation import AwaitJob, Job, JobSort, Maintained, Reflected, SessionEnded
from remembrancer.protocol.control import PeerGone
from remembrancer.protocol.ids import new_ulid
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.runs import ApplyRun, CloseSession
from remembrancer.protocol.sockets import Speaker
from remembrancer.protocol.wire import Request
from remembrancer.protocol.writes import Operation, Submit
from tests.actors.patient_dealer import PatientDealer
from tests.patience import PATIENCE_S

WAIT_S = 15.0
Answer = TypeVar("Answer")


class Consolidator:
    """Asks the store as the consolidator does. A refusal is raised as the error that it names."""

    def __init__(self, home: Path) -> None:
        self.speaker = Speaker("consolidator", new_ulid())
        self.dealer = PatientDealer(RuntimePaths(home).store_endpoint, self.speaker)

    @property
    def gone(self) -> PeerGone:
        """The launcher's message when it has died."""
        return PeerGone("consolidator", self.speaker.incarnation)

    async def ask(self, request: Request[Answer], timeout_s: float = WAIT_S) -> Answer:
        """The answer, which the store has to give within `timeout_s`."""
        assert await self.dealer.wait_connected(PATIENCE_S)
        return await self.dealer.request(request, timeout_s=timeout_s)

    async def job(self, sort: JobSort = "session", done: int = 0, outcome: Reflected | Maintained | None = None) -> Job:
        """The next job of a sort, which comes within some seconds. `done`: the one before has been carried out."""
        give_up_at = time.monotonic() + PATIENCE_S
        while True:
            for job in await self.ask(AwaitJob(sort, done, outcome)):
                return job
            assert time.monotonic() < give_up_at, "no job came"

    async def no_job(
        self, sort: JobSort = "session", done: int = 0, outcome: Reflected | Maintained | None = None
    ) -> None:
        """There is nothing to do now: not even when the store, which looks often, has looked once more."""
        assert await self.ask(AwaitJob(sort, done, outcome), timeout_s=1.0) == ()

    async def close_session(self, job: Job) -> None:
        """Deal with the end of a session, as briefly as can be."""
        assert isinstance(job.work, SessionEnded)
        assert job.project is not None
        session = job.work.session
        assert session.ended_at is not None
        edit = CloseSession(session.session_id, session.ending or "completed", session.ended_at)
        run = ApplyRun(f"run-{session.session_id}-{session.ended_at}", "project", "session_end", "promote", (edit,))
        await self.ask(Submit(Operation(run.run_id, job.project, "", time.time(), run)))

    async def __aenter__(self) -> Consolidator:
        await self.dealer.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        with anyio.CancelScope(shield=True):
            await self.dealer.aclose()
