"""The consolidator's day: ask for a duty, carry it out, say what came of it, ask again.

Duties of three sorts are done side by side, so that nobody who waits for an answer, and no session's end, stands behind
the work on a whole file. Two that want the same memory are kept apart by the versions that their edits expect.
"""

from __future__ import annotations

import logging
from typing import Final, Protocol, get_args

import anyio

from remembrancer.actors.consolidator.handlers import Clock, Handlers
from remembrancer.actors.consolidator.store_access import StoreAccess
from remembrancer.config.settings import Settings
from remembrancer.protocol.consolidation import (
    ConsolidateDuty,
    Duty,
    DutyReport,
    DutySort,
    MaintainDuty,
    Maintained,
    NoDuty,
    PromoteDuty,
    ReflectDuty,
    Reflected,
    SessionEndDuty,
)
from remembrancer.protocol.control import ConsolidatorHealth
from remembrancer.protocol.errors import Failure, InternalError, RemembrancerError

Work = SessionEndDuty | PromoteDuty | ConsolidateDuty | MaintainDuty | ReflectDuty
SORTS: Final[tuple[DutySort, ...]] = get_args(DutySort)
logger = logging.getLogger(__name__)


class DutySource(StoreAccess, Protocol):
    """The store, as the one who hands out duties too."""

    async def await_duty(self, done: tuple[int, ...], sort: DutySort | None = None) -> Duty:
        """The next duty (of a sort), or `NoDuty` after a while."""

    async def report(self, report: DutyReport) -> None:
        """Say what came of a duty."""


class DutyLoop:
    """One duty of each sort at a time. A duty that fails is reported so; the store knows when to hand it out again."""

    def __init__(self, store: DutySource, handlers: Handlers, settings: Settings, clock: Clock) -> None:
        self._store = store
        self._handlers = handlers
        self._settings = settings
        self._clock = clock
        self._duties: dict[int, str] = {}
        self._finished = 0
        self._failed = 0
        self._error: str | None = None

    def health(self) -> ConsolidatorHealth:
        """What is done now, and what was."""
        return ConsolidatorHealth("; ".join(self._duties.values()) or None, self._finished, self._failed, self._error)

    async def run(self) -> None:
        """Work until cancelled."""
        async with anyio.create_task_group() as tasks:
            for sort in SORTS:
                tasks.start_soon(self._work, sort)

    async def _work(self, sort: DutySort) -> None:
        done: tuple[int, ...] = ()
        while True:
            duty = await self._store.await_duty(done, sort)
            done = ()
            if not isinstance(duty, NoDuty):
                done = await self._carry_out(duty)

    async def _carry_out(self, duty: Work) -> tuple[int, ...]:
        """Do it; the ids to name as done. The one place where an error of a duty becomes a report."""
        said = self._duties[duty.duty_id] = describe(duty)
        logger.info("duty begun", extra={"duty": said, "duty_id": duty.duty_id})
        try:
            result = await self._handle(duty)
        except RemembrancerError as error:
            logger.warning("duty failed", extra={"duty": said, "code": error.code, "reason": error.message})
            await self._fail(duty, error.to_failure())
            return ()
        except Exception:
            logger.exception("duty failed", extra={"duty": said})
            await self._fail(duty, InternalError("the consolidator failed on this: see consolidator.log").to_failure())
            return ()
        finally:
            self._duties.pop(duty.duty_id, None)
        self._finished += 1
        self._error = None
        if result is not None:
            reflected = result if isinstance(result, Reflected) else None
            maintained = result if isinstance(result, Maintained) else None
            await self._store.report(DutyReport(duty.duty_id, reflected, maintained))
        return (duty.duty_id,)

    async def _handle(self, duty: Work) -> Reflected | Maintained | None:
        handler = self._handlers.get(type(duty))
        if handler is None:
            raise InternalError(f"this release has nobody who carries out a {type(duty).__name__}")
        return await handler(duty, self._store, self._settings, self._clock)

    async def _fail(self, duty: Work, failure: Failure) -> None:
        self._failed += 1
        self._error = failure.message
        await self._store.report(DutyReport(duty.duty_id, error_code=failure.code, error=failure.message))


def describe(duty: Work) -> str:
    """A duty in a word and a place, without anything that a memory says."""
    match duty:
        case SessionEndDuty(project=project):
            return f"a session's end in {project.id}"
        case PromoteDuty(project=project):
            return f"promotion in {project.id}"
        case ConsolidateDuty(project=project):
            return f"consolidation of {project.id if project else 'the user'}"
        case MaintainDuty(request=request):
            return f"maintenance of {request.project.id if request.project else 'the user'}"
        case ReflectDuty(request=request):
            return f"a reflection in {request.project.id}"
