"""MCP over streamable HTTP: who may come in, and whose memory a request is about. The SDK speaks the protocol.

A client with a handshake has a session, whose id the gateway signs: a gateway that was started anew takes a session up
again as it was, so that a retried request is answered as before, and so does that of another host, if the token is one
that it takes too. A client without one (the protocol of 2026-07-28, or a bare call) has none: a retry is known by its
`Idempotency-Key`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import math
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs

import anyio
import anyio.abc
import anyio.to_thread
import msgspec
import uvicorn
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.lowlevel import Server
from mcp_types import DEFAULT_NEGOTIATED_VERSION, INTERNAL_ERROR
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from remembrancer.actors.gateway.attendance import SessionRegistry
from remembrancer.actors.gateway.conversations import CALL, MAX_CLIENT_NAME, CallTool, RequestContext
from remembrancer.actors.gateway.http_messages import (
    MAX_CONNECTIONS,
    MAX_HEADER_BYTES,
    SESSION,
    Connection,
    Exchange,
    Head,
    QuietServer,
    Refused,
    Said,
    as_json,
    check_head,
    host_in,
    read_body,
    replayed,
    said_in,
    with_headers,
)
from remembrancer.actors.gateway.http_sessions import HttpSessions, name_of
from remembrancer.config.project import project_of, working_tree_of
from remembrancer.config.settings import Settings
from remembrancer.config.tokens import LOOPBACK, Grant, Tokens, as_granted
from remembrancer.protocol.errors import HomeUnusable, InvalidInput, RemembrancerError
from remembrancer.protocol.ids import new_ulid
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.reads import Notice
from remembrancer.protocol.tracing import Traces
from remembrancer.protocol.writes import ProjectRef
from remembrancer.toolsets.service import Caller
from remembrancer.toolsets.tools import Tool, choose_tools

PATH: Final = "/mcp"
HEALTH: Final = "/health"
BROWSER: Final = "/browser"
STOP_S: Final = 2.0
IDLE_S: Final = 15
"""A connection on which nothing is asked is closed after so many seconds: later than clients let go of one (the usual
ones after 4 or 5 s), or a request could be on its way over one that is being closed, and be lost."""
TOLD_S: Final = 0.3
"""The time in which those who still wait at the end are told to come again."""
STOPPED: Final = (
    "the memory service stops or starts anew; try again in a moment, with the same id (if this call was to store "
    "something, it may have been stored all the same)"
)
FAILED: Final = "the memory service failed on this request: see gateway.log"
CHECK_S: Final = 0.5
"""The time between two checks of an open stream's token."""
VERSION: Final = "mcp-protocol-version"
PROJECT: Final = "x-remembrancer-project"
TOOLSETS: Final = "x-remembrancer-toolsets"
RETRY: Final = "idempotency-key"
BRIDGE: Final = "x-remembrancer-bridge"
"""A bridge's own id: whatever session its requests come in, they are its own, and a repetition is known by its id."""
SHOWN_HEADERS: Final = f"{SESSION}, WWW-Authenticate"
TAKEN_HEADERS: Final = ", ".join(
    ("Content-Type", "Authorization", "Accept", "Last-Event-ID", SESSION, VERSION, PROJECT, TOOLSETS, RETRY)
)

logger = logging.getLogger(__name__)


class Visitor:
    """A client that came over HTTP, as handlers and the register of sessions see it."""

    def __init__(
        self, key: str, caller: Caller, tools: dict[str, Tool[Any]], notices: list[Notice], client: str, owner: str
    ) -> None:
        self.key = key
        self.tools = tools
        self.started_at = caller.started_at
        self.client: str | None = client or None
        self.directory = caller.directory
        self.has_said_end = True
        self.owner = owner
        """Whose it is: nobody else goes on with it."""
        self.requests = 0
        self.streams = 0
        """Requests that are being answered, and streams of events that are open."""
        self.used_at = time.monotonic()
        """The time at which the last request came or was answered."""
        self._caller = caller
        self._notices = notices
        self._at_end: list[Callable[[], None]] = []

    async def caller(self) -> Caller:
        """Who calls."""
        return self._caller

    def take_notices(self) -> list[Notice]:
        """The notices that the client has not been told yet; each is taken once."""
        notices, self._notices = self._notices, []
        return notices

    def at_end(self, callback: Callable[[], None]) -> None:
        """Have a function called when the client is gone."""
        self._at_end.append(callback)

    def when_known(self, callback: Callable[[Caller], None]) -> None:
        """The project of one that comes over HTTP is known at once."""
        callback(self._caller)

    @contextlib.contextmanager
    def at_work(self, method: str) -> Iterator[None]:
        """Count a request as long as it is being answered."""
        is_stream = method == "GET"
        self.requests += not is_stream
        self.streams += is_stream
        self.used_at = time.monotonic()
        try:
            yield
        finally:
            self.requests -= not is_stream
            self.streams -= is_stream
            self.used_at = time.monotonic()

    def end(self) -> None:
        """It is gone."""
        for callback in self._at_end:
            callback()


class HttpServer:
    """Use as a task: `serve`. `url` says where it listens, `error` why it does not.

    `call_tool` answers calls of tools at once, where no tool has more to say than its answer; None: the SDK does.
    Each request needs a token, however many there are. With `no_token` one that comes without any is answered as well:
    then only this machine may come. `open_browser` makes the memory browser, when somebody looks.
    """

    def __init__(
        self,
        home: Path,
        settings: Settings,
        incarnation: str,
        server: Server[Any],
        call_tool: CallTool | None,
        tools: Sequence[Tool[Any]],
        registry: SessionRegistry,
        traces: Traces,
        notices: Callable[[], list[Notice]],
        *,
        no_token: bool = False,
        open_browser: Callable[[], ASGIApp] | None = None,
    ) -> None:
        self.url: str | None = None
        self.error: str | None = None
        self._home = home
        self._settings = settings
        self._incarnation = incarnation
        self._call_tool = call_tool
        self._tools = tools
        self._registry = registry
        self._traces = traces
        self._notices = notices
        self._tokens = Tokens(home)
        self._no_token = no_token
        self._open_browser = open_browser
        self._browser: ASGIApp | None = None
        self._pages = 0
        self._rates = _Rates(settings.http_requests_per_minute)
        self._manager = HttpSessions(server, RuntimePaths(home).keys, self._idle_since, self._session_ended)
        self._visitors: dict[str, Visitor] = {}
        self._server: uvicorn.Server | None = None
        self._has_ended = False

    @property
    def sessions(self) -> int:
        """The number of sessions, and of pages of the memory browser that are open: nothing rests meanwhile."""
        return len(self._visitors) + self._pages

    @property
    def browser_url(self) -> str:
        """The address of the memory browser; empty while it does not listen."""
        return "" if self.url is None else self.url.removesuffix(PATH) + BROWSER

    async def serve(self) -> None:
        """Listen until cancelled. What keeps it from listening is said in `error` and logged, and ends nothing else."""
        host, port = self._settings.http_host, self._settings.http_port
        config = uvicorn.Config(
            self,
            http=Connection,
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
            ssl_certfile=self._settings.http_certificate,
        )
        try:
            self._check_exposed(host)
            config.load()  # which reads the certificate
            listener = socket.create_server((host, port), family=_family(host), backlog=1024)
        except (OSError, RemembrancerError) as error:
            self.error = f"HTTP is off: {error}"
            logger.error("HTTP is off", extra={"reason": str(error)})
            return
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else a body waits 40 ms for the head's receipt
        tls = bool(self._settings.http_certificate)
        shown = f"[{host}]" if ":" in host else host
        self.url = f"{'https' if tls else 'http'}://{shown}:{listener.getsockname()[1]}{PATH}"
        self._server = QuietServer(config)
        with listener:
            async with self._manager.run(), anyio.create_task_group() as tasks:
                try:
                    await self._server.serve([listener])
                finally:
                    await self.end()
                tasks.cancel_scope.cancel()

    def stop(self) -> None:
        """Take no more requests; those under way are answered."""
        if self._server is not None:
            self._server.should_exit = True

    async def end(self) -> None:
        """Have whoever has no answer yet try again, while all is there that a request needs. May be called twice."""
        self._has_ended = True
        if self._server is None or not self._server.started:
            return
        for listening in self._server.servers:
            listening.close()
        state = self._server.server_state
        for connection in tuple(state.connections):
            connection.shutdown()
        waiting = set(state.tasks)
        for task in waiting:
            task.cancel()
        if waiting:
            with anyio.CancelScope(shield=True):
                await asyncio.wait(waiting, timeout=TOLD_S)

    def _check_exposed(self, host: str) -> None:
        if host not in LOOPBACK and self._no_token:
            raise InvalidInput(f"{host} can be reached from elsewhere: --no-token is for this machine alone")

    # --- one request ---

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer an HTTP request: an ASGI application. What it raised, uvicorn would answer in plain text."""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(scope["headers"])}
        exchange, refused = Exchange(send), None
        try:
            if not self._has_ended:
                await self._serve_request(scope, headers, exchange, receive)
        except Refused as error:
            refused = error
        except anyio.get_cancelled_exc_class():  # by `end`, or by uvicorn when `STOP_S` are over
            if exchange.has_begun:
                raise
            refused = _stopped()
        except Exception:
            if exchange.has_begun:
                raise
            logger.exception("a request over HTTP failed", extra={"path": scope["path"]})
        if exchange.has_begun:
            return
        if refused is None:
            refused = _stopped() if self._has_ended else Refused(500, FAILED, code=INTERNAL_ERROR)
        allowed = {}
        with contextlib.suppress(Refused):
            allowed = self._cors(scope, headers, has_token=False)
        answer = JSONResponse(refused.body(exchange.id), refused.status, headers={**allowed, **(refused.headers or {})})
        await answer(scope, receive, send)

    async def _serve_request(self, scope: Scope, headers: Head, exchange: Exchange, receive: Receive) -> None:
        send = exchange.send
        check_head(scope, headers)
        self._check_host(headers)
        if scope["path"] == HEALTH:
            await JSONResponse({"status": "ok"})(scope, receive, send)
            return
        if self._open_browser is not None and f"{scope['path']}/".startswith(f"{BROWSER}/"):
            await self._browse(self._open_browser, scope, receive, send)
            return
        if scope["path"] != PATH:
            raise Refused(404, f"there is nothing at this path: MCP is at {PATH}")
        if scope["method"] == "OPTIONS":
            await Response(status_code=204, headers=self._cors(scope, headers, has_token=False))(scope, receive, send)
            return
        grant = self._grant(headers)
        self._limit_rate(grant)
        cors = self._cors(scope, headers, has_token=grant is not None)
        await self._answer(scope, headers, grant, exchange, receive, with_headers(send, cors))

    async def _browse(self, opened: Callable[[], ASGIApp], scope: Scope, receive: Receive, send: Send) -> None:
        """Show a page of the memory browser, which is imported when somebody looks for the first time."""
        if self._browser is None:
            browser = await anyio.to_thread.run_sync(opened)
            self._browser = Router([Mount(BROWSER, browser)])
        self._pages += 1
        try:
            await self._browser(scope, receive, send)
        finally:
            self._pages -= 1

    def _check_host(self, headers: Head) -> None:
        """A page in a browser can have a name lead to this machine: it is not served under names that are not ours."""
        host = host_in(f"//{headers.get('host', '')}")
        known = LOOPBACK | set(self._settings.http_hosts)
        if host not in known and (self._settings.http_host in LOOPBACK or self._settings.http_hosts):
            raise Refused(421, "this server does not go by that name: see the setting http_hosts")

    def _cors(self, scope: Scope, headers: Head, *, has_token: bool) -> dict[str, str]:
        """The CORS headers for a page of the request's origin. Where no token is needed, a page of another port of this
        machine is a stranger: whoever has an account here may serve one.

        Starlette's middleware would answer a page of a foreign origin all the same, and only hide the answer from it.
        """
        origin = headers.get("origin")
        if origin is None:
            return {}
        allowed = self._settings.http_origins
        is_own = origin == f"{scope['scheme']}://{headers.get('host', '')}"
        is_local = host_in(origin) in LOOPBACK and (is_own or has_token or not self._no_token)
        is_ours = is_local or origin in allowed
        if not is_ours and "*" not in allowed:
            raise Refused(403, "pages of that origin may not come here: see the setting http_origins")
        if not is_ours and not has_token and self._no_token:
            raise Refused(403, "pages of any origin may only come with a token")
        return {
            "Access-Control-Allow-Origin": origin if is_ours else "*",
            "Access-Control-Allow-Methods": "POST, GET, DELETE, OPTIONS",
            "Access-Control-Allow-Headers": TAKEN_HEADERS,
            "Access-Control-Expose-Headers": SHOWN_HEADERS,
            "Vary": "Origin",
        }

    def _grant(self, headers: Head) -> Grant | None:
        """The rights of the request's token; None for a request without one, where none is needed."""
        if self._no_token and "authorization" not in headers:
            return None
        scheme, _, token = headers.get("authorization", "").partition(" ")
        try:
            grant = self._tokens.find(token.strip(), time.time()) if scheme.lower() == "bearer" else None
        except HomeUnusable as error:
            logger.error("tokens cannot be read", extra={"reason": error.message})
            raise Refused(503, "the tokens of this server cannot be read: see gateway.log") from error
        if grant is None:
            said = "this needs a token that is valid: Authorization: Bearer <token> ('remembrancer token create')"
            raise Refused(401, said, {"WWW-Authenticate": 'Bearer error="invalid_token"'})
        return grant

    def _limit_rate(self, grant: Grant | None) -> None:
        """Refuse a request beyond what its token has in a minute, or all have together that come without any."""
        wait_s = self._rates.wait_s(_whose(grant), time.monotonic())
        if wait_s:
            whose = "all have together that come without a token" if grant is None else "a token has"
            said = f"{self._settings.http_requests_per_minute} requests a minute are what {whose}: try again later"
            raise Refused(429, said, {"Retry-After": str(math.ceil(wait_s))})

    async def _answer(
        self, scope: Scope, headers: Head, grant: Grant | None, exchange: Exchange, receive: Receive, send: Send
    ) -> None:
        body = await read_body(receive)
        session_id, version = headers.get(SESSION), headers.get(VERSION, DEFAULT_NEGOTIATED_VERSION)
        has_handshake = version in HANDSHAKE_PROTOCOL_VERSIONS
        said = said_in(body) if scope["method"] == "POST" else Said()
        exchange.id = None if said.id is msgspec.UNSET else said.id
        if session_id is not None:
            visitor = await self._known(session_id, version, scope, headers, grant)
            if scope["method"] == "DELETE":
                await self._end_for_good(session_id, grant)
        elif has_handshake and said.method == "initialize":
            await self._visitor("", "", scope, headers, grant, said.client)  # refused before there is a session
            await self._pass_on(None, body, said, scope, headers, grant, receive, send)
            return
        else:
            # A client without a session counts its requests anew each time it starts: an id of its own for each.
            key = headers.get(RETRY) or new_ulid()
            visitor = await self._visitor(key, _shared_session(grant), scope, headers, grant, said.client)
        try:
            reads_json = any(each in headers.get("accept", "*/*") for each in ("application/json", "*/*"))
            with visitor.at_work(scope["method"]):
                if self._call_tool is not None and has_handshake and said.is_call and reads_json:
                    answer = await self._call(self._call_tool, visitor, said, session_id)
                    await answer(scope, receive, send)
                else:
                    await self._pass_on(visitor, body, said, scope, headers, grant, receive, send)
        finally:
            if session_id is None:
                visitor.end()

    async def _known(self, session_id: str, version: str, scope: Scope, headers: Head, grant: Grant | None) -> Visitor:
        """Whose session it is, also if an earlier gateway began it. Raises `Refused` if it is over, or another's."""
        if session_id not in self._visitors and await self._manager.revived(session_id, _owner(grant), version):
            await self._open(session_id, scope, headers, grant, "")
        visitor = self._visitors.get(session_id)
        if visitor is None or visitor.owner != _whose(grant):
            raise Refused(404, "there is no such session (any more): begin one with initialize")
        return visitor

    async def _end_for_good(self, session_id: str, grant: Grant | None) -> None:
        try:
            await self._manager.end_for_good(session_id)
        except OSError as error:
            logger.error("the end of a session cannot be noted", extra={"reason": str(error)})
            raise Refused(503, f"the end of this session cannot be noted ({error.strerror}): try again") from error

    def _idle_since(self, session_id: str) -> tuple[bool, float] | None:
        """The order in which sessions make room: those that listen last. None: it is being answered, or begins."""
        visitor = self._visitors.get(session_id)
        return None if visitor is None or visitor.requests else (visitor.streams > 0, visitor.used_at)

    async def _pass_on(
        self,
        visitor: Visitor | None,
        body: bytes,
        said: Said,
        scope: Scope,
        headers: Head,
        grant: Grant | None,
        receive: Receive,
        send: Send,
    ) -> None:
        """Have the SDK answer a request; without a visitor it begins a session."""

        async def sending(message: Message) -> None:
            made = Headers(raw=message["headers"]).get(SESSION) if message["type"] == "http.response.start" else None
            if visitor is None and made is not None and message["status"] < 300:
                await self._open(made, scope, headers, grant, said.client)
            await out(message)

        scope, out = {**scope, "user": _owner(grant)}, send
        if visitor is not None:
            scope["remembrancer"] = RequestContext(visitor, time.time())
        is_post, version = scope["method"] == "POST", headers.get(VERSION, DEFAULT_NEGOTIATED_VERSION)
        if is_post:
            scope["headers"] = [each for each in scope["headers"] if each[0] != b"accept"]
            scope["headers"].append((b"accept", b"application/json, text/event-stream"))
            if "text/event-stream" not in headers.get("accept", ""):
                out = as_json(send)
        receiving = replayed(body, receive)
        is_alone = is_post and visitor is not None and SESSION not in headers
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._end_when_revoked, grant, headers.get(SESSION, ""), tasks.cancel_scope)
            if is_alone and version in HANDSHAKE_PROTOCOL_VERSIONS:
                await self._manager.answer_alone(version, scope, receiving, sending)
            else:
                await self._manager.handle_request(scope, receiving, sending)
            tasks.cancel_scope.cancel()

    async def _call(self, call_tool: CallTool, visitor: Visitor, said: Said, session_id: str | None) -> Response:
        """The answer to a call of a tool. Through the SDK it would take several times as long."""
        trace = self._traces.begin(CALL)
        context = RequestContext(visitor, time.time(), trace)
        result = await call_tool(context, said.id, said.params["name"], said.params.get("arguments") or {})
        body = await result.response(said.id)
        trace.end("answer made")
        headers = {} if session_id is None else {SESSION: session_id}
        return Response(body, media_type="application/json", headers=headers)

    async def _end_when_revoked(self, grant: Grant | None, session_id: str, scope: anyio.CancelScope) -> None:
        while grant is not None:
            await anyio.sleep(CHECK_S)
            try:
                holds = self._tokens.holds(grant, time.time())
            except HomeUnusable:
                holds = False
            if not holds:
                scope.cancel()
                return

    async def _visitor(
        self, key: str, session: str, scope: Scope, headers: Head, grant: Grant | None, client: str
    ) -> Visitor:
        """A client, in the project that its request names, or else in the first that its token is for.

        Raises `Refused` for another project than the token's.
        """
        named = headers.get(PROJECT) or parse_qs(scope["query_string"].decode("latin-1")).get("project", [""])[0]
        first = grant.projects[0] if grant is not None and grant.projects else self._home
        directory = Path(named or first)
        if not directory.is_absolute() or "\0" in named:
            raise Refused(400, "a project is named by the absolute path of its directory")
        project, tree = await anyio.to_thread.run_sync(_place, directory, grant)
        tools, notices = choose_tools(self._tools, headers.get(TOOLSETS))
        if grant is not None and grant.read_only:
            tools = {name: tool for name, tool in tools.items() if tool.read_only}
        bridge = headers.get(BRIDGE)
        if bridge is not None:
            session = f"session:{hashlib.sha256(f'{_whose(grant)} {bridge}'.encode()).hexdigest()[:32]}"
        caller = Caller(f"http {_whose(grant)} {bridge or key}", session, project, time.time(), tree)
        notices += self._notices()
        name = client or headers.get("user-agent", "")[:MAX_CLIENT_NAME]
        return Visitor(f"{self._incarnation}-{key}", caller, tools, notices, name, _whose(grant))

    async def _open(self, session_id: str, scope: Scope, headers: Head, grant: Grant | None, client: str) -> None:
        """A session begins, or is there again."""
        session = f"session:{name_of(session_id)}"
        visitor = await self._visitor(session_id, session, scope, headers, grant, client)
        if session_id not in self._visitors:
            self._visitors[session_id] = visitor
            self._registry.attend(visitor)

    def _session_ended(self, session_id: str) -> None:
        visitor = self._visitors.pop(session_id, None)
        if visitor is not None:
            visitor.end()
            self._registry.left(visitor)


class _Rates:
    """A bucket for each token, and one for all who have none, of as many requests as it has in a minute; it fills up
    as time goes. Pure."""

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._full_at: dict[str, float] = {}

    def wait_s(self, whose: str, now: float) -> float:
        """Count a request; or how long it is until the next one, where there is none left."""
        if not self._per_minute:
            return 0.0
        full_at = max(self._full_at.get(whose, 0.0), now) + 60.0 / self._per_minute
        wait_s = full_at - now - 60.0
        if wait_s <= 1e-6:
            self._full_at[whose] = full_at
            return 0.0
        return wait_s


def _place(directory: Path, grant: Grant | None) -> tuple[ProjectRef, str]:
    """The project and the working tree of a directory, for who has the token. Looks at disk.

    Raises `Refused`: it is not one of the token's projects.
    """
    project, tree = project_of(directory), working_tree_of(directory)
    has_all = grant is None or grant.every_project
    if grant is not None and not has_all and project.id not in {project_of(Path(each)).id for each in grant.projects}:
        raise Refused(403, "this token is not for that project")
    return as_granted(project, grant, tree), str(tree)


def _stopped() -> Refused:
    return Refused(503, STOPPED, {"Retry-After": "1", "Connection": "close"}, INTERNAL_ERROR, retry=True)


def _whose(grant: Grant | None) -> str:
    return "anyone" if grant is None else grant.sha256


def _owner(grant: Grant | None) -> AuthenticatedUser:
    """By this the SDK knows whose a session is."""
    return AuthenticatedUser(AccessToken(token="", client_id=_whose(grant), scopes=[]))


def _shared_session(grant: Grant | None) -> str:
    """The session of all calls with one token that come without a session. A new token of an old name has another."""
    if grant is None:
        return "session:http"
    return f"session:http-{hashlib.sha256(f'session {grant.sha256}'.encode()).hexdigest()[:32]}"


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
