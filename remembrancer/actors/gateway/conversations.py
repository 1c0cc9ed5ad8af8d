"""MCP conversations over the gateway's Unix socket. A bridge connects, sends its hello and gets a session, which reads
and writes messages and knows whose memory they are about."""

import asyncio
import itertools
import json
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import anyio
import anyio.abc
import anyio.to_thread
import mcp_types as mcp
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic import ValidationError

from remembrancer import __version__
from remembrancer.actors.gateway.elicitation import Asking, Questions
from remembrancer.actors.gateway.hello import Hello, directory_of, read_hello, setting_warnings
from remembrancer.actors.gateway.session_registry import ClientConversation, SessionRegistry
from remembrancer.config.project import project_of, working_tree_of
from remembrancer.config.settings import Settings
from remembrancer.protocol.environment import TOOLSETS_VARIABLE
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
from remembrancer.protocol.tracing import note_call
from remembrancer.protocol.wire import Notice
from remembrancer.protocol.writes import ProjectRef
from remembrancer.toolsets.service import Caller
from remembrancer.toolsets.tools import CallResult, Tool, choose_tools

CALL: Final = "tools/call"
STREAM: Final = "subscriptions/listen"
"""A request that stays open until the client ends it, so a stop does not wait for it."""
ROOTS_WAIT_S: Final = 1.0
"""The time that a tool call waits for the client's list of roots."""
MAX_IN_FLIGHT: Final = 512
"""The most requests of one session that run at once; further ones wait in its connection."""
MAX_VALUES: Final = 300_000
"""The most values in one message, counted by separators: parsing more would block every session for seconds."""
MAX_WAITING: Final = 64
"""The most messages that wait for the SDK's server, or come from it."""
HIGH_WATER_BYTES: Final = 1024 * 1024
"""While more bytes than this are unsent, the SDK's server waits, and no line is read."""
MAX_UNREAD_BYTES: Final = MAX_LINE_BYTES + MAX_STAMP_BYTES
PAUSE_S: Final = 0.01
"""The time until a session that has enough to do looks at its next line."""
HELLO_WAIT_S: Final = 5.0
BACKLOG: Final = 256
MAX_SESSIONS: Final = 512
MAX_CLIENT_NAME: Final = 100

_json = msgspec.json.Encoder()
logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class CallContext:
    """A request's session, the time at which the client sent it (seconds since the epoch), and the monotonic time from
    which its duration counts."""

    session: ClientConversation
    received_at: float
    began: float = field(default_factory=time.monotonic)
    is_stream: bool = False
    tool: str = ""
    """The tool that the request calls, once it is known to be a call."""


CallTool = Callable[[CallContext, "int | str", str, dict[str, Any]], Awaitable[CallResult]]
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


class _CallParams(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    arguments: dict[str, Any] = {}
    meta: dict[str, Any] = msgspec.field(name="_meta", default_factory=dict)


class PlainCall(msgspec.Struct):
    """A tool call of the usual form."""

    jsonrpc: Literal["2.0"]
    id: int | str
    method: Literal["tools/call"]
    params: _CallParams


_decode_plain_call: Final = msgspec.json.Decoder(PlainCall).decode


def plain_call_in(text: bytes) -> PlainCall | None:
    """The tool call in a message; None for any other message, which is left to the SDK, as it reports the errors."""
    with suppress(ValueError, RecursionError):
        return _decode_plain_call(text)
    return None


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
    ) -> None:
        super().__init__(key, tools, notices, hello.directory)
        self.hello = hello
        self._reader, self._writer = reader, writer
        self._service = service
        self._tasks = asyncio.TaskGroup()  # three times as fast as anyio's
        self._inbox_send, self._inbox = anyio.create_memory_object_stream[SessionMessage | Exception](MAX_WAITING)
        self._asking = Asking(key, questions, self._write, hello.environment)
        self._roots_request = f"remembrancer-roots-{key}"
        self._roots_known = anyio.Event()
        self._expects_roots = False
        self._roots: list[str] = []
        self._directory_thread = anyio.CapacityLimiter(1)
        """The session's own thread, so that a hanging directory blocks no thread of the common pool."""
        self._caller: Caller | None = None
        self._open: dict[int | str, CallContext] = {}
        """The requests that have no answer yet."""
        self._handshake: int | str | None = None
        self._has_plain_calls = False
        """True if the client uses a protocol with a handshake, whose calls carry no client information."""

    async def serve(self) -> None:
        """Serve until the connection ends. Calls in progress are finished."""
        server = self._service.server
        outbox, outbox_receive = anyio.create_memory_object_stream[SessionMessage](MAX_WAITING)
        async with self._tasks:
            self._tasks.create_task(self._send_messages(outbox_receive))
            self._tasks.create_task(self._take_lines())
            await server.run(self._inbox, outbox, server.create_initialization_options())
            self._writer.close()  # the client is gone

    def say_goodbye(self, reason: str) -> None:
        """Tell the bridge that the runtime stops in good order."""
        self._write(BYE + reason.encode() + b"\n")

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
        named = self.hello.named_project
        if named is not None and named.id != project.id:
            project, tree = named, directory  # it has no notes
        before = self._caller
        known = ProjectRef(project.id, _as_text(project.path))
        caller = Caller(self.hello.bridge, self.hello.session, known, self.started_at, _as_text(str(tree)))
        if roots is not self._roots or caller == before:
            return
        self._caller, self.directory = caller, caller.directory
        if before is not None and before.project != known:
            text = (
                f"The client named its directory late, or changed it: from now on this session works in "
                f"{known.path}. What it did before belongs to {before.project.path}."
            )
            self._notices.append(Notice("project_changed", text))
        if not self.hello.passing:
            self._service.registry.known(self, caller)

    # --- messages in ---

    async def _take_lines(self) -> None:
        """Take the bridge's lines until the connection ends. After that, requests get no answers."""
        try:
            while (line := await self._reader.readline()).endswith(b"\n"):
                self.take_line(line)
                while self._is_full:  # noqa: ASYNC110 - rare, and many events end it
                    await asyncio.sleep(PAUSE_S)
                await self._writer.drain()
        except (OSError, ValueError) as error:  # it is lost, or a line is too long
            logger.warning("a connection has ended", extra={"reason": str(error)})
        finally:
            self._open.clear()
            self._inbox_send.close()

    @property
    def _is_full(self) -> bool:
        """True if the next line has to wait."""
        return len(self._open) >= MAX_IN_FLIGHT or self._inbox_send.statistics().current_buffer_used >= MAX_WAITING

    def take_line(self, line: bytes) -> None:
        """Begin to serve a line of the bridge: a message with a timestamp, or a control line."""
        read_at = time.monotonic()
        if line.startswith(CONTROL):
            self.has_said_end = self.has_said_end or line.rstrip() == END
            return
        try:
            sent_ms, text = split_stamp(line)
        except ValueError:
            logger.warning("a line without a stamp was dropped")
            return
        if text.count(b",") + text.count(b"[") + text.count(b"{") > MAX_VALUES:
            self._refuse(text, INVALID_REQUEST, f"a message may have {MAX_VALUES} values at most")
        elif not (self._has_plain_calls and self._take_plain_call(text, sent_ms, read_at)):
            self._take_message(text, sent_ms, read_at)

    def _take_plain_call(self, text: bytes, sent_ms: int, read_at: float) -> bool:
        """Begin to answer a plain tool call. The SDK's server would double its time. Returns False for anything
        else."""
        call_tool, call = self._service.call_tool, plain_call_in(text)
        if call_tool is None or call is None:
            return False
        context = self._open_request(call.id, CALL, sent_ms, read_at)
        self._tasks.create_task(self._call(call_tool, call, context))
        return True

    def _open_request(self, request_id: int | str, method: str, sent_ms: int, read_at: float) -> CallContext:
        began = min(read_at, time.monotonic() - time.time() + sent_ms / 1000)
        context = self._open[request_id] = CallContext(self, sent_ms / 1000, began, method == STREAM)
        return context

    def _take_message(self, text: bytes, sent_ms: int, read_at: float) -> None:
        """Pass a message to the SDK's server, unless it is for the session itself."""
        try:
            message = _decode(text)
        except (ValueError, RecursionError) as error:
            self._refuse(text, PARSE_ERROR, f"not an MCP message ({type(error).__name__})")
            return
        metadata = ServerMessageMetadata(request_context=CallContext(self, sent_ms / 1000))
        match message:
            case mcp.JSONRPCRequest(id=request_id):
                self._note_request(message)
                metadata.request_context = self._open_request(request_id, message.method, sent_ms, read_at)
                metadata.on_request_unanswered = partial(self._forget, request_id)
            case mcp.JSONRPCResponse(id=answered) | mcp.JSONRPCError(id=answered) if self._asking.is_asked(answered):
                given = message.result if isinstance(message, mcp.JSONRPCResponse) else {}
                self._tasks.create_task(self._settle_replacement(str(answered), self._asking.decided(given)))
                return
            case mcp.JSONRPCResponse(id=self._roots_request) | mcp.JSONRPCError(id=self._roots_request):
                self._take_roots(message.result if isinstance(message, mcp.JSONRPCResponse) else {})
                return
            case mcp.JSONRPCNotification(method="notifications/initialized" | "notifications/roots/list_changed") if (
                self._expects_roots
            ):
                question = {"jsonrpc": "2.0", "id": self._roots_request, "method": "roots/list"}
                self._write(_json.encode(question) + b"\n")
            case mcp.JSONRPCNotification(method="notifications/initialized"):
                self._tasks.create_task(self.caller())
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # the session ends
            self._inbox_send.send_nowait(SessionMessage(message, metadata))

    def _refuse(self, text: bytes, code: int, message: str) -> None:
        error = {"jsonrpc": "2.0", "id": _id_in(text), "error": {"code": code, "message": message}}
        self._write(_json.encode(error) + b"\n")

    def _note_request(self, request: mcp.JSONRPCRequest) -> None:
        if self.client is None:
            self.client = client_name(request.params)
        if request.method == "initialize":
            self._handshake = request.id
            capabilities = (request.params or {}).get("capabilities")
            self._asking.note_capabilities(capabilities)
            self._expects_roots = isinstance(capabilities, dict) and isinstance(capabilities.get("roots"), dict)

    async def _call(self, call_tool: CallTool, call: PlainCall, context: CallContext) -> None:
        arguments = call.params.arguments
        result = await call_tool(context, call.id, call.params.name, arguments)
        self._open.pop(call.id, None)
        self._write(result.response(call.id) + b"\n")
        note_call(context.tool, context.began)
        self._asking.heard(call.params.name, arguments, result.answer)

    async def _settle_replacement(self, request_id: str, arguments: dict[str, Any] | None) -> None:
        if arguments is not None and "update_memory" in self.tools and self._service.call_tool is not None:
            await self._service.call_tool(CallContext(self, time.time()), request_id, "update_memory", arguments)

    def _take_roots(self, result: dict[str, Any]) -> None:
        roots = result.get("roots")
        if isinstance(roots, list):
            uris = [root.get("uri") for root in roots if isinstance(root, dict)]
            self._roots = [uri for uri in uris if isinstance(uri, str)]
        self._roots_known.set()
        # Not earlier: without the roots, the session would get the wrong project. A call waits for a limited time.
        self._tasks.create_task(self._settle())

    async def _forget(self, request_id: int | str) -> None:
        """Drop a request that the client has cancelled; it gets no answer."""
        self._open.pop(request_id, None)

    # --- messages out ---

    async def _send_messages(self, outbox: MemoryObjectReceiveStream[SessionMessage]) -> None:
        async with outbox:
            async for each in outbox:
                message, request = each.message, None
                if isinstance(message, mcp.JSONRPCResponse | mcp.JSONRPCError) and message.id is not None:
                    request = self._open.pop(message.id, None)
                self._write(self._dump(message) + b"\n")
                if request is not None:
                    note_call(request.tool, request.began)
                with suppress(OSError):  # `_take_lines` notes the loss
                    await self._writer.drain()

    def _write(self, data: bytes) -> None:
        if not self._writer.is_closing():
            self._writer.write(data)

    def _dump(self, message: mcp.JSONRPCMessage) -> bytes:
        if isinstance(message, mcp.JSONRPCResponse):
            if message.id == self._handshake:
                self._has_plain_calls = message.result.get("protocolVersion") in HANDSHAKE_PROTOCOL_VERSIONS
            return _json.encode({"jsonrpc": "2.0", "id": message.id, "result": message.result})
        return message.model_dump_json(by_alias=True, exclude_unset=True).encode()


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


def client_name(params: Any) -> str | None:
    """The client's name in a request's parameters: in its handshake, or (2026-07-28) in each request's envelope."""
    if not isinstance(params, dict):
        return None
    envelope, info = params.get("_meta"), params.get("clientInfo")
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
        tasks: anyio.abc.TaskGroup,
    ) -> None:
        self._path = path
        self._service = service
        self._settings = settings
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
        self._socket = await asyncio.start_unix_server(
            lambda *streams: self._tasks.start_soon(self._accept, *streams),
            self._path,
            limit=MAX_UNREAD_BYTES,
            backlog=BACKLOG,
        )
        self._path.chmod(0o600)

    async def drain(self, reason: str) -> None:
        """Accept no more connections, wait until every request has been answered, and tell the bridges the reason for
        the stop."""
        await self.aclose()
        while any(not session.is_idle for session in self._sessions):  # noqa: ASYNC110 - limited by the caller
            await anyio.sleep(0.01)
        for session in self._sessions:
            session.say_goodbye(reason)

    async def aclose(self) -> None:
        """Stop listening. May be called twice; sessions end with the task group that they run in."""
        socket, self._socket = self._socket, None
        if socket is not None:
            socket.close()
            self._path.unlink(missing_ok=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer a bridge's hello, and serve it unless it has to be refused."""
        writer.transport.set_write_buffer_limits(HIGH_WATER_BYTES)
        try:
            async with asyncio.timeout(HELLO_WAIT_S):
                line = await reader.readline()
            if line.endswith(b"\n"):
                hello = self._greet(line, writer)
                await self._converse(hello, reader, writer)
        except RemembrancerError as error:
            logger.warning("a bridge was refused", extra={"code": error.code, "reason": error.message})
            reason = " ".join(error.message.split()).encode("utf-8", "replace") + b"\n"
            writer.write((REFUSED if error.field is None else INVALID) + reason)
        except (OSError, ValueError) as error:
            logger.warning("a connection without a hello", extra={"reason": str(error)})
        finally:
            writer.close()

    def _greet(self, line: bytes, writer: asyncio.StreamWriter) -> Hello:
        if len(line) > MAX_HELLO_BYTES:
            raise InvalidInput(f"a hello may have at most {MAX_HELLO_BYTES} bytes")
        if len(self._sessions) >= MAX_SESSIONS:
            raise InvalidInput(f"{MAX_SESSIONS} sessions are open already")
        hello = read_hello(line)
        welcome = {"version": __version__, "incarnation": self._service.incarnation}
        writer.write(WELCOME + msgspec.json.encode(welcome) + b"\n")
        return hello

    async def _converse(self, hello: Hello, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one session. An error in it ends this session only."""
        tools, notices = choose_tools(self._service.tools, hello.environment.get(TOOLSETS_VARIABLE))
        notices += [*setting_warnings(hello.environment, self._settings), *self._service.notices()]
        for notice in notices:
            logger.warning("a session's environment", extra={"session": hello.session, "reason": notice.message})
        key = f"{self._service.incarnation}-{next(self._numbers)}"
        session = Session(hello, key, tools, notices, reader, writer, self._service, self._questions)
        self._sessions.add(session)
        logger.info("session opened", extra={"session": hello.session, "bridge_pid": hello.pid})
        try:
            await session.serve()
        except Exception:
            logger.exception("a session crashed")
        finally:
            self._sessions.discard(session)
            self._service.registry.left(session)
            logger.info("session closed", extra={"session": hello.session, "bridge_pid": hello.pid})
