"""A shared lane while everything breaks: `python -m tests.faults.soak --journal [--operations N]`.

Three NATS servers and four hosts: store processes with homes of their own, each reaching the servers over links of its
own, their clocks ten minutes apart. They share a project. Sessions of each host change its memories at random, their
own and each other's, while stores and servers are killed or paused, and links are cut, hold back what is sent or
answered, or are slow.
What is not answered, or may be tried again, a session sends again under the same id, as the write queue does.

At the end every host's lane has the same rows to the last byte, each acknowledged operation is there once, what was
refused left nothing, no history has a gap, and nothing erased is there. What the sessions ask for and what breaks when
follows from the seed; how that falls together does not.
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

from remembrancer.config.settings import Settings
from remembrancer.journal.server_config import CLUSTER_PORT, PORT
from remembrancer.journal.sharing import Membership, Sharing, read_invitation
from remembrancer.protocol.control import StoreHealth
from remembrancer.protocol.errors import Failure, JournalAway, KeyMissing
from remembrancer.protocol.ids import new_ulid
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.sharing import DescribeLanes, MemoriesMoved, OthersWrote, ShareProject
from remembrancer.protocol.sockets import Dealer
from remembrancer.protocol.store_client import AWAY
from remembrancer.protocol.wire import Request
from remembrancer.protocol.writes import (
    Applied,
    BatchApplied,
    Change,
    EntityRef,
    EraseMemory,
    ForgetMemory,
    InvalidateMemory,
    LinkRef,
    Operation,
    ProjectRef,
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
from tests.conftest import DISK, ROOT_OF_FILES
from tests.faults.soak import Figures
from tests.links import Link
from tests.nats_servers import Started, configured, reached
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
BATCH: Final = 12
CONTENDED: Final = 0.15
"""The share of changes that are about one of a few memories, which all hosts change all the time."""
LOOPBACK: Final = "127.0.0.1"

T = TypeVar("T")


class SharedSoak(Figures):
    """The figures of a run with a lane."""

    hosts: int = HOSTS
    operations: int = 0
    acknowledged: int = 0
    refused: Counter[str] = msgspec.field(default_factory=Counter)
    changes: Counter[str] = msgspec.field(default_factory=Counter)
    """The operations that were acknowledged, by what they change."""
    faults: Counter[str] = msgspec.field(default_factory=Counter)


# Hosts


class Host:
    """A home with a project, and its store, which is killed and started again."""

    def __init__(self, number: int, home: Path) -> None:
        self.number, self.home = number, home
        self.project = ProjectRef(f"p_{number:012x}", f"/work/host-{number}")
        self.ahead_s = APART_S * number
        self.links: list[Link] = []
        self.lane = ""
        self._launcher = Launcher(home)
        self._dealer: Dealer[OthersWrote] = Dealer(
            RuntimePaths(home).store_endpoint,
            Apart("gateway", new_ulid(), self.ahead_s),
            msgspec.msgpack.Decoder(OthersWrote),
        )
        self._store: Launched | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The store and the sockets of its peers."""
        paths = RuntimePaths(self.home)
        for directory in (paths.run, paths.logs):
            directory.mkdir(mode=0o700)
        async with self._launcher, self._dealer:
            try:
                await self.start()
                yield
            finally:
                await self.kill()

    async def start(self) -> None:
        self._store = Launched("store", self.home, Settings(), {}, self.ahead_s)
        await self._launcher.expect(StoreHealth)

    async def kill(self) -> None:
        """`kill -9`, unless that is done."""
        store, self._store = self._store, None
        if store is not None:
            await store.kill()

    def pause(self, *, go_on: bool = False) -> None:
        """Stop the store where it is, or have it go on."""
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


# Sessions


def plan(seed: int, host: int, session: int, count: int, sessions: int) -> list[Change]:
    """The changes that a session asks for, one after the other.

    It knows by their numbers the memories that others store, whether they are there yet or not.
    """
    dice = random.Random(f"{seed} {host} {session}")
    deeds: list[Change] = []
    stored = 0

    def some() -> str:
        if dice.random() < CONTENDED:
            return memory_id(dice.randrange(HOSTS), 0, 0)
        at = (host, session) if dice.random() < 0.4 else (dice.randrange(HOSTS), dice.randrange(sessions))
        return memory_id(*at, dice.randrange(max(1, stored)))

    def store() -> Change:
        nonlocal stored
        stored += 1
        text = f"note {host} {session} {stored} about a lamp"
        if dice.random() < 0.1:  # some are the same
            text = f"fact {dice.randrange(9)} {dice.choice(['burns oil', 'burns Oil.'])}"
        links = (some(),) if dice.random() < 0.2 else ()
        return StoreMemory(
            memory_id=memory_id(host, session, stored - 1),
            content=text,
            type=dice.choice(["episodic", "semantic", "procedural"]),
            scope="project",
            session_id=session_id(host, session),
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

    made: dict[Callable[[], Change], int] = {
        store: 300,
        update: 180,
        lambda: TagMemory(some(), (f"tag-{host}-{session}-{len(deeds)}",), (f"tag-{dice.randrange(5)}",)): 140,
        lambda: ForgetMemory(some(), "of no use"): 80,
        lambda: RestoreMemory(some(), dice.choice([None, None, 1, 2])): 80,
        lambda: UndoChange(some(), dice.choice([None, None, 2, 3])): 60,
        lambda: InvalidateMemory(some(), "it moved", dice.choice([None, some()])): 40,
        lambda: EraseMemory(some()): 30,
    }
    while len(deeds) < count:
        (deed,) = dice.choices(list(made), list(made.values()))
        deeds.append(deed())
    return deeds


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

    def __init__(self, number: int, host: Host, soak: SharedSoak, deeds: Sequence[Change], seed: int) -> None:
        self._host, self._soak, self._deeds = host, soak, deeds
        self._id = session_id(host.number, number)
        self._dice = random.Random(f"{seed} {self._id}")
        self.answered: list[Answered] = []

    async def work(self, pause_s: float) -> None:
        waiting = list(enumerate(self._deeds))
        while waiting:
            count = self._dice.randint(2, BATCH) if self._dice.random() < 0.1 else 1
            some, waiting = waiting[:count], waiting[count:]
            operations = [
                Operation(f"op-{self._id}-{number}", self._host.project, self._id, self._host.time(), deed)
                for number, deed in some
            ]
            if len(operations) > 1:
                operations = await self._send_together(operations)
            for operation in operations:
                answer = await self._host.answer(Submit(operation), ANSWER_S)
                assert isinstance(answer, Applied | Failure), answer
                self._note(operation, answer)
            await asyncio.sleep(self._dice.uniform(0, 2 * pause_s))

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


RIGHTLY: Final = frozenset({"not_found", "memory_not_found", "invalid_input", "conflict"})
"""The refusals of what was asked for at random: of a memory that is not there, or was forgotten or erased."""


# Faults


class Fault(NamedTuple):
    """Something that breaks after a pause, for a time."""

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
FAULTS: Final = (*OF_STORES, *OF_SERVERS, *OF_LINKS)


def faults(seed: int, weather: "Weather") -> Iterator[Fault]:
    """The faults in their order: each once, and again from the beginning in another order."""
    dice = random.Random(f"{seed} faults")
    while True:
        for name in dice.sample(FAULTS, len(FAULTS)):
            after_s, lasts_s = dice.uniform(0, 2 * weather.pace_s), dice.uniform(0.1, weather.longest_s)
            yield Fault(name, after_s, lasts_s, dice.randrange(HOSTS), dice.randrange(SERVERS))


class World:
    def __init__(self, directory: Path, soak: SharedSoak, *, is_long: bool) -> None:
        self._is_long = is_long
        self._soak = soak
        self.directory = directory
        self._ports = [free_port(CLUSTER_PORT - PORT) for _ in range(SERVERS)]
        self.hosts = [Host(number, directory / f"h{number}") for number in range(HOSTS)]
        self.servers: list[Started] = []
        self.lane = ""
        self._busy: set[str] = set()
        """The hosts and servers that a fault has in its hands."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Everything is up, and every host shares its project."""
        sharing = Sharing(self.hosts[0].home)
        for host in self.hosts:
            host.home.mkdir(mode=0o700)
        async with AsyncExitStack() as stack:
            self.servers = configured(sharing, self.directory, self._ports)
            for server in self.servers:
                await asyncio.to_thread(stack.enter_context, server)
            first = await reached(partial(sharing.new_lane, "soak", "h0"))
            self.lane = first.lane
            for host in self.hosts:
                host.links = [Link(port) for port in self._ports]
                ports = [await stack.enter_async_context(link.listening()) for link in host.links]
                member = first
                if host is not self.hosts[0]:
                    member = read_invitation(await sharing.invite(self.lane, f"h{host.number}"))
                Sharing(host.home).keep(by_way_of(member, ports))
            for host in self.hosts:
                host.lane = self.lane
                await stack.enter_async_context(host.running())
            for host in self.hosts:
                shared = await host.answer(ShareProject(host.project, self.lane))
                assert isinstance(shared, MemoriesMoved), shared
            yield

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
        part = "links" if name in OF_LINKS else "store"
        taken = {"servers"} if name in OF_SERVERS else {f"{part} {each.number}" for each in hosts}
        while taken & self._busy:
            if self._is_long:  # which has others for it
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

    async def settle(self) -> None:
        """Return when every host has applied all that any host has, and no store runs any more.

        Raises `TimeoutError` if that does not come about.
        """
        await until(self._is_alike)
        await asyncio.gather(*(host.kill() for host in self.hosts))

    async def _is_alike(self) -> bool:
        positions = set[int]()
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
                positions.add(state.position)
                if state.problem:
                    return False
        return len(positions) == 1

    def compare(self, sessions: Sequence[tuple[Host, Session]]) -> None:
        """Hold the files to each other, and to what was acknowledged."""
        dumps = [dump_of(host.database, self.lane) for host in self.hosts]
        for number, dump in enumerate(dumps[1:], start=1):
            differing = [(ours, theirs) for ours, theirs in itertools.zip_longest(dumps[0], dump) if ours != theirs]
            for ours, theirs in differing[:3]:
                self._soak.wrong.append(f"hosts 0 and {number} differ in {len(differing)} rows: {ours} is {theirs}")
        with self.hosts[0].read_space(self.lane) as file:
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
        with host.read_space(self.lane) as file:
            applied = {row[0] for row in file.execute("SELECT operation_id FROM applied_operations")}
            erased = {row[0] for row in file.execute("SELECT memory_id FROM erased")}
            versions = Counter(file.execute("SELECT memory_id, operation_id FROM history").fetchall())
        places: dict[str, set[str]] = {}
        """The memories that an operation has made a version of."""
        for place, name in versions:
            places.setdefault(name, set()).add(place)
        for operation, reply in answered:
            known, name = memory_id_of(operation.change), operation.operation_id
            # With a memory the answers about it are erased, by whichever id it was asked for.
            is_erased = known in erased or (reply is not None and getattr(reply.result, "memory_id", None) in erased)
            if reply is None:
                # What was applied without an answer and then erased is refused when it is asked for again.
                if name in places and (not is_erased or known in places[name]):
                    self._soak.wrong.append(f"{name} was refused, and has changed {known}")
            elif name not in applied and not is_erased:
                self._soak.wrong.append(f"{name} was acknowledged, and is nowhere: {operation.change}")
            elif versions[known, name] > 1 or (
                not is_erased and _makes_a_version(operation, reply) and name not in places
            ):
                count = versions[known, name]
                self._soak.wrong.append(
                    f"{name} was acknowledged, and has {count} versions of {known}: {operation.change}"
                )


def _makes_a_version(operation: Operation, reply: Applied) -> bool:
    match operation.change:
        case StoreMemory(memory_id=known):
            return getattr(reply.result, "memory_id", None) == known and not getattr(reply.result, "already_known", 0)
        case UpdateMemory():
            return bool(getattr(reply.result, "updated_fields", ()))
        case TagMemory():
            return True  # each has a tag that nobody else gives
        case _:
            return False


class Weather(NamedTuple):
    """The pace of a soak: the pause between two changes of a session and between two faults, on average, the longest
    time that a fault lasts, and how many there are. None is the long form: until the sessions have ended."""

    pause_s: float
    pace_s: float
    longest_s: float
    many: int | None = None


async def run_long(seed: int, operations: int, sessions: int, pace_s: float) -> SharedSoak:
    """The long form: faults as long as the sessions work, some of them longer than the journal is waited for."""
    weather = Weather(0.05, pace_s, 8.0)
    return await run(seed, operations, sessions, weather, root=DISK)


def by_way_of(member: Membership, ports: Sequence[int]) -> Membership:
    """A membership whose servers are reached at these ports of this machine."""
    urls = tuple(f"nats://{LOOPBACK}:{port}" for port in ports)
    return msgspec.structs.replace(member, server=msgspec.structs.replace(member.server, urls=urls))


async def run(seed: int, operations: int, sessions: int, weather: Weather, *, root: Path = ROOT_OF_FILES) -> SharedSoak:
    """One soak in homes of its own: so many `operations` of each host, by so many sessions."""
    soak, began = SharedSoak(seed), time.monotonic()
    is_long, each_asks = weather.many is None, operations // sessions
    directory = Path(tempfile.mkdtemp(prefix="rmb-", dir=root))
    world = World(directory, soak, is_long=is_long)
    try:
        async with world.running():
            crew = [
                (host, Session(each, host, soak, asked, seed))
                for host in world.hosts
                for each in range(sessions)
                for asked in [plan(seed, host.number, each, each_asks, sessions)]
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
