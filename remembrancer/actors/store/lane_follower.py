"""Follows the journal of a shared lane: applies other hosts' entries as they arrive, and removes erased memories.

After an erasure, the host that wrote last writes a snapshot of the lane, reads it back, and deletes all earlier entries
and snapshots. A host that has not read the deleted entries loads the snapshot and continues from there.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from remembrancer.actors.store.committer import Committer
from remembrancer.actors.store.records.types import Clock
from remembrancer.actors.store.shared_lane import SharedLane
from remembrancer.journal.contract import SNAPSHOT_FORM, LaneSnapshot, Trimmed
from remembrancer.protocol.errors import EntryDamaged, InternalError, InvalidInput, KeyMissing, RemembrancerError

LATE_S: Final = 60.0
"""After this time, any host, not only the last writer, may remove erased memories from the journal."""
COMPACTION_RETRY_S: Final = 10.0
UNREACHABLE_RETRY_S: Final = 2.0
logger = logging.getLogger(__name__)


@dataclass(eq=False)
class LaneFollower:
    """Follows an open lane. `scrub` removes the remains of erased memories from every space."""

    lane: SharedLane
    committer: Committer
    clock: Clock
    on_snapshot_loaded: Callable[[], None]
    scrub: Callable[[Sequence[str]], Coroutine[Any, Any, None]]

    def __post_init__(self) -> None:
        self._following: asyncio.Task[None]
        self._one_at_a_time = asyncio.Lock()
        self._purged = -1
        """The newest erasure that is known to be complete in the journal; -1 before the first check."""
        self._due_at: float | None = None
        """The time at which this host removes erased memories from the journal, unless another host does so first."""

    def start(self) -> None:
        self.lane.silent = None
        self._following = asyncio.create_task(self._follow())

    async def stop(self) -> None:
        self._following.cancel()
        await asyncio.gather(self._following, return_exceptions=True)

    async def _follow(self) -> None:
        lane = self.lane
        while lane.problem is None:
            try:
                async with aclosing(lane.journal.watch(lane.name)) as hints:  # type: ignore[type-var]
                    async for _ in hints:
                        await self.catch_up()
                        await self._compact_if_due()
                continue
            except RemembrancerError as error:
                reason = error
            except Exception as error:  # any error: nobody awaits this task, so the lane would stop unnoticed
                logger.exception("a bug in this release stopped a shared lane", extra={"lane": lane.name})
                reason = InternalError(f"a bug in this release (see store.log): {error!r}")
            if lane.silent is None:
                logger.warning("a shared lane is not followed", extra={"lane": lane.name, "reason": reason.message})
            # The latest reason, since a lost server may come back and then refuse this host.
            lane.silent = self.clock() if lane.silent is None else lane.silent[0], reason
            await asyncio.sleep(UNREACHABLE_RETRY_S)

    async def catch_up(self) -> None:
        """Apply other hosts' entries. If this host has no entries yet, or has missed some, load a snapshot first.
        Raises the same errors as `SharedLane.catch_up`, and `Trimmed` if there is no valid snapshot."""
        was_silent = self.lane.silent is not None
        try:
            async with self._one_at_a_time:
                if self.lane.mark.position == 0 and self.lane.problem is None:
                    await self._take_newest()
                try:
                    await self.committer.run(self.lane.name, self.lane.catch_up)
                except Trimmed:
                    if not await self._take_newest():
                        raise
                    await self.committer.run(self.lane.name, self.lane.catch_up)
        finally:
            await self._scrub_erased()
        if was_silent:
            logger.info("a shared lane is followed again", extra={"lane": self.lane.name})

    async def _scrub_erased(self) -> None:
        if not (erased := sorted(self.lane.erased)):
            return
        try:
            await self.scrub(erased)
        except RemembrancerError as error:
            logger.warning("erased memories are not scrubbed yet", extra={"code": error.code, "reason": error.message})
            if error.retry_possible:
                return
        self.lane.erased.difference_update(erased)  # only now, since scrubbing may be interrupted

    async def _compact_if_due(self) -> None:
        """Call `compact`. If it has failed, or another host wrote last and should do it, wait first."""
        now = time.monotonic()
        if self.lane.erased_at <= self._purged:
            self._due_at = None
            return
        if self._due_at is None:
            self._due_at = now if self.lane.wrote_last else now + LATE_S
        if now < self._due_at:
            return
        try:
            await self.compact()
        except RemembrancerError as error:  # e.g. a full journal: other hosts' entries are still read
            self._due_at = now + COMPACTION_RETRY_S
            name = self.lane.name
            logger.warning("the journal still quotes erased memories", extra={"lane": name, "reason": error.message})

    async def compact(self) -> None:
        """Write a snapshot that quotes no erased memory, unless one exists, and delete all earlier entries and
        snapshots. A snapshot from release 0.2.0 is replaced. After an error, the call can be repeated."""
        async with self._one_at_a_time:
            lane, journal, erased_at = self.lane, self.lane.journal, self.lane.erased_at
            if erased_at <= self._purged:
                return
            snapshots = await journal.snapshots(lane.name)
            if not _without_erased(snapshots, erased_at) and (snapshots or erased_at):
                await self._write()
                snapshots = await journal.snapshots(lane.name)
            for newest in _without_erased(snapshots, erased_at)[:1]:
                await journal.purge(lane.name, up_to=min(newest.mark.position, lane.mark.position))
                for snapshot in snapshots:
                    if snapshot != newest:
                        await journal.drop_snapshot(lane.name, snapshot)
            self._purged = erased_at

    async def _write(self) -> None:
        lane, journal = self.lane, self.lane.journal
        mark, content = await asyncio.to_thread(lane.snapshot)
        snapshot = await journal.put_snapshot(lane.name, mark, content)
        try:
            if await journal.get_snapshot(lane.name, snapshot) != content:
                raise EntryDamaged("a snapshot of the shared lane arrived damaged")
        except EntryDamaged:
            await journal.drop_snapshot(lane.name, snapshot)
            raise
        logger.info("a snapshot was written", extra={"lane": lane.name, "position": mark.position})

    async def _take_newest(self) -> bool:
        """False if no valid snapshot is ahead of the lane. Raises `SchemaTooNew` if a newer release wrote one."""
        lane = self.lane
        for snapshot in await lane.journal.snapshots(lane.name):
            if snapshot.mark.position <= lane.mark.position:
                break
            try:
                content = await lane.journal.get_snapshot(lane.name, snapshot)
                await self.committer.run(lane.name, partial(lane.take_in, content, snapshot.mark))
            except (EntryDamaged, KeyMissing, InvalidInput) as error:
                logger.warning("a snapshot was rejected", extra={"lane": lane.name, "reason": error.message})
            else:
                self.on_snapshot_loaded()
                logger.info("a snapshot was loaded", extra={"lane": lane.name, "position": snapshot.mark.position})
                return True
        return False


def _without_erased(snapshots: Sequence[LaneSnapshot], erased_at: int) -> list[LaneSnapshot]:
    """Return the snapshots that quote no erased memory and have the current format, newest first."""
    return [each for each in snapshots if each.mark.position >= erased_at and each.form == SNAPSHOT_FORM]
