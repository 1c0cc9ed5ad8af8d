"""Hosts of a shared lane that did not know of each other, and a journal with trouble: all have the same in the end."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.journal.contract import EntryPage, LaneMark, NewEntry
from remembrancer.protocol.errors import (
    EntryDamaged,
    JournalAway,
    JournalChanged,
    KeyMissing,
    RemembrancerError,
    StorageFull,
)
from remembrancer.protocol.writes import Applied, Change, PortableMemory, PromoteMemory, UpdateMemory
from tests.contracts.runs_rig import shown
from tests.contracts.test_shared_lane import LANE, Host, Hosts
from tests.in_process_journal import InProcessJournal
from tests.operations import PROJECT, REQUESTED_AT, change_operation, memory_id_of, store_operation

LANTERN = store_operation("lantern", "the lantern burns oil")


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    made = Hosts(tmp_path, 2)
    yield made
    made.close()


def offline(hosts: Hosts, *changes: Change) -> None:
    """Each host makes a change that the others cannot see; then both are reached again."""
    for host in hosts.hosts:
        host.catch_up()
        host.journal.reachable = False
    for number, (host, change) in enumerate(zip(hosts.hosts, changes, strict=True)):
        host.clock += 60
        host.submit([change_operation(f"offline{number}", change, requested_at=host.clock)])
        assert len(host.queued) == 1, "it waits"
    hosts.settle()


def memory_of(host: Host, memory_id: str = memory_id_of(LANTERN)) -> PortableMemory:
    memory = host.lane.portable(memory_id, None)
    assert memory is not None
    return memory


def agreed(hosts: Hosts, memory_id: str = memory_id_of(LANTERN)) -> PortableMemory:
    """A memory as both hosts have it, beside everything else."""
    here, there = hosts.hosts
    assert here.dump() == there.dump()
    return memory_of(here, memory_id)


def test_of_two_changes_of_a_memory_the_later_one_counts_and_the_history_has_both(hosts: Hosts) -> None:
    hosts[0].submit([LANTERN])
    first, second = (
        UpdateMemory(memory_id_of(LANTERN), content=f"the lantern burns {fuel}") for fuel in ("gas", "wax")
    )
    offline(hosts, first, second)
    memory = agreed(hosts)
    assert memory.content == "the lantern burns wax"
    assert [(each.version, each.change, each.details.get("member")) for each in memory.history] == [
        (1, "stored", "host0"),
        (2, "updated", "host0"),
        (3, "updated", "host1"),
    ]
    assert memory.history[1].record.content == "the lantern burns gas"


def project_of(host: Host) -> Records:
    """The space of the project that shares the lane."""
    database = host.lane._file.file
    with database.transaction() as connection:
        connection.execute("INSERT INTO shares VALUES (?, ?)", (PROJECT.id, LANE))
    return Records(database, PROJECT.id, lambda: REQUESTED_AT)


def test_a_memory_that_is_changed_while_its_promotion_is_on_the_way_keeps_the_change(hosts: Hosts) -> None:
    host = hosts[0]
    project, own = project_of(host), store_operation("own", "the lantern burns oil", scope="session")
    project.apply([own])
    memory_id = memory_id_of(own)
    host.journal.loses_answers = 1
    (unknown,) = host.lane.apply([change_operation("promote", PromoteMemory(memory_id, "project"))])
    assert isinstance(unknown.reply, JournalAway)
    project.apply([change_operation("gas", UpdateMemory(memory_id, content="the lantern burns gas"))])
    host.catch_up()
    assert memory_of(host, memory_id).content == "the lantern burns oil"
    assert shown(project, memory_id).content == "the lantern burns gas"


@pytest.mark.parametrize("statement", [*range(1, 80, 6), 1000])
def test_a_host_that_is_killed_while_it_leaves_has_left_or_not(hosts: Hosts, statement: int) -> None:
    host = hosts[0]
    project_of(host)
    host.submit([store_operation(f"lantern {number}", f"lantern {number} burns oil") for number in range(3)])
    status = killed_while_leaving(host, statement)
    assert status in (signal.SIGKILL, 0)
    with closing(sqlite3.connect(host.path)) as file:
        places = "SELECT s.name, count(*) FROM memories AS m JOIN spaces AS s ON s.number = m.space GROUP BY s.name"
        lanes = [name for (name,) in file.execute("SELECT name FROM spaces WHERE name GLOB 'l_*'")]
        shares = file.execute("SELECT name, lane FROM shares").fetchall()
        has_left = status == 0
        assert file.execute(places).fetchall() == [(PROJECT.id if has_left else LANE, 3)]
        assert (lanes, shares) == (([], []) if has_left else ([LANE], [(PROJECT.id, LANE)]))


def killed_while_leaving(host: Host, statement: int) -> int:
    """The signal by which a process dies that leaves a lane, before that statement; 0 if it has left before."""
    child = os.fork()
    if child == 0:
        left = statement

        def count(_: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            host.open()
            database = host.lane._file.file
            project = Records(database, PROJECT.id, lambda: REQUESTED_AT)
            database.writer.set_trace_callback(count)
            host.lane.leave(project)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return status


def test_what_both_promote_is_one_memory_that_is_found_by_both_ids(hosts: Hosts) -> None:
    """Two sessions have learned the same, each at its host, and give it to everybody."""
    ids = []
    for number, host in enumerate(hosts.hosts):
        project, own = project_of(host), store_operation(f"own{number}", "the lantern burns oil", scope="session")
        project.apply([own])
        promotion = change_operation(f"promote{number}", PromoteMemory(memory_id_of(own), "project"))
        for _ in range(2):  # it is asked for again
            assert isinstance(host.lane.apply([promotion])[0].reply, Applied)
        assert project.counts(None).total == 0
        ids.append(memory_id_of(own))
    hosts.settle()
    here, there = hosts.hosts
    assert here.dump() == there.dump()
    contents = [each.content for known in ids if (each := here.lane.portable(known, None)) is not None]
    assert contents == ["the lantern burns oil"] * 2
    assert here.lane.counts(None).total == 1
    assert len(hosts.server.lanes[LANE].entries) == 2


class Troubled(InProcessJournal):
    """A journal that raises an error where it is asked to append or to read."""

    append_error: RemembrancerError | None = None
    read_error: RemembrancerError | None = None

    async def append(self, lane: str, entries: Sequence[NewEntry], *, behind: LaneMark) -> LaneMark:
        if self.append_error is not None:
            raise self.append_error
        return await super().append(lane, entries, behind=behind)

    async def read(self, lane: str, *, after: LaneMark, limit: int = 1000) -> EntryPage:
        if self.read_error is not None:
            raise self.read_error
        return await super().read(lane, after=after, limit=limit)


def trouble(hosts: Hosts, host: Host) -> Troubled:
    journal = Troubled(hosts.server)
    host.lane.rejoin(journal, "host")
    return journal


def test_what_a_full_server_refused_is_stored_when_there_is_room(hosts: Hosts) -> None:
    journal = trouble(hosts, hosts[0])
    journal.append_error = StorageFull("the server of the journal has no room")
    (outcome,) = hosts[0].lane.apply([LANTERN])
    assert isinstance(outcome.reply, StorageFull)
    assert outcome.reply.retry_possible
    assert hosts[0].lane.counts(None).total == 0
    assert hosts[0].lane.problem is None, "it reads on, and tries again"
    journal.append_error = None
    hosts[0].submit([LANTERN])
    hosts.settle()
    assert agreed(hosts).version == 1


def test_an_entry_that_cannot_be_opened_stops_the_lane_until_the_host_has_joined_again(hosts: Hosts) -> None:
    error = EntryDamaged("damaged")
    hosts[0].submit([LANTERN])
    hosts[1].catch_up()
    hosts[0].submit([store_operation("candle", "the candle burns wax")])
    trouble(hosts, hosts[1]).read_error = error
    with pytest.raises(EntryDamaged):
        hosts[1].lane.catch_up()
    (outcome,) = hosts[1].lane.apply([store_operation("torch", "the torch burns pitch")])
    assert outcome.reply is error
    assert hosts[1].lane.counts(None).total == 1, "what was before can be read"
    hosts[1].lane.rejoin(hosts[1].journal, "host1")
    hosts[1].submit([store_operation("torch", "the torch burns pitch")])
    hosts.settle()
    agreed(hosts)
    assert hosts[1].lane.counts(None).total == 3


def test_a_host_whose_key_is_still_under_way_waits_and_appends_nothing_until_it_is_there(hosts: Hosts) -> None:
    hosts[0].submit([LANTERN])
    hosts[1].catch_up()
    hosts[0].submit([store_operation("candle", "the candle burns wax")])
    journal = trouble(hosts, hosts[1])
    journal.read_error = KeyMissing("no key")
    torch = store_operation("torch", "the torch burns pitch")
    with pytest.raises(KeyMissing):
        hosts[1].lane.catch_up()
    (outcome,) = hosts[1].lane.apply([torch])
    assert isinstance(outcome.reply, JournalAway), "so that it is queued"
    assert len(hosts.server.lanes[LANE].entries) == 2, "nothing is sealed with the former key"
    journal.read_error = None
    (outcome,) = hosts[1].lane.apply([torch])
    assert isinstance(outcome.reply, Applied)
    hosts.settle()
    agreed(hosts)
    assert hosts[1].lane.counts(None).total == 3


@pytest.mark.parametrize(
    "body",
    [msgspec.msgpack.encode({"entry": "operation", "by": "ben"}), b"", b"\xc1 no MessagePack"],
    ids=["of a member", "empty", "no MessagePack"],
)
def test_a_damaged_entry_is_skipped_by_every_host_and_the_lane_goes_on(hosts: Hosts, body: bytes) -> None:
    hosts[0].submit([LANTERN])
    hosts.run(hosts[0].journal.append(LANE, [NewEntry("damaged", body)], behind=hosts[0].lane.mark))
    for number, host in enumerate(hosts.hosts):
        host.submit([store_operation(f"candle {number}", f"candle {number} burns wax")])
    hosts.settle()
    agreed(hosts)
    for host in hosts.hosts:
        assert host.lane.counts(None).total == 1 + len(hosts.hosts)


def test_a_journal_that_was_deleted_or_made_anew_stops_every_host(hosts: Hosts) -> None:
    hosts[0].submit([LANTERN])
    hosts[1].catch_up()
    hosts.server.delete(LANE)
    with pytest.raises(JournalChanged):
        hosts[0].lane.catch_up()
    hosts.run(InProcessJournal(hosts.server).create(LANE))
    with pytest.raises(JournalChanged):
        hosts[1].lane.catch_up()
    for host in hosts.hosts:
        (outcome,) = host.lane.apply([store_operation("candle", "the candle burns wax")])
        assert isinstance(outcome.reply, JournalChanged)
        assert memory_of(host).content == "the lantern burns oil"
    assert hosts.server.lanes[LANE].entries == {}, "two histories are not mixed"
