"""The gateway's Unix socket: bridges connect, say hello, and get a session each."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.abc
import msgspec
from mcp.server.lowlevel import Server

from remembrancer import __version__
from remembrancer.actors.gateway.hello import TOOLSETS_VARIABLE, Hello, read_hello, setting_warnings
from remembrancer.actors.gateway.session import CallTool, Session
from remembrancer.actors.gateway.session_registry import SessionRegistry
from remembrancer.actors.gateway.transport import LineTransport
from remembrancer.config.settings import Settings
from remembrancer.protocol.errors import InvalidInput, RemembrancerError
from remembrancer.protocol.gateway_link import (
    INVALID,
    MAX_HELLO_BYTES,
    MAX_LINE_BYTES,
    MAX_STAMP_BYTES,
    REFUSED,
    WELCOME,
)
from remembrancer.protocol.reads import Notice
from remembrancer.protocol.tracing import Traces
from remembrancer.toolsets.tools import Tool, choose_tools

HELLO_WAIT_S: Final = 5.0
BACKLOG: Final = 256
MAX_SESSIONS: Final = 512

logger = logging.getLogger(__name__)


class Listener:
    """Serves sessions on a socket from `open` until `aclose`."""

    def __init__(
        self,
        path: Path,
        incarnation: str,
        server: Server[Any],
        call_tool: CallTool,
        tools: Sequence[Tool[Any]],
        settings: Settings,
        registry: SessionRegistry,
        tasks: anyio.abc.TaskGroup,
        traces: Traces,
        notices: Callable[[], list[Notice]] = list,
    ) -> None:
        self._path = path
        self._incarnation = incarnation
        self._server = server
        self._call_tool = call_tool
        self._tools = tools
        self._settings = settings
        self._registry = registry
        self._tasks = tasks
        self._traces = traces
        self._notices = notices
        self._numbers = itertools.count(1)
        self._socket: asyncio.Server | None = None
        self._sessions: set[Session] = set()

    @property
    def sessions(self) -> int:
        """How many bridges have said hello and are there."""
        return len(self._sessions)

    async def open(self) -> None:
        """Listen. A socket that a dead gateway left is replaced: whoever holds the gateway's lock owns the path."""
        self._path.unlink(missing_ok=True)
        limit = MAX_LINE_BYTES + MAX_STAMP_BYTES
        self._socket = await asyncio.start_unix_server(self._accept, self._path, limit=limit, backlog=BACKLOG)
        self._path.chmod(0o600)

    async def drain(self, reason: str | None) -> None:
        """Take no more connections, wait until every request has its answer, and tell the bridges why it ends.

        `reason` None: they are not told.
        """
        self._stop_listening()
        while any(not session.is_idle for session in self._sessions):  # noqa: ASYNC110 - limited by the caller
            await anyio.sleep(0.01)
        if reason is not None:
            for session in self._sessions:
                session.transport.say_goodbye(reason)

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
        """One connection. Whatever goes wrong in it ends it alone."""
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
        """Read the hello and answer it; None when this bridge cannot be served."""
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
        welcome = {"version": __version__, "incarnation": self._incarnation}
        writer.write(WELCOME + msgspec.json.encode(welcome) + b"\n")
        return hello

    async def _converse(self, hello: Hello, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tools, notices = choose_tools(self._tools, hello.environment.get(TOOLSETS_VARIABLE))
        notices += [*setting_warnings(hello.environment, self._settings), *self._notices()]
        for notice in notices:
            logger.warning("a session's environment", extra={"session": hello.session, "reason": notice.message})
        key = f"{self._incarnation}-{next(self._numbers)}"
        session = Session(hello, key, tools, notices, LineTransport(reader, writer), self._traces)
        self._sessions.add(session)
        if not hello.passing:
            self._registry.attend(session)
        logger.info("session opened", extra={"session": hello.session, "bridge_pid": hello.pid})
        try:
            await session.serve(self._server, self._call_tool)
        finally:
            self._sessions.discard(session)
            self._registry.left(session)
            logger.info("session closed", extra={"session": hello.session, "bridge_pid": hello.pid})
