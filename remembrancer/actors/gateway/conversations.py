"""Conversations over the gateway's Unix socket. A client connects, sends its hello and gets a session. An assistant's
first prompt waits for a hook, and hooks only call tools, so the slow MCP SDK is loaded only for the first bridge."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import unquote, urlsplit

import anyio
import anyio.abc
import anyio.to_thread
import msgspec

from remembrancer.actors.gateway.elicitation import Questions
from remembrancer.actors.gateway.session_registry import ClientConversation, SessionRegistry
from remembrancer.config.project import expanded, project_of, working_tree_of
from remembrancer.config.reading import read_configuration
from remembrancer.config.settings import PREFIX, Settings
from remembrancer.memory.limits import MAX_SESSION_ID
from remembrancer.memory.text import clean_name, nearest, quote
from remembrancer.protocol.environment import TOOLSETS_VARIABLE
from remembrancer.protocol.errors import InternalError, InvalidInput, RemembrancerError, VersionMismatch
from remembrancer.protocol.gateway_link import (
    BYE,
    CONTROL,
    END,
    INVALID,
    INVALID_REQUEST,
    LINK_VERSION,
    MAX_HELLO_BYTES,
    MAX_LINE_BYTES,
    MAX_STAMP_BYTES,
    REFUSED,
    WELCOME,
    split_stamp,
)
from remembrancer.protocol.tracing import note_call
from remembrancer.protocol.wire import Notice
from remembrancer.protocol.writes import ProjectRef
from remembrancer.toolsets.service import Caller, MemoryService
from remembrancer.toolsets.tools import Call, CallResult, Tool, answer_text, choose_tools, error_result, text_result

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

HIGH_WATER_BYTES: Final = 1024 * 1024
"""While more than this many bytes are unsent, no lines are read, and the SDK's server waits."""
MAX_UNREAD_BYTES: Final = MAX_LINE_BYTES + MAX_STAMP_BYTES
HELLO_WAIT_S: Final = 5.0
BACKLOG: Final = 256
MAX_SESSIONS: Final = 512
FAILED: Final = "the memory service failed on this request; see gateway.log"

PROJECT_VARIABLE: Final = PREFIX + "PROJECT"
CONFIG_VARIABLE: Final = PREFIX + "CONFIG"

logger = logging.getLogger(__name__)


class Hello(msgspec.Struct, frozen=True):
    """The first message of a bridge. `bridge` is its own ULID in hexadecimal, `project` its `--project` path."""

    link: int
    version: str
    bridge: str
    session: str
    directory: str
    project: str | None = None
    environment: dict[str, str] = {}
    pid: int = 0
    passing: bool = False
    """True if the client only sends requests for a session, and its connection neither begins nor ends that session."""
    named_project: ProjectRef | None = None
    """A project in this home, chosen by a person. Its directory may be gone, or inside that of another project."""


def read_hello(line: bytes) -> Hello:
    """Raises `VersionMismatch` if the bridge is from a different release, or `InvalidInput`."""
    if len(line) > MAX_HELLO_BYTES:
        raise InvalidInput(f"a hello may have at most {MAX_HELLO_BYTES} bytes")
    try:
        # The standard library's decoder, because paths that are not UTF-8 contain lone surrogates.
        fields = json.loads(line)
        link = fields["link"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InvalidInput("the first line of a connection must be a hello") from error
    if link != LINK_VERSION:
        raise VersionMismatch(
            f"this bridge uses version {link} of the link, but the memory service uses version {LINK_VERSION}; "
            "run `remembrancer down`, so that the next session starts both from the same release"
        )
    try:
        hello = msgspec.convert(fields, Hello)
        session = clean_name(hello.session, field="REMEMBRANCER_SESSION_ID", longest=MAX_SESSION_ID)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"the hello of the bridge is malformed: {error}") from error
    return msgspec.structs.replace(hello, session=session)


def directory_of(hello: Hello, roots: list[str]) -> Path:
    """The client's first root on this disk, or the bridge's flag, its variable, or its working directory."""
    for uri in roots:
        path = path_of_uri(uri)
        if path is not None:
            return path
    named = hello.project or hello.environment.get(PROJECT_VARIABLE)
    return Path(hello.directory, expanded(named)) if named else Path(hello.directory)


def path_of_uri(uri: str) -> Path | None:
    """The absolute path of a `file://` URI of this host (RFC 8089); None for any other URI."""
    try:
        parts = urlsplit(uri)
    except ValueError:  # brackets without an IP address
        return None
    path = unquote(parts.path, errors="surrogateescape")
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or not path.startswith("/") or "\0" in path:
        return None
    return Path(path)


def setting_warnings(environment: dict[str, str], settings: Settings) -> list[Notice]:
    """A warning for each setting in which the session's environment or configuration file differs from the runtime."""
    file = environment.get(CONFIG_VARIABLE)
    asked = read_configuration(environment, Path(file) if file else None)
    found = [Notice("setting_ignored", problem) for problem in (*asked.problems, *asked.unknown)]
    for name, origin in asked.origins.items():
        actual = getattr(settings, name)
        if getattr(asked.settings, name) != actual:
            text = (
                f"{origin} has a different value in this session, but the memory service was started with "
                f"{'none' if actual is None else actual}; run `remembrancer down` to have the next session restart it"
            )
            found.append(Notice("setting_ignored", text))
    return found


@dataclass(slots=True, eq=False)
class CallContext:
    """A request's session, and the time at which the client sent it (seconds since the epoch)."""

    session: ClientConversation
    received_at: float
    is_stream: bool = False


CallTool = Callable[[CallContext, "int | str", str, dict[str, Any]], Awaitable[CallResult]]


@dataclass(frozen=True, slots=True)
class McpService:
    """Serves clients of any transport. `server` loads the SDK once. `notices` come with each session's first answer."""

    incarnation: str
    server: Callable[[], Server[Any]]
    call_tool: CallTool
    tools: Sequence[Tool[Any]]
    registry: SessionRegistry
    notices: Callable[[], list[Notice]] = list
    questions: Questions = field(default_factory=Questions)


class ToolCalls:
    def __init__(self, service: MemoryService) -> None:
        self._service = service

    async def call(
        self, context: CallContext, request_id: int | str, name: str, arguments: dict[str, Any]
    ) -> CallResult:
        """Errors are returned as results. Notices for the session are added to the answer's warnings."""
        session = context.session
        tool = session.tools.get(name)
        try:
            if name in session.withheld:
                raise InvalidInput(f"this token is read-only, but {name} may change something", field="name")
            if tool is None:
                raise InvalidInput(f"there is no tool {quote(name)}{nearest(name, session.tools)}", field="name")
            caller = await session.caller()
            call = Call(
                name,
                caller,
                request_id,
                context.received_at,
                arguments,
                self._service,
                lambda: [*session.take_notices(), *self._service.take_refused(caller)],
            )
            fields = await tool.answer(call, tool.decoder.decode(arguments))
            answer = text_result(fields) if tool.answers_text else CallResult(fields, answer_text(fields))
        except RemembrancerError as error:
            answer = self._error_result(error, tool)
        except Exception:
            logger.exception("a tool failed", extra={"tool": name})
            answer = self._error_result(InternalError(FAILED), tool)
        note_call("unknown tool" if tool is None else name, max(0.0, time.time() - context.received_at))
        return answer

    def _error_result(self, error: RemembrancerError, tool: Tool[Any] | None) -> CallResult:
        return error_result(error, degraded=self.is_degraded(error), as_text=tool is not None and tool.answers_text)

    def is_degraded(self, error: RemembrancerError) -> bool:
        """True if the store is unavailable, and the call is valid and may succeed later."""
        return error.retry_possible and not self._service.store_health.usable


class _CallParams(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    arguments: dict[str, Any] = {}
    meta: dict[str, Any] = msgspec.field(name="_meta", default_factory=dict)


class PlainCall(msgspec.Struct):
    jsonrpc: Literal["2.0"]
    id: int | str
    method: Literal["tools/call"]
    params: _CallParams


_decode_plain_call: Final = msgspec.json.Decoder(PlainCall).decode


def plain_call_in(text: bytes) -> PlainCall | None:
    """The tool call in a message; None for other messages, which the SDK handles."""
    with suppress(ValueError, RecursionError):
        return _decode_plain_call(text)
    return None


class Session(ClientConversation):
    """The session of a hook or a command, which only calls tools. `notices` are added to its first answer."""

    def __init__(
        self,
        hello: Hello,
        key: str,
        tools: dict[str, Tool[Any]],
        notices: list[Notice],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        service: McpService,
    ) -> None:
        super().__init__(key, tools, notices)
        self.hello = hello
        self._started_at = time.time()
        self._reader, self._writer = reader, writer
        self._service = service
        self._tasks = asyncio.TaskGroup()  # three times as fast as anyio's
        self._roots: list[str] = []
        self._directory_thread = anyio.CapacityLimiter(1)
        """The session's own thread, so that a directory on a hanging disk does not block the shared threads."""
        self._caller: Caller | None = None
        self._open: dict[int | str, CallContext] = {}
        self._has_plain_calls = True
        """True if the client's calls do not carry information about the client."""

    async def serve(self) -> None:
        async with self._tasks:
            await self._take_lines()
            self._writer.close()  # the client is gone

    def say_goodbye(self, reason: str) -> None:
        self._write(BYE + reason.encode() + b"\n")

    @property
    def is_idle(self) -> bool:
        """True if every request except event streams has been answered."""
        return all(request.is_stream for request in self._open.values())

    async def caller(self) -> Caller:
        while self._caller is None:  # new roots may make the project unknown again
            await self._settle()
        return self._caller

    async def _settle(self) -> None:
        roots = self._roots
        directory = directory_of(self.hello, roots)
        project = await anyio.to_thread.run_sync(project_of, directory, limiter=self._directory_thread)
        tree = await anyio.to_thread.run_sync(working_tree_of, directory, limiter=self._directory_thread)
        named = self.hello.named_project
        if named is not None and named.id != project.id:
            project, tree = named, directory  # it has no notes
        before = self._caller
        known = ProjectRef(project.id, as_text(project.path))
        caller = Caller(self.hello.bridge, self.hello.session, known, self._started_at, as_text(str(tree)))
        if roots is not self._roots or caller == before:
            return
        self._caller = caller
        if before is not None and before.project != known:
            text = (
                f"The client named its directory late, or changed it. From now on, this session works in {known.path}; "
                f"its earlier work belongs to {before.project.path}."
            )
            self._notices.append(Notice("project_changed", text))
        if not self.hello.passing:
            self._service.registry.known(self, caller)

    async def _take_lines(self) -> None:
        """Requests that are still open when the connection ends get no answer."""
        try:
            while (line := await self._reader.readline()).endswith(b"\n"):
                await self._take_line(line)
                await self._writer.drain()
        except (OSError, ValueError) as error:  # the connection is lost, or a line is too long
            logger.warning("a connection has ended", extra={"reason": str(error)})
        finally:
            self._open.clear()

    async def _take_line(self, line: bytes) -> None:
        if line.startswith(CONTROL):
            self.has_announced_end = self.has_announced_end or line.rstrip() == END
            return
        try:
            sent_ms, text = split_stamp(line)
        except ValueError:
            logger.warning("a line without a timestamp was dropped")
            return
        # A plain tool call would take twice as long through the SDK's server.
        if self._has_plain_calls and (call := plain_call_in(text)) is not None:
            self._tasks.create_task(self._call(call, self._open_request(call.id, sent_ms)))
        else:
            await self._take_message(text, sent_ms)

    def _open_request(self, request_id: int | str, sent_ms: int, *, is_stream: bool = False) -> CallContext:
        context = self._open[request_id] = CallContext(self, sent_ms / 1000, is_stream)
        return context

    async def _take_message(self, text: bytes, sent_ms: int) -> None:
        """Refuse any other request, even the handshake that some releases send without waiting for an answer."""
        if _id_in(text) is not None:
            self._refuse(text, INVALID_REQUEST, "this kind of session can only call tools")

    def _refuse(self, text: bytes, code: int, message: str) -> None:
        error = {"jsonrpc": "2.0", "id": _id_in(text), "error": {"code": code, "message": message}}
        self._write(msgspec.json.encode(error) + b"\n")

    async def _call(self, call: PlainCall, context: CallContext) -> Mapping[str, Any] | None:
        result = await self._service.call_tool(context, call.id, call.params.name, call.params.arguments)
        self._open.pop(call.id, None)
        self._write(result.response(call.id) + b"\n")
        return result.answer

    def _write(self, data: bytes) -> None:
        if not self._writer.is_closing():
            self._writer.write(data)


class MessageHead(msgspec.Struct, frozen=True):
    id: Any = msgspec.UNSET
    method: str | None = None
    params: Any = None

    @property
    def has_valid_id(self) -> bool:
        return isinstance(self.id, int | str) and not isinstance(self.id, bool)


_decode_head: Final = msgspec.json.Decoder(MessageHead).decode


def head_of(text: bytes) -> MessageHead:
    """The head of a message; an empty head for anything else, which the SDK handles."""
    with suppress(ValueError, RecursionError):
        return _decode_head(text)
    return MessageHead()


def _id_in(text: bytes) -> int | str | None:
    """The id of a request that cannot be decoded; None if there is no id that an answer could repeat."""
    head = head_of(text)
    return head.id if head.method is not None and head.has_valid_id else None


def as_text(text: str) -> str:
    """Replace lone surrogates, which may occur in a path, with question marks."""
    return text.encode("utf-8", "replace").decode()


class Listener:
    """`load_mcp` returns the class of the sessions that speak MCP; the first call loads the SDK."""

    def __init__(
        self,
        path: Path,
        service: McpService,
        load_mcp: Callable[[], type[Session]],
        settings: Settings,
        tasks: anyio.abc.TaskGroup,
    ) -> None:
        self._path = path
        self._service = service
        self._settings = settings
        self._tasks = tasks
        self._load_mcp = load_mcp
        self._loading = anyio.Lock()
        self._numbers = itertools.count(1)
        self._socket: asyncio.Server | None = None
        self.sessions: set[Session] = set()

    async def open(self) -> None:
        """Replace the socket of a dead gateway: the path belongs to the gateway that holds the lock."""
        self._path.unlink(missing_ok=True)
        self._socket = await asyncio.start_unix_server(
            lambda *streams: self._tasks.start_soon(self._accept, *streams),
            self._path,
            limit=MAX_UNREAD_BYTES,
            backlog=BACKLOG,
        )
        self._path.chmod(0o600)

    async def drain(self, reason: str) -> None:
        """Accept no more connections, wait until every request has been answered, and tell the bridges the reason."""
        await self.aclose()
        while any(not session.is_idle for session in self.sessions):  # noqa: ASYNC110 - limited by the caller
            await anyio.sleep(0.01)
        for session in self.sessions:
            session.say_goodbye(reason)

    async def aclose(self) -> None:
        """May be called twice. Sessions end with their task group."""
        socket, self._socket = self._socket, None
        if socket is not None:
            socket.close()
            self._path.unlink(missing_ok=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.set_write_buffer_limits(HIGH_WATER_BYTES)
        try:
            async with asyncio.timeout(HELLO_WAIT_S):
                line = await reader.readline()
            if line.endswith(b"\n"):
                if len(self.sessions) >= MAX_SESSIONS:
                    raise InvalidInput(f"{MAX_SESSIONS} sessions are already open")
                hello, make = read_hello(line), Session
                if not hello.passing:
                    async with self._loading:
                        make = await anyio.to_thread.run_sync(self._load_mcp, abandon_on_cancel=True)
                writer.write(WELCOME + b"{}\n")
                await self._converse(make, hello, reader, writer)
        except RemembrancerError as error:
            logger.warning("a bridge was refused", extra={"code": error.code, "reason": error.message})
            reason = " ".join(error.message.split()).encode("utf-8", "replace") + b"\n"
            writer.write((REFUSED if error.field is None else INVALID) + reason)
        except (OSError, ValueError) as error:
            logger.warning("a connection without a hello", extra={"reason": str(error)})
        finally:
            writer.close()

    async def _converse(
        self, make: type[Session], hello: Hello, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """An error ends only this session."""
        tools, notices = choose_tools(self._service.tools, hello.environment.get(TOOLSETS_VARIABLE))
        notices += [*setting_warnings(hello.environment, self._settings), *self._service.notices()]
        for notice in notices:
            logger.warning("a session's environment", extra={"session": hello.session, "reason": notice.message})
        key = f"{self._service.incarnation}-{next(self._numbers)}"
        session = make(hello, key, tools, notices, reader, writer, self._service)
        self.sessions.add(session)
        logger.info("session opened", extra={"session": hello.session, "bridge_pid": hello.pid})
        try:
            await session.serve()
        except Exception:
            logger.exception("a session crashed")
            writer.write(REFUSED + FAILED.encode() + b"\n")  # or the bridge would repeat the requests that caused it
        finally:
            self.sessions.discard(session)
            self._service.registry.left(session)
            logger.info("session closed", extra={"session": hello.session, "bridge_pid": hello.pid})
