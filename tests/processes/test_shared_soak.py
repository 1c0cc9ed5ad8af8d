"""A short soak of a shared lane, while everything breaks. `python -m tests.faults.soak --journal` is the long one."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from remembrancer.actors.store.records.sqlite_file import SqliteFile
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.journal.jetstream import Server
from remembrancer.journal.sealing import Keyring
from remembrancer.journal.sharing import Membership
from remembrancer.protocol.ids import derive_memory_id
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.writes import Applied, TagMemory
from tests.contracts.test_shared_lane import LANE, Hosts
from tests.faults.shared_soak import FAULTS, Answered, Session, SharedSoak, Weather, World, by_way_of, run
from tests.operations import change_operation, memory_id_of, store_operation

OPERATIONS = 44
"""Of each host."""
WEATHER = Weather(0.04, 0.2, 0.8, many=len(FAULTS))
"""Each fault once."""


@pytest.mark.anyio
@pytest.mark.usefixtures("home")
async def test_four_hosts_have_the_same_lane_whatever_broke_while_they_changed_it() -> None:
    seed = int(os.environ.get("FAULT_SEED", random.SystemRandom().randrange(10**6)))
    print(f"FAULT_SEED={seed}")
    soak = await run(seed, OPERATIONS, 2, WEATHER, every=60)
    assert not soak.wrong, soak.wrong[:5]
    assert soak.operations == OPERATIONS * soak.hosts
    assert soak.acknowledged > OPERATIONS
    assert len(soak.faults) >= len(FAULTS) // 2


def test_a_host_of_the_soak_reaches_its_servers_by_links_that_break() -> None:
    urls = ("nats://127.0.0.1:1", "nats://127.0.0.1:2")
    member = Membership(LANE, "soak", "h1", Server(urls), Keyring.new(), b"secret")
    assert by_way_of(member, (31, 32)).server.urls == ("nats://127.0.0.1:31", "nats://127.0.0.1:32")


def test_the_soak_notices_what_is_lost_doubled_or_other_on_one_host(tmp_path: Path) -> None:
    soak = SharedSoak(0)
    world = World(tmp_path, soak, 1000, hosts=2, servers=1)
    world.lane = LANE
    stored = store_operation("lantern", "the lantern burns oil")
    tagged = change_operation("tag", TagMemory(memory_id_of(stored), ("lit",)))
    refused = change_operation("refused", TagMemory("mem_unknown", ("lit",)))
    with closing(Hosts(tmp_path, 2)) as hosts:
        replies = [outcome.reply for outcome in hosts[0].lane.apply([stored, tagged, refused])]
        hosts.settle()
    for made, host in zip(hosts.hosts, world.hosts, strict=True):
        paths = RuntimePaths(host.home)
        paths.logs.mkdir(parents=True)
        shutil.copy(made.path, host.database)
        Records(SqliteFile(host.database), "user", lambda: 1.0).close()
        (paths.logs / "store.log").touch()
    session = Session(0, world.hosts[0], SharedSoak(0), (), 0)
    for operation, reply in zip((stored, tagged, refused), replies, strict=True):
        session.answered.append(Answered(operation, reply if isinstance(reply, Applied) else None))

    def wrong(change: str, hosts: int = 2) -> str:
        """The faults that are found after a change of the files of so many hosts."""
        soak.wrong.clear()
        lanes = [host.database for host in world.hosts[:hosts]]
        for lane in lanes:
            shutil.copy(lane, lane.with_suffix(".kept"))
            with closing(sqlite3.connect(lane, isolation_level=None)) as file:
                file.executescript(change)
        world.compare([(world.hosts[0], session)])
        for lane in lanes:
            lane.with_suffix(".kept").rename(lane)
        return "\n".join(soak.wrong)

    erased = "INSERT INTO erased (space, memory_id, erased_at) SELECT space,"
    elsewhere = "INSERT INTO erased SELECT s.number, id, 0.0 FROM spaces AS s, memories WHERE name = 'user'"
    assert wrong("SELECT 1") == ""
    assert wrong(elsewhere, hosts=1) == "", "a copy of its own, of while it had left"
    assert "hosts 0 and 1 differ" in wrong("UPDATE memories SET importance = 0.9", hosts=1)
    assert "tag was acknowledged, and is nowhere" in wrong("DELETE FROM applied_operations")
    assert "its history has [1]" in wrong("DELETE FROM history WHERE version = 2")
    assert "tag was acknowledged, and has 0 versions" in wrong(
        "UPDATE history SET operation_id = 'other' WHERE version = 2"
    )
    with closing(sqlite3.connect(world.hosts[0].database)) as file:
        ((created_at,),) = file.execute("SELECT created_at FROM memories").fetchall()
    apart = derive_memory_id(
        f"{memory_id_of(stored)} tag", created_at
    )  # as it goes into a lane that was left meanwhile
    assert not wrong(f"UPDATE history SET operation_id = 'other' WHERE version = 2; {erased} '{apart}', 0.0 FROM lane")
    joined = "INSERT INTO aliases SELECT '{}', number FROM memories; UPDATE history SET operation_id = 'other' "
    assert not wrong(f"{joined.format(apart)} WHERE version = 2"), "its text was there, and was stored again"
    assert "tag was acknowledged, and has 0 versions" in wrong(f"{joined.format('mem_other')} WHERE version = 2")
    assert "was erased, and is there" in wrong(f"{erased} id, 0.0 FROM memories")
    assert "lantern was acknowledged, and has 2 versions" in wrong("UPDATE history SET operation_id = 'lantern'")
    assert "refused was refused, and has changed" in wrong(
        "UPDATE history SET operation_id = 'refused', memory_id = 'mem_unknown' WHERE version = 2"
    )
    assert "older than the one before it" in wrong("UPDATE history SET changed_at = 0 WHERE version = 2")
