"""Follows the journal of a shared lane: applies the entries of others as they come, tells them how far this host is,
and keeps snapshots. A host that joins, or was away for long, loads the newest valid one and reads on from there.

After every `EVERY` entries the host that wrote last writes a snapshot, and reads it back before it counts. Entries
before it are trimmed, except for those that a host seen recently has not read, and older snapshots are dropped. A
snapshot that may quote an erased memory is replaced. Then the entries that quote it are scrubbed, and hosts that have
not read them continue from the snapshot.
"""

from __future__ import annotations

import asyncio
import logging
import math
import shutil
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import aclosing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from remembrancer.actors.store.committer import Committer
from remembrancer.actors.store.shared_lane import SharedLane, check_snapshot
from remembrancer.journal.contract import LaneNotice, LaneSnapshot, Seen, Trimmed
from remembrancer.protocol.errors import (
    EntryDamaged,
    FileUnusable,
    InternalError,
    InvalidInput,
    KeyMissing,
    RemembrancerError,
)

EVERY: Final = 5000
"""Entries between two snapshots. Reading them takes a joining host about two seconds, against the cost of sending a
file."""
LATE_S: Final = 60.0
"""The time after which any host writes a snapshot that is due. Two that write one do no harm."""
AGAIN_S: Final = 2.0
"""The time after which a journal that was unreachable is read again."""
TOLD_S: Final = 10.0
"""The shortest time between two reports of this host's progress to the others."""
SCRUB_S: Final = 1.0
"""The shortest time between two reports while the journal still quotes an erased memory."""
SEEN_S: Final = 7 * 86400.0
"""The time after a host was last seen for which its unread entries are not trimmed."""
_decode_seen: Final = msgspec.msgpack.Decoder(Seen).decode
logger = logging.getLogger(__name__)


class LaneFollower:
    """Follows an open lane.

    `on_taken` is called with the ids of newly erased memories when a snapshot has been loaded. `scrub` removes the
    remains of an erased memory from every space.
    """

    def __init__(
        self,
        lane: SharedLane,
        committer: Committer,
        clock: Callable[[], float],
        on_taken: Callable[[tuple[str, ...]], None],
        scrub: Callable[[str], Coroutine[Any, Any, None]],
    ) -> None:
        self.lane = lane
        self._committer = committer
        self._clock = clock
        self._on_taken = on_taken
        self._scrub = scrub
        self._following: asyncio.Task[None] | None = None
        self._one_at_a_time = asyncio.Lock()
        self.silent: tuple[float, RemembrancerError] | None = None
        """The time since which the journal cannot be read, and the reason."""
        self.erased: set[str] = set()
        """The memories that others have erased, and whose remains are still to be scrubbed here."""
        self._told_at, self._confirmed = 0.0, 0
        """The time of the last report to the others, and the newest erasure at that time."""
        self._due_at = math.inf
        """The time at which this host writes the snapshot that is due, unless another one does."""

    def start(self) -> None:
        """Begin to follow, or begin anew with another connection."""
        self.silent = None
        self._following = asyncio.create_task(self._follow())

    async def stop(self) -> None:
        """Follow no more. Can be called twice."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)

    @property
    def problem(self) -> RemembrancerError | None:
        """The reason for which nothing is exchanged with the others now."""
        return self.lane.problem or (None if self.silent is None else self.silent[1])

    async def _follow(self) -> None:
        """Apply entries of others as they come, until the lane stops."""
        lane = self.lane
        while lane.problem is None:
            try:
                async with aclosing(lane.journal.watch(lane.name)) as hints:  # type: ignore[type-var]
                    async for _ in hints:
                        await self.catch_up()
                        await self._report()
                continue
            except RemembrancerError as error:
                reason = error
            except Exception as error:  # any fault: nobody awaits this task, and the lane would stand still
                logger.exception(
                    "a shared lane was not followed for a fault of this release", extra={"lane": lane.name}
                )
                reason = InternalError(f"a fault of this release, which the log tells: {error!r}")
            if self.silent is None:
                logger.warning("a shared lane is not followed", extra={"lane": lane.name, "reason": reason.message})
                self.silent = self._clock(), reason
            await asyncio.sleep(AGAIN_S)

    async def catch_up(self) -> None:
        """Apply the entries of others. A host that has nothing yet, or was away for too long, loads a snapshot first.

        Raises:
            Trimmed: there is no valid snapshot.
            RemembrancerError: as `SharedLane.catch_up`.
        """
        try:
            async with self._one_at_a_time:
                if self.lane.mark.position == 0 and self.lane.problem is None:
                    await self._take_newest()
                try:
                    await self._committer.run(self.lane.name, self.lane.catch_up)
                except Trimmed:
                    if not await self._take_newest():
                        raise
                    await self._committer.run(self.lane.name, self.lane.catch_up)
        finally:
            await self._scrub_erased()
        if self.silent is not None:
            logger.info("a shared lane is followed again", extra={"lane": self.lane.name})
            self.silent = None

    async def _scrub_erased(self) -> None:
        for memory_id in sorted(self.erased):
            try:
                await self._scrub(memory_id)
            except RemembrancerError as error:
                logger.warning("a memory is not scrubbed yet", extra={"code": error.code, "reason": error.message})
                if error.retry_possible:
                    continue
            self.erased.discard(memory_id)  # not before: it may be interrupted

    async def _report(self) -> None:
        """Report this host's progress and keep snapshots, if it is time."""
        lane, now, erased_at = self.lane, time.monotonic(), self.lane.erased_at
        after_s = SCRUB_S if lane.to_scrub > 0 and not lane.read_only else TOLD_S
        if now - self._told_at >= after_s or erased_at > self._confirmed:  # others wait to hear that it is erased here
            self._told_at, self._confirmed = now, erased_at
            try:
                await self.keep()
            except RemembrancerError as error:  # for example no disk space: entries of others are read all the same
                logger.warning("snapshots are not kept", extra={"lane": lane.name, "reason": error.message})

    async def keep(self) -> None:
        """Report this host's progress, write a snapshot if one is due, scrub entries that quote erased memories, and
        trim entries and drop snapshots that nobody needs."""
        async with self._one_at_a_time:
            lane, journal = self.lane, self.lane.journal
            await self._tell()
            if lane.read_only:
                return
            snapshots = list(await journal.snapshots(lane.name))
            now, is_due = time.monotonic(), self._is_due(snapshots)
            self._due_at = min(self._due_at, now + LATE_S) if is_due else math.inf
            if is_due and (lane.wrote_last or now >= self._due_at):
                await self._write()
                snapshots = list(await journal.snapshots(lane.name))
            clean = self._clean(snapshots)
            if not clean:
                return
            newest = clean[0]
            if 0 < lane.to_scrub <= newest.mark.position:
                await self._committer.run(lane.name, partial(lane.scrub_entries, newest.mark.position))
            needed = min(newest.mark.position, lane.mark.position, *await self._positions())
            await journal.trim(lane.name, before=needed)
            for snapshot in snapshots:
                if snapshot != newest:
                    await journal.drop_snapshot(lane.name, snapshot)

    async def say_left(self) -> None:
        """Tell the others that this host has left the lane."""
        async with self._one_at_a_time:
            await self._tell(left=True)

    async def _tell(self, *, left: bool = False) -> None:
        lane = self.lane
        await lane.journal.notify(lane.name, lane.member, msgspec.msgpack.encode(Seen(lane.mark.position, left)))

    def _clean(self, snapshots: list[LaneSnapshot]) -> list[LaneSnapshot]:
        """Return the snapshots that quote no erased memory."""
        erased_at = self.lane.erased_at
        return [snapshot for snapshot in snapshots if snapshot.mark.position >= erased_at]

    def _is_due(self, snapshots: list[LaneSnapshot]) -> bool:
        """True if a snapshot is to be written: after so many entries, or because others quote an erased memory."""
        clean = self._clean(snapshots)
        newest = clean[0].mark.position if clean else 0
        is_late = self.lane.mark.position - newest >= EVERY or newest < self.lane.to_scrub
        return is_late or (bool(snapshots) and not clean)

    async def _positions(self) -> list[int]:
        """Return the positions of the other hosts that were seen recently."""
        notices = await self.lane.journal.notices(self.lane.name)
        recent = [notice for host, notice in notices.items() if host != self.lane.member and notice.age_s < SEEN_S]
        return [seen.position for notice in recent if (seen := _seen(notice)) is not None and not seen.left]

    async def _write(self) -> None:
        """Write a snapshot. Raises `EntryDamaged` if it cannot be read back; then it is dropped."""
        lane, journal = self.lane, self.lane.journal
        with _place(lane.path) as path:
            mark = await asyncio.to_thread(lane.write_snapshot, path)
            snapshot = await journal.put_snapshot(lane.name, mark, path)
            path.unlink()
            try:
                await self._fetch(snapshot, path)
            except EntryDamaged:
                await journal.drop_snapshot(lane.name, snapshot)
                raise
        logger.info("a snapshot was written", extra={"lane": lane.name, "position": mark.position})

    async def _take_newest(self) -> bool:
        """Load the newest valid snapshot into the lane; False if none is ahead of the lane.

        Raises:
            SchemaTooNew: a newer release wrote it.
        """
        lane = self.lane
        for snapshot in await lane.journal.snapshots(lane.name):
            if snapshot.mark.position <= lane.mark.position:
                break
            try:
                with _place(lane.path) as path:
                    await self._fetch(snapshot, path)
                    erased = await self._committer.run(lane.name, partial(lane.take_in, path))
            except (EntryDamaged, KeyMissing, InvalidInput) as error:
                logger.warning("a snapshot is not taken", extra={"lane": lane.name, "reason": error.message})
            else:
                self.erased.update(erased)
                self._on_taken(erased)
                logger.info("a snapshot was taken", extra={"lane": lane.name, "position": snapshot.mark.position})
                return True
        return False

    async def _fetch(self, snapshot: LaneSnapshot, path: Path) -> None:
        """Fetch a snapshot and check it. Raises as `Journal.get_snapshot` and `check_snapshot`."""
        await self.lane.journal.get_snapshot(self.lane.name, snapshot, path)
        await asyncio.to_thread(check_snapshot, path, snapshot.mark)


def directory_of(path: Path) -> Path:
    """Return the directory for snapshots in transit, beside a lane's file."""
    return path.with_suffix(".snapshot")


@contextmanager
def _place(path: Path) -> Iterator[Path]:
    """Provide a path for a snapshot in transit. The directory is emptied before, in case a killed host left something,
    and after."""
    directory = directory_of(path)
    shutil.rmtree(directory, ignore_errors=True)
    try:
        directory.mkdir(mode=0o700, parents=True)
        yield directory / path.name
    except OSError as error:
        raise FileUnusable(f"{directory} cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _seen(notice: LaneNotice) -> Seen | None:
    try:
        return _decode_seen(notice.body)
    except msgspec.DecodeError:  # written by a release with another format
        return None
