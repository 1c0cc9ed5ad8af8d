"""A gateway in this process, a real store in another, and clients on the gateway's own socket."""

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import psutil

from remembrancer.actors.actor_process import LaunchSpec
from remembrancer.actors.gateway.actor import GatewayActor
from remembrancer.config.settings import Settings
from remembrancer.protocol.control import RuntimeStatus, StoreHealth
from remembrancer.protocol.errors import RemembrancerError
from remembrancer.protocol.gateway_link import CONTROL, END, LINK_VERSION, stamped
from remembrancer.protocol.ids import new_ulid
from remembrancer.protocol.kinds import SESSION_RECORD
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.reads import EmbeddingSummary
from remembrancer.protocol.session_life import EndSession, StartSession
from remembrancer.protocol.sockets import Reply
from remembrancer.protocol.wire import Request
from remembrancer.protocol.writes import Change, Operation, StoreMemory, Submit, memory_id_of
from tests.actors.store_process import SETTINGS, StoreRig, store_rig
from tests.patience import until
from tests.spaces import rows_if_there

PATIENT = Settings(call_budget_s=60.0)
"""Where the store answers: however long that takes on a busy machine, no answer is given without it."""
QUICK = Settings(call_budget_s=0.8)
"""Where the store is away or hangs, and that is what the test is about."""
AWAY = Settings(call_budget_s=0.1, reflect_budget_s=0.1)
"""Where no store comes in the whole test: what waits for its start waits in vain."""


def content_of(operation: Operation) -> str:
    change = operation.change
    return change.content if isinstance(change, StoreMemory) else memory_id_of(change) or ""


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"method": "tools/call", "params": {"name": tool, "arguments": arguments}}


def warned(answer: dict[str, Any]) -> list[str]:
    return [warning["code"] for warning in answer.get("warnings", ())]


@dataclass(eq=False)
class RawClient:
    """A bridge and its client in one: stamped lines out, JSON-RPC in. `controls` is what was said to the bridge."""

    _reader: asyncio.StreamReader
    _writer: asyncio.StreamWriter
    _next: int = 0
    controls: list[bytes] = field(default_factory=list)
    heard: list[bytes] = field(default_factory=list)
    """Every line that came."""
    requests: list[dict[str, Any]] = field(default_factory=list)
    """What the gateway asked of the client."""
    answers_roots: list[str] | None = None

    async def say(self, text: bytes) -> None:
        await self.write(stamped(text, int(time.time() * 1000)))

    async def say_end(self) -> None:
        """As a bridge whose client has gone."""
        await self.write(END + b"\n")

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def send(self, **message: Any) -> None:
        await self.say(json.dumps({"jsonrpc": "2.0", **message}).encode())

    async def hear(self) -> dict[str, Any]:
        """The next message for the client. Raises `asyncio.IncompleteReadError` at the end."""
        while True:
            line = (await self._reader.readuntil())[:-1]
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
        answer = await self.request("tools/call", request_id, name=tool, arguments=arguments)
        result = answer["result"]
        structured: dict[str, Any] = result["structuredContent"]
        assert json.loads(result["content"][0]["text"]) == structured
        assert result["isError"] == ("error" in structured)
        return structured

    async def store(self, content: str, request_id: int | str | None = None, /, **arguments: Any) -> dict[str, Any]:
        given = {"content": content, "type": "semantic", "scope": "project", **arguments}
        return await self.call("store_memory", request_id, **given)

    async def subscribe(self, *uris: str) -> None:
        """Subscribe, and hear of each resource once, as at each beginning."""
        for uri in uris:
            assert "result" in await self.request("resources/subscribe", uri=uri)
        for uri in uris:
            while not any(b"resources/updated" in line and uri.encode() in line for line in self.heard):
                await self.hear()
        self.heard.clear()

    async def aclose(self) -> None:
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()


class Rig:
    """One home with a gateway and a store, each of which can be ended and started anew.

    `settings` are the gateway's while the store is away or hangs. While one answers that `store` started, it is waited
    for patiently.
    """

    def __init__(self, home: Path, settings: Settings) -> None:
        self.paths = RuntimePaths(home)
        self.paths.run.mkdir(mode=0o700, exist_ok=True)
        self.settings = settings
        self.gateway: GatewayActor
        self.asked: list[Request[Any]] = []
        """What the gateway has asked the store, whether it was answered or not, but for starts and ends of sessions."""
        self.answers: dict[type, Reply[Any] | RemembrancerError] = {}
        """The store's answers to questions of these types: it is not asked them. It answers others."""
        self.written: list[Operation] = []
        """The writes that the store has acknowledged, or the queue."""
        self.peer: StoreRig
        """The store, and the sockets of its launcher and of another gateway."""
        self._is_running = self._is_patient = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[GatewayActor]:
        """A gateway. Where a store listens already, it is known to answer."""
        spec = LaunchSpec("gateway", "gateway", new_ulid(), str(self.paths.home), self.settings)
        async with anyio.create_task_group() as tasks:
            self.gateway = GatewayActor(spec)
            await tasks.start(self.gateway.run)
            self.gateway.access.ask_status = self._status
            self._is_running = True
            self._note_requests()
            self.gateway.access.writes.listeners.append(self.written.append)
            self._wait(patiently=self._is_patient)
            if Path(self.paths.store_endpoint.removeprefix("ipc://")).exists():
                await self.until_store_answers()
            yield self.gateway
            self._is_running = False
            tasks.cancel_scope.cancel()

    async def _status(self) -> RuntimeStatus:
        """The launcher's report, if all but the gateway is well."""
        store = StoreHealth(None, EmbeddingSummary("onnx", "a model", 0, 0, 0))
        return RuntimeStatus(str(self.paths.home), (), self.gateway.health(), store)

    def _wait(self, *, patiently: bool) -> None:
        self._is_patient = patiently
        if self._is_running:
            self.gateway.access.settings = PATIENT if patiently else self.settings

    def _note_requests(self) -> None:
        connection = self.gateway.access._store
        exchange = connection.exchange

        async def noted(question: Request[Any], *, timeout_s: float | None, to: bytes = b"") -> Reply[Any]:
            if not (isinstance(question, Submit) and isinstance(question.operation.change, StartSession | EndSession)):
                self.asked.append(question)
            if (answer := self.answers.get(type(question))) is not None:
                self.gateway.access.store_health.note_answer()
                if isinstance(answer, RemembrancerError):
                    raise answer
                return answer
            return await exchange(question, timeout_s=timeout_s, to=to)

        connection.exchange = noted  # type: ignore[method-assign]

    @asynccontextmanager
    async def store(self, settings: Settings = SETTINGS) -> AsyncIterator[StoreRig]:
        async with store_rig(self.paths.home, settings=settings) as self.peer:
            if self._is_running:
                await self.until_store_answers()
            self._wait(patiently=True)
            yield self.peer
            self._wait(patiently=False)
        if self._is_running:
            await until(lambda: self.gateway.health().store != "connected")

    @asynccontextmanager
    async def hanging_store(self, client: RawClient | None = None) -> AsyncIterator[None]:
        """The store answers nothing meanwhile, and afterwards all that it was asked. The session of a client begins
        before."""
        if client is not None:
            await client.call("get_memory_status")
        await until(lambda: self.life)
        process = psutil.Process(self.peer.store.process.pid)
        process.suspend()
        await until(lambda: process.status() == psutil.STATUS_STOPPED)  # each of its threads has to hear of it
        self._wait(patiently=False)
        try:
            yield
        finally:
            self._wait(patiently=True)
            self.peer.store.process.send_signal(signal.SIGCONT)

    @asynccontextmanager
    async def dead_store(self) -> AsyncIterator[None]:
        """The store is dead meanwhile; afterwards another one has what was queued."""
        await self.peer.store.kill()
        self._wait(patiently=False)
        yield
        self._wait(patiently=True)
        await self.peer.start()
        await self.until_store_answers()
        await until(lambda: self.gateway.health().queue_depth == 0)

    @asynccontextmanager
    async def over_store(self, **hello: Any) -> AsyncIterator[tuple[StoreRig, RawClient]]:
        async with self.store() as store, self.running(), self.session(**hello) as client:
            yield store, client

    async def until_store_answers(self) -> None:
        """Wait until the gateway knows that the store answers: for a store that came, or came back, after it."""
        await until(lambda: self.gateway.health().store == "connected")

    @property
    def submitted(self) -> list[str]:
        """The writes that the gateway has sent on their own, not from the queue."""
        return [content_of(each.operation) for each in self.asked if isinstance(each, Submit)]

    @property
    def life(self) -> list[Change]:
        """The beginnings and ends of sessions, as they were acknowledged."""
        return [each.change for each in self.written if isinstance(each.change, StartSession | EndSession)]

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return rows_if_there(self.paths.database, query)

    @property
    def contents(self) -> list[str]:
        return [
            row[0]
            for row in self.rows(f"SELECT content FROM memories WHERE kind != '{SESSION_RECORD}' ORDER BY number")
        ]

    @asynccontextmanager
    async def client(self, bridge: str = "00" * 16, **hello: Any) -> AsyncIterator[RawClient]:
        client = RawClient(*await asyncio.open_unix_connection(self.paths.gateway_socket, limit=16_000_000))
        try:
            await client.write(json.dumps(self.hello(bridge, **hello)).encode() + b"\n")
            yield client
        finally:
            await client.aclose()

    def hello(self, bridge: str = "00" * 16, **fields: Any) -> dict[str, Any]:
        own = {"session": "session:test", "directory": str(self.paths.home)}
        return {"link": LINK_VERSION, "version": "test", "bridge": bridge, **own, **fields}

    @asynccontextmanager
    async def session(self, bridge: str = "00" * 16, **hello: Any) -> AsyncIterator[RawClient]:
        async with self.client(bridge, **hello) as client:
            await client.initialize()
            yield client
