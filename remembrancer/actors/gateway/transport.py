"""What carries a session's messages: the contract, and lines on the Unix socket of a bridge."""

from __future__ import annotations

import asyncio
import logging
from typing import Final, NamedTuple, Protocol

from remembrancer.protocol.gateway_link import BYE, CONTROL, END, split_stamp

HIGH_WATER_BYTES: Final = 1024 * 1024
"""Unsent bytes from which on a sender waits."""

logger = logging.getLogger(__name__)


class Received(NamedTuple):
    """The JSON of one message, and when the client sent it (milliseconds since the epoch)."""

    text: bytes
    sent_ms: int


class Transport(Protocol):
    """Carries the messages of one session."""

    has_said_end: bool
    """Whether the client has gone for good: a connection that breaks without this may come again."""

    async def receive(self) -> Received | None:
        """The next message; None: the connection has ended."""
        ...

    def send(self, messages: list[bytes]) -> None:
        """Send messages, each of them JSON without a line break."""
        ...

    async def flush(self) -> None:
        """Wait while too much is unsent. Raises `ConnectionError` when the connection has ended."""
        ...

    def say_goodbye(self, reason: str) -> None:
        """Tell the other end that the runtime stops in good order."""
        ...

    def stop_receiving(self) -> None:
        """Have `receive` return None, whatever the other end still has to say."""
        ...


class LineTransport:
    """Lines between a bridge and this gateway: a stamp of time before each message, and lines for control."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.has_said_end = False

    async def receive(self) -> Received | None:
        """The next message; None: the connection has ended, or a line was too long."""
        while True:
            try:
                line = await self._reader.readuntil(b"\n")
            except (asyncio.IncompleteReadError, ConnectionError):
                return None
            except asyncio.LimitOverrunError:
                logger.warning("a line is too long")
                return None
            if line.startswith(CONTROL):
                self.has_said_end = self.has_said_end or line.rstrip() == END
                continue
            try:
                sent_ms, text = split_stamp(line)
            except ValueError:
                logger.warning("a line without a stamp was dropped")
                continue
            return Received(text, sent_ms)

    def send(self, messages: list[bytes]) -> None:
        """One write for all of them."""
        self._writer.write(b"\n".join([*messages, b""]))

    async def flush(self) -> None:
        """Wait while too much is unsent."""
        if self._writer.transport.get_write_buffer_size() > HIGH_WATER_BYTES:
            await self._writer.drain()

    def say_goodbye(self, reason: str) -> None:
        """Tell the bridge that the runtime stops in good order."""
        self._writer.write(BYE + reason.encode() + b"\n")

    def stop_receiving(self) -> None:
        """Have `receive` return None."""
        self._reader.feed_eof()
