"""The snapshots of a shared lane: who joins, or was away for long, takes the newest good one and reads on from there.

The host that has the lease writes a snapshot after so many entries. Entries are trimmed behind one that two hosts have,
which is to say that another one than its maker has fetched it and found it good; a host that was seen of late finds
all that it has not read yet. A snapshot that may have the words of an erased memory is made anew, and dropped. Then the
entries with these words are scrubbed: who has not read them goes on from the snapshot.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from remembrancer.actors.store.committer import Committer
from remembrancer.actors.store.shared_lane import NEWER, SharedLane, check_snapshot
from remembrancer.journal.contract import LaneNotice, LaneSnapshot, Seen, Trimmed
from remembrancer.protocol.errors import EntryDamaged, FileUnusable, InvalidInput, KeyMissing, SchemaTooNew

if TYPE_CHECKING:
    from remembrancer.journal.contract import Journal

EVERY: Final = 5000
"""Entries between two snapshots: some two seconds of reading for who joins, against a file that has to be sent."""
LEASE: Final = "snapshot"
LEASE_S: Final = 300.0
"""The time for which nobody else writes a snapshot. One that takes longer is written twice, which does no harm."""
SEEN_S: Final = 7 * 86400.0
"""For so long after a host was seen, entries that it has not read yet are not trimmed."""
HOSTS: Final = 2
"""So many hosts have a snapshot before what is behind it is trimmed."""

_decode_seen: Final = msgspec.msgpack.Decoder(Seen).decode
logger = logging.getLogger(__name__)


class LaneSnapshots:
    """Brings a lane up to date, by a snapshot where entries do not do, and keeps snapshots for others.

    `on_taken` is told of a snapshot that is in the lane's place.
    """

    def __init__(
        self,
        lane: SharedLane,
        journal: Journal,
        member: str,
        read_only: bool,
        committer: Committer,
        on_taken: Callable[[tuple[str, ...]], None],
        *,
        every: int = EVERY,
    ) -> None:
        self._lane = lane
        self._journal = journal
        self._member = member
        self._read_only = read_only
        self._committer = committer
        self._on_taken = on_taken
        self._every = every
        self._good: set[str] = set()
        """The snapshots that this host has made, or has found good."""
        self._one_at_a_time = asyncio.Lock()

    async def catch_up(self) -> None:
        """Apply what others have appended. Who has nothing yet, or was away for too long, takes a snapshot first.

        Raises:
            Trimmed: there is no good snapshot.
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
        """True if `keep` has the words of erased memories to take out of the journal."""
        return not self._read_only and self._lane.to_scrub > 0

    async def keep(self) -> None:
        """Tell the others how far this host is, write a snapshot if it is time, trim what nobody needs any more, and
        scrub what has the words of erased memories."""
        async with self._one_at_a_time:
            lane, snapshots = self._lane, await self._snapshots()
            erased_at, to_scrub = lane.erased_at, 0 if self._read_only else lane.to_scrub
            clean = [each for each in snapshots if each.mark.position >= erased_at]
            newest = clean[0].mark.position if clean else 0
            is_due = lane.mark.position - newest >= self._every or newest < to_scrub
            if (is_due or len(clean) < len(snapshots)) and not self._read_only:
                clean = await self._write(erased_at)
            seen, recent = await self._seen()
            if clean and clean[0].name not in self._good and _having(clean[0], seen) < HOSTS:
                await self._try(clean[0], take=False)
            self._good &= {each.name for each in clean}
            word = Seen(lane.mark.position, tuple(sorted(self._good)))
            await self._journal.notify(lane.name, self._member, msgspec.msgpack.encode(word))
            seen[self._member] = word
            if to_scrub and (good := [each for each in clean if _having(each, seen)]):
                await self._committer.run(lane.name, partial(lane.scrub_entries, good[0].mark.position))
            agreed = next((each for each in clean if _having(each, seen) >= HOSTS), None)
            if agreed is None or self._read_only:
                return
            positions = (seen[host].position for host in recent)
            await self._journal.trim(lane.name, before=min(agreed.mark.position, lane.mark.position, *positions))
            for older in clean[clean.index(agreed) + 1 :]:
                await self._journal.drop_snapshot(lane.name, older)

    async def say_left(self) -> None:
        """Tell the others that this host takes no part any more."""
        async with self._one_at_a_time:
            word = msgspec.msgpack.encode(Seen(self._lane.mark.position, left=True))
            await self._journal.notify(self._lane.name, self._member, word)

    async def _snapshots(self) -> list[LaneSnapshot]:
        """The snapshots of this journal, the newest first: one that was made anew may have those of the one before."""
        name, known = self._lane.name, self._lane.mark.journal
        snapshots = await self._journal.snapshots(name)
        identity = (known or await self._journal.identity(name)) if snapshots else known
        return [each for each in snapshots if each.mark.journal == identity]

    async def _seen(self) -> tuple[dict[str, Seen], set[str]]:
        """The words of the others, and the names of those that were seen of late."""
        notices = await self._journal.notices(self._lane.name)
        words = {host: word for host, notice in notices.items() if (word := _word(notice)) and host != self._member}
        return words, {host for host, word in words.items() if notices[host].age_s < SEEN_S and not word.left}

    async def _write(self, erased_at: int) -> list[LaneSnapshot]:
        """Write a snapshot if that is still to be done, and drop those with words that are erased; those that are left.

        Another host may be about it: then those that it has to drop are only passed over.
        """
        lane, journal = self._lane, self._journal
        is_ours = await journal.lease(lane.name, LEASE, self._member, LEASE_S)
        snapshots = await self._snapshots()  # as they are now that nobody else writes one
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
            await journal.release(lane.name, LEASE, self._member)
        return clean

    async def _take_newest(self) -> bool:
        """Put the newest good snapshot in the lane's place; False if there is none that is ahead of the lane.

        Raises:
            SchemaTooNew: a newer release has written the only one.
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
        """Fetch a snapshot and look whether it is good; `take` it then. False if it is not, or is gone."""
        lane = self._lane
        try:
            with _place(lane.path) as path:
                await self._journal.get_snapshot(lane.name, snapshot, path)
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
    """The directory for snapshots on their way, beside the file of a lane."""
    return path.with_suffix(".snapshot")


@contextmanager
def _place(path: Path) -> Iterator[Path]:
    """The place of a snapshot on its way. Nothing is left of it, or of one that a killed host has left there."""
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
    except msgspec.DecodeError:  # of a release that says something else
        return None
