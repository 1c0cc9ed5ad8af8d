"""The snapshots of a shared lane: a host that joins, or was away for long, loads the newest valid one and reads on from
there.

After every `EVERY` entries the host with the lease writes a snapshot, and reads it back before it counts. Entries
before it are trimmed, except for those that a host seen recently has not read, and older snapshots are dropped. A
snapshot that may quote an erased memory is replaced. Then the entries that quote it are scrubbed, and hosts that have
not read them continue from the snapshot.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from remembrancer.actors.store.committer import Committer
from remembrancer.actors.store.shared_lane import SharedLane, check_snapshot
from remembrancer.journal.contract import LaneNotice, LaneSnapshot, Seen, Trimmed
from remembrancer.protocol.errors import EntryDamaged, FileUnusable, InvalidInput, KeyMissing

EVERY: Final = 5000
"""Entries between two snapshots. Reading them takes a joining host about two seconds, against the cost of sending a
file."""
LEASE: Final = "snapshot"
LEASE_S: Final = 300.0
"""The time for which no other host writes a snapshot. If writing takes longer, two hosts write one, which does no
harm."""
SEEN_S: Final = 7 * 86400.0
"""The time after a host was last seen for which its unread entries are not trimmed."""
_decode_seen: Final = msgspec.msgpack.Decoder(Seen).decode
logger = logging.getLogger(__name__)


class LaneSnapshots:
    """Brings a lane up to date, from a snapshot where the entries are not enough, and maintains snapshots for others.

    `on_taken` is called with the ids of newly erased memories when a snapshot has been loaded.
    """

    def __init__(
        self,
        lane: SharedLane,
        committer: Committer,
        on_taken: Callable[[tuple[str, ...]], None],
        *,
        every: int = EVERY,
    ) -> None:
        self._lane = lane
        self._committer = committer
        self._on_taken = on_taken
        self._every = every
        self._one_at_a_time = asyncio.Lock()

    async def catch_up(self) -> None:
        """Apply the entries of others. A host that has nothing yet, or was away for too long, loads a snapshot first.

        Raises:
            Trimmed: there is no valid snapshot.
            RemembrancerError: as `SharedLane.catch_up`.
        """
        async with self._one_at_a_time:
            if self._lane.mark.position == 0 and self._lane.problem is None:
                await self._take_newest()
            try:
                await self._committer.run(self._lane.name, self._lane.catch_up)
            except Trimmed:
                if not await self._take_newest():
                    raise
                await self._committer.run(self._lane.name, self._lane.catch_up)

    @property
    def waits_for_scrubbing(self) -> bool:
        """True if journal entries that quote erased memories remain to be scrubbed by `keep`."""
        return not self._lane.read_only and self._lane.to_scrub > 0

    async def keep(self) -> None:
        """Report this host's progress, write a snapshot if one is due, scrub entries that quote erased memories, and
        trim entries and drop snapshots that nobody needs."""
        async with self._one_at_a_time:
            lane, journal = self._lane, self._lane.journal
            await journal.notify(lane.name, lane.member, msgspec.msgpack.encode(Seen(lane.mark.position)))
            if lane.read_only:
                return
            snapshots = await self._renewed()
            if not snapshots:
                return
            newest, *older = snapshots
            if 0 < lane.to_scrub <= newest.mark.position:
                await self._committer.run(lane.name, partial(lane.scrub_entries, newest.mark.position))
            needed = min(newest.mark.position, lane.mark.position, *await self._positions())
            await journal.trim(lane.name, before=needed)
            for snapshot in older:
                await journal.drop_snapshot(lane.name, snapshot)

    async def say_left(self) -> None:
        """Tell the others that this host has left the lane."""
        async with self._one_at_a_time:
            word = msgspec.msgpack.encode(Seen(self._lane.mark.position, left=True))
            await self._lane.journal.notify(self._lane.name, self._lane.member, word)

    async def _snapshots(self) -> list[LaneSnapshot]:
        """Return the snapshots of this journal, newest first. A journal that was made anew may still have its
        predecessor's."""
        name, known = self._lane.name, self._lane.mark.journal
        snapshots = await self._lane.journal.snapshots(name)
        identity = (known or await self._lane.journal.identity(name)) if snapshots else known
        return [each for each in snapshots if each.mark.journal == identity]

    async def _positions(self) -> list[int]:
        """Return the positions of the other hosts that were seen recently."""
        notices = await self._lane.journal.notices(self._lane.name)
        recent = [notice for host, notice in notices.items() if host != self._lane.member and notice.age_s < SEEN_S]
        return [seen.position for notice in recent if (seen := _seen(notice)) is not None and not seen.left]

    async def _renewed(self) -> list[LaneSnapshot]:
        """Write a snapshot if one is due, and drop those that quote erased memories, unless another host is doing that.
        Returns the others, newest first."""
        lane, journal = self._lane, self._lane.journal
        clean, stale, is_due = self._judged(await self._snapshots())
        if not (stale or is_due) or not await journal.lease(lane.name, LEASE, lane.member, LEASE_S):
            return clean
        try:
            clean, stale, is_due = self._judged(await self._snapshots())  # again, now that nobody else writes one
            if is_due:
                clean.insert(0, await self._write())
            for snapshot in stale:
                await journal.drop_snapshot(lane.name, snapshot)
        finally:
            await journal.release(lane.name, LEASE, lane.member)
        return clean

    def _judged(self, snapshots: list[LaneSnapshot]) -> tuple[list[LaneSnapshot], list[LaneSnapshot], bool]:
        """Return the snapshots without erased memories, those that may quote one, and True if a new one is due."""
        lane, erased_at = self._lane, self._lane.erased_at
        clean = [snapshot for snapshot in snapshots if snapshot.mark.position >= erased_at]
        stale = [snapshot for snapshot in snapshots if snapshot.mark.position < erased_at]
        newest = clean[0].mark.position if clean else 0
        is_due = lane.mark.position - newest >= self._every or newest < lane.to_scrub
        return clean, stale, is_due or (bool(stale) and not clean)

    async def _write(self) -> LaneSnapshot:
        """Write a snapshot. Raises `EntryDamaged` if it cannot be read back; then it is dropped."""
        lane, journal = self._lane, self._lane.journal
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
        return snapshot

    async def _take_newest(self) -> bool:
        """Load the newest valid snapshot into the lane; False if none is ahead of the lane.

        Raises:
            SchemaTooNew: a newer release wrote it.
        """
        lane = self._lane
        for snapshot in await self._snapshots():
            if snapshot.mark.position <= lane.mark.position:
                break
            try:
                with _place(lane.path) as path:
                    await self._fetch(snapshot, path)
                    self._on_taken(await self._committer.run(lane.name, partial(lane.take_in, path)))
            except (EntryDamaged, KeyMissing, InvalidInput) as error:
                logger.warning("a snapshot is not taken", extra={"lane": lane.name, "reason": error.message})
            else:
                logger.info("a snapshot was taken", extra={"lane": lane.name, "position": snapshot.mark.position})
                return True
        return False

    async def _fetch(self, snapshot: LaneSnapshot, path: Path) -> None:
        """Fetch a snapshot and check it. Raises as `Journal.get_snapshot` and `check_snapshot`."""
        await self._lane.journal.get_snapshot(self._lane.name, snapshot, path)
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
