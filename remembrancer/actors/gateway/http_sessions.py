"""Sessions over HTTP: the SDK's, under ids that are signed, so that one goes on at the gateway that comes after.

A session that has to make room goes from memory alone: with its next request it is there again. One that its client has
ended is never there again.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.abc
import anyio.to_thread
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

from remembrancer.protocol.paths import read_file, write_whole

MAX_BODY_BYTES: Final = 4 * 1024 * 1024
MAX_SESSIONS: Final = 512
MAX_SESSIONS_OF_ONE: Final = 256
"""Sessions in memory, of all and of one token. Where there are so many, the one that has been idle longest goes."""
SESSION_IDLE_S: Final = 1800.0
EVENTS: Final = 256
"""Events of a session that a client which lost its stream can have again."""
KEY_BYTES: Final = 32
ENDED_KEPT: Final = 2000
"""Sessions that are known one by one to have been ended; of older ones none comes back."""

logger = logging.getLogger(__name__)


class HttpSessions(StreamableHTTPSessionManager):
    """The SDK's sessions, whose ids are signed: one that another gateway began goes on here.

    `idle_since` says of a session how long it has been idle, as what sorts (None: it has something to do).
    `when_ended` is told of each that is in memory no more.
    """

    def __init__(
        self,
        server: Server[Any],
        keys: Path,
        idle_since: Callable[[str], tuple[bool, float] | None],
        when_ended: Callable[[str], None],
    ) -> None:
        super().__init__(
            server, max_request_body_size=MAX_BODY_BYTES, session_idle_timeout=SESSION_IDLE_S, max_sessions=MAX_SESSIONS
        )
        self._key = _key_in(keys)
        self._ended = EndedSessions(keys / "http-ended")
        self._idle_since = idle_since
        self._when_ended = when_ended
        self._reviving = anyio.Lock()

    async def end_for_good(self, session_id: str) -> None:
        """Have an id open nothing any more, durably. Raises `OSError` where that cannot be noted."""
        await self._ended.add(name_of(session_id))

    async def answer_alone(self, version: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that needs no session."""
        await self._handle_stateless_request(version, scope, receive, send)

    async def revived(self, session_id: str, owner: AuthenticatedUser, version: str) -> bool:
        """Take up a session of an earlier gateway; whether it was one of that owner's."""
        async with self._reviving:
            who = authorization_context(owner)
            name, _, signature = session_id.partition(".")
            is_ours = hmac.compare_digest(signature.encode(), self._signature(name, who).encode())
            if not is_ours or name in self._ended:
                return False
            if session_id in self._server_instances:
                return True
            if not self._make_room(who):
                return False
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
        if not self._make_room(requestor):
            return None
        name = f"{int(time.time()):08x}{secrets.token_hex(16)}"
        return self._keep(f"{name}.{self._signature(name, requestor)}", requestor)

    def _make_room(self, owner: AuthorizationContext | None) -> bool:
        """Let go of the idlest session of an owner who has as many as one may have, or of all when these are too many.

        False: each of them has something to do.
        """
        own = [instance for instance in self._server_instances if self._session_owners.get(instance) == owner]
        crowd = own if len(own) >= MAX_SESSIONS_OF_ONE else list(self._server_instances)
        if len(own) < MAX_SESSIONS_OF_ONE and len(crowd) < MAX_SESSIONS:
            return True
        idle = [(since, each) for each in crowd if (since := self._idle_since(each)) is not None]
        if not idle:
            return False
        _, idlest = min(idle)
        transport = self._server_instances[idlest]
        self._forget(idlest)
        tasks: Any = self._task_group
        tasks.start_soon(transport.terminate)
        return True

    def _keep(self, session_id: str, owner: AuthorizationContext | None) -> StreamableHTTPServerTransport:
        transport = StreamableHTTPServerTransport(session_id, event_store=_Events(), idle_timeout=SESSION_IDLE_S)
        self._server_instances[session_id] = transport
        if owner is not None:
            self._session_owners[session_id] = owner
        return transport

    def _forget(self, session_id: str) -> None:
        self._server_instances.pop(session_id, None)
        self._session_owners.pop(session_id, None)
        self._when_ended(session_id)

    async def _discard_session(self, session_id: str, transport: StreamableHTTPServerTransport) -> None:
        if self._server_instances.get(session_id) is transport:  # and not one that was taken up again meanwhile
            self._forget(session_id)
        if not transport.is_terminated:
            with anyio.CancelScope(shield=True):
                await transport.terminate()

    def _signature(self, name: str, owner: AuthorizationContext | None) -> str:
        return hmac.new(self._key, f"{name} {owner}".encode(), hashlib.sha256).hexdigest()[:32]


class EndedSessions:
    """The names of sessions that were ended by their clients, in a file: the newest, and a name up to which all count.

    Names begin with the time at which they were given. A file that cannot be read counts as one of all names so far.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._adding = anyio.Lock()
        self._up_to, self._names = "", set[str]()
        try:
            self._up_to, *names = read_file(path).decode().split("\n")
            self._names = set(names)
        except FileNotFoundError:
            pass
        except (OSError, UnicodeDecodeError) as error:
            logger.error("the ended sessions cannot be read: none goes on", extra={"reason": str(error)})
            self._up_to = f"{int(time.time()) + 1:08x}"

    def __contains__(self, name: str) -> bool:
        return name <= self._up_to or name in self._names

    async def add(self, name: str) -> None:
        """Note a session durably. Raises `OSError`."""
        async with self._adding:
            up_to, names = self._up_to, sorted({*self._names, name})
            if len(names) > ENDED_KEPT:
                up_to, names = max(up_to, names[ENDED_KEPT // 2 - 1]), names[ENDED_KEPT // 2 :]
            await anyio.to_thread.run_sync(write_whole, self._path, "\n".join([up_to, *names]).encode())
            self._up_to, self._names = up_to, set(names)


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


def name_of(session_id: str) -> str:
    """The id of a session without its signature."""
    return session_id.partition(".")[0]


def _key_in(keys: Path) -> bytes:
    """The key that signs session ids; made when there is none."""
    path = keys / "http.key"
    if not path.exists():
        keys.mkdir(mode=0o700, exist_ok=True)
        write_whole(path, secrets.token_bytes(KEY_BYTES))
    return read_file(path)
