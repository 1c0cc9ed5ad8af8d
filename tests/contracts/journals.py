"""The journals that the suite of the contract runs over, each with the faults that a test asks for."""

from __future__ import annotations

import asyncio
import atexit
import time
import uuid
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

import nats

from remembrancer.journal.contract import Journal
from remembrancer.journal.jetstream import JetStreamJournal, Server, entries_stream, state_stream
from remembrancer.journal.sealing import Keyring, Sealed
from tests.in_process_journal import InProcessJournal, InProcessServer
from tests.nats_servers import NatsServers

RESOLVE_S = 5.0
"""The time that a journal takes to learn what is so, of the servers of a test, which are all there."""


class InProcess:
    """A server of journals, and connections to it, closed at the end: here everything is in this process."""

    def __init__(self, directory: Path) -> None:
        self._now = 0.0
        self._server = InProcessServer(clock=lambda: self._now)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is held open."""

    def lane(self) -> str:
        """The name of a lane that no other test has."""
        return f"lane-{uuid.uuid4().hex}"

    async def connect(self) -> Journal:
        """A connection of one more host."""
        return InProcessJournal(self._server)

    async def lose(self, lane: str) -> None:
        """Delete a lane's journal behind the hosts' backs."""
        self._server.delete(lane)

    async def pass_time(self, seconds: float) -> None:
        """Return when so much time has passed for the server."""
        self._now += seconds

    def now(self) -> float:
        """The server's time, in seconds since the epoch."""
        return self._now


class OneServer(InProcess):
    """A NATS server with JetStream, which all tests of this process share, and seals on everything."""

    count = 1
    _running: ClassVar[dict[int, NatsServers]] = {}

    def __init__(self, directory: Path) -> None:
        self._connections: list[Journal] = []
        self._keyring = Keyring.new()

    async def __aenter__(self) -> Self:
        if self.count not in self._running:
            servers = self._running[self.count] = NatsServers(self.count)
            atexit.register(servers.__exit__)
            await asyncio.to_thread(servers.__enter__)
            first = JetStreamJournal(Server(servers.urls))
            await servers.until_ready(first)
            await first.aclose()
        self._nats = Server(self._running[self.count].urls)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in self._connections:
            await connection.aclose()

    async def connect(self) -> Journal:
        self._connections.append(Sealed(JetStreamJournal(self._nats, resolve_s=RESOLVE_S), self._keyring))
        return self._connections[-1]

    async def lose(self, lane: str) -> None:
        client = await nats.connect(list(self._nats.urls))
        for stream in (entries_stream(lane), state_stream(lane)):
            await client.jetstream().delete_stream(stream)
        await client.close()

    async def pass_time(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def now(self) -> float:
        return time.time()


class ThreeServers(OneServer):
    """A cluster of three, of which each stream has a replica on each."""

    count = 3


KINDS: tuple[type[InProcess], ...] = (InProcess, OneServer, ThreeServers)
