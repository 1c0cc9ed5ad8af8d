"""MCP over streamable HTTP: access control, and the project and session of each request. A client that sends a
handshake gets a session, which ends with its gateway. Other clients (the 2026-07-28 protocol, or a bare call) have no
session; their retries are recognised by the header `Idempotency-Key`. Protection against floods is left to a proxy."""

import asyncio
import contextlib
import hashlib
import logging
import re
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs

import anyio
import anyio.abc
import anyio.to_thread
import msgspec
import uvicorn
from mcp.server.streamable_http import StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import DEFAULT_SESSION_IDLE_TIMEOUT, StreamableHTTPSessionManager
from mcp_types import DEFAULT_NEGOTIATED_VERSION, INTERNAL_ERROR, INVALID_REQUEST
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from remembrancer.actors.gateway.conversations import (
    FAILED,
    CallContext,
    McpService,
    MessageHead,
    head_of,
    plain_call_in,
)
from remembrancer.actors.gateway.mcp_session import MAX_CLIENT_NAME, client_name
from remembrancer.actors.gateway.session_registry import ClientConversation
from remembrancer.config.project import project_of, working_tree_of
from remembrancer.config.settings import Settings
from remembrancer.config.tokens import LOOPBACK, Grant, Tokens, as_granted
from remembrancer.memory.text import quote
from remembrancer.protocol.errors import HomeUnusable, InvalidInput, RemembrancerError
from remembrancer.protocol.ids import new_ulid
from remembrancer.protocol.wire import Notice
from remembrancer.protocol.writes import ProjectRef
from remembrancer.toolsets.service import Caller
from remembrancer.toolsets.tools import Tool, choose_tools

PATH: Final = "/mcp"
HEALTH: Final = "/health"
BROWSER: Final = "/browser"
STOP_S: Final = 2.0
IDLE_S: Final = 15
"""Clients close idle connections earlier than this, so no request is lost on a connection that is closing."""
RETRY_NOTICE_S: Final = 0.3
"""The part of a stop during which waiting clients are told to retry."""
STOPPED: Final = (
    "the memory service is stopping or restarting; try again in a moment, with the same id (a write may still have "
    "been stored)"
)
CHECK_S: Final = 0.5
"""The interval between checks of an open stream's token."""
SESSION: Final = "mcp-session-id"
VERSION: Final = "mcp-protocol-version"
PROJECT: Final = "x-remembrancer-project"
TOOLSETS: Final = "x-remembrancer-toolsets"
RETRY: Final = "idempotency-key"
HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:/@\s]+)(?::\d*)?")
BRIDGE: Final = "x-remembrancer-bridge"
"""Identifies a bridge's requests across sessions, so that retries are recognised."""
TAKEN_HEADERS: Final = ("Content-Type", "Authorization", "Accept", SESSION, VERSION, PROJECT, TOOLSETS, RETRY)
MAX_BODY_BYTES: Final = 4 * 1024 * 1024
MAX_HEADER_BYTES: Final = 32 * 1024
MAX_CONNECTIONS: Final = 1024
MAX_SESSIONS: Final = 512

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class HttpRefusal(Exception):
    status: int
    reason: str
    headers: dict[str, str] | None = None
    code: int = INVALID_REQUEST
    retry: bool = False

    def response(self, request_id: Any) -> JSONResponse:
        data = {"data": {"retry_possible": True}} if self.retry else {}
        error = {"code": self.code, "message": self.reason, **data}
        return JSONResponse({"jsonrpc": "2.0", "id": request_id, "error": error}, self.status, self.headers)


class Exchange:
    """A request that may already be partly answered. `id` is its JSON-RPC id, once known."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope, self.receive = scope, receive
        self.headers = Headers(scope=scope)
        self.id: Any = None
        self.has_begun = False
        self._send = send

    async def send(self, message: Message) -> None:
        self.has_begun = True
        await self._send(message)

    async def answer(self, response: ASGIApp) -> None:
        await response(self.scope, self.receive, self.send)


class QuietServer(uvicorn.Server):
    """A uvicorn server that leaves signals to the gateway."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def read_body(receive: Receive) -> bytes:
    """Raises `HttpRefusal` if the body is too large or incomplete."""
    body, is_whole = bytearray(), False
    while not is_whole:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise HttpRefusal(400, "the request ended before its body was complete")
        body += message.get("body", b"")
        if len(body) > MAX_BODY_BYTES:
            raise HttpRefusal(413, f"a request may have at most {MAX_BODY_BYTES} bytes", {"Connection": "close"})
        is_whole = not message.get("more_body")
    return bytes(body)


def replayed(body: bytes, receive: Receive) -> Receive:
    left: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return left.pop() if left else await receive()

    return replay


class Visitor(ClientConversation):
    def __init__(
        self, key: str, caller: Caller, tools: dict[str, Tool[Any]], notices: list[Notice], client: str, owner: str
    ) -> None:
        super().__init__(key, tools, notices, client or None)
        self.has_announced_end = True
        self.owner = owner
        """The session's owner. Nobody else can continue the session."""
        self._caller = caller

    async def caller(self) -> Caller:
        return self._caller


class HttpServer:
    """`url` is the server's address; `error` is the reason if it does not listen. With `no_token`, requests without a
    token are answered, but only on this machine. `open_browser` creates the memory browser on first use."""

    def __init__(
        self,
        home: Path,
        settings: Settings,
        service: McpService,
        *,
        no_token: bool,
        open_browser: Callable[[], ASGIApp],
    ) -> None:
        self.url: str | None = None
        self.error: str | None = None
        self._home = home
        self._settings = settings
        self._service = service
        self._certificate = settings.http_certificate and Path(settings.http_certificate).expanduser()
        self._tokens = Tokens(home)
        self._no_token = no_token
        self._open_browser = open_browser
        self._browser: ASGIApp | None = None
        self.pages = 0
        self._names: frozenset[str] | None = None
        """The host names by which clients may address this server; None: any."""
        self._sessions = Sessions(service)
        self._alone = StreamableHTTPSessionManager(service.server(), stateless=True)
        self._server: uvicorn.Server | None = None

    @property
    def sessions(self) -> int:
        return len(self._sessions.visitors)

    @property
    def browser_url(self) -> str:
        """The memory browser's URL; empty while the server does not listen."""
        return "" if self.url is None else self.url.removesuffix(PATH) + BROWSER

    async def serve(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Listen until cancelled. If that fails, the reason is logged and kept in `error`; the gateway continues."""
        host, port = self._settings.http_host, self._settings.http_port
        is_v6 = ":" in host
        config = uvicorn.Config(
            self._serve_app,
            http="h11",
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=MAX_CONNECTIONS,
            h11_max_incomplete_event_size=MAX_HEADER_BYTES,
            timeout_graceful_shutdown=int(STOP_S),
            timeout_keep_alive=IDLE_S,
            ssl_certfile=self._certificate,
        )
        try:
            if host not in LOOPBACK and self._no_token:
                raise InvalidInput(f"--no-token is only allowed with a loopback address (127.0.0.1), not with {host}")
            if any("*" in name for name in self._settings.http_hosts):
                raise InvalidInput("http_hosts must contain whole names, not patterns")
            try:
                config.load()
            except OSError as error:
                what = "a PEM file with the certificate and its private key"
                why = f"http_certificate must be {what}; {self._certificate} cannot be used: {error}"
                raise InvalidInput(why) from error
            listener = socket.create_server(
                (host, port), family=socket.AF_INET6 if is_v6 else socket.AF_INET, backlog=1024
            )
        except (OSError, RemembrancerError) as error:
            self.error = f"HTTP is off: {error}"
            logger.error("HTTP is off", extra={"reason": str(error)})
            task_status.started()
            return
        self._allow_names(listener.getsockname()[1])
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # without it, a body waits 40 ms for an ACK
        address = f"[{host}]" if is_v6 else host
        self.url = f"{'https' if self._certificate else 'http'}://{address}:{listener.getsockname()[1]}{PATH}"
        task_status.started()
        self._server = QuietServer(config)
        with listener:
            async with self._sessions.run(), self._alone.run(), anyio.create_task_group() as tasks:
                try:
                    await self._server.serve([listener])
                finally:
                    await self._end(self._server)
                tasks.cancel_scope.cancel()

    def stop(self) -> None:
        if self._server is not None:
            self._server.should_exit = True

    async def _end(self, server: uvicorn.Server) -> None:
        if not server.started:
            return
        for listening in server.servers:
            listening.close()
        for connection in tuple(server.server_state.connections):
            connection.shutdown()
        waiting = set(server.server_state.tasks)
        for task in waiting:
            task.cancel()
        if waiting:
            with anyio.CancelScope(shield=True):
                await asyncio.wait(waiting, timeout=RETRY_NOTICE_S)

    # --- one request ---

    def _allow_names(self, port: int) -> None:
        """Set the allowed hosts and origins. A web page can make any host name point to this machine, so requests are
        served only for our own names, and only from pages of allowed origins."""
        local = "|".join(re.escape(f"[{each}]" if ":" in each else each) for each in sorted(LOOPBACK))
        # Without tokens, pages on other ports are not trusted, since any account on this machine can serve them.
        origins = [f"https?://({local})" + (f":{port}" if self._no_token else r"(:\d+)?")]
        for each in self._settings.http_origins:
            origins += ([] if self._no_token else [".*"]) if each == "*" else [re.escape(each)]
        self._cors = CORSMiddleware(
            self._answer_always,
            allow_origin_regex="|".join(origins),
            allow_methods=("POST", "GET", "DELETE"),
            allow_headers=TAKEN_HEADERS,
            expose_headers=(SESSION, "WWW-Authenticate"),
        )
        if self._settings.http_host in LOOPBACK or self._settings.http_hosts:
            names = (*LOOPBACK, *self._settings.http_hosts)
            self._names = frozenset(f"[{each}]" if ":" in each else each.lower() for each in names)

    async def _serve_app(self, scope: Scope, receive: Receive, send: Send) -> None:
        host = Headers(scope=scope).get("host", "")
        name = HOST.fullmatch(host)
        if self._names is None or (name is not None and name[1].lower() in self._names):
            await (self._cors if scope["path"] == PATH else self._answer_always)(scope, receive, send)
        else:
            refused = HttpRefusal(400, f"this server is not known as {quote(host)}; see the setting http_hosts")
            await refused.response(None)(scope, receive, send)

    async def _answer_always(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer in JSON even if a request raises an error; uvicorn's own answer would be plain text."""
        exchange, refused = Exchange(scope, receive, send), HttpRefusal(500, FAILED, code=INTERNAL_ERROR)
        try:
            await self._serve_request(exchange)
        except HttpRefusal as error:
            refused = error
        except anyio.get_cancelled_exc_class():  # cancelled by `_end`, or by uvicorn after `STOP_S`
            if exchange.has_begun:
                raise
            refused = HttpRefusal(503, STOPPED, {"Retry-After": "1", "Connection": "close"}, INTERNAL_ERROR, retry=True)
        except Exception:
            if exchange.has_begun:
                raise
            logger.exception("a request over HTTP failed", extra={"path": scope["path"]})
        if not exchange.has_begun:
            await refused.response(exchange.id)(scope, receive, send)

    async def _serve_request(self, exchange: Exchange) -> None:
        path, origin = exchange.scope["path"], exchange.headers.get("origin")
        if path == HEALTH:
            await exchange.answer(JSONResponse({"status": "ok"}))
        elif f"{path}/".startswith(f"{BROWSER}/"):
            await self._browse(exchange)
        elif (exchange.scope["method"], path) == ("GET", "/"):
            await exchange.answer(RedirectResponse(f"{BROWSER}/"))
        elif path != PATH:
            raise HttpRefusal(404, f"there is nothing at this path; MCP is at {PATH}")
        elif origin is not None and not self._cors.is_allowed_origin(origin):
            raise HttpRefusal(403, "pages from that origin are not allowed; see the setting http_origins")
        else:
            await self._answer(exchange, self._grant(exchange.headers))

    async def _browse(self, exchange: Exchange) -> None:
        if self._browser is None:
            self._browser = Router([Mount(BROWSER, await anyio.to_thread.run_sync(self._open_browser))])
        self.pages += 1
        try:
            await exchange.answer(self._browser)
        finally:
            self.pages -= 1

    def _grant(self, headers: Headers) -> Grant | None:
        """None for a request without a token, if it needs no token."""
        if self._no_token and "authorization" not in headers:
            return None
        scheme, _, token = headers.get("authorization", "").partition(" ")
        try:
            grant = self._tokens.find(token.strip(), time.time()) if scheme.lower() == "bearer" else None
        except HomeUnusable as error:
            logger.error("tokens cannot be read", extra={"reason": error.message})
            raise HttpRefusal(503, "the tokens of this server cannot be read; see gateway.log") from error
        if grant is None:
            reason = (
                "this server needs a valid token ('Authorization: Bearer <token>'); run 'remembrancer token create' "
                "to make one"
            )
            raise HttpRefusal(401, reason, {"WWW-Authenticate": 'Bearer error="invalid_token"'})
        return grant

    async def _answer(self, exchange: Exchange, grant: Grant | None) -> None:
        headers, is_post, body = exchange.headers, exchange.scope["method"] == "POST", await read_body(exchange.receive)
        session_id, version = headers.get(SESSION), headers.get(VERSION, DEFAULT_NEGOTIATED_VERSION)
        has_handshake = version in HANDSHAKE_PROTOCOL_VERSIONS
        head = head_of(body) if is_post else MessageHead()
        if head.method is not None and not (head.id is msgspec.UNSET or head.has_valid_id):
            # The SDK would treat it as a notification.
            raise HttpRefusal(400, "the id of a request must be a string or an integer")
        exchange.id = None if head.id is msgspec.UNSET else head.id
        begins = session_id is None and has_handshake and head.method == "initialize"
        if session_id is None:
            # A client without a session reuses its request ids after a restart, so each request gets a unique key.
            key = headers.get(RETRY) or new_ulid()
            session = f"session:{key}" if begins else _shared_session(grant)
            visitor = await self._visitor(key, session, exchange, grant, client_name(head.params))
        elif (known := self._sessions.visitors.get(session_id)) is not None and known.owner == _whose(grant):
            visitor = known
        else:
            raise HttpRefusal(404, "there is no such session; begin a new one with initialize")
        try:
            reads_json = any(each in headers.get("accept", "*/*") for each in ("application/json", "*/*"))
            call, context = plain_call_in(body), CallContext(visitor, time.time())
            if call is not None and has_handshake and reads_json:
                # The SDK would take several times as long.
                result = await self._service.call_tool(context, call.id, call.params.name, call.params.arguments)
                self._sessions.note_use(session_id or "")
                await exchange.answer(Response(result.response(call.id), media_type="application/json"))
            else:
                is_alone = session_id is None and has_handshake and not begins and is_post
                manager = self._alone if is_alone else self._sessions
                sending = self._opening(visitor, exchange.send) if begins else exchange.send
                scope = {**exchange.scope, "remembrancer": context}
                async with anyio.create_task_group() as tasks:
                    if grant is not None:
                        tasks.start_soon(self._end_when_revoked, grant, tasks.cancel_scope)
                    await manager.handle_request(scope, replayed(body, exchange.receive), sending)
                    tasks.cancel_scope.cancel()
        finally:
            if session_id is None and not begins:
                self._service.registry.left(visitor)

    def _opening(self, visitor: Visitor, send: Send) -> Send:
        async def sending(message: Message) -> None:
            made = Headers(raw=message["headers"]).get(SESSION) if message["type"] == "http.response.start" else None
            if made is not None and message["status"] < 300:
                self._sessions.visitors[made] = visitor
                self._service.registry.known(visitor, await visitor.caller())
            await send(message)

        return sending

    async def _end_when_revoked(self, grant: Grant, scope: anyio.CancelScope) -> None:
        with contextlib.suppress(HomeUnusable):
            while self._tokens.holds(grant, time.time()):  # noqa: ASYNC110 - tokens are in a file
                await anyio.sleep(CHECK_S)
        scope.cancel()

    async def _visitor(
        self, key: str, session: str, exchange: Exchange, grant: Grant | None, client: str | None
    ) -> Visitor:
        """A client in the project of its request, or else in its token's first project. Raises `HttpRefusal`."""
        headers, query = exchange.headers, parse_qs(exchange.scope["query_string"].decode("latin-1"))
        named = headers.get(PROJECT, "")
        with contextlib.suppress(UnicodeDecodeError):  # some clients send UTF-8, others Latin-1
            named = named.encode("latin-1").decode()
        named = named or query.get("project", [""])[0]
        first = grant.projects[0] if grant is not None and grant.projects else self._home
        directory = Path(named or first)
        if not directory.is_absolute() or "\0" in named:
            raise HttpRefusal(400, "name the project by the absolute path of its directory")
        project, tree = await anyio.to_thread.run_sync(_place, directory, grant)
        tools, notices = choose_tools(self._service.tools, headers.get(TOOLSETS))
        withheld = frozenset[str]()
        if grant is not None and grant.read_only:
            withheld = frozenset(name for name, tool in tools.items() if not tool.read_only)
            tools = {name: tool for name, tool in tools.items() if tool.read_only}
        bridge = headers.get(BRIDGE)
        if bridge is not None:
            session = f"session:{hashlib.sha256(f'{_whose(grant)} {bridge}'.encode()).hexdigest()[:32]}"
        caller = Caller(f"http {_whose(grant)} {bridge or key}", session, project, time.time(), tree)
        notices += self._service.notices()
        name = client or headers.get("user-agent", "")[:MAX_CLIENT_NAME]
        visitor = Visitor(f"{self._service.incarnation}-{key}", caller, tools, notices, name, _whose(grant))
        visitor.withheld = withheld
        return visitor


class Sessions(StreamableHTTPSessionManager):
    def __init__(self, service: McpService) -> None:
        super().__init__(service.server(), max_request_body_size=MAX_BODY_BYTES, max_sessions=MAX_SESSIONS)
        self.visitors: dict[str, Visitor] = {}
        self._registry = service.registry

    def note_use(self, session_id: str) -> None:
        """Note a call that is answered without the SDK, so that its session does not count as idle."""
        transport = self._server_instances.get(session_id)
        if transport is not None and transport.idle_scope is not None:
            until = anyio.current_time() + DEFAULT_SESSION_IDLE_TIMEOUT
            transport.idle_scope.deadline = max(transport.idle_scope.deadline, until)

    async def _discard_session(self, session_id: str, transport: StreamableHTTPServerTransport) -> None:
        visitor = self.visitors.pop(session_id, None)
        if visitor is not None:
            self._registry.left(visitor)
        await super()._discard_session(session_id, transport)


def _place(directory: Path, grant: Grant | None) -> tuple[ProjectRef, str]:
    """The project and the working tree of a directory, as visible to the token's holder. Raises `HttpRefusal`."""
    project, tree = project_of(directory), working_tree_of(directory)
    has_all = grant is None or grant.every_project
    if grant is not None and not has_all and project.id not in {project_of(Path(each)).id for each in grant.projects}:
        raise HttpRefusal(403, "this token is not for that project")
    return as_granted(project, grant, tree), str(tree)


def _whose(grant: Grant | None) -> str:
    return "anyone" if grant is None else grant.sha256


def _shared_session(grant: Grant | None) -> str:
    """The session of all calls with the same token but no session. A new token of the same name has a new session."""
    if grant is None:
        return "session:http"
    return f"session:http-{hashlib.sha256(f'session {grant.sha256}'.encode()).hexdigest()[:32]}"
