"""Receiving on a ZeroMQ socket from an event loop, without a task and a future for each message.

A socket of `zmq.asyncio` costs a round trip between two processes two thirds more time than this.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

import zmq

BREATHE_AFTER: Final = 64
"""Messages after which a reader lets the rest of its process work, however many more are there."""

logger = logging.getLogger(__name__)


class SocketReader:
    """Gives `take` the frames of each message that comes, in order, on the running event loop. `take` must not block.

    The socket's descriptor becomes readable once when something has happened, and not again before the socket was
    asked what it was. Sending asks as well, and so takes the news away from the reader: whoever sends calls `look`
    afterwards.
    """

    def __init__(self, socket: zmq.Socket[bytes], take: Callable[[list[bytes]], None]) -> None:
        self._socket: zmq.Socket[bytes] | None = socket
        self._take = take
        self._loop = asyncio.get_running_loop()
        self._descriptor = int(socket.getsockopt(zmq.FD))
        self._due: asyncio.Handle | None = None
        self._loop.add_reader(self._descriptor, self._read)
        self._read_soon()

    def look(self) -> None:
        """Read soon if there is something to be read."""
        if self._due is None and self._socket is not None and int(self._socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            self._read_soon()

    def close(self) -> None:
        """Read no more. Has to come before the socket is closed; may be called twice."""
        if self._socket is None:
            return
        self._socket = None
        self._loop.remove_reader(self._descriptor)
        if self._due is not None:
            self._due.cancel()

    def _read_soon(self) -> None:
        if self._due is None:
            self._due = self._loop.call_soon(self._read)

    def _read(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None
        for _ in range(BREATHE_AFTER):
            if self._socket is None:  # closed by what was taken
                return
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            except zmq.ZMQError:
                logger.exception("a socket cannot be read any more")
                self.close()
                return
            try:
                self._take(frames)
            except Exception:  # one message that cannot be dealt with must not make the process deaf
                logger.exception("a message failed")
        self._read_soon()
