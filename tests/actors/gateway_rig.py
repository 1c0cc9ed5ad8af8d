"""A gateway in this process, a store that a test plays over a real socket, and clients on the gateway's own socket."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Self, cast

import anyio
import msgspec
from anyio.streams.buffered import BufferedByteReceiveStream

from remembrancer.actors.gateway.actor import GatewayActor
from remembrancer.actors.shell import LaunchSpec
from remembrancer.actors.store.read_handlers import find_ids, list_memories
from remembrancer.actors.store.records.sqlite_file import SqliteFile
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.actors.store.retrieval.view import Source, View
from remembrancer.config.settings import Settings
from remembrancer.protocol.consolidation import NotePresence
from remembrancer.protocol.errors import Failure
from remembrancer.protocol.gateway_link import CONTROL, END, LINK_VERSION, stamped
from remembrancer.protocol.ids import new_ulid
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.projects import ProjectRecognised, RecogniseProject
from remembrancer.protocol.reads import (
    AwaitEmbedding,
    ContextGathered,
    Counts,
    DescribeStore,
    EmbeddingState,
    EmbeddingSummary,
    FindIds,
    FollowLinks,
    GatherContext,
    GetMemory,
    GraphFound,
    IdsFound,
    ListMemories,
    Memories,
    MemoryShown,
    NoteAccess,
    Recall,
    Recalled,
    RecalledMemory,
    Scores,
    SearchGraph,
    StoreDescription,
)
from remembrancer.protocol.session_life import EndSession, StartSession
from remembrancer.protocol.sharing import OthersWrote
from remembrancer.protocol.sockets import Peer, Router, Speaker
from remembrancer.protocol.wire import Envelope, Notice
from remembrancer.protocol.writes import (
    Applied,
    BatchApplied,
    Change,
    EraseMemory,
    NearMemory,
    Operation,
    PortableMemory,
    Rejected,
    StoreMemory,
    Submit,
    SubmitBatch,
    memory_id_of,
)
from tests.actors.store_process import StoreRig, store_rig
from tests.operations import to_store
from tests.patience import until

NEAR = "memory:01ARZ3NDEKTSV4RRFFQ69G5FAV"
"""What the played store holds for nearly the same as any other memory."""
PATIENT = Settings(write_budget_s=30.0, read_budget_s=30.0, call_budget_s=60.0)
"""Where the store answers: however long that takes on a busy machine, no answer is given without it."""
QUICK = Settings(write_budget_s=0.4, read_budget_s=0.4, call_budget_s=1.5)
"""Where the store is away or hangs, and that is what the test is about. One that answers has the time of `PATIENT`."""
AWAY = msgspec.structs.replace(QUICK, call_budget_s=0.1, reflect_budget_s=0.1)
"""Where no store comes in the whole test: what waits for its start waits in vain."""

_answering: set[str] = set()
"""The addresses of the played stores that are open and do not hang."""


class _Budgets:
    """The settings of a gateway which waits long for a played store that answers: its own are for one that does not."""

    def __init__(self, settings: Settings, endpoint: str) -> None:
        self._settings = settings
        self._endpoint = endpoint

    def __getattr__(self, name: str) -> Any:
        is_patient = name in ("write_budget_s", "read_budget_s", "call_budget_s") and self._endpoint in _answering
        return getattr(PATIENT if is_patient else self._settings, name)


class PlayedStore:
    """The store's records in this process, which outlive it, behind a socket. Can hang, refuse, or answer nonsense.

    It refuses at once what it does not play: nobody waits for it.
    """

    def __init__(self, paths: RuntimePaths) -> None:
        self.applied: dict[str, Operation] = {}
        self.requests: list[Any] = []
        """What clients caused; what the gateway says of its own accord is in `lived` and `present`."""
        self.lived: dict[str, Operation] = {}
        """The starts and ends of sessions, in order, each once."""
        self.present: list[NotePresence] = []
        self._hangs = False
        self._unanswered: list[tuple[Peer, Envelope, Any]] = []
        self._endpoint = paths.store_endpoint
        self.refuses: Failure | None = None
        self.refuses_writes: Failure | None = None
        self.refuses_erasing: Failure | None = None
        self.rejects: set[str] = set()
        """Contents that can never be applied."""
        self.hangs_for: set[str] = set()
        """The ids of projects whose queued writes get no answer."""
        self.knows_short_ids = False
        """While it does not, ids in answers are whole."""
        self.notices: tuple[Notice, ...] = ()
        self.near_so_far: tuple[NearMemory, ...] = ()
        self.near_when_embedded: tuple[NearMemory, ...] = ()
        self._gateway: Peer | None = None
        self.records = Records(SqliteFile(paths.home / "played.db"), "played", time.time)
        self._router: Router[Any] = Router(paths.store_endpoint, Speaker("store", new_ulid()), to_store, self._hear)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Self]:
        try:
            async with anyio.create_task_group() as self._tasks, self._router:
                self.hangs = self._hangs
                yield self
        finally:
            _answering.discard(self._endpoint)
            self.records.close()

    async def leave(self) -> None:
        """Break the connection to whoever waits for an answer."""
        await self._router.aclose()

    def answer_late(self) -> None:
        """Hang no more, and answer what has come meanwhile."""
        self.hangs = False
        for request in self._unanswered:
            self._answer(*request)
        self._unanswered.clear()

    @property
    def hangs(self) -> bool:
        """True while it answers nothing."""
        return self._hangs

    @hangs.setter
    def hangs(self, hangs: bool) -> None:
        self._hangs = hangs
        (_answering.discard if hangs else _answering.add)(self._endpoint)

    @property
    def memories(self) -> dict[str, PortableMemory]:
        """The memories that it has, by id."""
        ids = dict.fromkeys(memory_id_of(each.change) for each in self.applied.values())
        found = {each: self.records.portable(each, None) for each in ids if each is not None}
        return {memory_id: memory for memory_id, memory in found.items() if memory is not None}

    @property
    def submitted(self) -> list[str]:
        """The operations that came on their own, not from the queue."""
        return [content_of(each.operation) for each in self.requests if isinstance(each, Submit)]

    @property
    def contents(self) -> list[str]:
        """The stored contents, in order."""
        operations = self.applied.values()
        return [operation.change.content for operation in operations if isinstance(operation.change, StoreMemory)]

    def asked(self, kind: type[Any]) -> list[Any]:
        """The requests of one kind, in order."""
        return [each for each in self.requests if isinstance(each, kind)]

    @property
    def life(self) -> list[Change]:
        """The beginnings and ends of sessions, in order."""
        return [operation.change for operation in self.lived.values()]

    def tell(self, operations: Sequence[Operation]) -> None:
        """Other machines have done this to what is shared."""
        assert self._gateway is not None
        self._router.send(self._gateway, OthersWrote(tuple(operations)))

    async def hang(self, client: RawClient) -> None:
        """Answer nothing from now on. What the gateway has said before by itself is answered, and was read."""
        await until(lambda: self.lived)
        await client.call("get_memory_status")
        self.hangs = True

    def _hear(self, peer: Peer, envelope: Envelope, message: Any) -> None:
        self._gateway = peer
        match message:
            case Submit(operation=Operation(change=StartSession() | EndSession())):
                pass
            case NotePresence():
                self.present.append(message)
                return
            case _:
                self.requests.append(message)
        of = {each.project.id for each in message.operations} if isinstance(message, SubmitBatch) else set()
        if self.hangs or of & self.hangs_for:
            self._unanswered.append((peer, envelope, message))
        else:
            self._answer(peer, envelope, message)

    def _answer(self, peer: Peer, envelope: Envelope, message: Any) -> None:
        body = self.refuses or self._reply(message)
        notices = self.notices if isinstance(message, Recall | SearchGraph | GatherContext) else ()
        self._tasks.start_soon(_send, self._router, peer, body, envelope.message_id, notices)

    def _reply(self, message: Any) -> Any:
        match message:
            case Submit(operation=Operation(change=StartSession() | EndSession()) as operation):
                return self._apply(operation)
            case Submit(operation=Operation(change=EraseMemory())) if self.refuses_erasing:
                return self.refuses_erasing
            case Submit() | SubmitBatch(operations=(_, *_)) if self.refuses_writes:
                return self.refuses_writes
            case Submit(operation=operation):
                if content_of(operation) in self.rejects:
                    return Failure("invalid_input", "never")
                return self._apply(operation)
            case SubmitBatch(operations=operations):
                return self._apply_all(operations)
            case Recall():
                return self._recall(message)
            case AwaitEmbedding(memory_id=memory_id):
                return EmbeddingState(memory_id, embedded=True, near_duplicates=(NEAR,), near=self.near_when_embedded)
            case GatherContext():
                return ContextGathered(())
            case DescribeStore():
                return description(len(self.memories))
            case GetMemory(memory_id=memory_id):
                return self._show(memory_id)
            case ListMemories():
                return list_memories(message, self._view)
            case FollowLinks():
                linked = self._view.reader.follow(message.memory_ids, message.session_id, message.depth, message.limit)
                return Memories(tuple(linked.values()))
            case NoteAccess():
                return True
            case RecogniseProject():
                return ProjectRecognised()
            case FindIds():
                return find_ids(message, self._view) if self.knows_short_ids else IdsFound({}, {})
            case SearchGraph():
                return GraphFound(())
        return Failure("invalid_input", f"this store does not play {type(message).__name__}")

    def _apply(self, operation: Operation) -> Applied | Failure:
        (outcome,) = self.records.apply([operation])
        if not isinstance(outcome.reply, Applied):
            error = outcome.reply
            return error.to_failure()
        if isinstance(operation.change, StartSession | EndSession):
            self.lived.setdefault(operation.operation_id, operation)
        elif not outcome.reply.replayed:
            self.applied[operation.operation_id] = operation
        return msgspec.structs.replace(outcome.reply, near=self.near_so_far)

    def _apply_all(self, operations: tuple[Operation, ...]) -> BatchApplied:
        applied: list[str] = []
        rejected: list[Rejected] = []
        for each in operations:
            outcome = Failure("invalid_input", "never") if content_of(each) in self.rejects else self._apply(each)
            if isinstance(outcome, Failure):
                rejected.append(Rejected(each.operation_id, outcome.code, outcome.message))
            else:
                applied.append(outcome.operation_id)
        return BatchApplied(tuple(applied), tuple(rejected))

    @property
    def _view(self) -> View:
        return View([Source(self.records, None)])

    def _show(self, memory_id: str) -> MemoryShown | Failure:
        memory = self.memories.get(memory_id)
        if memory is None:
            return Failure("not_found", f"there is no memory {memory_id}", field="memory_id")
        return MemoryShown(memory, embedded=True, near_duplicates=(NEAR,))

    def _recall(self, question: Recall) -> Recalled:
        visible = [each for each in self.memories.values() if question.include_forgotten or not each.forgotten_at]
        found = tuple(as_answer(each) for each in visible)
        memories, left_out = found[: question.limit], found[question.limit :][: question.left_out]
        return Recalled(memories, len(memories), 2, question.strategy, 1.0, left_out=left_out)


async def _send(router: Router[Any], peer: Peer, body: Any, in_reply_to: int, notices: tuple[Notice, ...]) -> None:
    router.send(peer, body, in_reply_to=in_reply_to, notices=notices)


def content_of(operation: Operation) -> str:
    """The text that an operation stores; of others, the id of the memory that they change."""
    change = operation.change
    return change.content if isinstance(change, StoreMemory) else memory_id_of(change) or ""


def as_answer(memory: PortableMemory) -> RecalledMemory:
    return RecalledMemory(
        id=memory.id,
        content=memory.content,
        type=memory.type,
        scope=memory.scope,
        importance=memory.importance,
        scores=Scores(0.876543, 0.9, memory.importance, 1.0, shares={"meaning": 0.87}),
        tags=memory.tags,
        created_at=1_700_000_000.0,
        access_count=3,
        source=memory.source,
        version=memory.version,
        forgotten=memory.forgotten_at is not None,
    )


def description(total: int) -> StoreDescription:
    return StoreDescription(
        counts=Counts(total=total, by_scope={"project": total}, by_type={"semantic": total}),
        embedding=EmbeddingSummary("onnx", "all-MiniLM-L6-v2", 384, 1, 1, vectors_ready=True),
        database_bytes=4096,
        database_path="/data/memory.db",
        uptime_s=12.5,
        memories_this_session=total,
        session_started_at=1_700_000_000.0,
    )


class GatewayStream(anyio.abc.ByteStream):
    """A connection to a gateway, of asyncio's streams: anyio's own for Unix sockets resolve a future that is done
    (`InvalidStateError`) when something comes in the moment in which a reading is cancelled."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, path: Path) -> GatewayStream:
        return cls(*await asyncio.open_unix_connection(path))

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        try:
            data = await self._reader.read(max_bytes)
        except ConnectionError as error:
            raise anyio.BrokenResourceError from error
        if not data:
            raise anyio.EndOfStream
        return data

    async def send(self, item: bytes) -> None:
        try:
            self._writer.write(item)
            await self._writer.drain()
        except ConnectionError as error:
            raise anyio.BrokenResourceError from error

    async def send_eof(self) -> None:
        self._writer.write_eof()

    async def aclose(self) -> None:
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()


def warned(answer: dict[str, Any]) -> list[str]:
    """The codes of an answer's warnings."""
    return [warning["code"] for warning in answer.get("warnings", ())]


class RawClient:
    """A bridge and its client in one: stamped lines out, JSON-RPC in. `controls` is what was said to the bridge."""

    def __init__(self, stream: GatewayStream) -> None:
        self._stream = stream
        self._lines = BufferedByteReceiveStream(stream)
        self._next = 0
        self.controls: list[bytes] = []
        self.heard: list[bytes] = []
        """Every line that came."""
        self.requests: list[dict[str, Any]] = []
        """What the gateway asked of the client."""
        self.answers_roots: list[str] | None = None

    async def say(self, text: bytes, stamp_ms: int | None = None) -> None:
        await self._stream.send(stamped(text, int(time.time() * 1000) if stamp_ms is None else stamp_ms))

    async def say_end(self) -> None:
        """As a bridge whose client has gone."""
        await self._stream.send(END + b"\n")

    async def send(self, stamp_ms: int | None = None, **message: Any) -> None:
        await self.say(json.dumps({"jsonrpc": "2.0", **message}).encode(), stamp_ms)

    async def hear(self) -> dict[str, Any]:
        """The next message for the client. Raises `anyio.IncompleteRead` at the end."""
        while True:
            line = await self._lines.receive_until(b"\n", 16_000_000)
            self.heard.append(line)
            if line.startswith(CONTROL):
                self.controls.append(line)
                continue
            message: dict[str, Any] = json.loads(line)
            if message.get("method") == "roots/list":
                self.requests.append(message)
                if self.answers_roots is not None:
                    roots = [{"uri": uri} for uri in self.answers_roots]
                    await self.send(id=message["id"], result={"roots": roots})
                continue
            return message

    async def request(self, method: str, request_id: int | str | None = None, **params: Any) -> dict[str, Any]:
        self._next += 1
        request_id = self._next if request_id is None else request_id
        await self.send(id=request_id, method=method, params=params)
        while "id" not in (message := await self.hear()):
            pass  # a notification, which `heard` has
        assert message["id"] == request_id
        return message

    async def initialize(self, **capabilities: Any) -> dict[str, Any]:
        answer = await self.request(
            "initialize",
            protocolVersion="2025-06-18",
            capabilities=capabilities,
            clientInfo={"name": "test", "version": "1"},
        )
        await self.send(method="notifications/initialized")
        result: dict[str, Any] = answer["result"]
        return result

    async def call(self, tool: str, request_id: int | str | None = None, /, **arguments: Any) -> dict[str, Any]:
        """The structured content of a tool's answer, which is also its text."""
        answer = await self.request("tools/call", request_id, name=tool, arguments=arguments)
        result = answer["result"]
        structured: dict[str, Any] = result["structuredContent"]
        assert json.loads(result["content"][0]["text"]) == structured
        assert result["isError"] == ("error" in structured)
        return structured

    async def store(self, content: str, request_id: int | str | None = None, /, **arguments: Any) -> dict[str, Any]:
        given = {"content": content, "type": "semantic", "scope": "project", **arguments}
        return await self.call("store_memory", request_id, **given)

    async def aclose(self) -> None:
        await self._stream.aclose()


class Rig:
    """One home with a gateway that can be ended and started anew."""

    def __init__(self, home: Path, settings: Settings) -> None:
        self.paths = RuntimePaths(home)
        self.paths.run.mkdir(mode=0o700, exist_ok=True)
        self.settings = settings
        self.gateway: GatewayActor

    @asynccontextmanager
    async def running(self, *, meets_store: bool = True) -> AsyncIterator[GatewayActor]:
        """A gateway. Where a store listens already, it is known to answer (not if `meets_store` is false)."""
        spec = LaunchSpec("gateway", "gateway", new_ulid(), str(self.paths.home), self.settings)
        async with anyio.create_task_group() as tasks:
            self.gateway = GatewayActor(spec)
            await tasks.start(_run, self.gateway)
            self.gateway.access.settings = cast("Settings", _Budgets(self.settings, self.paths.store_endpoint))
            if meets_store and self._store_listens():
                await self.until_store_answers()
            yield self.gateway
            tasks.cancel_scope.cancel()

    def _store_listens(self) -> bool:
        return Path(self.paths.store_endpoint.removeprefix("ipc://")).exists()

    async def until_store_answers(self) -> None:
        """Wait until the gateway knows that the store answers: for a store that came, or came back, after it."""
        await until(lambda: self.gateway.health().store == "connected")

    @asynccontextmanager
    async def client(self, bridge: str = "00" * 16, **hello: Any) -> AsyncIterator[RawClient]:
        first = {
            "link": LINK_VERSION,
            "version": "test",
            "bridge": bridge,
            "session": "session:test",
            "directory": str(self.paths.home),
            **hello,
        }
        async with await GatewayStream.connect(self.paths.gateway_socket) as stream:
            await stream.send(json.dumps(first).encode() + b"\n")
            yield RawClient(stream)

    @asynccontextmanager
    async def session(self, bridge: str = "00" * 16, **hello: Any) -> AsyncIterator[RawClient]:
        async with self.client(bridge, **hello) as client:
            await client.initialize()
            yield client

    @asynccontextmanager
    async def over_store(self, **hello: Any) -> AsyncIterator[tuple[StoreRig, RawClient]]:
        """A real store, and a session that the gateway serves."""
        async with store_rig(self.paths.home) as store, self.running(), self.session(**hello) as client:
            yield store, client


async def _run(gateway: GatewayActor, *, task_status: anyio.abc.TaskStatus[None]) -> None:
    await gateway.run(task_status=task_status)
