"""A journal in this process, for tests of what is built on one: several connections to one shared server of lanes."""

import asyncio
import itertools
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

import msgspec

from remembrancer.journal import contract
from remembrancer.protocol.errors import InvalidInput, JournalAway, JournalChanged, RemembrancerError


class _Lane:
    def __init__(self) -> None:
        self.identity = secrets.token_hex(16)
        self.ids: list[str] = []
        self.entries: dict[int, contract.Entry] = {}
        self.snapshots: dict[str, tuple[contract.LaneSnapshot, bytes]] = {}
        self.notices: dict[str, bytes] = {}
        self.appended = asyncio.Event()

    @property
    def head(self) -> int:
        return len(self.ids)

    def check(self, mark: contract.LaneMark) -> None:
        """Raise `JournalChanged` if the mark is not of this journal."""
        if mark.journal not in ("", self.identity):
            raise JournalChanged.other()
        if mark.position > self.head:
            raise JournalChanged.shorter(mark.position, self.head)
        if mark.position and mark.entry_id not in ("", self.ids[mark.position - 1]):
            raise JournalChanged.other()

    def mark(self, position: int) -> contract.LaneMark:
        return contract.LaneMark(self.identity, position, self.ids[position - 1] if position in self.entries else "")


class InProcessServer:
    """The lanes that the connections of a test share."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.clock = clock
        self.lanes: dict[str, _Lane] = {}

    def delete(self, lane: str) -> None:
        """Lose a lane, as an operator's mistake would."""
        del self.lanes[lane]


class InProcessJournal(contract.Journal):
    """A connection to an `InProcessServer`, which a test can cut."""

    def __init__(self, server: InProcessServer) -> None:
        self._server = server
        self.reachable = True
        self.refusal: RemembrancerError | None = None
        """The reason for which it is not, if that is not its absence."""
        self.loses_answers = 0
        """So many of the next appends are done, and their answers lost."""
        self.append_error: RemembrancerError | None = None
        self.read_error: RemembrancerError | None = None

    def _lane(self, lane: str) -> _Lane:
        if not self.reachable:
            raise self.refusal or JournalAway("the journal is not reachable")
        if contract.check_name(lane) not in self._server.lanes:
            raise JournalChanged.missing()
        return self._server.lanes[lane]

    async def create(self, lane: str) -> contract.LaneMark:
        if not self.reachable:
            raise JournalAway("the journal is not reachable")
        if contract.check_name(lane) in self._server.lanes:
            raise InvalidInput(f"the lane {lane!r} already exists")
        self._server.lanes[lane] = _Lane()
        return self._server.lanes[lane].mark(0)

    async def head(self, lane: str) -> int:
        return self._lane(lane).head

    async def append(
        self, lane: str, entries: Sequence[contract.NewEntry], *, behind: contract.LaneMark
    ) -> contract.LaneMark:
        if self.append_error is not None:
            raise self.append_error
        found = self._lane(lane)
        await asyncio.sleep(0)  # others come first now and then, as they do over a network
        found.check(behind)
        now = self._server.clock()
        for entry in entries:
            found.ids.append(entry.id)
            found.entries[found.head] = contract.Entry(found.head, entry.id, entry.body, now)
        found.appended.set()
        found.appended = asyncio.Event()
        if self.loses_answers:
            self.loses_answers -= 1
            raise JournalAway("the journal did not answer")
        return found.mark(found.head)

    async def read(self, lane: str, *, after: contract.LaneMark, limit: int = 1000) -> contract.EntryPage:
        if self.read_error is not None:
            raise self.read_error
        found = self._lane(lane)
        found.check(after)
        following = range(after.position + 1, found.head + 1)
        page = [found.entries[at] for at in itertools.takewhile(found.entries.__contains__, following[:limit])]
        if following and not page:
            raise contract.Trimmed(min((at for at in found.entries if at in following), default=found.head + 1))
        mark = found.mark(page[-1].position) if page else msgspec.structs.replace(after, journal=found.identity)
        return contract.EntryPage(tuple(page), mark, found.head)

    async def watch(self, lane: str) -> AsyncIterator[None]:
        while True:
            appended = self._lane(lane).appended
            yield
            await appended.wait()

    async def purge(self, lane: str, *, up_to: int) -> None:
        found = self._lane(lane)
        found.entries = {at: entry for at, entry in found.entries.items() if at > up_to}

    async def put_snapshot(self, lane: str, mark: contract.LaneMark, content: bytes) -> contract.LaneSnapshot:
        snapshot = contract.LaneSnapshot(secrets.token_hex(8), mark, len(content), contract.SNAPSHOT_FORM)
        self._lane(lane).snapshots[snapshot.name] = snapshot, content
        return snapshot

    async def snapshots(self, lane: str) -> tuple[contract.LaneSnapshot, ...]:
        kept = [snapshot for snapshot, _ in self._lane(lane).snapshots.values()]
        return tuple(sorted(kept, key=lambda each: (each.mark.position, each.name), reverse=True))

    async def get_snapshot(self, lane: str, snapshot: contract.LaneSnapshot) -> bytes:
        kept = self._lane(lane).snapshots.get(snapshot.name)
        if kept is None:
            raise InvalidInput("the snapshot no longer exists")
        return kept[1]

    async def drop_snapshot(self, lane: str, snapshot: contract.LaneSnapshot) -> None:
        self._lane(lane).snapshots.pop(snapshot.name, None)

    async def notify(self, lane: str, host: str, body: bytes) -> None:
        self._lane(lane).notices[host] = body

    async def notices(self, lane: str) -> Mapping[str, bytes]:
        return dict(self._lane(lane).notices)

    async def aclose(self) -> None:
        """Nothing is open."""
