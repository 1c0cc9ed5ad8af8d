"""One MCP conversation, whatever carries it: messages in, messages out, and whose memory it is about."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol

import anyio
import anyio.abc
import anyio.lowlevel
import anyio.to_thread
import mcp_types as mcp
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic import ValidationError

from remembrancer.actors.gateway.hello import Hello, directory_of, working_tree_of
from remembrancer.actors.gateway.transport import Received, Transport
from remembrancer.config.project import project_of
from remembrancer.protocol.gateway_link import INVALID_REQUEST, PARSE_ERROR, id_of_cut, id_of_unread
from remembrancer.protocol.reads import Notice
from remembrancer.protocol.tracing import NO_TRACE, Trace, Traces
from remembrancer.protocol.writes import ProjectRef
from remembrancer.toolsets.service import Caller
from remembrancer.toolsets.tools import Tool

CALL: Final = "tools/call"
STREAM: Final = "subscriptions/listen"
"""A request that is answered when the client wants no more: nobody waits for that."""
ROOTS_WAIT_S: Final = 1.0
"""How long a tool call waits for the client to say which directories it works on."""
MAX_IN_FLIGHT: Final = 512
"""Requests of one session that are worked on at once; more wait on its connection."""
MAX_VALUES: Final = 300_000
"""Values in one message, counted by what separates them: more would keep every session waiting for seconds."""
OUTBOX_MESSAGES: Final = 64
MAX_CLIENT_NAME: Final = 100
CUT_BYTES: Final = 4096
"""So much of the beginning and of the end of a message is looked at for its id when it is not read."""

logger = logging.getLogger(__name__)
_json = msgspec.json.Encoder()


class Conversation(Protocol):
    """Whose the requests are, whatever brings them."""

    key: str
    tools: dict[str, Tool[Any]]
    started_at: float
    client: str | None
    directory: str

    @property
    def has_said_end(self) -> bool:
        """Whether the client has gone for good."""

    async def caller(self) -> Caller:
        """Who calls."""
        ...

    def take_notices(self) -> list[Notice]:
        """What the session has to be told once."""
        ...

    def at_end(self, callback: Callable[[], None]) -> None:
        """Have a function called when the conversation is over."""
        ...

    def when_known(self, callback: Callable[[Caller], None]) -> None:
        """Have a function called when the session's project is known, and again whenever it is another."""
        ...


@dataclass(frozen=True, slots=True)
class RequestContext:
    """Whose a request is, and when the client sent it (seconds since the epoch). `trace`: where its time goes."""

    session: Conversation
    received_at: float
    trace: Trace = NO_TRACE


CallTool = Callable[[RequestContext, "int | str", str, dict[str, Any]], Awaitable[dict[str, Any]]]
"""Answers a call: whose, its id, the tool's name, the arguments."""


def request_context(ctx: ServerRequestContext[Any, Any]) -> RequestContext:
    """The context of the request that a handler answers: every one has it from its session."""
    request: Any = ctx.request
    context = request if isinstance(request, RequestContext) else request.scope["remembrancer"]
    assert isinstance(context, RequestContext)
    return context


class Session:
    """Use `serve` once. `tools` are the ones that the session has; `notices` go with its first answer."""

    def __init__(
        self,
        hello: Hello,
        key: str,
        tools: dict[str, Tool[Any]],
        notices: list[Notice],
        transport: Transport,
        traces: Traces,
    ) -> None:
        self.hello = hello
        self.key = key
        """Names this connection; no other ever has the same."""
        self.tools = tools
        self.transport = transport
        self._notices = notices
        self._traces = traces
        self._traced: dict[int | str, Trace] = {}
        """The calls of tools that have no answer yet."""
        self.started_at = time.time()
        """When the connection came about (seconds since the epoch)."""
        self.client: str | None = None
        """What the client calls itself, once it has said so."""
        self.directory = hello.directory
        """The root of the working tree that the session works in, once its project is known."""
        self._tasks: anyio.abc.TaskGroup
        self._at_end: list[Callable[[], None]] = []
        self._when_known: list[Callable[[Caller], None]] = []
        self._roots_request = f"remembrancer-roots-{key}"
        self._roots_known = anyio.Event()
        self._expects_roots = False
        self._awaits_roots = False
        """Whether the client has been asked for its roots and has not answered yet."""
        self._roots: list[str] = []
        self._caller: Caller | None = None
        self._in_flight: set[int | str] = set()
        self._calls: dict[int | str, anyio.CancelScope] = {}
        """The calls of tools that are answered without the SDK."""
        self._handshake: int | str | None = None
        self._has_plain_calls = False
        """Whether the client has agreed on a protocol that begins with a handshake, and says nothing in each call."""
        self._streams: set[int | str] = set()
        self._fewer = anyio.Event()
        self._is_full = False
        """Whether no more is read until something has its answer."""

    @property
    def has_said_end(self) -> bool:
        """Whether the client has gone for good."""
        return self.transport.has_said_end

    def at_end(self, callback: Callable[[], None]) -> None:
        """Have a function called when the conversation is over."""
        self._at_end.append(callback)

    def when_known(self, callback: Callable[[Caller], None]) -> None:
        """Have a function called when the session's project is known, and again whenever it is another."""
        self._when_known.append(callback)

    async def serve(self, server: Server[Any], call_tool: CallTool) -> None:
        """Serve until the connection ends. Writes that were begun are finished."""
        self._call_tool = call_tool
        inbox_send, inbox = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        outbox, outbox_receive = anyio.create_memory_object_stream[SessionMessage](OUTBOX_MESSAGES)
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                tasks.start_soon(self._send_messages, outbox_receive)
                tasks.start_soon(self._receive_messages, inbox_send)
                await server.run(inbox, outbox, server.create_initialization_options())
                self.transport.stop_receiving()  # nobody listens any more
                for scope in self._calls.values():
                    scope.cancel()
        finally:
            for callback in self._at_end:
                callback()

    @property
    def is_idle(self) -> bool:
        """Whether every request has its answer, apart from streams of events."""
        return self._in_flight <= self._streams

    def take_notices(self) -> list[Notice]:
        """What the session has to be told once."""
        notices, self._notices = self._notices, []
        return notices

    async def caller(self) -> Caller:
        """Who calls. Waits a moment for the client's roots, if it said that it has any."""
        if self._caller is None:
            if self._expects_roots:
                with anyio.move_on_after(ROOTS_WAIT_S):
                    await self._roots_known.wait()
            await self._settle()
        assert self._caller is not None
        return self._caller

    async def _settle(self) -> None:
        """Find out which project the session works on, from what is known of its directory by now."""
        roots = self._roots
        directory = directory_of(self.hello, roots)
        project = await anyio.to_thread.run_sync(project_of, directory)
        tree = await anyio.to_thread.run_sync(working_tree_of, directory)
        before = self._caller
        known = ProjectRef(project.id, _as_text(project.path))
        caller = Caller(self.hello.bridge, self.hello.session, known, self.started_at, _as_text(str(tree)))
        if roots is not self._roots or caller == before:
            return
        self._caller, self.directory = caller, caller.directory
        if before is not None and before.project != known:
            text = (
                f"The client has named its directory late, or another one: from now on this session works in "
                f"{known.path}. What it did until now belongs to {before.project.path}."
            )
            self._notices.append(Notice("project_changed", text))
        for callback in self._when_known:
            callback(self._caller)

    # --- messages in ---

    async def _receive_messages(self, inbox: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        async with inbox:
            while (received := await self.transport.receive()) is not None:
                message = self._parse(received)
                try:
                    if message is not None:
                        await inbox.send(message)
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    return
                while len(self._in_flight) - len(self._streams) >= MAX_IN_FLIGHT:
                    self._is_full = True
                    await self._fewer.wait()
                self._is_full = False

    def _parse(self, received: Received) -> SessionMessage | None:
        """The message, with what has to travel beside it; None when it is not for the server."""
        read_at = time.monotonic()
        if received.text.count(b",") + received.text.count(b"[") + received.text.count(b"{") > MAX_VALUES:
            head, tail = received.text[:CUT_BYTES], received.text[-CUT_BYTES:]
            self._refuse(id_of_cut(head, tail), INVALID_REQUEST, f"a message may have {MAX_VALUES} values at most")
            return None
        try:
            message = _decode(received.text)
        except (ValueError, RecursionError) as error:
            request_id = id_of_unread(received.text)
            known = None if request_id in self._in_flight else request_id
            self._refuse(known, PARSE_ERROR, f"not a message of MCP ({type(error).__name__})")
            return None
        metadata = ServerMessageMetadata(request_context=RequestContext(self, received.sent_ms / 1000))
        match message:
            case mcp.JSONRPCRequest(id=request_id):
                if request_id in self._in_flight:
                    self._refuse(None, INVALID_REQUEST, f"the id {request_id!r} has no answer yet")
                    return None
                self._note_request(message)
                trace = NO_TRACE
                if message.method == CALL:
                    trace = self._traced[request_id] = self._traces.begin(CALL)
                    trace.under_way_s = max(0.0, time.time() - received.sent_ms / 1000 - (time.monotonic() - read_at))
                    trace.mark("call read", read_at)
                context = RequestContext(self, received.sent_ms / 1000, trace)
                if message.method == CALL and self._has_plain_calls and is_plain(message.params):
                    self._tasks.start_soon(self._call, message, context)
                    return None
                metadata.request_context = context
                metadata.on_request_unanswered = self._forget(request_id)
            case mcp.JSONRPCNotification(
                method="notifications/cancelled", params={"requestId": int() | str() as asked}
            ) if asked in self._calls:
                self._calls[asked].cancel()
                return None
            case mcp.JSONRPCResponse(id=self._roots_request, result=result):
                self._take_roots(result)
                return None
            case mcp.JSONRPCError(id=self._roots_request):
                self._take_roots({})
                return None
            case mcp.JSONRPCNotification(method="notifications/initialized" | "notifications/roots/list_changed") if (
                self._expects_roots
            ):
                request = {"jsonrpc": "2.0", "id": self._roots_request, "method": "roots/list"}
                self._awaits_roots = True
                self.transport.send([_json.encode(request)])
            case mcp.JSONRPCNotification(method="notifications/initialized"):
                self._tasks.start_soon(self.caller)
        return SessionMessage(message, metadata)

    def _note_request(self, request: mcp.JSONRPCRequest) -> None:
        self._in_flight.add(request.id)
        if request.method == STREAM:
            self._streams.add(request.id)
        if self.client is None:
            self.client = _client_name(request)
        if request.method == "initialize":
            self._handshake = request.id
            capabilities = (request.params or {}).get("capabilities")
            self._expects_roots = isinstance(capabilities, dict) and isinstance(capabilities.get("roots"), dict)

    async def _call(self, request: mcp.JSONRPCRequest, context: RequestContext) -> None:
        """Answer a call of a tool. Through the SDK's server it would take as long again as all the rest of it."""
        params = request.params or {}
        with anyio.CancelScope() as self._calls[request.id]:
            result = await self._call_tool(context, request.id, params["name"], params.get("arguments") or {})
            await anyio.lowlevel.checkpoint_if_cancelled()  # a write is finished all the same, and nobody told of it
            result.pop("resultType")  # of a protocol without handshake
            self._answered(request.id)
            self.transport.send([_json.encode({"jsonrpc": "2.0", "id": request.id, "result": result})])
            self._traced.pop(request.id, NO_TRACE).end("answer written")
            with suppress(ConnectionError):
                await self.transport.flush()
        if self._calls.pop(request.id).cancelled_caught:
            await self._forget(request.id)()

    def _take_roots(self, result: dict[str, Any]) -> None:
        if not self._awaits_roots:
            return
        self._awaits_roots = False
        roots = result.get("roots")
        if isinstance(roots, list):
            uris = [root.get("uri") for root in roots if isinstance(root, dict)]
            self._roots = [uri for uri in uris if isinstance(uri, str)]
        self._roots_known.set()
        # Not before: a project that is settled without the roots would be the wrong one. A call waits only so long.
        self._tasks.start_soon(self._settle)

    def _forget(self, request_id: int | str) -> Callable[[], Any]:
        async def forget() -> None:
            self._answered(request_id)
            self._traced.pop(request_id, NO_TRACE).end("not answered")

        return forget

    def _answered(self, request_id: int | str | None) -> None:
        if request_id is not None:
            self._in_flight.discard(request_id)
            self._streams.discard(request_id)
            if self._is_full:
                self._fewer.set()
                self._fewer = anyio.Event()

    # --- messages out ---

    async def _send_messages(self, outbox: MemoryObjectReceiveStream[SessionMessage]) -> None:
        """Together, all that wait."""
        async with outbox:
            async for first in outbox:
                waiting = outbox.statistics().current_buffer_used
                messages = [first.message, *(outbox.receive_nowait().message for _ in range(waiting))]
                self.transport.send([self._dump(message) for message in messages])
                for message in messages:
                    if isinstance(message, mcp.JSONRPCResponse | mcp.JSONRPCError) and message.id is not None:
                        self._traced.pop(message.id, NO_TRACE).end("answer written")
                try:
                    await self.transport.flush()
                except ConnectionError:
                    return

    def _dump(self, message: mcp.JSONRPCMessage) -> bytes:
        if isinstance(message, mcp.JSONRPCResponse):
            self._answered(message.id)
            if message.id == self._handshake:
                self._has_plain_calls = message.result.get("protocolVersion") in HANDSHAKE_PROTOCOL_VERSIONS
            return _json.encode({"jsonrpc": "2.0", "id": message.id, "result": message.result})
        if isinstance(message, mcp.JSONRPCError):
            self._answered(message.id)
        return message.model_dump_json(by_alias=True, exclude_unset=True).encode()

    def _refuse(self, request_id: int | str | None, code: int, text: str) -> None:
        error = {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": text}}
        self.transport.send([_json.encode(error)])


def _decode(text: bytes) -> mcp.JSONRPCMessage:
    """A JSON-RPC message. Half characters are let through: whoever checks a field can name it.

    Raises:
        ValueError: it is none.
    """
    try:
        return mcp.jsonrpc_message_adapter.validate_json(text, by_name=False)
    except ValidationError:
        return mcp.jsonrpc_message_adapter.validate_python(json.loads(text), by_name=False)


def is_plain(params: dict[str, Any] | None) -> bool:
    """Whether a call is of the usual form. What is not is left to the SDK, which says what is wrong with it."""
    if params is None or not params.keys() <= {"name", "arguments", "_meta"} or not isinstance(params.get("name"), str):
        return False
    return isinstance(params.get("arguments", {}), dict) and isinstance(params.get("_meta", {}), dict)


def _client_name(request: mcp.JSONRPCRequest) -> str | None:
    """What the client calls itself in a request: in its handshake, or (2026-07-28) in the envelope of each."""
    params = request.params or {}
    envelope = params.get("_meta")
    info = params.get("clientInfo")
    if info is None and isinstance(envelope, dict):
        info = envelope.get(mcp.CLIENT_INFO_META_KEY)
    name = info.get("name") if isinstance(info, dict) else None
    return _as_text(" ".join(name.split()))[:MAX_CLIENT_NAME] or None if isinstance(name, str) else None


def _as_text(text: str) -> str:
    """What can travel in a message: half characters, which a path may have, are shown as question marks."""
    return text.encode("utf-8", "replace").decode()
