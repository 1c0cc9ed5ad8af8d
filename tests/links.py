"""Links between a host and a server, which break as a test wants it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

LOOPBACK: Final = "127.0.0.1"
SLOW_S: Final = 0.1


class Link:
    """The way of one host to one server, at that port of this machine. It may be cut, held and opened at any time."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._state = "open"
        self._changed = asyncio.Event()
        self._ways: set[asyncio.Task[None]] = set()
        self._ends: set[asyncio.StreamWriter] = set()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[int]:
        server = await asyncio.start_server(self._forward, LOOPBACK, 0)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            ends = list(self._ends)
            self._set("cut")
            await asyncio.gather(*self._ways, return_exceptions=True)
            await asyncio.gather(*(end.wait_closed() for end in ends), return_exceptions=True)

    def _set(self, state: str) -> None:
        self._state = state
        self._changed.set()
        self._changed = asyncio.Event()
        if state == "cut":
            for end in self._ends:
                end.close()

    def open(self) -> None:
        self._set("open")

    def cut(self) -> None:
        self._set("cut")

    def hold(self, *, answers_alone: bool) -> None:
        """Keep back what is sent, or only what is answered, until the link is open again."""
        self._set("answers held" if answers_alone else "held")

    def slow(self) -> None:
        self._set("slow")

    def passed(self, data: bytes, *, is_answer: bool) -> bytes:
        """What goes on of that which is sent, or answered; the connection breaks where that is less."""
        return data

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = [writer]
        self._ends.add(writer)
        try:
            if self._state == "cut":
                return
            from_server, to_server = await asyncio.open_connection(LOOPBACK, self._port)
            ends.append(to_server)
            self._ends.add(to_server)
            ways = {
                asyncio.create_task(self._pump(reader, to_server, is_answer=False)),
                asyncio.create_task(self._pump(from_server, writer, is_answer=True)),
            }
            self._ways |= ways
            _, others = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in others:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            self._ways -= ways
        except OSError:  # the server is down
            pass
        finally:
            for end in ends:
                end.close()
                self._ends.discard(end)

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, *, is_answer: bool) -> None:
        while data := await source.read(65536):
            while self._state == "held" or (self._state == "answers held" and is_answer):
                await self._changed.wait()
            if self._state == "slow":
                await asyncio.sleep(SLOW_S)
            if self._state == "cut":
                return
            passed = self.passed(data, is_answer=is_answer)
            target.write(passed)
            await target.drain()
            if len(passed) < len(data):
                return
