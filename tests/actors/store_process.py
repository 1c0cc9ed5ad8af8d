"""A real store process, and the real sockets of those who talk to it: launcher, gateway and workers."""

import asyncio
import hashlib
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Self, TypeVar

import anyio
import msgspec
import numpy as np

from remembrancer.actors.actor_process import LaunchSpec
from remembrancer.actors.store.records.types import Vectors
from remembrancer.config.settings import Settings, model_choices
from remembrancer.config.worker_keys import Invitation
from remembrancer.protocol.control import (
    PeerGone,
    Ping,
    ProcessHealth,
    Role,
    Stop,
    StoreHealth,
    ToLauncher,
    to_launcher,
)
from remembrancer.protocol.errors import DeadlineExceeded, Failure, InternalError
from remembrancer.protocol.ids import new_ulid
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.reads import (
    AwaitEmbedding,
    DescribeStore,
    EmbeddingState,
    GetMemory,
    MemoryShown,
    Recall,
    Recalled,
    RecalledMemory,
    StoreDescription,
)
from remembrancer.protocol.sharing import OthersWrote
from remembrancer.protocol.sockets import CurveKeys, Dealer, Peer, Reply, Router, Speaker, T, unless_refused
from remembrancer.protocol.wire import Envelope, Notice, Request
from remembrancer.protocol.work import (
    AskWorker,
    EmbeddedText,
    EmbedQuery,
    EmbedText,
    ModelChoice,
    ModelIdentity,
    Passage,
    ToWorker,
    WorkerState,
    to_worker,
)
from remembrancer.protocol.writes import Applied, BatchApplied, Change, Operation, ProjectRef, Submit, SubmitBatch
from tests.forked import ForkedProcess, run_actor
from tests.operations import PROJECT, SESSION, change_operation, memory_id_of, store_operation
from tests.patience import PATIENCE_S, until
from tests.spaces import rows_of

REQUEST_S = PATIENCE_S
"""What the store is given for an answer."""
START_S = PATIENCE_S
Answer = TypeVar("Answer")


class Launched:
    """A child process and the end of the pipe that it lives by."""

    def __init__(
        self, role: Role, home: Path, settings: Settings, constants: Mapping[str, object], ahead_s: float = 0.0
    ) -> None:
        self.spec = LaunchSpec(
            role=role, name=role, incarnation=new_ulid(), home=str(home), settings=settings, threads=2
        )
        self.process = ForkedProcess(run_actor, role, constants, ahead_s)
        self.process.stdin.write(msgspec.json.encode(self.spec) + b"\n")

    async def kill(self) -> None:
        self.process.kill()
        await self.ended()

    async def ended(self) -> int:
        with anyio.fail_after(START_S):
            code = await asyncio.to_thread(self.process.wait)
        self.process.stdin.close()
        return code


class Launcher:
    def __init__(self, home: Path) -> None:
        self.heard: list[ToLauncher] = []
        self._peers: dict[str, Peer] = {}
        self._router: Router[ToLauncher] = Router(
            RuntimePaths(home).control_endpoint, Speaker("launcher", new_ulid()), to_launcher, self._hear
        )

    def _hear(self, peer: Peer, envelope: Envelope, message: ToLauncher) -> None:
        self._peers[peer.incarnation] = peer
        self.heard.append(message)

    async def expect(self, kind: type[Answer]) -> Answer:
        message: Answer = await until(lambda: next((each for each in self.heard if isinstance(each, kind)), None))
        self.heard.remove(message)  # type: ignore[arg-type]
        return message

    async def tell(self, child: Launched, message: Stop | PeerGone) -> None:
        assert self._router.send(self._peers[child.spec.incarnation], message)

    async def health_of(self, child: Launched) -> ProcessHealth | None:
        return await self._router.ask(self._peers[child.spec.incarnation], Ping(), timeout_s=START_S)

    async def __aenter__(self) -> Self:
        await self._router.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._router.aclose()


LATE_S: Final = PATIENCE_S / 5
"""An answer that has not come so long after its time does not come: the peer, held up itself, has read the question
when that time was over, and such a question is not worked on."""


class Apart(Speaker):
    """Tells deadlines that are later than its own by so much: as by a clock that is ahead."""

    def __init__(self, name: str, incarnation: str, later_s: float) -> None:
        super().__init__(name, incarnation)
        self._later_s = later_s

    def envelope(self, *, timeout_s: float | None = None, **fields: Any) -> Envelope:
        return super().envelope(timeout_s=None if timeout_s is None else timeout_s + self._later_s, **fields)


class PatientDealer(Dealer[OthersWrote]):
    """The peer has to answer within `timeout_s`, as it is told; that its answer is on its way for longer, or is read
    late, on a machine that stalls, is no error. What it reads too late it is asked again: it has to bear that."""

    def __init__(self, endpoint: str, speaker: Speaker) -> None:
        told = Apart(speaker.name, speaker.incarnation, -LATE_S)
        super().__init__(endpoint, told, msgspec.msgpack.Decoder(OthersWrote))

    async def exchange(self, question: Request[T], *, timeout_s: float | None, to: bytes = b"") -> Reply[T | Failure]:
        assert timeout_s is not None
        give_up_at = time.monotonic() + timeout_s + PATIENCE_S
        while True:
            try:
                return await super().exchange(question, timeout_s=timeout_s + LATE_S)
            except DeadlineExceeded:
                if time.monotonic() + timeout_s > give_up_at:
                    raise


class Gateway:
    """Asks the store as the gateway does, or another peer of that `name`. A refusal is raised as the error that it
    names."""

    def __init__(self, home: Path, name: str = "gateway") -> None:
        self.speaker = Speaker(name, new_ulid())
        self.dealer = PatientDealer(RuntimePaths(home).store_endpoint, self.speaker)
        self._stored = 0
        self.notices: tuple[Notice, ...] = ()
        """The caveats of the last answer."""

    async def ask(self, request: Request[Answer], timeout_s: float = REQUEST_S) -> Answer:
        """The answer, which the store has to give within `timeout_s`."""
        assert await self.dealer.wait_connected(START_S)
        reply = await self.dealer.exchange(request, timeout_s=timeout_s)
        self.notices = reply.notices
        return unless_refused(reply.body)

    async def submit(self, operation: Operation) -> Applied:
        return await self.ask(Submit(operation))

    async def submit_batch(self, *operations: Operation) -> BatchApplied:
        return await self.ask(SubmitBatch(operations))

    async def store(self, content: str, **fields: Any) -> str:
        self._stored += 1
        fields.setdefault("requested_at", time.time())
        operation = store_operation(f"{content[:40]}-{self._stored}", content, **fields)
        await self.submit(operation)
        return memory_id_of(operation)

    async def recall(
        self, query: str, *, project: ProjectRef = PROJECT, session_id: str = SESSION, **fields: Any
    ) -> Recalled:
        return await self.ask(Recall(session_id, project=project, query=query, **fields))

    async def found(self, query: str, **fields: Any) -> list[str]:
        return [memory.id for memory in (await self.recall(query, **fields)).memories]

    async def describe(self, project: ProjectRef = PROJECT) -> StoreDescription:
        return await self.ask(DescribeStore(project, SESSION))

    async def embedding_of(self, memory_id: str) -> EmbeddingState:
        return await self.ask(AwaitEmbedding(PROJECT, SESSION, memory_id))

    async def until(self, condition: Callable[[StoreDescription], bool], project: ProjectRef = PROJECT) -> None:
        async def is_so() -> bool:
            return condition(await self.describe(project))

        await until(is_so)

    async def show(self, memory_id: str, *, project: ProjectRef = PROJECT, session_id: str = SESSION) -> MemoryShown:
        return await self.ask(GetMemory(project, session_id, memory_id))

    async def change(self, change: Change, name: str = "", **fields: Any) -> Any:
        self._stored += 1
        operation = change_operation(name or f"change-{self._stored}", change, **fields)
        return (await self.submit(operation)).result

    async def until_embedded(self, project: ProjectRef = PROJECT) -> None:
        await self.until(lambda now: now.embedding.pending == 0, project)

    async def __aenter__(self) -> Self:
        await self.dealer.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        with anyio.CancelScope(shield=True):
            await self.dealer.aclose()


def the(memories: tuple[RecalledMemory, ...], memory_id: str) -> RecalledMemory:
    (found,) = [memory for memory in memories if memory.id == memory_id]
    return found


DIMENSIONS = 64
IDENTITY = ModelIdentity("onnx", "words", "0123456789abcdef", "float32", DIMENSIONS, 256)
SETTINGS = Settings()
CHOICE, _ = model_choices(SETTINGS)
PASSAGE_WORDS = 20


def vector_of(text: str, salt: str = "") -> Vectors:
    """A unit vector that is the sum of its words' own directions: texts that share words are near each other."""
    total = np.zeros(DIMENSIONS, dtype=np.float32)
    for word in re.findall(r"\w+", text.lower()) or ["?"]:
        seed = int.from_bytes(hashlib.sha256((salt + word).encode()).digest()[:8])
        total += np.random.default_rng(seed).standard_normal(DIMENSIONS).astype(np.float32)
    unit: Vectors = (total / np.linalg.norm(total)).astype("<f4")
    return unit


class Job(NamedTuple):
    message_id: int
    text: str


@dataclass(eq=False)
class Worker:
    """A worker with a model of its own making, honest unless it is told otherwise."""

    home: Path
    name: str = "embedder-1"
    credit: int = 16
    identity: ModelIdentity = IDENTITY
    choice: ModelChoice = CHOICE
    holds: bool = False
    """Takes texts and does not answer them."""
    endpoint: str = ""
    keys: CurveKeys | None = None
    refuses: Callable[[str], bool] = lambda text: False
    garbles: Callable[[bytes], bytes] = lambda vectors: vectors
    jobs: list[Job] = field(default_factory=list)
    """All texts that it was ever given."""
    questions: list[str] = field(default_factory=list)
    asked: list[Failure] = field(default_factory=list)
    pings: int = 0

    def __post_init__(self) -> None:
        self.speaker = Speaker(self.name, new_ulid())
        at = self.endpoint or RuntimePaths(self.home).store_endpoint
        self.dealer: Dealer[ToWorker] = Dealer(at, self.speaker, to_worker, on_message=self._hear, keys=self.keys)
        self._outbox: asyncio.Queue[tuple[object, int | None]] = asyncio.Queue()

    def _hear(self, message: ToWorker) -> None:
        match message:
            case EmbedText(text=text):
                self.jobs.append(job := Job(self.dealer.heard.message_id, text))
                if not self.holds:
                    self.answer([job])
            case EmbedQuery(text=text):
                self.questions.append(text)
                vector = vector_of(text, self.identity.model).tobytes()
                self.say(self.garbles(vector), self.dealer.heard.message_id)
            case AskWorker():
                self.pings += 1
                self.say(self.state, self.dealer.heard.message_id)
            case Failure():
                self.asked.append(message)

    def answer(self, jobs: list[Job]) -> None:
        for job in jobs:
            if self.refuses(job.text):
                self.say(InternalError("the worker will not").to_failure(), job.message_id)
                continue
            spans = [match.span() for match in re.finditer(rf"(?:\S+\s*){{1,{PASSAGE_WORDS}}}", job.text)]
            spans = spans or [(0, len(job.text))]
            vectors = np.vstack([vector_of(job.text[start:end], self.identity.model) for start, end in spans])
            passages = tuple(Passage(*span) for span in spans)
            self.say(EmbeddedText(passages, self.garbles(vectors.tobytes())), job.message_id)

    def say(self, message: object, in_reply_to: int | None = None) -> None:
        self._outbox.put_nowait((message, in_reply_to))

    def announce(self) -> None:
        self.say(self.state)

    @property
    def state(self) -> WorkerState:
        return WorkerState(self.choice, self.identity, self.credit)

    def fail(self, reason: str) -> None:
        self.say(WorkerState(self.choice, error=reason))

    def leave(self) -> None:
        self.say(WorkerState(self.choice, is_leaving=True))

    async def _send(self) -> None:
        while True:
            message, in_reply_to = await self._outbox.get()
            self.dealer.send(message, in_reply_to=in_reply_to)  # a store that comes back gives its texts anew

    async def __aenter__(self) -> Self:
        await self.dealer.__aenter__()
        assert await self.dealer.wait_connected(START_S)
        self._sending = asyncio.create_task(self._send())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._sending.cancel()
        await asyncio.gather(self._sending, return_exceptions=True)
        await self.dealer.aclose()


@dataclass
class StoreRig:
    """A home with a store in it, which may be killed and started again, and its peers."""

    home: Path
    launcher: Launcher
    gateway: Gateway
    stack: AsyncExitStack
    settings: Settings
    constants: Mapping[str, object]
    store: Launched = field(init=False)

    def __post_init__(self) -> None:
        self.paths = RuntimePaths(self.home)
        self._launched: list[Launched] = []

    def launch(self, role: Role) -> Launched:
        child = Launched(role, self.home, self.settings, self.constants)
        self._launched.append(child)
        return child

    async def start(self) -> None:
        self.store = self.launch("store")
        await self.launcher.expect(StoreHealth)

    async def stop(self) -> int:
        await self.launcher.tell(self.store, Stop("the test says so", 10.0))
        return await self.store.ended()

    async def restart(self) -> None:
        await self.store.kill()
        await self.start()

    async def worker(self, name: str = "embedder-1", **options: Any) -> Worker:
        worker = await self.stack.enter_async_context(Worker(self.home, name, **options))
        before = (await self.gateway.describe()).embedding.workers
        worker.announce()
        await self.gateway.until(lambda now: now.embedding.workers > before)
        return worker

    async def remote_worker(self, invitation: Invitation, **options: Any) -> Worker:
        remote = (await self.health()).remote
        assert remote is not None, remote
        options.setdefault("keys", invitation.keys)
        worker = await self.stack.enter_async_context(
            Worker(self.home, invitation.name, endpoint=remote.address, **options)
        )
        worker.announce()
        return worker

    async def health(self) -> StoreHealth:
        health = await self.launcher.health_of(self.store)
        assert isinstance(health, StoreHealth)
        return health

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return rows_of(self.paths.database, query)

    def log(self) -> str:
        return (self.paths.logs / "store.log").read_text()

    async def end(self) -> None:
        died = []
        for child in self._launched:
            code = child.process.poll()
            if code is None:
                await child.kill()
            elif not child.process.stdin.closed:
                child.process.stdin.close()
                died.append(f"the {child.spec.role} ended by itself, with {code}:\n{self.log()[-5000:]}")
        assert not died, "\n".join(died)


@asynccontextmanager
async def store_rig(
    home: Path,
    *,
    settings: Settings = SETTINGS,
    constants: Mapping[str, object] = MappingProxyType({}),
) -> AsyncIterator[StoreRig]:
    """A home, its launcher's and its gateway's sockets, and its store. `constants`: see `run_actor`."""
    paths = RuntimePaths(home)
    for directory in (paths.run, paths.logs):
        directory.mkdir(mode=0o700, exist_ok=True)
    async with AsyncExitStack() as stack:
        launcher = await stack.enter_async_context(Launcher(home))
        gateway = await stack.enter_async_context(Gateway(home))
        rig = StoreRig(home, launcher, gateway, stack, settings, dict(constants))
        stack.push_async_callback(rig.end)
        await rig.start()
        yield rig


async def chronicle(rig: StoreRig, count: int) -> list[str]:
    """Store texts of which none is taken for a newer state of another one, so that each stands first in its search."""
    return [await rig.gateway.store(f"word{n} of the chronicle{n}") for n in range(count)]


async def assert_chronicle_is_found(rig: StoreRig, ids: list[str]) -> None:
    for place in range(0, len(ids), 7):
        answer = await rig.gateway.recall(f"word{place} of the chronicle{place}", strategy="vector")
        assert answer.memories[0].id == ids[place]
        assert (answer.strategy_used, rig.gateway.notices) == ("vector", ())
