"""One MCP conversation on one connection: lines in, lines out, and whose memory it is about."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.abc
import mcp_types as mcp
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from pydantic import ValidationError

from remembrancer.actors.gateway.hello import Hello, directory_of, working_tree_of
from remembrancer.actors.gateway.toolkit.tools import Caller, Tool
from remembrancer.config.project import project_of
from remembrancer.protocol.gateway_link import (
    BYE,
    CONTROL,
    END,
    INVALID_REQUEST,
    PARSE_ERROR,
    id_of_unread,
    split_stamp,
)
from remembrancer.protocol.reads import Notice
from remembrancer.protocol.tracing import NO_TRACE, Trace, Traces
from remembrancer.protocol.writes import ProjectRef

if TYPE_CHECKING:
    from remembrancer.actors.gateway.resources.subscriptions import SessionWatcher

CALL: Final = "tools/call"
STREAM: Final = "subscriptions/listen"
"""A request that is answered when the client wants no more: nobody waits for that."""
ROOTS_WAIT_S: Final = 1.0
"""How long a tool call waits for the client to say which directories it works on."""
MAX_IN_FLIGHT: Final = 512
"""Requests of one session that are worked on at once; more wait on its connection."""
WRITE_HIGH_WATER_BYTES: Final = 1024 * 1024
OUTBOX_MESSAGES: Final = 64
MAX_CLIENT_NAME: Final = 100

logger = logging.getLogger(__name__)
_json = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class RequestContext:
    """Whose a request is, and when the client sent it (seconds since the epoch). `trace`: where its time goes."""

    session: Session
    received_at: float
    trace: Trace = NO_TRACE


def request_context(ctx: ServerRequestContext[Any, Any]) -> RequestContext:
    """The context of the request that a handler answers: every one has it from its transport."""
    assert isinstance(ctx.request, RequestContext)
    return ctx.request


class Session:
    """Use `serve` once. `tools` are the ones that the session has; `notices` go with its first answer."""

    def __init__(
        self,
        hello: Hello,
        key: str,
        tools: dict[str, Tool[Any]],
        notices: list[Notice],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        traces: Traces,
    ) -> None:
        self.hello = hello
        self.key = key
        """Names this connection; no other ever has the same."""
        self.tools = tools
        self._notices = notices
        self._reader = reader
        self._writer = writer
        self._traces = traces
        self._traced: dict[int | str, Trace] = {}
        """The calls of tools that have no answer yet."""
        self.started_at = time.time()
        """When the connection came about (seconds since the epoch)."""
        self.watcher: SessionWatcher | None = None
        """What the session has subscribed to, once it has."""
        self.client: str | None = None
        """What the client calls itself, once it has said so."""
        self.directory = hello.directory
        """The root of the working tree that the session works in, once its project is known."""
        self.has_said_end = False
        """Whether the client has gone for good: a connection that breaks without this may come again."""
        self._tasks: anyio.abc.TaskGroup
        self._at_end: list[Callable[[], None]] = []
        self._when_known: list[Callable[[Caller], None]] = []
        self._roots_request = f"remembrancer-roots-{key}"
        self._roots_known = anyio.Event()
        self._expects_roots = False
        self._roots: list[str] = []
        self._project: ProjectRef | None = None
        self._in_flight: set[int | str] = set()
        self._streams: set[int | str] = set()
        self._fewer = anyio.Event()

    def at_end(self, callback: Callable[[], None]) -> None:
        """Have a function called when the conversation is over."""
        self._at_end.append(callback)

    def when_known(self, callback: Callable[[Caller], None]) -> None:
        """Have a function called, once, when the session's project is known."""
        self._when_known.append(callback)

    async def serve(self, server: Server[Any]) -> None:
        """Serve until the connection ends. Writes that were begun are finished."""
        inbox_send, inbox = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        outbox, outbox_receive = anyio.create_memory_object_stream[SessionMessage](OUTBOX_MESSAGES)
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                tasks.start_soon(self._write_lines, outbox_receive)
                tasks.start_soon(self._read_lines, inbox_send)
                await server.run(inbox, outbox, server.create_initialization_options())
                self._reader.feed_eof()  # nobody listens any more, whatever the bridge still has to say
        finally:
            for callback in self._at_end:
                callback()

    @property
    def is_idle(self) -> bool:
        """Whether every request has its answer, apart from streams of events."""
        return self._in_flight <= self._streams

    def say_goodbye(self, reason: str) -> None:
        """Tell the bridge that the runtime stops in good order."""
        self._writer.write(BYE + reason.encode() + b"\n")

    def take_notices(self) -> list[Notice]:
        """What the session has to be told once."""
        notices, self._notices = self._notices, []
        return notices

    async def caller(self) -> Caller:
        """Who calls. Waits a moment for the client's roots, if it said that it has any."""
        if self._project is None:
            if self._expects_roots:
                with anyio.move_on_after(ROOTS_WAIT_S):
                    await self._roots_known.wait()
            directory = directory_of(self.hello, self._roots)
            project = await anyio.to_thread.run_sync(project_of, directory)
            tree = await anyio.to_thread.run_sync(working_tree_of, directory)
            if self._project is None:
                self._project = ProjectRef(project.id, _as_text(project.path))
                self.directory = _as_text(str(tree))
                self._say_known(self._caller_of(self._project))
        return self._caller_of(self._project)

    def _caller_of(self, project: ProjectRef) -> Caller:
        return Caller(self.hello.bridge, self.hello.session, project, self.started_at)

    def _say_known(self, caller: Caller) -> None:
        callbacks, self._when_known = self._when_known, []
        for callback in callbacks:
            callback(caller)

    # --- lines in ---

    async def _read_lines(self, inbox: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        async with inbox:
            while True:
                try:
                    line = await self._reader.readuntil(b"\n")
                except (asyncio.IncompleteReadError, ConnectionError):
                    return
                except asyncio.LimitOverrunError:
                    logger.warning("a line is too long", extra={"session": self.hello.session})
                    return
                if line.startswith(CONTROL):
                    self.has_said_end = self.has_said_end or line.rstrip() == END
                    continue
                message = self._parse(line)
                if message is None:
                    continue
                try:
                    await inbox.send(message)
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    return
                while len(self._in_flight) - len(self._streams) >= MAX_IN_FLIGHT:
                    await self._fewer.wait()

    def _parse(self, line: bytes) -> SessionMessage | None:
        """The message in a line, with what has to travel beside it; None when it is not for the server."""
        read_at = time.monotonic()
        try:
            stamp_ms, text = split_stamp(line)
        except ValueError:
            logger.warning("a line without a stamp was dropped", extra={"session": self.hello.session})
            return None
        try:
            message = _decode(text)
        except (ValueError, RecursionError) as error:
            request_id = id_of_unread(text)
            known = None if request_id in self._in_flight else request_id
            self._write(_error(known, PARSE_ERROR, f"not a message of MCP ({type(error).__name__})"))
            return None
        match message:
            case mcp.JSONRPCRequest(id=request_id):
                if request_id in self._in_flight:
                    self._write(_error(None, INVALID_REQUEST, f"the id {request_id!r} has no answer yet"))
                    return None
                self._note_request(message)
            case mcp.JSONRPCResponse(id=self._roots_request, result=result):
                self._take_roots(result)
                return None
            case mcp.JSONRPCError(id=self._roots_request):
                self._take_roots({})
                return None
            case mcp.JSONRPCNotification(method="notifications/initialized") if self._expects_roots:
                self._write({"jsonrpc": "2.0", "id": self._roots_request, "method": "roots/list"})
            case mcp.JSONRPCNotification(method="notifications/initialized"):
                self._tasks.start_soon(self.caller)
        trace = self._begin_trace(message, stamp_ms, read_at)
        metadata = ServerMessageMetadata(request_context=RequestContext(self, stamp_ms / 1000, trace))
        if isinstance(message, mcp.JSONRPCRequest):
            metadata.on_request_unanswered = self._forget(message.id)
        return SessionMessage(message, metadata)

    def _begin_trace(self, message: mcp.JSONRPCMessage, stamp_ms: int, read_at: float) -> Trace:
        if not isinstance(message, mcp.JSONRPCRequest) or message.method != CALL:
            return NO_TRACE
        trace = self._traced[message.id] = self._traces.begin(CALL)
        trace.under_way_s = max(0.0, time.time() - stamp_ms / 1000 - (time.monotonic() - read_at))
        trace.mark("call read", read_at)
        return trace

    def _note_request(self, request: mcp.JSONRPCRequest) -> None:
        self._in_flight.add(request.id)
        if request.method == STREAM:
            self._streams.add(request.id)
        if self.client is None:
            self.client = _client_name(request)
        if request.method == "initialize":
            capabilities = (request.params or {}).get("capabilities")
            self._expects_roots = isinstance(capabilities, dict) and isinstance(capabilities.get("roots"), dict)

    def _take_roots(self, result: dict[str, Any]) -> None:
        roots = result.get("roots")
        if isinstance(roots, list):
            uris = [root.get("uri") for root in roots if isinstance(root, dict)]
            self._roots = [uri for uri in uris if isinstance(uri, str)]
        self._roots_known.set()
        # Not before: a project that is settled without the roots would be the wrong one. A call waits only so long.
        self._tasks.start_soon(self.caller)

    def _forget(self, request_id: int | str) -> Callable[[], Any]:
        async def forget() -> None:
            self._answered(request_id)
            self._traced.pop(request_id, NO_TRACE).end("not answered")

        return forget

    def _answered(self, request_id: int | str | None) -> None:
        if request_id is not None:
            self._in_flight.discard(request_id)
            self._streams.discard(request_id)
            self._fewer.set()
            self._fewer = anyio.Event()

    # --- lines out ---

    async def _write_lines(self, outbox: MemoryObjectReceiveStream[SessionMessage]) -> None:
        """One write for all the messages that wait."""
        async with outbox:
            async for first in outbox:
                waiting = outbox.statistics().current_buffer_used
                items = [first, *(outbox.receive_nowait() for _ in range(waiting))]
                self._writer.write(b"".join(self._dump(item) for item in items))
                self._end_traces(items)
                if self._writer.transport.get_write_buffer_size() > WRITE_HIGH_WATER_BYTES:
                    try:
                        await self._writer.drain()
                    except ConnectionError:
                        return

    def _end_traces(self, written: Iterable[SessionMessage]) -> None:
        for item in written:
            match item.message:
                case mcp.JSONRPCResponse(id=answered) | mcp.JSONRPCError(id=answered) if answered is not None:
                    self._traced.pop(answered, NO_TRACE).end("answer written")

    def _dump(self, item: SessionMessage) -> bytes:
        message = item.message
        if isinstance(message, mcp.JSONRPCResponse):
            self._answered(message.id)
            return _json.encode({"jsonrpc": "2.0", "id": message.id, "result": message.result}) + b"\n"
        if isinstance(message, mcp.JSONRPCError):
            self._answered(message.id)
        return message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"

    def _write(self, message: dict[str, Any]) -> None:
        self._writer.write(_json.encode(message) + b"\n")


def _decode(text: bytes) -> mcp.JSONRPCMessage:
    """A JSON-RPC message. Half characters are let through: whoever checks a field can name it.

    Raises:
        ValueError: it is none.
    """
    try:
        return mcp.jsonrpc_message_adapter.validate_json(text, by_name=False)
    except ValidationError:
        return mcp.jsonrpc_message_adapter.validate_python(json.loads(text), by_name=False)


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


def _error(request_id: int | str | None, code: int, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}}
