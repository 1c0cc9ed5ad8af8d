"""MCP conversations over the gateway's Unix socket. A bridge connects, sends its hello and gets a session, which reads
and writes messages and knows whose memory they are about."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

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

from remembrancer import __version__
from remembrancer.actors.gateway.attendance import ClientConversation, SessionRegistry
from remembrancer.actors.gateway.elicitation import Asking, Questions
from remembrancer.actors.gateway.hello import TOOLSETS_VARIABLE, Hello, directory_of, read_hello, setting_warnings
from remembrancer.actors.gateway.recognition import Recognition
from remembrancer.config.project import project_of, working_tree_of
from remembrancer.config.settings import Settings
from remembrancer.protocol.errors import InvalidInput, RemembrancerError
from remembrancer.protocol.gateway_link import (
    BYE,
    CONTROL,
    END,
    INVALID,
    INVALID_REQUEST,
    MAX_HELLO_BYTES,
    MAX_LINE_BYTES,
    MAX_STAMP_BYTES,
    PARSE_ERROR,
    REFUSED,
    WELCOME,
    split_stamp,
)
from remembrancer.protocol.tracing import NO_TRACE, Trace, begin
from remembrancer.protocol.wire import Notice
from remembrancer.protocol.writes import ProjectRef
from remembrancer.toolsets.service import Caller
from remembrancer.toolsets.tools import Result, Tool, choose_tools, instructions_of

CALL: Final = "tools/call"
STREAM: Final = "subscriptions/listen"
"""A request that stays open until the client ends it, so a stop does not wait for it."""
ROOTS_WAIT_S: Final = 1.0
"""The time that a tool call waits for the client's list of roots."""
MAX_IN_FLIGHT: Final = 512
"""The most requests of one session that run at once; further ones wait in its connection."""
MAX_VALUES: Final = 300_000
"""The most values in one message, counted by separators: parsing more would block every session for seconds."""
OUTBOX_MESSAGES: Final = 64
HIGH_WATER_BYTES: Final = 1024 * 1024
"""Senders wait while more bytes than this are unsent."""
HELLO_WAIT_S: Final = 5.0
BACKLOG: Final = 256
MAX_SESSIONS: Final = 512
MAX_CLIENT_NAME: Final = 100

_json = msgspec.json.Encoder()
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CallContext:
    """The session of a request, and the time at which the client sent it (seconds since the epoch). `trace`: its
    timing."""

    session: ClientConversation
    received_at: float
    trace: Trace = NO_TRACE


@dataclass(slots=True)
class PendingRequest:
    """A client's request that has no answer yet."""

    trace: Trace
    is_stream: bool
    scope: anyio.CancelScope | None = None
    """The cancel scope of a tool call that is answered without the SDK."""


CallTool = Callable[[CallContext, "int | str", str, dict[str, Any]], Awaitable[Result]]
"""Answers a tool call, from its context, its id, the tool's name and the arguments."""


@dataclass(frozen=True, slots=True)
class McpService:
    """Everything that a transport needs to serve clients. `notices` go with the first answer to every session; without
    `call_tool` the SDK answers tool calls."""

    incarnation: str
    server: Server[Any]
    call_tool: CallTool | None
    tools: Sequence[Tool[Any]]
    registry: SessionRegistry
    notices: Callable[[], list[Notice]] = list


def request_context(ctx: ServerRequestContext[Any, Any]) -> CallContext:
    """The context of the request that a handler answers, as set by its session."""
    request: Any = ctx.request
    context = request if isinstance(request, CallContext) else request.scope["remembrancer"]
    assert isinstance(context, CallContext)
    return context


class Session(ClientConversation):
    """One client's session. Call `serve` once. `tools` are the session's tools; `notices` go with its first answer."""

    def __init__(
        self,
        hello: Hello,
        key: str,
        tools: dict[str, Tool[Any]],
        notices: list[Notice],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        service: McpService,
        questions: Questions,
        recognition: Recognition,
    ) -> None:
        super().__init__(key, tools, notices, hello.directory)
        self.hello = hello
        self._reader = reader
        self._writer = writer
        self._service = service
        self._recognition = recognition
        self._tasks: anyio.abc.TaskGroup
        self._asking = Asking(key, questions, writer.write, hello.environment)
        self._roots_request = f"remembrancer-roots-{key}"
        self._roots_known = anyio.Event()
        self._expects_roots = False
        self._awaits_roots = False
        """True while the client's answer to the request for its roots is outstanding."""
        self._roots: list[str] = []
        self._directory_thread = anyio.CapacityLimiter(1)
        """The session's own thread, so that a hanging directory blocks no thread of the common pool."""
        self._caller: Caller | None = None
        self._open: dict[int | str, PendingRequest] = {}
        self._handshake: int | str | None = None
        self._has_plain_calls = False
        """True if the client uses a protocol with a handshake, whose calls carry no client information."""
        self._answered = anyio.Event()
        """Set when a request has been answered, and then replaced by a new event."""

    async def serve(self) -> None:
        """Serve until the connection ends. Writes in progress are finished."""
        server = self._service.server
        inbox_send, inbox = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        outbox, outbox_receive = anyio.create_memory_object_stream[SessionMessage](OUTBOX_MESSAGES)
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            tasks.start_soon(self._send_messages, outbox_receive)
            tasks.start_soon(self._receive_messages, inbox_send)
            options = server.create_initialization_options()
            options.instructions = instructions_of(self.tools)
            await server.run(inbox, outbox, options)
            self._reader.feed_eof()  # the client is gone
            for request in self._open.values():
                if request.scope is not None:
                    request.scope.cancel()

    def say_goodbye(self, reason: str) -> None:
        """Tell the bridge that the runtime stops in good order."""
        self._writer.write(BYE + reason.encode() + b"\n")

    @property
    def is_idle(self) -> bool:
        """True if every request has been answered, apart from event streams."""
        return all(request.is_stream for request in self._open.values())

    async def caller(self) -> Caller:
        """The caller of the requests. Waits a moment for the client's roots, if it has announced any."""
        if self._caller is None:
            if self._expects_roots:
                with anyio.move_on_after(ROOTS_WAIT_S):
                    await self._roots_known.wait()
            while self._caller is None:  # new roots may make the project unknown again
                await self._settle()
        assert self._caller is not None
        return self._caller

    async def _settle(self) -> None:
        """Determine the session's project from its directory, as far as it is known by now."""
        roots = self._roots
        directory = directory_of(self.hello, roots)
        project = await anyio.to_thread.run_sync(project_of, directory, limiter=self._directory_thread)
        tree = await anyio.to_thread.run_sync(working_tree_of, directory, limiter=self._directory_thread)
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
        if not self.hello.passing:
            self._service.registry.known(self, caller)
        self._tasks.start_soon(self._recognise, caller)

    async def _recognise(self, caller: Caller) -> None:
        """Look for a former place of the project, and report it with a later answer."""
        notice = await self._recognition.former_place(caller)
        if notice is not None:
            self._notices.append(notice)

    # --- messages in ---

    async def _receive_messages(self, inbox: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        """Read the bridge's lines: messages with timestamps, and control lines."""
        async with inbox:
            while True:
                try:
                    line = await self._reader.readuntil(b"\n")
                except (asyncio.IncompleteReadError, ConnectionError):
                    return
                except asyncio.LimitOverrunError:
                    logger.warning("a line is too long")
                    return
                if line.startswith(CONTROL):
                    self.has_said_end = self.has_said_end or line.rstrip() == END
                    continue
                message = self._parse(line)
                try:
                    if message is not None:
                        await inbox.send(message)
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    return
                while sum(not request.is_stream for request in self._open.values()) >= MAX_IN_FLIGHT:
                    await self._answered.wait()

    def _parse(self, line: bytes) -> SessionMessage | None:
        """Parse a message and attach its context. Returns None if it is not for the server."""
        read_at = time.monotonic()
        try:
            sent_ms, text = split_stamp(line)
        except ValueError:
            logger.warning("a line without a stamp was dropped")
            return None
        if text.count(b",") + text.count(b"[") + text.count(b"{") > MAX_VALUES:
            self._refuse(_id_in(text), INVALID_REQUEST, f"a message may have {MAX_VALUES} values at most")
            return None
        try:
            message = _decode(text)
        except (ValueError, RecursionError) as error:
            request_id = _id_in(text)
            known = None if request_id in self._open else request_id
            self._refuse(known, PARSE_ERROR, f"not a message of MCP ({type(error).__name__})")
            return None
        metadata = ServerMessageMetadata(request_context=CallContext(self, sent_ms / 1000))
        match message:
            case mcp.JSONRPCRequest(id=request_id):
                if request_id in self._open:
                    self._refuse(None, INVALID_REQUEST, f"the id {request_id!r} has no answer yet")
                    return None
                trace = begin(CALL) if message.method == CALL else NO_TRACE
                request = self._open[request_id] = PendingRequest(trace, message.method == STREAM)
                self._note_request(message)
                if message.method == CALL:
                    trace.mark("read by the bridge", min(read_at, time.monotonic() - time.time() + sent_ms / 1000))
                    trace.mark("call read", read_at)
                context = CallContext(self, sent_ms / 1000, trace)
                call_tool = self._service.call_tool
                if call_tool and message.method == CALL and self._has_plain_calls and is_plain(message.params):
                    self._tasks.start_soon(self._call, call_tool, message, request, context)
                    return None
                metadata.request_context = context
                metadata.on_request_unanswered = partial(self._forget, request_id)
            case mcp.JSONRPCNotification(
                method="notifications/cancelled", params={"requestId": int() | str() as asked}
            ) if (call := self._open.get(asked)) is not None and call.scope is not None:
                call.scope.cancel()
                return None
            case mcp.JSONRPCResponse(id=answered) | mcp.JSONRPCError(id=answered) if self._asking.is_asked(answered):
                given = message.result if isinstance(message, mcp.JSONRPCResponse) else {}
                self._tasks.start_soon(self._settle_replacement, str(answered), self._asking.decided(given))
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
                question = {"jsonrpc": "2.0", "id": self._roots_request, "method": "roots/list"}
                self._awaits_roots = True
                self._writer.write(_json.encode(question) + b"\n")
            case mcp.JSONRPCNotification(method="notifications/initialized"):
                self._tasks.start_soon(self.caller)
        return SessionMessage(message, metadata)

    def _note_request(self, request: mcp.JSONRPCRequest) -> None:
        if self.client is None:
            self.client = _client_name(request)
        if request.method == "initialize":
            self._handshake = request.id
            capabilities = (request.params or {}).get("capabilities")
            self._asking.note_capabilities(capabilities)
            self._expects_roots = isinstance(capabilities, dict) and isinstance(capabilities.get("roots"), dict)

    async def _call(
        self, call_tool: CallTool, message: mcp.JSONRPCRequest, request: PendingRequest, context: CallContext
    ) -> None:
        """Answer a tool call directly. The SDK's server would double the time of the call."""
        params = message.params or {}
        with anyio.CancelScope() as request.scope:
            result = await call_tool(context, message.id, params["name"], params.get("arguments") or {})
            await anyio.lowlevel.checkpoint_if_cancelled()  # a write is finished nevertheless, without an answer
            line = await result.response(message.id)
            self._close(message.id)
            self._writer.write(line + b"\n")
            request.trace.end("answer written")
            self._asking.heard(params["name"], params.get("arguments") or {}, result.answer)
            with suppress(ConnectionError):
                await self._drain()
        if request.scope.cancelled_caught and self._open.get(message.id) is request:
            await self._forget(message.id)

    async def _settle_replacement(self, request_id: str, arguments: dict[str, Any] | None) -> None:
        if arguments is not None and "update_memory" in self.tools and self._service.call_tool is not None:
            await self._service.call_tool(CallContext(self, time.time()), request_id, "update_memory", arguments)

    def _take_roots(self, result: dict[str, Any]) -> None:
        if not self._awaits_roots:
            return
        self._awaits_roots = False
        roots = result.get("roots")
        if isinstance(roots, list):
            uris = [root.get("uri") for root in roots if isinstance(root, dict)]
            self._roots = [uri for uri in uris if isinstance(uri, str)]
        self._roots_known.set()
        # Not earlier: without the roots, the session would get the wrong project. A call waits for a limited time.
        self._tasks.start_soon(self._settle)

    async def _forget(self, request_id: int | str) -> None:
        """Drop a request that the client has cancelled; it gets no answer."""
        self._close(request_id).end("not answered")

    def _close(self, request_id: int | str | None) -> Trace:
        """Close an answered request, and log its timing."""
        request = None if request_id is None else self._open.pop(request_id, None)
        self._answered.set()
        self._answered = anyio.Event()
        return NO_TRACE if request is None else request.trace

    # --- messages out ---

    async def _send_messages(self, outbox: MemoryObjectReceiveStream[SessionMessage]) -> None:
        """Send all waiting messages together."""
        async with outbox:
            async for first in outbox:
                waiting = outbox.statistics().current_buffer_used
                messages = [first.message, *(outbox.receive_nowait().message for _ in range(waiting))]
                answers = [each for each in messages if isinstance(each, mcp.JSONRPCResponse | mcp.JSONRPCError)]
                traces = [self._close(answer.id) for answer in answers]
                self._writer.write(b"\n".join([*(self._dump(message) for message in messages), b""]))
                for trace in traces:
                    trace.end("answer written")
                try:
                    await self._drain()
                except ConnectionError:
                    return

    async def _drain(self) -> None:
        """Wait while too many bytes are unsent. Raises `ConnectionError` when the connection has ended."""
        if self._writer.transport.get_write_buffer_size() > HIGH_WATER_BYTES:
            await self._writer.drain()

    def _dump(self, message: mcp.JSONRPCMessage) -> bytes:
        if isinstance(message, mcp.JSONRPCResponse):
            if message.id == self._handshake:
                self._has_plain_calls = message.result.get("protocolVersion") in HANDSHAKE_PROTOCOL_VERSIONS
            return _json.encode({"jsonrpc": "2.0", "id": message.id, "result": message.result})
        if self._handshake is None and isinstance(message, mcp.JSONRPCError) and message.error.data == "":
            message.error.message += ", or a request before 'initialize'"  # the SDK's error is the same for both
        return message.model_dump_json(by_alias=True, exclude_unset=True).encode()

    def _refuse(self, request_id: int | str | None, code: int, text: str) -> None:
        error = {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": text}}
        self._writer.write(_json.encode(error) + b"\n")


def _decode(text: bytes) -> mcp.JSONRPCMessage:
    """Decode a JSON-RPC message. Lone surrogates are accepted here: the check of the field can name it.

    Raises:
        ValueError: it is not a message.
    """
    try:
        return mcp.jsonrpc_message_adapter.validate_json(text, by_name=False)
    except ValidationError:
        return mcp.jsonrpc_message_adapter.validate_python(json.loads(text), by_name=False)


class _Head(msgspec.Struct):
    method: str
    id: int | str | None = None


_decode_head: Final = msgspec.json.Decoder(_Head).decode


def _id_in(text: bytes) -> int | str | None:
    """The id of a request that cannot be read further; None if it has no id that can be sent back."""
    try:
        return _decode_head(text).id
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None


def is_plain(params: dict[str, Any] | None) -> bool:
    """True if a call has the usual form. Others are left to the SDK, which reports the error."""
    if params is None or not params.keys() <= {"name", "arguments", "_meta"} or not isinstance(params.get("name"), str):
        return False
    return isinstance(params.get("arguments", {}), dict) and isinstance(params.get("_meta", {}), dict)


def _client_name(request: mcp.JSONRPCRequest) -> str | None:
    """The client's name in a request: in its handshake, or (2026-07-28) in each request's envelope."""
    params = request.params or {}
    envelope = params.get("_meta")
    info = params.get("clientInfo")
    if info is None and isinstance(envelope, dict):
        info = envelope.get(mcp.CLIENT_INFO_META_KEY)
    name = info.get("name") if isinstance(info, dict) else None
    return _as_text(" ".join(name.split()))[:MAX_CLIENT_NAME] or None if isinstance(name, str) else None


def _as_text(text: str) -> str:
    """The text in a form that can be sent: lone surrogates, which a path may have, become question marks."""
    return text.encode("utf-8", "replace").decode()


class Listener:
    """Accepts bridges on a socket from `open` until `aclose`."""

    def __init__(
        self,
        path: Path,
        service: McpService,
        settings: Settings,
        recognition: Recognition,
        tasks: anyio.abc.TaskGroup,
    ) -> None:
        self._path = path
        self._service = service
        self._settings = settings
        self._recognition = recognition
        self._tasks = tasks
        self._questions = Questions()
        self._numbers = itertools.count(1)
        self._socket: asyncio.Server | None = None
        self._sessions: set[Session] = set()

    @property
    def sessions(self) -> int:
        """The number of connected bridges that have sent their hello."""
        return len(self._sessions)

    async def open(self) -> None:
        """Listen. Replaces the socket of a dead gateway: the holder of the gateway's lock owns the path."""
        self._path.unlink(missing_ok=True)
        limit = MAX_LINE_BYTES + MAX_STAMP_BYTES
        self._socket = await asyncio.start_unix_server(self._accept, self._path, limit=limit, backlog=BACKLOG)
        self._path.chmod(0o600)

    async def drain(self, reason: str) -> None:
        """Accept no more connections, wait until every request has been answered, and tell the bridges the reason of
        the stop."""
        self._stop_listening()
        while any(not session.is_idle for session in self._sessions):  # noqa: ASYNC110 - limited by the caller
            await anyio.sleep(0.01)
        for session in self._sessions:
            session.say_goodbye(reason)

    def _stop_listening(self) -> None:
        socket, self._socket = self._socket, None
        if socket is not None:
            socket.close()
            self._path.unlink(missing_ok=True)

    async def aclose(self) -> None:
        """Stop listening. May be called twice; sessions end with the task group that they run in."""
        self._stop_listening()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.start_soon(self._serve, reader, writer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection. An error in it ends this connection only."""
        try:
            hello = await self._greet(reader, writer)
            if hello is not None:
                await self._converse(hello, reader, writer)
        except (ConnectionError, TimeoutError) as error:
            logger.debug("a connection ended early", extra={"reason": str(error)})
        except Exception:
            logger.exception("a session crashed")
        finally:
            writer.close()
            with suppress(ConnectionError), anyio.move_on_after(0.5, shield=True):
                await writer.wait_closed()

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Hello | None:
        """Read and answer the hello. Returns None if this bridge cannot be served."""
        try:
            with anyio.fail_after(HELLO_WAIT_S):
                line = await reader.readuntil(b"\n")
            if len(line) > MAX_HELLO_BYTES:
                raise InvalidInput(f"a hello may have {MAX_HELLO_BYTES} bytes at most")
            if len(self._sessions) >= MAX_SESSIONS:
                raise InvalidInput(f"{MAX_SESSIONS} sessions are open already")
            hello = read_hello(line)
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return None
        except RemembrancerError as error:
            logger.warning("a bridge was refused", extra={"code": error.code, "reason": error.message})
            reason = " ".join(error.message.split()).encode("utf-8", "replace") + b"\n"
            if error.field is not None:
                writer.write(INVALID + reason)
            writer.write(REFUSED + reason)
            return None
        welcome = {"version": __version__, "incarnation": self._service.incarnation}
        writer.write(WELCOME + msgspec.json.encode(welcome) + b"\n")
        return hello

    async def _converse(self, hello: Hello, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tools, notices = choose_tools(self._service.tools, hello.environment.get(TOOLSETS_VARIABLE))
        notices += [*setting_warnings(hello.environment, self._settings), *self._service.notices()]
        for notice in notices:
            logger.warning("a session's environment", extra={"session": hello.session, "reason": notice.message})
        key = f"{self._service.incarnation}-{next(self._numbers)}"
        shared = (self._service, self._questions, self._recognition)
        session = Session(hello, key, tools, notices, reader, writer, *shared)
        self._sessions.add(session)
        logger.info("session opened", extra={"session": hello.session, "bridge_pid": hello.pid})
        try:
            await session.serve()
        finally:
            self._sessions.discard(session)
            self._service.registry.left(session)
            logger.info("session closed", extra={"session": hello.session, "bridge_pid": hello.pid})
