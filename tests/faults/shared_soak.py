"""A shared lane while everything breaks: `python -m tests.faults.soak --journal [--operations N]`.

Three NATS servers and four hosts: store processes with homes of their own, each reaching
the servers over links of its own, their clocks ten minutes apart. They share a project and what is the user's, and each
has a consolidator, which works there while its host wrote last. Sessions of each host change memories at random,
their own and each other's, take in the same export, have runs carried out and undone, erase, and leave what is shared
and join it again, while stores, consolidators and servers are killed or paused, links are cut, hold back what is sent
or answered, or are slow and members are let in and removed, so that the key changes.
What is not answered, or may be tried again, a session sends again under the same id, as the write queue does.

At the end every host's lanes have the same rows to the last byte, each acknowledged operation is there once, what was
refused left nothing, no history has a gap, nothing erased is there, and no server lets in who was removed. What the
sessions ask for and what breaks when follows from the seed; how that falls together does not.
"""

import asyncio
import itertools
import random
import signal
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import msgspec

from remembrancer.actors.consolidator.actor import JobLoop, Outcome, carry_out
from remembrancer.actors.consolidator.store_requests import Clock
from remembrancer.actors.store import job_handlers
from remembrancer.config.settings import Settings
from remembrancer.journal.server_config import CLUSTER_PORT, PORT
from remembrancer.journal.sharing import Membership, Sharing, read_invitation
from remembrancer.protocol.consolidation import Job, Maintained
from remembrancer.protocol.control import StoreHealth
from remembrancer.protocol.errors import Failure, JournalAway, KeyMissing
from remembrancer.protocol.ids import derive_memory_id, new_ulid
from remembrancer.protocol.kinds import Scope
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.reads import NoteAccess, Recall
from remembrancer.protocol.runs import AddLink, AddMemory, ApplyRun, NewMemory, ReviseMemory, RunResult, UndoRun
from remembrancer.protocol.session_life import EndSession, StartSession
from remembrancer.protocol.sharing import DescribeLanes, LeaveLane, MemoriesMoved, OthersWrote, ShareProject
from remembrancer.protocol.sockets import Dealer
from remembrancer.protocol.store_client import AWAY, StoreClient
from remembrancer.protocol.wire import Request
from remembrancer.protocol.writes import (
    Applied,
    BatchApplied,
    Change,
    EntityRef,
    EraseMemory,
    ForgetMemory,
    HistoryEntry,
    ImportMemory,
    InvalidateMemory,
    LinkRef,
    MemoryVersion,
    Operation,
    PortableMemory,
    ProjectRef,
    PromoteMemory,
    RestoreMemory,
    StoreMemory,
    Submit,
    SubmitBatch,
    TagMemory,
    UndoChange,
    UpdateMemory,
    memory_id_of,
)
from tests.actors.store_process import Apart, Launched, Launcher
from tests.conftest import ROOT_OF_FILES
from tests.faults.soak import Figures
from tests.links import LOOPBACK, Link
from tests.nats_servers import Started, configured, reached, until_refused
from tests.patience import PATIENCE_S, until
from tests.ports import free_port
from tests.spaces import connect_space, dump_of

SERVERS: Final = 3
HOSTS: Final = 4
APART_S: Final = 600.0
"""The clock of each host is ahead of the one before by so much."""
ANSWER_S: Final = 5.0
"""An operation without an answer is sent again after this time."""
HANGS_S: Final = 10 * PATIENCE_S
"""An operation that is not answered by then hangs: as long as everything breaks, one may wait for minutes."""
AGAIN_S: Final = 0.1
EXPORTED: Final = 12
"""Memories of the export that every session takes in, one by one."""

T = TypeVar("T")


class SharedSoak(Figures):
    hosts: int = HOSTS
    operations: int = 0
    acknowledged: int = 0
    refused: Counter[str] = msgspec.field(default_factory=Counter)
    changes: Counter[str] = msgspec.field(default_factory=Counter)
    """The operations that were acknowledged, by what they change."""
    faults: Counter[str] = msgspec.field(default_factory=Counter)
    worked: Counter[str] = msgspec.field(default_factory=Counter)
    """The number of runs by which a host's consolidator has maintained what is shared."""
    removed: int = 0
    """Members that were let in and removed."""


# Hosts


class Host:
    def __init__(self, number: int, home: Path, look_s: float) -> None:
        self.number, self.home = number, home
        self.project = ProjectRef(f"p_{number:012x}", f"/work/host-{number}")
        self.ahead_s = APART_S * number
        self.links: list[Link] = []
        self.lane = self.users_lane = ""
        self._look_s = look_s
        self._launcher = Launcher(home)
        self._dealer: Dealer[OthersWrote] = Dealer(
            RuntimePaths(home).store_endpoint,
            Apart("gateway", new_ulid(), self.ahead_s),
            msgspec.msgpack.Decoder(OthersWrote),
        )
        self._store: Launched | None = None
        self.consolidator = Consolidator(self)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        paths = RuntimePaths(self.home)
        for directory in (paths.run, paths.logs):
            directory.mkdir(mode=0o700)
        async with self._launcher, self._dealer:
            try:
                await self.start()
                yield
            finally:
                await self.consolidator.kill()
                await self.kill()

    async def start(self) -> None:
        looks = {"CHECK_INTERVAL_S": self._look_s, "MAINTENANCE_S": 10 * self._look_s}
        constants = {
            f"{job_handlers.__name__}.{name}": min(getattr(job_handlers, name), at) for name, at in looks.items()
        }
        self._store = Launched("store", self.home, Settings(), constants, self.ahead_s)
        await self._launcher.expect(StoreHealth)

    async def kill(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            await store.kill()

    def pause(self, *, go_on: bool = False) -> None:
        if self._store is not None:
            self._store.process.send_signal(signal.SIGCONT if go_on else signal.SIGSTOP)

    async def ask(self, request: Request[T], answer_s: float = PATIENCE_S) -> T | Failure:
        """The store's answer. Raises one of `AWAY` if there is none."""
        if not self._dealer.connected:
            await self._dealer.wait_connected(answer_s)
        return (await self._dealer.exchange(request, timeout_s=answer_s)).body

    async def answer(self, request: Request[T], answer_s: float = PATIENCE_S) -> T | Failure:
        """As `ask`, of somebody who asks again where that is said to help, while others go on."""
        async with asyncio.timeout(HANGS_S):
            while True:
                with suppress(*AWAY):
                    answer = await self.ask(request, answer_s)
                    if not (isinstance(answer, Failure) and answer.retry_possible):
                        return answer
                await asyncio.sleep(AGAIN_S)

    def time(self) -> float:
        return time.time() + self.ahead_s

    @property
    def database(self) -> Path:
        return RuntimePaths(self.home).database

    def read_space(self, name: str) -> closing[sqlite3.Connection]:
        return closing(connect_space(RuntimePaths(self.home), name))

    def spaces(self, lane: str) -> list[str]:
        with closing(sqlite3.connect(self.database)) as file:
            return [row[0] for row in file.execute("SELECT name FROM spaces ORDER BY name != ?, number", (lane,))]


class Consolidator:
    """The consolidator of a host: a task that is cancelled wherever it stands, as what it does bears."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._working: asyncio.Task[None] | None = None

    def start(self, soak: SharedSoak, dice: random.Random) -> None:
        self._working = asyncio.create_task(self._work(soak, dice))

    async def kill(self) -> None:
        working, self._working = self._working, None
        if working is not None:
            working.cancel()
            with suppress(asyncio.CancelledError):
                await working

    async def _work(self, soak: SharedSoak, dice: random.Random) -> None:
        host = self._host

        async def work_and_undo(job: Job, store: StoreClient, settings: Settings, clock: Clock) -> Outcome:
            result = await carry_out(job, store, settings, clock)
            if isinstance(result, Maintained) and job.lane_time is not None:
                for run_id in result.run_ids:
                    soak.worked[f"host {host.number}"] += 1
                    if dice.random() < 0.3:  # it is undone at once
                        undo = UndoRun(run_id, "project", if_there=True)
                        await store.ask(Submit(Operation(f"undo-{run_id}", host.project, "", host.time(), undo)))
            return result

        speaker = Apart("consolidator", new_ulid(), host.ahead_s)
        async with StoreClient(RuntimePaths(host.home).store_endpoint, speaker) as store:
            await JobLoop(store, Settings(), host.time, work_and_undo).run()


# Sessions


class LeaveAndJoin(NamedTuple):
    """Have the host's project, or its user, share no more, and then share again with all that is there. A host does so
    while others wait for their answers."""

    is_users: bool = False


Deed = Change | LeaveAndJoin


def plan(seed: int, host: int, session: int, count: int, sessions: int, *, users_share: bool) -> list[Deed]:
    """The changes that a session asks for, one after the other.

    It knows by their numbers the memories that others store, whether they are there yet or not.
    """
    dice = random.Random(f"{seed} {host} {session}")
    name = session_id(host, session)
    deeds: list[Deed] = []
    stored, runs = 0, 0

    def some() -> str:
        if dice.random() < 0.15:  # one of a few that all hosts change all the time
            return memory_id(dice.randrange(HOSTS), 0, 0)
        at = (host, session) if dice.random() < 0.4 else (dice.randrange(HOSTS), dice.randrange(sessions))
        return memory_id(*at, dice.randrange(max(1, stored)))

    def own() -> str:
        return memory_id(host, session, dice.randrange(max(1, stored)))

    def store() -> Change:
        nonlocal stored
        stored += 1
        text = f"note {host} {session} {stored} about a lamp"
        if dice.random() < 0.1:  # some are the same
            text = f"fact {dice.randrange(9)} {dice.choice(['burns oil', 'burns Oil.'])}"
        scope: Scope = dice.choices(("session", "user", "project"), (20, 15, 65))[0]
        links = (some(),) if dice.random() < 0.2 else ()
        return StoreMemory(
            memory_id=memory_id(host, session, stored - 1),
            content=text,
            type=dice.choice(["episodic", "semantic", "procedural"]),
            scope=scope,
            session_id=name,
            importance=round(dice.random(), 3),
            tags=(f"tag-{dice.randrange(5)}",),
            related_entities=(EntityRef(f"Part{dice.randrange(9)}", "component", "is about"),),
            supersedes=some() if dice.random() < 0.05 else None,
            related=links,
        )

    def update() -> Change:
        return UpdateMemory(
            some(),
            content=f"changed {host} {session} {len(deeds)}",
            importance=round(dice.random(), 3),
            add_entities=(EntityRef(f"Part{dice.randrange(9)}", "component", "is about"),),
            add_links=(LinkRef("supports", some(), 0.5),) if dice.random() < 0.2 else (),
        )

    def promote() -> Change:
        taken_in = exported(dice.randrange(EXPORTED), name).id
        promoted, is_far = taken_in if dice.random() < 0.4 else own(), users_share and dice.random() < 0.25
        return PromoteMemory(promoted, "user" if is_far else "project")

    def apply_run() -> Change:
        nonlocal runs
        runs += 1
        run, part = f"run-{host}-{session}-{(runs + 1) // 2}", (runs + 1) % 2  # each has two parts
        made, sources = f"mem_{host}_{session}_{run}-{part}", [own(), own()]
        return ApplyRun(
            run,
            "project",
            "consolidation",
            (
                AddMemory(NewMemory(made, f"what {run} has found, part {part}", "fact", "session", name)),
                *(ReviseMemory(each, "summarized", tags=(f"{run}-{part}-{at}",)) for at, each in enumerate(sources)),
                AddLink(made, sources[0], "derived_from"),
            ),
        )

    def undo_run() -> Change:
        return UndoRun(f"run-{host}-{session}-{dice.randrange((runs + 1) // 2 + 1)}", "project")

    made: dict[Callable[[], Deed], int] = {
        store: 300,
        update: 180,
        lambda: TagMemory(some(), (f"tag-{host}-{session}-{len(deeds)}",), (f"tag-{dice.randrange(5)}",)): 140,
        lambda: ForgetMemory(some(), "of no use"): 80,
        lambda: RestoreMemory(some(), dice.choice([None, None, 1, 2])): 80,
        lambda: UndoChange(some(), dice.choice([None, None, 2, 3])): 60,
        lambda: InvalidateMemory(some(), "it moved", dice.choice([None, some()])): 40,
        promote: 90,
        lambda: EraseMemory(some()): 30,
        lambda: StartSession(name): 30,
        lambda: EndSession(name): 30,
        lambda: ImportMemory(exported(dice.randrange(EXPORTED), name)): 50,
        apply_run: 30,
        undo_run: 15,
    }
    leaves = {dice.randrange(2 * count): LeaveAndJoin()}
    if users_share:
        leaves[dice.randrange(4 * count)] = LeaveAndJoin(is_users=True)
    for number in range(count):
        (deed,) = dice.choices(list(made), list(made.values()))
        deeds.append(leaves.get(number) or deed())
    return deeds


def exported(number: int, session: str) -> PortableMemory:
    """A memory of the export: every third one belongs to the session that takes it in, wherever that is."""
    scope: Scope = "project" if number % 3 else "session"
    belongs = session if scope == "session" else "session:exported"
    contents = [f"exported {number}, as it was {when}, about a lamp" for when in ("first", "then", "at last")]
    records = [
        MemoryVersion(content=content, type="semantic", scope=scope, session_id=belongs)
        for content in contents[: 1 + number % 3]
    ]
    history = tuple(
        HistoryEntry(at, "stored", 1.7e9 + at, "session:exported", f"exported-{number}-{at}", record)
        for at, record in enumerate(records, start=1)
    )
    return PortableMemory(
        id=f"mem_x_{number:05}",
        created_at=history[0].changed_at,
        updated_at=history[-1].changed_at,
        version=len(history),
        history=history,
        **records[-1].recorded(),
    )


def session_id(host: int, session: int) -> str:
    return f"session:{host}-{session}"


def memory_id(host: int, session: int, number: int) -> str:
    """The id of a memory that a session stores, counted from 0. No id is the beginning of another, as in practice."""
    return f"mem_{host}_{session}_{number:05}"


class Answered(NamedTuple):
    operation: Operation
    reply: Applied | None


class Session:
    """Sends a host's store one operation after the other, each until it is answered."""

    def __init__(self, number: int, host: Host, soak: SharedSoak, deeds: Sequence[Deed], seed: int) -> None:
        self._host, self._soak, self._deeds = host, soak, deeds
        self._id = session_id(host.number, number)
        self._dice = random.Random(f"{seed} {self._id}")
        self.answered: list[Answered] = []

    async def work(self, pause_s: float) -> None:
        waiting = list(enumerate(self._deeds))
        while waiting:
            count = self._dice.randint(2, 12) if self._dice.random() < 0.1 else 1
            some, waiting = waiting[:count], waiting[count:]
            operations = [
                Operation(f"op-{self._id}-{number}", self._host.project, self._id, self._host.time(), deed)
                for number, deed in some
                if not isinstance(deed, LeaveAndJoin)
            ]
            for _, deed in some:
                if isinstance(deed, LeaveAndJoin):
                    await self._leave_and_join(is_users=deed.is_users)
            if len(operations) > 1:
                operations = await self._send_together(operations)
            for operation in operations:
                answer = await self._host.answer(Submit(operation), ANSWER_S)
                assert isinstance(answer, Applied | Failure), answer
                self._note(operation, answer)
            if self._dice.random() < 0.3:
                await self._read()
            await asyncio.sleep(self._dice.uniform(0, 2 * pause_s))

    async def _leave_and_join(self, *, is_users: bool) -> None:
        """Go on alone for a moment, and join again. Meanwhile the host's sessions change what is its own now."""
        project, lane = (None, self._host.users_lane) if is_users else (self._host.project, self._host.lane)
        left = await self._host.answer(LeaveLane(project))
        if isinstance(left, Failure):
            assert left.code == "invalid_input", left  # it has left already
        await asyncio.sleep(self._dice.uniform(0, ANSWER_S / 10))
        joined = await self._host.answer(ShareProject(project, lane))
        assert isinstance(joined, MemoriesMoved), joined
        self._soak.operations += 1
        name = f"{LeaveAndJoin.__name__}{' (user)' if is_users else ''}"
        self._soak.changes[name] += 1

    async def _send_together(self, operations: list[Operation]) -> list[Operation]:
        """Send operations as the write queue does; those that are not answered by it."""
        try:
            answer = await self._host.ask(SubmitBatch(tuple(operations)), ANSWER_S)
        except AWAY:
            return operations
        if not isinstance(answer, BatchApplied):
            return operations
        for operation in operations:
            if operation.operation_id in answer.rejected:
                self._note(operation, answer.rejected[operation.operation_id])
        # The answers of the others are wanted, too.
        return [each for each in operations if each.operation_id not in answer.rejected]

    def _note(self, operation: Operation, answer: Applied | Failure) -> None:
        self._soak.operations += 1
        if isinstance(answer, Applied):
            self._soak.acknowledged += 1
            kind = type(operation.change).__name__
            self._soak.changes[kind] += 1
            self.answered.append(Answered(operation, answer))
            return
        self._soak.refused[answer.code] += 1
        self.answered.append(Answered(operation, None))
        if answer.code not in RIGHTLY:
            self._soak.wrong.append(f"{operation.change} was refused: {answer.code}: {answer.message}")

    async def _read(self) -> None:
        project = self._host.project
        with suppress(*AWAY):
            if self._dice.random() < 0.5:
                await self._host.ask(Recall(self._id, project=project, query="the lamp", strategy="keyword"), ANSWER_S)
            else:
                shown = [each.operation.change for each in self.answered[-3:]]
                ids = tuple(known for change in shown if (known := memory_id_of(change)) is not None)
                await self._host.ask(NoteAccess(project, self._id, ids, ids[:1]), ANSWER_S)


RIGHTLY: Final = frozenset({"not_found", "memory_not_found", "invalid_input", "conflict"})
"""The refusals of what was asked for at random: of a memory that is not there, or was forgotten or erased."""


# Faults


class Fault(NamedTuple):
    name: str
    after_s: float
    lasts_s: float
    host: int
    server: int


OF_STORES: Final = ("kill a store", "pause a store", "kill all stores")
OF_SERVERS: Final = ("kill a server", "pause a server")
OF_LINKS: Final = (
    "cut a host off",
    "cut a link",
    "hold a host's links",
    "hold a host's answers",
    "slow a host's links",
)
REMOVE: Final = "remove a member"
OF_CONSOLIDATORS: Final = "kill a consolidator"
FAULTS: Final = (*OF_STORES, *OF_SERVERS, *OF_LINKS)
OF_THE_LONG_FORM: Final = (OF_CONSOLIDATORS, REMOVE)


def faults(seed: int, weather: "Weather") -> Iterator[Fault]:
    """The faults in their order: each once, and again from the beginning in another order."""
    dice = random.Random(f"{seed} faults")
    names = FAULTS if weather.many is not None else (*FAULTS, *OF_THE_LONG_FORM)
    while True:
        for name in dice.sample(names, len(names)):
            after_s, lasts_s = dice.uniform(0, 2 * weather.pace_s), dice.uniform(0.1, weather.longest_s)
            yield Fault(name, after_s, lasts_s, dice.randrange(HOSTS), dice.randrange(SERVERS))


class World:
    def __init__(self, directory: Path, soak: SharedSoak, look_s: float, *, seed: int | None = None) -> None:
        """`seed`: the users share as well, and consolidators work."""
        self._seed = seed
        self._soak = soak
        self.directory = directory
        self._ports = [free_port(CLUSTER_PORT - PORT) for _ in range(SERVERS)]
        self.hosts = [Host(number, directory / f"h{number}", look_s) for number in range(HOSTS)]
        self.servers: list[Started] = []
        self.lane = ""
        self.users_lane = ""
        """The lane that the users of all hosts share; "" if there is none."""
        self._removed: list[Membership] = []
        self._busy: set[str] = set()
        """The hosts and servers that a fault has in its hands."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        sharing = Sharing(self.hosts[0].home)
        for host in self.hosts:
            host.home.mkdir(mode=0o700)
        async with AsyncExitStack() as stack:
            self.servers = configured(sharing, self.directory, self._ports)
            for server in self.servers:
                await asyncio.to_thread(stack.enter_context, server)
            begun = [await reached(partial(sharing.new_lane, "soak", "h0"))]
            self.lane = begun[0].lane
            if self._seed is not None:
                begun.append(await sharing.new_lane("own", "h0", is_users=True))
                self.users_lane = begun[1].lane
            for host in self.hosts:
                host.links = [Link(port) for port in self._ports]
                ports = [await stack.enter_async_context(link.listening()) for link in host.links]
                for first in begun:
                    member = first
                    if host is not self.hosts[0]:
                        member = read_invitation(await sharing.invite(first.lane, f"h{host.number}"))
                    Sharing(host.home).keep(by_way_of(member, ports))
            for host in self.hosts:
                host.lane, host.users_lane = self.lane, self.users_lane
                await stack.enter_async_context(host.running())
            for host in self.hosts:
                for first in begun:
                    share = ShareProject(None if first.is_users else host.project, first.lane)
                    shared = await host.answer(share)
                    assert isinstance(shared, MemoriesMoved), shared
                self._consolidate(host)
            yield

    def _consolidate(self, host: Host) -> None:
        if self._seed is not None:
            host.consolidator.start(self._soak, random.Random(f"{self._seed} consolidator {host.number}"))

    async def break_things(self, seed: int, weather: "Weather") -> None:
        """Let faults happen, several at a time where they last: so many, or until this is cancelled."""
        under_way: set[asyncio.Task[None]] = set()
        try:
            for fault in itertools.islice(faults(seed, weather), weather.many):
                await asyncio.sleep(fault.after_s)
                task = asyncio.create_task(self._happen(fault))
                under_way.add(task)
                for done in [each for each in under_way if each.done()]:
                    under_way.discard(done)
                    done.result()
        finally:
            await asyncio.gather(*under_way)

    async def _happen(self, fault: Fault) -> None:
        name, host, server = fault.name, self.hosts[fault.host], self.servers[fault.server]
        hosts = self.hosts if name == "kill all stores" else [host]
        part = "links" if name in OF_LINKS else "consolidator" if name == OF_CONSOLIDATORS else "store"
        taken = {f"{part} {each.number}" for each in hosts}
        if name in (*OF_SERVERS, REMOVE):
            taken = {name if name == REMOVE else "servers"}
        while taken & self._busy:
            if self._seed is not None:  # the long form has others for it
                return
            await asyncio.sleep(0.05)
        self._busy |= taken
        self._soak.faults[name] += 1
        try:
            await self._break(name, hosts, server, fault)
        finally:
            self._busy -= taken

    async def _break(self, name: str, hosts: Sequence[Host], server: Started, fault: Fault) -> None:
        (host, *_), lasts = hosts, partial(asyncio.sleep, fault.lasts_s)
        links = [host.links[fault.server % len(host.links)]] if name == "cut a link" else host.links
        match name:
            case "kill a store" | "kill all stores":
                await asyncio.gather(*(each.kill() for each in hosts))
                await asyncio.gather(*(each.start() for each in hosts))
            case "kill a consolidator":
                await host.consolidator.kill()
                await lasts()
                self._consolidate(host)
            case "remove a member":
                await self._let_in_and_remove(f"guest-{self._soak.removed}")
            case "pause a store":
                host.pause()
                await lasts()
                host.pause(go_on=True)
            case "kill a server":
                await asyncio.to_thread(server.end)
                await lasts()
                await asyncio.to_thread(server.start)
            case "pause a server":
                server.pause()
                await lasts()
                server.go_on()
            case _:
                for link in links:
                    if name.startswith("cut"):
                        link.cut()
                    elif name.startswith("hold"):
                        link.hold(answers_alone=name.endswith("answers"))
                    else:
                        link.slow()
                await lasts()
                for link in links:
                    link.open()

    async def _let_in_and_remove(self, member: str) -> None:
        """Which changes the key of the lane, as soon as the servers can be reached."""
        sharing = Sharing(self.hosts[0].home)
        guest = read_invitation(await reached(partial(sharing.invite, self.lane, member)))
        await reached(partial(sharing.remove, self.lane, member))
        self._removed.append(guest)
        self._soak.removed += 1

    async def _check_removed(self) -> None:
        """No server lets in who was removed, by which it may not hear at once."""
        for guest in self._removed:
            for port in self._ports:
                try:
                    await until_refused(Sharing(self.hosts[0].home), by_way_of(guest, [port]))
                except TimeoutError:
                    self._soak.wrong.append(f"{guest.member} was removed, and the server at {port} lets it in")

    async def settle(self) -> None:
        """Return when every host has applied all that any host has, and no store runs any more.

        Raises `TimeoutError` if that does not come about.
        """
        await asyncio.gather(*(host.consolidator.kill() for host in self.hosts))
        async with asyncio.timeout(PATIENCE_S):
            await until(self._is_alike)
            while not self._end_if_alike():
                await until(self._is_alike)
        await asyncio.gather(*(host.kill() for host in self.hosts))
        await self._check_removed()

    async def _is_alike(self) -> bool:
        """True if every host has applied all that any host has."""
        positions = set[tuple[str, int]]()
        for host in self.hosts:
            try:
                described = await host.ask(DescribeLanes(), ANSWER_S)
            except AWAY:
                return False
            assert not isinstance(described, Failure), described
            for state in described:
                if state.code not in (None, JournalAway.code, KeyMissing.code):  # those two wait
                    self._soak.wrong.append(f"host {host.number} has stopped: {state.problem}")
                    raise TimeoutError
                positions.add((state.lane, state.position))
                if state.problem:
                    return False
        return len(positions) == len(self._lanes)

    @property
    def _lanes(self) -> list[str]:
        return [self.lane, self.users_lane] if self.users_lane else [self.lane]

    def _end_if_alike(self) -> bool:
        """Pause all stores. If one has meanwhile revived a memory that was shown, they go on."""
        for host in self.hosts:
            host.pause()
        positions = set[tuple[str, int]]()
        for host, lane in itertools.product(self.hosts, self._lanes):
            with host.read_space(lane) as file:
                positions.update((lane, row[0]) for row in file.execute("SELECT position FROM lane"))
        is_alike = len(positions) == len(self._lanes)
        if not is_alike:
            for host in self.hosts:
                host.pause(go_on=True)
        return is_alike

    def compare(self, sessions: Sequence[tuple[Host, Session]]) -> None:
        for lane in self._lanes:
            dumps = [dump_of(host.database, lane) for host in self.hosts]
            for number, dump in enumerate(dumps[1:], start=1):
                differing = [(ours, theirs) for ours, theirs in itertools.zip_longest(dumps[0], dump) if ours != theirs]
                for ours, theirs in differing[:3]:
                    self._soak.wrong.append(f"hosts 0 and {number} differ in {len(differing)} rows: {ours} is {theirs}")
            with self.hosts[0].read_space(lane) as file:
                self._compare_histories(file)
        for host in self.hosts:
            answered = [each for owner, session in sessions if owner is host for each in session.answered]
            self._compare_answers(host, answered)

    def _compare_histories(self, file: sqlite3.Connection) -> None:
        versions: dict[str, list[int]] = {}
        for known, version in file.execute("SELECT memory_id, version FROM history ORDER BY memory_id, version"):
            versions.setdefault(known, []).append(version)
        for known, version in file.execute("SELECT id, version FROM memories"):
            there = versions.pop(known, [])
            # Of one that came from a session those versions are not here which it had there.
            if not there or there != list(range(there[0], version + 1)):
                self._soak.wrong.append(f"{known} is at version {version}, and its history has {there}")
        for (known,) in file.execute("SELECT id FROM memories JOIN erased ON memory_id = id"):
            self._soak.wrong.append(f"{known} was erased, and is there")
        for known, there in versions.items():
            self._soak.wrong.append(f"{known} is not there, and its history has {there}")
        for known, version in file.execute(
            """SELECT memory_id, version FROM (SELECT memory_id, version, changed_at,
               lag(changed_at) OVER (PARTITION BY memory_id ORDER BY version) AS before FROM history)
               WHERE changed_at < before"""
        ):
            self._soak.wrong.append(f"version {version} of {known} is older than the one before it")

    def _compare_answers(self, host: Host, answered: Sequence[Answered]) -> None:
        """Each acknowledged operation of a host is there, and has one version; what was refused has none."""
        applied: Counter[str] = Counter()
        versions: Counter[tuple[str, str]] = Counter()
        own: Counter[tuple[str, str]] = Counter()
        """Of the time before a memory was given to the project by its session: that stays with the host."""
        erased: set[str] = set()
        ids: dict[str, str] = {}
        """The id of each memory that is there, by that and by the others under which it is found."""
        memories: dict[str, float] = {}
        """The time at which each of those in a lane was made, by its id."""
        for space in host.spaces(self.lane):
            with host.read_space(space) as file:
                applied.update(row[0] for row in file.execute("SELECT operation_id FROM applied_operations"))
                erased.update(row[0] for row in file.execute("SELECT memory_id FROM erased"))
                ids |= file.execute("SELECT alias, id FROM aliases JOIN memories ON number = memory").fetchall()
                ids |= file.execute("SELECT id, id FROM memories").fetchall()
                is_lane = space.startswith("l_")
                history = Counter(file.execute("SELECT memory_id, operation_id FROM history").fetchall())
                if is_lane:
                    versions |= history  # what was promoted while this host was by itself is in two of them
                    memories |= file.execute("SELECT id, created_at FROM memories").fetchall()
                else:
                    own |= history
        places: dict[str, set[str]] = {}
        """The memories that an operation has made a version of. What a host that had left has changed may be there
        under another id, beside what the others have."""
        for place, name in (*versions, *own):
            places.setdefault(name, set()).add(place)
        in_project = {
            known
            for operation, reply in answered
            if reply is not None and isinstance(operation.change, StoreMemory) and operation.change.scope != "session"
            if (known := getattr(reply.result, "memory_id", None)) in memories
        }
        for operation, reply in answered:
            known, name = memory_id_of(operation.change), operation.operation_id
            count = versions[known or "", name] or own[known or "", name]
            if reply is None:
                # What was applied without an answer and then erased is refused when it is asked for again; a host that
                # had left may have brought its copy back, under an id apart.
                if name in places and (known not in erased or known in places[name]):
                    self._soak.wrong.append(f"{name} was refused, and has changed {known}")
            elif not applied[name] and erased.isdisjoint((known, getattr(reply.result, "memory_id", None))):
                # With a memory the answers about it are erased, by whichever id it was asked for.
                self._soak.wrong.append(f"{name} was acknowledged, and is nowhere: {operation.change}")
            elif count > 1 + bool(getattr(operation.change, "add_links", ())) or (  # links make a version of their own
                # What a host by itself has erased, the others still have: of that time there is nothing. What it has
                # changed without another text came back under an id apart, and was stored again: no version has it.
                known is not None
                and known in in_project - erased
                and _makes_a_version(operation, reply)
                and name not in places
                and not any(
                    apart in erased or ids.get(apart, apart) != apart
                    for each in applied
                    for apart in [derive_memory_id(f"{known} {each}", memories[known])]
                )
            ):
                self._soak.wrong.append(
                    f"{name} was acknowledged, and has {count} versions of {known}: {operation.change}"
                )
            if reply is not None and isinstance(reply.result, RunResult):
                said = Counter(ids[each] for each in _made_by(operation, reply.result) if each in ids)
                for each, count in said.items():
                    there = versions[each, name] or own[each, name]
                    is_elsewhere = each in erased or places.get(name, set()) - said.keys()
                    if there > count or (there < count and not is_elsewhere):
                        self._soak.wrong.append(f"{name} says to have made {count} versions of {each}, and has {there}")


def _made_by(operation: Operation, result: RunResult) -> list[str]:
    """The memories that a part of a run says to have made or revised, once for each time."""
    assert isinstance(operation.change, ApplyRun)
    made = [
        (edit.memory.id if isinstance(edit, AddMemory) else edit.memory_id, type(edit).__name__)
        for edit in operation.change.edits
        if isinstance(edit, AddMemory | ReviseMemory)
    ]
    for skipped in result.skipped:
        if (skipped.memory_id, skipped.edit) in made:
            made.remove((skipped.memory_id, skipped.edit))
    return [memory_id for memory_id, _ in made]


def _makes_a_version(operation: Operation, reply: Applied) -> bool:
    match operation.change:
        case StoreMemory(memory_id=known, scope="project" | "user"):
            return getattr(reply.result, "memory_id", None) == known and not getattr(reply.result, "already_known", 0)
        case UpdateMemory():
            return bool(getattr(reply.result, "updated_fields", ()))
        case TagMemory():
            return True  # each has a tag that nobody else gives
        case _:
            return False


class Weather(NamedTuple):
    """The pace of a soak: the pause between two changes of a session and between two faults, on average, the longest
    time that a fault lasts, and how many there are. None is the long form: until the sessions have ended, with
    consolidators, users who share as well, and members that are removed."""

    pause_s: float
    pace_s: float
    longest_s: float
    many: int | None = None


def by_way_of(member: Membership, ports: Sequence[int]) -> Membership:
    """A membership whose servers are reached at these ports of this machine."""
    urls = tuple(f"nats://{LOOPBACK}:{port}" for port in ports)
    return msgspec.structs.replace(member, server=msgspec.structs.replace(member.server, urls=urls))


async def run(
    seed: int, operations: int, sessions: int, weather: Weather, *, look_s: float, root: Path = ROOT_OF_FILES
) -> SharedSoak:
    """One soak in homes of its own: so many `operations` of each host, by so many sessions; work is looked for every
    `look_s`."""
    soak, began = SharedSoak(seed), time.monotonic()
    is_long, each_asks = weather.many is None, operations // sessions
    directory = Path(tempfile.mkdtemp(prefix="rmb-", dir=root))
    world = World(directory, soak, look_s, seed=seed if is_long else None)
    try:
        async with world.running():
            crew = [
                (host, Session(each, host, soak, asked, seed))
                for host in world.hosts
                for each in range(sessions)
                for asked in [plan(seed, host.number, each, each_asks, sessions, users_share=is_long)]
            ]
            breaking = asyncio.create_task(world.break_things(seed, weather))
            try:
                await asyncio.gather(*(session.work(weather.pause_s) for _, session in crew))
                if not is_long:
                    await breaking
            finally:
                breaking.cancel()
                with suppress(asyncio.CancelledError):
                    await breaking
            try:
                await world.settle()
            except TimeoutError:
                soak.wrong.append("the hosts do not agree in time")
        world.compare(crew)
    except BaseException:
        print(f"what is left: {world.directory}", file=sys.stderr)
        raise
    soak.end(began, world.directory)
    return soak
