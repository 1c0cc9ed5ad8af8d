"""Who joins a shared lane, or was away for long, takes a snapshot and has what the others have."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import pytest

from remembrancer.actors.store.records.types import Filters, PassageFilter, Phrase
from remembrancer.journal.contract import SNAPSHOT_FORM, LaneMark, LaneSnapshot, NewEntry, Trimmed
from remembrancer.protocol.errors import EntryDamaged, JournalAway, SchemaTooNew
from remembrancer.protocol.writes import EraseMemory, UpdateMemory
from tests.contracts.dying_process import dies_of
from tests.contracts.lane_rig import LANE, Hosts
from tests.contracts.records_factories import pending
from tests.in_process_journal import InProcessJournal
from tests.lane_dump import dump_of
from tests.operations import change_operation, memory_id_of, store_operation

EVERY = 5
SECRET = store_operation("secret", "the password is brimstone")
T = TypeVar("T")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Hosts]:
    with closing(Hosts(tmp_path)) as made:
        yield made


def damage(world: Hosts, position: int, content: bytes) -> None:
    for name, (snapshot, _) in list(world.server.lanes[LANE].snapshots.items()):
        if snapshot.mark.position == position:
            world.server.lanes[LANE].snapshots[name] = snapshot, content


def names(count: int, word: str = "lantern") -> list[str]:
    return [f"{word}{number}" for number in range(count)]


def test_who_joins_after_an_erasure_has_the_same_by_a_snapshot_and_no_word_of_it(world: Hosts) -> None:
    first, second = world.join("first"), world.join("second")
    first.store(*names(EVERY))
    first.keep()
    assert world.kept == [], "nothing was erased"
    second.catch_up()
    first.erase()
    first.embed()
    assert first.lane._file.read("SELECT count(*) FROM memory_entities WHERE found") != [(0,)]
    first.keep()
    assert [snapshot.mark.position for snapshot, _ in world.kept] == [EVERY + 2]
    assert world.server.lanes[LANE].entries == {}
    first.store("torch")
    joined = world.join("joined")
    joined.catch_up()
    assert joined.taken == [(memory_id_of(SECRET),)]
    assert joined.lane.mark == first.lane.mark
    assert dump_of(joined.path) == dump_of(first.path)
    assert joined.lane.keyword_hits([Phrase("torch")], Filters("session:elsewhere"), 5)
    joined.embed()
    assert pending(joined.lane) == []
    joined.erase("the password is sulphur", "another")
    joined.keep()
    assert [snapshot.mark.position for snapshot, _ in world.kept] == [EVERY + 5], "one is enough"
    assert not any(b"brimstone" in content or b"sulphur" in content for _, content in world.kept)


def test_what_is_appended_late_about_an_erased_memory_goes_with_the_next_snapshot(world: Hosts) -> None:
    first, second = world.join("first"), world.join("second")
    first.submit(SECRET)
    second.catch_up()
    first.submit(change_operation("erase", EraseMemory(memory_id_of(SECRET))))
    first.keep()
    late = change_operation("update", UpdateMemory(memory_id_of(SECRET), content="the password is new brimstone"))
    body = second.lane._body_of(late, None)
    world.run(second.journal.append(LANE, [NewEntry("late", body)], behind=second.lane.mark))
    for host in (first, second):
        host.catch_up()
        assert host.lane.erased_at == 3
    second.keep()
    assert world.server.lanes[LANE].entries == {}
    assert [b"brimstone" in content for _, content in world.kept] == [False]
    first.keep()
    first.store("torch")
    second.catch_up()
    assert dump_of(second.path) == dump_of(first.path)


def test_who_missed_what_was_purged_goes_on_from_the_snapshot_with_its_vectors_and_writes(world: Hosts) -> None:
    first, away = world.join("first"), world.join("away")
    away.store("torch", "bottle")
    away.embed()
    passages = [number for (number,) in away.lane._file.read("SELECT number FROM passages")]
    first.catch_up()
    queued = store_operation("queued", "the bottle was offline")
    erased = memory_id_of(store_operation("bottle", "the bottle burns oil in Rotterdam"))
    first.submit(change_operation("erase", EraseMemory(erased)))
    first.store(*names(EVERY))
    first.keep()
    (outcome,) = away.lane.apply([queued])
    assert isinstance(outcome.reply, JournalAway)
    assert outcome.reply.retry_possible, "so that it is queued"
    away.catch_up()
    (taken,) = away.taken
    assert taken == (erased,)
    assert away.lane.passages(PassageFilter(numbers=passages)).numbers == []
    away.submit(queued)
    away.submit(store_operation("torch", "the torch burns oil in Rotterdam"))  # which it had stored before
    first.catch_up()
    assert dump_of(away.path) == dump_of(first.path)
    fresh = [number for (number,) in away.lane._file.read("SELECT number FROM passages")]
    assert len(fresh) == 1, "the vector of the text that is still there"
    assert len(pending(away.lane)) == EVERY + 1
    assert min(fresh) > max(passages), "no vector in an index is taken for another's"


def test_a_torn_damaged_or_newer_snapshot_is_not_taken_and_an_older_good_one_is(world: Hosts) -> None:
    first = world.join("first")
    first.store(*names(EVERY))
    first.write_snapshot()
    ((_, good),) = world.kept
    first.store(*names(EVERY, "candle"))
    first.write_snapshot()
    whole = {snapshot.mark.position: content for snapshot, content in world.kept}
    for number, content in enumerate((b"", whole[2 * EVERY][:-9000], os.urandom(20_000), good)):
        damage(world, 2 * EVERY, content)
        joined = world.join(f"joined{number}")
        joined.catch_up()
        assert len(joined.taken) == 1
        assert dump_of(joined.path) == dump_of(first.path)
    newer = world.directory / "newer.db"
    newer.write_bytes(good)
    with closing(sqlite3.connect(newer)) as connection:
        connection.execute("PRAGMA user_version = 99999999")
    for position in (EVERY, 2 * EVERY):
        damage(world, position, newer.read_bytes())
    joined = world.join("newer_joins")
    with pytest.raises(SchemaTooNew, match="newer release"):
        joined.catch_up()
    assert joined.lane.mark.position == 0


def test_a_snapshot_of_release_0_2_0_is_replaced(world: Hosts) -> None:
    first = world.join("first")
    first.store(*names(EVERY))
    former = LaneSnapshot("former", first.lane.mark, 4)
    world.server.lanes[LANE].snapshots["former"] = former, b"file"
    world.run(first.journal.purge(LANE, up_to=EVERY - 1))
    joined = world.join("joined")
    with pytest.raises(Trimmed):
        joined.catch_up()
    first.keep()
    assert [snapshot.form for snapshot, _ in world.kept] == [SNAPSHOT_FORM]
    joined.catch_up()
    assert dump_of(joined.path) == dump_of(first.path)


def test_a_snapshot_that_arrives_damaged_purges_nothing(world: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    first = world.join("first")
    first.erase()
    put = InProcessJournal.put_snapshot

    async def torn(journal: InProcessJournal, lane: str, mark: LaneMark, content: bytes) -> LaneSnapshot:
        return await put(journal, lane, mark, content[:9000])

    monkeypatch.setattr(InProcessJournal, "put_snapshot", torn)
    with pytest.raises(EntryDamaged):
        first.keep()
    assert world.kept == []
    assert len(world.server.lanes[LANE].entries) == 2
    monkeypatch.undo()
    first.keep()
    assert len(world.kept) == 1


def test_a_kill_before_a_snapshot_is_in_place_leaves_the_old_file(world: Hosts) -> None:
    first, killed = world.join("first"), world.join("killed")
    killed.store("torch")
    first.catch_up()
    first.store(*names(EVERY))
    first.erase()
    first.keep()
    before = dump_of(killed.path)
    ((snapshot, content),) = world.kept

    def take_in() -> None:
        killed.open()
        writer = killed.lane._file.file.writer
        writer.set_trace_callback(lambda said: os.kill(os.getpid(), signal.SIGKILL) if "INTO history" in said else None)
        killed.lane.take_in(content, snapshot.mark)

    assert dies_of(take_in)
    assert dump_of(killed.path) == before
    again = world.join("killed")
    assert again.lane.mark.position == 1
    again.catch_up()
    assert dump_of(again.path) == dump_of(first.path)


def test_scrubbing_that_is_interrupted_is_done_with_the_next_connection(world: Hosts) -> None:
    host, began, scrubbed = world.join("host"), asyncio.Event(), list[str]()
    follower = host.follower

    async def scrub(memory_id: str) -> None:
        if not began.is_set():
            began.set()
            await asyncio.Event().wait()
        scrubbed.append(memory_id)

    async def interrupt() -> None:
        follower.start()
        await began.wait()
        await follower.stop()

    follower._scrub = scrub
    follower.erased.add("memory:1")
    world.run(interrupt())
    host.catch_up()
    assert (scrubbed, follower.erased) == (["memory:1"], set())


def test_who_wrote_last_removes_what_was_erased_or_another(world: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = world.join("first"), world.join("second")
    first.erase()
    second.catch_up()
    second.keep_soon()
    assert world.kept == [], "the first one wrote last"
    monkeypatch.setattr("remembrancer.actors.store.lane_follower.LATE_S", 0.0)
    second = world.join("another")
    second.catch_up()
    second.keep_soon()
    assert [snapshot.mark.position for snapshot, _ in world.kept] == [2]
    first.keep_soon()
    assert [snapshot.mark.position for snapshot, _ in world.kept] == [2]
