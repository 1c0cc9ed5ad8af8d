"""A shared lane is the same on every host, whoever wrote what and when, and whatever happened to the way there."""

import asyncio
import os
import signal
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import msgspec
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from remembrancer.actors.store import shared_lane
from remembrancer.actors.store.records.found_entities import find_names
from remembrancer.actors.store.records.sqlite_records import Limits, Records
from remembrancer.actors.store.records.types import Filters, NearDuplicate, Phrase
from remembrancer.actors.store.shared_lane import FORMAT
from remembrancer.journal.contract import (
    MAX_APPEND_BYTES,
    MAX_ENTRY_BYTES,
    SNAPSHOT_FORM,
    START,
    LaneMark,
    LaneSnapshot,
    NewEntry,
    Trimmed,
)
from remembrancer.protocol.errors import (
    EntryDamaged,
    EntryTooLarge,
    InvalidInput,
    JournalAway,
    JournalChanged,
    KeyMissing,
    RemembrancerError,
    SchemaTooNew,
    StorageFull,
)
from remembrancer.protocol.runs import ReviseMemory
from remembrancer.protocol.writes import (
    Applied,
    ErasedResult,
    EraseMemory,
    ForgetMemory,
    ForgottenResult,
    LinkRef,
    PortableMemory,
    PromotedResult,
    PromoteMemory,
    TaggedResult,
    TagMemory,
    UndoChange,
    UpdatedResult,
    UpdateMemory,
)
from tests.contracts.dying_process import dies_of, kill_after
from tests.contracts.lane_rig import LANE, Host, Hosts
from tests.contracts.records_rig import apply, pending, run_operation, scrub
from tests.contracts.test_records_state import STEPS, Step, operations_of
from tests.in_process_journal import InProcessJournal
from tests.operations import PROJECT, REQUESTED_AT, SESSION, change_operation, memory_id_of, store_operation
from tests.spaces import dump_of, write_rows

LANTERN = store_operation("lantern", "the lantern burns oil")
CANDLE = store_operation("candle", "the candle burns wax")
AHEAD_S = (0.0, 600.0, 365 * 86400.0)
"""The clocks of hosts are ahead of the journal's by so much."""
OF_ERASED = (TaggedResult, ForgottenResult, PromotedResult, UpdatedResult)
"""The answers that go with an erased memory that they name."""


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    made = Hosts(tmp_path, *AHEAD_S[:2])
    yield made
    made.close()


WITHOUT_SHRINKING = (Phase.explicit, Phase.reuse, Phase.generate)
"""A failure is replayed by its seed: to make its history shorter takes minutes."""
FAULTS = st.sampled_from(
    ["none"] * 4 + ["away", "back", "lost answer", "restart", "names", "read", "catch up", "snapshot", "purge"]
)


@settings(max_examples=settings().max_examples // 2, phases=WITHOUT_SHRINKING)
@given(
    st.lists(STEPS, min_size=3, max_size=24),
    st.lists(st.tuples(st.integers(0, 2), FAULTS, st.integers(0, 900)), min_size=24, max_size=24),
)
def test_hosts_that_write_offline_end_with_the_same_lane(steps: list[Step], ways: list[tuple[int, str, int]]) -> None:
    with TemporaryDirectory() as directory, closing(Hosts(Path(directory), *AHEAD_S)) as hosts:
        operations = operations_of(steps, [age for _, _, age in ways])
        for operation, (number, fault, age) in zip(operations, ways, strict=False):
            host = hosts[number]
            hosts.now += age - 200.0  # it is set back now and then
            match fault:
                case "away" | "back":
                    host.journal.reachable = fault == "back"
                case "lost answer":
                    host.journal.loses_answers = 1
                case "restart":
                    host.reopen()
                case "names":
                    find_names(host.lane.spaces.file, host.clock)
                case "read":
                    with suppress(JournalAway, Trimmed):
                        host.lane.touch([1, 2, 2], host.clock, SESSION, ["mem_one"])
                    host.clock += 20
                case "catch up" if host.journal.reachable:
                    host.catch_up()
                case "snapshot" | "purge" if host.journal.reachable:
                    host.write_snapshot(purge=fault == "purge")
            at = operation.requested_at + host.ahead_s
            host.submit(msgspec.structs.replace(operation, requested_at=at))
        hosts.settle()
        first, *others = [host.dump() for host in hosts.hosts]
        for other in others:
            assert [pair for pair in zip(first, other, strict=False) if pair[0] != pair[1]] == []
            assert len(other) == len(first)
        acknowledged = [reply for host in hosts.hosts for reply in host.acknowledged]
        erased = [gone for each in acknowledged if isinstance(each.result, ErasedResult) for gone in each.result.gone]
        for reply in acknowledged:
            known = [each.lane.outcome_of(reply.operation_id) for each in hosts.hosts]
            named = msgspec.msgpack.encode(reply.result)
            is_of_erased = isinstance(reply.result, OF_ERASED) and any(each.encode() in named for each in erased)
            if known != [None] * 3 or not is_of_erased:
                assert [each and each.result for each in known] == [reply.result] * 3
        appended = [msgspec.msgpack.decode(entry.body) for entry in hosts.server.lanes[LANE].entries.values()]
        assert all(each["entry"] == "accesses" or each["operation"]["project"]["id"] == LANE for each in appended)


def test_who_cannot_reach_the_journal_reads_on_and_is_not_kept_waiting(hosts: Hosts) -> None:
    hosts[0].submit(LANTERN)
    hosts[0].journal.reachable = False
    assert isinstance(hosts[0].reply(CANDLE), JournalAway)
    hosts[0].journal.reachable = True
    away = JournalAway("not reachable")
    hosts[0].lane.silent = 0.0, away
    assert hosts[0].reply(CANDLE) is away, "it is not asked while it is away"
    assert hosts[0].lane.counts(None).total == 1


def test_a_host_whose_clock_is_ahead_takes_nobody_into_its_time(tmp_path: Path) -> None:
    with closing(Hosts(tmp_path, *AHEAD_S)) as hosts:
        stored = []
        for number in (2, 1, 0):
            hosts.now += 5
            stored.append(store_operation(f"lantern{number}", f"lantern {number}", requested_at=hosts[number].clock))
            hosts[number].submit(stored[-1])
        hosts.now += 5
        tag = change_operation("tag", TagMemory(memory_id_of(stored[0]), ("lit",)))
        hosts[0].submit(msgspec.structs.replace(tag, requested_at=REQUESTED_AT + 18))
        hosts[1].lane.catch_up()
        hosts[2].lane.catch_up()
        for host in hosts.hosts:
            assert host.lane._applied_at == REQUESTED_AT + 20
            shown = [host.memory(memory_id_of(each)) for each in stored]
            assert [each.created_at for each in shown] == [REQUESTED_AT + 5, REQUESTED_AT + 10, REQUESTED_AT]
            assert [entry.changed_at for entry in shown[0].history] == [REQUESTED_AT + 5, REQUESTED_AT + 18]
        assert hosts[0].dump() == hosts[1].dump() == hosts[2].dump()


def test_what_0_2_0_said_of_tokens_and_sessions_changes_nothing_and_every_entry_names_its_form(hosts: Hosts) -> None:
    said = (
        {"entry": "token", "name": "ana", "token": None, "format": 2},
        {"entry": "session", "name": "0a", "format": 2},
    )
    entries = [NewEntry(str(each["entry"]), msgspec.msgpack.encode(each)) for each in said]
    hosts.run(hosts[1].journal.append(LANE, entries, behind=START))
    hosts[0].submit(LANTERN)
    hosts[0].lane.announce_key()
    hosts[1].catch_up()
    assert hosts[0].lane.mark == hosts[1].lane.mark
    assert hosts[0].dump() == hosts[1].dump()
    page = hosts.run(hosts[0].journal.read(LANE, after=START))
    formats = [msgspec.msgpack.decode(entry.body).get("format") for entry in page.entries]
    assert formats == [2, 2, FORMAT, FORMAT]


def test_an_archived_memory_is_revived_on_every_host_by_an_entry(hosts: Hosts) -> None:
    memory_id = memory_id_of(LANTERN)
    hosts[0].submit(LANTERN, run_operation("archive", ReviseMemory(memory_id, "archived", status="archived")))
    hosts[1].lane.catch_up()
    hosts[1].journal.reachable = False
    with pytest.raises(JournalAway):
        hosts[1].lane.touch([1, 1], hosts[1].clock + 5, SESSION, [memory_id])
    assert hosts[1].lane.load([1], None)[1].status == "archived", "what is not appended has no effect"
    hosts[1].journal.reachable = True
    hosts[1].lane.touch([1], hosts[1].clock)
    hosts[1].lane.touch([1], hosts[1].clock)
    hosts[0].lane.catch_up()
    assert hosts[0].lane.mark.position == 3, "an access is no entry"
    for host, accesses in zip(hosts.hosts, ((0, ()), (4, (SESSION,))), strict=True):
        memory = host.memory(memory_id)
        assert memory.status == "active"
        assert (memory.access_count, memory.accessed_in) == accesses, "each host counts its own"
    assert hosts[0].dump() == hosts[1].dump()


def test_a_pair_that_one_host_alone_doubts_has_the_same_versions_on_both_once_it_is_settled(hosts: Hosts) -> None:
    hosts[0].submit(LANTERN, CANDLE)
    hosts[1].catch_up()
    ids = [memory_id_of(each) for each in (LANTERN, CANDLE)]
    hosts[0].lane.link_similar([NearDuplicate(2, 1, 0.5, relation=each) for each in ("contradicts", "similar_to")])
    for name, change in (
        ("removed", UpdateMemory(ids[1], importance=0.25, remove_links=(LinkRef("contradicts", ids[0]),))),
        ("settled", UpdateMemory(ids[1], related=(ids[0],))),
        ("undone", UndoChange(ids[1])),
    ):
        hosts[0].submit(change_operation(name, change))
        hosts[1].catch_up()
        assert hosts[0].memory(ids[1]).version == hosts[1].memory(ids[1]).version, name


def test_limits_of_a_host_are_looked_at_before_anything_is_appended(hosts: Hosts) -> None:
    hosts[0].reopen(Limits(session=1))
    hosts[0].submit(LANTERN)
    reply = hosts[0].reply(CANDLE)
    assert isinstance(reply, InvalidInput)
    assert "max_memories_per_session" in reply.message
    hosts[0].reopen(Limits(1))
    assert [type(each).__name__ for each in hosts[0].lane.apply([LANTERN, CANDLE])] == ["Applied", "StorageFull"]
    hosts[0].journal.reachable = False
    for outcome in ("StorageFull", "JournalAway", "StorageFull"):
        forget = change_operation("forget", ForgetMemory(memory_id_of(LANTERN)))
        reply = hosts[0].reply(forget if outcome == "JournalAway" else CANDLE)
        assert type(reply).__name__ == outcome, "what is refused here anyway is not queued"
    hosts[0].journal.reachable = True
    assert isinstance(hosts[0].reply(forget), Applied), "to forget needs no room"
    hosts[1].submit(CANDLE)
    assert hosts[1].lane.counts(None).total == 1


def test_what_is_too_large_is_refused_and_much_goes_in_pieces(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    appended: list[int] = []
    append = hosts[0].journal.append

    async def counted(lane: str, entries: Sequence[NewEntry], *, behind: LaneMark) -> LaneMark:
        appended.append(sum(len(entry.body) for entry in entries))
        return await append(lane, entries, behind=behind)

    monkeypatch.setattr(hosts[0].journal, "append", counted)
    large = [store_operation(f"large {number}", f"{number} {'x' * 400_000}") for number in range(12)]
    too_large = store_operation("too large", "x" * MAX_ENTRY_BYTES)
    replies = hosts[0].lane.apply([*large[:6], too_large, *large[6:]])
    assert [type(each) for each in replies] == [*[Applied] * 6, EntryTooLarge, *[Applied] * 6]
    assert len(appended) == 2
    assert max(appended) <= MAX_APPEND_BYTES


def test_an_entry_of_a_newer_release_stops_the_lane_which_has_everything_once_its_host_is_upgraded(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = store_operation("torch", "the torch burns pitch")
    hosts[0].submit(LANTERN)
    entry = msgspec.msgpack.decode(hosts.server.lanes[LANE].entries[1].body)
    hosts[0].append("newer", msgspec.msgpack.encode({**entry, "format": FORMAT + 1, "entry": "invented"}))
    with monkeypatch.context() as newer:
        newer.setattr(shared_lane, "FORMAT", FORMAT + 1)
        hosts[0].submit(CANDLE)
    for attempt in range(2):
        with pytest.raises(SchemaTooNew, match="newer release"):
            hosts[1].lane.catch_up()
        assert hosts[1].lane.counts(None).total == 1, attempt
    assert isinstance(hosts[1].reply(torch), SchemaTooNew)
    with pytest.raises(SchemaTooNew):
        hosts[1].lane.rename_project(PROJECT.id, "p_0123456789ab")
    assert hosts.server.lanes[LANE].head == 3, "a lane that has stopped appends nothing"
    monkeypatch.setattr(shared_lane, "FORMAT", FORMAT + 1)
    hosts[1].reopen()
    hosts[1].journal.loses_answers = 1
    assert isinstance(hosts[1].reply(torch), JournalAway)
    hosts[1].reopen()
    hosts[1].submit(torch)
    assert hosts[1].lane.counts(None).total == 3
    assert hosts.server.lanes[LANE].head == 4, "it was not appended again"


def test_what_was_erased_is_gone_from_every_host_and_its_late_quotes_are_noted(hosts: Hosts) -> None:
    stored, again = (
        store_operation(name, "the password is brimstone", requested_at=REQUESTED_AT + at)
        for at, name in enumerate(("secret", "again"))
    )
    hosts[0].submit(stored, again, CANDLE)
    hosts[1].lane.catch_up()
    hosts[0].submit(change_operation("erase", EraseMemory(memory_id_of(again))))
    hosts[1].append("late", change_operation("late", UpdateMemory(memory_id_of(again), content="the new brimstone")))
    hosts[1].catch_up()
    assert set(hosts[1].scrubbed) == {memory_id_of(stored), memory_id_of(again)}
    for host in hosts.hosts:
        host.catch_up()
        scrub(host.lane, *hosts[1].scrubbed)
        assert host.lane.erased_at == 5, "the journal quotes it there"
        host.lane.close()
        for path in host.path.parent.glob(f"{host.path.name}*"):
            assert b"brimstone" not in path.read_bytes(), path
    bodies = b"".join(entry.body for entry in hosts.server.lanes[LANE].entries.values())
    assert b"burns wax" in bodies
    assert PROJECT.path.encode() not in bodies, "a path of this host is nobody else's"


def test_a_late_quote_of_a_memory_that_its_project_took_back_by_another_id_is_noted(hosts: Hosts) -> None:
    stored, again = (store_operation(name, "the lantern burns oil") for name in ("lantern", "again"))
    promoted = change_operation("promote", PromoteMemory(memory_id_of(stored), "user"))
    hosts[0].lane.is_users = hosts[1].lane.is_users = True
    hosts[0].submit(stored, again, promoted)
    hosts[1].catch_up()
    write_rows(hosts[0].path, f"UPDATE memories SET source_project = '{PROJECT.id}'")
    hosts[0].submit(change_operation("back", PromoteMemory(memory_id_of(again), "project")))
    assert hosts[0].lane.erased_at == 4
    hosts[1].append("late", change_operation("late", UpdateMemory(memory_id_of(stored), importance=0.1)))
    hosts[0].catch_up()
    assert hosts[0].lane.erased_at == 5, "the journal quotes it there"


# --- Hosts of a shared lane that did not know of each other, and a journal with trouble: all have the same in the end.


def agreed(hosts: Hosts) -> PortableMemory:
    here, there = hosts.hosts
    assert here.dump() == there.dump()
    return here.memory(memory_id_of(LANTERN))


def project_of(host: Host) -> Records:
    database = host.lane._file.file
    with database.transaction() as connection:
        connection.execute("INSERT INTO shares VALUES (?, ?)", (PROJECT.id, LANE))
    return Records(database, PROJECT.id, lambda: REQUESTED_AT)


def test_a_memory_that_is_changed_while_its_promotion_is_on_the_way_keeps_the_change(hosts: Hosts) -> None:
    host = hosts[0]
    project, own = project_of(host), store_operation("own", "the lantern burns oil", scope="session")
    apply(project, [own])
    memory_id = memory_id_of(own)
    host.journal.loses_answers = 1
    assert isinstance(host.reply(change_operation("promote", PromoteMemory(memory_id, "project"))), JournalAway)
    apply(project, [change_operation("gas", UpdateMemory(memory_id, content="the lantern burns gas"))])
    host.catch_up()
    assert host.memory(memory_id).content == "the lantern burns oil"
    own_now = project.portable(memory_id, None)
    assert own_now is not None
    assert own_now.content == "the lantern burns gas"


@pytest.mark.parametrize("statement", [*range(1, 80, 12), 1000])
def test_a_host_that_is_killed_while_it_leaves_has_left_or_not(hosts: Hosts, statement: int) -> None:
    host = hosts[0]
    project_of(host)
    host.submit(*(store_operation(f"lantern {number}", f"lantern {number} burns oil") for number in range(3)))

    def leave() -> None:
        host.open()
        database = host.lane._file.file
        kill_after(database.writer, statement + 1)
        host.lane.leave(Records(database, PROJECT.id, lambda: REQUESTED_AT))

    has_left = not dies_of(leave)
    with closing(sqlite3.connect(host.path)) as file:
        places = "SELECT s.name, count(*) FROM memories AS m JOIN spaces AS s ON s.number = m.space GROUP BY s.name"
        lanes = [name for (name,) in file.execute("SELECT name FROM spaces WHERE name GLOB 'l_*'")]
        shares = file.execute("SELECT name, lane FROM shares").fetchall()
        assert file.execute(places).fetchall() == [(PROJECT.id if has_left else LANE, 3)]
        assert (lanes, shares) == (([], []) if has_left else ([LANE], [(PROJECT.id, LANE)]))


def test_what_both_promote_is_one_memory_that_is_found_by_both_ids(hosts: Hosts) -> None:
    """Two sessions have learned the same, each at its host, and give it to everybody."""
    ids = []
    for number, host in enumerate(hosts.hosts):
        project, own = project_of(host), store_operation(f"own{number}", "the lantern burns oil", scope="session")
        apply(project, [own])
        promotion = change_operation(f"promote{number}", PromoteMemory(memory_id_of(own), "project"))
        for _ in range(2):  # it is asked for again
            assert isinstance(host.reply(promotion), Applied)
        assert project.counts(None).total == 0
        ids.append(memory_id_of(own))
    hosts.settle()
    here, there = hosts.hosts
    assert here.dump() == there.dump()
    assert [here.memory(known).content for known in ids] == ["the lantern burns oil"] * 2
    assert here.lane.counts(None).total == 1
    assert len(hosts.server.lanes[LANE].entries) == 2


def test_what_a_full_server_refused_is_stored_when_there_is_room(hosts: Hosts) -> None:
    hosts[0].journal.append_error = StorageFull("the server of the journal has no room")
    reply = hosts[0].reply(LANTERN)
    assert isinstance(reply, StorageFull)
    assert (reply.retry_possible, hosts[0].lane.counts(None).total) == (True, 0)
    assert hosts[0].lane.problem is None, "it reads on, and tries again"
    hosts[0].journal.append_error = None
    hosts[0].submit(LANTERN)
    hosts.settle()
    assert agreed(hosts).version == 1


@pytest.mark.parametrize("error", [EntryDamaged("damaged"), KeyMissing("no key")])
def test_an_entry_that_cannot_be_opened_stops_the_lane_or_writes(hosts: Hosts, error: RemembrancerError) -> None:
    torch = store_operation("torch", "the torch burns pitch")
    hosts[0].submit(LANTERN)
    hosts[1].catch_up()
    hosts[0].submit(CANDLE)
    hosts[1].journal.read_error = error
    with pytest.raises(type(error)):
        hosts[1].lane.catch_up()
    reply = hosts[1].reply(torch)
    assert isinstance(reply, JournalAway) if isinstance(error, KeyMissing) else reply is error
    assert hosts[1].lane.counts(None).total == 1, "what was before can be read"
    assert len(hosts.server.lanes[LANE].entries) == 2, "nothing is appended behind it or sealed with a former key"
    hosts[1].journal.read_error = None
    if isinstance(error, EntryDamaged):
        hosts[1].lane.rejoin(hosts[1].journal, "host1")
    hosts[1].submit(torch)
    hosts.settle()
    agreed(hosts)
    assert hosts[1].lane.counts(None).total == 3


@pytest.mark.parametrize(
    "body",
    [msgspec.msgpack.encode({"entry": "operation", "by": "ben"}), b"", b"\xc1 no MessagePack"],
    ids=["of a member", "empty", "no MessagePack"],
)
def test_a_damaged_entry_is_skipped_by_every_host_and_the_lane_goes_on(hosts: Hosts, body: bytes) -> None:
    hosts[0].submit(LANTERN)
    hosts[0].append("damaged", body)
    for number, host in enumerate(hosts.hosts):
        host.submit(store_operation(f"candle {number}", f"candle {number} burns wax"))
    hosts.settle()
    agreed(hosts)
    for host in hosts.hosts:
        assert host.lane.counts(None).total == 1 + len(hosts.hosts)


def test_a_journal_that_was_deleted_or_made_anew_stops_every_host(hosts: Hosts) -> None:
    hosts[0].submit(LANTERN)
    hosts[1].catch_up()
    hosts.server.delete(LANE)
    with pytest.raises(JournalChanged):
        hosts[0].lane.catch_up()
    hosts.run(InProcessJournal(hosts.server).create(LANE))
    with pytest.raises(JournalChanged):
        hosts[1].lane.catch_up()
    for host in hosts.hosts:
        assert isinstance(host.reply(CANDLE), JournalChanged)
        assert host.memory(memory_id_of(LANTERN)).content == "the lantern burns oil"
    assert hosts.server.lanes[LANE].entries == {}, "two histories are not mixed"


# --- Snapshots: who joins, or was away for long, takes one and has what the others have.
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
    assert (joined.taken, joined.scrubbed) == (1, [memory_id_of(SECRET)])
    assert joined.lane.mark == first.lane.mark
    assert dump_of(joined.path) == dump_of(first.path)
    assert joined.lane.keyword_hits([Phrase("torch")], Filters("session:elsewhere"), 5)
    joined.embed()
    assert pending(joined.lane) == []
    joined.erase("the password is sulphur", "another")
    joined.keep()
    assert [snapshot.mark.position for snapshot, _ in world.kept] == [EVERY + 5], "one is enough"
    assert not any(b"brimstone" in content or b"sulphur" in content for _, content in world.kept)


def test_who_missed_what_was_purged_goes_on_from_the_snapshot_and_writes(world: Hosts) -> None:
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
    reply = away.reply(queued)
    assert isinstance(reply, JournalAway)
    assert reply.retry_possible, "so that it is queued"
    away.catch_up()
    assert (away.taken, away.scrubbed) == (1, [erased])
    assert away.lane.passages(numbers=passages).numbers == []
    indexed = "SELECT rowid FROM words_@SPACE WHERE words_@SPACE MATCH 'bottle'"
    stored = "SELECT number FROM memories WHERE content LIKE '%bottle%'"
    assert away.lane._file.read(indexed) == away.lane._file.read(stored), "no word of an erased memory is left"
    away.submit(queued)
    away.submit(store_operation("torch", "the torch burns oil in Rotterdam"))  # which it had stored before
    first.catch_up()
    assert dump_of(away.path) == dump_of(first.path)
    assert len(pending(away.lane)) == EVERY + 2
    away.embed()
    assert min(away.lane.passage_numbers("model")) > max(passages), "no vector in an index is taken for another's"


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
        assert joined.taken == 1
        assert dump_of(joined.path) == dump_of(first.path)
    newer = world.directory / "newer.db"
    newer.write_bytes(good)
    write_rows(newer, "PRAGMA user_version = 99999999")
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

    async def scrub(memory_ids: Sequence[str]) -> None:
        if not began.is_set():
            began.set()
            await asyncio.Event().wait()
        scrubbed.extend(memory_ids)

    async def interrupt() -> None:
        follower.start()
        await began.wait()
        await follower.stop()

    follower.scrub = scrub
    host.lane.erased.add("memory:1")
    world.run(interrupt())
    host.catch_up()
    assert (scrubbed, host.lane.erased) == (["memory:1"], set())


def test_who_wrote_last_removes_what_was_erased_or_another(world: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = world.join("first"), world.join("second")
    first.erase()
    second.catch_up()
    second.keep_soon()
    assert world.kept == [], "the first one wrote last"
    with monkeypatch.context() as patch:
        patch.setattr("remembrancer.actors.store.lane_follower.LATE_S", 0.0)
        second = world.join("another")
        second.catch_up()
        second.keep_soon()
    assert [snapshot.mark.position for snapshot, _ in world.kept] == [2]
    first.keep_soon()
    second.keep_soon()
    first.erase(name="other")
    second.catch_up()
    second.keep_soon()
    assert [snapshot.mark.position for snapshot, _ in world.kept] == [2], "again the first one wrote last"
