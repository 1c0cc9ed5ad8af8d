"""The journal when its servers and its network fail: real servers, killed; a link that is cut at the worst moment."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

import nats
import pytest

from remembrancer.journal.contract import START, LaneMark, NewEntry
from remembrancer.journal.jetstream import JetStreamJournal, Server
from remembrancer.journal.sealing import Keyring, Sealed
from remembrancer.journal.server_config import CLUSTER_PORT, PORT
from remembrancer.journal.sharing import Sharing
from remembrancer.protocol.errors import EntryDamaged, JournalAway, StorageFull
from tests.links import Link
from tests.nats_servers import NatsServers, configured, every_entry, numbered, reached
from tests.patience import PATIENCE_S, until
from tests.ports import free_port

LANE = "shop"
KEYS = Keyring.new()
T = TypeVar("T")


@pytest.fixture
def servers() -> Iterator[NatsServers]:
    with NatsServers() as servers:
        yield servers


@asynccontextmanager
async def connected(*urls: str) -> AsyncIterator[Sealed]:
    journal = Sealed(JetStreamJournal(Server(urls)), KEYS)
    try:
        yield journal
    finally:
        await journal.aclose()


async def ids(journal: Sealed, lane: str = LANE) -> list[str]:
    return [entry.id for entry in await every_entry(journal, lane)]


class CutOnce(Link):
    """A link to a server, which is cut once: as soon as an append was sent (`"request"`), or when its answer comes."""

    def __init__(self, url: str, cut: str) -> None:
        super().__init__(int(url.rpartition(":")[2]))
        self._cut = cut
        self._sent = False
        self.was_cut = False

    def passed(self, data: bytes, *, is_answer: bool) -> bytes:
        self._sent = self._sent or (not is_answer and b"HPUB rmb." in data)
        if self._sent and not self.was_cut and is_answer == (self._cut == "answer"):
            self.was_cut = True
            return b""
        return data


@pytest.mark.parametrize("last", [1, 5], ids=["one", "group"])
@pytest.mark.parametrize("cut", ["request", "answer"])
async def test_an_append_that_is_cut_is_there_whole_or_not_at_all(servers: NatsServers, cut: str, last: int) -> None:
    link = CutOnce(servers.urls[0], cut)
    async with (
        link.listening() as port,
        connected(f"nats://127.0.0.1:{port}") as journal,
        connected(*servers.urls) as other,
    ):
        begin = await other.create(LANE)
        await other.append(LANE, numbered(0, 0), behind=begin)
        with pytest.raises(JournalAway):
            await journal.append(LANE, numbered(1, last), behind=begin)
        assert link.was_cut
        there = [f"op-{each}" for each in range(1 if cut == "request" else last + 1)]
        page = await journal.read(LANE, after=begin)
        assert [entry.id for entry in page.entries] == there
        later = await journal.append(LANE, numbered(6, 6), behind=page.mark)
        assert (await ids(other), later.position) == ([*there, "op-6"], len(there) + 1)


async def _last(watching: AsyncIterator[None]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        async for _ in watching:
            pass


async def test_who_watches_hears_that_the_connection_is_lost_also_with_a_hint_before_it(servers: NatsServers) -> None:
    async with connected(*servers.urls) as journal, connected(*servers.urls) as other:
        begin = await other.create(LANE)
        watching = journal.watch(LANE)
        await anext(watching)
        await other.append(LANE, numbered(1, 1), behind=begin)
        assert await journal.head(LANE) == 1, "the hint came before this answer"
        await asyncio.to_thread(servers.servers[0].again)
        with pytest.raises(JournalAway):
            await _last(watching)


async def is_current(journal: JetStreamJournal, lane: str) -> bool:
    """True if each of the servers has all of a lane."""
    cluster = (await reached(lambda: journal._info(lane)))["cluster"]
    return all(each["current"] for each in cluster["replicas"])


async def test_a_lost_server_of_three_is_made_anew_and_takes_what_it_lacks(home: Path, tmp_path: Path) -> None:
    desk = Sharing(home)
    servers = configured(desk, tmp_path, [free_port(CLUSTER_PORT - PORT) for _ in range(3)])
    lost, other, _ = servers
    with servers[0], servers[1], servers[2]:
        lane = await reached(lambda: desk.new_lane("shop", "desk"))
        async with aclosing(desk.open(lane)) as journal:
            mark = await reached(lambda: journal.append(lane.lane, numbered(1, 10), behind=START))
            lost.end()
            for left in ("data", "accounts"):
                shutil.rmtree(lost.directory / left)
            mark = await reached(lambda: journal.append(lane.lane, numbered(11, 20), behind=mark))
            lost.start()
            await until(lambda: is_current(cast("JetStreamJournal", journal._journal), lane.lane))
            other.end()
            await reached(lambda: journal.append(lane.lane, numbered(21, 30), behind=mark))
            # Any replica answers a read, also one that is behind: such a page is a beginning, never anything else.
            wanted = [f"op-{number}" for number in range(1, 31)]
            async with asyncio.timeout(PATIENCE_S):
                while (found := await reached(lambda: ids(journal, lane.lane))) != wanted:
                    assert found == wanted[: len(found)]
                    await asyncio.sleep(0.05)


async def test_what_a_killed_host_has_left_of_a_snapshot_goes_with_the_next_one(servers: NatsServers) -> None:
    async with aclosing(JetStreamJournal(Server(servers.urls))) as journal:
        mark = await journal.create(LANE)
        await journal._tell(LANE, "piece.killed.0", b"half")
        snapshot = await journal.put_snapshot(LANE, mark, b"whole")
        pieces = await journal._info(LANE, subjects=f"rmb.{LANE}.s.piece.>")
        assert list(pieces["state"]["subjects"]) == [f"rmb.{LANE}.s.piece.{snapshot.name}.0"]


async def test_a_full_server_refuses_and_keeps_what_it_has() -> None:
    with NatsServers(store="3M") as servers:
        async with connected(*servers.urls) as journal:
            mark, acknowledged = await journal.create(LANE), list[str]()
            refused = False
            while not refused:
                entries = [NewEntry(f"op-{len(acknowledged)}-{each}", bytes(100_000)) for each in range(2)]
                try:
                    mark = await journal.append(LANE, entries, behind=mark)
                    acknowledged += [entry.id for entry in entries]
                except StorageFull:
                    refused = True
            assert 2 <= len(acknowledged) <= 30
            assert (await ids(journal), mark.position) == (acknowledged, len(acknowledged))


async def test_a_paused_server_stops_nobody(servers: NatsServers, monkeypatch: pytest.MonkeyPatch) -> None:
    real = JetStreamJournal._info
    to_come = iter([1, 2])

    async def info(self: JetStreamJournal, lane: str, **asked: Any) -> dict[str, Any]:
        found = await real(self, lane, **asked)
        found["state"]["last_seq"] = next(to_come, found["state"]["last_seq"])
        return found

    async with connected(*servers.urls) as journal:
        mark = await journal.append(LANE, numbered(1, 3), behind=await journal.create(LANE))
    monkeypatch.setattr(JetStreamJournal, "_info", info)
    async with connected(servers.urls[0], servers.urls[0]) as journal:  # as of a cluster, whose leader may be another
        assert (await journal.read(LANE, after=mark)).mark == mark
    assert next(to_come, None) is None


async def test_what_no_member_wrote_stops_a_reader_behind_what_one_did(servers: NatsServers) -> None:
    async with connected(*servers.urls) as journal:
        begin = await journal.create(LANE)
        good = await journal.append(LANE, numbered(1, 1), behind=begin)
        client = await nats.connect(servers.urls[0])
        for headers in ({}, {"Nats-Msg-Id": "op-3"}):
            await client.jetstream().publish(f"rmb.{LANE}.e.{begin.journal}", bytes(900_000), headers=headers)
        await client.close()
        page = await journal.read(LANE, after=begin)
        assert ([entry.id for entry in page.entries], page.mark, page.is_last) == (["op-1"], good, False)
        for mark in (good, LaneMark(good.journal, 2, "")):
            with pytest.raises(EntryDamaged, match=f"position {mark.position + 1}"):
                await journal.read(LANE, after=mark)
