"""The contract of a journal, over every implementation of it."""

import asyncio
import atexit
import itertools
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import ClassVar, Self

import nats
import pytest

from remembrancer.journal.contract import MAX_ENTRY_BYTES, START, Journal, LaneMark, NewEntry, Trimmed
from remembrancer.journal.jetstream import JetStreamJournal, Server, entries_stream, state_stream
from remembrancer.journal.sealing import Keyring, Sealed
from remembrancer.protocol.errors import InvalidInput, JournalChanged
from tests.in_process_journal import InProcessJournal, InProcessServer
from tests.nats_servers import NatsServers, every_entry, numbered, reached
from tests.patience import PATIENCE_S, PATIENT_JOURNAL, until


# --- The journals that the suite of the contract runs over, each with the faults that a test asks for.
class InProcess:
    """A server of journals, and connections to it, closed at the end: here everything is in this process."""

    def __init__(self, directory: Path) -> None:
        self._now = 0.0
        self._server = InProcessServer(clock=lambda: self._now)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing is held open."""

    def lane(self) -> str:
        return f"lane-{uuid.uuid4().hex}"

    async def connect(self) -> Journal:
        return InProcessJournal(self._server)

    async def replicas(self) -> list[Journal]:
        """A connection to each replica. Any of them may answer a read, as far as it has heard of what was written."""
        return [await self.connect()]

    async def until_read(self, lane: str, mark: LaneMark, *, after: LaneMark = START) -> None:
        """Return when each replica has the entries up to a mark."""
        for replica in await self.replicas():
            await until(partial(replica.read, lane, after=after), lambda page: page.mark == mark)

    async def until_raised(self, error: type[Exception], lane: str, *, after: LaneMark) -> None:
        """Return when each replica answers a read with that error."""

        async def is_raised(replica: Journal) -> bool:
            try:
                await reached(lambda: replica.read(lane, after=after))
            except error:
                return True
            return False

        for replica in await self.replicas():
            await until(partial(is_raised, replica))

    async def until_kept(self, lane: str, *positions: int) -> None:
        """Return when each replica has the snapshots of these positions, and no others."""
        for replica in await self.replicas():
            await until(
                partial(replica.snapshots, lane), lambda there: [each.mark.position for each in there] == [*positions]
            )

    async def lose(self, lane: str) -> None:
        """Delete a lane's journal behind the hosts' backs."""
        self._server.delete(lane)

    async def pass_time(self, seconds: float) -> None:
        """Return when so much time has passed for the server."""
        self._now += seconds

    def now(self) -> float:
        """The server's time, in seconds since the epoch."""
        return self._now


class OneServer(InProcess):
    """A NATS server with JetStream, which all tests of this process share, and seals on everything."""

    count = 1
    _running: ClassVar[dict[int, NatsServers]] = {}

    def __init__(self, directory: Path) -> None:
        self._connections: list[Journal] = []
        self._keyring = Keyring.new()

    async def __aenter__(self) -> Self:
        if self.count not in self._running:
            servers = self._running[self.count] = NatsServers(self.count)
            atexit.register(servers.__exit__)
            await asyncio.to_thread(servers.__enter__)
            first = JetStreamJournal(Server(servers.urls))
            await servers.until_ready(first)
            await first.aclose()
        self._nats = Server(self._running[self.count].urls)
        return self

    async def __aexit__(self, *_: object) -> None:
        for connection in self._connections:
            await connection.aclose()

    async def connect(self) -> Journal:
        return self._connected(self._nats.urls)

    def _connected(self, urls: tuple[str, ...]) -> Journal:
        self._connections.append(Sealed(JetStreamJournal(Server(urls)), self._keyring))
        return self._connections[-1]

    async def lose(self, lane: str) -> None:
        client = await nats.connect(list(self._nats.urls))
        for stream in (entries_stream(lane), state_stream(lane)):
            await client.jetstream().delete_stream(stream)
        await client.close()

    async def pass_time(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def now(self) -> float:
        return time.time()


class ThreeServers(OneServer):
    """A cluster of three, of which each stream has a replica on each: whoever is connected to one reads that."""

    count = 3

    async def replicas(self) -> list[Journal]:
        return [self._connected((url,)) for url in self._nats.urls]


KINDS: tuple[type[InProcess], ...] = (InProcess, OneServer, ThreeServers)


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
async def journals(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[InProcess]:
    kind: type[InProcess] = request.param
    async with kind(tmp_path) as journals:  # it waits for servers that do not answer before they have a leader
        for name in (*PATIENT_JOURNAL, "remembrancer.journal.jetstream.LAG_S"):
            monkeypatch.setattr(name, PATIENCE_S)
        yield journals


@pytest.fixture
async def journal(journals: InProcess) -> Journal:
    return await journals.connect()


async def test_what_was_appended_is_read_in_its_order_by_another(journals: InProcess, journal: Journal) -> None:
    lane, other = journals.lane(), await journals.connect()
    begin = await journal.create(lane)
    assert (begin.position, begin.journal) == (0, (await other.read(lane, after=START)).mark.journal)
    assert await other.read(lane, after=START) == await other.read(lane, after=begin)
    mark = await journal.append(lane, numbered(1, 1), behind=begin)
    mark = await journal.append(lane, numbered(2, 7), behind=mark)
    await journals.until_read(lane, mark)
    page = await other.read(lane, after=begin)
    assert [(entry.position, entry.id, entry.body) for entry in page.entries] == [
        (number, f"op-{number}", b"body %d" % number) for number in range(1, 8)
    ]
    assert (page.mark, page.head, page.is_last) == (mark, 7, True)
    assert (await other.read(lane, after=mark)).entries == ()


async def test_the_time_of_an_entry_is_the_journals_own_for_all(journals: InProcess, journal: Journal) -> None:
    lane, other = journals.lane(), await journals.connect()
    mark = await journal.append(lane, numbered(1, 2), behind=await journal.create(lane))
    await journals.pass_time(0.3)  # by a clock that may run faster than the server's
    await journals.until_read(lane, await other.append(lane, numbered(3, 3), behind=mark))
    entries = await every_entry(journal, lane)
    assert await every_entry(other, lane) == entries
    assert entries[0].at <= entries[1].at <= entries[2].at - 0.2
    assert abs(entries[2].at - journals.now()) < PATIENCE_S


async def test_of_many_who_append_at_once_each_entry_stands_there_once(journals: InProcess) -> None:
    lane, hosts, groups = journals.lane(), 4, 6
    connections = [await journals.connect() for _ in range(hosts)]
    begin = await connections[0].create(lane)

    async def one(host: int, journal: Journal) -> LaneMark:
        mark = begin
        for group in range(groups):
            entries = [NewEntry(f"{host}-{group}-{each}", b"x") for each in range(1 + (host + group) % 3)]
            mark = await journal.append(lane, entries, behind=begin)
            assert mark.entry_id == entries[-1].id
        return mark

    marks = await asyncio.gather(*(one(host, journal) for host, journal in enumerate(connections)))
    await journals.until_read(lane, max(marks, key=lambda mark: mark.position))
    entries = await every_entry(connections[0], lane)
    assert [entry.position for entry in entries] == list(range(1, len(entries) + 1))
    wanted = {(h, g, e) for h in range(hosts) for g in range(groups) for e in range(1 + (h + g) % 3)}
    assert sorted(entry.id for entry in entries) == sorted(f"{h}-{g}-{e}" for h, g, e in wanted)
    of_groups = [entry.id.rsplit("-", 1)[0] for entry in entries]
    assert len(list(itertools.groupby(of_groups))) == hosts * groups


async def test_a_lane_is_made_once_and_others_are_none(journals: InProcess, journal: Journal) -> None:
    lane = journals.lane()
    await journal.create(lane)
    with pytest.raises(InvalidInput, match="already"):
        await journal.create(lane)
    with pytest.raises(InvalidInput, match="name"):
        await journal.create("a.b")
    for asked in (journal.head("none"), journal.read("none", after=START), journal.purge("none", up_to=1)):
        with pytest.raises(JournalChanged, match="no longer has this journal"):
            await asked
    with pytest.raises(JournalChanged):
        await journal.append("none", numbered(1, 1), behind=START)


async def test_the_largest_and_the_smallest_entry_are_read_as_they_were(journals: InProcess, journal: Journal) -> None:
    lane = journals.lane()
    whole = [NewEntry("large", bytes(MAX_ENTRY_BYTES)), NewEntry("empty", b"")]
    await journals.until_read(lane, await journal.append(lane, whole, behind=await journal.create(lane)))
    assert [len(entry.body) for entry in await every_entry(journal, lane)] == [MAX_ENTRY_BYTES, 0]


async def test_who_has_not_read_a_purged_entry_is_told_of_the_beginning(journals: InProcess, journal: Journal) -> None:
    lane = journals.lane()
    begin = await journal.create(lane)
    early = await journal.append(lane, numbered(1, 3), behind=begin)
    late = await journal.append(lane, numbered(4, 6), behind=early)
    await journals.until_read(lane, late)
    for _ in range(2):
        await journal.purge(lane, up_to=3)
        assert [entry.position for entry in await every_entry(journal, lane, after=early)] == [4, 5, 6]
    await journals.until_raised(Trimmed, lane, after=begin)
    with pytest.raises(Trimmed) as raised:
        await journal.read(lane, after=begin)
    assert raised.value.first == 4
    for _ in range(2):
        await journal.purge(lane, up_to=6)
        for missed in (begin, early):
            await journals.until_raised(Trimmed, lane, after=missed)
        assert (await journal.read(lane, after=late)).entries == ()
    later = await journal.append(lane, numbered(7, 7), behind=late)
    assert later.position == 7, "no position is used again"
    await journals.until_read(lane, later, after=late)
    assert (await journal.read(lane, after=late)).mark == later


async def test_another_journal_of_the_same_name_is_noticed(journals: InProcess, journal: Journal) -> None:
    lane = journals.lane()
    mark = await journal.append(lane, numbered(1, 3), behind=await journal.create(lane))
    await journals.lose(lane)
    await journals.until_raised(JournalChanged, lane, after=mark)
    other = await journals.connect()
    again = await other.append(lane, numbered(11, 13), behind=await other.create(lane))
    assert again.journal != mark.journal
    await journals.until_read(lane, again)
    with pytest.raises(JournalChanged):
        await journal.read(lane, after=mark)
    with pytest.raises(JournalChanged):
        await journal.append(lane, numbered(4, 5), behind=mark)
    assert await other.head(lane) == 3


async def test_a_mark_that_went_another_way_is_noticed(
    journals: InProcess, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an older backup was restored, and others appended behind it."""
    lane = journals.lane()
    mark = await journal.append(lane, numbered(1, 3), behind=await journal.create(lane))
    await journals.until_read(lane, mark)
    with monkeypatch.context() as hurried:
        hurried.setattr("remembrancer.journal.jetstream.LAG_S", 0.2)
        for wrong in (LaneMark(mark.journal, 4, "op-4"), LaneMark(mark.journal, 3, "op-of-before")):
            with pytest.raises(JournalChanged):
                await journal.read(lane, after=wrong)
            other = await journals.connect()  # who comes back, as a host does after its server was restored
            with pytest.raises(JournalChanged):
                await other.append(lane, numbered(4, 4), behind=wrong)
    later = await journal.append(lane, numbered(4, 4), behind=mark)
    with pytest.raises(JournalChanged):
        await journal.read(lane, after=LaneMark(mark.journal, 3, "op-of-before"))
    assert later.position == 4


async def test_who_watches_hears_of_an_append_of_another(journals: InProcess, journal: Journal) -> None:
    lane, other = journals.lane(), await journals.connect()
    mark = await journal.create(lane)
    async with asyncio.timeout(PATIENCE_S), aclosing(other.watch(lane)) as watched:  # type: ignore[type-var]
        for number in (1, 2, 3):
            await anext(watched)
            mark = await journal.append(lane, numbered(number, number), behind=mark)
        while (await other.read(lane, after=START)).mark != mark:
            await anext(watched)


async def test_a_snapshot_is_read_as_it_was_written(journals: InProcess, journal: Journal) -> None:
    lane, other = journals.lane(), await journals.connect()
    mark = await journal.append(lane, numbered(1, 2), behind=await journal.create(lane))
    assert await other.snapshots(lane) == ()
    contents = [b"", b"small", bytes(range(256)) * 10_000]
    for number, content in enumerate(contents):
        later = LaneMark(mark.journal, number, "")
        made = await journal.put_snapshot(lane, later, content)
        await journals.until_kept(lane, *range(number, -1, -1))
        newest = (await other.snapshots(lane))[0]
        assert (newest, newest.mark) == (made, later)
        assert await other.get_snapshot(lane, newest) == content
    await other.drop_snapshot(lane, newest)
    await journals.until_kept(lane, 1, 0)
    with pytest.raises(InvalidInput):
        await journal.get_snapshot(lane, newest)
