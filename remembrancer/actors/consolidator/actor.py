"""The consolidator: it does what is not urgent, one duty of each sort at a time, and gives way to all else.

It owns nothing. What it has to do the store tells it, from the records; what it decides it submits as operations. So
it may be killed at any moment: the duty is handed out again, and what was written already is not written twice.
"""

from __future__ import annotations

import logging
import os
import time
from typing import Final

import anyio.abc
import psutil

from remembrancer.actors.consolidator.duty_loop import DutyLoop
from remembrancer.actors.consolidator.store_link import StoreLink
from remembrancer.actors.consolidator.work.registry import HANDLERS
from remembrancer.actors.shell import Actor, LaunchSpec
from remembrancer.protocol.control import ConsolidatorHealth

NICENESS: Final = 10
"""Of 19: a client's request goes first, and the work still gets done on a busy machine."""

logger = logging.getLogger(__name__)


class ConsolidatorActor(Actor):
    """Asks the store for duties and carries them out."""

    def __init__(self, spec: LaunchSpec) -> None:
        super().__init__(spec)
        self._link = StoreLink(spec.paths.store_endpoint, self.speaker)
        self._loop = DutyLoop(self._link, HANDLERS, spec.settings, time.time)

    async def run(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        """See `Actor.run`."""
        step_back()
        async with self._link:
            task_status.started()
            await self._loop.run()

    def health(self) -> ConsolidatorHealth:
        """See `Actor.health`."""
        return self._loop.health()


def step_back() -> None:
    """Have this process served after all others: by the processor, and by the disk where the system can do that."""
    process = psutil.Process()
    try:
        process.nice(NICENESS)
        if hasattr(process, "ionice"):  # not on macOS
            process.ionice(psutil.IOPRIO_CLASS_IDLE)
    except (psutil.Error, OSError) as error:
        logger.info("the priority stays as it is", extra={"reason": str(error), "pid": os.getpid()})
