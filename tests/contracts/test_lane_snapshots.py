"""Who joins a shared lane, or was away for long, takes a snapshot and has what the others have."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
from collections.abc import AsyncIterator, Coroutine
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

from remembrancer.actors.store.committer import Committer
from remembrancer.actors.store.lane_follower import LaneFollower
from remembrancer.actors.store.records.sqlite_file import SqliteFile
from remembrancer.actors.store.records.types import EmbeddedMemory, Filters, PassageFilter, Phrase
from remembrancer.actors.store.shared_lane import SharedLane
from remembrancer.journal.contract import SNAPSHOT_FORM, Journal, LaneMark, LaneSnapshot, NewEntry, Trimmed
from remembrancer.protocol.errors import EntryDamaged, JournalAway, SchemaTooNew
from remembrancer.protocol.work import Passage
from remembrancer.protocol.writes import Applied, EraseMemory, Operation, UpdateMemory
from tests.contracts.records_factories import pending, texts_of
from tests.contracts.test_shared_lane import LANE
from tests.in_process_journal import InProcessJournal, InProcessServer
from tests.lane_dump import dump_of
from tests.operations import REQUESTED_AT, change_operation, memory_id_of, store_operation

EVERY = 5
SECRET = store_operation("secret", "the password is brimstone")
T = TypeVar("T")


class Host:
    def __init__(self, path: Path, journal: Journal) -> None:
        self.path = path
        self.journal = journal
        self.committer = Committer()
        self.taken: list[tuple[str, ...]] = []
        loop = asyncio.get_running_loop()

        def ask(question: Coroutine[Any, Any, T]) -> T:
            return asyncio.run_coroutine_threadsafe(question, loop).result()

        self.lane = SharedLane(SqliteFile(path), LANE, lambda: REQUESTED_AT, self.journal, path.stem, ask)
        self.snapshots = LaneFollower(self.lane, self.committer, lambda: REQUESTED_AT, self.taken.append, self._scrub)

    async def _scrub(self, _: str) -> None:
        """Nothing is scrubbed, since nobody follows."""

    async def submit(self, *operations: Operation) -> None:
        outcomes = await self.committer.run(self.lane.name, lambda: self.lane.apply(operations))
        assert [outcome.reply for outcome in outcomes if not isinstance(outcome.reply, Applied)] == []

    async def store(self, *names: str) -> None:
        await self.submit(*(store_operation(name, f"the {name} burns oil in Rotterdam") for name in names))

    async def erase(self, text: str = "the password is brimstone", name: str = "secret") -> None:
        secret = store_operation(name, text)
        await self.submit(secret)
        await self.submit(change_operation(f"erase {name}", EraseMemory(memory_id_of(secret))))

    async def embed(self) -> None:
        """Make the vectors and find the names, as the host does for itself."""
        texts = texts_of(self.lane, pending(self.lane))
        digests = dict(self.lane._file.read("SELECT number, content_digest FROM memories"))
        row = np.ones((1, 4), dtype=np.float32)
        embedded = [EmbeddedMemory(n, digests[n], (Passage(0, len(text)),), row) for n, text in texts.items()]
        await self.committer.run(self.lane.name, lambda: self.lane.save_embeddings("model", embedded))
        await self.committer.run(self.lane.name, self.lane.tidy)

    async def close(self) -> None:
        await asyncio.to_thread(self.committer.close)
        self.lane.close()


class World:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.server = InProcessServer()
        self.hosts: list[Host] = []

    def host(self, name: str) -> Host:
        self.hosts.append(Host(self.directory / f"{name}.db", InProcessJournal(self.server)))
        return self.hosts[-1]

    @property
    def kept(self) -> list[tuple[LaneSnapshot, bytes]]:
        return list(self.server.lanes[LANE].snapshots.values())

    def damage(self, position: int, content: bytes) -> None:
        for name, (snapshot, _) in list(self.server.lanes[LANE].snapshots.items()):
            if snapshot.mark.position == position:
                self.server.lanes[LANE].snapshots[name] = snapshot, content


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    await InProcessJournal(made.server).create(LANE)
    yield made
    for host in made.hosts:
        await host.close()


def names(count: int, word: str = "lantern") -> list[str]:
    return [f"{word}{number}" for number in range(count)]


async def test_who_joins_after_an_erasure_has_the_same_by_a_snapshot_and_no_word_of_it(world: World) -> None:
    first, second = world.host("first"), world.host("second")
    await first.store(*names(EVERY))
    await first.snapshots.keep()
    assert world.kept == [], "nothing was erased"
    await second.snapshots.catch_up()
    await first.erase()
    await first.embed()
    assert first.lane._file.read("SELECT count(*) FROM memory_entities WHERE found") != [(0,)]
    await first.snapshots.keep()
    assert [snapshot.mark.position for snapshot, _ in world.kept] == [EVERY + 2]
    assert world.server.lanes[LANE].entries == {}
    await first.store("torch")
    joined = world.host("joined")
    await joined.snapshots.catch_up()
    assert joined.taken == [(memory_id_of(SECRET),)]
    assert joined.lane.mark == first.lane.mark
    assert dump_of(joined.path) == dump_of(first.path)
    assert joined.lane.keyword_hits([Phrase("torch")], Filters("session:elsewhere"), 5)
    await joined.embed()
    assert pending(joined.lane) == []
    await joined.erase("the password is sulphur", "another")
    await joined.snapshots.keep()
    assert [snapshot.mark.position for snapshot, _ in world.kept] == [EVERY + 5], "one is enough"
    assert not any(b"brimstone" in content or b"sulphur" in content for _, content in world.kept)


async def test_what_is_appended_late_about_an_erased_memory_goes_with_the_next_snapshot(world: World) -> None:
    first, second = world.host("first"), world.host("second")
    await first.submit(SECRET)
    await second.snapshots.catch_up()
    await first.submit(change_operation("erase", EraseMemory(memory_id_of(SECRET))))
    await first.snapshots.keep()
    late = change_operation("update", UpdateMemory(memory_id_of(SECRET), content="the password is new brimstone"))
    body = second.lane._body_of(late, None)
    await second.journal.append(LANE, [NewEntry("late", body)], behind=second.lane.mark)
    for host in (first, second):
        await host.snapshots.catch_up()
        assert host.lane.erased_at == 3
    await second.snapshots.keep()
    assert world.server.lanes[LANE].entries == {}
    assert [b"brimstone" in content for _, content in world.kept] == [False]
    await first.snapshots.keep()
    await first.store("torch")
    await second.snapshots.catch_up()
    assert dump_of(second.path) == dump_of(first.path)


async def test_who_missed_what_was_purged_goes_on_from_the_snapshot_with_its_vectors_and_writes(world: World) -> None:
    first, away = world.host("first"), world.host("away")
    await away.store("torch", "bottle")
    await away.embed()
    passages = [number for (number,) in away.lane._file.read("SELECT number FROM passages")]
    await first.snapshots.catch_up()
    queued = store_operation("queued", "the bottle was offline")
    erased = memory_id_of(store_operation("bottle", "the bottle burns oil in Rotterdam"))
    await first.submit(change_operation("erase", EraseMemory(erased)))
    await first.store(*names(EVERY))
    await first.snapshots.keep()
    (outcome,) = await away.committer.run(LANE, lambda: away.lane.apply([queued]))
    assert isinstance(outcome.reply, JournalAway)
    assert outcome.reply.retry_possible, "so that it is queued"
    await away.snapshots.catch_up()
    (taken,) = away.taken
    assert taken == (erased,)
    assert away.lane.passages(PassageFilter(numbers=passages)).numbers == []
    await away.submit(queued)
    await away.submit(store_operation("torch", "the torch burns oil in Rotterdam"))  # which it had stored before
    await first.snapshots.catch_up()
    assert dump_of(away.path) == dump_of(first.path)
    fresh = [number for (number,) in away.lane._file.read("SELECT number FROM passages")]
    assert len(fresh) == 1, "the vector of the text that is still there"
    assert len(pending(away.lane)) == EVERY + 1
    assert min(fresh) > max(passages), "no vector in an index is taken for another's"


async def test_a_torn_damaged_or_newer_snapshot_is_not_taken_and_an_older_good_one_is(world: World) -> None:
    first = world.host("first")
    await first.store(*names(EVERY))
    await first.snapshots._write()
    ((_, good),) = world.kept
    await first.store(*names(EVERY, "candle"))
    await first.snapshots._write()
    whole = {snapshot.mark.position: content for snapshot, content in world.kept}
    for number, content in enumerate((b"", whole[2 * EVERY][:-9000], os.urandom(20_000), good)):
        world.damage(2 * EVERY, content)
        joined = world.host(f"joined{number}")
        await joined.snapshots.catch_up()
        assert len(joined.taken) == 1
        assert dump_of(joined.path) == dump_of(first.path)
    newer = world.directory / "newer.db"
    newer.write_bytes(good)
    with closing(sqlite3.connect(newer)) as connection:
        connection.execute("PRAGMA user_version = 99999999")
    for position in (EVERY, 2 * EVERY):
        world.damage(position, newer.read_bytes())
    joined = world.host("newer_joins")
    with pytest.raises(SchemaTooNew, match="newer release"):
        await joined.snapshots.catch_up()
    assert joined.lane.mark.position == 0


async def test_a_snapshot_of_release_0_2_0_is_replaced(world: World) -> None:
    first = world.host("first")
    await first.store(*names(EVERY))
    former = LaneSnapshot("former", first.lane.mark, 4)
    world.server.lanes[LANE].snapshots["former"] = former, b"file"
    await first.journal.purge(LANE, up_to=EVERY - 1)
    joined = world.host("joined")
    with pytest.raises(Trimmed):
        await joined.snapshots.catch_up()
    await first.snapshots.keep()
    assert [snapshot.form for snapshot, _ in world.kept] == [SNAPSHOT_FORM]
    await joined.snapshots.catch_up()
    assert dump_of(joined.path) == dump_of(first.path)


async def test_a_snapshot_that_arrives_damaged_purges_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    first = world.host("first")
    await first.erase()
    put = InProcessJournal.put_snapshot

    async def torn(journal: InProcessJournal, lane: str, mark: LaneMark, content: bytes) -> LaneSnapshot:
        return await put(journal, lane, mark, content[:9000])

    monkeypatch.setattr(InProcessJournal, "put_snapshot", torn)
    with pytest.raises(EntryDamaged):
        await first.snapshots.keep()
    assert world.kept == []
    assert len(world.server.lanes[LANE].entries) == 2
    monkeypatch.undo()
    await first.snapshots.keep()
    assert len(world.kept) == 1


async def test_a_kill_before_a_snapshot_is_in_place_leaves_the_old_file(world: World) -> None:
    first, killed = world.host("first"), world.host("killed")
    await killed.store("torch")
    await first.snapshots.catch_up()
    await first.store(*names(EVERY))
    await first.erase()
    await first.snapshots.keep()
    before = dump_of(killed.path)
    ((snapshot, content),) = world.kept
    assert _killed_while_taking(killed, content, snapshot.mark) == signal.SIGKILL
    assert dump_of(killed.path) == before
    again = world.host("killed")
    assert again.lane.mark.position == 1
    await again.snapshots.catch_up()
    assert dump_of(again.path) == dump_of(first.path)


def _killed_while_taking(host: Host, content: bytes, mark: LaneMark) -> int:
    """The signal by which a process dies that has taken a part of a snapshot in."""
    child = os.fork()
    if child == 0:
        try:
            again = SharedLane(
                SqliteFile(host.path), LANE, lambda: REQUESTED_AT, host.journal, "killed", host.lane._ask_journal
            )
            again._file.file.writer.set_trace_callback(
                lambda said: os.kill(os.getpid(), signal.SIGKILL) if "INTO history" in said else None
            )
            again.take_in(content, mark)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WTERMSIG(status)


async def test_scrubbing_that_is_interrupted_is_done_with_the_next_connection(world: World) -> None:
    host, began, scrubbed = world.host("host"), asyncio.Event(), list[str]()

    async def scrub(memory_id: str) -> None:
        if not began.is_set():
            began.set()
            await asyncio.Event().wait()
        scrubbed.append(memory_id)

    follower = LaneFollower(host.lane, host.committer, lambda: REQUESTED_AT, host.taken.append, scrub)
    follower.erased.add("memory:1")
    follower.start()
    await began.wait()
    await follower.stop()
    await follower.catch_up()
    assert (scrubbed, follower.erased) == (["memory:1"], set())


async def test_who_wrote_last_removes_what_was_erased_or_another(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = world.host("first"), world.host("second")
    await first.erase()
    await second.snapshots.catch_up()
    await second.snapshots._keep_soon()
    assert world.kept == [], "the first one wrote last"
    monkeypatch.setattr("remembrancer.actors.store.lane_follower.LATE_S", 0.0)
    second = world.host("another")
    await second.snapshots.catch_up()
    await second.snapshots._keep_soon()
    assert [snapshot.mark.position for snapshot, _ in world.kept] == [2]
    await first.snapshots._keep_soon()
    assert [snapshot.mark.position for snapshot, _ in world.kept] == [2]
