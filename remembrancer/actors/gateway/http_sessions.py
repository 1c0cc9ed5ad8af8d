"""Sessions over HTTP: the SDK's, under ids that are signed, so that one goes on at the gateway that comes after."""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.abc
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, AuthorizationContext, authorization_context
from mcp.server.connection import Connection
from mcp.server.lowlevel import Server
from mcp.server.runner import serve_connection
from mcp.server.streamable_http import (
    EventCallback,
    EventMessage,
    EventStore,
    StreamableHTTPServerTransport,
)
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.transport_context import TransportContext
from mcp_types import JSONRPCMessage
from starlette.types import Receive, Scope, Send

from remembrancer.protocol.paths import write_whole

MAX_BODY_BYTES: Final = 4 * 1024 * 1024
MAX_SESSIONS: Final = 512
SESSION_IDLE_S: Final = 1800.0
EVENTS: Final = 256
"""Events of a session that a client which lost its stream can have again."""
KEY_BYTES: Final = 32

logger = logging.getLogger(__name__)


class HttpSessions(StreamableHTTPSessionManager):
    """The SDK's sessions, whose ids are signed: one that another gateway began goes on here."""

    def __init__(self, server: Server[Any], keys: Path, when_ended: Callable[[str], None]) -> None:
        super().__init__(
            server, max_request_body_size=MAX_BODY_BYTES, session_idle_timeout=SESSION_IDLE_S, max_sessions=MAX_SESSIONS
        )
        self.ended: deque[str] = deque(maxlen=10 * MAX_SESSIONS)
        """Sessions that their clients have ended: they do not come back."""
        self._key = _key_in(keys)
        self._when_ended = when_ended
        self._reviving = anyio.Lock()

    async def answer_alone(self, version: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that needs no session."""
        await self._handle_stateless_request(version, scope, receive, send)

    async def revived(self, session_id: str, owner: AuthenticatedUser, version: str) -> bool:
        """Take up a session of an earlier gateway; whether it was one of that owner's."""
        async with self._reviving:
            who = authorization_context(owner)
            name, _, signature = session_id.partition(".")
            is_ours = hmac.compare_digest(signature.encode(), self._signature(name, who).encode())
            if not is_ours or session_id in self.ended or len(self._server_instances) >= MAX_SESSIONS:
                return False
            if session_id in self._server_instances:
                return True
            transport = self._keep(session_id, who)
            tasks: Any = self._task_group
            await tasks.start(self._go_on, session_id, transport, version)
            return True

    async def _go_on(
        self,
        session_id: str,
        transport: StreamableHTTPServerTransport,
        version: str,
        *,
        task_status: anyio.abc.TaskStatus[None],
    ) -> None:
        """As the SDK serves a session, but after its handshake."""
        async with transport.connect() as (read, write):
            dispatcher: JSONRPCDispatcher[TransportContext] = JSONRPCDispatcher(read, write)
            connection = Connection.for_loop(dispatcher, session_id=session_id, protocol_version_hint=version)
            connection.initialized.set()
            task_status.started()
            try:
                with transport.idle_scope or anyio.CancelScope():
                    await serve_connection(
                        self.app, dispatcher, connection=connection, lifespan_state=self._lifespan_state
                    )
            except Exception:
                logger.exception("a session crashed")
            finally:
                await self._discard_session(session_id, transport)

    def _admit_session(self, requestor: AuthorizationContext | None) -> StreamableHTTPServerTransport | None:
        if len(self._server_instances) >= MAX_SESSIONS:
            return None
        name = secrets.token_hex(16)
        return self._keep(f"{name}.{self._signature(name, requestor)}", requestor)

    def _keep(self, session_id: str, owner: AuthorizationContext | None) -> StreamableHTTPServerTransport:
        transport = StreamableHTTPServerTransport(session_id, event_store=_Events(), idle_timeout=SESSION_IDLE_S)
        self._server_instances[session_id] = transport
        if owner is not None:
            self._session_owners[session_id] = owner
        return transport

    async def _discard_session(self, session_id: str, transport: StreamableHTTPServerTransport) -> None:
        await super()._discard_session(session_id, transport)
        self._when_ended(session_id)

    def _signature(self, name: str, owner: AuthorizationContext | None) -> str:
        return hmac.new(self._key, f"{name} {owner}".encode(), hashlib.sha256).hexdigest()[:32]


class _Events(EventStore):
    """The last events of one session, for a client that has lost its stream."""

    def __init__(self) -> None:
        self._kept: deque[tuple[int, str, JSONRPCMessage | None]] = deque(maxlen=EVENTS)
        self._number = 0

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        """Keep an event; its id."""
        self._number += 1
        self._kept.append((self._number, stream_id, message))
        return str(self._number)

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        """Send again what came after an event on its stream; the stream, None: it is not known (any more)."""
        kept = list(self._kept)
        stream = next((each for number, each, _ in kept if str(number) == last_event_id), None)
        for number, each, message in kept if stream is not None else ():
            if each == stream and number > int(last_event_id) and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


def _key_in(keys: Path) -> bytes:
    """What session ids are signed with; made when there is none."""
    path = keys / "http.key"
    if not path.exists():
        keys.mkdir(mode=0o700, exist_ok=True)
        write_whole(path, secrets.token_bytes(KEY_BYTES))
    return path.read_bytes()
