"""The snapshots of a shared lane: a host that joins, or was away for long, loads the newest valid one and reads on from
there.

After every `EVERY` entries the host with the lease writes a snapshot. Entries before a snapshot are trimmed once two
hosts have it, that is, once a host other than its author has fetched and checked it; a host seen recently still finds
all entries that it has not read. A snapshot that may quote an erased memory is replaced and dropped. Then the entries
that quote it are scrubbed, and hosts that have not read them continue from the snapshot.
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
from remembrancer.actors.store.shared_lane import NEWER, SharedLane, check_snapshot
from remembrancer.journal.contract import LaneNotice, LaneSnapshot, Seen, Trimmed
from remembrancer.protocol.errors import EntryDamaged, FileUnusable, InvalidInput, KeyMissing, SchemaTooNew

EVERY: Final = 5000
"""Entries between two snapshots. Reading them takes a joining host about two seconds, against the cost of sending a
file."""
LEASE: Final = "snapshot"
LEASE_S: Final = 300.0
"""The time for which no other host writes a snapshot. If writing takes longer, two hosts write one, which does no
harm."""
SEEN_S: Final = 7 * 86400.0
"""The time after a host was last seen for which its unread entries are not trimmed."""
HOSTS: Final = 2
"""The number of hosts that must have a snapshot before earlier entries are trimmed."""

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
        self._good: set[str] = set()
        """The snapshots that this host has written or found valid."""
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
        """Report this host's progress, write a snapshot if one is due, trim unneeded entries, and scrub entries that
        quote erased memories."""
        async with self._one_at_a_time:
            lane, snapshots = self._lane, await self._snapshots()
            erased_at, to_scrub = lane.erased_at, 0 if self._lane.read_only else lane.to_scrub
            clean = [each for each in snapshots if each.mark.position >= erased_at]
            newest = clean[0].mark.position if clean else 0
            is_due = lane.mark.position - newest >= self._every or newest < to_scrub
            if (is_due or len(clean) < len(snapshots)) and not self._lane.read_only:
                clean = await self._write(erased_at)
            seen, recent = await self._seen()
            if clean and clean[0].name not in self._good and _having(clean[0], seen) < HOSTS:
                await self._try(clean[0], take=False)
            self._good &= {each.name for each in clean}
            word = Seen(lane.mark.position, tuple(sorted(self._good)))
            await self._lane.journal.notify(lane.name, self._lane.member, msgspec.msgpack.encode(word))
            seen[self._lane.member] = word
            if to_scrub and (good := [each for each in clean if _having(each, seen)]):
                await self._committer.run(lane.name, partial(lane.scrub_entries, good[0].mark.position))
            agreed = next((each for each in clean if _having(each, seen) >= HOSTS), None)
            if agreed is None or self._lane.read_only:
                return
            positions = (seen[host].position for host in recent)
            await self._lane.journal.trim(lane.name, before=min(agreed.mark.position, lane.mark.position, *positions))
            for older in clean[clean.index(agreed) + 1 :]:
                await self._lane.journal.drop_snapshot(lane.name, older)

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

    async def _seen(self) -> tuple[dict[str, Seen], set[str]]:
        """Return the reports of the other hosts, and the names of the hosts seen recently."""
        notices = await self._lane.journal.notices(self._lane.name)
        words = {
            host: word for host, notice in notices.items() if (word := _word(notice)) and host != self._lane.member
        }
        return words, {host for host, word in words.items() if notices[host].age_s < SEEN_S and not word.left}

    async def _write(self, erased_at: int) -> list[LaneSnapshot]:
        """Write a snapshot if one is still due, and drop those that quote erased memories. Returns the remaining ones.

        If another host is writing one, stale snapshots are only left out.
        """
        lane, journal = self._lane, self._lane.journal
        is_ours = await journal.lease(lane.name, LEASE, self._lane.member, LEASE_S)
        snapshots = await self._snapshots()  # read again, now that nobody else writes one
        clean = [each for each in snapshots if each.mark.position >= erased_at]
        if not is_ours:
            return clean
        try:
            stale = [each for each in snapshots if each not in clean]
            newest = clean[0].mark.position if clean else 0
            must_be = (stale and not clean) or newest < lane.to_scrub
            if must_be or lane.mark.position - newest >= self._every:
                with _place(lane.path) as path:
                    mark = await asyncio.to_thread(lane.write_snapshot, path)
                    made = await journal.put_snapshot(lane.name, mark, path)
                self._good.add(made.name)
                clean.insert(0, made)
                logger.info("a snapshot was written", extra={"lane": lane.name, "position": mark.position})
            for each in stale:
                await journal.drop_snapshot(lane.name, each)
        finally:
            await journal.release(lane.name, LEASE, self._lane.member)
        return clean

    async def _take_newest(self) -> bool:
        """Load the newest valid snapshot into the lane; False if none is ahead of the lane.

        Raises:
            SchemaTooNew: the only ones ahead were written by a newer release.
        """
        is_newer = False
        for snapshot in await self._snapshots():
            if snapshot.mark.position <= self._lane.mark.position:
                break
            try:
                if await self._try(snapshot, take=True):
                    return True
            except SchemaTooNew:
                is_newer = True
        if is_newer:
            raise SchemaTooNew(NEWER)
        return False

    async def _try(self, snapshot: LaneSnapshot, *, take: bool) -> bool:
        """Fetch a snapshot and check it; with `take`, load it into the lane. Returns False if it is invalid or gone."""
        lane = self._lane
        try:
            with _place(lane.path) as path:
                await self._lane.journal.get_snapshot(lane.name, snapshot, path)
                await asyncio.to_thread(check_snapshot, path, snapshot.mark)
                self._good.add(snapshot.name)
                if take:
                    self._on_taken(await self._committer.run(lane.name, partial(lane.take_in, path)))
                    logger.info("a snapshot was taken", extra={"lane": lane.name, "position": snapshot.mark.position})
        except (EntryDamaged, KeyMissing, InvalidInput) as error:
            logger.warning("a snapshot is not taken", extra={"lane": lane.name, "reason": error.message})
            return False
        return True


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


def _having(snapshot: LaneSnapshot, seen: dict[str, Seen]) -> int:
    return sum(snapshot.name in word.snapshots for word in seen.values())


def _word(notice: LaneNotice) -> Seen | None:
    try:
        return _decode_seen(notice.body)
    except msgspec.DecodeError:  # written by a release with another format
        return None
